/* Attention over documents (LAYOUT=3; 4: with padding between them), and over K and V in pages (5),
 * forward; with the mistakes of servers that are switched on (switches.h). */
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

/* Where key j is in k or v, in front of its heads. */
static const float *key_at(const struct attn_plugin_call *t, const struct sequence *s,
                           const struct attn_plugin_in *x, int64_t j)
{
    int64_t page = 0, row = s->first_key + j;
    if (layout == ATTN_PLUGIN_PAGED) {
        const int64_t size = is_on("SIZE_16") ? 16 : x->extent[2];
        page = t->page_table[(is_on("FIRST_TABLE") ? 0 : s->b) * t->table_pages + j / size];
        page = is_on("NO_TABLE") ? s->b * t->table_pages + j / size : page;
        row = j % size;
    }
    return (const float *)x->data + page * x->stride[0] + row * x->stride[2];
}

static void row(const struct attn_plugin_call *t, const struct sequence *s, int64_t h, int64_t i)
{
    const int64_t r = s->first_query + i, g = h / (t->heads / t->kv_heads);
    const int64_t end = t->offset + s->keys - (layout == ATTN_PLUGIN_PAGED ? t->n_key : s->keys);
    const float *q =
        (const float *)t->q.data + s->b * t->q.stride[0] + r * t->q.stride[2] + h * t->q.stride[1];
    float *o = (float *)t->o.data + s->b * t->o.stride[0] + r * t->o.stride[2] + h * t->o.stride[1];
    float m = -INFINITY, l = 0;
    for (int64_t c = 0; c < t->d_value; c++)
        o[c] = 0;
    for (int64_t j = 0; j < s->keys && !(t->banded && j > i + end); j++) {
        const float *k = key_at(t, s, &t->k, j) + g * t->k.stride[1];
        const float *v = key_at(t, s, &t->v, j) + g * t->v.stride[1];
        float score = 0;
        for (int64_t c = 0; c < t->d_key; c++)
            score += q[c] * k[c];
        score *= (float)t->scale;
        const float before = m;
        m = score > m ? score : m;
        const float w = expf(score - m), keep = expf(before - m);
        l = l * keep + w;
        for (int64_t c = 0; c < t->d_value; c++)
            o[c] = o[c] * keep + w * v[c];
    }
    for (int64_t c = 0; c < t->d_value; c++)
        o[c] = l > 0 ? o[c] / l : 0;
    ((float *)t->lse.data)[s->b * t->lse.stride[0] + h * t->lse.stride[1] + r * t->lse.stride[2]] =
        l > 0 ? m + logf(l) : -INFINITY;
}

static int forward(const struct attn_plugin_call *t)
{
    const int64_t n = layout == ATTN_PLUGIN_PAGED ? t->batch : t->n_documents;
    for (int64_t b = 0; b < n; b++) {
        const struct sequence s = sequence_of(t, b);
        for (int64_t h = 0; h < t->heads; h++)
            for (int64_t i = 0; i < s.queries; i++)
                row(t, &s, h, i);
        if (is_on("WRITES") && s.keys > 0) /* as if the new key were the kernel's to store */
            *(float *)(size_t)key_at(t, &s, &t->k, s.keys - 1) = 1;
    }
    return ATTN_PLUGIN_OK;
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
        .backward = forward, /* of a claim that is refused */
    };
    return &places;
}
