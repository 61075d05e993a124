/* See subject.h: how files are judged. */
#include "tests/harness/subject/subject.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ref/clock.h"
#include "tests/harness/diagnosis/diagnose.h"
#include "tests/harness/subject/rank_steps.h"
#include "tests/harness/subject/vector_files.h"

void attn_subject_one_file(const struct attn_subject *x, void (*see)(void *arg, const char *path),
                           void *arg)
{
    see(arg, x->source);
}

double attn_subject_left(const struct attn_subject *x)
{
    return x->until > 0 ? x->until - attn_seconds(CLOCK_MONOTONIC) : (double)INFINITY;
}

enum attn_status attn_subject_set_scheme(struct attn_subject *x, const char *scheme,
                                         struct attn_error *err)
{
    struct attn_spec spec;
    enum attn_status status = attn_spec_parse_priced(scheme, &spec, err);
    if (status != ATTN_OK)
        return status;
    snprintf(x->scheme, sizeof x->scheme, "%s", scheme);
    x->claims.ranks = attn_ranks(spec.impl, &spec.options);
    return ATTN_OK;
}

int attn_subject_done(const struct attn_subject *x, const char *results,
                      const struct attn_asked *asked)
{
    const int ranks = x->scheme[0] != '\0' ? x->claims.ranks : 0;
    char words[300], name[240];
    int done = ranks > 0 || attn_vector_files_done(results, asked->name, &x->claims, &asked->c);
    for (int r = 0; r < ranks && done; r++) {
        snprintf(name, sizeof name, "%.200s/rank-%d", asked->name, r);
        done = attn_vector_files_done(results, name, &x->claims, &asked->c);
    }
    return done ||
           attn_vector_files_words(results, asked->name, words, sizeof words) != ATTN_WORDS_NONE;
}

/* Results that are there, or what to say of a case that has none: a refusal, a failure. */
static enum attn_status take_results(struct attn_subject *x, const struct attn_asked *asked,
                                     const char *results, struct attn_setup *setup,
                                     struct attn_result *r)
{
    struct attn_error err = {0};
    char words[sizeof r->text];
    int says = attn_vector_files_words(results, asked->name, words, sizeof words);
    if (says == ATTN_WORDS_REFUSED) {
        attn_result_refuse(r, words);
        return ATTN_ENOTSUP;
    }
    if (says == ATTN_WORDS_ERROR || says == ATTN_WORDS_CHANGED) {
        attn_result_fail(r, says == ATTN_WORDS_CHANGED ? ATTN_F_INTEGRITY : ATTN_F_STATUS, "%s",
                         words);
    } else if (asked->said[0] != '\0' && !attn_subject_done(x, results, asked)) {
        attn_result_fail(r, ATTN_F_STATUS, "%s", asked->said);
        r->verdict = asked->without;
    } else if (!attn_vector_files_has(results, asked->name)) {
        attn_result_fail(r, ATTN_F_STATUS, "no folder of results for this case");
    } else if (x->scheme[0] != '\0') {
        *r = (struct attn_result){.verdict = ATTN_PASS};
        attn_rank_results_judge(x->scheme, results, asked->name, &x->claims, setup, r);
        return ATTN_ENOTSUP; /* it is judged */
    } else if (attn_vector_files_read(results, asked->name, &x->claims, setup, &err) == ATTN_OK) {
        *r = (struct attn_result){.verdict = ATTN_PASS};
        return ATTN_OK;
    } else if (err.status == ATTN_ENOMEM) {
        attn_result_error(r, err.status, err.text);
        return err.status;
    } else {
        attn_result_fail(r, ATTN_F_STATUS, "%s", err.text);
    }
    return ATTN_EINVAL;
}

static void judge_results(struct attn_subject *x, const struct attn_setup *setup,
                          struct attn_answer *answer)
{
    const double enough_s = 10; /* of diagnoses: the next one says nothing new */
    attn_vector_files_judge(&x->claims, setup, &answer->result);
    if (answer->result.verdict != ATTN_FAILED || x->diagnosed_s > enough_s)
        return;
    double before = attn_seconds(CLOCK_MONOTONIC);
    attn_diagnose(setup, &answer->result, &answer->result.diagnosis);
    attn_vector_rows_diagnose(&x->claims, setup, &answer->result);
    x->diagnosed_s += attn_seconds(CLOCK_MONOTONIC) - before;
}

int attn_subject_setup(const struct attn_subject *x, const struct attn_case *c,
                       struct attn_setup *setup, struct attn_answer *answer)
{
    const enum attn_route route = x->route->route;
    struct attn_error err = {0};
    enum attn_status status = attn_setup_open(c, setup, &err);
    const int is_open = status == ATTN_OK;
    if (is_open)
        status = attn_claims_allow(&x->claims, setup, route, &answer->wants.needs, &err);
    if (status == ATTN_OK)
        return 1;
    if (is_open && status == ATTN_ENOTSUP)
        attn_claims_want(&x->claims, setup, route, &answer->wants);
    if (is_open)
        attn_setup_close(setup);
    attn_result_error(&answer->result, status, err.text);
    if (status == ATTN_ENOTSUP)
        answer->result.verdict = ATTN_REFUSED;
    return 0;
}

void attn_subject_judge(struct attn_subject *x, const struct attn_asked *asked, const char *results,
                        struct attn_answer *answer)
{
    struct attn_setup setup;
    double start = attn_seconds(CLOCK_MONOTONIC);
    memset(answer, 0, sizeof *answer);
    if (attn_subject_setup(x, &asked->c, &setup, answer)) {
        if (take_results(x, asked, results, &setup, &answer->result) == ATTN_OK)
            judge_results(x, &setup, answer);
        attn_setup_close(&setup);
    }
    answer->seconds = attn_seconds(CLOCK_MONOTONIC) - start;
}
