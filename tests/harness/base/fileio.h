/* Bytes from and to files, for the formats of files.h: exact reads, writes that are whole or not at
 * all, and one way of saying what is wrong with a file. */
#ifndef TESTS_HARNESS_FILES_FILEIO_H
#define TESTS_HARNESS_FILES_FILEIO_H

#include <stdio.h>

#include "ref/attn.h"

/* Fail with "PATH: what".  A long path keeps its end. */
enum attn_status attn_fault(struct attn_error *err, enum attn_status status, const char *path,
                            const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Make one harmless line of a text from elsewhere.  A byte becomes '?' where it is not UTF-8 or
 * belongs to a control character (C1 included), to a mark that reverses the direction of text, or
 * to a character that XML does not allow. */
void attn_clean(char *text);
const char *attn_cleaned(const char *text, char *to, size_t size); /* a copy, cut at that size */

/* The same of n bytes, which '\0' follows; the control characters in `kept` stay.  Returns the
 * bytes that are done: n, or, unless this is all of the text, those before an incomplete last
 * character. */
size_t attn_clean_part(char *text, size_t n, const char *kept, int is_whole);

/* Write behind the text that is there, as much as fits. */
void attn_append(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The status of a system call that failed with this errno: ENOMEM when the machine lacks files,
 * memory or space, EINVAL when the path is at fault. */
enum attn_status attn_read_errno(int error);

/* The owner of a file.  A file of another program may be a symbolic link to anywhere, so no link of
 * it is followed. */
enum attn_read_whose { ATTN_READ_GIVEN, ATTN_READ_THEIRS };

/* Every reader opens its file by one of these.  They open regular files only and wait for none, so
 * that a FIFO cannot block them.  EINVAL: missing, unreadable, a directory, a device, a FIFO;
 * attn_read_errno. */

/* *fd is the caller's, *size its bytes now.  Also EINVAL: a file of tensors that is empty. */
enum attn_status attn_read_open(const char *path, int *fd, int64_t *size, struct attn_error *err);

/* A stream to read lines from; NULL on failure. */
FILE *attn_read_stream(const char *path, enum attn_read_whose whose, struct attn_error *err);

/* All of it as a string, without '\0' inside, to be freed.  Also EINVAL: nothing, or more than
 * `most` bytes. */
enum attn_status attn_read_text(const char *path, enum attn_read_whose whose, int64_t most,
                                char **text, struct attn_error *err);

/* Exactly `bytes` bytes from `offset`; EINVAL when the file has become shorter. */
enum attn_status attn_read_at(int fd, const char *path, int64_t offset, void *to, int64_t bytes,
                              struct attn_error *err);

/* The one way of writing a file anew: a temporary file in the same folder takes the name `path`
 * only when everything is on the disk.  After a failure, which is ENOMEM, the environment's fault,
 * nothing is left, and a file that had the name before is untouched.  A device such as a terminal
 * is written as it is; a FIFO, which would be waited for, or a folder is refused.  After a good
 * open write to the stream, whose errors are found by close, which must follow. */
struct attn_save {
    const char *path; /* borrowed */
    FILE *stream;
    int is_soon; /* set after open: close does not wait until the bytes are on the disk */
    char *target, *temporary; /* private */
};
enum attn_status attn_save_open(const char *path, struct attn_save *save, struct attn_error *err);

/* status: whether what was written is right; when it is not ATTN_OK, nothing is kept and it is
 * returned. */
enum attn_status attn_save_close(struct attn_save *save, enum attn_status status,
                                 struct attn_error *err);

/* Before work whose result goes to `path`: ENOMEM, as by open and close, where that file could not
 * be made or there is no room for a byte.  Nothing is left. */
enum attn_status attn_save_check(const char *path, struct attn_error *err);

#endif
