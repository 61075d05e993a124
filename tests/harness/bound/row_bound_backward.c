/* The backward of row_bound.h; docs/bounds.md derives this, its section numbers stand beside the
 * lines. */
#include <math.h>

#include "ref/problem.h"
#include "tests/harness/bound/row_bound_parts.h"

/* 5.2: dP = dO . v, of operands as they are or rounded (2), and stored between the steps (2.3): the
 * errors, to e_ds for bound_ds. */
ATTN_ANY_WIDTH static void bound_dps(const struct attn_problem *p,
                                     const struct attn_precision *precision,
                                     const struct attn_oracle_row *row,
                                     const struct attn_row_bound *x)
{
    const struct attn_precision own = *precision, *a = &own; /* which no store can change */
    const int64_t keys = row->n, *key = row->key;
    const double *v_size = x->v_size, do_size = x->do_size, *dp = row->dp;
    double grow = (1 + a->u_v) * (1 + a->u_v), dv = (double)p->d_value;
    double tiny_v = attn_operand_tiny(a, a->u_v, 1), of_size = x->of_dp * grow + (grow - 1);
    double *restrict e = x->e_ds;
    for (int64_t n = 0; n < keys; n++) {
        double both = v_size[key[n]] + do_size;
        e[n] = of_size * row->dp_magnitude[n] + a->tiny * (dv + 1 + both) +
               tiny_v * grow * (both + dv * tiny_v);
    }
    if (a->u_dp > 0)
        for (int64_t n = 0; n < keys; n++)
            e[n] += a->u_dp * (fabs(dp[n]) + e[n]) + a->tiny_inner;
}

/* 5.2: D, computed as dO . O - dLSE or as sum P dP - dLSE: the larger of the two errors. */
static double bound_delta(const struct attn_problem *p, const struct attn_cview *d_o, double d_lse,
                          int64_t b, int64_t h, int64_t i, const struct attn_precision *a,
                          const struct attn_oracle_row *row, struct attn_row_bound *x)
{
    double by_o = 0, size = fabs(d_lse), by_p = 0, sum_p = fabs(d_lse), part[64];
    double u_sum = attn_sum_roundoff(a), tiny = a->tiny;
    int64_t dv = p->d_value;
    for (int64_t c = 0; c < dv; c++) {
        if (c % 64 == 0)
            attn_cview_row(d_o, (int64_t[4]){b, h, i, c}, dv - c < 64 ? dv - c : 64, part);
        double g = attn_finite_part(fabs(part[c % 64]));
        by_o += g * x->e_o[c] + tiny * (g + fabs(row->o[c]));
        size += g * (fabs(row->o[c]) + x->e_o[c]);
    }
    by_o += attn_sum_error(x->do_terms + 2, u_sum, a->lambda) * size;
    bound_dps(p, a, row, x);
    for (int64_t n = 0; n < row->n; n++) {
        if (row->s[n] == -(double)INFINITY)
            continue;
        double e_dp = x->e_ds[n], dp = fabs(row->dp[n]);
        by_p += times(x->e_p[n], dp + e_dp) + row->p[n] * e_dp;
        sum_p += row->p[n] * dp;
    }
    by_p += attn_sum_error((double)row->n + 2, u_sum, a->lambda) * (sum_p + by_p);
    return (by_o > by_p ? by_o : by_p) + (double)(p->d_value + 1) * a->tiny;
}

/* 5.5: dS is stored by some between the steps that follow: the three of a softcap, the scale. */
static double rounded_on(const struct attn_problem *p, const struct attn_precision *a, double dsr)
{
    double scale = fabs(p->scale), c = p->softcap, e = 0;
    int steps = a->u_s > 0 ? (c > 0 ? 3 : 0) + (a->u_q < a->u_s) : 0;
    for (int n = 0; n < steps; n++)
        e += a->u_ds * (dsr + e);
    return e + a->tiny_inner * (1 + steps) * (1 + (scale > 0 ? 1 / scale : 0)) *
                   (1 + (c > 0 && steps > 0 ? 1 / c : 0));
}

/* 5.3: dS = P (dP - D), of errors of dP that stand in e_ds, and through a slope that is exact.  A
 * scale that is applied to dS before the sum: an underflow there is not scaled. */
ATTN_ANY_WIDTH static void bound_ds(const struct attn_problem *p,
                                    const struct attn_precision *precision,
                                    const struct attn_oracle_row *row, double e_delta, double mean,
                                    const struct attn_row_bound *x)
{
    const struct attn_precision own = *precision, *a = &own; /* which no store can change */
    const int64_t keys = row->n;
    const double u = a->u, tiny_ds = a->u_ds > u ? a->tiny_inner : 0, delta = row->delta;
    const double *dp = row->dp, *probability = row->p, *true_ds = row->ds, *slope = row->slope;
    const double *e_p = x->e_p, of_score = 1 + x->score_size;
    const double scaled = p->scale != 0 ? a->tiny / fabs(p->scale) : 0;
    double *restrict e_ds = x->e_ds, *restrict dsr = x->dsr, *restrict e_dsr = x->e_dsr;
    double *restrict gauge = x->gauge_ds;
    for (int64_t n = 0; n < keys; n++) {
        double ds = fabs(true_ds[n]), away = fabs(dp[n] - delta), off = e_ds[n] + e_delta;
        off += u * (away + off);
        double e = times(e_p[n], away + off) + times(probability[n], off) +
                   a->tiny * (2 * (away + off) + 1);
        e_ds[n] = e + (u + a->u_ds) * (ds + e) + tiny_ds;
        dsr[n] = true_ds[n] * slope[n];
        e_dsr[n] = times(e_ds[n], slope[n]) + scaled;
        gauge[n] = of_score * probability[n] * (row->dp_magnitude[n] + mean);
    }
}

/* 5.3: the error of a softcap's slope, 1 - t^2. */
static double bound_slope(const struct attn_problem *p, const struct attn_precision *a,
                          double slope, double eps_raw)
{
    double u = a->u;
    return at_most(slope * exp_minus_1(2 * eps_raw / p->softcap), 1) +
           (2 * a->other_ulps + 6) * u * (1 - slope) + 2 * u * slope +
           a->u_s * (2 + a->u_s) * (1 - slope) + (a->u_s > 0 ? 2 * a->tiny_inner : 0);
}

/* A softcap, and a dS that is stored, add this to the error of dS of pair n. */
static void bound_dsr(const struct attn_problem *p, const struct attn_precision *a,
                      const struct attn_oracle_row *row, int64_t n, struct attn_row_bound *x)
{
    double u = a->u, ds = fabs(row->ds[n]), slope = row->slope[n], scale = fabs(p->scale);
    if (p->softcap > 0) {
        double e_slope = bound_slope(p, a, slope, x->eps_raw[n]);
        x->e_dsr[n] = times(x->e_ds[n], slope + e_slope) + times(ds, e_slope);
        x->e_dsr[n] += scale > 0 ? a->tiny / scale : 0;
        x->e_dsr[n] += u * (fabs(x->dsr[n]) + x->e_dsr[n]) + a->tiny;
    }
    if (!(a->u_ds > u))
        return;
    x->e_dsr[n] += rounded_on(p, a, fabs(x->dsr[n]) + x->e_dsr[n]);
    double large = scale > 1 ? scale : 1;
    large *= a->u_s > 0 && p->softcap > 1 ? p->softcap : 1;
    if (attn_may_overflow(a, (ds + x->e_ds[n]) * large))
        x->over[n] |= ATTN_OVER_DS;
}

/* 5.4: what some keys add to some columns of dq: three rows of sums.  is_finite: as above. */
static inline __attribute__((always_inline)) void add_to_dq(double *sums, int64_t wide, int64_t c0,
                                                            const struct weighed *keys, int n_keys,
                                                            int is_finite)
{
    attn_lanes e[VECTORS], size[VECTORS], gauge[VECTORS];
    sums += c0;
    for (int t = 0; t < VECTORS; t++) {
        e[t] = ATTN_LANES_AT(sums + t * ATTN_LANES);
        size[t] = ATTN_LANES_AT(sums + wide + t * ATTN_LANES);
        gauge[t] = ATTN_LANES_AT(sums + 2 * wide + t * ATTN_LANES);
    }
    for (const struct weighed *key = keys; key < keys + n_keys; key++) {
        int64_t is_off = -(int64_t)(key->error != 0), is_large = -(int64_t)(key->both != 0);
        for (int t = 0; t < VECTORS; t++) {
            attn_lanes k = ATTN_LANES_ABS(ATTN_LANES_AT(key->row + c0 + t * ATTN_LANES));
            attn_lanes off = key->error * k, large = key->both * k;
            e[t] += (is_finite ? off : ATTN_LANES_IF((k > 0) & is_off, off)) + key->flushed;
            size[t] += is_finite ? large : ATTN_LANES_IF((k > 0) & is_large, large);
            gauge[t] += key->size * k;
        }
    }
    for (int t = 0; t < VECTORS; t++) {
        memcpy(sums + t * ATTN_LANES, &e[t], sizeof e[t]);
        memcpy(sums + wide + t * ATTN_LANES, &size[t], sizeof size[t]);
        memcpy(sums + 2 * wide + t * ATTN_LANES, &gauge[t], sizeof gauge[t]);
    }
}

/* The keys of a row's stretch for dq; returns how many. */
static int weigh_for_dq(const struct attn_precision *a, const struct attn_oracle_row *row,
                        const struct attn_row_bound *x, int64_t n0, int64_t d, double scale,
                        struct weighed keys[STRETCH], int *is_finite)
{
    const double tiny = attn_term_tiny(a, scale), tiny_q = attn_operand_tiny(a, a->u_q, scale);
    int n_keys = 0;
    for (int64_t n = n0; n < stretch_end(row, n0); n++) {
        double dsr = fabs(x->dsr[n]), e = x->e_dsr[n];
        if (row->s[n] == -(double)INFINITY)
            continue;
        keys[n_keys++] = (struct weighed){x->k + row->key[n] * stride_of(d), e, x->gauge_ds[n],
                                          dsr + e, tiny + (tiny + tiny_q) * dsr};
        *is_finite &= isfinite(dsr + e);
    }
    return n_keys;
}

ATTN_ANY_WIDTH static void sum_dq(const struct attn_precision *a, int64_t d, double scale,
                                  int n_rows, const struct attn_oracle_row *const *rows,
                                  const struct attn_row_bound *x)
{
    int64_t n_most = longest(n_rows, rows), wide = whole_vectors(d);
    for (int64_t n0 = 0; n0 < n_most; n0 += STRETCH)
        for (int r = 0; r < n_rows; r++) {
            struct weighed keys[STRETCH];
            if (n0 >= rows[r]->n || x[r].without_dq || rows[r]->max == -(double)INFINITY)
                continue;
            int is_finite = 1;
            int n_keys = weigh_for_dq(a, rows[r], &x[r], n0, d, scale, keys, &is_finite);
            for (int64_t c = 0; c < d && is_finite; c += COLUMNS)
                add_to_dq(x[r].sum, wide, c, keys, n_keys, 1);
            for (int64_t c = 0; c < d && !is_finite; c += COLUMNS)
                add_to_dq(x[r].sum, wide, c, keys, n_keys, 0);
        }
}

/* 5.4: dq = scale sum dS k. */
static void bound_dq(const struct attn_problem *p, const struct attn_precision *a,
                     const struct attn_oracle_row *row, struct attn_row_bound *x)
{
    const int64_t wide = whole_vectors(p->d_key);
    const double *e = x->sum, *size = e + wide, *gauge = size + wide;
    double more = attn_sum_error((double)(row->n + a->sums) + 4, attn_sum_roundoff(a), a->lambda);
    double parts = (double)(1 + a->sums);
    more += a->u_q * (1 + more);
    for (int64_t c = 0; c < p->d_key; c++) {
        double all = fabs(p->scale) * (e[c] + more * size[c]) + parts * a->tiny;
        all += (1 + more) * attn_partials_error(a, fabs(p->scale) * size[c] + all, parts, p->scale);
        double dq = fabs(row->dq[c]);
        x->e_dq[c] = all + a->u_storage * (dq + all) + a->tiny_storage + 0x1p-52 * dq;
        x->gauge_dq[c] = fabs(p->scale) * gauge[c];
        x->size_dq[c] = fmax(1, fabs(p->scale)) * gauge[c] / (1 + x->score_size);
        if (attn_sum_may_overflow(a, fmax(1, fabs(p->scale)) * size[c]))
            x->size_dq[c] = (double)INFINITY;
    }
}

/* 5.6: dz = -P D of the sink, of P from the stored LSE. */
static void bound_dz(const struct attn_precision *a, const struct attn_oracle_row *row,
                     double e_delta, double mean, struct attn_row_bound *x)
{
    double u = a->u, z = row->z, d = fabs(row->delta), p = row->p_sink;
    x->e_dz = x->gauge_dz = 0;
    if (!(z > -(double)INFINITY))
        return;
    double tau = sink_error(a, z) + u * (fabs(z) + 3 * fabs(row->lse)) + x->e_lse + a->exp_ulps * u;
    double moved = swell_sink(row, tau), off = e_delta + u * (d + e_delta);
    moved += a->u_p * (p + moved) + (a->u_p > 0 ? a->tiny_inner : 0);
    double e = times(moved, d + off) + times(p, off) + a->tiny * (2 * (d + off) + 1);
    x->e_dz = e + (u + a->u_ds) * (p * d + e) + (a->u_ds > u ? a->tiny_inner : 0);
    x->gauge_dz = (1 + x->score_size) * p * mean;
}

/* 5.1: P from the stored LSE: tau_back and e_p of each key. */
ATTN_ANY_WIDTH static void bound_ps(const struct attn_precision *precision,
                                    const struct attn_oracle_row *row,
                                    const struct attn_row_bound *x)
{
    const struct attn_precision own = *precision, *a = &own; /* which no store can change */
    const int64_t keys = row->n;
    const double u = a->u, tiny_p = a->u_p > 0 ? a->tiny_inner : 0, lse = fabs(row->lse);
    const double *s = row->s, *p = row->p, *eps = x->eps, e_lse = x->e_lse;
    double *restrict tau = x->tau_back, *restrict e_p = x->e_p;
    for (int64_t n = 0; n < keys; n++)
        tau[n] = s[n] == -(double)INFINITY
                     ? 0
                     : eps[n] + u * (fabs(s[n]) + 3 * lse) + e_lse + a->exp_ulps * u;
    swell_keys(row, tau, e_p);
    for (int64_t n = 0; n < keys; n++)
        e_p[n] = s[n] == -(double)INFINITY ? 0 : e_p[n] + a->u_p * (p[n] + e_p[n]) + tiny_p;
}

/* 5: the backward of one row, but for its dq. */
static void bound_gradients(const struct attn_problem *p, const struct attn_cview *d_o,
                            double d_lse, int64_t b, int64_t h, int64_t i,
                            const struct attn_precision *a, const struct attn_oracle_row *row,
                            struct attn_row_bound *x)
{
    double mean = fabs(d_lse);
    x->do_size = size_of(d_o, b, h, i, p->d_value, &x->do_norm, &x->do_terms);
    for (int64_t n = 0; n < row->n && overflows(a, a->u_dp, x->do_norm, x->v_norm); n++)
        x->over[n] |= ATTN_OVER_DP;
    x->of_dp = attn_sum_error(x->do_terms + 1, attn_sum_roundoff(a), a->lambda);
    for (int64_t c = 0; c < p->d_key; c++)
        x->e_dq[c] = x->gauge_dq[c] = x->size_dq[c] = 0;
    if (row->max == -(double)INFINITY) {
        for (int64_t n = 0; n < row->n; n++)
            x->tau_back[n] = x->e_p[n] = x->e_ds[n] = x->dsr[n] = x->e_dsr[n] = x->gauge_ds[n] = 0;
        bound_dz(a, row, 0, fabs(row->delta), x); /* its dO is not read */
        return;
    }
    bound_ps(a, row, x);
    for (int64_t n = 0; n < row->n; n++)
        if (row->s[n] != -(double)INFINITY)
            mean += row->p[n] * row->dp_magnitude[n];
    double e_delta = bound_delta(p, d_o, d_lse, b, h, i, a, row, x);
    bound_dz(a, row, e_delta, mean, x);
    bound_ds(p, a, row, e_delta, mean, x);
    for (int64_t n = 0; n < row->n; n++)
        if (row->s[n] == -(double)INFINITY)
            x->e_ds[n] = x->dsr[n] = x->e_dsr[n] = x->gauge_ds[n] = 0;
        else if (p->softcap > 0 || a->u_ds > a->u)
            bound_dsr(p, a, row, n, x);
}

/* dLSE as the bounds take it. */
static double d_lse_of(const struct attn_inputs *in, int64_t b, int64_t h, int64_t i,
                       const struct attn_oracle_row *row)
{
    if (in->d_lse.data == NULL || row->max == -(double)INFINITY)
        return 0;
    return attn_finite_part(attn_cview_get(&in->d_lse, b, h, i, 0));
}

void attn_row_bounds_backward(const struct attn_problem *p, const struct attn_inputs *in, int64_t b,
                              int64_t h, const int64_t *i, const struct attn_precision *a,
                              int n_rows, const struct attn_oracle_row *const *rows,
                              struct attn_row_bound *x)
{
    for (int r = 0; r < n_rows; r++) {
        bound_gradients(p, &in->d_o, d_lse_of(in, b, h, i[r], rows[r]), b, h, i[r], a, rows[r],
                        &x[r]);
        clear_sums(p->d_key, rows[r]->dq, &x[r]);
    }
    sum_dq(a, p->d_key, p->scale, n_rows, rows, x);
    for (int r = 0; r < n_rows; r++)
        if (!x[r].without_dq && rows[r]->max != -(double)INFINITY)
            bound_dq(p, a, rows[r], &x[r]);
}
