/* Cases for code that knows less than claims can say: see attn_case_narrow and attn_few_shapes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/base/fileio.h"
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

/* Of K and V in pages there are no gradients, and a causal mask is aligned to the end of each
 * sequence: keys(20,7)&causal(br) is asked as causal(ends,20,7). */
static void page(struct attn_case *c)
{
    struct attn_setup setup;
    struct attn_mask_call keys, causal, more;
    if (!attn_case_special_is_backward(c->special)) {
        c->pass = ATTN_FORWARD;
        c->d_lse = c->d_bias = 0;
    }
    if (attn_setup_describe(c, &setup, NULL) != ATTN_OK)
        return;
    const struct attn_mask *mask = setup.problem.mask;
    if (attn_mask_call(mask, 0, 0, &keys) && keys.kind == ATTN_CALL_KEYS &&
        attn_mask_call(mask, 0, 1, &causal) && causal.kind == ATTN_CALL_BAND && causal.left < 0 &&
        causal.right == 0 && causal.length < 0 && causal.offset == c->n_key - c->n_query &&
        !attn_mask_call(mask, 0, 2, &more)) {
        snprintf(c->mask, sizeof c->mask, "causal(ends");
        for (int64_t b = 0; b < (attn_mask_varies_by_batch(mask) ? c->batch : 1); b++)
            attn_append(c->mask, ATTN_CASE_MASK, ",%lld", (long long)attn_mask_length(mask, b));
        attn_append(c->mask, ATTN_CASE_MASK, ")");
    }
    attn_setup_close(&setup);
}

void attn_case_narrow(const struct attn_claims *claims, struct attn_case *c)
{
    int is_free = strcmp(c->mask, "none") == 0 || !(claims->bits & ATTN_CAP_DENSE);
    int is_tl = claims->causal == ATTN_PLUGIN_CAUSAL_TL ||
                (claims->causal == ATTN_PLUGIN_CAUSAL_ANY && c->n_query > c->n_key);
    if (claims->declines & ATTN_PLUGIN_UNMASKED && is_free && !is_given_as_band(claims, c))
        snprintf(c->mask, sizeof c->mask, "causal(%s)", is_tl ? "tl" : "br");
    if (claims->declines & ATTN_PLUGIN_CAUSAL_BACKWARD && c->pass == ATTN_BACKWARD &&
        !attn_case_special_is_backward(c->special) && is_given_as_band(claims, c)) {
        c->pass = ATTN_FORWARD;
        c->d_lse = c->d_bias = 0;
    }
    if (claims->layout == ATTN_PLUGIN_PAGED)
        page(c);
    if (!(claims->bits & ATTN_CAP_SCALE) && c->fill != ATTN_FILL_SELECT)
        c->scale = (double)NAN;
}

/* ---- few shapes ------------------------------------------------------------------------------ */

enum { APART = 1000000 };

/* Octaves between two shapes; APART where one has groups, another width of V, fewer or more keys
 * than queries, or nothing, and the other has not. */
static double octaves(struct attn_case *a, struct attn_case *b)
{
    double sum = 0;
    int other = (a->heads == a->kv_heads) != (b->heads == b->kv_heads) ||
                (a->d_key == a->d_value) != (b->d_key == b->d_value) ||
                (a->n_query < a->n_key) != (b->n_query < b->n_key) ||
                (a->n_query > a->n_key) != (b->n_query > b->n_key);
    for (int n = 0; n < ATTN_CASE_EXTENTS; n++) {
        double x = (double)*attn_case_extent(a, n), y = (double)*attn_case_extent(b, n);
        other |= (x == 0) != (y == 0);
        sum += fabs(log2((x + 1) / (y + 1)));
    }
    return other ? APART : sum;
}

/* *c at the nearest of n shapes that it can have; as shape[0], where there is none. */
static void take_nearest(const struct attn_tier_list *list, enum attn_route route,
                         struct attn_case **shape, int n, struct attn_case *c)
{
    struct attn_case best = *shape[0];
    double least = APART;
    for (int s = 0; s < n; s++) {
        struct attn_case moved = *c;
        double far = octaves(shape[s], c);
        for (int x = 0; x < ATTN_CASE_EXTENTS; x++)
            *attn_case_extent(&moved, x) = *attn_case_extent(shape[s], x);
        if (far < least &&
            (far == 0 || attn_claims_allow_case(&list->claims, &moved, route, NULL) == ATTN_OK)) {
            least = far;
            best = moved;
        }
    }
    *c = best;
}

/* Shapes as far from each other as may be: each is the one that is farthest from those before.
 * far: -1 for a case that is none. */
static int choose_shapes(struct attn_case *c, double *far, int n, struct attn_case **shape)
{
    int chosen = 0;
    for (; chosen < ATTN_FEW_SHAPES; chosen++) {
        int farthest = 0;
        for (int i = 0; i < n; i++)
            farthest = far[i] > far[farthest] ? i : farthest;
        if (n == 0 || !(far[farthest] > 0))
            break;
        shape[chosen] = &c[farthest];
        for (int i = 0; i < n; i++)
            far[i] = far[i] > 0 ? fmin(far[i], octaves(&c[i], shape[chosen])) : far[i];
    }
    return chosen;
}

void attn_few_shapes(struct attn_tier_list *list, enum attn_route route)
{
    struct attn_case *c = calloc((size_t)list->n + 1, sizeof *c), *shape[ATTN_FEW_SHAPES];
    double *far = calloc((size_t)list->n + 1, sizeof *far);
    list->lacks_memory |= c == NULL || far == NULL;
    for (int i = 0; i < list->n && !list->lacks_memory; i++) {
        attn_case_parse(list->at[i].battery.text, &c[i], NULL);
        far[i] = attn_claims_allow_case(&list->claims, &c[i], route, NULL) == ATTN_OK
                     ? APART
                     : -1; /* else to be refused */
    }
    int chosen = list->lacks_memory ? 0 : choose_shapes(c, far, list->n, shape);
    for (int i = 0; i < list->n && chosen > 0; i++) {
        struct attn_tier_case *at = &list->at[i];
        char text[ATTN_CASE_TEXT];
        struct attn_case moved = c[i];
        if (far[i] <= 0)
            continue;
        at->is_made = 0; /* from its choice: another's extents */
        take_nearest(list, route, shape, chosen, &moved);
        attn_case_print(&moved, text);
        free((void *)at->battery.text);
        at->battery.text = strdup(text);
        list->lacks_memory |= at->battery.text == NULL;
    }
    free(c);
    free(far);
}
