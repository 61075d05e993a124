/* See files.h: a tensor in a file of any format, its type, shape and bytes. */
#include <stdio.h>
#include <string.h>

#include "ref/problem.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/base/files.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "safetensors are little-endian, and so is every machine this was written for");

static const struct {
    const char *name;
    int64_t size;
} type[ATTN_FILE_DTYPES] = {{"F64", 8}, {"F32", 4}, {"BF16", 2}, {"F16", 2}, {"I64", 8},
                            {"I32", 4}, {"I16", 2}, {"I8", 1},   {"U8", 1},  {"BOOL", 1}};

const char *attn_file_dtype_name(enum attn_file_dtype dtype)
{
    return (unsigned)dtype < ATTN_FILE_DTYPES ? type[dtype].name : "unknown";
}

int64_t attn_file_dtype_size(enum attn_file_dtype dtype)
{
    return (unsigned)dtype < ATTN_FILE_DTYPES ? type[dtype].size : 0;
}

static const enum attn_file_dtype stored[ATTN_DTYPES] = {
    [ATTN_F64] = ATTN_FILE_F64,
    [ATTN_F32] = ATTN_FILE_F32,
    [ATTN_BF16] = ATTN_FILE_BF16,
    [ATTN_F16] = ATTN_FILE_F16,
};

int attn_file_dtype_storage(enum attn_file_dtype dtype, enum attn_dtype *storage)
{
    for (int t = 0; t < ATTN_DTYPES; t++)
        if (stored[t] == dtype) {
            *storage = (enum attn_dtype)t;
            return 1;
        }
    return 0;
}

enum attn_file_dtype attn_file_dtype_of(enum attn_dtype storage)
{
    return stored[storage];
}

int attn_file_same_shape(const struct attn_file_tensor *a, const struct attn_file_tensor *b)
{
    return a->n_axes == b->n_axes &&
           memcmp(a->extent, b->extent, (size_t)a->n_axes * sizeof *a->extent) == 0;
}

const char *attn_file_shape(const struct attn_file_tensor *tensor, char text[160])
{
    int n = snprintf(text, 160, "[");
    for (int a = 0; a < tensor->n_axes && n < 160; a++)
        n += snprintf(text + n, (size_t)(160 - n), "%s%lld", a > 0 ? "," : "",
                      (long long)tensor->extent[a]);
    if (n < 160)
        snprintf(text + n, (size_t)(160 - n), "]");
    return text;
}

enum attn_status attn_file_measure(const char *path, struct attn_file_tensor *tensor,
                                   struct attn_error *err)
{
    int64_t n = 1, others = 1;
    for (int a = 0; a < tensor->n_axes; a++) {
        int64_t extent = tensor->extent[a];
        if (extent < 0)
            return attn_fault(err, ATTN_EINVAL, path,
                              "tensor '%.40s': extent %lld on axis %d: extents start at 0",
                              tensor->name, (long long)extent, a);
        others = attn_product(others, extent > 0 ? extent : 1);
        n = extent == 0 ? 0 : n;
    }
    int64_t bytes = attn_product(others, attn_file_dtype_size(tensor->dtype));
    if (bytes < 0)
        return attn_fault(err, ATTN_EINVAL, path,
                          "tensor '%.40s': its extents multiply to more than 64 bits of bytes",
                          tensor->name);
    tensor->bytes = n == 0 ? 0 : bytes;
    return ATTN_OK;
}

enum attn_status attn_file_read_plain(const struct attn_file *file,
                                      const struct attn_file_tensor *tensor, void *to,
                                      struct attn_error *err)
{
    return attn_read_at(file->fd, file->path, tensor->offset, to, tensor->bytes, err);
}
