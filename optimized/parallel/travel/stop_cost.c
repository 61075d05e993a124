/* The price of the products of a stop, and of the merges and sums of their results.  See
 * products.h. */
#include <string.h>

#include "optimized/parallel/local.h"
#include "optimized/parallel/travel/products.h"
#include "ref/problem.h"

/* w1 o + w2 o2 for each merge, one add for each element of a gradient. */
static double fold_flops(const struct attn_work *w, const struct attn_product *x)
{
    const struct attn_problem *p = &x->part;
    double rows = (double)(p->batch * p->heads * p->n_query);
    double keys = (double)(p->batch * p->kv_heads * p->n_key);
    if (w->pass == ATTN_FORWARD)
        return x->starts_query ? 0 : 3 * rows * (double)p->d_value;
    return (x->starts_query ? 0 : rows * (double)p->d_key) +
           (x->starts_key ? 0 : keys * (double)(p->d_key + attn_tag_width(ATTN_TAG_DV, p)));
}

/* Each flop of a merge or a sum is a pass over the whole block. */
static void add_fold(const struct attn_work *w, const struct attn_product *x,
                     struct attn_stop_cost *cost)
{
    const struct attn_problem *p = &x->part;
    double flops = fold_flops(w, x);
    int adds = (x->starts_query ? 0 : 1) + (x->starts_key ? 0 : p->kv_shared ? 1 : 2);
    cost->folds += flops;
    cost->passes += flops <= 0 ? 0 : w->pass == ATTN_FORWARD ? 3 : adds;
}

enum attn_status attn_work_stop_cost(struct attn_work *w, struct attn_stop_cost *cost,
                                     struct attn_error *err)
{
    const struct attn_options preset = attn_rank_local_options(w->options);
    struct attn_product x;
    memset(cost, 0, sizeof *cost);
    while (attn_work_next(w, &x)) {
        struct attn_cost local;
        enum attn_status status =
            attn_price(attn_rank_local(w->options), &preset, &x.part, w->pass, 0, &local, err);
        if (status != ATTN_OK)
            return status;
        cost->products++;
        cost->flops += local.flops;
        cost->pairs += local.pairs;
        cost->masked_flops += attn_piece_is_visible(&x.part) ? 0 : local.flops;
        add_fold(w, &x, cost);
        local.counted |= cost->largest.counted;
        cost->largest.counted = local.counted;
        if (cost->products == 1 || local.peak_bytes > cost->largest.peak_bytes)
            cost->largest = local;
    }
    return ATTN_OK;
}
