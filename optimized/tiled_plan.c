/* See tiled_plan.h. */
#include "optimized/tiled_plan.h"

#include <string.h>

#include "optimized/integers.h"
#include "optimized/simd/isa.h"
#include "optimized/tiled.h"
#include "ref/problem.h"

enum {
    NEAR_BYTES =
        256 * 1024, /* Q and O of a block of queries, if they are to leave workspace, ...   */
    BLOCK_BYTES = 512 * 1024, /* ... and at most: a quarter and a half of a cache of 1 MiB       */
    ENOUGH_PANELS = 5,        /* in a block: K and V of a key block have been worth their way    */
    BLOCK_PANELS = 7          /* at most; all four are measured: docs/kernel.md, 4               */
};

/* The panels that the busiest thread works through, if each head has `all` and a block takes n:
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
    if (opt->value[ATTN_TILED_PANELS] > 0)
        return opt->value[ATTN_TILED_PANELS];
    int64_t one = at_least_1((p->d_key + p->d_value) * k->panel * k->bytes);
    int64_t most = NEAR_BYTES / one, dear = BLOCK_BYTES / one;
    int64_t all = ceil_div(p->n_query, k->panel), heads = p->batch * p->heads;
    if (most < ENOUGH_PANELS)
        most = dear < ENOUGH_PANELS ? dear : ENOUGH_PANELS;
    most = most > BLOCK_PANELS ? BLOCK_PANELS : at_least_1(most);
    if (k->is_matrix) /* keys are copied and transposed once a block */
        most = ATTN_MAX_PANELS;
    most = most < all ? most : at_least_1(all);
    if (threads == 1 || heads == 0)
        return most;
    int64_t share = at_least_1(all * heads / (4 * threads)), fair = ceil_div(all * heads, threads);
    int64_t n = share < most ? share : most;
    while (n > 1 && 32 * busiest(heads, all, n, threads) > 33 * fair) /* 3 % */
        n--;
    return n;
}

const struct attn_kernels *attn_tiled_kernels(const struct attn_problem *p,
                                              const struct attn_options *opt,
                                              struct attn_error *err)
{
    const struct attn_kernels *kernels = attn_kernels_for(p, opt, err);
    return kernels != NULL && opt->value[ATTN_TILED_P] != 0 ? kernels->matrix : kernels;
}

enum attn_status attn_tiled_plan_make(const struct attn_problem *p, const struct attn_options *opt,
                                      struct attn_tiled_plan *plan, struct attn_error *err)
{
    memset(plan, 0, sizeof *plan);
    plan->kernels = attn_tiled_kernels(p, opt, err);
    if (plan->kernels == NULL)
        return ATTN_EINVAL;
    int64_t panel = plan->kernels->panel;
    plan->threads = (int)at_least_1(opt->threads);
    attn_parts_cut(p->n_key, ATTN_KEY_BLOCK, opt->value[ATTN_TILED_PARTS],
                   p->batch * p->heads * ceil_div(p->n_query, panel), &plan->parts, &plan->part);
    plan->panels = count_panels(p, opt, plan->kernels, plan->threads);
    plan->block = plan->panels * panel;
    plan->rescale_at = opt->value[ATTN_TILED_RESCALE] == 0 ? 4 : 0;
    plan->blocks = ceil_div(p->n_query, plan->block);
    plan->units = p->batch * p->heads * plan->blocks * plan->parts;
    plan->few = p->n_query <= opt->value[ATTN_TILED_FEW];
    attn_decode_plan(p, plan->kernels, opt->value[ATTN_TILED_PARTS], plan->threads, &plan->decode);
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
