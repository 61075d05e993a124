/* T1: how far honest arithmetic can be from the truth, element by element.
 *
 * Derived, not fitted: docs/bounds.md works it out from the standard model of rounding.  A
 * bound is small where attention is peaked or V is flat (it carries |v - o|, the sensitivity of
 * the softmax) and grows where scores are large, which is where fixed tolerances are
 * wrong in either direction.
 */
#ifndef TESTS_HARNESS_BOUND_H
#define TESTS_HARNESS_BOUND_H

#include "ref/attn.h"

/* The declared precisions: the only parameters of the bound, printed with every verdict. */
struct attn_precision {
    double u;         /* unit roundoff of the arithmetic                                */
    double u_storage; /* of o, dq, dk, dv as stored                                     */
    double u_bias;    /* of dbias as stored and summed                                  */
    double u_lse;     /* of lse as stored                                               */
    double u_p;       /* of probabilities and dS if they are rounded on the way; else 0 */
    double tiny_p;    /* half the spacing of subnormals of that type; 0: as u_p implies */
    double tiny;      /* half the spacing of subnormals: the absolute error of underflow */
    double exp_ulps;  /* error of exp, in u                                             */
    int64_t rescales; /* of a row's partial sums, at most                               */
    int64_t merges;   /* of partial results by their LSE, at most                       */
    double lambda;    /* 0: sums of n terms err by gamma_n, the worst case, which decides.  Above
                         0: by lambda sqrt(n) u where that is less, which only grades (grade.h) */
};

/* What an implementation declares for a problem. */
void attn_precision_of(const struct attn_impl *impl, const struct attn_options *options,
                       const struct attn_problem *problem, struct attn_precision *precision);

/* The truth and its bounds for one output tensor: dense arrays [B, heads, rows, width] in
 * whole-tensor order.  When a sample was asked for, rows are the sampled ones. */
struct attn_truth_tensor {
    const char *name;
    int64_t extent[4];
    double *want, *bound;
    double *gauge;         /* condition-aware size of the element, for the printed gauge ratio */
    const int64_t *sample; /* NULL: all rows; else extent[2] row indices (borrowed) */
};

enum attn_output { ATTN_O, ATTN_LSE, ATTN_DQ, ATTN_DK, ATTN_DV, ATTN_DBIAS, ATTN_OUTPUTS };
const char *attn_output_name(enum attn_output output); /* "o", "lse", "dq", ... */

struct attn_truth {
    struct attn_truth_tensor tensor[ATTN_OUTPUTS]; /* want == NULL: not asked for */
};

/* Inputs of a truth; d_o.data == NULL: forward only. */
struct attn_inputs {
    struct attn_cview q, k, v, d_o, d_lse;
    int want_d_bias; /* only for problems small enough for [B,H,Lq,Lk] */
};

/* Rows and keys to compute, in increasing order; n < 0 means all.  The arrays must outlive the
 * truth. */
struct attn_sample {
    int64_t n_rows, n_keys;
    const int64_t *row, *key;
};

enum attn_status attn_truth_compute(const struct attn_problem *problem,
                                    const struct attn_inputs *inputs,
                                    const struct attn_precision *precision,
                                    const struct attn_sample *sample, struct attn_truth *truth,
                                    struct attn_error *err);
void attn_truth_free(struct attn_truth *truth);

#endif
