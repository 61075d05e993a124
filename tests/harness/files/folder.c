/* See folder.h.  Removing moves the folders in a folder up to the outermost one, so that neither
 * the length of a path nor the number of open files limits how deep they may be. */
#include "tests/harness/files/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/harness/files/fileio.h"

enum attn_status attn_folder_make(const char *path, struct attn_error *err)
{
    struct stat info;
    if (mkdir(path, 0777) == 0)
        return ATTN_OK;
    int error = errno;
    if (error == EEXIST && stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        return ATTN_OK;
    return attn_fault(err, ATTN_ENOMEM, path, "cannot be made a folder: %s",
                      strerror(error == EEXIST ? ENOTDIR : error));
}

enum attn_status attn_folder_temporary(char path[ATTN_FOLDER_PATH], struct attn_error *err)
{
    const char *root = getenv("TMPDIR");
    snprintf(path, ATTN_FOLDER_PATH, "%.4000s/attnlab-XXXXXX",
             root != NULL && root[0] != '\0' ? root : "/tmp");
    if (mkdtemp(path) != NULL)
        return ATTN_OK;
    return attn_fault(err, ATTN_ENOMEM, path, "cannot be made a folder: %s", strerror(errno));
}

/* Of the entries of an open folder; not readdir(), which takes memory. */
struct entries {
    int fd;
    ssize_t size, at;
    _Alignas(struct dirent64) char data[4096];
};

static int open_folder(int at, const char *name, struct entries *x)
{
    fchmodat(at, name, 0700, 0);
    x->fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    x->size = x->at = 0;
    return x->fd >= 0;
}

/* NULL at the end. */
static const char *next_entry(struct entries *x)
{
    for (;;) {
        if (x->at == x->size) {
            x->at = 0;
            x->size = getdents64(x->fd, x->data, sizeof x->data);
            if (x->size <= 0)
                return NULL;
        }
        const struct dirent64 *entry = (const void *)(x->data + x->at);
        x->at += entry->d_reclen;
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            return entry->d_name;
    }
}

/* Remove a folder in `outer`; the folders in it move to `outer`, under names that nobody has.  1
 * when something was done. */
static int flatten(int outer, const char *name, unsigned *serial)
{
    struct entries folder;
    const char *entry;
    int moved = 0, opened = open_folder(outer, name, &folder);
    while (opened && (entry = next_entry(&folder)) != NULL) {
        char to[64];
        if (unlinkat(folder.fd, entry, 0) == 0)
            continue;
        fchmodat(folder.fd, entry, 0700, 0);
        snprintf(to, sizeof to, ".attnlab-removed-%u", (*serial)++);
        moved |= renameat(folder.fd, entry, outer, to) == 0;
    }
    if (opened)
        close(folder.fd);
    return unlinkat(outer, name, AT_REMOVEDIR) == 0 || moved;
}

void attn_folder_remove(const char *path)
{
    unsigned serial = 0;
    struct entries folder;
    const char *entry;
    for (int progress = 1; progress && open_folder(AT_FDCWD, path, &folder);) {
        progress = 0;
        while ((entry = next_entry(&folder)) != NULL)
            progress |= unlinkat(folder.fd, entry, 0) == 0 || flatten(folder.fd, entry, &serial);
        close(folder.fd);
    }
    rmdir(path);
}

/* Times of files are those of the coarse clock, which stands still for milliseconds. */
void attn_folder_mark(struct timespec *since)
{
    const struct timespec nap = {0, 500000};
    struct timespec before;
    clock_gettime(CLOCK_REALTIME_COARSE, &before);
    do {
        nanosleep(&nap, NULL);
        clock_gettime(CLOCK_REALTIME_COARSE, since);
    } while (since->tv_sec == before.tv_sec && since->tv_nsec == before.tv_nsec);
}

int attn_folder_changed(const char *folder, const struct timespec *since, char *path, size_t size)
{
    char *const roots[] = {(char *)(uintptr_t)folder, NULL};
    FTS *all = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    FTSENT *entry;
    int changed = 0;
    while (all != NULL && !changed && (entry = fts_read(all)) != NULL) {
        if (entry->fts_info == FTS_DP || entry->fts_info == FTS_NS || entry->fts_info == FTS_ERR)
            continue;
        const struct timespec *t = &entry->fts_statp->st_ctim;
        changed = t->tv_sec > since->tv_sec ||
                  (t->tv_sec == since->tv_sec && t->tv_nsec >= since->tv_nsec);
        if (changed)
            snprintf(path, size, "%s", entry->fts_path);
    }
    if (all != NULL)
        fts_close(all);
    return changed;
}
