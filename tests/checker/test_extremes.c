/* Numbers at the edge of the arithmetic, where a bound can break: products of what underflowed and
 * what overflowed.  Honest code must pass, and no bound may be NaN. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fixtures/case_fixture.h"
#include "tests/harness/judge/runner.h"
#include "tests/suites.h"

SUITE(extremes);

/* Run both passes of a setup that the test has altered, and judge it. */
static void judge_altered(struct running *x, struct attn_result *r)
{
    struct attn_precision precision;
    running_well(x, ATTN_FORWARD);
    running_well(x, ATTN_BACKWARD);
    memset(r, 0, sizeof *r);
    attn_precision_of(x->spec.impl, &x->spec.options, &x->setup.problem, &precision);
    attn_judge(&x->setup, &precision, NULL, ATTN_BACKWARD, r);
}

static const char *const specs[] = {"dense", "csr-textbook", "tiled-textbook:bc=4"};

/* The commonest mask of all: an additive 0 and finfo.min, which frameworks make of booleans. */
TEST_EACH(finfo_min_as_a_mask, 3)
{
    static const double low[] = {-(double)FLT_MAX, -1e9, -1e4};
    struct attn_result r;
    const struct attn_spec spec = spec_of(specs[_i]);
    for (int l = 0; l < 3; l++) {
        struct running x;
        running_open(&x, &spec, "b2h2q9k13d8:none:f32:normal:s3:bias=full:pass=bwd");
        for (int64_t n = 0; n < 2 * 2 * 9 * 13; n++)
            attn_tensor_set(&x.setup.tensor[ATTN_T_BIAS], n / 234, n / 117 % 2, n / 13 % 9, n % 13,
                            n % 13 > n / 13 % 9 ? low[l] : 0);
        judge_altered(&x, &r);
        ck_assert_msg(r.verdict == ATTN_PASS, "%s, %g: %s %s", specs[_i], low[l],
                      attn_verdict_name(r.verdict), r.text);
        running_close(&x);
    }
}

/* Scores far beyond what the arithmetic resolves: still right, or nothing can be said; never a
 * failure of honest code, and never a pass of anything. */
TEST_EACH(scores_beyond_resolution, 3)
{
    static const char *const text[] = {"q9k40d128:none:f32:normal:s1:pass=bwd:scale=1e5",
                                       "q10k40d64:none:f32:normal:s1:scale=1e6",
                                       "q9k40d8:none:f32:normal:s1:pass=bwd:scale=1e20",
                                       "h2q10k40d8:none:f64:normal:s1:pass=bwd:scale=1e30"};
    for (int t = 0; t < 4; t++) {
        struct attn_spec spec = spec_of(specs[_i]);
        struct attn_result r = result_of(&spec, text[t]);
        ck_assert_msg(r.verdict == ATTN_PASS || r.verdict == ATTN_WEAK, "%s: %s", text[t], r.text);
    }
}

/* An LSE that is off by 1e30 is wrong at any scale. */
TEST(large_scores_hide_nothing)
{
    struct attn_result r;
    struct attn_setup setup;
    struct attn_precision precision = {.u = 0x1p-24,
                                       .u_storage = 0x1p-24,
                                       .u_lse = 0x1p-24,
                                       .u_bias = 0x1p-24,
                                       .tiny = 0x1p-150,
                                       .exp_ulps = 4};
    memset(&r, 0, sizeof r);
    setup_of("h2q10k40d8:none:f32:normal:s1:scale=1e10", &setup);
    for (int64_t n = 0; n < 20; n++) {
        for (int64_t d = 0; d < 8; d++)
            attn_tensor_set(&setup.tensor[ATTN_T_O], 0, n / 10, n % 10, d, 0);
        attn_tensor_set(&setup.tensor[ATTN_T_LSE], 0, n / 10, n % 10, 0, 1e30);
    }
    attn_judge(&setup, &precision, NULL, ATTN_FORWARD, &r);
    ck_assert_int_eq(r.verdict, ATTN_FAILED);
    ck_assert_int_eq(r.output[ATTN_LSE].n_bad, 20);
    attn_setup_close(&setup);
}

/* ---- numbers that are none ------------------------------------------------------------------- */

enum {
    FINITE = ATTN_CLASS_FINITE,
    PLUS = ATTN_CLASS_PLUS_INF,
    MINUS = ATTN_CLASS_MINUS_INF,
    NO = ATTN_CLASS_NAN,
    ALL = FINITE | PLUS | MINUS | NO
};
static const double inf = (double)INFINITY, no = (double)NAN;

/* Two queries of a scalar each, two keys, values of two features, scale 1; scores are q k. */
#define SMALL "q2k2d1v2:%s:%s:normal:s1:pass=bwd:scale=1:%s"
static const struct edit {
    int slot;
    int64_t row, feature;
    double value;
} plain[] = {{ATTN_T_Q, 0, 0, 1},    {ATTN_T_Q, 1, 0, 1},  {ATTN_T_K, 0, 0, 0.5},
             {ATTN_T_K, 1, 0, 0.25}, {ATTN_T_V, 0, 0, 1},  {ATTN_T_V, 0, 1, 2},
             {ATTN_T_V, 1, 0, 3},    {ATTN_T_V, 1, 1, 5},  {ATTN_T_DO, 0, 0, 1},
             {ATTN_T_DO, 0, 1, -1},  {ATTN_T_DO, 1, 0, 1}, {ATTN_T_DO, 1, 1, 2}};

/* Short names for the table. */
enum { Q = ATTN_T_Q, K = ATTN_T_K, V = ATTN_T_V, D_O = ATTN_T_DO, BIAS = ATTN_T_BIAS };
enum { O = ATTN_O, LSE = ATTN_LSE, DQ = ATTN_DQ, DK = ATTN_DK, DV = ATTN_DV, DBIAS = ATTN_DBIAS };

/* By the formulas, worked out by hand: what one element may be when a few inputs are such. */
static const struct {
    const char *mask, *bias; /* bias=inf is overwritten: 0, then what the edits say */
    struct edit edit[3];
    int output;
    int64_t row, feature;
    unsigned right;
    int unbounded; /* nothing is known of a finite result */
} element[] = {
    /* a NaN in a value stays in its feature, and takes the row's dP, D and dS */
    {"none", "none", {{V, 0, 0, no}}, O, 0, 0, NO, 0},
    {"none", "none", {{V, 0, 0, no}}, O, 0, 1, FINITE, 0},
    {"none", "none", {{V, 0, 0, no}}, LSE, 0, 0, FINITE, 0},
    {"none", "none", {{V, 0, 0, no}}, DQ, 0, 0, NO, 0},
    {"none", "none", {{V, 0, 0, no}}, DK, 1, 0, NO, 0},
    {"none", "none", {{V, 0, 0, no}}, DV, 0, 0, FINITE, 0},
    /* one in a key, or in q, takes the row */
    {"none", "none", {{K, 1, 0, no}}, O, 0, 1, NO, 0},
    {"none", "none", {{K, 1, 0, no}}, LSE, 0, 0, NO, 0},
    {"none", "none", {{K, 1, 0, no}}, DV, 0, 0, NO, 0},
    {"none", "none", {{Q, 0, 0, no}}, O, 0, 0, NO, 0},
    {"none", "none", {{Q, 0, 0, no}}, O, 1, 0, FINITE, 0},
    {"none", "none", {{Q, 0, 0, no}}, DK, 0, 0, NO, 0},
    {"none", "none", {{Q, 0, 0, no}}, DQ, 1, 0, FINITE, 0},
    /* behind the mask, nothing: row 0 sees key 0 only */
    {"causal(tl)", "none", {{K, 1, 0, no}, {V, 1, 0, no}}, O, 0, 0, FINITE, 0},
    {"causal(tl)", "none", {{K, 1, 0, no}, {V, 1, 0, inf}}, DQ, 0, 0, FINITE, 0},
    {"causal(tl)", "none", {{Q, 0, 0, no}, {D_O, 0, 0, no}}, DK, 1, 0, FINITE, 0},
    {"causal(tl)", "none", {{Q, 0, 0, no}, {D_O, 0, 0, no}}, DV, 0, 0, NO, 0},
    /* infinite values */
    {"none", "none", {{V, 0, 0, inf}}, O, 0, 0, PLUS, 0},
    {"none", "none", {{V, 0, 0, -inf}}, O, 0, 0, MINUS, 0},
    {"none", "none", {{V, 0, 0, inf}, {V, 1, 0, -inf}}, O, 0, 0, NO, 0},
    {"none", "none", {{V, 0, 0, inf}}, DQ, 0, 0, NO, 0},          /* inf - inf in dP - D */
    {"causal(tl)", "none", {{V, 0, 1, inf}}, DK, 1, 0, MINUS, 0}, /* P (dP - inf) q */
    {"none", "none", {{D_O, 0, 1, inf}}, DV, 0, 1, PLUS, 0},
    {"none", "none", {{D_O, 0, 1, inf}}, DV, 0, 0, FINITE, 0},
    /* of weight exp(-200): 0 in f32, and then skipped or 0 * inf; in f64 it is one */
    {"none", "none", {{K, 0, 0, -200}, {V, 0, 0, inf}}, O, 0, 0, FINITE | PLUS | NO, 0},
    {"none", "none", {{K, 0, 0, -200}, {V, 0, 0, no}}, O, 0, 0, FINITE | NO, 0},
    /* infinite scores: -inf weighs nothing, +inf leaves exp(inf - inf) */
    {"none", "none", {{K, 0, 0, -inf}}, O, 0, 0, FINITE, 0},
    {"none", "none", {{K, 0, 0, -inf}}, DQ, 0, 0, FINITE | NO, 0},
    {"none", "none", {{K, 0, 0, inf}}, O, 0, 0, NO, 0},
    {"none", "none", {{K, 0, 0, inf}}, LSE, 0, 0, PLUS | NO, 0},
    {"none", "none", {{Q, 0, 0, -inf}}, O, 0, 0, FINITE | NO, 0}, /* all are -inf */
    {"none", "none", {{Q, 0, 0, -inf}}, LSE, 0, 0, MINUS | NO, 0},
    /* a bias of -inf hides, and all of them leave a row without keys */
    {"none", "inf", {{BIAS, 0, 0, -inf}}, O, 0, 0, FINITE, 0},
    {"none", "inf", {{BIAS, 0, 0, -inf}, {BIAS, 0, 1, -inf}}, O, 0, 0, FINITE, 0},
    {"none", "inf", {{BIAS, 0, 0, -inf}, {BIAS, 0, 1, -inf}}, LSE, 0, 0, MINUS, 0},
    {"none", "inf", {{BIAS, 0, 0, -inf}, {K, 0, 0, no}}, O, 0, 0, FINITE | NO, 0},
    {"none", "inf", {{BIAS, 0, 0, -inf}, {V, 0, 0, no}}, O, 0, 0, FINITE | NO, 0},
    {"none", "inf", {{BIAS, 0, 0, -inf}, {V, 0, 0, no}}, LSE, 0, 0, FINITE, 0},
    {"none", "inf", {{BIAS, 0, 0, no}}, O, 0, 0, NO, 0},
    {"none", "inf", {{BIAS, 0, 0, no}}, O, 1, 0, FINITE, 0},
    {"none", "inf", {{BIAS, 0, 0, no}}, DBIAS, 0, 1, NO, 0},
    /* beyond the domain: nothing is said of the row, and all of the others */
    {"none", "none", {{Q, 0, 0, 1e38}, {K, 0, 0, 2.5}}, O, 0, 0, ALL, 1},
    {"none", "none", {{Q, 0, 0, 1e38}, {K, 0, 0, 2.5}}, LSE, 0, 0, ALL, 1},
    {"none", "none", {{Q, 0, 0, 1e38}, {K, 0, 0, 2.5}}, O, 1, 0, FINITE, 0},
    {"none", "none", {{Q, 0, 0, 1e38}, {K, 0, 0, 2.5}}, DV, 0, 0, ALL, 1},
    {"none", "none", {{V, 0, 0, 3e38}, {V, 1, 0, 3e38}}, O, 0, 0, ALL, 1},
    {"none", "none", {{V, 0, 0, 3e38}, {V, 1, 0, 3e38}}, O, 0, 1, FINITE, 0},
    /* the finite stand-in for -inf of frameworks is in it */
    {"none", "inf", {{BIAS, 0, 0, -(double)FLT_MAX}}, O, 0, 0, FINITE, 0}};

static void open_small(int n, const char *dtype, struct attn_setup *setup)
{
    char text[ATTN_CASE_TEXT];
    int biased = strcmp(element[n].bias, "inf") == 0;
    snprintf(text, sizeof text, SMALL, element[n].mask, dtype,
             biased ? "bias=inf:dbias=1" : "bias=none");
    setup_of(text, setup);
    for (size_t e = 0; e < sizeof plain / sizeof *plain; e++)
        attn_tensor_set(&setup->tensor[plain[e].slot], 0, 0, plain[e].row, plain[e].feature,
                        plain[e].value);
    for (int64_t at = 0; biased && at < 4; at++)
        attn_tensor_set(&setup->tensor[ATTN_T_BIAS], 0, 0, at / 2, at % 2, 0);
    for (int e = 0; e < 3; e++) {
        const struct edit *x = &element[n].edit[e];
        if (x->slot != ATTN_T_Q || x->value != 0)
            attn_tensor_set(&setup->tensor[x->slot], 0, 0, x->row, x->feature, x->value);
    }
}

/* Does the checker take this number for that element? */
static int accepts(const struct attn_truth_tensor *truth, int64_t n, double value)
{
    struct attn_truth_tensor one = {.name = truth->name, .extent = {1, 1, 1, 1}, .u = 0x1p-24};
    struct attn_cview got = {&value, ATTN_F64, {1, 1, 1, 1}};
    struct attn_agreement x;
    one.want = truth->want + n, one.bound = truth->bound + n;
    one.gauge = truth->gauge + n, one.right = truth->right + n;
    attn_agree(&got, &one, 0x1p-24, &x);
    return x.n_bad == 0;
}

TEST(classes_are_those_of_the_formulas)
{
    struct attn_spec spec = spec_of("dense");
    for (int n = 0; n < (int)(sizeof element / sizeof *element); n++) {
        struct attn_setup setup;
        struct attn_truth truth;
        open_small(n, "f32", &setup);
        truth_of(&setup, &spec, NULL, &truth);
        const struct attn_truth_tensor *t = &truth.tensor[element[n].output];
        int64_t at = element[n].row * t->extent[3] + element[n].feature;
        unsigned right = element[n].right;
        const double value[] = {no, inf, -inf};
        for (int v = 0; v < 3; v++)
            ck_assert_msg(accepts(t, at, value[v]) == !!(attn_class_of(value[v]) & right),
                          "element %d: %g", n, value[v]);
        double want = isfinite(t->want[at]) ? t->want[at] : 0;
        ck_assert_msg(accepts(t, at, want) == !!(right & FINITE), "element %d: %g", n, want);
        ck_assert_msg(accepts(t, at, want + 1) == element[n].unbounded, "element %d: %g", n,
                      want + 1);
        attn_truth_free(&truth);
        attn_setup_close(&setup);
    }
}

/* Right code passes, whatever it is made of: every spec, every kind of number, hidden and not; one
 * case in four, with ATTN_FULL all of them. */
static const char *const every[] = {"dense",           "csr-textbook",   "tiled-textbook:br=8,bc=8",
                                    "tiled",           "tiled:parts=2",  "gemm",
                                    "gemm:save=probs", "chunked",        "csr",
                                    "ring:ranks=2",    "ulysses:ranks=2"};
static const char *const number[] = {"q-nan", "k-nan", "v-nan",  "do-nan", "q-inf",
                                     "k-inf", "v-inf", "do-inf", "k-huge"};

TEST_EACH(honest_code_passes_with_special_values, COUNT(every))
{
    static const char *const mask[] = {"none", "documents(17x17,23x23)", "causal(br)",
                                       "window(3,2,br)"};
    static const char *const rest[] = {"f32:normal:s7", "f64:normal:s8", "f32:cliffs:s9:softcap=5",
                                       "f32:normal:s10:bias=inf:dbias=1:dlse=1", "bf16:normal:s11"};
    int passes = 0, weak = 0;
    struct attn_spec spec = spec_of(every[_i]);
    const int step = getenv("ATTN_FULL") != NULL ? 1 : 4;
    for (int n = _i % step; n < 9 * 4 * 5; n += step) {
        char text[ATTN_CASE_TEXT];
        snprintf(text, sizeof text, "h2q40k40d8:%s:%s:pass=bwd:special=%s", mask[n / 9 % 4],
                 rest[n / 36], number[n % 9]);
        struct attn_result r = result_of(&spec, text);
        ck_assert_msg(r.verdict == ATTN_PASS || r.verdict == ATTN_REFUSED ||
                          (r.verdict == ATTN_WEAK && strcmp(number[n % 9], "k-huge") == 0),
                      "%s: %s: %s %s", every[_i], text, attn_verdict_name(r.verdict), r.text);
        passes += r.verdict == ATTN_PASS;
        weak += r.verdict == ATTN_WEAK;
    }
    ck_assert_int_ge(step * passes, 100); /* ranks take no bias tensor */
    ck_assert_int_le(weak, 20);
}
