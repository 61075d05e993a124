/* Functions by which implementations ask a problem.  Indices are the problem's own: the origin
 * (attn.h) is added here, so that a shard's code reads like a whole problem's. */
#ifndef REF_PROBLEM_H
#define REF_PROBLEM_H

#include <math.h>

#include "ref/impl.h"
#include "ref/mask/mask.h"

static inline int64_t attn_whole_batch(const struct attn_problem *p, int64_t b)
{
    return p->origin.batch + (p->origin.one_batch ? 0 : b);
}

static inline int64_t attn_whole_token(const struct attn_positions *at, int64_t b, int64_t i)
{
    return at->first + (1 + at->skip) * i + at->by_batch * b;
}

/* The n tokens of batch b in the whole. */
static inline struct attn_tokens attn_whole_tokens(const struct attn_positions *at, int64_t b,
                                                   int64_t n)
{
    return (struct attn_tokens){attn_whole_token(at, b, 0), 1 + at->skip, n};
}

static inline int64_t attn_whole_query(const struct attn_problem *p, int64_t b, int64_t i)
{
    return attn_whole_token(&p->origin.query, b, i);
}

static inline int64_t attn_whole_key(const struct attn_problem *p, int64_t b, int64_t j)
{
    return attn_whole_token(&p->origin.key, b, j);
}

/* Returns 1 if the problem is not a piece of a larger one. */
int attn_problem_is_whole(const struct attn_problem *p);

/* Returns 1 if two batches of the problem may have different masks. */
int attn_problem_varies_by_batch(const struct attn_problem *p);

static inline int attn_problem_allows(const struct attn_problem *p, int64_t b, int64_t h, int64_t i,
                                      int64_t j)
{
    return attn_mask_allows(p->mask, attn_whole_batch(p, b), p->origin.head + h,
                            attn_whole_query(p, b, i), attn_whole_key(p, b, j));
}

/* A run of the whole, in the problem's own keys. */
static inline struct attn_run attn_own_run(const struct attn_problem *p, int64_t b,
                                           struct attn_run whole)
{
    const struct attn_tokens keys = attn_whole_tokens(&p->origin.key, b, p->n_key);
    return (struct attn_run){attn_tokens_below(&keys, whole.lo),
                             attn_tokens_below(&keys, whole.hi)};
}

/* attn_mask_next, cut to the problem's own keys.  A run of the whole may lie between two keys of a
 * piece: then the next one is asked for. */
static inline int attn_problem_next(const struct attn_problem *p, int64_t b, int64_t h, int64_t i,
                                    struct attn_run *run)
{
    if (p->mask == NULL) {
        *run = (struct attn_run){run->hi, p->n_key};
        return run->lo < p->n_key;
    }
    while (run->hi < p->n_key) {
        struct attn_run whole = {0, attn_whole_key(p, b, run->hi)};
        if (!attn_mask_next(p->mask, attn_whole_batch(p, b), p->origin.head + h,
                            attn_whole_query(p, b, i), &whole))
            return 0;
        *run = attn_own_run(p, b, whole);
        if (run->lo < run->hi)
            return 1;
    }
    return 0;
}

/* attn_mask_span, cut to the problem's own keys. */
static inline int attn_problem_span(const struct attn_problem *p, int64_t b, int64_t h, int64_t i,
                                    struct attn_run *run)
{
    if (!attn_mask_span(p->mask, attn_whole_batch(p, b), p->origin.head + h,
                        attn_whole_query(p, b, i), run))
        return 0;
    *run = attn_own_run(p, b, *run);
    return 1;
}

/* attn_mask_tile of the smallest tile of the whole that holds these pairs: where tokens are
 * skipped, the answer may be PARTIAL for a tile that is EMPTY or FULL. */
static inline enum attn_tile attn_problem_tile(const struct attn_problem *p, struct attn_tile_at at)
{
    if (at.i0 >= at.i1 || at.j0 >= at.j1)
        return ATTN_TILE_EMPTY;
    return attn_mask_tile(
        p->mask, (struct attn_tile_at){
                     attn_whole_batch(p, at.b), p->origin.head + at.h,
                     attn_whole_query(p, at.b, at.i0), attn_whole_query(p, at.b, at.i1 - 1) + 1,
                     attn_whole_key(p, at.b, at.j0), attn_whole_key(p, at.b, at.j1 - 1) + 1});
}

/* attn_mask_band in the problem's own indices, cut to those that it has: with equal extents and
 * bounds, the same pairs are visible.  0 where queries and keys have different steps. */
int attn_problem_band(const struct attn_problem *p, int64_t b, int64_t *least, int64_t *most);

/* Visible pairs of one (batch, head); *counted as in attn_mask_count. */
int64_t attn_problem_pairs(const struct attn_problem *p, int64_t b, int64_t h, int *counted);

/* Visible pairs of all batches and heads. */
int64_t attn_problem_all_pairs(const struct attn_problem *p, int *counted);

/* Flops of a pass over `pairs` pairs: QK^T and PV; backward QK^T, dO V^T, dS K, dS^T Q and P^T
 * dO. */
static inline double attn_pass_flops(const struct attn_problem *p, enum attn_pass pass,
                                     double pairs)
{
    double d = (double)p->d_key, dv = (double)p->d_value;
    return 2 * pairs * (pass == ATTN_FORWARD ? d + dv : 3 * d + 2 * dv);
}

/* The same for the visible pairs: their number becomes cost->pairs, and cost->counted is set as
 * above. */
static inline double attn_problem_flops(const struct attn_problem *p, enum attn_pass pass,
                                        struct attn_cost *cost)
{
    cost->pairs = (double)attn_problem_all_pairs(p, &cost->counted);
    return attn_pass_flops(p, pass, cost->pairs);
}

/* Bytes of the inputs and outputs of a pass, without those that are optional: q k v o lse, in the
 * backward dO dQ dK dV too. */
double attn_pass_bytes(const struct attn_problem *p, enum attn_pass pass);

/* The bias of one pair, in double. */
double attn_problem_bias(const struct attn_problem *p, int64_t b, int64_t h, int64_t i, int64_t j);

/* Returns 1 if some key has weight in this row: it is visible, and its bias is not -inf. */
int attn_problem_sees(const struct attn_problem *p, int64_t b, int64_t h, int64_t i);

/* a * b, or -1 when a factor is negative or the product exceeds int64. */
int64_t attn_product(int64_t a, int64_t b);

/* The type in which LSE and its gradient are stored. */
static inline enum attn_dtype attn_lse_dtype(const struct attn_problem *p)
{
    return p->dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
}

/* The type in which o, dq, dk and dv are stored. */
static inline enum attn_dtype attn_result_dtype(const struct attn_problem *p)
{
    return p->wide && p->dtype != ATTN_F64 ? ATTN_F32 : p->dtype;
}

static inline struct attn_cview attn_view_const(const struct attn_view *view)
{
    const int64_t *s = view->stride;
    return (struct attn_cview){view->data, view->dtype, {s[0], s[1], s[2], s[3]}};
}

/* A view of an input, for lists of inputs and outputs: its data is not to be written to. */
static inline struct attn_view attn_view_input(const struct attn_cview *view)
{
    const int64_t *s = view->stride;
    return (struct attn_view){(void *)(uintptr_t)view->data, view->dtype, {s[0], s[1], s[2], s[3]}};
}

/* A contiguous [., heads, tokens, width] at data. */
static inline struct attn_cview attn_packed_cview(const void *data, enum attn_dtype dtype,
                                                  int64_t heads, int64_t tokens, int64_t width)
{
    return (struct attn_cview){data, dtype, {heads * tokens * width, tokens * width, width, 1}};
}

static inline struct attn_view attn_packed_view(void *data, enum attn_dtype dtype, int64_t heads,
                                                int64_t tokens, int64_t width)
{
    return (struct attn_view){data, dtype, {heads * tokens * width, tokens * width, width, 1}};
}

/* Offset, in elements, of [b,h,i,0] in a view. */
static inline int64_t attn_offset(const int64_t stride[4], int64_t b, int64_t h, int64_t i)
{
    return b * stride[0] + h * stride[1] + i * stride[2];
}

/* One element of any view, as double; set rounds it to the view's type, to nearest.  For oracles
 * and tests; kernels read and write their own type. */
double attn_cview_get(const struct attn_cview *view, int64_t b, int64_t h, int64_t i, int64_t c);
double attn_view_get(const struct attn_view *view, int64_t b, int64_t h, int64_t i, int64_t c);
void attn_view_set(const struct attn_view *view, int64_t b, int64_t h, int64_t i, int64_t c,
                   double x);

/* n elements of a row, from at[] on. */
void attn_cview_row(const struct attn_cview *view, const int64_t at[4], int64_t n, double *x);
void attn_view_set_row(const struct attn_view *view, const int64_t at[4], int64_t n,
                       const double *x);

/* dbias[b,h,i,j] += x: along an axis where the bias is broadcast (stride 0) gradients sum. */
void attn_view_add(const struct attn_view *view, int64_t b, int64_t h, int64_t i, int64_t j,
                   double x);

/* dK += dV, in the first features of dK.  Their sum is rounded once more. */
void attn_shared_add(const struct attn_problem *p, const struct attn_view *dk,
                     const struct attn_view *dv);

/* dbias = 0, where there is one. */
void attn_dbias_clear(const struct attn_problem *p, const struct attn_view *dbias);

/* attn_problem.scattered, from the tensors of a call. */
int attn_scattered_forward(const struct attn_problem *p, const struct attn_forward *t);
int attn_scattered_backward(const struct attn_problem *p, const struct attn_backward *t);

#endif
