/* A figure as data: panels side by side, series (one style each), points.  It is written as two
 * small files for gnuplot, which plots/SCRIPT.gp turns into pictures:
 *
 *   NAME.dat   the numbers: one block for each (panel, series), panel by panel; # comments
 *   NAME.set   the words and the geometry: titles, legend, ranges, ticks, slopes, notes
 *
 * All axes are logarithmic.  Text from records reaches gnuplot only in single quotes, where it
 * expands nothing.
 */
#ifndef EXPERIMENTS_REPORT_PLOT_H
#define EXPERIMENTS_REPORT_PLOT_H

#include <stdio.h>

#include "experiments/measure/stats.h"
#include "ref/attn.h"

enum {
    ATTN_PLOT_PANELS = 6,
    ATTN_PLOT_SERIES = 32,
    ATTN_PLOT_COLUMNS = 5, /* beside x */
    ATTN_PLOT_NAME = 64,
    ATTN_PLOT_TEXT = 1024
};

enum attn_axis {
    ATTN_AXIS_LENGTH,  /* tokens: ticks where there are points */
    ATTN_AXIS_RANKS,   /* likewise                             */
    ATTN_AXIS_DENSITY, /* 0.001, 0.01, ...                     */
    ATTN_AXIS_BYTES,   /* B, KiB, MiB, ...                     */
    ATTN_AXIS_SECONDS, /* us, ms, s                            */
    ATTN_AXIS_RATIO    /* 0.01, 0.1, 1                         */
};

struct attn_plot_series {
    char label[200];
    int impl;    /* colour and shape: the place in the registry         */
    int variant; /* dash: the how manieth series of this implementation */
};

struct attn_plot_point {
    int panel, series;
    double x, y[ATTN_PLOT_COLUMNS]; /* NaN: nothing there */
};

/* A point with a word beside it, such as a crossing; series = -1: no style of its own. */
struct attn_plot_mark {
    int panel, series;
    double x, y;
    char text[64];
};

struct attn_plot {
    char name[ATTN_PLOT_NAME]; /* of the files: letters, digits, '-'         */
    const char *script;        /* plots/SCRIPT.gp                            */
    char title[160], subtitle[ATTN_PLOT_TEXT];
    const char *x_label, *y_label;
    enum attn_axis x_axis, y_axis;
    int n_columns;
    const char *column[ATTN_PLOT_COLUMNS]; /* their names, in the .dat        */

    int n_panels, n_series;
    char panel[ATTN_PLOT_PANELS][64];
    struct attn_plot_series series[ATTN_PLOT_SERIES];
    struct attn_plot_point *point; /* grown by attn_plot_add */
    int64_t n, room;

    struct attn_power slope[ATTN_PLOT_PANELS][ATTN_PLOT_SERIES]; /* n = 0: none       */
    double slope_x[ATTN_PLOT_PANELS][ATTN_PLOT_SERIES];          /* the curve's end   */
    double slope_y[ATTN_PLOT_PANELS][ATTN_PLOT_SERIES];
    int n_marks;
    struct attn_plot_mark mark[ATTN_PLOT_SERIES];
    double line; /* a horizontal line with a word, in every panel; NaN: none */
    char line_text[64];
    char key_extra[ATTN_PLOT_TEXT]; /* what marker and line mean, under the legend         */
    char note[4 * ATTN_PLOT_TEXT];  /* under the figure: what was not run; wrapped and cut */
    char settings[ATTN_PLOT_TEXT];  /* lines for the script, behind the others             */
};

void attn_plot_init(struct attn_plot *plot);
void attn_plot_free(struct attn_plot *plot);

/* The series of that label, made if need be; -1 when there are too many. */
int attn_plot_series(struct attn_plot *plot, const char *label, int impl);

/* Add a point.  y has n_columns values.  ENOMEM. */
enum attn_status attn_plot_add(struct attn_plot *plot, int panel, int series, double x,
                               const double *y, struct attn_error *err);

/* The points of one (panel, series) that have column c, by increasing x, into x[] and y[], which
 * have room for plot->n; returns how many. */
int attn_plot_curve(const struct attn_plot *plot, int panel, int series, int column, double *x,
                    double *y);

/* Fit the upper part of every curve of a column: what is printed at its end. */
enum attn_status attn_plot_fit(struct attn_plot *plot, int column, struct attn_error *err);

/* Write FOLDER/NAME.dat and FOLDER/NAME.set.  ENOMEM when a file cannot be written, whole. */
enum attn_status attn_plot_write(const struct attn_plot *plot, const char *folder,
                                 struct attn_error *err);

/* The words and the geometry (plot_set.c); part of attn_plot_write. */
void attn_plot_write_settings(FILE *file, const struct attn_plot *plot);

/* Text inside '...' of gnuplot: quotes doubled, control characters made blanks. */
void attn_plot_quote(FILE *file, const char *text);

/* "1.5 GiB", "2 ms", "16,384", "0.01": a tick's text.  Returns text. */
const char *attn_axis_text(enum attn_axis axis, double value, char text[32]);

#endif
