/* The figure against the density of the mask: where sparse storage stops paying. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/report/figure_fill.h"

static const double none = (double)NAN; /* the macro is a float */

/* A dense series measured at one density holds at all of them: draw it across the range. */
static enum attn_status stretch_dense(const struct attn_row *row, int panel, double low,
                                      double high, struct attn_plot *plot, struct attn_error *err)
{
    double y[4] = {attn_fill_bytes(row->priced), none, none, none};
    int series = attn_plot_series(plot, row->point->spec, row->impl), points = 0;
    for (int64_t s = 0; s < plot->n; s++)
        points += plot->point[s].panel == panel && plot->point[s].series == series;
    if (points != 1)
        return ATTN_OK;
    enum attn_status status = ATTN_OK;
    if (row->point->density > low)
        status = attn_plot_add(plot, panel, series, low, y, err);
    if (status == ATTN_OK && row->point->density < high)
        status = attn_plot_add(plot, panel, series, high, y, err);
    return status;
}

/* The first good row of a family in a pass; NULL when there is none. */
static const struct attn_row *first_of(const struct attn_slice *slice, const char *family,
                                       enum attn_pass pass)
{
    for (int64_t s = 0; s < slice->n; s++)
        if (slice->row[s]->status == ATTN_POINT_OK && slice->row[s]->point->c.pass == pass &&
            strcmp(slice->row[s]->point->family, family) == 0)
            return slice->row[s];
    return NULL;
}

static void find_crossing(const struct attn_slice *slice, enum attn_pass pass, int panel,
                          double *scratch, struct attn_plot *plot, struct attn_figure *figure)
{
    const struct attn_row *dense = first_of(slice, "dense", pass);
    const struct attn_row *csr = first_of(slice, "csr", pass);
    if (dense == NULL || csr == NULL)
        return;
    int64_t n = plot->n + 1;
    double *x = scratch, *y = x + n, *x_dense = y + n, *y_dense = x_dense + n;
    int series = attn_plot_series(plot, csr->point->spec, csr->impl);
    int against = attn_plot_series(plot, dense->point->spec, dense->impl);
    struct attn_curve sparse = {x, y, attn_plot_curve(plot, panel, series, 0, x, y)};
    struct attn_curve flat = {x_dense, y_dense,
                              attn_plot_curve(plot, panel, against, 0, x_dense, y_dense)};
    double at, bytes;
    char text[192], number[32];
    if (attn_stats_crossing(&sparse, &flat, &at, &bytes) && plot->n_marks < ATTN_PLOT_SERIES) {
        struct attn_plot_mark *mark = &plot->mark[plot->n_marks++];
        *mark = (struct attn_plot_mark){.panel = panel, .series = series, .x = at, .y = bytes};
        (void)snprintf(mark->text, sizeof mark->text, "break-even at density %.3f", at);
        (void)snprintf(text, sizeof text,
                       "Break-even, %s: %.64s needs as much as %.64s at density %.3f (%s). ",
                       attn_pass_word(pass), csr->point->spec, dense->point->spec, at,
                       attn_axis_text(ATTN_AXIS_BYTES, bytes, number));
    } else {
        (void)snprintf(text, sizeof text,
                       "No break-even, %s: %.64s and %.64s do not cross in the measured range. ",
                       attn_pass_word(pass), csr->point->spec, dense->point->spec);
    }
    size_t used = strlen(figure->finding);
    (void)snprintf(figure->finding + used, sizeof figure->finding - used, "%s", text);
}

enum attn_status attn_fill_density(const struct attn_slice *slice,
                                   const struct attn_figure_machine *machine,
                                   struct attn_plot *plot, struct attn_figure *figure,
                                   struct attn_error *err)
{
    static const char *const column[] = {"priced_bytes", "ledger_bytes", "resident_bytes",
                                         "resident_alone_bytes"};
    int place[2];
    double low = none, high = none;
    enum attn_status status = ATTN_OK;
    (void)machine;
    figure->caption =
        "Bytes beyond inputs and outputs, at one length, as more keys become visible. Compressed "
        "sparse rows grow with the visible pairs, each of which costs an index beside its value; "
        "the dense matrices hold every pair, visible or not. The circle is where the lines of "
        "the prices cross, linear in the logarithms between measured points.";
    attn_fill_columns(plot, 4, column);
    attn_fill_words(plot, "Peak extra memory against the density of the mask",
                    "density (visible pairs / all pairs)", "peak extra memory");
    plot->x_axis = ATTN_AXIS_DENSITY;
    plot->y_axis = ATTN_AXIS_BYTES;
    attn_fill_passes(slice, plot, place);
    for (int64_t s = 0; status == ATTN_OK && s < slice->n; s++) {
        const struct attn_row *row = slice->row[s];
        const struct attn_point *p = row->point;
        if (row->status != ATTN_POINT_OK || !(p->density > 0))
            continue;
        double y[4] = {attn_fill_bytes(row->priced), attn_fill_bytes(row->ledger)};
        char label[200];
        attn_fill_resident(row, &y[2], &y[3]);
        attn_fill_label(row, plot->y_axis, label);
        low = fmin(low, p->density);
        high = fmax(high, p->density);
        status = attn_plot_add(plot, place[p->c.pass], attn_plot_series(plot, label, row->impl),
                               p->density, y, err);
    }
    for (int pass = ATTN_FORWARD; status == ATTN_OK && pass <= ATTN_BACKWARD; pass++) {
        const struct attn_row *dense = first_of(slice, "dense", (enum attn_pass)pass);
        if (dense != NULL)
            status = stretch_dense(dense, place[pass], low, high, plot, err);
    }
    double *scratch = malloc(4 * (size_t)(plot->n + 1) * sizeof *scratch);
    if (scratch == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for figure %s", plot->name);
    for (int pass = ATTN_FORWARD; pass <= ATTN_BACKWARD; pass++)
        if (place[pass] >= 0)
            find_crossing(slice, (enum attn_pass)pass, place[pass], scratch, plot, figure);
    free(scratch);
    (void)snprintf(
        plot->key_extra, sizeof plot->key_extra,
        "Line: priced. Filled: ledger. Open: resident, of a fresh process (from 1 MiB on).\n%s",
        figure->finding);
    return status;
}
