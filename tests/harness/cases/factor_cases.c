/* Choices that meet the values of the table: in the quick tier alone, in the full one in pairs. */
#include <stdlib.h>

#include "tests/harness/cases/factor_maker.h"

int attn_factor_choices(const struct attn_factors *table, enum attn_tier tier,
                        const struct attn_choice_taker *taker)
{
    struct attn_maker *m = calloc(1, sizeof *m);
    if (m == NULL)
        return 0;
    m->t = table;
    m->taker = taker;
    m->name = "factors";
    m->is_quick = 1;
    int passes = attn_maker_values(m, ATTN_FACTOR_PASS),
        causal = attn_maker_values(m, ATTN_FACTOR_CAUSAL) > 1, ok = 1;
    for (int backward = 0; backward < passes; backward++)
        for (int c = 0; c <= causal; c++)
            attn_maker_meet_alone(m, backward, c);
    attn_maker_meet_rest(m, passes - 1);
    m->name = "pairs";
    m->is_quick = 0;
    m->named = 0;
    if (tier == ATTN_TIER_FULL) /* a case with backward judges the forward pass too */
        ok = attn_maker_meet_pairs(m, passes - 1, -1u) &&
             (passes == 1 || attn_maker_meet_pairs(m, 0, EVERYONES | BIT(CAUSAL)));
    free(m);
    return ok;
}
