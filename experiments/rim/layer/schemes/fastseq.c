/* fastseq: x is gathered before it is projected, one all-to-all brings o back.
 *
 *      x [B, L/R, C]  --all-gather-->  [B, L, C]  --Wqkv, the columns of H/R heads-->  q k v
 *      o [B, H/R, L, dv]  --all-to-all-->  [B, H, L/R, dv]  --all of Wo-->  y [B, L/R, C]
 *
 * In the backward a rank knows dX of all tokens, but only by its own heads: the sum over ranks is a
 * reduce-scatter.  The published code cuts its own tokens out of its own part instead: the terms of
 * all other heads are missing (mutant LY-01).  dWo is added over the ranks; dWqkv is complete but
 * for kv heads that several ranks read.
 *
 * Memory   x of all tokens while it is projected, dX of all tokens in the backward.
 * Sent     forward B L C (R-1)/R for x and 1/R of that for o; backward twice the former (x again,
 *          dX), the latter, and dWo by reduce-scatter and all-gather.
 * Source   hpcaitech/Open-Sora, pull request 21 (mode fastseq).
 */
#include "experiments/rim/layer/schemes/layer_scheme.h"
#include "optimized/parallel/sent.h"

/* Ranks have some heads of q k v, and all tokens of these; no exchange in attention. */
static const struct attn_scheme own_heads = {.home = attn_layout_of_heads,
                                             .work = attn_layout_of_heads};

static struct attn_sent sent(const struct attn_layer *layer, const struct attn_options *options,
                             enum attn_pass pass, int rank)
{
    const struct attn_problem p = attn_layer_problem(layer);
    struct attn_layout home = attn_layout_of_tokens(&p, options);
    struct attn_layout heads = attn_layout_of_heads(&p, options);
    struct attn_sent sum = {0, 0};
    int64_t one = layer->batch * layer->d_value * (int64_t)attn_dtype_size(layer->dtype);
    attn_layer_gather_sent(&sum, layer, &home, rank);
    for (int r = 0; r < home.ranks; r++) { /* o of its heads; dO of its tokens */
        int from = pass == ATTN_FORWARD ? rank : r, to = pass == ATTN_FORWARD ? r : rank;
        if (r != rank)
            attn_sent_add(&sum, 1,
                          one * attn_layout_box(&heads, &p, 0, from).heads.n *
                              attn_layout_box(&home, &p, 0, to).tokens);
    }
    if (pass == ATTN_BACKWARD) {
        attn_layer_scatter_sent(&sum, layer, &home, rank);
        attn_layer_all_reduce_sent(&sum, layer, home.ranks, rank, 0, 1);
        attn_layer_shared_heads_sent(&sum, layer, &heads, rank);
    }
    return sum;
}

const struct attn_layer_scheme attn_layer_scheme_fastseq = {
    .record = {.name = "fastseq",
               .summary = "x gathered, heads on each rank, o back by all-to-all",
               .family = "layer",
               .options = attn_parallel_options,
               .ranks = attn_parallel_ranks,
               .scheme = &own_heads},
    .home = attn_layout_of_tokens,
    .merges_at_home = 1,
    .sent = sent};
