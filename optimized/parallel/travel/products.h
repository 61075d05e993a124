/* The work of a rank at a stop: products of a stretch of queries with a stretch of keys, each a
 * problem of its own for the local implementation. */
#ifndef OPTIMIZED_PARALLEL_PRODUCTS_H
#define OPTIMIZED_PARALLEL_PRODUCTS_H

#include "optimized/parallel/work.h"

/* A piece of a piece: positions count from where the whole begins. */
struct attn_problem attn_piece_of(const struct attn_problem *whole, const struct attn_tokens *heads,
                                  const struct attn_tokens *queries,
                                  const struct attn_tokens *keys);

/* Certainly nothing to see here, in any batch and head. */
int attn_piece_is_hidden(const struct attn_problem *part);

/* Certainly every pair is visible, in each batch and head. */
int attn_piece_is_visible(const struct attn_problem *part);

/* A product: a stretch of the stop's queries with a stretch of its keys, for the heads of a local
 * call. */
struct attn_product {
    struct attn_problem part;
    struct attn_tokens heads, kv_heads;
    int call, query, key;         /* which stretches */
    int64_t batch;                /* of places: the product is of this batch alone */
    int64_t query_at, key_at;     /* where these begin in their blocks */
    int starts_query, starts_key; /* the result is the first of these queries, of these keys:
                                     it is written; later ones are added */
};

/* The next product of this stop in which some pair may be visible; 0: no more. */
int attn_work_next(struct attn_work *w, struct attn_product *x);

/* The price of the products of a stop: flops of all of them, and of those whose mask cuts them;
 * flops of merges and sums of gradients, and their passes over a block; visible pairs; the largest
 * of the local costs, the first in a tie. */
struct attn_stop_cost {
    int products, passes;
    double flops, masked_flops, folds, pairs;
    struct attn_cost largest;
};
enum attn_status attn_work_stop_cost(struct attn_work *w, struct attn_stop_cost *cost,
                                     struct attn_error *err);

/* The product of these stretches, whatever is visible.  Blocks of places are multiplied batch by
 * batch: the n-th. */
struct attn_product attn_work_product(const struct attn_work *w, int call, int query, int key,
                                      int64_t n);

#endif
