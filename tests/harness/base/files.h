/* Named tensors in files: safetensors, .npy and .npz.
 *
 * A file is opened, which reads and checks its header only; then the tensors that are wanted are
 * loaded one by one.  So a caller knows every shape, and can refuse, before anything large is
 * allocated.  A header is believed only where it agrees with the size of the file: whatever it
 * claims, no more is allocated than the file holds (and 1 MiB of header at most); a deflated member
 * of a .npz gives what the header of its .npy asks for, and not a byte more.  Each fault is one
 * line that names the file.  docs/formats.md says exactly what is read and written.
 */
#ifndef TESTS_HARNESS_FILES_FILES_H
#define TESTS_HARNESS_FILES_FILES_H

#include "ref/attn.h"

enum attn_file_dtype {
    ATTN_FILE_F64,
    ATTN_FILE_F32,
    ATTN_FILE_BF16,
    ATTN_FILE_F16,
    ATTN_FILE_I64,
    ATTN_FILE_I32,
    ATTN_FILE_I16,
    ATTN_FILE_I8,
    ATTN_FILE_U8,
    ATTN_FILE_BOOL /* one byte; 0 is false */
};
enum { ATTN_FILE_DTYPES = 10, ATTN_FILE_AXES = 8, ATTN_FILE_HEADER = 1 << 20 };

const char *attn_file_dtype_name(enum attn_file_dtype dtype); /* "F64", as safetensors write it */
int64_t attn_file_dtype_size(enum attn_file_dtype dtype);     /* bytes */

/* 1 and *storage where attention stores such numbers (the four floating types), else 0. */
int attn_file_dtype_storage(enum attn_file_dtype dtype, enum attn_dtype *storage);
enum attn_file_dtype attn_file_dtype_of(enum attn_dtype storage);

struct attn_file_tensor {
    const char *name; /* "" in a .npy file, which has no names */
    enum attn_file_dtype dtype;
    int n_axes; /* 0: a single number */
    int64_t extent[ATTN_FILE_AXES];
    int64_t bytes; /* product of extents * size */
    void *data;    /* NULL until loaded; then C order, this machine's bytes, aligned to 64 */
    void *map;     /* NULL, or the pages of the file in which data is; then aligned to its type */
    size_t map_bytes;
    /* where the file keeps it */
    int64_t offset; /* in a .npz: after the start of its member */
    int64_t member; /* of a .npz */
    int fortran;    /* first axis fastest */
    int swapped;    /* the other byte order */
};

struct attn_file_pair {
    const char *key, *value;
};

struct attn_file {
    const struct attn_file_format *format;
    char *path;
    int fd;
    int64_t size;
    int n_tensors, n_metadata;
    struct attn_file_tensor *tensor;
    struct attn_file_pair *metadata; /* safetensors' __metadata__; the others have none */
    void *archive;                   /* libzip's, of a .npz */
};

/* Returns 1 if a file of that name, in a folder of many, is one of tensors; the ends of such names,
 * as ".safetensors, .npy or .npz". */
int attn_file_is_named(const char *name);
const char *attn_file_suffixes(char text[64]);

/* The format is known by the first bytes, not by the name.  After a failure the struct is empty;
 * closing it is legal.  EINVAL: cannot be read, or is not what it should be; ENOMEM. */
enum attn_status attn_file_open(const char *path, struct attn_file *file, struct attn_error *err);
void attn_file_close(struct attn_file *file); /* frees the tensors' data too */

struct attn_file_tensor *attn_file_find(const struct attn_file *file, const char *name);
const char *attn_file_metadata(const struct attn_file *file, const char *key); /* NULL: not there */

/* Read a tensor of this file; does nothing when it is there already. */
enum attn_status attn_file_load(const struct attn_file *file, struct attn_file_tensor *tensor,
                                struct attn_error *err);

/* The same for a caller that reads a part of it: where the file has the numbers as they are needed,
 * data is a mapping of the file, of which only touched pages are read. */
enum attn_status attn_file_map(const struct attn_file *file, struct attn_file_tensor *tensor,
                               struct attn_error *err);

/* As many axes of the same extents. */
int attn_file_same_shape(const struct attn_file_tensor *a, const struct attn_file_tensor *b);

/* "[1,2,512,64]".  Returns text. */
const char *attn_file_shape(const struct attn_file_tensor *tensor, char text[160]);

/* Write.  name, dtype, n_axes, extent and data of each tensor are used.  The file appears whole or
 * not at all; one that is there is replaced.  EINVAL: two of one name, a type that .npy lacks
 * (BF16), or the disk's own words. */
enum attn_status attn_safetensors_write(const char *path, const struct attn_file_tensor *tensor,
                                        int n_tensors, const struct attn_file_pair *metadata,
                                        int n_metadata, struct attn_error *err);
enum attn_status attn_npy_write(const char *path, const struct attn_file_tensor *tensor,
                                struct attn_error *err);

/* ---- formats: each is one of these, in a file of its own, and stands in the list of files.c -- */

struct attn_file_format {
    const char *suffix;   /* of its files */
    const char *marks[2]; /* how such a file begins, one of them; none: it has no mark */

    /* Fill file->tensor and file->metadata.  attn_file_close frees what they hold, after a failure
     * too. */
    enum attn_status (*header)(struct attn_file *file, struct attn_error *err);

    /* The numbers of a tensor, as they are kept, into its `bytes` bytes. */
    enum attn_status (*read)(const struct attn_file *file, const struct attn_file_tensor *tensor,
                             void *to, struct attn_error *err);

    void (*close)(struct attn_file *file); /* frees `archive`; NULL: there is none */
};
extern const struct attn_file_format attn_format_safetensors, attn_format_npy, attn_format_npz;

/* The read of a format whose numbers stand in the file itself, at `offset`. */
enum attn_status attn_file_read_plain(const struct attn_file *file,
                                      const struct attn_file_tensor *tensor, void *to,
                                      struct attn_error *err);

/* A .npy that is read byte after byte: a file, or a member of an archive.  The tensor, which has
 * its name already, gets type, shape and offset from its header. */
struct attn_npy_source {
    const char *label; /* names it in messages                                             */
    int64_t size;
    int64_t *header_left; /* bytes that headers may still take: those of this one go off      */
    enum attn_status (*read)(void *arg, void *to, int64_t bytes, struct attn_error *err);
    void *arg;
};
enum attn_status attn_npy_read(const struct attn_npy_source *from, struct attn_file_tensor *tensor,
                               struct attn_error *err);

/* Bytes from dtype and extents, checked: EINVAL when extents are negative or a product exceeds
 * 64 bits (zero extents do not excuse the others). */
enum attn_status attn_file_measure(const char *path, struct attn_file_tensor *tensor,
                                   struct attn_error *err);

#endif
