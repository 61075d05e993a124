/* See row_bound.h; docs/bounds.md derives this, its section numbers stand beside the lines.  The
 * backward is row_bound_backward.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ref/problem.h"
#include "tests/harness/bound/row_bound_parts.h"

/* Room for a head, whose keys and values all rows share, and for each row; from `at` on: laying
 * out from NULL measures.  Returns the end.  Arrays by key lie apart, as rows of k do. */
static double *lay_out(const struct attn_problem *p, int n_rows, struct attn_row_bound *first,
                       double *at)
{
    size_t n = (size_t)p->n_key, d = (size_t)p->d_key, dv = (size_t)p->d_value;
    struct attn_row_bound head = {.cached_batch = -1, .cached_head = -1, .block = first->block};
    head.k = at, at += n * stride_of(p->d_key);
    head.v = at, at += n * stride_of(p->d_value);
    head.total = at, at += dv;
    head.least = at, at += dv;
    head.most = at, at += dv;
    head.k_size = at, at += n;
    head.v_size = at, at += n;
    head.seen = (int64_t *)at, at += n;
    head.k_odd = (unsigned char *)at, at += n / sizeof *at + 1;
    head.v_odd = (unsigned char *)at, at += n / sizeof *at + 1;
    for (struct attn_row_bound *x = first; x < first + n_rows; x++) {
        *x = head;
        double **const by_key[] = {&x->eps, &x->eps_raw, &x->tau,   &x->tau_back, &x->e_p,
                                   &x->dsr, &x->e_ds,    &x->e_dsr, &x->gauge_ds, &x->swollen};
        for (size_t a = 0; a < sizeof by_key / sizeof *by_key; a++, at += stride_of(p->n_key))
            *by_key[a] = at;
        x->e_o = at, at += dv;
        x->gauge_o = at, at += dv;
        x->size_o = at, at += dv;
        x->e_dq = at, at += d;
        x->gauge_dq = at, at += d;
        x->size_dq = at, at += d;
        x->sum = at, at += 4 * whole_vectors(p->d_key > p->d_value ? p->d_key : p->d_value);
        x->over = (unsigned char *)at, at += n / sizeof *at + 1;
    }
    return at;
}

enum attn_status attn_row_bounds_alloc(const struct attn_problem *p, int n_rows,
                                       struct attn_row_bound *x, struct attn_error *err)
{
    double base[1];
    x->block = NULL;
    size_t bytes = (size_t)((char *)lay_out(p, n_rows, x, base) - (char *)base);
    if ((x->block = malloc(bytes + 1)) == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for the bounds of %d rows of %lld keys",
                         n_rows, (long long)p->n_key);
    lay_out(p, n_rows, x, x->block);
    return ATTN_OK;
}

void attn_row_bounds_free(struct attn_row_bound *x)
{
    free(x->block);
    memset(x, 0, sizeof *x);
}

/* Row j of k or v as double, its finite numbers only; returns the sum of their sizes. */
static double load(const struct attn_cview *from, int64_t b, int64_t g, int64_t j, int64_t width,
                   double *to, unsigned char *odd, double *norm)
{
    double size = 0, squares = 0;
    int is_odd = 0;
    attn_cview_row(from, (int64_t[4]){b, g, j, 0}, width, to);
    for (int64_t c = 0; c < width; c++) {
        double x = isfinite(to[c]) ? to[c] : 0;
        is_odd |= !isfinite(to[c]);
        to[c] = x;
        size += fabs(x);
        squares += x * x;
    }
    *odd = (unsigned char)is_odd;
    *norm = fmax(*norm, sqrt(squares));
    return size;
}

void attn_row_bounds_head(const struct attn_problem *p, const struct attn_inputs *in, int64_t b,
                          int64_t h, const int64_t *i, int n_rows, struct attn_row_bound *x)
{
    int64_t g = h / (p->heads / p->kv_heads);
    if (x->cached_batch != b || x->cached_head != g) {
        x->k_norm = x->v_norm = 0;
        x->n_seen = 0;
        for (int64_t j = 0; j < p->n_key; j++) {
            x->k_size[j] = load(&in->k, b, g, j, p->d_key, x->k + j * stride_of(p->d_key),
                                &x->k_odd[j], &x->k_norm);
            x->v_size[j] = load(&in->v, b, g, j, p->d_value, x->v + j * stride_of(p->d_value),
                                &x->v_odd[j], &x->v_norm);
        }
        x->cached_batch = b, x->cached_head = g;
    }
    for (int r = 0; r < n_rows; r++) {
        x[r].q_size = size_of(&in->q, b, h, i[r], p->d_key, &x[r].q_norm, &x[r].q_terms);
        x[r].k_norm = x->k_norm, x[r].v_norm = x->v_norm;
    }
}

/* 2: the scores, to eps_raw.  d products and sums, the scale (as stored, applied, perhaps times
 * log2 e); the last term for those who scale q or k first, or read subnormals as 0. */
ATTN_ANY_WIDTH static void bound_products(const struct attn_problem *p,
                                          const struct attn_precision *precision,
                                          const struct attn_oracle_row *row,
                                          const struct attn_row_bound *x)
{
    const struct attn_precision own = *precision, *a = &own; /* which no store can change */
    const int64_t keys = row->n, *key = row->key;
    const double *k_size = x->k_size, *raw = row->raw, q_size = x->q_size, tiny = a->tiny;
    double grows = (1 + a->u_q) * (1 + a->u_q), grow = x->exact_scores ? 1 : grows;
    double scale = fabs(p->scale), d = (double)p->d_key, *restrict eps = x->eps_raw;
    double of_magnitude = x->of_score * grow + (grow - 1), inner = a->tiny_inner;
    for (int64_t n = 0; n < keys; n++)
        eps[n] = of_magnitude * row->magnitude[n] + scale * (d + 1) * tiny + tiny +
                 tiny * (1 + scale) * (k_size[key[n]] + q_size);
    if (x->exact_scores)
        for (int64_t n = 0; n < keys; n++)
            eps[n] += (grows - 1) * fabs(raw[n]);
    if (a->u_q > 0) /* rounded as they are, or scaled */
        for (int64_t n = 0; n < keys; n++)
            eps[n] += inner * (1 + scale) * grow * (k_size[key[n]] + q_size + d * inner);
    /* 2.3: stored, and once more where it is scaled after that */
    double often = a->u_q >= a->u_s ? a->u_s : a->u_s * (2 + a->u_s);
    if (a->u_s > 0)
        for (int64_t n = 0; n < keys; n++)
            eps[n] += often * (fabs(raw[n]) + eps[n]) + inner * (1 + scale) * (1 + a->u_s);
}

static int scores_overflow(const struct attn_problem *p, const struct attn_precision *a,
                           const struct attn_row_bound *x)
{
    double scale = fabs(p->scale), c = p->softcap, more = scale > 1 ? scale : 1;
    double largest = x->q_norm > x->k_norm ? x->q_norm : x->k_norm;
    return overflows(a, a->u_s, more * x->q_norm, c > 0 && c < 1 ? x->k_norm / c : x->k_norm) ||
           (a->u_q > 0 && attn_may_overflow(a, more * largest));
}

/* After its product: the softcap, the bias. */
static void bound_score(const struct attn_problem *p, const struct attn_precision *a,
                        const struct attn_oracle_row *row, int64_t n, struct attn_row_bound *x)
{
    double raw = row->raw[n], s = row->s[n], u = a->u, c = p->softcap, u_s = a->u_s;
    double eps = x->eps_raw[n], tiny_s = u_s > 0 ? a->tiny_inner : 0;
    if (c > 0) {                                                /* 2.1: c tanh(raw / c) */
        double into = isinf(raw) ? 0 : eps + 2 * u * fabs(raw); /* tanh of an infinity is exact */
        into += isinf(raw) ? 0 : u_s * (fabs(raw) + into) + tiny_s * c;
        double slope = row->slope[n] * exp(2 * into / c);
        double capped = fabs(s - row->bias[n]), moved = into * (slope <= 1 ? slope : 1);
        eps = moved + (a->other_ulps + 3) * u * capped + a->tiny;
        eps += u_s * (2 + u_s) * (capped + eps) + tiny_s * (1 + c);
        x->eps_raw[n] = into;
    }
    if (p->bias.kind != ATTN_BIAS_NONE) { /* 2.2: the bias as read, and one sum */
        int is_exact = p->bias.kind == ATTN_BIAS_TENSOR && p->dtype >= ATTN_BF16; /* made so */
        eps += 3 * (is_exact ? u : u + u_s) * fabs(row->bias[n]) + u * (fabs(s) + eps);
        eps += u_s * (fabs(s) + eps) + 2 * tiny_s;
    }
    x->eps[n] = eps;
    if (u_s > 0 && attn_may_overflow(a, fmax(fabs(s) + eps, fabs(row->bias[n]))))
        x->over[n] = ATTN_OVER_SCORE;
}

/* 3: exp(s - m), its rescales as m grows, its merges by LSE.  most: m, of keys and sink. */
static inline double bound_exp(const struct attn_precision *a, double most, double lse, double s,
                               double eps)
{
    double u = a->u, below = most - s;
    double through_lse = fabs(s) > fabs(lse) ? fabs(s) : fabs(lse);
    return eps + u * below + a->exp_ulps * u + (double)a->rescales * (a->other_ulps + 1) * u +
           (double)a->merges * (3 * through_lse + 2 * a->other_ulps + 6) * u;
}

/* The same of each key, to tau. */
ATTN_ANY_WIDTH static void bound_exps(const struct attn_precision *precision, double most,
                                      const struct attn_oracle_row *row,
                                      const struct attn_row_bound *x)
{
    const struct attn_precision own = *precision, *a = &own; /* which no store can change */
    const int64_t keys = row->n;
    const double lse = row->lse, *s = row->s, *eps = x->eps;
    double *restrict tau = x->tau;
    for (int64_t n = 0; n < keys; n++)
        tau[n] = bound_exp(a, most, lse, s[n], eps[n]);
}

static double magnitude_of_score(const struct attn_oracle_row *row, int64_t n)
{
    return row->magnitude[n] + fabs(row->bias[n]);
}

/* ---- columns: each stretch of keys that is read serves all rows of a block ------------------- */

/* 4.1: what some keys add to the sums for some columns of o.  is_finite: nothing here is infinite,
 * so that no product of 0 needs care. */
static inline __attribute__((always_inline)) void add_to_o(double *sums, int64_t wide, int64_t c0,
                                                           const struct weighed *keys, int n_keys,
                                                           int is_finite, int wants_swollen)
{
    attn_lanes shift[VECTORS], size[VECTORS], swollen[VECTORS], o[VECTORS];
    sums += c0;
    for (int t = 0; t < VECTORS; t++) {
        shift[t] = ATTN_LANES_AT(sums + t * ATTN_LANES);
        size[t] = ATTN_LANES_AT(sums + wide + t * ATTN_LANES);
        swollen[t] = ATTN_LANES_AT(sums + 2 * wide + t * ATTN_LANES);
        o[t] = ATTN_LANES_AT(sums + 3 * wide + t * ATTN_LANES);
    }
    for (const struct weighed *key = keys; key < keys + n_keys; key++)
        for (int t = 0; t < VECTORS; t++) {
            attn_lanes v = ATTN_LANES_AT(key->row + c0 + t * ATTN_LANES), a = ATTN_LANES_ABS(v);
            attn_lanes away = ATTN_LANES_ABS(v - o[t]), moved = key->error * away;
            attn_lanes large = key->both * a;
            int64_t is_large = -(int64_t)(key->both != 0);
            shift[t] += is_finite ? moved : ATTN_LANES_IF(away > 0, moved); /* o may be NaN */
            size[t] += key->size * a;
            if (wants_swollen)
                swollen[t] += is_finite ? large : ATTN_LANES_IF((a > 0) & is_large, large);
        }
    for (int t = 0; t < VECTORS; t++) {
        memcpy(sums + t * ATTN_LANES, &shift[t], sizeof shift[t]);
        memcpy(sums + wide + t * ATTN_LANES, &size[t], sizeof size[t]);
        memcpy(sums + 2 * wide + t * ATTN_LANES, &swollen[t], sizeof swollen[t]);
    }
}

/* The keys of a row's stretch for o; returns how many. */
static int weigh_for_o(const struct attn_oracle_row *row, const struct attn_row_bound *x,
                       int64_t n0, int64_t dv, struct weighed keys[STRETCH], int *is_finite)
{
    int n_keys = 0;
    for (int64_t n = n0; n < stretch_end(row, n0); n++) {
        double p = row->p[n], weight = x->swollen[n];
        if (row->s[n] == -(double)INFINITY)
            continue;
        keys[n_keys++] =
            (struct weighed){x->v + row->key[n] * stride_of(dv), weight, p, p + weight, 0};
        *is_finite &= isfinite(p + weight);
    }
    return n_keys;
}

static inline __attribute__((always_inline)) void
sums_of_o(int64_t dv, int n_rows, const struct attn_oracle_row *const *rows,
          const struct attn_row_bound *x, int wants_swollen)
{
    int64_t n_most = longest(n_rows, rows), wide = whole_vectors(dv);
    for (int64_t n0 = 0; n0 < n_most; n0 += STRETCH)
        for (int r = 0; r < n_rows; r++) {
            struct weighed keys[STRETCH];
            if (n0 >= rows[r]->n || rows[r]->max == -(double)INFINITY)
                continue;
            int is_finite = x[r].is_finite;
            int n_keys = weigh_for_o(rows[r], &x[r], n0, dv, keys, &is_finite);
            for (int64_t c = 0; c < dv && is_finite; c += COLUMNS)
                add_to_o(x[r].sum, wide, c, keys, n_keys, 1, wants_swollen);
            for (int64_t c = 0; c < dv && !is_finite; c += COLUMNS)
                add_to_o(x[r].sum, wide, c, keys, n_keys, 0, wants_swollen);
        }
}

/* Where nothing of a product or a partial result is rounded, its size does not matter. */
static int wants_swollen(const struct attn_precision *a)
{
    return a->u_p > 0 || a->u_v > 0 || (a->merges > 0 && a->u_partial > 0);
}

ATTN_ANY_WIDTH static void sum_o(const struct attn_precision *a, int64_t dv, int n_rows,
                                 const struct attn_oracle_row *const *rows,
                                 const struct attn_row_bound *x)
{
    if (wants_swollen(a))
        sums_of_o(dv, n_rows, rows, x, 1);
    else
        sums_of_o(dv, n_rows, rows, x, 0);
}

/* Look at one more key: for the sums and extremes of the columns of v. */
ATTN_ANY_WIDTH static void look_at(int64_t dv, const double *restrict v, double *restrict total,
                                   double *restrict least, double *restrict most)
{
    for (int64_t c = 0; c < dv; c++) {
        double low = least[c], high = most[c];
        total[c] += fabs(v[c]);
        least[c] = v[c] < low ? v[c] : low;
        most[c] = v[c] > high ? v[c] : high;
    }
}

/* Look at a row's keys that the bias does not hide, in order.  Most rows see the keys of the row
 * before, and perhaps some more: only these are then looked at. */
static void look_at_keys(const struct attn_oracle_row *row, int64_t dv, struct attn_row_bound *head)
{
    int64_t n = 0, same = 0;
    for (; n < row->n && same < head->n_seen; n++) {
        if (row->s[n] == -(double)INFINITY)
            continue;
        if (head->seen[same] != row->key[n])
            break;
        same++;
    }
    if (same < head->n_seen || same == 0) {
        n = head->n_seen = 0;
        for (int64_t c = 0; c < dv; c++) {
            head->total[c] = 0;
            head->least[c] = (double)INFINITY, head->most[c] = -(double)INFINITY;
        }
    }
    for (; n < row->n; n++)
        if (row->s[n] != -(double)INFINITY) {
            head->seen[head->n_seen++] = row->key[n];
            look_at(dv, head->v + row->key[n] * stride_of(dv), head->total, head->least,
                    head->most);
        }
}

/* 4.6: of exp(LSE - LSE'), the weight of a row that gets its sink after it was divided. */
static double sink_weight_error(const struct attn_precision *a, const struct attn_oracle_row *row)
{
    double most = row->lse - row->max; /* LSE' - LSE is at most that */
    return a->u * (3 * (fabs(row->lse) + most) + 2 * a->exp_ulps + a->other_ulps + 3);
}

/* 4.1: O, as a quotient of perturbed sums; capped by what any average of visible v can be: far is
 * the largest |v - o|, large the largest |v|. */
ATTN_ANY_WIDTH static void bound_o(const struct attn_problem *p, const struct attn_precision *a,
                                   const struct attn_oracle_row *row, double steps,
                                   const struct attn_row_bound *head, struct attn_row_bound *x)
{
    int64_t dv = p->d_value;
    double u_p = a->u_p, tiny_p = u_p > 0 ? a->tiny_inner : 0, kept = x->kept;
    const int64_t wide = whole_vectors(dv);
    const double *shift = x->sum, *size = shift + wide, *swollen = size + wide, *row_o = row->o;
    const double *total = head->total, *highest = head->most, *lowest = head->least;
    double r = attn_sum_error(steps + 3, attn_sum_roundoff(a), a->lambda), *restrict e = x->e_o,
           n_visible = (double)row->n, by_lse = exp(2 * x->e_lse);
    double of_sink = swell_sink(row, x->tau_sink), by_sink = sink_weight_error(a, row);
    double of_large = 2 * r / (1 - r), u_v = a->u_v * (1 + u_p);
    double tiny_v = attn_operand_tiny(a, a->u_v, 1);
    const int is_small = r<1, sinks = row->p_sink> 0;
    for (int64_t c = 0; c < dv; c++) {
        double o = fabs(row_o[c]), above = fabs(highest[c] - row_o[c]);
        double below = fabs(lowest[c] - row_o[c]), far = above > 0 ? above : 0;
        far = below > far ? below : far;
        far = sinks && o > far ? o : far; /* 4.6 */
        double large = greater(fabs(highest[c]), fabs(lowest[c]));
        double by_r = is_small ? of_large * large : (double)INFINITY;
        e[c] = at_most((shift[c] + of_sink * o) / kept, far);
        e[c] += at_most(r * (size[c] + o) * by_lse / kept, by_r);
        e[c] +=
            at_most((u_p * swollen[c] + tiny_p * total[c]) / kept, u_p * large + tiny_p * total[c]);
        e[c] += u_v * at_most(swollen[c] / kept, large) + tiny_v;
    }
    for (int64_t c = 0; c < dv && a->merges > 0; c++) { /* else there is one part, which is O */
        double large = greater(fabs(highest[c]), fabs(lowest[c]));
        e[c] += (1 + r) * attn_partials_error(a, at_most(swollen[c] / kept, large), 1, 1);
    }
    for (int64_t c = 0; c < dv; c++) {
        e[c] += (double)(1 + a->rescales) * a->tiny * (total[c] + n_visible);
        e[c] += (double)a->again * by_sink * (fabs(row_o[c]) + e[c]); /* 4.6 */
    }
    for (int64_t n = 0; n <= a->again; n++)
        for (int64_t c = 0; c < dv; c++)
            e[c] += a->u_storage * (fabs(row_o[c]) + e[c]) + a->tiny_storage;
    for (int64_t c = 0; c < dv; c++) {
        e[c] += 0x1p-52 * fabs(row_o[c]);
        x->gauge_o[c] = (1 + x->score_size) * size[c];
        x->size_o[c] = 16 * total[c]; /* rescaled late, a weight may be as large as that */
        if (attn_sum_may_overflow(a, x->size_o[c]))
            x->size_o[c] = (double)INFINITY;
    }
}

static double steps_of(const struct attn_precision *a, const struct attn_oracle_row *row)
{
    return (double)(row->n + (row->z > -(double)INFINITY) + a->rescales + 3 * a->merges);
}

/* p e^-tau, the least that is left of each weight. */
ATTN_ANY_WIDTH static void shrink_keys(const struct attn_oracle_row *row, const double *tau,
                                       double *restrict left)
{
    const int64_t keys = row->n;
    const double *p = row->p;
    if (are_little(tau, keys))
        for (int64_t n = 0; n < keys; n++)
            left[n] = p[n] * (1 + little_exp_minus_1(-tau[n]));
    else
        for (int64_t n = 0; n < keys; n++)
            left[n] = p[n] * (1 + exp_minus_1(-tau[n]));
}

/* 2 and 3: eps, eps_raw and tau of a row's keys; of those that the bias hides exactly 0. */
static void bound_scores(const struct attn_problem *p, const struct attn_precision *a, double most,
                         const struct attn_oracle_row *row, struct attn_row_bound *x)
{
    int is_raw = !(p->softcap > 0) && p->bias.kind == ATTN_BIAS_NONE && !(a->u_s > 0);
    bound_products(p, a, row, x);
    if (is_raw)
        memcpy(x->eps, x->eps_raw, (size_t)row->n * sizeof *x->eps);
    for (int64_t n = 0; n < row->n && !is_raw; n++)
        if (row->s[n] != -(double)INFINITY)
            bound_score(p, a, row, n, x);
    bound_exps(a, most, row, x);
    for (int64_t n = 0; n < row->n; n++)
        if (row->s[n] == -(double)INFINITY)
            x->eps[n] = x->eps_raw[n] = x->tau[n] = 0;
}

/* 3 and 4.2: the weights of a row, and its LSE. */
static void bound_weights(const struct attn_problem *p, const struct attn_precision *a,
                          const struct attn_oracle_row *row, struct attn_row_bound *x)
{
    double steps = steps_of(a, row), kept = 0, moved = 0, u = a->u;
    double worst = 0, largest = 0; /* of tau, of magnitudes */
    const double most = fmax(row->max, row->z), u_sum = attn_sum_roundoff(a),
                 none = -(double)INFINITY;
    x->e_lse = x->score_size = 0;
    x->of_score = attn_sum_error(x->q_terms + 3, u_sum, a->lambda);
    for (int64_t c = 0; c < p->d_value; c++)
        x->e_o[c] = x->gauge_o[c] = x->size_o[c] = 0;
    memset(x->over, scores_overflow(p, a, x) ? ATTN_OVER_SCORE : 0, (size_t)row->n);
    x->tau_sink = 0;
    if (row->max == none && row->z == none) { /* O, LSE are exact */
        for (int64_t n = 0; n < row->n; n++)
            x->eps[n] = x->eps_raw[n] = x->tau[n] = 0;
        return;
    }
    if (row->z > none) { /* 4.6 */
        x->tau_sink = worst = bound_exp(a, most, row->lse, row->z, sink_error(a, row->z));
        kept = row->p_sink * (1 + exp_minus_1(-x->tau_sink));
        moved = swell_sink(row, x->tau_sink);
    }
    bound_scores(p, a, most, row, x);
    swell_keys(row, x->tau, x->swollen);
    shrink_keys(row, x->tau, x->tau_back);
    for (int64_t n = 0; n < row->n; n++) {
        double size = magnitude_of_score(row, n), tau = x->tau[n];
        if (row->s[n] == none)
            continue;
        kept += x->tau_back[n];
        moved += x->swollen[n];
        worst = tau > worst ? tau : worst;
        largest = size > largest ? size : largest;
    }
    x->score_size = largest;
    /* 4.2 */
    double l = row->lse - most, by_sum = attn_sum_error(steps, u_sum, a->lambda);
    x->e_lse = at_most(moved < 1 ? -log1p(-moved) : (double)INFINITY, worst);
    x->e_lse += by_sum < 1 ? -log1p(-by_sum) : (double)INFINITY;
    x->e_lse += (a->other_ulps + 2) * u * l + (4 * u + a->u_lse) * fabs(row->lse) +
                (double)(row->n + 1) * a->tiny;
    x->kept = kept;
}

/* 4: O = N / l and LSE = m + ln l. */
void attn_row_bounds_forward(const struct attn_problem *p, const struct attn_precision *a,
                             int n_rows, const struct attn_oracle_row *const *rows,
                             struct attn_row_bound *x)
{
    for (int r = 0; r < n_rows; r++) {
        bound_weights(p, a, rows[r], &x[r]);
        clear_sums(p->d_value, rows[r]->o, &x[r]);
    }
    sum_o(a, p->d_value, n_rows, rows, x);
    for (int r = 0; r < n_rows; r++)
        if (rows[r]->max != -(double)INFINITY) {
            look_at_keys(rows[r], p->d_value, x);
            bound_o(p, a, rows[r], steps_of(a, rows[r]), x, &x[r]);
        }
}

/* 4.5: exp(hidden score - m) has to be 0; scores are bounded by Euclid's sizes. */
int attn_row_bound_is_open(const struct attn_problem *p, const struct attn_precision *a,
                           const struct attn_oracle_row *row, int64_t b, int64_t h, int64_t i,
                           const struct attn_row_bound *x)
{
    double score = fabs(p->scale) * x->q_norm * x->k_norm, bias = -(double)INFINITY;
    if (!(a->hidden > 0) || row->n == p->n_key)
        return 0;
    for (int64_t j = 0; j < p->n_key; j++)
        if (p->bias.kind != ATTN_BIAS_NONE && !attn_problem_allows(p, b, h, i, j))
            bias = fmax(bias, attn_problem_bias(p, b, h, i, j));
    score = p->softcap > 0 ? fmin(score, p->softcap) : score;
    score += p->bias.kind != ATTN_BIAS_NONE ? bias : 0;
    return !(score - a->hidden - row->max < (a->u < 0x1p-40 ? -746 : -104));
}
