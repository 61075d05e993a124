/* The cache of a model, by hand and as published, and the command that prices it. */
#include <stdlib.h>

#include "experiments/rim/cache/cache.h"
#include "tests/fixtures/scratch.h"
#include "tests/suites.h"

SUITE(cache, .open = scratch_open, .close = scratch_close);

/* By hand.  gpt-oss: 12 layers with a window of 128 keys, 12 without; 8 kv heads of 64, K and V.  A
 * window touches up to ceil(127 / P) + 1 pages. */
TEST(caches)
{
    static const struct {
        const char *model, *settings;
        int64_t length, pages[2];
        double token, bytes;
    } by_hand[] = {
        {"gpt-oss", "", 1000, {1000, 128}, 2048, 12.0 * 2048 * 1128},
        {"gpt-oss", "page=16", 1000, {63, 9}, 2048, 12.0 * 2048 * 16 * 72},
        {"gpt-oss", "page=16", 100, {7, 7}, 2048, 12.0 * 2048 * 16 * 14},
        {"gpt-oss", "page=256", 300, {2, 2}, 2048, 12.0 * 2048 * 256 * 4},
        {"gpt-oss", "type=fp8,page=1", 128, {128, 128}, 1024, 24.0 * 1024 * 128},
        /* 32 kv heads, K and V: 40 bytes, and a scale for each of 3 groups of 32 */
        {"phi-2", "type=int4", 10, {10, 0}, 64 * 46, 32.0 * 64 * 46 * 10},
        {"deepseek-v3-absorbed", "type=f32", 7, {7, 0}, 4 * 576, 61.0 * 4 * 576 * 7},
        {"whisper-large-cross", "", 7, {1500, 0}, 20 * 256, 32.0 * 20 * 256 * 1500},
        {"vit-h-14", "", 7, {0, 0}, 16 * 320, 0}, /* no order of tokens, no cache */
    };
    for (size_t n = 0; n < sizeof by_hand / sizeof *by_hand; n++) {
        struct attn_model_given given;
        struct attn_cache cache;
        struct attn_error err = {0};
        ck_assert_msg(attn_model_open(by_hand[n].model, &given, &err) == ATTN_OK, "%s", err.text);
        struct attn_case c = {.batch = 3, .dtype = ATTN_BF16};
        const char *const *v = given.model.value;
        c.kv_heads = atoi(v[ATTN_MODEL_KV_HEADS]);
        c.d_key = atoi(v[ATTN_MODEL_DIM]), c.d_value = atoi(v[ATTN_MODEL_DV]);
        attn_case_set_mask(&c, v[ATTN_MODEL_MASK]);
        ck_assert_int_eq(attn_cache_open(&given.model, by_hand[n].settings, &c,
                                         v[ATTN_MODEL_KEYS][0] ? 1500 : -1, &cache, &err),
                         ATTN_OK);
        for (int kind = 0; kind < ATTN_CACHE_KINDS; kind++) {
            struct attn_cache_part part = attn_cache_part(&cache, kind, by_hand[n].length);
            ck_assert_msg(part.layers == 0 || part.pages == by_hand[n].pages[kind],
                          "%s: %lld pages", by_hand[n].model, (long long)part.pages);
            ck_assert_double_eq(part.token_bytes, by_hand[n].token);
        }
        ck_assert_double_eq(attn_cache_bytes(&cache, by_hand[n].length), 3 * by_hand[n].bytes);
    }
}

/* Caches that were published: Llama 3 70B; gpt-oss, full and with its windows; Gemma 3 1B;
 * DeepSeek V3; 36 layers of 8 kv heads of 128.  Then memory and parameters, and refusals. */
static const struct {
    const char *words;
    int status;
    const char *says;
} asked[] = {
    {"docs/examples/llama-3-70b.json --length 128Ki", 0, " 42,949,672,960  40.0 GiB"},
    {"llama-3-70b --length 128Ki", 0, " 42,949,672,960  40.0 GiB"},
    {"gpt-oss --mask 'causal(br)' --length 8Ki --batch 32", 0, "  12.0 GiB"},
    {"docs/examples/gpt-oss-20b.json --length 8Ki --batch 32", 0, "  6.09 GiB"},
    {"docs/examples/gemma-3-1b.json --length 32Ki", 0, "   139 MiB"},
    {"docs/examples/deepseek-v3.json --length 128Ki", 0, "  8.58 GiB"},
    {"deepseek-v3-absorbed --length 128Ki", 0, "  8.58 GiB"},
    {"docs/examples/qwen-3-8b.json --length 256Ki", 0, "  36.0 GiB"},
    {"llama-3-70b --memory 40GiB --longest", 0, " 131,072  42,949,672,960"},
    {"gpt-oss --length 8Ki --batch 32 --format json", 0, "\"bytes\": 6543114240\n"},
    {"llama-3-8b --length 8Ki --memory 24GB --params 8G,2", 0, "  1,073,741,824  1.00 GiB  yes\n"},
    {"llama-3-8b --length 8Ki --memory 24GB --params 8e9,3", 0, "  1,073,741,824  1.00 GiB  no\n"},
    {"gpt-2:page=0 --length 8", 2, "'page=0' of a model: type=f32|f16|bf16|fp8|int4"},
    {"gpt-2", 2, "--length is needed"},
    {"gpt-2 --longest", 2, "--longest needs --memory SIZE"},
};

TEST_EACH(a_model_is_priced, COUNT(asked))
{
    scratch_expect(asked[_i].status, asked[_i].says, "cache %s", asked[_i].words);
}
