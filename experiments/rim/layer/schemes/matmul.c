/* See matmul.h.  Compiled for float, and once more for double by textbook_f64.c. */
#include "experiments/rim/layer/schemes/matmul.h"
#include "ref/real.h"

/* One row of sum, from one row of a: by columns of w that are adjacent, or by inner products. */
static void matmul_row(const struct attn_matmul *m, const real *a, const real *w, real *sum)
{
    if (m->w.stride[3] == 1)
        for (int64_t c = 0; c < m->inner; c++)
            axpy(a[c * m->a.stride[3]], w + c * m->w.stride[2], sum, m->columns);
    else
        for (int64_t j = 0; j < m->columns; j++)
            sum[j * m->sum.stride[3]] += dot(a, w + j * m->w.stride[3], m->inner);
}

void REAL_NAME(matmul)(const struct attn_matmul *m)
{
    for (int64_t b = 0; b < m->batch; b++)
        for (int64_t h = 0; h < m->heads; h++)
            for (int64_t i = 0; i < m->rows; i++)
                matmul_row(m, (const real *)m->a.data + attn_offset(m->a.stride, b, h, i),
                           (const real *)m->w.data + attn_offset(m->w.stride, b, h, 0),
                           (real *)m->sum.data + attn_offset(m->sum.stride, b, h, i));
}
