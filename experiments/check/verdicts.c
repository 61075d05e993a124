/* Checks collected, counted, and handed to a format. */
#include "experiments/check/verdicts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "tests/harness/base/fileio.h"

const char *const attn_check_kind_name[] = {
    [ATTN_CHECK_CASE] = "case",   [ATTN_CHECK_RELATION] = "relation",
    [ATTN_CHECK_SOAK] = "soak",   [ATTN_CHECK_GROWTH] = "growth",
    [ATTN_CHECK_CLAIM] = "claim", [ATTN_CHECK_JUDGED] = "judged",
    [ATTN_CHECK_SETUP] = "setup"};

/* An external implementation's words may hold anything; no format does. */
static char *cleaned(char *text)
{
    attn_clean(text);
    return text;
}

static char *copy(const char *text)
{
    return cleaned(attn_cli_need(strdup(text)));
}

/* A line that works as it stands, from the folder where this program was started. */
static char *command(const char *arguments)
{
    if (arguments[0] == '\0' || strncmp(arguments, "ATTNLAB_", strlen("ATTNLAB_")) == 0)
        return copy(arguments);
    return attn_cli_text("%s %s", attn_cli_program(), arguments);
}

/* Why, and what it looks like. */
static char *message_of(const struct attn_result *r)
{
    const struct attn_diagnosis *d = &r->diagnosis;
    if (d->text[0] == '\0')
        return copy(r->text);
    return cleaned(attn_cli_text("%s%s%s%s%s", r->text, d->where[0] != '\0' ? "; shows in " : "",
                                 d->where,
                                 d->fault == ATTN_FAULT_NONE ? "; " : "; looks like: ", d->text));
}

void attn_verdicts_open(struct attn_verdicts *v, FILE *out)
{
    *v = (struct attn_verdicts){.out = out, .listed = 8};
}

struct attn_verdict_list *attn_verdicts_begin(const char *spec)
{
    struct attn_verdict_list *list = attn_cli_need(calloc(1, sizeof *list));
    list->spec = copy(spec);
    return list;
}

void attn_verdicts_free(struct attn_verdict_list *list)
{
    for (int e = 0; e < list->n; e++) {
        struct attn_verdict_entry *x = &list->entry[e];
        free(x->name);
        free(x->text);
        free(x->ids);
        free(x->why);
        free(x->again);
        free(x->found_as);
        free(x->message);
    }
    free(list->entry);
    free(list->spec);
    free(list);
}

struct attn_verdict_entry *attn_verdicts_add(struct attn_verdict_list *list,
                                             const struct attn_checked *s,
                                             const struct attn_answer *answer)
{
    const struct attn_result *result = &answer->result;
    if (list->n == list->capacity) {
        list->capacity = list->capacity > 0 ? 2 * list->capacity : 64;
        list->entry =
            attn_cli_need(realloc(list->entry, (size_t)list->capacity * sizeof *list->entry));
    }
    list->entry[list->n++] =
        (struct attn_verdict_entry){.kind = s->kind,
                                    .name = copy(s->name),
                                    .text = copy(s->text),
                                    .ids = copy(s->ids),
                                    .why = copy(s->why),
                                    .again = command(s->again),
                                    .found_as = s->found_as != NULL ? copy(s->found_as) : NULL,
                                    .message = message_of(result),
                                    .wants = answer->wants,
                                    .result = *result,
                                    .seconds = answer->seconds};
    struct attn_verdict_entry *entry = &list->entry[list->n - 1];
    if (result->verdict == ATTN_FAILED && result->failure == ATTN_F_INTEGRITY)
        entry->result.diagnosis = (struct attn_diagnosis){
            .fault = ATTN_FAULT_STATE,
            .text = "memory written to that is no output: an input, or beyond an end",
            .remedy = "write to the outputs alone, within their extents and strides"};
    attn_common_cause_count(&list->causes, &entry->result);
    return entry;
}

void attn_verdicts_revise(struct attn_verdict_list *list, int e, const struct attn_result *result)
{
    free(list->entry[e].message);
    list->entry[e].message = message_of(result);
    list->entry[e].result = *result;
}

int attn_verdict_is_failure(const struct attn_verdicts *v, const struct attn_result *r)
{
    int is_doubtful = r->verdict == ATTN_WEAK || (r->verdict == ATTN_REFUSED && r->by_it);
    return is_doubtful ? v->strict : r->verdict != ATTN_PASS && !attn_verdict_is_no_run(r);
}

int attn_verdict_is_no_run(const struct attn_result *r)
{
    return r->verdict == ATTN_REFUSED || r->verdict == ATTN_SKIPPED;
}

const char *attn_verdict_words(const struct attn_result *r, char text[40])
{
    if (r->failure != ATTN_F_NONE && (r->verdict == ATTN_FAILED || r->verdict == ATTN_INTERMITTENT))
        snprintf(text, 40, "%s(%s)", attn_verdict_name(r->verdict), attn_failure_name(r->failure));
    else
        snprintf(text, 40, "%s", attn_verdict_name(r->verdict));
    return text;
}

/* ---- counting -------------------------------------------------------------------------------- */

struct attn_tally attn_verdicts_tally(const struct attn_verdicts *v,
                                      const struct attn_verdict_list *list, enum attn_kinds kinds)
{
    struct attn_tally t = {.worst_name = "", .growth = (double)NAN};
    for (int e = 0; e < list->n; e++) {
        const struct attn_verdict_entry *x = &list->entry[e];
        const struct attn_result *r = &x->result;
        int is_pass = r->verdict == ATTN_PASS, bad = attn_verdict_is_failure(v, r);
        if (kinds != ATTN_ALL_KINDS && (x->kind == ATTN_CHECK_RELATION) != (kinds - 1))
            continue;
        t.n++;
        t.count[r->verdict]++;
        t.failures += bad;
        t.by_it += r->verdict == ATTN_REFUSED && r->by_it;
        t.skipped += attn_verdict_is_no_run(r) && !bad;
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
        t.soak = x->kind == ATTN_CHECK_SOAK ? x : t.soak;
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

int attn_verdicts_declared(const struct attn_verdict_list *list, char *text, size_t size)
{
    /* Numbers that checks declare differently are a range: "4", "1.1e-16 to 6e-08". */
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

double attn_verdict_work(const struct attn_verdict_entry *x)
{
    struct attn_case c;
    return x->kind != ATTN_CHECK_RELATION && attn_case_parse(x->text, &c, NULL) == ATTN_OK
               ? attn_case_work(&c)
               : HUGE_VAL;
}
