#include "experiments/rim/studies/cuda_cache.h"

#include <string.h>

#include "optimized/integers.h"

static const int64_t MIB = 1 << 20;

void attn_cuda_open(struct attn_cuda_cache *cache)
{
    memset(cache, 0, sizeof *cache);
}

/* The smallest free block of a pool that is large enough, of equal ones the lowest; n: none. */
static int find_free(const struct attn_cuda_cache *cache, int64_t bytes, int is_small)
{
    int best = cache->n;
    for (int b = 0; b < cache->n; b++) {
        const struct attn_cuda_block *x = &cache->block[b];
        if (x->is_free && x->is_small == is_small && x->bytes >= bytes &&
            (best == cache->n || x->bytes < cache->block[best].bytes))
            best = b;
    }
    return best;
}

/* Make place b for a block; those behind it move up. */
static void insert(struct attn_cuda_cache *cache, int b, struct attn_cuda_block block)
{
    memmove(&cache->block[b + 1], &cache->block[b], (size_t)(cache->n++ - b) * sizeof block);
    cache->block[b] = block;
}

struct attn_cuda_block *attn_cuda_take(struct attn_cuda_cache *cache, const char *name,
                                       int64_t bytes)
{
    bytes = ceil_div(bytes, 512) * 512;
    int is_small = bytes <= MIB, b = find_free(cache, bytes, is_small);
    struct attn_cuda_block *x = &cache->block[b];
    if (cache->n + 2 > ATTN_CUDA_BLOCKS)
        return NULL;
    if (b == cache->n) { /* a segment of the driver's, far from all others */
        int64_t size = is_small           ? 2 * MIB
                       : bytes < 10 * MIB ? 20 * MIB
                                          : ceil_div(bytes, 2 * MIB) * 2 * MIB;
        insert(cache, b, (struct attn_cuda_block){cache->next_segment, size, is_small, 1, NULL});
        cache->next_segment += size + MIB;
    }
    int64_t rest = x->bytes - bytes;
    if (is_small ? rest >= 512 : rest > MIB) {
        insert(cache, b + 1, (struct attn_cuda_block){x->address + bytes, rest, is_small, 1, NULL});
        x->bytes = bytes;
    }
    x->is_free = 0;
    x->name = name;
    return attn_ledger_count(&cache->live, name, x->bytes, 1, NULL) == ATTN_OK ? x : NULL;
}

/* Blocks b and b + 1 become one, where both are free and touch: those of two segments do not. */
static void join(struct attn_cuda_cache *cache, int b)
{
    struct attn_cuda_block *x = &cache->block[b];
    if (b < 0 || b + 1 >= cache->n || !x[0].is_free || !x[1].is_free ||
        x[0].address + x[0].bytes != x[1].address)
        return;
    x[0].bytes += x[1].bytes;
    memmove(&x[1], &x[2], (size_t)(--cache->n - b - 1) * sizeof *x);
}

void attn_cuda_give(struct attn_cuda_cache *cache, int64_t address)
{
    int b = 0;
    while (cache->block[b].address != address)
        b++;
    struct attn_cuda_block *x = &cache->block[b];
    attn_ledger_uncount(&cache->live, x->name, x->bytes);
    x->is_free = 1;
    join(cache, b);
    join(cache, b - 1);
}
