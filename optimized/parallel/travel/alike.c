/* See alike.h. */
#include "optimized/parallel/travel/alike.h"

#include "optimized/integers.h"
#include "optimized/parallel/travel/products.h"
#include "ref/problem.h"

/* Whether a and b, pieces of the first and the last blocks of a line, are the same problem, and all
 * between them: as many pairs are visible, at the same places.  All that changes along a line goes
 * one way: extents; the tokens that pieces begin at; so the bounds of a band, too, in each piece's
 * own indices.  What is equal at both ends is equal between them.  Under other masks, a block of
 * the whole that holds all pieces is all hidden or all visible. */
static int are_alike(const struct attn_problem *a, const struct attn_problem *b, int64_t batch,
                     int64_t head)
{
    int64_t least[2], most[2], i0 = INT64_MAX, i1 = 0, j0 = INT64_MAX, j1 = 0;
    if (attn_problem_band(a, batch, &least[0], &most[0]) &&
        attn_problem_band(b, batch, &least[1], &most[1]) && least[0] == least[1] &&
        most[0] == most[1])
        return 1;
    for (int n = 0; n < 2; n++) {
        const struct attn_problem *p = n == 0 ? a : b;
        i0 = less(i0, attn_whole_query(p, batch, 0));
        i1 = greater(i1, attn_whole_query(p, batch, p->n_query - 1) + 1);
        j0 = less(j0, attn_whole_key(p, batch, 0));
        j1 = greater(j1, attn_whole_key(p, batch, p->n_key - 1) + 1);
    }
    return attn_mask_tile(a->mask, attn_whole_batch(a, batch), a->origin.head + head, i0, i1, j0,
                          j1) != ATTN_TILE_PARTIAL;
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

/* The first n pairs of blocks. */
static int line_alike(const struct attn_work *w, struct attn_line line, int n)
{
    struct attn_box query[2], key[2];
    for (int end = 0; end < 2; end++) {
        int at = end * (n - 1);
        query[end] = attn_work_box(w, 0, line.query + at * line.query_step);
        key[end] = attn_work_box(w, 1, line.key + at * line.key_step);
    }
    for (int q = 0; q < query[0].stretches; q++)
        for (int k = 0; k < key[0].stretches; k++) {
            struct attn_problem end[2];
            for (int e = 0; e < 2; e++)
                end[e] = attn_piece_of(w->whole, &query[e].batches, &w->heads, &query[e].stretch[q],
                                       &key[e].stretch[k]);
            if (!pieces_alike(&end[0], &end[1]))
                return 0;
        }
    return 1;
}

/* More and more of them, then half as many. */
int attn_work_alike(const struct attn_work *w, struct attn_line line, int n)
{
    int alike = 1, more = 1;
    while (alike + more <= n && line_alike(w, line, alike + more)) {
        alike += more;
        more *= 2;
    }
    for (more /= 2; more > 0; more /= 2)
        if (alike + more <= n && line_alike(w, line, alike + more))
            alike += more;
    return alike;
}

int attn_blocks_hidden(const struct attn_problem *whole, const struct attn_layout *work, int query,
                       int key)
{
    struct attn_box queries = attn_layout_box(work, whole, 0, query);
    struct attn_box keys = attn_layout_box(work, whole, 1, key);
    for (int q = 0; q < queries.stretches; q++)
        for (int k = 0; k < keys.stretches; k++) {
            struct attn_problem part = attn_piece_of(whole, &queries.batches, &queries.heads,
                                                     &queries.stretch[q], &keys.stretch[k]);
            if (!attn_piece_is_hidden(&part))
                return 0;
        }
    return 1;
}
