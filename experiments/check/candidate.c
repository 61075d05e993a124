/* See check.h: the results of the subject that is judged. */
#include <ctype.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/check/check.h"
#include "experiments/check/check_report.h"
#include "experiments/cli/cli.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/diagnosis/cost.h"

/* ---- in words ----------------------------------------------------------------------------- */

/* The claims as people read them: "f32 gqa band; lse 2", with the conventions that are not ours in
 * the words of a declaration (docs/external.md). */
static void put_claims(const struct attn_candidate *s, char *text, size_t size)
{
    const struct attn_claims *c = &s->x.claims;
    const struct attn_claims ours = {.bits = 0};
    json_t *usual = json_object(), *said = json_object(), *word;
    const char *key;
    text[0] = '\0';
    const unsigned bits = attn_candidate_is_ours(s) ? s->x.spec.impl->caps : c->bits;
    for (int bit = 0; bit < ATTN_CAPS; bit++)
        if (bits & 1u << bit)
            attn_append(text, size, "%s%s", text[0] != '\0' ? " " : "", attn_cap_name(bit));
    for (int bit = 0; bit < ATTN_DECLINES; bit++)
        if (c->declines & 1u << bit)
            attn_append(text, size, "; not %s", attn_decline_name(bit));
    attn_claims_conventions(&ours, usual);
    attn_claims_conventions(c, said);
    json_object_foreach(said, key, word)
    {
        if (!json_equal(word, json_object_get(usual, key)))
            attn_append(text, size, "; %s %s", key, json_string_value(word));
    }
    json_decref(usual);
    json_decref(said);
    if (c->arithmetic > 0)
        attn_append(text, size, "; arithmetic %s: %s", attn_arithmetic[c->arithmetic].word,
                    attn_arithmetic[c->arithmetic].stands_for);
}

/* The question: in words, and as the flags that ask it. */
static void put_scope(const struct attn_candidate *s, char *scope, size_t scope_size, char *flags,
                      size_t size)
{
    const struct attn_check_request *q = s->request;
    const char *tier = attn_tier_name[q->tier];
    const int is_folder = s->x.route == &attn_folder_route;
    char quoted[ATTN_CASE_TEXT + 8];
    scope[0] = flags[0] = '\0';
    if (q->soak > 0) {
        attn_append(scope, scope_size, "random cases of seed %lld for %g s", (long long)q->seed,
                    q->soak);
        attn_append(flags, size, " --soak %g --seed %lld", q->soak, (long long)q->seed);
    } else if (q->relation != NULL) {
        attn_append(scope, scope_size, "relation %.40s", q->relation);
        attn_append(flags, size, " --relation %.40s", q->relation);
    } else if (q->cases.n > 0 || is_folder) {
        int n = is_folder ? s->question.n : q->cases.n;
        attn_append(scope, scope_size, n == 1 ? "one case" : "%d cases", n);
    } else {
        attn_append(scope, scope_size, "the %s tier of seed %lld, %d cases%s", tier,
                    (long long)q->seed, s->question.n,
                    s->x.route->relation != NULL ? ", and the relations" : "");
        attn_append(flags, size, " --tier %s --seed %lld", tier, (long long)q->seed);
    }
    if (q->repeat > 1) {
        attn_append(scope, scope_size, ", each %d times in a row", (int)q->repeat);
        attn_append(flags, size, " --repeat %d", (int)q->repeat);
    }
    if (q->timeout > 0)
        attn_append(flags, size, " --timeout %g", q->timeout);
    if (q->budget > 0)
        attn_append(flags, size, " --budget %g", q->budget);
    attn_append(flags, size, "%s", q->strict ? " --strict" : "");
    for (int n = 0; n < q->cases.n; n++) {
        attn_cli_quote(q->cases.at[n].value, quoted, sizeof quoted);
        if (strlen(flags) + strlen(quoted) + 32 > size)
            attn_append(flags, size, " ..."); /* dozens of cases: the page has each by itself */
        else
            attn_append(flags, size, " --case %s", quoted);
    }
}

/* For --report: the head of the page, with the subject, its claims and the question. */
static void report_about(const struct attn_candidate *s)
{
    char claims[600], scope[300], flags[1600], command[sizeof s->route + sizeof flags + 4200];
    if (s->report == NULL)
        return;
    put_claims(s, claims, sizeof claims);
    put_scope(s, scope, sizeof scope, flags, sizeof flags);
    if (s->x.route == &attn_caller_route)
        snprintf(command, sizeof command, "%s", s->route);
    else
        snprintf(command, sizeof command, "%s check %s%s", attn_cli_program(), s->route, flags);
    const struct attn_report_about about = {&s->x, s->list == NULL ? "not known" : claims, scope,
                                            command, s->question.tier};
    attn_report_begin(s->report, &about);
}

void attn_candidate_route(struct attn_candidate *s, const char *flag, const char *value)
{
    char quoted[sizeof s->route];
    size_t used = strlen(s->route) + strlen(flag) + 5;
    attn_cli_quote(value, quoted, sizeof quoted > used + 16 ? sizeof quoted - used : 16);
    attn_append(s->route, sizeof s->route, "%s--%s %s", s->route[0] != '\0' ? " " : "", flag,
                quoted);
}

void attn_candidate_again(const struct attn_candidate *s, const char *flag, const char *value,
                          char again[ATTN_AGAIN_TEXT])
{
    char quoted[ATTN_CASE_TEXT + 80], name[16];
    snprintf(quoted, sizeof quoted, strchr(value, ':') != NULL ? "'%s'" : "%s", value);
    snprintf(name, sizeof name, "%s", flag);
    for (char *c = name; *c != '\0'; c++)
        *c = (char)toupper((unsigned char)*c);
    if (s->x.route == &attn_caller_route)
        snprintf(again, ATTN_AGAIN_TEXT, "ATTNLAB_%s=%s %s", name, quoted, s->route);
    else
        snprintf(again, ATTN_AGAIN_TEXT, "check %s --%s %s", s->route, flag, quoted);
}

void attn_candidate_put_route(struct attn_candidate *s)
{
    char name[sizeof s->label];
    if (attn_candidate_is_ours(s)) {
        attn_spec_print(&s->x.spec, name, sizeof name);
        snprintf(s->label, sizeof s->label, "%s", name);
        snprintf(s->route, sizeof s->route, "'%s'", name);
        s->x.source = s->label;
    }
    if (s->route[0] != '\0')
        return;
    if (s->x.route == &attn_caller_route) {
        snprintf(s->route, sizeof s->route, "%s", s->x.source);
        return;
    }
    attn_candidate_route(s, s->x.route->flag, s->x.source);
    if (s->x.claims_path != NULL)
        attn_candidate_route(s, "claims", s->x.claims_path);
    if (s->x.scheme[0] != '\0')
        attn_candidate_route(s, "scheme", s->x.scheme);
}

/* ---- verdicts ----------------------------------------------------------------------------- */

enum attn_status attn_candidate_ask(struct attn_candidate *s, struct attn_error *err)
{
    const struct attn_check_request *q = s->request;
    const struct attn_asking asking = {&q->cases,         (enum attn_tier)q->tier, &s->x.claims,
                                       s->x.route->route, (uint64_t)q->seed,       0};
    return q->relation == NULL && q->soak <= 0 ? attn_question_make(&asking, &s->question, err)
                                               : ATTN_OK;
}

void attn_candidate_begin(struct attn_candidate *s)
{
    char words[600];
    if (!attn_candidate_is_ours(s)) {
        snprintf(s->label, sizeof s->label, s->is_one_of_many ? "%.60s (%.90s)" : "%.60s",
                 s->x.claims.name, s->x.source);
        attn_clean(s->label);
        put_claims(s, words, sizeof words);
        if (s->x.route != &attn_caller_route) /* it has just said so */
            fprintf(stderr, "%s: claims %s\n", s->label, words);
    }
    s->list = attn_verdicts_begin(s->label);
    if (s->question.whole_tier && s->question.tier != NULL)
        s->list->left_out = s->question.tier->left_out;
    if (!attn_candidate_is_ours(s)) /* of its files: as they are now */
        report_about(s);
}

int attn_candidate_fail(struct attn_candidate *s, enum attn_status status,
                        const struct attn_error *err)
{
    snprintf(s->trouble, sizeof s->trouble, "%s", err->text);
    return attn_cli_status(status);
}

void attn_candidate_say(struct attn_candidate *s, const struct attn_checked *checked,
                        const struct attn_answer *answer)
{
    const struct attn_result *r = &attn_verdicts_add(s->list, checked, answer)->result;
    s->judged += !attn_verdict_is_no_run(r) && r->verdict != ATTN_ERROR;
}

void attn_candidate_case(struct attn_candidate *s, const struct attn_asked *asked,
                         const struct attn_answer *answer)
{
    char text[ATTN_CASE_TEXT], again[ATTN_AGAIN_TEXT];
    const struct attn_battery_case *battery = asked->battery;
    int ours = attn_candidate_is_ours(s);
    attn_case_print(&asked->c, text);
    attn_candidate_again(s, "case", text, again);
    if (ours && s->request->repeat > 1)
        attn_append(again, sizeof again, " --repeat %d", (int)s->request->repeat);
    attn_append(again, sizeof again, "%s", ours && s->request->strict ? " --strict" : "");
    const struct attn_checked checked = {ATTN_CHECK_CASE,
                                         battery != NULL ? battery->name
                                         : ours          ? ""
                                                         : asked->name,
                                         text,
                                         battery != NULL ? battery->ids : "",
                                         battery != NULL ? battery->why : "",
                                         again,
                                         NULL};
    attn_candidate_say(s, &checked, answer);
}

void attn_candidate_relation(struct attn_candidate *s, const struct attn_relation *relation,
                             const struct attn_answer *answer)
{
    char again[ATTN_AGAIN_TEXT];
    attn_candidate_again(s, "relation", relation->id, again);
    const struct attn_checked checked = {ATTN_CHECK_RELATION,
                                         relation->id,
                                         relation->says,
                                         relation->ids,
                                         relation->says,
                                         again,
                                         NULL};
    attn_candidate_say(s, &checked, answer);
}

int attn_candidate_wants(const struct attn_candidate *s, const struct attn_relation *relation)
{
    const char *id = s->request->relation;
    return id == NULL ? s->request->cases.n == 0
                      : strcmp(id, "all") == 0 || strcmp(id, relation->id) == 0;
}

/* Adds an ERROR to the verdicts that is of no case. */
static void add_error(struct attn_candidate *s, enum attn_check_kind kind, const char *name,
                      const char *format, ...) __attribute__((format(printf, 4, 5)));
static void add_error(struct attn_candidate *s, enum attn_check_kind kind, const char *name,
                      const char *format, ...)
{
    struct attn_answer answer = {.result.verdict = ATTN_ERROR};
    const struct attn_checked checked = {kind, name, "", "", "", "", NULL};
    va_list args;
    va_start(args, format);
    vsnprintf(answer.result.text, sizeof answer.result.text, format, args);
    va_end(args);
    attn_verdicts_add(s->list, &checked, &answer);
}

/* Adds an ERROR if no check was judged that has a declared claim: it would look verified.
 * has(x, what): check x has the claim. */
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
        add_error(s, ATTN_CHECK_CLAIM, name,
                  "%s is claimed, but it refused every case with it, %d: it is not verified", name,
                  refused);
    else
        add_error(s, ATTN_CHECK_CLAIM, name,
                  "%s is claimed, but no case of this tier exercises it here: it is not "
                  "verified; do not claim it",
                  name);
}

static int has_claim(const struct attn_verdict_entry *x, int bit)
{
    return (x->wants.needs >> bit & 1u) != 0;
}

/* file_unjudged for each claim; storage types are claims, too. */
static void file_unjudged_claims(struct attn_candidate *s)
{
    for (int bit = 0; bit < ATTN_CAPS; bit++)
        if (s->x.claims.bits & 1u << bit)
            file_unjudged(s, attn_cap_name(bit), has_claim, bit);
}

/* Adds an ERROR for each value of an extent that was declared, asked and always refused. */
static void file_unjudged_values(struct attn_candidate *s)
{
    const struct attn_factors *t = &s->question.tier->table;
    struct attn_coverage *met = attn_cli_need(calloc(1, sizeof *met));
    attn_coverage_count(s->question.tier, s->list, -1, met);
    for (int f = 0; f < ATTN_EXTENTS; f++)
        for (int v = 0; v < t->of[f].n && s->x.claims.shapes.of[f].n > 0; v++)
            if (met->value[attn_value_id(f, v)] == ATTN_MET_REFUSED)
                add_error(s, ATTN_CHECK_CLAIM, t->of[f].name,
                          "%s = %s is declared, but it refused every case with it: it is not "
                          "verified",
                          t->of[f].name, t->of[f].value[v]);
    free(met);
}

/* If more is declared than plain arithmetic: prints for each type which mistakes the wider bound
 * hides. */
static void say_cost(const struct attn_candidate *s)
{
    const struct attn_claims *c = &s->x.claims;
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

/* Prints the verdicts, puts them on the page, and frees them.  Returns the number of failures. */
static int close_books(struct attn_candidate *s)
{
    const struct attn_tally t = attn_verdicts_tally(s->verdicts, s->list, ATTN_ALL_KINDS);
    if (s->keeps)
        return t.failures;
    struct attn_cause cause[2];
    if (attn_common_causes(&s->list->causes, cause) > 0)
        memcpy(s->cause, cause->text, sizeof s->cause);
    else if (s->trouble[0] != '\0')
        snprintf(s->cause, sizeof s->cause, "%.200s", s->trouble);
    attn_verdicts_print(s->verdicts, s->list);
    if (s->report != NULL)
        attn_report_add(s->report, s->verdicts, s->list);
    attn_verdicts_free(s->list);
    s->list = NULL;
    return t.failures;
}

/* The reason of its first refusal; "" if it refused nothing. */
static const char *first_refusal(const struct attn_verdict_list *list)
{
    for (int e = 0; e < list->n; e++)
        if (list->entry[e].result.verdict == ATTN_REFUSED && list->entry[e].result.by_it)
            return list->entry[e].result.text;
    return "";
}

int attn_candidate_end(struct attn_candidate *s)
{
    const struct attn_tally asked = attn_verdicts_tally(s->verdicts, s->list, ATTN_ALL_KINDS);
    int nothing = s->judged == 0 && asked.count[ATTN_REFUSED] == asked.n;
    if (nothing) {
        const char *why = first_refusal(s->list);
        add_error(s, ATTN_CHECK_JUDGED, "",
                  "not one case could be judged: all were refused, %d by it%s%s%.300s", asked.by_it,
                  s->request->soak > 0 ? " (a longer soak meets more cases)" : "",
                  *why != '\0' ? "; the first: " : "", why);
    } else if (s->question.whole_tier && !s->x.not_reached && !attn_candidate_is_ours(s)) {
        file_unjudged_claims(s);
        if (s->question.tier != NULL)
            file_unjudged_values(s);
    }
    if (attn_candidate_is_ours(s))
        report_about(s);
    else if (s->question.whole_tier)
        say_cost(s);
    /* One case of the command line that cannot be set up is a mistake of its author: exit 2. */
    int impossible = attn_candidate_is_ours(s) && s->request->cases.n == 1 && s->list->n == 1;
    const struct attn_tally t = attn_verdicts_tally(s->verdicts, s->list, ATTN_ALL_KINDS);
    impossible = impossible && t.errors == 1;
    int failures = close_books(s);
    return failures == 0           ? ATTN_EXIT_GOOD
           : t.lacking == failures ? ATTN_EXIT_LACKS
           : nothing || impossible ? ATTN_EXIT_USAGE
                                   : ATTN_EXIT_DISAGREE;
}

void attn_candidate_report_trouble(struct attn_candidate *s)
{
    struct attn_answer answer = {.result.verdict = ATTN_ERROR};
    const struct attn_checked checked = {
        ATTN_CHECK_SETUP, "", "it cannot be judged", "", "", "", NULL};
    if (!s->is_one_of_many && s->verdicts->format == ATTN_FORMAT_TEXT) {
        attn_cli_fail(0, "%s", s->trouble);
        if (s->report == NULL)
            return;
    }
    snprintf(answer.result.text, sizeof answer.result.text, "%.500s", s->trouble);
    snprintf(s->label, sizeof s->label, "%.150s", s->x.source);
    if (s->route[0] == '\0')
        attn_candidate_route(s, s->x.route->flag, s->x.source);
    report_about(s);
    s->list = attn_verdicts_begin(s->label);
    attn_verdicts_add(s->list, &checked, &answer);
    close_books(s);
}
