/* batch: data parallelism, as a measure for the others.  Every rank has some batches, and nothing
 * is exchanged.  A batch of one cannot be divided: that is what sequence parallelism is for.
 *
 * Memory   what the local implementation takes for the rank's batches.
 * Sent     nothing.
 */
#include "optimized/parallel/schedule.h"

static const struct attn_option options_of[] = {
    ATTN_OPTION_OF_RANKS, ATTN_OPTION_OF_LOCAL, ATTN_OPTION_OF_SIZES, {0}};

static struct attn_layout layout(const struct attn_problem *whole,
                                 const struct attn_options *options)
{
    int ranks = attn_parallel_ranks(options);
    (void)whole;
    return (struct attn_layout){.ranks = ranks, .batches = {ranks, 1}};
}

static struct attn_sent sent(const struct attn_problem *whole, const struct attn_options *options,
                             enum attn_pass pass, int rank)
{
    (void)whole, (void)options, (void)pass, (void)rank;
    return (struct attn_sent){0, 0};
}

static const struct attn_scheme batch = {
    .name = "batch", .home = layout, .work = layout, .sent = sent};

ATTN_SCHEME(batch, batch, options_of, "data parallel: some batches on each rank")
