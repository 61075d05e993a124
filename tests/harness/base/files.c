/* See files.h: a file is opened, its tensors loaded. */
#include "tests/harness/base/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/harness/base/fileio.h"

/* ---- opening ------------------------------------------------------------------------------ */

/* The first has no mark: a file that begins with none of the others' is read as one. */
static const struct attn_file_format *const formats[] = {&attn_format_safetensors, &attn_format_npy,
                                                         &attn_format_npz};
enum { FORMATS = sizeof formats / sizeof *formats, MARK = 6 };

int attn_file_is_named(const char *name)
{
    for (int f = 0; f < FORMATS; f++) {
        size_t n = strlen(name), m = strlen(formats[f]->suffix);
        if (n > m && strcmp(name + n - m, formats[f]->suffix) == 0)
            return 1;
    }
    return 0;
}

const char *attn_file_suffixes(char text[64])
{
    text[0] = '\0';
    for (int f = 0; f < FORMATS; f++)
        attn_append(text, 64, "%s%s",
                    f == 0            ? ""
                    : f + 1 < FORMATS ? ", "
                                      : " or ",
                    formats[f]->suffix);
    return text;
}

/* As the length of a safetensors header each mark would be larger than any that is read. */
static const struct attn_file_format *format_of(const char first[MARK])
{
    for (int f = 0; f < FORMATS; f++)
        for (int m = 0; m < 2; m++) {
            const char *mark = formats[f]->marks[m];
            if (mark != NULL && memcmp(first, mark, strlen(mark)) == 0)
                return formats[f];
        }
    return formats[0];
}

enum attn_status attn_file_open(const char *path, struct attn_file *file, struct attn_error *err)
{
    char first[MARK] = {0};
    memset(file, 0, sizeof *file);
    file->fd = -1;
    file->path = strdup(path);
    if (file->path == NULL)
        return attn_fault(err, ATTN_ENOMEM, path, "no memory for its name");
    enum attn_status status = attn_read_open(path, &file->fd, &file->size, err);
    if (status == ATTN_OK)
        status = attn_read_at(file->fd, path, 0, first, file->size < MARK ? file->size : MARK, err);
    if (status == ATTN_OK) {
        file->format = format_of(first);
        status = file->format->header(file, err);
    }
    if (status != ATTN_OK)
        attn_file_close(file);
    return status;
}

static void drop_data(struct attn_file_tensor *tensor)
{
    if (tensor->map != NULL)
        munmap(tensor->map, tensor->map_bytes);
    else
        free(tensor->data);
}

void attn_file_close(struct attn_file *file)
{
    for (int t = 0; t < file->n_tensors; t++) {
        free((char *)file->tensor[t].name);
        drop_data(&file->tensor[t]);
    }
    for (int m = 0; m < file->n_metadata; m++) {
        free((char *)file->metadata[m].key);
        free((char *)file->metadata[m].value);
    }
    free(file->tensor);
    free(file->metadata);
    if (file->format != NULL && file->format->close != NULL)
        file->format->close(file);
    if (file->path != NULL && file->fd >= 0)
        close(file->fd);
    free(file->path);
    memset(file, 0, sizeof *file);
    file->fd = -1;
}

struct attn_file_tensor *attn_file_find(const struct attn_file *file, const char *name)
{
    for (int t = 0; t < file->n_tensors; t++)
        if (strcmp(file->tensor[t].name, name) == 0)
            return &file->tensor[t];
    return NULL;
}

const char *attn_file_metadata(const struct attn_file *file, const char *key)
{
    for (int m = 0; m < file->n_metadata; m++)
        if (strcmp(file->metadata[m].key, key) == 0)
            return file->metadata[m].value;
    return NULL;
}

/* ---- loading ------------------------------------------------------------------------------ */

static void swap_bytes(unsigned char *data, int64_t n, int64_t size)
{
    for (int64_t e = 0; e < n; e++, data += size)
        for (int64_t lo = 0, hi = size - 1; lo < hi; lo++, hi--) {
            unsigned char byte = data[lo];
            data[lo] = data[hi];
            data[hi] = byte;
        }
}

/* Copy elements kept with the first axis fastest into C order, the last axis fastest. */
static void reorder(const struct attn_file_tensor *t, const char *from, char *to, int64_t n)
{
    int64_t size = attn_file_dtype_size(t->dtype), index[ATTN_FILE_AXES] = {0};
    int64_t stride[ATTN_FILE_AXES], at = 0;
    for (int a = 0; a < t->n_axes; a++)
        stride[a] = a == 0 ? 1 : stride[a - 1] * t->extent[a - 1];
    for (int64_t e = 0; e < n; e++) {
        memcpy(to + e * size, from + at * size, (size_t)size);
        for (int a = t->n_axes - 1; a >= 0; a--) {
            at += stride[a];
            if (++index[a] < t->extent[a])
                break;
            at -= index[a] * stride[a];
            index[a] = 0;
        }
    }
}

enum attn_status attn_file_load(const struct attn_file *file, struct attn_file_tensor *tensor,
                                struct attn_error *err)
{
    if (tensor->data != NULL)
        return ATTN_OK;
    int64_t size = attn_file_dtype_size(tensor->dtype), n = tensor->bytes / size;
    size_t rounded = ((size_t)tensor->bytes / 64 + 1) * 64;
    char *data = aligned_alloc(64, rounded);
    char *ordered = tensor->fortran && data != NULL ? aligned_alloc(64, rounded) : NULL;
    enum attn_status status = ATTN_OK;
    if (data == NULL || (tensor->fortran && ordered == NULL))
        status =
            attn_fault(err, ATTN_ENOMEM, file->path, "tensor '%.40s': no memory for its %lld bytes",
                       tensor->name, (long long)tensor->bytes);
    if (status == ATTN_OK)
        status = file->format->read(file, tensor, data, err);
    if (status == ATTN_OK && tensor->swapped)
        swap_bytes((unsigned char *)data, n, size);
    if (status == ATTN_OK && tensor->fortran) {
        reorder(tensor, data, ordered, n);
        tensor->data = ordered;
        ordered = NULL;
    } else if (status == ATTN_OK) {
        tensor->data = data;
        data = NULL;
    }
    free(ordered);
    free(data);
    return status;
}

enum attn_status attn_file_map(const struct attn_file *file, struct attn_file_tensor *tensor,
                               struct attn_error *err)
{
    int64_t start = tensor->offset / sysconf(_SC_PAGESIZE) * sysconf(_SC_PAGESIZE);
    int is_there = file->format->read == attn_file_read_plain && !tensor->fortran &&
                   !tensor->swapped && tensor->bytes > 0 &&
                   tensor->offset % attn_file_dtype_size(tensor->dtype) == 0;
    if (tensor->data != NULL || !is_there)
        return attn_file_load(file, tensor, err);
    size_t bytes = (size_t)(tensor->offset + tensor->bytes - start);
    void *map = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, file->fd, start);
    if (map == MAP_FAILED)
        return attn_file_load(file, tensor, err);
    tensor->map = map;
    tensor->map_bytes = bytes;
    tensor->data = (char *)map + (tensor->offset - start);
    return ATTN_OK;
}
