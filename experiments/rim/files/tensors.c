/* See tensors.h. */
#include "experiments/rim/files/tensors.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "experiments/cli/cli.h"
#include "ref/problem.h"
#include "tests/harness/base/fileio.h"

static int holds_tensors(const struct dirent *entry)
{
    return attn_file_is_named(entry->d_name);
}

static enum attn_status add_file(struct attn_tensors *set, const char *path, struct attn_error *err)
{
    enum attn_status status = attn_file_open(path, &set->file[set->n_files], err);
    set->n_files += status == ATTN_OK;
    return status;
}

static enum attn_status add_listed(struct attn_tensors *set, struct dirent **list, int n,
                                   struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    char suffixes[64];
    if (n == 0)
        return attn_fault(err, ATTN_EINVAL, set->path, "the folder holds no %s file",
                          attn_file_suffixes(suffixes));
    if (n > ATTN_TENSORS_FILES)
        return attn_fault(err, ATTN_EINVAL, set->path,
                          "the folder holds %d files of tensors: %d at most; put them into one "
                          "safetensors file",
                          n, ATTN_TENSORS_FILES);
    for (int i = 0; i < n && status == ATTN_OK; i++) {
        char *path = attn_cli_text("%s/%s", set->path, list[i]->d_name);
        status = add_file(set, path, err);
        free(path);
    }
    return status;
}

static enum attn_status add_folder(struct attn_tensors *set, struct attn_error *err)
{
    struct dirent **list;
    int n = scandir(set->path, &list, holds_tensors, alphasort);
    if (n < 0)
        return attn_fault(err, attn_read_errno(errno), set->path, "the folder cannot be read: %s",
                          strerror(errno));
    enum attn_status status = add_listed(set, list, n, err);
    while (n > 0)
        free(list[--n]);
    free(list);
    return status;
}

static int by_name(const void *a, const void *b)
{
    const struct attn_tensors_entry *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* The name in the file, or that of a file which has no names. */
static void name_entry(struct attn_tensors_entry *entry)
{
    const char *path = entry->file->path, *slash = strrchr(path, '/');
    if (entry->tensor->name[0] != '\0') {
        snprintf(entry->name, sizeof entry->name, "%.127s", entry->tensor->name);
        return;
    }
    snprintf(entry->name, sizeof entry->name, "%.127s", slash != NULL ? slash + 1 : path);
    if (attn_cli_ends_with(entry->name, ".npy"))
        entry->name[strlen(entry->name) - 4] = '\0';
}

static enum attn_status list_entries(struct attn_tensors *set, struct attn_error *err)
{
    int total = 0;
    for (int f = 0; f < set->n_files; f++)
        total += set->file[f].n_tensors;
    set->entry = attn_cli_need(calloc((size_t)total + 1, sizeof *set->entry));
    for (int f = 0; f < set->n_files; f++)
        for (int t = 0; t < set->file[f].n_tensors; t++) {
            struct attn_tensors_entry *entry = &set->entry[set->n++];
            entry->file = &set->file[f];
            entry->tensor = &set->file[f].tensor[t];
            if (strlen(entry->tensor->name) >= sizeof entry->name)
                return attn_fault(err, ATTN_EINVAL, set->file[f].path,
                                  "tensor '%.40s...': names may have %zu characters",
                                  entry->tensor->name, sizeof entry->name - 1);
            name_entry(entry);
        }
    qsort(set->entry, (size_t)set->n, sizeof *set->entry, by_name);
    for (int i = 1; i < set->n; i++)
        if (strcmp(set->entry[i - 1].name, set->entry[i].name) == 0)
            return attn_fault(err, ATTN_EINVAL, set->path, "two tensors are called '%.40s'",
                              set->entry[i].name);
    return ATTN_OK;
}

enum attn_status attn_tensors_open(const char *path, struct attn_tensors *set,
                                   struct attn_error *err)
{
    struct stat about;
    *set = (struct attn_tensors){.path = path};
    set->file = attn_cli_need(calloc(ATTN_TENSORS_FILES, sizeof *set->file));
    int is_folder = stat(path, &about) == 0 && S_ISDIR(about.st_mode);
    enum attn_status status = is_folder ? add_folder(set, err) : add_file(set, path, err);
    return status == ATTN_OK ? list_entries(set, err) : status;
}

void attn_tensors_close(struct attn_tensors *set)
{
    for (int f = 0; f < set->n_files; f++)
        attn_file_close(&set->file[f]);
    free(set->file);
    free(set->entry);
    memset(set, 0, sizeof *set);
}

struct attn_tensors_entry *attn_tensors_find(const struct attn_tensors *set, const char *name)
{
    for (int i = 0; i < set->n; i++)
        if (strcmp(set->entry[i].name, name) == 0)
            return &set->entry[i];
    return NULL;
}

/* ---- numbers -------------------------------------------------------------------------------- */

int attn_tensors_have_inputs(const struct attn_tensors *set)
{
    return attn_tensors_find(set, "q") != NULL &&
           (attn_tensors_find(set, "kv") != NULL ||
            (attn_tensors_find(set, "k") != NULL && attn_tensors_find(set, "v") != NULL));
}

int64_t attn_tensors_count(const struct attn_file_tensor *tensor)
{
    return tensor->bytes / attn_file_dtype_size(tensor->dtype);
}

static double number(const struct attn_file_tensor *t, int64_t i)
{
    struct attn_cview view = {.data = t->data, .stride = {0, 0, 1, 0}};
    if (attn_file_dtype_storage(t->dtype, &view.dtype))
        return attn_cview_get(&view, 0, 0, i, 0);
    switch (t->dtype) {
    case ATTN_FILE_I64:
        return (double)((const int64_t *)t->data)[i];
    case ATTN_FILE_I32:
        return ((const int32_t *)t->data)[i];
    case ATTN_FILE_I16:
        return ((const int16_t *)t->data)[i];
    case ATTN_FILE_I8:
        return ((const int8_t *)t->data)[i];
    case ATTN_FILE_BOOL: /* 0 is false, all else is true */
        return ((const uint8_t *)t->data)[i] != 0;
    default:
        return ((const uint8_t *)t->data)[i];
    }
}

enum attn_status attn_tensors_load(const struct attn_tensors_entry *entry, struct attn_error *err)
{
    return attn_file_load(entry->file, entry->tensor, err);
}

enum attn_status attn_tensors_map(const struct attn_tensors_entry *entry, struct attn_error *err)
{
    return attn_file_map(entry->file, entry->tensor, err);
}

enum attn_status attn_tensors_values(const struct attn_tensors_entry *entry, double **values,
                                     struct attn_error *err)
{
    int64_t n = attn_tensors_count(entry->tensor), available = attn_cli_memory_available();
    char need[32], have[32];
    /* Both copies, before either: a deflated member may be a thousand times its file. */
    if (entry->tensor->bytes / 2 + 4 * n > available / 2)
        return attn_fault(err, ATTN_ENOMEM, entry->file->path,
                          "'%.40s' takes %s, twice, and this machine can give %s", entry->name,
                          attn_cli_bytes(8 * n, need), attn_cli_bytes(available, have));
    enum attn_status status = attn_tensors_load(entry, err);
    if (status != ATTN_OK)
        return status;
    *values = malloc(((size_t)n + 1) * sizeof **values);
    if (*values == NULL)
        return attn_fault(err, ATTN_ENOMEM, entry->file->path,
                          "no memory for the %lld numbers of '%.40s'", (long long)n, entry->name);
    for (int64_t i = 0; i < n; i++)
        (*values)[i] = number(entry->tensor, i);
    return ATTN_OK;
}
