/* Roofs: what the machine can do at most, in the units of the kernels, measured in this process
 * and next to what is timed, because clocks drift by several per cent between minutes.
 *
 * Threads are started for each sample, meet, and work until their own time is over; the rate of
 * a sample is the sum of theirs.  Each has memory of its own, in ordinary pages as tensors have.
 */
#ifndef EXPERIMENTS_BENCH_BENCH_ROOFS_H
#define EXPERIMENTS_BENCH_BENCH_ROOFS_H

#include "experiments/measure/stats.h"
#include "optimized/simd/isa.h"
#include "optimized/simd/kernels.h"

enum { ATTN_BENCH_THREADS = 64 };

enum attn_roof {
    ATTN_ROOF_FMA,    /* P: multiply-adds on registers                         */
    ATTN_ROOF_EXP2,   /* softmax steps in L1                                   */
    ATTN_ROOF_READ,   /* bytes read from memory, from an array beyond every cache */
    ATTN_ROOF_L2,     /* bytes read from half of the second-level cache        */
    ATTN_ROOF_GATHER, /* bytes read there in random rows of 256                */
    ATTN_ROOFS
};
const char *attn_roof_name(enum attn_roof roof); /* "fma", "exp2", "read", ... */
const char *attn_roof_unit(enum attn_roof roof); /* "GFLOP/s", "Gexp/s", "GB/s" */

struct attn_roofs {
    int threads;      /* at most             */
    int64_t bytes;    /* of memory, each     */
    int64_t l2_bytes; /* of the second-level cache; a guess where it is not told */
    void *memory[ATTN_BENCH_THREADS];
};

/* Memory for so many threads: beyond the caches, an eighth of what there is at most. */
enum attn_status attn_roofs_open(struct attn_roofs *roofs, int threads, struct attn_error *err);
void attn_roofs_close(struct attn_roofs *roofs);

/* One sample of about so many seconds: units a second, all threads together; NaN when threads could
 * not be started. */
double attn_roof_sample(struct attn_roofs *roofs, const struct attn_kernels *kernels,
                        enum attn_roof roof, int threads, double seconds);

#endif
