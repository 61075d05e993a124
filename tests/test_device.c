/* Does it fit into a device: known answers, and the longest length fits while one more does not. */
#include <string.h>

#include "experiments/measure/device.h"
#include "optimized/registry.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/suites.h"

SUITE(device, .seconds = 60);

static const struct attn_stack one_call = {0, ATTN_SAVE_ROWS, 0};

static double need_at(const struct attn_spec *spec, const struct attn_stack *stack,
                      const struct attn_cli_shape *shape, int64_t length)
{
    struct attn_cli_shape so_long = *shape;
    so_long.n_query = so_long.n_key = length;
    struct attn_problem p = attn_cli_shape_problem(&so_long);
    double need = 0;
    ck_assert_int_eq(attn_device_need(spec, stack, &p, shape->pass, &need, NULL), ATTN_OK);
    return need;
}

TEST(sizes)
{
    static const struct {
        const char *text;
        int64_t bytes; /* 0: none */
    } size[] = {{"80GiB", 80LL << 30},
                {"24GB", 24000000000},
                {"1Mi", 1 << 20},
                {"4096", 4096},
                {"80 GiB", 0},
                {"GiB", 0},
                {"0", 0},
                {"-1GiB", 0},
                {"80GiBB", 0},
                {"", 0}};
    for (size_t s = 0; s < sizeof size / sizeof *size; s++) {
        struct attn_error err = {0};
        int64_t bytes = 0;
        enum attn_status status = attn_device_parse(size[s].text, &bytes, &err);
        ck_assert_msg(status == (size[s].bytes > 0 ? ATTN_OK : ATTN_EINVAL), "%s", size[s].text);
        ck_assert(size[s].bytes == 0 || bytes == size[s].bytes);
    }
}

/* dense, forward, no mask: scores and P, and q k v o lse, all in float32. */
static double dense_by_hand(double L)
{
    return 2 * 4 * 16 * L * L + 4 * (4 * 16 * 72 + 16) * L;
}

TEST(dense_is_known)
{
    const struct attn_spec spec = spec_of("dense");
    const struct attn_cli_shape shape = {.batch = 1,
                                         .heads = 16,
                                         .kv_heads = 16,
                                         .dim = 72,
                                         .dv = 72,
                                         .mask = "none",
                                         .dtype = ATTN_F32};
    double need[2], memory = 80.0 * (1 << 30);
    int64_t length;
    ck_assert_int_eq(
        attn_device_longest(&spec, &one_call, &shape, (int64_t)memory, &length, need, NULL),
        ATTN_OK);
    ck_assert(dense_by_hand((double)length) <= memory);
    ck_assert(dense_by_hand((double)length + 1) > memory);
    ck_assert_int_eq(length, 25833);
}

/* 28 layers with their inputs alone hold three tensors each, and nothing fits into a byte. */
TEST(layers_and_nothing)
{
    const struct attn_spec spec = spec_of("tiled");
    const struct attn_stack inputs = {28, ATTN_SAVE_INPUTS, 0}, rows = {28, ATTN_SAVE_ROWS, 0};
    const struct attn_cli_shape shape = {.batch = 1,
                                         .heads = 16,
                                         .kv_heads = 16,
                                         .dim = 72,
                                         .dv = 72,
                                         .mask = "none",
                                         .dtype = ATTN_BF16};
    const int64_t memory = 80LL << 30, tensor = 16 * 72 * 2;
    double need[2];
    int64_t little, much, none;
    ck_assert_int_eq(attn_device_longest(&spec, &inputs, &shape, memory, &much, need, NULL),
                     ATTN_OK);
    ck_assert_int_eq(attn_device_longest(&spec, &rows, &shape, memory, &little, need, NULL),
                     ATTN_OK);
    ck_assert_int_lt(much, memory / (28 * 3 * tensor));
    ck_assert_int_gt(much, memory / (28 * 3 * tensor) * 9 / 10);
    ck_assert_int_lt(little, memory / (28 * 4 * tensor));
    ck_assert_int_eq(attn_device_longest(&spec, &rows, &shape, 1, &none, need, NULL), ATTN_OK);
    ck_assert_int_eq(none, 0);
}

TEST_EACH(every_spec_ends_there, 2 * attn_impl_count())
{
    const struct attn_impl *impl = attn_impl_at(_i / 2);
    struct attn_spec spec = {.impl = impl};
    const struct attn_cli_shape shape = {.batch = 1,
                                         .heads = 16,
                                         .kv_heads = 16,
                                         .dim = 72,
                                         .dv = 72,
                                         .mask = "none",
                                         .dtype = ATTN_F32,
                                         .pass = _i % 2 == 0 ? ATTN_FORWARD : ATTN_BACKWARD};
    const int64_t memory = 3LL << 30;
    double need[2];
    int64_t length;
    struct attn_error err = {0};
    attn_options_preset(impl, &spec.options);
    ck_assert_msg(attn_device_longest(&spec, &one_call, &shape, memory, &length, need, &err) ==
                      ATTN_OK,
                  "%s: %s", impl->name, err.text);
    ck_assert_msg(need_at(&spec, &one_call, &shape, length) <= (double)memory, "%s", impl->name);
    ck_assert_msg(need_at(&spec, &one_call, &shape, length + 1) > (double)memory, "%s", impl->name);
    ck_assert(need_at(&spec, &one_call, &shape, length) == need[0]);
    ck_assert(need_at(&spec, &one_call, &shape, length + 1) == need[1]);
}
