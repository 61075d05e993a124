/* Arithmetic on the rows of tensors [batch, heads, tokens, width]: all that a scheme does to
 * elements beside calling its local implementation.  Tensors have any strides but that features
 * are adjacent.  Sums and parts are both f64 or both f32.
 */
#ifndef OPTIMIZED_PARALLEL_SHARD_ROWS_H
#define OPTIMIZED_PARALLEL_SHARD_ROWS_H

#include "ref/attn.h"

struct attn_rows {
    int64_t batch, heads, tokens, width;
};

void attn_rows_clear(const struct attn_rows *n, const struct attn_view *x);

/* sum += part */
void attn_rows_add(const struct attn_rows *n, const struct attn_view *sum,
                   const struct attn_view *part);

/* The neutral element of the merge: o = 0, lse = -inf. */
void attn_rows_neutral(const struct attn_rows *n, const struct attn_view *o,
                       const struct attn_view *lse);

/* (o, lse) := (o, lse) merged with a part over other keys (ref/merge.h). */
void attn_rows_merge(const struct attn_rows *n, const struct attn_view *o,
                     const struct attn_view *lse, const struct attn_view *o_part,
                     const struct attn_view *lse_part);

/* to = from, rounded to the type of `to`. */
void attn_rows_round(const struct attn_rows *n, const struct attn_view *to,
                     const struct attn_view *from);

/* d = -D = dLSE - rowsum(dO . O), of rows in which some key is visible; else 0: o, dO and dLSE of
 * other rows may hold anything.  dO and o have the storage type of the problem; dLSE may have no
 * data. */
void attn_rows_minus_delta(const struct attn_rows *n, const struct attn_view *o,
                           const struct attn_view *lse, const struct attn_view *d_o,
                           const struct attn_view *d_lse, const struct attn_view *d);

#endif
