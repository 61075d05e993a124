/* Each value of the table alone, in the quick tier.
 *
 * In a case nothing is unusual but one factor, so that an implementation which claims little meets
 * the value too.  Width, heads, batch and length (as many queries as keys) ask for no claim: their
 * values share cases.  All of that forward and with backward, without a causal mask and with one.
 * Several types take turns, until each value has met each of them; and each value meets data as
 * trained models have it. */
#include <stdio.h>

#include "tests/harness/cases/factor_maker.h"

enum {
    ROW_WORK = 500000,    /* beyond the value that the case is there for */
    VALUE_WORK = 40000000 /* of a case that has such a value: a second   */
};

void attn_maker_add(struct attn_maker *m, const struct attn_choice *choice)
{
    char name[24];
    int backward = choice->value[ATTN_FACTOR_PASS];
    for (int f = 0; f < ATTN_FACTORS; f++)
        for (int g = 0; g < ATTN_FACTORS; g++)
            if (attn_choice_shows(m->t, choice, f, g))
                m->met[backward][attn_value_id(f, choice->value[f])]
                      [attn_value_id(g, choice->value[g])] = 1;
    snprintf(name, sizeof name, "%s-%03d", m->name, ++m->named);
    m->taker->take(m->taker->arg, name, choice, (uint64_t)m->named);
}

struct alone {
    struct attn_choice choice;
    int backward, causal;
    int used[IDS]; /* in cases of this kind: forward or backward, causal or not */
};

static int is_good(const struct attn_maker *m, const struct attn_choice *c, int factor)
{
    return attn_choice_is_possible(m->t, c) && attn_choice_shows(m->t, c, factor, factor);
}

/* The value used least that can stand there; what is there when none can. */
static void take_least_used(const struct attn_maker *m, struct alone *a, int factor, int of)
{
    int best = UNSET;
    for (int v = 0; v < attn_maker_values(m, of); v++) {
        struct attn_choice c = a->choice;
        c.value[of] = v;
        if ((best == UNSET || a->used[attn_value_id(of, v)] < a->used[attn_value_id(of, best)]) &&
            attn_choice_work(m->t, &c) <= ROW_WORK && is_good(m, &c, factor))
            best = v;
    }
    if (best != UNSET)
        a->choice.value[of] = best;
}

/* Lengths and batches of least work with which a value shows; 0: there are none. */
static int fit_lengths(const struct attn_maker *m, struct attn_choice *c, int factor)
{
    const int two = attn_value_called(m->t, ATTN_FACTOR_BATCH, "2");
    const int rows = factor == ATTN_FACTOR_QUERIES, keys = factor == ATTN_FACTOR_KEYS;
    double least = VALUE_WORK;
    struct attn_choice best = *c;
    int found = 0;
    for (int b = 0; b < (two > 0 && factor != ATTN_FACTOR_BATCH ? 2 : 1); b++)
        for (int q = 0; q < (rows ? 1 : attn_maker_values(m, ATTN_FACTOR_QUERIES)); q++)
            for (int k = 0; k < (keys ? 1 : attn_maker_values(m, ATTN_FACTOR_KEYS)); k++) {
                struct attn_choice next = *c;
                next.value[ATTN_FACTOR_BATCH] = b == 0 ? c->value[ATTN_FACTOR_BATCH] : two;
                next.value[ATTN_FACTOR_QUERIES] = rows ? c->value[factor] : q;
                next.value[ATTN_FACTOR_KEYS] = keys ? c->value[factor] : k;
                double work = attn_choice_work(m->t, &next);
                /* as many keys as queries ask for no claim */
                work *= next.value[ATTN_FACTOR_KEYS] != 0 && work < ROW_WORK ? 10 : 1;
                if (work < least && is_good(m, &next, factor)) {
                    best = next;
                    least = work;
                    found = 1;
                }
            }
    *c = best;
    return found;
}

/* A value needs others to be met: heads for a group, a bias for its gradient; then lengths,
 * batches and data.  0: there is nothing that shows it. */
static int fit(const struct attn_maker *m, struct attn_choice *c, int factor)
{
    for (int v = 0; factor == ATTN_FACTOR_GROUP && v < attn_maker_values(m, ATTN_FACTOR_HEADS);
         v++) {
        c->value[ATTN_FACTOR_HEADS] = v;
        if (attn_choice_number(m->t, c, ATTN_FACTOR_HEADS) % attn_choice_number(m->t, c, factor) ==
            0)
            break;
    }
    if (factor == ATTN_FACTOR_DBIAS)
        c->value[ATTN_FACTOR_BIAS] = attn_value_called(m->t, ATTN_FACTOR_BIAS, "full");
    if (is_good(m, c, factor) && attn_choice_work(m->t, c) <= ROW_WORK)
        return 1;
    int fills = factor == ATTN_FACTOR_FILL ? 1 : attn_maker_values(m, ATTN_FACTOR_FILL);
    for (int fill = 0; fill < fills; fill++) {
        c->value[ATTN_FACTOR_FILL] = fills == 1 ? c->value[ATTN_FACTOR_FILL] : fill;
        if (fit_lengths(m, c, factor))
            return 1;
    }
    return 0;
}

/* Data as models have it, one kind after the other; 0 is plain. */
static void take_fill(struct attn_maker *m, struct alone *a, int factor)
{
    int n = attn_maker_values(m, ATTN_FACTOR_FILL);
    struct attn_choice c = a->choice;
    int free = factor != ATTN_FACTOR_FILL && c.value[ATTN_FACTOR_FILL] == 0;
    for (int tries = 1; tries < n && free; tries++) {
        c.value[ATTN_FACTOR_FILL] = 1 + (m->named + tries) % (n - 1);
        if (!is_good(m, &c, factor) || !attn_choice_shows(m->t, &c, ATTN_FACTOR_FILL, factor))
            continue;
        a->choice = c;
        return;
    }
}

/* A case for one value in a type; what asks for no claim goes round.  model: 1: data of models
 * where the case is small; 2: in any.  0: the value cannot be met so. */
static int make_alone(struct attn_maker *m, struct alone *a, int factor, int value, int type,
                      int model)
{
    struct attn_choice *c = &a->choice;
    *c = (struct attn_choice){.value = {[ATTN_FACTOR_PASS] = a->backward,
                                        [ATTN_FACTOR_CAUSAL] = a->causal,
                                        [ATTN_FACTOR_DTYPE] = type}};
    c->value[factor] = value;
    if (!fit(m, c, factor))
        return 0;
    if (factor != ATTN_FACTOR_QUERIES && factor != ATTN_FACTOR_KEYS)
        take_least_used(m, a, factor, ATTN_FACTOR_QUERIES);
    for (int f = 0; f < ATTN_FACTORS; f++)
        if (f != factor && f != ATTN_FACTOR_QUERIES && 1u << f & EVERYONES)
            take_least_used(m, a, factor, f);
    if (model && (model > 1 || attn_choice_work(m->t, c) <= ROW_WORK))
        take_fill(m, a, factor);
    for (int f = 0; f < ATTN_FACTORS; f++) {
        int id = attn_value_id(f, c->value[f]);
        a->used[id]++;
        m->typed[id][c->value[ATTN_FACTOR_DTYPE]] = 1;
        m->modelled[id] |= c->value[ATTN_FACTOR_FILL] != 0;
    }
    attn_maker_add(m, c);
    return 1;
}

/* A type that the value has not met; else they take turns. */
static int type_for(const struct attn_maker *m, int factor, int value)
{
    int n = attn_maker_values(m, ATTN_FACTOR_DTYPE);
    for (int turn = 0; turn < n; turn++) {
        int type = (value + turn) % n;
        if (factor == ATTN_FACTOR_DTYPE)
            return value;
        if (!m->typed[attn_value_id(factor, value)][type])
            return type;
    }
    return (value + m->named) % n;
}

/* Every value that was not met: of EVERYONES factors first, which share their cases. */
void attn_maker_meet_alone(struct attn_maker *m, int backward, int causal)
{
    struct alone a = {.backward = backward, .causal = causal, .used = {0}};
    const unsigned fixed = BIT(PASS) | BIT(CAUSAL);
    for (int turn = 0; turn < 2; turn++)
        for (int f = 0; f < ATTN_FACTORS; f++)
            for (int v = turn; v < attn_maker_values(m, f); v++) {
                int everyone = (1u << f & EVERYONES) != 0;
                if (everyone == turn || 1u << f & fixed || a.used[attn_value_id(f, v)] > 0)
                    continue;
                make_alone(m, &a, f, v, type_for(m, f, v), causal);
            }
    for (int v = 2; causal && v < attn_maker_values(m, ATTN_FACTOR_CAUSAL); v++)
        make_alone(m, &a, ATTN_FACTOR_CAUSAL, v, type_for(m, ATTN_FACTOR_CAUSAL, v), 0);
}

/* Values that some type, or no data of models, has met. */
void attn_maker_meet_rest(struct attn_maker *m, int backward)
{
    struct alone a = {.backward = backward, .used = {0}};
    for (int f = 0; f < ATTN_FACTORS; f++)
        for (int v = 0; v < attn_maker_values(m, f); v++) {
            int id = attn_value_id(f, v), types = attn_maker_values(m, ATTN_FACTOR_DTYPE);
            if (1u << f & (BIT(PASS) | BIT(DTYPE)))
                continue;
            for (int type = 0; type < types; type++)
                if (!m->typed[id][type])
                    make_alone(m, &a, f, v, type, 2 * !m->modelled[id]);
            if (!m->modelled[id] && f != ATTN_FACTOR_FILL)
                make_alone(m, &a, f, v, type_for(m, f, v), 2);
        }
}
