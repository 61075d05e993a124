/* Lab 01: a softmax that survives any scores, and dense attention around it.
 *
 *      cc -O2 -shared -fPIC -I. -o lab.so docs/labs/01-softmax/lab.c -lm
 *      attnlab grade 01 ./lab.so
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "ref/attn_plugin.h"

/* Row i of head h of batch b, whatever the layout: features lie side by side. */
static const float *row_of(const struct attn_plugin_in *t, int64_t b, int64_t h, int64_t i)
{
    return (const float *)t->data + b * t->stride[0] + h * t->stride[1] + i * t->stride[2];
}

static float *row_to(const struct attn_plugin_out *t, int64_t b, int64_t h, int64_t i)
{
    return (float *)t->data + b * t->stride[0] + h * t->stride[1] + i * t->stride[2];
}

/* One query: n_key scores, their softmax, a row of o and one number of lse. */
static int one_query(const struct attn_plugin_call *t, int64_t b, int64_t h, int64_t i)
{
    const float *q = row_of(&t->q, b, h, i);
    float *o = row_to(&t->o, b, h, i), *lse = row_to(&t->lse, b, h, i);
    (void)q, (void)o, (void)lse;
    snprintf(t->message, t->message_size, "one_query is not written yet");
    return ATTN_PLUGIN_FAILED;
}

static int forward(const struct attn_plugin_call *t)
{
    int status = ATTN_PLUGIN_OK;
    for (int64_t b = 0; b < t->batch; b++)
        for (int64_t h = 0; h < t->heads; h++)
            for (int64_t i = 0; i < t->n_query && status == ATTN_PLUGIN_OK; i++)
                status = one_query(t, b, h, i);
    return status;
}

/* Its claims and conventions: those of your task. */
const struct attn_plugin *attn_plugin_get(void)
{
    static const struct attn_plugin lab = {
        .abi = ATTN_PLUGIN_ABI,
        .struct_size = sizeof lab,
        .name = "lab-01",
        .claims = ATTN_CAP_F32 | ATTN_CAP_CROSS | ATTN_CAP_DV | ATTN_CAP_SCALE,
        .lse = ATTN_PLUGIN_LSE_E,
        .layout = ATTN_PLUGIN_BHLD,
        .forward = forward,
    };
    return &lab;
}
