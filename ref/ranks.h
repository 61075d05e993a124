/* How ranks talk: post messages, wait for them.
 *
 * attn_post() hands over a list of sends and a list of receives and returns at once; attn_wait()
 * returns when all of them are done: MPI_Isend and MPI_Irecv, then MPI_Waitall.  Arithmetic between
 * the two hides the messages.  attn_exchange() is both.  A message has no buffer of its own: it is
 * copied once, from where the sender has it to where the receiver wants it.  It is a list of
 * pieces, and both sides may describe memory with gaps, so no packing buffers exist either.
 *
 * Between two ranks messages are matched in the order in which they were posted, over all posts,
 * and then tag and shape must agree.  That is stricter than MPI, on purpose: a rank that skips a
 * hop is found at that hop.  After an error a transport is finished: every later call fails too.
 */
#ifndef REF_RANKS_H
#define REF_RANKS_H

#include "ref/impl.h"

/* The tag of a message: a tensor's kind, and the hop or step in which it travels. */
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
    ATTN_TAG_MASK_KEYS, /* bytes of a mask: of keys; rows of queries */
    ATTN_TAG_MASK_ROWS,
    ATTN_TAG_DSINK, /* a rank's part of it */
    ATTN_TAG_KINDS
};
static inline int attn_tag(enum attn_tag_kind kind, int step)
{
    return step * ATTN_TAG_KINDS + (int)kind;
}
const char *attn_tag_name(int tag); /* "k", "dq", ... */
int attn_tag_step(int tag);

/* Where bytes of a message lie: extent[0] x extent[1] x extent[2] rows of `row` adjacent bytes,
 * stride[a] bytes apart along axis a, from `offset` bytes behind the message's data on.  Sender and
 * receiver must agree in extents and row; offset and strides are their own. */
struct attn_piece {
    int64_t offset, extent[3], stride[3], row;
};
struct attn_piece attn_piece_packed(const struct attn_piece *shape, int64_t offset); /* no gaps */
int64_t attn_piece_bytes(const struct attn_piece *piece);
int64_t attn_pieces_bytes(const struct attn_piece *piece, int n);
struct attn_piece attn_piece_whole(int64_t bytes); /* one run of bytes */

/* Bytes that fill a message up: they travel, no memory holds them, and the receiver drops them. */
struct attn_piece attn_piece_pads(int64_t bytes);
int attn_piece_is_pads(const struct attn_piece *piece);

/* One side of a message.  peer: the other rank.  The pieces travel in their order; there may be
 * none.  Data that are sent are only read. */
struct attn_post;
struct attn_message {
    int peer, tag;
    void *data;
    const struct attn_piece *piece; /* [pieces] */
    int pieces;
    enum attn_dtype dtype;  /* of its elements: for the log of what is sent */
    struct attn_post *post; /* from here on the transport's: until it is done */
    struct attn_message *next;
};

/* Messages that are posted together and waited for together. */
struct attn_post {
    struct attn_message *send; /* [n_sends] */
    int n_sends;
    struct attn_message *receive; /* [n_receives] */
    int n_receives;
    int undone; /* the transport's: messages of this post that are not done */
};

/* One rank's end: below. */
struct attn_transport;

/* Begin to send and receive all of these.  Peers must be other ranks.  The caller leaves the lists,
 * their pieces and data alone until attn_wait, and reads received data only then.  At most
 * ATTN_OPEN_POSTS are open at a time.  EPEER when a peer posted something else or any rank failed;
 * then the post is not open. */
enum attn_status attn_post(struct attn_transport *t, struct attn_post *post,
                           struct attn_error *err);

/* Wait until all messages of this post are done; if that went well, its sends are counted.  Posts
 * may be waited for in any order.  EPEER when a peer failed, left, or posted something else,
 * or when no rank can make progress. */
enum attn_status attn_wait(struct attn_transport *t, struct attn_post *post,
                           struct attn_error *err);

/* Post and wait. */
enum attn_status attn_exchange(struct attn_transport *t, struct attn_message *send, int n_sends,
                               struct attn_message *receive, int n_receives,
                               struct attn_error *err);

/* ---- what makes a transport: simulated ranks, a count of messages, MPI ----------------------- */

enum { ATTN_MAX_RANKS = 4096 }; /* that can be priced */

/* Copy what one piece describes to where another one wants it. */
void attn_piece_copy(void *to, const struct attn_piece *to_piece, const void *from,
                     const struct attn_piece *from_piece);

struct attn_transport_ops {
    int counts; /* messages are counted, and what arrives is no data */
    enum attn_status (*post)(struct attn_transport *t, struct attn_post *post,
                             struct attn_error *err);
    enum attn_status (*wait)(struct attn_transport *t, struct attn_post *post,
                             struct attn_error *err);
    void (*end)(struct attn_transport *t, enum attn_status status);
};

/* A post that was not waited for.  The first message is noted down because the lists of a rank that
 * forgot them may be gone. */
struct attn_open_post {
    const struct attn_post *post; /* NULL: this place is free */
    int tag, peer;
    const char *verb; /* "send", "receive"; NULL for a post without messages */
};
enum { ATTN_OPEN_POSTS = 16 };

/* One rank's end.  Belongs to that rank alone. */
struct attn_transport {
    const struct attn_transport_ops *ops;
    void *state;
    int rank, size;
    int64_t bytes_sent, messages; /* so far; a rank's messages to itself do not exist */
    const struct attn_log *log;   /* NULL, or notes every send when it is posted */
    enum attn_pass pass;          /* for the log, as this: */
    const char *tensor;           /* its name, where its tag has another's; may be NULL */
    struct attn_open_post open[ATTN_OPEN_POSTS];
    int ended;
};

/* The work of a rank.  t->rank says which one it is. */
struct attn_rank_code {
    enum attn_status (*run)(void *arg, struct attn_transport *t, struct attn_error *err);
    void *arg;
    int counts; /* its transport counts: messages may travel, but nothing is computed */
};

/* Returns 1 if the transport only counts messages: it brings no data, so nothing is computed. */
int attn_transport_counts(const struct attn_transport *t);

/* The rank has ended with this status, which comes back: from now on no other rank touches its
 * memory.  EINTERNAL when all was well but a post is open.  A rank that fails while posts are open
 * waits for them or calls this before their lists or data go.  The code that runs ranks calls it
 * too. */
enum attn_status attn_transport_end(struct attn_transport *t, enum attn_status status,
                                    struct attn_error *err);

#endif
