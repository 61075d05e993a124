/* Fault models: attention with one step of its definition changed, as implementations really get it
 * wrong (faults.def), evaluated and held against what a failing implementation computed.
 *
 * Plain double arithmetic, row by row; a wrong model is usually refuted by its first row.
 */
#ifndef TESTS_HARNESS_FAULTS_FAULTS_H
#define TESTS_HARNESS_FAULTS_FAULTS_H

#include <math.h>

#include "tests/harness/faults/diagnose.h"

/* The step that is changed, and how; faults.def says it in words. */
enum attn_fault_step {
    ATTN_STEP_NONE,       /* nothing is: the truth               */
    ATTN_STEP_MASK,       /* `mask` decides, NULL: all is visible */
    ATTN_STEP_HEAD_FIXED, /* K and V, or one of them, are kv head lo's of batch hi */
#define ATTN_FAULT(step, ...) ATTN_STEP_##step,
#include "tests/harness/faults/faults.def"
    ATTN_STEPS
};

enum attn_fault_of { ATTN_OF_K_AND_V, ATTN_OF_K, ATTN_OF_V, ATTN_OF_STRIPES, ATTN_OF_RUNS };

struct attn_fault_model {
    enum attn_fault_step step;
    int64_t n, lo, hi; /* its parameters */
    double value;
    unsigned slots; /* bits 1 << enum attn_slot: tensors that are misread, gradients */
    enum attn_fault_of of;
    const struct attn_mask *mask;
};

static inline double attn_root(int64_t d) /* 1 / sqrt(d), the usual scale */
{
    return 1 / sqrt((double)(d > 0 ? d : 1));
}

/* What was computed, against which models are held. */
struct attn_failed_run {
    const struct attn_setup *setup;
    struct attn_truth truth; /* with bounds */
    double *x[ATTN_SLOTS];   /* the numbers of each tensor, packed; NULL: the case has none */
    int64_t extent[ATTN_SLOTS][4];
    int failing[ATTN_OUTPUTS], compared[ATTN_OUTPUTS];
    int backward;  /* the forward is right: the mistake is in the backward            */
    int ranks;     /* 0: it has none; 1: nobody knows; 2: it has                      */
    int64_t block; /* 0, or 1 + b H + h: only that batch and head are looked at       */
    double loose;  /* relative tolerance                                              */
    char *text;    /* what is found out                                               */
    size_t size;
};

/* The elements of a view with these extents, packed; malloc'ed, NULL without memory. */
double *attn_packed_numbers(const struct attn_cview *view, const int64_t extent[4]);

/* Rows of an output are counted over batches, heads and rows. */
int64_t attn_run_rows(const struct attn_failed_run *run, enum attn_output o);
int attn_run_row_is_right(const struct attn_failed_run *run, enum attn_output o, int64_t row);
int attn_run_element_is_right(const struct attn_failed_run *run, enum attn_output o, int64_t n);

/* Of a range of n rows or keys: the tile whose tail it is (128 down to 8), or 0. */
int64_t attn_tail_of(int64_t low, int64_t high, int64_t n);

/* ---- evaluate.c: one model, row by row ------------------------------------------------------- */

/* Elements of rows that fit: those that are wrong; of these those that are as the model has them
 * and not as the truth has them, numbers and NaNs; and the finite ones of outputs that fail. */
struct attn_evidence {
    int64_t wrong, apart, nan_apart, finite;
};

struct attn_evaluation {
    const struct attn_failed_run *run;
    const struct attn_fault_model *f;
    const struct attn_problem *p;
    const double *x[ATTN_SLOTS]; /* as the model reads and writes them */
    double *moved[ATTN_SLOTS];   /* those of them that are its own     */
    int has_moved_outputs;
    double *s, *w, *raw, *probs, *o, *other, *dq, *dk, *dv, *dbias;
    double m, l, lse;
    int unsure; /* the row's numbers hang on how exp rounds: nothing is said of them */
    struct attn_evidence evidence;
};

/* Returns 0 when the model would leave a tensor's memory, or without memory; close it anyway. */
int attn_evaluation_open(struct attn_evaluation *x, const struct attn_failed_run *run,
                         const struct attn_fault_model *f);
void attn_evaluation_close(struct attn_evaluation *x);

/* Row (b,h,i) of a tensor. */
const double *attn_evaluation_row(const struct attn_evaluation *x, enum attn_slot slot, int64_t b,
                                  int64_t h, int64_t i);

/* Scores, raw scores, weights, m, l and LSE of a row. */
void attn_evaluate_scores(struct attn_evaluation *x, int64_t b, int64_t h, int64_t i);

/* A row of an output, `told` by the model, against what was computed; the tolerance is some bounds
 * of the truth and a part of the row's size. */
int attn_evaluation_fits(struct attn_evaluation *x, enum attn_output o, int64_t row,
                         const double *told);

/* Is the model one that these numbers speak for?  It must say something else than the truth, and
 * most elements that are wrong must be as it says: a model of empty rows is none where no row
 * is empty. */
int attn_evaluation_explains(const struct attn_evaluation *x);

/* 1 when everything that the failed run is about was computed as the model has it, and the model
 * explains what is wrong.  Without memory: 0. */
int attn_fault_fits(const struct attn_failed_run *run, const struct attn_fault_model *f);

/* 1 when it is the truth, as far as the run's tolerance goes. */
int attn_truth_is_near(const struct attn_failed_run *run);

/* ---- who is asked, in this order: 1 and run->text when the fault is found -------------------- */

/* The models of faults.def; the kind of the first that fits, or ATTN_FAULT_NONE.  Kinds in `but`
 * (bits) are left out. */
enum attn_fault attn_fault_recognise(struct attn_failed_run *run, unsigned but);

/* What is learned from the numbers: which kv head and batch each block has read (learn_heads.c);
 * whether rows are right but in other places (learn_places.c); which keys each row has seen
 * (learn_keys.c); whether delta alone is wrong, whether outputs are the truth times a number, or
 * plus one (learn_numbers.c). */
int attn_learn_heads(struct attn_failed_run *run);
int attn_learn_places(struct attn_failed_run *run);
int attn_learn_keys(struct attn_failed_run *run);
int attn_learn_delta(struct attn_failed_run *run);
int attn_learn_lines(struct attn_failed_run *run);

/* describe.c.  Where the failing elements are, as in struct attn_diagnosis; and where no model fits
 * the same in a sentence, and the fault where that tells it. */
void attn_describe_where(const struct attn_failed_run *run, char *text, size_t size);
int attn_describe_pattern(const struct attn_failed_run *run, struct attn_diagnosis *diagnosis);

/* rerun.c: the passes of a case, as it failed (fill_nan: fresh memory holds NaN) or with other
 * bytes in fresh memory; runs in other circumstances that explain the failure; and "fails only with
 * the bias, a length that leaves the tail of a tile ...": the features that the failure needs, and
 * how many are named. */
enum attn_status attn_rerun(const struct attn_spec *spec, const struct attn_setup *setup,
                            int fill_nan, struct attn_error *err);
int attn_rerun_again(const struct attn_spec *spec, const struct attn_case *c,
                     const struct attn_result *failed, char *text, size_t size);
int attn_rerun_without(const struct attn_spec *spec, const struct attn_claims *claims,
                       const struct attn_case *c, char *text, size_t size);

#endif
