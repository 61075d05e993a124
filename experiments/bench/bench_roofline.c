/* The roofline figure (bench.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/bench/bench.h"
#include "experiments/cli/cli.h"
#include "experiments/measure/machine.h"
#include "experiments/report/figures.h"
#include "experiments/table/document.h"
#include "tests/harness/base/fileio.h"

static const double G = 1e9;

/* The panel of the instruction set and threads of this entry, made if need be; panel[]: an entry of
 * each.  -1 when there are too many. */
static int panel_of(struct attn_figure *figure, const struct attn_bench_entry **panel,
                    const struct attn_bench_entry *e)
{
    for (int p = 0; p < figure->n_panels; p++)
        if (panel[p]->kernels == e->kernels && panel[p]->threads == e->threads)
            return p;
    if (figure->n_panels == ATTN_FIGURE_PANELS)
        return -1;
    panel[figure->n_panels] = e;
    snprintf(figure->panel[figure->n_panels], sizeof figure->panel[0], "%s-%s-%d-thread%s", e->isa,
             attn_kernels_arithmetic(e->kernels), e->threads, e->threads == 1 ? "" : "s");
    return figure->n_panels++;
}

/* A forward under its bare name looks as in every other figure; what else there is takes looks that
 * no implementation has. */
static int look_of(const struct attn_figure *figure, const struct attn_bench_entry *e)
{
    for (int i = 0; i < attn_impl_count() && !e->is_sgemm; i++)
        if (strcmp(attn_impl_at(i)->name, e->point.spec) == 0 && e->point.c.pass == ATTN_FORWARD)
            return i;
    return attn_impl_count() + figure->n_curves;
}

/* Spec and pass: the case is told by the place on the x axis. */
static void curve_name(const struct attn_bench_entry *e, char text[160])
{
    snprintf(text, 160, "%s%s", e->point.spec,
             !e->is_sgemm && e->point.c.pass == ATTN_BACKWARD ? ", backward" : "");
}

static void add_entry(const struct attn_bench *bench, struct attn_figure *figure,
                      const struct attn_bench_entry **panel, const struct attn_bench_entry *e)
{
    char name[160];
    if (e->state != ATTN_BENCH_TIMED || e->n == 0 || !(e->work.bytes > 0))
        return;
    int p = panel_of(figure, panel, e);
    if (p < 0)
        return;
    curve_name(e, name);
    int look = look_of(figure, e);
    int curve = attn_figure_curve_of(figure, name, look, look < attn_impl_count(), NULL);
    double x = e->work.flops / e->work.bytes;
    attn_figure_add(figure, figure->panel[p], curve, x);
    /* The roof is within the range of y, and its ridge within that of x. */
    double peak = attn_bench_roof_rate(bench, ATTN_ROOF_FMA, e);
    double ridge = 0.25 * peak / attn_bench_roof_rate(bench, ATTN_ROOF_READ, e);
    struct attn_figure_point *roof = attn_figure_add(figure, figure->panel[p], curve, ridge),
                             *point = roof - 1;
    struct attn_bench_figure rate = attn_bench_figure(e, NULL, ATTN_BENCH_FLOPS);
    point->y[0] = rate.spread.median / G;
    point->y[1] = rate.spread.min / G;
    point->y[2] = rate.spread.max / G;
    roof->y[3] = peak / G;
    roof->status = "roof";
}

static void set_words(struct attn_figure *figure)
{
    json_t *facts = attn_machine_facts();
    const char *name = json_string_value(json_object_get(facts, "cpu"));
    *figure = (struct attn_figure){
        .name = ATTN_BENCH_ROOFLINE,
        .kind = "roofline",
        .script = "roofline",
        .title = "What was reached, under what this machine can do",
        .remark = "Bytes are modelled: inputs and outputs once, and twice the buffers at the peak "
                  "that exceed the second-level cache.",
        .x_name = "flops_per_byte",
        .column = {"gflops", "slowest", "fastest", "roof_gflops"},
        .n_columns = 4,
        .n_about = 2,
        .about = {0, 1}};
    snprintf(figure->subtitle, sizeof figure->subtitle,
             "Medians, and the fastest and slowest sample. Machine: %s",
             name != NULL ? name : "unknown");
    json_decref(facts);
}

/* The roofs of each panel, as lines of the script. */
static void set_roofs(const struct attn_bench *bench, const struct attn_bench_entry *const *panel,
                      struct attn_figure *figure)
{
    static const struct {
        const char *name;
        enum attn_roof roof;
    } roof[] = {
        {"roof_fma", ATTN_ROOF_FMA}, {"roof_read", ATTN_ROOF_READ}, {"roof_l2", ATTN_ROOF_L2}};
    char *text = figure->variables;
    size_t size = sizeof figure->variables;
    attn_append(text, size, "x_name   = 'flops a byte (modelled)'\n");
    for (size_t r = 0; r < sizeof roof / sizeof *roof; r++) {
        attn_append(text, size, "%-9s= '", roof[r].name);
        for (int p = 0; p < figure->n_panels; p++)
            attn_append(text, size, "%s%.6g", p > 0 ? " " : "",
                        attn_bench_roof_rate(bench, roof[r].roof, panel[p]) / G);
        attn_append(text, size, "'\n");
    }
}

enum attn_status attn_bench_roofline(const struct attn_bench *bench,
                                     const struct attn_bench_entry *entry, int n,
                                     const char *folder, int overwrite, int *is_drawn,
                                     struct attn_error *err)
{
    struct attn_figure figure = {0};
    const struct attn_bench_entry *panel[ATTN_FIGURE_PANELS];
    char *style;
    *is_drawn = 0;
    enum attn_status status = attn_plots_read("style.gp", &style, err);
    if (status != ATTN_OK) /* without the scripts there is no figure, which is said */
        return status == ATTN_EINTERNAL ? ATTN_OK : ATTN_ENOMEM;
    free(style);
    set_words(&figure);
    for (int at = 0; at < n; at++)
        add_entry(bench, &figure, panel, &entry[at]);
    if (figure.n > 0) {
        attn_figure_finish(&figure);
        figure.overwrite = overwrite;
        set_roofs(bench, panel, &figure);
        *is_drawn = attn_draw_possible();
        status =
            *is_drawn ? attn_draw(&figure, folder, err) : attn_figure_write(&figure, folder, err);
    }
    attn_figure_free(&figure);
    return status;
}
