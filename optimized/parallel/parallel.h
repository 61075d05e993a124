/* The work that all sequence-parallel schemes have in common, and the record of an implementation
 * that uses it.  The options name the implementation, and that has the scheme.
 *
 *      scheme.c   what all schemes have: options, layouts, the local implementation
 *      accepts.c  what is refused, and what bounds ask
 *      price.c    what a call costs one rank
 *      move.c     takes tensors from home to work, and results back
 *      rank.c     deals tensors out, runs all ranks, collects the results
 *      travel.c   runs the schedule on one rank, forward and backward
 */
#ifndef OPTIMIZED_PARALLEL_PARALLEL_H
#define OPTIMIZED_PARALLEL_PARALLEL_H

#include "optimized/parallel/scheme.h"

#define ATTN_PARALLEL_CAPS                                                                  \
    (ATTN_CAP_F64 | ATTN_CAP_F32 | ATTN_CAP_BF16 | ATTN_CAP_F16 | ATTN_CAP_BACKWARD |       \
     ATTN_CAP_GQA | ATTN_CAP_CROSS | ATTN_CAP_DV | ATTN_CAP_MASK | ATTN_CAP_HARD |          \
     ATTN_CAP_SOFTCAP | ATTN_CAP_ALIBI | ATTN_CAP_DLSE | ATTN_CAP_STRIDES | ATTN_CAP_SINK | \
     ATTN_CAP_KV_SHARED)

enum attn_status attn_parallel_forward(struct attn_ctx *ctx, const struct attn_problem *problem,
                                       const struct attn_forward *t);
enum attn_status attn_parallel_backward(struct attn_ctx *ctx, const struct attn_problem *problem,
                                        const struct attn_backward *t);
enum attn_status attn_parallel_accepts(const struct attn_problem *problem,
                                       const struct attn_options *options, struct attn_error *err);
int64_t attn_parallel_rescales(const struct attn_problem *p, const struct attn_options *options);
int64_t attn_parallel_merges(const struct attn_problem *p, const struct attn_options *options);
enum attn_status attn_parallel_cost(const struct attn_problem *p,
                                    const struct attn_options *options, enum attn_pass pass,
                                    int rank, struct attn_cost *cost, struct attn_error *err);
void attn_parallel_precision(const struct attn_problem *p, const struct attn_options *options,
                             struct attn_precision *precision);

/* An extent, and what must divide it; 1: nothing must. */
struct attn_divisible {
    const char *name;
    int64_t value, by;
};

/* ENOTSUP where an extent is not divided, with the numbers of ranks that do, or `other`.  with:
 * what the spec has beside ranks. */
enum attn_status attn_check_divisible(const struct attn_options *options, const char *with,
                                      const struct attn_divisible *x, int n, const char *other,
                                      struct attn_error *err);

/* The implementation that a rank runs on its piece of the problem: that of local=, or tiled; with
 * its options, for one thread. */
const struct attn_impl *attn_rank_local(const struct attn_options *options);
struct attn_options attn_rank_local_options(const struct attn_options *options);

/* ENOTSUP unless it claims all of these; and all that a backward pass of scheme.h asks of it. */
enum attn_status attn_check_local(const struct attn_options *options, unsigned caps,
                                  struct attn_error *err);
enum attn_status attn_check_local_backward(const struct attn_options *options,
                                           struct attn_error *err);

/* The last line of a scheme's file. */
#define ATTN_SCHEME(NAME, SCHEME, OPTIONS, SUMMARY)                                  \
    const struct attn_impl attn_impl_##NAME = {.name = #NAME,                        \
                                               .summary = (SUMMARY),                 \
                                               .family = "sequence-parallel",        \
                                               .caps = ATTN_PARALLEL_CAPS,           \
                                               .options = (OPTIONS),                 \
                                               .ranks = attn_parallel_ranks,         \
                                               .rescales = attn_parallel_rescales,   \
                                               .merges = attn_parallel_merges,       \
                                               .precision = attn_parallel_precision, \
                                               .accepts = attn_parallel_accepts,     \
                                               .cost = attn_parallel_cost,           \
                                               .sinks = ATTN_SINKS_BY_RANKS,         \
                                               .adds_dv = 1,                         \
                                               .scheme = &(SCHEME),                  \
                                               .forward = attn_parallel_forward,     \
                                               .backward = attn_parallel_backward};

#endif
