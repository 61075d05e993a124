/* A judgement in a process of its own, so that code that crashes or never ends costs one verdict
 * and not the battery. */
#ifndef TESTS_HARNESS_ISOLATED_H
#define TESTS_HARNESS_ISOLATED_H

#include "tests/harness/runner.h"

/* Fork, let the child call judge(arg, result), and bring the result back.  CRASH when the child was
 * ended by a signal or left without a result, TIMEOUT after so many seconds (0: no limit), with one
 * line in result->text; ERROR when no child could be made, or when it left with ATTN_PROCESS_LACKS.
 * The caller must be single-threaded. */
void attn_isolated(void (*judge)(void *arg, struct attn_result *result), void *arg, double seconds,
                   struct attn_result *result);

#endif
