/* Bytes and messages that schemes send, from the sizes of blocks: closed forms that several share,
 * and what they are made of.  Tests compare them with what a transport counts. */
#ifndef OPTIMIZED_PARALLEL_SENT_H
#define OPTIMIZED_PARALLEL_SENT_H

#include "optimized/parallel/parallel.h"
#include "optimized/parallel/work.h"

/* Bytes of a row of a tensor: as it is stored, and of a result while it is summed. */
int64_t attn_row_bytes(const struct attn_problem *p, enum attn_tag_kind kind);
int64_t attn_sum_row_bytes(const struct attn_problem *p, enum attn_tag_kind kind);

/* Add messages, of `bytes` bytes together; none if they are empty. */
void attn_sent_add(struct attn_sent *sent, int64_t messages, int64_t bytes);

static inline struct attn_sent attn_sent_both(struct attn_sent a, struct attn_sent b)
{
    return (struct attn_sent){a.bytes + b.bytes, a.messages + b.messages};
}

/* Tokens of all heads at home against heads of all tokens, among the
 * ranks that share a place.  Of q k v, backward dO lse D too, a rank sends to each other one its
 * tokens of that one's heads; of o lse, backward dQ dK dV, to each other one that one's tokens of
 * its own heads. */
struct attn_sent attn_heads_for_tokens_sent(const struct attn_work *w);

/* The same with frames for places or places for frames: of its frames the other one's places. */
struct attn_sent attn_frames_for_places_sent(const struct attn_work *w);

#endif
