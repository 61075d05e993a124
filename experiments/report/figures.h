/* From slices to figures: which numbers are drawn, and under which words.  The drawing itself is
 * done by gnuplot with plots/SCRIPT.gp (draw.h). */
#ifndef EXPERIMENTS_REPORT_FIGURES_H
#define EXPERIMENTS_REPORT_FIGURES_H

#include "experiments/report/plot.h"
#include "experiments/report/slices.h"

struct attn_figure {
    char name[ATTN_PLOT_NAME]; /* DIR/figures/NAME.{dat,set,svg,png,pdf}          */
    const char *script;        /* plots/SCRIPT.gp                                 */
    char title[160];
    const char *caption;            /* how to read it; static storage                  */
    char finding[256];              /* numbers computed for it, such as a crossing; "" */
    char omitted[256];              /* why it is not drawn; "" when it is              */
    const struct attn_slice *slice; /* borrowed */
};

struct attn_figures {
    struct attn_figure *figure;
    int n;
};

/* What figures say about the machine. */
struct attn_figure_machine {
    char text[256];       /* "AMD EPYC 7B13, 2 cores, 7.8 GiB"; "" when unknown */
    int64_t memory_bytes; /* drawn as a line where in range; 0: unknown         */
};

/* Write the .dat and .set of every figure into folder.  A figure without a curve (two points of
 * one series) is listed as omitted, with its reason.  Figures borrow from slices. */
enum attn_status attn_figures_write(const struct attn_slices *slices,
                                    const struct attn_figure_machine *machine, const char *folder,
                                    struct attn_figures *figures, struct attn_error *err);
void attn_figures_free(struct attn_figures *figures);

/* One figure of a kind ("memory", "time", "error", "rank-memory", "bytes-sent", "csr-density") of
 * a slice, as data.  *plot is initialised here, and is to be freed by attn_plot_free whatever is
 * returned. */
enum attn_status attn_figure_fill(const char *kind, const struct attn_slice *slice,
                                  const struct attn_figure_machine *machine, struct attn_plot *plot,
                                  struct attn_figure *figure, struct attn_error *err);

/* The largest bytes that a rank of the spec sends in this case, from its cost(); -1 when the spec
 * cannot be priced for it (ranks that do not divide the problem). */
int64_t attn_figure_priced_sent(const char *spec, const struct attn_case *c);

#endif
