/* Figures against the sequence length: memory, time, error. */
#include <math.h>
#include <string.h>

#include "experiments/report/figure_fill.h"

static const double none = (double)NAN; /* the macro is a float */

static const char fit_text[] = "Numbers at the curves: log-log slope and its 95 % interval, "
                               "fitted to the points with L ≥ (largest L of the curve) / 8.";

/* Is anything here not ours? */
static int has_guests(const struct attn_slice *slice)
{
    for (int64_t s = 0; s < slice->n; s++)
        if (slice->row[s]->point->route[0] != '\0')
            return 1;
    return 0;
}

enum attn_status attn_fill_memory(const struct attn_slice *slice,
                                  const struct attn_figure_machine *machine, struct attn_plot *plot,
                                  struct attn_figure *figure, struct attn_error *err)
{
    static const char *const column[] = {"priced_bytes", "ledger_bytes", "resident_bytes",
                                         "resident_alone_bytes"};
    int place[2];
    enum attn_status status = ATTN_OK;
    figure->caption =
        "Bytes beyond inputs and outputs. Line: the price, from a formula, without running. Filled "
        "marker: the ledger, which counts every buffer that the implementation takes. Open marker: "
        "growth of the resident set (VmHWM) of a fresh process, drawn from 1 MiB on; below, "
        "pages of stack and libraries outweigh buffers. Implementations that are not ours have no "
        "price and no ledger: their resident memory is joined by a line. For sequence-parallel "
        "implementations the curve is of the fullest rank; all simulated ranks live in one "
        "process, so their resident sets cannot be told apart and are compared in the table.";
    attn_fill_columns(plot, 4, column);
    attn_fill_words(plot, "Peak extra memory against sequence length", "sequence length L (tokens)",
                    "peak extra memory of a process or rank");
    plot->x_axis = ATTN_AXIS_LENGTH;
    plot->y_axis = ATTN_AXIS_BYTES;
    (void)snprintf(
        plot->key_extra, sizeof plot->key_extra,
        "Line: priced. Filled: ledger. Open: resident, of a fresh process (one rank, from "
        "1 MiB on).%s\n%s",
        has_guests(slice) ? " Open on a line: all that is known." : "", fit_text);
    attn_fill_passes(slice, plot, place);
    double largest = 0;
    for (int64_t s = 0; status == ATTN_OK && s < slice->n; s++) {
        const struct attn_row *row = slice->row[s];
        const struct attn_point *p = row->point;
        if (row->status != ATTN_POINT_OK)
            continue;
        double y[4] = {attn_fill_bytes(row->priced), attn_fill_bytes(row->ledger)};
        attn_fill_resident(row, &y[2], &y[3]);
        largest = fmax(largest, (double)row->peak);
        char label[200];
        attn_fill_label(row, plot->y_axis, label);
        status = attn_plot_add(plot, place[p->c.pass], attn_plot_series(plot, label, row->impl),
                               (double)p->c.n_query, y, err);
    }
    if (machine->memory_bytes > 0 && (double)machine->memory_bytes < 8 * largest) {
        plot->line = (double)machine->memory_bytes;
        (void)snprintf(plot->line_text, sizeof plot->line_text, "memory of this machine");
    }
    if (status == ATTN_OK)
        status = attn_plot_fit(plot, 1, err);
    return status == ATTN_OK ? attn_plot_fit(plot, 3, err) : status;
}

/* The words of a figure of times, by the kind of call that it draws. */
static const struct {
    const char *title, *y_label, *finding;
    const char *column[3];
} timed[ATTN_CALLS + 1] = {
    {"Time of a warm call against sequence length",
     "time of a warm call",
     "Warm calls: the first call of a process is left out. ",
     {"warm_median_s", "warm_fastest_s", "warm_slowest_s"}},
    {"Time of the first call against sequence length",
     "time of the first call",
     "First calls: not all of these points have warm ones, and the two are not mixed. ",
     {"first_median_s", "first_fastest_s", "first_slowest_s"}},
    {"Time of one call against sequence length",
     "time of a call, first or warm: unknown",
     "The records do not say whether these calls were the first of their process. ",
     {"unknown_median_s", "unknown_fastest_s", "unknown_slowest_s"}},
    {"Time of one call against sequence length",
     "time of one call",
     "",
     {"median_s", "fastest_s", "slowest_s"}}};

/* Good points that have only times of another kind: they are not drawn. */
static void say_what_has_no_time(const struct attn_slice *slice, struct attn_plot *plot)
{
    int n = 0;
    const struct attn_row *one = NULL;
    char number[32], label[160];
    for (int64_t s = 0; s < slice->n; s++)
        if (slice->row[s]->status == ATTN_POINT_OK && slice->row[s]->time.n == 0 && n++ == 0)
            one = slice->row[s];
    if (one == NULL)
        return;
    attn_row_label(one, label);
    size_t used = strlen(plot->key_extra);
    (void)snprintf(plot->key_extra + used, sizeof plot->key_extra - used,
                   "\n%d good points have no %s%s and are not drawn: %.100s %s %s%s", n,
                   one->call == ATTN_CALLS ? "time" : attn_call_name(one->call),
                   one->call == ATTN_CALLS ? "" : " call", label,
                   attn_axis_text(ATTN_AXIS_LENGTH, (double)one->point->c.n_query, number),
                   attn_pass_word(one->point->c.pass), n > 1 ? ", ..." : "");
}

enum attn_status attn_fill_time(const struct attn_slice *slice,
                                const struct attn_figure_machine *machine, struct attn_plot *plot,
                                struct attn_figure *figure, struct attn_error *err)
{
    int place[2];
    enum attn_status status = ATTN_OK;
    const enum attn_call call = slice->row[0]->call; /* the same in all rows of a group */
    (void)machine;
    figure->caption =
        "Marker: the median over the rounds, each a fresh process, of its median call of that "
        "kind. "
        "Bar: the fastest and the slowest round. Sequence-parallel implementations run their "
        "simulated "
        "ranks as threads that share the cores; their curve is the CPU time of the slowest rank "
        "and says nothing about parallel wall time. A plug-in is timed around its function; of a "
        "command the times are those that it reports, or, where it reports none, the wall time of "
        "the whole command less that of the same command on a tiny case: its legend says which.";
    (void)snprintf(figure->finding, sizeof figure->finding, "%s", timed[call].finding);
    attn_fill_columns(plot, 3, timed[call].column);
    attn_fill_words(plot, timed[call].title, "sequence length L (tokens)", timed[call].y_label);
    plot->x_axis = ATTN_AXIS_LENGTH;
    plot->y_axis = ATTN_AXIS_SECONDS;
    (void)snprintf(plot->key_extra, sizeof plot->key_extra,
                   "%sMarker: median of the rounds. Bar: fastest and slowest round.\n%s",
                   timed[call].finding, fit_text);
    say_what_has_no_time(slice, plot);
    attn_fill_passes(slice, plot, place);
    for (int64_t s = 0; status == ATTN_OK && s < slice->n; s++) {
        const struct attn_row *row = slice->row[s];
        const struct attn_point *p = row->point;
        if (row->time.n == 0)
            continue;
        char label[200];
        attn_fill_label(row, plot->y_axis, label);
        double y[] = {row->time.median, row->time.min, row->time.max};
        status = attn_plot_add(plot, place[p->c.pass], attn_plot_series(plot, label, row->impl),
                               (double)p->c.n_query, y, err);
    }
    return status == ATTN_OK ? attn_plot_fit(plot, 0, err) : status;
}

/* Panels of the outputs that were compared; where records do not tell them apart, one for all. */
static int add_output_panels(const struct attn_slice *slice, struct attn_plot *plot,
                             int place[ATTN_OUTPUTS])
{
    static const char *const title[ATTN_OUTPUTS] = {
        "O", "LSE", "dQ (backward)", "dK (backward)", "dV (backward)", "dBias (backward)"};
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        place[o] = -1;
        for (int64_t s = 0; s < slice->n && place[o] < 0; s++)
            if (!isnan(slice->row[s]->output[o])) {
                place[o] = plot->n_panels;
                (void)snprintf(plot->panel[plot->n_panels++], sizeof plot->panel[0], "%s",
                               title[o]);
            }
    }
    if (plot->n_panels > 0)
        return 0;
    (void)snprintf(plot->panel[plot->n_panels++], sizeof plot->panel[0],
                   "worst of all outputs, both passes");
    return 1;
}

/* An error that is exactly 0 has no logarithm: it is drawn at this floor. */
static const double error_floor = 1e-4;

static double drawn_ratio(double ratio)
{
    if (isnan(ratio))
        return none;
    return ratio > error_floor ? fmin(ratio, 1e6) : error_floor;
}

/* Both passes judge O and LSE: keep the larger ratio of a length. */
static enum attn_status add_worst(struct attn_plot *plot, int panel, int series, double x, double y,
                                  struct attn_error *err)
{
    for (int64_t s = 0; s < plot->n; s++) {
        struct attn_plot_point *p = &plot->point[s];
        if (p->panel == panel && p->series == series && p->x == x) {
            p->y[0] = fmax(p->y[0], y);
            return ATTN_OK;
        }
    }
    return attn_plot_add(plot, panel, series, x, &y, err);
}

/* The smallest length at which not every element was compared, in the recorder's own words. */
static void say_what_was_compared(const struct attn_slice *slice, int floored,
                                  struct attn_plot *plot)
{
    const struct attn_point *first = NULL;
    char sample[160] = "", number[32], floor[96] = "";
    for (int64_t s = 0; s < slice->n; s++) {
        const struct attn_point *p = slice->row[s]->point;
        if (slice->row[s]->status == ATTN_POINT_OK && strstr(p->verified, "rows") != NULL &&
            (first == NULL || p->c.n_query < first->c.n_query))
            first = p;
    }
    if (first != NULL)
        (void)snprintf(sample, sizeof sample, "From L = %s on a sample is compared: %.60s. ",
                       attn_axis_text(ATTN_AXIS_LENGTH, (double)first->c.n_query, number),
                       first->verified);
    if (floored)
        (void)snprintf(floor, sizeof floor, "Ratios of %g and less, also 0, are drawn at %g.",
                       error_floor, error_floor);
    (void)snprintf(plot->key_extra, sizeof plot->key_extra, "%s%s", sample, floor);
}

enum attn_status attn_fill_error(const struct attn_slice *slice,
                                 const struct attn_figure_machine *machine, struct attn_plot *plot,
                                 struct attn_figure *figure, struct attn_error *err)
{
    static const char *const column[] = {"error_over_bound"};
    int place[ATTN_OUTPUTS];
    enum attn_status status = ATTN_OK;
    (void)machine;
    figure->caption =
        "Every compared element of every output has a bound of its own, derived from the standard "
        "model of rounding; drawn is the largest error divided by its bound, over all rounds. "
        "Above 1 the result is wrong. O and LSE are judged in both passes, and the worse one is "
        "drawn. Beyond the length named by the plan a sample of rows and keys is compared.";
    attn_fill_columns(plot, 1, column);
    attn_fill_words(plot, "Largest error over its bound, against sequence length",
                    "sequence length L (tokens)", "largest error / bound");
    plot->x_axis = ATTN_AXIS_LENGTH;
    plot->y_axis = ATTN_AXIS_RATIO;
    plot->line = 1;
    (void)snprintf(plot->line_text, sizeof plot->line_text, "the bound");
    int together = add_output_panels(slice, plot, place);
    int floored = 0;
    for (int64_t s = 0; status == ATTN_OK && s < slice->n; s++) {
        const struct attn_row *row = slice->row[s];
        char label[160];
        attn_row_label(row, label);
        int series = isnan(row->worst) ? -1 : attn_plot_series(plot, label, row->impl);
        for (int o = 0; status == ATTN_OK && o < (together ? 1 : ATTN_OUTPUTS); o++) {
            double ratio = together ? row->worst : row->output[o];
            double y = drawn_ratio(ratio);
            floored |= ratio <= error_floor;
            if (!isnan(y))
                status = add_worst(plot, together ? 0 : place[o], series,
                                   (double)row->point->c.n_query, y, err);
        }
    }
    say_what_was_compared(slice, floored, plot);
    return status;
}
