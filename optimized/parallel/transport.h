/* How ranks talk: one operation, and what is built on it.
 *
 * exchange() posts a list of sends and a list of receives and returns when all of them are done:
 * MPI_Isend, MPI_Irecv and MPI_Waitall in one.  It is the only operation a transport has to bring
 * (struct attn_transport_ops); ring hops and all-to-alls are lists of messages.  A message has no
 * buffer of its own: it is copied once, from where the sender has it to where the receiver wants
 * it, and both sides may describe memory with gaps, so no packing buffers exist either.
 *
 * Between two ranks messages are matched in the order in which they were posted, and then tag and
 * shape must agree.  That is stricter than MPI, on purpose: a rank that skips a hop is found at
 * that hop.  After an error a transport is finished: every later call fails too.
 */
#ifndef OPTIMIZED_PARALLEL_TRANSPORT_H
#define OPTIMIZED_PARALLEL_TRANSPORT_H

#include "ref/attn.h"

enum { ATTN_MAX_RANKS = 64 };

/* What a message is: a tensor's kind, and the hop or step in which it travels. */
enum attn_tag_kind {
    ATTN_TAG_Q,
    ATTN_TAG_K,
    ATTN_TAG_V,
    ATTN_TAG_O,
    ATTN_TAG_LSE,
    ATTN_TAG_DO,
    ATTN_TAG_DELTA,
    ATTN_TAG_DQ,
    ATTN_TAG_DK,
    ATTN_TAG_DV,
    ATTN_TAG_KINDS
};
static inline int attn_tag(enum attn_tag_kind kind, int step)
{
    return step * ATTN_TAG_KINDS + (int)kind;
}
const char *attn_tag_name(int tag); /* "k", "dq", ... */

/* Heads, tokens and width of a tensor of this kind. */
void attn_tag_extent(enum attn_tag_kind kind, const struct attn_problem *p, int64_t extent[3]);
enum attn_dtype attn_tag_dtype(enum attn_tag_kind kind, const struct attn_problem *p);
int attn_tag_step(int tag);

/* Where the bytes of a message lie: extent[0] x extent[1] x extent[2] rows of `row` adjacent bytes,
 * stride[a] bytes apart along axis a.  Sender and receiver must agree in extents and row; their
 * strides are their own. */
struct attn_piece {
    int64_t extent[3], stride[3], row;
};
int64_t attn_piece_bytes(const struct attn_piece *piece);
struct attn_piece attn_piece_whole(int64_t bytes); /* one run of bytes */

void attn_piece_copy(void *to, const struct attn_piece *to_piece, const void *from,
                     const struct attn_piece *from_piece);

struct attn_send {
    int peer, tag;
    const void *data;
    struct attn_piece piece;
    int done; /* the transport's */
};
struct attn_receive {
    int peer, tag;
    void *data;
    struct attn_piece piece;
    int done; /* the transport's */
};

struct attn_transport;

struct attn_transport_ops {
    const char *name; /* "simulated", ... */
    enum attn_status (*exchange)(struct attn_transport *t, struct attn_send *send, int n_sends,
                                 struct attn_receive *receive, int n_receives,
                                 struct attn_error *err);
};

/* One rank's end.  Belongs to that rank alone. */
struct attn_transport {
    const struct attn_transport_ops *ops;
    void *state;
    int rank, size;
    int64_t bytes_sent, messages; /* so far; a rank's messages to itself do not exist */
};

/* Do all of these, in any order, and count the sends.  Peers must be other ranks.  EPEER when a
 * peer failed, left, or posted something else, or when no rank can make progress. */
enum attn_status attn_exchange(struct attn_transport *t, struct attn_send *send, int n_sends,
                               struct attn_receive *receive, int n_receives,
                               struct attn_error *err);

/* All-to-all: what goes to each rank and what comes from it lie where out() and in() say, a rank's
 * own piece among them, which is copied without a message. */
struct attn_place {
    int64_t offset; /* bytes */
    struct attn_piece piece;
};
struct attn_a2a {
    const void *from;
    void *to;
    struct attn_place (*out)(const void *arg, int peer); /* in from */
    struct attn_place (*in)(const void *arg, int peer);  /* in to */
    const void *arg;
};
enum attn_status attn_all_to_all(struct attn_transport *t, int tag, const struct attn_a2a *x,
                                 struct attn_error *err);

#endif
