#include "experiments/measure/stats.h"

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_fit.h>
#include <gsl/gsl_rng.h>
#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

/* The gsl_*_alloc functions abort when memory is short, unless told otherwise. */
static gsl_rng *generator(unsigned long seed)
{
    gsl_error_handler_t *handler = gsl_set_error_handler_off();
    gsl_rng *rng = attn_cli_need(gsl_rng_alloc(gsl_rng_mt19937));
    gsl_set_error_handler(handler);
    gsl_rng_set(rng, seed);
    return rng;
}

/* The median of a resample; drawn has room for n. */
static double draw_median(const double *x, int n, gsl_rng *rng, double *drawn)
{
    for (int s = 0; s < n; s++)
        drawn[s] = x[gsl_rng_uniform_int(rng, (unsigned long)n)];
    gsl_sort(drawn, 1, (size_t)n);
    return gsl_stats_median_from_sorted_data(drawn, 1, (size_t)n);
}

/* The middle part of all draws, which are sorted here. */
static struct attn_interval middle(double *draw, int draws, double level)
{
    double tail = (1 - level) / 2;
    gsl_sort(draw, 1, (size_t)draws);
    return (struct attn_interval){
        gsl_stats_quantile_from_sorted_data(draw, 1, (size_t)draws, tail),
        gsl_stats_quantile_from_sorted_data(draw, 1, (size_t)draws, 1 - tail)};
}

int attn_stats_bootstrap_median(const double *x, int n, int draws, unsigned long seed, double level,
                                struct attn_interval *interval)
{
    interval->low = interval->high = none;
    if (n < 2 || draws < 1)
        return -1;
    double *scratch = attn_cli_need(malloc(((size_t)n + (size_t)draws) * sizeof *scratch));
    double *median = scratch + n;
    gsl_rng *rng = generator(seed);
    for (int t = 0; t < draws; t++)
        median[t] = draw_median(x, n, rng, scratch);
    *interval = middle(median, draws, level);
    gsl_rng_free(rng);
    free(scratch);
    return 0;
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
        double half = gsl_cdf_tdist_Pinv(0.975, n - 2) * sqrt(v11);
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

/* ln y of a curve at x, which its points must enclose, unless it is one point. */
static double curve_at(const struct attn_stats_curve *c, double x)
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
static double next_knot(const struct attn_stats_curve *a, const struct attn_stats_curve *b,
                        double x, double end)
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

/* The range that both cover. */
static struct attn_interval range_of(const struct attn_stats_curve *a,
                                     const struct attn_stats_curve *b)
{
    struct attn_interval range = {-(double)INFINITY, (double)INFINITY};
    const struct attn_stats_curve *both[] = {a, b};
    for (int c = 0; c < 2; c++) {
        if (both[c]->n < 1)
            return (struct attn_interval){none, none};
        if (both[c]->n == 1 && (a->n > 1 || b->n > 1))
            continue; /* level */
        range.low = fmax(range.low, both[c]->x[0]);
        range.high = fmin(range.high, both[c]->x[both[c]->n - 1]);
    }
    return range;
}

int attn_stats_crossing(const struct attn_stats_curve *a, const struct attn_stats_curve *b,
                        double *x, double *y)
{
    *x = *y = none;
    struct attn_interval range = range_of(a, b);
    double here = range.low;
    while (here <= range.high) { /* never for what is no number */
        double gap = curve_at(a, here) - curve_at(b, here);
        double next = next_knot(a, b, here, range.high);
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

/* Two sampled curves, and the medians of a draw of each. */
struct drawing {
    const struct attn_sampled_curve *from[2];
    struct attn_stats_curve curve[2];
    double *y[2], *drawn; /* of the medians; room for any sample */
    int known;            /* every point has two samples or more */
};

static void drawing_open(struct drawing *d, const struct attn_sampled_curve *a,
                         const struct attn_sampled_curve *b)
{
    size_t most = 1;
    *d = (struct drawing){.from = {a, b}, .known = 1};
    for (int c = 0; c < 2; c++)
        for (int s = 0; s < d->from[c]->n; s++) {
            int n = d->from[c]->sample[s].n;
            most = (size_t)n > most ? (size_t)n : most;
            d->known &= n > 1;
        }
    d->y[0] = attn_cli_need(malloc(((size_t)a->n + (size_t)b->n + most) * sizeof *d->y[0]));
    d->y[1] = d->y[0] + a->n;
    d->drawn = d->y[1] + b->n;
    for (int c = 0; c < 2; c++)
        d->curve[c] = (struct attn_stats_curve){d->from[c]->x, d->y[c], d->from[c]->n};
}

/* Medians of resamples; without a generator, of the samples. */
static void draw(struct drawing *d, gsl_rng *rng)
{
    for (int c = 0; c < 2; c++)
        for (int s = 0; s < d->from[c]->n; s++) {
            const struct attn_samples *of = &d->from[c]->sample[s];
            struct attn_spread spread = {0};
            if (rng != NULL)
                spread.median = draw_median(of->value, of->n, rng, d->drawn);
            else {
                memcpy(d->drawn, of->value, (size_t)of->n * sizeof *d->drawn);
                attn_stats_spread(d->drawn, of->n, &spread);
            }
            d->y[c][s] = spread.median;
        }
}

/* Is the first curve below the other one there? */
static int is_below(const struct drawing *d, double at)
{
    return curve_at(&d->curve[0], at) < curve_at(&d->curve[1], at);
}

/* The middle of many draws; at has room for them. */
static void find_interval(struct drawing *d, double *at, int draws, unsigned long seed,
                          double level, struct attn_crossing *crossing)
{
    const struct attn_interval range = range_of(&d->curve[0], &d->curve[1]);
    int below = is_below(d, range.low), before = 0, after = 0;
    double y;
    gsl_rng *rng = generator(seed);
    for (int t = 0; t < draws; t++) {
        draw(d, rng);
        if (attn_stats_crossing(&d->curve[0], &d->curve[1], &at[t], &y))
            continue;
        int is_after = is_below(d, range.low) == below;
        at[t] = is_after ? range.high : range.low;
        after += is_after;
        before += !is_after;
    }
    crossing->interval = middle(at, draws, level);
    crossing->open_low = before > (1 - level) / 2 * draws;
    crossing->open_high = after > (1 - level) / 2 * draws;
    gsl_rng_free(rng);
}

int attn_stats_bootstrap_crossing(const struct attn_sampled_curve *a,
                                  const struct attn_sampled_curve *b, int draws, unsigned long seed,
                                  double level, struct attn_crossing *crossing)
{
    struct drawing d;
    drawing_open(&d, a, b);
    draw(&d, NULL);
    *crossing = (struct attn_crossing){.interval = {none, none}};
    int found = attn_stats_crossing(&d.curve[0], &d.curve[1], &crossing->x, &crossing->y);
    if (found && d.known && draws > 0) {
        double *at = attn_cli_need(malloc((size_t)draws * sizeof *at));
        find_interval(&d, at, draws, seed, level, crossing);
        free(at);
    }
    free(d.y[0]);
    return found;
}

void attn_stats_frontier(const double *x, const double *y, int n, int *is_best)
{
    for (int i = 0; i < n; i++) {
        is_best[i] = !isnan(x[i]) && !isnan(y[i]);
        for (int j = 0; j < n; j++)
            if (x[j] <= x[i] && y[j] <= y[i] && (x[j] < x[i] || y[j] < y[i]))
                is_best[i] = 0;
    }
}
