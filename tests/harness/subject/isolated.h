/* Judgements in a process of their own, so that code that crashes or never ends costs one verdict
 * and not the battery. */
#ifndef TESTS_HARNESS_ISOLATED_H
#define TESTS_HARNESS_ISOLATED_H

#include "tests/harness/subject/external.h"

/* Fork, let the child call judge(arg, i, result) for each i below n, and bring the results back,
 * with their seconds.  CRASH when the child was ended by a signal or left without a result, TIMEOUT
 * after `seconds` of one judgement (0: no limit), with one line in result->text; ERROR when
 * no child could be made, or when it left with ATTN_PROCESS_LACKS.  After any of these, and after a
 * bad result, another child goes on with the next.  The caller must be single-threaded. */
void attn_isolated(void (*judge)(void *arg, int i, struct attn_result *result), void *arg, int n,
                   double seconds, struct attn_answer *answer);

/* In this process, which ends with them: for ranks that are processes themselves. */
void attn_in_place(void (*judge)(void *arg, int i, struct attn_result *result), void *arg, int n,
                   struct attn_answer *answer);

#endif
