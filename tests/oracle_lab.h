/* Small problems in plain arrays of double, and their truth by the oracle: what the tests of the
 * oracle work on.
 *
 * Every value is drawn so that f32 holds it exactly, so one problem can be stored either way and
 * judged by the double and by the long double oracle alike.  Tests may overwrite values between
 * lab_open and lab_run.
 */
#ifndef TESTS_ORACLE_LAB_H
#define TESTS_ORACLE_LAB_H

#include "ref/mask.h"
#include "tests/harness/bound.h"

enum { LAB_MOST = 8192 }; /* elements of a tensor */

struct lab_shape {
    int64_t b, h, g, q, k, d, dv;
    const char *mask;
    double scale, softcap;
    enum attn_bias_kind bias;
    int d_lse;
};

struct lab {
    struct attn_problem p;
    struct attn_mask *mask;
    int has_d_lse;
    double q[LAB_MOST], k[LAB_MOST], v[LAB_MOST], d_o[LAB_MOST], d_lse[LAB_MOST], bias[LAB_MOST];
    double slope[16];
    struct attn_truth truth;
    double *o, *lse, *dq, *dk, *dv, *d_bias; /* of the truth; d_bias NULL without a bias tensor */
};

/* Near-normal values by seed; a bias tensor is full.  To be closed. */
struct lab *lab_open(const struct lab_shape *shape, uint64_t seed);

/* The oracle's answer, forward and backward, for values stored as dtype (f32 rounds them). */
void lab_run(struct lab *x, enum attn_dtype dtype);
void lab_close(struct lab *x);

int64_t lab_size(const struct lab *x, enum attn_output output); /* elements; 0: no such output */

/* |got - want| <= bound, or the test fails; equal infinities agree, a NaN never does. */
void lab_near(const char *what, int64_t at, double got, double want, double bound);

#endif
