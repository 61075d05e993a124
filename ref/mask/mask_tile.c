/* Is a block of pairs all hidden, all visible, or in between?
 *
 * Bands answer from their corners, a block within a cell from the ends of that, other calls from
 * the closed count of the block where there is one; the rest count rows until they have met both
 * a visible and a hidden pair.  Single calls are exact, but for those that stand for several
 * (axial2d).  A composition combines the answers of its parts, which is sound but may say
 * PARTIAL too often: two parts that are each partial may exclude each other. */
#include "ref/mask/mask_internal.h"

static enum attn_tile tile_of(int any_visible, int any_hidden)
{
    if (!any_visible)
        return ATTN_TILE_EMPTY;
    return any_hidden ? ATTN_TILE_PARTIAL : ATTN_TILE_FULL;
}

/* Visible iff least <= j - i <= most; inside the block j - i takes every value from the bottom
 * left corner to the top right one. */
static enum attn_tile tile_band(const struct attn_tile_at *t, int64_t least, int64_t most)
{
    int64_t low = t->j0 - (t->i1 - 1), high = t->j1 - 1 - t->i0;
    return tile_of(low <= most && high >= least, low < least || high > most);
}

/* By one count; or row by row until both kinds have been seen. */
static enum attn_tile tile_by_count(const struct mask_view *v, const struct attn_tile_at *t)
{
    struct attn_tokens queries = attn_tokens_between(t->i0, t->i1);
    struct attn_tokens keys = attn_tokens_between(t->j0, t->j1);
    int64_t n = attn_mask_view_pairs(v, &queries, &keys), alike = mask_max(v->node->alike, 1);
    if (n >= 0)
        return tile_of(n > 0, n < queries.n * keys.n);
    int any_visible = 0, any_hidden = 0;
    for (int64_t i = t->i0; i < t->i1 && !(any_visible && any_hidden);
         i = (i / alike + 1) * alike) {
        n = attn_mask_view_count_keys(v, i, &keys);
        any_visible |= n > 0;
        any_hidden |= n < keys.n;
    }
    return tile_of(any_visible, any_hidden);
}

static enum attn_tile tile_of_view(const struct mask_view *v, const struct attn_tile_at *t);

/* EMPTY < PARTIAL < FULL: & is the least of its parts, | the greatest. */
static enum attn_tile tile_of_parts(const struct mask_view *v, const struct attn_tile_at *t)
{
    const struct mask_node *all = v->mask->node;
    int is_any = v->node->kind == MASK_any_of;
    enum attn_tile tile = is_any ? ATTN_TILE_EMPTY : ATTN_TILE_FULL;
    enum attn_tile last = is_any ? ATTN_TILE_FULL : ATTN_TILE_EMPTY;
    for (int64_t c = v->node->child; c >= 0 && tile != last; c = all[c].next) {
        struct mask_view child = mask_view_at(v, &all[c]);
        enum attn_tile one = tile_of_view(&child, t);
        if (is_any ? one > tile : one < tile)
            tile = one;
    }
    return tile;
}

static enum attn_tile tile_of_view(const struct mask_view *v, const struct attn_tile_at *t)
{
    int64_t least, most;
    struct mask_cell cell;
    if (v->node->child >= 0)
        return tile_of_parts(v, t);
    if (mask_band(v, &least, &most))
        return tile_band(t, least, most);
    if (mask_cell(v, t->i0, &cell) && cell.q1 >= t->i1)
        return tile_of(mask_max(cell.k0, t->j0) < mask_min(cell.k1, t->j1),
                       t->j0 < cell.k0 || t->j1 > cell.k1);
    return tile_by_count(v, t);
}

enum attn_tile attn_mask_tile(const struct attn_mask *mask, struct attn_tile_at at)
{
    if (at.i0 >= at.i1 || at.j0 >= at.j1)
        return ATTN_TILE_EMPTY;
    if (mask == NULL)
        return ATTN_TILE_FULL;
    struct mask_view v = mask_view_of(mask, at.b, at.h);
    return tile_of_view(&v, &at);
}
