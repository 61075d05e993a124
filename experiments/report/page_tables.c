/* The tables of the page. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/report/page.h"

static const char dash[] = "–";

const char *attn_seconds_text(double seconds, char text[32])
{
    static const char *const unit[] = {"s", "ms", "µs", "ns"};
    int u = 0;
    double x = seconds;
    for (; x < 1 && x > 0 && u < 3; u++)
        x *= 1000;
    if (isnan(seconds))
        (void)snprintf(text, 32, "%s", dash);
    else
        (void)snprintf(text, 32, "%.3g %s", x, unit[u]);
    return text;
}

static const char *bytes_text(int64_t bytes, char text[32])
{
    if (bytes < 0)
        (void)snprintf(text, 32, "%s", dash);
    else
        (void)attn_cli_bytes(bytes, text);
    return text;
}

static const char *exact_text(int64_t bytes, char text[32])
{
    if (bytes < 0)
        (void)snprintf(text, 32, "%s", dash);
    else
        (void)attn_count_text(bytes, text);
    return text;
}

static void real_cell(struct attn_document *d, enum attn_style style, double x)
{
    if (isnan(x))
        attn_document_words(d, dash);
    else if (isinf(x))
        attn_document_cell(d, style, "∞");
    else
        attn_document_cell(d, style, "%.3g", x);
}

/* ---- summary ------------------------------------------------------------------------------- */

/* The exponent of peak or time in L, fitted as the figures fit it, as a cell. */
static void exponent_cell(struct attn_document *d, const struct attn_figure_group *group,
                          const char *label, enum attn_pass pass, int of_time)
{
    struct attn_power power = {.n = 0};
    double *x = attn_cli_need(malloc(2 * (size_t)(group->n + 1) * sizeof *x));
    int n = 0;
    for (int64_t s = 0; s < group->n; s++) {
        const struct attn_row *row = group->row[s];
        double y = of_time ? row->time.median : (double)row->peak;
        if (row->point->c.pass != pass || strcmp(group->label[s], label) != 0 ||
            row->status != ATTN_POINT_OK || !(y > 0))
            continue;
        x[n] = (double)row->point->c.n_query; /* rows of a label come by increasing L */
        x[group->n + 1 + n++] = y;
    }
    if (attn_slope(x, x + group->n + 1, n, &power) != 0)
        attn_document_words(d, dash);
    else
        attn_document_cell(d, ATTN_WORDS, "%.2f ± %.2f",
                           fabs(power.slope) < 0.005 ? 0 : power.slope,
                           power.interval.high - power.slope);
    free(x);
}

/* The largest ratio of a label, and its verdict over all points that ran and were compared. */
static void verdict_cells(struct attn_document *d, const struct attn_figure_group *group,
                          const char *label)
{
    int64_t judged = 0, wrong = 0;
    double worst = (double)NAN;
    for (int64_t s = 0; s < group->n; s++) {
        const struct attn_row *row = group->row[s];
        if (strcmp(group->label[s], label) != 0 ||
            (row->status != ATTN_POINT_OK && row->status != ATTN_POINT_WRONG))
            continue;
        judged++;
        wrong += row->status == ATTN_POINT_WRONG;
        worst = isnan(worst) || row->worst > worst ? row->worst : worst;
    }
    real_cell(d, worst > 1 ? ATTN_BAD : ATTN_WORDS, worst);
    if (judged == 0)
        attn_document_cell(d, ATTN_WORDS, "nothing ran");
    else if (wrong > 0)
        attn_document_cell(d, ATTN_BAD, "WRONG at %lld of %lld points", (long long)wrong,
                           (long long)judged);
    else
        attn_document_cell(d, ATTN_GOOD, "agrees at all %lld points", (long long)judged);
}

static void put_summary(struct attn_document *d, const struct attn_figure_group *group)
{
    const char *head[12] = {"implementation"};
    char text[6][80], number[32];
    int n = 1;
    int64_t common[2];
    for (int what = 0; what < 3; what++)
        for (int pass = ATTN_FORWARD; pass <= ATTN_BACKWARD; pass++) {
            static const char *const quantity[] = {"exponent of memory", "exponent of time",
                                                   "peak"};
            common[pass] = attn_group_common_length(group, (enum attn_pass)pass);
            if (!attn_group_has_pass(group, (enum attn_pass)pass))
                continue;
            (void)snprintf(text[n - 1], sizeof text[0], "#%s, %s%s%s", quantity[what],
                           attn_pass_word((enum attn_pass)pass), what == 2 ? ", L = " : "",
                           what == 2 ? attn_count_text(common[pass], number) : "");
            head[n] = text[n - 1];
            n++;
        }
    head[n++] = "#worst error/bound";
    head[n] = "verdict";
    attn_document_heading(d, 3, group->special);
    attn_document_text(d, group->problem);
    attn_document_table(d, head);
    for (int64_t s = 0; s < group->n; s++) {
        const char *label = group->label[s];
        if (!attn_group_is_first(group, s))
            continue;
        attn_document_row(d);
        attn_document_code(d, label);
        for (int what = 0; what < 3; what++)
            for (int pass = ATTN_FORWARD; pass <= ATTN_BACKWARD; pass++) {
                if (!attn_group_has_pass(group, (enum attn_pass)pass))
                    continue;
                const struct attn_row *row =
                    attn_group_find(group, label, (enum attn_pass)pass, common[pass]);
                if (what < 2)
                    exponent_cell(d, group, label, (enum attn_pass)pass, what == 1);
                else
                    attn_document_words(d, bytes_text(row != NULL ? row->peak : -1, number));
            }
        verdict_cells(d, group, label);
    }
    attn_document_table_end(d);
}

void attn_page_summary(struct attn_document *d, const struct attn_page *page)
{
    for (int g = 0; g < page->groups->n; g++)
        if (page->groups->group[g].kind == ATTN_GROUP_LENGTH)
            put_summary(d, &page->groups->group[g]);
}

/* ---- tables without a figure --------------------------------------------------------------- */

/* Groups whose name begins with no known word: a table only. */
void attn_page_others(struct attn_document *d, const struct attn_page *page)
{
    static const char *const head[] = {"implementation", "case",  "status", "#priced",
                                       "#ledger",        "#time", NULL};
    char number[32], title[64];
    for (int g = 0; g < page->groups->n; g++) {
        const struct attn_figure_group *group = &page->groups->group[g];
        if (group->kind != ATTN_GROUP_OTHER)
            continue;
        (void)snprintf(title, sizeof title, "Group %s", group->name);
        attn_document_heading(d, 3, title);
        attn_document_text(d, "Its name does not say what varies (length-…, ranks, share, "
                              "balance, density), so there is no figure.");
        attn_document_table(d, head);
        for (int64_t s = 0; s < group->n; s++) {
            const struct attn_row *row = group->row[s];
            const struct attn_spread *time = row->time.n > 0 ? &row->time : &row->single;
            attn_document_row(d);
            attn_document_code(d, row->point->spec);
            attn_document_code(d, row->point->text);
            attn_document_words(d, attn_status_phrase(row->status));
            attn_document_words(d, bytes_text(row->priced, number));
            attn_document_words(d, bytes_text(row->ledger, number));
            attn_document_words(d, attn_seconds_text(time->median, number));
        }
        attn_document_table_end(d);
    }
}

/* ---- price = ledger = resident set ----------------------------------------------------------- */

/* The good row of the largest length of this row's label and pass? */
static int is_longest(const struct attn_figure_group *group, int64_t s)
{
    const struct attn_point *p = group->row[s]->point;
    if (group->row[s]->status != ATTN_POINT_OK || group->row[s]->ledger < 0)
        return 0;
    for (int64_t t = 0; t < group->n; t++) {
        const struct attn_point *q = group->row[t]->point;
        if (group->row[t]->status == ATTN_POINT_OK && q->c.pass == p->c.pass &&
            strcmp(group->label[s], group->label[t]) == 0 && q->c.n_query > p->c.n_query)
            return 0;
    }
    return 1;
}

static void put_live_row(struct attn_document *d, const struct attn_row *row)
{
    const struct attn_point *p = row->point;
    char live[1024] = "", number[32];
    attn_document_row(d);
    attn_document_code(d, p->spec);
    attn_document_words(d, attn_pass_word(p->c.pass));
    attn_document_words(d, attn_count_text(p->c.n_query, number));
    for (int a = 0; a < p->n_live && a < ATTN_MAX_ACCOUNTS; a++) {
        size_t used = strlen(live);
        (void)snprintf(live + used, sizeof live - used, "%s%s %s", a > 0 ? ", " : "",
                       p->live_name[a], bytes_text(p->live_bytes[a], number));
    }
    attn_document_words(d, live);
    attn_document_words(d, exact_text(p->shard_bytes, number));
    attn_document_words(d, exact_text(row->priced, number));
    attn_document_words(d, exact_text(row->ledger, number));
    attn_document_cell(d, row->priced == row->ledger ? ATTN_GOOD : ATTN_BAD, "%s",
                       attn_count_text(row->ledger - row->priced, number));
    attn_document_words(d, exact_text(row->process, number));
    attn_document_words(d, exact_text(row->resident, number));
    if (row->process >= 1 << 20 && row->resident >= 0)
        attn_document_cell(d, ATTN_WORDS, "%+.1f %%",
                           100 * ((double)row->resident / (double)row->process - 1));
    else
        attn_document_words(d, dash);
}

void attn_page_live(struct attn_document *d, const struct attn_page *page)
{
    static const char *const head[] = {"implementation",
                                       "pass",
                                       "#L",
                                       "live at the peak",
                                       "#beside inputs and outputs of",
                                       "#priced",
                                       "#ledger",
                                       "#ledger − priced",
                                       "#ledger, all ranks",
                                       "#resident",
                                       "#resident ÷ ledger − 1",
                                       NULL};
    for (int g = 0; g < page->groups->n; g++) {
        const struct attn_figure_group *group = &page->groups->group[g];
        if (group->kind != ATTN_GROUP_LENGTH)
            continue;
        attn_document_heading(d, 3, group->special);
        attn_document_table(d, head);
        for (int64_t s = 0; s < group->n; s++)
            if (is_longest(group, s))
                put_live_row(d, group->row[s]);
        attn_document_table_end(d);
    }
}

/* ---- what a rank needs --------------------------------------------------------------------- */

void attn_page_shares(struct attn_document *d, const struct attn_page *page)
{
    static const char *const head[] = {"implementation",          "pass",      "#ranks P", "#peak",
                                       "#its inputs and outputs", "#together", "#sends",   NULL};
    char number[32];
    for (int g = 0; g < page->groups->n; g++) {
        const struct attn_figure_group *group = &page->groups->group[g];
        if (group->kind != ATTN_GROUP_RANKS)
            continue;
        attn_document_heading(d, 3, group->special);
        attn_document_table(d, head);
        for (int64_t s = 0; s < group->n; s++) {
            const struct attn_point *p = group->row[s]->point;
            attn_document_row(d);
            attn_document_code(d, p->spec);
            attn_document_words(d, attn_pass_word(p->c.pass));
            attn_document_words(d, attn_count_text(p->ranks, number));
            attn_document_words(d, bytes_text(group->row[s]->priced, number));
            attn_document_words(d, bytes_text(p->shard_bytes, number));
            attn_document_words(d, bytes_text(p->total_bytes, number));
            attn_document_words(d, p->ranks > 1 ? bytes_text(p->bytes_sent, number) : dash);
        }
        attn_document_table_end(d);
    }
}

/* ---- what is not ours ------------------------------------------------------------------------ */

int attn_page_has_external(const struct attn_page *page)
{
    for (int64_t s = 0; s < page->summary->n; s++)
        if (page->summary->row[s].point->route[0] != '\0')
            return 1;
    return 0;
}

/* The first row of this program? */
static int is_new(const struct attn_page *page, int64_t s)
{
    const struct attn_point *p = page->summary->row[s].point;
    for (int64_t t = 0; t < s; t++)
        if (strcmp(page->summary->row[t].point->spec, p->spec) == 0 &&
            strcmp(page->summary->row[t].point->source_digest, p->source_digest) == 0)
            return 0;
    return p->route[0] != '\0';
}

/* Every clock that its times were taken by. */
static void clocks_cell(struct attn_document *d, const struct attn_page *page, const char *spec)
{
    static const char *const clock[][2] = {
        {"calls", "around its function"},
        {"reported", "as it reports"},
        {"command", "whole command less the same command on a tiny case"}};
    char text[128] = "";
    for (int c = 0; c < 3; c++)
        for (int64_t s = 0; s < page->summary->n; s++) {
            const struct attn_row *row = &page->summary->row[s];
            if (row->status != ATTN_POINT_OK || strcmp(row->point->spec, spec) != 0 ||
                strcmp(row->point->time_source, clock[c][0]) != 0)
                continue;
            size_t used = strlen(text);
            (void)snprintf(text + used, sizeof text - used, "%s%s", used > 0 ? "; " : "",
                           clock[c][1]);
            break;
        }
    attn_document_words(d, text[0] != '\0' ? text : dash);
}

void attn_page_external(struct attn_document *d, const struct attn_page *page)
{
    static const char *const head[] = {"name", "what", "from", "digest", "time", NULL};
    attn_document_table(d, head);
    for (int64_t s = 0; s < page->summary->n; s++) {
        const struct attn_point *p = page->summary->row[s].point;
        if (!is_new(page, s))
            continue;
        attn_document_row(d);
        attn_document_code(d, p->spec);
        attn_document_words(d, p->route);
        attn_document_code(d, p->source);
        attn_document_code(d, p->source_digest);
        clocks_cell(d, page, p->spec);
    }
    attn_document_table_end(d);
}

/* ---- what has no result ---------------------------------------------------------------------- */

void attn_page_not_run(struct attn_document *d, const struct attn_page *page)
{
    static const char *const head[] = {"group", "implementation", "case", "why", NULL};
    int64_t n = 0;
    for (int64_t s = 0; s < page->summary->n; s++)
        n += page->summary->row[s].status != ATTN_POINT_OK;
    if (n == 0) {
        attn_document_text(d, "None: every point of these records was measured and agrees.");
        return;
    }
    (void)fprintf(d->out, "<details%s><summary>%lld points</summary>", n <= 12 ? " open" : "",
                  (long long)n);
    attn_document_table(d, head);
    for (int64_t s = 0; s < page->summary->n; s++) {
        const struct attn_row *row = &page->summary->row[s];
        const struct attn_point *p = row->point;
        if (row->status == ATTN_POINT_OK)
            continue;
        attn_document_row(d);
        attn_document_words(d, p->group);
        attn_document_code(d, p->spec);
        attn_document_code(d, p->text);
        attn_document_cell(d, row->status == ATTN_POINT_WRONG ? ATTN_BAD : ATTN_WORDS, "%s%s%s",
                           attn_status_phrase(row->status), p->message[0] != '\0' ? ": " : "",
                           p->message);
    }
    attn_document_table_end(d);
    (void)fputs("</details>\n", d->out);
}
