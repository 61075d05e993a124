/* Attention as three loops, as a plug-in: about the least that can be verified.
 *
 *      gcc -O2 -shared -fPIC -I. -o naive.so docs/examples/plugin_naive.c -lm
 *      attnlab check --plugin ./naive.so
 */
#include <math.h>
#include <stdlib.h>

#include "ref/attn_plugin.h"

static int forward(const struct attn_plugin_call *t)
{
    int64_t rows = t->batch * t->heads * t->n_query, n = t->n_key, group = t->heads / t->kv_heads;
    const float *q = t->q.data, *k = t->k.data, *v = t->v.data;
    const uint8_t *visible = t->mask.data; /* one byte for each pair, or no mask at all */
    float *o = t->o.data, *lse = t->lse.data, *s = malloc((size_t)n * sizeof *s);
    for (int64_t r = 0; r < rows; r++) {
        int64_t b = r / t->n_query / t->heads, h = r / t->n_query % t->heads;
        int64_t head = (b * t->kv_heads + h / group) * n; /* first key of this head */
        float m = -INFINITY, l = 0;
        for (int64_t j = 0; j < n; j++) {
            s[j] = 0;
            for (int64_t c = 0; c < t->d_key; c++)
                s[j] += q[r * t->d_key + c] * k[(head + j) * t->d_key + c];
            s[j] = visible == NULL || visible[r * n + j] ? s[j] * (float)t->scale : -INFINITY;
            m = s[j] > m ? s[j] : m;
        }
        for (int64_t j = 0; j < n; j++)
            l += s[j] = expf(s[j] - m);
        for (int64_t c = 0; c < t->d_value; c++)
            o[r * t->d_value + c] = 0;
        for (int64_t j = 0; j < n; j++)
            for (int64_t c = 0; c < t->d_value; c++)
                o[r * t->d_value + c] += s[j] / l * v[(head + j) * t->d_value + c];
        lse[r] = m + logf(l);
    }
    free(s);
    return ATTN_PLUGIN_OK;
}

const struct attn_plugin *attn_plugin_get(void)
{
    static const struct attn_plugin naive = {
        .abi = ATTN_PLUGIN_ABI,
        .struct_size = sizeof naive,
        .name = "naive",
        .claims = ATTN_CAP_F32 | ATTN_CAP_GQA | ATTN_CAP_CROSS | ATTN_CAP_DV | ATTN_CAP_SCALE |
                  ATTN_CAP_DENSE | ATTN_CAP_REPEATS,
        .forward = forward,
    };
    return &naive;
}
