/* See file_problem.h: files, metadata and flags become one problem.  Files in the wild say `causal`
 * and `padding`, those of `attnlab vectors` (docs/external.md) `band` and `dense`; all are turned
 * into the mask language here, where `causal` always has an alignment, or refused where they could
 * mean two things. */
#include "experiments/problem/file_problem.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "ref/problem.h"
#include "tests/harness/files/fileio.h"

const char *attn_file_input_name(enum attn_file_input input)
{
    static const char *const name[ATTN_IN_INPUTS] = {
        "q", "k", "v", "do", "bias", "key_mask", "cu_seqlens_q", "cu_seqlens_k", "dlse"};
    return (unsigned)input < ATTN_IN_INPUTS ? name[input] : "unknown";
}

int attn_file_input_named(const char *name)
{
    for (int i = 0; i < ATTN_IN_INPUTS; i++)
        if (strcmp(name, attn_file_input_name((enum attn_file_input)i)) == 0)
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

/* To stderr. */
static void note(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void note(const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    attn_clean(text);
    fprintf(stderr, "attnlab run: note: %s\n", text);
}

/* ---- files ----------------------------------------------------------------------------------- */

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
static enum attn_status open_input(const char *path, int compare, struct attn_tensors *set,
                                   struct attn_error *err)
{
    char inside[4096];
    struct stat about;
    if (stat(path, &about) != 0 || !S_ISDIR(about.st_mode))
        return attn_tensors_open(path, set, err);
    if (snprintf(inside, sizeof inside, "%s/inputs.safetensors", path) >= (int)sizeof inside)
        return attn_fault(err, ATTN_EINVAL, path, "the path is too long");
    if (stat(inside, &about) != 0)
        return attn_fault(err, ATTN_EINVAL, path, "is a directory without inputs.safetensors");
    enum attn_status status = compare ? check_folder(path, err) : ATTN_OK;
    return status == ATTN_OK ? attn_tensors_open(inside, set, err) : status;
}

static enum attn_status open_set(struct attn_files *files, struct attn_error *err)
{
    const struct attn_request *r = files->request;
    const char *name[ATTN_IN_INPUTS];
    for (int i = 0; i < ATTN_IN_INPUTS; i++)
        name[i] = attn_file_input_name((enum attn_file_input)i);
    files->set = &files->own;
    return r->input != NULL
               ? open_input(r->input, r->compare, &files->own, err)
               : attn_tensors_open_each(r->file, name, ATTN_IN_INPUTS, &files->own, err);
}

static enum attn_status find_inputs(struct attn_files *files, struct attn_error *err)
{
    for (int i = 0, f = 0; i < ATTN_IN_INPUTS; i++, f = 0) {
        const char *name = attn_file_input_name((enum attn_file_input)i);
        const struct attn_tensors_entry *entry = attn_tensors_find(files->set, name);
        if (entry == NULL && i <= ATTN_IN_V)
            return attn_fault(err, ATTN_EINVAL, files->set->file[0].path,
                              "has no tensor '%s': q, k and v are needed", name);
        if (entry == NULL)
            continue;
        files->input[i] = entry->tensor;
        files->from[i] = entry->file;
        while (f < files->n_files && files->file[f] != entry->file)
            f++;
        files->file[f] = entry->file;
        files->n_files += f == files->n_files;
    }
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        files->stored[o] = attn_tensors_find(files->set, attn_output_name((enum attn_output)o));
    return ATTN_OK;
}

/* ---- settings -------------------------------------------------------------------------------- */

/* NULL: no file has that key.  EINVAL: two files contradict. */
static enum attn_status metadata(const struct attn_files *files, const char *key,
                                 const char **value, struct attn_error *err)
{
    const char *path = NULL;
    *value = NULL;
    for (int f = 0; f < files->n_files; f++) {
        const char *text = attn_file_metadata(files->file[f], key);
        if (text == NULL)
            continue;
        if (*value != NULL && strcmp(*value, text) != 0)
            return attn_fault(err, ATTN_EINVAL, files->file[f]->path,
                              "metadata %s=%.40s contradicts %s=%.40s of %.80s: say --%s", key,
                              text, key, *value, path, key);
        *value = text;
        path = files->file[f]->path;
    }
    return ATTN_OK;
}

/* The flag, else the metadata; a flag that overrules a file is noted. */
static enum attn_status setting(const struct attn_files *files, const char *key, const char *flag,
                                const char **value, struct attn_error *err)
{
    const char *said;
    double a, b;
    if (flag == NULL)
        return metadata(files, key, value, err);
    *value = flag;
    for (int f = 0; f < files->n_files; f++) {
        said = attn_file_metadata(files->file[f], key);
        if (said == NULL || strcmp(said, flag) == 0 ||
            (attn_cli_double(said, &a) && attn_cli_double(flag, &b) && a == b))
            continue;
        note("--%s %s instead of %s=%.80s in %s", key, flag, key, said, files->file[f]->path);
    }
    return ATTN_OK;
}

/* Whether the metadata hold this word under this key. */
static int says(const struct attn_files *files, const char *key, const char *word)
{
    const char *said = NULL;
    struct attn_error ignored;
    return metadata(files, key, &said, &ignored) == ATTN_OK && said != NULL &&
           strcmp(said, word) == 0;
}

static enum attn_status read_integer(const struct attn_files *files, const char *key,
                                     int64_t *value, struct attn_error *err)
{
    const char *said;
    enum attn_status status = metadata(files, key, &said, err);
    if (status == ATTN_OK &&
        (said == NULL || !attn_cli_int(said, -((int64_t)1 << 60), (int64_t)1 << 60, value)))
        return attn_fault(err, ATTN_EINVAL, files->file[0]->path,
                          "metadata %s '%.40s': a whole number was expected", key,
                          said != NULL ? said : "");
    return status;
}

static enum attn_status read_number(const struct attn_files *files, const char *key,
                                    const char *flag, int *given, double *number,
                                    struct attn_error *err)
{
    const char *text;
    enum attn_status status = setting(files, key, flag, &text, err);
    *given = status == ATTN_OK && text != NULL;
    if (*given && !(attn_cli_double(text, number) && isfinite(*number)))
        return attn_fail(err, ATTN_EINVAL, "%s '%.40s': a finite number was expected", key, text);
    return status;
}

static enum attn_status set_numbers(struct attn_files *files, struct attn_error *err)
{
    struct attn_problem *p = &files->problem;
    int given;
    enum attn_status status =
        read_number(files, "scale", files->request->scale, &given, &p->scale, err);
    if (status == ATTN_OK && !given) {
        p->scale = p->d_key > 0 ? 1 / sqrt((double)p->d_key) : 1;
        note("no scale was said: 1/sqrt(d) = %.17g", p->scale);
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

static enum attn_status set_layout(struct attn_files *files, struct attn_error *err)
{
    const char *said, *flag = files->request->layout;
    enum attn_status status = metadata(files, "layout", &said, err);
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
        note("--layout %s instead of layout=%.80s", flag, said);
    files->layout_row = layout;
    files->layout.by_token = layout != BHLD;
    files->layout.is_packed = layout == THD;
    return ATTN_OK;
}

/* Heads that are folded into the last axis: nothing but a number says how many. */
static enum attn_status set_heads(struct attn_files *files, struct attn_error *err)
{
    static const char *const key[2] = {"heads", "kv_heads"}, *const flags[2] = {"heads",
                                                                                "kv-heads"};
    const char *flag[2] = {files->request->heads, files->request->kv_heads}, *text;
    for (int n = 0; n < 2; n++) {
        if (files->layout_row != BLE && flag[n] != NULL)
            return attn_fail(err, ATTN_EINVAL, "--%s belongs to --layout BLE, [B,L,H*d]", flags[n]);
        if (files->layout_row != BLE)
            continue;
        enum attn_status status = setting(files, key[n], flag[n], &text, err);
        if (status != ATTN_OK)
            return status;
        if (text == NULL && n == 1)
            files->layout.folded[1] = files->layout.folded[0];
        else if (text == NULL || !attn_cli_int(text, 1, INT32_MAX, &files->layout.folded[n]))
            return attn_fail(err, ATTN_EINVAL,
                             "layout B,L,H*d, %s '%.40s': say --%s, a number from 1", key[n],
                             text != NULL ? text : "", flags[n]);
    }
    return ATTN_OK;
}

const char *attn_files_layout(const struct attn_files *files)
{
    return layouts[files->layout_row][1];
}

static enum attn_status set_pass(struct attn_files *files, struct attn_error *err)
{
    const char *text = files->request->pass;
    int has_do = files->input[ATTN_IN_DO] != NULL;
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

/* ---- ALiBi ----------------------------------------------------------------------------------- */

static enum attn_status read_slopes(struct attn_files *files, const char *text,
                                    struct attn_error *err)
{
    int64_t heads = files->problem.heads, n = 0;
    files->slope = attn_cli_need(calloc((size_t)heads + 1, sizeof *files->slope));
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

static enum attn_status read_align(const struct attn_files *files, const char *text,
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

/* ALiBi as `attnlab vectors` says it: alibi_slopes=[0.5, 0.25] and alibi_offset. */
static enum attn_status alibi_of_words(struct attn_files *files, struct attn_error *err)
{
    const char *list = NULL;
    size_t used = 0;
    enum attn_status status = read_integer(files, "alibi_offset", &files->problem.bias.offset, err);
    if (status == ATTN_OK)
        status = metadata(files, "alibi_slopes", &list, err);
    if (status != ATTN_OK)
        return status;
    size_t n = list != NULL ? strlen(list) : 0;
    if (n < 2 || list[0] != '[' || list[n - 1] != ']')
        return attn_fault(err, ATTN_EINVAL, files->file[0]->path,
                          "metadata bias=alibi without alibi_slopes such as [0.5, 0.25]");
    files->slopes = attn_cli_need(calloc(n, 1));
    for (size_t c = 1; c + 1 < n; c++)
        if (list[c] != ' ')
            files->slopes[used++] = list[c];
    files->alibi = files->slopes;
    return ATTN_OK;
}

static enum attn_status set_bias(struct attn_files *files, struct attn_error *err)
{
    const char *align;
    struct attn_bias *bias = &files->problem.bias;
    enum attn_status status = setting(files, "alibi", files->request->alibi, &files->alibi, err);
    if (status == ATTN_OK)
        status = setting(files, "alibi-align", files->request->alibi_align, &align, err);
    int by_words = status == ATTN_OK && files->alibi == NULL &&
                   files->request->alibi_align == NULL && says(files, "bias", "alibi");
    if (by_words)
        status = alibi_of_words(files, err);
    if (status != ATTN_OK)
        return status;
    if (files->alibi == NULL && align != NULL)
        return attn_fail(err, ATTN_EINVAL, "alibi-align without alibi: say --alibi SLOPE,...");
    if (files->alibi != NULL && files->input[ATTN_IN_BIAS] != NULL)
        return attn_fail(err, ATTN_EINVAL,
                         "a bias tensor and ALiBi together: one of them; add ALiBi to the tensor");
    if (files->layout.is_packed && files->packed.n != 1 && files->input[ATTN_IN_BIAS] != NULL)
        return attn_fail(err, ATTN_EINVAL,
                         "a bias tensor with layout THD: documents have no [Lq,Lk] in common");
    if (files->layout.is_packed && !files->packed.is_even && !files->packed.is_self &&
        files->alibi != NULL)
        return attn_fail(err, ATTN_EINVAL,
                         "ALiBi with layout THD: every document must have as many queries as keys");
    if (files->input[ATTN_IN_BIAS] != NULL) {
        bias->kind = ATTN_BIAS_TENSOR; /* its data are not there yet: attn_files_run */
        bias->tensor = attn_files_cview(files, files->input[ATTN_IN_BIAS], ATTN_AXES_PAIRS);
        return ATTN_OK;
    }
    if (files->alibi == NULL)
        return ATTN_OK;
    status = read_slopes(files, files->alibi, err);
    if (status == ATTN_OK && !by_words)
        status = read_align(files, align, &bias->offset, err);
    bias->kind = ATTN_BIAS_ALIBI;
    bias->slope = files->slope;
    return status;
}

/* ---- the bytes of a mask --------------------------------------------------------------------- */

/* [1,H,Tq,Tk] to [n,H,Lq,Lk].  What lies in two documents must be hidden: the file says both. */
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
    int hidden = says(files, "mask_one", "hidden");
    int in_entries = files->layout.is_packed && files->packed.is_even && files->packed.n != 1;
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

/* ---- tensors that a mask names --------------------------------------------------------------- */

static struct attn_file_tensor *look_up(struct attn_files *files, const char *name,
                                        const char *part, struct attn_file **file)
{
    char whole[256];
    int n = snprintf(whole, sizeof whole, "%s%s%s", name, part[0] != '\0' ? "." : "", part);
    const struct attn_tensors_entry *entry =
        n < (int)sizeof whole ? attn_tensors_find(files->set, whole) : NULL;
    *file = entry != NULL ? entry->file : NULL;
    return entry != NULL ? entry->tensor : NULL;
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
    struct attn_files *files = arg;
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
    if (files->n_named == ATTN_FILES_NAMED)
        return attn_fail(err, ATTN_EINVAL, "the mask names more than %d tensors", ATTN_FILES_NAMED);
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
    return strcmp(t->name, "mask") == 0 ? bytes_of_word(files, t, tensor, err) : ATTN_OK;
}

/* ---- which mask ------------------------------------------------------------------------------ */

/* What `attnlab vectors` calls a band. */
static enum attn_status translate_band(const struct attn_files *files, char **text,
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
    int self = says(files, "window", "with-self"); /* one more on either side that has an end */
    left -= self && left > 0;
    right -= self && right > 0;
    *text = left < 0 && right == 0 ? attn_cli_text("causal(%+lld)", (long long)offset)
                                   : attn_cli_text("window(%lld,%lld,%+lld)", (long long)left,
                                                   (long long)right, (long long)offset);
    return ATTN_OK;
}

/* The metadata's word in the mask language, malloc'ed. */
static enum attn_status translate(const struct attn_files *files, const char *said, char **text,
                                  struct attn_error *err)
{
    const struct attn_problem *p = &files->problem;
    int is_causal = strcmp(said, "causal") == 0;
    if (strcmp(said, "band") == 0)
        return translate_band(files, text, err);
    if (is_causal && p->n_query != p->n_key)
        return attn_fault(
            err, ATTN_EINVAL, files->file[0]->path,
            "metadata mask=causal with Lq = %lld and Lk = %lld could mean two things: "
            "say --mask 'causal(tl)' (query 0 at key 0) or --mask 'causal(br)' (last "
            "query at last key)",
            (long long)p->n_query, (long long)p->n_key);
    *text = attn_cli_text("%s", is_causal                      ? "causal(br)"
                                : strcmp(said, "padding") == 0 ? "keys(key_mask)"
                                : strcmp(said, "dense") == 0   ? "dense(mask)"
                                                               : said);
    return ATTN_OK;
}

/* Say so when the flag is not what a file says. */
static void note_difference(const struct attn_files *files, const char *flag)
{
    int square = files->problem.n_query == files->problem.n_key;
    for (int f = 0; f < files->n_files; f++) {
        const char *said = attn_file_metadata(files->file[f], "mask");
        if (said == NULL || strcmp(said, flag) == 0 ||
            (strcmp(said, "padding") == 0 && strcmp(flag, "keys(key_mask)") == 0) ||
            (strcmp(said, "causal") == 0 && square &&
             (strcmp(flag, "causal(br)") == 0 || strcmp(flag, "causal(tl)") == 0)))
            continue;
        note("--mask '%s' instead of mask=%.80s in %s", flag, said, files->file[f]->path);
    }
}

/* Documents of several lengths are a mask too.  The word `dense` has hidden what lies in others. */
static enum attn_status add_documents(struct attn_files *files, struct attn_error *err)
{
    char *inside = files->mask_text;
    if (!files->layout.is_packed || files->packed.is_even || strcmp(inside, "dense(mask)") == 0)
        return ATTN_OK;
    enum attn_status status = attn_files_packed_mask(files, inside, &files->mask_text, err);
    free(inside);
    return status;
}

/* The flag wins over the metadata; --key-mask hides keys besides whatever was said. */
static enum attn_status choose(struct attn_files *files, struct attn_error *err)
{
    const char *said = NULL, *text = files->request->mask;
    char *word = NULL;
    enum attn_status status = ATTN_OK;
    if (text != NULL)
        note_difference(files, text);
    else
        status = metadata(files, "mask", &said, err);
    if (status == ATTN_OK && said != NULL)
        status = translate(files, said, &word, err);
    if (status != ATTN_OK)
        return status;
    text = word != NULL ? word : text;
    int hide = files->request->file[ATTN_IN_KEY_MASK] != NULL &&
               (text == NULL || strstr(text, "key_mask") == NULL);
    if (text == NULL && !hide)
        note("no mask was said: every pair %sis visible",
             files->layout.is_packed && files->packed.n != 1 ? "of a document " : "");
    files->mask_text = hide && text != NULL ? attn_cli_text("(%s)&keys(key_mask)", text)
                                            : attn_cli_text("%s", hide           ? "keys(key_mask)"
                                                                  : text != NULL ? text
                                                                                 : "none");
    free(word);
    return ATTN_OK;
}

/* A key_mask that no mask names was meant for something: it is left out only when asked. */
static enum attn_status check_key_mask(const struct attn_files *files, struct attn_error *err)
{
    const struct attn_file_tensor *key_mask = files->input[ATTN_IN_KEY_MASK];
    int named = key_mask == NULL || files->request->mask != NULL;
    for (int n = 0; n < files->n_named; n++)
        named |= files->named[n] == key_mask;
    if (named)
        return ATTN_OK;
    return attn_fault(
        err, ATTN_EINVAL, files->from[ATTN_IN_KEY_MASK]->path,
        "holds key_mask, which no metadata mask names: say --mask 'keys(key_mask)', or "
        "--mask '%.60s' to leave it out",
        files->mask_text);
}

static enum attn_status set_mask(struct attn_files *files, struct attn_error *err)
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

/* ---- what is judged -------------------------------------------------------------------------- */

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

void attn_files_lse(const struct attn_files *files, const struct attn_file *result,
                    struct attn_claims *claims)
{
    memset(claims, 0, sizeof *claims);
    for (int f = 0; f < files->n_files; f++)
        read_lse(files->file[f], claims);
    if (result != NULL)
        read_lse(result, claims);
}

int attn_files_computes(const struct attn_files *files, enum attn_output output)
{
    return output <= ATTN_LSE ||
           (files->pass == ATTN_BACKWARD && (output != ATTN_DBIAS || files->d_bias));
}

int attn_files_asks(const struct attn_files *files, enum attn_output output)
{
    return attn_cli_listed(files->request->only, attn_output_name(output));
}

int attn_files_judges_bias(const struct attn_files *files)
{
    return files->pass == ATTN_BACKWARD && files->input[ATTN_IN_BIAS] != NULL &&
           attn_files_asks(files, ATTN_DBIAS) &&
           (files->stored[ATTN_DBIAS] != NULL || files->output[ATTN_DBIAS].data != NULL ||
            files->d_bias);
}

const char *attn_files_why_not(const struct attn_files *files, enum attn_output output,
                               const struct attn_file *from)
{
    struct attn_claims said;
    attn_files_lse(files, from, &said);
    if (output == ATTN_LSE && said.lse == ATTN_PLUGIN_LSE_ABSENT)
        return "the metadata declare lse=absent";
    if (output >= ATTN_DQ && files->pass == ATTN_FORWARD)
        return files->input[ATTN_IN_DO] != NULL ? "a gradient, under --pass fwd"
                                                : "a gradient, and there is no 'do'";
    if (output == ATTN_DBIAS && files->input[ATTN_IN_BIAS] == NULL)
        return "there is no tensor 'bias'";
    return NULL;
}

/* Whether the pass reads this input; a key_mask is the mask's. */
static int is_read(const struct attn_files *files, int input)
{
    return input != ATTN_IN_KEY_MASK &&
           (files->pass == ATTN_BACKWARD || (input != ATTN_IN_DO && input != ATTN_IN_DLSE));
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
        used |= files->input[i] == entry->tensor && is_read(files, i);
    for (int n = 0; n < files->n_named; n++)
        used |= files->named[n] == entry->tensor;
    used |= files->request->mask == NULL && strcmp(entry->name, "mask") == 0 &&
            says(files, "mask", "band"); /* the bytes say the same */
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
            note("tensor '%.40s' of %s is not used", entry->name, entry->file->path);
    }
}

/* The gradient of the bias: by --dbias, or where files of `attnlab vectors` ask for it. */
static enum attn_status set_d_bias(struct attn_files *files, struct attn_error *err)
{
    const char *outputs;
    enum attn_status status = metadata(files, "outputs", &outputs, err);
    int can = files->pass == ATTN_BACKWARD && files->input[ATTN_IN_BIAS] != NULL;
    if (status == ATTN_OK && files->request->d_bias && !can)
        return attn_fail(err, ATTN_EINVAL,
                         "--dbias needs a bias tensor and the gradient of O (bias and do)");
    files->d_bias = can && (files->request->d_bias ||
                            (outputs != NULL && strstr(outputs, "\"dbias\"") != NULL));
    return status;
}

/* --only names outputs. */
static enum attn_status check_only(struct attn_files *files, struct attn_error *err)
{
    char name[32];
    for (const char *at = files->request->only; at != NULL && *at != '\0'; at += *at == ',') {
        size_t n = strcspn(at, ",");
        snprintf(name, sizeof name, "%.*s", n < 31 ? (int)n : 31, at);
        if (attn_output_named(name) < 0)
            return attn_fail(err, ATTN_EINVAL, "--only '%s': o, lse, dq, dk, dv and dbias exist",
                             name);
        at += n;
    }
    return ATTN_OK;
}

static enum attn_status check_problem(struct attn_files *files, struct attn_error *err)
{
    return attn_problem_check(&files->problem, err);
}

enum attn_status attn_files_open(const struct attn_request *request, const struct attn_tensors *set,
                                 struct attn_files *files, struct attn_error *err)
{
    static enum attn_status (*const step[])(struct attn_files * files, struct attn_error * err) = {
        open_set,   find_inputs,       set_layout,  set_heads, set_pass,      set_d_bias,
        check_only, attn_files_shapes, set_numbers, set_bias,  check_problem, set_mask};
    memset(files, 0, sizeof *files);
    files->request = request;
    files->set = set;
    enum attn_status status = attn_spec_parse(request->spec, &files->spec, err);
    for (size_t s = set != NULL; status == ATTN_OK && s < sizeof step / sizeof *step; s++)
        status = step[s](files, err);
    if (status != ATTN_OK)
        return status;
    note_unused(files);
    return ATTN_OK;
}

enum attn_status attn_files_load(struct attn_files *files, struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    for (int i = 0; i < ATTN_IN_INPUTS && status == ATTN_OK; i++) {
        if (files->input[i] != NULL && is_read(files, i))
            status = attn_file_load(files->from[i], files->input[i], err);
    }
    if (status == ATTN_OK)
        files->problem.bias.tensor = attn_files_input(files, ATTN_IN_BIAS);
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
    free(files->slopes);
    memset(files, 0, sizeof *files);
}
