/* Grades of a pass, and bias: what many errors show together that no single one does.
 *
 * T1 (bound.h) decides, element by element, and has derived constants only.  The constants here
 * grade or judge sets of errors; they are chosen, and docs/bounds.md lists each with its measured
 * false-alarm rate.
 *
 *   grade   On sign-random fills roundings cancel: a sum of n terms errs by about sqrt(n) u, not by
 *           n u.  rho = max error / T2, where T2 is T1 with min(gamma_n, lambda sqrt(n) u) for
 *           gamma_n (Higham and Mary, A new approach to probabilistic rounding error analysis,
 *           SIAM J. Sci. Comput. 41, 2019).  A: rho <= 1.  B: T1 holds and T2 does not: a slow
 *           order of summation, a coarse exp.  B is no failure.
 *   bias    Where V > 0, errors of one sign do not cancel between rows, and what is biased hurts
 *           training more than what is large (Qiu and Yao, arXiv 2510.04212).  The mean over rows
 *           of error / T2, times sqrt(rows), is a number of standard deviations (or fewer: T2 is
 *           larger than a deviation).  Errors are counted from the truth as it would be stored:
 *           in 16 bits all rows of like averages are rounded alike, and would lean together.
 *   growth  The largest error on one fixed problem, over several seeds, when its keys are cut into
 *           1, 2, 4, 8 parts, grows like a random walk, slope 1/2, or less; partial results that
 *           are rounded too early make it jump.
 */
#ifndef TESTS_HARNESS_BOUND_GRADE_H
#define TESTS_HARNESS_BOUND_GRADE_H

#include "tests/harness/base/fill.h"
#include "tests/harness/bound/bound.h"

#define ATTN_GRADE_LAMBDA 5.0
#define ATTN_BIAS_LIMIT   6.0
#define ATTN_GROWTH_LIMIT 0.7

struct attn_grade {
    char letter;  /* 'A', 'B'; 0: not graded                                  */
    double rho;   /* largest error / T2 of all outputs                        */
    int64_t rows; /* that the bias was taken over; 0: not looked for          */
    double bias;  /* mean over rows of (error of O) / T2, times sqrt(rows)     */
};

/* Grade whole outputs got[ATTN_OUTPUTS] (data == NULL: not there).  inputs->kept has to be
 * there. */
enum attn_status attn_grade_outputs(const struct attn_problem *problem,
                                    const struct attn_inputs *inputs,
                                    const struct attn_precision *precision,
                                    const struct attn_cview *got, enum attn_fill fill,
                                    struct attn_grade *grade, struct attn_error *err);

#endif
