/* See fileio.h.  pread and write rather than stdio and mmap: a mapped file that another process
 * shortens kills its reader with SIGBUS, where a short read is an error like any other. */
#include "tests/harness/base/fileio.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PATH_SHOWN = 160,   /* of a path, so that the fault fits an attn_error as well */
    AT_ONCE = 1 << 30,  /* Linux moves at most 2^31 - 4096 bytes in one call */
    NAMES_TRIED = 1000, /* temporary names, before we believe that something is wrong */
};

#define TEMPORARY ".attnlab-%d-%d.tmp" /* the process that writes it, and a number */

/* Bytes of the character at p, behind which '\0' comes: 1 to 4; 0 where there is none to show. */
static size_t character(const unsigned char *p)
{
    static const struct {
        unsigned char mask, is;
        size_t n;
        unsigned least; /* smaller numbers take fewer bytes; below 0xa0 are the C1 codes */
    } form[] = {{0x80, 0, 1, 0x20},
                {0xe0, 0xc0, 2, 0xa0},
                {0xf0, 0xe0, 3, 0x800},
                {0xf8, 0xf0, 4, 0x10000}};
    static const unsigned never[][2] = {{0x7f, 0x7f},     {0x61c, 0x61c},   {0x200e, 0x200f},
                                        {0x2028, 0x202e}, {0x2066, 0x2069}, {0xd800, 0xdfff},
                                        {0xfffe, 0xffff}, {0x110000, ~0u}};
    size_t f = 0, n = 1;
    while (f < 4 && (p[0] & form[f].mask) != form[f].is)
        f++;
    if (f == 4)
        return 0;
    unsigned code = p[0] & (unsigned)(unsigned char)~form[f].mask;
    for (; n < form[f].n && (p[n] & 0xc0) == 0x80; n++)
        code = code << 6 | (p[n] & 0x3fu);
    int is_shown = n == form[f].n && code >= form[f].least;
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        is_shown &= code < never[i][0] || code > never[i][1];
    return is_shown ? n : 0;
}

size_t attn_clean_part(char *text, size_t n, const char *kept, int is_whole)
{
    for (size_t at = 0, size; at < n; at += size) {
        unsigned char first = (unsigned char)text[at];
        size_t wants = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
        if (!is_whole && wants > n - at)
            return at;
        size = character((const unsigned char *)text + at);
        if (size == 0 && (first == '\0' || strchr(kept, first) == NULL))
            text[at] = '?';
        size += size == 0;
    }
    return n;
}

void attn_clean(char *text)
{
    attn_clean_part(text, strlen(text), "", 1);
}

const char *attn_cleaned(const char *text, char *to, size_t size)
{
    int is_whole = (size_t)snprintf(to, size, "%s", text) < size;
    to[attn_clean_part(to, strlen(to), "", is_whole)] = '\0'; /* at a character's end */
    return to;
}

void attn_append(char *text, size_t size, const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, size - used, format, args);
    va_end(args);
}

enum attn_status attn_fault(struct attn_error *err, enum attn_status status, const char *path,
                            const char *format, ...)
{
    char what[320];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    size_t n = strlen(path), from = n > PATH_SHOWN ? n - PATH_SHOWN : 0;
    while (from > 0 && ((unsigned char)path[from] & 0xc0) == 0x80)
        from++; /* to where a character begins */
    attn_fail(err, status, "%s%s: %s", from > 0 ? "..." : "", path + from, what);
    return status;
}

enum attn_status attn_read_errno(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOSPC ? ATTN_ENOMEM
                                                                                    : ATTN_EINVAL;
}

static enum attn_status open_regular(const char *path, enum attn_read_whose whose, int *fd,
                                     struct stat *info, struct attn_error *err)
{
    const char *wrong = NULL;
    int nofollow = whose == ATTN_READ_THEIRS ? O_NOFOLLOW : 0;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | nofollow);
    if (*fd < 0 && nofollow && errno == ELOOP)
        return attn_fault(err, ATTN_EINVAL, path, "is a symbolic link, which is not followed here");
    if (*fd < 0)
        return attn_fault(err, attn_read_errno(errno), path, "cannot be opened: %s",
                          strerror(errno));
    if (fstat(*fd, info) != 0)
        wrong = strerror(errno);
    else if (S_ISDIR(info->st_mode))
        wrong = "is a directory, not a file";
    else if (!S_ISREG(info->st_mode))
        wrong = "is not a regular file: pipes and devices are not read";
    if (wrong == NULL)
        return ATTN_OK;
    close(*fd);
    *fd = -1;
    return attn_fault(err, ATTN_EINVAL, path, "%s", wrong);
}

enum attn_status attn_read_open(const char *path, int *fd, int64_t *size, struct attn_error *err)
{
    struct stat info;
    enum attn_status status = open_regular(path, ATTN_READ_GIVEN, fd, &info, err);
    if (status != ATTN_OK)
        return status;
    *size = info.st_size;
    if (*size > 0)
        return ATTN_OK;
    close(*fd);
    *fd = -1;
    return attn_fault(err, ATTN_EINVAL, path, "is empty: no tensors (0 bytes)");
}

FILE *attn_read_stream(const char *path, enum attn_read_whose whose, struct attn_error *err)
{
    struct stat info;
    int fd;
    if (open_regular(path, whose, &fd, &info, err) != ATTN_OK)
        return NULL;
    FILE *file = fdopen(fd, "r");
    if (file == NULL) {
        attn_fault(err, ATTN_ENOMEM, path, "cannot be read: %s", strerror(errno));
        close(fd);
    }
    return file;
}

enum attn_status attn_read_text(const char *path, enum attn_read_whose whose, int64_t most,
                                char **text, struct attn_error *err)
{
    struct stat info;
    int fd;
    *text = NULL;
    enum attn_status status = open_regular(path, whose, &fd, &info, err);
    if (status != ATTN_OK)
        return status;
    int64_t size = info.st_size;
    if (size == 0)
        status = attn_fault(err, ATTN_EINVAL, path, "is empty");
    else if (size > most)
        status = attn_fault(err, ATTN_EINVAL, path, "has %lld bytes, at most %lld are read",
                            (long long)size, (long long)most);
    else if ((*text = calloc((size_t)size + 1, 1)) == NULL)
        status =
            attn_fault(err, ATTN_ENOMEM, path, "no memory for its %lld bytes", (long long)size);
    else
        status = attn_read_at(fd, path, 0, *text, size, err);
    close(fd);
    if (status == ATTN_OK && memchr(*text, '\0', (size_t)size) != NULL)
        status = attn_fault(err, ATTN_EINVAL, path, "is not a text: it has a byte 0");
    if (status == ATTN_OK)
        return ATTN_OK;
    free(*text);
    *text = NULL;
    return status;
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

/* Forget everything, and say why. */
static enum attn_status give_up(struct attn_save *save, int error, struct attn_error *err)
{
    if (save->stream != NULL)
        fclose(save->stream);
    if (save->temporary != NULL)
        unlink(save->temporary);
    free(save->temporary);
    free(save->target);
    save->temporary = save->target = NULL;
    save->stream = NULL;
    return attn_fault(err, ATTN_ENOMEM, save->path, "cannot be written: %s; nothing was left there",
                      error == ESPIPE ? "it is a pipe or a socket"
                                      : strerror(error != 0 ? error : EIO));
}

/* The file that is to be replaced: the one behind a symbolic link, not the link.  *device: 1 where
 * there is a device, which is written as it is.  Returns 0, or an error number. */
static int find_target(struct attn_save *save, int *device, mode_t *mode)
{
    struct stat info;
    *device = 0;
    *mode = 0;
    save->target = realpath(save->path, NULL);
    if (save->target == NULL && errno == ENOENT) /* nothing yet, or no folder either */
        save->target = strdup(save->path);
    else if (save->target != NULL && stat(save->target, &info) == 0) {
        *device = S_ISCHR(info.st_mode);
        *mode = info.st_mode & 0777;
        if (!*device && !S_ISREG(info.st_mode))
            return S_ISDIR(info.st_mode) ? EISDIR : ESPIPE;
        if (access(save->target, W_OK) != 0)
            return errno;
    }
    return save->target != NULL ? 0 : errno;
}

/* Removes the files that dead processes were writing in this folder.  A number says nothing of the
 * processes of another machine or container; the lock does. */
static void remove_abandoned(const char *folder)
{
    char name[64];
    const struct dirent *entry;
    DIR *all = opendir(folder);
    while (all != NULL && (entry = readdir(all)) != NULL) {
        int pid = 0, t = 0, fd = -1;
        if (sscanf(entry->d_name, TEMPORARY, &pid, &t) != 2 || pid <= 0)
            continue;
        snprintf(name, sizeof name, TEMPORARY, pid, t);
        if (strcmp(name, entry->d_name) == 0 && kill(pid, 0) != 0 && errno == ESRCH)
            fd = openat(dirfd(all), name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
            unlinkat(dirfd(all), name, 0);
        if (fd >= 0)
            close(fd);
    }
    if (all != NULL)
        closedir(all);
}

/* A new file in the folder of the target; -1 with errno. */
static int open_temporary(struct attn_save *save)
{
    const char *slash = strrchr(save->target, '/');
    int fd = -1, folder = slash != NULL ? (int)(slash - save->target) + 1 : 0;
    size_t capacity = (size_t)folder + 64;
    char *name = malloc(capacity);
    if (name != NULL) {
        snprintf(name, capacity, "%.*s", folder > 0 ? folder : 1, folder > 0 ? save->target : ".");
        remove_abandoned(name);
    }
    for (int t = 0; name != NULL && fd < 0 && t < NAMES_TRIED; t++) {
        snprintf(name, capacity, "%.*s" TEMPORARY, folder, save->target, (int)getpid(), t);
        fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    if (fd >= 0) {
        flock(fd, LOCK_EX | LOCK_NB);
        save->temporary = name;
    } else
        free(name);
    return fd;
}

enum attn_status attn_save_open(const char *path, struct attn_save *save, struct attn_error *err)
{
    int device;
    mode_t mode;
    *save = (struct attn_save){.path = path};
    int error = find_target(save, &device, &mode);
    if (error != 0)
        return give_up(save, error, err);
    int fd = device ? open(save->target, O_WRONLY | O_CLOEXEC | O_NOCTTY) : open_temporary(save);
    if (fd >= 0 && mode != 0 && !device)
        (void)fchmod(fd, mode); /* its permissions are as they were */
    save->stream = fd >= 0 ? fdopen(fd, "w") : NULL;
    error = errno;
    if (save->stream != NULL)
        return ATTN_OK;
    if (fd >= 0)
        close(fd);
    return give_up(save, error, err);
}

enum attn_status attn_save_check(const char *path, struct attn_error *err)
{
    struct attn_save save;
    struct attn_error unsaid;
    enum attn_status status = attn_save_open(path, &save, err);
    if (status != ATTN_OK)
        return status;
    if (save.temporary != NULL && (fputc('\n', save.stream) == EOF || fflush(save.stream) != 0))
        return give_up(&save, errno, err);
    give_up(&save, 0, &unsaid);
    return ATTN_OK;
}

enum attn_status attn_save_close(struct attn_save *save, enum attn_status status,
                                 struct attn_error *err)
{
    struct attn_error unsaid;
    if (status != ATTN_OK) {
        give_up(save, 0, &unsaid);
        return status;
    }
    /* fsync and close: some file systems find out only here that the disk is full. */
    FILE *stream = save->stream;
    if (ferror(stream) || fflush(stream) != 0 ||
        (!save->is_soon && fsync(fileno(stream)) != 0 && errno != EINVAL))
        return give_up(save, errno, err);
    save->stream = NULL;
    if (fclose(stream) != 0 ||
        (save->temporary != NULL && rename(save->temporary, save->target) != 0))
        return give_up(save, errno, err);
    free(save->temporary);
    free(save->target);
    return ATTN_OK;
}
