/* The naive example, misbehaving as switches.h says: each must cost its author a verdict, and
 * the checker nothing.  Most begin to in calls of 97 keys; with FROM=n, of n keys and more. */
#undef attn_plugin_get /* so far it was naive_get: the example is included by the Makefile */

#include <fenv.h>
#include <signal.h>
#include <unistd.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "tests/external/switches.h"

static int is_chosen(const struct attn_plugin_call *t)
{
    int from = switch_number("FROM", 0);
    return from > 0 ? t->n_key >= from : t->n_key == 97;
}

static volatile int depth;

static int overflow_the_stack(int n)
{
    volatile char page[4096];
    page[n % 4096] = (char)n;
    depth = n;
    return overflow_the_stack(n + 1) + page[(n + 1) % 4096];
}

/* To whatever is open for writing, the pipe of its host among it. */
static void put_on_pipes(const void *data, size_t n)
{
    for (int fd = 3; fd < 64; fd++)
        (void)!write(fd, data, n);
}

__attribute__((constructor)) static void start(void)
{
    if (is_on("BAD_START"))
        raise(SIGSEGV);
    while (is_on("SLOW_START"))
        usleep(1000);
    if (is_on("QUIT_START"))
        _exit(0);
    if (is_on("FORK_START") && fork() == 0)
        usleep(100000);
    if (is_on("RUBBISH_START"))
        put_on_pipes("hello", 5);
#if defined(__SSE__)
    if (is_on("FLUSH")) /* to zero; and after each call it rounds upward */
        _mm_setcsr(_mm_getcsr() | 0x8040);
#endif
}

/* Megabytes on both outputs, what a process that measures says among them. */
static void chatter(void)
{
    for (int n = 0; n < 20000; n++) {
        printf("{\"schema\":2,\"record\":\"point\",\"status\":\"ok\"}\n");
        fprintf(stderr, "\x1b[31mand this one\r");
    }
    fflush(stdout);
}

/* One process in two, of which the second one may be late; or one that stays in a session of its
 * own: its number goes to the file $BAD_DAEMON. */
static void fork_off(void)
{
    static int daemons;
    const char *path = switch_text("BAD_DAEMON");
    if (is_on("FORK") || is_on("FORK_LATE")) {
        pid_t child = fork();
        usleep((child == 0) == is_on("FORK_LATE") ? 100000 : 0);
    }
    if (!is_on("DAEMON") || daemons++ > 0 || path == NULL || fork() != 0)
        return;
    setsid();
    if (fork() != 0)
        _exit(0);
    FILE *file = fopen(path, "w");
    fprintf(file, "%d\n", (int)getpid());
    fclose(file);
    sleep(1000);
    _exit(0);
}

/* Attacks the grader: a file that is not its own ($BAD_VICTIM), the process that started this
 * one. */
static void attack(void)
{
    const char *victim = switch_text("BAD_VICTIM");
    if (is_on("REMOVE") && victim != NULL)
        unlink(victim);
    FILE *file = is_on("SCRIBBLE") && victim != NULL ? fopen(victim, "w") : NULL;
    if (file != NULL)
        fputs("100 of 100\n", file);
    if (file != NULL)
        fclose(file);
    const pid_t parent = getppid();
    if (is_on("KILL_PARENT"))
        kill(parent, SIGKILL);
    while (is_on("KILL_PARENT") && getppid() == parent)
        usleep(100); /* an answer could come before that end; this process ends with its parent */
}

/* Ends it, or never does. */
static int end(void)
{
    if (is_on("CRASH"))
        *(volatile int *)8 = 1;
    if (is_on("KILLED")) { /* as by a crash; a sanitizer would turn that into an exit */
        signal(SIGSEGV, SIG_DFL);
        raise(SIGSEGV);
    }
    while (is_on("HANG"))
        usleep(1000);
    if (is_on("LEAVE"))
        exit(3);
    if (is_on("QUIT"))
        _exit(0);
    if (is_on("ABORTS"))
        abort();
    return is_on("DEEP") ? overflow_the_stack(0) : 0;
}

/* Results that are wrong: always, in one call of a thousand, after the first calls of a process;
 * written where they should not be; other last bits in every second call. */
static void spoil(const struct attn_plugin_call *t)
{
    static int calls, due;
    int64_t n = t->batch * t->heads * t->n_query * t->d_value;
    float *o = t->o.data, *lse = t->lse.data;
    calls++;
    due |= is_on("RACE") && calls % 1000 == 0;
    due |= (is_on("STALE") && calls > 40) || (is_on("WRONG") && is_chosen(t));
    if (due && n > 0) {
        o[n - 1] += 1;
        due = 0;
    }
    if (is_on("UNSTEADY") && calls % 2 == 0 && n > 0)
        lse[0] = nextafterf(lse[0], INFINITY);
    if (is_on("CHANGE"))
        ((float *)(uintptr_t)t->k.data)[0] += 1;
    if (is_on("WRITE_NEAR") && is_chosen(t))
        o[n] = 1;
    if (is_on("WRITE_FAR") && is_chosen(t))
        o[n + 1024] = 1;
}

/* From the fortieth call on, or where it is chosen; with a reason or without one. */
static int refuses(const struct attn_plugin_call *t)
{
    static int calls;
    if (!(is_on("TIRED") && ++calls > 40) && !(is_on("REFUSE") && is_chosen(t)))
        return 0;
    if (!is_on("MUTE"))
        snprintf(t->message, t->message_size, "no kernel for %d keys\x1b", (int)t->n_key);
    return 1;
}

static void *volatile lost; /* a compiler may leave out a store that is never read */

static int misbehave(const struct attn_plugin_call *t)
{
    struct attn_plugin_call less = *t;
    enum { EXTRA = 64 << 20 };
    volatile char *extra = is_on("EXTRA") && is_chosen(t) ? malloc(EXTRA) : NULL;
    for (int at = 0; extra != NULL && at < EXTRA; at += 1024)
        extra[at] = 1; /* each page; a memset would be optimised away */
    while (is_on("HANG_ALL"))
        usleep(1000);
    less.n_query -= is_on("UNWRITTEN") && t->batch * t->heads == 1 && t->n_query > 1;
    int status = forward(&less);
    free((void *)(uintptr_t)extra);
    spoil(t);
    if (refuses(t))
        return ATTN_PLUGIN_REFUSED;
    if (is_on("LEAK"))
        lost = malloc(1000);
    if (is_on("FLUSH"))
        fesetround(FE_UPWARD);
    for (int fd = 0; is_on("CLOSER") && fd < 64; fd++)
        close(fd);
    attack();
    if (is_on("DAEMON") || is_chosen(t))
        fork_off();
    if (!is_chosen(t))
        return status;
    if (is_on("RUBBISH"))
        put_on_pipes("hello", 5);
    if (is_on("CHATTER"))
        chatter();
    if (is_on("SLEEP"))
        usleep(50000);
    if (is_on("SAYS_NO")) {
        snprintf(t->message, t->message_size, "%d keys are too many\nfor me", (int)t->n_key);
        return 7;
    }
    return end() != 0 ? 1 : status;
}

/* One rank of four: it does what it should not, and leaves its outputs as they are. */
static int misbehaving_rank(const struct attn_plugin_rank *r)
{
    static float here[4][2];
    const struct attn_plugin_message send = {(r->rank + 1) % r->ranks, ATTN_PLUGIN_OF_K, 0,
                                             &here[r->rank][0], 4};
    const struct attn_plugin_message receive = {(r->rank + 3) % r->ranks, ATTN_PLUGIN_OF_K, 0,
                                                &here[r->rank][1], 4};
    int is_first = r->rank == 0;
    int post = r->post(r, &send, !(is_on("SKIPS_A_HOP") && is_first), &receive, 1);
    if (is_on("PAST_ITS_PART")) /* blocks of a ledger are multiples of 64 bytes */
        ((float *)r->call->lse
             .data)[(r->call->batch * r->call->heads * r->call->n_query + 15) / 16 * 16] = 0;
    if (is_on("WAITS_TWICE") && r->wait(r, post) == 0)
        return r->wait(r, post) == 0 ? ATTN_PLUGIN_OK : ATTN_PLUGIN_FAILED;
    return is_on("DOES_NOT_WAIT") || r->wait(r, post) == 0 ? ATTN_PLUGIN_OK : ATTN_PLUGIN_FAILED;
}

const struct attn_plugin *attn_plugin_get(void)
{
    static struct attn_plugin bad;
    bad = *naive_get();
    bad.name = "bad";
    bad.forward = is_on("NO_FORWARD") ? NULL : misbehave;
    bad.abi += is_on("OLD_ABI") ? 6 : 0;
    if (is_on("OVERCLAIM"))
        bad.claims = ATTN_CAP_F32 | ATTN_CAP_DBIAS;  /* no case has it without BIAS */
    bad.claims |= is_on("ODD_CLAIM") ? 1u << 30 : 0; /* there is no such bit */
    bad.ranks = is_on("RANKS") ? 4 : 0;
    bad.rank_forward = is_on("NO_FORWARD") ? NULL : misbehaving_rank;
    bad.layout = is_on("BLHD") ? ATTN_PLUGIN_BLHD : ATTN_PLUGIN_BHLD;
    return is_on("NOTHING") ? NULL : &bad;
}
