/* Each pair of values, in the full tier: a covering array, built greedily.
 *
 * With backward where that is claimed, which judges the forward pass too; and one of the factors
 * that ask for no claim, forward alone.  A row starts from the value with most pairs to be met and
 * a partner of it; then each factor in random order takes the value that meets most new pairs with
 * those that are there, or stays neutral when none does.  The best of a few such rows is taken.  A
 * pair is met where both of its values show. */
#include <stdlib.h>
#include <string.h>

#include "tests/harness/base/fill.h"
#include "tests/harness/cases/factor_maker.h"

static int roll(struct attn_maker *m, int n)
{
    return (int)(attn_hash(14, 0, m->rolls++) % (uint64_t)n);
}

/* Work of the case of a pair that has nothing else; of a row beyond that of the pair it starts
 * from. */
enum { PAIR_WORK = 6000000, OWN_PAIR_WORK = 2000000, LITTLE_WORK = 300000, ROOM = 500000 };
enum { CANDIDATES = 4 };

/* The full tier of our own keeps to a minute of one core: what it leaves out is counted. */
static double pair_work(const struct attn_maker *m)
{
    return m->t->takes_numbers ? PAIR_WORK : OWN_PAIR_WORK;
}

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
static struct attn_choice complete(const struct attn_maker *m, const struct pairs *p, int cheap)
{
    const struct attn_choice *taken = &p->choice;
    struct attn_choice c = *taken;
    const int five = attn_value_called(m->t, ATTN_FACTOR_QUERIES, "5");
    for (int f = 0; f < ATTN_FACTORS; f++)
        if (c.value[f] == UNSET)
            c.value[f] = 0;
    c.value[ATTN_FACTOR_PASS] = p->backward;
    for (int v = 0;
         taken->value[ATTN_FACTOR_HEADS] == UNSET && v < attn_maker_values(m, ATTN_FACTOR_HEADS);
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

static int is_met_by(const struct attn_maker *m, const struct attn_choice *c, int f, int g)
{
    return attn_choice_is_possible(m->t, c) && attn_choice_shows(m->t, c, f, g);
}

/* Lengths, batch and data that the pair still needs, if it has not chosen them itself; those of
 * least work.  0: it cannot be met within `most`. */
static int complete_for(const struct attn_maker *m, struct pairs *p, double most,
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
        n[i] = p->choice.value[free[i]] != UNSET ? 1 : i == 0 ? 2 : attn_maker_values(m, free[i]);
    n[0] = n[0] < attn_maker_values(m, ATTN_FACTOR_BATCH) ? n[0]
                                                          : attn_maker_values(m, ATTN_FACTOR_BATCH);
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

/* Lists what is to be met: pairs of values of these factors that can stand together and show. */
static void list_pairs(const struct attn_maker *m, struct pairs *p, unsigned factors)
{
    const struct attn_choice unset = p->choice;
    struct attn_choice full;
    for (int f = 0; f < ATTN_FACTOR_PASS; f++)
        for (int g = 0; g < f; g++)
            for (int n = 0; n < attn_maker_values(m, f) * attn_maker_values(m, g); n++) {
                int v = n % attn_maker_values(m, f), w = n / attn_maker_values(m, f);
                int x = attn_value_id(f, v), y = attn_value_id(g, w);
                if (m->met[p->backward][x][y] || !(1u << f & factors) || !(1u << g & factors))
                    continue;
                p->choice = unset;
                p->choice.value[f] = v;
                p->choice.value[g] = w;
                p->seed[0] = f;
                p->seed[1] = g;
                if (!complete_for(m, p, pair_work(m), &full)) {
                    *m->taker->left_out +=
                        !m->t->takes_numbers && complete_for(m, p, PAIR_WORK, &full);
                    continue;
                }
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

/* 1 if the row may have the latest choice, and shows it and its seed. */
static int is_allowed(const struct attn_maker *m, const struct pairs *p, int f, int g)
{
    struct attn_choice c = complete(m, p, 1);
    return attn_choice_work(m->t, &c) <= p->most && is_met_by(m, &c, p->seed[0], p->seed[1]) &&
           attn_choice_shows(m->t, &c, f, g);
}

/* The value of a factor that meets most new pairs and hides neither the pair of the row nor its
 * own; nothing when none does. */
static void take_best(const struct attn_maker *m, struct pairs *p, int factor)
{
    int best = UNSET, most = 0;
    for (int v = 0; v < attn_maker_values(m, factor); v++) {
        int gain = gain_of(p, factor, v), x = attn_value_id(factor, v);
        if (gain < most || gain == 0 ||
            (gain == most && best != UNSET && p->left[x] <= p->left[attn_value_id(factor, best)]))
            continue;
        p->choice.value[factor] = v;
        if (is_allowed(m, p, factor, p->seed[0])) {
            best = v;
            most = gain;
        }
        p->choice.value[factor] = UNSET;
    }
    p->choice.value[factor] = best;
}

/* The value with most pairs to be met, and its first partner; 0 when nothing is left. */
static int take_seed(struct attn_maker *m, struct pairs *p)
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
static int take_another(struct attn_maker *m, struct pairs *p)
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
            if (is_allowed(m, p, f, g))
                return 1;
            p->choice.value[f] = p->choice.value[g] = UNSET;
        }
    }
    return 0;
}

/* New pairs that a finished row meets; strike: and take them off the list. */
static int count_met(const struct attn_maker *m, struct pairs *p, const struct attn_choice *c,
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
static int make_row(struct attn_maker *m, struct pairs *p)
{
    struct attn_choice full, rich;
    int order[ATTN_FACTORS];
    if (!take_seed(m, p) || !complete_for(m, p, pair_work(m), &full))
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

int attn_maker_meet_pairs(struct attn_maker *m, int backward, unsigned factors)
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
            attn_maker_add(m, &best);
        } else
            gain = give_up(p); /* the next ones may do better */
    }
    free(p);
    return 1;
}
