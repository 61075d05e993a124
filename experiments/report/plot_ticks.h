/* Where axes have ticks, as gnuplot's list: 'text' value, 'text' value, ... */
#ifndef EXPERIMENTS_REPORT_PLOT_TICKS_H
#define EXPERIMENTS_REPORT_PLOT_TICKS_H

#include "experiments/report/plot.h"

struct attn_range {
    double low, high;
};

/* At round values, at most about `most` of them.  bare: without texts, for panels inside a row. */
void attn_ticks_by_value(FILE *file, enum attn_axis axis, const struct attn_range *range, int most,
                         int bare);

/* At the abscissae of the points, thinned from the largest down until `most` are left. */
void attn_ticks_by_point(FILE *file, const struct attn_plot *plot, int most);

#endif
