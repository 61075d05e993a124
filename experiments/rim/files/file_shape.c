/* See file_problem.h: axes, and packed batches.  The shapes in files are [B,H,L,d] or [B,L,H,d],
 * without B, or without B and H; or [B,L,H d], heads folded into features; or [T,H,d], where
 * documents of one length are batch entries: [B L,H,d], and any mask speaks of each by itself.
 * Documents of several lengths become a mask, documents(...), and what else is hidden must then be
 * sayable over all tokens.  Inside there is only b, h, row, feature. */
#include "experiments/rim/files/file_problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/cases/band.h"

const struct attn_file_role attn_file_role[ATTN_IN_INPUTS] = {
    [ATTN_IN_Q] = {"q", ATTN_AXES_QUERIES},
    [ATTN_IN_K] = {"k", ATTN_AXES_KEYS},
    [ATTN_IN_V] = {"v", ATTN_AXES_KEYS},
    [ATTN_IN_DO] = {"do", ATTN_AXES_QUERIES},
    [ATTN_IN_BIAS] = {"bias", ATTN_AXES_PAIRS},
    [ATTN_IN_DLSE] = {"dlse", ATTN_AXES_ROWS},
    [ATTN_IN_SINK] = {"sink", ATTN_AXES_HEADS},
    [ATTN_IN_KEY_MASK] = {"key_mask", 0}, /* these are read by what they are for */
    [ATTN_IN_CU_Q] = {"cu_seqlens_q", 0},
    [ATTN_IN_CU_K] = {"cu_seqlens_k", 0}};

/* ---- where documents begin ------------------------------------------------------------------- */

/* The n + 1 places where n documents begin and the last one ends, malloc'ed; the n. */
static enum attn_status load_starts(const struct attn_tensors_entry *entry, int64_t tokens,
                                    int64_t *n_documents, int64_t **starts, struct attn_error *err)
{
    const struct attn_file_tensor *t = entry->tensor;
    const char *path = entry->file->path;
    char shape[160];
    if ((t->dtype != ATTN_FILE_I32 && t->dtype != ATTN_FILE_I64) || t->n_axes != 1 ||
        t->extent[0] < 1)
        return attn_fault(err, ATTN_EINVAL, path,
                          "%s is %s %s: [n + 1] for n documents, I32 or I64, would fit",
                          entry->name, attn_file_dtype_name(t->dtype), attn_file_shape(t, shape));
    enum attn_status status = attn_tensors_load(entry, err);
    if (status != ATTN_OK)
        return status;
    int64_t n = *n_documents = t->extent[0] - 1,
            *start = *starts = calloc((size_t)n + 1, sizeof *start);
    if (start == NULL)
        return attn_fault(err, ATTN_ENOMEM, path, "no memory for %lld documents", (long long)n);
    for (int64_t i = 0; i <= n; i++) {
        start[i] = t->dtype == ATTN_FILE_I64 ? ((const int64_t *)t->data)[i]
                                             : ((const int32_t *)t->data)[i];
        if (i == 0 ? start[0] != 0 : start[i] < start[i - 1])
            return attn_fault(
                err, ATTN_EINVAL, path,
                "%s[%lld] is %lld: documents begin at 0 and never before the last one", entry->name,
                (long long)i, (long long)start[i]);
    }
    if (start[n] != tokens)
        return attn_fault(err, ATTN_EINVAL, path, "%s ends at %lld, and there are %lld tokens",
                          entry->name, (long long)start[n], (long long)tokens);
    return ATTN_OK;
}

/* Where the documents of queries and of keys begin. */
static enum attn_status read_packed(struct attn_files *files, struct attn_error *err)
{
    struct attn_packed_batch *x = &files->packed;
    const struct attn_tensors_entry *cu_q = files->input[ATTN_IN_CU_Q];
    const struct attn_tensors_entry *cu_k = files->input[ATTN_IN_CU_K];
    int64_t queries = files->input[ATTN_IN_Q]->tensor->extent[0];
    int64_t keys = files->input[ATTN_IN_K]->tensor->extent[0];
    enum attn_status status = ATTN_OK;
    if (!files->layout.is_packed && (cu_q != NULL || cu_k != NULL))
        return attn_fault(
            err, ATTN_EINVAL, files->file[0]->path,
            "has cu_seqlens, which belong to packed tensors [T,H,d]: say --layout THD");
    if (!files->layout.is_packed)
        return ATTN_OK;
    if (cu_q == NULL && cu_k != NULL)
        return attn_fault(err, ATTN_EINVAL, cu_k->file->path, "cu_seqlens_k without cu_seqlens_q");
    cu_k = cu_k != NULL ? cu_k : cu_q;
    if (cu_q == NULL) { /* all tokens are one document */
        x->n = 1;
        x->q = attn_cli_need(calloc(2, sizeof *x->q));
        x->k = attn_cli_need(calloc(2, sizeof *x->k));
        x->q[1] = queries;
        x->k[1] = keys;
    } else {
        int64_t n_key;
        status = load_starts(cu_q, queries, &x->n, &x->q, err);
        if (status == ATTN_OK)
            status = load_starts(cu_k, keys, &n_key, &x->k, err);
        if (status == ATTN_OK && n_key != x->n)
            return attn_fault(err, ATTN_EINVAL, cu_k->file->path,
                              "cu_seqlens_q has %lld documents, cu_seqlens_k %lld", (long long)x->n,
                              (long long)n_key);
    }
    return status;
}

static enum attn_status open_packed(struct attn_files *files, struct attn_error *err)
{
    struct attn_packed_batch *x = &files->packed;
    enum attn_status status = read_packed(files, err);
    x->is_even = x->is_self = 1;
    for (int64_t t = 0; t < x->n && status == ATTN_OK; t++) {
        int64_t rows = x->q[t + 1] - x->q[t], columns = x->k[t + 1] - x->k[t];
        x->is_even &= rows == x->q[1] && columns == x->k[1];
        x->is_self &= rows == columns;
    }
    return status;
}

/* ---- masks ----------------------------------------------------------------------------------- */

/* A band means the same over all tokens as inside each document, where every document has as many
 * queries as keys; nothing else does. */
static enum attn_status check_inside(const struct attn_files *files, const char *text,
                                     struct attn_error *err)
{
    struct attn_case inside = files->c;
    struct attn_problem problem;
    struct attn_mask *mask;
    struct attn_chain chain;
    attn_case_set_mask(&inside, text);
    enum attn_status status = attn_case_open(&inside, NULL, &problem, &mask, err);
    if (status == ATTN_OK && (!attn_chain_of(mask, &chain) || chain.documents.n > 0 ||
                              chain.length >= 0 || !files->packed.is_self))
        status = attn_fail(err, ATTN_EINVAL,
                           "mask '%.80s' inside documents of several lengths: causal and window "
                           "masks are understood there, where every document has as many queries "
                           "as keys",
                           text);
    attn_mask_free(mask);
    return status;
}

enum attn_status attn_files_packed_mask(struct attn_files *files, struct attn_error *err)
{
    const struct attn_packed_batch *x = &files->packed;
    const char *text = files->mask_text;
    int inside = strcmp(text, "none") != 0;
    char *whole;
    size_t size;
    enum attn_status status = inside ? check_inside(files, text, err) : ATTN_OK;
    if (status != ATTN_OK)
        return status;
    FILE *out = attn_cli_memory(&whole, &size);
    for (int64_t t = 0; t < x->n; t++)
        fprintf(out, "%s%lldx%lld", t > 0 ? "," : "documents(", (long long)(x->q[t + 1] - x->q[t]),
                (long long)(x->k[t + 1] - x->k[t]));
    fprintf(out, "%s)%s%s", x->n > 0 ? "" : "documents(", inside ? "&" : "", inside ? text : "");
    fclose(out);
    free(files->mask_text);
    files->mask_text = attn_cli_need(whole);
    return ATTN_OK;
}

/* ---- axes ------------------------------------------------------------------------------------ */

enum attn_file_axes attn_file_axes_of(enum attn_output output)
{
    return output == ATTN_LSE                       ? ATTN_AXES_ROWS
           : output == ATTN_DBIAS                   ? ATTN_AXES_PAIRS
           : output == ATTN_DSINK                   ? ATTN_AXES_HEADS
           : output == ATTN_DK || output == ATTN_DV ? ATTN_AXES_KEYS
                                                    : ATTN_AXES_QUERIES;
}

/* Batch entries that the tokens of a packed batch are cut into; 1 where they are not. */
static int64_t entries(const struct attn_files *files)
{
    return files->layout.is_packed && files->packed.is_even ? files->packed.n : 1;
}

static const struct attn_file_layout *layout_of(const struct attn_files *files,
                                                enum attn_file_axes kind)
{
    return kind == ATTN_AXES_KEYS ? &files->key_layout : &files->layout;
}

static void extents_of(const struct attn_files *files, enum attn_file_input input, int64_t n[4])
{
    enum attn_file_axes kind = attn_file_role[input].axes;
    attn_file_extents(layout_of(files, kind), kind, files->input[input]->tensor, entries(files), n);
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
    attn_file_extents(layout_of(files, kind), kind, tensor, entries(files), n);
    attn_file_place(layout_of(files, kind), kind, n, &shape, view.stride);
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
    if (files->input[input] == NULL)
        return (struct attn_cview){0};
    return attn_files_cview(files, files->input[input]->tensor, attn_file_role[input].axes);
}

/* ---- the problem's extents ------------------------------------------------------------------- */

static enum attn_status check_floating(const struct attn_tensors_entry *entry,
                                       struct attn_error *err)
{
    enum attn_dtype storage;
    if (!attn_file_dtype_storage(entry->tensor->dtype, &storage))
        return attn_fault(err, ATTN_EINVAL, entry->file->path,
                          "%s is stored as %s: F64, F32, BF16 and F16 would work", entry->name,
                          attn_file_dtype_name(entry->tensor->dtype));
    return ATTN_OK;
}

/* k, v and do have the type and the number of axes that q has. */
static enum attn_status check_types(const struct attn_files *files, struct attn_error *err)
{
    static const enum attn_file_input same[] = {ATTN_IN_Q, ATTN_IN_K, ATTN_IN_V, ATTN_IN_DO};
    const struct attn_file_tensor *q = files->input[ATTN_IN_Q]->tensor;
    char shape[160];
    for (int i = 0; i < 4; i++) {
        const struct attn_tensors_entry *entry = files->input[same[i]];
        if (entry == NULL)
            continue;
        if (check_floating(entry, err) != ATTN_OK)
            return ATTN_EINVAL;
        const struct attn_file_tensor *t = entry->tensor;
        const char *path = entry->file->path;
        int by_key = attn_file_role[same[i]].axes == ATTN_AXES_KEYS;
        int is_cache = by_key && files->layout.folded[0] > 0 && files->key_layout.folded[0] == 0;
        int64_t heads = is_cache ? 0 : files->layout.folded[by_key];
        int axes = is_cache ? 4 : q->n_axes;
        if (t->dtype != q->dtype)
            return attn_fault(
                err, ATTN_EINVAL, path, "%s is stored as %s, q as %s: q, k, v and do must be alike",
                entry->name, attn_file_dtype_name(t->dtype), attn_file_dtype_name(q->dtype));
        if (t->n_axes != axes)
            return attn_fault(err, ATTN_EINVAL, path, "%s is %s: it needs %d axes as %s",
                              entry->name, attn_file_shape(t, shape), axes,
                              is_cache ? "k has" : "q has");
        if (heads > 0 && t->extent[q->n_axes - 1] % heads != 0)
            return attn_fault(err, ATTN_EINVAL, path,
                              "%s is %s: its last axis does not fold %lld heads%s", entry->name,
                              attn_file_shape(t, shape), (long long)heads,
                              by_key ? " (--kv-heads)" : " (--heads)");
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
    if (wrong != NULL)
        return attn_fault(
            err, ATTN_EINVAL, files->input[ATTN_IN_Q]->file->path,
            "%s: q is %s, k is %s, v is %s, read as %s (--layout reads them otherwise)", wrong,
            attn_file_shape(files->input[ATTN_IN_Q]->tensor, text[0]),
            attn_file_shape(files->input[ATTN_IN_K]->tensor, text[1]),
            attn_file_shape(files->input[ATTN_IN_V]->tensor, text[2]), files->layout_words);
    return ATTN_OK;
}

/* ---- the other tensors ----------------------------------------------------------------------- */

enum attn_status attn_files_fits(const struct attn_files *files,
                                 const struct attn_tensors_entry *entry, enum attn_output output,
                                 struct attn_error *err)
{
    struct attn_file_tensor want = {0};
    char text[2][160];
    if (entry == NULL)
        return ATTN_OK;
    attn_files_output_shape(files, output, &want);
    if (!attn_file_same_shape(entry->tensor, &want))
        return attn_fault(err, ATTN_EINVAL, entry->file->path, "%s is %s: %s would fit q, k and v",
                          entry->name, attn_file_shape(entry->tensor, text[0]),
                          attn_file_shape(&want, text[1]));
    return check_floating(entry, err);
}

/* From 16 bits to what a problem takes. */
static enum attn_status widen(const struct attn_tensors_entry *entry, struct attn_error *err)
{
    struct attn_file_tensor *t = entry->tensor;
    double *values = NULL;
    enum attn_status status = attn_tensors_values(entry, &values, err);
    if (status != ATTN_OK)
        return status;
    free(t->data);
    t->data = values;
    t->dtype = ATTN_FILE_F64;
    t->bytes *= 4;
    return ATTN_OK;
}

/* As numpy broadcasts: axes are matched from the last, each is 1 or whole. */
static enum attn_status check_bias(const struct attn_files *files, struct attn_error *err)
{
    const struct attn_case *p = &files->c;
    const struct attn_tensors_entry *entry = files->input[ATTN_IN_BIAS];
    const int64_t want[4] = {p->batch, p->heads, p->n_query, p->n_key};
    char text[160];
    if (entry == NULL)
        return ATTN_OK;
    const struct attn_file_tensor *t = entry->tensor;
    int fit = t->n_axes >= 2 && t->n_axes <= 4;
    for (int a = t->n_axes - 1, to = 3; fit && a >= 0; a--, to--)
        fit = t->extent[a] == 1 || t->extent[a] == want[to];
    if (!fit)
        return attn_fault(
            err, ATTN_EINVAL, entry->file->path,
            "bias is %s: [%lld,%lld,%lld,%lld] or less by leading axes would fit, each "
            "extent whole or 1",
            attn_file_shape(t, text), (long long)want[0], (long long)want[1], (long long)want[2],
            (long long)want[3]);
    if (check_floating(entry, err) != ATTN_OK)
        return ATTN_EINVAL;
    return t->dtype != ATTN_FILE_F32 && t->dtype != ATTN_FILE_F64 ? widen(entry, err) : ATTN_OK;
}

static void output_extents(const struct attn_case *p, enum attn_output output, int64_t extent[4])
{
    int by_key = output == ATTN_DK || output == ATTN_DV;
    extent[0] = p->batch;
    extent[1] = by_key ? p->kv_heads : p->heads;
    extent[2] = by_key ? p->n_key : p->n_query;
    extent[3] = output == ATTN_O || output == ATTN_DV ? p->d_value : p->d_key;
    if (output == ATTN_LSE)
        extent[3] = 1;
    if (output == ATTN_DSINK)
        extent[0] = extent[2] = extent[3] = 1;
}

void attn_files_output_shape(const struct attn_files *files, enum attn_output output,
                             struct attn_file_tensor *tensor)
{
    int64_t extent[4], stride[4];
    enum attn_dtype dtype = files->c.dtype;
    if ((output == ATTN_LSE || output == ATTN_DSINK) && dtype != ATTN_F64)
        dtype = ATTN_F32;
    if (output == ATTN_DSINK && files->input[ATTN_IN_SINK] != NULL) /* as the sink is */
        attn_file_dtype_storage(files->input[ATTN_IN_SINK]->tensor->dtype, &dtype);
    memset(tensor, 0, sizeof *tensor);
    if (output == ATTN_DBIAS) {
        *tensor = *files->input[ATTN_IN_BIAS]->tensor;
    } else { /* no overflow: attn_problem_check, or the inputs' */
        tensor->dtype = attn_file_dtype_of(dtype);
        output_extents(&files->c, output, extent);
        enum attn_file_axes kind = attn_file_axes_of(output);
        attn_file_place(layout_of(files, kind), kind, extent, tensor, stride);
    }
    tensor->data = NULL;
    tensor->fortran = tensor->swapped = 0;
    tensor->name = attn_output_name(output);
}

/* Extents of q, k and v into the case. */
static enum attn_status set_extents(struct attn_files *files, struct attn_error *err)
{
    const struct attn_file_tensor *in_q = files->input[ATTN_IN_Q]->tensor;
    int64_t q[4], k[4], v[4];
    extents_of(files, ATTN_IN_Q, q);
    extents_of(files, ATTN_IN_K, k);
    extents_of(files, ATTN_IN_V, v);
    enum attn_status status = check_qkv(files, q, k, v, err);
    struct attn_case *c = &files->c;
    c->batch = q[0];
    c->heads = q[1];
    c->kv_heads = k[1];
    c->n_query = q[2];
    c->n_key = k[2];
    c->d_key = q[3];
    c->d_value = v[3];
    attn_file_dtype_storage(in_q->dtype, &c->dtype);
    return status == ATTN_OK && c->kv_shared && attn_files_said(files, "dv_view") != NULL
               ? attn_files_integer(files, "dv_view", &c->d_value, err)
               : status;
}

/* Axes of q, which the others share. */
static enum attn_status check_axes(struct attn_files *files, struct attn_error *err)
{
    const struct attn_file_tensor *in_q = files->input[ATTN_IN_Q]->tensor;
    const char *path = files->input[ATTN_IN_Q]->file->path;
    char text[160];
    int is_folded = files->layout.folded[0] > 0, n_axes = in_q->n_axes + is_folded;
    files->layout.n_axes = files->layout.is_packed ? 4 : n_axes;
    if (files->layout.is_packed && n_axes != 3)
        return attn_fault(err, ATTN_EINVAL, path, "q is %s: [T,H,d] would fit layout THD",
                          attn_file_shape(in_q, text));
    if (n_axes < 2 + is_folded || n_axes > 4)
        return attn_fault(err, ATTN_EINVAL, path,
                          is_folded ? "q is %s: [B,L,H*d] or [L,H*d] would fit"
                                    : "q is %s: [B,H,L,d], [H,L,d] or [L,d] would fit",
                          attn_file_shape(in_q, text));
    files->key_layout = files->layout;
    if (is_folded && files->input[ATTN_IN_K]->tensor->n_axes == 4) /* a cache, as it lies */
        files->key_layout = (struct attn_file_layout){.n_axes = 4};
    return check_types(files, err);
}

static enum attn_status check_sink(struct attn_files *files, struct attn_error *err)
{
    const struct attn_tensors_entry *entry = files->input[ATTN_IN_SINK];
    enum attn_status status = attn_files_fits(files, entry, ATTN_DSINK, err);
    if (status == ATTN_OK && entry != NULL && attn_file_dtype_size(entry->tensor->dtype) == 2)
        status = widen(entry, err);
    return status;
}

static enum attn_status check_others(struct attn_files *files, struct attn_error *err)
{
    enum attn_status status = check_bias(files, err);
    if (status == ATTN_OK)
        status = attn_files_fits(files, files->input[ATTN_IN_DO], ATTN_O, err);
    if (status == ATTN_OK)
        status = attn_files_fits(files, files->input[ATTN_IN_DLSE], ATTN_LSE, err);
    if (status == ATTN_OK)
        status = check_sink(files, err);
    for (int o = 0; o < ATTN_OUTPUTS && status == ATTN_OK; o++)
        if (o != ATTN_DBIAS || files->input[ATTN_IN_BIAS] != NULL)
            status = attn_files_fits(files, files->stored[o], (enum attn_output)o, err);
    return status;
}

enum attn_status attn_files_shapes(struct attn_files *files, struct attn_error *err)
{
    static enum attn_status (*const step[])(struct attn_files * files, struct attn_error * err) = {
        open_packed, check_axes, set_extents, check_others};
    enum attn_status status = ATTN_OK;
    for (int s = 0; s < 4 && status == ATTN_OK; s++)
        status = step[s](files, err);
    return status;
}
