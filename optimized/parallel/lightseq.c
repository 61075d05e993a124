/* lightseq: who would idle under a causal mask helps.  Blocks are contiguous; rank r multiplies its
 * own, and at distance t = 1, 2, ... sends to rank r + t what it needs:
 *
 *      t <= R/2, r + t < R      K,V of r to r+t, whose queries see them; backward dK,dV come back
 *      t <  R/2, r + t >= R     the queries of r to r+t-R, which sees nothing more itself and has
 *                               keys that r needs; O,LSE (backward dQ) come back and are merged
 *
 *      t         rank 0    rank 1    rank 2    rank 3         R = 4: (queries, keys) multiplied
 *      0         0,0       1,1       2,2       3,3
 *      1         3,0       1,0       2,1       3,2            rank 0 helps rank 3
 *      2         .         .         2,0       3,1
 *
 * so that R/2 + 1 stops do what takes a contiguous ring R.  K,V come from their owner and are not
 * passed on.  Blocks above the diagonal, which a causal mask hides, are multiplied like the first
 * kind, at distances up to R-1, where the mask shows something of them: any mask works, only causal
 * ones are balanced.  Of a block that the mask hides, as a window does far ones, nothing is sent.
 *
 * Memory   one block of K,V besides the own, one of q (backward q, dO, LSE, D), one partial O, LSE
 *          or dQ; backward two of dK,dV.
 * Sent     causal, in blocks: R(R-1) units over all ranks, two for K,V, two for q and O.
 * Caveats  No bias tensor, as in ring.
 * Source   Li et al. 2023 (LightSeq / DistFlashAttn).
 */
#include "optimized/integers.h"
#include "optimized/parallel/sent.h"
#include "optimized/parallel/travel/alike.h"
#include "optimized/parallel/travel/work_mask.h"
#include "ref/problem.h"

enum { OPTION_MERGING = ATTN_PARALLEL_OPTIONS, OPTION_PARTIALS, OPTION_MASK };

static const struct attn_option options_of[] = {ATTN_OPTIONS_OF_ALL,
                                                [OPTION_MERGING] = ATTN_OPTIONS_OF_MERGING,
                                                [OPTION_MASK] = ATTN_OPTION_OF_MASK,
                                                {0}};

/* Who multiplies these two blocks, if they are not of one rank: the rank of the keys, as a helper;
 * or the rank of the queries; or nobody, because nothing is visible. */
enum who { HELPER, OWNER, NOBODY };

static enum who multiplies(const struct attn_work *w, int query, int key)
{
    if (attn_blocks_hidden(w->whole, &w->work, query, key))
        return NOBODY;
    return 2 * (query - key) > w->work.ranks ? HELPER : OWNER;
}

/* Two for each distance: keys travel, then queries. */
static int stops(const struct attn_options *options)
{
    return 2 * attn_parallel_ranks(options) - 1;
}

static struct attn_stop stop(const struct attn_work *w, int n)
{
    int rank = w->rank, ranks = w->work.ranks, t = (n + 1) / 2;
    int after = (rank + t) % ranks, before = (rank - t + ranks) % ranks;
    struct attn_stop stop = {ATTN_NOTHING_TRAVELS, -1, -1, -1, -1};
    if (n % 2 == 1) {
        stop.travels = ATTN_KEYS_TRAVEL;
        if (multiplies(w, after, rank) == OWNER)
            stop.to = after;
        if (multiplies(w, rank, before) == OWNER)
            stop.from = before, stop.query = rank, stop.key = before;
    } else {
        stop.travels = ATTN_QUERIES_TRAVEL;
        if (multiplies(w, rank, after) == HELPER)
            stop.to = after;
        if (multiplies(w, before, rank) == HELPER)
            stop.from = before, stop.query = before, stop.key = rank;
    }
    return stop;
}

/* From `at` on, below all of these edges that lie behind it. */
static int until(int at, const int edge[5])
{
    int n = edge[4] - at;
    for (int e = 0; e < 4; e++)
        if (edge[e] > at)
            n = (int)less(n, edge[e] - at);
    return n;
}

/* Two stops for each distance.  What is helped, and what lies behind the last rank, changes at four
 * of them. */
static struct attn_round round_of(const struct attn_work *w, int n)
{
    int rank = w->rank, ranks = w->work.ranks, t = (n + 1) / 2;
    int after = (rank + t) % ranks, before = (rank - t + ranks) % ranks;
    const int edge[5] = {rank + 1, ranks - rank, ranks / 2 + 1, (ranks + 1) / 2, ranks};
    int times = until(t, edge);
    times = attn_work_alike(w, (struct attn_line){rank, before, 0, -1}, times);
    times = attn_work_alike(w, (struct attn_line){before, rank, -1, 0}, times);
    times = attn_work_alike(w, (struct attn_line){after, rank, 1, 0}, times);
    times = attn_work_alike(w, (struct attn_line){rank, after, 0, 1}, times);
    return (struct attn_round){2, times};
}

typedef int64_t row_bytes(const struct attn_problem *p, enum attn_tag_kind kind);

/* Written by pairs of blocks, which one rank multiplies or none; tensors of a block travel in a
 * message each. */
static struct attn_sent sent(const struct attn_work *w)
{
    const struct attn_layout *blocks = &w->stored.work;
    const struct attn_problem *p = &w->stored.whole;
    int back = w->pass == ATTN_BACKWARD;
    int64_t rows = p->batch * p->heads, keys = p->batch * p->kv_heads;
    int64_t lse = attn_row_bytes(p, ATTN_TAG_LSE);
    int64_t q =
        attn_row_bytes(p, ATTN_TAG_Q) + (back ? attn_row_bytes(p, ATTN_TAG_DO) + 2 * lse : 0);
    row_bytes *part = w->options->value[OPTION_PARTIALS] ? attn_row_bytes : attn_sum_row_bytes;
    int64_t result = back ? part(p, ATTN_TAG_DQ) : part(p, ATTN_TAG_O) + lse;
    int64_t kv = attn_row_bytes(p, ATTN_TAG_K) + attn_row_bytes(p, ATTN_TAG_V);
    int64_t dkv = part(p, ATTN_TAG_DK) + part(p, ATTN_TAG_DV);
    int64_t my_rows = rows * attn_layout_box(blocks, p, 0, w->rank).tokens;
    int64_t masks = attn_work_mask_travels(w), my_mask = masks * attn_work_mask_rows(w, w->rank);
    int64_t my_keys = keys * attn_layout_box(blocks, p, 1, w->rank).tokens;
    const int edge[5] = {w->rank - blocks->ranks / 2, w->rank, w->rank + 1,
                         w->rank + blocks->ranks / 2 + 1, blocks->ranks};
    struct attn_sent sent = {0, 0};
    for (int r = 0, n; r < blocks->ranks; r += n) {
        n = until(r, edge);
        if (r == w->rank)
            continue;
        n = attn_work_alike(w, (struct attn_line){r, w->rank, 1, 0}, n);
        n = attn_work_alike(w, (struct attn_line){w->rank, r, 0, 1}, n);
        enum who of_my_keys = multiplies(w, r, w->rank);
        enum who of_my_queries = multiplies(w, w->rank, r);
        int64_t its_rows = rows * attn_layout_box(blocks, p, 0, r).tokens;
        int64_t its_keys = keys * attn_layout_box(blocks, p, 1, r).tokens;
        if (of_my_keys == OWNER) /* K, V go there */
            sent.bytes += n * (my_keys * kv + my_mask), sent.messages += n * (2 + masks);
        if (of_my_keys == HELPER) /* its queries were here */
            sent.bytes += n * its_rows * result, sent.messages += n * (back ? 1 : 2);
        if (of_my_queries == HELPER)
            sent.bytes += n * my_rows * q, sent.messages += n * (back ? 4 : 1);
        if (of_my_queries == OWNER && back) /* its keys were here */
            sent.bytes += n * its_keys * dkv, sent.messages += n * 2;
    }
    return sent;
}

/* At distances t below R/2, of ranks t and more places behind the last. */
static int has_visitors(const struct attn_options *options, int rank)
{
    return rank < (attn_parallel_ranks(options) - 1) / 2;
}

static const struct attn_scheme lightseq = {.home = attn_layout_of_tokens,
                                            .work = attn_layout_of_tokens,
                                            .stops = stops,
                                            .stop = stop,
                                            .round = round_of,
                                            .has_visitors = has_visitors,
                                            .merging = OPTION_MERGING,
                                            .mask = OPTION_MASK,
                                            .sent = sent};

ATTN_SCHEME(lightseq, lightseq, options_of,
            "a causal ring in half the stops: ranks that would idle get queries")
