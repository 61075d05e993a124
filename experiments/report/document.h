/* One document, written as HTML or as Markdown (GitHub's): headings, paragraphs, tables, blocks.
 *
 * WORDS are ours; CODE is whatever somebody else's program, file or command line says, and comes
 * out as it is in both: markup in it is text, control characters and what is no UTF-8 are '?'.
 * Errors of writing are left to the caller: ferror(), fclose(). */
#ifndef EXPERIMENTS_REPORT_DOCUMENT_H
#define EXPERIMENTS_REPORT_DOCUMENT_H

#include <stdio.h>

struct attn_document {
    FILE *out;
    int is_html;
    int lacks_picture;    /* one of the page cannot be read */
    int in_table, column; /* private */
    unsigned is_numeric;  /* private: a bit for each column */
};
enum attn_style {
    ATTN_WORDS,
    ATTN_STRONG, /* words */
    ATTN_GOOD,   /* words: what passed; colour only where there is some */
    ATTN_BAD,
    ATTN_CODE
};

void attn_document_begin(struct attn_document *d, FILE *out, int is_html, const char *title);
void attn_document_end(struct attn_document *d);

void attn_document_heading(struct attn_document *d, int level, const char *text);

/* Text inside a paragraph, a cell or a list. */
void attn_document_put(struct attn_document *d, enum attn_style style, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void attn_document_paragraph(struct attn_document *d); /* what is put next, up to ... */
void attn_document_close(struct attn_document *d);     /* ... here, is one            */

/* A whole paragraph of words; of "" nothing. */
void attn_document_text(struct attn_document *d, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A line of a shell by itself, or lines of somebody's output. */
void attn_document_lines(struct attn_document *d, const char *lines);

/* Columns by their heads, NULL behind the last; heads that begin with '#' are of numbers. */
void attn_document_table(struct attn_document *d, const char *const *head);

/* A new row, and its first cells; more of them.  A letter for each: w words, c code, g and x words
 * that are good or bad, all const char *; b bytes ("1.2 MiB"), n a number ("16,384") and i one
 * without commas, all int64_t, and a dash below 0. */
void attn_document_row(struct attn_document *d, const char *letters, ...);
void attn_document_cells(struct attn_document *d, const char *letters, ...);
extern const char attn_document_dash[]; /* what is not known */

void attn_document_cell(struct attn_document *d, enum attn_style style, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void attn_document_table_end(struct attn_document *d);

/* ---- for pages that are HTML anyway ---------------------------------------------------------- */

/* Text with & < > " ' replaced, clean (fileio.h), and blanks for line ends and tabs. */
void attn_html_text(FILE *file, const char *text);

/* A picture inside the page, which stays one file: <img> with the file as its data, and the label
 * for those who do not see it.  Returns 0, -1 when the file cannot be read. */
int attn_html_image(FILE *file, const char *path, const char *label);

#endif
