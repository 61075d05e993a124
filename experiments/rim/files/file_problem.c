/* See file_problem.h: from files to a problem, step by step, and what is judged. */
#include "experiments/rim/files/file_problem.h"

#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/rim/files/file_fit.h"
#include "ref/problem.h"
#include "tests/harness/base/fileio.h"

int attn_file_input_named(const char *name)
{
    if (strcmp(name, "kv") == 0)
        return ATTN_IN_K;
    for (int i = 0; i < ATTN_IN_INPUTS; i++)
        if (strcmp(name, attn_file_role[i].name) == 0)
            return i;
    return -1;
}

int attn_output_named(const char *name)
{
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        if (strcmp(name, attn_output_name((enum attn_output)o)) == 0)
            return o;
    return -1;
}

enum attn_status attn_files_rename(const char *names, struct attn_tensors *const *set, int n,
                                   struct attn_error *err)
{
    char *copy = names != NULL ? attn_cli_text("%s", names) : NULL, *rest = copy, *pair;
    enum attn_status status = ATTN_OK;
    while (status == ATTN_OK && (pair = strsep(&rest, ",")) != NULL) {
        char *name = strchr(pair, '=');
        int found = 0;
        if (name != NULL)
            *name++ = '\0';
        if (name == NULL || (attn_file_input_named(pair) < 0 && attn_output_named(pair) < 0))
            status =
                attn_fail(err, ATTN_EINVAL,
                          "--names '%.40s': OURS=THEIRS, such as q=query; ours are q, k, v, kv, "
                          "do, dlse, bias, sink, key_mask, cu_seqlens_q, cu_seqlens_k, o, lse, dq, "
                          "dk, dv, dbias and dsink",
                          pair);
        for (int s = 0; s < n && status == ATTN_OK; s++) {
            struct attn_tensors_entry *entry = attn_tensors_find(set[s], name);
            if (entry != NULL && attn_tensors_find(set[s], pair) != NULL)
                status = attn_fault(err, ATTN_EINVAL, entry->file->path,
                                    "--names %s=%.40s: it has a '%s' as well", pair, name, pair);
            else if (entry != NULL)
                snprintf(entry->name, sizeof entry->name, "%s", pair);
            found |= entry != NULL;
        }
        if (status == ATTN_OK && !found)
            status = attn_fault(err, ATTN_EINVAL, set[0]->path,
                                "--names %s=%.40s: there is no tensor of that name", pair, name);
    }
    free(copy);
    return status;
}

/* ---- files ----------------------------------------------------------------------------------- */

static enum attn_status open_set(struct attn_files *files, struct attn_error *err)
{
    struct attn_tensors *const own = &files->own;
    if (files->set != NULL)
        return ATTN_OK;
    files->set = own;
    enum attn_status status = attn_tensors_open(files->request->input, own, err);
    return status == ATTN_OK ? attn_files_rename(files->request->names, &own, 1, err) : status;
}

static enum attn_status find_inputs(struct attn_files *files, struct attn_error *err)
{
    const struct attn_tensors_entry *kv = attn_tensors_find(files->set, "kv");
    files->c.kv_shared = kv != NULL;
    for (int i = 0, f = 0; i < ATTN_IN_INPUTS; i++, f = 0) {
        const char *name = attn_file_role[i].name;
        const struct attn_tensors_entry *entry = attn_tensors_find(files->set, name);
        int by_key = i == ATTN_IN_K || i == ATTN_IN_V;
        if (entry != NULL && by_key && kv != NULL)
            return attn_fault(err, ATTN_EINVAL, files->set->file[0].path,
                              "has both '%s' and 'kv', of which k and v are views", name);
        entry = by_key && kv != NULL ? kv : entry;
        if (entry == NULL && i <= ATTN_IN_V)
            return attn_fault(err, ATTN_EINVAL, files->set->file[0].path,
                              "has no tensor '%s': q, k and v are needed, or q and kv", name);
        if (entry == NULL)
            continue;
        files->input[i] = entry;
        while (f < files->n_files && files->file[f] != entry->file)
            f++;
        files->file[f] = entry->file;
        files->n_files += f == files->n_files;
    }
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        files->stored[o] = attn_tensors_find(files->set, attn_output_name((enum attn_output)o));
    return ATTN_OK;
}

static enum attn_status set_pass(struct attn_files *files, struct attn_error *err)
{
    int pass = files->request->pass, has_do = files->input[ATTN_IN_DO] != NULL;
    files->c.pass = pass == ATTN_FORWARD || (pass == ATTN_PASS_NOT_SAID && !has_do) ? ATTN_FORWARD
                                                                                    : ATTN_BACKWARD;
    if (files->c.pass == ATTN_BACKWARD && !has_do)
        return attn_fail(err, ATTN_EINVAL, "--pass bwd needs the gradient of O: a tensor 'do'");
    return ATTN_OK;
}

/* ---- what is judged -------------------------------------------------------------------------- */

/* Adds the conventions that the metadata of one file declare. */
static void read_lse(const struct attn_file *file, struct attn_claims *claims)
{
    const char *base = attn_file_metadata(file, "lse"),
               *empty = attn_file_metadata(file, "empty_lse");
    if (base != NULL)
        claims->lse = strcmp(base, "2") == 0        ? ATTN_PLUGIN_LSE_2
                      : strcmp(base, "absent") == 0 ? ATTN_PLUGIN_LSE_ABSENT
                                                    : ATTN_PLUGIN_LSE_E;
    if (empty != NULL)
        claims->empty_lse = strcmp(empty, "+inf") == 0 ? ATTN_PLUGIN_EMPTY_PLUS_INF
                            : strcmp(empty, "0") == 0  ? ATTN_PLUGIN_EMPTY_0
                                                       : ATTN_PLUGIN_EMPTY_MINUS_INF;
}

void attn_files_lse(const struct attn_files *files, const struct attn_file *result,
                    struct attn_claims *claims)
{
    *claims = (struct attn_claims){.lse = files->claims.lse, .empty_lse = files->claims.empty_lse};
    for (int f = 0; f < files->n_files; f++)
        read_lse(files->file[f], claims);
    if (result != NULL)
        read_lse(result, claims);
}

int attn_files_computes(const struct attn_files *files, enum attn_output output)
{
    return output <= ATTN_LSE ||
           (files->c.pass == ATTN_BACKWARD && (output != ATTN_DBIAS || files->c.d_bias) &&
            (output != ATTN_DV || !files->c.kv_shared) &&
            (output != ATTN_DSINK || files->problem.sink.given));
}

int attn_files_asks(const struct attn_files *files, enum attn_output output)
{
    return attn_cli_listed(files->request->only, ",", attn_output_name(output));
}

int attn_files_judges_bias(const struct attn_files *files)
{
    return files->c.pass == ATTN_BACKWARD && files->input[ATTN_IN_BIAS] != NULL &&
           attn_files_asks(files, ATTN_DBIAS) &&
           (files->stored[ATTN_DBIAS] != NULL || files->output[ATTN_DBIAS].data != NULL ||
            files->c.d_bias);
}

int attn_files_judges_sink(const struct attn_files *files)
{
    return files->c.pass == ATTN_BACKWARD && files->problem.sink.given &&
           attn_files_asks(files, ATTN_DSINK);
}

const char *attn_files_why_not(const struct attn_files *files, enum attn_output output,
                               const struct attn_file *from)
{
    struct attn_claims said;
    attn_files_lse(files, from, &said);
    if (output == ATTN_LSE && said.lse == ATTN_PLUGIN_LSE_ABSENT)
        return "lse=absent is declared";
    if (output >= ATTN_DQ && files->c.pass == ATTN_FORWARD)
        return files->input[ATTN_IN_DO] != NULL ? "a gradient, under --pass fwd"
                                                : "a gradient, and there is no 'do'";
    if (output == ATTN_DBIAS && files->input[ATTN_IN_BIAS] == NULL)
        return "there is no tensor 'bias'";
    if (output == ATTN_DV && files->c.kv_shared)
        return "k and v are one tensor, kv, whose gradient is dk";
    if (output == ATTN_DSINK && !files->problem.sink.given)
        return "there is no tensor 'sink'";
    return NULL;
}

/* 1: the pass reads this input; 0: it does not.  A key_mask is the mask's. */
static int is_read(const struct attn_files *files, int input)
{
    return input != ATTN_IN_KEY_MASK &&
           (files->c.pass == ATTN_BACKWARD || (input != ATTN_IN_DO && input != ATTN_IN_DLSE));
}

const char *attn_files_unused(const struct attn_files *files,
                              const struct attn_tensors_entry *entry, int *is_result)
{
    enum attn_dtype storage;
    int used = 0, o = attn_output_named(entry->name);
    *is_result = 1;
    if (o >= 0)
        return attn_files_asks(files, (enum attn_output)o)
                   ? attn_files_why_not(files, (enum attn_output)o, NULL)
                   : NULL;
    /* Integers are no result; what --only leaves out is none either. */
    *is_result = attn_file_dtype_storage(entry->tensor->dtype, &storage) &&
                 files->request->only == NULL && attn_file_input_named(entry->name) < 0;
    for (int i = 0; i < ATTN_IN_INPUTS; i++)
        used |= files->input[i] == entry && is_read(files, i);
    for (int n = 0; n < files->n_named; n++)
        used |= files->named[n] == entry->tensor;
    used |= files->request->mask == NULL && strcmp(entry->name, "mask") == 0 &&
            attn_files_says(files, "mask", "band"); /* the bytes say the same */
    return used ? NULL : "nothing uses a tensor of this name (--only o,lse leaves it aside)";
}

/* Tensors that had no part: a misspelt name must not pass in silence. */
static void note_unused(const struct attn_files *files)
{
    for (int e = 0; e < files->set->n; e++) {
        const struct attn_tensors_entry *entry = &files->set->entry[e];
        int is_result;
        if (attn_files_unused(files, entry, &is_result) != NULL &&
            !(is_result && files->request->compare)) /* the table names those */
            attn_files_note("tensor '%.40s' of %s is not used", entry->name, entry->file->path);
    }
}

/* The gradient of the bias: by --dbias, or where files of `attnlab vectors` ask for it. */
static enum attn_status set_d_bias(struct attn_files *files, struct attn_error *err)
{
    const char *outputs = attn_files_said(files, "outputs");
    int can = files->c.pass == ATTN_BACKWARD && files->input[ATTN_IN_BIAS] != NULL;
    if (files->request->d_bias && !can)
        return attn_fail(err, ATTN_EINVAL,
                         "--dbias needs a bias tensor and the gradient of O (bias and do)");
    files->c.d_bias = can && (files->request->d_bias ||
                              (outputs != NULL && strstr(outputs, "\"dbias\"") != NULL));
    return ATTN_OK;
}

/* --only names outputs. */
static enum attn_status check_only(struct attn_files *files, struct attn_error *err)
{
    if (files->request->only == NULL)
        return ATTN_OK;
    char *copy = attn_cli_text("%s", files->request->only), *rest = copy, *name;
    enum attn_status status = ATTN_OK;
    while (status == ATTN_OK && (name = strsep(&rest, ",")) != NULL)
        if (attn_output_named(name) < 0)
            status = attn_fail(err, ATTN_EINVAL,
                               "--only '%.31s': o, lse, dq, dk, dv, dbias and dsink exist", name);
    free(copy);
    return status;
}

/* With its bias and sink, whose data are not there yet. */
static enum attn_status check_problem(struct attn_files *files, struct attn_error *err)
{
    files->problem.bias.tensor = attn_files_input(files, ATTN_IN_BIAS);
    files->problem.sink.given = files->input[ATTN_IN_SINK] != NULL;
    files->problem.sink.tensor.dtype = attn_files_input(files, ATTN_IN_SINK).dtype;
    return attn_problem_check(&files->problem, err);
}

enum attn_status attn_files_open(const struct attn_request *request, const struct attn_tensors *set,
                                 struct attn_files *files, struct attn_error *err)
{
    static enum attn_status (*const step[])(struct attn_files * files, struct attn_error * err) = {
        open_set,          find_inputs,        attn_files_declared, attn_files_agree,
        attn_files_axes,   set_pass,           set_d_bias,          check_only,
        attn_files_shapes, attn_files_numbers, attn_files_mask,     attn_files_bias,
        check_problem};
    *files = (struct attn_files){.request = request, .set = set};
    enum attn_status status = attn_spec_parse(request->spec, &files->spec, err);
    if (status == ATTN_OK)
        status = attn_cli_run_by(attn_ranks(files->spec.impl, &files->spec.options),
                                 &files->spec.options, err);
    for (size_t s = 0; s < sizeof step / sizeof *step && status == ATTN_OK; s++)
        status = step[s](files, err);
    if (status == ATTN_OK)
        note_unused(files);
    return status;
}

enum attn_status attn_files_load(struct attn_files *files, struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    int is_rank = files->spec.options.runner != NULL; /* which reads its own rows */
    for (int i = 0; i < ATTN_IN_INPUTS && status == ATTN_OK; i++)
        if (files->input[i] != NULL && is_read(files, i))
            status = is_rank ? attn_tensors_map(files->input[i], err)
                             : attn_tensors_load(files->input[i], err);
    files->problem.bias.tensor = attn_files_input(files, ATTN_IN_BIAS);
    files->problem.sink.tensor = attn_files_input(files, ATTN_IN_SINK);
    return status;
}

void attn_files_close(struct attn_files *files)
{
    attn_mask_free(files->mask);
    attn_tensors_close(&files->own);
    for (int o = 0; o < ATTN_OUTPUTS && !files->given; o++)
        free(files->output[o].data);
    free(files->packed.q);
    free(files->packed.k);
    free(files->mask_text);
    free(files->mask_bytes);
    free(files->slope);
    free(files->alibi);
    memset(files, 0, sizeof *files);
}
