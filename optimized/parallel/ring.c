/* ring: queries stay, keys and values travel.  A rank has the queries, keys and values of its own
 * tokens; in R stops it sees every block of keys once, and R-1 times it hands the block it holds to
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
 * the last rank R blocks to compute and the first one; striped and zigzag give all ranks nearly the
 * same.  A zigzag block is two stretches of tokens, so a stop multiplies 2 x 2 pairs of stretches.
 *
 * Backward: dQ is summed where it is; dK and dV are summed in two tensors that travel with their
 * block, one hop more than K and V: the last one brings them home.
 *
 * V that is a view of K travels as K alone, and dK, dV as one sum.
 *
 * Memory   forward: 2 blocks of K,V besides the own (1 for R = 2), one partial (O, LSE);
 *          backward: the same blocks, one dK,dV on its way (2 where blocks differ in size), one
 *          partial dQ, one partial dK,dV, D;
 *          both plus what the local implementation takes for the largest product.
 * Sent     forward: every block of K,V but one;  backward: the same, and every block of dK,dV.
 * Caveats  No bias tensor: a rank would need its rows of an L x L object.
 * Source   Liu et al. 2023 (ring); Brandon et al. 2023 (striped); Gu et al. 2024, LoongTrain
 *          (double ring); bugs SP-16 to SP-22.
 */
#include "optimized/parallel/ring.h"

#include "ref/problem.h"

/* ---- any ring -------------------------------------------------------------------------------- */

enum attn_status attn_ring_accepts(const struct attn_problem *whole,
                                   const struct attn_options *options, struct attn_error *err)
{
    const struct attn_ring ring = options->impl->scheme->ring(options);
    int n = ring.axis.parts, inner = ring.inner;
    (void)whole;
    if (n % inner == 0)
        return ATTN_OK;
    return attn_fail(err, ATTN_ENOTSUP,
                     "%s:%s=%d,inner=%d: windows of %d ranks do not fill %d; inner=%d would work",
                     options->impl->name, ring.places, n, inner, inner, n,
                     attn_largest_divisor(n, inner));
}

struct attn_sent attn_ring_sent(const struct attn_work *w)
{
    const struct attn_layout *work = &w->stored.work;
    const struct attn_problem *p = &w->stored.whole;
    struct attn_box own = attn_layout_box(work, p, 1, w->rank);
    int64_t last = attn_layout_box(work, p, 1, attn_work_stop(w, w->stops - 1).key).tokens;
    int64_t hops = w->stops - 1, heads = p->batch * own.heads.n;
    int64_t keys = attn_row_bytes(p, ATTN_TAG_K) + attn_row_bytes(p, ATTN_TAG_V);
    int64_t sums = attn_sum_row_bytes(p, ATTN_TAG_DK) + attn_sum_row_bytes(p, ATTN_TAG_DV);
    int64_t tensors = p->kv_shared ? 1 : 2;
    struct attn_sent sent = {heads * (p->n_key - last) * keys, tensors * hops};
    if (hops == 0)
        return (struct attn_sent){0, 0};
    if (w->pass == ATTN_BACKWARD) {
        sent.bytes += heads * p->n_key * sums;
        sent.messages += tensors * (hops + 1);
    }
    return sent;
}

/* ---- the scheme ------------------------------------------------------------------------------ */

enum { OPTION_INNER = ATTN_OPTION_ORDER + 1, OPTION_MASK };

static const struct attn_option options_of[] = {
    ATTN_OPTIONS_OF_ALL,
    [ATTN_OPTION_ORDER] = ATTN_OPTION_OF_ORDER,
    [OPTION_INNER] = {"inner", 0, 0, ATTN_MAX_RANKS, NULL,
                      "ranks of a window in a double ring; divides ranks; 0: one ring"},
    [OPTION_MASK] = ATTN_OPTION_OF_MASK,
    {0}};

static struct attn_ring ring_of(const struct attn_options *options)
{
    int ranks = attn_parallel_ranks(options), inner = (int)options->value[OPTION_INNER];
    return (struct attn_ring){{ranks, 1}, inner > 0 ? inner : ranks, "ranks"};
}

static const struct attn_scheme ring = {.home = attn_layout_in_order,
                                        .work = attn_layout_in_order,
                                        .ring = ring_of,
                                        .mask = OPTION_MASK,
                                        .sent = attn_ring_sent,
                                        .accepts = attn_ring_accepts};

ATTN_SCHEME(ring, ring, options_of,
            "queries stay, keys and values travel, partial results merge by LSE")
