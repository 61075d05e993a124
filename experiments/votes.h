/* Diagnoses counted: one mistake shows in many cases, and what most of them look like is what is
 * wrong. */
#ifndef EXPERIMENTS_VOTES_H
#define EXPERIMENTS_VOTES_H

#include "tests/harness/runner.h"

enum { ATTN_VOTES = 64 };

struct attn_votes {
    int diagnosed; /* failures that look like something */
    struct {
        char text[256];
        int n;
    } of[ATTN_VOTES];
};

/* Put a diagnosis (tests/harness/diagnose.h; "" is none) behind the text of a failure. */
void attn_votes_append(struct attn_result *result, const char *diagnosis);

/* Count what such a text says.  Where failing elements are, without a cause, is no vote. */
void attn_votes_count(struct attn_votes *votes, const struct attn_result *result);

/* What most of them look like, when at least two agree, and how many those are; else NULL. */
const char *attn_votes_cause(const struct attn_votes *votes, int *agree);

#endif
