/* Attention over documents (LAYOUT=3; 4: with padding between them), and over K and V in pages (5),
 * forward, with the mistakes of servers that are switched on (switches.h). */
#include <math.h>

#include "ref/attn_plugin.h"
#include "tests/external/switches.h"

static int layout;

/* A sequence: its rows among the queries, and its keys. */
struct sequence {
    int64_t b, first_query, queries, first_key, keys;
};

static struct sequence sequence_of(const struct attn_plugin_call *t, int64_t b)
{
    if (layout == ATTN_PLUGIN_PAGED)
        return (struct sequence){b, 0, t->n_query, 0, t->lengths[b] + is_on("PAST")};
    const int32_t *q = t->cu_seqlens_q, *k = t->cu_seqlens_k;
    const int32_t *q_at = layout == ATTN_PLUGIN_THD ? q : t->cu_seqlens_q_padded;
    const int32_t *k_at =
        layout == ATTN_PLUGIN_THD || is_on("UNPADDED") ? k : t->cu_seqlens_k_padded;
    return (struct sequence){0, q_at[b], q[b + 1] - q[b], k_at[b], k[b + 1] - k[b]};
}

/* Row r of head h of a struct attn_plugin_in or _out, which have the same members. */
static float *row_of(const void *tensor, int64_t b, int64_t r, int64_t h)
{
    const struct attn_plugin_out *x = tensor;
    return (float *)x->data + b * x->stride[0] + r * x->stride[2] + h * x->stride[1];
}

/* Key j of head g in k, v, dk or dv. */
static float *key_of(const struct attn_plugin_call *t, const struct sequence *s, const void *tensor,
                     int64_t j, int64_t g)
{
    if (layout != ATTN_PLUGIN_PAGED)
        return row_of(tensor, 0, s->first_key + j, g);
    const int64_t size = is_on("SIZE_16") ? 16 : t->k.extent[2];
    const int64_t entry = (is_on("FIRST_TABLE") ? 0 : s->b) * t->table_pages + j / size;
    return row_of(tensor, is_on("NO_TABLE") ? entry : t->page_table[entry], j % size, g);
}

static float dot(const float *x, const float *y, int64_t n)
{
    float sum = 0;
    for (int64_t c = 0; c < n; c++)
        sum += x[c] * y[c];
    return sum;
}

/* Behind the last key of query i. */
static int64_t end_of(const struct attn_plugin_call *t, const struct sequence *s, int64_t i)
{
    const int64_t own = layout == ATTN_PLUGIN_PAGED ? t->n_key : s->keys;
    const int64_t end = i + t->offset + s->keys - own + 1;
    return t->banded && end < s->keys ? end : s->keys;
}

static void row(const struct attn_plugin_call *t, const struct sequence *s, int64_t h, int64_t i)
{
    const int64_t r = s->first_query + i, g = h / (t->heads / t->kv_heads);
    float *o = row_of(&t->o, s->b, r, h), m = -INFINITY, l = 0;
    memset(o, 0, (size_t)t->d_value * sizeof *o);
    for (int64_t j = 0; j < end_of(t, s, i); j++) {
        const float *v = key_of(t, s, &t->v, j, g), before = m;
        const float score =
            (float)t->scale * dot(row_of(&t->q, s->b, r, h), key_of(t, s, &t->k, j, g), t->d_key);
        m = score > m ? score : m;
        const float w = expf(score - m), keep = expf(before - m);
        l = l * keep + w;
        for (int64_t c = 0; c < t->d_value; c++)
            o[c] = o[c] * keep + w * v[c];
    }
    for (int64_t c = 0; c < t->d_value; c++)
        o[c] = l > 0 ? o[c] / l : 0;
    *row_of(&t->lse, s->b, r, h) = l > 0 ? m + logf(l) : -INFINITY;
}

static void row_backward(const struct attn_plugin_call *t, const struct sequence *s, int64_t h,
                         int64_t i)
{
    const int64_t r = s->first_query + i, g = h / (t->heads / t->kv_heads);
    const float *q = row_of(&t->q, 0, r, h), *d_o = row_of(&t->d_o, 0, r, h);
    const float lse = *row_of(&t->lse_in, 0, r, h), scale = (float)t->scale;
    const float delta = dot(d_o, row_of(&t->o_in, 0, r, h), t->d_value);
    float *dq = row_of(&t->dq, 0, r, h);
    for (int64_t j = 0; j < end_of(t, s, i); j++) {
        const float *k = key_of(t, s, &t->k, j, g), *v = key_of(t, s, &t->v, j, g);
        float *dk = key_of(t, s, &t->dk, j, g), *dv = key_of(t, s, &t->dv, j, g);
        const float p = expf(scale * dot(q, k, t->d_key) - lse);
        const float ds = p * (dot(d_o, v, t->d_value) - delta) * scale;
        for (int64_t c = 0; c < t->d_key; c++)
            dq[c] += ds * k[c], dk[c] += ds * q[c];
        for (int64_t c = 0; c < t->d_value; c++)
            dv[c] += p * d_o[c];
    }
}

static int run(const struct attn_plugin_call *t,
               void (*one)(const struct attn_plugin_call *t, const struct sequence *s, int64_t h,
                           int64_t i))
{
    const int64_t n = layout == ATTN_PLUGIN_PAGED ? t->batch : t->n_documents;
    for (int64_t b = 0; b < n; b++) {
        const struct sequence s = sequence_of(t, b);
        for (int64_t h = 0; h < t->heads; h++)
            for (int64_t i = 0; i < s.queries; i++)
                one(t, &s, h, i);
        if (is_on("WRITES") && s.keys > 0) /* as if the new key were the kernel's to store */
            *key_of(t, &s, &t->k, s.keys - 1, 0) = 1;
    }
    return ATTN_PLUGIN_OK;
}

static int forward(const struct attn_plugin_call *t)
{
    return run(t, row);
}

/* Of documents: padding gets a gradient of 0, which is not read. */
static int backward(const struct attn_plugin_call *t)
{
    const struct attn_plugin_out *const out[] = {&t->dq, &t->dk, &t->dv};
    for (int n = 0; n < 3; n++)
        memset(out[n]->data, 0,
               (size_t)(out[n]->extent[1] * out[n]->extent[2] * out[n]->extent[3]) * sizeof(float));
    return run(t, row_backward);
}

const struct attn_plugin *attn_plugin_get(void)
{
    static struct attn_plugin places;
    layout = switch_number("LAYOUT", ATTN_PLUGIN_PAGED);
    places = (struct attn_plugin){
        .abi = ATTN_PLUGIN_ABI,
        .struct_size = sizeof places,
        .name = "places",
        .claims = (uint32_t)switch_number(
            "CLAIMS", ATTN_CAP_F32 | ATTN_CAP_GQA | ATTN_CAP_CROSS | ATTN_CAP_DV | ATTN_CAP_CAUSAL |
                          ATTN_CAP_SCALE | ATTN_CAP_EMPTY | ATTN_CAP_REPEATS),
        .causal = ATTN_PLUGIN_CAUSAL_BR,
        .layout = layout,
        .page = switch_number("PAGE", 0),
        .forward = forward,
        .backward = backward,
    };
    return &places;
}
