/* Criteria of a hunt: a file of answers about ten libraries, a line each:
 *
 *      NUMBER right
 *      NUMBER wrong CASE FAULT
 *
 * A claim counts if its case fails.  Points are given by the share of libraries. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/grade/grading.h"
#include "experiments/grade/hunt.h"
#include "tests/harness/base/fileio.h"

enum { TOLERANCE = 4 }; /* times the smallest case that we know */

struct answer {
    int is_there, is_wrong;
    char text[ATTN_CASE_TEXT], fault[40];
    int fails;         /* its case, of this library */
    int64_t size;      /* of its case */
    char trouble[300]; /* why it cannot be counted; "" */
};

/* ---- one answer ------------------------------------------------------------------------------ */

static int64_t size_of(const struct attn_case *c)
{
    return c->batch * c->heads * c->n_query * c->n_key * (c->d_key + c->d_value);
}

/* Whether the library fails the case under the bounds of plain f32; the size of the case. */
static int fails(const struct attn_hunt_fault *fault, const char *text, struct answer *a,
                 struct attn_error *err)
{
    static const struct attn_impl plain = {0};
    static const struct attn_options none = {.threads = 1};
    struct attn_precision precision;
    struct attn_setup setup;
    struct attn_case c;
    struct attn_result r = {0};
    enum attn_status status = attn_case_parse(text, &c, err);
    a->size = status == ATTN_OK ? size_of(&c) : 0;
    if (status == ATTN_OK && (c.dtype != ATTN_F32 || a->size > 1 << 22))
        status = attn_fail(err, ATTN_EINVAL, "a case of f32, and no large one, please");
    if (status == ATTN_OK)
        status = attn_setup_open(&c, &setup, err);
    if (status != ATTN_OK)
        return 0;
    attn_precision_of(&plain, &none, &setup.problem, &precision);
    status = attn_hunt_compute(fault, &setup, err);
    if (status == ATTN_OK)
        attn_judge(&setup, &precision, NULL, c.pass, &r);
    attn_setup_close(&setup);
    return r.verdict == ATTN_FAILED;
}

/* The line of a library: the last that names it. */
static void read_answer(const struct attn_grading *g, int number, struct answer *a)
{
    char line[ATTN_CASE_TEXT + 100], word[16], text[ATTN_CASE_TEXT], fault[40];
    struct attn_error err = {0};
    FILE *file = attn_read_stream(g->of->source, ATTN_READ_THEIRS, &err);
    memset(a, 0, sizeof *a);
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        int n = 0, words = sscanf(line, "%d %15s %1023s %39s", &n, word, text, fault);
        if (words < 2 || n != number)
            continue;
        snprintf(a->text, sizeof a->text, "%s", words > 2 ? text : "");
        snprintf(a->fault, sizeof a->fault, "%s", words > 3 ? fault : "");
        a->is_wrong = strcmp(word, "wrong") == 0;
        a->is_there = (a->is_wrong && words == 4) || strcmp(word, "right") == 0;
        if (!a->is_there)
            snprintf(a->trouble, sizeof a->trouble,
                     "a line is `NUMBER right` or `NUMBER wrong CASE FAULT`");
    }
    if (file != NULL)
        fclose(file);
    if (a->is_there && a->is_wrong)
        a->fails = fails(attn_hunt_fault(g->task->seed, number), a->text, a, &err);
    else if (!a->is_there && a->trouble[0] == '\0')
        snprintf(a->trouble, sizeof a->trouble, "there is no answer");
    if (a->is_wrong && !a->fails && a->trouble[0] == '\0')
        snprintf(a->trouble, sizeof a->trouble, "%.200s does not fail%s%.60s", a->text,
                 err.text[0] != '\0' ? ": " : "", err.text);
}

/* ---- what is asked of it --------------------------------------------------------------------- */

/* 1: the point is earned; 0: it is not; -1: one that another library earned is taken back. */
static int judge_verdict(const struct attn_hunt_fault *fault, const struct answer *a, char *why,
                         size_t size)
{
    int is_right = a->is_there && !a->is_wrong;
    if (is_right && fault != NULL)
        snprintf(why, size, "is said to be right, and is not: this costs a point of another");
    return is_right ? (fault == NULL ? 1 : -1) : a->fails;
}

static int judge_case(const struct attn_hunt_fault *fault, const struct answer *a, char *why,
                      size_t size)
{
    struct attn_case least;
    struct attn_error err = {0};
    if (!a->fails || attn_case_parse(fault->least, &least, &err) != ATTN_OK)
        return 0;
    int is_small = a->size <= TOLERANCE * size_of(&least);
    if (!is_small)
        snprintf(why, size,
                 "a smaller case fails too: the product of extents is %lld, and can be "
                 "less than a quarter",
                 (long long)a->size);
    return is_small;
}

static int judge_fault(const struct attn_hunt_fault *fault, const struct answer *a, char *why,
                       size_t size)
{
    int is_it = a->fails && strcmp(a->fault, fault->word) == 0;
    if (a->fails && !is_it)
        snprintf(why, size, "fails, and '%s' is not why", a->fault);
    return is_it;
}

void attn_grade_hunt(struct attn_grading *g, struct attn_outcome *o)
{
    static const struct {
        const char *argument;
        int (*judge)(const struct attn_hunt_fault *fault, const struct answer *a, char *why,
                     size_t size);
    } kinds[] = {{"verdict", judge_verdict}, {"case", judge_case}, {"fault", judge_fault}};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int n = 1;
             n <= ATTN_LIBRARIES && strcmp(kinds[k].argument, g->criterion->argument) == 0; n++) {
            const struct attn_hunt_fault *fault = attn_hunt_fault(g->task->seed, n);
            struct answer a;
            char why[200] = "";
            if (k > 0 && fault == NULL)
                continue;
            read_answer(g, n, &a);
            int earned = kinds[k].judge(fault, &a, why, sizeof why);
            o->asked++;
            o->passed += earned;
            if (earned > 0 || o->why[0] != '\0')
                continue;
            attn_outcome_lose(o, "library %d: %s", n,
                              why[0] != '\0'         ? why
                              : a.trouble[0] != '\0' ? a.trouble
                                                     : "there is no case that fails");
            snprintf(o->again, sizeof o->again,
                     "%.200s check --exec '%.200s library \"%.100s\" %d' --claims "
                     "docs/labs/09-hunt/lab.json",
                     attn_cli_program(), attn_cli_program(), g->task->seed, n);
        }
    o->passed = o->passed > 0 ? o->passed : 0;
    o->by_share = 1;
}
