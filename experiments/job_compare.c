/* See job.h: the outputs, and the results that the file holds, against the oracle. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/job.h"
#include "tests/harness/agree.h"
#include "tests/harness/fill.h"

enum { SAMPLE_SEED = 2 };

int64_t attn_job_compared(int64_t n)
{
    return n > ATTN_JOB_ALL ? ATTN_JOB_SAMPLE : n;
}

static int by_value(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* 64 different indices below n, in order, the first and the last among them; -1: all of them. */
static int64_t choose(int64_t n, uint64_t stream, int64_t index[ATTN_JOB_SAMPLE])
{
    if (n <= ATTN_JOB_ALL)
        return -1;
    index[0] = 0;
    index[1] = n - 1;
    int64_t have = 2;
    for (uint64_t t = 0; have < ATTN_JOB_SAMPLE; t++) {
        int64_t next = (int64_t)(attn_hash(SAMPLE_SEED, stream, t) % (uint64_t)n), i = 0;
        while (i < have && index[i] != next)
            i++;
        if (i == have)
            index[have++] = next;
    }
    qsort(index, ATTN_JOB_SAMPLE, sizeof *index, by_value);
    return ATTN_JOB_SAMPLE;
}

/* ---- the table ---------------------------------------------------------------------------- */

/* Of the column that says whose result it is. */
static int spec_width(const char *spec)
{
    int width = (int)strlen(spec), least = (int)strlen("the file");
    return width > least ? width : least;
}

static void print_head(const struct attn_job *job, const struct attn_precision *precision,
                       const struct attn_sample *sample)
{
    const struct attn_problem *p = &job->problem;
    printf("b%lldh%lldg%lldq%lldk%lldd%lldv%lld %s, mask %.300s, scale %.9g", (long long)p->batch,
           (long long)p->heads, (long long)p->kv_heads, (long long)p->n_query, (long long)p->n_key,
           (long long)p->d_key, (long long)p->d_value, attn_dtype_name(p->dtype), job->mask_text,
           p->scale);
    if (p->softcap > 0)
        printf(", softcap %.9g", p->softcap);
    if (job->alibi != NULL)
        printf(", ALiBi %s", job->alibi);
    printf("%s\n", p->bias.kind == ATTN_BIAS_TENSOR ? ", bias tensor" : "");
    printf("bounds for u = %.3g, storage %.3g, %lld rescales, %lld merges\n", precision->u,
           precision->u_storage, (long long)precision->rescales, (long long)precision->merges);
    if (sample->n_rows >= 0)
        printf("compared: %d of %lld rows of o, lse and dq\n", ATTN_JOB_SAMPLE,
               (long long)p->n_query);
    if (sample->n_keys >= 0 && job->pass == ATTN_BACKWARD)
        printf("compared: %d of %lld rows of dk and dv\n", ATTN_JOB_SAMPLE, (long long)p->n_key);
    printf("%-6s %-*s %11s  %-5s %-24s %-14s %-14s %s\n", "tensor", spec_width(job->request->spec),
           "of", "error/bound", "", "worst element", "got", "want", "bound");
}

static int print_row(const char *of, int width, const struct attn_agreement *x)
{
    char at[64], ratio[32];
    int ok = x->n_bad == 0 && x->n_not_finite == 0;
    int n = snprintf(at, sizeof at, "[%lld,%lld,%lld", (long long)x->at[0], (long long)x->at[1],
                     (long long)x->at[2]);
    if (strcmp(x->name, "lse") == 0)
        snprintf(at + n, sizeof at - (size_t)n, "]");
    else
        snprintf(at + n, sizeof at - (size_t)n, ",%lld]", (long long)x->at[3]);
    snprintf(ratio, sizeof ratio, x->ratio >= 1000 ? "%.3e" : "%.4f", x->ratio);
    printf("%-6s %-*s %11s  %-5s %-24s %-14.8g %-14.8g %.3g\n", x->name, width, of,
           x->n > 0 ? ratio : "empty", ok ? "ok" : "FAIL", x->n > 0 ? at : "", x->got, x->want,
           x->bound);
    if (!ok)
        printf(
            "       %lld of %lld elements of %s (%s) are not within the bound, %lld not finite\n",
            (long long)x->n_bad, (long long)x->n, x->name, of, (long long)x->n_not_finite);
    return ok;
}

/* ---- judging ------------------------------------------------------------------------------ */

/* Whether what the file holds can be judged by the bounds of this problem. */
static int judgeable(const struct attn_job *job, const struct attn_file_tensor *stored)
{
    if (stored->dtype == ATTN_FILE_F64 ||
        (stored->dtype == ATTN_FILE_F32 && job->problem.dtype != ATTN_F64))
        return 1;
    attn_job_note("%s of the file is stored as %s, which bounds for %s cannot judge", stored->name,
                  attn_file_dtype_name(stored->dtype), attn_dtype_name(job->problem.dtype));
    return 0;
}

static enum attn_status judge(const struct attn_job *job, const struct attn_truth *truth, double u,
                              int *agrees, struct attn_error *err)
{
    int width = spec_width(job->request->spec);
    for (int o = 0; o < ATTN_DBIAS; o++) {
        const struct attn_file_tensor *ours = &job->output[o];
        struct attn_agreement agreement;
        if (ours->data == NULL)
            continue;
        struct attn_cview got = attn_job_cview(job, ours, o == ATTN_LSE);
        attn_agree(&got, &truth->tensor[o], u, &agreement);
        *agrees &= print_row(job->request->spec, width, &agreement);
        if (job->stored[o] == NULL || !judgeable(job, job->stored[o]))
            continue;
        enum attn_status status = attn_file_load(&job->file[0], job->stored[o], err);
        if (status != ATTN_OK)
            return status;
        got = attn_job_cview(job, job->stored[o], o == ATTN_LSE);
        attn_agree(&got, &truth->tensor[o], u, &agreement);
        *agrees &= print_row("the file", width, &agreement);
    }
    return ATTN_OK;
}

enum attn_status attn_job_compare(const struct attn_job *job, int *agrees, struct attn_error *err)
{
    int64_t row[ATTN_JOB_SAMPLE], key[ATTN_JOB_SAMPLE];
    struct attn_precision precision;
    struct attn_truth truth;
    const struct attn_sample sample = {.n_rows = choose(job->problem.n_query, 0, row),
                                       .n_keys = choose(job->problem.n_key, 1, key),
                                       .row = row,
                                       .key = key};
    struct attn_inputs inputs = {.q = attn_job_cview(job, job->input[ATTN_JOB_Q], 0),
                                 .k = attn_job_cview(job, job->input[ATTN_JOB_K], 0),
                                 .v = attn_job_cview(job, job->input[ATTN_JOB_V], 0)};
    if (job->pass == ATTN_BACKWARD) {
        inputs.d_o = attn_job_cview(job, job->input[ATTN_JOB_DO], 0);
        if (job->input[ATTN_JOB_DLSE] != NULL)
            inputs.d_lse = attn_job_cview(job, job->input[ATTN_JOB_DLSE], 1);
    }
    *agrees = 1;
    attn_precision_of(job->spec.impl, &job->spec.options, &job->problem, &precision);
    enum attn_status status =
        attn_truth_compute(&job->problem, &inputs, &precision, &sample, &truth, err);
    if (status != ATTN_OK)
        return status;
    print_head(job, &precision, &sample);
    status = judge(job, &truth, precision.u, agrees, err);
    attn_truth_free(&truth);
    return status;
}
