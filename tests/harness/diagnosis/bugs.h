/* The catalogue of bugs that attention implementations really had (bugs.def), and what stands for
 * each of them. */
#ifndef TESTS_HARNESS_BUGS_H
#define TESTS_HARNESS_BUGS_H

#include <stddef.h>

struct attn_bug {
    const char *id, *evidence, *reference, *what, *elsewhere; /* as in bugs.def */
};

extern const struct attn_bug attn_bug[];
extern const int attn_bug_count;
const struct attn_bug *attn_bug_find(const char *id); /* NULL when there is none */

/* Returns 1 if a comma-separated list of ids, such as a case's, names this one. */
int attn_bug_is_named(const char *ids, const char *id);

/* The battery cases whose ids name this bug, comma-separated: the quick tier's by name, the full
 * tier's by number (a few by name where the quick tier has none).  Returns how many. */
int attn_bug_cases(const struct attn_bug *bug, char *text, size_t size);

#endif
