/* Pieces of HTML.  Everything that comes from records goes through attn_html_text.  Errors of
 * writing are left to the caller: ferror(), fclose(). */
#ifndef EXPERIMENTS_REPORT_HTML_H
#define EXPERIMENTS_REPORT_HTML_H

#include <stdio.h>

/* Text with & < > " ' replaced, and control characters made blanks. */
void attn_html_text(FILE *file, const char *text);

/* A picture inside the page, which stays one file: <img> with the file as its data, and the label
 * for those who do not see it.  Returns 0, -1 when the file cannot be read. */
int attn_html_image(FILE *file, const char *path, const char *label);

/* What stands in <style>. */
extern const char attn_html_style[];

/* Everything before and after the contents. */
void attn_html_begin(FILE *file, const char *title);
void attn_html_end(FILE *file);

#endif
