/* The report: one page that needs no other file, made from plots/page.html, whose {{holes}} are
 * filled here.
 *
 *   page.c         the template, figures with captions, commands, machine, calibration
 *   page_tables.c  summary, numbers of figures, live sets, what is not ours, what was not measured
 */
#ifndef EXPERIMENTS_REPORT_PAGE_H
#define EXPERIMENTS_REPORT_PAGE_H

#include <jansson.h>

#include "experiments/measure/external_specs.h"
#include "experiments/report/document.h"
#include "experiments/report/figures.h"

struct attn_page {
    const char *out;     /* the folder of the report                                     */
    const char *scripts; /* where page.html is                                           */
    const char *records; /* where its records are                                        */
    const char *plan;    /* the plan they were measured by; NULL when it is not known    */
    const struct attn_external_specs
        *externals; /* and beside it; NULL: not known                 */
    int64_t n_points;
    const struct attn_summary *summary;
    const struct attn_figure_groups *groups;
    const struct attn_figures *figures;
    const json_t *machine;     /* the last machine line, or NULL */
    const json_t *calibration; /* array of calibration lines, or NULL */
};

/* Write OUT/index.html.  EINVAL or ENOMEM when it cannot be written, whole. */
enum attn_status attn_page_write(const struct attn_page *page, struct attn_error *err);

/* Tables. */
void attn_page_summary(struct attn_document *d, const struct attn_page *page);
void attn_page_others(struct attn_document *d, const struct attn_page *page);
void attn_page_live(struct attn_document *d, const struct attn_page *page);
void attn_page_shares(struct attn_document *d, const struct attn_page *page);
void attn_page_external(struct attn_document *d, const struct attn_page *page);
void attn_page_not_run(struct attn_document *d, const struct attn_page *page);
int attn_page_has_external(const struct attn_page *page);

/* "1.24 ms"; a dash for NaN. */
const char *attn_seconds_text(double seconds, char text[32]);

#endif
