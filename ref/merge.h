/* Merging attention over disjoint sets of keys.
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
 *
 * The same fold without a normalised O on the way keeps the numerator N, its denominator l and the
 * largest LSE so far, m; a part is (O, 1, LSE):
 *
 *      m' = max(m, LSE_2)   N' = exp(m - m') N + exp(LSE_2 - m') O_2   l' the same with l and 1
 *
 * and at the end O = N / l, LSE = m + ln l.  m is one of the parts' LSEs, so that none is rounded
 * after the first time: the error is that of one merge by LSE, and of a rescale for each part more.
 * Where all parts are kept and m is the largest LSE of all from the beginning on, exp(m - m') = 1:
 * nothing is rescaled.
 *
 * Sources   Milakov & Gimelshein 2018; Liu et al. 2023 (ring attention keeps N, l, m); bugs SK-01,
 *           SN-02.
 */
#ifndef REF_MERGE_H
#define REF_MERGE_H

#include <math.h>
#include <stdint.h>

#define REAL       float
#define FN(name)   attn_##name##_f32
#define REAL_EXP   expf
#define REAL_LOG   logf
#define REAL_LOG1P log1pf
#include "ref/merge_tmpl.h"
#undef REAL
#undef FN
#undef REAL_EXP
#undef REAL_LOG
#undef REAL_LOG1P
#define REAL       double
#define FN(name)   attn_##name##_f64
#define REAL_EXP   exp
#define REAL_LOG   log
#define REAL_LOG1P log1p
#include "ref/merge_tmpl.h"
#undef REAL
#undef FN
#undef REAL_EXP
#undef REAL_LOG
#undef REAL_LOG1P

#endif
