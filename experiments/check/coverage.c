/* See coverage.h. */
#include "experiments/check/coverage.h"

#include <string.h>

static void count_choice(const struct attn_factors *table, const struct attn_choice *choice,
                         unsigned char how, struct attn_coverage *x)
{
    for (int f = 0; f < ATTN_FACTORS; f++) {
        int id = attn_value_id(f, choice->value[f]);
        x->value[id] |= attn_choice_shows(table, choice, f, f) ? how : 0;
        for (int g = 0; g < f; g++)
            if (attn_choice_shows(table, choice, f, g))
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
        if (i == tier->n || strcmp(entry->kind, "case") != 0)
            continue;
        at = i + 1;
        const struct attn_choice *choice = &tier->at[i].choice;
        int has_verdict = entry->result.verdict != ATTN_ERROR && tier->at[i].is_made;
        if (has_verdict && (type < 0 || choice->value[ATTN_FACTOR_DTYPE] == type))
            count_choice(&tier->table, choice,
                         entry->result.verdict == ATTN_REFUSED ? ATTN_MET_REFUSED : ATTN_MET_JUDGED,
                         x);
    }
}

void attn_coverage_pairs(const struct attn_coverage *x, int *judged, int *refused)
{
    *judged = *refused = 0;
    for (int i = 0; i < ATTN_FACTOR_IDS; i++)
        for (int j = 0; j < ATTN_FACTOR_IDS; j++) {
            *judged += (x->pair[i][j] & ATTN_MET_JUDGED) != 0;
            *refused += x->pair[i][j] == ATTN_MET_REFUSED;
        }
}
