/* The declaration of an arithmetic: by numbers, or by a word for the usual sets. */
#ifndef TESTS_HARNESS_BOUND_ARITHMETIC_H
#define TESTS_HARNESS_BOUND_ARITHMETIC_H

#include <math.h>

#include "ref/attn.h"
#include "ref/precision.h"

/* Half the spacing of subnormals of a storage type, and the size from which on rounding to nearest
 * makes an infinity. */
double attn_dtype_tiny(enum attn_dtype dtype);
double attn_dtype_overflow(enum attn_dtype dtype);

/* The numbers of a declaration that are printed and kept, in this order. */
struct attn_precision_term {
    const char *key, *name;
    size_t at;  /* the double in struct attn_precision */
    int always; /* printed though it is 0 */
};
enum { ATTN_PRECISION_TERMS = 12 };
extern const struct attn_precision_term attn_precision_term[ATTN_PRECISION_TERMS];
double attn_precision_get(const struct attn_precision *precision, int term);

/* The sets of arithmetic.def; 0 is "f32": what attn_precision_of gives. */
struct attn_arithmetic {
    const char *word, *stands_for;
    int sixteen;                 /* of 16-bit storage alone */
    int64_t keys;                /* between two rescales; 0: none */
    struct attn_precision given; /* 0: as without; below 0: of the storage type */
};
extern const struct attn_arithmetic attn_arithmetic[];
extern const int attn_arithmetic_count;
int attn_arithmetic_find(const char *word); /* -1: no such word */

/* Declare a set for a problem; nothing changes where it does not apply (f64; a set of 16-bit
 * kernels in f32). */
void attn_arithmetic_declare(int set, const struct attn_problem *problem,
                             struct attn_precision *precision);

/* After all numbers: those that follow from others.  attn_precision_of calls it. */
void attn_precision_complete(const struct attn_problem *problem, struct attn_precision *precision);

/* Subnormal numbers of the arithmetic, and of storage types of its exponent range, may count as 0,
 * as operands and as results: what flush-to-zero and denormals-are-zero do. */
void attn_precision_flush(const struct attn_problem *problem, struct attn_precision *precision);

/* The same of f16, after all else. */
void attn_precision_flush_16(const struct attn_problem *problem, struct attn_precision *precision);

/* The declaration of an implementation for a problem. */
void attn_precision_of(const struct attn_impl *impl, const struct attn_options *options,
                       const struct attn_problem *problem, struct attn_precision *precision);

/* "u 5.96e-08, storage ..., at most 4 rescales and 3 merges a row". */
void attn_precision_print(const struct attn_precision *precision, char *text, size_t size);

/* Unit roundoff of sums of products. */
double attn_sum_roundoff(const struct attn_precision *precision);

/* May a number of this size be an infinity of the type that inner results, or sums, have?  The size
 * of a sum is a NaN where its bound has overflowed: the sum may be anything. */
static inline int attn_may_overflow(const struct attn_precision *precision, double size)
{
    return precision->overflow > 0 && size >= precision->overflow;
}

static inline int attn_sum_may_overflow(const struct attn_precision *precision, double size)
{
    return precision->u_sum > 0x1p-12 && (isnan(size) || attn_may_overflow(precision, size));
}

/* The error of a term of a scaled gradient that underflows, scaled before it is added or after, in
 * units of the sum before scale. */
double attn_term_tiny(const struct attn_precision *precision, double scale);

/* The error that is added for operands of a scaled gradient that are rounded (u_q): subnormals,
 * scaled before or after, in units of the sum before scale. */
double attn_operand_tiny(const struct attn_precision *precision, double u, double scale);

/* g(n) = n u / (1 - n u): the error of n roundings (Higham 2002, lemma 3.1); inf when n u >= 1. */
double attn_gamma(double n, double u);

/* The error of a sum of n terms: gamma_n, or lambda sqrt(n) u where lambda > 0 and that is less. */
double attn_sum_error(double n, double u, double lambda);

/* The error of `count` partial results that are stored narrower than their sum (u_partial) and
 * whose sizes sum to `size`, scaled before or after: 0 where none are; infinite where one of them
 * may overflow. */
double attn_partials_error(const struct attn_precision *precision, double size, double count,
                           double scale);

#endif
