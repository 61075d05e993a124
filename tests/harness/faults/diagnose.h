/* What a failing implementation looks like: "fits if LSE is base 2", "fits causal(tl)", "fits heads
 * mapped h mod G".
 *
 * A list of hypotheses, each a mistake or convention of real implementations (fault_model.h), is
 * held against what was computed; the first that fits is named.  Where none fits, the pattern of
 * the failing elements is described.  A diagnosis is a hint for people; no verdict depends on it.
 */
#ifndef TESTS_HARNESS_FAULTS_DIAGNOSE_H
#define TESTS_HARNESS_FAULTS_DIAGNOSE_H

#include "tests/harness/cases/claims.h"
#include "tests/harness/faults/fault_model.h"

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
    char text[256]; /* "" when there is nothing to say */
};

/* The outputs are in the setup; the result is what attn_judge made of them, and outputs that it did
 * not compare are not looked at.  Returns what the line says (a model that fits, or only where the
 * failing elements are), or 0 and "". */
enum { ATTN_WHAT = 1, ATTN_WHERE = 2 };
int attn_diagnose(const struct attn_setup *setup, const struct attn_result *result,
                  struct attn_diagnosis *diagnosis);

/* Run the case again and diagnose it; for implementations in this process, which can also be run
 * otherwise (diagnose_again.c, diagnose_vary.c).  claims: of an external implementation's, which is
 * asked for nothing else; or NULL.  1 or 0. */
int attn_diagnose_case(const struct attn_spec *spec, const struct attn_claims *claims,
                       const struct attn_case *c, const struct attn_result *result,
                       struct attn_diagnosis *diagnosis);

/* ---- for the files of hypotheses ------------------------------------------------------------- */

struct attn_hypotheses {
    const struct attn_setup *setup;
    const struct attn_failed_run *failed;
    char *text; /* of the diagnosis */
    size_t size;
};

/* Hold one model against the failed run; when it fits, its words become the diagnosis. */
int attn_hypothesis(struct attn_hypotheses *x, const struct attn_fault_model *model,
                    const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Families of hypotheses: 1 when one of them fits. */
int attn_hypothesis_layout(struct attn_hypotheses *x);
int attn_hypothesis_strides(struct attn_hypotheses *x);
int attn_hypothesis_bias(struct attn_hypotheses *x);
int attn_hypothesis_masks(struct attn_hypotheses *x);
int attn_hypothesis_ranks(struct attn_hypotheses *x);
int attn_hypothesis_start(struct attn_hypotheses *x);
int attn_hypothesis_numbers(struct attn_hypotheses *x);
int attn_hypothesis_backward(struct attn_hypotheses *x);

/* What is learned from the numbers, where no model of the list fits: which kv head and batch each
 * block read, whether delta alone is wrong, whether outputs are the truth times a number, or plus
 * one (diagnose_learn.c); whether rows are right but in other places (diagnose_places.c); which
 * keys each row has seen (diagnose_seen.c). */
int attn_hypothesis_blocks(struct attn_hypotheses *x);
int attn_hypothesis_lines(struct attn_hypotheses *x);
int attn_hypothesis_delta(struct attn_hypotheses *x);
int attn_hypothesis_places(struct attn_hypotheses *x);
int attn_hypothesis_seen(struct attn_hypotheses *x);

/* Is a row of an output (counted over batches, heads and rows) within its bounds? */
int attn_row_is_right(const struct attn_failed_run *q, enum attn_output o, int64_t row);

/* Runs in other circumstances that explain the failure. */
int attn_hypothesis_again(const struct attn_spec *spec, const struct attn_case *c,
                          const struct attn_result *failed, char *text, size_t size);

/* "fails only with the bias, a length that leaves the tail of a tile ...": the features that the
 * failure needs; how many are named. */
int attn_hypothesis_feature(const struct attn_spec *spec, const struct attn_claims *claims,
                            const struct attn_case *c, char *text, size_t size);

/* Of a range of n rows or keys: the tile whose tail it is (128 down to 8), or 0. */
int64_t attn_tail_of(int64_t low, int64_t high, int64_t n);

/* No model fits: where the failing elements are, and the fault where that tells it. */
int attn_describe_pattern(const struct attn_failed_run *failed, struct attn_diagnosis *diagnosis);

#endif
