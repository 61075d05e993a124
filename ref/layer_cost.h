/* The price of a layer around attention: projections, attention, output projection.
 *
 *      Q, K, V = X Wqkv           each head h has its own columns of Wqkv
 *      O_h     = attention(Q_h, K_g, V_g)                                  by any implementation
 *      Y       = [O_0 ... O_(H-1)] Wo = sum_h O_h Wo_h
 *
 * Shapes   x, y [B,L,C]   Wqkv [C, H d + G d + G dv]   Wo [H dv, C]; all contiguous, all of the
 *          layer's type.  The columns of Wqkv: those of query heads 0 to H-1, of key heads 0 to
 *          G-1, of value heads 0 to G-1.  The rows of Wo: those of heads 0 to H-1.  No vector of
 *          biases is added.
 * Memory   Q, K, V, O and LSE are what a layer keeps for its backward pass; without them the
 *          backward computes them again (activation checkpointing).
 * Source   Vaswani et al. 2017, section 3.2.2; Korthikanti et al. 2022 (what is kept).
 *
 * The room experiments/rim/layer computes it.
 */
#ifndef REF_LAYER_COST_H
#define REF_LAYER_COST_H

#include "ref/buffers.h"
#include "ref/problem.h"

struct attn_layer {
    int64_t batch, length, hidden, heads, kv_heads, d_key, d_value;
    double scale;
    enum attn_dtype dtype;
    const struct attn_mask *mask; /* NULL: every pair is visible */
};

/* Attention in this layer. */
struct attn_problem attn_layer_problem(const struct attn_layer *layer);

/* Columns of Wqkv. */
int64_t attn_layer_columns(const struct attn_layer *layer);

/* EINVAL: no such layer, or sizes that exceed 63 bits. */
enum attn_status attn_layer_check_extents(const struct attn_layer *layer, struct attn_error *err);

/* A layer runs in these types; it is priced in the others too. */
static inline int attn_layer_runs_in(enum attn_dtype dtype)
{
    return dtype == ATTN_F64 || dtype == ATTN_F32;
}

/* The buffers that a forward pass keeps for the backward one, "layer.q" and so on; and those of
 * gradients, in the order of q, k, v, o.  Without data. */
enum { ATTN_LAYER_Q, ATTN_LAYER_K, ATTN_LAYER_V, ATTN_LAYER_O, ATTN_LAYER_LSE, ATTN_LAYER_KEPT };
enum { ATTN_LAYER_GRADIENTS = ATTN_LAYER_O + 1 };
void attn_layer_kept_buffers(const struct attn_layer *layer,
                             struct attn_buffer at[ATTN_LAYER_KEPT]);
void attn_layer_gradient_buffers(const struct attn_layer *layer,
                                 struct attn_buffer at[ATTN_LAYER_GRADIENTS]);

/* The cost of a pass of one process beside x, y, weights and their gradients, in closed form.
 * keeps: the forward pass keeps what the backward one needs, which is then live in both
 * (saved_bytes); shard_bytes are those of x, y, weights and gradients.  bf16 and f16 are priced
 * too, each buffer in its type (attn_cost.lacks). */
enum attn_status attn_layer_cost(const struct attn_layer *layer, const struct attn_impl *impl,
                                 const struct attn_options *options, enum attn_pass pass, int keeps,
                                 struct attn_cost *cost, struct attn_error *err);

#endif
