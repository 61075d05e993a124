/* csr: attention over the visible pairs only, kept as compressed sparse rows, on the kernels of
 * optimized/simd.
 *
 * Forward   passes=1: fused, a query at a time over chunks of keys whose K and V stay in the cache,
 *           online softmax (simd/rows_forward_tmpl.h).  Panels of queries whose keys lie close
 *           together go to the tile kernel (csr_panels.c).
 *           passes=3: SDDMM, softmax, SpMM as separate steps over stored values, as libraries of
 *           sparse algebra offer them, each timed (attn_rank_use.step).
 * Backward  by recomputation, one walk over the pairs for all gradients (csr_backward.c).
 *
 * Memory    the pattern, unless the mask has it (mask/pattern.h); a thread's workspace, whatever L
 *           is; one kv head's K and V widened, where they are not rows of whole vectors of the
 *           arithmetic type; passes=3: a value for each visible pair of all heads.
 * Threads   chunks, panels and steps follow from problem and spec; threads only share blocks of
 *           queries out.  Same bits for any number of them.
 * Source    Gale et al. 2020 (Sputnik): SDDMM and SpMM; Milakov & Gimelshein 2018.
 * Caveats   Heads of one kv head do not share the loads of K and V.  A panel is dense or sparse as
 *           a whole: a band with scattered pairs beside it counts as sparse.
 */
#include <omp.h>
#include <string.h>

#include "optimized/csr_plan.h"
#include "optimized/integers.h"
#include "optimized/leak.h"
#include "ref/clock.h"
#include "ref/impl.h"
#include "ref/precision.h"
#include "ref/problem.h"

static const struct attn_option options[] = {
    {"passes", 0, 0, 1, "1 3", "over the stored pairs: fused, or SDDMM, softmax, SpMM"},
    {"chunk", 0, 0, 1 << 20, NULL, "keys that a block of queries meets at a time; 0: by the cache"},
    {0}};

static int is_fused(const struct attn_options *opt)
{
    return opt->value[ATTN_CSR_PASSES] == 0;
}

/* ---- memory -------------------------------------------------------------------------------- */

/* Of a second-level cache of 1 MiB: half for K, or V, which batches meet one after the other.
 * (Three quarters are as fast at best, and slower by a twentieth on a core that is shared.) */
enum { CHUNK_BYTES = 512 * 1024 };

/* Keys that a row should have in a chunk, on average, for a step to be worth its overhead. */
enum { KEYS_A_STEP = 160 };

/* Keys in a chunk: as many as the second-level cache holds, but more when a row would have too few
 * of them there.  nnz pairs are stored in `rows` rows. */
static int64_t chunk_of(const struct attn_problem *p, const struct attn_options *opt,
                        const struct attn_csr_plan *plan, int64_t nnz, int64_t rows)
{
    if (opt->value[ATTN_CSR_CHUNK] > 0)
        return opt->value[ATTN_CSR_CHUNK];
    int64_t a_row = rows > 0 ? at_least_1(nnz / rows) : 1;
    int64_t widest = at_least_1(greater(plan->wide, plan->wide_v));
    int64_t fit = CHUNK_BYTES / plan->kernels->bytes / widest;
    int64_t enough = p->n_key * KEYS_A_STEP / a_row, chunk = at_least_1(greater(fit, enough));
    return 4 * (chunk / 3) > p->n_key && chunk < p->n_key ? p->n_key : chunk; /* no short rest */
}

/* Numbers that a thread needs for one unit. */
static int64_t workspace_of(const struct attn_problem *p, const struct attn_csr_plan *plan)
{
    struct attn_buffer tile[ATTN_WORKSPACES];
    int64_t sum = 0, rows = attn_row_numbers(plan->kernels, p, plan->most);
    attn_forward_buffers(plan->kernels, p, 1, plan->panels, tile);
    for (int n = 0; n < ATTN_WORKSPACES; n++)
        sum += ceil_div(tile[n].numbers, 16) * 16;
    return greater(sum, rows);
}

enum { DENSE, SEEN, K_ROWS, V_ROWS, VALUES, WORKSPACE, BUFFERS };
struct memory {
    struct attn_csr csr;
    struct attn_buffer buffer[BUFFERS];
};

/* csr: of the problem; its arrays need not be there. */
static void lay_out(const struct attn_problem *p, const struct attn_options *opt,
                    const struct attn_csr_plan *x, struct memory *m)
{
    int64_t fused = is_fused(opt), e = x->kernels->bytes, keys = x->copies ? p->n_key : 0;
    const struct attn_buffer list[BUFFERS] = {
        [DENSE] = attn_buffer_of("csr.dense", fused * m->csr.patterns, attn_csr_panels_of(p, x), 1),
        [SEEN] = attn_buffer_of("csr.seen", fused * x->threads, ceil_div(p->n_key, 64), 8),
        [K_ROWS] = attn_buffer_of("k.rows", keys, x->wide, e),
        [V_ROWS] = attn_buffer_of("v.rows", keys, x->wide_v, e),
        [VALUES] = attn_buffer_of("values", !fused, attn_csr_pairs(p, &m->csr), e),
        [WORKSPACE] = attn_buffer_of("workspace", x->threads, workspace_of(p, x), e)};
    memcpy(m->buffer, list, sizeof list);
}

/* ---- the forward pass --------------------------------------------------------------------- */

struct call {
    const struct attn_problem *p;
    const struct attn_forward *t;
    const struct attn_csr_plan *plan;
    const struct memory *memory;
    int fused;
    int64_t chunk;
};

/* Queries [i0,i1), dense panels, by tiles. */
static void run_tiles(const struct call *x, const struct attn_row_forward *row, int64_t i0,
                      int64_t i1)
{
    const struct attn_kernels *kernels = x->plan->kernels;
    struct attn_tile_forward job = {
        .p = x->p, .t = x->t, .at = {row->b, row->h, i0, i1, 0, x->p->n_key}};
    struct attn_csr_runs runs;
    struct attn_buffer tile[ATTN_WORKSPACES];
    char *ws = row->ws;
    job.runs = attn_csr_runs_start(&runs, &x->memory->csr, i0, i1);
    attn_forward_buffers(kernels, x->p, 1, x->plan->panels, tile);
    for (int n = 0; n < ATTN_WORKSPACES; n++) {
        job.ws[n] = ws;
        ws += ceil_div(tile[n].numbers, 16) * 16 * kernels->bytes;
    }
    kernels->forward(&job);
}

/* A block of queries: runs of panels of one kind. */
static void run_fused(const struct call *x, const struct attn_row_forward *block)
{
    const struct attn_csr_plan *plan = x->plan;
    const struct attn_csr *csr = &x->memory->csr;
    int64_t panel = plan->kernels->panel;
    int64_t pattern = block->b * csr->batch_step + block->h * csr->head_step;
    const uint8_t *dense = attn_buffer_at(&x->memory->buffer[DENSE], pattern);
    for (int64_t i = block->i0, end; i < block->i1; i = end) {
        int tiles = dense[i / panel];
        for (end = i + panel; end < block->i1 && dense[end / panel] == tiles; end += panel)
            if (tiles && end - i == plan->panels * panel)
                break;
        end = end < block->i1 ? end : block->i1;
        struct attn_row_forward job = *block;
        job.i0 = i, job.i1 = end;
        if (tiles)
            run_tiles(x, block, i, end);
        else
            plan->kernels->row_forward(&job);
    }
}

/* Values of the heads before (b,h): those of a head stand together, in the order of its pattern. */
static int64_t values_before(const struct attn_problem *p, const struct attn_csr *csr, int64_t bh)
{
    int64_t sum = 0;
    for (int64_t n = 0; n < bh; n++) {
        int64_t pattern = n / p->heads * csr->batch_step + n % p->heads * csr->head_step;
        const int64_t *start = csr->row_start + pattern * csr->n_query;
        sum += start[csr->n_query] - start[0];
    }
    return sum;
}

/* Unit n of those of query heads [bh0,bh1), counted over batches: the last queries first, because
 * under a causal mask they have the most to do. */
static struct attn_row_forward unit(const struct call *x, int64_t bh0, int64_t bh1, int64_t n)
{
    const struct attn_problem *p = x->p;
    const struct attn_csr_plan *plan = x->plan;
    const struct attn_buffer *buffer = x->memory->buffer;
    int64_t heads = bh1 - bh0, bh = bh0 + n % heads;
    int64_t blocks = ceil_div(p->n_query, plan->block);
    struct attn_row_forward job = {.p = p, .t = x->t, .csr = &x->memory->csr, .chunk = x->chunk};
    job.b = bh / p->heads, job.h = bh % p->heads;
    job.i0 = (blocks - 1 - n / heads) * plan->block;
    job.i1 = less(job.i0 + plan->block, p->n_query);
    job.k = plan->copies ? buffer[K_ROWS].data : NULL;
    job.v = plan->copies ? buffer[V_ROWS].data : NULL;
    if (!x->fused)
        job.values = buffer[VALUES].data + values_before(p, job.csr, bh) * plan->kernels->bytes;
    job.ws = attn_buffer_at(&buffer[WORKSPACE], omp_get_thread_num());
    return job;
}

/* One step for query heads [bh0,bh1): of_block NULL is the fused one. */
static void run_step(struct attn_ctx *ctx, const struct call *x, int64_t bh0, int64_t bh1,
                     void (*of_block)(const struct attn_row_forward *), const char *name)
{
    int64_t blocks = ceil_div(x->p->n_query, x->plan->block);
    int threads = x->plan->threads;
    double start = attn_seconds(CLOCK_MONOTONIC);
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1) if (threads > 1)
    for (int64_t n = 0; n < (bh1 - bh0) * blocks; n++) {
        struct attn_row_forward job = unit(x, bh0, bh1, n);
        if (of_block == NULL)
            run_fused(x, &job);
        else
            of_block(&job);
    }
    attn_csr_step_add(ctx, name, attn_seconds(CLOCK_MONOTONIC) - start);
}

/* The n_key rows of n numbers of kv head (b,g), widened and padded to whole vectors. */
static void copy_rows(const struct call *x, const struct attn_cview *from, int64_t b, int64_t g,
                      int64_t n, const struct attn_buffer *to)
{
    const struct attn_csr_plan *plan = x->plan;
#pragma omp parallel for num_threads(plan->threads) schedule(static) if (plan->threads > 1)
    for (int64_t j = 0; j < x->p->n_key; j++)
        plan->kernels->load_row(from, b, g, j, n, attn_buffer_at(to, j));
}

static void run(struct attn_ctx *ctx, const struct call *x)
{
    const struct attn_problem *p = x->p;
    const struct attn_kernels *kernels = x->plan->kernels;
    int64_t all = p->batch * p->kv_heads, group = all > 0 ? p->heads / p->kv_heads : 0;
    int64_t at_a_time = x->plan->copies ? 1 : all; /* one kv head's rows are copied at a time */
    for (int64_t kv = 0; kv < all; kv += at_a_time) {
        int64_t bh0 = kv * group, bh1 = (kv + at_a_time) * group;
        if (x->plan->copies) {
            int64_t b = kv / p->kv_heads, g = kv % p->kv_heads;
            copy_rows(x, &x->t->k, b, g, p->d_key, &x->memory->buffer[K_ROWS]);
            copy_rows(x, &x->t->v, b, g, p->d_value, &x->memory->buffer[V_ROWS]);
        }
        if (x->fused)
            run_step(ctx, x, bh0, bh1, NULL, "attention");
        else {
            run_step(ctx, x, bh0, bh1, kernels->row_sddmm, "sddmm");
            run_step(ctx, x, bh0, bh1, kernels->row_softmax, "softmax");
            run_step(ctx, x, bh0, bh1, kernels->row_spmm, "spmm");
        }
    }
}

static enum attn_status forward(struct attn_ctx *ctx, const struct attn_problem *p,
                                const struct attn_forward *t)
{
    struct attn_csr_plan plan;
    struct memory memory = {0};
    double start = attn_seconds(CLOCK_MONOTONIC);
    if (ctx->ranks != NULL)
        ctx->ranks[0].n_steps = 0;
    enum attn_status status = attn_csr_plan_make(p, ctx->options, &plan, ctx->error);
    if (status == ATTN_OK)
        status = attn_csr_build(p, ctx->ledger, &memory.csr, ctx->error);
    if (status == ATTN_OK) {
        lay_out(p, ctx->options, &plan, &memory);
        status = attn_buffers_take(memory.buffer, BUFFERS, ctx->ledger, ctx->error);
    }
    if (status == ATTN_OK) {
        struct attn_csr *csr = &memory.csr;
        struct call x = {p, t, &plan, &memory, is_fused(ctx->options), 0};
        x.chunk = chunk_of(p, ctx->options, &plan, csr->nnz, csr->patterns * p->n_query);
        if (x.fused)
            attn_csr_panels_find(csr, &plan, p->n_key, (void *)memory.buffer[SEEN].data,
                                 (void *)memory.buffer[DENSE].data);
        attn_csr_step_add(ctx, "pattern", attn_seconds(CLOCK_MONOTONIC) - start);
        run(ctx, &x);
    }
    attn_buffers_give(memory.buffer, BUFFERS, ctx->ledger);
    attn_csr_free(&memory.csr, ctx->ledger);
    if (status == ATTN_OK && is_fused(ctx->options)) /* by panels, which are tiles */
        attn_leak_mend_forward(p, t, plan.kernels, plan.threads);
    return status;
}

/* ---- the record --------------------------------------------------------------------------- */

static enum attn_status accepts(const struct attn_problem *p, const struct attn_options *opt,
                                struct attn_error *err)
{
    (void)opt;
    if (p->n_key > INT32_MAX || p->n_query > INT32_MAX)
        return attn_fail(err, ATTN_ENOTSUP,
                         "csr indexes keys and queries with 32 bits: %lld queries by %lld keys are "
                         "too many, 2147483647 would work",
                         (long long)p->n_query, (long long)p->n_key);
    return ATTN_OK;
}

static enum attn_status cost(const struct attn_problem *p, const struct attn_options *opt,
                             enum attn_pass pass, int rank, struct attn_cost *cost,
                             struct attn_error *err)
{
    (void)rank;
    struct attn_csr_plan x;
    struct memory memory;
    if (pass == ATTN_BACKWARD)
        return attn_csr_cost_backward(p, opt, cost, err);
    enum attn_status status = attn_csr_plan_make(p, opt, &x, err);
    if (status == ATTN_OK)
        status = attn_csr_cost(p, cost, &memory.csr, err);
    if (status != ATTN_OK)
        return status;
    lay_out(p, opt, &x, &memory);
    cost->pairs = (double)attn_csr_pairs(p, &memory.csr);
    cost->flops = 2 * cost->pairs * (double)(p->d_key + p->d_value);
    return attn_buffers_price(memory.buffer, BUFFERS, cost, err);
}

/* A rescale a step: every chunk that a row meets, more where a row has more than ATTN_ROW_KEYS
 * pairs in a chunk; in a dense panel, every key block.  With three passes the maximum is known. */
static int64_t rescales(const struct attn_problem *p, const struct attn_options *opt)
{
    struct attn_csr_plan plan;
    if (!is_fused(opt) || attn_csr_plan_make(p, opt, &plan, NULL) != ATTN_OK)
        return 0;
    int64_t chunk = chunk_of(p, opt, &plan, INT64_MAX, 1);
    int64_t steps = p->n_key / chunk + p->n_key / ATTN_ROW_KEYS, blocks = p->n_key / ATTN_KEY_BLOCK;
    return 2 + (steps > blocks ? steps : blocks);
}

/* Probabilities below the smallest normal number are taken for 0 (simd/math_tmpl.h, exp2). */
static void precision(const struct attn_problem *p, const struct attn_options *opt,
                      struct attn_precision *x)
{
    (void)opt;
    x->tiny = p->dtype == ATTN_F64 ? 0x1p-1022 : 0x1p-126;
}

const struct attn_impl attn_impl_csr = {
    .name = "csr",
    .summary = "visible pairs only: rows in cache-sized chunks, dense panels by tiles",
    .family = "csr",
    .caps = ATTN_CAPS_ALL,
    .options = options,
    .rescales = rescales,
    .accepts = accepts,
    .cost = cost,
    .forward = forward,
    .backward = attn_csr_backward,
    .precision = precision,
    .simd = 1,
};
