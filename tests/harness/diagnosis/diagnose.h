/* Diagnoses of a failing implementation: "LSE is in base 2", "fits causal(tl)", "fits heads mapped
 * h mod G".
 *
 * A list of hypotheses, each a mistake or convention of real implementations (faults.def), is held
 * against what was computed; the first that fits is named.  Then the numbers show which head, row,
 * key or factor would explain them.  Where nothing does, the pattern of the failing elements is
 * described.  A diagnosis is a hint for people; no verdict depends on it.
 */
#ifndef TESTS_HARNESS_FAULTS_DIAGNOSE_H
#define TESTS_HARNESS_FAULTS_DIAGNOSE_H

#include "tests/harness/cases/claims.h"
#include "tests/harness/judge/diagnosis.h"
#include "tests/harness/judge/runner.h"

/* The outputs are in the setup; the result is what attn_judge made of them, and outputs that it did
 * not compare are not looked at.  Returns what the line says (a model that fits all, or only where
 * the failing elements are, or a model that fits one output), or 0 and "". */
enum { ATTN_WHAT = 1, ATTN_WHERE = 2, ATTN_WHAT_OF_ONE = 3 };
int attn_diagnose(const struct attn_setup *setup, const struct attn_result *result,
                  struct attn_diagnosis *diagnosis);

/* Run the case again and diagnose it; for implementations in this process, which can also be run
 * otherwise (rerun.c).  claims: of an external implementation's, which is asked for nothing else;
 * or NULL.  1 or 0. */
int attn_diagnose_case(const struct attn_spec *spec, const struct attn_claims *claims,
                       const struct attn_case *c, const struct attn_result *result,
                       struct attn_diagnosis *diagnosis);

/* The remedy for a kind of fault, in general; "" where there is none. */
const char *attn_fault_remedy(enum attn_fault fault);

#endif
