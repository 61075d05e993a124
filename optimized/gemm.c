/* gemm: attention with every score in memory, on the kernels that `tiled` runs on.
 *
 * Eager frameworks compute attention as a sequence of whole-tensor steps: a matrix product, a
 * softmax, a matrix product.  So does this, with the same register tiles, exponential, masks and
 * threads as `tiled`: a curve of both compares plans of memory, not qualities of code.
 *
 * Memory    forward: scores, B*H*Lq*Lk numbers, Lq in whole panels; they become P in place.
 *           backward: probs and dscores, as many each (and slope, with a softcap); q, dO and dq
 *           packed as in `tiled`.  A byte for each panel and key, which nobody sees or somebody.
 * Flops     2 (d + dv) B H Lq Lk forward, 2 (3 d + 2 dv) B H Lq Lk backward: hidden pairs are
 *           computed like any other, and then thrown away.
 * Threads   panels of queries are shared out, and for dK and dV blocks of keys, each of which sums
 *           over its queries in order; dBias, in which pairs of several panels may meet, is made by
 *           one thread.  Same bits for any number of them.
 */
#include <omp.h>
#include <string.h>

#include "optimized/simd/isa.h"
#include "optimized/simd/kernels.h"
#include "ref/ledger.h"
#include "ref/problem.h"
#include "ref/textbook.h"

/* ---- the plan ----------------------------------------------------------------------------- */

struct plan {
    const struct attn_kernels *kernels;
    int threads;
    int64_t heads, group, panels, blocks; /* batch * heads; panels of queries and blocks of keys in
                                             a head */
    int64_t panel_scores;                 /* numbers: (n_key + 8) * panel */
    int64_t kept[ATTN_KEPT], back[ATTN_BACK], room[ATTN_ROOMS];
};

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

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
    x->panel_scores = attn_product(p->n_key + 8, x->kernels->panel);
    x->threads = opt->threads > 1 ? opt->threads : 1;
    if (x->threads > x->heads * x->panels)
        x->threads = x->heads * x->panels > 1 ? (int)(x->heads * x->panels) : 1;
    x->kernels->forward_room(1, p->d_key, p->d_value, x->room);
    x->kernels->backward_room(p, ATTN_KEY_BLOCK, x->kept, x->back);
    return ATTN_OK;
}

/* ---- memory ------------------------------------------------------------------------------- */

enum { SCORES, DSCORES, SLOPE, SEEN, ZEROS, BUFFERS };

struct memory {
    char *buffer[BUFFERS];
    char *kept[ATTN_KEPT]; /* [heads][panels] */
    char *back[ATTN_BACK]; /* [threads]       */
    char *room[ATTN_ROOMS];
};

static int64_t longest(const struct attn_problem *p)
{
    return p->d_key > p->d_value ? p->d_key : p->d_value;
}

/* Take n times so many numbers, unless it is none. */
static enum attn_status take(struct attn_ctx *ctx, const char *name, int64_t n, int64_t numbers,
                             int64_t bytes, char **buffer)
{
    *buffer = attn_ledger_take(ctx->ledger, name, attn_product(n, numbers), bytes, ctx->error);
    return *buffer != NULL ? ATTN_OK : ATTN_ENOMEM;
}

/* What both passes need. */
static enum attn_status take_common(struct attn_ctx *ctx, const struct attn_problem *p,
                                    const struct plan *x, const char *scores, struct memory *m)
{
    int64_t units = attn_product(x->heads, x->panels), bytes = x->kernels->bytes;
    enum attn_status status = take(ctx, scores, units, x->panel_scores, bytes, &m->buffer[SCORES]);
    if (status == ATTN_OK)
        status = take(ctx, "seen", units, p->n_key, 1, &m->buffer[SEEN]);
    if (status == ATTN_OK)
        status = take(ctx, "zeros", 1, longest(p), bytes, &m->buffer[ZEROS]);
    if (status == ATTN_OK)
        memset(m->buffer[ZEROS], 0, (size_t)(longest(p) * bytes));
    return status;
}

static enum attn_status take_forward(struct attn_ctx *ctx, const struct attn_problem *p,
                                     const struct plan *x, struct memory *m)
{
    static const char *const name[ATTN_ROOMS] = ATTN_ROOM_NAMES;
    int64_t units = attn_product(x->heads, x->panels);
    enum attn_status status = take_common(ctx, p, x, "scores", m);
    for (int n = 0; n < ATTN_ROOMS && status == ATTN_OK; n++)
        if (n != ATTN_ROOM_S)
            status = take(ctx, name[n], n == ATTN_ROOM_ML ? units : x->threads, x->room[n],
                          x->kernels->bytes, &m->room[n]);
    return status;
}

static enum attn_status take_backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                      const struct plan *x, struct memory *m)
{
    static const char *const kept[ATTN_KEPT] = ATTN_KEPT_NAMES, *const room[ATTN_BACK] =
                                                                    ATTN_BACK_NAMES;
    int64_t units = attn_product(x->heads, x->panels), bytes = x->kernels->bytes;
    enum attn_status status = take_common(ctx, p, x, "probs", m);
    if (status == ATTN_OK)
        status = take(ctx, "dscores", units, x->panel_scores, bytes, &m->buffer[DSCORES]);
    if (status == ATTN_OK && p->softcap > 0)
        status = take(ctx, "slope", units, x->panel_scores, bytes, &m->buffer[SLOPE]);
    for (int n = 0; n < ATTN_KEPT && status == ATTN_OK; n++)
        status = take(ctx, kept[n], units, x->kept[n], bytes, &m->kept[n]);
    for (int n = ATTN_BACK_KV; n < ATTN_BACK && status == ATTN_OK; n++)
        status = take(ctx, room[n], x->threads, x->back[n], bytes, &m->back[n]);
    return status;
}

static void give(struct attn_ctx *ctx, struct memory *m)
{
    for (int n = ATTN_ROOMS - 1; n >= 0; n--)
        attn_ledger_give(ctx->ledger, m->room[n]);
    for (int n = ATTN_BACK - 1; n >= 0; n--)
        attn_ledger_give(ctx->ledger, m->back[n]);
    for (int n = ATTN_KEPT - 1; n >= 0; n--)
        attn_ledger_give(ctx->ledger, m->kept[n]);
    for (int n = BUFFERS - 1; n >= 0; n--)
        attn_ledger_give(ctx->ledger, m->buffer[n]);
}

/* ---- the price, written out on its own ------------------------------------------------------ */

struct line {
    const char *name;
    int64_t n, numbers, size;
};

static enum attn_status add_lines(const struct line *line, int n, struct attn_cost *cost,
                                  struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    for (; n > 0 && status == ATTN_OK; n--, line++)
        if (line->name != NULL)
            status = attn_cost_add(cost, line->name, attn_product(line->n, line->numbers),
                                   line->size, err);
    return status;
}

/* P queries in a panel, W numbers in a vector. */
static enum attn_status cost(const struct attn_problem *p, const struct attn_options *opt,
                             enum attn_pass pass, int rank, struct attn_cost *cost,
                             struct attn_error *err)
{
    (void)rank;
    struct plan x;
    enum attn_status status = make_plan(p, opt, &x, err);
    if (status != ATTN_OK)
        return status;
    int64_t real = x.kernels->bytes, P = x.kernels->panel, W = x.kernels->lanes, t = x.threads;
    int64_t d = p->d_key, dv = p->d_value, wide = ceil_div(d, W) * W + ceil_div(dv, W) * W;
    int64_t rows = attn_product(x.heads, x.panels * P), all = attn_product(rows, p->n_key + 8);
    const struct line common[] = {{pass == ATTN_FORWARD ? "scores" : "probs", 1, all, real},
                                  {"seen", rows / P, p->n_key, 1},
                                  {"zeros", 1, longest(p), real}};
    const struct line forward[] = {{"tile.q", t, P * d, real},
                                   {"tile.o", t, P * dv, real},
                                   {"tile.ml", 2, rows, real},
                                   {"tile.kv", t, ATTN_KEY_BLOCK * (d + dv), real},
                                   {"tile.rows", t, W * (ceil_div(longest(p), W) * W), real}};
    const struct line backward[] = {{"dscores", 1, all, real},
                                    {p->softcap > 0 ? "slope" : NULL, 1, all, real},
                                    {"q.packed", rows, d, real},
                                    {"do.packed", rows, dv, real},
                                    {"dq", rows, d, real},
                                    {"lse", 1, rows, real},
                                    {"delta", 1, rows, real},
                                    {"tile.kv", t, ATTN_KEY_BLOCK * (d + dv), real},
                                    {"tile.dkv", t, (ATTN_KEY_BLOCK + 1) * wide, real},
                                    {"tile.rows", t, (P + 1) * wide, real}};
    double pairs = (double)p->batch * (double)p->heads * (double)p->n_query * (double)p->n_key;
    status = add_lines(common, 3, cost, err);
    if (status == ATTN_OK)
        status = pass == ATTN_FORWARD ? add_lines(forward, 5, cost, err)
                                      : add_lines(backward, 10, cost, err);
    cost->flops = 2 * pairs * (double)(pass == ATTN_FORWARD ? d + dv : 3 * d + 2 * dv);
    return status;
}

/* ---- both passes: one step after another ---------------------------------------------------- */

struct work {
    const struct attn_problem *p;
    const struct plan *plan;
    const struct memory *memory;
    struct attn_gemm job; /* what all jobs have in common */
};

static char *at(char *base, int64_t n, int64_t numbers, const struct plan *x)
{
    return base == NULL ? NULL : base + n * numbers * x->kernels->bytes;
}

/* The job of query head n (batch and head in one number), its panel number m, on this thread. */
static struct attn_gemm aim(const struct work *w, int64_t n, int64_t m)
{
    const struct plan *x = w->plan;
    const struct memory *memory = w->memory;
    struct attn_gemm job = w->job;
    int64_t unit = n * x->panels + m, thread = omp_get_thread_num(), P = x->kernels->panel;
    job.tile.b = job.back.b = n / w->p->heads;
    job.tile.h = job.back.h = n % w->p->heads;
    job.back.g = job.back.h / x->group;
    job.tile.i0 = job.back.i0 = m * P;
    job.tile.i1 = job.back.i1 = (m + 1) * P < w->p->n_query ? (m + 1) * P : w->p->n_query;
    for (int k = 0; k < ATTN_ROOMS; k++)
        job.tile.room[k] = at(memory->room[k], k == ATTN_ROOM_ML ? unit : thread, x->room[k], x);
    for (int k = 0; k < ATTN_BACK; k++)
        job.back.room[k] = at(memory->back[k], thread, x->back[k], x);
    for (int k = 0; k < ATTN_KEPT; k++)
        job.back.kept[k] = at(memory->kept[k], n * x->panels, x->kept[k], x);
    if (job.back.room[ATTN_BACK_KV] != NULL)
        job.tile.room[ATTN_ROOM_KV] = job.back.room[ATTN_BACK_KV];
    job.scores = at(memory->buffer[SCORES], unit, x->panel_scores, x);
    job.dscores = at(memory->buffer[DSCORES], unit, x->panel_scores, x);
    job.slope = at(memory->buffer[SLOPE], unit, x->panel_scores, x);
    job.seen = (uint8_t *)memory->buffer[SEEN] + unit * w->p->n_key;
    return job;
}

static void run_step(const struct work *w, enum attn_gemm_step step, int threads)
{
    const struct plan *x = w->plan;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) if (threads > 1)
    for (int64_t n = 0; n < x->heads * x->panels; n++) {
        struct attn_gemm job = aim(w, n / x->panels, n % x->panels);
        x->kernels->gemm[step](&job);
    }
}

/* Packed Q, dO, LSE and D of all panels. */
static void run_pack(const struct work *w)
{
    const struct plan *x = w->plan;
#pragma omp parallel for schedule(dynamic, 1) num_threads(x->threads) if (x->threads > 1)
    for (int64_t n = 0; n < x->heads * x->panels; n++) {
        struct attn_gemm job = aim(w, n / x->panels, n % x->panels);
        x->kernels->backward_pack(&job.back);
    }
}

/* dK and dV: one block of keys of a kv head after another, its query heads in order. */
static void run_dkv(const struct work *w)
{
    const struct plan *x = w->plan;
    int64_t heads = w->p->batch * w->p->kv_heads;
#pragma omp parallel for schedule(dynamic, 1) num_threads(x->threads) if (x->threads > 1)
    for (int64_t n = 0; n < heads * x->blocks; n++) {
        int64_t head = n / x->blocks, j0 = n % x->blocks * ATTN_KEY_BLOCK;
        int64_t j1 = j0 + ATTN_KEY_BLOCK < w->p->n_key ? j0 + ATTN_KEY_BLOCK : w->p->n_key;
        struct attn_gemm job = {0};
        for (int64_t h = 0; h < x->group; h++) {
            job = aim(w, head * x->group + h, 0);
            job.back.j0 = j0, job.back.j1 = j1;
            if (h == 0)
                x->kernels->backward_begin(&job.back);
            x->kernels->gemm[ATTN_GEMM_DKV](&job);
        }
        x->kernels->backward_end(&job.back);
    }
}

static enum attn_status forward(struct attn_ctx *ctx, const struct attn_problem *p,
                                const struct attn_forward *t)
{
    struct plan plan;
    struct memory memory = {0};
    struct work w = {.p = p, .plan = &plan, .memory = &memory};
    enum attn_status status = make_plan(p, ctx->options, &plan, ctx->error);
    if (status == ATTN_OK)
        status = take_forward(ctx, p, &plan, &memory);
    if (status == ATTN_OK) {
        w.job = (struct attn_gemm){.tile = {.p = p, .t = t, .runs = attn_runs_of(p)},
                                   .k = &t->k,
                                   .v = &t->v,
                                   .zeros = memory.buffer[ZEROS]};
        for (int step = ATTN_GEMM_SCORES; step <= ATTN_GEMM_OUTPUT; step++)
            run_step(&w, (enum attn_gemm_step)step, plan.threads);
    }
    give(ctx, &memory);
    return status;
}

static enum attn_status backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                 const struct attn_backward *t)
{
    struct plan plan;
    struct memory memory = {0};
    struct work w = {.p = p, .plan = &plan, .memory = &memory};
    enum attn_status status = make_plan(p, ctx->options, &plan, ctx->error);
    if (status == ATTN_OK)
        status = take_backward(ctx, p, &plan, &memory);
    if (status == ATTN_OK) {
        w.job = (struct attn_gemm){.tile = {.p = p, .runs = attn_runs_of(p)},
                                   .back = {.p = p, .t = t, .keys = ATTN_KEY_BLOCK},
                                   .k = &t->k,
                                   .v = &t->v,
                                   .zeros = memory.buffer[ZEROS]};
        attn_dbias_clear(p, &t->dbias);
        run_pack(&w);
        run_step(&w, ATTN_GEMM_PROBS, plan.threads);
        run_step(&w, ATTN_GEMM_DSCORES, t->dbias.data != NULL ? 1 : plan.threads);
        run_step(&w, ATTN_GEMM_DQ, plan.threads);
        run_dkv(&w);
    }
    give(ctx, &memory);
    return status;
}

/* ---- the record --------------------------------------------------------------------------- */

const struct attn_impl attn_impl_gemm = {
    .name = "gemm",
    .summary = "every score in memory, one step after another, on the kernels of tiled",
    .family = "dense",
    .caps = ATTN_CAP_F64 | ATTN_CAP_F32 | ATTN_CAP_BF16 | ATTN_CAP_F16 | ATTN_CAP_BACKWARD |
            ATTN_CAP_GQA | ATTN_CAP_CROSS | ATTN_CAP_DV | ATTN_CAP_MASK | ATTN_CAP_HARD |
            ATTN_CAP_SOFTCAP | ATTN_CAP_ALIBI | ATTN_CAP_BIAS | ATTN_CAP_DBIAS | ATTN_CAP_DLSE |
            ATTN_CAP_STRIDES,
    .cost = cost,
    .forward = forward,
    .backward = backward,
    .precision = attn_kernels_precision,
    .simd = 1,
};
