/* Taking a tensor from one layout to another: all-to-all, all-gather, reduce-scatter.
 *
 * Rank p sends rank q the part of the tensor where p's box of the one layout meets q's of the
 * other.  An element that several ranks are to have is sent to each (all-gather; kv heads that
 * several ranks read).  On the way back, what several ranks have is a partial sum in each: the
 * owner gets all of them and adds them up, in the order of the ranks (reduce-scatter).  So every
 * move has its adjoint, and that is all of Ulysses, of all-gather and of tensor parallelism.
 *
 * A pair of ranks exchanges at most one message; there is none where boxes do not meet.  With pads
 * (rank_layout.h), a message has the size of what is stored on both ends: where stored boxes
 * meet.
 */
#ifndef OPTIMIZED_PARALLEL_MOVE_H
#define OPTIMIZED_PARALLEL_MOVE_H

#include "optimized/parallel/layout/rank_box.h"
#include "ref/buffers.h"
#include "ref/ranks.h"

/* A tensor as one rank holds it: data is the rank's box of the layout, of which, if is_cut, only
 * the kv heads of `heads` are there (a tensor of keys that is brought a few heads at a time). */
struct attn_end {
    const struct attn_layout *layout;
    void *data;
    int is_cut;
    struct attn_tokens heads;
};

struct attn_move {
    const struct attn_problem *whole;
    enum attn_tag_kind kind;
    enum attn_dtype dtype; /* of both ends */
    int step;              /* of the tag */
    struct attn_end from, to;
    int64_t apart; /* bytes from what goes to a rank to what goes to the next, where a tensor is
                      repeated for all of them; else 0 */
};

/* Bytes of the message from rank p to rank q: where their stored boxes meet. */
int64_t attn_move_message(const struct attn_move *move, int p, int q);

/* The lists of messages of a move between all ranks: a buffer of the caller's, for any move
 * between these layouts. */
struct attn_buffer attn_move_lists(const struct attn_layout *from, const struct attn_layout *to);

/* Room for the copies that several ranks bring home. */
struct attn_buffer attn_move_copies(const struct attn_move *move, int rank);
int64_t attn_move_additions(const struct attn_move *move, int rank); /* of numbers */

/* Copy the part that the rank has at both ends: it does not travel. */
void attn_move_own(const struct attn_move *move, int rank, void *lists);

/* Every element has one source. */
enum attn_status attn_move(const struct attn_move *move, struct attn_transport *t, void *lists,
                           struct attn_error *err);

/* The adjoint of a move with copies: sums what comes.  copies: a buffer of attn_move_copies. */
enum attn_status attn_move_sum(const struct attn_move *move, struct attn_transport *t, void *lists,
                               void *copies, struct attn_error *err);

#endif
