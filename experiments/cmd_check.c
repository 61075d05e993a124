/* attnlab check: judge implementations on the battery and the relations, on one of them, or on
 * random cases. */
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "experiments/check/check_report.h"
#include "experiments/check/check_soak.h"
#include "experiments/check/external.h"
#include "experiments/check/verdicts.h"
#include "experiments/cli.h"
#include "tests/harness/bound/growth.h"
#include "tests/harness/faults/diagnose.h"
#include "tests/harness/isolated.h"
#include "tests/harness/relations/relations.h"

static const char help[] =
    "attnlab check [SPEC ...] [--tier quick|full] [--case STRING|NAME | --relation ID | --growth]\n"
    "              [--soak SECONDS [--seed N]] [--repeat N] [--format text|tap|junit|json]\n"
    "              [--strict] [--verbose] [--report FILE.html|FILE.md]\n"
    "attnlab check --plugin FILE | --exec CMD | --results DIR     somebody else's: add --help\n\n"
    "Judge implementations against the oracle.  Without SPEC: every registered one.  Without\n"
    "--case and --relation: the battery (attnlab list cases), the relations that must hold "
    "between\n"
    "two runs, and for what has ranks or splits the growth of errors with them.\n\n"
    "  --tier T      quick (default, under a second each) or full (about 1,100 cases)\n"
    "  --case C      one case: a case string, or the name of a battery case\n"
    "  --relation R  one relation (R1 to R23, G1 to G9, D1 to D3, P1, P2, I1, I2), or all\n"
    "  --growth      only: do errors grow faster than a random walk with ranks or splits?\n"
    "  --soak S      random cases for S seconds; a failure is shrunk to a small case\n"
    "  --seed N      of the random cases (default 1)\n"
    "  --repeat N    run every case N times in a row (default 1, in a soak 4)\n"
    "  --format F    text: the worst first; tap: TAP 13; junit: XML; json\n"
    "  --report F    beside it a page to keep, HTML or Markdown by its name\n"
    "  --strict      a WEAK case, which could not have failed, is a failure\n"
    "  --verbose     text: a line for every check, not only for those that fail\n\n"
    "  attnlab check tiled-textbook --tier full\n"
    "  attnlab check ring:ranks=4 --case 'b1h2q128d32:causal(br):f32:stairs-up:s1:pass=bwd'\n\n"
    "Exit status 1 when anything fails.\n";

struct request {
    enum attn_tier tier;
    const char *text; /* of --case, or NULL                          */
    const struct attn_battery_case *named;
    struct attn_case one;
    const char *relation; /* an id, "all", or NULL */
    int growth;           /* the check of growth alone */
    double soak;          /* seconds; 0: no soak   */
    uint64_t seed;
    int repeat; /* runs of every case; 0: not said */
    const char *report;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Everything is judged in a process of its own: a crash or an endless loop costs one verdict. */
enum {
    PATIENCE = 120, /* seconds for a case of the battery or a relation    */
    ENOUGH = 40     /* diagnoses of one spec: the next one says nothing new */
};

struct question {
    const struct attn_spec *spec;
    const struct attn_case *c;
    const struct attn_relation *relation;
    int diagnose; /* say what a failure looks like */
    struct attn_repetition how;
};

static void judge_case(void *arg, struct attn_result *r)
{
    const struct question *q = arg;
    struct attn_diagnosis diagnosis;
    attn_run_repeated(q->spec, q->c, &q->how, r);
    if (q->diagnose && r->verdict == ATTN_FAILED &&
        attn_diagnose_case(q->spec, NULL, q->c, r, &diagnosis))
        attn_common_cause_append(r, &diagnosis);
}

static void judge_relation(void *arg, struct attn_result *r)
{
    const struct question *q = arg;
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
    double start = now();
    struct question question = {spec, c, NULL, v->causes.diagnosed < ENOUGH, {calls, 0, 1}};
    attn_isolated(judge_case, &question, battery != NULL ? PATIENCE * (double)calls : 0, &r);
    const struct attn_subject subject = {"case",
                                         battery != NULL ? battery->name : "",
                                         text,
                                         battery != NULL ? battery->ids : "",
                                         battery != NULL ? battery->why : "",
                                         again,
                                         NULL};
    attn_verdicts_add(v, &subject, &r, now() - start);
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
        double start = now();
        struct question question = {.spec = spec, .relation = relation};
        attn_isolated(judge_relation, &question, PATIENCE, &r);
        const struct attn_subject subject = {
            "relation", relation->id, relation->says, relation->ids, relation->says, again, NULL};
        attn_verdicts_add(v, &subject, &r, now() - start);
    }
}

/* Last in the order of verdicts: what shows in no single run. */
static void judge_growth(void *arg, struct attn_result *r)
{
    const struct question *q = arg;
    struct attn_growth growth;
    attn_growth_run(q->spec, 1, &growth, r);
}

static void run_growth(const struct attn_spec *spec, struct attn_verdicts *v)
{
    struct attn_result r;
    char name[256], again[320];
    attn_spec_print(spec, name, sizeof name);
    snprintf(again, sizeof again, "check '%s' --growth", name);
    double start = now();
    struct question question = {.spec = spec};
    attn_isolated(judge_growth, &question, PATIENCE, &r);
    const struct attn_subject subject = {
        "growth",
        "growth",
        "one problem in 1, 2, 4 and 8 parts",
        "SN-17",
        "errors may grow with the parts like a random walk, not faster",
        again,
        NULL};
    attn_verdicts_add(v, &subject, &r, now() - start);
}

/* ---- soak ------------------------------------------------------------------------------------ */

static void judge_random(void *arg, const struct attn_case *c, const struct attn_repetition *how,
                         int flags, struct attn_result *r)
{
    struct question question = {arg, c, NULL, flags & ATTN_SOAK_SAY, *how};
    question.how.same_bits = 1;
    attn_isolated(judge_case, &question, PATIENCE, r); /* always a fresh process */
}

static void run_soak(const struct attn_spec *spec, const struct request *request,
                     struct attn_verdicts *v)
{
    char name[256], route[260];
    struct attn_spec own = *spec;
    attn_spec_print(spec, name, sizeof name);
    snprintf(route, sizeof route, "'%s'", name);
    const struct attn_soak soak = {
        judge_random,  &own,          route,
        request->soak, request->seed, request->repeat > 0 ? request->repeat : ATTN_SOAK_OWN_CALLS};
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
    append(command, sizeof command, "%s check '%s'", attn_cli_program(), name);
    if (request->text != NULL) {
        append(scope, sizeof scope, "one case");
        append(command, sizeof command, " --case '%s'", request->text);
    } else if (request->relation != NULL) {
        append(scope, sizeof scope, "relation %s", request->relation);
        append(command, sizeof command, " --relation %s", request->relation);
    } else if (request->growth) {
        append(scope, sizeof scope, "the growth of errors with parts");
        append(command, sizeof command, " --growth");
    } else if (request->soak > 0) {
        append(scope, sizeof scope, "random cases of seed %llu for %g s",
               (unsigned long long)request->seed, request->soak);
        append(command, sizeof command, " --soak %g --seed %llu", request->soak,
               (unsigned long long)request->seed);
    } else {
        append(scope, sizeof scope, "the %s tier, %d cases, and the relations",
               attn_tier_name(request->tier), attn_tier_count(request->tier));
        append(command, sizeof command, " --tier %s", attn_tier_name(request->tier));
    }
    if (request->repeat > 1)
        append(command, sizeof command, " --repeat %d", request->repeat);
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
    if (request->text != NULL)
        run_one(spec, &request->one, request->named, request->repeat, v);
    else if (request->relation != NULL)
        run_relations(spec, request->relation, v);
    else if (request->growth)
        run_growth(spec, v);
    else if (request->soak > 0)
        run_soak(spec, request, v);
    else {
        run_tier(spec, request->tier, request->repeat, v);
        run_relations(spec, "all", v);
        if (attn_growth_applies(spec->impl))
            run_growth(spec, v);
    }
    int impossible = request->text != NULL && v->list != NULL && v->list->n == 1 &&
                     v->list->entry[0].result.verdict == ATTN_ERROR;
    int lacking = attn_verdicts_lacking(v), failures = attn_verdicts_end(v);
    if (lacking > 0 && lacking == failures)
        return ATTN_EXIT_LACKS;
    return impossible ? ATTN_EXIT_USAGE : failures > 0 ? ATTN_EXIT_DISAGREE : ATTN_EXIT_GOOD;
}

/* ---- the command line ------------------------------------------------------------------------ */

/* Understand one option; returns an exit status. */
static int take_option(int o, struct request *request, struct attn_verdicts *v)
{
    int64_t seed, repeat;
    switch (o) {
    case 'c':
        request->text = optarg;
        return ATTN_EXIT_GOOD;
    case 'r':
        request->relation = optarg;
        if (strcmp(optarg, "all") != 0 && attn_relation_find(optarg) == NULL)
            return attn_cli_fail("check", ATTN_EXIT_USAGE,
                                 "no relation is called '%s': there are R1 to R23, G1 to G9, D1 "
                                 "to D3, P1, P2, I1, I2 and all",
                                 optarg);
        return ATTN_EXIT_GOOD;
    case 't':
        if (attn_tier_find(optarg) < 0)
            return attn_cli_fail("check", ATTN_EXIT_USAGE,
                                 "there is no tier '%s': quick or full would work", optarg);
        request->tier = (enum attn_tier)attn_tier_find(optarg);
        return ATTN_EXIT_GOOD;
    case 'g':
        request->growth = 1;
        return ATTN_EXIT_GOOD;
    case 'k':
        if (!attn_cli_double(optarg, &request->soak) || !(request->soak > 0) ||
            !isfinite(request->soak))
            return attn_cli_fail("check", ATTN_EXIT_USAGE, "--soak %s: a number of seconds above 0",
                                 optarg);
        return ATTN_EXIT_GOOD;
    case 'n':
        if (!attn_cli_int(optarg, 0, INT64_MAX, &seed))
            return attn_cli_fail("check", ATTN_EXIT_USAGE, "--seed %s: a whole number from 0 up",
                                 optarg);
        request->seed = (uint64_t)seed;
        return ATTN_EXIT_GOOD;
    case 'a':
        if (!attn_cli_int(optarg, 1, ATTN_REPEAT_MOST, &repeat))
            return attn_cli_fail("check", ATTN_EXIT_USAGE,
                                 "--repeat %s: a whole number from 1 to %d", optarg,
                                 ATTN_REPEAT_MOST);
        request->repeat = (int)repeat;
        return ATTN_EXIT_GOOD;
    case 'f':
        if (attn_format_find(optarg) < 0)
            return attn_cli_fail("check", ATTN_EXIT_USAGE,
                                 "there is no format '%s': text, tap, junit or json would work",
                                 optarg);
        v->format = (enum attn_format)attn_format_find(optarg);
        return ATTN_EXIT_GOOD;
    case 'o':
        request->report = optarg;
        return ATTN_EXIT_GOOD;
    case 's':
        v->strict = 1;
        return ATTN_EXIT_GOOD;
    case 'v':
        v->verbose = 1;
        return ATTN_EXIT_GOOD;
    default:
        return attn_cli_fail("check", ATTN_EXIT_USAGE, "see attnlab check --help");
    }
}

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

/* Options that exclude each other, and the case itself; returns an exit status. */
static int understand(struct request *request, struct attn_verdicts *v)
{
    struct attn_error err = {0};
    if ((request->text != NULL) + (request->relation != NULL) + (request->soak > 0) +
            request->growth >
        1)
        return attn_cli_fail("check", ATTN_EXIT_USAGE,
                             "--case, --relation, --growth and --soak: one of them at a time");
    v->details = request->text != NULL || request->relation != NULL || request->growth;
    if (request->relation != NULL && strcmp(request->relation, "all") == 0)
        v->details = 0;
    if (request->text == NULL)
        return ATTN_EXIT_GOOD;
    request->named = attn_battery_find(request->text);
    const char *text = request->named != NULL ? request->named->text : request->text;
    if (attn_question_case(text, &request->one, &err) != ATTN_OK)
        return attn_cli_fail("check", ATTN_EXIT_USAGE, "%s", err.text);
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

int attn_cmd_check(int argc, char **argv)
{
    if (attn_external_is_meant(argc, argv))
        return attn_external_check(argc, argv);
    static const struct option longs[] = {{"case", required_argument, NULL, 'c'},
                                          {"relation", required_argument, NULL, 'r'},
                                          {"tier", required_argument, NULL, 't'},
                                          {"soak", required_argument, NULL, 'k'},
                                          {"seed", required_argument, NULL, 'n'},
                                          {"repeat", required_argument, NULL, 'a'},
                                          {"format", required_argument, NULL, 'f'},
                                          {"report", required_argument, NULL, 'o'},
                                          {"growth", no_argument, NULL, 'g'},
                                          {"strict", no_argument, NULL, 's'},
                                          {"verbose", no_argument, NULL, 'v'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    struct request request = {.seed = 1};
    struct attn_verdicts v;
    int status = ATTN_EXIT_GOOD;
    attn_verdicts_open(&v, stdout);
    if (attn_cli_options("check", argc, argv, longs, NULL) != ATTN_EXIT_GOOD)
        return ATTN_EXIT_USAGE;
    for (int o; status == ATTN_EXIT_GOOD && (o = getopt_long(argc, argv, "", longs, NULL)) != -1;) {
        if (o == 'h')
            return attn_cli_help(help);
        status = take_option(o, &request, &v);
    }
    if (status == ATTN_EXIT_GOOD)
        status = know_specs(argv + optind, argc - optind);
    if (status == ATTN_EXIT_GOOD)
        status = understand(&request, &v);
    if (status == ATTN_EXIT_GOOD && request.report != NULL)
        status = attn_report_open(request.report, &v.report);
    if (status != ATTN_EXIT_GOOD)
        return status;
    int named = optind < argc;
    status = run_specs(named ? argv + optind : NULL, named ? argc - optind : attn_impl_count(),
                       &request, &v);
    int flushed = attn_cli_flush("check");
    status = flushed != ATTN_EXIT_GOOD ? flushed : status;
    return request.report != NULL ? attn_report_close(v.report, status) : status;
}
