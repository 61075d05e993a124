/* What a report says of implementations that are not ours: where they are from, and how little is
 * known of them. */
#include <string.h>

#include "experiments/report/html.h"
#include "experiments/report/page.h"

static void put(FILE *file, const char *text)
{
    (void)fputs(text, file);
}

int attn_page_has_guests(const struct attn_page *page)
{
    for (int64_t s = 0; s < page->summary->n; s++)
        if (page->summary->row[s].point->route[0] != '\0')
            return 1;
    return 0;
}

static int is_first(const struct attn_page *page, int64_t s)
{
    const struct attn_point *p = page->summary->row[s].point;
    for (int64_t t = 0; t < s; t++)
        if (strcmp(page->summary->row[t].point->spec, p->spec) == 0 &&
            strcmp(page->summary->row[t].point->source_digest, p->source_digest) == 0)
            return 0;
    return p->route[0] != '\0';
}

/* Every clock that its times were taken by. */
static void put_clocks(FILE *file, const struct attn_page *page, const char *spec)
{
    static const char *const clock[][2] = {
        {"calls", "around its function"},
        {"reported", "as it reports"},
        {"command", "whole command less the same command on a tiny case"}};
    const char *between = "";
    for (int c = 0; c < 3; c++)
        for (int64_t s = 0; s < page->summary->n; s++) {
            const struct attn_row *row = &page->summary->row[s];
            if (row->status != ATTN_POINT_OK || strcmp(row->point->spec, spec) != 0 ||
                strcmp(row->point->time_source, clock[c][0]) != 0)
                continue;
            (void)fprintf(file, "%s%s", between, clock[c][1]);
            between = "; ";
            break;
        }
    if (between[0] == '\0')
        put(file, "–");
}

void attn_page_guests(FILE *file, const struct attn_page *page)
{
    if (!attn_page_has_guests(page))
        return;
    put(file,
        "<h2 id=guests>Not ours</h2>\n<p>These were measured and verified like the others, in a "
        "fresh process for each point and round, but nobody knows what they take: there is no "
        "price and no ledger, only what the kernel saw. Of a plug-in that is the growth of VmHWM "
        "over its calls, with inputs and outputs resident before. Of a command it is the peak of "
        "its process, less the peak of the same command on a tiny case (interpreter, libraries), "
        "less inputs and outputs once. A mask that is given as a byte for each pair counts as its "
        "own memory.</p>\n<div class=scroll><table><thead><tr><th scope=col "
        "class=text>name</th><th scope=col class=text>what</th><th scope=col "
        "class=text>from</th><th scope=col class=text>digest</th><th scope=col "
        "class=text>time</th></tr></thead><tbody>\n");
    for (int64_t s = 0; s < page->summary->n; s++) {
        const struct attn_point *p = page->summary->row[s].point;
        if (!is_first(page, s))
            continue;
        put(file, "<tr><th scope=row><code>");
        attn_html_text(file, p->spec);
        put(file, "</code></th><td class=text>");
        attn_html_text(file, p->route);
        put(file, "</td><td class=wide><code>");
        attn_html_text(file, p->source);
        put(file, "</code></td><td class=text><code>");
        attn_html_text(file, p->source_digest);
        put(file, "</code></td><td class=wide>");
        put_clocks(file, page, p->spec);
        put(file, "</td></tr>\n");
    }
    put(file, "</tbody></table></div>\n");
}
