/* The table of factors, what claims leave of it, and what a choice of values means. */
#include "tests/harness/cases/factors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/cases/claims.h"
#include "tests/harness/files/fileio.h"

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
    if (!has(claims, ATTN_PLUGIN_CROSS) || (claims->causal == ATTN_PLUGIN_CAUSAL_SQUARE &&
                                            !has(claims, ATTN_PLUGIN_DENSE)))
        return tl == only_tl;
    return has(claims, ATTN_PLUGIN_DENSE) || claims->causal == ATTN_PLUGIN_CAUSAL_ANY ||
           tl == only_tl;
}

static int is_claimed(const struct attn_claims *claims, int factor, const char *value)
{
    const unsigned bytes = ATTN_PLUGIN_DENSE;
    int inf = strcmp(value, "inf") == 0;
    switch ((enum attn_factor_id)factor) {
    case ATTN_FACTOR_DV:
        return has(claims, ATTN_PLUGIN_DV);
    case ATTN_FACTOR_GROUP:
        return has(claims, ATTN_PLUGIN_GQA);
    case ATTN_FACTOR_KEYS:
        return has(claims, ATTN_PLUGIN_CROSS);
    case ATTN_FACTOR_WINDOW:
        return has(claims, ATTN_PLUGIN_BAND | bytes);
    case ATTN_FACTOR_CAUSAL:
        if (value[0] == '+')
            return has(claims, bytes) || (has(claims, ATTN_PLUGIN_BAND) &&
                                          claims->causal == ATTN_PLUGIN_CAUSAL_ANY);
        return has(claims, ATTN_PLUGIN_CAUSAL | bytes) && is_aligned(claims, value);
    case ATTN_FACTOR_MASK:
        return has(claims, bytes) || (claims->layout == ATTN_CLAIMS_THD && *value == 'd' &&
                                      strcmp(value, "documents") == 0);
    case ATTN_FACTOR_SCALE:
        return has(claims, ATTN_PLUGIN_SCALE) &&
               (strtod(value, NULL) > 0 || !(claims->declines & ATTN_PLUGIN_SCALE_0));
    case ATTN_FACTOR_SOFTCAP:
        return has(claims, ATTN_PLUGIN_SOFTCAP);
    case ATTN_FACTOR_BIAS:
        return strcmp(value, "alibi") == 0 ? has(claims, ATTN_PLUGIN_ALIBI)
                                           : has(claims, ATTN_PLUGIN_BIAS) &&
                                                 (!inf || has(claims, ATTN_PLUGIN_EMPTY));
    case ATTN_FACTOR_DBIAS:
        return has(claims, ATTN_PLUGIN_DBIAS) && has(claims, ATTN_PLUGIN_BACKWARD);
    case ATTN_FACTOR_DLSE:
        return has(claims, ATTN_PLUGIN_DLSE) && has(claims, ATTN_PLUGIN_BACKWARD);
    case ATTN_FACTOR_PASS:
        return has(claims, ATTN_PLUGIN_BACKWARD);
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

/* So many numbers more, drawn by the seed. */
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
    int64_t nearest =
        attn_shapes_nearest(&t->claims->shapes, factor, strtoll(neutral, NULL, 10));
    snprintf(name, sizeof name, "%" PRId64, nearest);
    add_number(t, factor, nearest);
    make_first(t, factor, attn_value_called(t, factor, name));
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
    match_neutrals(t);
}

/* ---- what values mean ------------------------------------------------------------------------ */

static const char *value_of(const struct attn_factors *t, const struct attn_choice *choice,
                            int factor)
{
    return t->of[factor].value[choice->value[factor]];
}

static int is(const struct attn_factors *t, const struct attn_choice *choice, int factor,
              const char *value)
{
    return strcmp(value_of(t, choice, factor), value) == 0;
}

int64_t attn_choice_number(const struct attn_factors *t, const struct attn_choice *choice,
                           int factor)
{
    const char *text = value_of(t, choice, factor);
    if (*text == '=')
        factor = factor == ATTN_FACTOR_DV ? ATTN_FACTOR_D : ATTN_FACTOR_QUERIES;
    return strtoll(value_of(t, choice, factor), NULL, 10);
}

double attn_case_work(const struct attn_case *c)
{
    double queries = (double)c->n_query, keys = (double)c->n_key;
    double width = 0.5 * (double)(c->d_key + c->d_value);
    return (double)c->batch * (double)c->heads *
           (queries * keys * (16 + width) + 12 * (queries + keys) * width);
}

static void make_shape(const struct attn_factors *t, const struct attn_choice *choice,
                       struct attn_case *c)
{
    c->batch = attn_choice_number(t, choice, ATTN_FACTOR_BATCH);
    c->heads = attn_choice_number(t, choice, ATTN_FACTOR_HEADS);
    c->kv_heads = c->heads / attn_choice_number(t, choice, ATTN_FACTOR_GROUP);
    c->n_query = attn_choice_number(t, choice, ATTN_FACTOR_QUERIES);
    c->n_key = attn_choice_number(t, choice, ATTN_FACTOR_KEYS);
    c->d_key = attn_choice_number(t, choice, ATTN_FACTOR_D);
    c->d_value = attn_choice_number(t, choice, ATTN_FACTOR_DV);
}

double attn_choice_work(const struct attn_factors *t, const struct attn_choice *choice)
{
    struct attn_case c = {0};
    make_shape(t, choice, &c);
    return attn_case_work(&c);
}

/* Causal, or a window: a band of keys along the diagonal. */
struct diagonal {
    int is_band, is_causal;
    int64_t queries, keys, reach; /* reach: -1 without a window */
    int64_t offset;               /* of the key at which query 0 sits */
};

static struct diagonal diagonal_of(const struct attn_factors *t, const struct attn_choice *choice)
{
    int is_window = choice->value[ATTN_FACTOR_WINDOW] != 0;
    struct diagonal x = {.is_causal = choice->value[ATTN_FACTOR_CAUSAL] != 0,
                         .queries = attn_choice_number(t, choice, ATTN_FACTOR_QUERIES),
                         .keys = attn_choice_number(t, choice, ATTN_FACTOR_KEYS),
                         .reach = -1};
    int is_tl = is(t, choice, ATTN_FACTOR_CAUSAL, "tl") ||
                (!x.is_causal && t->claims->causal == ATTN_PLUGIN_CAUSAL_TL);
    x.is_band = x.is_causal || is_window;
    x.reach = is_window ? attn_choice_number(t, choice, ATTN_FACTOR_WINDOW) : -1;
    x.offset = is_tl                                      ? 0
               : is(t, choice, ATTN_FACTOR_CAUSAL, "+3") ? 3
                                                         : x.keys - x.queries;
    return x;
}

/* Some query sees no key. */
static int may_be_empty(const struct attn_factors *t, const struct attn_choice *choice)
{
    struct diagonal x = diagonal_of(t, choice);
    int first = x.is_causal ? x.offset < 0 : x.reach >= 0 && x.offset + x.reach < 0;
    int last = x.reach >= 0 && x.queries - 1 + x.offset - x.reach > x.keys - 1;
    int from_start = is(t, choice, ATTN_FACTOR_MASK, "prefix") ||
                     is(t, choice, ATTN_FACTOR_MASK, "lengths") ||
                     is(t, choice, ATTN_FACTOR_MASK, "global(3)") ||
                     (is(t, choice, ATTN_FACTOR_MASK, "documents") && x.queries == x.keys);
    if (choice->value[ATTN_FACTOR_MASK] == 0 || !x.is_band)
        return x.is_band && (first || last);
    return first || x.reach >= 0 || x.offset != 0 || !from_start;
}

/* A mask over few cells, or beside another call, may leave nothing to be seen; one that goes by
 * position does beside a window unless there are as many keys as queries. */
static int shows_something(const struct attn_factors *t, const struct attn_choice *choice)
{
    struct diagonal x = diagonal_of(t, choice);
    int by_place = is(t, choice, ATTN_FACTOR_MASK, "prefix") ||
                   is(t, choice, ATTN_FACTOR_MASK, "lengths") ||
                   is(t, choice, ATTN_FACTOR_MASK, "documents");
    int only_square = t->claims->causal == ATTN_PLUGIN_CAUSAL_SQUARE &&
                      !(t->claims->bits & ATTN_PLUGIN_DENSE);
    if ((!(t->claims->bits & ATTN_PLUGIN_EMPTY) && may_be_empty(t, choice)) ||
        (only_square && x.is_band && x.queries != x.keys))
        return 0;
    if (choice->value[ATTN_FACTOR_MASK] == 0)
        return x.reach < 0 || !is(t, choice, ATTN_FACTOR_CAUSAL, "+3") || x.keys >= 15;
    if (by_place && x.reach >= 0 && x.queries != x.keys)
        return 0;
    if (is(t, choice, ATTN_FACTOR_MASK, "keys(bk90)") && x.keys == 1)
        return 0; /* by chance */
    return x.is_band ? x.queries >= 15 && x.keys >= 15 : x.queries >= 15 || x.keys >= 15;
}

static int keeps_shapes(const struct attn_factors *t, const struct attn_choice *choice)
{
    for (int f = 0; f < ATTN_FACTOR_WINDOW; f++)
        if (!attn_shapes_have(&t->claims->shapes, f, attn_choice_number(t, choice, f)))
            return 0;
    return 1;
}

int attn_choice_is_possible(const struct attn_factors *t, const struct attn_choice *choice)
{
    static const int beside[] = {ATTN_FACTOR_DV, ATTN_FACTOR_D, ATTN_FACTOR_KEYS,
                                 ATTN_FACTOR_QUERIES};
    int is_tensor = !is(t, choice, ATTN_FACTOR_BIAS, "none") &&
                    !is(t, choice, ATTN_FACTOR_BIAS, "alibi");
    int is_forward = is(t, choice, ATTN_FACTOR_PASS, "fwd");
    int names_usual = is(t, choice, ATTN_FACTOR_SCALE, "1") && is(t, choice, ATTN_FACTOR_D, "1");
    for (int n = 0; n < 4; n += 2) /* an extent that has the other one's name */
        if (*value_of(t, choice, beside[n]) != '=' &&
            attn_choice_number(t, choice, beside[n]) ==
                attn_choice_number(t, choice, beside[n + 1]))
            return 0;
    return !names_usual && shows_something(t, choice) && keeps_shapes(t, choice) &&
           attn_choice_number(t, choice, ATTN_FACTOR_HEADS) %
                   attn_choice_number(t, choice, ATTN_FACTOR_GROUP) ==
               0 &&
           !(is(t, choice, ATTN_FACTOR_DBIAS, "1") && (!is_tensor || is_forward)) &&
           !(is(t, choice, ATTN_FACTOR_DLSE, "1") && is_forward);
}

/* ---- when a value shows ---------------------------------------------------------------------- */

#define BIT(factor) (1u << ATTN_FACTOR_##factor)

/* Something that hides errors under values of the factors in `scope`.  by: because of the values of
 * these, so that a pair of them has no other case; 0: nothing shows there in any. */
struct veil {
    unsigned scope, by;
};
enum { VEILS = 20, ALL = (1 << ATTN_FACTORS) - 1 };

static void add_veil(struct veil veil[VEILS], int *n, int holds, unsigned scope, unsigned by)
{
    if (holds)
        veil[(*n)++] = (struct veil){scope, by};
}

/* Scores, dQ and dK show nothing: one key for every query, or a scale of 0. */
static int flat_veils(const struct attn_factors *t, const struct attn_choice *choice,
                      const struct diagonal *x, struct veil veil[VEILS])
{
    int is_square = *value_of(t, choice, ATTN_FACTOR_KEYS) == '=', n = 0;
    unsigned keys = !is_square ? BIT(KEYS)
                    : t->of[ATTN_FACTOR_KEYS].n > 1 ? BIT(QUERIES) | BIT(KEYS)
                                                    : BIT(QUERIES);
    add_veil(veil, &n, x->keys == 1, ALL, keys);
    add_veil(veil, &n, x->reach == 0, ALL, BIT(WINDOW));
    add_veil(veil, &n, x->is_causal && x->queries == 1 && x->offset == 0 && x->keys > 1, ALL,
             BIT(QUERIES) | BIT(CAUSAL));
    add_veil(veil, &n, is(t, choice, ATTN_FACTOR_SCALE, "0"), ALL, BIT(SCALE));
    return n;
}

/* The table's column `shows`, and its note on every value. */
static int veils(const struct attn_factors *t, const struct attn_choice *choice,
                 struct veil veil[VEILS])
{
    const struct diagonal x = diagonal_of(t, choice);
    const unsigned bits = t->takes_numbers ? t->claims->bits : 0;
    int n = flat_veils(t, choice, &x, veil), masked = choice->value[ATTN_FACTOR_MASK] != 0;
    int one_batch = attn_choice_number(t, choice, ATTN_FACTOR_BATCH) == 1;
    int narrow = is(t, choice, ATTN_FACTOR_DTYPE, "bf16") || is(t, choice, ATTN_FACTOR_DTYPE, "f16");
    /* nothing is hidden */
    add_veil(veil, &n, x.reach >= 0 && x.queries - 1 + x.offset - x.reach <= 0 &&
                           (x.is_causal || x.offset + x.reach >= x.keys - 1),
             BIT(WINDOW), 0);
    add_veil(veil, &n, x.is_causal && x.offset >= x.keys - 1, BIT(CAUSAL), 0);
    add_veil(veil, &n, masked && (x.queries < 5 || x.keys < 5), BIT(MASK), 0);
    add_veil(veil, &n, one_batch && is(t, choice, ATTN_FACTOR_MASK, "lengths"), BIT(MASK), 0);
    /* numbers come as bytes */
    add_veil(veil, &n, masked && x.reach >= 0 && bits & ATTN_PLUGIN_BAND, BIT(WINDOW), 0);
    add_veil(veil, &n, masked && x.is_causal && bits & ATTN_PLUGIN_CAUSAL, BIT(CAUSAL), 0);
    /* too small a change; scores so large that all are at the cap, or one key has all the weight */
    int large = is(t, choice, ATTN_FACTOR_FILL, "outliers");
    int64_t d = attn_choice_number(t, choice, ATTN_FACTOR_D);
    add_veil(veil, &n, narrow && is(t, choice, ATTN_FACTOR_SOFTCAP, "30") && !large, BIT(SOFTCAP),
             0);
    add_veil(veil, &n, is(t, choice, ATTN_FACTOR_SOFTCAP, "0.5") &&
                           (large || (d > 16 && is(t, choice, ATTN_FACTOR_SCALE, "1"))),
             ALL, 0);
    /* data of models: with another scale or one feature one key has all the weight, and so it may
     * be for one query of several kinds */
    int usual = is(t, choice, ATTN_FACTOR_FILL, "normal") || is(t, choice, ATTN_FACTOR_FILL, "loud");
    add_veil(veil, &n, !usual && !is(t, choice, ATTN_FACTOR_SCALE, "default"), ALL,
             BIT(FILL) | BIT(SCALE));
    add_veil(veil, &n, !usual && d < 8, ALL, BIT(FILL) | BIT(D));
    add_veil(veil, &n, is(t, choice, ATTN_FACTOR_FILL, "rows") && x.queries < 5, ALL,
             BIT(FILL) | BIT(QUERIES));
    add_veil(veil, &n, one_batch && is(t, choice, ATTN_FACTOR_FILL, "scales"), BIT(FILL), 0);
    return n;
}

int attn_choice_shows(const struct attn_factors *t, const struct attn_choice *choice, int factor,
                      int other)
{
    struct veil veil[VEILS];
    const unsigned pair = 1u << factor | 1u << other;
    for (int n = veils(t, choice, veil) - 1; n >= 0; n--)
        if (veil[n].scope & pair && (veil[n].by == 0 || (veil[n].by & pair) != veil[n].by))
            return 0;
    return 1;
}

/* ---- the mask -------------------------------------------------------------------------------- */

/* Padding: each batch has a length of its own, the first is full, none is empty. */
static void lengths(const struct attn_case *c, char *mask)
{
    attn_append(mask, ATTN_CASE_MASK, "keys(");
    for (int64_t b = 0; b < c->batch; b++)
        attn_append(mask, ATTN_CASE_MASK, "%s%lld", b > 0 ? "," : "",
                    (long long)(c->n_key - b * c->n_key / (c->batch + 1)));
    attn_append(mask, ATTN_CASE_MASK, ")");
}

/* Three sequences in a batch; of few tokens, the last has all. */
static void documents(const struct attn_case *c, char *mask)
{
    long long q = c->n_query < 5 || c->n_key < 5 ? 0 : (long long)c->n_query / 5;
    long long k = q == 0 ? 0 : (long long)c->n_key / 5;
    attn_append(mask, ATTN_CASE_MASK, "documents(%lldx%lld,%lldx%lld,%lldx%lld)", q, k, 2 * q, k,
                (long long)c->n_query - 3 * q, (long long)c->n_key - 2 * k);
}

static void make_mask(const struct attn_factors *t, const struct attn_choice *choice,
                      struct attn_case *c)
{
    const char *causal = value_of(t, choice, ATTN_FACTOR_CAUSAL), *and = "";
    const char *mask = value_of(t, choice, ATTN_FACTOR_MASK);
    const char *end = t->claims->causal == ATTN_PLUGIN_CAUSAL_TL ? "tl" : "br";
    c->mask[0] = '\0';
    if (choice->value[ATTN_FACTOR_CAUSAL] != 0) {
        attn_append(c->mask, ATTN_CASE_MASK, "causal(%s)", causal);
        and = "&";
    }
    if (choice->value[ATTN_FACTOR_WINDOW] != 0) {
        const char *reach = value_of(t, choice, ATTN_FACTOR_WINDOW);
        attn_append(c->mask, ATTN_CASE_MASK, "%swindow(%s,%s,%s)", and, reach,
                    *and != '\0' ? "-1" : reach, *and != '\0' ? causal : end);
        and = "&";
    }
    if (choice->value[ATTN_FACTOR_MASK] == 0 && *and != '\0')
        return;
    attn_append(c->mask, ATTN_CASE_MASK, "%s", and);
    if (strcmp(mask, "lengths") == 0)
        lengths(c, c->mask);
    else if (strcmp(mask, "documents") == 0)
        documents(c, c->mask);
    else if (strcmp(mask, "prefix") == 0)
        attn_append(c->mask, ATTN_CASE_MASK, "prefix(%lld)", (long long)(c->n_key - c->n_key / 3));
    else
        attn_append(c->mask, ATTN_CASE_MASK, "%s", mask);
}

/* ---- the case -------------------------------------------------------------------------------- */

/* Written down as a case string and read: values are spelled as its fields are. */
void attn_choice_case(const struct attn_factors *t, const struct attn_choice *choice, uint64_t seed,
                      struct attn_case *c)
{
    static const int fields[] = {ATTN_FACTOR_PASS, ATTN_FACTOR_SCALE, ATTN_FACTOR_SOFTCAP,
                                 ATTN_FACTOR_BIAS, ATTN_FACTOR_DBIAS, ATTN_FACTOR_DLSE};
    char text[ATTN_CASE_TEXT];
    make_shape(t, choice, c);
    make_mask(t, choice, c);
    snprintf(text, sizeof text,
             "b%" PRId64 "h%" PRId64 "g%" PRId64 "q%" PRId64 "k%" PRId64 "d%" PRId64 "v%" PRId64
             ":%.*s:%s:%s:s%" PRIu64,
             c->batch, c->heads, c->kv_heads, c->n_query, c->n_key, c->d_key, c->d_value,
             ATTN_CASE_MASK, c->mask, value_of(t, choice, ATTN_FACTOR_DTYPE),
             value_of(t, choice, ATTN_FACTOR_FILL), seed);
    for (size_t f = 0; f < sizeof fields / sizeof *fields; f++)
        if (choice->value[fields[f]] != 0)
            attn_append(text, sizeof text, ":%s=%s", attn_factor[fields[f]].name,
                        value_of(t, choice, fields[f]));
    if (is(t, choice, ATTN_FACTOR_BIAS, "alibi"))
        attn_append(text, sizeof text, ":slopes=press");
    attn_case_parse(text, c, NULL);
}

void attn_choice_print(const struct attn_factors *t, const struct attn_choice *choice, char *text,
                       size_t size)
{
    text[0] = '\0';
    for (int f = 0; f < ATTN_FACTORS; f++) {
        int is_any = f < ATTN_EXTENTS && t->first_any[f] > 0 &&
                     choice->value[f] >= t->first_any[f];
        if (choice->value[f] != 0)
            attn_append(text, size, "%s%s=%s%s", text[0] != '\0' ? ", " : "", attn_factor[f].name,
                        value_of(t, choice, f), is_any ? " (any)" : "");
    }
}
