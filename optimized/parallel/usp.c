/* usp: Ulysses and ring together.  heads=U ranks share a place of the sequence and exchange tokens
 * for heads; the R/U places form a ring, one for each run of heads:
 *
 *      rank      0         1         2         3              U = 2, R = 4
 *      home      t0 t1     t2 t3     t4 t5     t6 t7          all heads
 *      work      t0..t3    t0..t3    t4..t7    t4..t7         ranks 0, 2: the first half of the
 *                h0        h1        h0        h1             heads, 1, 3: the second
 *      ring      0 <-> 2 with h0,   1 <-> 3 with h1
 *
 * U is bounded by the number of heads, R/U is not: that is why the two are combined.  heads=R is
 * ulysses, heads=1 is ring.  order= is that of the ring's places; what a place has is cut into runs
 * for its U ranks.
 *
 * Memory   what ulysses takes for its heads of a place's tokens, and what ring takes for them.
 * Sent     what ulysses sends inside a place, and what ring sends of the rank's heads.
 * Caveats  as of both.  A ring whose rank has no head sends empty messages.
 * Source   Fang & Zhao 2024 (USP); Gu et al. 2024, LoongTrain (heads first, then context).
 */
#include "optimized/parallel/ring.h"
#include "ref/problem.h"

enum { OPTION_INNER = ATTN_OPTION_ORDER + 1, OPTION_HEADS, OPTION_MASK };

static const struct attn_option options_of[] = {
    ATTN_OPTIONS_OF_ALL,
    [ATTN_OPTION_ORDER] = ATTN_OPTION_OF_ORDER,
    [OPTION_INNER] = {"inner", 0, 0, ATTN_MAX_RANKS, NULL,
                      "places of a window in a double ring; divides them; 0: one ring"},
    [OPTION_HEADS] = {"heads", 0, 0, ATTN_MAX_RANKS, NULL,
                      "ranks that share a place, each with a run of heads; divides ranks; 0: "
                      "their largest divisor up to the root"},
    [OPTION_MASK] = ATTN_OPTION_OF_MASK,
    {0}};

static int members(const struct attn_options *options)
{
    int heads = (int)options->value[OPTION_HEADS], ranks = attn_parallel_ranks(options), root = 1;
    while ((root + 1) * (root + 1) <= ranks)
        root++;
    return heads > 0 ? heads : attn_largest_divisor(ranks, root);
}

static int places(const struct attn_options *options)
{
    return attn_parallel_ranks(options) / members(options);
}

static struct attn_ring ring_of(const struct attn_options *options)
{
    int inner = (int)options->value[OPTION_INNER];
    return (struct attn_ring){
        {places(options), members(options)}, inner > 0 ? inner : places(options), "places"};
}

static struct attn_layout home(const struct attn_problem *whole, const struct attn_options *options)
{
    (void)whole;
    return (struct attn_layout){.ranks = attn_parallel_ranks(options),
                                .order = (enum attn_order)options->value[ATTN_OPTION_ORDER],
                                .tokens = {places(options), members(options)},
                                .runs = {members(options), 1}};
}

static struct attn_layout work(const struct attn_problem *whole, const struct attn_options *options)
{
    struct attn_layout layout = home(whole, options);
    layout.heads = layout.runs;
    layout.runs = (struct attn_axis){0, 0};
    return layout;
}

static enum attn_status accepts(const struct attn_problem *whole,
                                const struct attn_options *options, struct attn_error *err)
{
    int ranks = attn_parallel_ranks(options), heads = members(options);
    if (ranks % heads == 0)
        return attn_ring_accepts(whole, options, err);
    return attn_fail(err, ATTN_ENOTSUP,
                     "usp:ranks=%d,heads=%d: %d does not divide %d ranks; heads=%d would work",
                     ranks, heads, heads, ranks, attn_largest_divisor(ranks, heads));
}

static struct attn_sent sent(const struct attn_work *w)
{
    return attn_sent_both(attn_heads_for_tokens_sent(w), attn_ring_sent(w));
}

static const struct attn_scheme usp = {.home = home,
                                       .work = work,
                                       .ring = ring_of,
                                       .mask = OPTION_MASK,
                                       .sent = sent,
                                       .accepts = accepts};

ATTN_SCHEME(usp, usp, options_of, "Ulysses inside a place of the sequence, a ring over the places")
