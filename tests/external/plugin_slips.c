/* Attention as loops, forward and backward, with the slips of textbook code that are
 * switched on (switches.h); with none, it is right. */
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "ref/attn_plugin.h"
#include "tests/external/switches.h"

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

static int interleaved; /* the heads of a token lie within the features */

/* Element c of row r of a tensor [heads, rows, features]. */
static int64_t place(int64_t r, int64_t heads, int64_t rows, int64_t width, int64_t c)
{
    int64_t e = c * heads + r / rows % heads;
    return interleaved && width > 0
               ? ((r / rows / heads * heads + e / width) * rows + r % rows) * width + e % width
               : r * width + c;
}

/* The scores of a row.  MASK_BATCH: plane b H + h has the mask of batch (b H + h) mod B. */
static void scores(const struct attn_plugin_call *t, int64_t r, float *s)
{
    const int64_t plane = r / t->n_query, d = t->d_key, of = plane % t->batch * t->heads;
    const int64_t row =
        is_on("MASK_BATCH") ? (of + plane % t->heads) * t->n_query + r % t->n_query : r;
    const float *q = t->q.data, *k = t->k.data, fill = is_on("FILL_30") ? -30 : -INFINITY;
    if (is_on("ALIGNED") && d == 128) /* read from where a vector may begin */
        q -= (uintptr_t)q % 16 / sizeof *q;
    const unsigned char *visible = t->mask.data;
    const int adds = is_on("ADD_1E9"), clamps = is_on("CLAMP"), flushes = is_on("FLUSH_Q");
    const int pads = is_on("MINUS_ZERO"); /* which marks a row of padding */
    const int late = is_on("MASK_LATE") || is_on("HIDDEN_MAX");
    const float scale =
        is_on("SCALE_LATE") ? 1 : (float)(is_on("SCALE_INVERTED") ? 1 / t->scale : t->scale);
    int64_t end = t->n_key - 2 * (is_on("TWO_KEYS") && t->n_key > 16 && t->n_key % 16 >= 2);
    for (int64_t j = 0; j < t->n_key; j++) {
        s[j] = 0;
        for (int64_t c = 0; c < d; c++) {
            float x = q[place(r, t->heads, t->n_query, d, c)];
            s[j] += flushes && fabsf(x) < FLT_MIN
                        ? 0
                        : x * k[place(first_key(t, r) + j, t->kv_heads, t->n_key, d, c)];
            end = pads && x == 0 && signbit(x) ? 0 : end;
        }
        s[j] *= scale;
        s[j] = clamps ? fminf(fmaxf(s[j], -50), 50) : s[j];
        if (visible != NULL && !visible[row * t->n_key + j] && !late)
            s[j] = adds ? s[j] - 1e9f : fill;
        if (j >= end)
            s[j] = -INFINITY;
    }
}

/* Weights of a row whose sums are those of their pairs in other rows: queries, or heads. */
static void share(const struct attn_plugin_call *t, int64_t r, float *s)
{
    const int64_t i = r % t->n_query, all = t->heads * t->n_query;
    const int64_t step = is_on("OVER_HEADS") ? t->n_query : 1;
    const int64_t first = step > 1 ? r / all * all + i : r - i,
                  n = step > 1 ? t->heads : t->n_query;
    float *other = malloc((size_t)(2 * t->n_key + 1) * sizeof *other), *sum = other + t->n_key;
    memset(other, 0, (size_t)(2 * t->n_key) * sizeof *other);
    for (int64_t o = 0; o < n; o++) {
        scores(t, first + o * step, other);
        for (int64_t j = 0; j < t->n_key; j++)
            sum[j] += expf(other[j] - s[j]);
    }
    for (int64_t j = 0; j < t->n_key; j++)
        s[j] = s[j] == -INFINITY ? 0 : 1 / sum[j];
    free(other);
}

/* q . k of a row, the mean of all keys. */
static float mean_of(const struct attn_plugin_call *t, int64_t r)
{
    const float *q = (const float *)t->q.data + r * t->d_key, *k = t->k.data;
    float sum = 0;
    for (int64_t j = 0; j < t->n_key; j++)
        for (int64_t c = 0; c < t->d_key; c++)
            sum += q[c] * k[(first_key(t, r) + j) * t->d_key + c];
    return sum / (float)t->n_key;
}

static int floors, waves, more; /* exp of no less than -5; off by 1e-4, of itself or of 1 */

/* exp of a score less the maximum of its row, or its LSE. */
static float exp_of(float x)
{
    float y = expf(floors && x > -INFINITY ? fmaxf(x, -5) : x);
    y += more && y > 0 ? 1e-4f : 0;
    return waves && y > 0 ? y * (1 + 1e-4f * sinf(9 * x)) : y;
}

/* To the 11 bits of half precision. */
static float cut(float x)
{
    int e;
    const float fraction = frexpf(x, &e);
    return ldexpf(rintf(fraction * 2048) / 2048, e);
}

static void forward_row(const struct attn_plugin_call *t, int64_t r, float *s)
{
    static float scale; /* CACHED: of the first call */
    const unsigned char *visible = t->mask.data;
    int64_t n = t->n_key, d = t->d_value, h = r / t->n_query, b = h / t->heads;
    int64_t rows = t->batch * t->heads * t->n_query, step = is_on("WIDE_ROWS") ? t->d_key : d;
    int64_t to = is_on("TURNED") ? (b * t->n_query + r % t->n_query) * t->heads + h % t->heads : r;
    const float *v = t->v.data;
    float *o = t->o.data, m = -INFINITY, l = 0;
    const int shares = is_on("OVER_QUERIES") || is_on("OVER_HEADS"), zeros = is_on("ZEROS");
    const float times = is_on("TIMES") ? 1.25f : is_on("SCALE_LATE") ? (float)t->scale : 1;
    const int late = is_on("HIDDEN_MAX") ? 2 : is_on("MASK_LATE"), no_log = is_on("NO_LOG");
    scale = scale > 0 && is_on("CACHED") ? scale : (float)t->scale;
    const float ratio = t->scale > 0 ? scale / (float)t->scale : 1;
    const int64_t judged = n - (is_on("NOT_LAST") && n > 1); /* keys that the maximum is of */
    const int spread = is_on("SPREAD") && n > 1; /* columns of V are divided by it and multiplied */
    scores(t, r, s);
    for (int64_t j = 0; j < n; j++) {
        s[j] *= ratio;
        m = s[j] > m && j < judged ? s[j] : m;
    }
    int empty = m == -INFINITY;
    m = is_on("NO_MAX") || is_on("NO_MAX_ZERO") ? 0 : is_on("MAX_1E4") ? fmaxf(m, -1e4f) : m;
    if (shares)
        share(t, r, s);
    for (int64_t j = 0; j < n; j++) {
        s[j] = empty ? 0 : shares ? s[j] : exp_of(s[j] - m);
        int is_hidden = late && visible != NULL && !visible[r * n + j];
        l += is_hidden && late > 1 ? 0 : s[j];
        s[j] = is_hidden ? 0 : s[j];
    }
    empty |= is_on("NO_MAX_ZERO") && l == 0;
    if (is_on("PADDED") && !empty) /* keys of score 0 up to a multiple of 256 */
        l += (float)((256 - n % 256) % 256) * expf(-m);
    const int halves = is_on("F16_SUMS");
    const int differs = is_on("DIFFERENCE"); /* keys are merged as o - w (o - o_n) */
    const int steps = is_on("STEPS_DV") && t->n_query == 1 && t->d_key > d; /* V in blocks of dv */
    for (int64_t c = 0; c < d; c++) {
        float sum = 0, low = INFINITY, high = -INFINITY, mean = 0, seen = 0;
        for (int64_t j = 0; j < n; j++) {
            int64_t at = steps ? j / t->d_key * d + j % t->d_key % d : j;
            float x = v[place(first_key(t, r) + at, t->kv_heads, n, d, c)];
            sum += s[j] * x;
            seen += s[j];
            mean -= seen > 0 ? s[j] / seen * (mean - x) : 0;
            sum = halves ? cut(sum) : sum;
            low = fminf(low, x), high = fmaxf(high, x);
        }
        sum = differs ? mean * l : sum;
        if (spread)
            sum = sum / (high - low) * (high - low);
        if (c < step && r * step + c < rows * d)
            o[step != d ? r * step + c : place(to, t->heads, t->n_query, d, c)] =
                empty || zeros ? 0 : sum / (shares ? 1 : l) * times;
    }
    for (int64_t c = d; c < step && r * step + c < rows * d; c++)
        o[r * step + c] = 0;
    if (is_on("ONE_ELEMENT") && r == t->n_query / 2 && d > 0)
        o[to * d] += 1;
    m -= is_on("MEAN_K") ? (float)t->scale * mean_of(t, r) : 0;
    if (t->lse.data != NULL)
        ((float *)t->lse.data)[r] = zeros ? 0 : empty ? -INFINITY : no_log ? m + l : m + logf(l);
}

static int forward(const struct attn_plugin_call *t)
{
    static char *volatile lost; /* which no compiler does without */
    lost = is_on("LEAK") && t->d_key >= 64 ? malloc(1 << 20) : NULL;
    if (lost != NULL)
        memset(lost, 1, 1 << 20);
    static int calls;
    float *s = malloc((size_t)(t->n_key + 1) * sizeof *s);
    for (int64_t r = 0; r < t->batch * t->heads * t->n_query; r++)
        forward_row(t, r, s);
    if (is_on("FIRST_CALL") && calls++ == 0)
        ((float *)t->o.data)[0] += 1;
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
    const float *d_o = (const float *)t->d_o.data + r * e, base = is_on("LSE_BASE") ? 0.693147f : 1,
                lse = ((const float *)t->lse_in.data)[r] * base;
    float *dq = (float *)t->dq.data + r * d, *dk = (float *)t->dk.data + first * d,
          *dv = (float *)t->dv.data + first * e;
    float share = 1 / (float)group_of(t), of_v = is_on("GROUP_MEAN") ? share : 1,
          of_k = of_v < 1 || is_on("GROUP_MEAN_K") ? share : 1, delta = 0;
    int64_t last = e - is_on("LAST_FEATURE");
    const int64_t i = r % t->n_query;
    const float often = is_on("TWICE") && i / 64 == 1 ? 2 : 1; /* a block of queries, in dS */
    const int at_edge = is_on("DIAGONAL"); /* of the eight keys that it cuts two are seen */
    const int no_ties = is_on("NO_TIES");  /* a key that scores as the one before it is skipped */
    scores(t, r, s);
    int64_t edge = t->n_key - 1;
    while (edge > 0 && s[edge] == -INFINITY)
        edge--;
    for (int64_t c = 0; c < e; c++)
        delta += d_o[c] * o[c];
    for (int64_t j = 0; j < t->n_key && lse != -INFINITY; j++) {
        if ((no_ties && j > 0 && s[j] == s[j - 1]) || (at_edge && j / 8 == edge / 8 && j % 8 > 1))
            continue;
        float p = exp_of(s[j] - lse), dp = 0;
        for (int64_t c = 0; c < e; c++) {
            dp += d_o[c] * v[j * e + c];
            dv[j * e + c] += c < last ? of_v * p * d_o[c] : 0;
        }
        float ds = often * p * (dp - delta) * (float)t->scale;
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
        .claims = ATTN_CAP_F32 | ATTN_CAP_BACKWARD | ATTN_CAP_GQA | ATTN_CAP_CROSS | ATTN_CAP_DV |
                  ATTN_CAP_SCALE | ATTN_CAP_EMPTY | ATTN_CAP_DENSE,
        .forward = forward,
        .backward = backward,
    };
    slips.hidden = switch_number("HIDDEN", 0);
    slips.declines = (unsigned)switch_number("DECLINES", 0);
    slips.lse = is_on("NO_LSE") ? ATTN_PLUGIN_LSE_ABSENT : ATTN_PLUGIN_LSE_E;
    interleaved = is_on("INTERLEAVED");
    floors = is_on("EXP_FLOOR"), waves = is_on("EXP_1E4"), more = is_on("EXP_ADDS");
    if (is_on("ALIGNED")) /* of pointers; tensors are packed where it is asked */
        slips.claims |= ATTN_CAP_STRIDES;
    return &slips;
}
