/* PyTorch's caching allocator of CUDA memory, as far as it decides how many bytes a tensor counts:
 * a tensor gets a block, which may be larger than it.
 *
 *   A request is rounded up to 512 bytes.  Requests of at most 1 MiB and larger ones have a pool
 *   each.  The smallest free block that is large enough is taken, of equal ones the lowest; where
 *   there is none, a segment comes from the driver: 2 MiB for the small pool, 20 MiB for requests
 *   below 10 MiB, else the request rounded up to 2 MiB.  The rest of the block is cut off and
 *   stays free, but not where it is 1 MiB or less (512 B in the small pool): then it counts as the
 *   tensor's.  A block that is given back joins its free neighbours.
 *
 * Source: c10/cuda/CUDACachingAllocator.cpp (PyTorch 2.11, default settings).
 */
#ifndef EXPERIMENTS_RIM_STUDIES_CUDA_CACHE_H
#define EXPERIMENTS_RIM_STUDIES_CUDA_CACHE_H

#include "ref/ledger.h"

enum { ATTN_CUDA_BLOCKS = 1024 };

struct attn_cuda_block {
    int64_t address, bytes;
    int is_small, is_free;
    const char *name; /* whose it is; static storage */
};

struct attn_cuda_cache {
    struct attn_ledger live; /* only counts: its now and peak are torch.cuda.memory_allocated() and
                                max_memory_allocated(), attn_ledger_restart() is
                                reset_peak_memory_stats() */
    int64_t next_segment;    /* its address */
    int n;
    struct attn_cuda_block block[ATTN_CUDA_BLOCKS]; /* [n] by address */
};

void attn_cuda_open(struct attn_cuda_cache *cache);

/* A block of at least so many bytes, more than 0; until the next call of these two.  NULL when
 * there is no place for another block or name. */
struct attn_cuda_block *attn_cuda_take(struct attn_cuda_cache *cache, const char *name,
                                       int64_t bytes);
void attn_cuda_give(struct attn_cuda_cache *cache, int64_t address);

#endif
