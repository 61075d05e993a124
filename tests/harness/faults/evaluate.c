/* See faults.h.  Attention by its definition, step by step; where a step can go wrong, the ways in
 * which it does stand beside it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ref/problem.h"
#include "tests/harness/faults/faults.h"

static const double log2_e = 1.44269504088896340736, minus_inf = -(double)INFINITY;

static int is(const struct attn_evaluation *x, enum attn_fault_step step)
{
    return x->f->step == step;
}

static int is_among(const struct attn_evaluation *x, enum attn_fault_step first,
                    enum attn_fault_step last)
{
    return x->f->step >= first && x->f->step <= last;
}

static int64_t group_of(const struct attn_problem *p)
{
    return p->kv_heads > 0 ? p->heads / p->kv_heads : 1;
}

/* ---- memory: every tensor by its own strides, or by wrong ones ------------------------------ */

static int is_broadcast(const struct attn_tensor *t, int axis)
{
    return t->extent[axis] > 1 && t->stride[axis] == 0;
}

/* Token-major where it is head-major and the reverse. */
static void turn(struct attn_cview *view, const struct attn_tensor *t)
{
    int64_t width = t->extent[3], heads = t->extent[1], rows = t->extent[2];
    int token_major = heads > 1 && rows > 1 && view->stride[2] > view->stride[1];
    view->stride[3] = 1;
    view->stride[0] = heads * rows * width;
    view->stride[1] = token_major ? rows * width : width;
    view->stride[2] = token_major ? width : heads * width;
}

/* As if packed; axes that are broadcast stay so. */
static void pack(struct attn_cview *view, const struct attn_tensor *t)
{
    int64_t room = 1;
    for (int axis = 3; axis >= 0; axis--) {
        if (is_broadcast(t, axis))
            continue;
        view->stride[axis] = room;
        room *= t->extent[axis];
    }
}

static struct attn_cview change_view(const struct attn_setup *s, int slot,
                                     const struct attn_fault_model *f)
{
    const struct attn_tensor *t = &s->tensor[slot];
    struct attn_cview view = attn_tensor_cview(t);
    if (f->step == ATTN_STEP_TURNED)
        turn(&view, t);
    else if (f->step == ATTN_STEP_PACKED)
        pack(&view, t);
    else if (f->step == ATTN_STEP_ADJACENT && !is_broadcast(t, 3))
        view.stride[3] = 1;
    else if (f->step == ATTN_STEP_ROWS_PACKED && !is_broadcast(t, 2))
        view.stride[2] = t->extent[3] * view.stride[3];
    else if (f->step == ATTN_STEP_ROUNDED)
        view.data = (const void *)((uintptr_t)view.data & ~((uintptr_t)f->n - 1));
    else if (f->step == ATTN_STEP_STRIDES_OF)
        memcpy(view.stride, s->tensor[f->n].stride, sizeof view.stride);
    else if (f->step == ATTN_STEP_EXCHANGED)
        view.stride[1] = t->stride[2], view.stride[2] = t->stride[1];
    return view;
}

static int is_inside(const struct attn_cview *view, const struct attn_tensor *t)
{
    int64_t lowest = 0, highest = 0;
    for (int axis = 0; axis < 4; axis++) {
        if (t->extent[axis] == 0 || t->map == NULL)
            return 1;
        int64_t reach = (t->extent[axis] - 1) * view->stride[axis];
        lowest += reach < 0 ? reach : 0;
        highest += reach > 0 ? reach : 0;
    }
    return lowest >= t->first && highest < t->first + t->span;
}

double *attn_packed_numbers(const struct attn_cview *view, const int64_t n[4])
{
    double *to = malloc((size_t)(n[0] * n[1] * n[2] * n[3] + 1) * sizeof *to), *next = to;
    int64_t at[4] = ATTN_START;
    while (to != NULL && attn_each(at, n))
        *next++ = attn_cview_get(view, at[0], at[1], at[2], at[3]);
    return to;
}

static int reads_elsewhere(const struct attn_evaluation *x)
{
    return x->f->slots != 0 && !is(x, ATTN_STEP_FACTOR);
}

/* 0 when the model leaves a tensor's memory: it cannot be evaluated. */
static int take_tensors(struct attn_evaluation *x)
{
    const struct attn_setup *s = x->run->setup;
    unsigned slots = reads_elsewhere(x) ? x->f->slots : 0;
    memcpy(x->x, x->run->x, sizeof x->x);
    for (int slot = 0; slot < ATTN_SLOTS; slot++) {
        if (!(slots >> slot & 1) || x->x[slot] == NULL)
            continue;
        struct attn_cview view = change_view(s, slot, x->f);
        x->moved[slot] = is_inside(&view, &s->tensor[slot])
                             ? attn_packed_numbers(&view, x->run->extent[slot])
                             : NULL;
        if (x->moved[slot] == NULL)
            return 0;
        x->x[slot] = x->moved[slot];
        x->has_moved_outputs |= slot >= ATTN_T_O;
    }
    return 1;
}

const double *attn_evaluation_row(const struct attn_evaluation *x, enum attn_slot slot, int64_t b,
                                  int64_t h, int64_t i)
{
    const int64_t *n = x->run->extent[slot];
    return x->x[slot] + ((b * n[1] + h) * n[2] + i) * n[3];
}

/* ---- which pairs are visible, and where a query finds K, V and bias ------------------------- */

/* Which of f->n ranks has a token of n, and where the part of a rank begins: the first n % f->n of
 * them have one token more. */
static int64_t rank_of(const struct attn_evaluation *x, int64_t n, int64_t token)
{
    int64_t least = n / x->f->n, more = n % x->f->n, edge = more * (least + 1);
    return token < edge ? token / (least + 1) : more + (token - edge) / least;
}

static int64_t start_of(const struct attn_evaluation *x, int64_t n, int64_t rank)
{
    int64_t more = n % x->f->n;
    return rank * (n / x->f->n) + (rank < more ? rank : more);
}

/* The token of n at the same place in the part of another rank, or the last one. */
static int64_t moved_to(const struct attn_evaluation *x, int64_t n, int64_t token, int64_t rank)
{
    int64_t to = token - start_of(x, n, rank_of(x, n, token)) + start_of(x, n, rank);
    return to < n ? to : n - 1;
}

/* Where a rank believes that the pair is. */
static void place(const struct attn_evaluation *x, int64_t *i, int64_t *j)
{
    int64_t n_query = x->p->n_query, n_key = x->p->n_key;
    if (is(x, ATTN_STEP_PLACE_QUERY))
        *i = moved_to(x, n_query, *i, rank_of(x, n_key, *j));
    else if (is(x, ATTN_STEP_PLACE_KEY))
        *j = moved_to(x, n_key, *j, rank_of(x, n_query, *i));
}

/* The mask's row read for what it is not: counted, filled, in fours. */
static int sees_of_row(const struct attn_evaluation *x, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const struct attn_mask *mask = x->p->mask;
    int64_t lo, hi, n = x->p->n_key, last = -1, four = j - j % 4;
    switch (x->f->step) {
    case ATTN_STEP_MASK_COUNTED:
        return j < attn_mask_row_count(mask, b, h, i, 0, n) / x->f->n * x->f->n;
    case ATTN_STEP_MASK_KEYS:
        return attn_mask_row_count(mask, b, h, i, four, four + 4 < n ? four + 4 : n) > 0;
    case ATTN_STEP_MASK_KEYS_ON:
        return attn_mask_row_count(mask, b, h, i, four, j + 1) > 0;
    case ATTN_STEP_MASK_OLDEST:
        return attn_mask_allows(mask, b, h, i, j) &&
               (j == 0 || attn_mask_row_count(mask, b, h, i, 0, j) > 0);
    case ATTN_STEP_MASK_FULL_NONE:
        return attn_mask_allows(mask, b, h, i, j) && attn_mask_row_count(mask, b, h, i, 0, n) < n;
    default: /* ATTN_STEP_MASK_FILLED */
        for (int64_t from = 0; attn_mask_next(mask, b, h, i, from, &lo, &hi); from = hi)
            last = hi;
        return j < last;
    }
}

/* The mask, or another one, asked about this pair, or another one. */
static int sees(const struct attn_evaluation *x, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const struct attn_problem *p = x->p;
    int64_t n = x->f->n, r = group_of(p), H = p->heads;
    place(x, &i, &j);
    if (is(x, ATTN_STEP_LOST) && j >= x->f->lo && j < x->f->hi)
        return 0;
    if (!is_among(x, ATTN_STEP_MASK_INVERTED, ATTN_STEP_MASK_FULL_NONE))
        return attn_mask_allows(is(x, ATTN_STEP_MASK) ? x->f->mask : p->mask, b, h, i, j);
    if (is_among(x, ATTN_STEP_MASK_COUNTED, ATTN_STEP_MASK_FULL_NONE))
        return sees_of_row(x, b, h, i, j);
    int64_t row = i, plane = is(x, ATTN_STEP_MASK_SWAPPED) ? h * p->batch + b : b + h;
    int64_t flat = j * p->n_query + i;
    int is_flat = is(x, ATTN_STEP_MASK_FLAT), is_transposed = is(x, ATTN_STEP_MASK_TRANSPOSED);
    int is_plane = is_among(x, ATTN_STEP_MASK_SWAPPED, ATTN_STEP_MASK_PLANE);
    if ((is(x, ATTN_STEP_MASK_LOOP) && i / n < j / n) ||
        (is_transposed && (j >= p->n_query || i >= p->n_key)))
        return 0;
    b = is_plane ? plane / H : is(x, ATTN_STEP_MASK_BATCH) ? n : b;
    h = is_plane                        ? plane % H
        : is(x, ATTN_STEP_MASK_HEAD_0)  ? 0
        : is(x, ATTN_STEP_MASK_KV_HEAD) ? h / r
        : is(x, ATTN_STEP_MASK_OWN)     ? h % ((H + n - 1) / n)
                                        : h;
    i = is_transposed                      ? j
        : is_flat                          ? flat / p->n_key
        : is(x, ATTN_STEP_MASK_ROWS)       ? i - i % 4
        : is(x, ATTN_STEP_MASK_ROWS_GROUP) ? i / r
                                           : i;
    j = is_transposed ? row : is_flat ? flat % p->n_key : j;
    return attn_mask_allows(p->mask, b, h, i, j) != is(x, ATTN_STEP_MASK_INVERTED);
}

static int is_mistaken(const struct attn_evaluation *x, enum attn_fault_of of)
{
    return x->f->of == ATTN_OF_K_AND_V || x->f->of == of;
}

static int64_t kv_head(const struct attn_evaluation *x, int64_t h, enum attn_fault_of of)
{
    int64_t G = x->p->kv_heads, r = group_of(x->p);
    enum attn_fault_step step = is_mistaken(x, of) ? x->f->step : ATTN_STEP_NONE;
    return step == ATTN_STEP_HEAD_MODULO    ? h % G
           : step == ATTN_STEP_HEAD_DIVIDED ? h / G % G
           : step == ATTN_STEP_HEAD_FIRST   ? 0
           : step == ATTN_STEP_HEAD_NEXT    ? (h / r + 1) % G
           : step == ATTN_STEP_HEAD_CLIPPED ? (h < G ? h : G - 1)
           : step == ATTN_STEP_HEAD_STRIDED ? (h % r * r + h / r) % G
           : step == ATTN_STEP_HEAD_FIXED   ? x->f->lo
                                            : h / r;
}

/* The key that is j-th where what the ranks hold lies one behind the other.  of: stripes, or two
 * runs each, one from each end. */
static int64_t in_order_of_ranks(const struct attn_evaluation *x, int64_t j)
{
    int64_t ranks = x->f->n, each = x->p->n_key / ranks, rank = j / each, at = j % each;
    if (x->f->of == ATTN_OF_STRIPES)
        return rank + at * ranks;
    int64_t run = 2 * at < each ? rank : 2 * ranks - 1 - rank;
    return run * (each / 2) + at % (each / 2);
}

/* The row of K (or V) that query i of head h takes for key j. */
static const double *key_row(const struct attn_evaluation *x, enum attn_fault_of of, int64_t b,
                             int64_t h, int64_t i, int64_t j)
{
    int mistaken = is_mistaken(x, of);
    if (is(x, ATTN_STEP_STALE_KV) && mistaken)
        j = moved_to(x, x->p->n_key, j, rank_of(x, x->p->n_query, i));
    if (is(x, ATTN_STEP_ORDER_OF_RANKS))
        j = in_order_of_ranks(x, j);
    if (is(x, ATTN_STEP_V_REPEATED) && of == ATTN_OF_V)
        j /= group_of(x->p);
    if (is(x, ATTN_STEP_HEAD_FIXED) && mistaken)
        b = x->f->hi;
    if (is(x, ATTN_STEP_BATCH_0) && mistaken)
        b = 0;
    return attn_evaluation_row(x, of == ATTN_OF_K ? ATTN_T_K : ATTN_T_V, b, kv_head(x, h, of), j);
}

static double alibi(const struct attn_evaluation *x, int64_t h, int64_t i, int64_t j)
{
    const struct attn_bias *bias = &x->p->bias;
    int is_signed = is(x, ATTN_STEP_ALIBI_SIGNED);
    int64_t offset = is_signed || is(x, ATTN_STEP_ALIBI_OFFSET) ? x->f->n : bias->offset;
    double away = (double)(i + offset - j);
    return -bias->slope[h] *
           ((is_signed ? away : fabs(away)) + (is(x, ATTN_STEP_ALIBI_MORE) ? 1 : 0));
}

static double bias(const struct attn_evaluation *x, int64_t b, int64_t h, int64_t i, int64_t j)
{
    enum attn_bias_kind kind = x->p->bias.kind;
    if (kind == ATTN_BIAS_NONE)
        return 0;
    place(x, &i, &j);
    if (is(x, ATTN_STEP_BIAS_OWN_KEYS))
        j -= start_of(x, x->p->n_key, rank_of(x, x->p->n_key, j));
    else if (is(x, ATTN_STEP_BIAS_OWN_HEADS))
        h %= x->f->n;
    else if (is(x, ATTN_STEP_BIAS_OWN_ROWS))
        i %= x->f->n;
    else if (is(x, ATTN_STEP_BIAS_KV))
        h /= group_of(x->p);
    b = is(x, ATTN_STEP_BIAS_PLANE) || is(x, ATTN_STEP_BIAS_BATCH) ? 0 : b;
    h = is(x, ATTN_STEP_BIAS_PLANE) || is(x, ATTN_STEP_BIAS_HEAD) ? 0 : h;
    i = is(x, ATTN_STEP_BIAS_ROW) ? 0 : i;
    double value = kind == ATTN_BIAS_ALIBI ? alibi(x, h, i, j)
                                           : attn_evaluation_row(x, ATTN_T_BIAS, b, h, i)[j];
    return is(x, ATTN_STEP_BIAS_FACTOR) ? x->f->value * value : value;
}

/* ---- scores and softmax of one row ---------------------------------------------------------- */

static double cap(double s, double c)
{
    return c > 0 ? c * tanh(s / c) : s;
}

static double score(struct attn_evaluation *x, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const double *q = attn_evaluation_row(x, ATTN_T_Q, b, h, i);
    const double *k = key_row(x, ATTN_OF_K, b, h, i, j);
    int64_t d = is(x, ATTN_STEP_FEATURES) ? x->f->n : x->p->d_key;
    double dot = 0, more = bias(x, b, h, i, j), c = x->p->softcap;
    for (int64_t e = 0; e < d; e++)
        dot += q[e] * k[e];
    if (is(x, ATTN_STEP_DOT_LIMIT) && fabs(dot) > x->f->value)
        dot = copysign((double)INFINITY, dot);
    double s = x->raw[j] = (is(x, ATTN_STEP_SCALE) ? x->f->value : x->p->scale) * dot;
    return is(x, ATTN_STEP_CAP_BIAS)      ? cap(s + more, c)
           : is(x, ATTN_STEP_CAP_PRODUCT) ? s * tanh(s / c) + more
                                          : (is(x, ATTN_STEP_NO_CAP) ? s : cap(s, c)) + more;
}

static double hidden_score(struct attn_evaluation *x, int64_t b, int64_t h, int64_t i, int64_t j)
{
    if (!is(x, ATTN_STEP_HIDDEN_ADDED))
        return is(x, ATTN_STEP_CAP_MASK) ? -x->p->softcap
               : is(x, ATTN_STEP_HIDDEN) ? x->f->value
                                         : minus_inf;
    double s = score(x, b, h, i, j) + x->f->value; /* a large one swallows the score */
    return x->p->dtype == ATTN_F64 ? s : (double)(float)s;
}

static int has_no_max(const struct attn_evaluation *x)
{
    return is_among(x, ATTN_STEP_NO_MAX, ATTN_STEP_NO_MAX_ROWS);
}

/* What is out of float32's range is so here, where the maximum is not that of the row. */
static double narrow(const struct attn_evaluation *x, double w)
{
    int is_narrow = has_no_max(x) || is(x, ATTN_STEP_MAX_START);
    return is_narrow && x->p->dtype != ATTN_F64 ? (double)(float)w : w;
}

/* Weights are exp(s), whatever the maximum is; where they are subnormal, or their sum alone
 * overflows, the numbers hang on rounding. */
static void forget_max(struct attn_evaluation *x, double largest)
{
    double least = x->p->dtype == ATTN_F64 ? 0x1p-1000 : 0x1p-110;
    int is_zero = is(x, ATTN_STEP_NO_MAX_SUM)    ? x->l == 0
                  : is(x, ATTN_STEP_NO_MAX_ROWS) ? x->m == minus_inf
                                                 : 0;
    x->unsure = (x->l > 0 && x->l < least) || (isinf(x->l) && isfinite(largest));
    x->m = is_zero ? minus_inf : 0;
}

/* Scores, raw scores; returns the largest score. */
static double score_row(struct attn_evaluation *x, int64_t b, int64_t h, int64_t i)
{
    double m = minus_inf;
    for (int64_t j = 0; j < x->p->n_key; j++) {
        x->s[j] = sees(x, b, h, i, j) ? score(x, b, h, i, j) : hidden_score(x, b, h, i, j);
        m = x->s[j] > m || isnan(x->s[j]) ? x->s[j] : m;
    }
    return m;
}

void attn_evaluate_scores(struct attn_evaluation *x, int64_t b, int64_t h, int64_t i)
{
    int64_t n = x->p->n_key;
    double m = score_row(x, b, h, i), l = 0, largest = 0;
    if ((is(x, ATTN_STEP_ZERO_KEYS) || is(x, ATTN_STEP_MAX_START)) && m < x->f->value)
        m = x->f->value;
    for (int64_t j = 0; j < n; j++) {
        double shift = has_no_max(x) ? 0 : m;
        x->w[j] = m == minus_inf ? 0 : narrow(x, exp(x->s[j] - shift));
        largest = x->w[j] > largest ? x->w[j] : largest;
        if (is(x, ATTN_STEP_TWICE) && j >= x->f->lo && j < x->f->hi)
            x->w[j] *= 2;
        l += x->w[j];
    }
    if (is(x, ATTN_STEP_ZERO_KEYS))
        l += (double)x->f->n * exp(-m);
    x->m = m;
    x->l = narrow(x, l);
    if (has_no_max(x))
        forget_max(x, largest);
    x->lse = x->m == minus_inf ? x->m : x->m + log(x->l);
}

/* A running sum that is not rescaled: each weight is relative to the maximum of its time. */
static void make_stale(struct attn_evaluation *x)
{
    double m = minus_inf, l = 0;
    for (int64_t j0 = 0; j0 < x->p->n_key; j0 += x->f->n) {
        int64_t j1 = j0 + x->f->n < x->p->n_key ? j0 + x->f->n : x->p->n_key;
        for (int64_t j = j0; j < j1; j++)
            m = x->s[j] > m ? x->s[j] : m;
        for (int64_t j = j0; j < j1; j++) {
            double w = m == minus_inf ? 0 : exp(x->s[j] - m);
            l += w;
            if (!is(x, ATTN_STEP_STALE_L))
                x->w[j] = w;
        }
    }
    if (is(x, ATTN_STEP_STALE_O))
        return;
    x->l = l;
    x->lse = m != minus_inf ? m + log(l) : x->lse;
}

/* ---- blocks of keys, one of each rank: rank r holds block r, then r - 1, ... ---------------- */

static int64_t block_at(const struct attn_evaluation *x, int64_t i, int64_t step)
{
    return (rank_of(x, x->p->n_query, i) - step + x->f->n) % x->f->n;
}

/* Whether a rank may pass over the block: nothing in it is visible for any of its rows. */
static int is_hidden(const struct attn_evaluation *x, int64_t i, int64_t block)
{
    const struct attn_problem *p = x->p;
    int64_t rank = rank_of(x, p->n_query, i), row = start_of(x, p->n_query, rank);
    int64_t lo = start_of(x, p->n_key, block), hi = start_of(x, p->n_key, block + 1);
    for (int64_t b = 0; b < p->batch && p->mask != NULL; b++)
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t r = row; r < start_of(x, p->n_query, rank + 1); r++)
                if (attn_mask_row_count(p->mask, b, h, r, lo, hi) > 0)
                    return 0;
    return p->mask != NULL;
}

/* O of one block; returns its LSE. */
static double block_o(struct attn_evaluation *x, int64_t b, int64_t h, int64_t block, double *o)
{
    int64_t first = start_of(x, x->p->n_key, block), end = start_of(x, x->p->n_key, block + 1);
    int64_t dv = x->p->d_value;
    double m = minus_inf, l = 0;
    memset(o, 0, (size_t)dv * sizeof *o);
    for (int64_t j = first; j < end; j++)
        m = x->s[j] > m ? x->s[j] : m;
    for (int64_t j = first; j < end && m > minus_inf; j++)
        l += exp(x->s[j] - m);
    for (int64_t j = first; j < end; j++) {
        const double *v = key_row(x, ATTN_OF_V, b, h, 0, j);
        for (int64_t c = 0; c < dv && x->s[j] > minus_inf; c++)
            o[c] += exp(x->s[j] - m) / l * v[c];
    }
    return m > minus_inf ? m + log(l) : m;
}

/* As float32 has it: what is out of its range is 0 or infinite. */
static double merge_exp(const struct attn_evaluation *x, double a)
{
    double e = is(x, ATTN_STEP_MERGE_EXP2) ? exp2(a) : exp(a);
    return x->p->dtype == ATTN_F32 ? (double)(float)e : e;
}

static void merge(struct attn_evaluation *x, double lse2)
{
    double lse1 = x->lse;
    int sorted = is(x, ATTN_STEP_MERGE_UNSORTED) || lse1 >= lse2;
    double max = sorted ? lse1 : lse2, min = sorted ? lse2 : lse1;
    if (lse1 == minus_inf && lse2 == minus_inf && !is(x, ATTN_STEP_MERGE_EMPTY))
        return;
    double e = merge_exp(x, min - max);
    double large = is(x, ATTN_STEP_MERGE_MEAN) ? 0.5 : 1 / (1 + e);
    double small = is(x, ATTN_STEP_MERGE_MEAN) ? 0.5 : e / (1 + e);
    for (int64_t c = 0; c < x->p->d_value; c++)
        x->o[c] =
            sorted ? large * x->o[c] + small * x->other[c] : large * x->other[c] + small * x->o[c];
    x->lse = is(x, ATTN_STEP_MERGE_MAX)         ? max
             : is(x, ATTN_STEP_MERGE_FIRST)     ? lse1
             : is(x, ATTN_STEP_MERGE_UNSHIFTED) ? log(merge_exp(x, lse1) + merge_exp(x, lse2))
                                                : max + log1p(e);
}

static void merge_blocks(struct attn_evaluation *x, int64_t b, int64_t h, int64_t i)
{
    int resets = is(x, ATTN_STEP_MERGE_RESET);
    int64_t steps = x->f->n - is(x, ATTN_STEP_MERGE_SHORT);
    size_t o_bytes = (size_t)x->p->d_value * sizeof *x->o;
    x->lse = minus_inf;
    memset(x->o, 0, o_bytes);
    for (int64_t step = 0; step < steps; step++) {
        int64_t block = block_at(x, i, step);
        if ((resets || is(x, ATTN_STEP_MERGE_EMPTY)) && is_hidden(x, i, block)) {
            if (resets)
                memset(x->o, 0, o_bytes), x->lse = minus_inf;
            continue;
        }
        double lse = block_o(x, b, h, block, step == 0 ? x->o : x->other);
        if (step == 0)
            x->lse = lse;
        for (int times = is(x, ATTN_STEP_MERGE_TWICE) ? 2 : 1; times > 0 && step > 0; times--)
            merge(x, lse);
    }
}

/* ---- O and LSE ------------------------------------------------------------------------------ */

static int has_blocks(const struct attn_evaluation *x)
{
    return is_among(x, ATTN_STEP_MERGE_MEAN, ATTN_STEP_MERGE_EMPTY);
}

static double lse_of(const struct attn_evaluation *x)
{
    double nan = (double)NAN, inf = (double)INFINITY;
    if (x->m == minus_inf && !has_blocks(x))
        return is(x, ATTN_STEP_EMPTY_LSE)   ? x->f->value
               : is(x, ATTN_STEP_LSE_2_INF) ? inf
               : is(x, ATTN_STEP_EMPTY_NAN) ? nan
                                            : x->lse;
    return is(x, ATTN_STEP_LSE_TIMES)   ? x->f->value * x->lse
           : is(x, ATTN_STEP_LSE_2_INF) ? log2_e * x->lse
           : is(x, ATTN_STEP_LSE_LOG)   ? log(x->l)
           : is(x, ATTN_STEP_LSE_SUM)   ? x->l
           : is(x, ATTN_STEP_LSE_M_SUM) ? x->m + x->l
           : is(x, ATTN_STEP_LSE_M)     ? x->m
                                        : x->lse;
}

static void evaluate_o(struct attn_evaluation *x, int64_t b, int64_t h, int64_t i)
{
    int empty = x->m == minus_inf, wants_mean = empty && is(x, ATTN_STEP_EMPTY_MEAN);
    int is_nan = empty && (is(x, ATTN_STEP_EMPTY_NAN) || is(x, ATTN_STEP_EMPTY_NAN_O));
    double l = wants_mean ? (double)x->p->n_key : is(x, ATTN_STEP_UNNORMALISED) || empty ? 1 : x->l;
    for (int64_t c = 0; c < x->p->d_value; c++)
        x->o[c] = is_nan ? (double)NAN : 0;
    for (int64_t j = 0; j < x->p->n_key; j++) {
        double w = wants_mean ? 1 : x->w[j];
        const double *v = w != 0 && !is_nan ? key_row(x, ATTN_OF_V, b, h, i, j) : NULL;
        for (int64_t c = 0; c < x->p->d_value && v != NULL; c++)
            x->o[c] += w * v[c];
    }
    for (int64_t c = 0; c < x->p->d_value; c++)
        x->o[c] = x->o[c] / l;
}

/* ---- held against what was computed --------------------------------------------------------- */

static int is_as(double got, double want, double bound)
{
    return fabs(got - want) <= bound || got == want || (isnan(got) && isnan(want));
}

/* One element more of a row that fits.  Where outputs are looked for in other places, what is wrong
 * in its own place is right there. */
static void count(struct attn_evaluation *x, double got, double own, double told, double want,
                  double bound)
{
    struct attn_evidence *e = &x->evidence;
    double error = got == told ? 0 : fabs(got - told);
    if (isinf(bound) || is_as(own, want, bound)) /* nothing can be said of it, or it is right */
        return;
    e->wrong++;
    if (isnan(got))
        e->nan_apart += !isnan(want);
    else
        e->apart +=
            x->has_moved_outputs || (!is_as(told, want, bound) && error < fabs(own - want) / 2);
}

int attn_evaluation_fits(struct attn_evaluation *x, enum attn_output o, int64_t row,
                         const double *told)
{
    const struct attn_truth_tensor *t = &x->run->truth.tensor[o];
    int64_t width = t->extent[3], at = row * width;
    const double *got = x->x[ATTN_T_O + o] + at, *own = x->run->x[ATTN_T_O + o] + at;
    double size = 0;
    for (int64_t c = 0; c < width; c++)
        size = isfinite(told[c]) && fabs(told[c]) > size ? fabs(told[c]) : size;
    for (int64_t c = 0; c < width; c++) {
        double room = x->run->loose * size + 4 * t->bound[at + c] + 1e-30;
        if (!isinf(t->bound[at + c]) && !is_as(got[c], told[c], room))
            return 0;
    }
    for (int64_t c = 0; c < width; c++) {
        count(x, got[c], own[c], told[c], t->want[at + c], t->bound[at + c]);
        x->evidence.finite += x->run->failing[o] && isfinite(got[c]);
    }
    return 1;
}

int attn_evaluation_explains(const struct attn_evaluation *x)
{
    const struct attn_evidence *e = &x->evidence;
    int is_nan = is(x, ATTN_STEP_EMPTY_NAN) || is(x, ATTN_STEP_EMPTY_NAN_O);
    int is_hidden_number = is_among(x, ATTN_STEP_HIDDEN, ATTN_STEP_HIDDEN_ADDED);
    if (e->apart + e->nan_apart == 0 || 2 * (e->apart + e->nan_apart) < e->wrong)
        return 0;
    /* NaN alone fits every model that ends in NaN; where numbers stand beside it, its places speak,
     * unless the model reads what it should not, and whatever it reads is NaN. */
    int has_places = e->finite > 0 && !(is_hidden_number && isfinite(x->f->value)) &&
                     !is(x, ATTN_STEP_MAX_START) && !reads_elsewhere(x);
    return e->apart > 0 || has_places || is_nan;
}

static int forward_fits(struct attn_evaluation *x)
{
    const struct attn_problem *p = x->p;
    int stale = is_among(x, ATTN_STEP_STALE_O, ATTN_STEP_STALE_O_L), blocks = has_blocks(x);
    int64_t first = x->run->block > 0 ? x->run->block - 1 : 0;
    int64_t last = x->run->block > 0 ? x->run->block : p->batch * p->heads;
    for (int64_t row = first * p->n_query; row < last * p->n_query; row++) {
        int64_t b = row / p->n_query / p->heads, h = row / p->n_query % p->heads;
        int64_t i = row % p->n_query;
        int64_t to_h = is(x, ATTN_STEP_MOVED_HEAD) ? (h + 1) % p->heads : h;
        int64_t to_i = is(x, ATTN_STEP_MOVED_ROW) ? (i + 1) % p->n_query : i;
        int64_t to = (b * p->heads + to_h) * p->n_query + to_i;
        attn_evaluate_scores(x, b, h, i);
        if (stale)
            make_stale(x);
        if (blocks)
            merge_blocks(x, b, h, i);
        double lse = lse_of(x);
        if (x->unsure)
            continue;
        if (x->run->compared[ATTN_LSE] && !attn_evaluation_fits(x, ATTN_LSE, to, &lse))
            return 0;
        if (!blocks)
            evaluate_o(x, b, h, i);
        if (x->run->compared[ATTN_O] && !attn_evaluation_fits(x, ATTN_O, to, x->o))
            return 0;
    }
    return 1;
}

/* ---- backward ------------------------------------------------------------------------------- */

/* delta = dO . O - dLSE of a row. */
static double delta_of(const struct attn_evaluation *x, int64_t row)
{
    const struct attn_problem *p = x->p;
    int64_t i = row % p->n_query, tile = x->f->n, dv = p->d_value;
    int64_t of = is(x, ATTN_STEP_DELTA_BEFORE) && i > 0 ? row - 1
                 : is(x, ATTN_STEP_DELTA_TILE)          ? row - i % tile
                                                        : row;
    int64_t of_o = is(x, ATTN_STEP_DELTA_O_BEFORE) && row > 0 ? row - 1 : of;
    const double *d_lse = is(x, ATTN_STEP_NO_DLSE) ? NULL : x->x[ATTN_T_DLSE];
    const double *d_o = x->x[ATTN_T_DO] + of * dv;
    const double *o = x->run->truth.tensor[ATTN_O].want + of_o * dv;
    double delta = 0, extra = d_lse != NULL ? d_lse[row] : 0;
    for (int64_t c = 0; c < dv && !is(x, ATTN_STEP_NO_DELTA); c++)
        delta += d_o[c] * o[c];
    return is(x, ATTN_STEP_MINUS_DLSE) ? delta + extra : delta - extra;
}

/* LSE of a row's scores with the keys of one block. */
static double lse_of_block(const struct attn_evaluation *x, int64_t block)
{
    int64_t lo = start_of(x, x->p->n_key, block), hi = start_of(x, x->p->n_key, block + 1);
    double max = minus_inf, sum = 0;
    for (int64_t j = lo; j < hi; j++)
        max = fmax(max, x->s[j]);
    for (int64_t j = lo; j < hi && max > minus_inf; j++)
        sum += exp(x->s[j] - max);
    return max + log(sum);
}

/* P and dS of one row into probs and w; P as exp(s - LSE) with the true LSE, which the forward
 * delivered. */
static void evaluate_ds(struct attn_evaluation *x, int64_t b, int64_t h, int64_t i)
{
    const struct attn_problem *p = x->p;
    int64_t row = (b * p->heads + h) * p->n_query + i;
    double lse = x->run->truth.tensor[ATTN_LSE].want[row];
    const double *d_o = attn_evaluation_row(x, ATTN_T_DO, b, h, i);
    double delta = lse > minus_inf ? delta_of(x, row) : 0;
    int has_ranks = is(x, ATTN_STEP_BLOCK_LSE) || is(x, ATTN_STEP_OWN_DELTA);
    score_row(x, b, h, i);
    for (int64_t j = 0; j < p->n_key; j++) {
        int is_late =
            is(x, ATTN_STEP_ONE_BLOCK) && rank_of(x, p->n_key, j) != block_at(x, i, x->f->lo);
        x->w[j] = x->probs[j] = 0;
        if (lse == minus_inf || x->s[j] == minus_inf || is_late)
            continue;
        const double *v = key_row(x, ATTN_OF_V, b, h, i, j);
        double dp = 0;
        for (int64_t c = 0; c < p->d_value; c++)
            dp += d_o[c] * v[c];
        int64_t block = has_ranks ? rank_of(x, p->n_key, j) : 0;
        int is_own = has_ranks && block == block_at(x, i, 0);
        x->probs[j] = exp(x->s[j] - (is(x, ATTN_STEP_BLOCK_LSE) ? lse_of_block(x, block) : lse));
        x->w[j] = x->probs[j] * (dp - (is(x, ATTN_STEP_OWN_DELTA) && !is_own ? 0 : delta));
    }
}

static double cap_slope(const struct attn_evaluation *x, double raw)
{
    int has_slope = x->p->softcap > 0 && !is(x, ATTN_STEP_NO_CAP_SLOPE) && !is(x, ATTN_STEP_NO_CAP);
    double y = has_slope ? tanh(raw / x->p->softcap) : 0;
    return 1 - y * y;
}

static double factor(const struct attn_evaluation *x, enum attn_slot slot)
{
    return is(x, ATTN_STEP_FACTOR) && x->f->slots >> slot & 1 ? x->f->value : 1;
}

/* y += a x */
static void add(double *y, double a, const double *x, int64_t n)
{
    for (int64_t c = 0; c < n; c++)
        y[c] += a * x[c];
}

/* A row's share of dQ, dK and dV. */
static void add_row(struct attn_evaluation *x, int64_t b, int64_t h, int64_t i)
{
    const struct attn_problem *p = x->p;
    int64_t group = group_of(p), base = (b * p->kv_heads + kv_head(x, h, ATTN_OF_K)) * p->n_key;
    int lost = (is(x, ATTN_STEP_GROUP_LAST) && h % group != group - 1) ||
               (is(x, ATTN_STEP_GROUP_FIRST) && h % group != 0) ||
               (is(x, ATTN_STEP_ONE_RANK) && rank_of(x, p->n_query, i) != x->f->lo);
    const double *q = attn_evaluation_row(x, ATTN_T_Q, b, h, i);
    const double *d_o = attn_evaluation_row(x, ATTN_T_DO, b, h, i);
    int64_t position = 0, before = 0;
    for (int64_t j = p->n_key - 1; j >= 0; j--)
        before = x->probs[j] != 0 ? j : before;
    memset(x->dq, 0, (size_t)p->d_key * sizeof *x->dq);
    for (int64_t j = 0; j < p->n_key; j++) {
        if (x->w[j] == 0 && x->probs[j] == 0)
            continue;
        int64_t to = is(x, ATTN_STEP_BY_POSITION) ? position++ : j;
        int64_t to_k = is(x, ATTN_STEP_DK_BEFORE) ? before : to;
        double ds =
            x->w[j] * cap_slope(x, x->raw[j]) * (is(x, ATTN_STEP_SCALE) ? x->f->value : p->scale);
        before = j;
        add(x->dq, factor(x, ATTN_T_DQ) * ds, key_row(x, ATTN_OF_K, b, h, i, j), p->d_key);
        if (lost)
            continue;
        add(x->dk + (base + to_k) * p->d_key, factor(x, ATTN_T_DK) * ds, q, p->d_key);
        add(x->dv + (base + to) * p->d_value, factor(x, ATTN_T_DV) * x->probs[j], d_o, p->d_value);
    }
}

/* Where a pair's share of dBias goes: axes that the bias does not vary along are 1 wide. */
static void add_dbias(struct attn_evaluation *x, int64_t b, int64_t h, int64_t i)
{
    const int64_t *n = x->run->truth.tensor[ATTN_DBIAS].extent;
    int lost = is(x, ATTN_STEP_DBIAS_HEAD_0) && n[1] == 1 && h > 0;
    for (int64_t j = 0; j < x->p->n_key && x->dbias != NULL; j++) {
        double *to = &x->dbias[((b % n[0] * n[1] + h % n[1]) * n[2] + i % n[2]) * n[3] + j % n[3]];
        *to = (is(x, ATTN_STEP_DBIAS_LAST) ? 0 : *to) + (lost ? 0 : x->w[j]);
    }
}

static int output_fits(struct attn_evaluation *x, enum attn_output o, const double *told)
{
    const struct attn_truth_tensor *t = &x->run->truth.tensor[o];
    if (!x->run->compared[o] || told == NULL)
        return 1;
    for (int64_t row = 0; row < attn_run_rows(x->run, o); row++)
        if (!attn_evaluation_fits(x, o, row, told + row * t->extent[3]))
            return 0;
    return 1;
}

/* The first row of an output that is compared and wrong, or -1. */
static int64_t first_wrong(const struct attn_evaluation *x, enum attn_output o)
{
    for (int64_t row = 0; x->run->failing[o] && row < attn_run_rows(x->run, o); row++)
        if (!attn_run_row_is_right(x->run, o, row))
            return row;
    return -1;
}

static void evaluate_backward(struct attn_evaluation *x, int64_t row)
{
    int64_t Lq = x->p->n_query, H = x->p->heads;
    evaluate_ds(x, row / Lq / H, row / Lq % H, row % Lq);
    add_row(x, row / Lq / H, row / Lq % H, row % Lq);
}

/* Most models are refuted by the first row that is wrong: of dQ by itself, of dK and dV by the
 * queries that share the head. */
static int first_wrong_fits(struct attn_evaluation *x)
{
    const struct attn_problem *p = x->p;
    int64_t dq = first_wrong(x, ATTN_DQ), dk = first_wrong(x, ATTN_DK);
    enum attn_output o = dq >= 0 ? ATTN_DQ : dk >= 0 ? ATTN_DK : ATTN_DV;
    int64_t wrong = dq >= 0 ? dq : dk >= 0 ? dk : first_wrong(x, ATTN_DV);
    int64_t rows = o == ATTN_DQ ? 1 : group_of(p) * p->n_query,
            width = o == ATTN_DV ? p->d_value : p->d_key;
    int64_t first = o == ATTN_DQ ? wrong : wrong / (p->n_key > 0 ? p->n_key : 1) * rows;
    int is_of_other_heads =
        is(x, ATTN_STEP_HEAD_FIXED) || is_among(x, ATTN_STEP_HEAD_MODULO, ATTN_STEP_HEAD_STRIDED);
    if (wrong < 0 || (o != ATTN_DQ && is_of_other_heads))
        return 1;
    for (int64_t row = first; row < first + rows; row++)
        evaluate_backward(x, row);
    const double *told = o == ATTN_DQ ? x->dq : (o == ATTN_DK ? x->dk : x->dv) + wrong * width;
    int fits = attn_evaluation_fits(x, o, wrong, told);
    memset(x->dk, 0,
           (size_t)(p->batch * p->kv_heads * p->n_key * (p->d_key + p->d_value)) * sizeof *x->dk);
    x->evidence = (struct attn_evidence){0};
    return fits;
}

static int backward_fits(struct attn_evaluation *x)
{
    const struct attn_problem *p = x->p;
    if (!first_wrong_fits(x))
        return 0;
    for (int64_t row = 0; row < p->batch * p->heads * p->n_query; row++) {
        evaluate_backward(x, row);
        add_dbias(x, row / p->n_query / p->heads, row / p->n_query % p->heads, row % p->n_query);
        if (x->run->compared[ATTN_DQ] && !attn_evaluation_fits(x, ATTN_DQ, row, x->dq))
            return 0;
    }
    return output_fits(x, ATTN_DK, x->dk) && output_fits(x, ATTN_DV, x->dv) &&
           output_fits(x, ATTN_DBIAS, x->dbias);
}

/* ---- the interface -------------------------------------------------------------------------- */

int attn_evaluation_open(struct attn_evaluation *x, const struct attn_failed_run *run,
                         const struct attn_fault_model *f)
{
    const struct attn_problem *p = &run->setup->problem;
    const int64_t *n = run->extent[ATTN_T_DBIAS];
    int64_t keys = p->batch * p->kv_heads * p->n_key, d = p->d_key, dv = p->d_value;
    int64_t dbias = run->x[ATTN_T_DBIAS] != NULL ? n[0] * n[1] * n[2] * n[3] : 0;
    *x = (struct attn_evaluation){.run = run, .f = f, .p = p};
    int inside = take_tensors(x);
    x->s = calloc((size_t)(4 * p->n_key + 2 * dv + d + keys * (d + dv) + dbias + 1), sizeof *x->s);
    if (x->s == NULL || !inside)
        return 0;
    x->w = x->s + p->n_key;
    x->raw = x->w + p->n_key;
    x->probs = x->raw + p->n_key;
    x->o = x->probs + p->n_key;
    x->other = x->o + dv;
    x->dq = x->other + dv;
    x->dk = x->dq + d;
    x->dv = x->dk + keys * d;
    x->dbias = dbias > 0 ? x->dv + keys * dv : NULL;
    return 1;
}

void attn_evaluation_close(struct attn_evaluation *x)
{
    for (int slot = 0; slot < ATTN_SLOTS; slot++)
        free(x->moved[slot]);
    free(x->s);
}

static int hold(const struct attn_failed_run *run, const struct attn_fault_model *f,
                int must_explain)
{
    struct attn_evaluation x;
    int fits = attn_evaluation_open(&x, run, f) &&
               (run->backward ? backward_fits(&x) : forward_fits(&x)) &&
               (!must_explain || attn_evaluation_explains(&x));
    attn_evaluation_close(&x);
    return fits;
}

int attn_fault_fits(const struct attn_failed_run *run, const struct attn_fault_model *f)
{
    return hold(run, f, 1);
}

int attn_truth_is_near(const struct attn_failed_run *run)
{
    return hold(run, &(struct attn_fault_model){.step = ATTN_STEP_NONE}, 0);
}
