/* heads: tensor parallelism, as a measure for the others.  Every rank has all tokens of some heads,
 * and attention needs no exchange at all; what is exchanged is outside it (the output projection of
 * a layer).  A rank's inputs and outputs are 1/R of the whole, like those of a shard of the
 * sequence, but in the rest of a network every rank holds all tokens.
 *
 * A kv head that several ranks read belongs to the first of them; it is sent to the others, and the
 * gradients of these copies are added there.
 *
 * Memory   what the local implementation takes for L tokens of H/R heads, and copies of kv heads.
 * Sent     nothing, unless kv heads are shared: then K,V of them, backward dK,dV too.
 * Caveats  Ranks beyond the number of heads have nothing to compute.
 * Source   Shoeybi et al. 2019 (Megatron-LM).
 */
#include "optimized/integers.h"
#include "optimized/parallel/sent.h"
#include "ref/problem.h"

static struct attn_layout home(const struct attn_problem *whole, const struct attn_options *options)
{
    struct attn_layout layout = attn_layout_of_heads(whole, options);
    layout.kv_owners = 1;
    return layout;
}

static struct attn_sent sent(const struct attn_work *w)
{
    const struct attn_layout *owned = &w->stored.home, *read = &w->stored.work;
    const struct attn_problem *p = &w->stored.whole;
    struct attn_tokens mine = attn_layout_box(owned, p, 1, w->rank).heads;
    struct attn_tokens here = attn_layout_box(read, p, 1, w->rank).heads;
    struct attn_sent sent = {0, 0};
    for (int r = 0; r < less(owned->ranks, p->heads); r++) { /* others have none */
        struct attn_tokens theirs = attn_layout_box(owned, p, 1, r).heads;
        struct attn_tokens there = attn_layout_box(read, p, 1, r).heads;
        int64_t out = p->batch * p->n_key * attn_tokens_common(&mine, &there).n;
        int64_t back = p->batch * p->n_key * attn_tokens_common(&here, &theirs).n;
        if (r == w->rank)
            continue;
        attn_sent_add(&sent, 1, out * attn_row_bytes(p, ATTN_TAG_K));
        attn_sent_add(&sent, 1, out * attn_row_bytes(p, ATTN_TAG_V));
        if (w->pass == ATTN_FORWARD)
            continue;
        attn_sent_add(&sent, 1, back * attn_sum_row_bytes(p, ATTN_TAG_DK));
        attn_sent_add(&sent, 1, back * attn_sum_row_bytes(p, ATTN_TAG_DV));
    }
    return sent;
}

static const struct attn_scheme heads = {.home = home, .work = attn_layout_of_heads, .sent = sent};

ATTN_SCHEME(heads, heads, attn_parallel_options,
            "tensor parallel: all tokens of some heads on each rank")
