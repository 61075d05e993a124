/* See leak.h. */
#include "optimized/leak.h"

#include <math.h>
#include <string.h>

#include "optimized/integers.h"
#include "ref/problem.h"

enum { FEATURES = 64 }; /* of a row at a time */

/* ---- finding ------------------------------------------------------------------------------ */

/* n numbers, step apart: are the bits of any, its sign aside, more than `top`?  Those of a NaN are
 * more than those of infinity, which are more than those of all finite numbers. */
#define DEFINE_ANY_ABOVE(BITS)                                                                 \
    static int any_above_##BITS(const char *data, int64_t n, int64_t step, uint##BITS##_t top) \
    {                                                                                          \
        int any = 0;                                                                           \
        for (int64_t c = 0; c < n; c++) {                                                      \
            uint##BITS##_t x;                                                                  \
            memcpy(&x, data + c * step * (BITS / 8), sizeof x);                                \
            any |= (uint##BITS##_t)(x << 1) > (uint##BITS##_t)(top << 1 | 1);                  \
        }                                                                                      \
        return any;                                                                            \
    }
DEFINE_ANY_ABOVE(16)
DEFINE_ANY_ABOVE(32)
DEFINE_ANY_ABOVE(64)

enum what { NOT_FINITE, NOT_A_NUMBER };

static int row_has(enum what what, const struct attn_cview *x, int64_t b, int64_t h, int64_t i,
                   int64_t n)
{
    const char *row = (const char *)x->data +
                      attn_offset(x->stride, b, h, i) * (int64_t)attn_dtype_size(x->dtype);
    uint16_t less = what == NOT_FINITE;
    switch (x->dtype) {
    case ATTN_F64:
        return any_above_64(row, n, x->stride[3], (UINT64_C(0x7ff) << 52) - less);
    case ATTN_F32:
        return any_above_32(row, n, x->stride[3], UINT32_C(0x7f800000) - less);
    case ATTN_BF16:
        return any_above_16(row, n, x->stride[3], (uint16_t)(0x7f80 - less));
    default:
        return any_above_16(row, n, x->stride[3], (uint16_t)(0x7c00 - less));
    }
}

/* The results that are mended. */
enum result { O, DQ, DK, DV };

static int is_of_keys(enum result y)
{
    return y == DK || y == DV;
}

/* The problem and the tensors that both passes read. */
struct pass {
    const struct attn_problem *p;
    const struct attn_kernels *kernels;
    struct attn_cview q, k, v, o, lse, d_o, d_lse;
};

static int64_t group_of(const struct attn_problem *p)
{
    return p->heads / p->kv_heads;
}

static int key_is_odd(const struct pass *x, int64_t b, int64_t g, int64_t j)
{
    return row_has(NOT_FINITE, &x->k, b, g, j, x->p->d_key) ||
           row_has(NOT_FINITE, &x->v, b, g, j, x->p->d_value);
}

static int query_is_odd(const struct pass *x, int64_t b, int64_t h, int64_t i)
{
    return row_has(NOT_FINITE, &x->q, b, h, i, x->p->d_key) ||
           (x->d_o.data != NULL && row_has(NOT_FINITE, &x->d_o, b, h, i, x->p->d_value));
}

static int is_seen(const struct attn_problem *p, int64_t b, int64_t g, int64_t j)
{
    for (int64_t h = g * group_of(p); h < (g + 1) * group_of(p); h++)
        for (int64_t i = 0; i < p->n_query; i++)
            if (attn_problem_allows(p, b, h, i, j))
                return 1;
    return 0;
}

/* Is there a key hidden from query i such that a product of the two is not finite?  Keys that no
 * query sees are not read. */
static int query_can_leak(const struct pass *x, int64_t b, int64_t h, int64_t i)
{
    int64_t g = h / group_of(x->p);
    int odd = query_is_odd(x, b, h, i) &&
              attn_cview_get(&x->lse, b, h, i, 0) != -(double)INFINITY; /* else it is not read */
    for (int64_t j = 0; j < x->p->n_key; j++)
        if (!attn_problem_allows(x->p, b, h, i, j) && (odd || key_is_odd(x, b, g, j)) &&
            is_seen(x->p, b, g, j))
            return 1;
    return 0;
}

/* The same of key j and the queries that do not see it, but see another, perhaps of another rank's:
 * they have an LSE. */
static int key_can_leak(const struct pass *x, int64_t b, int64_t g, int64_t j)
{
    int odd = key_is_odd(x, b, g, j) && is_seen(x->p, b, g, j); /* else it is not read */
    for (int64_t h = g * group_of(x->p); h < (g + 1) * group_of(x->p); h++)
        for (int64_t i = 0; i < x->p->n_query; i++)
            if (!attn_problem_allows(x->p, b, h, i, j) && (odd || query_is_odd(x, b, h, i)) &&
                attn_cview_get(&x->lse, b, h, i, 0) != -(double)INFINITY)
                return 1;
    return 0;
}

/* ---- mending ------------------------------------------------------------------------------ */

/* A row of a tensor. */
struct at {
    int64_t b, h, i;
};

static double dot(const struct attn_cview *x, struct at a, const struct attn_cview *y, struct at b,
                  int64_t n)
{
    double sum = 0;
    for (int64_t c = 0; c < n; c++)
        sum += attn_cview_get(x, a.b, a.h, a.i, c) * attn_cview_get(y, b.b, b.h, b.i, c);
    return sum;
}

static struct at query_of(struct attn_pair_at at)
{
    return (struct at){at.b, at.h, at.i};
}

static struct at key_of(const struct pass *x, struct attn_pair_at at)
{
    return (struct at){at.b, at.h / group_of(x->p), at.j};
}

/* The score of a visible pair, and its slope under a softcap. */
static double score(const struct pass *x, struct attn_pair_at at, double *slope)
{
    const struct attn_problem *p = x->p;
    double bias = attn_problem_bias(p, at.b, at.h, at.i, at.j);
    *slope = 1;
    if (bias == -(double)INFINITY)
        return bias; /* hidden, whatever is in q and k */
    double s = p->scale * dot(&x->q, query_of(at), &x->k, key_of(x, at), p->d_key);
    if (p->softcap > 0) {
        double t = tanh(s / p->softcap);
        s = p->softcap * t;
        *slope = (1 - t) * (1 + t);
    }
    return s + bias;
}

/* The greatest score of a row; -inf where it sees no key. */
static double greatest(const struct pass *x, struct at at)
{
    double m = -(double)INFINITY, slope;
    struct attn_run run = {0, 0};
    while (attn_problem_next(x->p, at.b, at.h, at.i, &run))
        for (int64_t j = run.lo; j < run.hi; j++)
            m = fmax(m, score(x, (struct attn_pair_at){at.b, at.h, at.i, j}, &slope));
    return m;
}

/* P_ij from the LSE of the forward pass, and dS_ij with respect to the raw score, from
 * D_i = dO_i . O_i - dLSE_i.  Both are 0 in a row that sees no key. */
static void gradient(const struct pass *x, struct attn_pair_at at, double *P, double *dS)
{
    const struct attn_problem *p = x->p;
    double lse = attn_cview_get(&x->lse, at.b, at.h, at.i, 0), slope;
    double s = score(x, at, &slope);
    *P = *dS = 0;
    if (lse == -(double)INFINITY || s == -(double)INFINITY)
        return;
    double D = dot(&x->d_o, query_of(at), &x->o, query_of(at), p->d_value);
    if (x->d_lse.data != NULL)
        D -= attn_cview_get(&x->d_lse, at.b, at.h, at.i, 0);
    *P = exp(s - lse);
    *dS = *P * (dot(&x->d_o, query_of(at), &x->v, key_of(x, at), p->d_value) - D) * slope;
}

/* The weight of a visible pair in a result; m: the largest score of query i, for O. */
static double weight_of(const struct pass *x, enum result y, struct attn_pair_at at, double m)
{
    double P, dS, slope;
    if (y == O) {
        double s = score(x, at, &slope);
        return s == -(double)INFINITY ? 0 : exp(s - m);
    }
    gradient(x, at, &P, &dS);
    return y == DV ? P : dS;
}

static int all_nan(const double *sum, int64_t n)
{
    int64_t c = 0;
    while (c < n && isnan(sum[c]))
        c++;
    return c == n;
}

/* Features [c0, c0 + n) of a row, from the rows that its visible pairs join it with:
 *
 *      o_i  = sum_j exp(S_ij - m) v_j / l     dq_i = scale sum_j dS_ij k_j
 *      dv_j = sum_i P_ij dO_i                 dk_j = scale sum_i dS_ij q_i
 *
 * row.h: a query head, or a kv head, whose queries are those of its group. */
static void sum_pairs(const struct pass *x, enum result y, struct at row, int64_t c0, int64_t n,
                      double sum[FEATURES])
{
    const struct attn_problem *p = x->p;
    const struct attn_cview *other = y == O ? &x->v : y == DQ ? &x->k : y == DK ? &x->q : &x->d_o;
    int keys = is_of_keys(y);
    int64_t group = group_of(p), h0 = keys ? row.h * group : row.h, h1 = h0 + (keys ? group : 1);
    double m = y == O ? greatest(x, row) : 0, l = 0;
    for (int64_t h = h0; h < h1; h++)
        for (int64_t at = 0; at < (keys ? p->n_query : p->n_key) && !all_nan(sum, n); at++) {
            struct attn_pair_at pair = {row.b, h, keys ? at : row.i, keys ? row.i : at};
            double weight = 0;
            if (attn_problem_allows(p, pair.b, h, pair.i, pair.j))
                weight = weight_of(x, y, pair, m);
            l += weight;
            for (int64_t c = 0; c < n && weight != 0; c++)
                sum[c] += weight * attn_cview_get(other, row.b, keys ? h : h / group, at, c0 + c);
        }
    for (int64_t c = 0; c < n; c++)
        sum[c] *= y == O ? (l > 0 ? 1 / l : 0) : y == DV ? 1 : p->scale;
}

/* A row of a query whose LSE is NaN is NaN by its own scores. */
static void mend(const struct pass *x, enum result y, const struct attn_view *to, int64_t width,
                 struct at row)
{
    if (!is_of_keys(y) && isnan(attn_cview_get(&x->lse, row.b, row.h, row.i, 0)))
        return;
    for (int64_t c0 = 0; c0 < width; c0 += FEATURES) {
        double sum[FEATURES] = {0};
        int64_t n = less(width - c0, FEATURES);
        sum_pairs(x, y, row, c0, n, sum);
        for (int64_t c = 0; c < n; c++)
            attn_view_set(to, row.b, row.h, row.i, c0 + c, sum[c]);
    }
}

/* ---- both passes -------------------------------------------------------------------------- */

/* Results are read in blocks of rows, because nearly always there is nothing to mend. */
enum { BLOCK = 64 };

static int block_has_nan(const struct pass *x, struct attn_tensor_rows rows)
{
    const struct attn_cview *y = rows.x;
    int64_t size = (int64_t)attn_dtype_size(y->dtype);
    const char *first =
        (const char *)y->data + attn_offset(y->stride, rows.b, rows.h, rows.i0) * size;
    if (y->stride[3] == 1 && y->stride[2] == rows.n) /* one stretch of memory */
        return x->kernels->has_nan(y->dtype, first, (rows.i1 - rows.i0) * rows.n);
    for (int64_t i = rows.i0; i < rows.i1; i++)
        if (row_has(NOT_A_NUMBER, y, rows.b, rows.h, i, rows.n))
            return 1;
    return 0;
}

/* Every block of rows of a result, by all threads of a team. */
static void mend_all(const struct pass *x, enum result y, const struct attn_view *to)
{
    const struct attn_problem *p = x->p;
    const struct attn_cview was = attn_view_const(to);
    int keys = is_of_keys(y);
    int64_t heads = keys ? p->kv_heads : p->heads, rows = keys ? p->n_key : p->n_query;
    int64_t width = y == O || y == DV ? p->d_value : p->d_key, blocks = ceil_div(rows, BLOCK);
#pragma omp for schedule(static)
    for (int64_t n = 0; n < p->batch * heads * blocks; n++) {
        int64_t b = n / blocks / heads, head = n / blocks % heads;
        int64_t first = n % blocks * BLOCK, end = less(first + BLOCK, rows);
        if (!block_has_nan(x, (struct attn_tensor_rows){&was, b, head, first, end, width}))
            continue;
        for (int64_t row = first; row < end; row++)
            if (row_has(NOT_A_NUMBER, &was, b, head, row, width) &&
                (keys ? key_can_leak(x, b, head, row) : query_can_leak(x, b, head, row)))
                mend(x, y, to, width, (struct at){b, head, row});
    }
}

void attn_leak_mend_forward(const struct attn_problem *p, const struct attn_forward *t,
                            const struct attn_kernels *kernels, int threads)
{
    const struct pass x = {.p = p,
                           .kernels = kernels,
                           .q = t->q,
                           .k = t->k,
                           .v = t->v,
                           .lse = attn_view_const(&t->lse)};
#pragma omp parallel num_threads(threads) if (threads > 1)
    mend_all(&x, O, &t->o);
}

void attn_leak_mend_backward(const struct attn_problem *p, const struct attn_backward *t,
                             const struct attn_kernels *kernels, int threads)
{
    const struct pass x = {p, kernels, t->q, t->k, t->v, t->o, t->lse, t->d_o, t->d_lse};
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        mend_all(&x, DQ, &t->dq);
        mend_all(&x, DK, &t->dk);
        mend_all(&x, DV, &t->dv);
    }
}
