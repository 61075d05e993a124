/* See toy.h. */
#include "tests/toy.h"

#include <stdint.h>

#include "ref/problem.h"

static const struct attn_impl *honest(void)
{
    return attn_impl_find("tiled-textbook");
}

static enum attn_status toy_cost(const struct attn_problem *p, const struct attn_options *options,
                                 enum attn_pass pass, int rank, struct attn_cost *cost,
                                 struct attn_error *err)
{
    struct attn_options preset;
    (void)options;
    attn_options_preset(honest(), &preset);
    return honest()->cost(p, &preset, pass, rank, cost, err);
}

static int64_t toy_rescales(const struct attn_problem *p, const struct attn_options *options)
{
    struct attn_options preset;
    (void)options;
    attn_options_preset(honest(), &preset);
    return honest()->rescales(p, &preset);
}

/* x += by, in the view's type. */
static void add(const struct attn_view *x, const int64_t at[4], double by)
{
    int64_t n = attn_offset(x->stride, at[0], at[1], at[2]) + at[3] * x->stride[3];
    if (x->dtype == ATTN_F64)
        ((double *)x->data)[n] += by;
    else
        ((float *)x->data)[n] += (float)by;
}

static double get(const struct attn_cview *x, int64_t b, int64_t h, int64_t i, int64_t c)
{
    return attn_cview_get(x, b, h, i, c);
}

/* Histories: what an implementation must not have. */
static int calls;
static int64_t last_keys;

/* What is added to one element of O. */
static double spoil_o(enum toy_mischief m, const struct attn_ctx *ctx, const struct attn_problem *p,
                      const struct attn_forward *t, const int64_t at[4])
{
    double o = attn_view_get(&t->o, at[0], at[1], at[2], at[3]), small = 1e-3;
    int64_t g = at[1] / (p->heads / p->kv_heads);
    switch (m) {
    case TOY_O_CURVED:
        return small * o * o;
    case TOY_O_LARGE:
        return o / 2;
    case TOY_O_BY_ROW:
        return small * (double)at[2];
    case TOY_O_BY_FEATURE:
        return small * get(&t->q, at[0], at[1], at[2], 0);
    case TOY_O_BY_GROUPS:
        return small * (double)p->kv_heads;
    case TOY_O_BY_LENGTH:
        return small * (double)p->n_query;
    case TOY_O_BY_MASK:
        return p->mask != NULL ? small : 0;
    case TOY_O_BY_NEIGHBOUR:
        return small * get(&t->q, at[0], (at[1] + 1) % p->heads, at[2], 0);
    case TOY_O_BY_COLUMN:
        return small * get(&t->v, at[0], g, 0, (at[3] + 1) % p->d_value);
    case TOY_O_BY_LAST_V:
        return 0 * get(&t->v, at[0], g, p->n_key - 1, 0);
    case TOY_O_BY_LAYOUT:
        return t->q.stride[3] == 1 && t->q.stride[2] == p->d_key ? 0 : small;
    case TOY_O_BY_OPTION:
        return small * (double)ctx->options->value[1];
    case TOY_O_BY_ADDRESS:
        return (uintptr_t)t->q.data % 64 == 0 ? 0 : small;
    case TOY_O_BY_THREADS:
        return small * ctx->options->threads;
    case TOY_O_BY_CALLS:
        return small * calls;
    case TOY_O_BY_HISTORY:
        return small * (double)last_keys;
    case TOY_ONE_TOO_FAR:
        return attn_view_get(&t->o, p->batch - 1, p->heads - 1, p->n_query - 1, p->d_value) > 1e300;
    default:
        return 0;
    }
}

static void spoil_forward(enum toy_mischief m, const struct attn_ctx *ctx,
                          const struct attn_problem *p, const struct attn_forward *t)
{
    int64_t at[4];
    calls++;
    for (at[0] = 0; at[0] < p->batch; at[0]++)
        for (at[1] = 0; at[1] < p->heads; at[1]++)
            for (at[2] = 0; at[2] < p->n_query; at[2]++) {
                for (at[3] = 0; at[3] < p->d_value; at[3]++)
                    add(&t->o, at, spoil_o(m, ctx, p, t, at));
                at[3] = 0;
                double lse = attn_view_get(&t->lse, at[0], at[1], at[2], 0);
                if (m == TOY_LSE_BASE_2 && lse > -HUGE_VAL)
                    add(&t->lse, at, lse * 0.4426950408889634); /* 1 / ln 2 - 1 */
                if (m == TOY_LSE_OFFSET)
                    add(&t->lse, at, 1);
            }
    last_keys = p->n_key;
}

static enum attn_status toy_forward(struct attn_ctx *ctx, const struct attn_problem *problem,
                                    const struct attn_forward *given)
{
    enum toy_mischief m = (enum toy_mischief)ctx->options->value[0];
    struct attn_options preset;
    struct attn_ctx own = *ctx;
    struct attn_problem p = *problem;
    struct attn_forward t = *given;
    attn_options_preset(honest(), &preset);
    own.options = &preset;
    if (m == TOY_ONE_KEY_LESS && p.n_key > 1)
        p.n_key--;
    for (int axis = 0; axis < 4 && m == TOY_NARROW_STRIDE; axis++)
        t.q.stride[axis] = (int32_t)t.q.stride[axis];
    if (m == TOY_NARROW_ORIGIN)
        p.origin.query = (uint16_t)p.origin.query;
    enum attn_status status = honest()->forward(&own, &p, &t);
    if (status == ATTN_OK)
        spoil_forward(m, ctx, problem, given);
    return status;
}

/* ---- backward -------------------------------------------------------------------------------- */

static double spoil_gradient(enum toy_mischief m, const struct attn_view *x,
                             const struct attn_backward *t, const int64_t at[4])
{
    double value = attn_view_get(x, at[0], at[1], at[2], at[3]);
    if ((m == TOY_DK_OFFSET && x == &t->dk) || (m == TOY_DBIAS_OFFSET && x == &t->dbias))
        return 1e-2;
    if ((m == TOY_DV_LARGE && x == &t->dv) || (m == TOY_DQ_LARGE && x == &t->dq))
        return 1e-2 * value;
    if (m == TOY_DQ_BY_KEY && x == &t->dq)
        return 1e-2 * get(&t->k, at[0], 0, 0, 0);
    if (m == TOY_DV_BY_FIRST && x == &t->dv)
        return 0 * get(&t->d_o, at[0], 0, 0, 0);
    return 0;
}

static void spoil(enum toy_mischief m, const struct attn_view *x, const struct attn_backward *t,
                  int64_t batch, int64_t heads, int64_t rows, int64_t width)
{
    int64_t at[4];
    for (at[0] = 0; at[0] < (x->stride[0] != 0 ? batch : 1); at[0]++)
        for (at[1] = 0; at[1] < (x->stride[1] != 0 ? heads : 1); at[1]++)
            for (at[2] = 0; at[2] < rows; at[2]++)
                for (at[3] = 0; at[3] < width; at[3]++)
                    add(x, at, spoil_gradient(m, x, t, at));
}

static enum attn_status toy_backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                     const struct attn_backward *t)
{
    enum toy_mischief m = (enum toy_mischief)ctx->options->value[0];
    struct attn_options preset;
    struct attn_ctx own = *ctx;
    attn_options_preset(honest(), &preset);
    own.options = &preset;
    enum attn_status status = honest()->backward(&own, p, t);
    if (status != ATTN_OK)
        return status;
    spoil(m, &t->dq, t, p->batch, p->heads, p->n_query, p->d_key);
    spoil(m, &t->dk, t, p->batch, p->kv_heads, p->n_key, p->d_key);
    spoil(m, &t->dv, t, p->batch, p->kv_heads, p->n_key, p->d_value);
    if (t->dbias.data != NULL)
        spoil(m, &t->dbias, t, p->batch, p->heads, p->n_query, p->n_key);
    return ATTN_OK;
}

static const struct attn_option toy_options[] = {
    {"mischief", TOY_HONEST, 0, TOY_MISCHIEFS - 1, NULL, "what is wrong"},
    {"tile", 8, 1, 64, NULL, "nothing: relations vary it"},
    {0}};

static const struct attn_impl toy = {
    .name = "toy",
    .summary = "right, or wrong in one way",
    .family = "test",
    .caps = ATTN_CAP_F64 | ATTN_CAP_F32 | ATTN_CAP_BACKWARD | ATTN_CAP_GQA | ATTN_CAP_CROSS |
            ATTN_CAP_DV | ATTN_CAP_MASK | ATTN_CAP_HARD | ATTN_CAP_SOFTCAP | ATTN_CAP_ALIBI |
            ATTN_CAP_BIAS | ATTN_CAP_DBIAS | ATTN_CAP_DLSE | ATTN_CAP_STRIDES,
    .options = toy_options,
    .rescales = toy_rescales,
    .cost = toy_cost,
    .forward = toy_forward,
    .backward = toy_backward};

struct attn_spec toy_spec(enum toy_mischief mischief)
{
    struct attn_spec spec = {.impl = &toy};
    attn_options_preset(&toy, &spec.options);
    spec.options.value[0] = mischief;
    return spec;
}
