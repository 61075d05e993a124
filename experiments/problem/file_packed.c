/* See file_problem.h: packed batches.  Where documents are of one length they are batch entries,
 * and any mask speaks of each by itself; documents of several lengths become a mask,
 * documents(...), and what else is hidden must then be sayable over all tokens. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/problem/file_problem.h"
#include "tests/harness/cases/band.h"
#include "tests/harness/files/fileio.h"

/* ---- where documents begin ------------------------------------------------------------------ */

static enum attn_status load_starts(struct attn_file_problem *files,
                                    enum attn_file_problem_input which, int64_t tokens,
                                    int64_t **starts, int64_t *n, struct attn_error *err)
{
    struct attn_file_tensor *t = files->input[which];
    const struct attn_file *file = files->from[which];
    const char *name = attn_file_problem_input_name(which);
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

/* All tokens are one document: nothing was said of others. */
static enum attn_status one_document(struct attn_file_problem *files, int64_t queries, int64_t keys,
                                     struct attn_error *err)
{
    struct attn_file_problem_packed *x = &files->packed;
    x->n = 1;
    x->q = calloc(2, sizeof *x->q);
    x->k = calloc(2, sizeof *x->k);
    if (x->q == NULL || x->k == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for one document");
    x->q[1] = queries;
    x->k[1] = keys;
    return ATTN_OK;
}

static enum attn_status read_starts(struct attn_file_problem *files, struct attn_error *err)
{
    struct attn_file_problem_packed *x = &files->packed;
    int64_t queries = files->input[ATTN_FILE_PROBLEM_Q]->extent[0],
            keys = files->input[ATTN_FILE_PROBLEM_K]->extent[0];
    int64_t n_key = 0;
    enum attn_file_problem_input of_keys = files->input[ATTN_FILE_PROBLEM_CU_K] != NULL
                                               ? ATTN_FILE_PROBLEM_CU_K
                                               : ATTN_FILE_PROBLEM_CU_Q;
    if (files->input[ATTN_FILE_PROBLEM_CU_Q] == NULL &&
        files->input[ATTN_FILE_PROBLEM_CU_K] != NULL)
        return attn_fault(err, ATTN_EINVAL, files->from[ATTN_FILE_PROBLEM_CU_K]->path,
                          "cu_seqlens_k without cu_seqlens_q");
    if (files->input[ATTN_FILE_PROBLEM_CU_Q] == NULL)
        return one_document(files, queries, keys, err);
    enum attn_status status =
        load_starts(files, ATTN_FILE_PROBLEM_CU_Q, queries, &x->q, &x->n, err);
    if (status == ATTN_OK)
        status = load_starts(files, of_keys, keys, &x->k, &n_key, err);
    if (status == ATTN_OK && n_key != x->n)
        status = attn_fault(err, ATTN_EINVAL, files->from[of_keys]->path,
                            "cu_seqlens_q has %lld documents, cu_seqlens_k %lld", (long long)x->n,
                            (long long)n_key);
    return status;
}

enum attn_status attn_file_problem_packed_open(struct attn_file_problem *files,
                                               struct attn_error *err)
{
    struct attn_file_problem_packed *x = &files->packed;
    if (!files->thd && (files->input[ATTN_FILE_PROBLEM_CU_Q] != NULL ||
                        files->input[ATTN_FILE_PROBLEM_CU_K] != NULL))
        return attn_fault(
            err, ATTN_EINVAL, files->file[0].path,
            "has cu_seqlens, which belong to packed tensors [T,H,d]: say --layout THD");
    if (!files->thd)
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

/* ---- masks ---------------------------------------------------------------------------------- */

/* A band means the same over all tokens as inside each document, where every document has as many
 * queries as keys; nothing else does. */
static enum attn_status check_inside(const struct attn_file_problem *files, const char *text,
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

enum attn_status attn_file_problem_packed_mask(const struct attn_file_problem *files,
                                               const char *text, char **whole,
                                               struct attn_error *err)
{
    const struct attn_file_problem_packed *x = &files->packed;
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
