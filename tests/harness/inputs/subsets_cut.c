/* See subsets_cut.h. */
#include "tests/harness/inputs/subsets_cut.h"

#include <stdlib.h>

#include "ref/mask/mask.h"
#include "ref/problem.h"

enum { LARGEST_EDGE = 16 };

/* ---- the runs of a mask ---------------------------------------------------------------------- */

static enum attn_status read_row(const struct attn_problem *p, int64_t b, int64_t h, int64_t i,
                                 struct attn_run *run, struct attn_error *err)
{
    *run = (struct attn_run){0, 0};
    struct attn_run next = *run;
    if (!attn_problem_next(p, b, h, i, &next))
        return ATTN_OK;
    *run = next;
    if (next.hi < p->n_key && attn_problem_next(p, b, h, i, &next))
        return attn_fail(err, ATTN_EINVAL,
                         "fill subsets: query [%lld,%lld,%lld] sees keys in more than one run; "
                         "none, causal, a window or lengths would work",
                         (long long)b, (long long)h, (long long)i);
    return ATTN_OK;
}

/* The first head's rows, and whether the others' are the same. */
enum attn_status attn_subset_layout_read(const struct attn_problem *p, int64_t b,
                                         struct attn_subset_layout *x, struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    x->lo = malloc(2 * (size_t)x->n_query * sizeof *x->lo + 1);
    if (x->lo == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for the runs of %lld queries",
                         (long long)x->n_query);
    x->hi = x->lo + x->n_query;
    const int64_t heads = p->mask != NULL && attn_mask_varies_by_head(p->mask) ? p->heads : 1;
    for (int64_t h = 0; h < heads && status == ATTN_OK; h++)
        for (int64_t i = 0; i < p->n_query && status == ATTN_OK; i++) {
            struct attn_run run;
            status = read_row(p, b, h, i, &run, err);
            if (h == 0) {
                x->lo[i] = run.lo;
                x->hi[i] = run.hi;
            } else if (status == ATTN_OK && (run.lo != x->lo[i] || run.hi != x->hi[i]))
                status = attn_fail(err, ATTN_EINVAL,
                                   "fill subsets: heads 0 and %lld have different masks; one for "
                                   "all heads would work",
                                   (long long)h);
        }
    return status;
}

static void find_bounds(struct attn_subset_layout *x)
{
    x->begin = x->to = x->n_key;
    x->end = x->from = x->rows = 0;
    for (int64_t i = 0; i < x->n_query; i++) {
        if (x->lo[i] == x->hi[i])
            continue;
        x->rows++;
        x->begin = x->lo[i] < x->begin ? x->lo[i] : x->begin;
        x->from = x->lo[i] > x->from ? x->lo[i] : x->from;
        x->to = x->hi[i] < x->to ? x->hi[i] : x->to;
        x->end = x->hi[i] > x->end ? x->hi[i] : x->end;
    }
    if (x->rows == 0)
        x->begin = x->end = 0;
    if (x->rows == 0 || x->to - x->from < 2)
        x->from = x->to = x->begin;
}

/* ---- the cut --------------------------------------------------------------------------------- */

static int add(struct attn_subset_layout *x, int64_t first, int64_t step, int64_t n)
{
    if (x->n == x->capacity) {
        int capacity = x->capacity > 0 ? 2 * x->capacity : 64;
        struct attn_subset *more = realloc(x->set, (size_t)capacity * sizeof *more);
        if (more == NULL)
            return 0;
        x->set = more;
        x->capacity = capacity;
    }
    x->set[x->n++] = (struct attn_subset){first, step, n};
    return 1;
}

/* Keys of a subset where all rows see all: the least power of two from n on with which there are
 * no more subsets than codes, and than rows that could choose them; *is_shared: the rows of all
 * heads of a group. */
static int64_t spread_size(const struct attn_subset_layout *x, int64_t n, int64_t others,
                           int *is_shared)
{
    int64_t keys = x->to - x->from, codes = (int64_t)1 << x->bits, largest = 1;
    while (2 * largest <= keys)
        largest *= 2;
    for (*is_shared = 0; *is_shared <= 1; ++*is_shared)
        for (int64_t size = n < largest ? n : largest; size <= largest; size *= 2) {
            int64_t sets = keys / size + __builtin_popcountll((uint64_t)(keys % size)) + others;
            if (sets <= codes && sets <= x->rows * (*is_shared ? x->group : 1))
                return size;
        }
    *is_shared = 1;
    return largest;
}

/* Blocks of n keys along the edges, subsets of a power of two between them.  0: no memory. */
static int cut(struct attn_subset_layout *x, int64_t n)
{
    int64_t left = (x->from - x->begin + n - 1) / n, right = (x->end - x->to + n - 1) / n;
    int64_t keys = x->to - x->from, at = x->from, ok = 1;
    x->n = x->is_shared = 0;
    for (int64_t j = x->begin; j < x->from; j += n)
        ok &= add(x, j, 1, n < x->from - j ? n : x->from - j);
    if (keys > 0) {
        int64_t size = spread_size(x, n, left + right, &x->is_shared), sets = keys / size;
        for (int64_t part = size / 2; part > 0; part /= 2)
            if (keys % size & part) {
                ok &= add(x, at, 1, part);
                at += part;
            }
        for (int64_t t = 0; t < sets; t++)
            ok &= add(x, at + t, sets, size);
    }
    for (int64_t j = x->to; j < x->end; j = x->end - (x->end - j - 1) / n * n)
        ok &= add(x, j, 1, (x->end - j - 1) % n + 1);
    return (int)ok;
}

int attn_subset_is_seen(const struct attn_subset_layout *x, int64_t i,
                        const struct attn_subset *set)
{
    return x->lo[i] < x->hi[i] && x->lo[i] <= set->first &&
           set->first + (set->n - 1) * set->step < x->hi[i];
}

/* Some row sees each subset whole, and no row sees two that have one code. */
static int is_good(const struct attn_subset_layout *x)
{
    const int codes = 1 << x->bits;
    for (int t = 0; t < x->n; t++) {
        int64_t i = 0;
        while (i < x->n_query && !attn_subset_is_seen(x, i, &x->set[t]))
            i++;
        if (i == x->n_query)
            return 0;
    }
    if (x->n <= codes)
        return 1;
    for (int64_t i = 0; i < x->n_query && x->from == x->to; i++)
        for (int t = 0; t + codes < x->n; t++) /* blocks side by side */
            if (x->lo[i] < x->set[t].first + x->set[t].n && x->hi[i] > x->set[t + codes].first)
                return 0;
    return x->from == x->to;
}

/* The size of blocks: first what the marks have room for, then smaller, until windows show them
 * whole; or larger, until codes suffice. */
static enum attn_status cut_well(struct attn_subset_layout *x, struct attn_error *err)
{
    int64_t preferred = 1;
    while (2 * preferred <= x->d / 2 && preferred < LARGEST_EDGE)
        preferred *= 2;
    for (int way = 0; way < 2; way++)
        for (int64_t n = preferred; n >= 1 && (way == 0 || n < 2 * x->n_key);
             n = way == 0 ? n / 2 : 2 * n) {
            if (!cut(x, n))
                return attn_fail(err, ATTN_ENOMEM, "no memory for the subsets of %lld keys",
                                 (long long)x->n_key);
            if (is_good(x))
                return ATTN_OK;
        }
    return attn_fail(err, ATTN_EINVAL,
                     "fill subsets: %d bits of a code are too few for this mask; d above %lld, or "
                     "fewer keys, would work",
                     x->bits, (long long)x->d);
}

/* ---- who chooses which ----------------------------------------------------------------------- */

static int choose(const struct attn_subset_layout *x, int64_t i, const int *chosen)
{
    int best = ATTN_NO_SUBSET;
    for (int t = x->n - 1; t >= 0; t--)
        if (attn_subset_is_seen(x, i, &x->set[t]) &&
            (best == ATTN_NO_SUBSET || chosen[t] < chosen[best]))
            best = t;
    return best != ATTN_NO_SUBSET || x->lo[i] == x->hi[i] ? best : x->set_of[x->hi[i] - 1];
}

static enum attn_status assign(struct attn_subset_layout *x, struct attn_error *err)
{
    const int64_t heads = x->is_shared ? x->group : 1;
    int *chosen = calloc((size_t)x->n + 1, sizeof *chosen);
    x->set_of = malloc(((size_t)x->n_key + 1) * sizeof *x->set_of);
    x->choice = malloc(((size_t)(heads * x->n_query) + 1) * sizeof *x->choice);
    enum attn_status status = ATTN_OK;
    if (chosen == NULL || x->set_of == NULL || x->choice == NULL)
        status = attn_fail(err, ATTN_ENOMEM, "no memory for the subsets of %lld keys",
                           (long long)x->n_key);
    for (int64_t j = 0; status == ATTN_OK && j < x->n_key; j++)
        x->set_of[j] = ATTN_NO_SUBSET;
    for (int t = 0; status == ATTN_OK && t < x->n; t++)
        for (int64_t r = 0; r < x->set[t].n; r++)
            x->set_of[x->set[t].first + r * x->set[t].step] = t;
    for (int64_t row = 0; status == ATTN_OK && row < heads * x->n_query; row++) {
        x->choice[row] = choose(x, row % x->n_query, chosen);
        if (x->choice[row] != ATTN_NO_SUBSET)
            chosen[x->choice[row]]++;
    }
    free(chosen);
    return status;
}

enum attn_status attn_subset_layout_cut(struct attn_subset_layout *x, struct attn_error *err)
{
    find_bounds(x);
    enum attn_status status = cut_well(x, err);
    return status == ATTN_OK ? assign(x, err) : status;
}

void attn_subset_layout_free(struct attn_subset_layout *x)
{
    free(x->set);
    free(x->set_of);
    free(x->choice);
    free(x->lo);
    *x = (struct attn_subset_layout){0};
}
