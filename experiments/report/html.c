#include "experiments/report/html.h"

#include <stdlib.h>
#include <string.h>

#include "tests/harness/files/fileio.h"

static void put(FILE *file, const char *text)
{
    (void)fputs(text, file);
}

void attn_html_text(FILE *file, const char *text)
{
    for (; *text != '\0'; text++) {
        unsigned char u = (unsigned char)*text;
        if (*text == '&')
            put(file, "&amp;");
        else if (*text == '<')
            put(file, "&lt;");
        else if (*text == '>')
            put(file, "&gt;");
        else if (*text == '"')
            put(file, "&quot;");
        else if (*text == '\'')
            put(file, "&#39;");
        else
            (void)fputc(u < 0x20 || u == 0x7f ? ' ' : *text, file);
    }
}

int attn_html_image(FILE *file, const char *path, const char *label)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    enum { MOST = 64 << 20 };
    char *text;
    attn_read_text(path, ATTN_READ_GIVEN, MOST, &text, NULL);
    if (text == NULL)
        return -1;
    put(file, "<img alt=\"");
    attn_html_text(file, label);
    put(file, "\" src=\"data:image/svg+xml;base64,");
    size_t n = strlen(text);
    for (size_t at = 0; at < n; at += 3) { /* three bytes are four digits of 6 bits */
        unsigned bits = 0;
        for (size_t b = 0; b < 3; b++)
            bits = bits << 8 | (at + b < n ? (unsigned char)text[at + b] : 0);
        for (size_t b = 0; b < 4; b++)
            fputc(at + b <= n ? digit[bits >> (18 - 6 * b) & 63] : '=', file);
    }
    put(file, "\">");
    free(text);
    return 0;
}

/* ---- the frame ------------------------------------------------------------------------------- */

const char attn_html_style[] =
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
    ".plot img{display:block;width:100%;min-width:42rem;height:auto}"
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
    "@media print{body{max-width:none;font-size:11pt}figure,tr{break-inside:avoid}"
    ".plot img{min-width:0}}";

void attn_html_begin(FILE *file, const char *title)
{
    put(file, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
              "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>");
    attn_html_text(file, title);
    (void)fprintf(file, "</title>\n<style>%s</style>\n</head>\n<body>\n", attn_html_style);
}

void attn_html_end(FILE *file)
{
    put(file, "</body>\n</html>\n");
}
