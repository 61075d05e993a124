/* Grade, bias and growth: what a pass is worth, and what only many numbers together show.
 *
 * A toy in 16-bit P, right in one setting and wrong in three: errors that T1 lets pass because each
 * of them is as small as honest rounding may be. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "optimized/merge.h"
#include "ref/problem.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/harness/bound/growth.h"
#include "tests/harness/bound/row_bound.h"
#include "tests/suites.h"
#include "tests/variants/honest.h"

/* ---- the toy --------------------------------------------------------------------------------- */

enum faulty_how {
    NEAREST,   /* P rounded to bf16 to nearest, its sum not rounded: honest           */
    TRUNCATED, /* P cut to bf16, its sum not: every O is too small (SN-09)            */
    PRODUCTS,  /* exact P; its products with V cut to bf16 (SN-10)                    */
    PARTIALS   /* exact P; partial O comes back from each part in bf16 (SN-17)        */
};
enum { OPTION_HOW, OPTION_SPLITS };
static const struct attn_option faulty_options[] = {
    {"how", NEAREST, NEAREST, PARTIALS, "nearest truncated products partials", "what is rounded"},
    {"splits", 1, 1, 64, NULL, "parts of the keys"},
    {0}};

enum { KEYS = 256, WIDTH = 32 }; /* room for the problems of this file */

/* Not inlined: gcc 12 at -O1 with sanitizers drops the cut when it is (-O0 and -O3 keep it). */
__attribute__((noinline)) static float to_bf16(float x, int nearest)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (nearest)
        bits += 0x7fff + (bits >> 16 & 1);
    bits &= 0xffff0000u;
    memcpy(&x, &bits, sizeof bits);
    return x;
}

/* (O, LSE) over keys [lo, hi) that row i sees. */
static float faulty_part(const struct attn_problem *p, const struct attn_forward *t,
                         enum faulty_how how, const int64_t at[3], int64_t lo, int64_t hi,
                         float o[WIDTH])
{
    int64_t b = at[0], h = at[1], i = at[2], g = h / (p->heads / p->kv_heads);
    float s[KEYS], m = -INFINITY, l = 0;
    for (int64_t j = lo; j < hi; j++) {
        int64_t first, end;
        float sum = 0;
        s[j] = -INFINITY;
        if (!attn_problem_next(p, b, h, i, j, &first, &end) || first > j)
            continue;
        for (int64_t c = 0; c < p->d_key; c++)
            sum +=
                (float)attn_cview_get(&t->q, b, h, i, c) * (float)attn_cview_get(&t->k, b, g, j, c);
        s[j] = (float)p->scale * sum;
        m = s[j] > m ? s[j] : m;
    }
    for (int64_t c = 0; c < p->d_value; c++)
        o[c] = 0;
    for (int64_t j = lo; j < hi && m > -INFINITY; j++) {
        float weight = expf(s[j] - m);
        l += weight;
        weight = how == NEAREST || how == TRUNCATED ? to_bf16(weight, how == NEAREST) : weight;
        for (int64_t c = 0; c < p->d_value; c++) {
            float term = weight * (float)attn_cview_get(&t->v, b, g, j, c);
            o[c] += how == PRODUCTS ? to_bf16(term, 0) : term;
        }
    }
    for (int64_t c = 0; c < p->d_value && m > -INFINITY; c++)
        o[c] /= l;
    return m > -INFINITY ? m + logf(l) : m;
}

static void faulty_row(const struct attn_problem *p, const struct attn_options *options,
                       const struct attn_forward *t, const int64_t at[3])
{
    enum faulty_how how = (enum faulty_how)options->value[OPTION_HOW];
    int64_t splits = options->value[OPTION_SPLITS];
    float o[WIDTH], part[WIDTH];
    float lse = faulty_part(p, t, how, at, 0, p->n_key / splits, o);
    for (int64_t n = 1; n < splits; n++) {
        float more =
            faulty_part(p, t, how, at, n * p->n_key / splits, (n + 1) * p->n_key / splits, part);
        attn_merge_f32(o, &lse, part, more, p->d_value);
        for (int64_t c = 0; how == PARTIALS && c < p->d_value; c++)
            o[c] = to_bf16(o[c], 1);
    }
    int64_t to = attn_offset(t->o.stride, at[0], at[1], at[2]);
    for (int64_t c = 0; c < p->d_value; c++)
        ((float *)t->o.data)[to + c * t->o.stride[3]] = o[c];
    ((float *)t->lse.data)[attn_offset(t->lse.stride, at[0], at[1], at[2])] = lse;
}

static enum attn_status faulty_forward(struct attn_ctx *ctx, const struct attn_problem *p,
                                       const struct attn_forward *t)
{
    if (p->n_key > KEYS || p->d_value > WIDTH)
        return attn_fail(ctx->error, ATTN_ENOTSUP, "the toy has room for %d keys", (int)KEYS);
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t i = 0; i < p->n_query; i++)
                faulty_row(p, ctx->options, t, (const int64_t[]){b, h, i});
    return ATTN_OK;
}

static enum attn_status faulty_cost(const struct attn_problem *p,
                                    const struct attn_options *options, enum attn_pass pass,
                                    int rank, struct attn_cost *cost, struct attn_error *err)
{
    (void)p, (void)options, (void)pass, (void)rank, (void)cost, (void)err;
    return ATTN_OK; /* nothing of the ledger's */
}

static int64_t faulty_merges(const struct attn_problem *p, const struct attn_options *options)
{
    (void)p;
    return options->value[OPTION_SPLITS] - 1;
}

static void faulty_precision(const struct attn_problem *p, const struct attn_options *options,
                             struct attn_precision *x)
{
    (void)p;
    int64_t how = options->value[OPTION_HOW];
    x->u_p =
        how == TRUNCATED || how == PRODUCTS ? 0x1p-7 : 0x1p-8; /* cutting loses twice as much */
}

static const struct attn_impl toy = {.name = "toy",
                                     .summary = "16-bit P, right or wrong",
                                     .family = "test",
                                     .caps = ATTN_CAP_F32 | ATTN_CAP_GQA | ATTN_CAP_CROSS |
                                             ATTN_CAP_DV | ATTN_CAP_MASK,
                                     .options = faulty_options,
                                     .merges = faulty_merges,
                                     .cost = faulty_cost,
                                     .forward = faulty_forward,
                                     .precision = faulty_precision};

static struct attn_spec faulty_at(enum faulty_how how)
{
    struct attn_spec spec = {.impl = &toy};
    attn_options_preset(&toy, &spec.options);
    spec.options.value[OPTION_HOW] = how;
    return spec;
}

/* ---- grade ----------------------------------------------------------------------------------- */

/* Sign-random data, and an honest order: A.  Other data: no grade. */
START_TEST(honest_is_a)
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
END_TEST

/* An error that is worse than chance and no worse than T1 is a B, and still a pass. */
START_TEST(slow_sums_are_b)
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
END_TEST

/* T2 is never above T1, and is T1 where sums are short. */
START_TEST(likely_is_no_more_than_worst)
{
    for (double n = 1; n < 1e6; n *= 1.7) {
        double worst = attn_sum_error(n, 0x1p-24, 0);
        double likely = attn_sum_error(n, 0x1p-24, ATTN_GRADE_LAMBDA);
        ck_assert(worst == attn_gamma(n, 0x1p-24));
        ck_assert(likely <= worst);
        ck_assert((likely < worst) == (n > ATTN_GRADE_LAMBDA * ATTN_GRADE_LAMBDA));
    }
}
END_TEST

/* ---- bias ------------------------------------------------------------------------------------ */

static const char *const positive[] = {"b4h4g2q60k64d8:none:f32:ones:s%d",
                                       "b4h4g2q60k70d16:none:f32:ties:s%d"};

/* P in bf16 and its sum in float, rounded to nearest: no bias, whatever the seed. */
START_TEST(nearest_does_not_lean)
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
END_TEST

/* The same cut to bf16, and products cut where P holds exact ones: T1 has nothing to say, the bias
 * has. */
START_TEST(truncated_leans)
{
    struct attn_spec spec = faulty_at(_i == 0 ? TRUNCATED : PRODUCTS);
    for (int seed = 0; seed < 5; seed++) {
        char text[128];
        snprintf(text, sizeof text, positive[_i], 100 + seed);
        struct attn_result r = result_of(&spec, text);
        ck_assert_msg(r.verdict == ATTN_FAILED && r.failure == ATTN_F_BIAS, "%s: %s %s", text,
                      attn_verdict_name(r.verdict), r.text);
        ck_assert(r.worst <= 1);
        ck_assert(r.grade.bias < -ATTN_BIAS_LIMIT);
    }
}
END_TEST

/* The cases of the quick tier that are there for it. */
START_TEST(quick_cases_show_it)
{
    static const char *const name[] = {"lean-ones", "lean-ties"};
    const struct attn_battery_case *c = attn_battery_find(name[_i]);
    struct attn_spec wrong = faulty_at(_i == 0 ? TRUNCATED : PRODUCTS), right = faulty_at(NEAREST);
    ck_assert_ptr_nonnull(c);
    ck_assert_ptr_eq(strstr(c->ids, _i == 0 ? "SN-09" : "SN-10"), c->ids);
    struct attn_result r = result_of(&right, c->text);
    ck_assert_msg(r.verdict == ATTN_PASS && r.grade.rows >= 80, "%s: %s", c->name, r.text);
    r = result_of(&wrong, c->text);
    ck_assert_msg(r.verdict == ATTN_FAILED && r.failure == ATTN_F_BIAS && r.worst <= 1, "%s: %s",
                  c->name, r.text);
}
END_TEST

/* ---- growth ---------------------------------------------------------------------------------- */

START_TEST(slope_is_least_squares)
{
    static const double parts[] = {1, 2, 4, 8}, line[] = {3, 6, 12, 24}, root[] = {1, 2, 1, 2};
    ck_assert(fabs(attn_growth_slope(parts, line, 4, 0) - 1) < 1e-12);
    ck_assert(fabs(attn_growth_slope(parts, root, 4, 0) - 0.2) < 1e-12);
    ck_assert(fabs(attn_growth_slope(parts, line, 4, 100)) < 1e-12); /* all below the floor */
}
END_TEST

static const char *const cut[] = {"ring", "ring:local=csr-textbook", "ulysses"};
static const enum honest_order order[] = {HONEST_FORWARD, HONEST_REVERSE, HONEST_PAIRWISE};

START_TEST(honest_growth_is_slow)
{
    double largest = 0;
    for (int n = 0; n < 6; n++) {
        struct attn_spec spec = {.impl = &variant_honest};
        struct attn_growth growth;
        struct attn_result r;
        attn_options_preset(&variant_honest, &spec.options);
        spec.options.value[HONEST_ORDER] = n < 3 ? 0 : order[n - 3];
        if (n < 3)
            spec = spec_of(cut[n]);
        attn_growth_run(&spec, 17 + 8 * (uint64_t)_i, &growth, &r);
        ck_assert_msg(r.verdict == ATTN_PASS, "%d: %s", n, r.text);
        ck_assert(growth.error[0][ATTN_O] > 0);
        ck_assert(r.is_growth && r.growth == growth.worst && attn_growth_applies(spec.impl));
        largest = fmax(largest, growth.worst);
    }
    ck_assert_msg(largest < 0.6 * ATTN_GROWTH_LIMIT, "close to the limit: %g", largest);
    printf("honest growth, seed %d: largest slope %.2f of %d specs\n", 17 + 8 * _i, largest, 6);
    fflush(stdout);
}
END_TEST

START_TEST(rounded_partials_grow)
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
END_TEST

Suite *suite_grade(void)
{
    Suite *suite = suite_create("grade");
    TCase *cases = tcase_create("grade");
    tcase_set_timeout(cases, 120);
    tcase_add_test(cases, honest_is_a);
    tcase_add_test(cases, slow_sums_are_b);
    tcase_add_test(cases, likely_is_no_more_than_worst);
    tcase_add_loop_test(cases, nearest_does_not_lean, 0, 2);
    tcase_add_loop_test(cases, truncated_leans, 0, 2);
    tcase_add_loop_test(cases, quick_cases_show_it, 0, 2);
    tcase_add_test(cases, slope_is_least_squares);
    tcase_add_loop_test(cases, honest_growth_is_slow, 0, 3);
    tcase_add_test(cases, rounded_partials_grow);
    suite_add_tcase(suite, cases);
    return suite;
}
