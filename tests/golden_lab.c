/* See golden_lab.h. */
#include "tests/golden_lab.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/ledger.h"

static const char *const names[] = {
    "plain",         "grouped-causal", "offset-minus",  "offset-plus", "cancel-values",
    "cancel-scores", "ties",           "stairs",        "softcap",     "softcap-bias",
    "alibi",         "bias-shared",    "empty-rows",    "spike",       "flat",
    "subnormal-f32", "subnormal-f64",  "parallel-keys", "cells"};

int golden_count(void)
{
    return (int)(sizeof names / sizeof *names);
}

/* A tensor of the file, its numbers loaded; NULL when it is not there and need not be. */
static struct attn_file_tensor *tensor(struct golden *x, const char *name, int needed)
{
    struct attn_error err = {0};
    struct attn_file_tensor *t = attn_file_find(&x->file, name);
    ck_assert_msg(t != NULL || !needed, "%s has no %s", x->file.path, name);
    if (t != NULL)
        ck_assert_msg(attn_file_load(&x->file, t, &err) == ATTN_OK, "%s", err.text);
    return t;
}

/* [B,H,L,d] or [B,H,L], C order; wide: f32 numbers copied to f64. */
static struct attn_cview view(struct golden *x, const char *name, int needed, int wide, int slot)
{
    struct attn_cview v = {0};
    struct attn_file_tensor *t = tensor(x, name, needed);
    if (t == NULL)
        return v;
    int64_t n = 1;
    v.stride[3] = 1;
    for (int a = t->n_axes - 1; a >= 0; n *= t->extent[a--])
        v.stride[a] = n;
    v.data = t->data;
    v.dtype = t->dtype == ATTN_FILE_F64 ? ATTN_F64 : ATTN_F32;
    if (wide && v.dtype == ATTN_F32) {
        double *copy = x->widened[slot] = malloc((size_t)(n + 1) * sizeof *copy);
        ck_assert_ptr_nonnull(copy);
        for (int64_t i = 0; i < n; i++)
            copy[i] = (double)((const float *)t->data)[i];
        v.data = copy;
        v.dtype = ATTN_F64;
    }
    return v;
}

static double number(const struct golden *x, const char *key, double otherwise)
{
    const char *text = attn_file_metadata(&x->file, key);
    return text != NULL ? strtod(text, NULL) : otherwise;
}

static void set_bias(struct golden *x, int wide)
{
    struct attn_bias *bias = &x->problem.bias;
    const struct attn_file_tensor *t = attn_file_find(&x->file, "bias");
    const char *alibi = attn_file_metadata(&x->file, "alibi");
    if (t != NULL) {
        bias->kind = ATTN_BIAS_TENSOR;
        bias->tensor = view(x, "bias", 1, wide, 5);
        for (int a = 0; a < 4; a++)
            if (t->extent[a] == 1)
                bias->tensor.stride[a] = 0;
    }
    if (alibi == NULL)
        return;
    bias->kind = ATTN_BIAS_ALIBI;
    bias->slope = x->slope;
    bias->offset = x->problem.n_key - x->problem.n_query; /* "alibi-align": "br" in every file */
    for (int h = 0; h < 8 && *alibi != '\0'; h++) {
        char *end;
        x->slope[h] = strtod(alibi, &end);
        alibi = *end == ',' ? end + 1 : end;
    }
}

static enum attn_status find_cells(void *arg, const char *name, const char *part,
                                   struct attn_mask_tensor *to, struct attn_error *err)
{
    struct golden *x = arg;
    const struct attn_file_tensor *t = tensor(x, name, 1);
    if (part[0] != '\0')
        return attn_fail(err, ATTN_EINVAL, "no part '%s' here", part);
    memset(to, 0, sizeof *to);
    to->data = t->data;
    to->n_axes = t->n_axes;
    to->width = 1;
    memcpy(to->extent, t->extent, sizeof to->extent);
    return ATTN_OK;
}

static void set_mask(struct golden *x)
{
    const struct attn_problem *p = &x->problem;
    struct attn_mask_shape shape = {p->batch, p->heads, p->n_query, p->n_key};
    struct attn_mask_source source = {find_cells, x};
    struct attn_error err = {0};
    const char *text = attn_file_metadata(&x->file, "mask");
    ck_assert_ptr_nonnull(text);
    ck_assert_msg(attn_mask_parse(text, &shape, &source, &x->mask, &err) == ATTN_OK, "%s",
                  err.text);
    x->problem.mask = strcmp(text, "none") == 0 ? NULL : x->mask;
    x->visible = tensor(x, "visible", 1)->data;
}

static void set_results(struct golden *x)
{
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        char name[32];
        snprintf(name, sizeof name, "%s", attn_output_name((enum attn_output)o));
        const struct attn_file_tensor *t = tensor(x, name, o != ATTN_DBIAS);
        if (t == NULL)
            continue;
        x->want[o].hi = t->data;
        x->want[o].n = t->bytes / 8;
        x->want[o].width = o == ATTN_LSE ? 1 : t->extent[3];
        snprintf(name, sizeof name, "%s.rest", attn_output_name((enum attn_output)o));
        x->want[o].rest = tensor(x, name, 1)->data;
        snprintf(name, sizeof name, "%s.size", attn_output_name((enum attn_output)o));
        x->want[o].size = tensor(x, name, 1)->data;
    }
}

struct golden *golden_open(int index, int wide)
{
    char path[256];
    struct attn_error err = {0};
    struct golden *x = calloc(1, sizeof *x);
    ck_assert_ptr_nonnull(x);
    x->name = names[index];
    snprintf(path, sizeof path, "tests/golden/%s.safetensors", names[index]);
    ck_assert_msg(attn_file_open(path, &x->file, &err) == ATTN_OK, "%s", err.text);
    x->in.q = view(x, "q", 1, wide, 0);
    x->in.k = view(x, "k", 1, wide, 1);
    x->in.v = view(x, "v", 1, wide, 2);
    x->in.d_o = view(x, "do", 1, wide, 3);
    x->in.d_lse = view(x, "dlse", 0, wide, 4);
    const int64_t *q = tensor(x, "q", 1)->extent, *k = tensor(x, "k", 1)->extent;
    x->problem = (struct attn_problem){.batch = q[0],
                                       .heads = q[1],
                                       .kv_heads = k[1],
                                       .n_query = q[2],
                                       .n_key = k[2],
                                       .d_key = q[3],
                                       .d_value = tensor(x, "v", 1)->extent[3],
                                       .scale = number(x, "scale", (double)NAN),
                                       .softcap = number(x, "softcap", 0),
                                       .dtype = x->in.q.dtype};
    set_bias(x, wide);
    set_mask(x);
    set_results(x);
    x->in.want_d_bias = x->want[ATTN_DBIAS].n > 0;
    ck_assert_msg(attn_problem_check(&x->problem, &err) == ATTN_OK, "%s: %s", path, err.text);
    return x;
}

void golden_close(struct golden *x)
{
    attn_mask_free(x->mask);
    attn_file_close(&x->file);
    for (int slot = 0; slot < 6; slot++)
        free(x->widened[slot]);
    free(x);
}

/* ---- running -------------------------------------------------------------------------------- */

static struct attn_view output(const struct golden *x, int o, struct golden_run *run)
{
    const struct attn_problem *p = &x->problem;
    struct attn_view v = {0};
    int64_t heads = o == ATTN_DK || o == ATTN_DV ? p->kv_heads : p->heads;
    int64_t rows = o == ATTN_DK || o == ATTN_DV ? p->n_key : p->n_query, width = x->want[o].width;
    if (x->want[o].n == 0)
        return v;
    run->dtype[o] = o == ATTN_DBIAS ? p->bias.tensor.dtype : p->dtype;
    run->out[o] = malloc((size_t)x->want[o].n * sizeof(double));
    ck_assert_ptr_nonnull(run->out[o]);
    memset(run->out[o], 0xff, (size_t)x->want[o].n * sizeof(double)); /* NaN: not written */
    v = (struct attn_view){
        run->out[o], run->dtype[o], {heads * rows * width, rows * width, width, 1}};
    if (o == ATTN_DBIAS)
        memcpy(v.stride, p->bias.tensor.stride, sizeof v.stride);
    return v;
}

static struct attn_cview reading(struct attn_view v)
{
    struct attn_cview same = {v.data, v.dtype, {0}};
    memcpy(same.stride, v.stride, sizeof same.stride);
    return same;
}

int golden_forward_backward(const struct golden *x, const struct attn_spec *spec,
                            struct golden_run *run)
{
    struct attn_ledger ledger;
    struct attn_error err = {0};
    int ranks = attn_ranks(spec->impl, &spec->options);
    struct attn_rank_use *use = calloc((size_t)ranks, sizeof *use);
    struct attn_ctx ctx = {
        .ledger = &ledger, .options = &spec->options, .error = &err, .ranks = use};
    memset(run, 0, sizeof *run);
    attn_ledger_init(&ledger, NULL);
    struct attn_forward f = {x->in.q, x->in.k, x->in.v, output(x, ATTN_O, run),
                             output(x, ATTN_LSE, run)};
    enum attn_status status = attn_run_forward(spec->impl, &ctx, &x->problem, &f);
    struct attn_backward t = {f.q,
                              f.k,
                              f.v,
                              reading(f.o),
                              reading(f.lse),
                              x->in.d_o,
                              x->in.d_lse,
                              output(x, ATTN_DQ, run),
                              output(x, ATTN_DK, run),
                              output(x, ATTN_DV, run),
                              output(x, ATTN_DBIAS, run)};
    if (status == ATTN_OK)
        status = attn_run_backward(spec->impl, &ctx, &x->problem, &t);
    attn_ledger_clear(&ledger);
    free(use);
    ck_assert_msg(status == ATTN_OK || status == ATTN_ENOTSUP, "%s: %s: %s", x->name,
                  spec->impl->name, err.text);
    attn_precision_of(spec->impl, &spec->options, &x->problem, &run->precision);
    return status == ATTN_OK;
}

void golden_drop(struct golden_run *run)
{
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        free(run->out[o]);
    memset(run, 0, sizeof *run);
}

double golden_got(const struct golden_run *run, int o, int64_t at)
{
    return run->dtype[o] == ATTN_F64 ? ((const double *)run->out[o])[at]
                                     : (double)((const float *)run->out[o])[at];
}
