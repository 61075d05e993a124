/* Lab 07: what a submission in C exports, and what it is asked.
 *
 * One function, int64_t price(const struct price_problem *p): the bytes of `of` in this problem, at
 * the peak and beyond inputs and outputs.  Another number than the right one, such as -1, is wrong.
 */
#ifndef LAB_PRICES_H
#define LAB_PRICES_H

#include <stdint.h>

/* Everything that may matter; what does not is 0.  A line of JSON has the same keys. */
struct price_problem {
    const char *of;                         /* "dense", "csr-textbook", ... */
    int64_t backward;                       /* 0: forward, 1: backward */
    int64_t batch, heads, kv_heads;         /* B, H, G */
    int64_t n_query, n_key, d_key, d_value; /* Lq, Lk, d, dv */
    int64_t has_mask, pairs;                /* 0: none; N: visible pairs of one head */
    int64_t bytes;                          /* of a number: 4 or 8; 0: the page says */
    int64_t tile_query, tile_key;           /* Br, Bc; of chunked: its chunks */
    int64_t ranks;                          /* R, or 0 */
    int64_t is_first, flush, workspace;     /* of the call of xformers: see the page */
};

#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
int64_t
price(const struct price_problem *p);

#endif
