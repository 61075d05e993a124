/* Corners: few large cases for faults that strike from a size on.
 *
 * A threshold is a set of lower bounds on batch, heads, group, queries, keys, d and dv.  A case
 * whose extents are at least these meets it, and so it meets all smaller ones: the cases are
 * corners of the region where B H Lq Lk d is at most 2^28 (full tier: 2^30), not products of
 * values.
 *
 * Thresholds are weighed: each extent has no bound or has one, as likely, and all numbers of an
 * axis below are as likely as each other; a size beyond that is rare, for smaller bounds are
 * rounded up to it.  A window is needed, must not be, or does not matter.  Then the case that meets
 * most new weight for its time is taken, again and again, until the time of the tier is used up or
 * nothing is left.  Sums over all cells below a cell make each choice cheap.  The full tier goes on
 * from the cases of the quick one.  Those thresholds stay unmet that only cases of more time or
 * memory reach: long thin problems (no bound on one length, large ones on all else).
 * test_factors.c draws thresholds and counts them.
 *
 * In each case: backward, causal, the largest group up to 16, as far as the claims allow; dv = d.
 * Widths begin with 16, where codes suffice for small subsets, which the judge does faster.
 * The fill is `subsets`, whose answer costs no product of lengths. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/cases/claims.h"
#include "tests/harness/cases/factors.h"

/* Bounds from which kernels branch; the first is none, and so likely beside one of the others. */
enum { BATCHES, HEADS, QUERIES, KEYS, WIDTHS, AXES, MOST_VALUES = 14 };
#define LENGTHS                                                              \
    {                                                                        \
        16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096 \
    }
static const struct {
    int factor, n;
    double none;
    int value[MOST_VALUES];
} axis[AXES] = {
    {ATTN_FACTOR_BATCH, 6, 1, {1, 2, 3, 5, 9, 16}},
    {ATTN_FACTOR_HEADS, 7, 1, {1, 2, 4, 5, 8, 16, 32}},
    {ATTN_FACTOR_QUERIES, 14, 0.3, LENGTHS},
    {ATTN_FACTOR_KEYS, 14, 0.3, LENGTHS},
    {ATTN_FACTOR_D, 8, 0.5, {16, 32, 64, 72, 128, 136, 192, 256}},
};
enum { CELLS = 6 * 7 * 14 * 14 * 8, KINDS = 3, WITH = 1, WITHOUT = 2, MOST_CASES = 900 };

/* Seconds of one core, of the slowest of our own (textbooks) and of a GPU, with the judge, which
 * needs the last two: for a multiply-add of B H Lq Lk d, a pair of query and key, an element of q
 * or k, a row of a head.  A slower plug-in is asked those that it would end in time; a command gets
 * all cases at once.  Of a tier's corners in all; then the largest problem of a threshold, and of a
 * case the largest q and k and most pairs: a GPU has room for their scores, for code that stores
 * these. */
static const struct {
    double product, pair, element, row;
} each[] = {{4e-10, 3.5e-8, 5e-8, 3.7e-6}, {1e-12, 2e-11, 5e-8, 3.7e-6}};
static const struct {
    double seconds[ATTN_ROUTE_OWN + 1], products, elements, pairs;
} most[ATTN_TIERS] = {{{[ATTN_ROUTE_PLUGIN] = 20, [ATTN_ROUTE_FILES] = 1, [ATTN_ROUTE_OWN] = 2.5},
                       1 << 28,
                       1 << 23,
                       1 << 30},
                      {{[ATTN_ROUTE_PLUGIN] = 60, [ATTN_ROUTE_FILES] = 25, [ATTN_ROUTE_OWN] = 25},
                       1 << 30,
                       1 << 24,
                       1u << 31}};
#define LEAST 0.1 /* seconds of a process and a case of any size */

struct corners {
    const struct attn_claims *claims;
    enum attn_dtype type[ATTN_DTYPES];
    enum attn_route route;
    int types, is_square, cells, n[AXES]; /* square: as many keys as queries, an axis of one */
    double left[KINDS][CELLS];            /* weight of the thresholds that are not met */
    double sum[KINDS][CELLS];             /* of all cells up to it */
    double cost[CELLS];                   /* seconds; HUGE_VAL: no case */
    int taken;
    struct attn_case take[MOST_CASES];
};

/* ---- cells -----------------------------------------------------------------------------------
 */

static int stride_of(const struct corners *x, int a)
{
    int stride = 1;
    for (int y = AXES - 1; y > a; y--)
        stride *= x->n[y];
    return stride;
}

static int place_of(const struct corners *x, int cell, int a)
{
    return a == KEYS && x->is_square ? place_of(x, cell, QUERIES)
                                     : cell / stride_of(x, a) % x->n[a];
}

static int64_t bound_of(const struct corners *x, int cell, int a)
{
    return axis[a].value[place_of(x, cell, a)];
}

/* The largest group up to 16 that divides the heads; 0: none is declared. */
static int64_t group_of(const struct attn_claims *claims, int64_t heads)
{
    for (int64_t g = claims->bits & ATTN_CAP_GQA ? 16 : 1; g > 0; g--)
        if (heads % g == 0 && attn_shapes_have(&claims->shapes, ATTN_FACTOR_GROUP, g))
            return g;
    return 0;
}

/* A length at or a little above a bound, so that no tile divides it. */
static int64_t length_of(const struct attn_claims *claims, int factor, int64_t bound)
{
    int64_t more = (bound < 1024 ? bound : 1024) / 16 + 1;
    int64_t above = attn_shapes_nearest(&claims->shapes, factor, bound + more);
    return above >= bound ? above : attn_shapes_nearest(&claims->shapes, factor, bound);
}

/* 1: there may be fewer keys than queries: causal from the first key on, windows of any reach. */
static int has_few_keys(const struct attn_claims *claims)
{
    const unsigned bits = ATTN_CAP_BAND | ATTN_CAP_EMPTY;
    return (claims->bits & bits) == bits && claims->causal == ATTN_PLUGIN_CAUSAL_ANY;
}

/* The case of a cell, but for its mask and type; 0: the claims leave none. */
static int make_shape(const struct corners *x, int cell, struct attn_case *c)
{
    const struct attn_claims *claims = x->claims;
    const struct attn_shapes *shapes = &claims->shapes;
    *c = (struct attn_case){.scale = (double)NAN, .fill = ATTN_FILL_SUBSETS, .seed = 1};
    c->batch = attn_shapes_nearest(shapes, ATTN_FACTOR_BATCH, bound_of(x, cell, BATCHES));
    c->heads = attn_shapes_nearest(shapes, ATTN_FACTOR_HEADS, bound_of(x, cell, HEADS));
    for (int more = 0; more < 16 && group_of(claims, c->heads) == 0; more++)
        c->heads = attn_shapes_nearest(shapes, ATTN_FACTOR_HEADS, c->heads + 1);
    int64_t group = group_of(claims, c->heads);
    c->n_query = length_of(claims, ATTN_FACTOR_QUERIES, bound_of(x, cell, QUERIES));
    c->n_key = x->is_square ? c->n_query
                            : length_of(claims, ATTN_FACTOR_KEYS, bound_of(x, cell, KEYS) + 3);
    c->d_key = c->d_value = attn_shapes_nearest(shapes, ATTN_FACTOR_D, bound_of(x, cell, WIDTHS));
    if (claims->bits & ATTN_CAP_DV)
        c->d_value = attn_shapes_nearest(shapes, ATTN_FACTOR_DV, c->d_key);
    c->kv_heads = group > 0 ? c->heads / group : 0;
    c->pass = claims->bits & ATTN_CAP_BACKWARD ? ATTN_BACKWARD : ATTN_FORWARD;
    return group > 0 && (c->n_key >= c->n_query || has_few_keys(claims)) && c->d_key >= 8 &&
           c->batch > 0 && attn_shapes_have(shapes, ATTN_FACTOR_KEYS, c->n_key) &&
           attn_shapes_have(shapes, ATTN_FACTOR_DV, c->d_value) &&
           attn_shapes_have(shapes, ATTN_FACTOR_GROUP, group);
}

static double products_of(const struct attn_case *c)
{
    return (double)c->batch * (double)c->heads * (double)c->n_query * (double)c->n_key *
           (double)c->d_key;
}

static double elements_of(const struct attn_case *c)
{
    return (double)(c->heads * c->n_query + c->kv_heads * c->n_key) * (double)(c->batch * c->d_key);
}

static double seconds_of(const struct attn_case *c, enum attn_route route)
{
    const int is_fast = route == ATTN_ROUTE_PLUGIN;
    double products = products_of(c);
    return products * each[is_fast].product + products / (double)c->d_key * each[is_fast].pair +
           elements_of(c) * each[is_fast].element +
           (double)(c->batch * c->heads * c->n_query) * each[is_fast].row;
}

/* Of a threshold; 0: it is too large, or no extent that is declared reaches it. */
static double weight_of(const struct corners *x, int cell, enum attn_tier tier)
{
    double weight = 1, products = 1;
    for (int a = 0; a < AXES; a++) {
        int64_t bound = bound_of(x, cell, a);
        products *= place_of(x, cell, a) == 0 ? 1 : (double)bound;
        weight *= place_of(x, cell, a) == 0 ? axis[a].none : 1.0 / (axis[a].n - 1);
        if (place_of(x, cell, a) > 0 &&
            attn_shapes_nearest(&x->claims->shapes, axis[a].factor, bound) < bound)
            return 0;
    }
    double over = products / most[tier].products; /* a smaller threshold has been rounded up */
    return over <= 1 ? weight : over <= 4 ? weight / (over * over) : 0;
}

/* ---- choosing --------------------------------------------------------------------------------
 */

/* Sums over all cells below, one axis after the other. */
static void add_up(struct corners *x)
{
    memcpy(x->sum, x->left, sizeof x->sum);
    for (int a = 0; a < AXES; a++) {
        const int stride = stride_of(x, a), row = stride * x->n[a];
        for (int kind = 0; kind < KINDS; kind++)
            for (int begin = 0; begin < x->cells; begin += row)
                for (int cell = begin + stride; cell < begin + row; cell++)
                    x->sum[kind][cell] += x->sum[kind][cell - stride];
    }
}

/* 1: windows come as numbers. */
static int has_windows(const struct attn_claims *claims)
{
    return (claims->bits & ATTN_CAP_BAND) != 0;
}

/* The cell and kind of mask that meet most for their time within some seconds; -1: none. */
static int best_of(struct corners *x, double seconds, int *kind)
{
    double best = 0;
    int found = -1;
    add_up(x);
    for (int cell = 0; cell < x->cells; cell++) {
        double cost = x->cost[cell];
        if (cost > seconds)
            continue;
        for (int k = has_windows(x->claims) ? WITH : WITHOUT; k <= WITHOUT; k++) {
            double gain = (x->sum[0][cell] + x->sum[k][cell]) / (cost + LEAST);
            if (gain > best * 1.0001) {
                best = gain;
                found = cell;
                *kind = k;
            }
        }
    }
    return found;
}

/* Thresholds that the case meets have no weight any more. */
static void strike(struct corners *x, const struct attn_case *c, int kind)
{
    const int64_t extent[AXES] = {c->batch, c->heads, c->n_query, c->n_key, c->d_key};
    for (int cell = 0; cell < x->cells; cell++) {
        int a = 0;
        while (a < AXES && (place_of(x, cell, a) == 0 || extent[a] >= bound_of(x, cell, a)))
            a++;
        if (a == AXES)
            x->left[0][cell] = x->left[kind][cell] = 0;
    }
}

/* ---- cases -----------------------------------------------------------------------------------
 */

static void make_mask(const struct attn_claims *claims, int kind, struct attn_case *c)
{
    int is_tl = claims->causal == ATTN_PLUGIN_CAUSAL_TL || c->n_key < c->n_query;
    const char *end = is_tl ? "tl" : "br";
    int causal = (claims->bits & (ATTN_CAP_CAUSAL | ATTN_CAP_BAND)) != 0;
    int64_t reach = c->n_key < c->n_query ? c->n_query - c->n_key / 4 : c->n_key * 3 / 4;
    reach = attn_shapes_nearest(&claims->shapes, ATTN_FACTOR_WINDOW, reach);
    snprintf(c->mask, sizeof c->mask, "none");
    if (causal)
        snprintf(c->mask, sizeof c->mask, "causal(%s)", end);
    if (kind == WITH)
        snprintf(c->mask, sizeof c->mask, "causal(%s)&window(%lld,-1,%s)", end, (long long)reach,
                 end);
}

static void weigh(struct corners *x, enum attn_tier tier)
{
    for (int cell = 0; cell < x->cells; cell++) {
        struct attn_case c;
        double weight = weight_of(x, cell, tier);
        for (int kind = 0; kind < KINDS; kind++)
            x->left[kind][cell] = weight * (kind == 0 ? 1 : 0.2);
        x->cost[cell] = make_shape(x, cell, &c) &&
                                products_of(&c) / (double)c.d_key <= most[tier].pairs &&
                                elements_of(&c) <= most[tier].elements
                            ? seconds_of(&c, x->route)
                            : HUGE_VAL;
    }
}

/* In the types that are claimed, in turn or in each. */
static void take(struct corners *x, const struct attn_case *c, int copies)
{
    for (int t = 0; t < copies && x->taken < MOST_CASES; t++) {
        x->take[x->taken] = *c;
        x->take[x->taken].dtype = x->type[x->taken % x->types];
        x->taken++;
    }
}

static void take_best(struct corners *x, enum attn_tier tier)
{
    const int copies = tier == ATTN_TIER_FULL ? x->types : 1;
    double seconds = most[tier].seconds[x->route] / copies;
    weigh(x, tier);
    for (int n = 0, quick = x->taken; n < quick; n++) { /* in the other types, too */
        const struct attn_case c = x->take[n];
        seconds -= seconds_of(&c, x->route) * (copies - 1) / copies;
        strike(x, &c, strstr(c.mask, "window") != NULL ? WITH : WITHOUT);
        take(x, &c, copies == 1 ? 0 : copies);
    }
    for (int kind = 0, cell; (cell = best_of(x, seconds, &kind)) >= 0;) {
        struct attn_case c;
        make_shape(x, cell, &c);
        make_mask(x->claims, kind, &c);
        seconds -= seconds_of(&c, x->route);
        strike(x, &c, kind);
        take(x, &c, copies);
    }
}

/* A width with a group: two tiles of 128 and more both ways, or one query over many keys. */
static void take_width(struct corners *x, int64_t d, int64_t group, int kind, int is_decoding)
{
    const struct attn_claims *claims = x->claims;
    const int64_t extent[] = {[ATTN_FACTOR_D] = d,
                              [ATTN_FACTOR_DV] = d,
                              [ATTN_FACTOR_HEADS] = group,
                              [ATTN_FACTOR_GROUP] = claims->bits & ATTN_CAP_GQA ? group : 1,
                              [ATTN_FACTOR_BATCH] = 1,
                              [ATTN_FACTOR_QUERIES] = is_decoding ? 1 : 265,
                              [ATTN_FACTOR_KEYS] = is_decoding    ? 1109
                                                   : x->is_square ? 265
                                                                  : 331};
    for (int f = 0; f <= ATTN_FACTOR_KEYS; f++)
        if (!attn_shapes_have(&claims->shapes, f, extent[f]))
            return;
    if (is_decoding && x->is_square)
        return;
    struct attn_case c = {.batch = 1,
                          .heads = group,
                          .kv_heads = group / extent[ATTN_FACTOR_GROUP],
                          .n_query = extent[ATTN_FACTOR_QUERIES],
                          .n_key = extent[ATTN_FACTOR_KEYS],
                          .d_key = d,
                          .d_value = d,
                          .scale = (double)NAN,
                          .fill = d < 8 ? ATTN_FILL_NORMAL : ATTN_FILL_SUBSETS, /* no codes */
                          .seed = 2,
                          .pass = claims->bits & ATTN_CAP_BACKWARD ? ATTN_BACKWARD : ATTN_FORWARD};
    make_mask(claims, kind, &c);
    take(x, &c, 1);
}

/* Every width of the table meets causal and two tiles; those of models groups, windows, decoding.
 */
static void take_widths(struct corners *x, const struct attn_factors *t)
{
    static const int64_t models[] = {64, 80, 96, 128, 192, 256}, groups[] = {1, 4, 8};
    for (int v = 0; v < t->of[ATTN_FACTOR_D].n; v++) {
        int64_t d = strtoll(t->of[ATTN_FACTOR_D].value[v], NULL, 10);
        take_width(x, d, 2, WITHOUT, 0);
    }
    for (int n = 0; n < 18; n++) {
        take_width(x, models[n / 3], groups[n % 3], has_windows(x->claims) ? WITH : WITHOUT, 0);
        take_width(x, models[n / 3], groups[n % 3], WITHOUT, 1);
    }
}

/* Storage types that are claimed: 64 bits only where there is no other. */
static void list_types(struct corners *x)
{
    static const enum attn_dtype order[] = {ATTN_F32, ATTN_BF16, ATTN_F16};
    for (int t = 0; t < 3; t++)
        if (x->claims->bits & 1u << order[t])
            x->type[x->types++] = order[t];
    if (x->types == 0 && x->claims->bits & ATTN_CAP_F64)
        x->type[x->types++] = ATTN_F64;
}

static int by_work(const void *a, const void *b)
{
    double x = seconds_of(a, ATTN_ROUTE_OWN), y = seconds_of(b, ATTN_ROUTE_OWN);
    return (x > y) - (x < y);
}

int attn_is_corner(const char *name)
{
    return strncmp(name, "corners-", 8) == 0 || strncmp(name, "long-", 5) == 0;
}

int attn_corner_cases(const struct attn_factors *table, enum attn_tier tier, enum attn_route route,
                      const struct attn_case_taker *taker)
{
    struct corners *x = calloc(1, sizeof *x);
    int named = 0;
    if (x == NULL)
        return 0;
    x->claims = table->claims;
    x->route = route;
    x->is_square =
        !(x->claims->bits & ATTN_CAP_CROSS) || x->claims->causal == ATTN_PLUGIN_CAUSAL_SQUARE;
    x->cells = 1;
    list_types(x);
    for (int a = 0; a < AXES; a++)
        x->cells *= x->n[a] = a == KEYS && x->is_square ? 1 : axis[a].n;
    for (int t = ATTN_TIER_QUICK; t <= (int)tier && x->types > 0; t++) {
        char name[24];
        int before = x->taken;
        take_best(x, (enum attn_tier)t);
        if (t == ATTN_TIER_FULL)
            take_widths(x, table);
        qsort(x->take + before, (size_t)(x->taken - before), sizeof *x->take, by_work);
        for (int n = before; n < x->taken; n++) {
            snprintf(name, sizeof name, "corners-%03d", ++named);
            taker->take(taker->arg, name, &x->take[n]);
        }
    }
    free(x);
    return 1;
}
