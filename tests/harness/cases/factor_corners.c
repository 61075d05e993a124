/* Corners: few large cases for faults that strike from a size on.
 *
 * A threshold is a set of lower bounds on batch, heads, group, queries, keys, d and dv.  A case
 * whose extents are at least these meets it, and so it meets all smaller ones: the cases are
 * corners of the region where B H Lq Lk d is at most 2^28 (full tier: 2^30), not products of
 * values.
 *
 * Thresholds are weighed: each extent has no bound or has one, as likely; bounds are powers of two,
 * one more, or anything.  Cells of a grid gather those between two values of each axis; a case at
 * the upper end meets them all.  A window is needed, must not be, or does not matter.  The case
 * that meets most new weight for its time is taken, again and again, until the time of the tier is
 * used up or nothing is left; then cases go of which others meet all, and their time is spent
 * again.  Sums over all cells below a cell make each choice cheap.  The full tier goes on from the
 * cases of the quick one.  Those thresholds stay unmet that only cases of more time or memory
 * reach.  test_factors.c draws thresholds and counts them.
 *
 * In each case: backward, causal, the largest group up to 16, as far as the claims allow; dv = d.
 * Widths begin with 16, where codes suffice for small subsets, which the judge does faster.
 * The fill is `subsets`, whose answer costs no product of lengths. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/cases/claims.h"
#include "tests/harness/cases/factor_maker.h"

/* The grid; the first value of an axis is for no bound, too.  Where there are as many keys as
 * queries, it is finer: cells are fewer by an axis, and large pairs of lengths want cases that are
 * little larger. */
enum { BATCHES, HEADS, QUERIES, KEYS, WIDTHS, AXES, MOST_VALUES = 24 };
struct axis {
    int factor, n;
    double none;
    int value[MOST_VALUES];
};
#define LENGTHS 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096
static const struct axis any[AXES] = {
    {ATTN_FACTOR_BATCH, 6, 1, {1, 2, 3, 5, 9, 16}},
    {ATTN_FACTOR_HEADS, 7, 1, {1, 2, 4, 5, 8, 16, 32}},
    {ATTN_FACTOR_QUERIES, 14, 0.4, {LENGTHS}},
    {ATTN_FACTOR_KEYS, 14, 0.4, {LENGTHS}},
    {ATTN_FACTOR_D, 8, 0.7, {16, 32, 64, 72, 128, 136, 192, 256}},
};
static const struct axis square[AXES] = {
    {ATTN_FACTOR_BATCH, 12, 1, {1, 2, 3, 4, 5, 6, 8, 9, 11, 13, 14, 16}},
    {ATTN_FACTOR_HEADS, 18, 1, {1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 14, 15, 16, 18, 20, 24, 28, 32}},
    {ATTN_FACTOR_QUERIES, 24, 0.4, {16,   32,   64,   96,   128,  192,  256,  384,
                                    512,  640,  768,  1024, 1152, 1280, 1536, 1792,
                                    2048, 2304, 2560, 2816, 3072, 3328, 3584, 4096}},
    {ATTN_FACTOR_KEYS, 1, 1, {16}},
    {ATTN_FACTOR_D, 9, 0.7, {16, 32, 40, 64, 72, 128, 136, 192, 256}},
};
enum { CELLS = 6 * 7 * 14 * 14 * 8, KINDS = 3, MOST_CASES = 900 };

/* Seconds of one core, of the slowest of our own (textbooks) and of a GPU, with the judge, which
 * needs the last three: for a multiply-add of B H Lq Lk d, a pair of query and key, an element of q
 * or k, a row of a head, and of a kv head.  A slower plug-in is asked those that it would end in
 * time; a command gets all cases at once. */
static const struct {
    double product, pair, element, row, kv_row;
} each[] = {{6.4e-10, 5.6e-8, 8e-8, 6e-6, 0}, {1e-12, 2e-11, 1.3e-8, 1.1e-6, 1.4e-6}};

/* Of a tier's corners in all, by route (in the full tier of our own, with all other cases, of which
 * corners have at most a third), and of a case the largest q and k; then the largest problem
 * of a threshold, and the most pairs of a case: a GPU has room for their scores, for code that
 * stores these. */
#define BY_ROUTE(plugin, files, own)                                                     \
    {                                                                                    \
        [ATTN_ROUTE_PLUGIN] = plugin, [ATTN_ROUTE_FILES] = files, [ATTN_ROUTE_OWN] = own \
    }
static const struct {
    double seconds[ATTN_ROUTE_OWN + 1], elements[ATTN_ROUTE_OWN + 1], products, pairs;
} most[ATTN_TIERS] = {{BY_ROUTE(10, 1, 2.5), BY_ROUTE(0x1p26, 0x1p23, 0x1p23), 1 << 28, 1 << 30},
                      {BY_ROUTE(59, 25, 60), BY_ROUTE(0x1p28, 0x1p24, 0x1p24), 1 << 30, 1u << 31}};
#define LEAST 0.03 /* seconds of a case of any size */

/* A case that is taken, and its kind of mask. */
struct chosen {
    struct attn_case c;
    int kind;
};
struct corners {
    const struct attn_claims *claims;
    enum attn_dtype type[ATTN_DTYPES];
    enum attn_route route;
    int types, is_square, cells;
    const struct axis *axis;
    float weight[KINDS][CELLS];      /* of thresholds */
    float sum[KINDS][CELLS];         /* of those that are not met, of all cells up to it */
    unsigned char met[KINDS][CELLS]; /* how many of the chosen cases meet it */
    unsigned char place[AXES][CELLS];
    double cost[CELLS]; /* seconds; HUGE_VAL: no case */
    int n_chosen, taken;
    double spent; /* seconds of other cases, which leave less for corners of our own */
    struct chosen chosen[MOST_CASES];
    struct attn_case take[MOST_CASES];
};

/* ---- cells -----------------------------------------------------------------------------------
 */

static int stride_of(const struct corners *x, int a)
{
    int stride = 1;
    for (int y = AXES - 1; y > a; y--)
        stride *= x->axis[y].n;
    return stride;
}

static int place_of(const struct corners *x, int cell, int a)
{
    return x->place[a][cell];
}

static void note_places(struct corners *x)
{
    for (int cell = 0; cell < x->cells; cell++)
        for (int a = 0; a < AXES; a++)
            x->place[a][cell] =
                (unsigned char)(a == KEYS && x->is_square ? x->place[QUERIES][cell]
                                                          : cell / stride_of(x, a) % x->axis[a].n);
}

static int64_t bound_of(const struct corners *x, int cell, int a)
{
    return x->axis[a].value[place_of(x, cell, a)];
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
    for (int more = 0; more < 16 && attn_corner_group(claims, c->heads) == 0; more++)
        c->heads = attn_shapes_nearest(shapes, ATTN_FACTOR_HEADS, c->heads + 1);
    int64_t group = attn_corner_group(claims, c->heads);
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
           (double)(c->batch * c->heads * c->n_query) * each[is_fast].row +
           (double)(c->batch * c->kv_heads * c->n_query) * each[is_fast].kv_row;
}

/* How likely a bound is beyond one value of an axis and up to the next: a power of two, one more,
 * any number. */
static double likelihood(int64_t from, int64_t to)
{
    int powers = 0, one_more = 0;
    for (int64_t power = 1; power <= to; power *= 2) {
        powers += from < power;
        one_more += from < power + 1 && power + 1 <= to;
    }
    return powers + one_more + log2((double)to / (double)from);
}

/* Of the thresholds of a cell; 0: all are too large, or no extent that is declared reaches them. */
static double weight_of(const struct corners *x, int cell, enum attn_tier tier)
{
    double weight = 1, least = 1, largest = 1;
    for (int a = 0; a < AXES; a++) {
        const struct axis *axis = &x->axis[a];
        int64_t bound = bound_of(x, cell, a);
        int at = place_of(x, cell, a);
        if (at > 0 && attn_shapes_nearest(&x->claims->shapes, axis->factor, bound) < bound)
            return 0;
        largest *= at == 0 ? 1 : (double)bound;
        if (a == KEYS && x->is_square) {
            least *= at == 0 ? 1 : x->axis[QUERIES].value[at - 1] + 1;
            continue;
        }
        least *= at == 0 ? 1 : axis->value[at - 1] + 1;
        weight *= at == 0 ? axis->none
                          : likelihood(axis->value[at - 1], bound) /
                                likelihood(axis->value[0], axis->value[axis->n - 1]);
    }
    double over = largest / most[tier].products;
    return over <= 1 ? weight : least <= most[tier].products ? weight / (over * over) : 0;
}

/* ---- choosing --------------------------------------------------------------------------------
 */

/* Sums over all cells below, one axis after the other. */
static void add_up(struct corners *x)
{
    for (int kind = 0; kind < KINDS; kind++)
        for (int cell = 0; cell < x->cells; cell++)
            x->sum[kind][cell] = x->met[kind][cell] == 0 ? x->weight[kind][cell] : 0;
    for (int a = 0; a < AXES; a++) {
        const int stride = stride_of(x, a), row = stride * x->axis[a].n;
        for (int kind = 0; kind < KINDS; kind++)
            for (int begin = 0; begin < x->cells; begin += row)
                for (int cell = begin + stride; cell < begin + row; cell++)
                    x->sum[kind][cell] += x->sum[kind][cell - stride];
    }
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
        for (int k = attn_has_windows(x->claims) ? ATTN_WINDOW : ATTN_NO_WINDOW;
             k <= ATTN_NO_WINDOW; k++) {
            double gain = (double)(x->sum[0][cell] + x->sum[k][cell]) / (cost + LEAST);
            if (gain > best * 1.0001) {
                best = gain;
                found = cell;
                *kind = k;
            }
        }
    }
    return found;
}

/* 1: the case meets thresholds of the cell. */
static int meets(const struct corners *x, const struct attn_case *c, int cell)
{
    const int64_t extent[AXES] = {c->batch, c->heads, c->n_query, c->n_key, c->d_key};
    int a = 0;
    while (a < AXES && (place_of(x, cell, a) == 0 || extent[a] >= bound_of(x, cell, a)))
        a++;
    return a == AXES;
}

/* Thresholds that the case meets are met once more, or once less.  1: some of them by it alone. */
static int count(struct corners *x, const struct chosen *chosen, int more)
{
    const int kinds[] = {0, chosen->kind};
    int alone = 0;
    for (int cell = 0; cell < x->cells; cell++)
        for (int k = 0; k < 2; k++) {
            const int kind = kinds[k];
            if (x->weight[kind][cell] == 0 || (k == 0 && !meets(x, &chosen->c, cell)))
                break;
            x->met[kind][cell] = (unsigned char)(x->met[kind][cell] + more);
            alone |= x->met[kind][cell] == 0;
        }
    return alone;
}

/* ---- cases -----------------------------------------------------------------------------------
 */

static void weigh(struct corners *x, enum attn_tier tier)
{
    memset(x->met, 0, sizeof x->met);
    for (int cell = 0; cell < x->cells; cell++) {
        struct attn_case c;
        double weight = weight_of(x, cell, tier);
        for (int kind = 0; kind < KINDS; kind++)
            x->weight[kind][cell] = (float)(weight * (kind == 0 ? 1 : 0.2));
        x->cost[cell] = make_shape(x, cell, &c) &&
                                products_of(&c) / (double)c.d_key <= most[tier].pairs &&
                                elements_of(&c) <= most[tier].elements[x->route]
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

static void take_way(void *x, const struct attn_case *c)
{
    take(x, c, 1);
}

/* Of the chosen from number `from` on those go without which as much is met, the dearest first;
 * returns their seconds. */
static double drop_idle(struct corners *x, int from)
{
    double saved = 0;
    for (double dearest = HUGE_VAL, next; dearest > 0; dearest = next) {
        next = 0;
        for (int n = from; n < x->n_chosen; n++) {
            double seconds = seconds_of(&x->chosen[n].c, x->route);
            if (seconds < dearest && seconds > next)
                next = seconds;
            if (seconds != dearest)
                continue;
            if (count(x, &x->chosen[n], -1)) {
                count(x, &x->chosen[n], 1);
                continue;
            }
            saved += seconds;
            x->chosen[n--] = x->chosen[--x->n_chosen];
        }
    }
    return saved;
}

static void take_best(struct corners *x, enum attn_tier tier)
{
    const int copies = tier == ATTN_TIER_FULL ? x->types : 1, before = x->n_chosen;
    double all = most[tier].seconds[x->route], saved = 1;
    if (x->route == ATTN_ROUTE_OWN && tier == ATTN_TIER_FULL)
        all = fmin(all - x->spent, all / 3);
    double seconds = all / copies;
    weigh(x, tier);
    for (int n = 0; n < before; n++) { /* in the other types, too */
        seconds -= seconds_of(&x->chosen[n].c, x->route) * (copies - 1) / copies;
        count(x, &x->chosen[n], 1);
        take(x, &x->chosen[n].c, copies == 1 ? 0 : copies);
    }
    while (saved > 0) {
        for (int cell, kind = 0;
             x->n_chosen < MOST_CASES && (cell = best_of(x, seconds, &kind)) >= 0;) {
            struct chosen *chosen = &x->chosen[x->n_chosen++];
            make_shape(x, cell, &chosen->c);
            attn_corner_mask(x->claims, kind, &chosen->c);
            chosen->kind = kind;
            seconds -= seconds_of(&chosen->c, x->route);
            count(x, chosen, 1);
        }
        saved = drop_idle(x, before);
        seconds += saved;
    }
    for (int n = before; n < x->n_chosen; n++)
        take(x, &x->chosen[n].c, copies);
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
                      double spent, const struct attn_case_taker *taker)
{
    struct corners *x = calloc(1, sizeof *x);
    int named = 0;
    if (x == NULL)
        return 0;
    x->claims = table->claims;
    x->route = route;
    x->spent = spent;
    x->is_square =
        !(x->claims->bits & ATTN_CAP_CROSS) || x->claims->causal == ATTN_PLUGIN_CAUSAL_SQUARE;
    x->axis = x->is_square ? square : any;
    x->cells = 1;
    list_types(x);
    for (int a = 0; a < AXES; a++)
        x->cells *= x->axis[a].n;
    note_places(x);
    for (int t = ATTN_TIER_QUICK; t <= (int)tier && x->types > 0; t++) {
        char name[24];
        int before = x->taken;
        take_best(x, (enum attn_tier)t);
        if (t == ATTN_TIER_FULL)
            attn_way_cases(table, x->is_square, route, take_way, x);
        qsort(x->take + before, (size_t)(x->taken - before), sizeof *x->take, by_work);
        for (int n = before; n < x->taken; n++) {
            snprintf(name, sizeof name, "corners-%03d", ++named);
            taker->take(taker->arg, name, &x->take[n]);
        }
    }
    free(x);
    return 1;
}
