/* The host's side of guest.h.  posix_spawn and pipes; one poll loop that keeps the time and drains
 * whatever the guest prints, so that megabytes of chatter cannot stop it. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/harness/fileio.h"
#include "tests/harness/guest.h"

extern char **environ;

enum { RELATION_CASES = 10 }; /* a relation may take as long as so many cases */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- starting and ending --------------------------------------------------------------------- */

/* Ends beyond every number that the guest's own descriptors will have. */
static int make_pipe(int end[2])
{
    int low[2];
    if (pipe2(low, O_CLOEXEC) != 0)
        return -1;
    for (int n = 0; n < 2; n++) {
        end[n] = fcntl(low[n], F_DUPFD_CLOEXEC, 10);
        close(low[n]);
    }
    return end[0] >= 0 && end[1] >= 0 ? 0 : -1;
}

static int spawn(struct attn_guest *g, int requests, int replies, int noise)
{
    char *argv[] = {(char *)"attnlab", (char *)"guest", (char *)(uintptr_t)g->path, NULL};
    posix_spawn_file_actions_t actions;
    int error = posix_spawn_file_actions_init(&actions);
    if (error != 0)
        return error;
    error = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    if (error == 0)
        error = posix_spawn_file_actions_adddup2(&actions, noise, STDOUT_FILENO);
    if (error == 0)
        error = posix_spawn_file_actions_adddup2(&actions, noise, STDERR_FILENO);
    if (error == 0)
        error = posix_spawn_file_actions_adddup2(&actions, replies, ATTN_GUEST_FD);
    if (error == 0)
        error = posix_spawn_file_actions_adddup2(&actions, requests, ATTN_GUEST_REQUESTS);
    if (error == 0)
        error = posix_spawn(&g->pid, "/proc/self/exe", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

/* 0, or an error number. */
static int start(struct attn_guest *g)
{
    int end[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}}, error = 0;
    for (int n = 0; n < 3 && error == 0; n++)
        error = make_pipe(end[n]) == 0 ? 0 : errno;
    if (error == 0)
        error = spawn(g, end[0][0], end[1][1], end[2][1]);
    const int close_now[] = {end[0][0], end[1][1], end[2][1]};
    for (int n = 0; n < 3; n++)
        if (close_now[n] >= 0)
            close(close_now[n]);
    g->to = end[0][1];
    g->from = end[1][0];
    g->noise = end[2][0];
    g->signal = g->timed_out = 0;
    g->exit_status = -1;
    g->fault[0] = g->last_line[0] = '\0';
    g->phase = ATTN_PHASE_LOADING;
    g->allowed_s = g->timeout_s;
    if (error != 0)
        g->pid = -1;
    return error;
}

static void close_pipes(struct attn_guest *g)
{
    const int all[] = {g->to, g->from, g->noise};
    for (int n = 0; n < 3; n++)
        if (all[n] >= 0)
            close(all[n]);
    g->to = g->from = g->noise = -1;
}

/* Bury a guest that is dead, or is to be. */
static void bury(struct attn_guest *g, int kill_it)
{
    int status = 0;
    if (g->pid <= 0)
        return;
    if (kill_it)
        kill(g->pid, SIGKILL);
    while (waitpid(g->pid, &status, 0) < 0 && errno == EINTR)
        continue;
    g->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    g->exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    g->pid = -1;
    close_pipes(g);
}

/* ---- messages -------------------------------------------------------------------------------- */

static void drain(struct attn_guest *g)
{
    char part[65536];
    ssize_t got = read(g->noise, part, sizeof part);
    if (got <= 0) {
        close(g->noise);
        g->noise = -1;
        return;
    }
    size_t have = strlen(g->last_line);
    for (ssize_t n = 0; n < got; n++) {
        if (have > 0 && g->last_line[have - 1] == '\n')
            have = 0;
        if (have < sizeof g->last_line - 1 && part[n] != '\0')
            g->last_line[have++] = part[n];
    }
    g->last_line[have] = '\0';
}

/* Exactly so many bytes before the deadline: 1; 0 at the end of the pipe; -1 too late. */
static int receive(struct attn_guest *g, void *to, size_t bytes, double deadline)
{
    for (size_t done = 0; done < bytes;) {
        struct pollfd fds[2] = {{g->from, POLLIN, 0}, {g->noise, POLLIN, 0}};
        double left = deadline - now();
        if (left <= 0)
            return -1;
        int ready = poll(fds, g->noise >= 0 ? 2 : 1, left < 0.25 ? (int)(left * 1000) + 1 : 250);
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

/* Wait for a message of this kind (or SORRY); others are notes.  1, 0 (it died) or -1 (late). */
static int await(struct attn_guest *g, uint32_t kind, void *to, size_t bytes,
                 struct attn_error *sorry)
{
    double deadline = now() + g->allowed_s;
    for (;;) {
        struct attn_guest_message m;
        char note[sizeof sorry->text];
        int ok = receive(g, &m, sizeof m, deadline);
        if (ok == 1 && m.kind == kind && m.bytes == bytes)
            return receive(g, to, bytes, deadline);
        if (ok == 1)
            ok = m.bytes <= sizeof note ? receive(g, note, m.bytes, deadline) : 0;
        if (ok != 1)
            return ok;
        note[sizeof note - 1] = '\0';
        if (m.kind == ATTN_GUEST_PHASE && m.bytes == sizeof g->phase)
            memcpy(&g->phase, note, sizeof g->phase);
        else if (m.kind == ATTN_GUEST_FAULT)
            snprintf(g->fault, sizeof g->fault, "%.*s", (int)sizeof g->fault - 1, note);
        else if (m.kind == ATTN_GUEST_SORRY && sorry != NULL) {
            attn_fail(sorry, ATTN_EINVAL, "%s", note);
            return 0;
        }
    }
}

/* How a guest ended, in words. */
static void describe(struct attn_guest *g, int late, char *text, size_t size)
{
    const char *where = attn_plugin_phase_name((enum attn_plugin_phase)g->phase);
    g->last_line[strcspn(g->last_line, "\n")] = '\0';
    attn_clean(g->last_line);
    if (late)
        snprintf(text, size, "no end after %g s %s", g->allowed_s, where);
    else if (g->signal != 0)
        snprintf(text, size, "%s %s%s%s", strsignal(g->signal), where,
                 g->fault[0] != '\0' ? ": " : "", g->fault);
    else
        snprintf(text, size, "it left with exit(%d) %s", g->exit_status, where);
    size_t used = strlen(text);
    if (g->last_line[0] != '\0')
        snprintf(text + used, size - used, "; it said: %.150s", g->last_line);
}

static enum attn_status introduce(struct attn_guest *g, struct attn_error *err)
{
    struct attn_guest_hello hello;
    struct attn_error sorry = {0};
    char text[400];
    int error = start(g);
    if (error != 0) {
        close_pipes(g);
        return attn_fail(err, ATTN_ENOMEM, "no process for the plug-in: %s", strerror(error));
    }
    int ok = await(g, ATTN_GUEST_HELLO, &hello, sizeof hello, &sorry);
    if (ok == 1) {
        g->claims = hello.claims;
        memcpy(g->load_environment, hello.load_environment, sizeof g->load_environment);
        g->phase = ATTN_PHASE_JUDGING;
        return ATTN_OK;
    }
    bury(g, 1);
    if (sorry.text[0] != '\0')
        return attn_fail(err, ATTN_EINVAL, "%s", sorry.text);
    describe(g, ok < 0, text, sizeof text);
    return attn_fault(err, ATTN_EINVAL, g->path, "%s", text);
}

/* ---- the interface --------------------------------------------------------------------------- */

enum attn_status attn_guest_open(const char *path, double timeout_s, struct attn_guest *g,
                                 struct attn_error *err)
{
    memset(g, 0, sizeof *g);
    g->path = path;
    g->timeout_s = timeout_s;
    g->pid = -1;
    g->to = g->from = g->noise = -1;
    return introduce(g, err);
}

void attn_guest_close(struct attn_guest *g)
{
    if (g->pid > 0)
        bury(g, 1);
    close_pipes(g);
}

/* Names are pointers into the guest's memory: ours are the same words elsewhere. */
static void adopt(struct attn_guest_reply *reply)
{
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        reply->result.output[o].name = attn_output_name((enum attn_output)o);
    reply->result.text[sizeof reply->result.text - 1] = '\0';
    reply->environment[sizeof reply->environment - 1] = '\0';
    reply->diagnosis[sizeof reply->diagnosis - 1] = '\0';
    if ((unsigned)reply->result.verdict > ATTN_ERROR)
        reply->result.verdict = ATTN_ERROR;
}

static void ask(struct attn_guest *g, const char *prefix, const char *text,
                struct attn_guest_reply *reply)
{
    char line[ATTN_CASE_TEXT + 8];
    struct attn_error err = {0};
    struct attn_result *r = &reply->result;
    memset(reply, 0, sizeof *reply);
    if (g->pid <= 0) {
        g->restarts++;
        if (introduce(g, &err) != ATTN_OK) {
            r->verdict = ATTN_ERROR;
            snprintf(r->text, sizeof r->text, "started again, but %.480s", err.text);
            return;
        }
    }
    int n = snprintf(line, sizeof line, "%s%s\n", prefix, text);
    g->phase = ATTN_PHASE_JUDGING;
    g->allowed_s = g->timeout_s * (prefix[0] == '?' ? RELATION_CASES : 1);
    g->fault[0] = g->last_line[0] = '\0';
    int ok = write(g->to, line, (size_t)n) == n
                 ? await(g, ATTN_GUEST_REPLY, reply, sizeof *reply, NULL)
                 : 0;
    if (ok == 1) {
        adopt(reply);
        return;
    }
    memset(reply, 0, sizeof *reply);
    bury(g, 1);
    r->verdict = ok < 0 ? ATTN_TIMEOUT : ATTN_CRASH;
    describe(g, ok < 0, r->text, sizeof r->text);
}

static void ask_case(struct attn_guest *g, const char *prefix, const struct attn_case *c,
                     struct attn_guest_reply *reply)
{
    char text[ATTN_CASE_TEXT];
    attn_case_print(c, text);
    ask(g, prefix, text, reply);
}

void attn_guest_run(struct attn_guest *g, const struct attn_case *c, struct attn_guest_reply *reply)
{
    ask_case(g, "", c, reply);
}

void attn_guest_relation(struct attn_guest *g, const char *id, struct attn_guest_reply *reply)
{
    ask(g, "?", id, reply);
}

void attn_guest_leak(struct attn_guest *g, const struct attn_case *c,
                     struct attn_guest_reply *reply)
{
    ask_case(g, "!", c, reply);
}
