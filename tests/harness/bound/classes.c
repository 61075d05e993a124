/* See classes.h; docs/bounds.md, 6.3. */
#include "tests/harness/bound/classes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ref/problem.h"

/* ---- sets of kinds --------------------------------------------------------------------------- */

enum { KINDS = 6 }; /* that arithmetic makes; UNKNOWN is none of them */
static const double one_of[KINDS] = {0, 1, -1, (double)INFINITY, -(double)INFINITY, (double)NAN};

unsigned attn_kind_of(double x)
{
    return isnan(x)   ? ATTN_KIND_NAN
           : isinf(x) ? (x > 0 ? ATTN_KIND_PLUS_INF : ATTN_KIND_MINUS_INF)
           : x > 0    ? ATTN_KIND_POSITIVE
           : x < 0    ? ATTN_KIND_NEGATIVE
                      : ATTN_KIND_ZERO;
}

unsigned attn_kinds_plus(unsigned a, unsigned b)
{
    unsigned sum = 0;
    if ((a | b) & ATTN_KIND_UNKNOWN)
        return ATTN_KINDS_ANY;
    for (int x = 0; x < KINDS; x++)
        for (int y = 0; y < KINDS; y++)
            if (a & 1u << x && b & 1u << y) /* terms that cancel may leave anything */
                sum |= one_of[x] * one_of[y] < 0 && isfinite(one_of[x] + one_of[y])
                           ? ATTN_KINDS_FINITE
                           : attn_kind_of(one_of[x] + one_of[y]);
    return sum;
}

/* a b, and 0 as well where a weight a of 0 may be skipped instead of multiplied. */
static unsigned product(unsigned a, unsigned b, int skips)
{
    unsigned product = 0;
    if ((a | b) & ATTN_KIND_UNKNOWN)
        return ATTN_KINDS_ANY;
    for (int x = 0; x < KINDS; x++)
        for (int y = 0; y < KINDS; y++)
            if (a & 1u << x && b & 1u << y)
                product |= attn_kind_of(one_of[x] * one_of[y]);
    return skips && a & ATTN_KIND_ZERO ? product | ATTN_KIND_ZERO : product;
}

unsigned attn_kinds_times(unsigned a, unsigned b)
{
    return product(a, b, 0);
}

unsigned attn_kinds_weigh(unsigned weight, unsigned x)
{
    return product(weight, x, 1);
}

static unsigned minus(unsigned a)
{
    return attn_kinds_times(a, ATTN_KIND_NEGATIVE);
}

unsigned attn_kinds_classes(unsigned kinds)
{
    return (kinds & ATTN_KINDS_FINITE ? ATTN_CLASS_FINITE : 0u) |
           (kinds & ATTN_KIND_PLUS_INF ? ATTN_CLASS_PLUS_INF : 0u) |
           (kinds & ATTN_KIND_MINUS_INF ? ATTN_CLASS_MINUS_INF : 0u) |
           (kinds & ATTN_KIND_NAN ? ATTN_CLASS_NAN : 0u);
}

/* The domain of ref/attn.h: nothing overflows in a factor of log2 e, nor in a sum of terms whose
 * sizes stay below this. */
static double domain_of(enum attn_dtype dtype)
{
    return dtype == ATTN_F64 ? 0x1p1022 : 0x1p126;
}

/* The smallest weight that no honest arithmetic takes for 0. */
static double least_weight(const struct attn_precision *x)
{
    double least = x->u < 0x1p-40 ? 0x1p-1016 : 0x1p-120;
    return 4 * x->tiny_inner > least ? 4 * x->tiny_inner : least;
}

/* ---- room ------------------------------------------------------------------------------------ */

enum attn_status attn_row_kinds_alloc(const struct attn_problem *p, struct attn_row_kinds *x,
                                      struct attn_error *err)
{
    unsigned char **const by_key[] = {&x->s, &x->slope, &x->p, &x->dp, &x->ds, &x->dsr};
    size_t keys = sizeof by_key / sizeof *by_key, n = (size_t)p->n_key;
    size_t d = (size_t)p->d_key, dv = (size_t)p->d_value;
    memset(x, 0, sizeof *x);
    unsigned char *at = malloc(keys * n + 2 * (d + dv) + 1);
    if ((x->block = at) == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for the kinds of a row of %zu keys", n);
    for (size_t a = 0; a < keys; a++, at += n)
        *by_key[a] = at;
    x->q = at, at += d;
    x->dq = at, at += d;
    x->d_o = at, at += dv;
    x->o = at;
    return ATTN_OK;
}

void attn_row_kinds_free(struct attn_row_kinds *x)
{
    free(x->block);
    memset(x, 0, sizeof *x);
}

/* ---- the forward pass ------------------------------------------------------------------------ */

/* Is any of a row of an input not finite? */
static int is_odd(const struct attn_cview *x, int64_t b, int64_t h, int64_t i, int64_t width)
{
    double part[64];
    int odd = 0;
    for (int64_t c = 0, n; c < width && !odd; c += n) {
        n = width - c < 64 ? width - c : 64;
        attn_cview_row(x, (int64_t[4]){b, h, i, c}, n, part);
        for (int64_t e = 0; e < n; e++)
            odd |= !isfinite(part[e]);
    }
    return odd;
}

/* The kinds of a row of an input. */
static void load(const struct attn_cview *x, int64_t b, int64_t h, int64_t i, int64_t width,
                 unsigned char *to)
{
    for (int64_t c = 0; c < width; c++)
        to[c] = (unsigned char)attn_kind_of(attn_cview_get(x, b, h, i, c));
}

/* x . y of a row of kinds and a row of a tensor. */
static unsigned dot(const unsigned char *x, const struct attn_cview *y, int64_t b, int64_t h,
                    int64_t j, int64_t width)
{
    unsigned sum = ATTN_KIND_ZERO;
    for (int64_t c = 0; c < width; c++)
        sum = attn_kinds_plus(sum,
                              attn_kinds_times(x[c], attn_kind_of(attn_cview_get(y, b, h, j, c))));
    return sum;
}

static double at_least_1(double x)
{
    return x > 1 ? x : 1;
}

/* The largest that a score, or a step on the way to it, can be. */
static double reach(const struct attn_problem *p, const struct attn_row_bound *bound, int64_t j)
{
    return at_least_1(fabs(p->scale)) * at_least_1(bound->q_size) * at_least_1(bound->k_size[j]);
}

/* The kinds of pair n's raw score. */
static unsigned raw_of(const struct attn_problem *p, const struct attn_cview *k, int64_t b,
                       int64_t h, const struct attn_oracle_row *row,
                       const struct attn_row_bound *bound, int q_odd, int64_t n,
                       const struct attn_row_kinds *x)
{
    int64_t j = row->key[n];
    if (reach(p, bound, j) > domain_of(p->dtype) || bound->over[n] & ATTN_OVER_SCORE)
        return ATTN_KINDS_ANY;
    if (!q_odd && !bound->k_odd[j])
        return ATTN_KINDS_FINITE;
    int64_t g = h / (p->heads / p->kv_heads);
    return attn_kinds_times(dot(x->q, k, b, g, j, p->d_key), attn_kind_of(p->scale));
}

/* c tanh(raw / c), and its slope 1 - tanh^2. */
static unsigned bend(unsigned raw, unsigned char *slope)
{
    const unsigned infinite = ATTN_KIND_PLUS_INF | ATTN_KIND_MINUS_INF;
    if (raw & ATTN_KIND_UNKNOWN)
        return *slope = ATTN_KINDS_ANY;
    unsigned finite = raw & (infinite | ATTN_KINDS_FINITE) ? ATTN_KINDS_FINITE : 0;
    *slope = (unsigned char)((raw & ATTN_KIND_NAN) | (raw & infinite ? ATTN_KIND_ZERO : 0u) |
                             (raw & ATTN_KINDS_FINITE));
    return (raw & ATTN_KIND_NAN) | finite;
}

/* Plus the bias: -inf hides, but whether it hides what is not finite is not specified. */
static unsigned biased(unsigned raw, double bias, int odd, double domain)
{
    if (bias > domain || raw & ATTN_KIND_UNKNOWN)
        return ATTN_KINDS_ANY;
    if (bias == -(double)INFINITY)
        return odd ? ATTN_KIND_MINUS_INF | ATTN_KIND_NAN : ATTN_KIND_MINUS_INF;
    return attn_kinds_plus(raw, attn_kind_of(bias)) | (bias < -domain ? ATTN_KIND_MINUS_INF : 0u);
}

/* A NaN, or beyond the domain: the bounds do not speak of such a sink. */
static int sink_is_odd(const struct attn_oracle_row *row, double domain)
{
    return !(row->z <= domain);
}

/* The weights of a row, and its LSE, from the kinds of its scores. */
static void weigh(const struct attn_precision *a, const struct attn_oracle_row *row,
                  const struct attn_row_bound *bound, double domain, struct attn_row_kinds *x)
{
    unsigned any = isnan(row->z) ? ATTN_KIND_NAN : 0, by_arithmetic = 0, finite = 0;
    unsigned no_number = isnan(row->z);
    int sinks = row->z > -(double)INFINITY;
    for (int64_t n = 0; n < row->n; n++) {
        any |= x->s[n];
        no_number |= !(x->s[n] & ~(unsigned)(ATTN_KIND_NAN | ATTN_KIND_PLUS_INF));
        finite |= (x->s[n] & ATTN_KINDS_FINITE) != 0;
        by_arithmetic |= x->s[n] & ATTN_KIND_MINUS_INF && row->bias[n] >= -domain;
    }
    unsigned broken = any & (ATTN_KIND_NAN | ATTN_KIND_PLUS_INF) ? ATTN_KIND_NAN : 0;
    if (!finite && by_arithmetic)
        broken = ATTN_KIND_NAN; /* exp(-inf - -inf); others say that no key is left */
    x->lse = (unsigned char)(no_number         ? ATTN_KIND_NAN | (any & ATTN_KIND_PLUS_INF)
                             : finite || sinks ? ATTN_KINDS_FINITE | broken
                                               : ATTN_KIND_MINUS_INF | broken);
    int unknown = any & ATTN_KIND_UNKNOWN || row->z > domain || (finite && row->max < -domain);
    double least = least_weight(a);
    for (int64_t n = 0; n < row->n; n++) {
        unsigned own = x->s[n] & ATTN_KINDS_FINITE ? ATTN_KIND_POSITIVE : 0;
        double moved = bound->tau[n] + bound->e_lse; /* in either pass */
        double lowest = isfinite(moved) ? row->p[n] * exp(-moved) : row->p[n];
        if (x->s[n] & ATTN_KIND_MINUS_INF || (own && !(lowest >= least)))
            own |= ATTN_KIND_ZERO;
        if (no_number) /* -inf may count as hidden, and what is beside +inf weighs nothing */
            own &= x->s[n] & ATTN_KIND_MINUS_INF ? ATTN_KIND_ZERO : 0u;
        if (no_number && any & ATTN_KIND_PLUS_INF && !(x->s[n] & ATTN_KIND_PLUS_INF))
            own = ATTN_KIND_ZERO;
        x->p[n] = (unsigned char)(unknown ? ATTN_KINDS_ANY : own | broken);
    }
    if (unknown)
        x->lse = ATTN_KINDS_ANY;
    x->sink = (unsigned char)(unknown         ? ATTN_KINDS_ANY
                              : isnan(row->z) ? ATTN_KIND_NAN
                                              : ATTN_KIND_ZERO | broken);
    if (sinks && !no_number)
        x->sink |= ATTN_KIND_POSITIVE;
}

/* Is there anything in this row that the bounds do not speak of? */
static int is_special(const struct attn_problem *p, const struct attn_oracle_row *row,
                      const struct attn_row_bound *bound, int backward, double domain)
{
    const int over = backward ? 7 : ATTN_OVER_SCORE;
    int special = 0;
    for (int64_t n = 0; n < row->n; n++) {
        int64_t j = row->key[n];
        special |= bound->k_odd[j] | bound->v_odd[j] | (bound->over[n] & over) |
                   !(row->bias[n] <= domain) | (reach(p, bound, j) > domain);
    }
    for (int64_t n = 0; backward && n < row->n; n++)
        special |= row->dp_magnitude[n] > domain;
    for (int64_t c = 0; c < p->d_value; c++)
        special |= bound->size_o[c] > domain;
    for (int64_t c = 0; backward && c < p->d_key; c++)
        special |= bound->size_dq[c] > domain;
    return special || (row->n > 0 && row->max < -domain && row->max > -(double)INFINITY);
}

static void forward(const struct attn_problem *p, const struct attn_inputs *in,
                    const struct attn_precision *a, const struct attn_oracle_row *row,
                    const struct attn_row_bound *bound, int64_t b, int64_t h, int q_odd,
                    struct attn_row_kinds *x)
{
    double domain = domain_of(p->dtype);
    int64_t g = h / (p->heads / p->kv_heads);
    for (int64_t n = 0; n < row->n; n++) {
        unsigned s = raw_of(p, &in->k, b, h, row, bound, q_odd, n, x);
        x->slope[n] = ATTN_KIND_POSITIVE;
        if (p->softcap > 0)
            s = bend(s, &x->slope[n]);
        x->s[n] =
            (unsigned char)biased(s, row->bias[n], q_odd || bound->k_odd[row->key[n]], domain);
    }
    weigh(a, row, bound, domain, x);
    for (int64_t c = 0; c < p->d_value; c++) {
        unsigned o = bound->size_o[c] > domain ? ATTN_KINDS_ANY : ATTN_KIND_ZERO;
        if (row->n == 0) /* 0 keys of no known weight: 0, or 0 times a NaN */
            o |= x->sink & (unsigned)~ATTN_KIND_POSITIVE;
        for (int64_t n = 0; n < row->n; n++) {
            int64_t j = row->key[n];
            unsigned v = attn_kind_of(attn_cview_get(&in->v, b, g, j, c));
            o = attn_kinds_plus(o, attn_kinds_weigh(x->p[n], v));
        }
        x->o[c] = (unsigned char)o;
    }
}

/* ---- the backward pass ----------------------------------------------------------------------- */

/* D = dO . O - dLSE, or sum P dP - dLSE. */
static unsigned delta_of(const struct attn_problem *p, const struct attn_oracle_row *row,
                         double d_lse, const struct attn_row_kinds *x)
{
    unsigned by_o = ATTN_KIND_ZERO, by_p = ATTN_KIND_ZERO;
    for (int64_t c = 0; c < p->d_value; c++)
        by_o = attn_kinds_plus(by_o, attn_kinds_times(x->d_o[c], x->o[c]));
    for (int64_t n = 0; n < row->n; n++)
        by_p = attn_kinds_plus(by_p, attn_kinds_weigh(x->p[n], x->dp[n]));
    return attn_kinds_plus(by_o | by_p, attn_kind_of(-d_lse));
}

static void backward(const struct attn_problem *p, const struct attn_inputs *in,
                     const struct attn_oracle_row *row, const struct attn_row_bound *bound,
                     int64_t b, int64_t h, double d_lse, int odd, struct attn_row_kinds *x)
{
    double domain = domain_of(p->dtype);
    int64_t g = h / (p->heads / p->kv_heads);
    for (int64_t n = 0; n < row->n; n++) {
        x->dp[n] = ATTN_KINDS_FINITE;
        if (row->dp_magnitude[n] > domain || bound->over[n] & ATTN_OVER_DP)
            x->dp[n] = ATTN_KINDS_ANY;
        else if (odd || bound->v_odd[row->key[n]])
            x->dp[n] = (unsigned char)dot(x->d_o, &in->v, b, g, row->key[n], p->d_value);
    }
    unsigned less = minus(delta_of(p, row, d_lse, x));
    x->dz = (unsigned char)attn_kinds_weigh(x->sink, less);
    for (int64_t n = 0; n < row->n; n++) {
        x->ds[n] = (unsigned char)attn_kinds_weigh(x->p[n], attn_kinds_plus(x->dp[n], less));
        if (bound->over[n] & ATTN_OVER_DS)
            x->ds[n] = ATTN_KINDS_ANY;
        x->dsr[n] = (unsigned char)attn_kinds_weigh(x->ds[n], x->slope[n]);
    }
    for (int64_t c = 0; c < p->d_key; c++) {
        unsigned dq = bound->size_dq[c] > domain ? ATTN_KINDS_ANY : ATTN_KIND_ZERO;
        for (int64_t n = 0; n < row->n; n++) {
            int64_t j = row->key[n];
            unsigned k = attn_kind_of(attn_cview_get(&in->k, b, g, j, c));
            dq = attn_kinds_plus(dq, attn_kinds_weigh(x->dsr[n], k));
        }
        x->dq[c] = (unsigned char)attn_kinds_times(dq, attn_kind_of(p->scale));
    }
}

void attn_row_kinds(const struct attn_problem *p, const struct attn_inputs *in,
                    const struct attn_precision *a, const struct attn_oracle_row *row,
                    const struct attn_row_bound *bound, int64_t b, int64_t h, int64_t i,
                    struct attn_row_kinds *x)
{
    int is_backward = in->d_o.data != NULL, do_odd = 0;
    double d_lse = 0;
    x->special = 0;
    int sink_odd = sink_is_odd(row, domain_of(p->dtype));
    if (is_backward && in->d_lse.data != NULL)
        d_lse = attn_cview_get(&in->d_lse, b, h, i, 0);
    if (row->n == 0 && !sink_odd && (row->z == -(double)INFINITY || isfinite(d_lse)))
        return; /* q and dO are not read, and dLSE of a sink alone */
    int q_odd = is_odd(&in->q, b, h, i, p->d_key);
    if (is_backward)
        do_odd = is_odd(&in->d_o, b, h, i, p->d_value);
    x->special = q_odd || do_odd || sink_odd || !isfinite(d_lse) ||
                 is_special(p, row, bound, is_backward, domain_of(p->dtype));
    if (!x->special)
        return;
    load(&in->q, b, h, i, p->d_key, x->q);
    forward(p, in, a, row, bound, b, h, q_odd, x);
    if (!is_backward)
        return;
    load(&in->d_o, b, h, i, p->d_value, x->d_o);
    if (row->n == 0)
        memset(x->d_o, ATTN_KIND_ZERO, (size_t)p->d_value);
    backward(p, in, row, bound, b, h, d_lse, do_odd, x);
}
