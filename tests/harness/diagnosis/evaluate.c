/* See evaluate.h.  Attention by its definition, step by step: the forward.  At each place where a
 * step can go wrong the model that is evaluated has its say. */
#include "tests/harness/diagnosis/evaluate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double minus_inf = -(double)INFINITY;

/* ---- memory: every tensor by its own strides, or by wrong ones ------------------------------ */

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

/* In place of feature c of head h that which is c H + h in a token's heads one behind the other; 0
 * without memory. */
static int interleave(double *x, const int64_t n[4])
{
    const int64_t all = n[1] * n[3];
    double *token = malloc((size_t)(all + 1) * sizeof *token);
    for (int64_t row = 0; row < n[0] * n[2] && token != NULL; row++) {
        double *first = x + (row / n[2] * n[1] * n[2] + row % n[2]) * n[3];
        for (int64_t e = 0; e < all; e++)
            token[e] = first[e / n[3] * n[2] * n[3] + e % n[3]];
        for (int64_t e = 0; e < all; e++)
            first[e % n[1] * n[2] * n[3] + e / n[1]] = token[e];
    }
    free(token);
    return token != NULL;
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
        attn_change(x, ATTN_AT_VIEW, &at);
        int is_right = !at.by_feature && view.data == right.data && view.dtype == right.dtype &&
                       memcmp(view.stride, right.stride, sizeof view.stride) == 0;
        if (end == ATTN_SLOTS && is_right)
            continue;
        if (is_inside(&view, t))
            x->moved[slot] = attn_packed_numbers(&view, n);
        if (x->moved[slot] == NULL || (at.by_feature && !interleave(x->moved[slot], n)))
            return 0;
        for (int64_t e = 0; end == ATTN_T_O && e < n[0] * n[1] * n[2] * n[3]; e++)
            x->moved[slot][e] =
                attn_changed_number(x, (unsigned)ATTN_OF_Q << slot, x->moved[slot][e]);
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

/* The parts of the mask, each with a say of the row, and what & and | make of them. */
static int sees_parts(struct attn_evaluation *x, const struct attn_fault_at *pair)
{
    int all = 1, any = 0;
    for (int n = 0; n < x->run->parts; n++) {
        const struct attn_mask_part *part = &x->run->part[n];
        struct attn_fault_at at = *pair;
        at.part = n, at.band = part->band;
        attn_change(x, ATTN_AT_PART, &at);
        int64_t away = at.j - at.i - at.band.offset;
        int is_changed = memcmp(&at.band, &part->band, sizeof at.band) != 0;
        int shown = at.seen >= 0  ? at.seen
                    : at.ignored  ? part->is_and
                    : !is_changed ? attn_mask_allows(part->mask, at.b, at.h, at.i, at.j)
                                  : away >= -at.band.left && away <= at.band.right;
        all &= shown;
        if (part->is_or || n + 1 == x->run->parts)
            any |= all, all = 1;
    }
    return any;
}

static int is_visible(struct attn_evaluation *x, int64_t b, int64_t h, int64_t i, int64_t j)
{
    struct attn_fault_at at = {.b = b, .h = h, .i = i, .j = j, .seen = -1};
    attn_change(x, ATTN_AT_PAIR, &at);
    attn_change(x, ATTN_AT_MASK, &at);
    return at.seen >= 0                  ? at.seen
           : x->f->place == ATTN_AT_PART ? sees_parts(x, &at)
                                         : attn_mask_allows(x->p->mask, at.b, at.h, at.i, at.j);
}

/* The row of K (or V) that query i of head h takes for key j. */
const double *attn_evaluate_key_row(struct attn_evaluation *x, enum attn_fault_of of, int64_t b,
                                    int64_t h, int64_t i, int64_t j)
{
    struct attn_fault_at at = {
        .b = b, .h = h, .i = i, .j = j, .g = h / attn_group_of(x->p), .of = of};
    attn_change(x, ATTN_AT_KEY, &at);
    return attn_evaluation_row(x, of == ATTN_OF_K ? ATTN_T_K : ATTN_T_V, at.b, at.g, at.j);
}

static double alibi(struct attn_evaluation *x, const struct attn_fault_at *pair)
{
    const struct attn_bias *bias = &x->p->bias;
    struct attn_fault_at at = *pair;
    at.y = fabs((double)(at.i + bias->offset - at.j));
    attn_change(x, ATTN_AT_DISTANCE, &at);
    return -bias->slope[at.h] * at.y;
}

static double bias(struct attn_evaluation *x, int64_t b, int64_t h, int64_t i, int64_t j)
{
    struct attn_fault_at at = {.b = b, .h = h, .i = i, .j = j};
    if (x->p->bias.kind == ATTN_BIAS_NONE)
        return 0;
    attn_change(x, ATTN_AT_PAIR, &at);
    attn_change(x, ATTN_AT_BIAS, &at);
    at.y = x->p->bias.kind == ATTN_BIAS_ALIBI
               ? alibi(x, &at)
               : attn_evaluation_row(x, ATTN_T_BIAS, at.b, at.h, at.i)[at.j];
    attn_change(x, ATTN_AT_ADDED, &at);
    return at.y;
}

/* ---- scores and softmax of one row ---------------------------------------------------------- */

double attn_evaluate_score(struct attn_evaluation *x, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const double *q = attn_evaluation_row(x, ATTN_T_Q, b, h, i);
    const double *k = attn_evaluate_key_row(x, ATTN_OF_K, b, h, i, j);
    struct attn_fault_at at = {.more = bias(x, b, h, i, j)};
    for (int64_t e = 0; e < x->features; e++)
        at.y += q[e] * k[e];
    at.s = x->raw[j] = attn_changed_number(x, ATTN_OF_SCORE,
                                           x->p->scale * attn_changed_number(x, ATTN_OF_DOT, at.y));
    at.y = attn_changed_number(x, ATTN_OF_SCORE, attn_cap(at.s, x->p->softcap) + at.more);
    attn_change(x, ATTN_AT_SCORE, &at);
    return at.y;
}

static double hidden_score(struct attn_evaluation *x, int64_t b, int64_t h, int64_t i, int64_t j)
{
    struct attn_fault_at at = {.b = b, .h = h, .i = i, .j = j, .y = minus_inf};
    attn_change(x, ATTN_AT_HIDDEN, &at);
    x->is_hidden_number |= isfinite(at.y);
    return at.y;
}

/* Scores, raw scores; returns the largest score. */
double attn_evaluate_score_row(struct attn_evaluation *x, int64_t b, int64_t h, int64_t i)
{
    double m = minus_inf;
    const int is_other = x->f->place == ATTN_AT_PROBLEM || x->f->place == ATTN_AT_PROB;
    if (!x->run->backward) /* there all rows share in dK and dV */
        x->vague = 0;
    for (int64_t j = 0; j < x->p->n_key; j++) {
        x->s[j] = is_visible(x, b, h, i, j) ? attn_evaluate_score(x, b, h, i, j)
                                            : hidden_score(x, b, h, i, j);
        m = x->s[j] > m || isnan(x->s[j]) ? x->s[j] : m;
        if (is_other && isfinite(x->s[j]))
            x->vague = fmax(x->vague, 0.02 * x->run->loose * fabs(x->s[j]));
    }
    return m;
}

void attn_evaluation_set_sum(struct attn_evaluation *x, double l)
{
    x->l = x->norm = l;
    x->lse = x->m + log(l);
}

/* A row that sees no key. */
void attn_evaluation_see_nothing(struct attn_evaluation *x)
{
    x->m = x->lse = minus_inf;
    x->l = 0;
    x->norm = 1;
    memset(x->w, 0, (size_t)x->p->n_key * sizeof *x->w);
}

void attn_evaluation_weigh(struct attn_evaluation *x, double m)
{
    double l = x->z > minus_inf ? attn_narrow_exp(x->p, x->z - m) : 0;
    x->m = m;
    for (int64_t j = 0; j < x->p->n_key; j++)
        l += x->w[j] = exp(x->s[j] - m);
    attn_evaluation_set_sum(x, l);
}

double attn_evaluation_sink(const struct attn_evaluation *x, int64_t h)
{
    return x->x[ATTN_T_SINK] != NULL ? x->x[ATTN_T_SINK][h] : minus_inf;
}

static void find_sink(struct attn_evaluation *x, int64_t b, int64_t h, int64_t i)
{
    struct attn_fault_at at = {.b = b, .h = h, .i = i, .y = attn_evaluation_sink(x, h)};
    if (x->x[ATTN_T_SINK] != NULL)
        attn_change(x, ATTN_AT_SINK, &at);
    x->z = at.y;
}

void attn_evaluate_scores(struct attn_evaluation *x, int64_t b, int64_t h, int64_t i)
{
    struct attn_fault_at at = {.b = b, .h = h, .i = i, .y = attn_evaluate_score_row(x, b, h, i)};
    x->unsure = 0;
    find_sink(x, b, h, i);
    if (at.y == minus_inf && x->z == minus_inf)
        attn_evaluation_see_nothing(x);
    else
        attn_evaluation_weigh(x, x->z > at.y ? x->z : at.y);
    attn_change(x, ATTN_AT_ROW, &at);
    x->is_nan |= at.y == minus_inf && isnan(x->norm) && !x->is_hidden_number;
}

/* ---- blocks of keys, one of each rank: rank r holds block r, then r - 1, ... ---------------- */

double attn_evaluate_block_lse(const struct attn_evaluation *x, int64_t ranks, int64_t block)
{
    int64_t lo = attn_fault_rank_start(ranks, x->p->n_key, block),
            hi = attn_fault_rank_start(ranks, x->p->n_key, block + 1);
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
    int64_t ranks = x->f->n, end = attn_fault_rank_start(ranks, x->p->n_key, block + 1);
    double lse = attn_evaluate_block_lse(x, ranks, block);
    memset(o, 0, (size_t)x->p->d_value * sizeof *o);
    for (int64_t j = attn_fault_rank_start(ranks, x->p->n_key, block); j < end; j++) {
        const double *v = attn_evaluate_key_row(x, ATTN_OF_V, b, h, 0, j);
        for (int64_t c = 0; c < x->p->d_value && x->s[j] > minus_inf; c++)
            o[c] += exp(x->s[j] - lse) * v[c];
    }
    return lse;
}

/* Returns 1 if a rank may pass over the block: nothing in it is visible for any of its rows. */
static int is_hidden(const struct attn_evaluation *x, int64_t i, int64_t block)
{
    const struct attn_problem *p = x->p;
    int64_t ranks = x->f->n, rank = attn_fault_rank_of(ranks, p->n_query, i);
    int64_t lo = attn_fault_rank_start(ranks, p->n_key, block),
            hi = attn_fault_rank_start(ranks, p->n_key, block + 1);
    int64_t first = attn_fault_rank_start(ranks, p->n_query, rank),
            end = attn_fault_rank_start(ranks, p->n_query, rank + 1);
    for (int64_t bh = 0; bh < p->batch * p->heads && p->mask != NULL; bh++)
        for (int64_t r = first; r < end; r++)
            if (attn_mask_row_count(p->mask, bh / p->heads, bh % p->heads, r, lo, hi) > 0)
                return 0;
    return p->mask != NULL;
}

/* Merges x->other, with this LSE, into x->o. */
static void merge(struct attn_evaluation *x, double lse2, struct attn_fault_at *at)
{
    at->lse = x->lse, at->lse2 = lse2;
    at->is_second_larger = lse2 > x->lse;
    at->exponent = 1;
    attn_change(x, ATTN_AT_MERGE, at);
    double max = at->is_second_larger ? lse2 : x->lse, min = at->is_second_larger ? x->lse : lse2;
    if (x->lse == minus_inf && lse2 == minus_inf && at->hidden != ATTN_PASSED_OVER)
        return;
    double e = attn_narrow_exp(x->p, at->exponent * (min - max));
    at->large = 1 / (1 + e), at->small = e / (1 + e);
    at->y = max + log1p(e);
    attn_change(x, ATTN_AT_MERGED, at);
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
    attn_change(x, ATTN_AT_BLOCKS, &at);
    clear_o(x);
    for (int64_t step = 0; step < at.blocks; step++) {
        int64_t block = attn_fault_block_at(x->f->n, x->p->n_query, i, step);
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
    double max = fmax(x->lse, x->z), all = max + log(exp(x->lse - max) + exp(x->z - max));
    for (int64_t c = 0; c < x->p->d_value && x->z > minus_inf && x->lse > minus_inf; c++)
        x->o[c] *= exp(x->lse - all);
    x->lse = x->z > minus_inf ? all : x->lse;
}

static void evaluate_o(struct attn_evaluation *x, int64_t b, int64_t h, int64_t i)
{
    memset(x->o, 0, (size_t)x->p->d_value * sizeof *x->o);
    for (int64_t j = 0; j < x->p->n_key; j++) {
        const double *v = x->w[j] != 0 ? attn_evaluate_key_row(x, ATTN_OF_V, b, h, i, j) : NULL;
        double w = attn_changed_number(x, ATTN_OF_WEIGHT, x->w[j]);
        if (x->f->place == ATTN_AT_NUMBER)
            w = attn_changed_number(x, ATTN_OF_P, w / x->norm) * x->norm;
        for (int64_t c = 0; c < x->p->d_value && v != NULL; c++)
            x->o[c] = attn_changed_number(
                x, ATTN_OF_SUM, x->o[c] + attn_changed_number(x, ATTN_OF_PRODUCT, w * v[c]));
    }
    for (int64_t c = 0; c < x->p->d_value; c++)
        x->o[c] /= x->norm;
}

/* ---- compared with what was computed --------------------------------------------------------- */

int attn_evaluation_fits_forward(struct attn_evaluation *x)
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
    attn_change(x, ATTN_AT_PROBLEM, &at);
    int inside = take_tensors(x);
    x->s = calloc((size_t)(4 * p->n_key + 2 * dv + d + keys * (d + dv) + dbias + p->heads + 1),
                  sizeof *x->s);
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
    x->dsink = run->x[ATTN_T_DSINK] != NULL ? x->dv + keys * dv + dbias : NULL;
    return 1;
}

void attn_evaluation_close(struct attn_evaluation *x)
{
    for (int slot = 0; slot < ATTN_SLOTS; slot++)
        free(x->moved[slot]);
    free(x->s);
}
