/* Mask power: does a pass of a case prove that every key of its mask was seen or hidden?
 *
 * A case can have all its bounds right and still not see one key more or less, because that key's
 * weight is below the noise.  So each (row, key) pair is asked what its loss (where it is visible)
 * or its leak (where it is hidden) would do to O and LSE, as a multiple of their bounds:
 *
 *      lost     p |v - o| / (1 - p)    and  -ln(1 - p)
 *      leaked   p |v - o| / (1 + p)    and   ln(1 + p)          p = exp(s - LSE)
 *
 * Only if each would move something by ATTN_POWER_MIN bounds or more is the case admitted as a test
 * of its whole mask.  A label, not a verdict: it says what a pass proves.  Pairs that a bias of
 * -inf hides, or in rows that a NaN of the bias spoils, are not asked.
 *
 * Source: bugs.md B6, 8 (a checker's cases have a power of their own, which must be known). */
#ifndef TESTS_HARNESS_BOUND_MASK_POWER_H
#define TESTS_HARNESS_BOUND_MASK_POWER_H

#include "tests/harness/bound/bound.h"

#define ATTN_POWER_MIN 10.0

struct attn_mask_power {
    int64_t pairs;  /* asked; 0: none, or too many to ask (2^22) */
    int64_t seen;   /* of which one more or less would show      */
    double weakest; /* the smallest effect / bound               */
};

/* truth: of whole outputs, O and LSE at least. */
enum attn_status attn_mask_power_weigh(const struct attn_problem *problem,
                                       const struct attn_inputs *inputs,
                                       const struct attn_truth *truth,
                                       struct attn_mask_power *result, struct attn_error *err);

/* "every key", "12 of 40 pairs", "no key"; "" where nothing was asked.  Returns text. */
const char *attn_mask_power_words(const struct attn_mask_power *result, char text[64]);

#endif
