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
#include "optimized/tiled.h"
#include "ref/clock.h"
#include "ref/impl.h"
#include "ref/problem.h"

/* ---- the plan ------------------------------------------------------------------------------ */

/* CHUNK_BYTES: the part of a second-level cache of 1 MiB that K, V, dK and dV of a chunk may fill.
 * A row should have WORTH_PAIRS pairs in a chunk, on average, for meeting it to be worth the
 * overhead.  Fewer than FEW_HEADS leave nothing to deal out but chunks: then there are at least
 * LEAST_CHUNKS, if a row still has LEAST_PAIRS in each. */
enum { CHUNK_BYTES = 640 * 1024, WORTH_PAIRS = 48 };
enum { FEW_HEADS = 4, LEAST_CHUNKS = 4, LEAST_PAIRS = 10 };
enum { BLOCK = 64 }; /* queries */

struct plan {
    struct attn_csr_plan of; /* the part of both passes */
    int threads;
    int64_t heads, group;  /* batch * kv heads; query heads of each */
    int64_t chunk, chunks; /* keys in a chunk, chunks               */
    int64_t blocks;        /* of queries in a head                  */
    int64_t slots;         /* kv heads that can be in work          */
};

/* a_row: pairs in a row, on average. */
static int64_t count_chunks(const struct attn_problem *p, const struct attn_options *opt,
                            const struct plan *x, int64_t a_row)
{
    int64_t wide = x->of.wide + x->of.wide_v, n = p->n_key;
    if (opt->value[ATTN_CSR_CHUNK] > 0)
        return at_least_1(ceil_div(n, opt->value[ATTN_CSR_CHUNK]));
    int64_t fit = CHUNK_BYTES / (2 * at_least_1(wide) * x->of.kernels->bytes);
    int64_t chunks = less(ceil_div(n, fit), a_row / WORTH_PAIRS);
    if (x->heads < FEW_HEADS)
        chunks = greater(chunks, less(LEAST_CHUNKS, a_row / LEAST_PAIRS));
    return at_least_1(chunks);
}

static enum attn_status make_plan(const struct attn_problem *p, const struct attn_options *opt,
                                  const struct attn_csr *csr, struct plan *x,
                                  struct attn_error *err)
{
    memset(x, 0, sizeof *x);
    enum attn_status status = attn_csr_plan_make(p, opt, &x->of, err);
    if (status != ATTN_OK)
        return status;
    x->heads = p->batch * p->kv_heads;
    x->group = p->kv_heads > 0 ? p->heads / p->kv_heads : 0;
    int64_t a_row = csr->nnz / at_least_1(csr->patterns * p->n_query);
    x->chunk = at_least_1(ceil_div(p->n_key, count_chunks(p, opt, x, a_row)));
    x->chunks = at_least_1(ceil_div(p->n_key, x->chunk));
    x->blocks = ceil_div(p->n_query, BLOCK);
    x->threads = (int)at_least_1(less(opt->threads, x->heads * x->chunks));
    x->slots = less(1 + ceil_div(x->threads - 1, x->chunks), x->heads);
    return ATTN_OK;
}

/* ---- memory -------------------------------------------------------------------------------- */

enum { LSE, DELTA, DQ, READ, WORKSPACE, ORDER, BUFFERS };
struct memory {
    struct attn_csr csr;
    struct attn_buffer
        buffer[BUFFERS]; /* LSE to READ: [slots][group][Lq]; ORDER: [heads][chunks] */
};

static void lay_out(const struct attn_problem *p, const struct plan *x, struct memory *m)
{
    const struct attn_kernels *kernels = x->of.kernels;
    int64_t e = kernels->bytes, rows = x->slots * x->group * p->n_query;
    int64_t ws = attn_row_backward_numbers(kernels, p, less(x->chunk, p->n_key));
    const struct attn_buffer list[BUFFERS] = {
        [LSE] = attn_buffer_of("lse", rows, 1, e),
        [DELTA] = attn_buffer_of("delta", rows, 1, e),
        [DQ] = attn_buffer_of("dq", rows, x->of.wide, e),
        [READ] = attn_buffer_of("csr.done", rows, 1, 4),
        [WORKSPACE] = attn_buffer_of("workspace", x->threads, ws, e),
        [ORDER] = attn_buffer_of("ordered.sum", x->heads, x->chunks, 4)};
    memcpy(m->buffer, list, sizeof list);
}

enum attn_status attn_csr_cost_backward(const struct attn_problem *p,
                                        const struct attn_options *opt, struct attn_cost *cost,
                                        struct attn_error *err)
{
    struct plan x;
    struct memory memory;
    enum attn_status status = attn_csr_cost(p, cost, &memory.csr, err);
    if (status == ATTN_OK)
        status = make_plan(p, opt, &memory.csr, &x, err);
    if (status != ATTN_OK)
        return status;
    lay_out(p, &x, &memory);
    cost->pairs = (double)attn_csr_pairs(p, &memory.csr);
    cost->flops = 2 * cost->pairs * (double)(3 * p->d_key + 2 * p->d_value);
    return attn_buffers_price(memory.buffer, BUFFERS, cost, err);
}

/* ---- the pass ------------------------------------------------------------------------------ */

struct work {
    const struct attn_problem *p;
    const struct attn_backward *t;
    const struct plan *plan;
    const struct memory *memory;
    _Atomic int64_t next; /* unit that no thread has yet */
};

/* Aim a job at step s of its kv head, number `kv`: one block of queries of one of its heads. */
static void aim(const struct work *w, int64_t kv, int64_t s, struct attn_row_backward *job)
{
    const struct plan *x = w->plan;
    const struct attn_buffer *buffer = w->memory->buffer;
    int64_t n = s / x->blocks, block = x->blocks - 1 - s % x->blocks;
    int64_t at = (kv % x->slots * x->group + n) * w->p->n_query;
    job->h = job->g * x->group + n;
    job->i0 = block * BLOCK;
    job->i1 = less(job->i0 + BLOCK, w->p->n_query);
    job->lse = attn_buffer_at(&buffer[LSE], at);
    job->delta = attn_buffer_at(&buffer[DELTA], at);
    job->dq = attn_buffer_at(&buffer[DQ], at);
    job->done = attn_buffer_at(&buffer[READ], at);
}

static void run_unit(const struct work *w, int64_t unit, void *ws)
{
    const struct attn_problem *p = w->p;
    const struct plan *x = w->plan;
    const struct attn_kernels *kernels = x->of.kernels;
    _Atomic int32_t *passed = (_Atomic int32_t *)(void *)w->memory->buffer[ORDER].data + unit;
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
    void *ws = attn_buffer_at(&w->memory->buffer[WORKSPACE], thread);
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
        status = make_plan(p, ctx->options, &memory.csr, &plan, ctx->error);
    if (status == ATTN_OK) {
        lay_out(p, &plan, &memory);
        status = attn_buffers_take(memory.buffer, BUFFERS, ctx->ledger, ctx->error);
    }
    if (status == ATTN_OK) {
        attn_ordered_sum_begin((void *)memory.buffer[ORDER].data, plan.heads * plan.chunks);
        int threads = attn_dbias_is_shared(p, &t->dbias) ? 1 : plan.threads;
        attn_csr_step_add(ctx, "pattern", attn_seconds(CLOCK_MONOTONIC) - start);
        start = attn_seconds(CLOCK_MONOTONIC);
        attn_dbias_clear(p, &t->dbias);
#pragma omp parallel num_threads(threads) if (threads > 1)
        run_thread(&work, omp_get_thread_num());
        attn_csr_step_add(ctx, "attention", attn_seconds(CLOCK_MONOTONIC) - start);
    }
    attn_buffers_give(memory.buffer, BUFFERS, ctx->ledger);
    attn_csr_free(&memory.csr, ctx->ledger);
    return status;
}
