/* ring: queries stay, keys and values travel.  A rank has the queries, keys and values of its own
 * tokens; in P stops it sees every block of keys once, and P-1 times it hands the block it holds to
 * the next rank and gets another from the previous one.
 *
 *      stop      rank 0    rank 1    rank 2    rank 3         one ring: at stop s, rank r holds
 *      0         K0        K1        K2        K3             block r - s
 *      1         K3        K0        K1        K2
 *      2         K2        K3        K0        K1
 *      3         K1        K2        K3        K0
 *
 * inner=W makes windows of W ranks: blocks go round inside a window, W-1 hops, then all of them hop
 * to the next window (double ring: the slow links between machines carry one hop in W).
 *
 * order= says which tokens a rank has (rank_layout.h).  Under a causal mask, contiguous blocks give
 * the last rank P blocks to compute and the first one; striped and zigzag give all ranks nearly the
 * same.  A zigzag block is two stretches of tokens, so a stop multiplies 2 x 2 pairs of stretches.
 *
 * Backward: dQ is summed where it is; dK and dV are summed in two tensors that travel with their
 * block, one hop more than K and V: the last one brings them home.
 *
 * Memory   forward: 2 blocks of K,V besides the own (1 for P = 2), one partial (O, LSE);
 *          backward: the same blocks, one dK,dV on its way (2 where blocks differ in size), one
 *          partial dQ, one partial dK,dV, D;
 *          both plus what the local implementation takes for the largest product.
 * Sent     forward: every block of K,V but one;  backward: the same, and every block of dK,dV.
 * Caveats  No bias tensor: a rank would need its rows of an L x L object.
 * Source   Liu et al. 2023 (ring); Brandon et al. 2023 (striped); Gu et al. 2024, LoongTrain
 *          (double ring); bugs SP-16 to SP-22.
 */
#include "optimized/parallel/schedule.h"

enum { OPTION_INNER = ATTN_OPTION_ORDER + 1, OPTION_MERGING };

static const struct attn_option options_of[] = {
    ATTN_OPTIONS_OF_ALL,
    [ATTN_OPTION_ORDER] = ATTN_OPTION_OF_ORDER,
    [OPTION_INNER] = {"inner", 0, 0, ATTN_MAX_RANKS, NULL,
                      "ranks of a window in a double ring; divides ranks; 0: one ring"},
    [OPTION_MERGING] = ATTN_OPTIONS_OF_MERGING,
    {0}};

static struct attn_ring ring_of(const struct attn_options *options)
{
    int ranks = attn_parallel_ranks(options), inner = (int)options->value[OPTION_INNER];
    return (struct attn_ring){{ranks, 1}, inner > 0 ? inner : ranks, "ranks"};
}

static const struct attn_scheme ring = {.home = attn_layout_in_order,
                                        .work = attn_layout_in_order,
                                        .ring = ring_of,
                                        .merging = OPTION_MERGING};

ATTN_SCHEME(ring, ring, options_of,
            "queries stay, keys and values travel, partial results merge by LSE")
