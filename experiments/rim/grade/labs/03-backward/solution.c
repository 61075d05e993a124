/* Lab 03, a solution: section 5 of the chapter, one row of P and dS at a time. */
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

/* Adds the part of query i of query head h to dQ_i, dK and dV. */
static void backward_row(attn_call *t, int64_t b, int64_t h, int64_t i)
{
    int64_t g = h / (t->heads / t->kv_heads);
    const float *q = row_of(&t->q, b, h, i), *d_o = row_of(&t->d_o, b, h, i);
    float *dq = row_to(&t->dq, b, h, i), lse = *row_of(&t->lse_in, b, h, i) * LSE_UNIT;
    if (lse == -INFINITY)
        return; /* it sees no key */
    float D = dot(d_o, row_of(&t->o_in, b, h, i), t->d_value);
    if (t->d_lse.data != NULL)
        D -= *row_of(&t->d_lse, b, h, i);
    for (int64_t j = 0; j < t->n_key; j++) {
        if (!sees(t, b, h, i, j))
            continue;
        float p = expf(score(t, b, h, g, i, j) - lse);
        float dp = dot(d_o, row_of(&t->v, b, g, j), t->d_value);
        float dx = p * (dp - D) * (float)t->scale;
        axpy(p, d_o, row_to(&t->dv, b, g, j), t->d_value);
        axpy(dx, row_of(&t->k, b, g, j), dq, t->d_key);
        axpy(dx, q, row_to(&t->dk, b, g, j), t->d_key);
    }
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

static int backward(attn_call *t)
{
    set_zero_all(&t->dq);
    set_zero_all(&t->dk); /* before any head: the query heads of a group add to the same rows */
    set_zero_all(&t->dv);
    for (int64_t b = 0; b < t->batch; b++)
        for (int64_t h = 0; h < t->heads; h++)
            for (int64_t i = 0; i < t->n_query; i++)
                backward_row(t, b, h, i);
    return ATTN_PLUGIN_OK;
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
