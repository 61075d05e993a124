/* See file_problem.h: the outputs, and the results that files hold, against the oracle. */
#include "experiments/rim/files/file_problem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/check/verdicts.h"
#include "experiments/cli/cli.h"
#include "experiments/rim/files/file_fit.h"
#include "ref/problem.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/bound/kept.h"

enum { SAMPLE_SEED = 2, ALL = 2048 };

int64_t attn_files_compared(const struct attn_files *files, int64_t n)
{
    int64_t rows = files->request->rows;
    return rows > 0 ? (rows < n ? rows : n) : n > ALL ? ATTN_SAMPLE_MOST : n;
}

/* -1: all of them; else they are malloc'ed. */
static int64_t choose(const struct attn_files *files, int64_t n, uint64_t stream, int64_t **index)
{
    int64_t most = attn_files_compared(files, n);
    *index = most < n ? attn_cli_need(malloc((size_t)most * sizeof **index)) : NULL;
    return most < n ? attn_sample_choose(n, most, SAMPLE_SEED, stream, *index) : -1;
}

/* ---- the table ------------------------------------------------------------------------------- */

static void print_head(const struct attn_files *files, const struct attn_sample *sample)
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
    if (p->kv_shared)
        printf(", V a view of K");
    printf("%s\n", p->bias.kind == ATTN_BIAS_TENSOR ? ", bias tensor" : "");
    if (sample->n_rows >= 0)
        printf("compared: %lld of %lld rows of o, lse and dq\n", (long long)sample->n_rows,
               (long long)p->n_query);
    if (sample->n_keys >= 0 && files->c.pass == ATTN_BACKWARD)
        printf("compared: %lld of %lld rows of dk%s\n", (long long)sample->n_keys,
               (long long)p->n_key, p->kv_shared ? "" : " and dv");
}

/* Prints the verdicts on all tensors of a party; counted in *found. */
static void print_table(const struct attn_party *party, const struct attn_fit *x,
                        struct attn_found *found)
{
    static const struct attn_column column[] = {
        {"output", "tensor", ATTN_UNIT_WORDS},
        {"of", "of", ATTN_UNIT_CODE},
        {"stored", "stored", ATTN_UNIT_WORDS},
        {"is", "", ATTN_UNIT_WORDS},
        {"ratio", "error/bound", ATTN_UNIT_PLAIN},
        {"elements", "elements", ATTN_UNIT_PLAIN},
        {"beyond", "beyond", ATTN_UNIT_PLAIN},
        {"at", "worst element", ATTN_UNIT_WORDS},
        {"got", "got", ATTN_UNIT_PLAIN},
        {"truth", "want", ATTN_UNIT_PLAIN},
        {"bound", "bound", ATTN_UNIT_PLAIN},
        {"not_finite", "not finite", ATTN_UNIT_PLAIN},
        {"silent", "cannot be judged, since honest rounding may do anything to them",
         ATTN_UNIT_PLAIN | ATTN_UNIT_BELOW},
        {.key = NULL}};
    json_t *rows = attn_output_rows(x->result.output, 1);
    printf("bounds for u = %.3g, storage %.3g, %lld rescales, %lld merges\n", x->result.precision.u,
           x->result.precision.u_storage, (long long)x->result.precision.rescales,
           (long long)x->result.precision.merges);
    for (int o = 0, r = 0; o < ATTN_OUTPUTS; o++) {
        const struct attn_agreement *tensor = &x->result.output[o];
        const int is_bad = tensor->n_bad > 0 || tensor->n_not_finite > 0;
        const int is_weak = !is_bad && x->silent[o] > 0;
        if (tensor->n == 0)
            continue;
        json_t *row = json_array_get(rows, (size_t)r++);
        json_object_set_new(row, "of", attn_cli_words(party->of));
        json_object_set_new(row, "stored", json_string(attn_dtype_name(party->stored[o])));
        json_object_set_new(row, "is",
                            json_pack("{s:s}", is_bad ? "bad" : "good",
                                      is_bad    ? "FAIL"
                                      : is_weak ? "WEAK"
                                                : "ok"));
        if (tensor->n_not_finite > 0)
            json_object_set_new(row, "not_finite", json_integer(tensor->n_not_finite));
        if (is_weak)
            json_object_set_new(row, "silent", json_integer(x->silent[o]));
        found->n_unjudged += is_weak;
    }
    attn_table_print(stdout, ATTN_TABLE_TEXT, column, rows);
    json_decref(rows);
}

static void unjudged(const char *of, const char *name, const char *why, struct attn_found *found)
{
    char clean[128];
    printf("%-6s %s not judged: %s\n", attn_cleaned(name, clean, sizeof clean), of, why);
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

/* One result of a party, as it was computed or given; from: its file, where that is not the
 * input's. */
static enum attn_status take_result(const struct attn_files *files, enum attn_output o,
                                    const struct attn_file_tensor *tensor,
                                    const struct attn_file *from, struct attn_party *party,
                                    struct attn_error *err)
{
    struct attn_file_tensor plain = *tensor;
    attn_file_dtype_storage(plain.dtype, &party->stored[o]);
    if (o == ATTN_LSE && party->given && undeclare(files, from, &plain, err) != ATTN_OK)
        return ATTN_ENOMEM;
    party->lse = plain.data != tensor->data ? plain.data : party->lse;
    party->got[o] = attn_files_cview(files, &plain, attn_file_axes_of(o));
    return ATTN_OK;
}

/* Takes the results of the spec, or of the files of `attnlab compare`; or those beside the inputs.
 * Results that cannot be judged are named. */
static enum attn_status take_results(const struct attn_files *files, int beside,
                                     struct attn_party *party, struct attn_found *found,
                                     struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    for (int i = 0; i < ATTN_OUTPUTS && status == ATTN_OK; i++) {
        enum attn_output o = (enum attn_output)i;
        const struct attn_tensors_entry *entry = files->stored[o];
        const struct attn_file_tensor *ours = &files->output[o];
        const struct attn_file *from = beside && entry != NULL ? entry->file : files->lse_from;
        const char *why = party->given ? attn_files_why_not(files, o, from) : NULL;
        if (!attn_files_asks(files, o))
            continue;
        if (!beside && files->request->only != NULL && ours->data == NULL && entry == NULL)
            unjudged("--only", attn_output_name(o), "it is neither given nor computed", found);
        if (beside ? entry == NULL : ours->data == NULL)
            continue;
        if (why != NULL) {
            unjudged(party->of, attn_output_name(o), why, found);
            continue;
        }
        status = beside ? attn_tensors_load(entry, err) : ATTN_OK;
        if (status == ATTN_OK)
            status = take_result(files, o, beside ? entry->tensor : ours, from, party, err);
    }
    return status;
}

static int has_results(const struct attn_party *party)
{
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        if (party->got[o].data != NULL)
            return 1;
    return 0;
}

/* The table of a party, and what it is worth. */
static enum attn_status judge(const struct attn_file_trial *trial, const struct attn_party *party,
                              struct attn_found *found, struct attn_error *err)
{
    struct attn_fits fits;
    enum attn_status status = attn_fits_find(trial, party, &fits, err);
    if (status != ATTN_OK)
        return status;
    const struct attn_fit *x = /* of what may pass without a declaration */
        &fits.of[attn_dtype_size(trial->files->problem.dtype) == 2 ? fits.best : 0];
    print_table(party, x, found);
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        if (x->result.output[o].name == NULL && party->got[o].data != NULL)
            unjudged(party->of, attn_output_name((enum attn_output)o),
                     o == ATTN_DSINK ? "a sum over all rows, and a sample of them is compared: "
                                       "--rows would take more"
                                     : "there is no truth for it",
                     found);
    found->n_bad += !attn_fits_pass(trial->files, &fits);
    if (party->given)
        attn_fits_answer(trial, party, &fits);
    return ATTN_OK;
}

/* Name what lies beside the inputs, may be a result, and is none that can be judged. */
static void name_unused(const struct attn_files *files, struct attn_found *found)
{
    for (int e = 0; e < files->set->n; e++) {
        const struct attn_tensors_entry *entry = &files->set->entry[e];
        int is_result;
        const char *why = attn_files_unused(files, entry, &is_result);
        if (why != NULL && is_result && attn_output_named(entry->name) < 0)
            unjudged("the file", entry->name, why, found);
    }
}

enum attn_status attn_files_compare(const struct attn_files *files, struct attn_found *found,
                                    struct attn_error *err)
{
    int64_t *row, *key;
    struct attn_kept kept;
    struct attn_file_trial trial = {.files = files,
                                    .inputs = {.q = attn_files_input(files, ATTN_IN_Q),
                                               .k = attn_files_input(files, ATTN_IN_K),
                                               .v = attn_files_input(files, ATTN_IN_V),
                                               .kept = &kept}};
    enum attn_status status = ATTN_OK;
    trial.sample.n_rows = choose(files, files->problem.n_query, 0, &row);
    trial.sample.n_keys = choose(files, files->problem.n_key, 1, &key);
    trial.sample.row = row, trial.sample.key = key;
    if (files->c.pass == ATTN_BACKWARD) {
        trial.inputs.d_o = attn_files_input(files, ATTN_IN_DO);
        trial.inputs.d_lse = attn_files_input(files, ATTN_IN_DLSE);
        trial.inputs.want_d_bias = attn_files_judges_bias(files);
        trial.inputs.want_d_sink = attn_files_judges_sink(files);
    }
    print_head(files, &trial.sample);
    attn_kept_open(&files->problem, 1, &kept);
    for (int beside = 0; beside < 2 && status == ATTN_OK; beside++) {
        struct attn_party party = {.of = beside ? "the file" : files->request->spec,
                                   .given = beside || files->given};
        status = take_results(files, beside, &party, found, err);
        if (status == ATTN_OK && has_results(&party))
            status = judge(&trial, &party, found, err);
        free(party.lse);
    }
    if (status == ATTN_OK)
        name_unused(files, found);
    attn_kept_close(&kept);
    free(row);
    free(key);
    return status;
}

/* ---- results from files: the rule `bound` of attnlab compare --------------------------------- */

/* 1: a set has a result of that name that can be judged; 0: it has none, and name_rest says why. */
static int is_judgeable(const struct attn_files *files, enum attn_output o,
                        const struct attn_tensors_entry *entry)
{
    return entry != NULL && attn_files_asks(files, o) &&
           attn_files_why_not(files, o, entry->file) == NULL;
}

/* All results that were given and that can be judged; any of the four floating types will do. */
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
                              "holds none of o, lse, dq, dk, dv, dbias and dsink that these "
                              "inputs can judge");
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
            unjudged(got->path, entry->name, why, found);
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
        printf("the file: %s\n", inputs->path);
        request.spec = got->path; /* from here on it only names the column */
        status = attn_files_compare(&files, found, err);
    }
    if (status == ATTN_OK)
        name_rest(&files, got, found);
    attn_files_close(&files);
    return status;
}
