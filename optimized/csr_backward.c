/* The backward pass of csr: rows give dQ, columns give dK and dV; each makes P and dS for itself
 * (simd/rows_backward_tmpl.h).
 *
 * Memory  beside the pattern, its transpose (8 bytes a key, 4 a stored pair, 4 a query and thread
 *         to make it), LSE and D of every query, and a thread's room.  Nothing is stored for a pair
 *         of a head.
 */
#include <omp.h>
#include <string.h>

#include "optimized/csr_plan.h"
#include "ref/ledger.h"
#include "ref/problem.h"
#include "ref/textbook.h"

/* ---- the transposed pattern ---------------------------------------------------------------- */

/* Rows become columns, pattern by pattern, in time O(nnz): count, add up, fill (Gustavson 1978;
 * CSparse, cs_transpose).  Queries stay in increasing order.
 *
 * Neighbours of a row are written far apart, so keys are met in bands whose ends stay in the
 * cache, and whose pages the machine can address; what a row has in a band should be worth the
 * detour.  Threads have keys of their own. */
enum { BAND = 512, BAND_PAIRS = 16 };

struct turn {
    const struct attn_csr *csr;
    struct attn_csr *t;
    int64_t n_key, band, pattern;
};

/* Keys [j0,j1) of the pattern: count their queries, or write them down.  done[n_query]: pairs of a
 * row that are behind us. */
static void turn_keys(const struct turn *x, int64_t j0, int64_t j1, int32_t *done, int fill)
{
    const int64_t *row = x->csr->row_start + x->pattern * x->csr->n_query;
    const int32_t *column = x->csr->column;
    int64_t n = x->csr->n_query, *end = x->t->row_start + 1 + x->pattern * x->n_key;
    for (int64_t i = 0; i < n; i++)
        done[i] = j0 == 0 ? 0 : (int32_t)attn_csr_below(column + row[i], row[i + 1] - row[i], j0);
    int64_t band = fill ? x->band : x->n_key;
    for (int64_t lo = j0, hi; lo < j1; lo = hi) {
        hi = lo + band < j1 ? lo + band : j1;
        for (int64_t i = 0; i < n; i++) {
            int64_t e = row[i] + done[i], last = row[i + 1];
            if (i + 8 < n)
                __builtin_prefetch(column + row[i + 8] + done[i + 8]);
            if (fill)
                for (; e < last && column[e] < hi; e++)
                    x->t->column[end[column[e]]++] = (int32_t)i;
            else
                for (; e < last && column[e] < hi; e++)
                    end[column[e]]++;
            done[i] = (int32_t)(e - row[i]);
        }
    }
}

/* All patterns; done[threads][n_query]. */
static void turn_all(struct turn *x, int threads, int32_t *done, int fill)
{
    for (x->pattern = 0; x->pattern < x->csr->patterns; x->pattern++) {
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
        for (int n = 0; n < threads; n++)
            turn_keys(x, x->n_key * n / threads, x->n_key * (n + 1) / threads,
                      done + n * x->csr->n_query, fill);
    }
}

static void transpose(const struct attn_csr *csr, int64_t n_key, int threads, int32_t *done,
                      struct attn_csr *t)
{
    int64_t *end = t->row_start + 1; /* while filling: where the next query of key j goes */
    int64_t rows = csr->patterns * csr->n_query, a_row = rows > 0 ? csr->nnz / rows + 1 : 1;
    int64_t worth = n_key * BAND_PAIRS / a_row, band = worth > BAND ? worth : BAND;
    struct turn x = {.csr = csr, .t = t, .n_key = n_key, .band = band};
    memset(t->row_start, 0, (size_t)(csr->patterns * n_key + 1) * sizeof *t->row_start);
    turn_all(&x, threads, done, 0);
    for (int64_t n = 0, before = 0; n < csr->patterns * n_key; n++) {
        int64_t count = end[n];
        end[n] = before;
        before += count;
    }
    turn_all(&x, threads, done, 1);
}

/* ---- memory -------------------------------------------------------------------------------- */

struct memory {
    struct attn_csr csr, turned; /* turned: its rows are keys, its columns queries */
    int32_t *done;               /* see transpose */
    void *lse, *delta, *k, *v, *q, *d_o, *room;
};

static enum attn_status take_turned(struct attn_ctx *ctx, const struct attn_problem *p,
                                    const struct attn_csr_plan *plan, struct memory *x)
{
    x->turned = x->csr;
    x->turned.n_query = p->n_key;
    x->turned.borrowed = 0;
    x->turned.row_start =
        attn_ledger_take(ctx->ledger, "csr.t_start", x->csr.patterns * p->n_key + 1, 8, ctx->error);
    x->turned.column = x->turned.row_start == NULL
                           ? NULL
                           : attn_ledger_take(ctx->ledger, "csr.t_row", x->csr.nnz, 4, ctx->error);
    x->done = x->turned.column == NULL
                  ? NULL
                  : attn_ledger_take(ctx->ledger, "csr.t_done", plan->threads * p->n_query, 4,
                                     ctx->error);
    return x->done != NULL ? ATTN_OK : ATTN_ENOMEM;
}

static enum attn_status take(struct attn_ctx *ctx, const struct attn_problem *p,
                             const struct attn_csr_plan *plan, struct memory *x)
{
    int64_t rows = p->batch * p->heads * p->n_query, bytes = plan->kernels->bytes;
    int64_t of_group = p->kv_heads > 0 ? p->heads / p->kv_heads * p->n_query : 0;
    enum attn_status status = attn_csr_build(p, ctx->ledger, &x->csr, ctx->error);
    if (status == ATTN_OK)
        status = take_turned(ctx, p, plan, x);
    if (status != ATTN_OK)
        return status;
    struct {
        const char *name;
        int64_t count;
        void **data;
    } list[] = {{"lse", rows, &x->lse},
                {"delta", rows, &x->delta},
                {"k.rows", plan->copies ? p->n_key * plan->wide : 0, &x->k},
                {"v.rows", plan->copies ? p->n_key * plan->wide_v : 0, &x->v},
                {"q.rows", plan->copies ? of_group * plan->wide : 0, &x->q},
                {"do.rows", plan->copies ? of_group * plan->wide_v : 0, &x->d_o},
                {"room", plan->threads * attn_csr_room_backward(p, plan), &x->room}};
    for (size_t n = 0; n < sizeof list / sizeof *list; n++) {
        *list[n].data =
            attn_ledger_take(ctx->ledger, list[n].name, list[n].count, bytes, ctx->error);
        if (*list[n].data == NULL)
            return ATTN_ENOMEM;
    }
    return ATTN_OK;
}

static void give(struct attn_ctx *ctx, struct memory *x)
{
    void *list[] = {x->room, x->d_o, x->q, x->v, x->k, x->delta, x->lse, x->done};
    for (size_t n = 0; n < sizeof list / sizeof *list; n++)
        attn_ledger_give(ctx->ledger, list[n]);
    if (x->turned.row_start != x->csr.row_start) /* equal as long as it was not taken */
        attn_csr_free(&x->turned, ctx->ledger);
    attn_csr_free(&x->csr, ctx->ledger);
}

/* A thread's room, written out: R rows in a unit, w and wv whole vectors. */
static int64_t room_numbers(const struct attn_csr_plan *x)
{
    int64_t R = x->most, w = x->wide, wv = x->wide_v, lanes = x->kernels->lanes;
#define WHOLE(numbers) (((numbers) + 15) / 16 * 16)
    return WHOLE(5 * ATTN_ROW_KEYS + 2 * WHOLE(R * w) + 2 * WHOLE(R * wv) + WHOLE(R) +
                 (lanes > 8 ? lanes : 8) * (w > wv ? w : wv));
#undef WHOLE
}

enum attn_status attn_csr_cost_backward(const struct attn_problem *p,
                                        const struct attn_options *opt, struct attn_cost *cost,
                                        struct attn_error *err)
{
    struct attn_csr_plan x;
    int64_t pairs = 0, nnz = 0, patterns = p->batch > 0 && p->heads > 0;
    enum attn_status status = attn_csr_plan_make(p, opt, ATTN_BACKWARD, &x, err);
    if (status == ATTN_OK)
        status = attn_csr_cost(p, cost, &nnz, &pairs, err);
    if (status != ATTN_OK)
        return status;
    if (attn_mask_varies_by_batch(p->mask))
        patterns *= p->batch;
    if (attn_mask_varies_by_head(p->mask))
        patterns *= p->heads;
    int64_t bytes = x.kernels->bytes, rows = p->batch * p->heads * p->n_query;
    int64_t of_group = p->kv_heads > 0 ? p->heads / p->kv_heads * p->n_query : 0;
    const struct {
        const char *name;
        int64_t count, size;
    } live[] = {
        {"csr.t_start", attn_product(patterns, p->n_key) + 1, 8},
        {"csr.t_row", nnz, 4},
        {"csr.t_done", x.threads * p->n_query, 4},
        {"lse", rows, bytes},
        {"delta", rows, bytes},
        {"k.rows", x.copies ? attn_product(p->n_key, x.wide) : 0, bytes},
        {"v.rows", x.copies ? attn_product(p->n_key, x.wide_v) : 0, bytes},
        {"q.rows", x.copies ? attn_product(of_group, x.wide) : 0, bytes},
        {"do.rows", x.copies ? attn_product(of_group, x.wide_v) : 0, bytes},
        {"room", x.threads * room_numbers(&x), bytes},
    };
    for (size_t n = 0; n < sizeof live / sizeof *live && status == ATTN_OK; n++)
        status = attn_cost_add(cost, live[n].name, live[n].count, live[n].size, err);
    cost->flops = 2 * (double)pairs * (double)(3 * p->d_key + 2 * p->d_value);
    return status;
}

/* ---- the pass ------------------------------------------------------------------------------ */

struct call {
    const struct attn_problem *p;
    const struct attn_backward *t;
    const struct attn_csr_plan *plan;
    const struct memory *memory;
    int64_t chunk; /* of keys for rows, of queries for columns */
};

static struct attn_row_backward job_of(const struct call *x, int64_t b, int64_t h, int64_t start,
                                       int64_t end, int turned)
{
    const struct memory *memory = x->memory;
    struct attn_row_backward job = {
        .p = x->p, .t = x->t, .b = b, .h = h, .start = start, .end = end};
    job.csr = turned ? &memory->turned : &memory->csr;
    job.chunk = x->chunk;
    job.lse = memory->lse, job.delta = memory->delta;
    if (x->plan->copies) {
        job.far[0] = turned ? memory->q : memory->k;
        job.far[1] = turned ? memory->d_o : memory->v;
    }
    job.room = (char *)memory->room + omp_get_thread_num() * attn_csr_room_backward(x->p, x->plan) *
                                          x->plan->kernels->bytes;
    return job;
}

/* dQ of query heads [bh0,bh1).  With a gradient of the bias, one thread does a block of queries of
 * all heads, because heads may share it; and all queries where they share it. */
static void run_rows(const struct call *x, int64_t bh0, int64_t bh1)
{
    const struct attn_problem *p = x->p;
    int has_dbias = x->t->dbias.data != NULL;
    int threads = has_dbias && x->t->dbias.stride[2] == 0 ? 1 : x->plan->threads;
    int64_t block = threads == 1 ? x->plan->most : x->plan->block;
    int64_t blocks = (p->n_query + block - 1) / block, together = has_dbias ? bh1 - bh0 : 1;
    int64_t units = blocks * (bh1 - bh0) / (together > 0 ? together : 1);
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1) if (threads > 1)
    for (int64_t n = 0; n < units; n++) {
        int64_t first = bh0 + n / blocks * together, start = (blocks - 1 - n % blocks) * block;
        if (has_dbias)
            start = n % blocks * block; /* sums over queries in their order */
        int64_t end = start + block < p->n_query ? start + block : p->n_query;
        for (int64_t bh = first; bh < first + together; bh++) {
            struct attn_row_backward job = job_of(x, bh / p->heads, bh % p->heads, start, end, 0);
            x->plan->kernels->row_backward(&job);
        }
    }
}

/* dK and dV of kv heads [kv0,kv1). */
static void run_columns(const struct call *x, int64_t kv0, int64_t kv1)
{
    const struct attn_problem *p = x->p;
    int64_t block = x->plan->block, blocks = (p->n_key + block - 1) / block;
    int threads = x->plan->threads;
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1) if (threads > 1)
    for (int64_t n = 0; n < blocks * (kv1 - kv0); n++) {
        int64_t kv = kv0 + n / blocks, start = n % blocks * block;
        int64_t end = start + block < p->n_key ? start + block : p->n_key;
        struct attn_row_backward job = job_of(x, kv / p->kv_heads, kv % p->kv_heads, start, end, 1);
        x->plan->kernels->column_backward(&job);
    }
}

static void copy_rows(const struct call *x, int64_t kv)
{
    const struct attn_problem *p = x->p;
    const struct attn_csr_plan *plan = x->plan;
    const struct memory *m = x->memory;
    int64_t b = kv / p->kv_heads, g = kv % p->kv_heads, group = p->heads / p->kv_heads;
    int64_t bytes = plan->kernels->bytes;
    attn_csr_copy_rows(plan, &x->t->k, b, g, p->n_key, p->d_key, plan->wide, m->k);
    attn_csr_copy_rows(plan, &x->t->v, b, g, p->n_key, p->d_value, plan->wide_v, m->v);
    for (int64_t n = 0; n < group; n++) {
        attn_csr_copy_rows(plan, &x->t->q, b, g * group + n, p->n_query, p->d_key, plan->wide,
                           (char *)m->q + n * p->n_query * plan->wide * bytes);
        attn_csr_copy_rows(plan, &x->t->d_o, b, g * group + n, p->n_query, p->d_value, plan->wide_v,
                           (char *)m->d_o + n * p->n_query * plan->wide_v * bytes);
    }
}

static void run(struct attn_ctx *ctx, const struct call *x)
{
    const struct attn_problem *p = x->p;
    int64_t all = p->batch * p->kv_heads, group = all > 0 ? p->heads / p->kv_heads : 0;
    int64_t at_a_time = x->plan->copies ? 1 : all; /* one kv head's rows are copied at a time */
    for (int64_t kv = 0; kv < all; kv += at_a_time) {
        double start = attn_csr_now();
        if (x->plan->copies)
            copy_rows(x, kv);
        run_rows(x, kv * group, (kv + at_a_time) * group);
        attn_csr_step_add(ctx, "rows", attn_csr_now() - start);
        start = attn_csr_now();
        run_columns(x, kv, kv + at_a_time);
        attn_csr_step_add(ctx, "columns", attn_csr_now() - start);
    }
}

enum attn_status attn_csr_backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                   const struct attn_backward *t)
{
    struct attn_csr_plan plan;
    struct memory memory = {0};
    double start = attn_csr_now();
    if (ctx->ranks != NULL)
        ctx->ranks[0].n_steps = 0;
    enum attn_status status = attn_csr_plan_make(p, ctx->options, ATTN_BACKWARD, &plan, ctx->error);
    if (status == ATTN_OK)
        status = take(ctx, p, &plan, &memory);
    if (status == ATTN_OK) {
        int64_t rows = memory.csr.patterns * p->n_query;
        struct call x = {
            p, t, &plan, &memory,
            attn_csr_chunk(p, ctx->options, &plan, ATTN_BACKWARD, memory.csr.nnz, rows)};
        attn_csr_step_add(ctx, "pattern", attn_csr_now() - start);
        start = attn_csr_now();
        transpose(&memory.csr, p->n_key, plan.threads, memory.done, &memory.turned);
        attn_csr_step_add(ctx, "transpose", attn_csr_now() - start);
        attn_dbias_clear(p, &t->dbias);
        run(ctx, &x);
    }
    give(ctx, &memory);
    return status;
}
