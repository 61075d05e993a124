#include "experiments/measure/point/peak.h"

#include <math.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/stats.h"
#include "optimized/integers.h"
#include "optimized/simd/isa.h"
#include "optimized/tiled.h"
#include "optimized/tiled_plan.h"
#include "ref/clock.h"

enum { FILL = 0x3e }; /* every byte of the arrays: 0.186 as floats, 7.0e-9 as doubles */
enum { L1_NUMBERS = 3072, MOST_BYTES = 256 << 20, CHUNK_BYTES = 1 << 24, THREADS = 64 };

const struct attn_kernels *attn_peak_kernels(const struct attn_spec *spec, enum attn_dtype dtype)
{
    struct attn_error err;
    const struct attn_isa *isa =
        spec->options.isa != NULL ? spec->options.isa : attn_isa_best(&err);
    if (isa == NULL)
        return NULL;
    const struct attn_kernels *kernels = isa->kernels[dtype == ATTN_F64];
    int is_of_matrices = spec->impl == &attn_impl_tiled && spec->options.value[ATTN_TILED_P] != 0;
    return is_of_matrices && kernels->matrix != NULL ? kernels->matrix : kernels;
}

/* A thread's rate is the median of its slices of time: an interruption of less than half of
 * it does not show. */
enum { SLICES = 8 };

struct worker {
    double (*limit)(void *x, int64_t n, int64_t rounds);
    int width;             /* bytes of a number                  */
    int64_t bytes, rounds; /* of its array; times each call */
    double seconds, rate;
};

static double rate_of(const struct worker *w, char *x)
{
    int64_t at = 0, chunk = less(w->bytes, CHUNK_BYTES);
    double rate[SLICES], start = attn_seconds(CLOCK_MONOTONIC);
    for (int slice = 0; slice < SLICES; slice++) {
        double now = start, done = 0;
        while (now - start < w->seconds / SLICES) {
            done += w->limit(x + at, chunk / w->width, w->rounds);
            at = at + 2 * chunk <= w->bytes ? at + chunk : 0;
            now = attn_seconds(CLOCK_MONOTONIC);
        }
        rate[slice] = done / (now - start);
        start = now;
    }
    struct attn_spread spread;
    attn_stats_spread(rate, SLICES, &spread);
    return spread.median;
}

static void *work(void *arg)
{
    struct worker *w = arg;
    void *memory =
        mmap(NULL, (size_t)w->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    w->rate = (double)NAN;
    if (memory == MAP_FAILED)
        return NULL;
    madvise(memory, (size_t)w->bytes, MADV_HUGEPAGE); /* else most of its time is faults of pages */
    memset(memory, FILL, (size_t)w->bytes);
    w->rate = rate_of(w, memory);
    munmap(memory, (size_t)w->bytes);
    return NULL;
}

/* Eight times the last cache, where there is memory for that. */
static int64_t bytes_beyond_caches(int threads)
{
    long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    int64_t outside = 8 * (int64_t)(cache > 0 ? cache : 8 << 20);
    return less(less(outside, MOST_BYTES), attn_cli_memory_available() / 8 / threads);
}

double attn_peak_sample(const struct attn_kernels *kernels, enum attn_limit limit, int threads,
                        double seconds)
{
    const struct timespec pause = {0, 10 * 1000 * 1000};
    pthread_t thread[THREADS];
    struct worker worker[THREADS];
    int is_fma = limit == ATTN_LIMIT_FMA, started = 1;
    double rate = 0;
    if (threads < 1 || threads > THREADS)
        return (double)NAN;
    if (threads > 1) /* threads of OpenMP go on spinning for some milliseconds */
        nanosleep(&pause, NULL);
    for (int t = 0; t < threads; t++)
        worker[t] = (struct worker){.limit = kernels->limit[limit],
                                    .width = kernels->bytes,
                                    .bytes = is_fma ? L1_NUMBERS * (int64_t)kernels->bytes
                                                    : bytes_beyond_caches(threads),
                                    .rounds = is_fma ? 2000 : 1,
                                    .seconds = seconds};
    while (started < threads && pthread_create(&thread[started], NULL, work, &worker[started]) == 0)
        started++;
    work(&worker[0]);
    for (int t = 1; t < started; t++)
        pthread_join(thread[t], NULL);
    for (int t = 0; t < started; t++)
        rate += worker[t].rate;
    return started == threads ? rate : (double)NAN;
}
