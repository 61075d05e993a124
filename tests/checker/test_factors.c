/* Every shape that kernels branch on: the table of factors as claims leave it, that the tiers meet
 * its values alone and in pairs, and that a fault which strikes there is found in each output. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fixtures/case_fixture.h"
#include "tests/fixtures/planted.h"
#include "tests/harness/base/fill.h"
#include "tests/harness/cases/claims.h"
#include "tests/suites.h"

static void open_full_tiers(void);
SUITE(factors, .prepare = open_full_tiers);

enum { IDS = ATTN_FACTOR_IDS };

static int factor_of(int id)
{
    return id / ATTN_FACTOR_VALUES;
}

/* ---- what is claimed ------------------------------------------------------------------------- */

#define KERNEL (ATTN_CAP_BACKWARD | ATTN_CAP_GQA | ATTN_CAP_SCALE | ATTN_CAP_CAUSAL)
#define MORE   (ATTN_CAP_CROSS | ATTN_CAP_DV | ATTN_CAP_DENSE)

/* quick, full: the least that a tier has within the claims; 0: no bar. */
static const struct {
    const char *name;
    unsigned bits;
    int quick, full;
} sets[] = {{"bf16", ATTN_CAP_BF16 | KERNEL, 150, 700},
            {"everything", 0, 0, 0},
            {"f16", ATTN_CAP_F16 | KERNEL, 150, 700},
            {"f32", ATTN_CAP_F32 | KERNEL, 150, 700},
            {"f64", ATTN_CAP_F64 | KERNEL, 150, 700},
            {"bf16 cross dv dense", ATTN_CAP_BF16 | KERNEL | MORE, 300, 1500},
            {"f16 cross dv dense", ATTN_CAP_F16 | KERNEL | MORE, 300, 1500},
            {"f32 cross dv dense", ATTN_CAP_F32 | KERNEL | MORE, 300, 1500},
            {"f64 cross dv dense", ATTN_CAP_F64 | KERNEL | MORE, 300, 1500}};
enum { SETS = COUNT(sets), SOME = 2, SOME_WIDTHS = 1 };

static int everything(void)
{
    return getenv("ATTN_FULL") != NULL;
}

/* A tier of a set, and what its cases meet, counted from problems: each case by pass, the place of
 * its value of each factor, -1 where the table does not have it or the case does not count. */
struct meeting {
    struct attn_tier_list list;
    int (*has)[2][ATTN_FACTORS];
};

static int is_value(const struct meeting *m, int id)
{
    return id % ATTN_FACTOR_VALUES < m->list.table.of[factor_of(id)].n;
}

static const char *text_of(const struct meeting *m, int id)
{
    return m->list.table.of[factor_of(id)].value[id % ATTN_FACTOR_VALUES];
}

static void note_pass(struct meeting *m, int index, const struct attn_setup *s,
                      const struct attn_backward *backward)
{
    int *has = m->has[index][backward != NULL];
    for (int id = 0; id < IDS; id++)
        if (is_value(m, id) && planted_holds(factor_of(id), text_of(m, id), &s->problem, backward))
            has[factor_of(id)] = id % ATTN_FACTOR_VALUES;
    has[ATTN_FACTOR_FILL] = m->list.at[index].choice.value[ATTN_FACTOR_FILL];
}

/* All that values are seen by: numbers only of a bias and a sink. */
static void open_shape(const struct attn_case *c, struct attn_setup *s)
{
    struct attn_case plain = *c;
    plain.fill = ATTN_FILL_NORMAL; /* others are prepared */
    if ((c->bias != ATTN_CASE_BIAS_NONE && c->bias != ATTN_CASE_BIAS_ALIBI) || c->sink != 0)
        setup_from(c, s);
    else
        ck_assert_int_eq(attn_setup_describe(&plain, s, NULL), ATTN_OK);
}

static void meet(int set, enum attn_tier tier, struct meeting *m)
{
    struct attn_claims claims = {.bits = sets[set].bits};
    if (set == 1)
        attn_claims_all(&claims);
    ck_assert(attn_tier_open(tier, &claims, ATTN_ROUTE_PLUGIN, 1, &m->list, NULL) == ATTN_OK);
    ck_assert_int_eq(m->list.refused, 0);
    m->has = calloc((size_t)m->list.n, sizeof *m->has);
    ck_assert_ptr_nonnull(m->has);
    memset(m->has, -1, (size_t)m->list.n * sizeof *m->has);
    for (int i = 0; i < m->list.n; i++) {
        struct attn_setup s;
        struct attn_case c = case_of(m->list.at[i].battery.text);
        if (!m->list.at[i].is_made)
            continue;
        open_shape(&c, &s);
        struct attn_backward backward = attn_setup_backward(&s);
        backward.dbias.data = c.d_bias ? &s : NULL; /* asked for or not: nothing is written */
        backward.d_lse.data = c.d_lse ? &s : NULL;
        note_pass(m, i, &s, NULL);
        if (c.pass == ATTN_BACKWARD)
            note_pass(m, i, &s, &backward);
        attn_setup_close(&s);
    }
}

static void part(struct meeting *m)
{
    attn_tier_close(&m->list);
    free(m->has);
}

/* ---- what could be met ----------------------------------------------------------------------- */

static int is_gradient(int factor)
{
    return factor == ATTN_FACTOR_DBIAS || factor == ATTN_FACTOR_DLSE;
}

/* 1: some choice of little work meets two values so that both show: by trying lengths, batches
 * and data beside them. */
static int can_meet(const struct meeting *m, int x, int y, enum attn_pass pass, double most)
{
    const struct attn_factors *t = &m->list.table;
    const int f = factor_of(x), g = factor_of(y),
              batch = attn_value_called(t, ATTN_FACTOR_BATCH, "2");
    const int own = 1 << f | 1 << g;
    if (!is_value(m, x) || !is_value(m, y) || f == g || f >= ATTN_FACTOR_FILL ||
        g >= ATTN_FACTOR_FILL || (pass == ATTN_FORWARD && (is_gradient(f) || is_gradient(g))))
        return 0;
    struct attn_choice c = {.value = {[ATTN_FACTOR_PASS] = (int)pass}};
    if (strcmp(text_of(m, f == ATTN_FACTOR_DBIAS ? x : y), "1") == 0 &&
        own & 1 << ATTN_FACTOR_DBIAS)
        c.value[ATTN_FACTOR_BIAS] = attn_value_called(t, ATTN_FACTOR_BIAS, "full");
    for (int h = 0; h < t->of[ATTN_FACTOR_HEADS].n; h++)
        for (int b = 0; b < 2; b++)
            for (int fill = 0; fill < t->of[ATTN_FACTOR_FILL].n; fill++)
                for (int q = 0; q < t->of[ATTN_FACTOR_QUERIES].n; q++)
                    for (int k = 0; k < t->of[ATTN_FACTOR_KEYS].n; k++) {
                        c.value[ATTN_FACTOR_HEADS] = h;
                        c.value[ATTN_FACTOR_BATCH] = b * batch;
                        c.value[ATTN_FACTOR_FILL] = fill;
                        c.value[ATTN_FACTOR_QUERIES] = q;
                        c.value[ATTN_FACTOR_KEYS] = k;
                        c.value[f] = x % ATTN_FACTOR_VALUES;
                        c.value[g] = y % ATTN_FACTOR_VALUES;
                        if (attn_choice_work(t, &c) <= most && attn_choice_is_possible(t, &c) &&
                            attn_choice_shows(t, &c, f, g))
                            return 1;
                        if (own & 1 << ATTN_FACTOR_KEYS)
                            break;
                    }
    return 0;
}

/* ---- declared shapes ------------------------------------------------------------------------- */

/* Distinct pairs of values that a tier meets, of factors that are no width. */
static int count_pairs(const char *shapes, enum attn_tier tier)
{
    static unsigned char met[IDS][IDS];
    struct attn_claims claims = {.bits = ATTN_CAP_BF16 | KERNEL | ATTN_CAP_CROSS | ATTN_CAP_DV};
    struct attn_tier_list list;
    int n = 0;
    ck_assert(attn_shapes_parse(shapes, &claims.shapes, NULL) == ATTN_OK);
    ck_assert(attn_tier_open(tier, &claims, ATTN_ROUTE_PLUGIN, 1, &list, NULL) == ATTN_OK);
    ck_assert_int_eq(list.refused, 0);
    memset(met, 0, sizeof met);
    for (int i = 0; i < list.n; i++)
        for (int f = ATTN_FACTOR_HEADS; f < ATTN_FACTORS && list.at[i].is_made; f++)
            for (int g = ATTN_FACTOR_HEADS; g < f; g++) {
                const int *value = list.at[i].choice.value;
                unsigned char *pair = &met[attn_value_id(f, value[f])][attn_value_id(g, value[g])];
                if (*pair == 0 && attn_choice_shows(&list.table, &list.at[i].choice, f, g))
                    n += *pair = 1;
            }
    attn_tier_close(&list);
    return n;
}

/* A width that is declared takes the place of all others: nothing else is met less.  In the full
 * tier of some, with ATTN_FULL of all. */
static const char *const widths[] = {"d: 192; dv: 128", "d: 128 192; dv: 128", "d: 64",
                                     "d: 128 256", "d: 24 40; dv: 40"};

TEST_EACH(declared_widths_empty_nothing, 2)
{
    const int n_widths = _i == ATTN_TIER_FULL && !everything() ? SOME_WIDTHS : COUNT(widths);
    int all = count_pairs("", (enum attn_tier)_i);
    for (int w = 0; w < n_widths; w++) {
        int n = count_pairs(widths[w], (enum attn_tier)_i);
        printf("%s: %d pairs of values in %s, of %d\n", widths[w], n, attn_tier_name[_i], all);
        ck_assert_int_ge(4 * n, 3 * all);
    }
}

/* ---- planted faults -------------------------------------------------------------------------- */

/* 1: a fault's conditions hold a value. */
static int has_atom(const struct planted_fault *fault, int factor, const char *value)
{
    for (int a = 0; a < fault->n; a++)
        if (fault->atom[a].factor == factor && strcmp(fault->atom[a].value, value) == 0)
            return 1;
    return 0;
}

/* Outputs in which the fault must show: dQ and dK are 0 without scores, and where the conditions
 * themselves leave one key.  is_square: there are as many keys as queries in every case. */
static unsigned wanted_of(const struct planted_fault *fault, int is_square)
{
    const unsigned gradients = 1u << ATTN_DV | 1u << ATTN_DQ | 1u << ATTN_DK;
    int one_query = has_atom(fault, ATTN_FACTOR_QUERIES, "1");
    int one_key = has_atom(fault, ATTN_FACTOR_KEYS, "1") ||
                  has_atom(fault, ATTN_FACTOR_WINDOW, "0") ||
                  (one_query && (is_square || has_atom(fault, ATTN_FACTOR_KEYS, "=") ||
                                 has_atom(fault, ATTN_FACTOR_CAUSAL, "tl")));
    if (fault->pass == ATTN_FORWARD)
        return 1u << ATTN_O;
    return one_key || has_atom(fault, ATTN_FACTOR_SCALE, "0") ? 1u << ATTN_DV : gradients;
}

/* The outputs that a case finds wrong. */
static unsigned found_by(const struct planted_fault *fault, const char *text)
{
    struct attn_spec spec = planted_spec(fault);
    struct attn_result r = result_of(&spec, text);
    unsigned found = 0;
    ck_assert_msg(r.verdict != ATTN_ERROR && r.verdict != ATTN_REFUSED, "%s: %s", text, r.text);
    for (int o = 0; o < ATTN_OUTPUTS && r.verdict == ATTN_FAILED; o++)
        found |= r.output[o].n > 0 && !(r.output[o].ratio <= 1) ? 1u << o : 0;
    if (strstr(text, ":kv=shared") != NULL && found & 1u << ATTN_DK) /* dV is in dK */
        found |= 1u << ATTN_DV;
    return found;
}

/* A fault where both values are: 1 when cases of the tier find it in each output. */
static int is_found(const struct meeting *m, int x, int y, enum attn_pass pass)
{
    const struct planted_fault fault = {
        pass, 2, {{factor_of(x), text_of(m, x)}, {factor_of(y), text_of(m, y)}}, NULL};
    const unsigned wanted = wanted_of(&fault, m->list.table.of[ATTN_FACTOR_KEYS].n == 1);
    unsigned found = 0;
    char text[200];
    const char *met = "no case";
    for (int i = 0; i < m->list.n && (found & wanted) != wanted; i++) {
        const int *has = m->has[i][pass];
        if (has[factor_of(x)] != x % ATTN_FACTOR_VALUES ||
            has[factor_of(y)] != y % ATTN_FACTOR_VALUES)
            continue;
        met = m->list.at[i].battery.text;
        found |= found_by(&fault, met);
    }
    planted_print(&fault, text, sizeof text);
    if ((found & wanted) != wanted)
        fprintf(stderr, "%s survives in outputs 0x%x; %s meets it\n", text, wanted & ~found, met);
    return (found & wanted) == wanted;
}

static void check_found(int set, const char *what, int planted, int found)
{
    printf("factors: %s: %s: %d planted, %d found\n", sets[set].name, what, planted, found);
    fflush(stdout);
    ck_assert_int_eq(planted, found);
}

/* A fault under one value, forward or backward, without a causal mask or with one. */
TEST_EACH(quick_finds_one_condition, SETS)
{
    static struct meeting m;
    int n = 0, found = 0;
    if (_i >= SOME && !everything())
        return;
    meet(_i, ATTN_TIER_QUICK, &m);
    ck_assert_int_ge(m.list.n, sets[_i].quick);
    for (int pass = ATTN_FORWARD; pass <= ATTN_BACKWARD; pass++)
        for (int x = 0; x < IDS; x++)
            for (int causal = 0; causal < 2; causal++) {
                int y = attn_value_id(ATTN_FACTOR_CAUSAL, causal);
                if (factor_of(x) == ATTN_FACTOR_DTYPE ||
                    !can_meet(&m, x, y, (enum attn_pass)pass, 3e7))
                    continue;
                found += is_found(&m, x, y, (enum attn_pass)pass);
                n++;
            }
    check_found(_i, "one value", n, found);
    ck_assert_int_ge(n, 150);
    part(&m);
}

/* A fault under two values: all of them with ATTN_FULL, else a sample; each pair has a case. */
TEST_EACH(full_finds_two_conditions, SETS)
{
    static struct meeting m;
    int step = everything() ? 1 : 293, n = 0, planted = 0, found = 0;
    if (_i >= SOME && !everything())
        return;
    meet(_i, ATTN_TIER_FULL, &m);
    ck_assert_int_ge(m.list.n, sets[_i].full);
    for (int pass = ATTN_FORWARD; pass <= ATTN_BACKWARD; pass++)
        for (int x = 0; x < IDS; x++)
            for (int y = 0; y < x; y++)
                if (n++ % step == 0 && can_meet(&m, x, y, (enum attn_pass)pass, 5e6)) {
                    planted++;
                    found += is_found(&m, x, y, (enum attn_pass)pass);
                }
    check_found(_i, "two values", planted, found);
    part(&m);
}

/* Our own are asked the pairs that little work meets: a sample of them.  A pair that they are not
 * asked is counted. */
TEST(our_own_are_asked_pairs)
{
    enum { OWN_WORK = 2000000, STEP = 61 };
    static struct meeting m;
    static unsigned char met[IDS][IDS];
    int n = 0, beyond = 0;
    m.list = *tier_of(ATTN_TIER_FULL);
    for (int i = 0; i < m.list.n; i++)
        for (int f = 0; f < ATTN_FACTORS && m.list.at[i].is_made; f++)
            for (int g = 0; g < f; g++) {
                const int *value = m.list.at[i].choice.value;
                if (value[ATTN_FACTOR_PASS] == ATTN_BACKWARD &&
                    attn_choice_shows(&m.list.table, &m.list.at[i].choice, f, g))
                    met[attn_value_id(f, value[f])][attn_value_id(g, value[g])] = 1;
            }
    for (int x = 0; x < IDS; x++)
        for (int y = 0; y < x; y++) {
            if (n++ % STEP != 0 || met[x][y])
                continue;
            ck_assert_msg(!can_meet(&m, x, y, ATTN_BACKWARD, OWN_WORK),
                          "no case meets %s=%s with %s=%s", attn_factor[factor_of(x)].name,
                          text_of(&m, x), attn_factor[factor_of(y)].name, text_of(&m, y));
            beyond += can_meet(&m, x, y, ATTN_BACKWARD, 3 * OWN_WORK);
        }
    printf("pairs of our own: %d are left out, %d of them by the sample\n", m.list.left_out,
           beyond);
    ck_assert_int_ge(m.list.left_out, beyond);
    ck_assert_int_gt(beyond, 0);
}

/* ---- faults from a size on ------------------------------------------------------------------- */

enum { BASE, ALL_CLAIMS };

/* A tier within the claims, and its cases, those of least work first. */
struct ranked {
    struct attn_case c;
    double work;
};
struct large {
    struct attn_tier_list list;
    struct ranked *at;
    int kept; /* the last ones (keep_largest) */
};

static int by_work(const void *a, const void *b)
{
    double x = ((const struct ranked *)a)->work, y = ((const struct ranked *)b)->work;
    return (x > y) - (x < y);
}

static void make_large(int claimed, const char *types, enum attn_tier tier, struct large *x)
{
    static const char *const more =
        ", \"cross\", \"dv\", \"hard\", \"softcap\", \"alibi\", \"bias\", \"dbias\", \"dlse\", "
        "\"strides\", \"empty\", \"band\", \"dense\"";
    struct attn_claims claims;
    char json[400];
    snprintf(json, sizeof json,
             "{\"claims\": [%s, \"backward\", \"gqa\", \"causal\", \"scale\"%s]}", types,
             claimed == BASE ? "" : more);
    ck_assert(attn_claims_parse("claims", json, &claims, NULL) == ATTN_OK);
    ck_assert(attn_tier_open(tier, &claims, ATTN_ROUTE_PLUGIN, 1, &x->list, NULL) == ATTN_OK);
    ck_assert_int_eq(x->list.refused, 0);
    x->at = calloc((size_t)x->list.n, sizeof *x->at);
    ck_assert_ptr_nonnull(x->at);
    for (int i = 0; i < x->list.n; i++) {
        x->at[i].c = case_of(x->list.at[i].battery.text);
        x->at[i].work = attn_case_work(&x->at[i].c);
    }
    qsort(x->at, (size_t)x->list.n, sizeof *x->at, by_work);
}

/* A full tier takes a second and more: those in bf16, which several tests ask, are made once, not
 * in the process of each. */
static const char full_type[] = "\"bf16\"";
static struct large full_tier[2];

static void open_full_tiers(void)
{
    for (int claimed = BASE; claimed <= ALL_CLAIMS; claimed++)
        make_large(claimed, full_type, ATTN_TIER_FULL, &full_tier[claimed]);
}

static void open_large(int claimed, const char *types, enum attn_tier tier, struct large *x)
{
    if (tier == ATTN_TIER_FULL && strcmp(types, full_type) == 0)
        *x = full_tier[claimed];
    else
        make_large(claimed, types, tier, x);
}

static void close_large(struct large *x)
{
    if (x->at == full_tier[BASE].at || x->at == full_tier[ALL_CLAIMS].at)
        return;
    attn_tier_close(&x->list);
    free(x->at);
}

/* Ways on which a kernel branches beside a width; each is met with backward in the full tier. */
static int takes(const struct attn_case *c, int way)
{
    const int is_long = c->n_query > 128 && c->n_key > 128; /* two tiles both ways */
    return way == 0   ? is_long && strstr(c->mask, "causal") != NULL
           : way == 1 ? c->n_key > 128 && c->n_key % 16 != 0
           : way == 2 ? is_long && strstr(c->mask, "window") != NULL
                      : c->n_query == 1 && c->n_key > 1000;
}

/* The first ways of a width are met, with a group or with any (0). */
static void check_ways(const struct large *x, int64_t d, int64_t group, int ways)
{
    for (int way = 0, i; way < ways; way++) {
        for (i = 0; i < x->list.n; i++) {
            const struct attn_case *c = &x->at[i].c;
            if (c->d_key == d && c->pass == ATTN_BACKWARD && takes(c, way) &&
                (group == 0 || c->heads == group * c->kv_heads))
                break;
        }
        ck_assert_msg(i < x->list.n, "d %lld, group %lld: no case takes way %d", (long long)d,
                      (long long)group, way);
    }
}

TEST_EACH(full_meets_what_matters, 2)
{
    static const int64_t models[] = {64, 80, 96, 128, 192, 256}, groups[] = {1, 4, 8};
    static struct large x;
    open_large(_i, "\"bf16\"", ATTN_TIER_FULL, &x);
    const struct attn_factors *t = &x.list.table;
    for (int v = 0; v < t->of[ATTN_FACTOR_D].n; v++)
        check_ways(&x, strtoll(t->of[ATTN_FACTOR_D].value[v], NULL, 10), 0, 1);
    for (int n = 0; n < COUNT(models) * COUNT(groups); n++)
        check_ways(&x, models[n / COUNT(groups)], groups[n % COUNT(groups)],
                   _i == ALL_CLAIMS ? 4 : 2);
    close_large(&x);
}

static double chance(uint64_t *rolls)
{
    return (double)(attn_hash(5, 7, (*rolls)++) >> 11) / 9007199254740992.0;
}

/* No bound in `none` of ten; else a power of two, one more, or a multiple of 32 (of 1 below). */
static int64_t bound_of(uint64_t *rolls, int none, int64_t least, int64_t most)
{
    int64_t power = 1;
    if (chance(rolls) * 10 < none)
        return 1;
    double x = (double)least * pow((double)most / (double)least, chance(rolls));
    while (2 * power <= (int64_t)x)
        power *= 2;
    int kind = (int)(chance(rolls) * 3);
    return kind == 0   ? power
           : kind == 1 ? power + 1
                       : (int64_t)x / (x < 32 ? 1 : 32) * (x < 32 ? 1 : 32);
}

/* Bounds at random whose smallest problem has a size of at most `most`, which is returned. */
static double draw_bounds(int claimed, double most, uint64_t *rolls,
                          int64_t least[ATTN_FACTOR_KEYS + 1])
{
    for (;;) {
        const int64_t drawn[ATTN_FACTOR_KEYS + 1] = {
            [ATTN_FACTOR_D] = bound_of(rolls, 4, 8, 256),
            [ATTN_FACTOR_HEADS] = bound_of(rolls, 5, 2, 32),
            [ATTN_FACTOR_GROUP] = bound_of(rolls, 5, 2, 16),
            [ATTN_FACTOR_BATCH] = bound_of(rolls, 5, 2, 16),
            [ATTN_FACTOR_QUERIES] = bound_of(rolls, 3, 16, 4096),
            [ATTN_FACTOR_KEYS] = bound_of(rolls, 3, 16, 4096)};
        memcpy(least, drawn, sizeof drawn);
        int64_t group = least[ATTN_FACTOR_GROUP];
        if (claimed == BASE && least[ATTN_FACTOR_QUERIES] < least[ATTN_FACTOR_KEYS])
            least[ATTN_FACTOR_QUERIES] = least[ATTN_FACTOR_KEYS];
        if (claimed == BASE)
            least[ATTN_FACTOR_KEYS] = least[ATTN_FACTOR_QUERIES];
        int64_t heads = (least[ATTN_FACTOR_HEADS] + group - 1) / group * group;
        double size = (double)(least[ATTN_FACTOR_BATCH] * heads * least[ATTN_FACTOR_D]) *
                      (double)(least[ATTN_FACTOR_QUERIES] * least[ATTN_FACTOR_KEYS]);
        if (size <= most && least[ATTN_FACTOR_D] <= 256 && group <= 16 && heads <= 32)
            return size;
    }
}

/* No case meets a fault; those that do have numbers there that it leaves (0, a key that no row
 * sees); some case finds it, which is in `text`, or none. */
enum fate { UNMET, IDLE, SURVIVES, DIES, FATES };
static enum fate fate_of(const struct large *x, const struct planted_fault *fault,
                         char text[ATTN_CASE_TEXT])
{
    const int most = everything() ? 40 : 4;
    int is_backward = fault->pass == ATTN_BACKWARD, runs = 0;
    enum fate fate = UNMET;
    for (int i = 0; i < x->list.n && runs < most; i++) {
        struct attn_problem p;
        const struct attn_case *c = &x->at[i].c;
        attn_case_problem(c, &p);
        int meets = planted_reaches(fault->from, &p) && (!is_backward || c->pass == ATTN_BACKWARD);
        meets &= fault->n == 0 || c->d_key == strtoll(fault->atom[0].value, NULL, 10);
        meets &= fault->from->mask == NULL || strstr(c->mask, fault->from->mask) != NULL;
        if (!meets)
            continue;
        struct attn_spec spec = planted_spec(fault);
        attn_case_print(c, text);
        const struct attn_result r = result_of(&spec, text);
        if (r.verdict == ATTN_FAILED)
            return DIES;
        fate = planted_changed() > 0 || fate == SURVIVES ? SURVIVES : IDLE;
        runs++;
    }
    return fate;
}

static const char *const type_name[] = {"\"f32\"", "\"bf16\"", "\"f16\""};

/* Faults that have survived: the place (d, dv, heads, group, batch, queries, keys), the damage, and
 * the tier in which they die. */
static const struct {
    int claimed, type;
    enum attn_tier tier;
    const char *d; /* exactly; or NULL */
    struct planted_threshold from;
} survivors[] = {
    {ALL_CLAIMS,
     1,
     ATTN_TIER_QUICK,
     NULL,
     {{64, 0, 0, 0, 0, 128, 128}, PLANTED_ZERO, PLANTED_LAST, ATTN_O, NULL}},
    {ALL_CLAIMS,
     0,
     ATTN_TIER_QUICK,
     NULL,
     {{64, 0, 0, 0, 0, 96, 96}, PLANTED_MORE, PLANTED_SEEDED, ATTN_O, NULL}},
    {BASE,
     1,
     ATTN_TIER_FULL,
     "128",
     {{0, 0, 0, 0, 0, 32, 32}, PLANTED_LOST, PLANTED_LAST, ATTN_O, "causal"}},
    {ALL_CLAIMS, /* an index of all scores in 32 bits */
     1,
     ATTN_TIER_FULL,
     NULL,
     {{0, 0, 32, 0, 16, 1025, 4096}, PLANTED_ZERO, PLANTED_LAST, ATTN_O, NULL}},
#define ALONE(type) /* the row sees one key: its LSE would be 0 of scores of 0 */  \
    {                                                                              \
        BASE, type, ATTN_TIER_QUICK, NULL,                                         \
        {                                                                          \
            {0, 0, 3, 0, 0, 736, 736}, PLANTED_ZERO, PLANTED_FIRST, ATTN_LSE, NULL \
        }                                                                          \
    }
    ALONE(1),
    ALONE(0),
    ALONE(2),
#undef ALONE
};

/* One that died alike in all types is asked in one, but with ATTN_FULL. */
TEST_EACH(survivors_die, COUNT(survivors) - (everything() ? 0 : 2))
{
    static struct large x;
    const struct planted_fault fault = {.pass = ATTN_FORWARD,
                                        .n = survivors[_i].d != NULL,
                                        .atom = {{ATTN_FACTOR_D, survivors[_i].d}},
                                        .from = &survivors[_i].from};
    char text[ATTN_CASE_TEXT] = "no case";
    open_large(survivors[_i].claimed, type_name[survivors[_i].type], survivors[_i].tier, &x);
    enum fate fate = fate_of(&x, &fault, text);
    ck_assert_msg(fate == DIES, "threshold %d survives; %s meets it", _i, text);
    printf("threshold %d dies in %s\n", _i, text);
    close_large(&x);
}

/* The table of thresholds: each kind, place and output, in each type, tier and set of claims, from
 * bounds that are drawn at random, and where the mask is causal or whatever it is.  All of it with
 * ATTN_FULL, else a sample. */
enum { PLACES = PLANTED_SEEDED + 1, CHANGES = 3, OUTPUTS = ATTN_DV + 1 };
enum { TABLE = PLACES * (CHANGES * OUTPUTS + 2), LISTS = 12, SAMPLE = 116 };

static void print_threshold(const char *fate, const struct planted_threshold *from)
{
    static const char *const kind[] = {"0", "x 1.5", "NaN", "key lost"}, *const where[] = {
                                                                             "first", "middle",
                                                                             "last", "seeded"};
    const int64_t *least = from->least;
    printf("  %s: %s in %s, %s%s%s, from d %lld, heads %lld, group %lld, batch %lld, Lq %lld, "
           "Lk %lld\n",
           fate, kind[from->kind], attn_output_name(from->output), where[from->where],
           from->mask != NULL ? ", " : "", from->mask != NULL ? from->mask : "",
           (long long)least[ATTN_FACTOR_D], (long long)least[ATTN_FACTOR_HEADS],
           (long long)least[ATTN_FACTOR_GROUP], (long long)least[ATTN_FACTOR_BATCH],
           (long long)least[ATTN_FACTOR_QUERIES], (long long)least[ATTN_FACTOR_KEYS]);
}

TEST_EACH(thresholds_die, LISTS)
{
    static struct large x;
    const int claimed = _i % 2, type = _i / 2 % 3, tier = _i / 6;
    int n[FATES] = {0};
    uint64_t rolls = (uint64_t)_i << 32;
    char text[ATTN_CASE_TEXT] = "no case";
    if (tier == ATTN_TIER_FULL && !everything())
        return;
    open_large(claimed, type_name[type], (enum attn_tier)tier, &x);
    for (int at = 0; at < TABLE; at++) {
        const int change = at / PLACES;
        struct planted_threshold from = {.where = (enum planted_where)(at % PLACES),
                                         .mask = at / 2 % 2 ? "causal" : NULL};
        from.kind =
            change < CHANGES * OUTPUTS ? (enum planted_kind)(change / OUTPUTS) : PLANTED_LOST;
        from.output = change < CHANGES * OUTPUTS    ? (enum attn_output)(change % OUTPUTS)
                      : change == CHANGES * OUTPUTS ? ATTN_O
                                                    : ATTN_DV;
        const struct planted_fault fault = {
            .pass = from.output >= ATTN_DQ ? ATTN_BACKWARD : ATTN_FORWARD, .from = &from};
        draw_bounds(claimed,
                    !everything()             ? 1 << 25
                    : tier == ATTN_TIER_QUICK ? 1 << 28
                                              : 1 << 30,
                    &rolls, from.least);
        if (!everything() && at % SAMPLE != 5 * _i)
            continue;
        enum fate fate = fate_of(&x, &fault, text);
        n[fate]++;
        if (fate != DIES)
            print_threshold(fate == UNMET ? "no case" : fate == IDLE ? "no change" : text, &from);
    }
    printf(
        "thresholds with %s claims, %s, %s: %d die, %d survive, %d change nothing where they are "
        "met, %d are met by no case\n",
        claimed == BASE ? "few" : "all", type_name[type], attn_tier_name[tier], n[DIES],
        n[SURVIVES], n[IDLE], n[UNMET]);
    fflush(stdout); /* a failure ends the process */
    ck_assert_int_eq(n[SURVIVES], 0);
    close_large(&x);
}

/* ---- the part of all thresholds that is met -------------------------------------------------- */

static int meets(const struct attn_case *c, const int64_t least[ATTN_FACTOR_KEYS + 1])
{
    struct attn_problem p;
    struct planted_threshold from;
    memcpy(from.least, least, sizeof from.least);
    attn_case_problem(c, &p);
    return planted_reaches(&from, &p);
}

/* Keeps cases with backward and causal that no other one is as large as in every extent. */
static void keep_largest(struct large *x)
{
    int kept = 0;
    for (int i = x->list.n - 1, j; i >= 0; i--) {
        const struct attn_case c = x->at[i].c;
        const int64_t least[] = {c.d_key, c.d_value, c.heads, c.heads / (c.kv_heads + !c.kv_heads),
                                 c.batch, c.n_query, c.n_key};
        if (c.pass != ATTN_BACKWARD || strstr(c.mask, "causal") == NULL)
            continue;
        for (j = 0; j < kept && !meets(&x->at[x->list.n - 1 - j].c, least); j++)
            continue;
        if (j == kept)
            x->at[x->list.n - 1 - kept++].c = c;
    }
    x->kept = kept;
}

/* Thresholds at random, those of the tier's size, with backward and causal: in how many of a
 * hundred a case meets them, at most as large as 2^22, 2^25 and 2^28 (2^30).  docs/battery.md has
 * these. */
static const struct {
    int claimed;
    enum attn_tier tier;
    int least[3];
} met[] = {
    {BASE, ATTN_TIER_QUICK, {99, 99, 99}},
    {BASE, ATTN_TIER_FULL, {100, 100, 100}},
    {ALL_CLAIMS, ATTN_TIER_QUICK, {99, 99, 98}},
    {ALL_CLAIMS, ATTN_TIER_FULL, {99, 99, 99}},
};

TEST_EACH(most_thresholds_are_met, COUNT(met))
{
    const int draws = everything() ? 100000 : 20000;
    static struct large x;
    static const double sizes[] = {1 << 22, 1 << 25, 1 << 30};
    const double most = met[_i].tier == ATTN_TIER_QUICK ? 1 << 28 : 1 << 30;
    int n[3] = {0}, found[3] = {0};
    uint64_t rolls = 0;
    open_large(met[_i].claimed, "\"bf16\"", met[_i].tier, &x);
    keep_largest(&x);
    for (int drawn = 0; drawn < draws; drawn++) {
        int64_t least[ATTN_FACTOR_KEYS + 1];
        double size = draw_bounds(met[_i].claimed, most, &rolls, least);
        int is_met = 0;
        for (int i = x.list.n - 1; i >= x.list.n - x.kept && !is_met; i--)
            is_met = meets(&x.at[i].c, least);
        for (int s = 0; s < 3; s++) {
            n[s] += size <= sizes[s];
            found[s] += is_met && size <= sizes[s];
        }
    }
    printf("thresholds met with %s claims in %s:", met[_i].claimed == BASE ? "few" : "all",
           attn_tier_name[met[_i].tier]);
    for (int s = 0; s < 3; s++) {
        printf(" %.2f of 100 up to 2^%.0f%s", 100.0 * found[s] / n[s],
               log2(s < 2 ? sizes[s] : most), s < 2 ? "," : "\n");
        ck_assert_int_ge(100 * found[s] / n[s], met[_i].least[s]);
    }
    close_large(&x);
}
