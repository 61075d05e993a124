#include "experiments/bench/bench_roofline.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "experiments/cli.h"
#include "experiments/measure/machine.h"
#include "experiments/report/draw.h"
#include "tests/harness/files/fileio.h"
#include "tests/harness/files/folder.h"

enum { MISS_BYTES = 64 };
static const double G = 1e9;

static const char *const columns[] = {"gflops", "slowest", "fastest"};

/* One panel: an entry of the instruction set and the threads that all of it have. */
struct panel {
    const struct attn_bench_entry *example;
};

static int is_counted(const struct attn_bench *bench)
{
    return bench->counters.fd[ATTN_COUNT_MISSES] >= 0;
}

static double bytes_of(const struct attn_bench *bench, const struct attn_bench_entry *e)
{
    double counted = MISS_BYTES * e->counter[ATTN_COUNT_MISSES];
    return is_counted(bench) && counted > 0 ? counted : e->work.bytes;
}

/* The panel of this entry, made if need be; -1 when there are too many. */
static int panel_of(struct attn_plot *plot, struct panel *panel, const struct attn_bench_entry *e)
{
    for (int p = 0; p < plot->n_panels; p++)
        if (panel[p].example->kernels == e->kernels && panel[p].example->threads == e->threads)
            return p;
    if (plot->n_panels == ATTN_PLOT_PANELS)
        return -1;
    panel[plot->n_panels].example = e;
    snprintf(plot->panel[plot->n_panels], sizeof plot->panel[0], "%s %s, %d thread%s", e->isa,
             e->kernels->bytes == 8 ? "f64" : "f32", e->threads, e->threads == 1 ? "" : "s");
    return plot->n_panels++;
}

/* A forward under its bare name looks as in every other figure; what else there is takes looks that
 * no implementation has. */
static int look_of(const struct attn_plot *plot, const struct attn_bench_entry *e)
{
    for (int i = 0; i < attn_impl_count() && e->product.m == 0; i++)
        if (strcmp(attn_impl_at(i)->name, e->spec) == 0 && e->c.pass == ATTN_FORWARD)
            return i;
    return attn_impl_count() + plot->n_series;
}

/* Spec and pass: the case is told by the place on the x axis. */
static void series_name(const struct attn_bench_entry *e, char text[160])
{
    snprintf(text, 160, "%s%s", e->spec,
             e->product.m == 0 && e->c.pass == ATTN_BACKWARD ? ", backward" : "");
}

static enum attn_status add_entry(const struct attn_bench *bench, struct attn_plot *plot,
                                  struct panel *panel, const struct attn_bench_entry *e,
                                  struct attn_error *err)
{
    struct attn_spread rate;
    char name[160];
    if (e->state != ATTN_BENCH_TIMED || e->n == 0 || !(bytes_of(bench, e) > 0))
        return ATTN_OK;
    int p = panel_of(plot, panel, e);
    series_name(e, name);
    int series = attn_plot_series(plot, name, look_of(plot, e));
    attn_bench_spread(e, ATTN_BENCH_RATE, &rate);
    double y[] = {rate.median / G, rate.min / G, rate.max / G}, nowhere[3];
    double peak = attn_bench_roof_rate(bench, ATTN_ROOF_FMA, e);
    double read = attn_bench_roof_rate(bench, ATTN_ROOF_READ, e);
    plot->line = fmax(peak / G, isnan(plot->line) ? 0 : plot->line); /* within the range of y */
    nowhere[0] = nowhere[1] = nowhere[2] = (double)NAN;
    enum attn_status status =
        attn_plot_add(plot, p, series, e->work.flops / bytes_of(bench, e), y, err);
    if (status == ATTN_OK) /* and the ridge within that of x */
        status = attn_plot_add(plot, p, series, 0.25 * peak / read, nowhere, err);
    return status;
}

static void set_words(const struct attn_bench *bench, struct attn_plot *plot)
{
    json_t *facts = attn_machine_facts();
    const char *name = json_string_value(json_object_get(facts, "cpu"));
    snprintf(plot->name, sizeof plot->name, "roofline");
    plot->script = "roofline";
    snprintf(plot->title, sizeof plot->title, "What was reached, under what this machine can do");
    snprintf(plot->subtitle, sizeof plot->subtitle,
             "Medians, and the fastest and slowest sample. Machine: %s",
             name != NULL ? name : "unknown");
    json_decref(facts);
    snprintf(
        plot->key_extra, sizeof plot->key_extra,
        "lines: multiply-add peak, and bandwidth of memory (full) and of the second-level cache "
        "(dashed)");
    snprintf(plot->note, sizeof plot->note, "%s",
             is_counted(bench)
                 ? "Bytes are counted: 64 for each miss of the last cache."
                 : "Bytes are modelled, this machine has no counters: inputs and outputs once, and "
                   "twice the buffers at the peak that exceed the second-level cache.");
    plot->x_label = is_counted(bench) ? "flops a byte" : "flops a byte (modelled)";
    plot->y_label = "GFLOP/s";
    plot->x_axis = ATTN_AXIS_DENSITY; /* ticks at round numbers, not where points are */
    plot->y_axis = ATTN_AXIS_RATIO;
    plot->n_columns = 3;
    for (int c = 0; c < 3; c++)
        plot->column[c] = columns[c];
}

/* The roofs of each panel, after the words that every figure has. */
static void set_roofs(const struct attn_bench *bench, struct attn_plot *plot,
                      const struct panel *panel)
{
    static const struct {
        const char *name;
        enum attn_roof roof;
    } roof[] = {
        {"ROOF_FMA", ATTN_ROOF_FMA}, {"ROOF_READ", ATTN_ROOF_READ}, {"ROOF_L2", ATTN_ROOF_L2}};
    size_t n = 0;
    for (size_t r = 0; r < sizeof roof / sizeof *roof; r++) {
        n += (size_t)snprintf(plot->settings + n, sizeof plot->settings - n, "array %s[%d]\n",
                              roof[r].name, plot->n_panels);
        for (int p = 0; p < plot->n_panels; p++)
            n += (size_t)snprintf(plot->settings + n, sizeof plot->settings - n, "%s[%d] = %.6g\n",
                                  roof[r].name, p + 1,
                                  attn_bench_roof_rate(bench, roof[r].roof, panel[p].example) / G);
    }
}

static enum attn_status draw(const char *folder, int *drawn, struct attn_error *err)
{
    char scripts[PATH_MAX];
    struct attn_figure figure = {.name = "roofline", .script = "roofline"};
    struct attn_figures figures = {&figure, 1};
    if (!attn_draw_possible() || attn_draw_scripts(scripts, sizeof scripts) != 0)
        return ATTN_OK;
    enum attn_status status = attn_draw(&figures, scripts, folder, err);
    *drawn = status == ATTN_OK;
    return status;
}

enum attn_status attn_bench_roofline(const struct attn_bench *bench,
                                     const struct attn_bench_entry *entry, int n,
                                     const char *folder, int *drawn, struct attn_error *err)
{
    struct attn_plot plot;
    struct panel panel[ATTN_PLOT_PANELS];
    enum attn_status status = ATTN_OK;
    *drawn = 0;
    if (attn_folder_make(folder, err) != ATTN_OK)
        return ATTN_ENOMEM;
    attn_plot_init(&plot);
    set_words(bench, &plot);
    for (int at = 0; at < n && status == ATTN_OK; at++)
        status = add_entry(bench, &plot, panel, &entry[at], err);
    int has_points = plot.n > 0;
    set_roofs(bench, &plot, panel);
    if (status == ATTN_OK && has_points)
        status = attn_plot_write(&plot, folder, err);
    attn_plot_free(&plot);
    return status == ATTN_OK && has_points ? draw(folder, drawn, err) : status;
}
