/* Diagnoses counted: one mistake shows in many cases, and what most look like is wrong. */
#ifndef EXPERIMENTS_CHECK_COMMON_CAUSE_H
#define EXPERIMENTS_CHECK_COMMON_CAUSE_H

#include "tests/harness/judge/runner.h"

enum {
    ATTN_CAUSES = 64
}; /* different texts that are told apart; more count for their kind alone */

struct attn_common_cause {
    int diagnosed, asked;             /* failures that look like something; and others */
    int n[ATTN_FAULTS + ATTN_DTYPES]; /* of them, by the kind of fault; PRECISION by type, behind */
    int backward[ATTN_FAULTS + ATTN_DTYPES];     /* of these, gradients alone are wrong */
    int passes[ATTN_DTYPES], fails[ATTN_DTYPES]; /* cases of a type */
    struct attn_cause {
        int kind, n;     /* as in n[]; how many failures look like it */
        int backward;    /* gradients alone are wrong */
        char text[256];  /* of the first; those that differ by their numbers alone are one */
        char remedy[96]; /* what to do */
    } of[ATTN_CAUSES];
};

/* Count a diagnosis, and passes.  Where failing elements are, without a cause, is no vote. */
void attn_common_cause_count(struct attn_common_cause *causes, const struct attn_result *result);

/* Likely causes, the likeliest first; how many there are, 0 to 2.  The first is the sentence that
 * most failures of the commonest kind of fault have: at least two, a third of those diagnosed and a
 * quarter of those asked.  The second is that of the next kind, or of the same kind in the other
 * pass, if they are three and a tenth, and name more than digits or a feature.  Factors agree where
 * their numbers do. */
int attn_common_causes(const struct attn_common_cause *causes, struct attn_cause named[2]);

/* 1 if a result looks like this cause. */
int attn_cause_fits(const struct attn_cause *cause, const struct attn_result *result);

/* "in bf16 and f16, not in f32", where cases of some types fail and none of others, which have
 * cases enough that chance is no reason; else "". */
void attn_common_cause_types(const struct attn_common_cause *causes, char text[80]);

/* Returns 1 if two texts differ by their numbers alone. */
int attn_verdicts_alike(const char *a, const char *b);

#endif
