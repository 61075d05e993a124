/* Is a block of pairs all hidden, all visible, or in between?
 *
 * Bands answer from their corners, rows of one span from its ends, other calls from the closed
 * count of the block where there is one; random, csr and dense count rows until they have met both
 * a visible and a hidden pair.  Single calls are exact, but for those that stand for several
 * (axial2d, bigbird).  A composition combines the answers of its parts, which is sound but may say
 * PARTIAL too often: two parts that are each partial may exclude each other. */
#include "ref/mask/mask_internal.h"

struct block {
    int64_t b, h, i0, i1, j0, j1;
};

static enum attn_tile tile_of(int any_visible, int any_hidden)
{
    if (!any_visible)
        return ATTN_TILE_EMPTY;
    return any_hidden ? ATTN_TILE_PARTIAL : ATTN_TILE_FULL;
}

/* Visible iff least <= j - i <= most; inside the block j - i takes every value from the bottom
 * left corner to the top right one. */
static enum attn_tile tile_band(const struct block *t, int64_t least, int64_t most)
{
    int64_t low = t->j0 - (t->i1 - 1), high = t->j1 - 1 - t->i0;
    return tile_of(low <= most && high >= least, low < least || high > most);
}

/* Whether all rows of the block see the same stretch of keys, and which. */
static int one_span(const struct attn_mask *mask, const struct mask_node *node,
                    const struct block *t, int64_t *lo, int64_t *hi)
{
    int64_t same = t->i1; /* rows from i0 to here are like row i0 */
    if (node->kind == MASK_GLOBAL)
        same = t->i0 < node->count ? node->count : t->i1;
    else if (node->kind == MASK_DOCUMENTS)
        same = attn_mask_document(mask, node, t->i0).q1;
    else if (node->kind == MASK_GRID)
        same = attn_mask_grid_is_cells(node) ? attn_mask_grid_cell(node, t->i0).q1 : t->i0;
    else if (node->kind != MASK_PREFIX && node->kind != MASK_LENGTHS)
        return 0;
    return same >= t->i1 && attn_mask_node_span(mask, node, t->b, t->i0, lo, hi);
}

/* By one count; or row by row until both kinds have been seen.  The rows of one block of
 * blocks(...) are the same. */
static enum attn_tile tile_by_count(const struct attn_mask *mask, const struct mask_node *node,
                                    const struct block *t)
{
    struct attn_tokens queries = attn_tokens_between(t->i0, t->i1);
    struct attn_tokens keys = attn_tokens_between(t->j0, t->j1);
    int64_t n = attn_mask_node_pairs(mask, node, t->b, t->h, &queries, &keys);
    if (n >= 0)
        return tile_of(n > 0, n < queries.n * keys.n);
    int64_t size = node->kind == MASK_RANDOM ? node->size : 1;
    int any_visible = 0, any_hidden = 0;
    for (int64_t i = t->i0; i < t->i1 && !(any_visible && any_hidden); i = (i / size + 1) * size) {
        n = attn_mask_node_count_keys(mask, node, t->b, t->h, i, &keys);
        any_visible |= n > 0;
        any_hidden |= n < keys.n;
    }
    return tile_of(any_visible, any_hidden);
}

/* EMPTY < PARTIAL < FULL: & is the least of its parts, | the greatest. */
static enum attn_tile tile_of_node(const struct attn_mask *mask, const struct mask_node *node,
                                   const struct block *t)
{
    int64_t least, most; /* of a band, or of a span */
    if (node->kind == MASK_ALL_OF || node->kind == MASK_ANY_OF) {
        int is_any = node->kind == MASK_ANY_OF;
        enum attn_tile tile = is_any ? ATTN_TILE_EMPTY : ATTN_TILE_FULL;
        enum attn_tile last = is_any ? ATTN_TILE_FULL : ATTN_TILE_EMPTY;
        for (int64_t c = node->child; c >= 0 && tile != last; c = mask->node[c].next) {
            enum attn_tile one = tile_of_node(mask, &mask->node[c], t);
            if (is_any ? one > tile : one < tile)
                tile = one;
        }
        return tile;
    }
    if (attn_mask_node_band(mask, node, t->b, &least, &most))
        return tile_band(t, least, most);
    if (one_span(mask, node, t, &least, &most))
        return tile_of(mask_max(least, t->j0) < mask_min(most, t->j1),
                       t->j0 < least || t->j1 > most);
    return tile_by_count(mask, node, t);
}

enum attn_tile attn_mask_tile(const struct attn_mask *mask, int64_t b, int64_t h, int64_t i0,
                              int64_t i1, int64_t j0, int64_t j1)
{
    struct block block = {b, h, i0, i1, j0, j1};
    if (i0 >= i1 || j0 >= j1)
        return ATTN_TILE_EMPTY;
    return mask == NULL ? ATTN_TILE_FULL : tile_of_node(mask, &mask->node[mask->root], &block);
}
