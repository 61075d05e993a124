/* The oracle and the bounds against arbitrary precision (tests/golden/, made by MPFR).
 *
 * Masks first: the file's cells come from loops of the generator's own.  Then the oracle, in both
 * of its widths: how many units of rounding of what each element is made of is it away?  Then
 * soundness of T1 where it counts: the true error of honest code, not its distance to the oracle.
 * Whether T1 is of use, near which honest errors come, is asked of the battery.
 */
#include "tests/fixtures/case_fixture.h"
#include "tests/suites.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/problem.h"
#include "tests/fixtures/golden_fixture.h"
#include "tests/harness/runner.h"

SUITE(golden, .seconds = 120);

static const char *const specs[] = {"dense",
                                    "csr-textbook",
                                    "tiled-textbook",
                                    "tiled-textbook:br=4,bc=8",
                                    "tiled-textbook:br=1,bc=1",
                                    "tiled-textbook:br=3,bc=5",
                                    "ring:ranks=1",
                                    "ring:ranks=2",
                                    "ulysses:ranks=2",
                                    "ulysses:ranks=1,local=csr-textbook"};

/* |x - (hi + rest)|: the first difference is exact where it matters, near agreement. */
static double distance(double x, double hi, double rest)
{
    if (x == hi && !isfinite(hi))
        return 0; /* LSE of a query that sees nothing */
    return fabs((x - hi) - rest);
}

static void golden_truth(const struct golden *x, const struct attn_precision *precision,
                         struct attn_truth *truth)
{
    struct attn_error err = {0};
    ck_assert_msg(attn_truth_compute(&x->problem, &x->in, precision, NULL, truth, &err) == ATTN_OK,
                  "%s: %s", x->name, err.text);
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        const int64_t *n = truth->tensor[o].extent;
        ck_assert_msg((truth->tensor[o].want != NULL) == (x->want[o].n > 0), "%s: %s", x->name,
                      attn_output_name((enum attn_output)o));
        if (x->want[o].n > 0)
            ck_assert_int_eq(n[0] * n[1] * n[2] * n[3], x->want[o].n);
    }
}

/* ---- masks ---------------------------------------------------------------------------------- */

TEST_EACH(masks_mean_what_their_cells_say, golden_count())
{
    struct golden *x = golden_open(_i, 0);
    const struct attn_problem *p = &x->problem;
    int64_t n = 0;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t i = 0; i < p->n_query; i++)
                for (int64_t j = 0; j < p->n_key; j++)
                    ck_assert_msg(attn_problem_allows(p, b, h, i, j) == x->visible[n++],
                                  "%s: %s at %lld,%lld,%lld,%lld", x->name, attn_mask_text(x->mask),
                                  (long long)b, (long long)h, (long long)i, (long long)j);
    golden_close(x);
}

/* ---- the oracle ----------------------------------------------------------------------------- */

/* What the oracle may be away from the truth, in units of 2^-53 of the element's size (exact.c).
 * Measured: 3.8 0.9 0.4 0.4 1.1 0.9 in double (O of `flat`, 257 equal terms of which 32 at a time
 * are summed plainly), 0.3 0.5 0.2 0.3 0.6 0.2 in long double, whose results are rounded to
 * double once they are done: half a unit by itself. */
static const double allowed_double[ATTN_OUTPUTS] = {8, 2, 1, 1, 2, 2};
static const double allowed_long[ATTN_OUTPUTS] = {1, 1, 1, 1, 1, 1};

/* Where results are subnormal doubles: dS is handed on as a double, half a spacing (2^-1075) off;
 * times |q| <= 4 in each of 4 rows makes 8 spacings, 16 with room for the sums. */
static const double BOTTOM = 0x1p-1070;

TEST_EACH(oracle_meets_mpfr, 2)
{
    int wide = _i; /* 0: double, for the problems stored as f32; 1: long double, for all */
    double worst[ATTN_OUTPUTS] = {0};
    int64_t compared = 0;
    const double *allowed = wide && LDBL_MANT_DIG >= 64 ? allowed_long : allowed_double;
    struct attn_options none = {.threads = 1};
    for (int index = 0; index < golden_count(); index++) {
        struct golden *x = golden_open(index, wide);
        struct attn_precision precision;
        struct attn_truth truth;
        attn_precision_of(attn_impl_find("dense"), &none, &x->problem, &precision);
        golden_truth(x, &precision, &truth);
        for (int o = 0; o < ATTN_OUTPUTS && x->problem.dtype == (wide ? ATTN_F64 : ATTN_F32); o++)
            for (int64_t n = 0; n < x->want[o].n; n++, compared++) {
                double hi = x->want[o].hi[n], size = x->want[o].size[n];
                double off = distance(truth.tensor[o].want[n], hi, x->want[o].rest[n]);
                int ok = off <= allowed[o] * 0x1p-53 * size + BOTTOM;
                ck_assert_msg(ok, "%s: %s[%lld] = %a, want %a: off by %g u of its size", x->name,
                              truth.tensor[o].name, (long long)n, truth.tensor[o].want[n], hi,
                              off / (0x1p-53 * size));
                if (size > 0x1p-960 && off / (0x1p-53 * size) > worst[o])
                    worst[o] = off / (0x1p-53 * size);
            }
        attn_truth_free(&truth);
        golden_close(x);
    }
    printf("golden: the oracle in %s, %lld elements, largest error in 2^-53 of the size:",
           wide ? "long double" : "double", (long long)compared);
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        printf(" %s %.2f", attn_output_name((enum attn_output)o), worst[o]);
    printf("\n");
    ck_assert_int_gt(compared, 1000);
}

/* ---- T1 is sound ---------------------------------------------------------------------------- */

static double rounded(double hi, double rest, enum attn_dtype dtype)
{
    if (dtype == ATTN_F64)
        return hi;
    /* hi may lie half-way between two floats: rest decides then, by a nudge of hi */
    return (double)(float)(rest == 0 ? hi : nextafter(hi, rest > 0 ? HUGE_VAL : -HUGE_VAL));
}

struct reach {
    int runs, refused;
    double honest[ATTN_OUTPUTS], nearest[ATTN_OUTPUTS];
};

static double share(const struct golden *x, const char *who, int o, int64_t n, double got,
                    double bound)
{
    double off = distance(got, x->want[o].hi[n], x->want[o].rest[n]);
    int ok = off <= bound;
    ck_assert_msg(ok, "%s: %s: %s[%lld] = %a, want %a: off by %g, T1 is %g", x->name, who,
                  attn_output_name((enum attn_output)o), (long long)n, got, x->want[o].hi[n], off,
                  bound);
    return bound > 0 ? off / bound : 0;
}

static void check_bound(const struct golden *x, const char *text, struct reach *reach)
{
    struct golden_run run;
    struct attn_truth truth;
    struct attn_spec spec = spec_of(text);
    if (!golden_forward_backward(x, &spec, &run)) {
        reach->refused++;
        golden_drop(&run);
        return;
    }
    golden_truth(x, &run.precision, &truth);
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        for (int64_t n = 0; n < x->want[o].n; n++) {
            double bound = truth.tensor[o].bound[n];
            double best = rounded(x->want[o].hi[n], x->want[o].rest[n], run.dtype[o]);
            double honest = share(x, text, o, n, golden_got(&run, o, n), bound);
            double nearest = share(x, "the nearest number", o, n, best, bound);
            if (honest > reach->honest[o])
                reach->honest[o] = honest;
            if (nearest > reach->nearest[o])
                reach->nearest[o] = nearest;
        }
    reach->runs++;
    attn_truth_free(&truth);
    golden_drop(&run);
}

TEST_EACH(no_honest_error_exceeds_t1, COUNT(specs))
{
    struct reach reach = {0};
    for (int index = 0; index < golden_count(); index++)
        for (int wide = 0; wide < 2; wide++) {
            struct golden *x = golden_open(index, wide);
            check_bound(x, specs[_i], &reach);
            golden_close(x);
        }
    printf("golden: %s: %d runs (%d refused), largest true error / T1:", specs[_i], reach.runs,
           reach.refused);
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        printf(" %s %.2f", attn_output_name((enum attn_output)o), reach.honest[o]);
    printf("; of the correctly rounded result:");
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        printf(" %.2f", reach.nearest[o]);
    printf("\n");
    ck_assert_int_ge(reach.runs, 6); /* ranks refuse what they cannot split */
}
