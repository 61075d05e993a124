/* Comparing an output with the truth.  Written in the accepting direction throughout
 * (ok = err <= bound), with non-finite values counted before any arithmetic.  A NaN or an infinity
 * agrees where the truth has its class among those that are right, an infinity also with a truth
 * that may round beyond the largest number of the storage type. */
#ifndef TESTS_HARNESS_BOUND_AGREE_H
#define TESTS_HARNESS_BOUND_AGREE_H

#include "tests/harness/bound/bound.h"

/* Where elements are not within the bound, as marks: bits of lines.  Of more than 32 lines or bits
 * each stands for several that follow one another. */
enum { ATTN_MARKS = 32 };
struct attn_marks {
    uint32_t of_head[ATTN_MARKS]; /* line b * heads + h, bit row: a row with such an element   */
    uint32_t of_row[ATTN_MARKS];  /* line row, bit feature: of the first head that has any     */
    int64_t first;                /* b * heads + h of that one                                 */
    int64_t extent[4];            /* what was compared: batch, heads, rows, features           */
};

struct attn_agreement {
    const char *name;
    int64_t n;            /* elements compared                                             */
    int64_t n_bad;        /* not within the bound                                          */
    int64_t n_not_finite; /* NaN or Inf where the truth is finite, or the other way round  */
    int64_t n_unbounded;  /* elements whose bound is infinite: nothing can be said about them    */
    int64_t n_either;     /* bounded elements of which more than one class is right           */
    int64_t n_no_bound;   /* elements whose bound is no number: an error of the suite            */
    int64_t n_powerless;  /* elements with 0 < bound and |want| <= bound: zeros would pass  */
    int64_t n_blind;      /* of these, those whose bound is above a quarter of the gauge: numbers
                             of the usual size would pass as well                          */
    double ratio;         /* largest error / bound; +inf where a bound of 0 was missed     */
    double gauge;         /* largest error / (u * gauge): printed, never judged by         */
    double error, size;   /* largest |got - want| and |want| where the truth is finite         */
    int64_t at[4];        /* the worst element: b, h, row (of the whole tensor), feature   */
    int64_t low[4], high[4];   /* the elements that are not within the bound, from and to        */
    int64_t bad_rows, last[3]; /* rows with such elements, and the last of them               */
    struct attn_marks marks;
    double got, want, bound;
};

/* Compare.  got has the whole tensor's shape; sampled rows are looked up in it.  u: of the
 * arithmetic; the gauge counts in it, or in that of storage where this is larger. */
void attn_agree(const struct attn_cview *got, const struct attn_truth_tensor *truth, double u,
                struct attn_agreement *agreement);

/* x as a storage type holds it: rounded to nearest. */
double attn_dtype_round(double x, enum attn_dtype dtype);

/* The same at zero tolerance: want must be met as rounded to the storage type, bit for bit but
 * for the sign of zero.  Asked of numbers up to 1/u, so far as arithmetic of this unit roundoff has
 * all integers, and of which the bound can say something; others count as met. */
void attn_agree_exactly(const struct attn_cview *got, const struct attn_truth_tensor *truth,
                        double u, struct attn_agreement *agreement);

#endif
