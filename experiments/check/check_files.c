/* Cases and answers as files (external/vector_files.h), and attnlab check --results. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "experiments/check/check.h"
#include "experiments/cli/cli.h"
#include "ref/clock.h"
#include "ref/problem.h"
#include "tests/harness/external/vector_files.h"
#include "tests/harness/faults/diagnose.h"

static const double enough_s = 10; /* of diagnoses: the next one says nothing new */

/* ---- what is asked --------------------------------------------------------------------------- */

static enum attn_status take(const struct attn_battery_case *battery, const char *name,
                             const char *text, struct attn_asked *asked, struct attn_error *err)
{
    asked->battery = battery;
    snprintf(asked->name, sizeof asked->name, "%s", name);
    return attn_case_parse(text, &asked->c, err);
}

/* Nobody waits for hours without a word. */
static void note_work(const char *name, const struct attn_case *c)
{
    const double minutes = 1e11, hours = 1e13; /* operations of the oracle */
    struct attn_problem p;
    attn_case_problem(c, &p);
    double pairs = (double)p.batch * (double)p.heads * (double)p.n_query * (double)p.n_key;
    double n = attn_pass_flops(&p, c->pass, pairs);
    if (n >= minutes)
        fprintf(stderr,
                "note: %s has up to %.2g operations for the oracle: %.0e take minutes, %.0e "
                "hours\n",
                name, n, minutes, hours);
}

/* A name, or a case string; what is no string at all is taken for a name that does not exist. */
static enum attn_status read_case(const char *text, int number,
                                  const struct attn_question *question, struct attn_asked *asked,
                                  struct attn_error *err)
{
    const struct attn_tier_case *made =
        question->tier != NULL ? attn_tier_find(question->tier, text) : NULL;
    const struct attn_battery_case *named = made != NULL ? &made->battery : attn_battery_find(text);
    char name[32];
    snprintf(name, sizeof name, "case-%d", number + 1);
    if (named != NULL)
        return take(named, named->name, named->text, asked, err);
    if (strchr(text, ':') == NULL)
        return attn_fail(err, ATTN_EINVAL,
                         "'%.80s' is no case of the battery (attnlab list cases has their names), "
                         "nor a case string such as b1h2q9d8:causal(br):f32:normal:s1",
                         text);
    enum attn_status status = take(NULL, name, text, asked, err);
    if (status == ATTN_OK)
        note_work(name, &asked->c);
    return status;
}

static int names_made(const struct attn_cli_list *cases)
{
    for (int i = 0; i < cases->n; i++)
        if (strncmp(cases->at[i].value, "factors-", 8) == 0 ||
            strncmp(cases->at[i].value, "pairs-", 6) == 0)
            return 1;
    return 0;
}

int attn_question_needs_claims(const struct attn_cli_list *cases)
{
    return cases->n == 0 || names_made(cases);
}

enum attn_status attn_question_make(const struct attn_asking *a, struct attn_question *question,
                                    struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    int whole = a->cases->n == 0, n = a->cases->n, by_name = names_made(a->cases);
    *question = (struct attn_question){.whole_tier = whole};
    if (whole || by_name) {
        question->tier = calloc(1, sizeof *question->tier);
        if (question->tier == NULL)
            return attn_fail(err, ATTN_ENOMEM, "no memory for a list of cases");
        status = attn_tier_open(by_name ? ATTN_TIER_FULL : a->tier, a->claims, a->route, a->seed,
                                question->tier, err);
        n = whole ? question->tier->n : n;
    }
    question->asked = calloc((size_t)n + 1, sizeof *question->asked);
    if (question->asked == NULL && status == ATTN_OK)
        status = attn_fail(err, ATTN_ENOMEM, "no memory for %d cases", n);
    for (int i = 0; i < n && status == ATTN_OK; i++) {
        const struct attn_battery_case *battery = whole ? &question->tier->at[i].battery : NULL;
        struct attn_asked *asked = &question->asked[question->n++];
        status = whole ? take(battery, battery->name, battery->text, asked, err)
                       : read_case(a->cases->at[i].value, i, question, asked, err);
    }
    if (status != ATTN_OK)
        attn_question_free(question);
    return status;
}

static int is_wanted(const struct attn_vector_files_entry *entry, const struct attn_cli_list *cases)
{
    for (int i = 0; i < cases->n; i++)
        if (strcmp(cases->at[i].value, entry->name) == 0 ||
            strcmp(cases->at[i].value, entry->text) == 0)
            return 1;
    return cases->n == 0;
}

/* The case of the battery or of the tier that has this name, and still this string. */
static const struct attn_battery_case *case_called(const struct attn_question *question,
                                                   const struct attn_vector_files_entry *entry)
{
    const struct attn_tier_case *made =
        question->tier != NULL ? attn_tier_find(question->tier, entry->name) : NULL;
    return made != NULL && strcmp(made->battery.text, entry->text) == 0
               ? &made->battery
               : attn_battery_find(entry->name);
}

enum attn_status attn_question_read(const char *folder, const struct attn_cli_list *cases,
                                    uint64_t seed, struct attn_question *question,
                                    struct attn_claims *claims, struct attn_error *err)
{
    struct attn_vector_files files;
    enum attn_status status = attn_vector_files_open(folder, &files, err);
    if (status != ATTN_OK)
        return status;
    *claims = files.claims;
    question->asked = calloc((size_t)files.n + 1, sizeof *question->asked);
    question->whole_tier = cases->n == 0 && files.n > 1;
    if (question->asked == NULL)
        status = attn_fail(err, ATTN_ENOMEM, "no memory for %d cases", files.n);
    if (status == ATTN_OK && question->whole_tier) { /* their reasons, and what they meet */
        question->tier = calloc(1, sizeof *question->tier);
        status = question->tier == NULL
                     ? attn_fail(err, ATTN_ENOMEM, "no memory for a list of cases")
                     : attn_tier_open(ATTN_TIER_FULL, claims, ATTN_ROUTE_FILES, seed,
                                      question->tier, err);
    }
    for (int i = 0; i < files.n && status == ATTN_OK; i++)
        if (is_wanted(&files.entry[i], cases))
            status = take(case_called(question, &files.entry[i]), files.entry[i].name,
                          files.entry[i].text, &question->asked[question->n++], err);
    if (status == ATTN_OK && question->n == 0)
        status = attn_fail(err, ATTN_EINVAL, "%.300s/manifest.json has no such case", folder);
    attn_vector_files_close(&files);
    if (status != ATTN_OK)
        attn_question_free(question);
    return status;
}

void attn_question_free(struct attn_question *question)
{
    if (question->tier != NULL)
        attn_tier_close(question->tier);
    free(question->tier);
    free(question->asked);
    memset(question, 0, sizeof *question);
}

/* ---- cases out ------------------------------------------------------------------------------- */

/* One case, if it is claimed; one that cannot be set up has its verdict when it is judged. */
static enum attn_status write_case(struct attn_asked *asked,
                                   struct attn_vector_files_writer *writer,
                                   const struct attn_claims *claims, struct attn_error *err)
{
    struct attn_setup setup;
    struct attn_error why = {0};
    unsigned needs;
    asked->written = 0;
    enum attn_status status = attn_setup_open(&asked->c, &setup, &why);
    if (status == ATTN_ENOMEM)
        return attn_fail(err, status, "%s", why.text);
    if (status != ATTN_OK)
        return ATTN_OK;
    asked->written = attn_claims_allow(claims, &setup, ATTN_ROUTE_FILES, &needs, &why) == ATTN_OK;
    if (asked->written)
        status = attn_vector_files_write(writer, asked->name, &setup, err);
    attn_setup_close(&setup);
    return status;
}

enum attn_status attn_question_write(struct attn_question *question, const char *folder,
                                     const struct attn_claims *claims, int *written,
                                     struct attn_error *err)
{
    struct attn_vector_files_writer writer;
    *written = 0;
    enum attn_status status = attn_vector_files_begin(folder, claims, &writer, err);
    for (int i = 0; i < question->n && status == ATTN_OK; i++) {
        status = write_case(&question->asked[i], &writer, claims, err);
        *written += question->asked[i].written;
    }
    return writer.cases != NULL ? attn_vector_files_end(&writer, status, err) : status;
}

/* ---- results in ------------------------------------------------------------------------------ */

/* Results that are there, or what to say of a case that has none: a refusal, a failure. */
static enum attn_status take_results(struct attn_candidate *s, const struct attn_asked *asked,
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
    if (says == ATTN_WORDS_ERROR) {
        r->verdict = ATTN_FAILED;
        snprintf(r->text, sizeof r->text, "%s", words);
    } else if (asked->said[0] != '\0' &&
               !attn_vector_files_done(results, asked->name, &s->claims, &asked->c)) {
        r->verdict = asked->without;
        snprintf(r->text, sizeof r->text, "%s", asked->said);
    } else if (!attn_vector_files_has(results, asked->name)) {
        r->verdict = ATTN_FAILED;
        snprintf(r->text, sizeof r->text, "no folder of results for this case");
    } else if (attn_vector_files_read(results, asked->name, &s->claims, setup, &err) == ATTN_OK) {
        return ATTN_OK;
    } else if (err.status == ATTN_ENOMEM) {
        attn_result_error(r, err.status, err.text);
        return err.status;
    } else {
        r->verdict = ATTN_FAILED;
        snprintf(r->text, sizeof r->text, "%s", err.text);
    }
    r->failure = ATTN_F_STATUS;
    return ATTN_EINVAL;
}

void attn_files_judge(struct attn_candidate *s, const struct attn_asked *asked, const char *results,
                      struct attn_result *r, unsigned *needs)
{
    struct attn_setup setup;
    struct attn_error err = {0};
    struct attn_diagnosis diagnosis;
    memset(r, 0, sizeof *r);
    *needs = 0;
    enum attn_status status = attn_setup_open(&asked->c, &setup, &err);
    int opened = status == ATTN_OK;
    if (opened)
        status = attn_claims_allow(&s->claims, &setup, ATTN_ROUTE_FILES, needs, &err);
    if (status != ATTN_OK) {
        attn_result_error(r, status, err.text);
        if (status == ATTN_ENOTSUP)
            r->verdict = ATTN_REFUSED;
    } else if (take_results(s, asked, results, &setup, r) == ATTN_OK) {
        attn_vector_files_judge(&s->claims, &setup, r);
        if (r->verdict == ATTN_FAILED && s->diagnosed_s < enough_s) {
            double before = attn_seconds(CLOCK_MONOTONIC);
            attn_diagnose(&setup, r, &diagnosis);
            s->diagnosed_s += attn_seconds(CLOCK_MONOTONIC) - before;
            attn_common_cause_append(r, &diagnosis);
        }
    }
    if (opened)
        attn_setup_close(&setup);
}

void attn_files_judge_all(struct attn_candidate *s, const char *results)
{
    for (int i = 0; i < s->question.n; i++) {
        const struct attn_asked *asked = &s->question.asked[i];
        struct attn_result r;
        unsigned needs;
        double start = attn_seconds(CLOCK_MONOTONIC);
        if (asked->not_reached)
            continue;
        attn_files_judge(s, asked, results, &r, &needs);
        attn_candidate_case(s, asked, &r, needs, attn_seconds(CLOCK_MONOTONIC) - start);
    }
}

int attn_check_files(struct attn_candidate *s)
{
    struct stat info;
    if (stat(s->source, &info) != 0 || !S_ISDIR(info.st_mode))
        return attn_candidate_fail(s, ATTN_EXIT_USAGE, "%.1000s is not a folder", s->source);
    attn_candidate_begin(s);
    attn_files_judge_all(s, s->source);
    return attn_candidate_end(s);
}
