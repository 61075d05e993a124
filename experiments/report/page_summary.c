#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/report/html.h"
#include "experiments/report/page.h"

static void put(FILE *file, const char *text)
{
    (void)fputs(text, file);
}

/* ---- summary ------------------------------------------------------------------------------- */

enum quantity { PEAK, SECONDS };

/* The exponent of a quantity in L, fitted as the figures fit it; n = 0: not enough points. */
static void exponent_of(const struct attn_slice *slice, const char *spec, enum attn_pass pass,
                        enum quantity what, struct attn_power *power)
{
    power->n = 0;
    double *x = malloc(2 * (size_t)(slice->n + 1) * sizeof *x);
    if (x == NULL)
        return;
    double *y = x + slice->n + 1;
    int n = 0;
    for (int64_t s = 0; s < slice->n; s++) {
        const struct attn_row *row = slice->row[s];
        if (row->point->c.pass != pass || strcmp(row->point->spec, spec) != 0 ||
            row->status != ATTN_POINT_OK)
            continue;
        y[n] = what == PEAK ? (double)row->peak : row->time.median;
        if (!(y[n] > 0))
            continue;
        x[n++] = (double)row->point->c.n_query; /* rows of a spec come by increasing L */
    }
    int first = attn_stats_upper(x, n);
    if (attn_stats_power(x + first, y + first, n - first, power) != 0)
        power->n = 0;
    free(x);
}

struct judgement {
    int64_t judged, wrong; /* points that ran and were compared; of which disagree */
    double worst;
    const char *output;
};

static struct judgement judge(const struct attn_slice *slice, const char *spec)
{
    struct judgement j = {0, 0, (double)NAN, ""};
    for (int64_t s = 0; s < slice->n; s++) {
        const struct attn_row *row = slice->row[s];
        if (strcmp(row->point->spec, spec) != 0 ||
            (row->status != ATTN_POINT_OK && row->status != ATTN_POINT_WRONG))
            continue;
        j.judged++;
        j.wrong += row->status == ATTN_POINT_WRONG;
        if (isnan(j.worst) || row->worst > j.worst) {
            j.worst = row->worst;
            j.output = row->worst_output;
        }
    }
    return j;
}

static void put_verdict(FILE *file, const struct judgement *j)
{
    put(file, "<td class=text>");
    if (j->judged == 0)
        put(file, "<span class=none>nothing ran</span>");
    else if (j->wrong > 0)
        (void)fprintf(file, "<span class=bad>WRONG at %lld of %lld points</span>",
                      (long long)j->wrong, (long long)j->judged);
    else
        (void)fprintf(file, "<span class=good>agrees at all %lld points</span>",
                      (long long)j->judged);
    put(file, "</td>");
}

/* Cells for the one or two passes that the slice has. */
static void put_pass_cells(FILE *file, const struct attn_slice *slice, const char *spec,
                           enum quantity what)
{
    for (int pass = ATTN_FORWARD; pass <= ATTN_BACKWARD; pass++) {
        struct attn_power power;
        if (!attn_slice_has_pass(slice, (enum attn_pass)pass))
            continue;
        exponent_of(slice, spec, (enum attn_pass)pass, what, &power);
        put(file, "<td>");
        attn_html_slope(file, &power);
        put(file, "</td>");
    }
}

static void put_peaks(FILE *file, const struct attn_slice *slice, const char *spec,
                      const int64_t common[2])
{
    for (int pass = ATTN_FORWARD; pass <= ATTN_BACKWARD; pass++) {
        if (!attn_slice_has_pass(slice, (enum attn_pass)pass))
            continue;
        const struct attn_row *row =
            attn_slice_find(slice, spec, (enum attn_pass)pass, common[pass]);
        put(file, "<td>");
        attn_html_bytes(file, row != NULL ? row->peak : -1);
        put(file, "</td>");
    }
}

/* The head: three quantities, each for the passes that there are. */
static void put_summary_head(FILE *file, const struct attn_slice *slice, const int64_t common[2])
{
    static const char *const quantity[] = {"exponent of memory", "exponent of time",
                                           "peak extra memory"};
    const char *call = attn_call_name(slice->row[0]->call);
    int passes =
        attn_slice_has_pass(slice, ATTN_FORWARD) + attn_slice_has_pass(slice, ATTN_BACKWARD);
    put(file, "<thead><tr><th scope=col rowspan=2 class=text>implementation</th>");
    for (int q = 0; q < 3; q++)
        (void)fprintf(file, "<th scope=colgroup colspan=%d>%s%s%s</th>", passes, quantity[q],
                      q == SECONDS && call[0] != '\0' ? ",<br>calls: " : "",
                      q == SECONDS ? call : "");
    put(file, "<th scope=col rowspan=2>worst<br>error/bound</th>"
              "<th scope=col rowspan=2 class=text>verdict</th></tr>\n<tr>");
    for (int q = 0; q < 3; q++)
        for (int pass = ATTN_FORWARD; pass <= ATTN_BACKWARD; pass++) {
            if (!attn_slice_has_pass(slice, (enum attn_pass)pass))
                continue;
            (void)fprintf(file, "<th scope=col>%s", attn_pass_word((enum attn_pass)pass));
            if (q == 2) {
                put(file, "<br>L=");
                attn_html_count(file, common[pass]);
            }
            put(file, "</th>");
        }
    put(file, "</tr></thead>\n");
}

static int is_first_of_spec(const struct attn_slice *slice, int64_t s)
{
    for (int64_t t = 0; t < s; t++)
        if (strcmp(slice->row[t]->point->spec, slice->row[s]->point->spec) == 0)
            return 0;
    return 1;
}

static void put_summary(FILE *file, const struct attn_slice *slice)
{
    int64_t common[2] = {attn_slice_common_length(slice, ATTN_FORWARD),
                         attn_slice_common_length(slice, ATTN_BACKWARD)};
    put(file, "<div class=scroll><table><caption>");
    attn_html_text(file, slice->problem);
    put(file, "</caption>");
    put_summary_head(file, slice, common);
    put(file, "<tbody>\n");
    for (int64_t s = 0; s < slice->n; s++) {
        const char *spec = slice->row[s]->point->spec;
        if (!is_first_of_spec(slice, s))
            continue;
        struct judgement j = judge(slice, spec);
        put(file, "<tr><th scope=row><code>");
        attn_html_text(file, spec);
        put(file, "</code></th>");
        put_pass_cells(file, slice, spec, PEAK);
        put_pass_cells(file, slice, spec, SECONDS);
        put_peaks(file, slice, spec, common);
        put(file, "<td>");
        attn_html_real(file, j.worst);
        put(file, j.output[0] != '\0' ? " <span class=none>in " : "<span>");
        attn_html_text(file, j.output);
        put(file, "</span></td>");
        put_verdict(file, &j);
        put(file, "</tr>\n");
    }
    put(file, "</tbody></table></div>\n");
}

void attn_page_summary(FILE *file, const struct attn_page *page)
{
    int any = 0;
    put(file, "<h2 id=summary>Summary</h2>\n");
    for (int s = 0; s < page->slices->n; s++)
        any |= page->slices->slice[s].kind == ATTN_SLICE_LENGTH;
    if (!any) {
        put(file, "<p>These records have no group <code>length-…</code> with points at several "
                  "lengths, so there are no exponents to compare.</p>\n");
        return;
    }
    put(file,
        "<p>Exponents are log-log slopes with 95 % intervals over the upper part of each "
        "curve (L ≥ its largest / 8). Peaks are of one process or, for sequence-parallel "
        "implementations, of the fullest rank, at the largest length that all have in "
        "common; inputs and outputs are not counted. Memory is the ledger's, or, of what is not "
        "ours, "
        "resident memory, whose first megabyte is noise. A verdict covers every length and both "
        "passes: every compared element within its own bound.</p>\n");
    for (int s = 0; s < page->slices->n; s++)
        if (page->slices->slice[s].kind == ATTN_SLICE_LENGTH)
            put_summary(file, &page->slices->slice[s]);
}

/* ---- priced = ledger = resident -------------------------------------------------------------- */

/* The good row of the largest length of this row's spec and pass? */
static int is_longest(const struct attn_slice *slice, int64_t s)
{
    const struct attn_point *p = slice->row[s]->point;
    if (slice->row[s]->status != ATTN_POINT_OK || slice->row[s]->ledger < 0)
        return 0;
    for (int64_t t = 0; t < slice->n; t++) {
        const struct attn_point *q = slice->row[t]->point;
        if (slice->row[t]->status == ATTN_POINT_OK && q->c.pass == p->c.pass &&
            strcmp(q->spec, p->spec) == 0 && q->c.n_query > p->c.n_query)
            return 0;
    }
    return 1;
}

static void put_exact(FILE *file, int64_t bytes)
{
    put(file, "<td>");
    if (bytes >= 0)
        attn_html_count(file, bytes);
    else
        put(file, "–");
    put(file, "</td>");
}

static void put_percent(FILE *file, double percent)
{
    (void)fprintf(file, "%s%.1f %%", percent < 0 ? "−" : "+", fabs(percent));
}

static void put_live_row(FILE *file, const struct attn_row *row)
{
    const struct attn_point *p = row->point;
    put(file, "<tr><th scope=row><code>");
    attn_html_text(file, p->spec);
    (void)fprintf(file, "</code></th><td class=text>%s</td><td>", attn_pass_word(p->c.pass));
    attn_html_count(file, p->c.n_query);
    put(file, "</td><td class=wide>");
    for (int a = 0; a < p->n_live && a < ATTN_MAX_ACCOUNTS; a++) {
        put(file, a > 0 ? ", <span class=nb>" : "<span class=nb>");
        attn_html_text(file, p->live_name[a]);
        put(file, " ");
        attn_html_bytes(file, p->live_bytes[a]);
        put(file, "</span>");
    }
    put(file, "</td>");
    put_exact(file, row->priced);
    put_exact(file, row->ledger);
    int same = row->priced == row->ledger;
    (void)fprintf(file, "<td class=%s>", same ? "good" : "bad");
    if (row->priced >= 0)
        attn_html_count(file, row->ledger - row->priced);
    put(file, "</td>");
    put_exact(file, row->process);
    put_exact(file, row->resident);
    put(file, "<td>");
    if (row->process >= 1 << 20 && row->resident >= 0)
        put_percent(file, 100 * ((double)row->resident / (double)row->process - 1));
    else
        put(file, "<span class=none>–</span>");
    put(file, "</td></tr>\n");
}

void attn_page_live(FILE *file, const struct attn_page *page)
{
    put(file, "<h2 id=live>What the peak is made of: priced, ledger, resident</h2>\n"
              "<p>Three numbers that do not know of each other: the <em>price</em> is a formula, "
              "worked out without running; the <em>ledger</em> counts every buffer that the "
              "implementation takes, by name; <em>resident</em> is by how much the kernel's own "
              "high-water mark of a fresh process (VmHWM) grew. Price and ledger are of one rank, "
              "and must agree to the byte; all ranks of a simulated run live in one process, "
              "whose ledger is compared with its resident set. That comparison means little below "
              "32 MiB, where pages, stacks and libraries weigh as much as buffers, and is left out "
              "below 1 MiB. All in bytes, "
              "at the largest length of each implementation.");
    if (attn_page_has_guests(page))
        put(file, " Implementations that are not ours have only a resident set, and are missing "
                  "here: see <a href=#guests>below</a>.");
    put(file, "</p>\n");
    for (int s = 0; s < page->slices->n; s++) {
        const struct attn_slice *slice = &page->slices->slice[s];
        if (slice->kind != ATTN_SLICE_LENGTH)
            continue;
        put(file, "<div class=scroll><table><caption>");
        attn_html_text(file, slice->problem);
        put(file, "</caption><thead><tr><th scope=col class=text>implementation</th>"
                  "<th scope=col class=text>pass</th><th scope=col>L</th>"
                  "<th scope=col class=text>live at the peak</th><th scope=col>priced</th>"
                  "<th scope=col>ledger</th><th scope=col>ledger<br>− priced</th>"
                  "<th scope=col>ledger,<br>all ranks</th><th scope=col>resident</th>"
                  "<th scope=col>resident<br>÷ ledger − 1</th></tr></thead><tbody>\n");
        for (int64_t r = 0; r < slice->n; r++)
            if (is_longest(slice, r))
                put_live_row(file, slice->row[r]);
        put(file, "</tbody></table></div>\n");
    }
}
