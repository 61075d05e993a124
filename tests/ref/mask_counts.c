/* How many pairs a mask has, against figures worked out on paper; what random masks look like. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tests/fixtures/case_fixture.h"
#include "tests/fixtures/mask_data.h"
#include "tests/suites.h"

SUITE(mask);

/* ---- counts ------------------------------------------------------------------------------- */

enum { LONG = 1500000000 }; /* rows: a walk over them takes 2 s */
/* Closed forms of rows [i0,i1) and all keys.  W window, g global tokens, L length. */
static const struct {
    const char *text;
    int64_t n_query, n_key, i0, i1, pairs;
} GOLDEN[] = {
    {"none", 200000, 200000, 0, 200000, INT64_C(40000000000)},
    {"causal(tl)", 200000, 200000, 0, 200000, INT64_C(20000100000)}, /* L (L + 1) / 2 */
    {"causal(br)", LONG, LONG, 0, LONG, INT64_C(1125000000750000000)},
    {"causal(br)", 2, 5, 0, 2, 9},
    {"causal(tl)", 64, 64, 0, 16, 136}, /* contiguous shares */
    {"causal(tl)", 64, 64, 16, 32, 392},
    {"causal(tl)", 64, 64, 32, 48, 648},
    {"causal(tl)", 64, 64, 48, 64, 904},
    {"window(511,0,tl)", 200000, 200000, 0, 200000, 102269184}, /* L W - W (W - 1) / 2 */
    {"causal(br)&window(511,-1,tl)", 200000, 200000, 0, 200000, 102269184},
    {"window(128,128,tl)", 200000, 200000, 0, 200000, 51383488}, /* L w - (w^2 - 1) / 4, w = 257 */
    {"global(7)", 200000, 200000, 0, 200000, 2799951},           /* 2 g L - g^2 */
    {"global(7)", LONG, LONG, 0, LONG, INT64_C(20999999951)},
    {"causal(tl)|prefix(1000)", 200000, 200000, 0, 200000, INT64_C(20000599500)},
    {"prefix(5)", 200000, 300, 0, 200000, 1000000},
    {"keys(123)", LONG, 300, 0, LONG, INT64_C(184500000000)},
    {"documents(3x4,5x6,2x0)", 10, 10, 0, 10, 42}, /* sum of Lq_m Lk_m */
    {"documents(100000,60000,40000)&causal(tl)", 200000, 200000, 0, 200000, INT64_C(7600100000)},
    /* xformers' helpers and Skiparse (research: brute-forced); STDiT's shapes: B = 1 of each. */
    {"window(2,2,tl)", 100, 100, 0, 100, 494}, /* local_1d, w = 5: L w - (w^2 - 1) / 4 */
    {"global(3)", 100, 100, 0, 100, 591},
    {"axial2d(60,80)", 4800, 4800, 0, 4800, INT64_C(4800) * 139}, /* L (H + W - 1) */
    {"axial2d(1,7)", 7, 7, 0, 7, 49},
    {"dilated(60,80,4)", 4800, 4800, 0, 4800, INT64_C(4800) * 4800 / 16},       /* L^2 / k^2 */
    {"skiparse(single,4)", 28800, 28800, 0, 28800, INT64_C(28800) * 28800 / 4}, /* L^2 / k */
    {"skiparse(group,4)", 28800, 28800, 0, 28800, INT64_C(28800) * 28800 / 4},
    {"skiparse(group,6)", 10000000, 10000000, 0, 10000000, INT64_C(16666666666696)},
    {"spatial(16,32,32)", 16384, 16384, 0, 16384, 16 * 1024 * 1024},           /* T S^2 */
    {"temporal(16,32,32)", 16384, 16384, 0, 16384, 1024 * 16 * 16},            /* S T^2 */
    {"spatial(16,16,16)|temporal(16,16,16)", 4096, 4096, 0, 4096, 4096 * 271}, /* S + T - 1 */
    {"spatial(1440,32,32)|causal(br)&temporal(1440,32,32)", 1474560, 1474560, 0, 1474560,
     INT64_C(2570895360)}, /* L S + S T (T + 1) / 2 - L: a video that may not look ahead */
    {"causal(br)&temporal(1440,32,32)", 1474560, 1474560, 0, 1474560, INT64_C(1062420480)},
    {"local2d(60,80,1,1)", 4800, 4800, 0, 4800, 178 * 238}, /* (3 H - 2) (3 W - 2) */
    {"local2d(60,80,2,l2)", 4800, 4800, 0, 4800, 178 * 238},
    {"local2d(60,80,2,l1)", 4800, 4800, 0, 4800, 5 * 4800 - 2 * 60 - 2 * 80},
    {"local3d(24,30,40,1,1,1)", 28800, 28800, 0, 28800, 70 * 88 * 118},
    {"local3d(24,30,40,-1,0,0)", 28800, 28800, 0, 28800, 24 * 28800}, /* temporal */
    {"blocks(16,0.25,1)", 4096, 4096, 0, 4096, 4096 * 64 * 16},
    /* DeepSpeed's fixed layout, blocks of 16, windows of 4 blocks, the last one global; and its
     * variable one, with one global block at the beginning */
    {"documents(64,64,64,64)|keys("
     "x0000000000000000000000000000000000000000000000001111111111111111)",
     256, 256, 0, 256, 256 * (64 + 3 * 16)},
    {"documents(32,64,64,96)|prefix(16)", 256, 256, 0, 256,
     32 * 32 + 2 * 64 * 64 + 96 * 96 + 16 * (256 - 32)},
    {"local2d(60,80,-1,1)", 4800, 4800, 0, 4800, 60 * 60 * 238}, /* one coordinate weighted 0 */
    {"local2d(60,80,1,-1)", 4800, 4800, 0, 4800, 178 * 80 * 80},
    {"random(0.01,1)", 200000, 200000, 0, 200000, 400000000},
    {"random(0.00001,1,heads)", 10000000, 10000000, 0, 10000000, 1000000000},
    {"random(0.25,1)", 10, 6, 0, 10, 20}, /* round(1.5) = 2 */
    {"random(0.1,3)", 10, 5, 0, 10, 10},
    {"causal(tl)&keys(x10)", 1000, 1000, 0, 1000, 250500}, /* 2 + 4 + ... + 1000 */
};
enum { N_GOLDEN = sizeof GOLDEN / sizeof *GOLDEN };

TEST_EACH(counts_have_closed_forms, N_GOLDEN)
{
    struct attn_mask_shape shape = {1, 1, GOLDEN[_i].n_query, GOLDEN[_i].n_key};
    struct attn_mask *mask = mask_of(GOLDEN[_i].text, shape);
    int counted = 0;
    clock_t begin = clock();
    const struct attn_tile_at at = {0, 0, GOLDEN[_i].i0, GOLDEN[_i].i1, 0, shape.n_key};
    ck_assert_int_eq(attn_mask_count(mask, at, &counted), GOLDEN[_i].pairs);
    ck_assert_int_eq(counted, 0);
    ck_assert(clock() - begin <= 5 * CLOCKS_PER_SEC); /* listing the pairs would be minutes */
    attn_mask_free(mask);
}

/* Which compositions need rows, and that no mask at all is everything. */
TEST(counting_says_when_it_counts)
{
    static struct mask_data d;
    mask_data_fill(&d, &mask_shapes[0]);
    static const struct {
        const char *text;
        int counted;
    } want[] = {{"causal(tl)&window(2,2,br)|prefix(1)", 0},
                {"documents(%D)|global(1)&keys(pad)", 0},
                {"csr(all)", 0},
                {"csr(each)&causal(tl)", 1},
                {"random(0.5,1)&causal(tl)", 1},
                {"dense(flat)", 1},
                {"random(0.5,1)|none", 0},
                {"random(0.5,1)|causal(tl)", 1}};
    for (size_t n = 0; n < sizeof want / sizeof *want; n++) {
        char text[256];
        int counted = 0;
        mask_data_expand(text, sizeof text, want[n].text, &d.shape);
        struct attn_mask *mask = mask_data_parse(text, &d);
        attn_mask_count(mask, (struct attn_tile_at){0, 0, 0, d.shape.n_query, 0, d.shape.n_key},
                        &counted);
        ck_assert_msg(counted == want[n].counted, "%s: counted = %d", text, counted);
        attn_mask_free(mask);
    }
    int counted = 0;
    struct attn_run run = {0, 4};
    struct attn_tile_at at = {0, 0, 2, 5, 1, 8};
    struct attn_tokens three = attn_tokens_between(4, 7);
    int32_t column[3];
    ck_assert_int_eq(attn_mask_count(NULL, at, &counted), 21);
    ck_assert_int_eq(attn_mask_row_count(NULL, 0, 0, 2, 1, 8), 7);
    ck_assert(attn_mask_list_keys(NULL, 0, 0, 2, &three, column) == 3 && column[0] == 0 &&
              column[2] == 2);
    ck_assert(attn_mask_next(NULL, 0, 0, 2, &run) && run.lo == 4 && run.hi > 1 << 30);
    ck_assert(attn_mask_span(NULL, 0, 0, 2, &run) && run.lo == 0 && run.hi > 1 << 30);
    ck_assert_int_eq(attn_mask_tile(NULL, at), ATTN_TILE_FULL);
    at.i1 = 2;
    ck_assert_int_eq(attn_mask_tile(NULL, at), ATTN_TILE_EMPTY);
    ck_assert(attn_mask_allows(NULL, 0, 0, 2, 4) && attn_mask_is_none(NULL));
    ck_assert(!attn_mask_varies_by_batch(NULL) && !attn_mask_varies_by_head(NULL));
}

TEST(only_none_is_none)
{
    static struct mask_data d = {.shape = {2, 2, 7, 7}};
    static const struct {
        const char *text;
        int none;
    } want[] = {{"none", 1},
                {"(none)", 1},
                {"none&none|none", 1},
                {"none&causal(tl)", 0},
                {"none|causal(tl)", 0},
                {"window(-1,-1,tl)", 0}};
    for (size_t n = 0; n < sizeof want / sizeof *want; n++) {
        struct attn_mask *mask = mask_data_parse(want[n].text, &d);
        ck_assert_msg(attn_mask_is_none(mask) == want[n].none, "%s", want[n].text);
        attn_mask_free(mask);
    }
}

/* ---- random ------------------------------------------------------------------------------- */

/* The same on every machine: literal columns, written down on x86-64. */
TEST(random_draws_are_pinned)
{
    static struct mask_data d = {.shape = {1, 1, 4, 1000000}};
    struct attn_mask *mask = mask_data_parse("random(0.000005,42)", &d);
    struct attn_tokens all = attn_tokens_between(0, 1000000);
    static const int32_t want[4][5] = {{352741, 389880, 753449, 774065, 954244},
                                       {191052, 278111, 737223, 780099, 970892},
                                       {102483, 159180, 230224, 833845, 969330},
                                       {97517, 166359, 326301, 404513, 963706}};
    for (int i = 0; i < 4; i++) {
        int32_t column[5];
        ck_assert_int_eq(attn_mask_list_keys(mask, 0, 0, i, &all, column), 5);
        ck_assert_mem_eq(column, want[i], sizeof column);
    }
    attn_mask_free(mask);
}

/* Every column is kept equally often (chi-square, 199 degrees of freedom: mean 199, deviation 20),
 * and neighbouring rows, heads, batches and seeds choose independently (overlap k^2 / Lk). */
TEST(random_looks_random)
{
    enum { ROWS = 20000, KEYS = 200, KEPT = 40 };
    static struct mask_data d = {.shape = {2, 2, ROWS, KEYS}};
    static int kept[KEYS];
    struct attn_mask *one = mask_data_parse("random(0.2,1,heads)", &d);
    struct attn_mask *two = mask_data_parse("random(0.2,2,heads)", &d);
    int64_t rows = 0, heads = 0, batches = 0, seeds = 0;
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < KEYS; j++)
            if (attn_mask_allows(one, 0, 0, i, j)) {
                kept[j]++;
                rows += attn_mask_allows(one, 0, 0, (i + 1) % ROWS, j);
                heads += attn_mask_allows(one, 0, 1, i, j);
                batches += attn_mask_allows(one, 1, 0, i, j);
                seeds += attn_mask_allows(two, 0, 0, i, j);
            }
    double square = 0, mean = (double)ROWS * KEPT / KEYS,
           variance = mean * (1 - (double)KEPT / KEYS);
    for (int j = 0; j < KEYS; j++)
        square += (kept[j] - mean) * (kept[j] - mean) / variance;
    ck_assert_double_ge(square, 120);
    ck_assert_double_le(square, 280);
    /* Overlap of a row: mean 8, variance 5.1 (hypergeometric); of the mean over rows: 0.016. */
    ck_assert_double_le(((double)rows / ROWS - 8) * ((double)rows / ROWS - 8), 0.08 * 0.08);
    ck_assert_double_le(((double)heads / ROWS - 8) * ((double)heads / ROWS - 8), 0.08 * 0.08);
    ck_assert_double_le(((double)batches / ROWS - 8) * ((double)batches / ROWS - 8), 0.08 * 0.08);
    ck_assert_double_le(((double)seeds / ROWS - 8) * ((double)seeds / ROWS - 8), 0.08 * 0.08);
    attn_mask_free(one);
    attn_mask_free(two);
}

/* A row of a composition costs the keys that its random part keeps (100 of ten million here), not
 * a walk over all columns: that would take 2e10 steps instead of 2e5. */
TEST(random_rows_cost_their_keys)
{
    static struct mask_data d = {.shape = {1, 1, 2000, 10000000}};
    static const char *const texts[] = {"random(0.00001,1)&none&causal(br)",
                                        "random(0.00001,1)&(keys(x1)|causal(tl))",
                                        "(random(0.00001,1)|none&prefix(0))&window(-1,-1,tl)"};
    clock_t begin = clock();
    for (int n = 0; n < 3; n++) {
        struct attn_mask *mask = mask_data_parse(texts[n], &d);
        int counted = 0;
        struct attn_tokens all = attn_tokens_between(0, d.shape.n_key);
        int64_t pairs =
            attn_mask_count(mask, (struct attn_tile_at){0, 0, 0, 2000, 0, d.shape.n_key}, &counted);
        ck_assert(pairs > 190000 && pairs <= 200000);
        int32_t column[100];
        ck_assert_int_le(attn_mask_list_keys(mask, 0, 0, 1, &all, column), 100);
        attn_mask_free(mask);
    }
    ck_assert(clock() - begin <= 20 * CLOCKS_PER_SEC);
}

/* A narrow band beside dense random rows: work by the band, not by what the rows keep. */
TEST(narrow_bands_are_cheap)
{
    static struct mask_data d = {.shape = {1, 1, 50000, 50000}};
    static const char *const texts[] = {
        "random(0.9,1)|window(128,128,br)", "random(0.5,1)&window(64,0,br)",
        "random(0.9999,1)&causal(br)", "random(0.0005,1)|causal(br)"};
    clock_t begin = clock();
    for (int n = 0; n < 4; n++) {
        struct attn_mask *mask = mask_data_parse(texts[n], &d);
        int counted = 0;
        const struct attn_tile_at last = {0, 0, 49000, 50000, 0, 50000};
        ck_assert(attn_mask_count(mask, last, &counted) > 30000);
        ck_assert_int_eq(counted, 1);
        attn_mask_free(mask);
    }
    ck_assert(clock() - begin <= 20 * CLOCKS_PER_SEC); /* listing the rows would be 90 s */
}
