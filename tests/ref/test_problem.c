/* Every precondition of a problem and of a call, provoked: extents, masks, biases, tensors, an
 * implementation's claims; and prices that no machine could hold. */
#include "tests/suites.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "optimized/registry.h"
#include "ref/impl.h"
#include "ref/ledger.h"
#include "ref/problem.h"
#include "ref/textbook.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/fixtures/refused.h"

SUITE(problem);

/* Every test has a process of its own, and so its own of these. */
static struct attn_error err;
static struct attn_cost cost;
static struct attn_options options;

/* ---- the problem ---------------------------------------------------------------------------- */

static struct attn_problem base(void)
{
    return problem_of("b2h4g2q3k5d2:none:f32:normal:s1:scale=0.5", NULL);
}

static void refused(const struct attn_problem *p, const char *part)
{
    ck_refusal(attn_problem_check(p, &err), ATTN_EINVAL, &err, part);
    ck_assert_int_eq(attn_problem_check(p, NULL), ATTN_EINVAL);
}

static void accepted(const struct attn_problem *p)
{
    ck_assert_msg(attn_problem_check(p, &err) == ATTN_OK, "%s", err.text);
}

TEST(extents)
{
    struct attn_problem p = base();
    accepted(&p);
    p = base(), p.batch = -1, refused(&p, "batch = -1");
    p = base(), p.heads = -4, refused(&p, "heads = -4");
    p = base(), p.kv_heads = -2, refused(&p, "kv_heads = -2");
    p = base(), p.n_query = -3, refused(&p, "n_query = -3");
    p = base(), p.n_key = INT64_MIN, refused(&p, "n_key = -9223372036854775808");
    p = base(), p.d_key = -1, refused(&p, "d_key = -1: extents start at 0");
    p = base(), p.kv_heads = 3, refused(&p, "4 heads cannot share 3 ... a divisor of 4 would work");
    p = base(), p.kv_heads = 0, refused(&p, "4 heads cannot share 0 kv heads");
    p = base(), p.heads = p.kv_heads = 0, accepted(&p);
    p = base(), p.heads = 0, accepted(&p); /* no heads share two kv heads: no output rows */
    p = base(), p.batch = p.n_query = p.n_key = p.d_key = p.d_value = 0, accepted(&p);
}

/* A product of extents that does not fit, whichever tensor has it; a zero beside it is no excuse
 * as long as another tensor lacks the zero. */
TEST(products)
{
    const int64_t large = (int64_t)1 << 31;
    struct attn_problem p = base();
    p = base(), p.n_query = p.n_key = p.d_key = large, refused(&p, "a product exceeds 64 bits");
    p = base(), p.batch = p.n_query = large * 4, refused(&p, "b8589934592 h4 q8589934592");
    p = base(), p.n_query = p.d_value = large * 2, refused(&p, "exceeds");
    p = base(), p.n_key = p.d_key = large * 4, refused(&p, "exceeds");
    p = base(), p.n_query = p.n_key = large * 4, refused(&p, "exceeds"); /* scores */
    p = base(), p.batch = p.n_query = INT64_MAX, p.n_key = 0, refused(&p, "exceeds");
    /* no feature and no key, but an LSE of 2^80 rows */
    p = base(), p.batch = p.n_query = (int64_t)1 << 40, p.n_key = p.d_key = p.d_value = 0;
    refused(&p, "exceeds");
    p = base(), p.n_query = p.n_key = large / 8, accepted(&p);
}

TEST(numbers)
{
    const double nan_ = (double)NAN, inf = (double)INFINITY;
    struct attn_problem p = base();
    p = base(), p.scale = nan_, refused(&p, "scale = ");
    p = base(), p.scale = inf, refused(&p, "scale = inf: must be finite");
    p = base(), p.scale = -0.3, accepted(&p);
    p = base(), p.softcap = -1, refused(&p, "softcap = -1: must be positive");
    p = base(), p.softcap = inf, refused(&p, "softcap = inf");
    p = base(), p.scale = 0, p.softcap = 30, accepted(&p);
    p = base(), p.dtype = (enum attn_dtype)4, refused(&p, "dtype 4: f64, f32, bf16 and f16 exist");
    p = base(), p.dtype = (enum attn_dtype) - 1, refused(&p, "dtype -1");
    p = base(), p.dtype = ATTN_BF16, accepted(&p); /* legal; who can do it is another question */
}

TEST(masks_and_origins)
{
    struct attn_mask *mask = mask_of("causal(br)", (struct attn_mask_shape){2, 4, 3, 5});
    struct attn_problem p = base();
    p = base(), p.mask = mask, accepted(&p);
    p = base(), p.mask = mask, p.batch = 3, refused(&p, "mask made for b2h4q3k5 does not cover");
    p = base(), p.mask = mask, p.heads = 8, refused(&p, "does not cover b2h8q3k5");
    p = base(), p.mask = mask, p.n_query = 4, refused(&p, "does not cover b2h4q4k5");
    p = base(), p.mask = mask, p.batch = 1, p.n_query = 1, p.n_key = 2;
    p.origin = (struct attn_origin){1, 0, {.first = 2}, {.first = 3}, 0},
    accepted(&p); /* the last piece fits */
    p.origin.batch = 2, refused(&p, "does not cover");
    p.origin.batch = 1, p.origin.head = 1, refused(&p, "does not cover");
    p.origin.head = 0, p.origin.query.first = 3, refused(&p, "does not cover");
    p.origin.query.first = 2, p.origin.key.first = 4, refused(&p, "does not cover");
    p.origin.key.first = INT64_MAX, refused(&p, "does not cover");
    p = base(), p.origin.batch = -1, refused(&p, "origin: batch -1, head 0");
    p = base(), p.origin.query.first = -3, refused(&p, "queries -3 skipping 0");
    p = base(), p.origin.key.first = -4, refused(&p, "keys -4 skipping 0");
    attn_mask_free(mask);
}

TEST(biases)
{
    double slope[6] = {0.5, 0.25, 0.125, 0.0625, 1, (double)INFINITY};
    struct attn_problem p = base();
    p = base(), p.bias.kind = (enum attn_bias_kind)3, refused(&p, "bias kind 3: none, tensor");
    p = base(), p.bias.kind = ATTN_BIAS_TENSOR, p.bias.tensor.dtype = ATTN_BF16;
    refused(&p, "bias stored as bf16: f32 or f64 would work");
    p.bias.tensor.dtype = (enum attn_dtype)9, refused(&p, "bias stored as unknown");
    p.bias.tensor.dtype = ATTN_F64, accepted(&p);
    p = base(), p.bias.kind = ATTN_BIAS_ALIBI;
    refused(&p, "ALiBi needs one slope for each of 4 heads");
    p.bias.slope = slope, accepted(&p);
    p.origin.head = 2, refused(&p, "ALiBi slope of head 3 is inf"); /* slopes are of the whole */
    p.origin.head = 0, slope[1] = (double)NAN;
    refused(&p, "ALiBi slope of head 1 is ");
    p.heads = p.kv_heads = 0, p.bias.slope = NULL, accepted(&p);
}

TEST(all_pairs_of_nothing)
{
    struct attn_problem p = base();
    int counted = 0;
    ck_assert_int_eq(attn_problem_all_pairs(&p, &counted), 2 * 4 * 3 * 5);
    p.batch = 0;
    ck_assert_int_eq(attn_problem_all_pairs(&p, &counted), 0);
    p = base(), p.heads = p.kv_heads = 0;
    ck_assert_int_eq(attn_problem_all_pairs(&p, &counted), 0);
    p = base(), p.n_key = 0;
    ck_assert_int_eq(attn_problem_all_pairs(&p, &counted), 0);
    ck_assert_int_eq(counted, 0);
}

/* ---- names ---------------------------------------------------------------------------------- */

TEST(names)
{
    ck_assert_int_eq(attn_fail(&err, ATTN_EPEER, "%s %d", "rank", 3), ATTN_EPEER);
    ck_assert_str_eq(err.text, "rank 3");
    char large[2000];
    memset(large, 'x', sizeof large - 1), large[sizeof large - 1] = '\0';
    attn_fail(&err, ATTN_EINVAL, "%s", large);
    ck_assert_uint_eq(strlen(err.text), sizeof err.text - 1);
    ck_assert_str_eq(attn_status_name((enum attn_status)77), "unknown");
    ck_assert_str_eq(attn_dtype_name((enum attn_dtype)5), "unknown");
    for (int a = 0; a < ATTN_CAPS; a++)
        for (int b = 0; b < a; b++)
            ck_assert_str_ne(attn_cap_name(a), attn_cap_name(b));
}

/* ---- calls: tensors ------------------------------------------------------------------------- */

/* b1 h2 g1 q2 k3 d4 dv5, f32, everything contiguous and 0. */
struct call {
    struct attn_problem p;
    float q[16], k[12], v[15], o[20], lse[4], d_o[20], d_lse[4], dq[16], dk[12], dv[15];
    float bias[12], dbias[12];
    struct attn_forward f;
    struct attn_backward b;
};
static struct call c;

#define VIEW(x, s0, s1, s2) \
    {                       \
        (x), ATTN_F32,      \
        {                   \
            s0, s1, s2, 1   \
        }                   \
    }

static void open_call(void)
{
    memset(&c, 0, sizeof c);
    c.p = problem_of("h2g1q2k3d4v5:none:f32:normal:s1:scale=1", NULL);
    c.f = (struct attn_forward){VIEW(c.q, 16, 8, 4), VIEW(c.k, 12, 12, 4), VIEW(c.v, 15, 15, 5),
                                VIEW(c.o, 20, 10, 5), VIEW(c.lse, 4, 2, 1)};
    c.b = (struct attn_backward){.q = c.f.q,
                                 .k = c.f.k,
                                 .v = c.f.v,
                                 .o = VIEW(c.o, 20, 10, 5),
                                 .lse = VIEW(c.lse, 4, 2, 1),
                                 .d_o = VIEW(c.d_o, 20, 10, 5),
                                 .dq = VIEW(c.dq, 16, 8, 4),
                                 .dk = VIEW(c.dk, 12, 12, 4),
                                 .dv = VIEW(c.dv, 15, 15, 5)};
}

static enum attn_status run(const struct attn_impl *impl, enum attn_pass pass)
{
    struct attn_ledger ledger;
    attn_ledger_init(&ledger, NULL);
    attn_options_preset(impl, &options);
    struct attn_ctx ctx = {.ledger = &ledger, .options = &options, .error = &err};
    enum attn_status status = pass == ATTN_FORWARD ? attn_run_forward(impl, &ctx, &c.p, &c.f)
                                                   : attn_run_backward(impl, &ctx, &c.p, &c.b);
    ck_assert_int_eq(attn_ledger_clear(&ledger), 0);
    return status;
}

static enum attn_status price(const struct attn_impl *impl, const struct attn_problem *p,
                              enum attn_pass pass)
{
    return attn_price(impl, &options, p, pass, 0, &cost, &err);
}

/* The call works, as far as this pass. */
static void runs(const struct attn_impl *impl, enum attn_pass last)
{
    for (int pass = ATTN_FORWARD; pass <= (int)last; pass++)
        ck_assert_msg(run(impl, (enum attn_pass)pass) == ATTN_OK, "%s", err.text);
}

/* It is refused with these words; then the next one begins. */
static void call_refused(enum attn_pass pass, const char *words)
{
    ck_refusal(run(&attn_impl_dense, pass), ATTN_EINVAL, &err, words);
    open_call();
}

static void not_claimed(const struct attn_impl *impl, enum attn_pass pass, const char *words)
{
    ck_refusal(run(impl, pass), ATTN_ENOTSUP, &err, words);
}

TEST(absent_tensors)
{
    open_call();
    c.f.q.data = NULL, call_refused(0, "tensor q is absent: [1,2,2,4] is needed");
    c.f.k.data = NULL, call_refused(0, "tensor k is absent: [1,1,3,4]");
    c.f.v.data = NULL, call_refused(0, "tensor v is absent: [1,1,3,5]");
    c.f.o.data = NULL, call_refused(0, "tensor o is absent: [1,2,2,5]");
    c.f.lse.data = NULL, call_refused(0, "tensor lse is absent: [1,2,2,1]");
    c.b.o.data = NULL, call_refused(1, "tensor o is absent");
    c.b.lse.data = NULL, call_refused(1, "tensor lse is absent");
    c.b.d_o.data = NULL, call_refused(1, "tensor do is absent: [1,2,2,5]");
    c.b.dq.data = NULL, call_refused(1, "tensor dq is absent: [1,2,2,4]");
    c.b.dk.data = NULL, call_refused(1, "tensor dk is absent: [1,1,3,4]");
    c.b.dv.data = NULL, call_refused(1, "tensor dv is absent: [1,1,3,5]");
    /* what has no elements may be absent */
    c.p.n_key = 0, c.f.k.data = c.f.v.data = NULL;
    runs(&attn_impl_dense, ATTN_FORWARD);
    ck_assert(c.lse[0] == -INFINITY);
}

TEST(tensors_of_other_types)
{
    open_call();
    c.f.q.dtype = ATTN_F64;
    call_refused(0, "tensor q is stored as f64: this problem needs f32");
    c.f.k.dtype = ATTN_BF16;
    call_refused(0, "tensor k is stored as bf16: this problem needs f32");
    c.f.o.dtype = ATTN_F16, call_refused(0, "tensor o is stored as f16");
    c.f.lse.dtype = ATTN_F64, call_refused(0, "tensor lse is stored as f64");
    c.b.d_o.dtype = ATTN_F64, call_refused(1, "tensor do is stored as f64");
    c.b.dv.dtype = ATTN_F64, call_refused(1, "tensor dv is stored as f64");
    c.b.d_lse = (struct attn_cview)VIEW(c.d_lse, 4, 2, 1), c.b.d_lse.dtype = ATTN_F64;
    call_refused(1, "tensor dlse is stored as f64: this problem needs f32");
    c.p.dtype = ATTN_F64;
    c.f.q.dtype = c.f.k.dtype = c.f.v.dtype = c.f.o.dtype = ATTN_F64;
    call_refused(0, "tensor lse is stored as f32: this problem needs f64");
}

TEST(outputs_that_overlap)
{
    open_call();
    c.f.o.stride[3] = 0;
    call_refused(0, "output o has stride 0 on axis 3 of extent 5");
    c.f.o.stride[1] = 0, call_refused(0, "output o has stride 0 on axis 1");
    c.b.dq.stride[2] = 0, call_refused(1, "output dq has stride 0 on axis 2");
    c.b.dk.stride[2] = 0, call_refused(1, "output dk has stride 0 on axis 2");
    c.b.dv.stride[3] = 0, call_refused(1, "output dv has stride 0 on axis 3");
    /* an axis of one may have any stride, an input any at all */
    c.f.o.stride[0] = 0, c.b.dk.stride[1] = 0;
    memset(c.f.k.stride, 0, sizeof c.f.k.stride);
    runs(&attn_impl_dense, ATTN_BACKWARD);
}

TEST(bias_values)
{
    open_call();
    c.p.bias.kind = ATTN_BIAS_TENSOR, c.p.bias.tensor.dtype = ATTN_F32;
    call_refused(0, "a bias tensor was announced but is absent");
    for (int pass = 0; pass < 2; pass++) {
        c.p.bias.kind = ATTN_BIAS_TENSOR;
        c.p.bias.tensor = (struct attn_cview)VIEW(c.bias, 12, 6, 3);
        c.bias[11] = INFINITY;
        call_refused((enum attn_pass)pass, "bias[0,1,1,2] is +inf");
    }
    c.p.bias.kind = ATTN_BIAS_TENSOR; /* broadcast: one row for all; -inf hides */
    c.p.bias.tensor = (struct attn_cview)VIEW(c.bias, 0, 0, 0);
    c.bias[2] = -INFINITY, c.bias[3] = INFINITY;
    runs(&attn_impl_dense, ATTN_FORWARD);
    ck_assert(c.lse[3] == logf(2));
    c.p.n_key = 0, c.p.bias.tensor.data = NULL; /* no cell, no tensor */
    runs(&attn_impl_dense, ATTN_FORWARD);
}

TEST(bias_gradients)
{
    open_call();
    c.b.dbias = (struct attn_view)VIEW(c.dbias, 12, 6, 3);
    call_refused(1, "dbias was asked for, but the problem has no bias tensor");
    const struct attn_cview bias = VIEW(c.bias, 12, 6, 3);
    c.p.bias.kind = ATTN_BIAS_TENSOR, c.p.bias.tensor = bias;
    c.b.dbias = (struct attn_view)VIEW(c.dbias, 12, 0, 3);
    call_refused(1, "dbias must have stride 0 on axis 1 exactly when the bias");
    c.p.bias.kind = ATTN_BIAS_TENSOR, c.p.bias.tensor = bias, c.p.bias.tensor.stride[2] = 0;
    c.b.dbias = (struct attn_view)VIEW(c.dbias, 12, 6, 3);
    call_refused(1, "stride 0 on axis 2");
    c.p.bias.kind = ATTN_BIAS_TENSOR, c.p.bias.tensor = bias;
    c.b.dbias = (struct attn_view)VIEW(c.dbias, 12, 6, 3), c.b.dbias.dtype = ATTN_F64;
    call_refused(1, "dbias is stored as f64, the bias as f32: must be equal");
    c.p.bias.kind = ATTN_BIAS_TENSOR, c.p.bias.tensor = bias;
    c.b.dbias = (struct attn_view)VIEW(c.dbias, 0, 6, 3); /* of a batch of one */
    runs(&attn_impl_dense, ATTN_BACKWARD);
}

/* ---- calls: claims -------------------------------------------------------------------------- */

TEST(layouts_that_are_not_claimed)
{
    struct attn_impl limited = attn_impl_dense;
    limited.caps &= ~(unsigned)ATTN_CAP_STRIDES;
    open_call();
    runs(&limited, ATTN_FORWARD);
    c.f.q.stride[1] = 4, c.f.q.stride[2] = 8;
    not_claimed(&limited, ATTN_FORWARD,
                "tensor q: stride 8 on axis 2, only contiguous [B,H,L,d] (stride 4) is claimed");
    open_call();
    c.b.d_o.stride[3] = 0;
    not_claimed(&limited, ATTN_BACKWARD, "tensor do: stride 0 on axis 3");
    open_call();
    c.f.q.stride[0] = 77, c.f.v.stride[1] = -3; /* axes of one */
    runs(&limited, ATTN_FORWARD);
}

/* Each capability alone taken away from dense: the call that needs it is refused by name. */
TEST(claims)
{
    static const unsigned caps[] = {ATTN_CAP_F32,   ATTN_CAP_BACKWARD, ATTN_CAP_GQA,
                                    ATTN_CAP_CROSS, ATTN_CAP_DV,       ATTN_CAP_MASK,
                                    ATTN_CAP_BIAS,  ATTN_CAP_SOFTCAP,  ATTN_CAP_DLSE,
                                    ATTN_CAP_DBIAS, ATTN_CAP_ALIBI};
    static const double slope[2] = {1, 1};
    struct attn_mask *mask = mask_of("causal(br)", (struct attn_mask_shape){1, 2, 2, 3});
    for (size_t n = 0; n < sizeof caps / sizeof *caps; n++) {
        struct attn_impl limited = attn_impl_dense;
        open_call();
        c.p.mask = mask, c.p.softcap = 5;
        c.p.bias = (struct attn_bias){ATTN_BIAS_TENSOR, VIEW(c.bias, 12, 6, 3), slope, 0};
        c.b.d_lse = (struct attn_cview)VIEW(c.d_lse, 4, 2, 1);
        c.b.dbias = (struct attn_view)VIEW(c.dbias, 12, 6, 3);
        if (caps[n] == ATTN_CAP_ALIBI)
            c.p.bias.kind = ATTN_BIAS_ALIBI, c.b.dbias.data = NULL;
        runs(&limited, ATTN_BACKWARD);
        char part[80];
        snprintf(part, sizeof part, "dense does not claim: %s (attnlab list",
                 attn_cap_name(__builtin_ctz((unsigned)caps[n])));
        limited.caps &= ~caps[n];
        not_claimed(&limited, ATTN_BACKWARD, part);
        limited.caps =
            attn_impl_dense.caps & ~(caps[n] | ATTN_CAP_HARD); /* no problem needs hard */
        not_claimed(&limited, ATTN_BACKWARD, part);
    }
    attn_mask_free(mask);
}

/* 16-bit storage is named, legal, and refused with what would work where it is not claimed; but it
 * has a price, which is that of who claims it, and says who does not. */
TEST(half_types)
{
    struct attn_impl limited = attn_impl_dense;
    limited.caps &= ~(unsigned)(ATTN_CAP_BF16 | ATTN_CAP_F16);
    attn_options_preset(&limited, &options);
    for (enum attn_dtype dtype = ATTN_BF16; dtype <= ATTN_F16; dtype++) {
        char part[100];
        snprintf(part, sizeof part, "dense does not store %s: f32 and f64 would work",
                 attn_dtype_name(dtype));
        open_call();
        c.p.dtype = dtype;
        not_claimed(&limited, ATTN_FORWARD, part);
        not_claimed(&limited, ATTN_BACKWARD, part);
        ck_assert_int_eq(price(&limited, &c.p, ATTN_FORWARD), ATTN_OK);
        ck_assert_str_eq(cost.lacks, "dense");
        int64_t peak = cost.peak_bytes;
        ck_assert_int_eq(price(&attn_impl_dense, &c.p, ATTN_FORWARD), ATTN_OK);
        ck_assert(cost.lacks == NULL && cost.peak_bytes == peak);
    }
}

/* The same where the local implementation of ranks does not claim it. */
TEST(half_types_of_ranks)
{
    struct attn_impl limited = attn_impl_dense;
    struct attn_spec spec;
    limited.caps &= ~(unsigned)ATTN_CAP_BF16;
    ck_assert_int_eq(attn_spec_parse("ring:ranks=2,local=dense", &spec, &err), ATTN_OK);
    spec.options.local = &limited;
    open_call();
    c.p.dtype = c.f.q.dtype = c.f.k.dtype = c.f.v.dtype = c.f.o.dtype = ATTN_BF16;
    ck_assert_msg(attn_price(spec.impl, &spec.options, &c.p, ATTN_FORWARD, 0, &cost, &err) ==
                      ATTN_OK,
                  "%s", err.text);
    ck_assert_str_eq(cost.lacks, "dense");
    ck_refusal(attn_check_forward(spec.impl, &spec.options, &c.p, &c.f, &err), ATTN_ENOTSUP, &err,
               "dense does not store bf16: f32 and f64 would work");
}

/* o and gradients of a 16-bit problem may be f32 where that is claimed; inputs and LSE may not be
 * another type, and nothing may in an f64 problem. */
TEST(wide_results)
{
    struct attn_impl narrow = attn_impl_dense;
    narrow.caps &= ~(unsigned)ATTN_CAP_WIDE;
    for (enum attn_dtype dtype = ATTN_BF16; dtype <= ATTN_F16; dtype++) {
        open_call();
        c.p.dtype = c.f.q.dtype = c.f.k.dtype = c.f.v.dtype = dtype;
        c.b.q.dtype = c.b.k.dtype = c.b.v.dtype = c.b.d_o.dtype = dtype;
        runs(&attn_impl_dense, ATTN_BACKWARD);
        not_claimed(&narrow, ATTN_FORWARD, "tensor o is stored as f32 in a problem of");
        c.b.o.dtype = dtype;
        not_claimed(&narrow, ATTN_BACKWARD, "tensor dq is stored");
        c.b.d_o.dtype = ATTN_F32;
        ck_refusal(run(&attn_impl_dense, ATTN_BACKWARD), ATTN_EINVAL, &err,
                   "tensor do is stored as f32: this problem needs");
        c.p.wide = 1;
        ck_refusal(price(&narrow, &c.p, ATTN_FORWARD), ATTN_ENOTSUP, &err,
                   "dense does not claim: wide");
    }
    open_call();
    c.p.dtype = c.f.q.dtype = c.f.k.dtype = c.f.v.dtype = c.f.lse.dtype = ATTN_F64;
    ck_refusal(run(&attn_impl_dense, ATTN_FORWARD), ATTN_EINVAL, &err,
               "tensor o is stored as f32: this problem needs f64");
}

static enum attn_status accepts_nothing(const struct attn_problem *p, const struct attn_options *o,
                                        struct attn_error *e)
{
    (void)o;
    return attn_fail(e, ATTN_ENOTSUP, "%lld keys: 7 would work", (long long)p->n_key);
}

/* accepts() has its say before a call and before a price, and after the contract's checks. */
TEST(own_refusals)
{
    struct attn_impl limited = attn_impl_dense;
    limited.accepts = accepts_nothing;
    open_call();
    not_claimed(&limited, ATTN_FORWARD, "3 keys: 7 would work");
    ck_refusal(price(&limited, &c.p, ATTN_FORWARD), ATTN_ENOTSUP, &err, "3 keys: 7 would work");
    c.p.scale = (double)INFINITY;
    ck_refusal(run(&limited, ATTN_FORWARD), ATTN_EINVAL, &err, "scale = inf");
}

/* ---- prices --------------------------------------------------------------------------------- */

TEST(ranks_of_a_price)
{
    open_call();
    struct attn_problem p = c.p;
    attn_options_preset(&attn_impl_dense, &options);
    ck_refusal(attn_price(&attn_impl_dense, &options, &p, ATTN_FORWARD, 1, &cost, &err),
               ATTN_EINVAL, &err, "rank 1: dense has ranks 0 to 0");
    ck_refusal(attn_price(&attn_impl_dense, &options, &p, ATTN_FORWARD, -1, &cost, &err),
               ATTN_EINVAL, &err, "rank -1");
    struct attn_impl limited = attn_impl_dense;
    limited.caps &= ~(unsigned)ATTN_CAP_BACKWARD;
    ck_refusal(price(&limited, &p, ATTN_BACKWARD), ATTN_ENOTSUP, &err, "backward");
    ck_assert_int_eq(price(&limited, &p, ATTN_FORWARD), ATTN_OK);
    p.batch = -1;
    ck_refusal(price(&limited, &p, ATTN_FORWARD), ATTN_EINVAL, &err, "batch = -1");
}

/* Sizes that are legal but whose buffers do not fit 64 bits are refused, never wrapped round. */
TEST(absurd_prices)
{
    /* 2^62 bytes of scores are legal, as many probabilities beside them are not */
    struct attn_problem p = problem_of("q1073741824k536870912d1:none:f64:normal:s1", NULL);
    attn_options_preset(&attn_impl_dense, &options);
    ck_refusal(price(&attn_impl_dense, &p, ATTN_FORWARD), ATTN_EINVAL, &err,
               "buffer 'probs' of 576460752303423488 x 8 bytes exceeds 64 bits");
    ck_refusal(price(&attn_impl_csr_textbook, &p, ATTN_FORWARD), ATTN_EINVAL, &err, "exceed");
    attn_options_preset(&attn_impl_tiled_textbook, &options);
    ck_assert_int_eq(price(&attn_impl_tiled_textbook, &p, ATTN_BACKWARD), ATTN_OK);
}
