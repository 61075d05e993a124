#include "experiments/bench/bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- roofs -------------------------------------------------------------------------------- */

void attn_bench_roofs(struct attn_bench *bench, const struct attn_kernels *kernels, const char *isa,
                      int threads)
{
    enum { SAMPLES = 7 };
    for (int r = 0; r < bench->n_roofs; r++)
        if (bench->roof[r].kernels == kernels && bench->roof[r].threads == threads)
            return;
    double rate[ATTN_ROOFS][SAMPLES];
    if (bench->n_roofs + ATTN_ROOFS > ATTN_BENCH_ROOFS)
        return;
    for (int s = 0; s < SAMPLES; s++)
        for (int r = 0; r < ATTN_ROOFS; r++) {
            int is_memory = r == ATTN_ROOF_READ || r == ATTN_ROOF_TRIAD;
            rate[r][s] = attn_roof_sample(&bench->roofs, kernels, (enum attn_roof)r, threads,
                                          is_memory ? 0.03 : 0.005);
        }
    for (int r = 0; r < ATTN_ROOFS; r++) {
        struct attn_bench_roof *roof = &bench->roof[bench->n_roofs++];
        *roof = (struct attn_bench_roof){(enum attn_roof)r, kernels, isa, threads, {0}};
        attn_stats_spread(rate[r], SAMPLES, &roof->spread);
    }
}

/* ---- tensors ------------------------------------------------------------------------------ */

static enum attn_status open_matrices(struct attn_bench *bench, const struct attn_bench_product *x,
                                      struct attn_error *err)
{
    int64_t most = x->m > x->n ? x->m : x->n, least = x->m + x->n - most;
    int64_t room = most * (x->k > least ? x->k : least); /* the largest of the three */
    if (bench->blas.handle == NULL)
        return attn_fail(err, ATTN_ENOTSUP, "%s", bench->blas_why_not);
    if (room <= bench->matrix_room)
        return ATTN_OK;
    free(bench->matrix);
    bench->matrix_room = 0;
    bench->matrix = aligned_alloc(64, ((size_t)room * 3 * sizeof(float) + 63) / 64 * 64);
    if (bench->matrix == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for the matrices of a product");
    for (int64_t i = 0; i < 3 * room; i++)
        bench->matrix[i] = (float)(i % 13) * 0.1f - 0.5f;
    bench->matrix_room = room;
    return ATTN_OK;
}

static void refuse(struct attn_bench_entry *e, const struct attn_error *err)
{
    if (e->state == ATTN_BENCH_WAITING || e->state == ATTN_BENCH_TIMED) {
        e->state = ATTN_BENCH_REFUSED;
        snprintf(e->message, sizeof e->message, "%s", err->text);
    }
}

/* Tensors for entry at, or those of an earlier entry of the same case. */
static void give_setup(struct attn_bench *bench, struct attn_bench_entry *entry, int at)
{
    struct attn_bench_entry *e = &entry[at];
    struct attn_error err = {ATTN_OK, ""};
    if (e->product.m > 0) {
        if (open_matrices(bench, &e->product, &err) != ATTN_OK)
            refuse(e, &err);
        return;
    }
    for (int other = 0; other < at && e->setup == NULL; other++)
        if (strcmp(entry[other].text, e->text) == 0)
            e->setup = entry[other].setup;
    if (e->setup != NULL || attn_bench_entry_price(e, &err) != ATTN_OK)
        return;
    e->setup = calloc(1, sizeof *e->setup);
    if (e->setup == NULL)
        attn_fail(&err, ATTN_ENOMEM, "no memory for the names of its tensors");
    else if (attn_setup_open(&e->c, e->setup, &err) != ATTN_OK) {
        free(e->setup);
        e->setup = NULL;
    }
    if (e->setup == NULL)
        refuse(e, &err);
}

static void take_setups(struct attn_bench_entry *entry, int n)
{
    for (int at = 0; at < n; at++) {
        struct attn_setup *setup = entry[at].setup;
        for (int other = at; other < n && setup != NULL; other++)
            if (entry[other].setup == setup)
                entry[other].setup = NULL;
        if (setup != NULL)
            attn_setup_close(setup);
        free(setup);
    }
}

/* ---- rounds ------------------------------------------------------------------------------- */

static int most_samples(const struct attn_bench_entry *entry, int n)
{
    int most = 0;
    for (int at = 0; at < n; at++)
        most = entry[at].n > most ? entry[at].n : most;
    return most;
}

void attn_bench_block(struct attn_bench *bench, struct attn_bench_entry *entry, int n, int visit,
                      int visits)
{
    int wanted = (bench->rounds * (visit + 1) + visits - 1) / visits; /* when it is over */
    for (int at = 0; at < n; at++) {
        struct attn_bench_entry *e = &entry[at];
        if (e->state == ATTN_BENCH_WAITING || e->state == ATTN_BENCH_TIMED)
            give_setup(bench, entry, at);
        if (e->state == ATTN_BENCH_WAITING)
            attn_bench_roofs(bench, e->kernels, e->isa, e->threads);
        if (e->state == ATTN_BENCH_WAITING || e->state == ATTN_BENCH_TIMED)
            attn_bench_entry_begin(bench, e);
    }
    for (int round = most_samples(entry, n); round < wanted && round < ATTN_BENCH_ROUNDS; round++)
        for (int at = 0; at < n; at++)
            attn_bench_entry_sample(bench, &entry[at]);
    for (int at = 0; at < n; at++)
        attn_bench_entry_end(&entry[at]);
    take_setups(entry, n);
}
