/* The meaning of a choice of values: its case, whether it can stand, and when its values show. */
#include "tests/harness/cases/factors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/base/fileio.h"
#include "tests/harness/cases/claims.h"

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
    x.offset = is_tl ? 0 : is(t, choice, ATTN_FACTOR_CAUSAL, "+3") ? 3 : x.keys - x.queries;
    return x;
}

/* Masks whose rows of few keys are empty by chance, or outside of a pattern's groups. */
static int may_miss_rows(const struct attn_factors *t, const struct attn_choice *choice)
{
    const char *mask = value_of(t, choice, ATTN_FACTOR_MASK);
    return strncmp(mask, "csr(", 4) == 0 || strncmp(mask, "dense(", 6) == 0 ||
           strncmp(mask, "skiparse(", 9) == 0;
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
    if (x.keys < (x.queries < 1000 ? 15 : 63) && may_miss_rows(t, choice))
        return 1;
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
    int only_square =
        t->claims->causal == ATTN_PLUGIN_CAUSAL_SQUARE && !(t->claims->bits & ATTN_CAP_DENSE);
    if ((!(t->claims->bits & ATTN_CAP_EMPTY) && may_be_empty(t, choice)) ||
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
    static const int beside[] = {ATTN_FACTOR_DV, ATTN_FACTOR_KEYS};
    int is_tensor =
        !is(t, choice, ATTN_FACTOR_BIAS, "none") && !is(t, choice, ATTN_FACTOR_BIAS, "alibi");
    int is_forward = is(t, choice, ATTN_FACTOR_PASS, "fwd");
    int names_usual = is(t, choice, ATTN_FACTOR_SCALE, "1") && is(t, choice, ATTN_FACTOR_D, "1");
    for (int n = 0; n < 2; n++) { /* an extent that has the other one's name */
        struct attn_choice same = *choice;
        same.value[beside[n]] = attn_value_called(t, beside[n], "=");
        if (*value_of(t, choice, beside[n]) != '=' && same.value[beside[n]] >= 0 &&
            attn_choice_number(t, choice, beside[n]) == attn_choice_number(t, &same, beside[n]))
            return 0;
    }
    return !names_usual && shows_something(t, choice) && keeps_shapes(t, choice) &&
           attn_choice_number(t, choice, ATTN_FACTOR_HEADS) %
                   attn_choice_number(t, choice, ATTN_FACTOR_GROUP) ==
               0 &&
           !(is(t, choice, ATTN_FACTOR_KV, "shared") &&
             attn_choice_number(t, choice, ATTN_FACTOR_DV) >
                 attn_choice_number(t, choice, ATTN_FACTOR_D)) &&
           !(is(t, choice, ATTN_FACTOR_DBIAS, "1") && (!is_tensor || is_forward)) &&
           !(is(t, choice, ATTN_FACTOR_DLSE, "1") && is_forward);
}

/* ---- when a value shows ---------------------------------------------------------------------- */

#define BIT(factor) (1u << ATTN_FACTOR_##factor)

/* Something that hides errors under values of the factors in `scope`.  by: because of the values of
 * these, so that a pair of them has no other case; 0: nothing shows there in any. */
struct hider {
    unsigned scope, by;
};
enum { HIDERS = 26, ALL = (1 << ATTN_FACTORS) - 1 };

static void add_hider(struct hider hider[HIDERS], int *n, int holds, unsigned scope, unsigned by)
{
    if (holds)
        hider[(*n)++] = (struct hider){scope, by};
}

/* Scores, dQ and dK show nothing: one key for every query, or a scale of 0. */
static int flat_hiders(const struct attn_factors *t, const struct attn_choice *choice,
                       const struct diagonal *x, struct hider hider[HIDERS])
{
    int is_square = *value_of(t, choice, ATTN_FACTOR_KEYS) == '=', n = 0;
    unsigned keys = !is_square                      ? BIT(KEYS)
                    : t->of[ATTN_FACTOR_KEYS].n > 1 ? BIT(QUERIES) | BIT(KEYS)
                                                    : BIT(QUERIES);
    add_hider(hider, &n, x->keys == 1, ALL, keys);
    add_hider(hider, &n, x->reach == 0, ALL, BIT(WINDOW));
    add_hider(hider, &n, x->is_causal && x->queries == 1 && x->offset == 0 && x->keys > 1, ALL,
              BIT(QUERIES) | BIT(CAUSAL));
    add_hider(hider, &n, is(t, choice, ATTN_FACTOR_SCALE, "0"), ALL, BIT(SCALE));
    /* three keys in a row, off the diagonal of a pattern of nine: at most one is left */
    add_hider(hider, &n,
              x->reach >= 0 && x->reach <= 1 && x->offset != 0 &&
                  is(t, choice, ATTN_FACTOR_MASK, "skiparse(group,3)"),
              ALL, 0);
    /* of two or three keys one has all the weight */
    add_hider(hider, &n,
              x->reach >= 0 && x->reach <= 1 && !is(t, choice, ATTN_FACTOR_SCALE, "default") &&
                  attn_choice_number(t, choice, ATTN_FACTOR_D) > 16,
              ALL, 0);
    return n;
}

/* The table's column `shows`, and its note on every value. */
static int hiders(const struct attn_factors *t, const struct attn_choice *choice,
                  struct hider hider[HIDERS])
{
    const struct diagonal x = diagonal_of(t, choice);
    const unsigned bits = t->takes_numbers ? t->claims->bits : 0;
    int n = flat_hiders(t, choice, &x, hider), masked = choice->value[ATTN_FACTOR_MASK] != 0;
    int one_batch = attn_choice_number(t, choice, ATTN_FACTOR_BATCH) == 1;
    int narrow =
        is(t, choice, ATTN_FACTOR_DTYPE, "bf16") || is(t, choice, ATTN_FACTOR_DTYPE, "f16");
    /* nothing is hidden */
    add_hider(hider, &n,
              x.reach >= 0 && x.queries - 1 + x.offset - x.reach <= 0 &&
                  (x.is_causal || x.offset + x.reach >= x.keys - 1),
              BIT(WINDOW), 0);
    add_hider(hider, &n, x.is_causal && x.offset >= x.keys - 1, BIT(CAUSAL), 0);
    add_hider(hider, &n, masked && (x.queries < 5 || x.keys < 5), BIT(MASK), 0);
    add_hider(hider, &n, one_batch && is(t, choice, ATTN_FACTOR_MASK, "lengths"), BIT(MASK), 0);
    /* numbers come as bytes */
    add_hider(hider, &n, masked && x.reach >= 0 && bits & ATTN_CAP_BAND, BIT(WINDOW), 0);
    add_hider(hider, &n, masked && x.is_causal && bits & ATTN_CAP_CAUSAL, BIT(CAUSAL), 0);
    /* too small a change; scores so large that all are at the cap, or one key has all the weight */
    int large = is(t, choice, ATTN_FACTOR_FILL, "outliers");
    int64_t d = attn_choice_number(t, choice, ATTN_FACTOR_D);
    int cap30 = is(t, choice, ATTN_FACTOR_SOFTCAP, "30");
    add_hider(hider, &n, narrow && cap30 && !large, BIT(SOFTCAP), 0);
    add_hider(hider, &n, cap30 && large, ALL, BIT(SOFTCAP));
    add_hider(hider, &n,
              is(t, choice, ATTN_FACTOR_SOFTCAP, "0.5") &&
                  (large || (d > 16 && is(t, choice, ATTN_FACTOR_SCALE, "1"))),
              ALL, 0);
    /* one key has all the weight: 16 bits hide what a row gives to the others, and so does any type
     * in a few rows; of many rows some have two */
    int sharp = d > 16 && !is(t, choice, ATTN_FACTOR_SCALE, "default");
    int sharp_rows = narrow && is(t, choice, ATTN_FACTOR_FILL, "rows");
    add_hider(hider, &n, sharp && narrow, ALL, BIT(SCALE));
    add_hider(hider, &n, (sharp || sharp_rows) && (x.queries < 5 || x.queries * x.keys < 1000), ALL,
              0);
    /* few keys, some of them hidden: each dK is a sum over many queries that 16 bits hide */
    add_hider(hider, &n, narrow && masked && x.keys < 8, ALL, BIT(MASK) | BIT(KEYS));
    /* data of models: with another scale or one feature one key has all the weight, and so it may
     * be for one query of several kinds */
    int usual =
        is(t, choice, ATTN_FACTOR_FILL, "normal") || is(t, choice, ATTN_FACTOR_FILL, "loud");
    add_hider(hider, &n, !usual && !is(t, choice, ATTN_FACTOR_SCALE, "default"), ALL,
              BIT(FILL) | BIT(SCALE));
    /* a large sink leaves little weight, and that to one key */
    add_hider(hider, &n, narrow && !usual && is(t, choice, ATTN_FACTOR_SINK, "large"), ALL,
              BIT(FILL) | BIT(SINK));
    add_hider(hider, &n, !usual && d < 8, ALL, BIT(FILL) | BIT(D));
    add_hider(hider, &n, is(t, choice, ATTN_FACTOR_FILL, "rows") && x.queries < 5, ALL,
              BIT(FILL) | BIT(QUERIES));
    add_hider(hider, &n, narrow && is(t, choice, ATTN_FACTOR_FILL, "scales") && x.queries < 5, ALL,
              BIT(FILL) | BIT(QUERIES));
    add_hider(hider, &n, one_batch && is(t, choice, ATTN_FACTOR_FILL, "scales"), BIT(FILL), 0);
    return n;
}

int attn_choice_shows(const struct attn_factors *t, const struct attn_choice *choice, int factor,
                      int other)
{
    struct hider hider[HIDERS];
    const unsigned pair = 1u << factor | 1u << other;
    for (int n = hiders(t, choice, hider) - 1; n >= 0; n--)
        if (hider[n].scope & pair && (hider[n].by == 0 || (hider[n].by & pair) != hider[n].by))
            return 0;
    return 1;
}

int attn_choice_is_flat(const struct attn_factors *t, const struct attn_choice *choice)
{
    const struct diagonal x = diagonal_of(t, choice);
    const int one_key =
        x.keys == 1 || x.reach == 0 || (x.is_causal && x.queries == 1 && x.offset == 0);
    return is(t, choice, ATTN_FACTOR_SCALE, "0") ||
           (one_key && !is(t, choice, ATTN_FACTOR_DLSE, "1"));
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
                                 ATTN_FACTOR_BIAS, ATTN_FACTOR_DBIAS, ATTN_FACTOR_DLSE,
                                 ATTN_FACTOR_SINK, ATTN_FACTOR_KV};
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
        int is_any = f < ATTN_EXTENTS && t->first_any[f] > 0 && choice->value[f] >= t->first_any[f];
        if (choice->value[f] != 0)
            attn_append(text, size, "%s%s=%s%s", text[0] != '\0' ? ", " : "", attn_factor[f].name,
                        value_of(t, choice, f), is_any ? " (any)" : "");
    }
}
