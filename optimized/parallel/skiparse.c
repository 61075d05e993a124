/* skiparse: the scopes of a mask are shared out.  Under skiparse(single|group,k) a token sees those
 * of its own scope only, 1/k of all, so a rank that has whole scopes needs nothing else.  16
 * tokens, k = 2, 2 ranks; what stands there is the scope of each token:
 *
 *      home      rank 0 has tokens 0 to 7    0 1 0 1 0 1 0 1  0 1 0 1 0 1 0 1    single
 *                rank 1 has 8 to 15          0 0 1 1 0 0 1 1  0 0 1 1 0 0 1 1    group
 *
 *      [B, H, L/R, d]  --all-to-all-->  [B, H, L/k tokens of a scope, d]  --attention-->  and back
 *
 * exchange=
 *      heads     tokens for heads, as ulysses, then the heads' scopes one after the other
 *                (Open-Sora-Plan v1.3: the rearrangement runs after the all-to-all)
 *      scopes    tokens for scopes: heads are not divided.  With more ranks than scopes, as many
 *                ranks as divide them share a scope, each with some of its heads
 *
 * Messages land in the order of the scopes, so rearranging costs no memory and no time of its own.
 * Each scope is a problem of its own for the local implementation; where the mask says nothing
 * else, a dense one of L/k tokens.  A mask of `spatial` or `temporal` has scopes too.  Any length
 * and any number of ranks will do; the last runs of k may be cut.  Open-Sora-Plan pads L to a
 * multiple of k^2, as sizes=pad does, and the ranks must divide L and the heads.
 *
 * Memory   q k v o lse of the rank's scopes and heads, and what the local implementation takes for
 *          one scope; backward more, as in ulysses.
 * Sent     of q k v, backward dO lse D too, to each other rank what its scopes and heads need of
 *          the rank's tokens; of o lse, backward dQ dK dV, to each other rank its tokens.  As much
 *          as ulysses; but with few kv heads less, because scopes need no copies of them.
 * Caveats  Under a mask without scopes, tokens are exchanged for heads, as in ulysses.
 * Source   Open-Sora-Plan v1.3 (opensora/models/diffusion/opensora_v1_3/modules.py).
 */
#include "optimized/parallel/sent.h"
#include "ref/problem.h"

enum { OPTION_EXCHANGE = ATTN_PARALLEL_OPTIONS };
enum { HEADS, SCOPES };

static const struct attn_option options_of[] = {
    ATTN_OPTIONS_OF_ALL,
    [OPTION_EXCHANGE] = {"exchange", SCOPES, 0, 1, "heads scopes",
                         "what tokens are exchanged for: heads, or the scopes of the mask"},
    {0}};

static struct attn_scopes scopes_of(const struct attn_problem *whole)
{
    return attn_mask_scopes(attn_problem_is_whole(whole) ? whole->mask : NULL);
}

/* Ranks that share a scope: at least as many as are left when every scope has one; with pads, which
 * are of equal size everywhere, so many that the others divide the scopes. */
static int members(const struct attn_options *options, int64_t scopes)
{
    int ranks = attn_parallel_ranks(options);
    int even = options->value[ATTN_OPTION_SIZES] == ATTN_SIZES_PAD;
    int parts = attn_largest_divisor(ranks, scopes < ranks ? (int)scopes : ranks);
    if (options->value[OPTION_EXCHANGE] == HEADS)
        return ranks;
    while (even && scopes % parts != 0)
        parts = attn_largest_divisor(ranks, parts - 1);
    return ranks / parts;
}

static struct attn_layout work(const struct attn_problem *whole, const struct attn_options *options)
{
    struct attn_scopes x = scopes_of(whole);
    int ranks = attn_parallel_ranks(options);
    if (x.scopes == 0)
        return attn_layout_of_heads(whole, options);
    int shared = members(options, x.scopes);
    return (struct attn_layout){.ranks = ranks,
                                .order = ATTN_SCOPES,
                                .tokens = {ranks / shared, shared},
                                .heads = {shared, 1},
                                .scopes = x.scopes,
                                .run = x.run};
}

static struct attn_sent sent(const struct attn_work *w)
{
    return w->work.order == ATTN_SCOPES ? attn_scopes_for_tokens_sent(w)
                                        : attn_heads_for_tokens_sent(w);
}

static const struct attn_scheme skiparse = {
    .home = attn_layout_of_tokens, .work = work, .sent = sent};

ATTN_SCHEME(skiparse, skiparse, options_of,
            "scopes of a mask on each rank: Skiparse, single and group (Open-Sora-Plan)")
