/* The sink on ranks: each brings it into the rows that it has at home, when these are complete, so
 * that it counts once (ref/sink.h).  Before a backward pass it makes the copy of LSE that the pass
 * sees, and the part of dz that its rows give.  It sends the part to every other rank, and adds
 * those of all ranks in their order: every rank has the same dz, to the bit. */
#ifndef OPTIMIZED_PARALLEL_RANK_SINK_H
#define OPTIMIZED_PARALLEL_RANK_SINK_H

#include "optimized/parallel/layout/rank_box.h"
#include "optimized/parallel/rank.h"
#include "ref/buffers.h"

/* Of a backward pass, from the ledger of a rank; sizes are 0 without a sink. */
enum { ATTN_SINK_LSE, ATTN_SINK_PARTS, ATTN_SINK_BUFFERS };
void attn_rank_sink_buffers(const struct attn_problem *whole, const struct attn_layout *home,
                            enum attn_pass pass, int rank,
                            struct attn_buffer buffer[ATTN_SINK_BUFFERS]);

/* Bytes and messages of the parts of dz. */
struct attn_sent attn_rank_sink_sent(const struct attn_problem *whole, enum attn_pass pass,
                                     int ranks);

/* After a forward pass: the rows of o and lse at home. */
void attn_rank_sink_forward(const struct attn_rank *rank, const struct attn_problem *whole,
                            const struct attn_layout *home,
                            const struct attn_view mine[ATTN_TAG_KINDS]);

/* Before a backward pass: mine[ATTN_TAG_LSE] becomes the copy, and dsink, where it has data, the
 * sum of all ranks. */
enum attn_status attn_rank_sink_backward(const struct attn_rank *rank,
                                         const struct attn_problem *whole,
                                         const struct attn_layout *home,
                                         const struct attn_buffer buffer[ATTN_SINK_BUFFERS],
                                         struct attn_view mine[ATTN_TAG_KINDS],
                                         const struct attn_view *dsink);

/* Where ranks are processes that have whole tensors: dsink also to those that are no rank of the
 * call. */
enum attn_status attn_rank_sink_share(const struct attn_ctx *ctx, const struct attn_problem *whole,
                                      const struct attn_view *dsink);

#endif
