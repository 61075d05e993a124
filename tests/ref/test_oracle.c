/* Who judges the judge: the oracle on sums so long that plain ones would lose many roundings.
 * test_golden.c holds it against arbitrary precision. */
#include "tests/suites.h"

#include <math.h>
#include <stdio.h>

#include "tests/fixtures/case_fixture.h"
#include "tests/harness/fill.h"

SUITE(oracle, .seconds = 60);

enum { LONG = 4096 };
static const double U = 0x1p-53; /* of double */

/* A case in one type, of one head: `text` has a %s for it.  Its inputs are drawn so that f32 holds
 * them exactly, and so the double and the long double oracle judge one problem; those of `positive`
 * have no sign, and are divided. */
static void open_case(const char *text, enum attn_dtype dtype, uint64_t seed, int positive,
                      double divided, struct attn_setup *setup)
{
    char whole[ATTN_CASE_TEXT];
    snprintf(whole, sizeof whole, text, attn_dtype_name(dtype));
    setup_of(whole, setup);
    for (int t = ATTN_T_Q; t < ATTN_T_O; t++)
        for (int64_t n = 0; n < setup->tensor[t].span; n++) {
            double x = (double)(float)attn_hash_normal(seed, (uint64_t)t, (uint64_t)n);
            attn_tensor_set(&setup->tensor[t], 0, 0, n, 0, t == positive ? fabs(x) / divided : x);
        }
}

static struct attn_truth oracle(const struct attn_setup *setup)
{
    const struct attn_spec dense = spec_of("dense");
    struct attn_truth truth;
    truth_of(setup, &dense, NULL, &truth);
    return truth;
}

static void ck_near(const char *what, double got, double want, double bound)
{
    ck_assert_msg(fabs(got - want) <= bound, "%s = %.17g, want %.17g: off by %.3g, %.3g is allowed",
                  what, got, want, fabs(got - want), bound);
}

/* A row of 4096 keys and V > 0: plain sums would lose about sqrt(4096) roundings, compensated
 * ones of runs of 32 lose a few.  The long double oracle stands for the truth. */
TEST(long_rows)
{
    static const char text[] = "q2k4096d1:none:%s:normal:s1:pass=bwd";
    static const enum attn_output output[] = {ATTN_O, ATTN_LSE, ATTN_DQ};
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct attn_setup setup[2];
        struct attn_truth truth[2];
        for (int wide = 0; wide < 2; wide++) {
            open_case(text, wide ? ATTN_F64 : ATTN_F32, seed, ATTN_T_V, 1, &setup[wide]);
            truth[wide] = oracle(&setup[wide]);
        }
        for (int n = 0; n < 6; n++) {
            const struct attn_truth_tensor *got = &truth[0].tensor[output[n / 2]];
            const struct attn_truth_tensor *want = &truth[1].tensor[output[n / 2]];
            double size = n < 4 ? 5 * fabs(want->want[n % 2]) : 0.5 * want->gauge[n % 2];
            ck_near(got->name, got->want[n % 2], want->want[n % 2], U * size);
        }
        for (int wide = 0; wide < 2; wide++) {
            attn_truth_free(&truth[wide]);
            attn_setup_close(&setup[wide]);
        }
    }
}

/* One key under 4096 queries: dV is the sum of all dO, to the last rounding. */
TEST(long_columns)
{
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct attn_setup setup;
        long double sum = 0;
        open_case("q4096k1d1:none:%s:normal:s1:pass=bwd", ATTN_F64, seed, ATTN_T_DO, 3, &setup);
        for (int64_t n = 0; n < LONG; n++)
            sum += (long double)attn_tensor_get(&setup.tensor[ATTN_T_DO], 0, 0, n, 0);
        struct attn_truth truth = oracle(&setup);
        ck_near("dv", truth.tensor[ATTN_DV].want[0], (double)sum, 3 * U * (double)sum);
        attn_truth_free(&truth);
        attn_setup_close(&setup);
    }
}
