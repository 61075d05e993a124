/* Where things go in ulysses and ring: every element carries its own number through all
 * exchanges, and a rank that fails is named.  Catalogue: SP-01 to SP-06, SP-16, SP-17, SP-22. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ref/problem.h"
#include "ref/textbook.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/harness/runner.h"
#include "tests/suites.h"

/* ---- the probe ------------------------------------------------------------------------------- */

/* A local implementation that computes nothing.  It knows from the origin which elements it must
 * have been given, and leaves numbers that must arrive where they belong. */
static const struct attn_problem *whole; /* read by the ranks, written before they start */
static int sealed, fails;

enum { SQ, SK, SV, SO, SLSE, SDO, SDLSE, SDQ, SDK, SDV };

static int is_of_keys(int t)
{
    return t == SK || t == SV || t == SDK || t == SDV;
}

/* A distinct integer for every element of every tensor, in whole-problem indices. */
static double sign(int t, int64_t b, int64_t h, int64_t i, int64_t c)
{
    int64_t heads = is_of_keys(t) ? whole->kv_heads : whole->heads;
    int64_t n = is_of_keys(t) ? whole->n_key : whole->n_query;
    return (double)(t * 200000 + ((b * heads + h) * n + i) * 16 + c + 1);
}

struct window {
    int64_t batch, heads, tokens, width, head;
};

static struct window window_of(const struct attn_problem *p, int t)
{
    int of_d = t == SQ || t == SK || t == SDQ || t == SDK;
    int64_t kv_head = p->origin.head / (whole->heads / whole->kv_heads);
    return (struct window){p->batch, is_of_keys(t) ? p->kv_heads : p->heads,
                           is_of_keys(t) ? p->n_key : p->n_query,
                           t == SLSE || t == SDLSE ? 1
                           : of_d                  ? p->d_key
                                                   : p->d_value,
                           is_of_keys(t) ? kv_head : p->origin.head};
}

/* Which token of the whole row i of a piece's tensor is. */
static int64_t token_of(const struct attn_problem *p, int t, int64_t b, int64_t i)
{
    return is_of_keys(t) ? attn_whole_key(p, b, i) : attn_whole_query(p, b, i);
}

#define FOR_WINDOW(w)                                \
    for (int64_t b = 0; b < (w).batch; b++)          \
        for (int64_t h = 0; h < (w).heads; h++)      \
            for (int64_t i = 0; i < (w).tokens; i++) \
                for (int64_t c = 0; c < (w).width; c++)

static enum attn_status look(const struct attn_problem *p, int t, const struct attn_cview *x,
                             struct attn_error *err)
{
    struct window w = window_of(p, t);
    FOR_WINDOW(w)
    if (attn_cview_get(x, b, h, i, c) != sign(t, b, w.head + h, token_of(p, t, b, i), c))
        return attn_fail(err, ATTN_EINTERNAL, "tensor %d at %d %d %d %d is %g", t, (int)b, (int)h,
                         (int)i, (int)c, attn_cview_get(x, b, h, i, c));
    return ATTN_OK;
}

/* times * number + more. */
static void leave(const struct attn_problem *p, int t, const struct attn_view *x, double times,
                  double more)
{
    struct window w = window_of(p, t);
    FOR_WINDOW(w)
    ((double *)x->data)[attn_offset(x->stride, b, h, i) + c * x->stride[3]] =
        times * sign(t, b, w.head + h, token_of(p, t, b, i), c) + more;
}

/* 2^token of all these tokens: a sum in which each must be there once. */
static double powers_of_two(const struct attn_tokens *tokens)
{
    double sum = 0;
    for (int64_t i = 0; i < tokens->n; i++)
        sum += ldexp(1, (int)(tokens->first + i * tokens->step));
    return sum;
}

static enum attn_status look_at_inputs(struct attn_ctx *ctx, const struct attn_problem *p,
                                       const struct attn_cview *q, const struct attn_cview *k,
                                       const struct attn_cview *v)
{
    if (!sealed)
        return attn_fail(ctx->error, ATTN_EINTERNAL, "whole tensors are not sealed");
    if (fails && p->origin.query.first + p->origin.head > 0)
        return attn_fail(ctx->error, ATTN_ENOMEM, "planted failure");
    enum attn_status status = look(p, SQ, q, ctx->error);
    if (status == ATTN_OK)
        status = look(p, SK, k, ctx->error);
    return status == ATTN_OK ? look(p, SV, v, ctx->error) : status;
}

/* Every key counts once: O = number + the mean over keys j of 2^j, LSE = number + ln(keys). */
static enum attn_status probe_forward(struct attn_ctx *ctx, const struct attn_problem *p,
                                      const struct attn_forward *t)
{
    struct attn_tokens keys = attn_problem_keys(p, 0);
    enum attn_status status = look_at_inputs(ctx, p, &t->q, &t->k, &t->v);
    leave(p, SO, &t->o, 1, powers_of_two(&keys) / (double)keys.n);
    leave(p, SLSE, &t->lse, 1, log((double)keys.n));
    return status;
}

/* D in place of O and dLSE, as ulysses hands it on: 0 - (-D). */
static enum attn_status look_at_delta(const struct attn_problem *p, const struct attn_backward *t,
                                      struct attn_error *err)
{
    struct window w = window_of(p, SDLSE);
    FOR_WINDOW(w)
    {
        int64_t gh = w.head + h, gi = token_of(p, SDLSE, b, i);
        double want = sign(SDLSE, b, gh, gi, 0), got = attn_cview_get(&t->d_lse, b, h, i, 0);
        for (int64_t x = 0; x < p->d_value; x++) {
            want -= sign(SDO, b, gh, gi, x) * sign(SO, b, gh, gi, x);
            got -= attn_cview_get(&t->d_o, b, h, i, x) * attn_cview_get(&t->o, b, h, i, x);
        }
        if (got != want)
            return attn_fail(err, ATTN_EINTERNAL, "delta at %d %d %d is %g, not %g", (int)b, (int)h,
                             (int)i, got, want);
    }
    return ATTN_OK;
}

/* Query i adds 2^i to the gradient of every key, and key j adds 2^j to that of every query. */
static enum attn_status probe_backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                       const struct attn_backward *t)
{
    enum attn_status status = look_at_inputs(ctx, p, &t->q, &t->k, &t->v);
    if (status == ATTN_OK)
        status = look(p, SLSE, &t->lse, ctx->error);
    if (status == ATTN_OK)
        status = look(p, SDO, &t->d_o, ctx->error);
    if (status == ATTN_OK)
        status = look_at_delta(p, t, ctx->error);
    struct attn_tokens queries = attn_problem_queries(p, 0), keys = attn_problem_keys(p, 0);
    leave(p, SDQ, &t->dq, (double)keys.n, powers_of_two(&keys));
    double heads = (double)(p->heads / p->kv_heads); /* that read a kv head */
    leave(p, SDK, &t->dk, heads * (double)queries.n, heads * powers_of_two(&queries));
    leave(p, SDV, &t->dv, heads * (double)queries.n, heads * powers_of_two(&queries));
    return status;
}

static const struct attn_impl probe = {.name = "probe",
                                       .family = "test",
                                       .caps = ATTN_CAPS_ALL,
                                       .forward = probe_forward,
                                       .backward = probe_backward};

static void seal(void *arg, int on)
{
    (void)arg;
    sealed = on;
}

static void ck_arrived(const struct attn_tensor *x, int t, double times, double more)
{
    struct window w = window_of(whole, t);
    FOR_WINDOW(w)
    {
        double got = attn_tensor_get(x, b, h, i, c), want = times * sign(t, b, h, i, c) + more;
        int ok = fabs(got - want) <= 1e-9 * want;
        ck_assert_msg(ok, "%s at %d %d %d %d: %.17g, not %.17g", x->name, (int)b, (int)h, (int)i,
                      (int)c, got, want);
    }
}

struct probing {
    struct attn_setup setup;
    struct attn_spec spec;
    struct attn_ledger ledger;
    struct attn_error error;
    struct attn_seal seal;
    struct attn_ctx ctx;
};

static void probe_open(struct probing *x, const char *spec_text, const char *case_text)
{
    static const int slot[] = {ATTN_T_Q,   ATTN_T_K,  ATTN_T_V,   ATTN_T_O,
                               ATTN_T_LSE, ATTN_T_DO, ATTN_T_DLSE};
    struct attn_case given = case_of(case_text);
    setup_from(&given, &x->setup);
    x->spec = spec_of(spec_text);
    attn_options_set_local(&x->spec.options, &probe);
    attn_ledger_init(&x->ledger, NULL);
    x->seal = (struct attn_seal){seal, NULL};
    x->ctx = (struct attn_ctx){
        .ledger = &x->ledger, .options = &x->spec.options, .error = &x->error, .seal = &x->seal};
    whole = &x->setup.problem;
    sealed = fails = 0;
    for (int t = SQ; t <= SDLSE; t++) {
        struct window w = window_of(whole, t);
        FOR_WINDOW(w) attn_tensor_set(&x->setup.tensor[slot[t]], b, h, i, c, sign(t, b, h, i, c));
    }
}

static void probe_close(struct probing *x)
{
    ck_assert_int_eq(attn_ledger_clear(&x->ledger), 0);
    ck_assert_int_eq(x->ledger.damaged, 0);
    ck_assert_int_eq(sealed, 0);
    attn_setup_close(&x->setup);
}

/* Heads = tokens on purpose once: a transposed shape has the right size then. */
static const struct {
    const char *spec, *text;
} routes[] = {
    {"ulysses:ranks=1", "b2h4g4q8k8d3v2:none:f64:normal:s1:dlse=1:pass=bwd"},
    {"ulysses:ranks=2", "b2h8g4q8k8d3v2:none:f64:normal:s1:dlse=1:pass=bwd:layout=mixed"},
    {"ulysses:ranks=4", "b3h8g8q8k8d8v8:none:f64:normal:s1:dlse=1:pass=bwd:layout=blhd"},
    {"ulysses:ranks=4", "b2h8g4q12k20d3v5:none:f64:normal:s1:dlse=1:pass=bwd"},
    {"ulysses:ranks=8", "b2h16g8q16k8d2v3:none:f64:normal:s1:dlse=1:pass=bwd"},
    {"ring:ranks=1", "b2h4g4q8k8d3v2:none:f64:normal:s1:dlse=1:pass=bwd"},
    {"ring:ranks=2", "b2h8g4q8k8d3v2:none:f64:normal:s1:dlse=1:pass=bwd:layout=mixed"},
    {"ring:ranks=3", "b2h4g2q12k6d3v5:none:f64:normal:s1:dlse=1:pass=bwd"},
    {"ring:ranks=4", "b3h8g8q8k8d8v8:none:f64:normal:s1:dlse=1:pass=bwd:layout=blhd"},
    {"ring:ranks=5", "b2h4g4q10k15d3v2:none:f64:normal:s1:dlse=1:pass=bwd"},
    {"ring:ranks=8", "b2h3g1q16k8d2v3:none:f64:normal:s1:dlse=1:pass=bwd"},
};
enum { ROUTES = sizeof routes / sizeof *routes };

static void ck_routes(const char *spec_text, const char *case_text)
{
    struct probing x;
    probe_open(&x, spec_text, case_text);
    struct attn_forward f = attn_setup_forward(&x.setup);
    struct attn_backward g = attn_setup_backward(&x.setup);
    const struct attn_tensor *t = x.setup.tensor;
    double queries = (double)whole->n_query, keys = (double)whole->n_key;
    double heads = (double)(whole->heads / whole->kv_heads);

    /* the backward first: it reads the numbers in o and lse that the forward overwrites */
    enum attn_status status = attn_run_backward(x.spec.impl, &x.ctx, whole, &g);
    ck_assert_msg(status == ATTN_OK, "%s %s: %s", spec_text, case_text, x.error.text);
    ck_arrived(&t[ATTN_T_DQ], SDQ, keys, exp2(keys) - 1);
    ck_arrived(&t[ATTN_T_DK], SDK, heads * queries, heads * (exp2(queries) - 1));
    ck_arrived(&t[ATTN_T_DV], SDV, heads * queries, heads * (exp2(queries) - 1));

    status = attn_run_forward(x.spec.impl, &x.ctx, whole, &f);
    ck_assert_msg(status == ATTN_OK, "%s %s: %s", spec_text, case_text, x.error.text);
    if (whole->n_key > 0) {
        ck_arrived(&t[ATTN_T_O], SO, 1, (exp2(keys) - 1) / keys);
        ck_arrived(&t[ATTN_T_LSE], SLSE, 1, log(keys));
    }
    probe_close(&x);
}

START_TEST(every_element_arrives)
{
    ck_routes(routes[_i].spec, routes[_i].text);
}
END_TEST

/* A ring of any layout and size: tokens that the ranks do not divide, fewer tokens than ranks, and
 * windows of a double ring. */
START_TEST(every_ring)
{
    static const char *const order[] = {"contiguous", "striped", "zigzag"};
    static const int size[][2] = {{0, 3}, {3, 0}, {1, 1}, {5, 5}, {7, 12}, {12, 7}, {16, 16}};
    int ranks = _i + 1;
    for (int inner = 0; inner <= ranks; inner++)
        for (int o = 0; o < 3; o++)
            for (size_t n = 0; n < sizeof size / sizeof *size; n++) {
                char spec[80], text[80];
                if (inner > 0 && ranks % inner != 0)
                    continue;
                snprintf(spec, sizeof spec, "ring:ranks=%d,order=%s,inner=%d", ranks, order[o],
                         inner);
                snprintf(text, sizeof text, "b2h2g1q%dk%dd2v3:none:f64:normal:s1:dlse=1:pass=bwd",
                         size[n][0], size[n][1]);
                ck_routes(spec, text);
            }
}
END_TEST

/* All ranks but the first fail by themselves while the first waits: the cause is reported. */
START_TEST(the_cause_is_reported)
{
    struct probing x;
    probe_open(&x, routes[_i].spec, routes[_i].text);
    struct attn_forward f = attn_setup_forward(&x.setup);
    struct attn_backward g = attn_setup_backward(&x.setup);
    enum attn_status want = x.spec.options.value[0] > 1 ? ATTN_ENOMEM : ATTN_OK;
    fails = 1;
    ck_assert_int_eq(attn_run_backward(x.spec.impl, &x.ctx, whole, &g), want);
    ck_assert_int_eq(attn_run_forward(x.spec.impl, &x.ctx, whole, &f), want);
    ck_assert(want == ATTN_OK || strcmp(x.error.text, "planted failure") == 0);
    probe_close(&x);
}
END_TEST

/* Ulysses with heads, kv heads and tokens that the ranks do not divide, and fewer of them than
 * ranks: groups that are cut, copies of kv heads. */
START_TEST(every_ulysses)
{
    static const int heads[][2] = {{1, 1}, {4, 2}, {5, 5}, {6, 1}, {10, 2}, {12, 3}};
    static const int size[][2] = {{0, 3}, {1, 1}, {7, 12}, {12, 7}};
    for (size_t h = 0; h < sizeof heads / sizeof *heads; h++)
        for (size_t n = 0; n < sizeof size / sizeof *size; n++) {
            char spec[80], text[80];
            snprintf(spec, sizeof spec, "ulysses:ranks=%d", _i + 1);
            snprintf(text, sizeof text, "b2h%dg%dq%dk%dd2v3:none:f64:normal:s1:dlse=1:pass=bwd",
                     heads[h][0], heads[h][1], size[n][0], size[n][1]);
            ck_routes(spec, text);
        }
}
END_TEST

Suite *suite_routing(void)
{
    Suite *suite = suite_create("routing");
    TCase *t = tcase_create("routing");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, every_element_arrives, 0, ROUTES);
    tcase_add_loop_test(t, every_ring, 0, 8);
    tcase_add_loop_test(t, every_ulysses, 0, 8);
    tcase_add_loop_test(t, the_cause_is_reported, 0, ROUTES);
    suite_add_tcase(suite, t);
    return suite;
}
