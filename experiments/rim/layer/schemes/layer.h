/* The layer around attention (ref/layer_cost.h), computed: forward and backward, in f64 or f32.
 *
 * Backward With dY, the gradients of the lines there, from the last to the first:
 *          dO_h = dY Wo_h^T     dWo_h = sum_b O_h^T dY
 *          (dQ, dK, dV) by the implementation
 *          dX = dQ Wq^T + dK Wk^T + dV Wv^T     dWqkv = sum_b X^T [dQ dK dV]
 * Errors   as ref/attn.h; what a call took from the ledger is given back.
 */
#ifndef EXPERIMENTS_RIM_LAYER_SCHEMES_LAYER_H
#define EXPERIMENTS_RIM_LAYER_SCHEMES_LAYER_H

#include "ref/layer_cost.h"

struct attn_layer_forward {
    const void *x, *wqkv, *wo;
    void *y; /* written */
};

struct attn_layer_backward {
    const void *x, *wqkv, *wo, *dy;
    void *dx, *dwqkv, *dwo; /* written */
};

/* The buffers that a forward pass keeps for the backward one: blocks of the ledger of that call.
 * Empty when it is all zero. */
struct attn_layer_saved {
    struct attn_buffer at[ATTN_LAYER_KEPT];
};
void attn_layer_drop(struct attn_layer_saved *saved, struct attn_ledger *ledger);

/* ENOTSUP: a type that is only priced; EINVAL as attn_layer_check_extents. */
enum attn_status attn_layer_check(const struct attn_layer *layer, struct attn_error *err);

/* saved: NULL, or empty; filled on ATTN_OK. */
enum attn_status attn_layer_run_forward(const struct attn_impl *impl, struct attn_ctx *ctx,
                                        const struct attn_layer *layer,
                                        const struct attn_layer_forward *t,
                                        struct attn_layer_saved *saved);

/* saved: what the forward pass of the same x and weights kept; NULL: it is computed again. */
enum attn_status attn_layer_run_backward(const struct attn_impl *impl, struct attn_ctx *ctx,
                                         const struct attn_layer *layer,
                                         const struct attn_layer_backward *t,
                                         const struct attn_layer_saved *saved);

/* ---- the arithmetic, for parts of a layer too ------------------------------------------------ */

/* Some batches, heads and tokens: what a rank has. */
struct attn_layer_part {
    int64_t batch, heads, kv_heads, tokens, hidden, d_key, d_value;
};

/* Weights as matrices of one head each: wq [.,H,C,d]  wk [.,G,C,d]  wv [.,G,C,dv]  wo [.,H,dv,C];
 * the stride of the first axis is 0. */
struct attn_layer_weights {
    struct attn_view q, k, v, o;
};

/* x, y [B,.,L,C], the stride of the second axis is 0; q, k, v, o as in ref/attn.h.  All outputs are
 * added to. */
void attn_layer_project(const struct attn_layer_part *n, const struct attn_view *x,
                        const struct attn_layer_weights *w, const struct attn_view qkv[3]);
void attn_layer_project_dweights(const struct attn_layer_part *n, const struct attn_view *x,
                                 const struct attn_view dqkv[3],
                                 const struct attn_layer_weights *dw);
void attn_layer_project_dx(const struct attn_layer_part *n, const struct attn_view dqkv[3],
                           const struct attn_layer_weights *w, const struct attn_view *dx);
void attn_layer_merge(const struct attn_layer_part *n, const struct attn_view *o,
                      const struct attn_layer_weights *w, const struct attn_view *y);
void attn_layer_merge_do(const struct attn_layer_part *n, const struct attn_view *dy,
                         const struct attn_layer_weights *w, const struct attn_view *d_o);
void attn_layer_merge_dweights(const struct attn_layer_part *n, const struct attn_view *o,
                               const struct attn_view *dy, const struct attn_layer_weights *dw);

/* The matrices of Wqkv and Wo. */
struct attn_layer_weights attn_layer_heads(const struct attn_layer *layer, const void *wqkv,
                                           const void *wo);

/* x or y of `tokens` tokens. */
struct attn_view attn_layer_tokens(const void *data, enum attn_dtype dtype, int64_t tokens,
                                   int64_t hidden);

#endif
