/* See dense_gsl.h. */
#include "tests/dense_gsl.h"

#include <gsl/gsl_blas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The matrices of one head, and of the kv head that it reads. */
struct head {
    const struct attn_problem *p;
    gsl_matrix *Q, *K, *V, *dO, *abs_Q, *abs_K, *abs_V, *abs_dO;
    gsl_matrix *S, *A, *P, *slope, *dS, *size_dS, *size_P; /* [Lq,Lk] */
    gsl_vector *d_lse, *row_size;                          /* [Lq] */
};

static gsl_matrix *load(const double *x, int64_t rows, int64_t columns)
{
    gsl_matrix *m = gsl_matrix_alloc((size_t)rows, (size_t)columns);
    memcpy(m->data, x, (size_t)(rows * columns) * sizeof *x);
    return m;
}

static gsl_matrix *absolute(const gsl_matrix *x)
{
    gsl_matrix *m = gsl_matrix_alloc(x->size1, x->size2);
    for (size_t n = 0; n < x->size1 * x->size2; n++)
        m->data[n] = fabs(x->data[n]);
    return m;
}

static void open_head(const struct fixture *x, int64_t b, int64_t h, struct head *m)
{
    const struct attn_problem *p = m->p = &x->p;
    size_t q = (size_t)p->n_query, k = (size_t)p->n_key;
    int64_t at = b * p->heads + h, kv = b * p->kv_heads + h / (p->heads / p->kv_heads);
    m->Q = load(x->q + at * p->n_query * p->d_key, p->n_query, p->d_key);
    m->dO = load(x->d_o + at * p->n_query * p->d_value, p->n_query, p->d_value);
    m->K = load(x->k + kv * p->n_key * p->d_key, p->n_key, p->d_key);
    m->V = load(x->v + kv * p->n_key * p->d_value, p->n_key, p->d_value);
    m->abs_Q = absolute(m->Q), m->abs_K = absolute(m->K);
    m->abs_V = absolute(m->V), m->abs_dO = absolute(m->dO);
    gsl_matrix **const square[] = {&m->S, &m->A, &m->P, &m->slope, &m->dS, &m->size_dS, &m->size_P};
    for (size_t n = 0; n < sizeof square / sizeof *square; n++)
        *square[n] = gsl_matrix_calloc(q, k);
    m->d_lse = gsl_vector_calloc(q);
    m->row_size = gsl_vector_calloc(q);
    for (size_t i = 0; i < q && x->has_d_lse; i++)
        gsl_vector_set(m->d_lse, i, x->d_lse[(size_t)at * q + i]);
}

static void close_head(struct head *m)
{
    gsl_matrix *const all[] = {m->Q,     m->K,     m->V,      m->dO,      m->abs_Q,
                               m->abs_K, m->abs_V, m->abs_dO, m->S,       m->A,
                               m->P,     m->slope, m->dS,     m->size_dS, m->size_P};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        gsl_matrix_free(all[n]);
    gsl_vector_free(m->d_lse);
    gsl_vector_free(m->row_size);
}

static double bias_of(const struct fixture *x, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const struct attn_problem *p = &x->p;
    if (p->bias.kind == ATTN_BIAS_TENSOR)
        return x->bias[((b * p->heads + h) * p->n_query + i) * p->n_key + j];
    if (p->bias.kind == ATTN_BIAS_ALIBI)
        return -x->slope[h] * (double)llabs(i + p->n_key - p->n_query - j);
    return 0;
}

/* S = softcap(scale Q K^T) + bias, its slope, and the size of a row's scores. */
static void scores(const struct fixture *x, int64_t b, int64_t h, dense_gsl_sees *sees,
                   struct head *m)
{
    const struct attn_problem *p = m->p;
    double c = p->softcap;
    gsl_blas_dgemm(CblasNoTrans, CblasTrans, p->scale, m->Q, m->K, 0, m->S);
    gsl_blas_dgemm(CblasNoTrans, CblasTrans, fabs(p->scale), m->abs_Q, m->abs_K, 0, m->A);
    for (size_t i = 0; i < m->S->size1; i++) {
        double most = 0;
        for (size_t j = 0; j < m->S->size2; j++) {
            double s = gsl_matrix_get(m->S, i, j), t = c > 0 ? tanh(s / c) : 0;
            double add = bias_of(x, b, h, (int64_t)i, (int64_t)j);
            int visible = sees(p, (int64_t)i, (int64_t)j);
            gsl_matrix_set(m->slope, i, j, 1 - t * t);
            gsl_matrix_set(m->S, i, j, visible ? (c > 0 ? c * t : s) + add : -HUGE_VAL);
            if (visible)
                most = fmax(most, gsl_matrix_get(m->A, i, j) + fabs(add));
        }
        gsl_vector_set(m->row_size, i, 1 + most);
    }
}

/* P = softmax(S) by rows; returns LSE of the row. */
static double softmax(struct head *m, size_t i)
{
    double max = -HUGE_VAL, sum = 0;
    for (size_t j = 0; j < m->S->size2; j++)
        max = fmax(max, gsl_matrix_get(m->S, i, j));
    for (size_t j = 0; j < m->S->size2 && max > -HUGE_VAL; j++)
        sum += exp(gsl_matrix_get(m->S, i, j) - max);
    for (size_t j = 0; j < m->S->size2; j++) {
        double P = sum > 0 ? exp(gsl_matrix_get(m->S, i, j) - max) / sum : 0;
        gsl_matrix_set(m->P, i, j, P);
        gsl_matrix_set(m->size_P, i, j, P * gsl_vector_get(m->row_size, i));
    }
    return sum > 0 ? max + log(sum) : -HUGE_VAL;
}

/* dP = dO V^T (into S), dS = P (dP - sum P dP + dLSE). */
static void d_scores(struct head *m)
{
    gsl_blas_dgemm(CblasNoTrans, CblasTrans, 1, m->dO, m->V, 0, m->S);
    gsl_blas_dgemm(CblasNoTrans, CblasTrans, 1, m->abs_dO, m->abs_V, 0, m->A);
    for (size_t i = 0; i < m->S->size1; i++) {
        double g = gsl_vector_get(m->d_lse, i), mean = 0, size = fabs(g);
        for (size_t j = 0; j < m->S->size2; j++) {
            mean += gsl_matrix_get(m->P, i, j) * gsl_matrix_get(m->S, i, j);
            size += gsl_matrix_get(m->P, i, j) * gsl_matrix_get(m->A, i, j);
        }
        for (size_t j = 0; j < m->S->size2; j++) {
            double P = gsl_matrix_get(m->P, i, j), A = gsl_matrix_get(m->A, i, j);
            gsl_matrix_set(m->dS, i, j, P * (gsl_matrix_get(m->S, i, j) - mean + g));
            gsl_matrix_set(m->size_dS, i, j, gsl_matrix_get(m->size_P, i, j) * (A + size));
        }
    }
}

/* to[rows,columns] += a * op(X) Y. */
static void product(double *to, int64_t rows, int64_t columns, CBLAS_TRANSPOSE_t op, double a,
                    const gsl_matrix *X, const gsl_matrix *Y)
{
    gsl_matrix_view view = gsl_matrix_view_array(to, (size_t)rows, (size_t)columns);
    gsl_blas_dgemm(op, CblasNoTrans, a, X, Y, 1, &view.matrix);
}

static void outputs(const struct head *m, int64_t at, int64_t kv, struct dense_gsl *out)
{
    const struct attn_problem *p = m->p;
    int64_t q = p->n_query, k = p->n_key, d = p->d_key, dv = p->d_value;
    double scale = p->scale;
    product(out->value[ATTN_O] + at * q * dv, q, dv, CblasNoTrans, 1, m->P, m->V);
    product(out->size[ATTN_O] + at * q * dv, q, dv, CblasNoTrans, 1, m->size_P, m->abs_V);
    product(out->value[ATTN_DV] + kv * k * dv, k, dv, CblasTrans, 1, m->P, m->dO);
    product(out->size[ATTN_DV] + kv * k * dv, k, dv, CblasTrans, 1, m->size_P, m->abs_dO);
    memcpy(out->value[ATTN_DBIAS] + at * q * k, m->dS->data, (size_t)(q * k) * sizeof(double));
    memcpy(out->size[ATTN_DBIAS] + at * q * k, m->size_dS->data, (size_t)(q * k) * sizeof(double));
    gsl_matrix_mul_elements(m->dS, m->slope); /* from here on with respect to the raw score */
    product(out->value[ATTN_DQ] + at * q * d, q, d, CblasNoTrans, scale, m->dS, m->K);
    product(out->size[ATTN_DQ] + at * q * d, q, d, CblasNoTrans, fabs(scale), m->size_dS, m->abs_K);
    product(out->value[ATTN_DK] + kv * k * d, k, d, CblasTrans, scale, m->dS, m->Q);
    product(out->size[ATTN_DK] + kv * k * d, k, d, CblasTrans, fabs(scale), m->size_dS, m->abs_Q);
}

void dense_gsl_run(const struct fixture *x, dense_gsl_sees *sees, struct dense_gsl *out)
{
    const struct attn_problem *p = &x->p;
    memset(out, 0, sizeof *out);
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->heads; h++) {
            struct head m;
            int64_t at = b * p->heads + h, kv = b * p->kv_heads + h / (p->heads / p->kv_heads);
            open_head(x, b, h, &m);
            scores(x, b, h, sees, &m);
            for (size_t i = 0; i < m.S->size1; i++) {
                double lse = softmax(&m, i);
                out->value[ATTN_LSE][at * p->n_query + (int64_t)i] = lse;
                out->size[ATTN_LSE][at * p->n_query + (int64_t)i] =
                    lse > -HUGE_VAL ? gsl_vector_get(m.row_size, i) + fabs(lse) : 0;
            }
            d_scores(&m);
            outputs(&m, at, kv, out);
            close_head(&m);
        }
}
