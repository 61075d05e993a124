/* T1: how far honest arithmetic can be from the truth, element by element.
 *
 * Derived, not fitted: docs/bounds.md works it out from the standard model of rounding.  A
 * bound is small where attention is peaked or V is flat (it carries |v - o|, the sensitivity of
 * the softmax) and grows where scores are large, which is where fixed tolerances are
 * wrong in either direction.
 */
#ifndef TESTS_HARNESS_BOUND_BOUND_H
#define TESTS_HARNESS_BOUND_BOUND_H

#include "ref/attn.h"
#include "ref/oracle/oracle.h"
#include "tests/harness/bound/arithmetic.h"

enum attn_output {
    ATTN_O,
    ATTN_LSE,
    ATTN_DQ,
    ATTN_DK,
    ATTN_DV,
    ATTN_DBIAS,
    ATTN_DSINK,
    ATTN_OUTPUTS
};
const char *attn_output_name(enum attn_output output); /* "o", "lse", "dq", ... */

/* Half the spacing of subnormals of a storage type, and the size from which on rounding to nearest
 * makes an infinity. */
double attn_dtype_tiny(enum attn_dtype dtype);
double attn_dtype_overflow(enum attn_dtype dtype);

/* The truth and its bounds for one output tensor: dense arrays [B, heads, rows, width] in
 * whole-tensor order.  When a sample was asked for, rows are the sampled ones.
 *
 * An element has a value, a bound, and the set of the classes that are right; 0 is the class of the
 * value alone.  Where several are, a finite result is held to value and bound; if nothing is known
 * of it, the bound is infinite. */
enum attn_class {
    ATTN_CLASS_FINITE = 1,
    ATTN_CLASS_PLUS_INF = 2,
    ATTN_CLASS_MINUS_INF = 4,
    ATTN_CLASS_NAN = 8
};
unsigned attn_class_of(double x);

struct attn_truth_tensor {
    const char *name;
    int64_t extent[4];
    double *want, *bound;
    double *gauge;           /* condition-aware size of the element, for the printed gauge ratio */
    const int64_t *sample;   /* NULL: all rows; else extent[2] row indices (borrowed) */
    double u;                /* of the arithmetic or of storage: what the gauge counts in */
    enum attn_dtype storage; /* in which the problem stores this output */
    enum attn_dtype stored;  /* in which the judged result is; attn_truth_store changes it */
    unsigned char *right;    /* enum attn_class, ored; NULL: 0 everywhere */
};

struct attn_truth {
    struct attn_truth_tensor tensor[ATTN_OUTPUTS]; /* want == NULL: not asked for */
};

struct attn_kept; /* kept.h */

/* Inputs of a truth; d_o.data == NULL: forward only. */
struct attn_inputs {
    struct attn_cview q, k, v, d_o, d_lse;
    int want_d_bias; /* only for problems small enough for [B,H,Lq,Lk] */
    int want_d_sink; /* a sum over all rows: not of a sample of them */
    int has_stored;  /* else results are judged as the problem stores them */
    enum attn_dtype stored[ATTN_OUTPUTS];
    struct attn_kept *kept; /* of this problem and these tensors; NULL: nothing is kept */
    /* Which keys of a row have weight (attn_oracle_row.keys), where that is known; NULL: it is
     * not.  Their scores are 0 whatever q and k are rounded to (inputs/subsets.h); others may have
     * any weight below the smallest normal number of 32 bits. */
    attn_oracle_keys *keys;
    const void *keys_arg;
};

/* Rows and keys to compute, in increasing order; n < 0 means all.  The arrays must outlive the
 * truth. */
struct attn_sample {
    int64_t n_rows, n_keys;
    const int64_t *row, *key;
};

/* Up to `most`, usually 64, different indices below n, in order: one in each of as many equal
 * stretches, chosen by the hash, the first and the last among them.  Returns how many. */
enum { ATTN_SAMPLE_MOST = 64 };
int64_t attn_sample_choose(int64_t n, int64_t most, uint64_t seed, uint64_t stream, int64_t *index);

enum attn_status attn_truth_compute(const struct attn_problem *problem,
                                    const struct attn_inputs *inputs,
                                    const struct attn_precision *precision,
                                    const struct attn_sample *sample, struct attn_truth *truth,
                                    struct attn_error *err);

/* Make it the truth for results that were rounded to `stored` last, by the program that wrote them
 * to a file.  Nothing changes where that type holds all that the problem's own does; else the bound
 * grows by the rounding, half a subnormal spacing, and (attn_agree) overflow.  Once for a tensor:
 * roundings add up. */
void attn_truth_store(struct attn_truth_tensor *tensor, enum attn_dtype stored);
void attn_truth_free(struct attn_truth *truth);

#endif
