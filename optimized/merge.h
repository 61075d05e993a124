/* Merging attention over two disjoint sets of keys.
 *
 * What a set of keys K contributes to one query is the pair (O, LSE): the softmax average of V
 * over K, and ln sum_{j in K} exp S_j.  The union of two sets has
 *
 *      LSE = ln(exp LSE_1 + exp LSE_2)      O = w_1 O_1 + w_2 O_2,   w_n = exp(LSE_n - LSE)
 *
 * so pairs form a commutative monoid: the order in which blocks of keys arrive does not matter
 * but for rounding.  Its neutral element is (0, -inf), the empty set.  Ring attention, split-KV
 * and paged decoding are folds with this operation.
 *
 * The larger LSE is taken out first, so that nothing overflows: with e = exp(min - max) <= 1,
 *
 *      LSE = max + ln(1 + e)      w_larger = 1 / (1 + e)      w_smaller = e / (1 + e)
 *
 * (ln(1 + exp(LSE_2 - LSE_1)), as it stood in ring-flash-attention until PR 34, overflows once the
 * gap exceeds 88 in float).  max - max at (-inf, -inf) would be NaN: that case is the empty set.
 *
 * Rounding  One merge gives each weight a relative error of a few u, and stores LSE with an error
 *           of u |LSE|, which the next merge sees as a relative error of its weights: a fold over n
 *           blocks is off by about n u (|LSE| + a few), relative to the terms of the sum.
 * Not finite  A NaN in either LSE or O gives NaN.  LSE = +inf (some score overflowed) gives NaN.
 * Sources   Milakov & Gimelshein 2018; Liu et al. 2023 (ring attention); bugs SK-01, SN-02.
 */
#ifndef OPTIMIZED_MERGE_H
#define OPTIMIZED_MERGE_H

#include <math.h>
#include <stdint.h>

/* (o, lse) := (o, lse) merged with (o2, lse2); o and o2 are rows of n. */
static inline void attn_merge_f32(float *o, float *lse, const float *o2, float lse2, int64_t n)
{
    float lse1 = *lse;
    if (lse1 == -INFINITY && lse2 == -INFINITY) {
        for (int64_t c = 0; c < n; c++)
            o[c] = 0;
        return;
    }
    int first_larger = lse1 >= lse2; /* with a NaN: false, and the NaN is in the difference */
    float max = first_larger ? lse1 : lse2, min = first_larger ? lse2 : lse1;
    float e = expf(min - max);
    float larger = 1 / (1 + e), smaller = e / (1 + e);
    float w1 = first_larger ? larger : smaller, w2 = first_larger ? smaller : larger;
    for (int64_t c = 0; c < n; c++)
        o[c] = w1 * o[c] + w2 * o2[c];
    *lse = max + log1pf(e);
}

/* The same in double. */
static inline void attn_merge_f64(double *o, double *lse, const double *o2, double lse2, int64_t n)
{
    double lse1 = *lse;
    if (lse1 == -HUGE_VAL && lse2 == -HUGE_VAL) {
        for (int64_t c = 0; c < n; c++)
            o[c] = 0;
        return;
    }
    int first_larger = lse1 >= lse2;
    double max = first_larger ? lse1 : lse2, min = first_larger ? lse2 : lse1;
    double e = exp(min - max);
    double larger = 1 / (1 + e), smaller = e / (1 + e);
    double w1 = first_larger ? larger : smaller, w2 = first_larger ? smaller : larger;
    for (int64_t c = 0; c < n; c++)
        o[c] = w1 * o[c] + w2 * o2[c];
    *lse = max + log1p(e);
}

#endif
