/* See command.h. */
#include "experiments/measure/command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A process group of its own, with the signals that we ignore back at their defaults. */
static int start(const char *command, const char *cases, const char *out, int noise, pid_t *pid)
{
    char *script = NULL;
    sigset_t defaults;
    posix_spawnattr_t attr;
    posix_spawn_file_actions_t actions;
    if (asprintf(&script, "%s \"$1\" \"$2\"", command) < 0)
        return ENOMEM;
    char *argv[] = {(char *)"sh",          (char *)"-c",        script, (char *)"sh",
                    (char *)(size_t)cases, (char *)(size_t)out, NULL};
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    sigaddset(&defaults, SIGXFSZ);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(&attr, 0);
    posix_spawnattr_setsigdefault(&attr, &defaults);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, noise, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, noise, STDERR_FILENO);
    int error = posix_spawn(pid, "/bin/sh", &actions, &attr, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
    free(script);
    return error;
}

static void keep_last_line(char *line, size_t size, const char *text, ssize_t n)
{
    size_t have = strlen(line);
    for (ssize_t i = 0; i < n; i++) {
        if (have > 0 && line[have - 1] == '\n')
            have = 0;
        if (have < size - 1 && text[i] != '\0')
            line[have++] = text[i];
    }
    line[have] = '\0';
}

/* Wait for the shell, or look whether it has ended: 1 when it has. */
static int reap(pid_t pid, int flags, int *status, struct attn_command *r)
{
    struct rusage used;
    pid_t got;
    do
        got = wait4(pid, status, flags, &used);
    while (got < 0 && errno == EINTR);
    if (got == pid)
        r->peak_bytes = (int64_t)used.ru_maxrss * 1024;
    return got != 0;
}

/* Until the shell has ended.  Its pipe may live longer, in a child that it left behind: that one
 * is not waited for, and killed with the group.  A pidfd (Linux 5.3) tells the end at once; without
 * it the end is looked for every 2 ms. */
static void watch(pid_t pid, int noise, double deadline, struct attn_command *r, int *status)
{
    static char part[1 << 16];
    int ending = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd fd[2] = {{noise, POLLIN, 0}, {ending, POLLIN, 0}};
    for (;;) {
        if (now() >= deadline) {
            r->timed_out = 1;
            kill(-pid, SIGKILL);
            reap(pid, 0, status, r);
            break;
        }
        int ready = poll(fd, 2, ending >= 0 ? 100 : 2);
        ssize_t got = ready > 0 && fd[0].revents != 0 ? read(noise, part, sizeof part) : -1;
        if (got > 0)
            keep_last_line(r->last_line, sizeof r->last_line, part, got);
        else if (got == 0)
            fd[0].fd = -1;
        if (got <= 0 && reap(pid, WNOHANG, status, r)) {
            kill(-pid, SIGKILL);
            break;
        }
    }
    if (ending >= 0)
        close(ending);
}

int attn_command_run(const char *command, const char *cases, const char *out, double timeout_s,
                     struct attn_command *r)
{
    int noise[2], status = 0;
    pid_t pid;
    memset(r, 0, sizeof *r);
    r->peak_bytes = -1;
    if (pipe2(noise, O_CLOEXEC) != 0)
        return -1;
    double begin = now();
    int error = start(command, cases, out, noise[1], &pid);
    close(noise[1]);
    if (error == 0) {
        r->group = pid;
        watch(pid, noise[0], begin + timeout_s, r, &status);
        r->wall_s = now() - begin;
        r->group = 0;
    }
    close(noise[0]);
    r->exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    r->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (r->exit_status > 128 && r->exit_status < 128 + 65) { /* the shell's word for a signal */
        r->signal = r->exit_status - 128;
        r->exit_status = -1;
    }
    r->last_line[strcspn(r->last_line, "\n")] = '\0';
    errno = error;
    return error == 0 ? 0 : -1;
}
