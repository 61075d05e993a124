/* Masks as numbers: what most implementations call causal and window. */
#ifndef TESTS_HARNESS_CASES_BAND_H
#define TESTS_HARNESS_CASES_BAND_H

#include "ref/mask/mask.h"

/* Query i sees key j when i + offset - left <= j <= i + offset + right; -1: no end on that side. */
struct attn_band {
    int64_t offset, left, right;
};

/* 1 when the mask is causal(A), window(l,r,A), or these joined by & under one alignment. */
int attn_band_of(const struct attn_mask *mask, struct attn_band *band);

/* Documents, packed one behind the other: the mask is documents(...), alone, or joined by & to a
 * band that means the same inside each of them (which it does where every document has as many
 * queries as keys).  *list: the lengths, for attn_documents_next; *is_self: as many queries as
 * keys. */
enum attn_documents { ATTN_DOCUMENTS_NONE, ATTN_DOCUMENTS_ALONE, ATTN_DOCUMENTS_BAND };
enum attn_documents attn_documents_of(const struct attn_mask *mask, struct attn_band *band,
                                      const char **list, int *is_self);
int attn_documents_next(const char **list, int64_t *n_query, int64_t *n_key); /* 0: no more */

/* Whether some query sees no key at all. */
int attn_mask_has_empty_rows(const struct attn_mask *mask, int64_t batch, int64_t heads,
                             int64_t n_query, int64_t n_key);

/* One byte for each pair, [B,H,Lq,Lk] contiguous: `visible` where the query sees the key, else
 * 1 - visible. */
void attn_mask_bytes(const struct attn_mask *mask, const struct attn_mask_shape *shape,
                     unsigned char visible, unsigned char *byte);

#endif
