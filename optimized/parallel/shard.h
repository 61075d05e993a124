/* Tensors in pieces: how a whole tensor is dealt out to ranks and collected again.
 *
 * A rank has what a layout gives it, as a contiguous tensor [batches, heads, tokens, width].  An
 * MPI process begins with such a shard; in a simulation it has to be copied out of the whole first.
 */
#ifndef OPTIMIZED_PARALLEL_SHARD_H
#define OPTIMIZED_PARALLEL_SHARD_H

#include "optimized/parallel/rank_layout.h"
#include "optimized/parallel/transport.h"
#include "ref/ledger.h"

/* All shards of one tensor. */
struct attn_shards {
    const struct attn_problem *whole;
    enum attn_tag_kind kind;
    struct attn_layout layout;
    char *data; /* of all ranks, one behind the other; a block of a ledger, to be given back */
};

enum attn_status attn_shards_take(struct attn_shards *s, struct attn_ledger *ledger,
                                  const char *name, const struct attn_problem *whole,
                                  enum attn_tag_kind kind, const struct attn_layout *layout,
                                  struct attn_error *err);

/* From the whole tensor to its shards, or back.  Pads of shards are NaN: who reads one is found. */
void attn_shards_scatter(const struct attn_shards *s, const struct attn_view *whole);
void attn_shards_gather(const struct attn_shards *s, const struct attn_view *whole);
struct attn_view attn_shards_view(const struct attn_shards *s, int rank);

/* Ranks that have something else than the whole has at its place: copies that are not the same. */
int attn_shards_differ(const struct attn_shards *s, const struct attn_view *whole);

#endif
