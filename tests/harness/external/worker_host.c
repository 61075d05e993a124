/* The host's side of worker.h: one poll loop that keeps the time and drains
 * whatever the worker prints, so that megabytes of chatter cannot stop it. */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ref/clock.h"
#include "tests/harness/external/worker_process.h"
#include "tests/harness/files/fileio.h"
#include "tests/harness/process.h"

enum { RELATION_CALLS = 10 }; /* a relation may take as long as so many calls */

static double now(void)
{
    return attn_seconds(CLOCK_MONOTONIC);
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

/* Exactly so many bytes before the deadline: 1; 0 when the worker has ended; -1 too late. */
static int receive(struct attn_worker *g, void *to, size_t bytes, double deadline)
{
    for (size_t done = 0; done < bytes;) {
        struct pollfd fds[2] = {{g->from, POLLIN, 0}, {g->noise, POLLIN, 0}};
        siginfo_t end = {.si_pid = 0};
        double left = deadline - now();
        if (left <= 0)
            return -1;
        int ready = poll(fds, g->noise >= 0 ? 2 : 1, left < 0.25 ? (int)(left * 1000) + 1 : 250);
        if (ready == 0 && waitid(P_PID, (id_t)g->pid, &end, WEXITED | WNOHANG | WNOWAIT) == 0 &&
            end.si_pid == g->pid)
            return 0; /* and the pipe is open still: somebody else has it */
        if (ready <= 0)
            continue;
        if (g->noise >= 0 && fds[1].revents != 0)
            drain(g);
        if (fds[0].revents == 0)
            continue;
        ssize_t got = read(g->from, (char *)to + done, bytes - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return 0;
        done += (size_t)got;
    }
    return 1;
}

enum arrival { ARRIVED = 1, ENDED = 0, LATE = -1, FORKED = -2, FORKED_BEFORE = -3 };

/* Not from the worker, or not about this question. */
static enum arrival note_fork(struct attn_worker *g, const struct attn_worker_message *m,
                              const char *question)
{
    g->fork_pid = m->pid;
    snprintf(g->fork_question, sizeof g->fork_question, "%.*s", (int)sizeof g->fork_question - 1,
             m->kind == ATTN_WORKER_FORKED ? question : "");
    return m->number == g->number ? FORKED : FORKED_BEFORE;
}

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
        if (ok == 1)
            ok = m.bytes <= sizeof note ? receive(g, note, m.bytes, deadline) : 0;
        g->late_s = now() - start < g->whole_s ? g->allowed_s : g->whole_s;
        if (ok != 1)
            return (enum arrival)ok;
        note[sizeof note - 1] = '\0';
        if (!own)
            return note_fork(g, &m, note);
        if (m.kind == ATTN_WORKER_PHASE && m.bytes == sizeof g->phase) {
            memcpy(&g->phase, note, sizeof g->phase);
            deadline = fmin(now() + g->allowed_s, start + g->whole_s);
        } else if (m.kind == ATTN_WORKER_FAULT)
            snprintf(g->fault, sizeof g->fault, "%.*s", (int)sizeof g->fault - 1, note);
        else if (m.kind == ATTN_WORKER_SORRY && sorry != NULL) {
            attn_fail(sorry, ATTN_EINVAL, "%.500s", note);
            return ENDED;
        }
    }
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
    const char *where = attn_plugin_phase_name((enum attn_plugin_phase)g->phase);
    g->last_line[strcspn(g->last_line, "\n")] = '\0';
    attn_clean(g->last_line);
    if (how == FORKED)
        snprintf(text, size,
                 "it forked, and process %d went on as well as the process that was called: one "
                 "of them has to exec or _exit before the call returns",
                 g->fork_pid);
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
    int error = attn_worker_start(g);
    if (error != 0) {
        attn_worker_close_pipes(g);
        return attn_fail(err, ATTN_ENOMEM, "no process for the plug-in: %s", strerror(error));
    }
    enum arrival how = await(g, ATTN_WORKER_HELLO, &hello, sizeof hello, &sorry);
    if (how == ARRIVED) {
        g->claims = hello.claims;
        memcpy(g->load_environment, hello.load_environment, sizeof g->load_environment);
        g->phase = ATTN_PHASE_JUDGING;
        return ATTN_OK;
    }
    attn_worker_bury(g);
    if (sorry.text[0] != '\0')
        return attn_fail(err, ATTN_EINVAL, "%s", sorry.text);
    describe(g, how, text, sizeof text);
    return attn_fault(err, lacked(g, how) ? ATTN_ENOMEM : ATTN_EINVAL, g->path, "%s", text);
}

/* ---- the interface --------------------------------------------------------------------------- */

enum attn_status attn_worker_open(const char *path, double timeout_s, struct attn_worker *g,
                                  struct attn_error *err)
{
    siginfo_t child;
    memset(g, 0, sizeof *g);
    g->path = path;
    g->timeout_s = timeout_s;
    g->pid = -1;
    g->to = g->from = g->noise = -1;
    g->alone = waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT) < 0 && errno == ECHILD;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    attn_worker_catch_endings();
    return introduce(g, err);
}

void attn_worker_renew(struct attn_worker *g)
{
    struct attn_worker_message m;
    char question[ATTN_CASE_TEXT];
    int left = g->pid > 0 && g->alone && attn_worker_signal_children(g->pid, 0) > 0;
    double deadline = now() + (left ? 1 : 1e-3); /* what it forked may speak yet */
    while (g->pid > 0 && receive(g, &m, sizeof m, deadline) == 1 && m.bytes <= sizeof question &&
           receive(g, question, m.bytes, now() + 1) == 1)
        note_fork(g, &m, question); /* the worker itself has nothing to say unasked */
    attn_worker_bury(g);
}

void attn_worker_close(struct attn_worker *g)
{
    attn_worker_renew(g);
    attn_worker_close_pipes(g);
}

/* Names are pointers into the worker's memory: ours are the same words elsewhere. */
static void adopt(struct attn_worker_reply *reply)
{
    struct attn_result *r = &reply->result;
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        r->output[o].name = attn_output_name((enum attn_output)o);
    r->text[sizeof r->text - 1] = r->differs[sizeof r->differs - 1] = '\0';
    reply->environment[sizeof reply->environment - 1] = '\0';
    reply->diagnosis.text[sizeof reply->diagnosis.text - 1] = '\0';
    reply->diagnosis.where[sizeof reply->diagnosis.where - 1] = '\0';
    if ((unsigned)reply->diagnosis.fault >= ATTN_FAULTS)
        reply->diagnosis.fault = ATTN_FAULT_NONE;
    if ((unsigned)r->verdict > ATTN_ERROR)
        r->verdict = ATTN_ERROR;
}

static enum arrival ask_once(struct attn_worker *g, enum attn_worker_ask what, const char *text,
                             const struct attn_repetition *how, struct attn_worker_reply *reply)
{
    char line[ATTN_CASE_TEXT + 64];
    g->number++;
    int n = snprintf(line, sizeof line, "%u %c %d %.17g %s\n", g->number, (char)what, how->calls,
                     how->seconds, text);
    g->phase = ATTN_PHASE_JUDGING;
    g->allowed_s = g->timeout_s;
    g->whole_s = g->timeout_s * (what == ATTN_WORKER_RELATION ? RELATION_CALLS : how->calls);
    g->fault[0] = g->last_line[0] = '\0';
    g->unasked = write(g->to, line, (size_t)n) == n || errno == EPIPE ? 0 : errno;
    return g->unasked == 0 ? await(g, ATTN_WORKER_REPLY, reply, sizeof *reply, NULL) : ENDED;
}

static void say(struct attn_worker_reply *reply, enum attn_verdict verdict, const char *text)
{
    memset(reply, 0, sizeof *reply);
    reply->result.verdict = verdict;
    snprintf(reply->result.text, sizeof reply->result.text, "%s", text);
}

void attn_worker_ask(struct attn_worker *g, enum attn_worker_ask what, const char *text,
                     const struct attn_repetition *how, struct attn_worker_reply *reply)
{
    static const struct attn_repetition once = {1, 0, 0};
    enum arrival arrival = FORKED_BEFORE;
    struct attn_error err = {0};
    char why[sizeof reply->result.text];
    for (int tries = 0; tries < 3 && arrival == FORKED_BEFORE; tries++) {
        if (g->pid <= 0 && g->failures >= ATTN_WORKER_FAILURES) {
            snprintf(why, sizeof why,
                     "not reached: %d times before it did not end, or did not start again",
                     g->failures);
            say(reply, ATTN_ERROR, why);
            reply->not_reached = 1;
            return;
        }
        g->restarts += g->pid <= 0;
        if (g->pid <= 0 && introduce(g, &err) != ATTN_OK) {
            g->failures++;
            snprintf(why, sizeof why, "started again, but %.480s", err.text);
            say(reply, ATTN_ERROR, why);
            reply->result.lacks_memory = err.status == ATTN_ENOMEM;
            return;
        }
        arrival = ask_once(g, what, text, how != NULL ? how : &once, reply);
        if (arrival == ARRIVED) {
            adopt(reply);
            return;
        }
        attn_worker_bury(g);
    }
    g->failures += arrival == LATE;
    describe(g, arrival == FORKED_BEFORE ? FORKED : arrival, why, sizeof why);
    say(reply, arrival == LATE ? ATTN_TIMEOUT : arrival == ENDED ? ATTN_CRASH : ATTN_FAILED, why);
    if (g->unasked != 0)
        snprintf(why, sizeof why, "it cannot be asked: %s", strerror(g->unasked));
    if (g->unasked != 0 || lacked(g, arrival))
        attn_result_error(&reply->result, ATTN_ENOMEM, why);
    reply->result.failure = reply->result.verdict == ATTN_FAILED ? ATTN_F_INTEGRITY : ATTN_F_NONE;
    g->fork_pid = arrival == FORKED ? 0 : g->fork_pid; /* it is said */
}

void attn_worker_run(struct attn_worker *g, const struct attn_case *c,
                     const struct attn_repetition *how, struct attn_worker_reply *reply)
{
    char text[ATTN_CASE_TEXT];
    attn_case_print(c, text);
    attn_worker_ask(g, ATTN_WORKER_CASE, text, how, reply);
}
