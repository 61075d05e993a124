/* See layer_cost.h. */
#include "ref/layer_cost.h"

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

enum attn_status attn_layer_check_extents(const struct attn_layer *layer, struct attn_error *err)
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

/* ---- buffers --------------------------------------------------------------------------------- */

void attn_layer_kept_buffers(const struct attn_layer *layer, struct attn_buffer at[ATTN_LAYER_KEPT])
{
    const struct attn_problem p = attn_layer_problem(layer);
    int64_t rows = layer->batch * layer->length, e = (int64_t)attn_dtype_size(layer->dtype);
    at[ATTN_LAYER_Q] = attn_buffer_of("layer.q", layer->heads, rows * layer->d_key, e);
    at[ATTN_LAYER_K] = attn_buffer_of("layer.k", layer->kv_heads, rows * layer->d_key, e);
    at[ATTN_LAYER_V] = attn_buffer_of("layer.v", layer->kv_heads, rows * layer->d_value, e);
    at[ATTN_LAYER_O] = attn_buffer_of("layer.o", layer->heads, rows * layer->d_value, e);
    at[ATTN_LAYER_LSE] = attn_buffer_of("layer.lse", layer->heads, rows,
                                        (int64_t)attn_dtype_size(attn_lse_dtype(&p)));
}

void attn_layer_gradient_buffers(const struct attn_layer *layer,
                                 struct attn_buffer at[ATTN_LAYER_GRADIENTS])
{
    static const char *const name[ATTN_LAYER_GRADIENTS] = {"layer.dq", "layer.dk", "layer.dv",
                                                           "layer.do"};
    struct attn_buffer kept[ATTN_LAYER_KEPT];
    attn_layer_kept_buffers(layer, kept);
    for (int t = 0; t < ATTN_LAYER_GRADIENTS; t++)
        at[t] = attn_buffer_of(name[t], kept[t].parts, kept[t].numbers, kept[t].size);
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
    struct attn_buffer kept[ATTN_LAYER_KEPT], gradient[ATTN_LAYER_GRADIENTS];
    struct attn_cost forward = {0}, backward = {0}, base = {0}, step = {0};
    enum attn_status status = attn_layer_check_extents(layer, err);
    int runs_forward = pass == ATTN_FORWARD || !keeps;
    *cost = (struct attn_cost){0};
    attn_layer_kept_buffers(layer, kept);
    attn_layer_gradient_buffers(layer, gradient);
    if (status == ATTN_OK && runs_forward)
        status = attn_price(impl, options, &p, ATTN_FORWARD, 0, &forward, err);
    if (status == ATTN_OK && pass == ATTN_BACKWARD)
        status = attn_price(impl, options, &p, ATTN_BACKWARD, 0, &backward, err);
    if (status == ATTN_OK)
        status = attn_buffers_price(kept, ATTN_LAYER_KEPT, &base, err);
    if (status == ATTN_OK)
        status = price_step(&base, NULL, 0, &forward, cost, err);
    if (status == ATTN_OK && pass == ATTN_BACKWARD)
        status = price_step(&base, gradient, ATTN_LAYER_GRADIENTS, &backward, &step, err);
    if (step.peak_bytes > cost->peak_bytes)
        *cost = step;
    cost->saved_bytes = keeps ? base.peak_bytes : 0;
    cost->counted = forward.counted | backward.counted;
    cost->flops = forward.flops + backward.flops + (runs_forward ? projection_flops(layer) : 0) +
                  (pass == ATTN_BACKWARD ? 2 * projection_flops(layer) : 0);
    cost->shard_bytes = own_bytes(layer, pass);
    cost->lacks = attn_layer_runs_in(layer->dtype) ? NULL : "a layer";
    return status;
}
