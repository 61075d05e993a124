/* See null.h. */
#include "tests/variants/null.h"

#include <stdlib.h>

#include "ref/ledger.h"
#include "ref/problem.h"
#include "ref/textbook.h"

const char *const null_model_name[NULL_MODELS] = {"zeros", "mean", "shuffled", "neighbour"};

static const struct attn_option options[] = {
    {"model", NULL_ZEROS, 0, NULL_MODELS - 1, "zeros mean shuffled neighbour", "which nonsense"},
    {0}};

/* An output and its extents. */
struct output {
    const struct attn_view *view;
    int64_t batch, heads, rows, width;
};

static void set(const struct output *x, int64_t b, int64_t h, int64_t i, int64_t c, double value)
{
    attn_view_set(x->view, b, h, i, c, value);
}

static void clear(const struct output *x)
{
    for (int64_t b = 0; b < x->batch; b++)
        for (int64_t h = 0; h < x->heads; h++)
            for (int64_t i = 0; i < x->rows; i++)
                for (int64_t c = 0; c < x->width; c++)
                    set(x, b, h, i, c, 0);
}

/* x[b,h,i] := x[b, h + by_heads, i + by_rows], cyclically. */
static enum attn_status rotate(const struct output *x, int64_t by_heads, int64_t by_rows)
{
    int64_t n = x->heads * x->rows * x->width;
    double *copy = malloc((size_t)(n + 1) * sizeof *copy);
    if (copy == NULL)
        return ATTN_ENOMEM;
    for (int64_t b = 0; b < x->batch; b++) {
        for (int64_t e = 0; e < n; e++)
            copy[e] = attn_view_get(x->view, b, e / (x->rows * x->width), e / x->width % x->rows,
                                    e % x->width);
        for (int64_t e = 0; e < n; e++) {
            int64_t h = e / (x->rows * x->width), i = e / x->width % x->rows;
            int64_t from = (h + by_heads) % x->heads * x->rows + (i + by_rows) % x->rows;
            set(x, b, h, i, e % x->width, copy[from * x->width + e % x->width]);
        }
    }
    free(copy);
    return ATTN_OK;
}

static enum attn_status spoil(const struct attn_ctx *ctx, const struct output *x)
{
    switch ((enum null_model)ctx->options->value[0]) {
    case NULL_SHUFFLED:
        return rotate(x, 0, 1);
    case NULL_NEIGHBOUR:
        return rotate(x, 1, 0);
    default:
        clear(x);
        return ATTN_OK;
    }
}

/* Visible keys of a row. */
static int64_t count_keys(const struct attn_problem *p, int64_t b, int64_t h, int64_t i)
{
    int64_t n = 0;
    for (int64_t j = 0; j < p->n_key; j++)
        n += attn_problem_allows(p, b, h, i, j);
    return n;
}

static void mean_of_values(const struct attn_problem *p, const struct attn_forward *t)
{
    struct output o = {&t->o, p->batch, p->heads, p->n_query, p->d_value};
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t i = 0; i < p->n_query; i++) {
                int64_t n = count_keys(p, b, h, i), g = h / (p->heads / p->kv_heads);
                for (int64_t c = 0; c < p->d_value; c++) {
                    double sum = 0;
                    for (int64_t j = 0; j < p->n_key; j++)
                        if (attn_problem_allows(p, b, h, i, j))
                            sum += attn_cview_get(&t->v, b, g, j, c) / (double)n;
                    set(&o, b, h, i, c, sum);
                }
            }
}

/* Forward was O_i = sum_j v_j / n_i: dv_j = sum_i dO_i / n_i, and nothing else has a gradient. */
static void mean_gradient(const struct attn_problem *p, const struct attn_backward *t)
{
    struct output dv = {&t->dv, p->batch, p->kv_heads, p->n_key, p->d_value};
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t i = 0; i < p->n_query; i++) {
                int64_t n = count_keys(p, b, h, i), g = h / (p->heads / p->kv_heads);
                for (int64_t j = 0; j < p->n_key; j++)
                    for (int64_t c = 0; c < p->d_value && attn_problem_allows(p, b, h, i, j); c++)
                        set(&dv, b, g, j, c,
                            attn_view_get(&t->dv, b, g, j, c) +
                                attn_cview_get(&t->d_o, b, h, i, c) / (double)n);
            }
}

/* Run the textbook on a ledger of its own: the truth, to be spoiled. */
static struct attn_ctx textbook(const struct attn_ctx *ctx, struct attn_ledger *ledger,
                                struct attn_options *preset)
{
    struct attn_ctx own = *ctx;
    attn_ledger_init(ledger, NULL);
    attn_options_preset(&attn_impl_dense, preset);
    own.ledger = ledger;
    own.options = preset;
    return own;
}

static enum attn_status forward(struct attn_ctx *ctx, const struct attn_problem *p,
                                const struct attn_forward *t)
{
    struct attn_ledger ledger;
    struct attn_options preset;
    struct attn_ctx own = textbook(ctx, &ledger, &preset);
    struct output o = {&t->o, p->batch, p->heads, p->n_query, p->d_value};
    enum attn_status status = attn_impl_dense.forward(&own, p, t);
    if (status == ATTN_OK)
        status = spoil(ctx, &o);
    if (status == ATTN_OK && ctx->options->value[0] == NULL_MEAN)
        mean_of_values(p, t);
    return status;
}

static enum attn_status backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                 const struct attn_backward *t)
{
    struct attn_ledger ledger;
    struct attn_options preset;
    struct attn_ctx own = textbook(ctx, &ledger, &preset);
    const struct output out[] = {{&t->dq, p->batch, p->heads, p->n_query, p->d_key},
                                 {&t->dk, p->batch, p->kv_heads, p->n_key, p->d_key},
                                 {&t->dv, p->batch, p->kv_heads, p->n_key, p->d_value}};
    enum attn_status status = attn_impl_dense.backward(&own, p, t);
    for (int n = 0; n < 3 && status == ATTN_OK; n++)
        status = spoil(ctx, &out[n]);
    if (status == ATTN_OK && ctx->options->value[0] <= NULL_MEAN)
        attn_dbias_clear(p, &t->dbias);
    if (status == ATTN_OK && ctx->options->value[0] == NULL_MEAN)
        mean_gradient(p, t);
    return status;
}

/* Nothing on the caller's ledger. */
static enum attn_status cost(const struct attn_problem *p, const struct attn_options *opt,
                             enum attn_pass pass, int rank, struct attn_cost *cost,
                             struct attn_error *err)
{
    (void)p, (void)opt, (void)pass, (void)rank, (void)cost, (void)err;
    return ATTN_OK;
}

const struct attn_impl variant_null = {
    .name = "null",
    .summary = "nonsense with the right LSE: for the tests of the battery",
    .family = "test",
    .caps = ATTN_CAPS_ALL,
    .options = options,
    .cost = cost,
    .forward = forward,
    .backward = backward,
};
