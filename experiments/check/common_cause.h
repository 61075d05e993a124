/* Diagnoses counted: one mistake shows in many cases, and what most of them look like is what is
 * wrong. */
#ifndef EXPERIMENTS_CHECK_COMMON_CAUSE_H
#define EXPERIMENTS_CHECK_COMMON_CAUSE_H

#include "tests/harness/faults/diagnose.h"

enum {
    ATTN_CAUSES = 64
}; /* different texts that are told apart; more count for their kind alone */

struct attn_common_cause {
    int diagnosed;      /* failures that look like something */
    int n[ATTN_FAULTS]; /* of them, by the kind of fault */
    struct {
        int fault, n;
        char text[256]; /* of the first; those that differ by their numbers alone are one */
    } of[ATTN_CAUSES];
};

/* Whether two texts differ by their numbers alone. */
int attn_says_the_same(const char *a, const char *b);

/* Put a diagnosis (NULL or "": none) behind the text of a failure. */
void attn_common_cause_append(struct attn_result *result, const struct attn_diagnosis *diagnosis);

/* Count what was put there.  Where failing elements are, without a cause, is no vote. */
void attn_common_cause_count(struct attn_common_cause *causes, const struct attn_result *result);

/* What most of those of the commonest kind of fault say, when at least two are of it, and how many
 * are; else NULL. */
const char *attn_common_cause_name(const struct attn_common_cause *causes, int *agree);

#endif
