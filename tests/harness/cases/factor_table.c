/* The table of factors, and what claims leave of it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/base/fill.h"
#include "tests/harness/cases/claims.h"
#include "tests/harness/cases/factors.h"

const struct attn_factor attn_factor[ATTN_FACTORS] = {
#define ATTN_FACTOR(id, name, says, shows, ...) \
    {name, says, shows, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *), {__VA_ARGS__}},
#include "tests/harness/cases/factors.def"
#undef ATTN_FACTOR
};

/* ---- the table as claims leave it ------------------------------------------------------------ */

static int has(const struct attn_claims *claims, unsigned any_of)
{
    return (claims->bits & any_of) != 0;
}

/* Causal numbers come at one end; without `cross` both ends are the same, and have one name. */
static int is_aligned(const struct attn_claims *claims, const char *value)
{
    int tl = strcmp(value, "tl") == 0;
    int only_tl = claims->causal == ATTN_PLUGIN_CAUSAL_TL;
    if (!has(claims, ATTN_CAP_CROSS) ||
        (claims->causal == ATTN_PLUGIN_CAUSAL_SQUARE && !has(claims, ATTN_CAP_DENSE)))
        return tl == only_tl;
    return has(claims, ATTN_CAP_DENSE) || claims->causal == ATTN_PLUGIN_CAUSAL_ANY || tl == only_tl;
}

static int is_claimed(const struct attn_claims *claims, int factor, const char *value)
{
    const unsigned bytes = ATTN_CAP_DENSE;
    int inf = strcmp(value, "inf") == 0;
    switch ((enum attn_factor_id)factor) {
    case ATTN_FACTOR_DV:
        return has(claims, ATTN_CAP_DV);
    case ATTN_FACTOR_GROUP:
        return has(claims, ATTN_CAP_GQA);
    case ATTN_FACTOR_KEYS:
        return has(claims, ATTN_CAP_CROSS);
    case ATTN_FACTOR_WINDOW:
        return has(claims, ATTN_CAP_BAND | bytes);
    case ATTN_FACTOR_CAUSAL:
        if (value[0] == '+')
            return has(claims, bytes) ||
                   (has(claims, ATTN_CAP_BAND) && claims->causal == ATTN_PLUGIN_CAUSAL_ANY);
        return has(claims, ATTN_CAP_CAUSAL | bytes) && is_aligned(claims, value);
    case ATTN_FACTOR_MASK:
        return has(claims, bytes) ||
               (attn_claims_are_packed(claims) && strcmp(value, "documents") == 0) ||
               (claims->layout == ATTN_PLUGIN_PAGED && strcmp(value, "lengths") == 0);
    case ATTN_FACTOR_SCALE:
        return has(claims, ATTN_CAP_SCALE) &&
               (strtod(value, NULL) > 0 || !(claims->declines & ATTN_PLUGIN_SCALE_0));
    case ATTN_FACTOR_SOFTCAP:
        return has(claims, ATTN_CAP_SOFTCAP);
    case ATTN_FACTOR_BIAS:
        return strcmp(value, "alibi") == 0
                   ? has(claims, ATTN_CAP_ALIBI)
                   : has(claims, ATTN_CAP_BIAS) && (!inf || has(claims, ATTN_CAP_EMPTY));
    case ATTN_FACTOR_DBIAS:
        return has(claims, ATTN_CAP_DBIAS) && has(claims, ATTN_CAP_BACKWARD);
    case ATTN_FACTOR_DLSE:
        return has(claims, ATTN_CAP_DLSE) && has(claims, ATTN_CAP_BACKWARD);
    case ATTN_FACTOR_SINK:
        return has(claims, ATTN_CAP_SINK);
    case ATTN_FACTOR_KV:
        return has(claims, ATTN_CAP_KV_SHARED);
    case ATTN_FACTOR_PASS:
        return has(claims, ATTN_CAP_BACKWARD);
    default:
        return 1;
    }
}

static int is_type_claimed(const struct attn_claims *claims, const char *value)
{
    for (int type = 0; type < ATTN_DTYPES; type++)
        if (strcmp(attn_dtype_name((enum attn_dtype)type), value) == 0)
            return has(claims, 1u << type);
    return 0;
}

/* A value of the table; of an extent also whether it was declared.  "=" and "no" are no numbers. */
static int is_left(const struct attn_claims *claims, int factor, int value)
{
    const char *text = attn_factor[factor].value[value];
    int is_number = factor < ATTN_EXTENTS && *text >= '0' && *text <= '9';
    if (factor == ATTN_FACTOR_DTYPE)
        return is_type_claimed(claims, text);
    if (value > 0 && !is_claimed(claims, factor, text))
        return 0;
    return !is_number || attn_shapes_have(&claims->shapes, factor, strtoll(text, NULL, 10));
}

int attn_value_called(const struct attn_factors *t, int factor, const char *name)
{
    for (int v = 0; v < t->of[factor].n; v++)
        if (strcmp(t->of[factor].value[v], name) == 0)
            return v;
    return -1;
}

static void add_number(struct attn_factors *t, int factor, int64_t number)
{
    struct attn_factor *f = &t->of[factor];
    char *text = t->text[factor][f->n < ATTN_FACTOR_VALUES ? f->n : 0], name[24];
    snprintf(name, sizeof name, "%" PRId64, number);
    if (f->n == ATTN_FACTOR_VALUES || strlen(name) >= sizeof t->text[0][0] ||
        attn_value_called(t, factor, name) >= 0)
        return;
    memcpy(text, name, strlen(name) + 1);
    f->value[f->n++] = text;
}

/* Up to which number a value of an extent is drawn. */
static const int64_t largest[ATTN_EXTENTS] = {256, 256, 64, 16, 16, 600, 1100, 600};

static int64_t draw(const struct attn_factors *t, int factor, uint64_t seed, uint64_t n)
{
    enum { STREAM_ANY = 200 };
    int64_t any = 1 + (int64_t)(attn_hash(seed, STREAM_ANY + (uint64_t)factor, n) %
                                (uint64_t)largest[factor]);
    return attn_shapes_nearest(&t->claims->shapes, factor, any);
}

/* The ends and the first and last steps of a declared range. */
static void add_declared(struct attn_factors *t, int factor)
{
    for (int r = 0; r < t->claims->shapes.of[factor].n; r++) {
        const struct attn_range *x = &t->claims->shapes.of[factor].range[r];
        int64_t last = attn_shapes_nearest(&t->claims->shapes, factor, x->to);
        add_number(t, factor, x->from);
        if (x->to > x->from && x->to <= 4 * largest[factor]) {
            add_number(t, factor, last);
            add_number(t, factor, x->from + x->step <= last ? x->from + x->step : last);
            add_number(t, factor, last - x->step >= x->from ? last - x->step : last);
        }
    }
}

/* Add `more` numbers, drawn by the seed. */
static void draw_some(struct attn_factors *t, int factor, uint64_t seed, int more)
{
    enum { DRAWS = 60 };
    int goal = t->of[factor].n + more;
    for (int n = 0; n < DRAWS && t->of[factor].n < goal; n++)
        add_number(t, factor, draw(t, factor, seed, (uint64_t)n));
}

static void open_extent(struct attn_factors *t, int factor, uint64_t seed, enum attn_tier tier)
{
    int declared = t->claims->shapes.of[factor].n > 0;
    int is_free = t->of[factor].n > 1 || is_claimed(t->claims, factor, "");
    if (declared && is_free)
        add_declared(t, factor);
    t->first_any[factor] = t->of[factor].n;
    if (is_free)
        draw_some(t, factor, seed, declared ? 4 : 1);
    t->n_quick[factor] = t->of[factor].n;
    if (is_free && tier == ATTN_TIER_FULL)
        draw_some(t, factor, seed, 1);
}

int64_t attn_choice_number(const struct attn_factors *t, const struct attn_choice *choice,
                           int factor)
{
    int64_t number = t->number[factor][choice->value[factor]];
    if (number != ATTN_NUMBER_BESIDE)
        return number;
    const int is_dv = factor == ATTN_FACTOR_DV;
    int64_t beside = attn_choice_number(t, choice, is_dv ? ATTN_FACTOR_D : ATTN_FACTOR_QUERIES);
    return t->claims->bits & (is_dv ? ATTN_CAP_DV : ATTN_CAP_CROSS)
               ? attn_shapes_nearest(&t->claims->shapes, factor, beside)
               : beside;
}

static void make_first(struct attn_factors *t, int factor, int value)
{
    const char *first = t->of[factor].value[0];
    t->of[factor].value[0] = t->of[factor].value[value];
    t->of[factor].value[value] = first;
}

/* Neutral is the number nearest to the table's own neutral one. */
static void choose_neutral(struct attn_factors *t, int factor)
{
    char name[24];
    const char *neutral = attn_factor[factor].value[0];
    if (*neutral < '0' || *neutral > '9')
        return;
    int64_t nearest = attn_shapes_nearest(&t->claims->shapes, factor, strtoll(neutral, NULL, 10));
    snprintf(name, sizeof name, "%" PRId64, nearest);
    add_number(t, factor, nearest);
    make_first(t, factor, attn_value_called(t, factor, name));
}

static void read_numbers(struct attn_factors *t)
{
    for (int f = 0; f < ATTN_EXTENTS; f++)
        for (int v = 0; v < t->of[f].n; v++) {
            const char *text = t->of[f].value[v];
            t->number[f][v] = *text == '=' ? ATTN_NUMBER_BESIDE : strtoll(text, NULL, 10);
        }
}

/* Heads that the neutral group divides; more than one key for one query. */
static void match_neutrals(struct attn_factors *t)
{
    const struct attn_choice neutral = {.value = {0}};
    int64_t group = attn_choice_number(t, &neutral, ATTN_FACTOR_GROUP);
    struct attn_choice c = neutral;
    while (c.value[ATTN_FACTOR_HEADS] < t->of[ATTN_FACTOR_HEADS].n - 1 &&
           attn_choice_number(t, &c, ATTN_FACTOR_HEADS) % group != 0)
        c.value[ATTN_FACTOR_HEADS]++;
    make_first(t, ATTN_FACTOR_HEADS, c.value[ATTN_FACTOR_HEADS]);
    int sixteen = attn_value_called(t, ATTN_FACTOR_KEYS, "16");
    if (attn_choice_number(t, &neutral, ATTN_FACTOR_QUERIES) == 1 && sixteen > 0)
        make_first(t, ATTN_FACTOR_KEYS, sixteen);
}

void attn_factors_open(const struct attn_claims *claims, enum attn_route route, uint64_t seed,
                       enum attn_tier tier, struct attn_factors *t)
{
    memset(t, 0, sizeof *t);
    t->claims = claims;
    t->takes_numbers = route != ATTN_ROUTE_OWN;
    for (int f = 0; f < ATTN_FACTORS; f++) {
        t->of[f] = attn_factor[f];
        t->of[f].n = 0;
        for (int v = 0; v < attn_factor[f].n; v++)
            if (is_left(claims, f, v))
                t->of[f].value[t->of[f].n++] = attn_factor[f].value[v];
    }
    for (int f = 0; f < ATTN_EXTENTS; f++) {
        choose_neutral(t, f);
        open_extent(t, f, seed, tier);
    }
    read_numbers(t);
    match_neutrals(t);
    read_numbers(t);
}
