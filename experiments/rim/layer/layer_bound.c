/* See layer_bound.h.  u is the roundoff, gamma(n) = n u / (1 - n u): a sum of n products has an
 * error of at most gamma(n) times the sum of their magnitudes, in any order, so for any number of
 * ranks that add up their parts (Higham 2002, section 3.1).  A capital letter is the largest 2-norm
 * of one head's vector of a token, e_ that of its error; norms of products are at most products of
 * norms (Cauchy-Schwarz), and those of q, k, v and dO are taken from the data.
 *
 *      q k v dO  Q K V F: norms of x W and of dy Wo', worked out
 *                e_q = sqrt(d) gamma(C) max |row of x|_2 max |column of W|_2, and so on
 *      s         S = scale Q K         e_s = scale (e_q K + Q e_k + gamma(d + 2) Q K)
 *      P         P (1 + t), |t| <= expm1(2 e_s + u (4 S + R (2 S + 32) + 2 L + 64)): exp within 16
 *                u of its argument's exp, R = 2 L rescales and merges, a sum of L, a division
 *      o         O = V, because weights sum to 1     e_o = V t + e_v + gamma(L) V
 *      dP, D     A = F V                          e_a = e_f V + F e_o + gamma(dv + 2) A
 *      dS        sum_j |dS_ij| <= 2 A   sum_j of errors: e_r = 2 A (t + 3 u) + 2 e_a (1 + t)
 *      dq        scale 2 A K            scale (e_r K + 2 A e_k + gamma(L + 2) 2 A K)
 *      dk        n times that with Q, n = L H / G: a key may have all the weight of n queries
 *      dv        n F                                 n (t F + e_f + gamma(n) F)
 *      y, dx     sums over heads with rows of W, whose norms over heads add up to s:
 *                s (e + gamma(terms + 4) (norm + e))
 *      dW        the same with numbers of x or dy whose magnitudes add up to s
 */
#include "experiments/rim/layer/layer_bound.h"

#include <math.h>

const char *const attn_layer_result_name[ATTN_LAYER_RESULTS] = {"y", "dx", "dwqkv", "dwo"};

int64_t attn_layer_result_count(const struct attn_layer *layer, int result)
{
    int64_t tokens = layer->batch * layer->length;
    switch (result) {
    case ATTN_LAYER_DWQKV:
        return layer->hidden * attn_layer_columns(layer);
    case ATTN_LAYER_DWO:
        return layer->heads * layer->d_value * layer->hidden;
    default:
        return tokens * layer->hidden;
    }
}

/* A norm and that of its error. */
struct sized {
    double most, error;
};

static double gamma_of(double n, double u)
{
    return n * u < 1 ? n * u / (1 - n * u) : HUGE_VAL;
}

static double with_error(struct sized x)
{
    return x.most + x.error;
}

/* A sum of n products, of one vector with another. */
static struct sized product_of(double n, struct sized a, struct sized b, double u)
{
    double most = with_error(a) * with_error(b);
    return (struct sized){most, a.error * with_error(b) + a.most * b.error + gamma_of(n, u) * most};
}

/* ---- of data --------------------------------------------------------------------------------- */

/* Vectors of numbers, `step` from one to the next. */
struct vectors {
    const void *data;
    enum attn_dtype dtype;
    int64_t n, step, length, stride;
};

static double number(const struct vectors *x, int64_t i, int64_t c)
{
    struct attn_cview view = {x->data, x->dtype, {0, 0, x->step, x->stride}};
    return attn_cview_get(&view, 0, 0, i, c);
}

/* Norms are worked out in float64, whose errors this outweighs. */
static const double ROUND_UP = 1 + 1e-9;

/* The largest sum, over the blocks of a vector, of their 2-norms; blocks of 1: its 1-norm. */
static double blocks_of(const struct vectors *x, int64_t first, int64_t blocks, int64_t width)
{
    double most = 0;
    for (int64_t i = 0; i < x->n; i++) {
        double sum = 0;
        for (int64_t b = 0; b < blocks; b++) {
            double squares = 0;
            for (int64_t c = first + b * width; c < first + (b + 1) * width; c++)
                squares += number(x, i, c) * number(x, i, c);
            sum += sqrt(squares);
        }
        most = fmax(most, sum);
    }
    return most * ROUND_UP;
}

static double row_of(const struct vectors *x)
{
    return blocks_of(x, 0, 1, x->length);
}

/* Of products of each vector with `width` weights from `first` on, head after head. */
static struct sized heads_of(const struct vectors *x, const struct vectors *weights, int64_t first,
                             int64_t heads, int64_t width, double u)
{
    double most = 0, C = (double)x->length;
    for (int64_t i = 0; i < x->n; i++)
        for (int64_t h = 0; h < heads; h++) {
            double squares = 0;
            for (int64_t w = first + h * width; w < first + (h + 1) * width; w++) {
                double sum = 0;
                for (int64_t c = 0; c < x->length; c++)
                    sum += number(x, i, c) * number(weights, w, c);
                squares += sum * sum;
            }
            most = fmax(most, sqrt(squares));
        }
    double error = sqrt((double)width) * gamma_of(C, u) * row_of(x) * row_of(weights);
    return (struct sized){most * ROUND_UP + error, error};
}

/* ---- of results ------------------------------------------------------------------------------ */

/* Of n products in all, with vectors or numbers whose norms add up to `sum` at most. */
static double error_of(double sum, double n, struct sized a, double u)
{
    return sum * (a.error + gamma_of(n + 4, u) * with_error(a));
}

/* A sum of dS times a vector: q or k. */
static struct sized gradient(double scale, struct sized ds, struct sized x, double terms, double u)
{
    double most = scale * with_error(ds) * with_error(x);
    return (struct sized){most, scale * (ds.error * with_error(x) + ds.most * x.error) +
                                    gamma_of(terms + 2, u) * most};
}

static struct sized times(double n, struct sized x)
{
    return (struct sized){n * x.most, n * x.error};
}

static struct sized either(struct sized a, struct sized b)
{
    return (struct sized){fmax(a.most, b.most), fmax(a.error, b.error)};
}

struct attn_layer_bound attn_layer_bound(const struct attn_layer *layer, const void *x,
                                         const void *wqkv, const void *wo, const void *dy)
{
    const double u = attn_dtype_roundoff(layer->dtype), L = (double)layer->length;
    const double N = (double)layer->batch * L, scale = fabs(layer->scale);
    const int64_t H = layer->heads, G = layer->kv_heads, d = layer->d_key, dv = layer->d_value;
    const int64_t rows = layer->batch * layer->length, c = layer->hidden, o_rows = H * dv;
    const int64_t columns = attn_layer_columns(layer), at_k = H * d, at_v = (H + G) * d;
    const double n = G > 0 ? L * (double)H / (double)G : 0;
    const enum attn_dtype dtype = layer->dtype;
    const struct vectors of_x = {x, dtype, rows, c, c, 1}, of_dy = {dy, dtype, rows, c, c, 1};
    const struct vectors x_columns = {x, dtype, c, 1, rows, c},
                         dy_columns = {dy, dtype, c, 1, rows, c};
    const struct vectors w_rows = {wqkv, dtype, c, columns, columns, 1};
    const struct vectors w_columns = {wqkv, dtype, columns, 1, c, columns};
    const struct vectors wo_rows = {wo, dtype, o_rows, c, c, 1},
                         wo_columns = {wo, dtype, c, 1, o_rows, c};
    struct attn_layer_bound bound = {{0}};

    struct sized q = heads_of(&of_x, &w_columns, 0, H, d, u);
    struct sized k = heads_of(&of_x, &w_columns, at_k, G, d, u);
    struct sized v = heads_of(&of_x, &w_columns, at_v, G, dv, u);
    struct sized s = times(scale, product_of((double)d + 2, q, k, u));
    double S = s.most, R = 2 * L;
    double t = expm1(2 * s.error + u * (4 * S + R * (2 * S + 32) + 2 * L + 64));
    struct sized o = {v.most, with_error(v) * (t + gamma_of(L, u)) + v.error};
    bound.at[ATTN_LAYER_Y] = error_of(blocks_of(&wo_columns, 0, H, dv), (double)o_rows, o, u);
    if (dy == NULL)
        return bound;

    struct sized f = heads_of(&of_dy, &wo_rows, 0, H, dv, u);
    struct sized a = product_of((double)dv + 2, f, o, u); /* dP = dO . v, and D = dO . O */
    struct sized ds = {2 * a.most, 2 * a.most * (t + 3 * u) + 2 * a.error * (1 + t)};
    struct sized dq = gradient(scale, ds, k, fmax(L, 1), u);
    struct sized dk = times(n, gradient(scale, ds, q, fmax(n, 1), u));
    struct sized dvalue = {n * f.most, n * (with_error(f) * (t + gamma_of(n, u)) + f.error)};
    double terms = (double)columns;
    bound.at[ATTN_LAYER_DX] = error_of(blocks_of(&w_rows, 0, H, d), terms, dq, u) +
                              error_of(blocks_of(&w_rows, at_k, G, d), terms, dk, u) +
                              error_of(blocks_of(&w_rows, at_v, G, dv), terms, dvalue, u);
    bound.at[ATTN_LAYER_DWQKV] =
        error_of(blocks_of(&x_columns, 0, rows, 1), N, either(dq, either(dk, dvalue)), u);
    bound.at[ATTN_LAYER_DWO] = error_of(blocks_of(&dy_columns, 0, rows, 1), N, o, u);
    return bound;
}
