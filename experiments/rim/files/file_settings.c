/* See file_problem.h: what flags and metadata say, in words and numbers.  A flag wins over the file
 * and says so.  Files in the wild say `causal` and `padding`, those of `attnlab vectors`
 * (docs/external.md) `band` and `dense`, and have words of their own beside them. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/rim/files/file_problem.h"
#include "tests/harness/base/fileio.h"

void attn_files_note(const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    attn_cli_fail(ATTN_EXIT_GOOD, "note: %s", text);
}

/* ---- one word -------------------------------------------------------------------------------- */

/* Keys of metadata, with the flags that overrule them; flag NULL: a word of `attnlab vectors`. */
#define AT(member) offsetof(struct attn_request, member)
static const struct key {
    const char *name, *flag;
    size_t at;
} keys[] = {{"layout", "layout", AT(layout)},
            {"heads", "heads", AT(heads)},
            {"kv_heads", "kv-heads", AT(kv_heads)},
            {"scale", "scale", AT(scale)},
            {"softcap", "softcap", AT(softcap)},
            {"alibi", "alibi", AT(alibi)},
            {"alibi-align", "alibi-align", AT(alibi_align)},
            {"mask", "mask", AT(mask)},
            {"bias", NULL, 0},
            {"alibi_offset", NULL, 0},
            {"alibi_slopes", NULL, 0},
            {"mask_one", NULL, 0},
            {"offset", NULL, 0},
            {"window", NULL, 0},
            {"window_left", NULL, 0},
            {"window_right", NULL, 0},
            {"outputs", NULL, 0}};
enum { KEYS = sizeof keys / sizeof *keys };

static const char *flag_of(const struct attn_files *files, const struct key *key)
{
    return key->flag != NULL ? *(const char *const *)((const char *)files->request + key->at)
                             : NULL;
}

/* Two files must not contradict each other where no flag decides. */
static enum attn_status check_key(const struct attn_files *files, const struct key *key,
                                  struct attn_error *err)
{
    const struct attn_file *first = NULL;
    for (int f = 0; f < files->n_files && flag_of(files, key) == NULL; f++) {
        const char *text = attn_file_metadata(files->file[f], key->name);
        const char *other = first != NULL ? attn_file_metadata(first, key->name) : text;
        if (text != NULL && strcmp(other, text) != 0)
            return attn_fault(err, ATTN_EINVAL, files->file[f]->path,
                              "metadata %s=%.40s contradicts %s=%.40s of %.80s%s%s", key->name,
                              text, key->name, other, first->path,
                              key->flag != NULL ? ": say --" : "",
                              key->flag != NULL ? key->flag : "");
        if (text != NULL)
            first = files->file[f];
    }
    return ATTN_OK;
}

enum attn_status attn_files_agree(struct attn_files *files, struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    for (int k = 0; k < KEYS && status == ATTN_OK; k++)
        status = check_key(files, &keys[k], err);
    return status;
}

const char *attn_files_said(const struct attn_files *files, const char *key)
{
    const char *text = NULL;
    for (int f = 0; f < files->n_files && text == NULL; f++)
        text = attn_file_metadata(files->file[f], key);
    return text;
}

int attn_files_says(const struct attn_files *files, const char *key, const char *word)
{
    const char *said = attn_files_said(files, key);
    return said != NULL && strcmp(said, word) == 0;
}

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

/* 1: a flag means the same as a file: the same word, number, layout or mask; 0: it does not. */
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
           (strcmp(said, "causal") == 0 && files->c.n_query == files->c.n_key &&
            (strcmp(flag, "causal(br)") == 0 || strcmp(flag, "causal(tl)") == 0));
}

const char *attn_files_setting(const struct attn_files *files, const char *name)
{
    const struct key *key = keys;
    char quoted[160];
    while (strcmp(key->name, name) != 0)
        key++;
    const char *flag = flag_of(files, key);
    if (flag == NULL)
        return attn_files_said(files, name);
    attn_cli_quote(flag, quoted, sizeof quoted);
    for (int f = 0; f < files->n_files; f++) {
        const char *said = attn_file_metadata(files->file[f], name);
        if (said != NULL && !means(files, name, flag, said))
            attn_files_note("--%s %s instead of %s=%.80s in %s", key->flag, quoted, name, said,
                            files->file[f]->path);
    }
    return flag;
}

enum attn_status attn_files_integer(const struct attn_files *files, const char *key, int64_t *value,
                                    struct attn_error *err)
{
    const char *said = attn_files_said(files, key);
    if (said == NULL || !attn_cli_int(said, -((int64_t)1 << 60), (int64_t)1 << 60, value))
        return attn_fault(err, ATTN_EINVAL, files->file[0]->path,
                          "metadata %s '%.40s': a whole number was expected", key,
                          said != NULL ? said : "");
    return ATTN_OK;
}

/* *number stays where neither flag nor file says one. */
static enum attn_status read_number(const struct attn_files *files, const char *key, double *number,
                                    struct attn_error *err)
{
    const char *text = attn_files_setting(files, key);
    if (text != NULL && !(attn_cli_double(text, number) && isfinite(*number)))
        return attn_fail(err, ATTN_EINVAL, "%s '%.40s': a finite number was expected", key, text);
    return ATTN_OK;
}

enum attn_status attn_files_numbers(struct attn_files *files, struct attn_error *err)
{
    struct attn_case *c = &files->c;
    c->scale = (double)NAN;
    enum attn_status status = read_number(files, "scale", &c->scale, err);
    if (status == ATTN_OK && isnan(c->scale))
        attn_files_note("no scale was said: 1/sqrt(d) = %.17g",
                        c->d_key > 0 ? 1 / sqrt((double)c->d_key) : 1);
    return status == ATTN_OK ? read_number(files, "softcap", &c->softcap, err) : status;
}

/* ---- the layout ------------------------------------------------------------------------------ */

/* Heads that are folded into the last axis: nothing but a number says how many. */
static enum attn_status set_heads(struct attn_files *files, int is_folded, struct attn_error *err)
{
    static const char *const key[2] = {"heads", "kv_heads"}, *const flags[2] = {"heads",
                                                                                "kv-heads"};
    const char *flag[2] = {files->request->heads, files->request->kv_heads};
    for (int n = 0; n < 2; n++) {
        if (!is_folded && flag[n] != NULL)
            return attn_fail(err, ATTN_EINVAL, "--%s belongs to --layout BLE, [B,L,H*d]", flags[n]);
        if (!is_folded)
            continue;
        const char *text = attn_files_setting(files, key[n]);
        if (text == NULL && n == 1)
            files->layout.folded[1] = files->layout.folded[0];
        else if (text == NULL || !attn_cli_int(text, 1, INT32_MAX, &files->layout.folded[n]))
            return attn_fail(err, ATTN_EINVAL,
                             "layout B,L,H*d, %s '%.40s': say --%s, a number from 1", key[n],
                             text != NULL ? text : "", flags[n]);
    }
    return ATTN_OK;
}

enum attn_status attn_files_axes(struct attn_files *files, struct attn_error *err)
{
    const char *flag = files->request->layout;
    if (flag != NULL && find_layout(flag) < 0)
        return attn_fail(err, ATTN_EINVAL, "--layout '%.40s': BHLD, BLHD, SBHD, BLE and THD exist",
                         flag);
    const char *said = attn_files_setting(files, "layout");
    int layout = said != NULL ? find_layout(said) : files->claims.layout; /* the same order */
    if (layout < 0)
        return attn_fail(err, ATTN_EINVAL,
                         "metadata layout '%.40s': 'B,H,L,d', 'B,L,H,d', 'L,B,H,d', 'B,L,H*d' and "
                         "'T,H,d' are understood (or say --layout)",
                         said);
    files->layout_words = layouts[layout][1];
    files->layout.by_token = layout != BHLD;
    files->layout.by_sequence = layout == SBHD;
    files->layout.is_packed = layout == THD;
    return set_heads(files, layout == BLE, err);
}

/* ---- the bias -------------------------------------------------------------------------------- */

static enum attn_status read_slopes(struct attn_files *files, struct attn_error *err)
{
    int64_t heads = files->problem.heads, n = 0;
    char *copy = attn_cli_text("%s", files->alibi), *rest = copy, *number;
    enum attn_status status = ATTN_OK;
    files->slope = attn_cli_need(calloc((size_t)heads + 1, sizeof *files->slope));
    while (status == ATTN_OK && (number = strsep(&rest, ",")) != NULL) {
        double slope;
        if (!(attn_cli_double(number, &slope) && isfinite(slope)))
            status = attn_fail(err, ATTN_EINVAL, "alibi: '%.40s' is not a finite slope", number);
        else if (n < heads)
            files->slope[n] = slope;
        n++;
    }
    free(copy);
    if (status == ATTN_OK && n != heads)
        return attn_fail(err, ATTN_EINVAL, "alibi has %lld slopes: one for each of %lld heads",
                         (long long)n, (long long)heads);
    return status;
}

static enum attn_status read_align(const struct attn_files *files, const char *text,
                                   int64_t *offset, struct attn_error *err)
{
    const struct attn_problem *p = &files->problem;
    int64_t bottom_right = p->n_key - p->n_query;
    *offset = 0;
    if (text == NULL && bottom_right != 0)
        return attn_fail(err, ATTN_EINVAL,
                         "ALiBi with Lq = %lld and Lk = %lld: say --alibi-align tl (query 0 at key "
                         "0), br (last at last), or an offset such as +3",
                         (long long)p->n_query, (long long)p->n_key);
    if (text == NULL || strcmp(text, "tl") == 0)
        return ATTN_OK;
    if (strcmp(text, "br") == 0)
        *offset = bottom_right;
    else if ((text[0] != '+' && text[0] != '-') ||
             !attn_cli_int(text + 1, 0, INT64_MAX / 4, offset))
        return attn_fail(err, ATTN_EINVAL,
                         "alibi-align '%.40s': tl, br, or a signed offset such as +3", text);
    else if (text[0] == '-')
        *offset = -*offset;
    return ATTN_OK;
}

/* The slopes of `attnlab vectors`, which writes alibi_slopes=[0.5, 0.25]: as the flag has them. */
static enum attn_status slopes_of_words(struct attn_files *files, struct attn_error *err)
{
    const char *list = attn_files_said(files, "alibi_slopes");
    size_t used = 0, n = list != NULL ? strlen(list) : 0;
    if (n < 2 || list[0] != '[' || list[n - 1] != ']')
        return attn_fault(err, ATTN_EINVAL, files->file[0]->path,
                          "metadata bias=alibi without alibi_slopes such as [0.5, 0.25]");
    files->alibi = attn_cli_need(calloc(n, 1));
    for (size_t c = 1; c + 1 < n; c++)
        if (list[c] != ' ')
            files->alibi[used++] = list[c];
    return ATTN_OK;
}

/* Refuses a bias that cannot stand beside ALiBi, or in packed documents. */
static enum attn_status check_bias(const struct attn_files *files, int has_align,
                                   struct attn_error *err)
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
    return wrong != NULL ? attn_fail(err, ATTN_EINVAL, "%s", wrong) : ATTN_OK;
}

enum attn_status attn_files_bias(struct attn_files *files, struct attn_error *err)
{
    struct attn_bias *bias = &files->problem.bias;
    const char *alibi = attn_files_setting(files, "alibi");
    const char *align = attn_files_setting(files, "alibi-align");
    int by_words = alibi == NULL && files->request->alibi_align == NULL &&
                   attn_files_says(files, "bias", "alibi");
    enum attn_status status = ATTN_OK;
    if (by_words)
        status = attn_files_integer(files, "alibi_offset", &bias->offset, err);
    if (by_words && status == ATTN_OK)
        status = slopes_of_words(files, err);
    else if (alibi != NULL)
        files->alibi = attn_cli_text("%s", alibi);
    if (status == ATTN_OK)
        status = check_bias(files, align != NULL, err);
    if (files->input[ATTN_IN_BIAS] != NULL) {
        bias->kind = ATTN_BIAS_TENSOR; /* its data are not there yet: attn_files_load */
    } else if (files->alibi != NULL && status == ATTN_OK) {
        status = read_slopes(files, err);
        if (status == ATTN_OK && !by_words)
            status = read_align(files, align, &bias->offset, err);
        bias->kind = ATTN_BIAS_ALIBI;
        bias->slope = files->slope;
    }
    return status;
}
