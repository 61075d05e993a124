/* See isolated.h.  The results are in memory that parent and child share: what they point to (names
 * of outputs) is static, and stands at the same address in both. */
#include "tests/harness/subject/isolated.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>

#include "ref/clock.h"
#include "tests/harness/base/process.h"

struct judgements {
    void (*judge)(void *arg, int i, struct attn_result *result);
    void *arg;
    int n, done;
    int stops;      /* the child ended by its own will: see work() */
    double seconds; /* for each; 0: no limit                       */
    struct attn_answer answer[];
};

/* The child sets itself a limit for each: SIGALRM ends it.  Cases after a bad result
 * are judged in another process, for that one may have left anything behind. */
static void work(void *arg)
{
    struct judgements *shared = arg;
    const double limit = shared->seconds;
    const struct itimerval timer = {.it_value = {(time_t)limit, (long)(fmod(limit, 1) * 1e6)}};
    signal(SIGALRM, SIG_DFL);
    shared->stops = 0;
    while (shared->done < shared->n && !shared->stops) {
        struct attn_answer *x = &shared->answer[shared->done];
        double start = attn_seconds(CLOCK_MONOTONIC);
        setitimer(ITIMER_REAL, &timer, NULL);
        shared->judge(shared->arg, shared->done, &x->result);
        x->seconds = attn_seconds(CLOCK_MONOTONIC) - start;
        shared->done++;
        shared->stops = attn_result_is_bad(&x->result);
    }
}

/* The result of a child that brought none. */
static void explain(const struct attn_process *p, double seconds, struct attn_result *r)
{
    int lacks = p->exit_status == ATTN_PROCESS_LACKS, timed_out = p->signal == SIGALRM;
    memset(r, 0, sizeof *r);
    r->verdict = timed_out ? ATTN_TIMEOUT : lacks ? ATTN_ERROR : ATTN_CRASH;
    r->lacks_memory = lacks;
    if (timed_out)
        snprintf(r->text, sizeof r->text, "did not end within %g s", seconds);
    else if (p->signal != 0)
        snprintf(r->text, sizeof r->text, "ended by signal %d (%s)", p->signal,
                 strsignal(p->signal));
    else if (lacks)
        snprintf(r->text, sizeof r->text, "no memory or no threads to judge with");
    else
        snprintf(r->text, sizeof r->text, "left with exit status %d and no result", p->exit_status);
}

void attn_isolated(void (*judge)(void *arg, int i, struct attn_result *r), void *arg, int n,
                   double seconds, struct attn_answer *answer)
{
    struct attn_process p = {0};
    size_t size = sizeof(struct judgements) + (size_t)n * sizeof *answer;
    struct judgements *shared = attn_process_share(size);
    int i = 0, started = shared != NULL;
    memset(answer, 0, (size_t)n * sizeof *answer);
    if (started)
        *shared = (struct judgements){judge, arg, n, 0, 0, seconds};
    while (i < n && started) {
        double start = attn_seconds(CLOCK_MONOTONIC);
        started = attn_process_fork(work, shared, (double)INFINITY, &p) == 0;
        for (; i < shared->done && started; i++) {
            answer[i] = shared->answer[i];
            start += answer[i].seconds;
        }
        if (i == n || !started)
            break;
        if (shared->stops)
            continue;
        explain(&p, seconds, &answer[i].result);
        answer[i].seconds = attn_seconds(CLOCK_MONOTONIC) - start;
        shared->done = ++i;
    }
    for (int error = errno; i < n; i++) {
        char text[160];
        snprintf(text, sizeof text, "no process to judge in: %s", strerror(error));
        attn_result_error(&answer[i].result, ATTN_ENOMEM, text);
    }
    if (shared != NULL)
        munmap(shared, size);
}

void attn_in_place(void (*judge)(void *arg, int i, struct attn_result *r), void *arg, int n,
                   struct attn_answer *answer)
{
    for (int i = 0; i < n; i++) {
        double start = attn_seconds(CLOCK_MONOTONIC);
        memset(&answer[i], 0, sizeof answer[i]);
        judge(arg, i, &answer[i].result);
        answer[i].seconds = attn_seconds(CLOCK_MONOTONIC) - start;
    }
}
