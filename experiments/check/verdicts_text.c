/* Checks as text: short, and the worst first. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/check/verdicts.h"
#include "experiments/cli/cli.h"
#include "tests/harness/cases/models.h"
#include "tests/harness/diagnosis/diagnose.h"

/* How bad: first by kind, from what makes every number meaningless to what is a matter of size. */
static int severity(const struct attn_result *r)
{
    static const int of_verdict[] = {
        [ATTN_INTERMITTENT] = 7, [ATTN_TIMEOUT] = 8, [ATTN_CRASH] = 9, [ATTN_ERROR] = 10};
    static const int of_failure[] = {
        [ATTN_F_BOUND] = 2,  [ATTN_F_EXACT] = 3,     [ATTN_F_FINITE] = 4,
        [ATTN_F_STATUS] = 5, [ATTN_F_INTEGRITY] = 6, [ATTN_F_MEMORY] = 0};
    const int by_failure = of_failure[r->failure];
    return r->verdict != ATTN_FAILED ? of_verdict[r->verdict] : by_failure > 0 ? by_failure : 1;
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

static const struct attn_column output_columns[] = {
    {"output", "output", ATTN_UNIT_WORDS}, {"ratio", "error/bound", ATTN_UNIT_PLAIN},
    {"gauge", "gauge", ATTN_UNIT_PLAIN},   {"elements", "elements", ATTN_UNIT_PLAIN},
    {"beyond", "beyond", ATTN_UNIT_PLAIN}, {"at", "worst at", ATTN_UNIT_WORDS},
    {"got", "got", ATTN_UNIT_PLAIN},       {"truth", "truth", ATTN_UNIT_PLAIN},
    {"bound", "bound", ATTN_UNIT_PLAIN},   {.key = NULL}};

json_t *attn_output_rows(const struct attn_agreement output[ATTN_OUTPUTS], int all)
{
    json_t *rows = json_array();
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        const struct attn_agreement *x = &output[o];
        if (x->n == 0)
            continue;
        json_t *row =
            json_pack("{s:s,s:o,s:o,s:I,s:I}", "output", x->name, "ratio",
                      json_sprintf("%.3g", x->ratio), "gauge", json_sprintf("%.2g", x->gauge),
                      "elements", (json_int_t)x->n, "beyond", (json_int_t)x->n_bad);
        if (all || x->n_bad > 0) {
            const char *shape = o == ATTN_LSE ? "[%lld,%lld,%lld]" : "[%lld,%lld,%lld,%lld]";
            json_object_set_new(row, "at",
                                json_sprintf(shape, (long long)x->at[0], (long long)x->at[1],
                                             (long long)x->at[2], (long long)x->at[3]));
            json_object_set_new(row, "got", json_sprintf("%.9g", x->got));
            json_object_set_new(row, "truth", json_sprintf("%.9g", x->want));
            json_object_set_new(row, "bound", json_sprintf("%.3g", x->bound));
        }
        json_array_append_new(rows, row);
    }
    return rows;
}

static void print_in_full(FILE *out, const char *spec, const struct attn_verdict_entry *x)
{
    size_t n;
    json_t *fact, *facts = attn_verdict_facts(&x->result);
    char words[40];
    fprintf(out, "%s  %s  %s\n", graded_words(&x->result, words), spec, x->text);
    if (x->message[0] != '\0')
        fprintf(out, "  %s\n", x->message);
    json_t *rows = attn_output_rows(x->result.output, 0);
    if (json_array_size(rows) > 0)
        attn_table_print(out, ATTN_TABLE_INDENTED, output_columns, rows);
    json_decref(rows);
    json_array_foreach(facts, n, fact)
        fprintf(out, "  %s: %s\n", json_string_value(json_object_get(fact, "name")),
                json_string_value(json_object_get(fact, "text")));
    json_decref(facts);
    if (x->why[0] != '\0')
        fprintf(out, "  %s %s (%s): %s\n", attn_check_kind_name[x->kind], x->name, x->ids, x->why);
    if (x->found_as != NULL)
        fprintf(out, "  found as: %s\n", x->found_as);
}

static void print_again(FILE *out, const struct attn_verdict_entry *x)
{
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
           attn_verdicts_alike(x->message, y->message);
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

static const struct attn_column failure_columns[] = {
    {"is", "verdict", ATTN_UNIT_WORDS},
    {"worst", "error/bound", ATTN_UNIT_REAL},
    {"name", "case", ATTN_UNIT_CODE},
    {"text", "string", ATTN_UNIT_CODE},
    {"message", "why", ATTN_UNIT_WORDS | ATTN_UNIT_BELOW},
    {"alike", "more like it", ATTN_UNIT_PLAIN | ATTN_UNIT_BELOW},
    {.key = NULL}};

json_t *attn_failure_rows(const struct attn_verdicts *v, const struct attn_verdict_list *list,
                          const struct attn_verdict_entry *but, int *left_out)
{
    struct attn_verdict_entry **bad;
    int *alike, kinds = find_worst(v, list, 0, &bad, &alike), n = 0;
    json_t *rows = json_array();
    *left_out = 0;
    for (int e = 0; e < kinds; e++) {
        char words[40];
        if (bad[e] == but && alike[e] == 0)
            continue;
        if (n++ >= v->listed) {
            *left_out += 1 + alike[e];
            continue;
        }
        json_t *row = attn_verdict_row(bad[e]);
        json_object_set_new(row, "is",
                            json_pack("{s:s}", "bad", attn_verdict_words(&bad[e]->result, words)));
        if (!(bad[e]->result.worst > 0))
            json_object_del(row, "worst");
        if (alike[e] > 0)
            json_object_set_new(row, "alike", json_integer(alike[e]));
        json_array_append_new(rows, row);
    }
    free(bad);
    free(alike);
    return rows;
}

/* A table of the others: the smallest is shown in full. */
static void print_failures(const struct attn_verdicts *v, const struct attn_verdict_list *list,
                           const struct attn_verdict_entry *smallest)
{
    int left_out;
    json_t *rows = attn_failure_rows(v, list, smallest, &left_out);
    if (json_array_size(rows) > 0)
        attn_table_print(v->out, ATTN_TABLE_INDENTED, failure_columns, rows);
    if (left_out > 0)
        fprintf(v->out, "  ... and %d more (--verbose has a line for each)\n", left_out);
    json_decref(rows);
}

/* All that were asked for by hand, failures first. */
static void print_all(const struct attn_verdicts *v, const struct attn_verdict_list *list,
                      const struct attn_verdict_entry *smallest)
{
    struct attn_verdict_entry **all;
    int *alike, kinds = find_worst(v, list, 1, &all, &alike);
    for (int e = 0; e < kinds; e++) {
        if (all[e] != smallest) {
            print_in_full(v->out, list->spec, all[e]);
            print_again(v->out, all[e]);
        }
        if (alike[e] > 0)
            fprintf(v->out, "  more like it: %d (--verbose has a line for each)\n", alike[e]);
    }
    free(all);
    free(alike);
}

/* The failure to look at: one that has the cause (where there is one), not an ERROR where there are
 * others, a case and not a relation, the smallest.  NULL: nothing failed. */
const struct attn_verdict_entry *attn_verdicts_smallest(const struct attn_verdicts *v,
                                                        const struct attn_verdict_list *list)
{
    struct attn_cause cause[2];
    const int causes = attn_common_causes(&list->causes, cause);
    const struct attn_verdict_entry *best = NULL;
    double least = 0;
    int rank = 0;
    for (int e = 0; e < list->n; e++) {
        const struct attn_verdict_entry *x = &list->entry[e];
        if (!attn_verdict_is_failure(v, &x->result))
            continue;
        const int at = 2 * (x->result.verdict == ATTN_ERROR) +
                       (causes > 0 && !attn_cause_fits(cause, &x->result));
        const double work = attn_verdict_work(x);
        if (best != NULL && (at > rank || (at == rank && work >= least)))
            continue;
        best = x;
        least = work;
        rank = at;
    }
    return best;
}

/* "172 pass, 0 fail, 0 refused, 0 weak, 0 error", and crashes and timeouts where there are any. */
static void print_counts(FILE *out, const struct attn_tally *t, int all)
{
    static const enum attn_verdict order[] = {ATTN_PASS,         ATTN_FAILED,  ATTN_REFUSED,
                                              ATTN_WEAK,         ATTN_CRASH,   ATTN_TIMEOUT,
                                              ATTN_INTERMITTENT, ATTN_SKIPPED, ATTN_ERROR};
    static const char *const word[] = {"pass",    "fail",         "refused", "weak", "crash",
                                       "timeout", "intermittent", "skipped", "error"};
    int first = 1;
    for (int o = 0; o < 9; o++) {
        int rare = (o >= 4 && o <= 7) || (!all && o > 0);
        if (rare && t->count[order[o]] == 0)
            continue;
        fprintf(out, "%s%d %s", first ? "" : ", ", t->count[order[o]], word[o]);
        if (order[o] == ATTN_REFUSED && t->by_it > 0)
            fprintf(out, " (%d by it)", t->by_it);
        first = 0;
    }
}

/* One mistake shows in many cases: what most of them look like is what is wrong.  Then the line
 * that shows it again. */
static void print_end(FILE *out, const struct attn_verdict_list *list,
                      const struct attn_cause *cause, int causes,
                      const struct attn_verdict_entry *smallest)
{
    char types[80];
    const struct attn_diagnosis *d = &smallest->result.diagnosis;
    attn_common_cause_types(&list->causes, types);
    for (int c = 0; c < causes; c++) {
        fprintf(out, "  likely cause, by %d of %d diagnosed failures: %s", cause[c].n,
                list->causes.diagnosed, cause[c].text);
        fprintf(out, types[0] != '\0' && c == 0 ? " (%s)\n" : "\n", types);
        fprintf(out, "  what to do: %s\n", cause[c].remedy);
    }
    if (causes == 0 && d->fault != ATTN_FAULT_NONE)
        fprintf(out, "  likely cause: %s\n  what to do: %s\n", d->text,
                d->remedy[0] != '\0' ? d->remedy : attn_fault_remedy(d->fault));
    print_again(out, smallest);
}

/* ---- models ---------------------------------------------------------------------------------- */

/* By the worst of its cases; left out: by the claims, in all of them. */
static void print_models(const struct attn_verdicts *v, const struct attn_verdict_list *list)
{
    enum fate { NOT_ASKED, LEFT_OUT, PASSED, FAILED } fate[ATTN_MODELS] = {NOT_ASKED};
    static const char *const title[] = {"", "shapes that the claims leave out",
                                        "judged at the shapes of", "failed at the shapes of"};
    const struct attn_verdict_entry *refused[ATTN_MODELS] = {NULL};
    for (int e = 0; e < list->n; e++) {
        const struct attn_verdict_entry *x = &list->entry[e];
        int m = attn_model_of_case(x->name);
        if (m < 0)
            continue;
        enum fate f = attn_verdict_is_failure(v, &x->result)                  ? FAILED
                      : !attn_verdict_is_no_run(&x->result)                   ? PASSED
                      : x->result.verdict == ATTN_REFUSED && !x->result.by_it ? LEFT_OUT
                                                                              : NOT_ASKED;
        fate[m] = f > fate[m] ? f : fate[m];
        refused[m] = f == LEFT_OUT && refused[m] == NULL ? x : refused[m];
    }
    for (enum fate f = FAILED; f > NOT_ASKED; f--) {
        int n = 0;
        for (int m = 0; m < ATTN_MODELS; m++) {
            if (fate[m] != f)
                continue;
            fprintf(v->out, n++ == 0 ? "  %s: %s" : ", %.0s%s", title[f], attn_models[m].name);
            for (int b = 0, found = 0; f == LEFT_OUT && b < ATTN_CAPS; b++)
                if (refused[m]->wants.missing >> b & 1u)
                    fprintf(v->out, "%s%s", found++ > 0 ? " " : " without ", attn_cap_name(b));
            if (f == LEFT_OUT && refused[m]->wants.missing == 0)
                fprintf(v->out, " (%.80s)", refused[m]->message);
        }
        fputs(n > 0 ? "\n" : "", v->out);
    }
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* "mine    FAIL: 12 pass, 3 fail, ...". */
static void print_verdict(const struct attn_verdicts *v, const struct attn_verdict_list *list)
{
    const struct attn_tally all = attn_verdicts_tally(v, list, ATTN_ALL_KINDS);
    const struct attn_tally cases = attn_verdicts_tally(v, list, ATTN_NO_RELATIONS);
    const struct attn_tally relations = attn_verdicts_tally(v, list, ATTN_RELATIONS);
    const char *word = attn_tally_word(&all);
    fprintf(v->out, "%-28s %s%s%s: ", list->spec, attn_cli_paint(v->out, all.failures == 0), word,
            attn_cli_paint(v->out, -1));
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
}

/* The findings of all checks together. */
static void print_facts(const struct attn_verdicts *v, const struct attn_verdict_list *list)
{
    char declared[400];
    const struct attn_tally all = attn_verdicts_tally(v, list, ATTN_ALL_KINDS);
    const struct attn_tally cases = attn_verdicts_tally(v, list, ATTN_NO_RELATIONS);
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
    print_models(v, list);
    if (list->left_out > 0)
        fprintf(v->out,
                "  left out: %d pairs of values that only a case of more work meets than our own "
                "are asked\n",
                list->left_out);
    if (v->refusals)
        attn_refusals_text(v->out, list);
    else if (all.count[ATTN_REFUSED] > 0)
        fprintf(v->out, "  refused: %d for want of claims, %d by it (--refusals lists them)\n",
                all.count[ATTN_REFUSED] - all.by_it, all.by_it);
}

void attn_verdicts_text(struct attn_verdicts *v, const struct attn_verdict_list *list)
{
    struct attn_cause cause[2];
    if (list == NULL)
        return;
    const int causes = attn_common_causes(&list->causes, cause);
    const struct attn_verdict_entry *smallest = attn_verdicts_smallest(v, list);
    for (int e = 0; e < list->n && v->verbose; e++)
        print_line(v->out, &list->entry[e]);
    if (v->details)
        print_all(v, list, smallest);
    else
        print_failures(v, list, smallest);
    print_facts(v, list);
    if (smallest != NULL)
        print_in_full(v->out, list->spec, smallest);
    print_verdict(v, list);
    if (smallest != NULL)
        print_end(v->out, list, cause, causes, smallest);
}

char *attn_verdicts_printed(const struct attn_verdicts *v, const struct attn_verdict_list *list)
{
    struct attn_verdicts to_memory = *v;
    char *text;
    size_t size;
    to_memory.out = attn_cli_memory(&text, &size);
    attn_verdicts_text(&to_memory, list);
    fclose(to_memory.out);
    return attn_cli_need(text);
}
