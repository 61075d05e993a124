/* See scheme.h. */
#include "optimized/parallel/scheme.h"

const struct attn_option attn_parallel_options[] = {ATTN_OPTIONS_OF_ALL, {0}};

int attn_parallel_ranks(const struct attn_options *options)
{
    return (int)options->value[ATTN_OPTION_RANKS];
}

int attn_largest_divisor(int n, int most)
{
    int d = most < n ? most : n;
    while (n % d != 0)
        d--;
    return d;
}

/* One thing is dealt out over all ranks. */
static struct attn_axis all_ranks(const struct attn_options *options)
{
    return (struct attn_axis){attn_parallel_ranks(options), 1};
}

struct attn_layout attn_layout_of_tokens(const struct attn_problem *whole,
                                         const struct attn_options *options)
{
    (void)whole;
    return (struct attn_layout){.ranks = attn_parallel_ranks(options),
                                .tokens = all_ranks(options)};
}

struct attn_layout attn_layout_in_order(const struct attn_problem *whole,
                                        const struct attn_options *options)
{
    struct attn_layout layout = attn_layout_of_tokens(whole, options);
    layout.order = (enum attn_order)options->value[ATTN_OPTION_ORDER];
    return layout;
}

struct attn_layout attn_layout_of_runs(const struct attn_problem *whole,
                                       const struct attn_options *options)
{
    (void)whole;
    return (struct attn_layout){.ranks = attn_parallel_ranks(options), .runs = all_ranks(options)};
}

struct attn_layout attn_layout_of_heads(const struct attn_problem *whole,
                                        const struct attn_options *options)
{
    (void)whole;
    return (struct attn_layout){.ranks = attn_parallel_ranks(options), .heads = all_ranks(options)};
}
