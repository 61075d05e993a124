/* gemm: attention with every score in memory, on the kernels that `tiled` runs on.
 *
 * Eager frameworks compute attention as matrix products and a softmax between them, and keep what
 * is of size L x L.  So does this, with the same register tiles, exponential, masks and threads as
 * `tiled`: a curve of both compares plans of memory, not qualities of code.
 *
 * Memory    forward: scores, B*H*Lq*Lk numbers, Lq in whole panels; they become P in place.
 *           backward: probs and dscores, as many each, and LSE.  Everything else is a panel of
 *           queries or a block of keys for each thread.
 * Saving    save=probs leaves P to the backward pass, as frameworks do: no peak is higher for it,
 *           but P lives between the passes, and a network has many layers between them.  With a
 *           softcap nothing is saved: its slope needs the scores.
 * Flops     2 (d + dv) a visible pair forward, 2 (3 d + 2 dv) backward, 2 d less of a saved P.
 *           Tiles that nobody sees are filled with zeros, and nothing is computed with them.
 * Threads   panels of queries are shared out, and then, for dK and dV, blocks of keys, each of
 *           which sums over its queries in order; a dBias in which pairs of several panels meet is
 *           made by one thread.  Same bits for any number of them.
 */
#include <omp.h>
#include <string.h>

#include "optimized/integers.h"
#include "optimized/leak.h"
#include "optimized/simd/isa.h"
#include "optimized/simd/kernels.h"
#include "optimized/tiled_backward.h"
#include "ref/impl.h"
#include "ref/problem.h"

enum { SAVE };           /* options, in the order of the table */
enum { NOTHING, PROBS }; /* words of save                      */
static const struct attn_option options[] = {{"save", NOTHING, NOTHING, PROBS, "nothing probs",
                                              "what a forward pass leaves to the backward one"},
                                             {0}};

/* ---- the plan ----------------------------------------------------------------------------- */

struct plan {
    const struct attn_kernels *kernels;
    int threads, saves;
    int64_t heads, group;   /* batch * heads; query heads of a kv head      */
    int64_t panels, blocks; /* of a head: panels of queries, blocks of keys */
    int64_t scores;         /* numbers of a panel: (n_key + 8) * panel      */
    int64_t state[ATTN_STATES], back[ATTN_BACK], ws[ATTN_WORKSPACES];
};

static enum attn_status make_plan(const struct attn_problem *p, const struct attn_options *opt,
                                  struct plan *x, struct attn_error *err)
{
    memset(x, 0, sizeof *x);
    x->kernels = attn_kernels_for(p, opt, err);
    if (x->kernels == NULL)
        return ATTN_EINVAL;
    x->heads = attn_product(p->batch, p->heads);
    x->group = p->kv_heads > 0 ? p->heads / p->kv_heads : 0;
    x->panels = ceil_div(p->n_query, x->kernels->panel);
    x->blocks = ceil_div(p->n_key, ATTN_KEY_BLOCK);
    x->scores = attn_product(p->n_key + 8, x->kernels->panel);
    x->saves = opt->value[SAVE] == PROBS && !(p->softcap > 0);
    x->threads = opt->threads > 1 ? opt->threads : 1;
    if (x->threads > x->heads * x->panels)
        x->threads = x->heads * x->panels > 1 ? (int)(x->heads * x->panels) : 1;
    x->kernels->forward_workspace(1, p->d_key, p->d_value, x->ws);
    x->kernels->backward_workspace(p, ATTN_KEY_BLOCK, x->state, x->back);
    return ATTN_OK;
}

/* ---- memory ------------------------------------------------------------------------------- */

struct memory {
    char *ws[ATTN_WORKSPACES]; /* [threads]; S:     [heads][panels] */
    char *back[ATTN_BACK];     /* [threads]; S, dP: [heads][panels] */
    char *state[ATTN_STATES];  /* [threads]; LSE:   [heads][panels] */
    int saved;                 /* P was there before the call, or will be after it */
};

/* Take n times so many numbers. */
static enum attn_status take(struct attn_ctx *ctx, const struct plan *x, const char *name,
                             int64_t n, int64_t numbers, char **buffer)
{
    *buffer = attn_ledger_take(ctx->ledger, name, attn_product(n, numbers), x->kernels->bytes,
                               ctx->error);
    return *buffer != NULL ? ATTN_OK : ATTN_ENOMEM;
}

static enum attn_status take_forward(struct attn_ctx *ctx, const struct plan *x, struct memory *m)
{
    static const char *const name[ATTN_WORKSPACES] = ATTN_WORK_NAMES;
    int64_t units = attn_product(x->heads, x->panels);
    enum attn_status status =
        take(ctx, x, x->saves ? "probs" : "scores", units, x->scores, &m->ws[ATTN_WORK_S]);
    for (int n = 0; n < ATTN_WORKSPACES && status == ATTN_OK; n++)
        if (n != ATTN_WORK_S)
            status = take(ctx, x, name[n], x->threads, x->ws[n], &m->ws[n]);
    return status;
}

static int64_t scores_bytes(const struct plan *x)
{
    return attn_product(attn_product(attn_product(x->heads, x->panels), x->scores),
                        x->kernels->bytes);
}

/* P of the forward pass, where there is one, in panels: these differ by instruction set. */
static enum attn_status find_saved(struct attn_ctx *ctx, const struct plan *x, struct memory *m)
{
    if (ctx->saved == NULL || ctx->saved->data == NULL)
        return ATTN_OK;
    if (ctx->saved->bytes != scores_bytes(x))
        return attn_fail(ctx->error, ATTN_EINVAL,
                         "gemm: the forward pass saved %lld bytes, a backward pass in panels of %d "
                         "queries reads %lld: both must run on one instruction set",
                         (long long)ctx->saved->bytes, x->kernels->panel,
                         (long long)scores_bytes(x));
    m->back[ATTN_BACK_S] = ctx->saved->data;
    m->saved = 1;
    return ATTN_OK;
}

static enum attn_status take_backward(struct attn_ctx *ctx, const struct plan *x, struct memory *m)
{
    static const char *const state[ATTN_STATES] = ATTN_STATE_NAMES, *const ws[ATTN_BACK] =
                                                                        ATTN_BACK_NAMES;
    int64_t units = attn_product(x->heads, x->panels);
    enum attn_status status = find_saved(ctx, x, m);
    if (status == ATTN_OK && !m->saved)
        status = take(ctx, x, "probs", units, x->scores, &m->back[ATTN_BACK_S]);
    if (status == ATTN_OK)
        status = take(ctx, x, "dscores", units, x->scores, &m->back[ATTN_BACK_DP]);
    for (int n = ATTN_BACK_SLOPE; n < ATTN_BACK && status == ATTN_OK; n++)
        status = take(ctx, x, ws[n], x->threads, x->back[n], &m->back[n]);
    for (int n = 0; n < ATTN_STATES && status == ATTN_OK; n++)
        status = take(ctx, x, state[n], n == ATTN_STATE_LSE ? units : x->threads, x->state[n],
                      &m->state[n]);
    return status;
}

static void give(struct attn_ctx *ctx, struct memory *m)
{
    for (int n = ATTN_STATES - 1; n >= 0; n--)
        attn_ledger_give(ctx->ledger, m->state[n]);
    for (int n = ATTN_BACK - 1; n >= 0; n--)
        if (n != ATTN_BACK_S || !m->saved)
            attn_ledger_give(ctx->ledger, m->back[n]);
    for (int n = ATTN_WORKSPACES - 1; n >= 0; n--)
        if (n != ATTN_WORK_S || !m->saved)
            attn_ledger_give(ctx->ledger, m->ws[n]);
}

/* Written out on its own: P queries in a panel, W numbers in a vector. */
static enum attn_status cost(const struct attn_problem *p, const struct attn_options *opt,
                             enum attn_pass pass, int rank, struct attn_cost *cost,
                             struct attn_error *err)
{
    (void)rank;
    struct plan x;
    enum attn_status status = make_plan(p, opt, &x, err);
    if (status != ATTN_OK)
        return status;
    int64_t P = x.kernels->panel, W = x.kernels->lanes, t = x.threads;
    int64_t d = p->d_key, dv = p->d_value, wide = ceil_div(d, W) * W + ceil_div(dv, W) * W;
    int64_t rows = attn_product(x.heads, x.panels * P), all = attn_product(rows, p->n_key + 8);
    const struct {
        const char *name;
        enum attn_pass pass;
        int64_t n, numbers;
    } live[] = {{x.saves ? "probs" : "scores", ATTN_FORWARD, 1, all},
                {"tile.q", ATTN_FORWARD, t * P, d},
                {"tile.o", ATTN_FORWARD, t * P, dv},
                {"tile.ml", ATTN_FORWARD, t * P, 2},
                {"tile.kv", ATTN_FORWARD, t, ATTN_KEY_BLOCK * (d + dv)},
                {"tile.rows", ATTN_FORWARD, t * W, ceil_div(d > dv ? d : dv, W) * W},
                {"probs", ATTN_BACKWARD, 1, all},
                {"dscores", ATTN_BACKWARD, 1, all},
                {"tile.slope", ATTN_BACKWARD, t, p->softcap > 0 ? (ATTN_KEY_BLOCK + 8) * P : 0},
                {"tile.kv", ATTN_BACKWARD, t, ATTN_KEY_BLOCK * (d + dv)},
                {"tile.dkv", ATTN_BACKWARD, t, (ATTN_KEY_BLOCK + 1) * wide},
                {"tile.rows", ATTN_BACKWARD, t, (P + 1) * wide},
                {"q.packed", ATTN_BACKWARD, t * P, d},
                {"do.packed", ATTN_BACKWARD, t * P, dv},
                {"dq", ATTN_BACKWARD, t * P, d},
                {"lse", ATTN_BACKWARD, 1, rows},
                {"delta", ATTN_BACKWARD, t * P, 1}};
    for (size_t n = 0; n < sizeof live / sizeof *live && status == ATTN_OK; n++)
        if (live[n].pass == pass)
            status = attn_cost_add(cost, live[n].name, attn_product(live[n].n, live[n].numbers),
                                   x.kernels->bytes, err);
    if (x.saves && status == ATTN_OK)
        cost->saved_bytes = attn_product(all, x.kernels->bytes);
    cost->flops = 2 * (double)attn_problem_all_pairs(p, &cost->counted) *
                  (double)(pass == ATTN_FORWARD ? d + dv : (x.saves ? 2 : 3) * d + 2 * dv);
    return status;
}

/* ---- both passes -------------------------------------------------------------------------- */

struct work {
    const struct attn_problem *p;
    const struct plan *plan;
    const struct memory *memory;
};

static void *at(char *base, int64_t n, int64_t numbers, const struct plan *x)
{
    return base + n * numbers * x->kernels->bytes;
}

/* Panel m of query head n (batch and head in one number), on this thread. */
static void run_forward(const struct work *w, const struct attn_forward *t, int64_t n, int64_t m)
{
    const struct attn_problem *p = w->p;
    const struct plan *x = w->plan;
    struct attn_tile_forward job = {.p = p, .t = t, .runs = attn_runs_of(p), .j1 = p->n_key};
    job.saves = w->memory->saved;
    int64_t P = x->kernels->panel, thread = omp_get_thread_num();
    job.b = n / p->heads, job.h = n % p->heads;
    job.i0 = m * P, job.i1 = job.i0 + P < p->n_query ? job.i0 + P : p->n_query;
    for (int k = 0; k < ATTN_WORKSPACES; k++)
        job.ws[k] = at(w->memory->ws[k], thread, x->ws[k], x);
    job.ws[ATTN_WORK_S] = at(w->memory->ws[ATTN_WORK_S], n * x->panels + m, x->scores, x);
    x->kernels->gemm_forward(&job);
}

/* Query head n, its queries from panel m on. */
static struct attn_tile_backward aim(const struct work *w, const struct attn_backward *t, int64_t n,
                                     int64_t m)
{
    const struct attn_problem *p = w->p;
    const struct plan *x = w->plan;
    const struct memory *memory = w->memory;
    struct attn_tile_backward job = {.p = p, .t = t, .runs = attn_runs_of(p)};
    int64_t thread = omp_get_thread_num(), unit = n * x->panels + m;
    job.keys = ATTN_KEY_BLOCK;
    job.saved = memory->saved;
    job.b = n / p->heads, job.h = n % p->heads, job.g = job.h / x->group;
    job.state_from = job.i0 = m * x->kernels->panel, job.i1 = p->n_query;
    for (int k = 0; k < ATTN_STATES; k++)
        job.state[k] = at(memory->state[k], k == ATTN_STATE_LSE ? unit : thread, x->state[k], x);
    for (int k = ATTN_BACK_SLOPE; k < ATTN_BACK; k++)
        job.ws[k] = at(memory->back[k], thread, x->back[k], x);
    job.ws[ATTN_BACK_S] = at(memory->back[ATTN_BACK_S], unit, x->scores, x);
    job.ws[ATTN_BACK_DP] = at(memory->back[ATTN_BACK_DP], unit, x->scores, x);
    return job;
}

/* P, dS and dQ: panel m of query head n. */
static void run_queries(const struct work *w, const struct attn_backward *t, int64_t n, int64_t m)
{
    struct attn_tile_backward job = aim(w, t, n, m);
    int64_t i1 = job.i0 + w->plan->kernels->panel;
    job.i1 = i1 < job.i1 ? i1 : job.i1;
    w->plan->kernels->gemm_queries(&job);
}

/* dK and dV: a block of keys of kv head n, its query heads in order. */
static void run_keys(const struct work *w, const struct attn_backward *t, int64_t n, int64_t block)
{
    const struct attn_kernels *kernels = w->plan->kernels;
    int64_t j0 = block * ATTN_KEY_BLOCK, j1 = j0 + ATTN_KEY_BLOCK;
    struct attn_tile_backward job = {0};
    for (int64_t h = 0; h < w->plan->group; h++) {
        job = aim(w, t, n * w->plan->group + h, 0);
        job.j0 = j0, job.j1 = j1 < w->p->n_key ? j1 : w->p->n_key;
        if (h == 0)
            kernels->backward_begin(&job);
        kernels->gemm_keys(&job);
    }
    kernels->backward_end(&job);
}

/* A dbias that is shared is summed in the order of panels, by one thread. */
static void run_backward(const struct work *w, const struct attn_backward *t)
{
    const struct plan *x = w->plan;
    int64_t panels = x->heads * x->panels, blocks = w->p->batch * w->p->kv_heads * x->blocks;
    int threads = attn_dbias_is_shared(w->p, &t->dbias) ? 1 : x->threads;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
#pragma omp for schedule(dynamic, 1)
        for (int64_t n = 0; n < panels; n++)
            run_queries(w, t, n / x->panels, n % x->panels);
#pragma omp for schedule(dynamic, 1)
        for (int64_t n = 0; n < blocks; n++)
            run_keys(w, t, n / x->blocks, n % x->blocks);
    }
}

static enum attn_status forward(struct attn_ctx *ctx, const struct attn_problem *p,
                                const struct attn_forward *t)
{
    struct plan x;
    struct memory memory = {0};
    struct work w = {.p = p, .plan = &x, .memory = &memory};
    enum attn_status status = make_plan(p, ctx->options, &x, ctx->error);
    if (status == ATTN_OK)
        status = take_forward(ctx, &x, &memory);
    if (status == ATTN_OK && x.saves && ctx->saved != NULL) {
        ctx->saved->data = memory.ws[ATTN_WORK_S];
        ctx->saved->bytes = scores_bytes(&x);
        memory.saved = 1;
    }
    if (status == ATTN_OK) {
#pragma omp parallel for schedule(dynamic, 1) num_threads(x.threads) if (x.threads > 1)
        for (int64_t n = 0; n < x.heads * x.panels; n++)
            run_forward(&w, t, n / x.panels, n % x.panels);
    }
    give(ctx, &memory);
    if (status == ATTN_OK)
        attn_leak_mend_forward(p, t, x.kernels, x.threads);
    return status;
}

static enum attn_status backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                 const struct attn_backward *t)
{
    struct plan x;
    struct memory memory = {0};
    struct work w = {.p = p, .plan = &x, .memory = &memory};
    enum attn_status status = make_plan(p, ctx->options, &x, ctx->error);
    if (status == ATTN_OK)
        status = take_backward(ctx, &x, &memory);
    if (status == ATTN_OK) {
        attn_dbias_clear(p, &t->dbias);
        run_backward(&w, t);
    }
    give(ctx, &memory);
    if (status == ATTN_OK)
        attn_leak_mend_backward(p, t, x.kernels, x.threads);
    return status;
}

/* ---- the record --------------------------------------------------------------------------- */

const struct attn_impl attn_impl_gemm = {
    .name = "gemm",
    .summary = "every score in memory, on the kernels of tiled",
    .family = "dense",
    .caps = ATTN_CAP_F64 | ATTN_CAP_F32 | ATTN_CAP_BF16 | ATTN_CAP_F16 | ATTN_CAP_BACKWARD |
            ATTN_CAP_GQA | ATTN_CAP_CROSS | ATTN_CAP_DV | ATTN_CAP_MASK | ATTN_CAP_HARD |
            ATTN_CAP_SOFTCAP | ATTN_CAP_ALIBI | ATTN_CAP_BIAS | ATTN_CAP_DBIAS | ATTN_CAP_DLSE |
            ATTN_CAP_STRIDES,
    .options = options,
    .cost = cost,
    .forward = forward,
    .backward = backward,
    .precision = attn_kernels_precision,
    .simd = 1,
};
