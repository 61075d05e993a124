/* Partial results: attention of every query over each of several parts of the keys, to be merged
 * (merge.h) in the order of the parts.  What a part is follows from problem and spec, never from
 * the number of threads. */
#ifndef OPTIMIZED_PARTS_H
#define OPTIMIZED_PARTS_H

#include "optimized/simd/kernels.h"
#include "ref/attn.h"

/* Numbers are of the arithmetic type; o is normalised, lse in natural logarithms. */
struct attn_parts {
    const struct attn_kernels *kernels;
    int64_t count, rows, dv; /* rows = B * H * Lq */
    void *o, *lse;           /* [count][B,H,Lq][dv], [count][B,H,Lq] */
};

/* From the ledger, as "part.o" and "part.lse".  ENOMEM leaves what was taken in parts. */
enum attn_status attn_parts_take(const struct attn_problem *p, const struct attn_kernels *kernels,
                                 int64_t count, struct attn_ctx *ctx, struct attn_parts *parts);
void attn_parts_give(struct attn_parts *parts, struct attn_ctx *ctx); /* zeroed ones are legal */

/* Where part number n of row (b,h,i) goes. */
void *attn_parts_o(const struct attn_parts *parts, int64_t n, int64_t row);
void *attn_parts_lse(const struct attn_parts *parts, int64_t n, int64_t row);

/* All parts of a row into the first, and that to the tensors.  row = (b * H + h) * Lq + i. */
void attn_parts_merge(const struct attn_parts *parts, const struct attn_problem *p,
                      const struct attn_forward *t, int64_t row);

#endif
