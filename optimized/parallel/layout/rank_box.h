/* Boxes: a rank's part of a tensor by its layout.  A box has the elements that exist; the stored
 * box has its pads too.
 */
#ifndef OPTIMIZED_PARALLEL_RANK_BOX_H
#define OPTIMIZED_PARALLEL_RANK_BOX_H

#include "optimized/parallel/rank_layout.h"

static inline struct attn_tokens attn_tokens_common(const struct attn_tokens *a,
                                                    const struct attn_tokens *b)
{
    int64_t a_end = a->first + a->n, b_end = b->first + b->n;
    return attn_tokens_between(a->first > b->first ? a->first : b->first,
                               a_end < b_end ? a_end : b_end);
}

/* The part of a tensor that a rank has, of all batches: these heads (kv heads of a tensor of keys)
 * and tokens.  In memory it is [batch, heads, tokens, width], stretch after stretch.  The one
 * stretch of a box of places is there once for each frame, `pitch` tokens apart. */
struct attn_box {
    int64_t batch;
    struct attn_tokens heads, stretch[ATTN_MAX_STRETCHES];
    int stretches;
    int64_t repeats, pitch; /* 1, 0 but for places */
    int64_t tokens;
};

/* Of a box, tokens of equal distance in the sequence; in memory, from row `row` on. */
struct attn_stretch {
    struct attn_tokens tokens;
    int64_t row;
};
int64_t attn_box_stretches(const struct attn_box *box);
struct attn_stretch attn_box_stretch(const struct attn_box *box, int64_t s);

struct attn_box attn_layout_box(const struct attn_layout *layout, const struct attn_problem *whole,
                                int is_of_keys, int rank);

static inline int64_t attn_box_rows(const struct attn_box *box)
{
    return box->batch * box->heads.n * box->tokens;
}

/* Rows of a box that all ranks together have: those that several have count as often.  Ranks
 * that lie elsewhere on the axis of tokens have others of them, and as many run after run. */
int64_t attn_layout_rows(const struct attn_layout *layout, const struct attn_problem *whole,
                         int is_of_keys, const struct attn_box *box);

/* Give both layouts pads: each extent that one of them deals out becomes the next multiple of
 * its parts.  A run of heads becomes whole groups, or a whole part of one. */
void attn_layout_pad(struct attn_layout *home, struct attn_layout *work,
                     const struct attn_problem *whole);

/* The box of a rank and its pads, which come last on every axis. */
struct attn_box attn_layout_stored_box(const struct attn_layout *layout,
                                       const struct attn_problem *whole, int is_of_keys, int rank);

/* The layout and the problem whose boxes are the stored boxes of this one. */
struct attn_layout attn_layout_stored(const struct attn_layout *layout,
                                      const struct attn_problem *whole,
                                      struct attn_problem *stored);

/* Run r of n in `parts` runs. */
struct attn_tokens attn_run_of(int64_t n, int64_t parts, int64_t r);

/* The kv heads that a run of heads reads. */
struct attn_tokens attn_kv_heads(const struct attn_problem *p, const struct attn_tokens *heads);

int attn_layout_stretches(const struct attn_layout *layout, int is_of_keys); /* at most */
int64_t attn_layout_repeats(const struct attn_layout *layout);

/* Both layouts give every rank the same of such a tensor. */
int attn_layout_same(const struct attn_layout *a, const struct attn_layout *b,
                     const struct attn_problem *whole, int is_of_keys);

/* 1 if several ranks have the same element of a tensor of keys. */
int attn_layout_copies(const struct attn_layout *layout, const struct attn_problem *whole);

/* The tokens that are stored on the rank that stores most of them. */
int64_t attn_layout_most(const struct attn_layout *layout, const struct attn_problem *whole,
                         int is_of_keys);

#endif
