/* Sets of arithmetic (tests/harness/bound/arithmetic.def): honest code of each is never flagged,
 * and what is wrong still is. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/problem.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/harness/cases/claims.h"
#include "tests/harness/judge/runner.h"
#include "tests/suites.h"
#include "tests/variants/honest.h"

/* Largest error/bound by set; shared with the children in which tests run. */
static struct worst {
    double ratio;
    long passed, weak;
    char text[ATTN_CASE_TEXT];
} * worst;

static void share_worst(void)
{
    worst = test_shared(HONEST_ARITHMETICS * sizeof *worst);
}

SUITE(arithmetic, .prepare = share_worst);

/* In the place of plain arithmetic, which the battery has: the textbook that stores 16 bits. */
static struct attn_spec spec_of_set(int set)
{
    return set == HONEST_PLAIN ? spec_of("dense:scores=storage")
                               : honest_spec((enum honest_arithmetic)set);
}

/* Judge a case on every set that takes its type. */
static void run_sets(const struct attn_case *c, const char *text)
{
    struct attn_setup setup;
    if (attn_setup_open(c, &setup, NULL) != ATTN_OK) { /* a count that eight bits cannot hold */
        ck_assert_msg(c->fill == ATTN_FILL_REVEAL, "%s", text);
        return;
    }
    attn_setup_keep(&setup);
    setup.unweighed = 1;
    for (int set = HONEST_PLAIN; set < HONEST_ARITHMETICS; set++) {
        const struct attn_spec spec = spec_of_set(set);
        struct attn_result r;
        if (!(spec.impl->caps >> c->dtype & 1) || (set == HONEST_PLAIN && c->dtype < ATTN_BF16))
            continue;
        attn_run_setup(&spec, &setup, NULL, &r);
        ck_passed(&spec, c, &r, 1);
        worst[set].passed += r.verdict == ATTN_PASS;
        worst[set].weak += r.verdict == ATTN_WEAK;
        if (r.worst > worst[set].ratio) {
            worst[set].ratio = r.worst;
            snprintf(worst[set].text, sizeof worst[set].text, "%s", text);
        }
    }
    attn_setup_close(&setup);
}

static int is_full(void)
{
    return getenv("ATTN_FULL") != NULL;
}

/* The battery in each type; a slice of it, if not all is asked for. */
enum { SLICES = 16 };
TEST_EACH(honest_sets_on_the_battery, SLICES)
{
    for (int i = _i; i < attn_battery_count(ATTN_TIER_QUICK); i += SLICES)
        for (int dtype = ATTN_F32; dtype <= ATTN_F16; dtype++) {
            struct attn_case c = case_of(attn_battery_at(i)->text);
            if (!is_full() && (i / SLICES + dtype + _i) % 16 != 0)
                continue;
            c.dtype = (enum attn_dtype)dtype;
            run_sets(&c, attn_battery_at(i)->name);
        }
}

/* Random seeds on the fills that are hardest on arithmetic, and on those that models have. */
TEST_EACH(honest_sets_on_seeds, 4)
{
    static const char *const fill[] = {"normal",  "offset-120", "offset-3e5",  "stairs-up",
                                       "cliffs",  "ties",       "stairs-down", "hetero",
                                       "huge",    "spike",      "sink",        "outliers",
                                       "growing", "rows",       "loud",        "scales"};
    static const char *const more[] = {"", ":softcap=20", ":scale=1.5", ":bias=alibi", ":bias=inf"};
    static const char *const mask[] = {"none", "causal(br)", "window(9,2,br)", "random(0.5,7)"};
    for (int dtype = ATTN_F32; dtype <= ATTN_F16; dtype++)
        for (int seed = 0; seed < COUNT(fill); seed++) {
            char line[256];
            snprintf(line, sizeof line, "b2h4g2q%dk%dd%d:%s:%s:%s:s%d%s:pass=bwd", 24 + seed,
                     40 - 4 * (seed % 4), 16 + 8 * _i, mask[(seed + _i) % 4],
                     attn_dtype_name((enum attn_dtype)dtype), fill[seed], 100 * _i + seed,
                     more[(seed + _i) % 5]);
            const struct attn_case c = case_of(line);
            if (is_full() || (seed + 5 * dtype + 4 * _i) % 16 < 2)
                run_sets(&c, line);
        }
}

/* q is far below the subnormals of f16 and k far above its range: the bound of such sums has
 * overflowed to a NaN, and honest gradients are infinite. */
TEST(sums_whose_bound_overflows)
{
    static const char *const text = "h2q9k21d8v6:none:bf16:faint:s1:pass=bwd";
    const struct attn_case c = case_of(text);
    run_sets(&c, text);
}

/* Runs after the above, and says what they came to. */
TEST(honest_sets_are_judged)
{
    for (int set = HONEST_PLAIN; set < HONEST_ARITHMETICS; set++) {
        const struct attn_spec spec = spec_of_set(set);
        char text[128];
        attn_spec_print(&spec, text, sizeof text);
        printf("honest runs, %s: %ld, no false alarm (%ld weak); largest error/bound %.3g: %s\n",
               text, worst[set].passed, worst[set].weak, worst[set].ratio, worst[set].text);
        ck_assert_int_gt(worst[set].passed, 20);
        ck_assert(worst[set].ratio > 0.2); /* else the bound is of no use */
    }
    fflush(stdout);
}

/* ---- and what is wrong still is -------------------------------------------------------------- */

/* Multiply all rows of a tensor, or the first half of them. */
static void multiply(struct attn_tensor *t, double factor, int half)
{
    const int64_t extent[4] = {t->extent[0], t->extent[1], t->extent[2] / (1 + half), t->extent[3]};
    for (int64_t at[4] = ATTN_START; attn_each(at, extent);)
        attn_tensor_set(t, at[0], at[1], at[2], at[3],
                        factor * attn_tensor_get(t, at[0], at[1], at[2], at[3]));
}

/* Faults of kinds that shipped, of which rounding excuses none in any set (but in f16 sums). */
enum fault {
    SOUND,
    SCALE_BY_D,
    NO_SOFTCAP,
    ALIBI_BY_ONE,
    HALF_STALE,
    BASE_2,
    DQ_RAW,
    DK_MEAN,
    FAULTS
};
TEST_EACH(faults_fail_in_every_set, FAULTS)
{
    for (int run = ATTN_DTYPES; run < HONEST_F16_SUMS * ATTN_DTYPES; run++) {
        int set = run / ATTN_DTYPES, dtype = run % ATTN_DTYPES;
        const struct attn_spec spec = honest_spec((enum honest_arithmetic)set);
        char line[256];
        struct running x;
        struct attn_result r = {0};
        struct attn_precision declared;
        if (!(spec.impl->caps >> dtype & 1) || dtype == ATTN_F64)
            continue;
        snprintf(line, sizeof line, "h4g2q16k24d16:none:%s:normal:s3:pass=bwd%s",
                 attn_dtype_name((enum attn_dtype)dtype),
                 _i == NO_SOFTCAP     ? ":softcap=2"
                 : _i == ALIBI_BY_ONE ? ":bias=alibi"
                                      : "");
        running_open(&x, &spec, line);
        const struct attn_problem right = x.setup.problem;
        struct attn_tensor *t = x.setup.tensor;
        attn_precision_of(spec.impl, &spec.options, &right, &declared);
        x.setup.problem.scale *= _i == SCALE_BY_D ? right.scale : 1;
        x.setup.problem.softcap *= _i != NO_SOFTCAP;
        x.setup.problem.bias.offset += _i == ALIBI_BY_ONE;
        multiply(&t[ATTN_T_V], _i == HALF_STALE ? 0.75 : 1, 1); /* a sum that is not rescaled */
        running_well(&x, ATTN_FORWARD);
        running_well(&x, ATTN_BACKWARD);
        multiply(&t[ATTN_T_V], _i == HALF_STALE ? 4.0 / 3 : 1, 1);
        multiply(&t[ATTN_T_LSE], _i == BASE_2 ? 1.4426950408889634 : 1, 0);
        multiply(&t[ATTN_T_DQ], _i == DQ_RAW ? 1 / right.scale : 1, 0);
        multiply(&t[ATTN_T_DK], _i == DK_MEAN ? 0.5 : 1, 0); /* of a group, not the sum */
        x.setup.problem = right;
        attn_judge(&x.setup, &declared, NULL, ATTN_BACKWARD, &r);
        ck_assert_msg(r.verdict == (_i == SOUND ? ATTN_PASS : ATTN_FAILED), "fault %d, set %d: %s",
                      _i, set, line);
        running_close(&x);
    }
}

/* Wrong by little: P cut to bf16 fails in every set, by what bf16 itself rounds as well, for its
 * errors lean.  Products cut to bf16, and O in bf16 after each merge, fail where a set has more
 * digits than bf16; tf32's have three more, and its operands six roundings. */
TEST_EACH(little_wrongs, 3)
{
    static const struct {
        int64_t option, value, splits;
        unsigned dies; /* by type */
        const char *text;
    } little[3] = {
        {HONEST_P, HONEST_CUT, 1, ~0u, "b2h4g2q60k40d8:none:%s:ones:s1"},
        {HONEST_P, HONEST_PRODUCTS, 1, ~(1u << ATTN_BF16), "b2h4g2q60k40d8:none:%s:ones:s1"},
        {HALF_SUM, HALF_SUM_BF16, 7, 1u << ATTN_F16, "h4g2q30k70d8:none:%s:normal:s1"},
    };
    for (int run = ATTN_DTYPES; run < HONEST_F16_SUMS * ATTN_DTYPES; run++) {
        int set = run / ATTN_DTYPES, dtype = run % ATTN_DTYPES;
        struct attn_spec spec = honest_spec((enum honest_arithmetic)set);
        char line[128];
        if (!(spec.impl->caps >> dtype & 1) || dtype == ATTN_F64)
            continue;
        spec.options.value[little[_i].option] = little[_i].value;
        spec.options.value[HONEST_SPLITS] = little[_i].splits;
        snprintf(line, sizeof line, little[_i].text, attn_dtype_name((enum attn_dtype)dtype));
        ck_assert_msg(result_of(&spec, line).verdict ==
                          (little[_i].dies >> dtype & 1 ? ATTN_FAILED : ATTN_PASS),
                      "set %d: %s", set, line);
    }
}

/* ---- the table ------------------------------------------------------------------------------- */

/* A word says as much as its numbers, in the types that it is for; a number beside it wins. */
TEST(words_and_numbers)
{
    static const char *const text[] = {
        "{\"claims\": [\"f16\"], \"arithmetic\": \"fused-16\"}",
        ("{\"claims\": [\"f16\"], \"u_sum\": 2.384185791015625e-07, \"u_p\": 0.00048828125, "
         "\"u_ds\": 0.00048828125, \"u_head\": 0.00048828125, \"exp_ulps\": 8, \"block\": 16}"),
        "{\"claims\": [\"f16\"], \"arithmetic\": \"tf32\", \"u_q\": 0.0004, \"block\": 64}"};
    for (int dtype = 0; dtype < ATTN_DTYPES; dtype++) {
        struct attn_precision x[COUNT(text)], plain;
        struct attn_case c = case_of("h2q8k100d16:none:f32:normal:s1");
        struct attn_problem p;
        struct attn_claims claims = {0};
        c.dtype = (enum attn_dtype)dtype;
        attn_case_problem(&c, &p);
        attn_claims_precision(&claims, &p, &plain);
        for (int n = 0; n < COUNT(text); n++) {
            ck_assert_int_eq(attn_claims_parse("text", text[n], &claims, NULL), ATTN_OK);
            attn_claims_precision(&claims, &p, &x[n]);
        }
        x[0].leans = x[1].leans = 0;
        ck_assert(memcmp(&x[0], &x[1], sizeof *x) == 0 || dtype != ATTN_F16);
        ck_assert_int_eq(memcmp(&x[0], &plain, sizeof *x) == 0, dtype <= ATTN_F32);
        ck_assert(x[2].u_q == (dtype == ATTN_F64 ? 0 : 0.0004));
        ck_assert(x[2].u_v == (dtype == ATTN_F64 ? 0 : 0x1p-10));
        ck_assert_int_eq(x[2].rescales, 2);
        ck_assert(x[0].overflow == (dtype == ATTN_F16 ? 65520 : 0) && x[2].overflow == 0);
    }
}

/* Honest code that passes by what it declares, and fails with less. */
static const struct {
    const char *with, *without, *text;
    int64_t arithmetic, sum, splits;
} needed[] = {
    {"\"arithmetic\": \"fa4\"", "\"arithmetic\": \"fused-16\"", "h2q17k7d2:none:f16:normal:s3",
     HONEST_FA4, HALF_SUM_FLOAT, 1},
    {"\"u_dp\": 4.9e-4", "\"u_dp\": 0", "h2q17k70d8:none:f16:normal:s3:pass=bwd:wide=1", HONEST_DP,
     HALF_SUM_FLOAT, 1},
    {"\"u_partial\": 4.9e-4, \"splits\": 7", "\"splits\": 7", "h2q17k70d16:none:f16:normal:s3",
     HONEST_PLAIN, HALF_SUM_SPLITS, 7},
};

TEST_EACH(declarations_are_needed, 2 * COUNT(needed))
{
    const int n = _i / 2, less = _i % 2;
    struct attn_spec spec = honest_spec((enum honest_arithmetic)needed[n].arithmetic);
    struct attn_claims claims;
    struct attn_precision declared;
    struct attn_result r = {0};
    struct running x;
    char json[200];
    spec.options.value[HALF_SUM] = needed[n].sum;
    spec.options.value[HONEST_SPLITS] = needed[n].splits;
    snprintf(json, sizeof json, "{\"claims\": [\"f16\"], %s}",
             less ? needed[n].without : needed[n].with);
    ck_assert_int_eq(attn_claims_parse("text", json, &claims, NULL), ATTN_OK);
    running_open(&x, &spec, needed[n].text);
    for (int pass = 0; pass <= (int)x.setup.given.pass; pass++)
        running_well(&x, (enum attn_pass)pass);
    attn_claims_precision(&claims, &x.setup.problem, &declared);
    attn_judge(&x.setup, &declared, NULL, x.setup.given.pass, &r);
    ck_assert_msg(r.verdict == (less ? ATTN_FAILED : ATTN_PASS), "%s: %g %s", json, r.worst,
                  r.text);
    running_close(&x);
}

static int no_forward(const struct attn_plugin_call *call)
{
    (void)call;
    return ATTN_PLUGIN_FAILED;
}

/* A plug-in that was built before there were words has none. */
TEST(words_of_plugins)
{
    struct attn_plugin plugin = {
        .claims = ATTN_CAP_BF16, .forward = no_forward, .arithmetic = "unfused-16"};
    struct attn_claims claims;
    struct attn_error err = {0};
    ck_assert_int_eq(attn_claims_of_plugin(&plugin, &claims, &err), ATTN_OK);
    ck_assert_str_eq(attn_arithmetic[claims.arithmetic].word, "unfused-16");
    plugin.arithmetic = NULL;
    ck_assert_int_eq(attn_claims_of_plugin(&plugin, &claims, &err), ATTN_OK);
    ck_assert_int_eq(claims.arithmetic, 0);
    plugin.arithmetic = "fast";
    ck_assert_int_eq(attn_claims_of_plugin(&plugin, &claims, &err), ATTN_EINVAL);
    ck_assert_str_eq(err.text, "arithmetic \"fast\" does not exist; there are: f32 fused-16 "
                               "fa4 unfused-16 tf32");
    plugin.arithmetic = NULL;
    plugin.u_dp = plugin.u_sum = 0.25, plugin.splits = 3, plugin.hidden = 32768;
    ck_assert_int_eq(attn_claims_of_plugin(&plugin, &claims, &err), ATTN_OK);
    ck_assert(claims.u_dp == 0.25 && claims.u_sum == 0.25 && claims.u_s == 0);
    ck_assert(claims.splits == 3 && claims.hidden == 32768);
    plugin.u_head = 0.5;
    ck_assert_int_eq(attn_claims_of_plugin(&plugin, &claims, &err), ATTN_EINVAL);
    ck_assert_str_eq(err.text, "it declares u_head = 0.5: from 0, below 0.5");
}
