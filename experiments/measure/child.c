/* posix_spawn, not fork: glibc makes it a vfork, so that nothing of the parent is copied, and
 * a parent that once ran OpenMP does no harm.  Both pipes are drained by one poll loop, which
 * also keeps the time. */
#include "experiments/measure/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_ARGS = 24, SLICE_MS = 250 };

extern char **environ;

static volatile sig_atomic_t interrupted; /* written by the handler only */

static void on_signal(int number)
{
    interrupted = number;
}

void attn_child_catch_interrupts(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal; /* no SA_RESTART: poll must return */
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}

int attn_child_interrupted(void)
{
    return interrupted != 0;
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* 0, or an error number. */
static int start(const char *const args[], int out, int note, pid_t *pid)
{
    char *argv[MAX_ARGS + 2] = {(char *)"attnlab"};
    int n = 0;
    for (; args[n] != NULL && n < MAX_ARGS; n++)
        argv[n + 1] = (char *)args[n];
    if (args[n] != NULL)
        return E2BIG;
    posix_spawn_file_actions_t actions;
    int error = posix_spawn_file_actions_init(&actions);
    if (error != 0)
        return error;
    error = posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    if (error == 0)
        error = posix_spawn_file_actions_adddup2(&actions, note, STDERR_FILENO);
    if (error == 0)
        error = posix_spawn(pid, "/proc/self/exe", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

/* Bytes of standard error: what stands after the last newline but one stays. */
static void keep_last_line(struct attn_child *child, const char *text, size_t n)
{
    size_t have = strlen(child->note);
    for (size_t i = 0; i < n; i++) {
        if (have > 0 && child->note[have - 1] == '\n')
            have = 0;
        if (have < sizeof child->note - 1 && text[i] != '\0')
            child->note[have++] = text[i];
    }
    child->note[have] = '\0';
}

/* Read what there is from one pipe; 0 at its end. */
static int drain(struct attn_child *child, int fd, int is_note)
{
    char part[4096];
    ssize_t got = read(fd, part, sizeof part);
    if (got < 0)
        return errno == EINTR || errno == EAGAIN;
    if (got > 0 && is_note)
        keep_last_line(child, part, (size_t)got);
    else if (got > 0) {
        size_t room = sizeof child->out - 1 - child->n_out;
        size_t n = (size_t)got < room ? (size_t)got : room;
        memcpy(child->out + child->n_out, part, n);
        child->n_out += n;
    }
    return got > 0;
}

/* Until both pipes are at their end, or there is a reason to kill. */
static void watch(struct attn_child *child, pid_t pid, int out, int note, double deadline)
{
    struct pollfd fds[2] = {{out, POLLIN, 0}, {note, POLLIN, 0}};
    while (fds[0].fd >= 0 || fds[1].fd >= 0) {
        child->interrupted = attn_child_interrupted();
        child->timed_out = !child->interrupted && deadline > 0 && now_s() >= deadline;
        if (child->interrupted || child->timed_out) {
            kill(pid, SIGKILL);
            return;
        }
        if (poll(fds, 2, SLICE_MS) <= 0)
            continue;
        for (int i = 0; i < 2; i++)
            if (fds[i].fd >= 0 && fds[i].revents != 0 && !drain(child, fds[i].fd, i))
                fds[i].fd = -1;
    }
}

static void finish(struct attn_child *child, pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    child->exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    child->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    child->interrupted = child->interrupted || (child->signal != 0 && attn_child_interrupted());
    child->out[child->n_out] = '\0';
    child->note[strcspn(child->note, "\n")] = '\0';
}

int attn_child_run(const char *const args[], double timeout_s, struct attn_child *child)
{
    int out[2], note[2];
    pid_t pid;
    memset(child, 0, sizeof *child);
    child->exit_status = -1;
    if (pipe2(out, O_CLOEXEC) != 0)
        return -1;
    if (pipe2(note, O_CLOEXEC) != 0) {
        close(out[0]);
        close(out[1]);
        return -1;
    }
    double begin = now_s();
    int error = start(args, out[1], note[1], &pid);
    close(out[1]);
    close(note[1]);
    if (error == 0) {
        watch(child, pid, out[0], note[0], timeout_s > 0 ? begin + timeout_s : 0);
        finish(child, pid);
    }
    child->wall_s = now_s() - begin;
    close(out[0]);
    close(note[0]);
    errno = error;
    return error == 0 ? 0 : -1;
}
