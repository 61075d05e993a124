/* Run an implementation on a case, once or again and again, and judge what it does. */
#ifndef TESTS_HARNESS_JUDGE_RUNNER_H
#define TESTS_HARNESS_JUDGE_RUNNER_H

#include "optimized/registry.h"
#include "tests/harness/judge/judge.h"

/* From now on the process keeps memory that is freed, because the next case needs as much, and new
 * pages cost more time than computing what is in them. */
void attn_keep_freed(void);

/* Run and judge, in verdict order: status, integrity, finite, exact, bound, grade, bias, memory. */
void attn_run_case(const struct attn_spec *spec, const struct attn_case *c,
                   struct attn_result *result);

/* The same problem again and again, in one process and one set of tensors. */
struct attn_repetition {
    int calls;      /* runs, at most; forward and backward together are one              */
    double seconds; /* no more of them after so long; 0: no limit                       */
    int same_bits;  /* a run with other bits than the first has failed, within the bound or not */
};

/* The same on an open setup, as often as `how` says (NULL: once).  Outputs are poisoned before each
 * run, and every run is judged.  INTERMITTENT when some fail and some do not: the result is then
 * that of the first that failed.  After a verdict other than PASS, WEAK and REFUSED its inputs may
 * be damaged: close it. */
void attn_run_setup(const struct attn_spec *spec, struct attn_setup *setup,
                    const struct attn_repetition *how, struct attn_result *result);

/* After a call, without an attn_input_guard: red zones, inputs (which must have been remembered)
 * and what the pass should have written.  The first complaint is the failure. */
void attn_setup_check(const struct attn_setup *setup, enum attn_pass pass,
                      struct attn_result *result);

#endif
