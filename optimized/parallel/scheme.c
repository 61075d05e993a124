/* See scheme.h and parallel.h. */
#include "optimized/parallel/parallel.h"

#include <string.h>

#include "optimized/tiled.h"

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

struct attn_layout attn_layout_of_heads(const struct attn_problem *whole,
                                        const struct attn_options *options)
{
    (void)whole;
    return (struct attn_layout){.ranks = attn_parallel_ranks(options), .heads = all_ranks(options)};
}

/* ---- the local implementation ---------------------------------------------------------------- */

const struct attn_impl *attn_rank_local(const struct attn_options *options)
{
    return options->local != NULL ? options->local : &attn_impl_tiled;
}

struct attn_options attn_rank_local_options(const struct attn_options *options)
{
    struct attn_options own;
    attn_options_preset(attn_rank_local(options), &own);
    if (options->local != NULL)
        memcpy(own.value, options->local_value, sizeof own.value);
    own.isa = options->isa;
    own.priced_only = options->priced_only;
    return own;
}

enum attn_status attn_check_local(const struct attn_options *options, unsigned caps,
                                  struct attn_error *err)
{
    const struct attn_impl *local = attn_rank_local(options);
    unsigned missing = caps & ~local->caps;
    if (missing == 0)
        return ATTN_OK;
    return attn_fail(err, ATTN_ENOTSUP,
                     "%s:local=%s does not claim '%s', which this needs: local=tiled-textbook "
                     "would work",
                     options->impl->name, local->name, attn_cap_name(__builtin_ctz(missing)));
}

/* -D goes to the local implementation as dLSE, and O as one row with strides 0. */
enum attn_status attn_check_local_backward(const struct attn_options *options,
                                           struct attn_error *err)
{
    return attn_check_local(options, ATTN_CAP_BACKWARD | ATTN_CAP_DLSE | ATTN_CAP_STRIDES, err);
}
