/* An honest implementation in many styles: what it computes is right, how it rounds is its own.
 * For the tests of the bound and of the battery only: whatever the style, the checker must not flag
 * it.  Styles are options, so that one record covers them all:
 *
 *   order    in which sums over keys and over rows are added: forward, reverse, pairwise
 *   exp      e, or two: log2(e) folded into the scale, exp2 and log2 for exp and log
 *   splits   the number of parts of the keys, whose partial results are merged
 *   p        exact, or P rounded to bf16 or f16 before it multiplies V and dO, as kernels do that
 *            feed it to 16-bit matrix units (the sum of P is not rounded); bf16 rounds dS as well
 *   delta    dot: D = dO . O - dLSE;  sum: D = sum_j P dP - dLSE
 *
 *   arithmetic  what is rounded on the way, as a set of arithmetic.def allows it and declares it:
 *            plain: nothing.  fused: sums are cut as tensor cores cut them, P and dS rounded to
 *            storage, P before its division by l; fused-after: after it, sums to nearest.  unfused:
 *            scores, P, dP, dS and the gradients of each head are stored, each step by itself;
 *            unfused-one, unfused-both: with q, or q and k, multiplied by the scale first.  tf32:
 *            operands of products have 11 bits, sums are cut; tf32-cut: operands are cut as well.
 *            fa4: fused, with exp2 by a cubic, and a maximum that grows in steps of more than 8 in
 *            log2.  Three are declared by more than a word: dp (plain, dP is stored), flushed
 *            (fused, subnormals count as 0), f16-sums
 *
 * Inputs in 16 bits are widened, results are rounded to the storage type once.  Three more options
 * make that wrong in ways that shipped:
 *
 *   store    nearest: right.  truncate: the lower bits are dropped.  flush: a subnormal result is
 *            stored as 0.  saturate: the largest number instead of an infinity
 *   sum      float: right.  storage: partial results are kept in the storage type, O after every
 *            eight keys, dK and dV after every query head.  splits: O of each split is stored,
 *            which may be declared
 *   read     all: right.  normal: subnormal inputs count as 0
 *
 * And three are wrong by so little that the bound lets each element pass (test_grade.c):
 *
 *   p        cut: P is truncated to bf16.  products: P is exact, its products with V are truncated
 *   sum      bf16: O is rounded to bf16 after every merge of splits
 */
#ifndef TESTS_VARIANTS_HONEST_H
#define TESTS_VARIANTS_HONEST_H

#include "optimized/registry.h"

enum honest_order { HONEST_FORWARD, HONEST_REVERSE, HONEST_PAIRWISE };
enum honest_exp { HONEST_E, HONEST_TWO };
enum honest_p { HONEST_EXACT, HONEST_BF16, HONEST_F16, HONEST_CUT, HONEST_PRODUCTS };
enum honest_delta { HONEST_DOT, HONEST_SUM };
enum half_store { HALF_NEAREST, HALF_TRUNCATE, HALF_FLUSH, HALF_SATURATE };
enum half_sum { HALF_SUM_FLOAT, HALF_SUM_STORAGE, HALF_SUM_BF16, HALF_SUM_SPLITS };
enum half_read { HALF_READ_ALL, HALF_READ_NORMAL };
enum honest_arithmetic {
    HONEST_PLAIN,
    HONEST_FUSED,
    HONEST_FUSED_AFTER,
    HONEST_UNFUSED,
    HONEST_UNFUSED_ONE,
    HONEST_UNFUSED_BOTH,
    HONEST_TF32,
    HONEST_TF32_CUT,
    HONEST_FA4,
    HONEST_FLUSHED,
    HONEST_F16_SUMS,
    HONEST_DP,
    HONEST_ARITHMETICS
};

/* Places in attn_options.value. */
enum {
    HONEST_ORDER,
    HONEST_EXP,
    HONEST_SPLITS,
    HONEST_P,
    HONEST_DELTA,
    HALF_STORE,
    HALF_SUM,
    HALF_READ,
    HONEST_ARITHMETIC
};

/* x rounded to `bits` significant bits, with subnormals below 2^least: by the C library, not by
 * bits. */
double honest_round(double x, int bits, int least);

extern const struct attn_impl variant_honest; /* storage in f64 and f32   */
extern const struct attn_impl variant_half;   /* the same in bf16 and f16 */

/* One of the two, in a set of arithmetic: tf32 is of f32, the others are of bf16 and f16. */
struct attn_spec honest_spec(enum honest_arithmetic arithmetic);

#endif
