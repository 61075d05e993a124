/* A gradient that many query rows add to (dK, dV, dBias): the truth as a compensated sum, and its
 * bound. */
#ifndef TESTS_HARNESS_BOUND_TRUTH_SUM_H
#define TESTS_HARNESS_BOUND_TRUTH_SUM_H

#include "tests/harness/bound/bound.h"

/* An output that many rows add to: the compensated sum, its terms' errors and sizes.  Value and
 * gauge do not depend on the precision: where they are known, only errors and sizes are summed. */
struct attn_sum {
    struct attn_truth_tensor *out;
    const struct attn_truth_tensor *known; /* the same output by another precision, or NULL */
    double *lost, *error, *size;
    int64_t *terms;       /* by row of the tensor: how many were added             */
    unsigned char *kinds; /* of the terms of special rows, added up */
};

/* The addends of a row for an output: addend n goes to row place[n] of it, none where that is
 * negative; it is weight[n] * y, the weight known to within error + more and y to within `tiny`,
 * with gauge * times for the gauge.  Places do not decrease.  ATTN_LANES numbers can be read where
 * y ends. */
struct attn_addends {
    const int64_t *place;
    int64_t n;
    const double *y, *weight, *error, *gauge;
    double more, times, tiny;
};

enum attn_status attn_sum_open(const struct attn_inputs *inputs, struct attn_truth *truth,
                               enum attn_output output, struct attn_sum *sum,
                               struct attn_error *err);
void attn_sum_free(struct attn_sum *sum);

/* The output, `width` wide, gains what these rows add, at most ATTN_ORACLE_ROWS: to each of
 * its elements in the order of the rows. */
void attn_sum_add(struct attn_sum *sum, int64_t width, const struct attn_addends *rows, int n_rows);

/* Elements at..at+n gain weight * y[c], as kinds (classes.h). */
void attn_sum_kinds(struct attn_sum *sum, int64_t at, int64_t n, const unsigned char *y,
                    unsigned weight);

/* All is added: the sum is multiplied by `scale`, of operands rounded to `operand`, and stored, as
 * the precision says. */
void attn_sum_finish(struct attn_sum *sum, double scale, double operand,
                     const struct attn_precision *precision);

/* dV becomes a part of dK, of whose first features it is the gradient too; it has no truth of its
 * own then. */
void attn_truth_share(const struct attn_precision *precision, struct attn_truth_tensor *dk,
                      struct attn_truth_tensor *dv);

/* Sets what is right for an element of these kinds: its classes, value and bound. */
void attn_truth_set_right(struct attn_truth_tensor *truth, int64_t at, unsigned kinds);

/* All elements are known: bounds that no rounding meets, and the types in which they are stored. */
void attn_truth_settle(struct attn_truth *truth, const struct attn_inputs *inputs);

#endif
