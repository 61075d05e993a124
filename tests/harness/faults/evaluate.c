/* See faults.h.  Attention by its definition, step by step; at each place where a step can go wrong
 * the row of faults.def that is evaluated has its say. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ref/problem.h"
#include "tests/harness/faults/faults.h"

static const double minus_inf = -(double)INFINITY;

/* The change of the row that is evaluated; its place has come. */
static void change_by_row(struct attn_evaluation *x, struct attn_fault_at *at);

static void change(struct attn_evaluation *x, enum attn_place place, struct attn_fault_at *at)
{
    if (x->f->place == place)
        change_by_row(x, at);
}

/* A number of this kind, as the model rounds it. */
static double number(struct attn_evaluation *x, unsigned of_number, double y)
{
    if (x->f->place != ATTN_AT_NUMBER)
        return y;
    struct attn_fault_at at = {.y = y, .of_number = of_number};
    change_by_row(x, &at);
    return at.y;
}

static int64_t group_of(const struct attn_problem *p)
{
    return p->kv_heads > 0 ? p->heads / p->kv_heads : 1;
}

/* As the type of the problem has it: in float32 what is out of its range is 0 or infinite. */
static double narrow(const struct attn_problem *p, double a)
{
    return p->dtype == ATTN_F64 ? a : (double)(float)a;
}

/* As a storage type has it. */
static double stored(enum attn_dtype dtype, double y)
{
    double cell;
    const struct attn_view view = {.data = &cell, .dtype = dtype};
    attn_view_set(&view, 0, 0, 0, 0, y);
    return attn_view_get(&view, 0, 0, 0, 0);
}

/* Of q and k that are scaled before they are multiplied. */
static double stored_times(const struct attn_problem *p, double y, double factor)
{
    return stored(p->dtype, y * factor) / factor;
}

/* Of an input or a result, in its own type; of what is between, in that of the arithmetic. */
static double flushed(const struct attn_problem *p, unsigned of, double y)
{
    int is_stored = (of & (ATTN_OF_INPUTS | ATTN_OF_RESULT)) != 0;
    enum attn_dtype dtype = is_stored || p->dtype == ATTN_F64 ? p->dtype : ATTN_F32;
    return fabs(y) < attn_least_normal(dtype) ? 0 : y;
}

/* To 11 significant bits, or cut to them. */
static double as_tf32(double y, int is_cut)
{
    int e;
    double fraction = ldexp(frexp(y, &e), 11);
    return y == 0 || !isfinite(y) ? y : ldexp(is_cut ? trunc(fraction) : rint(fraction), e - 11);
}

/* ---- memory: every tensor by its own strides, or by wrong ones ------------------------------ */

static int is_broadcast(const struct attn_tensor *t, int axis)
{
    return t->extent[axis] > 1 && t->stride[axis] == 0;
}

/* Token-major where it is head-major and the reverse. */
static void turn(struct attn_fault_at *at)
{
    const int64_t *n = at->tensor->extent;
    int64_t *stride = at->view->stride, width = n[3], heads = n[1], rows = n[2];
    int token_major = heads > 1 && rows > 1 && stride[2] > stride[1];
    stride[3] = 1;
    stride[0] = heads * rows * width;
    stride[1] = token_major ? rows * width : width;
    stride[2] = token_major ? width : heads * width;
}

/* As if packed; axes that are broadcast stay so. */
static void pack(struct attn_fault_at *at)
{
    int64_t room = 1;
    for (int axis = 3; axis >= 0; axis--) {
        if (is_broadcast(at->tensor, axis))
            continue;
        at->view->stride[axis] = room;
        room *= at->tensor->extent[axis];
    }
}

static void adjoin(struct attn_fault_at *at)
{
    at->view->stride[3] = is_broadcast(at->tensor, 3) ? 0 : 1;
}

static void close_rows(struct attn_fault_at *at)
{
    if (!is_broadcast(at->tensor, 2))
        at->view->stride[2] = at->tensor->extent[3] * at->view->stride[3];
}

static void round_down(struct attn_fault_at *at, int64_t bytes)
{
    at->view->data = (const void *)((uintptr_t)at->view->data & ~((uintptr_t)bytes - 1));
}

static void strides_of(struct attn_fault_at *at, const struct attn_tensor *other)
{
    memcpy(at->view->stride, other->stride, sizeof at->view->stride);
}

/* The tensors from this slot on that have tokens, heads and features. */
static unsigned wide(const struct attn_failed_run *run, int first)
{
    unsigned slots = 0;
    for (int slot = first; slot < ATTN_SLOTS; slot++)
        if (run->extent[slot][3] > 1 && slot != ATTN_T_BIAS && slot != ATTN_T_DBIAS)
            slots |= 1u << slot;
    return slots;
}

/* All inputs (n = 0), or one. */
static unsigned input(int64_t n)
{
    return n == 0 ? (1u << ATTN_T_O) - 1 : 1u << (n - 1);
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

/* 0 when the model leaves a tensor's memory: it cannot be evaluated. */
static int take_tensors(struct attn_evaluation *x)
{
    const int end = x->f->place == ATTN_AT_VIEW     ? ATTN_SLOTS
                    : x->f->place == ATTN_AT_NUMBER ? ATTN_T_O
                                                    : 0;
    memcpy(x->x, x->run->x, sizeof x->x);
    for (int slot = 0; slot < end; slot++) {
        const struct attn_tensor *t = &x->run->setup->tensor[slot];
        const struct attn_cview right = attn_tensor_cview(t);
        const int64_t *n = x->run->extent[slot];
        struct attn_cview view = right;
        struct attn_fault_at at = {.slot = (enum attn_slot)slot, .tensor = t, .view = &view};
        if (x->x[slot] == NULL)
            continue;
        change(x, ATTN_AT_VIEW, &at);
        if (end == ATTN_SLOTS && memcmp(&view, &right, sizeof view) == 0)
            continue;
        if (is_inside(&view, t))
            x->moved[slot] = attn_packed_numbers(&view, n);
        if (x->moved[slot] == NULL)
            return 0;
        for (int64_t e = 0; end == ATTN_T_O && e < n[0] * n[1] * n[2] * n[3]; e++)
            x->moved[slot][e] = number(x, (unsigned)ATTN_OF_Q << slot, x->moved[slot][e]);
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

/* ---- ranks: who has which of n tokens ------------------------------------------------------- */

/* The first tokens % ranks of them have one token more. */
static int64_t rank_of(int64_t ranks, int64_t tokens, int64_t token)
{
    int64_t least = tokens / ranks, more = tokens % ranks, edge = more * (least + 1);
    return token < edge ? token / (least + 1) : more + (token - edge) / least;
}

static int64_t start_of(int64_t ranks, int64_t tokens, int64_t rank)
{
    int64_t more = tokens % ranks;
    return rank * (tokens / ranks) + (rank < more ? rank : more);
}

/* The token at the same place in the part of another rank, or the last one. */
static int64_t moved_to(int64_t ranks, int64_t tokens, int64_t token, int64_t rank)
{
    int64_t own = start_of(ranks, tokens, rank_of(ranks, tokens, token));
    int64_t to = token - own + start_of(ranks, tokens, rank);
    return to < tokens ? to : tokens - 1;
}

/* The block that the rank of query i has at a step of the ring: its own, then those before it. */
static int64_t block_at(int64_t ranks, int64_t n_query, int64_t i, int64_t step)
{
    return (rank_of(ranks, n_query, i) - step + ranks) % ranks;
}

/* The key that is j-th where what the ranks hold lies one behind the other: two runs each, one from
 * each end. */
static int64_t of_two_runs(int64_t ranks, int64_t n_key, int64_t j)
{
    int64_t each = n_key / ranks, rank = j / each, at = j % each;
    int64_t run = 2 * at < each ? rank : 2 * ranks - 1 - rank;
    return run * (each / 2) + at % (each / 2);
}

/* ---- which pairs are visible, and where a query finds K, V and bias ------------------------- */

static int sees(const struct attn_problem *p, int64_t b, int64_t h, int64_t i, int64_t j)
{
    return attn_mask_allows(p->mask, b, h, i, j);
}

/* How many keys of [lo,hi) a query sees. */
static int64_t visible(const struct attn_problem *p, const struct attn_fault_at *at, int64_t lo,
                       int64_t hi)
{
    return attn_mask_row_count(p->mask, at->b, at->h, at->i, lo, hi < p->n_key ? hi : p->n_key);
}

/* The parts of the mask, each with a say of the row, and what & and | make of them. */
static int sees_parts(struct attn_evaluation *x, const struct attn_fault_at *pair)
{
    int all = 1, any = 0;
    for (int n = 0; n < x->run->parts; n++) {
        const struct attn_mask_part *part = &x->run->part[n];
        struct attn_fault_at at = *pair;
        at.part = n, at.band = part->band, at.is_or = part->is_or;
        change(x, ATTN_AT_PART, &at);
        int64_t away = at.j - at.i - at.band.offset;
        int is_changed = memcmp(&at.band, &part->band, sizeof at.band) != 0;
        int shown = at.seen >= 0  ? at.seen
                    : at.ignored  ? part->is_and
                    : !is_changed ? attn_mask_allows(part->mask, at.b, at.h, at.i, at.j)
                                  : away >= -at.band.left && away <= at.band.right;
        all &= shown;
        if (at.is_or || n + 1 == x->run->parts)
            any |= all, all = 1;
    }
    return any;
}

static int is_visible(struct attn_evaluation *x, int64_t b, int64_t h, int64_t i, int64_t j)
{
    struct attn_fault_at at = {.b = b, .h = h, .i = i, .j = j, .seen = -1};
    change(x, ATTN_AT_PAIR, &at);
    change(x, ATTN_AT_MASK, &at);
    return at.seen >= 0                  ? at.seen
           : x->f->place == ATTN_AT_PART ? sees_parts(x, &at)
                                         : sees(x->p, at.b, at.h, at.i, at.j);
}

/* The row of K (or V) that query i of head h takes for key j. */
static const double *key_row(struct attn_evaluation *x, enum attn_fault_of of, int64_t b, int64_t h,
                             int64_t i, int64_t j)
{
    struct attn_fault_at at = {.b = b, .h = h, .i = i, .j = j, .g = h / group_of(x->p), .of = of};
    change(x, ATTN_AT_KEY, &at);
    return attn_evaluation_row(x, of == ATTN_OF_K ? ATTN_T_K : ATTN_T_V, at.b, at.g, at.j);
}

static double alibi(struct attn_evaluation *x, const struct attn_fault_at *pair)
{
    const struct attn_bias *bias = &x->p->bias;
    struct attn_fault_at at = *pair;
    at.y = fabs((double)(at.i + bias->offset - at.j));
    change(x, ATTN_AT_DISTANCE, &at);
    return -bias->slope[at.h] * at.y;
}

static double bias(struct attn_evaluation *x, int64_t b, int64_t h, int64_t i, int64_t j)
{
    struct attn_fault_at at = {.b = b, .h = h, .i = i, .j = j};
    if (x->p->bias.kind == ATTN_BIAS_NONE)
        return 0;
    change(x, ATTN_AT_PAIR, &at);
    change(x, ATTN_AT_BIAS, &at);
    at.y = x->p->bias.kind == ATTN_BIAS_ALIBI
               ? alibi(x, &at)
               : attn_evaluation_row(x, ATTN_T_BIAS, at.b, at.h, at.i)[at.j];
    change(x, ATTN_AT_ADDED, &at);
    return at.y;
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
    struct attn_fault_at at = {.more = bias(x, b, h, i, j)};
    for (int64_t e = 0; e < x->features; e++)
        at.y += q[e] * k[e];
    change(x, ATTN_AT_DOT, &at);
    at.s = x->raw[j] = number(x, ATTN_OF_SCORE, x->p->scale * number(x, ATTN_OF_DOT, at.y));
    at.y = number(x, ATTN_OF_SCORE, cap(at.s, x->p->softcap) + at.more);
    change(x, ATTN_AT_SCORE, &at);
    return at.y;
}

static double hidden_score(struct attn_evaluation *x, int64_t b, int64_t h, int64_t i, int64_t j)
{
    struct attn_fault_at at = {.b = b, .h = h, .i = i, .j = j, .y = minus_inf};
    change(x, ATTN_AT_HIDDEN, &at);
    x->is_hidden_number |= isfinite(at.y);
    return at.y;
}

/* Scores, raw scores; returns the largest score. */
static double score_row(struct attn_evaluation *x, int64_t b, int64_t h, int64_t i)
{
    double m = minus_inf;
    for (int64_t j = 0; j < x->p->n_key; j++) {
        x->s[j] = is_visible(x, b, h, i, j) ? score(x, b, h, i, j) : hidden_score(x, b, h, i, j);
        m = x->s[j] > m || isnan(x->s[j]) ? x->s[j] : m;
    }
    return m;
}

static void set_sum(struct attn_evaluation *x, double l)
{
    x->l = x->norm = l;
    x->lse = x->m + log(l);
}

/* A row that sees no key. */
static void see_nothing(struct attn_evaluation *x)
{
    x->m = x->lse = minus_inf;
    x->l = 0;
    x->norm = 1;
    memset(x->w, 0, (size_t)x->p->n_key * sizeof *x->w);
}

static void weigh(struct attn_evaluation *x, double m)
{
    double l = 0;
    x->m = m;
    for (int64_t j = 0; j < x->p->n_key; j++)
        l += x->w[j] =
            x->f->place == ATTN_AT_MAX ? narrow(x->p, exp(x->s[j] - m)) : exp(x->s[j] - m);
    set_sum(x, l);
}

void attn_evaluate_scores(struct attn_evaluation *x, int64_t b, int64_t h, int64_t i)
{
    struct attn_fault_at at = {.y = score_row(x, b, h, i)};
    change(x, ATTN_AT_MAX, &at);
    x->unsure = 0;
    if (at.y == minus_inf)
        see_nothing(x);
    else
        weigh(x, at.y);
    change(x, ATTN_AT_ROW, &at);
    x->is_nan |= at.y == minus_inf && isnan(x->norm);
}

/* Weights are exp(s), whatever the maximum is; where they are subnormal, or their sum alone
 * overflows, the numbers hang on rounding. */
static void forget_max(struct attn_evaluation *x)
{
    double least = x->p->dtype == ATTN_F64 ? 0x1p-1000 : 0x1p-110, l = 0, largest = 0;
    for (int64_t j = 0; j < x->p->n_key; j++) {
        l += x->w[j] = narrow(x->p, exp(x->s[j]));
        largest = fmax(largest, x->w[j]);
    }
    x->m = 0;
    set_sum(x, narrow(x->p, l));
    x->unsure = (x->l > 0 && x->l < least) || (isinf(x->l) && isfinite(largest));
}

static void weigh_alike(struct attn_evaluation *x)
{
    for (int64_t j = 0; j < x->p->n_key; j++)
        x->w[j] = 1;
    x->norm = (double)x->p->n_key;
}

/* Keys from `first` on. */
static void count_twice(struct attn_evaluation *x, int64_t first)
{
    double l = x->l;
    for (int64_t j = first; j < x->p->n_key; j++) {
        l += x->w[j];
        x->w[j] *= 2;
    }
    if (l > 0)
        set_sum(x, l);
}

/* Keys of score 0, whose V is 0. */
static void pad_keys(struct attn_evaluation *x, int64_t more)
{
    weigh(x, fmax(x->m, 0));
    set_sum(x, x->l + (double)more * exp(-x->m));
}

/* Running sums that are not rescaled: each weight is relative to the maximum of its time. */
enum { STALE_O = 1, STALE_L = 2 };
static void make_stale(struct attn_evaluation *x, int64_t tile, int what)
{
    double m = minus_inf, l = 0;
    for (int64_t j0 = 0; j0 < x->p->n_key; j0 += tile) {
        int64_t j1 = j0 + tile < x->p->n_key ? j0 + tile : x->p->n_key;
        for (int64_t j = j0; j < j1; j++)
            m = x->s[j] > m ? x->s[j] : m;
        for (int64_t j = j0; j < j1; j++) {
            double w = m == minus_inf ? 0 : exp(x->s[j] - m);
            l += w;
            if (what & STALE_O)
                x->w[j] = w;
        }
    }
    if (what & STALE_L && m > minus_inf)
        set_sum(x, l);
}

/* ---- blocks of keys, one of each rank: rank r holds block r, then r - 1, ... ---------------- */

static double lse_of_block(const struct attn_evaluation *x, int64_t ranks, int64_t block)
{
    int64_t lo = start_of(ranks, x->p->n_key, block), hi = start_of(ranks, x->p->n_key, block + 1);
    double max = minus_inf, sum = 0;
    for (int64_t j = lo; j < hi; j++)
        max = fmax(max, x->s[j]);
    for (int64_t j = lo; j < hi && max > minus_inf; j++)
        sum += exp(x->s[j] - max);
    return max > minus_inf ? max + log(sum) : max;
}

/* O of one block; returns its LSE. */
static double block_o(struct attn_evaluation *x, int64_t b, int64_t h, int64_t block, double *o)
{
    int64_t ranks = x->f->n, end = start_of(ranks, x->p->n_key, block + 1);
    double lse = lse_of_block(x, ranks, block);
    memset(o, 0, (size_t)x->p->d_value * sizeof *o);
    for (int64_t j = start_of(ranks, x->p->n_key, block); j < end; j++) {
        const double *v = key_row(x, ATTN_OF_V, b, h, 0, j);
        for (int64_t c = 0; c < x->p->d_value && x->s[j] > minus_inf; c++)
            o[c] += exp(x->s[j] - lse) * v[c];
    }
    return lse;
}

/* Whether a rank may pass over the block: nothing in it is visible for any of its rows. */
static int is_hidden(const struct attn_evaluation *x, int64_t i, int64_t block)
{
    const struct attn_problem *p = x->p;
    int64_t ranks = x->f->n, rank = rank_of(ranks, p->n_query, i);
    int64_t lo = start_of(ranks, p->n_key, block), hi = start_of(ranks, p->n_key, block + 1);
    int64_t first = start_of(ranks, p->n_query, rank), end = start_of(ranks, p->n_query, rank + 1);
    for (int64_t bh = 0; bh < p->batch * p->heads && p->mask != NULL; bh++)
        for (int64_t r = first; r < end; r++)
            if (attn_mask_row_count(p->mask, bh / p->heads, bh % p->heads, r, lo, hi) > 0)
                return 0;
    return p->mask != NULL;
}

static double narrow_exp(const struct attn_problem *p, double a)
{
    return p->dtype == ATTN_F32 ? (double)(float)exp(a) : exp(a);
}

/* What is in x->other, with this LSE, into what is in x->o. */
static void merge(struct attn_evaluation *x, double lse2, struct attn_fault_at *at)
{
    at->lse = x->lse, at->lse2 = lse2;
    at->is_second_larger = lse2 > x->lse;
    at->exponent = 1;
    change(x, ATTN_AT_MERGE, at);
    double max = at->is_second_larger ? lse2 : x->lse, min = at->is_second_larger ? x->lse : lse2;
    if (x->lse == minus_inf && lse2 == minus_inf && at->hidden != ATTN_PASSED_OVER)
        return;
    double e = narrow_exp(x->p, at->exponent * (min - max));
    at->large = 1 / (1 + e), at->small = e / (1 + e);
    at->y = max + log1p(e);
    change(x, ATTN_AT_MERGED, at);
    double first = at->is_second_larger ? at->small : at->large;
    double second = at->is_second_larger ? at->large : at->small;
    for (int64_t c = 0; c < x->p->d_value; c++)
        x->o[c] = first * x->o[c] + second * x->other[c];
    x->lse = at->y;
}

static void clear_o(struct attn_evaluation *x)
{
    memset(x->o, 0, (size_t)x->p->d_value * sizeof *x->o);
    x->lse = minus_inf;
}

static void merge_blocks(struct attn_evaluation *x, int64_t b, int64_t h, int64_t i)
{
    struct attn_fault_at at = {.blocks = x->f->n, .times = 1};
    change(x, ATTN_AT_BLOCKS, &at);
    clear_o(x);
    for (int64_t step = 0; step < at.blocks; step++) {
        int64_t block = block_at(x->f->n, x->p->n_query, i, step);
        if (at.hidden != ATTN_MERGED_TOO && is_hidden(x, i, block)) {
            if (at.hidden == ATTN_WIPES)
                clear_o(x);
            continue;
        }
        double lse = block_o(x, b, h, block, step == 0 ? x->o : x->other);
        if (step == 0)
            x->lse = lse;
        for (int times = at.times; times > 0 && step > 0; times--)
            merge(x, lse, &at);
    }
}

static void evaluate_o(struct attn_evaluation *x, int64_t b, int64_t h, int64_t i)
{
    memset(x->o, 0, (size_t)x->p->d_value * sizeof *x->o);
    for (int64_t j = 0; j < x->p->n_key; j++) {
        const double *v = x->w[j] != 0 ? key_row(x, ATTN_OF_V, b, h, i, j) : NULL;
        double w = number(x, ATTN_OF_WEIGHT, x->w[j]);
        if (x->f->place == ATTN_AT_NUMBER)
            w = number(x, ATTN_OF_P, w / x->norm) * x->norm;
        for (int64_t c = 0; c < x->p->d_value && v != NULL; c++)
            x->o[c] += number(x, ATTN_OF_PRODUCT, w * v[c]);
    }
    for (int64_t c = 0; c < x->p->d_value; c++)
        x->o[c] /= x->norm;
}

/* ---- held against what was computed --------------------------------------------------------- */

static int is_as(double got, double want, double bound)
{
    return fabs(got - want) <= bound || got == want || (isnan(got) && isnan(want));
}

/* One element more of a row that fits.  Where outputs are looked for in other places, what is wrong
 * in its own place must be right there. */
static void count(struct attn_evaluation *x, double got, double own, double told, double want,
                  double bound)
{
    struct attn_evidence *e = &x->evidence;
    double error = got == told ? 0 : fabs(got - told);
    int is_apart = x->has_moved_outputs || !is_as(told, want, bound);
    if (isinf(bound)) /* nothing can be said of it */
        return;
    if (is_as(own, want, bound)) {
        e->against += is_apart && error > bound;
        return;
    }
    e->wrong++;
    if (isnan(got))
        e->nan_apart += !isnan(want);
    else
        e->apart += is_apart && !(error >= fabs(own - want) / 2);
}

/* What is told, as the result's type has it, if what was computed is a number of that type. */
static double as_result(struct attn_evaluation *x, enum attn_output o, double got, double told)
{
    enum attn_dtype dtype = attn_result_dtype(x->p);
    if (o == ATTN_LSE || o == ATTN_DBIAS) /* never in 16 bits */
        return told;
    told = number(x, ATTN_OF_RESULT, told);
    return got == stored(dtype, got) ? stored(dtype, told) : told;
}

int attn_evaluation_fits(struct attn_evaluation *x, enum attn_output o, int64_t row,
                         const double *told)
{
    const struct attn_truth_tensor *t = &x->run->truth.tensor[o];
    int64_t width = t->extent[3], at = row * width;
    const double *got = x->x[ATTN_T_O + o] + at, *own = x->run->x[ATTN_T_O + o] + at;
    double size = 0, loose = x->run->loose;
    if (x->f->place == ATTN_AT_NUMBER) /* near the middle of two, either may be the nearest */
        loose = fmax(loose, 4 * attn_dtype_roundoff(is_half(x->p) ? x->p->dtype : ATTN_F16));
    if (!x->run->compared[o])
        return 1;
    for (int64_t c = 0; c < width; c++)
        size = isfinite(told[c]) && fabs(told[c]) > size ? fabs(told[c]) : size;
    for (int64_t c = 0; c < width; c++) {
        double room = loose * size + 4 * t->bound[at + c] + 1e-30;
        if (!isinf(t->bound[at + c]) && !is_as(got[c], told[c], room))
            return 0;
    }
    for (int64_t c = 0; c < width; c++) {
        count(x, got[c], own[c], as_result(x, o, got[c], told[c]), t->want[at + c],
              t->bound[at + c]);
        x->evidence.finite += x->run->failing[o] && isfinite(got[c]);
    }
    return 1;
}

int attn_evaluation_explains(const struct attn_evaluation *x)
{
    const struct attn_evidence *e = &x->evidence;
    enum attn_place place = x->f->place;
    const int64_t apart = e->apart + e->nan_apart;
    if (apart == 0 || 2 * apart < e->wrong || 4 * e->against > apart)
        return 0;
    /* NaN alone fits every model that ends in NaN; where numbers stand beside it, its places speak,
     * unless the model reads what it should not, and whatever it reads is NaN. */
    int has_places =
        e->finite > 0 && !x->is_hidden_number && place != ATTN_AT_MAX && place != ATTN_AT_VIEW;
    return e->apart > 0 || has_places || x->is_nan;
}

static int forward_fits(struct attn_evaluation *x)
{
    const struct attn_problem *p = x->p;
    int blocks = x->f->place >= ATTN_AT_BLOCKS && x->f->place <= ATTN_AT_MERGED;
    int64_t first = x->run->block > 0 ? x->run->block - 1 : 0;
    int64_t last = x->run->block > 0 ? x->run->block : p->batch * p->heads;
    for (int64_t row = first * p->n_query; row < last * p->n_query; row++) {
        int64_t b = row / p->n_query / p->heads, h = row / p->n_query % p->heads;
        int64_t i = row % p->n_query;
        attn_evaluate_scores(x, b, h, i);
        if (x->unsure)
            continue;
        if (blocks)
            merge_blocks(x, b, h, i);
        if (!attn_evaluation_fits(x, ATTN_LSE, row, &x->lse))
            return 0;
        if (!blocks)
            evaluate_o(x, b, h, i);
        if (!attn_evaluation_fits(x, ATTN_O, row, x->o))
            return 0;
    }
    return 1;
}

/* ---- backward ------------------------------------------------------------------------------- */

/* delta = dO . O - dLSE of a row. */
static double delta_of(struct attn_evaluation *x, int64_t row)
{
    const int64_t dv = x->p->d_value;
    const double *d_lse = x->x[ATTN_T_DLSE];
    struct attn_fault_at at = {.i = row % x->p->n_query, .row = row, .dot = 1, .dlse = -1};
    change(x, ATTN_AT_DELTA, &at);
    const int is_rounded = x->f->place == ATTN_AT_NUMBER; /* where it is multiplied alone */
    const double *d_o = (is_rounded ? x->run->x[ATTN_T_DO] : x->x[ATTN_T_DO]) + at.row * dv;
    const double *o = x->run->truth.tensor[ATTN_O].want + at.row * dv;
    double delta = 0;
    for (int64_t c = 0; c < dv && at.dot != 0; c++)
        delta += d_o[c] * o[c];
    return d_lse != NULL ? delta + at.dlse * d_lse[row] : delta;
}

/* P and dS of one row into probs and w; P as exp(s - LSE) with the true LSE, which the forward
 * delivered. */
static void evaluate_ds(struct attn_evaluation *x, int64_t b, int64_t h, int64_t i, double delta)
{
    const struct attn_problem *p = x->p;
    int64_t row = (b * p->heads + h) * p->n_query + i;
    double lse = x->run->truth.tensor[ATTN_LSE].want[row];
    const double *d_o = attn_evaluation_row(x, ATTN_T_DO, b, h, i);
    x->m = score_row(x, b, h, i);
    for (int64_t j = 0; j < p->n_key; j++) {
        struct attn_fault_at at = {.i = i, .j = j, .lse = lse, .delta = delta, .seen = 1};
        x->w[j] = x->probs[j] = 0;
        if (lse == minus_inf || x->s[j] == minus_inf)
            continue;
        change(x, ATTN_AT_PROB, &at);
        if (!at.seen)
            continue;
        const double *v = key_row(x, ATTN_OF_V, b, h, i, j);
        double dp = 0;
        for (int64_t c = 0; c < p->d_value; c++)
            dp += number(x, ATTN_OF_PRODUCT, d_o[c] * v[c]);
        x->probs[j] = exp(x->s[j] - at.lse);
        x->w[j] = x->probs[j] * (dp - at.delta);
        x->probs[j] = number(x, ATTN_OF_P, x->probs[j]);
    }
}

static double cap_slope(const struct attn_problem *p, double raw)
{
    double y = p->softcap > 0 ? tanh(raw / p->softcap) : 0;
    return 1 - y * y;
}

/* y += a z */
static void add(struct attn_evaluation *x, double *y, double a, const double *z, int64_t n)
{
    for (int64_t c = 0; c < n; c++)
        y[c] += number(x, ATTN_OF_PRODUCT, a * z[c]);
}

/* A row's share of dQ, dK and dV. */
static void add_row(struct attn_evaluation *x, int64_t b, int64_t h, int64_t i)
{
    const struct attn_problem *p = x->p;
    struct attn_fault_at own = {.b = b, .h = h, .g = h / group_of(p), .of = ATTN_OF_K};
    change(x, ATTN_AT_KEY, &own);
    const int64_t base = (b * p->kv_heads + own.g) * p->n_key;
    const double *q = attn_evaluation_row(x, ATTN_T_Q, b, h, i);
    const double *d_o = attn_evaluation_row(x, ATTN_T_DO, b, h, i);
    int64_t position = 0, before = 0;
    for (int64_t j = p->n_key - 1; j >= 0; j--)
        before = x->probs[j] != 0 ? j : before;
    memset(x->dq, 0, (size_t)p->d_key * sizeof *x->dq);
    for (int64_t j = 0; j < p->n_key; j++) {
        if (x->w[j] == 0 && x->probs[j] == 0)
            continue;
        struct attn_fault_at at = {.h = h, .i = i, .position = position++, .before = before};
        at.j_dk = at.j_dv = before = j;
        at.dk = at.dv = 1;
        at.slope = cap_slope(p, x->raw[j]);
        change(x, ATTN_AT_STORE, &at);
        double ds = number(x, ATTN_OF_DS, x->w[j] * at.slope) * p->scale;
        add(x, x->dq, ds, key_row(x, ATTN_OF_K, b, h, i, j), p->d_key);
        if (at.dk != 0)
            add(x, x->dk + (base + at.j_dk) * p->d_key, at.dk * ds, q, p->d_key);
        if (at.dv != 0)
            add(x, x->dv + (base + at.j_dv) * p->d_value, at.dv * x->probs[j], d_o, p->d_value);
    }
}

void attn_evaluate_dq(struct attn_evaluation *x, int64_t row, double delta)
{
    int64_t i = row % x->p->n_query, bh = row / x->p->n_query;
    evaluate_ds(x, bh / x->p->heads, bh % x->p->heads, i, delta);
    add_row(x, bh / x->p->heads, bh % x->p->heads, i);
}

/* Where a pair's share of dBias goes: axes that the bias does not vary along are 1 wide. */
static void add_dbias(struct attn_evaluation *x, int64_t b, int64_t h, int64_t i)
{
    const int64_t *n = x->run->truth.tensor[ATTN_DBIAS].extent;
    for (int64_t j = 0; j < x->p->n_key && x->dbias != NULL; j++) {
        double *to = &x->dbias[((b % n[0] * n[1] + h % n[1]) * n[2] + i % n[2]) * n[3] + j % n[3]];
        struct attn_fault_at at = {.h = h, .y = x->w[j], .sum = *to};
        change(x, ATTN_AT_DBIAS, &at);
        *to = at.sum + at.y;
    }
}

static int output_fits(struct attn_evaluation *x, enum attn_output o, const double *told)
{
    const int64_t width = x->run->truth.tensor[o].extent[3];
    for (int64_t row = 0; x->run->compared[o] && told != NULL && row < attn_run_rows(x->run, o);
         row++)
        if (!attn_evaluation_fits(x, o, row, told + row * width))
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

/* Does one row of dK or dV fit, of which all queries have had their share? */
static int key_fits(struct attn_evaluation *x, enum attn_output o, int64_t row)
{
    const struct attn_evidence before = x->evidence;
    int fits = attn_evaluation_fits(
        x, o, row, o == ATTN_DK ? x->dk + row * x->p->d_key : x->dv + row * x->p->d_value);
    x->evidence = before;
    return fits;
}

/* Most models are refuted by the first row that is wrong: of dQ by itself, of dK and dV by the
 * queries that share the head.  So those are the first in turn. */
static int backward_fits(struct attn_evaluation *x)
{
    const struct attn_problem *p = x->p;
    const int64_t rows = p->batch * p->heads * p->n_query, sharing = group_of(p) * p->n_query;
    enum attn_output o = x->run->failing[ATTN_DK] ? ATTN_DK : ATTN_DV;
    int64_t dq = first_wrong(x, ATTN_DQ), key = dq < 0 ? first_wrong(x, o) : -1;
    int64_t first = dq >= 0 ? dq : key >= 0 ? key / p->n_key * sharing : 0;
    if (x->f->place == ATTN_AT_DBIAS) /* the order counts */
        first = 0, key = -1;
    for (int64_t n = 0; n < rows; n++) {
        int64_t row = (first + n) % rows;
        attn_evaluate_dq(x, row, delta_of(x, row));
        add_dbias(x, row / p->n_query / p->heads, row / p->n_query % p->heads, row % p->n_query);
        if (!attn_evaluation_fits(x, ATTN_DQ, row, x->dq))
            return 0;
        if (n + 1 == sharing && key >= 0 && x->f->place != ATTN_AT_KEY && !key_fits(x, o, key))
            return 0;
    }
    return output_fits(x, ATTN_DK, x->dk) && output_fits(x, ATTN_DV, x->dv) &&
           output_fits(x, ATTN_DBIAS, x->dbias);
}

/* ---- the rows of faults.def ----------------------------------------------------------------- */

/* A row is known by its line. */
static void change_by_row(struct attn_evaluation *x, struct attn_fault_at *at)
{
    const struct attn_failed_run *run = x->run;
    const struct attn_problem *p = x->p;
    const int64_t H = p->heads, G = p->kv_heads, r = group_of(p), n = x->f->n;
    const int64_t Lq = p->n_query, Lk = p->n_key, d = p->d_key, dv = p->d_value;
    const int empty = x->m == minus_inf;
    struct attn_fault_band *band = &at->band;
    int64_t b = at->b, h = at->h, i = at->i, j = at->j;
    double y = at->y;
    switch (x->f->row) {
    case 0:
        at->b = n == 0 || at->of == n ? x->f->b : b;
        at->g = n == 0 || at->of == n ? x->f->g : at->g;
        return;
#define ATTN_FAULT(kind, range, when, place, change, ...) \
    case __LINE__:                                        \
        change;                                           \
        break;
#include "tests/harness/faults/faults.def"
    }
    at->b = b, at->h = h, at->i = i, at->j = j;
    at->y = y;
}

/* ---- the interface -------------------------------------------------------------------------- */

int attn_evaluation_open(struct attn_evaluation *x, const struct attn_failed_run *run,
                         const struct attn_fault_model *f)
{
    const int64_t *n = run->extent[ATTN_T_DBIAS];
    *x = (struct attn_evaluation){.run = run, .f = f, .problem = run->setup->problem};
    const struct attn_problem *p = x->p = &x->problem;
    int64_t keys = p->batch * p->kv_heads * p->n_key, d = p->d_key, dv = p->d_value;
    int64_t dbias = run->x[ATTN_T_DBIAS] != NULL ? n[0] * n[1] * n[2] * n[3] : 0;
    struct attn_fault_at at = {.seen = -1};
    x->features = d;
    change(x, ATTN_AT_PROBLEM, &at);
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

int attn_fault_fits(const struct attn_failed_run *run, const struct attn_fault_model *f)
{
    struct attn_evaluation x;
    int fits = attn_evaluation_open(&x, run, f) &&
               (run->backward ? backward_fits(&x) : forward_fits(&x)) &&
               (f->place == ATTN_AT_NONE || attn_evaluation_explains(&x));
    attn_evaluation_close(&x);
    return fits;
}

int attn_fault_exceeds(const struct attn_failed_run *run, const struct attn_fault_model *f)
{
    struct attn_evaluation x;
    int exceeds =
        attn_evaluation_open(&x, run, f) &&
        (!(run->backward ? backward_fits(&x) : forward_fits(&x)) || x.evidence.against > 0);
    attn_evaluation_close(&x);
    return exceeds;
}
