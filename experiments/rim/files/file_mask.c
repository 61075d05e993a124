/* See file_problem.h: the mask, from a flag or from metadata, in the mask language, where `causal`
 * always has an alignment; what could mean two things is refused. */
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/rim/files/file_problem.h"
#include "ref/problem.h"
#include "tests/harness/base/fileio.h"

/* ---- tensors that a mask names --------------------------------------------------------------- */

/* [1,H,Tq,Tk] to [n,H,Lq,Lk].  A pair of two documents must be hidden: the file says both. */
static enum attn_status cut(const struct attn_files *files, const struct attn_file_tensor *t,
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
                    return attn_fault(err, ATTN_EINVAL, files->file[0]->path,
                                      "mask shows query %lld key %lld of another document",
                                      (long long)i, (long long)j);
            }
    return ATTN_OK;
}

/* The bytes that the word `dense` speaks of, in the problem's terms: 1 = visible, and of a packed
 * batch each document's own pairs, [n,H,Lq,Lk].  `tensor` changes where the file has others. */
static enum attn_status bytes_of_word(struct attn_files *files, const struct attn_file_tensor *t,
                                      struct attn_mask_tensor *tensor, struct attn_error *err)
{
    const struct attn_problem *p = &files->problem;
    const int64_t all[4] = {1, p->heads, p->batch * p->n_query, p->batch * p->n_key};
    const int64_t each[4] = {p->batch, p->heads, p->n_query, p->n_key};
    int hidden = attn_files_says(files, "mask_one", "hidden");
    int in_entries = files->layout.is_packed && files->packed.is_even && files->packed.n != 1;
    enum attn_status status = ATTN_OK;
    char text[160];
    if (!hidden && !in_entries)
        return ATTN_OK;
    if (attn_file_dtype_size(t->dtype) != 1 || t->n_axes > 4 ||
        (in_entries && memcmp(t->extent, all, sizeof all) != 0))
        return attn_fault(err, ATTN_EINVAL, files->file[0]->path,
                          "mask is %s %s: U8 or BOOL [%lld,%lld,%lld,%lld] would fit",
                          attn_file_dtype_name(t->dtype), attn_file_shape(t, text),
                          (long long)all[0], (long long)all[1], (long long)all[2],
                          (long long)all[3]);
    int64_t n = in_entries ? attn_product(p->batch * p->heads, p->n_query * p->n_key) : t->bytes;
    free(files->mask_bytes);
    unsigned char *byte = files->mask_bytes = malloc((size_t)t->bytes + 1);
    if (byte == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for the mask");
    if (in_entries) {
        status = cut(files, t, hidden, byte, err);
        memcpy(tensor->extent, each, sizeof each);
    } else
        memcpy(byte, t->data, (size_t)n);
    for (int64_t e = 0; e < n && hidden && status == ATTN_OK; e++)
        byte[e] = byte[e] == 0;
    tensor->data = byte;
    return status;
}

/* Refuses a tensor that a mask may not name. */
static enum attn_status check_named(const struct attn_files *files,
                                    const struct attn_tensors_entry *entry, struct attn_error *err)
{
    const struct attn_file_tensor *t = entry->tensor;
    const char *path = entry->file->path;
    enum attn_dtype floating;
    char need[32], have[32], shape[160];
    int64_t available = attn_cli_memory_available();
    if (attn_file_dtype_storage(t->dtype, &floating))
        return attn_fault(
            err, ATTN_EINVAL, path,
            "the mask names '%.40s', stored as %s: BOOL, U8, I8, I32 and I64 would work", t->name,
            attn_file_dtype_name(t->dtype));
    if (t->n_axes > 4)
        return attn_fault(err, ATTN_EINVAL, path, "the mask names '%.40s', %s: too many axes",
                          t->name, attn_file_shape(t, shape));
    if (files->n_named == ATTN_FILES_NAMED)
        return attn_fail(err, ATTN_EINVAL, "the mask names more than %d tensors", ATTN_FILES_NAMED);
    if (t->bytes > available)
        return attn_fault(err, ATTN_ENOMEM, path, "'%.40s' has %s, this machine can give %s",
                          t->name, attn_cli_bytes(t->bytes, need), attn_cli_bytes(available, have));
    return ATTN_OK;
}

/* For attn_case_open. */
static enum attn_status find(void *arg, const char *name, const char *part,
                             struct attn_mask_tensor *tensor, struct attn_error *err)
{
    struct attn_files *files = arg;
    char *whole = attn_cli_text("%s%s%s", name, part[0] != '\0' ? "." : "", part);
    const struct attn_tensors_entry *entry = attn_tensors_find(files->set, whole);
    free(whole);
    if (entry == NULL)
        return attn_fail(err, ATTN_EINVAL,
                         "the mask names tensor '%.60s%s%s', which is not in the input", name,
                         part[0] != '\0' ? "." : "", part);
    enum attn_status status = check_named(files, entry, err);
    if (status == ATTN_OK)
        status = attn_tensors_load(entry, err);
    if (status != ATTN_OK)
        return status;
    const struct attn_file_tensor *t = files->named[files->n_named++] = entry->tensor;
    tensor->data = t->data;
    tensor->width = (int)attn_file_dtype_size(t->dtype);
    tensor->n_axes = t->n_axes;
    memcpy(tensor->extent, t->extent, sizeof tensor->extent);
    return strcmp(t->name, "mask") == 0 ? bytes_of_word(files, t, tensor, err) : ATTN_OK;
}

/* ---- which mask ------------------------------------------------------------------------------ */

/* Translates the band of `attnlab vectors` to a mask. */
static enum attn_status translate_band(const struct attn_files *files, char **text,
                                       struct attn_error *err)
{
    static const char *const key[3] = {"offset", "window_left", "window_right"};
    int64_t x[3];
    for (int n = 0; n < 3; n++) {
        enum attn_status status = attn_files_integer(files, key[n], &x[n], err);
        if (status != ATTN_OK)
            return status;
    }
    int self = attn_files_says(files, "window", "with-self"); /* one more on a side with an end */
    long long left = x[1] - (self && x[1] > 0), right = x[2] - (self && x[2] > 0);
    *text = left < 0 && right == 0
                ? attn_cli_text("causal(%+lld)", (long long)x[0])
                : attn_cli_text("window(%lld,%lld,%+lld)", left, right, (long long)x[0]);
    return ATTN_OK;
}

/* The metadata's word in the mask language, malloc'ed. */
static enum attn_status translate(const struct attn_files *files, const char *said, char **text,
                                  struct attn_error *err)
{
    const struct attn_case *p = &files->c;
    int is_causal = strcmp(said, "causal") == 0;
    if (strcmp(said, "band") == 0)
        return translate_band(files, text, err);
    if (is_causal && p->n_query != p->n_key)
        return attn_fault(
            err, ATTN_EINVAL, files->file[0]->path,
            "metadata mask=causal with Lq = %lld and Lk = %lld could mean two things: say --mask "
            "'causal(tl)' (query 0 at key 0) or --mask 'causal(br)' (last query at last key)",
            (long long)p->n_query, (long long)p->n_key);
    *text = attn_cli_text("%s", is_causal                      ? "causal(br)"
                                : strcmp(said, "padding") == 0 ? "keys(key_mask)"
                                : strcmp(said, "dense") == 0   ? "dense(mask)"
                                                               : said);
    return ATTN_OK;
}

/* The flag wins over the metadata. */
static enum attn_status choose(struct attn_files *files, struct attn_error *err)
{
    const char *flag = files->request->mask, *said = attn_files_setting(files, "mask");
    if (flag == NULL && said != NULL)
        return translate(files, said, &files->mask_text, err);
    if (flag == NULL)
        attn_files_note("no mask was said: every pair %sis visible",
                        files->layout.is_packed && files->packed.n != 1 ? "of a document " : "");
    files->mask_text = attn_cli_text("%s", flag != NULL ? flag : "none");
    return ATTN_OK;
}

/* A key_mask that no mask names was meant for something: it is left out only when asked. */
static enum attn_status check_key_mask(const struct attn_files *files, struct attn_error *err)
{
    const struct attn_tensors_entry *key_mask = files->input[ATTN_IN_KEY_MASK];
    int named = key_mask == NULL || files->request->mask != NULL;
    for (int n = 0; n < files->n_named && !named; n++)
        named = files->named[n] == key_mask->tensor;
    if (named)
        return ATTN_OK;
    return attn_fault(
        err, ATTN_EINVAL, key_mask->file->path,
        "holds key_mask, which no metadata mask names: say --mask 'keys(key_mask)', or --mask "
        "'%.60s' to leave it out",
        files->mask_text);
}

enum attn_status attn_files_mask(struct attn_files *files, struct attn_error *err)
{
    const struct attn_mask_source source = {find, files};
    enum attn_status status = choose(files, err);
    /* Documents of several lengths are a mask too; of the word `dense` the bytes hide the rest. */
    if (status == ATTN_OK && files->layout.is_packed && !files->packed.is_even &&
        strcmp(files->mask_text, "dense(mask)") != 0)
        status = attn_files_packed_mask(files, err);
    if (status != ATTN_OK)
        return status;
    attn_case_set_mask(&files->c, files->mask_text);
    status = attn_case_open(&files->c, &source, &files->problem, &files->mask, err);
    return status == ATTN_OK ? check_key_mask(files, err) : status;
}
