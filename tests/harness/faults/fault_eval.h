/* One fault model (fault_model.h), evaluated row by row and held against what was computed.  For
 * the files fault_eval*.c only. */
#ifndef TESTS_HARNESS_FAULTS_FAULT_EVAL_H
#define TESTS_HARNESS_FAULTS_FAULT_EVAL_H

#include "tests/harness/faults/fault_model.h"

/* Elements of rows that fit: those that are wrong; of these those that are as the model tells them
 * and not as the truth has them, numbers and NaNs; and the finite ones of outputs that fail. */
struct evidence {
    int64_t wrong, apart, nan_apart, finite;
};

struct fault_eval {
    const struct attn_failed_run *q;
    const struct attn_fault_model *t;
    const struct attn_problem *p;
    struct attn_cview view[ATTN_SLOTS];
    double *s, *w, *o, *dq, *dk, *dv, *dbias; /* o has room for two rows */
    char *seen;
    double *raw;
    double m, l, lse;
    int unsure; /* the row's numbers hang on how exp rounds: nothing is told */
    struct evidence evidence;
};

/* fault_eval.c: scores, weights, m, l and LSE of a row; a row of an output as the model has it,
 * against what was computed.  Whatever opening returns (0: the model cannot be told), close. */
int attn_eval_open(struct fault_eval *x, const struct attn_failed_run *q,
                   const struct attn_fault_model *t);
void attn_eval_close(struct fault_eval *x);
void attn_eval_scores(struct fault_eval *x, int64_t b, int64_t h, int64_t i);
int attn_eval_row_fits(struct fault_eval *x, enum attn_output o, int64_t b, int64_t h, int64_t i,
                       const double *told);

/* Is the model one that these numbers speak for?  It must tell something else than the truth, and
 * most elements that are wrong must be what it tells: a model of empty rows is none where no row
 * is. */
int attn_eval_explains(const struct fault_eval *x);

/* fault_eval_views.c: how the model reads memory; 0 when it would leave a tensor's. */
int attn_eval_views(struct fault_eval *x);

/* fault_eval_index.c: what the model's mask shows, and where its query finds K, V and bias. */
int attn_eval_sees(const struct fault_eval *x, int64_t b, int64_t h, int64_t i, int64_t j);
int64_t attn_eval_kv_head(const struct fault_eval *x, int64_t h, enum attn_model_of of);
int64_t attn_eval_kv_batch(const struct fault_eval *x, int64_t b, enum attn_model_of of);
int64_t attn_eval_key(const struct fault_eval *x, int64_t i, int64_t j, enum attn_model_of of);
double attn_eval_bias(const struct fault_eval *x, int64_t b, int64_t h, int64_t i, int64_t j);

/* fault_eval_merge.c: O and LSE of a row whose keys come in blocks, one of each rank. */
void attn_eval_merge(struct fault_eval *x, int64_t b, int64_t h, int64_t i);
int attn_eval_step_counts(const struct fault_eval *x, int64_t i, int64_t j);

#endif
