/* What a call asks of its tensors and of an implementation's claims, and prices of problems that
 * no machine could hold.  See problem_calls.h. */
#include "tests/problem_calls.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ref/ledger.h"
#include "ref/problem.h"
#include "ref/textbook.h"
#include "tests/fixtures/expected_error.h"

/* ---- calls: tensors ------------------------------------------------------------------------- */

/* b1 h2 g1 q2 k3 d4 dv5, f32, everything contiguous and 0. */
struct call {
    struct attn_problem p;
    float q[16], k[12], v[15], o[20], lse[4], d_o[20], d_lse[4], dq[16], dk[12], dv[15];
    float bias[12], dbias[12];
    struct attn_forward f;
    struct attn_backward b;
};

#define VIEW(x, s0, s1, s2) \
    {                       \
        (x), ATTN_F32,      \
        {                   \
            s0, s1, s2, 1   \
        }                   \
    }

static void open_call(struct call *c)
{
    memset(c, 0, sizeof *c);
    c->p = (struct attn_problem){.batch = 1,
                                 .heads = 2,
                                 .kv_heads = 1,
                                 .n_query = 2,
                                 .n_key = 3,
                                 .d_key = 4,
                                 .d_value = 5,
                                 .scale = 1,
                                 .dtype = ATTN_F32};
    c->f = (struct attn_forward){VIEW(c->q, 16, 8, 4), VIEW(c->k, 12, 12, 4), VIEW(c->v, 15, 15, 5),
                                 VIEW(c->o, 20, 10, 5), VIEW(c->lse, 4, 2, 1)};
    c->b = (struct attn_backward){.q = c->f.q,
                                  .k = c->f.k,
                                  .v = c->f.v,
                                  .o = VIEW(c->o, 20, 10, 5),
                                  .lse = VIEW(c->lse, 4, 2, 1),
                                  .d_o = VIEW(c->d_o, 20, 10, 5),
                                  .dq = VIEW(c->dq, 16, 8, 4),
                                  .dk = VIEW(c->dk, 12, 12, 4),
                                  .dv = VIEW(c->dv, 15, 15, 5)};
}

static enum attn_status run(const struct attn_impl *impl, struct call *c, enum attn_pass pass,
                            struct attn_error *err)
{
    struct attn_ledger ledger;
    struct attn_options options;
    attn_ledger_init(&ledger, NULL);
    attn_options_preset(impl, &options);
    struct attn_ctx ctx = {.ledger = &ledger, .options = &options, .error = err};
    enum attn_status status = pass == ATTN_FORWARD ? attn_run_forward(impl, &ctx, &c->p, &c->f)
                                                   : attn_run_backward(impl, &ctx, &c->p, &c->b);
    ck_assert_int_eq(attn_ledger_clear(&ledger), 0);
    return status;
}

static void call_refused(struct call *c, enum attn_pass pass, enum attn_status status,
                         const char *part)
{
    struct attn_error err = {0};
    said(run(&attn_impl_dense, c, pass, &err), status, &err, part);
    open_call(c);
}

START_TEST(calls_that_work)
{
    struct call c;
    struct attn_error err = {0};
    open_call(&c);
    ck_assert_msg(run(&attn_impl_dense, &c, ATTN_FORWARD, &err) == ATTN_OK, "%s", err.text);
    ck_assert_msg(run(&attn_impl_dense, &c, ATTN_BACKWARD, &err) == ATTN_OK, "%s", err.text);
    ck_assert(c.lse[3] == logf(3));
}
END_TEST

START_TEST(absent_tensors)
{
    struct call c;
    open_call(&c);
    c.f.q.data = NULL, call_refused(&c, 0, ATTN_EINVAL, "tensor q is absent: [1,2,2,4] is needed");
    c.f.k.data = NULL, call_refused(&c, 0, ATTN_EINVAL, "tensor k is absent: [1,1,3,4]");
    c.f.v.data = NULL, call_refused(&c, 0, ATTN_EINVAL, "tensor v is absent: [1,1,3,5]");
    c.f.o.data = NULL, call_refused(&c, 0, ATTN_EINVAL, "tensor o is absent: [1,2,2,5]");
    c.f.lse.data = NULL, call_refused(&c, 0, ATTN_EINVAL, "tensor lse is absent: [1,2,2,1]");
    c.b.q.data = NULL, call_refused(&c, 1, ATTN_EINVAL, "tensor q is absent");
    c.b.o.data = NULL, call_refused(&c, 1, ATTN_EINVAL, "tensor o is absent");
    c.b.lse.data = NULL, call_refused(&c, 1, ATTN_EINVAL, "tensor lse is absent");
    c.b.d_o.data = NULL, call_refused(&c, 1, ATTN_EINVAL, "tensor do is absent: [1,2,2,5]");
    c.b.dq.data = NULL, call_refused(&c, 1, ATTN_EINVAL, "tensor dq is absent: [1,2,2,4]");
    c.b.dk.data = NULL, call_refused(&c, 1, ATTN_EINVAL, "tensor dk is absent: [1,1,3,4]");
    c.b.dv.data = NULL, call_refused(&c, 1, ATTN_EINVAL, "tensor dv is absent: [1,1,3,5]");
    /* what has no elements may be absent */
    struct attn_error err = {0};
    c.p.n_key = 0, c.f.k.data = c.f.v.data = NULL;
    ck_assert_msg(run(&attn_impl_dense, &c, ATTN_FORWARD, &err) == ATTN_OK, "%s", err.text);
    ck_assert(c.lse[0] == -INFINITY);
}
END_TEST

START_TEST(tensors_of_other_types)
{
    struct call c;
    open_call(&c);
    c.f.q.dtype = ATTN_F64;
    call_refused(&c, 0, ATTN_EINVAL, "tensor q is stored as f64: this problem needs f32");
    c.f.k.dtype = ATTN_BF16;
    call_refused(&c, 0, ATTN_EINVAL, "tensor k is stored as bf16: this problem needs f32");
    c.f.o.dtype = ATTN_F16, call_refused(&c, 0, ATTN_EINVAL, "tensor o is stored as f16");
    c.f.lse.dtype = ATTN_F64, call_refused(&c, 0, ATTN_EINVAL, "tensor lse is stored as f64");
    c.b.d_o.dtype = ATTN_F64, call_refused(&c, 1, ATTN_EINVAL, "tensor do is stored as f64");
    c.b.dv.dtype = ATTN_F64, call_refused(&c, 1, ATTN_EINVAL, "tensor dv is stored as f64");
    c.b.d_lse = (struct attn_cview)VIEW(c.d_lse, 4, 2, 1), c.b.d_lse.dtype = ATTN_F64;
    call_refused(&c, 1, ATTN_EINVAL, "tensor dlse is stored as f64: this problem needs f32");
    c.p.dtype = ATTN_F64;
    c.f.q.dtype = c.f.k.dtype = c.f.v.dtype = c.f.o.dtype = ATTN_F64;
    call_refused(&c, 0, ATTN_EINVAL, "tensor lse is stored as f32: this problem needs f64");
}
END_TEST

START_TEST(outputs_that_overlap)
{
    struct call c;
    open_call(&c);
    c.f.o.stride[3] = 0;
    call_refused(&c, 0, ATTN_EINVAL, "output o has stride 0 on axis 3 of extent 5");
    c.f.o.stride[1] = 0, call_refused(&c, 0, ATTN_EINVAL, "output o has stride 0 on axis 1");
    c.f.lse.stride[2] = 0, call_refused(&c, 0, ATTN_EINVAL, "output lse has stride 0 on axis 2");
    c.b.dq.stride[2] = 0, call_refused(&c, 1, ATTN_EINVAL, "output dq has stride 0 on axis 2");
    c.b.dk.stride[2] = 0, call_refused(&c, 1, ATTN_EINVAL, "output dk has stride 0 on axis 2");
    c.b.dv.stride[3] = 0, call_refused(&c, 1, ATTN_EINVAL, "output dv has stride 0 on axis 3");
    /* an axis of one may have any stride, an input any at all */
    struct attn_error err = {0};
    c.f.o.stride[0] = 0, c.b.dk.stride[1] = 0;
    memset(c.f.k.stride, 0, sizeof c.f.k.stride);
    ck_assert_msg(run(&attn_impl_dense, &c, ATTN_FORWARD, &err) == ATTN_OK, "%s", err.text);
    ck_assert_msg(run(&attn_impl_dense, &c, ATTN_BACKWARD, &err) == ATTN_OK, "%s", err.text);
}
END_TEST

START_TEST(bias_values)
{
    struct call c;
    struct attn_error err = {0};
    open_call(&c);
    c.p.bias.kind = ATTN_BIAS_TENSOR, c.p.bias.tensor.dtype = ATTN_F32;
    call_refused(&c, 0, ATTN_EINVAL, "a bias tensor was announced but is absent");
    for (int pass = 0; pass < 2; pass++) {
        c.p.bias.kind = ATTN_BIAS_TENSOR;
        c.p.bias.tensor = (struct attn_cview)VIEW(c.bias, 12, 6, 3);
        c.bias[11] = INFINITY;
        call_refused(&c, (enum attn_pass)pass, ATTN_EINVAL, "bias[0,1,1,2] is +inf");
    }
    c.p.bias.kind = ATTN_BIAS_TENSOR; /* broadcast: one row for all; -inf hides */
    c.p.bias.tensor = (struct attn_cview)VIEW(c.bias, 0, 0, 0);
    c.bias[2] = -INFINITY, c.bias[3] = INFINITY;
    ck_assert_msg(run(&attn_impl_dense, &c, ATTN_FORWARD, &err) == ATTN_OK, "%s", err.text);
    ck_assert(c.lse[3] == logf(2));
    c.p.n_key = 0, c.p.bias.tensor.data = NULL; /* no cell, no tensor */
    ck_assert_msg(run(&attn_impl_dense, &c, ATTN_FORWARD, &err) == ATTN_OK, "%s", err.text);
}
END_TEST

START_TEST(bias_gradients)
{
    struct call c;
    struct attn_error err = {0};
    open_call(&c);
    c.b.dbias = (struct attn_view)VIEW(c.dbias, 12, 6, 3);
    call_refused(&c, 1, ATTN_EINVAL, "dbias was asked for, but the problem has no bias tensor");
    const struct attn_cview bias = VIEW(c.bias, 12, 6, 3);
    c.p.bias.kind = ATTN_BIAS_TENSOR, c.p.bias.tensor = bias;
    c.b.dbias = (struct attn_view)VIEW(c.dbias, 12, 0, 3);
    call_refused(&c, 1, ATTN_EINVAL, "dbias must have stride 0 on axis 1 exactly when the bias");
    c.p.bias.kind = ATTN_BIAS_TENSOR, c.p.bias.tensor = bias, c.p.bias.tensor.stride[2] = 0;
    c.b.dbias = (struct attn_view)VIEW(c.dbias, 12, 6, 3);
    call_refused(&c, 1, ATTN_EINVAL, "stride 0 on axis 2");
    c.p.bias.kind = ATTN_BIAS_TENSOR, c.p.bias.tensor = bias;
    c.b.dbias = (struct attn_view)VIEW(c.dbias, 12, 6, 3), c.b.dbias.dtype = ATTN_F64;
    call_refused(&c, 1, ATTN_EINVAL, "dbias is stored as f64, the bias as f32: must be equal");
    c.p.bias.kind = ATTN_BIAS_TENSOR, c.p.bias.tensor = bias;
    c.b.dbias = (struct attn_view)VIEW(c.dbias, 0, 6, 3); /* of a batch of one */
    ck_assert_msg(run(&attn_impl_dense, &c, ATTN_FORWARD, &err) == ATTN_OK, "%s", err.text);
    ck_assert_msg(run(&attn_impl_dense, &c, ATTN_BACKWARD, &err) == ATTN_OK, "%s", err.text);
}
END_TEST

/* ---- calls: claims -------------------------------------------------------------------------- */

START_TEST(layouts_that_are_not_claimed)
{
    struct attn_impl toy = attn_impl_dense;
    struct call c;
    struct attn_error err = {0};
    toy.caps &= ~(unsigned)ATTN_CAP_STRIDES;
    open_call(&c);
    ck_assert_msg(run(&toy, &c, ATTN_FORWARD, &err) == ATTN_OK, "%s", err.text);
    c.f.q.stride[1] = 4, c.f.q.stride[2] = 8;
    said(run(&toy, &c, ATTN_FORWARD, &err), ATTN_ENOTSUP, &err,
         "tensor q: stride 8 on axis 2, only contiguous [B,H,L,d] (stride 4) is claimed");
    open_call(&c);
    c.f.lse.stride[1] = 3;
    said(run(&toy, &c, ATTN_FORWARD, &err), ATTN_ENOTSUP, &err, "tensor lse: stride 3 on axis 1");
    open_call(&c);
    c.b.d_o.stride[3] = 0;
    said(run(&toy, &c, ATTN_BACKWARD, &err), ATTN_ENOTSUP, &err, "tensor do: stride 0 on axis 3");
    open_call(&c);
    c.f.q.stride[0] = 77, c.f.v.stride[1] = -3; /* axes of one */
    ck_assert_msg(run(&toy, &c, ATTN_FORWARD, &err) == ATTN_OK, "%s", err.text);
}
END_TEST

/* Each capability alone taken away from dense: the call that needs it is refused by name. */
START_TEST(claims)
{
    static const unsigned caps[] = {ATTN_CAP_F32,   ATTN_CAP_BACKWARD, ATTN_CAP_GQA,
                                    ATTN_CAP_CROSS, ATTN_CAP_DV,       ATTN_CAP_MASK,
                                    ATTN_CAP_BIAS,  ATTN_CAP_SOFTCAP,  ATTN_CAP_DLSE,
                                    ATTN_CAP_DBIAS, ATTN_CAP_ALIBI};
    static const double slope[2] = {1, 1};
    struct attn_mask_shape shape = {1, 2, 2, 3};
    struct attn_mask *mask;
    struct call c;
    ck_assert_int_eq(attn_mask_parse("causal(br)", &shape, NULL, &mask, NULL), ATTN_OK);
    for (size_t n = 0; n < sizeof caps / sizeof *caps; n++) {
        struct attn_impl toy = attn_impl_dense;
        struct attn_error err = {0};
        open_call(&c);
        c.p.mask = mask, c.p.softcap = 5;
        c.p.bias = (struct attn_bias){ATTN_BIAS_TENSOR, VIEW(c.bias, 12, 6, 3), slope, 0};
        c.b.d_lse = (struct attn_cview)VIEW(c.d_lse, 4, 2, 1);
        c.b.dbias = (struct attn_view)VIEW(c.dbias, 12, 6, 3);
        if (caps[n] == ATTN_CAP_ALIBI)
            c.p.bias.kind = ATTN_BIAS_ALIBI, c.b.dbias.data = NULL;
        ck_assert_msg(run(&toy, &c, ATTN_FORWARD, &err) == ATTN_OK, "%s", err.text);
        ck_assert_msg(run(&toy, &c, ATTN_BACKWARD, &err) == ATTN_OK, "%s", err.text);
        char part[80];
        snprintf(part, sizeof part, "dense does not claim: %s (attnlab list",
                 attn_cap_name((enum attn_cap)caps[n]));
        toy.caps &= ~caps[n];
        said(run(&toy, &c, ATTN_BACKWARD, &err), ATTN_ENOTSUP, &err, part);
        toy.caps &= ~(unsigned)ATTN_CAP_STRIDES;
        toy.caps = attn_impl_dense.caps & ~(caps[n] | ATTN_CAP_HARD); /* hard is nobody's need */
        said(run(&toy, &c, ATTN_BACKWARD, &err), ATTN_ENOTSUP, &err, part);
    }
    attn_mask_free(mask);
}
END_TEST

/* 16-bit storage is named, legal, and refused with what would work where it is not claimed. */
START_TEST(half_types)
{
    struct attn_impl toy = attn_impl_dense;
    struct attn_cost cost;
    struct attn_error err = {0};
    struct attn_options options;
    struct call c;
    toy.caps &= ~(unsigned)(ATTN_CAP_BF16 | ATTN_CAP_F16);
    attn_options_preset(&toy, &options);
    for (enum attn_dtype dtype = ATTN_BF16; dtype <= ATTN_F16; dtype++) {
        char part[100];
        snprintf(part, sizeof part, "dense does not store %s: f32 and f64 would work",
                 attn_dtype_name(dtype));
        open_call(&c);
        c.p.dtype = dtype;
        said(run(&toy, &c, ATTN_FORWARD, &err), ATTN_ENOTSUP, &err, part);
        said(run(&toy, &c, ATTN_BACKWARD, &err), ATTN_ENOTSUP, &err, part);
        said(attn_price(&toy, &options, &c.p, ATTN_FORWARD, 0, &cost, &err), ATTN_ENOTSUP, &err,
             part);
    }
}
END_TEST

static enum attn_status accepts_nothing(const struct attn_problem *p,
                                        const struct attn_options *options, struct attn_error *err)
{
    (void)options;
    return attn_fail(err, ATTN_ENOTSUP, "%lld keys: 7 would work", (long long)p->n_key);
}

/* accepts() has its say before a call and before a price, and after the contract's checks. */
START_TEST(own_refusals)
{
    struct attn_impl toy = attn_impl_dense;
    struct attn_error err = {0};
    struct attn_options options = {.threads = 1};
    struct attn_cost cost;
    struct call c;
    toy.accepts = accepts_nothing;
    open_call(&c);
    said(run(&toy, &c, ATTN_FORWARD, &err), ATTN_ENOTSUP, &err, "3 keys: 7 would work");
    said(attn_price(&toy, &options, &c.p, ATTN_FORWARD, 0, &cost, &err), ATTN_ENOTSUP, &err,
         "3 keys: 7 would work");
    c.p.scale = (double)INFINITY;
    said(run(&toy, &c, ATTN_FORWARD, &err), ATTN_EINVAL, &err, "scale = inf");
}
END_TEST

/* ---- prices --------------------------------------------------------------------------------- */

START_TEST(ranks_of_a_price)
{
    struct attn_options options;
    struct attn_cost cost;
    struct attn_error err = {0};
    struct call c;
    open_call(&c);
    struct attn_problem p = c.p;
    attn_options_preset(&attn_impl_dense, &options);
    said(attn_price(&attn_impl_dense, &options, &p, ATTN_FORWARD, 1, &cost, &err), ATTN_EINVAL,
         &err, "rank 1: dense has ranks 0 to 0");
    said(attn_price(&attn_impl_dense, &options, &p, ATTN_FORWARD, -1, &cost, &err), ATTN_EINVAL,
         &err, "rank -1");
    struct attn_impl toy = attn_impl_dense;
    toy.caps &= ~(unsigned)ATTN_CAP_BACKWARD;
    said(attn_price(&toy, &options, &p, ATTN_BACKWARD, 0, &cost, &err), ATTN_ENOTSUP, &err,
         "backward");
    ck_assert_int_eq(attn_price(&toy, &options, &p, ATTN_FORWARD, 0, &cost, &err), ATTN_OK);
    p.batch = -1;
    said(attn_price(&toy, &options, &p, ATTN_FORWARD, 0, &cost, &err), ATTN_EINVAL, &err,
         "batch = -1");
}
END_TEST

/* Sizes that are legal but whose buffers do not fit 64 bits are refused, never wrapped round. */
START_TEST(absurd_prices)
{
    struct attn_options options;
    struct attn_cost cost;
    struct attn_error err = {0};
    struct attn_problem p = {.batch = 1, .heads = 1, .kv_heads = 1, .d_key = 1, .d_value = 1};
    p.scale = 1, p.dtype = ATTN_F64;
    p.n_query = INT64_C(1) << 30, p.n_key = INT64_C(1) << 29; /* 2^62 bytes of scores are legal, */
    attn_options_preset(&attn_impl_dense, &options);          /* as many probabilities beside */
    said(attn_price(&attn_impl_dense, &options, &p, ATTN_FORWARD, 0, &cost, &err), ATTN_EINVAL,
         &err, "buffer 'probs' of 576460752303423488 x 8 bytes exceeds 64 bits");
    said(attn_price(&attn_impl_csr_textbook, &options, &p, ATTN_FORWARD, 0, &cost, &err),
         ATTN_EINVAL, &err, "exceed");
    attn_options_preset(&attn_impl_tiled_textbook, &options);
    ck_assert_int_eq(
        attn_price(&attn_impl_tiled_textbook, &options, &p, ATTN_BACKWARD, 0, &cost, &err),
        ATTN_OK);
}
END_TEST

START_TEST(more_keys_than_csr_can_name)
{
    struct attn_options options;
    struct attn_cost cost;
    struct attn_error err = {0};
    struct attn_problem p = {.batch = 1, .heads = 1, .kv_heads = 1, .d_key = 1, .d_value = 1};
    p.scale = 1, p.dtype = ATTN_F32, p.n_query = 1, p.n_key = INT32_MAX;
    attn_options_preset(&attn_impl_csr_textbook, &options);
    ck_assert_int_eq(
        attn_price(&attn_impl_csr_textbook, &options, &p, ATTN_FORWARD, 0, &cost, &err), ATTN_OK);
    p.n_key++;
    said(attn_price(&attn_impl_csr_textbook, &options, &p, ATTN_FORWARD, 0, &cost, &err),
         ATTN_ENOTSUP, &err, "2147483648 keys are too many, 2147483647 would work");
}
END_TEST

START_TEST(adding_to_a_price)
{
    struct attn_cost cost = {0};
    struct attn_error err = {0};
    char same[] = "a";
    ck_assert_int_eq(attn_cost_add(&cost, "a", 3, 8, &err), ATTN_OK);
    ck_assert_int_eq(attn_cost_add(&cost, "none", 0, 8, &err), ATTN_OK);
    ck_assert_int_eq(attn_cost_add(&cost, same, 2, 8, &err), ATTN_OK);
    ck_assert_int_eq(cost.n_live, 1);
    ck_assert_int_eq(cost.live[0].bytes, 40);
    ck_assert_int_eq(cost.peak_bytes, 40);
    said(attn_cost_add(&cost, "b", INT64_MAX / 2, 3, &err), ATTN_EINVAL, &err, "buffer 'b' of ");
    said(attn_cost_add(&cost, "b", -1, 3, &err), ATTN_EINVAL, &err, "exceeds 64 bits");
    said(attn_cost_add(&cost, "b", INT64_MAX, 1, &err), ATTN_EINVAL, &err, "exceeds 64 bits");
    ck_assert_int_eq(cost.peak_bytes, 40);
    static char name[ATTN_MAX_ACCOUNTS][8];
    for (int n = 1; n < ATTN_MAX_ACCOUNTS; n++) {
        snprintf(name[n], sizeof name[n], "n%d", n);
        ck_assert_int_eq(attn_cost_add(&cost, name[n], 1, 1, &err), ATTN_OK);
    }
    said(attn_cost_add(&cost, "too many", 1, 1, &err), ATTN_EINTERNAL, &err, "more than 32 named");
}
END_TEST

TCase *problem_call_tests(void)
{
    const TTest *const tests[] = {calls_that_work,
                                  absent_tensors,
                                  tensors_of_other_types,
                                  outputs_that_overlap,
                                  bias_values,
                                  bias_gradients,
                                  layouts_that_are_not_claimed,
                                  claims,
                                  half_types,
                                  own_refusals,
                                  ranks_of_a_price,
                                  absurd_prices,
                                  more_keys_than_csr_can_name,
                                  adding_to_a_price};
    TCase *cases = tcase_create("calls");
    tcase_set_timeout(cases, 60);
    for (size_t t = 0; t < sizeof tests / sizeof *tests; t++)
        tcase_add_test(cases, tests[t]);
    return cases;
}
