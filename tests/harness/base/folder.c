/* See folder.h.  Removing moves the folders in a folder up to the outermost one, so that neither
 * the length of a path nor the number of open files limits how deep they may be. */
#include "tests/harness/base/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/harness/base/fileio.h"

enum attn_status attn_folder_make(const char *path, struct attn_error *err)
{
    struct stat info;
    if (mkdir(path, 0777) == 0)
        return ATTN_OK;
    int error = errno;
    if (error == EEXIST && stat(path, &info) == 0) {
        if (S_ISDIR(info.st_mode))
            return ATTN_OK;
        error = ENOTDIR;
    } else if (error == EEXIST)
        error = errno; /* a link that leads nowhere */
    return attn_fault(err, ATTN_ENOMEM, path, "cannot be made a folder: %s", strerror(error));
}

/* The owner may make a folder readable.  Where that fails the next step fails too, and says why. */
static void let_in(int at, const char *name)
{
    if (fchmodat(at, name, 0700, 0) != 0)
        return;
}

static int open_folder(int at, const char *name, struct attn_entries *x)
{
    let_in(at, name);
    x->fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    x->size = x->at = 0;
    return x->fd >= 0;
}

const char *attn_entries_next(struct attn_entries *x)
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

/* Remove a folder in `outer`; the folders in it move to `outer`, under names that are free.
 * Returns 1 when something was done. */
static int flatten(int outer, const char *name, unsigned *serial)
{
    struct attn_entries folder;
    const char *entry;
    int moved = 0, opened = open_folder(outer, name, &folder);
    while (opened && (entry = attn_entries_next(&folder)) != NULL) {
        char to[64];
        if (unlinkat(folder.fd, entry, 0) == 0)
            continue;
        let_in(folder.fd, entry);
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
    struct attn_entries folder;
    const char *entry;
    for (int progress = 1; progress && open_folder(AT_FDCWD, path, &folder);) {
        progress = 0;
        while ((entry = attn_entries_next(&folder)) != NULL)
            progress |= unlinkat(folder.fd, entry, 0) == 0 || flatten(folder.fd, entry, &serial);
        close(folder.fd);
    }
    rmdir(path);
}

/* ---- changes --------------------------------------------------------------------------------- */

struct attn_folder_view {
    int n, capacity;
    struct {
        char *path;
        ino_t inode;
        off_t size;
        struct timespec changed;
    } * at;
};

static int add(struct attn_folder_view *view, const char *path, const struct stat *s)
{
    if (view->n == view->capacity) {
        int capacity = 2 * view->capacity + 64;
        void *more = realloc(view->at, (size_t)capacity * sizeof *view->at);
        if (more == NULL)
            return 0;
        view->at = more;
        view->capacity = capacity;
    }
    view->at[view->n].inode = s->st_ino;
    view->at[view->n].size = s->st_size;
    view->at[view->n].changed = s->st_ctim;
    view->at[view->n].path = strdup(path);
    return view->at[view->n].path != NULL && ++view->n;
}

/* A file, or a folder and what is in it, in the order in which the folder has it: the same as long
 * as nothing changes.  0: no memory, or it cannot be looked at. */
static int look_at(struct attn_folder_view *view, const char *path, int depth)
{
    enum { DEEPEST = 32 };
    struct attn_entries folder = {.fd = -1};
    struct stat info;
    const char *entry;
    char inner[ATTN_FOLDER_PATH];
    int ok = depth < DEEPEST && lstat(path, &info) == 0 && add(view, path, &info);
    if (!ok || !S_ISDIR(info.st_mode))
        return ok;
    folder.fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    ok = folder.fd >= 0;
    while (ok && (entry = attn_entries_next(&folder)) != NULL)
        ok = snprintf(inner, sizeof inner, "%s/%s", path, entry) < (int)sizeof inner &&
             look_at(view, inner, depth + 1);
    if (folder.fd >= 0)
        close(folder.fd);
    return ok;
}

static struct attn_folder_view *look(const char *folder)
{
    struct attn_folder_view *view = calloc(1, sizeof *view);
    if (view != NULL && look_at(view, folder, 0))
        return view;
    attn_folder_forget(view);
    return NULL;
}

struct attn_folder_view *attn_folder_look(const char *folder)
{
    usleep(10000); /* the clock of files stands still for so long: a change has another time */
    return look(folder);
}

void attn_folder_forget(struct attn_folder_view *view)
{
    for (int n = 0; view != NULL && n < view->n; n++)
        free(view->at[n].path);
    if (view != NULL)
        free(view->at);
    free(view);
}

int attn_folder_changed(const char *folder, const struct attn_folder_view *before, char *path,
                        size_t size)
{
    struct attn_folder_view *now = look(folder);
    int n = 0, same = before != NULL && now != NULL;
    snprintf(path, size, "%s", folder);
    for (; same && n < before->n && n < now->n; n += same)
        same = strcmp(before->at[n].path, now->at[n].path) == 0 &&
               before->at[n].inode == now->at[n].inode && before->at[n].size == now->at[n].size &&
               memcmp(&before->at[n].changed, &now->at[n].changed, sizeof now->at[n].changed) == 0;
    int changed = !same || before->n != now->n;
    if (changed && now != NULL && n < now->n)
        snprintf(path, size, "%s", now->at[n].path);
    attn_folder_forget(now);
    return changed;
}
