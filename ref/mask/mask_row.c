/* The keys of one row.
 *
 * Without random(...) a row is a stream of runs in increasing order (attn_mask_node_next).  With
 * it, asking column by column would cost Lk steps for a handful of keys, so the random leaf is
 * listed instead, from its permutation, and what it lists is tested against the rest:
 *
 *      A & R     the keys of the smaller side that the other side allows
 *      A | R     the keys of A, then those of R that A does not allow
 *
 * which visits every visible key once, but out of order; attn_mask_row_keys sorts at the end. */
#include "ref/mask/mask_internal.h"

/* One row, cut to keys [j0,j1). */
struct row {
    const struct attn_mask *mask;
    int64_t b, h, i, j0, j1;
};

/* Passes on the keys that all children of an & but `listed` allow, or that no child of an |
 * before `listed` does. */
struct sieve {
    const struct row *row;
    const struct mask_node *node, *listed;
    void (*see)(void *arg, int64_t lo, int64_t hi);
    void *arg;
};

static int passes(const struct sieve *sieve, int64_t j)
{
    const struct row *r = sieve->row;
    const struct mask_node *all = r->mask->node;
    for (int64_t c = sieve->node->child; c >= 0; c = all[c].next) {
        if (&all[c] == sieve->listed) {
            if (sieve->node->kind == MASK_ANY_OF)
                return 1;
            continue;
        }
        if (attn_mask_node_allows(r->mask, &all[c], r->b, r->h, r->i, j) ==
            (sieve->node->kind == MASK_ANY_OF))
            return 0;
    }
    return 1;
}

static void see_through(void *arg, int64_t lo, int64_t hi)
{
    const struct sieve *sieve = arg;
    for (int64_t j = lo; j < hi; j++)
        if (passes(sieve, j))
            sieve->see(sieve->arg, j, j + 1);
}

/* At most so many keys would be visited by listing this node. */
static int64_t effort(const struct row *r, const struct mask_node *node)
{
    const struct mask_node *all = r->mask->node;
    int64_t width = r->j1 - r->j0, lo, hi, sum = 0;
    if (attn_mask_node_span(r->mask, node, r->b, r->i, &lo, &hi))
        return mask_max(mask_min(hi, r->j1) - mask_max(lo, r->j0), 0);
    switch (node->kind) {
    case MASK_RANDOM:
        return mask_min(node->count * node->size, width);
    case MASK_CSR:
        attn_mask_csr_row(r->mask, node, r->b, r->h, r->i, &lo, &hi);
        return mask_min(hi - lo, width);
    case MASK_ALL_OF:
        for (int64_t c = node->child; c >= 0; c = all[c].next)
            width = mask_min(width, effort(r, &all[c]));
        return width;
    case MASK_ANY_OF:
        for (int64_t c = node->child; c >= 0 && sum < width; c = all[c].next)
            sum += effort(r, &all[c]);
        return mask_min(sum, width);
    default:
        return width;
    }
}

static void each(const struct row *r, const struct mask_node *node,
                 void (*see)(void *arg, int64_t lo, int64_t hi), void *arg);

/* A range of fewer blocks than are kept is asked block by block. */
static void each_random(const struct row *r, const struct mask_node *node,
                        void (*see)(void *arg, int64_t lo, int64_t hi), void *arg)
{
    uint64_t key = attn_mask_random_key(r->mask, node, r->b, r->h, r->i);
    int64_t size = node->size, first = r->j0 / size, last = (r->j1 - 1) / size;
    int ask = last - first < node->count;
    for (int64_t n = ask ? first : 0; n < (ask ? last + 1 : node->count); n++) {
        if (ask && attn_mask_random_rank(node, key, n) >= node->count)
            continue;
        int64_t block = ask ? n : attn_mask_random_column(node, key, n);
        int64_t lo = mask_max(block * size, r->j0), hi = mask_min((block + 1) * size, r->j1);
        if (lo < hi)
            see(arg, lo, hi);
    }
}

static void each_all(const struct row *r, const struct mask_node *node,
                     void (*see)(void *arg, int64_t lo, int64_t hi), void *arg)
{
    const struct mask_node *all = r->mask->node, *least = &all[node->child];
    struct row cut = *r;
    for (int64_t c = node->child; c >= 0; c = all[c].next) {
        int64_t lo, hi;
        if (attn_mask_node_span(r->mask, &all[c], r->b, r->i, &lo, &hi)) {
            cut.j0 = mask_max(cut.j0, lo);
            cut.j1 = mask_min(cut.j1, hi);
        }
    }
    if (cut.j0 >= cut.j1)
        return;
    for (int64_t c = node->child; c >= 0; c = all[c].next)
        if (effort(&cut, &all[c]) < effort(&cut, least))
            least = &all[c];
    struct sieve sieve = {r, node, least, see, arg};
    each(&cut, least, see_through, &sieve);
}

static void each_any(const struct row *r, const struct mask_node *node,
                     void (*see)(void *arg, int64_t lo, int64_t hi), void *arg)
{
    const struct mask_node *all = r->mask->node;
    each(r, &all[node->child], see, arg);
    for (int64_t c = all[node->child].next; c >= 0; c = all[c].next) {
        struct sieve sieve = {r, node, &all[c], see, arg};
        each(r, &all[c], see_through, &sieve);
    }
}

static void each(const struct row *r, const struct mask_node *node,
                 void (*see)(void *arg, int64_t lo, int64_t hi), void *arg)
{
    if (node->random && node->kind == MASK_RANDOM)
        each_random(r, node, see, arg);
    else if (node->random && node->kind == MASK_ALL_OF)
        each_all(r, node, see, arg);
    else if (node->random)
        each_any(r, node, see, arg);
    else {
        int64_t lo, hi;
        for (int64_t from = r->j0;
             attn_mask_node_next(r->mask, node, r->b, r->h, r->i, from, r->j1, &lo, &hi); from = hi)
            see(arg, lo, mask_min(hi, r->j1));
    }
}

/* ---- counting and listing ----------------------------------------------------------------- */

/* The stretch of tokens from the first of keys to the last. */
static struct row row_over(const struct attn_mask *mask, int64_t b, int64_t h, int64_t i,
                           const struct attn_tokens *keys)
{
    int64_t end = keys->n > 0 ? keys->first + keys->step * (keys->n - 1) + 1 : keys->first;
    return (struct row){mask, b, h, i, mask_max(keys->first, 0), mask_min(end, mask->shape.n_key)};
}

struct listing {
    const struct attn_tokens *keys;
    int64_t n;
    int32_t *column; /* NULL: only counted */
};

/* Of a run of tokens, those that belong to the keys. */
static void list_run(void *arg, int64_t lo, int64_t hi)
{
    struct listing *list = arg;
    int64_t first = attn_tokens_below(list->keys, lo), end = attn_tokens_below(list->keys, hi);
    for (int64_t j = first; j < end && list->column != NULL; j++)
        list->column[list->n + j - first] = (int32_t)j;
    list->n += end - first;
}

int64_t attn_mask_node_count_keys(const struct attn_mask *mask, const struct mask_node *node,
                                  int64_t b, int64_t h, int64_t i, const struct attn_tokens *keys)
{
    struct row row = row_over(mask, b, h, i, keys);
    struct listing list = {keys, 0, NULL};
    int64_t first, end;
    if (row.j0 >= row.j1)
        return 0;
    if (node->kind == MASK_CSR && keys->step == 1) {
        attn_mask_csr_row(mask, node, b, h, i, &first, &end);
        first = attn_mask_csr_find(node, first, end, row.j0);
        return attn_mask_csr_find(node, first, end, row.j1) - first;
    }
    if (node->kind == MASK_RANDOM && keys->step == 1)
        return attn_mask_random_within(node, attn_mask_random_key(mask, node, b, h, i), row.j0,
                                       row.j1);
    each(&row, node, list_run, &list);
    return list.n;
}

int64_t attn_mask_count_keys(const struct attn_mask *mask, int64_t b, int64_t h, int64_t i,
                             const struct attn_tokens *keys)
{
    if (mask == NULL)
        return keys->n;
    return attn_mask_node_count_keys(mask, &mask->node[mask->root], b, h, i, keys);
}

static void sift_down(int32_t *a, int64_t n, int64_t at)
{
    for (int64_t child = 2 * at + 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && a[child + 1] > a[child])
            child++;
        if (a[child] <= a[at])
            return;
        int32_t swap = a[at];
        a[at] = a[child];
        a[child] = swap;
        at = child;
    }
}

/* Heapsort: in place and never worse than n log n; qsort of libc may allocate. */
static void sort(int32_t *a, int64_t n)
{
    for (int64_t at = n / 2 - 1; at >= 0; at--)
        sift_down(a, n, at);
    for (int64_t end = n - 1; end > 0; end--) {
        int32_t swap = a[0];
        a[0] = a[end];
        a[end] = swap;
        sift_down(a, end, 0);
    }
}

/* A stored row is copied: it may hold thousands of keys, and it is in order. */
static int64_t list_csr(const struct row *r, const struct mask_node *node, int64_t origin,
                        int32_t *column)
{
    int64_t first, end;
    attn_mask_csr_row(r->mask, node, r->b, r->h, r->i, &first, &end);
    first = attn_mask_csr_find(node, first, end, r->j0);
    end = attn_mask_csr_find(node, first, end, r->j1);
    for (int64_t at = first; at < end; at++)
        *column++ = (int32_t)(attn_mask_element(&node->tensor, at) - origin);
    return end - first;
}

int attn_mask_stored(const struct attn_mask *mask, struct attn_mask_tensor *row_start,
                     struct attn_mask_tensor *column)
{
    if (mask == NULL || mask->node[mask->root].kind != MASK_CSR)
        return 0;
    *row_start = mask->node[mask->root].row_start;
    *column = mask->node[mask->root].tensor;
    return 1;
}

int64_t attn_mask_list_keys(const struct attn_mask *mask, int64_t b, int64_t h, int64_t i,
                            const struct attn_tokens *keys, int32_t *column)
{
    struct listing list = {keys, 0, column};
    if (mask == NULL) {
        for (int64_t j = 0; j < keys->n; j++)
            column[j] = (int32_t)j;
        return keys->n;
    }
    const struct mask_node *root = &mask->node[mask->root];
    struct row row = row_over(mask, b, h, i, keys);
    if (row.j0 < row.j1 && root->kind == MASK_CSR && keys->step == 1)
        return list_csr(&row, root, keys->first, column);
    if (row.j0 < row.j1)
        each(&row, root, list_run, &list);
    if (root->random)
        sort(column, list.n);
    return list.n;
}
