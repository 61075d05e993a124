/* See file_problem.h: the words of `attnlab vectors` (docs/external.md), so that what it writes
 * can be given to `attnlab run` as it is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/problem/file_problem.h"
#include "ref/problem.h"
#include "tests/harness/files/fileio.h"

/* ---- masks ---------------------------------------------------------------------------------- */

int attn_file_problem_words_is(const struct attn_file_problem *files, const char *key,
                               const char *word)
{
    const char *said = NULL;
    struct attn_error ignored;
    return attn_file_problem_metadata(files, key, &said, &ignored) == ATTN_OK && said != NULL &&
           strcmp(said, word) == 0;
}

static enum attn_status read_integer(const struct attn_file_problem *files, const char *key,
                                     int64_t *value, struct attn_error *err)
{
    const char *said;
    enum attn_status status = attn_file_problem_metadata(files, key, &said, err);
    if (status == ATTN_OK &&
        (said == NULL || !attn_cli_int(said, -((int64_t)1 << 60), (int64_t)1 << 60, value)))
        return attn_fault(err, ATTN_EINVAL, files->file[0].path,
                          "metadata %s '%.40s': a whole number was expected", key,
                          said != NULL ? said : "");
    return status;
}

static enum attn_status read_band(const struct attn_file_problem *files, char **text,
                                  struct attn_error *err)
{
    int64_t offset = 0, left = 0, right = 0;
    enum attn_status status = read_integer(files, "offset", &offset, err);
    if (status == ATTN_OK)
        status = read_integer(files, "window_left", &left, err);
    if (status == ATTN_OK)
        status = read_integer(files, "window_right", &right, err);
    if (status != ATTN_OK)
        return status;
    int self = attn_file_problem_words_is(
        files, "window", "with-self"); /* one more on either side that has an end */
    left -= self && left > 0;
    right -= self && right > 0;
    int n = left < 0 && right == 0 ? asprintf(text, "causal(%+lld)", (long long)offset)
                                   : asprintf(text, "window(%lld,%lld,%+lld)", (long long)left,
                                              (long long)right, (long long)offset);
    if (n >= 0)
        return ATTN_OK;
    *text = NULL;
    return attn_fail(err, ATTN_ENOMEM, "no memory for the text of the mask");
}

enum attn_status attn_file_problem_words_mask(const struct attn_file_problem *files,
                                              const char *said, char **text, struct attn_error *err)
{
    *text = NULL;
    if (strcmp(said, "band") == 0)
        return read_band(files, text, err);
    if (strcmp(said, "dense") != 0)
        return ATTN_OK;
    *text = strdup("dense(mask)");
    return *text != NULL ? ATTN_OK
                         : attn_fail(err, ATTN_ENOMEM, "no memory for the text of the mask");
}

/* ---- bytes ---------------------------------------------------------------------------------- */

/* [1,H,Tq,Tk] to [n,H,Lq,Lk].  What lies in two documents must be hidden: the file says both. */
static enum attn_status cut(const struct attn_file_problem *files, const struct attn_file_tensor *t,
                            int hidden, unsigned char *to, struct attn_error *err)
{
    const struct attn_problem *p = &files->problem;
    const unsigned char *from = t->data;
    for (int64_t h = 0; h < t->extent[1]; h++)
        for (int64_t i = 0; i < t->extent[2]; i++)
            for (int64_t j = 0; j < t->extent[3]; j++, from++) {
                int64_t b = i / p->n_query;
                if (b == j / p->n_key)
                    to[((b * p->heads + h) * p->n_query + i % p->n_query) * p->n_key +
                       j % p->n_key] = *from;
                else if ((*from != 0) != hidden)
                    return attn_fault(err, ATTN_EINVAL, files->file[0].path,
                                      "mask shows query %lld key %lld of another document",
                                      (long long)i, (long long)j);
            }
    return ATTN_OK;
}

enum attn_status attn_file_problem_words_bytes(struct attn_file_problem *files,
                                               const struct attn_file_tensor *t,
                                               struct attn_mask_tensor *tensor,
                                               struct attn_error *err)
{
    const struct attn_problem *p = &files->problem;
    const int64_t all[4] = {1, p->heads, p->batch * p->n_query, p->batch * p->n_key};
    int hidden = attn_file_problem_words_is(files, "mask_one", "hidden");
    int in_entries = files->thd && files->packed.is_even && files->packed.n != 1;
    char text[160];
    if (!hidden && !in_entries)
        return ATTN_OK;
    if (attn_file_dtype_size(t->dtype) != 1 || t->n_axes > 4 ||
        (in_entries && memcmp(t->extent, all, sizeof all) != 0))
        return attn_fault(err, ATTN_EINVAL, files->file[0].path,
                          "mask is %s %s: U8 or BOOL [%lld,%lld,%lld,%lld] would fit",
                          attn_file_dtype_name(t->dtype), attn_file_shape(t, text),
                          (long long)all[0], (long long)all[1], (long long)all[2],
                          (long long)all[3]);
    free(files->mask_bytes);
    unsigned char *byte = files->mask_bytes = malloc((size_t)t->bytes + 1);
    if (byte == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for the mask");
    int64_t n = in_entries ? attn_product(p->batch * p->heads, p->n_query * p->n_key) : t->bytes;
    enum attn_status status = ATTN_OK;
    if (in_entries)
        status = cut(files, t, hidden, byte, err);
    else
        memcpy(byte, t->data, (size_t)n);
    for (int64_t e = 0; e < n && hidden && status == ATTN_OK; e++)
        byte[e] = byte[e] == 0;
    tensor->data = byte;
    if (in_entries) {
        const int64_t extent[4] = {p->batch, p->heads, p->n_query, p->n_key};
        memcpy(tensor->extent, extent, sizeof extent);
    }
    return status;
}

/* ---- conventions ---------------------------------------------------------------------------- */

enum attn_status attn_file_problem_words_alibi(struct attn_file_problem *files, const char **slopes,
                                               const char **align, struct attn_error *err)
{
    const char *list;
    int64_t offset;
    if (*slopes != NULL || files->request->alibi_align != NULL ||
        !attn_file_problem_words_is(files, "bias", "alibi"))
        return ATTN_OK;
    enum attn_status status = read_integer(files, "alibi_offset", &offset, err);
    if (status == ATTN_OK)
        status = attn_file_problem_metadata(files, "alibi_slopes", &list, err);
    if (status != ATTN_OK)
        return status;
    size_t n = list != NULL ? strlen(list) : 0, used = 0;
    if (n < 2 || list[0] != '[' || list[n - 1] != ']')
        return attn_fault(err, ATTN_EINVAL, files->file[0].path,
                          "metadata bias=alibi without alibi_slopes such as [0.5, 0.25]");
    files->words[0] = calloc(n, 1);
    if (files->words[0] == NULL || asprintf(&files->words[1], "%+lld", (long long)offset) < 0) {
        files->words[1] = NULL;
        return attn_fail(err, ATTN_ENOMEM, "no memory for the slopes of ALiBi");
    }
    for (size_t c = 1; c + 1 < n; c++)
        if (list[c] != ' ')
            files->words[0][used++] = list[c];
    *slopes = files->words[0];
    *align = files->words[1];
    return ATTN_OK;
}

/* What the metadata of one file add to the conventions. */
static void read_lse(const struct attn_file *file, struct attn_claims *claims)
{
    const char *base = attn_file_metadata(file, "lse"),
               *empty = attn_file_metadata(file, "empty_lse");
    if (base != NULL)
        claims->lse = strcmp(base, "2") == 0        ? ATTN_PLUGIN_LSE_2
                      : strcmp(base, "absent") == 0 ? ATTN_PLUGIN_LSE_ABSENT
                                                    : ATTN_PLUGIN_LSE_E;
    if (empty != NULL)
        claims->empty_lse =
            strcmp(empty, "+inf") == 0 ? ATTN_PLUGIN_EMPTY_PLUS_INF : ATTN_PLUGIN_EMPTY_MINUS_INF;
}

void attn_file_problem_words_lse(const struct attn_file_problem *files,
                                 const struct attn_file *result, struct attn_claims *claims)
{
    memset(claims, 0, sizeof *claims);
    for (int f = 0; f < files->n_files; f++)
        read_lse(&files->file[f], claims);
    if (result != NULL)
        read_lse(result, claims);
}
