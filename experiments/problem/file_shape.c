/* See file_problem.h: axes, and packed batches.  The shapes in files are [B,H,L,d] or [B,L,H,d],
 * without B, or without B and H; or [B,L,H d], heads folded into features; or [T,H,d], where
 * documents of one length are batch entries: [B L,H,d], and any mask speaks of each by itself.
 * Documents of several lengths become a mask, documents(...), and what else is hidden must then be
 * sayable over all tokens.  Inside there is only b, h, row, feature. */
#include "experiments/problem/file_problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "tests/harness/cases/band.h"
#include "tests/harness/files/fileio.h"

/* ---- where documents begin ------------------------------------------------------------------- */

static enum attn_status load_starts(struct attn_files *files, enum attn_file_input which,
                                    int64_t tokens, int64_t **starts, int64_t *n,
                                    struct attn_error *err)
{
    struct attn_file_tensor *t = files->input[which];
    const struct attn_file *file = files->from[which];
    const char *name = attn_file_input_name(which);
    char shape[160];
    if ((t->dtype != ATTN_FILE_I32 && t->dtype != ATTN_FILE_I64) || t->n_axes != 1 ||
        t->extent[0] < 1)
        return attn_fault(err, ATTN_EINVAL, file->path,
                          "%s is %s %s: [n + 1] for n documents, I32 or I64, would fit", name,
                          attn_file_dtype_name(t->dtype), attn_file_shape(t, shape));
    *n = t->extent[0] - 1;
    enum attn_status status = attn_file_load(file, t, err);
    if (status != ATTN_OK)
        return status;
    *starts = calloc((size_t)*n + 1, sizeof **starts);
    if (*starts == NULL)
        return attn_fault(err, ATTN_ENOMEM, file->path, "no memory for %lld documents",
                          (long long)*n);
    for (int64_t i = 0; i <= *n; i++) {
        (*starts)[i] = t->dtype == ATTN_FILE_I64 ? ((const int64_t *)t->data)[i]
                                                 : ((const int32_t *)t->data)[i];
        if ((*starts)[i] < (i > 0 ? (*starts)[i - 1] : 0) || (i == 0 && (*starts)[0] != 0))
            return attn_fault(
                err, ATTN_EINVAL, file->path,
                "%s[%lld] is %lld: documents begin at 0 and never before the last one", name,
                (long long)i, (long long)(*starts)[i]);
    }
    if ((*starts)[*n] != tokens)
        return attn_fault(err, ATTN_EINVAL, file->path,
                          "%s ends at %lld, and there are %lld tokens", name,
                          (long long)(*starts)[*n], (long long)tokens);
    return ATTN_OK;
}

static enum attn_status read_starts(struct attn_files *files, struct attn_error *err)
{
    struct attn_packed_batch *x = &files->packed;
    int64_t queries = files->input[ATTN_IN_Q]->extent[0], keys = files->input[ATTN_IN_K]->extent[0];
    int64_t n_key = 0;
    enum attn_file_input of_keys = files->input[ATTN_IN_CU_K] != NULL ? ATTN_IN_CU_K : ATTN_IN_CU_Q;
    if (files->input[ATTN_IN_CU_Q] == NULL && files->input[ATTN_IN_CU_K] != NULL)
        return attn_fault(err, ATTN_EINVAL, files->from[ATTN_IN_CU_K]->path,
                          "cu_seqlens_k without cu_seqlens_q");
    if (files->input[ATTN_IN_CU_Q] == NULL) { /* all tokens are one document */
        x->n = 1;
        x->q = attn_cli_need(calloc(2, sizeof *x->q));
        x->k = attn_cli_need(calloc(2, sizeof *x->k));
        x->q[1] = queries;
        x->k[1] = keys;
        return ATTN_OK;
    }
    enum attn_status status = load_starts(files, ATTN_IN_CU_Q, queries, &x->q, &x->n, err);
    if (status == ATTN_OK)
        status = load_starts(files, of_keys, keys, &x->k, &n_key, err);
    if (status == ATTN_OK && n_key != x->n)
        status = attn_fault(err, ATTN_EINVAL, files->from[of_keys]->path,
                            "cu_seqlens_q has %lld documents, cu_seqlens_k %lld", (long long)x->n,
                            (long long)n_key);
    return status;
}

static enum attn_status open_packed(struct attn_files *files, struct attn_error *err)
{
    struct attn_packed_batch *x = &files->packed;
    if (!files->layout.is_packed &&
        (files->input[ATTN_IN_CU_Q] != NULL || files->input[ATTN_IN_CU_K] != NULL))
        return attn_fault(
            err, ATTN_EINVAL, files->file[0]->path,
            "has cu_seqlens, which belong to packed tensors [T,H,d]: say --layout THD");
    if (!files->layout.is_packed)
        return ATTN_OK;
    enum attn_status status = read_starts(files, err);
    if (status != ATTN_OK)
        return status;
    x->is_even = x->is_self = 1;
    for (int64_t t = 0; t < x->n; t++) {
        int64_t rows = x->q[t + 1] - x->q[t], keys = x->k[t + 1] - x->k[t];
        x->is_even &= rows == x->q[1] && keys == x->k[1];
        x->is_self &= rows == keys;
    }
    return ATTN_OK;
}

/* ---- masks ----------------------------------------------------------------------------------- */

/* A band means the same over all tokens as inside each document, where every document has as many
 * queries as keys; nothing else does. */
static enum attn_status check_inside(const struct attn_files *files, const char *text,
                                     struct attn_error *err)
{
    const struct attn_problem *p = &files->problem;
    const struct attn_mask_shape shape = {p->batch, p->heads, p->n_query, p->n_key};
    struct attn_mask *mask = NULL;
    struct attn_band band;
    enum attn_status status = attn_mask_parse(text, &shape, NULL, &mask, err);
    if (status != ATTN_OK)
        return status;
    if (!attn_band_of(mask, &band) || !files->packed.is_self)
        status = attn_fail(
            err, ATTN_EINVAL,
            "mask '%.80s' inside documents of several lengths: causal and window masks are "
            "understood there, where every document has as many queries as keys",
            text);
    attn_mask_free(mask);
    return status;
}

enum attn_status attn_files_packed_mask(const struct attn_files *files, const char *text,
                                        char **whole, struct attn_error *err)
{
    const struct attn_packed_batch *x = &files->packed;
    int inside = strcmp(text, "none") != 0;
    *whole = NULL;
    if (inside) {
        enum attn_status status = check_inside(files, text, err);
        if (status != ATTN_OK)
            return status;
    }
    size_t room = 64 + strlen(text) + 42 * (size_t)x->n, n = 0;
    *whole = malloc(room);
    if (*whole == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for a mask of %lld documents",
                         (long long)x->n);
    n += (size_t)snprintf(*whole, room, "documents(");
    for (int64_t t = 0; t < x->n; t++)
        n += (size_t)snprintf(*whole + n, room - n, "%s%lldx%lld", t > 0 ? "," : "",
                              (long long)(x->q[t + 1] - x->q[t]),
                              (long long)(x->k[t + 1] - x->k[t]));
    snprintf(*whole + n, room - n, inside ? ")&%s" : ")", text);
    return ATTN_OK;
}

/* ---- axes ------------------------------------------------------------------------------------ */

enum attn_file_axes attn_file_axes_of(enum attn_output output)
{
    return output == ATTN_LSE                       ? ATTN_AXES_ROWS
           : output == ATTN_DBIAS                   ? ATTN_AXES_PAIRS
           : output == ATTN_DK || output == ATTN_DV ? ATTN_AXES_KEYS
                                                    : ATTN_AXES_QUERIES;
}

/* Batch entries that the tokens of a packed batch are cut into; 1 where they are not. */
static int64_t entries(const struct attn_files *files)
{
    return files->layout.is_packed && files->packed.is_even ? files->packed.n : 1;
}

static void extents_of(const struct attn_files *files, enum attn_file_input input,
                       enum attn_file_axes kind, int64_t n[4])
{
    attn_file_extents(&files->layout, kind, files->input[input], entries(files), n);
}

static struct attn_view bias_view(const struct attn_file_tensor *tensor)
{
    struct attn_view view = {.data = tensor->data};
    int64_t whole = 1;
    for (int a = tensor->n_axes - 1, to = 3; a >= 0; a--, to--) {
        view.stride[to] = tensor->extent[a] != 1 ? whole : 0;
        whole *= tensor->extent[a] > 0 ? tensor->extent[a] : 1; /* empty is not broadcast */
    }
    attn_file_dtype_storage(tensor->dtype, &view.dtype);
    return view;
}

struct attn_view attn_files_view(const struct attn_files *files,
                                 const struct attn_file_tensor *tensor, enum attn_file_axes kind)
{
    struct attn_view view = {.data = tensor->data};
    struct attn_file_tensor shape = *tensor;
    int64_t n[4];
    if (kind == ATTN_AXES_PAIRS)
        return bias_view(tensor);
    attn_file_extents(&files->layout, kind, tensor, entries(files), n);
    attn_file_place(&files->layout, kind, n, &shape, view.stride);
    attn_file_dtype_storage(tensor->dtype, &view.dtype);
    return view;
}

struct attn_cview attn_files_cview(const struct attn_files *files,
                                   const struct attn_file_tensor *tensor, enum attn_file_axes kind)
{
    struct attn_view view = attn_files_view(files, tensor, kind);
    struct attn_cview same = {.data = view.data, .dtype = view.dtype};
    memcpy(same.stride, view.stride, sizeof same.stride);
    return same;
}

struct attn_cview attn_files_input(const struct attn_files *files, enum attn_file_input input)
{
    enum attn_file_axes kind = input == ATTN_IN_BIAS                      ? ATTN_AXES_PAIRS
                               : input == ATTN_IN_DLSE                    ? ATTN_AXES_ROWS
                               : input == ATTN_IN_K || input == ATTN_IN_V ? ATTN_AXES_KEYS
                                                                          : ATTN_AXES_QUERIES;
    if (files->input[input] == NULL)
        return (struct attn_cview){0};
    return attn_files_cview(files, files->input[input], kind);
}

/* ---- the problem's extents ------------------------------------------------------------------- */

static enum attn_status check_types(const struct attn_files *files, struct attn_error *err)
{
    static const enum attn_file_input same[] = {ATTN_IN_Q, ATTN_IN_K, ATTN_IN_V, ATTN_IN_DO};
    enum attn_file_dtype dtype = files->input[ATTN_IN_Q]->dtype;
    enum attn_dtype storage;
    char shape[160];
    for (int i = 0; i < 4; i++) {
        const struct attn_file_tensor *t = files->input[same[i]];
        const char *name = attn_file_input_name(same[i]);
        if (t == NULL)
            continue;
        if (!attn_file_dtype_storage(t->dtype, &storage))
            return attn_fault(err, ATTN_EINVAL, files->from[same[i]]->path,
                              "%s is stored as %s: F64, F32, BF16 and F16 would work", name,
                              attn_file_dtype_name(t->dtype));
        if (t->dtype != dtype)
            return attn_fault(err, ATTN_EINVAL, files->from[same[i]]->path,
                              "%s is stored as %s, q as %s: q, k, v and do must be alike", name,
                              attn_file_dtype_name(t->dtype), attn_file_dtype_name(dtype));
        int n_axes = files->input[ATTN_IN_Q]->n_axes;
        if (t->n_axes != n_axes)
            return attn_fault(err, ATTN_EINVAL, files->from[same[i]]->path,
                              "%s is %s: it needs %d axes as q has", name,
                              attn_file_shape(t, shape), n_axes);
        int64_t heads = files->layout.folded[i == 1 || i == 2];
        if (heads > 0 && t->extent[n_axes - 1] % heads != 0)
            return attn_fault(err, ATTN_EINVAL, files->from[same[i]]->path,
                              "%s is %s: its last axis does not fold %lld heads%s", name,
                              attn_file_shape(t, shape), (long long)heads,
                              i == 1 || i == 2 ? " (--kv-heads)" : " (--heads)");
    }
    return ATTN_OK;
}

/* k and v against q, with all three in the message: which one is wrong, only the reader knows. */
static enum attn_status check_qkv(const struct attn_files *files, const int64_t q[4],
                                  const int64_t k[4], const int64_t v[4], struct attn_error *err)
{
    const char *wrong = NULL;
    char text[3][160];
    if (k[0] != q[0] || v[0] != q[0])
        wrong = "batches differ";
    else if (k[1] != v[1])
        wrong = "k and v have different heads";
    else if (k[1] == 0 ? q[1] != 0 : q[1] % k[1] != 0)
        wrong = "the heads of q must be a multiple of those of k and v";
    else if (k[2] != v[2])
        wrong = "k and v have different lengths";
    else if (q[3] != k[3])
        wrong = "q and k have different features";
    if (wrong == NULL)
        return ATTN_OK;
    return attn_fault(err, ATTN_EINVAL, files->from[ATTN_IN_Q]->path,
                      "%s: q is %s, k is %s, v is %s, read as %s (--layout reads them otherwise)",
                      wrong, attn_file_shape(files->input[ATTN_IN_Q], text[0]),
                      attn_file_shape(files->input[ATTN_IN_K], text[1]),
                      attn_file_shape(files->input[ATTN_IN_V], text[2]), attn_files_layout(files));
}

/* ---- the other tensors ----------------------------------------------------------------------- */

enum attn_status attn_files_fits(const struct attn_files *files, const struct attn_file *file,
                                 const struct attn_file_tensor *t, const char *name,
                                 enum attn_output output, struct attn_error *err)
{
    struct attn_file_tensor want = {0};
    enum attn_dtype storage;
    char text[2][160];
    if (t == NULL)
        return ATTN_OK;
    attn_files_output_shape(files, output, &want);
    if (!attn_file_same_shape(t, &want))
        return attn_fault(err, ATTN_EINVAL, file->path, "%s is %s: %s would fit q, k and v", name,
                          attn_file_shape(t, text[0]), attn_file_shape(&want, text[1]));
    if (!attn_file_dtype_storage(t->dtype, &storage))
        return attn_fault(err, ATTN_EINVAL, file->path,
                          "%s is stored as %s: F64, F32, BF16 and F16 would work", name,
                          attn_file_dtype_name(t->dtype));
    return ATTN_OK;
}

/* As numpy broadcasts: axes are matched from the last, each is 1 or whole. */
static enum attn_status check_bias(const struct attn_files *files, struct attn_error *err)
{
    const struct attn_problem *p = &files->problem;
    const struct attn_file_tensor *t = files->input[ATTN_IN_BIAS];
    const int64_t want[4] = {p->batch, p->heads, p->n_query, p->n_key};
    char text[160];
    if (t == NULL)
        return ATTN_OK;
    int fit = t->n_axes >= 2 && t->n_axes <= 4;
    for (int a = t->n_axes - 1, to = 3; fit && a >= 0; a--, to--)
        fit = t->extent[a] == 1 || t->extent[a] == want[to];
    if (!fit)
        return attn_fault(
            err, ATTN_EINVAL, files->from[ATTN_IN_BIAS]->path,
            "bias is %s: [%lld,%lld,%lld,%lld] or less by leading axes would fit, each "
            "extent whole or 1",
            attn_file_shape(t, text), (long long)want[0], (long long)want[1], (long long)want[2],
            (long long)want[3]);
    if (t->dtype != ATTN_FILE_F32 && t->dtype != ATTN_FILE_F64)
        return attn_fault(err, ATTN_EINVAL, files->from[ATTN_IN_BIAS]->path,
                          "bias is stored as %s: F32 or F64 would work",
                          attn_file_dtype_name(t->dtype));
    return ATTN_OK;
}

static void output_extents(const struct attn_problem *p, enum attn_output output, int64_t extent[4])
{
    int by_key = output == ATTN_DK || output == ATTN_DV;
    extent[0] = p->batch;
    extent[1] = by_key ? p->kv_heads : p->heads;
    extent[2] = by_key ? p->n_key : p->n_query;
    extent[3] = output == ATTN_O || output == ATTN_DV ? p->d_value : p->d_key;
    if (output == ATTN_LSE)
        extent[3] = 1;
}

void attn_files_output_shape(const struct attn_files *files, enum attn_output output,
                             struct attn_file_tensor *tensor)
{
    int64_t extent[4], stride[4];
    enum attn_dtype dtype = files->problem.dtype;
    if (output == ATTN_LSE && dtype != ATTN_F64)
        dtype = ATTN_F32;
    memset(tensor, 0, sizeof *tensor);
    if (output == ATTN_DBIAS) {
        *tensor = *files->input[ATTN_IN_BIAS];
    } else { /* no overflow: attn_problem_check, or the inputs' */
        tensor->dtype = attn_file_dtype_of(dtype);
        output_extents(&files->problem, output, extent);
        attn_file_place(&files->layout, attn_file_axes_of(output), extent, tensor, stride);
    }
    tensor->data = NULL;
    tensor->fortran = tensor->swapped = 0;
    tensor->name = attn_output_name(output);
}

enum attn_status attn_files_shapes(struct attn_files *files, struct attn_error *err)
{
    struct attn_problem *p = &files->problem;
    const struct attn_file_tensor *const *in = (const struct attn_file_tensor *const *)files->input;
    int64_t q[4], k[4], v[4];
    char text[160];
    int is_folded = files->layout.folded[0] > 0;
    enum attn_status status = open_packed(files, err);
    if (status != ATTN_OK)
        return status;
    int n_axes = in[ATTN_IN_Q]->n_axes + is_folded;
    files->layout.n_axes = files->layout.is_packed ? 4 : n_axes;
    if (files->layout.is_packed && n_axes != 3)
        return attn_fault(err, ATTN_EINVAL, files->from[ATTN_IN_Q]->path,
                          "q is %s: [T,H,d] would fit layout THD",
                          attn_file_shape(in[ATTN_IN_Q], text));
    if (n_axes < 2 + is_folded || n_axes > 4)
        return attn_fault(err, ATTN_EINVAL, files->from[ATTN_IN_Q]->path,
                          is_folded ? "q is %s: [B,L,H*d] or [L,H*d] would fit"
                                    : "q is %s: [B,H,L,d], [H,L,d] or [L,d] would fit",
                          attn_file_shape(in[ATTN_IN_Q], text));
    if ((status = check_types(files, err)) != ATTN_OK)
        return status;
    extents_of(files, ATTN_IN_Q, ATTN_AXES_QUERIES, q);
    extents_of(files, ATTN_IN_K, ATTN_AXES_KEYS, k);
    extents_of(files, ATTN_IN_V, ATTN_AXES_KEYS, v);
    if ((status = check_qkv(files, q, k, v, err)) != ATTN_OK)
        return status;
    *p = (struct attn_problem){.batch = q[0],
                               .heads = q[1],
                               .kv_heads = k[1],
                               .n_query = q[2],
                               .n_key = k[2],
                               .d_key = q[3],
                               .d_value = v[3]};
    attn_file_dtype_storage(in[ATTN_IN_Q]->dtype, &p->dtype);
    status = check_bias(files, err);
    if (status == ATTN_OK)
        status = attn_files_fits(files, files->from[ATTN_IN_DO], in[ATTN_IN_DO], "do", ATTN_O, err);
    if (status == ATTN_OK)
        status = attn_files_fits(files, files->from[ATTN_IN_DLSE], in[ATTN_IN_DLSE], "dlse",
                                 ATTN_LSE, err);
    for (int o = 0; o < ATTN_OUTPUTS && status == ATTN_OK; o++)
        if (files->stored[o] != NULL && (o != ATTN_DBIAS || in[ATTN_IN_BIAS] != NULL))
            status =
                attn_files_fits(files, files->stored[o]->file, files->stored[o]->tensor,
                                attn_output_name((enum attn_output)o), (enum attn_output)o, err);
    return status;
}
