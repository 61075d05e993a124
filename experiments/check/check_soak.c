/* attnlab check --soak: random cases for a time, each failure made small; for registered specs and
 * external implementations. */
#include "experiments/check/check.h"
#include "experiments/cli/cli.h"
#include "ref/clock.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/cases/factors.h"
#include "tests/harness/cases/soak.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- all runs of one case -------------------------------------------------------------------- */

struct tally {
    int runs, failed;
    struct attn_result bad, good; /* the first of either sort */
    int64_t bad_call[2], good_call[2];
};

static void widen(int64_t range[2], int64_t call)
{
    range[0] = range[0] == 0 || call < range[0] ? call : range[0];
    range[1] = call > range[1] ? call : range[1];
}

static void count_runs(struct tally *t, const struct attn_result *r)
{
    int runs = r->runs > 0 ? r->runs : 1, bad = attn_result_is_bad(r);
    int failed = r->runs > 0 ? r->failed : bad;
    if (r->verdict == ATTN_ERROR || r->verdict == ATTN_REFUSED) /* it was not run */
        return;
    if (bad && t->failed == 0)
        t->bad = *r;
    if (!bad && t->good.digest == 0)
        t->good = *r;
    if (bad && t->bad.differs[0] == '\0')
        memcpy(t->bad.differs, r->differs, sizeof r->differs);
    widen(bad ? t->bad_call : t->good_call, r->calls);
    t->runs += runs;
    t->failed += failed;
}

static int is_steady(const struct tally *t)
{
    return t->failed == t->runs;
}

/* The known difference between runs that failed and runs that did not. */
static void say_differs(const struct tally *t, char text[160])
{
    size_t n = 0;
    text[0] = '\0';
    if (t->bad.differs[0] != '\0')
        n += (size_t)snprintf(text, 160, "%s", t->bad.differs);
    else if (t->bad.digest != 0 && t->good.digest != 0)
        n += (size_t)snprintf(text, 160, "digest of the outputs %016" PRIx64 ", else %016" PRIx64,
                              t->bad.digest, t->good.digest);
    if (n < 160 && t->bad_call[0] > 0 && t->good_call[0] > 0)
        snprintf(text + n, 160 - n,
                 "%sfailed by call %" PRId64 " to %" PRId64 " of a process, passed by %" PRId64
                 " to %" PRId64,
                 n > 0 ? "; " : "", t->bad_call[0], t->bad_call[1], t->good_call[0],
                 t->good_call[1]);
}

/* ---- filing ---------------------------------------------------------------------------------- */

/* The soak of a candidate. */
struct soak {
    struct attn_candidate *s;
    const struct attn_soak *how;
    uint64_t cases;
    double seconds;
    int verdict[ATTN_ERROR + 1]; /* ERROR: cases that cannot be set up */
    int by_it;                   /* of the refused ones                */
    struct attn_soak_walked walked;
};

static int is_caller(const struct soak *soak)
{
    return soak->s->x.route == &attn_caller_route;
}

/* A failing case; found: the larger case that it was made from. */
static void file_case(const struct soak *soak, const struct attn_case *c,
                      const struct attn_case *found, const char *why, const struct attn_result *r)
{
    char text[ATTN_CASE_TEXT], larger[ATTN_CASE_TEXT], again[ATTN_AGAIN_TEXT], times[40] = "";
    attn_case_print(c, text);
    attn_case_print(found, larger);
    int often = r->verdict == ATTN_INTERMITTENT ? 4 * (r->runs / r->failed) : 0;
    if (often > 0 && soak->how->at_once == 1 && !is_caller(soak))
        snprintf(times, sizeof times, " --repeat %d", often < 100 ? 100 : often);
    attn_candidate_again(soak->s, "case", text, again);
    attn_append(again, sizeof again, "%s", times);
    const struct attn_checked checked = {
        ATTN_CHECK_SOAK, "found", text, "", why, again, strcmp(text, larger) != 0 ? larger : NULL};
    attn_verdicts_add(soak->s->list, &checked, &(struct attn_answer){.result = *r});
}

/* One that fails in some runs and not in others.  small: the runs of c, where this is smaller than
 * what was found; NULL: no smaller case was seen to fail. */
static void file_intermittent(const struct soak *soak, const struct attn_case *c,
                              const struct attn_case *found, const struct tally *all,
                              const struct tally *small)
{
    const struct tally *t = small != NULL ? small : all;
    struct attn_result r = t->bad;
    char words[40], more[80] = "";
    if (small != NULL)
        snprintf(more, sizeof more, ", this smaller case in %d of %d", small->failed, small->runs);
    else if (soak->how->at_once == 1)
        snprintf(more, sizeof more, "; no smaller case was seen to fail");
    r.verdict = t->bad.verdict == ATTN_INTERMITTENT ? ATTN_FAILED : t->bad.verdict;
    attn_verdict_words(&r, words);
    snprintf(r.text, sizeof r.text, "as found it failed in %d of %d runs%s; %s: %.300s",
             all->failed, all->runs, more, words, t->bad.text);
    r.verdict = ATTN_INTERMITTENT;
    r.runs = t->runs;
    r.failed = t->failed;
    say_differs(t, r.differs);
    file_case(soak, c, found, "a random case that fails in some runs and not in others", &r);
}

/* The soak itself is one check more: a clean one is seen to have run, and any failure fails it. */
static void file_sum(const struct soak *soak)
{
    const struct attn_check_request *q = soak->s->request;
    const int *n = soak->verdict;
    int failed = n[ATTN_FAILED] + n[ATTN_CRASH] + n[ATTN_TIMEOUT];
    struct attn_result r = {.verdict = failed + n[ATTN_INTERMITTENT] > 0 ? ATTN_FAILED
                                       : n[ATTN_PASS] > 0                ? ATTN_PASS
                                       : n[ATTN_WEAK] > 0                ? ATTN_ERROR
                                                                         : ATTN_REFUSED};
    char text[280], again[ATTN_AGAIN_TEXT], by_it[40] = "";
    if (r.verdict == ATTN_ERROR)
        snprintf(r.text, sizeof r.text,
                 "no random case passed: nothing was judged (a longer soak meets more cases)");
    if (soak->by_it > 0)
        snprintf(by_it, sizeof by_it, " (%d by it)", soak->by_it);
    snprintf(text, sizeof text,
             "%" PRIu64 " random cases of seed %" PRId64
             ": %d pass, %d fail, %d intermittent, %d refused%s, %d weak, %d that cannot be set up",
             soak->cases, q->seed, n[ATTN_PASS], failed, n[ATTN_INTERMITTENT], n[ATTN_REFUSED],
             by_it, n[ATTN_WEAK], n[ATTN_ERROR]);
    if (is_caller(soak)) /* which has words of its own for it */
        snprintf(again, sizeof again, "%s", "");
    else
        snprintf(again, sizeof again, "check %s --soak %g --seed %" PRId64, soak->s->route, q->soak,
                 q->seed);
    const struct attn_checked checked = {
        ATTN_CHECK_SOAK, "soak", text, "", "what failed once has failed", again, NULL};
    attn_verdicts_add(soak->s->list, &checked,
                      &(struct attn_answer){.result = r, .seconds = soak->seconds});
}

/* ---- one failure ----------------------------------------------------------------------------- */

enum { REPEATS = 20 };

static void judge(const struct soak *soak, const struct attn_case *c,
                  const struct attn_repetition *how, int flags, struct attn_result *r)
{
    soak->how->judge(soak->how->arg, c, 1, how, flags, r);
}

/* Run what failed once again and again, in the same process and in fresh ones: does it always?  If
 * not, how often?  Where a start is dear, all in one. */
static void repeat(const struct soak *soak, const struct attn_case *c, struct tally *t)
{
    enum { MANY = 2000 };
    const struct attn_repetition once = {1, 0, 0}, often = {MANY, 2, 0};
    struct attn_result r[REPEATS];
    struct attn_case copy[REPEATS];
    int n = t->bad.verdict == ATTN_TIMEOUT ? REPEATS - 1 : 0; /* each of them costs its patience */
    if (soak->how->at_once > 1) {
        for (n = 0; n < REPEATS; n++)
            copy[n] = *c;
        if (soak->how->judge(soak->how->arg, copy, REPEATS, &once, 0, r) != 0)
            return;
        for (n = 0; n < REPEATS; n++)
            count_runs(t, &r[n]);
        return;
    }
    for (; n < REPEATS && is_steady(t); n++) {
        judge(soak, c, &once, n < REPEATS / 2 ? 0 : ATTN_SOAK_FRESH, r);
        count_runs(t, r);
    }
    if (is_steady(t) || t->bad.verdict == ATTN_TIMEOUT)
        return;
    for (n = 0; n < 2; n++) {
        judge(soak, c, &often, n > 0 ? ATTN_SOAK_FRESH : 0, r);
        count_runs(t, r);
    }
}

/* Looking for a smaller case. */
struct hunt {
    const struct soak *soak;
    struct attn_repetition how; /* enough runs to meet the failure, where there is one */
    int questions;
    double until;
    struct tally last; /* of the smallest case that failed */
};

static int fails(void *arg, const struct attn_case *c)
{
    struct hunt *h = arg;
    struct tally t = {.runs = 0};
    for (int n = 0; n < h->questions && t.failed == 0 && attn_seconds(CLOCK_MONOTONIC) < h->until;
         n++) {
        struct attn_result r;
        judge(h->soak, c, &h->how, n % 2 > 0 ? ATTN_SOAK_FRESH : 0, &r);
        count_runs(&t, &r);
    }
    if (t.failed > 0)
        h->last = t;
    return t.failed > 0;
}

/* It fails each time: FAIL, on the smallest case of which this is true. */
static int file_steady(const struct soak *soak, const struct attn_case *found, struct tally *all)
{
    enum { BUDGET = 500 }; /* cases judged on the way: a second or two */
    const struct attn_repetition few = {4, 0, 0};
    struct hunt hunt = {.soak = soak, .how = {1, 0, 0}, .questions = 1, .until = HUGE_VAL};
    const struct attn_soak_judge asked = {fails, &hunt};
    struct tally small = {.runs = 0};
    struct attn_case c = *found;
    struct attn_result r;
    char why[96] = "a random case";
    if (all->bad.verdict == ATTN_TIMEOUT || soak->how->at_once > 1 ||
        soak->s->x.gone != ATTN_PASS) {
        file_case(soak, found, found, why, &all->bad);
        return 1;
    }
    int judged = attn_soak_shrink(&asked, BUDGET, &c);
    judge(soak, &c, &few, ATTN_SOAK_SAY | ATTN_SOAK_FRESH, &r);
    count_runs(&small, &r);
    if (small.failed > 0 && is_steady(&small)) {
        if (judged > 0)
            snprintf(why, sizeof why, "a random case, made small in %d steps", judged);
        file_case(soak, &c, found, why, &r);
        return 1;
    }
    judge(soak, found, &few, ATTN_SOAK_SAY | ATTN_SOAK_FRESH, &r);
    count_runs(all, &r);
    if (is_steady(all) && attn_result_is_bad(&r))
        file_case(soak, found, found, why, &r);
    return is_steady(all);
}

static void file_unsteady(const struct soak *soak, const struct attn_case *found,
                          const struct tally *all)
{
    enum { BUDGET = 100, MOST = 4000, QUESTIONS = 4 };
    const double patience = 10; /* seconds */
    int calls = 3 * (all->runs / all->failed);
    struct hunt hunt = {.soak = soak,
                        .how = {calls < MOST ? calls : MOST, 1, 0},
                        .questions = QUESTIONS,
                        .until = attn_seconds(CLOCK_MONOTONIC) + patience};
    const struct attn_soak_judge asked = {fails, &hunt};
    struct attn_case c = *found;
    struct attn_result r;
    if (all->bad.verdict != ATTN_TIMEOUT && soak->how->at_once == 1)
        attn_soak_shrink(&asked, BUDGET, &c);
    if (hunt.last.failed > 0) {
        judge(soak, &c, &hunt.how, ATTN_SOAK_FRESH, &r);
        count_runs(&hunt.last, &r);
    }
    file_intermittent(soak, &c, found, all, hunt.last.failed > 0 ? &hunt.last : NULL);
}

/* Returns the verdict that was filed. */
static enum attn_verdict file_failure(const struct soak *soak, const struct attn_case *found,
                                      const struct attn_result *first)
{
    struct tally all = {.runs = 0};
    count_runs(&all, first);
    repeat(soak, found, &all);
    if (is_steady(&all) && file_steady(soak, found, &all))
        return first->verdict;
    file_unsteady(soak, found, &all);
    return ATTN_INTERMITTENT;
}

/* ---- the soak -------------------------------------------------------------------------------- */

/* ERROR, and not for a fill that cannot have its property in the case: no implementation failed
 * there. */
static int is_error(const struct attn_case *c, const struct attn_result *r)
{
    struct attn_setup setup;
    if (r->verdict != ATTN_ERROR || r->text[0] == '\0')
        return 0;
    enum attn_status status = attn_setup_open(c, &setup, NULL);
    if (status == ATTN_OK)
        attn_setup_close(&setup);
    return status == ATTN_OK || status == ATTN_ENOMEM;
}

/* A random case and what became of it. */
struct drawn {
    const struct attn_case *c;
    struct attn_result *result;
};

/* The smallest cases first. */
static int by_size(const void *a, const void *b)
{
    const double x = attn_case_work(((const struct drawn *)a)->c);
    const double y = attn_case_work(((const struct drawn *)b)->c);
    return (x > y) - (x < y);
}

/* Count the cases of a round, and file what is wrong with the smallest; *found: failures so far. */
static void settle_round(struct soak *soak, struct drawn *round, int n, int *found)
{
    qsort(round, (size_t)n, sizeof *round, by_size);
    for (int i = 0; i < n; i++, soak->cases++) {
        struct attn_result *r = round[i].result;
        int is_bad = attn_result_is_bad(r), error = !is_bad && is_error(round[i].c, r);
        if (is_bad && *found < ATTN_SOAK_ENOUGH) {
            r->verdict = file_failure(soak, round[i].c, r);
            int takes_long = r->verdict == ATTN_INTERMITTENT && soak->how->at_once == 1;
            *found += takes_long ? ATTN_SOAK_ENOUGH : 1;
        } else if (error && *found < ATTN_SOAK_ENOUGH) {
            file_case(soak, round[i].c, round[i].c, "a random case", r);
            *found = ATTN_SOAK_ENOUGH;
        } else if (r->verdict == ATTN_REFUSED && r->by_it) {
            file_case(soak, round[i].c, round[i].c, "a random case", r);
            soak->by_it++;
        }
        if (r->verdict == ATTN_PASS)
            attn_soak_note(&soak->s->x.claims, round[i].c, &soak->walked);
        soak->verdict[r->verdict] += r->verdict != ATTN_ERROR || r->text[0] != '\0';
    }
}

int attn_soak_run(struct attn_candidate *s, const struct attn_soak *how)
{
    const struct attn_repetition often = {how->calls, 1, 0};
    const int n = how->at_once;
    struct soak soak = {.s = s, .how = how};
    struct attn_case *c = attn_cli_need(calloc((size_t)n, sizeof *c));
    struct attn_result *r = attn_cli_need(calloc((size_t)n, sizeof *r));
    struct drawn *round = attn_cli_need(calloc((size_t)n, sizeof *round));
    int found = 0, status = 0;
    const struct attn_soak_source source = {(uint64_t)s->request->seed, &s->x.claims,
                                            s->x.route->route};
    double start = attn_seconds(CLOCK_MONOTONIC);
    while (status == 0 && attn_seconds(CLOCK_MONOTONIC) - start < s->request->soak &&
           found < (n > 1 ? 1 : ATTN_SOAK_ENOUGH) && s->x.gone == ATTN_PASS) {
        for (int i = 0; i < n; i++) {
            attn_soak_case(&source, soak.cases + (uint64_t)i, &c[i]);
            round[i] = (struct drawn){&c[i], &r[i]};
        }
        status = how->judge(how->arg, c, n, &often, 0, r);
        if (status == 0)
            settle_round(&soak, round, n, &found);
    }
    soak.seconds = attn_seconds(CLOCK_MONOTONIC) - start;
    if (status == 0) {
        char walked[300];
        attn_soak_print(&soak.walked, walked, sizeof walked);
        fprintf(stderr, "note: passed on plain data: %s\n", walked);
        file_sum(&soak);
    }
    s->judged += soak.verdict[ATTN_PASS] + soak.verdict[ATTN_WEAK] + found;
    free(round);
    free(r);
    free(c);
    return status;
}
