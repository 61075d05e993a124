#include "experiments/measure/stats.h"

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_fit.h>
#include <gsl/gsl_rng.h>
#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdlib.h>

#include "experiments/cli/cli.h"

static const double none = (double)NAN; /* the macro is a float */

void attn_stats_spread(double *x, int n, struct attn_spread *spread)
{
    *spread = (struct attn_spread){n, none, none, none, none, none};
    if (n <= 0)
        return;
    gsl_sort(x, 1, (size_t)n);
    spread->min = x[0];
    spread->quarter = gsl_stats_quantile_from_sorted_data(x, 1, (size_t)n, 0.25);
    spread->median = gsl_stats_median_from_sorted_data(x, 1, (size_t)n);
    spread->three_quarters = gsl_stats_quantile_from_sorted_data(x, 1, (size_t)n, 0.75);
    spread->max = x[n - 1];
}

/* Medians of resamples, sorted, into median[draws]; drawn has room for n. */
static void draw_medians(const double *x, int n, gsl_rng *rng, double *drawn, double *median,
                         int draws)
{
    for (int t = 0; t < draws; t++) {
        for (int s = 0; s < n; s++)
            drawn[s] = x[gsl_rng_uniform_int(rng, (unsigned long)n)];
        gsl_sort(drawn, 1, (size_t)n);
        median[t] = gsl_stats_median_from_sorted_data(drawn, 1, (size_t)n);
    }
    gsl_sort(median, 1, (size_t)draws);
}

int attn_stats_bootstrap_median(const double *x, int n, int draws, unsigned long seed, double level,
                                struct attn_interval *interval)
{
    interval->low = interval->high = none;
    if (n < 2 || draws < 1)
        return -1;
    double *scratch = attn_cli_need(malloc(((size_t)n + (size_t)draws) * sizeof *scratch));
    /* The gsl_*_alloc functions abort when memory is short, unless told otherwise. */
    gsl_error_handler_t *handler = gsl_set_error_handler_off();
    gsl_rng *rng = attn_cli_need(gsl_rng_alloc(gsl_rng_mt19937));
    gsl_set_error_handler(handler);
    double *median = scratch + n;
    gsl_rng_set(rng, seed);
    draw_medians(x, n, rng, scratch, median, draws);
    double tail = (1 - level) / 2;
    interval->low = gsl_stats_quantile_from_sorted_data(median, 1, (size_t)draws, tail);
    interval->high = gsl_stats_quantile_from_sorted_data(median, 1, (size_t)draws, 1 - tail);
    gsl_rng_free(rng);
    free(scratch);
    return 0;
}

double attn_stats_t95(int degrees)
{
    return degrees < 1 ? none : gsl_cdf_tdist_Pinv(0.975, degrees);
}

int attn_stats_upper(const double *x, int n)
{
    int first = 0;
    while (first < n && x[first] < x[n - 1] / 8)
        first++;
    return first;
}

/* ln of n positive finite values; 0 when one is not. */
static int take_logs(const double *x, int n, double *ln)
{
    for (int s = 0; s < n; s++) {
        if (!(x[s] > 0 && isfinite(x[s])))
            return 0;
        ln[s] = log(x[s]);
    }
    return 1;
}

static int has_two_values(const double *x, int n)
{
    for (int s = 1; s < n; s++)
        if (x[s] != x[0])
            return 1;
    return 0;
}

int attn_stats_power(const double *x, const double *y, int n, struct attn_power *power)
{
    *power = (struct attn_power){n, none, none, {none, none}, none};
    if (n < 3 || !has_two_values(x, n))
        return -1;
    double *ln = attn_cli_need(malloc(2 * (size_t)n * sizeof *ln));
    int ok = take_logs(x, n, ln) && take_logs(y, n, ln + n);
    if (ok) {
        double constant, slope, v00, v01, v11, squares;
        gsl_fit_linear(ln, 1, ln + n, 1, (size_t)n, &constant, &slope, &v00, &v01, &v11, &squares);
        /* gsl_fit_linear has scaled the covariance by squares / (n - 2) already. */
        double half = attn_stats_t95(n - 2) * sqrt(v11);
        power->slope = slope;
        power->factor = exp(constant);
        power->interval = (struct attn_interval){slope - half, slope + half};
        power->worst = 0;
        for (int s = 0; s < n; s++)
            power->worst = fmax(power->worst, fabs(ln[n + s] - constant - slope * ln[s]));
    }
    free(ln);
    return ok ? 0 : -1;
}

/* ln y of a curve at x, which its points must enclose. */
static double curve_at(const struct attn_curve *c, double x)
{
    int s = 0;
    while (s + 2 < c->n && x > c->x[s + 1])
        s++;
    if (c->n == 1 || c->x[s + 1] == c->x[s])
        return log(c->y[s]);
    double t = (log(x) - log(c->x[s])) / (log(c->x[s + 1]) - log(c->x[s]));
    return log(c->y[s]) + t * (log(c->y[s + 1]) - log(c->y[s]));
}

/* The smallest abscissa of either curve above x, or `end`. */
static double next_knot(const struct attn_curve *a, const struct attn_curve *b, double x,
                        double end)
{
    double next = end;
    for (int s = 0; s < a->n; s++)
        if (a->x[s] > x && a->x[s] < next)
            next = a->x[s];
    for (int s = 0; s < b->n; s++)
        if (b->x[s] > x && b->x[s] < next)
            next = b->x[s];
    return next;
}

int attn_stats_crossing(const struct attn_curve *a, const struct attn_curve *b, double *x,
                        double *y)
{
    *x = *y = none;
    if (a->n < 1 || b->n < 1)
        return 0;
    double start = fmax(a->x[0], b->x[0]);
    double end = fmin(a->x[a->n - 1], b->x[b->n - 1]);
    double here = start;
    while (here <= end) {
        double gap = curve_at(a, here) - curve_at(b, here);
        double next = next_knot(a, b, here, end);
        double gap_next = next > here ? curve_at(a, next) - curve_at(b, next) : gap;
        if (gap == 0 || gap_next == 0 || (gap < 0) != (gap_next < 0)) {
            /* Both are straight between knots, so the gap is too: its zero is exact. */
            double t = gap == 0 ? 0 : gap / (gap - gap_next);
            *x = exp(log(here) + t * (log(next) - log(here)));
            *y = exp(curve_at(a, *x));
            return 1;
        }
        if (next <= here)
            break;
        here = next;
    }
    return 0;
}
