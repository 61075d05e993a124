/* Which pairs of blocks have the same products, so that a price looks at one of them; and which
 * have none. */
#ifndef OPTIMIZED_PARALLEL_ALIKE_H
#define OPTIMIZED_PARALLEL_ALIKE_H

#include "optimized/parallel/work.h"

/* Pairs of blocks in a row: (query, key), and then so many ranks further on, each time. */
struct attn_line {
    int query, key, query_step, key_step;
};

/* How many of the first n pairs of a line have certainly the same products: at least 1.  Ranks at
 * the places of a line are neighbours; alike.c says why its two ends are enough. */
int attn_work_alike(const struct attn_work *w, struct attn_line line, int n);

/* Nothing to see in any pair of stretches of these two ranks' blocks. */
int attn_blocks_hidden(const struct attn_problem *whole, const struct attn_layout *work, int query,
                       int key);

#endif
