/* Merging attention over disjoint sets of keys.
 *
 * A block J of keys contributes the pair (O, LSE) to one query: the softmax average of V over J,
 * and ln sum_{j in J} exp S_j.  The union of two blocks has
 *
 *      LSE = ln(exp LSE_1 + exp LSE_2)      O = exp(LSE_1 - LSE) O_1 + exp(LSE_2 - LSE) O_2
 *
 * so pairs form a commutative monoid: the order in which blocks of keys arrive does not matter
 * but for rounding.  Its neutral element is (0, -inf), the empty set.  Ring attention, split-KV
 * and paged decoding are folds with this operation.
 *
 * The larger LSE is taken out first, so that nothing overflows: with alpha = exp(min - max) <= 1,
 *
 *      LSE = max + ln(1 + alpha),     and the factors are 1 / (1 + alpha) and alpha / (1 + alpha)
 *
 * (ln(1 + exp(LSE_2 - LSE_1)), as it stood in ring-flash-attention until PR 34, overflows once the
 * gap exceeds 88 in float).  max - max at (-inf, -inf) would be NaN: that case is the empty set.
 *
 * Rounding  One merge gives each weight a relative error of a few u, and stores LSE with an error
 *           of u |LSE|, which the next merge sees as a relative error of its weights: a fold over n
 *           blocks is off by about n u (|LSE| + a few), relative to the terms of the sum.
 * Not finite  A NaN in either LSE or O gives NaN.  LSE = +inf (some score overflowed) gives NaN.
 *
 * Sources   Milakov & Gimelshein 2018; Liu et al. 2023 (ring attention); bugs SK-01, SN-02.
 */
#ifndef REF_MERGE_H
#define REF_MERGE_H

#include <math.h>
#include <stdint.h>

#define REAL       float
#define FN(name)   attn_##name##_f32
#define REAL_EXP   expf
#define REAL_LOG1P log1pf
#include "ref/merge_tmpl.h"
#undef REAL
#undef FN
#undef REAL_EXP
#undef REAL_LOG1P
#define REAL       double
#define FN(name)   attn_##name##_f64
#define REAL_EXP   exp
#define REAL_LOG1P log1p
#include "ref/merge_tmpl.h"
#undef REAL
#undef FN
#undef REAL_EXP
#undef REAL_LOG1P

#endif
