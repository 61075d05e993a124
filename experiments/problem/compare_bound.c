/* See compare_bound.h.  The problem is opened as `attnlab run` opens it; instead of computing its
 * outputs, they are taken from the files. */
#include "experiments/problem/compare_bound.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/files/fileio.h"

int attn_compare_has_inputs(const struct attn_tensors *set)
{
    return attn_tensors_find(set, "q") != NULL && attn_tensors_find(set, "k") != NULL &&
           attn_tensors_find(set, "v") != NULL;
}

/* One file with all inputs, or each from its own. */
static void name_files(const struct attn_tensors *set, struct attn_request *r)
{
    const struct attn_file *file = attn_tensors_find(set, "q")->file;
    if (file->n_tensors > 1) {
        r->input = file->path;
        return;
    }
    for (int i = 0; i < ATTN_FILE_PROBLEM_INPUTS; i++) {
        struct attn_tensors_entry *entry =
            attn_tensors_find(set, attn_file_problem_input_name((enum attn_file_problem_input)i));
        r->file[i] = entry != NULL ? entry->file->path : NULL;
    }
}

static enum attn_status load_inputs(struct attn_file_problem *files, struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    for (int i = 0; i < ATTN_FILE_PROBLEM_INPUTS && status == ATTN_OK; i++)
        if (files->input[i] != NULL)
            status = attn_file_load(files->from[i], files->input[i], err);
    if (status == ATTN_OK && files->input[ATTN_FILE_PROBLEM_BIAS] != NULL)
        files->problem.bias.tensor = attn_file_problem_cview(
            files, files->input[ATTN_FILE_PROBLEM_BIAS], ATTN_FILE_PROBLEM_PAIRS);
    return status;
}

/* A result as one of the problem's outputs, loaded; any of the four floating types will do. */
static enum attn_status load_result(const struct attn_file_problem *files, enum attn_output o,
                                    const struct attn_tensors_entry *entry, struct attn_error *err)
{
    const struct attn_file_tensor *t = entry->tensor;
    struct attn_file_tensor want;
    enum attn_dtype storage;
    char is[160], must[160];
    attn_file_problem_output_shape(files, o, &want);
    int same = t->n_axes == want.n_axes;
    for (int a = 0; a < t->n_axes && same; a++)
        same = t->extent[a] == want.extent[a];
    if (!same)
        return attn_fault(err, ATTN_EINVAL, entry->file->path,
                          "%s is %s, and of these inputs it must be %s", entry->name,
                          attn_file_shape(t, is), attn_file_shape(&want, must));
    if (!attn_file_dtype_storage(t->dtype, &storage))
        return attn_fault(err, ATTN_EINVAL, entry->file->path,
                          "%s is stored as %s: F64, F32, BF16 and F16 would work", entry->name,
                          attn_file_dtype_name(t->dtype));
    return attn_file_load(entry->file, entry->tensor, err);
}

/* Whether a set's tensor is one of the file that the job has opened as its input. */
static int in_job(const struct attn_file_problem *files, const struct attn_tensors_entry *entry)
{
    return files->request->input != NULL && strcmp(entry->file->path, files->file[0].path) == 0;
}

/* The result of that name that can be judged; NULL: there is none, and name_rest says why. */
static struct attn_tensors_entry *judgeable(const struct attn_file_problem *files,
                                            enum attn_output o, const struct attn_tensors *set)
{
    struct attn_tensors_entry *entry = attn_tensors_find(set, attn_output_name(o));
    return entry != NULL && attn_file_problem_asks(files, o) &&
                   attn_file_problem_why_not(files, o, entry->file) == NULL
               ? entry
               : NULL;
}

/* A result of GOT as the job's output, as if the job had computed it. */
static enum attn_status take_output(struct attn_file_problem *files, enum attn_output o,
                                    const struct attn_tensors_entry *entry, struct attn_error *err)
{
    struct attn_file_tensor *to = &files->output[o];
    enum attn_status status = load_result(files, o, entry, err);
    if (status != ATTN_OK)
        return status;
    *to = *entry->tensor;
    to->name = attn_output_name(o);
    to->data = malloc((size_t)to->bytes + 1); /* the job frees its outputs itself */
    if (to->data == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for %lld bytes of %s", (long long)to->bytes,
                         to->name);
    memcpy(to->data, entry->tensor->data, (size_t)to->bytes);
    if (o == ATTN_LSE)
        files->lse_from = entry->file;
    return ATTN_OK;
}

/* All results that can be judged; those beside inputs that each have a file of their own become the
 * stored ones. */
static enum attn_status take(struct attn_file_problem *files, const struct attn_tensors *inputs,
                             const struct attn_tensors *got, struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    int n = 0;
    for (int o = 0; o < ATTN_OUTPUTS && status == ATTN_OK; o++) {
        struct attn_tensors_entry *here = judgeable(files, (enum attn_output)o, inputs);
        const struct attn_tensors_entry *there = judgeable(files, (enum attn_output)o, got);
        if (here != NULL && !in_job(files, here)) {
            status = load_result(files, (enum attn_output)o, here, err);
            files->stored[o] = here->tensor;
        }
        if (status == ATTN_OK && there != NULL)
            status = take_output(files, (enum attn_output)o, there, err);
        else if (status == ATTN_OK && here != NULL)
            status = attn_fault(err, ATTN_EINVAL, got->path, "has no tensor '%s'; %.200s has",
                                attn_output_name((enum attn_output)o), inputs->path);
        n += there != NULL;
    }
    if (status == ATTN_OK && n == 0)
        return attn_fault(err, ATTN_EINVAL, got->path,
                          "holds none of o, lse, dq, dk, dv and dbias that these inputs can judge");
    return status;
}

static int input_named(const char *name)
{
    for (int i = 0; i < ATTN_FILE_PROBLEM_INPUTS; i++)
        if (strcmp(name, attn_file_problem_input_name((enum attn_file_problem_input)i)) == 0)
            return i;
    return -1;
}

/* Name what a set holds and the table has not shown: results that cannot be judged, inputs that the
 * problem was not given, tensors of unknown names. */
static void name_rest(const struct attn_file_problem *files, const struct attn_tensors *set,
                      const char *of, struct attn_file_problem_found *found)
{
    for (int e = 0; e < set->n; e++) {
        const struct attn_tensors_entry *entry = &set->entry[e];
        struct attn_file_tensor named = *entry->tensor;
        int o = attn_file_problem_output_named(entry->name), i = input_named(entry->name),
            is_result = 1;
        const char *why;
        if (in_job(files, entry))
            continue;
        named.name = entry->name;
        if (o >= 0)
            why = attn_file_problem_asks(files, (enum attn_output)o)
                      ? attn_file_problem_why_not(files, (enum attn_output)o, entry->file)
                      : NULL;
        else if (i >= 0)
            why = files->input[i] == NULL && files->request->only == NULL
                      ? "an input that does not lie with q, k and v"
                      : NULL;
        else
            why = attn_file_problem_unused(files, &named, &is_result);
        if (why != NULL && is_result)
            attn_file_problem_unjudged(files, of, entry->name, why, found);
    }
}

enum attn_status attn_compare_bound(const struct attn_request *wanted,
                                    const struct attn_tensors *inputs,
                                    const struct attn_tensors *got,
                                    struct attn_file_problem_found *found, struct attn_error *err)
{
    struct attn_request request = *wanted;
    struct attn_file_problem files;
    request.compare = 1;
    name_files(inputs, &request);
    enum attn_status status = attn_file_problem_open(&request, &files, err);
    files.given = 1;
    if (status == ATTN_OK)
        status = load_inputs(&files, err);
    if (status == ATTN_OK)
        status = take(&files, inputs, got, err);
    if (status == ATTN_OK)
        printf("the file: %s; precisions of %s\n", inputs->path, request.spec);
    request.spec = got->path; /* from here on it only names the column */
    if (status == ATTN_OK)
        status = attn_file_problem_compare(&files, found, err);
    if (status == ATTN_OK) {
        name_rest(&files, inputs, "the file", found);
        name_rest(&files, got, got->path, found);
    }
    attn_file_problem_close(&files);
    return status;
}
