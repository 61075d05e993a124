/* Lab 07: what a submission in C exports, and what it is asked.
 *
 * One function, int64_t price(const struct price_problem *p): the bytes of `of` in this problem, at
 * the peak and beside inputs and outputs.  Another number than the right one, such as -1, is wrong.
 */
#ifndef LAB_PRICES_H
#define LAB_PRICES_H

#include <stdint.h>

/* Everything that may matter; what does not is 0.  A line of JSON has the same keys. */
#define PRICE_NUMBERS(X)                                                                          \
    X(backward)                                   /* 0: forward, 1: backward                  */ \
    X(batch) X(heads) X(kv_heads)                 /* B, H, G                                  */ \
    X(n_query) X(n_key) X(d_key) X(d_value)       /* Lq, Lk, d, dv                            */ \
    X(has_mask) X(pairs)                          /* 0: none; N: visible pairs of one head    */ \
    X(bytes)                                      /* of a number: 4 or 8                      */ \
    X(tile_query) X(tile_key)                     /* Br, Bc; of chunked: its chunks           */ \
    X(ranks)                                      /* P                                        */ \
    X(is_first) X(flush) X(workspace)             /* of the call of xformers, see the page    */

struct price_problem {
    const char *of; /* "dense", "csr-textbook", ... */
#define X(name) int64_t name;
    PRICE_NUMBERS(X)
#undef X
};

#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
int64_t
price(const struct price_problem *p);

#endif
