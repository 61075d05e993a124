/* Where things go in every scheme: every element carries its own number through all exchanges, and
 * a rank that fails is named.  All small problems of up to four ranks under ATTN_FULL, else some.
 * Catalogue: SP-01 to SP-06, SP-09, SP-16, SP-17, SP-22. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/problem.h"
#include "ref/textbook.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/fixtures/scheme_walk.h"
#include "tests/harness/runner.h"
#include "tests/suites.h"

SUITE(routing, .seconds = 1200);

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
    int64_t batch, heads, tokens, width;
};

static struct window window_of(const struct attn_problem *p, int t)
{
    int of_d = t == SQ || t == SK || t == SDQ || t == SDK;
    return (struct window){p->batch, is_of_keys(t) ? p->kv_heads : p->heads,
                           is_of_keys(t) ? p->n_key : p->n_query,
                           t == SLSE || t == SDLSE ? 1
                           : of_d                  ? p->d_key
                                                   : p->d_value};
}

/* The number that the whole has at this place of a piece. */
static double sign_of(const struct attn_problem *p, int t, int64_t b, int64_t h, int64_t i,
                      int64_t c)
{
    int64_t group = is_of_keys(t) ? whole->heads / whole->kv_heads : 1;
    return sign(t, attn_whole_batch(p, b), p->origin.head / group + h,
                is_of_keys(t) ? attn_whole_key(p, b, i) : attn_whole_query(p, b, i), c);
}

#define FOR_ROWS(w)                             \
    for (int64_t b = 0; b < (w).batch; b++)     \
        for (int64_t h = 0; h < (w).heads; h++) \
            for (int64_t i = 0; i < (w).tokens; i++)
#define FOR_WINDOW(w) FOR_ROWS(w) for (int64_t c = 0; c < (w).width; c++)

static enum attn_status look(const struct attn_problem *p, int t, const struct attn_cview *x,
                             struct attn_error *err)
{
    struct window w = window_of(p, t);
    FOR_WINDOW(w)
    if (attn_cview_get(x, b, h, i, c) != sign_of(p, t, b, h, i, c))
        return attn_fail(err, ATTN_EINTERNAL, "tensor %d at %d %d %d %d is %g", t, (int)b, (int)h,
                         (int)i, (int)c, attn_cview_get(x, b, h, i, c));
    return ATTN_OK;
}

/* A row of a result: so many pairs were visible, and 2^token of the other end of each, summed: a
 * sum in which each must be there once. */
struct pairs {
    double n, sum;
};

static void see(struct pairs *x, int64_t token)
{
    x->n += 1;
    x->sum += ldexp(1, (int)token);
}

static struct pairs pairs_of(const struct attn_problem *p, int t, int64_t b, int64_t h, int64_t i)
{
    struct pairs x = {0, 0};
    int64_t group = p->heads / p->kv_heads;
    for (int64_t j = 0; j < p->n_key && !is_of_keys(t); j++)
        if (attn_problem_allows(p, b, h, i, j))
            see(&x, attn_whole_key(p, b, j));
    for (int64_t n = 0; n < group * p->n_query && is_of_keys(t); n++)
        if (attn_problem_allows(p, b, h * group + n % group, n / group, i))
            see(&x, attn_whole_query(p, b, n / group));
    return x;
}

/* Pair by pair, a gradient gets its own number and 2^token.  O is the mean of the same, and LSE the
 * number and ln of how many they are, so that partial results merge. */
static double result_of_pairs(int t, const struct pairs *x, double number)
{
    if (t == SLSE)
        return x->n > 0 ? number + log(x->n) : -HUGE_VAL;
    if (t == SO)
        return x->n > 0 ? number + x->sum / x->n : 0;
    return x->n * number + x->sum;
}

static void leave(const struct attn_problem *p, int t, const struct attn_view *v)
{
    struct window w = window_of(p, t);
    FOR_ROWS(w)
    {
        struct pairs x = pairs_of(p, t, b, h, i);
        for (int64_t c = 0; c < w.width; c++)
            attn_view_set(v, b, h, i, c, result_of_pairs(t, &x, sign_of(p, t, b, h, i, c)));
    }
}

static enum attn_status look_at_inputs(struct attn_ctx *ctx, const struct attn_problem *p,
                                       const struct attn_cview *q, const struct attn_cview *k,
                                       const struct attn_cview *v)
{
    if (!sealed)
        return attn_fail(ctx->error, ATTN_EINTERNAL, "whole tensors are not sealed");
    if (fails && p->origin.query.first + p->origin.head + p->origin.batch > 0)
        return attn_fail(ctx->error, ATTN_ENOMEM, "planted failure");
    enum attn_status status = look(p, SQ, q, ctx->error);
    if (status == ATTN_OK)
        status = look(p, SK, k, ctx->error);
    return status == ATTN_OK ? look(p, SV, v, ctx->error) : status;
}

static enum attn_status probe_forward(struct attn_ctx *ctx, const struct attn_problem *p,
                                      const struct attn_forward *t)
{
    enum attn_status status = look_at_inputs(ctx, p, &t->q, &t->k, &t->v);
    leave(p, SO, &t->o);
    leave(p, SLSE, &t->lse);
    return status;
}

/* D in place of O and dLSE, as schemes hand it on: 0 - (-D). */
static enum attn_status look_at_delta(const struct attn_problem *p, const struct attn_backward *t,
                                      struct attn_error *err)
{
    struct window w = window_of(p, SDLSE);
    FOR_ROWS(w)
    {
        double want = sign_of(p, SDLSE, b, h, i, 0), got = attn_cview_get(&t->d_lse, b, h, i, 0);
        for (int64_t x = 0; x < p->d_value; x++) {
            want -= sign_of(p, SDO, b, h, i, x) * sign_of(p, SO, b, h, i, x);
            got -= attn_cview_get(&t->d_o, b, h, i, x) * attn_cview_get(&t->o, b, h, i, x);
        }
        if (got != want)
            return attn_fail(err, ATTN_EINTERNAL, "delta at %d %d %d is %g, not %g", (int)b, (int)h,
                             (int)i, got, want);
    }
    return ATTN_OK;
}

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
    leave(p, SDQ, &t->dq);
    leave(p, SDK, &t->dk);
    leave(p, SDV, &t->dv);
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

/* Exactly: what is divided or has its logarithm taken is turned back into whole numbers. */
static int is_result(int t, const struct pairs *x, double number, double got)
{
    if (x->n == 0)
        return got == result_of_pairs(t, x, number);
    if (t == SLSE)
        return round(exp(got - number)) == x->n;
    if (t == SO)
        return round(got * x->n) == x->n * number + x->sum;
    return got == result_of_pairs(t, x, number);
}

static int64_t arrived; /* elements of results, since the test began */

static void ck_arrived(const struct attn_tensor *tensor, int t, const char *run)
{
    struct window w = window_of(whole, t);
    FOR_ROWS(w)
    {
        struct pairs x = pairs_of(whole, t, b, h, i);
        for (int64_t c = 0; c < w.width; c++, arrived++) {
            double number = sign(t, b, h, i, c), got = attn_tensor_get(tensor, b, h, i, c);
            if (!is_result(t, &x, number, got))
                ck_abort_msg("%s: %s at %d %d %d %d: %.17g, not %.17g", run, tensor->name, (int)b,
                             (int)h, (int)i, (int)c, got, result_of_pairs(t, &x, number));
        }
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

/* 0: refused, as strict sizes may be. */
static int ck_routes(const char *spec_text, const char *case_text)
{
    struct probing x;
    char run[200];
    snprintf(run, sizeof run, "%s %s", spec_text, case_text);
    probe_open(&x, spec_text, case_text);
    struct attn_forward f = attn_setup_forward(&x.setup);
    struct attn_backward g = attn_setup_backward(&x.setup);
    const struct attn_tensor *t = x.setup.tensor;

    /* the backward first: it reads the numbers in o and lse that the forward overwrites */
    enum attn_status status = attn_run_backward(x.spec.impl, &x.ctx, whole, &g);
    if (status == ATTN_ENOTSUP && may_be_refused(spec_text)) {
        probe_close(&x);
        return 0;
    }
    ck_assert_msg(status == ATTN_OK, "%s: %s", run, x.error.text);
    ck_arrived(&t[ATTN_T_DQ], SDQ, run);
    ck_arrived(&t[ATTN_T_DK], SDK, run);
    ck_arrived(&t[ATTN_T_DV], SDV, run);

    status = attn_run_forward(x.spec.impl, &x.ctx, whole, &f);
    ck_assert_msg(status == ATTN_OK, "%s: %s", run, x.error.text);
    ck_arrived(&t[ATTN_T_O], SO, run);
    ck_arrived(&t[ATTN_T_LSE], SLSE, run);
    probe_close(&x);
    return 1;
}

/* ---- every scheme, every small problem ------------------------------------------------------- */

/* Heads that ranks do not divide, groups that are cut, copies of kv heads. */
static const int heads[][2] = {{1, 1}, {2, 1}, {2, 2}, {3, 1}, {3, 3}, {4, 1}, {4, 2},
                               {4, 4}, {5, 1}, {5, 5}, {6, 1}, {6, 2}, {6, 3}, {6, 6}};
/* Tokens that ranks, or twice as many runs, do not divide; fewer tokens than ranks. */
static const int tokens[] = {0, 1, 3, 4, 7, 9};
enum { HEADS = sizeof heads / sizeof *heads, TOKENS = sizeof tokens / sizeof *tokens };

/* One run of so many is made: all, or with a step that no extent above has as a factor. */
static int step, turn, runs;

/* Batches, masks and memory layouts take turns. */
static void every_problem(const char *spec)
{
    static const char *const mask[] = {"none", "causal(tl)", "random(0.4,6,heads)", "causal(br)",
                                       "window(2,1,br)"};
    static const char *const layout[] = {"", ":layout=mixed", ":layout=blhd", ""};
    for (int h = 0; h < HEADS; h++)
        for (int n = 0; n < TOKENS * TOKENS; n++) {
            char text[120];
            int at = turn++;
            if (at % step != 0)
                continue;
            at /= step;
            snprintf(text, sizeof text, "b%dh%dg%dq%dk%dd2v3:%s:f64:normal:s1:dlse=1:pass=bwd%s",
                     1 + at % 3, heads[h][0], heads[h][1], tokens[n / TOKENS], tokens[n % TOKENS],
                     mask[at % 5], layout[at % 4]);
            runs += ck_routes(spec, text);
        }
}

/* Frames of a few places, under masks that see one frame, one place and all. */
static void every_video(const char *spec)
{
    static const char *const call[] = {"spatial", "temporal"};
    static const int place[][2] = {{1, 1}, {1, 3}, {2, 2}};
    for (int n = 0; n < 3 * 3 * 5 * 5; n++) {
        char mask[40] = "none", text[120];
        int frames = 1 + n / 9 % 5, h = place[n / 3 % 3][0], w = place[n / 3 % 3][1];
        int at = turn++;
        if (at % step != 0)
            continue;
        if (n % 3 < 2)
            snprintf(mask, sizeof mask, "%s(%d,%d,%d)", call[n % 3], frames, h, w);
        snprintf(text, sizeof text, "b%dh%dg%dq%dk%dd2v3:%s:f64:normal:s1:dlse=1:pass=bwd",
                 1 + at / step % 3, heads[3 * (n / 45)][0], heads[3 * (n / 45)][1], frames * h * w,
                 frames * h * w, mask);
        runs += ck_routes(spec, text);
    }
}

/* Scopes, fewer and more than ranks, whole and with cut runs; alone, where a scope is a dense
 * problem, and with a mask that says more. */
static void every_scope(const char *spec)
{
    static const char *const call[] = {"skiparse(single,%d)", "skiparse(group,%d)",
                                       "skiparse(group,%d)&causal(tl)"};
    static const int extent[][2] = {{0, 0}, {3, 3}, {7, 7}, {8, 8}, {13, 13}, {18, 18}, {9, 14}};
    for (int n = 0; n < 3 * 4 * 7 * HEADS; n++) {
        char mask[60], text[140];
        int at = turn++;
        const int *x = extent[n / 12 % 7], *h = heads[n / 84];
        if (at % step != 0)
            continue;
        snprintf(mask, sizeof mask, call[n % 3], 1 + n / 3 % 4);
        snprintf(text, sizeof text, "b%dh%dg%dq%dk%dd2v3:%s:f64:normal:s1:dlse=1:pass=bwd",
                 1 + at / step % 3, h[0], h[1], x[0], x[1], mask);
        runs += ck_routes(spec, text);
    }
}

/* Schemes for masks of their own have problems of their own. */
static void every_route(void *arg, const struct attn_impl *impl, const char *spec)
{
    (void)arg;
    if (strstr(spec, "partials=storage") != NULL) /* of f64: nothing is wider */
        return;
    if (strcmp(impl->name, "video") == 0)
        every_video(spec);
    else if (strcmp(impl->name, "skiparse") == 0)
        every_scope(spec);
    else
        every_problem(spec);
}

/* One problem of so many is run, here and under ATTN_FULL: steps have no factor of an extent. */
static const struct {
    int ranks, step, of_full;
} routed[] = {{1, 509, 1},  {2, 509, 1},  {3, 509, 1},  {4, 509, 1},    {5, 509, 11},
              {6, 509, 11}, {7, 509, 11}, {8, 509, 11}, {16, 5003, 53}, {64, 20011, 2003}};

TEST_EACH(every_scheme, sizeof routed / sizeof *routed)
{
    int ranks = routed[_i].ranks;
    step = getenv("ATTN_FULL") != NULL ? routed[_i].of_full : routed[_i].step;
    turn = runs = 0;
    arrived = 0;
    scheme_walk(ranks, every_route, NULL);
    printf("routing: %d ranks: %d of %d runs, %lld elements arrived\n", ranks, runs, turn,
           (long long)arrived);
    fflush(stdout);
    ck_assert_int_gt(2 * runs, turn / step); /* a third is strict, which refuses most */
}

/* ---- larger ones ----------------------------------------------------------------------------- */

/* Heads = tokens on purpose once: a transposed shape has the right size then. */
static const struct {
    const char *spec, *text;
} routes[] = {
    {"ulysses:ranks=4", "b3h8g8q8k8d8v8:none:f64:normal:s1:dlse=1:pass=bwd:layout=blhd"},
    {"ulysses:ranks=8", "b2h16g8q16k8d2v3:none:f64:normal:s1:dlse=1:pass=bwd"},
    {"ulysses:ranks=6", "b1h40g8q7k12d2v3:none:f64:normal:s1:dlse=1:pass=bwd"},
    {"ring:ranks=4", "b3h8g8q8k8d8v8:none:f64:normal:s1:dlse=1:pass=bwd:layout=blhd"},
    {"ring:ranks=5", "b2h4g2q10k15d3v2:none:f64:normal:s1:dlse=1:pass=bwd"},
    {"usp:ranks=16", "b2h8g4q16k16d2v3:causal(tl):f64:normal:s1:dlse=1:pass=bwd"},
    {"usp:ranks=12,heads=3", "b2h8g4q12k16d2v3:causal(br):f64:normal:s1:dlse=1:pass=bwd"},
    {"allgather:ranks=5,stride=3", "b2h8g8q8k16d2v3:none:f64:normal:s1:dlse=1:pass=bwd"},
    {"lightseq:ranks=16", "b2h3g1q16k16d2v3:causal(tl):f64:normal:s1:dlse=1:pass=bwd"},
    {"lightseq:ranks=5", "b2h8g8q8k8d8v8:causal(tl):f64:normal:s1:dlse=1:pass=bwd:layout=blhd"},
    {"heads:ranks=6", "b1h40g8q7k12d2v3:none:f64:normal:s1:dlse=1:pass=bwd"},
    {"batch:ranks=2", "b3h8g8q8k8d8v8:none:f64:normal:s1:dlse=1:pass=bwd:layout=blhd"},
};

TEST_EACH(every_element_arrives, COUNT(routes))
{
    ck_routes(routes[_i].spec, routes[_i].text);
}

/* All ranks but the first fail by themselves while the first waits: the cause is reported. */
TEST_EACH(the_cause_is_reported, COUNT(routes))
{
    struct probing x;
    probe_open(&x, routes[_i].spec, routes[_i].text);
    struct attn_forward f = attn_setup_forward(&x.setup);
    struct attn_backward g = attn_setup_backward(&x.setup);
    fails = 1;
    ck_assert_int_eq(attn_run_backward(x.spec.impl, &x.ctx, whole, &g), ATTN_ENOMEM);
    ck_assert_int_eq(attn_run_forward(x.spec.impl, &x.ctx, whole, &f), ATTN_ENOMEM);
    ck_assert_str_eq(x.error.text, "planted failure");
    probe_close(&x);
}
