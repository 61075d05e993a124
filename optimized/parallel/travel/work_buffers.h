/* The moves of a rank from home to work and back, and the buffers of its call: price.c prices them,
 * travel.c takes them. */
#ifndef OPTIMIZED_PARALLEL_WORK_BUFFERS_H
#define OPTIMIZED_PARALLEL_WORK_BUFFERS_H

#include "optimized/parallel/layout/move.h"
#include "optimized/parallel/work.h"

/* The tensors of a pass that are exchanged: how many, the inputs first. */
int attn_work_tensors(enum attn_pass pass, const enum attn_tag_kind **kinds, int *inputs);

/* The move of a tensor from home to work, or of a result back.  Data is the caller's. */
struct attn_move attn_work_move(const struct attn_work *w, enum attn_tag_kind kind, int goes_home);

/* Bytes of K and V that live from a forward pass to its backward pass: these two are neighbours. */
int64_t attn_work_saved(const struct attn_work *w);
#define ATTN_SAVED_NAME "kv.saved"

/* Taken one after the other when everything is computed: of dk, then of dv.  copies[1]: the sum at
 * home, where it is wider than dk. */
void attn_work_copies(const struct attn_work *w, enum attn_tag_kind kind,
                      struct attn_buffer copies[2]);

/* The larger ones of these two; how many numbers are added in both. */
int64_t attn_work_largest_copies(const struct attn_work *w, struct attn_buffer largest[2]);

/* ---- buffers --------------------------------------------------------------------------------- */

/* One for each kind of tensor that is moved, and these. */
enum {
    ATTN_MESSAGES = ATTN_TAG_KINDS, /* of moves */
    ATTN_ZEROS,                     /* O for the local backward: one row */
    ATTN_DELTA_SHARD,               /* -D of the rows that are at home here */
    ATTN_KV_TRAVEL,
    ATTN_O_SUM, /* sums that are wider than what they are for */
    ATTN_DQ_SUM,
    ATTN_DKV_SUM,
    ATTN_O_PARTIAL,
    ATTN_LSE_PARTIAL,
    ATTN_DQ_PARTIAL,
    ATTN_DKV_TRAVEL,
    ATTN_DKV_PARTIAL,
    ATTN_MASK_PARTS, /* the mask that reads bytes */
    ATTN_MASK_SHARD,
    ATTN_MASK_WORK,
    ATTN_MASK_TRAVEL,
    ATTN_WORK_BUFFERS
};
void attn_work_buffers(const struct attn_work *w, struct attn_buffer buffer[ATTN_WORK_BUFFERS]);

/* Blocks of keys are of one size: a rank's own sum of gradients has room for any of them. */
int attn_work_is_even(const struct attn_work *w);

#endif
