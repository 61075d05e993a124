/* Judging in a process of its own: what comes back when the judged code misbehaves. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/harness/isolated.h"
#include "tests/suites.h"

SUITE(isolated, .seconds = 30);

static void crashes(void *arg, int i, struct attn_result *r)
{
    (void)arg, (void)i, (void)r;
    raise(SIGSEGV);
}

static void hangs(void *arg, int i, struct attn_result *r)
{
    (void)arg, (void)i, (void)r;
    for (;;)
        pause();
}

static void leaves(void *arg, int i, struct attn_result *r)
{
    (void)arg, (void)i, (void)r;
    _exit(7);
}

TEST(misbehaviour_is_a_verdict)
{
    struct attn_result r;
    attn_isolated(crashes, NULL, 1, 10, &r, NULL);
    ck_assert_int_eq(r.verdict, ATTN_CRASH);
#ifndef __SANITIZE_ADDRESS__ /* which turns a signal into an exit status of its own */
    ck_assert_ptr_nonnull(strstr(r.text, "signal 11"));
#endif
    attn_isolated(hangs, NULL, 1, 0.2, &r, NULL);
    ck_assert_int_eq(r.verdict, ATTN_TIMEOUT);
    ck_assert_ptr_nonnull(strstr(r.text, "0.2 s"));
    attn_isolated(leaves, NULL, 1, 10, &r, NULL);
    ck_assert_int_eq(r.verdict, ATTN_CRASH);
    ck_assert_ptr_nonnull(strstr(r.text, "status 7"));
}

/* Results come back whole.  One that dies or fails costs no other: another child goes on. */
static void in_turn(void *arg, int i, struct attn_result *r)
{
    static int judged_here;
    memset(r, 0, sizeof *r);
    r->runs = ++judged_here;
    if (i == 1)
        raise(SIGKILL);
    if (i == 3)
        for (;;)
            pause();
    r->verdict = i == 5 ? ATTN_FAILED : ATTN_PASS;
    r->worst = *(double *)arg;
    r->output[ATTN_DK].name = attn_output_name(ATTN_DK);
}

TEST(one_costs_one)
{
    static const enum attn_verdict verdict[] = {ATTN_PASS, ATTN_CRASH,  ATTN_PASS, ATTN_TIMEOUT,
                                                ATTN_PASS, ATTN_FAILED, ATTN_PASS};
    static const int judged_here[] = {1, 0, 1, 0, 1, 2, 1};
    struct attn_result r[7];
    double took[7], worst = 0.625;
    attn_isolated(in_turn, &worst, 7, 0.3, r, took);
    for (int i = 0; i < 7; i++) {
        ck_assert_int_eq(r[i].verdict, verdict[i]);
        ck_assert_int_eq(r[i].runs, judged_here[i]);
        ck_assert(i == 3 ? took[i] > 0.2 : took[i] < 0.2);
        ck_assert(!judged_here[i] || r[i].worst == worst);
        ck_assert(!judged_here[i] || strcmp(r[i].output[ATTN_DK].name, "dk") == 0);
    }
}
