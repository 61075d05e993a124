/* Attention as loops, forward and backward, with the slip of textbook code that is
 * switched on (switches.h); with none, it is right. */
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "ref/attn_plugin.h"
#include "tests/external/switches.h"

static struct {
    int no_max, no_max_zero;      /* exp(s), without the maximum; and O = 0 if all weights vanish */
    int group_mean, group_mean_k; /* dK and dV, dK alone: means over the heads of a group         */
    int add_1e9;                  /* -1e9 is added where the mask hides                           */
    int no_log;                   /* LSE = m + l                                                  */
    int turned;                   /* O is written as [B,L,H,dv]                                   */
    int times;                    /* O times 1.25, as dropout that stays on                       */
    int one_element;              /* of O, in the middle, is wrong                                */
    int two_keys;                 /* the last two of a tail of 16 are lost                        */
    int flush_q;                  /* subnormal numbers of q count as 0                            */
    int not_last;                 /* the maximum is of all keys but the last                      */
    int no_ties;                  /* backward: a key that scores as the one before it is skipped  */
    int spread;                   /* columns of V are divided by their spread, and O multiplied   */
    int aligned;                  /* d = 128: q is read from where a vector may begin             */
    int leak;                     /* d >= 64: a megabyte a call                                   */
} slip;

static int64_t group_of(const struct attn_plugin_call *t)
{
    return t->kv_heads > 0 ? t->heads / t->kv_heads : 1;
}

/* The first key of the row's kv head. */
static int64_t first_key(const struct attn_plugin_call *t, int64_t r)
{
    int64_t b = r / t->n_query / t->heads, h = r / t->n_query % t->heads;
    return (b * t->kv_heads + h / group_of(t)) * t->n_key;
}

static void scores(const struct attn_plugin_call *t, int64_t r, float *s)
{
    const float *q = (const float *)t->q.data + r * t->d_key;
    const float *k = (const float *)t->k.data + first_key(t, r) * t->d_key;
    if (slip.aligned && t->d_key == 128)
        q -= (uintptr_t)q % 16 / sizeof *q;
    const unsigned char *visible = t->mask.data;
    for (int64_t j = 0; j < t->n_key; j++) {
        s[j] = 0;
        for (int64_t c = 0; c < t->d_key; c++)
            s[j] += slip.flush_q && fabsf(q[c]) < FLT_MIN ? 0 : q[c] * k[j * t->d_key + c];
        s[j] *= (float)t->scale;
        if (visible != NULL && !visible[r * t->n_key + j])
            s[j] = slip.add_1e9 ? s[j] - 1e9f : -INFINITY;
        if (slip.two_keys && t->n_key > 16 && t->n_key % 16 >= 2 && j >= t->n_key - 2)
            s[j] = -INFINITY;
    }
}

static void forward_row(const struct attn_plugin_call *t, int64_t r, float *s)
{
    int64_t n = t->n_key, d = t->d_value, h = r / t->n_query, b = h / t->heads;
    int64_t to = slip.turned ? (b * t->n_query + r % t->n_query) * t->heads + h % t->heads : r;
    const float *v = (const float *)t->v.data + first_key(t, r) * d;
    float *o = (float *)t->o.data + to * d, m = -INFINITY, l = 0;
    scores(t, r, s);
    for (int64_t j = 0; j < n - (slip.not_last && n > 1); j++)
        m = s[j] > m ? s[j] : m;
    int empty = m == -INFINITY;
    if (slip.no_max)
        m = 0;
    for (int64_t j = 0; j < n; j++)
        l += s[j] = empty ? 0 : expf(s[j] - m);
    empty |= slip.no_max_zero && l == 0;
    for (int64_t c = 0; c < d; c++) {
        float sum = 0, low = INFINITY, high = -INFINITY;
        for (int64_t j = 0; j < n; j++) {
            sum += s[j] * v[j * d + c];
            low = fminf(low, v[j * d + c]), high = fmaxf(high, v[j * d + c]);
        }
        if (slip.spread && n > 1)
            sum = sum / (high - low) * (high - low);
        o[c] = empty ? 0 : sum / l * (slip.times ? 1.25f : 1);
    }
    if (t->lse.data != NULL)
        ((float *)t->lse.data)[r] = empty ? -INFINITY : slip.no_log ? m + l : m + logf(l);
    if (slip.one_element && r == t->n_query / 2 && d > 0)
        o[0] += 1;
}

static int forward(const struct attn_plugin_call *t)
{
    static char *volatile lost; /* which no compiler does without */
    lost = slip.leak && t->d_key >= 64 ? malloc(1 << 20) : NULL;
    if (lost != NULL)
        memset(lost, 1, 1 << 20);
    float *s = malloc((size_t)(t->n_key + 1) * sizeof *s);
    for (int64_t r = 0; r < t->batch * t->heads * t->n_query; r++)
        forward_row(t, r, s);
    free(s);
    return ATTN_PLUGIN_OK;
}

static void clear(const struct attn_plugin_out *x)
{
    size_t n = (size_t)(x->extent[0] * x->extent[1] * x->extent[2] * x->extent[3]);
    if (n > 0)
        memset(x->data, 0, n * sizeof(float));
}

static void backward_row(const struct attn_plugin_call *t, int64_t r, float *s)
{
    int64_t d = t->d_key, e = t->d_value, first = first_key(t, r);
    const float *q = (const float *)t->q.data + r * d, *k = (const float *)t->k.data + first * d;
    const float *v = (const float *)t->v.data + first * e, *o = (const float *)t->o_in.data + r * e;
    const float *d_o = (const float *)t->d_o.data + r * e, lse = ((const float *)t->lse_in.data)[r];
    float *dq = (float *)t->dq.data + r * d, *dk = (float *)t->dk.data + first * d,
          *dv = (float *)t->dv.data + first * e;
    float share = 1 / (float)group_of(t), of_v = slip.group_mean ? share : 1,
          of_k = slip.group_mean_k ? share : 1, delta = 0;
    scores(t, r, s);
    for (int64_t c = 0; c < e; c++)
        delta += d_o[c] * o[c];
    for (int64_t j = 0; j < t->n_key && lse != -INFINITY; j++) {
        if (slip.no_ties && j > 0 && s[j] == s[j - 1])
            continue;
        float p = expf(s[j] - lse), dp = 0;
        for (int64_t c = 0; c < e; c++) {
            dp += d_o[c] * v[j * e + c];
            dv[j * e + c] += of_v * p * d_o[c];
        }
        float ds = p * (dp - delta) * (float)t->scale;
        for (int64_t c = 0; c < d; c++) {
            dq[c] += ds * k[j * d + c];
            dk[j * d + c] += of_k * ds * q[c];
        }
    }
}

static int backward(const struct attn_plugin_call *t)
{
    float *s = malloc((size_t)(t->n_key + 1) * sizeof *s);
    clear(&t->dq), clear(&t->dk), clear(&t->dv);
    for (int64_t r = 0; r < t->batch * t->heads * t->n_query; r++)
        backward_row(t, r, s);
    free(s);
    return ATTN_PLUGIN_OK;
}

const struct attn_plugin *attn_plugin_get(void)
{
    static struct attn_plugin slips = {
        .abi = ATTN_PLUGIN_ABI,
        .struct_size = sizeof slips,
        .name = "slips",
        .claims = ATTN_PLUGIN_F32 | ATTN_PLUGIN_BACKWARD | ATTN_PLUGIN_GQA | ATTN_PLUGIN_CROSS |
                  ATTN_PLUGIN_DV | ATTN_PLUGIN_SCALE | ATTN_PLUGIN_EMPTY | ATTN_PLUGIN_DENSE,
        .forward = forward,
        .backward = backward,
    };
    slips.lse = is_on("NO_LSE") ? ATTN_PLUGIN_LSE_ABSENT : ATTN_PLUGIN_LSE_E;
    slip.no_max_zero = is_on("NO_MAX_ZERO");
    slip.no_max = slip.no_max_zero || is_on("NO_MAX");
    slip.group_mean = is_on("GROUP_MEAN");
    slip.group_mean_k = slip.group_mean || is_on("GROUP_MEAN_K");
    slip.add_1e9 = is_on("ADD_1E9");
    slip.no_log = is_on("NO_LOG");
    slip.turned = is_on("TURNED");
    slip.times = is_on("TIMES");
    slip.one_element = is_on("ONE_ELEMENT");
    slip.two_keys = is_on("TWO_KEYS");
    slip.flush_q = is_on("FLUSH_Q");
    slip.not_last = is_on("NOT_LAST");
    slip.no_ties = is_on("NO_TIES");
    slip.spread = is_on("SPREAD");
    slip.aligned = is_on("ALIGNED");
    slip.leak = is_on("LEAK");
    if (slip.aligned) /* of pointers; tensors are packed where it is asked */
        slips.claims |= ATTN_PLUGIN_STRIDES;
    return &slips;
}
