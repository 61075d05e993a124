/* Results of the oracle for one case, computed once for every spec that is judged on it: its rows,
 * and with each declared precision the truth and its bounds.
 *
 * The caller guarantees that problem and inputs stay as they are in between. */
#ifndef TESTS_HARNESS_BOUND_KEPT_H
#define TESTS_HARNESS_BOUND_KEPT_H

#include <stdatomic.h>

#include "ref/oracle/oracle.h"
#include "tests/harness/bound/mask_power.h"

struct attn_kept {
    struct attn_kept_row *row;
    int64_t n_rows;          /* [B H Lq] */
    atomic_llong bytes_left; /* to keep other rows in: threads add theirs */
    struct attn_kept_truth *first;
    int64_t graded[ATTN_SAMPLE_MOST]; /* rows that a long problem's grade is of */
};

struct attn_kept_truth {
    struct attn_kept_truth *next;
    struct attn_precision precision;
    int backward;
    struct attn_truth truth;
    int is_weighed; /* power is known */
    struct attn_mask_power power;
};

/* With room for rows, or without: of a sample they are asked for once. */
void attn_kept_open(const struct attn_problem *problem, int rows, struct attn_kept *kept);
void attn_kept_close(struct attn_kept *kept);

/* The truth of inputs->kept for a precision, computed if it is not there yet.  A sample, if any, is
 * the same whenever it is asked for.  It belongs to inputs->kept.  NULL: err says why. */
struct attn_kept_truth *attn_kept_truth(const struct attn_problem *problem,
                                        const struct attn_inputs *inputs,
                                        const struct attn_precision *precision,
                                        const struct attn_sample *sample, enum attn_status *status,
                                        struct attn_error *err);

/* Row (b,h,i) of the oracle, with its backward part where that is asked for; NULL: not kept.  Its
 * arrays belong to `kept`, which may be NULL. */
const struct attn_oracle_row *attn_kept_row(const struct attn_kept *kept,
                                            const struct attn_problem *problem, int64_t b,
                                            int64_t h, int64_t i, int backward);

/* Copy a row that was computed with row->finite = 1.  Where memory does not suffice it is not kept,
 * and computed again the next time.  Threads may add different rows. */
void attn_kept_row_add(struct attn_kept *kept, const struct attn_problem *problem, int64_t b,
                       int64_t h, int64_t i, int backward, const struct attn_oracle_row *row);

#endif
