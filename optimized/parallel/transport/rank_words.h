/* Messages about ranks that disagree or wait in vain: the same lines by every transport.
 */
#ifndef OPTIMIZED_PARALLEL_TRANSPORT_RANK_WORDS_H
#define OPTIMIZED_PARALLEL_TRANSPORT_RANK_WORDS_H

#include "ref/ranks.h"

/* The two sides of a message must agree in these: its tag, its pieces, their extents.  Of a message
 * from another process only the first `known` pieces are there. */
struct attn_shape {
    int tag, pieces, known;
    const struct attn_piece *piece;
};
static inline struct attn_shape attn_shape_of(const struct attn_message *x)
{
    return (struct attn_shape){x->tag, x->pieces, x->pieces, x->piece};
}

/* The first piece in which they differ; when in none that is known, how many are. */
int attn_shape_difference(const struct attn_shape *in, const struct attn_shape *out);

/* EPEER: receiver waits for `in`, and sender sends `out`. */
enum attn_status attn_say_mismatch(int receiver, const struct attn_shape *in, int sender,
                                   const struct attn_shape *out, struct attn_error *err);

/* EPEER: a rank waits to "send" or "receive" this, and the other one has left. */
enum attn_status attn_say_left(int rank, const char *verb, const struct attn_message *x,
                               struct attn_error *err);

/* "rank 1 waits to receive k (step 0) from rank 0": what is not received first. */
void attn_say_wait(int rank, const struct attn_post *post, char *text, size_t size);

/* EPEER, of a rank that stops because of another one. */
enum attn_status attn_say_stopped(int rank, struct attn_error *err);

#endif
