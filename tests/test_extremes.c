/* Numbers at the edge of the arithmetic, where a bound can break: products of what underflowed and
 * what overflowed.  Honest code must pass, and no bound may be NaN. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "tests/harness/runner.h"
#include "tests/suites.h"

/* Run both passes of a setup that the test has altered, and judge it. */
static void judge_altered(const char *name, struct attn_setup *setup, struct attn_result *r)
{
    struct attn_spec spec;
    struct attn_error err = {0};
    struct attn_ledger ledger;
    struct attn_precision precision;
    ck_assert_int_eq(attn_spec_parse(name, &spec, &err), ATTN_OK);
    attn_ledger_init(&ledger, NULL);
    struct attn_ctx ctx = {.ledger = &ledger, .options = &spec.options, .error = &err};
    struct attn_forward forward = attn_setup_forward(setup);
    struct attn_backward backward = attn_setup_backward(setup);
    ck_assert_msg(attn_run_forward(spec.impl, &ctx, &setup->problem, &forward) == ATTN_OK, "%s",
                  err.text);
    ck_assert_msg(attn_run_backward(spec.impl, &ctx, &setup->problem, &backward) == ATTN_OK, "%s",
                  err.text);
    memset(r, 0, sizeof *r);
    attn_precision_of(spec.impl, &spec.options, &setup->problem, &precision);
    attn_judge(setup, &precision, NULL, ATTN_BACKWARD, r);
}

static const char *const specs[] = {"dense", "csr-textbook", "tiled-textbook:bc=4"};

/* The commonest mask of all: an additive 0 and finfo.min, which frameworks make of booleans. */
START_TEST(finfo_min_as_a_mask)
{
    static const double low[] = {-(double)FLT_MAX, -1e9, -1e4};
    struct attn_case c;
    struct attn_error err = {0};
    struct attn_result r;
    ck_assert_int_eq(attn_case_parse("b2h2q9k13d8:none:f32:normal:s3:bias=full:pass=bwd", &c, &err),
                     ATTN_OK);
    for (int l = 0; l < 3; l++) {
        struct attn_setup setup;
        ck_assert_int_eq(attn_setup_open(&c, &setup, &err), ATTN_OK);
        for (int64_t n = 0; n < 2 * 2 * 9 * 13; n++)
            attn_tensor_set(&setup.tensor[ATTN_T_BIAS], n / 234, n / 117 % 2, n / 13 % 9, n % 13,
                            n % 13 > n / 13 % 9 ? low[l] : 0);
        judge_altered(specs[_i], &setup, &r);
        ck_assert_msg(r.verdict == ATTN_PASS, "%s, %g: %s %s", specs[_i], low[l],
                      attn_verdict_name(r.verdict), r.text);
        attn_setup_close(&setup);
    }
}
END_TEST

/* Scores far beyond what the arithmetic resolves: still right, or nothing can be said; never a
 * failure of honest code, and never a pass of anything. */
START_TEST(scores_beyond_resolution)
{
    static const char *const text[] = {"q9k40d128:none:f32:normal:s1:pass=bwd:scale=1e5",
                                       "q10k40d64:none:f32:normal:s1:scale=1e6",
                                       "q9k40d8:none:f32:normal:s1:pass=bwd:scale=1e20",
                                       "h2q10k40d8:none:f64:normal:s1:pass=bwd:scale=1e30"};
    for (int t = 0; t < 4; t++) {
        struct attn_spec spec;
        struct attn_case c;
        struct attn_error err = {0};
        struct attn_result r;
        ck_assert_int_eq(attn_spec_parse(specs[_i], &spec, &err), ATTN_OK);
        ck_assert_int_eq(attn_case_parse(text[t], &c, &err), ATTN_OK);
        attn_run_case(&spec, &c, &r);
        ck_assert_msg(r.verdict == ATTN_PASS || r.verdict == ATTN_WEAK, "%s: %s", text[t], r.text);
    }
}
END_TEST

/* An LSE that is off by 1e30 is wrong at any scale. */
START_TEST(large_scores_hide_nothing)
{
    struct attn_case c;
    struct attn_error err = {0};
    struct attn_result r;
    struct attn_setup setup;
    struct attn_precision precision = {.u = 0x1p-24,
                                       .u_storage = 0x1p-24,
                                       .u_lse = 0x1p-24,
                                       .u_bias = 0x1p-24,
                                       .tiny = 0x1p-150,
                                       .exp_ulps = 4};
    memset(&r, 0, sizeof r);
    ck_assert_int_eq(attn_case_parse("h2q10k40d8:none:f32:normal:s1:scale=1e10", &c, &err),
                     ATTN_OK);
    ck_assert_int_eq(attn_setup_open(&c, &setup, &err), ATTN_OK);
    for (int64_t n = 0; n < 20; n++) {
        for (int64_t d = 0; d < 8; d++)
            attn_tensor_set(&setup.tensor[ATTN_T_O], 0, n / 10, n % 10, d, 0);
        attn_tensor_set(&setup.tensor[ATTN_T_LSE], 0, n / 10, n % 10, 0, 1e30);
    }
    attn_judge(&setup, &precision, NULL, ATTN_FORWARD, &r);
    ck_assert_int_eq(r.verdict, ATTN_FAILED);
    ck_assert_int_eq(r.output[ATTN_LSE].n_bad, 20);
    attn_setup_close(&setup);
}
END_TEST

Suite *suite_extremes(void)
{
    Suite *suite = suite_create("extremes");
    TCase *cases = tcase_create("extremes");
    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, finfo_min_as_a_mask, 0, 3);
    tcase_add_loop_test(cases, scores_beyond_resolution, 0, 3);
    tcase_add_test(cases, large_scores_hide_nothing);
    suite_add_tcase(suite, cases);
    return suite;
}
