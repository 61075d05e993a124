/* Collecting checks, and saying them as text: short, and the worst first. */
#include "experiments/check/verdicts.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/check/check_report.h"
#include "experiments/cli/cli.h"
#include "tests/harness/files/fileio.h"

/* ---- the common cause ------------------------------------------------------------------------ */

static const char mark[] = "; looks like: ";

void attn_common_cause_append(struct attn_result *r, const struct attn_diagnosis *diagnosis)
{
    size_t used = strlen(r->text);
    if (diagnosis == NULL || diagnosis->text[0] == '\0')
        return;
    r->fault = diagnosis->fault;
    snprintf(r->text + used, sizeof r->text - used, "%s%s%s%s",
             diagnosis->where[0] != '\0' ? "; shows in " : "", diagnosis->where,
             diagnosis->fault == ATTN_FAULT_NONE ? "; " : mark, diagnosis->text);
}

/* Past a number, or a list of them. */
static const char *past_numbers(const char *at)
{
    return at + strspn(at, "0123456789 ,.+-");
}

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

int attn_verdicts_alike(const char *a, const char *b)
{
    while (*a != '\0' && (*a == *b || (is_digit(*a) && is_digit(*b)))) {
        int number = is_digit(*a);
        a = number ? past_numbers(a) : a + 1;
        b = number ? past_numbers(b) : b + 1;
    }
    return *a == *b;
}

void attn_common_cause_count(struct attn_common_cause *causes, const struct attn_result *r)
{
    const char *said = strstr(r->text, mark);
    int n = 0, kind = r->fault == ATTN_FAULT_PRECISION ? ATTN_FAULTS + (int)r->dtype : r->fault;
    if (r->output[ATTN_O].n > 0) {
        causes->passes[r->dtype] += r->verdict == ATTN_PASS;
        causes->fails[r->dtype] += r->verdict == ATTN_FAILED;
    }
    if (said == NULL || r->fault <= ATTN_FAULT_NONE || r->fault >= ATTN_FAULTS)
        return;
    said += strlen(mark);
    causes->diagnosed++;
    causes->n[kind]++;
    while (n < ATTN_CAUSES && causes->of[n].n > 0 &&
           !(causes->of[n].kind == kind && attn_verdicts_alike(causes->of[n].text, said)))
        n++;
    if (n == ATTN_CAUSES)
        return;
    if (causes->of[n].n++ == 0)
        snprintf(causes->of[n].text, sizeof causes->of[n].text, "%s", said);
    causes->of[n].kind = kind;
}

const char *attn_common_cause_name(const struct attn_common_cause *causes, int *agree)
{
    int kind = 0, best = -1;
    for (int n = 1; n < ATTN_FAULTS + ATTN_DTYPES; n++)
        kind = causes->n[n] > causes->n[kind] ? n : kind;
    for (int n = 0; n < ATTN_CAUSES; n++)
        if (causes->of[n].kind == kind && (best < 0 || causes->of[n].n > causes->of[best].n))
            best = n;
    *agree = causes->n[kind];
    return *agree > 1 && best >= 0 ? causes->of[best].text : NULL;
}

void attn_common_cause_types(const struct attn_common_cause *causes, char text[80])
{
    char fails[32] = "", passes[32] = "";
    for (int t = 0; t < ATTN_DTYPES; t++) {
        char *to = causes->fails[t] > 0 ? fails : passes;
        if (causes->fails[t] + causes->passes[t] > 0)
            attn_append(to, sizeof fails, "%s%s", to[0] != '\0' ? " and " : "",
                        attn_dtype_name((enum attn_dtype)t));
    }
    text[0] = '\0';
    if (fails[0] != '\0' && passes[0] != '\0')
        snprintf(text, 80, " (in %s, not in %s)", fails, passes);
}

/* ---- collecting ------------------------------------------------------------------------------ */

static char *copy(const char *text)
{
    return attn_cli_need(strdup(text));
}

/* A line that works as it stands, from the folder where this program was started. */
static char *command(const char *arguments)
{
    if (arguments[0] == '\0')
        return copy("");
    return attn_cli_text("%s %s", attn_cli_program(), arguments);
}

void attn_verdicts_open(struct attn_verdicts *v, FILE *out)
{
    *v = (struct attn_verdicts){.out = out, .detailed = 8, .listed = 24};
}

struct attn_verdict_list *attn_verdicts_begin(const char *spec)
{
    struct attn_verdict_list *list = attn_cli_need(calloc(1, sizeof *list));
    list->spec = copy(spec);
    return list;
}

static void free_list(struct attn_verdict_list *list)
{
    for (int e = 0; e < list->n; e++) {
        struct attn_verdict_entry *x = &list->entry[e];
        free(x->kind);
        free(x->name);
        free(x->text);
        free(x->ids);
        free(x->why);
        free(x->again);
        free(x->found_as);
    }
    free(list->entry);
    free(list->spec);
    free(list);
}

struct attn_verdict_entry *attn_verdicts_add(struct attn_verdict_list *list,
                                             const struct attn_subject *s,
                                             const struct attn_result *result, double seconds)
{
    if (list->n == list->room) {
        list->room = list->room > 0 ? 2 * list->room : 64;
        list->entry = attn_cli_need(realloc(list->entry, (size_t)list->room * sizeof *list->entry));
    }
    list->entry[list->n++] =
        (struct attn_verdict_entry){.kind = copy(s->kind),
                                    .name = copy(s->name),
                                    .text = copy(s->text),
                                    .ids = copy(s->ids),
                                    .why = copy(s->why),
                                    .again = command(s->again),
                                    .found_as = s->found_as != NULL ? copy(s->found_as) : NULL,
                                    .result = *result,
                                    .seconds = seconds};
    attn_common_cause_count(&list->causes, result);
    return &list->entry[list->n - 1];
}

int attn_verdict_is_failure(const struct attn_verdicts *v, const struct attn_result *r)
{
    int is_doubtful = r->verdict == ATTN_WEAK || (r->verdict == ATTN_REFUSED && r->by_it);
    return is_doubtful ? v->strict : r->verdict != ATTN_PASS && r->verdict != ATTN_REFUSED;
}

const char *attn_verdict_words(const struct attn_result *r, char text[40])
{
    if (r->failure != ATTN_F_NONE && (r->verdict == ATTN_FAILED || r->verdict == ATTN_INTERMITTENT))
        snprintf(text, 40, "%s(%s)", attn_verdict_name(r->verdict), attn_failure_name(r->failure));
    else
        snprintf(text, 40, "%s", attn_verdict_name(r->verdict));
    return text;
}

/* ---- text ------------------------------------------------------------------------------------ */

/* How bad: first by kind, from what makes every number meaningless to what is a matter of size. */
static int severity(const struct attn_result *r)
{
    switch (r->verdict) {
    case ATTN_ERROR:
        return 10;
    case ATTN_CRASH:
        return 9;
    case ATTN_TIMEOUT:
        return 8;
    case ATTN_INTERMITTENT:
        return 7;
    case ATTN_FAILED:
        return r->failure == ATTN_F_INTEGRITY ? 6
               : r->failure == ATTN_F_STATUS  ? 5
               : r->failure == ATTN_F_FINITE  ? 4
               : r->failure == ATTN_F_EXACT   ? 3
               : r->failure == ATTN_F_BOUND   ? 2
                                              : 1;
    default:
        return 0;
    }
}

static int worst_first(const void *a, const void *b)
{
    const struct attn_verdict_entry *x = *(struct attn_verdict_entry *const *)a;
    const struct attn_verdict_entry *y = *(struct attn_verdict_entry *const *)b;
    int by_kind = severity(&y->result) - severity(&x->result);
    if (by_kind != 0)
        return by_kind;
    if (x->result.worst != y->result.worst)
        return x->result.worst < y->result.worst ? 1 : -1;
    return x < y ? -1 : 1; /* else in the order of the battery */
}

/* The same with the grade of a pass. */
static const char *graded_words(const struct attn_result *r, char text[40])
{
    if (r->verdict != ATTN_PASS || r->grade.letter == 0)
        return attn_verdict_words(r, text);
    snprintf(text, 40, "PASS-%c", r->grade.letter);
    return text;
}

/* One fact more; the number of facts then. */
static int add_fact(struct attn_fact fact[ATTN_FACTS], int n, const char *name, const char *format,
                    ...) __attribute__((format(printf, 4, 5)));
static int add_fact(struct attn_fact fact[ATTN_FACTS], int n, const char *name, const char *format,
                    ...)
{
    va_list args;
    va_start(args, format);
    fact[n].name = name;
    vsnprintf(fact[n].text, sizeof fact[n].text, format, args);
    va_end(args);
    return n + 1;
}

int attn_verdict_facts(const struct attn_result *r, struct attn_fact fact[ATTN_FACTS])
{
    int n = 0;
    int64_t either = 0, unbounded = 0;
    char words[256];
    if (r->grade.letter != 0)
        n = add_fact(fact, n, "grade", "%c, error/T2 %.3g", r->grade.letter, r->grade.rho);
    if (r->grade.rows > 0)
        n = add_fact(fact, n, "bias", "%.3g deviations of o over %lld rows, limit %g",
                     r->grade.bias, (long long)r->grade.rows, ATTN_BIAS_LIMIT);
    if (r->mask.pairs > 0)
        n = add_fact(fact, n, "mask",
                     "one key more or less would show: %s, the weakest by %.3g bounds",
                     attn_mask_power_words(&r->mask, words), r->mask.weakest);
    if (r->is_growth)
        n = add_fact(fact, n, "growth", "errors grow with the parts to the power %.2f, limit %g",
                     r->growth, ATTN_GROWTH_LIMIT);
    if (r->runs > 0)
        n = add_fact(fact, n, "runs", "failed in %d of %d", r->failed, r->runs);
    if (r->differs[0] != '\0')
        n = add_fact(fact, n, "differs", "%s", r->differs);
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        either += r->output[o].n_either;
        unbounded += r->output[o].n_unbounded;
    }
    if (either > 0 || unbounded > 0) /* the contract leaves open what they are */
        n = add_fact(fact, n, "open",
                     "%lld elements may be NaN (or infinite) or finite, both are right; of %lld "
                     "nothing can be said",
                     (long long)either, (long long)unbounded);
    if (r->precision.u > 0) {
        attn_precision_print(&r->precision, words, sizeof words);
        n = add_fact(fact, n, "declared", "%s%s", words,
                     r->precision.tiny > 0x1p-140 ? ", subnormals flushed" : "");
    }
    return n;
}

static void print_numbers(FILE *out, const struct attn_result *r)
{
    struct attn_fact fact[ATTN_FACTS];
    int facts = attn_verdict_facts(r, fact);
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        if (r->output[o].n > 0)
            fprintf(out, "  %-5s error/bound %-10.3g gauge %-8.2g (%lld elements, %lld beyond)\n",
                    r->output[o].name, r->output[o].ratio, r->output[o].gauge,
                    (long long)r->output[o].n, (long long)r->output[o].n_bad);
    for (int n = 0; n < facts; n++)
        fprintf(out, "  %s: %s\n", fact[n].name, fact[n].text);
}

static void print_details(FILE *out, const char *spec, const struct attn_verdict_entry *x)
{
    char words[40];
    fprintf(out, "%s  %s  %s\n", graded_words(&x->result, words), spec, x->text);
    if (x->result.text[0] != '\0') {
        char line[sizeof x->result.text]; /* an external implementation's words may hold anything */
        snprintf(line, sizeof line, "%s", x->result.text);
        attn_clean(line);
        fprintf(out, "  %s\n", line);
    }
    print_numbers(out, &x->result);
    if (x->name[0] != '\0')
        fprintf(out, "  %s %s (%s): %s\n", x->kind, x->name, x->ids, x->why);
    if (x->found_as != NULL)
        fprintf(out, "  found as: %s\n", x->found_as);
    if (x->again[0] != '\0')
        fprintf(out, "  again: %s\n", x->again);
}

static void print_line(FILE *out, const struct attn_verdict_entry *x)
{
    char words[40];
    fprintf(out, "  %-15s %-28s %s\n", graded_words(&x->result, words), x->name, x->text);
}

/* The same failure for another case: a program that stops says the same each time, but for the
 * case's name and its numbers. */
static int is_alike(const struct attn_verdict_entry *x, const struct attn_verdict_entry *y)
{
    int stopped = x->result.verdict != ATTN_FAILED || x->result.failure == ATTN_F_STATUS;
    return stopped && severity(&x->result) == severity(&y->result) &&
           attn_verdicts_alike(x->result.text, y->result.text);
}

/* The failures, the worst first, each with how many there are like it beside; what is like
 * another stands only there.  all: what passed as well.  Returns how many; free both. */
static int find_worst(const struct attn_verdicts *v, const struct attn_verdict_list *list, int all,
                      struct attn_verdict_entry ***worst, int **alike)
{
    struct attn_verdict_entry **bad = attn_cli_need(calloc((size_t)list->n + 1, sizeof *bad));
    int n = 0, kinds = 0, *like = attn_cli_need(calloc((size_t)list->n + 1, sizeof *like));
    *worst = bad;
    *alike = like;
    for (int e = 0; e < list->n; e++)
        if (all || attn_verdict_is_failure(v, &list->entry[e].result))
            bad[n++] = &list->entry[e];
    if (n > 0)
        qsort(bad, (size_t)n, sizeof *bad, worst_first);
    for (int e = 0; e < n; e++) {
        int same = 0;
        while (same < kinds && !is_alike(bad[same], bad[e]))
            same++;
        like[same] += same < kinds;
        if (same == kinds)
            bad[kinds++] = bad[e];
    }
    return kinds;
}

/* Details of the worst few, a line for some more, a number for the rest and for what is like
 * another. */
static void print_failures(struct attn_verdicts *v, const struct attn_verdict_list *list)
{
    struct attn_verdict_entry **bad;
    int *alike, kinds = find_worst(v, list, v->details, &bad, &alike);
    for (int e = 0; e < kinds && e - v->detailed < v->listed; e++) {
        if (e < v->detailed)
            print_details(v->out, list->spec, bad[e]);
        else
            print_line(v->out, bad[e]);
        if (alike[e] > 0)
            fprintf(v->out, "  and %d more like it (--verbose has a line for each)\n", alike[e]);
    }
    if (kinds - v->detailed > v->listed)
        fprintf(v->out, "  ... and %d more (--verbose has a line for each)\n",
                kinds - v->detailed - v->listed);
    free(bad);
    free(alike);
}

struct attn_tally attn_verdicts_tally(const struct attn_verdicts *v,
                                      const struct attn_verdict_list *list, enum attn_kinds kinds)
{
    struct attn_tally t = {.worst_name = "", .growth = (double)NAN};
    for (int e = 0; e < list->n; e++) {
        const struct attn_verdict_entry *x = &list->entry[e];
        const struct attn_result *r = &x->result;
        int is_pass = r->verdict == ATTN_PASS, bad = attn_verdict_is_failure(v, r);
        if (kinds != ATTN_ALL_KINDS && (strcmp(x->kind, "relation") == 0) != (kinds - 1))
            continue;
        t.n++;
        t.count[r->verdict]++;
        t.failures += bad;
        t.by_it += r->verdict == ATTN_REFUSED && r->by_it;
        t.skipped += r->verdict == ATTN_REFUSED && !bad;
        t.errors += bad && r->verdict == ATTN_ERROR;
        t.lacking += r->verdict == ATTN_ERROR && r->lacks_memory;
        t.seconds += x->seconds;
        t.graded += is_pass && r->grade.letter != 0;
        t.slow += is_pass && r->grade.letter == 'B';
        t.leaning += r->grade.rows > 0;
        t.weighed += r->mask.pairs > 0;
        t.admitted += r->mask.pairs > 0 && r->mask.seen == r->mask.pairs;
        t.bias = fmax(t.bias, fabs(r->grade.bias));
        t.growth = r->is_growth ? r->growth : t.growth;
        t.soak = strcmp(x->kind, "soak") == 0 ? x : t.soak;
        if (is_pass && !r->is_growth && r->worst > t.worst) {
            t.worst = r->worst;
            t.worst_name = x->name[0] != '\0' ? x->name : "this case";
        }
    }
    return t;
}

const char *attn_tally_word(const struct attn_tally *t)
{
    return t->failures > 0 ? "FAIL" : t->count[ATTN_PASS] > 0 ? "PASS" : "REFUSED";
}

/* "172 pass, 0 fail, 0 refused, 0 weak, 0 error", and crashes and timeouts where there are any. */
static void print_counts(FILE *out, const struct attn_tally *t, int all)
{
    static const enum attn_verdict order[] = {ATTN_PASS,         ATTN_FAILED, ATTN_REFUSED,
                                              ATTN_WEAK,         ATTN_CRASH,  ATTN_TIMEOUT,
                                              ATTN_INTERMITTENT, ATTN_ERROR};
    static const char *const word[] = {"pass",  "fail",    "refused",      "weak",
                                       "crash", "timeout", "intermittent", "error"};
    int first = 1;
    for (int o = 0; o < 8; o++) {
        int rare = (o >= 4 && o <= 6) || (!all && o > 0);
        if (rare && t->count[order[o]] == 0)
            continue;
        fprintf(out, "%s%d %s", first ? "" : ", ", t->count[order[o]], word[o]);
        if (order[o] == ATTN_REFUSED && t->by_it > 0)
            fprintf(out, " (%d by it)", t->by_it);
        first = 0;
    }
}

int attn_verdicts_declared(const struct attn_verdict_list *list, char *text, size_t size)
{
    /* What checks declare differently is a range: "4", "1.1e-16 to 6e-08". */
    enum { NUMBERS = ATTN_PRECISION_TERMS };
    double low[NUMBERS], high[NUMBERS];
    int64_t rescales = 0, merges = 0;
    int n = 0;
    for (int e = 0; e < list->n; e++) {
        const struct attn_precision *a = &list->entry[e].result.precision;
        if (!(a->u > 0))
            continue;
        for (int k = 0; k < NUMBERS; k++) {
            double value = attn_precision_get(a, k);
            low[k] = n > 0 ? fmin(low[k], value) : value;
            high[k] = n > 0 ? fmax(high[k], value) : value;
        }
        rescales = a->rescales > rescales ? a->rescales : rescales;
        merges = a->merges > merges ? a->merges : merges;
        n++;
    }
    text[0] = '\0';
    for (int k = 0; k < NUMBERS && n > 0; k++) {
        if (!attn_precision_term[k].always && !(high[k] > 0))
            continue;
        attn_append(text, size, "%s %.3g", attn_precision_term[k].name, low[k]);
        if (low[k] < high[k])
            attn_append(text, size, " to %.3g", high[k]);
        attn_append(text, size, "%s, ", k == NUMBERS - 1 ? " u" : "");
    }
    attn_append(text, size, "at most %lld rescales and %lld merges a row", (long long)rescales,
                (long long)merges);
    return n;
}

/* One mistake shows in many cases: what most of them look like is what is wrong. */
static void print_cause(FILE *out, const struct attn_verdict_list *list)
{
    int agree;
    char types[80];
    const char *cause = attn_common_cause_name(&list->causes, &agree);
    attn_common_cause_types(&list->causes, types);
    if (cause != NULL)
        fprintf(out, "  likely cause, by %d of %d diagnosed failures: %s%s\n", agree,
                list->causes.diagnosed, cause, types);
}

/* ---- all of it ------------------------------------------------------------------------------- */

void attn_verdicts_text(struct attn_verdicts *v, const struct attn_verdict_list *list)
{
    char declared[400];
    if (list == NULL)
        return;
    if (v->verbose)
        for (int e = 0; e < list->n; e++)
            print_line(v->out, &list->entry[e]);
    print_failures(v, list);
    const struct attn_tally all = attn_verdicts_tally(v, list, ATTN_ALL_KINDS);
    const struct attn_tally cases = attn_verdicts_tally(v, list, ATTN_NO_RELATIONS);
    const struct attn_tally relations = attn_verdicts_tally(v, list, ATTN_RELATIONS);
    fprintf(v->out, "%-28s %s: ", list->spec, attn_tally_word(&all));
    if (all.soak != NULL)
        fputs(all.soak->text, v->out);
    else if (cases.n > 0 || all.n == 0)
        print_counts(v->out, &cases, 1);
    if (cases.graded > 0)
        fprintf(v->out, "; grades: %d A, %d B", cases.graded - cases.slow, cases.slow);
    if (relations.n > 0) {
        fputs(cases.n > 0 ? "; relations: " : "relations: ", v->out);
        print_counts(v->out, &relations, 0);
    }
    if (cases.count[ATTN_PASS] > 0 && cases.worst_name[0] != '\0')
        fprintf(v->out, "; worst error/bound of a pass %.3g (%s)", cases.worst, cases.worst_name);
    fprintf(v->out, "; %.2f s\n", all.seconds);
    print_cause(v->out, list);
    if (cases.weighed > 1)
        fprintf(v->out, "  %d of %d passes are tests of every key of their mask", cases.admitted,
                cases.weighed);
    if (cases.weighed > 1 && cases.leaning > 0)
        fprintf(v->out, "; largest bias of %d %.2g, limit %g", cases.leaning, cases.bias,
                ATTN_BIAS_LIMIT);
    if (cases.weighed > 1 && !isnan(cases.growth))
        fprintf(v->out, "; growth %.2f, limit %g", cases.growth, ATTN_GROWTH_LIMIT);
    if (cases.weighed > 1)
        fputc('\n', v->out);
    if (attn_verdicts_declared(list, declared, sizeof declared) > 1) /* one says it in its lines */
        fprintf(v->out, "  declared: %s\n", declared);
    attn_refusals_text(v->out, list);
}

/* ---- ending ---------------------------------------------------------------------------------- */

/* One spec's checks, or, given NULL, what the format needs at its end. */
static void (*const print_as[])(struct attn_verdicts *v, const struct attn_verdict_list *list) = {
    [ATTN_FORMAT_TEXT] = attn_verdicts_text,
    [ATTN_FORMAT_TAP] = attn_verdicts_tap,
    [ATTN_FORMAT_JUNIT] = attn_verdicts_junit,
    [ATTN_FORMAT_JSON] = attn_verdicts_json};

int attn_verdicts_end(struct attn_verdicts *v, struct attn_verdict_list *list)
{
    int failures = attn_verdicts_tally(v, list, ATTN_ALL_KINDS).failures;
    print_as[v->format](v, list);
    if (v->report != NULL)
        attn_report_add(v->report, v, list);
    v->n_specs++;
    v->n_checks += list->n;
    fflush(v->out);
    free_list(list);
    return failures;
}

void attn_verdicts_close(struct attn_verdicts *v)
{
    print_as[v->format](v, NULL);
}
