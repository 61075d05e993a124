/* Cases and answers as files (external/vector_files.h), and attnlab check --results. */
#include <string.h>
#include <sys/stat.h>

#include "experiments/check/external.h"
#include "experiments/cli/cli.h"
#include "ref/clock.h"
#include "tests/harness/external/vector_files.h"
#include "tests/harness/faults/diagnose.h"

static const double enough_s = 10; /* of diagnoses: the next one says nothing new */

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
    for (int i = 0; i < question->n && status == ATTN_OK; i++)
        if (!question->asked[i].settled) {
            status = write_case(&question->asked[i], &writer, claims, err);
            *written += question->asked[i].written;
        }
    if (writer.cases == NULL)
        return status;
    struct attn_error end = {0};
    enum attn_status ended = attn_vector_files_end(&writer, status == ATTN_OK, &end);
    if (status == ATTN_OK && ended != ATTN_OK)
        status = attn_fail(err, ended, "%.500s", end.text);
    return status;
}

/* ---- results in ------------------------------------------------------------------------------ */

/* Results that are there, or what to say of a case that has none. */
static enum attn_status take_results(struct attn_external *s, const struct attn_asked *asked,
                                     const char *results, struct attn_setup *setup,
                                     struct attn_result *r)
{
    struct attn_error err = {0};
    if (attn_vector_files_sorry(results, asked->name, r->text, sizeof r->text)) {
        r->verdict = ATTN_FAILED;
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

void attn_external_judge(struct attn_external *s, const struct attn_asked *asked,
                         const char *results, struct attn_result *r, unsigned *needs)
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

void attn_external_judge_all(struct attn_external *s, const char *results)
{
    for (int i = 0; i < s->question.n; i++) {
        const struct attn_asked *asked = &s->question.asked[i];
        struct attn_result r;
        unsigned needs;
        double start = attn_seconds(CLOCK_MONOTONIC);
        if (asked->not_reached)
            continue;
        attn_external_judge(s, asked, results, &r, &needs);
        attn_external_file(s, asked, &r, NULL, needs, attn_seconds(CLOCK_MONOTONIC) - start);
    }
}

int attn_external_results(struct attn_external *s, const char *results)
{
    struct stat info;
    if (stat(results, &info) != 0 || !S_ISDIR(info.st_mode))
        return attn_external_fail(s, ATTN_EXIT_USAGE, "%.1000s is not a folder", results);
    attn_external_begin(s);
    attn_external_judge_all(s, results);
    return attn_external_end(s);
}
