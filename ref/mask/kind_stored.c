/* Masks that are tensors.
 *
 *      csr(NAME)     row_start (Lq + 1 entries, or B*H*Lq + 1 for a pattern a head) and column
 *                    arrays by name; columns increase within a row
 *      dense(NAME)   [Lq,Lk], or [B|1,H|1,Lq,Lk]: non-zero = visible */
#include "ref/mask/mask_internal.h"

/* ---- csr ---------------------------------------------------------------------------------- */

struct csr {
    struct attn_mask_tensor row_start, column;
};

/* Row (b, h, i): entries [*first, *end) of its columns. */
static void row_of(const struct mask_view *v, int64_t i, int64_t *first, int64_t *end)
{
    const struct csr *x = v->node->own;
    int64_t pattern = v->node->by_head ? v->b * v->mask->shape.heads + v->h : 0;
    int64_t row = pattern * v->mask->shape.n_query + i;
    *first = attn_mask_element(&x->row_start, row);
    *end = attn_mask_element(&x->row_start, row + 1);
}

/* The first entry in [first, end) whose column is at least j, or end. */
static int64_t find_column(const struct csr *x, int64_t first, int64_t end, int64_t j)
{
    while (first < end) {
        int64_t middle = first + (end - first) / 2;
        if (attn_mask_element(&x->column, middle) < j)
            first = middle + 1;
        else
            end = middle;
    }
    return first;
}

static int in_csr(const struct mask_view *v, int64_t i, int64_t j)
{
    const struct csr *x = v->node->own;
    int64_t first, end;
    row_of(v, i, &first, &end);
    int64_t at = find_column(x, first, end, j);
    return at < end && attn_mask_element(&x->column, at) == j;
}

static int next_in_csr(const struct mask_view *v, int64_t i, int64_t from, int64_t until,
                       int64_t *lo, int64_t *hi)
{
    const struct csr *x = v->node->own;
    int64_t first, end;
    row_of(v, i, &first, &end);
    int64_t at = find_column(x, first, end, from);
    if (at == end)
        return 0;
    *lo = attn_mask_element(&x->column, at);
    *hi = *lo + 1;
    while (++at < end && *hi - *lo < MASK_RUN_CUT && attn_mask_element(&x->column, at) == *hi)
        ++*hi;
    return *lo < until;
}

/* Row i in [j0, j1): entries [*first, *end). */
static void part_of_row(const struct mask_view *v, int64_t i, int64_t j0, int64_t j1,
                        int64_t *first, int64_t *end)
{
    const struct csr *x = v->node->own;
    row_of(v, i, first, end);
    *first = find_column(x, *first, *end, j0);
    *end = find_column(x, *first, *end, j1);
}

static int64_t count_csr(const struct mask_view *v, int64_t i, int64_t j0, int64_t j1)
{
    int64_t first, end;
    part_of_row(v, i, j0, j1, &first, &end);
    return end - first;
}

/* A row may hold thousands of keys: they are read one after the other, not searched. */
static void each_csr(const struct mask_view *v, int64_t i, int64_t j0, int64_t j1, mask_see *see,
                     void *arg)
{
    const struct csr *x = v->node->own;
    int64_t at, end;
    part_of_row(v, i, j0, j1, &at, &end);
    while (at < end) {
        int64_t lo = attn_mask_element(&x->column, at), hi = lo + 1;
        while (++at < end && attn_mask_element(&x->column, at) == hi)
            hi++;
        see(arg, lo, hi);
    }
}

/* Whole rows, one behind the other. */
static int64_t pairs_of_csr(const struct mask_view *v, const struct attn_tokens *queries,
                            const struct attn_tokens *keys)
{
    int64_t first, last, unused;
    if (keys->n != v->mask->shape.n_key || queries->step != 1)
        return -1;
    row_of(v, queries->first, &first, &unused);
    row_of(v, queries->first + queries->n - 1, &unused, &last);
    return last - first;
}

int attn_mask_stored(const struct attn_mask *mask, struct attn_mask_tensor *row_start,
                     struct attn_mask_tensor *column)
{
    if (mask == NULL || mask->node[mask->root].kind != MASK_csr)
        return 0;
    const struct csr *x = mask->node[mask->root].own;
    *row_start = x->row_start;
    *column = x->column;
    return 1;
}

/* Columns of one row: inside [0, n_key), strictly increasing. */
static void check_row(struct mask_parser *p, const struct csr *x, int64_t row)
{
    int64_t start = attn_mask_element(&x->row_start, row), before = -1;
    int64_t end = attn_mask_element(&x->row_start, row + 1), nnz = x->column.extent[0];
    if (start > end || end > nnz)
        MASK_FAIL_TENSOR(
            p,
            "csr(%s), row %lld: starts at %lld and ends at %lld; row_start must not fall, "
            "nor exceed the %lld columns there are",
            p->name, (long long)row, (long long)start, (long long)end, (long long)nnz);
    for (int64_t at = start; at < end && p->status == ATTN_OK; at++) {
        int64_t column = attn_mask_element(&x->column, at);
        if (column < 0 || column >= p->mask->shape.n_key)
            MASK_FAIL_TENSOR(p, "csr(%s), row %lld: column %lld is outside [0,%lld)", p->name,
                             (long long)row, (long long)column, (long long)p->mask->shape.n_key);
        else if (column <= before)
            MASK_FAIL_TENSOR(
                p, "csr(%s), row %lld: column %lld after %lld; columns of a row must increase",
                p->name, (long long)row, (long long)column, (long long)before);
        before = column;
    }
}

static void check_csr(struct mask_parser *p, const struct csr *x, int64_t rows)
{
    int64_t nnz = x->column.extent[0], start = attn_mask_element(&x->row_start, 0);
    if (start != 0)
        MASK_FAIL_TENSOR(p, "csr(%s), row 0: row_start begins with %lld; 0 was expected", p->name,
                         (long long)start);
    for (int64_t row = 0; row < rows && p->status == ATTN_OK; row++)
        check_row(p, x, row);
    int64_t end = attn_mask_element(&x->row_start, rows);
    if (p->status == ATTN_OK && end != nnz)
        MASK_FAIL_TENSOR(p,
                         "csr(%s), row %lld: row_start ends with %lld, but there are %lld columns",
                         p->name, (long long)rows - 1, (long long)end, (long long)nnz);
}

static void read_csr(struct mask_parser *p, struct mask_node *node)
{
    const struct attn_mask_shape *s = &p->mask->shape;
    struct csr x;
    const struct attn_mask_tensor *start = &x.row_start, *column = &x.column;
    attn_mask_name(p, attn_mask_argument(p));
    if (!attn_mask_find(p, "row_start", &x.row_start) || !attn_mask_find(p, "column", &x.column))
        return;
    if (start->n_axes != 1 || column->n_axes != 1 || start->width == 1 || column->width == 1) {
        MASK_FAIL_TENSOR(p, "csr(%s): row_start and column must be i32 or i64 with one axis",
                         p->name);
        return;
    }
    int64_t rows = start->extent[0] - 1, planes = s->batch * s->heads;
    int per_head =
        planes > 1 && s->n_query > 0 && rows / planes == s->n_query && rows % planes == 0;
    if (rows != s->n_query && !per_head) {
        MASK_FAIL_TENSOR(
            p,
            "csr(%s): row_start has %lld entries; Lq + 1 = %lld (one pattern for all) or "
            "B*H*Lq + 1 (one for each of %lld heads) would work",
            p->name, (long long)rows + 1, (long long)s->n_query + 1, (long long)planes);
        return;
    }
    node->by_batch = per_head && s->batch > 1;
    node->by_head = per_head;
    check_csr(p, &x, rows);
    attn_mask_keep(p, node, &x, sizeof x);
}

const struct mask_kind attn_mask_kind_csr = {
    MASK_CALL("csr", read_csr, "a name: csr(NAME)",
              "csr(NAME)                row_start and column arrays by name"),
    .allows = in_csr,
    .next = next_in_csr,
    .count = count_csr,
    .each = each_csr,
    .pairs = pairs_of_csr};

/* ---- dense -------------------------------------------------------------------------------- */

static int in_dense(const struct mask_view *v, int64_t i, int64_t j)
{
    const struct mask_node *node = v->node;
    const struct attn_mask_shape *s = &v->mask->shape;
    int64_t heads = node->by_head ? s->heads : 1;
    int64_t plane = (node->by_batch ? v->b : 0) * heads + (node->by_head ? v->h : 0);
    return attn_mask_element(node->own, (plane * s->n_query + i) * s->n_key + j) != 0;
}

static void read_dense(struct mask_parser *p, struct mask_node *node)
{
    const struct attn_mask_shape *s = &p->mask->shape;
    struct attn_mask_tensor t;
    char has[96];
    attn_mask_name(p, attn_mask_argument(p));
    if (!attn_mask_find(p, "", &t))
        return;
    int of_heads = t.n_axes == 3 && t.extent[0] == s->heads;
    int64_t batch = t.n_axes == 4 || (t.n_axes == 3 && !of_heads) ? t.extent[0] : 1;
    int64_t heads = t.n_axes == 4 ? t.extent[1] : of_heads ? t.extent[0] : 1;
    if (of_heads && s->heads == s->batch && s->batch > 1)
        MASK_FAIL_TENSOR(p,
                         "dense(%s): %s could be of each batch entry or of each head: give it "
                         "four axes, [%lld,1,%lld,%lld] or [1,%lld,%lld,%lld]",
                         p->name, attn_mask_extents(&t, has), (long long)s->batch,
                         (long long)s->n_query, (long long)s->n_key, (long long)s->heads,
                         (long long)s->n_query, (long long)s->n_key);
    if (t.n_axes < 2 || t.extent[t.n_axes - 2] != s->n_query ||
        t.extent[t.n_axes - 1] != s->n_key || (batch != 1 && batch != s->batch) ||
        (heads != 1 && heads != s->heads))
        MASK_FAIL_TENSOR(
            p,
            "dense(%s): [%lld,%lld] or [1|%lld,1|%lld,%lld,%lld], or one of these two before the "
            "last, was expected; it has %s",
            p->name, (long long)s->n_query, (long long)s->n_key, (long long)s->batch,
            (long long)s->heads, (long long)s->n_query, (long long)s->n_key,
            attn_mask_extents(&t, has));
    node->by_batch = batch > 1;
    node->by_head = heads > 1;
    attn_mask_keep(p, node, &t, sizeof t);
}

const struct mask_kind attn_mask_kind_dense = {
    MASK_CALL("dense", read_dense, "a name: dense(NAME)",
              "dense(NAME)              [Lq,Lk], [B|H,Lq,Lk] or [B|1,H|1,Lq,Lk] by name: non-zero "
              "= visible"),
    .allows = in_dense};
