/* See file_problem.h: files, metadata and flags become one problem. */
#include "experiments/problem/file_problem.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "tests/harness/files/fileio.h"

const char *attn_file_problem_input_name(enum attn_file_problem_input input)
{
    static const char *const name[ATTN_FILE_PROBLEM_INPUTS] = {
        "q", "k", "v", "do", "bias", "key_mask", "cu_seqlens_q", "cu_seqlens_k", "dlse"};
    return (unsigned)input < ATTN_FILE_PROBLEM_INPUTS ? name[input] : "unknown";
}

void attn_file_problem_note(const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    attn_clean(text);
    fprintf(stderr, "attnlab run: note: %s\n", text);
}

/* ---- files -------------------------------------------------------------------------------- */

/* Results in a folder are in no file that was opened. */
static enum attn_status check_folder(const char *path, struct attn_error *err)
{
    static const char *const whole[2] = {"result.safetensors", "result.npz"};
    char name[4200];
    for (int n = 0; n < 2 + ATTN_OUTPUTS; n++) {
        if (n < 2)
            snprintf(name, sizeof name, "%.4000s/%s", path, whole[n]);
        else
            snprintf(name, sizeof name, "%.4000s/%s.npy", path,
                     attn_output_name((enum attn_output)(n - 2)));
        if (access(name, F_OK) == 0)
            return attn_fault(err, ATTN_EINVAL, name,
                              "holds results, which --input DIR does not read: attnlab compare "
                              "DIR DIR/inputs.safetensors judges them");
    }
    return ATTN_OK;
}

/* A folder stands for the inputs that `attnlab vectors` wrote into it. */
static enum attn_status open_input(const char *path, int compare, struct attn_file *file,
                                   struct attn_error *err)
{
    char inside[4096];
    struct stat about;
    if (stat(path, &about) != 0 || !S_ISDIR(about.st_mode))
        return attn_file_open(path, file, err);
    if (snprintf(inside, sizeof inside, "%s/inputs.safetensors", path) >= (int)sizeof inside)
        return attn_fault(err, ATTN_EINVAL, path, "the path is too long");
    if (stat(inside, &about) != 0)
        return attn_fault(err, ATTN_EINVAL, path, "is a directory without inputs.safetensors");
    enum attn_status status = compare ? check_folder(path, err) : ATTN_OK;
    return status == ATTN_OK ? attn_file_open(inside, file, err) : status;
}

static enum attn_status open_all(struct attn_file_problem *files, struct attn_error *err)
{
    struct attn_file *file = &files->file[0];
    enum attn_status status = open_input(files->request->input, files->request->compare, file, err);
    if (status != ATTN_OK)
        return status;
    files->n_files = 1;
    for (int i = 0; i < ATTN_FILE_PROBLEM_INPUTS; i++) {
        files->input[i] =
            attn_file_find(file, attn_file_problem_input_name((enum attn_file_problem_input)i));
        files->from[i] = file;
    }
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        files->stored[o] = attn_file_find(file, attn_output_name((enum attn_output)o));
    return ATTN_OK;
}

static enum attn_status open_each(struct attn_file_problem *files, struct attn_error *err)
{
    for (int i = 0; i < ATTN_FILE_PROBLEM_INPUTS; i++) {
        struct attn_file *file = &files->file[files->n_files];
        if (files->request->file[i] == NULL)
            continue;
        enum attn_status status = attn_file_open(files->request->file[i], file, err);
        if (status != ATTN_OK)
            return status;
        files->n_files++;
        if (file->n_tensors != 1)
            return attn_fault(err, ATTN_EINVAL, file->path,
                              "holds %d tensors; --%s takes a file with one (--input takes many)",
                              file->n_tensors,
                              attn_file_problem_input_name((enum attn_file_problem_input)i));
        files->input[i] = &file->tensor[0];
        files->from[i] = file;
    }
    return ATTN_OK;
}

static enum attn_status find_inputs(struct attn_file_problem *files, struct attn_error *err)
{
    enum attn_status status =
        files->request->input != NULL ? open_all(files, err) : open_each(files, err);
    for (int i = ATTN_FILE_PROBLEM_Q; i <= ATTN_FILE_PROBLEM_V && status == ATTN_OK; i++)
        if (files->input[i] == NULL)
            status = attn_fault(err, ATTN_EINVAL, files->file[0].path,
                                "has no tensor '%s': q, k and v are needed",
                                attn_file_problem_input_name((enum attn_file_problem_input)i));
    return status;
}

/* ---- settings ----------------------------------------------------------------------------- */

enum attn_status attn_file_problem_metadata(const struct attn_file_problem *files, const char *key,
                                            const char **value, struct attn_error *err)
{
    const char *path = NULL;
    *value = NULL;
    for (int f = 0; f < files->n_files; f++) {
        const char *text = attn_file_metadata(&files->file[f], key);
        if (text == NULL)
            continue;
        if (*value != NULL && strcmp(*value, text) != 0)
            return attn_fault(err, ATTN_EINVAL, files->file[f].path,
                              "metadata %s=%.40s contradicts %s=%.40s of %.80s: say --%s", key,
                              text, key, *value, path, key);
        *value = text;
        path = files->file[f].path;
    }
    return ATTN_OK;
}

enum attn_status attn_file_problem_setting(const struct attn_file_problem *files, const char *key,
                                           const char *flag, const char **value,
                                           struct attn_error *err)
{
    const char *said;
    double a, b;
    if (flag == NULL)
        return attn_file_problem_metadata(files, key, value, err);
    *value = flag;
    for (int f = 0; f < files->n_files; f++) {
        said = attn_file_metadata(&files->file[f], key);
        if (said == NULL || strcmp(said, flag) == 0 ||
            (attn_cli_double(said, &a) && attn_cli_double(flag, &b) && a == b))
            continue;
        attn_file_problem_note("--%s %s instead of %s=%.80s in %s", key, flag, key, said,
                               files->file[f].path);
    }
    return ATTN_OK;
}

static enum attn_status read_number(const struct attn_file_problem *files, const char *key,
                                    const char *flag, int *given, double *number,
                                    struct attn_error *err)
{
    const char *text;
    enum attn_status status = attn_file_problem_setting(files, key, flag, &text, err);
    *given = status == ATTN_OK && text != NULL;
    if (*given && !(attn_cli_double(text, number) && isfinite(*number)))
        return attn_fail(err, ATTN_EINVAL, "%s '%.40s': a finite number was expected", key, text);
    return status;
}

static enum attn_status set_numbers(struct attn_file_problem *files, struct attn_error *err)
{
    struct attn_problem *p = &files->problem;
    int given;
    enum attn_status status =
        read_number(files, "scale", files->request->scale, &given, &p->scale, err);
    if (status == ATTN_OK && !given) {
        p->scale = p->d_key > 0 ? 1 / sqrt((double)p->d_key) : 1;
        attn_file_problem_note("no scale was said: 1/sqrt(d) = %.17g", p->scale);
    }
    if (status == ATTN_OK)
        status = read_number(files, "softcap", files->request->softcap, &given, &p->softcap, err);
    return status;
}

/* As a flag has it, as attention people write it, as `attnlab vectors` does. */
enum { BHLD, BLHD, THD, BLE, LAYOUTS };
static const char *const layouts[LAYOUTS][3] = {{"BHLD", "B,H,L,d", "bhld"},
                                                {"BLHD", "B,L,H,d", "blhd"},
                                                {"THD", "T,H,d", "thd"},
                                                {"BLE", "B,L,H*d", "ble"}};

static int find_layout(const char *text)
{
    for (int l = 0; l < LAYOUTS; l++)
        for (int w = 0; w < 3; w++)
            if (strcmp(text, layouts[l][w]) == 0)
                return l;
    return -1;
}

static enum attn_status set_layout(struct attn_file_problem *files, struct attn_error *err)
{
    const char *said, *flag = files->request->layout;
    enum attn_status status = attn_file_problem_metadata(files, "layout", &said, err);
    if (status != ATTN_OK && flag == NULL)
        return status;
    int layout = flag != NULL ? find_layout(flag) : said != NULL ? find_layout(said) : 0;
    if (layout < 0 && flag != NULL)
        return attn_fail(err, ATTN_EINVAL, "--layout '%.40s': BHLD, BLHD, BLE and THD exist", flag);
    if (layout < 0)
        return attn_fail(err, ATTN_EINVAL,
                         "metadata layout '%.40s': 'B,H,L,d', 'B,L,H,d', 'B,L,H*d' and 'T,H,d' are "
                         "understood (or say --layout)",
                         said);
    if (flag != NULL && said != NULL && find_layout(said) != layout)
        attn_file_problem_note("--layout %s instead of layout=%.80s", flag, said);
    files->layout = layout;
    files->blhd = layout != BHLD;
    files->thd = layout == THD;
    return ATTN_OK;
}

/* Heads that are folded into the last axis: nothing but a number says how many. */
static enum attn_status set_heads(struct attn_file_problem *files, struct attn_error *err)
{
    static const char *const key[2] = {"heads", "kv_heads"}, *const flags[2] = {"heads",
                                                                                "kv-heads"};
    const char *flag[2] = {files->request->heads, files->request->kv_heads}, *text;
    for (int n = 0; n < 2; n++) {
        if (files->layout != BLE && flag[n] != NULL)
            return attn_fail(err, ATTN_EINVAL, "--%s belongs to --layout BLE, [B,L,H*d]", flags[n]);
        if (files->layout != BLE)
            continue;
        enum attn_status status = attn_file_problem_setting(files, key[n], flag[n], &text, err);
        if (status != ATTN_OK)
            return status;
        if (text == NULL && n == 1)
            files->folded[1] = files->folded[0];
        else if (text == NULL || !attn_cli_int(text, 1, INT32_MAX, &files->folded[n]))
            return attn_fail(err, ATTN_EINVAL,
                             "layout B,L,H*d, %s '%.40s': say --%s, a number from 1", key[n],
                             text != NULL ? text : "", flags[n]);
    }
    return ATTN_OK;
}

const char *attn_file_problem_layout(const struct attn_file_problem *files)
{
    return layouts[files->layout][1];
}

static enum attn_status set_pass(struct attn_file_problem *files, struct attn_error *err)
{
    const char *text = files->request->pass;
    int has_do = files->input[ATTN_FILE_PROBLEM_DO] != NULL;
    files->pass = has_do ? ATTN_BACKWARD : ATTN_FORWARD;
    if (text == NULL)
        return ATTN_OK;
    if (strcmp(text, "fwd") != 0 && strcmp(text, "bwd") != 0)
        return attn_fail(err, ATTN_EINVAL, "--pass '%.40s': fwd and bwd exist", text);
    files->pass = strcmp(text, "bwd") == 0 ? ATTN_BACKWARD : ATTN_FORWARD;
    if (files->pass == ATTN_BACKWARD && !has_do)
        return attn_fail(err, ATTN_EINVAL,
                         "--pass bwd needs the gradient of O: a tensor 'do', or --do FILE");
    return ATTN_OK;
}

/* ---- ALiBi -------------------------------------------------------------------------------- */

static enum attn_status read_slopes(struct attn_file_problem *files, const char *text,
                                    struct attn_error *err)
{
    int64_t heads = files->problem.heads, n = 0;
    files->slope = calloc((size_t)heads + 1, sizeof *files->slope);
    if (files->slope == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for %lld slopes", (long long)heads);
    for (const char *at = text;; at++) {
        char number[64];
        size_t length = strcspn(at, ",");
        double slope;
        snprintf(number, sizeof number, "%.*s", length < 63 ? (int)length : 63, at);
        if (!(attn_cli_double(number, &slope) && isfinite(slope)))
            return attn_fail(err, ATTN_EINVAL, "alibi: '%.40s' is not a finite slope", number);
        if (n < heads)
            files->slope[n] = slope;
        n++;
        at += length;
        if (*at == '\0')
            break;
    }
    if (n != heads)
        return attn_fail(err, ATTN_EINVAL, "alibi has %lld slopes: one for each of %lld heads",
                         (long long)n, (long long)heads);
    return ATTN_OK;
}

static enum attn_status read_align(const struct attn_file_problem *files, const char *text,
                                   int64_t *offset, struct attn_error *err)
{
    const struct attn_problem *p = &files->problem;
    int64_t bottom_right = p->n_key - p->n_query;
    if (text == NULL && bottom_right != 0)
        return attn_fail(err, ATTN_EINVAL,
                         "ALiBi with Lq = %lld and Lk = %lld: say --alibi-align tl (query 0 at key "
                         "0), br (last at last), or an offset such as +3",
                         (long long)p->n_query, (long long)p->n_key);
    if (text == NULL || strcmp(text, "tl") == 0)
        *offset = 0;
    else if (strcmp(text, "br") == 0)
        *offset = bottom_right;
    else if ((text[0] != '+' && text[0] != '-') ||
             !attn_cli_int(text + 1, 0, INT64_MAX / 4, offset))
        return attn_fail(err, ATTN_EINVAL,
                         "alibi-align '%.40s': tl, br, or a signed offset such as +3", text);
    else if (text[0] == '-')
        *offset = -*offset;
    return ATTN_OK;
}

static enum attn_status set_bias(struct attn_file_problem *files, struct attn_error *err)
{
    const char *align;
    struct attn_bias *bias = &files->problem.bias;
    enum attn_status status =
        attn_file_problem_setting(files, "alibi", files->request->alibi, &files->alibi, err);
    if (status == ATTN_OK)
        status = attn_file_problem_setting(files, "alibi-align", files->request->alibi_align,
                                           &align, err);
    if (status == ATTN_OK)
        status = attn_file_problem_words_alibi(files, &files->alibi, &align, err);
    if (status != ATTN_OK)
        return status;
    if (files->alibi == NULL && align != NULL)
        return attn_fail(err, ATTN_EINVAL, "alibi-align without alibi: say --alibi SLOPE,...");
    if (files->alibi != NULL && files->input[ATTN_FILE_PROBLEM_BIAS] != NULL)
        return attn_fail(err, ATTN_EINVAL,
                         "a bias tensor and ALiBi together: one of them; add ALiBi to the tensor");
    if (files->thd && files->packed.n != 1 && files->input[ATTN_FILE_PROBLEM_BIAS] != NULL)
        return attn_fail(err, ATTN_EINVAL,
                         "a bias tensor with layout THD: documents have no [Lq,Lk] in common");
    if (files->thd && !files->packed.is_even && !files->packed.is_self && files->alibi != NULL)
        return attn_fail(err, ATTN_EINVAL,
                         "ALiBi with layout THD: every document must have as many queries as keys");
    if (files->input[ATTN_FILE_PROBLEM_BIAS] != NULL) {
        bias->kind = ATTN_BIAS_TENSOR; /* its data are not there yet: attn_file_problem_run */
        bias->tensor = attn_file_problem_cview(files, files->input[ATTN_FILE_PROBLEM_BIAS],
                                               ATTN_FILE_PROBLEM_PAIRS);
        return ATTN_OK;
    }
    if (files->alibi == NULL)
        return ATTN_OK;
    status = read_slopes(files, files->alibi, err);
    if (status == ATTN_OK)
        status = read_align(files, align, &bias->offset, err);
    bias->kind = ATTN_BIAS_ALIBI;
    bias->slope = files->slope;
    return status;
}

/* ---- all of it ---------------------------------------------------------------------------- */

int attn_file_problem_computes(const struct attn_file_problem *files, enum attn_output output)
{
    return output <= ATTN_LSE ||
           (files->pass == ATTN_BACKWARD && (output != ATTN_DBIAS || files->d_bias));
}

int attn_file_problem_asks(const struct attn_file_problem *files, enum attn_output output)
{
    return attn_cli_listed(files->request->only, attn_output_name(output));
}

int attn_file_problem_judges_bias(const struct attn_file_problem *files)
{
    return files->pass == ATTN_BACKWARD && files->input[ATTN_FILE_PROBLEM_BIAS] != NULL &&
           attn_file_problem_asks(files, ATTN_DBIAS) &&
           (files->stored[ATTN_DBIAS] != NULL || files->output[ATTN_DBIAS].data != NULL ||
            files->d_bias);
}

int attn_file_problem_output_named(const char *name)
{
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        if (strcmp(name, attn_output_name((enum attn_output)o)) == 0)
            return o;
    return -1;
}

const char *attn_file_problem_why_not(const struct attn_file_problem *files,
                                      enum attn_output output, const struct attn_file *from)
{
    struct attn_claims said;
    attn_file_problem_words_lse(files, from, &said);
    if (output == ATTN_LSE && said.lse == ATTN_PLUGIN_LSE_ABSENT)
        return "the metadata declare lse=absent";
    if (output >= ATTN_DQ && files->pass == ATTN_FORWARD)
        return files->input[ATTN_FILE_PROBLEM_DO] != NULL ? "a gradient, under --pass fwd"
                                                          : "a gradient, and there is no 'do'";
    if (output == ATTN_DBIAS && files->input[ATTN_FILE_PROBLEM_BIAS] == NULL)
        return "there is no tensor 'bias'";
    return NULL;
}

const char *attn_file_problem_unused(const struct attn_file_problem *files,
                                     const struct attn_file_tensor *tensor, int *is_result)
{
    enum attn_dtype storage;
    int used = 0, o = attn_file_problem_output_named(tensor->name);
    *is_result = 1;
    if (o >= 0)
        return attn_file_problem_asks(files, (enum attn_output)o)
                   ? attn_file_problem_why_not(files, (enum attn_output)o, NULL)
                   : NULL;
    /* Integers are no result; what --only leaves out is none either. */
    *is_result = attn_file_dtype_storage(tensor->dtype, &storage) && files->request->only == NULL;
    for (int i = 0; i < ATTN_FILE_PROBLEM_INPUTS; i++) {
        used |= files->input[i] == tensor && i != ATTN_FILE_PROBLEM_KEY_MASK &&
                (files->pass == ATTN_BACKWARD ||
                 (i != ATTN_FILE_PROBLEM_DO && i != ATTN_FILE_PROBLEM_DLSE));
        *is_result &= strcmp(tensor->name,
                             attn_file_problem_input_name((enum attn_file_problem_input)i)) != 0;
    }
    for (int n = 0; n < files->n_named; n++)
        used |= files->named[n] == tensor;
    used |= files->request->mask == NULL && strcmp(tensor->name, "mask") == 0 &&
            attn_file_problem_words_is(files, "mask", "band"); /* the bytes say the same */
    return used ? NULL : "nothing uses a tensor of this name (--only o,lse leaves it aside)";
}

/* Tensors of --input that had no part: a misspelt name must not pass in silence. */
static void note_unused(const struct attn_file_problem *files)
{
    const struct attn_file *file = &files->file[0];
    for (int t = 0; files->request->input != NULL && t < file->n_tensors; t++) {
        int is_result;
        if (attn_file_problem_unused(files, &file->tensor[t], &is_result) != NULL &&
            !(is_result && files->request->compare)) /* the table names those */
            attn_file_problem_note("tensor '%.40s' of %s is not used", file->tensor[t].name,
                                   file->path);
    }
}

/* The gradient of the bias: by --dbias, or where files of `attnlab vectors` ask for it. */
static enum attn_status set_d_bias(struct attn_file_problem *files, struct attn_error *err)
{
    const char *outputs;
    enum attn_status status = attn_file_problem_metadata(files, "outputs", &outputs, err);
    int can = files->pass == ATTN_BACKWARD && files->input[ATTN_FILE_PROBLEM_BIAS] != NULL;
    if (status == ATTN_OK && files->request->d_bias && !can)
        return attn_fail(err, ATTN_EINVAL,
                         "--dbias needs a bias tensor and the gradient of O (bias and do)");
    files->d_bias = can && (files->request->d_bias ||
                            (outputs != NULL && strstr(outputs, "\"dbias\"") != NULL));
    return status;
}

/* --only names outputs. */
static enum attn_status check_only(const struct attn_file_problem *files, struct attn_error *err)
{
    char name[32];
    for (const char *at = files->request->only; at != NULL && *at != '\0'; at += *at == ',') {
        size_t n = strcspn(at, ",");
        snprintf(name, sizeof name, "%.*s", n < 31 ? (int)n : 31, at);
        if (attn_file_problem_output_named(name) < 0)
            return attn_fail(err, ATTN_EINVAL, "--only '%s': o, lse, dq, dk, dv and dbias exist",
                             name);
        at += n;
    }
    return ATTN_OK;
}

enum attn_status attn_file_problem_open(const struct attn_request *request,
                                        struct attn_file_problem *files, struct attn_error *err)
{
    enum attn_status status;
    memset(files, 0, sizeof *files);
    files->request = request;
    if ((status = attn_spec_parse(request->spec, &files->spec, err)) != ATTN_OK ||
        (status = find_inputs(files, err)) != ATTN_OK ||
        (status = set_layout(files, err)) != ATTN_OK ||
        (status = set_heads(files, err)) != ATTN_OK || (status = set_pass(files, err)) != ATTN_OK ||
        (status = set_d_bias(files, err)) != ATTN_OK ||
        (status = check_only(files, err)) != ATTN_OK ||
        (status = attn_file_problem_packed_open(files, err)) != ATTN_OK ||
        (status = attn_file_problem_shapes(files, err)) != ATTN_OK ||
        (status = set_numbers(files, err)) != ATTN_OK ||
        (status = set_bias(files, err)) != ATTN_OK ||
        (status = attn_problem_check(&files->problem, err)) != ATTN_OK ||
        (status = attn_file_problem_mask(files, err)) != ATTN_OK)
        return status;
    note_unused(files);
    return ATTN_OK;
}

void attn_file_problem_close(struct attn_file_problem *files)
{
    attn_mask_free(files->mask);
    for (int f = 0; f < files->n_files; f++)
        attn_file_close(&files->file[f]);
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        free(files->output[o].data);
    free(files->packed.q);
    free(files->packed.k);
    free(files->mask_text);
    free(files->mask_bytes);
    free(files->slope);
    free(files->words[0]);
    free(files->words[1]);
    memset(files, 0, sizeof *files);
}
