/* Criteria of cases: the battery within the claims of the task is asked once, all of it, and each
 * criterion takes those that it selects and no one before it took. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/rim/grade/grading.h"
#include "tests/harness/base/fileio.h"

void attn_outcome_lose(struct attn_outcome *o, const char *format, ...)
{
    va_list args;
    if (o->why[0] != '\0')
        return; /* the first counts */
    va_start(args, format);
    vsnprintf(o->why, sizeof o->why, format, args);
    va_end(args);
    attn_clean(o->why);
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* Ranks that are judged step by step are asked small cases: each has 30 truths to be worked out. */
static int is_too_large(const struct attn_grading *g, const struct attn_problem *p)
{
    const double most = 1 << 15;
    return g->candidate.x.scheme[0] != '\0' &&
           (double)(p->batch * p->heads * p->n_query) *
                   (double)(p->n_key * (p->d_key + p->d_value)) >
               most;
}

/* The claims that a case needs, if the task has them all.  0: it is left out; a tier has it to be
 * refused. */
static int is_claimed(const struct attn_grading *g, const struct attn_case *c,
                      enum attn_route route, unsigned *needs)
{
    struct attn_setup setup;
    if (attn_setup_describe(c, &setup, NULL) != ATTN_OK)
        return 0;
    int is = attn_claims_allow(&g->task->claims, &setup, route, needs, NULL) == ATTN_OK &&
             !is_too_large(g, &setup.problem);
    attn_setup_close(&setup);
    return is;
}

/* Keep the cases that the task claims, those of the forward pass first: a backward pass that does
 * not end, after which nothing is asked, costs no points of the other. */
static void keep_claimed(struct attn_grading *g, enum attn_route route)
{
    struct attn_question *q = &g->candidate.question;
    struct attn_asked *all = attn_cli_need(malloc(((size_t)q->n + 1) * sizeof *all));
    int n = q->n;
    memcpy(all, q->asked, (size_t)n * sizeof *all);
    g->needs = attn_cli_need(calloc((size_t)n + 1, sizeof *g->needs));
    g->taken = attn_cli_need(calloc((size_t)n + 1, 1));
    q->n = 0;
    for (int i = 0; i < 2 * n; i++) {
        struct attn_asked *asked = &all[i % n];
        if (asked->c.pass != (i < n ? ATTN_FORWARD : ATTN_BACKWARD) ||
            !is_claimed(g, &asked->c, route, &g->needs[q->n]))
            continue;
        attn_task_hide(g->task, &asked->c);
        q->asked[q->n++] = *asked;
    }
    free(all);
}

enum attn_status attn_grade_ask(struct attn_grading *g, struct attn_error *err)
{
    static const struct attn_cli_list whole;
    struct attn_candidate *s = &g->candidate;
    const enum attn_route route = s->x.route->route;
    const struct attn_asking asking = {&whole, ATTN_TIER_QUICK, &g->task->claims, route, 1, 1};
    enum attn_status status = attn_question_make(&asking, &s->question, err);
    if (status != ATTN_OK)
        return status;
    s->question.whole_tier = 0; /* claims beyond the task's are not asked about */
    keep_claimed(g, route);
    attn_check_subjects(s, 1);
    return s->list != NULL ? ATTN_OK : attn_fail(err, ATTN_EINVAL, "%s", s->trouble);
}

/* ---- judging --------------------------------------------------------------------------------- */

static const struct attn_verdict_entry *entry_of(const struct attn_verdict_list *list,
                                                 const char *name)
{
    for (int e = 0; list != NULL && e < list->n; e++)
        if (list->entry[e].kind == ATTN_CHECK_CASE && strcmp(list->entry[e].name, name) == 0)
            return &list->entry[e];
    return NULL;
}

int attn_grade_any_passed(const struct attn_grading *g, const char *selection)
{
    const struct attn_question *q = &g->candidate.question;
    for (int i = 0; i < q->n; i++) {
        const struct attn_verdict_entry *x = entry_of(g->candidate.list, q->asked[i].name);
        if (x != NULL && x->result.verdict == ATTN_PASS &&
            attn_selection_has(selection, &q->asked[i], g->needs[i]))
            return 1;
    }
    return 0;
}

/* The case that a criterion lost first. */
static void lose_case(struct attn_outcome *o, const struct attn_asked *asked,
                      const struct attn_verdict_entry *x)
{
    char words[40], text[ATTN_CASE_TEXT];
    if (o->why[0] != '\0')
        return;
    attn_case_print(&asked->c, text);
    if (x == NULL) {
        attn_outcome_lose(o, "%s, %.200s: not reached", asked->name, text);
        return;
    }
    attn_outcome_lose(o, "%s, %.200s: %s: %.300s", asked->name, text,
                      attn_verdict_words(&x->result, words), x->result.text);
    snprintf(o->again, sizeof o->again, "%s", x->again);
    snprintf(o->cause, sizeof o->cause, "%s", x->result.diagnosis.text);
}

void attn_grade_cases(struct attn_grading *g, struct attn_outcome *o)
{
    const struct attn_question *q = &g->candidate.question;
    struct attn_common_cause causes;
    struct attn_cause cause[2];
    char words[40];
    memset(&causes, 0, sizeof causes);
    for (int i = 0; i < q->n; i++) {
        if (g->taken[i] || !attn_selection_has(g->criterion->argument, &q->asked[i], g->needs[i]))
            continue;
        const struct attn_verdict_entry *x = entry_of(g->candidate.list, q->asked[i].name);
        int passed = x != NULL && x->result.verdict == ATTN_PASS;
        g->taken[i] = 1;
        o->asked++;
        o->passed += passed;
        if (passed)
            continue;
        lose_case(o, &q->asked[i], x);
        if (x != NULL && o->end[0] == '\0' &&
            (x->result.verdict == ATTN_CRASH || x->result.verdict == ATTN_TIMEOUT))
            snprintf(o->end, sizeof o->end, "%s: %.140s", attn_verdict_words(&x->result, words),
                     x->result.text);
        if (x != NULL)
            attn_common_cause_count(&causes, &x->result);
    }
    if (attn_common_causes(&causes, cause) > 0)
        snprintf(o->cause, sizeof o->cause, "%s (%d cases)", cause->text, cause->n);
    if (o->asked == 0)
        attn_outcome_lose(o, "no case of the battery is selected");
}
