/* See vector_files.h: tensors as the claims have them in files. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ref/problem.h"
#include "tests/harness/base/layout.h"
#include "tests/harness/subject/vector_files.h"

/* ---- layouts --------------------------------------------------------------------------------- */

struct attn_vector_place attn_vector_files_place(const struct attn_claims *claims,
                                                 const struct attn_vector_rows *rows,
                                                 const struct attn_tensor *t, int slot)
{
    struct attn_file_layout layout = {.n_axes = 4,
                                      .by_token = claims->layout != ATTN_PLUGIN_BHLD,
                                      .by_sequence = claims->layout == ATTN_PLUGIN_SBHD,
                                      .is_packed = attn_claims_are_packed(claims)};
    struct attn_vector_place x = {.shape = {.dtype = attn_file_dtype_of(t->dtype)}};
    enum attn_file_axes axes = slot == ATTN_T_BIAS || slot == ATTN_T_DBIAS   ? ATTN_AXES_PAIRS
                               : slot == ATTN_T_SINK || slot == ATTN_T_DSINK ? ATTN_AXES_HEADS
                               : slot == ATTN_T_LSE || slot == ATTN_T_DLSE   ? ATTN_AXES_ROWS
                                                                             : ATTN_AXES_QUERIES;
    int is_keys = slot == ATTN_T_K || slot == ATTN_T_V || slot == ATTN_T_DK || slot == ATTN_T_DV;
    for (int a = 0; a < 4; a++)
        x.n[a] =
            axes == ATTN_AXES_PAIRS && t->stride[a] == 0 && t->extent[a] > 1 ? 1 : t->extent[a];
    if (rows != NULL && (axes == ATTN_AXES_QUERIES || axes == ATTN_AXES_ROWS))
        x.rows = rows->at[is_keys];
    int64_t n[4] = {x.n[0], x.n[1], x.n[2], x.n[3]};
    if (x.rows != NULL) {
        layout.is_packed = 1;
        n[0] = 1;
        n[2] = rows->tokens[is_keys];
    }
    attn_file_place(&layout, axes, n, &x.shape, x.stride);
    if (x.rows != NULL && rows->page > 0) /* [pages,page,G,d] */
        x.shape = (struct attn_file_tensor){.dtype = x.shape.dtype,
                                            .bytes = x.shape.bytes,
                                            .n_axes = 4,
                                            .extent = {n[2] / rows->page, rows->page, n[1], n[3]}};
    return x;
}

/* ---- tensors --------------------------------------------------------------------------------- */

enum attn_status attn_vector_files_gather(const struct attn_claims *claims,
                                          const struct attn_vector_rows *rows,
                                          const struct attn_tensor *t, int slot,
                                          struct attn_file_tensor *to, struct attn_error *err)
{
    struct attn_vector_place x = attn_vector_files_place(claims, rows, t, slot);
    *to = x.shape;
    to->name = t->name;
    to->data = calloc((size_t)to->bytes + 1, 1);
    if (to->data == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory to write %s", t->name);
    struct attn_view view = {.data = to->data, .dtype = t->dtype, .stride = {0, 0, 0, 1}};
    const int64_t all = to->bytes / attn_file_dtype_size(to->dtype);
    for (int64_t e = 0; e < all && x.rows != NULL; e++) /* padding, and slots that hold no key */
        attn_view_set(&view, 0, 0, 0, e, (double)NAN);
    memcpy(view.stride, x.stride, sizeof view.stride);
    for (int64_t at[4] = ATTN_START, w[4]; attn_each(at, x.n);)
        if (attn_vector_at(&x, at, w))
            attn_view_set(&view, w[0], w[1], w[2], w[3],
                          attn_tensor_get(t, at[0], at[1], at[2], at[3]));
    return ATTN_OK;
}

/* The bytes of packed batches: over all tokens, [1,H,Tq,Tk]; other documents and padding are
 * hidden. */
static void fill_packed_mask(const struct attn_problem *p, const struct attn_vector_rows *rows,
                             unsigned char visible, const struct attn_file_tensor *to)
{
    const int64_t n[4] = {p->batch, p->heads, p->n_query, p->n_key};
    unsigned char *byte = to->data;
    memset(byte, 1 - visible, (size_t)to->bytes);
    for (int64_t at[4] = ATTN_START; attn_each(at, n);) {
        int64_t i = at[0] * n[2] + at[2], j = at[0] * n[3] + at[3];
        if (rows->at[0] != NULL) {
            i = rows->at[0][i];
            j = rows->at[1][j];
        }
        if (attn_mask_allows(p->mask, at[0], at[1], at[2], at[3]))
            byte[(at[1] * to->extent[2] + i) * to->extent[3] + j] = visible;
    }
}

enum attn_status attn_vector_files_gather_mask(const struct attn_claims *claims,
                                               const struct attn_problem *p,
                                               const struct attn_vector_rows *rows,
                                               struct attn_file_tensor *to, struct attn_error *err)
{
    struct attn_mask_shape shape = {p->batch, p->heads, p->n_query, p->n_key};
    unsigned char visible = claims->byte == ATTN_PLUGIN_ONE_IS_VISIBLE;
    int is_packed = attn_claims_are_packed(claims), is_padded = rows->at[0] != NULL;
    *to = (struct attn_file_tensor){
        .name = "mask",
        .dtype = ATTN_FILE_U8,
        .n_axes = 4,
        .extent = {is_packed ? 1 : p->batch, p->heads,
                   is_padded ? rows->tokens[0] : (is_packed ? p->batch : 1) * p->n_query,
                   is_padded ? rows->tokens[1] : (is_packed ? p->batch : 1) * p->n_key}};
    to->bytes = to->extent[0] * to->extent[1] * to->extent[2] * to->extent[3];
    to->data = calloc((size_t)to->bytes + 1, 1);
    if (to->data == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for the bytes of a mask");
    if (is_packed)
        fill_packed_mask(p, rows, visible, to);
    else
        attn_mask_bytes(p->mask, &shape, visible, to->data);
    return ATTN_OK;
}

enum attn_status attn_vector_files_gather_all(const struct attn_claims *claims,
                                              const struct attn_setup *s,
                                              struct attn_file_tensor *list, int *n,
                                              struct attn_error *err)
{
    struct attn_vector_rows rows;
    const struct attn_vector_tokens tokens = attn_vector_tokens_of(s);
    enum attn_status status = attn_vector_rows_open(claims, &tokens, &rows, err);
    for (int slot = ATTN_T_Q; slot < ATTN_T_O && status == ATTN_OK; slot++) {
        if (s->tensor[slot].map == NULL || (slot == ATTN_T_V && s->problem.kv_shared))
            continue;
        status = attn_vector_files_gather(claims, &rows, &s->tensor[slot], slot, &list[*n], err);
        if (slot == ATTN_T_K && s->problem.kv_shared)
            list[*n].name = "kv";
        ++*n;
    }
    struct attn_given_mask given;
    if (status == ATTN_OK && attn_claims_mask(claims, &s->problem, &given) == ATTN_CLAIMS_BYTES)
        status = attn_vector_files_gather_mask(claims, &s->problem, &rows, &list[(*n)++], err);
    for (; rows.n_given > 0 && status == ATTN_OK; rows.n_given--) /* the list frees them now */
        list[(*n)++] = rows.given[rows.n_given - 1];
    attn_vector_rows_close(&rows);
    return status;
}
