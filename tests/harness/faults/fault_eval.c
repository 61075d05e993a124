/* See fault_model.h. */
#include "tests/harness/faults/fault_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ref/problem.h"
#include "tests/harness/faults/fault_eval.h"

void attn_fault_none(const struct attn_setup *s, struct attn_fault_model *t)
{
    *t = (struct attn_fault_model){.mask = s->problem.mask,
                                   .scale = s->problem.scale,
                                   .softcap = s->problem.softcap,
                                   .hidden = -(double)INFINITY,
                                   .bias_factor = 1,
                                   .alibi_offset = s->problem.bias.offset,
                                   .lse_factor = 1,
                                   .dq_factor = 1,
                                   .dk_factor = 1,
                                   .dv_factor = 1,
                                   .m_start = -(double)INFINITY,
                                   .d_used = s->problem.d_key,
                                   .dot_limit = (double)INFINITY};
}

/* ---- one row --------------------------------------------------------------------------------- */

static double cap(double s, double c)
{
    return c > 0 ? c * tanh(s / c) : s;
}

static double score(struct fault_eval *x, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const struct attn_fault_model *t = x->t;
    int64_t g = attn_eval_kv_head(x, h, ATTN_MODEL_K), kb = attn_eval_kv_batch(x, b, ATTN_MODEL_K);
    double dot = 0, bias = attn_eval_bias(x, b, h, i, j);
    int64_t key = attn_eval_key(x, i, j, ATTN_MODEL_K);
    for (int64_t c = 0; c < t->d_used; c++)
        dot += attn_cview_get(&x->view[ATTN_T_Q], b, h, i, c) *
               attn_cview_get(&x->view[ATTN_T_K], kb, g, key, c);
    if (fabs(dot) > t->dot_limit)
        dot = copysign((double)INFINITY, dot);
    x->raw[j] = t->scale * dot;
    if (t->cap_product)
        return x->raw[j] * tanh(x->raw[j] / t->softcap) + bias;
    return t->cap_last ? cap(x->raw[j] + bias, t->softcap) : cap(x->raw[j], t->softcap) + bias;
}

/* What is out of float32's range is so here, where the maximum is not that of the row. */
static double narrow(const struct fault_eval *x, double w)
{
    int is_shifted = x->t->no_max == ATTN_MODEL_MAX && !isfinite(x->t->m_start);
    return x->p->dtype == ATTN_F64 || is_shifted ? w : (double)(float)w;
}

/* A hidden pair's score. */
static double hidden_score(struct fault_eval *x, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const struct attn_fault_model *t = x->t;
    if (t->cap_hidden)
        return -t->softcap;
    if (!t->hidden_added)
        return t->hidden;
    double s = score(x, b, h, i, j) + t->hidden; /* a large one swallows the score */
    return x->p->dtype == ATTN_F64 ? s : (double)(float)s;
}

/* Weights are exp(s), whatever the maximum is; where they are subnormal, or their sum alone
 * overflows, the numbers hang on rounding. */
static void forget_max(struct fault_eval *x, double *m, double largest, double l)
{
    enum attn_model_no_max how = x->t->no_max;
    double least = x->p->dtype == ATTN_F64 ? 0x1p-1000 : 0x1p-110;
    int empty = *m == -(double)INFINITY;
    x->unsure = (l > 0 && l < least) || (isinf(l) && isfinite(largest));
    if (!(how == ATTN_MODEL_NO_MAX_SUM && l == 0) && !(how == ATTN_MODEL_NO_MAX_ROWS && empty))
        *m = 0;
    else
        *m = -(double)INFINITY;
}

/* Scores and weights exp(s - m) of a row; m, l and LSE as the model has them. */
void attn_eval_scores(struct fault_eval *x, int64_t b, int64_t h, int64_t i)
{
    const struct attn_fault_model *t = x->t;
    int64_t n = x->p->n_key;
    double m = -(double)INFINITY, l = 0, largest = 0;
    for (int64_t j = 0; j < n; j++) {
        x->seen[j] = (char)(attn_eval_sees(x, b, h, i, j) && (j < t->lost_lo || j >= t->lost_hi));
        x->s[j] = x->seen[j] ? score(x, b, h, i, j) : hidden_score(x, b, h, i, j);
        m = x->s[j] > m || isnan(x->s[j]) ? x->s[j] : m;
    }
    if (t->zero_keys > 0 && m < 0)
        m = 0;
    if (m < t->m_start)
        m = t->m_start;
    for (int64_t j = 0; j < n; j++) {
        x->w[j] = m == -(double)INFINITY ? 0 : narrow(x, exp(x->s[j] - (t->no_max ? 0 : m)));
        largest = x->w[j] > largest ? x->w[j] : largest;
        if (j >= t->twice_lo && j < t->twice_hi)
            x->w[j] *= 2;
        l += x->w[j];
    }
    if (t->zero_keys > 0)
        l += (double)t->zero_keys * exp(-m);
    l = narrow(x, l);
    if (t->no_max != ATTN_MODEL_MAX)
        forget_max(x, &m, largest, l);
    x->m = m;
    x->l = l;
    x->lse = m == -(double)INFINITY ? m : m + log(l);
}

/* A running sum that is not rescaled: each weight is relative to the maximum of its time. */
static void make_stale(struct fault_eval *x)
{
    const struct attn_fault_model *t = x->t;
    double m = -(double)INFINITY, l = 0;
    for (int64_t j0 = 0; j0 < x->p->n_key; j0 += t->tile) {
        int64_t j1 = j0 + t->tile < x->p->n_key ? j0 + t->tile : x->p->n_key;
        for (int64_t j = j0; j < j1; j++)
            m = x->s[j] > m ? x->s[j] : m;
        for (int64_t j = j0; j < j1; j++) {
            double w = m == -(double)INFINITY ? 0 : exp(x->s[j] - m);
            l += w;
            if (t->stale != ATTN_MODEL_STALE_L)
                x->w[j] = w;
        }
    }
    if (t->stale != ATTN_MODEL_STALE_O)
        x->l = l;
    if (t->stale != ATTN_MODEL_STALE_O && m != -(double)INFINITY)
        x->lse = m + log(l);
}

static double tell_lse(const struct fault_eval *x)
{
    const struct attn_fault_model *t = x->t;
    if (x->m == -(double)INFINITY && t->merge == ATTN_MODEL_MERGE_NONE)
        return t->empty == ATTN_MODEL_EMPTY_PLUS   ? (double)INFINITY
               : t->empty == ATTN_MODEL_EMPTY_NULL ? 0
               : t->empty == ATTN_MODEL_EMPTY_NAN  ? (double)NAN
                                                   : x->lse;
    return t->lse_without_m ? log(x->l)
           : t->lse_is_l    ? x->l
           : t->lse_is_m    ? x->m
           : t->lse_no_log  ? x->m + x->l
                            : t->lse_factor * x->lse;
}

static void tell_o(struct fault_eval *x, int64_t b, int64_t h, int64_t i)
{
    const struct attn_fault_model *t = x->t;
    const struct attn_problem *p = x->p;
    int64_t g = attn_eval_kv_head(x, h, ATTN_MODEL_V), kb = attn_eval_kv_batch(x, b, ATTN_MODEL_V);
    int empty = x->m == -(double)INFINITY;
    for (int64_t c = 0; c < p->d_value; c++) {
        double sum = 0, mean = 0;
        for (int64_t j = 0; j < p->n_key; j++) {
            int wants_mean = empty && t->empty == ATTN_MODEL_EMPTY_MEAN;
            double v = x->w[j] != 0 || wants_mean
                           ? attn_cview_get(&x->view[ATTN_T_V], kb, g,
                                            attn_eval_key(x, i, j, ATTN_MODEL_V), c)
                           : 0;
            sum += x->w[j] * v;
            mean += v / (double)p->n_key;
        }
        x->o[c] = empty ? (t->empty == ATTN_MODEL_EMPTY_NAN || t->empty == ATTN_MODEL_EMPTY_NAN_O
                               ? (double)NAN
                           : t->empty == ATTN_MODEL_EMPTY_MEAN ? mean
                                                               : 0)
                  : t->unnormalised ? sum
                                    : sum / x->l;
    }
}

/* ---- holding it against what was computed ---------------------------------------------------- */

static const enum attn_slot slot_of[ATTN_OUTPUTS] = {ATTN_T_O,  ATTN_T_LSE, ATTN_T_DQ,
                                                     ATTN_T_DK, ATTN_T_DV,  ATTN_T_DBIAS};

static int is_as(double got, double want, double bound)
{
    return fabs(got - want) <= bound || got == want || (isnan(got) && isnan(want));
}

/* One element more of a row that fits.  Where outputs are looked for in other places, what is wrong
 * in its own place is right there. */
static void count(struct fault_eval *x, double got, double own, double told, double want,
                  double bound)
{
    if (isinf(bound))
        return;
    struct evidence *e = &x->evidence;
    int is_moved = x->t->outputs_turned || x->t->turned >> ATTN_T_O || x->t->dbias_like_bias;
    double error = got == told ? 0 : fabs(got - told);
    int is_wrong = !is_as(own, want, bound);
    e->wrong += is_wrong;
    if (is_wrong && isnan(got))
        e->nan_apart += !isnan(want);
    else if (is_wrong)
        e->apart += is_moved || (!is_as(told, want, bound) && error < fabs(own - want) / 2);
}

/* One row of an output, `told` against the tensor; the tolerance is some bounds of the truth and a
 * part of the row's size.  An element of which nothing can be said says nothing. */
int attn_eval_row_fits(struct fault_eval *x, enum attn_output o, int64_t b, int64_t h, int64_t i,
                       const double *told)
{
    const struct attn_truth_tensor *want = &x->q->truth.tensor[o];
    int64_t width = want->extent[3];
    const struct attn_cview place = attn_tensor_cview(&x->q->setup->tensor[slot_of[o]]);
    double size = 0;
    int64_t at = ((b * want->extent[1] + h) * want->extent[2] + i) * width;
    for (int64_t c = 0; c < width; c++)
        size = isfinite(told[c]) && fabs(told[c]) > size ? fabs(told[c]) : size;
    for (int64_t c = 0; c < width; c++) {
        double got = attn_cview_get(&x->view[slot_of[o]], b, h, i, c);
        double bound = want->bound[at + c];
        if (!isinf(bound) && !is_as(got, told[c], x->q->loose * size + 4 * bound + 1e-30))
            return 0;
    }
    for (int64_t c = 0; c < width; c++) {
        double got = attn_cview_get(&x->view[slot_of[o]], b, h, i, c);
        count(x, got, attn_cview_get(&place, b, h, i, c), told[c], want->want[at + c],
              want->bound[at + c]);
        x->evidence.finite += x->q->failing[o] && isfinite(got);
    }
    return 1;
}

int attn_eval_explains(const struct fault_eval *x)
{
    const struct attn_fault_model *t = x->t;
    const struct evidence *e = &x->evidence;
    int is_nan = t->empty == ATTN_MODEL_EMPTY_NAN || t->empty == ATTN_MODEL_EMPTY_NAN_O;
    if (e->apart + e->nan_apart == 0 || 2 * (e->apart + e->nan_apart) < e->wrong)
        return 0;
    /* NaN alone fits every model that ends in NaN; where numbers stand beside it, its places speak,
     * unless the model reads what it should not, and whatever it reads is NaN. */
    int has_places = e->finite > 0 && !isfinite(t->hidden) && !isfinite(t->m_start) &&
                     !(t->turned | t->adjacent | t->packed | t->rows_packed);
    return e->apart > 0 || has_places || is_nan;
}

static int is_asked(const struct fault_eval *x, int64_t b, int64_t h)
{
    return x->q->block == 0 || x->q->block == 1 + b * x->p->heads + h;
}

static int forward_fits(struct fault_eval *x)
{
    const struct attn_problem *p = x->p;
    const struct attn_fault_model *t = x->t;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t i = 0; i < p->n_query && is_asked(x, b, h); i++) {
                int64_t to_h = (h + t->shift_heads) % p->heads;
                int64_t to_i = (i + t->shift_rows) % p->n_query;
                attn_eval_scores(x, b, h, i);
                if (t->stale != ATTN_MODEL_FRESH)
                    make_stale(x);
                if (t->merge != ATTN_MODEL_MERGE_NONE)
                    attn_eval_merge(x, b, h, i);
                double lse = tell_lse(x);
                if (x->unsure)
                    continue;
                if (x->q->compared[ATTN_LSE] &&
                    !attn_eval_row_fits(x, ATTN_LSE, b, to_h, to_i, &lse))
                    return 0;
                if (t->merge == ATTN_MODEL_MERGE_NONE)
                    tell_o(x, b, h, i);
                if (x->q->compared[ATTN_O] && !attn_eval_row_fits(x, ATTN_O, b, to_h, to_i, x->o))
                    return 0;
            }
    return 1;
}

/* ---- backward -------------------------------------------------------------------------------- */

/* dS of one row into w; P as exp(s - LSE) with the true LSE, which the forward delivered. */
static void tell_ds(struct fault_eval *x, int64_t b, int64_t h, int64_t i, double *p_row)
{
    const struct attn_problem *p = x->p;
    const struct attn_fault_model *t = x->t;
    const struct attn_truth_tensor *o = &x->q->truth.tensor[ATTN_O];
    const struct attn_truth_tensor *lse = &x->q->truth.tensor[ATTN_LSE];
    const struct attn_cview *d_o = &x->view[ATTN_T_DO], *d_lse = &x->view[ATTN_T_DLSE];
    int64_t row = (b * p->heads + h) * p->n_query + i;
    int64_t g = attn_eval_kv_head(x, h, ATTN_MODEL_V), kb = attn_eval_kv_batch(x, b, ATTN_MODEL_V);
    int64_t of_o = t->delta_before == 2 && row > 0 ? row - 1 : row;
    int64_t of_row = t->delta_before == 1 && i > 0 ? i - 1
                     : t->delta_tile > 0           ? i - i % t->delta_tile
                                                   : i;
    double delta = 0,
           extra = d_lse->data != NULL && !t->no_dlse ? attn_cview_get(d_lse, b, h, i, 0) : 0;
    int empty = lse->want[row] == -(double)INFINITY;
    attn_eval_scores(x, b, h, i);
    for (int64_t c = 0; c < p->d_value && !empty && !t->no_delta; c++)
        delta +=
            attn_cview_get(d_o, b, h, of_row, c) * o->want[(of_o + of_row - i) * p->d_value + c];
    delta += t->minus_dlse ? extra : -extra;
    for (int64_t j = 0; j < p->n_key; j++) {
        double dp = 0;
        int out = empty || x->s[j] == -(double)INFINITY || !attn_eval_step_counts(x, i, j);
        int64_t key = attn_eval_key(x, i, j, ATTN_MODEL_V);
        p_row[j] = out ? 0 : exp(x->s[j] - lse->want[row]);
        for (int64_t c = 0; c < p->d_value && !out; c++)
            dp +=
                attn_cview_get(d_o, b, h, i, c) * attn_cview_get(&x->view[ATTN_T_V], kb, g, key, c);
        x->w[j] = out ? 0 : p_row[j] * (dp - delta);
    }
}

static double cap_slope(const struct attn_fault_model *t, double raw)
{
    double y = t->softcap > 0 && !t->no_cap_slope ? tanh(raw / t->softcap) : 0;
    return 1 - y * y;
}

static void add_row(struct fault_eval *x, int64_t b, int64_t h, int64_t i, const double *p_row)
{
    const struct attn_problem *p = x->p;
    const struct attn_fault_model *t = x->t;
    int64_t g = attn_eval_kv_head(x, h, ATTN_MODEL_K), group = p->heads / p->kv_heads;
    int counts = (!t->group_last || h % group == group - 1) && (!t->group_first || h % group == 0);
    int64_t position = 0, before = 0;
    for (int64_t j = p->n_key - 1; j >= 0; j--)
        before = p_row[j] != 0 ? j : before;
    for (int64_t c = 0; c < p->d_key; c++)
        x->dq[c] = 0;
    for (int64_t j = 0; j < p->n_key; j++) {
        if (x->w[j] == 0 && p_row[j] == 0)
            continue;
        int64_t base = (b * p->kv_heads + g) * p->n_key;
        int64_t to_v = base + (t->by_position ? position : j);
        int64_t to_k = t->dk_before ? base + before : to_v;
        before = j, position++;
        double ds = x->w[j] * t->scale * cap_slope(t, x->raw[j]);
        for (int64_t c = 0; c < p->d_key; c++) {
            x->dq[c] +=
                t->dq_factor * ds *
                attn_cview_get(&x->view[ATTN_T_K], b, g, attn_eval_key(x, i, j, ATTN_MODEL_K), c);
            x->dk[to_k * p->d_key + c] +=
                counts * t->dk_factor * ds * attn_cview_get(&x->view[ATTN_T_Q], b, h, i, c);
        }
        for (int64_t c = 0; c < p->d_value; c++)
            x->dv[to_v * p->d_value + c] +=
                counts * t->dv_factor * p_row[j] * attn_cview_get(&x->view[ATTN_T_DO], b, h, i, c);
    }
}

/* Where a pair's share of dBias goes: axes that the bias does not vary along are 1 wide. */
static void add_dbias(struct fault_eval *x, int64_t b, int64_t h, int64_t i)
{
    const struct attn_truth_tensor *t = &x->q->truth.tensor[ATTN_DBIAS];
    for (int64_t j = 0; j < x->p->n_key && x->dbias != NULL; j++) {
        int64_t at = b % t->extent[0];
        at = at * t->extent[1] + h % t->extent[1];
        at = at * t->extent[2] + i % t->extent[2];
        at = at * t->extent[3] + j % t->extent[3];
        int lost = x->t->dbias_sum == ATTN_MODEL_FIRST_HEAD && t->extent[1] == 1 && h > 0;
        x->dbias[at] =
            (x->t->dbias_sum == ATTN_MODEL_OVERWRITTEN ? 0 : x->dbias[at]) + (lost ? 0 : x->w[j]);
    }
}

static int dbias_fits(struct fault_eval *x)
{
    const struct attn_truth_tensor *t = &x->q->truth.tensor[ATTN_DBIAS];
    for (int64_t row = 0; row < t->extent[0] * t->extent[1] * t->extent[2]; row++)
        if (!attn_eval_row_fits(x, ATTN_DBIAS, row / t->extent[2] / t->extent[1],
                                row / t->extent[2] % t->extent[1], row % t->extent[2],
                                x->dbias + row * t->extent[3]))
            return 0;
    return 1;
}

static int keys_fit(struct fault_eval *x, enum attn_output o, const double *told, int64_t width)
{
    const struct attn_problem *p = x->p;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t g = 0; g < p->kv_heads; g++)
            for (int64_t j = 0; j < p->n_key; j++)
                if (!attn_eval_row_fits(x, o, b, g, j,
                                        told + ((b * p->kv_heads + g) * p->n_key + j) * width))
                    return 0;
    return 1;
}

static int backward_fits(struct fault_eval *x)
{
    const struct attn_problem *p = x->p;
    double *p_row = calloc((size_t)p->n_key + 1, sizeof *p_row);
    int fits = p_row != NULL;
    for (int64_t b = 0; b < p->batch && fits; b++)
        for (int64_t h = 0; h < p->heads && fits; h++)
            for (int64_t i = 0; i < p->n_query && fits; i++) {
                tell_ds(x, b, h, i, p_row);
                add_row(x, b, h, i, p_row);
                add_dbias(x, b, h, i);
                if (x->q->compared[ATTN_DQ])
                    fits = attn_eval_row_fits(x, ATTN_DQ, b, h, i, x->dq);
            }
    free(p_row);
    if (fits && x->q->compared[ATTN_DK])
        fits = keys_fit(x, ATTN_DK, x->dk, p->d_key);
    if (fits && x->q->compared[ATTN_DV])
        fits = keys_fit(x, ATTN_DV, x->dv, p->d_value);
    if (fits && x->q->compared[ATTN_DBIAS] && x->dbias != NULL)
        fits = dbias_fits(x);
    return fits;
}

/* ---- the interface --------------------------------------------------------------------------- */

int attn_eval_open(struct fault_eval *x, const struct attn_failed_run *q,
                   const struct attn_fault_model *t)
{
    const struct attn_problem *p = &q->setup->problem;
    size_t n = (size_t)p->n_key + 1;
    size_t keys = (size_t)(p->batch * p->kv_heads * p->n_key);
    *x = (struct fault_eval){.q = q, .t = t, .p = p};
    int inside = attn_eval_views(x);
    x->s = calloc(n, sizeof *x->s);
    x->w = calloc(n, sizeof *x->w);
    x->raw = calloc(n, sizeof *x->raw);
    x->seen = calloc(n, 1);
    x->o = calloc(2 * (size_t)p->d_value + 1, sizeof *x->o);
    x->dq = calloc((size_t)p->d_key + 1, sizeof *x->dq);
    x->dk = calloc(keys * (size_t)p->d_key + 1, sizeof *x->dk);
    x->dv = calloc(keys * (size_t)p->d_value + 1, sizeof *x->dv);
    const struct attn_tensor *db = &q->setup->tensor[ATTN_T_DBIAS];
    if (db->data != NULL)
        x->dbias =
            calloc((size_t)(db->extent[0] * db->extent[1] * db->extent[2] * db->extent[3]) + 1,
                   sizeof *x->dbias);
    return inside && x->s && x->w && x->raw && x->seen && x->o && x->dq && x->dk && x->dv;
}

void attn_eval_close(struct fault_eval *x)
{
    free(x->s);
    free(x->w);
    free(x->raw);
    free(x->seen);
    free(x->o);
    free(x->dq);
    free(x->dk);
    free(x->dv);
    free(x->dbias);
}

static int hold(const struct attn_failed_run *q, const struct attn_fault_model *t, int must_explain)
{
    struct fault_eval x;
    int fits = attn_eval_open(&x, q, t) && (q->backward ? backward_fits(&x) : forward_fits(&x)) &&
               (!must_explain || attn_eval_explains(&x));
    attn_eval_close(&x);
    return fits;
}

int attn_fault_fits(const struct attn_failed_run *q, const struct attn_fault_model *t)
{
    return hold(q, t, 1);
}

int attn_truth_is_near(const struct attn_failed_run *q)
{
    struct attn_fault_model t;
    attn_fault_none(q->setup, &t);
    return hold(q, &t, 0);
}
