/* Lab 09: what makes an answer right must be so, and wrong answers must cost what the page says. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/grade/hunt.h"
#include "tests/fixtures/scratch.h"
#include "tests/harness/judge/judge.h"
#include "tests/suites.h"

SUITE(hunt, .seconds = 60, .open = scratch_open, .close = scratch_close);

enum { FAULTS = 16, SEEDS = 60 };

static enum attn_verdict verdict(const struct attn_hunt_fault *fault, const char *text)
{
    static const struct attn_impl plain = {0};
    static const struct attn_options none = {.threads = 1};
    struct attn_precision precision;
    struct attn_setup setup;
    struct attn_case c;
    struct attn_result r = {0};
    struct attn_error err = {0};
    ck_assert_msg(attn_case_parse(text, &c, &err) == ATTN_OK, "%s: %s", text, err.text);
    ck_assert_msg(attn_setup_open(&c, &setup, &err) == ATTN_OK, "%s: %s", text, err.text);
    attn_precision_of(&plain, &none, &setup.problem, &precision);
    ck_assert_msg(attn_hunt_compute(fault, &setup, &err) == ATTN_OK, "%s", err.text);
    attn_judge(&setup, &precision, NULL, c.pass, &r);
    attn_setup_close(&setup);
    return r.verdict;
}

/* Each fault shows in the case that says how small one can be, and a right library does not fail
 * there; every seed has three right ones, and no fault twice.  A row of faults.def that is told
 * otherwise would make a library right that is not. */
TEST(every_fault_has_its_case)
{
    const struct attn_hunt_fault *seen[FAULTS] = {NULL};
    int n_seen = 0;
    for (int s = 0; s < SEEDS; s++) {
        char seed[16];
        int right = 0;
        snprintf(seed, sizeof seed, "s%d", s);
        for (int n = 1; n <= ATTN_LIBRARIES; n++) {
            const struct attn_hunt_fault *fault = attn_hunt_fault(seed, n);
            int f = 0;
            right += fault == NULL;
            for (int other = 1; other < n && fault != NULL; other++)
                ck_assert(attn_hunt_fault(seed, other) != fault);
            while (f < n_seen && seen[f] != fault)
                f++;
            if (fault == NULL || f < n_seen)
                continue;
            ck_assert_int_lt(n_seen, FAULTS);
            seen[n_seen++] = fault;
            ck_assert_msg(verdict(fault, fault->least) == ATTN_FAILED, "%s: %s passes", fault->word,
                          fault->least);
            ck_assert_msg(verdict(NULL, fault->least) != ATTN_FAILED, "the truth fails %s",
                          fault->least);
        }
        ck_assert_int_eq(right, ATTN_LIBRARIES_RIGHT);
    }
    ck_assert_int_eq(n_seen, FAULTS);
}

/* The answers of a seed, with one line of them changed. */
static const struct {
    const char *name;
    int which; /* library; 0: none is changed; -1: the first that is right, -2: that is wrong */
    const char *line;
    int points;
    const char *says;
} answers[] = {
    {"all of it", 0, "", 100, "50 of 50"},
    {"said to be right", -2, "right", 82, "is said to be right, and is not"},
    {"a case that passes", -2, "wrong q1k1d1:none:f32:normal:s1 tail", 87, "does not fail"},
    {"a case that is none", -2, "wrong q1k1:nonsense scale", 87, "does not fail"},
    {"another reason", -2, "wrong %s padding", 95, "'padding' is not why"},
    {"no small case", -2, "wrong %s %s", 97, "a smaller case fails too"},
    {"wrong for nothing", -1, "wrong q1k1d1:none:f32:normal:s1 scale", 95, "does not fail"},
    {"half a line", -1, "wrong", 95, "a line is"},
};

static int chosen(const char *seed, int library)
{
    int n = 1;
    while ((library == -1) != (attn_hunt_fault(seed, n) == NULL))
        n++;
    return n;
}

TEST_EACH(answers_and_points, COUNT(answers))
{
    static const char *const seed = "hunter";
    const int changed = answers[_i].which < 0 ? chosen(seed, answers[_i].which) : 0;
    char path[4096], line[400];
    snprintf(path, sizeof path, "%s", scratch_path("answers.txt"));
    FILE *file = fopen(path, "w");
    for (int n = 1; n <= ATTN_LIBRARIES; n++) {
        const struct attn_hunt_fault *fault = attn_hunt_fault(seed, n);
        const char *large = "b2h4g2q40k40d16:causal(br):f32:stairs-up:s1:scale=0.4:pass=bwd";
        if (n == changed && strcmp(answers[_i].name, "no small case") == 0)
            snprintf(line, sizeof line, "wrong %s %s", large, fault->word);
        else if (n == changed && fault != NULL)
            snprintf(line, sizeof line, answers[_i].line, fault->least);
        else if (n == changed)
            snprintf(line, sizeof line, "%s", answers[_i].line);
        else if (fault == NULL)
            snprintf(line, sizeof line, "right");
        else
            snprintf(line, sizeof line, "wrong %s %s", fault->least, fault->word);
        fprintf(file, "%d %s\n", n, line);
    }
    fclose(file);
    scratch_expect(changed > 0, answers[_i].says, "grade 09 '%s' --seed %s", path, seed);
    snprintf(line, sizeof line, "%d of 100", answers[_i].points);
    scratch_has(line);
}
