/* See document.h. */
#include "experiments/report/document.h"

#include <stdarg.h>
#include <string.h>

#include "experiments/report/html.h"

/* ---- text ------------------------------------------------------------------------------------ */

/* Bytes of the UTF-8 character at p: 1 to 4; 0 where there is none, a control character, or one
 * that changes the direction of what stands behind it. */
static int character(const unsigned char *p)
{
    static const struct {
        unsigned char mask, is;
        int n;
        unsigned least;
    } form[] = {{0x80, 0, 1, 0x20},
                {0xe0, 0xc0, 2, 0xa0},
                {0xf0, 0xe0, 3, 0x800},
                {0xf8, 0xf0, 4, 0x10000}};
    for (int f = 0; f < 4; f++) {
        unsigned code = p[0] & (unsigned)(unsigned char)~form[f].mask;
        int n = 1;
        if ((p[0] & form[f].mask) != form[f].is)
            continue;
        for (; n < form[f].n && (p[n] & 0xc0) == 0x80; n++)
            code = code << 6 | (p[n] & 0x3fu);
        int is_bidi = (code >= 0x200e && code <= 0x200f) || (code >= 0x202a && code <= 0x202e) ||
                      (code >= 0x2066 && code <= 0x2069);
        return n == form[f].n && code >= form[f].least && code <= 0x10ffff && code != 0x7f &&
                       (code < 0xd800 || code > 0xdfff) && !is_bidi
                   ? n
                   : 0;
    }
    return 0;
}

static void clean(char *text)
{
    for (unsigned char *p = (unsigned char *)text; *p != '\0';) {
        int n = character(p);
        if (n == 0)
            *p = *p == '\n' || *p == '\t' ? ' ' : '?';
        p += n > 0 ? n : 1;
    }
}

/* A span of code: fenced by more backticks than stand together in it. */
static void put_span(struct attn_document *d, const char *text)
{
    size_t longest = 0, size = strlen(text);
    for (const char *p = text; *p != '\0'; p++) {
        size_t n = strspn(p, "`");
        longest = n > longest ? n : longest;
    }
    const char *pad = longest > 0 || text[0] == ' ' || text[size - 1] == ' ' ? " " : "";
    for (size_t n = 0; n <= longest; n++)
        fputc('`', d->out);
    fputs(pad, d->out);
    for (; *text != '\0'; text++)
        fprintf(d->out, *text == '|' && d->in_table ? "\\%c" : "%c", *text);
    fputs(pad, d->out);
    for (size_t n = 0; n <= longest; n++)
        fputc('`', d->out);
}

static void put_words(FILE *out, const char *text)
{
    for (; *text != '\0'; text++)
        fprintf(out, strchr("\\`*_<>[]|#~&", *text) != NULL ? "\\%c" : "%c", *text);
}

static void put(struct attn_document *d, enum attn_style style, char *text)
{
    static const char *const open[] = {"", "<b>", "<b class=good>", "<b class=bad>", "<code>"};
    static const char *const close[] = {"", "</b>", "</b>", "</b>", "</code>"};
    int is_bold = style != ATTN_WORDS && style != ATTN_CODE;
    clean(text);
    if (text[0] == '\0')
        return;
    if (d->is_html) {
        fputs(open[style], d->out);
        attn_html_text(d->out, text);
        fputs(close[style], d->out);
    } else if (style == ATTN_CODE) {
        put_span(d, text);
    } else {
        fputs(is_bold ? "**" : "", d->out);
        put_words(d->out, text);
        fputs(is_bold ? "**" : "", d->out);
    }
}

void attn_document_put(struct attn_document *d, enum attn_style style, const char *format, ...)
{
    char text[2600];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    put(d, style, text);
}

/* ---- the whole ------------------------------------------------------------------------------- */

void attn_document_begin(struct attn_document *d, FILE *out, int is_html, const char *title)
{
    *d = (struct attn_document){.out = out, .is_html = is_html};
    if (is_html)
        attn_html_begin(out, title);
    attn_document_heading(d, 1, title);
}

void attn_document_end(struct attn_document *d)
{
    if (d->is_html)
        attn_html_end(d->out);
}

void attn_document_heading(struct attn_document *d, int level, const char *text)
{
    if (d->is_html)
        fprintf(d->out, "<h%d>", level);
    else
        fprintf(d->out, "%.*s ", level, "####");
    attn_document_put(d, ATTN_WORDS, "%s", text);
    if (d->is_html)
        fprintf(d->out, "</h%d>\n", level);
    else
        fputs("\n\n", d->out);
}

void attn_document_paragraph(struct attn_document *d)
{
    fputs(d->is_html ? "<p>" : "", d->out);
}

void attn_document_close(struct attn_document *d)
{
    fputs(d->is_html ? "</p>\n" : "\n\n", d->out);
}

void attn_document_command(struct attn_document *d, const char *line)
{
    char text[2600];
    snprintf(text, sizeof text, "%s", line);
    clean(text);
    if (d->is_html) {
        fputs("<pre><code>", d->out);
        attn_html_text(d->out, text);
        fputs("</code></pre>\n", d->out);
    } else /* indented: no fence that the text could close */
        fprintf(d->out, "    %s\n\n", text);
}

/* ---- tables ---------------------------------------------------------------------------------- */

void attn_document_table(struct attn_document *d, const char *const *head)
{
    fputs(d->is_html ? "<div class=scroll><table><thead><tr>" : "|", d->out);
    for (const char *const *h = head; *h != NULL; h++) {
        int number = **h == '#';
        if (d->is_html)
            fprintf(d->out, "<th scope=col%s>%s</th>", number ? "" : " class=text", *h + number);
        else
            fprintf(d->out, " %s |", *h + number);
    }
    fputs(d->is_html ? "</tr></thead><tbody>\n" : "\n|", d->out);
    for (const char *const *h = head; *h != NULL && !d->is_html; h++)
        fputs(**h == '#' ? " ---: |" : " :--- |", d->out);
    d->is_numeric = 0;
    for (int c = 0; head[c] != NULL && c < 32; c++)
        d->is_numeric |= (unsigned)(head[c][0] == '#') << c;
    d->in_table = 1;
    d->column = -1;
}

static void end_row(struct attn_document *d)
{
    if (d->is_html)
        fputs(d->column >= 0 ? "</tr>\n" : "", d->out);
}

void attn_document_row(struct attn_document *d)
{
    end_row(d);
    fputs(d->is_html ? "<tr>" : "\n|", d->out);
    d->column = 0;
}

void attn_document_cell(struct attn_document *d, enum attn_style style, const char *format, ...)
{
    char text[2600];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    int is_number = style != ATTN_CODE && (d->is_numeric >> d->column & 1) != 0;
    fputs(!d->is_html ? " " : is_number ? "<td>" : "<td class=\"text wide\">", d->out);
    put(d, style, text);
    fputs(d->is_html ? "</td>" : " |", d->out);
    d->column++;
}

void attn_document_table_end(struct attn_document *d)
{
    end_row(d);
    fputs(d->is_html ? "</tbody></table></div>\n" : "\n\n", d->out);
    d->in_table = 0;
}
