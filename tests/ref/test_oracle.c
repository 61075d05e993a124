/* The oracle, which judges all others, on sums so long that plain ones would lose many roundings.
 * test_golden.c holds it against arbitrary precision. */
#include "tests/suites.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ref/oracle/oracle.h"
#include "ref/problem.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/harness/base/fill.h"

SUITE(oracle);

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

/* ---- rows that are worked out together ------------------------------------------------------ */

static const char *const together[] = {
    "h2q37k41d5v3:causal(br):f32:normal:s1:pass=bwd",
    "b2h4g2q35k70d9v6:window(9,3,br):bf16:ties:s2:pass=bwd:softcap=2:bias=inf:dlse=1",
    "h2q33k34d17v20:random(0.4,3):f64:normal:s3:pass=bwd:bias=alibi",
    "h2q40k33d8:documents(3x9,0x4,30x0,7x20):f16:huge:s4:pass=bwd",
};

static void ck_row(const struct attn_truth_tensor *all, const struct attn_truth_tensor *one,
                   int64_t i, const char *text)
{
    const double *const parts[3][2] = {
        {all->want, one->want}, {all->bound, one->bound}, {all->gauge, one->gauge}};
    int64_t width = all->extent[3];
    for (int64_t bh = 0; bh < all->extent[0] * all->extent[1]; bh++)
        for (int part = 0; part < 3; part++)
            ck_assert_msg(memcmp(parts[part][0] + (bh * all->extent[2] + i) * width,
                                 parts[part][1] + bh * width, (size_t)width * sizeof(double)) == 0,
                          "%s: %s of row %lld", text, all->name, (long long)i);
}

/* A row's value, bound and gauge do not depend on the rows beside it, to the bit. */
TEST_EACH(rows_alone_and_together, COUNT(together))
{
    const struct attn_spec spec = spec_of("tiled");
    struct attn_setup setup;
    struct attn_truth all, one;
    setup_of(together[_i], &setup);
    truth_of(&setup, &spec, NULL, &all);
    for (int64_t i = 0; i < setup.problem.n_query; i++) {
        const struct attn_sample alone = {1, 0, &i, &i};
        truth_of(&setup, &spec, &alone, &one);
        for (int o = ATTN_O; o <= ATTN_DQ; o++)
            ck_row(&all.tensor[o], &one.tensor[o], i, together[_i]);
        attn_truth_free(&one);
    }
    attn_truth_free(&all);
    attn_setup_close(&setup);
}

/* dV is the compensated sum over queries in their order, to the bit. */
TEST(sums_over_rows_keep_their_order)
{
    enum { QUERIES = 67, KEYS = 5, WIDTH = 6 };
    struct attn_setup setup;
    struct attn_oracle_row row;
    double sum[KEYS * WIDTH] = {0}, lost[KEYS * WIDTH] = {0};
    setup_of("q67k5d3v6:none:f32:normal:s5:pass=bwd", &setup);
    const struct attn_inputs in = attn_setup_inputs(&setup, ATTN_BACKWARD);
    ck_assert_int_eq(attn_oracle_row_alloc(&setup.problem, &row, NULL), ATTN_OK);
    for (int64_t i = 0; i < QUERIES; i++) {
        attn_oracle_row_forward(&setup.problem, &in.q, &in.k, &in.v, 0, 0, i, &row);
        for (int n = 0; n < KEYS * WIDTH; n++) {
            double x = row.p[n / WIDTH] * attn_cview_get(&in.d_o, 0, 0, i, n % WIDTH);
            double s = sum[n] + x, y = s - sum[n];
            lost[n] += (sum[n] - (s - y)) + (x - y);
            sum[n] = s;
        }
    }
    struct attn_truth truth = oracle(&setup);
    for (int n = 0; n < KEYS * WIDTH; n++)
        ck_assert_double_eq(truth.tensor[ATTN_DV].want[n], sum[n] + lost[n]);
    attn_truth_free(&truth);
    attn_oracle_row_free(&row);
    attn_setup_close(&setup);
}
