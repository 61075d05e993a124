/* csr-textbook: attention over the visible pairs only, kept as compressed sparse rows.
 *
 * Memory   the pattern (mask/pattern.h), and two values for each visible pair of all heads: scores
 *          and probabilities (forward), probabilities and dscores (backward); backward also one kv
 *          head's dK and dV.  Against dense this pays while fewer than about
 *          8 / (8 + 4 / heads sharing the pattern) of the pairs are visible.
 * Flops    2 (d + dv) per visible pair forward, 2 (3 d + 2 dv) backward.
 * Source   SDDMM, softmax, SpMM: Gale et al. 2020 (Sputnik); the layout of xformers' SparseCS.
 * Caveats  Rows are walked one pair at a time: K and V rows are gathered, nothing is blocked.
 *          Three passes over stored values, where a fused loop would need none of them.
 */
#include <math.h>

#include "ref/ledger.h"
#include "ref/mask/pattern.h"
#include "ref/problem.h"
#include "ref/textbook.h"

#define REAL      float
#define FN(name)  name##_f32
#define REAL_EXP  expf
#define REAL_LOG  logf
#define REAL_TANH tanhf
#include "ref/textbook_tmpl.h"

#include "ref/csr_tmpl.h"
#undef REAL
#undef FN
#undef REAL_EXP
#undef REAL_LOG
#undef REAL_TANH
#define REAL      double
#define FN(name)  name##_f64
#define REAL_EXP  exp
#define REAL_LOG  log
#define REAL_TANH tanh
#include "ref/textbook_tmpl.h"

#include "ref/csr_tmpl.h"

static int64_t room_elements(const struct attn_problem *p)
{
    return 2 * p->d_key + 2 * p->d_value; /* a row of q, k, v, o at a time, or of their gradients */
}

static enum attn_status accepts(const struct attn_problem *p, const struct attn_options *opt,
                                struct attn_error *err)
{
    (void)opt;
    if (p->n_key > INT32_MAX)
        return attn_fail(err, ATTN_ENOTSUP,
                         "csr-textbook indexes keys with 32 bits: %lld keys are "
                         "too many, 2147483647 would work",
                         (long long)p->n_key);
    return ATTN_OK;
}

static enum attn_status cost(const struct attn_problem *p, const struct attn_options *opt,
                             enum attn_pass pass, int rank, struct attn_cost *cost,
                             struct attn_error *err)
{
    (void)opt, (void)rank;
    int64_t real = p->dtype == ATTN_F64 ? 8 : 4, pairs;
    int backward = pass == ATTN_BACKWARD;
    enum attn_status status = attn_csr_cost(p, cost, NULL, &pairs, err);
    if (status == ATTN_OK)
        status = attn_cost_add(cost, backward ? "probs" : "scores", pairs, real, err);
    if (status == ATTN_OK)
        status = attn_cost_add(cost, backward ? "dscores" : "probs", pairs, real, err);
    if (status == ATTN_OK && backward)
        status = attn_cost_add(cost, "dk", attn_product(p->n_key, p->d_key), real, err);
    if (status == ATTN_OK && backward)
        status = attn_cost_add(cost, "dv", attn_product(p->n_key, p->d_value), real, err);
    if (status == ATTN_OK)
        status = attn_cost_add(cost, "rows", room_elements(p), real, err);
    cost->flops = 2.0 * (double)pairs *
                  (double)(backward ? 3 * p->d_key + 2 * p->d_value : p->d_key + p->d_value);
    return status;
}

struct buffers {
    struct attn_csr csr;
    void *first, *second, *dk, *dv, *room;
};

static enum attn_status take(struct attn_ctx *ctx, const struct attn_problem *p,
                             enum attn_pass pass, struct buffers *x)
{
    int64_t real = p->dtype == ATTN_F64 ? 8 : 4, pairs = 0;
    int backward = pass == ATTN_BACKWARD;
    enum attn_status status = attn_csr_build(p, ctx->ledger, &x->csr, ctx->error);
    if (status != ATTN_OK)
        return status;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->heads; h++) {
            const int64_t *start =
                x->csr.row_start + (b * x->csr.batch_step + h * x->csr.head_step) * p->n_query;
            pairs += start[p->n_query] - start[0];
        }
    x->first =
        attn_ledger_take(ctx->ledger, backward ? "probs" : "scores", pairs, real, ctx->error);
    if (x->first == NULL)
        return ATTN_ENOMEM;
    x->second =
        attn_ledger_take(ctx->ledger, backward ? "dscores" : "probs", pairs, real, ctx->error);
    if (x->second == NULL)
        return ATTN_ENOMEM;
    if (backward) {
        x->dk = attn_ledger_take(ctx->ledger, "dk", p->n_key * p->d_key, real, ctx->error);
        if (x->dk == NULL)
            return ATTN_ENOMEM;
        x->dv = attn_ledger_take(ctx->ledger, "dv", p->n_key * p->d_value, real, ctx->error);
        if (x->dv == NULL)
            return ATTN_ENOMEM;
    }
    x->room = attn_ledger_take(ctx->ledger, "rows", room_elements(p), real, ctx->error);
    return x->room != NULL ? ATTN_OK : ATTN_ENOMEM;
}

static void give(struct attn_ctx *ctx, struct buffers *x)
{
    attn_ledger_give(ctx->ledger, x->room);
    attn_ledger_give(ctx->ledger, x->dv);
    attn_ledger_give(ctx->ledger, x->dk);
    attn_ledger_give(ctx->ledger, x->second);
    attn_ledger_give(ctx->ledger, x->first);
    attn_csr_free(&x->csr, ctx->ledger);
}

static enum attn_status forward(struct attn_ctx *ctx, const struct attn_problem *p,
                                const struct attn_forward *t)
{
    struct buffers x = {0};
    enum attn_status status = take(ctx, p, ATTN_FORWARD, &x);
    if (status == ATTN_OK && p->dtype == ATTN_F64)
        csr_forward_f64(p, &x.csr, t, x.first, x.second, x.room);
    else if (status == ATTN_OK)
        csr_forward_f32(p, &x.csr, t, x.first, x.second, x.room);
    give(ctx, &x);
    return status;
}

static enum attn_status backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                 const struct attn_backward *t)
{
    struct buffers x = {0};
    enum attn_status status = take(ctx, p, ATTN_BACKWARD, &x);
    if (status == ATTN_OK) {
        attn_dbias_clear(p, &t->dbias);
        if (p->dtype == ATTN_F64)
            csr_backward_f64(p, &x.csr, t, x.first, x.second, x.dk, x.dv, x.room);
        else
            csr_backward_f32(p, &x.csr, t, x.first, x.second, x.dk, x.dv, x.room);
    }
    give(ctx, &x);
    return status;
}

const struct attn_impl attn_impl_csr_textbook = {
    .name = "csr-textbook",
    .summary = "visible pairs only, as compressed sparse rows: SDDMM, softmax, SpMM",
    .family = "csr",
    .caps = ATTN_TEXTBOOK_CAPS,
    .accepts = accepts,
    .cost = cost,
    .forward = forward,
    .backward = backward,
};
