/* ulysses: change what is sharded.  Attention needs all keys of a head, but only one head at a
 * time, so an all-to-all turns shards of tokens into shards of heads:
 *
 *      [B, H, L/R, d]  --all-to-all-->  [B, H/R, L, d]  --attention-->  [B, H/R, L, dv]
 *                                                   --all-to-all-->  [B, H, L/R, dv]
 *
 * Nothing has to divide: a rank has a run of heads and a run of tokens, and runs differ by one.
 * Its kv heads are those that its heads read.  Where there are fewer kv heads than ranks, or a
 * rank's heads begin inside a group, a kv head goes to several ranks, and the gradients of these
 * copies are added by the owner of the tokens.  A run of heads that cuts groups is up to three
 * local calls.  lse goes home with o.
 *
 * The backward takes q k v dO lse D to the heads and brings dQ dK dV back.
 *
 * keys=whole is for the attention of a video to a text: every rank has all of k and v, a short
 * text, and cuts out its heads.  Only q goes to its heads and o comes home; backward every rank
 * gets dK, dV of all heads (Open-Sora: split_forward_gather_backward).
 *
 * Memory   forward: q k v o lse of the rank's heads, plus what the local implementation takes for
 *          them;
 *          backward: q k v dO lse D dQ dK dV of them, plus the same, and after it the gradients of
 *          copies that come home.
 * Sent     of q dO lse D to each other rank its heads, and as many of k v; of o lse dQ dK dV to
 *          each other rank its tokens: one message for each tensor and rank.
 * Caveats  Ranks beyond the number of heads have nothing to compute.  No bias tensor: a rank would
 *          need the [L, L] planes of its heads, which are no shard of a sequence.
 * Source   Jacobs et al. 2023 (DeepSpeed-Ulysses); bugs SP-01 to SP-09.
 */
#include "optimized/parallel/sent.h"

enum { OPTION_KEYS = ATTN_PARALLEL_OPTIONS, OPTION_MASK };

static const struct attn_option options_of[] = {
    ATTN_OPTIONS_OF_ALL,
    [OPTION_KEYS] = {"keys", 0, 0, 1, "dealt whole",
                     "keys and values at home: dealt out as queries are, or whole on every rank"},
    [OPTION_MASK] = ATTN_OPTION_OF_MASK,
    {0}};

static struct attn_layout home(const struct attn_problem *whole, const struct attn_options *options)
{
    struct attn_layout layout = attn_layout_of_tokens(whole, options);
    layout.all_keys = layout.alike = (int)options->value[OPTION_KEYS];
    return layout;
}

static const struct attn_scheme ulysses = {.home = home,
                                           .work = attn_layout_of_heads,
                                           .mask = OPTION_MASK,
                                           .sent = attn_heads_for_tokens_sent};

ATTN_SCHEME(ulysses, ulysses, options_of,
            "shards of tokens become shards of heads by all-to-all, and back")
