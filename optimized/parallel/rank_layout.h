/* Layouts: the heads and tokens of a tensor that a rank has, of all batches, in constant memory.
 *
 * Ranks form a mesh.  Each axis of a tensor may be dealt out along one axis of the mesh, or every
 * rank has all of it.  Tokens are dealt out in an order:
 *
 *      contiguous   place r has the r-th of R runs                          0 0 0 1 1 1 2 2 2 3 3 3
 *      striped      place r has tokens r, r+R, r+2R, ...                    0 1 2 3 0 1 2 3 0 1 2 3
 *      zigzag       place r has runs r and 2R-1-r of 2R: two stretches      0 1 2 3 3 2 1 0 (runs)
 *
 *      frames       place r has a run of frames of a video [frames, places]
 *      places       place r has a run of the places of every frame
 *
 * Any n will do: the sizes of runs differ by one at most, the longer ones come first, and where
 * n is less than R (2R) some are empty.  Under a causal mask the last rank of a contiguous layout
 * works R times as long as the first; the other two share the pairs out.  The tokens of a place,
 * its stretches one behind the other, may be cut into runs once more, for the ranks that share a
 * place.
 *
 * Heads are dealt out in runs, and kv heads with the heads that read them: one that several ranks
 * read is there several times, unless the layout says that it has an owner, the first of them.
 *
 * With pads every rank stores as much as any other: its part of the next multiples, whose runs are
 * all of one size.  The last runs have the pads.
 *
 * Source: Brandon et al. 2023 (striped), zhuzilin/ring-flash-attention (zigzag), Fang & Zhao 2024
 * (a mesh of heads and tokens), Zhao et al. 2024 (DSP: pads).
 */
#ifndef OPTIMIZED_PARALLEL_RANK_LAYOUT_H
#define OPTIMIZED_PARALLEL_RANK_LAYOUT_H

#include "ref/attn.h"
#include "ref/mask/mask.h"
#include "ref/ranks.h"

/* A tensor of this kind: of keys, [B, kv_heads, Lk, width], or of queries; as a whole; its type.  V
 * that is a view of K has no numbers of its own, nor has its gradient: K's stand for both. */
int attn_tag_is_of_keys(enum attn_tag_kind kind);
int64_t attn_tag_width(enum attn_tag_kind kind, const struct attn_problem *p);
enum attn_dtype attn_tag_dtype(enum attn_tag_kind kind, const struct attn_problem *p);

enum attn_order { ATTN_CONTIGUOUS, ATTN_STRIPED, ATTN_ZIGZAG, ATTN_FRAMES, ATTN_PLACES };
enum { ATTN_MAX_STRETCHES = 2 };

/* An axis of the mesh: rank r has place r / stride % parts on it.  parts 0: nothing is dealt out
 * along it. */
struct attn_axis {
    int parts, stride;
};

struct attn_layout {
    int ranks;
    enum attn_order order;
    struct attn_axis tokens, runs, heads;
    int64_t frames; /* of a video: divides the number of tokens */
    int all_keys;   /* keys and values are not dealt out by tokens: a rank has all of them */
    int alike;      /* with all_keys: what ranks have of keys is the same, not a partial sum */
    int kv_owners;  /* a kv head that several ranks read belongs to the first of them */

    /* sizes=pad.  0: a rank stores what it has.  Else every rank stores as much as any other: its
     * part of a problem of these extents, which the ranks divide; what of it does not exist are
     * pads, which no rank computes with.  An int, so that the structure has no gaps:
     * attn_layout_same compares bytes. */
    int pads;
    struct attn_extents {
        int64_t heads, kv_heads, n_query, n_key, frames;
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

#endif
