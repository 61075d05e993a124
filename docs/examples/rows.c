/* rows: attention one query row at a time.  The example of docs/adding.md: a whole implementation
 * in one file.  Memory O(Lk) a call, forward only, f32 only, [B,H,L,d] contiguous: what it does not
 * claim, it is never asked. */
#include <math.h>

#include "ref/impl.h"
#include "ref/problem.h"

/* The price, without running: one row of scores. */
static enum attn_status cost(const struct attn_problem *p, const struct attn_options *options,
                             enum attn_pass pass, int rank, struct attn_cost *cost,
                             struct attn_error *err)
{
    (void)options, (void)pass, (void)rank;
    cost->pairs = (double)attn_problem_all_pairs(p, &cost->counted);
    cost->flops = 2 * cost->pairs * (double)(p->d_key + p->d_value);
    return attn_cost_add(cost, "scores.row", 1, p->n_key, sizeof(float), err);
}

/* o = sum_j softmax(s)_j v_j over the n_key scores of a row; returns LSE.  Hidden scores are
 * -inf and their v is not touched. */
static float weigh(const float *s, const float *v, int64_t n_key, int64_t width, float *o)
{
    float m = -INFINITY, l = 0;
    for (int64_t c = 0; c < width; c++)
        o[c] = 0;
    for (int64_t j = 0; j < n_key; j++)
        if (s[j] > m || s[j] != s[j])
            m = s[j];
    if (m == -INFINITY)
        return -INFINITY; /* nothing visible: O = 0 */
    for (int64_t j = 0; j < n_key; j++) {
        if (s[j] == -INFINITY)
            continue;
        float p = expf(s[j] - m);
        l += p;
        for (int64_t c = 0; c < width; c++)
            o[c] += p * v[j * width + c];
    }
    for (int64_t c = 0; c < width; c++)
        o[c] /= l;
    return m + logf(l);
}

static enum attn_status forward(struct attn_ctx *ctx, const struct attn_problem *p,
                                const struct attn_forward *t)
{
    float *s = attn_ledger_take(ctx->ledger, "scores.row", p->n_key, sizeof *s, ctx->error);
    if (s == NULL)
        return ATTN_ENOMEM;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t i = 0; i < p->n_query; i++) {
                int64_t row = (b * p->heads + h) * p->n_query + i;
                int64_t head = (b * p->heads + h) * p->n_key;
                const float *q = (const float *)t->q.data + row * p->d_key;
                for (int64_t j = 0; j < p->n_key; j++) {
                    const float *k = (const float *)t->k.data + (head + j) * p->d_key;
                    s[j] = 0;
                    for (int64_t c = 0; c < p->d_key; c++)
                        s[j] += q[c] * k[c];
                    s[j] = attn_problem_allows(p, b, h, i, j) ? (float)p->scale * s[j] : -INFINITY;
                }
                ((float *)t->lse.data)[row] =
                    weigh(s, (const float *)t->v.data + head * p->d_value, p->n_key, p->d_value,
                          (float *)t->o.data + row * p->d_value);
            }
    attn_ledger_give(ctx->ledger, s);
    return ATTN_OK;
}

const struct attn_impl attn_impl_rows = {
    .name = "rows",
    .summary = "one query row at a time",
    .family = "example",
    .caps = ATTN_CAP_F32 | ATTN_CAP_CROSS | ATTN_CAP_DV | ATTN_CAP_MASK | ATTN_CAP_HARD,
    .cost = cost,
    .forward = forward,
};
