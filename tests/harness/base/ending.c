/* See ending.h.  A handler ends the program wherever it is, so that what it calls takes no memory
 * and no lock: files by open() and getdents64(), and of stdio only snprintf(). */
#include "tests/harness/base/ending.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness/base/fileio.h"

enum { THEIRS = 16 };

/* By process, since a fork has them too. */
static volatile pid_t sole; /* all its children but for `theirs` are of its making */
static volatile pid_t theirs[THEIRS];
static volatile pid_t catcher; /* ends by itself where it is interrupted */
static volatile sig_atomic_t interrupted;
static struct {
    volatile pid_t by; /* 0: free */
    char path[ATTN_FOLDER_PATH];
} kept[4]; /* no process has more than two at a time */

/* ---- children -------------------------------------------------------------------------------- */

int attn_process_is_alone(void)
{
    siginfo_t child;
    return waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT) < 0 && errno == ECHILD;
}

/* The parent of a process, 0 if it is gone; *state: 'Z' if it has ended. */
static int parent_of(int pid, char *state)
{
    char path[32], line[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, line, sizeof line - 1) < 0)
        line[0] = '\0';
    if (fd >= 0)
        close(fd);
    const char *end = strrchr(line, ')'); /* of its name: STATE PARENT follow */
    if (end == NULL || strlen(end) < 5)
        return 0;
    *state = end[2];
    return atoi(end + 4);
}

/* The next child of this process or of another one (0: none), 0 at the end; `all` is /proc. */
static pid_t next_child(struct attn_entries *all, pid_t other, char *state)
{
    const char *name;
    while (all->fd >= 0 && (name = attn_entries_next(all)) != NULL) {
        int pid = atoi(name), parent = pid > 0 ? parent_of(pid, state) : 0;
        if (parent > 0 && (parent == getpid() || parent == other))
            return pid;
    }
    if (all->fd >= 0)
        close(all->fd);
    return 0;
}

static int is_theirs(pid_t pid)
{
    int n = 0;
    while (n < THEIRS && theirs[n] != pid)
        n++;
    return n < THEIRS;
}

/* Those that this process has now.  0: they are too many. */
static int find_theirs(void)
{
    int n = 0;
    char state;
    struct attn_entries all = {.fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    for (pid_t pid; (pid = next_child(&all, 0, &state)) > 0; n++)
        theirs[n % THEIRS] = pid;
    return n <= THEIRS;
}

/* Send the children of this process, and of another one (0: none) but for that one itself, a signal
 * (0: none); how many of them ran. */
static int signal_children(pid_t other, int number)
{
    int n = 0;
    char state;
    struct attn_entries all = {.fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    /* Counted first: the signal for the group of one may end the next before it is looked at. */
    for (pid_t pid; (pid = next_child(&all, other, &state)) > 0;)
        n += pid != other && !is_theirs(pid) && state != 'Z';
    all = (struct attn_entries){.fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    for (pid_t pid; (pid = next_child(&all, other, &state)) > 0;)
        if (pid != other && !is_theirs(pid)) {
            kill(pid, number);
            if (getpgid(pid) == pid) /* with what it started and still waits for */
                kill(-pid, number);
        }
    return n;
}

int attn_process_end_children(double grace_s)
{
    enum { ROUNDS = 1000 }; /* against what forks faster than it dies */
    int n = 0, go_on = sole == getpid() && !attn_process_is_alone();
    for (double s = 0; go_on && s < grace_s && signal_children(0, 0) > 0; s += 0.01)
        usleep(10000);
    for (int round = 0; round < ROUNDS && go_on; round++) {
        int sent = signal_children(0, SIGKILL); /* 0: dead, or not ours to end */
        pid_t ended = waitpid(-1, NULL, sent > 0 ? 0 : WNOHANG);
        go_on = ended > 0 || (ended < 0 && errno == EINTR);
        n += sent;
    }
    return n;
}

/* ---- temporary folders ----------------------------------------------------------------------- */

static enum attn_status open_below(const char *root, char folder[ATTN_FOLDER_PATH],
                                   struct attn_error *err)
{
    sigset_t all, before;
    size_t n = 0;
    attn_ending_prepare();
    snprintf(folder, ATTN_FOLDER_PATH, "%.4000s/attnlab-XXXXXX",
             root != NULL && root[0] != '\0' ? root : "/tmp");
    while (n < sizeof kept / sizeof *kept - 1 && kept[n].by == getpid())
        n++;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before); /* there and known, or neither */
    int made = mkdtemp(folder) != NULL, error = errno;
    if (made) {
        strcpy(kept[n].path, folder);
        kept[n].by = getpid();
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return made ? ATTN_OK
                : attn_fault(err, ATTN_ENOMEM, folder, "cannot be made a folder: %s",
                             strerror(error));
}

enum attn_status attn_temporary_open(char folder[ATTN_FOLDER_PATH], struct attn_error *err)
{
    return open_below(getenv("TMPDIR"), folder, err);
}

enum attn_status attn_temporary_open_for(double bytes, char folder[ATTN_FOLDER_PATH],
                                         struct attn_error *err)
{
    static const char memory[] = "/dev/shm";
    struct statvfs room;
    int fits = statvfs(memory, &room) == 0 && access(memory, W_OK | X_OK) == 0 &&
               (double)room.f_bavail * (double)room.f_frsize > bytes;
    return fits ? open_below(memory, folder, err) : attn_temporary_open(folder, err);
}

/* A folder that cannot be removed, because a process still writes there, is tried again at the
 * end. */
void attn_temporary_close(const char *folder)
{
    attn_folder_remove(folder);
    for (size_t n = 0; n < sizeof kept / sizeof *kept; n++)
        if (strcmp(kept[n].path, folder) == 0 && access(folder, F_OK) != 0)
            kept[n].by = 0;
}

/* ---- the end --------------------------------------------------------------------------------- */

static void leave_nothing(void)
{
    attn_process_end_children(0);
    for (size_t n = 0; n < sizeof kept / sizeof *kept; n++)
        if (kept[n].by == getpid())
            attn_folder_remove(kept[n].path);
}

/* In the first thread, which may be starting a process just now. */
static void on_signal(int number)
{
    if (syscall(SYS_gettid) != getpid()) {
        syscall(SYS_tgkill, getpid(), getpid(), number);
        return;
    }
    interrupted = 1;
    if (catcher == getpid())
        return;
    leave_nothing();
    signal(number, SIG_DFL);
    raise(number); /* it comes when this returns */
}

void attn_ending_prepare(void)
{
    static const int all[] = {SIGINT, SIGTERM, SIGHUP};
    static int is_known;
    struct sigaction action = {.sa_handler = on_signal}, old; /* no SA_RESTART: poll must return */
    if (attn_process_is_alone()) {
        for (int n = 0; n < THEIRS; n++)
            theirs[n] = 0;
        sole = getpid();
        prctl(PR_SET_CHILD_SUBREAPER, 1);
    } else if (sole != getpid() && find_theirs())
        sole = getpid(); /* and children of theirs must not become ours */
    if (!is_known)
        is_known = atexit(leave_nothing) == 0;
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        sigaddset(&action.sa_mask, all[n]); /* a second one waits for the first */
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        if (sigaction(all[n], NULL, &old) == 0 && old.sa_handler == SIG_DFL)
            sigaction(all[n], &action, NULL);
}

void attn_process_catch_interrupts(void)
{
    catcher = getpid();
    attn_ending_prepare();
}

int attn_process_interrupted(void)
{
    return interrupted != 0;
}
