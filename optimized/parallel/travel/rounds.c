/* Stops of a ring that are equal: as many pairs of their products are visible, at the same places.
 * A price looks at the first of them.  See attn_work_round in work.h. */
#include "optimized/integers.h"
#include "optimized/parallel/travel/products.h"
#include "ref/problem.h"

/* 1 if a and b, pieces of the first and the last of some blocks in a row, are the same problem, and
 * all between them: as many pairs are visible, at the same places.  All that changes along the row
 * goes one way: extents; the tokens that pieces begin at; so the bounds of a band, too, in each
 * piece's own indices.  A number that is equal at both ends is equal between them.  Under other
 * masks, a block of the whole that holds all pieces is all hidden or all visible. */
static int are_alike(const struct attn_problem *a, const struct attn_problem *b, int64_t batch,
                     int64_t head)
{
    int64_t least[2], most[2];
    struct attn_tile_at both = {
        attn_whole_batch(a, batch), a->origin.head + head, INT64_MAX, 0, INT64_MAX, 0};
    if (attn_problem_band(a, batch, &least[0], &most[0]) &&
        attn_problem_band(b, batch, &least[1], &most[1]) && least[0] == least[1] &&
        most[0] == most[1])
        return 1;
    for (int n = 0; n < 2; n++) {
        const struct attn_problem *p = n == 0 ? a : b;
        both.i0 = less(both.i0, attn_whole_query(p, batch, 0));
        both.i1 = greater(both.i1, attn_whole_query(p, batch, p->n_query - 1) + 1);
        both.j0 = less(both.j0, attn_whole_key(p, batch, 0));
        both.j1 = greater(both.j1, attn_whole_key(p, batch, p->n_key - 1) + 1);
    }
    return attn_mask_tile(a->mask, both) != ATTN_TILE_PARTIAL;
}

static int pieces_alike(const struct attn_problem *a, const struct attn_problem *b)
{
    if (a->n_query != b->n_query || a->n_key != b->n_key)
        return 0;
    if (a->n_query == 0 || a->n_key == 0 || a->mask == NULL)
        return 1;
    int64_t batches = attn_problem_varies_by_batch(a) ? a->batch : less(a->batch, 1);
    int64_t heads = attn_mask_varies_by_head(a->mask) ? a->heads : less(a->heads, 1);
    for (int64_t n = 0; n < batches * heads; n++)
        if (!are_alike(a, b, n / heads, n % heads))
            return 0;
    return 1;
}

/* The first n blocks of keys from the one of rank `key` down, place by place, with the rank's own
 * queries. */
static int blocks_alike(const struct attn_work *w, int key, int n)
{
    struct attn_box query = attn_work_box(w, 0, w->rank), first = attn_work_box(w, 1, key);
    struct attn_box last = attn_work_box(w, 1, key - (n - 1) * w->ring.axis.stride);
    for (int q = 0; q < query.stretches; q++)
        for (int k = 0; k < first.stretches; k++) {
            struct attn_problem a =
                attn_piece_of(w->whole, &w->heads, &query.stretch[q], &first.stretch[k]);
            struct attn_problem b =
                attn_piece_of(w->whole, &w->heads, &query.stretch[q], &last.stretch[k]);
            if (!pieces_alike(&a, &b))
                return 0;
        }
    return 1;
}

/* How many of the first n are certainly alike: more and more of them, then half as many. */
static int count_alike(const struct attn_work *w, int key, int n)
{
    int alike = 1, more = 1;
    while (alike + more <= n && blocks_alike(w, key, alike + more)) {
        alike += more;
        more *= 2;
    }
    for (more /= 2; more > 0; more /= 2)
        if (alike + more <= n && blocks_alike(w, key, alike + more))
            alike += more;
    return alike;
}

/* Inside a window, blocks of keys go down place by place until the lowest, and then come from the
 * highest.  Whole windows go down too: where all blocks of some windows are alike, their order does
 * not matter. */
int attn_work_round(const struct attn_work *w, int n)
{
    if (n == 0)
        return 1;
    int inner = w->ring.inner, key = attn_work_stop(w, n).key;
    int place = attn_axis_place(&w->ring.axis, key), below = place % inner;
    if (n % inner == 0) {
        int highest = key + (inner - 1 - below) * w->ring.axis.stride;
        int most = (int)less(place - below + inner, w->stops - n);
        int all = count_alike(w, highest, most) / inner * inner;
        if (all > 0)
            return all;
    }
    return count_alike(w, key, (int)less(below + 1, inner - n % inner));
}

/* ---- stops that differ in pairs only --------------------------------------------------------- */

/* Which products a stop has: a bit each. */
static unsigned products_of(const struct attn_work *at, int n)
{
    struct attn_work w = *at;
    struct attn_product x;
    unsigned bits = 0;
    for (attn_work_go(&w, n); attn_work_next(&w, &x);)
        bits |= 1u << ((x.call * ATTN_MAX_STRETCHES + x.query) * ATTN_MAX_STRETCHES + x.key);
    return bits;
}

static int same_sizes(const struct attn_box *a, const struct attn_box *b)
{
    for (int k = 0; k < a->stretches; k++)
        if (a->stretch[k].n != b->stretch[k].n)
            return 0;
    return 1;
}

/* The blocks of a round of runs lie side by side: all of them are one stretch. */
static void join(struct attn_box *all, const struct attn_box *one)
{
    for (int k = 0; k < all->stretches; k++) {
        struct attn_tokens *a = &all->stretch[k];
        const struct attn_tokens *b = &one->stretch[k];
        *a = attn_tokens_between(less(a->first, b->first),
                                 greater(a->first + a->n, b->first + b->n));
    }
}

static double pairs_of(struct attn_work *w, int *counted)
{
    struct attn_product x;
    double pairs = 0;
    while (attn_work_next(w, &x))
        pairs += (double)attn_problem_all_pairs(&x.part, counted);
    return pairs;
}

/* Of all keys but the rank's own block. */
static double pairs_of_others(const struct attn_work *at, int *counted)
{
    const struct attn_tokens keys = attn_tokens_between(0, at->whole->n_key);
    struct attn_work w = *at;
    attn_work_go(&w, 0);
    double pairs = -pairs_of(&w, counted);
    for (int call = 0; call < ATTN_CALLS; call++)
        for (int q = 0; q < w.queries.stretches; q++) {
            struct attn_product x = attn_work_product(&w, call, q, 0, 0);
            struct attn_problem row =
                attn_piece_of(w.whole, &x.heads, &w.queries.stretch[q], &keys);
            pairs += x.heads.n > 0 ? (double)attn_problem_all_pairs(&row, counted) : 0;
        }
    return pairs;
}

int attn_work_together(const struct attn_work *at, int n, double *pairs, int *counted)
{
    struct attn_problem open = *at->whole;
    struct attn_work sizes = *at, w = *at;
    const int is_of_runs = at->work.order == ATTN_CONTIGUOUS || at->work.order == ATTN_ZIGZAG;
    const unsigned same = products_of(at, n);
    int equal = 1;
    open.mask = NULL;
    sizes.whole = &open;
    attn_work_go(&w, n);
    const int run = is_of_runs && n > 0 ? attn_work_round(&sizes, n) : 1;
    const int others = n == 1 && w.keys.tokens * at->stops == at->whole->n_key;
    struct attn_box next = w.keys;
    while (equal < (others ? at->stops - 1 : run) && same_sizes(&w.keys, &next) &&
           products_of(at, n + equal) == same) {
        next = attn_work_box(at, 1, attn_work_stop(at, n + equal).key);
        equal += same_sizes(&w.keys, &next);
    }
    if (others && equal == at->stops - 1) {
        *pairs = pairs_of_others(at, counted);
        return equal;
    }
    equal = equal < run ? equal : run;
    for (int m = 1; m < equal; m++) {
        next = attn_work_box(at, 1, attn_work_stop(at, n + m).key);
        join(&w.keys, &next);
    }
    *pairs = pairs_of(&w, counted);
    return equal;
}
