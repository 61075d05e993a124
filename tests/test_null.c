/* Null models fail wherever they are wrong, and every family of the battery has a case that can
 * tell each of them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/problem.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/harness/runner.h"
#include "tests/suites.h"
#include "tests/variants/null.h"

/* ---- families: the headings of cases.def ---------------------------------------------------- */

enum { FAMILIES = 32 };
struct families {
    int n;
    char name[FAMILIES][8]; /* "F1", ... */
    int of_case[1024];      /* by number in the quick battery */
};

static void read_families(struct families *f)
{
    char line[512], name[128];
    int n = 0;
    FILE *file = fopen("tests/harness/cases/cases.def", "r");
    ck_assert_ptr_nonnull(file);
    memset(f, 0, sizeof *f);
    while (fgets(line, sizeof line, file) != NULL) {
        ck_assert_int_lt(f->n, FAMILIES);
        if (sscanf(line, "/* ---- %7[F0-9]:", f->name[f->n]) == 1)
            f->n++;
        else if (sscanf(line, "ATTN_CASE(\"%127[^\"]", name) == 1) {
            ck_assert_msg(f->n > 0 && n < 1024, "%s stands under no heading", name);
            ck_assert_str_eq(attn_battery_at(n)->name, name);
            f->of_case[n++] = f->n - 1;
        }
    }
    fclose(file);
    ck_assert(n > 0 && n <= attn_battery_count() && attn_battery_count() <= 1024);
    while (n < attn_battery_count()) /* made by a macro under the last heading */
        f->of_case[n++] = f->n - 1;
}

/* ---- wrong by its own reckoning -------------------------------------------------------------- */

/* Whether a tensor is beyond its bound somewhere; not attn_agree, which is under test. */
static int is_beyond(const struct attn_tensor *got, const struct attn_truth_tensor *truth)
{
    int64_t at[4] = ATTN_START;
    for (int64_t e = 0; truth->want != NULL && attn_each(at, truth->extent); e++) {
        double x = attn_tensor_get(got, at[0], at[1], at[2], at[3]), want = truth->want[e];
        if (isinf(want) ? x != want : !(fabs(x - want) <= truth->bound[e]))
            return 1;
    }
    return 0;
}

static void run(const struct attn_spec *spec, struct attn_setup *s)
{
    struct attn_ledger ledger;
    struct attn_error err = {0};
    struct attn_ctx ctx = {.ledger = &ledger, .options = &spec->options, .error = &err};
    attn_ledger_init(&ledger, NULL);
    for (int pass = ATTN_FORWARD; pass <= (int)s->given.pass; pass++)
        ck_assert_msg(attn_setup_call(s, spec->impl, &ctx, (enum attn_pass)pass) == ATTN_OK, "%s",
                      err.text);
}

static int is_wrong(const struct attn_spec *spec, const struct attn_case *c)
{
    struct attn_setup s;
    struct attn_truth truth;
    int wrong = 0;
    setup_from(c, &s);
    run(spec, &s);
    truth_of(&s, spec, NULL, &truth);
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        if (truth.tensor[o].want != NULL)
            wrong |= is_beyond(&s.tensor[ATTN_T_O + o], &truth.tensor[o]);
    attn_truth_free(&truth);
    attn_setup_close(&s);
    return wrong;
}

/* ---- the tests ------------------------------------------------------------------------------ */

START_TEST(nonsense_fails)
{
    struct families *families = malloc(sizeof *families);
    struct attn_spec spec = null_spec((enum null_model)_i);
    int failed[FAMILIES] = {0}, all = 0;
    ck_assert_ptr_nonnull(families);
    read_families(families);
    for (int i = 0; i < attn_battery_count(); i++) {
        const struct attn_battery_case *battery = attn_battery_at(i);
        struct attn_result r;
        struct attn_case c = case_of(battery->text);
        attn_run_case(&spec, &c, &r);
        if (r.verdict == ATTN_REFUSED)
            continue; /* storage that does not exist yet */
        if (is_wrong(&spec, &c))
            ck_assert_msg(r.verdict == ATTN_FAILED, "%s: %s is beyond the bound, yet it is %s: %s",
                          battery->name, null_model_name[_i], attn_verdict_name(r.verdict), r.text);
        else /* within the bound: only a probe at zero tolerance may tell */
            ck_assert_msg(r.verdict == ATTN_PASS || r.verdict == ATTN_WEAK ||
                              (r.verdict == ATTN_FAILED && r.failure == ATTN_F_EXACT),
                          "%s: %s is within the bound, yet it is %s: %s", battery->name,
                          null_model_name[_i], attn_verdict_name(r.verdict), r.text);
        failed[families->of_case[i]] += r.verdict == ATTN_FAILED;
        all += r.verdict == ATTN_FAILED;
    }
    printf("null model '%s' fails %d of %d cases:", null_model_name[_i], all, attn_battery_count());
    for (int f = 0; f < families->n; f++)
        printf(" %s %d", families->name[f], failed[f]);
    printf("\n");
    fflush(stdout);
    for (int f = 0; f < families->n; f++)
        ck_assert_msg(failed[f] > 0, "no case of %s fails the null model '%s'", families->name[f],
                      null_model_name[_i]);
    ck_assert_int_ge(families->n, 10);
    free(families);
}
END_TEST

Suite *suite_null(void)
{
    Suite *suite = suite_create("null");
    TCase *cases = tcase_create("null");
    tcase_set_timeout(cases, 240);
    tcase_add_loop_test(cases, nonsense_fails, 0, NULL_MODELS);
    suite_add_tcase(suite, cases);
    return suite;
}
