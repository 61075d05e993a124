/* Cases for code that knows less than claims can say: see attn_case_narrow and attn_few_shapes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/cases/tiers.h"

/* ---- one case -------------------------------------------------------------------------------- */

/* Is the mask given in numbers? */
static int is_given_as_band(const struct attn_claims *claims, const struct attn_case *c)
{
    struct attn_setup setup;
    struct attn_given_mask given;
    if (attn_setup_describe(c, &setup, NULL) != ATTN_OK)
        return 0;
    int is_band = attn_claims_mask(claims, &setup.problem, &given) == ATTN_CLAIMS_BAND;
    attn_setup_close(&setup);
    return is_band;
}

/* Aligned as declared; where both ends may be, so that each query sees a key. */
static int make_causal(const struct attn_claims *claims, struct attn_case *c)
{
    int is_tl = claims->causal == ATTN_PLUGIN_CAUSAL_TL ||
                (claims->causal == ATTN_PLUGIN_CAUSAL_ANY && c->n_query > c->n_key);
    if (is_given_as_band(claims, c))
        return 0;
    snprintf(c->mask, sizeof c->mask, "causal(%s)", is_tl ? "tl" : "br");
    return 1;
}

int attn_case_narrow(const struct attn_claims *claims, struct attn_case *c)
{
    int changed = 0, is_free = strcmp(c->mask, "none") == 0 || !(claims->bits & ATTN_PLUGIN_DENSE);
    if (claims->declines & ATTN_PLUGIN_UNMASKED && is_free)
        changed = make_causal(claims, c);
    if (claims->declines & ATTN_PLUGIN_CAUSAL_BACKWARD && c->pass == ATTN_BACKWARD &&
        !attn_case_special_is_backward(c->special) && is_given_as_band(claims, c)) {
        c->pass = ATTN_FORWARD;
        c->d_lse = c->d_bias = 0;
        changed = 1;
    }
    if (!(claims->bits & ATTN_PLUGIN_SCALE) && !isnan(c->scale) && c->fill != ATTN_FILL_SELECT) {
        c->scale = (double)NAN;
        changed = 1;
    }
    return changed;
}

/* ---- few shapes ------------------------------------------------------------------------------ */

enum { EXTENTS = 7 };

static int64_t *extent_of(struct attn_case *c, int n)
{
    int64_t *const at[EXTENTS] = {&c->batch, &c->heads, &c->kv_heads, &c->n_query,
                                  &c->n_key, &c->d_key, &c->d_value};
    return at[n];
}

/* Octaves between two shapes; without end where one has groups, another width of V, fewer or more
 * keys than queries, or nothing, and the other has not. */
static double octaves(struct attn_case *a, struct attn_case *b)
{
    double sum = 0;
    int other = (a->heads == a->kv_heads) != (b->heads == b->kv_heads) ||
                (a->d_key == a->d_value) != (b->d_key == b->d_value) ||
                (a->n_query < a->n_key) != (b->n_query < b->n_key) ||
                (a->n_query > a->n_key) != (b->n_query > b->n_key);
    for (int n = 0; n < EXTENTS; n++) {
        double x = (double)*extent_of(a, n), y = (double)*extent_of(b, n);
        other |= (x == 0) != (y == 0);
        sum += fabs(log2((x + 1) / (y + 1)));
    }
    return other ? 1e6 : sum;
}

/* Whether the case can be set up and is allowed. */
static int can_be(const struct attn_case *c, const struct attn_claims *claims,
                  enum attn_route route)
{
    struct attn_setup setup;
    unsigned needs;
    if (attn_setup_open(c, &setup, NULL) != ATTN_OK)
        return 0;
    int allowed = attn_claims_allow(claims, &setup, route, &needs, NULL) == ATTN_OK;
    attn_setup_close(&setup);
    return allowed;
}

/* *c at the nearest of n shapes that it can have; 0: there is none. */
static int take_nearest(const struct attn_tier_list *list, enum attn_route route,
                        struct attn_case **shape, int n, struct attn_case *c)
{
    int tried[ATTN_FEW_SHAPES] = {0};
    for (int t = 0; t < n; t++) {
        struct attn_case moved = *c;
        int best = -1;
        double least = 1e6;
        for (int s = 0; s < n; s++)
            if (!tried[s] && octaves(shape[s], c) < least)
                least = octaves(shape[best = s], c);
        if (best < 0)
            return 0;
        tried[best] = 1;
        for (int x = 0; x < EXTENTS; x++)
            *extent_of(&moved, x) = *extent_of(shape[best], x);
        if (least == 0 || can_be(&moved, &list->claims, route)) {
            *c = moved;
            return 1;
        }
    }
    return 0;
}

/* Shapes as far from each other as may be: each is the one that is farthest from those before. */
static int choose_shapes(struct attn_case *c, double *far, int n, struct attn_case **shape)
{
    int chosen = 0;
    for (int farthest = 0; chosen < ATTN_FEW_SHAPES && n > 0 && far[farthest] > 0; chosen++) {
        shape[chosen] = &c[farthest];
        for (int i = 0; i < n; i++)
            far[i] = far[i] > 0 ? fmin(far[i], octaves(&c[i], shape[chosen])) : 0;
        for (int i = 0; i < n; i++)
            farthest = far[i] > far[farthest] ? i : farthest;
    }
    return chosen;
}

void attn_few_shapes(struct attn_tier_list *list, enum attn_route route)
{
    struct attn_case *c = calloc((size_t)list->n + 1, sizeof *c), *shape[ATTN_FEW_SHAPES];
    double *far = calloc((size_t)list->n + 1, sizeof *far);
    const char *kept = NULL;
    list->lacks_memory |= c == NULL || far == NULL;
    for (int i = 0; i < list->n && !list->lacks_memory; i++)
        if (attn_case_parse(list->at[i].battery.text, &c[i], NULL) == ATTN_OK)
            far[i] = can_be(&c[i], &list->claims, route) ? 1e6 : -1; /* -1: to be refused */
    for (int i = 0; i < list->n && c != NULL && far != NULL; i++)
        if (far[0] < 0 && far[i] > 0) { /* begin with one that is asked */
            struct attn_tier_case first = list->at[0];
            struct attn_case own = c[0];
            list->at[0] = list->at[i], list->at[i] = first;
            c[0] = c[i], c[i] = own;
            far[0] = 1e6, far[i] = -1;
        }
    int n = list->lacks_memory ? 0 : choose_shapes(c, far, list->n, shape);
    for (int i = 0; i < list->n && n > 0; i++) {
        struct attn_tier_case *at = &list->at[i];
        char text[ATTN_CASE_TEXT];
        struct attn_case moved = c[i];
        if (far[i] < 0)
            continue;
        if (far[i] == 0) {
            kept = kept == NULL ? at->battery.text : kept;
            continue;
        }
        at->is_made = 0;
        snprintf(text, sizeof text, "%s", kept != NULL ? kept : at->battery.text);
        if (take_nearest(list, route, shape, n, &moved))
            attn_case_print(&moved, text);
        free((void *)at->battery.text);
        at->battery.text = strdup(text);
        list->lacks_memory |= at->battery.text == NULL;
    }
    free(c);
    free(far);
}
