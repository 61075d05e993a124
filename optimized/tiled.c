/* tiled: attention in tiles on the kernels of optimized/simd; nothing of size Lq x Lk ever exists.
 *
 * Forward   a block of queries at a time, each on one thread; keys that a block cannot see are
 *           skipped, masks cost something at their edges only (simd/mask_cursor.h,
 *           simd/forward_tmpl.h).
 * Few queries against many keys (decoding): the keys are cut into parts, which are merged by their
 *           LSE in order; by rows instead of tiles, whose lanes would be mostly empty (decode.h).
 * Backward  by recomputation from LSE (tiled_backward.c).
 *
 * Memory    a thread's workspace (below), whatever L is; with parts, their o and lse.
 * Threads   a query's result is made of its panel, key blocks and parts, which follow from problem
 *           and spec; threads only share blocks out.  Same bits for any number of them.
 * Source    Dao 2023 (FlashAttention-2); Dao et al. 2023 (Flash-Decoding) for the parts.
 */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "optimized/decode.h"
#include "optimized/integers.h"
#include "optimized/leak.h"
#include "optimized/parts.h"
#include "optimized/simd/isa.h"
#include "optimized/simd/workspace.h"
#include "optimized/tiled.h"
#include "ref/impl.h"
#include "ref/problem.h"

enum { OPTION_PARTS, OPTION_PANELS, OPTION_RESCALE, OPTION_FEW };
static const struct attn_option options[] = {
    {"parts", 0, 0, 4096, NULL, "parts that the keys are cut into; 0: as few queries ask for"},
    {"panels", 0, 0, ATTN_MAX_PANELS, NULL, "panels in a block of queries; 0: as the caches like"},
    {"rescale", 0, 0, 1, "lazy eager", "eager: at every new maximum, as in the papers"},
    {"few", ATTN_DECODE_QUERIES, 0, ATTN_SPLIT_ROWS, NULL,
     "up to so many queries go by rows instead of tiles"},
    {0}};

/* ---- the plan ----------------------------------------------------------------------------- */

struct plan {
    const struct attn_kernels *kernels;
    int threads;
    int64_t parts, part;   /* of the keys: so many, of so many keys each                      */
    int64_t panels;        /* in a block of queries                                            */
    int64_t block, blocks; /* queries in a block, blocks in (batch, head)                      */
    double rescale_at;
    int few; /* decode.h does it */
    struct attn_decode decode;
    int64_t units; /* batch * heads * blocks * parts                                   */
};

enum {
    NEAR_BYTES =
        256 * 1024, /* Q and O of a block of queries, if they are to leave workspace, ...   */
    BLOCK_BYTES = 512 * 1024, /* ... and at most: a quarter and a half of a cache of 1 MiB       */
    ENOUGH_PANELS = 5,        /* in a block: K and V of a key block have been worth their way    */
    BLOCK_PANELS = 7          /* at most; all four are measured: docs/kernel.md, 4               */
};

/* Parts are a matter of the problem.  Enough of them that 16 units exist, but none shorter than
 * 8 key blocks, which would be more merging than work. */
static int64_t count_parts(const struct attn_problem *p, const struct attn_options *opt,
                           int64_t panel)
{
    int64_t longest = at_least_1(ceil_div(p->n_key, ATTN_KEY_BLOCK)), n = opt->value[OPTION_PARTS];
    int64_t units = p->batch * p->heads * ceil_div(p->n_query, panel);
    if (n == 0)
        n = units == 0 || units >= 16 ? 1 : ceil_div(16, units);
    else
        return n < longest ? n : longest;
    return n < longest / 8 ? n : at_least_1(longest / 8);
}

/* How many panels the busiest thread works through, if each head has so many and a block takes n:
 * whole blocks in turns, after the smaller ones with which the dealing begins. */
static int64_t busiest(int64_t heads, int64_t all, int64_t n, int threads)
{
    int64_t whole = heads * (all / n), rest = ceil_div(heads, threads) * (all % n);
    return ceil_div(whole, threads) * n + (whole % threads == 0 ? rest : 0);
}

/* Panels in a block: as many as the caches like, so that a key block is used often while it is near
 * (measured: docs/kernel.md).  For several threads fewer, until there are 4 blocks for each and the
 * busiest has hardly more to do than its share. */
static int64_t count_panels(const struct attn_problem *p, const struct attn_options *opt,
                            const struct attn_kernels *k, int threads)
{
    if (opt->value[OPTION_PANELS] > 0)
        return opt->value[OPTION_PANELS];
    int64_t one = at_least_1((p->d_key + p->d_value) * k->panel * k->bytes);
    int64_t most = NEAR_BYTES / one, dear = BLOCK_BYTES / one;
    int64_t all = ceil_div(p->n_query, k->panel), heads = p->batch * p->heads;
    if (most < ENOUGH_PANELS)
        most = dear < ENOUGH_PANELS ? dear : ENOUGH_PANELS;
    most = most > BLOCK_PANELS ? BLOCK_PANELS : at_least_1(most);
    most = most < all ? most : at_least_1(all);
    if (threads == 1 || heads == 0)
        return most;
    int64_t share = at_least_1(all * heads / (4 * threads)), fair = ceil_div(all * heads, threads);
    int64_t n = share < most ? share : most;
    while (n > 1 && 32 * busiest(heads, all, n, threads) > 33 * fair) /* 3 % */
        n--;
    return n;
}

static enum attn_status make_plan(const struct attn_problem *p, const struct attn_options *opt,
                                  struct plan *plan, struct attn_error *err)
{
    memset(plan, 0, sizeof *plan);
    plan->kernels = attn_kernels_for(p, opt, err);
    if (plan->kernels == NULL)
        return ATTN_EINVAL;
    int64_t panel = plan->kernels->panel;
    plan->threads = (int)at_least_1(opt->threads);
    plan->parts = count_parts(p, opt, panel);
    plan->part = ceil_div(ceil_div(p->n_key, plan->parts), ATTN_KEY_BLOCK) * ATTN_KEY_BLOCK;
    plan->parts = at_least_1(ceil_div(p->n_key, at_least_1(plan->part)));
    plan->panels = count_panels(p, opt, plan->kernels, plan->threads);
    plan->block = plan->panels * panel;
    plan->rescale_at = opt->value[OPTION_RESCALE] == 0 ? 4 : 0;
    plan->blocks = ceil_div(p->n_query, plan->block);
    plan->units = p->batch * p->heads * plan->blocks * plan->parts;
    plan->few = p->n_query <= opt->value[OPTION_FEW];
    attn_decode_plan(p, plan->kernels, opt->value[OPTION_PARTS], plan->threads, &plan->decode);
    if (plan->threads > plan->units)
        plan->threads = (int)at_least_1(plan->units);
    return ATTN_OK;
}

/* ---- memory ------------------------------------------------------------------------------- */

/* Each thread's workspace, then the parts, where there are several. */
enum { BUFFERS = ATTN_WORKSPACES + ATTN_PARTS };

static void lay_out(const struct attn_problem *p, const struct plan *x, struct attn_buffer *buffer)
{
    attn_forward_buffers(x->kernels, p, x->threads, x->panels, buffer);
    if (x->parts > 1)
        attn_parts_buffers(x->kernels, x->parts, p->batch * p->heads * p->n_query, p->d_value,
                           buffer + ATTN_WORKSPACES);
}

/* ---- the forward pass --------------------------------------------------------------------- */

/* Do K and V of a kv head stay near until the next block of queries wants them? */
static int stays_in_cache(const struct attn_problem *p, const struct plan *plan)
{
    double width = (double)p->d_key + (double)p->d_value;
    return (double)p->n_key * width * plan->kernels->bytes <= ATTN_NEAR_BYTES;
}

/* Unit n.  One kv head after the other, whose K and V stay near if they are small.  Several threads
 * get long rows first, because under a causal mask the last blocks have the most to do; one thread
 * goes through memory upwards, as processors expect it (under a window, where every row of K and V
 * is soon left behind, that is 4 % of the time).  The heads of a group are next to each other,
 * because they read the same keys. */
static struct attn_tile_forward unit(const struct attn_problem *p, const struct attn_forward *t,
                                     struct attn_runs runs, const struct plan *plan,
                                     const struct attn_parts *parts, int64_t n)
{
    int64_t group = p->heads / p->kv_heads, units = group * plan->blocks * plan->parts;
    int64_t bg = n / units, rest = n % units, bh = bg * group + rest % group;
    int64_t part = rest / group % plan->parts, step = rest / group / plan->parts;
    int64_t block = plan->threads > 1 ? plan->blocks - 1 - step : step;
    struct attn_tile_forward job = {.p = p, .t = t, .runs = runs, .rescale_at = plan->rescale_at};
    job.in_cache = step > 0 && stays_in_cache(p, plan);
    job.b = bh / p->heads, job.h = bh % p->heads;
    job.i0 = block * plan->block, job.i1 = less(job.i0 + plan->block, p->n_query);
    job.j0 = part * plan->part, job.j1 = less(job.j0 + plan->part, p->n_key);
    if (plan->parts > 1) {
        int64_t row = bh * p->n_query + job.i0;
        job.o_part = attn_parts_o(parts, part, row);
        job.lse_part = attn_parts_lse(parts, part, row);
    }
    return job;
}

static void run(const struct attn_problem *p, const struct attn_forward *t, struct attn_runs runs,
                const struct plan *plan, const struct attn_buffer *buffer)
{
    int64_t rows = p->batch * p->heads * p->n_query;
    struct attn_parts parts = {plan->kernels, plan->parts, rows, buffer + ATTN_WORKSPACES};
#pragma omp parallel num_threads(plan->threads) if (plan->threads > 1)
    {
#pragma omp for schedule(dynamic, 1)
        for (int64_t n = 0; n < plan->units; n++) {
            struct attn_tile_forward job = unit(p, t, runs, plan, &parts, n);
            for (int x = 0; x < ATTN_WORKSPACES; x++)
                job.ws[x] = attn_buffer_at(&buffer[x], omp_get_thread_num());
            plan->kernels->forward(&job);
        }
#pragma omp for schedule(static)
        for (int64_t n = 0; n < (plan->parts > 1 ? rows : 0); n++)
            attn_parts_merge_row(&parts, p, t, n);
    }
}

enum attn_status attn_tiled_forward(struct attn_ctx *ctx, const struct attn_problem *p,
                                    struct attn_runs runs, const struct attn_forward *t)
{
    struct plan plan;
    struct attn_buffer buffer[BUFFERS] = {0};
    enum attn_status status = make_plan(p, ctx->options, &plan, ctx->error);
    if (status == ATTN_OK && plan.few)
        return attn_decode_forward(&plan.decode, ctx, p, runs, t);
    if (status != ATTN_OK)
        return status;
    lay_out(p, &plan, buffer);
    status = attn_buffers_take(buffer, BUFFERS, ctx->ledger, ctx->error);
    if (status == ATTN_OK)
        run(p, t, runs, &plan, buffer);
    attn_buffers_give(buffer, BUFFERS, ctx->ledger);
    if (status == ATTN_OK)
        attn_leak_mend_forward(p, t, plan.kernels, plan.threads);
    return status;
}

/* ---- the record --------------------------------------------------------------------------- */

enum attn_status attn_tiled_cost(const struct attn_problem *p, const struct attn_options *opt,
                                 enum attn_pass pass, struct attn_cost *cost,
                                 struct attn_error *err)
{
    struct plan x;
    struct attn_buffer buffer[BUFFERS] = {0};
    if (pass == ATTN_BACKWARD)
        return attn_tiled_backward_cost(p, opt, cost, err);
    enum attn_status status = make_plan(p, opt, &x, err);
    if (status != ATTN_OK)
        return status;
    cost->flops = attn_problem_flops(p, pass, cost);
    if (x.few)
        return attn_decode_cost(p, &x.decode, cost, err);
    lay_out(p, &x, buffer);
    return attn_buffers_price(buffer, BUFFERS, cost, err);
}

static enum attn_status forward(struct attn_ctx *ctx, const struct attn_problem *p,
                                const struct attn_forward *t)
{
    return attn_tiled_forward(ctx, p, attn_runs_of(p), t);
}

static enum attn_status backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                 const struct attn_backward *t)
{
    return attn_tiled_backward(ctx, p, attn_runs_of(p), t);
}

static enum attn_status cost(const struct attn_problem *p, const struct attn_options *opt,
                             enum attn_pass pass, int rank, struct attn_cost *cost,
                             struct attn_error *err)
{
    (void)rank;
    return attn_tiled_cost(p, opt, pass, cost, err);
}

/* At most once a key block. */
static int64_t rescales(const struct attn_problem *p, const struct attn_options *opt)
{
    int few = p->n_query <= opt->value[OPTION_FEW];
    return ceil_div(p->n_key, few ? ATTN_SPLIT_KEYS : ATTN_KEY_BLOCK) + 1;
}

static int64_t merges(const struct attn_problem *p, const struct attn_options *opt)
{
    struct plan x;
    if (make_plan(p, opt, &x, NULL) != ATTN_OK)
        return 0;
    return (x.few ? x.decode.parts : x.parts) - 1;
}

const struct attn_impl attn_impl_tiled = {
    .name = "tiled",
    .summary = "online softmax over tiles, vectors over queries; nothing of size L x L",
    .family = "tiled",
    .caps = ATTN_CAPS_ALL,
    .options = options,
    .rescales = rescales,
    .merges = merges,
    .cost = cost,
    .forward = forward,
    .backward = backward,
    .precision = attn_kernels_precision,
    .simd = 1,
};
