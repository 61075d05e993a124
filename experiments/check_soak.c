/* See check_soak.h. */
#include "experiments/check_soak.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int attn_soak_is_bad(const struct attn_result *r)
{
    return r->verdict == ATTN_FAILED || r->verdict == ATTN_CRASH || r->verdict == ATTN_TIMEOUT;
}

void attn_soak_found(const struct attn_soak *soak, const struct attn_case *c,
                     const struct attn_case *large, int judged, const struct attn_result *r,
                     struct attn_verdicts *v)
{
    char text[ATTN_CASE_TEXT], found[ATTN_CASE_TEXT], again[ATTN_CASE_TEXT + 1400];
    char why[96] = "a random case";
    attn_case_print(large, found);
    attn_case_print(c, text);
    snprintf(again, sizeof again, "check %s --case '%s'", soak->route, text);
    if (judged > 0)
        snprintf(why, sizeof why, "a random case, made small in %d steps", judged);
    const struct attn_subject subject = {
        "soak", "found", text, "", why, again, judged > 0 ? found : NULL};
    attn_verdicts_add(v, &subject, r, 0);
}

static int fails(void *arg, const struct attn_case *c)
{
    const struct attn_soak *soak = arg;
    struct attn_result r;
    soak->judge(soak->arg, c, 0, &r);
    return attn_soak_is_bad(&r);
}

/* Shrink a failing case and file what is left of it. */
static void file_failure(const struct attn_soak *soak, const struct attn_case *found,
                         struct attn_verdicts *v)
{
    enum { BUDGET = 500 }; /* cases judged on the way: a second or two */
    struct attn_soak own = *soak;
    struct attn_soak_judge judge = {fails, &own};
    struct attn_case c = *found;
    struct attn_result r;
    int judged = attn_soak_shrink(&judge, BUDGET, &c);
    soak->judge(soak->arg, &c, 1, &r);
    attn_soak_found(soak, &c, found, judged, &r, v);
}

void attn_soak_sum(const struct attn_soak *soak, const struct attn_soak_count *count,
                   struct attn_verdicts *v)
{
    const int *n = count->verdict;
    struct attn_result r = {.verdict = n[ATTN_PASS] > 0 ? ATTN_PASS : ATTN_REFUSED};
    char text[240], again[1400];
    if (r.verdict != ATTN_PASS)
        snprintf(r.text, sizeof r.text, "no random case passed");
    snprintf(text, sizeof text,
             "%" PRIu64 " random cases of seed %" PRIu64
             ": %d pass, %d fail, %d refused, %d weak, %d that cannot be set up",
             count->cases, soak->seed, n[ATTN_PASS],
             n[ATTN_FAILED] + n[ATTN_CRASH] + n[ATTN_TIMEOUT], n[ATTN_REFUSED], n[ATTN_WEAK],
             n[ATTN_ERROR]);
    snprintf(again, sizeof again, "check %s --soak %g --seed %" PRIu64, soak->route, soak->seconds,
             soak->seed);
    const struct attn_subject subject = {"soak", "soak", text, "", "", again, NULL};
    attn_verdicts_add(v, &subject, &r, soak->seconds);
}

void attn_soak_run(const struct attn_soak *soak, struct attn_verdicts *v)
{
    enum { ENOUGH = 8 }; /* failures: more would be the same bug again */
    struct attn_soak_count count = {0};
    int found = 0;
    double start = now();
    for (; now() - start < soak->seconds && found < ENOUGH; count.cases++) {
        struct attn_case c;
        struct attn_result r;
        attn_soak_case(soak->seed, count.cases, &c);
        soak->judge(soak->arg, &c, 0, &r);
        count.verdict[r.verdict]++;
        if (attn_soak_is_bad(&r)) {
            file_failure(soak, &c, v);
            found++;
        }
    }
    attn_soak_sum(soak, &count, v);
}
