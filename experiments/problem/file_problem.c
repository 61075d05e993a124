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

const struct attn_file_role attn_file_role[ATTN_IN_INPUTS] = {
    [ATTN_IN_Q] = {"q", ATTN_AXES_QUERIES},     [ATTN_IN_K] = {"k", ATTN_AXES_KEYS},
    [ATTN_IN_V] = {"v", ATTN_AXES_KEYS},        [ATTN_IN_DO] = {"do", ATTN_AXES_QUERIES},
    [ATTN_IN_BIAS] = {"bias", ATTN_AXES_PAIRS}, [ATTN_IN_DLSE] = {"dlse", ATTN_AXES_ROWS},
    [ATTN_IN_KEY_MASK] = {"key_mask", 0}, /* these are read by what they are for */
    [ATTN_IN_CU_Q] = {"cu_seqlens_q", 0},       [ATTN_IN_CU_K] = {"cu_seqlens_k", 0}};

int attn_file_input_named(const char *name)
{
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
static void check_folder(const char *path)
{
    static const char *const result[] = {"result.safetensors", "result.npz"};
    for (int n = 0; n < 2 + ATTN_OUTPUTS; n++) {
        char *name =
            n < 2 ? attn_cli_text("%s/%s", path, result[n])
                  : attn_cli_text("%s/%s.npy", path, attn_output_name((enum attn_output)(n - 2)));
        if (access(name, F_OK) == 0)
            attn_cli_stop(ATTN_EINVAL, name,
                          "holds results, which --input DIR does not read: attnlab compare DIR "
                          "DIR/inputs.safetensors judges them");
        free(name);
    }
}

/* A folder stands for the inputs that `attnlab vectors` wrote into it. */
static void open_input(const char *path, int compare, struct attn_tensors *set)
{
    struct stat about;
    if (stat(path, &about) != 0 || !S_ISDIR(about.st_mode)) {
        attn_tensors_open(path, set);
        return;
    }
    char *inside = attn_cli_text("%s/inputs.safetensors", path);
    if (stat(inside, &about) != 0)
        attn_cli_stop(ATTN_EINVAL, path, "is a directory without inputs.safetensors");
    if (compare)
        check_folder(path);
    attn_tensors_open(inside, set);
    free(inside);
}

static void open_set(struct attn_files *files)
{
    const struct attn_request *r = files->request;
    const char *name[ATTN_IN_INPUTS];
    for (int i = 0; i < ATTN_IN_INPUTS; i++)
        name[i] = attn_file_role[i].name;
    files->set = &files->own;
    if (r->input != NULL)
        open_input(r->input, r->compare, &files->own);
    else
        attn_tensors_open_each(r->file, name, ATTN_IN_INPUTS, &files->own);
}

static void find_inputs(struct attn_files *files)
{
    for (int i = 0, f = 0; i < ATTN_IN_INPUTS; i++, f = 0) {
        const char *name = attn_file_role[i].name;
        const struct attn_tensors_entry *entry = attn_tensors_find(files->set, name);
        if (entry == NULL && i <= ATTN_IN_V)
            attn_cli_stop(ATTN_EINVAL, files->set->file[0].path,
                          "has no tensor '%s': q, k and v are needed", name);
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
}

/* ---- settings -------------------------------------------------------------------------------- */

/* As a flag has it, as attention people write it, as `attnlab vectors` does. */
enum { BHLD, BLHD, SBHD, THD, BLE, LAYOUTS };
static const char *const layouts[LAYOUTS][3] = {{"BHLD", "B,H,L,d", "bhld"},
                                                {"BLHD", "B,L,H,d", "blhd"},
                                                {"SBHD", "L,B,H,d", "sbhd"},
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

const char *attn_files_layout(const struct attn_files *files)
{
    return layouts[files->layout_row][1];
}

/* NULL: no file has that key.  Two files must not contradict each other. */
static const char *metadata(const struct attn_files *files, const char *key)
{
    const char *path = NULL, *value = NULL;
    for (int f = 0; f < files->n_files; f++) {
        const char *text = attn_file_metadata(files->file[f], key);
        if (text == NULL)
            continue;
        if (value != NULL && strcmp(value, text) != 0)
            attn_cli_stop(ATTN_EINVAL, files->file[f]->path,
                          "metadata %s=%.40s contradicts %s=%.40s of %.80s: say --%s", key, text,
                          key, value, path, key);
        value = text;
        path = files->file[f]->path;
    }
    return value;
}

/* Whether the metadata hold this word under this key. */
static int says(const struct attn_files *files, const char *key, const char *word)
{
    const char *said = metadata(files, key);
    return said != NULL && strcmp(said, word) == 0;
}

/* Whether a flag means what a file says: the same word, number, layout or mask. */
static int means(const struct attn_files *files, const char *key, const char *flag,
                 const char *said)
{
    double a, b;
    if (strcmp(said, flag) == 0 ||
        (attn_cli_double(said, &a) && attn_cli_double(flag, &b) && a == b))
        return 1;
    if (strcmp(key, "layout") == 0)
        return find_layout(said) == find_layout(flag);
    if (strcmp(key, "mask") != 0)
        return 0;
    return (strcmp(said, "padding") == 0 && strcmp(flag, "keys(key_mask)") == 0) ||
           (strcmp(said, "causal") == 0 && files->problem.n_query == files->problem.n_key &&
            (strcmp(flag, "causal(br)") == 0 || strcmp(flag, "causal(tl)") == 0));
}

/* The flag, else the metadata; a flag that overrules a file is noted. */
static const char *setting(const struct attn_files *files, const char *key, const char *flag)
{
    char quoted[160];
    if (flag == NULL)
        return metadata(files, key);
    attn_cli_quote(flag, quoted, sizeof quoted);
    for (int f = 0; f < files->n_files; f++) {
        const char *said = attn_file_metadata(files->file[f], key);
        if (said != NULL && !means(files, key, flag, said))
            note("--%s %s instead of %s=%.80s in %s", key, quoted, key, said, files->file[f]->path);
    }
    return flag;
}

static int64_t read_integer(const struct attn_files *files, const char *key)
{
    const char *said = metadata(files, key);
    int64_t value = 0;
    if (said == NULL || !attn_cli_int(said, -((int64_t)1 << 60), (int64_t)1 << 60, &value))
        attn_cli_stop(ATTN_EINVAL, files->file[0]->path,
                      "metadata %s '%.40s': a whole number was expected", key,
                      said != NULL ? said : "");
    return value;
}

/* NaN: nobody says one. */
static double read_number(const struct attn_files *files, const char *key, const char *flag)
{
    const char *text = setting(files, key, flag);
    double number = (double)NAN;
    if (text != NULL && !(attn_cli_double(text, &number) && isfinite(number)))
        attn_cli_stop(ATTN_EINVAL, NULL, "%s '%.40s': a finite number was expected", key, text);
    return number;
}

static void set_numbers(struct attn_files *files)
{
    struct attn_problem *p = &files->problem;
    p->scale = read_number(files, "scale", files->request->scale);
    if (isnan(p->scale)) {
        p->scale = p->d_key > 0 ? 1 / sqrt((double)p->d_key) : 1;
        note("no scale was said: 1/sqrt(d) = %.17g", p->scale);
    }
    p->softcap = read_number(files, "softcap", files->request->softcap);
    if (isnan(p->softcap))
        p->softcap = 0;
}

static void set_layout(struct attn_files *files)
{
    const char *flag = files->request->layout;
    if (flag != NULL && find_layout(flag) < 0)
        attn_cli_stop(ATTN_EINVAL, NULL, "--layout '%.40s': BHLD, BLHD, SBHD, BLE and THD exist",
                      flag);
    const char *said = setting(files, "layout", flag);
    int layout = said != NULL ? find_layout(said) : BHLD;
    if (layout < 0)
        attn_cli_stop(ATTN_EINVAL, NULL,
                      "metadata layout '%.40s': 'B,H,L,d', 'B,L,H,d', 'L,B,H,d', 'B,L,H*d' and "
                      "'T,H,d' are understood (or say --layout)",
                      said);
    files->layout_row = layout;
    files->layout.by_token = layout != BHLD;
    files->layout.by_sequence = layout == SBHD;
    files->layout.is_packed = layout == THD;
}

/* Heads that are folded into the last axis: nothing but a number says how many. */
static void set_heads(struct attn_files *files)
{
    static const char *const key[2] = {"heads", "kv_heads"}, *const flags[2] = {"heads",
                                                                                "kv-heads"};
    const char *flag[2] = {files->request->heads, files->request->kv_heads};
    for (int n = 0; n < 2; n++) {
        if (files->layout_row != BLE && flag[n] != NULL)
            attn_cli_stop(ATTN_EINVAL, NULL, "--%s belongs to --layout BLE, [B,L,H*d]", flags[n]);
        if (files->layout_row != BLE)
            continue;
        const char *text = setting(files, key[n], flag[n]);
        if (text == NULL && n == 1)
            files->layout.folded[1] = files->layout.folded[0];
        else if (text == NULL || !attn_cli_int(text, 1, INT32_MAX, &files->layout.folded[n]))
            attn_cli_stop(ATTN_EINVAL, NULL,
                          "layout B,L,H*d, %s '%.40s': say --%s, a number from 1", key[n],
                          text != NULL ? text : "", flags[n]);
    }
}

static void set_pass(struct attn_files *files)
{
    int pass = files->request->pass, has_do = files->input[ATTN_IN_DO] != NULL;
    files->pass = pass == ATTN_FORWARD || (pass == ATTN_PASS_NOT_SAID && !has_do) ? ATTN_FORWARD
                                                                                  : ATTN_BACKWARD;
    if (files->pass == ATTN_BACKWARD && !has_do)
        attn_cli_stop(ATTN_EINVAL, NULL,
                      "--pass bwd needs the gradient of O: a tensor 'do', or --do FILE");
}

/* ---- ALiBi ----------------------------------------------------------------------------------- */

static void read_slopes(struct attn_files *files)
{
    int64_t heads = files->problem.heads, n = 0;
    char *copy = attn_cli_text("%s", files->alibi), *rest = copy, *number;
    files->slope = attn_cli_need(calloc((size_t)heads + 1, sizeof *files->slope));
    while ((number = strsep(&rest, ",")) != NULL) {
        double slope;
        if (!(attn_cli_double(number, &slope) && isfinite(slope)))
            attn_cli_stop(ATTN_EINVAL, NULL, "alibi: '%.40s' is not a finite slope", number);
        if (n < heads)
            files->slope[n] = slope;
        n++;
    }
    free(copy);
    if (n != heads)
        attn_cli_stop(ATTN_EINVAL, NULL, "alibi has %lld slopes: one for each of %lld heads",
                      (long long)n, (long long)heads);
}

static int64_t read_align(const struct attn_files *files, const char *text)
{
    const struct attn_problem *p = &files->problem;
    int64_t bottom_right = p->n_key - p->n_query, offset;
    if (text == NULL && bottom_right != 0)
        attn_cli_stop(ATTN_EINVAL, NULL,
                      "ALiBi with Lq = %lld and Lk = %lld: say --alibi-align tl (query 0 at key "
                      "0), br (last at last), or an offset such as +3",
                      (long long)p->n_query, (long long)p->n_key);
    if (text == NULL || strcmp(text, "tl") == 0)
        return 0;
    if (strcmp(text, "br") == 0)
        return bottom_right;
    if ((text[0] != '+' && text[0] != '-') || !attn_cli_int(text + 1, 0, INT64_MAX / 4, &offset))
        attn_cli_stop(ATTN_EINVAL, NULL,
                      "alibi-align '%.40s': tl, br, or a signed offset such as +3", text);
    return text[0] == '-' ? -offset : offset;
}

/* The slopes of `attnlab vectors`, which writes alibi_slopes=[0.5, 0.25]: as the flag has them. */
static char *slopes_of_words(const struct attn_files *files)
{
    const char *list = metadata(files, "alibi_slopes");
    size_t used = 0, n = list != NULL ? strlen(list) : 0;
    if (n < 2 || list[0] != '[' || list[n - 1] != ']')
        attn_cli_stop(ATTN_EINVAL, files->file[0]->path,
                      "metadata bias=alibi without alibi_slopes such as [0.5, 0.25]");
    char *slopes = attn_cli_need(calloc(n, 1));
    for (size_t c = 1; c + 1 < n; c++)
        if (list[c] != ' ')
            slopes[used++] = list[c];
    return slopes;
}

/* What cannot stand beside ALiBi, or in packed documents. */
static void check_bias(const struct attn_files *files, int has_align)
{
    int has_bias = files->input[ATTN_IN_BIAS] != NULL, is_packed = files->layout.is_packed;
    const char *wrong = NULL;
    if (files->alibi == NULL && has_align)
        wrong = "alibi-align without alibi: say --alibi SLOPE,...";
    else if (files->alibi != NULL && has_bias)
        wrong = "a bias tensor and ALiBi together: one of them; add ALiBi to the tensor";
    else if (is_packed && files->packed.n != 1 && has_bias)
        wrong = "a bias tensor with layout THD: documents have no [Lq,Lk] in common";
    else if (is_packed && !files->packed.is_even && !files->packed.is_self && files->alibi != NULL)
        wrong = "ALiBi with layout THD: every document must have as many queries as keys";
    if (wrong != NULL)
        attn_cli_stop(ATTN_EINVAL, NULL, "%s", wrong);
}

static void set_bias(struct attn_files *files)
{
    struct attn_bias *bias = &files->problem.bias;
    const char *alibi = setting(files, "alibi", files->request->alibi);
    const char *align = setting(files, "alibi-align", files->request->alibi_align);
    int by_words =
        alibi == NULL && files->request->alibi_align == NULL && says(files, "bias", "alibi");
    if (by_words) {
        bias->offset = read_integer(files, "alibi_offset");
        files->alibi = slopes_of_words(files);
    } else if (alibi != NULL)
        files->alibi = attn_cli_text("%s", alibi);
    check_bias(files, align != NULL);
    if (files->input[ATTN_IN_BIAS] != NULL) {
        bias->kind = ATTN_BIAS_TENSOR; /* its data are not there yet: attn_files_run */
        bias->tensor = attn_files_input(files, ATTN_IN_BIAS);
    } else if (files->alibi != NULL) {
        read_slopes(files);
        if (!by_words)
            bias->offset = read_align(files, align);
        bias->kind = ATTN_BIAS_ALIBI;
        bias->slope = files->slope;
    }
}

/* ---- tensors that a mask names --------------------------------------------------------------- */

/* [1,H,Tq,Tk] to [n,H,Lq,Lk].  What lies in two documents must be hidden: the file says both. */
static void cut(const struct attn_files *files, const struct attn_file_tensor *t, int hidden,
                unsigned char *to)
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
                    attn_cli_stop(ATTN_EINVAL, files->file[0]->path,
                                  "mask shows query %lld key %lld of another document",
                                  (long long)i, (long long)j);
            }
}

/* The bytes that the word `dense` speaks of, in the problem's terms: 1 = visible, and of a packed
 * batch each document's own pairs, [n,H,Lq,Lk].  `tensor` changes where the file has others. */
static void bytes_of_word(struct attn_files *files, const struct attn_file_tensor *t,
                          struct attn_mask_tensor *tensor)
{
    const struct attn_problem *p = &files->problem;
    const int64_t all[4] = {1, p->heads, p->batch * p->n_query, p->batch * p->n_key};
    const int64_t each[4] = {p->batch, p->heads, p->n_query, p->n_key};
    int hidden = says(files, "mask_one", "hidden");
    int in_entries = files->layout.is_packed && files->packed.is_even && files->packed.n != 1;
    char text[160];
    if (!hidden && !in_entries)
        return;
    if (attn_file_dtype_size(t->dtype) != 1 || t->n_axes > 4 ||
        (in_entries && memcmp(t->extent, all, sizeof all) != 0))
        attn_cli_stop(ATTN_EINVAL, files->file[0]->path,
                      "mask is %s %s: U8 or BOOL [%lld,%lld,%lld,%lld] would fit",
                      attn_file_dtype_name(t->dtype), attn_file_shape(t, text), (long long)all[0],
                      (long long)all[1], (long long)all[2], (long long)all[3]);
    int64_t n = in_entries ? attn_product(p->batch * p->heads, p->n_query * p->n_key) : t->bytes;
    free(files->mask_bytes);
    unsigned char *byte = files->mask_bytes = malloc((size_t)t->bytes + 1);
    if (byte == NULL)
        attn_cli_stop(ATTN_ENOMEM, NULL, "no memory for the mask");
    if (in_entries) {
        cut(files, t, hidden, byte);
        memcpy(tensor->extent, each, sizeof each);
    } else
        memcpy(byte, t->data, (size_t)n);
    for (int64_t e = 0; e < n && hidden; e++)
        byte[e] = byte[e] == 0;
    tensor->data = byte;
}

static enum attn_status find(void *arg, const char *name, const char *part,
                             struct attn_mask_tensor *tensor, struct attn_error *err)
{
    struct attn_files *files = arg;
    enum attn_dtype floating;
    char need[32], have[32], shape[160];
    char *whole = attn_cli_text("%s%s%s", name, part[0] != '\0' ? "." : "", part);
    const struct attn_tensors_entry *entry = attn_tensors_find(files->set, whole);
    free(whole);
    (void)err; /* nothing comes back from here */
    if (entry == NULL)
        attn_cli_stop(ATTN_EINVAL, NULL,
                      "the mask names tensor '%.60s%s%s', which is not in the input", name,
                      part[0] != '\0' ? "." : "", part);
    const struct attn_file_tensor *t = entry->tensor;
    if (attn_file_dtype_storage(t->dtype, &floating))
        attn_cli_stop(ATTN_EINVAL, entry->file->path,
                      "the mask names '%.40s', stored as %s: BOOL, U8, I8, I32 and I64 would work",
                      t->name, attn_file_dtype_name(t->dtype));
    if (t->n_axes > 4)
        attn_cli_stop(ATTN_EINVAL, entry->file->path, "the mask names '%.40s', %s: too many axes",
                      t->name, attn_file_shape(t, shape));
    if (files->n_named == ATTN_FILES_NAMED)
        attn_cli_stop(ATTN_EINVAL, NULL, "the mask names more than %d tensors", ATTN_FILES_NAMED);
    if (t->bytes > attn_cli_memory_available())
        attn_cli_stop(ATTN_ENOMEM, entry->file->path, "'%.40s' has %s, this machine can give %s",
                      t->name, attn_cli_bytes(t->bytes, need),
                      attn_cli_bytes(attn_cli_memory_available(), have));
    attn_tensors_load(entry);
    files->named[files->n_named++] = t;
    tensor->data = t->data;
    tensor->width = (int)attn_file_dtype_size(t->dtype);
    tensor->n_axes = t->n_axes;
    memcpy(tensor->extent, t->extent, sizeof tensor->extent);
    if (strcmp(t->name, "mask") == 0)
        bytes_of_word(files, t, tensor);
    return ATTN_OK;
}

/* ---- which mask ------------------------------------------------------------------------------ */

/* What `attnlab vectors` calls a band. */
static char *translate_band(const struct attn_files *files)
{
    int64_t offset = read_integer(files, "offset"), left = read_integer(files, "window_left"),
            right = read_integer(files, "window_right");
    int self = says(files, "window", "with-self"); /* one more on either side that has an end */
    left -= self && left > 0;
    right -= self && right > 0;
    return left < 0 && right == 0 ? attn_cli_text("causal(%+lld)", (long long)offset)
                                  : attn_cli_text("window(%lld,%lld,%+lld)", (long long)left,
                                                  (long long)right, (long long)offset);
}

/* The metadata's word in the mask language, malloc'ed. */
static char *translate(const struct attn_files *files, const char *said)
{
    const struct attn_problem *p = &files->problem;
    int is_causal = strcmp(said, "causal") == 0;
    if (strcmp(said, "band") == 0)
        return translate_band(files);
    if (is_causal && p->n_query != p->n_key)
        attn_cli_stop(
            ATTN_EINVAL, files->file[0]->path,
            "metadata mask=causal with Lq = %lld and Lk = %lld could mean two things: say --mask "
            "'causal(tl)' (query 0 at key 0) or --mask 'causal(br)' (last query at last key)",
            (long long)p->n_query, (long long)p->n_key);
    return attn_cli_text("%s", is_causal                      ? "causal(br)"
                               : strcmp(said, "padding") == 0 ? "keys(key_mask)"
                               : strcmp(said, "dense") == 0   ? "dense(mask)"
                                                              : said);
}

/* The flag wins over the metadata; --key-mask hides keys besides whatever was said. */
static char *choose(const struct attn_files *files)
{
    const char *flag = files->request->mask, *said = setting(files, "mask", flag);
    char *text = flag != NULL   ? attn_cli_text("%s", flag)
                 : said != NULL ? translate(files, said)
                                : NULL;
    int hide = files->request->file[ATTN_IN_KEY_MASK] != NULL &&
               (text == NULL || strstr(text, "key_mask") == NULL);
    if (text == NULL && !hide) {
        note("no mask was said: every pair %sis visible",
             files->layout.is_packed && files->packed.n != 1 ? "of a document " : "");
        return attn_cli_text("none");
    }
    if (!hide)
        return text;
    char *both =
        text != NULL ? attn_cli_text("(%s)&keys(key_mask)", text) : attn_cli_text("keys(key_mask)");
    free(text);
    return both;
}

/* A key_mask that no mask names was meant for something: it is left out only when asked. */
static void check_key_mask(const struct attn_files *files)
{
    const struct attn_tensors_entry *key_mask = files->input[ATTN_IN_KEY_MASK];
    int named = key_mask == NULL || files->request->mask != NULL;
    for (int n = 0; n < files->n_named && !named; n++)
        named = files->named[n] == key_mask->tensor;
    if (!named)
        attn_cli_stop(
            ATTN_EINVAL, key_mask->file->path,
            "holds key_mask, which no metadata mask names: say --mask 'keys(key_mask)', or --mask "
            "'%.60s' to leave it out",
            files->mask_text);
}

static void set_mask(struct attn_files *files)
{
    struct attn_problem *p = &files->problem;
    const struct attn_mask_shape shape = {p->batch, p->heads, p->n_query, p->n_key};
    const struct attn_mask_source source = {find, files};
    struct attn_error err;
    char *text = files->mask_text = choose(files);
    /* Documents of several lengths are a mask too; of the word `dense` the bytes hide the rest. */
    if (files->layout.is_packed && !files->packed.is_even && strcmp(text, "dense(mask)") != 0) {
        files->mask_text = attn_files_packed_mask(files, text);
        free(text);
    }
    attn_cli_must(attn_mask_parse(files->mask_text, &shape, &source, &files->mask, &err), &err);
    check_key_mask(files);
    p->mask = files->mask;
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
    return attn_cli_listed(files->request->only, ",", attn_output_name(output));
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
        used |= files->input[i] == entry && is_read(files, i);
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
static void set_d_bias(struct attn_files *files)
{
    const char *outputs = metadata(files, "outputs");
    int can = files->pass == ATTN_BACKWARD && files->input[ATTN_IN_BIAS] != NULL;
    if (files->request->d_bias && !can)
        attn_cli_stop(ATTN_EINVAL, NULL,
                      "--dbias needs a bias tensor and the gradient of O (bias and do)");
    files->d_bias = can && (files->request->d_bias ||
                            (outputs != NULL && strstr(outputs, "\"dbias\"") != NULL));
}

/* --only names outputs. */
static void check_only(struct attn_files *files)
{
    if (files->request->only == NULL)
        return;
    char *copy = attn_cli_text("%s", files->request->only), *rest = copy, *name;
    while ((name = strsep(&rest, ",")) != NULL)
        if (attn_output_named(name) < 0)
            attn_cli_stop(ATTN_EINVAL, NULL, "--only '%.31s': o, lse, dq, dk, dv and dbias exist",
                          name);
    free(copy);
}

static void check_problem(struct attn_files *files)
{
    struct attn_error err;
    attn_cli_must(attn_problem_check(&files->problem, &err), &err);
}

void attn_files_open(const struct attn_request *request, const struct attn_tensors *set,
                     struct attn_files *files)
{
    static void (*const step[])(struct attn_files * files) = {
        open_set,   find_inputs,       set_layout,  set_heads, set_pass,      set_d_bias,
        check_only, attn_files_shapes, set_numbers, set_bias,  check_problem, set_mask};
    struct attn_error err;
    *files = (struct attn_files){.request = request, .set = set};
    attn_cli_must(attn_spec_parse(request->spec, &files->spec, &err), &err);
    for (size_t s = set != NULL; s < sizeof step / sizeof *step; s++)
        step[s](files);
    note_unused(files);
}

void attn_files_load(struct attn_files *files)
{
    for (int i = 0; i < ATTN_IN_INPUTS; i++)
        if (files->input[i] != NULL && is_read(files, i))
            attn_tensors_load(files->input[i]);
    files->problem.bias.tensor = attn_files_input(files, ATTN_IN_BIAS);
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
