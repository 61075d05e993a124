/* The keys of one row.
 *
 * A row is a stream of runs in increasing order (attn_mask_view_next).  But with a scattered node,
 * such as random(...), asking column by column would cost Lk steps for a handful of keys, so that
 * leaf lists its keys instead, and what it lists is tested against the rest:
 *
 *      A & R     the keys of the smaller side that the other side allows
 *      A | R     the keys of A, then those of R that A does not allow
 *
 * which visits every visible key once, but out of order; attn_mask_list_keys sorts at the end. */
#include "ref/mask/mask_internal.h"

/* One row, cut to keys [j0,j1). */
struct row {
    struct mask_view v;
    int64_t i, j0, j1;
};

static struct row row_at(const struct row *r, const struct mask_node *node)
{
    struct row row = *r;
    row.v.node = node;
    return row;
}

/* Passes on the keys that all children of an & but `listed` allow, or that no child of an |
 * before `listed` does. */
struct sieve {
    const struct row *row;
    const struct mask_node *listed;
    mask_see *see;
    void *arg;
};

static int passes(const struct sieve *sieve, int64_t j)
{
    const struct row *r = sieve->row;
    const struct mask_node *all = r->v.mask->node;
    int is_any = r->v.node->kind == MASK_any_of;
    for (int64_t c = r->v.node->child; c >= 0; c = all[c].next) {
        struct mask_view child = mask_view_at(&r->v, &all[c]);
        if (child.node == sieve->listed) {
            if (is_any)
                return 1;
            continue;
        }
        if (mask_allows(&child, r->i, j) == is_any)
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

/* The number of keys that listing this row would visit, at most. */
static int64_t effort(const struct row *r)
{
    const struct mask_node *all = r->v.mask->node, *node = r->v.node;
    int64_t width = r->j1 - r->j0, lo, hi, sum = 0;
    if (attn_mask_view_span(&r->v, r->i, &lo, &hi))
        return mask_max(mask_min(hi, r->j1) - mask_max(lo, r->j0), 0);
    if (mask_kind(&r->v)->most != NULL)
        return mask_min(mask_kind(&r->v)->most(&r->v, r->i), width);
    if (node->child < 0)
        return width;
    for (int64_t c = node->child; c >= 0 && sum < width; c = all[c].next) {
        struct row child = row_at(r, &all[c]);
        if (node->kind == MASK_any_of)
            sum += effort(&child);
        else
            width = mask_min(width, effort(&child));
    }
    return node->kind == MASK_any_of ? mask_min(sum, width) : width;
}

static void each(const struct row *r, mask_see *see, void *arg);

static void each_all(const struct row *r, mask_see *see, void *arg)
{
    const struct mask_node *all = r->v.mask->node, *least = &all[r->v.node->child];
    struct row cut = *r;
    for (int64_t c = r->v.node->child; c >= 0; c = all[c].next) {
        struct mask_view child = mask_view_at(&r->v, &all[c]);
        int64_t lo, hi;
        if (attn_mask_view_span(&child, r->i, &lo, &hi)) {
            cut.j0 = mask_max(cut.j0, lo);
            cut.j1 = mask_min(cut.j1, hi);
        }
    }
    if (cut.j0 >= cut.j1)
        return;
    cut.v.node = least;
    for (int64_t c = least->next; c >= 0; c = all[c].next) {
        struct row child = row_at(&cut, &all[c]);
        if (effort(&child) < effort(&cut))
            cut.v.node = child.v.node;
    }
    struct sieve sieve = {r, cut.v.node, see, arg};
    each(&cut, see_through, &sieve);
}

static void each_any(const struct row *r, mask_see *see, void *arg)
{
    const struct mask_node *all = r->v.mask->node;
    for (int64_t c = r->v.node->child; c >= 0; c = all[c].next) {
        struct row child = row_at(r, &all[c]);
        struct sieve sieve = {r, &all[c], see, arg};
        if (c == r->v.node->child) /* none before it */
            each(&child, see, arg);
        else
            each(&child, see_through, &sieve);
    }
}

static void each(const struct row *r, mask_see *see, void *arg)
{
    const struct mask_node *node = r->v.node;
    if (mask_kind(&r->v)->each != NULL)
        mask_kind(&r->v)->each(&r->v, r->i, r->j0, r->j1, see, arg);
    else if (node->scattered && node->kind == MASK_all_of)
        each_all(r, see, arg);
    else if (node->scattered)
        each_any(r, see, arg);
    else {
        int64_t lo, hi;
        for (int64_t from = r->j0; attn_mask_view_next(&r->v, r->i, from, r->j1, &lo, &hi);
             from = hi)
            see(arg, lo, mask_min(hi, r->j1));
    }
}

/* ---- counting and listing ----------------------------------------------------------------- */

/* The stretch of tokens from the first of keys to the last. */
static struct row row_over(const struct mask_view *v, int64_t i, const struct attn_tokens *keys)
{
    int64_t end = keys->n > 0 ? keys->first + keys->step * (keys->n - 1) + 1 : keys->first;
    return (struct row){*v, i, mask_max(keys->first, 0), mask_min(end, v->mask->shape.n_key)};
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
    int64_t first = lo - list->keys->first, end = hi - list->keys->first;
    if (list->keys->step > 1) {
        first = attn_tokens_below(list->keys, lo);
        end = attn_tokens_below(list->keys, hi);
    }
    for (int64_t j = first; j < end && list->column != NULL; j++)
        list->column[list->n + j - first] = (int32_t)j;
    list->n += end - first;
}

int64_t attn_mask_view_count_keys(const struct mask_view *v, int64_t i,
                                  const struct attn_tokens *keys)
{
    struct row row = row_over(v, i, keys);
    struct listing list = {keys, 0, NULL};
    if (row.j0 >= row.j1)
        return 0;
    if (mask_kind(v)->count != NULL && keys->step == 1)
        return mask_kind(v)->count(v, i, row.j0, row.j1);
    each(&row, list_run, &list);
    return list.n;
}

int64_t attn_mask_count_keys(const struct attn_mask *mask, int64_t b, int64_t h, int64_t i,
                             const struct attn_tokens *keys)
{
    if (mask == NULL)
        return keys->n;
    struct mask_view v = mask_view_of(mask, b, h);
    return attn_mask_view_count_keys(&v, i, keys);
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

int64_t attn_mask_list_keys(const struct attn_mask *mask, int64_t b, int64_t h, int64_t i,
                            const struct attn_tokens *keys, int32_t *column)
{
    struct listing list = {keys, 0, column};
    if (mask == NULL) {
        for (int64_t j = 0; j < keys->n; j++)
            column[j] = (int32_t)j;
        return keys->n;
    }
    struct mask_view v = mask_view_of(mask, b, h);
    struct row row = row_over(&v, i, keys);
    if (row.j0 < row.j1)
        each(&row, list_run, &list);
    if (v.node->scattered)
        sort(column, list.n);
    return list.n;
}
