/* How errors grow with the number of parts that the keys are cut into (grade.h).  A check of its
 * own: no single run shows it. */
#ifndef TESTS_HARNESS_BOUND_GROWTH_H
#define TESTS_HARNESS_BOUND_GROWTH_H

#include "tests/harness/judge/runner.h"

enum { ATTN_GROWTH_POINTS = 4, ATTN_GROWTH_SEEDS = 8 }; /* 1, 2, 4, 8 parts */

struct attn_growth {
    const char *option;                             /* that says how many parts            */
    double error[ATTN_GROWTH_POINTS][ATTN_OUTPUTS]; /* largest |got - want|, as a geometric
                                                       mean over the seeds; 0: no output   */
    double slope[ATTN_OUTPUTS];                     /* of log error against log parts      */
    double worst;                                   /* the largest of these                */
    enum attn_output output;                        /* whose it is                         */
};

/* Can this implementation be cut into parts at all? */
int attn_growth_applies(const struct attn_impl *impl);

/* Run the fixed problem, of ATTN_GROWTH_SEEDS seeds from this one on, with 1, 2, 4 and 8 parts: one
 * seed leaves a slope uncertain by 0.16, eight by 0.06 (docs/bounds.md).  REFUSED when the
 * implementation has neither an option `ranks` nor `splits`; FAIL(growth) when a slope is above
 * ATTN_GROWTH_LIMIT.  Bounds are not judged: cases do that. */
void attn_growth_run(const struct attn_spec *spec, uint64_t seed, struct attn_growth *growth,
                     struct attn_result *result);

#endif
