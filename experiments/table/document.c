/* See document.h: Markdown. */
#include "experiments/table/document.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "tests/harness/base/fileio.h"

enum { CODE = 4 }; /* a style; the others are as many asterisks */

/* A format with a control character for each mark of a style. */
static void mark_styles(const char *format, char *to, size_t size)
{
    size_t n = 0;
    for (size_t run; *format != '\0' && n + 1 < size; format += run) {
        run = strspn(format, "*");
        to[n++] = (char)(run > 0 ? (int)run : *format == '`' ? CODE : *format);
        run += run == 0;
    }
    to[n] = '\0';
}

/* 0: it is no word. */
static int put(struct attn_document *d, const char *format, va_list args)
{
    char marked[1200], text[2600], next;
    int style = 0;
    mark_styles(format, marked, sizeof marked);
    vsnprintf(text, sizeof text, marked, args);
    const int is_word = text[0] != '\0';
    for (char *at = text; (at = strpbrk(at, "\n\t")) != NULL;)
        *at = ' ';
    for (char *part = text; *part != '\0'; style = style == next ? 0 : next) {
        const size_t n = strcspn(part, "\1\2\3\4");
        const int asterisks = style < CODE ? style : 0;
        next = part[n];
        part[n] = '\0';
        attn_clean(part);
        fprintf(d->out, "%.*s", n > 0 ? asterisks : 0, "***");
        if (style < CODE)
            attn_md_words(d->out, part);
        else if (n > 0)
            attn_md_code(d->out, part, 0);
        fprintf(d->out, "%.*s", n > 0 ? asterisks : 0, "***");
        part += n + (next != '\0');
    }
    return is_word;
}

void attn_document_put(struct attn_document *d, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    put(d, format, args);
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
    attn_document_put(d, "%s", text);
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
    if (put(d, format, args))
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
