/* The layer around attention: projections, attention, output projection; forward and backward.
 *
 *      Q, K, V = X Wqkv           each head h has its own columns of Wqkv
 *      O_h     = attention(Q_h, K_g, V_g)                                  by any implementation
 *      Y       = [O_0 ... O_(H-1)] Wo = sum_h O_h Wo_h
 *
 * Shapes   x, y [B,L,C]   Wqkv [C, H d + G d + G dv]   Wo [H dv, C]; all contiguous, all of the
 *          layer's type, f64 or f32.  The columns of Wqkv: those of query heads 0 to H-1, of key
 *          heads 0 to G-1, of value heads 0 to G-1.  The rows of Wo: those of heads 0 to H-1.  No
 *          vector of biases is added.
 * Backward With dY, the gradients of the lines above, from the last to the first:
 *          dO_h = dY Wo_h^T     dWo_h = sum_b O_h^T dY
 *          (dQ, dK, dV) by the implementation
 *          dX = dQ Wq^T + dK Wk^T + dV Wv^T     dWqkv = sum_b X^T [dQ dK dV]
 * Memory   Q, K, V, O and LSE are what a layer keeps for its backward pass; without them the
 *          backward computes them again (activation checkpointing).
 * Errors   as ref/attn.h; what a call took from the ledger is given back.
 * Source   Vaswani et al. 2017, section 3.2.2; Korthikanti et al. 2022 (what is kept).
 */
#ifndef REF_LAYER_LAYER_H
#define REF_LAYER_LAYER_H

#include "ref/buffers.h"
#include "ref/problem.h"

struct attn_layer {
    int64_t batch, length, hidden, heads, kv_heads, d_key, d_value;
    double scale;
    enum attn_dtype dtype;
    const struct attn_mask *mask; /* NULL: every pair is visible */
};

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
enum { ATTN_LAYER_Q, ATTN_LAYER_K, ATTN_LAYER_V, ATTN_LAYER_O, ATTN_LAYER_LSE, ATTN_LAYER_KEPT };
struct attn_layer_saved {
    struct attn_buffer at[ATTN_LAYER_KEPT];
};
void attn_layer_drop(struct attn_layer_saved *saved, struct attn_ledger *ledger);

/* Attention in this layer. */
struct attn_problem attn_layer_problem(const struct attn_layer *layer);

/* Columns of Wqkv. */
int64_t attn_layer_columns(const struct attn_layer *layer);

enum attn_status attn_layer_check(const struct attn_layer *layer, struct attn_error *err);

/* saved: NULL, or empty; filled on ATTN_OK. */
enum attn_status attn_layer_run_forward(const struct attn_impl *impl, struct attn_ctx *ctx,
                                        const struct attn_layer *layer,
                                        const struct attn_layer_forward *t,
                                        struct attn_layer_saved *saved);

/* The same in its two parts.  y is there from the second on: a caller who takes it in between does
 * not hold it beside attention. */
enum attn_status attn_layer_attend(const struct attn_impl *impl, struct attn_ctx *ctx,
                                   const struct attn_layer *layer,
                                   const struct attn_layer_forward *t,
                                   struct attn_layer_saved *saved);
void attn_layer_write_y(const struct attn_layer *layer, const struct attn_layer_forward *t,
                        const struct attn_layer_saved *saved);

/* saved: what the forward pass of the same x and weights kept; NULL: it is computed again. */
enum attn_status attn_layer_run_backward(const struct attn_impl *impl, struct attn_ctx *ctx,
                                         const struct attn_layer *layer,
                                         const struct attn_layer_backward *t,
                                         const struct attn_layer_saved *saved);

/* The cost of a pass of one process beside x, y, weights and their gradients, in closed form.
 * keeps: the forward pass keeps what the backward one needs, which is then live in both
 * (saved_bytes); shard_bytes are those of x, y, weights and gradients.  bf16 and f16 are priced
 * too, each buffer in its type (attn_cost.lacks). */
enum attn_status attn_layer_cost(const struct attn_layer *layer, const struct attn_impl *impl,
                                 const struct attn_options *options, enum attn_pass pass, int keeps,
                                 struct attn_cost *cost, struct attn_error *err);

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
