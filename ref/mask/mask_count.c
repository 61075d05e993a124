/* How many pairs a block of rows and columns holds, without looking at pairs.
 *
 * Every closed form here is an identity on rectangles of pairs.  Write |X| for the number of
 * pairs of X in rectangle R:
 *
 *      none, prefix, keys(n,...)   cut the columns of R; the rest is counted there
 *      causal, window              least <= j - i <= most; the intersection of two is another,
 *                                  and |band| is the difference of two staircases, in O(1)
 *      global(n) & X               |X| in R less |X| where i >= n and j >= n
 *      documents & X               sum over documents of |X| in each one's rectangle; the same for
 *                                  grids that are stretches of tokens (spatial: frames)
 *      equal modulo m & X          sum over remainders of |X| between every m-th query and key
 *                                  (temporal, skiparse(single,m))
 *      a grid alone                digit by digit (mask_grid.c)
 *      (A | B) & X                 |A & X| + |B & X| - |A & B & X|
 *      keys(x..) & band            sum over visible columns of the rows that the band leaves,
 *                                  in O(columns); the same for keys(NAME)
 *      random, blocks, csr         alone and over whole rows: k a row, differences of row_start
 *      random & band               row by row, as its keys may lie anywhere: min(k, keys
 *                                  inside the band, keys outside) steps each
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
    const struct attn_mask *mask;
    int64_t b, h;
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

/* Turn what only cuts the rectangle or narrows the band into that, and & into its children.
 * Returns 0 when there is no room for all terms, or a band is none here. */
static int absorb_terms(const struct counter *count, struct region *region)
{
    const struct attn_mask *mask = count->mask;
    for (int t = 0; t < region->n;) {
        const struct mask_node *node = region->term[t].node;
        int64_t least, most;
        if (node->kind == MASK_ALL_OF) {
            take_term(region, t);
            for (int64_t c = node->child; c >= 0; c = mask->node[c].next)
                if (!add_term(region, &mask->node[c], mask->node[c].child))
                    return 0;
            continue;
        }
        if (node->kind == MASK_PREFIX) {
            region->j1 = mask_min(region->j1, attn_tokens_below(&count->key, node->count));
        } else if (node->kind == MASK_LENGTHS) {
            int64_t length = mask->number[node->list + (node->by_batch ? count->b : 0)];
            region->j1 = mask_min(region->j1, attn_tokens_below(&count->key, length));
        } else if (!attn_mask_node_band(mask, node, count->b, &least, &most)) {
            t++;
            continue;
        } else if (count->query.step == count->key.step) {
            narrow_band(region, least, most, count->key.first - count->query.first,
                        count->key.step);
        } else if (node->kind != MASK_NONE) {
            return 0;
        }
        take_term(region, t);
    }
    return 1;
}

/* What a term is counted by; the first of these that any term has is applied first. */
enum rule { BY_GLOBAL, BY_CELLS, BY_REMAINDERS, BY_EITHER, NO_RULE };

static enum rule rule_of(const struct mask_node *node)
{
    switch (node->kind) {
    case MASK_GLOBAL:
        return BY_GLOBAL;
    case MASK_DOCUMENTS:
        return BY_CELLS;
    case MASK_GRID:
        return attn_mask_grid_is_cells(node)      ? BY_CELLS
               : attn_mask_grid_modulus(node) > 0 ? BY_REMAINDERS
                                                  : NO_RULE;
    case MASK_ANY_OF:
        return BY_EITHER;
    default:
        return NO_RULE;
    }
}

/* ---- the identities ----------------------------------------------------------------------- */

static int64_t count_global(struct counter *count, const struct region *region, int at, int depth)
{
    struct region whole = *region;
    int64_t n = take_term(&whole, at).node->count;
    struct region outside = whole;
    outside.i0 = mask_max(outside.i0, attn_tokens_below(&count->query, n));
    outside.j0 = mask_max(outside.j0, attn_tokens_below(&count->key, n));
    int64_t all = count_region(count, whole, depth);
    int64_t less = all < 0 ? NOT_CLOSED : count_region(count, outside, depth);
    return less < 0 ? NOT_CLOSED : all - less;
}

/* From the cell of one query to that of the query behind it. */
static int64_t count_cells(struct counter *count, const struct region *region, int at, int depth)
{
    struct region one = *region;
    const struct mask_node *node = take_term(&one, at).node;
    const struct attn_tokens *query = &count->query, *key = &count->key;
    int64_t sum = 0;
    for (; one.i0 < region->i1; one.i0 = one.i1) {
        int64_t i = token(query, one.i0);
        struct mask_cell cell = node->kind == MASK_GRID ? attn_mask_grid_cell(node, i)
                                                        : attn_mask_document(count->mask, node, i);
        one.i1 = mask_min(region->i1, attn_tokens_below(query, cell.q1));
        one.j0 = mask_max(region->j0, attn_tokens_below(key, cell.k0));
        one.j1 = mask_min(region->j1, attn_tokens_below(key, cell.k1));
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
    int64_t m = attn_mask_grid_modulus(take_term(&rest, at).node), sum = 0;
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
    const struct mask_node *a = &count->mask->node[term.child];
    struct region second = first, both;
    int room = add_term(&first, a, a->child);
    if (room && a->next < 0)
        return count_region(count, first, depth);
    both = first;
    if (!room || !add_term(&second, term.node, a->next) || !add_term(&both, term.node, a->next))
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
        for (int t = 0; t < r->n && rows > 0; t++)
            if (!attn_mask_node_allows(count->mask, r->term[t].node, count->b, count->h, 0,
                                       token(&count->key, j)))
                rows = 0;
        sum += mask_max(rows, 0);
    }
    return sum;
}

/* One random call and a band, of keys that are adjacent. */
static int64_t count_random(struct counter *count, const struct region *r)
{
    const struct mask_node *node = r->term[0].node;
    int64_t sum = 0, j0 = count->key.first;
    count->rows = 1;
    for (int64_t i = r->i0; i < r->i1 && !count->dry; i++) {
        uint64_t key =
            attn_mask_random_key(count->mask, node, count->b, count->h, token(&count->query, i));
        sum += attn_mask_random_within(node, key, j0 + mask_max(r->j0, i + r->least),
                                       j0 + mask_min(r->j1, i + r->most + 1));
    }
    return sum;
}

/* random and csr know the size of a whole row; so does a grid that of any rectangle. */
static int64_t count_whole_rows(const struct counter *count, const struct region *r)
{
    const struct mask_node *node = r->term[0].node;
    int64_t first, last, unused;
    if (r->n != 1 || !band_is_open(r))
        return NOT_CLOSED;
    if (node->kind == MASK_GRID && count->query.step == 1 && count->key.step == 1)
        return attn_mask_grid_pairs(node, token(&count->query, r->i0), token(&count->query, r->i1),
                                    token(&count->key, r->j0), token(&count->key, r->j1));
    if (r->j1 - r->j0 != count->mask->shape.n_key)
        return NOT_CLOSED;
    if (node->kind == MASK_RANDOM && count->mask->shape.n_key % node->size == 0)
        return (r->i1 - r->i0) * node->count * node->size;
    if (node->kind != MASK_CSR || count->query.step != 1)
        return NOT_CLOSED;
    int64_t i0 = token(&count->query, r->i0), i1 = token(&count->query, r->i1);
    attn_mask_csr_row(count->mask, node, count->b, count->h, i0, &first, &unused);
    attn_mask_csr_row(count->mask, node, count->b, count->h, i1 - 1, &unused, &last);
    return last - first;
}

static int only_columns(const struct region *r)
{
    for (int t = 0; t < r->n; t++)
        if (r->term[t].node->kind != MASK_PATTERN && r->term[t].node->kind != MASK_KEYS_TENSOR)
            return 0;
    return 1;
}

static int64_t count_region(struct counter *count, struct region region, int depth)
{
    static int64_t (*const count_by[])(struct counter *, const struct region *, int, int) = {
        count_global, count_cells, count_remainders, count_either};
    if (--count->budget < 0 || depth == DEPTH || !absorb_terms(count, &region))
        return NOT_CLOSED;
    if (region.i0 >= region.i1 || region.j0 >= region.j1 || region.least > region.most)
        return 0;
    if (region.n == 0)
        return count_band(&region);
    int64_t whole = count_whole_rows(count, &region);
    if (whole != NOT_CLOSED)
        return whole;
    int first = 0;
    for (int t = 1; t < region.n; t++)
        if (rule_of(region.term[t].node) < rule_of(region.term[first].node))
            first = t;
    enum rule rule = rule_of(region.term[first].node);
    if (rule != NO_RULE)
        return count_by[rule](count, &region, first, depth + 1);
    if (only_columns(&region))
        return count_columns(count, &region);
    if (region.n == 1 && region.term[0].node->kind == MASK_RANDOM && count->key.step == 1)
        return count_random(count, &region);
    return NOT_CLOSED;
}

/* dry: *rows says whether rows would have to be counted, and the result means nothing then. */
static int64_t count_node(const struct attn_mask *mask, const struct mask_node *node, int64_t b,
                          int64_t h, const struct attn_tokens *queries,
                          const struct attn_tokens *keys, int dry, int *rows)
{
    struct region region = {0,         queries->n, 0, keys->n,
                            -MASK_FAR, MASK_FAR,   1, {{node, node->child}}};
    struct counter count = {
        mask, b, h, *queries, *keys, 65536 + 16 * mask->n_numbers + queries->n + keys->n, dry, 0};
    if (queries->n == 1) /* one token has any step */
        count.query.step = keys->step;
    if (keys->n == 1)
        count.key.step = count.query.step;
    int64_t pairs = count_region(&count, region, 0);
    *rows = count.rows;
    return pairs;
}

int64_t attn_mask_node_pairs(const struct attn_mask *mask, const struct mask_node *node, int64_t b,
                             int64_t h, const struct attn_tokens *queries,
                             const struct attn_tokens *keys)
{
    int rows;
    int64_t pairs = count_node(mask, node, b, h, queries, keys, 1, &rows);
    return rows ? NOT_CLOSED : pairs;
}

int64_t attn_mask_pairs(const struct attn_mask *mask, int64_t b, int64_t h,
                        const struct attn_tokens *queries, const struct attn_tokens *keys,
                        int *counted)
{
    if (queries->n <= 0 || keys->n <= 0)
        return 0;
    if (mask == NULL)
        return queries->n * keys->n;
    const struct mask_node *root = &mask->node[mask->root];
    int rows;
    int64_t pairs = count_node(mask, root, b, h, queries, keys, 1, &rows);
    if (pairs != NOT_CLOSED && rows)
        pairs = count_node(mask, root, b, h, queries, keys, 0, &rows);
    if (pairs == NOT_CLOSED) {
        rows = 1;
        pairs = 0;
        for (int64_t i = 0; i < queries->n; i++)
            pairs += attn_mask_node_count_keys(mask, root, b, h, token(queries, i), keys);
    }
    *counted |= rows;
    return pairs;
}
