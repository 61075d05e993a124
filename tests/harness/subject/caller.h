/* The process that started this one, as an implementation: `attnlab check --serve`.
 *
 *      standard output      {"cases": "FOLDER/cases", "out": "FOLDER/out"}      a batch
 *      standard input       done                                               its answer
 *
 * A batch is what a command is started on (exec.h), in the same files.  So batches of cases are
 * exec_cases.c's, and only the transport differs: a line instead of a start.  The caller is one
 * process all the time, which a command is not.  So relations and repeats can be asked of it: one
 * call is a batch of one case, whose tensors are those that the runner has.
 *
 * An answer other than `done` is the caller's word that it cannot go on.  With that, at the end of
 * standard input, and when the time of a batch is up, the caller is gone and asked nothing more.
 */
#ifndef TESTS_HARNESS_SUBJECT_CALLER_H
#define TESTS_HARNESS_SUBJECT_CALLER_H

#include "tests/harness/base/process.h"
#include "tests/harness/subject/subject.h"

enum { ATTN_CALLER_BATCH = 64 }; /* cases: few enough that their tensors fit into memory */

/* Hand a batch over, and wait for the answer: ran says how that ended. */
void attn_caller_hand(const char *cases, const char *out, double seconds, struct attn_process *ran);

#endif
