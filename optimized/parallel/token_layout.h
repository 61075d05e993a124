/* Which tokens a rank has.
 *
 * A layout deals n tokens out to P ranks in stretches {first, step, n}, in constant memory:
 *
 *      contiguous   rank r has the r-th of P runs                          0 0 0 1 1 1 2 2 2 3 3 3
 *      striped      rank r has tokens r, r+P, r+2P, ...                    0 1 2 3 0 1 2 3 0 1 2 3
 *      zigzag       rank r has runs r and 2P-1-r of 2P: two stretches      0 1 2 3 3 2 1 0 (runs)
 *
 * Any n will do: the sizes of runs differ by one at most, the longer ones come first, and where
 * n is less than P (2P) some are empty.  Under a causal mask the last rank of a contiguous layout
 * works P times as long as the first; the other two share the pairs out.
 *
 * A rank keeps its stretches one behind the other.
 * Source: Brandon et al. 2023 (striped), zhuzilin/ring-flash-attention (zigzag).
 */
#ifndef OPTIMIZED_PARALLEL_TOKEN_LAYOUT_H
#define OPTIMIZED_PARALLEL_TOKEN_LAYOUT_H

#include "ref/mask/mask.h"

enum attn_order { ATTN_CONTIGUOUS, ATTN_STRIPED, ATTN_ZIGZAG };
enum { ATTN_MAX_STRETCHES = 2 };

struct attn_layout {
    enum attn_order order;
    int ranks;
};

int attn_layout_stretches(const struct attn_layout *layout); /* of each rank: 1, zigzag 2 */

/* Stretch s of what rank r has of n tokens. */
struct attn_tokens attn_layout_stretch(const struct attn_layout *layout, int64_t n, int r, int s);

/* How many tokens rank r has, and the rank that has most of them. */
int64_t attn_layout_tokens(const struct attn_layout *layout, int64_t n, int r);
int64_t attn_layout_most(const struct attn_layout *layout, int64_t n);

#endif
