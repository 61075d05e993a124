/* See check.h: the books of whoever is judged, and what is asked of whom. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "experiments/check/check.h"
#include "experiments/check/check_report.h"
#include "experiments/cli/cli.h"
#include "tests/harness/faults/cost.h"
#include "tests/harness/files/fileio.h"

/* ---- in words ----------------------------------------------------------------------------- */

/* The claims as people read them: "f32 gqa band; lse base 2". */
static void put_claims(const struct attn_candidate *s, char *text, size_t size)
{
    const struct attn_claims *c = &s->claims;
    const char *const other[] = {c->lse == ATTN_PLUGIN_LSE_2        ? "lse base 2"
                                 : c->lse == ATTN_PLUGIN_LSE_ABSENT ? "no lse"
                                                                    : "",
                                 c->empty_lse ? "empty lse +inf" : "",
                                 c->causal == ATTN_PLUGIN_CAUSAL_TL   ? "causal tl only"
                                 : c->causal == ATTN_PLUGIN_CAUSAL_BR ? "causal br only"
                                                                      : "",
                                 c->window ? "windows count the query's own key" : "",
                                 c->layout == ATTN_CLAIMS_THD    ? "layout thd"
                                 : c->layout == ATTN_PLUGIN_SBHD ? "layout sbhd"
                                 : c->layout                     ? "layout blhd"
                                                                 : "",
                                 c->byte ? "mask 1 = hidden" : ""};
    snprintf(text, size, "claims");
    for (int bit = 0; bit < ATTN_CAPS && s->from == ATTN_SOURCE_SPEC; bit++)
        if (s->spec.impl->caps & 1u << bit)
            attn_append(text, size, " %s", attn_cap_name((enum attn_cap)(1u << bit)));
    for (int bit = 0; bit < ATTN_CLAIMS && s->from != ATTN_SOURCE_SPEC; bit++)
        if (c->bits & 1u << bit)
            attn_append(text, size, " %s", attn_claim_name[bit]);
    for (int bit = 0; bit < ATTN_DECLINES; bit++)
        if (c->declines & 1u << bit)
            attn_append(text, size, "; not %s", attn_decline_name[bit]);
    for (size_t o = 0; o < sizeof other / sizeof *other; o++)
        if (other[o][0] != '\0')
            attn_append(text, size, "; %s", other[o]);
    if (c->arithmetic > 0)
        attn_append(text, size, "; arithmetic %s: %s", attn_arithmetic[c->arithmetic].word,
                    attn_arithmetic[c->arithmetic].stands_for);
}

/* What is asked: in words, and as the flags that ask it. */
static void put_scope(const struct attn_candidate *s, char *scope, size_t scope_size, char *flags,
                      size_t size)
{
    const struct attn_check_request *q = s->request;
    const char *tier = attn_tier_name[q->tier];
    char quoted[ATTN_CASE_TEXT + 8];
    scope[0] = flags[0] = '\0';
    if (q->soak > 0) {
        attn_append(scope, scope_size, "random cases of seed %lld for %g s", (long long)q->seed,
                    q->soak);
        attn_append(flags, size, " --soak %g --seed %lld", q->soak, (long long)q->seed);
    } else if (q->relation != NULL) {
        attn_append(scope, scope_size, "relation %.40s", q->relation);
        attn_append(flags, size, " --relation %.40s", q->relation);
    } else if (q->growth) {
        attn_append(scope, scope_size, "the growth of errors with parts");
        attn_append(flags, size, " --growth");
    } else if (q->cases.n > 0 || s->from == ATTN_SOURCE_FILES) {
        int n = s->from == ATTN_SOURCE_FILES ? s->question.n : q->cases.n;
        attn_append(scope, scope_size, n == 1 ? "one case" : "%d cases", n);
    } else {
        attn_append(scope, scope_size, "the %s tier of seed %lld, %d cases%s", tier,
                    (long long)q->seed, s->question.n,
                    s->from != ATTN_SOURCE_EXEC ? ", and the relations" : "");
        attn_append(flags, size, " --tier %s --seed %lld", tier, (long long)q->seed);
    }
    if (q->repeat > 1) {
        attn_append(scope, scope_size, ", each %d times in a row", (int)q->repeat);
        attn_append(flags, size, " --repeat %d", (int)q->repeat);
    }
    if (q->timeout > 0)
        attn_append(flags, size, " --timeout %g", q->timeout);
    attn_append(flags, size, "%s", q->strict ? " --strict" : "");
    for (int n = 0; n < q->cases.n; n++) {
        attn_cli_quote(q->cases.at[n].value, quoted, sizeof quoted);
        if (strlen(flags) + strlen(quoted) + 32 > size)
            attn_append(flags, size, " ..."); /* dozens of cases: the page has each by itself */
        else
            attn_append(flags, size, " --case %s", quoted);
    }
}

/* For --report: who is judged, on what. */
static void report_about(const struct attn_candidate *s)
{
    static const char *const kind[] = {"implementation of attnlab", "plug-in", "command",
                                       "folder of results"};
    char claims[600], scope[300], flags[1600], command[sizeof s->route + sizeof flags + 4200];
    if (s->verdicts->report == NULL)
        return;
    put_claims(s, claims, sizeof claims);
    put_scope(s, scope, sizeof scope, flags, sizeof flags);
    snprintf(command, sizeof command, "%s check %s%s", attn_cli_program(), s->route, flags);
    const struct attn_report_about about = {
        kind[s->from],   s->from == ATTN_SOURCE_SPEC ? s->label : s->source,
        s->claims_path,  s->list == NULL ? "not known" : claims,
        scope,           command,
        s->question.tier};
    attn_report_begin(s->verdicts->report, &about);
}

void attn_candidate_route(struct attn_candidate *s, const char *flag, const char *value)
{
    size_t end = sizeof s->route - 8;
    attn_append(s->route, sizeof s->route, "%s%s '", s->route[0] != '\0' ? " " : "", flag);
    for (; *value != '\0' && strlen(s->route) < end; value++)
        attn_append(s->route, sizeof s->route, *value == '\'' ? "'\\''" : "%c", *value);
    attn_append(s->route, sizeof s->route, "'");
}

/* ---- books -------------------------------------------------------------------------------- */

void attn_candidate_begin(struct attn_candidate *s)
{
    char words[600];
    if (s->from != ATTN_SOURCE_SPEC) {
        snprintf(s->label, sizeof s->label, s->is_one_of_many ? "%.60s (%.90s)" : "%.60s",
                 s->claims.name, s->source);
        attn_clean(s->label);
        put_claims(s, words, sizeof words);
        fprintf(stderr, "%s: %s\n", s->label, words);
    }
    s->list = attn_verdicts_begin(s->label);
    if (s->from != ATTN_SOURCE_SPEC) /* of its files: as they are now */
        report_about(s);
}

int attn_candidate_fail(struct attn_candidate *s, int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(s->trouble, sizeof s->trouble, format, args);
    va_end(args);
    attn_clean(s->trouble);
    return status;
}

void attn_candidate_say(struct attn_candidate *s, const struct attn_subject *subject,
                        const struct attn_result *r, unsigned needs, double seconds)
{
    attn_verdicts_add(s->list, subject, r, seconds)->needs = needs;
    s->judged += r->verdict != ATTN_REFUSED && r->verdict != ATTN_ERROR;
}

void attn_candidate_case(struct attn_candidate *s, const struct attn_asked *asked,
                         const struct attn_result *r, unsigned needs, double seconds)
{
    char text[ATTN_CASE_TEXT], again[sizeof s->route + ATTN_CASE_TEXT + 80];
    const struct attn_battery_case *battery = asked->battery;
    int ours = s->from == ATTN_SOURCE_SPEC;
    attn_case_print(&asked->c, text);
    snprintf(again, sizeof again, "check %s --case '%s'", s->route, text);
    if (ours && s->request->repeat > 1)
        attn_append(again, sizeof again, " --repeat %d", (int)s->request->repeat);
    attn_append(again, sizeof again, "%s", ours && s->request->strict ? " --strict" : "");
    const struct attn_subject subject = {"case",
                                         battery != NULL ? battery->name
                                         : ours          ? ""
                                                         : asked->name,
                                         text,
                                         battery != NULL ? battery->ids : "",
                                         battery != NULL ? battery->why : "",
                                         again,
                                         NULL};
    attn_candidate_say(s, &subject, r, needs, seconds);
}

void attn_candidate_relation(struct attn_candidate *s, const struct attn_relation *relation,
                             const struct attn_result *r, unsigned needs, double seconds)
{
    char again[sizeof s->route + 64];
    snprintf(again, sizeof again, "check %s --relation %s", s->route, relation->id);
    const struct attn_subject subject = {
        "relation", relation->id, relation->says, relation->ids, relation->says, again, NULL};
    attn_candidate_say(s, &subject, r, needs, seconds);
}

int attn_candidate_wants(const struct attn_candidate *s, const struct attn_relation *relation)
{
    const char *id = s->request->relation;
    return id == NULL ? s->request->cases.n == 0
                      : strcmp(id, "all") == 0 || strcmp(id, relation->id) == 0;
}

/* An ERROR about the whole. */
static void file_error(struct attn_candidate *s, const char *kind, const char *name,
                       const char *format, ...) __attribute__((format(printf, 4, 5)));
static void file_error(struct attn_candidate *s, const char *kind, const char *name,
                       const char *format, ...)
{
    struct attn_result r = {.verdict = ATTN_ERROR};
    const struct attn_subject subject = {kind, name, "", "", "", "", NULL};
    va_list args;
    va_start(args, format);
    vsnprintf(r.text, sizeof r.text, format, args);
    va_end(args);
    attn_verdicts_add(s->list, &subject, &r, 0);
}

/* Something was declared (a claim, the value of a factor), and no check that has it was judged: an
 * ERROR, or it would look verified.  has: whether a check has what is declared. */
static void file_unjudged(struct attn_candidate *s, const char *name,
                          int (*has)(const struct attn_verdict_entry *x, int what), int what)
{
    int refused = 0;
    for (int e = 0; e < s->list->n; e++) {
        const struct attn_verdict_entry *x = &s->list->entry[e];
        if (!has(x, what) || x->result.verdict == ATTN_ERROR)
            continue;
        if (x->result.verdict != ATTN_REFUSED)
            return;
        refused += x->result.by_it;
    }
    if (refused > 0)
        file_error(s, "claim", name,
                   "%s is claimed, but it refused every case with it, %d: it is not verified", name,
                   refused);
    else
        file_error(s, "claim", name,
                   "%s is claimed, but no case of this tier exercises it here: it is not "
                   "verified; do not claim it",
                   name);
}

static int has_claim(const struct attn_verdict_entry *x, int bit)
{
    return (x->needs >> bit & 1u) != 0;
}

/* Every claim, the storage types among them. */
static void file_unjudged_claims(struct attn_candidate *s)
{
    for (int bit = 0; bit < ATTN_CLAIMS; bit++)
        if (s->claims.bits & 1u << bit)
            file_unjudged(s, attn_claim_name[bit], has_claim, bit);
}

/* Every declared extent of which a case was made. */
static void file_unjudged_values(struct attn_candidate *s)
{
    const struct attn_factors *t = &s->question.tier->table;
    struct attn_coverage *met = attn_cli_need(calloc(1, sizeof *met));
    attn_coverage_count(s->question.tier, s->list, -1, met);
    for (int f = 0; f < ATTN_EXTENTS; f++)
        for (int v = 0; v < t->of[f].n && s->claims.shapes.of[f].n > 0; v++)
            if (met->value[attn_value_id(f, v)] == ATTN_MET_REFUSED)
                file_error(s, "claim", t->of[f].name,
                           "%s = %s is declared, but it refused every case with it: it is not "
                           "verified",
                           t->of[f].name, t->of[f].value[v]);
    free(met);
}

/* Where more is declared than plain arithmetic: what that costs, for each type. */
static void say_cost(const struct attn_candidate *s)
{
    const struct attn_claims *c = &s->claims;
    char text[600];
    int declared = c->arithmetic != 0;
    for (int n = 0; n < ATTN_CLAIMS_NUMBERS; n++) {
        double given;
        memcpy(&given, (const char *)c + attn_claims_number[n].at, sizeof given);
        declared |= given > 0;
    }
    for (int type = 0; type < ATTN_DTYPES && declared; type++)
        if (c->bits & 1u << type &&
            attn_bound_cost(c, (enum attn_dtype)type, text, sizeof text, NULL) == ATTN_OK)
            fprintf(stderr, "note: %s\n", text);
}

int attn_candidate_end(struct attn_candidate *s)
{
    const struct attn_tally asked = attn_verdicts_tally(s->verdicts, s->list, ATTN_ALL_KINDS);
    int is_whole = s->question.whole_tier || s->request->soak > 0;
    int nothing =
        s->judged == 0 && asked.count[ATTN_REFUSED] == asked.n && (is_whole || asked.by_it > 0);
    if (nothing)
        file_error(s, "judged", "", "not one case could be judged: all were refused, %d by it%s",
                   asked.by_it, s->request->soak > 0 ? " (a longer soak meets more cases)" : "");
    else if (s->question.whole_tier && !s->not_reached && s->from != ATTN_SOURCE_SPEC) {
        file_unjudged_claims(s);
        if (s->question.tier != NULL)
            file_unjudged_values(s);
    }
    if (s->from == ATTN_SOURCE_SPEC)
        report_about(s);
    else if (s->question.whole_tier)
        say_cost(s);
    /* A case of the command line that cannot even be set up is a mistake of whoever wrote it. */
    int impossible = s->from == ATTN_SOURCE_SPEC && s->request->cases.n == 1 && s->list->n == 1;
    const struct attn_tally t = attn_verdicts_tally(s->verdicts, s->list, ATTN_ALL_KINDS);
    impossible = impossible && t.errors == 1;
    int failures = attn_verdicts_end(s->verdicts, s->list);
    s->list = NULL;
    return failures == 0           ? ATTN_EXIT_GOOD
           : t.lacking == failures ? ATTN_EXIT_LACKS
           : nothing || impossible ? ATTN_EXIT_USAGE
                                   : ATTN_EXIT_DISAGREE;
}

/* ---- who, and what ------------------------------------------------------------------------ */

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
                if (s[i].claims_path == NULL)
                    s[i].claims_path = value;
            claims = value;
            continue;
        }
        s[n].source = value;
        s[n++].from = flag[0] == 'p'   ? ATTN_SOURCE_PLUGIN
                      : flag[0] == 'e' ? ATTN_SOURCE_EXEC
                                       : ATTN_SOURCE_FILES;
    }
    for (int i = 0; i < n; i++)
        if (s[i].claims_path == NULL)
            s[i].claims_path = claims;
    return n;
}

/* Flags that exclude each other. */
static void check_externals(const struct attn_check_request *q, const struct attn_candidate *s,
                            int n)
{
    int of[ATTN_SOURCE_FILES + 1] = {0};
    for (int i = 0; i < n; i++)
        of[s[i].from]++;
    if (of[ATTN_SOURCE_FILES] > 0 && n > 1)
        attn_cli_stop(ATTN_EINVAL, NULL,
                      "--results is judged alone; --plugin and --exec may be repeated");
    if (s[0].claims_path != NULL && of[ATTN_SOURCE_PLUGIN] == n)
        attn_cli_stop(ATTN_EINVAL, NULL, "--claims %s: a plug-in says itself what it claims",
                      s[0].claims_path);
    if (of[ATTN_SOURCE_EXEC] > 0 && s[0].claims_path == NULL)
        attn_cli_stop(ATTN_EINVAL, NULL,
                      "--exec needs --claims FILE: what the command can do "
                      "(docs/external.md)");
    if (q->relation != NULL && of[ATTN_SOURCE_PLUGIN] < n)
        attn_cli_stop(ATTN_EINVAL, NULL,
                      "--relation is for plug-ins: relations change inputs between two "
                      "calls, and a folder of files is one call");
    if (q->repeat > 0 && of[ATTN_SOURCE_PLUGIN] < n)
        attn_cli_stop(ATTN_EINVAL, NULL,
                      "--repeat is for plug-ins: a command and a folder of results are one "
                      "call of each case");
    if (q->soak > 0 && of[ATTN_SOURCE_FILES] > 0)
        attn_cli_stop(ATTN_EINVAL, NULL, "--soak needs something to run: --plugin or --exec");
}

enum attn_status attn_candidate_ask(struct attn_candidate *s, struct attn_error *err)
{
    const struct attn_check_request *q = s->request;
    const struct attn_asking asking = {&q->cases, (enum attn_tier)q->tier, &s->claims,
                                       s->from == ATTN_SOURCE_SPEC     ? ATTN_ROUTE_OWN
                                       : s->from == ATTN_SOURCE_PLUGIN ? ATTN_ROUTE_PLUGIN
                                                                       : ATTN_ROUTE_FILES,
                                       (uint64_t)q->seed};
    return q->relation == NULL && q->soak <= 0 && !q->growth
               ? attn_question_make(&asking, &s->question, err)
               : ATTN_OK;
}

/* What to ask and what is claimed; a folder of results brings its own manifest. */
static int prepare(struct attn_candidate *s)
{
    const struct attn_check_request *q = s->request;
    struct attn_error err = {0};
    enum attn_status status = ATTN_OK;
    if (s->from == ATTN_SOURCE_FILES) {
        const char *manifest = q->vectors != NULL ? q->vectors : s->source;
        attn_candidate_route(s, "--results", s->source);
        attn_candidate_route(s, "--vectors", manifest);
        status = attn_question_read(manifest, &q->cases, (uint64_t)q->seed, &s->question,
                                    &s->claims, &err);
    }
    if (status == ATTN_OK && s->claims_path != NULL)
        status = attn_claims_read(s->claims_path, &s->claims, &err);
    if (status == ATTN_OK &&
        (s->from == ATTN_SOURCE_EXEC ||
         (s->from == ATTN_SOURCE_PLUGIN && !attn_question_needs_claims(&q->cases))))
        status = attn_candidate_ask(s, &err);
    if (status != ATTN_OK)
        return attn_candidate_fail(s, attn_cli_status(status), "%s", err.text);
    return 0;
}

/* What cannot be judged is a line on stderr; where there are more, or a program reads them, it has
 * its place among the others. */
static void report_trouble(struct attn_candidate *s)
{
    struct attn_result r = {.verdict = ATTN_ERROR};
    const struct attn_subject subject = {"setup", "", "it cannot be judged", "", "", "", NULL};
    if (!s->is_one_of_many && s->verdicts->format == ATTN_FORMAT_TEXT) {
        attn_cli_fail(0, "%s", s->trouble);
        if (s->verdicts->report == NULL)
            return;
    }
    snprintf(r.text, sizeof r.text, "%.500s", s->trouble);
    snprintf(s->label, sizeof s->label, "%.150s", s->source);
    attn_clean(s->label);
    if (s->route[0] == '\0')
        attn_candidate_route(s, s->from == ATTN_SOURCE_PLUGIN ? "--plugin" : "--exec", s->source);
    report_about(s);
    s->list = attn_verdicts_begin(s->label);
    attn_verdicts_add(s->list, &subject, &r, 0);
    attn_verdicts_end(s->verdicts, s->list);
}

/* An external, from its flags to its report.  Of several commands each has a folder of its own in
 * --work.  Its exit status. */
static int judge_external(struct attn_candidate *s, int number)
{
    const char *work = s->request->work;
    char folder[4096];
    if (work != NULL && s->is_one_of_many && s->from == ATTN_SOURCE_EXEC) {
        mkdir(work, 0777); /* if it cannot be made, neither can the one in it */
        snprintf(folder, sizeof folder, "%.4000s/%d", work, number);
        work = folder;
    }
    s->timeout_s = s->request->timeout > 0       ? s->request->timeout
                   : s->from == ATTN_SOURCE_EXEC ? 600
                                                 : 20;
    int status = prepare(s);
    if (status == 0)
        status = s->from == ATTN_SOURCE_PLUGIN ? attn_check_plugin(s)
                 : s->from == ATTN_SOURCE_EXEC ? attn_check_exec(s, work)
                                               : attn_check_files(s);
    if (s->trouble[0] != '\0')
        report_trouble(s);
    attn_question_free(&s->question);
    return status;
}

/* All of them; the worst exit status. */
static int judge_externals(struct attn_candidate *s, int n)
{
    static const char *const word[] = {"PASS", "FAIL", "NOT JUDGED", "NOT JUDGED",
                                       "INTERNAL ERROR"};
    int worst = 0, *status = attn_cli_need(calloc((size_t)n, sizeof *status));
    for (int i = 0; i < n; i++) {
        status[i] = judge_external(&s[i], i + 1);
        worst = status[i] > worst ? status[i] : worst;
    }
    FILE *out = s->verdicts->out;
    if (s->verdicts->format == ATTN_FORMAT_TEXT && n > 1) {
        fprintf(out, "\n%d implementations:\n", n);
        for (int i = 0; i < n; i++)
            fprintf(out, "  %-10s  %s\n", word[status[i]], s[i].label);
    }
    free(status);
    return worst;
}

/* Who is to be judged, and what is asked of each that claims as much as one before. */
static void take_specs(struct attn_candidate *s, char **specs, int n)
{
    struct attn_error err;
    for (int i = 0; i < n; i++) {
        int like = 0;
        attn_cli_must(
            attn_spec_parse(specs != NULL ? specs[i] : attn_impl_at(i)->name, &s[i].spec, &err),
            &err);
        while (s[like].spec.impl->caps != s[i].spec.impl->caps)
            like++;
        attn_claims_of_impl(s[i].spec.impl, &s[i].claims);
        if (like < i)
            s[i].question = s[like].question;
        else
            attn_cli_must(attn_candidate_ask(&s[i], &err), &err);
        s[i].is_first = like == i;
    }
}

int attn_check(const struct attn_check_request *q, char **specs, int n_specs)
{
    int externals = q->externals.n > 0, n = externals     ? q->externals.n
                                            : n_specs > 0 ? n_specs
                                                          : attn_impl_count();
    struct attn_verdicts v;
    struct attn_candidate *s = attn_cli_need(calloc((size_t)n, sizeof *s));
    attn_verdicts_open(&v, stdout);
    v.format = (enum attn_format)q->format;
    v.strict = q->strict;
    v.verbose = q->verbose;
    v.details = (externals ? q->cases.n == 1 : q->cases.n > 0) || q->growth ||
                (q->relation != NULL && strcmp(q->relation, "all") != 0);
    for (int i = 0; i < n; i++) {
        s[i].request = q;
        s[i].verdicts = &v;
    }
    if (externals)
        n = take_externals(q, s);
    for (int i = 0; i < n; i++)
        s[i].is_one_of_many = n > 1;
    if (externals)
        check_externals(q, s, n);
    else
        take_specs(s, n_specs > 0 ? specs : NULL, n);
    if (q->report != NULL)
        v.report = attn_report_open(q->report);
    int status = externals ? judge_externals(s, n) : attn_check_specs(s, n);
    attn_verdicts_close(&v);
    int flushed = attn_cli_flush();
    status = flushed > status ? flushed : status;
    if (v.report != NULL)
        status = attn_report_close(v.report, status);
    for (int i = 0; i < n && !externals; i++)
        if (s[i].is_first)
            attn_question_free(&s[i].question);
    free(s);
    return status;
}
