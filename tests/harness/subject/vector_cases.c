/* See vector_files.h: cases out. */
#include "tests/harness/subject/vector_files.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ref/problem.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/base/files.h"
#include "tests/harness/base/folder.h"
#include "tests/harness/base/layout.h"
#include "tests/harness/subject/rank_steps.h"

enum { FORMAT = 1, MAX_TENSORS = 13, MAX_PAIRS = 40, MAX_MANIFEST = 64 << 20, MAX_CASES = 100000 };

/* ---- numbers --------------------------------------------------------------------------------- */

int attn_vector_files_wants(const struct attn_claims *claims, const struct attn_setup *s,
                            enum attn_output o)
{
    return s->tensor[ATTN_T_O + o].map != NULL &&
           !(o == ATTN_LSE && claims->lse == ATTN_PLUGIN_LSE_ABSENT);
}

/* A key that does not apply is there, and null: a program may look at it without asking first. */
static json_t *integer_or_null(int applies, int64_t value)
{
    return applies ? json_integer(value) : json_null();
}

static json_t *describe_mask(const struct attn_claims *claims, const struct attn_problem *p)
{
    static const char *const word[] = {"none", "band", "dense"};
    struct attn_given_mask given;
    enum attn_claims_mask how = attn_claims_mask(claims, p, &given);
    const struct attn_band band = given.band;
    int is_band = how == ATTN_CLAIMS_BAND;
    int self = claims->window == ATTN_PLUGIN_WINDOW_WITH_SELF;
    return json_pack("{s:s, s:s?, s:o, s:o, s:o, s:o}", "mask", word[how], "mask_text",
                     p->mask != NULL ? attn_mask_text(p->mask) : NULL, "causal",
                     integer_or_null(is_band, band.right == self), "offset",
                     integer_or_null(is_band && !given.is_ends, band.offset), "window_left",
                     integer_or_null(is_band, band.left), "window_right",
                     integer_or_null(is_band, band.right));
}

static json_t *describe_bias(const struct attn_problem *p)
{
    static const char *const kind[] = {"none", "tensor", "alibi"};
    int is_alibi = p->bias.kind == ATTN_BIAS_ALIBI;
    json_t *slopes = is_alibi ? json_array() : json_null();
    for (int64_t h = 0; h < p->heads && is_alibi; h++)
        json_array_append_new(slopes, json_real(p->bias.slope[h]));
    return json_pack("{s:s, s:o, s:o}", "bias", kind[p->bias.kind], "alibi_slopes", slopes,
                     "alibi_offset", integer_or_null(is_alibi, p->bias.offset));
}

static json_t *list_outputs(const struct attn_claims *claims, const struct attn_setup *s)
{
    json_t *list = json_array();
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        if (attn_vector_files_wants(claims, s, (enum attn_output)o))
            json_array_append_new(list, json_string(attn_output_name((enum attn_output)o)));
    return list;
}

/* Every number of the problem: one object, for the manifest and for the file's metadata. */
static json_t *describe(const char *name, const struct attn_claims *claims,
                        const struct attn_setup *s)
{
    const struct attn_problem *p = &s->problem;
    char text[ATTN_CASE_TEXT];
    attn_case_print(&s->given, text);
    json_t *object = json_pack("{s:s, s:s, s:s, s:s}", "name", name, "case", text, "dtype",
                               attn_dtype_name(p->dtype), "pass", attn_pass_name(s->given.pass));
    attn_claims_conventions(claims, object);
    json_t *const part[] = {
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f}", "batch", (json_int_t)p->batch,
                  "heads", (json_int_t)p->heads, "kv_heads", (json_int_t)p->kv_heads, "n_query",
                  (json_int_t)p->n_query, "n_key", (json_int_t)p->n_key, "d_key",
                  (json_int_t)p->d_key, "d_value", (json_int_t)p->d_value, "scale", p->scale,
                  "softcap", p->softcap),
        describe_mask(claims, p), describe_bias(p)};
    for (int n = 0; n < 3; n++) {
        json_object_update(object, part[n]);
        json_decref(part[n]);
    }
    json_object_set_new(object, "dv_view", integer_or_null(p->kv_shared, p->d_value));
    json_object_set_new(object, "outputs", list_outputs(claims, s));
    return object;
}

/* The same as safetensors metadata, whose values are texts: words as they are, the rest as JSON;
 * what is null is left out. */
static int metadata_of(json_t *object, struct attn_file_pair *pair, enum attn_status *status,
                       struct attn_error *err)
{
    const char *key;
    json_t *value;
    int n = 0;
    json_object_foreach(object, key, value)
    {
        if (n == MAX_PAIRS)
            break;
        if (json_is_null(value))
            continue;
        pair[n].key = key;
        pair[n].value = json_is_string(value) ? strdup(json_string_value(value))
                                              : json_dumps(value, JSON_ENCODE_ANY);
        if (pair[n++].value == NULL)
            *status = attn_fail(err, ATTN_ENOMEM, "no memory for metadata");
    }
    return n;
}

/* ---- files ----------------------------------------------------------------------------------- */

enum attn_status attn_vector_files_begin(const char *folder, const struct attn_claims *claims,
                                         struct attn_vector_files_writer *writer,
                                         struct attn_error *err)
{
    *writer = (struct attn_vector_files_writer){.folder = folder, .claims = claims};
    char manifest[4096];
    snprintf(manifest, sizeof manifest, "%.4000s/manifest.json", folder);
    enum attn_status status = attn_folder_make(folder, err);
    if (status == ATTN_OK)
        status = attn_save_check(manifest, err);
    if (status != ATTN_OK)
        return status;
    writer->cases = json_array();
    return writer->cases != NULL ? ATTN_OK : attn_fail(err, ATTN_ENOMEM, "no memory for a list");
}

enum attn_status attn_vector_files_write(struct attn_vector_files_writer *w, const char *name,
                                         const struct attn_setup *s, struct attn_error *err)
{
    struct attn_file_tensor tensor[MAX_TENSORS] = {{0}};
    struct attn_file_pair pair[MAX_PAIRS];
    char path[4096];
    int n = 0;
    if ((size_t)snprintf(path, sizeof path, "%s/%s/inputs.safetensors", w->folder, name) >=
        sizeof path)
        return attn_fault(err, ATTN_EINVAL, w->folder, "the path is too long");
    char *slash = strrchr(path, '/');
    *slash = '\0';
    enum attn_status status = attn_folder_make(path, err);
    *slash = '/';
    if (status == ATTN_OK)
        status = attn_vector_files_gather_all(w->claims, s, tensor, &n, err);
    json_t *object = describe(name, w->claims, s);
    int n_pairs = metadata_of(object, pair, &status, err);
    if (status == ATTN_OK)
        status = attn_safetensors_write(path, tensor, n, pair, n_pairs, err);
    for (int p = 0; p < n_pairs; p++)
        free((char *)(uintptr_t)pair[p].value);
    for (int t = 0; t < n; t++)
        free(tensor[t].data);
    json_array_append_new(w->cases, object);
    return status;
}

static enum attn_status save_manifest(const char *folder, const json_t *root,
                                      struct attn_error *err)
{
    char path[4096], *text = json_dumps(root, JSON_INDENT(1));
    struct attn_save save;
    if (text == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for the manifest");
    snprintf(path, sizeof path, "%.4000s/manifest.json", folder);
    enum attn_status status = attn_save_open(path, &save, err);
    if (status == ATTN_OK) {
        fputs(text, save.stream);
        status = attn_save_close(&save, ATTN_OK, err);
    }
    free(text);
    return status;
}

enum attn_status attn_vector_files_end(struct attn_vector_files_writer *w, enum attn_status status,
                                       struct attn_error *err)
{
    json_error_t why;
    char *claims = status == ATTN_OK ? attn_claims_print(w->claims) : NULL;
    json_t *root = json_object();
    json_object_set_new(root, "attnlab_vectors", json_integer(FORMAT));
    if (claims != NULL)
        json_object_set_new(root, "claims", json_loads(claims, 0, &why));
    if (w->scheme != NULL) {
        json_object_set_new(root, "scheme", json_string(w->scheme));
        json_object_set_new(root, "ranks", json_integer(w->ranks));
    }
    json_object_set_new(root, "cases", w->cases);
    if (status == ATTN_OK)
        status = claims != NULL ? save_manifest(w->folder, root, err)
                                : attn_fail(err, ATTN_ENOMEM, "no memory for the manifest");
    free(claims);
    json_decref(root);
    w->cases = NULL;
    return status;
}

/* If it is claimed. */
static enum attn_status write_claimed(struct attn_vector_files_writer *w, struct attn_asked *asked,
                                      struct attn_error *err)
{
    struct attn_setup setup;
    struct attn_error why = {0};
    unsigned needs;
    asked->written = 0;
    enum attn_status status = attn_setup_open(&asked->c, &setup, &why);
    if (status == ATTN_ENOMEM)
        return attn_fail(err, status, "%s", why.text);
    if (status != ATTN_OK)
        return ATTN_OK;
    asked->written = attn_claims_allow(w->claims, &setup, ATTN_ROUTE_FILES, &needs, err) == ATTN_OK;
    if (asked->written && w->scheme != NULL) {
        status = attn_rank_cases_write(w, asked->name, &setup, err);
        asked->written = status != ATTN_ENOTSUP;
        status = status == ATTN_ENOTSUP ? ATTN_OK : status;
    }
    if (asked->written && status == ATTN_OK)
        status = attn_vector_files_write(w, asked->name, &setup, err);
    attn_setup_close(&setup);
    return status;
}

enum attn_status attn_vector_files_write_all(const char *folder, const struct attn_claims *claims,
                                             const char *scheme, int with_truth,
                                             struct attn_asked *asked, int n, int *written,
                                             struct attn_error *err)
{
    struct attn_vector_files_writer writer;
    *written = 0;
    enum attn_status status = attn_vector_files_begin(folder, claims, &writer, err);
    writer.scheme = scheme;
    writer.has_no_truth = !with_truth;
    for (int i = 0; i < n && status == ATTN_OK; i++) {
        status = write_claimed(&writer, &asked[i], err);
        *written += asked[i].written;
    }
    return writer.cases != NULL ? attn_vector_files_end(&writer, status, err) : status;
}

/* ---- manifests ------------------------------------------------------------------------------- */

/* A name becomes part of a path: plain words only. */
static int is_plain(const char *name)
{
    return name[0] != '\0' && name[0] != '.' && strlen(name) < 200 &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.+") ==
               strlen(name);
}

/* Names and texts stay where the JSON has them. */
static enum attn_status read_entries(const char *path, const json_t *cases,
                                     struct attn_vector_files *x, struct attn_error *err)
{
    size_t i;
    json_t *one;
    if (!json_is_array(cases) || json_array_size(cases) > MAX_CASES)
        return attn_fault(err, ATTN_EINVAL, path, "has no list \"cases\"");
    x->entry = calloc(json_array_size(cases) + 1, sizeof *x->entry);
    if (x->entry == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for %zu cases", json_array_size(cases));
    json_array_foreach(cases, i, one)
    {
        if (json_unpack(one, "{s:s, s:s}", "name", &x->entry[i].name, "case", &x->entry[i].text) !=
                0 ||
            !is_plain(x->entry[i].name))
            return attn_fault(err, ATTN_EINVAL, path,
                              "case %zu lacks a plain \"name\" or a \"case\"", i + 1);
        x->n++;
    }
    return ATTN_OK;
}

static enum attn_status read_manifest(const char *path, const char *text,
                                      struct attn_vector_files *x, struct attn_error *err)
{
    json_error_t why;
    x->json = json_loads(text, JSON_REJECT_DUPLICATES, &why);
    if (x->json == NULL)
        return attn_fault(err, ATTN_EINVAL, path, "line %d is not JSON: %.160s", why.line,
                          why.text);
    if (json_integer_value(json_object_get(x->json, "attnlab_vectors")) != FORMAT)
        return attn_fault(err, ATTN_EINVAL, path, "is not a manifest of attnlab vectors, format %d",
                          FORMAT);
    char *claims = json_dumps(json_object_get(x->json, "claims"), JSON_ENCODE_ANY);
    if (claims == NULL)
        return attn_fault(err, ATTN_EINVAL, path, "has no \"claims\"");
    enum attn_status status = attn_claims_parse(path, claims, &x->claims, err);
    free(claims);
    x->scheme = json_string_value(json_object_get(x->json, "scheme"));
    if (x->scheme == NULL && json_object_get(x->json, "scheme") != NULL)
        return attn_fault(err, ATTN_EINVAL, path, "\"scheme\" is no text");
    return status == ATTN_OK ? read_entries(path, json_object_get(x->json, "cases"), x, err)
                             : status;
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
    json_decref(x->json);
    free(x->entry);
    memset(x, 0, sizeof *x);
}

/* ---- a part of one --------------------------------------------------------------------------- */

enum attn_status attn_vector_files_rest(const char *folder, const char *of,
                                        int (*wants)(void *arg, const char *name), void *arg,
                                        struct attn_error *err)
{
    struct attn_vector_files all;
    char from[4096], to[4096];
    const char *last = strrchr(of, '/');
    enum attn_status status = attn_vector_files_open(of, &all, err);
    if (status != ATTN_OK)
        return status;
    json_t *cases = json_object_get(all.json, "cases");
    status = attn_folder_make(folder, err);
    for (int n = all.n - 1; n >= 0 && status == ATTN_OK; n--) {
        const char *name = all.entry[n].name;
        snprintf(from, sizeof from, "..%.300s/%.200s", last != NULL ? last : "", name);
        snprintf(to, sizeof to, "%.3800s/%.200s", folder, name);
        unlink(to); /* of an earlier check */
        if (!wants(arg, name))
            json_array_remove(cases, (size_t)n);
        else if (symlink(from, to) != 0)
            status = attn_fault(err, ATTN_ENOMEM, to, "%s", strerror(errno));
    }
    if (status == ATTN_OK)
        status = save_manifest(folder, all.json, err);
    attn_vector_files_close(&all);
    return status;
}
