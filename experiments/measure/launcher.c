/* See launcher.h. */
#include "experiments/measure/launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct request {
    char command[4096], cases[4096], out[4096];
};

struct reply {
    int error;
    struct attn_process ran;
};

static struct reply reply; /* of the launcher; its handler must find the running group */

/* The parent died, or wants an end: nothing that was started here may stay. */
static void on_end(int number)
{
    (void)number;
    if (reply.ran.group > 0)
        kill(-reply.ran.group, SIGKILL);
    _exit(0);
}

static void serve(pid_t parent, int from, int to)
{
    static struct request request;
    static const int ends[] = {SIGTERM, SIGINT, SIGHUP};
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_end;
    for (size_t e = 0; e < sizeof ends / sizeof *ends; e++)
        sigaction(ends[e], &action, NULL);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) /* it died before that was said */
        _exit(0);
    while (attn_pipe_read(from, &request, sizeof request)) {
        reply.error = attn_process_shell(request.command, request.cases, request.out,
                                         (double)INFINITY, &reply.ran) == 0
                          ? 0
                          : errno;
        if (!attn_pipe_write(to, &reply, sizeof reply))
            break;
    }
    _exit(0);
}

int attn_launcher_open(struct attn_launcher *l)
{
    int to[2], from[2];
    pid_t parent = getpid();
    if (attn_pipe(to) != 0)
        return -1;
    if (attn_pipe(from) != 0) {
        close(to[0]);
        close(to[1]);
        return -1;
    }
    l->pid = fork();
    if (l->pid == 0) {
        close(to[1]);
        close(from[0]);
        serve(parent, to[0], from[1]);
    }
    int error = errno;
    close(to[0]);
    close(from[1]);
    l->to = to[1];
    l->from = from[0];
    if (l->pid < 0) {
        close(l->to);
        close(l->from);
        errno = error;
        return -1;
    }
    return 0;
}

int attn_launcher_run(struct attn_launcher *l, const char *command, const char *cases,
                      const char *out, struct attn_process *result)
{
    static struct request request;
    static struct reply answer;
    if (strlen(command) >= sizeof request.command || strlen(cases) >= sizeof request.cases ||
        strlen(out) >= sizeof request.out) {
        errno = ENAMETOOLONG;
        return -1;
    }
    strcpy(request.command, command);
    strcpy(request.cases, cases);
    strcpy(request.out, out);
    if (!attn_pipe_write(l->to, &request, sizeof request) ||
        !attn_pipe_read(l->from, &answer, sizeof answer)) {
        errno = EPIPE;
        return -1;
    }
    *result = answer.ran;
    errno = answer.error;
    return answer.error == 0 ? 0 : -1;
}

void attn_launcher_close(struct attn_launcher *l)
{
    close(l->to);
    close(l->from);
    kill(l->pid, SIGTERM);
    while (waitpid(l->pid, NULL, 0) < 0 && errno == EINTR)
        continue;
}
