/* See simple.h. */
#include "optimized/simple.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "optimized/registry.h"
#include "ref/ledger.h"
#include "ref/problem.h"

/* The data of a call.  close_call closes it after every open_call, failed ones included. */
struct call {
    struct attn_problem problem;
    struct attn_mask *mask;
    struct attn_spec spec;
    struct attn_ledger ledger;
    struct attn_error err;
    struct attn_ctx ctx;
};

static struct attn_cview input(const float *data, int64_t heads, int64_t rows, int64_t features)
{
    return attn_packed_cview(data, ATTN_F32, heads, rows, features);
}

static struct attn_view output(float *data, int64_t heads, int64_t rows, int64_t features)
{
    return attn_packed_view(data, ATTN_F32, heads, rows, features);
}

static enum attn_status open_call(const char *spec, const char *mask, const struct attn_simple *s,
                                  struct call *call)
{
    memset(call, 0, sizeof *call);
    attn_ledger_init(&call->ledger, NULL);
    call->problem = (struct attn_problem){.batch = s->batch,
                                          .heads = s->heads,
                                          .kv_heads = s->kv_heads,
                                          .n_query = s->n_query,
                                          .n_key = s->n_key,
                                          .d_key = s->d_key,
                                          .d_value = s->d_value,
                                          .scale = s->scale != 0  ? s->scale
                                                   : s->d_key > 0 ? 1 / sqrt((double)s->d_key)
                                                                  : 1,
                                          .dtype = ATTN_F32};
    enum attn_status status = attn_problem_check(&call->problem, &call->err);
    struct attn_mask_shape shape = {s->batch, s->heads, s->n_query, s->n_key};
    if (status == ATTN_OK)
        status = attn_spec_parse(spec, &call->spec, &call->err);
    if (status == ATTN_OK)
        status = attn_mask_parse(mask, &shape, NULL, &call->mask, &call->err);
    call->problem.mask = call->mask;
    call->ctx.ledger = &call->ledger;
    call->ctx.options = &call->spec.options;
    call->ctx.error = &call->err;
    return status;
}

static int close_call(struct call *call, enum attn_status status, char *error)
{
    attn_mask_free(call->mask);
    attn_ledger_clear(&call->ledger);
    snprintf(error, ATTN_SIMPLE_ERROR, "%s", status != ATTN_OK ? call->err.text : "");
    return status != ATTN_OK;
}

int attn_simple_forward(const char *spec, const char *mask, const struct attn_simple *s,
                        const float *q, const float *k, const float *v, float *o, float *lse,
                        char *error)
{
    struct call call;
    enum attn_status status = open_call(spec, mask, s, &call);
    const struct attn_forward t = {
        input(q, s->heads, s->n_query, s->d_key), input(k, s->kv_heads, s->n_key, s->d_key),
        input(v, s->kv_heads, s->n_key, s->d_value), output(o, s->heads, s->n_query, s->d_value),
        output(lse, s->heads, s->n_query, 1)};
    if (status == ATTN_OK)
        status = attn_run_forward(call.spec.impl, &call.ctx, &call.problem, &t);
    return close_call(&call, status, error);
}

int attn_simple_backward(const char *spec, const char *mask, const struct attn_simple *s,
                         const float *q, const float *k, const float *v, const float *o,
                         const float *lse, const float *d_o, float *dq, float *dk, float *dv,
                         char *error)
{
    struct call call;
    enum attn_status status = open_call(spec, mask, s, &call);
    const struct attn_backward t = {.q = input(q, s->heads, s->n_query, s->d_key),
                                    .k = input(k, s->kv_heads, s->n_key, s->d_key),
                                    .v = input(v, s->kv_heads, s->n_key, s->d_value),
                                    .o = input(o, s->heads, s->n_query, s->d_value),
                                    .lse = input(lse, s->heads, s->n_query, 1),
                                    .d_o = input(d_o, s->heads, s->n_query, s->d_value),
                                    .dq = output(dq, s->heads, s->n_query, s->d_key),
                                    .dk = output(dk, s->kv_heads, s->n_key, s->d_key),
                                    .dv = output(dv, s->kv_heads, s->n_key, s->d_value)};
    if (status == ATTN_OK)
        status = attn_run_backward(call.spec.impl, &call.ctx, &call.problem, &t);
    return close_call(&call, status, error);
}
