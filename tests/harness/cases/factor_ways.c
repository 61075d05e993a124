/* Large cases for what kernels branch on beside thresholds: each width with groups, windows and
 * decoding over two tiles; more scores than 32 bits count.  And what all corners have in common. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/cases/claims.h"
#include "tests/harness/cases/factor_maker.h"

struct ways {
    const struct attn_factors *table;
    int is_square;
    void (*take)(void *arg, const struct attn_case *c);
    void *arg;
};

/* The largest group up to 16 that divides the heads; 0: none is declared. */
int64_t attn_corner_group(const struct attn_claims *claims, int64_t heads)
{
    for (int64_t g = claims->bits & ATTN_CAP_GQA ? 16 : 1; g > 0; g--)
        if (heads % g == 0 && attn_shapes_have(&claims->shapes, ATTN_FACTOR_GROUP, g))
            return g;
    return 0;
}

/* 1: windows come as numbers. */
int attn_has_windows(const struct attn_claims *claims)
{
    return (claims->bits & ATTN_CAP_BAND) != 0;
}

void attn_corner_mask(const struct attn_claims *claims, int kind, struct attn_case *c)
{
    int is_tl = claims->causal == ATTN_PLUGIN_CAUSAL_TL || c->n_key < c->n_query;
    const char *end = is_tl ? "tl" : "br";
    int causal = (claims->bits & (ATTN_CAP_CAUSAL | ATTN_CAP_BAND)) != 0;
    int64_t reach = c->n_key < c->n_query ? c->n_query - c->n_key / 4 : c->n_key * 3 / 4;
    reach = attn_shapes_nearest(&claims->shapes, ATTN_FACTOR_WINDOW, reach);
    snprintf(c->mask, sizeof c->mask, "none");
    if (causal)
        snprintf(c->mask, sizeof c->mask, "causal(%s)", end);
    if (kind == ATTN_WINDOW)
        snprintf(c->mask, sizeof c->mask, "causal(%s)&window(%lld,-1,%s)", end, (long long)reach,
                 end);
}

/* A width with a group: two tiles of 128 and more both ways, or one query over many keys. */
static void take_width(struct ways *x, int64_t d, int64_t group, int kind, int is_decoding)
{
    const struct attn_claims *claims = x->table->claims;
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
    attn_corner_mask(claims, kind, &c);
    x->take(x->arg, &c);
}

/* Every width of the table meets causal and two tiles; those of models groups, windows, decoding.
 */
static void take_widths(struct ways *x)
{
    const struct attn_factors *t = x->table;
    static const int64_t models[] = {64, 80, 96, 128, 192, 256}, groups[] = {1, 4, 8};
    for (int v = 0; v < t->of[ATTN_FACTOR_D].n; v++) {
        int64_t d = strtoll(t->of[ATTN_FACTOR_D].value[v], NULL, 10);
        take_width(x, d, 2, ATTN_NO_WINDOW, 0);
    }
    for (int n = 0; n < 18; n++) {
        take_width(x, models[n / 3], groups[n % 3],
                   attn_has_windows(x->table->claims) ? ATTN_WINDOW : ATTN_NO_WINDOW, 0);
        take_width(x, models[n / 3], groups[n % 3], ATTN_NO_WINDOW, 1);
    }
}

/* A few more scores than 2^31, which 32 bits do not count: most of them hidden where windows come
 * as numbers, and no gradients, so that code which skips them and stores none has little to do. */
static void take_scores(struct ways *x)
{
    const struct attn_claims *claims = x->table->claims;
    const struct attn_shapes *shapes = &claims->shapes;
    struct attn_case c = {.scale = (double)NAN, .fill = ATTN_FILL_SUBSETS, .seed = 45};
    c.batch = attn_shapes_nearest(shapes, ATTN_FACTOR_BATCH, 16);
    c.heads = attn_shapes_nearest(shapes, ATTN_FACTOR_HEADS, 32);
    c.n_query = attn_shapes_nearest(shapes, ATTN_FACTOR_QUERIES, x->is_square ? 2049 : 1025);
    c.n_key = x->is_square ? c.n_query : attn_shapes_nearest(shapes, ATTN_FACTOR_KEYS, 4099);
    c.d_key = c.d_value = attn_shapes_nearest(shapes, ATTN_FACTOR_D, 8);
    int64_t group = attn_corner_group(claims, c.heads);
    double scores = (double)c.batch * (double)c.heads * (double)c.n_query * (double)c.n_key;
    if (group == 0 || c.d_key != 8 || scores <= 0x1p31 || scores > 0x1.1p31 ||
        !attn_shapes_have(shapes, ATTN_FACTOR_DV, 8))
        return;
    c.kv_heads = c.heads / group;
    attn_corner_mask(claims, ATTN_NO_WINDOW, &c);
    if (attn_has_windows(claims) && attn_shapes_have(shapes, ATTN_FACTOR_WINDOW, 3))
        snprintf(c.mask, sizeof c.mask, "window(3,0,%s)",
                 claims->causal == ATTN_PLUGIN_CAUSAL_TL ? "tl" : "br");
    x->take(x->arg, &c);
}

void attn_way_cases(const struct attn_factors *table, int is_square, enum attn_route route,
                    void (*take)(void *arg, const struct attn_case *c), void *arg)
{
    struct ways x = {table, is_square, take, arg};
    take_widths(&x);
    if (route == ATTN_ROUTE_PLUGIN)
        take_scores(&x);
}
