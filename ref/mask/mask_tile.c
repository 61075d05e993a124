/* Is a block of pairs all hidden, all visible, or in between?
 *
 * Bands and column limits answer from their corners, documents from the documents that the block
 * touches, grids from the closed count of the block, csr by two binary searches a row; random,
 * dense and key patterns count rows until they have met both a visible and a hidden pair.  Single
 * calls are exact, but for those that stand for several (axial2d, bigbird).  A composition combines
 * the answers of its parts, which is sound but may say PARTIAL too often: two parts that are each
 * partial may exclude each other. */
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

/* Visible iff j < n. */
static enum attn_tile tile_limit(const struct block *t, int64_t n)
{
    int any_visible = t->j0 < n;
    int any_hidden = t->j1 > n;
    return tile_of(any_visible, any_hidden);
}

/* Visible iff i < n or j < n. */
static enum attn_tile tile_global(const struct block *t, int64_t n)
{
    int any_visible = t->i0 < n || t->j0 < n;
    int any_hidden = t->i1 > n && t->j1 > n;
    return tile_of(any_visible, any_hidden);
}

static enum attn_tile tile_documents(const struct attn_mask *mask, const struct mask_node *node,
                                     const struct block *t)
{
    const int64_t *query_start = mask->number + node->list;
    const int64_t *key_start = query_start + node->n_list + 1;
    int64_t query_first = attn_mask_document(query_start, node->n_list, t->i0);
    int64_t query_last = attn_mask_document(query_start, node->n_list, t->i1 - 1);
    int64_t key_first = attn_mask_document(key_start, node->n_list, t->j0);
    int64_t key_last = attn_mask_document(key_start, node->n_list, t->j1 - 1);
    int any_visible = 0;
    /* Documents in between may lack queries or keys, so each is looked at. */
    for (int64_t m = mask_max(query_first, key_first);
         m <= mask_min(query_last, key_last) && !any_visible; m++)
        any_visible = query_start[m] < query_start[m + 1] && key_start[m] < key_start[m + 1];
    return tile_of(any_visible, query_first != query_last || key_first != key_last);
}

static enum attn_tile tile_grid(const struct mask_node *node, const struct block *t)
{
    int64_t n = attn_mask_grid_pairs(node, t->i0, t->i1, t->j0, t->j1);
    return tile_of(n > 0, n < (t->i1 - t->i0) * (t->j1 - t->j0));
}

/* Count rows until both kinds have been seen; those of one block of blocks(...) are the same. */
static enum attn_tile tile_by_rows(const struct attn_mask *mask, const struct mask_node *node,
                                   const struct block *t)
{
    struct attn_tokens keys = attn_tokens_between(t->j0, t->j1);
    int64_t size = node->kind == MASK_RANDOM ? node->size : 1;
    int any_visible = 0, any_hidden = 0;
    for (int64_t i = t->i0; i < t->i1 && !(any_visible && any_hidden); i = (i / size + 1) * size) {
        int64_t n = attn_mask_node_count_keys(mask, node, t->b, t->h, i, &keys);
        any_visible |= n > 0;
        any_hidden |= n < t->j1 - t->j0;
    }
    return tile_of(any_visible, any_hidden);
}

static enum attn_tile tile_of_node(const struct attn_mask *mask, const struct mask_node *node,
                                   const struct block *t);

static enum attn_tile tile_all(const struct attn_mask *mask, const struct mask_node *node,
                               const struct block *t)
{
    enum attn_tile all = ATTN_TILE_FULL;
    for (int64_t c = node->child; c >= 0 && all != ATTN_TILE_EMPTY; c = mask->node[c].next) {
        enum attn_tile one = tile_of_node(mask, &mask->node[c], t);
        all = one < all ? one : all; /* EMPTY < PARTIAL < FULL */
    }
    return all;
}

static enum attn_tile tile_any(const struct attn_mask *mask, const struct mask_node *node,
                               const struct block *t)
{
    enum attn_tile any = ATTN_TILE_EMPTY;
    for (int64_t c = node->child; c >= 0 && any != ATTN_TILE_FULL; c = mask->node[c].next) {
        enum attn_tile one = tile_of_node(mask, &mask->node[c], t);
        any = one > any ? one : any;
    }
    return any;
}

static enum attn_tile tile_of_node(const struct attn_mask *mask, const struct mask_node *node,
                                   const struct block *t)
{
    int64_t least, most;
    if (attn_mask_node_band(mask, node, t->b, &least, &most))
        return tile_band(t, least, most);
    switch (node->kind) {
    case MASK_NONE:
        return ATTN_TILE_FULL;
    case MASK_PREFIX:
        return tile_limit(t, node->count);
    case MASK_GLOBAL:
        return tile_global(t, node->count);
    case MASK_LENGTHS:
        return tile_limit(t, mask->number[node->list + (node->by_batch ? t->b : 0)]);
    case MASK_DOCUMENTS:
        return tile_documents(mask, node, t);
    case MASK_GRID:
        return tile_grid(node, t);
    case MASK_PATTERN:
    case MASK_KEYS_TENSOR: { /* every row is the same */
        struct block row = *t;
        row.i1 = row.i0 + 1;
        return tile_by_rows(mask, node, &row);
    }
    case MASK_ALL_OF:
        return tile_all(mask, node, t);
    case MASK_ANY_OF:
        return tile_any(mask, node, t);
    default:
        return tile_by_rows(mask, node, t);
    }
}

enum attn_tile attn_mask_tile(const struct attn_mask *mask, int64_t b, int64_t h, int64_t i0,
                              int64_t i1, int64_t j0, int64_t j1)
{
    struct block block = {b, h, i0, i1, j0, j1};
    if (i0 >= i1 || j0 >= j1)
        return ATTN_TILE_EMPTY;
    return mask == NULL ? ATTN_TILE_FULL : tile_of_node(mask, &mask->node[mask->root], &block);
}
