/* Features of cases, and which two of them never meet in the quick battery.
 *
 * Most bugs of a combination need two things at once: a softcap and shared kv heads, a bias and a
 * layout.  A pair counts where it can be seen to fail: in a backward case whose gradients are
 * ordinary numbers. */
#ifndef TESTS_CASE_PAIRS_H
#define TESTS_CASE_PAIRS_H

#include <stddef.h>

/* Writes "gqa with softcap; ..." and returns how many pairs no case has. */
int case_pairs_missing(char *text, size_t size);

#endif
