/* The route of our own specs (subject.h): cases and relations, judged in forks, so that code that
 * crashes or never ends costs one verdict and not the battery; where these are ranks of MPI, here.
 *
 * Cases are the outer loop and specs the inner one: what the oracle says of a case is worked out
 * once, for all specs that are asked it together. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>

#include "ref/clock.h"
#include "tests/harness/base/process.h"
#include "tests/harness/diagnosis/diagnose.h"
#include "tests/harness/relations/relations.h"
#include "tests/harness/subject/subject.h"

/* ---- in a fork ------------------------------------------------------------------------------- */

/* In memory that parent and child share: what results point to (names of outputs) is static, and
 * stands at the same address in both. */
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

static void judge_apart(void (*judge)(void *arg, int i, struct attn_result *r), void *arg, int n,
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

static void judge_here(void (*judge)(void *arg, int i, struct attn_result *r), void *arg, int n,
                       struct attn_answer *answer)
{
    for (int i = 0; i < n; i++) {
        double start = attn_seconds(CLOCK_MONOTONIC);
        memset(&answer[i], 0, sizeof answer[i]);
        judge(arg, i, &answer[i].result);
        answer[i].seconds = attn_seconds(CLOCK_MONOTONIC) - start;
    }
}

void attn_own_judge(const struct attn_subject *x,
                    void (*judge)(void *arg, int i, struct attn_result *r), void *arg, int n,
                    struct attn_answer *answer)
{
    if (x->is_in_place)
        judge_here(judge, arg, n, answer);
    else
        judge_apart(judge, arg, n, x->timeout_s, answer);
}

/* ---- cases and relations --------------------------------------------------------------------- */

/* Each case for all of these specs, then the next. */
struct round {
    const struct attn_subject *x; /* the first of them */
    int n;
    const struct attn_asked *asked;
    struct attn_setup setup;
    const struct attn_asked *open; /* the case that is set up, or NULL */
};

static enum attn_status open_case(struct round *round, const struct attn_asked *asked,
                                  struct attn_error *err)
{
    if (round->open == asked)
        return ATTN_OK;
    if (round->open != NULL)
        attn_setup_close(&round->setup);
    round->open = NULL;
    enum attn_status status = attn_setup_open(&asked->c, &round->setup, err);
    if (status != ATTN_OK)
        return status;
    if (round->n > 1)
        attn_setup_keep(&round->setup);
    round->open = asked;
    return ATTN_OK;
}

static void judge_case(void *arg, int i, struct attn_result *r)
{
    struct round *round = arg;
    const struct attn_subject *x = round->x;
    const struct attn_asked *asked = &round->asked[i / round->n];
    struct attn_error err = {0};
    enum attn_status status = open_case(round, asked, &err);
    for (int n = i % round->n; n > 0; n--)
        x = x->next;
    struct attn_repetition how = x->how;
    how.same_bits = 1;
    if (status != ATTN_OK) {
        attn_result_error(r, status, err.text);
        return;
    }
    attn_run_setup(&x->spec, &round->setup, &how, r);
    if (x->diagnoses && r->verdict == ATTN_FAILED)
        attn_diagnose_case(&x->spec, NULL, &asked->c, r, &r->diagnosis);
}

/* A relation of one spec. */
struct related {
    const struct attn_subject *x;
    const struct attn_relation *relation;
};

static void judge_relation(void *arg, int i, struct attn_result *r)
{
    const struct related *related = arg;
    (void)i;
    attn_relation_run(related->relation, &related->x->spec, NULL, r);
}

static enum attn_status ask(struct attn_subject *x, struct attn_asked *asked, int n,
                            struct attn_answer *answer, struct attn_error *err)
{
    struct round round = {.x = x, .asked = asked};
    (void)err;
    for (const struct attn_subject *one = x; one != NULL; one = one->next)
        round.n++;
    attn_own_judge(x, judge_case, &round, round.n * n, answer);
    if (round.open != NULL) /* it was judged here */
        attn_setup_close(&round.setup);
    return ATTN_OK;
}

static void relation(struct attn_subject *x, const struct attn_relation *asked,
                     struct attn_answer *answer)
{
    struct related related = {x, asked};
    attn_own_judge(x, judge_relation, &related, 1, answer);
}

static enum attn_status open_nothing(struct attn_subject *x, struct attn_error *err)
{
    (void)x, (void)err;
    return ATTN_OK;
}

static void close_nothing(struct attn_subject *x)
{
    (void)x;
}

static enum attn_status load(struct attn_subject *x, struct attn_error *err)
{
    return attn_spec_parse(x->source, &x->spec, err);
}

const struct attn_subject_route attn_own_route = {.word = "implementation of attnlab",
                                                  .flag = "",
                                                  .route = ATTN_ROUTE_OWN,
                                                  .says_claims = 1,
                                                  .at_once = 16,
                                                  .soak_calls = 4, /* threads have own tests */
                                                  .open = open_nothing,
                                                  .ask = ask,
                                                  .close = close_nothing,
                                                  .relation = relation,
                                                  .load = load};
