/* Opening a file of records for appending: the one place that ever shortens such a file. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/record.h"

/* Bytes up to and including the last newline; -1 with errno. */
static off_t whole_lines(int fd, off_t size)
{
    char part[4096];
    while (size > 0) {
        off_t from = size > (off_t)sizeof part ? size - (off_t)sizeof part : 0;
        ssize_t got = pread(fd, part, (size_t)(size - from), from);
        if (got < 0)
            return -1;
        for (ssize_t i = got; i > 0; i--)
            if (part[i - 1] == '\n')
                return from + i;
        size = from;
    }
    return 0;
}

/* A file that somebody else wrote must not lose its last line: ours begin like this. */
static int is_ours(int fd, off_t size)
{
    static const char head[] = "{\"schema\":";
    char found[sizeof head - 1];
    size_t n = size < (off_t)sizeof found ? (size_t)size : sizeof found;
    return pread(fd, found, n, 0) == (ssize_t)n && memcmp(found, head, n) == 0;
}

/* 0, or -1 with the reason in err. */
static int prepare(int fd, const char *path, struct attn_error *err)
{
    struct stat about;
    if (fstat(fd, &about) != 0) {
        attn_fail(err, ATTN_ENOMEM, "records %s: %s", path, strerror(errno));
        return -1;
    }
    if (S_ISCHR(about.st_mode)) /* such as /dev/null */
        return 0;
    if (!S_ISREG(about.st_mode)) {
        attn_fail(err, ATTN_ENOMEM, "records %s: not a file", path);
        return -1;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        attn_fail(err, ATTN_ENOMEM, "records %s: another measurement is writing to it", path);
        return -1;
    }
    if (!is_ours(fd, about.st_size)) {
        attn_fail(err, ATTN_EINVAL, "%s exists and is not a file of records: name another file",
                  path);
        return -1;
    }
    off_t end = whole_lines(fd, about.st_size);
    if (end < 0 || (end < about.st_size && ftruncate(fd, end) != 0)) {
        attn_fail(err, ATTN_ENOMEM, "records %s: %s", path, strerror(errno));
        return -1;
    }
    return 0;
}

FILE *attn_record_append(const char *path, struct attn_error *err)
{
    int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666);
    if (fd < 0) {
        attn_fail(err, ATTN_ENOMEM, "records %s: %s", path, strerror(errno));
        return NULL;
    }
    if (prepare(fd, path, err) != 0) {
        close(fd);
        return NULL;
    }
    FILE *file = fdopen(fd, "a");
    if (file == NULL) {
        attn_fail(err, ATTN_ENOMEM, "records %s: %s", path, strerror(errno));
        close(fd);
    }
    return file;
}
