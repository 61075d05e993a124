/* See layer.h. */
#include "experiments/rim/layer/schemes/layer.h"

#include <string.h>

#include "experiments/rim/layer/schemes/matmul.h"

/* ---- shapes ---------------------------------------------------------------------------------- */

enum attn_status attn_layer_check(const struct attn_layer *layer, struct attn_error *err)
{
    enum attn_status status = attn_layer_check_extents(layer, err);
    if (status == ATTN_OK && !attn_layer_runs_in(layer->dtype))
        status = attn_fail(err, ATTN_ENOTSUP, "a layer of %s: f64 and f32 would work",
                           attn_dtype_name(layer->dtype));
    return status;
}

static struct attn_layer_part part_of(const struct attn_layer *layer)
{
    return (struct attn_layer_part){layer->batch,  layer->heads, layer->kv_heads, layer->length,
                                    layer->hidden, layer->d_key, layer->d_value};
}

struct attn_view attn_layer_tokens(const void *data, enum attn_dtype dtype, int64_t tokens,
                                   int64_t hidden)
{
    return (struct attn_view){(void *)(uintptr_t)data, dtype, {tokens * hidden, 0, hidden, 1}};
}

/* Head h begins at column first + h width of a matrix of n columns. */
static struct attn_view columns(const void *data, enum attn_dtype dtype, int64_t first,
                                int64_t width, int64_t n)
{
    char *at = (char *)(uintptr_t)data + first * (int64_t)attn_dtype_size(dtype);
    return (struct attn_view){at, dtype, {0, width, n, 1}};
}

struct attn_layer_weights attn_layer_heads(const struct attn_layer *layer, const void *wqkv,
                                           const void *wo)
{
    int64_t n = attn_layer_columns(layer), d = layer->d_key, dv = layer->d_value;
    int64_t keys = layer->heads * d, values = keys + layer->kv_heads * d, c = layer->hidden;
    return (struct attn_layer_weights){
        .q = columns(wqkv, layer->dtype, 0, d, n),
        .k = columns(wqkv, layer->dtype, keys, d, n),
        .v = columns(wqkv, layer->dtype, values, dv, n),
        .o = {(void *)(uintptr_t)wo, layer->dtype, {0, dv * c, c, 1}},
    };
}

/* ---- the products ---------------------------------------------------------------------------- */

/* Of one of q, k, v: how many heads, how wide. */
static int64_t heads_of(const struct attn_layer_part *n, int t)
{
    return t == ATTN_LAYER_Q ? n->heads : n->kv_heads;
}

static int64_t width_of(const struct attn_layer_part *n, int t)
{
    return t == ATTN_LAYER_V ? n->d_value : n->d_key;
}

static const struct attn_view *weights_of(const struct attn_layer_weights *w, int t)
{
    return t == ATTN_LAYER_Q ? &w->q : t == ATTN_LAYER_K ? &w->k : &w->v;
}

/* sum[b,h] += a[b,h] w[b,h], where a is [rows,inner] and w [inner,columns]. */
static void product(const struct attn_layer_part *n, int64_t heads, const struct attn_view *sum,
                    struct attn_cview a, struct attn_cview w, int64_t rows, int64_t inner,
                    int64_t columns)
{
    attn_matmul(&(struct attn_matmul){*sum, a, w, n->batch, heads, rows, inner, columns});
}

static struct attn_cview transposed(const struct attn_view *x)
{
    const int64_t *s = x->stride;
    return (struct attn_cview){x->data, x->dtype, {s[0], s[1], s[3], s[2]}};
}

/* Q_h = X Wq_h, and so K, V */
void attn_layer_project(const struct attn_layer_part *n, const struct attn_view *x,
                        const struct attn_layer_weights *w, const struct attn_view qkv[3])
{
    for (int t = ATTN_LAYER_Q; t <= ATTN_LAYER_V; t++)
        product(n, heads_of(n, t), &qkv[t], attn_view_const(x), attn_view_const(weights_of(w, t)),
                n->tokens, n->hidden, width_of(n, t));
}

/* Forward was Q_h = X Wq_h: dWq_h = sum_b X^T dQ_h */
void attn_layer_project_dweights(const struct attn_layer_part *n, const struct attn_view *x,
                                 const struct attn_view dqkv[3],
                                 const struct attn_layer_weights *dw)
{
    for (int t = ATTN_LAYER_Q; t <= ATTN_LAYER_V; t++)
        product(n, heads_of(n, t), weights_of(dw, t), transposed(x), attn_view_const(&dqkv[t]),
                n->hidden, n->tokens, width_of(n, t));
}

/* Forward was Q_h = X Wq_h: dX = sum_h dQ_h Wq_h^T, and the same of K and V */
void attn_layer_project_dx(const struct attn_layer_part *n, const struct attn_view dqkv[3],
                           const struct attn_layer_weights *w, const struct attn_view *dx)
{
    for (int t = ATTN_LAYER_Q; t <= ATTN_LAYER_V; t++)
        product(n, heads_of(n, t), dx, attn_view_const(&dqkv[t]), transposed(weights_of(w, t)),
                n->tokens, width_of(n, t), n->hidden);
}

/* Y = sum_h O_h Wo_h: to concatenate the heads and multiply by all of Wo is the same sum */
void attn_layer_merge(const struct attn_layer_part *n, const struct attn_view *o,
                      const struct attn_layer_weights *w, const struct attn_view *y)
{
    product(n, n->heads, y, attn_view_const(o), attn_view_const(&w->o), n->tokens, n->d_value,
            n->hidden);
}

/* Forward was Y = sum_h O_h Wo_h: dO_h = dY Wo_h^T */
void attn_layer_merge_do(const struct attn_layer_part *n, const struct attn_view *dy,
                         const struct attn_layer_weights *w, const struct attn_view *d_o)
{
    product(n, n->heads, d_o, attn_view_const(dy), transposed(&w->o), n->tokens, n->hidden,
            n->d_value);
}

/* Forward was Y = sum_h O_h Wo_h: dWo_h = sum_b O_h^T dY */
void attn_layer_merge_dweights(const struct attn_layer_part *n, const struct attn_view *o,
                               const struct attn_view *dy, const struct attn_layer_weights *dw)
{
    product(n, n->heads, &dw->o, transposed(o), attn_view_const(dy), n->d_value, n->tokens,
            n->hidden);
}

/* ---- buffers --------------------------------------------------------------------------------- */

static struct attn_view view_of(const struct attn_layer *layer, const struct attn_buffer *at, int t)
{
    const struct attn_layer_part n = part_of(layer);
    int64_t heads = t == ATTN_LAYER_K || t == ATTN_LAYER_V ? n.kv_heads : n.heads;
    int64_t width = t == ATTN_LAYER_LSE                      ? 1
                    : t == ATTN_LAYER_Q || t == ATTN_LAYER_K ? n.d_key
                                                             : n.d_value;
    return attn_packed_view(at[t].data, layer->dtype, heads, n.tokens, width);
}

static void clear(void *data, int64_t count, enum attn_dtype dtype)
{
    if (count > 0)
        memset(data, 0, (size_t)count * attn_dtype_size(dtype));
}

static void clear_buffers(struct attn_buffer *at, int n)
{
    for (int t = 0; t < n; t++)
        if (at[t].parts * at[t].numbers > 0)
            memset(at[t].data, 0, (size_t)attn_buffer_bytes(&at[t]));
}

void attn_layer_drop(struct attn_layer_saved *saved, struct attn_ledger *ledger)
{
    attn_buffers_give(saved->at, ATTN_LAYER_KEPT, ledger);
    *saved = (struct attn_layer_saved){0};
}

/* ---- the passes ------------------------------------------------------------------------------ */

/* Q, K, V, O and LSE, into buffers that are taken here. */
static enum attn_status attend(const struct attn_impl *impl, struct attn_ctx *ctx,
                               const struct attn_layer *layer, const void *x,
                               const struct attn_layer_weights *w,
                               struct attn_buffer at[ATTN_LAYER_KEPT])
{
    const struct attn_problem p = attn_layer_problem(layer);
    const struct attn_layer_part n = part_of(layer);
    const struct attn_view tokens = attn_layer_tokens(x, layer->dtype, n.tokens, n.hidden);
    struct attn_view t[ATTN_LAYER_KEPT];
    attn_layer_kept_buffers(layer, at);
    enum attn_status status = attn_buffers_take(at, ATTN_LAYER_KEPT, ctx->ledger, ctx->error);
    if (status != ATTN_OK)
        return status;
    clear_buffers(at, ATTN_LAYER_O);
    for (int k = 0; k < ATTN_LAYER_KEPT; k++)
        t[k] = view_of(layer, at, k);
    attn_layer_project(&n, &tokens, w, t);
    const struct attn_forward call = {
        attn_view_const(&t[ATTN_LAYER_Q]), attn_view_const(&t[ATTN_LAYER_K]),
        attn_view_const(&t[ATTN_LAYER_V]), t[ATTN_LAYER_O], t[ATTN_LAYER_LSE]};
    return attn_run_forward(impl, ctx, &p, &call);
}

static void write_y(const struct attn_layer *layer, const struct attn_layer_forward *t,
                    const struct attn_buffer at[ATTN_LAYER_KEPT])
{
    const struct attn_layer_part n = part_of(layer);
    const struct attn_layer_weights w = attn_layer_heads(layer, t->wqkv, t->wo);
    const struct attn_view y = attn_layer_tokens(t->y, layer->dtype, n.tokens, n.hidden);
    const struct attn_view o = view_of(layer, at, ATTN_LAYER_O);
    clear(t->y, n.batch * n.tokens * n.hidden, layer->dtype);
    attn_layer_merge(&n, &o, &w, &y);
}

enum attn_status attn_layer_run_forward(const struct attn_impl *impl, struct attn_ctx *ctx,
                                        const struct attn_layer *layer,
                                        const struct attn_layer_forward *t,
                                        struct attn_layer_saved *saved)
{
    const struct attn_layer_weights w = attn_layer_heads(layer, t->wqkv, t->wo);
    struct attn_layer_saved own = {0};
    enum attn_status status = attn_layer_check(layer, ctx->error);
    if (status == ATTN_OK)
        status = attend(impl, ctx, layer, t->x, &w, own.at);
    if (status == ATTN_OK)
        write_y(layer, t, own.at);
    if (status == ATTN_OK && saved != NULL)
        *saved = own;
    else
        attn_layer_drop(&own, ctx->ledger);
    return status;
}

/* From dO to dX and the gradients of the weights, with what the forward pass computed. */
static enum attn_status differentiate(const struct attn_impl *impl, struct attn_ctx *ctx,
                                      const struct attn_layer *layer,
                                      const struct attn_layer_backward *t,
                                      const struct attn_buffer *kept, struct attn_buffer *at)
{
    const struct attn_problem p = attn_layer_problem(layer);
    const struct attn_layer_part n = part_of(layer);
    const struct attn_layer_weights w = attn_layer_heads(layer, t->wqkv, t->wo);
    const struct attn_layer_weights dw = attn_layer_heads(layer, t->dwqkv, t->dwo);
    const struct attn_view x = attn_layer_tokens(t->x, layer->dtype, n.tokens, n.hidden);
    const struct attn_view dy = attn_layer_tokens(t->dy, layer->dtype, n.tokens, n.hidden);
    const struct attn_view dx = attn_layer_tokens(t->dx, layer->dtype, n.tokens, n.hidden);
    struct attn_view f[ATTN_LAYER_KEPT], d[ATTN_LAYER_GRADIENTS];
    for (int k = 0; k < ATTN_LAYER_KEPT; k++)
        f[k] = view_of(layer, kept, k);
    for (int k = 0; k < ATTN_LAYER_GRADIENTS; k++)
        d[k] = view_of(layer, at, k);
    clear(t->dx, n.batch * n.tokens * n.hidden, layer->dtype);
    clear(t->dwqkv, n.hidden * attn_layer_columns(layer), layer->dtype);
    clear(t->dwo, n.heads * n.d_value * n.hidden, layer->dtype);
    clear_buffers(&at[ATTN_LAYER_O], 1);
    attn_layer_merge_do(&n, &dy, &w, &d[ATTN_LAYER_O]);
    attn_layer_merge_dweights(&n, &f[ATTN_LAYER_O], &dy, &dw);
    const struct attn_backward call = {.q = attn_view_const(&f[ATTN_LAYER_Q]),
                                       .k = attn_view_const(&f[ATTN_LAYER_K]),
                                       .v = attn_view_const(&f[ATTN_LAYER_V]),
                                       .o = attn_view_const(&f[ATTN_LAYER_O]),
                                       .lse = attn_view_const(&f[ATTN_LAYER_LSE]),
                                       .d_o = attn_view_const(&d[ATTN_LAYER_O]),
                                       .dq = d[ATTN_LAYER_Q],
                                       .dk = d[ATTN_LAYER_K],
                                       .dv = d[ATTN_LAYER_V]};
    enum attn_status status = attn_run_backward(impl, ctx, &p, &call);
    if (status != ATTN_OK)
        return status;
    attn_layer_project_dx(&n, d, &w, &dx);
    attn_layer_project_dweights(&n, &x, d, &dw);
    return ATTN_OK;
}

enum attn_status attn_layer_run_backward(const struct attn_impl *impl, struct attn_ctx *ctx,
                                         const struct attn_layer *layer,
                                         const struct attn_layer_backward *t,
                                         const struct attn_layer_saved *saved)
{
    const struct attn_layer_weights w = attn_layer_heads(layer, t->wqkv, t->wo);
    struct attn_layer_saved again = {0};
    struct attn_buffer at[ATTN_LAYER_GRADIENTS] = {0};
    int kept = saved != NULL && saved->at[ATTN_LAYER_Q].name != NULL;
    enum attn_status status = attn_layer_check(layer, ctx->error);
    if (status == ATTN_OK && !kept)
        status = attend(impl, ctx, layer, t->x, &w, again.at);
    if (status == ATTN_OK) {
        attn_layer_gradient_buffers(layer, at);
        status = attn_buffers_take(at, ATTN_LAYER_GRADIENTS, ctx->ledger, ctx->error);
    }
    if (status == ATTN_OK)
        status = differentiate(impl, ctx, layer, t, kept ? saved->at : again.at, at);
    attn_buffers_give(at, ATTN_LAYER_GRADIENTS, ctx->ledger);
    attn_layer_drop(&again, ctx->ledger);
    return status;
}
