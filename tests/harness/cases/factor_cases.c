/* Choices that meet the values of the table: alone, and in pairs.
 *
 * Alone: in a case of the quick tier nothing is unusual but one factor, so that an implementation
 * which claims little meets the value too.  Width, heads, batch and length (as many queries as
 * keys) ask for no claim: their values share cases.  All of that forward and with backward, without
 * a causal mask and with one.  Several types take turns, until each value has met each of them;
 * and each value meets data as trained models have it.
 *
 * Pairs: a covering array, built greedily, with backward where that is claimed, which judges the
 * forward pass too; and one of the factors that ask for no claim, forward alone.  A row starts from the value
 * with most pairs to be met and a partner of it; then each factor in random order takes the value
 * that meets most new pairs with those that are there, or stays neutral when none does.  The best
 * of a few such rows is taken.  A pair is met where both of its values show. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/cases/factors.h"
#include "tests/harness/fill.h"

enum { IDS = ATTN_FACTOR_IDS, UNSET = -1 };

struct maker {
    const struct attn_factors *t;
    const struct attn_choice_taker *taker;
    const char *name;
    int named;    /* choices that begin with `name` */
    int is_quick; /* the values of the quick tier alone, so that it is the beginning of both */
    uint64_t rolls;
    unsigned char typed[IDS][ATTN_DTYPES], modelled[IDS]; /* alone: met this type, such data */
    unsigned char met[2][IDS][IDS]; /* pairs of values, forward alone and with backward */
};

#define BIT(factor) (1u << ATTN_FACTOR_##factor)
static const unsigned everyones = BIT(D) | BIT(HEADS) | BIT(BATCH) | BIT(QUERIES), ALL = -1u;

static int roll(struct maker *m, int n)
{
    return (int)(attn_hash(14, 0, m->rolls++) % (uint64_t)n);
}

static int values(const struct maker *m, int factor)
{
    return m->is_quick && factor < ATTN_EXTENTS ? m->t->n_quick[factor] : m->t->of[factor].n;
}

static void add_choice(struct maker *m, const struct attn_choice *choice)
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

/* ---- each value alone ------------------------------------------------------------------------ */

enum {
    ROW_WORK = 500000,    /* beyond the value that the case is there for */
    VALUE_WORK = 40000000 /* of a case that has such a value: a second   */
};

struct alone {
    struct attn_choice choice;
    int backward, causal;
    int used[IDS]; /* in cases of this kind: forward or backward, causal or not */
};

static int is_good(const struct maker *m, const struct attn_choice *c, int factor)
{
    return attn_choice_is_possible(m->t, c) && attn_choice_shows(m->t, c, factor, factor);
}

/* The value used least that can stand there; what is there when none can. */
static void take_least_used(const struct maker *m, struct alone *a, int factor, int of)
{
    int best = UNSET;
    for (int v = 0; v < values(m, of); v++) {
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
static int fit_lengths(const struct maker *m, struct attn_choice *c, int factor)
{
    const int two = attn_value_called(m->t, ATTN_FACTOR_BATCH, "2");
    const int rows = factor == ATTN_FACTOR_QUERIES, keys = factor == ATTN_FACTOR_KEYS;
    double least = VALUE_WORK;
    struct attn_choice best = *c;
    int found = 0;
    for (int b = 0; b < (two > 0 && factor != ATTN_FACTOR_BATCH ? 2 : 1); b++)
        for (int q = 0; q < (rows ? 1 : values(m, ATTN_FACTOR_QUERIES)); q++)
            for (int k = 0; k < (keys ? 1 : values(m, ATTN_FACTOR_KEYS)); k++) {
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

/* What else a value needs to be met: heads for a group, a bias for its gradient; then lengths,
 * batches and data.  0: there is nothing that shows it. */
static int fit(const struct maker *m, struct attn_choice *c, int factor)
{
    for (int v = 0; factor == ATTN_FACTOR_GROUP && v < values(m, ATTN_FACTOR_HEADS); v++) {
        c->value[ATTN_FACTOR_HEADS] = v;
        if (attn_choice_number(m->t, c, ATTN_FACTOR_HEADS) % attn_choice_number(m->t, c, factor) ==
            0)
            break;
    }
    if (factor == ATTN_FACTOR_DBIAS)
        c->value[ATTN_FACTOR_BIAS] = attn_value_called(m->t, ATTN_FACTOR_BIAS, "full");
    if (is_good(m, c, factor) && attn_choice_work(m->t, c) <= ROW_WORK)
        return 1;
    int fills = factor == ATTN_FACTOR_FILL ? 1 : values(m, ATTN_FACTOR_FILL);
    for (int fill = 0; fill < fills; fill++) {
        c->value[ATTN_FACTOR_FILL] = fills == 1 ? c->value[ATTN_FACTOR_FILL] : fill;
        if (fit_lengths(m, c, factor))
            return 1;
    }
    return 0;
}

/* Data as models have it, one kind after the other; 0 is plain. */
static void take_fill(struct maker *m, struct alone *a, int factor)
{
    int n = values(m, ATTN_FACTOR_FILL);
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
static int make_alone(struct maker *m, struct alone *a, int factor, int value, int type, int model)
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
        if (f != factor && f != ATTN_FACTOR_QUERIES && 1u << f & everyones)
            take_least_used(m, a, factor, f);
    if (model && (model > 1 || attn_choice_work(m->t, c) <= ROW_WORK))
        take_fill(m, a, factor);
    for (int f = 0; f < ATTN_FACTORS; f++) {
        int id = attn_value_id(f, c->value[f]);
        a->used[id]++;
        m->typed[id][c->value[ATTN_FACTOR_DTYPE]] = 1;
        m->modelled[id] |= c->value[ATTN_FACTOR_FILL] != 0;
    }
    add_choice(m, c);
    return 1;
}

/* A type that the value has not met; else they take turns. */
static int type_for(const struct maker *m, int factor, int value)
{
    int n = values(m, ATTN_FACTOR_DTYPE);
    for (int turn = 0; turn < n; turn++) {
        int type = (value + turn) % n;
        if (factor == ATTN_FACTOR_DTYPE)
            return value;
        if (!m->typed[attn_value_id(factor, value)][type])
            return type;
    }
    return (value + m->named) % n;
}

/* Every value that was not met: of everyones factors first, which share their cases. */
static void meet_alone(struct maker *m, int backward, int causal)
{
    struct alone a = {.backward = backward, .causal = causal, .used = {0}};
    const unsigned fixed = BIT(PASS) | BIT(CAUSAL);
    for (int turn = 0; turn < 2; turn++)
        for (int f = 0; f < ATTN_FACTORS; f++)
            for (int v = turn; v < values(m, f); v++) {
                int everyone = (1u << f & everyones) != 0;
                if (everyone == turn || 1u << f & fixed || a.used[attn_value_id(f, v)] > 0)
                    continue;
                make_alone(m, &a, f, v, type_for(m, f, v), causal);
            }
    for (int v = 2; causal && v < values(m, ATTN_FACTOR_CAUSAL); v++)
        make_alone(m, &a, ATTN_FACTOR_CAUSAL, v, type_for(m, ATTN_FACTOR_CAUSAL, v), 0);
}

/* Values that some type, or no data of models, has met. */
static void meet_rest(struct maker *m, int backward)
{
    struct alone a = {.backward = backward, .used = {0}};
    for (int f = 0; f < ATTN_FACTORS; f++)
        for (int v = 0; v < values(m, f); v++) {
            int id = attn_value_id(f, v), types = values(m, ATTN_FACTOR_DTYPE);
            if (1u << f & (BIT(PASS) | BIT(DTYPE)))
                continue;
            for (int type = 0; type < types; type++)
                if (!m->typed[id][type])
                    make_alone(m, &a, f, v, type, 2 * !m->modelled[id]);
            if (!m->modelled[id] && f != ATTN_FACTOR_FILL)
                make_alone(m, &a, f, v, type_for(m, f, v), 2);
        }
}

/* ---- pairs ----------------------------------------------------------------------------------- */

/* Work of the case of a pair that has nothing else; of a row beyond that of the pair it starts
 * from. */
enum { PAIR_WORK = 6000000, LITTLE_WORK = 300000, ROOM = 500000, CANDIDATES = 4 };

struct pairs {
    int backward;
    struct attn_choice choice; /* UNSET where nothing was taken yet */
    double most;               /* work of a row */
    int seed[2];               /* factors of the pair from which a row starts */
    int left[IDS];             /* pairs of a value that are still to be met */
    unsigned char todo[IDS][IDS];
};

/* Take the neutral value where nothing was taken, or what makes a pair show with least work: few
 * queries and keys, a batch and heads that fit. */
static struct attn_choice complete(const struct maker *m, const struct pairs *p, int cheap)
{
    const struct attn_choice *taken = &p->choice;
    struct attn_choice c = *taken;
    const int five = attn_value_called(m->t, ATTN_FACTOR_QUERIES, "5");
    for (int f = 0; f < ATTN_FACTORS; f++)
        if (c.value[f] == UNSET)
            c.value[f] = 0;
    c.value[ATTN_FACTOR_PASS] = p->backward;
    for (int v = 0; taken->value[ATTN_FACTOR_HEADS] == UNSET && v < values(m, ATTN_FACTOR_HEADS);
         v++) {
        c.value[ATTN_FACTOR_HEADS] = v;
        if (attn_choice_number(m->t, &c, ATTN_FACTOR_HEADS) %
                attn_choice_number(m->t, &c, ATTN_FACTOR_GROUP) ==
            0)
            break;
    }
    if (c.value[ATTN_FACTOR_DBIAS] != 0 && taken->value[ATTN_FACTOR_BIAS] == UNSET)
        c.value[ATTN_FACTOR_BIAS] = attn_value_called(m->t, ATTN_FACTOR_BIAS, "full");
    if (cheap && five > 0 && taken->value[ATTN_FACTOR_QUERIES] == UNSET &&
        c.value[ATTN_FACTOR_MASK] == 0)
        c.value[ATTN_FACTOR_QUERIES] = five;
    return c;
}

static int is_met_by(const struct maker *m, const struct attn_choice *c, int f, int g)
{
    return attn_choice_is_possible(m->t, c) && attn_choice_shows(m->t, c, f, g);
}

/* Lengths, batch and data that the pair still needs, if it has not chosen them itself; those of
 * least work.  0: it cannot be met within `most`. */
static int complete_for(const struct maker *m, struct pairs *p, double most,
                        struct attn_choice *full)
{
    static const int free[] = {ATTN_FACTOR_BATCH, ATTN_FACTOR_FILL, ATTN_FACTOR_QUERIES,
                               ATTN_FACTOR_KEYS};
    const struct attn_choice start = complete(m, p, 1);
    int n[4], found = 0, at[4];
    double least = most;
    *full = start;
    if (attn_choice_work(m->t, full) <= LITTLE_WORK && is_met_by(m, full, p->seed[0], p->seed[1]))
        return 1;
    for (int i = 0; i < 4; i++)
        n[i] = p->choice.value[free[i]] != UNSET ? 1 : i == 0 ? 2 : values(m, free[i]);
    n[0] = n[0] < values(m, ATTN_FACTOR_BATCH) ? n[0] : values(m, ATTN_FACTOR_BATCH);
    for (at[0] = 0; at[0] < n[0] && !found; at[0]++)
        for (at[1] = 0; at[1] < n[1] && !found; at[1]++)
            for (at[2] = 0; at[2] < n[2]; at[2]++)
                for (at[3] = 0; at[3] < n[3]; at[3]++) {
                    struct attn_choice c = start;
                    for (int i = 0; i < 4; i++)
                        if (p->choice.value[free[i]] == UNSET)
                            c.value[free[i]] = at[i];
                    double work = attn_choice_work(m->t, &c);
                    if (work > least || !is_met_by(m, &c, p->seed[0], p->seed[1]))
                        continue;
                    *full = c;
                    least = work;
                    found = 1;
                }
    return found;
}

/* What is to be met: pairs of values of these factors that can stand together and show. */
static void list_pairs(const struct maker *m, struct pairs *p, unsigned factors)
{
    const struct attn_choice unset = p->choice;
    struct attn_choice full;
    for (int f = 0; f < ATTN_FACTOR_PASS; f++)
        for (int g = 0; g < f; g++)
            for (int n = 0; n < values(m, f) * values(m, g); n++) {
                int v = n % values(m, f), w = n / values(m, f);
                int x = attn_value_id(f, v), y = attn_value_id(g, w);
                if (m->met[p->backward][x][y] || !(1u << f & factors) || !(1u << g & factors))
                    continue;
                p->choice = unset;
                p->choice.value[f] = v;
                p->choice.value[g] = w;
                p->seed[0] = f;
                p->seed[1] = g;
                if (!complete_for(m, p, PAIR_WORK, &full))
                    continue;
                p->todo[x][y] = p->todo[y][x] = 1;
                p->left[x]++;
                p->left[y]++;
            }
    p->choice = unset;
}

static int gain_of(const struct pairs *p, int factor, int value)
{
    int gain = 0;
    for (int f = 0; f < ATTN_FACTORS; f++)
        if (p->choice.value[f] != UNSET)
            gain += p->todo[attn_value_id(factor, value)][attn_value_id(f, p->choice.value[f])];
    return gain;
}

/* Whether the row may have what was just chosen, and shows it and its seed. */
static int is_room(const struct maker *m, const struct pairs *p, int f, int g)
{
    struct attn_choice c = complete(m, p, 1);
    return attn_choice_work(m->t, &c) <= p->most && is_met_by(m, &c, p->seed[0], p->seed[1]) &&
           attn_choice_shows(m->t, &c, f, g);
}

/* The value of a factor that meets most new pairs and hides neither the pair of the row nor its
 * own; nothing when none does. */
static void take_best(const struct maker *m, struct pairs *p, int factor)
{
    int best = UNSET, most = 0;
    for (int v = 0; v < values(m, factor); v++) {
        int gain = gain_of(p, factor, v), x = attn_value_id(factor, v);
        if (gain < most || gain == 0 ||
            (gain == most && best != UNSET && p->left[x] <= p->left[attn_value_id(factor, best)]))
            continue;
        p->choice.value[factor] = v;
        if (is_room(m, p, factor, p->seed[0])) {
            best = v;
            most = gain;
        }
        p->choice.value[factor] = UNSET;
    }
    p->choice.value[factor] = best;
}

/* The value with most pairs to be met, and its first partner; 0 when nothing is left. */
static int take_seed(struct maker *m, struct pairs *p)
{
    int seed = 0, start = roll(m, IDS);
    for (int x = 1; x < IDS; x++)
        if (p->left[x] > p->left[seed])
            seed = x;
    for (int n = 0; n < IDS && p->left[seed] > 0; n++) {
        int partner = (start + n) % IDS;
        if (!p->todo[seed][partner])
            continue;
        p->seed[0] = seed / ATTN_FACTOR_VALUES;
        p->seed[1] = partner / ATTN_FACTOR_VALUES;
        p->choice.value[p->seed[0]] = seed % ATTN_FACTOR_VALUES;
        p->choice.value[p->seed[1]] = partner % ATTN_FACTOR_VALUES;
        return 1;
    }
    return 0;
}

/* A pair of values of which neither meets anything new by itself; 0: there is none. */
static int take_another(struct maker *m, struct pairs *p)
{
    enum { TRIES = 60 };
    int tries = 0, start = roll(m, IDS);
    for (int n = 0; n < IDS && tries < TRIES; n++) {
        int x = (start + n) % IDS, f = x / ATTN_FACTOR_VALUES;
        if (p->left[x] == 0 || p->choice.value[f] != UNSET)
            continue;
        for (int y = 0; y < IDS && tries < TRIES; y++) {
            int g = y / ATTN_FACTOR_VALUES;
            if (!p->todo[x][y] || p->choice.value[g] != UNSET)
                continue;
            tries++;
            p->choice.value[f] = x % ATTN_FACTOR_VALUES;
            p->choice.value[g] = y % ATTN_FACTOR_VALUES;
            if (is_room(m, p, f, g))
                return 1;
            p->choice.value[f] = p->choice.value[g] = UNSET;
        }
    }
    return 0;
}

/* New pairs that a finished row meets; strike: and take them off the list. */
static int count_met(const struct maker *m, struct pairs *p, const struct attn_choice *c,
                     int strike)
{
    int met = 0;
    for (int f = 0; f < ATTN_FACTORS; f++)
        for (int g = 0; g < f; g++) {
            int x = attn_value_id(f, c->value[f]), y = attn_value_id(g, c->value[g]);
            if (!p->todo[x][y] || !attn_choice_shows(m->t, c, f, g))
                continue;
            met++;
            p->left[x] -= strike;
            p->left[y] -= strike;
            p->todo[x][y] = p->todo[y][x] = (unsigned char)!strike;
        }
    return met;
}

/* One row; returns how many new pairs it meets. */
static int make_row(struct maker *m, struct pairs *p)
{
    struct attn_choice full, rich;
    int order[ATTN_FACTORS];
    if (!take_seed(m, p) || !complete_for(m, p, PAIR_WORK, &full))
        return 0;
    p->most = attn_choice_work(m->t, &full) + ROOM;
    const struct attn_choice cheap = complete(m, p, 1);
    int is_fitted = memcmp(&full, &cheap, sizeof full) != 0;
    for (int f = 0; f < ATTN_FACTOR_PASS; f++) { /* what makes it show stays */
        unsigned fitted = BIT(BATCH) | BIT(FILL) | BIT(QUERIES) | BIT(KEYS);
        if ((full.value[f] != 0 || (is_fitted && 1u << f & fitted)) && p->choice.value[f] == UNSET)
            p->choice.value[f] = full.value[f];
        int at = roll(m, f + 1);
        order[f] = order[at];
        order[at] = f;
    }
    do
        for (int n = 0; n < ATTN_FACTOR_PASS; n++)
            if (p->choice.value[order[n]] == UNSET)
                take_best(m, p, order[n]);
    while (take_another(m, p));
    full = complete(m, p, 1);
    rich = complete(m, p, 0);
    if (attn_choice_work(m->t, &rich) <= p->most && is_met_by(m, &rich, p->seed[0], p->seed[1]) &&
        count_met(m, p, &rich, 0) >= count_met(m, p, &full, 0))
        full = rich;
    p->choice = full;
    return count_met(m, p, &full, 0);
}

/* The pair of the last row cannot be met: off the list with it.  0: there was none. */
static int give_up(struct pairs *p)
{
    int x = attn_value_id(p->seed[0], p->choice.value[p->seed[0]]);
    int y = attn_value_id(p->seed[1], p->choice.value[p->seed[1]]);
    if (p->choice.value[p->seed[0]] == UNSET || !p->todo[x][y])
        return 0;
    p->left[x]--;
    p->left[y]--;
    p->todo[x][y] = p->todo[y][x] = 0;
    return 1;
}

static int meet_pairs(struct maker *m, int backward, unsigned factors)
{
    struct pairs *p = calloc(1, sizeof *p);
    struct attn_choice unset, best;
    if (p == NULL)
        return 0;
    for (int f = 0; f < ATTN_FACTORS; f++)
        unset.value[f] = UNSET;
    p->backward = backward;
    p->choice = unset;
    list_pairs(m, p, factors);
    for (int gain = 1; gain > 0;) {
        gain = 0;
        for (int n = 0; n < CANDIDATES; n++) {
            p->choice = unset;
            int more = make_row(m, p);
            if (more > gain) {
                gain = more;
                best = p->choice;
            }
        }
        if (gain > 0) {
            count_met(m, p, &best, 1);
            add_choice(m, &best);
        } else
            gain = give_up(p); /* the next ones may do better */
    }
    free(p);
    return 1;
}

/* ---- both ------------------------------------------------------------------------------------ */

int attn_factor_choices(const struct attn_factors *table, enum attn_tier tier,
                        const struct attn_choice_taker *taker)
{
    struct maker *m = calloc(1, sizeof *m);
    if (m == NULL)
        return 0;
    m->t = table;
    m->taker = taker;
    m->name = "factors";
    m->is_quick = 1;
    int passes = values(m, ATTN_FACTOR_PASS), causal = values(m, ATTN_FACTOR_CAUSAL) > 1, ok = 1;
    for (int backward = 0; backward < passes; backward++)
        for (int c = 0; c <= causal; c++)
            meet_alone(m, backward, c);
    meet_rest(m, passes - 1);
    m->name = "pairs";
    m->is_quick = 0;
    m->named = 0;
    if (tier == ATTN_TIER_FULL) /* a case with backward judges the forward pass too */
        ok = meet_pairs(m, passes - 1, ALL) &&
             (passes == 1 || meet_pairs(m, 0, everyones | BIT(CAUSAL)));
    free(m);
    return ok;
}
