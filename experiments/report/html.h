/* Pieces of HTML.  Everything that comes from records goes through attn_html_text.  Errors of
 * writing are left to the caller: ferror(), fclose(). */
#ifndef EXPERIMENTS_REPORT_HTML_H
#define EXPERIMENTS_REPORT_HTML_H

#include <stdint.h>
#include <stdio.h>

#include "experiments/measure/stats.h"

/* Text with & < > " ' replaced, and control characters made blanks. */
void attn_html_text(FILE *file, const char *text);

/* "16 384", grouped by narrow no-break spaces. */
void attn_html_count(FILE *file, int64_t n);

/* "3.2 MiB" with the exact bytes as a tooltip; a dash for unknown (negative). */
void attn_html_bytes(FILE *file, int64_t bytes);

/* "1.24 ms"; a dash for NaN. */
void attn_html_seconds(FILE *file, double seconds);

/* Four figures; a dash for NaN. */
void attn_html_real(FILE *file, double x);

/* "1.98 ± 0.02"; a dash when there is no fit. */
void attn_html_slope(FILE *file, const struct attn_power *power);

/* Copy an SVG file inline: without prologue and namespace addresses, its ids prefixed by name so
 * that several live in one page, with the label for those who do not see it.  Returns 0, -1 when
 * the file cannot be read or is no SVG. */
int attn_html_svg(FILE *file, const char *path, const char *name, const char *label);

/* Everything before and after the contents. */
void attn_html_begin(FILE *file, const char *title);
void attn_html_end(FILE *file);

#endif
