/* The report: one page that needs no other file.  Its text is plots/report.md, whose {{holes}} are
 * filled here. */
#ifndef EXPERIMENTS_REPORT_PAGE_H
#define EXPERIMENTS_REPORT_PAGE_H

#include "experiments/measure/subjects.h"
#include "experiments/report/figures.h"
#include "experiments/table/document.h"

struct attn_page {
    const char *out; /* the folder of the report                                     */
    const struct attn_records *records;
    const char *from; /* the file that they were read from */
    const char *plan; /* the plan they were measured by; NULL when it is not known    */
    const struct attn_cli_list *keys;      /* flags that replaced what it says; may be NULL       */
    const struct attn_subjects *externals; /* and beside it; NULL: not known                 */
    const struct attn_summary *summary;
    const struct attn_figure_groups *groups;
    const struct attn_figures *figures;
};

/* Write OUT/index.html, or index.md (attn_page_path), whole; *path is to be freed.  ENOMEM: it
 * cannot be, or the template has a hole that is not known. */
enum attn_status attn_page_write(const struct attn_page *page, char **path, struct attn_error *err);

/* A hole of the template, and the function that fills it. */
struct attn_page_hole {
    const char *name; /* NULL ends a list */
    void (*put)(struct attn_document *d, const struct attn_page *page);
};
extern const struct attn_page_hole attn_page_openings[]; /* findings.c */
extern const struct attn_page_hole attn_page_tables[];   /* page_tables.c */

int attn_page_has_external(const struct attn_page *page);

/* Names the curves that were not measured, and from where on: "Dropped by the time budget: dense
 * from 8,192 (forward), 4,096 (backward).".  "" when everything was; a text that does not fit is
 * cut, and says so. */
void attn_group_not_run(const struct attn_figure_group *group, char *text, size_t size);

#endif
