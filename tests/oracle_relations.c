/* Relations that attention obeys whatever the numbers are, asked of the oracle: derivatives by
 * differences (G8), and all that implementations must meet, under their own bounds.  (How near the
 * oracle is to the truth: test_golden.c.) */

#include <math.h>
#include <string.h>

#include "ref/textbook.h"
#include "tests/fixtures/oracle_fixture.h"
#include "tests/harness/fill.h"
#include "tests/harness/relations/relations.h"
#include "tests/suites.h"

SUITE(oracle, .seconds = 120);

static const struct fixture_shape shapes[] = {
    {2, 4, 2, 7, 11, 6, 5, NULL, 0.4, 0, ATTN_BIAS_NONE, 0},
    {1, 4, 2, 12, 9, 5, 8, "causal(br)", 0.5, 0, ATTN_BIAS_NONE, 0},
    {2, 2, 2, 10, 14, 4, 4, "window(4,2,br)", 0.9, 0, ATTN_BIAS_NONE, 0},
    {1, 2, 1, 9, 12, 8, 3, "random(0.5,3,heads)", 0.3, 0, ATTN_BIAS_TENSOR, 0},
    {1, 4, 4, 8, 13, 4, 6, "causal(tl)", 0.6, 0, ATTN_BIAS_ALIBI, 0},
};

static double sum_of(const double *x, const double *y, int64_t n)
{
    long double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (long double)x[i] * (long double)y[i];
    return (double)sum;
}

static double size_of(const double *x, const double *y, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += fabs(x[i] * y[i]);
    return sum;
}

/* ---- G8: derivatives ------------------------------------------------------------------------ */

enum input { AT_Q, AT_K, AT_V, AT_BIAS, INPUTS };

static double *input_of(struct fixture *x, enum input at)
{
    double *const list[INPUTS] = {x->q, x->k, x->v, x->bias};
    return list[at];
}

/* L = <dO, O> + <dLSE, LSE>, at input + step * direction. */
static double loss(struct fixture *x, enum input at, const double *direction, double step,
                   int64_t n)
{
    double *in = input_of(x, at), kept[LAB_MOST];
    memcpy(kept, in, (size_t)n * sizeof *in);
    for (int64_t i = 0; i < n; i++)
        in[i] += step * direction[i];
    fixture_run(x, ATTN_F64);
    memcpy(in, kept, (size_t)n * sizeof *in);
    long double sum = (long double)sum_of(x->d_o, x->o, fixture_size(x, ATTN_O));
    for (int64_t r = 0; r < fixture_size(x, ATTN_LSE) && x->has_d_lse; r++)
        if (isfinite(x->lse[r]))
            sum += (long double)x->d_lse[r] * (long double)x->lse[r];
    return (double)sum;
}

/* The derivative of L along five seeded directions for each input is <gradient, direction>.  The
 * four-point difference errs by h^4 L'''''/30 and by u |L| / h: 1e-9 of the sizes covers both. */
TEST_EACH(derivatives, COUNT(shapes))
{
    static const enum attn_output gradient[INPUTS] = {ATTN_DQ, ATTN_DK, ATTN_DV, ATTN_DBIAS};
    static const double softcap[] = {0, 2};
    const double h = 0x1p-10;
    struct fixture_shape s = shapes[_i];
    s.d_lse = 1;
    for (int cap = 0; cap < 2; cap++) {
        s.softcap = softcap[cap];
        struct fixture *x = fixture_open(&s, 100 + (uint64_t)_i);
        for (int at = 0; at < INPUTS; at++) {
            double grad[LAB_MOST], v[LAB_MOST];
            fixture_run(x, ATTN_F64);
            int64_t n = fixture_size(x, gradient[at]);
            ck_assert(n > 0 || (at == AT_BIAS && s.bias != ATTN_BIAS_TENSOR));
            if (n > 0)
                memcpy(grad, x->truth.tensor[gradient[at]].want, (size_t)n * sizeof *grad);
            for (uint64_t direction = 0; direction < 5 && n > 0; direction++) {
                for (int64_t i = 0; i < n; i++)
                    v[i] = attn_hash_normal(200 + direction, (uint64_t)at, (uint64_t)i);
                enum input in = (enum input)at;
                double near = loss(x, in, v, h, n) - loss(x, in, v, -h, n);
                double far = loss(x, in, v, 2 * h, n) - loss(x, in, v, -2 * h, n);
                fixture_near("derivative", at, (8 * near - far) / (12 * h), sum_of(grad, v, n),
                             1e-9 * (1 + size_of(grad, v, n)));
            }
        }
        fixture_close(x);
    }
}

/* ---- all relations --------------------------------------------------------------------------- */

/* The oracle as an implementation: its answers, rounded to the type of the problem. */
static enum attn_status answer(struct attn_ctx *ctx, const struct attn_problem *p,
                               const struct attn_inputs *in,
                               const struct attn_view *const output[ATTN_OUTPUTS])
{
    const struct attn_options options = {.threads = 1};
    struct attn_precision precision;
    struct attn_truth truth;
    attn_precision_of(&attn_impl_dense, &options, p, &precision);
    enum attn_status status = attn_truth_compute(p, in, &precision, NULL, &truth, ctx->error);
    for (int o = 0; o < ATTN_OUTPUTS && status == ATTN_OK; o++) {
        if (output[o] == NULL || output[o]->data == NULL)
            continue;
        struct attn_tensor to = {.dtype = output[o]->dtype, .data = output[o]->data};
        memcpy(to.stride, output[o]->stride, sizeof to.stride);
        int64_t at[4] = ATTN_START;
        for (int64_t n = 0; attn_each(at, truth.tensor[o].extent); n++)
            attn_tensor_set(&to, at[0], at[1], at[2], at[3], truth.tensor[o].want[n]);
    }
    attn_truth_free(&truth);
    return status;
}

static enum attn_status oracle_forward(struct attn_ctx *ctx, const struct attn_problem *p,
                                       const struct attn_forward *t)
{
    const struct attn_inputs in = {.q = t->q, .k = t->k, .v = t->v};
    return answer(ctx, p, &in, (const struct attn_view *const[ATTN_OUTPUTS]){&t->o, &t->lse});
}

static enum attn_status oracle_backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                        const struct attn_backward *t)
{
    const struct attn_inputs in = {.q = t->q,
                                   .k = t->k,
                                   .v = t->v,
                                   .d_o = t->d_o,
                                   .d_lse = t->d_lse,
                                   .want_d_bias = t->dbias.data != NULL};
    return answer(ctx, p, &in,
                  (const struct attn_view *const[ATTN_OUTPUTS]){NULL, NULL, &t->dq, &t->dk, &t->dv,
                                                                &t->dbias});
}

static enum attn_status oracle_cost(const struct attn_problem *p,
                                    const struct attn_options *options, enum attn_pass pass,
                                    int rank, struct attn_cost *cost, struct attn_error *err)
{
    (void)p, (void)options, (void)pass, (void)rank, (void)cost, (void)err;
    return ATTN_OK; /* nothing of the ledger's */
}

/* Each relation that implementations must meet (tests/harness/relations), in double (f32) and in
 * long double (f64). */
TEST_EACH(relations, 2)
{
    enum { ALL = (ATTN_CAP_STRIDES << 1) - 1 };
    struct attn_impl oracle = {.name = "oracle",
                               .summary = "the oracle itself",
                               .family = "test",
                               .caps = ALL & ~(_i ? ATTN_CAP_F32 : ATTN_CAP_F64),
                               .cost = oracle_cost,
                               .forward = oracle_forward,
                               .backward = oracle_backward};
    const struct attn_spec spec = {.impl = &oracle, .options = {.threads = 1}};
    for (int n = 0; n < attn_relation_count(); n++) {
        const struct attn_relation *relation = attn_relation_at(n);
        const char *id = relation->id;
        struct attn_result r;
        attn_relation_run(relation, &spec, &r);
        int no_options = strcmp(id, "R17") == 0, no_f64 = strcmp(id, "G8") == 0 && !_i;
        ck_assert_msg(r.verdict == (no_options || no_f64 ? ATTN_REFUSED : ATTN_PASS), "%s: %s", id,
                      r.text);
    }
}
