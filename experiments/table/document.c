/* See document.h: Markdown. */
#include "experiments/table/document.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "tests/harness/base/fileio.h"

/* 0: it is no word. */
static int put(struct attn_document *d, enum attn_style style, const char *format, va_list args)
{
    static const char *const mark[] = {
        [ATTN_WORDS] = "", [ATTN_STRONG] = "**", [ATTN_GOOD] = "*", [ATTN_BAD] = "***"};
    char text[2600];
    vsnprintf(text, sizeof text, format, args);
    for (char *at = text; (at = strpbrk(at, "\n\t")) != NULL;)
        *at = ' ';
    attn_clean(text);
    if (text[0] == '\0')
        return 0;
    if (style == ATTN_CODE) {
        attn_md_code(d->out, text, 0);
        return 1;
    }
    fputs(mark[style], d->out);
    attn_md_words(d->out, text);
    fputs(mark[style], d->out);
    return 1;
}

void attn_document_put(struct attn_document *d, enum attn_style style, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    put(d, style, format, args);
    va_end(args);
}

void attn_document_begin(struct attn_document *d, FILE *out, const char *title)
{
    *d = (struct attn_document){.out = out};
    attn_document_heading(d, 1, title);
}

void attn_document_heading(struct attn_document *d, int level, const char *text)
{
    fprintf(d->out, "%.*s ", level, "####");
    attn_document_put(d, ATTN_WORDS, "%s", text);
    fputs("\n\n", d->out);
}

void attn_document_close(struct attn_document *d)
{
    fputs("\n\n", d->out);
}

void attn_document_text(struct attn_document *d, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (put(d, ATTN_WORDS, format, args))
        attn_document_close(d);
    va_end(args);
}

void attn_document_lines(struct attn_document *d, const char *lines)
{
    char *copy = attn_cli_text("%s", lines), *rest = copy, *line;
    attn_clean_part(copy, strlen(copy), "\n\t", 1);
    while ((line = strsep(&rest, "\n")) != NULL)
        if (rest != NULL || line[0] != '\0') /* indented: no fence that the text could close */
            fprintf(d->out, "    %s\n", line);
    fputc('\n', d->out);
    free(copy);
}

void attn_document_table(struct attn_document *d, const struct attn_column *column, json_t *rows)
{
    attn_table_print(d->out, ATTN_TABLE_MD, column, rows);
    fputc('\n', d->out);
    json_decref(rows);
}

void attn_document_fold(struct attn_document *d, int is_open, const char *format, ...)
{
    va_list args;
    fprintf(d->out, "<details%s><summary>", is_open ? " open" : "");
    va_start(args, format);
    vfprintf(d->out, format, args);
    va_end(args);
    fputs("</summary>\n\n", d->out);
}

void attn_document_unfold(struct attn_document *d)
{
    fputs("\n</details>\n\n", d->out);
}
