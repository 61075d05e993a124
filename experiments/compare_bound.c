/* See compare_bound.h.  The problem is opened as `attnlab run` opens it; instead of computing its
 * outputs, they are taken from the files. */
#include "experiments/compare_bound.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/fileio.h"

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
    for (int i = 0; i < ATTN_JOB_DLSE; i++) {
        struct attn_tensors_entry *entry =
            attn_tensors_find(set, attn_job_input_name((enum attn_job_input)i));
        r->file[i] = entry != NULL ? entry->file->path : NULL;
    }
}

static enum attn_status load_inputs(struct attn_job *job, struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    for (int i = 0; i < ATTN_JOB_INPUTS && status == ATTN_OK; i++)
        if (job->input[i] != NULL)
            status = attn_file_load(job->from[i], job->input[i], err);
    if (status == ATTN_OK && job->input[ATTN_JOB_BIAS] != NULL)
        job->problem.bias.tensor = attn_job_bias_view(job->input[ATTN_JOB_BIAS]);
    return status;
}

static enum attn_status check_shape(const struct attn_tensors_entry *entry,
                                    const struct attn_file_tensor *want, enum attn_dtype problem,
                                    struct attn_error *err)
{
    const struct attn_file_tensor *t = entry->tensor;
    char is[160], must[160];
    int same = t->n_axes == want->n_axes;
    for (int a = 0; a < t->n_axes && same; a++)
        same = t->extent[a] == want->extent[a];
    if (!same)
        return attn_fault(err, ATTN_EINVAL, entry->file->path,
                          "%s is %s, and of these inputs it must be %s", entry->name,
                          attn_file_shape(t, is), attn_file_shape(want, must));
    if (t->dtype == ATTN_FILE_F64 || (t->dtype == ATTN_FILE_F32 && problem != ATTN_F64))
        return ATTN_OK;
    return attn_fault(err, ATTN_EINVAL, entry->file->path,
                      "%s is stored as %s: bounds for %s inputs judge F64%s", entry->name,
                      attn_file_dtype_name(t->dtype), attn_dtype_name(problem),
                      problem != ATTN_F64 ? " and F32" : "");
}

/* GOT's result becomes the job's output, as if the job had computed it. */
static enum attn_status take_output(struct attn_job *job, enum attn_output o,
                                    const struct attn_tensors_entry *entry, struct attn_error *err)
{
    struct attn_file_tensor shape = {0}, *to = &job->output[o];
    if (o >= ATTN_DQ && job->pass == ATTN_FORWARD)
        return attn_fault(err, ATTN_EINVAL, entry->file->path,
                          "%s is a gradient, and there is no 'do' beside the inputs", entry->name);
    attn_job_output_shape(job, o, &shape);
    enum attn_status status = check_shape(entry, &shape, job->problem.dtype, err);
    if (status == ATTN_OK)
        status = attn_file_load(entry->file, entry->tensor, err);
    if (status != ATTN_OK)
        return status;
    *to = *entry->tensor;
    to->name = attn_output_name(o);
    to->data = malloc((size_t)to->bytes + 1); /* the job frees its outputs itself */
    if (to->data == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for %lld bytes of %s", (long long)to->bytes,
                         entry->name);
    memcpy(to->data, entry->tensor->data, (size_t)to->bytes);
    return ATTN_OK;
}

/* Results beside inputs that each have a file of their own; with --input the job has found them. */
static enum attn_status take_stored(struct attn_job *job, const struct attn_tensors *inputs,
                                    struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    for (int o = 0; o < ATTN_DBIAS && status == ATTN_OK && job->request->input == NULL; o++) {
        struct attn_tensors_entry *entry =
            attn_tensors_find(inputs, attn_output_name((enum attn_output)o));
        struct attn_file_tensor shape = {0};
        if (entry == NULL || (o >= ATTN_DQ && job->pass == ATTN_FORWARD))
            continue;
        attn_job_output_shape(job, (enum attn_output)o, &shape);
        status = check_shape(entry, &shape, job->problem.dtype, err);
        if (status == ATTN_OK)
            status = attn_file_load(entry->file, entry->tensor, err);
        job->stored[o] = entry->tensor;
    }
    return status;
}

static enum attn_status take_outputs(struct attn_job *job, const char *inputs,
                                     const struct attn_tensors *got, struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    int n = 0;
    for (int o = 0; o < ATTN_DBIAS && status == ATTN_OK; o++) {
        const char *name = attn_output_name((enum attn_output)o);
        const struct attn_tensors_entry *entry = attn_tensors_find(got, name);
        if (entry != NULL && o == ATTN_LSE && attn_job_words_lse(job)) {
            attn_job_note("lse of %s is declared otherwise: not judged", got->path);
            continue;
        }
        if (entry != NULL)
            status = take_output(job, (enum attn_output)o, entry, err);
        else if (job->stored[o] != NULL)
            status = attn_fault(err, ATTN_EINVAL, got->path, "has no tensor '%s'; %.200s has", name,
                                inputs);
        n += entry != NULL;
    }
    if (status == ATTN_OK && attn_tensors_find(got, attn_output_name(ATTN_DBIAS)) != NULL)
        attn_job_note("dbias of %s is not judged here: attnlab check --results does", got->path);
    if (status == ATTN_OK && n == 0)
        return attn_fault(err, ATTN_EINVAL, got->path,
                          "holds none of o, lse, dq, dk and dv: nothing to judge");
    return status;
}

enum attn_status attn_compare_bound(const struct attn_request *wanted,
                                    const struct attn_tensors *inputs,
                                    const struct attn_tensors *got, int *agrees,
                                    struct attn_error *err)
{
    struct attn_request request = *wanted;
    struct attn_job job;
    name_files(inputs, &request);
    enum attn_status status = attn_job_open(&request, &job, err);
    if (status == ATTN_OK)
        status = load_inputs(&job, err);
    if (status == ATTN_OK)
        status = take_stored(&job, inputs, err);
    if (status == ATTN_OK)
        status = take_outputs(&job, inputs->path, got, err);
    if (status == ATTN_OK)
        printf("the file: %s; precisions of %s\n", inputs->path, request.spec);
    request.spec = got->path; /* from here on it only names the column */
    if (status == ATTN_OK)
        status = attn_job_compare(&job, agrees, err);
    attn_job_close(&job);
    return status;
}
