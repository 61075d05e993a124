/* Mends rows that a NaN or an infinity reached through a hidden pair of their tile.
 *
 * A tile of queries and keys that the mask cuts through is computed whole, with weights of exactly
 * 0 at hidden pairs.  That is right for all finite numbers; but 0 * inf and 0 * NaN are NaN, and so
 * a key that one query of a tile sees would reach another that does not.  Kernels do not look for
 * it.  Instead their results are read once, at the cost of a pass over the outputs; where a NaN is
 * among them, and an infinity or a NaN among the rows that visible pairs touch, those rows of the
 * result are computed again, pair by visible pair.
 *
 * Kernels do not read rows that no visible pair touches, so these need no mending. */
#ifndef OPTIMIZED_LEAK_H
#define OPTIMIZED_LEAK_H

#include "optimized/simd/kernels.h"

/* After a pass, on its complete outputs; O(outputs) time where all is finite, and no memory.  The
 * same bits for any number of threads. */
void attn_leak_mend_forward(const struct attn_problem *problem, const struct attn_forward *t,
                            const struct attn_kernels *kernels, int threads);
void attn_leak_mend_backward(const struct attn_problem *problem, const struct attn_backward *t,
                             const struct attn_kernels *kernels, int threads);

#endif
