/* See stranger.h. */
#include "experiments/stranger.h"

#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli.h"
#include "tests/harness/exchange.h"

static const char help[] =
    "attnlab check --plugin FILE.so [FLAGS]\n"
    "attnlab check --exec COMMAND --claims FILE [FLAGS]\n"
    "attnlab check --results DIR [--claims FILE] [FLAGS]\n\n"
    "Judge an implementation that is not ours on the battery (docs/strangers.md).\n\n"
    "  --plugin F     a shared object with attn_plugin_get() (ref/attn_plugin.h)\n"
    "  --exec CMD     a command; it is started once, as CMD CASES OUT\n"
    "  --results D    a folder of results of `attnlab vectors`; the manifest may lie in it\n"
    "  --vectors D    the folder that attnlab vectors wrote, when the manifest is not in DIR\n"
    "  --claims F     what the implementation claims, JSON; a plug-in says it itself\n"
    "  --tier T       quick (default) or full\n"
    "  --case C       only this case, by name or case string; may be repeated\n"
    "  --relation R   plug-ins: only this relation (attnlab list relations), or all\n"
    "  --soak S       plug-ins and commands: random cases for S seconds\n"
    "  --seed N       of the random cases (default 1)\n"
    "  --timeout S    seconds for a case of a plug-in (20), for a whole command (600)\n"
    "  --work D       with --exec: keep cases and results in this folder\n"
    "  --strict       a WEAK case, which could not have failed, is a failure\n"
    "  --verbose      a line for every case\n"
    "  --format F     text (default), tap, junit, json\n\n"
    "Exit status: 0 good, 1 a case fails, crashes, hangs, or a claim is never exercised,\n"
    "2 it cannot be judged at all, 3 the environment lacks something.\n";

/* ---- questions ------------------------------------------------------------------------------- */

static void take_battery(const struct attn_battery_case *battery, struct attn_asked *asked)
{
    snprintf(asked->name, sizeof asked->name, "%s", battery->name);
    asked->ids = battery->ids;
    asked->why = battery->why;
}

enum attn_status attn_question_case(const char *text, struct attn_case *c, struct attn_error *err)
{
    if (strchr(text, ':') == NULL)
        return attn_fail(err, ATTN_EINVAL,
                         "'%.80s' is no case of the battery (attnlab list cases has their names), "
                         "nor a case string such as b1h2q9d8:causal(br):f32:normal:s1",
                         text);
    return attn_case_parse(text, c, err);
}

static enum attn_status read_case(const char *text, int number, struct attn_asked *asked,
                                  struct attn_error *err)
{
    const struct attn_battery_case *named = attn_battery_find(text);
    if (named != NULL) {
        take_battery(named, asked);
        return attn_case_parse(named->text, &asked->c, err);
    }
    snprintf(asked->name, sizeof asked->name, "case-%d", number + 1);
    asked->ids = asked->why = "";
    return attn_question_case(text, &asked->c, err);
}

enum attn_status attn_question_make(const char *const *text, int n, enum attn_tier tier,
                                    struct attn_question *question, struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    question->whole_tier = n == 0;
    question->n = n > 0 ? n : attn_tier_count(tier);
    question->asked = calloc((size_t)question->n + 1, sizeof *question->asked);
    if (question->asked == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for %d cases", question->n);
    for (int i = 0; i < question->n && status == ATTN_OK; i++)
        if (n > 0)
            status = read_case(text[i], i, &question->asked[i], err);
        else {
            const struct attn_battery_case *battery = attn_tier_at(tier, i);
            struct attn_asked *asked = &question->asked[i];
            take_battery(battery, asked);
            status = attn_case_parse(battery->text, &asked->c, err);
        }
    if (status != ATTN_OK)
        attn_question_free(question);
    return status;
}

static int is_wanted(const char *name, const char *text, const char *const *wanted, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(wanted[i], name) == 0 || strcmp(wanted[i], text) == 0)
            return 1;
    return n == 0;
}

static enum attn_status take_entry(const struct attn_exchange_entry *entry,
                                   struct attn_asked *asked, struct attn_error *err)
{
    const struct attn_battery_case *battery = attn_battery_find(entry->name);
    asked->ids = asked->why = "";
    if (battery != NULL)
        take_battery(battery, asked);
    snprintf(asked->name, sizeof asked->name, "%s", entry->name);
    return attn_case_parse(entry->text, &asked->c, err);
}

enum attn_status attn_question_read(const char *folder, const char *const *text, int n,
                                    struct attn_question *question, struct attn_claims *claims,
                                    struct attn_error *err)
{
    struct attn_exchange exchange;
    enum attn_status status = attn_exchange_open(folder, &exchange, err);
    if (status != ATTN_OK)
        return status;
    *claims = exchange.claims;
    question->asked = calloc((size_t)exchange.n + 1, sizeof *question->asked);
    question->whole_tier = n == 0 && exchange.n > 1;
    if (question->asked == NULL)
        status = attn_fail(err, ATTN_ENOMEM, "no memory for %d cases", exchange.n);
    for (int i = 0; i < exchange.n && status == ATTN_OK; i++)
        if (is_wanted(exchange.entry[i].name, exchange.entry[i].text, text, n))
            status = take_entry(&exchange.entry[i], &question->asked[question->n++], err);
    if (status == ATTN_OK && question->n == 0)
        status = attn_fail(err, ATTN_EINVAL, "%.300s/manifest.json has no such case", folder);
    attn_exchange_close(&exchange);
    if (status != ATTN_OK)
        attn_question_free(question);
    return status;
}

void attn_question_free(struct attn_question *question)
{
    free(question->asked);
    memset(question, 0, sizeof *question);
}

/* ---- books ----------------------------------------------------------------------------------- */

const char *attn_stranger_words(const struct attn_claims *c, char *text, size_t size)
{
    size_t n = (size_t)snprintf(text, size, "claims");
    for (int bit = 0; bit < ATTN_CLAIMS && n < size; bit++)
        if (c->bits & 1u << bit)
            n += (size_t)snprintf(text + n, size - n, " %s", attn_claim_name(bit));
    for (int bit = 0; bit < ATTN_DECLINES && n < size; bit++)
        if (c->declines & 1u << bit)
            n += (size_t)snprintf(text + n, size - n, "; not %s", attn_decline_name(bit));
    const char *const other[] = {c->lse == ATTN_PLUGIN_LSE_2        ? "lse base 2"
                                 : c->lse == ATTN_PLUGIN_LSE_ABSENT ? "no lse"
                                                                    : "",
                                 c->empty_lse ? "empty lse +inf" : "",
                                 c->causal == ATTN_PLUGIN_CAUSAL_TL   ? "causal tl only"
                                 : c->causal == ATTN_PLUGIN_CAUSAL_BR ? "causal br only"
                                                                      : "",
                                 c->window ? "windows count the query's own key" : "",
                                 c->layout == ATTN_CLAIMS_THD ? "layout thd"
                                 : c->layout                  ? "layout blhd"
                                                              : "",
                                 c->byte ? "mask 1 = hidden" : ""};
    for (size_t o = 0; o < sizeof other / sizeof *other && n < size; o++)
        if (other[o][0] != '\0')
            n += (size_t)snprintf(text + n, size - n, "; %s", other[o]);
    return text;
}

void attn_stranger_route(struct attn_stranger *s, const char *flag, const char *value)
{
    size_t n = strlen(s->route), end = sizeof s->route - 8;
    n += (size_t)snprintf(s->route + n, sizeof s->route - n, "%s%s '", n > 0 ? " " : "", flag);
    for (; *value != '\0' && n < end; value++)
        if (*value == '\'')
            n += (size_t)snprintf(s->route + n, sizeof s->route - n, "'\\''");
        else
            s->route[n++] = *value;
    snprintf(s->route + n, sizeof s->route - n, "'");
}

static void again(const struct attn_stranger *s, const char *case_text, char *text, size_t size)
{
    snprintf(text, size, "check %s --case '%s'", s->route, case_text);
}

void attn_stranger_say(struct attn_stranger *s, const struct attn_subject *subject,
                       const struct attn_result *r, unsigned needs, double seconds)
{
    attn_verdicts_add(&s->verdicts, subject, r, seconds);
    if (r->verdict == ATTN_REFUSED || r->verdict == ATTN_ERROR)
        return;
    s->judged++;
    s->exercised |= needs;
}

void attn_stranger_file(struct attn_stranger *s, const struct attn_asked *asked,
                        const struct attn_result *result, const char *diagnosis, unsigned needs,
                        double seconds)
{
    char text[ATTN_CASE_TEXT], command[sizeof s->route + ATTN_CASE_TEXT + 32];
    struct attn_result r = *result;
    attn_case_print(&asked->c, text);
    again(s, text, command, sizeof command);
    attn_votes_append(&r, diagnosis);
    struct attn_subject subject = {.kind = "case",
                                   .name = asked->name,
                                   .text = text,
                                   .ids = asked->ids,
                                   .why = asked->why,
                                   .again = command};
    attn_stranger_say(s, &subject, &r, needs, seconds);
}

static void file_claim(struct attn_stranger *s, const char *name)
{
    struct attn_result r = {.verdict = ATTN_ERROR};
    struct attn_subject subject = {
        .kind = "claim", .name = name, .text = "", .ids = "", .why = "", .again = ""};
    snprintf(r.text, sizeof r.text,
             "%s is claimed, but no case of this tier exercises it here: it is not verified; do "
             "not claim it",
             name);
    attn_verdicts_add(&s->verdicts, &subject, &r, 0);
}

int attn_stranger_end(struct attn_stranger *s)
{
    unsigned idle = s->claims.bits & ~s->exercised;
    for (int bit = 0; bit < ATTN_CLAIMS && s->question.whole_tier && !s->not_reached; bit++)
        if (idle & 1u << bit)
            file_claim(s, attn_claim_name(bit));
    int failures = attn_verdicts_end(&s->verdicts);
    attn_verdicts_close(&s->verdicts);
    int flushed = attn_cli_flush("check");
    if (flushed != ATTN_EXIT_GOOD)
        return flushed;
    if (failures == 0 && s->judged == 0 && s->question.whole_tier)
        return attn_cli_fail("check", ATTN_EXIT_DISAGREE, "not one case could be judged");
    return failures == 0 ? ATTN_EXIT_GOOD : ATTN_EXIT_DISAGREE;
}

/* ---- flags ----------------------------------------------------------------------------------- */

int attn_stranger_is_meant(int argc, char **argv)
{
    static const char *const flag[] = {"--plugin", "--exec", "--results"};
    for (int a = 1; a < argc; a++)
        for (int f = 0; f < 3; f++) {
            size_t n = strlen(flag[f]);
            if (strncmp(argv[a], flag[f], n) == 0 && (argv[a][n] == '\0' || argv[a][n] == '='))
                return 1;
        }
    return 0;
}

enum { MAX_CASES = 64 };

struct flags {
    const char *plugin, *exec, *results, *vectors, *claims, *work, *timeout;
    const char *text[MAX_CASES];
    const char *relation, *soak, *seed;
    int n, tier, strict, verbose, format, help;
};

/* 0, or an exit status. */
static int read_flags(int argc, char **argv, struct flags *f)
{
    static const struct option longs[] = {
        {"plugin", required_argument, NULL, 'p'},   {"exec", required_argument, NULL, 'x'},
        {"results", required_argument, NULL, 'r'},  {"vectors", required_argument, NULL, 'V'},
        {"claims", required_argument, NULL, 'C'},   {"caps", required_argument, NULL, 'C'},
        {"tier", required_argument, NULL, 't'},     {"case", required_argument, NULL, 'c'},
        {"timeout", required_argument, NULL, 'T'},  {"work", required_argument, NULL, 'w'},
        {"relation", required_argument, NULL, 'R'}, {"soak", required_argument, NULL, 'k'},
        {"seed", required_argument, NULL, 'n'},     {"format", required_argument, NULL, 'f'},
        {"strict", no_argument, NULL, 's'},         {"verbose", no_argument, NULL, 'v'},
        {"help", no_argument, NULL, 'h'},           {0}};
    if (attn_cli_options("check", argc, argv, longs, "case") != ATTN_EXIT_GOOD)
        return ATTN_EXIT_USAGE;
    for (int o; (o = getopt_long(argc, argv, "", longs, NULL)) != -1;) {
        const char **text = o == 'p'   ? &f->plugin
                            : o == 'x' ? &f->exec
                            : o == 'r' ? &f->results
                            : o == 'V' ? &f->vectors
                            : o == 'C' ? &f->claims
                            : o == 'w' ? &f->work
                            : o == 'T' ? &f->timeout
                            : o == 'R' ? &f->relation
                            : o == 'k' ? &f->soak
                            : o == 'n' ? &f->seed
                                       : NULL;
        if (text != NULL)
            *text = optarg;
        else if (o == 'c' && f->n < MAX_CASES)
            f->text[f->n++] = optarg;
        else if (o == 'c')
            return attn_cli_fail("check", ATTN_EXIT_USAGE, "at most %d --case", MAX_CASES);
        else if (o == 't' && (f->tier = attn_tier_find(optarg)) < 0)
            return attn_cli_fail("check", ATTN_EXIT_USAGE, "no tier '%s': quick and full exist",
                                 optarg);
        else if (o == 'f' && (f->format = attn_format_find(optarg)) < 0)
            return attn_cli_fail("check", ATTN_EXIT_USAGE,
                                 "no format '%s': text, tap, junit and json exist", optarg);
        else if (o == '?')
            return attn_cli_fail("check", ATTN_EXIT_USAGE, "see docs/strangers.md");
        f->strict |= o == 's';
        f->verbose |= o == 'v';
        f->help |= o == 'h';
    }
    if (optind < argc)
        return attn_cli_fail("check", ATTN_EXIT_USAGE, "'%s': one implementation at a time",
                             argv[optind]);
    if ((f->plugin != NULL) + (f->exec != NULL) + (f->results != NULL) > 1)
        return attn_cli_fail("check", ATTN_EXIT_USAGE, "--plugin, --exec or --results, not two");
    return 0;
}

/* What is asked in place of cases: a relation, or random cases.  0, or an exit status. */
static int take_relation_or_soak(const struct flags *f, struct attn_stranger *s)
{
    int64_t seed = 1;
    if ((f->n > 0) + (f->relation != NULL) + (f->soak != NULL) > 1)
        return attn_cli_fail("check", ATTN_EXIT_USAGE,
                             "--case, --relation and --soak: one of them at a time");
    if (f->relation != NULL && f->plugin == NULL)
        return attn_cli_fail("check", ATTN_EXIT_USAGE,
                             "--relation is for plug-ins: relations change inputs between two "
                             "calls, and a folder of files is one call");
    if (f->soak != NULL && f->results != NULL)
        return attn_cli_fail("check", ATTN_EXIT_USAGE,
                             "--soak needs something to run: --plugin or --exec");
    s->relation = f->relation != NULL ? attn_relation_find(f->relation) : NULL;
    if (f->relation != NULL && s->relation == NULL && strcmp(f->relation, "all") != 0)
        return attn_cli_fail("check", ATTN_EXIT_USAGE,
                             "no relation is called '%s': attnlab list relations has their names",
                             f->relation);
    s->relations = f->plugin != NULL && f->n == 0;
    if (f->soak != NULL &&
        !(attn_cli_double(f->soak, &s->soak_s) && s->soak_s > 0 && s->soak_s < HUGE_VAL))
        return attn_cli_fail("check", ATTN_EXIT_USAGE, "--soak %s: seconds above 0", f->soak);
    if (f->seed != NULL && !attn_cli_int(f->seed, 0, INT64_MAX, &seed))
        return attn_cli_fail("check", ATTN_EXIT_USAGE, "--seed %s: a whole number from 0 up",
                             f->seed);
    s->seed = (uint64_t)seed;
    s->verdicts.details = f->n == 1 || s->relation != NULL;
    return 0;
}

/* What to ask and what is claimed; a folder of results brings its own manifest. */
static int prepare(const struct flags *f, struct attn_stranger *s)
{
    struct attn_error err = {0};
    enum attn_status status = ATTN_OK;
    const char *of_results = f->vectors != NULL ? f->vectors : f->results;
    s->claims_path = f->claims;
    if (f->results != NULL) {
        attn_stranger_route(s, "--results", f->results);
        attn_stranger_route(s, "--vectors", of_results);
    }
    if (f->results != NULL)
        status = attn_question_read(of_results, f->text, f->n, &s->question, &s->claims, &err);
    if (status == ATTN_OK && f->results == NULL)
        status = attn_question_make(f->text, f->n, (enum attn_tier)f->tier, &s->question, &err);
    if (status == ATTN_OK && f->claims != NULL)
        status = attn_claims_read(f->claims, &s->claims, &err);
    if (status != ATTN_OK)
        return attn_cli_fail("check", attn_cli_status(status), "%s", err.text);
    if (f->exec != NULL && f->claims == NULL)
        return attn_cli_fail("check", ATTN_EXIT_USAGE,
                             "--exec needs --claims FILE: what the command can do "
                             "(docs/strangers.md)");
    return 0;
}

int attn_stranger_check(int argc, char **argv)
{
    struct flags f = {.n = 0};
    struct attn_stranger s;
    memset(&s, 0, sizeof s);
    int status = read_flags(argc, argv, &f);
    if (status != 0)
        return status;
    if (f.help)
        return attn_cli_help(help);
    s.timeout_s = f.exec != NULL ? 600 : 20;
    if (f.timeout != NULL && !(attn_cli_double(f.timeout, &s.timeout_s) && s.timeout_s > 0))
        return attn_cli_fail("check", ATTN_EXIT_USAGE, "--timeout %s: seconds above 0", f.timeout);
    attn_verdicts_open(&s.verdicts, stdout);
    s.verdicts.format = (enum attn_format)f.format;
    s.verdicts.strict = f.strict;
    s.verdicts.verbose = f.verbose;
    status = take_relation_or_soak(&f, &s);
    if (status == 0)
        status = prepare(&f, &s);
    if (status == 0 && (f.relation != NULL || f.soak != NULL))
        s.question.n = s.question.whole_tier = 0;
    if (status == 0)
        status = f.plugin != NULL ? attn_stranger_plugin(&s, f.plugin)
                 : f.exec != NULL ? attn_stranger_exec(&s, f.exec, f.work)
                                  : attn_stranger_results(&s, f.results);
    attn_question_free(&s.question);
    return status;
}
