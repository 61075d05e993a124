/* Judging in a process of its own: what comes back when the judged code misbehaves. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/harness/isolated.h"
#include "tests/suites.h"

static void good(void *arg, struct attn_result *r)
{
    memset(r, 0, sizeof *r);
    r->verdict = ATTN_PASS;
    r->worst = *(double *)arg;
    r->output[ATTN_DK].name = attn_output_name(ATTN_DK);
}

static void crashes(void *arg, struct attn_result *r)
{
    (void)arg, (void)r;
    raise(SIGSEGV);
}

static void hangs(void *arg, struct attn_result *r)
{
    (void)arg, (void)r;
    for (;;)
        pause();
}

static void leaves(void *arg, struct attn_result *r)
{
    (void)arg, (void)r;
    _exit(7);
}

START_TEST(results_come_back_whole)
{
    double worst = 0.625;
    struct attn_result r;
    attn_isolated(good, &worst, 10, &r);
    ck_assert_int_eq(r.verdict, ATTN_PASS);
    ck_assert(r.worst == worst);
    ck_assert_str_eq(r.output[ATTN_DK].name, "dk");
}
END_TEST

START_TEST(misbehaviour_is_a_verdict)
{
    struct attn_result r;
    attn_isolated(crashes, NULL, 10, &r);
    ck_assert_int_eq(r.verdict, ATTN_CRASH);
#ifndef __SANITIZE_ADDRESS__ /* which turns a signal into an exit status of its own */
    ck_assert_ptr_nonnull(strstr(r.text, "signal 11"));
#endif
    attn_isolated(hangs, NULL, 0.2, &r);
    ck_assert_int_eq(r.verdict, ATTN_TIMEOUT);
    ck_assert_ptr_nonnull(strstr(r.text, "0.2 s"));
    attn_isolated(leaves, NULL, 10, &r);
    ck_assert_int_eq(r.verdict, ATTN_CRASH);
    ck_assert_ptr_nonnull(strstr(r.text, "status 7"));
}
END_TEST

Suite *suite_isolated(void)
{
    Suite *suite = suite_create("isolated");
    TCase *cases = tcase_create("apart");
    tcase_set_timeout(cases, 30);
    tcase_add_test(cases, results_come_back_whole);
    tcase_add_test(cases, misbehaviour_is_a_verdict);
    suite_add_tcase(suite, cases);
    return suite;
}
