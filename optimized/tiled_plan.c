/* See tiled_plan.h; and the record of `tiled`: its options and its price. */
#include "optimized/tiled_plan.h"

#include <string.h>

#include "optimized/integers.h"
#include "optimized/simd/isa.h"
#include "optimized/tiled.h"
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

enum {
    NEAR_BYTES =
        256 * 1024, /* Q and O of a block of queries, if they are to leave workspace, ...   */
    BLOCK_BYTES = 512 * 1024, /* ... and at most: a quarter and a half of a cache of 1 MiB       */
    ENOUGH_PANELS = 5,        /* in a block: K and V of a key block have been worth their way    */
    BLOCK_PANELS = 7          /* at most; all four are measured: docs/kernel.md, 4               */
};

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

enum attn_status attn_tiled_plan_make(const struct attn_problem *p, const struct attn_options *opt,
                                      struct attn_tiled_plan *plan, struct attn_error *err)
{
    memset(plan, 0, sizeof *plan);
    plan->kernels = attn_kernels_for(p, opt, err);
    if (plan->kernels == NULL)
        return ATTN_EINVAL;
    int64_t panel = plan->kernels->panel;
    plan->threads = (int)at_least_1(opt->threads);
    attn_parts_cut(p->n_key, ATTN_KEY_BLOCK, opt->value[OPTION_PARTS],
                   p->batch * p->heads * ceil_div(p->n_query, panel), &plan->parts, &plan->part);
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

void attn_tiled_buffers(const struct attn_problem *p, const struct attn_tiled_plan *x,
                        struct attn_buffer buffer[ATTN_TILED_BUFFERS])
{
    attn_forward_buffers(x->kernels, p, x->threads, x->panels, buffer);
    if (x->parts > 1)
        attn_parts_buffers(x->kernels, x->parts, p->batch * p->heads * p->n_query, p->d_value,
                           buffer + ATTN_WORKSPACES);
}

/* ---- the record --------------------------------------------------------------------------- */

static enum attn_status cost(const struct attn_problem *p, const struct attn_options *opt,
                             enum attn_pass pass, int rank, struct attn_cost *cost,
                             struct attn_error *err)
{
    (void)rank;
    struct attn_tiled_plan x;
    struct attn_buffer buffer[ATTN_TILED_BUFFERS] = {0};
    if (pass == ATTN_BACKWARD)
        return attn_tiled_backward_cost(p, opt, cost, err);
    enum attn_status status = attn_tiled_plan_make(p, opt, &x, err);
    if (status != ATTN_OK)
        return status;
    cost->flops = attn_problem_flops(p, pass, cost);
    if (x.few)
        return attn_decode_cost(p, &x.decode, cost, err);
    attn_tiled_buffers(p, &x, buffer);
    return attn_buffers_price(buffer, ATTN_TILED_BUFFERS, cost, err);
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

/* At most once a key block. */
static int64_t rescales(const struct attn_problem *p, const struct attn_options *opt)
{
    int few = p->n_query <= opt->value[OPTION_FEW];
    return ceil_div(p->n_key, few ? ATTN_SPLIT_KEYS : ATTN_KEY_BLOCK) + 1;
}

static int64_t merges(const struct attn_problem *p, const struct attn_options *opt)
{
    struct attn_tiled_plan x;
    if (attn_tiled_plan_make(p, opt, &x, NULL) != ATTN_OK)
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
