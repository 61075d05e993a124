/* The naive example, misbehaving as BAD says.  Each must cost its author a verdict, and the checker
 * nothing.  Built after the example, in one file with it:
 *
 *      cc -DBAD=CRASH -Dattn_plugin_get=naive_get -include docs/examples/plugin_naive.c ...
 */
#undef attn_plugin_get

#include <fenv.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#define CRASH      1  /* in some cases, reads address 8                    */
#define HANG       2  /* in some cases, never returns                      */
#define WRITE_NEAR 3  /* one element past the end of o                     */
#define WRITE_FAR  4  /* a page past it                                    */
#define CHANGE     5  /* writes into k                                     */
#define UNWRITTEN  6  /* leaves the last row                               */
#define LEAK       7  /* 1000 bytes a call                                 */
#define FLUSH      8  /* flush-to-zero when loaded, upward rounding after  */
#define LEAVE      9  /* exit(3) in some cases                             */
#define CHATTER    10 /* megabytes on both outputs                         */
#define OLD_ABI    11
#define NO_SYMBOL  12
#define NOTHING    13 /* attn_plugin_get returns NULL                      */
#define ODD_CLAIM  14 /* a bit that does not exist                         */
#define BAD_START  15 /* crashes while it is loaded                        */
#define SLOW_START 16
#define SAYS_NO    17 /* returns an error and says why                     */
#define DEEP       18 /* overflows the stack                               */
#define CLOSER     19 /* closes every descriptor                           */
#define OVERCLAIM  20 /* claims dbias without bias, which no case can exercise */
#define NO_FORWARD 21
#define ABORTS     22
#define UNSTEADY   23 /* other last bits in every second call               */
#define RACE       24 /* one element is wrong in one call of a thousand     */
#define FORK       25 /* in some cases forks, and the child goes on as well */
#define FORK_LATE  26 /* the same, and the child takes its time             */
#define DAEMON     27 /* leaves a process in a session of its own           */
#define HANG_ALL   28 /* never returns, in no case                          */
#define STALE      29 /* right in the first calls of a process, wrong later */

static int is_chosen(const struct attn_plugin_call *t)
{
    return t->n_key == 97;
}

static volatile int depth;

static int recurse(int n)
{
    volatile char page[4096];
    page[n % 4096] = (char)n;
    depth = n;
    return recurse(n + 1) + page[(n + 1) % 4096];
}

__attribute__((constructor)) static void start(void)
{
    if (BAD == BAD_START)
        raise(SIGSEGV);
    while (BAD == SLOW_START)
        usleep(1000);
#if defined(__SSE__)
    if (BAD == FLUSH)
        _mm_setcsr(_mm_getcsr() | 0x8040);
#endif
}

static void chatter(void)
{
    for (int n = 0; n < 20000; n++) {
        printf("this line is number %d of very many lines of no interest to anybody\n", n);
        fprintf(stderr, "\x1b[31mand this one\r");
    }
    fflush(stdout);
}

/* One process in two, or one that stays: its number goes to the file $BAD_DAEMON. */
static void fork_off(const struct attn_plugin_call *t)
{
    if ((BAD == FORK || BAD == FORK_LATE) && t->n_key == 97) {
        pid_t child = fork();
        usleep((child == 0) == (BAD == FORK_LATE) ? 100000 : 0);
    }
    static int daemons;
    const char *path = getenv("BAD_DAEMON");
    if (BAD != DAEMON || daemons++ > 0 || path == NULL || fork() != 0)
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

/* Wrong results that come and go. */
static void strike(const struct attn_plugin_call *t)
{
    static int calls, due;
    int64_t n = t->batch * t->heads * t->n_query * t->d_value;
    due |= BAD == RACE ? ++calls % 1000 == 0 : BAD == STALE && ++calls > 40;
    if (!due || n == 0)
        return;
    ((float *)t->o.data)[n - 1] += 1;
    due = 0;
}

static int misbehave(const struct attn_plugin_call *t)
{
    float *o = t->o.data;
    int64_t n = t->batch * t->heads * t->n_query * t->d_value;
    if (BAD == SAYS_NO && t->n_key == 97) {
        snprintf(t->message, t->message_size, "97 keys are too many\nfor me");
        return 7;
    }
    if (BAD == CHATTER && is_chosen(t))
        chatter();
    while (BAD == HANG_ALL)
        usleep(1000);
    int status = forward(t);
    fork_off(t);
    strike(t);
    if (BAD == CRASH && is_chosen(t))
        *(volatile int *)8 = 1;
    while (BAD == HANG && t->n_key == 97 && t->n_query == 10)
        usleep(1000);
    if (BAD == WRITE_NEAR)
        o[n] = 1;
    if (BAD == WRITE_FAR && t->n_key == 97)
        o[n + 1024] = 1;
    if (BAD == CHANGE)
        ((float *)(uintptr_t)t->k.data)[0] += 1;
    if (BAD == LEAK && malloc(1000) == NULL)
        return 1;
    static int calls;
    if (BAD == UNSTEADY && calls++ % 2 && n > 0)
        ((float *)t->lse.data)[0] = nextafterf(((float *)t->lse.data)[0], INFINITY);
    if (BAD == FLUSH)
        fesetround(FE_UPWARD);
    if (BAD == LEAVE && is_chosen(t))
        exit(3);
    if (BAD == ABORTS && is_chosen(t))
        abort();
    if (BAD == DEEP && is_chosen(t))
        return recurse(0);
    for (int fd = 0; BAD == CLOSER && fd < 64; fd++)
        close(fd);
    return status;
}

static int skip_last_row(const struct attn_plugin_call *t)
{
    struct attn_plugin_call less = *t;
    less.n_query -= t->batch * t->heads == 1 && t->n_query > 1;
    return forward(&less);
}

#if BAD != NO_SYMBOL
const struct attn_plugin *attn_plugin_get(void)
{
    static struct attn_plugin bad;
    bad = *naive_get();
    bad.name = "bad";
    bad.forward = BAD == NO_FORWARD ? NULL : BAD == UNWRITTEN ? skip_last_row : misbehave;
    bad.abi += BAD == OLD_ABI ? 6 : 0;
    bad.claims |= BAD == ODD_CLAIM ? 1u << 30 : BAD == OVERCLAIM ? ATTN_PLUGIN_DBIAS : 0;
    return BAD == NOTHING ? NULL : &bad;
}
#endif
