/* The data: golden bits, and what each fill guarantees of its scores. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/problem.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/harness/inputs/setup_fill.h"
#include "tests/harness/judge/runner.h"
#include "tests/suites.h"

SUITE(fill);

static uint64_t bits(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

/* ---- the recipes ----------------------------------------------------------------------------- */

/* b2h2q7k9d4v5:none:f64:FILL:s7:pass=bwd, with bias=full where that is legal: one element of q and
 * of k, and a digest of q, k, v, dO and bias.  The same bits come out of gcc -O0, gcc -O3
 * -march=native -ffp-contract=fast, and clang. */
static const struct {
    const char *fill;
    uint64_t q, k, digest;
} golden[ATTN_FILLS] = {
    {"normal", 0xbfefe20189e11ba2u, 0x3feee53fd14a2f7fu, 0x35999aad9735de56u},
    {"offset-120", 0x4020c00000000000u, 0xc03de11ac02eb5d1u, 0x875eb7f83495a7f0u},
    {"offset-32k", 0x4020c00000000000u, 0xc0bfffe11ac02eb6u, 0x136aa81df643a03du},
    {"offset-3e5", 0x4020c00000000000u, 0xc0f24f7e11ac02ebu, 0xba08074185f935a5u},
    {"offset+120", 0x4020c00000000000u, 0x403e1ee53fd14a2fu, 0x79dc14a2084861ddu},
    {"stairs-up", 0x4020c00000000000u, 0x40301ee53fd14a2fu, 0xe0c0d8bc894cf832u},
    {"stairs-down", 0x4020c00000000000u, 0xc02fc235805d6ba1u, 0x77f65629706d8c58u},
    {"cliffs", 0x4020c00000000000u, 0x3fbee53fd14a2f7fu, 0xd7dadde264cd7d48u},
    {"spike", 0x4020c00000000000u, 0x40490f729fe8a518u, 0xffd7e726e237b05cu},
    {"sink", 0x4020c00000000000u, 0x3fbee53fd14a2f7fu, 0xb64f85b5fe3dd235u},
    {"outliers", 0x4040c00000000000u, 0x403007b94ff4528cu, 0xf4be32da3bfe562fu},
    {"ties", 0x4020c00000000000u, 0x3f9ee53fd14a2f7fu, 0x44c7927f3cfde3edu},
    {"flat", 0x0000000000000000u, 0x3feee53fd14a2f7fu, 0xa60160ad0dba04acu},
    {"ones", 0xbfefe20189e11ba2u, 0x3feee53fd14a2f7fu, 0x3ae301b0b172417eu},
    {"hetero", 0xbfefe20189e11ba2u, 0x3feee53fd14a2f7fu, 0xba1e5ad3044fa727u},
    {"growing", 0xbfffe20189e11ba2u, 0x3ffee53fd14a2f7fu, 0xda6ccba0de80a55fu},
    {"rows", 0xbfefe20189e11ba2u, 0x3feee53fd14a2f7fu, 0x8fcd1e4a20a72d28u},
    {"loud", 0xbfefe20189e11ba2u, 0x3feee53fd14a2f7fu, 0x087ecfbd1e7362b9u},
    {"scales", 0xbfffe20189e11ba2u, 0x3ffee53fd14a2f7fu, 0xed7dbaf07b4e9743u},
    {"integer", 0xc008000000000000u, 0xc008000000000000u, 0x2b404bb2d2060d6eu},
    {"lowrank", 0xbfefe20189e11ba2u, 0xbff1c3001ffca33cu, 0xfc943a53ec45a500u},
    {"tiny", 0xbfefe20189e11ba2u, 0x3feee53fd14a2f7fu, 0xb481ac51e06cd95du},
    {"huge", 0xbfefe20189e11ba2u, 0x3feee53fd14a2f7fu, 0x15304a298a93c667u},
    {"reveal", 0x0000000000000000u, 0x3feee53fd14a2f7fu, 0xa3ef333d2366eb00u},
    {"select", 0x4040000000000000u, 0x4040000000000000u, 0x8ac171889df3b6e2u},
    {"powers", 0, 0x4023687a9f1af2b1u, 0x645b17bead167444u},
    {"subsets", 0xc040000000000000u, 0xc040000000000000u, 0xf8c61627e24c0b16u},
    {"faint", 0x8001fe20189e11bau, 0x7f4ee53fd14a2f7fu, 0x33996e32bc701f00u},
    {"level", 0xbfefe20189e11ba2u, 0xbff169c3e09e81bbu, 0x5ed695e07b1f89bau}};

TEST_EACH(fills_are_pinned, ATTN_FILLS)
{
    char text[ATTN_CASE_TEXT];
    snprintf(text, sizeof text, "b2h2q7k9d4v5:none:f64:%s:s7:pass=bwd%s", golden[_i].fill,
             _i == ATTN_FILL_SELECT || _i == ATTN_FILL_REVEAL || _i == ATTN_FILL_SUBSETS
                 ? ""
                 : ":bias=full");
    struct attn_setup s;
    setup_of(text, &s);
    uint64_t digest = 0xcbf29ce484222325u;
    const int slots[] = {ATTN_T_Q, ATTN_T_K, ATTN_T_V, ATTN_T_DO, ATTN_T_BIAS};
    for (size_t t = 0; t < sizeof slots / sizeof *slots; t++)
        for (int64_t n = 0; n < s.tensor[slots[t]].span; n++) {
            digest = (digest ^ bits(((double *)s.tensor[slots[t]].data)[n])) * 0x100000001b3u;
            digest ^= digest >> 32;
        }
    ck_assert_uint_eq(bits(attn_tensor_get(&s.tensor[ATTN_T_Q], 1, 1, 6, 0)), golden[_i].q);
    ck_assert_uint_eq(bits(attn_tensor_get(&s.tensor[ATTN_T_K], 1, 1, 8, 0)), golden[_i].k);
    ck_assert_uint_eq(digest, golden[_i].digest);
    attn_setup_close(&s);
}

static double get_q(const struct attn_setup *s, int64_t b, int64_t h, int64_t i, int64_t c)
{
    return attn_tensor_get(&s->tensor[ATTN_T_Q], b, h, i, c);
}

static double get_k(const struct attn_setup *s, int64_t b, int64_t g, int64_t j, int64_t c)
{
    return attn_tensor_get(&s->tensor[ATTN_T_K], b, g, j, c);
}

static double get_v(const struct attn_setup *s, int64_t b, int64_t g, int64_t j, int64_t c)
{
    return attn_tensor_get(&s->tensor[ATTN_T_V], b, g, j, c);
}

/* scale * q_i . k_j, from the tensors as stored. */
static double score(const struct attn_setup *s, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const struct attn_problem *p = &s->problem;
    double sum = 0;
    for (int64_t c = 0; c < p->d_key; c++)
        sum += get_q(s, b, h, i, c) * get_k(s, b, h / (p->heads / p->kv_heads), j, c);
    return p->scale * sum;
}

/* Every row of every head: the checks below run over all of them. */
#define EACH_ROW(s)                                      \
    for (int64_t b = 0; b < (s)->problem.batch; b++)     \
        for (int64_t h = 0; h < (s)->problem.heads; h++) \
            for (int64_t i = 0; i < (s)->problem.n_query; i++)

/* Shapes and scales under which that holds: default scale, 1, negative; d = 1 too. */
static const char *const shape[] = {"b2h4g2q9k70d16:none:f32:%s:s%d", "h2q5k70d1v3:none:f32:%s:s%d",
                                    "h2q5k70d8:none:f64:%s:s%d:scale=-0.25",
                                    "h2q5k70d64:none:f32:%s:s%d:scale=1"};
enum { SHAPES = sizeof shape / sizeof *shape };

static void open_fill(int which, enum attn_fill fill, int seed, struct attn_setup *s)
{
    char text[ATTN_CASE_TEXT];
    snprintf(text, sizeof text, shape[which], attn_fill_name(fill), seed);
    setup_of(text, s);
}

/* Where feature 0 carries the score of key j of 70, and in which rows of which seed. */
static const struct {
    enum attn_fill fill;
    int seed;
    double all, per_key, per_quarter;
    int64_t peak; /* 200 more at this key; -1: nowhere */
} level[] = {
    {ATTN_FILL_OFFSET_M120, 1, -120, 0, 0, -1}, {ATTN_FILL_OFFSET_M32K, 1, -32768, 0, 0, -1},
    {ATTN_FILL_OFFSET_M3E5, 1, -3e5, 0, 0, -1}, {ATTN_FILL_OFFSET_P120, 1, 120, 0, 0, -1},
    {ATTN_FILL_STAIRS_UP, 1, 0, 8, 0, -1},      {ATTN_FILL_STAIRS_DOWN, 1, 0, -8, 0, -1},
    {ATTN_FILL_CLIFFS, 0, 0, 0, 100, -1},       {ATTN_FILL_CLIFFS, 1, 300, 0, -100, -1},
    {ATTN_FILL_SPIKE, 0, 0, 0, 0, 0},           {ATTN_FILL_SPIKE, 1, 0, 0, 0, 69},
    {ATTN_FILL_SPIKE, 2, 0, 0, 0, 63},          {ATTN_FILL_SPIKE, 3, 0, 0, 0, 64}};

/* q_0 is 8 or up to 8.375; what the other features add is noise. */
TEST_EACH(scores_have_their_level, SHAPES *COUNT(level))
{
    int x = _i / SHAPES, which = _i % SHAPES;
    double noise = which == 3 ? 12 : 4;
    struct attn_setup s;
    open_fill(which, level[x].fill, level[x].seed, &s);
    EACH_ROW(&s)
    for (int64_t j = 0; j < 70; j++) {
        double want = level[x].all + level[x].per_key * (double)j +
                      level[x].per_quarter * (double)(4 * j / 70) + (j == level[x].peak ? 200 : 0);
        double got = score(&s, b, h, i, j), lift = get_q(&s, b, h, i, 0) / 8;
        ck_assert(lift >= 1 && lift < 1.05);
        ck_assert_msg(fabs(got - lift * want) <= noise, "key %d: %g, want %g", (int)j, got,
                      lift * want);
    }
    attn_setup_close(&s);
}

TEST(long_stairs_end_and_one_gradient_is_loud)
{
    struct attn_setup s;
    int loud = 0;
    setup_of("q2k5000d4:none:f32:stairs-down:s1", &s);
    ck_assert(score(&s, 0, 0, 0, 4999) < -8000 && score(&s, 0, 0, 0, 4999) > -1e4);
    attn_setup_close(&s);
    setup_of("h2q17k10d4:none:f32:spike:s3:pass=bwd", &s);
    for (int64_t i = 0; i < 17; i++)
        loud += fabs(attn_tensor_get(&s.tensor[ATTN_T_DO], 0, 1, i, 2)) > 5;
    ck_assert_int_eq(loud, 1);
    attn_setup_close(&s);
}

TEST_EACH(ties_are_exact_and_maximal, SHAPES - 1)
{
    struct attn_setup s;
    open_fill(_i, ATTN_FILL_TIES, 1, &s);
    EACH_ROW(&s)
    for (int64_t j = 1; j < s.problem.n_key; j++) {
        double lead = score(&s, b, h, i, 0) - score(&s, b, h, i, j);
        ck_assert(j % 3 == 0 ? lead == 0 : lead > 4 && lead < 12);
    }
    for (int64_t j = 0; j < s.problem.n_key; j++)
        ck_assert(get_v(&s, 0, 1, j, 0) >= 0.5 && get_v(&s, 0, 1, j, 0) <= 1.5);
    attn_setup_close(&s);
}

/* ---- data as models have it ------------------------------------------------------------------ */

static const enum attn_fill model[] = {ATTN_FILL_SINK, ATTN_FILL_OUTLIERS, ATTN_FILL_GROWING,
                                       ATTN_FILL_ROWS, ATTN_FILL_LOUD,     ATTN_FILL_SCALES};

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* How many times larger than the middle one, and than the smallest one, is the largest of the
 * places along an axis?  By sums of squares. */
static void spread(const struct attn_tensor *t, int axis, double times[2])
{
    double size[128] = {0};
    int64_t at[4] = ATTN_START, n = t->extent[axis];
    while (attn_each(at, t->extent))
        size[at[axis]] += pow(attn_tensor_get(t, at[0], at[1], at[2], at[3]), 2);
    qsort(size, (size_t)n, sizeof *size, ascending);
    times[0] = sqrt(size[n - 1] / size[(n - 1) / 2]);
    times[1] = sqrt(size[n - 1] / size[0]);
}

/* Rows of a head whose largest weight, of all keys, is in a range. */
static int rows_between(const struct attn_setup *s, int64_t b, int64_t h, const double range[2])
{
    int n = 0;
    for (int64_t i = 0; i < s->problem.n_query; i++) {
        double l = 0, m = -HUGE_VAL;
        for (int64_t j = 0; j < s->problem.n_key; j++)
            m = fmax(m, score(s, b, h, i, j));
        for (int64_t j = 0; j < s->problem.n_key; j++)
            l += exp(score(s, b, h, i, j) - m);
        n += 1 / l > range[0] && 1 / l < range[1];
        ck_assert(fabs(m) < 1000 && (s->given.fill != ATTN_FILL_SINK || score(s, b, h, i, 0) == m));
    }
    return n;
}

/* The models keep their property in storage of 16 bits. */
TEST_EACH(models_have_their_property, 3 * COUNT(model))
{
    static const struct {
        enum attn_fill fill;
        int slot, axis; /* of 2 batches, 2 heads, 40 queries or 70 keys, 64 channels */
        double middle[2], least[2];
    } size[] = {{ATTN_FILL_SINK, ATTN_T_V, 2, {0.9, 2}, {25, 45}},
                {ATTN_FILL_OUTLIERS, ATTN_T_Q, 3, {50, 80}, {50, 80}},
                {ATTN_FILL_OUTLIERS, ATTN_T_K, 3, {80, 120}, {80, 120}},
                {ATTN_FILL_OUTLIERS, ATTN_T_V, 3, {25, 45}, {25, 45}},
                {ATTN_FILL_GROWING, ATTN_T_Q, 2, {1.7, 2.4}, {10, 18}},
                {ATTN_FILL_LOUD, ATTN_T_DO, 2, {50, 2e4}, {2e3, 2e6}},
                {ATTN_FILL_SCALES, ATTN_T_K, 0, {60, 68}, {60, 68}}};
    static const struct {
        enum attn_fill fill;
        double range[2]; /* of largest weights */
        int rows;
    } peak[] = {{ATTN_FILL_SINK, {0.5, 0.98}, 40},  {ATTN_FILL_OUTLIERS, {0, 0.5}, 35},
                {ATTN_FILL_ROWS, {0.8, 1.01}, 5},   {ATTN_FILL_ROWS, {0.03, 0.8}, 5},
                {ATTN_FILL_ROWS, {0, 1.5 / 70}, 5}, {ATTN_FILL_GROWING, {0.3, 1}, 5},
                {ATTN_FILL_GROWING, {0, 0.06}, 5}};
    static const char *const type[] = {"f32", "bf16", "f16"};
    enum attn_fill fill = model[_i / 3];
    struct attn_setup s;
    char text[ATTN_CASE_TEXT];
    snprintf(text, sizeof text, "b2h2q40k70d64:none:%s:%s:s5:pass=bwd", type[_i % 3],
             attn_fill_name(fill));
    setup_of(text, &s);
    for (int n = 0; n < COUNT(size); n++) {
        double times[2];
        spread(&s.tensor[size[n].slot], size[n].axis, times);
        ck_assert_msg(
            fill != size[n].fill || (times[0] > size[n].middle[0] && times[0] < size[n].middle[1] &&
                                     times[1] > size[n].least[0] && times[1] < size[n].least[1]),
            "%s: row %d: %g times the middle, %g times the least", text, n, times[0], times[1]);
    }
    for (int n = 0; n < 4 * COUNT(peak); n++)
        ck_assert_msg(fill != peak[n / 4].fill ||
                          rows_between(&s, n & 1, n >> 1 & 1, peak[n / 4].range) >=
                              peak[n / 4].rows,
                      "%s: too few rows have a peak of %g to %g", text, peak[n / 4].range[0],
                      peak[n / 4].range[1]);
    attn_setup_close(&s);
}

/* The gap is 200 in f32 and 800 in f64, targets are visible, and V's elements all differ. */
TEST_EACH(select_selects, 5)
{
    static const char *const text[] = {
        "b2h4g2q9k16d4v3:causal(br):f32:select:s3", "b2h2q9k70d7v2:window(3,1,tl):f64:select:s4",
        "h6g3q20k33d16v5:dense(hqk30):f32:select:s5:scale=-3", "q3k1d0v2:none:f32:select:s6",
        "q12k12d64:random(0.2,1,heads):f32:select:s7"};
    struct attn_setup s;
    setup_of(text[_i], &s);
    const struct attn_problem *p = &s.problem;
    struct attn_recipe recipe;
    ck_assert_int_eq(attn_recipe_open(&s.given, p, &recipe, NULL), ATTN_OK);
    int64_t rows = 0, kinds = 0, last = -1;
    EACH_ROW(&s)
    {
        int64_t target = attn_recipe_target(&recipe, b, h, i);
        for (int64_t j = 0; j < p->n_key && target < 0; j++)
            ck_assert(!attn_problem_allows(p, b, h, i, j));
        if (target < 0)
            continue;
        rows++;
        kinds += target != last;
        last = target;
        ck_assert(attn_problem_allows(p, b, h, i, target));
        for (int64_t j = 0; j < p->n_key; j++)
            if (j != target)
                ck_assert(score(&s, b, h, i, target) - score(&s, b, h, i, j) >=
                          (p->dtype == ATTN_F64 ? 800 : 200));
    }
    ck_assert(rows > 0 && (p->n_key == 1 || kinds > 3));
    double seen = 0;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t g = 0; g < p->kv_heads; g++)
            for (int64_t j = 0; j < p->n_key; j++)
                for (int64_t c = 0; c < p->d_value; c++)
                    ck_assert(get_v(&s, b, g, j, c) == ++seen);
    attn_setup_close(&s);
}

/* powers: X is whole where scale is ln 2, and where a mask lets a row see the first keys, the last
 * ones, or a power of two of them, the weights 2^X add up to one. */
TEST_EACH(powers_add_up, 3)
{
    static const char *const mask[] = {"none", "causal(br)", "window(1,0,br)"};
    for (int64_t n = 1; n <= 16; n++) {
        char text[ATTN_CASE_TEXT];
        struct attn_setup s;
        snprintf(text, sizeof text, "h3g1q%lldk%lldd4:%s:f32:powers:s1:scale=0.6931471805599453",
                 (long long)n, (long long)n, mask[_i]);
        setup_of(text, &s);
        for (int64_t h = 0; h < 3; h++)
            for (int64_t i = 0; i < n; i++) {
                double sum = 0, x;
                for (int64_t j = 0; j < n; j++) {
                    x = 0;
                    for (int64_t c = 0; c < 4; c++)
                        x += get_q(&s, 0, h, i, c) * get_k(&s, 0, 0, j, c);
                    ck_assert_double_eq(x, floor(x));
                    sum += attn_problem_allows(&s.problem, 0, h, i, j) ? exp2(x) : 0;
                }
                ck_assert_msg(exp2(floor(log2(sum))) == sum, "%s: row %lld: %g", text, (long long)i,
                              sum);
            }
        attn_setup_close(&s);
    }
}

/* No fill fails, overflows or divides by zero for d = 0, d = 1, scale 0, tiny or huge; and f16
 * holds none of the large keys unless the scores are carried by q as well. */
TEST_EACH(inputs_are_finite, ATTN_FILLS)
{
    static const char *const odd[] = {
        "b2h2q3k1d0v2:none:f32:%s:s1:pass=bwd",  "b2h2q3k2d1v1:none:f32:%s:s1:pass=bwd",
        "h2q3k5d4:none:f32:%s:s1:scale=0",       "h2q3k5d4:none:f32:%s:s1:scale=1e-30",
        "h2q3k5d4:none:f32:%s:s1:scale=-1e30",   "b2h2q0k3d2:none:f32:%s:s1:pass=bwd",
        "b2h2q3k0d2:none:f32:%s:s1:pass=bwd",    "b0h2q3k3d2:none:f32:%s:s1:pass=bwd",
        "h2q9k12d64v5:none:bf16:%s:s3:pass=bwd", "h2q9k12d64v5:none:f16:%s:s3:pass=bwd"};
    for (int n = 0; n < COUNT(odd); n++) {
        char text[ATTN_CASE_TEXT];
        struct attn_setup s;
        if ((_i == ATTN_FILL_SELECT && strstr(odd[n], "scale") != NULL) ||
            (_i == ATTN_FILL_SUBSETS && strstr(odd[n], "d64") == NULL))
            continue; /* refused: refused.def */
        snprintf(text, sizeof text, odd[n], attn_fill_name((enum attn_fill)_i));
        setup_of(text, &s);
        for (int slot = ATTN_T_Q; slot <= ATTN_T_DO; slot++)
            for (int64_t e = 0; e < s.tensor[slot].span; e++)
                ck_assert_msg(isfinite(attn_tensor_get(&s.tensor[slot], 0, 0, 0, e)),
                              "%s: tensor %d", text, slot);
        attn_setup_close(&s);
    }
}
