/* The statistics behind the figures, against values worked out by hand and printed tables. */
#include <math.h>

#include "experiments/measure/stats.h"
#include "tests/suites.h"

static void near(double got, double want, double tolerance)
{
    ck_assert_msg(fabs(got - want) <= tolerance, "%.17g instead of %.17g", got, want);
}

/* ---- order statistics ---------------------------------------------------------------------- */

/* R: quantile(c(1, 2, 3, 4)) is 1.00 1.75 2.50 3.25 4.00 (type 7). */
START_TEST(spread_is_type_7)
{
    double x[] = {4, 1, 3, 2};
    struct attn_spread spread;
    attn_stats_spread(x, 4, &spread);
    near(spread.min, 1, 0);
    near(spread.quarter, 1.75, 1e-15);
    near(spread.median, 2.5, 0);
    near(spread.three_quarters, 3.25, 1e-15);
    near(spread.max, 4, 0);
    ck_assert_int_eq(spread.n, 4);
    near(x[0], 1, 0); /* sorted, as the header says */
}
END_TEST

/* R: quantile(c(7, 15, 36, 39, 40, 41)) is 7.00 20.25 37.50 39.75 41.00. */
START_TEST(spread_of_a_textbook_sample)
{
    double x[] = {41, 7, 40, 15, 39, 36};
    struct attn_spread spread;
    attn_stats_spread(x, 6, &spread);
    near(spread.quarter, 20.25, 1e-14);
    near(spread.median, 37.5, 0);
    near(spread.three_quarters, 39.75, 1e-14);
}
END_TEST

START_TEST(spread_of_one_and_of_none)
{
    double x[] = {5};
    struct attn_spread spread;
    attn_stats_spread(x, 1, &spread);
    near(spread.min, 5, 0);
    near(spread.quarter, 5, 0);
    near(spread.median, 5, 0);
    near(spread.max, 5, 0);
    attn_stats_spread(x, 0, &spread);
    ck_assert(isnan(spread.median) && isnan(spread.min) && isnan(spread.max));
    ck_assert_int_eq(spread.n, 0);
}
END_TEST

/* ---- bootstrap ----------------------------------------------------------------------------- */

/* Of two numbers 0 and 1 a resample's median is 0, 1/2, 1 with probability 1/4, 1/2, 1/4: the
 * middle 95 % reach both ends, the middle 40 % only the half. */
START_TEST(bootstrap_of_two)
{
    const double x[] = {1, 0};
    struct attn_interval interval;
    ck_assert_int_eq(attn_stats_bootstrap_median(x, 2, 4000, 1, 0.95, &interval), 0);
    near(interval.low, 0, 0);
    near(interval.high, 1, 0);
    ck_assert_int_eq(attn_stats_bootstrap_median(x, 2, 4000, 1, 0.40, &interval), 0);
    near(interval.low, 0.5, 0);
    near(interval.high, 0.5, 0);
}
END_TEST

/* The median of five is at most the smallest with probability P(at least 3 of 5 draws are the
 * smallest) = 0.0579, so the 2.5 % point is the smallest and the 10 % point is not.  At most
 * the second smallest: P(Bin(5, 2/5) >= 3) = 0.317. */
START_TEST(bootstrap_of_five)
{
    const double x[] = {10, 20, 30, 40, 50};
    struct attn_interval interval;
    ck_assert_int_eq(attn_stats_bootstrap_median(x, 5, 20000, 7, 0.95, &interval), 0);
    near(interval.low, 10, 0);
    near(interval.high, 50, 0);
    ck_assert_int_eq(attn_stats_bootstrap_median(x, 5, 20000, 7, 0.80, &interval), 0);
    near(interval.low, 20, 0);
    near(interval.high, 40, 0);
}
END_TEST

START_TEST(bootstrap_repeats_and_refuses)
{
    const double x[] = {3.1, 4.1, 5.9, 2.6, 5.3, 5.8, 9.7};
    struct attn_interval a, b;
    ck_assert_int_eq(attn_stats_bootstrap_median(x, 7, 500, 42, 0.9, &a), 0);
    ck_assert_int_eq(attn_stats_bootstrap_median(x, 7, 500, 42, 0.9, &b), 0);
    near(a.low, b.low, 0);
    near(a.high, b.high, 0);
    ck_assert(a.low <= 5.3 && a.high >= 5.3); /* the sample's median */
    ck_assert_int_eq(attn_stats_bootstrap_median(x, 1, 500, 42, 0.9, &a), -1);
    ck_assert(isnan(a.low) && isnan(a.high));
}
END_TEST

/* ---- power laws ---------------------------------------------------------------------------- */

/* Printed in every table of Student's distribution. */
START_TEST(student_table)
{
    near(attn_stats_t95(1), 12.706, 5e-4);
    near(attn_stats_t95(2), 4.303, 5e-4);
    near(attn_stats_t95(3), 3.182, 5e-4);
    near(attn_stats_t95(10), 2.228, 5e-4);
    near(attn_stats_t95(1000000), 1.960, 5e-4);
    ck_assert(isnan(attn_stats_t95(0)));
}
END_TEST

START_TEST(power_of_an_exact_square)
{
    const double x[] = {256, 512, 1024, 2048}, y[] = {3e4, 12e4, 48e4, 192e4};
    struct attn_power power;
    ck_assert_int_eq(attn_stats_power(x, y, 4, &power), 0);
    near(power.slope, 2, 1e-12);
    near(power.factor, 3e4 / (256.0 * 256.0), 1e-9);
    near(power.interval.low, 2, 1e-6);
    near(power.interval.high, 2, 1e-6);
    near(power.worst, 0, 1e-12);
    ck_assert_int_eq(power.n, 4);
}
END_TEST

/* By hand: (ln x, ln y) = (0,0), (1,1), (2,3).  Slope 3/2, constant -1/6, residuals 1/6, -1/3, 1/6,
 * their squares 1/6 on 1 degree of freedom, Sxx = 2: the slope's standard error is
 * sqrt(1/12), its 95 % half width 12.7062 sqrt(1/12) = 3.66796. */
START_TEST(power_by_hand)
{
    const double x[] = {1, exp(1), exp(2)}, y[] = {1, exp(1), exp(3)};
    struct attn_power power;
    ck_assert_int_eq(attn_stats_power(x, y, 3, &power), 0);
    near(power.slope, 1.5, 1e-12);
    near(log(power.factor), -1.0 / 6, 1e-12);
    near(power.interval.high - power.slope, 3.66796, 1e-4);
    near(power.slope - power.interval.low, 3.66796, 1e-4);
    near(power.worst, 1.0 / 3, 1e-12);
}
END_TEST

START_TEST(power_refuses)
{
    const double x[] = {1, 2, 4}, same[] = {2, 2, 2}, y[] = {1, 2, 4};
    const double zero[] = {1, 0, 4}, negative[] = {1, -2, 4}, nan[] = {1, (double)NAN, 4},
                 inf[] = {1, 2, (double)INFINITY};
    struct attn_power power;
    ck_assert_int_eq(attn_stats_power(x, y, 2, &power), -1);
    ck_assert_int_eq(attn_stats_power(x, y, 0, &power), -1);
    ck_assert_int_eq(attn_stats_power(same, y, 3, &power), -1);
    ck_assert_int_eq(attn_stats_power(x, zero, 3, &power), -1);
    ck_assert_int_eq(attn_stats_power(x, negative, 3, &power), -1);
    ck_assert_int_eq(attn_stats_power(x, nan, 3, &power), -1);
    ck_assert_int_eq(attn_stats_power(x, inf, 3, &power), -1);
    ck_assert(isnan(power.slope) && isnan(power.interval.low));
}
END_TEST

START_TEST(upper_part_is_the_last_eighth)
{
    const double x[] = {256, 512, 1024, 2048, 4096, 8192, 16384};
    ck_assert_int_eq(attn_stats_upper(x, 7), 3); /* 2,048 to 16,384: four of a doubling */
    ck_assert_int_eq(attn_stats_upper(x, 4), 0);
    ck_assert_int_eq(attn_stats_upper(x, 1), 0);
    ck_assert_int_eq(attn_stats_upper(x, 0), 0);
}
END_TEST

/* ---- crossings ----------------------------------------------------------------------------- */

static int cross(const double *x1, const double *y1, int n1, const double *x2, const double *y2,
                 int n2, double *x, double *y)
{
    struct attn_curve a = {x1, y1, n1}, b = {x2, y2, n2};
    return attn_stats_crossing(&a, &b, x, y);
}

/* y = x^2 through its points at powers of two is exact in logarithms: it meets 9 at x = 3. */
START_TEST(crossing_between_points)
{
    const double x1[] = {1, 2, 4, 8}, y1[] = {1, 4, 16, 64}, x2[] = {1, 8}, y2[] = {9, 9};
    double x, y;
    ck_assert_int_eq(cross(x1, y1, 4, x2, y2, 2, &x, &y), 1);
    near(x, 3, 1e-12);
    near(y, 9, 1e-11);
    ck_assert_int_eq(cross(x2, y2, 2, x1, y1, 4, &x, &y), 1); /* in either order */
    near(x, 3, 1e-12);
}
END_TEST

/* y = x and y = 16 / x, with points at different places: they meet at 4. */
START_TEST(crossing_of_curves_with_their_own_points)
{
    const double x1[] = {1, 3, 10}, y1[] = {1, 3, 10}, x2[] = {0.5, 2, 5, 7},
                 y2[] = {32, 8, 3.2, 16.0 / 7};
    double x, y;
    ck_assert_int_eq(cross(x1, y1, 3, x2, y2, 4, &x, &y), 1);
    near(x, 4, 1e-12);
    near(y, 4, 1e-12);
}
END_TEST

START_TEST(crossing_at_the_ends)
{
    const double x1[] = {1, 2, 4}, y1[] = {1, 2, 4}, x2[] = {1, 4}, first[] = {1, 1},
                 last[] = {4, 4};
    double x, y;
    ck_assert_int_eq(cross(x1, y1, 3, x2, first, 2, &x, &y), 1);
    near(x, 1, 1e-15);
    ck_assert_int_eq(cross(x1, y1, 3, x2, last, 2, &x, &y), 1);
    near(x, 4, 1e-14);
    near(y, 4, 1e-14);
}
END_TEST

/* Never beyond what both curves cover: these would meet at 100. */
START_TEST(crossing_is_not_extrapolated)
{
    const double x1[] = {1, 10}, y1[] = {1, 10}, x2[] = {1, 10}, y2[] = {100, 100};
    const double x3[] = {20, 200}, y3[] = {5, 5};
    double x, y;
    ck_assert_int_eq(cross(x1, y1, 2, x2, y2, 2, &x, &y), 0);
    ck_assert(isnan(x) && isnan(y));
    ck_assert_int_eq(cross(x1, y1, 2, x3, y3, 2, &x, &y), 0); /* no common range */
    ck_assert_int_eq(cross(x1, y1, 0, x2, y2, 2, &x, &y), 0);
    ck_assert_int_eq(cross(x1, y1, 1, x2, y2, 1, &x, &y), 0);
}
END_TEST

/* The same abscissa twice is no division by zero. */
START_TEST(crossing_of_a_repeated_point)
{
    const double x1[] = {1, 1, 4}, y1[] = {1, 1, 4}, x2[] = {1, 4}, y2[] = {2, 2};
    double x, y;
    ck_assert_int_eq(cross(x1, y1, 3, x2, y2, 2, &x, &y), 1);
    near(x, 2, 1e-12);
}
END_TEST

Suite *suite_stats(void)
{
    Suite *suite = suite_create("stats");
    TCase *order = tcase_create("order"), *bootstrap = tcase_create("bootstrap"),
          *power = tcase_create("power"), *crossing = tcase_create("crossing");
    tcase_add_test(order, spread_is_type_7);
    tcase_add_test(order, spread_of_a_textbook_sample);
    tcase_add_test(order, spread_of_one_and_of_none);
    tcase_add_test(bootstrap, bootstrap_of_two);
    tcase_add_test(bootstrap, bootstrap_of_five);
    tcase_add_test(bootstrap, bootstrap_repeats_and_refuses);
    tcase_add_test(power, student_table);
    tcase_add_test(power, power_of_an_exact_square);
    tcase_add_test(power, power_by_hand);
    tcase_add_test(power, power_refuses);
    tcase_add_test(power, upper_part_is_the_last_eighth);
    tcase_add_test(crossing, crossing_between_points);
    tcase_add_test(crossing, crossing_of_curves_with_their_own_points);
    tcase_add_test(crossing, crossing_at_the_ends);
    tcase_add_test(crossing, crossing_is_not_extrapolated);
    tcase_add_test(crossing, crossing_of_a_repeated_point);
    TCase *const all[] = {order, bootstrap, power, crossing};
    for (int c = 0; c < 4; c++) {
        tcase_set_timeout(all[c], 60);
        suite_add_tcase(suite, all[c]);
    }
    return suite;
}
