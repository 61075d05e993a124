/* See parts.h. */
#include "optimized/parts.h"

#include "optimized/integers.h"
#include "ref/merge.h"
#include "ref/problem.h"

void attn_parts_cut(int64_t n_key, int64_t block, int64_t asked, int64_t units, int64_t *parts,
                    int64_t *part)
{
    int64_t blocks = at_least_1(ceil_div(n_key, block)), n = asked;
    if (asked == 0)
        n = units == 0 || units >= 16 ? 1 : less(ceil_div(16, units), at_least_1(blocks / 8));
    *part = ceil_div(blocks, less(n, blocks)) * block;
    *parts = at_least_1(ceil_div(n_key, *part));
}

void attn_parts_buffers(const struct attn_kernels *kernels, int64_t count, int64_t rows, int64_t dv,
                        struct attn_buffer buffer[ATTN_PARTS])
{
    buffer[ATTN_PART_O] = attn_buffer_of("part.o", count * rows, dv, kernels->bytes);
    buffer[ATTN_PART_LSE] = attn_buffer_of("part.lse", count * rows, 1, kernels->bytes);
}

void *attn_parts_o(const struct attn_parts *x, int64_t n, int64_t row)
{
    return attn_buffer_at(&x->buffer[ATTN_PART_O], n * x->rows + row);
}

void *attn_parts_lse(const struct attn_parts *x, int64_t n, int64_t row)
{
    return attn_buffer_at(&x->buffer[ATTN_PART_LSE], n * x->rows + row);
}

void attn_parts_merge(const struct attn_parts *x, int64_t row, const struct attn_forward *t,
                      int64_t b, int64_t h, int64_t i)
{
    void *o = attn_parts_o(x, 0, row), *lse = attn_parts_lse(x, 0, row);
    int64_t dv = x->buffer[ATTN_PART_O].numbers, at = attn_offset(t->lse.stride, b, h, i);
    for (int64_t n = 1; n < x->count; n++) {
        const void *other = attn_parts_o(x, n, row), *other_lse = attn_parts_lse(x, n, row);
        if (x->kernels->bytes == 4)
            attn_merge_f32(o, lse, other, *(const float *)other_lse, dv);
        else
            attn_merge_f64(o, lse, other, *(const double *)other_lse, dv);
    }
    x->kernels->store_row(&t->o, b, h, i, dv, o);
    if (x->kernels->bytes == 4)
        ((float *)t->lse.data)[at] = *(const float *)lse;
    else
        ((double *)t->lse.data)[at] = *(const double *)lse;
}

void attn_parts_merge_row(const struct attn_parts *x, const struct attn_problem *p,
                          const struct attn_forward *t, int64_t row)
{
    int64_t i = row % p->n_query, h = row / p->n_query % p->heads, b = row / p->n_query / p->heads;
    attn_parts_merge(x, row, t, b, h, i);
}
