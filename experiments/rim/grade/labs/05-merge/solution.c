/* Lab 05, a solution: the merge of ref/merge.h, with the larger LSE taken out. */
#include "docs/labs/lab.h"

enum { PART = 16 }; /* keys of the largest part */

/* Attention of query i over keys [j0,j1): writes a row of o, returns LSE (natural).  If no key of
 * the part is seen, or it has none, they are 0 and -INFINITY. */
static float part(attn_call *t, int64_t b, int64_t h, int64_t i, int64_t j0, int64_t j1, float *o)
{
    int64_t g = h / (t->heads / t->kv_heads);
    float s[PART], m = -INFINITY, l = 0;
    for (int64_t j = j0; j < j1; j++) {
        s[j - j0] = score(t, b, h, g, i, j);
        m = s[j - j0] <= m ? m : s[j - j0];
    }
    set_zero(o, t->d_value);
    for (int64_t j = j0; j < j1; j++)
        if (s[j - j0] != -INFINITY) {
            float p = expf(s[j - j0] - m);
            l += p;
            axpy(p, row_of(&t->v, b, g, j), o, t->d_value);
        }
    for (int64_t c = 0; c < t->d_value && l != 0; c++)
        o[c] /= l;
    return l != 0 ? m + logf(l) : -INFINITY;
}

/* (o, lse) becomes what it is together with (o2, lse2); o and o2 have n numbers. */
static void merge(float *o, float *lse, const float *o2, float lse2, int64_t n)
{
    if (lse2 == -INFINITY)
        return; /* an empty part changes nothing; both empty: -inf - -inf would be NaN */
    float max = *lse > lse2 ? *lse : lse2;
    float w = expf(*lse - max), w2 = expf(lse2 - max), sum = w + w2; /* the larger one is 1 */
    for (int64_t c = 0; c < n; c++)
        o[c] = w / sum * o[c] + w2 / sum * o2[c];
    *lse = max + logf(sum);
}

/* All parts of a query's keys, the last keys first; o2 has room for a row. */
static void merge_parts(attn_call *t, int64_t b, int64_t h, int64_t i, float *o2)
{
    static const int64_t size[] = {3, 0, PART, 1};
    float *o = row_to(&t->o, b, h, i), lse = -INFINITY;
    set_zero(o, t->d_value);
    for (int64_t n = 0, j1 = t->n_key; j1 > 0; n++) {
        int64_t j0 = j1 - least(j1, size[n % 4]);
        float lse2 = part(t, b, h, i, j0, j1, o2);
        merge(o, &lse, o2, lse2, t->d_value);
        j1 = j0;
    }
    *row_to(&t->lse, b, h, i) = lse / LSE_UNIT;
}

static int forward(attn_call *t)
{
    float *o2 = malloc((size_t)(t->d_value + 1) * sizeof *o2);
    for (int64_t b = 0; b < t->batch && o2 != NULL; b++)
        for (int64_t h = 0; h < t->heads; h++)
            for (int64_t i = 0; i < t->n_query; i++)
                merge_parts(t, b, h, i, o2);
    free(o2);
    return o2 != NULL ? ATTN_PLUGIN_OK : ATTN_PLUGIN_FAILED;
}

const struct attn_plugin *attn_plugin_get(void)
{
    static const struct attn_plugin lab = {
        .abi = ATTN_PLUGIN_ABI,
        .struct_size = sizeof lab,
        .name = "lab-05",
        .claims = ATTN_CAP_F32 | ATTN_CAP_GQA | ATTN_CAP_CROSS | ATTN_CAP_DV | ATTN_CAP_SCALE |
                  ATTN_CAP_BAND | ATTN_CAP_DENSE | ATTN_CAP_EMPTY,
        .lse = TASK_LSE,
        .layout = TASK_LAYOUT,
        .byte = TASK_BYTE,
        .block = 1, /* keys between two merges, at the least */
        .forward = forward,
    };
    return &lab;
}
