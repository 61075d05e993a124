/* attnlab check SPEC...: our own implementations, in processes of their own.
 *
 * Cases are the outer loop and specs the inner one: what the oracle says of a case is worked out
 * once, for all specs that are judged on it in one process. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/check/check.h"
#include "experiments/cli/cli.h"
#include "tests/harness/bound/growth.h"
#include "tests/harness/diagnosis/diagnose.h"
#include "tests/harness/subject/isolated.h"

enum {
    PATIENCE = 120, /* seconds for a case of the battery, a relation, the growth of errors */
    ENOUGH = 40     /* diagnoses of one spec: the next one says nothing new                */
};

/* ---- in the other process ----------------------------------------------------------------- */

/* Some cases for these candidates: each case for all of them, then the next. */
struct round {
    struct attn_candidate **who;
    int n;
    const struct attn_case *const *c;
    struct attn_repetition how;
    struct attn_setup setup;
    const struct attn_case *open; /* the case that is set up, or NULL */
};

static enum attn_status open_case(struct round *x, const struct attn_case *c,
                                  struct attn_error *err)
{
    if (x->open == c)
        return ATTN_OK;
    if (x->open != NULL)
        attn_setup_close(&x->setup);
    x->open = NULL;
    enum attn_status status = attn_setup_open(c, &x->setup, err);
    if (status != ATTN_OK)
        return status;
    if (x->n > 1)
        attn_setup_keep(&x->setup);
    x->open = c;
    return ATTN_OK;
}

static void judge_case(void *arg, int i, struct attn_result *r)
{
    struct round *x = arg;
    struct attn_candidate *s = x->who[i % x->n];
    const struct attn_case *c = x->c[i / x->n];
    struct attn_error err = {0};
    enum attn_status status = open_case(x, c, &err);
    if (status != ATTN_OK) {
        attn_result_error(r, status, err.text);
        return;
    }
    attn_run_setup(&s->spec, &x->setup, &x->how, r);
    if (s->diagnose && r->verdict == ATTN_FAILED)
        attn_diagnose_case(&s->spec, NULL, c, r, &r->diagnosis);
}

static void judge_relation(void *arg, int i, struct attn_result *r)
{
    const struct attn_candidate *s = arg;
    if (attn_candidate_wants(s, &attn_relations[i]))
        attn_relation_run(&attn_relations[i], &s->spec, NULL, r);
}

static void judge_growth(void *arg, int i, struct attn_result *r)
{
    const struct attn_candidate *s = arg;
    struct attn_growth growth;
    (void)i;
    attn_growth_run(&s->spec, 1, &growth, r);
}

/* In processes of their own; where these are the ranks, here. */
static void judge_each(void (*judge)(void *arg, int i, struct attn_result *r), void *arg, int n,
                       double seconds, struct attn_result *r, double *took)
{
    if (attn_cli_runner() != NULL)
        attn_in_place(judge, arg, n, r, took);
    else
        attn_isolated(judge, arg, n, seconds, r, took);
}

/* For a soak: one candidate, always in a fresh process. */
static int judge_random(void *arg, const struct attn_case *c, int n,
                        const struct attn_repetition *how, int flags, struct attn_result *r)
{
    struct attn_candidate *s = arg;
    static struct round round;
    (void)n;
    round = (struct round){.who = &s, .n = 1, .c = &c, .how = *how};
    round.how.same_bits = 1;
    s->diagnose = flags & ATTN_SOAK_SAY;
    attn_isolated(judge_case, &round, 1, PATIENCE, r, NULL);
    return 0;
}

/* ---- everything --------------------------------------------------------------------------- */

/* On a terminal: where we are. */
static void report_progress(int at, int n)
{
    if (n > 1 && isatty(STDERR_FILENO) && at < n)
        fprintf(stderr, "\r%d of %d cases", at + 1, n);
    else if (n > 1 && isatty(STDERR_FILENO))
        fprintf(stderr, "\r%30s\r", "");
}

/* Candidates that are asked the same, so many cases in one process: a start costs as much as a
 * small case. */
static void run_cases(struct attn_candidate **s, int n, const struct attn_question *question)
{
    enum { TOGETHER = 16 };
    static struct round round;
    const struct attn_case *c[TOGETHER];
    struct attn_result *r = attn_cli_need(calloc((size_t)n * TOGETHER, sizeof *r));
    double *took = attn_cli_need(calloc((size_t)n * TOGETHER, sizeof *took));
    int calls = s[0]->request->repeat > 1 ? (int)s[0]->request->repeat : 1;
    int named = question->n > 0 && question->asked[0].battery != NULL;
    double patience = named ? PATIENCE * (double)calls : 0;
    for (int first = 0, some; first < question->n; first += some) {
        for (some = 0; some < TOGETHER && first + some < question->n; some++)
            c[some] = &question->asked[first + some].c;
        round = (struct round){.who = s, .n = n, .c = c, .how = {calls, 0, 1}};
        for (int i = 0; i < n; i++)
            s[i]->diagnose = s[i]->list->causes.diagnosed < ENOUGH;
        report_progress(first, question->n);
        judge_each(judge_case, &round, n * some, patience, r, took);
        for (int i = 0; i < n * some; i++)
            attn_candidate_case(s[i % n], &question->asked[first + i / n], &r[i], NULL, took[i]);
    }
    report_progress(question->n, question->n);
    free(took);
    free(r);
}

static void run_relations(struct attn_candidate *s)
{
    const int n = ATTN_RELATION_COUNT;
    struct attn_result *r = attn_cli_need(calloc((size_t)n, sizeof *r));
    double *took = attn_cli_need(calloc((size_t)n, sizeof *took));
    judge_each(judge_relation, s, n, PATIENCE, r, took);
    for (int i = 0; i < n; i++)
        if (attn_candidate_wants(s, &attn_relations[i]))
            attn_candidate_relation(s, &attn_relations[i], &r[i], NULL, took[i]);
    free(took);
    free(r);
}

/* Last in the order of verdicts: what shows in no single run. */
static void run_growth(struct attn_candidate *s)
{
    struct attn_result r;
    double took;
    char again[sizeof s->route + 32];
    snprintf(again, sizeof again, "check %s --growth", s->route);
    judge_each(judge_growth, s, 1, PATIENCE, &r, &took);
    const struct attn_subject subject = {
        ATTN_CHECK_GROWTH,
        "growth",
        "one problem in 1, 2, 4 and 8 parts",
        "SN-17",
        "errors may grow with the parts like a random walk, not faster",
        again,
        NULL};
    attn_candidate_say(s, &subject, &r, NULL, took);
}

/* All but the cases. */
static void run_others(struct attn_candidate *s, int whole_tier)
{
    const struct attn_check_request *q = s->request;
    const struct attn_soak soak = {judge_random, s,
                                   q->repeat > 0 ? (int)q->repeat : ATTN_SOAK_OWN_CALLS, 1};
    if (q->soak > 0)
        attn_soak_run(s, &soak);
    if (whole_tier || q->relation != NULL)
        run_relations(s);
    int may_grow = attn_cli_runner() == NULL; /* to more ranks than there are processes */
    if (q->growth || (whole_tier && may_grow && attn_growth_applies(s->spec.impl)))
        run_growth(s);
}

int attn_check_specs(struct attn_candidate *s, int n)
{
    int worst = ATTN_EXIT_GOOD;
    struct attn_candidate **like = attn_cli_need(calloc((size_t)n, sizeof *like));
    for (int i = 0; i < n; i++) {
        char name[sizeof s->label];
        attn_spec_print(&s[i].spec, name, sizeof name);
        snprintf(s[i].label, sizeof s[i].label, "%s", name);
        snprintf(s[i].route, sizeof s[i].route, "'%s'", name);
        attn_candidate_begin(&s[i]);
    }
    for (int first = 0; first < n; first++) {
        int together = 0;
        for (int i = first; i < n && s[first].is_first; i++)
            if (s[i].spec.impl->caps == s[first].spec.impl->caps)
                like[together++] = &s[i];
        if (together > 0)
            run_cases(like, together, &s[first].question);
    }
    free(like);
    for (int i = 0; i < n; i++) {
        run_others(&s[i], s[i].question.whole_tier);
        int status = attn_candidate_end(&s[i]);
        worst = status > worst ? status : worst;
    }
    return worst;
}
