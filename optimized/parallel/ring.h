/* Rings, for schemes that have one: blocks of keys go round from rank to rank.  See ring.c. */
#ifndef OPTIMIZED_PARALLEL_RING_H
#define OPTIMIZED_PARALLEL_RING_H

#include "optimized/parallel/sent.h"

/* Ranks at places 0 to R-1 along an axis of the mesh, in windows of `inner` places.  Blocks go
 * round inside a window, inner-1 hops, then all hop to the next window.  One ring is a window of
 * all places. */
struct attn_ring {
    struct attn_axis axis;
    int inner;
    const char *places; /* what its scheme calls them */
};

/* All of these ask the scheme for its ring. */
int attn_ring_stops(const struct attn_options *options);
struct attn_stop attn_ring_stop(const struct attn_work *w, int n);
struct attn_round attn_ring_round(const struct attn_work *w, int n);

/* Keys: K and V make R-1 hops, of every block but the one that is held last: that of the rank one
 * place and one window further.  dK and dV: R hops, the last one home, of every block. */
struct attn_sent attn_ring_sent(const struct attn_work *w);

/* ENOTSUP when windows do not fill the places. */
enum attn_status attn_ring_accepts(const struct attn_problem *whole,
                                   const struct attn_options *options, struct attn_error *err);

#endif
