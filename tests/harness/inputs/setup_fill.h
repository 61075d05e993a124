/* The numbers of each fill: values of q, k, v, bias, dO and dLSE as functions of case and index.
 *
 * A recipe is made once for a case; every value is then a function of the recipe and the
 * logical index alone.  All arithmetic is integer hashing, exact products, and single correctly
 * rounded operations, so every machine gives the same bits.
 */
#ifndef TESTS_HARNESS_CASES_SETUP_FILL_H
#define TESTS_HARNESS_CASES_SETUP_FILL_H

#include "tests/harness/inputs/setup.h"

enum { ATTN_STREAMS = 13 }; /* of the hash: setup_fill.c names them */

struct attn_recipe {
    const struct attn_problem *problem; /* borrowed */
    enum attn_fill fill;
    uint64_t seed;
    enum attn_case_bias bias;
    enum attn_case_sink sink;
    double divisor; /* k_0 = score / divisor where feature 0 carries scores; 0: it cannot;
                       powers: what a key's whole numbers are multiplied by                    */
    double lift;    /* q_0 is this times 8: 4 for outliers, more where f16 cannot hold k_0 */
    double code;    /* select: the size of a code word's features, a power of two              */
    int code_bits;  /* select: bits that tell the keys apart                                   */
    int64_t row, target; /* select: the row whose target was asked for last, and that; powers:
                            its choice                                                         */
    uint64_t stream[ATTN_STREAMS];      /* of the hash, mixed with the seed */
    const struct attn_subsets *subsets; /* subsets: the setup's, set by it */
};

/* EINVAL when the fill cannot have its property in this case: says which extents, scale or
 * fields would work.  The problem needs its extents, scale, softcap and dtype set. */
enum attn_status attn_recipe_open(const struct attn_case *c, const struct attn_problem *problem,
                                  struct attn_recipe *recipe, struct attn_error *err);

/* select: the key that query i is aimed at, one of those it sees; -1 when it sees none.  O(Lk). */
int64_t attn_recipe_target(const struct attn_recipe *recipe, int64_t b, int64_t h, int64_t i);

/* All rows of a tensor, of which `extent` elements are different ones, or of a part (NULL: the
 * whole).  ENOTSUP: it is not all that is put into tensors of this case. */
void attn_recipe_fill(struct attn_recipe *recipe, const struct attn_setup_part *part,
                      enum attn_slot slot, const int64_t extent[4], const struct attn_tensor *t);
enum attn_status attn_recipe_is_all(const struct attn_case *c, struct attn_error *err);

/* ALiBi's slope of a head.  halves: exact everywhere, 1/2, 1/4, ... 1/256, 1/2, ...  press: with n
 * the largest power of two up to the heads, 2^(-8 k/n) for k = 1 ... n, then 2^(-4 k/n) for k = 1,
 * 3, 5, ... */
double attn_recipe_slope(const struct attn_case *c, int64_t h);

#endif
