/* The host's side of worker.h: one poll loop that keeps the time and drains
 * whatever the worker prints, so that megabytes of chatter cannot stop it. */
#include "tests/harness/subject/worker.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ref/clock.h"
#include "tests/harness/base/ending.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/base/process.h"

enum { RELATION_CALLS = 10 }; /* a relation, and a look for leaks, may take as long */

static double now(void)
{
    return attn_seconds(CLOCK_MONOTONIC);
}

/* ---- its process, from its start to its end ----------------------------------------------- */

/* With its pipes, in a process group of its own.  0, or an error number. */
static int start_worker(struct attn_worker *g)
{
    const char *const argv[] = {"attnlab", "worker", g->path, NULL};
    int end[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}}, error = 0;
    for (int n = 0; n < 3 && error == 0; n++)
        error = attn_pipe(end[n]) == 0 ? 0 : errno;
    const int requests = end[0][0], messages = end[1][1], noise = end[2][1];
    const int fd[] = {-1, noise, noise, messages, requests};
    _Static_assert(ATTN_WORKER_FD == 3 && ATTN_WORKER_REQUESTS == 4, "as in fd[]");
    if (error == 0) /* a group of its own, so that what it starts ends with it */
        error = attn_process_start("/proc/self/exe", argv, NULL, fd, 5, 1, &g->pid);
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
    return error;
}

static void close_pipes(struct attn_worker *g)
{
    const int all[] = {g->to, g->from, g->noise};
    for (int n = 0; n < 3; n++)
        if (all[n] >= 0)
            close(all[n]);
    g->to = g->from = g->noise = -1;
}

/* End a worker that is dead, or is to be, with all that it started; g->signal and exit_status say
 * how it had ended. */
static void bury(struct attn_worker *g)
{
    struct attn_process end = {.exit_status = -1};
    if (g->pid <= 0)
        return;
    if (g->alone)
        g->strays += attn_process_signal_children(g->pid, SIGKILL);
    kill(-g->pid, SIGKILL);
    attn_process_reap(g->pid, 0, &end);
    if (g->alone) /* orphans have become ours */
        g->strays += attn_process_end_children(0);
    g->signal = end.signal;
    g->exit_status = end.exit_status;
    g->pid = -1;
    close_pipes(g);
}

/* ---- messages -------------------------------------------------------------------------------- */

static void drain(struct attn_worker *g)
{
    char part[65536];
    ssize_t got = read(g->noise, part, sizeof part);
    if (got <= 0) {
        close(g->noise);
        g->noise = -1;
        return;
    }
    attn_keep_last_line(g->last_line, sizeof g->last_line, part, (size_t)got);
}

static int has_ended(const struct attn_worker *g)
{
    siginfo_t end = {.si_pid = 0};
    return waitid(P_PID, (id_t)g->pid, &end, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           end.si_pid == g->pid;
}

/* Exactly so many bytes before the deadline: 1; 0 when the worker has ended; -1 too late. */
static int receive(struct attn_worker *g, void *to, size_t bytes, double deadline)
{
    for (size_t done = 0; done < bytes;) {
        struct pollfd fds[2] = {{g->from, POLLIN, 0}, {g->noise, POLLIN, 0}};
        double left = fmin(deadline, g->until) - now();
        if (left <= 0)
            return -1;
        int ready = poll(fds, g->noise >= 0 ? 2 : 1, left < 0.25 ? (int)(left * 1000) + 1 : 250);
        if (ready == 0 && has_ended(g))
            return 0; /* and the pipe is open still: somebody else has it */
        if (ready <= 0)
            continue;
        if (g->noise >= 0 && fds[1].revents != 0)
            drain(g);
        if (fds[0].revents == 0)
            continue;
        ssize_t got = read(g->from, (char *)to + done, bytes - done);
        if (got > 0)
            done += (size_t)got;
        else if (has_ended(g))
            return 0;
        else /* it is about to, or has closed its end: it shows which */
            poll(NULL, 0, 1);
    }
    return 1;
}

enum arrival { ARRIVED = 1, ENDED = 0, LATE = -1, FORKED = -2, RUBBISH = -3 };

/* Wait for a message of this kind (or SORRY); others are notes. */
static enum arrival await(struct attn_worker *g, uint32_t kind, void *to, size_t bytes,
                          struct attn_error *sorry)
{
    double start = now(), deadline = start + g->allowed_s;
    for (;;) {
        struct attn_worker_message m;
        char note[ATTN_CASE_TEXT];
        int ok = receive(g, &m, sizeof m, deadline);
        int own = ok == 1 && m.pid == g->pid && m.number == g->number;
        if (own && m.kind == kind && m.bytes == bytes)
            return (enum arrival)receive(g, to, bytes, deadline);
        if (ok == 1 && !own)
            return m.kind == ATTN_WORKER_FORKED && m.pid != g->pid ? FORKED : RUBBISH;
        if (ok == 1)
            ok = m.bytes <= sizeof note ? receive(g, note, m.bytes, deadline) : 0;
        g->late_s = now() - start < g->whole_s ? g->allowed_s : g->whole_s;
        if (ok != 1)
            return (enum arrival)ok;
        note[sizeof note - 1] = '\0';
        if (m.kind == ATTN_WORKER_PHASE && m.bytes == sizeof g->phase) {
            memcpy(&g->phase, note, sizeof g->phase);
            deadline = fmin(now() + g->allowed_s, start + g->whole_s) +
                       (g->phase == ATTN_PHASE_JUDGING ? ATTN_WORKER_FORK_S : 0);
        } else if (m.kind == ATTN_WORKER_FAULT)
            snprintf(g->fault, sizeof g->fault, "%.*s", (int)sizeof g->fault - 1, note);
        else if (m.kind == ATTN_WORKER_SORRY && sorry != NULL) {
            attn_fail(sorry, ATTN_EINVAL, "%.500s", note);
            return ENDED;
        }
    }
}

static int is_over(const struct attn_worker *g, enum arrival how)
{
    return how == LATE && now() >= g->until;
}

/* It had no memory, or no pipe, while our own code ran in it. */
static int lacked(const struct attn_worker *g, enum arrival how)
{
    return how == ENDED && g->exit_status == ATTN_PROCESS_LACKS &&
           (g->phase == ATTN_PHASE_LOADING || g->phase == ATTN_PHASE_JUDGING);
}

/* How a worker ended, in words. */
static void describe(struct attn_worker *g, enum arrival how, char *text, size_t size)
{
    static const char *const phase[] = {"while it was loaded", "between calls", "in forward",
                                        "in backward"};
    const char *where = (unsigned)g->phase < 4 ? phase[g->phase] : "somewhere";
    g->last_line[strcspn(g->last_line, "\n")] = '\0';
    attn_clean(g->last_line);
    if (how == FORKED)
        snprintf(text, size,
                 "it forked, and both processes went on: one of them has to exec or _exit before "
                 "the call returns");
    else if (how == RUBBISH)
        snprintf(text, size, "bytes that are no answer came through the worker's pipe %s", where);
    else if (is_over(g, how))
        snprintf(text, size, "the budget was used up %s", where);
    else if (how == LATE)
        snprintf(text, size, "no end after %g s %s", g->late_s, where);
    else if (g->signal != 0)
        snprintf(text, size, "%s %s%s%s", strsignal(g->signal), where,
                 g->fault[0] != '\0' ? ": " : "", g->fault);
    else
        snprintf(text, size, "it left with exit(%d) %s", g->exit_status, where);
    size_t used = strlen(text);
    if (g->last_line[0] != '\0')
        snprintf(text + used, size - used, "; it said: %.150s", g->last_line);
}

static enum attn_status introduce(struct attn_worker *g, struct attn_error *err)
{
    struct attn_worker_hello hello;
    struct attn_error sorry = {0};
    char text[400];
    int error = start_worker(g);
    if (error != 0) {
        close_pipes(g);
        return attn_fail(err, ATTN_ENOMEM, "no process for the plug-in: %s", strerror(error));
    }
    enum arrival how = await(g, ATTN_WORKER_HELLO, &hello, sizeof hello, &sorry);
    if (how == ARRIVED) {
        g->claims = hello.claims;
        memcpy(g->load_environment, hello.load_environment, sizeof g->load_environment);
        g->phase = ATTN_PHASE_JUDGING;
        return ATTN_OK;
    }
    bury(g);
    if (sorry.text[0] != '\0')
        return attn_fail(err, ATTN_EINVAL, "%s", sorry.text);
    describe(g, how, text, sizeof text);
    int lacks = lacked(g, how) || is_over(g, how);
    return attn_fault(err, lacks ? ATTN_ENOMEM : ATTN_EINVAL, g->path, "%s", text);
}

/* ---- the interface --------------------------------------------------------------------------- */

enum attn_status attn_worker_open(const char *path, double timeout_s, double until,
                                  struct attn_worker *g, struct attn_error *err)
{
    memset(g, 0, sizeof *g);
    g->path = path;
    g->timeout_s = timeout_s;
    g->until = until;
    g->pid = -1;
    g->to = g->from = g->noise = -1;
    g->alone = attn_process_is_alone();
    return introduce(g, err);
}

void attn_worker_renew(struct attn_worker *g)
{
    bury(g);
}

void attn_worker_close(struct attn_worker *g)
{
    attn_worker_renew(g);
    close_pipes(g);
}

/* Names are pointers into the worker's memory: ours are the same words elsewhere. */
static void adopt(struct attn_answer *answer)
{
    struct attn_result *r = &answer->result;
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        r->output[o].name = attn_output_name((enum attn_output)o);
    r->text[sizeof r->text - 1] = r->differs[sizeof r->differs - 1] = '\0';
    answer->environment[sizeof answer->environment - 1] = '\0';
    r->diagnosis.text[sizeof r->diagnosis.text - 1] = '\0';
    r->diagnosis.where[sizeof r->diagnosis.where - 1] = '\0';
    if ((unsigned)r->diagnosis.fault >= ATTN_FAULTS)
        r->diagnosis.fault = ATTN_FAULT_NONE;
    if ((unsigned)r->verdict > ATTN_ERROR)
        r->verdict = ATTN_ERROR;
}

static enum arrival ask_once(struct attn_worker *g, enum attn_worker_ask what, const char *text,
                             const struct attn_repetition *how, struct attn_answer *answer)
{
    char line[ATTN_CASE_TEXT + 64];
    g->number++;
    (void)!getrandom(&g->number, sizeof g->number, 0); /* nobody answers who was not asked */
    int n = snprintf(line, sizeof line, "%u %c %d %.17g %s\n", g->number, (char)what, how->calls,
                     how->seconds, text);
    g->phase = ATTN_PHASE_JUDGING;
    g->allowed_s = g->timeout_s;
    g->whole_s = g->timeout_s * (what != ATTN_WORKER_CASE ? RELATION_CALLS : how->calls);
    g->fault[0] = g->last_line[0] = '\0';
    g->unasked = write(g->to, line, (size_t)n) == n || errno == EPIPE ? 0 : errno;
    return g->unasked == 0 ? await(g, ATTN_WORKER_REPLY, answer, sizeof *answer, NULL) : ENDED;
}

static void say(struct attn_answer *answer, enum attn_verdict verdict, const char *text)
{
    memset(answer, 0, sizeof *answer);
    answer->result.verdict = verdict;
    snprintf(answer->result.text, sizeof answer->result.text, "%s", text);
}

/* It failed too often, or there is no time left for it. */
static int is_unreached(const struct attn_worker *g, struct attn_answer *answer)
{
    char why[120] = "not reached: the budget is used up";
    if (g->pid <= 0 && g->failures >= ATTN_WORKER_FAILURES)
        snprintf(why, sizeof why,
                 "not reached: %d times before it did not end, or did not start again",
                 g->failures);
    else if (now() < g->until)
        return 0;
    say(answer, ATTN_ERROR, why);
    answer->not_reached = 1;
    return 1;
}

void attn_worker_ask(struct attn_worker *g, enum attn_worker_ask what, const char *text,
                     const struct attn_repetition *how, struct attn_answer *answer)
{
    static const struct attn_repetition once = {1, 0, 0};
    struct attn_error err = {0};
    char why[sizeof answer->result.text];
    if (is_unreached(g, answer))
        return;
    g->restarts += g->pid <= 0;
    if (g->pid <= 0 && introduce(g, &err) != ATTN_OK) {
        if (is_unreached(g, answer))
            return;
        g->failures++;
        snprintf(why, sizeof why, "started again, but %.480s", err.text);
        say(answer, ATTN_ERROR, why);
        answer->result.lacks_memory = err.status == ATTN_ENOMEM;
        return;
    }
    enum arrival arrival = ask_once(g, what, text, how != NULL ? how : &once, answer);
    if (arrival == ARRIVED) {
        adopt(answer);
        return;
    }
    bury(g);
    if (is_over(g, arrival) && is_unreached(g, answer))
        return;
    g->failures += arrival == LATE;
    describe(g, arrival, why, sizeof why);
    say(answer, arrival == LATE ? ATTN_TIMEOUT : arrival == ENDED ? ATTN_CRASH : ATTN_FAILED, why);
    if (g->unasked != 0)
        snprintf(why, sizeof why, "it cannot be asked: %s", strerror(g->unasked));
    if (g->unasked != 0 || lacked(g, arrival))
        attn_result_error(&answer->result, ATTN_ENOMEM, why);
    answer->result.failure = answer->result.verdict == ATTN_FAILED ? ATTN_F_INTEGRITY : ATTN_F_NONE;
    answer->result.meddles = answer->result.verdict == ATTN_FAILED;
}
