/* See worker_process.h. */
#include "tests/harness/external/worker_process.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness/process.h"

/* Ctrl-C reaches the terminal's own process group, and a worker has another. */
static volatile pid_t running;

static void end_with_us(int number)
{
    if (running > 0)
        kill(-running, SIGKILL);
    signal(number, SIG_DFL);
    raise(number);
}

void attn_worker_catch_endings(void)
{
    static const int all[] = {SIGINT, SIGTERM, SIGHUP};
    for (int n = 0; n < 3; n++) {
        struct sigaction old;
        if (sigaction(all[n], NULL, &old) == 0 && old.sa_handler == SIG_DFL)
            signal(all[n], end_with_us);
    }
}

int attn_worker_start(struct attn_worker *g)
{
    const char *const argv[] = {"attnlab", "worker", g->path, NULL};
    int end[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}}, error = 0;
    for (int n = 0; n < 3 && error == 0; n++)
        error = attn_pipe(end[n]) == 0 ? 0 : errno;
    const int requests = end[0][0], messages = end[1][1], noise = end[2][1];
    const int fd[] = {-1, noise, noise, messages, requests};
    _Static_assert(ATTN_WORKER_FD == 3 && ATTN_WORKER_REQUESTS == 4, "as in fd[]");
    if (error == 0) /* a group of its own, so that what it starts ends with it */
        error = attn_process_start("/proc/self/exe", argv, fd, 5, 1, &g->pid);
    for (int n = 1; n < 5; n++)
        if (fd[n] >= 0 && n != STDERR_FILENO)
            close(fd[n]);
    g->to = end[0][1];
    g->from = end[1][0];
    g->noise = end[2][0];
    g->signal = 0;
    g->number = 0;
    g->exit_status = -1;
    g->fault[0] = g->last_line[0] = '\0';
    g->phase = ATTN_PHASE_LOADING;
    g->allowed_s = g->whole_s = g->timeout_s;
    if (error != 0)
        g->pid = -1;
    running = g->pid;
    return error;
}

void attn_worker_close_pipes(struct attn_worker *g)
{
    const int all[] = {g->to, g->from, g->noise};
    for (int n = 0; n < 3; n++)
        if (all[n] >= 0)
            close(all[n]);
    g->to = g->from = g->noise = -1;
}

/* Who started a process, and whether it runs still. */
static int parent_of(int pid, char *state)
{
    char path[32], line[512] = "", *end;
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return 0;
    if (fgets(line, sizeof line, file) == NULL || (end = strrchr(line, ')')) == NULL ||
        sscanf(end, ") %c %d", state, &parent) != 2)
        parent = 0;
    fclose(file);
    return parent;
}

int attn_worker_signal_children(pid_t worker, int number)
{
    int n = 0;
    char state;
    DIR *all = opendir("/proc");
    struct dirent *entry;
    while (all != NULL && (entry = readdir(all)) != NULL) {
        int pid = atoi(entry->d_name), parent = pid > 0 ? parent_of(pid, &state) : 0;
        if (parent > 0 && pid != worker && (parent == getpid() || parent == worker))
            n += kill(pid, number) == 0 && state != 'Z';
    }
    if (all != NULL)
        closedir(all);
    return n;
}

void attn_worker_bury(struct attn_worker *g)
{
    enum { ROUNDS = 1000 }; /* against what forks faster than it dies */
    struct attn_process end = {.exit_status = -1};
    if (g->pid <= 0)
        return;
    if (g->alone)
        g->strays += attn_worker_signal_children(g->pid, SIGKILL);
    kill(-g->pid, SIGKILL);
    attn_process_reap(g->pid, 0, &end);
    running = 0;
    for (int round = 0; round < ROUNDS && g->alone; round++) { /* orphans have become ours */
        attn_worker_signal_children(0, SIGKILL);
        if (waitpid(-1, NULL, 0) < 0 && errno == ECHILD)
            break;
    }
    g->signal = end.signal;
    g->exit_status = end.exit_status;
    g->pid = -1;
    attn_worker_close_pipes(g);
}
