/* Learned sinks, and V as a view of K: what is refused, the values at both ends, and gradients
 * against differences of the oracle's own forward pass.  The battery holds every implementation
 * against the oracle. */
#include "tests/suites.h"

#include <math.h>
#include <stdio.h>

#include "ref/problem.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/fixtures/refused.h"

SUITE(sinks);

static struct running x;

static void put(int64_t h, double z)
{
    attn_tensor_set(&x.setup.tensor[ATTN_T_SINK], 0, h, 0, 0, z);
}
static double at(int slot, int64_t h, int64_t i, int64_t c)
{
    return attn_tensor_get(&x.setup.tensor[slot], 0, h, i, c);
}

/* ---- refusals ------------------------------------------------------------------------------- */

static void refused(enum attn_pass pass, const char *words)
{
    ck_refusal(running_pass(&x, pass), ATTN_EINVAL, &x.err, words);
}

TEST(refusals)
{
    const struct attn_spec spec = spec_of("tiled");
    running_open(&x, &spec, "h2q3k4d2:none:f32:normal:s1:pass=bwd:sink=normal");
    const struct attn_problem whole = x.setup.problem;
    struct attn_problem *p = &x.setup.problem;
    put(1, (double)INFINITY);
    refused(ATTN_FORWARD, "sink[1] is +inf: a finite value, or -inf for no sink, would work");
    refused(ATTN_BACKWARD, "sink[1] is +inf");
    put(1, 0);
    p->sink.tensor.dtype = ATTN_BF16, refused(ATTN_FORWARD, "sink stored as bf16: f32 or f64");
    *p = whole, p->sink.given = 0, refused(ATTN_FORWARD, "sink.given is 0: 1 would bring it in");
    *p = whole, p->sink.tensor.data = NULL, refused(ATTN_FORWARD, "announced but is absent");
    *p = whole, p->sink = (struct attn_sink){0};
    refused(ATTN_BACKWARD, "dsink was asked for, but the problem has no sink");
    *p = whole;
    running_well(&x, ATTN_FORWARD);
    running_close(&x);
}

/* ---- values at both ends -------------------------------------------------------------------- */

static const char *const specs[] = {
    "dense",        "csr-textbook",          "tiled-textbook",           "csr",
    "bsr",          "gemm:save=probs",       "gemm:save=nothing",        "tiled",
    "ring:ranks=2", "ring-textbook:ranks=2", "ulysses-textbook:ranks=2", "heads:ranks=2"};
static const char text[] = "h2q4k4d2:causal(tl):f64:normal:s1:pass=bwd:dlse=1";

static void passes(void)
{
    running_well(&x, ATTN_FORWARD);
    running_well(&x, ATTN_BACKWARD);
    attn_saved_drop(&x.saved, &x.ledger);
}

static void ck_rows(const double *want, int64_t h)
{
    for (int64_t i = 0; i < 4; i++) {
        ck_assert(at(ATTN_T_LSE, h, i, 0) == want[i * 3]);
        ck_assert(at(ATTN_T_O, h, i, 0) == want[i * 3 + 1]);
        ck_assert(at(ATTN_T_DQ, h, i, 0) == want[i * 3 + 2]);
    }
}

/* By the oracle's bounds and kinds. */
static void judged(enum attn_verdict verdict)
{
    struct attn_precision precision;
    struct attn_result r = {0};
    attn_precision_of(x.spec.impl, &x.spec.options, &x.setup.problem, &precision);
    attn_judge(&x.setup, &precision, NULL, ATTN_BACKWARD, &r);
    ck_assert_msg(r.verdict == verdict, "verdict %d: %s", (int)r.verdict, r.text);
}

/* -inf is no sink, to the bit, and has gradient 0; a NaN is in every row of its head, and in no
 * other head. */
TEST_EACH(minus_infinity_and_nan, COUNT(specs))
{
    const struct attn_spec spec = spec_of(specs[_i]);
    char with[ATTN_CASE_TEXT];
    double none[2][12];
    running_open(&x, &spec, text);
    passes();
    for (int64_t n = 0; n < 24; n++) {
        static const int slot[] = {ATTN_T_LSE, ATTN_T_O, ATTN_T_DQ};
        none[n / 12][n % 12] = at(slot[n % 3], n / 12, n % 12 / 3, 0);
    }
    running_close(&x);
    snprintf(with, sizeof with, "%s:sink=normal", text);
    running_open(&x, &spec, with);
    put(0, -(double)INFINITY), put(1, -(double)INFINITY);
    passes();
    for (int64_t h = 0; h < 2; h++) {
        ck_rows(none[h], h);
        ck_assert(at(ATTN_T_DSINK, h, 0, 0) == 0);
    }
    put(1, (double)NAN);
    passes();
    ck_rows(none[0], 0);
    ck_assert(at(ATTN_T_DSINK, 0, 0, 0) == 0 && isnan(at(ATTN_T_DSINK, 1, 0, 0)));
    for (int64_t i = 0; i < 4; i++)
        ck_assert(isnan(at(ATTN_T_LSE, 1, i, 0)) && isnan(at(ATTN_T_O, 1, i, 0)));
    judged(ATTN_PASS);
    attn_tensor_set(&x.setup.tensor[ATTN_T_LSE], 0, 1, 3, 0, 0);
    judged(ATTN_FAILED);
    running_close(&x);
}

/* ---- dsink ---------------------------------------------------------------------------------- */

static const char *const sloped[] = {
    "b2h4g2q5k7d3v2:causal(br):f64:normal:s1:pass=bwd:sink=normal:dlse=1",
    "h2q6k4d3:window(1,0,br):f64:normal:s2:pass=bwd:sink=zero:dlse=1", /* rows without keys */
    "h2q4k5d2:none:f64:normal:s3:pass=bwd:sink=normal:bias=inf:softcap=2",
};

/* sum dO.O + sum dLSE LSE of the oracle, of which dz and dK are the slopes. */
static double loss(void)
{
    const struct attn_spec dense = spec_of("dense");
    struct attn_truth truth;
    double sum = 0;
    truth_of(&x.setup, &dense, NULL, &truth);
    const struct attn_truth_tensor *o = &truth.tensor[ATTN_O], *lse = &truth.tensor[ATTN_LSE];
    for (int64_t n = 0; n < o->extent[0] * o->extent[1] * o->extent[2]; n++) {
        int64_t i = n % o->extent[2], h = n / o->extent[2] % o->extent[1];
        int64_t b = n / o->extent[2] / o->extent[1];
        int keys = attn_setup_sees(&x.setup, b, h, i);
        for (int64_t c = 0; keys && c < o->extent[3]; c++)
            sum += attn_tensor_get(&x.setup.tensor[ATTN_T_DO], b, h, i, c) *
                   o->want[n * o->extent[3] + c];
        if (x.setup.tensor[ATTN_T_DLSE].span > 0)
            sum += attn_tensor_get(&x.setup.tensor[ATTN_T_DLSE], b, h, i, 0) * lse->want[n];
    }
    attn_truth_free(&truth);
    return sum;
}

TEST_EACH(dsink_is_the_slope, COUNT(sloped))
{
    const struct attn_spec dense = spec_of("dense");
    struct attn_truth truth;
    running_open(&x, &dense, sloped[_i]);
    truth_of(&x.setup, &dense, NULL, &truth);
    for (int64_t h = 0; h < x.setup.problem.heads; h++) {
        const double z = at(ATTN_T_SINK, h, 0, 0), step = 0x1p-17;
        put(h, z + step);
        double more = loss();
        put(h, z - step);
        double slope = (more - loss()) / (2 * step), want = truth.tensor[ATTN_DSINK].want[h];
        put(h, z);
        ck_assert_msg(want != 0 && fabs(slope - want) < 1e-8, "%s: head %d: %.12g, slope %.12g",
                      sloped[_i], (int)h, want, slope);
    }
    attn_truth_free(&truth);
    running_close(&x);
}

/* ---- one buffer for K and V ----------------------------------------------------------------- */

TEST(shared_refusals)
{
    const struct attn_spec spec = spec_of("tiled");
    running_open(&x, &spec, "q3k4d3v2:none:f32:normal:s1:pass=bwd:kv=shared");
    struct attn_problem *p = &x.setup.problem;
    struct attn_tensor *v = &x.setup.tensor[ATTN_T_V];
    running_well(&x, ATTN_FORWARD);
    v->stride[2] = 2, refused(ATTN_FORWARD, "K and V are shared, but v lies apart");
    refused(ATTN_BACKWARD, "v lies apart");
    v->stride[2] = 3, p->d_value = 4, refused(ATTN_FORWARD, "up to 3 would work");
    running_close(&x);
    struct attn_spec textbook = spec_of("ring-textbook:ranks=2");
    running_open(&x, &textbook, "q4d2:none:f32:normal:s1:kv=shared");
    ck_refusal(running_pass(&x, ATTN_FORWARD), ATTN_ENOTSUP, &x.err, "does not claim: kv-shared");
    running_close(&x);
}

/* Both of its parts: what moves K moves V too. */
TEST(dkv_is_the_slope)
{
    static const char shared[] =
        "b2h4g2q4k5d3v2:causal(br):f64:normal:s4:pass=bwd:kv=shared:dlse=1:sink=normal:softcap=2";
    const struct attn_spec dense = spec_of("dense");
    struct attn_truth truth;
    running_open(&x, &dense, shared);
    truth_of(&x.setup, &dense, NULL, &truth);
    struct attn_tensor *k = &x.setup.tensor[ATTN_T_K];
    const double *want = truth.tensor[ATTN_DK].want, step = 0x1p-17;
    for (int64_t at[4] = ATTN_START; attn_each(at, k->extent); want++) {
        const double old = attn_tensor_get(k, at[0], at[1], at[2], at[3]);
        attn_tensor_set(k, at[0], at[1], at[2], at[3], old + step);
        double more = loss();
        attn_tensor_set(k, at[0], at[1], at[2], at[3], old - step);
        double slope = (more - loss()) / (2 * step);
        attn_tensor_set(k, at[0], at[1], at[2], at[3], old);
        ck_assert_msg(*want != 0 && fabs(slope - *want) < 1e-8,
                      "dk[%d,%d,%d,%d] = %.12g, slope %.12g", (int)at[0], (int)at[1], (int)at[2],
                      (int)at[3], *want, slope);
    }
    ck_assert_ptr_null(truth.tensor[ATTN_DV].want);
    attn_truth_free(&truth);
    running_close(&x);
}
