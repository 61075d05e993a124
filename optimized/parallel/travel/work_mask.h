/* A mask as data: which bytes of it a rank has at home and at work, and what brings them.
 *
 *      mask=       at home                                 at work
 *      described   nothing: all ranks read one mask        nothing
 *      keys        keys(...) of its keys, [B, Lk/R]        of the keys that its queries meet
 *      repeated    the same R times, [R, B, Lk/R]          the same, by an all-to-all
 *      dense       rows of its queries, [B, 1, Lq/R, Lk]   of the queries that it multiplies
 *
 * Bytes that are not at home come by a move, or with the block of K and V that travels.  The local
 * implementation reads nothing else.  Which products show nothing at all is read from the
 * description, so that price and call agree.
 *
 * Source: Open-Sora (a mask [B, 1, L, L] on every rank), Open-Sora-Plan v1.2 (repeated).
 */
#ifndef OPTIMIZED_PARALLEL_WORK_MASK_H
#define OPTIMIZED_PARALLEL_WORK_MASK_H

#include "optimized/parallel/layout/move.h"
#include "optimized/parallel/sent.h"

/* 1 if bytes travel with K and V at every stop. */
int attn_work_mask_travels(const struct attn_work *w);

/* Rows of a rank's block at work, as it is stored. */
int64_t attn_work_mask_rows(const struct attn_work *w, int rank);

/* Bytes of it that a rank sends in a pass. */
struct attn_sent attn_work_mask_sent(const struct attn_work *w);

/* buffer: the table of work_buffers.h. */
void attn_work_mask_buffers(const struct attn_work *w, struct attn_buffer *buffer);

/* ENOTSUP where the mask has no such bytes, or the scheme no such exchange. */
enum attn_status attn_work_mask_accepts(const struct attn_problem *p,
                                        const struct attn_options *options, struct attn_error *err);

#endif
