/* & and |: the kinds that join others.
 *
 * The files that count and list (mask_count.c, mask_row.c) look at their children themselves. */
#include "ref/mask/mask_internal.h"

/* The first child that says `decides` decides. */
static int in_parts(const struct mask_view *v, int64_t i, int64_t j, int decides)
{
    const struct mask_node *all = v->mask->node;
    for (int64_t c = v->node->child; c >= 0; c = all[c].next) {
        struct mask_view child = mask_view_at(v, &all[c]);
        if (mask_allows(&child, i, j) == decides)
            return decides;
    }
    return !decides;
}

static int in_all(const struct mask_view *v, int64_t i, int64_t j)
{
    return in_parts(v, i, j, 0);
}

static int in_any(const struct mask_view *v, int64_t i, int64_t j)
{
    return in_parts(v, i, j, 1);
}

/* ---- all of ------------------------------------------------------------------------------- */

static int band_of_all(const struct mask_view *v, int64_t *least, int64_t *most)
{
    const struct mask_node *all = v->mask->node;
    *least = -MASK_FAR;
    *most = MASK_FAR;
    for (int64_t c = v->node->child; c >= 0; c = all[c].next) {
        struct mask_view child = mask_view_at(v, &all[c]);
        int64_t low, high;
        if (!mask_band(&child, &low, &high))
            return 0;
        *least = mask_max(*least, low);
        *most = mask_min(*most, high);
    }
    return 1;
}

static int span_of_all(const struct mask_view *v, int64_t i, int64_t *lo, int64_t *hi)
{
    const struct mask_node *all = v->mask->node;
    *lo = 0;
    *hi = v->mask->shape.n_key;
    for (int64_t c = v->node->child; c >= 0; c = all[c].next) {
        struct mask_view child = mask_view_at(v, &all[c]);
        int64_t first, end;
        if (!attn_mask_view_span(&child, i, &first, &end))
            return 0;
        *lo = mask_max(*lo, first);
        *hi = mask_min(*hi, end);
    }
    return 1;
}

/* Leapfrog: every child moves the position to its own next run, until none moves it any more.
 * The run ends where the first child's does. */
static int next_in_all(const struct mask_view *v, int64_t i, int64_t from, int64_t until,
                       int64_t *lo, int64_t *hi)
{
    const struct mask_node *all = v->mask->node;
    int moved = 1;
    *lo = from;
    while (moved) {
        moved = 0;
        *hi = v->mask->shape.n_key;
        for (int64_t c = v->node->child; c >= 0; c = all[c].next) {
            struct mask_view child = mask_view_at(v, &all[c]);
            int64_t child_lo, child_hi;
            if (!attn_mask_view_next(&child, i, *lo, until, &child_lo, &child_hi))
                return 0;
            moved |= child_lo > *lo;
            *lo = child_lo;
            *hi = mask_min(*hi, child_hi);
        }
    }
    return *lo < until && *lo < *hi;
}

const struct mask_kind attn_mask_kind_all_of = {
    .allows = in_all, .band = band_of_all, .span = span_of_all, .next = next_in_all};

/* ---- any of ------------------------------------------------------------------------------- */

/* The child whose run comes first; a child need not look beyond the best start so far. */
static int next_in_any(const struct mask_view *v, int64_t i, int64_t from, int64_t until,
                       int64_t *lo, int64_t *hi)
{
    const struct mask_node *all = v->mask->node;
    int found = 0;
    for (int64_t c = v->node->child; c >= 0; c = all[c].next) {
        struct mask_view child = mask_view_at(v, &all[c]);
        int64_t child_lo, child_hi;
        if (!attn_mask_view_next(&child, i, from, until, &child_lo, &child_hi))
            continue;
        *hi = found && child_lo == *lo ? mask_max(*hi, child_hi) : child_hi;
        *lo = child_lo;
        until = child_lo + 1;
        found = 1;
    }
    return found;
}

const struct mask_kind attn_mask_kind_any_of = {.allows = in_any, .next = next_in_any};
