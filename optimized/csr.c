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

#include "optimized/csr_plan.h"
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

struct memory {
    struct attn_csr csr;
    uint8_t *dense;
    uint64_t *seen;
    void *k, *v, *values, *ws;
};

/* Visible pairs of all batches and heads. */
static int64_t all_pairs(const struct attn_problem *p, const struct attn_csr *csr)
{
    return csr->patterns == 0 ? 0 : csr->nnz * (p->batch * p->heads / csr->patterns);
}

static enum attn_status take(struct attn_ctx *ctx, const struct attn_problem *p,
                             const struct attn_csr_plan *plan, struct memory *x)
{
    int64_t bytes = plan->kernels->bytes, fused = is_fused(ctx->options);
    int64_t words = (p->n_key + 63) / 64, panels = attn_csr_panels_of(p, plan);
    enum attn_status status = attn_csr_build(p, ctx->ledger, &x->csr, ctx->error);
    if (status != ATTN_OK)
        return status;
    struct {
        const char *name;
        int64_t count, size;
        void **data;
    } list[] = {{"csr.dense", fused ? x->csr.patterns * panels : 0, 1, (void **)&x->dense},
                {"csr.seen", fused ? plan->threads * words : 0, 8, (void **)&x->seen},
                {"k.rows", plan->copies ? p->n_key * plan->wide : 0, bytes, &x->k},
                {"v.rows", plan->copies ? p->n_key * plan->wide_v : 0, bytes, &x->v},
                {"values", fused ? 0 : all_pairs(p, &x->csr), bytes, &x->values},
                {"workspace", plan->threads * attn_csr_workspace_forward(p, plan), bytes, &x->ws}};
    for (size_t n = 0; n < sizeof list / sizeof *list; n++) {
        *list[n].data =
            attn_ledger_take(ctx->ledger, list[n].name, list[n].count, list[n].size, ctx->error);
        if (*list[n].data == NULL)
            return ATTN_ENOMEM;
    }
    return ATTN_OK;
}

static void give(struct attn_ctx *ctx, struct memory *x)
{
    attn_ledger_give(ctx->ledger, x->ws);
    attn_ledger_give(ctx->ledger, x->values);
    attn_ledger_give(ctx->ledger, x->v);
    attn_ledger_give(ctx->ledger, x->k);
    attn_ledger_give(ctx->ledger, x->seen);
    attn_ledger_give(ctx->ledger, x->dense);
    attn_csr_free(&x->csr, ctx->ledger);
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
    struct attn_tile_forward job = {.p = x->p, .t = x->t};
    struct attn_csr_runs runs;
    int64_t numbers[ATTN_WORKSPACES];
    char *ws = row->ws;
    job.runs = attn_csr_runs_start(&runs, &x->memory->csr, i0, i1);
    job.b = row->b, job.h = row->h, job.i0 = i0, job.i1 = i1, job.j0 = 0, job.j1 = x->p->n_key;
    kernels->forward_workspace(x->plan->panels, x->p->d_key, x->p->d_value, numbers);
    for (int n = 0; n < ATTN_WORKSPACES; n++) {
        job.ws[n] = ws;
        ws += (numbers[n] + 15) / 16 * 16 * kernels->bytes;
    }
    kernels->forward(&job);
}

/* A block of queries: runs of panels of one kind. */
static void run_fused(const struct call *x, const struct attn_row_forward *block)
{
    const struct attn_csr_plan *plan = x->plan;
    const struct attn_csr *csr = &x->memory->csr;
    int64_t panel = plan->kernels->panel, panels = attn_csr_panels_of(x->p, plan);
    const uint8_t *dense =
        x->memory->dense + (block->b * csr->batch_step + block->h * csr->head_step) * panels;
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
    int64_t heads = bh1 - bh0, bh = bh0 + n % heads;
    int64_t blocks = (p->n_query + plan->block - 1) / plan->block;
    struct attn_row_forward job = {.p = p, .t = x->t, .csr = &x->memory->csr, .chunk = x->chunk};
    job.b = bh / p->heads, job.h = bh % p->heads;
    job.i0 = (blocks - 1 - n / heads) * plan->block;
    job.i1 = job.i0 + plan->block < p->n_query ? job.i0 + plan->block : p->n_query;
    job.k = plan->copies ? x->memory->k : NULL;
    job.v = plan->copies ? x->memory->v : NULL;
    if (!x->fused)
        job.values =
            (char *)x->memory->values + values_before(p, job.csr, bh) * plan->kernels->bytes;
    job.ws = (char *)x->memory->ws +
             omp_get_thread_num() * attn_csr_workspace_forward(p, plan) * plan->kernels->bytes;
    return job;
}

/* One step for query heads [bh0,bh1): of_block NULL is the fused one. */
static void run_step(struct attn_ctx *ctx, const struct call *x, int64_t bh0, int64_t bh1,
                     void (*of_block)(const struct attn_row_forward *), const char *name)
{
    int64_t blocks = (x->p->n_query + x->plan->block - 1) / x->plan->block;
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

/* The n_key rows of n numbers of kv head (b,g), widened and padded to whole vectors:
 * to[n_key][wide]. */
static void copy_rows(const struct call *x, const struct attn_cview *from, int64_t b, int64_t g,
                      int64_t n, int64_t wide, void *to)
{
    const struct attn_csr_plan *plan = x->plan;
    int64_t bytes = plan->kernels->bytes;
#pragma omp parallel for num_threads(plan->threads) schedule(static) if (plan->threads > 1)
    for (int64_t j = 0; j < x->p->n_key; j++)
        plan->kernels->load_row(from, b, g, j, n, (char *)to + j * wide * bytes);
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
            copy_rows(x, &x->t->k, b, g, p->d_key, x->plan->wide, x->memory->k);
            copy_rows(x, &x->t->v, b, g, p->d_value, x->plan->wide_v, x->memory->v);
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
        status = take(ctx, p, &plan, &memory);
    if (status == ATTN_OK) {
        struct attn_csr *csr = &memory.csr;
        struct call x = {p, t, &plan, &memory, is_fused(ctx->options), 0};
        x.chunk = attn_csr_chunk(p, ctx->options, &plan, csr->nnz, csr->patterns * p->n_query);
        if (x.fused)
            attn_csr_panels_find(csr, &plan, p->n_key, memory.seen, memory.dense);
        attn_csr_step_add(ctx, "pattern", attn_seconds(CLOCK_MONOTONIC) - start);
        run(ctx, &x);
    }
    give(ctx, &memory);
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

/* A thread's workspace, written out: the greater of what rows and what tiles need, in units of 16
 * numbers.  R queries in a unit, P in a panel, n panels in a tile job, w and wv whole vectors. */
static int64_t workspace_numbers(const struct attn_problem *p, const struct attn_csr_plan *x)
{
    int64_t R = x->most, P = x->kernels->panel, n = x->panels, lanes = x->kernels->lanes;
    int64_t w = x->wide, wv = x->wide_v, widest = w > wv ? w : wv, d = p->d_key, dv = p->d_value;
    int64_t stage = (lanes > 8 ? lanes : 8) * widest;
#define WHOLE(numbers) (((numbers) + 15) / 16 * 16)
    int64_t steps = ATTN_ROW_STEPS * ATTN_ROW_STEP_BYTES / x->kernels->bytes;
    int64_t rows = ATTN_ROW_BATCH + steps + WHOLE(R * w) + WHOLE(R * wv) + 3 * WHOLE(R) + stage;
    int64_t tiles = WHOLE(n * P * d) + WHOLE(n * P * dv) + WHOLE((ATTN_KEY_BLOCK + 8) * P) +
                    WHOLE(2 * n * P) + WHOLE(ATTN_KEY_BLOCK * (d + dv)) + WHOLE(lanes * widest);
    return WHOLE(rows > tiles ? rows : tiles);
#undef WHOLE
}

static enum attn_status cost_forward(const struct attn_problem *p, const struct attn_options *opt,
                                     struct attn_cost *cost, struct attn_error *err)
{
    struct attn_csr_plan x;
    int64_t pairs = 0, nnz = 0;
    enum attn_status status = attn_csr_plan_make(p, opt, &x, err);
    if (status == ATTN_OK)
        status = attn_csr_cost(p, cost, &nnz, &pairs, err);
    if (status != ATTN_OK)
        return status;
    int64_t patterns = 1, bytes = x.kernels->bytes, P = x.kernels->panel;
    if (attn_mask_varies_by_batch(p->mask))
        patterns *= p->batch;
    if (attn_mask_varies_by_head(p->mask))
        patterns *= p->heads;
    if (p->batch == 0 || p->heads == 0)
        patterns = 0;
    const struct {
        const char *name;
        int64_t count, size;
    } live[] = {
        {"csr.dense", is_fused(opt) ? patterns * ((p->n_query + P - 1) / P) : 0, 1},
        {"csr.seen", is_fused(opt) ? x.threads * ((p->n_key + 63) / 64) : 0, 8},
        {"k.rows", x.copies ? attn_product(p->n_key, x.wide) : 0, bytes},
        {"v.rows", x.copies ? attn_product(p->n_key, x.wide_v) : 0, bytes},
        {"values", is_fused(opt) ? 0 : pairs, bytes},
        {"workspace", x.threads * workspace_numbers(p, &x), bytes},
    };
    for (size_t n = 0; n < sizeof live / sizeof *live && status == ATTN_OK; n++)
        status = attn_cost_add(cost, live[n].name, live[n].count, live[n].size, err);
    cost->flops = 2 * (double)pairs * (double)(p->d_key + p->d_value);
    return status;
}

static enum attn_status cost(const struct attn_problem *p, const struct attn_options *opt,
                             enum attn_pass pass, int rank, struct attn_cost *cost,
                             struct attn_error *err)
{
    (void)rank;
    return pass == ATTN_BACKWARD ? attn_csr_cost_backward(p, opt, cost, err)
                                 : cost_forward(p, opt, cost, err);
}

/* A rescale a step: every chunk that a row meets, more where a row has more than ATTN_ROW_KEYS
 * pairs in a chunk; in a dense panel, every key block.  With three passes the maximum is known. */
static int64_t rescales(const struct attn_problem *p, const struct attn_options *opt)
{
    struct attn_csr_plan plan;
    if (!is_fused(opt) || attn_csr_plan_make(p, opt, &plan, NULL) != ATTN_OK)
        return 0;
    int64_t chunk = attn_csr_chunk(p, opt, &plan, INT64_MAX, 1);
    int64_t steps = p->n_key / chunk + p->n_key / ATTN_ROW_KEYS, blocks = p->n_key / ATTN_KEY_BLOCK;
    return 2 + (steps > blocks ? steps : blocks);
}

/* Probabilities below the smallest normal number are taken for 0 (simd/vec_tmpl.h, exp2). */
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
    .caps = ATTN_CAP_F64 | ATTN_CAP_F32 | ATTN_CAP_BF16 | ATTN_CAP_F16 | ATTN_CAP_BACKWARD |
            ATTN_CAP_GQA | ATTN_CAP_CROSS | ATTN_CAP_DV | ATTN_CAP_MASK | ATTN_CAP_HARD |
            ATTN_CAP_SOFTCAP | ATTN_CAP_ALIBI | ATTN_CAP_BIAS | ATTN_CAP_DBIAS | ATTN_CAP_DLSE |
            ATTN_CAP_STRIDES,
    .options = options,
    .rescales = rescales,
    .accepts = accepts,
    .cost = cost,
    .forward = forward,
    .backward = attn_csr_backward,
    .precision = precision,
    .simd = 1,
};
