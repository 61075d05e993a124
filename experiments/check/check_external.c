/* attnlab check --plugin, --exec, --results: an external implementation is asked every case by its
 * route (external.h); a plug-in then for leaks and relations; or random cases. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/check/check.h"
#include "experiments/cli/cli.h"
#include "ref/clock.h"
#include "tests/harness/cases/factors.h"
#include "tests/harness/subject/plugin_host.h"

/* What is worth a line although it is no verdict goes to standard error; of calls, once each. */
struct notes {
    char environment[96];
    int n_environment;
    int64_t hwm_bytes;
};

/* An implementation that is being asked. */
struct asking {
    struct attn_candidate *s;
    struct notes notes;
    /* of each pass, the biggest case and the widest that passed; corners are none */
    const struct attn_asked *biggest[4];
    int filed[4]; /* its place among the verdicts */
    double size[4];
    double work, pace; /* of the largest case so far; its seconds for each unit of work */
    int n_slow;        /* corners that it would not end in time */
    double in_corners, all_corners; /* seconds that those asked take at that pace, and all */
    int named;                      /* of a soak: cases so far, each with a folder of its own */
};

/* ---- notes ----------------------------------------------------------------------------------- */

static void note(struct notes *notes, const struct attn_answer *answer)
{
    if (answer->environment[0] != '\0' && notes->n_environment++ == 0)
        memcpy(notes->environment, answer->environment, sizeof notes->environment);
    if (answer->hwm_bytes > notes->hwm_bytes)
        notes->hwm_bytes = answer->hwm_bytes;
}

static void print_notes(const struct attn_plugin_host *host, const struct notes *notes)
{
    char text[32];
    if (host->plugin.load_environment[0] != '\0')
        fprintf(stderr,
                "note: loading it changed the floating-point environment (%s); put back before "
                "every call\n",
                host->plugin.load_environment);
    if (notes->n_environment > 0)
        fprintf(stderr,
                "note: %d calls changed the floating-point environment (%s); put back after "
                "each\n",
                notes->n_environment, notes->environment);
    if (host->restarts > 0)
        fprintf(stderr, "note: started again %d times\n", host->restarts);
    if (attn_plugin_host_strays(host) > 0)
        fprintf(stderr, "note: processes that it had left behind were ended with it\n");
    if (notes->hwm_bytes > 0)
        fprintf(stderr, "note: peak resident memory of its process %s (VmHWM)\n",
                attn_cli_bytes(notes->hwm_bytes, text));
}

/* ---- filing ---------------------------------------------------------------------------------- */

static void file_unreached(struct attn_candidate *s)
{
    struct attn_result r = {.verdict = ATTN_ERROR};
    const char *what = s->x.kind == ATTN_EXTERNAL_COMMAND ? "cases not reached" : "not reached";
    const struct attn_subject subject = {ATTN_CHECK_CASE, "", what, "", "", "", NULL};
    if (s->x.not_reached == 0)
        return;
    r.lacks_memory = !(attn_external_left(&s->x) > 0); /* or time */
    if (r.lacks_memory)
        snprintf(r.text, sizeof r.text,
                 "%d cases and relations were not reached: the budget of %g s is used up",
                 s->x.not_reached, s->request->budget);
    else
        attn_external_route[s->x.kind].unreached(&s->x, r.text, sizeof r.text);
    attn_candidate_say(s, &subject, &r, NULL, 0);
}

/* That there are such cases is one ERROR; each by itself is none. */
static void skip_unreached(struct attn_answer *answer)
{
    struct attn_result *r = &answer->result;
    if (!answer->not_reached)
        return;
    r->verdict = ATTN_SKIPPED;
    if (r->text[0] == '\0')
        snprintf(r->text, sizeof r->text, "not reached");
}

static int is_corner(const struct attn_asked *asked)
{
    return asked->battery != NULL && attn_is_corner(asked->battery->name);
}

/* Of the time limit of a case, what all corners may take. */
static double share_of(const struct asking *a)
{
    return a->s->request->tier == ATTN_TIER_QUICK ? 0.25 : 2;
}

/* At the pace of the largest case so far a corner would not end within a quarter of its time, or
 * all of them not within their share. */
static int is_too_slow(struct asking *a, const struct attn_asked *asked, struct attn_answer *answer)
{
    double seconds = a->pace * attn_case_work(&asked->c);
    double most = a->s->x.timeout_s / 4, left = share_of(a) * a->s->x.timeout_s - a->in_corners;
    if (!a->s->question.whole_tier || !is_corner(asked))
        return 0;
    a->in_corners += seconds <= most && seconds <= left ? seconds : 0;
    a->all_corners += seconds;
    if (seconds <= most && seconds <= left)
        return 0;
    *answer = (struct attn_answer){.result = {.verdict = ATTN_SKIPPED}};
    snprintf(answer->result.text, sizeof answer->result.text,
             "left out: at its pace it takes about %.3g s", seconds);
    a->n_slow++;
    return 1;
}

static void note_pace(struct asking *a, const struct attn_asked *asked,
                      const struct attn_answer *answer)
{
    double work = attn_case_work(&asked->c);
    if (answer->not_reached || answer->result.verdict == ATTN_REFUSED || work < a->work)
        return;
    a->work = work;
    a->pace = answer->seconds / work;
}

static void print_left_out(const struct asking *a)
{
    if (a->n_slow > 0)
        fprintf(stderr,
                "note: %d corners (large cases) were left out: at its pace all take about %.3g s; "
                "--timeout %.0f asks them\n",
                a->n_slow, a->all_corners, 4.4 * a->all_corners + 1);
}

static void file_case(struct asking *a, const struct attn_asked *asked, struct attn_answer *answer)
{
    const struct attn_case *c = &asked->c;
    double size = (double)c->batch * (double)c->heads * (double)c->n_query * (double)c->n_key;
    skip_unreached(answer);
    attn_candidate_case(a->s, asked, &answer->result, &answer->wants, answer->seconds);
    note(&a->notes, answer);
    for (int by_width = 0; by_width < 2; by_width++) {
        int at = 2 * (int)c->pass + by_width;
        double is = by_width ? (double)(c->d_key + c->d_value) : size;
        if (answer->result.verdict != ATTN_PASS || is <= a->size[at] || is_corner(asked))
            continue;
        a->size[at] = is;
        a->biggest[at] = asked;
        a->filed[at] = a->s->list->n - 1;
    }
}

/* ---- asking ---------------------------------------------------------------------------------- */

static int fail(struct attn_candidate *s, enum attn_status status, const struct attn_error *err)
{
    return attn_candidate_fail(s, attn_cli_status(status), "%s", err->text);
}

/* A plug-in one case after the other, others all at once.  A command may not start, so that its
 * books are opened when it has answered.  0, or an exit status. */
static int ask_cases(struct asking *a)
{
    struct attn_candidate *s = a->s;
    const int n = s->question.n, at_once = s->x.kind == ATTN_EXTERNAL_PLUGIN ? 1 : n;
    struct attn_answer *answer = attn_cli_need(calloc((size_t)at_once + 1, sizeof *answer));
    struct attn_error err = {0};
    enum attn_status status = ATTN_OK;
    for (int first = 0; first < n && status == ATTN_OK; first += at_once) {
        struct attn_asked *asked = &s->question.asked[first];
        if (at_once > 1 || !is_too_slow(a, asked, answer)) {
            status = attn_external_route[s->x.kind].ask(&s->x, asked, at_once, answer, &err);
            if (at_once == 1)
                note_pace(a, asked, answer);
        }
        if (status == ATTN_OK && s->list == NULL)
            attn_candidate_begin(s);
        for (int i = 0; i < at_once && status == ATTN_OK; i++)
            file_case(a, &asked[i], &answer[i]);
    }
    print_left_out(a);
    free(answer);
    return status == ATTN_OK ? 0 : fail(s, status, &err);
}

/* The biggest and the widest passed case of each pass are called up to 40 times more. */
static void look_for_leaks(struct asking *a)
{
    for (int at = 0; at < 4; at++) {
        struct attn_answer answer;
        if (a->biggest[at] == NULL || (at % 2 == 1 && a->biggest[at] == a->biggest[at - 1]))
            continue;
        attn_external_leak(&a->s->x, &a->biggest[at]->c, &answer);
        if (!answer.not_reached && answer.result.verdict != ATTN_PASS)
            attn_verdicts_revise(a->s->list, a->filed[at], &answer.result);
    }
}

/* The last failing cases that are short are asked again, each in a fresh process: do they fail only
 * after others? */
static void look_for_history(struct attn_candidate *s)
{
    struct attn_common_cause *causes = &s->list->causes;
    for (int n = s->question.n - 1; n > 0 && causes->retried < 3; n--) {
        struct attn_answer answer;
        struct attn_error err = {0};
        const struct attn_verdict_entry *x = &s->list->entry[n];
        if (x->result.verdict != ATTN_FAILED || x->seconds > 1 || !(attn_external_left(&s->x) > 0))
            continue;
        attn_plugin_host_renew(s->x.host);
        if (attn_external_route[s->x.kind].ask(&s->x, &s->question.asked[n], 1, &answer, &err) !=
            ATTN_OK)
            return;
        causes->retried++;
        causes->right += answer.result.verdict == ATTN_PASS;
    }
}

static void ask_relations(struct attn_candidate *s)
{
    for (int i = 0; i < ATTN_RELATION_COUNT; i++) {
        const struct attn_relation *relation = &attn_relations[i];
        struct attn_answer answer;
        if (!attn_candidate_wants(s, relation))
            continue;
        attn_external_relation(&s->x, relation, &answer);
        skip_unreached(&answer);
        attn_candidate_relation(s, relation, &answer.result, &answer.wants, answer.seconds);
    }
}

static int ask_all(struct asking *a)
{
    struct attn_candidate *s = a->s;
    int status = ask_cases(a), is_plugin = s->x.kind == ATTN_EXTERNAL_PLUGIN;
    if (status != 0)
        return status;
    if (is_plugin)
        look_for_leaks(a), look_for_history(s);
    if (is_plugin && s->request->cases.n == 0)
        ask_relations(s);
    file_unreached(s);
    if (is_plugin) {
        attn_plugin_host_renew(s->x.host); /* so that its strays are known */
        print_notes(s->x.host, &a->notes);
    }
    return 0;
}

/* ---- soak ------------------------------------------------------------------------------------ */

/* So many random cases at a time: a start of a command may take seconds. */
enum { ROUND = 600 };

/* A round of cases, or copies of one case.  How many a command did not come to is said of a
 * round. */
static int judge_random(void *arg, const struct attn_case *c, int n,
                        const struct attn_repetition *how, int flags, struct attn_result *r)
{
    struct asking *a = arg;
    struct attn_candidate *s = a->s;
    struct attn_asked *asked = attn_cli_need(calloc((size_t)n, sizeof *asked));
    struct attn_answer *answer = attn_cli_need(calloc((size_t)n, sizeof *answer));
    int is_said = flags & ATTN_SOAK_SAY || s->x.kind != ATTN_EXTERNAL_PLUGIN;
    struct attn_error err = {0};
    for (int i = 0; i < n; i++) {
        asked[i].c = c[i];
        snprintf(asked[i].name, sizeof asked[i].name, "soak-%d", a->named++);
    }
    if (s->x.host != NULL && flags & ATTN_SOAK_FRESH)
        attn_plugin_host_renew(s->x.host);
    s->x.how = *how;
    enum attn_status status = attn_external_route[s->x.kind].ask(&s->x, asked, n, answer, &err);
    if (status == ATTN_OK && s->list == NULL)
        attn_candidate_begin(s);
    for (int i = 0; i < n && status == ATTN_OK; i++) {
        r[i] = answer[i].result;
        if (!is_said)
            r[i].diagnosis = (struct attn_diagnosis){ATTN_FAULT_NONE, "", ""};
    }
    if (status == ATTN_OK && n == ROUND)
        file_unreached(s);
    free(answer);
    free(asked);
    return status == ATTN_OK ? 0 : fail(s, status, &err);
}

static int soak(struct asking *a)
{
    const struct attn_check_request *q = a->s->request;
    const int is_plugin = a->s->x.kind == ATTN_EXTERNAL_PLUGIN;
    const int calls = !is_plugin ? 1 : q->repeat > 0 ? (int)q->repeat : ATTN_SOAK_CALLS;
    const struct attn_soak how = {judge_random, a, calls, is_plugin ? 1 : ROUND};
    return attn_soak_run(a->s, &how);
}

/* ---- from its start to its end --------------------------------------------------------------- */

static void put_route(struct attn_candidate *s)
{
    if (s->route[0] != '\0')
        return;
    if (s->x.kind == ATTN_EXTERNAL_PLUGIN)
        attn_candidate_route(s, "--plugin", s->x.source);
    if (s->x.kind == ATTN_EXTERNAL_COMMAND) {
        attn_candidate_route(s, "--exec", s->x.source);
        attn_candidate_route(s, "--claims", s->claims_path);
        if (s->x.scheme[0] != '\0')
            attn_candidate_route(s, "--scheme", s->x.scheme);
    }
}

int attn_check_external(struct attn_candidate *s)
{
    struct asking a = {.s = s};
    struct attn_error err = {0};
    const struct attn_external_route *route = &attn_external_route[s->x.kind];
    s->x.notes = stderr;
    s->x.how.calls = s->request->repeat > 1 ? (int)s->request->repeat : 1;
    if (!(attn_external_left(&s->x) > 0))
        return attn_candidate_fail(s, ATTN_EXIT_LACKS, "not begun: the budget of %g s is used up",
                                   s->request->budget);
    enum attn_status status = route->open(&s->x, &err);
    if (status != ATTN_OK)
        return fail(s, status, &err);
    if (s->question.asked == NULL) /* it depends on what a plug-in has just said that it claims */
        status = attn_candidate_ask(s, &err);
    if (status != ATTN_OK) {
        route->close(&s->x);
        return fail(s, status, &err);
    }
    put_route(s);
    if (s->x.kind != ATTN_EXTERNAL_COMMAND)
        attn_candidate_begin(s);
    int failed = s->request->soak > 0 ? soak(&a) : ask_all(&a);
    int exit_status = failed != 0 ? failed : attn_candidate_end(s);
    route->close(&s->x);
    return exit_status;
}
