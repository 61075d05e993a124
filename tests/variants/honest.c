/* See honest.h.  Written once, in double: after each operation real() rounds to the arithmetic's
 * type, which for +, -, * and / gives what that type would have given. */
#include "tests/variants/honest.h"

#include <math.h>

#include "ref/half.h"
#include "ref/ledger.h"
#include "ref/problem.h"
#include "ref/textbook.h"
#include "tests/harness/bound/bound.h"

static const double log2_e = 1.4426950408889634, ln_2 = 0.6931471805599453;
static const double minus_inf = -(double)INFINITY;
enum { PIECE = 8 }; /* keys between two roundings of a sum in storage */

static const struct attn_option options[] = {
    {"order", HONEST_FORWARD, 0, 2, "forward reverse pairwise", "in which sums are added"},
    {"exp", HONEST_E, 0, 1, "e two", "the base of the exponential"},
    {"splits", 1, 1, 64, NULL, "parts of the keys"},
    {"p", HONEST_EXACT, 0, 4, "exact bf16 f16 cut products", "how P is rounded before it is used"},
    {"delta", HONEST_DOT, 0, 1, "dot sum", "how D is computed"},
    {"store", HALF_NEAREST, 0, 3, "nearest truncate flush saturate", "how results are stored"},
    {"sum", HALF_SUM_FLOAT, 0, 3, "float storage bf16 splits", "what partial results are kept in"},
    {"read", HALF_READ_ALL, 0, 1, "all normal", "which inputs count"},
    {"arithmetic", HONEST_PLAIN, 0, HONEST_ARITHMETICS - 1,
     "plain fused fused-after unfused unfused-one unfused-both tf32 tf32-cut fa4 flushed "
     "f16-sums dp",
     "what is rounded on the way"},
    {0}};

/* The operand of the scale: the product, q, or q and k by its root. */
enum scaled { PRODUCT, ONE, BOTH };
/* The arithmetic on the way, rounded to 16-bit storage or to tf32. */
static const struct arithmetic {
    const char *word; /* of arithmetic.def */
    enum { NOWHERE, STORAGE, FLUSHED, NEAREST_TF32, CUT_TF32 } to;
    enum scaled scaled;
    int steps; /* scores, dP and gradients are stored between the steps            */
    int after; /* P is rounded after its division by l                             */
    enum { PLAIN, CUT, IN_F16 } sums; /* how sums of products are rounded          */
} arithmetics[HONEST_ARITHMETICS] = {
    [HONEST_PLAIN] = {"f32", NOWHERE, PRODUCT, 0, 0, PLAIN},
    [HONEST_FUSED] = {"fused-16", STORAGE, PRODUCT, 0, 0, CUT},
    [HONEST_FUSED_AFTER] = {"fused-16", STORAGE, PRODUCT, 0, 1, PLAIN},
    [HONEST_UNFUSED] = {"unfused-16", STORAGE, PRODUCT, 1, 1, PLAIN},
    [HONEST_UNFUSED_ONE] = {"unfused-16", STORAGE, ONE, 1, 1, CUT},
    [HONEST_UNFUSED_BOTH] = {"unfused-16", STORAGE, BOTH, 1, 1, PLAIN},
    [HONEST_F16_SUMS] = {"f32", NOWHERE, PRODUCT, 0, 0, IN_F16},
    [HONEST_FA4] = {"fa4", STORAGE, PRODUCT, 0, 0, CUT},
    [HONEST_DP] = {"f32", NOWHERE, PRODUCT, 0, 0, PLAIN},
    [HONEST_FLUSHED] = {"fused-16", FLUSHED, PRODUCT, 0, 0, PLAIN},
    [HONEST_TF32] = {"tf32", NEAREST_TF32, PRODUCT, 0, 0, CUT},
    [HONEST_TF32_CUT] = {"tf32", CUT_TF32, PRODUCT, 0, 0, CUT},
};

/* One call.  Rows of one kv head: K, V; of the query heads that share it: q, o, dO, P and dS. */
struct work {
    const struct attn_problem *p;
    const int64_t *style;
    const struct arithmetic *own;
    int is_f64, half;           /* arithmetic; storage in 16 bits                              */
    double of_q, of_k, of_both; /* factors of q and k as they are read, and of their product   */
    int64_t group;              /* query heads of a kv head       */
    double *k, *v, *q, *o, *d_o, *probs, *dscores, *s, *w, *term, *slope, *other;
    int64_t *key;
};

/* ---- numbers -------------------------------------------------------------------------------- */

static double real(const struct work *x, double a)
{
    return x->is_f64 ? a : (double)(float)a;
}

double honest_round(double x, int bits, int least)
{
    int e;
    if (x == 0 || !isfinite(x))
        return x;
    frexp(x, &e); /* |x| in [2^(e-1), 2^e) */
    e = e - 1 > least ? e - 1 : least;
    return ldexp(rint(ldexp(x, bits - 1 - e)), e - bits + 1);
}

/* a truncated to bf16. */
static double cut(double a)
{
    return (double)attn_float_of_bits(attn_float_bits((float)a) & 0xffff0000u);
}

static double round_p(const struct work *x, double a)
{
    return x->style[HONEST_P] == HONEST_BF16  ? honest_round(a, 8, -126)
           : x->style[HONEST_P] == HONEST_CUT ? cut(a)
           : x->style[HONEST_P] == HONEST_F16 ? honest_round(a, 11, -14)
                                              : a;
}

static double least_normal(enum attn_dtype dtype)
{
    return dtype == ATTN_F16 ? 0x1p-14 : 0x1p-126;
}

/* a as it comes out of 16-bit storage again. */
static double stored(const struct work *x, enum half_store how, double a)
{
    int is_f16 = x->p->dtype == ATTN_F16;
    float f = (float)a, largest = is_f16 ? 65504 : 0x1.fep127f;
    if (!x->half)
        return a;
    if (how == HALF_TRUNCATE && isfinite(f)) /* seven bits of fraction, or ten */
        f = attn_float_of_bits(attn_float_bits(f) & (is_f16 ? 0xffffe000u : 0xffff0000u));
    f = is_f16 ? attn_f16_to_float(attn_f16_from_float(f))
               : attn_bf16_to_float(attn_bf16_from_float(f));
    if (how == HALF_FLUSH && fabs((double)f) < least_normal(x->p->dtype))
        return 0;
    return (double)(how == HALF_SATURATE && isinf(f) ? copysignf(largest, f) : f);
}

/* a of the arithmetic, rounded on the way. */
static double inner(const struct work *x, double a)
{
    return x->own->to == STORAGE        ? stored(x, HALF_NEAREST, a)
           : x->own->to == FLUSHED      ? stored(x, HALF_FLUSH, a)
           : x->own->to == NEAREST_TF32 ? honest_round(a, 11, -126)
           : x->own->to == CUT_TF32
               ? (double)attn_float_of_bits(attn_float_bits((float)a) & 0xffffe000u)
               : a;
}

/* The result of a step of a, stored where each step is. */
static double step(const struct work *x, double a)
{
    return x->own->steps ? inner(x, real(x, a)) : real(x, a);
}

/* Rows [0,rows) of a head, as they are given. */
static void read_rows(const struct work *x, const struct attn_cview *from, int64_t b, int64_t h,
                      int64_t rows, int64_t width, double *to)
{
    int drops = x->half && x->style[HALF_READ] == HALF_READ_NORMAL;
    double least = drops ? least_normal(from->dtype) : 0;
    for (int64_t n = 0; n < rows * width; n++) {
        double a = attn_cview_get(from, b, h, n / width, n % width);
        to[n] = fabs(a) < least ? 0 : a;
    }
}

/* The same as products take them, times a factor. */
static void load(const struct work *x, const struct attn_cview *from, int64_t b, int64_t h,
                 int64_t rows, int64_t width, double factor, double *to)
{
    read_rows(x, from, b, h, rows, width, to);
    for (int64_t n = 0; n < rows * width && x->own->to != NOWHERE; n++)
        to[n] = inner(x, real(x, to[n] * factor));
}

static void store(const struct work *x, const struct attn_view *to, int64_t b, int64_t h, int64_t i,
                  int64_t c, double a)
{
    int is_wide = to->dtype == ATTN_F32;
    attn_view_set(to, b, h, i, c,
                  is_wide ? a : stored(x, (enum half_store)x->style[HALF_STORE], a));
}

/* acc + term[0] + ... rounded to f16; or as tensor cores sum: addends are aligned to the largest
 * and cut there, and so is what they come to. */
static double sum_group(const struct work *x, double acc, const double *term, int64_t n)
{
    double largest = fabs(acc), sum = acc;
    int e;
    for (int64_t t = 0; t < n; t++)
        largest = fabs(term[t]) > largest ? fabs(term[t]) : largest;
    if (x->own->sums == IN_F16 || !(largest > 0) || !isfinite(largest)) {
        for (int64_t t = 0; t < n; t++)
            sum = real(x, sum + term[t]);
        return x->own->sums == IN_F16 ? (double)attn_f16_to_float(attn_f16_from_float((float)sum))
                                      : sum;
    }
    frexp(largest, &e);
    double unit = ldexp(1, e - 24 > -149 ? e - 24 : -149);
    sum = trunc(acc / unit);
    for (int64_t t = 0; t < n; t++)
        sum += trunc(term[t] / unit);
    frexp(sum, &e);
    double coarse = e > 24 ? ldexp(1, e - 24) : 1;
    return trunc(sum / coarse) * coarse * unit;
}

enum { GROUP = 8 }; /* products that tensor cores sum at once */

static double dot(const struct work *x, const double *a, const double *b, int64_t n)
{
    double sum = 0, term[GROUP];
    for (int64_t c = 0; c < n && x->own->sums == PLAIN; c++)
        sum = real(x, sum + a[c] * b[c]);
    for (int64_t c = 0; c < n && x->own->sums != PLAIN; c += GROUP) {
        int64_t m = n - c < GROUP ? n - c : GROUP;
        for (int64_t t = 0; t < m; t++)
            term[t] = a[c + t] * b[c + t];
        sum = sum_group(x, sum, term, m);
    }
    return sum;
}

/* The sum of n terms in the order of the style. */
static double total(const struct work *x, const double *a, int64_t n)
{
    double sum = 0;
    float narrow = 0; /* the same sum in f32, which has no conversions between its steps */
    for (int64_t t = 0; t < n && x->own->sums != PLAIN; t += GROUP)
        sum = sum_group(x, sum, a + t, n - t < GROUP ? n - t : GROUP);
    if (x->own->sums != PLAIN)
        return sum;
    if (x->style[HONEST_ORDER] == HONEST_PAIRWISE && n > 1)
        return real(x, total(x, a, n / 2) + total(x, a + n / 2, n - n / 2));
    int64_t step = x->style[HONEST_ORDER] == HONEST_REVERSE ? -1 : 1, at = step < 0 ? n - 1 : 0;
    for (int64_t t = 0; t < n && x->is_f64; t++, at += step)
        sum += a[at];
    for (int64_t t = 0; t < n && !x->is_f64; t++, at += step)
        narrow += (float)a[at];
    return x->is_f64 ? sum : (double)narrow;
}

/* ---- a pair --------------------------------------------------------------------------------- */

static int is_base_2(const struct work *x)
{
    return x->style[HONEST_EXP] == HONEST_TWO;
}

/* The score, in units of log 2 where the style says so; *slope = d score / d (scale q.k). */
static double score(const struct work *x, int64_t b, int64_t h, int64_t i, int64_t j, double qk,
                    double *slope)
{
    const struct attn_problem *p = x->p;
    double unit = is_base_2(x) ? log2_e : 1;
    double s = step(x, real(x, x->of_both * unit) * step(x, qk));
    *slope = 1;
    if (p->softcap > 0) {
        double raw = step(x, real(x, x->of_both) * step(x, qk));
        double t = step(x, tanh(step(x, raw / real(x, p->softcap))));
        s = step(x, real(x, p->softcap * unit) * t);
        *slope = real(x, 1 - real(x, t * t));
    }
    if (p->bias.kind != ATTN_BIAS_NONE)
        s = step(x, s + step(x, attn_problem_bias(p, b, h, i, j) * unit));
    return s;
}

/* The cubic of FlashAttention-4: 8.8e-5 from 2^a, in fused multiply-adds. */
static double cubic(double a)
{
    float x = (float)a, whole = floorf(x), f = x - whole;
    return ldexp((double)fmaf(f, fmaf(f, fmaf(f, 0.077119089f, 0.227564394f), 0.695146144f), 1.0f),
                 (int)fmaxf(whole, -1000));
}

static int is_fa4(const struct work *x)
{
    return x->own == &arithmetics[HONEST_FA4];
}

static double exponential(const struct work *x, double a)
{
    if (is_fa4(x) && isfinite(a))
        return real(x, cubic(is_base_2(x) ? a : real(x, a * real(x, log2_e))));
    return real(x, is_base_2(x) ? exp2(a) : exp(a));
}

static int64_t visible_keys(const struct attn_problem *p, int64_t b, int64_t h, int64_t i,
                            int64_t *key)
{
    int64_t n = 0;
    struct attn_run run = {0, 0};
    while (attn_problem_next(p, b, h, i, &run))
        for (int64_t j = run.lo; j < run.hi; j++)
            key[n++] = j;
    return n;
}

/* ---- forward -------------------------------------------------------------------------------- */

/* O and LSE of row (b,h,i), r of its group, over key[0,n). */
static double part(const struct work *x, int64_t b, int64_t h, int64_t i, int64_t r,
                   const int64_t *key, int64_t n, double *o)
{
    const struct attn_problem *p = x->p;
    double m = minus_inf, unused;
    for (int64_t e = 0; e < n; e++) {
        double qk = dot(x, x->q + r * p->d_key, x->k + key[e] * p->d_key, p->d_key);
        x->s[e] = score(x, b, h, i, key[e], qk, &unused);
        if (x->s[e] > m + (is_fa4(x) ? 8 / (is_base_2(x) ? 1 : log2_e) : 0) || isnan(x->s[e]))
            m = x->s[e];
    }
    for (int64_t c = 0; c < p->d_value; c++)
        o[c] = 0;
    if (m == minus_inf)
        return m;
    for (int64_t e = 0; e < n; e++)
        x->w[e] = exponential(x, real(x, x->s[e] - m));
    double l = total(x, x->w, n);
    for (int64_t e = 0; e < n; e++) { /* the scores have done their work */
        x->s[e] = round_p(x, x->own->after ? real(x, x->w[e] / l) : x->w[e]);
        if (x->own->to != NOWHERE)
            x->s[e] = inner(x, x->s[e]);
    }
    for (int64_t c = 0; c < p->d_value; c++) {
        for (int64_t e = 0; e < n; e++) {
            x->term[e] = x->w[e] != 0 ? real(x, x->s[e] * x->v[key[e] * p->d_value + c]) : 0;
            if (x->style[HONEST_P] == HONEST_PRODUCTS)
                x->term[e] = cut(x->term[e]);
        }
        o[c] = real(x, total(x, x->term, n) / (x->own->after ? 1 : l));
    }
    if (is_base_2(x))
        return real(x, real(x, m + real(x, log2(l))) * real(x, ln_2));
    return real(x, m + real(x, log(l)));
}

/* (o, lse) of more keys into (o, *lse). */
static void merge(const struct work *x, double *o, double *lse, const double *other, double lse2)
{
    double max = *lse > lse2 ? *lse : lse2, sum;
    if (lse2 == minus_inf)
        return;
    double a = real(x, exp(real(x, *lse - max))), b = real(x, exp(real(x, lse2 - max)));
    sum = real(x, a + b);
    for (int64_t c = 0; c < x->p->d_value; c++)
        o[c] = real(x, real(x, real(x, a * o[c]) + real(x, b * other[c])) / sum);
    *lse = real(x, max + real(x, log(sum)));
}

static void forward_row(const struct work *x, const struct attn_forward *t, int64_t b, int64_t h,
                        int64_t i, int64_t r)
{
    const struct attn_problem *p = x->p;
    int in_storage = x->half && x->style[HALF_SUM] == HALF_SUM_STORAGE;
    int64_t splits = in_storage ? (p->n_key + PIECE - 1) / PIECE : x->style[HONEST_SPLITS];
    int64_t n = visible_keys(p, b, h, i, x->key), first = 0;
    double *o = x->o + r * p->d_value, lse = minus_inf;
    for (int64_t c = 0; c < p->d_value; c++)
        o[c] = 0;
    for (int64_t s = 0; s < splits; s++) {
        int64_t end = first, until = in_storage ? (s + 1) * PIECE : (s + 1) * p->n_key / splits;
        while (end < n && x->key[end] < until)
            end++;
        double *to = s == 0 ? o : x->other;
        double lse2 = part(x, b, h, i, r, x->key + first, end - first, to);
        for (int64_t c = 0; c < p->d_value && x->style[HALF_SUM] == HALF_SUM_SPLITS; c++)
            to[c] = stored(x, HALF_NEAREST, to[c]);
        if (s == 0)
            lse = lse2;
        else
            merge(x, o, &lse, x->other, lse2);
        for (int64_t c = 0; c < p->d_value && in_storage; c++)
            o[c] = stored(x, HALF_NEAREST, o[c]);
        for (int64_t c = 0; c < p->d_value && s > 0 && x->style[HALF_SUM] == HALF_SUM_BF16; c++)
            o[c] = honest_round(o[c], 8, -126);
        first = end;
    }
    for (int64_t c = 0; c < p->d_value; c++)
        store(x, &t->o, b, h, i, c, o[c]);
    attn_view_set(&t->lse, b, h, i, 0, lse);
}

/* ---- backward ------------------------------------------------------------------------------- */

/* dS with respect to the product, from that to the score: each step stored, or all at once. */
static double through(const struct work *x, double ds, double slope)
{
    double c = x->p->softcap;
    if (!x->own->steps)
        return real(x, ds * slope); /* no probability: in f16 it would need a loss scale */
    ds = inner(x, ds);
    if (c > 0)
        ds = step(x, step(x, step(x, ds * real(x, c)) * slope) / real(x, c));
    return step(x, ds * real(x, x->of_both));
}

/* P and dS of one row, at the columns of the visible keys; 0 elsewhere. */
static void row_backward(const struct work *x, const struct attn_backward *t, int64_t b, int64_t h,
                         int64_t i, int64_t r)
{
    const struct attn_problem *p = x->p;
    int64_t n = visible_keys(p, b, h, i, x->key), d = p->d_key, dv = p->d_value;
    double *P = x->probs + r * p->n_key, *dS = x->dscores + r * p->n_key, *dP = x->w;
    const double *q = x->q + r * d, *d_o = x->d_o + r * dv;
    double lse = attn_cview_get(&t->lse, b, h, i, 0), unit = is_base_2(x) ? log2_e : 1;
    for (int64_t j = 0; j < p->n_key; j++)
        P[j] = dS[j] = 0;
    if (lse == minus_inf)
        return;
    lse = real(x, real(x, lse) * real(x, unit));
    for (int64_t e = 0; e < n; e++) {
        int64_t j = x->key[e];
        double s = score(x, b, h, i, j, dot(x, q, x->k + j * d, d), &x->slope[e]);
        P[j] = s == minus_inf ? 0 : step(x, exponential(x, real(x, s - lse)));
        dP[e] = step(x, dot(x, d_o, x->v + j * dv, dv));
        if (x->own == &arithmetics[HONEST_DP])
            dP[e] = stored(x, HALF_NEAREST, dP[e]);
        x->term[e] = real(x, P[j] * dP[e]);
    }
    for (int64_t c = 0; c < dv; c++) /* as it is given */
        x->other[c] = attn_cview_get(&t->d_o, b, h, i, c);
    double D = x->style[HONEST_DELTA] == HONEST_SUM ? total(x, x->term, n)
                                                    : dot(x, x->other, x->o + r * dv, dv);
    if (t->d_lse.data != NULL)
        D = real(x, D - attn_cview_get(&t->d_lse, b, h, i, 0));
    for (int64_t e = 0; e < n; e++) {
        int64_t j = x->key[e];
        double ds = real(x, P[j] * real(x, dP[e] - D));
        if (t->dbias.data != NULL)
            attn_view_add(&t->dbias, b, h, i, j, x->own->steps ? inner(x, ds) : ds);
        ds = through(x, ds, x->slope[e]);
        dS[j] = inner(x, x->style[HONEST_P] == HONEST_BF16 ? round_p(x, ds) : ds);
        P[j] = inner(x, round_p(x, P[j]));
    }
}

/* dQ of one row: a sum over its keys. */
static void query_backward(const struct work *x, const struct attn_backward *t, int64_t b,
                           int64_t h, int64_t i, int64_t r)
{
    const struct attn_problem *p = x->p;
    const double *dS = x->dscores + r * p->n_key;
    for (int64_t c = 0; c < p->d_key; c++) {
        for (int64_t j = 0; j < p->n_key; j++)
            x->term[j] = dS[j] != 0 ? real(x, dS[j] * x->k[j * p->d_key + c]) : 0;
        double sum = step(x, total(x, x->term, p->n_key));
        double factor = x->of_q * (x->own->steps ? 1 : x->of_both);
        store(x, &t->dq, b, h, i, c, real(x, real(x, factor) * sum));
    }
}

/* A gradient of one key: sums over the rows of its group of weight times row; in storage, after
 * each head, where partial sums are, or those of each head. */
static void key_backward(const struct work *x, const struct attn_view *to, int64_t b, int64_t g,
                         int64_t j, const double *weight, const double *rows, int64_t width,
                         double scale)
{
    int in_storage = x->half && x->style[HALF_SUM] == HALF_SUM_STORAGE;
    int by_head = in_storage || x->own->steps;
    int64_t n_rows = x->group * x->p->n_query, piece = by_head ? x->p->n_query : n_rows;
    for (int64_t c = 0; c < width; c++) {
        double sum = 0;
        for (int64_t first = 0; first < n_rows; first += piece) {
            for (int64_t r = first; r < first + piece; r++) {
                double w = weight[r * x->p->n_key + j];
                x->term[r - first] = w != 0 ? real(x, w * rows[r * width + c]) : 0;
            }
            double part = step(x, total(x, x->term, piece));
            sum = real(x, sum + step(x, real(x, scale) * part));
            sum = in_storage ? stored(x, HALF_NEAREST, sum) : sum;
        }
        store(x, to, b, g, j, c, sum);
    }
}

/* ---- the record ----------------------------------------------------------------------------- */

/* Lay out the buffers from `at` on (NULL: only count); returns how many numbers there are. */
static int64_t lay_out(const struct attn_problem *p, enum attn_pass pass, struct work *x,
                       double *at)
{
    int64_t n = p->n_key, d = p->d_key, dv = p->d_value;
    int64_t rows = p->kv_heads > 0 ? p->heads / p->kv_heads * p->n_query : 0;
    int64_t terms = n > rows ? n : rows, pairs = pass == ATTN_BACKWARD ? rows * n : 0;
    struct {
        double **to;
        int64_t n;
    } list[] = {{&x->k, n * d},       {&x->v, n * dv},    {&x->q, rows * d},    {&x->o, rows * dv},
                {&x->d_o, rows * dv}, {&x->probs, pairs}, {&x->dscores, pairs}, {&x->s, n},
                {&x->w, n},           {&x->slope, n},     {&x->term, terms},    {&x->other, dv}};
    int64_t used = 0;
    for (size_t e = 0; e < sizeof list / sizeof *list; e++) {
        *list[e].to = at != NULL ? at + used : NULL;
        used += list[e].n;
    }
    return used;
}

static enum attn_status cost(const struct attn_problem *p, const struct attn_options *opt,
                             enum attn_pass pass, int rank, struct attn_cost *cost,
                             struct attn_error *err)
{
    struct work unused;
    (void)opt, (void)rank;
    enum attn_status status = attn_cost_add(cost, "rows", 1, lay_out(p, pass, &unused, NULL),
                                            (int64_t)sizeof(double), err);
    return status == ATTN_OK
               ? attn_cost_add(cost, "keys", 1, p->n_key, (int64_t)sizeof(int64_t), err)
               : status;
}

static void set_factors(struct work *x)
{
    double scale = x->p->scale, root = sqrt(fabs(scale));
    enum scaled scaled = x->own->scaled;
    x->of_q = scaled == ONE ? scale : scaled == BOTH ? copysign(root, scale) : 1;
    x->of_k = scaled == BOTH ? root : 1;
    x->of_both = scaled == PRODUCT ? scale : 1;
}

/* f or g: the pass. */
static enum attn_status run(struct attn_ctx *ctx, const struct attn_problem *p,
                            const struct attn_forward *f, const struct attn_backward *g)
{
    const struct attn_cview *q = f != NULL ? &f->q : &g->q, *k = f != NULL ? &f->k : &g->k;
    const struct attn_cview *v = f != NULL ? &f->v : &g->v;
    enum attn_pass pass = f != NULL ? ATTN_FORWARD : ATTN_BACKWARD;
    struct work x = {.p = p, .style = ctx->options->value, .is_f64 = p->dtype == ATTN_F64};
    x.own = &arithmetics[x.style[HONEST_ARITHMETIC]];
    int64_t n = lay_out(p, pass, &x, NULL), d = p->d_key, dv = p->d_value, Lq = p->n_query;
    double *rows = attn_ledger_take(ctx->ledger, "rows", n, (int64_t)sizeof(double), ctx->error);
    x.key = attn_ledger_take(ctx->ledger, "keys", p->n_key, (int64_t)sizeof *x.key, ctx->error);
    x.half = p->dtype == ATTN_BF16 || p->dtype == ATTN_F16;
    x.group = p->kv_heads > 0 ? p->heads / p->kv_heads : 0;
    set_factors(&x);
    lay_out(p, pass, &x, rows);
    int ok = rows != NULL && x.key != NULL;
    for (int64_t bg = 0; bg < p->batch * p->kv_heads && ok; bg++) {
        int64_t b = bg / p->kv_heads, kv = bg % p->kv_heads, h0 = kv * x.group;
        load(&x, k, b, kv, p->n_key, d, x.of_k, x.k);
        load(&x, v, b, kv, p->n_key, dv, 1, x.v);
        for (int64_t r = 0; r<x.group * Lq; r += Lq> 0 ? Lq : 1) {
            load(&x, q, b, h0 + r / Lq, Lq, d, x.of_q, x.q + r * d);
            if (g != NULL) {
                read_rows(&x, &g->o, b, h0 + r / Lq, Lq, dv, x.o + r * dv);
                load(&x, &g->d_o, b, h0 + r / Lq, Lq, dv, 1, x.d_o + r * dv);
            }
        }
        for (int64_t r = 0; r < x.group * Lq; r++) {
            if (f != NULL) {
                forward_row(&x, f, b, h0 + r / Lq, r % Lq, r);
                continue;
            }
            row_backward(&x, g, b, h0 + r / Lq, r % Lq, r);
            query_backward(&x, g, b, h0 + r / Lq, r % Lq, r);
        }
        for (int64_t j = 0; j < p->n_key && g != NULL; j++) {
            key_backward(&x, &g->dk, b, kv, j, x.dscores, x.q, d,
                         x.of_k * (x.own->steps ? 1 : x.of_both));
            key_backward(&x, &g->dv, b, kv, j, x.probs, x.d_o, dv, 1);
        }
    }
    attn_ledger_give(ctx->ledger, x.key);
    attn_ledger_give(ctx->ledger, rows);
    return ok ? ATTN_OK : ATTN_ENOMEM;
}

static enum attn_status forward(struct attn_ctx *ctx, const struct attn_problem *p,
                                const struct attn_forward *t)
{
    return run(ctx, p, t, NULL);
}

static enum attn_status backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                 const struct attn_backward *t)
{
    attn_dbias_clear(p, &t->dbias);
    return run(ctx, p, NULL, t);
}

static int64_t merges(const struct attn_problem *p, const struct attn_options *opt)
{
    (void)p;
    return opt->value[HONEST_SPLITS] - 1;
}

/* The unit roundoff of the type that P is rounded to. */
static void precision(const struct attn_problem *p, const struct attn_options *opt,
                      struct attn_precision *x)
{
    int set = attn_arithmetic_find(arithmetics[opt->value[HONEST_ARITHMETIC]].word);
    attn_arithmetic_declare(set, p, x);
    if (opt->value[HONEST_ARITHMETIC] == HONEST_F16_SUMS)
        x->u_sum = 0x1p-11;
    if (opt->value[HONEST_ARITHMETIC] == HONEST_DP)
        x->u_dp = attn_dtype_roundoff(p->dtype);
    if (opt->value[HONEST_ARITHMETIC] == HONEST_FLUSHED) {
        attn_precision_complete(p, x);
        attn_precision_flush(p, x);
        attn_precision_flush_16(p, x);
    }
    if (set > 0) /* which is all that is declared, whatever else is done */
        return;
    if (opt->value[HONEST_P] == HONEST_BF16 || opt->value[HALF_SUM] == HALF_SUM_BF16)
        x->u_p = 0x1p-8;
    else if (opt->value[HONEST_P] == HONEST_CUT || opt->value[HONEST_P] == HONEST_PRODUCTS)
        x->u_p = 0x1p-7; /* cutting loses twice as much */
    else if (opt->value[HONEST_P] == HONEST_F16)
        x->u_p = 0x1p-11, x->u_ds = x->u;
}

#define VARIANT(text, lacks)                                                                      \
    {                                                                                             \
        .name = text, .summary = "right, in many orders and precisions: for the tests",           \
        .family = "test", .caps = ATTN_CAPS_ALL & ~(lacks), .options = options, .merges = merges, \
        .precision = precision, .cost = cost, .forward = forward, .backward = backward            \
    }
const struct attn_impl variant_honest = VARIANT("honest", ATTN_CAP_BF16 | ATTN_CAP_F16);
const struct attn_impl variant_half = VARIANT("half", ATTN_CAP_F64 | ATTN_CAP_F32);

struct attn_spec honest_spec(enum honest_arithmetic n)
{
    int is_tf32 = n == HONEST_TF32 || n == HONEST_TF32_CUT;
    struct attn_spec spec = {.impl = is_tf32 ? &variant_honest : &variant_half};
    attn_options_preset(spec.impl, &spec.options);
    spec.options.value[HONEST_ARITHMETIC] = n;
    if (n == HONEST_FLUSHED) {
        spec.options.value[HALF_STORE] = HALF_FLUSH;
        spec.options.value[HALF_READ] = HALF_READ_NORMAL;
    }
    spec.options.value[HONEST_DELTA] = arithmetics[n].after ? HONEST_SUM : HONEST_DOT;
    return spec;
}
