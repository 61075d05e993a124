/* See bench.h: what the machine can do, and what a BLAS of somebody else's does with it. */
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "experiments/bench/bench.h"
#include "experiments/cli/cli.h"
#include "ref/clock.h"

enum { FILL = 0x3e }; /* every byte of the arrays: 0.186 as floats, 7.0e-9 as doubles */
enum { L1_NUMBERS = 3072, MOST_BYTES = 256 << 20, CHUNK_BYTES = 1 << 24 };

static const struct {
    const char *name, *unit;
    enum attn_limit limit;
    int64_t rounds; /* of one chunk of work, tens of microseconds */
} roofs_of[ATTN_ROOFS] = {
    [ATTN_ROOF_FMA] = {"fma", "GFLOP/s", ATTN_LIMIT_FMA, 2000},
    [ATTN_ROOF_READ] = {"read", "GB/s", ATTN_LIMIT_READ, 1},
    [ATTN_ROOF_L2] = {"read-l2", "GB/s", ATTN_LIMIT_READ, 4},
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

/* A thread's rate is the median of so many slices of its time: whoever takes the processor away for
 * less than half of it does not show. */
enum { SLICES = 8 };

struct worker {
    double (*limit)(void *x, int64_t n, int64_t rounds);
    char *x;
    int width;                    /* bytes of a number                  */
    int64_t bytes, chunk, rounds; /* of x; of one call; times each call */
    double seconds, rate;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    int64_t at = 0;
    double rate[SLICES], start = attn_seconds(CLOCK_MONOTONIC);
    for (int slice = 0; slice < SLICES; slice++) {
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
    attn_stats_spread(rate, SLICES, &spread);
    w->rate = spread.median;
    return NULL;
}

double attn_roof_sample(struct attn_roofs *roofs, const struct attn_kernels *kernels,
                        enum attn_roof roof, int threads, double seconds)
{
    pthread_t thread[ATTN_BENCH_THREADS];
    struct worker worker[ATTN_BENCH_THREADS];
    int64_t bytes = roof == ATTN_ROOF_FMA    ? L1_NUMBERS * (int64_t)kernels->bytes
                    : roof == ATTN_ROOF_READ ? roofs->bytes
                                             : roofs->l2_bytes / 2;
    double rate = 0;
    int started = 1;
    if (threads < 1 || threads > roofs->threads)
        return (double)NAN;
    for (int t = 0; t < threads; t++)
        worker[t] = (struct worker){.limit = kernels->limit[roofs_of[roof].limit],
                                    .x = roofs->memory[t],
                                    .width = kernels->bytes,
                                    .bytes = bytes,
                                    .chunk = bytes < CHUNK_BYTES ? bytes : CHUNK_BYTES,
                                    .rounds = roofs_of[roof].rounds,
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

/* ---- BLAS --------------------------------------------------------------------------------- */

/* A function of the library under a type: ISO C has no cast from void * to a function. */
static int find(void *handle, const char *name, void *function)
{
    void *symbol = dlsym(handle, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

/* Over what the environment says: a name left there for another program would be believed. */
static void choose_kernels(const char *isa)
{
    setenv("BLIS_NUM_THREADS", "1", 1);
    if (strcmp(isa, "avx512") == 0 || strcmp(isa, "amx") == 0) {
        setenv("OPENBLAS_CORETYPE", "SkylakeX", 1);
        setenv("BLIS_ARCH_TYPE", "0", 1); /* skx */
    } else if (strcmp(isa, "avx2") == 0)
        setenv("OPENBLAS_CORETYPE", "Haswell", 1);
}

static int open_one(const char *file, struct attn_blas *blas)
{
    char *(*core)(void), *(*config)(void), name[24], version[24];
    blas->handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (blas->handle == NULL)
        return 0;
    if (!find(blas->handle, "cblas_sgemm", &blas->sgemm)) {
        dlclose(blas->handle);
        blas->handle = NULL;
        return 0;
    }
    snprintf(blas->name, sizeof blas->name, "%.60s", file);
    if (find(blas->handle, "openblas_get_corename", &core) &&
        find(blas->handle, "openblas_get_config", &config) &&
        sscanf(config(), "%23s %23s", name, version) == 2) /* "OpenBLAS 0.3.21 DYNAMIC_ARCH ..." */
        snprintf(blas->name, sizeof blas->name, "%s %s, kernels: %.32s", name, version, core());
    if (!find(blas->handle, "openblas_set_num_threads", &blas->set_threads))
        find(blas->handle, "MKL_Set_Num_Threads", &blas->set_threads);
    return 1;
}

enum attn_status attn_blas_open(const char *choice, const char *isa, struct attn_blas *blas,
                                struct attn_error *err)
{
    /* Not libblas.so.3: where it is not one of these, it is the reference, which nobody tuned. */
    static const char *const usual[] = {"libopenblas.so.0", "libmkl_rt.so.2", "libblis.so.4",
                                        "libblis.so.3"};
    memset(blas, 0, sizeof *blas);
    choose_kernels(isa);
    if (strcmp(choice, "auto") != 0)
        return open_one(choice, blas)
                   ? ATTN_OK
                   : attn_fail(err, ATTN_ENOTSUP, "%.200s cannot be loaded, or has no cblas_sgemm",
                               choice);
    for (size_t u = 0; u < sizeof usual / sizeof *usual; u++)
        if (open_one(usual[u], blas))
            return ATTN_OK;
    return attn_fail(err, ATTN_ENOTSUP,
                     "no tuned BLAS is installed (libopenblas.so.0, libblis, libmkl_rt)");
}
