/* Case number n of a soak (soak.h).  Even ones walk through numbers in turn, where that is allowed.
 * The others are random: values of the table of factors (factors.h), then other fields. */
#include "tests/harness/cases/soak.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/base/fileio.h"
#include "tests/harness/base/fill.h"
#include "tests/harness/cases/tiers.h"

/* The random numbers of a case, and the claims that limit its values. */
struct dice {
    uint64_t seed, number, rolls; /* number: of the case; rolls: numbers taken so far */
    const struct attn_claims *claims;
    enum attn_route route;
};

static uint64_t roll(struct dice *d, uint64_t n)
{
    return attn_hash(d->seed, d->number, d->rolls++) % n;
}

/* 1 in n. */
static int rarely(struct dice *d, uint64_t n)
{
    return roll(d, n) == 0;
}

static int claims(const struct dice *d, unsigned all_of)
{
    return (d->claims->bits & all_of) == all_of;
}

/* ---- from the table ----------------------------------------------------------------------- */

/* Factors below SHAPE are of the problem's shape.  DRAWS: trials before one gives up. */
enum { SHAPE = ATTN_FACTOR_KEYS + 1, DRAWS = 100 };
#define ANY_WORK 1e300 /* no limit */

/* A value of a factor.  The neutral value 0 comes in half of the draws, of a shape in a quarter, so
 * that an unusual value shows beside it.  Half of the other draws of an extent are among those
 * that the table itself has drawn (first_any). */
static int value_of(struct dice *d, const struct attn_factors *t, int factor)
{
    const int n = t->of[factor].n, any = factor < ATTN_EXTENTS ? t->first_any[factor] : n;
    if (rarely(d, factor < SHAPE ? 4 : 2))
        return 0;
    return any < n && rarely(d, 2) ? any + (int)roll(d, (uint64_t)(n - any))
                                   : (int)roll(d, (uint64_t)n);
}

/* Draws values of the factors [from, to) that are possible beside the others of the choice.  The
 * first draw of at most most_work is taken; if there is none, that of least work.  If no draw is
 * possible, the choice stays.  A limit keeps cases small, so that a soak asks many. */
static void draw_values(struct dice *d, const struct attn_factors *t, int from, int to,
                        double most_work, struct attn_choice *choice)
{
    const struct attn_choice before = *choice;
    double least_work = HUGE_VAL;
    for (int n = 0; n < DRAWS && least_work > most_work; n++) {
        struct attn_choice drawn = before;
        for (int f = from; f < to; f++)
            drawn.value[f] = value_of(d, t, f);
        double work = attn_choice_work(t, &drawn);
        if (work >= least_work || !attn_choice_is_possible(t, &drawn))
            continue;
        *choice = drawn;
        least_work = work;
    }
}

/* Joins the mask of another draw to that of c, by & or |. */
static void compose(struct dice *d, const struct attn_factors *t, const struct attn_choice *choice,
                    struct attn_case *c)
{
    struct attn_choice other = *choice;
    struct attn_case also;
    char mask[ATTN_CASE_MASK];
    draw_values(d, t, ATTN_FACTOR_WINDOW, ATTN_FACTOR_SCALE, ANY_WORK, &other);
    attn_choice_case(t, &other, 0, &also);
    size_t n = (size_t)snprintf(mask, sizeof mask, "(%s)%s%s", c->mask, rarely(d, 2) ? "&" : "|",
                                also.mask);
    if (n < sizeof mask && strcmp(also.mask, "none") != 0 && strcmp(c->mask, "none") != 0)
        memcpy(c->mask, mask, n + 1);
}

/* ---- fields that no factor has ------------------------------------------------------------ */

/* Fields that only our own are asked. */
static void own_fields(struct dice *d, struct attn_case *c)
{
    if (c->bias > ATTN_CASE_BIAS_ALIBI && rarely(d, 4) && c->dtype == ATTN_F32)
        c->bias_type = ATTN_BIAS_TYPE_F64;
    if (rarely(d, 6))
        c->threads = 2 + (int)roll(d, 3);
    if (c->dtype == ATTN_BF16 || c->dtype == ATTN_F16)
        c->wide = rarely(d, 2);
}

static void random_fields(struct dice *d, struct attn_case *c)
{
    int strides = claims(d, ATTN_CAP_STRIDES) && d->route != ATTN_ROUTE_FILES;
    int64_t *const extent[] = {&c->batch, &c->n_query, &c->n_key, &c->d_key};
    if (rarely(d, 20) && claims(d, ATTN_CAP_EMPTY) &&
        !(d->claims->declines & ATTN_PLUGIN_FEW_SHAPES))
        *extent[roll(d, 4)] = 0;
    if (rarely(d, 2))
        c->fill = (enum attn_fill)roll(d, ATTN_FILL_POWERS);
    if (c->bias > ATTN_CASE_BIAS_ALIBI && rarely(d, 8))
        c->bias = ATTN_CASE_BIAS_NAN;
    if (c->bias == ATTN_CASE_BIAS_ALIBI) {
        c->slopes = (enum attn_case_slopes)roll(d, 2);
        c->has_alibi_offset = (int)roll(d, 2);
        c->alibi_offset = c->has_alibi_offset ? (int64_t)roll(d, 40) - 20 : 0;
    }
    if (rarely(d, 3) && strides)
        c->layout = (enum attn_case_layout)roll(d, ATTN_LAYOUT_FLIP + 1);
    if (rarely(d, 4) && strides)
        c->offset = (int)roll(d, 16);
    if (rarely(d, 3) && claims(d, ATTN_CAP_HARD))
        c->poison = (enum attn_case_poison)roll(d, ATTN_POISON_BIG + 1);
    if (rarely(d, 8))
        c->special = (enum attn_case_special)roll(d, ATTN_SPECIAL_K_HUGE + 1);
    if (c->pass == ATTN_FORWARD && attn_case_special_is_backward(c->special))
        c->special = ATTN_SPECIAL_NONE;
    if (d->route == ATTN_ROUTE_OWN)
        own_fields(d, c);
}

/* f32 in three of four where it is claimed. */
static enum attn_dtype random_type(struct dice *d)
{
    enum attn_dtype type = ATTN_F32;
    if ((d->claims->bits & 15u) == 0 || (!rarely(d, 4) && claims(d, ATTN_CAP_F32)))
        return type;
    do
        type = (enum attn_dtype)roll(d, ATTN_DTYPES);
    while (!claims(d, 1u << type));
    return type;
}

/* ---- in turn ------------------------------------------------------------------------------ */

static const int widths_v[] = {96, 17, 64, 128, 1, 48}, windows[] = {100, 64, 17, 16, 15, 8, 7};
static const double caps[] = {50, 30, 0.5, 0};

/* Element n of a table that begins again at its end. */
#define IN_TURN(table, n) ((table)[(n) % (sizeof(table) / sizeof *(table))])

/* Every second case: one extent goes through its numbers.  The rest is small and plain, so that an
 * error shows in each output.  kind says which: 0 widths, 1 heads and groups, 2 batches, 3 lengths,
 * each of which leaves another tail of 64. */
static void walk(struct dice *d, struct attn_case *c)
{
    const uint64_t turn = d->number / 8;
    const int kind = (int)(d->number / 2 % 4), cross = claims(d, ATTN_CAP_CROSS);
    const int64_t i = (int64_t)turn, tail = i % 64;
    c->batch = kind == 2 ? 1 + i % 16 : 1;
    c->kv_heads = kind == 1 ? (i % 2 == 0 ? 1 + i / 2 % 32 : 1 + i / 32 % 2) : 1;
    c->heads = c->kv_heads * (kind != 1 ? 2 : i % 2 == 0 ? 2 : 1 + i / 2 % 16);
    c->d_key = kind == 0 ? 8 * (1 + i % 32) : 8 + 8 * (i % 3);
    c->d_value = kind == 2 && claims(d, ATTN_CAP_DV) ? IN_TURN(widths_v, i) : c->d_key;
    c->n_query = kind < 3 ? 9 + i % 11 : cross ? 17 + i % 5 : 128 + tail;
    c->n_key = !cross ? c->n_query : kind < 3 ? 9 + i % 13 : 64 * (2 + i / 64 * 5 % 15) + tail;
    attn_case_reshape(d->claims, c);
    c->softcap = kind == 2 && claims(d, ATTN_CAP_SOFTCAP) ? IN_TURN(caps, i) : 0;
    c->pass = claims(d, ATTN_CAP_BACKWARD) ? ATTN_BACKWARD : ATTN_FORWARD;
    c->dtype = random_type(d);
    c->seed = roll(d, 1000000);
    const char *end = d->claims->causal == ATTN_PLUGIN_CAUSAL_TL ? "tl" : "br";
    if (kind == 3 && claims(d, ATTN_CAP_BAND))
        attn_append(c->mask, ATTN_CASE_MASK, "window(%d,%d,%s)", IN_TURN(windows, i),
                    IN_TURN(windows, i), end);
    else if ((kind + i / 2) % 2 == 0 && claims(d, ATTN_CAP_CAUSAL) && c->n_query <= c->n_key)
        attn_append(c->mask, ATTN_CASE_MASK, "causal(%s)", end);
    else
        attn_append(c->mask, ATTN_CASE_MASK, "none");
}

/* ---- at random ---------------------------------------------------------------------------- */

/* V becomes a view of K, where the fill and the rest of the case let it. */
static void share_keys(struct dice *d, struct attn_case *c)
{
    struct attn_case shared = *c, parsed;
    char text[ATTN_CASE_TEXT];
    if (!claims(d, ATTN_CAP_KV_SHARED) || !rarely(d, 4))
        return;
    shared.kv_shared = 1;
    shared.d_value = c->d_value < c->d_key ? c->d_value : c->d_key;
    attn_case_print(&shared, text);
    if (attn_case_parse(text, &parsed, NULL) == ATTN_OK)
        *c = parsed;
}

static void draw(struct dice *d, struct attn_case *c)
{
    struct attn_factors table;
    struct attn_choice choice = {.value = {0}};
    struct dice few = {d->seed, d->number % ATTN_FEW_SHAPES, 0, d->claims, d->route};
    struct dice *shape = d->claims->declines & ATTN_PLUGIN_FEW_SHAPES ? &few : d;
    attn_factors_open(d->claims, d->route, roll(shape, 1000000), ATTN_TIER_FULL, &table);
    draw_values(shape, &table, 0, SHAPE, rarely(shape, 12) ? 3e6 : 1.5e5, &choice);
    draw_values(d, &table, SHAPE, ATTN_FACTORS, ANY_WORK, &choice);
    attn_choice_case(&table, &choice, roll(d, 1000000), c);
    if (rarely(d, 3) && claims(d, ATTN_CAP_DENSE))
        compose(d, &table, &choice, c);
    random_fields(d, c);
    if (c->fill == ATTN_FILL_SELECT || c->fill == ATTN_FILL_REVEAL) { /* exact only without these */
        c->softcap = 0;
        c->bias = ATTN_CASE_BIAS_NONE;
        c->bias_type = ATTN_BIAS_TYPE_AS_LSE;
        c->slopes = ATTN_SLOPES_HALVES;
        c->has_alibi_offset = c->d_bias = 0;
        c->alibi_offset = 0;
        c->special = ATTN_SPECIAL_NONE;
        if (c->layout == ATTN_LAYOUT_BROADCAST)
            c->layout = ATTN_LAYOUT_BHLD;
    }
    share_keys(d, c);
}

static int is_allowed(const struct dice *d, const struct attn_case *c)
{
    struct attn_case parsed;
    char text[ATTN_CASE_TEXT];
    attn_case_print(c, text);
    if (c->kv_shared && attn_case_parse(text, &parsed, NULL) != ATTN_OK)
        return 0; /* V has to be a tensor of its own */
    return attn_claims_allow_case(d->claims, c, d->route, NULL) == ATTN_OK;
}

void attn_soak_case(const struct attn_soak_source *source, uint64_t number, struct attn_case *c)
{
    struct dice dice = {source->seed, number, 0, source->claims, source->route};
    const int few = (source->claims->declines & ATTN_PLUGIN_FEW_SHAPES) != 0;
    *c = (struct attn_case){.scale = (double)NAN};
    if (number % 2 == 0 && !few) {
        walk(&dice, c);
        attn_case_narrow(source->claims, c);
        if (is_allowed(&dice, c))
            return;
    }
    for (int n = 0; n == 0 || (n < DRAWS && !is_allowed(&dice, c)); n++) {
        draw(&dice, c);
        attn_case_narrow(source->claims, c);
    }
}
