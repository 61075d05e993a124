/* Relations that attention obeys whatever the numbers are (derivatives by differences among them),
 * asked of the oracle under the bounds of implementations.  (How near the oracle is to the truth:
 * test_golden.c.) */

#include <string.h>

#include "ref/textbook.h"
#include "tests/harness/relations/relations.h"
#include "tests/suites.h"

SUITE(oracle, .seconds = 120);

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
    for (int n = 0; n < ATTN_RELATION_COUNT; n++) {
        const struct attn_relation *relation = &attn_relations[n];
        const char *id = relation->id;
        struct attn_result r;
        attn_relation_run(relation, &spec, NULL, &r);
        int no_options = strcmp(id, "R17") == 0, no_f64 = strcmp(id, "G8") == 0 && !_i;
        ck_assert_msg(r.verdict == (no_options || no_f64 ? ATTN_REFUSED : ATTN_PASS), "%s: %s", id,
                      r.text);
    }
}
