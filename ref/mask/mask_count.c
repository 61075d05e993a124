/* How many pairs a block of rows and columns holds, without looking at pairs; and so, if it is all
 * hidden, all visible, or in between.
 *
 * Every closed form here is an identity on rectangles of pairs.  Write |X| for the number of
 * pairs of X in rectangle R:
 *
 *      a band                      least <= j - i <= most; the intersection of two is another,
 *                                  and |band| is the difference of two staircases, in O(1)
 *      cells & X                   sum over cells of |X| in each one's rectangle; one that holds
 *                                  all rows (prefix, keys(n,...)) only cuts the columns of R
 *      equal modulo m & X          sum over remainders of |X| between every m-th query and key
 *                                  (temporal, skiparse(single,m))
 *      (A | B) & X                 |A & X| + |B & X| - |A & B & X|
 *      keys alone & band           sum over visible columns of the rows that the band leaves,
 *                                  in O(columns): keys(x..), keys(NAME)
 *      a kind alone                what its pairs() knows: grids, whole rows of random and csr
 *      a kind & band               row by row what its count() knows: random, csr
 *
 * applied to a conjunction of terms until only a band is left.  Indices of a region are those of
 * the piece, token first + step * i of the whole.  Where queries and keys have the same step, a
 * band of tokens is a band of indices:
 *
 *      least <= (k0 + s j) - (q0 + s i) <= most   iff
 *      ceil((least + q0 - k0) / s) <= j - i <= floor((most + q0 - k0) / s)
 *
 *  The rule for | doubles the work,
 * so a budget bounds it; whatever is beyond the rules or the budget is counted row by row. */
#include "ref/mask/mask_internal.h"

/* A term is a node, or, for an |, the | of its children from `child` on. */
struct term {
    const struct mask_node *node;
    int64_t child;
};

enum { TERMS = 16, DEPTH = 64 };
enum { NOT_CLOSED = -1 };

/* The conjunction of band and terms on rows [i0,i1) by columns [j0,j1). */
struct region {
    int64_t i0, i1, j0, j1;
    int64_t least, most; /* least <= j - i <= most */
    int n;
    struct term term[TERMS];
};

struct counter {
    const struct mask_view *view; /* of the node that is counted */
    struct attn_tokens query, key;
    int64_t budget; /* steps left                                              */
    int dry;        /* only see whether the rules suffice: rows are not counted */
    int rows;       /* rows had to be counted                                  */
};

static int64_t count_region(struct counter *count, struct region region, int depth);

static int64_t token(const struct attn_tokens *t, int64_t index)
{
    return t->first + t->step * index;
}

/* ---- bands -------------------------------------------------------------------------------- */

int64_t attn_mask_staircase(int64_t i0, int64_t i1, int64_t shift, int64_t width)
{
    int64_t rise = mask_min(mask_max(1 - shift, i0), i1);       /* first row with a pair  */
    int64_t full = mask_min(mask_max(width - shift, rise), i1); /* first row with them all */
    int64_t slope = 0;
    if (full > rise)
        slope = (full - rise) * ((rise + shift) + (full - 1 + shift)) / 2;
    return slope + (i1 - full) * width;
}

/* j - i <= most holds for clamp(i + most + 1 - j0, 0, width) columns of row i. */
static int64_t count_band(const struct region *r)
{
    int64_t width = r->j1 - r->j0;
    if (r->least > r->most)
        return 0;
    return attn_mask_staircase(r->i0, r->i1, r->most + 1 - r->j0, width) -
           attn_mask_staircase(r->i0, r->i1, r->least - r->j0, width);
}

static int band_is_open(const struct region *r)
{
    return r->least <= r->j0 - (r->i1 - 1) && r->most >= r->j1 - 1 - r->i0;
}

/* ---- terms -------------------------------------------------------------------------------- */

static int add_term(struct region *region, const struct mask_node *node, int64_t child)
{
    if (region->n == TERMS)
        return 0;
    region->term[region->n++] = (struct term){node, child};
    return 1;
}

static struct term take_term(struct region *region, int at)
{
    struct term term = region->term[at];
    region->term[at] = region->term[--region->n];
    return term;
}

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

/* Narrow the region to least <= ahead + step * (j - i) <= most. */
static void narrow_band(struct region *region, int64_t least, int64_t most, int64_t ahead,
                        int64_t step)
{
    region->least = mask_max(region->least, -floor_div(-(least - ahead), step));
    region->most = mask_min(region->most, floor_div(most - ahead, step));
}

static struct mask_view view_of(const struct counter *count, const struct term *term)
{
    return mask_view_at(count->view, term->node);
}

/* A cell that holds all rows of the region only cuts its columns. */
static int cut_to_cell(const struct counter *count, struct region *region,
                       const struct mask_view *v)
{
    struct mask_cell cell;
    if (region->i0 >= region->i1 || !mask_cell(v, token(&count->query, region->i0), &cell) ||
        attn_tokens_below(&count->query, cell.q1) < region->i1)
        return 0;
    region->j0 = mask_max(region->j0, attn_tokens_below(&count->key, cell.k0));
    region->j1 = mask_min(region->j1, attn_tokens_below(&count->key, cell.k1));
    return 1;
}

/* Turn what only cuts the rectangle or narrows the band into that, and & into its children.
 * Returns 0 when there is no room for all terms, or a band is none here. */
static int absorb_terms(const struct counter *count, struct region *region)
{
    const struct mask_node *all = count->view->mask->node;
    for (int t = 0; t < region->n;) {
        struct mask_view v = view_of(count, &region->term[t]);
        int64_t least, most;
        if (v.node->kind == MASK_all_of) {
            take_term(region, t);
            for (int64_t c = v.node->child; c >= 0; c = all[c].next)
                if (!add_term(region, &all[c], all[c].child))
                    return 0;
            continue;
        }
        if (mask_band(&v, &least, &most)) {
            if (count->query.step == count->key.step)
                narrow_band(region, least, most, count->key.first - count->query.first,
                            count->key.step);
            else if (v.node->kind != MASK_none)
                return 0;
        } else if (!cut_to_cell(count, region, &v)) {
            t++;
            continue;
        }
        take_term(region, t);
    }
    return 1;
}

/* The rule that counts a term; the first of these that any term has is applied first. */
enum rule { BY_CELLS, BY_REMAINDERS, BY_EITHER, NO_RULE };

static enum rule rule_of(const struct counter *count, const struct region *region, int at)
{
    struct mask_view v = view_of(count, &region->term[at]);
    struct mask_cell cell;
    if (mask_cell(&v, token(&count->query, region->i0), &cell))
        return BY_CELLS;
    if (v.node->modulus > 0)
        return BY_REMAINDERS;
    return v.node->kind == MASK_any_of ? BY_EITHER : NO_RULE;
}

/* ---- the identities ----------------------------------------------------------------------- */

/* From the cell of one query to that of the query behind it; within one the term only cuts. */
static int64_t count_cells(struct counter *count, const struct region *region, int at, int depth)
{
    struct mask_view v = view_of(count, &region->term[at]);
    struct region one = *region;
    int64_t sum = 0;
    for (; one.i0 < region->i1; one.i0 = one.i1) {
        struct mask_cell cell;
        if (!mask_cell(&v, token(&count->query, one.i0), &cell))
            return NOT_CLOSED;
        one.i1 = mask_min(region->i1, attn_tokens_below(&count->query, cell.q1));
        int64_t n = count_region(count, one, depth);
        if (n < 0)
            return NOT_CLOSED;
        sum += n;
    }
    return sum;
}

/* Of tokens [index, end) of a stretch, those that leave `rest` modulo m; *first is the first. */
static struct attn_tokens every_mth(const struct attn_tokens *t, int64_t index, int64_t end,
                                    int64_t rest, int64_t m, int64_t *first)
{
    *first = index + ((rest - token(t, index)) % m + m) % m;
    struct attn_tokens some = {token(t, *first), m, *first < end ? (end - 1 - *first) / m + 1 : 0};
    return some;
}

static int64_t count_remainders(struct counter *count, const struct region *region, int at,
                                int depth)
{
    struct region rest = *region;
    int64_t m = take_term(&rest, at).node->modulus, sum = 0;
    if (count->query.step % m == 0 && count->key.step % m == 0) /* all of them, or none */
        return (count->query.first - count->key.first) % m == 0 ? count_region(count, rest, depth)
                                                                : 0;
    if (count->query.step != 1 || count->key.step != 1)
        return NOT_CLOSED;
    for (int64_t r = 0; r < m; r++) {
        struct counter some = *count;
        struct region one = rest;
        int64_t i0, j0;
        some.query = every_mth(&count->query, rest.i0, rest.i1, r, m, &i0);
        some.key = every_mth(&count->key, rest.j0, rest.j1, r, m, &j0);
        one.i0 = one.j0 = 0;
        one.i1 = some.query.n;
        one.j1 = some.key.n;
        one.least = -MASK_FAR;
        one.most = MASK_FAR;
        narrow_band(&one, rest.least, rest.most, j0 - i0, m);
        int64_t n = count_region(&some, one, depth);
        count->budget = some.budget;
        count->rows |= some.rows;
        if (n < 0)
            return NOT_CLOSED;
        sum += n;
    }
    return sum;
}

/* A = the first child, B = the | of the others. */
static int64_t count_either(struct counter *count, const struct region *region, int at, int depth)
{
    struct region first = *region;
    struct term term = take_term(&first, at);
    const struct mask_node *a = &count->view->mask->node[term.child];
    struct region second = first, both;
    int fits = add_term(&first, a, a->child);
    if (fits && a->next < 0)
        return count_region(count, first, depth);
    both = first;
    if (!fits || !add_term(&second, term.node, a->next) || !add_term(&both, term.node, a->next))
        return NOT_CLOSED;
    int64_t n_first = count_region(count, first, depth);
    int64_t n_second = n_first < 0 ? NOT_CLOSED : count_region(count, second, depth);
    int64_t n_both = n_second < 0 ? NOT_CLOSED : count_region(count, both, depth);
    return n_both < 0 ? NOT_CLOSED : n_first + n_second - n_both;
}

/* Terms that only ask about the column: row i counts iff j - most <= i <= j - least. */
static int64_t count_columns(struct counter *count, const struct region *r)
{
    int64_t sum = 0;
    count->budget -= (r->j1 - r->j0) / 64;
    for (int64_t j = r->j0; j < r->j1; j++) {
        int64_t rows = mask_min(r->i1, j - r->least + 1) - mask_max(r->i0, j - r->most);
        for (int t = 0; t < r->n && rows > 0; t++) {
            struct mask_view v = view_of(count, &r->term[t]);
            if (!mask_allows(&v, 0, token(&count->key, j)))
                rows = 0;
        }
        sum += mask_max(rows, 0);
    }
    return sum;
}

static int only_columns(const struct region *r)
{
    for (int t = 0; t < r->n; t++)
        if (!attn_mask_kinds[r->term[t].node->kind]->keys_alone)
            return 0;
    return 1;
}

/* One kind that counts within a row, and a band, of keys that are adjacent. */
static int64_t count_rows(struct counter *count, const struct region *r)
{
    struct mask_view v = view_of(count, &r->term[0]);
    int64_t sum = 0, j0 = count->key.first;
    count->rows = 1;
    for (int64_t i = r->i0; i < r->i1 && !count->dry; i++)
        sum += mask_kind(&v)->count(&v, token(&count->query, i), j0 + mask_max(r->j0, i + r->least),
                                    j0 + mask_min(r->j1, i + r->most + 1));
    return sum;
}

/* One kind alone may know its pairs. */
static int64_t count_alone(const struct counter *count, const struct region *r)
{
    struct mask_view v = view_of(count, &r->term[0]);
    struct attn_tokens queries = {token(&count->query, r->i0), count->query.step, r->i1 - r->i0};
    struct attn_tokens keys = {token(&count->key, r->j0), count->key.step, r->j1 - r->j0};
    if (r->n != 1 || !band_is_open(r) || mask_kind(&v)->pairs == NULL)
        return NOT_CLOSED;
    return mask_kind(&v)->pairs(&v, &queries, &keys);
}

static int64_t count_region(struct counter *count, struct region region, int depth)
{
    static int64_t (*const count_by[])(struct counter *, const struct region *, int,
                                       int) = {count_cells, count_remainders, count_either};
    if (--count->budget < 0 || depth == DEPTH || !absorb_terms(count, &region))
        return NOT_CLOSED;
    if (region.i0 >= region.i1 || region.j0 >= region.j1 || region.least > region.most)
        return 0;
    if (region.n == 0)
        return count_band(&region);
    int64_t alone = count_alone(count, &region);
    if (alone != NOT_CLOSED)
        return alone;
    enum rule rule = NO_RULE;
    int first = 0;
    for (int t = 0; t < region.n; t++)
        if (rule_of(count, &region, t) < rule)
            rule = rule_of(count, &region, first = t);
    if (rule != NO_RULE)
        return count_by[rule](count, &region, first, depth + 1);
    if (only_columns(&region))
        return count_columns(count, &region);
    if (region.n == 1 && attn_mask_kinds[region.term[0].node->kind]->count != NULL &&
        count->key.step == 1)
        return count_rows(count, &region);
    return NOT_CLOSED;
}

/* dry: *rows says whether rows would have to be counted, and the result means nothing then. */
static int64_t count_view(const struct mask_view *v, const struct attn_tokens *queries,
                          const struct attn_tokens *keys, int dry, int *rows)
{
    struct region region = {0,         queries->n, 0, keys->n,
                            -MASK_FAR, MASK_FAR,   1, {{v->node, v->node->child}}};
    struct counter count = {.view = v, .query = *queries, .key = *keys, .dry = dry};
    count.budget = 65536 + 16 * v->mask->n_numbers + queries->n + keys->n;
    if (queries->n == 1) /* one token has any step */
        count.query.step = keys->step;
    if (keys->n == 1)
        count.key.step = count.query.step;
    int64_t pairs = count_region(&count, region, 0);
    *rows = count.rows;
    return pairs;
}

int64_t attn_mask_pairs(const struct attn_mask *mask, int64_t b, int64_t h,
                        const struct attn_tokens *queries, const struct attn_tokens *keys,
                        int *counted)
{
    if (queries->n <= 0 || keys->n <= 0)
        return 0;
    if (mask == NULL)
        return queries->n * keys->n;
    struct mask_view v = mask_view_of(mask, b, h);
    int rows;
    int64_t pairs = count_view(&v, queries, keys, 1, &rows);
    if (pairs != NOT_CLOSED && rows)
        pairs = count_view(&v, queries, keys, 0, &rows);
    if (pairs == NOT_CLOSED) {
        rows = 1;
        pairs = 0;
        for (int64_t i = 0; i < queries->n; i++)
            pairs += attn_mask_view_count_keys(&v, token(queries, i), keys);
    }
    *counted |= rows;
    return pairs;
}

/* ---- blocks: all hidden, all visible, or in between ------------------------------------------
 *
 * Bands answer from their corners, a block within a cell from the ends of that, other calls from
 * the closed count of the block where there is one; the rest count rows until they have met both
 * a visible and a hidden pair.  Single calls are exact, but for those that stand for several
 * (axial2d).  A composition combines the answers of its parts, which is sound but may say
 * PARTIAL too often: two parts that are each partial may exclude each other. */

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
    int rows;
    int64_t n = count_view(v, &queries, &keys, 1, &rows), alike = mask_max(v->node->alike, 1);
    if (n != NOT_CLOSED && !rows)
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
