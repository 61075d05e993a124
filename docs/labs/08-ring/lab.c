/* Lab 08: a ring, one rank's code, forward and backward.
 *
 *      cc -O2 -shared -fPIC -I. -o lab.so docs/labs/08-ring/lab.c -lm
 *      attnlab grade 08 ./lab.so
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "ref/attn_plugin.h"

enum { RANKS = 4 };

/* K and V of one rank, [B,G,n_key,d] and [B,G,n_key,dv], contiguous; or their gradients. */
struct pair {
    float *k, *v;
};

/* Begin to send a pair to the next rank, and to receive one from the rank before.  k:
 * ATTN_PLUGIN_OF_K, or ATTN_PLUGIN_OF_DK of gradients; s: the step.  The lists may go when post()
 * returns, the data may not.  Returns the post, for wait(). */
static int post_hop(const struct attn_plugin_rank *rank, int k, int s, struct pair leaves,
                    struct pair comes)
{
    (void)rank, (void)k, (void)s, (void)leaves, (void)comes;
    return -1; /* rank->post(rank, send, 2, receive, 2) */
}

/* 1 if query i of this rank sees key j of rank J's block: the mask speaks of places in the
 * whole sequence (rank->call: banded, offset, window_left, window_right). */
static int sees(const struct attn_plugin_rank *rank, int J, int64_t i, int64_t j)
{
    (void)rank, (void)J, (void)i, (void)j;
    return 0;
}

static int rank_forward(const struct attn_plugin_rank *rank)
{
    const struct attn_plugin_call *t = rank->call; /* n_query, n_key: of this rank alone */
    (void)post_hop, (void)sees;
    snprintf(t->message, t->message_size, "rank_forward is not written yet");
    return ATTN_PLUGIN_FAILED;
}

static int rank_backward(const struct attn_plugin_rank *rank)
{
    const struct attn_plugin_call *t = rank->call;
    snprintf(t->message, t->message_size, "rank_backward is not written yet");
    return ATTN_PLUGIN_FAILED;
}

/* Its claims and conventions: those of your task. */
const struct attn_plugin *attn_plugin_get(void)
{
    static const struct attn_plugin lab = {
        .abi = ATTN_PLUGIN_ABI,
        .struct_size = sizeof lab,
        .name = "lab-08",
        .claims = ATTN_CAP_F32 | ATTN_CAP_BACKWARD | ATTN_CAP_GQA | ATTN_CAP_CROSS | ATTN_CAP_DV |
                  ATTN_CAP_SCALE | ATTN_CAP_CAUSAL,
        .lse = ATTN_PLUGIN_LSE_E,
        .causal = ATTN_PLUGIN_CAUSAL_ANY,
        .ranks = RANKS,
        .rank_forward = rank_forward,
        .rank_backward = rank_backward,
    };
    return &lab;
}
