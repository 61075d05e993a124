/* Running gnuplot. */
#ifndef EXPERIMENTS_REPORT_DRAW_H
#define EXPERIMENTS_REPORT_DRAW_H

#include <stddef.h>

#include "experiments/report/figures.h"

/* Can gnuplot be started? */
int attn_draw_possible(void);

/* The folder of the gnuplot scripts: ./plots, or plots beside or above the running program.
 * Returns 0, and an absolute path, or -1. */
int attn_draw_scripts(char *path, size_t size);

/* Write the files of a figure, and have gnuplot make FOLDER/NAME.svg, .png and .pdf of them.
 * EINTERNAL with gnuplot's own words when it fails. */
enum attn_status attn_draw(const struct attn_figure *figure, const char *scripts,
                           const char *folder, struct attn_error *err);

#endif
