/* The pieces that both halves of row_bound.h share: sizes, small functions of bounds, and stretches
 * of keys.  For row_bound.c and row_bound_backward.c alone. */
#ifndef TESTS_HARNESS_BOUND_ROW_BOUND_PARTS_H
#define TESTS_HARNESS_BOUND_ROW_BOUND_PARTS_H

#include <string.h>

#include "ref/problem.h"
#include "tests/harness/bound/row_bound.h"

/* Keys go by in stretches, columns in groups of vectors.  Those of the last vectors may
 * lie beyond the width: they read what stands there, and their sums are not used. */
enum { STRETCH = 16, COLUMNS = 8, VECTORS = COLUMNS / ATTN_LANES };

static inline int64_t whole_vectors(int64_t width)
{
    return (width + COLUMNS - 1) / COLUMNS * COLUMNS;
}

/* Where the next row of k and v stands: apart, so that a stretch of rows whose width is a power of
 * two has its columns in different sets of the cache. */
static inline int64_t stride_of(int64_t width)
{
    return width + COLUMNS;
}

/* The sum of sizes of a row of q or dO, of what is finite.  terms: how many are not 0: what is
 * multiplied by 0 adds 0 to a sum, and that is exact in any order. */
static inline double size_of(const struct attn_cview *from, int64_t b, int64_t h, int64_t i,
                             int64_t width, double *norm, double *terms)
{
    double size = 0, squares = 0, others = 0, part[64];
    for (int64_t c = 0; c < width; c++) {
        if (c % 64 == 0)
            attn_cview_row(from, (int64_t[4]){b, h, i, c}, width - c < 64 ? width - c : 64, part);
        double value = part[c % 64], x = attn_finite_part(fabs(value));
        others += value != 0;
        size += x;
        squares += x * x;
    }
    *terms = others;
    *norm = sqrt(squares);
    return size;
}

/* e^x - 1 to within rounding: most x are so small that a few terms are all of it. */
static inline double little_exp_minus_1(double x)
{
    return x * (1 + x / 2 * (1 + x * (1.0 / 3) * (1 + x / 4)));
}

static inline double exp_minus_1(double x)
{
    return fabs(x) < 0x1p-13 ? little_exp_minus_1(x) : expm1(x);
}

/* 1: so small are all of them. */
static inline int are_little(const double *x, int64_t n)
{
    int are = 1;
    for (int64_t m = 0; m < n; m++)
        are &= fabs(x[m]) < 0x1p-13;
    return are;
}

/* p (e^tau - 1), the most by which a probability can grow: through exp(s - LSE + tau) when tau is
 * large, because p alone may have underflowed while its product has not. */
static inline double swell(const struct attn_oracle_row *row, int64_t n, double tau)
{
    return tau < 1 ? row->p[n] * exp_minus_1(tau) : exp(row->s[n] - row->lse + tau);
}

/* Of each key. */
ATTN_ANY_WIDTH static void swell_keys(const struct attn_oracle_row *row, const double *tau,
                                      double *restrict swollen)
{
    const int64_t keys = row->n;
    const double *p = row->p;
    if (are_little(tau, keys))
        for (int64_t n = 0; n < keys; n++)
            swollen[n] = p[n] * little_exp_minus_1(tau[n]);
    else
        for (int64_t n = 0; n < keys; n++)
            swollen[n] = swell(row, n, tau[n]);
}

/* 4.6: the same of the sink, a key of score z whose value is 0. */
static inline double swell_sink(const struct attn_oracle_row *row, double tau)
{
    return tau < 1 ? row->p_sink * exp_minus_1(tau) : exp(row->z - row->lse + tau);
}

/* Its score: read, perhaps times log2 e, perhaps stored beside the others. */
static inline double sink_error(const struct attn_precision *a, double z)
{
    return 3 * a->u * fabs(z) + a->u_s * fabs(z) + (a->u_s > 0 ? a->tiny_inner : 0);
}

/* x y, where 0 stays 0 whatever the other is: a bound may be infinite, not undefined.  Multiplied
 * first and chosen then: so compilers make vectors of it. */
static inline double times(double x, double y)
{
    double product = x * y;
    return x == 0 || y == 0 ? 0 : product;
}

/* Of two numbers, compared where compilers make vectors of it. */
static inline double greater(double x, double y)
{
    return x > y ? x : y;
}

/* The smaller of a bound and a cap; a bound that overflowed to NaN is the cap. */
static inline double at_most(double bound, double cap)
{
    return bound <= cap ? bound : cap;
}

/* 2.3: may x.y be an infinity on its way, for this row and any key, seen or not?  The sizes are
 * Euclid's, whose product no sum of |x_c y_c| exceeds. */
static inline int overflows(const struct attn_precision *a, double u, double x, double y)
{
    return (u > 0 && attn_may_overflow(a, x * y * (1 + 8 * u))) || attn_sum_may_overflow(a, x * y);
}

/* The rows' keys n0 to n0 + STRETCH, which may lie beyond the last. */
static inline int64_t stretch_end(const struct attn_oracle_row *row, int64_t n0)
{
    return n0 + STRETCH < row->n ? n0 + STRETCH : row->n;
}

/* Three rows of sums, and a copy of what they are about. */
static inline void clear_sums(int64_t width, const double *about, struct attn_row_bound *x)
{
    x->is_finite = 1;
    for (int64_t c = 0; c < width; c++)
        x->is_finite &= isfinite(about[c]);
    memset(x->sum, 0, (size_t)(4 * whole_vectors(width)) * sizeof *x->sum);
    memcpy(x->sum + 3 * whole_vectors(width), about, (size_t)width * sizeof *about);
}

static inline int64_t longest(int n_rows, const struct attn_oracle_row *const *rows)
{
    int64_t n = 0;
    for (int r = 0; r < n_rows; r++)
        n = rows[r]->n > n ? rows[r]->n : n;
    return n;
}

/* A key of a stretch: its row of k or v, and what weighs it. */
struct weighed {
    const double *row;
    double error, size, both, flushed;
};

#endif
