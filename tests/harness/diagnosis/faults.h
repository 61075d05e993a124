/* The sources of a diagnosis, in this order: the models of faults.def, what can be learned from the
 * numbers, other runs.  Each returns 1, with run->text, when it has found the fault. */
#ifndef TESTS_HARNESS_FAULTS_FAULTS_H
#define TESTS_HARNESS_FAULTS_FAULTS_H

#include "tests/harness/diagnosis/diagnose.h"
#include "tests/harness/diagnosis/evaluate.h"

static const double log2_e = 1.44269504088896340736, ln_2 = 0.69314718055994530942;

static inline double attn_root(int64_t d) /* 1 / sqrt(d), the usual scale */
{
    return 1 / sqrt((double)(d > 0 ? d : 1));
}

static inline double attn_least_normal(enum attn_dtype dtype)
{
    return dtype == ATTN_F64 ? 0x1p-1022 : dtype == ATTN_F16 ? 0x1p-14 : 0x1p-126;
}

/* A row of faults.def, the r-th, with its n: the model and its words. */
struct attn_hypothesis {
    int r;
    enum attn_fault kind;
    struct attn_fault_range {
        int64_t first, last; /* values of n, which may double */
        int doubles;
    } range;
    struct attn_fault_model model;
    char words[300];
    const char *remedy; /* what to do, or "": behind the words */
};

/* The next that the case can show, or 0; the first follows one of zeros.  skip: its row is done. */
int attn_hypothesis_next(const struct attn_failed_run *run, struct attn_hypothesis *x);
void attn_hypothesis_skip(struct attn_hypothesis *x);

/* The models of faults.def; the kind of the first that fits, or ATTN_FAULT_NONE.  Kinds in `but`
 * (bits) are left out. */
enum attn_fault attn_fault_recognise(struct attn_failed_run *run, unsigned but);

/* Facts learned from the numbers: which kv head and batch each block has read (learn_heads.c);
 * whether rows are right but in other places (learn_places.c); which keys each row has seen
 * (learn_keys.c); whether all is 0, delta alone is wrong, outputs are the truth times a number, or
 * plus one (learn_numbers.c). */
int attn_learn_heads(struct attn_failed_run *run);
int attn_learn_places(struct attn_failed_run *run);
int attn_learn_keys(struct attn_failed_run *run);
int attn_learn_zeros(struct attn_failed_run *run);
int attn_learn_delta(struct attn_failed_run *run);
int attn_learn_lines(struct attn_failed_run *run);

/* describe.c.  Where the failing elements are: beside a fault that is known, the ranges; else a
 * sentence, and the fault where that tells it. */
void attn_describe(const struct attn_failed_run *run, struct attn_diagnosis *diagnosis);

/* The same of a case that is too large to be computed again, from the ranges of what failed. */
void attn_describe_large(const struct attn_case *c, const struct attn_result *result,
                         struct attn_diagnosis *diagnosis);

/* rerun.c: the passes of a case, as it failed (fill_nan: fresh memory holds NaN) or with other
 * bytes in fresh memory; whether it reads K and V rows that no query sees, for it gives numbers
 * where these hold some; whether what it left is right; runs in other circumstances that explain
 * the failure; and "fails only with the bias, a length that leaves the tail of a tile ...": the
 * features that the failure needs, and how many are named (restart: before each run, or NULL). */
enum attn_status attn_rerun(const struct attn_spec *spec, const struct attn_setup *setup,
                            int fill_nan, struct attn_error *err);
int attn_rerun_reads_hidden(const struct attn_spec *spec, const struct attn_claims *claims,
                            const struct attn_case *c);
int attn_rerun_is_right(const struct attn_setup *setup, const struct attn_result *failed);
int attn_rerun_again(const struct attn_spec *spec, const struct attn_case *c,
                     const struct attn_result *failed, char *text, size_t size);
struct attn_restart { /* of what a run may have ended; start returns 0 where that cannot be */
    int (*start)(void *arg);
    void *arg;
};
int attn_rerun_without(const struct attn_spec *spec, const struct attn_claims *claims,
                       const struct attn_case *c, const struct attn_restart *restart, char *text,
                       size_t size);

#endif
