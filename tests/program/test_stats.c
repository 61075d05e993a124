/* The statistics behind the figures, against values worked out by hand and printed tables. */
#include <gsl/gsl_randist.h>
#include <math.h>
#include <string.h>

#include "experiments/measure/stats.h"
#include "tests/suites.h"

SUITE(stats);

#define NONE (double)NAN

static void near(double got, double want, double tolerance)
{
    ck_assert_msg(fabs(got - want) <= tolerance || (isnan(got) && isnan(want)),
                  "%.17g instead of %.17g", got, want);
}

/* R: quantile(c(1, 2, 3, 4)) is 1.00 1.75 2.50 3.25 4.00 (type 7), quantile(c(7, 15, 36, 39, 40,
 * 41)) is 7.00 20.25 37.50 39.75 41.00. */
TEST(spread_is_type_7)
{
    static const struct {
        int n;
        double x[6], want[5];
    } sample[] = {{4, {4, 1, 3, 2}, {1, 1.75, 2.5, 3.25, 4}},
                  {6, {41, 7, 40, 15, 39, 36}, {7, 20.25, 37.5, 39.75, 41}},
                  {1, {5}, {5, 5, 5, 5, 5}},
                  {0, {0}, {NONE, NONE, NONE, NONE, NONE}}};
    for (size_t s = 0; s < sizeof sample / sizeof *sample; s++) {
        struct attn_spread spread;
        double x[6];
        memcpy(x, sample[s].x, sizeof x);
        attn_stats_spread(x, sample[s].n, &spread);
        const double got[] = {spread.min, spread.quarter, spread.median, spread.three_quarters,
                              spread.max};
        for (int q = 0; q < 5; q++)
            near(got[q], sample[s].want[q], 1e-14);
        ck_assert_int_eq(spread.n, sample[s].n);
        for (int i = 1; i < sample[s].n; i++)
            ck_assert(x[i - 1] <= x[i]); /* sorted, as the header says */
    }
}

/* Of two numbers 0 and 1 a resample's median is 0, 1/2, 1 with probability 1/4, 1/2, 1/4: the
 * middle 95 % reach both ends, the middle 40 % only the half.
 *
 * The median of five is at most the smallest with probability P(at least 3 of 5 draws are the
 * smallest) = 0.0579, so the 2.5 % point is the smallest and the 10 % point is not.  At most
 * the second smallest: P(Bin(5, 2/5) >= 3) = 0.317. */
TEST(bootstrap)
{
    static const double two[] = {1, 0}, five[] = {10, 20, 30, 40, 50},
                        seven[] = {3.1, 4.1, 5.9, 2.6, 5.3, 5.8, 9.7};
    static const struct {
        const double *x;
        int n;
        double level, low, high;
    } sample[] = {{two, 2, 0.95, 0, 1},
                  {two, 2, 0.40, 0.5, 0.5},
                  {five, 5, 0.95, 10, 50},
                  {five, 5, 0.80, 20, 40}};
    struct attn_interval a, b;
    for (size_t s = 0; s < sizeof sample / sizeof *sample; s++) {
        ck_assert_int_eq(
            attn_stats_bootstrap_median(sample[s].x, sample[s].n, 20000, 7, sample[s].level, &a),
            0);
        near(a.low, sample[s].low, 0);
        near(a.high, sample[s].high, 0);
    }
    ck_assert_int_eq(attn_stats_bootstrap_median(seven, 7, 500, 42, 0.9, &a), 0);
    ck_assert_int_eq(attn_stats_bootstrap_median(seven, 7, 500, 42, 0.9, &b), 0);
    ck_assert(a.low == b.low && a.high == b.high);
    ck_assert(a.low <= 5.3 && a.high >= 5.3); /* the sample's median */
    ck_assert_int_eq(attn_stats_bootstrap_median(seven, 1, 500, 42, 0.9, &a), -1);
    ck_assert(isnan(a.low) && isnan(a.high));
}

/* An exact square; and by hand: (ln x, ln y) = (0,0), (1,1), (2,3).  Slope 3/2, constant -1/6,
 * residuals 1/6, -1/3, 1/6, their squares 1/6 on 1 degree of freedom, Sxx = 2: the slope's standard
 * error is sqrt(1/12), its 95 % half width 12.7062 sqrt(1/12) = 3.66796. */
TEST(power_laws)
{
    const double square[] = {3e4, 12e4, 48e4, 192e4}, length[] = {256, 512, 1024, 2048};
    const double x[] = {1, exp(1), exp(2)}, y[] = {1, exp(1), exp(3)};
    struct attn_power power;
    ck_assert_int_eq(attn_stats_power(length, square, 4, &power), 0);
    near(power.slope, 2, 1e-12);
    near(power.factor, 3e4 / (256.0 * 256.0), 1e-9);
    near(power.interval.low, 2, 1e-6);
    near(power.interval.high, 2, 1e-6);
    near(power.worst, 0, 1e-12);
    ck_assert_int_eq(power.n, 4);
    ck_assert_int_eq(attn_stats_power(x, y, 3, &power), 0);
    near(power.slope, 1.5, 1e-12);
    near(log(power.factor), -1.0 / 6, 1e-12);
    near(power.interval.high - power.slope, 3.66796, 1e-4);
    near(power.slope - power.interval.low, 3.66796, 1e-4);
    near(power.worst, 1.0 / 3, 1e-12);
}

TEST(power_refuses)
{
    static const struct {
        int n;
        double x[3], y[3];
    } bad[] = {{2, {1, 2, 4}, {1, 2, 4}},
               {0, {1, 2, 4}, {1, 2, 4}},
               {3, {2, 2, 2}, {1, 2, 4}},
               {3, {1, 2, 4}, {1, 0, 4}},
               {3, {1, 2, 4}, {1, -2, 4}},
               {3, {1, 2, 4}, {1, NONE, 4}},
               {3, {1, 2, 4}, {1, 2, (double)INFINITY}}};
    for (size_t s = 0; s < sizeof bad / sizeof *bad; s++) {
        struct attn_power power;
        ck_assert_int_eq(attn_stats_power(bad[s].x, bad[s].y, bad[s].n, &power), -1);
        ck_assert(isnan(power.slope) && isnan(power.interval.low));
    }
}

TEST(upper_part_is_the_last_eighth)
{
    const double x[] = {256, 512, 1024, 2048, 4096, 8192, 16384};
    ck_assert_int_eq(attn_stats_upper(x, 7), 3); /* 2,048 to 16,384: four of a doubling */
    ck_assert_int_eq(attn_stats_upper(x, 4), 0);
    ck_assert_int_eq(attn_stats_upper(x, 1), 0);
    ck_assert_int_eq(attn_stats_upper(x, 0), 0);
}

static const struct {
    const char *what;
    int n1, n2;
    double x1[4], y1[4], x2[4], y2[4], x, y; /* NaN: they do not cross */
} crossings[] = {
    {"x^2 through its points is exact in logarithms: it meets 9 at 3",
     4,
     2,
     {1, 2, 4, 8},
     {1, 4, 16, 64},
     {1, 8},
     {9, 9},
     3,
     9},
    {"x and 16 / x, with points at different places",
     3,
     4,
     {1, 3, 10},
     {1, 3, 10},
     {0.5, 2, 5, 7},
     {32, 8, 3.2, 16.0 / 7},
     4,
     4},
    {"at the first point", 3, 2, {1, 2, 4}, {1, 2, 4}, {1, 4}, {1, 1}, 1, 1},
    {"at the last point", 3, 2, {1, 2, 4}, {1, 2, 4}, {1, 4}, {4, 4}, 4, 4},
    {"the same abscissa twice is no division by zero",
     3,
     2,
     {1, 1, 4},
     {1, 1, 4},
     {1, 4},
     {2, 2},
     2,
     2},
    {"not beyond what both cover: these would meet at 100",
     2,
     2,
     {1, 10},
     {1, 10},
     {1, 10},
     {100, 100},
     NONE,
     NONE},
    {"no common range", 2, 2, {1, 10}, {1, 10}, {20, 200}, {5, 5}, NONE, NONE},
    {"no point", 0, 2, {0}, {0}, {1, 10}, {100, 100}, NONE, NONE},
    {"one point each", 1, 1, {1}, {1}, {1}, {100}, NONE, NONE},
    {"one point is a level over all of the other", 3, 1, {1, 2, 8}, {1, 2, 8}, {1}, {4}, 4, 4},
    {"a level that is not reached", 3, 1, {1, 2, 8}, {1, 2, 8}, {1}, {9}, NONE, NONE},
};

TEST(crossing)
{
    for (size_t s = 0; s < sizeof crossings / sizeof *crossings; s++)
        for (int swapped = 0; swapped < 2; swapped++) {
            struct attn_stats_curve a = {crossings[s].x1, crossings[s].y1, crossings[s].n1};
            struct attn_stats_curve b = {crossings[s].x2, crossings[s].y2, crossings[s].n2};
            double x, y;
            int found = attn_stats_crossing(swapped ? &b : &a, swapped ? &a : &b, &x, &y);
            ck_assert_msg(found == !isnan(crossings[s].x), "%s", crossings[s].what);
            near(x, crossings[s].x, 1e-12);
            near(y, crossings[s].y, 1e-11);
        }
}

/* ---- crossings of what was measured several times */

enum { KNOTS = 5, ROUNDS = 15, TRIALS = 150 };

/* Curves x and 16 / x, which meet at 4, times so much, with samples of known noise. */
struct noisy {
    double x[KNOTS], value[2][KNOTS][ROUNDS];
    struct attn_samples sample[2][KNOTS];
    struct attn_sampled_curve curve[2];
};

static void make_noisy(struct noisy *of, gsl_rng *rng, double sigma, int rounds, double raise)
{
    for (int c = 0; c < 2; c++) {
        for (int k = 0; k < KNOTS; k++) {
            of->x[k] = exp2(k);
            of->sample[c][k] = (struct attn_samples){of->value[c][k], rounds};
            for (int r = 0; r < rounds; r++)
                of->value[c][k][r] =
                    (c == 0 ? of->x[k] : raise * 16 / of->x[k]) * exp(gsl_ran_gaussian(rng, sigma));
        }
        of->curve[c] = (struct attn_sampled_curve){of->x, of->sample[c], KNOTS};
    }
}

static int cross(const struct noisy *of, double level, struct attn_crossing *crossing)
{
    return attn_stats_bootstrap_crossing(&of->curve[0], &of->curve[1], 200, 1, level, crossing);
}

/* Of intervals of 95 % about 95 % hold the truth, and of 50 % about half: those of a median of 15
 * are somewhat wide. */
TEST(crossing_intervals_cover_the_truth)
{
    static const double level[] = {0.95, 0.5}, least[] = {0.91, 0.42}, most[] = {0.995, 0.66};
    gsl_rng *rng = gsl_rng_alloc(gsl_rng_mt19937);
    for (int l = 0; l < 2; l++) {
        int covered = 0;
        for (int t = 0; t < TRIALS; t++) {
            struct noisy of;
            struct attn_crossing got;
            make_noisy(&of, rng, 0.1, ROUNDS, 1);
            ck_assert_int_eq(cross(&of, level[l], &got), 1);
            ck_assert(got.interval.low <= got.x && got.x <= got.interval.high);
            covered += got.interval.low <= 4 && 4 <= got.interval.high;
        }
        double share = (double)covered / TRIALS;
        ck_assert_msg(share >= least[l] && share <= most[l], "%g of intervals of %g hold the truth",
                      share, level[l]);
    }
    gsl_rng_free(rng);
}

TEST(crossing_of_samples)
{
    gsl_rng *rng = gsl_rng_alloc(gsl_rng_mt19937);
    struct noisy of;
    struct attn_crossing got, again;
    make_noisy(&of, rng, 0, 3, 1); /* without noise: a point */
    ck_assert_int_eq(cross(&of, 0.95, &got), 1);
    near(got.x, 4, 1e-12);
    near(got.interval.low, 4, 1e-12);
    near(got.interval.high, 4, 1e-12);
    ck_assert(!got.open_low && !got.open_high);
    make_noisy(&of, rng, 0.1, 5, 1); /* the same numbers, the same interval */
    ck_assert_int_eq(cross(&of, 0.95, &got), 1);
    ck_assert_int_eq(cross(&of, 0.95, &again), 1);
    ck_assert(got.interval.low == again.interval.low && got.interval.high == again.interval.high);
    of.sample[1][3].n = 1; /* one point of one round: its spread is unknown */
    ck_assert_int_eq(cross(&of, 0.95, &got), 1);
    ck_assert(isnan(got.interval.low) && isnan(got.interval.high) && isfinite(got.x));
    make_noisy(&of, rng, 0.1, 5, 1000); /* beyond the range */
    ck_assert_int_eq(cross(&of, 0.95, &got), 0);
    ck_assert(isnan(got.x) && isnan(got.interval.low));
    of.curve[0].n = 0;
    ck_assert_int_eq(cross(&of, 0.95, &got), 0);
    gsl_rng_free(rng);
}

/* They meet just inside of an end: draws that would meet beyond it count there. */
TEST(crossing_near_an_end)
{
    gsl_rng *rng = gsl_rng_alloc(gsl_rng_mt19937);
    for (int end = 0; end < 2; end++) {
        struct noisy of;
        struct attn_crossing got;
        make_noisy(&of, rng, 0, 3, end ? 15.7 : 1 / 15.7);
        for (int c = 0; c < 2; c++)
            for (int k = 0; k < KNOTS; k++) {
                of.value[c][k][0] *= 0.8;
                of.value[c][k][2] *= 1.25;
            }
        ck_assert_int_eq(cross(&of, 0.95, &got), 1);
        near(end ? got.interval.high : got.interval.low, end ? 16 : 1, 1e-12);
        ck_assert(got.open_high == end && got.open_low == !end);
        double factor = end ? got.interval.low / got.x : got.x / got.interval.high;
        ck_assert(factor >= 0.8 && factor < 0.9); /* 0.8: if all four points are at an extreme */
    }
    gsl_rng_free(rng);
}
