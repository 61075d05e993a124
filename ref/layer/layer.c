/* See layer.h. */
#include "ref/layer/layer.h"

#include <string.h>

#include "ref/layer/matmul.h"

/* ---- shapes ---------------------------------------------------------------------------------- */

struct attn_problem attn_layer_problem(const struct attn_layer *layer)
{
    return (struct attn_problem){.batch = layer->batch,
                                 .heads = layer->heads,
                                 .kv_heads = layer->kv_heads,
                                 .n_query = layer->length,
                                 .n_key = layer->length,
                                 .d_key = layer->d_key,
                                 .d_value = layer->d_value,
                                 .scale = layer->scale,
                                 .dtype = layer->dtype,
                                 .mask = layer->mask};
}

int64_t attn_layer_columns(const struct attn_layer *layer)
{
    return (layer->heads + layer->kv_heads) * layer->d_key + layer->kv_heads * layer->d_value;
}

static int runs_in(enum attn_dtype dtype)
{
    return dtype == ATTN_F64 || dtype == ATTN_F32;
}

static enum attn_status check_extents(const struct attn_layer *layer, struct attn_error *err)
{
    const struct attn_problem p = attn_layer_problem(layer);
    enum attn_status status = attn_problem_check(&p, err);
    if (status != ATTN_OK)
        return status;
    int64_t width = attn_product(layer->heads + 2 * layer->kv_heads, layer->d_key + layer->d_value);
    if (layer->hidden < 0 || attn_product(attn_product(layer->hidden, width), 8) < 0 ||
        attn_product(attn_product(layer->batch, layer->length), attn_product(layer->hidden, 8)) < 0)
        return attn_fail(err, ATTN_EINVAL, "hidden = %lld: 0 or more, and sizes of 63 bits",
                         (long long)layer->hidden);
    return ATTN_OK;
}

enum attn_status attn_layer_check(const struct attn_layer *layer, struct attn_error *err)
{
    enum attn_status status = check_extents(layer, err);
    if (status == ATTN_OK && !runs_in(layer->dtype))
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

static void kept_buffers(const struct attn_layer *layer, struct attn_buffer at[ATTN_LAYER_KEPT])
{
    const struct attn_problem p = attn_layer_problem(layer);
    const struct attn_layer_part n = part_of(layer);
    int64_t rows = n.batch * n.tokens, e = (int64_t)attn_dtype_size(layer->dtype);
    at[ATTN_LAYER_Q] = attn_buffer_of("layer.q", n.heads, rows * n.d_key, e);
    at[ATTN_LAYER_K] = attn_buffer_of("layer.k", n.kv_heads, rows * n.d_key, e);
    at[ATTN_LAYER_V] = attn_buffer_of("layer.v", n.kv_heads, rows * n.d_value, e);
    at[ATTN_LAYER_O] = attn_buffer_of("layer.o", n.heads, rows * n.d_value, e);
    at[ATTN_LAYER_LSE] =
        attn_buffer_of("layer.lse", n.heads, rows, (int64_t)attn_dtype_size(attn_lse_dtype(&p)));
}

/* In the order of q, k, v, o. */
enum { GRADIENTS = ATTN_LAYER_O + 1 };
static void gradient_buffers(const struct attn_layer *layer, struct attn_buffer at[GRADIENTS])
{
    static const char *const name[GRADIENTS] = {"layer.dq", "layer.dk", "layer.dv", "layer.do"};
    struct attn_buffer kept[ATTN_LAYER_KEPT];
    kept_buffers(layer, kept);
    for (int t = 0; t < GRADIENTS; t++)
        at[t] = attn_buffer_of(name[t], kept[t].parts, kept[t].numbers, kept[t].size);
}

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
    kept_buffers(layer, at);
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

enum attn_status attn_layer_attend(const struct attn_impl *impl, struct attn_ctx *ctx,
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
        *saved = own;
    else
        attn_layer_drop(&own, ctx->ledger);
    return status;
}

void attn_layer_write_y(const struct attn_layer *layer, const struct attn_layer_forward *t,
                        const struct attn_layer_saved *saved)
{
    const struct attn_layer_part n = part_of(layer);
    const struct attn_layer_weights w = attn_layer_heads(layer, t->wqkv, t->wo);
    const struct attn_view y = attn_layer_tokens(t->y, layer->dtype, n.tokens, n.hidden);
    const struct attn_view o = view_of(layer, saved->at, ATTN_LAYER_O);
    clear(t->y, n.batch * n.tokens * n.hidden, layer->dtype);
    attn_layer_merge(&n, &o, &w, &y);
}

enum attn_status attn_layer_run_forward(const struct attn_impl *impl, struct attn_ctx *ctx,
                                        const struct attn_layer *layer,
                                        const struct attn_layer_forward *t,
                                        struct attn_layer_saved *saved)
{
    struct attn_layer_saved own = {0};
    enum attn_status status = attn_layer_attend(impl, ctx, layer, t, &own);
    if (status != ATTN_OK)
        return status;
    attn_layer_write_y(layer, t, &own);
    if (saved != NULL)
        *saved = own;
    else
        attn_layer_drop(&own, ctx->ledger);
    return ATTN_OK;
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
    struct attn_view f[ATTN_LAYER_KEPT], d[GRADIENTS];
    for (int k = 0; k < ATTN_LAYER_KEPT; k++)
        f[k] = view_of(layer, kept, k);
    for (int k = 0; k < GRADIENTS; k++)
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
    struct attn_buffer at[GRADIENTS] = {0};
    int kept = saved != NULL && saved->at[ATTN_LAYER_Q].name != NULL;
    enum attn_status status = attn_layer_check(layer, ctx->error);
    if (status == ATTN_OK && !kept)
        status = attend(impl, ctx, layer, t->x, &w, again.at);
    if (status == ATTN_OK) {
        gradient_buffers(layer, at);
        status = attn_buffers_take(at, GRADIENTS, ctx->ledger, ctx->error);
    }
    if (status == ATTN_OK)
        status = differentiate(impl, ctx, layer, t, kept ? saved->at : again.at, at);
    attn_buffers_give(at, GRADIENTS, ctx->ledger);
    attn_layer_drop(&again, ctx->ledger);
    return status;
}

/* ---- cost ------------------------------------------------------------------------------------ */

/* To the buffers that are live throughout, add those of this step and what the implementation takes
 * in it. */
static enum attn_status price_step(const struct attn_cost *base, const struct attn_buffer *buffer,
                                   int n, const struct attn_cost *impl, struct attn_cost *step,
                                   struct attn_error *err)
{
    *step = *base;
    enum attn_status status = attn_buffers_price(buffer, n, step, err);
    for (int i = 0; i < impl->n_live && status == ATTN_OK; i++)
        status = attn_cost_join(step, &impl->live[i], err);
    return status;
}

/* x y Wqkv Wo; backward x dy dx and the weights twice. */
static double own_bytes(const struct attn_layer *layer, enum attn_pass pass)
{
    double e = (double)attn_dtype_size(layer->dtype), c = (double)layer->hidden;
    double tokens = (double)layer->batch * (double)layer->length * c;
    double weights =
        c * (double)attn_layer_columns(layer) + c * (double)(layer->heads * layer->d_value);
    return e * (pass == ATTN_FORWARD ? 2 * tokens + weights : 3 * tokens + 2 * weights);
}

/* Of both projections: a multiply and an add for each weight and token. */
static double projection_flops(const struct attn_layer *layer)
{
    return 2 * (double)layer->batch * (double)layer->length * (double)layer->hidden *
           (double)(attn_layer_columns(layer) + layer->heads * layer->d_value);
}

enum attn_status attn_layer_cost(const struct attn_layer *layer, const struct attn_impl *impl,
                                 const struct attn_options *options, enum attn_pass pass, int keeps,
                                 struct attn_cost *cost, struct attn_error *err)
{
    const struct attn_problem p = attn_layer_problem(layer);
    struct attn_buffer kept[ATTN_LAYER_KEPT], gradient[GRADIENTS];
    struct attn_cost forward = {0}, backward = {0}, base = {0}, step = {0};
    enum attn_status status = check_extents(layer, err);
    int runs_forward = pass == ATTN_FORWARD || !keeps;
    *cost = (struct attn_cost){0};
    kept_buffers(layer, kept);
    gradient_buffers(layer, gradient);
    if (status == ATTN_OK && runs_forward)
        status = attn_price(impl, options, &p, ATTN_FORWARD, 0, &forward, err);
    if (status == ATTN_OK && pass == ATTN_BACKWARD)
        status = attn_price(impl, options, &p, ATTN_BACKWARD, 0, &backward, err);
    if (status == ATTN_OK)
        status = attn_buffers_price(kept, ATTN_LAYER_KEPT, &base, err);
    if (status == ATTN_OK)
        status = price_step(&base, NULL, 0, &forward, cost, err);
    if (status == ATTN_OK && pass == ATTN_BACKWARD)
        status = price_step(&base, gradient, GRADIENTS, &backward, &step, err);
    if (step.peak_bytes > cost->peak_bytes)
        *cost = step;
    cost->saved_bytes = keeps ? base.peak_bytes : 0;
    cost->counted = forward.counted | backward.counted;
    cost->flops = forward.flops + backward.flops + (runs_forward ? projection_flops(layer) : 0) +
                  (pass == ATTN_BACKWARD ? 2 * projection_flops(layer) : 0);
    cost->shard_bytes = own_bytes(layer, pass);
    cost->lacks = runs_in(layer->dtype) ? NULL : "a layer";
    return status;
}
