/* See coverage.h. */
#include "experiments/check/coverage.h"

#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/diagnosis/cost.h"

static void count_choice(const struct attn_factors *table, const struct attn_choice *choice,
                         unsigned char how, struct attn_coverage *x)
{
    const int hides = choice->value[ATTN_FACTOR_PASS] != 0 && attn_choice_is_flat(table, choice);
    for (int f = 0; f < ATTN_FACTORS; f++) {
        int id = attn_value_id(f, choice->value[f]);
        x->value[id] |= attn_choice_shows(table, choice, f, f) ? how : 0;
        for (int g = 0; g < f; g++)
            if (!hides && attn_choice_shows(table, choice, f, g))
                x->pair[id][attn_value_id(g, choice->value[g])] |= how;
    }
}

/* Verdicts come in the order of the cases, some of which have none. */
void attn_coverage_count(const struct attn_tier_list *tier, const struct attn_verdict_list *list,
                         int type, struct attn_coverage *x)
{
    memset(x, 0, sizeof *x);
    for (int e = 0, at = 0; e < list->n; e++) {
        const struct attn_verdict_entry *entry = &list->entry[e];
        int i = at;
        while (i < tier->n && strcmp(tier->at[i].battery.name, entry->name) != 0)
            i++;
        if (i == tier->n || entry->kind != ATTN_CHECK_CASE)
            continue;
        at = i + 1;
        const struct attn_choice *choice = &tier->at[i].choice;
        int has_verdict = entry->result.verdict < ATTN_SKIPPED && tier->at[i].is_made;
        if (has_verdict && (type < 0 || choice->value[ATTN_FACTOR_DTYPE] == type))
            count_choice(&tier->table, choice,
                         entry->result.verdict == ATTN_REFUSED ? ATTN_MET_REFUSED : ATTN_MET_JUDGED,
                         x);
    }
}

/* Pairs that were judged, and that stand only in cases that were refused. */
static void count_pairs(const struct attn_coverage *x, int *judged, int *refused)
{
    *judged = *refused = 0;
    for (int i = 0; i < ATTN_FACTOR_IDS; i++)
        for (int j = 0; j < ATTN_FACTOR_IDS; j++) {
            *judged += (x->pair[i][j] & ATTN_MET_JUDGED) != 0;
            *refused += x->pair[i][j] == ATTN_MET_REFUSED;
        }
}

/* The values of a factor that were met so: "8, 16, 88 (any)". */
static void list_values(const struct attn_factors *t, const struct attn_coverage *x, int factor,
                        int how, char *text, size_t size)
{
    text[0] = '\0';
    for (int v = 0; v < t->of[factor].n; v++) {
        int met = x->value[attn_value_id(factor, v)];
        int is = how == ATTN_MET_JUDGED ? met & how : met == how;
        int is_any = factor < ATTN_EXTENTS && t->first_any[factor] > 0 && v >= t->first_any[factor];
        if (is)
            attn_append(text, size, "%s%s%s", text[0] != '\0' ? ", " : "", t->of[factor].value[v],
                        is_any ? " (any)" : "");
    }
}

void attn_coverage_put(struct attn_document *d, const struct attn_tier_list *tier,
                       const struct attn_verdict_list *list)
{
    static const struct attn_column column[] = {{"factor", "factor", ATTN_UNIT_WORDS},
                                                {"judged", "judged", ATTN_UNIT_WORDS},
                                                {"refused", "only refused by it", ATTN_UNIT_WORDS},
                                                {"never", "never met", ATTN_UNIT_WORDS},
                                                {.key = NULL}};
    const struct attn_factors *t = &tier->table;
    struct attn_coverage *x = attn_cli_need(calloc(1, sizeof *x));
    for (int type = 0; type < t->of[ATTN_FACTOR_DTYPE].n; type++) {
        int judged, refused;
        char title[40];
        attn_coverage_count(tier, list, type, x);
        count_pairs(x, &judged, &refused);
        snprintf(title, sizeof title, "Values that were met in %s",
                 t->of[ATTN_FACTOR_DTYPE].value[type]);
        attn_document_heading(d, 3, title);
        attn_document_text(d,
                           "In %s, of the values on which kernels branch, by cases made for them: "
                           "%d pairs of values were judged where both show, %d stand only in cases "
                           "that it refused.",
                           t->of[ATTN_FACTOR_DTYPE].value[type], judged, refused);
        char cost[600];
        int dtype = 0;
        while (strcmp(attn_dtype_name((enum attn_dtype)dtype),
                      t->of[ATTN_FACTOR_DTYPE].value[type]) != 0)
            dtype++;
        if (attn_bound_cost(&tier->claims, (enum attn_dtype)dtype, cost, sizeof cost, NULL) ==
            ATTN_OK)
            attn_document_text(d, "%s.", cost);
        json_t *rows = json_array();
        for (int f = 0; f < ATTN_FACTOR_DTYPE; f++) {
            char met[3][400];
            static const int how[3] = {ATTN_MET_JUDGED, ATTN_MET_REFUSED, 0};
            for (int n = 0; n < 3; n++)
                list_values(t, x, f, how[n], met[n], sizeof met[n]);
            json_array_append_new(rows,
                                  json_pack("{s:s,s:s,s:s,s:s}", "factor", t->of[f].name, "judged",
                                            met[0], "refused", met[1], "never", met[2]));
        }
        attn_document_table(d, column, rows);
    }
    free(x);
}
