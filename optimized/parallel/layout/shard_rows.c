/* See shard_rows.h. */
#include "optimized/parallel/layout/shard_rows.h"

#include <math.h>
#include <string.h>

#include "optimized/integers.h"
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

/* Numbers c to c + n of a row in the type of sums: where they lie, or in the buffer. */
enum { CHUNK = 64 };
static const float *widened(const struct attn_view *x, int64_t b, int64_t h, int64_t i, int64_t c,
                            int64_t n, float buffer[CHUNK])
{
    if (x->dtype == ATTN_F32)
        return f32(row_at(x, b, h, i)) + c;
    for (int64_t k = 0; k < n; k++)
        buffer[k] = (float)attn_view_get(x, b, h, i, c + k);
    return buffer;
}

static int64_t chunk_of(const struct attn_view *x, int64_t width)
{
    return x->dtype == ATTN_F32 ? at_least_1(width) : CHUNK;
}

void attn_rows_add(const struct attn_rows *n, const struct attn_view *sum,
                   const struct attn_view *part)
{
    int64_t chunk = chunk_of(part, n->width);
    FOR_ROWS(n)
    {
        char *to = row_at(sum, b, h, i);
        if (sum->dtype == ATTN_F64) {
            for (int64_t c = 0; c < n->width; c++)
                f64(to)[c] += f64(row_at(part, b, h, i))[c];
            continue;
        }
        for (int64_t c = 0; c < n->width; c += chunk) {
            float buffer[CHUNK];
            int64_t count = less(chunk, n->width - c);
            const float *from = widened(part, b, h, i, c, count, buffer);
            for (int64_t k = 0; k < count; k++)
                f32(to)[c + k] += from[k];
        }
    }
}

void attn_rows_neutral(const struct attn_rows *n, const struct attn_view *o,
                       const struct attn_view *lse)
{
    if (o != NULL)
        attn_rows_clear(n, o);
    FOR_ROWS(n)
    {
        if (lse->dtype == ATTN_F64)
            *f64(row_at(lse, b, h, i)) = -HUGE_VAL;
        else
            *f32(row_at(lse, b, h, i)) = -INFINITY;
    }
}

static void merge_f64(double *o, double *lse, double *l, const double *o2, double lse2, int64_t n)
{
    if (l != NULL)
        attn_accumulate_f64(o, l, lse, o2, lse2, n);
    else
        attn_merge_f64(o, lse, o2, lse2, n);
}

static void merge_f32(float *o, float *lse, float *l, const float *o2, float lse2, int64_t n)
{
    if (l != NULL)
        attn_accumulate_f32(o, l, lse, o2, lse2, n);
    else
        attn_merge_f32(o, lse, o2, lse2, n);
}

void attn_rows_merge(const struct attn_rows *n, const struct attn_view *o,
                     const struct attn_view *lse, const struct attn_view *l,
                     const struct attn_view *o_part, const struct attn_view *lse_part)
{
    int64_t chunk = chunk_of(o_part, n->width);
    FOR_ROWS(n)
    {
        char *to = row_at(o, b, h, i), *to_lse = row_at(lse, b, h, i);
        char *to_l = l != NULL ? row_at(l, b, h, i) : NULL, *from_lse = row_at(lse_part, b, h, i);
        if (o->dtype == ATTN_F64) {
            merge_f64(f64(to), f64(to_lse), f64(to_l), f64(row_at(o_part, b, h, i)), *f64(from_lse),
                      n->width);
            continue;
        }
        float lse_was = *f32(to_lse), l_was = l != NULL ? *f32(to_l) : 0;
        for (int64_t c = 0; c == 0 || c < n->width; c += chunk) { /* each from the same weights */
            float buffer[CHUNK], l_now = l_was;
            int64_t count = less(chunk, n->width - c);
            *f32(to_lse) = lse_was;
            merge_f32(f32(to) + c, f32(to_lse), l != NULL ? &l_now : NULL,
                      widened(o_part, b, h, i, c, count, buffer), *f32(from_lse), count);
            if (l != NULL && c + chunk >= n->width)
                *f32(to_l) = l_now;
        }
    }
}

void attn_rows_max(const struct attn_rows *n, const struct attn_view *max,
                   const struct attn_view *lse)
{
    FOR_ROWS(n)
    {
        double x = attn_view_get(lse, b, h, i, 0);
        if (x > attn_view_get(max, b, h, i, 0))
            attn_view_set(max, b, h, i, 0, x);
    }
}

void attn_rows_normalise(const struct attn_rows *n, const struct attn_view *o,
                         const struct attn_view *lse, const struct attn_view *l)
{
    FOR_ROWS(n)
    {
        char *num = row_at(o, b, h, i), *m = row_at(lse, b, h, i), *sum = row_at(l, b, h, i);
        if (o->dtype == ATTN_F64)
            attn_normalise_f64(f64(num), *f64(sum), f64(m), n->width);
        else
            attn_normalise_f32(f32(num), *f32(sum), f32(m), n->width);
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
