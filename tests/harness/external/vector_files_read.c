/* Reading manifests and results: see vector_files.h. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ref/problem.h"
#include "tests/harness/cases/packed.h"
#include "tests/harness/external/vector_files.h"
#include "tests/harness/files/fileio.h"
#include "tests/harness/files/files.h"

enum { MAX_MANIFEST = 64 << 20, MAX_CASES = 100000 };

/* ---- manifests ------------------------------------------------------------------------------- */

/* A name becomes part of a path: plain words only. */
static int is_plain(const char *name)
{
    return name[0] != '\0' && name[0] != '.' && strlen(name) < 200 &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.+") ==
               strlen(name);
}

static enum attn_status read_entries(const char *path, const json_t *root,
                                     struct attn_vector_files *x, struct attn_error *err)
{
    const json_t *cases = json_object_get(root, "cases");
    size_t n = json_array_size(cases);
    if (!json_is_array(cases) || n > MAX_CASES)
        return attn_fault(err, ATTN_EINVAL, path, "has no list \"cases\"");
    x->entry = calloc(n + 1, sizeof *x->entry);
    if (x->entry == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for %zu cases", n);
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(cases, i);
        const char *name = json_string_value(json_object_get(one, "name"));
        const char *text = json_string_value(json_object_get(one, "case"));
        if (name == NULL || text == NULL || !is_plain(name))
            return attn_fault(err, ATTN_EINVAL, path,
                              "case %zu lacks a plain \"name\" or a "
                              "\"case\"",
                              i + 1);
        x->entry[i].name = strdup(name);
        x->entry[i].text = strdup(text);
        x->n++;
        if (x->entry[i].name == NULL || x->entry[i].text == NULL)
            return attn_fail(err, ATTN_ENOMEM, "no memory for %zu cases", n);
    }
    return ATTN_OK;
}

static enum attn_status read_manifest(const char *path, const char *text,
                                      struct attn_vector_files *x, struct attn_error *err)
{
    json_error_t why;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &why);
    if (root == NULL)
        return attn_fault(err, ATTN_EINVAL, path, "line %d is not JSON: %.160s", why.line,
                          why.text);
    enum attn_status status = ATTN_OK;
    if (json_integer_value(json_object_get(root, "attnlab_vectors")) != 1)
        status =
            attn_fault(err, ATTN_EINVAL, path, "is not a manifest of attnlab vectors, format 1");
    char *claims = json_dumps(json_object_get(root, "claims"), JSON_ENCODE_ANY);
    if (status == ATTN_OK && claims == NULL)
        status = attn_fault(err, ATTN_EINVAL, path, "has no \"claims\"");
    if (status == ATTN_OK)
        status = attn_claims_parse(path, claims, &x->claims, err);
    if (status == ATTN_OK)
        status = read_entries(path, root, x, err);
    free(claims);
    json_decref(root);
    return status;
}

enum attn_status attn_vector_files_open(const char *folder, struct attn_vector_files *x,
                                        struct attn_error *err)
{
    char path[4096], *text;
    memset(x, 0, sizeof *x);
    snprintf(path, sizeof path, "%.4000s/manifest.json", folder);
    enum attn_status status = attn_read_text(path, ATTN_READ_GIVEN, MAX_MANIFEST, &text, err);
    if (status == ATTN_OK)
        status = read_manifest(path, text, x, err);
    free(text);
    if (status != ATTN_OK)
        attn_vector_files_close(x);
    return status;
}

void attn_vector_files_close(struct attn_vector_files *x)
{
    for (int n = 0; n < x->n; n++) {
        free(x->entry[n].name);
        free(x->entry[n].text);
    }
    free(x->entry);
    memset(x, 0, sizeof *x);
}

/* ---- results --------------------------------------------------------------------------------- */

int attn_vector_files_has(const char *folder, const char *name)
{
    char path[4096];
    struct stat info;
    snprintf(path, sizeof path, "%.3500s/%.250s", folder, name);
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static int is_there(const char *folder, const char *name, const char *file)
{
    char path[4096];
    snprintf(path, sizeof path, "%.3500s/%.250s/%.40s", folder, name, file);
    return access(path, F_OK) == 0;
}

int attn_vector_files_done(const char *folder, const char *name, const struct attn_claims *claims,
                           const struct attn_case *c)
{
    const int wanted[ATTN_OUTPUTS] = {1,
                                      claims->lse != ATTN_PLUGIN_LSE_ABSENT,
                                      c->pass == ATTN_BACKWARD,
                                      c->pass == ATTN_BACKWARD,
                                      c->pass == ATTN_BACKWARD,
                                      c->d_bias};
    static const char *const whole[] = {"result.safetensors", "result.npz", "error.txt"};
    char file[40];
    for (int n = 0; n < 3; n++)
        if (is_there(folder, name, whole[n]))
            return 1;
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        snprintf(file, sizeof file, "%s.npy", attn_output_name((enum attn_output)o));
        if (wanted[o] && !is_there(folder, name, file))
            return 0;
    }
    return 1;
}

int attn_vector_files_sorry(const char *folder, const char *name, char *text, size_t size)
{
    char path[4096], line[300] = "";
    struct attn_error err = {0};
    snprintf(path, sizeof path, "%.3500s/%.250s/error.txt", folder, name);
    if (access(path, F_OK) != 0)
        return 0;
    FILE *file = attn_read_stream(path, ATTN_READ_THEIRS, &err);
    if (file == NULL) {
        snprintf(text, size, "%s", err.text);
        return 1;
    }
    if (fgets(line, sizeof line, file) == NULL)
        line[0] = '\0';
    fclose(file);
    line[strcspn(line, "\n")] = '\0';
    attn_clean(line);
    snprintf(text, size, "the program says: %s", line[0] != '\0' ? line : "(nothing)");
    return 1;
}

static enum attn_packed_kind kind_of(enum attn_output o)
{
    return o == ATTN_LSE     ? ATTN_PACKED_LSE
           : o == ATTN_DBIAS ? ATTN_PACKED_BIAS
                             : ATTN_PACKED_TOKENS;
}

/* The shape that is wanted of an output, as a file tensor, and as n; broadcast axes of a bias count
 * once. */
static void shape_wanted(const struct attn_claims *claims, const struct attn_tensor *t,
                         enum attn_output o, int64_t n[4], struct attn_file_tensor *want)
{
    for (int a = 0; a < 4; a++)
        n[a] = o == ATTN_DBIAS && t->stride[a] == 0 && t->extent[a] > 1 ? 1 : t->extent[a];
    *want = (struct attn_file_tensor){0};
    attn_packed_extents(claims, kind_of(o), n, want);
}

static enum attn_status check_shape(const struct attn_file *file, const char *name,
                                    const struct attn_file_tensor *got,
                                    const struct attn_file_tensor *want, int is_lse,
                                    struct attn_error *err)
{
    char a[160], b[160];
    int same = got->n_axes == want->n_axes ||
               (is_lse && got->n_axes == want->n_axes + 1 && got->extent[want->n_axes] == 1);
    for (int axis = 0; axis < want->n_axes && same; axis++)
        same = got->extent[axis] == want->extent[axis];
    if (!same)
        return attn_fault(err, ATTN_EINVAL, file->path, "%s has shape %s: %s is wanted", name,
                          attn_file_shape(got, a), attn_file_shape(want, b));
    return ATTN_OK;
}

/* Make room for numbers that were stored in another type than the case's, or that are changed on
 * the way: as double, so that nothing is rounded here. */
static enum attn_status make_room(struct attn_tensor *t, enum attn_dtype stored, int as_is,
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

static void fill_output(const struct attn_claims *claims, struct attn_tensor *t, enum attn_output o,
                        const int64_t n[4], const struct attn_file_tensor *got)
{
    int64_t width = o == ATTN_LSE ? 1 : n[3];
    const struct attn_cview view = {got->data, t->stored, {0, 0, 1, 1}};
    for (int64_t b = 0; b < n[0]; b++)
        for (int64_t h = 0; h < n[1]; h++)
            for (int64_t i = 0; i < n[2]; i++)
                for (int64_t c = 0; c < width; c++) {
                    int64_t row = attn_packed_row(claims, kind_of(o), n, b, h, i);
                    double x = attn_cview_get(&view, 0, 0, row * width, c);
                    attn_tensor_set(t, b, h, i, c,
                                    o == ATTN_LSE ? attn_claims_lse_in(claims, x) : x);
                }
}

/* One output from the file that has it: result.safetensors or .npz, else NAME.npy. */
static enum attn_status read_output(const char *base, struct attn_file *all, enum attn_output o,
                                    const struct attn_claims *claims, struct attn_setup *s,
                                    struct attn_error *err)
{
    char path[4096];
    const char *name = attn_output_name(o);
    struct attn_tensor *t = &s->tensor[ATTN_T_O + o];
    struct attn_file one = {0};
    struct attn_file *file = all;
    struct attn_file_tensor want, *got;
    enum attn_dtype stored = ATTN_F64;
    int64_t n[4];
    int as_is = o != ATTN_LSE || claims->lse != ATTN_PLUGIN_LSE_2;
    enum attn_status status = ATTN_OK;
    const char *hint = o == ATTN_LSE ? "; declare \"lse\": \"absent\"?" : "";
    if (all->path == NULL) {
        snprintf(path, sizeof path, "%s/%s.npy", base, name);
        file = &one;
        if (access(path, F_OK) != 0)
            return attn_fail(err, ATTN_EINVAL, "%s.npy is missing%s", name, hint);
        status = attn_file_open(path, &one, err);
    }
    if (status != ATTN_OK)
        return status;
    got = attn_file_find(file, file == all ? name : "");
    shape_wanted(claims, t, o, n, &want);
    if (got == NULL)
        status = attn_fault(err, ATTN_EINVAL, file->path, "has no tensor %s%s", name, hint);
    else
        status = check_shape(file, name, got, &want, o == ATTN_LSE, err);
    if (status == ATTN_OK && !attn_file_dtype_storage(got->dtype, &stored))
        status = attn_fault(err, ATTN_EINVAL, file->path,
                            "%s is stored as %s: F64, F32, BF16 and F16 would work", name,
                            attn_file_dtype_name(got->dtype));
    if (status == ATTN_OK)
        status = attn_file_load(file, got, err);
    if (status == ATTN_OK)
        status = make_room(t, stored, as_is, err);
    if (status == ATTN_OK)
        fill_output(claims, t, o, n, got);
    attn_file_close(&one);
    return status;
}

/* Folder and case are said beside it, and often gone when it is read. */
static void leave_out(const char *base, struct attn_error *err)
{
    size_t n = strlen(base);
    if (strncmp(err->text, base, n) == 0 && err->text[n] == '/')
        memmove(err->text, err->text + n + 1, strlen(err->text + n + 1) + 1);
}

static int is_wanted(const struct attn_claims *claims, const struct attn_setup *s,
                     enum attn_output o)
{
    return s->tensor[ATTN_T_O + o].map != NULL &&
           !(o == ATTN_LSE && claims->lse == ATTN_PLUGIN_LSE_ABSENT);
}

/* Results that nobody would look at: of an output that the case does not want, or given twice. */
static enum attn_status check_unread(const char *folder, const char *name,
                                     const struct attn_file *all, const struct attn_claims *claims,
                                     const struct attn_setup *s, struct attn_error *err)
{
    char file[40];
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        const char *output = attn_output_name((enum attn_output)o);
        snprintf(file, sizeof file, "%s.npy", output);
        int alone = is_there(folder, name, file);
        int inside = all->path != NULL && attn_file_find(all, output) != NULL;
        if (!is_wanted(claims, s, (enum attn_output)o) && (alone || inside))
            return attn_fail(
                err, ATTN_EINVAL, "%s is given, and %s: nothing is left unjudged; leave it out%s",
                output,
                o == ATTN_LSE ? "declared \"lse\": \"absent\"" : "this case does not ask for it",
                o == ATTN_LSE ? ", or declare \"e\" or \"2\"" : "");
        if (alone && all->path != NULL)
            return attn_fault(err, ATTN_EINVAL, all->path,
                              "lies beside %s: results are one file, or one for each output", file);
    }
    if (all->path != NULL && is_there(folder, name, "result.safetensors") &&
        is_there(folder, name, "result.npz"))
        return attn_fault(err, ATTN_EINVAL, all->path, "lies beside result.npz: one of them");
    return ATTN_OK;
}

enum attn_status attn_vector_files_read(const char *folder, const char *name,
                                        const struct attn_claims *claims, struct attn_setup *s,
                                        struct attn_error *err)
{
    char base[3800], path[4096];
    struct attn_file all = {0};
    enum attn_status status = ATTN_OK;
    snprintf(base, sizeof base, "%.3500s/%.250s", folder, name);
    snprintf(path, sizeof path, "%s/result.safetensors", base);
    if (access(path, F_OK) != 0)
        snprintf(path, sizeof path, "%s/result.npz", base);
    if (access(path, F_OK) == 0)
        status = attn_file_open(path, &all, err);
    if (status == ATTN_OK)
        status = check_unread(folder, name, &all, claims, s, err);
    for (int o = 0; o < ATTN_OUTPUTS && status == ATTN_OK; o++)
        if (is_wanted(claims, s, (enum attn_output)o))
            status = read_output(base, &all, (enum attn_output)o, claims, s, err);
    attn_file_close(&all);
    if (status != ATTN_OK)
        leave_out(base, err);
    else if (claims->lse == ATTN_PLUGIN_LSE_ABSENT) {
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
        attn_claims_drop_lse(r);
}
