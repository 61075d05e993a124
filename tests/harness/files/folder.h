/* Folders: made, and removed with all that is in them. */
#ifndef TESTS_HARNESS_FILES_FOLDER_H
#define TESTS_HARNESS_FILES_FOLDER_H

#include <time.h>

#include "ref/attn.h"

enum { ATTN_FOLDER_PATH = 4096 };

/* The folder is there already or is made, not those above it.  ENOMEM: it cannot be. */
enum attn_status attn_folder_make(const char *path, struct attn_error *err);

/* A new one below $TMPDIR or /tmp. */
enum attn_status attn_folder_temporary(char path[ATTN_FOLDER_PATH], struct attn_error *err);

/* Whatever another program left there: any depth, links, folders without permissions. */
void attn_folder_remove(const char *path);

/* From this moment on, whatever changes in a folder can be told from what was there; and the first
 * such file or folder in it, by the time of change that only the kernel writes: 1, and its path. */
void attn_folder_mark(struct timespec *since);
int attn_folder_changed(const char *folder, const struct timespec *since, char *path, size_t size);

#endif
