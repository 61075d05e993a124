/* megatron-sp: tensor parallelism inside the layer, shards of the sequence outside.  Every rank has
 * all tokens of some heads while it attends, which takes two exchanges of x-sized tensors:
 *
 *      x [B, L/R, C]  --all-gather-->  [B, L, C]  --Wqkv, its columns of H/R heads-->  q k v
 *      o of H/R heads  --Wo, its rows of these-->  a partial sum of y [B, L, C]
 *                                                              --reduce-scatter-->  [B, L/R, C]
 *
 * Backward the other way round: dY is gathered, dX reduced and scattered; x is gathered once more
 * for dWqkv, so that a rank keeps its tokens of x alone.  dWqkv and dWo are complete as they are,
 * but for kv heads that several ranks read.
 *
 * Memory   x of all tokens while it is projected, and y's partial sum of all tokens: L C numbers
 * each. Sent     forward 2, backward 3 times B L C (R-1)/R.  It does not fall with R.
 * Source   Korthikanti et al. 2022, section 4.2.2.
 */
#include "optimized/layer/layer_scheme.h"
#include "optimized/parallel/sent.h"

const struct attn_scheme attn_layer_own_heads = {.home = attn_layout_of_heads,
                                                 .work = attn_layout_of_heads};

static struct attn_sent sent(const struct attn_layer *layer, const struct attn_options *options,
                             enum attn_pass pass, int rank)
{
    const struct attn_problem p = attn_layer_problem(layer);
    struct attn_layout home = attn_layout_of_tokens(&p, options),
                       at_work = attn_layout_of_heads(&p, options);
    struct attn_sent sum = {0, 0};
    attn_layer_gather_sent(&sum, layer, &home, rank);
    attn_layer_scatter_sent(&sum, layer, &home, rank);
    if (pass == ATTN_BACKWARD) {
        attn_layer_gather_sent(&sum, layer, &home, rank);
        attn_layer_shared_heads_sent(&sum, layer, &at_work, rank);
    }
    return sum;
}

const struct attn_layer_scheme attn_layer_scheme_megatron_sp = {
    .record = {.name = "megatron-sp",
               .summary = "x gathered, heads on each rank, y reduced and scattered",
               .family = "layer",
               .options = attn_parallel_options,
               .ranks = attn_parallel_ranks,
               .scheme = &attn_layer_own_heads},
    .home = attn_layout_of_tokens,
    .sent = sent};
