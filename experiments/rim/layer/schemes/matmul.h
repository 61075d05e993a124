/* Products of matrices over batches and heads, for the projections of a layer (layer.h).
 *
 *      sum[b,h,i,j] += sum_c a[b,h,i,c] w[b,h,c,j]        i < rows, c < inner, j < columns
 *
 * A stride of 0 does what it says: of an input the same matrix for every b or h, of `sum` one
 * matrix to which all of them are added.  A transposed matrix is one with its last two strides
 * exchanged.  Adjacent in memory are either the columns of w and of sum, or the inner index of a
 * and of w.  Arithmetic is that of the type, f64 or f32.  The order of sums depends on nothing but
 * the extents.
 */
#ifndef EXPERIMENTS_RIM_LAYER_SCHEMES_MATMUL_H
#define EXPERIMENTS_RIM_LAYER_SCHEMES_MATMUL_H

#include "ref/problem.h"

struct attn_matmul {
    struct attn_view sum;
    struct attn_cview a, w; /* of the type of sum */
    int64_t batch, heads, rows, inner, columns;
};

void attn_matmul_f32(const struct attn_matmul *m);
void attn_matmul_f64(const struct attn_matmul *m);

static inline void attn_matmul(const struct attn_matmul *m)
{
    if (m->sum.dtype == ATTN_F64)
        attn_matmul_f64(m);
    else
        attn_matmul_f32(m);
}

#endif
