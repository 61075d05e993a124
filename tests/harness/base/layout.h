/* How the tensors of attention lie in files: [B,H,L,d], [B,L,H,d] or [L,B,H,d]; the first two also
 * without B, or without B and H;
 * [B,L,H d], heads folded into features; or packed, [T,H,d], where documents of one length are
 * batch entries, [B L,H,d].  Everywhere else there is only b, h, row, feature. */
#ifndef TESTS_HARNESS_FILES_LAYOUT_H
#define TESTS_HARNESS_FILES_LAYOUT_H

#include "tests/harness/base/files.h"

/* Which axes a tensor has: tokens and features (of the queries' heads, of the keys'); lse and dlse,
 * [B,H,L] in any layout, [H,T] packed; bias and dbias, [B,H,Lq,Lk] in any layout; sink and dsink,
 * [H]. */
enum attn_file_axes {
    ATTN_AXES_QUERIES,
    ATTN_AXES_KEYS,
    ATTN_AXES_ROWS,
    ATTN_AXES_PAIRS,
    ATTN_AXES_HEADS
};

struct attn_file_layout {
    int n_axes;        /* 4, 3 (no batch) or 2 (no heads either); packed or folded ones count too */
    int by_token;      /* tokens before heads: [B,L,H,d]; of the next three also */
    int by_sequence;   /* and before the batch: [L,B,H,d] */
    int is_packed;     /* the tokens of all batch entries are one axis */
    int64_t folded[2]; /* heads of queries and of keys that are one axis with the features; or 0 */
};

/* Shape and bytes (shape->dtype is given) in a file of a tensor with extents n; stride: of b, h,
 * row and feature there. */
void attn_file_place(const struct attn_file_layout *layout, enum attn_file_axes kind,
                     const int64_t n[4], struct attn_file_tensor *shape, int64_t stride[4]);

/* The extents of a tensor of that shape; batch: entries of a packed one. */
void attn_file_extents(const struct attn_file_layout *layout, enum attn_file_axes kind,
                       const struct attn_file_tensor *shape, int64_t batch, int64_t n[4]);

#endif
