/* Who judges the judge: the oracle in both widths on problems whose answer can be written down.
 * test_golden.c compares it with arbitrary precision; here is what that cannot show: long sums, the
 * last place, exact zeros, and what is hidden. */
#include "tests/suites.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "ref/problem.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/harness/fill.h"

SUITE(oracle, .seconds = 60);

static const double U = 0x1p-53; /* of double */

/* A case in either width.  Every value is drawn so that f32 holds it exactly: one problem can be
 * judged by the double and by the long double oracle alike.  Tests may overwrite values before they
 * run it. */
struct fixture {
    struct attn_setup setup;
    struct attn_truth truth;
    double *o, *lse, *dq, *dk, *dv, *d_bias; /* of the truth; d_bias NULL without a bias tensor */
};

static struct attn_view view(const struct fixture *x, int slot)
{
    const struct attn_tensor *t = &x->setup.tensor[slot];
    return (struct attn_view){t->data, t->dtype, {0, 0, 0, 1}};
}

/* Element n of an input, in C order. */
static double get(const struct fixture *x, int slot, int64_t n)
{
    const struct attn_view v = view(x, slot);
    return attn_view_get(&v, 0, 0, 0, n);
}

static void put(struct fixture *x, int slot, int64_t n, double value)
{
    const struct attn_view v = view(x, slot);
    attn_view_set(&v, 0, 0, 0, n, value);
}

/* The case has a %s for its type.  To be closed. */
static struct fixture *fixture_open(const char *text, enum attn_dtype dtype, uint64_t seed)
{
    char whole[ATTN_CASE_TEXT];
    struct fixture *x = calloc(1, sizeof *x);
    ck_assert_ptr_nonnull(x);
    snprintf(whole, sizeof whole, text, attn_dtype_name(dtype));
    setup_of(whole, &x->setup);
    for (int t = ATTN_T_Q; t < ATTN_T_O; t++)
        for (int64_t n = 0; n < x->setup.tensor[t].span; n++)
            put(x, t, n, (double)(float)attn_hash_normal(seed, (uint64_t)t, (uint64_t)n));
    return x;
}

/* The oracle's answer, forward and backward. */
static void fixture_run(struct fixture *x)
{
    const struct attn_spec dense = spec_of("dense");
    truth_of(&x->setup, &dense, NULL, &x->truth);
    x->o = x->truth.tensor[ATTN_O].want;
    x->lse = x->truth.tensor[ATTN_LSE].want;
    x->dq = x->truth.tensor[ATTN_DQ].want;
    x->dk = x->truth.tensor[ATTN_DK].want;
    x->dv = x->truth.tensor[ATTN_DV].want;
    x->d_bias = x->truth.tensor[ATTN_DBIAS].want;
}

static void fixture_close(struct fixture *x)
{
    attn_truth_free(&x->truth);
    attn_setup_close(&x->setup);
    free(x);
}

/* Elements; 0: no such output. */
static int64_t fixture_size(const struct fixture *x, enum attn_output output)
{
    const struct attn_truth_tensor *t = &x->truth.tensor[output];
    return t->want == NULL ? 0 : t->extent[0] * t->extent[1] * t->extent[2] * t->extent[3];
}

/* |got - want| <= bound, or the test fails; equal infinities agree, a NaN never does. */
static void fixture_near(const char *what, int64_t at, double got, double want, double bound)
{
    int ok = got == want || fabs(got - want) <= bound;
    if (!ok)
        ck_abort_msg("%s[%lld] = %.17g, want %.17g: off by %.3g, %.3g is allowed", what,
                     (long long)at, got, want, fabs(got - want), bound);
}

/* ---- precision ------------------------------------------------------------------------------ */

/* A row of 4096 keys and V > 0: plain sums would lose about sqrt(4096) roundings, compensated
 * ones of runs of 32 lose a few.  The long double oracle stands for the truth. */
TEST(long_rows)
{
    static const char text[] = "q2k4096d1:none:%s:normal:s1:pass=bwd";
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct fixture *x = fixture_open(text, ATTN_F32, seed);
        struct fixture *y = fixture_open(text, ATTN_F64, seed);
        for (int n = 0; n < 4096; n++) {
            put(x, ATTN_T_V, n, fabs(get(x, ATTN_T_V, n)));
            put(y, ATTN_T_V, n, get(x, ATTN_T_V, n));
        }
        fixture_run(x);
        fixture_run(y);
        for (int i = 0; i < 2; i++) {
            fixture_near("o", i, x->o[i], y->o[i], 5 * U * y->o[i]);
            fixture_near("lse", i, x->lse[i], y->lse[i], 5 * U * fabs(y->lse[i]));
            fixture_near("dq", i, x->dq[i], y->dq[i], 0.5 * U * y->truth.tensor[ATTN_DQ].gauge[i]);
        }
        fixture_close(x);
        fixture_close(y);
    }
}

/* One key under 4096 queries: dV is the sum of all dO, to the last rounding. */
TEST(long_columns)
{
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct fixture *x = fixture_open("q4096k1d1:none:%s:normal:s1:pass=bwd", ATTN_F64, seed);
        long double sum = 0;
        for (int n = 0; n < 4096; n++) {
            put(x, ATTN_T_DO, n, fabs(get(x, ATTN_T_DO, n)) / 3);
            sum += (long double)get(x, ATTN_T_DO, n);
        }
        fixture_run(x);
        fixture_near("dv", 0, x->dv[0], (double)sum, 3 * U * (double)sum);
        fixture_close(x);
    }
}

/* Two keys in f64, against the formula in long double: the only error left is the last
 * rounding.  An oracle that used double anywhere would be off by more than half a unit in the
 * last place. */
TEST(wide_is_wide)
{
    for (uint64_t seed = 1; seed <= 200 && LDBL_MANT_DIG > DBL_MANT_DIG; seed++) {
        struct fixture *x =
            fixture_open("q1k2d3v1:none:%s:normal:s1:scale=0.7:pass=bwd", ATTN_F64, seed);
        long double S[2] = {0}, v[2], scale = (long double)x->setup.problem.scale;
        long double d_o = (long double)get(x, ATTN_T_DO, 0), q0 = (long double)get(x, ATTN_T_Q, 0);
        for (int j = 0; j < 2; j++) {
            put(x, ATTN_T_V, j, fabs(get(x, ATTN_T_V, j)));
            v[j] = (long double)get(x, ATTN_T_V, j);
            for (int c = 0; c < 3; c++)
                S[j] += scale * (long double)get(x, ATTN_T_Q, c) *
                        (long double)get(x, ATTN_T_K, 3 * j + c);
        }
        fixture_run(x);
        long double p1 = 1 / (1 + expl(S[1] - S[0])), p2 = 1 / (1 + expl(S[0] - S[1]));
        long double o = p1 * v[0] + p2 * v[1], dS = p1 * p2 * d_o * (v[0] - v[1]);
        const struct {
            const char *name;
            double got;
            long double want;
        } list[] = {{"o", x->o[0], o},
                    {"lse", x->lse[0], S[0] - logl(p1)},
                    {"dv", x->dv[0], p1 * d_o},
                    {"dk", x->dk[0], scale * dS * q0}};
        for (int n = 0; n < 4; n++) {
            double spacing = ldexp(1, ilogb(list[n].got) - 52);
            double most = n < 2 ? 0.51 : 2; /* dV and dK are sums of doubles */
            long double off = fabsl((long double)list[n].got - list[n].want) / (long double)spacing;
            ck_assert_msg(off <= (long double)most, "%s: %g of the last place", list[n].name,
                          (double)off);
        }
        fixture_close(x);
    }
}

/* ---- closed forms: each is run in both widths ----------------------------------------------- */

static enum attn_dtype width(int i)
{
    return i ? ATTN_F64 : ATTN_F32;
}

/* One key far above all others: O is its V and dV its dO, bit for bit, and no score has a
 * gradient. */
TEST_EACH(hard_select, 2)
{
    for (int64_t pick = 0; pick < 9; pick++) {
        struct fixture *x =
            fixture_open("h2q1k9d4v5:none:%s:normal:s1:scale=1:pass=bwd", width(_i), 31);
        for (int h = 0; h < 2; h++) {
            put(x, ATTN_T_Q, 4 * h, 64);
            for (int64_t j = 0; j < 9; j++) /* 4096 apart from the others twice */
                put(x, ATTN_T_K, (9 * h + j) * 4, j == pick ? 64 : -64);
        }
        fixture_run(x);
        for (int h = 0; h < 2; h++)
            for (int c = 0; c < 5; c++)
                for (int64_t j = 0; j < 9; j++) {
                    ck_assert(x->o[5 * h + c] == get(x, ATTN_T_V, (9 * h + pick) * 5 + c));
                    ck_assert(x->dv[(9 * h + j) * 5 + c] ==
                              (j == pick ? get(x, ATTN_T_DO, 5 * h + c) : 0));
                }
        for (int n = 0; n < 2 * 4; n++)
            ck_assert(x->dq[n] == 0);
        for (int n = 0; n < 2 * 9 * 4; n++)
            ck_assert(x->dk[n] == 0);
        fixture_close(x);
    }
}

/* No key, whatever q and dO hold: O = 0, LSE = -inf, dQ = 0, and dV does not notice. */
TEST_EACH(empty_rows, 2)
{
    static const char text[] = "q6k4d3:causal(br):%s:normal:s1:scale=1:pass=bwd:dlse=1";
    struct fixture *x = fixture_open(text, width(_i), 51), *y = fixture_open(text, width(_i), 51);
    for (int n = 0; n < 2 * 3; n++) {
        put(x, ATTN_T_Q, n, (double)NAN);
        put(x, ATTN_T_DO, n, (double)NAN);
        put(x, ATTN_T_DLSE, n / 3, (double)NAN);
    }
    fixture_run(x);
    fixture_run(y);
    for (int n = 0; n < 2 * 3; n++)
        ck_assert(x->o[n] == 0 && x->dq[n] == 0);
    ck_assert(x->lse[0] == -(double)INFINITY && x->lse[1] == -(double)INFINITY);
    for (int n = 0; n < 4 * 3; n++)
        ck_assert(x->dv[n] == y->dv[n] && x->dk[n] == y->dk[n] && isfinite(x->dk[n]));
    fixture_close(x);
    fixture_close(y);
}

/* A bias that is broadcast collects the gradients of all cells it stands for. */
TEST_EACH(broadcast_bias_gradient, 2)
{
    static const char text[] = "b2h2q3k5d2:none:%s:normal:s1:scale=0.5:pass=bwd:bias=full:dbias=1";
    const int64_t stride[4] = {30, 15, 5, 1};
    for (int axis = 0; axis < 4; axis++) {
        struct fixture *x = fixture_open(text, width(_i), 91);
        struct fixture *y = fixture_open(text, width(_i), 91);
        for (int64_t n = 0; n < 60; n++) { /* y: the same values, written out */
            int64_t from = n - n / stride[axis] % (int64_t[]){2, 2, 3, 5}[axis] * stride[axis];
            put(y, ATTN_T_BIAS, n, get(x, ATTN_T_BIAS, from));
        }
        x->setup.problem.bias.tensor.stride[axis] = 0;
        fixture_run(x);
        fixture_run(y);
        const int64_t *extent = x->truth.tensor[ATTN_DBIAS].extent;
        ck_assert_int_eq(extent[axis], 1);
        double sum[60] = {0};
        for (int64_t n = 0; n < 60; n++) {
            int64_t at[4] = {n / 30, n / 15 % 2, n / 5 % 3, n % 5};
            at[axis] = 0;
            sum[((at[0] * extent[1] + at[1]) * extent[2] + at[2]) * extent[3] + at[3]] +=
                y->d_bias[n];
        }
        for (int64_t n = 0; n < fixture_size(x, ATTN_DBIAS); n++)
            fixture_near("dbias", n, x->d_bias[n], sum[n], 60 * U);
        for (int64_t n = 0; n < fixture_size(x, ATTN_O); n++)
            ck_assert(x->o[n] == y->o[n]);
        fixture_close(x);
        fixture_close(y);
    }
}

/* A bias of -inf hides like a mask, for every output; a row of nothing else is an empty row. */
TEST_EACH(bias_that_hides, 2)
{
#define HIDDEN_BY(mask) \
    "h2g1q8k6d3:" mask ":%s:normal:s1:scale=0.5:pass=bwd:bias=full:dbias=1:dlse=1"
    struct fixture *x = fixture_open(HIDDEN_BY("none"), width(_i), 95);
    struct fixture *y = fixture_open(HIDDEN_BY("causal(br)"), width(_i), 95);
    for (int h = 0; h < 2; h++)
        for (int i = 0; i < 8; i++)
            for (int j = 0; j < 6; j++)
                if (j > i - 2) /* rows 0 and 1 see nothing */
                    put(x, ATTN_T_BIAS, (8 * h + i) * 6 + j, -(double)INFINITY);
    fixture_run(x);
    fixture_run(y);
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        for (int64_t n = 0; n < fixture_size(x, (enum attn_output)o); n++)
            fixture_near(attn_output_name((enum attn_output)o), n, x->truth.tensor[o].want[n],
                         y->truth.tensor[o].want[n], 30 * U);
    ck_assert(x->lse[1] == -(double)INFINITY && x->dq[3] == 0);
    fixture_close(x);
    fixture_close(y);
}
