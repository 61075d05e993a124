/* attnlab check: who is judged, in which order, and the exit status of all. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "experiments/check/check.h"
#include "experiments/check/check_report.h"
#include "experiments/cli/cli.h"
#include "ref/clock.h"
#include "tests/harness/judge/runner.h"

/* Each external with what is claimed for it: a declaration speaks for what stands before it and has
 * none; what stands behind the last one has that.  How many there are. */
static int take_externals(const struct attn_check_request *q, struct attn_candidate *s)
{
    const char *claims = NULL;
    int n = 0;
    for (int x = 0; x < q->externals.n; x++) {
        const char *flag = q->externals.at[x].flag, *value = q->externals.at[x].value;
        if (strcmp(flag, "claims") == 0) {
            for (int i = 0; i < n; i++)
                if (s[i].x.claims_path == NULL)
                    s[i].x.claims_path = value;
            claims = value;
            continue;
        }
        s[n].x.source = value;
        s[n++].x.route = attn_subject_route_of(flag);
    }
    for (int i = 0; i < n; i++)
        if (s[i].x.claims_path == NULL)
            s[i].x.claims_path = claims;
    return n;
}

static int count(const struct attn_candidate *s, int n, const struct attn_subject_route *route)
{
    int all = 0;
    for (int i = 0; i < n; i++)
        all += s[i].x.route == route;
    return all;
}

/* Flags that exclude each other. */
static enum attn_status check_externals(const struct attn_check_request *q,
                                        const struct attn_candidate *s, int n,
                                        struct attn_error *err)
{
    const int plugins = count(s, n, &attn_plugin_route), callers = count(s, n, &attn_caller_route);
    const int folders = count(s, n, &attn_folder_route);
    if (s[0].x.claims_path != NULL && plugins == n)
        return attn_fail(err, ATTN_EINVAL, "--claims %s: a plug-in says itself what it claims",
                         s[0].x.claims_path);
    const char *wrong =
        callers > 0 && (n > 1 || q->scheme != NULL)
            ? "--serve is judged alone, and not on ranks: --exec takes --scheme"
        : folders > 0 && n > 1 ? "--results is judged alone; --plugin and --exec may be repeated"
        : plugins + folders < n && s[0].x.claims_path == NULL
            ? "--exec and --serve need --claims FILE: what the code can do (docs/external.md)"
        : q->relation != NULL && plugins + callers < n
            ? "--relation is for plug-ins and --serve: relations change inputs between two calls, "
              "and a folder of files is one call"
        : q->repeat > 0 && plugins + callers < n
            ? "--repeat is for plug-ins and --serve: a command and a folder of results are one "
              "call of each case"
        : (q->soak > 0 || q->budget > 0) && folders > 0
            ? "--soak and --budget need something to run: --plugin, --exec or --serve"
            : NULL;
    return wrong != NULL ? attn_fail(err, ATTN_EINVAL, "%s", wrong) : ATTN_OK;
}

/* The question and the claims; a folder of results brings its own manifest. */
static int prepare(struct attn_candidate *s)
{
    const struct attn_check_request *q = s->request;
    struct attn_error err = {0};
    enum attn_status status = ATTN_OK;
    if (s->x.route == &attn_folder_route) {
        const char *manifest = q->vectors != NULL ? q->vectors : s->x.source;
        attn_candidate_route(s, "results", s->x.source);
        attn_candidate_route(s, "vectors", manifest);
        status =
            attn_question_read(manifest, &q->cases, (uint64_t)q->seed, &s->question, &s->x, &err);
    }
    if (s->x.route->says_claims)
        s->x.claims_path = NULL;
    if (status == ATTN_OK && s->x.claims_path != NULL)
        status = attn_claims_read(s->x.claims_path, &s->x.claims, &err);
    if (status == ATTN_OK && s->request->scheme != NULL)
        status = attn_subject_set_scheme(&s->x, s->request->scheme, &err);
    if (status == ATTN_OK && s->question.asked == NULL &&
        !(s->x.route->says_claims && attn_question_needs_claims(&q->cases)))
        status = attn_candidate_ask(s, &err);
    return status == ATTN_OK ? 0 : attn_candidate_fail(s, status, &err);
}

/* An external, from its flags to its report.  Of several commands each has a folder of its own in
 * --out.  Its exit status. */
static int judge_external(struct attn_candidate *s, int number)
{
    const char *work = s->request->work;
    char folder[4096];
    s->x.work = work;
    if (work != NULL && s->is_one_of_many && s->x.route == &attn_exec_route) {
        mkdir(work, 0777); /* if it cannot be made, neither can the one in it */
        snprintf(folder, sizeof folder, "%.4000s/%d", work, number);
        s->x.work = folder;
    }
    s->x.timeout_s = s->request->timeout > 0 ? s->request->timeout : s->x.route->usual_s;
    int status = prepare(s);
    if (status == 0)
        status = attn_check_subjects(s, 1);
    if (s->trouble[0] != '\0')
        attn_candidate_report_trouble(s);
    attn_question_free(&s->question);
    return status;
}

/* All of them; the worst exit status. */
static int judge_externals(struct attn_candidate *s, int n)
{
    static const char *const word[] = {"PASS", "FAIL", "NOT JUDGED", "NOT JUDGED",
                                       "INTERNAL ERROR"};
    static const struct attn_column column[] = {{"verdict", "", ATTN_UNIT_WORDS},
                                                {"of", "", ATTN_UNIT_WORDS},
                                                {"cause", "", ATTN_UNIT_WORDS},
                                                {.key = NULL}};
    const double budget = s->request->budget;
    const double until = budget > 0 ? attn_seconds(CLOCK_MONOTONIC) + budget : 0;
    int worst = 0;
    for (int i = 0; i < n; i++) {
        s[i].x.until = until;
        s[i].exit_status = judge_external(&s[i], i + 1);
        worst = s[i].exit_status > worst ? s[i].exit_status : worst;
    }
    if (s->verdicts->format != ATTN_FORMAT_TEXT || n == 1)
        return worst;
    json_t *rows = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(
            rows, json_pack("{s:{s:s},s:o,s:o}", "verdict", s[i].exit_status > 0 ? "bad" : "good",
                            word[s[i].exit_status], "of", attn_cli_words(s[i].label), "cause",
                            attn_cli_words(s[i].cause)));
    fprintf(s->verdicts->out, "\n%d implementations:\n", n);
    attn_table_print(s->verdicts->out, ATTN_TABLE_INDENTED, column, rows);
    json_decref(rows);
    return worst;
}

static int claims_as_much(const struct attn_claims *a, const struct attn_claims *b)
{
    return a->bits == b->bits && memcmp(&a->shapes, &b->shapes, sizeof a->shapes) == 0;
}

/* The implementations to judge, and the cases of each that claims as much as one before. */
static enum attn_status take_specs(struct attn_candidate *s, char **specs, int n,
                                   struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    for (int i = 0; i < n && status == ATTN_OK; i++) {
        int like = 0;
        s[i].x.route = &attn_own_route;
        status =
            attn_spec_parse(specs != NULL ? specs[i] : attn_impl_at(i)->name, &s[i].x.spec, err);
        if (status == ATTN_OK)
            status = attn_cli_run_by(attn_ranks(s[i].x.spec.impl, &s[i].x.spec.options),
                                     &s[i].x.spec.options, err);
        if (status != ATTN_OK)
            break;
        s[i].x.is_in_place = attn_cli_runner() != NULL;
        attn_claims_of_impl(s[i].x.spec.impl, &s[i].x.spec.options, &s[i].x.claims);
        while (!claims_as_much(&s[like].x.claims, &s[i].x.claims))
            like++;
        if (like < i)
            s[i].question = s[like].question;
        else
            status = attn_candidate_ask(&s[i], err);
        s[i].is_first = like == i;
    }
    return status;
}

/* All of them, on the terminal and on the page. */
static int judge(struct attn_candidate *s, int n, int externals, struct attn_report *report)
{
    for (int i = 0; i < n; i++)
        s[i].report = report;
    int status = externals ? judge_externals(s, n) : attn_check_subjects(s, n);
    attn_verdicts_print(s->verdicts, NULL);
    int flushed = attn_cli_flush();
    status = flushed > status ? flushed : status;
    return report != NULL ? attn_report_close(report, status) : status;
}

int attn_check(const struct attn_check_request *q, char **specs, int n_specs)
{
    int externals = q->externals.n > 0, n = externals     ? q->externals.n
                                            : n_specs > 0 ? n_specs
                                                          : attn_impl_count();
    struct attn_verdicts v;
    struct attn_report *report = NULL;
    struct attn_error err;
    struct attn_candidate *s = attn_cli_need(calloc((size_t)n, sizeof *s));
    attn_keep_freed();
    attn_verdicts_open(&v, stdout);
    v.format = (enum attn_format)q->format;
    v.has_text = externals && strcmp(q->externals.at[0].flag, "serve") == 0;
    v.strict = q->strict;
    v.verbose = q->verbose;
    v.refusals = q->refusals;
    v.details = (externals ? q->cases.n == 1 : q->cases.n > 0) ||
                (q->relation != NULL && strcmp(q->relation, "all") != 0);
    for (int i = 0; i < n; i++) {
        s[i].request = q;
        s[i].verdicts = &v;
    }
    if (externals)
        n = take_externals(q, s);
    for (int i = 0; i < n; i++)
        s[i].is_one_of_many = n > 1;
    enum attn_status ready = externals ? check_externals(q, s, n, &err)
                                       : take_specs(s, n_specs > 0 ? specs : NULL, n, &err);
    if (ready == ATTN_OK && q->report != NULL && attn_cli_is_first())
        ready = attn_report_open(q->report, &report, &err);
    int status = ready == ATTN_OK ? judge(s, n, externals, report) : attn_cli_error(&err);
    for (int i = 0; i < n && !externals; i++)
        if (s[i].is_first)
            attn_question_free(&s[i].question);
    free(s);
    return status;
}
