/* A mask that reads bytes which a rank holds: some keys' of keys(...), or some queries' rows.
 *
 * A process of many has a part of such a mask, as it has of q, k and v.  What it is asked about
 * other tokens, it says is hidden: it does not know. */
#ifndef REF_MASK_BYTES_H
#define REF_MASK_BYTES_H

#include "ref/mask/mask.h"

/* Of keys [batches, rows], of queries [batches, rows, Lk]: a byte that is not 0 is visible.  A row
 * is a token of a stretch; the stretches lie one behind the other. */
enum { ATTN_MASK_STRETCHES = 2 };
struct attn_mask_bytes {
    const unsigned char *data;
    struct attn_tokens batches, stretch[ATTN_MASK_STRETCHES]; /* n = 0: none */
    int64_t batch_bytes;                                      /* from a batch to the next */
};

/* How many calls keys(...) the mask has; what the first says of a key. */
int attn_mask_keys_calls(const struct attn_mask *mask);
int attn_mask_keys_allow(const struct attn_mask *mask, int64_t b, int64_t j);

/* The mask with its first keys(...), or all of it, read from *bytes, which may change between
 * questions: made in attn_mask_over_size bytes at memory, aligned as malloc's.  It needs the mask
 * for its other calls, and is not to be freed.  All of it, if it is the same for all heads. */
enum attn_mask_over { ATTN_MASK_OVER_KEYS, ATTN_MASK_OVER_ROWS };
int64_t attn_mask_over_size(const struct attn_mask *mask);
struct attn_mask *attn_mask_over(void *memory, const struct attn_mask *mask,
                                 enum attn_mask_over what, const struct attn_mask_bytes *bytes);

#endif
