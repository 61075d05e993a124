/* The statistics behind the figures.  GSL does the arithmetic; this says which question is
 * asked.  Nothing here allocates more than a few copies of its input; inputs that are not finite
 * are the caller's to leave out. */
#ifndef EXPERIMENTS_MEASURE_STATS_H
#define EXPERIMENTS_MEASURE_STATS_H

/* Order statistics of a sample, with quantiles interpolated linearly between order statistics
 * (Hyndman and Fan's type 7, as in R and numpy). */
struct attn_spread {
    int n;
    double min, quarter, median, three_quarters, max;
};

/* Sorts x.  n = 0 gives NaN throughout. */
void attn_stats_spread(double *x, int n, struct attn_spread *spread);

struct attn_interval {
    double low, high;
};

/* Percentile bootstrap of the median: `draws` resamples, from a generator started by seed, so the
 * same numbers always give the same interval.  Returns 0, or -1 when n < 2.
 * For five rounds or fewer this is close to (min, max): honest, and not a smooth 95 %. */
int attn_stats_bootstrap_median(const double *x, int n, int draws, unsigned long seed, double level,
                                struct attn_interval *interval);

/* y = factor * x^slope by least squares on (ln x, ln y). */
struct attn_power {
    int n; /* points of the fit                           */
    double slope, factor;
    struct attn_interval interval; /* 95 %, by Student's t with n - 2 degrees     */
    double worst;                  /* largest |ln y - fit|: how far from a power law */
};

/* Returns 0, or -1 when there are fewer than three points, fewer than two different x, or a
 * value that has no logarithm. */
int attn_stats_power(const double *x, const double *y, int n, struct attn_power *power);

/* Which points a slope is fitted to: those with x >= max(x) / 8 (the last four of a doubling
 * sequence), where the leading term rules.  x increases; returns the index of the first. */
int attn_stats_upper(const double *x, int n);

/* The points that no other one beats, where less is better in x and in y: is_best[i] is 1 unless
 * another point is no worse in both and better in one.  NaN is never best, and beats nothing. */
void attn_stats_frontier(const double *x, const double *y, int n, int *is_best);

/* Where two curves, linear between their points in (ln x, ln y), first cross, within the range
 * that both cover.  x increases in both; all values are positive.  A curve of one point is level
 * over the range of the other.  Returns 1 when they cross. */
struct attn_stats_curve {
    const double *x, *y;
    int n;
};
int attn_stats_crossing(const struct attn_stats_curve *a, const struct attn_stats_curve *b,
                        double *x, double *y);

/* A curve whose points were measured several times: their medians are its y. */
struct attn_samples {
    const double *value;
    int n; /* 1 or more */
};
struct attn_sampled_curve {
    const double *x;
    const struct attn_samples *sample;
    int n;
};

/* x and y are of the medians.  interval: percentile bootstrap of x, each draw of which resamples
 * every point; NaN where a point has one sample only, as nothing is known of its spread.  A draw
 * that does not cross counts at the end of the common range beyond which it would; where these are
 * more than a tail, the interval is open at that end. */
struct attn_crossing {
    double x, y;
    struct attn_interval interval;
    int open_low, open_high;
};

/* Returns 1 when the medians cross; else x, y and interval are NaN. */
int attn_stats_bootstrap_crossing(const struct attn_sampled_curve *a,
                                  const struct attn_sampled_curve *b, int draws, unsigned long seed,
                                  double level, struct attn_crossing *crossing);

#endif
