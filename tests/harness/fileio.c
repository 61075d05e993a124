/* See fileio.h.  pread and write rather than stdio and mmap: a mapped file that somebody shortens
 * kills its reader with SIGBUS, where a short read is an error like any other. */
#include "tests/harness/fileio.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PATH_SHOWN = 160,   /* of a path, so that the fault fits an attn_error as well */
    AT_ONCE = 1 << 30,  /* Linux moves at most 2^31 - 4096 bytes in one call */
    NAMES_TRIED = 1000, /* temporary names, before we believe that something is wrong */
};

void attn_clean(char *text)
{
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = '?';
}

enum attn_status attn_fault(struct attn_error *err, enum attn_status status, const char *path,
                            const char *format, ...)
{
    char what[320];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    size_t n = strlen(path);
    attn_fail(err, status, "%s%s: %s", n > PATH_SHOWN ? "..." : "",
              n > PATH_SHOWN ? path + n - PATH_SHOWN : path, what);
    return status;
}

enum attn_status attn_read_open(const char *path, int *fd, int64_t *size, struct attn_error *err)
{
    struct stat info;
    const char *wrong = NULL;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK); /* a FIFO must not block */
    if (*fd < 0)
        return attn_fault(err, ATTN_EINVAL, path, "cannot be opened: %s", strerror(errno));
    if (fstat(*fd, &info) != 0)
        wrong = strerror(errno);
    else if (S_ISDIR(info.st_mode))
        wrong = "is a directory, not a file of tensors";
    else if (!S_ISREG(info.st_mode))
        wrong = "is not a regular file: pipes and devices are not read";
    else if (info.st_size == 0)
        wrong = "is empty: no tensors (0 bytes)";
    if (wrong == NULL) {
        *size = info.st_size;
        return ATTN_OK;
    }
    close(*fd);
    *fd = -1;
    return attn_fault(err, ATTN_EINVAL, path, "%s", wrong);
}

enum attn_status attn_read_at(int fd, const char *path, int64_t offset, void *to, int64_t bytes,
                              struct attn_error *err)
{
    for (int64_t done = 0; done < bytes;) {
        int64_t left = bytes - done;
        ssize_t n =
            pread(fd, (char *)to + done, left < AT_ONCE ? left : AT_ONCE, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return attn_fault(err, ATTN_EINVAL, path, "cannot be read: %s", strerror(errno));
        if (n == 0)
            return attn_fault(err, ATTN_EINVAL, path,
                              "became shorter while it was read: ends at byte %lld",
                              (long long)(offset + done));
        done += n;
    }
    return ATTN_OK;
}

/* ---- writing ------------------------------------------------------------------------------ */

static enum attn_status give_up(struct attn_save *save, int error, struct attn_error *err)
{
    if (save->fd >= 0)
        close(save->fd);
    if (save->temporary != NULL)
        unlink(save->temporary);
    free(save->temporary);
    save->temporary = NULL;
    save->fd = -1;
    return attn_fault(err, ATTN_EINVAL, save->path, "cannot be written: %s; nothing was left there",
                      strerror(error));
}

enum attn_status attn_save_open(const char *path, struct attn_save *save, struct attn_error *err)
{
    const char *slash = strrchr(path, '/');
    int folder = slash != NULL ? (int)(slash - path) + 1 : 0;
    size_t room = (size_t)folder + 64;
    *save = (struct attn_save){path, malloc(room), -1};
    if (save->temporary == NULL)
        return attn_fault(err, ATTN_ENOMEM, path, "no memory for its name");
    for (int t = 0; t < NAMES_TRIED && save->fd < 0; t++) {
        snprintf(save->temporary, room, "%.*s.attnlab-%ld-%d.tmp", folder, path, (long)getpid(), t);
        save->fd = open(save->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (save->fd < 0 && errno != EEXIST)
            break;
    }
    if (save->fd >= 0)
        return ATTN_OK;
    int error = errno;
    free(save->temporary); /* not ours: give_up must not remove it */
    save->temporary = NULL;
    return give_up(save, error, err);
}

enum attn_status attn_save_write(struct attn_save *save, const void *data, int64_t bytes,
                                 struct attn_error *err)
{
    for (int64_t done = 0; done < bytes;) {
        int64_t left = bytes - done;
        ssize_t n = write(save->fd, (const char *)data + done, left < AT_ONCE ? left : AT_ONCE);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return give_up(save, n < 0 ? errno : ENOSPC, err);
        done += n;
    }
    return ATTN_OK;
}

enum attn_status attn_save_close(struct attn_save *save, struct attn_error *err)
{
    /* fsync and close: some file systems find out only here that the disk is full. */
    if (fsync(save->fd) != 0 && errno != EINVAL)
        return give_up(save, errno, err);
    int fd = save->fd;
    save->fd = -1;
    if (close(fd) != 0 || rename(save->temporary, save->path) != 0)
        return give_up(save, errno, err);
    free(save->temporary);
    save->temporary = NULL;
    return ATTN_OK;
}
