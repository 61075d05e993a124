/* See vector_files.h: results in. */
#include "tests/harness/subject/vector_files.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ref/problem.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/base/files.h"

/* All outputs in one file. */
static const char *const whole[2] = {"result.safetensors", "result.npz"};

/* OUT/NAME/FILE, cut where no system takes so much. */
static const char *result_path(const char *folder, const char *name, const char *file,
                               char path[4096])
{
    snprintf(path, 4096, "%.3500s/%.250s/%.40s", folder, name, file);
    return path;
}

static int is_there(const char *folder, const char *name, const char *file)
{
    char path[4096];
    return access(result_path(folder, name, file, path), F_OK) == 0;
}

int attn_vector_files_has(const char *folder, const char *name)
{
    return is_there(folder, name, "."); /* of a folder alone */
}

int attn_vector_files_done(const char *folder, const char *name, const struct attn_claims *claims,
                           const struct attn_case *c)
{
    const int has_lse = claims->lse != ATTN_PLUGIN_LSE_ABSENT, backward = c->pass == ATTN_BACKWARD;
    const int wanted[ATTN_OUTPUTS] = {1,
                                      has_lse,
                                      backward,
                                      backward,
                                      backward && !c->kv_shared,
                                      c->d_bias,
                                      backward && c->sink != ATTN_CASE_SINK_NONE};
    char file[40];
    if (is_there(folder, name, whole[0]) || is_there(folder, name, whole[1]) ||
        is_there(folder, name, "error.txt") || is_there(folder, name, "changed.txt") ||
        is_there(folder, name, "refused.txt"))
        return 1;
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        snprintf(file, sizeof file, "%s.npy", attn_output_name((enum attn_output)o));
        if (wanted[o] && !is_there(folder, name, file))
            return 0;
    }
    return 1;
}

/* A file of results that is there, or NULL. */
static const char *find_result(const char *folder, const char *name)
{
    static const char *const file[] = {
        "result.safetensors", "result.npz", "o.npy", "lse.npy", "dq.npy", "dk.npy", "dv.npy",
        "dbias.npy",          "dsink.npy"};
    for (size_t n = 0; n < sizeof file / sizeof *file; n++)
        if (is_there(folder, name, file[n]))
            return file[n];
    return NULL;
}

enum attn_vector_files_words attn_vector_files_words(const char *folder, const char *name,
                                                     char *text, size_t size)
{
    char path[4096], line[300] = "";
    struct attn_error err = {0};
    int changed = is_there(folder, name, "changed.txt"); /* which counts for more */
    int failed = !changed && is_there(folder, name, "error.txt");
    if (!changed && !failed && !is_there(folder, name, "refused.txt"))
        return ATTN_WORDS_NONE;
    const char *file = changed ? "changed.txt" : failed ? "error.txt" : "refused.txt";
    const char *result = find_result(folder, name);
    FILE *stream = attn_read_stream(result_path(folder, name, file, path), ATTN_READ_THEIRS, &err);
    if (stream == NULL) {
        snprintf(text, size, "%s", err.text);
        return ATTN_WORDS_ERROR;
    }
    if (fgets(line, sizeof line, stream) == NULL)
        line[0] = '\0';
    fclose(stream);
    line[strcspn(line, "\n")] = '\0';
    attn_clean(line);
    if (changed)
        snprintf(text, size, "inputs were changed in place: %s",
                 line[0] != '\0' ? line : "(which ones is not said)");
    else if (failed)
        snprintf(text, size, "the program says: %s", line[0] != '\0' ? line : "(nothing)");
    else if (result != NULL)
        snprintf(text, size, "refused.txt lies beside %s: a case has results, or is refused",
                 result);
    else
        snprintf(text, size, "%s", line);
    return changed                    ? ATTN_WORDS_CHANGED
           : failed || result != NULL ? ATTN_WORDS_ERROR
                                      : ATTN_WORDS_REFUSED;
}

static enum attn_status check_shape(const struct attn_file *file, const char *name,
                                    const struct attn_file_tensor *got,
                                    const struct attn_file_tensor *want, int is_lse,
                                    struct attn_error *err)
{
    char a[160], b[160];
    struct attn_file_tensor same = *got;
    if (is_lse && got->n_axes == want->n_axes + 1 && got->extent[want->n_axes] == 1)
        same.n_axes--; /* a last axis of one */
    if (attn_file_same_shape(&same, want))
        return ATTN_OK;
    return attn_fault(err, ATTN_EINVAL, file->path, "%s has shape %s: %s is wanted", name,
                      attn_file_shape(got, a), attn_file_shape(want, b));
}

/* Make room for numbers that were stored in another type than the case's, or that are changed on
 * the way: as double, so that nothing is rounded here. */
static enum attn_status make_wide(struct attn_tensor *t, enum attn_dtype stored, int as_is,
                                  struct attn_error *err)
{
    struct attn_tensor wide;
    unsigned broadcast = 0;
    enum attn_status status = ATTN_OK;
    for (int a = 0; a < 4; a++)
        broadcast |= (unsigned)(t->stride[a] == 0 && t->extent[a] > 1) << a;
    if (t->dtype != stored || !as_is) {
        status =
            attn_tensor_alloc(&wide, t->name, ATTN_F64, t->extent, "bhic", 0, 0, broadcast, err);
        if (status != ATTN_OK)
            return status;
        attn_tensor_free(t);
        *t = wide;
    }
    t->stored = stored;
    return status;
}

static void fill_output(const struct attn_claims *claims, const struct attn_problem *p,
                        struct attn_tensor *t, int slot, const struct attn_vector_place *x,
                        const struct attn_file_tensor *got)
{
    int64_t w[4];
    struct attn_cview view = {.data = got->data, .dtype = t->stored};
    memcpy(view.stride, x->stride, sizeof view.stride);
    for (int64_t at[4] = ATTN_START; attn_each(at, x->n);) {
        attn_vector_at(x, at, w); /* no result is of a token without a place */
        double value = attn_cview_get(&view, w[0], w[1], w[2], w[3]);
        attn_tensor_set(t, at[0], at[1], at[2], at[3],
                        slot == ATTN_T_LSE ? attn_claims_lse_in(claims, p, at, value) : value);
    }
}

/* One tensor from the file that has it: result.safetensors or .npz, else NAME.npy. */
static enum attn_status read_output(const char *folder, const char *in, struct attn_file *all,
                                    int slot, const struct attn_claims *claims,
                                    const struct attn_vector_rows *rows, struct attn_setup *s,
                                    struct attn_error *err)
{
    char path[4096], file_name[40];
    struct attn_tensor *t = &s->tensor[slot];
    const char *name = t->name;
    struct attn_file one = {0};
    struct attn_file *file = all;
    struct attn_file_tensor *got;
    enum attn_dtype stored = ATTN_F64;
    const struct attn_vector_place x = attn_vector_files_place(claims, rows, t, slot);
    int as_is = slot != ATTN_T_LSE || claims->lse != ATTN_PLUGIN_LSE_2;
    enum attn_status status = ATTN_OK;
    const char *hint = slot == ATTN_T_LSE ? "; declare \"lse\": \"absent\"?" : "";
    if (all->path == NULL) {
        snprintf(file_name, sizeof file_name, "%s.npy", name);
        file = &one;
        if (!is_there(folder, in, file_name))
            return attn_fail(err, ATTN_EINVAL, "%s is missing%s", file_name, hint);
        status = attn_file_open(result_path(folder, in, file_name, path), &one, err);
    }
    if (status != ATTN_OK)
        return status;
    got = attn_file_find(file, file == all ? name : "");
    if (got == NULL)
        status = attn_fault(err, ATTN_EINVAL, file->path, "has no tensor %s%s", name, hint);
    else
        status = check_shape(file, name, got, &x.shape, slot == ATTN_T_LSE, err);
    if (status == ATTN_OK && !attn_file_dtype_storage(got->dtype, &stored))
        status = attn_fault(err, ATTN_EINVAL, file->path,
                            "%s is stored as %s: F64, F32, BF16 and F16 would work", name,
                            attn_file_dtype_name(got->dtype));
    if (status == ATTN_OK)
        status = attn_file_load(file, got, err);
    if (status == ATTN_OK)
        status = make_wide(t, stored, as_is, err);
    if (status == ATTN_OK)
        fill_output(claims, &s->problem, t, slot, &x, got);
    attn_file_close(&one);
    return status;
}

/* Folder and case are said beside it, and often gone when it is read. */
static void leave_out(const char *base, struct attn_error *err)
{
    size_t n = strlen(base);
    if (strncmp(err->text, base, n) == 0)
        memmove(err->text, err->text + n, strlen(err->text + n) + 1);
}

/* Results that stay unread: of an output that the case does not want, or given twice. */
static enum attn_status check_unread(const char *folder, const char *name,
                                     const struct attn_file *all, unsigned slots,
                                     const struct attn_setup *s, struct attn_error *err)
{
    char file[40];
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        const char *output = attn_output_name((enum attn_output)o);
        snprintf(file, sizeof file, "%s.npy", output);
        int alone = is_there(folder, name, file);
        int inside = all->path != NULL && attn_file_find(all, output) != NULL;
        if (!(slots >> attn_slot_of((enum attn_output)o) & 1u) && (alone || inside))
            return attn_fail(
                err, ATTN_EINVAL, "%s is given, and %s: nothing is left unjudged; leave it out%s",
                output,
                o == ATTN_LSE ? "declared \"lse\": \"absent\"" : "this case does not ask for it",
                o == ATTN_LSE ? ", or declare \"e\" or \"2\"" : "");
        if (alone && all->path != NULL)
            return attn_fault(err, ATTN_EINVAL, all->path,
                              "lies beside %s: results are one file, or one for each output", file);
    }
    if (all->path != NULL && is_there(folder, name, whole[0]) && is_there(folder, name, whole[1]))
        return attn_fault(err, ATTN_EINVAL, all->path, "lies beside result.npz: one of them");
    for (int n = 0; n < all->n_tensors; n++) {
        int slot = 0;
        while (slot < ATTN_SLOTS &&
               (!(slots >> slot & 1u) || strcmp(s->tensor[slot].name, all->tensor[n].name) != 0))
            slot++;
        if (slot == ATTN_SLOTS)
            return attn_fault(err, ATTN_EINVAL, all->path,
                              "has a tensor %.60s, which is not asked for; leave it out",
                              all->tensor[n].name);
    }
    return ATTN_OK;
}

enum attn_status attn_vector_files_take(const char *folder, const char *name,
                                        const struct attn_claims *claims, unsigned slots,
                                        struct attn_setup *s, struct attn_error *err)
{
    char path[4096];
    struct attn_file all = {0};
    struct attn_vector_rows rows;
    const struct attn_vector_tokens tokens = attn_vector_tokens_of(s);
    enum attn_status status = attn_vector_rows_open(claims, &tokens, &rows, err);
    for (int n = 0; n < 2 && status == ATTN_OK && all.path == NULL; n++)
        if (is_there(folder, name, whole[n]))
            status = attn_file_open(result_path(folder, name, whole[n], path), &all, err);
    if (status == ATTN_OK)
        status = check_unread(folder, name, &all, slots, s, err);
    for (int slot = 0; slot < ATTN_SLOTS && status == ATTN_OK; slot++)
        if (slots >> slot & 1u)
            status = read_output(folder, name, &all, slot, claims, &rows, s, err);
    attn_vector_rows_close(&rows);
    attn_file_close(&all);
    if (status != ATTN_OK)
        leave_out(result_path(folder, name, "", path), err);
    return status;
}

enum attn_status attn_vector_files_read(const char *folder, const char *name,
                                        const struct attn_claims *claims, struct attn_setup *s,
                                        struct attn_error *err)
{
    unsigned slots = 0;
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        if (attn_vector_files_wants(claims, s, (enum attn_output)o))
            slots |= 1u << attn_slot_of((enum attn_output)o);
    enum attn_status status = attn_vector_files_take(folder, name, claims, slots, s, err);
    if (status == ATTN_OK && claims->lse == ATTN_PLUGIN_LSE_ABSENT) {
        struct attn_forward f = attn_setup_forward(s);
        status = attn_claims_fill_lse(&s->problem, &f.q, &f.k, &f.v, &f.lse, err);
    }
    return status;
}

void attn_vector_files_judge(const struct attn_claims *claims, const struct attn_setup *s,
                             struct attn_result *r)
{
    struct attn_precision precision;
    attn_claims_precision(claims, &s->problem, &precision);
    attn_judge(s, &precision, NULL, s->given.pass, r);
    if (claims->lse == ATTN_PLUGIN_LSE_ABSENT)
        attn_result_drop_lse(r);
}
