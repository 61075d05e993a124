#include "experiments/bench/bench_roofs.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "ref/clock.h"

enum { FILL = 0x3e }; /* every byte of the arrays: 0.186 as floats, 7.0e-9 as doubles */
enum { L1_NUMBERS = 3072, MOST_BYTES = 256 << 20, CHUNK_BYTES = 1 << 24 };

/* numbers: 0 stands for all memory, 1 for half of L2. */
static const struct {
    const char *name, *unit;
    enum attn_limit limit;
    int64_t numbers, rounds; /* of one chunk of work, tens of microseconds */
} roofs_of[ATTN_ROOFS] = {
    {"fma", "GFLOP/s", ATTN_LIMIT_FMA, L1_NUMBERS, 2000},
    {"exp2", "Gexp/s", ATTN_LIMIT_EXP2, L1_NUMBERS, 50},
    {"read", "GB/s", ATTN_LIMIT_READ, 0, 1},
    {"read-l2", "GB/s", ATTN_LIMIT_READ, 1, 4},
    {"rows-l2", "GB/s", ATTN_LIMIT_GATHER, 1, 10},
};

const char *attn_roof_name(enum attn_roof roof)
{
    return roofs_of[roof].name;
}

const char *attn_roof_unit(enum attn_roof roof)
{
    return roofs_of[roof].unit;
}

static int64_t cache_bytes(int name, int64_t otherwise)
{
    long bytes = sysconf(name);
    return bytes > 0 ? bytes : otherwise;
}

enum attn_status attn_roofs_open(struct attn_roofs *roofs, int threads, struct attn_error *err)
{
    *roofs = (struct attn_roofs){.threads = threads};
    int64_t share = attn_cli_memory_available() / 8 / threads;
    int64_t outside = 8 * cache_bytes(_SC_LEVEL3_CACHE_SIZE, 8 << 20);
    roofs->l2_bytes = cache_bytes(_SC_LEVEL2_CACHE_SIZE, 512 << 10);
    roofs->bytes = outside < MOST_BYTES ? outside : MOST_BYTES;
    roofs->bytes = roofs->bytes < share ? roofs->bytes : share;
    if (roofs->bytes < L1_NUMBERS * 8 + roofs->l2_bytes)
        return attn_fail(err, ATTN_ENOMEM, "no memory for the arrays that bandwidth is read from");
    for (int t = 0; t < threads; t++) {
        void *memory = mmap(NULL, (size_t)roofs->bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) {
            attn_roofs_close(roofs);
            return attn_fail(err, ATTN_ENOMEM, "no memory for the arrays of %d threads", threads);
        }
        memset(memory, FILL, (size_t)roofs->bytes);
        roofs->memory[t] = memory;
    }
    return ATTN_OK;
}

void attn_roofs_close(struct attn_roofs *roofs)
{
    for (int t = 0; t < roofs->threads; t++)
        if (roofs->memory[t] != NULL)
            munmap(roofs->memory[t], (size_t)roofs->bytes);
    memset(roofs, 0, sizeof *roofs);
}

/* ---- one sample --------------------------------------------------------------------------- */

/* Threads wait for each other before the clock of any starts; a crew that cannot be completed goes
 * home. */
struct crew {
    _Atomic int here, word;
};
enum { WAIT, WORK, GO_HOME }; /* the word */

/* A thread's rate is the median of so many slices of its time: whoever takes the processor away for
 * less than half of it does not show. */
enum { SLICES = 8 };

struct worker {
    double (*limit)(void *x, int64_t n, int64_t rounds);
    char *x;
    int width;                    /* bytes of a number                  */
    int64_t bytes, chunk, rounds; /* of x; of one call; times each call */
    double seconds, rate;
    struct crew *crew;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    int64_t at = 0;
    int word = WORK;
    if (w->crew != NULL) {
        atomic_fetch_add(&w->crew->here, 1);
        while ((word = atomic_load(&w->crew->word)) == WAIT)
            sched_yield();
    }
    double rate[SLICES], start = attn_seconds(CLOCK_MONOTONIC);
    for (int slice = 0; slice < SLICES && word == WORK; slice++) {
        double now = start, done = 0;
        while (now - start < w->seconds / SLICES) {
            done += w->limit(w->x + at, w->chunk / w->width, w->rounds);
            at = at + 2 * w->chunk <= w->bytes ? at + w->chunk : 0;
            now = attn_seconds(CLOCK_MONOTONIC);
        }
        rate[slice] = done / (now - start);
        start = now;
    }
    struct attn_spread spread;
    attn_stats_spread(rate, word == WORK ? SLICES : 0, &spread);
    w->rate = spread.median;
    return NULL;
}

static struct worker worker_of(const struct attn_roofs *roofs, const struct attn_kernels *kernels,
                               enum attn_roof roof, int thread)
{
    struct worker w = {.limit = kernels->limit[roofs_of[roof].limit],
                       .x = roofs->memory[thread],
                       .width = kernels->bytes,
                       .rounds = roofs_of[roof].rounds};
    int64_t numbers = roofs_of[roof].numbers;
    w.bytes = numbers == 0   ? roofs->bytes
              : numbers == 1 ? roofs->l2_bytes / 2
                             : numbers * kernels->bytes;
    w.chunk = w.bytes < CHUNK_BYTES ? w.bytes : CHUNK_BYTES;
    return w;
}

/* All workers for so many seconds each; the sum of their rates. */
static double work_together(struct worker *worker, int threads, double seconds)
{
    pthread_t thread[ATTN_BENCH_THREADS];
    struct crew crew = {0, WAIT};
    double rate = 0;
    int started = 1;
    for (int t = 0; t < threads; t++) {
        worker[t].seconds = seconds;
        worker[t].crew = t > 0 ? &crew : NULL;
    }
    while (started < threads && pthread_create(&thread[started], NULL, work, &worker[started]) == 0)
        started++;
    while (atomic_load(&crew.here) < started - 1)
        sched_yield();
    atomic_store(&crew.word, started == threads ? WORK : GO_HOME);
    if (started == threads)
        work(&worker[0]);
    for (int t = 1; t < started; t++)
        pthread_join(thread[t], NULL);
    for (int t = 0; t < threads; t++)
        rate += started == threads ? worker[t].rate : (double)NAN;
    return rate;
}

double attn_roof_sample(struct attn_roofs *roofs, const struct attn_kernels *kernels,
                        enum attn_roof roof, int threads, double seconds)
{
    struct worker worker[ATTN_BENCH_THREADS];
    if (threads < 1 || threads > roofs->threads)
        return (double)NAN;
    for (int t = 0; t < threads; t++)
        worker[t] = worker_of(roofs, kernels, roof, t);
    return work_together(worker, threads, seconds);
}
