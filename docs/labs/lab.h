/* The code that the labs share: rows in any layout, sums over a row, masks, and the conventions of
 * a task.  A plug-in of a lab includes it in place of ref/attn_plugin.h.
 *
 * `attnlab grade LAB [--seed NAME]` says which conventions are yours: define those of the
 * three that differ before you include this header.
 */
#ifndef DOCS_LABS_LAB_H
#define DOCS_LABS_LAB_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "ref/attn_plugin.h"

#ifndef TASK_LSE
#define TASK_LSE ATTN_PLUGIN_LSE_E /* or ATTN_PLUGIN_LSE_2 */
#endif
#ifndef TASK_LAYOUT
#define TASK_LAYOUT ATTN_PLUGIN_BHLD /* or ATTN_PLUGIN_BLHD, ATTN_PLUGIN_SBHD */
#endif
#ifndef TASK_BYTE
#define TASK_BYTE ATTN_PLUGIN_ONE_IS_VISIBLE /* or ATTN_PLUGIN_ONE_IS_HIDDEN */
#endif

/* The unit of an LSE tensor, in natural logarithms: lse[i] = (m + ln l) / LSE_UNIT. */
static const float LSE_UNIT = TASK_LSE == ATTN_PLUGIN_LSE_2 ? 0.693147181F : 1;

typedef const struct attn_plugin_call attn_call;

/* A skeleton returns this where your code is missing. */
static inline int not_written(attn_call *t, const char *function)
{
    snprintf(t->message, t->message_size, "%s is not written yet", function);
    return ATTN_PLUGIN_FAILED;
}

/* Row i of head h of batch b, to read and to write: its features lie side by side. */
static inline const float *row_of(const struct attn_plugin_in *x, int64_t b, int64_t h, int64_t i)
{
    return (const float *)x->data + b * x->stride[0] + h * x->stride[1] + i * x->stride[2];
}

static inline float *row_to(const struct attn_plugin_out *x, int64_t b, int64_t h, int64_t i)
{
    return (float *)x->data + b * x->stride[0] + h * x->stride[1] + i * x->stride[2];
}

static inline int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline void set_zero(float *x, int64_t n)
{
    for (int64_t c = 0; c < n; c++)
        x[c] = 0;
}

static inline void set_zero_all(const struct attn_plugin_out *x)
{
    for (int64_t b = 0; b < x->extent[0]; b++)
        for (int64_t h = 0; h < x->extent[1]; h++)
            for (int64_t i = 0; i < x->extent[2]; i++)
                set_zero(row_to(x, b, h, i), x->extent[3]);
}

static inline float dot(const float *x, const float *y, int64_t n)
{
    float sum = 0;
    for (int64_t c = 0; c < n; c++)
        sum += x[c] * y[c];
    return sum;
}

/* y += a x */
static inline void axpy(float a, const float *x, float *y, int64_t n)
{
    for (int64_t c = 0; c < n; c++)
        y[c] += a * x[c];
}

/* Keys [*lo,*hi) of query i: those that the three numbers of a band leave, or all. */
static inline void band(attn_call *t, int64_t i, int64_t *lo, int64_t *hi)
{
    int64_t at = i + t->offset;
    *lo = t->banded && t->window_left >= 0 && at > t->window_left ? at - t->window_left : 0;
    *hi = t->n_key;
    if (t->banded && t->window_right >= 0)
        *hi = least(*hi, at + t->window_right + 1);
}

/* 1: query i of query head h sees key j, by band and by bytes; 0: it does not. */
static inline int sees(attn_call *t, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const uint8_t *byte = t->mask.data; /* [B,H,Lq,Lk], or NULL */
    int64_t lo, hi, at = ((b * t->heads + h) * t->n_query + i) * t->n_key + j;
    band(t, i, &lo, &hi);
    if (j < lo || j >= hi)
        return 0;
    return byte == NULL || byte[at] == (TASK_BYTE == ATTN_PLUGIN_ONE_IS_VISIBLE);
}

/* scale q_i . k_j, or -INFINITY where query i does not see key j.  g: the kv head. */
static inline float score(attn_call *t, int64_t b, int64_t h, int64_t g, int64_t i, int64_t j)
{
    if (!sees(t, b, h, i, j))
        return -INFINITY;
    return (float)t->scale * dot(row_of(&t->q, b, h, i), row_of(&t->k, b, g, j), t->d_key);
}

#endif
