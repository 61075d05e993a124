/* Memory that runs out, at every point where it can: the status is ENOMEM with a message, nothing
 * leaks, no process crashes or waits for ever, and the next run is as good as the first. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/problem.h"
#include "tests/fixtures/fibers.h"
#include "tests/fixtures/memory_data.h"
#include "tests/suites.h"
#include "tests/wrap.h"

SUITE(memory);

static const char *const cases[] = {
    "b2h4g4q8k12d4v3:causal(br):f32:normal:s1:pass=bwd",
    "h4q8k8d4:none:f64:normal:s2:pass=bwd:dlse=1",
    "b2h4q8k8d4:keys(bk50)&window(3,2,br):f32:normal:s3:pass=bwd:softcap=5:bias=alibi",
    "b2h2q4k4d2:causal(tl):f64:normal:s4:pass=bwd:bias=full:dbias=1"};

struct trial {
    const struct attn_spec *spec;
    struct attn_setup *setup;
    enum attn_pass pass;
    char what[256];
};

/* Run; after a failure everything must be back in place, without attn_ledger_clear. */
static enum attn_status run(const struct trial *t, int64_t limit, int64_t *peak)
{
    struct attn_ledger ledger;
    struct attn_error err = {0};
    attn_ledger_init(&ledger, NULL);
    ledger.limit = limit;
    enum attn_status status = memory_run(t->spec, t->setup, t->pass, &ledger, NULL, &err);
    ck_assert_msg(status == ATTN_OK || status == ATTN_ENOMEM || status == ATTN_ENOTSUP,
                  "%s: %s: %s", t->what, attn_status_name(status), err.text);
    if (status == ATTN_ENOMEM) {
        ck_assert_int_eq(err.status, ATTN_ENOMEM);
        ck_assert_msg(strstr(err.text, "no memory for buffer '") != NULL, "%s: '%s'", t->what,
                      err.text);
    }
    ck_assert_msg(ledger.now == 0, "%s: %lld bytes leaked", t->what, (long long)ledger.now);
    ck_assert_int_eq(attn_ledger_clear(&ledger), 0);
    ck_assert_int_eq(ledger.damaged, 0);
    if (peak != NULL)
        *peak = ledger.peak;
    return status;
}

/* The k-th take fails, for every k there is: in ledgers of ranks as well as in the caller's. */
static void fail_each_take(const struct trial *t, uint64_t digest)
{
    int64_t k = 0;
    for (;; k++) {
        ck_assert_int_lt(k, 10000);
        wrap_fail_take(k);
        enum attn_status status = run(t, -1, NULL);
        int64_t takes = wrap_takes();
        wrap_fail_take(-1);
        if (status == ATTN_OK) {
            ck_assert_msg(takes <= k, "%s: take %lld failed and the run did not", t->what,
                          (long long)k);
            break;
        }
        ck_assert_int_eq(status, ATTN_ENOMEM);
        ck_assert_int_gt(takes, k);
    }
    ck_assert_msg(k >= 2, "%s: only %lld takes", t->what, (long long)k);
    ck_assert_msg(attn_setup_digest(t->setup, NULL, t->pass) == digest,
                  "%s: another result after failures", t->what);
}

/* Less than the peak is not enough for one process, the peak is.  Ranks share the limit, and
 * what they hold at one time depends on chance; without any memory none of them succeeds. */
static void fail_by_limit(const struct trial *t, int64_t peak)
{
    enum { STEPS = 8 };
    for (int64_t n = 0; n < STEPS; n++) {
        enum attn_status status = run(t, peak * n / STEPS, NULL);
        ck_assert_msg(status == ATTN_ENOMEM || (n > 0 && t->spec->impl->ranks != NULL),
                      "%s: %lld of %lld bytes sufficed", t->what, (long long)(peak * n / STEPS),
                      (long long)peak);
    }
    if (t->spec->impl->ranks == NULL) {
        ck_assert_int_eq(run(t, peak - 1, NULL), ATTN_ENOMEM);
        ck_assert_int_eq(run(t, peak, NULL), ATTN_OK);
    } else
        ck_assert_int_eq(run(t, 1 << 30, NULL), ATTN_OK);
}

TEST_EACH(every_take_may_fail, memory_specs(NULL))
{
    struct attn_spec list[MEMORY_SPECS];
    char name[128];
    int accepted = 0;
    ck_assert_int_le(memory_specs(list), MEMORY_SPECS);
    attn_spec_print(&list[_i], name, sizeof name);
    for (int c = 0; c < COUNT(cases); c++) {
        struct attn_setup s;
        setup_of(cases[c], &s);
        if (c > 0 && attn_ranks(list[_i].impl, &list[_i].options) <= FIBERS)
            fibers_on(); /* in the first case ranks are threads, which might wait for ever */
        for (int pass = ATTN_FORWARD; pass <= ATTN_BACKWARD; pass++) {
            struct trial t = {&list[_i], &s, (enum attn_pass)pass, ""};
            int64_t peak;
            snprintf(t.what, sizeof t.what, "%s %s %s", name, cases[c], attn_pass_name(t.pass));
            enum attn_status status = run(&t, -1, &peak);
            if (status == ATTN_ENOTSUP)
                break;
            ck_assert_int_eq(status, ATTN_OK);
            fail_each_take(&t, attn_setup_digest(&s, NULL, t.pass));
            fail_by_limit(&t, peak);
            accepted++;
        }
        fibers_off();
        attn_setup_close(&s);
    }
    ck_assert_msg(accepted >= 4, "%s accepted only %d passes", name, accepted);
}
