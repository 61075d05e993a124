/* The buffers of a rank's call: price.c prices them, travel.c takes them. */
#ifndef OPTIMIZED_PARALLEL_WORK_BUFFERS_H
#define OPTIMIZED_PARALLEL_WORK_BUFFERS_H

#include "optimized/parallel/travel/work_moves.h"

/* Those of moves, and these. */
enum {
    ATTN_ZEROS = ATTN_MOVE_BUFFERS, /* O for the local backward: one row */
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
