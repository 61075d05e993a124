/* A sequence-parallel scheme: the layout in which a call begins and ends (home), the layout
 * while it is computed (work), and a ring if keys travel meanwhile.  A scheme's file says that, and
 * what it sends; parallel.h names who does the rest.
 *
 * A rank's blocks are its boxes of queries and of keys in the working layout (rank_layout.h).  A
 * product of a block of queries with a block of keys gives a partial (O, LSE) of these queries;
 * ref/merge.h folds them.  Backward, with the LSE and D of a whole row, a product's part of
 * the gradient needs no other product (Dao 2023, alg. 2):
 *
 *      P_ij = exp(S_ij - LSE_i)    dS_ij = P_ij (dO_i . v_j - D_i)    D_i = dO_i . O_i - dLSE_i
 *
 * D is computed once, where a row is at home, and handed on in place of O (one number a row instead
 * of dv) and of dLSE: the local implementation gets O = 0 (one row of zeros, stride 0) and
 * dLSE = -D, from which it computes 0 - (-D).
 *
 * A product of which no pair is visible is not computed; where blocks are passed on from rank to
 * rank they travel all the same, so that all ranks do the same exchanges under every mask.
 */
#ifndef OPTIMIZED_PARALLEL_SCHEME_H
#define OPTIMIZED_PARALLEL_SCHEME_H

#include "optimized/parallel/rank_layout.h"
#include "ref/ranks.h"

/* Ranks at places 0 to R-1 along an axis of the mesh, in windows of `inner` places.  Blocks of keys
 * go round inside a window, inner-1 hops, then all hop to the next window.  One ring is a window of
 * all places (ring.c). */
struct attn_ring {
    struct attn_axis axis;
    int inner;
    const char *places; /* the scheme's word for them, in messages */
};

/* Bytes and messages that a rank sends in a pass. */
struct attn_sent {
    int64_t bytes, messages;
};

struct attn_work; /* optimized/parallel/work.h: a scheme on one rank */

typedef struct attn_layout attn_layout_of(const struct attn_problem *whole,
                                          const struct attn_options *options);

struct attn_scheme {
    attn_layout_of *home, *work;

    /* Blocks of keys go round this ring, and the sums of their gradients follow them; the last hop
     * takes the sums home.  NULL: a rank multiplies once, and nothing travels. */
    struct attn_ring (*ring)(const struct attn_options *options);

    /* Where mask= stands in its table.  0: it has none. */
    int mask;

    /* The number of kv heads that are brought at a time.  NULL, or 0: all of them. */
    int64_t (*kv_heads_at_once)(const struct attn_options *options);

    /* 1: a forward pass keeps the K, V that were brought, a backward pass brings none.  NULL: 0. */
    int (*saves_keys)(const struct attn_options *options);

    /* Written from the sizes of blocks as they are stored, w->stored, not from the schedule
     * (sent.h).  NULL: nothing. */
    struct attn_sent (*sent)(const struct attn_work *w);

    /* ENOTSUP for problems that only this scheme refuses.  NULL: none. */
    enum attn_status (*accepts)(const struct attn_problem *whole,
                                const struct attn_options *options, struct attn_error *err);
};

/* ---- options --------------------------------------------------------------------------------- */

/* Those that every scheme has, and begins its table with; the whole table of some. */
enum { ATTN_OPTION_RANKS, ATTN_OPTION_LOCAL, ATTN_OPTION_SIZES, ATTN_PARALLEL_OPTIONS };
enum { ATTN_SIZES_UNEVEN, ATTN_SIZES_PAD, ATTN_SIZES_STRICT };
extern const struct attn_option attn_parallel_options[];
int attn_parallel_ranks(const struct attn_options *options);
#define ATTN_OPTIONS_OF_ALL                                                                  \
    {"ranks", 4, 1, ATTN_MAX_RANKS, NULL, "ranks that share the sequence"},                  \
        {"local", 0, 0, 0, "@tiled", "what a rank runs: any single-process implementation"}, \
    {                                                                                        \
        "sizes", 0, 0, 2, "uneven pad strict",                                               \
            "what ranks do not divide: dealt out unevenly, stored and sent with pads up to " \
            "the next multiple, or refused"                                                  \
    }

enum { ATTN_OPTION_ORDER = ATTN_PARALLEL_OPTIONS }; /* the first behind those of all */
#define ATTN_OPTION_OF_ORDER                                                          \
    {                                                                                 \
        "order", ATTN_CONTIGUOUS, 0, 2, "contiguous striped zigzag",                  \
            "which tokens a rank has: a run, every R-th, or two runs, one from each " \
            "end"                                                                     \
    }

/* As what ranks have the mask; travel/work_mask.h says which bytes these are and what brings them.
 * attn_scheme.mask names its place in a scheme's table. */
enum attn_mask_form { ATTN_MASK_DESCRIBED, ATTN_MASK_KEYS, ATTN_MASK_REPEATED, ATTN_MASK_DENSE };
#define ATTN_OPTION_OF_MASK                                                                      \
    {                                                                                            \
        "mask", ATTN_MASK_DESCRIBED, 0, ATTN_MASK_DENSE, "described keys repeated dense",        \
            "what a rank has of the mask: its description; the bytes of keys(...) of its keys, " \
            "brought where they are needed; these R times, for an all-to-all; rows of bytes of " \
            "its queries"                                                                        \
    }

int attn_largest_divisor(int n, int most);

/* ---- layouts in which one thing is dealt out over all ranks ---------------------------------- */

attn_layout_of attn_layout_of_tokens; /* one run after the other */
attn_layout_of attn_layout_in_order;  /* tokens, as order= says */
attn_layout_of attn_layout_of_heads;

#endif
