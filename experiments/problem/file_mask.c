/* See file_problem.h: which mask.  Files in the wild say `causal` and `padding`, those of `attnlab
 * vectors` say `band` and `dense`; all are turned into the mask language here, where `causal`
 * always has an alignment, or refused where they could mean two things. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/problem/file_problem.h"
#include "tests/harness/files/fileio.h"

/* ---- tensors that a mask names ------------------------------------------------------------ */

static struct attn_file_tensor *look_up(struct attn_file_problem *files, const char *name,
                                        const char *part, struct attn_file **file)
{
    char whole[256];
    int n = snprintf(whole, sizeof whole, "%s%s%s", name, part[0] != '\0' ? "." : "", part);
    if (files->request->input == NULL) {
        *file = files->from[ATTN_FILE_PROBLEM_KEY_MASK];
        return strcmp(whole, "key_mask") == 0 ? files->input[ATTN_FILE_PROBLEM_KEY_MASK] : NULL;
    }
    *file = &files->file[0];
    return n < (int)sizeof whole ? attn_file_find(*file, whole) : NULL;
}

static enum attn_status check_type(const struct attn_file *file, const struct attn_file_tensor *t,
                                   struct attn_error *err)
{
    enum attn_dtype floating;
    char text[160];
    if (attn_file_dtype_storage(t->dtype, &floating))
        return attn_fault(
            err, ATTN_EINVAL, file->path,
            "the mask names '%.40s', stored as %s: BOOL, U8, I8, I32 and I64 would work", t->name,
            attn_file_dtype_name(t->dtype));
    if (t->n_axes > 4)
        return attn_fault(err, ATTN_EINVAL, file->path, "the mask names '%.40s', %s: too many axes",
                          t->name, attn_file_shape(t, text));
    return ATTN_OK;
}

static enum attn_status find(void *arg, const char *name, const char *part,
                             struct attn_mask_tensor *tensor, struct attn_error *err)
{
    struct attn_file_problem *files = arg;
    struct attn_file *file;
    struct attn_file_tensor *t = look_up(files, name, part, &file);
    char need[32], have[32];
    if (t == NULL)
        return attn_fail(err, ATTN_EINVAL,
                         "the mask names tensor '%.60s%s%s', which is not in the input", name,
                         part[0] != '\0' ? "." : "", part);
    enum attn_status status = check_type(file, t, err);
    if (status != ATTN_OK)
        return status;
    if (files->n_named == ATTN_FILE_PROBLEM_NAMED)
        return attn_fail(err, ATTN_EINVAL, "the mask names more than %d tensors",
                         ATTN_FILE_PROBLEM_NAMED);
    if (t->bytes > attn_cli_memory_available())
        return attn_fault(err, ATTN_ENOMEM, file->path, "'%.40s' has %s, this machine can give %s",
                          t->name, attn_cli_bytes(t->bytes, need),
                          attn_cli_bytes(attn_cli_memory_available(), have));
    status = attn_file_load(file, t, err);
    if (status != ATTN_OK)
        return status;
    files->named[files->n_named++] = t;
    tensor->data = t->data;
    tensor->width = (int)attn_file_dtype_size(t->dtype);
    tensor->n_axes = t->n_axes;
    memcpy(tensor->extent, t->extent, sizeof tensor->extent);
    return strcmp(t->name, "mask") == 0 ? attn_file_problem_words_bytes(files, t, tensor, err)
                                        : ATTN_OK;
}

/* ---- which mask --------------------------------------------------------------------------- */

/* The metadata's word in the mask language; NULL: nothing is said. */
static enum attn_status translate(const struct attn_file_problem *files, const char *said,
                                  const char **text, struct attn_error *err)
{
    const struct attn_problem *p = &files->problem;
    *text = said;
    if (said != NULL && strcmp(said, "padding") == 0)
        *text = "keys(key_mask)";
    if (said != NULL && strcmp(said, "causal") == 0)
        *text = "causal(br)";
    if (said != NULL && strcmp(said, "causal") == 0 && p->n_query != p->n_key)
        return attn_fault(
            err, ATTN_EINVAL, files->file[0].path,
            "metadata mask=causal with Lq = %lld and Lk = %lld could mean two things: "
            "say --mask 'causal(tl)' (query 0 at key 0) or --mask 'causal(br)' (last "
            "query at last key)",
            (long long)p->n_query, (long long)p->n_key);
    return ATTN_OK;
}

/* Say so when the flag is not what a file says. */
static void note_difference(const struct attn_file_problem *files, const char *flag)
{
    int square = files->problem.n_query == files->problem.n_key;
    for (int f = 0; f < files->n_files; f++) {
        const char *said = attn_file_metadata(&files->file[f], "mask");
        if (said == NULL || strcmp(said, flag) == 0 ||
            (strcmp(said, "padding") == 0 && strcmp(flag, "keys(key_mask)") == 0) ||
            (strcmp(said, "causal") == 0 && square &&
             (strcmp(flag, "causal(br)") == 0 || strcmp(flag, "causal(tl)") == 0)))
            continue;
        attn_file_problem_note("--mask '%s' instead of mask=%.80s in %s", flag, said,
                               files->file[f].path);
    }
}

/* Documents of several lengths are a mask too.  The word `dense` has hidden what lies in others. */
static enum attn_status add_documents(struct attn_file_problem *files, struct attn_error *err)
{
    char *inside = files->mask_text;
    if (!files->thd || files->packed.is_even || strcmp(inside, "dense(mask)") == 0)
        return ATTN_OK;
    enum attn_status status = attn_file_problem_packed_mask(files, inside, &files->mask_text, err);
    free(inside);
    return status;
}

/* The flag wins over the metadata; --key-mask hides keys besides whatever was said. */
static enum attn_status choose(struct attn_file_problem *files, struct attn_error *err)
{
    const char *said = NULL, *text = files->request->mask;
    char *word = NULL;
    enum attn_status status = ATTN_OK;
    if (text != NULL)
        note_difference(files, text);
    else if ((status = attn_file_problem_metadata(files, "mask", &said, err)) == ATTN_OK &&
             said != NULL)
        status = attn_file_problem_words_mask(files, said, &word, err);
    if (status == ATTN_OK && text == NULL)
        status = translate(files, word != NULL ? word : said, &text, err);
    if (status != ATTN_OK)
        return status;
    int hide = files->request->file[ATTN_FILE_PROBLEM_KEY_MASK] != NULL &&
               (text == NULL || strstr(text, "key_mask") == NULL);
    if (text == NULL && !hide)
        attn_file_problem_note("no mask was said: every pair %sis visible",
                               files->thd && files->packed.n != 1 ? "of a document " : "");
    int n = hide && text != NULL ? asprintf(&files->mask_text, "(%s)&keys(key_mask)", text)
                                 : asprintf(&files->mask_text, "%s",
                                            hide           ? "keys(key_mask)"
                                            : text != NULL ? text
                                                           : "none");
    free(word);
    if (n >= 0)
        return ATTN_OK;
    files->mask_text = NULL;
    return attn_fail(err, ATTN_ENOMEM, "no memory for the text of the mask");
}

/* A key_mask that metadata do not mention was meant for something; who ignores it says so. */
static enum attn_status check_key_mask(const struct attn_file_problem *files,
                                       struct attn_error *err)
{
    const struct attn_file_tensor *key_mask = files->input[ATTN_FILE_PROBLEM_KEY_MASK];
    int named = key_mask == NULL || files->request->mask != NULL;
    for (int n = 0; n < files->n_named; n++)
        named |= files->named[n] == key_mask;
    if (named)
        return ATTN_OK;
    return attn_fault(
        err, ATTN_EINVAL, files->from[ATTN_FILE_PROBLEM_KEY_MASK]->path,
        "holds key_mask, which no metadata mask names: say --mask 'keys(key_mask)', or "
        "--mask '%.60s' to leave it out",
        files->mask_text);
}

enum attn_status attn_file_problem_mask(struct attn_file_problem *files, struct attn_error *err)
{
    struct attn_problem *p = &files->problem;
    const struct attn_mask_shape shape = {p->batch, p->heads, p->n_query, p->n_key};
    const struct attn_mask_source source = {find, files};
    enum attn_status status = choose(files, err);
    if (status == ATTN_OK)
        status = add_documents(files, err);
    if (status == ATTN_OK)
        status = attn_mask_parse(files->mask_text, &shape, &source, &files->mask, err);
    if (status == ATTN_OK)
        status = check_key_mask(files, err);
    p->mask = files->mask;
    return status;
}
