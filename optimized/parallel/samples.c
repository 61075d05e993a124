/* samples: the batch-to-sequence exchange.  A loader gives every rank whole samples of its own, as
 * in data parallelism.  One all-to-all makes of them a part of the tokens of all samples, and then
 * attention is that of ulysses:
 *
 *      [B/R, H, L, d]  --all-to-all-->  [B, H, L/R, d]  --all-to-all-->  [B, H/R, L, d]
 *       own samples                      all samples                      attention, and back
 *
 * Why not stay with own samples, which sends nothing (batch)?  Because a network may now work on
 * one sample after the other, on all ranks at once: activations of a sample are L/R on a rank.  In
 * Open-Sora-Plan the first exchange is made once a step, of the latents, and the second one in
 * every block; this library begins at q, k, v, so both are made for each of its tensors, in each
 * call.
 *
 * Nothing has to divide: B samples are dealt out as they come, a rank may have none.
 *
 * Memory   as ulysses, and the largest of its tensors once more: a tensor between the two
 *          exchanges.
 * Sent     of each tensor on its way there, to each other rank, that one's tokens of the rank's own
 *          samples, and then what ulysses sends; on its way back the same in reverse.
 * Caveats  as ulysses.  With fewer samples than ranks some ranks begin empty.  Masks are not sent:
 *          Open-Sora-Plan repeats them R times to send them through the same all-to-all (issue
 *          373), which is an all-gather with a send buffer R times too large.
 * Source   Open-Sora-Plan v1.2 (opensora/utils/communications.py: prepare_parallel_data).
 */
#include "optimized/parallel/sent.h"

enum { OPTION_MASK = ATTN_PARALLEL_OPTIONS };

static const struct attn_option options_of[] = {
    ATTN_OPTIONS_OF_ALL, [OPTION_MASK] = ATTN_OPTION_OF_MASK, {0}};

static struct attn_sent sent(const struct attn_work *w)
{
    return attn_sent_both(attn_tokens_for_batches_sent(w), attn_heads_for_tokens_sent(w));
}

static const struct attn_scheme samples = {.home = attn_layout_of_batches,
                                           .via = attn_layout_of_runs,
                                           .work = attn_layout_of_heads,
                                           .mask = OPTION_MASK,
                                           .sent = sent};

ATTN_SCHEME(samples, samples, options_of,
            "whole samples become tokens of all samples (batch to sequence), then heads")
