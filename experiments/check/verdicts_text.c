/* Checks as text: short, and the worst first. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/check/verdicts.h"
#include "experiments/cli/cli.h"
#include "tests/harness/cases/models.h"

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

static void print_numbers(FILE *out, const struct attn_result *r)
{
    struct attn_facts facts;
    attn_verdict_facts(r, &facts);
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        if (r->output[o].n > 0)
            fprintf(out, "  %-5s error/bound %-10.3g gauge %-8.2g (%lld elements, %lld beyond)\n",
                    r->output[o].name, r->output[o].ratio, r->output[o].gauge,
                    (long long)r->output[o].n, (long long)r->output[o].n_bad);
    for (int n = 0; n < facts.n; n++)
        fprintf(out, "  %s: %s\n", facts.at[n].name, facts.at[n].text);
    attn_verdict_facts_free(&facts);
}

static void print_details(FILE *out, const char *spec, const struct attn_verdict_entry *x)
{
    char words[40];
    fprintf(out, "%s  %s  %s\n", graded_words(&x->result, words), spec, x->text);
    if (x->message[0] != '\0')
        fprintf(out, "  %s\n", x->message);
    print_numbers(out, &x->result);
    if (x->name[0] != '\0')
        fprintf(out, "  %s %s (%s): %s\n", attn_check_kind_name[x->kind], x->name, x->ids, x->why);
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

/* One mistake shows in many cases: what most of them look like is what is wrong. */
static void print_cause(FILE *out, const struct attn_verdict_list *list)
{
    char types[80], cause[ATTN_CAUSE_TEXT];
    int agree = attn_common_cause_name(&list->causes, cause);
    attn_common_cause_types(&list->causes, types);
    if (agree > 0)
        fprintf(out, "  likely cause, by %d of %d diagnosed failures: %s%s%s%s\n", agree,
                list->causes.diagnosed, cause, types[0] != '\0' ? " (" : "", types,
                types[0] != '\0' ? ")" : "");
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
                    fprintf(v->out, "%s%s", found++ > 0 ? " " : " without ", attn_cap_name[b]);
            if (f == LEFT_OUT && refused[m]->wants.missing == 0)
                fprintf(v->out, " (%.80s)", refused[m]->message);
        }
        fputs(n > 0 ? "\n" : "", v->out);
    }
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
    print_models(v, list);
}
