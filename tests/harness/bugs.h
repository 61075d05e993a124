/* The catalogue of bugs that attention implementations really had (bugs.def), and what stands for
 * each of them. */
#ifndef TESTS_HARNESS_BUGS_H
#define TESTS_HARNESS_BUGS_H

#include <stddef.h>

struct attn_bug {
    const char *id, *evidence, *reference, *what, *elsewhere; /* as in bugs.def */
};

int attn_bug_count(void);
const struct attn_bug *attn_bug_at(int index);
const struct attn_bug *attn_bug_find(const char *id); /* NULL when there is none */

/* Names of the battery cases whose ids name this bug, comma-separated; returns how many. */
int attn_bug_cases(const struct attn_bug *bug, char *text, size_t size);

#endif
