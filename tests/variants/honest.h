/* An honest implementation in many styles: what it computes is right, how it rounds is its own.
 *
 * For the tests of the bound only.  Whatever the style, the checker must not flag it; styles are
 * options, so that one record covers them all:
 *
 *   order    in which sums over keys and over rows are added: forward, reverse, pairwise
 *   exp      e, or two: log2(e) folded into the scale, exp2 and log2 for exp and log
 *   splits   the keys are cut into so many parts, partial results merged by optimized/merge.h
 *   p        exact, or P rounded to bf16 or f16 before it multiplies V and dO, as kernels do that
 *            feed it to 16-bit matrix units (the sum of P is not rounded); bf16 rounds dS as well
 *   delta    dot: D = dO . O - dLSE;  sum: D = sum_j P dP - dLSE
 */
#ifndef TESTS_VARIANTS_HONEST_H
#define TESTS_VARIANTS_HONEST_H

#include "ref/attn.h"

enum honest_order { HONEST_FORWARD, HONEST_REVERSE, HONEST_PAIRWISE };
enum honest_exp { HONEST_E, HONEST_TWO };
enum honest_p { HONEST_EXACT, HONEST_BF16, HONEST_F16 };
enum honest_delta { HONEST_DOT, HONEST_SUM };

/* Places in attn_options.value. */
enum { HONEST_ORDER, HONEST_EXP, HONEST_SPLITS, HONEST_P, HONEST_DELTA };

extern const struct attn_impl variant_honest;

#endif
