/* A source of named tensors, which is what `attnlab run` and `attnlab compare` read: one file, or
 * all files of tensors in a folder.  Two of them can be compared name by name. */
#ifndef EXPERIMENTS_RIM_FILES_TENSORS_H
#define EXPERIMENTS_RIM_FILES_TENSORS_H

#include "tests/harness/base/files.h"

enum { ATTN_TENSORS_FILES = 256 }; /* of one folder: each stays open */

struct attn_tensors_entry {
    char name[128]; /* of a .npy file: the name of the file without .npy */
    struct attn_file *file;
    struct attn_file_tensor *tensor;
};

struct attn_tensors {
    const char *path; /* borrowed */
    int n_files, n;
    struct attn_file *file;
    struct attn_tensors_entry *entry; /* sorted by name */
};

/* Reads headers only.  EINVAL for what is no set of tensors: no such path, a folder without
 * tensors, one name twice, a file that is not what it should be; ENOMEM.  Close it after a failure
 * too. */
enum attn_status attn_tensors_open(const char *path, struct attn_tensors *set,
                                   struct attn_error *err);

void attn_tensors_close(struct attn_tensors *set);

struct attn_tensors_entry *attn_tensors_find(const struct attn_tensors *set, const char *name);

int attn_tensors_have_inputs(const struct attn_tensors *set); /* q, k and v */

int64_t attn_tensors_count(const struct attn_file_tensor *tensor); /* elements */

/* Its data into memory; attn_file_load, attn_file_map. */
enum attn_status attn_tensors_load(const struct attn_tensors_entry *entry, struct attn_error *err);
enum attn_status attn_tensors_map(const struct attn_tensors_entry *entry, struct attn_error *err);

/* Load, and give the numbers as double, malloc'ed: exact for all types but I64.  *values is
 * untouched after a failure. */
enum attn_status attn_tensors_values(const struct attn_tensors_entry *entry, double **values,
                                     struct attn_error *err);

#endif
