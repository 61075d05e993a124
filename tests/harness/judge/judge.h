/* The judgement of one implementation on one case: the verdict, why, and with which numbers. */
#ifndef TESTS_HARNESS_JUDGE_H
#define TESTS_HARNESS_JUDGE_H

#include "tests/harness/bound/agree.h"
#include "tests/harness/bound/grade.h"
#include "tests/harness/bound/mask_power.h"
#include "tests/harness/inputs/setup.h"
#include "tests/harness/judge/diagnosis.h"

enum attn_verdict {
    ATTN_PASS,
    ATTN_FAILED,
    ATTN_REFUSED, /* a capability that is not claimed, or a shape the spec cannot split; or, by
                     it, what an external implementation has no code for                */
    ATTN_WEAK,    /* passed, but so would zeros and the mean of V: proves nothing       */
    ATTN_CRASH,
    ATTN_TIMEOUT,
    ATTN_INTERMITTENT, /* some runs of one and the same case failed, others did not */
    ATTN_SKIPPED,      /* it was not reached                                        */
    ATTN_ERROR         /* the suite could not do its part */
};
const char *attn_verdict_name(enum attn_verdict verdict); /* "PASS", "FAIL", ... */

enum attn_failure {
    ATTN_F_NONE,
    ATTN_F_STATUS,    /* an error where the contract demands a result  */
    ATTN_F_INTEGRITY, /* out of bounds, unwritten, inputs changed       */
    ATTN_F_FINITE,
    ATTN_F_EXACT,
    ATTN_F_BOUND,
    ATTN_F_BIAS,   /* errors of one sign beyond what chance makes (grade.h)     */
    ATTN_F_GROWTH, /* errors that grow faster than a random walk with the parts */
    ATTN_F_MEMORY  /* priced != ledger, leak, bytes taken elsewhere  */
};
const char *attn_failure_name(enum attn_failure failure);

struct attn_result {
    enum attn_verdict verdict;
    enum attn_failure failure;
    int by_it;      /* while it ran, and it says why: REFUSED, or FAIL(status) of a spec of ours */
    int meddles;    /* FAIL(integrity) that is no slip: it wrote to an input, or forked */
    char text[512]; /* why, in one line; empty on a plain pass */
    struct attn_diagnosis diagnosis; /* of a failure; nothing unless it was asked */
    enum attn_dtype dtype; /* in which the problem is stored, where outputs were compared  */
    struct attn_precision precision;
    struct attn_agreement output[ATTN_OUTPUTS]; /* n == 0: not compared */
    double worst;                               /* largest error / bound of all outputs */
    struct attn_grade grade;                    /* of a pass, where the fill has one */
    struct attn_mask_power mask;                /* of a pass: what it proves about the mask, unless
                                                   the setup is unweighed */
    int is_growth;                              /* the check of growth.h, and its */
    double growth;                              /* largest slope */
    int lacks_memory;                           /* an ERROR, and more memory would mend it */
    int64_t peak_bytes[2];                      /* ledger, forward and backward */
    uint64_t digest;                            /* of all outputs: equal bits, equal digest */
    int runs, failed;  /* of a case that was run more than once: how often, how often it failed */
    char differs[160]; /* the difference between the runs; "" nothing is known              */
    int64_t calls;     /* that its process had made, these included; 0 unknown              */
};

/* FAIL, CRASH, TIMEOUT, INTERMITTENT: a verdict about the implementation, and a bad one. */
int attn_result_is_bad(const struct attn_result *result);

/* The first failure found is the verdict; later ones are consequences. */
void attn_result_fail(struct attn_result *result, enum attn_failure failure, const char *format,
                      ...) __attribute__((format(printf, 3, 4)));

/* ERROR: the suite could not do its part, and why. */
void attn_result_error(struct attn_result *result, enum attn_status status, const char *text);

/* The one way in which an external implementation refuses a case, or a relation, while it runs:
 * REFUSED by it, in its own words, whatever else was found; without words FAIL(status). */
void attn_result_refuse(struct attn_result *result, const char *words);

/* Take an LSE that is not the implementation's own (attn_claims_fill_lse) out of a result again: it
 * proves nothing. */
void attn_result_drop_lse(struct attn_result *result);

/* Judge outputs that are already there (by attn_run_case, a recorder, a file): everything
 * after integrity.  sample as in bound.h.  Outputs up to and including `pass` are judged. */
void attn_judge(const struct attn_setup *setup, const struct attn_precision *precision,
                const struct attn_sample *sample, enum attn_pass pass, struct attn_result *result);

#endif
