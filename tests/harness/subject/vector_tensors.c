/* See vector_files.h: tensors as the claims have them in files. */
#include <stdlib.h>
#include <string.h>

#include "ref/problem.h"
#include "tests/harness/base/layout.h"
#include "tests/harness/subject/vector_files.h"

/* ---- layouts --------------------------------------------------------------------------------- */

struct attn_vector_place attn_vector_files_place(const struct attn_claims *claims,
                                                 const struct attn_tensor *t, int slot)
{
    const struct attn_file_layout layout = {.n_axes = 4,
                                            .by_token = claims->layout != ATTN_PLUGIN_BHLD,
                                            .by_sequence = claims->layout == ATTN_PLUGIN_SBHD,
                                            .is_packed = claims->layout == ATTN_CLAIMS_THD};
    struct attn_vector_place x = {.shape = {.dtype = attn_file_dtype_of(t->dtype)}};
    enum attn_file_axes axes = slot == ATTN_T_BIAS || slot == ATTN_T_DBIAS   ? ATTN_AXES_PAIRS
                               : slot == ATTN_T_SINK || slot == ATTN_T_DSINK ? ATTN_AXES_HEADS
                               : slot == ATTN_T_LSE || slot == ATTN_T_DLSE   ? ATTN_AXES_ROWS
                                                                             : ATTN_AXES_QUERIES;
    for (int a = 0; a < 4; a++)
        x.n[a] =
            axes == ATTN_AXES_PAIRS && t->stride[a] == 0 && t->extent[a] > 1 ? 1 : t->extent[a];
    attn_file_place(&layout, axes, x.n, &x.shape, x.stride);
    return x;
}

/* ---- packed batches -------------------------------------------------------------------------- */

/* Documents one behind the other, without padding, as variable-length kernels take them.
 *
 *      q [Tq,H,d]   k [Tk,G,d]   v [Tk,G,dv]   o [Tq,H,dv]   lse [H,Tq]
 *      cu_seqlens_q, cu_seqlens_k [n+1]: document t has queries [q[t],q[t+1]), keys [k[t],k[t+1])
 *
 * A case becomes such a batch by cutting it: every batch entry is a document, or, where the mask is
 * documents(...) (band.h), several of uneven length.  The mask that is left speaks of each document
 * by itself; bytes speak of all tokens, and hide what lies in other documents too. */

/* Document after document of one batch entry; returns how many there are.  q and k, where they are
 * not NULL, get the end of each, counted from q[0] and k[0]. */
static int64_t cut(const char *list, const struct attn_problem *p, int32_t *q, int32_t *k)
{
    int64_t n = 0, rows, keys;
    if (list == NULL) {
        if (q != NULL) {
            q[1] = q[0] + (int32_t)p->n_query;
            k[1] = k[0] + (int32_t)p->n_key;
        }
        return 1;
    }
    for (; attn_documents_next(&list, &rows, &keys); n++)
        if (q != NULL) {
            q[n + 1] = q[n] + (int32_t)rows;
            k[n + 1] = k[n] + (int32_t)keys;
        }
    return n;
}

/* cu_seqlens_q and cu_seqlens_k of a case, I32. */
static enum attn_status gather_starts(const struct attn_claims *claims,
                                      const struct attn_problem *p,
                                      struct attn_file_tensor starts[2], struct attn_error *err)
{
    static const char *const name[2] = {"cu_seqlens_q", "cu_seqlens_k"};
    struct attn_given_mask given;
    attn_claims_mask(claims, p, &given);
    const char *list = given.documents;
    if (p->n_query > INT32_MAX / (p->batch + 1) || p->n_key > INT32_MAX / (p->batch + 1))
        return attn_fail(err, ATTN_ENOTSUP,
                         "more tokens than cu_seqlens, which are i32, can count");
    int64_t each = cut(list, p, NULL, NULL), n = each * p->batch;
    for (int t = 0; t < 2; t++) {
        starts[t] = (struct attn_file_tensor){
            .name = name[t], .dtype = ATTN_FILE_I32, .n_axes = 1, .extent = {n + 1}};
        starts[t].bytes = (n + 1) * (int64_t)sizeof(int32_t);
        starts[t].data = calloc((size_t)n + 1, sizeof(int32_t));
    }
    if (starts[0].data == NULL || starts[1].data == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for where %lld documents begin",
                         (long long)n);
    for (int64_t b = 0; b < p->batch; b++)
        cut(list, p, (int32_t *)starts[0].data + b * each, (int32_t *)starts[1].data + b * each);
    return ATTN_OK;
}

/* ---- tensors --------------------------------------------------------------------------------- */

enum attn_status attn_vector_files_gather(const struct attn_claims *claims,
                                          const struct attn_tensor *t, int slot,
                                          struct attn_file_tensor *to, struct attn_error *err)
{
    struct attn_vector_place x = attn_vector_files_place(claims, t, slot);
    *to = x.shape;
    to->name = t->name;
    to->data = calloc((size_t)to->bytes + 1, 1);
    if (to->data == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory to write %s", t->name);
    struct attn_view view = {.data = to->data, .dtype = t->dtype};
    memcpy(view.stride, x.stride, sizeof view.stride);
    for (int64_t at[4] = ATTN_START; attn_each(at, x.n);)
        attn_view_set(&view, at[0], at[1], at[2], at[3],
                      attn_tensor_get(t, at[0], at[1], at[2], at[3]));
    return ATTN_OK;
}

/* [B,H,Lq,Lk], or over all tokens, [1,H,Tq,Tk]: `visible`, or 1 - visible. */
static enum attn_status gather_mask(const struct attn_claims *claims, const struct attn_problem *p,
                                    struct attn_file_tensor *to, struct attn_error *err)
{
    struct attn_mask_shape shape = {p->batch, p->heads, p->n_query, p->n_key};
    unsigned char visible = claims->byte == ATTN_PLUGIN_ONE_IS_VISIBLE;
    int is_packed = claims->layout == ATTN_CLAIMS_THD;
    const int64_t times = is_packed ? p->batch : 1, rows = times * p->n_query,
                  keys = times * p->n_key, n[4] = {is_packed ? 1 : p->batch, p->heads, rows, keys};
    *to = (struct attn_file_tensor){.name = "mask", .dtype = ATTN_FILE_U8, .n_axes = 4};
    memcpy(to->extent, n, sizeof n);
    to->bytes = n[0] * n[1] * n[2] * n[3];
    unsigned char *byte = to->data = calloc((size_t)to->bytes + 1, 1);
    if (byte == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory to write the mask");
    if (!is_packed)
        attn_mask_bytes(p->mask, &shape, visible, byte);
    for (int64_t at[4] = ATTN_START; is_packed && attn_each(at, n);) {
        int64_t b = at[2] / p->n_query;
        int sees = b == at[3] / p->n_key &&
                   attn_mask_allows(p->mask, b, at[1], at[2] % p->n_query, at[3] % p->n_key);
        *byte++ = sees ? visible : (unsigned char)(1 - visible);
    }
    return ATTN_OK;
}

enum attn_status attn_vector_files_gather_all(const struct attn_claims *claims,
                                              const struct attn_setup *s,
                                              struct attn_file_tensor *list, int *n,
                                              struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    for (int slot = ATTN_T_Q; slot < ATTN_T_O && status == ATTN_OK; slot++) {
        if (s->tensor[slot].map == NULL || (slot == ATTN_T_V && s->problem.kv_shared))
            continue;
        status = attn_vector_files_gather(claims, &s->tensor[slot], slot, &list[*n], err);
        if (slot == ATTN_T_K && s->problem.kv_shared)
            list[*n].name = "kv";
        ++*n;
    }
    struct attn_given_mask given;
    if (status == ATTN_OK && attn_claims_mask(claims, &s->problem, &given) == ATTN_CLAIMS_BYTES)
        status = gather_mask(claims, &s->problem, &list[(*n)++], err);
    if (status == ATTN_OK && claims->layout == ATTN_CLAIMS_THD) {
        status = gather_starts(claims, &s->problem, &list[*n], err);
        *n += 2;
    }
    return status;
}
