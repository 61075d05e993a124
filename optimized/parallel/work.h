/* What one rank has to do, derived from its scheme: its boxes, its products one after another, its
 * buffers.  travel.c does it, price.c prices it; neither computes, sends or allocates here.
 */
#ifndef OPTIMIZED_PARALLEL_WORK_H
#define OPTIMIZED_PARALLEL_WORK_H

#include "optimized/parallel/move.h"
#include "optimized/parallel/scheme.h"

/* Heads of a rank that cut through groups make up to three local calls: what is left of a group,
 * whole groups, the beginning of one (40 heads of 8 kv heads on 6 ranks: rank 2 has 1 + 5 + 1). */
enum { ATTN_CALLS = 3 };

/* What is stored and sent: with sizes=pad a problem with pads, dealt out evenly; else what is
 * computed.  Its mask is not to be asked. */
struct attn_stored {
    struct attn_problem whole;
    struct attn_layout home, via, work;
};

struct attn_work {
    const struct attn_scheme *scheme;
    const struct attn_problem *whole;
    const struct attn_options *options;
    enum attn_pass pass;
    int rank, stops, passes_on; /* passes_on: keys, round this ring */
    struct attn_ring ring;
    enum attn_merging merging; /* of this pass: running where nothing merges */
    int narrow;                /* where results are partial, they have the storage type */
    int has_via;
    struct attn_layout home, via, work;
    struct attn_stored stored;
    struct attn_tokens heads, kv_heads; /* that it computes with now: of a portion */
    int n_stop;
    struct attn_stop stop;
    struct attn_box queries, keys; /* of this stop, if it multiplies */
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

/* The round of stops that begins at this one: what is priced looks at the first of equal ones. */
struct attn_round attn_work_round(const struct attn_work *w, int n);

/* Pairs of blocks in a row: (query, key), and then so many ranks further on, each time. */
struct attn_line {
    int query, key, query_step, key_step;
};

/* How many of the first n pairs of a line have certainly the same products: at least 1.  Ranks at
 * the places of a line are neighbours; work.c says why its two ends are enough. */
int attn_work_alike(const struct attn_work *w, struct attn_line line, int n);

/* A rank's block of queries or of keys; what is stored of it, of the heads of this portion; and how
 * many numbers that is. */
struct attn_box attn_work_box(const struct attn_work *w, int is_of_keys, int rank);
struct attn_box attn_work_room(const struct attn_work *w, int is_of_keys, int rank);
int64_t attn_work_block(const struct attn_work *w, enum attn_tag_kind kind, int rank);

/* A product: a stretch of the stop's queries with a stretch of its keys, for the heads of a local
 * call. */
struct attn_product {
    struct attn_problem part;
    struct attn_tokens heads, kv_heads;
    int call, query, key;         /* which stretches */
    int64_t batch;                /* of places: the product is of this batch alone; of scopes: of
                                     this scope */
    int64_t query_at, key_at;     /* where these begin in their blocks */
    int starts_query, starts_key; /* the result is the first of these queries, of these keys:
                                     it is written; later ones are added */
};

/* The next product of this stop in which some pair may be visible; 0: no more. */
int attn_work_next(struct attn_work *w, struct attn_product *x);

/* The product of these stretches, whatever is visible.  Blocks of places are multiplied batch by
 * batch, blocks of scopes scope by scope: the n-th. */
struct attn_product attn_work_product(const struct attn_work *w, int call, int query, int key,
                                      int64_t n);

/* The rank's blocks fall into parts that are attended to alone: places of all frames, scopes. */
int attn_work_is_parted(const struct attn_work *w);

/* Whether this stop starts what its queries, what its keys get. */
int attn_work_starts_query(const struct attn_work *w);
int attn_work_starts_key(const struct attn_work *w);

/* Nothing to see in any pair of stretches of these two ranks' blocks. */
int attn_blocks_hidden(const struct attn_problem *whole, const struct attn_layout *work, int query,
                       int key);

/* Whether a tensor of this kind changes hands between home and work. */
int attn_work_moves(const struct attn_work *w, enum attn_tag_kind kind);

/* In which type a rank holds such a tensor: partial sums of 16-bit tensors are f32. */
enum attn_dtype attn_work_dtype(const struct attn_work *w, enum attn_tag_kind kind);

/* In which type the partial results of products are, and whether that is the storage type although
 * sums are wider. */
int attn_work_is_narrow(const struct attn_work *w, enum attn_tag_kind kind);
enum attn_dtype attn_work_partial_dtype(const struct attn_work *w, enum attn_tag_kind kind);

/* Partial results of the rank's own queries: of each it gets at most so many. */
int64_t attn_work_partials(const struct attn_work *w);

/* The most of any rank, over queries and over keys, and those merged or added. */
int64_t attn_layout_partials(const struct attn_layout *work);

/* The move of a tensor from home to work, or of a result back.  Data is the caller's. */
struct attn_move attn_work_move(const struct attn_work *w, enum attn_tag_kind kind, int goes_home);

/* With via, that is the move between via and work; this is the one between home and via. */
struct attn_move attn_work_move_via(const struct attn_work *w, enum attn_tag_kind kind,
                                    int goes_home);

/* The tensors of a pass that are exchanged: how many, the inputs first. */
int attn_work_tensors(enum attn_pass pass, const enum attn_tag_kind **kinds, int *inputs);

/* ---- buffers --------------------------------------------------------------------------------- */

/* One for each kind of tensor that is moved, and these. */
enum {
    ATTN_MESSAGES = ATTN_TAG_KINDS,
    ATTN_CHUNKS,      /* of the largest tensor that is moved, for an all-to-all by lists */
    ATTN_VIA,         /* a tensor on its way: room for the largest that is moved */
    ATTN_ZEROS,       /* O for the local backward: one row */
    ATTN_DELTA_SHARD, /* -D of the rows that are at home here */
    ATTN_KV_TRAVEL,
    ATTN_Q_TRAVEL,
    ATTN_O_SUM, /* sums that are wider than what they are for */
    ATTN_DQ_SUM,
    ATTN_DKV_SUM,
    ATTN_O_PARTIAL,
    ATTN_LSE_PARTIAL,
    ATTN_DENOMINATOR, /* of the rank's queries */
    ATTN_O_KEPT,      /* a part for each of attn_work_partials */
    ATTN_LSE_KEPT,
    ATTN_DQ_PARTIAL,
    ATTN_DKV_TRAVEL,
    ATTN_DKV_PARTIAL,
    ATTN_DKV_BACK, /* gradients of the rank's own keys, from where they were multiplied */
    ATTN_WORK_BUFFERS
};
void attn_work_buffers(const struct attn_work *w, struct attn_buffer buffer[ATTN_WORK_BUFFERS]);

/* Bytes of K and V that live from a forward pass to its backward pass: these two are neighbours. */
int64_t attn_work_saved(const struct attn_work *w);
#define ATTN_SAVED_NAME "kv.saved"

/* Blocks of keys are of one size: a rank's own sum of gradients has room for any of them. */
int attn_work_is_even(const struct attn_work *w);

/* Taken one after the other when everything is computed: of dk, then of dv.  copies[1]: the sum at
 * home, where it is wider than dk. */
void attn_work_copies(const struct attn_work *w, enum attn_tag_kind kind,
                      struct attn_buffer copies[2]);

#endif
