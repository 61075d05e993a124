/* How far two computations of one layer (schemes/layer.h) may be apart, in any order of summation
 * and over any ranks: a certified bound for each tensor, from norms of inputs, q, k, v and dO.
 * docs/bounds.md has the finer bound for attention alone, element by element; this one is for a
 * whole layer, whose intermediate results no bound element by element survives.
 */
#ifndef EXPERIMENTS_RIM_LAYER_LAYER_BOUND_H
#define EXPERIMENTS_RIM_LAYER_LAYER_BOUND_H

#include "experiments/rim/layer/schemes/layer.h"

/* The results of a layer. */
enum { ATTN_LAYER_Y, ATTN_LAYER_DX, ATTN_LAYER_DWQKV, ATTN_LAYER_DWO, ATTN_LAYER_RESULTS };
extern const char *const attn_layer_result_name[ATTN_LAYER_RESULTS]; /* "y", "dx", ... */

/* Largest error of an element of each, against the exact layer; two computations may differ by
 * twice as much.  dy NULL: of y only. */
struct attn_layer_bound {
    double at[ATTN_LAYER_RESULTS];
};
struct attn_layer_bound attn_layer_bound(const struct attn_layer *layer, const void *x,
                                         const void *wqkv, const void *wo, const void *dy);

/* Elements of a result, or of the tensor that it is the gradient of. */
int64_t attn_layer_result_count(const struct attn_layer *layer, int result);

#endif
