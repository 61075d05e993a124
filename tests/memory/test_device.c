/* Does it fit into a device: known answers, and the longest length fits while one more does not. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/price/asked.h"
#include "experiments/price/cache.h"
#include "optimized/registry.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/suites.h"

SUITE(device);

static const struct attn_stack one_call = {0, ATTN_SAVE_ROWS, 0, 0};

static const struct attn_case sixteen_heads = {.batch = 1,
                                               .heads = 16,
                                               .kv_heads = 16,
                                               .d_key = 72,
                                               .d_value = 72,
                                               .mask = "none",
                                               .scale = (double)NAN,
                                               .dtype = ATTN_F32};

static double need_at(const struct attn_spec *spec, const struct attn_case *c,
                      enum attn_need_pass pass, const struct attn_memory *memory, int64_t length)
{
    struct attn_case so_long = *c;
    struct attn_need need;
    so_long.n_query = so_long.n_key = length;
    const struct attn_price_asked asked = {spec, &one_call, &so_long, pass, memory};
    ck_assert_int_eq(attn_need_of_case(&asked, &need, NULL), ATTN_OK);
    return attn_need_in(&need, memory);
}

static int64_t longest(const char *text, const struct attn_stack *stack, const struct attn_case *c,
                       int64_t memory_bytes)
{
    const struct attn_spec spec = spec_of(text);
    const struct attn_memory memory = {.bytes = (double)memory_bytes, .is_device = 1};
    struct attn_error err = {0};
    double bytes[2];
    int64_t length = -1;
    const struct attn_price_asked asked = {&spec, stack, c, ATTN_NEED_FORWARD, &memory};
    ck_assert_msg(attn_need_longest(&asked, 0, HUGE_VAL, &length, bytes, &err) == ATTN_OK, "%s",
                  err.text);
    return length;
}

TEST(sizes)
{
    static const struct {
        const char *text;
        int64_t bytes; /* 0: none */
    } size[] = {{"80GiB", 80LL << 30},
                {"24GB", 24000000000},
                {"1Mi", 1 << 20},
                {"4096B", 4096},
                {"80Gib", 80LL << 30},
                {"1048576", 1 << 20},
                {"1048575", 0}, /* whose unit was forgotten */
                {"80", 0},
                {"80 GiB", 0},
                {"GiB", 0},
                {"0", 0},
                {"-1GiB", 0},
                {"80GiBB", 0},
                {"", 0}};
    for (size_t s = 0; s < sizeof size / sizeof *size; s++) {
        struct attn_error err = {0};
        struct attn_memory memory = {.bytes = 0, .is_device = 0};
        enum attn_status status = attn_memory_parse(size[s].text, &memory, &err);
        ck_assert_msg(status == (size[s].bytes > 0 ? ATTN_OK : ATTN_EINVAL), "%s", size[s].text);
        ck_assert(size[s].bytes == 0 ||
                  (memory.is_device && memory.bytes == (double)size[s].bytes));
    }
}

/* dense, forward, no mask: scores and P, and q k v o lse, all in float32. */
static double dense_by_hand(double L)
{
    return 2 * 4 * 16 * L * L + 4 * (4 * 16 * 72 + 16) * L;
}

TEST(dense_is_known)
{
    const double memory = 80.0 * (1 << 30);
    int64_t length = longest("dense", &one_call, &sixteen_heads, (int64_t)memory);
    ck_assert(dense_by_hand((double)length) <= memory);
    ck_assert(dense_by_hand((double)length + 1) > memory);
    ck_assert_int_eq(length, 25833);
}

/* 28 layers with their inputs alone hold three tensors each, and nothing fits into a byte. */
TEST(layers_and_nothing)
{
    const struct attn_stack inputs = {28, ATTN_SAVE_INPUTS, 0, 0},
                            rows = {28, ATTN_SAVE_ROWS, 0, 0};
    struct attn_case c = sixteen_heads;
    const int64_t memory = 80LL << 30, tensor = 16 * 72 * 2;
    c.dtype = ATTN_BF16;
    int64_t much = longest("tiled", &inputs, &c, memory);
    int64_t little = longest("tiled", &rows, &c, memory);
    ck_assert_int_lt(much, memory / (28 * 3 * tensor));
    ck_assert_int_gt(much, memory / (28 * 3 * tensor) * 9 / 10);
    ck_assert_int_lt(little, memory / (28 * 4 * tensor));
    ck_assert_int_eq(longest("tiled", &rows, &c, 1), 0);
}

/* A length that ranks do not divide is refused, but not those that they do. */
TEST(refused_lengths_end_nothing)
{
    int64_t length = longest("ring:ranks=3,sizes=strict", &one_call, &sixteen_heads, 1 << 30);
    ck_assert_int_gt(length, 0);
    ck_assert_int_eq(length % 3, 0);
}

/* A price that takes too long ends the search. */
TEST(impatience)
{
    const struct attn_spec spec = spec_of("tiled");
    const struct attn_memory memory = {.bytes = 1e9, .is_device = 1};
    struct attn_error err = {0};
    double bytes[2];
    int64_t length;
    const struct attn_price_asked asked = {&spec, &one_call, &sixteen_heads, ATTN_NEED_FORWARD,
                                           &memory};
    ck_assert_int_eq(attn_need_longest(&asked, 0, -1, &length, bytes, &err), ATTN_ENOTSUP);
    ck_assert_msg(strstr(err.text, "took") != NULL, "%s", err.text);
}

/* Of one process, by hand: two passes have the tensors of the backward one, and the larger peak. */
TEST_EACH(both_passes, attn_impl_count())
{
    struct attn_spec spec = {.impl = attn_impl_at(_i)};
    struct attn_case c = sixteen_heads;
    struct attn_need pass[3];
    attn_options_preset(spec.impl, &spec.options);
    c.n_query = c.n_key = 1000;
    c.batch = 4;
    for (int n = 0; n < 3; n++) {
        const struct attn_price_asked asked = {&spec, &one_call, &c, (enum attn_need_pass)n, NULL};
        ck_assert_int_eq(attn_need_of_case(&asked, &pass[n], NULL), ATTN_OK);
    }
    const struct attn_need *f = &pass[0], *b = &pass[1], *both = &pass[2];
    ck_assert(both->beside == b->beside && both->shard == b->shard);
    ck_assert(both->beside > f->beside);
    ck_assert_int_eq(both->peak, f->peak > b->peak ? f->peak : b->peak);
    ck_assert(both->device >= fmax(f->device, b->device));
    ck_assert(both->flops == f->flops + b->flops);
    ck_assert_int_eq(both->sent, f->sent + b->sent);
    if (spec.impl->ranks == NULL) {
        ck_assert(both->peaks == fmax(f->peaks, b->peaks));
        ck_assert(both->device == b->beside + both->peaks);
    }
}

/* In all memories: of a device for each rank, and of a machine that has all of them. */
TEST_EACH(every_spec_ends_there, 6 * attn_impl_count())
{
    const enum attn_need_pass pass = (enum attn_need_pass)(_i % 3);
    const struct attn_memory memory = {.bytes = 3LL << 30, .is_device = _i / 3 % 2};
    struct attn_spec spec = {.impl = attn_impl_at(_i / 6)};
    double bytes[2];
    int64_t length;
    struct attn_error err = {0};
    attn_options_preset(spec.impl, &spec.options);
    const struct attn_price_asked asked = {&spec, &one_call, &sixteen_heads, pass, &memory};
    ck_assert_msg(attn_need_longest(&asked, 0, HUGE_VAL, &length, bytes, &err) == ATTN_OK, "%s: %s",
                  spec.impl->name, err.text);
    ck_assert_msg(bytes[0] <= memory.bytes && bytes[1] > memory.bytes, "%s", spec.impl->name);
    ck_assert(need_at(&spec, &sixteen_heads, pass, &memory, length) == bytes[0]);
    if (spec.impl->shapes == NULL)
        ck_assert(need_at(&spec, &sixteen_heads, pass, &memory, length + 1) == bytes[1]);
    else /* the next one is refused; the next that the ranks divide does not fit */
        ck_assert(need_at(&spec, &sixteen_heads, pass, &memory,
                          length + attn_ranks(spec.impl, &spec.options)) > memory.bytes);
}

/* By hand.  gpt-oss: 12 layers with a window of 128 keys, 12 without; 8 kv heads of 64, K and V.  A
 * window touches up to ceil(127 / P) + 1 pages. */
TEST(caches)
{
    static const struct {
        const char *model;
        int64_t length, pages[2];
        double token, bytes;
    } by_hand[] = {
        {"gpt-oss", 1000, {1000, 128}, 2048, 12.0 * 2048 * 1128},
        {"gpt-oss:page=16", 1000, {63, 9}, 2048, 12.0 * 2048 * 16 * 72},
        {"gpt-oss:page=16", 100, {7, 7}, 2048, 12.0 * 2048 * 16 * 14},
        {"gpt-oss:page=256", 300, {2, 2}, 2048, 12.0 * 2048 * 256 * 4},
        {"gpt-oss:type=fp8,page=1", 128, {128, 128}, 1024, 24.0 * 1024 * 128},
        /* 32 kv heads, K and V: 40 bytes, and a scale for each of 3 groups of 32 */
        {"phi-2:type=int4", 10, {10, 0}, 64 * 46, 32.0 * 64 * 46 * 10},
        {"deepseek-v3-absorbed:type=f32", 7, {7, 0}, 4 * 576, 61.0 * 4 * 576 * 7},
        {"whisper-large-cross", 7, {1500, 0}, 20 * 256, 32.0 * 20 * 256 * 1500},
        {"vit-h-14", 7, {0, 0}, 16 * 320, 0}, /* no order of tokens, no cache */
    };
    for (size_t n = 0; n < sizeof by_hand / sizeof *by_hand; n++) {
        struct attn_model_given given;
        struct attn_cache cache;
        struct attn_error err = {0};
        ck_assert_msg(attn_model_open(by_hand[n].model, &given, &err) == ATTN_OK, "%s", err.text);
        struct attn_case c = {.batch = 3, .dtype = ATTN_BF16};
        const char *const *v = given.model.value;
        c.heads = c.kv_heads = atoi(v[ATTN_MODEL_KV_HEADS]);
        c.d_key = atoi(v[ATTN_MODEL_DIM]), c.d_value = atoi(v[ATTN_MODEL_DV]);
        attn_case_set_mask(&c, v[ATTN_MODEL_MASK]);
        ck_assert_int_eq(
            attn_cache_open(&given, &c, v[ATTN_MODEL_KEYS][0] ? 1500 : -1, &cache, &err), ATTN_OK);
        for (int kind = 0; kind < ATTN_CACHE_KINDS; kind++) {
            struct attn_cache_part part = attn_cache_part(&cache, kind, by_hand[n].length);
            ck_assert_msg(part.layers == 0 || part.pages == by_hand[n].pages[kind],
                          "%s: %lld pages", by_hand[n].model, (long long)part.pages);
            ck_assert_double_eq(part.token_bytes, by_hand[n].token);
        }
        ck_assert_double_eq(attn_cache_bytes(&cache, by_hand[n].length), 3 * by_hand[n].bytes);
    }
}
