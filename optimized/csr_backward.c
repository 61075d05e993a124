/* The backward pass of csr: a chunk of keys meets all queries, row by row, and dQ, dK and dV grow
 * together (simd/rows_backward_tmpl.h).
 *
 * Work      a unit is a chunk of keys of one (batch, kv head).  It meets the queries of the group,
 *           a block of them at a time.
 * Order     dK and dV of a chunk belong to one unit.  dQ of a block grows from chunk to chunk, so
 *           units follow each other through the blocks (ordered_sum.h); from the last to the first,
 *           because under a causal mask a later chunk then has done its part before the one it
 *           follows.
 * Memory    beside the pattern: dQ, LSE and D of every query, and how far its row has been read,
 *           as often as there are kv heads in work at a time ("slots"); and a thread's workspace,
 *           in which K, V, dK and dV of its chunk lie.  Nothing is stored for a pair of a head.
 */
#include <omp.h>
#include <string.h>

#include "optimized/csr_plan.h"
#include "optimized/integers.h"
#include "optimized/ordered_sum.h"
#include "optimized/tiled_backward.h"
#include "ref/clock.h"
#include "ref/impl.h"
#include "ref/problem.h"

/* ---- the plan ------------------------------------------------------------------------------ */

/* Of a second-level cache of 1 MiB: as much for K, V, dK and dV of a chunk; but a row should have
 * so many pairs in a chunk, on average, for meeting it to be worth the overhead.  Fewer than
 * FEW_HEADS leave nothing to deal out but chunks: then there are at least LEAST_CHUNKS, if a row
 * still has LEAST_PAIRS in each. */
enum { CHUNK_BYTES = 640 * 1024, WORTH_PAIRS = 48 };
enum { FEW_HEADS = 4, LEAST_CHUNKS = 4, LEAST_PAIRS = 10 };
enum { BLOCK = 64 }; /* queries */

struct plan {
    struct attn_csr_plan of; /* what both passes need */
    int threads;
    int64_t heads, group;  /* batch * kv heads; query heads of each */
    int64_t chunk, chunks; /* keys in a chunk, chunks               */
    int64_t blocks;        /* of queries in a head                  */
    int64_t slots;         /* kv heads that can be in work          */
    int64_t ws;            /* numbers                               */
};

/* a_row: pairs in a row, on average. */
static int64_t count_chunks(const struct attn_problem *p, const struct attn_options *opt,
                            const struct plan *x, int64_t a_row)
{
    int64_t wide = x->of.wide + x->of.wide_v, n = p->n_key;
    if (opt->value[ATTN_CSR_CHUNK] > 0)
        return greater(ceil_div(n, opt->value[ATTN_CSR_CHUNK]), 1);
    int64_t fit = CHUNK_BYTES / (2 * greater(wide, 1) * x->of.kernels->bytes);
    int64_t chunks = less(ceil_div(n, fit), a_row / WORTH_PAIRS);
    if (x->heads < FEW_HEADS)
        chunks = greater(chunks, less(LEAST_CHUNKS, a_row / LEAST_PAIRS));
    return greater(chunks, 1);
}

/* nnz pairs are stored for all patterns together. */
static enum attn_status make_plan(const struct attn_problem *p, const struct attn_options *opt,
                                  int64_t nnz, int64_t patterns, struct plan *x,
                                  struct attn_error *err)
{
    memset(x, 0, sizeof *x);
    enum attn_status status = attn_csr_plan_make(p, opt, &x->of, err);
    if (status != ATTN_OK)
        return status;
    x->heads = p->batch * p->kv_heads;
    x->group = p->kv_heads > 0 ? p->heads / p->kv_heads : 0;
    int64_t a_row = nnz / greater(patterns * p->n_query, 1);
    x->chunk = greater(ceil_div(p->n_key, count_chunks(p, opt, x, a_row)), 1);
    x->chunks = greater(ceil_div(p->n_key, x->chunk), 1);
    x->blocks = ceil_div(p->n_query, BLOCK);
    x->threads = (int)greater(less(opt->threads, x->heads * x->chunks), 1);
    x->slots = less(1 + ceil_div(x->threads - 1, x->chunks), x->heads);
    x->ws = x->of.kernels->row_backward_workspace(less(x->chunk, p->n_key), p->d_key, p->d_value);
    x->ws = ceil_div(x->ws, 16) * 16;
    return ATTN_OK;
}

/* ---- memory -------------------------------------------------------------------------------- */

struct memory {
    struct attn_csr csr;
    void *lse, *delta, *dq; /* [slots][group][Lq] */
    int32_t *done;
    void *ws;                /* [threads]       */
    _Atomic int32_t *passed; /* [heads][chunks] */
};

static enum attn_status take(struct attn_ctx *ctx, const struct attn_problem *p,
                             const struct plan *x, struct memory *m)
{
    int64_t bytes = x->of.kernels->bytes, rows = x->slots * x->group * p->n_query;
    int64_t units = x->heads * x->chunks;
    struct {
        const char *name;
        int64_t count, size;
        void **data;
    } list[] = {{"lse", rows, bytes, &m->lse},
                {"delta", rows, bytes, &m->delta},
                {"dq", attn_product(rows, x->of.wide), bytes, &m->dq},
                {"csr.done", rows, 4, (void **)&m->done},
                {"workspace", attn_product(x->threads, x->ws), bytes, &m->ws},
                {"ordered.sum", units, 4, (void **)&m->passed}};
    for (size_t n = 0; n < sizeof list / sizeof *list; n++) {
        *list[n].data =
            attn_ledger_take(ctx->ledger, list[n].name, list[n].count, list[n].size, ctx->error);
        if (*list[n].data == NULL)
            return ATTN_ENOMEM;
    }
    for (int64_t n = 0; n < units; n++)
        atomic_init(&m->passed[n], 0);
    return ATTN_OK;
}

static void give(struct attn_ctx *ctx, struct memory *m)
{
    void *list[] = {(void *)m->passed, m->ws, m->done, m->dq, m->delta, m->lse};
    for (size_t n = 0; n < sizeof list / sizeof *list; n++)
        attn_ledger_give(ctx->ledger, list[n]);
    attn_csr_free(&m->csr, ctx->ledger);
}

/* A thread's workspace, written out: w and wv whole vectors. */
static int64_t workspace_numbers(const struct attn_problem *p, const struct plan *x)
{
    int64_t w = x->of.wide, wv = x->of.wide_v, keys = less(x->chunk, p->n_key);
#define WHOLE(numbers) (((numbers) + 15) / 16 * 16)
    return WHOLE(WHOLE(attn_product(keys, 2 * (w + wv))) + 3 * (ATTN_BACK_STEP + 16) + WHOLE(w) +
                 2 * WHOLE(wv));
#undef WHOLE
}

enum attn_status attn_csr_cost_backward(const struct attn_problem *p,
                                        const struct attn_options *opt, struct attn_cost *cost,
                                        struct attn_error *err)
{
    struct plan x;
    int64_t pairs = 0, nnz = 0, patterns = p->batch > 0 && p->heads > 0;
    enum attn_status status = attn_csr_cost(p, cost, &nnz, &pairs, err);
    if (attn_mask_varies_by_batch(p->mask))
        patterns *= p->batch;
    if (attn_mask_varies_by_head(p->mask))
        patterns *= p->heads;
    if (status == ATTN_OK)
        status = make_plan(p, opt, nnz, patterns, &x, err);
    if (status != ATTN_OK)
        return status;
    int64_t bytes = x.of.kernels->bytes, rows = x.slots * x.group * p->n_query;
    const struct {
        const char *name;
        int64_t count, size;
    } live[] = {
        {"lse", rows, bytes},
        {"delta", rows, bytes},
        {"dq", attn_product(rows, x.of.wide), bytes},
        {"csr.done", rows, 4},
        {"workspace", attn_product(x.threads, workspace_numbers(p, &x)), bytes},
        {"ordered.sum", x.heads * x.chunks, 4},
    };
    for (size_t n = 0; n < sizeof live / sizeof *live && status == ATTN_OK; n++)
        status = attn_cost_add(cost, live[n].name, live[n].count, live[n].size, err);
    cost->flops = 2 * (double)pairs * (double)(3 * p->d_key + 2 * p->d_value);
    return status;
}

/* ---- the pass ------------------------------------------------------------------------------ */

struct work {
    const struct attn_problem *p;
    const struct attn_backward *t;
    const struct plan *plan;
    const struct memory *memory;
    _Atomic int64_t next; /* unit that nobody has yet */
};

/* Aim a job at step s of its kv head, number `kv`: one block of queries of one of its heads. */
static void aim(const struct work *w, int64_t kv, int64_t s, struct attn_row_backward *job)
{
    const struct plan *x = w->plan;
    const struct memory *m = w->memory;
    int64_t n = s / x->blocks, block = x->blocks - 1 - s % x->blocks, bytes = x->of.kernels->bytes;
    int64_t at = (kv % x->slots * x->group + n) * w->p->n_query;
    job->h = job->g * x->group + n;
    job->i0 = block * BLOCK;
    job->i1 = less(job->i0 + BLOCK, w->p->n_query);
    job->lse = (char *)m->lse + at * bytes;
    job->delta = (char *)m->delta + at * bytes;
    job->dq = (char *)m->dq + at * x->of.wide * bytes;
    job->done = m->done + at;
}

static void run_unit(const struct work *w, int64_t unit, void *ws)
{
    const struct attn_problem *p = w->p;
    const struct plan *x = w->plan;
    const struct attn_kernels *kernels = x->of.kernels;
    _Atomic int32_t *passed = w->memory->passed + unit;
    int64_t kv = unit / x->chunks, chunk = unit % x->chunks, steps = x->group * x->blocks;
    struct attn_row_backward job = {.p = p, .t = w->t, .csr = &w->memory->csr, .ws = ws};
    job.b = kv / p->kv_heads, job.g = kv % p->kv_heads;
    job.j0 = less(chunk * x->chunk, p->n_key), job.j1 = less(job.j0 + x->chunk, p->n_key);
    if (chunk == 0 && kv >= x->slots) /* the slot's last user must have left it */
        attn_ordered_sum_wait(passed - (x->slots - 1) * x->chunks - 1, steps);
    kernels->row_backward_begin(&job);
    for (int64_t s = 0; s < steps; s++) {
        aim(w, kv, s, &job);
        if (chunk > 0)
            attn_ordered_sum_wait(passed - 1, s + 1);
        else
            kernels->row_backward_start(&job);
        kernels->row_backward_step(&job);
        if (chunk == x->chunks - 1)
            kernels->row_backward_finish(&job);
        attn_ordered_sum_pass(passed, s + 1);
    }
    kernels->row_backward_end(&job);
}

static void run_thread(struct work *w, int thread)
{
    const struct plan *x = w->plan;
    char *ws = (char *)w->memory->ws + thread * x->ws * x->of.kernels->bytes;
    int64_t unit;
    while ((unit = atomic_fetch_add(&w->next, 1)) < x->heads * x->chunks)
        run_unit(w, unit, ws);
}

/* A dbias that is shared is summed in the order of units, by one thread. */
enum attn_status attn_csr_backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                   const struct attn_backward *t)
{
    struct plan plan;
    struct memory memory = {0};
    struct work work = {.p = p, .t = t, .plan = &plan, .memory = &memory};
    double start = attn_seconds(CLOCK_MONOTONIC);
    if (ctx->ranks != NULL)
        ctx->ranks[0].n_steps = 0;
    enum attn_status status = attn_csr_build(p, ctx->ledger, &memory.csr, ctx->error);
    if (status == ATTN_OK)
        status = make_plan(p, ctx->options, memory.csr.nnz, memory.csr.patterns, &plan, ctx->error);
    if (status == ATTN_OK)
        status = take(ctx, p, &plan, &memory);
    if (status == ATTN_OK) {
        int threads = attn_dbias_is_shared(p, &t->dbias) ? 1 : plan.threads;
        attn_csr_step_add(ctx, "pattern", attn_seconds(CLOCK_MONOTONIC) - start);
        start = attn_seconds(CLOCK_MONOTONIC);
        attn_dbias_clear(p, &t->dbias);
#pragma omp parallel num_threads(threads) if (threads > 1)
        run_thread(&work, omp_get_thread_num());
        attn_csr_step_add(ctx, "attention", attn_seconds(CLOCK_MONOTONIC) - start);
    }
    give(ctx, &memory);
    return status;
}
