/* What a failing implementation looks like: "LSE is in base 2", "fits causal(tl)", "fits heads
 * mapped h mod G".
 *
 * A list of hypotheses, each a mistake or convention of real implementations (faults.def), is held
 * against what was computed; the first that fits is named.  Then it is learned from the numbers
 * which head, row, key or factor would explain them.  Where nothing does, the pattern of the
 * failing elements is described.  A diagnosis is a hint for people; no verdict depends on it.
 */
#ifndef TESTS_HARNESS_FAULTS_DIAGNOSE_H
#define TESTS_HARNESS_FAULTS_DIAGNOSE_H

#include "tests/harness/cases/claims.h"
#include "tests/harness/runner.h"

/* Kinds of faults.  One mistake reads differently in every case ("keys 3 to 5 lost", "causal(tl)"),
 * so whoever counts diagnoses counts their kinds. */
enum attn_fault {
    ATTN_FAULT_NONE,      /* not recognised: the text says where failing elements are, or is "" */
    ATTN_FAULT_LSE,       /* what is given out as LSE                                       */
    ATTN_FAULT_LAYOUT,    /* where tensors are read and written                             */
    ATTN_FAULT_KEYS,      /* which keys are seen: masks, tails, tiles                       */
    ATTN_FAULT_HEADS,     /* which kv head and batch is read                                */
    ATTN_FAULT_SCORES,    /* scale, softcap, bias                                           */
    ATTN_FAULT_EMPTY,     /* rows that see no key, numbers in place of -inf                 */
    ATTN_FAULT_SOFTMAX,   /* its maximum and its sum                                        */
    ATTN_FAULT_GRADIENTS, /* the backward alone                                             */
    ATTN_FAULT_RANKS,     /* where parts of the keys meet                                   */
    ATTN_FAULT_FACTOR,    /* an output times something, or plus something                   */
    ATTN_FAULT_PRECISION,
    ATTN_FAULT_STATE,   /* what earlier calls, memory or neighbours left                  */
    ATTN_FAULT_FEATURE, /* it takes a bias, a mask, ... to fail                           */
    ATTN_FAULTS
};

struct attn_diagnosis {
    enum attn_fault fault;
    char where[160]; /* "o: head 1 only": where a fault shows, if not everywhere */
    char text[256];  /* "" when there is nothing to say */
};

/* The outputs are in the setup; the result is what attn_judge made of them, and outputs that it did
 * not compare are not looked at.  Returns what the line says (a model that fits, or only where the
 * failing elements are), or 0 and "". */
enum { ATTN_WHAT = 1, ATTN_WHERE = 2 };
int attn_diagnose(const struct attn_setup *setup, const struct attn_result *result,
                  struct attn_diagnosis *diagnosis);

/* Run the case again and diagnose it; for implementations in this process, which can also be run
 * otherwise (rerun.c).  claims: of an external implementation's, which is asked for nothing else;
 * or NULL.  1 or 0. */
int attn_diagnose_case(const struct attn_spec *spec, const struct attn_claims *claims,
                       const struct attn_case *c, const struct attn_result *result,
                       struct attn_diagnosis *diagnosis);

#endif
