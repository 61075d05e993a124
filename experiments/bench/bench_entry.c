/* Things to be timed: their price, their model, the first call, and samples in turn. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "experiments/bench/bench.h"
#include "experiments/cli/cli.h"
#include "experiments/measure/point.h"
#include "experiments/measure/preflight.h"
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
    snprintf(e->message, sizeof e->message, "%s", err->text);
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
    e->kernels = isa->kernels[e->product.m == 0 && e->c.dtype == ATTN_F64];
    return ATTN_OK;
}

enum attn_status attn_bench_entry_init(struct attn_bench_entry *e, const char *spec,
                                       const char *text, int threads, struct attn_error *err)
{
    memset(e, 0, sizeof *e);
    snprintf(e->spec, sizeof e->spec, "%s", spec);
    snprintf(e->text, sizeof e->text, "%s", text);
    e->threads = threads;
    e->worst = (double)NAN;
    if (attn_spec_parse(spec, &e->parsed, err) != ATTN_OK ||
        attn_case_parse(text, &e->c, err) != ATTN_OK || choose_kernels(e, err) != ATTN_OK)
        return refuse(e, err);
    e->parsed.options.threads = threads;
    attn_spec_print(&e->parsed, e->spec, sizeof e->spec);
    attn_case_print(&e->c, e->text);
    return ATTN_OK;
}

enum attn_status attn_bench_entry_product(struct attn_bench_entry *e,
                                          const struct attn_bench_product *product, int threads,
                                          struct attn_error *err)
{
    double m = product->m, n = product->n, k = product->k;
    memset(e, 0, sizeof *e);
    snprintf(e->spec, sizeof e->spec, "sgemm %dx%dx%d%s", product->m, product->n, product->k,
             product->transposed ? " A B^T" : "");
    e->product = *product;
    e->threads = threads;
    e->worst = (double)NAN;
    e->work.flops = 2 * m * n * k;
    e->work.bytes = 4 * (m * k + n * k + m * n);
    return choose_kernels(e, err) == ATTN_OK ? ATTN_OK : refuse(e, err);
}

/* ---- what it needs ------------------------------------------------------------------------ */

/* Inputs, outputs, and the harness's byte for each element. */
static double tensor_bytes(const struct attn_case *c)
{
    double size = (double)attn_dtype_size(c->dtype), b = (double)c->batch;
    double q = b * (double)c->heads * (double)c->n_query;
    double k = b * (double)c->kv_heads * (double)c->n_key;
    double d = (double)c->d_key, dv = (double)c->d_value;
    double elements = (q + k) * (d + dv) * (c->pass == ATTN_BACKWARD ? 2 : 1) + q;
    return elements * (size + 1);
}

/* Before there are tensors: what can be said from the case alone.  ENOMEM: too large. */
static enum attn_status price(struct attn_bench_entry *e, struct attn_error *err)
{
    struct attn_point point;
    char need_text[32], have_text[32];
    int64_t need = 0, have = attn_cli_memory_available();
    attn_point_init(&point);
    point.c = e->c;
    /* A mask or a bias made of tensors has no price before they are there: those are small. */
    if (attn_preflight_case(&e->parsed, &e->c, &point, &need, NULL) != ATTN_OK)
        need = (int64_t)fmin(tensor_bytes(&e->c), 9e18);
    if (need <= have)
        return ATTN_OK;
    attn_fail(err, ATTN_ENOMEM, "needs %s, and this machine can give %s: not attempted",
              attn_cli_bytes(need, need_text), attn_cli_bytes(have, have_text));
    return refuse(e, err);
}

/* Scattered pairs, one at a time. */
static int is_gathered(const struct attn_bench_entry *e)
{
    const struct attn_mask *mask = e->setup->problem.mask;
    const char *text = mask != NULL ? attn_mask_text(mask) : "";
    return strcmp(e->parsed.impl->family, "csr") == 0 && e->kernels != NULL &&
           (strncmp(text, "csr(", 4) == 0 || strncmp(text, "random(", 7) == 0);
}

/* Price and model, from the problem itself. */
static enum attn_status model(const struct attn_bench *bench, struct attn_bench_entry *e,
                              struct attn_error *err)
{
    struct attn_point point;
    const struct attn_problem *p = &e->setup->problem;
    double d = (double)p->d_key, dv = (double)p->d_value;
    attn_point_init(&point);
    point.c = e->c;
    enum attn_status status = attn_preflight_price(&e->parsed, p, &point, err);
    if (status != ATTN_OK)
        return status;
    e->priced_bytes = point.priced_bytes * point.ranks;
    e->work.pairs = e->work.exps = (double)point.pairs;
    double products = e->c.pass == ATTN_FORWARD ? d + dv : 3 * d + 2 * dv;
    if (e->c.pass == ATTN_BACKWARD && point.saved_bytes > 0) /* scores are not made again */
        products -= d;
    e->work.flops = 2 * e->work.pairs * products;
    e->work.bytes = (double)attn_setup_bytes(e->setup);
    if (is_gathered(e)) /* backward: K, V, dK and dV */
        e->work.gathered =
            e->work.pairs * (d + dv) * e->kernels->bytes * (e->c.pass == ATTN_FORWARD ? 1 : 2);
    if (e->priced_bytes > bench->roofs.l2_bytes * e->threads)
        e->work.bytes += 2 * (double)e->priced_bytes;
    if (e->priced_bytes > attn_cli_memory_available())
        return attn_fail(err, ATTN_ENOMEM, "needs %lld bytes beside its tensors: not attempted",
                         (long long)e->priced_bytes);
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
    const struct attn_bench_product *x = &e->product;
    if (x->m > 0) {
        attn_blas_product(&bench->blas, x->transposed, x->m, x->n, x->k, bench->matrix,
                          bench->matrix + bench->matrix_room,
                          bench->matrix + 2 * bench->matrix_room);
        return ATTN_OK;
    }
    if (pass == ATTN_FORWARD) {
        struct attn_forward t = attn_setup_forward(e->setup);
        attn_saved_drop(&e->saved, &e->ledger); /* of the call before */
        return attn_run_forward(e->parsed.impl, &ctx, &e->setup->problem, &t);
    }
    struct attn_backward t = attn_setup_backward(e->setup);
    return attn_run_backward(e->parsed.impl, &ctx, &e->setup->problem, &t);
}

static void verify(struct attn_bench_entry *e)
{
    enum { ROWS = 16, ALL = 512 };
    int64_t row[ROWS], key[ROWS], n_query = e->c.n_query, n_key = e->c.n_key;
    struct attn_sample sample = {-1, -1, row, key};
    struct attn_precision precision;
    struct attn_result result;
    strcpy(e->verified, "all");
    if (n_query > ALL || n_key > ALL) {
        snprintf(e->verified, sizeof e->verified, "%d rows", ROWS);
        sample.n_rows = n_query < ROWS ? n_query : ROWS;
        sample.n_keys = n_key < ROWS ? n_key : ROWS;
        for (int64_t r = 0; r < ROWS; r++) { /* evenly spread, first and last among them */
            row[r] = sample.n_rows > 1 ? r * (n_query - 1) / (sample.n_rows - 1) : 0;
            key[r] = sample.n_keys > 1 ? r * (n_key - 1) / (sample.n_keys - 1) : 0;
        }
    }
    memset(&result, 0, sizeof result);
    attn_precision_of(e->parsed.impl, &e->parsed.options, &e->setup->problem, &precision);
    attn_judge(e->setup, &precision, &sample, e->c.pass, &result);
    e->worst = result.worst;
    if (result.verdict == ATTN_PASS || result.verdict == ATTN_WEAK)
        return;
    e->state = result.verdict == ATTN_FAILED ? ATTN_BENCH_WRONG : ATTN_BENCH_FAILED;
    snprintf(e->message, sizeof e->message, "%s", result.text);
}

/* The first call (backward: after a forward), and the second, whose time decides how many make a
 * sample. */
static enum attn_status first_calls(const struct attn_bench *bench, struct attn_bench_entry *e,
                                    struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    start_memory(e);
    if (e->product.m == 0 && e->c.pass == ATTN_BACKWARD) {
        status = call(bench, e, ATTN_FORWARD, err);
        attn_ledger_restart(&e->ledger);
    }
    if (status == ATTN_OK)
        status = call(bench, e, e->c.pass, err);
    e->ledger_bytes = atomic_load(&e->ledger.peak);
    double start = attn_seconds(CLOCK_MONOTONIC);
    if (status == ATTN_OK)
        status = call(bench, e, e->c.pass, err);
    double seconds = attn_seconds(CLOCK_MONOTONIC) - start;
    e->calls = seconds < bench->sample_s ? (int64_t)ceil(bench->sample_s / fmax(seconds, 1e-7)) : 1;
    return status;
}

static void begin(const struct attn_bench *bench, struct attn_bench_entry *e)
{
    struct attn_error err = {ATTN_OK, ""};
    struct attn_bench_ceiling ceiling;
    if (e->product.m > 0 && bench->blas.set_threads != NULL)
        bench->blas.set_threads(e->threads);
    enum attn_status status = e->product.m > 0 ? ATTN_OK : model(bench, e, &err);
    attn_bench_ceiling(bench, e, &ceiling);
    e->pair_read |= e->product.m == 0 && strcmp(ceiling.binds, "memory") == 0;
    if (status == ATTN_OK)
        status = first_calls(bench, e, &err);
    if (status != ATTN_OK) {
        refuse(e, &err);
        return;
    }
    e->state = ATTN_BENCH_TIMED;
    if (bench->verify && e->product.m == 0)
        verify(e);
}

/* ---- one sample --------------------------------------------------------------------------- */

/* Threads of OpenMP and of a BLAS go on spinning for some milliseconds after their work. */
static void settle(int threads)
{
    const struct timespec pause = {0, 10 * 1000 * 1000};
    if (threads > 1)
        nanosleep(&pause, NULL);
}

static void take_sample(struct attn_bench *bench, struct attn_bench_entry *e)
{
    static const double PEAK_S = 0.002, READ_S = 0.03;
    struct attn_error err = {ATTN_OK, ""};
    enum attn_status status = ATTN_OK;
    if (e->state != ATTN_BENCH_TIMED || e->n == ATTN_BENCH_ROUNDS)
        return;
    if (e->product.m > 0 && bench->blas.set_threads != NULL)
        bench->blas.set_threads(e->threads);
    double peak = attn_roof_sample(&bench->roofs, e->kernels, ATTN_ROOF_FMA, e->threads, PEAK_S);
    double start = attn_seconds(CLOCK_MONOTONIC);
    for (int64_t t = 0; t < e->calls && status == ATTN_OK; t++)
        status = call(bench, e, e->c.pass, &err);
    double seconds = attn_seconds(CLOCK_MONOTONIC) - start;
    if (status != ATTN_OK) {
        refuse(e, &err);
        return;
    }
    settle(e->threads);
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
    if (e->setup != NULL || price(e, &err) != ATTN_OK)
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
