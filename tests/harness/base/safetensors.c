/* safetensors: u64 length, a JSON header of that length, then the numbers.
 *
 *      {"__metadata__": {"key": "value"},
 *       "q": {"dtype": "F32", "shape": [1,2,512,64], "data_offsets": [0,262144]}, ...}
 *
 * Source: github.com/huggingface/safetensors, "Format".  As there, keys may not repeat, offsets
 * count from the end of the header, and the tensors cover the rest of the file without a hole or
 * an overlap, in any order.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/base/fileio.h"
#include "tests/harness/base/files.h"

enum { LENGTH_BYTES = 8 };

/* ---- reading ------------------------------------------------------------------------------ */

static enum attn_status read_dtype(const struct attn_file *file, const char *text,
                                   struct attn_file_tensor *t, struct attn_error *err)
{
    for (int d = 0; d < ATTN_FILE_DTYPES; d++)
        if (strcmp(text, attn_file_dtype_name((enum attn_file_dtype)d)) == 0) {
            t->dtype = (enum attn_file_dtype)d;
            return ATTN_OK;
        }
    return attn_fault(err, ATTN_EINVAL, file->path,
                      "tensor '%.40s': dtype '%.20s' is not read: F64 F32 BF16 F16 I64 I32 I16 I8 "
                      "U8 BOOL are",
                      t->name, text);
}

static enum attn_status read_shape(const struct attn_file *file, const json_t *shape,
                                   struct attn_file_tensor *t, struct attn_error *err)
{
    if (json_array_size(shape) > ATTN_FILE_AXES)
        return attn_fault(err, ATTN_EINVAL, file->path,
                          "tensor '%.40s': %zu axes: at most %d are read", t->name,
                          json_array_size(shape), ATTN_FILE_AXES);
    t->n_axes = (int)json_array_size(shape);
    for (int a = 0; a < t->n_axes; a++) {
        const json_t *extent = json_array_get(shape, (size_t)a);
        if (!json_is_integer(extent))
            return attn_fault(err, ATTN_EINVAL, file->path,
                              "tensor '%.40s': its shape holds something that is not an integer",
                              t->name);
        t->extent[a] = json_integer_value(extent);
    }
    return attn_file_measure(file->path, t, err);
}

/* data_offsets [begin,end) after the header agree with dtype and shape. */
static enum attn_status check_offsets(const struct attn_file *file, int64_t begin, int64_t end,
                                      int64_t data_start, struct attn_file_tensor *t,
                                      struct attn_error *err)
{
    char shape[160];
    if (begin < 0 || end < begin || end > file->size - data_start)
        return attn_fault(
            err, ATTN_EINVAL, file->path,
            "tensor '%.40s': data_offsets [%lld,%lld] are not within the %lld bytes of "
            "data (file cut off?)",
            t->name, (long long)begin, (long long)end, (long long)(file->size - data_start));
    if (end - begin != t->bytes)
        return attn_fault(err, ATTN_EINVAL, file->path,
                          "tensor '%.40s': %s %.60s needs %lld bytes, data_offsets give %lld",
                          t->name, attn_file_dtype_name(t->dtype), attn_file_shape(t, shape),
                          (long long)t->bytes, (long long)(end - begin));
    t->offset = data_start + begin;
    return ATTN_OK;
}

static enum attn_status read_tensor(struct attn_file *file, const char *name, json_t *value,
                                    int64_t data_start, struct attn_error *err)
{
    struct attn_file_tensor *t = &file->tensor[file->n_tensors];
    json_error_t why;
    json_t *shape;
    json_int_t begin, end;
    const char *dtype;
    t->name = strdup(name);
    if (t->name == NULL)
        return attn_fault(err, ATTN_ENOMEM, file->path, "no memory for the names of its tensors");
    file->n_tensors++;
    int ok = json_unpack_ex(value, &why, JSON_STRICT, "{s:s, s:o, s:[I,I]}", "dtype", &dtype,
                            "shape", &shape, "data_offsets", &begin, &end) == 0;
    if (!ok || !json_is_array(shape))
        return attn_fault(err, ATTN_EINVAL, file->path,
                          "tensor '%.40s' is not {dtype: a string, shape: an array, data_offsets: "
                          "two integers}: %.60s",
                          name, ok ? "its shape is no array" : why.text);
    enum attn_status status = read_dtype(file, dtype, t, err);
    if (status == ATTN_OK)
        status = read_shape(file, shape, t, err);
    if (status == ATTN_OK)
        status = check_offsets(file, begin, end, data_start, t, err);
    return status;
}

static enum attn_status read_metadata(struct attn_file *file, json_t *object,
                                      struct attn_error *err)
{
    const char *key;
    json_t *value;
    if (!json_is_object(object))
        return attn_fault(err, ATTN_EINVAL, file->path, "__metadata__ is not an object");
    file->metadata = calloc(json_object_size(object) + 1, sizeof *file->metadata);
    if (file->metadata == NULL)
        return attn_fault(err, ATTN_ENOMEM, file->path, "no memory for its metadata");
    json_object_foreach(object, key, value)
    {
        if (!json_is_string(value))
            return attn_fault(err, ATTN_EINVAL, file->path, "metadata '%.40s' is not a string",
                              key);
        struct attn_file_pair *pair = &file->metadata[file->n_metadata++];
        pair->key = strdup(key);
        pair->value = strdup(json_string_value(value));
        if (pair->key == NULL || pair->value == NULL)
            return attn_fault(err, ATTN_ENOMEM, file->path, "no memory for its metadata");
    }
    return ATTN_OK;
}

static int by_offset(const void *a, const void *b)
{
    const struct attn_file_tensor *x = *(struct attn_file_tensor *const *)a;
    const struct attn_file_tensor *y = *(struct attn_file_tensor *const *)b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes); /* empty ones first */
}

/* Every byte after the header belongs to exactly one tensor. */
static enum attn_status check_cover(const struct attn_file *file, int64_t data_start,
                                    struct attn_error *err)
{
    struct attn_file_tensor **sorted = calloc((size_t)file->n_tensors + 1, sizeof(void *));
    if (sorted == NULL)
        return attn_fault(err, ATTN_ENOMEM, file->path, "no memory to sort its tensors");
    for (int t = 0; t < file->n_tensors; t++)
        sorted[t] = &file->tensor[t];
    qsort(sorted, (size_t)file->n_tensors, sizeof *sorted, by_offset);
    int64_t end = data_start;
    enum attn_status status = ATTN_OK;
    for (int t = 0; t < file->n_tensors && status == ATTN_OK; t++) {
        if (sorted[t]->offset < end)
            status = attn_fault(err, ATTN_EINVAL, file->path,
                                "tensors '%.40s' and '%.40s' overlap at byte %lld of the data",
                                sorted[t - 1]->name, sorted[t]->name,
                                (long long)(sorted[t]->offset - data_start));
        else if (sorted[t]->offset > end)
            status = attn_fault(err, ATTN_EINVAL, file->path,
                                "%lld bytes before tensor '%.40s' belong to no tensor",
                                (long long)(sorted[t]->offset - end), sorted[t]->name);
        end = sorted[t]->offset + sorted[t]->bytes;
    }
    free(sorted);
    if (status == ATTN_OK && end != file->size)
        status = attn_fault(err, ATTN_EINVAL, file->path,
                            "%lld bytes after the last tensor belong to no tensor",
                            (long long)(file->size - end));
    return status;
}

static enum attn_status read_root(struct attn_file *file, json_t *root, int64_t data_start,
                                  struct attn_error *err)
{
    const char *name;
    json_t *value;
    enum attn_status status = ATTN_OK;
    if (!json_is_object(root))
        return attn_fault(err, ATTN_EINVAL, file->path, "its header is not a JSON object");
    file->tensor = calloc(json_object_size(root) + 1, sizeof *file->tensor);
    if (file->tensor == NULL)
        return attn_fault(err, ATTN_ENOMEM, file->path, "no memory for %zu tensors",
                          json_object_size(root));
    json_object_foreach(root, name, value)
    {
        status = strcmp(name, "__metadata__") == 0
                     ? read_metadata(file, value, err)
                     : read_tensor(file, name, value, data_start, err);
        if (status != ATTN_OK)
            return status;
    }
    return check_cover(file, data_start, err);
}

/* The length of the header, and its text, malloc'ed and ended by a 0. */
static enum attn_status read_text(const struct attn_file *file, uint64_t *length, char **text,
                                  struct attn_error *err)
{
    unsigned char raw[LENGTH_BYTES];
    if (file->size < LENGTH_BYTES)
        return attn_fault(err, ATTN_EINVAL, file->path,
                          "has %lld bytes: cut off, or not a file of tensors (safetensors, .npy, "
                          ".npz)",
                          (long long)file->size);
    enum attn_status status = attn_read_at(file->fd, file->path, 0, raw, LENGTH_BYTES, err);
    if (status != ATTN_OK)
        return status;
    for (int byte = LENGTH_BYTES - 1; byte >= 0; byte--)
        *length = *length << 8 | raw[byte];
    if (*length > (uint64_t)(file->size - LENGTH_BYTES))
        return attn_fault(
            err, ATTN_EINVAL, file->path,
            "claims a header of %llu bytes, the file has %lld: cut off, or not a file of tensors "
            "(safetensors, .npy, .npz)",
            (unsigned long long)*length, (long long)file->size);
    if (*length > ATTN_FILE_HEADER)
        return attn_fault(err, ATTN_EINVAL, file->path,
                          "header of %llu bytes: at most %d are read (%d tensors or so)",
                          (unsigned long long)*length, ATTN_FILE_HEADER, ATTN_FILE_HEADER / 100);
    *text = calloc((size_t)*length + 1, 1);
    if (*text == NULL)
        return attn_fault(err, ATTN_ENOMEM, file->path, "no memory for a header of %llu bytes",
                          (unsigned long long)*length);
    return attn_read_at(file->fd, file->path, LENGTH_BYTES, *text, (int64_t)*length, err);
}

static enum attn_status header(struct attn_file *file, struct attn_error *err)
{
    uint64_t length = 0;
    char *text = NULL;
    json_error_t at;
    json_t *root = NULL;
    enum attn_status status = read_text(file, &length, &text, err);
    if (status == ATTN_OK && text[0] != '{')
        status = attn_fault(
            err, ATTN_EINVAL, file->path,
            "its header does not begin with '{': not a file of tensors (safetensors, .npy, .npz)");
    else if (status == ATTN_OK &&
             (root = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &at)) == NULL)
        status = attn_fault(err, ATTN_EINVAL, file->path, "header byte %d: %.120s", at.position,
                            at.text);
    else if (status == ATTN_OK)
        status = read_root(file, root, LENGTH_BYTES + (int64_t)length, err);
    json_decref(root);
    free(text);
    return status;
}

const struct attn_file_format attn_format_safetensors = {
    .suffix = ".safetensors", .header = header, .read = attn_file_read_plain};

/* ---- writing ------------------------------------------------------------------------------ */

static json_t *describe(const struct attn_file_tensor *t, int64_t begin)
{
    json_t *shape = json_array();
    int bad = shape == NULL;
    for (int a = 0; a < t->n_axes; a++)
        bad |= json_array_append_new(shape, json_integer(t->extent[a]));
    json_t *entry =
        json_pack("{s:s, s:o, s:[I,I]}", "dtype", attn_file_dtype_name(t->dtype), "shape", shape,
                  "data_offsets", (json_int_t)begin, (json_int_t)(begin + t->bytes));
    if (!bad)
        return entry;
    json_decref(entry);
    return NULL;
}

/* The header as JSON; tensors are measured on the way. */
static json_t *describe_all(const char *path, struct attn_file_tensor *tensor, int n_tensors,
                            const struct attn_file_pair *metadata, int n_metadata,
                            struct attn_error *err)
{
    json_t *root = json_object(), *pairs = json_object();
    int64_t begin = 0;
    enum attn_status status = ATTN_OK;
    for (int m = 0; m < n_metadata && status == ATTN_OK; m++)
        if (json_object_set_new(pairs, metadata[m].key, json_string(metadata[m].value)) != 0)
            status = attn_fault(err, ATTN_EINVAL, path, "metadata '%.40s' is not UTF-8",
                                metadata[m].key);
    if (status == ATTN_OK && n_metadata > 0)
        json_object_set(root, "__metadata__", pairs);
    json_decref(pairs);
    for (int t = 0; t < n_tensors && status == ATTN_OK; t++) {
        status = attn_file_measure(path, &tensor[t], err);
        if (status == ATTN_OK && (json_object_get(root, tensor[t].name) != NULL ||
                                  strcmp(tensor[t].name, "__metadata__") == 0))
            status =
                attn_fault(err, ATTN_EINVAL, path, "two tensors are named '%.40s'", tensor[t].name);
        if (status == ATTN_OK &&
            json_object_set_new(root, tensor[t].name, describe(&tensor[t], begin)) != 0)
            status =
                attn_fault(err, ATTN_EINVAL, path, "the name '%.40s' is not UTF-8", tensor[t].name);
        begin += tensor[t].bytes;
    }
    if (status == ATTN_OK)
        return root;
    json_decref(root);
    return NULL;
}

/* Length and header, filled up with blanks so that the data begin at a multiple of 8. */
static void write_header(FILE *file, const char *text)
{
    static const char blank[8] = "        ";
    uint64_t used = strlen(text), length = (used + 7) / 8 * 8;
    unsigned char raw[LENGTH_BYTES];
    for (int byte = 0; byte < LENGTH_BYTES; byte++)
        raw[byte] = (unsigned char)(length >> (8 * byte));
    fwrite(raw, 1, LENGTH_BYTES, file);
    fwrite(text, 1, used, file);
    fwrite(blank, 1, length - used, file);
}

enum attn_status attn_safetensors_write(const char *path, const struct attn_file_tensor *tensor,
                                        int n_tensors, const struct attn_file_pair *metadata,
                                        int n_metadata, struct attn_error *err)
{
    struct attn_file_tensor *list = calloc((size_t)n_tensors + 1, sizeof *list);
    if (list == NULL)
        return attn_fault(err, ATTN_ENOMEM, path, "no memory for its header");
    for (int t = 0; t < n_tensors; t++)
        list[t] = tensor[t];
    enum attn_status status = ATTN_EINVAL;
    json_t *root = describe_all(path, list, n_tensors, metadata, n_metadata, err);
    char *text = root != NULL ? json_dumps(root, JSON_COMPACT) : NULL;
    struct attn_save save;
    if (root != NULL && text == NULL)
        status = attn_fault(err, ATTN_ENOMEM, path, "no memory for its header");
    else if (root != NULL)
        status = attn_save_open(path, &save, err);
    if (status == ATTN_OK) {
        save.is_soon = 1; /* thousands may follow each other, and all can be made again */
        write_header(save.stream, text);
        for (int t = 0; t < n_tensors; t++)
            fwrite(list[t].data, 1, (size_t)list[t].bytes, save.stream);
        status = attn_save_close(&save, ATTN_OK, err);
    }
    free(text);
    json_decref(root);
    free(list);
    return status;
}
