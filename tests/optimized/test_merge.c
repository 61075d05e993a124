/* The monoid of partial attention (ref/merge.h): neutral element, commutative, associative
 * within a derived bound, and what must not become NaN or must stay NaN.  Catalogue: R18, SK-01. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ref/merge.h"
#include "tests/harness/base/fill.h"
#include "tests/suites.h"

SUITE(merge);

enum { WIDTH = 5 };

/* A partial result in either type; f64 has the values, f32 their roundings. */
struct partial {
    double o[WIDTH], lse;
    float o32[WIDTH], lse32;
};

static struct partial make(uint64_t seed, double lse)
{
    struct partial x = {.lse = lse, .lse32 = (float)lse};
    for (int c = 0; c < WIDTH; c++) {
        x.o32[c] = (float)(lse == -HUGE_VAL ? 0 : attn_hash_normal(seed, 1, (uint64_t)c));
        x.o[c] = (double)x.o32[c];
    }
    return x;
}

static void merge(struct partial *x, const struct partial *y)
{
    attn_merge_f64(x->o, &x->lse, y->o, y->lse, WIDTH);
    attn_merge_f32(x->o32, &x->lse32, y->o32, y->lse32, WIDTH);
}

static struct partial merged(const struct partial *x, const struct partial *y)
{
    struct partial z = *x;
    merge(&z, y);
    return z;
}

static void ck_same(const struct partial *x, const struct partial *y)
{
    ck_assert_mem_eq(x->o, y->o, sizeof x->o);
    ck_assert_mem_eq(x->o32, y->o32, sizeof x->o32);
    ck_assert_mem_eq(&x->lse, &y->lse, sizeof x->lse);
    ck_assert_mem_eq(&x->lse32, &y->lse32, sizeof x->lse32);
}

static const double levels[] = {0,   1,    -1,  0.3,  -87,   88,   -104,
                                120, -120, 710, -750, 32768, -3e5, 1e30};
enum { LEVELS = sizeof levels / sizeof *levels };

/* ---- the empty set --------------------------------------------------------------------------- */

TEST_EACH(empty_is_neutral, LEVELS)
{
    struct partial x = make(7, levels[_i]), empty = make(0, -HUGE_VAL);
    struct partial left = merged(&empty, &x), right = merged(&x, &empty);
    struct partial none = merged(&empty, &empty);
    ck_same(&left, &x);
    ck_same(&right, &x);
    ck_same(&none, &empty);
}

/* ---- order ----------------------------------------------------------------------------------- */

TEST_EACH(commutative_to_the_bit, LEVELS)
{
    for (int n = 0; n < LEVELS; n++) {
        struct partial x = make(1, levels[_i]), y = make(2, levels[n]);
        struct partial xy = merged(&x, &y), yx = merged(&y, &x);
        ck_same(&xy, &yx);
    }
}

/* The truth of a union: all at once, in long double. */
struct truth {
    long double o[WIDTH], lse, size; /* size: largest |o| of the parts */
};

static struct truth truth_of(const struct partial *part, int n)
{
    struct truth t = {{0}, 0, 0};
    long double max = -HUGE_VALL, l = 0;
    for (int i = 0; i < n; i++)
        max = fmaxl(max, (long double)part[i].lse);
    if (max == -HUGE_VALL)
        return (struct truth){{0}, -HUGE_VALL, 0};
    for (int i = 0; i < n; i++)
        l += expl((long double)part[i].lse - max);
    t.lse = max + logl(l);
    for (int i = 0; i < n; i++)
        for (int c = 0; c < WIDTH; c++) {
            t.o[c] += expl((long double)part[i].lse - t.lse) * (long double)part[i].o[c];
            t.size = fmaxl(t.size, fabsl((long double)part[i].o[c]));
        }
    return t;
}

/* How far a tree of n - 1 merges may be from the truth, in units of u.
 *
 * One merge.  With gap = max - min, e = exp(-gap) is off by e (u gap + exp's 2 u), and x exp(-x) <=
 * 1/e, so by at most 3 u absolutely; 1 + e, the divisions and the two products and the sum make 5
 * more: weights are off by at most 8 u.  LSE = max + log1p(e) is off by 3 u (from e) + 2 u (log1p)
 * + u |LSE| (the last rounding).
 * Later merges.  An LSE that is off by x changes the weights of the next merge by the factor e^x:
 * with at most n - 1 merges on the way of a part, its weight is off by (n-1) u (8 + 5 + |LSE|), and
 * so is the result, relative to the largest part.  Second order: a factor 1.1 (u n |LSE| < 0.05
 * here). */
static long double bound_of(const struct truth *t, int n, long double u)
{
    return 1.1L * (long double)(n - 1) * u * (13 + fabsl(t->lse)) + 1e-44L;
}

static void ck_close(const struct partial *x, const struct truth *t, int n)
{
    long double b64 = bound_of(t, n, 0x1p-53L), b32 = bound_of(t, n, 0x1p-24L);
    for (int c = 0; c < WIDTH; c++) {
        int ok64 = fabsl((long double)x->o[c] - t->o[c]) <= b64 * t->size;
        int ok32 = fabsl((long double)x->o32[c] - t->o[c]) <= b32 * t->size;
        ck_assert_msg(ok64, "f64 o[%d] = %.17g, not %.17Lg", c, x->o[c], t->o[c]);
        ck_assert_msg(ok32, "f32 o[%d] = %.9g, not %.9Lg", c, (double)x->o32[c], t->o[c]);
    }
    int ok64 = fabsl((long double)x->lse - t->lse) <= b64;
    int ok32 = fabsl((long double)x->lse32 - t->lse) <= b32;
    ck_assert_msg(ok64, "f64 lse = %.17g, not %.17Lg", x->lse, t->lse);
    ck_assert_msg(ok32, "f32 lse = %.9g, not %.9Lg", (double)x->lse32, t->lse);
}

/* LSEs that float holds exactly, so that both types have the same truth. */
static double random_lse(uint64_t seed, uint64_t n, double spread)
{
    return (double)(float)(spread * (attn_hash_uniform(seed, 2, n) - 0.5));
}

enum { PARTS = 64 };

/* n parts, a few of them empty; their LSEs are equal, near, or so far apart that a weight is 0. */
static void draw(struct partial x[PARTS], int n, uint64_t seed)
{
    static const double spread[] = {0, 1, 40, 1000, 20000};
    for (uint64_t i = 0; i < (uint64_t)n; i++)
        x[i] = make(seed * PARTS + i, attn_hash(seed, 3, i) % 8 == 0
                                          ? -HUGE_VAL
                                          : random_lse(seed, i, spread[seed % 5]));
}

static void ck_true(const struct partial *x, const struct truth *t, int n)
{
    struct partial empty = make(0, -HUGE_VAL);
    if (t->lse == -HUGE_VALL)
        ck_same(x, &empty);
    else
        ck_close(x, t, n);
}

/* Merge random pairs until one is left: any tree over n parts. */
TEST_EACH(any_tree_of_many, 20)
{
    for (int n = 1; n <= PARTS; n++) {
        const uint64_t seed = (uint64_t)_i;
        struct partial x[PARTS];
        draw(x, n, seed);
        struct truth t = truth_of(x, n);
        for (int left = n; left > 1; left--) {
            int a = (int)(attn_hash(seed, 4, (uint64_t)left) % (uint64_t)(left - 1));
            merge(&x[a], &x[left - 1]);
        }
        ck_true(&x[0], &t, n);
    }
}
