/* Who judges the judge: the oracle in both widths on problems whose answer can be written down.
 * test_golden.c compares it with arbitrary precision; here is what that cannot show: long sums, the
 * last place, exact zeros, and what is hidden. */
#include "tests/suites.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ref/mask/mask.h"
#include "ref/textbook.h"
#include "tests/harness/bound/bound.h"
#include "tests/harness/fill.h"

SUITE(oracle, .seconds = 60);

static const double U = 0x1p-53; /* of double */

/* ---- small problems in plain arrays of double ------------------------------------------------ */

/* Every value is drawn so that f32 holds it exactly: one problem can be stored either way, and
 * judged by the double and by the long double oracle alike.  Tests may overwrite values before they
 * run it. */
enum { LAB_MOST = 8192 }; /* elements of a tensor */

struct fixture_shape {
    int64_t b, h, g, q, k, d, dv;
    const char *mask;
    double scale, softcap;
    enum attn_bias_kind bias;
    int d_lse;
};

struct fixture {
    struct attn_problem p;
    struct attn_mask *mask;
    int has_d_lse;
    double q[LAB_MOST], k[LAB_MOST], v[LAB_MOST], d_o[LAB_MOST], d_lse[LAB_MOST], bias[LAB_MOST];
    struct attn_truth truth;
    double *o, *lse, *dq, *dk, *dv, *d_bias; /* of the truth; d_bias NULL without a bias tensor */
};

static void fill(double *x, int64_t n, uint64_t seed, uint64_t stream)
{
    ck_assert_int_le(n, LAB_MOST);
    for (int64_t i = 0; i < n; i++)
        x[i] = (double)(float)attn_hash_normal(seed, stream, (uint64_t)i);
}

/* Near-normal values by seed; a bias tensor is full.  To be closed. */
static struct fixture *fixture_open(const struct fixture_shape *s, uint64_t seed)
{
    struct fixture *x = calloc(1, sizeof *x);
    ck_assert_ptr_nonnull(x);
    struct attn_mask_shape shape = {s->b, s->h, s->q, s->k};
    struct attn_error err = {0};
    if (s->mask != NULL)
        ck_assert_msg(attn_mask_parse(s->mask, &shape, NULL, &x->mask, &err) == ATTN_OK, "%s",
                      err.text);
    x->p = (struct attn_problem){.batch = s->b,
                                 .heads = s->h,
                                 .kv_heads = s->g,
                                 .n_query = s->q,
                                 .n_key = s->k,
                                 .d_key = s->d,
                                 .d_value = s->dv,
                                 .scale = s->scale,
                                 .softcap = s->softcap,
                                 .mask = x->mask};
    x->has_d_lse = s->d_lse;
    fill(x->q, s->b * s->h * s->q * s->d, seed, 1);
    fill(x->k, s->b * s->g * s->k * s->d, seed, 2);
    fill(x->v, s->b * s->g * s->k * s->dv, seed, 3);
    fill(x->d_o, s->b * s->h * s->q * s->dv, seed, 4);
    fill(x->d_lse, s->b * s->h * s->q, seed, 5);
    fill(x->bias, s->b * s->h * s->q * s->k, seed, 6);
    x->p.bias.kind = s->bias;
    x->p.bias.tensor =
        (struct attn_cview){x->bias, ATTN_F64, {s->h * s->q * s->k, s->q * s->k, s->k, 1}};
    return x;
}

/* A contiguous [., heads, rows, width]; as f32 a copy in *copy. */
static struct attn_cview view(const double *x, enum attn_dtype dtype, int64_t heads, int64_t rows,
                              int64_t width, float **copy)
{
    struct attn_cview v = {x, ATTN_F64, {heads * rows * width, rows * width, width, 1}};
    if (dtype == ATTN_F32) {
        *copy = malloc(LAB_MOST * sizeof **copy);
        ck_assert_ptr_nonnull(*copy);
        for (int64_t i = 0; i < LAB_MOST; i++)
            (*copy)[i] = (float)x[i];
        v.data = *copy;
        v.dtype = ATTN_F32;
    }
    return v;
}

/* The oracle's answer, forward and backward, for values stored as dtype (f32 rounds them). */
static void fixture_run(struct fixture *x, enum attn_dtype dtype)
{
    struct attn_problem *p = &x->p;
    struct attn_precision precision;
    struct attn_options options = {.threads = 1};
    struct attn_sample all = {-1, -1, NULL, NULL};
    struct attn_error err = {0};
    float *copy[5] = {NULL};
    attn_truth_free(&x->truth);
    p->dtype = dtype;
    ck_assert_msg(attn_problem_check(p, &err) == ATTN_OK, "%s", err.text);
    struct attn_inputs in = {.q = view(x->q, dtype, p->heads, p->n_query, p->d_key, &copy[0]),
                             .k = view(x->k, dtype, p->kv_heads, p->n_key, p->d_key, &copy[1]),
                             .v = view(x->v, dtype, p->kv_heads, p->n_key, p->d_value, &copy[2]),
                             .d_o = view(x->d_o, dtype, p->heads, p->n_query, p->d_value, &copy[3]),
                             .want_d_bias = p->bias.kind == ATTN_BIAS_TENSOR};
    if (x->has_d_lse)
        in.d_lse = view(x->d_lse, dtype, p->heads, p->n_query, 1, &copy[4]);
    attn_precision_of(&attn_impl_dense, &options, p, &precision);
    ck_assert_msg(attn_truth_compute(p, &in, &precision, &all, &x->truth, &err) == ATTN_OK, "%s",
                  err.text);
    for (int c = 0; c < 5; c++)
        free(copy[c]);
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
    attn_mask_free(x->mask);
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
