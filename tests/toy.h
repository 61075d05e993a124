/* A toy implementation that is right, or wrong in one way that a relation is about.
 *
 * It runs tiled-textbook and then spoils what came out, or what went in; its option `mischief`
 * says how.  Tests of relations ask that each mischief is found. */
#ifndef TESTS_TOY_H
#define TESTS_TOY_H

#include "optimized/registry.h"

enum toy_mischief {
    TOY_HONEST,
    TOY_LSE_BASE_2,     /* LSE is a logarithm to base 2                                   */
    TOY_LSE_OFFSET,     /* LSE is one too large                                           */
    TOY_O_CURVED,       /* O + O^2 / 1000                                                 */
    TOY_O_LARGE,        /* O is half as large again                                       */
    TOY_O_BY_ROW,       /* O + i / 1000                                                   */
    TOY_O_BY_FEATURE,   /* O + q_0 / 1000                                                 */
    TOY_O_BY_GROUPS,    /* O + G / 1000                                                   */
    TOY_O_BY_LENGTH,    /* O + Lq / 1000                                                  */
    TOY_O_BY_MASK,      /* O + 1 / 1000 when there is a mask                              */
    TOY_O_BY_NEIGHBOUR, /* O + what the next head's q_0 is / 1000                         */
    TOY_O_BY_COLUMN,    /* O + what the next column of V holds / 1000                     */
    TOY_O_BY_LAST_V,    /* O + 0 times the last key's V: NaN when that is                 */
    TOY_O_BY_LAYOUT,    /* O + 1 / 1000 unless q is contiguous                            */
    TOY_O_BY_OPTION,    /* O + tile / 1000                                                */
    TOY_O_BY_ADDRESS,   /* O + 1 / 1000 unless q is aligned to 64 bytes                   */
    TOY_O_BY_THREADS,   /* O + threads / 1000                                             */
    TOY_O_BY_CALLS,     /* O + calls so far / 1000                                        */
    TOY_O_BY_HISTORY,   /* O + Lk of the call before / 1000                               */
    TOY_ONE_KEY_LESS,   /* the last key is never read                                     */
    TOY_ONE_TOO_FAR,    /* one element past the end of O is read                          */
    TOY_NARROW_STRIDE,  /* strides of q are 32 bits wide                                  */
    TOY_NARROW_ORIGIN,  /* where the problem sits in the mask is 16 bits wide             */
    TOY_DK_OFFSET,      /* dK + 1 / 100                                                   */
    TOY_DV_LARGE,       /* dV is 1 % too large                                            */
    TOY_DQ_LARGE,       /* dQ is 1 % too large                                            */
    TOY_DQ_BY_KEY,      /* dQ + k_0 / 100                                                 */
    TOY_DV_BY_FIRST,    /* dV + 0 times the first row's dO                                */
    TOY_DBIAS_OFFSET,   /* dBias + 1 / 100                                                */
    TOY_MISCHIEFS
};

/* A spec of the toy. */
struct attn_spec toy_spec(enum toy_mischief mischief);

#endif
