/* Lab 06, a solution: FlashAttention-2, algorithms 1 and 2. */
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

/* ---- forward --------------------------------------------------------------------------------- */

/* A query takes up keys [j0,j1) with scores s: m, l and o as in section 4 of the chapter. */
static void take_keys(attn_call *t, int64_t b, int64_t g, int64_t j0, int64_t j1, const float *s,
                      float *m, float *l, float *o)
{
    float m_new = *m;
    for (int64_t j = j0; j < j1; j++)
        m_new = s[j - j0] <= m_new ? m_new : s[j - j0]; /* a NaN stays, and shows in o */
    if (m_new == -INFINITY)
        return; /* nothing seen so far: exp(-inf - -inf) would be NaN */
    float alpha = expf(*m - m_new);
    *l *= alpha;
    for (int64_t c = 0; c < t->d_value; c++)
        o[c] *= alpha;
    for (int64_t j = j0; j < j1; j++)
        if (s[j - j0] != -INFINITY) {
            float p = expf(s[j - j0] - m_new);
            *l += p;
            axpy(p, row_of(&t->v, b, g, j), o, t->d_value);
        }
    *m = m_new;
}

/* Queries [i0,i1) meet all keys. */
static void forward_rows(attn_call *t, int64_t b, int64_t h, int64_t i0, int64_t i1)
{
    float s[BR][BC], m[BR], l[BR];
    for (int64_t i = i0; i < i1; i++) {
        m[i - i0] = -INFINITY;
        l[i - i0] = 0;
        set_zero(row_to(&t->o, b, h, i), t->d_value);
    }
    for (int64_t j0 = 0; j0 < t->n_key; j0 += BC) {
        int64_t j1 = least(j0 + BC, t->n_key), g = h / (t->heads / t->kv_heads);
        tile_scores(t, b, h, i0, i1, j0, j1, s);
        for (int64_t r = 0; r < i1 - i0; r++)
            take_keys(t, b, g, j0, j1, s[r], &m[r], &l[r], row_to(&t->o, b, h, i0 + r));
    }
    for (int64_t i = i0; i < i1; i++) {
        int seen = m[i - i0] != -INFINITY;
        for (int64_t c = 0; c < t->d_value && seen; c++)
            row_to(&t->o, b, h, i)[c] /= l[i - i0];
        *row_to(&t->lse, b, h, i) = seen ? (m[i - i0] + logf(l[i - i0])) / LSE_UNIT : -INFINITY;
    }
}

static int forward(attn_call *t)
{
    for (int64_t b = 0; b < t->batch; b++)
        for (int64_t h = 0; h < t->heads; h++)
            for (int64_t i0 = 0; i0 < t->n_query; i0 += BR)
                forward_rows(t, b, h, i0, least(i0 + BR, t->n_query));
    return ATTN_PLUGIN_OK;
}

/* ---- backward -------------------------------------------------------------------------------- */

/* D_i = dO_i . O_i, for all queries of a head. */
static void delta(attn_call *t, int64_t b, int64_t h, float *D)
{
    for (int64_t i = 0; i < t->n_query; i++)
        D[i] = dot(row_of(&t->d_o, b, h, i), row_of(&t->o_in, b, h, i), t->d_value);
}

/* Adds the part of query i and keys [j0,j1), with scores s, to dQ_i, dK and dV. */
static void gradient_row(attn_call *t, int64_t b, int64_t h, int64_t i, int64_t j0, int64_t j1,
                         const float *s, float D)
{
    int64_t g = h / (t->heads / t->kv_heads);
    const float *q = row_of(&t->q, b, h, i), *d_o = row_of(&t->d_o, b, h, i);
    float lse = *row_of(&t->lse_in, b, h, i) * LSE_UNIT;
    for (int64_t j = j0; j < j1; j++) {
        if (s[j - j0] == -INFINITY)
            continue;
        float p = expf(s[j - j0] - lse); /* made again: no maximum, no rescale */
        float dp = dot(d_o, row_of(&t->v, b, g, j), t->d_value);
        float dx = p * (dp - D) * (float)t->scale;
        axpy(p, d_o, row_to(&t->dv, b, g, j), t->d_value);
        axpy(dx, row_of(&t->k, b, g, j), row_to(&t->dq, b, h, i), t->d_key);
        axpy(dx, q, row_to(&t->dk, b, g, j), t->d_key);
    }
}

static void backward_head(attn_call *t, int64_t b, int64_t h, float *D)
{
    float s[BR][BC];
    delta(t, b, h, D);
    for (int64_t j0 = 0; j0 < t->n_key; j0 += BC)
        for (int64_t i0 = 0; i0 < t->n_query; i0 += BR) {
            int64_t j1 = least(j0 + BC, t->n_key), i1 = least(i0 + BR, t->n_query);
            tile_scores(t, b, h, i0, i1, j0, j1, s);
            for (int64_t i = i0; i < i1; i++)
                gradient_row(t, b, h, i, j0, j1, s[i - i0], D[i]);
        }
}

static int backward(attn_call *t)
{
    float *D = malloc((size_t)(t->n_query + 1) * sizeof *D);
    if (D == NULL)
        return ATTN_PLUGIN_FAILED;
    set_zero_all(&t->dq);
    set_zero_all(&t->dk); /* before any head: the query heads of a group add to the same rows */
    set_zero_all(&t->dv);
    for (int64_t b = 0; b < t->batch; b++)
        for (int64_t h = 0; h < t->heads; h++)
            backward_head(t, b, h, D);
    free(D);
    return ATTN_PLUGIN_OK;
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
