/* Tensors in pieces: how a whole tensor is dealt out to ranks and collected again.
 *
 * A rank has the tokens that a layout gives it, of every batch and head, as a contiguous tensor
 * [B, heads, tokens of the rank, width].  An MPI process begins with such a shard; in a
 * simulation it has to be copied out of the whole first.
 */
#ifndef OPTIMIZED_PARALLEL_SHARD_H
#define OPTIMIZED_PARALLEL_SHARD_H

#include "optimized/parallel/token_layout.h"
#include "ref/attn.h"
#include "ref/ledger.h"

/* All shards of one tensor.  extent: batch, heads, tokens of the whole, width (1 for lse). */
struct attn_shards {
    enum attn_dtype dtype;
    int64_t extent[4];
    struct attn_layout layout;
    int64_t pitch; /* shard r starts r * pitch bytes after data */
    char *data;    /* one block of a ledger, the caller's to give back */
};

/* Room for the shards of a tensor whose whole extent is given: only its tokens are divided. */
enum attn_status attn_shards_take(struct attn_shards *s, struct attn_ledger *ledger,
                                  const char *name, enum attn_dtype dtype, const int64_t whole[4],
                                  const struct attn_layout *layout, struct attn_error *err);

/* From the whole tensor to its shards, or back. */
void attn_shards_scatter(const struct attn_shards *s, const struct attn_view *whole);
void attn_shards_gather(const struct attn_shards *s, const struct attn_view *whole);
struct attn_view attn_shards_view(const struct attn_shards *s, int rank);

#endif
