/* Every scheme with every option, judged as everybody is (tests/harness/judge/runner.h): outputs
 * by the oracle, what each rank held and sent by its price.  On the cases of the battery, and on
 * every small problem: an element that goes astray is beyond its bound.  And what no verdict says:
 * equal bits, who is blamed, what is reported.  Catalogue: SP-01 to SP-11, SP-16 to SP-22. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "optimized/parallel/scheme.h"
#include "optimized/registry.h"
#include "ref/problem.h"
#include "ref/textbook.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/fixtures/fibers.h"
#include "tests/fixtures/refused.h"
#include "tests/fixtures/scheme_walk.h"
#include "tests/harness/base/fill.h"
#include "tests/harness/judge/runner.h"
#include "tests/suites.h"

SUITE(parallel);

/* ---- every way to run on ranks --------------------------------------------------------------- */

/* One way in `step` is drawn for each problem, and one in `of_battery` for each case of the
 * battery.  Small problems have no more batches, query heads (with every number of kv heads that
 * divides them) and tokens on either side than this; under ATTN_FULL one in `of_full` is run. */
static const struct extents {
    int ranks, of_battery, batches, heads, tokens, step, of_full;
} walks[] = {{1, 1999, 2, 4, 9, 5003, 3},       {2, 1999, 2, 4, 9, 3001, 3},
             {3, 1999, 2, 4, 9, 3001, 3},       {4, 1999, 2, 4, 9, 3001, 3},
             {5, 1999, 2, 4, 9, 3001, 3},       {6, 2999, 2, 4, 9, 5003, 3},
             {7, 1999, 2, 4, 9, 3001, 3},       {8, 2999, 2, 4, 9, 5003, 3},
             {5, 3989, 3, 6, 13, 20011, 499},   {16, 9973, 3, 6, 13, 100003, 5003},
             {64, 59999, 2, 4, 9, 100003, 2003}};

struct way {
    char text[200];
    struct attn_spec spec;
};

struct walk {
    const struct extents *to;
    struct way *way;
    int ways, turn;
    int64_t runs, refused;
};

/* The local implementation by turns, too. */
static void add_way(void *arg, const struct attn_impl *impl, const char *spec)
{
    static const char *const local[] = {"tiled", "csr", "gemm", "chunked", "dense", "bsr"};
    struct walk *x = arg;
    (void)impl;
    x->way = realloc(x->way, (size_t)(x->ways + 1) * sizeof *x->way);
    ck_assert_ptr_nonnull(x->way);
    struct way *way = &x->way[x->ways];
    snprintf(way->text, sizeof way->text, "%s,local=%s", spec, local[x->ways++ % COUNT(local)]);
    way->spec = spec_of(way->text);
}

static void judge(struct walk *x, const struct way *way, struct attn_setup *setup)
{
    int claims = (attn_problem_needs(&setup->problem) & ~way->spec.impl->caps) == 0;
    char text[ATTN_CASE_TEXT];
    struct attn_result r;
    attn_run_setup(&way->spec, setup, NULL, &r);
    attn_case_print(&setup->given, text);
    ck_assert_msg(r.verdict == ATTN_PASS || r.verdict == ATTN_WEAK ||
                      (r.verdict == ATTN_REFUSED && (!claims || may_be_refused(way->text))),
                  "%s %s: %s", way->text, text, r.text);
    x->refused += r.verdict == ATTN_REFUSED;
    x->runs++;
}

/* Schemes whose names are in `who`, or all, on this case; one way in `step`, drawn: with every
 * so-many-th the same words of an option would come again and again. */
static void every_way(struct walk *x, const char *who, const char *text, int step)
{
    struct attn_setup setup;
    int is_open = 0;
    for (int w = 0; w < x->ways; w++) {
        if ((who != NULL && strstr(who, x->way[w].spec.impl->name) == NULL) ||
            attn_hash(1, (uint64_t)x->to->ranks, (uint64_t)x->turn++) % (uint64_t)step != 0)
            continue;
        if (!is_open++) {
            setup_of(text, &setup);
            attn_setup_keep(&setup);
            setup.unweighed = 1;
        }
        judge(x, &x->way[w], &setup);
    }
    if (is_open)
        attn_setup_close(&setup);
}

/* The n-th pair of heads and kv heads, up to `most` heads; 0 if there is none. */
static int heads_at(int n, int most, int *heads, int *kv_heads)
{
    for (*heads = 1; *heads <= most; ++*heads)
        for (*kv_heads = 1; *kv_heads <= *heads; ++*kv_heads)
            if (*heads % *kv_heads == 0 && n-- == 0)
                return 1;
    return 0;
}

static void small_problem(struct walk *x, const char *who, const char *head, int q, int k,
                          const char *mask, const char *layout)
{
    const int full = getenv("ATTN_FULL") != NULL;
    char text[200];
    snprintf(text, sizeof text, "%sq%dk%dd2v3:%s:f64:normal:s1:dlse=1:pass=bwd%s", head, q, k, mask,
             layout);
    every_way(x, who, text, full ? x->to->of_full : x->to->step);
}

/* Masks and memory layouts take turns, so that every pair of lengths meets each. */
static void every_length(struct walk *x, const char *head, int turn)
{
    static const char *const mask[] = {"none", "causal(tl)", "random(0.4,6,heads)", "causal(br)",
                                       "window(2,1,br)"};
    static const char *const layout[] = {"", ":layout=mixed", ":layout=blhd", ""};
    for (int q = 0; q <= x->to->tokens; q++)
        for (int k = 0; k <= x->to->tokens; k++)
            small_problem(x, NULL, head, q, k, mask[(q + 2 * k + turn) % 5],
                          layout[(q + k + 3 * turn) % 4]);
}

/* Up to five frames of a few places, under masks that see one frame and one place. */
static void every_video(struct walk *x, const char *head)
{
    static const char *const call[] = {"spatial(%d,%d,%d)", "temporal(%d,%d,%d)"};
    static const int place[][2] = {{1, 1}, {1, 2}, {1, 3}, {2, 2}};
    for (int n = 0; n < 2 * COUNT(place) * 5; n++) {
        int frames = 1 + n / 2 / COUNT(place), *of = (int *)place[n / 2 % COUNT(place)];
        char mask[60];
        snprintf(mask, sizeof mask, call[n % 2], frames, of[0], of[1]);
        small_problem(x, "video", head, frames * of[0] * of[1], frames * of[0] * of[1], mask, "");
    }
}

/* Under ATTN_FULL seven times as many of the battery. */
TEST_EACH(every_scheme, COUNT(walks))
{
    const int full = getenv("ATTN_FULL") != NULL;
    int heads, kv_heads, of_battery = walks[_i].of_battery / (full ? 7 : 1);
    struct walk x = {.to = &walks[_i]};
    scheme_walk(x.to->ranks, add_way, &x);
    if (x.to->ranks <= FIBERS)
        fibers_on();
    for (int i = 0; i < attn_battery_count(ATTN_TIER_QUICK); i++)
        every_way(&x, NULL, attn_battery_at(i)->text, of_battery);
    int64_t of_cases = x.runs;
    for (int n = 0; heads_at(n, x.to->heads, &heads, &kv_heads); n++)
        for (int batch = 1; batch <= x.to->batches; batch++) {
            char head[40];
            snprintf(head, sizeof head, "b%dh%dg%d", batch, heads, kv_heads);
            every_length(&x, head, n + batch);
            every_video(&x, head);
        }
    fibers_off();
    free(x.way);
    printf("parallel: %d ranks, %d ways: %lld runs on the battery, %lld on small problems, %lld "
           "refused\n",
           x.to->ranks, x.ways, (long long)of_cases, (long long)(x.runs - of_cases),
           (long long)x.refused);
    fflush(stdout);
    ck_assert_int_gt(3 * (x.runs - x.refused), x.runs); /* a third is strict, and refuses most */
}

/* ---- equal bits ------------------------------------------------------------------------------ */

/* A head's arithmetic does not depend on who does it: ulysses gives the bits of its local
 * implementation on the whole problem, and so do heads and batch.  So does a ring of one.  Backward
 * a rank adds up D = dO . O in order, and tiled too where one vector (of four or more) has it. */
static const struct {
    const char *spec, *local, *text;
} same[] = {
    {"ulysses:ranks=4", "tiled", "b2h8g4q72k72d9v5:causal(br):f32:normal:s1"},
    {"ulysses:ranks=2,local=dense", "dense", "b2h8g4q40k80d9v5:random(0.2,1,heads):f32:normal:s1"},
    {"ulysses:ranks=8,local=csr-textbook", "csr-textbook",
     "b3h8g8q40k40d9v5:window(3,3,br):f64:cliffs:s1"},
    {"ulysses:ranks=2,local=(tiled-textbook:br=5,bc=7)", "tiled-textbook:br=5,bc=7",
     "b2h8g4q40k80d9v5:causal(br):f32:normal:s1"},
    {"ring:ranks=1", "tiled", "b2h8g4q71k73d9v3:causal(br):f32:normal:s1:pass=bwd"},
    {"usp:ranks=1", "tiled", "b2h8g4q71k73d9v3:causal(br):f32:normal:s1:pass=bwd"},
    {"heads:ranks=4,local=tiled-textbook", "tiled-textbook",
     "b2h8g4q71k73d9v5:causal(br):f32:normal:s1:pass=bwd"},
    {"heads:ranks=3", "tiled", "b2h8g4q71k73d9v5:random(0.2,1,heads):f32:normal:s1"}};

TEST_EACH(bits_of_the_local_implementation, COUNT(same))
{
    const struct attn_spec ranks = spec_of(same[_i].spec), local = spec_of(same[_i].local);
    struct attn_result mine = result_of(&ranks, same[_i].text),
                       whole = result_of(&local, same[_i].text);
    ck_assert_msg(mine.verdict == ATTN_PASS && whole.verdict == ATTN_PASS, "%s%s", mine.text,
                  whole.text);
    ck_assert(mine.digest == whole.digest);
}

/* ---- who is blamed, and what is reported ----------------------------------------------------- */

/* Fails on all ranks but the first, to which the first piece of the problem belongs. */
static enum attn_status fails(struct attn_ctx *ctx, const struct attn_problem *p)
{
    return p->origin.query.first + p->origin.head + p->origin.batch > 0
               ? attn_fail(ctx->error, ATTN_ENOMEM, "planted failure")
               : ATTN_OK;
}

static enum attn_status fails_forward(struct attn_ctx *ctx, const struct attn_problem *p,
                                      const struct attn_forward *t)
{
    enum attn_status status = fails(ctx, p);
    return status == ATTN_OK ? attn_impl_tiled_textbook.forward(ctx, p, t) : status;
}

static enum attn_status fails_backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                       const struct attn_backward *t)
{
    enum attn_status status = fails(ctx, p);
    return status == ATTN_OK ? attn_impl_tiled_textbook.backward(ctx, p, t) : status;
}

/* All ranks but the first fail by themselves while the first waits: the cause is reported. */
TEST_EACH(the_cause_is_reported, 5)
{
    static const char *const specs[] = {"ring:ranks=5", "ulysses:ranks=6", "usp:ranks=12,heads=3",
                                        "allgather:ranks=5,stride=3", "heads:ranks=6"};
    struct attn_spec spec = spec_of(specs[_i]);
    struct attn_impl local = attn_impl_tiled_textbook;
    struct running x;
    local.forward = fails_forward;
    local.backward = fails_backward;
    attn_options_set_local(&spec.options, &local);
    running_open(&x, &spec, "b2h8g8q16k16d2v3:causal(tl):f64:normal:s1:pass=bwd");
    for (int pass = ATTN_BACKWARD; pass >= ATTN_FORWARD; pass--) {
        x.err.text[0] = '\0';
        ck_refusal(running_pass(&x, (enum attn_pass)pass), ATTN_ENOMEM, &x.err, "planted failure");
    }
    x.ctx.error = NULL; /* no error is asked for */
    ck_assert_int_eq(running_pass(&x, ATTN_FORWARD), ATTN_ENOMEM);
    running_close(&x);
}

/* A row that sees no key: its o and dO are not read, not even for D, so that no NaN is handed on to
 * a local implementation that would multiply it by 0. */
static enum attn_status finite_backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                        const struct attn_backward *t)
{
    int64_t at[4] = ATTN_START;
    const int64_t rows[4] = {p->batch, p->heads, p->n_query, 1};
    while (attn_each(at, rows))
        if (!isfinite(attn_cview_get(&t->d_lse, at[0], at[1], at[2], 0)))
            return attn_fail(ctx->error, ATTN_EINTERNAL, "D of row %d is not finite", (int)at[2]);
    return attn_impl_tiled_textbook.backward(ctx, p, t);
}

TEST_EACH(empty_rows_are_not_read, 2)
{
    static const char *const text[] = {
        "b2h8g4q32k32d8v8:causal(-9):f64:normal:s1:poison=nan:pass=bwd",
        "b2h8g4q32k32d8v8:causal(-9):f32:normal:s1:poison=nan:pass=bwd"};
    struct attn_impl local = attn_impl_tiled_textbook;
    struct attn_spec spec = spec_of("ulysses:ranks=4");
    local.backward = finite_backward;
    attn_options_set_local(&spec.options, &local);
    struct attn_result r = result_of(&spec, text[_i]);
    ck_assert_msg(r.verdict == ATTN_PASS, "%s", r.text);
}

/* A rank's seconds, whose bytes every verdict compares. */
TEST(seconds_of_every_rank)
{
    struct attn_spec spec = spec_of("ring:ranks=4");
    struct attn_rank_use use[4] = {0};
    struct running x;
    running_open(&x, &spec, "b2h8g4q64k64d8v8:causal(tl):f32:normal:s1");
    x.ctx.ranks = use;
    running_well(&x, ATTN_FORWARD);
    for (int r = 0; r < 4; r++)
        ck_assert(use[r].cpu_seconds > 0 && use[r].cpu_seconds < 60);
    running_close(&x);
}
