/* A document in Markdown (GitHub's): headings, paragraphs, tables, blocks; and such a document as a
 * page of HTML, by the command cmark-gfm and plots/page.awk, in the frame plots/page.html with
 * plots/page.css.
 *
 * A text is a format, which is Markdown of ours with parts in a style: **strong**, *good* (what
 * passed), ***bad***, `code`.  An argument is words, or in `%s` what another program, file or
 * command line says: markup in it is text, control characters and what is no UTF-8 are '?'.
 * Errors of writing are left to the caller: ferror(), fclose(). */
#ifndef EXPERIMENTS_TABLE_DOCUMENT_H
#define EXPERIMENTS_TABLE_DOCUMENT_H

#include "experiments/table/row_table.h"
#include "ref/attn.h"

struct attn_document {
    FILE *out;
};
void attn_document_begin(struct attn_document *d, FILE *out, const char *title);
void attn_document_heading(struct attn_document *d, int level, const char *text);

/* Text inside a paragraph or a list. */
void attn_document_put(struct attn_document *d, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void attn_document_close(struct attn_document *d); /* what was put is a paragraph */

/* A whole paragraph; of "" nothing. */
void attn_document_text(struct attn_document *d, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A line of a shell by itself, or lines of another program's output. */
void attn_document_lines(struct attn_document *d, const char *lines);

/* A table, whose rows it frees. */
void attn_document_table(struct attn_document *d, const struct attn_column *column, json_t *rows);

/* All between the two calls is folded under this line; paper has it where is_open. */
void attn_document_fold(struct attn_document *d, int is_open, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void attn_document_unfold(struct attn_document *d);

/* ---- as a page of HTML ----------------------------------------------------------------------- */

/* Where the page goes that is wanted here: PATH; or, where PATH ends in .html and there is no
 * cmark-gfm, the same with .md, and a line on stderr says so.  To be freed. */
char *attn_page_path(const char *path);

/* Write a document: as HTML where the path ends in .html or .htm, else as it is.  Pictures of HTML,
 * which are files below the page's folder, are put into it.  ENOMEM. */
enum attn_status attn_page_save(const char *path, const char *title, const char *markdown,
                                struct attn_error *err);

/* The text of a file of the folder plots: ./plots, or plots beside or above the running program, or
 * where that was installed; to be freed.  EINTERNAL: there is none. */
enum attn_status attn_plots_read(const char *name, char **text, struct attn_error *err);

/* Text with & < > " ' replaced, clean (fileio.h), and blanks for line ends and tabs. */
void attn_html_text(FILE *file, const char *text);

#endif
