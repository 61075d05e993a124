/* Attention by its definition, in GOLDEN_BITS bits (MPFR: correctly rounded exp, log, tanh).
 *
 *      s = softcap(scale q.k) + bias,   p_j = exp(s_j) / sum exp(s),   o = sum p v
 *      lse = ln sum exp(s)
 *      dP = dO.v,  dS = p (dP - sum p dP + dLSE),  dV = sum p dO,  dBias = sum dS,
 *      dq = scale sum dS sech^2(scale q.k / c) k,  dk alike
 * With a sink z the sum and lse have exp(z) too, and dz = -sum exp(z - lse) (sum p dP - dLSE).
 *
 * No maximum is subtracted: MPFR's exponents reach 2^62.
 *
 * The sizes are what a backward-stable double computation may err by in units of u, up to a small
 * factor (the gauge of the BLAS testers, carried through the softmax): with
 *      A_ij = |scale| sum_c |q k| + |bias|,   M_i = max_j A_ij,   a_ij = sum_c |dO v_j|,
 *      t_ij = a_ij + sum_j p a + |dLSE|
 *      o (1+M) sum p|v|      lse 1 + M + |lse|      dbias sum (1+M) p t
 *      dsink sum_i (1+M+|z|) p_z (sum_j p a + |dLSE|)
 *      dq |scale| sum_j (1+M) p t |k|     dk the same over i with |q|     dv sum_i (1+M) p |dO|
 */
#include "tests/golden/golden.h"

#include <math.h>
#include <mpfr.h>
#include <stdlib.h>

/* The results so far, and room for one row: [Lk] each. */
struct row {
    mpfr_t *result[GOLDEN_OUTPUTS];
    mpfr_t *p, *dp, *slope;
    double *a;
    mpfr_t sum, delta, x, y, sink;
    double M;
};

static mpfr_t *numbers(int64_t n)
{
    mpfr_t *x = malloc((size_t)(n + 1) * sizeof *x);
    if (x == NULL)
        abort();
    for (int64_t i = 0; i < n; i++) {
        mpfr_init2(x[i], GOLDEN_BITS);
        mpfr_set_zero(x[i], 1);
    }
    return x;
}

static int64_t bias_at(const struct golden *x, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const int64_t *n = x->bias_axis;
    return ((b % n[0] * n[1] + h % n[1]) * n[2] + i % n[2]) * n[3] + j % n[3];
}

/* r->x = score of the pair; -inf where the bias says so.  r->slope[j] = ds / d raw. */
static void score(const struct golden *x, int64_t b, int64_t h, int64_t i, int64_t j, struct row *r)
{
    int64_t g = h / (x->H / x->G);
    const double *q = x->q + ((b * x->H + h) * x->Lq + i) * x->d;
    const double *k = x->k + ((b * x->G + g) * x->Lk + j) * x->d;
    double A = 0, bias = 0;
    mpfr_set_zero(r->x, 1);
    for (int64_t c = 0; c < x->d; c++) {
        mpfr_set_d(r->y, q[c], MPFR_RNDN);
        mpfr_mul_d(r->y, r->y, k[c], MPFR_RNDN);
        mpfr_add(r->x, r->x, r->y, MPFR_RNDN);
        A += fabs(x->scale * q[c] * k[c]);
    }
    mpfr_mul_d(r->x, r->x, x->scale, MPFR_RNDN);
    mpfr_set_ui(r->slope[j], 1, MPFR_RNDN);
    if (x->softcap > 0) {
        mpfr_div_d(r->x, r->x, x->softcap, MPFR_RNDN);
        mpfr_sech(r->slope[j], r->x, MPFR_RNDN); /* tanh' = sech^2 */
        mpfr_sqr(r->slope[j], r->slope[j], MPFR_RNDN);
        mpfr_tanh(r->x, r->x, MPFR_RNDN);
        mpfr_mul_d(r->x, r->x, x->softcap, MPFR_RNDN);
    }
    if (x->bias != NULL) {
        bias = x->bias[bias_at(x, b, h, i, j)];
        mpfr_add_d(r->x, r->x, bias, MPFR_RNDN);
    } else if (x->has_alibi) { /* -slope |distance|: the product is not rounded */
        mpfr_set_d(r->y, x->slope[h], MPFR_RNDN);
        mpfr_mul_d(r->y, r->y, -fabs((double)(i + x->alibi_offset - j)), MPFR_RNDN);
        mpfr_add(r->x, r->x, r->y, MPFR_RNDN);
        bias = mpfr_get_d(r->y, MPFR_RNDN);
    }
    if (isfinite(bias))
        r->M = fmax(r->M, A + fabs(bias));
}

/* p of the row, its LSE, and O. */
static void forward(struct golden *x, int64_t b, int64_t h, int64_t i, struct row *r)
{
    int64_t at = (b * x->H + h) * x->Lq + i, g = h / (x->H / x->G);
    const unsigned char *visible = x->visible + at * x->Lk;
    mpfr_set_zero(r->sum, 1);
    mpfr_set_zero(r->sink, 1);
    r->M = 0;
    if (x->sink != NULL) {
        mpfr_set_d(r->x, x->sink[h], MPFR_RNDN);
        mpfr_exp(r->sink, r->x, MPFR_RNDN);
        mpfr_set(r->sum, r->sink, MPFR_RNDN);
        r->M = isfinite(x->sink[h]) ? fabs(x->sink[h]) : 0;
    }
    for (int64_t j = 0; j < x->Lk; j++) {
        mpfr_set_zero(r->p[j], 1);
        if (!visible[j])
            continue;
        score(x, b, h, i, j, r);
        mpfr_exp(r->p[j], r->x, MPFR_RNDN); /* exp(-inf) = 0 */
        mpfr_add(r->sum, r->sum, r->p[j], MPFR_RNDN);
    }
    mpfr_log(r->result[GOLDEN_LSE][at], r->sum, MPFR_RNDN); /* ln 0 = -inf */
    if (mpfr_zero_p(r->sum))
        return;
    mpfr_div(r->sink, r->sink, r->sum, MPFR_RNDN);
    x->size[GOLDEN_LSE][at] = 1 + r->M + fabs(mpfr_get_d(r->result[GOLDEN_LSE][at], MPFR_RNDN));
    for (int64_t j = 0; j < x->Lk; j++) {
        const double *v = x->v + ((b * x->G + g) * x->Lk + j) * x->dv;
        mpfr_div(r->p[j], r->p[j], r->sum, MPFR_RNDN);
        double p = mpfr_get_d(r->p[j], MPFR_RNDN);
        for (int64_t c = 0; c < x->dv && !mpfr_zero_p(r->p[j]); c++) {
            mpfr_mul_d(r->y, r->p[j], v[c], MPFR_RNDN);
            mpfr_add(r->result[GOLDEN_O][at * x->dv + c], r->result[GOLDEN_O][at * x->dv + c], r->y,
                     MPFR_RNDN);
            x->size[GOLDEN_O][at * x->dv + c] += (1 + r->M) * p * fabs(v[c]);
        }
    }
}

/* dP of the row, and D = sum p dP - dLSE; returns the size of D. */
static double delta(const struct golden *x, int64_t b, int64_t h, int64_t i, struct row *r)
{
    int64_t at = (b * x->H + h) * x->Lq + i, g = h / (x->H / x->G);
    double mean = x->has_d_lse ? fabs(x->d_lse[at]) : 0;
    mpfr_set_d(r->delta, x->has_d_lse ? -x->d_lse[at] : 0, MPFR_RNDN);
    for (int64_t j = 0; j < x->Lk; j++) {
        const double *v = x->v + ((b * x->G + g) * x->Lk + j) * x->dv;
        mpfr_set_zero(r->dp[j], 1);
        r->a[j] = 0;
        for (int64_t c = 0; c < x->dv && !mpfr_zero_p(r->p[j]); c++) {
            mpfr_set_d(r->y, x->d_o[at * x->dv + c], MPFR_RNDN);
            mpfr_mul_d(r->y, r->y, v[c], MPFR_RNDN);
            mpfr_add(r->dp[j], r->dp[j], r->y, MPFR_RNDN);
            r->a[j] += fabs(x->d_o[at * x->dv + c] * v[c]);
        }
        mpfr_mul(r->y, r->p[j], r->dp[j], MPFR_RNDN);
        mpfr_add(r->delta, r->delta, r->y, MPFR_RNDN);
        mean += mpfr_get_d(r->p[j], MPFR_RNDN) * r->a[j];
    }
    return mean;
}

/* result += weight * value; the size gains |size * value|. */
static void gain(struct golden *x, enum golden_output o, int64_t at, const mpfr_t weight,
                 double value, double size, struct row *r)
{
    mpfr_mul_d(r->y, weight, value, MPFR_RNDN);
    mpfr_add(r->result[o][at], r->result[o][at], r->y, MPFR_RNDN);
    x->size[o][at] += fabs(size * value);
}

static void backward(struct golden *x, int64_t b, int64_t h, int64_t i, struct row *r)
{
    int64_t at = (b * x->H + h) * x->Lq + i, g = h / (x->H / x->G);
    double mean = delta(x, b, h, i, r);
    if (x->sink != NULL) {
        double p = mpfr_get_d(r->sink, MPFR_RNDN);
        mpfr_mul(r->x, r->sink, r->delta, MPFR_RNDN);
        gain(x, GOLDEN_DSINK, h, r->x, -1, (1 + r->M) * p * mean, r);
    }
    for (int64_t j = 0; j < x->Lk; j++) {
        int64_t key = (b * x->G + g) * x->Lk + j;
        if (mpfr_zero_p(r->p[j]))
            continue;
        double p = mpfr_get_d(r->p[j], MPFR_RNDN), size = (1 + r->M) * p * (r->a[j] + mean);
        for (int64_t c = 0; c < x->dv; c++)
            gain(x, GOLDEN_DV, key * x->dv + c, r->p[j], x->d_o[at * x->dv + c], (1 + r->M) * p, r);
        mpfr_sub(r->x, r->dp[j], r->delta, MPFR_RNDN);
        mpfr_mul(r->x, r->x, r->p[j], MPFR_RNDN); /* dS */
        if (x->bias != NULL)
            gain(x, GOLDEN_DBIAS, bias_at(x, b, h, i, j), r->x, 1, size, r);
        mpfr_mul(r->x, r->x, r->slope[j], MPFR_RNDN);
        mpfr_mul_d(r->x, r->x, x->scale, MPFR_RNDN);
        size *= fabs(x->scale);
        for (int64_t c = 0; c < x->d; c++) {
            gain(x, GOLDEN_DQ, at * x->d + c, r->x, x->k[key * x->d + c], size, r);
            gain(x, GOLDEN_DK, key * x->d + c, r->x, x->q[at * x->d + c], size, r);
        }
    }
}

static void split(struct golden *x, struct row *r)
{
    for (int o = 0; o < GOLDEN_OUTPUTS; o++)
        for (int64_t i = 0; i < x->n[o]; i++) {
            x->hi[o][i] = mpfr_get_d(r->result[o][i], MPFR_RNDN);
            if (!isfinite(x->hi[o][i])) /* LSE of a query that sees no key */
                continue;
            mpfr_sub_d(r->result[o][i], r->result[o][i], x->hi[o][i], MPFR_RNDN);
            x->rest[o][i] = mpfr_get_d(r->result[o][i], MPFR_RNDN);
        }
}

void golden_compute(struct golden *x)
{
    int64_t rows = x->B * x->H * x->Lq, keys = x->B * x->G * x->Lk, *n = x->n;
    n[GOLDEN_O] = rows * x->dv;
    n[GOLDEN_LSE] = rows;
    n[GOLDEN_DQ] = rows * x->d;
    n[GOLDEN_DK] = keys * x->d;
    n[GOLDEN_DV] = keys * x->dv;
    n[GOLDEN_DBIAS] = x->bias_axis[0] * x->bias_axis[1] * x->bias_axis[2] * x->bias_axis[3];
    n[GOLDEN_DSINK] = x->sink != NULL ? x->H : 0;
    struct row r = {.p = numbers(x->Lk), .dp = numbers(x->Lk), .slope = numbers(x->Lk)};
    for (int o = 0; o < GOLDEN_OUTPUTS; o++) {
        r.result[o] = numbers(n[o]);
        x->hi[o] = calloc((size_t)(n[o] + 1), sizeof(double));
        x->rest[o] = calloc((size_t)(n[o] + 1), sizeof(double));
        x->size[o] = calloc((size_t)(n[o] + 1), sizeof(double));
    }
    r.a = calloc((size_t)(x->Lk + 1), sizeof *r.a);
    mpfr_inits2(GOLDEN_BITS, r.sum, r.delta, r.x, r.y, r.sink, (mpfr_ptr)0);
    for (int64_t b = 0; b < x->B; b++)
        for (int64_t h = 0; h < x->H; h++)
            for (int64_t i = 0; i < x->Lq; i++) {
                forward(x, b, h, i, &r);
                if (!mpfr_zero_p(r.sum))
                    backward(x, b, h, i, &r);
            }
    split(x, &r);
}
