/* See bench.h: things to be timed: their price, the first call, and samples in turn. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "experiments/bench/bench.h"
#include "experiments/cli/cli.h"
#include "experiments/measure/point/point_work.h"
#include "experiments/price/need.h"
#include "optimized/tiled.h"
#include "optimized/tiled_plan.h"
#include "ref/clock.h"
#include "ref/problem.h"

const char *attn_bench_state_name(enum attn_bench_state state)
{
    static const char *const name[] = {"waiting", "timed", "wrong", "refused", "failed"};
    return name[state];
}

static enum attn_status refuse(struct attn_bench_entry *e, const struct attn_error *err)
{
    e->state = err->status == ATTN_EINTERNAL || err->status == ATTN_EPEER ? ATTN_BENCH_FAILED
                                                                          : ATTN_BENCH_REFUSED;
    snprintf(e->point.message, sizeof e->point.message, "%s", err->text);
    return err->status;
}

/* ---- what it is --------------------------------------------------------------------------- */

/* The kernels by whose P it is measured: those that its spec names, or the best. */
static enum attn_status choose_kernels(struct attn_bench_entry *e, struct attn_error *err)
{
    const struct attn_isa *isa = e->parsed.options.isa;
    if (isa == NULL)
        isa = attn_isa_best(err);
    if (isa == NULL)
        return err->status;
    e->isa = isa->name;
    e->kernels = isa->kernels[!e->is_sgemm && e->point.c.dtype == ATTN_F64];
    if (e->parsed.impl == &attn_impl_tiled && e->parsed.options.value[ATTN_TILED_P] != 0 &&
        e->kernels->matrix != NULL)
        e->kernels = e->kernels->matrix;
    return ATTN_OK;
}

enum { SGEMM_N = 4096 };

enum attn_status attn_bench_entry_init(struct attn_bench_entry *e, const char *spec,
                                       const char *text, int threads, struct attn_error *err)
{
    const double n = SGEMM_N;
    memset(e, 0, sizeof *e);
    attn_point_init(&e->point);
    e->point.priced_bytes = e->point.ledger_bytes = 0;
    e->is_sgemm = strcmp(spec, "sgemm") == 0;
    snprintf(e->point.spec, sizeof e->point.spec, "%s",
             e->is_sgemm ? "sgemm 4096x4096x4096" : spec);
    snprintf(e->point.text, sizeof e->point.text, "%s", text);
    e->threads = threads;
    if (e->is_sgemm) {
        e->work = (struct attn_bench_work){.flops = 2 * n * n * n, .bytes = 4 * 3 * n * n};
        return choose_kernels(e, err) == ATTN_OK ? ATTN_OK : refuse(e, err);
    }
    if (attn_spec_parse(spec, &e->parsed, err) != ATTN_OK ||
        attn_case_parse(text, &e->point.c, err) != ATTN_OK || choose_kernels(e, err) != ATTN_OK)
        return refuse(e, err);
    e->parsed.options.threads = threads;
    attn_spec_print(&e->parsed, e->point.spec, sizeof e->point.spec);
    attn_case_print(&e->point.c, e->point.text);
    return ATTN_OK;
}

/* ---- what it needs ------------------------------------------------------------------------ */

/* Before there are tensors: what can be said from the case alone.  ENOMEM: too large. */
static enum attn_status price(struct attn_bench_entry *e, struct attn_error *err)
{
    struct attn_problem problem;
    struct attn_case plain = e->point.c;
    char need_text[32], have_text[32];
    int64_t need = 0, have = attn_cli_memory_available();
    /* A mask or a bias made of tensors has no price before they are there: those are small. */
    strcpy(plain.mask, "none");
    plain.bias = ATTN_CASE_BIAS_NONE;
    if (attn_preflight_case(&e->parsed, &e->point.c, &e->point, &need, NULL) != ATTN_OK &&
        attn_preflight_open(&plain, &problem, &e->point, &need, NULL) == ATTN_OK)
        attn_preflight_close(&problem);
    if (need <= have)
        return ATTN_OK;
    attn_fail(err, ATTN_ENOMEM, "needs %s, and this machine can give %s: not attempted",
              attn_cli_bytes(need, need_text), attn_cli_bytes(have, have_text));
    return refuse(e, err);
}

/* Price and model, from the problem itself. */
static enum attn_status model(const struct attn_bench *bench, struct attn_bench_entry *e,
                              struct attn_error *err)
{
    struct attn_point *point = &e->point;
    const struct attn_problem *p = &e->setup->problem;
    double d = (double)p->d_key, dv = (double)p->d_value;
    enum attn_status status = attn_preflight_price(&e->parsed, p, point, err);
    if (status != ATTN_OK)
        return status;
    point->priced_bytes *= point->ranks; /* of all: they share this machine */
    e->work.pairs = (double)point->pairs;
    double products = point->c.pass == ATTN_FORWARD ? d + dv : 3 * d + 2 * dv;
    if (point->c.pass == ATTN_BACKWARD && point->saved_bytes > 0) /* scores are not made again */
        products -= d;
    e->work.flops = 2 * e->work.pairs * products;
    e->work.bytes = (double)attn_setup_bytes(e->setup);
    if (point->priced_bytes > bench->roofs.l2_bytes * e->threads)
        e->work.bytes += 2 * (double)point->priced_bytes;
    if (point->priced_bytes > attn_cli_memory_available())
        return attn_fail(err, ATTN_ENOMEM, "needs %lld bytes beside its tensors: not attempted",
                         (long long)point->priced_bytes);
    return ATTN_OK;
}

/* ---- calls -------------------------------------------------------------------------------- */

/* Calls follow each other, as in a training loop: what one gives back, the next one takes, and no
 * page is cleared again.  Programs that are given their scratch once are compared so, too. */
static void start_memory(struct attn_bench_entry *e)
{
    attn_ledger_init(&e->ledger, NULL);
    e->ledger.keeps = 1;
    e->saved.data = NULL;
}

static enum attn_status call(const struct attn_bench *bench, struct attn_bench_entry *e,
                             enum attn_pass pass, struct attn_error *err)
{
    struct attn_ctx ctx = {
        .ledger = &e->ledger, .options = &e->parsed.options, .error = err, .saved = &e->saved};
    enum { ROW_MAJOR = 101, PLAIN = 111, N = SGEMM_N }; /* cblas.h */
    float *a = bench->matrix, *b = a + (size_t)N * N, *c = b + (size_t)N * N;
    if (e->is_sgemm) {
        bench->blas.sgemm(ROW_MAJOR, PLAIN, PLAIN, N, N, N, 1, a, N, b, N, 0, c, N);
        return ATTN_OK;
    }
    if (pass == ATTN_FORWARD)
        attn_saved_drop(&e->saved, &e->ledger); /* of the call before */
    return attn_setup_call(e->setup, e->parsed.impl, &ctx, pass);
}

/* As measure verifies, but that no more than ALL queries and keys are compared in whole. */
static void verify(struct attn_bench_entry *e)
{
    enum { ALL = 512 };
    struct attn_precision precision;
    attn_precision_of(e->parsed.impl, &e->parsed.options, &e->setup->problem, &precision);
    e->state = ATTN_BENCH_WRONG;
    if (!attn_point_intact(e->setup, &e->point))
        return;
    attn_point_judge(e->setup, &precision, ALL, 0, &e->point);
    if (e->point.status == ATTN_POINT_OK)
        e->state = ATTN_BENCH_TIMED;
    else if (e->point.status != ATTN_POINT_WRONG)
        e->state = ATTN_BENCH_FAILED;
}

/* Entries of one case share their tensors: what another one wrote is no result of this one. */
static void forget_results(struct attn_setup *setup)
{
    for (int slot = ATTN_T_O; slot < ATTN_SLOTS; slot++)
        if (setup->tensor[slot].data != NULL)
            attn_tensor_poison(&setup->tensor[slot]);
}

/* The first call (backward: after a forward), and the second, whose time decides how many make a
 * sample. */
static enum attn_status first_calls(const struct attn_bench *bench, struct attn_bench_entry *e,
                                    struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    start_memory(e);
    if (!e->is_sgemm)
        forget_results(e->setup);
    if (!e->is_sgemm && e->point.c.pass == ATTN_BACKWARD) {
        status = call(bench, e, ATTN_FORWARD, err);
        attn_ledger_restart(&e->ledger);
    }
    if (status == ATTN_OK)
        status = call(bench, e, e->point.c.pass, err);
    e->point.ledger_bytes = atomic_load(&e->ledger.peak);
    double start = attn_seconds(CLOCK_MONOTONIC);
    if (status == ATTN_OK)
        status = call(bench, e, e->point.c.pass, err);
    double seconds = attn_seconds(CLOCK_MONOTONIC) - start;
    e->calls = seconds < bench->sample_s ? (int64_t)ceil(bench->sample_s / fmax(seconds, 1e-7)) : 1;
    return status;
}

/* Under the roofline: reading its bytes takes longer than its flops at the rate of P. */
static int is_memory_bound(const struct attn_bench *bench, const struct attn_bench_entry *e)
{
    int cached = e->work.bytes <= (double)(bench->roofs.l2_bytes * e->threads);
    return !e->is_sgemm && !cached &&
           e->work.bytes / attn_bench_roof_rate(bench, ATTN_ROOF_READ, e) >
               e->work.flops / attn_bench_roof_rate(bench, ATTN_ROOF_FMA, e);
}

static void begin(const struct attn_bench *bench, struct attn_bench_entry *e)
{
    struct attn_error err = {ATTN_OK, ""};
    if (e->is_sgemm && bench->blas.set_threads != NULL)
        bench->blas.set_threads(e->threads);
    enum attn_status status = e->is_sgemm ? ATTN_OK : model(bench, e, &err);
    e->pair_read |= is_memory_bound(bench, e);
    if (status == ATTN_OK)
        status = first_calls(bench, e, &err);
    if (status != ATTN_OK) {
        refuse(e, &err);
        return;
    }
    e->state = ATTN_BENCH_TIMED;
    if (bench->verify && !e->is_sgemm)
        verify(e);
}

/* ---- one sample --------------------------------------------------------------------------- */

static void take_sample(struct attn_bench *bench, struct attn_bench_entry *e)
{
    static const double PEAK_S = 0.002, READ_S = 0.03;
    const struct timespec pause = {0, 10 * 1000 * 1000};
    struct attn_error err = {ATTN_OK, ""};
    enum attn_status status = ATTN_OK;
    if (e->state != ATTN_BENCH_TIMED || e->n == ATTN_BENCH_ROUNDS)
        return;
    if (e->is_sgemm && bench->blas.set_threads != NULL)
        bench->blas.set_threads(e->threads);
    double peak = attn_roof_sample(&bench->roofs, e->kernels, ATTN_ROOF_FMA, e->threads, PEAK_S);
    double start = attn_seconds(CLOCK_MONOTONIC);
    for (int64_t t = 0; t < e->calls && status == ATTN_OK; t++)
        status = call(bench, e, e->point.c.pass, &err);
    double seconds = attn_seconds(CLOCK_MONOTONIC) - start;
    if (status != ATTN_OK) {
        refuse(e, &err);
        return;
    }
    if (e->threads > 1) /* threads of OpenMP and of a BLAS go on spinning for some milliseconds */
        nanosleep(&pause, NULL);
    peak += attn_roof_sample(&bench->roofs, e->kernels, ATTN_ROOF_FMA, e->threads, PEAK_S);
    struct attn_bench_sample *sample = &e->sample[e->n++];
    *sample = (struct attn_bench_sample){seconds / (double)e->calls, peak / 2, (double)NAN};
    if (e->pair_read)
        sample->read =
            attn_roof_sample(&bench->roofs, e->kernels, ATTN_ROOF_READ, e->threads, READ_S);
}

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
        for (int r = 0; r < ATTN_ROOFS; r++)
            rate[r][s] = attn_roof_sample(&bench->roofs, kernels, (enum attn_roof)r, threads,
                                          r == ATTN_ROOF_READ ? 0.03 : 0.005);
    for (int r = 0; r < ATTN_ROOFS; r++) {
        struct attn_bench_roof *roof = &bench->roof[bench->n_roofs++];
        *roof = (struct attn_bench_roof){(enum attn_roof)r, kernels, isa, threads, {0}};
        attn_stats_spread(rate[r], SAMPLES, &roof->spread);
    }
}

double attn_bench_roof_rate(const struct attn_bench *bench, enum attn_roof roof,
                            const struct attn_bench_entry *e)
{
    for (int r = 0; r < bench->n_roofs; r++)
        if (bench->roof[r].roof == roof && bench->roof[r].kernels == e->kernels &&
            bench->roof[r].threads == e->threads)
            return bench->roof[r].spread.median;
    return (double)NAN;
}

/* ---- tensors ------------------------------------------------------------------------------ */

static enum attn_status open_matrices(struct attn_bench *bench, int threads, struct attn_error *err)
{
    const size_t n = (size_t)3 * SGEMM_N * SGEMM_N;
    if (bench->blas.handle == NULL)
        return attn_fail(err, ATTN_ENOTSUP, "%s", bench->blas_why_not);
    if (threads > 1 && bench->blas.set_threads == NULL)
        return attn_fail(err, ATTN_ENOTSUP, "this BLAS cannot be told to run %d threads", threads);
    if (bench->matrix != NULL)
        return ATTN_OK;
    bench->matrix = aligned_alloc(64, n * sizeof *bench->matrix);
    if (bench->matrix == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for the matrices of a product");
    for (size_t i = 0; i < n; i++)
        bench->matrix[i] = (float)(i % 13) * 0.1f - 0.5f;
    return ATTN_OK;
}

/* Tensors for entry at, or those of an earlier entry of the same case. */
static void give_setup(struct attn_bench *bench, struct attn_bench_entry *entry, int at)
{
    struct attn_bench_entry *e = &entry[at];
    struct attn_error err = {ATTN_OK, ""};
    if (e->is_sgemm) {
        if (open_matrices(bench, e->threads, &err) != ATTN_OK)
            refuse(e, &err);
        return;
    }
    for (int other = 0; other < at && e->setup == NULL; other++)
        if (strcmp(entry[other].point.text, e->point.text) == 0)
            e->setup = entry[other].setup;
    if (e->setup != NULL || price(e, &err) != ATTN_OK)
        return;
    e->setup = calloc(1, sizeof *e->setup);
    if (e->setup == NULL)
        attn_fail(&err, ATTN_ENOMEM, "no memory for the names of its tensors");
    else if (attn_setup_open(&e->point.c, e->setup, &err) != ATTN_OK) {
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

/* ---- in turn ------------------------------------------------------------------------------ */

void attn_bench_block(struct attn_bench *bench, struct attn_bench_entry *entry, int n)
{
    for (int at = 0; at < n; at++) {
        struct attn_bench_entry *e = &entry[at];
        if (e->state == ATTN_BENCH_WAITING)
            give_setup(bench, entry, at);
        if (e->state != ATTN_BENCH_WAITING)
            continue;
        attn_bench_roofs(bench, e->kernels, e->isa, e->threads);
        begin(bench, e);
    }
    for (int round = 0; round < bench->rounds; round++)
        for (int at = 0; at < n; at++)
            take_sample(bench, &entry[at]);
    for (int at = 0; at < n; at++)
        attn_ledger_clear(&entry[at].ledger);
    take_setups(entry, n);
}
