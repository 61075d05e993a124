/* See check_soak.h. */
#include "experiments/check/check_soak.h"
#include "ref/clock.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- all runs of one case -------------------------------------------------------------------- */

static void widen(int64_t range[2], int64_t call)
{
    range[0] = range[0] == 0 || call < range[0] ? call : range[0];
    range[1] = call > range[1] ? call : range[1];
}

void attn_soak_tally(struct attn_soak_tally *t, const struct attn_result *r)
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

static int is_steady(const struct attn_soak_tally *t)
{
    return t->failed == t->runs;
}

/* What is known of the difference between runs that failed and runs that did not. */
static void say_differs(const struct attn_soak_tally *t, char text[160])
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

void attn_soak_file(const struct attn_soak *soak, const struct attn_case *c,
                    const struct attn_case *found, const char *why, const struct attn_result *r,
                    struct attn_verdict_list *list)
{
    char text[ATTN_CASE_TEXT], larger[ATTN_CASE_TEXT], again[ATTN_CASE_TEXT + 1400], times[40] = "";
    attn_case_print(c, text);
    attn_case_print(found != NULL ? found : c, larger);
    int often = r->verdict == ATTN_INTERMITTENT ? 4 * (r->runs / r->failed) : 0;
    if (often > 0 && soak->judge != NULL)
        snprintf(times, sizeof times, " --repeat %d", often < 100 ? 100 : often);
    snprintf(again, sizeof again, "check %s --case '%s'%s", soak->route, text, times);
    const struct attn_subject subject = {
        "soak", "found", text, "", why, again, strcmp(text, larger) != 0 ? larger : NULL};
    attn_verdicts_add(list, &subject, r, 0);
}

void attn_soak_intermittent(const struct attn_soak *soak, const struct attn_case *c,
                            const struct attn_case *found, const struct attn_soak_tally *all,
                            const struct attn_soak_tally *small, struct attn_verdict_list *list)
{
    const struct attn_soak_tally *t = small != NULL ? small : all;
    struct attn_result r = t->bad;
    char words[40], more[80] = "";
    if (small != NULL)
        snprintf(more, sizeof more, ", this smaller case in %d of %d", small->failed, small->runs);
    else if (soak->judge != NULL)
        snprintf(more, sizeof more, "; no smaller case was seen to fail");
    r.verdict = t->bad.verdict == ATTN_INTERMITTENT ? ATTN_FAILED : t->bad.verdict;
    attn_verdict_words(&r, words);
    snprintf(r.text, sizeof r.text, "as found it failed in %d of %d runs%s; %s: %.300s",
             all->failed, all->runs, more, words, t->bad.text);
    r.verdict = ATTN_INTERMITTENT;
    r.runs = t->runs;
    r.failed = t->failed;
    say_differs(t, r.differs);
    attn_soak_file(soak, c, found, "a random case that fails in some runs and not in others", &r,
                   list);
}

void attn_soak_sum(const struct attn_soak *soak, const struct attn_soak_count *count,
                   struct attn_verdict_list *list)
{
    const int *n = count->verdict;
    int failed = n[ATTN_FAILED] + n[ATTN_CRASH] + n[ATTN_TIMEOUT];
    struct attn_result r = {.verdict = failed + n[ATTN_INTERMITTENT] > 0 ? ATTN_FAILED
                                       : n[ATTN_PASS] > 0                ? ATTN_PASS
                                                                         : ATTN_ERROR};
    char text[280], again[1400];
    if (r.verdict == ATTN_ERROR)
        snprintf(r.text, sizeof r.text,
                 "no random case passed: nothing was judged (a longer soak meets more cases)");
    snprintf(text, sizeof text,
             "%" PRIu64 " random cases of seed %" PRIu64
             ": %d pass, %d fail, %d intermittent, %d refused, %d weak, %d that cannot be set up",
             count->cases, soak->seed, n[ATTN_PASS], failed, n[ATTN_INTERMITTENT], n[ATTN_REFUSED],
             n[ATTN_WEAK], n[ATTN_ERROR]);
    snprintf(again, sizeof again, "check %s --soak %g --seed %" PRIu64, soak->route, soak->seconds,
             soak->seed);
    const struct attn_subject subject = {"soak", "soak", text, "", "what failed once has failed",
                                         again,  NULL};
    attn_verdicts_add(list, &subject, &r, count->seconds);
}

/* ---- one failure ----------------------------------------------------------------------------- */

/* Run what failed once again and again, in the same process and in fresh ones: does it always?  If
 * not, how often? */
static void repeat(const struct attn_soak *soak, const struct attn_case *c,
                   struct attn_soak_tally *t)
{
    enum { REPEATS = 20, MANY = 2000 };
    const struct attn_repetition once = {1, 0, 0}, often = {MANY, 2, 0};
    struct attn_result r;
    int n = t->bad.verdict == ATTN_TIMEOUT ? REPEATS - 1 : 0; /* each of them costs its patience */
    for (; n < REPEATS && is_steady(t); n++) {
        soak->judge(soak->arg, c, &once, n < REPEATS / 2 ? 0 : ATTN_SOAK_FRESH, &r);
        attn_soak_tally(t, &r);
    }
    if (is_steady(t) || t->bad.verdict == ATTN_TIMEOUT)
        return;
    for (n = 0; n < 2; n++) {
        soak->judge(soak->arg, c, &often, n > 0 ? ATTN_SOAK_FRESH : 0, &r);
        attn_soak_tally(t, &r);
    }
}

/* Looking for a smaller case. */
struct hunt {
    const struct attn_soak *soak;
    struct attn_repetition how; /* enough runs to meet the failure, where there is one */
    int questions;
    double until;
    struct attn_soak_tally last; /* of the smallest case that failed */
};

static int fails(void *arg, const struct attn_case *c)
{
    struct hunt *h = arg;
    struct attn_soak_tally t = {.runs = 0};
    for (int n = 0; n < h->questions && t.failed == 0 && attn_seconds(CLOCK_MONOTONIC) < h->until;
         n++) {
        struct attn_result r;
        h->soak->judge(h->soak->arg, c, &h->how, n % 2 > 0 ? ATTN_SOAK_FRESH : 0, &r);
        attn_soak_tally(&t, &r);
    }
    if (t.failed > 0)
        h->last = t;
    return t.failed > 0;
}

/* It fails each time: FAIL, on the smallest case of which this is true. */
static int file_steady(const struct attn_soak *soak, const struct attn_case *found,
                       struct attn_soak_tally *all, struct attn_verdict_list *list)
{
    enum { BUDGET = 500 }; /* cases judged on the way: a second or two */
    const struct attn_repetition few = {4, 0, 0};
    struct hunt hunt = {.soak = soak, .how = {1, 0, 0}, .questions = 1, .until = HUGE_VAL};
    const struct attn_soak_judge judge = {fails, &hunt};
    struct attn_soak_tally small = {.runs = 0};
    struct attn_case c = *found;
    struct attn_result r;
    char why[96] = "a random case";
    if (all->bad.verdict == ATTN_TIMEOUT) {
        attn_soak_file(soak, found, NULL, why, &all->bad, list);
        return 1;
    }
    int judged = attn_soak_shrink(&judge, BUDGET, &c);
    soak->judge(soak->arg, &c, &few, ATTN_SOAK_SAY | ATTN_SOAK_FRESH, &r);
    attn_soak_tally(&small, &r);
    if (small.failed > 0 && is_steady(&small)) {
        if (judged > 0)
            snprintf(why, sizeof why, "a random case, made small in %d steps", judged);
        attn_soak_file(soak, &c, found, why, &r, list);
        return 1;
    }
    soak->judge(soak->arg, found, &few, ATTN_SOAK_SAY | ATTN_SOAK_FRESH, &r);
    attn_soak_tally(all, &r);
    if (is_steady(all) && attn_result_is_bad(&r))
        attn_soak_file(soak, found, NULL, why, &r, list);
    return is_steady(all);
}

static void file_unsteady(const struct attn_soak *soak, const struct attn_case *found,
                          const struct attn_soak_tally *all, struct attn_verdict_list *list)
{
    enum { BUDGET = 100, MOST = 4000, QUESTIONS = 4 };
    const double patience = 10; /* seconds */
    int calls = 3 * (all->runs / all->failed);
    struct hunt hunt = {.soak = soak,
                        .how = {calls < MOST ? calls : MOST, 1, 0},
                        .questions = QUESTIONS,
                        .until = attn_seconds(CLOCK_MONOTONIC) + patience};
    const struct attn_soak_judge judge = {fails, &hunt};
    struct attn_case c = *found;
    struct attn_result r;
    if (all->bad.verdict != ATTN_TIMEOUT)
        attn_soak_shrink(&judge, BUDGET, &c);
    if (hunt.last.failed > 0) {
        soak->judge(soak->arg, &c, &hunt.how, ATTN_SOAK_FRESH, &r);
        attn_soak_tally(&hunt.last, &r);
    }
    attn_soak_intermittent(soak, &c, found, all, hunt.last.failed > 0 ? &hunt.last : NULL, list);
}

/* Returns the verdict that was filed. */
static enum attn_verdict file_failure(const struct attn_soak *soak, const struct attn_case *found,
                                      const struct attn_result *first,
                                      struct attn_verdict_list *list)
{
    struct attn_soak_tally all = {.runs = 0};
    attn_soak_tally(&all, first);
    repeat(soak, found, &all);
    if (is_steady(&all) && file_steady(soak, found, &all, list))
        return first->verdict;
    file_unsteady(soak, found, &all, list);
    return ATTN_INTERMITTENT;
}

/* ---- the soak -------------------------------------------------------------------------------- */

int attn_soak_is_error(const struct attn_case *c, const struct attn_result *r)
{
    struct attn_setup setup;
    if (r->verdict != ATTN_ERROR)
        return 0;
    enum attn_status status = attn_setup_open(c, &setup, NULL);
    if (status == ATTN_OK)
        attn_setup_close(&setup);
    return status == ATTN_OK || status == ATTN_ENOMEM;
}

void attn_soak_run(const struct attn_soak *soak, struct attn_verdict_list *list)
{
    enum { ENOUGH = 8 }; /* failures: more would be the same bug again */
    const struct attn_repetition how = {soak->calls, 1, 0};
    struct attn_soak_count count = {0};
    int found = 0;
    double start = attn_seconds(CLOCK_MONOTONIC);
    for (; attn_seconds(CLOCK_MONOTONIC) - start < soak->seconds && found < ENOUGH; count.cases++) {
        struct attn_case c;
        struct attn_result r;
        attn_soak_case(soak->seed, count.cases, &c);
        soak->judge(soak->arg, &c, &how, 0, &r);
        if (attn_result_is_bad(&r)) {
            r.verdict = file_failure(soak, &c, &r, list);
            found += r.verdict == ATTN_INTERMITTENT ? ENOUGH : 1; /* the next one takes as long */
        } else if (attn_soak_is_error(&c, &r)) {
            attn_soak_file(soak, &c, NULL, "a random case", &r, list);
            break;
        }
        count.verdict[r.verdict]++;
    }
    count.seconds = attn_seconds(CLOCK_MONOTONIC) - start;
    attn_soak_sum(soak, &count, list);
}
