/* Tensors in pieces: how a whole tensor is dealt out to ranks and collected again.
 *
 * A rank has what a layout gives it, as a contiguous tensor [batch, heads, tokens, width].  An
 * MPI process begins with such a shard; in a simulation it has to be copied out of the whole first.
 */
#ifndef OPTIMIZED_PARALLEL_SHARD_H
#define OPTIMIZED_PARALLEL_SHARD_H

#include "optimized/parallel/layout/rank_box.h"
#include "ref/ledger.h"
#include "ref/ranks.h"

/* A tensor of a call and its shards.  The first lines are the caller's. */
struct attn_shards {
    enum attn_role { ATTN_ABSENT, ATTN_INPUT, ATTN_OUTPUT } role; /* absent: not of this call */
    const char *name;                                             /* on the ledger */
    struct attn_view tensor;                                      /* of an input, only read */
    struct attn_problem whole;
    enum attn_tag_kind kind;
    struct attn_layout layout;
    int first, n; /* of these ranks only; n = 0: of all */
    char *data;   /* one behind the other; a block of a ledger, to be given back */
};

int64_t attn_shards_bytes(const struct attn_shards *s, int rank); /* of one */
enum attn_status attn_shards_take(struct attn_shards *s, struct attn_ledger *ledger,
                                  struct attn_error *err);

/* From the tensor to its shards, or back.  Pads of shards are NaN: who reads one is found. */
void attn_shards_scatter(const struct attn_shards *s);
void attn_shards_gather(const struct attn_shards *s);
struct attn_view attn_shards_view(const struct attn_shards *s, int rank);

/* Ranks that have something else than the tensor has at its place: copies that are not the same. */
int attn_shards_differ(const struct attn_shards *s);

#endif
