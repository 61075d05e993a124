/* The forward pass of `tiled`: its units and their threads.
 *
 * Forward   a block of queries at a time, each on one thread; keys that a block cannot see are
 *           skipped, masks cost something at their edges only (simd/mask_cursor.h,
 *           simd/forward_tmpl.h).
 * Few queries against many keys (decoding): the keys are cut into parts, which are merged by their
 *           LSE in order; by rows instead of tiles, whose lanes would be mostly empty (decode.h).
 * Backward  by recomputation from LSE (tiled_backward.c).
 *
 * Plan      units and memory: tiled_plan.c; options and price: tiled.c.
 * Memory    a thread's workspace, whatever L is; with parts, their o and lse.
 * Threads   a query's result is made of its panel, key blocks and parts, which follow from problem
 *           and spec; threads only share blocks out.  Same bits for any number of them.
 * Source    Dao 2023 (FlashAttention-2); Dao et al. 2023 (Flash-Decoding) for the parts.
 */
#include "optimized/tiled.h"

#include <omp.h>

#include "optimized/integers.h"
#include "optimized/leak.h"
#include "optimized/tiled_plan.h"
#include "ref/problem.h"

/* Do K and V of a kv head stay in the cache until the next block of queries reads them? */
static int stays_in_cache(const struct attn_problem *p, const struct attn_tiled_plan *plan)
{
    double width = (double)p->d_key + (double)p->d_value;
    return (double)p->n_key * width * plan->kernels->bytes <= ATTN_NEAR_BYTES;
}

/* Unit n.  One kv head after the other, whose K and V stay in the cache if they are small.  Several
 * threads get long rows first, because under a causal mask the last blocks have the most to do; one
 * thread goes through memory upwards, as processors expect it (under a window, where every row of K
 * and V is soon left behind, that is 4 % of the time).  The heads of a group follow each other, for
 * they read the same keys. */
static struct attn_tile_forward unit(const struct attn_problem *p, const struct attn_forward *t,
                                     struct attn_runs runs, const struct attn_tiled_plan *plan,
                                     const struct attn_parts *parts, int64_t n)
{
    int64_t group = p->heads / p->kv_heads, units = group * plan->blocks * plan->parts;
    int64_t bg = n / units, rest = n % units, bh = bg * group + rest % group;
    int64_t part = rest / group % plan->parts, step = rest / group / plan->parts;
    int64_t block = plan->threads > 1 ? plan->blocks - 1 - step : step;
    struct attn_tile_forward job = {.p = p, .t = t, .runs = runs, .rescale_at = plan->rescale_at};
    job.in_cache = step > 0 && stays_in_cache(p, plan);
    job.at.b = bh / p->heads, job.at.h = bh % p->heads;
    job.at.i0 = block * plan->block, job.at.i1 = less(job.at.i0 + plan->block, p->n_query);
    job.at.j0 = part * plan->part, job.at.j1 = less(job.at.j0 + plan->part, p->n_key);
    if (plan->parts > 1) {
        int64_t row = bh * p->n_query + job.at.i0;
        job.o_part = attn_parts_o(parts, part, row);
        job.lse_part = attn_parts_lse(parts, part, row);
    }
    return job;
}

static void run(const struct attn_problem *p, const struct attn_forward *t, struct attn_runs runs,
                const struct attn_tiled_plan *plan, const struct attn_buffer *buffer)
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
    struct attn_tiled_plan plan;
    struct attn_buffer buffer[ATTN_TILED_BUFFERS] = {0};
    enum attn_status status = attn_tiled_plan_make(p, ctx->options, &plan, ctx->error);
    if (status == ATTN_OK && plan.few)
        return attn_decode_forward(&plan.decode, ctx, p, runs, t);
    if (status != ATTN_OK)
        return status;
    attn_tiled_buffers(p, &plan, buffer);
    status = attn_buffers_take(buffer, ATTN_TILED_BUFFERS, ctx->ledger, ctx->error);
    if (status == ATTN_OK)
        run(p, t, runs, &plan, buffer);
    attn_buffers_give(buffer, ATTN_TILED_BUFFERS, ctx->ledger);
    if (status == ATTN_OK)
        attn_leak_mend_forward(p, t, plan.kernels, plan.threads);
    return status;
}
