/* See evaluate.h.  The backward by its definition, with the say of the model at each place. */
#include <math.h>
#include <string.h>

#include "tests/harness/diagnosis/evaluate.h"

static const double minus_inf = -(double)INFINITY;

/* delta = dO . O - dLSE of a row. */
double attn_evaluate_delta(struct attn_evaluation *x, int64_t row)
{
    const int64_t dv = x->p->d_value;
    const double *d_lse = x->x[ATTN_T_DLSE];
    struct attn_fault_at at = {.i = row % x->p->n_query, .row = row, .dot = 1, .dlse = -1};
    attn_change(x, ATTN_AT_DELTA, &at);
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
    x->m = attn_evaluate_score_row(x, b, h, i);
    for (int64_t j = 0; j < p->n_key; j++) {
        struct attn_fault_at at = {.i = i, .j = j, .lse = lse, .delta = delta, .seen = 1};
        x->w[j] = x->probs[j] = 0;
        if (lse == minus_inf || x->s[j] == minus_inf)
            continue;
        attn_change(x, ATTN_AT_PROB, &at);
        if (!at.seen)
            continue;
        const double *v = attn_evaluate_key_row(x, ATTN_OF_V, b, h, i, j);
        double dp = 0;
        for (int64_t c = 0; c < p->d_value; c++)
            dp += attn_changed_number(x, ATTN_OF_PRODUCT, d_o[c] * v[c]);
        x->probs[j] = attn_narrow(p, exp(x->s[j] - at.lse));
        x->w[j] = x->probs[j] * (dp - at.delta);
        x->probs[j] = attn_changed_number(x, ATTN_OF_P, x->probs[j]);
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
        y[c] += attn_changed_number(x, ATTN_OF_PRODUCT, a * z[c]);
}

/* A row's share of dQ, dK and dV. */
static void add_row(struct attn_evaluation *x, int64_t b, int64_t h, int64_t i)
{
    const struct attn_problem *p = x->p;
    struct attn_fault_at own = {.b = b, .h = h, .g = h / attn_group_of(p), .of = ATTN_OF_K};
    attn_change(x, ATTN_AT_KEY, &own);
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
        attn_change(x, ATTN_AT_STORE, &at);
        double ds = attn_changed_number(x, ATTN_OF_DS, x->w[j] * at.slope) * p->scale;
        add(x, x->dq, ds, attn_evaluate_key_row(x, ATTN_OF_K, b, h, i, j), p->d_key);
        if (at.dk != 0)
            add(x, x->dk + (base + at.j_dk) * p->d_key, at.dk * ds, q, p->d_key);
        double *dv = p->kv_shared ? x->dk + (base + at.j_dv) * p->d_key + at.c_dv
                                  : x->dv + (base + at.j_dv) * p->d_value;
        if (at.dv != 0)
            add(x, dv, at.dv * x->probs[j], d_o, p->d_value);
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
        attn_change(x, ATTN_AT_DBIAS, &at);
        *to = at.sum + at.y;
    }
}

/* A row's share of dsink; where no key has weight, D is -dLSE. */
static void add_dsink(struct attn_evaluation *x, int64_t row, double delta)
{
    const struct attn_problem *p = x->p;
    const int64_t bh = row / p->n_query, h = bh % p->heads;
    const double *d_lse = x->x[ATTN_T_DLSE], z = attn_evaluation_sink(x, h);
    if (x->m == minus_inf)
        delta = d_lse != NULL ? -d_lse[row] : 0;
    struct attn_fault_at at = {.b = bh / p->heads, .h = h, .i = row % p->n_query};
    at.y = z > minus_inf ? -exp(z - x->run->truth.tensor[ATTN_LSE].want[row]) * delta : 0;
    attn_change(x, ATTN_AT_DSINK, &at);
    x->dsink[h] += at.y;
}

static int output_fits(struct attn_evaluation *x, enum attn_output o, const double *predicted)
{
    const int64_t width = x->run->truth.tensor[o].extent[3];
    for (int64_t row = 0;
         x->run->compared[o] && predicted != NULL && row < attn_run_rows(x->run, o); row++)
        if (!attn_evaluation_fits(x, o, row, predicted + row * width))
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
    const int64_t rows = p->batch * p->heads * p->n_query, sharing = attn_group_of(p) * p->n_query;
    enum attn_output o = x->run->failing[ATTN_DK] ? ATTN_DK : ATTN_DV;
    int64_t dq = first_wrong(x, ATTN_DQ), key = dq < 0 ? first_wrong(x, o) : -1;
    int64_t first = dq >= 0 ? dq : key >= 0 ? key / p->n_key * sharing : 0;
    if (x->f->place == ATTN_AT_DBIAS) /* the order counts */
        first = 0, key = -1;
    for (int64_t n = 0; n < rows; n++) {
        int64_t row = (first + n) % rows;
        const double delta = attn_evaluate_delta(x, row);
        attn_evaluate_dq(x, row, delta);
        if (x->dsink != NULL)
            add_dsink(x, row, delta);
        add_dbias(x, row / p->n_query / p->heads, row / p->n_query % p->heads, row % p->n_query);
        if (!attn_evaluation_fits(x, ATTN_DQ, row, x->dq))
            return 0;
        if (n + 1 == sharing && key >= 0 && x->f->place != ATTN_AT_KEY && !key_fits(x, o, key))
            return 0;
    }
    return output_fits(x, ATTN_DK, x->dk) && output_fits(x, ATTN_DV, x->dv) &&
           output_fits(x, ATTN_DBIAS, x->dbias) && output_fits(x, ATTN_DSINK, x->dsink);
}

/* ---- both ------------------------------------------------------------------------------------ */

int attn_fault_fits(const struct attn_failed_run *run, const struct attn_fault_model *f)
{
    struct attn_evaluation x;
    int fits = attn_evaluation_open(&x, run, f) &&
               (run->backward ? backward_fits(&x) : attn_evaluation_fits_forward(&x)) &&
               (f->place == ATTN_AT_NONE || attn_evaluation_explains(&x));
    attn_evaluation_close(&x);
    return fits;
}

int attn_fault_exceeds(const struct attn_failed_run *run, const struct attn_fault_model *f)
{
    struct attn_evaluation x;
    int exceeds = attn_evaluation_open(&x, run, f) &&
                  (!(run->backward ? backward_fits(&x) : attn_evaluation_fits_forward(&x)) ||
                   x.evidence.against > 0);
    attn_evaluation_close(&x);
    return exceeds;
}
