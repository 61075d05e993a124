/* What a mask means.
 *
 * attn_mask_allows() is the definition: one switch, one line a call of the language.  The rest of
 * this file says the same about runs of keys, faster, and is tested against the definition on
 * every pair of many small shapes. */
#include "ref/mask/mask_internal.h"

const struct attn_mask_shape *attn_mask_shape(const struct attn_mask *mask)
{
    return &mask->shape;
}

const char *attn_mask_text(const struct attn_mask *mask)
{
    return mask->text;
}

/* ---- the definition ----------------------------------------------------------------------- */

struct mask_cell attn_mask_document(const struct attn_mask *mask, const struct mask_node *node,
                                    int64_t i)
{
    const int64_t *query_start = mask->number + node->list;
    const int64_t *key_start = query_start + node->n_list + 1;
    int64_t m = 0, beyond = node->n_list;
    while (beyond - m > 1) {
        int64_t middle = m + (beyond - m) / 2;
        if (query_start[middle] <= i)
            m = middle;
        else
            beyond = middle;
    }
    return (struct mask_cell){query_start[m], query_start[m + 1], key_start[m], key_start[m + 1]};
}

void attn_mask_csr_row(const struct attn_mask *mask, const struct mask_node *node, int64_t b,
                       int64_t h, int64_t i, int64_t *first, int64_t *end)
{
    int64_t pattern = node->by_head ? b * mask->shape.heads + h : 0;
    int64_t row = pattern * mask->shape.n_query + i;
    *first = attn_mask_element(&node->row_start, row);
    *end = attn_mask_element(&node->row_start, row + 1);
}

int64_t attn_mask_csr_find(const struct mask_node *node, int64_t first, int64_t end, int64_t j)
{
    while (first < end) {
        int64_t middle = first + (end - first) / 2;
        if (attn_mask_element(&node->tensor, middle) < j)
            first = middle + 1;
        else
            end = middle;
    }
    return first;
}

static int in_csr(const struct attn_mask *mask, const struct mask_node *node, int64_t b, int64_t h,
                  int64_t i, int64_t j)
{
    int64_t first, end;
    attn_mask_csr_row(mask, node, b, h, i, &first, &end);
    int64_t at = attn_mask_csr_find(node, first, end, j);
    return at < end && attn_mask_element(&node->tensor, at) == j;
}

static int in_dense(const struct attn_mask *mask, const struct mask_node *node, int64_t b,
                    int64_t h, int64_t i, int64_t j)
{
    int64_t heads = node->by_head ? mask->shape.heads : 1;
    int64_t plane = (node->by_batch ? b : 0) * heads + (node->by_head ? h : 0);
    int64_t index = (plane * mask->shape.n_query + i) * mask->shape.n_key + j;
    return attn_mask_element(&node->tensor, index) != 0;
}

/* Digits repeat: digit j % size. */
static int in_pattern(const struct attn_mask *mask, const struct mask_node *node, int64_t b,
                      int64_t j)
{
    const int64_t *pattern = mask->number + node->list + 2 * (node->by_batch ? b : 0);
    return mask->text[pattern[0] + j % pattern[1]] == '1';
}

static int in_random(const struct attn_mask *mask, const struct mask_node *node, int64_t b,
                     int64_t h, int64_t i, int64_t j)
{
    uint64_t key = attn_mask_random_key(mask, node, b, h, i);
    return attn_mask_random_rank(node, key, j / node->size) < node->count;
}

/* & and |: the first child that says `decides` decides. */
static int in_parts(const struct attn_mask *mask, const struct mask_node *node, int64_t b,
                    int64_t h, int64_t i, int64_t j, int decides)
{
    for (int64_t c = node->child; c >= 0; c = mask->node[c].next)
        if (attn_mask_node_allows(mask, &mask->node[c], b, h, i, j) == decides)
            return decides;
    return !decides;
}

int attn_mask_node_allows(const struct attn_mask *mask, const struct mask_node *node, int64_t b,
                          int64_t h, int64_t i, int64_t j)
{
    int64_t at = i + attn_mask_node_offset(mask, node, b); /* where query i stands among the keys */
    switch (node->kind) {
    case MASK_NONE:
        return 1;
    case MASK_CAUSAL:
        return j <= at;
    case MASK_WINDOW:
        return (node->left < 0 || j >= at - node->left) &&
               (node->right < 0 || j <= at + node->right);
    case MASK_PREFIX:
        return j < node->count;
    case MASK_GLOBAL:
        return i < node->count || j < node->count;
    case MASK_LENGTHS:
        return j < mask->number[node->list + (node->by_batch ? b : 0)];
    case MASK_PATTERN:
        return in_pattern(mask, node, b, j);
    case MASK_KEYS_TENSOR:
        return attn_mask_element(&node->tensor, (node->by_batch ? b : 0) * mask->shape.n_key + j) !=
               0;
    case MASK_DOCUMENTS: {
        struct mask_cell cell = attn_mask_document(mask, node, i);
        return cell.k0 <= j && j < cell.k1;
    }
    case MASK_RANDOM:
        return in_random(mask, node, b, h, i, j);
    case MASK_GRID:
        return attn_mask_grid_allows(node, i, j);
    case MASK_CSR:
        return in_csr(mask, node, b, h, i, j);
    case MASK_DENSE:
        return in_dense(mask, node, b, h, i, j);
    case MASK_ALL_OF:
        return in_parts(mask, node, b, h, i, j, 0);
    case MASK_ANY_OF:
        return in_parts(mask, node, b, h, i, j, 1);
    }
    return 0;
}

int attn_mask_allows(const struct attn_mask *mask, int64_t b, int64_t h, int64_t i, int64_t j)
{
    return mask == NULL || attn_mask_node_allows(mask, &mask->node[mask->root], b, h, i, j);
}

/* ---- facts about the whole ---------------------------------------------------------------- */

static int only_none(const struct attn_mask *mask, const struct mask_node *node)
{
    if (node->kind != MASK_ALL_OF && node->kind != MASK_ANY_OF)
        return node->kind == MASK_NONE;
    for (int64_t c = node->child; c >= 0; c = mask->node[c].next)
        if (!only_none(mask, &mask->node[c]))
            return 0;
    return 1;
}

int attn_mask_is_none(const struct attn_mask *mask)
{
    return mask == NULL || only_none(mask, &mask->node[mask->root]);
}

int attn_mask_varies_by_batch(const struct attn_mask *mask)
{
    return mask != NULL && mask->node[mask->root].by_batch;
}

int attn_mask_varies_by_head(const struct attn_mask *mask)
{
    return mask != NULL && mask->node[mask->root].by_head;
}

/* ---- runs --------------------------------------------------------------------------------- */

int attn_mask_node_band(const struct attn_mask *mask, const struct mask_node *node, int64_t b,
                        int64_t *least, int64_t *most)
{
    int64_t offset = attn_mask_node_offset(mask, node, b);
    *least = -MASK_FAR;
    *most = MASK_FAR;
    switch (node->kind) {
    case MASK_NONE:
        return 1;
    case MASK_CAUSAL:
        *most = offset;
        return 1;
    case MASK_WINDOW:
        *least = node->left < 0 ? -MASK_FAR : offset - node->left;
        *most = node->right < 0 ? MASK_FAR : offset + node->right;
        return 1;
    case MASK_ALL_OF:
        for (int64_t c = node->child; c >= 0; c = mask->node[c].next) {
            int64_t low, high;
            if (!attn_mask_node_band(mask, &mask->node[c], b, &low, &high))
                return 0;
            *least = mask_max(*least, low);
            *most = mask_min(*most, high);
        }
        return 1;
    default:
        return 0;
    }
}

int attn_mask_band(const struct attn_mask *mask, int64_t b, int64_t *least, int64_t *most)
{
    *least = -MASK_FAR;
    *most = MASK_FAR;
    return mask == NULL || attn_mask_node_band(mask, &mask->node[mask->root], b, least, most);
}

int attn_mask_node_span(const struct attn_mask *mask, const struct mask_node *node, int64_t b,
                        int64_t i, int64_t *lo, int64_t *hi)
{
    int64_t least, most;
    *lo = 0;
    *hi = mask->shape.n_key;
    if (attn_mask_node_band(mask, node, b, &least, &most)) {
        *lo = mask_max(i + least, 0);
        *hi = mask_min(i + most + 1, *hi);
        return 1;
    }
    switch (node->kind) {
    case MASK_PREFIX:
        *hi = mask_min(node->count, *hi);
        return 1;
    case MASK_GLOBAL:
        *hi = i < node->count ? *hi : mask_min(node->count, *hi);
        return 1;
    case MASK_LENGTHS:
        *hi = mask->number[node->list + (node->by_batch ? b : 0)];
        return 1;
    case MASK_DOCUMENTS: {
        struct mask_cell cell = attn_mask_document(mask, node, i);
        *lo = cell.k0;
        *hi = cell.k1;
        return 1;
    }
    case MASK_GRID: {
        int is_one = attn_mask_grid_span(node, i, lo, hi);
        *hi = mask_min(*hi, mask->shape.n_key);
        return is_one;
    }
    case MASK_ALL_OF:
        for (int64_t c = node->child; c >= 0; c = mask->node[c].next) {
            int64_t first, end;
            if (!attn_mask_node_span(mask, &mask->node[c], b, i, &first, &end))
                return 0;
            *lo = mask_max(*lo, first);
            *hi = mask_min(*hi, end);
        }
        return 1;
    default:
        return 0;
    }
}

/* Runs of masks that must be asked key by key are cut at this length: a caller that asks for
 * the next run again and again must not walk through the rest of a long one each time. */
enum { RUN_CUT = 64 };

static int next_in_csr(const struct attn_mask *mask, const struct mask_node *node, int64_t b,
                       int64_t h, int64_t i, int64_t from, int64_t until, int64_t *lo, int64_t *hi)
{
    int64_t first, end;
    attn_mask_csr_row(mask, node, b, h, i, &first, &end);
    int64_t at = attn_mask_csr_find(node, first, end, from);
    if (at == end)
        return 0;
    *lo = attn_mask_element(&node->tensor, at);
    *hi = *lo + 1;
    while (++at < end && *hi - *lo < RUN_CUT && attn_mask_element(&node->tensor, at) == *hi)
        ++*hi;
    return *lo < until;
}

static int next_by_asking(const struct attn_mask *mask, const struct mask_node *node, int64_t b,
                          int64_t h, int64_t i, int64_t from, int64_t until, int64_t *lo,
                          int64_t *hi)
{
    while (from < until && !attn_mask_node_allows(mask, node, b, h, i, from))
        from++;
    if (from >= until)
        return 0;
    *lo = from++;
    while (from < mask->shape.n_key && from - *lo < RUN_CUT &&
           attn_mask_node_allows(mask, node, b, h, i, from))
        from++;
    *hi = from;
    return 1;
}

static int next_in_grid(const struct attn_mask *mask, const struct mask_node *node, int64_t i,
                        int64_t from, int64_t until, int64_t *lo, int64_t *hi)
{
    int found = attn_mask_grid_next(node, i, from, lo, hi);
    *hi = mask_min(*hi, mask->shape.n_key);
    return found && *lo < until;
}

/* From block to block; blocks of one token are joined to runs. */
static int next_in_random(const struct attn_mask *mask, const struct mask_node *node, int64_t b,
                          int64_t h, int64_t i, int64_t from, int64_t until, int64_t *lo,
                          int64_t *hi)
{
    uint64_t key = attn_mask_random_key(mask, node, b, h, i);
    int64_t size = node->size, block = from / size;
    while (block * size < until && attn_mask_random_rank(node, key, block) >= node->count)
        block++;
    *lo = mask_max(from, block * size);
    do
        block++;
    while (size == 1 && block < node->columns && block - *lo < RUN_CUT &&
           attn_mask_random_rank(node, key, block) < node->count);
    *hi = mask_min(block * size, mask->shape.n_key);
    return *lo < until;
}

/* Leapfrog: every child moves the position to its own next run, until none moves it any more.
 * The run ends where the first child's does. */
static int next_in_all(const struct attn_mask *mask, const struct mask_node *node, int64_t b,
                       int64_t h, int64_t i, int64_t from, int64_t until, int64_t *lo, int64_t *hi)
{
    int moved = 1;
    *lo = from;
    while (moved) {
        moved = 0;
        *hi = mask->shape.n_key;
        for (int64_t c = node->child; c >= 0; c = mask->node[c].next) {
            int64_t child_lo, child_hi;
            if (!attn_mask_node_next(mask, &mask->node[c], b, h, i, *lo, until, &child_lo,
                                     &child_hi))
                return 0;
            moved |= child_lo > *lo;
            *lo = child_lo;
            *hi = mask_min(*hi, child_hi);
        }
    }
    return *lo < until && *lo < *hi;
}

/* The child whose run comes first; a child need not look beyond the best start so far. */
static int next_in_any(const struct attn_mask *mask, const struct mask_node *node, int64_t b,
                       int64_t h, int64_t i, int64_t from, int64_t until, int64_t *lo, int64_t *hi)
{
    int found = 0;
    for (int64_t c = node->child; c >= 0; c = mask->node[c].next) {
        int64_t child_lo, child_hi;
        if (!attn_mask_node_next(mask, &mask->node[c], b, h, i, from, until, &child_lo, &child_hi))
            continue;
        *hi = found && child_lo == *lo ? mask_max(*hi, child_hi) : child_hi;
        *lo = child_lo;
        until = child_lo + 1;
        found = 1;
    }
    return found;
}

int attn_mask_node_next(const struct attn_mask *mask, const struct mask_node *node, int64_t b,
                        int64_t h, int64_t i, int64_t from, int64_t until, int64_t *lo, int64_t *hi)
{
    from = mask_max(from, 0);
    until = mask_min(until, mask->shape.n_key);
    if (from >= until)
        return 0;
    if (attn_mask_node_span(mask, node, b, i, lo, hi)) {
        *lo = mask_max(*lo, from);
        return *lo < *hi && *lo < until;
    }
    switch (node->kind) {
    case MASK_CSR:
        return next_in_csr(mask, node, b, h, i, from, until, lo, hi);
    case MASK_ALL_OF:
        return next_in_all(mask, node, b, h, i, from, until, lo, hi);
    case MASK_ANY_OF:
        return next_in_any(mask, node, b, h, i, from, until, lo, hi);
    case MASK_GRID:
        return next_in_grid(mask, node, i, from, until, lo, hi);
    case MASK_RANDOM:
        return next_in_random(mask, node, b, h, i, from, until, lo, hi);
    default:
        return next_by_asking(mask, node, b, h, i, from, until, lo, hi);
    }
}

int attn_mask_span(const struct attn_mask *mask, int64_t b, int64_t h, int64_t i, int64_t *lo,
                   int64_t *hi)
{
    (void)h; /* a mask that differs between heads is no single run */
    *lo = 0;
    *hi = INT64_MAX;
    return mask == NULL || attn_mask_node_span(mask, &mask->node[mask->root], b, i, lo, hi);
}

int attn_mask_next(const struct attn_mask *mask, int64_t b, int64_t h, int64_t i, int64_t from,
                   int64_t *lo, int64_t *hi)
{
    if (mask == NULL) {
        *lo = from;
        *hi = INT64_MAX;
        return 1;
    }
    return attn_mask_node_next(mask, &mask->node[mask->root], b, h, i, from, INT64_MAX, lo, hi);
}
