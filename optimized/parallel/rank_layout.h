/* Who has what: which batches, heads and tokens of a tensor a rank has, in constant memory.
 *
 * Ranks form a mesh.  Each axis of a tensor may be dealt out along one axis of the mesh, or every
 * rank has all of it.  Tokens are dealt out in an order:
 *
 *      contiguous   place r has the r-th of P runs                          0 0 0 1 1 1 2 2 2 3 3 3
 *      striped      place r has tokens r, r+P, r+2P, ...                    0 1 2 3 0 1 2 3 0 1 2 3
 *      zigzag       place r has runs r and 2P-1-r of 2P: two stretches      0 1 2 3 3 2 1 0 (runs)
 *
 *      frames       place r has a run of frames of a video [frames, places]
 *      places       place r has a run of the places of every frame
 *      scopes       place r has a run of the scopes of a mask: token i is in scope
 *                   i / run % scopes (ref/mask/mask.h)
 *
 * Any n will do: the sizes of runs differ by one at most, the longer ones come first, and where
 * n is less than P (2P) some are empty.  Under a causal mask the last rank of a contiguous layout
 * works P times as long as the first; the other two share the pairs out.  What a place has, its
 * stretches one behind the other, may be cut into runs once more, for the ranks that share a place.
 *
 * Heads are dealt out in runs, and kv heads with the heads that read them: one that several ranks
 * read is there several times, unless the layout says that it has an owner, the first of them.
 *
 * With pads every rank stores as much as any other: its part of the next multiples, whose runs are
 * all of one size.  The last runs have the pads.  A box is what exists, a room is what is stored.
 *
 * Source: Brandon et al. 2023 (striped), zhuzilin/ring-flash-attention (zigzag), Fang & Zhao 2024
 * (a mesh of heads and tokens), Zhao et al. 2024 (DSP: pads).
 */
#ifndef OPTIMIZED_PARALLEL_RANK_LAYOUT_H
#define OPTIMIZED_PARALLEL_RANK_LAYOUT_H

#include "ref/attn.h"
#include "ref/mask/mask.h"

enum attn_order {
    ATTN_CONTIGUOUS,
    ATTN_STRIPED,
    ATTN_ZIGZAG,
    ATTN_FRAMES,
    ATTN_PLACES,
    ATTN_SCOPES
};
enum { ATTN_MAX_STRETCHES = 2 };

/* An axis of the mesh: rank r has place r / stride % parts on it.  parts 0: nothing is dealt out
 * along it. */
struct attn_axis {
    int parts, stride;
};

struct attn_layout {
    int ranks;
    enum attn_order order;
    struct attn_axis tokens, runs, heads, batches;
    int64_t frames;      /* of a video: divides the number of tokens */
    int64_t scopes, run; /* of a mask; with pads, the ranks divide the scopes */
    int all_keys;        /* keys and values are not dealt out by tokens: a rank has all of them */
    int alike;           /* with all_keys: what ranks have of keys is the same, not a partial sum */
    int kv_owners;       /* a kv head that several ranks read belongs to the first of them */

    /* sizes=pad.  0: a rank stores what it has.  Else every rank stores as much as any other: its
     * part of a problem of these extents, which the ranks divide; what of it does not exist are
     * pads, that nobody computes with. */
    int64_t pads;
    struct attn_extents {
        int64_t batch, heads, kv_heads, n_query, n_key, frames;
    } padded;
};

static inline int attn_axis_parts(const struct attn_axis *axis)
{
    return axis->parts > 0 ? axis->parts : 1;
}

static inline int attn_axis_place(const struct attn_axis *axis, int rank)
{
    return axis->parts > 0 ? rank / axis->stride % axis->parts : 0;
}

static inline struct attn_tokens attn_tokens_common(const struct attn_tokens *a,
                                                    const struct attn_tokens *b)
{
    int64_t a_end = a->first + a->n, b_end = b->first + b->n;
    return attn_tokens_between(a->first > b->first ? a->first : b->first,
                               a_end < b_end ? a_end : b_end);
}

/* What a rank has of a tensor: these batches, heads (kv heads of a tensor of keys) and tokens.  In
 * memory it is [batches, heads, tokens, width], stretch after stretch.  The one stretch of a box of
 * places is there once for each frame, `pitch` tokens apart.  A box of scopes has scope after
 * scope instead, each in the order of the sequence. */
struct attn_box {
    struct attn_tokens batches, heads, stretch[ATTN_MAX_STRETCHES];
    int stretches;
    int64_t repeats, pitch; /* 1, 0 but for places */
    struct attn_tokens scopes;
    int64_t run, period, length; /* of scopes: tokens of a run, of all scopes' runs, of the whole */
    int64_t tokens;
};

/* Of a box, tokens of equal distance in the sequence and in memory: from row `row` on, `step` rows
 * apart. */
struct attn_stretch {
    struct attn_tokens tokens;
    int64_t row, step;
};
int64_t attn_box_stretches(const struct attn_box *box);
struct attn_stretch attn_box_stretch(const struct attn_box *box, int64_t s);

/* Tokens of the first n scopes of a box: scope n begins at this row. */
int64_t attn_box_scopes(const struct attn_box *box, int64_t n);
struct attn_box attn_layout_box(const struct attn_layout *layout, const struct attn_problem *whole,
                                int is_of_keys, int rank);

static inline int64_t attn_box_rows(const struct attn_box *box)
{
    return box->batches.n * box->heads.n * box->tokens;
}

/* What all ranks together have of a box, in rows: those that several have count as often.  Ranks
 * that lie elsewhere on the axis of tokens have others of them, and as many run after run. */
int64_t attn_layout_rows(const struct attn_layout *layout, const struct attn_problem *whole,
                         int is_of_keys, const struct attn_box *box);

/* Give all these layouts pads: each extent that one of them deals out becomes the next multiple of
 * its parts.  A run of heads becomes whole groups, or a whole part of one. */
void attn_layout_pad(struct attn_layout *home, struct attn_layout *via, struct attn_layout *work,
                     const struct attn_problem *whole);

/* What a rank stores: the box and its pads.  What is in the box comes first on every axis. */
struct attn_box attn_layout_room(const struct attn_layout *layout, const struct attn_problem *whole,
                                 int is_of_keys, int rank);

/* The layout and the problem whose boxes are the rooms of this one. */
struct attn_layout attn_layout_stored(const struct attn_layout *layout,
                                      const struct attn_problem *whole,
                                      struct attn_problem *stored);

/* Run r of n in `parts` runs. */
struct attn_tokens attn_run_of(int64_t n, int64_t parts, int64_t r);

/* The kv heads that a run of heads reads. */
struct attn_tokens attn_kv_heads(const struct attn_problem *p, const struct attn_tokens *heads);

int attn_layout_stretches(const struct attn_layout *layout, int is_of_keys);   /* at most */
int64_t attn_layout_repeats(const struct attn_layout *layout, int64_t tokens); /* at most */

/* Both layouts give every rank the same of such a tensor. */
int attn_layout_same(const struct attn_layout *a, const struct attn_layout *b,
                     const struct attn_problem *whole, int is_of_keys);

/* Whether several ranks have the same element of a tensor of keys. */
int attn_layout_copies(const struct attn_layout *layout, const struct attn_problem *whole);

/* The tokens that are stored on the rank that stores most of them. */
int64_t attn_layout_most(const struct attn_layout *layout, const struct attn_problem *whole,
                         int is_of_keys);

#endif
