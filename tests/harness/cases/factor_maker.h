/* Choosing values of the factors until every value and pair is met by a case: what both parts use.
 *
 * factor_alone.c: each value alone; factor_pairs.c: each pair of them. */
#ifndef TESTS_HARNESS_CASES_FACTOR_MAKER_H
#define TESTS_HARNESS_CASES_FACTOR_MAKER_H

#include "tests/harness/cases/factors.h"

#define BIT(factor) (1u << ATTN_FACTOR_##factor)
enum {
    IDS = ATTN_FACTOR_IDS,
    UNSET = -1,
    /* width, heads, batch and length ask for no claim */
    EVERYONES = BIT(D) | BIT(HEADS) | BIT(BATCH) | BIT(QUERIES)
};

struct attn_maker {
    const struct attn_factors *t;
    const struct attn_choice_taker *taker;
    const char *name;
    int named;    /* choices that begin with `name` */
    int is_quick; /* the values of the quick tier alone, so that it is the beginning of both */
    uint64_t rolls;
    unsigned char typed[IDS][ATTN_DTYPES], modelled[IDS]; /* alone: met this type, such data */
    unsigned char met[2][IDS][IDS]; /* pairs of values, forward alone and with backward */
};

/* The values of a factor that there are for it. */
static inline int attn_maker_values(const struct attn_maker *m, int factor)
{
    return m->is_quick && factor < ATTN_EXTENTS ? m->t->n_quick[factor] : m->t->of[factor].n;
}

/* Notes what the choice meets, names it and gives it to the taker. */
void attn_maker_add(struct attn_maker *maker, const struct attn_choice *choice);

/* Every value alone, in a pass (1: with backward), without a causal mask or with one; then those
 * that some type, or no data of models, has met. */
void attn_maker_meet_alone(struct attn_maker *maker, int backward, int causal);
void attn_maker_meet_rest(struct attn_maker *maker, int backward);

/* Every pair of values of these factors that can stand together and show.  0: no memory. */
int attn_maker_meet_pairs(struct attn_maker *maker, int backward, unsigned factors);

/* Corners (factor_corners.c): the largest group up to 16 that divides the heads, 0 where none is
 * declared; whether windows come as numbers; the mask of a case whose lengths are known. */
enum { ATTN_WINDOW = 1, ATTN_NO_WINDOW };
int64_t attn_corner_group(const struct attn_claims *claims, int64_t heads);
int attn_has_windows(const struct attn_claims *claims);
void attn_corner_mask(const struct attn_claims *claims, int kind, struct attn_case *c);

/* Those that the full tier has beside the chosen ones (factor_ways.c). */
void attn_way_cases(const struct attn_factors *table, int is_square, enum attn_route route,
                    void (*take)(void *arg, const struct attn_case *c), void *arg);

#endif
