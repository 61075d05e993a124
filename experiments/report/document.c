/* See document.h. */
#include "experiments/report/document.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "tests/harness/base/fileio.h"

/* ---- HTML ------------------------------------------------------------------------------------ */

static void clean(char *text)
{
    for (char *at = text; (at = strpbrk(at, "\n\t")) != NULL;)
        *at = ' ';
    attn_clean(text);
}

void attn_html_text(FILE *file, const char *text)
{
    static const char *const entity[256] = {
        ['&'] = "&amp;", ['<'] = "&lt;", ['>'] = "&gt;", ['"'] = "&quot;", ['\''] = "&#39;"};
    char *copy = attn_cli_text("%s", text);
    clean(copy);
    for (const unsigned char *p = (const unsigned char *)copy; *p != '\0'; p++)
        if (entity[*p] != NULL)
            fputs(entity[*p], file);
        else
            fputc(*p, file);
    free(copy);
}

int attn_html_image(FILE *file, const char *path, const char *label)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    enum { MOST = 64 << 20 };
    char *text;
    attn_read_text(path, ATTN_READ_GIVEN, MOST, &text, NULL);
    if (text == NULL)
        return -1;
    fputs("<img alt=\"", file);
    attn_html_text(file, label);
    fputs("\" src=\"data:image/svg+xml;base64,", file);
    size_t n = strlen(text);
    for (size_t at = 0; at < n; at += 3) { /* three bytes are four digits of 6 bits */
        unsigned bits = 0;
        for (size_t b = 0; b < 3; b++)
            bits = bits << 8 | (at + b < n ? (unsigned char)text[at + b] : 0);
        for (size_t b = 0; b < 4; b++)
            fputc(at + b <= n ? digit[bits >> (18 - 6 * b) & 63] : '=', file);
    }
    fputs("\">", file);
    free(text);
    return 0;
}

/* What stands in <style>. */
static const char html_style[] =
    ":root{color-scheme:light dark;--ink:#1c1c1c;--soft:#5a5a5a;--rule:#d5d5d5;--paper:#fff;"
    "--band:#f5f5f3;--bad:#a40000;--good:#00604a}"
    "@media(prefers-color-scheme:dark){:root{--ink:#e8e8e6;--soft:#a8a8a8;--rule:#484848;"
    "--paper:#161616;--band:#222;--bad:#ff9a8f;--good:#7fdcc0}}"
    "body{margin:0 auto;padding:1.5rem 1rem 4rem;max-width:70rem;background:var(--paper);"
    "color:var(--ink);font:16px/1.5 system-ui,\"DejaVu Sans\",Verdana,sans-serif}"
    "h1{font-size:1.7rem;line-height:1.2;margin:0 0 .6rem}"
    "h2{font-size:1.25rem;margin:2.6rem 0 .6rem;padding-top:.8rem;border-top:1px solid var(--rule)}"
    "h3{font-size:1.02rem;margin:1.6rem 0 .4rem}p{margin:.5rem 0;max-width:46rem}"
    ".soft,figcaption{color:var(--soft);font-size:.9rem}"
    "figure{margin:1.4rem 0 .6rem}figcaption{max-width:46rem;margin:.5rem 0}"
    ".plot{overflow-x:auto;background:#fff;border:1px solid var(--rule);border-radius:4px}"
    ".plot img{display:block;width:100%;max-width:62rem;min-width:42rem;height:auto}"
    ".scroll{overflow-x:auto;margin:.5rem 0}"
    "table{border-collapse:collapse;font-size:.86rem;font-variant-numeric:tabular-nums}"
    "caption{text-align:left;color:var(--soft);padding:.3rem 0}"
    "th,td{padding:.25rem .7rem .25rem 0;border-bottom:1px solid var(--rule);text-align:right;"
    "white-space:nowrap;vertical-align:top}"
    "thead th{border-bottom:2px solid var(--rule);vertical-align:bottom;font-weight:600}"
    "th[scope=colgroup]{text-align:left;padding-left:.7rem}th[scope=row],.text{text-align:left}th["
    "scope=row]{font-weight:600}"
    ".wide{white-space:normal;text-align:left;min-width:11rem;overflow-wrap:anywhere}"
    ".nb{white-space:nowrap}.bad{color:var(--bad);font-weight:600}.good{color:var(--good)}.none{"
    "color:var(--soft)}"
    "summary{cursor:pointer;color:var(--soft);font-size:.9rem;padding:.2rem 0}"
    "code{font:.86em ui-monospace,\"DejaVu Sans Mono\",monospace;overflow-wrap:anywhere}"
    "pre{overflow-x:auto;background:var(--band);padding:.6rem .8rem;border-radius:4px;"
    "font-size:.86rem;line-height:1.45}"
    /* On paper nothing scrolls: cells and lines wrap, and no column is beyond the edge. */
    "@page{margin:14mm}@media print{:root{color-scheme:light;--ink:#000;--soft:#444;--rule:#bbb;"
    "--paper:#fff;--band:#f5f5f3;--bad:#a40000;--good:#00604a}"
    "body{max-width:none;margin:0;padding:0;font-size:10pt}p,figcaption{max-width:none}"
    ".scroll,.plot,pre{overflow:visible}.plot{border:0}.plot img{min-width:0;max-width:100%}"
    "pre{white-space:pre-wrap;overflow-wrap:anywhere;font-size:7.5pt}"
    "table{width:100%;font-size:7.5pt}thead{display:table-header-group}"
    "th,td{white-space:normal;padding-right:.5em}code{overflow-wrap:anywhere}"
    ".wide{min-width:7em}.nb{white-space:normal}figure,tr{break-inside:avoid}"
    "h2,h3,caption{break-after:avoid}}";

/* ---- text ------------------------------------------------------------------------------------ */

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
    if (is_html) {
        fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
              "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>",
              out);
        attn_html_text(out, title);
        fprintf(out, "</title>\n<style>%s</style>\n</head>\n<body>\n", html_style);
    }
    attn_document_heading(d, 1, title);
}

void attn_document_end(struct attn_document *d)
{
    if (d->is_html)
        fputs("</body>\n</html>\n", d->out);
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

void attn_document_text(struct attn_document *d, const char *format, ...)
{
    char text[2600];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (text[0] == '\0')
        return;
    attn_document_paragraph(d);
    put(d, ATTN_WORDS, text);
    attn_document_close(d);
}

void attn_document_lines(struct attn_document *d, const char *lines)
{
    char text[2600];
    fputs(d->is_html ? "<pre><code>" : "", d->out);
    for (size_t n = 0; *lines != '\0'; lines += n + (lines[n] == '\n')) {
        n = strcspn(lines, "\n");
        snprintf(text, sizeof text, "%.*s", (int)n, lines);
        clean(text);
        if (d->is_html) {
            attn_html_text(d->out, text);
            fputs(lines[n] == '\n' ? "\n" : "", d->out);
        } else /* indented: no fence that the text could close */
            fprintf(d->out, "    %s\n", text);
    }
    fputs(d->is_html ? "</code></pre>\n" : "\n", d->out);
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

const char attn_document_dash[] = "–";

static void put_cells(struct attn_document *d, const char *letters, va_list args)
{
    static const enum attn_style style[128] = {
        ['c'] = ATTN_CODE, ['g'] = ATTN_GOOD, ['x'] = ATTN_BAD}; /* else words */
    char number[32];
    for (; *letters != '\0'; letters++) {
        int is_text = strchr("wcgx", *letters) != NULL;
        const char *word = is_text ? va_arg(args, const char *) : attn_document_dash;
        int64_t n = is_text ? -1 : va_arg(args, int64_t);
        snprintf(number, sizeof number, "%lld", (long long)n);
        if (n >= 0)
            word = *letters == 'b'   ? attn_cli_bytes(n, number)
                   : *letters == 'n' ? attn_cli_grouped(n, number)
                                     : number;
        attn_document_cell(d, style[(int)*letters], "%s", word);
    }
}

void attn_document_cells(struct attn_document *d, const char *letters, ...)
{
    va_list args;
    va_start(args, letters);
    put_cells(d, letters, args);
    va_end(args);
}

void attn_document_row(struct attn_document *d, const char *letters, ...)
{
    va_list args;
    end_row(d);
    fputs(d->is_html ? "<tr>" : "\n|", d->out);
    d->column = 0;
    va_start(args, letters);
    put_cells(d, letters, args);
    va_end(args);
}

void attn_document_table_end(struct attn_document *d)
{
    end_row(d);
    fputs(d->is_html ? "</tbody></table></div>\n" : "\n\n", d->out);
    d->in_table = 0;
}
