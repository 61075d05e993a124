/* dense: attention with everything of size Lq x Lk in memory, as eager frameworks do it.
 *
 * Memory   mask + scores + probabilities, each B*H*Lq*Lk elements (the mask as its option says);
 *          backward: mask + probabilities + dscores.
 * Flops    2 (d + dv) B H Lq Lk forward, 2 (3 d + 2 dv) B H Lq Lk backward: hidden pairs are
 *          computed like any other, and then thrown away.
 * Caveats  This is what one should not do for long sequences; that is why it is here.  Softmax is
 *          out of place (frameworks keep S while P is written), and no dropout copy is held.
 *
 * How the mask is stored is a matter of memory alone, never of meaning: a hidden score is
 * replaced, not shifted by a large number, so float4d with -inf means the same as bool2d.
 */
#include <math.h>
#include <stdint.h>

#include "ref/ledger.h"
#include "ref/problem.h"
#include "ref/textbook.h"

enum mask_store { BOOL4D, BOOL2D, INT32, FLOAT4D };

static const struct attn_option options[] = {
    {"mask", BOOL4D, 0, 3, "bool4d bool2d int32 float4d",
     "how the mask is stored: [B,H,Lq,Lk] bytes, [Lq,Lk] bytes, [B,1,Lq,Lk] int32 (Open-Sora), "
     "[B,H,Lq,Lk] floats of 0 and -inf"},
    {0}};

/* The mask as stored; data == NULL when every pair is visible. */
struct dense_mask {
    enum mask_store store;
    enum attn_dtype dtype;                /* of FLOAT4D */
    int64_t batch, heads, n_query, n_key; /* extents as stored: 1 where the store shares */
    void *data;
};

static struct dense_mask mask_shape(const struct attn_problem *p, enum mask_store store)
{
    struct dense_mask m = {
        store, p->dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32, p->batch, p->heads, p->n_query, p->n_key,
        NULL};
    if (store == BOOL2D)
        m.batch = 1;
    if (store == BOOL2D || store == INT32)
        m.heads = 1;
    return m;
}

static int64_t mask_element(const struct dense_mask *m)
{
    switch (m->store) {
    case INT32:
        return 4;
    case FLOAT4D:
        return (int64_t)attn_dtype_size(m->dtype);
    case BOOL4D:
    case BOOL2D:
        break;
    }
    return 1;
}

static int64_t mask_at(const struct dense_mask *m, int64_t b, int64_t h, int64_t i, int64_t j)
{
    b = m->batch > 1 ? b : 0;
    h = m->heads > 1 ? h : 0;
    return ((b * m->heads + h) * m->n_query + i) * m->n_key + j;
}

static inline int dense_mask_allows(const struct dense_mask *m, int64_t b, int64_t h, int64_t i,
                                    int64_t j)
{
    if (m->data == NULL)
        return 1;
    int64_t at = mask_at(m, b, h, i, j);
    switch (m->store) {
    case INT32:
        return ((const int32_t *)m->data)[at] != 0;
    case FLOAT4D:
        return m->dtype == ATTN_F64 ? ((const double *)m->data)[at] == 0
                                    : ((const float *)m->data)[at] == 0;
    case BOOL4D:
    case BOOL2D:
        break;
    }
    return ((const uint8_t *)m->data)[at];
}

static void mask_put(const struct dense_mask *m, int64_t at, int visible)
{
    switch (m->store) {
    case INT32:
        ((int32_t *)m->data)[at] = visible;
        return;
    case FLOAT4D:
        if (m->dtype == ATTN_F64)
            ((double *)m->data)[at] = visible ? 0 : (double)-INFINITY;
        else
            ((float *)m->data)[at] = visible ? 0 : -INFINITY;
        return;
    case BOOL4D:
    case BOOL2D:
        break;
    }
    ((uint8_t *)m->data)[at] = (uint8_t)visible;
}

static void mask_fill(const struct attn_problem *p, const struct dense_mask *m)
{
    for (int64_t b = 0; b < m->batch; b++)
        for (int64_t h = 0; h < m->heads; h++)
            for (int64_t i = 0; i < m->n_query; i++) {
                int64_t row = mask_at(m, b, h, i, 0), lo, hi;
                for (int64_t j = 0; j < m->n_key; j++)
                    mask_put(m, row + j, 0);
                for (int64_t from = 0; attn_problem_next(p, b, h, i, from, &lo, &hi); from = hi)
                    for (int64_t j = lo; j < hi; j++)
                        mask_put(m, row + j, 1);
            }
}

/* ---- the arithmetic, for float and for double --------------------------------------------- */

#define REAL      float
#define FN(name)  name##_f32
#define REAL_EXP  expf
#define REAL_LOG  logf
#define REAL_TANH tanhf
#include "ref/textbook_tmpl.h"

#include "ref/dense_tmpl.h"
#undef REAL
#undef FN
#undef REAL_EXP
#undef REAL_LOG
#undef REAL_TANH
#define REAL      double
#define FN(name)  name##_f64
#define REAL_EXP  exp
#define REAL_LOG  log
#define REAL_TANH tanh
#include "ref/textbook_tmpl.h"

#include "ref/dense_tmpl.h"

/* ---- the record --------------------------------------------------------------------------- */

static int64_t all_pairs(const struct attn_problem *p)
{
    return attn_product(attn_product(p->batch, p->heads), attn_product(p->n_query, p->n_key));
}

static int64_t room_elements(const struct attn_problem *p)
{
    int64_t width = p->d_key > p->d_value ? p->d_key : p->d_value;
    return 4 * width; /* a row each of q, k, v, o, or of what the backward reads and sums */
}

static int has_mask(const struct attn_problem *p)
{
    return p->mask != NULL && !attn_mask_is_none(p->mask);
}

static enum attn_status accepts(const struct attn_problem *p, const struct attn_options *opt,
                                struct attn_error *err)
{
    if (!has_mask(p))
        return ATTN_OK;
    if (opt->value[0] == BOOL2D && attn_mask_varies_by_batch(p->mask))
        return attn_fail(err, ATTN_ENOTSUP,
                         "dense:mask=bool2d holds one [Lq,Lk] mask, but '%s' differs between "
                         "batches: mask=bool4d or int32 would work",
                         attn_mask_text(p->mask));
    if ((opt->value[0] == BOOL2D || opt->value[0] == INT32) && attn_mask_varies_by_head(p->mask))
        return attn_fail(err, ATTN_ENOTSUP,
                         "dense:mask=%s shares one mask among heads, but '%s' differs between "
                         "them: mask=bool4d or float4d would work",
                         opt->value[0] == INT32 ? "int32" : "bool2d", attn_mask_text(p->mask));
    return ATTN_OK;
}

static enum attn_status cost(const struct attn_problem *p, const struct attn_options *opt,
                             enum attn_pass pass, int rank, struct attn_cost *cost,
                             struct attn_error *err)
{
    (void)rank;
    int64_t real = p->dtype == ATTN_F64 ? 8 : 4, pairs = all_pairs(p);
    struct dense_mask m = mask_shape(p, (enum mask_store)opt->value[0]);
    int64_t stored = attn_product(attn_product(m.batch, m.heads), attn_product(m.n_query, m.n_key));
    const char *const big[2][2] = {{"scores", "probs"}, {"probs", "dscores"}};
    enum attn_status status = ATTN_OK;
    if (has_mask(p))
        status = attn_cost_add(cost, "mask", stored, mask_element(&m), err);
    for (int n = 0; n < 2 && status == ATTN_OK; n++)
        status = attn_cost_add(cost, big[pass][n], pairs, real, err);
    if (status == ATTN_OK)
        status = attn_cost_add(cost, "rows", room_elements(p), real, err);
    /* forward: QK^T, PV.  backward: QK^T, dO V^T, dS K, dS^T Q, P^T dO. */
    cost->flops = pass == ATTN_FORWARD
                      ? 2.0 * (double)pairs * (double)(p->d_key + p->d_value)
                      : 2.0 * (double)pairs * (double)(3 * p->d_key + 2 * p->d_value);
    return status;
}

/* Take the buffers that both passes need: the mask (filled), two L x L ones, and room for rows. */
struct buffers {
    struct dense_mask mask;
    void *first, *second, *room;
};

static enum attn_status take(struct attn_ctx *ctx, const struct attn_problem *p, const char *first,
                             const char *second, struct buffers *x)
{
    struct attn_ledger *ledger = ctx->ledger;
    int64_t real = p->dtype == ATTN_F64 ? 8 : 4;
    x->mask = mask_shape(p, (enum mask_store)ctx->options->value[0]);
    x->first = x->second = x->room = NULL;
    if (has_mask(p)) {
        const struct dense_mask *m = &x->mask;
        x->mask.data = attn_ledger_take(ledger, "mask", m->batch * m->heads * m->n_query * m->n_key,
                                        mask_element(m), ctx->error);
        if (x->mask.data == NULL)
            return ATTN_ENOMEM;
        mask_fill(p, m);
    }
    if ((x->first = attn_ledger_take(ledger, first, all_pairs(p), real, ctx->error)) == NULL ||
        (x->second = attn_ledger_take(ledger, second, all_pairs(p), real, ctx->error)) == NULL ||
        (x->room = attn_ledger_take(ledger, "rows", room_elements(p), real, ctx->error)) == NULL)
        return ATTN_ENOMEM;
    return ATTN_OK;
}

static void give(struct attn_ctx *ctx, struct buffers *x)
{
    attn_ledger_give(ctx->ledger, x->room);
    attn_ledger_give(ctx->ledger, x->second);
    attn_ledger_give(ctx->ledger, x->first);
    attn_ledger_give(ctx->ledger, x->mask.data);
}

static enum attn_status forward(struct attn_ctx *ctx, const struct attn_problem *p,
                                const struct attn_forward *t)
{
    struct buffers x;
    enum attn_status status = take(ctx, p, "scores", "probs", &x);
    if (status == ATTN_OK && p->dtype == ATTN_F64)
        dense_forward_f64(p, t, &x.mask, x.first, x.second, x.room);
    else if (status == ATTN_OK)
        dense_forward_f32(p, t, &x.mask, x.first, x.second, x.room);
    give(ctx, &x);
    return status;
}

static enum attn_status backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                 const struct attn_backward *t)
{
    struct buffers x;
    enum attn_status status = take(ctx, p, "probs", "dscores", &x);
    if (status == ATTN_OK) {
        attn_dbias_clear(p, &t->dbias);
        if (p->dtype == ATTN_F64)
            dense_backward_f64(p, t, &x.mask, x.first, x.second, x.room);
        else
            dense_backward_f32(p, t, &x.mask, x.first, x.second, x.room);
    }
    give(ctx, &x);
    return status;
}

const struct attn_impl attn_impl_dense = {
    .name = "dense",
    .summary = "everything of size L x L in memory: mask, scores, probabilities",
    .family = "dense",
    .caps = ATTN_TEXTBOOK_CAPS,
    .options = options,
    .accepts = accepts,
    .cost = cost,
    .forward = forward,
    .backward = backward,
};
