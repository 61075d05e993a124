/* See null.h. */
#include "tests/variants/null.h"

#include <stdlib.h>

#include "ref/problem.h"
#include "ref/textbook.h"
#include "tests/harness/base/tensor.h"

const char *const null_model_name[NULL_MODELS] = {"zeros", "mean", "shuffled", "neighbour"};

static enum null_model model;

/* The right rows in the places of others, or zeros. */
static enum attn_status spoil(const struct attn_view *x, int64_t batch, int64_t heads, int64_t rows,
                              int64_t width)
{
    const int64_t extent[4] = {batch, heads, rows, width};
    int64_t at[4] = ATTN_START, by_heads = model == NULL_NEIGHBOUR,
            by_rows = model == NULL_SHUFFLED;
    double *was = malloc((size_t)(batch * heads * rows * width + 1) * sizeof *was), *next = was;
    if (was == NULL)
        return ATTN_ENOMEM;
    while (attn_each(at, extent))
        *next++ = by_heads + by_rows > 0 ? attn_view_get(x, at[0], (at[1] + by_heads) % heads,
                                                         (at[2] + by_rows) % rows, at[3])
                                         : 0;
    next = was;
    for (int64_t to[4] = ATTN_START; attn_each(to, extent);)
        attn_view_set(x, to[0], to[1], to[2], to[3], *next++);
    free(was);
    return ATTN_OK;
}

/* O_i = sum_j v_j / n_i over the n_i keys that row i sees.  Of that: dv_j = sum_i dO_i / n_i, and
 * nothing else has a gradient. */
static enum attn_status set_means(const struct attn_problem *p, const struct attn_forward *f,
                                  const struct attn_backward *g)
{
    const int64_t rows[4] = {p->batch, p->heads, p->n_query, 1};
    int64_t at[4] = ATTN_START, *key = malloc(((size_t)p->n_key + 1) * sizeof *key);
    while (key != NULL && attn_each(at, rows)) {
        int64_t b = at[0], h = at[1], i = at[2], kv = h / (p->heads / p->kv_heads), n = 0;
        for (int64_t j = 0; j < p->n_key; j++)
            if (attn_problem_allows(p, b, h, i, j))
                key[n++] = j;
        for (int64_t c = 0; c < p->d_value; c++) {
            double sum = 0;
            for (int64_t e = 0; e < n; e++)
                if (f != NULL)
                    sum += attn_cview_get(&f->v, b, kv, key[e], c) / (double)n;
                else
                    attn_view_set(&g->dv, b, kv, key[e], c,
                                  attn_view_get(&g->dv, b, kv, key[e], c) +
                                      attn_cview_get(&g->d_o, b, h, i, c) / (double)n);
            if (f != NULL)
                attn_view_set(&f->o, b, h, i, c, sum);
        }
    }
    enum attn_status status = key != NULL ? ATTN_OK : ATTN_ENOMEM;
    free(key);
    return status;
}

static enum attn_status forward(struct attn_ctx *ctx, const struct attn_problem *p,
                                const struct attn_forward *t)
{
    enum attn_status status = attn_impl_dense.forward(ctx, p, t);
    if (status == ATTN_OK)
        status = spoil(&t->o, p->batch, p->heads, p->n_query, p->d_value);
    if (status == ATTN_OK && model == NULL_MEAN)
        status = set_means(p, t, NULL);
    return status;
}

static enum attn_status backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                 const struct attn_backward *t)
{
    enum attn_status status = attn_impl_dense.backward(ctx, p, t);
    if (status == ATTN_OK)
        status = spoil(&t->dq, p->batch, p->heads, p->n_query, p->d_key);
    if (status == ATTN_OK)
        status = spoil(&t->dk, p->batch, p->kv_heads, p->n_key, p->d_key);
    if (status == ATTN_OK)
        status = spoil(&t->dv, p->batch, p->kv_heads, p->n_key, p->d_value);
    if (status == ATTN_OK && model <= NULL_MEAN)
        attn_dbias_clear(p, &t->dbias);
    if (status == ATTN_OK && model == NULL_MEAN)
        status = set_means(p, NULL, t);
    return status;
}

struct attn_spec null_spec(enum null_model which)
{
    static struct attn_impl impl;
    struct attn_spec spec = {.impl = &impl};
    impl = attn_impl_dense;
    impl.name = "null";
    impl.forward = forward;
    impl.backward = backward;
    model = which;
    attn_options_preset(&impl, &spec.options);
    return spec;
}
