/* .npy: one array, as numpy.save writes it.
 *
 *      "\x93NUMPY" major minor length { 'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
 *
 * length is u16 in version 1.0 and u32 in 2.0 and 3.0 (where names may be UTF-8); the header is a
 * Python dictionary, read here by a parser that knows that much of Python and nothing else.  The
 * array fills the rest of the file.  Source: numpy/lib/format.py and NEP 1.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/base/fileio.h"
#include "tests/harness/base/files.h"

static const struct {
    char kind, size;
    enum attn_file_dtype dtype;
} known[] = {{'f', 8, ATTN_FILE_F64}, {'f', 4, ATTN_FILE_F32}, {'f', 2, ATTN_FILE_F16},
             {'i', 8, ATTN_FILE_I64}, {'i', 4, ATTN_FILE_I32}, {'i', 2, ATTN_FILE_I16},
             {'i', 1, ATTN_FILE_I8},  {'u', 1, ATTN_FILE_U8},  {'b', 1, ATTN_FILE_BOOL}};
enum { KNOWN = sizeof known / sizeof *known };

/* ---- the dictionary ----------------------------------------------------------------------- */

struct reader {
    const char *path, *start, *at; /* the text ends with a 0 */
    struct attn_error *err;
};

static enum attn_status fault(const struct reader *r, const char *what)
{
    return attn_fault(r->err, ATTN_EINVAL, r->path, "header byte %d: %s", (int)(r->at - r->start),
                      what);
}

static void skip_blanks(struct reader *r)
{
    r->at += strspn(r->at, " \t\r\n");
}

/* Step over a character, blanks before it included; 0 when another is there. */
static int take(struct reader *r, char c)
{
    skip_blanks(r);
    if (*r->at != c)
        return 0;
    r->at++;
    return 1;
}

/* A quoted string without escapes; NULL when there is none. */
static const char *take_string(struct reader *r, char text[32])
{
    skip_blanks(r);
    char quote = *r->at;
    const char *end = quote == '\'' || quote == '"' ? strchr(r->at + 1, quote) : NULL;
    if (end == NULL || end - r->at > 31)
        return NULL;
    memcpy(text, r->at + 1, (size_t)(end - r->at - 1));
    text[end - r->at - 1] = '\0';
    r->at = end + 1;
    return strchr(text, '\\') == NULL ? text : NULL;
}

static enum attn_status read_descr(struct reader *r, struct attn_file_tensor *t)
{
    char text[32];
    if (take(r, '[') || take(r, '('))
        return fault(r, "a structured type: one number for each element is read");
    if (take_string(r, text) == NULL)
        return fault(r, "expected a type such as '<f4'");
    if (strchr(text, 'O') != NULL)
        return fault(r, "an array of Python objects: never read, it could run code");
    int order = strchr("<>|", text[0]) != NULL && text[0] != '\0';
    for (int d = 0; order && text[1] != '\0' && text[2] != '\0' && text[3] == '\0' && d < KNOWN;
         d++)
        if (text[1] == known[d].kind && text[2] == '0' + known[d].size &&
            (text[0] != '|' || known[d].size == 1)) {
            t->dtype = known[d].dtype;
            t->swapped = text[0] == '>' && known[d].size > 1;
            return ATTN_OK;
        }
    return attn_fault(
        r->err, ATTN_EINVAL, r->path,
        "type '%s' is not read: f2 f4 f8 i1 i2 i4 i8 u1 b1, after '<' or '>' (or '|' if "
        "of one byte), are",
        text);
}

static enum attn_status read_order(struct reader *r, struct attn_file_tensor *t)
{
    skip_blanks(r);
    t->fortran = strncmp(r->at, "True", 4) == 0;
    if (!t->fortran && strncmp(r->at, "False", 5) != 0)
        return fault(r, "expected True or False");
    r->at += t->fortran ? 4 : 5;
    return ATTN_OK;
}

static enum attn_status read_extent(struct reader *r, int64_t *extent)
{
    skip_blanks(r);
    if (*r->at == '-')
        return fault(r, "a negative extent");
    if (*r->at < '0' || *r->at > '9')
        return fault(r, "expected an extent");
    for (*extent = 0; *r->at >= '0' && *r->at <= '9'; r->at++)
        if (__builtin_mul_overflow(*extent, 10, extent) ||
            __builtin_add_overflow(*extent, *r->at - '0', extent))
            return fault(r, "an extent of more than 64 bits");
    if (*r->at == 'L') /* a long integer of Python 2 */
        r->at++;
    return ATTN_OK;
}

static enum attn_status read_shape(struct reader *r, struct attn_file_tensor *t)
{
    int comma = 1;
    if (!take(r, '('))
        return fault(r, "expected a shape such as (2, 3)");
    while (!take(r, ')')) {
        if (!comma)
            return fault(r, "expected ',' or ')' in the shape");
        if (t->n_axes == ATTN_FILE_AXES)
            return fault(r, "more than 8 axes");
        enum attn_status status = read_extent(r, &t->extent[t->n_axes]);
        if (status != ATTN_OK)
            return status;
        t->n_axes++;
        comma = take(r, ',');
    }
    if (t->n_axes == 1 && !comma)
        return fault(r, "(n) is a number in Python: a shape of one axis is written (n,)");
    return ATTN_OK;
}

static enum attn_status read_dictionary(struct reader *r, struct attn_file_tensor *t)
{
    static const struct {
        const char *key;
        enum attn_status (*read)(struct reader *, struct attn_file_tensor *);
    } entry[] = {{"descr", read_descr}, {"fortran_order", read_order}, {"shape", read_shape}};
    char key[32];
    int seen[3] = {0}, comma = 1;
    if (!take(r, '{'))
        return fault(r, "expected '{'");
    while (!take(r, '}')) {
        int e = 0;
        if (!comma)
            return fault(r, "expected ',' or '}'");
        if (take_string(r, key) == NULL)
            return fault(r, "expected a key: 'descr', 'fortran_order' or 'shape'");
        while (e < 3 && strcmp(key, entry[e].key) != 0)
            e++;
        if (e == 3 || seen[e]++)
            return fault(r, e == 3 ? "an unknown key" : "a key that was there before");
        if (!take(r, ':'))
            return fault(r, "expected ':'");
        enum attn_status status = entry[e].read(r, t);
        if (status != ATTN_OK)
            return status;
        comma = take(r, ',');
    }
    if (!seen[0] || !seen[1] || !seen[2])
        return fault(r, "'descr', 'fortran_order' and 'shape' must all be there");
    skip_blanks(r);
    return ATTN_OK;
}

/* ---- reading ------------------------------------------------------------------------------ */

/* Where the dictionary begins, and how long it is. */
static enum attn_status read_start(const struct attn_npy_source *from, int64_t *start,
                                   uint64_t *length, struct attn_error *err)
{
    unsigned char raw[12] = {0};
    int64_t there = from->size < 10 ? from->size : 10;
    enum attn_status status = from->read(from->arg, raw, there, err);
    if (status != ATTN_OK)
        return status;
    if (memcmp(raw, "\x93NUMPY", 6) != 0)
        return attn_fault(err, ATTN_EINVAL, from->label, "does not begin as a .npy does");
    *start = raw[6] > 1 ? 12 : 10;
    if (from->size < *start)
        return attn_fault(err, ATTN_EINVAL, from->label, "cut off in the .npy header: %lld bytes",
                          (long long)from->size);
    if (raw[6] < 1 || raw[6] > 3 || raw[7] != 0)
        return attn_fault(err, ATTN_EINVAL, from->label,
                          ".npy version %d.%d: 1.0, 2.0 and 3.0 are read", raw[6], raw[7]);
    status = from->read(from->arg, raw + 10, *start - 10, err);
    *length = (uint64_t)raw[8] | (uint64_t)raw[9] << 8 | (uint64_t)raw[10] << 16 |
              (uint64_t)raw[11] << 24;
    return status;
}

/* The dictionary, which must ask for exactly the bytes that follow it. */
static enum attn_status understand(const char *label, const char *text, uint64_t length,
                                   int64_t data_bytes, struct attn_file_tensor *t,
                                   struct attn_error *err)
{
    char shape[160];
    struct reader r = {label, text, text, err};
    enum attn_status status = read_dictionary(&r, t);
    if (status == ATTN_OK && r.at != text + length)
        status = fault(&r, "something after the dictionary");
    if (status == ATTN_OK)
        status = attn_file_measure(label, t, err);
    if (status == ATTN_OK && data_bytes != t->bytes)
        status = attn_fault(err, ATTN_EINVAL, label,
                            "%s %s needs %lld bytes after the header, the file has %lld",
                            attn_file_dtype_name(t->dtype), attn_file_shape(t, shape),
                            (long long)t->bytes, (long long)data_bytes);
    return status;
}

enum attn_status attn_npy_read(const struct attn_npy_source *from, struct attn_file_tensor *t,
                               struct attn_error *err)
{
    uint64_t length = 0;
    int64_t start = 0;
    enum attn_status status = read_start(from, &start, &length, err);
    if (status != ATTN_OK)
        return status;
    if (length > (uint64_t)(from->size - start))
        return attn_fault(err, ATTN_EINVAL, from->label,
                          "claims a header of %llu bytes, and has %lld in all: cut off?",
                          (unsigned long long)length, (long long)from->size);
    if (length > (uint64_t)*from->header_left)
        return attn_fault(err, ATTN_EINVAL, from->label,
                          "all headers of a file together are longer than %d bytes",
                          ATTN_FILE_HEADER);
    *from->header_left -= (int64_t)length;
    char *text = calloc(1, (size_t)length + 1);
    if (text == NULL)
        return attn_fault(err, ATTN_ENOMEM, from->label, "no memory for its header");
    t->offset = start + (int64_t)length;
    status = from->read(from->arg, text, (int64_t)length, err);
    if (status == ATTN_OK)
        status = understand(from->label, text, length, from->size - t->offset, t, err);
    free(text);
    return status;
}

struct place {
    const struct attn_file *file;
    int64_t at;
};

static enum attn_status read_next(void *arg, void *to, int64_t bytes, struct attn_error *err)
{
    struct place *x = arg;
    x->at += bytes;
    return attn_read_at(x->file->fd, x->file->path, x->at - bytes, to, bytes, err);
}

static enum attn_status header(struct attn_file *file, struct attn_error *err)
{
    int64_t header_left = ATTN_FILE_HEADER;
    struct place place = {file, 0};
    const struct attn_npy_source from = {file->path, file->size, &header_left, read_next, &place};
    file->tensor = calloc(1, sizeof *file->tensor);
    if (file->tensor == NULL || (file->tensor->name = strdup("")) == NULL)
        return attn_fault(err, ATTN_ENOMEM, file->path, "no memory for its header");
    file->n_tensors = 1;
    return attn_npy_read(&from, file->tensor, err);
}

/* ---- writing ------------------------------------------------------------------------------ */

/* Magic, version, length and dictionary, with blanks up to a multiple of 64; returns its bytes. */
static int make_header(const struct attn_file_tensor *t, int d, char text[512])
{
    int n = snprintf(text + 10, 400, "{'descr': '%c%c%d', 'fortran_order': False, 'shape': (",
                     known[d].size == 1 ? '|' : '<', known[d].kind, known[d].size);
    for (int a = 0; a < t->n_axes; a++)
        n += snprintf(text + 10 + n, (size_t)(400 - n), "%lld%s", (long long)t->extent[a],
                      t->n_axes == 1      ? ","
                      : a + 1 < t->n_axes ? ", "
                                          : "");
    n += snprintf(text + 10 + n, (size_t)(400 - n), "), }");
    int total = (10 + n + 1 + 63) / 64 * 64, length = total - 10;
    memset(text + 10 + n, ' ', (size_t)(length - n - 1));
    text[total - 1] = '\n';
    memcpy(text, "\x93NUMPY\x01\x00", 8);
    text[8] = (char)(length & 0xff);
    text[9] = (char)(length >> 8);
    return total;
}

enum attn_status attn_npy_write(const char *path, const struct attn_file_tensor *tensor,
                                struct attn_error *err)
{
    struct attn_file_tensor t = *tensor;
    struct attn_save save;
    char header[512];
    int d = 0;
    while (d < KNOWN && known[d].dtype != t.dtype)
        d++;
    if (d == KNOWN)
        return attn_fault(err, ATTN_EINVAL, path, ".npy has no type %s: safetensors has",
                          attn_file_dtype_name(t.dtype));
    enum attn_status status = attn_file_measure(path, &t, err);
    if (status == ATTN_OK)
        status = attn_save_open(path, &save, err);
    if (status != ATTN_OK)
        return status;
    fwrite(header, 1, (size_t)make_header(&t, d, header), save.stream);
    fwrite(t.data, 1, (size_t)t.bytes, save.stream);
    return attn_save_close(&save, ATTN_OK, err);
}

const struct attn_file_format attn_format_npy = {
    .suffix = ".npy", .marks = {"\x93NUMPY"}, .header = header, .read = attn_file_read_plain};
