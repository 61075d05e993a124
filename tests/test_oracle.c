/* Who judges the judge: the oracle in both widths against GSL's BLAS, and against problems whose
 * answer can be written down. */
#include "tests/suites.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/dense_gsl.h"
#include "tests/fixtures/oracle_fixture.h"
#include "tests/harness/fill.h"

SUITE(oracle, .seconds = 60);

static const double U = 0x1p-53; /* of double */

/* ---- against GSL ---------------------------------------------------------------------------- */

static int sees_all(const struct attn_problem *p, int64_t i, int64_t j)
{
    return p != NULL && i >= 0 && j >= 0;
}
static int sees_causal_br(const struct attn_problem *p, int64_t i, int64_t j)
{
    return p->n_query - i <= p->n_key - j; /* as far from the end, or further, as the query */
}
static int sees_causal_tl(const struct attn_problem *p, int64_t i, int64_t j)
{
    return p != NULL && j <= i;
}
static int sees_window(const struct attn_problem *p, int64_t i, int64_t j) /* window(5,2,br) */
{
    int64_t ahead = (p->n_query - i) - (p->n_key - j); /* keys after the query's own */
    return ahead >= -5 && ahead <= 2;
}
static int sees_some(const struct attn_problem *p, int64_t i, int64_t j) /* keys(x110) | 2 first */
{
    return p != NULL && (i >= 0) && (j % 3 != 2 || j < 2);
}

static const struct {
    struct fixture_shape shape;
    dense_gsl_sees *sees;
} problems[] = {
    {{2, 4, 2, 19, 23, 8, 8, NULL, 0.35, 0, ATTN_BIAS_NONE, 0}, sees_all},
    {{1, 3, 3, 40, 40, 16, 16, "causal(tl)", 0.25, 0, ATTN_BIAS_NONE, 1}, sees_causal_tl},
    {{2, 6, 2, 9, 30, 5, 11, "causal(br)", 0.4, 0, ATTN_BIAS_NONE, 1}, sees_causal_br},
    {{1, 4, 1, 30, 13, 12, 3, "causal(br)", -0.3, 0, ATTN_BIAS_NONE, 0}, sees_causal_br},
    {{2, 2, 2, 25, 31, 7, 7, "window(5,2,br)", 1.5, 0, ATTN_BIAS_NONE, 1}, sees_window},
    {{2, 2, 1, 11, 26, 9, 4, "keys(x110)|prefix(2)", 0.3, 2, ATTN_BIAS_NONE, 0}, sees_some},
    {{1, 4, 2, 15, 22, 6, 6, NULL, 0.4, 0, ATTN_BIAS_TENSOR, 1}, sees_all},
    {{2, 4, 4, 16, 16, 8, 8, "causal(br)", 0.35, 0, ATTN_BIAS_ALIBI, 0}, sees_causal_br},
    {{2, 2, 2, 14, 17, 8, 8, "causal(tl)", 0.5, 5, ATTN_BIAS_TENSOR, 1}, sees_causal_tl},
    {{1, 2, 1, 20, 50, 32, 32, NULL, 8, 0, ATTN_BIAS_NONE, 0}, sees_all}, /* scores near 100 */
    {{1, 2, 2, 6, 120, 1, 1, NULL, 0.1, 0, ATTN_BIAS_NONE, 1}, sees_all},
};

/* GSL errs by a few roundings of double for each term of a sum (at most 120 terms here), and the
 * oracle by a few in all: 16 u, times the condition-aware size, covers both and no bug. */
TEST_EACH(agrees_with_gsl, COUNT(problems))
{
    struct dense_gsl *gsl = malloc(sizeof *gsl);
    ck_assert_ptr_nonnull(gsl);
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct fixture *x = fixture_open(&problems[_i].shape, seed);
        dense_gsl_run(x, problems[_i].sees, gsl);
        for (int wide = 0; wide < 2; wide++) {
            fixture_run(x, wide ? ATTN_F64 : ATTN_F32);
            for (int o = 0; o < ATTN_OUTPUTS; o++)
                for (int64_t n = 0; n < fixture_size(x, (enum attn_output)o); n++)
                    fixture_near(attn_output_name((enum attn_output)o), n,
                                 x->truth.tensor[o].want[n], gsl->value[o][n],
                                 16 * U * gsl->size[o][n]);
        }
        fixture_close(x);
    }
    free(gsl);
}

/* A row of 4096 keys and V > 0: plain sums would lose about sqrt(4096) roundings, compensated
 * ones of runs of 32 lose a few.  The long double oracle stands for the truth. */
TEST(long_rows)
{
    const struct fixture_shape s = {1, 1, 1, 2, 4096, 1, 1, NULL, 1, 0, ATTN_BIAS_NONE, 0};
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct fixture *x = fixture_open(&s, seed), *y = fixture_open(&s, seed);
        for (int n = 0; n < 4096; n++)
            x->v[n] = y->v[n] = fabs(x->v[n]);
        fixture_run(x, ATTN_F32);
        fixture_run(y, ATTN_F64);
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
    const struct fixture_shape s = {1, 1, 1, 4096, 1, 1, 1, NULL, 1, 0, ATTN_BIAS_NONE, 0};
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct fixture *x = fixture_open(&s, seed);
        long double sum = 0;
        for (int n = 0; n < 4096; n++)
            sum += (long double)(x->d_o[n] = fabs(x->d_o[n]) / 3);
        fixture_run(x, ATTN_F64);
        fixture_near("dv", 0, x->dv[0], (double)sum, 3 * U * (double)sum);
        fixture_close(x);
    }
}

/* Two keys in f64, against the formula in long double: the only error left is the last
 * rounding.  An oracle that used double anywhere would be off by more than half a unit in the
 * last place. */
TEST(wide_is_wide)
{
    const struct fixture_shape s = {1, 1, 1, 1, 2, 3, 1, NULL, 0.7, 0, ATTN_BIAS_NONE, 0};
    for (uint64_t seed = 1; seed <= 200 && LDBL_MANT_DIG > DBL_MANT_DIG; seed++) {
        struct fixture *x = fixture_open(&s, seed);
        long double S[2] = {0};
        for (int j = 0; j < 2; j++) {
            x->v[j] = fabs(x->v[j]);
            for (int c = 0; c < 3; c++)
                S[j] += (long double)x->q[c] * (long double)x->k[3 * j + c];
            S[j] *= (long double)x->p.scale;
        }
        fixture_run(x, ATTN_F64);
        long double p1 = 1 / (1 + expl(S[1] - S[0])), p2 = 1 / (1 + expl(S[0] - S[1]));
        long double o = p1 * (long double)x->v[0] + p2 * (long double)x->v[1];
        long double dS =
            p1 * p2 * (long double)x->d_o[0] * ((long double)x->v[0] - (long double)x->v[1]);
        const struct {
            const char *name;
            double got;
            long double want;
        } list[] = {{"o", x->o[0], o},
                    {"lse", x->lse[0], S[0] - logl(p1)},
                    {"dv", x->dv[0], p1 * (long double)x->d_o[0]},
                    {"dk", x->dk[0], (long double)x->p.scale * dS * (long double)x->q[0]}};
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

/* q = 0: O is the mean of the visible V, LSE the log of their number, and
 * dQ = scale / n sum_j (dP_j - mean dP) k_j.  Rows 0 to 4 see nothing. */
TEST_EACH(uniform, 2)
{
    const struct fixture_shape s = {2, 4, 2, 12, 7, 3, 4, "causal(br)", 0.6, 0, ATTN_BIAS_NONE, 0};
    struct fixture *x = fixture_open(&s, 21);
    memset(x->q, 0, sizeof x->q);
    fixture_run(x, width(_i));
    for (int64_t r = 0; r < 2 * 4 * 12; r++) {
        int64_t n = r % 12 - 4, kv = r / 48 * 2 + r / 12 % 4 / 2;
        n = n > 0 ? n : 0;
        fixture_near("lse", r, x->lse[r], n > 0 ? log((double)n) : -(double)INFINITY, 2 * U);
        double dp[7] = {0}, mean = 0;
        for (int64_t j = 0; j < n; j++) {
            for (int c = 0; c < 4; c++)
                dp[j] += x->d_o[4 * r + c] * x->v[(7 * kv + j) * 4 + c];
            mean += dp[j] / (double)n;
        }
        for (int c = 0; c < 4; c++) {
            double sum = 0;
            for (int64_t j = 0; j < n; j++)
                sum += x->v[(7 * kv + j) * 4 + c];
            fixture_near("o", 4 * r + c, x->o[4 * r + c], n > 0 ? sum / (double)n : 0, 30 * U);
        }
        for (int c = 0; c < 3; c++) {
            double sum = 0;
            for (int64_t j = 0; j < n; j++)
                sum += (dp[j] - mean) * x->k[(7 * kv + j) * 3 + c];
            fixture_near("dq", 3 * r + c, x->dq[3 * r + c], n > 0 ? 0.6 * sum / (double)n : 0,
                         200 * U);
        }
    }
    for (int64_t n = 0; n < fixture_size(x, ATTN_DK); n++)
        ck_assert(x->dk[n] == 0); /* dk = scale sum dS q */
    fixture_close(x);
}

/* Two keys: a logistic function of the difference of their scores, softcap and bias included:
 * p1 = 1 / (1 + exp(s2 - s1)), and dS1 = p1 p2 (dP1 - dP2) = -dS2 = dBias1. */
TEST_EACH(two_keys, 2)
{
    const struct fixture_shape s = {1, 1, 1, 1, 2, 2, 3, NULL, 0.8, 1.5, ATTN_BIAS_TENSOR, 0};
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct fixture *x = fixture_open(&s, seed);
        fixture_run(x, width(_i));
        double S[2], slope[2], dP[2] = {0};
        for (int j = 0; j < 2; j++) {
            double t = tanh(0.8 * (x->q[0] * x->k[2 * j] + x->q[1] * x->k[2 * j + 1]) / 1.5);
            S[j] = 1.5 * t + x->bias[j];
            slope[j] = 1 - t * t;
            for (int c = 0; c < 3; c++)
                dP[j] += x->d_o[c] * x->v[3 * j + c];
        }
        double p1 = 1 / (1 + exp(S[1] - S[0])), p2 = 1 / (1 + exp(S[0] - S[1]));
        double dS = p1 * p2 * (dP[0] - dP[1]);
        fixture_near("lse", 0, x->lse[0], S[0] - log(p1), 40 * U);
        for (int c = 0; c < 3; c++) {
            fixture_near("o", c, x->o[c], p1 * x->v[c] + p2 * x->v[3 + c], 60 * U);
            fixture_near("dv", c, x->dv[c], p1 * x->d_o[c], 60 * U);
            fixture_near("dv", 3 + c, x->dv[3 + c], p2 * x->d_o[c], 60 * U);
        }
        fixture_near("dbias", 0, x->d_bias[0], dS, 400 * U);
        fixture_near("dbias", 1, x->d_bias[1], -dS, 400 * U);
        for (int c = 0; c < 2; c++) {
            double dq = 0.8 * dS * (slope[0] * x->k[c] - slope[1] * x->k[2 + c]);
            fixture_near("dq", c, x->dq[c], dq, 1000 * U);
            fixture_near("dk", c, x->dk[c], 0.8 * dS * slope[0] * x->q[c], 1000 * U);
            fixture_near("dk", 2 + c, x->dk[2 + c], -0.8 * dS * slope[1] * x->q[c], 1000 * U);
        }
        fixture_close(x);
    }
}

/* One key far above all others: O is its V and dV its dO, bit for bit, and no score has a
 * gradient. */
TEST_EACH(hard_select, 2)
{
    const struct fixture_shape s = {1, 2, 2, 1, 9, 4, 5, NULL, 1, 0, ATTN_BIAS_NONE, 0};
    for (int64_t pick = 0; pick < 9; pick++) {
        struct fixture *x = fixture_open(&s, 31);
        for (int h = 0; h < 2; h++) {
            x->q[4 * h] = 64;
            for (int64_t j = 0; j < 9; j++)
                x->k[(9 * h + j) * 4] = j == pick ? 64 : -64; /* 4096 apart from the others twice */
        }
        fixture_run(x, width(_i));
        for (int h = 0; h < 2; h++)
            for (int c = 0; c < 5; c++)
                for (int64_t j = 0; j < 9; j++) {
                    ck_assert(x->o[5 * h + c] == x->v[(9 * h + pick) * 5 + c]);
                    ck_assert(x->dv[(9 * h + j) * 5 + c] == (j == pick ? x->d_o[5 * h + c] : 0));
                }
        for (int n = 0; n < 2 * 4; n++)
            ck_assert(x->dq[n] == 0);
        for (int n = 0; n < 2 * 9 * 4; n++)
            ck_assert(x->dk[n] == 0);
        fixture_close(x);
    }
}

/* All keys the same: weights 1/n, LSE = s + ln n, and dQ = scale k sum_j dS_j = 0. */
TEST_EACH(identical_keys, 2)
{
    const struct fixture_shape s = {1, 2, 1, 5, 17, 6, 3, NULL, 0.7, 0, ATTN_BIAS_NONE, 0};
    struct fixture *x = fixture_open(&s, 41);
    for (int j = 1; j < 17; j++)
        memcpy(x->k + 6 * j, x->k, 6 * sizeof *x->k);
    fixture_run(x, width(_i));
    for (int64_t r = 0; r < 2 * 5; r++) {
        double score = 0;
        for (int c = 0; c < 6; c++)
            score += 0.7 * x->q[6 * r + c] * x->k[c];
        fixture_near("lse", r, x->lse[r], score + log(17), 60 * U);
        for (int c = 0; c < 3; c++) {
            double sum = 0;
            for (int j = 0; j < 17; j++)
                sum += x->v[3 * j + c];
            fixture_near("o", 3 * r + c, x->o[3 * r + c], sum / 17, 60 * U);
        }
        for (int c = 0; c < 6; c++)
            fixture_near("dq", 6 * r + c, x->dq[6 * r + c], 0, 100 * U);
    }
    fixture_close(x);
}

/* No key, whatever q and dO hold: O = 0, LSE = -inf, dQ = 0, and dV does not notice. */
TEST_EACH(empty_rows, 2)
{
    const struct fixture_shape s = {1, 1, 1, 6, 4, 3, 3, "causal(br)", 1, 0, ATTN_BIAS_NONE, 1};
    struct fixture *x = fixture_open(&s, 51), *y = fixture_open(&s, 51);
    for (int n = 0; n < 2 * 3; n++)
        x->q[n] = x->d_o[n] = (double)NAN;
    x->d_lse[0] = x->d_lse[1] = (double)NAN;
    fixture_run(x, width(_i));
    fixture_run(y, width(_i));
    for (int n = 0; n < 2 * 3; n++)
        ck_assert(x->o[n] == 0 && x->dq[n] == 0);
    ck_assert(x->lse[0] == -(double)INFINITY && x->lse[1] == -(double)INFINITY);
    for (int n = 0; n < 4 * 3; n++)
        ck_assert(x->dv[n] == y->dv[n] && x->dk[n] == y->dk[n] && isfinite(x->dk[n]));
    fixture_close(x);
    fixture_close(y);
}

/* One key: O = v, LSE = s, dV = dO; dQ = dK = 0 exactly.  A gradient of LSE goes straight to s. */
TEST_EACH(single_key, 2)
{
    struct fixture_shape s = {1, 1, 1, 1, 1, 4, 5, NULL, 0.5, 0, ATTN_BIAS_NONE, 0};
    for (s.d_lse = 0; s.d_lse < 2; s.d_lse++) {
        struct fixture *x = fixture_open(&s, 61);
        double score = 0;
        fixture_run(x, width(_i));
        for (int c = 0; c < 4; c++) {
            double g = s.d_lse ? x->d_lse[0] : 0;
            score += 0.5 * x->q[c] * x->k[c];
            fixture_near("dq", c, x->dq[c], 0.5 * g * x->k[c], s.d_lse * 60 * U);
            fixture_near("dk", c, x->dk[c], 0.5 * g * x->q[c], s.d_lse * 60 * U);
        }
        fixture_near("lse", 0, x->lse[0], score, 10 * U);
        for (int c = 0; c < 5; c++)
            ck_assert(x->o[c] == x->v[c] && x->dv[c] == x->d_o[c]);
        fixture_close(x);
    }
}

/* Only LSE has a gradient: dS = P dLSE, so dQ = scale dLSE sum_j P_j k_j (which is attention
 * with K for V), and dV = 0 exactly. */
TEST_EACH(gradient_of_lse, 2)
{
    const struct fixture_shape s = {2, 2, 1, 7, 9, 4, 4, "causal(br)", 0.5, 0, ATTN_BIAS_NONE, 1};
    struct fixture *x = fixture_open(&s, 71), *y = fixture_open(&s, 71);
    memset(x->d_o, 0, sizeof x->d_o);
    memcpy(y->v, y->k, sizeof y->v);
    fixture_run(x, width(_i));
    fixture_run(y, width(_i));
    for (int64_t n = 0; n < fixture_size(x, ATTN_DV); n++)
        ck_assert(x->dv[n] == 0);
    for (int64_t n = 0; n < fixture_size(x, ATTN_DQ); n++)
        fixture_near("dq", n, x->dq[n], 0.5 * x->d_lse[n / 4] * y->o[n], 60 * U);
    fixture_close(x);
    fixture_close(y);
}

/* q = 0 under ALiBi: weights fall off by exp(-slope) a key, a geometric series. */
TEST_EACH(alibi, 2)
{
    const struct fixture_shape s = {1, 3, 3, 4, 6, 2, 6, "causal(br)", 1, 0, ATTN_BIAS_ALIBI, 0};
    struct fixture *x = fixture_open(&s, 81);
    memset(x->q, 0, sizeof x->q);
    memset(x->v, 0, sizeof x->v);
    for (int h = 0; h < 3; h++)
        for (int j = 0; j < 6; j++)
            x->v[(6 * h + j) * 6 + j] = 1; /* O shows the weights */
    fixture_run(x, width(_i));
    for (int h = 0; h < 3; h++)
        for (int i = 0; i < 4; i++) {
            double r = exp(-x->slope[h]), sum = (1 - pow(r, i + 3)) / (1 - r);
            fixture_near("lse", 4 * h + i, x->lse[4 * h + i], log(sum), 20 * U);
            for (int j = 0; j < 6; j++)
                fixture_near("o", j, x->o[(4 * h + i) * 6 + j],
                             j <= i + 2 ? pow(r, i + 2 - j) / sum : 0, 20 * U);
        }
    fixture_close(x);
}

/* A bias that is broadcast collects the gradients of all cells it stands for. */
TEST_EACH(broadcast_bias_gradient, 2)
{
    const struct fixture_shape s = {2, 2, 2, 3, 5, 2, 2, NULL, 0.5, 0, ATTN_BIAS_TENSOR, 0};
    const int64_t stride[4] = {30, 15, 5, 1};
    for (int axis = 0; axis < 4; axis++) {
        struct fixture *x = fixture_open(&s, 91), *y = fixture_open(&s, 91);
        for (int64_t n = 0; n < 60; n++) /* y: the same values, written out */
            y->bias[n] =
                x->bias[n - n / stride[axis] % (int64_t[]){2, 2, 3, 5}[axis] * stride[axis]];
        x->p.bias.tensor.stride[axis] = 0;
        fixture_run(x, width(_i));
        fixture_run(y, width(_i));
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
    const struct fixture_shape s = {1, 2, 1, 8, 6, 3, 3, NULL, 0.5, 0, ATTN_BIAS_TENSOR, 1};
    struct fixture_shape masked = s;
    masked.mask = "causal(br)"; /* rows 0 and 1 see nothing */
    struct fixture *x = fixture_open(&s, 95), *y = fixture_open(&masked, 95);
    for (int h = 0; h < 2; h++)
        for (int i = 0; i < 8; i++)
            for (int j = 0; j < 6; j++)
                if (j > i - 2)
                    x->bias[(8 * h + i) * 6 + j] = -(double)INFINITY;
    fixture_run(x, width(_i));
    fixture_run(y, width(_i));
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        for (int64_t n = 0; n < fixture_size(x, (enum attn_output)o); n++)
            fixture_near(attn_output_name((enum attn_output)o), n, x->truth.tensor[o].want[n],
                         y->truth.tensor[o].want[n], 30 * U);
    ck_assert(x->lse[1] == -(double)INFINITY && x->dq[3] == 0);
    fixture_close(x);
    fixture_close(y);
}
