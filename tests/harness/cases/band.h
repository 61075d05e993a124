/* Masks as numbers: what most implementations call causal and window. */
#ifndef TESTS_HARNESS_CASES_BAND_H
#define TESTS_HARNESS_CASES_BAND_H

#include "ref/mask/mask.h"

/* Query i sees key j when i + offset - left <= j <= i + offset + right; -1: no end on that side. */
struct attn_band {
    int64_t offset, left, right;
};

/* Documents, one behind the other: n + 1 starts of each, in the mask. */
struct attn_documents {
    int64_t n; /* 0: there are none */
    const int64_t *query_start, *key_start;
};

/* Bands under one alignment, at most one documents(...), packed one behind the other, and lengths
 * of keys, joined by &.  1 when a mask is such a chain. */
struct attn_chain {
    int n_bands;
    struct attn_band band; /* all of them together, as the first batch has it */
    struct attn_documents documents;
    int64_t length; /* of the first batch: keys(n1,...), ends,n1,...; -1: it says none */
    int is_ends;    /* the bands are aligned to these, each batch with an offset of its own */
    int is_self;    /* each document has as many queries as keys: a band means the same in all */
};
int attn_chain_of(const struct attn_mask *mask, struct attn_chain *chain);

/* The length of batch b; -1: it says none. */
int64_t attn_mask_length(const struct attn_mask *mask, int64_t b);

/* 1: some query sees no key at all. */
int attn_mask_has_empty_rows(const struct attn_mask *mask, int64_t batch, int64_t heads,
                             int64_t n_query, int64_t n_key);

/* One byte for each pair, [B,H,Lq,Lk] contiguous: `visible` where the query sees the key, else
 * 1 - visible. */
void attn_mask_bytes(const struct attn_mask *mask, const struct attn_mask_shape *shape,
                     unsigned char visible, unsigned char *byte);

#endif
