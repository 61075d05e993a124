/* See csr_plan.h. */
#include "optimized/csr_plan.h"

#include <string.h>
#include <time.h>

#include "optimized/integers.h"
#include "ref/problem.h"

/* Rows in a unit, at most: the more, the more often a chunk is used while it is near.  A multiple
 * of every panel (2 to 16 lanes, three vectors).  Forward, a thread's workspace stays below 256 KiB
 * of floats at d = 64: larger blocks would be mapped, and their pages cleared, for every call. */
enum { MOST = 288, MOST_NEAR = 384 * 512 }; /* and their numbers */

enum attn_status attn_csr_plan_make(const struct attn_problem *p, const struct attn_options *opt,
                                    struct attn_csr_plan *plan, struct attn_error *err)
{
    memset(plan, 0, sizeof *plan);
    plan->kernels = attn_kernels_for(p, opt, err);
    if (plan->kernels == NULL)
        return ATTN_EINVAL;
    int64_t panel = plan->kernels->panel;
    plan->threads = (int)at_least_1(opt->threads);
    plan->wide = attn_whole_vectors(plan->kernels, p->d_key);
    plan->wide_v = attn_whole_vectors(plan->kernels, p->d_value);
    plan->copies =
        attn_dtype_size(p->dtype) == 2 || plan->wide != p->d_key || plan->wide_v != p->d_value;
    int64_t most = less(MOST, MOST_NEAR / at_least_1(plan->wide + plan->wide_v)) / panel;
    most = at_least_1(less(most, ceil_div(p->n_query, panel)));
    int64_t all = ceil_div(p->n_query, panel) * p->batch * p->heads;
    plan->most = most * panel;
    plan->block = plan->most;
    if (plan->threads > 1) /* four units a thread, if there are as many */
        plan->block = less(most, at_least_1(all / (4 * plan->threads))) * panel;
    plan->panels = less(ATTN_MAX_PANELS / 2, most);
    return ATTN_OK;
}

/* ---- time ---------------------------------------------------------------------------------- */

void attn_csr_step_add(struct attn_ctx *ctx, const char *name, double seconds)
{
    if (ctx->ranks == NULL)
        return;
    struct attn_rank_use *use = &ctx->ranks[0];
    int n = 0;
    while (n < use->n_steps && strcmp(use->step[n].name, name) != 0)
        n++;
    if (n == ATTN_MAX_STEPS)
        return;
    if (n == use->n_steps)
        use->step[use->n_steps++] = (struct attn_step){name, 0};
    use->step[n].seconds += seconds;
}
