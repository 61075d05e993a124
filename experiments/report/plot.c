#include "experiments/report/plot.h"
#include "tests/harness/files/fileio.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double none = (double)NAN; /* the macro is a float */

void attn_plot_init(struct attn_plot *plot)
{
    memset(plot, 0, sizeof *plot);
    plot->line = none;
}

void attn_plot_free(struct attn_plot *plot)
{
    free(plot->point);
    plot->point = NULL;
    plot->n = plot->room = 0;
}

int attn_plot_series(struct attn_plot *plot, const char *label, int impl)
{
    int variant = 0;
    for (int s = 0; s < plot->n_series; s++) {
        if (strcmp(plot->series[s].label, label) == 0)
            return s;
        variant += plot->series[s].impl == impl;
    }
    if (plot->n_series == ATTN_PLOT_SERIES)
        return -1;
    struct attn_plot_series *series = &plot->series[plot->n_series];
    (void)snprintf(series->label, sizeof series->label, "%s", label);
    series->impl = impl;
    series->variant = variant;
    return plot->n_series++;
}

enum attn_status attn_plot_add(struct attn_plot *plot, int panel, int series, double x,
                               const double *y, struct attn_error *err)
{
    if (series < 0 || panel < 0 || !(x > 0))
        return ATTN_OK; /* nowhere to draw it: a legend that is full, or no logarithm */
    if (plot->n == plot->room) {
        int64_t room = plot->room > 0 ? 2 * plot->room : 64;
        struct attn_plot_point *point = realloc(plot->point, (size_t)room * sizeof *point);
        if (point == NULL)
            return attn_fail(err, ATTN_ENOMEM, "no memory for the points of figure %s", plot->name);
        plot->point = point;
        plot->room = room;
    }
    struct attn_plot_point *p = &plot->point[plot->n++];
    *p = (struct attn_plot_point){.panel = panel, .series = series, .x = x};
    for (int c = 0; c < plot->n_columns; c++)
        p->y[c] = y[c] > 0 && isfinite(y[c]) ? y[c] : none; /* what has a logarithm */
    return ATTN_OK;
}

int attn_plot_curve(const struct attn_plot *plot, int panel, int series, int column, double *x,
                    double *y)
{
    int n = 0;
    for (int64_t s = 0; s < plot->n; s++) {
        const struct attn_plot_point *p = &plot->point[s];
        if (p->panel != panel || p->series != series || isnan(p->y[column]))
            continue;
        int at = n++;
        for (; at > 0 && x[at - 1] > p->x; at--) {
            x[at] = x[at - 1];
            y[at] = y[at - 1];
        }
        x[at] = p->x;
        y[at] = p->y[column];
    }
    return n;
}

enum attn_status attn_plot_fit(struct attn_plot *plot, int column, struct attn_error *err)
{
    double *x = malloc(2 * (size_t)(plot->n + 1) * sizeof *x);
    if (x == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for the slopes of figure %s", plot->name);
    double *y = x + plot->n + 1;
    for (int p = 0; p < plot->n_panels; p++) {
        for (int s = 0; s < plot->n_series; s++) {
            int n = attn_plot_curve(plot, p, s, column, x, y);
            if (n == 0) /* of this column; another one may have been fitted before */
                continue;
            int first = attn_stats_upper(x, n);
            struct attn_power *slope = &plot->slope[p][s];
            if (attn_stats_power(x + first, y + first, n - first, slope) != 0) {
                slope->n = 0;
                continue;
            }
            plot->slope_x[p][s] = x[n - 1];
            plot->slope_y[p][s] = y[n - 1];
        }
    }
    free(x);
    return ATTN_OK;
}

void attn_plot_quote(FILE *file, const char *text)
{
    (void)fputc('\'', file);
    for (const char *c = text; *c != '\0'; c++) {
        unsigned char u = (unsigned char)*c;
        if (*c == '\'')
            (void)fputs("''", file);
        else
            (void)fputc(u < 0x20 || u == 0x7f ? ' ' : *c, file);
    }
    (void)fputc('\'', file);
}

/* ---- the numbers --------------------------------------------------------------------------- */

static void write_block(FILE *file, const struct attn_plot *plot, int panel, int series)
{
    int n = 0;
    (void)fprintf(file, "# %s; ", plot->panel[panel]);
    attn_plot_quote(file, plot->series[series].label);
    (void)fputc('\n', file);
    for (int64_t s = 0; s < plot->n; s++) {
        const struct attn_plot_point *p = &plot->point[s];
        if (p->panel != panel || p->series != series)
            continue;
        (void)fprintf(file, "%.10g", p->x);
        for (int c = 0; c < plot->n_columns; c++)
            (void)fprintf(file, " %.10g", p->y[c]);
        (void)fputc('\n', file);
        n++;
    }
    /* An empty block would shift the index of those that follow. */
    for (int c = 0; n == 0 && c <= plot->n_columns; c++)
        (void)fputs(c < plot->n_columns ? "nan " : "nan\n", file);
    (void)fputs("\n\n", file);
}

static void write_numbers(FILE *file, const struct attn_plot *plot)
{
    (void)fputs("# x", file);
    for (int c = 0; c < plot->n_columns; c++)
        (void)fprintf(file, " %s", plot->column[c]);
    (void)fputc('\n', file);
    for (int p = 0; p < plot->n_panels; p++)
        for (int s = 0; s < plot->n_series; s++)
            write_block(file, plot, p, s);
}

static enum attn_status write_file(const struct attn_plot *plot, const char *folder,
                                   const char *suffix,
                                   void (*write)(FILE *file, const struct attn_plot *plot),
                                   struct attn_error *err)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s.%s", folder, plot->name, suffix) >= (int)sizeof path)
        return attn_fail(err, ATTN_EINVAL, "the path of folder %.40s... is too long", folder);
    struct attn_save save;
    if (attn_save_open(path, &save, err) != ATTN_OK)
        return ATTN_ENOMEM;
    write(save.stream, plot);
    return attn_save_close(&save, ATTN_OK, err);
}

enum attn_status attn_plot_write(const struct attn_plot *plot, const char *folder,
                                 struct attn_error *err)
{
    enum attn_status status = write_file(plot, folder, "dat", write_numbers, err);
    if (status == ATTN_OK)
        status = write_file(plot, folder, "set", attn_plot_write_settings, err);
    return status;
}
