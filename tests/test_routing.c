/* Where things go in ulysses and ring: every element carries its own number through all
 * exchanges, and a rank that fails is named.  Catalogue: SP-01 to SP-06, SP-16, SP-17, SP-22. */
#include <math.h>
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
static int is_ring, sealed, fails;

enum { SQ, SK, SV, SO, SLSE, SDO, SDLSE, SDQ, SDK, SDV };

/* A distinct integer for every element of every tensor, in whole-problem indices. */
static double sign(int t, int64_t b, int64_t h, int64_t i, int64_t c)
{
    int of_keys = t == SK || t == SV || t == SDK || t == SDV;
    int64_t heads = of_keys ? whole->kv_heads : whole->heads;
    int64_t n = of_keys ? whole->n_key : whole->n_query;
    return (double)(t * 200000 + ((b * heads + h) * n + i) * 16 + c + 1);
}

struct window {
    int64_t batch, heads, tokens, width, head, token;
};

static struct window window_of(const struct attn_problem *p, int t)
{
    int of_keys = t == SK || t == SV || t == SDK || t == SDV;
    int of_d = t == SQ || t == SK || t == SDQ || t == SDK;
    int64_t kv_head = p->origin.head / (whole->heads / whole->kv_heads);
    return (struct window){p->batch,
                           of_keys ? p->kv_heads : p->heads,
                           of_keys ? p->n_key : p->n_query,
                           t == SLSE || t == SDLSE ? 1
                           : of_d                  ? p->d_key
                                                   : p->d_value,
                           of_keys ? kv_head : p->origin.head,
                           of_keys ? p->origin.key.first : p->origin.query.first};
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
    if (attn_cview_get(x, b, h, i, c) != sign(t, b, w.head + h, w.token + i, c))
        return attn_fail(err, ATTN_EINTERNAL, "tensor %d at %d %d %d %d is %g", t, (int)b, (int)h,
                         (int)i, (int)c, attn_cview_get(x, b, h, i, c));
    return ATTN_OK;
}

static void leave(const struct attn_problem *p, int t, const struct attn_view *x, double more)
{
    struct window w = window_of(p, t);
    FOR_WINDOW(w)
    ((double *)x->data)[attn_offset(x->stride, b, h, i) + c * x->stride[3]] =
        sign(t, b, w.head + h, w.token + i, c) + more;
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

static int64_t block_of(int64_t token, int64_t tokens)
{
    return tokens > 0 ? token / tokens : 0;
}

/* Every block counts once: O = the mean over blocks of (number + block), LSE = ln(blocks). */
static enum attn_status probe_forward(struct attn_ctx *ctx, const struct attn_problem *p,
                                      const struct attn_forward *t)
{
    enum attn_status status = look_at_inputs(ctx, p, &t->q, &t->k, &t->v);
    leave(p, SO, &t->o, (double)block_of(p->origin.key.first, p->n_key));
    struct window w = window_of(p, SLSE);
    if (!is_ring)
        leave(p, SLSE, &t->lse, 0);
    else
        FOR_WINDOW(w)((double *)t->lse.data)[attn_offset(t->lse.stride, b, h, i)] = 0;
    return status;
}

/* D in place of O and dLSE, as ulysses hands it on: 0 - (-D). */
static enum attn_status look_at_delta(const struct attn_problem *p, const struct attn_backward *t,
                                      struct attn_error *err)
{
    struct window w = window_of(p, SDLSE);
    FOR_WINDOW(w)
    {
        int64_t gh = w.head + h, gi = w.token + i;
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

/* Rank r adds 2^r to what block j's gradient gets, and block j adds 2^j to dQ: in the sums each
 * must be there once. */
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
    leave(p, SDQ, &t->dq, ldexp(1, (int)block_of(p->origin.key.first, p->n_key)));
    leave(p, SDK, &t->dk, ldexp(1, (int)block_of(p->origin.query.first, p->n_query)));
    leave(p, SDV, &t->dv, ldexp(1, (int)block_of(p->origin.query.first, p->n_query)));
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
    x->spec.options.local = &probe;
    attn_ledger_init(&x->ledger, NULL);
    x->seal = (struct attn_seal){seal, NULL};
    x->ctx = (struct attn_ctx){
        .ledger = &x->ledger, .options = &x->spec.options, .error = &x->error, .seal = &x->seal};
    whole = &x->setup.problem;
    is_ring = spec_text[0] == 'r';
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

START_TEST(every_element_arrives)
{
    struct probing x;
    probe_open(&x, routes[_i].spec, routes[_i].text);
    struct attn_forward f = attn_setup_forward(&x.setup);
    struct attn_backward g = attn_setup_backward(&x.setup);
    const struct attn_tensor *t = x.setup.tensor;
    double blocks = is_ring ? (double)x.spec.options.value[0] : 1, once = exp2(blocks) - 1;

    /* the backward first: it reads the numbers in o and lse that the forward overwrites */
    enum attn_status status = attn_run_backward(x.spec.impl, &x.ctx, whole, &g);
    ck_assert_msg(status == ATTN_OK, "%s", x.error.text);
    ck_arrived(&t[ATTN_T_DQ], SDQ, blocks, once);
    ck_arrived(&t[ATTN_T_DK], SDK, blocks, once);
    ck_arrived(&t[ATTN_T_DV], SDV, blocks, once);

    status = attn_run_forward(x.spec.impl, &x.ctx, whole, &f);
    ck_assert_msg(status == ATTN_OK, "%s", x.error.text);
    ck_arrived(&t[ATTN_T_O], SO, 1, (blocks - 1) / 2);
    struct window w = window_of(whole, SLSE);
    if (!is_ring)
        ck_arrived(&t[ATTN_T_LSE], SLSE, 1, 0);
    else
        FOR_WINDOW(w)
        {
            int ok = fabs(attn_tensor_get(&t[ATTN_T_LSE], b, h, i, c) - log(blocks)) <= 1e-14;
            ck_assert(ok);
        }
    probe_close(&x);
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

Suite *suite_routing(void)
{
    Suite *suite = suite_create("routing");
    TCase *t = tcase_create("routing");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, every_element_arrives, 0, ROUTES);
    tcase_add_loop_test(t, the_cause_is_reported, 0, ROUTES);
    suite_add_tcase(suite, t);
    return suite;
}
