/* Cases that meet the values of the table: alone, and in pairs.
 *
 * Alone: in a case of the quick tier nothing is unusual but one factor, so that an implementation
 * which claims little meets the value too.  Width, heads, batch and length (as many queries as
 * keys) ask for no claim: their values share cases.  All of that forward and with backward, without
 * a causal mask and with one.
 *
 * Pairs: a covering array, built greedily.  A row starts from the value with most pairs to be met
 * and a partner of it; then each factor in random order takes the value that meets most new pairs
 * with those that are there, or stays neutral when none does.  The best of a few such rows is
 * taken. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/harness/cases/factors.h"

enum { IDS = ATTN_FACTORS * ATTN_FACTOR_VALUES, UNSET = -1 };

struct maker {
    struct attn_factor_case *cases;
    int n, named; /* how many of them begin with `name` */
    const char *name;
    uint64_t rolls;
    unsigned char met[2][IDS][IDS]; /* pairs of values, forward alone and with backward */
};

#define BIT(factor) (1u << ATTN_FACTOR_##factor)
static const unsigned everyones = BIT(D) | BIT(HEADS) | BIT(BATCH) | BIT(QUERIES);

static int id_of(int factor, int value)
{
    return factor * ATTN_FACTOR_VALUES + value;
}

static int value_called(int factor, const char *name)
{
    for (int v = 0; v < attn_factor[factor].n; v++)
        if (strcmp(attn_factor[factor].value[v], name) == 0)
            return v;
    return 0;
}

static int roll(struct maker *m, int n)
{
    return (int)(attn_hash(14, 0, m->rolls++) % (uint64_t)n);
}

static void add_case(struct maker *m, const struct attn_choice *choice)
{
    struct attn_case c;
    char text[ATTN_CASE_TEXT], values[200];
    int backward = choice->value[ATTN_FACTOR_PASS];
    for (int f = 0; f < ATTN_FACTORS; f++)
        for (int g = 0; g < ATTN_FACTORS; g++)
            m->met[backward][id_of(f, choice->value[f])][id_of(g, choice->value[g])] = 1;
    if (m->n == ATTN_FACTOR_FULL_MOST)
        return;
    struct attn_factor_case *to = &m->cases[m->n++];
    int number = ++m->named;
    attn_choice_case(choice, (uint64_t)number, &c);
    attn_case_print(&c, text);
    attn_choice_print(choice, values, sizeof values);
    snprintf(to->name, sizeof to->name, "%s-%03d", m->name, number);
    snprintf(to->text, sizeof to->text, "%.*s", (int)sizeof to->text - 1, text);
    snprintf(to->why, sizeof to->why, "what kernels branch on: %s",
             values[0] != '\0' ? values : "nothing unusual");
}

/* ---- each value alone ------------------------------------------------------------------------ */

enum { ROW_WORK = 500000 }; /* beyond the value that the case is there for */

struct alone {
    struct attn_choice choice;
    int used[IDS]; /* in cases of this kind: forward or backward, causal or not */
};

/* A window hides something: there are more keys than it is wide. */
static int window_matters(const struct attn_choice *c)
{
    return c->value[ATTN_FACTOR_WINDOW] == 0 ||
           attn_choice_number(c, ATTN_FACTOR_KEYS) > attn_choice_number(c, ATTN_FACTOR_WINDOW) + 2;
}

/* The value used least that can stand there; the neutral one when none can. */
static void take_least_used(struct alone *a, int factor, int also, int lowest)
{
    int best = UNSET;
    for (int v = lowest; v < attn_factor[factor].n; v++) {
        struct attn_choice c = a->choice;
        c.value[factor] = v;
        c.value[also] = v;
        if ((best == UNSET || a->used[id_of(factor, v)] < a->used[id_of(factor, best)]) &&
            attn_choice_work(&c) <= ROW_WORK && attn_choice_is_possible(&c) && window_matters(&c))
            best = v;
    }
    if (best != UNSET)
        a->choice.value[factor] = a->choice.value[also] = best;
}

/* What else a value needs to be met. */
static void take_what_it_needs(struct attn_choice *c, int factor)
{
    const int tiny = value_called(ATTN_FACTOR_QUERIES, "5");
    if (factor == ATTN_FACTOR_GROUP)
        c->value[ATTN_FACTOR_HEADS] =
            value_called(ATTN_FACTOR_HEADS, attn_factor[factor].value[c->value[factor]]);
    if (factor == ATTN_FACTOR_DBIAS)
        c->value[ATTN_FACTOR_BIAS] = value_called(ATTN_FACTOR_BIAS, "full");
    if (factor == ATTN_FACTOR_WINDOW)
        for (int v = 0; v < attn_factor[ATTN_FACTOR_KEYS].n && !window_matters(c); v++) {
            c->value[ATTN_FACTOR_KEYS] = v;
            c->value[ATTN_FACTOR_QUERIES] =
                attn_choice_number(c, ATTN_FACTOR_KEYS) > 600 ? tiny : v;
        }
}

/* A case for one value; what asks for no claim goes round. */
static void make_alone(struct maker *m, struct alone *a, int factor, int value)
{
    const int short_one = value_called(ATTN_FACTOR_QUERIES, "15");
    struct attn_choice *c = &a->choice;
    int shaped = factor == ATTN_FACTOR_QUERIES || factor == ATTN_FACTOR_KEYS;
    c->value[factor] = value;
    if (shaped && attn_choice_number(c, factor) < 600)
        c->value[ATTN_FACTOR_QUERIES] = c->value[ATTN_FACTOR_KEYS] = value;
    take_what_it_needs(c, factor);
    if (!shaped && (factor != ATTN_FACTOR_WINDOW || c->value[ATTN_FACTOR_KEYS] == 0))
        take_least_used(a, ATTN_FACTOR_QUERIES, ATTN_FACTOR_KEYS,
                        1u << factor & everyones ? 0 : short_one);
    for (int f = 0; f < ATTN_FACTORS; f++)
        if (f != factor && f != ATTN_FACTOR_QUERIES && 1u << f & everyones)
            take_least_used(a, f, f, 0);
    for (int f = 0; f < ATTN_FACTORS; f++)
        a->used[id_of(f, c->value[f])]++;
    add_case(m, c);
}

/* Every value that was not met: of everyones factors first, which share their cases. */
static void meet_alone(struct maker *m, unsigned factors, int backward, int causal)
{
    struct alone a = {.used = {0}};
    for (int turn = 0; turn < 2; turn++)
        for (int f = 0; f < ATTN_FACTORS; f++)
            for (int v = turn; v < attn_factor[f].n; v++) {
                int everyone = (1u << f & everyones) != 0;
                if (everyone == turn || !(1u << f & factors) || a.used[id_of(f, v)] > 0)
                    continue;
                a.choice = (struct attn_choice){
                    .value = {[ATTN_FACTOR_PASS] = backward, [ATTN_FACTOR_CAUSAL] = causal}};
                make_alone(m, &a, f, v);
            }
}

/* ---- pairs ----------------------------------------------------------------------------------- */

/* Queries x keys, never long by long; work of a pair in a case with as many keys as queries; work
 * of a row beyond that of the pair it starts from. */
enum { MOST_CELLS = 140000, SQUARE_WORK = 3000000, ROOM = 600000, CANDIDATES = 4 };

struct pairs {
    unsigned vary;
    int backward, as_many_keys; /* as queries */
    struct attn_choice choice;  /* UNSET where nothing was taken yet */
    double most;                /* work of a row */
    int left[IDS];              /* pairs of a value that are still to be met */
    unsigned char todo[IDS][IDS];
};

/* d = 1 beside it would name a value twice. */
static int has_one(const struct pairs *p)
{
    return p->choice.value[ATTN_FACTOR_DV] == value_called(ATTN_FACTOR_DV, "1") ||
           p->choice.value[ATTN_FACTOR_SCALE] == value_called(ATTN_FACTOR_SCALE, "1");
}

/* Take the neutral value, or the least work, where nothing was taken. */
static struct attn_choice complete(const struct pairs *p, int cheap)
{
    struct attn_choice c = p->choice;
    for (int f = 0; f < ATTN_FACTORS; f++)
        if (c.value[f] == UNSET)
            c.value[f] = 0;
    c.value[ATTN_FACTOR_PASS] = p->backward;
    if (p->choice.value[ATTN_FACTOR_HEADS] == UNSET)
        c.value[ATTN_FACTOR_HEADS] = value_called(
            ATTN_FACTOR_HEADS, attn_factor[ATTN_FACTOR_GROUP].value[c.value[ATTN_FACTOR_GROUP]]);
    if (c.value[ATTN_FACTOR_DBIAS] != 0 && p->choice.value[ATTN_FACTOR_BIAS] == UNSET)
        c.value[ATTN_FACTOR_BIAS] = value_called(ATTN_FACTOR_BIAS, "full");
    for (int f = 0; f < ATTN_FACTORS && cheap; f++)
        if (p->choice.value[f] == UNSET && (((f == ATTN_FACTOR_QUERIES || f == ATTN_FACTOR_KEYS) &&
                                             c.value[ATTN_FACTOR_MASK] == 0) ||
                                            (f == ATTN_FACTOR_D && !has_one(p))))
            c.value[f] = value_called(f, "1");
    if (p->as_many_keys)
        c.value[ATTN_FACTOR_KEYS] = c.value[ATTN_FACTOR_QUERIES];
    return c;
}

static int can_be_completed(const struct pairs *p)
{
    struct attn_choice c = complete(p, 1);
    return attn_choice_is_possible(&c) && attn_choice_work(&c) <= p->most &&
           attn_choice_number(&c, ATTN_FACTOR_QUERIES) * attn_choice_number(&c, ATTN_FACTOR_KEYS) <=
               MOST_CELLS;
}

/* What is to be met: pairs of values of different factors that can stand together. */
static void list_pairs(const struct maker *m, struct pairs *p)
{
    const struct attn_choice unset = p->choice;
    p->most = p->as_many_keys ? SQUARE_WORK : HUGE_VAL;
    for (int f = 0; f < ATTN_FACTORS; f++)
        for (int g = 0; g < f; g++)
            for (int n = 0; n < attn_factor[f].n * attn_factor[g].n; n++) {
                int v = n % attn_factor[f].n, w = n / attn_factor[f].n;
                int x = id_of(f, v), y = id_of(g, w);
                if (!(p->vary & 1u << f) || !(p->vary & 1u << g) || m->met[p->backward][x][y])
                    continue;
                p->choice = unset;
                p->choice.value[f] = v;
                p->choice.value[g] = w;
                p->todo[x][y] = p->todo[y][x] = (unsigned char)can_be_completed(p);
                p->left[x] += p->todo[x][y];
                p->left[y] += p->todo[x][y];
            }
    p->choice = unset;
}

static int gain_of(const struct pairs *p, int factor, int value)
{
    int gain = 0;
    for (int f = 0; f < ATTN_FACTORS; f++)
        if (p->choice.value[f] != UNSET)
            gain += p->todo[id_of(factor, value)][id_of(f, p->choice.value[f])];
    return gain;
}

/* The value of a factor that meets most new pairs; nothing when none does.  Returns its gain. */
static int take_best(struct pairs *p, int factor)
{
    int best = UNSET, most = 0, before = p->choice.value[factor];
    for (int v = 0; v < attn_factor[factor].n; v++) {
        int gain = gain_of(p, factor, v), x = id_of(factor, v);
        if (gain < most || gain == 0 ||
            (gain == most && best != UNSET && p->left[x] <= p->left[id_of(factor, best)]))
            continue;
        p->choice.value[factor] = v;
        if (can_be_completed(p)) {
            best = v;
            most = gain;
        }
        p->choice.value[factor] = before;
    }
    p->choice.value[factor] = best;
    return most;
}

/* The value with most pairs to be met, and its first partner; 0 when nothing is left. */
static int take_seed(struct maker *m, struct pairs *p)
{
    int seed = 0, start = roll(m, IDS);
    for (int x = 1; x < IDS; x++)
        if (p->left[x] > p->left[seed])
            seed = x;
    if (p->left[seed] == 0)
        return 0;
    for (int n = 0; n < IDS; n++) {
        int partner = (start + n) % IDS;
        if (!p->todo[seed][partner])
            continue;
        p->choice.value[seed / ATTN_FACTOR_VALUES] = seed % ATTN_FACTOR_VALUES;
        p->choice.value[partner / ATTN_FACTOR_VALUES] = partner % ATTN_FACTOR_VALUES;
        return 1;
    }
    return 0;
}

/* One row; returns how many new pairs it meets. */
static int make_row(struct maker *m, struct pairs *p)
{
    int gain = take_seed(m, p), order[ATTN_FACTORS];
    struct attn_choice full = complete(p, 1);
    p->most = attn_choice_work(&full) + ROOM;
    for (int f = 0; f < ATTN_FACTORS; f++) {
        int at = roll(m, f + 1);
        order[f] = order[at];
        order[at] = f;
    }
    for (int n = 0; n < ATTN_FACTORS && gain > 0; n++)
        if (p->vary & 1u << order[n] && p->choice.value[order[n]] == UNSET)
            gain += take_best(p, order[n]);
    full = complete(p, 0);
    if (attn_choice_work(&full) > p->most || !attn_choice_is_possible(&full))
        full = complete(p, 1);
    p->choice = full;
    return gain;
}

static void strike_out(struct pairs *p, const struct attn_choice *c)
{
    for (int f = 0; f < ATTN_FACTORS; f++)
        for (int g = 0; g < f; g++) {
            int x = id_of(f, c->value[f]), y = id_of(g, c->value[g]);
            p->left[x] -= p->todo[x][y];
            p->left[y] -= p->todo[x][y];
            p->todo[x][y] = p->todo[y][x] = 0;
        }
}

static void meet_pairs(struct maker *m, unsigned factors, int backward, int as_many_keys)
{
    struct pairs p = {.vary = factors, .backward = backward, .as_many_keys = as_many_keys};
    struct attn_choice unset, best;
    for (int f = 0; f < ATTN_FACTORS; f++)
        unset.value[f] = UNSET;
    p.choice = unset;
    list_pairs(m, &p);
    for (int gain = 1; gain > 0;) {
        gain = 0;
        for (int n = 0; n < CANDIDATES; n++) {
            p.choice = unset;
            int more = make_row(m, &p);
            if (more > gain) {
                gain = more;
                best = p.choice;
            }
        }
        if (gain > 0) {
            strike_out(&p, &best);
            add_case(m, &best);
        }
    }
}

/* ---- both ------------------------------------------------------------------------------------ */

int attn_factor_cases(enum attn_tier tier, struct attn_factor_case cases[ATTN_FACTOR_FULL_MOST])
{
    struct maker m = {.cases = cases, .name = "factors"};
    const unsigned shape = everyones | BIT(DV) | BIT(GROUP) | BIT(KEYS) | BIT(WINDOW) | BIT(MASK);
    const unsigned any = (1u << ATTN_FACTORS) - 1 - BIT(PASS), f32 = any - BIT(DTYPE);
    meet_alone(&m, f32 - BIT(DLSE) - BIT(DBIAS), 0, 0);
    meet_alone(&m, everyones, 0, 1);
    meet_alone(&m, f32, 1, 0);
    meet_alone(&m, f32 - BIT(CAUSAL), 1, 1);
    if (tier == ATTN_TIER_QUICK)
        return m.n;
    m.name = "pairs";
    m.named = 0;
    meet_alone(&m, BIT(DTYPE), 0, 0);
    meet_pairs(&m, everyones | BIT(CAUSAL), 0, 1);
    meet_pairs(&m, shape | BIT(CAUSAL), 1, 0);
    meet_pairs(&m, any, 1, 0);
    return m.n;
}
