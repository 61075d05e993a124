#include "experiments/report/html.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/report/plot.h"
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

static const char dash[] = "<span class=none>–</span>";

void attn_html_count(FILE *file, int64_t n)
{
    char digits[32];
    int size = snprintf(digits, sizeof digits, "%lld", (long long)n);
    for (int c = 0; c < size; c++) {
        int left = size - c;
        if (c > 0 && left % 3 == 0 && digits[c - 1] != '-')
            put(file, "\xe2\x80\xaf"); /* U+202F, narrow no-break space */
        (void)fputc(digits[c], file);
    }
}

void attn_html_bytes(FILE *file, int64_t bytes)
{
    char text[32];
    if (bytes < 0) {
        put(file, dash);
        return;
    }
    put(file, "<span title=\"");
    attn_html_count(file, bytes);
    (void)fprintf(file, " bytes\">%s</span>", attn_axis_text(ATTN_AXIS_BYTES, (double)bytes, text));
}

void attn_html_seconds(FILE *file, double seconds)
{
    char text[32];
    put(file, isfinite(seconds) ? attn_axis_text(ATTN_AXIS_SECONDS, seconds, text) : dash);
}

void attn_html_real(FILE *file, double x)
{
    if (isnan(x))
        put(file, dash);
    else if (isinf(x))
        put(file, x > 0 ? "∞" : "−∞");
    else
        (void)fprintf(file, "%.3g", x);
}

void attn_html_slope(FILE *file, const struct attn_power *power)
{
    if (power->n == 0 || isnan(power->slope)) {
        put(file, dash);
        return;
    }
    /* -0.00 would be a riddle. */
    double slope = fabs(power->slope) < 0.005 ? 0 : power->slope;
    (void)fprintf(file, "%s%.2f ± %.2f", slope < 0 ? "−" : "", fabs(slope),
                  power->interval.high - power->slope);
}

/* ---- inline SVG ---------------------------------------------------------------------------- */

enum { SVG_BYTES = 64 << 20 };

static int starts(const char *text, const char *word)
{
    return strncmp(text, word, strlen(word)) == 0;
}

/* The body, ids and references to them prefixed.  gnuplot quotes attributes with ' or ". */
static void put_svg_body(FILE *file, const char *text, const char *name)
{
    static const char *const before_id[] = {"id=\"", "id='", "href=\"#", "href='#", "url(#"};
    while (*text != '\0') {
        int matched = 0;
        for (int w = 0; w < 5 && !matched; w++) {
            if (!starts(text, before_id[w]))
                continue;
            (void)fprintf(file, "%s%s-", before_id[w], name);
            text += strlen(before_id[w]);
            matched = 1;
        }
        if (!matched)
            (void)fputc(*text++, file);
    }
}

int attn_html_svg(FILE *file, const char *path, const char *name, const char *label)
{
    char *text;
    attn_read_text(path, ATTN_READ_GIVEN, SVG_BYTES, &text, NULL);
    char *svg = text != NULL ? strstr(text, "<svg") : NULL;
    char *inside = svg != NULL ? strchr(svg, '>') : NULL;
    char *box = svg != NULL ? strstr(svg, "viewBox=\"") : NULL;
    int ok = inside != NULL && box != NULL && box < inside;
    if (ok) {
        box += strlen("viewBox=\"");
        (void)fprintf(file, "<svg role=\"img\" viewBox=\"%.*s\" aria-label=\"",
                      (int)strcspn(box, "\""), box);
        attn_html_text(file, label);
        put(file, "\"");
        /* gnuplot's own title says "Gnuplot": leave it out, or browsers show it as a tooltip. */
        char *title = strstr(inside, "<title>"), *after = strstr(inside, "</desc>");
        put(file, ">");
        put_svg_body(file, title != NULL && after != NULL ? after + strlen("</desc>") : inside + 1,
                     name);
    }
    free(text);
    return ok ? 0 : -1;
}

/* ---- the frame ----------------------------------------------------------------------------- */

static const char style[] =
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
    ".plot svg{display:block;width:100%;min-width:42rem;height:auto}"
    ".plot text{font-family:\"DejaVu Sans\",Verdana,sans-serif}"
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
    ".plot svg{min-width:0}}";

void attn_html_begin(FILE *file, const char *title)
{
    put(file, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
              "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>");
    attn_html_text(file, title);
    (void)fprintf(file, "</title>\n<style>%s</style>\n</head>\n<body>\n", style);
}

void attn_html_end(FILE *file)
{
    put(file, "</body>\n</html>\n");
}
