/* See layout.h. */
#include "tests/harness/base/layout.h"

enum { B, H, ROW, FEATURE, NONE = -1 };

/* Of the file's axes, from the outermost: one of b, h, row, feature each, or two, the second the
 * faster one.  Returns how many; order[]: all four, from the outermost. */
static int list_axes(const struct attn_file_layout *layout, enum attn_file_axes kind,
                     int axis[4][2], const int **order)
{
    static const int by_head[4] = {B, H, ROW, FEATURE}, by_token[4] = {B, ROW, H, FEATURE},
                     by_sequence[4] = {ROW, B, H, FEATURE}, packed_rows[4] = {H, B, ROW, FEATURE};
    int is_tokens = kind == ATTN_AXES_QUERIES || kind == ATTN_AXES_KEYS, n = 0;
    *order = by_head;
    if (is_tokens && layout->by_token)
        *order = layout->by_sequence ? by_sequence : by_token;
    else if (kind == ATTN_AXES_ROWS && layout->is_packed)
        *order = packed_rows;
    for (int o = 0; o < 4; o++) {
        int a = (*order)[o];
        int follows_batch = o > 0 && (*order)[o - 1] == B;
        int joins = (layout->is_packed && kind != ATTN_AXES_PAIRS && a == ROW && follows_batch) ||
                    (layout->folded[0] > 0 && is_tokens && a == FEATURE);
        int lacks = kind == ATTN_AXES_HEADS ? a != H : a < 4 - layout->n_axes;
        if (lacks || (a == FEATURE && kind == ATTN_AXES_ROWS))
            continue;
        if (joins && n > 0)
            axis[n - 1][1] = a;
        else
            axis[n][0] = a, axis[n++][1] = NONE;
    }
    return n;
}

void attn_file_place(const struct attn_file_layout *layout, enum attn_file_axes kind,
                     const int64_t n[4], struct attn_file_tensor *shape, int64_t stride[4])
{
    const int *order;
    int axis[4][2];
    int64_t whole = 1;
    shape->n_axes = list_axes(layout, kind, axis, &order);
    for (int a = 0; a < shape->n_axes; a++)
        shape->extent[a] = n[axis[a][0]] * (axis[a][1] != NONE ? n[axis[a][1]] : 1);
    for (int o = 3; o >= 0; o--) {
        stride[order[o]] = whole;
        whole *= n[order[o]];
    }
    shape->bytes = whole * attn_file_dtype_size(shape->dtype);
}

void attn_file_extents(const struct attn_file_layout *layout, enum attn_file_axes kind,
                       const struct attn_file_tensor *shape, int64_t batch, int64_t n[4])
{
    const int64_t known[4] = {batch, layout->folded[kind == ATTN_AXES_KEYS], 1, 1};
    const int *order;
    int axis[4][2], n_axes = list_axes(layout, kind, axis, &order);
    n[B] = n[H] = n[ROW] = n[FEATURE] = 1;
    for (int a = 0; a < n_axes; a++) {
        int first = axis[a][0], second = axis[a][1];
        n[first] = second == NONE ? shape->extent[a] : known[first];
        if (second != NONE)
            n[second] = n[first] > 0 ? shape->extent[a] / n[first] : 0;
    }
}
