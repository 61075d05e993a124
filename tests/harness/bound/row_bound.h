/* T1 for one query row: what rounding can do to its scores, probabilities and gradients.
 * Notation and derivation: docs/bounds.md; the section is named beside each line of row_bound.c
 * and row_bound_backward.c. */
#ifndef TESTS_HARNESS_BOUND_ROW_BOUND_H
#define TESTS_HARNESS_BOUND_ROW_BOUND_H

#include <math.h>

#include "ref/oracle/oracle.h"
#include "tests/harness/bound/bound.h"

struct attn_row_bound {
    double *eps;     /* [n] |computed - true| of the final score                         */
    double *eps_raw; /* [n] the same of the raw score                                    */
    double *tau;     /* [n] log-relative error of exp(s - m) as the forward sums it      */
    double *e_o;     /* [dv] */
    double e_lse;
    double *tau_back;  /* [n] log-relative error of P = exp(s - LSE) in the backward       */
    double *e_p;       /* [n] |error| of that P, rounded on the way if u_p says so         */
    double *e_ds;      /* [n] |error| of dS with respect to the final score                */
    double *dsr;       /* [n] dS with respect to the raw score                             */
    double *e_dsr;     /* [n] and its error                                                */
    double *e_dq;      /* [d] */
    double score_size; /* gauge: max_j of the magnitude of a score                         */
    double tau_sink, e_dz, gauge_dz;       /* tau of the sink; of its gradient, error and size */
    double *gauge_o, *gauge_dq, *gauge_ds; /* [dv] [d] [n] condition-aware sizes           */
    double kept;                           /* the least that the weights may sum to */
    /* one kv head's keys and values as double, kept between rows and shared by those of a block;
     * their sums of |k_c| and |v_c|; sums of a row */
    double *k, *v, *k_size, *v_size, *sum;
    int is_finite; /* all numbers of the sums */
    /* of the block's first: the keys that the last row looked at; over these, by column of v, the
     * sum of |v|, the least and the most v */
    int64_t *seen, n_seen;
    double *total, *least, *most;
    unsigned char *k_odd,
        *v_odd;             /* [n_key]: not all of k or v is finite; what is not counts as 0 */
    double q_size, do_size; /* sum_c |q_c| and |dO_c| of the row */
    double q_norm, do_norm, k_norm, v_norm; /* Euclid's, of the row; the largest of the head */
    double *size_o, *size_dq; /* [dv] [d] how large the sums may be on their way to o and dq */
    double *swollen;          /* [n] p (e^tau - 1), of the forward */
    unsigned char *over;      /* [n] which of ATTN_OVER_ may overflow on the way */
    double of_score, of_dp;   /* errors of the sums q.k and dO.v, of their sizes */
    double q_terms, do_terms; /* of these sums: what is not 0 in q and in dO */
    int exact_scores;         /* the caller's: rounding of q and k, scaled or not, is one factor */
    int without_dq;           /* the caller's: e_dq and gauge_dq are not wanted, and stay 0 */
    int64_t cached_batch, cached_head;
    void *block;
};

/* The term, or 0 where it is not finite: such terms are left to classes.h (6.3). */
static inline double attn_finite_part(double x)
{
    return isfinite(x) ? x : 0;
}

/* After the forward bound: may hidden keys weigh something, because hidden scores stay numbers
 * (precision->hidden)?  Nothing is known of such a row. */
int attn_row_bound_is_open(const struct attn_problem *p, const struct attn_precision *precision,
                           const struct attn_oracle_row *row, int64_t b, int64_t h, int64_t i,
                           const struct attn_row_bound *x);

/* The parts of a pair that may be too large for the type that stores or sums them (2.3). */
enum { ATTN_OVER_SCORE = 1, ATTN_OVER_DP = 2, ATTN_OVER_DS = 4 };

/* Room for the bounds of n_rows rows of one head, which are worked out together. */
enum attn_status attn_row_bounds_alloc(const struct attn_problem *problem, int n_rows,
                                       struct attn_row_bound *bounds, struct attn_error *err);
void attn_row_bounds_free(struct attn_row_bound *bounds);

/* Once for each block of rows (b,h,i[r]), before the other two: makes k and v those of its head. */
void attn_row_bounds_head(const struct attn_problem *problem, const struct attn_inputs *in,
                          int64_t b, int64_t h, const int64_t *i, int n_rows,
                          struct attn_row_bound *bounds);
void attn_row_bounds_forward(const struct attn_problem *problem,
                             const struct attn_precision *precision, int n_rows,
                             const struct attn_oracle_row *const *rows,
                             struct attn_row_bound *bounds);
void attn_row_bounds_backward(const struct attn_problem *problem, const struct attn_inputs *in,
                              int64_t b, int64_t h, const int64_t *i,
                              const struct attn_precision *precision, int n_rows,
                              const struct attn_oracle_row *const *rows,
                              struct attn_row_bound *bounds);

#endif
