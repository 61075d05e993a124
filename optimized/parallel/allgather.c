/* allgather: every rank gets all keys and values, and computes its own queries.
 *
 *      [B, G, L/R, d]  --all-gather-->  [B, G, L, d]  --attention, L/R queries-->  [B, H, L/R, dv]
 *
 * Backward: the same gather; dK, dV of all keys are partial sums on every rank, and a
 * reduce-scatter adds them at home.  stride=S gathers S kv heads at a time, one portion after the
 * other, which bounds the memory that grows with L (Llama 3 trains so; "heads_k_stride" in
 * ring-flash-attention).  order= is that of queries and keys at home; keys are gathered in the
 * order of the sequence.  save=kv keeps the gathered K, V for the backward pass, which then sends
 * dK, dV alone.
 *
 * Memory   K, V of all tokens of a portion; backward dK, dV of them too, and while they are added
 *          what the other ranks have of the rank's own tokens.  save=kv: K, V between the passes
 *          too.
 * Sent     forward: the rank's K,V, R-1 times; backward the same, and dK,dV of all tokens of the
 *          others: as much as a ring, in R-1 messages a tensor and portion, none behind arithmetic.
 * Caveats  No bias tensor, as in ring.
 * Source   Llama Team 2024, section 3.3.2; zhuzilin/ring-flash-attention (llama3_flash_attn).
 */
#include "optimized/integers.h"
#include "optimized/parallel/sent.h"
#include "ref/problem.h"

enum { OPTION_STRIDE = ATTN_OPTION_ORDER + 1, OPTION_SAVE, OPTION_MASK };

static const struct attn_option options_of[] = {
    ATTN_OPTIONS_OF_ALL,
    [ATTN_OPTION_ORDER] = ATTN_OPTION_OF_ORDER,
    [OPTION_STRIDE] = {"stride", 0, 0, 1 << 16, NULL,
                       "kv heads that are gathered at a time; 0: all"},
    [OPTION_SAVE] = {"save", 0, 0, 1, "nothing kv",
                     "what the forward pass leaves to the backward one, which then gathers "
                     "nothing; needs stride=0"},
    [OPTION_MASK] = ATTN_OPTION_OF_MASK,
    {0}};

static struct attn_layout work(const struct attn_problem *whole, const struct attn_options *options)
{
    struct attn_layout layout = attn_layout_in_order(whole, options);
    layout.all_keys = 1;
    return layout;
}

static int64_t stride(const struct attn_options *options)
{
    return options->value[OPTION_STRIDE];
}

static int saves(const struct attn_options *options)
{
    return (int)options->value[OPTION_SAVE];
}

static enum attn_status accepts(const struct attn_problem *whole,
                                const struct attn_options *options, struct attn_error *err)
{
    (void)whole;
    if (!saves(options) || stride(options) == 0)
        return ATTN_OK;
    return attn_fail(err, ATTN_ENOTSUP,
                     "allgather:stride=%lld,save=kv: K and V of all heads are kept, so a stride "
                     "would bound nothing; stride=0 would work, or save=nothing",
                     (long long)stride(options));
}

static struct attn_sent sent(const struct attn_work *w)
{
    const struct attn_problem *p = &w->stored.whole;
    int64_t mine = attn_layout_box(&w->stored.home, p, 1, w->rank).tokens, ranks = w->work.ranks;
    int64_t at_once = stride(w->options) > 0 ? stride(w->options) : p->kv_heads;
    int64_t owners = less(ranks, p->n_key) - (mine > 0); /* beside this rank */
    int gathers = w->pass == ATTN_FORWARD || !saves(w->options);
    struct attn_sent sent = {0, 0};
    for (int64_t done = 0; done < p->kv_heads; done += at_once) {
        int64_t rows = p->batch * less(at_once, p->kv_heads - done), out = gathers ? mine : 0;
        attn_sent_add(&sent, ranks - 1, (ranks - 1) * rows * out * attn_row_bytes(p, ATTN_TAG_K));
        attn_sent_add(&sent, ranks - 1, (ranks - 1) * rows * out * attn_row_bytes(p, ATTN_TAG_V));
        if (w->pass == ATTN_FORWARD)
            continue;
        rows *= p->n_key - mine;
        attn_sent_add(&sent, owners, rows * attn_sum_row_bytes(p, ATTN_TAG_DK));
        attn_sent_add(&sent, owners, rows * attn_sum_row_bytes(p, ATTN_TAG_DV));
    }
    return sent;
}

static const struct attn_scheme allgather = {.home = attn_layout_in_order,
                                             .work = work,
                                             .mask = OPTION_MASK,
                                             .kv_heads_at_once = stride,
                                             .saves_keys = saves,
                                             .sent = sent,
                                             .accepts = accepts};

ATTN_SCHEME(allgather, allgather, options_of,
            "every rank gets all keys and values, some heads at a time, for its own queries")
