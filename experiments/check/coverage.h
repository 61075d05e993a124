/* Coverage of a check: which values of the factors on which kernels branch, and which pairs, were
 * judged, only refused, or never met, by storage type: a verdict for one type is never read as one
 * for another.  Counted, and as tables of a page. */
#ifndef EXPERIMENTS_CHECK_COVERAGE_H
#define EXPERIMENTS_CHECK_COVERAGE_H

#include "experiments/check/verdicts.h"
#include "experiments/table/document.h"
#include "tests/harness/cases/tiers.h"

enum { ATTN_MET_JUDGED = 1, ATTN_MET_REFUSED = 2 }; /* in a case that it refused */

struct attn_coverage {
    unsigned char value[ATTN_FACTOR_IDS];                 /* of these, or-ed */
    unsigned char pair[ATTN_FACTOR_IDS][ATTN_FACTOR_IDS]; /* where both show */
};

/* Of the cases made of factors in one type (its place in the table), or in all: type < 0. */
void attn_coverage_count(const struct attn_tier_list *tier, const struct attn_verdict_list *list,
                         int type, struct attn_coverage *coverage);

/* A heading and a table for each type. */
void attn_coverage_put(struct attn_document *d, const struct attn_tier_list *tier,
                       const struct attn_verdict_list *list);

#endif
