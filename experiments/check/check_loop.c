/* attnlab check: every subject is asked every case by its route (subject.h): a spec of ours, a
 * plug-in, a command, a folder of results; then for leaks, relations and the growth of errors; or
 * random cases. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/check/check.h"
#include "experiments/cli/cli.h"
#include "optimized/integers.h"
#include "tests/harness/cases/factors.h"
#include "tests/harness/relations/growth.h"
#include "tests/harness/subject/plugin_host.h"

enum {
    PATIENCE = 120, /* seconds of ours for a case, a relation, the growth of errors             */
    ENOUGH = 40,    /* diagnoses of one spec: the next one says nothing new                     */
    ROUNDS = 3      /* of our cases in one process; 3 x 16 is the first number that is ENOUGH   */
};

/* A subject that is being asked. */
struct asking {
    struct attn_candidate *s;
    /* of a plug-in: calls that changed the floating-point environment, the first change; VmHWM */
    int n_environment;
    char environment[96];
    int64_t hwm_bytes;
    /* of each pass, the biggest case and the widest that passed; corners are none */
    struct passed {
        const struct attn_asked *asked;
        int filed; /* its place among the verdicts */
        double size;
    } most[4];
    struct pace {
        double work, seconds; /* of the largest case so far */
    } pace[ATTN_DTYPES]
          [2];  /* by type and pass: a type that is converted may take ten times as long */
    int n_slow; /* corners that it would not end in time */
    double in_corners, all_corners; /* seconds that those asked take at that pace, and all */
    int n_large;                    /* corners that want more memory than there is, */
    double largest;                 /* bytes of the largest of them */
    int named;                      /* of a soak: cases so far, each with a folder of its own */
};

/* ---- notes ----------------------------------------------------------------------------------- */

/* Notes are no verdict: they go to standard error. */
static void print_notes(const struct asking *a)
{
    const struct attn_plugin_host *host = a->s->x.host;
    char text[32];
    if (host->plugin.load_environment[0] != '\0')
        fprintf(stderr,
                "note: loading it changed the floating-point environment (%s); put back before "
                "every call\n",
                host->plugin.load_environment);
    if (a->n_environment > 0)
        fprintf(stderr,
                "note: %d calls changed the floating-point environment (%s); put back after "
                "each\n",
                a->n_environment, a->environment);
    if (host->restarts > 0)
        fprintf(stderr, "note: started again %d times\n", host->restarts);
    if (host->shared->strays > 0)
        fprintf(stderr, "note: processes that it had left behind were ended with it\n");
    if (a->hwm_bytes > 0)
        fprintf(stderr, "note: peak resident memory of its process %s (VmHWM)\n",
                attn_cli_bytes(a->hwm_bytes, text));
}

/* ---- filing ---------------------------------------------------------------------------------- */

static void file_unreached(struct attn_candidate *s)
{
    struct attn_answer answer = {.result.verdict = ATTN_ERROR};
    struct attn_result *r = &answer.result;
    const char *what = s->x.route->relation == NULL ? "cases not reached" : "not reached";
    const struct attn_checked checked = {ATTN_CHECK_CASE, "", what, "", "", "", NULL};
    if (s->x.not_reached == 0)
        return;
    r->lacks_memory = !(attn_subject_left(&s->x) > 0); /* or time */
    if (r->lacks_memory)
        snprintf(r->text, sizeof r->text,
                 "%d cases and relations were not reached: the budget of %g s is used up",
                 s->x.not_reached, s->request->budget);
    else
        s->x.route->unreached(&s->x, r->text, sizeof r->text);
    attn_candidate_say(s, &checked, &answer);
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

/* Seconds that a case would take; before any of its type and pass, as the slowest of the others. */
static double expected_seconds(const struct asking *a, const struct attn_case *c)
{
    const struct pace *own = &a->pace[c->dtype][c->pass];
    double slowest = 0;
    for (int type = 0; type < ATTN_DTYPES; type++)
        for (int pass = 0; pass < 2; pass++)
            if (a->pace[type][pass].work > 0)
                slowest = fmax(slowest, a->pace[type][pass].seconds / a->pace[type][pass].work);
    return attn_case_work(c) * (own->work > 0 ? own->seconds / own->work : slowest);
}

/* Bytes that the judge takes for a case: inputs, outputs, gradients, and the truth of each row. */
static double bytes_of(const struct attn_case *c)
{
    enum { TRUTH = 600 }; /* bytes of a row of some features, judged */
    double rows = (double)(c->heads * c->n_query + c->kv_heads * c->n_key) * (double)c->batch;
    return rows * (2 * (double)(c->d_key + c->d_value) * (double)attn_dtype_size(c->dtype) + TRUTH);
}

/* A corner of a whole tier is left out where the judge would take more than half of the memory that
 * there is, since the plug-in needs the other half; and where it would not end within a quarter of
 * the time of a case, or all corners not within theirs. */
static int is_left_out(struct asking *a, const struct attn_asked *asked, struct attn_answer *answer)
{
    const double bytes = bytes_of(&asked->c), seconds = expected_seconds(a, &asked->c),
                 limit = a->s->x.timeout_s,
                 all = (a->s->request->tier == ATTN_TIER_QUICK ? 0.25 : 2) * limit;
    if (!a->s->question.whole_tier || !is_corner(asked))
        return 0;
    const int is_large = bytes > (double)attn_cli_memory_available() / 2;
    const int is_slow = !is_large && (seconds > limit / 4 || seconds > all - a->in_corners);
    a->n_large += is_large;
    a->n_slow += is_slow;
    a->largest = is_large ? fmax(bytes, a->largest) : a->largest;
    a->all_corners += is_large ? 0 : seconds;
    a->in_corners += is_large || is_slow ? 0 : seconds;
    if (!is_large && !is_slow)
        return 0;
    *answer = (struct attn_answer){.result.verdict = ATTN_SKIPPED};
    if (is_large)
        snprintf(answer->result.text, sizeof answer->result.text,
                 "left out: it takes about %.3g GiB of memory", bytes / 0x1p30);
    else
        snprintf(answer->result.text, sizeof answer->result.text,
                 "left out: at its pace it takes about %.3g s", seconds);
    return 1;
}

static void note_pace(struct asking *a, const struct attn_asked *asked,
                      const struct attn_answer *answer)
{
    double work = attn_case_work(&asked->c);
    struct pace *pace = &a->pace[asked->c.dtype][asked->c.pass];
    if (!answer->not_reached && answer->result.verdict != ATTN_REFUSED && work >= pace->work)
        *pace = (struct pace){work, answer->seconds};
}

static void print_left_out(const struct asking *a)
{
    if (a->n_slow > 0)
        fprintf(stderr,
                "note: %d corners (large cases) were left out: at its pace all take about %.3g s; "
                "--timeout %.0f asks them\n",
                a->n_slow, a->all_corners, 4.4 * a->all_corners + 1);
    if (a->n_large > 0)
        fprintf(stderr,
                "note: %d corners (large cases) were left out: the judge takes up to %.3g GiB for "
                "one, and so does the plug-in; faults that only they meet are not found\n",
                a->n_large, a->largest / 0x1p30);
}

static void file_case(struct asking *a, const struct attn_asked *asked, struct attn_answer *answer)
{
    const struct attn_case *c = &asked->c;
    double size = (double)c->batch * (double)c->heads * (double)c->n_query * (double)c->n_key;
    skip_unreached(answer);
    attn_candidate_case(a->s, asked, answer);
    if (answer->environment[0] != '\0' && a->n_environment++ == 0)
        memcpy(a->environment, answer->environment, sizeof a->environment);
    a->hwm_bytes = greater(a->hwm_bytes, answer->hwm_bytes);
    for (int by_width = 0; by_width < 2; by_width++) {
        struct passed *most = &a->most[2 * (int)c->pass + by_width];
        double is = by_width ? (double)(c->d_key + c->d_value) : size;
        if (answer->result.verdict == ATTN_PASS && is > most->size && !is_corner(asked))
            *most = (struct passed){asked, a->s->list->n - 1, is};
    }
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* On a terminal: where we are. */
static void report_progress(int at, int n, const char *of)
{
    if (n > 1 && isatty(STDERR_FILENO))
        at < n ? fprintf(stderr, "\r%d of %d %s", at + 1, n, of) : fprintf(stderr, "\r%30s\r", "");
}

/* Of a command, which is asked all cases at once: that it runs. */
static void report_seconds(double s)
{
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\rit runs, %.0f s\r", s);
}

/* Of ours, before they are asked: how long a case may take, and what is diagnosed. */
static void prepare_own(struct asking **a, int n)
{
    for (int i = 0; i < n; i++) {
        struct attn_candidate *s = a[i]->s;
        int named = s->question.asked[0].battery != NULL;
        s->x.timeout_s = named ? PATIENCE * (double)s->x.how.calls : 0;
        s->x.diagnoses = s->list->causes.diagnosed < ENOUGH;
        s->x.next = i + 1 < n ? &a[i + 1]->s->x : NULL;
    }
}

/* Some cases, of n subjects that are asked the same (several: ours).  A command may not start, so
 * that its list is made when it has answered. */
static enum attn_status ask_some(struct asking **a, int n, struct attn_asked *asked, int some,
                                 struct attn_answer *answer, struct attn_error *err)
{
    struct attn_candidate *s = a[0]->s;
    const int is_plugin = s->x.host != NULL;
    enum attn_status status = ATTN_OK;
    if (attn_candidate_is_ours(s))
        prepare_own(a, n);
    if (!is_plugin || !is_left_out(a[0], asked, answer)) {
        status = s->x.route->ask(&s->x, asked, some, answer, err);
        if (is_plugin)
            note_pace(a[0], asked, answer);
    }
    if (status == ATTN_OK && s->list == NULL)
        attn_candidate_begin(s);
    for (int i = 0; i < n * some && status == ATTN_OK; i++)
        file_case(a[i % n], &asked[i / n], &answer[i]);
    return status;
}

/* Of ours, several rounds of cases while none has failed: a new process has no memory yet, and
 * each page of it costs. */
static int rounds_at_once(struct asking **a, int n)
{
    int rounds = attn_candidate_is_ours(a[0]->s) ? ROUNDS : 1;
    for (int i = 0; i < n && rounds > 1; i++)
        rounds = a[i]->s->list->causes.diagnosed > 0 ? 1 : rounds;
    return rounds;
}

/* All cases; 0, or an exit status. */
static int ask_cases(struct asking **a, int n)
{
    const struct attn_question *question = &a[0]->s->question;
    const int all = question->n, fixed = a[0]->s->x.route->at_once;
    const int most = fixed > 0 ? ROUNDS * fixed : all;
    struct attn_answer *answer =
        attn_cli_need(calloc((size_t)n * (size_t)most + 1, sizeof *answer));
    struct attn_error err = {0};
    enum attn_status status = ATTN_OK;
    for (int first = 0, some; first < all && status == ATTN_OK; first += some) {
        const int at_once = fixed > 0 ? rounds_at_once(a, n) * fixed : all;
        some = all - first < at_once ? all - first : at_once;
        report_progress(first, fixed > 0 ? all : 0, "cases");
        status = ask_some(a, n, &question->asked[first], some, answer, &err);
    }
    report_progress(all, fixed > 0 ? all : 0, "");
    print_left_out(a[0]);
    free(answer);
    return status == ATTN_OK ? 0 : attn_candidate_fail(a[0]->s, status, &err);
}

/* The biggest and the widest passed case of each pass are called up to 40 times more. */
static void look_for_leaks(struct asking *a)
{
    for (int at = 0; at < 4; at++) {
        const struct passed *most = &a->most[at];
        struct attn_answer answer;
        if (most->asked == NULL || (at % 2 == 1 && most->asked == a->most[at - 1].asked))
            continue;
        a->s->x.route->leak(&a->s->x, &most->asked->c, &answer);
        if (!answer.not_reached && answer.result.verdict != ATTN_PASS)
            attn_verdicts_revise(a->s->list, most->filed, &answer.result);
    }
}

static void ask_relations(struct attn_candidate *s)
{
    if (attn_candidate_is_ours(s))
        s->x.timeout_s = PATIENCE;
    for (int i = 0; i < ATTN_RELATION_COUNT; i++) {
        const struct attn_relation *relation = &attn_relations[i];
        struct attn_answer answer;
        if (!attn_candidate_wants(s, relation))
            continue;
        report_progress(i, ATTN_RELATION_COUNT, "relations");
        s->x.route->relation(&s->x, relation, &answer);
        skip_unreached(&answer);
        attn_candidate_relation(s, relation, &answer);
    }
    report_progress(ATTN_RELATION_COUNT, ATTN_RELATION_COUNT, "");
}

static void judge_growth(void *arg, int i, struct attn_result *r)
{
    const struct attn_candidate *s = arg;
    struct attn_growth growth;
    (void)i;
    attn_growth_run(&s->x.spec, 1, &growth, r);
}

/* Of ours, last in the order of verdicts: what shows in no single run. */
static void look_for_growth(struct attn_candidate *s)
{
    struct attn_answer answer = {.seconds = 0};
    char again[ATTN_AGAIN_TEXT];
    const struct attn_checked checked = {
        ATTN_CHECK_GROWTH,
        "growth",
        "one problem in 1, 2, 4 and 8 parts",
        "SN-17",
        "errors may grow with the parts like a random walk, not faster",
        again,
        NULL};
    attn_candidate_again(s, "relation", "growth", again);
    s->x.timeout_s = PATIENCE;
    attn_own_judge(&s->x, judge_growth, s, 1, &answer);
    attn_candidate_say(s, &checked, &answer);
}

static int wants_growth(const struct attn_candidate *s)
{
    const char *relation = s->request->relation; /* in place there are no more ranks to grow to */
    return (relation != NULL && strcmp(relation, "growth") == 0) ||
           (s->question.whole_tier && !s->x.is_in_place && attn_growth_applies(s->x.spec.impl));
}

/* All but the cases. */
static void ask_others(struct asking *a)
{
    struct attn_candidate *s = a->s;
    const int is_own = attn_candidate_is_ours(s);
    const int related =
        is_own ? s->question.whole_tier || s->request->relation != NULL : s->request->cases.n == 0;
    if (s->x.route->leak != NULL)
        look_for_leaks(a);
    if (s->x.route->relation != NULL && related)
        ask_relations(s);
    if (is_own && wants_growth(s))
        look_for_growth(s);
    file_unreached(s);
    if (s->x.host != NULL) {
        s->x.route->renew(&s->x); /* so that its strays are known */
        print_notes(a);
    }
}

/* ---- soak ------------------------------------------------------------------------------------ */

/* The random cases of one start: a start of a command may take seconds. */
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
    int is_said = flags & ATTN_SOAK_SAY || s->x.host == NULL;
    struct attn_error err = {0};
    for (int i = 0; i < n; i++) {
        asked[i].c = c[i];
        snprintf(asked[i].name, sizeof asked[i].name, "soak-%d", a->named++);
    }
    if (s->x.route->renew != NULL && flags & ATTN_SOAK_FRESH)
        s->x.route->renew(&s->x);
    s->x.how = *how;
    s->x.diagnoses = flags & ATTN_SOAK_SAY;
    enum attn_status status = s->x.route->ask(&s->x, asked, n, answer, &err);
    if (status == ATTN_OK && s->list == NULL)
        attn_candidate_begin(s);
    for (int i = 0; i < n && status == ATTN_OK; i++) {
        r[i] = answer[i].result;
        if (!is_said)
            r[i].diagnosis = (struct attn_diagnosis){.fault = ATTN_FAULT_NONE};
    }
    if (status == ATTN_OK && n == ROUND)
        file_unreached(s);
    free(answer);
    free(asked);
    return status == ATTN_OK ? 0 : attn_candidate_fail(s, status, &err);
}

static int soak(struct asking *a)
{
    const int usual = a->s->x.route->soak_calls, repeat = (int)a->s->request->repeat;
    const int calls = repeat > 0 && usual > 1 ? repeat : usual;
    const struct attn_soak how = {judge_random, a, calls, usual > 1 ? 1 : ROUND};
    if (attn_candidate_is_ours(a->s))
        a->s->x.timeout_s = PATIENCE;
    return attn_soak_run(a->s, &how);
}

/* ---- from its start to its end --------------------------------------------------------------- */

/* Open its route, and make its list.  0, or an exit status. */
static int begin(struct attn_candidate *s)
{
    struct attn_error err = {0};
    s->x.notes = stderr;
    s->x.waits = report_seconds;
    s->x.how = (struct attn_repetition){s->request->repeat > 1 ? (int)s->request->repeat : 1, 0, 0};
    enum attn_status status =
        attn_subject_left(&s->x) > 0
            ? s->x.route->open(&s->x, &err)
            : attn_fail(&err, ATTN_ENOMEM, "not begun: the budget of %g s is used up",
                        s->request->budget);
    if (status == ATTN_OK && s->question.asked == NULL) { /* a plug-in has just said its claims */
        status = attn_candidate_ask(s, &err);
        if (status != ATTN_OK)
            s->x.route->close(&s->x);
    }
    if (status != ATTN_OK)
        return attn_candidate_fail(s, status, &err);
    attn_candidate_put_route(s);
    if (s->x.route != &attn_exec_route)
        attn_candidate_begin(s);
    return 0;
}

/* Its cases are asked, or a soak is wanted.  An exit status. */
static int finish(struct asking *a, int failed)
{
    struct attn_candidate *s = a->s;
    const int is_own = attn_candidate_is_ours(s);
    if (failed == 0 && s->request->soak > 0)
        failed = soak(a);
    if (failed == 0 && (is_own || s->request->soak <= 0))
        ask_others(a);
    int status = failed != 0 ? failed : attn_candidate_end(s);
    s->x.route->close(&s->x);
    return status;
}

/* Those of ours that are asked what the first one is; an external is alone.  How many. */
static int find_like(struct asking *a, int n, int first, struct asking **like)
{
    const struct attn_candidate *one = a[first].s;
    int together = 0;
    if (!attn_candidate_is_ours(one)) {
        like[0] = &a[first];
        return 1;
    }
    for (int i = first; i < n && one->is_first; i++)
        if (a[i].s->x.spec.impl->caps == one->x.spec.impl->caps)
            like[together++] = &a[i];
    return together;
}

int attn_check_subjects(struct attn_candidate *s, int n)
{
    int worst = ATTN_EXIT_GOOD, failed = 0;
    struct asking *a = attn_cli_need(calloc((size_t)n, sizeof *a));
    struct asking **like = attn_cli_need(calloc((size_t)n, sizeof(struct asking *)));
    for (int i = 0; i < n && worst == 0; i++) {
        a[i].s = &s[i];
        worst = begin(&s[i]);
    }
    const int open = worst == 0 ? n : 0; /* what cannot be opened is alone */
    for (int first = 0; first < open; first++) {
        int together = find_like(a, n, first, like);
        if (together > 0 && s[first].request->soak <= 0)
            failed = ask_cases(like, together);
    }
    for (int i = 0; i < open; i++) {
        int status = finish(&a[i], failed);
        worst = status > worst ? status : worst;
    }
    free(like);
    free(a);
    return worst;
}
