/* Schedules and closed forms that several schemes share. */
#ifndef OPTIMIZED_PARALLEL_SCHEDULE_H
#define OPTIMIZED_PARALLEL_SCHEDULE_H

#include "optimized/parallel/scheme.h"
#include "optimized/parallel/transport.h"
#include "optimized/parallel/work.h"

struct attn_stop attn_ring_stop(const struct attn_ring *ring, int rank, int n);
struct attn_round attn_ring_round(const struct attn_work *w, int n);

/* ENOTSUP when windows do not fill the places. */
enum attn_status attn_ring_check(const char *scheme, const struct attn_ring *ring,
                                 struct attn_error *err);
int attn_largest_divisor(int n, int most);

/* Layouts in which one thing is dealt out over all ranks: tokens, one run after the other or as
 * order= says; runs of tokens whatever the order; heads; batches. */
struct attn_layout attn_layout_of_tokens(const struct attn_problem *whole,
                                         const struct attn_options *options);
struct attn_layout attn_layout_in_order(const struct attn_problem *whole,
                                        const struct attn_options *options);
struct attn_layout attn_layout_of_runs(const struct attn_problem *whole,
                                       const struct attn_options *options);
struct attn_layout attn_layout_of_heads(const struct attn_problem *whole,
                                        const struct attn_options *options);
struct attn_layout attn_layout_of_batches(const struct attn_problem *whole,
                                          const struct attn_options *options);

/* Keys: K and V make P-1 hops, of every block but the one that is held last: that of the rank one
 * place and one window further.  dK and dV: P hops, the last one home, of every block. */
struct attn_sent attn_ring_sent(const struct attn_work *w);

/* Tokens of all heads, as they are half way or at home, against heads of all tokens, among the
 * ranks that share a place.  Of q k v, backward dO lse D too, a rank sends to each other one its
 * tokens of that one's heads; of o lse, backward dQ dK dV, to each other one that one's tokens of
 * its own heads. */
struct attn_sent attn_heads_for_tokens_sent(const struct attn_work *w);

/* The same with frames for places or places for frames: of its frames the other one's places. */
struct attn_sent attn_frames_for_places_sent(const struct attn_work *w);

/* The same with all heads of runs of tokens for some heads of scopes: of its run the other one's
 * scopes, of that one's heads. */
struct attn_sent attn_scopes_for_tokens_sent(const struct attn_work *w);

/* Whole batches at home against tokens of all batches half way. */
struct attn_sent attn_tokens_for_batches_sent(const struct attn_work *w);

/* Bytes of a row of a tensor: as it is stored, and of a result while it is summed. */
int64_t attn_row_bytes(const struct attn_problem *p, enum attn_tag_kind kind);
int64_t attn_sum_row_bytes(const struct attn_problem *p, enum attn_tag_kind kind);

/* So many messages more, of so many bytes together, unless they are empty. */
void attn_sent_add(struct attn_sent *sent, int64_t messages, int64_t bytes);

#endif
