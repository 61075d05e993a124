/* See honest.h. */
#include "tests/variants/honest.h"

#include <math.h>

#include "optimized/merge.h"
#include "ref/ledger.h"
#include "ref/problem.h"
#include "ref/textbook.h"
#include "tests/harness/bound/bound.h"

#define LOG2_E 1.4426950408889634
#define LN_2   0.6931471805599453

static const struct attn_option options[] = {
    {"order", HONEST_FORWARD, 0, 2, "forward reverse pairwise", "in which sums are added"},
    {"exp", HONEST_E, 0, 1, "e two", "the base of the exponential"},
    {"splits", 1, 1, 64, NULL, "parts of the keys"},
    {"p", HONEST_EXACT, 0, 2, "exact bf16 f16", "how P is rounded before it is used"},
    {"delta", HONEST_DOT, 0, 1, "dot sum", "how D is computed"},
    {0}};

/* x rounded to so many significant bits, with subnormals below 2^least. */
static double round_to(double x, int bits, int least)
{
    int e;
    if (x == 0 || !isfinite(x))
        return x;
    frexp(x, &e); /* |x| in [2^(e-1), 2^e) */
    e = e - 1 > least ? e - 1 : least;
    return ldexp(rint(ldexp(x, bits - 1 - e)), e - bits + 1);
}

static double round_p(const struct attn_options *style, double x)
{
    switch ((enum honest_p)style->value[HONEST_P]) {
    case HONEST_BF16:
        return round_to(x, 8, -126);
    case HONEST_F16:
        return round_to(x, 11, -14);
    case HONEST_EXACT:
        break;
    }
    return x;
}

/* dS is no probability: in f16 it would overflow without a loss scale. */
static double round_ds(const struct attn_options *style, double x)
{
    return style->value[HONEST_P] == HONEST_BF16 ? round_p(style, x) : x;
}

static int64_t visible_keys(const struct attn_problem *p, int64_t b, int64_t h, int64_t i,
                            int64_t *key)
{
    int64_t n = 0, lo, hi;
    for (int64_t from = 0; attn_problem_next(p, b, h, i, from, &lo, &hi); from = hi)
        for (int64_t j = lo; j < hi; j++)
            key[n++] = j;
    return n;
}

/* Buffers of either arithmetic type: rows of scores and terms, of each tensor, and for the backward
 * all of P and dS of one kv head. */
struct honest_room {
    int64_t *key;
    void *s, *p, *term, *q, *k, *v, *o, *o2, *probs, *dscores;
};

static int64_t group_rows(const struct attn_problem *p)
{
    return p->kv_heads > 0 ? p->heads / p->kv_heads * p->n_query : 0;
}

static int64_t term_rows(const struct attn_problem *p)
{
    return p->n_key > group_rows(p) ? p->n_key : group_rows(p);
}

static int64_t real_size(const struct attn_problem *p)
{
    return p->dtype == ATTN_F64 ? 8 : 4;
}

#define REAL       float
#define FN(name)   name##_f32
#define REAL_EXP   expf
#define REAL_LOG   logf
#define REAL_TANH  tanhf
#define REAL_EXP2  exp2f
#define REAL_LOG2  log2f
#define REAL_MERGE attn_merge_f32
#include "tests/variants/row_tmpl.h"

#include "tests/variants/honest_tmpl.h"
#undef REAL
#undef FN
#undef REAL_EXP
#undef REAL_LOG
#undef REAL_TANH
#undef REAL_EXP2
#undef REAL_LOG2
#undef REAL_MERGE
#define REAL       double
#define FN(name)   name##_f64
#define REAL_EXP   exp
#define REAL_LOG   log
#define REAL_TANH  tanh
#define REAL_EXP2  exp2
#define REAL_LOG2  log2
#define REAL_MERGE attn_merge_f64
#include "tests/variants/row_tmpl.h"

#include "tests/variants/honest_tmpl.h"

/* ---- the record ----------------------------------------------------------------------------- */

static enum attn_status take(struct attn_ctx *ctx, const struct attn_problem *p,
                             enum attn_pass pass, struct honest_room *x)
{
    int64_t real = real_size(p), d = p->d_key, dv = p->d_value, n = p->n_key, t = term_rows(p);
    char *row = attn_ledger_take(ctx->ledger, "rows", 2 * n + t + 2 * d + 3 * dv, real, ctx->error);
    x->key = attn_ledger_take(ctx->ledger, "keys", n, (int64_t)sizeof *x->key, ctx->error);
    if (row == NULL || x->key == NULL)
        return ATTN_ENOMEM;
    x->s = row;
    x->p = row + n * real;
    x->term = row + 2 * n * real;
    x->q = row + (2 * n + t) * real;
    x->k = row + (2 * n + t + d) * real;
    x->v = row + (2 * n + t + 2 * d) * real;
    x->o = row + (2 * n + t + 2 * d + dv) * real;
    x->o2 = row + (2 * n + t + 2 * d + 2 * dv) * real;
    if (pass == ATTN_FORWARD)
        return ATTN_OK;
    x->probs = attn_ledger_take(ctx->ledger, "probs", group_rows(p) * n, real, ctx->error);
    x->dscores = attn_ledger_take(ctx->ledger, "dscores", group_rows(p) * n, real, ctx->error);
    return x->probs != NULL && x->dscores != NULL ? ATTN_OK : ATTN_ENOMEM;
}

static void give(struct attn_ctx *ctx, struct honest_room *x)
{
    attn_ledger_give(ctx->ledger, x->dscores);
    attn_ledger_give(ctx->ledger, x->probs);
    attn_ledger_give(ctx->ledger, x->key);
    attn_ledger_give(ctx->ledger, x->s);
}

static enum attn_status cost(const struct attn_problem *p, const struct attn_options *opt,
                             enum attn_pass pass, int rank, struct attn_cost *cost,
                             struct attn_error *err)
{
    (void)opt, (void)rank;
    int64_t real = real_size(p), pairs = group_rows(p) * p->n_key;
    int64_t rows = 2 * p->n_key + term_rows(p) + 2 * p->d_key + 3 * p->d_value;
    enum attn_status status = attn_cost_add(cost, "rows", rows, real, err);
    if (status == ATTN_OK)
        status = attn_cost_add(cost, "keys", p->n_key, (int64_t)sizeof(int64_t), err);
    if (status == ATTN_OK && pass == ATTN_BACKWARD)
        status = attn_cost_add(cost, "probs", pairs, real, err);
    if (status == ATTN_OK && pass == ATTN_BACKWARD)
        status = attn_cost_add(cost, "dscores", pairs, real, err);
    return status;
}

static enum attn_status forward(struct attn_ctx *ctx, const struct attn_problem *p,
                                const struct attn_forward *t)
{
    struct honest_room x = {0};
    enum attn_status status = take(ctx, p, ATTN_FORWARD, &x);
    if (status == ATTN_OK && p->dtype == ATTN_F64)
        honest_forward_f64(p, ctx->options, t, &x);
    else if (status == ATTN_OK)
        honest_forward_f32(p, ctx->options, t, &x);
    give(ctx, &x);
    return status;
}

static enum attn_status backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                 const struct attn_backward *t)
{
    struct honest_room x = {0};
    enum attn_status status = take(ctx, p, ATTN_BACKWARD, &x);
    attn_dbias_clear(p, &t->dbias);
    if (status == ATTN_OK && p->dtype == ATTN_F64)
        honest_backward_f64(p, ctx->options, t, &x);
    else if (status == ATTN_OK)
        honest_backward_f32(p, ctx->options, t, &x);
    give(ctx, &x);
    return status;
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
    (void)p;
    if (opt->value[HONEST_P] == HONEST_BF16)
        x->u_p = 0x1p-8;
    else if (opt->value[HONEST_P] == HONEST_F16)
        x->u_p = 0x1p-11;
}

const struct attn_impl variant_honest = {
    .name = "honest",
    .summary = "right, in many orders and precisions: for the tests of the bound",
    .family = "test",
    .caps = ATTN_TEXTBOOK_CAPS & ~(unsigned)(ATTN_CAP_BF16 | ATTN_CAP_F16),
    .options = options,
    .merges = merges,
    .cost = cost,
    .forward = forward,
    .backward = backward,
    .precision = precision,
};
