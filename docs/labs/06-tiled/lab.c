/* Lab 06: attention in tiles, forward and backward.
 * docs/labs/06-tiled/README.md is its page.
 *
 *      cc -O2 -shared -fPIC -I. -o lab.so docs/labs/06-tiled/lab.c -lm
 *      attnlab grade 06 ./lab.so
 */
#include "docs/labs/lab.h"

enum { BR = 16, BC = 24 }; /* queries and keys of a tile */

/* s = the scores of queries [i0,i1) and keys [j0,j1). */
static void tile_scores(attn_call *t, int64_t b, int64_t h, int64_t i0, int64_t i1, int64_t j0,
                        int64_t j1, float s[BR][BC])
{
    int64_t g = h / (t->heads / t->kv_heads);
    for (int64_t i = i0; i < i1; i++)
        for (int64_t j = j0; j < j1; j++)
            s[i - i0][j - j0] = score(t, b, h, g, i, j);
}

/* YOURS: o and lse, tile by tile.  No buffer may have a row for each query, or a number for each
 * key. */
static int forward(attn_call *t)
{
    (void)tile_scores;
    return not_written(t, "forward");
}

/* YOURS: dq, dk and dv from d_o, o_in and lse_in (what forward wrote).  One number for each query,
 * D, is the only buffer that may grow with the length.  set_zero_all(&t->dk) makes rows 0. */
static int backward(attn_call *t)
{
    return not_written(t, "backward");
}

const struct attn_plugin *attn_plugin_get(void)
{
    static const struct attn_plugin lab = {
        .abi = ATTN_PLUGIN_ABI,
        .struct_size = sizeof lab,
        .name = "lab-06",
        .claims = ATTN_CAP_F32 | ATTN_CAP_GQA | ATTN_CAP_CROSS | ATTN_CAP_DV | ATTN_CAP_SCALE |
                  ATTN_CAP_BAND | ATTN_CAP_DENSE | ATTN_CAP_EMPTY | ATTN_CAP_BACKWARD,
        .lse = TASK_LSE,
        .layout = TASK_LAYOUT,
        .byte = TASK_BYTE,
        .block = BC, /* keys between two rescales */
        .forward = forward,
        .backward = backward,
    };
    return &lab;
}
