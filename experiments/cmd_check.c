/* attnlab check: judge implementations on the battery and the relations, on one of them, or on
 * random cases. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "experiments/check/check_report.h"
#include "experiments/check/check_soak.h"
#include "experiments/check/external.h"
#include "experiments/check/verdicts.h"
#include "experiments/cli/cli.h"
#include "ref/clock.h"
#include "tests/harness/bound/growth.h"
#include "tests/harness/faults/diagnose.h"
#include "tests/harness/isolated.h"
#include "tests/harness/relations/relations.h"

struct request {
    struct attn_check_request asked;
    struct attn_question question; /* the cases of --case, if there are any */
};

#define PLACE(member) offsetof(struct attn_check_request, member)

static const struct attn_flag_use uses[] = {
    {.flag = ATTN_FLAG_TIER,
     PLACE(tier),
     "quick",
     .help = "quick (a few seconds for each SPEC) or full (attnlab list cases --tier full)"},
    {.flag = ATTN_FLAG_CASE, PLACE(cases)},
    {.flag = ATTN_FLAG_RELATION, PLACE(relation)},
    {.flag = ATTN_FLAG_GROWTH, PLACE(growth)},
    {.flag = ATTN_FLAG_SOAK, PLACE(soak)},
    {.flag = ATTN_FLAG_SEED, PLACE(seed), "1", .help = "of the random cases"},
    {.flag = ATTN_FLAG_REPEAT,
     PLACE(repeat),
     .help = "run every case N times in a row (1; in a soak 4, of a plug-in 16)"},
    {.flag = ATTN_FLAG_FORMAT,
     PLACE(format),
     "text",
     .value = "text|tap|junit|json",
     .help = "text: the worst first; tap: TAP 13; junit: XML; json"},
    {.flag = ATTN_FLAG_REPORT, PLACE(report)},
    {.flag = ATTN_FLAG_STRICT, PLACE(strict)},
    {.flag = ATTN_FLAG_VERBOSE, PLACE(verbose)},
    {.flag = ATTN_FLAG_TITLE,
     .help = "External implementations, in the place of SPECs (docs/external.md); "
             "the worst exit status wins:"},
    {.flag = ATTN_FLAG_PLUGIN, PLACE(externals), .value = "FILE.so"},
    {.flag = ATTN_FLAG_EXEC, PLACE(externals), .value = "COMMAND"},
    {.flag = ATTN_FLAG_CLAIMS,
     PLACE(externals),
     .help = "what the commands before it claim, JSON; a plug-in says it itself"},
    {.flag = ATTN_FLAG_RESULTS, PLACE(externals)},
    {.flag = ATTN_FLAG_VECTORS, PLACE(vectors)},
    {.flag = ATTN_FLAG_TIMEOUT, PLACE(timeout)},
    {.flag = ATTN_FLAG_WORK, PLACE(work)},
    {.flag = ATTN_FLAG_END}};

static int check(int argc, char **argv);

const struct attn_cli_command attn_cmd_check = {
    .name = "check",
    .summary = "judge implementations on the battery or on one case",
    .usage = "check [SPEC...] [flags]\n"
             "check --plugin FILE.so... [flags]\n"
             "check --exec COMMAND... --claims FILE [flags]\n"
             "check --results DIR [--claims FILE] [flags]",
    .about =
        "Judge implementations against the oracle.  Without SPEC: every registered one.  Without\n"
        "--case and --relation: the battery (attnlab list cases), the relations that must hold\n"
        "between two runs, and for what has ranks or splits the growth of errors with them.",
    .flags = uses,
    .more =
        "  attnlab check tiled-textbook --tier full\n"
        "  attnlab check ring:ranks=4 --case 'b1h2q128d32:causal(br):f32:stairs-up:s1:pass=bwd'\n"
        "\n"
        "Exit status: 0 good; 1 a case fails, crashes, hangs, or a claim is never exercised; 2 it\n"
        "cannot be judged at all; 3 the environment lacks something.",
    .operands_most = -1,
    .computes = 1,
    .run = check};

/* Everything is judged in a process of its own: a crash or an endless loop costs one verdict. */
enum {
    PATIENCE = 120, /* seconds for a case of the battery or a relation    */
    ENOUGH = 40     /* diagnoses of one spec: the next one says nothing new */
};

struct judged {
    const struct attn_spec *spec;
    const struct attn_case *c;
    const struct attn_relation *relation;
    int diagnose; /* say what a failure looks like */
    struct attn_repetition how;
};

static void judge_case(void *arg, struct attn_result *r)
{
    const struct judged *q = arg;
    struct attn_diagnosis diagnosis;
    attn_run_repeated(q->spec, q->c, &q->how, r);
    if (q->diagnose && r->verdict == ATTN_FAILED &&
        attn_diagnose_case(q->spec, NULL, q->c, r, &diagnosis))
        attn_common_cause_append(r, &diagnosis);
}

static void judge_relation(void *arg, struct attn_result *r)
{
    const struct judged *q = arg;
    attn_relation_run(q->relation, q->spec, r);
}

static void run_one(const struct attn_spec *spec, const struct attn_case *c,
                    const struct attn_battery_case *battery, int repeat, struct attn_verdicts *v)
{
    struct attn_result r;
    char name[256], text[ATTN_CASE_TEXT], again[ATTN_CASE_TEXT + 320], times[40] = "";
    int calls = repeat > 1 ? repeat : 1;
    attn_spec_print(spec, name, sizeof name);
    attn_case_print(c, text);
    if (calls > 1)
        snprintf(times, sizeof times, " --repeat %d", calls);
    snprintf(again, sizeof again, "check '%s' --case '%s'%s%s", name, text, times,
             v->strict ? " --strict" : "");
    double start = attn_seconds(CLOCK_MONOTONIC);
    struct judged judged = {spec, c, NULL, v->causes.diagnosed < ENOUGH, {calls, 0, 1}};
    attn_isolated(judge_case, &judged, battery != NULL ? PATIENCE * (double)calls : 0, &r);
    const struct attn_subject subject = {"case",
                                         battery != NULL ? battery->name : "",
                                         text,
                                         battery != NULL ? battery->ids : "",
                                         battery != NULL ? battery->why : "",
                                         again,
                                         NULL};
    attn_verdicts_add(v, &subject, &r, attn_seconds(CLOCK_MONOTONIC) - start);
}

static void run_tier(const struct attn_spec *spec, enum attn_tier tier, int repeat,
                     struct attn_verdicts *v)
{
    for (int i = 0; i < attn_tier_count(tier); i++) {
        const struct attn_battery_case *battery = attn_tier_at(tier, i);
        struct attn_case c;
        struct attn_result r = {.verdict = ATTN_ERROR};
        struct attn_error err = {0};
        if (attn_case_parse(battery->text, &c, &err) == ATTN_OK) {
            run_one(spec, &c, battery, repeat, v);
            continue;
        }
        const struct attn_subject subject = {
            "case", battery->name, battery->text, battery->ids, battery->why, "", NULL};
        snprintf(r.text, sizeof r.text, "%s", err.text);
        attn_verdicts_add(v, &subject, &r, 0);
    }
}

static void run_relations(const struct attn_spec *spec, const char *id, struct attn_verdicts *v)
{
    for (int i = 0; i < attn_relation_count(); i++) {
        const struct attn_relation *relation = attn_relation_at(i);
        struct attn_result r;
        char name[256], again[320];
        if (strcmp(id, "all") != 0 && strcmp(id, relation->id) != 0)
            continue;
        attn_spec_print(spec, name, sizeof name);
        snprintf(again, sizeof again, "check '%s' --relation %s", name, relation->id);
        double start = attn_seconds(CLOCK_MONOTONIC);
        struct judged judged = {.spec = spec, .relation = relation};
        attn_isolated(judge_relation, &judged, PATIENCE, &r);
        const struct attn_subject subject = {
            "relation", relation->id, relation->says, relation->ids, relation->says, again, NULL};
        attn_verdicts_add(v, &subject, &r, attn_seconds(CLOCK_MONOTONIC) - start);
    }
}

/* Last in the order of verdicts: what shows in no single run. */
static void judge_growth(void *arg, struct attn_result *r)
{
    const struct judged *q = arg;
    struct attn_growth growth;
    attn_growth_run(q->spec, 1, &growth, r);
}

static void run_growth(const struct attn_spec *spec, struct attn_verdicts *v)
{
    struct attn_result r;
    char name[256], again[320];
    attn_spec_print(spec, name, sizeof name);
    snprintf(again, sizeof again, "check '%s' --growth", name);
    double start = attn_seconds(CLOCK_MONOTONIC);
    struct judged judged = {.spec = spec};
    attn_isolated(judge_growth, &judged, PATIENCE, &r);
    const struct attn_subject subject = {
        "growth",
        "growth",
        "one problem in 1, 2, 4 and 8 parts",
        "SN-17",
        "errors may grow with the parts like a random walk, not faster",
        again,
        NULL};
    attn_verdicts_add(v, &subject, &r, attn_seconds(CLOCK_MONOTONIC) - start);
}

/* ---- soak ------------------------------------------------------------------------------------ */

static void judge_random(void *arg, const struct attn_case *c, const struct attn_repetition *how,
                         int flags, struct attn_result *r)
{
    struct judged judged = {arg, c, NULL, flags & ATTN_SOAK_SAY, *how};
    judged.how.same_bits = 1;
    attn_isolated(judge_case, &judged, PATIENCE, r); /* always a fresh process */
}

static void run_soak(const struct attn_spec *spec, const struct request *request,
                     struct attn_verdicts *v)
{
    char name[256], route[260];
    struct attn_spec own = *spec;
    attn_spec_print(spec, name, sizeof name);
    snprintf(route, sizeof route, "'%s'", name);
    const struct attn_soak soak = {judge_random,
                                   &own,
                                   route,
                                   request->asked.soak,
                                   (uint64_t)request->asked.seed,
                                   request->asked.repeat > 0 ? (int)request->asked.repeat
                                                             : ATTN_SOAK_OWN_CALLS};
    attn_soak_run(&soak, v);
}

/* ---- one spec -------------------------------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static void append(char *text, size_t size,
                                                         const char *format, ...)
{
    size_t n = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + n, size - n, format, args);
    va_end(args);
}

/* For --report. */
static void report_about(const struct attn_spec *spec, const char *name,
                         const struct request *request, struct attn_verdicts *v)
{
    char claims[400] = "claims", scope[ATTN_CASE_TEXT + 80] = "",
         command[ATTN_CASE_TEXT + 700] = "";
    for (int bit = 0; bit < ATTN_CAPS; bit++)
        if (spec->impl->caps & 1u << bit)
            append(claims, sizeof claims, " %s", attn_cap_name((enum attn_cap)(1u << bit)));
    const struct attn_cli_list *cases = &request->asked.cases;
    enum attn_tier tier = (enum attn_tier)request->asked.tier;
    append(command, sizeof command, "%s check '%s'", attn_cli_program(), name);
    if (cases->n > 0) {
        append(scope, sizeof scope, cases->n == 1 ? "one case" : "%d cases", cases->n);
        for (int c = 0; c < cases->n; c++)
            append(command, sizeof command, " --case '%s'", cases->at[c].value);
    } else if (request->asked.relation != NULL) {
        append(scope, sizeof scope, "relation %s", request->asked.relation);
        append(command, sizeof command, " --relation %s", request->asked.relation);
    } else if (request->asked.growth) {
        append(scope, sizeof scope, "the growth of errors with parts");
        append(command, sizeof command, " --growth");
    } else if (request->asked.soak > 0) {
        append(scope, sizeof scope, "random cases of seed %llu for %g s",
               (unsigned long long)request->asked.seed, request->asked.soak);
        append(command, sizeof command, " --soak %g --seed %llu", request->asked.soak,
               (unsigned long long)request->asked.seed);
    } else {
        append(scope, sizeof scope, "the %s tier, %d cases, and the relations",
               attn_tier_name(tier), attn_tier_count(tier));
        append(command, sizeof command, " --tier %s", attn_tier_name(tier));
    }
    if (request->asked.repeat > 1)
        append(command, sizeof command, " --repeat %d", (int)request->asked.repeat);
    append(command, sizeof command, "%s", v->strict ? " --strict" : "");
    const struct attn_report_about about = {
        "implementation of attnlab", name, NULL, claims, scope, command};
    attn_report_begin(v->report, &about);
}

/* Returns an exit status.  A case of the command line that cannot even be set up is a mistake of
 * whoever wrote it. */
static int run_spec(const struct attn_spec *spec, const struct request *request,
                    struct attn_verdicts *v)
{
    char name[256];
    attn_spec_print(spec, name, sizeof name);
    attn_verdicts_begin(v, name);
    if (v->report != NULL)
        report_about(spec, name, request, v);
    const struct attn_cli_list *cases = &request->asked.cases;
    int repeat = (int)request->asked.repeat;
    for (int c = 0; c < cases->n; c++)
        run_one(spec, &request->question.asked[c].c, attn_battery_find(cases->at[c].value), repeat,
                v);
    if (request->asked.relation != NULL)
        run_relations(spec, request->asked.relation, v);
    else if (request->asked.growth)
        run_growth(spec, v);
    else if (request->asked.soak > 0)
        run_soak(spec, request, v);
    else if (cases->n == 0) {
        run_tier(spec, (enum attn_tier)request->asked.tier, repeat, v);
        run_relations(spec, "all", v);
        if (attn_growth_applies(spec->impl))
            run_growth(spec, v);
    }
    int impossible = cases->n == 1 && v->list != NULL && v->list->n == 1 &&
                     v->list->entry[0].result.verdict == ATTN_ERROR;
    int lacking = attn_verdicts_lacking(v), failures = attn_verdicts_end(v);
    if (lacking > 0 && lacking == failures)
        return ATTN_EXIT_LACKS;
    return impossible ? ATTN_EXIT_USAGE : failures > 0 ? ATTN_EXIT_DISAGREE : ATTN_EXIT_GOOD;
}

/* ---- the command line ------------------------------------------------------------------------ */

/* Who is to be judged, before anything is said about what on. */
static int know_specs(char **names, int n)
{
    struct attn_spec spec;
    struct attn_error err = {0};
    for (int i = 0; i < n; i++)
        if (attn_spec_parse(names[i], &spec, &err) != ATTN_OK)
            return attn_cli_fail("check", ATTN_EXIT_USAGE, "%s", err.text);
    return ATTN_EXIT_GOOD;
}

/* Flags that exclude each other or name what is not there; returns an exit status. */
static int check_request(const struct attn_check_request *asked, int n_specs)
{
    const char *relation = asked->relation;
    if ((asked->cases.n > 0) + (relation != NULL) + (asked->soak > 0) + asked->growth > 1)
        return attn_cli_fail("check", ATTN_EXIT_USAGE,
                             "--case, --relation, --growth and --soak: one of them at a time");
    if (relation != NULL && strcmp(relation, "all") != 0 && attn_relation_find(relation) == NULL)
        return attn_cli_fail("check", ATTN_EXIT_USAGE,
                             "no relation is called '%s': there are R1 to R23, G1 to G9, D1 "
                             "to D3, P1, P2, I1, I2 and all (attnlab list relations)",
                             relation);
    int externals = 0;
    for (int x = 0; x < asked->externals.n; x++)
        externals += strcmp(asked->externals.at[x].flag, "claims") != 0;
    if (externals > 0 && (n_specs > 0 || asked->growth))
        return attn_cli_fail("check", ATTN_EXIT_USAGE,
                             n_specs > 0
                                 ? "a SPEC and an external implementation are not judged in "
                                   "one run"
                                 : "--growth is for implementations of attnlab: ranks and "
                                   "splits are options of a SPEC");
    if (externals == 0 && (asked->externals.n > 0 || asked->vectors != NULL ||
                           asked->work != NULL || asked->timeout > 0))
        return attn_cli_fail("check", ATTN_EXIT_USAGE,
                             "--claims, --vectors, --work and --timeout are for external "
                             "implementations: --plugin, --exec or --results");
    return ATTN_EXIT_GOOD;
}

/* How it is told, and the cases of --case. */
static int understand(struct request *request, struct attn_verdicts *v)
{
    const struct attn_check_request *asked = &request->asked;
    v->format = (enum attn_format)asked->format;
    v->strict = asked->strict;
    v->verbose = asked->verbose;
    v->details = asked->cases.n > 0 || asked->growth ||
                 (asked->relation != NULL && strcmp(asked->relation, "all") != 0);
    struct attn_error err = {0};
    const char *text[sizeof asked->cases.at / sizeof *asked->cases.at];
    for (int c = 0; c < asked->cases.n; c++)
        text[c] = asked->cases.at[c].value;
    if (asked->cases.n > 0 && attn_question_make(text, asked->cases.n, ATTN_TIER_QUICK,
                                                 &request->question, &err) != ATTN_OK)
        return attn_cli_fail("check", attn_cli_status(err.status), "%s", err.text);
    return ATTN_EXIT_GOOD;
}

static int run_specs(char **names, int n, const struct request *request, struct attn_verdicts *v)
{
    struct attn_spec *spec = calloc((size_t)n + 1, sizeof *spec);
    struct attn_error err = {0};
    int worst = ATTN_EXIT_GOOD;
    if (spec == NULL)
        return attn_cli_fail("check", ATTN_EXIT_LACKS, "no memory");
    for (int i = 0; i < n; i++)
        if (attn_spec_parse(names != NULL ? names[i] : attn_impl_at(i)->name, &spec[i], &err) !=
            ATTN_OK) {
            free(spec);
            return attn_cli_fail("check", ATTN_EXIT_USAGE, "%s", err.text);
        }
    for (int i = 0; i < n; i++) {
        int status = run_spec(&spec[i], request, v);
        worst = status > worst ? status : worst;
    }
    attn_verdicts_close(v);
    free(spec);
    return worst;
}

static int check(int argc, char **argv)
{
    static struct request request;
    struct attn_verdicts v;
    int n, status = attn_cli_read(&attn_cmd_check, argc, argv, &request.asked, &n);
    if (status >= 0)
        return status;
    status = check_request(&request.asked, n);
    if (status == ATTN_EXIT_GOOD && request.asked.externals.n > 0)
        return attn_external_check(&request.asked);
    attn_verdicts_open(&v, stdout);
    if (status == ATTN_EXIT_GOOD)
        status = know_specs(argv + 1, n);
    if (status == ATTN_EXIT_GOOD)
        status = understand(&request, &v);
    if (status == ATTN_EXIT_GOOD && request.asked.report != NULL)
        status = attn_report_open(request.asked.report, &v.report);
    if (status != ATTN_EXIT_GOOD)
        return status;
    status = run_specs(n > 0 ? argv + 1 : NULL, n > 0 ? n : attn_impl_count(), &request, &v);
    int flushed = attn_cli_flush("check");
    status = flushed != ATTN_EXIT_GOOD ? flushed : status;
    return request.asked.report != NULL ? attn_report_close(v.report, status) : status;
}
