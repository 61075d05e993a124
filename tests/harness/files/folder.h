/* Folders: made, and removed with all that is in them. */
#ifndef TESTS_HARNESS_FILES_FOLDER_H
#define TESTS_HARNESS_FILES_FOLDER_H

#include "ref/attn.h"

enum { ATTN_FOLDER_PATH = 4096 };

/* The folder is there already or is made, not those above it.  ENOMEM: it cannot be. */
enum attn_status attn_folder_make(const char *path, struct attn_error *err);

/* A new one below $TMPDIR or /tmp. */
enum attn_status attn_folder_temporary(char path[ATTN_FOLDER_PATH], struct attn_error *err);

/* Whatever another program left there: any depth, links, folders without permissions. */
void attn_folder_remove(const char *path);

#endif
