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
 *           Tiles that no query sees are filled with zeros, and nothing is computed with them.
 * Threads   panels of queries are shared out, and then, for dK and dV, blocks of keys, each of
 *           which sums over its queries in order; a dBias in which pairs of several panels meet is
 *           made by one thread.  Same bits for any number of them.
 */
#include <omp.h>
#include <string.h>

#include "optimized/integers.h"
#include "optimized/leak.h"
#include "optimized/simd/isa.h"
#include "optimized/simd/workspace.h"
#include "optimized/tiled.h"
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
    int64_t units;          /* panels of all heads                          */
    int64_t scores;         /* numbers of a panel: (n_key + 8) * panel      */
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
    x->units = attn_product(x->heads, x->panels);
    x->threads = (int)at_least_1(less(opt->threads, x->units));
    return ATTN_OK;
}

/* ---- memory ------------------------------------------------------------------------------- */

/* Panels of all heads come first: scores, which become P; backward P, which the forward pass may
 * have saved, and dS.  Then each thread's workspace. */
enum { ALL_P, ALL_DS, PANELS, BUFFERS = PANELS + ATTN_BACK + ATTN_STATES };
struct memory {
    struct attn_buffer buffer[BUFFERS];
    struct attn_buffer *ws, *state; /* of it */
    int saved;                      /* P was there before the call, or will be after it */
};

static void lay_out(const struct attn_problem *p, const struct plan *x, enum attn_pass pass,
                    struct memory *m)
{
    struct attn_buffer all = attn_buffer_of("dscores", x->units, x->scores, x->kernels->bytes);
    m->ws = m->buffer + PANELS;
    m->state = m->ws + ATTN_BACK;
    if (pass == ATTN_FORWARD) {
        attn_forward_buffers(x->kernels, p, x->threads, 1, m->ws);
        m->ws[ATTN_WORK_S].name = NULL;
    } else {
        attn_backward_buffers(x->kernels, p, x->threads, x->threads, ATTN_KEY_BLOCK, m->state,
                              m->ws);
        m->ws[ATTN_BACK_S].name = m->ws[ATTN_BACK_DP].name = NULL;
        m->state[ATTN_STATE_LSE].parts = x->units;
        m->buffer[ALL_DS] = all;
    }
    all.name = pass == ATTN_BACKWARD || x->saves ? "probs" : "scores";
    m->buffer[ALL_P] = all;
}

static int64_t scores_bytes(const struct plan *x)
{
    return attn_product(attn_product(x->units, x->scores), x->kernels->bytes);
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
    m->buffer[ALL_P].name = NULL; /* is not taken */
    m->buffer[ALL_P].data = ctx->saved->data;
    m->saved = 1;
    return ATTN_OK;
}

static enum attn_status cost(const struct attn_problem *p, const struct attn_options *opt,
                             enum attn_pass pass, int rank, struct attn_cost *cost,
                             struct attn_error *err)
{
    (void)rank;
    struct plan x;
    struct memory memory = {0};
    enum attn_status status = make_plan(p, opt, &x, err);
    if (status != ATTN_OK)
        return status;
    lay_out(p, &x, pass, &memory);
    int64_t d = p->d_key, dv = p->d_value;
    cost->pairs = (double)attn_problem_all_pairs(p, &cost->counted);
    cost->flops =
        2 * cost->pairs * (double)(pass == ATTN_FORWARD ? d + dv : (x.saves ? 2 : 3) * d + 2 * dv);
    if (x.saves) {
        cost->saved_bytes = scores_bytes(&x);
        cost->saved_name = memory.buffer[ALL_P].name;
    }
    return attn_buffers_price(memory.buffer, BUFFERS, cost, err);
}

/* ---- both passes -------------------------------------------------------------------------- */

struct work {
    const struct attn_problem *p;
    const struct plan *plan;
    const struct memory *memory;
};

/* Panel m of query head n (batch and head in one number), on this thread. */
static void run_forward(const struct work *w, const struct attn_forward *t, int64_t n, int64_t m)
{
    const struct attn_problem *p = w->p;
    const struct plan *x = w->plan;
    struct attn_tile_forward job = {.p = p, .t = t, .runs = attn_runs_of(p)};
    job.saves = w->memory->saved;
    int64_t P = x->kernels->panel, thread = omp_get_thread_num(), unit = n * x->panels + m;
    job.at = (struct attn_tile_at){
        n / p->heads, n % p->heads, m * P, less((m + 1) * P, p->n_query), 0, p->n_key};
    for (int k = 0; k < ATTN_WORKSPACES; k++)
        job.ws[k] = attn_buffer_at(&w->memory->ws[k], thread);
    job.ws[ATTN_WORK_S] = attn_buffer_at(&w->memory->buffer[ALL_P], unit);
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
    job.at.b = n / p->heads, job.at.h = n % p->heads, job.g = job.at.h / x->group;
    job.state_from = job.at.i0 = m * x->kernels->panel, job.at.i1 = p->n_query;
    for (int k = 0; k < ATTN_STATES; k++)
        job.state[k] = attn_buffer_at(&memory->state[k], k == ATTN_STATE_LSE ? unit : thread);
    for (int k = 0; k < ATTN_BACK; k++)
        job.ws[k] = attn_buffer_at(&memory->ws[k], thread);
    job.ws[ATTN_BACK_S] = attn_buffer_at(&memory->buffer[ALL_P], unit);
    job.ws[ATTN_BACK_DP] = attn_buffer_at(&memory->buffer[ALL_DS], unit);
    return job;
}

/* P, dS and dQ: panel m of query head n. */
static void run_queries(const struct work *w, const struct attn_backward *t, int64_t n, int64_t m)
{
    struct attn_tile_backward job = aim(w, t, n, m);
    int64_t i1 = job.at.i0 + w->plan->kernels->panel;
    job.at.i1 = i1 < job.at.i1 ? i1 : job.at.i1;
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
        job.at.j0 = j0, job.at.j1 = j1 < w->p->n_key ? j1 : w->p->n_key;
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
    int64_t blocks = w->p->batch * w->p->kv_heads * x->blocks;
    int threads = attn_dbias_is_shared(w->p, &t->dbias) ? 1 : x->threads;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
#pragma omp for schedule(dynamic, 1)
        for (int64_t n = 0; n < x->units; n++)
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
    if (status != ATTN_OK)
        return status;
    lay_out(p, &x, ATTN_FORWARD, &memory);
    status = attn_buffers_take(memory.buffer, BUFFERS, ctx->ledger, ctx->error);
    if (status == ATTN_OK) {
        memory.saved = x.saves && ctx->saved != NULL;
#pragma omp parallel for schedule(dynamic, 1) num_threads(x.threads) if (x.threads > 1)
        for (int64_t n = 0; n < x.units; n++)
            run_forward(&w, t, n / x.panels, n % x.panels);
    }
    if (memory.saved) {
        ctx->saved->data = memory.buffer[ALL_P].data;
        ctx->saved->bytes = scores_bytes(&x);
        memory.buffer[ALL_P].data = NULL; /* is not given back */
    }
    attn_buffers_give(memory.buffer, BUFFERS, ctx->ledger);
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
    if (status != ATTN_OK)
        return status;
    lay_out(p, &x, ATTN_BACKWARD, &memory);
    status = find_saved(ctx, &x, &memory);
    if (status == ATTN_OK)
        status = attn_buffers_take(memory.buffer, BUFFERS, ctx->ledger, ctx->error);
    if (status == ATTN_OK) {
        attn_dbias_clear(p, &t->dbias);
        run_backward(&w, t);
    }
    if (memory.saved)
        memory.buffer[ALL_P].data = NULL; /* the caller's */
    attn_buffers_give(memory.buffer, BUFFERS, ctx->ledger);
    if (status == ATTN_OK)
        attn_leak_mend_backward(p, t, x.kernels, x.threads);
    return status;
}

/* Row i of P stands in a column of its panel.  Panels are those of the call that saved them. */
static void weigh(const struct attn_saved *saved, int64_t b, int64_t h, int64_t i, double weight)
{
    struct attn_error own;
    struct plan x;
    const struct attn_problem *p = &saved->problem;
    if (make_plan(p, &saved->options, &x, &own) != ATTN_OK)
        return;
    int64_t panel = x.kernels->panel, unit = (b * p->heads + h) * x.panels + i / panel;
    char *P = (char *)saved->data + unit * x.scores * x.kernels->bytes;
    for (int64_t j = 0; j < p->n_key; j++) {
        void *at = P + (j * panel + i % panel) * x.kernels->bytes;
        if (x.kernels->bytes == sizeof(double))
            *(double *)at *= weight;
        else
            *(float *)at *= (float)weight;
    }
}

/* ---- the record --------------------------------------------------------------------------- */

const struct attn_impl attn_impl_gemm = {
    .name = "gemm",
    .summary = "every score in memory, on the kernels of tiled",
    .family = "dense",
    .caps = ATTN_CAPS_ALL,
    .options = options,
    .cost = cost,
    .forward = forward,
    .backward = backward,
    .precision = attn_kernels_precision,
    .weigh = weigh,
    .flops_by_pairs = 1,
    .simd = 1,
};
