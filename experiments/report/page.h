/* The report: one self-contained page of figures, tables and commands.
 *
 *   page.c         the order of things, figures with captions, machine, commands
 *   page_tables.c  the tables under the figures
 *   page_guests.c  what is not ours, and what is known of it
 *   page_summary.c the summary, and live sets: priced = ledger = resident
 */
#ifndef EXPERIMENTS_REPORT_PAGE_H
#define EXPERIMENTS_REPORT_PAGE_H

#include <jansson.h>

#include "experiments/measure/external_specs.h"
#include "experiments/report/figures.h"

struct attn_page {
    const char *out;     /* the folder of the report                                     */
    const char *records; /* where its records are                                        */
    const char *plan;    /* the plan they were measured by; NULL when it is not known    */
    const struct attn_external_specs *externals; /* and beside it; NULL: not known              */
    int64_t n_points;
    const struct attn_summary *summary;
    const struct attn_slices *slices;
    const struct attn_figures *figures;
    const json_t *machine;     /* the last machine line, or NULL */
    const json_t *calibration; /* array of calibration lines, or NULL */
};

/* Write OUT/index.html.  EINVAL when it cannot be written, whole. */
enum attn_status attn_page_write(const struct attn_page *page, struct attn_error *err);

/* Parts. */
void attn_page_summary(FILE *file, const struct attn_page *page);
void attn_page_live(FILE *file, const struct attn_page *page);
void attn_page_table(FILE *file, const struct attn_figure *figure);
void attn_page_not_run(FILE *file, const struct attn_page *page);
void attn_page_guests(FILE *file, const struct attn_page *page);
int attn_page_has_guests(const struct attn_page *page);

/* A text found anywhere in a JSON tree by its key; NULL when there is none. */
const json_t *attn_page_find(const json_t *tree, const char *key);

#endif
