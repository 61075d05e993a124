/* Lab 02, a solution: hidden keys are left out, not multiplied by 0.  TASK_LSE, TASK_LAYOUT and
 * TASK_BYTE are the conventions of a task (attnlab grade 02 --seed NAME). */
#include <math.h>
#include <stdlib.h>

#include "ref/attn_plugin.h"

#ifndef TASK_LSE
#define TASK_LSE    ATTN_PLUGIN_LSE_E
#define TASK_LAYOUT ATTN_PLUGIN_BHLD
#define TASK_BYTE   ATTN_PLUGIN_ONE_IS_VISIBLE
#endif

/* Row i of head h of batch b, whatever the layout: features lie side by side. */
static const float *row_of(const struct attn_plugin_in *t, int64_t b, int64_t h, int64_t i)
{
    return (const float *)t->data + b * t->stride[0] + h * t->stride[1] + i * t->stride[2];
}

static float *row_to(const struct attn_plugin_out *t, int64_t b, int64_t h, int64_t i)
{
    return (float *)t->data + b * t->stride[0] + h * t->stride[1] + i * t->stride[2];
}

static float dot(const float *a, const float *b, int64_t n)
{
    float sum = 0;
    for (int64_t c = 0; c < n; c++)
        sum += a[c] * b[c];
    return sum;
}

/* 1: query i sees key j; 0: it does not. */
static int sees(const struct attn_plugin_call *t, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const uint8_t *byte = t->mask.data;
    int64_t at = i + t->offset; /* the key that stands beside the query */
    if (t->banded)
        return (t->window_left < 0 || j >= at - t->window_left) &&
               (t->window_right < 0 || j <= at + t->window_right);
    if (byte == NULL)
        return 1;
    int is_one = byte[((b * t->heads + h) * t->n_query + i) * t->n_key + j];
    return is_one == (TASK_BYTE == ATTN_PLUGIN_ONE_IS_VISIBLE);
}

/* One query: the scores of the keys that it sees, their softmax, a row of o and one number of lse.
 * -INFINITY stands for a hidden key. */
static void one_query(const struct attn_plugin_call *t, int64_t b, int64_t h, int64_t i, float *s)
{
    const float *q = row_of(&t->q, b, h, i), scale = (float)t->scale;
    float *o = row_to(&t->o, b, h, i), m = -INFINITY, l = 0;
    for (int64_t j = 0; j < t->n_key; j++) {
        int is_seen = sees(t, b, h, i, j);
        s[j] = is_seen ? scale * dot(q, row_of(&t->k, b, h, j), t->d_key) : -INFINITY;
        m = fmaxf(m, s[j]);
    }
    for (int64_t c = 0; c < t->d_value; c++)
        o[c] = 0;
    for (int64_t j = 0; j < t->n_key; j++) {
        const float *v = row_of(&t->v, b, h, j);
        if (s[j] == -INFINITY)
            continue;
        float p = expf(s[j] - m);
        l += p;
        for (int64_t c = 0; c < t->d_value; c++)
            o[c] += p * v[c];
    }
    for (int64_t c = 0; c < t->d_value && l > 0; c++)
        o[c] /= l;
    float lse = l > 0 ? m + logf(l) : -INFINITY;
    *row_to(&t->lse, b, h, i) = TASK_LSE == ATTN_PLUGIN_LSE_2 ? lse * 1.44269504f : lse;
}

static int forward(const struct attn_plugin_call *t)
{
    float *s = malloc((size_t)(t->n_key + 1) * sizeof *s);
    for (int64_t b = 0; b < t->batch && s != NULL; b++)
        for (int64_t h = 0; h < t->heads; h++)
            for (int64_t i = 0; i < t->n_query; i++)
                one_query(t, b, h, i, s);
    free(s);
    return s != NULL ? ATTN_PLUGIN_OK : ATTN_PLUGIN_FAILED;
}

/* The claims of this code, by the conventions of the task. */
const struct attn_plugin *attn_plugin_get(void)
{
    static const struct attn_plugin lab = {
        .abi = ATTN_PLUGIN_ABI,
        .struct_size = sizeof lab,
        .name = "lab-02",
        .claims = ATTN_CAP_F32 | ATTN_CAP_CROSS | ATTN_CAP_DV | ATTN_CAP_SCALE | ATTN_CAP_BAND |
                  ATTN_CAP_DENSE | ATTN_CAP_HARD | ATTN_CAP_EMPTY,
        .lse = TASK_LSE,
        .layout = TASK_LAYOUT,
        .byte = TASK_BYTE,
        .forward = forward,
    };
    return &lab;
}
