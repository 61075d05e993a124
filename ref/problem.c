/* The problem: what is legal, what it asks for, and its elements, one at a time. */
#include "ref/problem.h"
#include "ref/half.h"
#include "ref/impl.h"

#include <float.h>
#include <math.h>
#include <string.h>

int64_t attn_product(int64_t a, int64_t b)
{
    int64_t product;
    if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product))
        return -1;
    return product;
}

/* a * b * c * d must fit 63 bits with room for a size in bytes. */
static int extents_fit(int64_t a, int64_t b, int64_t c, int64_t d)
{
    int64_t n = attn_product(attn_product(a, b), attn_product(c, d));
    return attn_product(n, 8) >= 0;
}

static enum attn_status check_extents(const struct attn_problem *p, struct attn_error *err)
{
    const struct {
        const char *name;
        int64_t value;
    } extent[] = {{"batch", p->batch},     {"heads", p->heads}, {"kv_heads", p->kv_heads},
                  {"n_query", p->n_query}, {"n_key", p->n_key}, {"d_key", p->d_key},
                  {"d_value", p->d_value}};
    for (size_t e = 0; e < sizeof extent / sizeof *extent; e++)
        if (extent[e].value < 0)
            return attn_fail(err, ATTN_EINVAL, "%s = %lld: extents start at 0", extent[e].name,
                             (long long)extent[e].value);
    if (p->kv_heads == 0 ? p->heads != 0 : p->heads % p->kv_heads != 0)
        return attn_fail(err, ATTN_EINVAL,
                         "%lld heads cannot share %lld kv heads: a divisor of %lld would work",
                         (long long)p->heads, (long long)p->kv_heads, (long long)p->heads);
    int64_t width = p->d_key > p->d_value ? p->d_key : p->d_value;
    if (p->kv_shared && p->d_value > p->d_key)
        return attn_fail(err, ATTN_EINVAL,
                         "v is a view of k, which has no %lld features, but %lld: up to %lld would "
                         "work",
                         (long long)p->d_value, (long long)p->d_key, (long long)p->d_key);
    width = width > 1 ? width : 1; /* lse has a number a row even where there is no feature */
    if (!extents_fit(p->batch, p->heads, p->n_query, width) ||
        !extents_fit(p->batch, p->kv_heads, p->n_key, width) ||
        !extents_fit(p->batch, p->heads, p->n_query, p->n_key))
        return attn_fail(
            err, ATTN_EINVAL, "extents b%lld h%lld q%lld k%lld: a product exceeds 64 bits",
            (long long)p->batch, (long long)p->heads, (long long)p->n_query, (long long)p->n_key);
    return ATTN_OK;
}

/* 0, or a normal number of the arithmetic type: anything else changes its value there. */
static int fits_arithmetic(double x, enum attn_dtype dtype)
{
    double least = dtype == ATTN_F64 ? DBL_MIN : (double)FLT_MIN;
    double most = dtype == ATTN_F64 ? DBL_MAX : (double)FLT_MAX;
    return x == 0 || (fabs(x) >= least && fabs(x) <= most);
}

static enum attn_status check_numbers(const struct attn_problem *p, struct attn_error *err)
{
    if ((unsigned)p->dtype < ATTN_DTYPES && isfinite(p->scale) &&
        !(fits_arithmetic(p->scale, p->dtype) && fits_arithmetic(p->softcap, p->dtype)))
        return attn_fail(err, ATTN_EINVAL,
                         "scale = %g, softcap = %g: arithmetic for %s cannot hold this; 0 or a "
                         "normal number of its type would work",
                         p->scale, p->softcap, attn_dtype_name(p->dtype));
    if (!isfinite(p->scale))
        return attn_fail(err, ATTN_EINVAL, "scale = %g: must be finite; 1/sqrt(d) is usual",
                         p->scale);
    if (!(p->softcap >= 0 && isfinite(p->softcap)))
        return attn_fail(err, ATTN_EINVAL, "softcap = %g: must be positive, or 0 for none",
                         p->softcap);
    if ((unsigned)p->dtype >= ATTN_DTYPES)
        return attn_fail(err, ATTN_EINVAL, "dtype %d: f64, f32, bf16 and f16 exist", (int)p->dtype);
    return ATTN_OK;
}

static enum attn_status check_bias(const struct attn_problem *p, struct attn_error *err)
{
    switch (p->bias.kind) {
    case ATTN_BIAS_NONE:
        return ATTN_OK;
    case ATTN_BIAS_TENSOR:
        if (p->bias.tensor.dtype != ATTN_F32 && p->bias.tensor.dtype != ATTN_F64)
            return attn_fail(err, ATTN_EINVAL, "bias stored as %s: f32 or f64 would work",
                             attn_dtype_name(p->bias.tensor.dtype));
        return ATTN_OK;
    case ATTN_BIAS_ALIBI:
        if (p->bias.slope == NULL && p->heads > 0)
            return attn_fail(err, ATTN_EINVAL, "ALiBi needs one slope for each of %lld heads",
                             (long long)p->heads);
        for (int64_t h = 0; h < p->heads; h++)
            if (!isfinite(p->bias.slope[p->origin.head + h]))
                return attn_fail(err, ATTN_EINVAL, "ALiBi slope of head %lld is %g: must be finite",
                                 (long long)h, p->bias.slope[p->origin.head + h]);
        return ATTN_OK;
    }
    return attn_fail(err, ATTN_EINVAL, "bias kind %d: none, tensor and alibi exist",
                     (int)p->bias.kind);
}

static enum attn_status check_sink(const struct attn_problem *p, struct attn_error *err)
{
    enum attn_dtype dtype = p->sink.tensor.dtype;
    if (p->sink.given && dtype != ATTN_F32 && dtype != ATTN_F64)
        return attn_fail(err, ATTN_EINVAL, "sink stored as %s: f32 or f64 would work",
                         attn_dtype_name(dtype));
    if (!p->sink.given && p->sink.tensor.data != NULL)
        return attn_fail(err, ATTN_EINVAL,
                         "a sink tensor is there, but sink.given is 0: 1 would bring it in");
    return ATTN_OK;
}

static int is_negative(const struct attn_positions *at)
{
    return at->first < 0 || at->skip < 0 || at->by_batch < 0;
}

/* Returns 1 if the whole has room for n tokens of each batch at these positions. */
static int positions_fit(const struct attn_positions *at, int64_t batch, int64_t n, int64_t whole)
{
    int64_t step, last, among_batches;
    if (batch == 0 || n == 0)
        return at->first <= whole;
    return !__builtin_add_overflow(at->skip, 1, &step) &&
           !__builtin_mul_overflow(step, n - 1, &last) &&
           !__builtin_mul_overflow(at->by_batch, batch - 1, &among_batches) &&
           !__builtin_add_overflow(last, among_batches, &last) && last < whole - at->first;
}

static enum attn_status check_origin(const struct attn_problem *p, struct attn_error *err)
{
    const struct attn_origin *at = &p->origin;
    if (at->batch < 0 || at->head < 0 || is_negative(&at->query) || is_negative(&at->key))
        return attn_fail(err, ATTN_EINVAL,
                         "origin: batch %lld, head %lld, queries %lld skipping %lld and %lld a "
                         "batch, keys %lld skipping %lld and %lld a batch: must not be negative",
                         (long long)at->batch, (long long)at->head, (long long)at->query.first,
                         (long long)at->query.skip, (long long)at->query.by_batch,
                         (long long)at->key.first, (long long)at->key.skip,
                         (long long)at->key.by_batch);
    if (p->mask == NULL)
        return ATTN_OK;
    const struct attn_mask_shape *whole = attn_mask_shape(p->mask);
    int64_t batches = at->one_batch && p->batch > 0 ? 1 : p->batch;
    if (whole->batch - at->batch < batches || whole->heads - at->head < p->heads ||
        !positions_fit(&at->query, p->batch, p->n_query, whole->n_query) ||
        !positions_fit(&at->key, p->batch, p->n_key, whole->n_key))
        return attn_fail(err, ATTN_EINVAL,
                         "mask made for b%lldh%lldq%lldk%lld does not cover b%lldh%lldq%lldk%lld",
                         (long long)whole->batch, (long long)whole->heads,
                         (long long)whole->n_query, (long long)whole->n_key, (long long)p->batch,
                         (long long)p->heads, (long long)p->n_query, (long long)p->n_key);
    return ATTN_OK;
}

enum attn_status attn_problem_check(const struct attn_problem *p, struct attn_error *err)
{
    enum attn_status status = check_extents(p, err);
    if (status == ATTN_OK)
        status = check_numbers(p, err);
    if (status == ATTN_OK)
        status = check_origin(p, err);
    if (status == ATTN_OK)
        status = check_bias(p, err);
    return status == ATTN_OK ? check_sink(p, err) : status;
}

unsigned attn_problem_needs(const struct attn_problem *p)
{
    unsigned needs = 1u << p->dtype;
    if (p->kv_heads != p->heads)
        needs |= ATTN_CAP_GQA;
    if (p->n_query != p->n_key)
        needs |= ATTN_CAP_CROSS;
    if (p->d_key != p->d_value)
        needs |= ATTN_CAP_DV;
    if (p->mask != NULL && !attn_mask_is_none(p->mask))
        needs |= ATTN_CAP_MASK;
    if (p->softcap > 0)
        needs |= ATTN_CAP_SOFTCAP;
    if (p->bias.kind == ATTN_BIAS_TENSOR)
        needs |= ATTN_CAP_BIAS;
    if (p->bias.kind == ATTN_BIAS_ALIBI)
        needs |= ATTN_CAP_ALIBI;
    if (p->sink.given)
        needs |= ATTN_CAP_SINK;
    if (p->kv_shared)
        needs |= ATTN_CAP_KV_SHARED;
    if (attn_result_dtype(p) != p->dtype)
        needs |= ATTN_CAP_WIDE;
    return needs;
}

int attn_problem_is_whole(const struct attn_problem *p)
{
    static const struct attn_origin whole;
    return memcmp(&p->origin, &whole, sizeof whole) == 0;
}

int attn_problem_varies_by_batch(const struct attn_problem *p)
{
    const struct attn_origin *at = &p->origin;
    if (p->mask == NULL || attn_mask_is_none(p->mask))
        return 0;
    return at->query.by_batch != 0 || at->key.by_batch != 0 ||
           (attn_mask_varies_by_batch(p->mask) && !at->one_batch);
}

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

static int64_t between(int64_t least, int64_t x, int64_t most)
{
    return x < least ? least : x > most ? most : x;
}

int attn_problem_band(const struct attn_problem *p, int64_t b, int64_t *least, int64_t *most)
{
    const struct attn_positions *query = &p->origin.query, *key = &p->origin.key;
    int64_t step = 1 + key->skip, ahead = attn_whole_key(p, b, 0) - attn_whole_query(p, b, 0);
    if (query->skip != key->skip || !attn_mask_band(p->mask, attn_whole_batch(p, b), least, most))
        return 0;
    *least = between(1 - p->n_query, -floor_div(ahead - *least, step), p->n_key);
    *most = between(-p->n_query, floor_div(*most - ahead, step), p->n_key - 1);
    return 1;
}

int64_t attn_problem_pairs(const struct attn_problem *p, int64_t b, int64_t h, int *counted)
{
    const struct attn_tokens queries = attn_whole_tokens(&p->origin.query, b, p->n_query);
    const struct attn_tokens keys = attn_whole_tokens(&p->origin.key, b, p->n_key);
    return attn_mask_pairs(p->mask, attn_whole_batch(p, b), p->origin.head + h, &queries, &keys,
                           counted);
}

int64_t attn_problem_all_pairs(const struct attn_problem *p, int *counted)
{
    int by_batch = attn_problem_varies_by_batch(p);
    int by_head = p->mask != NULL && attn_mask_varies_by_head(p->mask);
    int64_t pairs = 0;
    for (int64_t b = 0; b < (by_batch ? p->batch : p->batch > 0); b++)
        for (int64_t h = 0; h < (by_head ? p->heads : p->heads > 0); h++)
            pairs += attn_problem_pairs(p, b, h, counted);
    return pairs * (by_batch ? 1 : p->batch) * (by_head ? 1 : p->heads);
}

double attn_pass_bytes(const struct attn_problem *p, enum attn_pass pass)
{
    double e = (double)attn_dtype_size(p->dtype), d = (double)p->d_key, dv = (double)p->d_value;
    double e_result = (double)attn_dtype_size(attn_result_dtype(p));
    double rows = (double)p->batch * (double)p->heads * (double)p->n_query;
    double keys = (double)p->batch * (double)p->kv_heads * (double)p->n_key;
    double qkv = rows * d + keys * (p->kv_shared ? d : d + dv);
    double out = rows * (e_result * dv + (double)attn_dtype_size(attn_lse_dtype(p)));
    return e * qkv + out + (pass == ATTN_FORWARD ? 0 : e_result * qkv + e * rows * dv);
}

static double load(const void *data, enum attn_dtype dtype, int64_t at)
{
    switch (dtype) {
    case ATTN_F64:
        return ((const double *)data)[at];
    case ATTN_F32:
        return (double)((const float *)data)[at];
    case ATTN_BF16:
        return (double)attn_bf16_to_float(((const uint16_t *)data)[at]);
    case ATTN_F16:
        return (double)attn_f16_to_float(((const uint16_t *)data)[at]);
    case ATTN_U8:
        break;
    }
    return (double)NAN;
}

static void store(void *data, enum attn_dtype dtype, int64_t at, double x)
{
    switch (dtype) {
    case ATTN_F64:
        ((double *)data)[at] = x;
        break;
    case ATTN_F32:
        ((float *)data)[at] = (float)x;
        break;
    case ATTN_BF16:
        ((uint16_t *)data)[at] = attn_bf16_from_double(x);
        break;
    case ATTN_F16:
        ((uint16_t *)data)[at] = attn_f16_from_double(x);
        break;
    case ATTN_U8:
        break;
    }
}

double attn_cview_get(const struct attn_cview *view, int64_t b, int64_t h, int64_t i, int64_t c)
{
    return load(view->data, view->dtype, attn_offset(view->stride, b, h, i) + c * view->stride[3]);
}

void attn_cview_row(const struct attn_cview *view, const int64_t at[4], int64_t n, double *x)
{
    const int64_t step = view->stride[3];
    int64_t from = attn_offset(view->stride, at[0], at[1], at[2]) + at[3] * step;
    if (view->dtype == ATTN_F32 && step == 1)
        for (int64_t c = 0; c < n; c++)
            x[c] = (double)((const float *)view->data)[from + c];
    else if (view->dtype == ATTN_BF16 && step == 1)
        for (int64_t c = 0; c < n; c++)
            x[c] = (double)attn_bf16_to_float(((const uint16_t *)view->data)[from + c]);
    else if (view->dtype == ATTN_F16)
        for (int64_t c = 0; c < n; c++)
            x[c] = (double)attn_f16_to_float(((const uint16_t *)view->data)[from + c * step]);
    else
        for (int64_t c = 0; c < n; c++)
            x[c] = load(view->data, view->dtype, from + c * step);
}

double attn_view_get(const struct attn_view *view, int64_t b, int64_t h, int64_t i, int64_t c)
{
    return load(view->data, view->dtype, attn_offset(view->stride, b, h, i) + c * view->stride[3]);
}

void attn_view_set(const struct attn_view *view, int64_t b, int64_t h, int64_t i, int64_t c,
                   double x)
{
    store(view->data, view->dtype, attn_offset(view->stride, b, h, i) + c * view->stride[3], x);
}

void attn_view_set_row(const struct attn_view *view, const int64_t at[4], int64_t n,
                       const double *x)
{
    const int64_t step = view->stride[3];
    int64_t to = attn_offset(view->stride, at[0], at[1], at[2]) + at[3] * step;
    if (view->dtype == ATTN_F32 && step == 1)
        for (int64_t c = 0; c < n; c++)
            ((float *)view->data)[to + c] = (float)x[c];
    else
        for (int64_t c = 0; c < n; c++)
            store(view->data, view->dtype, to + c * step, x[c]);
}

double attn_problem_bias(const struct attn_problem *p, int64_t b, int64_t h, int64_t i, int64_t j)
{
    i = attn_whole_query(p, b, i), j = attn_whole_key(p, b, j);
    b = attn_whole_batch(p, b), h += p->origin.head;
    if (p->bias.kind == ATTN_BIAS_TENSOR)
        return attn_cview_get(&p->bias.tensor, b, h, i, j);
    if (p->bias.kind == ATTN_BIAS_ALIBI)
        return -p->bias.slope[h] * fabs((double)(i + p->bias.offset - j));
    return 0;
}

int attn_problem_sees(const struct attn_problem *p, int64_t b, int64_t h, int64_t i)
{
    struct attn_run run = {0, 0};
    while (attn_problem_next(p, b, h, i, &run))
        for (int64_t j = run.lo; j < run.hi; j++)
            if (p->bias.kind != ATTN_BIAS_TENSOR ||
                attn_problem_bias(p, b, h, i, j) != -(double)INFINITY)
                return 1;
    return 0;
}

void attn_view_add(const struct attn_view *view, int64_t b, int64_t h, int64_t i, int64_t j,
                   double x)
{
    int64_t at = attn_offset(view->stride, b, h, i) + j * view->stride[3];
    if (view->dtype == ATTN_F64)
        ((double *)view->data)[at] += x;
    else
        ((float *)view->data)[at] += (float)x;
}

void attn_shared_add(const struct attn_problem *p, const struct attn_view *dk,
                     const struct attn_view *dv)
{
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t g = 0; g < p->kv_heads; g++)
            for (int64_t j = 0; j < p->n_key; j++)
                for (int64_t c = 0; c < p->d_value; c++)
                    attn_view_set(dk, b, g, j, c,
                                  attn_view_get(dk, b, g, j, c) + attn_view_get(dv, b, g, j, c));
}

void attn_dbias_clear(const struct attn_problem *p, const struct attn_view *dbias)
{
    if (dbias->data == NULL)
        return;
    const int64_t *stride = dbias->stride;
    for (int64_t b = 0; b < (stride[0] != 0 ? p->batch : p->batch > 0); b++)
        for (int64_t h = 0; h < (stride[1] != 0 ? p->heads : p->heads > 0); h++)
            for (int64_t i = 0; i < (stride[2] != 0 ? p->n_query : p->n_query > 0); i++)
                for (int64_t j = 0; j < (stride[3] != 0 ? p->n_key : p->n_key > 0); j++)
                    attn_view_set(dbias, b, h, i, j, 0);
}

static int scattered(const int64_t stride[4], int64_t width)
{
    return width > 1 && stride[3] != 1;
}

int attn_scattered_forward(const struct attn_problem *p, const struct attn_forward *t)
{
    return scattered(t->q.stride, p->d_key) || scattered(t->k.stride, p->d_key) ||
           scattered(t->v.stride, p->d_value) || scattered(t->o.stride, p->d_value);
}

int attn_scattered_backward(const struct attn_problem *p, const struct attn_backward *t)
{
    return scattered(t->q.stride, p->d_key) || scattered(t->k.stride, p->d_key) ||
           scattered(t->v.stride, p->d_value) || scattered(t->o.stride, p->d_value) ||
           scattered(t->d_o.stride, p->d_value) || scattered(t->dq.stride, p->d_key) ||
           scattered(t->dk.stride, p->d_key) || scattered(t->dv.stride, p->d_value);
}
