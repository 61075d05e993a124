/* A scheme on one rank: its blocks, its stops, in which types it holds what.  travel.c runs it,
 * price.c prices it; nothing here computes, sends or allocates.
 *
 *      products.h      what is multiplied at a stop
 *      rounds.c        stops that are equal
 *      work_buffers.h  what is taken from home to work and back, and from the ledger
 */
#ifndef OPTIMIZED_PARALLEL_WORK_H
#define OPTIMIZED_PARALLEL_WORK_H

#include "optimized/parallel/layout/rank_box.h"
#include "optimized/parallel/scheme.h"

/* Heads of a rank that cut through groups make up to three local calls: what is left of a group,
 * whole groups, the beginning of one (40 heads of 8 kv heads on 6 ranks: rank 2 has 1 + 5 + 1). */
enum { ATTN_CALLS = 3 };

/* The problem as it is stored and sent: with sizes=pad one with pads, dealt out evenly; else the
 * problem itself.  Its mask is not to be asked. */
struct attn_stored {
    struct attn_problem whole;
    struct attn_layout home, work;
};

/* One stop of a ring, on one rank, whose own queries it multiplies there. */
struct attn_stop {
    int to, from; /* ranks that a block of keys goes to and comes from, before the stop */
    int key;      /* whose keys are multiplied */
};

struct attn_work {
    const struct attn_scheme *scheme;
    const struct attn_problem *whole;
    const struct attn_options *options;
    enum attn_pass pass;
    int rank, stops;
    struct attn_ring ring; /* of one place where the scheme has none */
    enum attn_mask_form mask;
    struct attn_layout home, work;
    struct attn_stored stored;
    struct attn_tokens heads, kv_heads; /* that it computes with now: of a portion */
    int n_stop;
    struct attn_stop stop;
    struct attn_box queries, keys; /* of this stop */
    int64_t next;                  /* product of this stop */
    int saw_query[ATTN_CALLS][ATTN_MAX_STRETCHES], saw_key[ATTN_CALLS][ATTN_MAX_STRETCHES];
};

/* At portion 0, stop 0. */
struct attn_work attn_work_of(const struct attn_problem *whole, const struct attn_options *options,
                              enum attn_pass pass, int rank);

/* Kv heads may be brought a portion at a time: at least one. */
int attn_work_portions(const struct attn_work *w);
void attn_work_portion(struct attn_work *w, int n);

/* Go to a stop; stop(stops) is where the sums of gradients go home. */
struct attn_stop attn_work_stop(const struct attn_work *w, int n);
void attn_work_go(struct attn_work *w, int n);

/* How many stops from this one on are equal: with the same products, but for where they lie. */
int attn_work_round(const struct attn_work *w, int n);

/* The same of stops that have the same products, of equal sizes, but of other pairs; pairs: of all
 * of these stops, with *counted as in attn_mask_pairs. */
int attn_work_together(const struct attn_work *w, int n, double *pairs, int *counted);

/* A rank's block of queries or of keys; what is stored of it, of the heads of this portion; and how
 * many numbers that is. */
struct attn_box attn_work_box(const struct attn_work *w, int is_of_keys, int rank);
struct attn_box attn_work_stored_box(const struct attn_work *w, int is_of_keys, int rank);
int64_t attn_work_block(const struct attn_work *w, enum attn_tag_kind kind, int rank);

/* 1 if a tensor of this kind changes hands between home and work; and 1 if several ranks then have
 * gradients of the same element, which are added up on the way home. */
int attn_work_moves(const struct attn_work *w, enum attn_tag_kind kind);
int attn_work_is_summed(const struct attn_work *w, enum attn_tag_kind kind);

/* In which type a rank holds such a tensor: gradients that are summed on the way home are f32 where
 * tensors are of 16 bits, as all partial results are (attn_lse_dtype). */
enum attn_dtype attn_work_dtype(const struct attn_work *w, enum attn_tag_kind kind);

/* Some query, or some key, is in several products: their results are partial. */
int attn_work_cuts(const struct attn_work *w, int is_of_keys);

/* The most of any rank, over queries and over keys, and those merged or added. */
int64_t attn_layout_partials(const struct attn_layout *work);

#endif
