/* The tables under the figures: the same rows, with the columns that the figure is about. */
#include <math.h>
#include <string.h>

#include "experiments/report/html.h"
#include "experiments/report/page.h"

static void put(FILE *file, const char *text)
{
    (void)fputs(text, file);
}

static void put_bytes(FILE *file, int64_t bytes)
{
    put(file, "<td>");
    attn_html_bytes(file, bytes);
    put(file, "</td>");
}

static void put_seconds(FILE *file, double seconds)
{
    put(file, "<td>");
    attn_html_seconds(file, seconds);
    put(file, "</td>");
}

static void put_ratio(FILE *file, double ratio)
{
    put(file, ratio > 1 ? "<td class=bad>" : "<td>");
    attn_html_real(file, ratio);
    put(file, "</td>");
}

static void put_head(FILE *file, const char *const *column)
{
    put(file, "<thead><tr>");
    for (; *column != NULL; column++)
        (void)fprintf(file, "<th scope=col%s>%s</th>",
                      strcmp(*column, "implementation") == 0 || strcmp(*column, "pass") == 0 ||
                              strcmp(*column, "compared") == 0 || strcmp(*column, "timed") == 0 ||
                              strcmp(*column, "call") == 0
                          ? " class=text"
                          : "",
                      *column);
    put(file, "</tr></thead><tbody>\n");
}

/* The cells that name a row, the varied quantity last. */
static void put_row_head(FILE *file, const struct attn_slice *slice, const struct attn_point *p)
{
    put(file, "<tr><th scope=row><code>");
    attn_html_text(file, p->spec);
    (void)fprintf(file, "</code></th><td class=text>%s</td><td>", attn_pass_word(p->c.pass));
    if (slice->kind == ATTN_SLICE_RANKS)
        attn_html_count(file, p->ranks);
    else if (slice->kind == ATTN_SLICE_DENSITY)
        (void)fprintf(file, "%.4g", p->density);
    else
        attn_html_count(file, p->c.n_query);
    put(file, "</td>");
}

/* A row that did not give a good result has its reason instead of numbers. */
static int put_reason(FILE *file, const struct attn_row *row, int columns)
{
    if (row->status == ATTN_POINT_OK)
        return 0;
    (void)fprintf(file, "<td class=\"wide%s\" colspan=%d>%s",
                  row->status == ATTN_POINT_WRONG ? " bad" : "", columns,
                  attn_status_phrase(row->status));
    if (row->point->message[0] != '\0') {
        put(file, ": ");
        attn_html_text(file, row->point->message);
    }
    put(file, "</td></tr>\n");
    return 1;
}

static const char *varied(const struct attn_slice *slice)
{
    return slice->kind == ATTN_SLICE_RANKS     ? "P"
           : slice->kind == ATTN_SLICE_DENSITY ? "density"
                                               : "L";
}

static void put_memory(FILE *file, const struct attn_slice *slice)
{
    const char *column[] = {"implementation", "pass",     varied(slice),        "priced", "ledger",
                            "all ranks",      "resident", "inputs and outputs", NULL};
    put_head(file, column);
    for (int64_t s = 0; s < slice->n; s++) {
        const struct attn_row *row = slice->row[s];
        put_row_head(file, slice, row->point);
        if (put_reason(file, row, 5))
            continue;
        put_bytes(file, row->priced);
        put_bytes(file, row->ledger);
        put_bytes(file, row->process);
        put_bytes(file, row->resident);
        put_bytes(file, row->point->floor_bytes);
        put(file, "</tr>\n");
    }
}

/* Whose clock it was. */
static const char *clock_of(const struct attn_point *p)
{
    return p->ranks > 1                              ? "CPU, slowest rank"
           : strcmp(p->time_source, "reported") == 0 ? "as it reports"
           : strcmp(p->time_source, "command") == 0  ? "command − tiny case"
                                                     : "calls";
}

static void put_time(FILE *file, const struct attn_slice *slice)
{
    const char *column[] = {"implementation", "pass",    varied(slice), "median",
                            "95 % of median", "fastest", "slowest",     "rounds",
                            "timed",          "call",    "Gflop/s",     NULL};
    put_head(file, column);
    for (int64_t s = 0; s < slice->n; s++) {
        const struct attn_row *row = slice->row[s];
        put_row_head(file, slice, row->point);
        if (put_reason(file, row, 8))
            continue;
        put_seconds(file, row->time.median);
        put(file, "<td>");
        attn_html_seconds(file, row->time_interval.low);
        put(file, " … ");
        attn_html_seconds(file, row->time_interval.high);
        put(file, "</td>");
        put_seconds(file, row->time.min);
        put_seconds(file, row->time.max);
        (void)fprintf(file, "<td>%d</td><td class=text>%s</td><td class=text>%s%s</td><td>",
                      row->time.n, clock_of(row->point), row->time.n == 0 ? "no " : "",
                      attn_call_name(row->call));
        /* flops are of all ranks, the time is of the slowest: no rate for those. */
        attn_html_real(file, row->point->ranks > 1 ? (double)NAN
                                                   : row->point->flops / row->time.median * 1e-9);
        put(file, "</td></tr>\n");
    }
}

static void put_error(FILE *file, const struct attn_slice *slice)
{
    const char *column[16] = {"implementation", "pass", varied(slice)};
    int n = 3;
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        column[n++] = attn_output_name((enum attn_output)o);
    column[n++] = "worst";
    column[n++] = "compared";
    put_head(file, column);
    for (int64_t s = 0; s < slice->n; s++) {
        const struct attn_row *row = slice->row[s];
        int wrong = row->status == ATTN_POINT_WRONG;
        put_row_head(file, slice, row->point);
        if (!wrong && put_reason(file, row, ATTN_OUTPUTS + 2))
            continue;
        for (int o = 0; o < ATTN_OUTPUTS; o++)
            put_ratio(file, row->output[o]);
        put_ratio(file, row->worst);
        put(file, "<td class=text>");
        attn_html_text(file, row->point->verified);
        put(file, "</td></tr>\n");
    }
}

static void put_sent(FILE *file, const struct attn_slice *slice)
{
    const char *column[] = {"implementation", "pass",     varied(slice), "priced",
                            "counted",        "messages", NULL};
    put_head(file, column);
    for (int64_t s = 0; s < slice->n; s++) {
        const struct attn_row *row = slice->row[s];
        put_row_head(file, slice, row->point);
        if (put_reason(file, row, 3))
            continue;
        put_bytes(file, attn_figure_priced_sent(row->point->spec, &row->point->c));
        put_bytes(file, row->point->bytes_sent);
        put(file, "<td>");
        attn_html_count(file, row->point->messages);
        put(file, "</td></tr>\n");
    }
}

void attn_page_table(FILE *file, const struct attn_figure *figure)
{
    const struct attn_slice *slice = figure->slice;
    (void)fprintf(file,
                  "<details><summary>The numbers: %lld rows</summary><div class=scroll><table>",
                  (long long)slice->n);
    put(file, "<caption>");
    attn_html_text(file, slice->problem);
    put(file, "</caption>");
    if (strcmp(figure->script, "time") == 0)
        put_time(file, slice);
    else if (strcmp(figure->script, "error") == 0)
        put_error(file, slice);
    else if (strcmp(figure->script, "bytes-sent") == 0)
        put_sent(file, slice);
    else
        put_memory(file, slice);
    put(file, "</tbody></table></div></details>\n");
}

void attn_page_not_run(FILE *file, const struct attn_page *page)
{
    int64_t n = 0;
    put(file, "<h2 id=not-run>Points without a good result</h2>\n");
    for (int64_t s = 0; s < page->summary->n; s++)
        n += page->summary->row[s].status != ATTN_POINT_OK;
    if (n == 0) {
        put(file, "<p>None: every point of these records was measured and agrees.</p>\n");
        return;
    }
    (void)fprintf(file, "<details%s><summary>%lld points</summary>", n <= 12 ? " open" : "",
                  (long long)n);
    put(file, "<div class=scroll><table><thead><tr><th scope=col class=text>group</th>"
              "<th scope=col class=text>implementation</th><th scope=col class=text>case</th>"
              "<th scope=col class=text>why</th></tr></thead><tbody>\n");
    for (int64_t s = 0; s < page->summary->n; s++) {
        const struct attn_row *row = &page->summary->row[s];
        const struct attn_point *p = row->point;
        if (row->status == ATTN_POINT_OK)
            continue;
        put(file, "<tr><td class=text>");
        attn_html_text(file, p->group);
        put(file, "</td><th scope=row><code>");
        attn_html_text(file, p->spec);
        put(file, "</code></th><td class=wide><code>");
        attn_html_text(file, p->text);
        put(file, "</code></td>");
        (void)put_reason(file, row, 1);
    }
    put(file, "</tbody></table></div></details>\n");
}
