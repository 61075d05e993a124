/* The backward pass of `tiled`: dQ, dK, dV (and dBias) by recomputation from LSE. */
#ifndef OPTIMIZED_TILED_BACKWARD_H
#define OPTIMIZED_TILED_BACKWARD_H

#include "ref/attn.h"

enum attn_status attn_tiled_backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                     const struct attn_backward *t);

/* What it takes on options->threads threads of options->isa, to the byte. */
enum attn_status attn_tiled_backward_cost(const struct attn_problem *p,
                                          const struct attn_options *options,
                                          struct attn_cost *cost, struct attn_error *err);

/* Does a number of dbias belong to several pairs?  Its sum must then be made in one order. */
int attn_dbias_is_shared(const struct attn_problem *p, const struct attn_view *dbias);

#endif
