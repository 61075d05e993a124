/* Rings, for schemes that have one: blocks of keys go round from rank to rank.  See ring.c;
 * attn_work_stop says which block a rank holds at which stop. */
#ifndef OPTIMIZED_PARALLEL_RING_H
#define OPTIMIZED_PARALLEL_RING_H

#include "optimized/parallel/sent.h"

/* K and V make R-1 hops, of every block but the one that is held last: that of the rank one
 * place and one window further.  dK and dV: R hops, the last one home, of every block. */
struct attn_sent attn_ring_sent(const struct attn_work *w);

/* ENOTSUP when windows do not fill the places. */
enum attn_status attn_ring_accepts(const struct attn_problem *whole,
                                   const struct attn_options *options, struct attn_error *err);

#endif
