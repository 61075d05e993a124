/* See layer_bound.h.  u is the roundoff, gamma(n) = n u / (1 - n u): a sum of n products has an
 * error of at most gamma(n) times the sum of their magnitudes, in any order, so for any number of
 * ranks that add up their parts (Higham 2002, section 3.1).  Capital letters bound a magnitude, e_
 * an error; a magnitude with its error is written Q + e_q.
 *
 *      q k v     Q = max |row of x|_2 max |column of W|_2              e_q = gamma(C) Q
 *      s         S = scale d Q^2                 e_s = scale d (2 e_q Q + gamma(d + 2) Q^2)
 *      P         P (1 + t), |t| <= expm1(2 e_s + u (4 S + R (2 S + 32) + 2 L + 64)): exp within 16
 *                u of its argument's exp, R = 2 L rescales and merges, a sum of L, a division
 *      o         O = Q, because weights sum to 1     e_o = Q t + e_q + gamma(L) Q
 *      dO        F = max |row of dy|_2 max |row of Wo|_2               e_f = gamma(C) F
 *      dP, D     A = dv F Q                          e_a = dv (e_f Q + F e_o) + gamma(dv + 2) A
 *      dS        sum_j |dS_ij| <= 2 A   sum_j of errors: e_r = 2 A (t + 3 u) + 2 e_a (1 + t)
 *      dq        scale 2 A Q            scale (e_r Q + 2 A e_q + gamma(L + 2) 2 A Q)
 *      dk        n times that, n = L H / G: a key may have all the weight of n queries
 *      dv        n F                                 n (t F + e_f + gamma(n) F)
 *      y, dx, dW sums of these with numbers of W, of x or of dy whose magnitudes add up to s:
 *                s (e + gamma(terms + 4) (magnitude + e))
 */
#include "tests/harness/bound/layer_bound.h"

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

/* A magnitude and its error. */
struct sized {
    double most, error;
};

static double gamma_of(double n, double u)
{
    return n * u < 1 ? n * u / (1 - n * u) : HUGE_VAL;
}

/* A sum of n products of a and b. */
static struct sized sum_of(double n, struct sized a, struct sized b, double u)
{
    double most = n * (a.most + a.error) * (b.most + b.error);
    return (struct sized){most, n * (a.error * (b.most + b.error) + a.most * b.error) +
                                    gamma_of(n + 4, u) * most};
}

/* The largest |.|_2 and |.|_1 of n vectors of `length` numbers. */
struct norms {
    double row, sum;
};
static struct norms norms_of(const void *data, enum attn_dtype dtype, int64_t n, int64_t step,
                             int64_t length, int64_t stride)
{
    struct norms x = {0, 0};
    struct attn_cview view = {data, dtype, {0, 0, step, stride}};
    for (int64_t i = 0; i < n; i++) {
        double sum = 0, squares = 0;
        for (int64_t c = 0; c < length; c++) {
            double a = fabs(attn_cview_get(&view, 0, 0, i, c));
            squares += a * a;
            sum += a;
        }
        x.row = fmax(x.row, sqrt(squares));
        x.sum = fmax(x.sum, sum);
    }
    x.row *= 1 + 1e-9; /* errors of these sums themselves */
    x.sum *= 1 + 1e-9;
    return x;
}

/* Of n products with numbers whose magnitudes add up to `sum` at most. */
static double error_of(double sum, double n, struct sized a, double u)
{
    return sum * (a.error + gamma_of(n + 4, u) * (a.most + a.error));
}

static struct sized product_of_rows(double a, double b, double n, double u)
{
    return (struct sized){a * b, gamma_of(n, u) * a * b};
}

static struct sized either(struct sized a, struct sized b)
{
    return (struct sized){fmax(a.most, b.most), fmax(a.error, b.error)};
}

struct attn_layer_bound attn_layer_bound(const struct attn_layer *layer, const void *x,
                                         const void *wqkv, const void *wo, const void *dy)
{
    const double u = attn_dtype_roundoff(layer->dtype), C = (double)layer->hidden;
    const double L = (double)layer->length, N = (double)layer->batch * L;
    const double d = (double)layer->d_key, dv = (double)layer->d_value, H = (double)layer->heads;
    const double G = (double)layer->kv_heads, n = G > 0 ? L * H / G : 0;
    const double scale = fabs(layer->scale);
    int64_t rows = layer->batch * layer->length, c = layer->hidden;
    int64_t columns = attn_layer_columns(layer), o_rows = layer->heads * layer->d_value;
    struct norms of_x = norms_of(x, layer->dtype, rows, c, c, 1);
    struct norms of_w = norms_of(wqkv, layer->dtype, columns, 1, c, columns);
    struct norms of_wo = norms_of(wo, layer->dtype, o_rows, c, c, 1);
    struct attn_layer_bound bound = {{0}};

    struct sized q = product_of_rows(of_x.row, of_w.row, C, u);
    struct sized s = sum_of(d + 2, q, q, u);
    double S = scale * s.most, R = 2 * L;
    double t = expm1(2 * scale * s.error + u * (4 * S + R * (2 * S + 32) + 2 * L + 64));
    struct sized o = {q.most, (q.most + q.error) * (t + gamma_of(L, u)) + q.error};
    struct norms by_wo = norms_of(wo, layer->dtype, c, 1, o_rows, c);
    bound.at[ATTN_LAYER_Y] = error_of(by_wo.sum, H * dv, o, u);
    if (dy == NULL)
        return bound;

    struct norms of_dy = norms_of(dy, layer->dtype, rows, c, c, 1);
    struct sized f = product_of_rows(of_dy.row, of_wo.row, C, u);
    struct sized a = sum_of(dv + 2, f, o, u); /* dP = dO . v, and D = dO . O */
    struct sized ds = {2 * a.most, 2 * a.most * (t + 3 * u) + 2 * a.error * (1 + t)};
    double terms = fmax(L, 1);
    struct sized dq = {scale * ds.most * (q.most + q.error),
                       scale * (ds.error * (q.most + q.error) + ds.most * q.error +
                                gamma_of(terms + 2, u) * ds.most * (q.most + q.error))};
    struct sized dk = {n * dq.most, n * (dq.error + gamma_of(n + 2, u) * dq.most)};
    struct sized dvalue = {n * f.most, n * ((f.most + f.error) * (t + gamma_of(n, u)) + f.error)};
    struct sized dqkv = either(dq, either(dk, dvalue));
    struct norms by_w = norms_of(wqkv, layer->dtype, c, columns, columns, 1);
    struct norms by_x = norms_of(x, layer->dtype, c, 1, rows, c);
    struct norms by_dy = norms_of(dy, layer->dtype, c, 1, rows, c);
    bound.at[ATTN_LAYER_DX] = error_of(by_w.sum, (double)columns, dqkv, u);
    bound.at[ATTN_LAYER_DWQKV] = error_of(by_x.sum, N, dqkv, u);
    bound.at[ATTN_LAYER_DWO] = error_of(by_dy.sum, N, o, u);
    return bound;
}
