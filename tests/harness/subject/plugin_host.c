/* The host's side of plugin_host.h: one poll loop that keeps the time and drains whatever the
 * plug-in prints, so that megabytes of chatter cannot stop it. */
#include "tests/harness/subject/plugin_host.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ref/clock.h"
#include "tests/harness/base/ending.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/base/pages.h"
#include "tests/harness/base/process.h"
#include "tests/harness/inputs/input_guard.h"

static double now(void)
{
    return attn_seconds(CLOCK_MONOTONIC);
}

/* ---- the starter: a helper that forks those that call --------------------------------------- */

enum { TO, FROM, NOISE, PIPES };

/* fd: the ends of the pipes that it passes on; from, to: its own. */
struct starter {
    const char *path;
    struct attn_plugin_shared *shared;
    int fd[PIPES], from, to;
};

/* A plug-in gets none of the descriptors that this program was started with. */
static void keep_only(const int *kept, int n)
{
    const char *name;
    struct attn_entries all = {.fd = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    while (all.fd >= 0 && (name = attn_entries_next(&all)) != NULL) {
        int fd = atoi(name), is_kept = fd <= STDERR_FILENO || fd == all.fd;
        for (int k = 0; k < n; k++)
            is_kept |= fd == kept[k];
        if (!is_kept)
            close(fd);
    }
    if (all.fd >= 0)
        close(all.fd);
}

static void serve_host(void *arg)
{
    struct starter *s = arg;
    close(s->from);
    close(s->to);
    attn_plugin_serve(s->path, s->shared, s->fd[TO], s->fd[FROM]);
}

/* Until the host has closed its end. */
static void be_starter(void *arg, int from, int to)
{
    struct starter *s = arg;
    char byte;
    int null = open("/dev/null", O_RDONLY);
    s->from = from;
    s->to = to;
    const int kept[] = {from, to, s->fd[TO], s->fd[FROM]};
    dup2(null, STDIN_FILENO);
    dup2(s->fd[NOISE], STDOUT_FILENO);
    dup2(s->fd[NOISE], STDERR_FILENO);
    keep_only(kept, sizeof kept / sizeof *kept);
    while (attn_pipe_read(from, &byte, 1)) {
        s->shared->error = 0;
        if (attn_process_fork(serve_host, s, (double)INFINITY, &s->shared->end) != 0) {
            s->shared->error = errno;
            s->shared->pid = -1;
        } else {
            kill(-s->shared->pid, SIGKILL);
            s->shared->strays += attn_process_end_children(0);
        }
        if (!attn_pipe_write(to, "", 1))
            break;
    }
}

static void close_pipes(struct attn_plugin_host *h)
{
    int *const all[] = {&h->to, &h->from, &h->noise};
    for (int n = 0; n < PIPES; n++) {
        if (*all[n] >= 0)
            close(*all[n]);
        *all[n] = -1;
    }
}

/* A thread that runs now does not run in a fork, which waits for it in vain. */
static int has_threads(void)
{
    int n = 0;
    const char *name;
    struct attn_entries all = {.fd = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    while (all.fd >= 0 && (name = attn_entries_next(&all)) != NULL)
        n += name[0] != '.';
    if (all.fd >= 0)
        close(all.fd);
    return n > 1;
}

/* 0, or an error number. */
static int fork_starter(struct attn_plugin_host *h)
{
    int end[PIPES][2], error = has_threads() ? EAGAIN : 0;
    for (int n = 0; n < PIPES; n++)
        end[n][0] = end[n][1] = -1;
    for (int n = 0; n < PIPES && error == 0; n++)
        error = attn_pipe(end[n]) == 0 ? 0 : errno;
    struct starter s = {h->path, h->shared, {end[TO][0], end[FROM][1], end[NOISE][1]}, -1, -1};
    h->to = end[TO][1];
    h->from = end[FROM][0];
    h->noise = end[NOISE][0];
    if (error == 0 && attn_helper_open(&h->starter, be_starter, &s, SIGKILL) != 0)
        error = errno;
    for (int n = 0; n < PIPES; n++)
        if (s.fd[n] >= 0)
            close(s.fd[n]);
    if (error != 0)
        close_pipes(h);
    return error;
}

static void end_starter(struct attn_plugin_host *h)
{
    close_pipes(h);
    attn_helper_close(&h->starter, 0);
}

/* ---- waiting --------------------------------------------------------------------------------- */

enum arrival { ARRIVED, HAS_ENDED, LATE };

/* Everything that is in the pipe. */
static void drain(struct attn_plugin_host *h)
{
    char part[65536];
    struct pollfd noise = {h->noise, POLLIN, 0};
    while (poll(&noise, 1, 0) == 1 && noise.revents & POLLIN) {
        ssize_t got = read(h->noise, part, sizeof part);
        if (got <= 0)
            return;
        attn_keep_last_line(h->last_line, sizeof h->last_line, part, (size_t)got);
    }
}

/* The starter has said that its child is gone; or is gone itself. */
static void note_end(struct attn_plugin_host *h)
{
    char byte;
    h->is_running = 0;
    if (attn_pipe_read(h->starter.from, &byte, 1))
        return;
    h->shared->end.signal = SIGKILL;
    end_starter(h);
}

/* Until the question is answered, at most so long. */
static enum arrival await(struct attn_plugin_host *h, double seconds)
{
    const double deadline = fmin(now() + seconds, h->until);
    const volatile struct attn_plugin_shared *shared = h->shared;
    for (;;) {
        char byte;
        struct pollfd fds[3] = {
            {h->from, POLLIN, 0}, {h->starter.from, POLLIN, 0}, {h->noise, POLLIN, 0}};
        double left = deadline - now();
        if (left <= 0)
            return LATE;
        if (poll(fds, 3, left < 10 ? (int)(left * 1000) + 1 : 10000) <= 0)
            continue;
        if (fds[2].revents != 0)
            drain(h);
        if (fds[0].revents & POLLIN && attn_pipe_read(h->from, &byte, 1) &&
            shared->answered == shared->asked)
            return ARRIVED; /* a byte that another process wrote changes nothing */
        if (fds[1].revents != 0) {
            drain(h);
            note_end(h);
            return HAS_ENDED;
        }
    }
}

/* ---- its process, from its start to its end ----------------------------------------------- */

static void end_process(struct attn_plugin_host *h)
{
    if (!h->is_running)
        return;
    for (int n = 0; n < 10000 && h->shared->pid == 0; n++)
        usleep(100); /* it is being forked */
    const pid_t pid = h->shared->pid > 0 ? h->shared->pid : h->starter.pid;
    kill(-pid, SIGKILL);
    kill(pid, SIGKILL);
    note_end(h);
}

static int is_over(const struct attn_plugin_host *h)
{
    return h->arrival == LATE && now() >= h->until;
}

/* It had no memory, or no pipe, while our own code ran in it. */
static int lacked(const struct attn_plugin_host *h)
{
    return h->arrival == HAS_ENDED && h->shared->end.exit_status == ATTN_PROCESS_LACKS &&
           (h->phase == ATTN_PHASE_LOADING || h->phase == ATTN_PHASE_JUDGING);
}

/* How a process ended, in words. */
static void describe(struct attn_plugin_host *h, char *text, size_t size)
{
    static const char *const phase[] = {"while it was loaded", "between calls", "in forward",
                                        "in backward"};
    const struct attn_plugin_shared *shared = h->shared;
    const char *where = phase[h->phase];
    h->last_line[strcspn(h->last_line, "\n")] = '\0';
    attn_clean(h->last_line);
    if (is_over(h))
        snprintf(text, size, "the budget was used up %s", where);
    else if (h->arrival == LATE)
        snprintf(text, size, "no end after %g s %s", h->late_s, where);
    else if (shared->end.signal != 0)
        snprintf(text, size, "%s %s%s%.150s", strsignal(shared->end.signal), where,
                 shared->fault[0] != '\0' ? ": " : "", shared->fault);
    else
        snprintf(text, size, "it left with exit(%d) %s", shared->end.exit_status, where);
    size_t used = strlen(text);
    if (h->last_line[0] != '\0')
        snprintf(text + used, size - used, "; it said: %.150s", h->last_line);
}

/* Start a process, and load the plug-in there. */
static enum attn_status start(struct attn_plugin_host *h, struct attn_error *err)
{
    struct attn_plugin_shared *shared = h->shared;
    char text[400];
    int error = h->starter.pid > 0 ? 0 : fork_starter(h);
    shared->pid = 0;
    shared->answered = shared->asked++;
    shared->fault[0] = shared->text[0] = h->last_line[0] = '\0';
    h->phase = ATTN_PHASE_LOADING;
    h->late_s = h->timeout_s;
    h->calls = 0;
    if (error == 0 && !attn_pipe_write(h->starter.to, "", 1))
        error = errno;
    h->is_running = error == 0;
    h->arrival = h->is_running ? (int)await(h, h->timeout_s) : HAS_ENDED;
    if (error == 0 && shared->pid < 0)
        error = shared->error;
    if (error != 0)
        return attn_fail(err, ATTN_ENOMEM, "no process for the plug-in: %s", strerror(error));
    if (h->arrival == ARRIVED && shared->status == ATTN_OK) {
        h->phase = ATTN_PHASE_JUDGING;
        return ATTN_OK;
    }
    end_process(h);
    if (h->arrival == ARRIVED)
        return attn_fail(err, shared->status, "%s", shared->text);
    describe(h, text, sizeof text);
    return attn_fault(err, lacked(h) || is_over(h) ? ATTN_ENOMEM : ATTN_EINVAL, h->path, "%s",
                      text);
}

/* Ask, and wait for what comes. */
static void make_call(struct attn_plugin_host *h, enum attn_pass pass)
{
    const double before = now(), left = h->whole_s - h->used_s;
    h->late_s = left < h->timeout_s ? h->whole_s : h->timeout_s;
    h->shared->asked++;
    h->shared->hit = NULL;
    h->shared->fault[0] = h->last_line[0] = '\0';
    struct pollfd ended = {h->starter.from, POLLIN, 0};
    h->phase = ATTN_PHASE_JUDGING;
    if (poll(&ended, 1, 0) == 0 && attn_pipe_write(h->to, "", 1))
        h->phase = pass == ATTN_FORWARD ? ATTN_PHASE_FORWARD : ATTN_PHASE_BACKWARD;
    h->arrival = (int)await(h, fmin(left, h->timeout_s));
    h->used_s += now() - before;
    h->is_lost = h->arrival != ARRIVED;
    if (h->is_lost)
        end_process(h);
}

/* One call: what the plug-in returned, and its notes.  ATTN_PLUGIN_FAILED when it was lost, and
 * until the end of the question.  is_clean: memory that malloc gives is as it comes. */
static int call_apart(struct attn_plugin_host *h, enum attn_pass pass, int is_clean,
                      struct attn_plugin_call *call)
{
    struct attn_plugin_shared *shared = h->shared;
    if (h->is_lost)
        return ATTN_PLUGIN_FAILED;
    shared->call = *call;
    shared->call.message = shared->message;
    shared->message[0] = '\0';
    shared->pass = pass;
    shared->is_clean = is_clean;
    shared->notes = h->plugin.notes; /* of the passes before this one too */
    make_call(h, pass);
    if (h->is_lost)
        return ATTN_PLUGIN_FAILED;
    h->calls++;
    if (shared->hit != NULL)
        attn_input_guard_note(shared->hit);
    shared->message[sizeof shared->message - 1] = '\0';
    snprintf(call->message, call->message_size, "%s", shared->message);
    h->plugin.notes = shared->notes;
    return shared->returned;
}

/* ---- the interface --------------------------------------------------------------------------- */

enum attn_status attn_plugin_host_open(const char *path, double timeout_s, double until,
                                       struct attn_plugin_host *h, struct attn_error *err)
{
    memset(h, 0, sizeof *h);
    h->path = path;
    h->timeout_s = timeout_s;
    h->until = until;
    h->to = h->from = h->noise = -1;
    h->shared = attn_process_share(sizeof *h->shared);
    if (h->shared == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory to share with a plug-in");
    enum attn_status status = attn_pages_share(err);
    if (status == ATTN_OK)
        status = start(h, err);
    if (status != ATTN_OK) {
        attn_plugin_host_close(h);
        return status;
    }
    h->plugin =
        (struct attn_plugin_impl){.claims = h->shared->claims, .host = h, .call_apart = call_apart};
    memcpy(h->plugin.load_environment, h->shared->load_environment,
           sizeof h->plugin.load_environment);
    attn_plugin_make_impl(&h->plugin);
    return ATTN_OK;
}

void attn_plugin_host_renew(struct attn_plugin_host *h)
{
    end_process(h);
}

void attn_plugin_host_close(struct attn_plugin_host *h)
{
    end_process(h);
    end_starter(h);
    attn_pages_unshare();
    munmap(h->shared, sizeof *h->shared);
    h->shared = NULL;
}

static void say(struct attn_answer *answer, enum attn_verdict verdict, const char *text)
{
    memset(answer, 0, sizeof *answer);
    answer->result.verdict = verdict;
    snprintf(answer->result.text, sizeof answer->result.text, "%s", text);
}

/* It failed too often, or there is no time left for it. */
static int is_unreached(const struct attn_plugin_host *h, struct attn_answer *answer)
{
    char why[120] = "not reached: the budget is used up";
    if (!h->is_running && h->failures >= ATTN_PLUGIN_FAILURES)
        snprintf(why, sizeof why,
                 "not reached: %d times before it did not end, or did not start again",
                 h->failures);
    else if (now() < h->until)
        return 0;
    say(answer, ATTN_ERROR, why);
    answer->not_reached = 1;
    return 1;
}

int attn_plugin_host_begin(struct attn_plugin_host *h, double times, struct attn_answer *answer)
{
    struct attn_error err = {0};
    char why[sizeof answer->result.text];
    h->whole_s = h->timeout_s * times;
    h->used_s = 0;
    h->is_lost = 0;
    if (is_unreached(h, answer))
        return 0;
    h->restarts += !h->is_running;
    if (h->is_running || start(h, &err) == ATTN_OK)
        return 1;
    if (is_unreached(h, answer))
        return 0;
    h->failures++;
    snprintf(why, sizeof why, "started again, but %.480s", err.text);
    say(answer, ATTN_ERROR, why);
    answer->result.lacks_memory = err.status == ATTN_ENOMEM;
    return 0;
}

void attn_plugin_host_end(struct attn_plugin_host *h, struct attn_answer *answer)
{
    char why[sizeof answer->result.text];
    struct pollfd ended = {h->starter.from, POLLIN, 0};
    if (h->is_running && poll(&ended, 1, 0) > 0) { /* after it had answered */
        note_end(h);
        h->arrival = HAS_ENDED;
        h->phase = ATTN_PHASE_JUDGING;
        h->is_lost = 1;
    }
    if (!h->is_lost || (is_over(h) && is_unreached(h, answer)))
        return;
    h->failures += h->arrival == LATE;
    describe(h, why, sizeof why);
    say(answer, h->arrival == LATE ? ATTN_TIMEOUT : ATTN_CRASH, why);
    if (lacked(h))
        attn_result_error(&answer->result, ATTN_ENOMEM, why);
    if (h->starter.pid <= 0) {
        attn_result_fail(&answer->result, ATTN_F_INTEGRITY,
                         "it ended the process that had started it");
        answer->result.meddles = 1;
    }
}
