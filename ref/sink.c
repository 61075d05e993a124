/* See sink.h. */
#include "ref/sink.h"

#include <math.h>

double attn_sink_of(const struct attn_problem *p, int64_t h)
{
    return p->sink.given ? attn_cview_get(&p->sink.tensor, 0, p->origin.head + h, 0, 0)
                         : -(double)INFINITY;
}

double attn_sink_row_forward(const struct attn_view *o, const struct attn_view *lse,
                             const int64_t at[3], int64_t dv, double z)
{
    double before = attn_view_get(lse, at[0], at[1], at[2], 0);
    if (z == -(double)INFINITY)
        return 1;
    if (before == -(double)INFINITY) { /* no key has weight: O is 0, and stays so */
        attn_view_set(lse, at[0], at[1], at[2], 0, z);
        return 0;
    }
    /* the larger one is taken out, so that nothing overflows; a NaN ends in both */
    double most = before >= z ? before : z, least = before >= z ? z : before;
    double after = most + log1p(exp(least - most)), weight = exp(before - after);
    attn_view_set(lse, at[0], at[1], at[2], 0, after);
    for (int64_t c = 0; c < dv; c++)
        attn_view_set(o, at[0], at[1], at[2], c, weight * attn_view_get(o, at[0], at[1], at[2], c));
    return weight;
}

double attn_sink_row_backward(const struct attn_backward *t, const int64_t at[3], int64_t dv,
                              double z, int sees)
{
    double D = 0;
    if (z == -(double)INFINITY)
        return 0;
    for (int64_t c = 0; c < dv && sees; c++)
        D += attn_cview_get(&t->d_o, at[0], at[1], at[2], c) *
             attn_cview_get(&t->o, at[0], at[1], at[2], c);
    if (t->d_lse.data != NULL)
        D -= attn_cview_get(&t->d_lse, at[0], at[1], at[2], 0);
    return -exp(z - attn_cview_get(&t->lse, at[0], at[1], at[2], 0)) * D;
}

void attn_sink_forward(const struct attn_ctx *ctx, const struct attn_impl *impl,
                       const struct attn_problem *p, const struct attn_forward *t)
{
    int weighs = impl->weigh != NULL && ctx->saved != NULL && ctx->saved->data != NULL;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t i = 0; i < p->n_query; i++) {
                const int64_t at[3] = {b, h, i};
                double weight =
                    attn_sink_row_forward(&t->o, &t->lse, at, p->d_value, attn_sink_of(p, h));
                if (weighs)
                    impl->weigh(ctx->saved, b, h, i, weight);
            }
}

void attn_sink_backward(const struct attn_problem *p, const struct attn_backward *t, void *lse)
{
    const struct attn_view copy = attn_packed_view(lse, attn_lse_dtype(p), p->heads, p->n_query, 1);
    for (int64_t h = 0; h < p->heads; h++) {
        double z = attn_sink_of(p, h), dz = 0;
        for (int64_t b = 0; b < p->batch; b++)
            for (int64_t i = 0; i < p->n_query; i++) {
                const int64_t at[3] = {b, h, i};
                int sees = attn_problem_sees(p, b, h, i);
                double stored = attn_cview_get(&t->lse, b, h, i, 0);
                attn_view_set(&copy, b, h, i, 0, sees ? stored : -(double)INFINITY);
                if (t->dsink.data != NULL)
                    dz += attn_sink_row_backward(t, at, p->d_value, z, sees);
            }
        if (t->dsink.data != NULL)
            attn_view_set(&t->dsink, 0, h, 0, 0, dz);
    }
}
