/* The other side of plugin_host.h: load, call, answer; and a last word when it is killed. */
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/harness/base/pages.h"
#include "tests/harness/base/process.h"
#include "tests/harness/subject/plugin_host.h"

/* One process, one plug-in: handlers have no argument. */
static struct attn_plugin_impl plugin;
static struct attn_plugin_shared *shared;
static pid_t home; /* this process, and none that the plug-in forked from it */
static int is_sealed;
static volatile int is_calling;

/* ---- access to the tensors ----------------------------------------------------------------- */

/* As the host allows it, or none. */
static void open_blocks(int is_open)
{
    const struct attn_pages_shared *pages = attn_pages_shared();
    if (!is_open)
        mprotect(pages->all, pages->bytes, PROT_NONE);
    for (int n = 0; n < pages->n && is_open; n++)
        mprotect(pages->block[n].at, pages->block[n].bytes, pages->block[n].how);
}

/* Of ranks: while they run the whole tensors are not to be read.  Masks are. */
static void seal(void *arg, int sealed)
{
    const struct attn_pages_shared *pages = attn_pages_shared();
    (void)arg;
    is_sealed = sealed;
    for (int n = 0; n < pages->n; n++) {
        const struct attn_pages_block *block = &pages->block[n];
        if (block->how != PROT_READ || block->is_guarded)
            mprotect(block->at, block->bytes, sealed ? PROT_NONE : block->how);
    }
}

/* A write to an input: it is noted, and the instruction tried again. */
static int lets_go_on(void *at)
{
    const struct attn_pages_shared *pages = attn_pages_shared();
    for (int n = 0; n < pages->n && !is_sealed; n++) {
        const struct attn_pages_block *block = &pages->block[n];
        if (!block->is_guarded || (unsigned char *)at < block->at ||
            (unsigned char *)at >= block->at + block->bytes)
            continue;
        if (shared->hit == NULL)
            shared->hit = at;
        return mprotect(block->at, block->bytes, PROT_READ | PROT_WRITE) == 0;
    }
    return 0;
}

/* ---- a last word --------------------------------------------------------------------------- */

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
                {"dk", &call->dk},     {"dv", &call->dv},      {"dbias", &call->dbias},
                {"sink", &call->sink}, {"dsink", &call->dsink}};
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

static void on_fault(int number, siginfo_t *info, void *context)
{
    const int is_access = number == SIGSEGV || number == SIGBUS;
    (void)context;
    if (is_access && lets_go_on(info->si_addr))
        return;
    if (is_access && is_calling && getpid() == home)
        locate(&shared->call, (uintptr_t)info->si_addr, shared->fault, sizeof shared->fault);
    signal(number, SIG_DFL);
    raise(number);
}

/* On a stack of its own: the usual one may be what overflowed.  The tiles of AMX are 8 KiB of what
 * the kernel saves there, and it refuses them to a process whose signal stacks are too small. */
static void catch_faults(void)
{
    static unsigned char stack[1 << 16];
    static const int fatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaltstack(&own, NULL);
    for (size_t n = 0; n < sizeof fatal / sizeof *fatal; n++)
        sigaction(fatal[n], &action, NULL);
}

/* As a program finds it that was just started: handlers of ours are none of its. */
static void forget_signals(void)
{
    static const int ours[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ, SIGXCPU};
    for (size_t n = 0; n < sizeof ours / sizeof *ours; n++)
        signal(ours[n], SIG_DFL);
}

/* Before what the host does at its end: how a plug-in leaves is its own affair. */
static void leave(int status, void *unused)
{
    (void)unused;
    fflush(NULL);
    _exit(status);
}

/* ---- calls ----------------------------------------------------------------------------------- */

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

/* malloc gives bytes of 0x3a, or memory as it comes. */
static void perturb(int is_clean)
{
    static int was_clean = 1;
    if (is_clean != was_clean)
        mallopt(M_PERTURB, is_clean ? 0 : 0xc5);
    was_clean = is_clean;
}

static void call(void)
{
    const struct attn_seal ranks = {seal, NULL};
    plugin.notes = shared->notes;
    open_blocks(1);
    perturb(shared->is_clean);
    is_calling = 1;
    shared->returned = attn_plugin_call(&plugin, shared->pass, &ranks, &shared->call);
    is_calling = 0;
    perturb(1);
    open_blocks(0);
    shared->notes = plugin.notes;
    measure(shared->taken);
}

/* A process that was forked by the plug-in, and is back in our code, leaves. */
static void answer(int answers)
{
    if (getpid() != home)
        _exit(0);
    shared->answered = shared->asked;
    if (!attn_pipe_write(answers, "", 1))
        _exit(ATTN_PROCESS_LACKS);
}

void attn_plugin_serve(const char *path, struct attn_plugin_shared *with, int requests, int answers)
{
    const struct rlimit no_core = {0, 0};
    struct attn_error err = {0};
    char byte;
    shared = with;
    home = shared->pid = getpid();
    setpgid(0, 0);
    setrlimit(RLIMIT_CORE, &no_core);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* one that hangs must not outlive its host */
    /* grade looks at its resident memory, which pages of 2 MiB would round */
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    forget_signals();
    catch_faults();
    on_exit(leave, NULL);
    shared->status = attn_plugin_load(path, &plugin, &err);
    snprintf(shared->text, sizeof shared->text, "%.599s", err.text);
    shared->claims = plugin.claims;
    memcpy(shared->load_environment, plugin.load_environment, sizeof shared->load_environment);
    answer(answers);
    while (attn_pipe_read(requests, &byte, 1)) {
        if (shared->answered == shared->asked)
            continue; /* put for one that was lost */
        call();
        answer(answers);
    }
    _exit(0); /* what its destructors do is no verdict */
}
