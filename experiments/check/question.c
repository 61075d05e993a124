/* See check.h: which cases are asked. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/check/check.h"
#include "ref/mask/nearest.h"
#include "ref/problem.h"
#include "tests/harness/cases/models.h"
#include "tests/harness/subject/vector_files.h"

/* ---- what is asked --------------------------------------------------------------------------- */

static enum attn_status take(const struct attn_battery_case *battery, const char *name,
                             const char *text, struct attn_asked *asked, struct attn_error *err)
{
    asked->battery = battery;
    snprintf(asked->name, sizeof asked->name, "%s", name);
    return attn_case_parse(text, &asked->c, err);
}

/* A long run speaks while it works. */
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

static enum attn_status no_case(const char *text, struct attn_error *err)
{
    char meant[64];
    struct attn_nearest nearest = attn_nearest_begin(text, strlen(text));
    for (int b = 0; b < attn_battery_count(ATTN_TIER_FULL); b++)
        attn_nearest_offer(&nearest, attn_battery_at(b)->name);
    return attn_fail(err, ATTN_EINVAL,
                     "'%.80s' is no case of the battery%s; attnlab list cases has the names. "
                     "Nor is it a case string such as b1h2q9d8:causal(br):f32:normal:s1",
                     text, attn_nearest_text(&nearest, meant));
}

/* A name, as it is asked within the claims, or a case string; what is no string at all is taken for
 * a name that does not exist. */
static enum attn_status read_case(const char *text, int number, const struct attn_asking *a,
                                  const struct attn_question *question, struct attn_asked *asked,
                                  struct attn_error *err)
{
    const struct attn_tier_case *made =
        question->tier != NULL ? attn_tier_find(question->tier, text) : NULL;
    const struct attn_battery_case *named = attn_battery_find(text);
    char name[32];
    snprintf(name, sizeof name, "case-%d", number + 1);
    if (made != NULL)
        return take(&made->battery, made->battery.name, made->battery.text, asked, err);
    if (named != NULL) {
        enum attn_status status = take(named, named->name, named->text, asked, err);
        if (status == ATTN_OK) /* or as it is written, to be refused */
            attn_case_within(named, a->claims, a->route, &asked->c, NULL);
        return status;
    }
    if (strchr(text, ':') == NULL)
        return no_case(text, err);
    enum attn_status status = take(NULL, name, text, asked, err);
    if (status == ATTN_OK)
        note_work(name, &asked->c);
    return status;
}

static int names_made(const struct attn_cli_list *cases)
{
    for (int i = 0; i < cases->n; i++)
        if (strncmp(cases->at[i].value, "factors-", 8) == 0 ||
            strncmp(cases->at[i].value, "pairs-", 6) == 0 ||
            attn_model_of_case(cases->at[i].value) >= 0)
            return 1;
    return 0;
}

int attn_question_needs_claims(const struct attn_cli_list *cases)
{
    int named = cases->n == 0 || names_made(cases);
    for (int i = 0; i < cases->n; i++)
        named |= attn_battery_find(cases->at[i].value) != NULL;
    return named;
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
        if (whole && a->no_corners && attn_is_corner(battery->name))
            continue;
        struct attn_asked *asked = &question->asked[question->n++];
        status = whole ? take(battery, battery->name, battery->text, asked, err)
                       : read_case(a->cases->at[i].value, i, a, question, asked, err);
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
                                    struct attn_subject *x, struct attn_error *err)
{
    struct attn_vector_files files;
    enum attn_status status = attn_vector_files_open(folder, &files, err);
    if (status != ATTN_OK)
        return status;
    x->claims = files.claims;
    snprintf(x->scheme, sizeof x->scheme, "%s", files.scheme != NULL ? files.scheme : "");
    question->asked = calloc((size_t)files.n + 1, sizeof *question->asked);
    question->whole_tier = cases->n == 0 && files.n > 1;
    if (question->asked == NULL)
        status = attn_fail(err, ATTN_ENOMEM, "no memory for %d cases", files.n);
    if (status == ATTN_OK && question->whole_tier) { /* their reasons, and what they meet */
        question->tier = calloc(1, sizeof *question->tier);
        status = question->tier == NULL
                     ? attn_fail(err, ATTN_ENOMEM, "no memory for a list of cases")
                     : attn_tier_open(ATTN_TIER_FULL, &x->claims, ATTN_ROUTE_FILES, seed,
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
