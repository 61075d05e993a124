/* Tensors in pieces: how a whole tensor is dealt out to ranks and collected again.
 *
 * Rank r of P has the tokens [r n/P, (r+1) n/P) of every batch and head, as a contiguous tensor
 * [B, heads, n/P, width]; P divides n.  Who runs under MPI is born with such a shard; in a
 * simulation it has to be copied out of the whole first.
 */
#ifndef OPTIMIZED_PARALLEL_SHARD_H
#define OPTIMIZED_PARALLEL_SHARD_H

#include "ref/attn.h"
#include "ref/ledger.h"

/* All shards of one tensor.  extent: batch, heads, tokens of a rank, width (1 for lse). */
struct attn_shards {
    enum attn_dtype dtype;
    int64_t extent[4];
    int64_t ranks, pitch; /* shard r starts r * pitch bytes after data */
    char *data;           /* one block of a ledger, the caller's to give back */
};

/* Room for the shards of a tensor whose whole extent is given: only extent[2] is divided. */
enum attn_status attn_shards_take(struct attn_shards *s, struct attn_ledger *ledger,
                                  const char *name, enum attn_dtype dtype, const int64_t whole[4],
                                  int ranks, struct attn_error *err);

/* From the whole tensor to its shards, or back. */
void attn_shards_scatter(const struct attn_shards *s, const struct attn_view *whole);
void attn_shards_gather(const struct attn_shards *s, const struct attn_view *whole);
struct attn_view attn_shards_view(const struct attn_shards *s, int rank);

/* An extent that the ranks must divide. */
struct attn_divisible {
    const char *name;
    int64_t value;
};

/* ENOTSUP unless ranks divides all n of them; the message lists the rank counts that do. */
enum attn_status attn_shards_check(const char *scheme, int ranks, const struct attn_divisible *of,
                                   int n, struct attn_error *err);

#endif
