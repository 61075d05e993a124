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

/* "note: 9 of 12 diagnosed failures: fits causal(tl)" to stderr, when at least two agree; forget
 * all. */
void attn_votes_end(struct attn_votes *votes);

#endif
