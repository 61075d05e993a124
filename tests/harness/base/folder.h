/* Folders: made, and removed with all that is in them. */
#ifndef TESTS_HARNESS_FILES_FOLDER_H
#define TESTS_HARNESS_FILES_FOLDER_H

#include <dirent.h>
#include <sys/types.h>

#include "ref/attn.h"

enum { ATTN_FOLDER_PATH = 4096 };

/* The folder is there already or is made, not those above it.  ENOMEM: it cannot be. */
enum attn_status attn_folder_make(const char *path, struct attn_error *err);

/* Removes all that a program left there: any depth, links, folders without permissions. */
void attn_folder_remove(const char *path);

/* The names in an open folder but for . and .., in turn; NULL at the end.  Not readdir(): it takes
 * no memory. */
struct attn_entries {
    int fd;
    ssize_t size, at; /* 0 before the first one */
    _Alignas(struct dirent64) char data[4096];
};
const char *attn_entries_next(struct attn_entries *x);

/* The content of a folder, at any depth: names, sizes, and times of change, which only the kernel
 * writes.  attn_folder_changed finds the first path in it that is another now: 1, and where.  NULL:
 * there was no memory, or no such folder, and everything counts as changed. */
struct attn_folder_view;
struct attn_folder_view *attn_folder_look(const char *folder);
int attn_folder_changed(const char *folder, const struct attn_folder_view *before, char *path,
                        size_t size);
void attn_folder_forget(struct attn_folder_view *view);

#endif
