/* Lab 01, a solution: two passes over the scores of a query, the maximum first.  TASK_LSE and
 * TASK_LAYOUT are the conventions of a task (attnlab grade 01 --seed NAME). */
#include <math.h>
#include <stdlib.h>

#include "ref/attn_plugin.h"

#ifndef TASK_LSE
#define TASK_LSE    ATTN_PLUGIN_LSE_E
#define TASK_LAYOUT ATTN_PLUGIN_BHLD
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

/* One query: n_key scores, their softmax, a row of o and one number of lse. */
static void one_query(const struct attn_plugin_call *t, int64_t b, int64_t h, int64_t i, float *s)
{
    const float *q = row_of(&t->q, b, h, i), scale = (float)t->scale;
    float *o = row_to(&t->o, b, h, i), m = -INFINITY, l = 0;
    for (int64_t j = 0; j < t->n_key; j++) {
        s[j] = scale * dot(q, row_of(&t->k, b, h, j), t->d_key);
        m = fmaxf(m, s[j]);
    }
    for (int64_t c = 0; c < t->d_value; c++)
        o[c] = 0;
    for (int64_t j = 0; j < t->n_key; j++) {
        const float *v = row_of(&t->v, b, h, j), p = expf(s[j] - m);
        l += p;
        for (int64_t c = 0; c < t->d_value; c++)
            o[c] += p * v[c];
    }
    for (int64_t c = 0; c < t->d_value; c++)
        o[c] /= l;
    float lse = m + logf(l);
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
        .name = "lab-01",
        .claims = ATTN_CAP_F32 | ATTN_CAP_CROSS | ATTN_CAP_DV | ATTN_CAP_SCALE,
        .lse = TASK_LSE,
        .layout = TASK_LAYOUT,
        .forward = forward,
    };
    return &lab;
}
