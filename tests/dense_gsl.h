/* Attention once more, by GSL's BLAS in double: matrix products by dgemm, softmax and masks by
 * loops written here.  Shares no line with ref/; the masks are functions of the caller.
 */
#ifndef TESTS_DENSE_GSL_H
#define TESTS_DENSE_GSL_H

#include "tests/fixtures/oracle_fixture.h"

/* Whether query i of the problem sees key j. */
typedef int dense_gsl_sees(const struct attn_problem *p, int64_t i, int64_t j);

/* Outputs, and beside each its condition-aware size: (1 + the largest score's magnitude in the row)
 * times the sum of absolute values that make the element, so that an error of a few u(double)
 * times size is what honest double arithmetic makes. */
struct dense_gsl {
    double value[ATTN_OUTPUTS][LAB_MOST], size[ATTN_OUTPUTS][LAB_MOST];
};

/* Everything there is for the values in x; d_lse counts when x has it. */
void dense_gsl_run(const struct fixture *x, dense_gsl_sees *sees, struct dense_gsl *out);

#endif
