/* batch: data parallelism, as a measure for the others.  Every rank has some batches, and nothing
 * is exchanged.  A batch of one cannot be divided: that is what sequence parallelism is for.
 *
 * Memory   what the local implementation takes for the rank's batches.
 * Sent     nothing.
 */
#include "optimized/parallel/schedule.h"

static struct attn_layout layout(const struct attn_problem *whole,
                                 const struct attn_options *options)
{
    int ranks = attn_parallel_ranks(options);
    (void)whole;
    return (struct attn_layout){.ranks = ranks, .batches = {ranks, 1}};
}

static const struct attn_scheme batch = {.name = "batch", .home = layout, .work = layout};

ATTN_SCHEME(batch, batch, attn_parallel_options, "data parallel: some batches on each rank")
