/* Lab 03: the backward pass, with query heads that share keys and values.
 * docs/labs/03-backward/README.md is its page.
 *
 *      cc -O2 -shared -fPIC -I. -o lab.so docs/labs/03-backward/lab.c -lm
 *      attnlab grade 03 ./lab.so
 */
#include "docs/labs/lab.h"

/* Row i of O, and LSE_i.  s has room for a row. */
static void forward_row(attn_call *t, int64_t b, int64_t h, int64_t i, float *s)
{
    int64_t g = h / (t->heads / t->kv_heads);
    float *o = row_to(&t->o, b, h, i), m = -INFINITY, l = 0;
    for (int64_t j = 0; j < t->n_key; j++) {
        s[j] = score(t, b, h, g, i, j);
        m = s[j] <= m ? m : s[j];
    }
    set_zero(o, t->d_value);
    for (int64_t j = 0; j < t->n_key; j++)
        if (s[j] != -INFINITY) {
            float p = expf(s[j] - m);
            l += p;
            axpy(p, row_of(&t->v, b, g, j), o, t->d_value);
        }
    for (int64_t c = 0; c < t->d_value && l != 0; c++)
        o[c] /= l;
    *row_to(&t->lse, b, h, i) = l != 0 ? (m + logf(l)) / LSE_UNIT : -INFINITY;
}

static int forward(attn_call *t)
{
    float *s = malloc((size_t)(t->n_key + 1) * sizeof *s);
    for (int64_t b = 0; b < t->batch && s != NULL; b++)
        for (int64_t h = 0; h < t->heads; h++)
            for (int64_t i = 0; i < t->n_query; i++)
                forward_row(t, b, h, i, s);
    free(s);
    return s != NULL ? ATTN_PLUGIN_OK : ATTN_PLUGIN_FAILED;
}

/* YOURS: dQ, dK and dV from dO (and dLSE, if t->d_lse.data is not NULL).
 *
 *   given      q, k, v; o_in and lse_in, what forward wrote; d_o [B,H,Lq,dv], d_lse [B,H,Lq]
 *   to write   dq as q, dk as k, dv as v: row_to(&t->dk, b, g, j) is a row.  All of it: rows are
 *              NaN before, and set_zero_all(&t->dk) makes them 0 */
static int backward(attn_call *t)
{
    return not_written(t, "backward");
}

const struct attn_plugin *attn_plugin_get(void)
{
    static const struct attn_plugin lab = {
        .abi = ATTN_PLUGIN_ABI,
        .struct_size = sizeof lab,
        .name = "lab-03",
        .claims = ATTN_CAP_F32 | ATTN_CAP_GQA | ATTN_CAP_CROSS | ATTN_CAP_DV | ATTN_CAP_SCALE |
                  ATTN_CAP_DENSE | ATTN_CAP_EMPTY | ATTN_CAP_DLSE | ATTN_CAP_BACKWARD,
        .lse = TASK_LSE,
        .layout = TASK_LAYOUT,
        .byte = TASK_BYTE,
        .forward = forward,
        .backward = backward,
    };
    return &lab;
}
