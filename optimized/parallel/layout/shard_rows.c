/* See shard_rows.h. */
#include "optimized/parallel/layout/shard_rows.h"

#include <math.h>
#include <string.h>

#include "ref/merge.h"
#include "ref/problem.h"

/* FOR_ROWS: b, h, i of every row. */
#define FOR_ROWS(n)                              \
    for (int64_t b = 0; b < (n)->batch; b++)     \
        for (int64_t h = 0; h < (n)->heads; h++) \
            for (int64_t i = 0; i < (n)->tokens; i++)

static char *row_at(const struct attn_view *x, int64_t b, int64_t h, int64_t i)
{
    return (char *)x->data + attn_offset(x->stride, b, h, i) * (int64_t)attn_dtype_size(x->dtype);
}

static double *f64(char *row)
{
    return (double *)(void *)row;
}

static float *f32(char *row)
{
    return (float *)(void *)row;
}

void attn_rows_clear(const struct attn_rows *n, const struct attn_view *x)
{
    FOR_ROWS(n) memset(row_at(x, b, h, i), 0, (size_t)n->width * attn_dtype_size(x->dtype));
}

void attn_rows_add(const struct attn_rows *n, const struct attn_view *sum,
                   const struct attn_view *part)
{
    FOR_ROWS(n)
    {
        char *to = row_at(sum, b, h, i), *from = row_at(part, b, h, i);
        for (int64_t c = 0; c < n->width && sum->dtype == ATTN_F64; c++)
            f64(to)[c] += f64(from)[c];
        for (int64_t c = 0; c < n->width && sum->dtype == ATTN_F32; c++)
            f32(to)[c] += f32(from)[c];
    }
}

void attn_rows_neutral(const struct attn_rows *n, const struct attn_view *o,
                       const struct attn_view *lse)
{
    attn_rows_clear(n, o);
    FOR_ROWS(n)
    {
        if (lse->dtype == ATTN_F64)
            *f64(row_at(lse, b, h, i)) = -HUGE_VAL;
        else
            *f32(row_at(lse, b, h, i)) = -INFINITY;
    }
}

void attn_rows_merge(const struct attn_rows *n, const struct attn_view *o,
                     const struct attn_view *lse, const struct attn_view *o_part,
                     const struct attn_view *lse_part)
{
    FOR_ROWS(n)
    {
        char *to = row_at(o, b, h, i), *to_lse = row_at(lse, b, h, i);
        char *from = row_at(o_part, b, h, i), *from_lse = row_at(lse_part, b, h, i);
        if (o->dtype == ATTN_F64)
            attn_merge_f64(f64(to), f64(to_lse), f64(from), *f64(from_lse), n->width);
        else
            attn_merge_f32(f32(to), f32(to_lse), f32(from), *f32(from_lse), n->width);
    }
}

void attn_rows_round(const struct attn_rows *n, const struct attn_view *to,
                     const struct attn_view *from)
{
    FOR_ROWS(n)
    for (int64_t c = 0; c < n->width; c++)
        attn_view_set(to, b, h, i, c, attn_view_get(from, b, h, i, c));
}

void attn_rows_minus_delta(const struct attn_rows *n, const struct attn_view *o,
                           const struct attn_view *lse, const struct attn_view *d_o,
                           const struct attn_view *d_lse, const struct attn_view *d)
{
    FOR_ROWS(n)
    {
        int sees = attn_view_get(lse, b, h, i, 0) != -HUGE_VAL;
        float sum_f32 = 0;
        double sum = 0;
        for (int64_t c = 0; c < n->width && sees; c++) {
            double x = attn_view_get(d_o, b, h, i, c), y = attn_view_get(o, b, h, i, c);
            if (d->dtype == ATTN_F64)
                sum += x * y;
            else
                sum_f32 += (float)x * (float)y;
        }
        double from_lse = d_lse->data != NULL && sees ? attn_view_get(d_lse, b, h, i, 0) : 0;
        if (d->dtype == ATTN_F64)
            *f64(row_at(d, b, h, i)) = from_lse - sum;
        else
            *f32(row_at(d, b, h, i)) = (float)from_lse - sum_f32;
    }
}
