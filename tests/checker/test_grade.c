/* Grade, bias and growth: what a pass is worth, and what only many numbers together show.
 *
 * The honest variant in 16-bit P, right in one setting and wrong in three: errors that T1 lets pass
 * because each of them is as small as honest rounding may be. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fixtures/case_fixture.h"
#include "tests/harness/bound/row_bound.h"
#include "tests/harness/relations/growth.h"
#include "tests/suites.h"
#include "tests/variants/honest.h"

SUITE(grade);

/* Right: P rounded to bf16 to nearest, its sum not rounded.  Wrong: P cut to bf16, so that every O
 * is too small (SN-09); products with V cut (SN-10); partial O in bf16 (SN-17). */
enum faulty_how { NEAREST, TRUNCATED, PRODUCTS, PARTIALS };

/* Forward alone: what is wrong is so in O. */
static const struct attn_impl *forward_only(void)
{
    static struct attn_impl honest;
    honest = variant_honest;
    honest.caps &= ~(unsigned)(ATTN_CAP_BACKWARD | ATTN_CAP_DBIAS | ATTN_CAP_DLSE);
    return &honest;
}

static struct attn_spec faulty_at(enum faulty_how how)
{
    static const int64_t p[] = {HONEST_BF16, HONEST_CUT, HONEST_PRODUCTS, HONEST_EXACT};
    struct attn_spec spec = {.impl = forward_only()};
    attn_options_preset(spec.impl, &spec.options);
    spec.options.value[HONEST_P] = p[how];
    spec.options.value[HALF_SUM] = how == PARTIALS ? HALF_SUM_BF16 : HALF_SUM_FLOAT;
    return spec;
}

/* ---- grade ----------------------------------------------------------------------------------- */

/* Sign-random data, and an honest order: A.  Other data: no grade. */
TEST(honest_is_a)
{
    struct attn_spec spec = {0};
    spec = spec_of("tiled-textbook:br=16,bc=16");
    struct attn_result r = result_of(&spec, "h4g2q33k130d40:causal(br):f32:normal:s1:pass=bwd");
    ck_assert_int_eq(r.verdict, ATTN_PASS);
    ck_assert_int_eq(r.grade.letter, 'A');
    ck_assert(r.grade.rho > r.worst && r.grade.rho <= 1); /* T2 is the sharper of the two */
    r = result_of(&spec, "h4g2q33k130d40:causal(br):f32:stairs-up:s1");
    ck_assert_int_eq(r.verdict, ATTN_PASS);
    ck_assert_int_eq(r.grade.letter, 0);
}

/* An error that is worse than chance and no worse than T1 is a B, and still a pass. */
TEST(slow_sums_are_b)
{
    struct attn_setup s;
    struct attn_result r;
    struct attn_precision declared;
    struct attn_truth truth;
    const struct attn_spec dense = spec_of("dense");
    setup_of("q2k256d256v2:none:f32:normal:s1", &s);
    attn_precision_of(dense.impl, &dense.options, &s.problem, &declared);
    truth_of(&s, &dense, NULL, &truth);
    for (int64_t i = 0; i < 2; i++) { /* the truth, off by 0.8 T1 */
        attn_tensor_set(&s.tensor[ATTN_T_LSE], 0, 0, i, 0,
                        truth.tensor[ATTN_LSE].want[i] + 0.8 * truth.tensor[ATTN_LSE].bound[i]);
        for (int64_t v = 0; v < 2; v++)
            attn_tensor_set(&s.tensor[ATTN_T_O], 0, 0, i, v, truth.tensor[ATTN_O].want[2 * i + v]);
    }
    memset(&r, 0, sizeof r);
    attn_judge(&s, &declared, NULL, ATTN_FORWARD, &r);
    ck_assert_msg(r.verdict == ATTN_PASS, "%s", r.text);
    ck_assert_int_eq(r.grade.letter, 'B');
    ck_assert(r.grade.rho > 1);
    attn_truth_free(&truth);
    attn_setup_close(&s);
}

/* T2 is never above T1, and is T1 where sums are short. */
TEST(likely_is_no_more_than_worst)
{
    for (double n = 1; n < 1e6; n *= 1.7) {
        double worst = attn_sum_error(n, 0x1p-24, 0);
        double likely = attn_sum_error(n, 0x1p-24, ATTN_GRADE_LAMBDA);
        ck_assert(worst == attn_gamma(n, 0x1p-24));
        ck_assert(likely <= worst);
        ck_assert((likely < worst) == (n > ATTN_GRADE_LAMBDA * ATTN_GRADE_LAMBDA));
    }
}

/* ---- bias ------------------------------------------------------------------------------------ */

static const char *const positive[] = {"b4h4g2q60k64d8:none:f32:ones:s%d",
                                       "b4h4g2q60k70d16:none:f32:ties:s%d"};

/* P in bf16 and its sum in float, rounded to nearest: no bias, whatever the seed. */
TEST_EACH(nearest_does_not_lean, 2)
{
    struct attn_spec spec = faulty_at(NEAREST);
    double largest = 0;
    for (int seed = 0; seed < 20; seed++) {
        char text[128];
        snprintf(text, sizeof text, positive[_i], 100 + seed);
        struct attn_result r = result_of(&spec, text);
        ck_assert_msg(r.verdict == ATTN_PASS, "%s: %s", text, r.text);
        ck_assert(r.grade.rows > 500);
        largest = fmax(largest, fabs(r.grade.bias));
    }
    ck_assert_msg(largest < ATTN_BIAS_LIMIT / 3, "close to the limit: %g", largest);
    ck_assert(largest > 0);
}

/* P cut to bf16, and products cut where P holds exact ones: T1 has nothing to say, the bias has;
 * the cases of the quick tier that are there for it show it. */
TEST_EACH(quick_cases_show_it, 2)
{
    static const char *const name[] = {"lean-ones", "lean-ties"};
    const struct attn_battery_case *c = attn_battery_find(name[_i]);
    struct attn_spec wrong = faulty_at(_i == 0 ? TRUNCATED : PRODUCTS), right = faulty_at(NEAREST);
    ck_assert_ptr_nonnull(c);
    ck_assert_ptr_eq(strstr(c->ids, _i == 0 ? "SN-09" : "SN-10"), c->ids);
    struct attn_result r = result_of(&right, c->text);
    ck_assert_msg(r.verdict == ATTN_PASS && r.grade.rows >= 80, "%s: %s", c->name, r.text);
    r = result_of(&wrong, c->text);
    ck_assert_msg(r.verdict == ATTN_FAILED && r.failure == ATTN_F_BIAS && r.worst <= 1 &&
                      r.grade.bias < -ATTN_BIAS_LIMIT,
                  "%s: %s", c->name, r.text);
}

/* ---- growth ---------------------------------------------------------------------------------- */

/* The n-th that is run with more and more ranks or splits: every one that is registered, and a ring
 * of another local implementation.  0: there are no more. */
static int growing(int n, struct attn_spec *spec)
{
    for (int i = 0; i < attn_impl_count(); i++)
        if (attn_growth_applies(attn_impl_at(i)) && n-- == 0) {
            *spec = spec_of(attn_impl_at(i)->name);
            return 1;
        }
    if (n == 0)
        *spec = spec_of("ring:local=csr-textbook");
    return n == 0;
}

static const enum honest_order order[] = {HONEST_FORWARD, HONEST_REVERSE, HONEST_PAIRWISE};

TEST_EACH(honest_growth_is_slow, 3)
{
    double largest = 0;
    int specs = 0;
    struct attn_spec spec;
    for (int n = 0; n < 3 || growing(n - 3, &spec); n++) {
        struct attn_growth growth;
        struct attn_result r;
        if (n % 3 != _i && getenv("ATTN_FULL") == NULL)
            continue; /* with another seed */
        specs++;
        if (n < 3) {
            spec = (struct attn_spec){.impl = &variant_honest};
            attn_options_preset(&variant_honest, &spec.options);
            spec.options.value[HONEST_ORDER] = order[n];
        }
        attn_growth_run(&spec, 17 + 8 * (uint64_t)_i, &growth, &r);
        ck_assert_msg(r.verdict == ATTN_PASS, "%d: %s", n, r.text);
        ck_assert(growth.error[0][ATTN_O] > 0);
        ck_assert(r.is_growth && r.growth == growth.worst && attn_growth_applies(spec.impl));
        double rise = log(growth.error[3][ATTN_O] / growth.error[0][ATTN_O]) / log(8);
        double bend = log(growth.error[2][ATTN_O] / growth.error[1][ATTN_O]) / log(2);
        ck_assert(fabs(growth.slope[ATTN_O] - (0.9 * rise + 0.1 * bend)) < 1e-12);
        largest = fmax(largest, growth.worst);
    }
    ck_assert_msg(largest < 0.6 * ATTN_GROWTH_LIMIT, "close to the limit: %g", largest);
    printf("honest growth, seed %d: largest slope %.2f of %d specs\n", 17 + 8 * _i, largest, specs);
    fflush(stdout);
}

TEST(rounded_partials_grow)
{
    struct attn_spec spec = faulty_at(PARTIALS);
    struct attn_growth growth;
    struct attn_result r;
    attn_growth_run(&spec, 17, &growth, &r);
    ck_assert_msg(r.verdict == ATTN_FAILED && r.failure == ATTN_F_GROWTH, "%s", r.text);
    ck_assert_int_eq(growth.output, ATTN_O);
    ck_assert_ptr_nonnull(strstr(r.text, "errors of o grow with splits"));
    ck_assert(growth.worst > 2 * ATTN_GROWTH_LIMIT); /* no matter of luck */
    spec.impl = attn_impl_find("dense");
    ck_assert(!attn_growth_applies(spec.impl));
    attn_options_preset(spec.impl, &spec.options);
    attn_growth_run(&spec, 17, &growth, &r);
    ck_assert_int_eq(r.verdict, ATTN_REFUSED);
}
