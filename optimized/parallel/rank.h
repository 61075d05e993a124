/* Sequence parallelism, the part that all schemes share.
 *
 * A scheme is written as the code of one rank: it gets its own shards, its own ledger and a
 * transport, and calls the local implementation (option local=) for every piece of arithmetic
 * on scores.  What is global is done once, in rank.c: deal the tensors out, seal them, run the
 * ranks, unseal, collect.
 *
 * Two ledgers keep apart what a rank is given and what it needs.  Shards of q k v o lse do dlse
 * dq dk dv are inputs and outputs: a ledger of the driver holds them ("shard.q", ...).  A rank's
 * own ledger holds what the scheme and the local implementation take, and that is the rank's price.
 */
#ifndef OPTIMIZED_PARALLEL_RANK_H
#define OPTIMIZED_PARALLEL_RANK_H

#include "optimized/parallel/token_layout.h"
#include "optimized/parallel/transport.h"
#include "ref/buffers.h"
#include "ref/impl.h"

struct attn_rank {
    struct attn_transport *transport;
    struct attn_ledger *ledger;
    const struct attn_options *options; /* of the scheme */
    struct attn_error *error;
};

/* A scheme.  Its layout deals queries and keys out to the ranks; a rank works on so many pieces of
 * the problem, one after another, some of them perhaps empty.  mine: the rank's shards, [B, heads,
 * tokens of the rank, width]. */
struct attn_scheme {
    const char *name;
    struct attn_layout (*layout)(const struct attn_options *options);
    int (*pieces)(const struct attn_options *options);
    struct attn_problem (*piece)(const struct attn_problem *whole,
                                 const struct attn_options *options, int rank, int n);
    enum attn_status (*forward)(struct attn_rank *rank, const struct attn_problem *whole,
                                const struct attn_forward *mine);
    enum attn_status (*backward)(struct attn_rank *rank, const struct attn_problem *whole,
                                 const struct attn_backward *mine);
};

/* Run all ranks as threads.  ctx->ranks, if given, is filled in. */
enum attn_status attn_parallel_forward(const struct attn_scheme *scheme, struct attn_ctx *ctx,
                                       const struct attn_problem *problem,
                                       const struct attn_forward *t);
enum attn_status attn_parallel_backward(const struct attn_scheme *scheme, struct attn_ctx *ctx,
                                        const struct attn_problem *problem,
                                        const struct attn_backward *t);

/* ---- for rank code ------------------------------------------------------------------------- */

/* The local implementation on a piece of the problem; part->origin says which. */
enum attn_status attn_rank_forward(struct attn_rank *rank, const struct attn_problem *part,
                                   const struct attn_forward *t);
enum attn_status attn_rank_backward(struct attn_rank *rank, const struct attn_problem *part,
                                    const struct attn_backward *t);

/* ---- for the records of schemes ------------------------------------------------------------ */

#define ATTN_PARALLEL_CAPS                                                             \
    (ATTN_CAP_F64 | ATTN_CAP_F32 | ATTN_CAP_BACKWARD | ATTN_CAP_GQA | ATTN_CAP_CROSS | \
     ATTN_CAP_DV | ATTN_CAP_MASK | ATTN_CAP_HARD | ATTN_CAP_SOFTCAP | ATTN_CAP_ALIBI | \
     ATTN_CAP_DLSE | ATTN_CAP_STRIDES)

/* The options that every scheme has, and begins its table with. */
enum { ATTN_OPTION_RANKS, ATTN_OPTION_LOCAL, ATTN_OPTION_SIZES, ATTN_PARALLEL_OPTIONS };
#define ATTN_OPTION_OF_RANKS                                                 \
    {                                                                        \
        "ranks", 4, 1, ATTN_MAX_RANKS, NULL, "ranks that share the sequence" \
    }
#define ATTN_OPTION_OF_LOCAL                                                                  \
    {                                                                                         \
        "local", 0, 0, 0, "@tiled",                                                           \
            "what a rank runs on its piece; any single-process implementation (tiled unless " \
            "given)"                                                                          \
    }
#define ATTN_OPTION_OF_SIZES                                                                 \
    {                                                                                        \
        "sizes", 0, 0, 1, "uneven strict",                                                   \
            "what ranks do not divide: dealt out unevenly, or refused as most frameworks do" \
    }
int attn_parallel_ranks(const struct attn_options *options);

/* The implementation that a rank runs: local=, or tiled.  Its own options are preset, but
 * for the instruction set, which is the scheme's. */
const struct attn_impl *attn_parallel_local(const struct attn_options *options);

/* These tokens of the whole, every head: where a shard's piece lies. */
struct attn_problem attn_piece_of(const struct attn_problem *whole,
                                  const struct attn_tokens *queries,
                                  const struct attn_tokens *keys);

/* attn_cost.shard_bytes of a rank to which this layout deals queries and keys. */
double attn_shard_bytes(const struct attn_problem *whole, const struct attn_layout *layout,
                        enum attn_pass pass, int rank);

/* ENOTSUP when the local implementation is itself parallel, does not hide hard, or cannot do one of
 * the scheme's pieces. */
enum attn_status attn_scheme_accepts(const struct attn_scheme *scheme, const struct attn_problem *p,
                                     const struct attn_options *options, struct attn_error *err);

/* An extent that ranks must divide under sizes=strict. */
struct attn_divisible {
    const char *name;
    int64_t value;
};

/* ENOTSUP, under sizes=strict, unless ranks divide all n of them; the message lists those that do.
 */
enum attn_status attn_parallel_divides(const char *scheme, const struct attn_options *options,
                                       const struct attn_divisible *of, int n,
                                       struct attn_error *err);

/* ENOTSUP unless the local implementation claims all of caps. */
enum attn_status attn_parallel_claims(const char *scheme, const struct attn_options *options,
                                      unsigned caps, struct attn_error *err);

/* The local implementation's, for the piece that has most. */
int64_t attn_scheme_rescales(const struct attn_scheme *scheme, const struct attn_problem *p,
                             const struct attn_options *options);
int64_t attn_scheme_merges(const struct attn_scheme *scheme, const struct attn_problem *p,
                           const struct attn_options *options);

/* cost() of the local implementation for a piece. */
enum attn_status attn_parallel_price(const struct attn_options *options,
                                     const struct attn_problem *part, enum attn_pass pass,
                                     struct attn_cost *cost, struct attn_error *err);

void attn_parallel_precision(const struct attn_problem *p, const struct attn_options *options,
                             struct attn_precision *precision);

extern const struct attn_impl attn_impl_tiled, attn_impl_ulysses, attn_impl_ring;

#endif
