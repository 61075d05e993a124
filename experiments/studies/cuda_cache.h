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
#ifndef EXPERIMENTS_STUDIES_CUDA_CACHE_H
#define EXPERIMENTS_STUDIES_CUDA_CACHE_H

#include <stdint.h>

enum { ATTN_CUDA_BLOCKS = 1024, ATTN_CUDA_TAGS = 64 };

struct attn_cuda_block {
    int64_t address, bytes;
    int is_small, is_free;
    int tag; /* whose it is, 0 to ATTN_CUDA_TAGS - 1 */
};

/* torch.cuda.memory_allocated() and max_memory_allocated(), and of what they were made. */
struct attn_cuda_cache {
    int64_t now, peak;
    int64_t live[ATTN_CUDA_TAGS], at_peak[ATTN_CUDA_TAGS]; /* bytes of blocks by tag */
    int64_t next_segment;                                  /* its address              */
    int n;
    struct attn_cuda_block block[ATTN_CUDA_BLOCKS]; /* [n] by address */
};

void attn_cuda_open(struct attn_cuda_cache *cache);

/* A block of at least so many bytes, more than 0: its address; -1 when there is no place for
 * another block. */
int64_t attn_cuda_take(struct attn_cuda_cache *cache, int64_t bytes, int tag);
void attn_cuda_give(struct attn_cuda_cache *cache, int64_t address);

/* torch.cuda.reset_peak_memory_stats() */
void attn_cuda_restart(struct attn_cuda_cache *cache);

#endif
