#include "experiments/report/figures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/report/figure_fill.h"

/* ---- pieces -------------------------------------------------------------------------------- */

double attn_fill_bytes(int64_t bytes)
{
    return bytes > 0 ? (double)bytes : (double)NAN;
}

void attn_fill_resident(const struct attn_row *row, double *resident, double *alone)
{
    int drawn = row->point->ranks == 1 && row->peak >= ATTN_FILL_RESIDENT_FROM;
    *resident = drawn ? attn_fill_bytes(row->resident) : (double)NAN;
    *alone = row->point->route[0] != '\0' ? *resident : (double)NAN;
}

void attn_fill_label(const struct attn_row *row, enum attn_axis y_axis, char text[200])
{
    const struct attn_point *p = row->point;
    char name[160];
    attn_row_label(row, name);
    const char *of = "";
    if (y_axis == ATTN_AXIS_BYTES && p->route[0] != '\0')
        of = " (resident)";
    else if (y_axis == ATTN_AXIS_SECONDS && p->ranks > 1)
        of = " (CPU s, slowest rank)";
    else if (y_axis == ATTN_AXIS_SECONDS && strcmp(p->time_source, "reported") == 0)
        of = " (as it reports)";
    else if (y_axis == ATTN_AXIS_SECONDS && strcmp(p->time_source, "command") == 0)
        of = " (whole command - tiny case)";
    (void)snprintf(text, 200, "%s%s", name, of);
}

/* Panel of a pass, added when it is first met; a pass without rows has no panel. */
void attn_fill_passes(const struct attn_slice *slice, struct attn_plot *plot, int place[2])
{
    for (int pass = ATTN_FORWARD; pass <= ATTN_BACKWARD; pass++) {
        place[pass] = -1;
        if (!attn_slice_has_pass(slice, (enum attn_pass)pass))
            continue;
        place[pass] = plot->n_panels;
        (void)snprintf(plot->panel[plot->n_panels++], sizeof plot->panel[0], "%s",
                       attn_pass_word((enum attn_pass)pass));
    }
}

void attn_fill_columns(struct attn_plot *plot, int n, const char *const *name)
{
    plot->n_columns = n;
    for (int c = 0; c < n; c++)
        plot->column[c] = name[c];
}

void attn_fill_words(struct attn_plot *plot, const char *title, const char *x_label,
                     const char *y_label)
{
    (void)snprintf(plot->title, sizeof plot->title, "%s", title);
    plot->x_label = x_label;
    plot->y_label = y_label;
}

/* Under the figure: what was not run, and which curves end because the plan says so. */
static void set_note(const struct attn_slice *slice, struct attn_plot *plot)
{
    enum { HALF = 2 * ATTN_PLOT_TEXT - 8 };
    char not_run[HALF], not_planned[HALF];
    attn_slice_not_run(slice, not_run, sizeof not_run);
    attn_slice_not_planned(slice, not_planned, sizeof not_planned);
    (void)snprintf(plot->note, sizeof plot->note, "%s%s%s", not_run,
                   not_run[0] != '\0' && not_planned[0] != '\0' ? "\n" : "", not_planned);
}

/* ---- all figures --------------------------------------------------------------------------- */

struct kind {
    const char *name; /* also of its script */
    enum attn_slice_kind slice;
    enum attn_status (*fill)(const struct attn_slice *slice,
                             const struct attn_figure_machine *machine, struct attn_plot *plot,
                             struct attn_figure *figure, struct attn_error *err);
};

static const struct kind kinds[] = {
    {"memory", ATTN_SLICE_LENGTH, attn_fill_memory},
    {"time", ATTN_SLICE_LENGTH, attn_fill_time},
    {"error", ATTN_SLICE_LENGTH, attn_fill_error},
    {"rank-memory", ATTN_SLICE_RANKS, attn_fill_rank_memory},
    {"bytes-sent", ATTN_SLICE_RANKS, attn_fill_bytes_sent},
    {"csr-density", ATTN_SLICE_DENSITY, attn_fill_density},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* Does a series of the plot have two different x? */
static int has_curve(const struct attn_plot *plot)
{
    for (int64_t s = 0; s < plot->n; s++)
        for (int64_t t = 0; t < s; t++)
            if (plot->point[s].panel == plot->point[t].panel &&
                plot->point[s].series == plot->point[t].series &&
                plot->point[s].x != plot->point[t].x)
                return 1;
    return 0;
}

static enum attn_status fill(const struct kind *kind, const struct attn_slice *slice,
                             const struct attn_figure_machine *machine, struct attn_plot *plot,
                             struct attn_figure *figure, struct attn_error *err)
{
    memset(figure, 0, sizeof *figure);
    attn_plot_init(plot);
    (void)snprintf(figure->name, sizeof figure->name, "%s%s%s", kind->name,
                   slice->tag[0] != '\0' ? "-" : "", slice->tag);
    memcpy(plot->name, figure->name, sizeof plot->name);
    plot->script = figure->script = kind->name;
    figure->slice = slice;
    enum attn_status status = kind->fill(slice, machine, plot, figure, err);
    memcpy(figure->title, plot->title, sizeof figure->title);
    (void)snprintf(plot->subtitle, sizeof plot->subtitle, "%.600s%s%s", slice->problem,
                   machine->text[0] != '\0' ? ". Machine: " : "", machine->text);
    set_note(slice, plot);
    if (status == ATTN_OK && !has_curve(plot))
        (void)snprintf(figure->omitted, sizeof figure->omitted,
                       "group %s has no curve for it: no implementation has two good points",
                       slice->group);
    return status;
}

enum attn_status attn_figure_fill(const char *name, const struct attn_slice *slice,
                                  const struct attn_figure_machine *machine, struct attn_plot *plot,
                                  struct attn_figure *figure, struct attn_error *err)
{
    for (int k = 0; k < KINDS; k++)
        if (strcmp(kinds[k].name, name) == 0)
            return fill(&kinds[k], slice, machine, plot, figure, err);
    attn_plot_init(plot);
    return attn_fail(err, ATTN_EINVAL, "there is no figure \"%s\"", name);
}

enum attn_status attn_figures_write(const struct attn_slices *slices,
                                    const struct attn_figure_machine *machine, const char *folder,
                                    struct attn_figures *figures, struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    figures->n = 0;
    figures->figure = calloc((size_t)slices->n * KINDS + 1, sizeof *figures->figure);
    if (figures->figure == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for the list of figures");
    /* All memory figures first, then all time figures, and so on. */
    for (int k = 0; k < KINDS; k++)
        for (int s = 0; status == ATTN_OK && s < slices->n; s++) {
            struct attn_plot plot;
            struct attn_figure *figure = &figures->figure[figures->n];
            if (slices->slice[s].kind != kinds[k].slice)
                continue;
            status = fill(&kinds[k], &slices->slice[s], machine, &plot, figure, err);
            if (status == ATTN_OK && figure->omitted[0] == '\0')
                status = attn_plot_write(&plot, folder, err);
            attn_plot_free(&plot);
            figures->n++;
        }
    return status;
}

void attn_figures_free(struct attn_figures *figures)
{
    free(figures->figure);
    *figures = (struct attn_figures){NULL, 0};
}
