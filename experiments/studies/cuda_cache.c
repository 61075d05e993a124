#include "experiments/studies/cuda_cache.h"

#include <string.h>

static const int64_t MIB = 1 << 20;

void attn_cuda_open(struct attn_cuda_cache *cache)
{
    memset(cache, 0, sizeof *cache);
}

static int64_t round_up(int64_t bytes, int64_t to)
{
    return (bytes + to - 1) / to * to;
}

/* A place in the table; -1: none. */
static int new_block(struct attn_cuda_cache *cache)
{
    for (int b = 0; b < cache->n; b++)
        if (cache->block[b].bytes == 0)
            return b;
    return cache->n < ATTN_CUDA_BLOCKS ? cache->n++ : -1;
}

static int find_free(const struct attn_cuda_cache *cache, int64_t bytes, int is_small)
{
    int best = -1;
    for (int b = 0; b < cache->n; b++) {
        const struct attn_cuda_block *x = &cache->block[b];
        if (!x->is_free || x->is_small != is_small || x->bytes < bytes)
            continue;
        const struct attn_cuda_block *y = &cache->block[best < 0 ? b : best];
        if (best < 0 || x->bytes < y->bytes || (x->bytes == y->bytes && x->address < y->address))
            best = b;
    }
    return best;
}

/* A segment of the driver's, far from all others. */
static int new_segment(struct attn_cuda_cache *cache, int64_t bytes, int is_small)
{
    int b = new_block(cache);
    if (b < 0)
        return -1;
    int64_t size = is_small ? 2 * MIB : bytes < 10 * MIB ? 20 * MIB : round_up(bytes, 2 * MIB);
    cache->block[b] = (struct attn_cuda_block){cache->next_segment, size, is_small, 1, -1, -1, 0};
    cache->next_segment += size + MIB;
    return b;
}

/* Cut off what is beyond so many bytes, and keep it free. */
static int cut(struct attn_cuda_cache *cache, int b, int64_t bytes)
{
    int rest = new_block(cache);
    if (rest < 0)
        return -1;
    struct attn_cuda_block *x = &cache->block[b], *y = &cache->block[rest];
    *y = (struct attn_cuda_block){
        x->address + bytes, x->bytes - bytes, x->is_small, 1, b, x->upper, 0};
    if (x->upper >= 0)
        cache->block[x->upper].lower = rest;
    x->upper = rest;
    x->bytes = bytes;
    return b;
}

int attn_cuda_take(struct attn_cuda_cache *cache, int64_t bytes, int tag)
{
    bytes = round_up(bytes, 512);
    int is_small = bytes <= MIB;
    int b = find_free(cache, bytes, is_small);
    if (b < 0)
        b = new_segment(cache, bytes, is_small);
    if (b < 0)
        return -1;
    int64_t rest = cache->block[b].bytes - bytes;
    if ((is_small ? rest >= 512 : rest > MIB) && cut(cache, b, bytes) < 0)
        return -1;
    cache->block[b].is_free = 0;
    cache->block[b].tag = tag;
    cache->live[tag] += cache->block[b].bytes;
    cache->now += cache->block[b].bytes;
    if (cache->now > cache->peak)
        attn_cuda_restart(cache);
    return b;
}

/* The free block `upper` becomes part of the one below it. */
static void join(struct attn_cuda_cache *cache, int lower, int upper)
{
    struct attn_cuda_block *x = &cache->block[lower], *y = &cache->block[upper];
    x->bytes += y->bytes;
    x->upper = y->upper;
    if (y->upper >= 0)
        cache->block[y->upper].lower = lower;
    memset(y, 0, sizeof *y);
}

void attn_cuda_give(struct attn_cuda_cache *cache, int b)
{
    struct attn_cuda_block *x = &cache->block[b];
    cache->now -= x->bytes;
    cache->live[x->tag] -= x->bytes;
    x->is_free = 1;
    if (x->upper >= 0 && cache->block[x->upper].is_free)
        join(cache, b, x->upper);
    if (x->lower >= 0 && cache->block[x->lower].is_free)
        join(cache, x->lower, b);
}

void attn_cuda_restart(struct attn_cuda_cache *cache)
{
    cache->peak = cache->now;
    memcpy(cache->at_peak, cache->live, sizeof cache->live);
}
