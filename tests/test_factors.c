/* Every shape that kernels branch on: the table of factors, that the tiers meet its values alone
 * and in pairs, and that a fault which strikes there is found. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fixtures/case_fixture.h"
#include "tests/fixtures/planted.h"
#include "tests/harness/runner.h"
#include "tests/suites.h"

static void meet_both(void);
SUITE(factors, .seconds = 1800, .prepare = meet_both);

enum { IDS = ATTN_FACTORS * ATTN_FACTOR_VALUES };

static int id_of(int factor, int value)
{
    return factor * ATTN_FACTOR_VALUES + value;
}

static int factor_of(int id)
{
    return id / ATTN_FACTOR_VALUES;
}

static int value_of(int id)
{
    return id % ATTN_FACTOR_VALUES;
}

static int is_value(int id)
{
    return value_of(id) < attn_factor[factor_of(id)].n;
}

static double number_of(int id)
{
    return strtod(attn_factor[factor_of(id)].value[value_of(id)], NULL);
}

static int is_named(int id, const char *name)
{
    return strcmp(attn_factor[factor_of(id)].value[value_of(id)], name) == 0;
}

/* ---- what the tiers meet, counted from problems ---------------------------------------------- */

/* Each case by pass: its values, -1 where the table does not have one or the case does not count.
 * by: the case of least work that meets a pair of values, -1 for none. */
struct meeting {
    enum attn_tier tier;
    int (*has)[2][ATTN_FACTORS];
    int by[2][IDS][IDS];
    double work[2][IDS][IDS];
    int alone[2][2][IDS]; /* pass=, causal: cases that need no claim beyond that of the value */
};

static int is_gradient(int factor)
{
    return factor == ATTN_FACTOR_DBIAS || factor == ATTN_FACTOR_DLSE;
}

/* Windows of more keys than a case with as many queries may have. */
static int window_beyond_squares(void)
{
    int v = attn_factor[ATTN_FACTOR_WINDOW].n;
    while (number_of(id_of(ATTN_FACTOR_WINDOW, v - 1)) > 500)
        v--;
    return v;
}

/* How far from neutral an f32 case is: factors, width, heads, batch and length aside. */
static int claims_of(const struct attn_problem *p, const int has[ATTN_FACTORS])
{
    int n = p->n_query != p->n_key && has[ATTN_FACTOR_WINDOW] < window_beyond_squares();
    for (int f = 0; f < ATTN_FACTORS; f++)
        n += has[f] != 0 && !(is_gradient(f) && has[f] < 0) && f != ATTN_FACTOR_D &&
             f != ATTN_FACTOR_HEADS && f != ATTN_FACTOR_BATCH && f != ATTN_FACTOR_QUERIES &&
             f != ATTN_FACTOR_KEYS && f != ATTN_FACTOR_PASS && f != ATTN_FACTOR_CAUSAL;
    return n;
}

/* The values of a pass over a problem, -1 where the table does not have it. */
static void values_of(const struct attn_problem *p, const struct attn_backward *backward,
                      int has[ATTN_FACTORS])
{
    for (int f = 0; f < ATTN_FACTORS; f++) {
        has[f] = -1;
        for (int v = 0; v < attn_factor[f].n; v++)
            if (planted_holds(f, v, p, backward))
                has[f] = v;
    }
}

static void note_pass(struct meeting *m, int index, const struct attn_setup *s,
                      const struct attn_backward *backward)
{
    const struct attn_problem *p = &s->problem;
    int pass = backward != NULL, *has = m->has[index][pass];
    double work = (double)(p->batch * p->heads) * (double)(p->n_query * p->n_key + p->n_key) *
                  (double)(16 + p->d_key + p->d_value);
    values_of(p, backward, has);
    for (int f = 0; f < ATTN_FACTORS; f++)
        for (int g = 0; g < ATTN_FACTORS; g++) {
            if (has[f] < 0 || has[g] < 0)
                continue;
            int x = id_of(f, has[f]), y = id_of(g, has[g]);
            if (m->by[pass][x][y] < 0 || work < m->work[pass][x][y]) {
                m->by[pass][x][y] = index;
                m->work[pass][x][y] = work;
            }
        }
    int claims = claims_of(p, has), causal = has[ATTN_FACTOR_CAUSAL];
    for (int f = 0; f < ATTN_FACTORS && pass == (int)s->given.pass; f++)
        if (has[f] >= 0 && (causal == 0 || causal == 1) && has[ATTN_FACTOR_DTYPE] == 0)
            m->alone[pass][causal][id_of(f, has[f])] += claims == 0 || (claims == 1 && has[f] != 0);
}

static struct meeting *meet(enum attn_tier tier)
{
    struct meeting *m = calloc(1, sizeof *m);
    ck_assert_ptr_nonnull(m);
    m->tier = tier;
    m->has = calloc((size_t)attn_tier_count(tier), sizeof *m->has);
    ck_assert_ptr_nonnull(m->has);
    memset(m->has, -1, (size_t)attn_tier_count(tier) * sizeof *m->has);
    memset(m->by, -1, sizeof m->by);
    for (int i = 0; i < attn_tier_count(tier); i++) {
        struct attn_setup s;
        struct attn_case c = case_of(attn_tier_at(tier, i)->text);
        double size = (double)(c.batch * c.heads * c.n_query * c.n_key * c.d_key * c.d_value);
        if (c.fill != ATTN_FILL_NORMAL || c.poison != ATTN_POISON_NONE || size == 0)
            continue; /* ordinary numbers, in which an error shows */
        setup_from(&c, &s);
        struct attn_backward backward = attn_setup_backward(&s);
        note_pass(m, i, &s, NULL);
        if (c.pass == ATTN_BACKWARD)
            note_pass(m, i, &s, &backward);
        attn_setup_close(&s);
    }
    return m;
}

/* Met once, before Check forks: for all the tests that ask. */
static struct meeting *in_quick, *in_full;

static void meet_both(void)
{
    in_quick = meet(ATTN_TIER_QUICK);
    in_full = meet(ATTN_TIER_FULL);
}

/* What cannot stand together, or would be long by long. */
static int excludes(int x, int y)
{
    int f = factor_of(x), g = factor_of(y);
    if (f == ATTN_FACTOR_D && g == ATTN_FACTOR_DV)
        return number_of(x) == number_of(y);
    if (f == ATTN_FACTOR_HEADS && g == ATTN_FACTOR_GROUP)
        return (int)number_of(x) % (int)number_of(y) != 0;
    if (f == ATTN_FACTOR_QUERIES && g == ATTN_FACTOR_KEYS)
        return number_of(x) * number_of(y) > 140000;
    if (f == ATTN_FACTOR_BIAS && g == ATTN_FACTOR_DBIAS)
        return number_of(y) == 1 && (is_named(x, "none") || is_named(x, "alibi"));
    if (f == ATTN_FACTOR_KEYS && g == ATTN_FACTOR_MASK)
        return number_of(x) == 1 && is_named(y, "keys(bk90)"); /* may hide all there is */
    if (f == ATTN_FACTOR_D && g == ATTN_FACTOR_SCALE)
        return is_named(x, "1") && is_named(y, "1"); /* 1/sqrt(1), as by default */
    return 0;
}

static int can_meet(int x, int y, enum attn_pass pass)
{
    int backward = pass == ATTN_BACKWARD;
    return is_value(x) && is_value(y) && factor_of(x) != factor_of(y) &&
           factor_of(x) != ATTN_FACTOR_PASS && factor_of(y) != ATTN_FACTOR_PASS &&
           (backward || (!is_gradient(factor_of(x)) && !is_gradient(factor_of(y)))) &&
           !excludes(x, y) && !excludes(y, x);
}

/* For whoever claims nothing but f32 and the value itself: forward, with backward, causal. */
TEST(quick_meets_each_value_alone)
{
    const struct meeting *m = in_quick;
    for (int x = 0; x < IDS; x++) {
        int f = factor_of(x), v = value_of(x);
        if (!is_value(x) || f == ATTN_FACTOR_PASS || f == ATTN_FACTOR_DTYPE)
            continue;
        for (int causal = 0; causal < 2; causal++) {
            const int *met[2] = {m->alone[0][causal], m->alone[1][causal]};
            int shared =
                f == ATTN_FACTOR_D || f == ATTN_FACTOR_HEADS || f == ATTN_FACTOR_BATCH ||
                ((f == ATTN_FACTOR_QUERIES || f == ATTN_FACTOR_KEYS) && number_of(x) < 600);
            if (f == ATTN_FACTOR_CAUSAL && v != causal)
                continue;
            ck_assert_msg(met[1][x] > 0 || f == ATTN_FACTOR_DBIAS, "%s=%s with backward, causal=%d",
                          attn_factor[f].name, attn_factor[f].value[v], causal);
            ck_assert_msg(met[0][x] > 0 || is_gradient(factor_of(x)) || (causal && !shared),
                          "%s=%s forward, causal=%d", attn_factor[f].name, attn_factor[f].value[v],
                          causal);
        }
    }
}

TEST(full_meets_each_pair)
{
    const struct meeting *m = in_full;
    int pairs = 0, missing = 0;
    for (int pass = ATTN_FORWARD; pass <= ATTN_BACKWARD; pass++)
        for (int x = 0; x < IDS; x++)
            for (int y = 0; y < x; y++) {
                if (!can_meet(x, y, (enum attn_pass)pass))
                    continue;
                pairs++;
                if (m->by[pass][x][y] >= 0)
                    continue;
                const struct planted_fault fault = {
                    (enum attn_pass)pass,
                    2,
                    {{factor_of(x), value_of(x)}, {factor_of(y), value_of(y)}}};
                char text[200];
                planted_print(&fault, text, sizeof text);
                fprintf(stderr, "no case has %s\n", text);
                missing++;
            }
    printf("factors: %d cases of the full tier meet %d pairs of values\n",
           attn_tier_count(ATTN_TIER_FULL), pairs);
    ck_assert_int_eq(missing, 0);
    ck_assert_int_gt(pairs, 5000);
}

/* ---- planted faults -------------------------------------------------------------------------- */

static int everything(void)
{
    return getenv("ATTN_FULL") != NULL;
}

/* Whether a case fails an implementation with this fault. */
static int dies(const struct planted_fault *fault, const char *text)
{
    struct attn_spec spec = planted_spec(fault);
    struct attn_result r = result_of(&spec, text);
    ck_assert_msg(r.verdict != ATTN_ERROR && r.verdict != ATTN_REFUSED, "%s: %s", text, r.text);
    return r.verdict == ATTN_FAILED;
}

static int meets(const struct meeting *m, int index, enum attn_pass pass, int x, int y)
{
    const int *has = m->has[index][pass];
    return has[factor_of(x)] == value_of(x) && has[factor_of(y)] == value_of(y);
}

/* 1 when a case of the tier finds it. */
static int is_found(const struct meeting *m, int x, int y, enum attn_pass pass)
{
    const struct planted_fault fault = {
        pass, 2, {{factor_of(x), value_of(x)}, {factor_of(y), value_of(y)}}};
    int by = m->by[pass][x][y];
    char text[200];
    int dead = by >= 0 && dies(&fault, attn_tier_at(m->tier, by)->text);
    for (int i = 0; i < attn_tier_count(m->tier) && by >= 0 && !dead; i++)
        dead = meets(m, i, pass, x, y) && dies(&fault, attn_tier_at(m->tier, i)->text);
    planted_print(&fault, text, sizeof text);
    if (!dead)
        fprintf(stderr, "%s survives; %s meets it\n", text,
                by >= 0 ? attn_tier_at(m->tier, by)->text : "no case");
    return dead;
}

static void check_found(const char *what, int planted, int found)
{
    printf("factors: %s: %d planted, %d found\n", what, planted, found);
    fflush(stdout);
    ck_assert_int_eq(planted, found);
}

/* A fault under one value, forward or backward, without a causal mask or with one. */
TEST(quick_finds_one_condition)
{
    const struct meeting *m = in_quick;
    int n = 0, found = 0;
    for (int pass = ATTN_FORWARD; pass <= ATTN_BACKWARD; pass++)
        for (int x = 0; x < IDS; x++)
            for (int causal = 0; causal < 2; causal++) {
                int y = id_of(ATTN_FACTOR_CAUSAL, causal);
                if (!can_meet(x, y, (enum attn_pass)pass) ||
                    (factor_of(x) == ATTN_FACTOR_DTYPE && value_of(x) != 0))
                    continue;
                found += is_found(m, x, y, (enum attn_pass)pass);
                n++;
            }
    check_found("one value", n, found);
    ck_assert_int_ge(n, 300);
}

/* A fault under two values: all of them with ATTN_FULL, else a sample. */
TEST(full_finds_two_conditions)
{
    const struct meeting *m = in_full;
    int step = everything() ? 1 : 61, n = 0, planted = 0, found = 0;
    for (int pass = ATTN_FORWARD; pass <= ATTN_BACKWARD; pass++)
        for (int x = 0; x < IDS; x++)
            for (int y = 0; y < x; y++)
                if (can_meet(x, y, (enum attn_pass)pass) && n++ % step == 0) {
                    planted++;
                    found += is_found(m, x, y, (enum attn_pass)pass);
                }
    check_found("two values", planted, found);
}
