/* See isolated.h.  The result is one struct: what it points to (names of outputs) is static, and
 * stands at the same address in parent and child. */
#include "tests/harness/isolated.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void stop_with(struct attn_result *r, enum attn_verdict verdict, const char *text)
{
    memset(r, 0, sizeof *r);
    r->verdict = verdict;
    snprintf(r->text, sizeof r->text, "%s", text);
}

static void work(void (*judge)(void *arg, struct attn_result *result), void *arg, int to)
{
    struct attn_result r;
    judge(arg, &r);
    const char *at = (const char *)&r;
    for (size_t left = sizeof r; left > 0;) {
        ssize_t n = write(to, at, left);
        if (n <= 0)
            _exit(ATTN_APART_LACKS);
        at += n, left -= (size_t)n;
    }
    _exit(0); /* what the parent has in its buffers is the parent's to print */
}

/* Read the whole result, or less when the child ends first; 0 when time is up. */
static int listen_for(int from, double until, struct attn_result *r, size_t *got)
{
    for (*got = 0; *got < sizeof *r;) {
        double left = until > 0 ? until - now() : 1e6;
        struct pollfd wait = {from, POLLIN, 0};
        int ready = left > 0 ? poll(&wait, 1, (int)(left * 1000) + 1) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0)
            return 0;
        ssize_t n = read(from, (char *)r + *got, sizeof *r - *got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return 1;
        *got += (size_t)n;
    }
    return 1;
}

void attn_isolated(void (*judge)(void *arg, struct attn_result *result), void *arg, double seconds,
                   struct attn_result *r)
{
    int ends[2], status = 0, lacks;
    char text[160];
    size_t got = 0;
    pid_t child = -1;
    fflush(NULL);
    if (pipe(ends) == 0) {
        child = fork();
        if (child == 0)
            work(judge, arg, ends[1]);
        close(ends[1]);
        if (child < 0)
            close(ends[0]);
    }
    if (child < 0) {
        snprintf(text, sizeof text, "no process to judge in: %s", strerror(errno));
        memset(r, 0, sizeof *r);
        attn_result_error(r, ATTN_ENOMEM, text);
        return;
    }
    int in_time = listen_for(ends[0], seconds > 0 ? now() + seconds : 0, r, &got);
    close(ends[0]);
    if (got < sizeof *r)
        kill(child, in_time ? SIGCONT : SIGKILL);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (got == sizeof *r)
        return;
    lacks = in_time && WIFEXITED(status) && WEXITSTATUS(status) == ATTN_APART_LACKS;
    if (!in_time)
        snprintf(text, sizeof text, "did not end within %g s", seconds);
    else if (WIFSIGNALED(status))
        snprintf(text, sizeof text, "ended by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else if (lacks)
        snprintf(text, sizeof text, "no memory or no threads to judge with");
    else
        snprintf(text, sizeof text, "left with exit status %d and no result", WEXITSTATUS(status));
    stop_with(r, lacks ? ATTN_ERROR : in_time ? ATTN_CRASH : ATTN_TIMEOUT, text);
    r->lacks_memory = lacks;
}
