/* See oracle_lab.h. */
#include "tests/oracle_lab.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "ref/textbook.h"
#include "tests/harness/fill.h"

static void fill(double *x, int64_t n, uint64_t seed, uint64_t stream)
{
    ck_assert_int_le(n, LAB_MOST);
    for (int64_t i = 0; i < n; i++)
        x[i] = (double)(float)attn_hash_normal(seed, stream, (uint64_t)i);
}

struct lab *lab_open(const struct lab_shape *s, uint64_t seed)
{
    struct lab *x = calloc(1, sizeof *x);
    ck_assert_ptr_nonnull(x);
    struct attn_mask_shape shape = {s->b, s->h, s->q, s->k};
    struct attn_error err = {0};
    if (s->mask != NULL)
        ck_assert_msg(attn_mask_parse(s->mask, &shape, NULL, &x->mask, &err) == ATTN_OK, "%s",
                      err.text);
    x->p = (struct attn_problem){.batch = s->b,
                                 .heads = s->h,
                                 .kv_heads = s->g,
                                 .n_query = s->q,
                                 .n_key = s->k,
                                 .d_key = s->d,
                                 .d_value = s->dv,
                                 .scale = s->scale,
                                 .softcap = s->softcap,
                                 .mask = x->mask};
    x->has_d_lse = s->d_lse;
    fill(x->q, s->b * s->h * s->q * s->d, seed, 1);
    fill(x->k, s->b * s->g * s->k * s->d, seed, 2);
    fill(x->v, s->b * s->g * s->k * s->dv, seed, 3);
    fill(x->d_o, s->b * s->h * s->q * s->dv, seed, 4);
    fill(x->d_lse, s->b * s->h * s->q, seed, 5);
    fill(x->bias, s->b * s->h * s->q * s->k, seed, 6);
    for (int h = 0; h < 16; h++)
        x->slope[h] = ldexp(1, -h);
    x->p.bias.kind = s->bias;
    x->p.bias.slope = x->slope;
    x->p.bias.offset = s->k - s->q;
    x->p.bias.tensor =
        (struct attn_cview){x->bias, ATTN_F64, {s->h * s->q * s->k, s->q * s->k, s->k, 1}};
    return x;
}

/* A contiguous [., heads, rows, width]; as f32 a copy in *copy. */
static struct attn_cview view(const double *x, enum attn_dtype dtype, int64_t heads, int64_t rows,
                              int64_t width, float **copy)
{
    struct attn_cview v = {x, ATTN_F64, {heads * rows * width, rows * width, width, 1}};
    if (dtype == ATTN_F32) {
        *copy = malloc(LAB_MOST * sizeof **copy);
        ck_assert_ptr_nonnull(*copy);
        for (int64_t i = 0; i < LAB_MOST; i++)
            (*copy)[i] = (float)x[i];
        v.data = *copy;
        v.dtype = ATTN_F32;
    }
    return v;
}

void lab_run(struct lab *x, enum attn_dtype dtype)
{
    struct attn_problem *p = &x->p;
    struct attn_precision precision;
    struct attn_options options = {.threads = 1};
    struct attn_sample all = {-1, -1, NULL, NULL};
    struct attn_error err = {0};
    float *copy[5] = {NULL};
    attn_truth_free(&x->truth);
    p->dtype = dtype;
    ck_assert_msg(attn_problem_check(p, &err) == ATTN_OK, "%s", err.text);
    struct attn_inputs in = {.q = view(x->q, dtype, p->heads, p->n_query, p->d_key, &copy[0]),
                             .k = view(x->k, dtype, p->kv_heads, p->n_key, p->d_key, &copy[1]),
                             .v = view(x->v, dtype, p->kv_heads, p->n_key, p->d_value, &copy[2]),
                             .d_o = view(x->d_o, dtype, p->heads, p->n_query, p->d_value, &copy[3]),
                             .want_d_bias = p->bias.kind == ATTN_BIAS_TENSOR};
    if (x->has_d_lse)
        in.d_lse = view(x->d_lse, dtype, p->heads, p->n_query, 1, &copy[4]);
    attn_precision_of(&attn_impl_dense, &options, p, &precision);
    ck_assert_msg(attn_truth_compute(p, &in, &precision, &all, &x->truth, &err) == ATTN_OK, "%s",
                  err.text);
    for (int c = 0; c < 5; c++)
        free(copy[c]);
    x->o = x->truth.tensor[ATTN_O].want;
    x->lse = x->truth.tensor[ATTN_LSE].want;
    x->dq = x->truth.tensor[ATTN_DQ].want;
    x->dk = x->truth.tensor[ATTN_DK].want;
    x->dv = x->truth.tensor[ATTN_DV].want;
    x->d_bias = x->truth.tensor[ATTN_DBIAS].want;
}

void lab_close(struct lab *x)
{
    attn_truth_free(&x->truth);
    attn_mask_free(x->mask);
    free(x);
}

int64_t lab_size(const struct lab *x, enum attn_output output)
{
    const struct attn_truth_tensor *t = &x->truth.tensor[output];
    return t->want == NULL ? 0 : t->extent[0] * t->extent[1] * t->extent[2] * t->extent[3];
}

void lab_near(const char *what, int64_t at, double got, double want, double bound)
{
    int ok = got == want || fabs(got - want) <= bound;
    if (!ok)
        ck_abort_msg("%s[%lld] = %.17g, want %.17g: off by %.3g, %.3g is allowed", what,
                     (long long)at, got, want, fabs(got - want), bound);
}
