/* The passes of `tiled`, over whatever says which keys the queries see: the mask itself, or a list
 * of blocks (bsr.c).  Backward: dQ, dK, dV (and dBias) by recomputation from LSE.
 *
 * options are those of `tiled`.  The bits of a result depend on which pairs are visible, and not
 * on the source of the runs. */
#ifndef OPTIMIZED_TILED_H
#define OPTIMIZED_TILED_H

#include "optimized/simd/mask_cursor.h"
#include "ref/attn.h"
#include "ref/impl.h"

extern const struct attn_impl attn_impl_tiled;

enum attn_status attn_tiled_forward(struct attn_ctx *ctx, const struct attn_problem *p,
                                    struct attn_runs runs, const struct attn_forward *t);
enum attn_status attn_tiled_backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                     struct attn_runs runs, const struct attn_backward *t);

/* The price of the backward pass (attn_impl.cost has both). */
enum attn_status attn_tiled_backward_cost(const struct attn_problem *p,
                                          const struct attn_options *options,
                                          struct attn_cost *cost, struct attn_error *err);

/* Does a number of dbias belong to several pairs?  Its sum must then be made in one order. */
int attn_dbias_is_shared(const struct attn_problem *p, const struct attn_view *dbias);

#endif
