/* Writing cases: see vector_files.h. */
#include "tests/harness/external/vector_files.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ref/problem.h"
#include "tests/harness/cases/packed.h"
#include "tests/harness/files/fileio.h"
#include "tests/harness/files/files.h"
#include "tests/harness/files/folder.h"

enum { FORMAT = 1, MAX_TENSORS = 10, MAX_PAIRS = 40 };

/* ---- tensors --------------------------------------------------------------------------------- */

/* Queries, keys, values and everything of their shape follow the declared layout; LSE, masks and
 * biases do not. */
static enum attn_packed_kind kind_of(int slot)
{
    return slot == ATTN_T_BIAS || slot == ATTN_T_DBIAS ? ATTN_PACKED_BIAS
           : slot == ATTN_T_LSE || slot == ATTN_T_DLSE ? ATTN_PACKED_LSE
                                                       : ATTN_PACKED_TOKENS;
}

/* A contiguous copy for a file.  Axes that a bias broadcasts are written once. */
static enum attn_status gather(const struct attn_tensor *t, int slot,
                               const struct attn_claims *claims, struct attn_file_tensor *to,
                               struct attn_error *err)
{
    int64_t n[4];
    for (int a = 0; a < 4; a++)
        n[a] = slot == ATTN_T_BIAS && t->stride[a] == 0 && t->extent[a] > 1 ? 1 : t->extent[a];
    *to = (struct attn_file_tensor){.name = t->name, .dtype = attn_file_dtype_of(t->dtype)};
    attn_packed_extents(claims, kind_of(slot), n, to);
    to->bytes = n[0] * n[1] * n[2] * n[3] * (int64_t)attn_dtype_size(t->dtype);
    to->data = calloc((size_t)to->bytes + 1, 1);
    if (to->data == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory to write %s", t->name);
    const struct attn_view view = {to->data, t->dtype, {0, 0, 1, 1}};
    for (int64_t b = 0; b < n[0]; b++)
        for (int64_t h = 0; h < n[1]; h++)
            for (int64_t i = 0; i < n[2]; i++)
                for (int64_t c = 0; c < n[3]; c++) {
                    int64_t row = attn_packed_row(claims, kind_of(slot), n, b, h, i);
                    attn_view_set(&view, 0, 0, row * n[3], c, attn_tensor_get(t, b, h, i, c));
                }
    return ATTN_OK;
}

static enum attn_status gather_mask(const struct attn_claims *claims, const struct attn_problem *p,
                                    struct attn_file_tensor *to, struct attn_error *err)
{
    struct attn_mask_shape shape = {p->batch, p->heads, p->n_query, p->n_key};
    unsigned char visible = claims->byte == ATTN_PLUGIN_ONE_IS_VISIBLE;
    if (claims->layout == ATTN_CLAIMS_THD)
        return attn_packed_bytes(p, visible, to, err);
    *to = (struct attn_file_tensor){.name = "mask",
                                    .dtype = ATTN_FILE_U8,
                                    .n_axes = 4,
                                    .extent = {p->batch, p->heads, p->n_query, p->n_key}};
    to->bytes = p->batch * p->heads * p->n_query * p->n_key;
    to->data = calloc((size_t)to->bytes + 1, 1);
    if (to->data == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory to write the mask");
    attn_mask_bytes(p->mask, &shape, visible, to->data);
    return ATTN_OK;
}

static enum attn_status gather_all(const struct attn_claims *claims, const struct attn_setup *s,
                                   struct attn_file_tensor *list, int *n, struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    for (int slot = ATTN_T_Q; slot < ATTN_T_O && status == ATTN_OK; slot++)
        if (s->tensor[slot].map != NULL)
            status = gather(&s->tensor[slot], slot, claims, &list[(*n)++], err);
    struct attn_band band;
    if (status == ATTN_OK && attn_claims_mask(claims, &s->problem, &band) == ATTN_CLAIMS_BYTES)
        status = gather_mask(claims, &s->problem, &list[(*n)++], err);
    if (status == ATTN_OK && claims->layout == ATTN_CLAIMS_THD) {
        status = attn_packed_starts(claims, &s->problem, &list[*n], err);
        *n += 2;
    }
    return status;
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* A key that does not apply is there, and null: a program may look at it without asking first. */
static json_t *integer_or_null(int applies, int64_t value)
{
    return applies ? json_integer(value) : json_null();
}

static void add_mask(json_t *object, const struct attn_claims *claims, const struct attn_problem *p)
{
    static const char *const word[] = {"none", "band", "dense"};
    struct attn_band band = {0};
    enum attn_claims_mask how = attn_claims_mask(claims, p, &band);
    int is_band = how == ATTN_CLAIMS_BAND;
    int self = claims->window == ATTN_PLUGIN_WINDOW_WITH_SELF;
    json_object_set_new(object, "mask", json_string(word[how]));
    json_object_set_new(object, "mask_text",
                        p->mask != NULL ? json_string(attn_mask_text(p->mask)) : json_null());
    json_object_set_new(object, "causal", integer_or_null(is_band, band.right == self));
    json_object_set_new(object, "offset", integer_or_null(is_band, band.offset));
    json_object_set_new(object, "window_left", integer_or_null(is_band, band.left));
    json_object_set_new(object, "window_right", integer_or_null(is_band, band.right));
}

static void add_bias(json_t *object, const struct attn_problem *p)
{
    static const char *const kind[] = {"none", "tensor", "alibi"};
    int is_alibi = p->bias.kind == ATTN_BIAS_ALIBI;
    json_t *slopes = is_alibi ? json_array() : json_null();
    for (int64_t h = 0; h < p->heads && is_alibi; h++)
        json_array_append_new(slopes, json_real(p->bias.slope[h]));
    json_object_set_new(object, "bias", json_string(kind[p->bias.kind]));
    json_object_set_new(object, "alibi_slopes", slopes);
    json_object_set_new(object, "alibi_offset", integer_or_null(is_alibi, p->bias.offset));
}

static void add_outputs(json_t *object, const struct attn_claims *claims,
                        const struct attn_setup *s)
{
    json_t *list = json_array();
    for (int slot = ATTN_T_O; slot < ATTN_SLOTS; slot++)
        if (s->tensor[slot].map != NULL &&
            !(slot == ATTN_T_LSE && claims->lse == ATTN_PLUGIN_LSE_ABSENT))
            json_array_append_new(list, json_string(s->tensor[slot].name));
    json_object_set_new(object, "outputs", list);
}

/* Every number of the problem: one object, for the manifest and for the file's metadata. */
static json_t *describe(const char *name, const struct attn_claims *claims,
                        const struct attn_setup *s)
{
    const struct attn_problem *p = &s->problem;
    const struct {
        const char *key;
        int64_t value;
    } extent[] = {{"batch", p->batch},     {"heads", p->heads}, {"kv_heads", p->kv_heads},
                  {"n_query", p->n_query}, {"n_key", p->n_key}, {"d_key", p->d_key},
                  {"d_value", p->d_value}};
    char text[ATTN_CASE_TEXT];
    json_t *object = json_object();
    attn_case_print(&s->given, text);
    json_object_set_new(object, "name", json_string(name));
    json_object_set_new(object, "case", json_string(text));
    json_object_set_new(object, "dtype", json_string(attn_dtype_name(p->dtype)));
    json_object_set_new(object, "pass", json_string(attn_pass_name(s->given.pass)));
    attn_claims_conventions(claims, object);
    for (size_t e = 0; e < sizeof extent / sizeof *extent; e++)
        json_object_set_new(object, extent[e].key, json_integer(extent[e].value));
    json_object_set_new(object, "scale", json_real(p->scale));
    json_object_set_new(object, "softcap", json_real(p->softcap));
    add_mask(object, claims, p);
    add_bias(object, p);
    add_outputs(object, claims, s);
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
    *writer = (struct attn_vector_files_writer){folder, claims, NULL};
    enum attn_status status = attn_folder_make(folder, err);
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
        status = gather_all(w->claims, s, tensor, &n, err);
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

enum attn_status attn_vector_files_end(struct attn_vector_files_writer *w, int keep,
                                       struct attn_error *err)
{
    char path[4096];
    struct attn_save save;
    json_error_t why;
    enum attn_status status = ATTN_OK;
    char *claims = keep ? attn_claims_print(w->claims) : NULL;
    json_t *root = json_object();
    json_object_set_new(root, "attnlab_vectors", json_integer(FORMAT));
    if (claims != NULL)
        json_object_set_new(root, "claims", json_loads(claims, 0, &why));
    json_object_set_new(root, "cases", w->cases);
    char *text = keep ? json_dumps(root, JSON_INDENT(1)) : NULL;
    if (keep && (text == NULL || claims == NULL))
        status = attn_fail(err, ATTN_ENOMEM, "no memory for the manifest");
    else if (keep) {
        snprintf(path, sizeof path, "%.4000s/manifest.json", w->folder);
        status = attn_save_open(path, &save, err);
        if (status == ATTN_OK) {
            fputs(text, save.stream);
            status = attn_save_close(&save, ATTN_OK, err);
        }
    }
    free(text);
    free(claims);
    json_decref(root);
    w->cases = NULL;
    return status;
}
