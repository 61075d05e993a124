/* See file_problem.h: the outputs, and the results that files hold, against the oracle. */
#include "experiments/problem/file_problem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "ref/problem.h"
#include "tests/harness/files/fileio.h"

enum { SAMPLE_SEED = 2, ALL = 2048 };

int64_t attn_files_compared(int64_t n)
{
    return n > ALL ? ATTN_SAMPLE_MOST : n;
}

/* -1: all of them. */
static int64_t choose(int64_t n, uint64_t stream, int64_t index[ATTN_SAMPLE_MOST])
{
    return n > ALL ? attn_sample_choose(n, SAMPLE_SEED, stream, index) : -1;
}

/* ---- the table ------------------------------------------------------------------------------- */

/* Of the column that says whose result it is. */
static int spec_width(const char *spec)
{
    int width = (int)strlen(spec), least = (int)strlen("the file");
    return width > least ? width : least;
}

static void print_head(const struct attn_files *files, const struct attn_precision *precision,
                       const struct attn_sample *sample)
{
    const struct attn_problem *p = &files->problem;
    printf("b%lldh%lldg%lldq%lldk%lldd%lldv%lld %s, mask %.300s, scale %.9g", (long long)p->batch,
           (long long)p->heads, (long long)p->kv_heads, (long long)p->n_query, (long long)p->n_key,
           (long long)p->d_key, (long long)p->d_value, attn_dtype_name(p->dtype), files->mask_text,
           p->scale);
    if (p->softcap > 0)
        printf(", softcap %.9g", p->softcap);
    if (files->alibi != NULL)
        printf(", ALiBi %s", files->alibi);
    printf("%s\n", p->bias.kind == ATTN_BIAS_TENSOR ? ", bias tensor" : "");
    printf("bounds for u = %.3g, storage %.3g, %lld rescales, %lld merges\n", precision->u,
           precision->u_storage, (long long)precision->rescales, (long long)precision->merges);
    if (sample->n_rows >= 0)
        printf("compared: %d of %lld rows of o, lse and dq\n", ATTN_SAMPLE_MOST,
               (long long)p->n_query);
    if (sample->n_keys >= 0 && files->pass == ATTN_BACKWARD)
        printf("compared: %d of %lld rows of dk and dv\n", ATTN_SAMPLE_MOST, (long long)p->n_key);
    printf("%-6s %-*s %-6s %11s  %-5s %-24s %-14s %-14s %s\n", "tensor",
           spec_width(files->request->spec), "of", "stored", "error/bound", "", "worst element",
           "got", "want", "bound");
}

/* How many elements nothing can be said about: those without a bound, or all of them where zeros
 * and numbers of the usual size would pass everywhere, and not because the numbers are too small
 * for their types.  A gradient that is 0 but for rounding, within a small bound, is judged. */
static int64_t count_silent(const struct attn_truth_tensor *truth, const struct attn_agreement *x)
{
    double stored = attn_dtype_tiny(truth->stored), storage = attn_dtype_tiny(truth->storage);
    int underflows = x->size <= 8 * (stored > storage ? stored : storage);
    return x->n > 0 && x->n_blind == x->n && !underflows ? x->n : x->n_unbounded;
}

/* What one tensor is found to be; counted in *found. */
static void print_row(const char *of, int width, const struct attn_truth_tensor *truth,
                      const struct attn_agreement *x, struct attn_found *found)
{
    char at[64], ratio[32];
    int64_t silent = count_silent(truth, x);
    int ok = x->n_bad == 0 && x->n_not_finite == 0;
    int n = snprintf(at, sizeof at, "[%lld,%lld,%lld", (long long)x->at[0], (long long)x->at[1],
                     (long long)x->at[2]);
    if (strcmp(x->name, "lse") == 0)
        snprintf(at + n, sizeof at - (size_t)n, "]");
    else
        snprintf(at + n, sizeof at - (size_t)n, ",%lld]", (long long)x->at[3]);
    snprintf(ratio, sizeof ratio, x->ratio >= 1000 ? "%.3e" : "%.4f", x->ratio);
    printf("%-6s %-*s %-6s %11s  %-5s %-24s %-14.8g %-14.8g %.3g\n", x->name, width, of,
           attn_dtype_name(truth->stored), x->n > 0 ? ratio : "empty",
           !ok          ? "FAIL"
           : silent > 0 ? "WEAK"
                        : "ok",
           x->n > 0 ? at : "", x->got, x->want, x->bound);
    if (!ok)
        printf(
            "       %lld of %lld elements of %s (%s) are not within the bound, %lld not finite\n",
            (long long)x->n_bad, (long long)x->n, x->name, of, (long long)x->n_not_finite);
    if (ok && silent > 0)
        printf("       %lld of %lld elements of %s (%s) cannot be judged: honest rounding may do "
               "anything to them\n",
               (long long)silent, (long long)x->n, x->name, of);
    found->n_bad += !ok;
    found->n_unjudged += ok && silent > 0;
}

static void unjudged(const struct attn_files *files, const char *of, const char *name,
                     const char *why, struct attn_found *found)
{
    char clean[128];
    printf("%-6s %-*s not judged: %s\n", attn_cleaned(name, clean, sizeof clean),
           spec_width(files->request->spec), of, why);
    found->n_unjudged++;
}

int attn_found_exit(const struct attn_found *found)
{
    return found->n_bad > 0        ? ATTN_EXIT_DISAGREE
           : found->n_unjudged > 0 ? ATTN_EXIT_USAGE
                                   : ATTN_EXIT_GOOD;
}

/* ---- judging --------------------------------------------------------------------------------- */

/* LSE as attnlab has it, where the file declares another: as double, so that nothing is rounded on
 * the way; its data are the tensor's own, or malloc'ed. */
static enum attn_status undeclare(const struct attn_files *files, const struct attn_file *from,
                                  struct attn_file_tensor *lse, struct attn_error *err)
{
    struct attn_claims said;
    enum attn_dtype stored;
    attn_files_lse(files, from, &said);
    if (said.lse == ATTN_PLUGIN_LSE_E && said.empty_lse == ATTN_PLUGIN_EMPTY_MINUS_INF)
        return ATTN_OK;
    int64_t n = lse->bytes / attn_file_dtype_size(lse->dtype);
    attn_file_dtype_storage(lse->dtype, &stored);
    const struct attn_cview raw = {lse->data, stored, {0, 0, 0, 1}};
    double *to = malloc(((size_t)n + 1) * sizeof *to);
    if (to == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for %lld numbers of lse", (long long)n);
    for (int64_t i = 0; i < n; i++) {
        const struct attn_problem *p = &files->problem;
        const int64_t L = p->n_query, x = i / L, B = p->batch, H = p->heads;
        const int even = files->packed.n > 0 && files->packed.is_even; /* [H,T], not [B,H,L] */
        const int64_t row[4] = {even ? x % B : x / H, even ? x / B : x % H, i % L};
        to[i] = attn_claims_lse_in(&said, p, row, attn_cview_get(&raw, 0, 0, 0, i));
    }
    lse->data = to;
    lse->dtype = ATTN_FILE_F64;
    lse->bytes = 8 * n;
    return ATTN_OK;
}

/* A result, and who says in which conventions it is. */
struct result {
    const char *of;
    const struct attn_file_tensor *tensor; /* NULL: none */
    const struct attn_file *from;          /* its file, where that is not the input's */
    int given;                             /* not computed here: conventions may be declared */
};

/* In the type in which it is stored.  The truth is another's too: its bounds are copied before they
 * grow. */
static enum attn_status judge_one(const struct attn_files *files,
                                  const struct attn_truth_tensor *truth, enum attn_output o,
                                  const struct result *result, double u, struct attn_found *found,
                                  struct attn_error *err)
{
    struct attn_truth_tensor mine = *truth;
    struct attn_file_tensor plain = *result->tensor;
    struct attn_agreement agreement;
    enum attn_dtype stored;
    size_t n = (size_t)(truth->extent[0] * truth->extent[1] * truth->extent[2] * truth->extent[3]);
    attn_file_dtype_storage(plain.dtype, &stored);
    if (o == ATTN_LSE && result->given && undeclare(files, result->from, &plain, err) != ATTN_OK)
        return ATTN_ENOMEM;
    mine.bound = malloc((n + 1) * sizeof *mine.bound);
    if (mine.bound != NULL) {
        memcpy(mine.bound, truth->bound, n * sizeof *mine.bound);
        attn_truth_store(&mine, stored);
        struct attn_cview got = attn_files_cview(files, &plain, attn_file_axes_of(o));
        attn_agree(&got, &mine, u, &agreement);
        print_row(result->of, spec_width(files->request->spec), &mine, &agreement, found);
    }
    if (plain.data != result->tensor->data)
        free(plain.data);
    if (mine.bound == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for %zu bounds of %s", n, truth->name);
    free(mine.bound);
    return ATTN_OK;
}

/* An output, as it was computed or given and as the file holds it. */
static enum attn_status judge_output(const struct attn_files *files,
                                     const struct attn_truth_tensor *truth, enum attn_output o,
                                     double u, struct attn_found *found, struct attn_error *err)
{
    const char *name = attn_output_name(o);
    const struct attn_file_tensor *ours = files->output[o].data != NULL ? &files->output[o] : NULL;
    const struct attn_tensors_entry *stored = files->stored[o];
    const struct result result[2] = {{files->request->spec, ours, files->lse_from, files->given},
                                     {"the file", stored != NULL ? stored->tensor : NULL,
                                      stored != NULL ? stored->file : NULL, 1}};
    enum attn_status status = ATTN_OK;
    if (files->request->only != NULL && ours == NULL && stored == NULL)
        unjudged(files, "--only", name, "it is neither given nor computed", found);
    for (int r = 0; r < 2 && status == ATTN_OK; r++) {
        const struct result *x = &result[r];
        const char *why = x->given ? attn_files_why_not(files, o, x->from) : NULL;
        if (why == NULL && truth->want == NULL)
            why = "there is no truth for it";
        if (x->tensor == NULL)
            continue;
        if (why != NULL) {
            unjudged(files, x->of, name, why, found);
            continue;
        }
        if (r == 1)
            status = attn_tensors_load(stored, err);
        if (status == ATTN_OK)
            status = judge_one(files, truth, o, x, u, found, err);
    }
    return status;
}

/* Name what lies beside the inputs, may be a result, and is none that can be judged. */
static void name_unused(const struct attn_files *files, struct attn_found *found)
{
    for (int e = 0; e < files->set->n; e++) {
        const struct attn_tensors_entry *entry = &files->set->entry[e];
        int is_result;
        const char *why = attn_files_unused(files, entry, &is_result);
        if (why != NULL && is_result && attn_output_named(entry->name) < 0)
            unjudged(files, "the file", entry->name, why, found);
    }
}

enum attn_status attn_files_compare(const struct attn_files *files, struct attn_found *found,
                                    struct attn_error *err)
{
    int64_t row[ATTN_SAMPLE_MOST], key[ATTN_SAMPLE_MOST];
    struct attn_precision precision;
    struct attn_truth truth;
    const struct attn_sample sample = {.n_rows = choose(files->problem.n_query, 0, row),
                                       .n_keys = choose(files->problem.n_key, 1, key),
                                       .row = row,
                                       .key = key};
    struct attn_inputs inputs = {.q = attn_files_input(files, ATTN_IN_Q),
                                 .k = attn_files_input(files, ATTN_IN_K),
                                 .v = attn_files_input(files, ATTN_IN_V)};
    if (files->pass == ATTN_BACKWARD) {
        inputs.d_o = attn_files_input(files, ATTN_IN_DO);
        inputs.d_lse = attn_files_input(files, ATTN_IN_DLSE);
        inputs.want_d_bias = attn_files_judges_bias(files);
    }
    *found = (struct attn_found){0};
    attn_precision_of(files->spec.impl, &files->spec.options, &files->problem, &precision);
    enum attn_status status =
        attn_truth_compute(&files->problem, &inputs, &precision, &sample, &truth, err);
    if (status != ATTN_OK)
        return status;
    print_head(files, &precision, &sample);
    for (int o = 0; o < ATTN_OUTPUTS && status == ATTN_OK; o++)
        if (attn_files_asks(files, (enum attn_output)o))
            status =
                judge_output(files, &truth.tensor[o], (enum attn_output)o, precision.u, found, err);
    if (status == ATTN_OK)
        name_unused(files, found);
    attn_truth_free(&truth);
    return status;
}

/* ---- results from files: the rule `bound` of attnlab compare --------------------------------- */

/* Whether a set has a result of that name that can be judged; where not, name_rest says why. */
static int is_judgeable(const struct attn_files *files, enum attn_output o,
                        const struct attn_tensors_entry *entry)
{
    return entry != NULL && attn_files_asks(files, o) &&
           attn_files_why_not(files, o, entry->file) == NULL;
}

/* All results that somebody gave and that can be judged; any of the four floating types will do. */
static enum attn_status take(struct attn_files *files, const struct attn_tensors *got,
                             struct attn_error *err)
{
    int n = 0;
    for (int i = 0; i < ATTN_OUTPUTS; i++) {
        enum attn_output o = (enum attn_output)i;
        const struct attn_tensors_entry *entry = attn_tensors_find(got, attn_output_name(o));
        int is_theirs = is_judgeable(files, o, entry);
        if (!is_theirs && is_judgeable(files, o, files->stored[o]))
            return attn_fault(err, ATTN_EINVAL, got->path, "has no tensor '%s'; %.200s has",
                              attn_output_name(o), files->set->path);
        if (!is_theirs)
            continue;
        enum attn_status status = attn_files_fits(files, entry, o, err);
        if (status == ATTN_OK)
            status = attn_tensors_load(entry, err);
        if (status != ATTN_OK)
            return status;
        files->output[o] = *entry->tensor; /* the data stay the set's */
        files->output[o].name = attn_output_name(o);
        files->lse_from = o == ATTN_LSE ? entry->file : files->lse_from;
        n++;
    }
    return n > 0 ? ATTN_OK
                 : attn_fault(err, ATTN_EINVAL, got->path,
                              "holds none of o, lse, dq, dk, dv and dbias that these inputs can "
                              "judge");
}

/* Name what the results hold and the table has not shown: results that cannot be judged, inputs
 * that the problem was not given, tensors of unknown names. */
static void name_rest(const struct attn_files *files, const struct attn_tensors *got,
                      struct attn_found *found)
{
    for (int e = 0; e < got->n; e++) {
        const struct attn_tensors_entry *entry = &got->entry[e];
        int o = attn_output_named(entry->name), i = attn_file_input_named(entry->name),
            is_result = 1;
        const char *why = NULL;
        if (o >= 0 && attn_files_asks(files, (enum attn_output)o))
            why = attn_files_why_not(files, (enum attn_output)o, entry->file);
        else if (i >= 0 && files->input[i] == NULL && files->request->only == NULL)
            why = "an input that does not lie with q, k and v";
        else if (o < 0 && i < 0)
            why = attn_files_unused(files, entry, &is_result);
        if (why != NULL && is_result)
            unjudged(files, got->path, entry->name, why, found);
    }
}

enum attn_status attn_compare_bound(const struct attn_request *wanted,
                                    const struct attn_tensors *inputs,
                                    const struct attn_tensors *got, struct attn_found *found,
                                    struct attn_error *err)
{
    struct attn_request request = *wanted;
    struct attn_files files;
    request.compare = 1;
    enum attn_status status = attn_files_open(&request, inputs, &files, err);
    files.given = 1;
    if (status == ATTN_OK)
        status = attn_files_load(&files, err);
    if (status == ATTN_OK)
        status = take(&files, got, err);
    if (status == ATTN_OK) {
        printf("the file: %s; precisions of %s\n", inputs->path, request.spec);
        request.spec = got->path; /* from here on it only names the column */
        status = attn_files_compare(&files, found, err);
    }
    if (status == ATTN_OK)
        name_rest(&files, got, found);
    attn_files_close(&files);
    return status;
}
