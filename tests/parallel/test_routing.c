/* Where things go in every scheme: every element carries its own number through all exchanges, in
 * both passes and with no tolerance, and a rank that fails is named.
 *
 * A problem is small with at most 2 batches, 4 query heads (and every number of kv heads that
 * divides them), 9 queries and 9 keys, on 1 to 8 ranks; 5 frames of 4 places; for scopes 18 tokens.
 * Under ATTN_FULL all of them are run by every scheme, with every value of every option that says
 * what goes where; of merges each takes its turn.  Else some are, and of larger ones always some.
 * Catalogue: SP-01 to SP-06, SP-09, SP-16, SP-17, SP-22. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/problem.h"
#include "ref/textbook.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/fixtures/fibers.h"
#include "tests/fixtures/scheme_walk.h"
#include "tests/harness/fill.h"
#include "tests/harness/runner.h"
#include "tests/suites.h"

SUITE(routing, .seconds = 3600);

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

/* ---- a problem, and a run of it -------------------------------------------------------------- */

/* Where a tensor lies that the probe calls t. */
static const int slot[] = {ATTN_T_Q,  ATTN_T_K,    ATTN_T_V,  ATTN_T_O,  ATTN_T_LSE,
                           ATTN_T_DO, ATTN_T_DLSE, ATTN_T_DQ, ATTN_T_DK, ATTN_T_DV};

struct probing {
    struct running at;    /* of the spec that runs now */
    const char *text;     /* of the case */
    struct pairs *row[2]; /* of all rows of queries, of keys */
    struct attn_seal seal;
    int64_t labels, wrong; /* of results that arrived */
    char first_wrong[400];
};

/* Every element its sign; or NaN, as long as it is not written. */
static void put(struct probing *x, int t, int blank)
{
    struct attn_tensor *tensor = &x->at.setup.tensor[slot[t]];
    struct window w = window_of(whole, t);
    FOR_WINDOW(w) attn_tensor_set(tensor, b, h, i, c, blank ? (double)NAN : sign(t, b, h, i, c));
}

static void probe_open(struct probing *x, const char *case_text)
{
    const struct attn_spec none = {0};
    *x = (struct probing){.text = case_text, .seal = {seal, NULL}};
    running_open(&x->at, &none, case_text);
    x->at.ctx.seal = &x->seal;
    whole = &x->at.setup.problem;
    sealed = fails = 0;
    for (int t = SQ; t <= SDLSE; t++)
        put(x, t, 0);
    for (int of_keys = 0; of_keys < 2; of_keys++) {
        int t = of_keys ? SDK : SDQ;
        struct window w = window_of(whole, t);
        struct pairs *to = calloc((size_t)(w.batch * w.heads * w.tokens) + 1, sizeof *to);
        ck_assert_ptr_nonnull(to);
        x->row[of_keys] = to;
        FOR_ROWS(w) *to++ = pairs_of(whole, t, b, h, i);
    }
}

/* The probe in place of what a rank runs. */
static void probe_with(struct probing *x, const struct attn_spec *spec)
{
    x->at.spec = *spec;
    attn_options_set_local(&x->at.spec.options, &probe);
}

static void probe_close(struct probing *x)
{
    ck_assert_int_eq(sealed, 0);
    free(x->row[0]);
    free(x->row[1]);
    running_close(&x->at);
}

static void note_wrong(struct probing *x, int t, const char *run, const char *at, double got,
                       double want)
{
    if (x->wrong++ == 0)
        snprintf(x->first_wrong, sizeof x->first_wrong, "%s %s: %s at %s: %.17g, not %.17g", run,
                 x->text, x->at.setup.tensor[slot[t]].name, at, got, want);
}

static void look_at_results(struct probing *x, int t, const char *run)
{
    const struct pairs *row = x->row[is_of_keys(t)];
    struct window w = window_of(whole, t);
    FOR_ROWS(w)
    {
        const struct pairs *of = row++;
        for (int64_t c = 0; c < w.width; c++, x->labels++) {
            double number = sign(t, b, h, i, c);
            double got = attn_tensor_get(&x->at.setup.tensor[slot[t]], b, h, i, c);
            char at[100];
            if (is_result(t, of, number, got))
                continue;
            snprintf(at, sizeof at, "%d %d %d %d", (int)b, (int)h, (int)i, (int)c);
            note_wrong(x, t, run, at, got, result_of_pairs(t, of, number));
        }
    }
}

/* A pass and what comes back from it.  The forward first: the backward may use what it saved. */
static enum attn_status probe_pass(struct probing *x, enum attn_pass pass, const char *run)
{
    const int from = pass == ATTN_FORWARD ? SO : SDQ, to = pass == ATTN_FORWARD ? SLSE : SDV;
    for (int t = from; t <= to; t++)
        put(x, t, 1);
    enum attn_status status = running_pass(&x->at, pass);
    for (int t = from; t <= to && status == ATTN_OK; t++)
        look_at_results(x, t, run);
    return status;
}

/* 0: refused, as strict sizes may be. */
static int ck_routes(struct probing *x, const struct attn_spec *spec, const char *run)
{
    probe_with(x, spec);
    enum attn_status status = probe_pass(x, ATTN_FORWARD, run);
    put(x, SO, 0);
    put(x, SLSE, 0);
    if (status == ATTN_ENOTSUP && may_be_refused(run))
        return 0;
    ck_assert_msg(status == ATTN_OK, "%s %s: %s", run, x->text, x->at.err.text);
    status = probe_pass(x, ATTN_BACKWARD, run);
    ck_assert_msg(status == ATTN_OK, "%s %s: %s", run, x->text, x->at.err.text);
    attn_saved_drop(&x->at.saved, &x->at.ledger);
    return 1;
}

/* ---- every scheme, every small problem ------------------------------------------------------- */

/* Problems with no more batches, query heads (with every number of kv heads that divides them) and
 * tokens on either side than this: all of them, or one in `step`. */
static const struct extents {
    int ranks, batches, heads, tokens, step, of_full;
} walks[] = {{1, 2, 4, 9, 1009, 1},       {2, 2, 4, 9, 1009, 1},     {3, 2, 4, 9, 1009, 1},
             {4, 2, 4, 9, 1009, 1},       {5, 2, 4, 9, 1009, 1},     {6, 2, 4, 9, 1009, 1},
             {7, 2, 4, 9, 1009, 1},       {8, 2, 4, 9, 1009, 1},     {2, 3, 6, 13, 10007, 499},
             {3, 3, 6, 13, 10007, 499},   {5, 3, 6, 13, 10007, 499}, {8, 3, 6, 13, 10007, 499},
             {16, 3, 6, 13, 50021, 5003}, {64, 2, 4, 9, 50021, 2003}};

/* A way to run on ranks.  What changes no route takes turns: of three merges each problem meets
 * one. */
struct way {
    char text[200];
    struct attn_spec spec;
    int merge, of_merges; /* -1, or which word of merge=; how many groups of these are before it */
};

struct walk {
    const struct extents *to;
    struct way *way;
    int ways, groups;
    int turn, step; /* one run of so many is made */
    int64_t problems, runs, refused, labels;
};

static void add_way(void *arg, const struct attn_impl *impl, const char *spec)
{
    static const char *const merge[] = {"merge=running", "merge=numerator", "merge=deferred"};
    struct walk *x = arg;
    (void)impl;
    if (strstr(spec, "partials=storage") != NULL) /* of f64: nothing is wider */
        return;
    x->way = realloc(x->way, (size_t)(x->ways + 1) * sizeof *x->way);
    ck_assert_ptr_nonnull(x->way);
    struct way *way = &x->way[x->ways++];
    *way = (struct way){.spec = spec_of(spec), .merge = -1};
    snprintf(way->text, sizeof way->text, "%s", spec);
    for (int m = 0; m < COUNT(merge); m++)
        if (strstr(spec, merge[m]) != NULL) {
            way->merge = m;
            way->of_merges = x->groups;
            x->groups += m + 1 == COUNT(merge);
        }
}

/* One run in `step`, drawn: with every so-many-th the same words of an option would come again and
 * again. */
static int is_drawn(struct walk *x)
{
    return attn_hash(1, (uint64_t)x->to->ranks, (uint64_t)x->turn++) % (uint64_t)x->step == 0;
}

/* Schemes whose names are in `who`, or all, with this problem. */
static void every_way(struct walk *x, const char *who, const char *text)
{
    struct probing probing;
    int n = (int)x->problems++, is_open = 0;
    for (int w = 0; w < x->ways; w++) {
        struct way *way = &x->way[w];
        if (way->merge >= 0 && (n + way->of_merges) % 3 != way->merge)
            continue;
        if ((who != NULL && strstr(who, way->spec.impl->name) == NULL) || !is_drawn(x))
            continue;
        if (!is_open++)
            probe_open(&probing, text);
        int ran = ck_routes(&probing, &way->spec, way->text);
        x->runs += ran;
        x->refused += !ran;
    }
    if (!is_open)
        return;
    ck_assert_msg(probing.wrong == 0, "%lld wrong labels; %s", (long long)probing.wrong,
                  probing.first_wrong);
    x->labels += probing.labels;
    probe_close(&probing);
}

/* The n-th pair of heads and kv heads, up to so many heads; 0 if there is none. */
static int heads_at(int n, int most, int *heads, int *kv_heads)
{
    for (*heads = 1; *heads <= most; ++*heads)
        for (*kv_heads = 1; *kv_heads <= *heads; ++*kv_heads)
            if (*heads % *kv_heads == 0 && n-- == 0)
                return 1;
    return 0;
}

/* Masks and memory layouts take turns, so that every pair of lengths meets each. */
static void every_problem(struct walk *x, int batch, int heads, int kv_heads, int turn)
{
    static const char *const mask[] = {"none", "causal(tl)", "random(0.4,6,heads)", "causal(br)",
                                       "window(2,1,br)"};
    static const char *const layout[] = {"", ":layout=mixed", ":layout=blhd", ""};
    for (int q = 0; q <= x->to->tokens; q++)
        for (int k = 0; k <= x->to->tokens; k++) {
            char text[140];
            snprintf(text, sizeof text, "b%dh%dg%dq%dk%dd2v3:%s:f64:normal:s1:dlse=1:pass=bwd%s",
                     batch, heads, kv_heads, q, k, mask[(q + 2 * k + turn) % 5],
                     layout[(q + k + 3 * turn) % 4]);
            every_way(x, NULL, text);
        }
}

/* Up to five frames of a few places, under masks that see one frame and one place. */
static void every_video(struct walk *x, int batch, int heads, int kv_heads)
{
    static const char *const call[] = {"spatial", "temporal"};
    static const int place[][2] = {{1, 1}, {1, 2}, {1, 3}, {2, 2}};
    for (int n = 0; n < 2 * COUNT(place) * 5; n++) {
        int frames = 1 + n / 2 / COUNT(place), *of = (int *)place[n / 2 % COUNT(place)];
        char text[140];
        snprintf(text, sizeof text,
                 "b%dh%dg%dq%dk%dd2v3:%s(%d,%d,%d):f64:normal:s1:dlse=1:pass=bwd", batch, heads,
                 kv_heads, frames * of[0] * of[1], frames * of[0] * of[1], call[n % 2], frames,
                 of[0], of[1]);
        every_way(x, "video skiparse", text);
    }
}

/* Scopes, fewer and more than ranks, whole and with cut runs; alone, where a scope is a dense
 * problem, and with a mask that says more. */
static void every_scope(struct walk *x, int batch, int heads, int kv_heads)
{
    static const char *const call[] = {"skiparse(single,%d)", "skiparse(group,%d)",
                                       "skiparse(group,%d)&causal(tl)"};
    for (int tokens = 0; tokens <= 2 * x->to->tokens; tokens++)
        for (int n = 0; n < 3 * 4; n++) {
            char mask[60], text[160];
            snprintf(mask, sizeof mask, call[n % 3], 1 + n / 3);
            snprintf(text, sizeof text, "b%dh%dg%dq%dk%dd2v3:%s:f64:normal:s1:dlse=1:pass=bwd",
                     batch, heads, kv_heads, tokens, tokens, mask);
            every_way(x, "skiparse", text);
        }
}

TEST_EACH(every_scheme, COUNT(walks))
{
    int full = getenv("ATTN_FULL") != NULL, heads, kv_heads;
    struct walk x = {.to = &walks[_i], .step = full ? walks[_i].of_full : walks[_i].step};
    scheme_walk(x.to->ranks, add_way, &x);
    if (x.to->ranks <= FIBERS)
        fibers_on();
    for (int n = 0; heads_at(n, x.to->heads, &heads, &kv_heads); n++)
        for (int batch = 1; batch <= x.to->batches; batch++) {
            every_problem(&x, batch, heads, kv_heads, n + batch);
            every_video(&x, batch, heads, kv_heads);
            every_scope(&x, batch, heads, kv_heads);
        }
    fibers_off();
    free(x.way);
    printf("routing: %d ranks, B <= %d, H <= %d, L <= %d: %lld problems, %lld of %d runs, %lld "
           "refused, %lld labels, 0 wrong\n",
           x.to->ranks, x.to->batches, x.to->heads, x.to->tokens, (long long)x.problems,
           (long long)x.runs, x.turn, (long long)x.refused, (long long)x.labels);
    fflush(stdout);
    ck_assert_int_gt(3 * x.runs, x.turn / x.step); /* a third is strict, which refuses most */
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
    {"allgather:ranks=3,save=kv", "b2h4g2q8k16d2v3:none:f64:normal:s1:dlse=1:pass=bwd"},
    {"lightseq:ranks=16", "b2h3g1q16k16d2v3:causal(tl):f64:normal:s1:dlse=1:pass=bwd"},
    {"lightseq:ranks=5", "b2h8g8q8k8d8v8:causal(tl):f64:normal:s1:dlse=1:pass=bwd:layout=blhd"},
    {"heads:ranks=6", "b1h40g8q7k12d2v3:none:f64:normal:s1:dlse=1:pass=bwd"},
    {"batch:ranks=2", "b3h8g8q8k8d8v8:none:f64:normal:s1:dlse=1:pass=bwd:layout=blhd"},
};

TEST_EACH(every_element_arrives, COUNT(routes))
{
    struct probing x;
    struct attn_spec spec = spec_of(routes[_i].spec);
    probe_open(&x, routes[_i].text);
    ck_assert_int_eq(ck_routes(&x, &spec, routes[_i].spec), 1);
    ck_assert_msg(x.wrong == 0, "%lld wrong labels; %s", (long long)x.wrong, x.first_wrong);
    probe_close(&x);
}

/* All ranks but the first fail by themselves while the first waits: the cause is reported. */
TEST_EACH(the_cause_is_reported, COUNT(routes))
{
    struct probing x;
    struct attn_spec spec = spec_of(routes[_i].spec);
    probe_open(&x, routes[_i].text);
    probe_with(&x, &spec);
    fails = 1;
    ck_assert_int_eq(running_pass(&x.at, ATTN_BACKWARD), ATTN_ENOMEM);
    ck_assert_int_eq(running_pass(&x.at, ATTN_FORWARD), ATTN_ENOMEM);
    ck_assert_str_eq(x.at.err.text, "planted failure");
    probe_close(&x);
}
