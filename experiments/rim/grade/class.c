/* See grading.h: a class.
 *
 * Submissions are read before any of them runs, into sealed memory (memfd_create), which no process
 * can change.  Each is then unpacked into a folder of its own, graded there, and the folder
 * removed.  So the order does not matter, and no student changes another's points. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "experiments/rim/grade/grading.h"
#include "tests/harness/base/ending.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/base/folder.h"
#include "tests/harness/base/process.h"

enum { MOST_BYTES = 16 << 20 };

struct member {
    char entry[256], name[96]; /* in the folder; of the student */
    const struct attn_subject_route *route;
    int archive;       /* descriptor of what was handed in */
    char trouble[200]; /* why there is none; "" */
};

/* ---- who is there ---------------------------------------------------------------------------- */

/* 0: it is no submission. */
static int recognise(const struct attn_grade_class *class, const char *entry, struct member *m)
{
    char path[4096];
    struct stat info;
    static const char end[] = ".so";
    *m = (struct member){.archive = -1};
    if (entry[0] == '.' || entry[0] == '-') /* tar would take it for a flag */
        return 0;
    snprintf(m->entry, sizeof m->entry, "%s", entry);
    snprintf(path, sizeof path, "%.3000s/%s/command", class->folder, entry);
    m->route = &attn_plugin_route;
    if (attn_cli_ends_with(entry, end)) {
        snprintf(m->name, sizeof m->name, "%.*s", (int)(strlen(entry) - strlen(end)), entry);
        return 1;
    }
    m->route = &attn_exec_route;
    snprintf(m->name, sizeof m->name, "%.90s", entry);
    return stat(path, &info) == 0;
}

/* Its bytes, sealed. */
static void keep(const struct attn_grade_class *class, struct member *m, char *room)
{
    struct attn_process tar = {.out = room, .capacity = MOST_BYTES};
    if (attn_process_shell("tar -cC", class->folder, m->entry, (double)INFINITY, &tar) != 0 ||
        tar.exit_status != 0 || tar.n_out + 1 >= MOST_BYTES) {
        snprintf(m->trouble, sizeof m->trouble,
                 "it cannot be read, or is larger than %d MiB: %.100s", MOST_BYTES >> 20,
                 tar.last_line);
        return;
    }
    m->archive = memfd_create("submission", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (m->archive < 0 || !attn_pipe_write(m->archive, room, tar.n_out) ||
        fcntl(m->archive, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) !=
            0)
        attn_cli_lack("no memory for the submissions of a class: %s", strerror(errno));
}

/* All of them, in the order of their names.  How many; -1: no folder. */
static int gather(const struct attn_grade_class *class, struct member **members)
{
    struct dirent **entry;
    struct member m;
    int n = 0, all = scandir(class->folder, &entry, NULL, alphasort);
    if (all < 0)
        return -1;
    char *room = attn_cli_need(malloc(MOST_BYTES));
    *members = attn_cli_need(calloc((size_t)all + 1, sizeof **members));
    for (int e = 0; e < all; e++) {
        if (recognise(class, entry[e]->d_name, &m)) {
            keep(class, &m, room);
            (*members)[n++] = m;
        } else if (entry[e]->d_name[0] != '.')
            attn_cli_fail(ATTN_EXIT_GOOD, "note: %s is no submission to %s", entry[e]->d_name,
                          class->lab->name);
        free(entry[e]);
    }
    free(entry);
    free(room);
    return n;
}

/* ---- one of them ----------------------------------------------------------------------------- */

/* The line of a command; 0: none. */
static int read_command(const char *folder, char *line, size_t size)
{
    char path[4096 + 700];
    snprintf(path, sizeof path, "%s/command", folder);
    FILE *file = attn_read_stream(path, ATTN_READ_THEIRS, NULL);
    int ok = file != NULL && fgets(line, (int)size, file) != NULL;
    if (file != NULL)
        fclose(file);
    line[ok ? strcspn(line, "\n") : 0] = '\0';
    return ok && line[0] != '\0';
}

static void unpack(const struct member *m, const char *folder, char *trouble, size_t size)
{
    char command[64];
    struct attn_process tar = {0};
    snprintf(command, sizeof command, "tar -xf /proc/%d/fd/%d -C", (int)getpid(), m->archive);
    if (attn_process_shell(command, folder, m->entry, (double)INFINITY, &tar) != 0 ||
        tar.exit_status != 0)
        snprintf(trouble, size, "it cannot be unpacked: %.100s", tar.last_line);
}

/* Its submission is judged in `home`, and named as it lies in the folder of all. */
static enum attn_status judge(const struct attn_grade_class *class, struct member *m,
                              const char *home, struct attn_sheet *sheet, struct attn_error *err)
{
    char own[4096 + 600], seed[160], hidden[160], source[512], path[512], quoted[520], route[600];
    const int is_command = m->route == &attn_exec_route;
    struct attn_task task;
    snprintf(own, sizeof own, "%s/%s", home, m->entry);
    snprintf(path, sizeof path, "%.240s/%s", class->folder, m->entry);
    snprintf(source, sizeof source, "%.500s", own);
    if (is_command && m->trouble[0] == '\0' && !read_command(own, source, sizeof source))
        snprintf(m->trouble, sizeof m->trouble, "its file `command` has no line");
    attn_cli_quote(is_command ? source : path, quoted, sizeof quoted);
    snprintf(route, sizeof route, is_command ? "--exec %s --claims lab.json" : "--plugin %s",
             quoted);
    snprintf(seed, sizeof seed, "%.60s/%.90s", class->seed, m->name);
    snprintf(hidden, sizeof hidden, "%.60s/%.90s", class->hidden, m->name);
    enum attn_status status = attn_task_make(class->lab, class->seed[0] != '\0' ? seed : "",
                                             class->hidden[0] != '\0' ? hidden : "", &task, err);
    if (status != ATTN_OK)
        return status;
    const struct attn_submission of = {
        .name = m->name,
        .x = {.route = m->route, .source = source, .claims_path = is_command ? "lab.json" : NULL},
        .route = route,
        .folder = is_command ? own : home,
        .watched = class->folder,
        .trouble = m->trouble};
    attn_grade(&task, &of, sheet);
    return ATTN_OK;
}

enum attn_status attn_class_grade(const struct attn_grade_class *class, struct attn_error *err)
{
    struct member *member = NULL;
    struct attn_sheet sheet;
    char home[ATTN_FOLDER_PATH];
    int n = gather(class, &member);
    if (n < 0)
        return attn_fault(err, ATTN_EINVAL, class->folder, "is no folder that can be read: %s",
                          strerror(errno));
    enum attn_status status =
        n > 0 ? ATTN_OK : attn_fault(err, ATTN_EINVAL, class->folder, "has no submission");
    for (int i = 0; i < n && status == ATTN_OK; i++) {
        struct member *m = &member[i];
        status = attn_temporary_open(home, err);
        if (status != ATTN_OK)
            break;
        if (m->trouble[0] == '\0')
            unpack(m, home, m->trouble, sizeof m->trouble);
        status = judge(class, m, home, &sheet, err);
        attn_temporary_close(home);
        if (status == ATTN_OK && attn_process_interrupted())
            status = attn_fail(err, ATTN_ENOMEM, "interrupted");
        if (status == ATTN_OK)
            class->done(class->arg, &sheet);
        if (m->archive >= 0)
            close(m->archive);
    }
    free(member);
    return status;
}
