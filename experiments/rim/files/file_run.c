/* See file_problem.h: price, load, compute, write. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "experiments/cli/cli.h"
#include "experiments/rim/files/file_problem.h"
#include "ref/ledger.h"
#include "ref/problem.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/base/folder.h"

/* ---- the price ---------------------------------------------------------------------------- */

/* All ranks of a pass together: they live in this one process. */
static enum attn_status price_pass(const struct attn_files *files, enum attn_pass pass,
                                   struct attn_cost *sum, struct attn_error *err)
{
    int ranks = attn_ranks(files->spec.impl, &files->spec.options);
    enum attn_status status = ATTN_OK;
    struct attn_cost one;
    for (int rank = 0; rank < ranks && status == ATTN_OK; rank++) {
        status = attn_price(files->spec.impl, &files->spec.options, &files->problem, pass, rank,
                            &one, err);
        for (int a = 0; status == ATTN_OK && a < one.n_live; a++)
            status = attn_cost_join(sum, &one.live[a], err);
    }
    return status;
}

/* The truth about an output, and its bounds: want, gauge, bound twice; for a sum over rows three
 * sums more. */
static enum attn_status price_truth(const struct attn_files *files,
                                    const struct attn_file_tensor *output, enum attn_file_axes kind,
                                    struct attn_cost *sum, struct attn_error *err)
{
    int is_sum = kind == ATTN_AXES_KEYS || kind >= ATTN_AXES_PAIRS;
    int64_t rows = kind == ATTN_AXES_KEYS ? files->problem.n_key : files->problem.n_query;
    int64_t n = output->bytes / attn_file_dtype_size(output->dtype);
    if (kind != ATTN_AXES_PAIRS && kind != ATTN_AXES_HEADS)
        n = n / (rows > 0 ? rows : 1) * attn_files_compared(files, rows);
    return attn_cost_add(sum, "truth and bounds", 1, n, is_sum ? 56 : 32, err);
}

/* An output, and what a comparison of it needs besides. */
static enum attn_status price_output(const struct attn_files *files, enum attn_output o,
                                     struct attn_cost *sum, struct attn_error *err)
{
    struct attn_file_tensor output;
    int computed = attn_files_computes(files, o);
    int compared = o == ATTN_DBIAS ? attn_files_judges_bias(files) : computed;
    enum attn_status status = ATTN_OK;
    if (!computed && !compared)
        return ATTN_OK;
    attn_files_output_shape(files, o, &output);
    if (computed)
        status = attn_cost_add(sum, "outputs", 1, output.bytes, 1, err);
    if (!files->request->compare || !compared)
        return status;
    if (status == ATTN_OK && files->stored[o] != NULL)
        status =
            attn_cost_add(sum, "results in the file", 1, files->stored[o]->tensor->bytes, 1, err);
    return status == ATTN_OK ? price_truth(files, &output, attn_file_axes_of(o), sum, err) : status;
}

/* Inputs that are still to be loaded, and outputs. */
static enum attn_status price_tensors(const struct attn_files *files, struct attn_cost *sum,
                                      struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    for (int i = 0; i < ATTN_IN_INPUTS && status == ATTN_OK; i++)
        if (files->input[i] != NULL && files->input[i]->tensor->data == NULL &&
            !(i == ATTN_IN_V && files->c.kv_shared))
            status = attn_cost_add(sum, "inputs", 1, files->input[i]->tensor->bytes, 1, err);
    for (int o = 0; o < ATTN_OUTPUTS && status == ATTN_OK; o++)
        status = price_output(files, (enum attn_output)o, sum, err);
    return status;
}

static int by_bytes(const void *a, const void *b)
{
    const struct attn_account *x = a, *y = b;
    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

enum attn_status attn_files_price(const struct attn_files *files, struct attn_error *err)
{
    struct attn_cost cost = {0}, backward = {0};
    char text[3][32], largest[192] = "";
    enum attn_status status = price_pass(files, ATTN_FORWARD, &cost, err);
    if (status == ATTN_OK && files->c.pass == ATTN_BACKWARD)
        status = price_pass(files, ATTN_BACKWARD, &backward, err);
    if (backward.peak_bytes > cost.peak_bytes)
        cost = backward;
    if (status == ATTN_OK)
        status = price_tensors(files, &cost, err);
    int64_t available = attn_cli_memory_available();
    if (status != ATTN_OK || cost.peak_bytes <= available)
        return status;
    qsort(cost.live, (size_t)cost.n_live, sizeof *cost.live, by_bytes);
    for (int a = 0; a < cost.n_live && a < 3; a++)
        attn_append(largest, sizeof largest, "%s%s %s", a > 0 ? ", " : "", cost.live[a].name,
                    attn_cli_bytes(cost.live[a].bytes, text[0]));
    return attn_fail(err, ATTN_ENOMEM,
                     "%.80s needs %s (%s) and this machine can give %s: nothing was allocated; "
                     "attnlab price shows what others need",
                     files->request->spec, attn_cli_bytes(cost.peak_bytes, text[1]), largest,
                     attn_cli_bytes(available, text[2]));
}

/* ---- computing ---------------------------------------------------------------------------- */

static enum attn_status alloc_outputs(struct attn_files *files, struct attn_error *err)
{
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        struct attn_file_tensor *t = &files->output[o];
        if (!attn_files_computes(files, (enum attn_output)o))
            continue;
        attn_files_output_shape(files, (enum attn_output)o, t);
        t->data = aligned_alloc(64, ((size_t)t->bytes / 64 + 1) * 64);
        if (t->data == NULL)
            return attn_fail(err, ATTN_ENOMEM, "no memory for output %s of %lld bytes", t->name,
                             (long long)t->bytes);
    }
    return ATTN_OK;
}

static struct attn_view output_view(const struct attn_files *files, enum attn_output output)
{
    if (files->output[output].data == NULL)
        return (struct attn_view){0};
    return attn_files_view(files, &files->output[output], attn_file_axes_of(output));
}

struct attn_forward attn_files_forward(const struct attn_files *files)
{
    return (struct attn_forward){.q = attn_files_input(files, ATTN_IN_Q),
                                 .k = attn_files_input(files, ATTN_IN_K),
                                 .v = attn_files_input(files, ATTN_IN_V),
                                 .o = output_view(files, ATTN_O),
                                 .lse = output_view(files, ATTN_LSE)};
}

struct attn_backward attn_files_backward(const struct attn_files *files)
{
    return (struct attn_backward){
        .q = attn_files_input(files, ATTN_IN_Q),
        .k = attn_files_input(files, ATTN_IN_K),
        .v = attn_files_input(files, ATTN_IN_V),
        .d_o = attn_files_input(files, ATTN_IN_DO),
        .d_lse = attn_files_input(files, ATTN_IN_DLSE),
        .o = attn_files_cview(files, &files->output[ATTN_O], ATTN_AXES_QUERIES),
        .lse = attn_files_cview(files, &files->output[ATTN_LSE], ATTN_AXES_ROWS),
        .dq = output_view(files, ATTN_DQ),
        .dk = output_view(files, ATTN_DK),
        .dv = output_view(files, files->c.kv_shared ? ATTN_DK : ATTN_DV),
        .dbias = output_view(files, ATTN_DBIAS),
        .dsink = output_view(files, ATTN_DSINK)};
}

enum attn_status attn_files_begin(struct attn_files *files, struct attn_error *err)
{
    enum attn_status status = attn_files_load(files, err);
    return status == ATTN_OK ? alloc_outputs(files, err) : status;
}

enum attn_status attn_files_run(struct attn_files *files, struct attn_error *err)
{
    struct attn_ledger *ledger = attn_cli_need(malloc(sizeof *ledger));
    struct attn_saved saved = {0};
    struct attn_ctx ctx = {.ledger = ledger,
                           .options = &files->spec.options,
                           .error = err,
                           .log = files->log,
                           .saved = files->c.pass == ATTN_BACKWARD ? &saved : NULL};
    attn_ledger_init(ledger, NULL);
    enum attn_status status = attn_files_begin(files, err);
    if (status == ATTN_OK) {
        const struct attn_forward t = attn_files_forward(files);
        status = attn_run_forward(files->spec.impl, &ctx, &files->problem, &t);
    }
    if (status == ATTN_OK && files->c.pass == ATTN_BACKWARD) {
        const struct attn_backward t = attn_files_backward(files);
        status = attn_run_backward(files->spec.impl, &ctx, &files->problem, &t);
    }
    attn_ledger_clear(ledger);
    free(ledger);
    return status;
}

/* ---- writing ------------------------------------------------------------------------------ */

static char *path_of(const struct attn_files *files, const char *output)
{
    const char *out = files->request->out;
    return files->request->format > 0 ? attn_cli_text("%s/%s.npy", out, output)
                                      : attn_cli_text("%s/result.safetensors", out);
}

enum attn_status attn_files_may_write(const struct attn_files *files, struct attn_error *err)
{
    struct attn_file_tensor t;
    enum attn_status status = attn_folder_make(files->request->out, err);
    for (int o = 0; o < ATTN_OUTPUTS && status == ATTN_OK; o++)
        if (attn_files_computes(files, (enum attn_output)o)) {
            attn_files_output_shape(files, (enum attn_output)o, &t);
            char *path = path_of(files, t.name);
            status = attn_save_check(path, err);
            free(path);
        }
    return status;
}

static enum attn_status write_npy(const struct attn_files *files,
                                  const struct attn_file_tensor *output, int n_outputs,
                                  struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    for (int o = 0; o < n_outputs && status == ATTN_OK; o++) {
        char *path = path_of(files, output[o].name);
        status = attn_npy_write(path, &output[o], err);
        free(path);
    }
    return status;
}

/* With what was computed, so that a result explains itself. */
static enum attn_status write_safetensors(const struct attn_files *files,
                                          const struct attn_file_tensor *output, int n_outputs,
                                          struct attn_error *err)
{
    enum { MOST = 13, TEXT = 40 };
    const struct attn_bias *bias = &files->problem.bias;
    const int64_t *folded = files->layout.folded;
    char scale[TEXT], softcap[TEXT], offset[TEXT], heads[TEXT], kv_heads[TEXT], dv_view[TEXT];
    snprintf(scale, TEXT, "%.17g", files->problem.scale);
    snprintf(softcap, TEXT, "%.17g", files->problem.softcap);
    snprintf(offset, TEXT, "%+lld", (long long)bias->offset);
    snprintf(dv_view, TEXT, "%lld", (long long)files->problem.d_value);
    snprintf(heads, TEXT, "%lld", (long long)folded[0]);
    snprintf(kv_heads, TEXT, "%lld", (long long)folded[1]);
    const struct {
        int is_said;
        struct attn_file_pair pair;
    } all[MOST] = {{1, {"spec", files->request->spec}},
                   {1, {"mask", files->mask_text}},
                   {1, {"scale", scale}},
                   {1, {"layout", files->layout_words}},
                   {1, {"pass", attn_pass_name(files->c.pass)}},
                   {1, {"lse", "e"}}, /* whatever the input declares of others */
                   {1, {"empty_lse", "-inf"}},
                   {folded[0] > 0, {"heads", heads}},
                   {folded[0] > 0, {"kv_heads", kv_heads}},
                   {files->problem.kv_shared, {"dv_view", dv_view}},
                   {files->problem.softcap > 0, {"softcap", softcap}},
                   {bias->kind == ATTN_BIAS_ALIBI, {"alibi", files->alibi}},
                   {bias->kind == ATTN_BIAS_ALIBI, {"alibi-align", offset}}};
    struct attn_file_pair pair[MOST];
    int n = 0;
    for (int i = 0; i < MOST; i++)
        if (all[i].is_said)
            pair[n++] = all[i].pair;
    char *path = path_of(files, "");
    enum attn_status status = attn_safetensors_write(path, output, n_outputs, pair, n, err);
    free(path);
    return status;
}

enum attn_status attn_files_write(const struct attn_files *files, struct attn_error *err)
{
    struct attn_file_tensor output[ATTN_OUTPUTS]; /* those that are computed */
    int n_outputs = 0;
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        if (files->output[o].data != NULL)
            output[n_outputs++] = files->output[o];
    return files->request->format > 0 ? write_npy(files, output, n_outputs, err)
                                      : write_safetensors(files, output, n_outputs, err);
}
