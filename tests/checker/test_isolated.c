/* Judging in a process of its own: what comes back when the judged code misbehaves. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/harness/subject/subject.h"
#include "tests/suites.h"

SUITE(isolated);

/* Results come back whole.  One that dies, hangs or leaves is named, and costs no other: another
 * child goes on. */
static void in_turn(void *arg, int i, struct attn_result *r)
{
    static int judged_here;
    memset(r, 0, sizeof *r);
    r->runs = ++judged_here;
    if (i == 1)
        raise(SIGSEGV);
    if (i == 3)
        for (;;)
            pause();
    if (i == 7)
        _exit(7);
    r->verdict = i == 5 ? ATTN_FAILED : ATTN_PASS;
    r->worst = *(double *)arg;
    r->output[ATTN_DK].name = attn_output_name(ATTN_DK);
}

TEST(one_costs_one)
{
    enum { N = 8 };
    static const enum attn_verdict verdict[N] = {ATTN_PASS, ATTN_CRASH,  ATTN_PASS, ATTN_TIMEOUT,
                                                 ATTN_PASS, ATTN_FAILED, ATTN_PASS, ATTN_CRASH};
    static const int judged_here[N] = {1, 0, 1, 0, 1, 2, 1, 0};
    struct attn_answer answer[N];
    double worst = 0.625;
    attn_own_judge(&(struct attn_subject){.timeout_s = 5}, in_turn, &worst, N, answer);
    for (int i = 0; i < N; i++) {
        const struct attn_result *r = &answer[i].result;
        ck_assert_int_eq(r->verdict, verdict[i]);
        ck_assert_int_eq(r->runs, judged_here[i]);
        ck_assert(i == 3 ? answer[i].seconds >= 5 : answer[i].seconds < answer[3].seconds);
        ck_assert(!judged_here[i] || r->worst == worst);
        ck_assert(!judged_here[i] || strcmp(r->output[ATTN_DK].name, "dk") == 0);
    }
#ifndef __SANITIZE_ADDRESS__ /* which turns a signal into an exit status of its own */
    ck_assert_ptr_nonnull(strstr(answer[1].result.text, "signal 11"));
#endif
    ck_assert_ptr_nonnull(strstr(answer[3].result.text, "5 s"));
    ck_assert_ptr_nonnull(strstr(answer[7].result.text, "status 7"));
}
