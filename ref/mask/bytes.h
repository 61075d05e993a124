/* A mask that reads bytes: of keys(...) of some keys, or of some queries' rows.  A process of many
 * has such a part of a mask, as it has of k and q; of other tokens it says that they are hidden. */
#ifndef REF_MASK_BYTES_H
#define REF_MASK_BYTES_H

#include "ref/mask/mask.h"

/* [batches, tokens] of keys, [batches, tokens, Lk] of queries; a byte that is not 0 is visible. */
struct attn_mask_bytes {
    const unsigned char *data;
    struct attn_tokens tokens;
    int64_t batch, batch_bytes; /* the first one; from one to the next */
};

/* How many calls keys(...) the mask has; what the first says of a key. */
int attn_mask_keys_calls(const struct attn_mask *mask);
int attn_mask_keys_allow(const struct attn_mask *mask, int64_t b, int64_t j);

/* The mask with its first keys(...), or (is_rows) all of it, for all heads, read from *bytes, which
 * may change between questions.  It lies in attn_mask_over_size bytes at memory, aligned as
 * malloc's, needs the mask for its other calls, and is not to be freed. */
int64_t attn_mask_over_size(const struct attn_mask *mask);
struct attn_mask *attn_mask_over(void *memory, const struct attn_mask *mask, int is_rows,
                                 const struct attn_mask_bytes *bytes);

#endif
