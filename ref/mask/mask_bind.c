/* Masks that are data: find the tensor that a call names, and check it once, so that whoever asks
 * the mask later need not. */
#include "ref/mask/mask_internal.h"

/* Find `name` and check that it is what a file can hold. */
static enum attn_status find(struct mask_parser *p, const char *call, const char *name,
                             const char *part, int64_t at, struct attn_mask_tensor *tensor)
{
    struct attn_error *err = p->err;
    if (p->source == NULL)
        return attn_mask_fail_at(p, at, "%s(%s) names a tensor, and no tensors were given here",
                                 call, name);
    *tensor = (struct attn_mask_tensor){0};
    enum attn_status status = p->source->find(p->source->arg, name, part, tensor, err);
    if (status != ATTN_OK)
        return status;
    if (tensor->width != 1 && tensor->width != 4 && tensor->width != 8)
        return attn_fail(err, ATTN_EINVAL,
                         "%s(%s): elements of %d bytes; bool, u8, i32 and i64 would work", call,
                         name, tensor->width);
    if (tensor->n_axes < 1 || tensor->n_axes > 4)
        return attn_fail(err, ATTN_EINVAL, "%s(%s): %d axes; 1 to 4 would work", call, name,
                         tensor->n_axes);
    int64_t least = 1;
    for (int a = 0; a < tensor->n_axes; a++)
        least = mask_min(least, tensor->extent[a]);
    if (least < 0 || (least > 0 && tensor->data == NULL))
        return attn_fail(err, ATTN_EINVAL, "%s(%s): the tensor has no data, or a negative extent",
                         call, name);
    return ATTN_OK;
}

/* Lengths of keys, [B] or [1], become offsets; they are read once, here. */
enum attn_status attn_mask_bind_ends(struct mask_parser *p, struct mask_node *node,
                                     const char *name, int64_t at)
{
    const struct attn_mask_shape *s = &p->mask->shape;
    struct attn_mask_tensor t;
    enum attn_status status = find(p, "ends", name, "", at, &t);
    if (status != ATTN_OK)
        return status;
    if (t.n_axes != 1 || (t.extent[0] != 1 && t.extent[0] != s->batch))
        return attn_fail(p->err, ATTN_EINVAL,
                         "ends,%s: lengths of keys, [%lld] or [1], were expected; it has %d axes, "
                         "first %lld",
                         name, (long long)s->batch, t.n_axes, (long long)t.extent[0]);
    for (int64_t b = 0; b < t.extent[0]; b++) {
        int64_t length = attn_mask_element(&t, b);
        if (length < 0 || length > s->n_key)
            return attn_fail(p->err, ATTN_EINVAL, "ends,%s: [%lld] is %lld, and Lk = %lld", name,
                             (long long)b, (long long)length, (long long)s->n_key);
        status = attn_mask_push_number(p, length - s->n_query);
        if (status != ATTN_OK)
            return status;
        node->offset = length - s->n_query;
    }
    node->n_list = t.extent[0];
    node->by_batch = node->n_list > 1;
    return ATTN_OK;
}

enum attn_status attn_mask_bind_keys(struct mask_parser *p, struct mask_node *node,
                                     const char *name, int64_t at)
{
    const struct attn_mask_shape *s = &p->mask->shape;
    struct attn_mask_tensor *t = &node->tensor;
    enum attn_status status = find(p, "keys", name, "", at, t);
    if (status != ATTN_OK)
        return status;
    int64_t batch = t->n_axes == 2 ? t->extent[0] : 1;
    if (t->n_axes > 2 || t->extent[t->n_axes - 1] != s->n_key || (batch != 1 && batch != s->batch))
        return attn_fail(
            p->err, ATTN_EINVAL,
            "keys(%s): [%lld,%lld] or [%lld] was expected; it has %d axes, first %lld, last %lld",
            name, (long long)s->batch, (long long)s->n_key, (long long)s->n_key, t->n_axes,
            (long long)t->extent[0], (long long)t->extent[t->n_axes - 1]);
    node->kind = MASK_KEYS_TENSOR;
    node->by_batch = batch > 1;
    return ATTN_OK;
}

enum attn_status attn_mask_bind_dense(struct mask_parser *p, struct mask_node *node,
                                      const char *name, int64_t at)
{
    const struct attn_mask_shape *s = &p->mask->shape;
    struct attn_mask_tensor *t = &node->tensor;
    enum attn_status status = find(p, "dense", name, "", at, t);
    if (status != ATTN_OK)
        return status;
    int64_t batch = t->n_axes == 4 ? t->extent[0] : 1, heads = t->n_axes == 4 ? t->extent[1] : 1;
    if ((t->n_axes != 2 && t->n_axes != 4) || t->extent[t->n_axes - 2] != s->n_query ||
        t->extent[t->n_axes - 1] != s->n_key || (batch != 1 && batch != s->batch) ||
        (heads != 1 && heads != s->heads))
        return attn_fail(
            p->err, ATTN_EINVAL,
            "dense(%s): [%lld,%lld] or [1|%lld,1|%lld,%lld,%lld] was expected; it has %d axes, "
            "[%lld,%lld,%lld,%lld]",
            name, (long long)s->n_query, (long long)s->n_key, (long long)s->batch,
            (long long)s->heads, (long long)s->n_query, (long long)s->n_key, t->n_axes,
            (long long)t->extent[0], (long long)t->extent[1], (long long)t->extent[2],
            (long long)t->extent[3]);
    node->by_batch = batch > 1;
    node->by_head = heads > 1;
    return ATTN_OK;
}

/* Columns of one row: inside [0, n_key), strictly increasing. */
static enum attn_status check_row(const struct attn_mask *mask, const struct mask_node *node,
                                  const char *name, int64_t row, struct attn_error *err)
{
    int64_t start = attn_mask_element(&node->row_start, row);
    int64_t end = attn_mask_element(&node->row_start, row + 1);
    if (start > end || end > node->tensor.extent[0])
        return attn_fail(
            err, ATTN_EINVAL,
            "csr(%s), row %lld: starts at %lld and ends at %lld; row_start must not fall, "
            "nor exceed the %lld columns there are",
            name, (long long)row, (long long)start, (long long)end,
            (long long)node->tensor.extent[0]);
    int64_t before = -1;
    for (int64_t at = start; at < end; at++) {
        int64_t column = attn_mask_element(&node->tensor, at);
        if (column < 0 || column >= mask->shape.n_key)
            return attn_fail(err, ATTN_EINVAL, "csr(%s), row %lld: column %lld is outside [0,%lld)",
                             name, (long long)row, (long long)column, (long long)mask->shape.n_key);
        if (column <= before)
            return attn_fail(
                err, ATTN_EINVAL,
                "csr(%s), row %lld: column %lld after %lld; columns of a row must increase", name,
                (long long)row, (long long)column, (long long)before);
        before = column;
    }
    return ATTN_OK;
}

static enum attn_status check_csr(const struct attn_mask *mask, const struct mask_node *node,
                                  const char *name, int64_t rows, struct attn_error *err)
{
    int64_t nnz = node->tensor.extent[0], start = attn_mask_element(&node->row_start, 0);
    if (start != 0)
        return attn_fail(err, ATTN_EINVAL,
                         "csr(%s), row 0: row_start begins with %lld; 0 was expected", name,
                         (long long)start);
    for (int64_t row = 0; row < rows; row++) {
        enum attn_status status = check_row(mask, node, name, row, err);
        if (status != ATTN_OK)
            return status;
    }
    int64_t end = attn_mask_element(&node->row_start, rows);
    if (end != nnz)
        return attn_fail(err, ATTN_EINVAL,
                         "csr(%s), row %lld: row_start ends with %lld, but there are %lld columns",
                         name, (long long)rows - 1, (long long)end, (long long)nnz);
    return ATTN_OK;
}

enum attn_status attn_mask_bind_csr(struct mask_parser *p, struct mask_node *node, const char *name,
                                    int64_t at)
{
    const struct attn_mask_shape *s = &p->mask->shape;
    enum attn_status status = find(p, "csr", name, "row_start", at, &node->row_start);
    if (status == ATTN_OK)
        status = find(p, "csr", name, "column", at, &node->tensor);
    if (status != ATTN_OK)
        return status;
    if (node->row_start.n_axes != 1 || node->tensor.n_axes != 1 || node->row_start.width == 1 ||
        node->tensor.width == 1)
        return attn_fail(p->err, ATTN_EINVAL,
                         "csr(%s): row_start and column must be i32 or i64 with one axis", name);
    int64_t rows = node->row_start.extent[0] - 1, planes = s->batch * s->heads;
    int per_head =
        planes > 1 && s->n_query > 0 && rows / planes == s->n_query && rows % planes == 0;
    if (rows != s->n_query && !per_head)
        return attn_fail(
            p->err, ATTN_EINVAL,
            "csr(%s): row_start has %lld entries; Lq + 1 = %lld (one pattern for all) or "
            "B*H*Lq + 1 (one for each of %lld heads) would work",
            name, (long long)rows + 1, (long long)s->n_query + 1, (long long)planes);
    node->by_batch = per_head && s->batch > 1;
    node->by_head = per_head;
    return check_csr(p->mask, node, name, rows, p->err);
}
