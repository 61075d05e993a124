/* Diagnoses counted: one mistake shows in many cases, and what most look like is wrong. */
#ifndef EXPERIMENTS_CHECK_COMMON_CAUSE_H
#define EXPERIMENTS_CHECK_COMMON_CAUSE_H

#include "tests/harness/subject/runner.h"

enum {
    ATTN_CAUSES = 64
}; /* different texts that are told apart; more count for their kind alone */

struct attn_common_cause {
    int diagnosed, asked;             /* failures that look like something; and others */
    int n[ATTN_FAULTS + ATTN_DTYPES]; /* of them, by the kind of fault; PRECISION by type, behind */
    int passes[ATTN_DTYPES], fails[ATTN_DTYPES]; /* cases of a type */
    struct {
        int kind, n;    /* as in n[] */
        char text[256]; /* of the first; those that differ by their numbers alone are one */
    } of[ATTN_CAUSES];
};

/* Count a diagnosis, and passes.  Where failing elements are, without a cause, is no vote. */
void attn_common_cause_count(struct attn_common_cause *causes, const struct attn_result *result);

/* The sentence that most failures of the commonest kind of fault have, and their number: at least
 * two, a third of those diagnosed and a quarter of those asked; else 0.  Behind it what those of
 * the next kind say, if they are a tenth, and name more than digits, a factor or a feature. */
enum { ATTN_CAUSE_TEXT = 600 };
int attn_common_cause_name(const struct attn_common_cause *causes, char text[ATTN_CAUSE_TEXT]);

/* "in bf16 and f16, not in f32", where cases of some types fail and none of others; else "". */
void attn_common_cause_types(const struct attn_common_cause *causes, char text[80]);

/* Whether two texts differ by their numbers alone. */
int attn_verdicts_alike(const char *a, const char *b);

#endif
