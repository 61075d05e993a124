/* The worker's side of worker.h: load, run, judge, reply; and last words when it is killed. */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "tests/harness/base/folder.h"
#include "tests/harness/base/process.h"
#include "tests/harness/diagnosis/diagnose.h"
#include "tests/harness/diagnosis/faults.h"
#include "tests/harness/relations/relations.h"
#include "tests/harness/subject/rank_steps.h"
#include "tests/harness/subject/worker.h"

static struct attn_plugin_impl plugin; /* one worker, one plug-in; the handler must find it */
static pid_t home;                     /* this worker, and no process that was forked from it */
static unsigned number;                /* of the question */
static int64_t calls;                  /* of the plug-in */

static int send_message(uint32_t kind, const void *data, size_t bytes)
{
    char whole[sizeof(struct attn_worker_message) + sizeof(struct attn_answer)];
    struct attn_worker_message message = {kind, (uint32_t)bytes, number, getpid()};
    int is_home = message.pid == home;
    if (!is_home) { /* forked, and back in our code: say so, once, and leave */
        message.kind = ATTN_WORKER_FORKED;
        message.bytes = 0;
    }
    memcpy(whole, &message, sizeof message);
    memcpy(whole + sizeof message, data, message.bytes);
    if (!attn_pipe_write(ATTN_WORKER_FD, whole, sizeof message + message.bytes))
        return -1;
    if (!is_home)
        _exit(0);
    return 0;
}

/* Until nobody else holds the pipe: what was forked since it was opened, and neither ended nor
 * called exec, does, and may speak yet. */
static void await_forks(const int pipe[2])
{
    struct pollfd end = {pipe[0], POLLIN, 0};
    close(pipe[1]);
    while (pipe[0] >= 0 && poll(&end, 1, ATTN_WORKER_FORK_S * 1000) < 0 && errno == EINTR)
        continue;
    close(pipe[0]);
}

static void tell(void *arg, enum attn_plugin_phase phase)
{
    int word = phase;
    (void)arg;
    calls += phase == ATTN_PHASE_FORWARD || phase == ATTN_PHASE_BACKWARD;
    send_message(ATTN_WORKER_PHASE, &word, sizeof word);
}

/* ---- last words ------------------------------------------------------------------------------ */

/* Bytes from the address to the tensor, 0 inside; *past: behind its end. */
static uintptr_t distance(const void *data, const int64_t extent[4], const int64_t stride[4],
                          size_t size, uintptr_t at, int *past)
{
    int64_t low = 0, high = 0;
    for (int a = 0; a < 4; a++) {
        int64_t reach = extent[a] > 1 ? (extent[a] - 1) * stride[a] : 0;
        low += reach < 0 ? reach : 0;
        high += reach > 0 ? reach : 0;
    }
    uintptr_t first = (uintptr_t)data + (uintptr_t)(low * (int64_t)size);
    uintptr_t end = (uintptr_t)data + (uintptr_t)((high + 1) * (int64_t)size);
    *past = at >= end;
    return at >= end ? at - end : at < first ? first - at : 0;
}

/* Which tensor of the running call is nearest to a faulting address, within 64 KiB. */
static void locate(const struct attn_plugin_call *call, uintptr_t at, char *text, size_t size)
{
    const struct {
        const char *name;
        const void
            *tensor; /* struct attn_plugin_in or attn_plugin_out, which have the same members */
    } list[] = {{"q", &call->q},       {"k", &call->k},        {"v", &call->v},
                {"bias", &call->bias}, {"mask", &call->mask},  {"o", &call->o_in},
                {"do", &call->d_o},    {"lse", &call->lse_in}, {"dlse", &call->d_lse},
                {"o", &call->o},       {"lse", &call->lse},    {"dq", &call->dq},
                {"dk", &call->dk},     {"dv", &call->dv},      {"dbias", &call->dbias}};
    size_t wide = call->dtype == ATTN_PLUGIN_IS_F64 ? 8 : 4;
    uintptr_t best = 65536;
    for (size_t n = 0; n < sizeof list / sizeof *list; n++) {
        int past;
        struct attn_plugin_in t;
        memcpy(&t, list[n].tensor, sizeof t);
        if (t.data == NULL || t.extent[0] * t.extent[1] * t.extent[2] * t.extent[3] == 0)
            continue;
        size_t width = list[n].tensor == &call->mask ? 1 : wide;
        uintptr_t d = distance(t.data, t.extent, t.stride, width, at, &past);
        if (d >= best)
            continue;
        best = d;
        snprintf(text, size, "it touched an address %llu bytes %s of %s", (unsigned long long)d,
                 past ? "past the end" : "before the start", list[n].name);
    }
}

static void last_words(int which, siginfo_t *info, void *context)
{
    char text[160] = "";
    (void)context;
    const struct attn_plugin_call *call = plugin.call;
    if ((which == SIGSEGV || which == SIGBUS) && call != NULL)
        locate(call, (uintptr_t)info->si_addr, text, sizeof text);
    if (getpid() == home) /* how its own children end is the plug-in's affair */
        send_message(ATTN_WORKER_FAULT, text, sizeof text);
    signal(which, SIG_DFL);
    raise(which);
}

/* On a stack of its own: the usual one may be what overflowed.  The tiles of AMX are 8 KiB of what
 * the kernel saves there, and it lets nobody use them whose signal stacks are too small. */
static void catch_faults(void)
{
    static unsigned char stack[1 << 16];
    static const int fatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = last_words;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaltstack(&own, NULL);
    for (size_t n = 0; n < sizeof fatal / sizeof *fatal; n++)
        sigaction(fatal[n], &action, NULL);
}

/* ---- one case -------------------------------------------------------------------------------- */

static int64_t hwm_bytes(void)
{
    char line[256];
    long long kib = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "VmHWM: %lld", &kib) == 1)
            break;
    if (file != NULL)
        fclose(file);
    return kib < 0 ? -1 : kib * 1024;
}

/* What a ring gets wrong is asked first of a plug-in that is ranks. */
static int diagnose_ranks(const struct attn_case *c, struct attn_result *r)
{
    struct attn_setup setup;
    struct attn_error err = {0};
    if (plugin.claims.ranks == 0 || attn_setup_open(c, &setup, &err) != ATTN_OK)
        return 0;
    int found =
        attn_rerun(&plugin.spec, &setup, 1, &err) == ATTN_OK &&
        attn_rank_results_diagnose(plugin.claims.ranks, &plugin.claims, &setup, &r->diagnosis);
    attn_setup_close(&setup);
    return found;
}

/* After ten seconds of diagnoses the next one says nothing new. */
static void diagnose(const struct attn_case *c, struct attn_result *r)
{
    static clock_t spent;
    int is_numeric =
        r->failure == ATTN_F_FINITE || r->failure == ATTN_F_EXACT || r->failure == ATTN_F_BOUND;
    if (r->verdict != ATTN_FAILED || !is_numeric || spent > 10 * CLOCKS_PER_SEC)
        return;
    clock_t start = clock();
    if (!diagnose_ranks(c, r))
        attn_diagnose_case(&plugin.spec, &plugin.claims, c, r, &r->diagnosis);
    spent += clock() - start;
}

/* What calls leave behind for the verdict. */
static void forget(void)
{
    plugin.integrity[0] = plugin.message[0] = plugin.environment[0] = '\0';
    memset(plugin.sent, 0, sizeof plugin.sent);
    memset(plugin.messages, 0, sizeof plugin.messages);
}

static void add_notes(struct attn_answer *reply)
{
    struct attn_result *r = &reply->result;
    memcpy(reply->environment, plugin.environment, sizeof reply->environment);
    memcpy(reply->sent, plugin.sent, sizeof reply->sent);
    memcpy(reply->messages, plugin.messages, sizeof reply->messages);
    if (r->by_it && r->verdict == ATTN_FAILED) /* in every run: plug-ins may */
        attn_result_refuse(r, plugin.message);
    else if (r->failure == ATTN_F_STATUS && !r->by_it && plugin.message[0] != '\0')
        snprintf(r->text, sizeof r->text, "%s", plugin.message);
    if (plugin.integrity[0] == '\0')
        return;
    r->verdict = ATTN_FAILED;
    r->failure = ATTN_F_INTEGRITY;
    r->by_it = 0;
    snprintf(r->text, sizeof r->text, "%s", plugin.integrity);
}

static void run(const struct attn_case *c, struct attn_repetition *how, struct attn_answer *reply)
{
    struct attn_result *r = &reply->result;
    struct attn_setup setup;
    struct attn_error err = {0};
    enum attn_status status = attn_setup_open(c, &setup, &err);
    int is_open = status == ATTN_OK;
    if (is_open)
        status =
            attn_claims_allow(&plugin.claims, &setup, ATTN_ROUTE_PLUGIN, &reply->wants.needs, &err);
    if (status == ATTN_OK) {
        forget();
        how->same_bits = (plugin.claims.bits & ATTN_PLUGIN_REPEATS) != 0;
        attn_run_setup(&plugin.spec, &setup, how, r);
    } else if (is_open && status == ATTN_ENOTSUP)
        attn_claims_want(&plugin.claims, &setup, ATTN_ROUTE_PLUGIN, &reply->wants);
    if (is_open)
        attn_setup_close(&setup);
    if (status != ATTN_OK) {
        attn_result_error(r, status, err.text);
        if (status == ATTN_ENOTSUP)
            r->verdict = ATTN_REFUSED;
        return;
    }
    if (plugin.claims.lse == ATTN_PLUGIN_LSE_ABSENT)
        attn_claims_drop_lse(r);
    add_notes(reply);
    diagnose(c, r);
}

static void run_relation(const char *id, struct attn_answer *reply)
{
    const struct attn_relation *relation = attn_relation_find(id);
    forget();
    if (relation != NULL)
        reply->wants.needs =
            attn_relation_run(relation, &plugin.spec, &plugin.claims, &reply->result);
    else
        reply->result.verdict = ATTN_ERROR;
    add_notes(reply);
}

/* ---- leaks ----------------------------------------------------------------------------------- */

enum { LEAK_CALLS = 40, LEAK_LOOK = 36 };

/* Of the address sanitizer, whose malloc tells mallinfo2 nothing; NULL without it. */
size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

/* Bytes that malloc has out, and bytes mapped at all (mmap by hand). */
static void measure(int64_t taken[2])
{
    struct mallinfo2 info = mallinfo2();
    long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%lld", &pages) != 1)
        pages = 0;
    if (file != NULL)
        fclose(file);
    taken[0] = (int64_t)(info.uordblks + info.hblkhd);
    if (__sanitizer_get_current_allocated_bytes != NULL)
        taken[0] = (int64_t)__sanitizer_get_current_allocated_bytes();
    taken[1] = pages * sysconf(_SC_PAGESIZE);
}

/* What each call loses at least.  One that loses nothing ends it: the least can only fall.  Of what
 * was freed malloc counts seven pieces of each size as taken: that grows for a while, too. */
static void look_for_leaks(const struct attn_case *c, struct attn_answer *reply)
{
    struct attn_result *r = &reply->result;
    int64_t before[2], after[2], lost[2] = {INT64_MAX, INT64_MAX};
    struct attn_setup setup;
    struct attn_error err = {0};
    enum attn_status status = attn_setup_open(c, &setup, &err);
    for (int n = 0; n < LEAK_CALLS && status == ATTN_OK && (lost[0] > 0 || lost[1] > 0); n++) {
        status = attn_rerun(&plugin.spec, &setup, 1, &err);
        measure(after);
        for (int k = 0; k < 2 && n >= LEAK_CALLS - LEAK_LOOK; k++)
            if (after[k] - before[k] < lost[k])
                lost[k] = after[k] - before[k];
        memcpy(before, after, sizeof before);
    }
    attn_setup_close(&setup);
    if (status != ATTN_OK) {
        attn_result_error(r, status, err.text);
        return;
    }
    if (lost[0] <= 0 && lost[1] <= 0)
        return;
    r->verdict = ATTN_FAILED;
    r->failure = ATTN_F_MEMORY;
    snprintf(r->text, sizeof r->text, "at least %lld bytes are lost in every call",
             (long long)(lost[0] > 0 ? lost[0] : lost[1]));
}

/* ---- serving --------------------------------------------------------------------------------- */

/* "NUMBER KIND CALLS SECONDS TEXT" */
static int answer(const char *line)
{
    static struct attn_answer reply;
    struct attn_repetition how = {1, 0, 0};
    struct attn_case c;
    struct attn_error err = {0};
    char what = '\0';
    int text = 0, forks[2];
    memset(&reply, 0, sizeof reply);
    if (sscanf(line, "%u %c %d %lf %n", &number, &what, &how.calls, &how.seconds, &text) != 4)
        return -1;
    const char *question = line + text;
    (void)!attn_pipe(forks);
    if (what == ATTN_WORKER_RELATION)
        run_relation(question, &reply);
    else if (attn_case_parse(question, &c, &err) != ATTN_OK)
        attn_result_error(&reply.result, err.status, err.text);
    else if (what == ATTN_WORKER_LEAK)
        look_for_leaks(&c, &reply);
    else
        run(&c, &how, &reply);
    await_forks(forks);
    reply.hwm_bytes = hwm_bytes();
    reply.result.calls = calls;
    return send_message(ATTN_WORKER_REPLY, &reply, sizeof reply);
}

/* What the host was given by whoever started it is not for a plug-in. */
static void close_inherited(void)
{
    const char *name;
    struct attn_entries all = {.fd = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    while (all.fd >= 0 && (name = attn_entries_next(&all)) != NULL)
        if (atoi(name) > ATTN_WORKER_REQUESTS && atoi(name) != all.fd)
            close(atoi(name));
    if (all.fd >= 0)
        close(all.fd);
}

int attn_worker_serve(const char *path)
{
    static struct attn_worker_hello hello;
    static char line[ATTN_CASE_TEXT + 64];
    struct attn_error err = {0};
    struct rlimit no_core = {0, 0};
    int forks[2];
    home = getpid();
    setrlimit(RLIMIT_CORE, &no_core);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a worker that hangs must not outlive its host */
    close_inherited();
    FILE *requests = fdopen(ATTN_WORKER_REQUESTS, "r");
    if (requests == NULL)
        return ATTN_PROCESS_LACKS;
    catch_faults();
    (void)!attn_pipe(forks);
    enum attn_status status = attn_plugin_load(path, &plugin, &err);
    if (getpid() == home)
        await_forks(forks);
    if (status != ATTN_OK)
        return status != ATTN_ENOMEM &&
                       send_message(ATTN_WORKER_SORRY, err.text, sizeof err.text) == 0
                   ? 0
                   : ATTN_PROCESS_LACKS;
    plugin.tell = tell;
    hello.claims = plugin.claims;
    memcpy(hello.load_environment, plugin.load_environment, sizeof hello.load_environment);
    if (send_message(ATTN_WORKER_HELLO, &hello, sizeof hello) != 0)
        return ATTN_PROCESS_LACKS;
    while (fgets(line, sizeof line, requests) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (answer(line) != 0)
            _exit(ATTN_PROCESS_LACKS);
    }
    _exit(0); /* what an external implementation's destructors do is no verdict */
}
