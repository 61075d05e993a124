/* Masks that are data: find the tensor that a call names, and check it once, so that whoever asks
 * the mask later need not. */
#include "ref/mask/mask_internal.h"

#include <stdio.h>

/* A failure of the tensor: "CALL(NAME): ..." */
#define FAIL(p, ...) attn_mask_stop(p, attn_fail((p)->err, ATTN_EINVAL, __VA_ARGS__))

/* Find p->name and check that it is what a file can hold; 0: a failure. */
static int find(struct mask_parser *p, const char *part, struct attn_mask_tensor *tensor)
{
    const char *call = p->call->name, *name = p->name;
    if (p->source == NULL)
        attn_mask_fail_at(p, p->name_at, "%s(%s) names a tensor, and no tensors were given here",
                          call, name);
    if (p->status != ATTN_OK)
        return 0;
    *tensor = (struct attn_mask_tensor){0};
    enum attn_status status = p->source->find(p->source->arg, name, part, tensor, p->err);
    int64_t least = 1;
    for (int a = 0; a < tensor->n_axes && a < 4; a++)
        least = mask_min(least, tensor->extent[a]);
    if (status != ATTN_OK)
        attn_mask_stop(p, status);
    else if (tensor->width != 1 && tensor->width != 4 && tensor->width != 8)
        FAIL(p, "%s(%s): elements of %d bytes; bool, u8, i32 and i64 would work", call, name,
             tensor->width);
    else if (tensor->n_axes < 1 || tensor->n_axes > 4)
        FAIL(p, "%s(%s): %d axes; 1 to 4 would work", call, name, tensor->n_axes);
    else if (least < 0 || (least > 0 && tensor->data == NULL))
        FAIL(p, "%s(%s): the tensor has no data, or a negative extent", call, name);
    return p->status == ATTN_OK;
}

/* [1,4,8], of any number of axes. */
static const char *extents(const struct attn_mask_tensor *t, char text[96])
{
    int used = 0;
    for (int a = 0; a < t->n_axes; a++)
        used += snprintf(text + used, 96 - (size_t)used, "%s%lld", a > 0 ? "," : "[",
                         (long long)t->extent[a]);
    snprintf(text + used, 96 - (size_t)used, "]");
    return text;
}

/* Lengths of keys, [B] or [1], become offsets; they are read once, here. */
void attn_mask_bind_ends(struct mask_parser *p, struct mask_node *node)
{
    const struct attn_mask_shape *s = &p->mask->shape;
    struct attn_mask_tensor t;
    char has[96];
    if (!find(p, "", &t))
        return;
    if (t.n_axes != 1 || (t.extent[0] != 1 && t.extent[0] != s->batch))
        FAIL(p, "ends,%s: lengths of keys, [%lld] or [1], were expected; it has %s", p->name,
             (long long)s->batch, extents(&t, has));
    for (int64_t b = 0; b < t.extent[0] && p->status == ATTN_OK; b++) {
        int64_t length = attn_mask_element(&t, b);
        node->offset = length - s->n_query;
        attn_mask_push_number(p, node->offset);
        if (length < 0 || length > s->n_key)
            FAIL(p, "ends,%s: [%lld] is %lld, and Lk = %lld", p->name, (long long)b,
                 (long long)length, (long long)s->n_key);
    }
    node->by_batch = t.extent[0] > 1;
}

void attn_mask_bind_keys(struct mask_parser *p, struct mask_node *node)
{
    const struct attn_mask_shape *s = &p->mask->shape;
    struct attn_mask_tensor *t = &node->tensor;
    char has[96];
    if (!find(p, "", t))
        return;
    int64_t batch = t->n_axes == 2 ? t->extent[0] : 1;
    if (t->n_axes > 2 || t->extent[t->n_axes - 1] != s->n_key || (batch != 1 && batch != s->batch))
        FAIL(p, "keys(%s): [%lld,%lld] or [%lld] was expected; it has %s", p->name,
             (long long)s->batch, (long long)s->n_key, (long long)s->n_key, extents(t, has));
    node->kind = MASK_KEYS_TENSOR;
    node->by_batch = batch > 1;
}

void attn_mask_read_dense(struct mask_parser *p, struct mask_node *node)
{
    const struct attn_mask_shape *s = &p->mask->shape;
    struct attn_mask_tensor *t = &node->tensor;
    char has[96];
    attn_mask_name(p, attn_mask_argument(p));
    if (!find(p, "", t))
        return;
    int64_t batch = t->n_axes == 4 ? t->extent[0] : 1, heads = t->n_axes == 4 ? t->extent[1] : 1;
    if ((t->n_axes != 2 && t->n_axes != 4) || t->extent[t->n_axes - 2] != s->n_query ||
        t->extent[t->n_axes - 1] != s->n_key || (batch != 1 && batch != s->batch) ||
        (heads != 1 && heads != s->heads))
        FAIL(p, "dense(%s): [%lld,%lld] or [1|%lld,1|%lld,%lld,%lld] was expected; it has %s",
             p->name, (long long)s->n_query, (long long)s->n_key, (long long)s->batch,
             (long long)s->heads, (long long)s->n_query, (long long)s->n_key, extents(t, has));
    node->by_batch = batch > 1;
    node->by_head = heads > 1;
}

/* Columns of one row: inside [0, n_key), strictly increasing. */
static void check_row(struct mask_parser *p, const struct mask_node *node, int64_t row)
{
    int64_t start = attn_mask_element(&node->row_start, row), before = -1;
    int64_t end = attn_mask_element(&node->row_start, row + 1), nnz = node->tensor.extent[0];
    if (start > end || end > nnz)
        FAIL(p,
             "csr(%s), row %lld: starts at %lld and ends at %lld; row_start must not fall, "
             "nor exceed the %lld columns there are",
             p->name, (long long)row, (long long)start, (long long)end, (long long)nnz);
    for (int64_t at = start; at < end && p->status == ATTN_OK; at++) {
        int64_t column = attn_mask_element(&node->tensor, at);
        if (column < 0 || column >= p->mask->shape.n_key)
            FAIL(p, "csr(%s), row %lld: column %lld is outside [0,%lld)", p->name, (long long)row,
                 (long long)column, (long long)p->mask->shape.n_key);
        else if (column <= before)
            FAIL(p, "csr(%s), row %lld: column %lld after %lld; columns of a row must increase",
                 p->name, (long long)row, (long long)column, (long long)before);
        before = column;
    }
}

static void check_csr(struct mask_parser *p, const struct mask_node *node, int64_t rows)
{
    int64_t nnz = node->tensor.extent[0], start = attn_mask_element(&node->row_start, 0);
    if (start != 0)
        FAIL(p, "csr(%s), row 0: row_start begins with %lld; 0 was expected", p->name,
             (long long)start);
    for (int64_t row = 0; row < rows && p->status == ATTN_OK; row++)
        check_row(p, node, row);
    int64_t end = attn_mask_element(&node->row_start, rows);
    if (p->status == ATTN_OK && end != nnz)
        FAIL(p, "csr(%s), row %lld: row_start ends with %lld, but there are %lld columns", p->name,
             (long long)rows - 1, (long long)end, (long long)nnz);
}

void attn_mask_read_csr(struct mask_parser *p, struct mask_node *node)
{
    const struct attn_mask_shape *s = &p->mask->shape;
    const struct attn_mask_tensor *start = &node->row_start, *column = &node->tensor;
    attn_mask_name(p, attn_mask_argument(p));
    if (!find(p, "row_start", &node->row_start) || !find(p, "column", &node->tensor))
        return;
    if (start->n_axes != 1 || column->n_axes != 1 || start->width == 1 || column->width == 1) {
        FAIL(p, "csr(%s): row_start and column must be i32 or i64 with one axis", p->name);
        return;
    }
    int64_t rows = start->extent[0] - 1, planes = s->batch * s->heads;
    int per_head =
        planes > 1 && s->n_query > 0 && rows / planes == s->n_query && rows % planes == 0;
    if (rows != s->n_query && !per_head) {
        FAIL(p,
             "csr(%s): row_start has %lld entries; Lq + 1 = %lld (one pattern for all) or "
             "B*H*Lq + 1 (one for each of %lld heads) would work",
             p->name, (long long)rows + 1, (long long)s->n_query + 1, (long long)planes);
        return;
    }
    node->by_batch = per_head && s->batch > 1;
    node->by_head = per_head;
    check_csr(p, node, rows);
}
