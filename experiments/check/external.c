/* See external.h. */
#include "experiments/check/external.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "experiments/check/check_report.h"
#include "experiments/check/check_soak.h"
#include "experiments/cli/cli.h"
#include "tests/harness/external/vector_files.h"
#include "tests/harness/files/fileio.h"

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

static enum attn_status take_entry(const struct attn_vector_files_entry *entry,
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
    struct attn_vector_files files;
    enum attn_status status = attn_vector_files_open(folder, &files, err);
    if (status != ATTN_OK)
        return status;
    *claims = files.claims;
    question->asked = calloc((size_t)files.n + 1, sizeof *question->asked);
    question->whole_tier = n == 0 && files.n > 1;
    if (question->asked == NULL)
        status = attn_fail(err, ATTN_ENOMEM, "no memory for %d cases", files.n);
    for (int i = 0; i < files.n && status == ATTN_OK; i++)
        if (is_wanted(files.entry[i].name, files.entry[i].text, text, n))
            status = take_entry(&files.entry[i], &question->asked[question->n++], err);
    if (status == ATTN_OK && question->n == 0)
        status = attn_fail(err, ATTN_EINVAL, "%.300s/manifest.json has no such case", folder);
    attn_vector_files_close(&files);
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

/* The claims as people read them: "claims f32 gqa band; lse base 2". Returns text. */
static const char *words_of(const struct attn_claims *c, char *text, size_t size)
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

void attn_external_route(struct attn_external *s, const char *flag, const char *value)
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

static void report_about(struct attn_external *s, const char *claims)
{
    char command[sizeof s->route + sizeof s->scope_flags + 64];
    snprintf(command, sizeof command, "%s check %s%s", attn_cli_program(), s->route,
             s->scope_flags);
    const struct attn_report_about about = {s->kind, s->source, s->claims_path,
                                            claims,  s->scope,  command};
    attn_report_begin(s->verdicts.report, &about);
}

void attn_external_begin(struct attn_external *s)
{
    char words[400];
    snprintf(s->label, sizeof s->label, s->is_one_of_many ? "%.60s (%.90s)" : "%.60s",
             s->claims.name, s->source);
    attn_clean(s->label);
    words_of(&s->claims, words, sizeof words);
    fprintf(stderr, "%s: %s\n", s->label, words);
    attn_verdicts_begin(&s->verdicts, s->label);
    if (s->verdicts.report != NULL)
        report_about(s, words);
}

int attn_external_fail(struct attn_external *s, int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(s->trouble, sizeof s->trouble, format, args);
    va_end(args);
    attn_clean(s->trouble);
    return status;
}

static void again(const struct attn_external *s, const char *case_text, char *text, size_t size)
{
    snprintf(text, size, "check %s --case '%s'", s->route, case_text);
}

void attn_external_say(struct attn_external *s, const struct attn_subject *subject,
                       const struct attn_result *r, unsigned needs, double seconds)
{
    attn_verdicts_add(&s->verdicts, subject, r, seconds);
    if (r->verdict == ATTN_REFUSED || r->verdict == ATTN_ERROR)
        return;
    s->judged++;
    s->exercised |= needs;
}

void attn_external_file(struct attn_external *s, const struct attn_asked *asked,
                        const struct attn_result *result, const struct attn_diagnosis *diagnosis,
                        unsigned needs, double seconds)
{
    char text[ATTN_CASE_TEXT], command[sizeof s->route + ATTN_CASE_TEXT + 32];
    struct attn_result r = *result;
    attn_case_print(&asked->c, text);
    again(s, text, command, sizeof command);
    attn_common_cause_append(&r, diagnosis);
    struct attn_subject subject = {.kind = "case",
                                   .name = asked->name,
                                   .text = text,
                                   .ids = asked->ids,
                                   .why = asked->why,
                                   .again = command};
    attn_external_say(s, &subject, &r, needs, seconds);
}

static void file_claim(struct attn_external *s, const char *name)
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

int attn_external_end(struct attn_external *s)
{
    unsigned idle = s->claims.bits & ~s->exercised;
    for (int bit = 0; bit < ATTN_CLAIMS && s->question.whole_tier && !s->not_reached; bit++)
        if (idle & 1u << bit)
            file_claim(s, attn_claim_name(bit));
    int lacking = attn_verdicts_lacking(&s->verdicts), failures = attn_verdicts_end(&s->verdicts);
    if (failures == 0 && s->judged == 0 && s->question.whole_tier)
        return attn_cli_fail("check", ATTN_EXIT_DISAGREE, "%s: not one case could be judged",
                             s->label);
    if (failures > 0 && lacking == failures)
        return ATTN_EXIT_LACKS;
    return failures == 0 ? ATTN_EXIT_GOOD : ATTN_EXIT_DISAGREE;
}

/* ---- flags ----------------------------------------------------------------------------------- */

enum { MAX_CASES = 256, MAX_EXTERNALS = 256 };

struct external {
    int route; /* 'p' plug-in, 'x' command, 'r' folder of results */
    const char *source, *claims;
};

struct flags {
    const struct attn_check_request *request;
    struct external external[MAX_EXTERNALS];
    int n_externals, routes[128]; /* routes: how many of each kind */
    const char *claims, *text[MAX_CASES];
    int n; /* cases */
};

static void take_external(struct flags *f, int route, const char *source)
{
    f->external[f->n_externals++] = (struct external){route, source, NULL};
    f->routes[route]++;
}

/* A declaration speaks for what stands before it and has none. */
static void take_claims(struct flags *f, const char *path)
{
    for (int i = 0; i < f->n_externals; i++)
        if (f->external[i].claims == NULL)
            f->external[i].claims = path;
    f->claims = path;
}

/* Flags that exclude each other.  0, or an exit status. */
static int check_flags(struct flags *f)
{
    int n = f->n_externals;
    if (f->routes['r'] > 0 && n > 1)
        return attn_cli_fail("check", ATTN_EXIT_USAGE,
                             "--results is judged alone; --plugin and --exec may be repeated");
    if (f->claims != NULL && f->routes['p'] == n)
        return attn_cli_fail("check", ATTN_EXIT_USAGE,
                             "--claims %s: a plug-in says itself what it claims", f->claims);
    for (int i = 0; i < n; i++)
        if (f->external[i].claims == NULL) /* it stands before all of them */
            f->external[i].claims = f->claims;
    if (f->routes['x'] > 0 && f->claims == NULL)
        return attn_cli_fail("check", ATTN_EXIT_USAGE,
                             "--exec needs --claims FILE: what the command can do "
                             "(docs/external.md)");
    if (f->request->relation != NULL && f->routes['p'] < n)
        return attn_cli_fail("check", ATTN_EXIT_USAGE,
                             "--relation is for plug-ins: relations change inputs between two "
                             "calls, and a folder of files is one call");
    if (f->request->repeat > 0 && f->routes['p'] < n)
        return attn_cli_fail("check", ATTN_EXIT_USAGE,
                             "--repeat is for plug-ins: a command and a folder of results are one "
                             "call of each case");
    if (f->request->soak > 0 && f->routes['r'] > 0)
        return attn_cli_fail("check", ATTN_EXIT_USAGE,
                             "--soak needs something to run: --plugin or --exec");
    return 0;
}

/* 0, or an exit status. */
static int read_request(const struct attn_check_request *request, struct flags *f)
{
    *f = (struct flags){.request = request, .n = request->cases.n};
    for (int c = 0; c < f->n; c++)
        f->text[c] = request->cases.at[c].value;
    for (int x = 0; x < request->externals.n; x++) {
        const char *flag = request->externals.at[x].flag, *value = request->externals.at[x].value;
        if (strcmp(flag, "claims") == 0)
            take_claims(f, value);
        else
            take_external(f, flag[0] == 'p' ? 'p' : flag[0] == 'e' ? 'x' : 'r', value);
    }
    return check_flags(f);
}

/* What is asked in place of cases: a relation, or random cases. */
static void take_relation_or_soak(const struct attn_check_request *request, struct attn_external *s)
{
    s->relation = request->relation != NULL ? attn_relation_find(request->relation) : NULL;
    s->soak_s = request->soak;
    s->seed = (uint64_t)request->seed;
    s->repeat = (int)request->repeat;
    s->verdicts.details = request->cases.n == 1 || s->relation != NULL;
}
__attribute__((format(printf, 3, 4))) static void append(char *text, size_t size,
                                                         const char *format, ...)
{
    size_t n = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + n, size - n, format, args);
    va_end(args);
}

/* What is asked, in words and as flags. */
static void describe_scope(const struct flags *f, const struct external *x, struct attn_external *s)
{
    char *flags = s->scope_flags, quoted[ATTN_CASE_TEXT + 8];
    size_t size = sizeof s->scope_flags;
    s->scope[0] = flags[0] = '\0';
    if (f->request->soak > 0)
        snprintf(s->scope, sizeof s->scope, "random cases of seed %llu for %g s",
                 (unsigned long long)s->seed, s->soak_s);
    else if (f->request->relation != NULL)
        snprintf(s->scope, sizeof s->scope, "relation %.40s", f->request->relation);
    else if (f->n > 0 || x->route == 'r')
        snprintf(s->scope, sizeof s->scope, "%d cases", s->question.n);
    else
        snprintf(s->scope, sizeof s->scope, "the %s tier, %d cases%s",
                 attn_tier_name((enum attn_tier)f->request->tier), s->question.n,
                 x->route == 'p' ? ", and the relations" : "");
    if (s->repeat > 1)
        append(s->scope, sizeof s->scope, ", each %d times in a row", s->repeat);
    if (f->request->soak > 0)
        append(flags, size, " --soak %g --seed %llu", s->soak_s, (unsigned long long)s->seed);
    else if (f->request->relation != NULL)
        append(flags, size, " --relation %.40s", f->request->relation);
    else if (f->n == 0 && x->route != 'r')
        append(flags, size, " --tier %s", attn_tier_name((enum attn_tier)f->request->tier));
    if (s->repeat > 1)
        append(flags, size, " --repeat %d", s->repeat);
    if (f->request->timeout > 0)
        append(flags, size, " --timeout %g", s->timeout_s);
    append(flags, size, "%s", f->request->strict ? " --strict" : "");
    for (int n = 0; n < f->n; n++) {
        attn_cli_quote(f->text[n], quoted, sizeof quoted);
        if (strlen(flags) + strlen(quoted) + 32 > size)
            append(flags, size, " ..."); /* dozens of cases: the page has each by itself */
        else
            append(flags, size, " --case %s", quoted);
    }
}

/* What to ask and what is claimed; a folder of results brings its own manifest. */
static int prepare(const struct flags *f, const struct external *x, struct attn_external *s)
{
    struct attn_error err = {0};
    enum attn_status status = ATTN_OK;
    const char *of_results = f->request->vectors != NULL ? f->request->vectors : x->source;
    s->claims_path = x->claims;
    s->relations = x->route == 'p' && f->n == 0;
    if (x->route == 'r') {
        attn_external_route(s, "--results", x->source);
        attn_external_route(s, "--vectors", of_results);
        status = attn_question_read(of_results, f->text, f->n, &s->question, &s->claims, &err);
    } else {
        status =
            attn_question_make(f->text, f->n, (enum attn_tier)f->request->tier, &s->question, &err);
    }
    if (status == ATTN_OK && x->claims != NULL)
        status = attn_claims_read(x->claims, &s->claims, &err);
    if (status != ATTN_OK)
        return attn_external_fail(s, attn_cli_status(status), "%s", err.text);
    if (f->request->relation != NULL || f->request->soak > 0)
        s->question.n = s->question.whole_tier = 0;
    describe_scope(f, x, s);
    return 0;
}

/* Of several commands each has a folder of its own in --work. */
static int run_command(const struct flags *f, int which, struct attn_external *s)
{
    char folder[4096];
    if (f->request->work == NULL || f->n_externals == 1)
        return attn_external_exec(s, s->source, f->request->work);
    mkdir(f->request->work, 0777); /* if it cannot be made, neither can the one in it */
    snprintf(folder, sizeof folder, "%.4000s/%d", f->request->work, which + 1);
    return attn_external_exec(s, s->source, folder);
}

/* What cannot be judged is a line on stderr; where there are more, or a program reads them, it has
 * its place among the others. */
static void report_trouble(const struct flags *f, int which, struct attn_external *s)
{
    struct attn_result r = {.verdict = ATTN_ERROR};
    const struct attn_subject subject = {"setup", "", "it cannot be judged", "", "", "", NULL};
    if (f->n_externals == 1 && f->request->format == ATTN_FORMAT_TEXT) {
        attn_cli_fail("check", 0, "%s", s->trouble);
        if (s->verdicts.report == NULL)
            return;
    }
    snprintf(r.text, sizeof r.text, "%.500s", s->trouble);
    snprintf(s->label, sizeof s->label, "%.150s", s->source);
    attn_clean(s->label);
    attn_verdicts_begin(&s->verdicts, s->label);
    if (s->route[0] == '\0')
        attn_external_route(s, f->external[which].route == 'p' ? "--plugin" : "--exec", s->source);
    if (s->verdicts.report != NULL)
        report_about(s, "not known");
    attn_verdicts_add(&s->verdicts, &subject, &r, 0);
    attn_verdicts_end(&s->verdicts);
}

/* One of them, from its flags to its report; s has what is common to all.  Its exit status. */
static int judge_one(const struct flags *f, int which, struct attn_external *s)
{
    const struct external *x = &f->external[which];
    s->source = x->source;
    s->kind = x->route == 'p' ? "plug-in" : x->route == 'x' ? "command" : "folder of results";
    s->is_one_of_many = f->n_externals > 1;
    if (f->request->timeout <= 0)
        s->timeout_s = x->route == 'x' ? 600 : 20;
    int status = prepare(f, x, s);
    if (status == 0)
        status = x->route == 'p'   ? attn_external_plugin(s, x->source)
                 : x->route == 'x' ? run_command(f, which, s)
                                   : attn_external_results(s, x->source);
    if (s->trouble[0] != '\0')
        report_trouble(f, which, s);
    attn_question_free(&s->question);
    return status;
}

/* All of them; the worst exit status. */
static int judge_all(const struct flags *f, const struct attn_external *common)
{
    static const char *const word[] = {"PASS", "FAIL", "NOT JUDGED", "NOT JUDGED",
                                       "INTERNAL ERROR"};
    struct attn_verdicts v = common->verdicts;
    char *list = NULL;
    size_t size = 0;
    FILE *summary = attn_cli_memory(&list, &size);
    int worst = 0;
    for (int which = 0; which < f->n_externals; which++) {
        struct attn_external s = *common;
        s.verdicts = v;
        int status = judge_one(f, which, &s);
        v = s.verdicts;
        fprintf(summary, "  %-10s  %s\n", word[status], s.label);
        worst = status > worst ? status : worst;
    }
    fclose(summary);
    if (list == NULL)
        worst = attn_cli_fail("check", ATTN_EXIT_LACKS, "no memory");
    if (v.format == ATTN_FORMAT_TEXT && f->n_externals > 1 && list != NULL)
        fprintf(v.out, "\n%d implementations:\n%s", f->n_externals, list);
    free(list);
    struct attn_report *report = v.report;
    attn_verdicts_close(&v);
    int flushed = attn_cli_flush("check");
    worst = flushed > worst ? flushed : worst;
    return report != NULL ? attn_report_close(report, worst) : worst;
}

int attn_external_check(const struct attn_check_request *request)
{
    static struct flags f;
    static struct attn_external s;
    int status = read_request(request, &f);
    if (status != 0)
        return status;
    attn_verdicts_open(&s.verdicts, stdout);
    s.timeout_s = request->timeout;
    s.verdicts.format = (enum attn_format)request->format;
    s.verdicts.strict = request->strict;
    s.verdicts.verbose = request->verbose;
    take_relation_or_soak(request, &s);
    if (request->report != NULL)
        status = attn_report_open(request->report, &s.verdicts.report);
    return status != 0 ? status : judge_all(&f, &s);
}
