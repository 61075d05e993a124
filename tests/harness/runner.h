/* One implementation, one case, one verdict. */
#ifndef TESTS_HARNESS_RUNNER_H
#define TESTS_HARNESS_RUNNER_H

#include "optimized/registry.h"
#include "ref/ledger.h"
#include "ref/mask/mask.h"
#include "tests/harness/bound/agree.h"
#include "tests/harness/bound/grade.h"
#include "tests/harness/bound/mask_power.h"
#include "tests/harness/cases/cases.h"
#include "tests/harness/faults/diagnosis.h"
#include "tests/harness/tensor.h"

/* ---- a case made concrete ----------------------------------------------------------------- */

enum attn_slot {
    ATTN_T_Q,
    ATTN_T_K,
    ATTN_T_V,
    ATTN_T_BIAS,
    ATTN_T_DO,
    ATTN_T_DLSE, /* inputs  */
    ATTN_T_O,
    ATTN_T_LSE,
    ATTN_T_DQ,
    ATTN_T_DK,
    ATTN_T_DV,
    ATTN_T_DBIAS, /* outputs */
    ATTN_SLOTS
};

/* Outputs stand in the same order among the slots. */
static inline enum attn_slot attn_slot_of(enum attn_output output)
{
    return (enum attn_slot)(ATTN_T_O + (int)output);
}

/* Mask, tensors and problem of a case.  Tensors that the case does not have are empty
 * (data == NULL).  Not to be copied: the problem points into it. */
struct attn_result;
struct attn_setup {
    struct attn_case given;
    struct attn_problem problem;
    struct attn_mask *mask;
    struct attn_made_tensor *made; /* what the mask names, made up from the names */
    double *slope;
    struct attn_tensor tensor[ATTN_SLOTS];
    struct attn_kept *kept; /* NULL: nothing is */
    int unweighed;          /* nobody asks what a pass proves about the mask */
    /* Arithmetic that is declared for whatever runs, beside the spec's own; NULL: none. */
    void (*declare)(const struct attn_problem *problem, struct attn_precision *precision);
};

/* Inputs filled and remembered, outputs poisoned.  A mask of `none` is given to the problem as
 * NULL.  Fails (EINVAL) also when the fill cannot keep its promise for the case, and ENOTSUP for
 * storage that does not exist yet; nothing needs closing then. */
enum attn_status attn_setup_open(const struct attn_case *c, struct attn_setup *setup,
                                 struct attn_error *err);
void attn_setup_close(struct attn_setup *setup);

/* The same without tensors: mask and problem, to ask what the case needs.  Close it too. */
enum attn_status attn_setup_describe(const struct attn_case *c, struct attn_setup *setup,
                                     struct attn_error *err);

/* From now on the inputs stay as they are, and what the oracle says of them is kept until the
 * setup is closed: for several specs on one case (attn_run_setup). */
void attn_setup_keep(struct attn_setup *setup);
struct attn_forward attn_setup_forward(const struct attn_setup *setup);
struct attn_backward attn_setup_backward(const struct attn_setup *setup);

/* Call an implementation on it: one pass, nothing else. */
enum attn_status attn_setup_call(const struct attn_setup *setup, const struct attn_impl *impl,
                                 struct attn_ctx *ctx, enum attn_pass pass);

/* After a call, without an attn_input_guard: red zones, inputs (which must have been remembered)
 * and what the pass should have written.  The first complaint is the failure. */
void attn_setup_check(const struct attn_setup *setup, enum attn_pass pass,
                      struct attn_result *result);

/* Whether query i sees any key. */
int attn_setup_sees(const struct attn_setup *setup, int64_t b, int64_t h, int64_t i);

/* What the truth of a pass is worked out from, and in which types its results are stored. */
struct attn_inputs attn_setup_inputs(const struct attn_setup *setup, enum attn_pass pass);

/* Bytes of inputs and outputs: the floor below which no process can measure. */
int64_t attn_setup_bytes(const struct attn_setup *setup);

/* A seal (attn.h) over the setup's tensors, but for bias and dBias: those, like masks, are spoken
 * of in whole-problem indices, and ranks use them in place. */
struct attn_seal attn_setup_seal(struct attn_setup *setup);

/* ---- verdicts ----------------------------------------------------------------------------- */

enum attn_verdict {
    ATTN_PASS,
    ATTN_FAILED,
    ATTN_REFUSED, /* a capability that is not claimed, or a shape the spec cannot split; or, by
                     it, what an external implementation has no code for                */
    ATTN_WEAK,    /* passed, but so would zeros and the mean of V: proves nothing       */
    ATTN_CRASH,
    ATTN_TIMEOUT,
    ATTN_INTERMITTENT, /* some runs of one and the same case failed, others did not */
    ATTN_ERROR         /* the suite could not do its part */
};
const char *attn_verdict_name(enum attn_verdict verdict); /* "PASS", "FAIL", ... */

enum attn_failure {
    ATTN_F_NONE,
    ATTN_F_STATUS,    /* an error where the contract promises a result  */
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
    char text[512]; /* why, in one line; empty on a plain pass */
    struct attn_diagnosis diagnosis; /* what a failure looks like; nothing unless it was asked */
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
    char differs[160]; /* what differed between the runs; "" nothing is known               */
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

/* Run and judge, in verdict order: status, integrity, finite, exact, bound, grade, bias, memory. */
void attn_run_case(const struct attn_spec *spec, const struct attn_case *c,
                   struct attn_result *result);

/* The same problem again and again, in one process and one set of tensors. */
struct attn_repetition {
    int calls;      /* at most so many runs, forward and backward together being one    */
    double seconds; /* no more of them after so long; 0: no limit                       */
    int same_bits;  /* a run with other bits than the first has failed, within the bound or not */
};

/* The same on a setup that is open, whose outputs are poisoned first, so often, and judge every run
 * (how: NULL is once).  INTERMITTENT when some fail and some do not: the result is then that of the
 * first that failed.  After a verdict other than PASS, WEAK and REFUSED its inputs may be damaged:
 * close it. */
void attn_run_setup(const struct attn_spec *spec, struct attn_setup *setup,
                    const struct attn_repetition *how, struct attn_result *result);

/* Judge outputs that are already there (by attn_run_case, a recorder, a file): everything
 * after integrity.  sample as in bound.h.  Outputs up to and including `pass` are judged. */
void attn_judge(const struct attn_setup *setup, const struct attn_precision *precision,
                const struct attn_sample *sample, enum attn_pass pass, struct attn_result *result);

/* FNV-1a over all output elements, rows in order. */
uint64_t attn_setup_digest(const struct attn_setup *setup, enum attn_pass pass);

/* Several lines: verdict, worst element, precisions, and the command that runs it again. */
void attn_result_print(const struct attn_spec *spec, const struct attn_case *c,
                       const struct attn_result *result, char *text, size_t size);

#endif
