/* How each kind of figure picks its numbers: what figures.c calls, and what the fillers share. */
#ifndef EXPERIMENTS_REPORT_FIGURE_FILL_H
#define EXPERIMENTS_REPORT_FIGURE_FILL_H

#include "experiments/report/figures.h"

/* A filler adds panels, series and points to an initialised plot, and writes the caption (and the
 * finding) of its figure. */
#define ATTN_FILLER(name)                                                          \
    enum attn_status attn_fill_##name(                                             \
        const struct attn_slice *slice, const struct attn_figure_machine *machine, \
        struct attn_plot *plot, struct attn_figure *figure, struct attn_error *err)
ATTN_FILLER(memory);
ATTN_FILLER(time);
ATTN_FILLER(error);
ATTN_FILLER(rank_memory);
ATTN_FILLER(bytes_sent);
ATTN_FILLER(density);
#undef ATTN_FILLER

/* Below this, pages of stack and libraries outweigh buffers, and VmHWM says nothing about them. */
enum { ATTN_FILL_RESIDENT_FROM = 1 << 20 };

/* Bytes as a number to draw: NaN where there are none. */
double attn_fill_bytes(int64_t bytes);

/* What the memory figures draw of resident memory, and once more with a line if nothing else is
 * known of it. */
void attn_fill_resident(const struct attn_row *row, double *resident, double *alone);

/* A row's name in a legend, with what its curve is of. */
void attn_fill_label(const struct attn_row *row, enum attn_axis y_axis, char text[200]);

/* A panel for each pass that has rows; place[pass] is its index, or -1. */
void attn_fill_passes(const struct attn_slice *slice, struct attn_plot *plot, int place[2]);

void attn_fill_columns(struct attn_plot *plot, int n, const char *const *name);
void attn_fill_words(struct attn_plot *plot, const char *title, const char *x_label,
                     const char *y_label);

#endif
