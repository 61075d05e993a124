/* See parts.h. */
#include "optimized/parts.h"

#include "optimized/merge.h"
#include "ref/ledger.h"
#include "ref/problem.h"

enum attn_status attn_parts_take(const struct attn_problem *p, const struct attn_kernels *kernels,
                                 int64_t count, struct attn_ctx *ctx, struct attn_parts *x)
{
    int64_t rows = p->batch * p->heads * p->n_query;
    *x = (struct attn_parts){kernels, count, rows, p->d_value, NULL, NULL};
    x->o = attn_ledger_take(ctx->ledger, "part.o", attn_product(count * rows, x->dv),
                            kernels->bytes, ctx->error);
    if (x->o != NULL)
        x->lse =
            attn_ledger_take(ctx->ledger, "part.lse", count * rows, kernels->bytes, ctx->error);
    return x->lse != NULL ? ATTN_OK : ATTN_ENOMEM;
}

void attn_parts_give(struct attn_parts *x, struct attn_ctx *ctx)
{
    attn_ledger_give(ctx->ledger, x->lse);
    attn_ledger_give(ctx->ledger, x->o);
}

void *attn_parts_o(const struct attn_parts *x, int64_t n, int64_t row)
{
    return (char *)x->o + (n * x->rows + row) * x->dv * x->kernels->bytes;
}

void *attn_parts_lse(const struct attn_parts *x, int64_t n, int64_t row)
{
    return (char *)x->lse + (n * x->rows + row) * x->kernels->bytes;
}

void attn_parts_merge(const struct attn_parts *x, const struct attn_problem *p,
                      const struct attn_forward *t, int64_t row)
{
    int64_t i = row % p->n_query, h = row / p->n_query % p->heads, b = row / p->n_query / p->heads;
    void *o = attn_parts_o(x, 0, row), *lse = attn_parts_lse(x, 0, row);
    for (int64_t n = 1; n < x->count; n++) {
        const void *other = attn_parts_o(x, n, row), *other_lse = attn_parts_lse(x, n, row);
        if (x->kernels->bytes == 4)
            attn_merge_f32(o, lse, other, *(const float *)other_lse, x->dv);
        else
            attn_merge_f64(o, lse, other, *(const double *)other_lse, x->dv);
    }
    x->kernels->store_row(&t->o, b, h, i, x->dv, o);
    int64_t at = attn_offset(t->lse.stride, b, h, i);
    if (x->kernels->bytes == 4)
        ((float *)t->lse.data)[at] = *(const float *)lse;
    else
        ((double *)t->lse.data)[at] = *(const double *)lse;
}
