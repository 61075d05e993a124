/* See process.h.  One poll loop drains what a program prints, megabytes of it if it likes, and
 * keeps the time.  A pidfd (Linux 5.3) tells the end at once; without it the end is looked for
 * every 2 ms. */
#include "tests/harness/base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ref/clock.h"
#include "tests/harness/base/ending.h"

enum { MAX_ARGS = 24, FIRST_FD = 10, PIPE_BYTES = 1 << 16 };

extern char **environ;

/* ---- pipes ----------------------------------------------------------------------------------- */

static void close_both(int end[2])
{
    for (int n = 0; n < 2; n++) {
        if (end[n] >= 0)
            close(end[n]);
        end[n] = -1;
    }
}

int attn_pipe(int end[2])
{
    int low[2], error;
    end[0] = end[1] = -1;
    if (pipe2(low, O_CLOEXEC) != 0)
        return -1;
    for (int n = 0; n < 2; n++)
        end[n] = fcntl(low[n], F_DUPFD_CLOEXEC, FIRST_FD);
    error = errno;
    close_both(low);
    if (end[0] >= 0 && end[1] >= 0)
        return 0;
    close_both(end);
    errno = error;
    return -1;
}

int attn_pipe_read(int fd, void *to, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t got = read(fd, (char *)to + done, bytes - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return 0;
        done += (size_t)got;
    }
    return 1;
}

int attn_pipe_write(int fd, const void *from, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t put = write(fd, (const char *)from + done, bytes - done);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return 0;
        done += (size_t)put;
    }
    return 1;
}

void attn_keep_last_line(char *line, size_t size, const char *part, size_t n)
{
    size_t have = strlen(line);
    for (size_t i = 0; i < n; i++) {
        if (have > 0 && line[have - 1] == '\n')
            have = 0;
        if (have < size - 1 && part[i] != '\0')
            line[have++] = part[i];
    }
    line[have] = '\0';
}

/* ---- start and end --------------------------------------------------------------------------- */

int attn_process_start(const char *program, const char *const argv[], const char *folder,
                       const int fd[], int n, int own_group, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t defaults; /* signals that we may ignore */
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    sigaddset(&defaults, SIGXFSZ);
    sigaddset(&defaults, SIGXCPU);
    attn_ending_prepare();
    int error = posix_spawn_file_actions_init(&actions);
    if (error != 0)
        return error;
    for (int to = 0; to < n && error == 0; to++)
        error = fd[to] >= 0
                    ? posix_spawn_file_actions_adddup2(&actions, fd[to], to)
                    : posix_spawn_file_actions_addopen(&actions, to, "/dev/null", O_RDONLY, 0);
    if (error == 0 && folder != NULL)
        error = posix_spawn_file_actions_addchdir_np(&actions, folder);
    if (error == 0)
        error = posix_spawnattr_init(&attr);
    if (error == 0) {
        posix_spawnattr_setflags(
            &attr, (short)(POSIX_SPAWN_SETSIGDEF | (own_group ? POSIX_SPAWN_SETPGROUP : 0)));
        posix_spawnattr_setpgroup(&attr, 0);
        posix_spawnattr_setsigdefault(&attr, &defaults);
        error = posix_spawn(pid, program, &actions, &attr, (char *const *)(uintptr_t)argv, environ);
        posix_spawnattr_destroy(&attr);
    }
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

int attn_process_reap(pid_t pid, int flags, struct attn_process *p)
{
    struct rusage used;
    int status = 0;
    pid_t got;
    do
        got = wait4(pid, &status, flags, &used);
    while (got < 0 && errno == EINTR);
    if (got != pid)
        return got < 0 ? -1 : 0;
    p->peak_bytes = (int64_t)used.ru_maxrss * 1024;
    p->exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    p->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    return 1;
}

/* ---- watching -------------------------------------------------------------------------------- */

/* Reads what there is in one pipe; 0 at its end. */
static int drain(struct attn_process *p, int fd, int is_out)
{
    static char part[PIPE_BYTES];
    ssize_t got = read(fd, part, sizeof part);
    if (got > 0 && !is_out)
        attn_keep_last_line(p->last_line, sizeof p->last_line, part, (size_t)got);
    else if (got > 0) {
        size_t left = p->capacity - 1 - p->n_out, n = (size_t)got < left ? (size_t)got : left;
        memcpy(p->out + p->n_out, part, n);
        p->n_out += n;
    }
    return got > 0 || (got < 0 && (errno == EINTR || errno == EAGAIN));
}

/* Until it has ended, or there is a reason to end it.  fd: standard error, standard output; -1
 * where there is none.  A pipe may live longer, in a process that was left behind: what is in it is
 * read, its end not waited for. */
static void watch(pid_t pid, const int fd[2], double deadline, struct attn_process *p)
{
    int ending = (int)syscall(SYS_pidfd_open, pid, 0), ended = 0;
    struct pollfd fds[3] = {{fd[0], POLLIN, 0}, {fd[1], POLLIN, 0}, {ending, POLLIN, 0}};
    while (!ended) {
        p->interrupted = attn_process_interrupted();
        p->timed_out = !p->interrupted && attn_seconds(CLOCK_MONOTONIC) >= deadline;
        if (p->interrupted || p->timed_out)
            kill(p->group > 0 ? -pid : pid, SIGKILL);
        else
            poll(fds, 3, ending >= 0 ? 100 : 2);
        if (p->waits != NULL)
            p->waits(attn_seconds(CLOCK_MONOTONIC) - p->wall_s);
        ended = attn_process_reap(pid, p->interrupted || p->timed_out ? 0 : WNOHANG, p);
        if (ended && p->group > 0)
            kill(-pid, SIGKILL);
        for (int n = 0; n < 2; n++) /* once more after the end: it is all in the pipe */
            if (fds[n].fd >= 0 && poll(&fds[n], 1, 0) > 0 && !drain(p, fds[n].fd, n))
                fds[n].fd = -1;
    }
    if (ending >= 0)
        close(ending);
    p->interrupted = p->interrupted || (p->signal != 0 && attn_process_interrupted());
}

static void begin(struct attn_process *p)
{
    *p = (struct attn_process){.out = p->out,
                               .capacity = p->capacity,
                               .folder = p->folder,
                               .waits = p->waits,
                               .exit_status = -1,
                               .peak_bytes = -1};
    p->wall_s = attn_seconds(CLOCK_MONOTONIC);
}

static void finish(pid_t pid, const int fd[2], double seconds, struct attn_process *p)
{
    double start = p->wall_s;
    watch(pid, fd, start + seconds, p);
    p->wall_s = attn_seconds(CLOCK_MONOTONIC) - start;
    p->group = 0;
    p->last_line[strcspn(p->last_line, "\n")] = '\0';
    if (p->out != NULL)
        p->out[p->n_out] = '\0';
}

static int run(const char *program, const char *const argv[], int own_group, double seconds,
               struct attn_process *p)
{
    int noise[2], out[2] = {-1, -1}, error = 0, was_alone = attn_process_is_alone();
    pid_t pid = -1;
    begin(p);
    if (attn_pipe(noise) != 0)
        return -1;
    if (p->out != NULL && attn_pipe(out) != 0)
        error = errno;
    const int fd[3] = {-1, p->out != NULL ? out[1] : noise[1], noise[1]};
    if (error == 0)
        error = attn_process_start(program, argv, p->folder, fd, 3, own_group, &pid);
    const int from[2] = {noise[0], out[0]};
    close(noise[1]);
    if (out[1] >= 0)
        close(out[1]);
    if (error == 0) {
        p->group = own_group ? pid : 0;
        finish(pid, from, seconds, p);
        if (was_alone && (p->timed_out || p->interrupted)) /* with all that it had started */
            attn_process_end_children(0);
    }
    close(noise[0]);
    if (out[0] >= 0)
        close(out[0]);
    errno = error;
    return error == 0 ? 0 : -1;
}

int attn_process_attnlab(const char *const args[], double seconds, struct attn_process *p)
{
    const char *argv[MAX_ARGS + 2] = {"attnlab"};
    int n = 0;
    for (; args[n] != NULL && n < MAX_ARGS; n++)
        argv[n + 1] = args[n];
    begin(p);
    if (args[n] == NULL)
        return run("/proc/self/exe", argv, 0, seconds, p);
    errno = E2BIG;
    return -1;
}

int attn_process_shell(const char *command, const char *first, const char *second, double seconds,
                       struct attn_process *p)
{
    char *script = NULL;
    if (asprintf(&script, "%s \"$1\" \"$2\"", command) < 0) {
        errno = ENOMEM;
        return -1;
    }
    const char *const argv[] = {"sh", "-c", script, "sh", first, second, NULL};
    int failed = run("/bin/sh", argv, 1, seconds, p), error = errno;
    free(script);
    if (p->exit_status > 128 && p->exit_status < 128 + 65) { /* the shell's word for a signal */
        p->signal = p->exit_status - 128;
        p->exit_status = -1;
    }
    errno = error;
    return failed;
}

/* ---- forks ----------------------------------------------------------------------------------- */

static pid_t fork_off(void)
{
    attn_ending_prepare();
    fflush(NULL);
    return fork();
}

int attn_process_fork(void (*work)(void *arg), void *arg, double seconds, struct attn_process *p)
{
    static const int none[2] = {-1, -1};
    begin(p);
    pid_t pid = fork_off();
    if (pid == 0) {
        work(arg);
        _exit(0);
    }
    if (pid < 0)
        return -1;
    finish(pid, none, seconds, p);
    return 0;
}

int attn_helper_open(struct attn_helper *h, void (*serve)(void *arg, int from, int to), void *arg,
                     int death)
{
    int to[2] = {-1, -1}, from[2] = {-1, -1};
    const pid_t parent = getpid();
    *h = (struct attn_helper){-1, -1, -1};
    if (attn_pipe(to) == 0 && attn_pipe(from) == 0)
        h->pid = fork_off();
    const int error = errno;
    if (h->pid == 0) {
        signal(death, SIG_DFL);
        prctl(PR_SET_PDEATHSIG, death);
        close(to[1]);
        close(from[0]);
        if (getppid() == parent) /* else it died before that was said */
            serve(arg, to[0], from[1]);
        _exit(0);
    }
    if (h->pid < 0) {
        close_both(to);
        close_both(from);
        errno = error;
        return -1;
    }
    close(to[0]);
    close(from[1]);
    h->to = to[1];
    h->from = from[0];
    return 0;
}

void attn_helper_close(struct attn_helper *h, int number)
{
    struct attn_process end;
    if (h->pid <= 0)
        return;
    close(h->to);
    close(h->from);
    if (number != 0)
        kill(h->pid, number);
    attn_process_reap(h->pid, 0, &end);
    *h = (struct attn_helper){0, -1, -1};
}

void *attn_process_share(size_t bytes)
{
    void *all = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return all != MAP_FAILED ? all : NULL;
}
