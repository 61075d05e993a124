/* See page.h: its tables, of groups, of programs that are not ours, of what was not run. */
#include <math.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/report/page.h"
#include "tests/harness/base/fileio.h"

/* ---- cells ----------------------------------------------------------------------------------- */

const char *attn_seconds_text(double seconds, char text[32])
{
    static const char *const unit[] = {"s", "ms", "µs", "ns"};
    int u = 0;
    double x = seconds;
    for (; x < 1 && x > 0 && u < 3; u++)
        x *= 1000;
    if (isnan(seconds))
        (void)snprintf(text, 32, "%s", attn_document_dash);
    else
        (void)snprintf(text, 32, "%.3g %s", x, unit[u]);
    return text;
}

static void real_cell(struct attn_document *d, enum attn_style style, double x)
{
    if (isnan(x))
        attn_document_cells(d, "w", attn_document_dash);
    else if (isinf(x))
        attn_document_cell(d, style, "∞");
    else
        attn_document_cell(d, style, "%.3g", x);
}

/* ---- summary ------------------------------------------------------------------------------- */

/* The exponent of peak or time in L of a curve, as figures have it. */
static void exponent_cell(struct attn_document *d, const struct attn_figure_group *group,
                          const char *label, enum attn_pass pass, int of_time)
{
    const struct attn_power *power = NULL;
    for (int64_t s = 0; s < group->n && power == NULL; s++)
        if (group->row[s]->point->c.pass == pass && strcmp(group->row[s]->label, label) == 0)
            power = of_time ? &group->row[s]->time_power : &group->row[s]->bytes_power;
    if (power == NULL || power->n == 0)
        attn_document_cells(d, "w", attn_document_dash);
    else
        attn_document_cell(d, ATTN_WORDS, "%.2f ± %.2f",
                           fabs(power->slope) < 0.005 ? 0 : power->slope,
                           power->interval.high - power->slope);
}

/* The largest ratio of a label, and its verdict over all points that ran and were compared. */
static void verdict_cells(struct attn_document *d, const struct attn_figure_group *group,
                          const char *label)
{
    int64_t judged = 0, wrong = 0;
    double worst = (double)NAN;
    for (int64_t s = 0; s < group->n; s++) {
        const struct attn_row *row = group->row[s];
        if (strcmp(group->row[s]->label, label) != 0 ||
            (row->status != ATTN_POINT_OK && row->status != ATTN_POINT_WRONG))
            continue;
        judged++;
        wrong += row->status == ATTN_POINT_WRONG;
        worst = isnan(worst) || row->worst > worst ? row->worst : worst;
    }
    real_cell(d, worst > 1 ? ATTN_BAD : ATTN_WORDS, worst);
    if (judged == 0)
        attn_document_cells(d, "w", "nothing ran");
    else if (wrong > 0)
        attn_document_cell(d, ATTN_BAD, "WRONG at %lld of %lld points", (long long)wrong,
                           (long long)judged);
    else
        attn_document_cell(d, ATTN_GOOD, "agrees at all %lld points", (long long)judged);
}

/* A column of the summary: a quantity in one pass, at the length that all have in common. */
struct quantity {
    enum { MEMORY_EXPONENT, TIME_EXPONENT, PEAK, QUANTITIES } what;
    enum attn_pass pass;
    int64_t length;
    char head[80];
};

/* Those of a group; their number. */
static int find_quantities(const struct attn_figure_group *group,
                           struct quantity column[2 * QUANTITIES])
{
    static const char *const words[] = {"exponent of memory", "exponent of time", "peak"};
    char number[32];
    int n = 0;
    for (int k = 0; k < 2 * QUANTITIES; k++) {
        struct quantity *c = &column[n];
        c->what = k / 2;
        c->pass = (enum attn_pass)(k % 2);
        c->length = attn_group_common_length(group, c->pass);
        (void)snprintf(c->head, sizeof c->head, "#%s, %s%s%s", words[c->what],
                       attn_pass_word(c->pass), c->what == PEAK ? ", L = " : "",
                       c->what == PEAK ? attn_cli_grouped(c->length, number) : "");
        n += attn_group_has_pass(group, c->pass);
    }
    return n;
}

static void put_summary(struct attn_document *d, const struct attn_figure_group *group)
{
    struct quantity column[2 * QUANTITIES];
    const char *head[2 * QUANTITIES + 4] = {"implementation"};
    int n = find_quantities(group, column);
    for (int c = 0; c < n; c++)
        head[1 + c] = column[c].head;
    head[1 + n] = "#worst error/bound";
    head[2 + n] = "verdict";
    attn_document_heading(d, 3, group->special);
    attn_document_text(d, "%s", group->problem);
    attn_document_table(d, head);
    for (int64_t s = 0; s < group->n; s++) {
        const char *label = group->row[s]->label;
        if (!attn_group_is_first(group, s))
            continue;
        attn_document_row(d, "c", label);
        for (int c = 0; c < n; c++) {
            const struct attn_row *row =
                attn_group_find(group, label, column[c].pass, column[c].length);
            if (column[c].what == PEAK)
                attn_document_cells(d, "b", row != NULL ? row->peak : INT64_C(-1));
            else
                exponent_cell(d, group, label, column[c].pass, column[c].what == TIME_EXPONENT);
        }
        verdict_cells(d, group, label);
    }
    attn_document_table_end(d);
}

void attn_page_summaries(struct attn_document *d, const struct attn_page *page)
{
    for (int g = 0; g < page->groups->n; g++)
        if (page->groups->group[g].kind == ATTN_GROUP_LENGTH)
            put_summary(d, &page->groups->group[g]);
}

/* ---- tables of groups ------------------------------------------------------------------------ */

/* A spec, and of several files of records which one it is of. */
static const char *spec_of(const struct attn_point *p, char text[256])
{
    int is_one = p->origin == NULL;
    (void)snprintf(text, 256, is_one ? "%s" : "%s (%s)", p->spec, is_one ? "" : p->origin);
    return text;
}

/* A table for each group of a kind; is_shown: NULL, or which rows. */
static void put_groups(struct attn_document *d, const struct attn_page *page,
                       enum attn_group_kind kind, const char *const *head,
                       int (*is_shown)(const struct attn_figure_group *group, int64_t s),
                       void (*put_row)(struct attn_document *d, const struct attn_row *row))
{
    char title[64], spec[256];
    for (int g = 0; g < page->groups->n; g++) {
        const struct attn_figure_group *group = &page->groups->group[g];
        if (group->kind != kind)
            continue;
        (void)snprintf(title, sizeof title, "Group %s", group->name);
        attn_document_heading(d, 3, kind == ATTN_GROUP_OTHER ? title : group->special);
        if (kind == ATTN_GROUP_OTHER)
            attn_document_text(d,
                               "Its name does not say what varies, so there is no figure: the "
                               "words for it are%s.",
                               attn_group_word_list);
        attn_document_table(d, head);
        for (int64_t s = 0; s < group->n; s++)
            if (is_shown == NULL || is_shown(group, s)) {
                attn_document_row(d, "c", spec_of(group->row[s]->point, spec));
                put_row(d, group->row[s]);
            }
        attn_document_table_end(d);
    }
}

static void put_other_row(struct attn_document *d, const struct attn_row *row)
{
    char text[32];
    double seconds = (row->time.n > 0 ? &row->time : &row->single)->median;
    attn_document_cells(d, "cwbbw", row->point->text, attn_status_phrase(row->status), row->priced,
                        row->ledger, attn_seconds_text(seconds, text));
}

/* Groups whose name begins with no known word: a table only. */
void attn_page_others(struct attn_document *d, const struct attn_page *page)
{
    static const char *const head[] = {"implementation", "case",  "status", "#priced",
                                       "#ledger",        "#time", NULL};
    put_groups(d, page, ATTN_GROUP_OTHER, head, NULL, put_other_row);
}

/* The good row of the largest length of this row's label and pass?  Lengths increase. */
static int is_longest(const struct attn_figure_group *group, int64_t s)
{
    const struct attn_row *row = group->row[s];
    if (row->status != ATTN_POINT_OK || row->ledger < 0)
        return 0;
    while (++s < group->n && group->row[s]->first == row->first &&
           group->row[s]->point->c.pass == row->point->c.pass)
        if (group->row[s]->status == ATTN_POINT_OK)
            return 0;
    return 1;
}

static void put_live_row(struct attn_document *d, const struct attn_row *row)
{
    const struct attn_point *p = row->point;
    char live[1024] = "", number[32];
    for (int a = 0; a < p->n_live && a < ATTN_MAX_ACCOUNTS; a++)
        attn_append(live, sizeof live, "%s%s %s", a > 0 ? ", " : "", p->live_name[a],
                    attn_cli_bytes(p->live_bytes[a], number));
    attn_document_cells(d, "wnwnnn", attn_pass_word(p->c.pass), p->c.n_query, live, p->shard_bytes,
                        row->priced, row->ledger);
    attn_document_cell(d, row->priced == row->ledger ? ATTN_GOOD : ATTN_BAD, "%s",
                       attn_cli_grouped(row->ledger - row->priced, number));
    attn_document_cells(d, "nn", row->process, row->resident);
    if (row->process >= 1 << 20 && row->resident >= 0)
        attn_document_cell(d, ATTN_WORDS, "%+.1f %%",
                           100 * ((double)row->resident / (double)row->process - 1));
    else
        attn_document_cells(d, "w", attn_document_dash);
}

/* Price = ledger = resident set. */
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
    put_groups(d, page, ATTN_GROUP_LENGTH, head, is_longest, put_live_row);
}

static void put_share_row(struct attn_document *d, const struct attn_row *row)
{
    const struct attn_point *p = row->point;
    attn_document_cells(d, "wnbbbb", attn_pass_word(p->c.pass), (int64_t)p->ranks, row->priced,
                        p->shard_bytes, p->total_bytes, p->ranks > 1 ? p->bytes_sent : INT64_C(-1));
}

/* What a rank needs. */
void attn_page_shares(struct attn_document *d, const struct attn_page *page)
{
    static const char *const head[] = {"implementation",          "pass",      "#ranks R", "#peak",
                                       "#its inputs and outputs", "#together", "#sends",   NULL};
    put_groups(d, page, ATTN_GROUP_RANKS, head, NULL, put_share_row);
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
            attn_append(text, sizeof text, "%s%s", text[0] != '\0' ? "; " : "", clock[c][1]);
            break;
        }
    attn_document_cells(d, "w", text[0] != '\0' ? text : attn_document_dash);
}

void attn_page_external(struct attn_document *d, const struct attn_page *page)
{
    static const char *const head[] = {"name", "what", "from", "digest", "time", NULL};
    attn_document_table(d, head);
    for (int64_t s = 0; s < page->summary->n; s++) {
        const struct attn_point *p = page->summary->row[s].point;
        if (!is_new(page, s))
            continue;
        attn_document_row(d, "cwcc", p->spec, p->route, p->source, p->source_digest);
        clocks_cell(d, page, p->spec);
    }
    attn_document_table_end(d);
}

/* ---- what was not run ------------------------------------------------------------------------ */

/* Where a row stands: "8,192", "R=4", "random(0.1,1)". */
static void append_where(const struct attn_figure_group *group, const struct attn_row *row,
                         char *text, size_t size)
{
    char number[32];
    const struct attn_point *p = row->point;
    int64_t floor = p->floor_bytes > 0 ? p->floor_bytes : 0;
    const char *x_name =
        group->kind != ATTN_GROUP_OTHER ? attn_group_words[group->kind].x_name : "L";
    double x = row->x;
    if (group->kind == ATTN_GROUP_DENSITY)
        attn_append(text, size, " %s", p->c.mask);
    else if (strcmp(x_name, "L") == 0)
        attn_append(text, size, " from %s", attn_cli_grouped(p->c.n_query, number));
    else if (x > 0)
        attn_append(text, size, " from %s=%.0f", x_name, x);
    attn_append(text, size, " (%s", attn_pass_word(p->c.pass));
    if (row->status == ATTN_POINT_TOO_BIG && row->priced > 0)
        attn_append(text, size, ", %s", attn_cli_bytes(row->priced * p->ranks + floor, number));
    attn_append(text, size, ")");
}

/* Why a row is not where it might be: its status, or that it was measured and has no time (a
 * command's is unknown where the tiny case took as long; of processes that share cores none is
 * taken). */
enum { NO_TIME = ATTN_POINT_ERROR + 1, SHARED_CORES };

static int reason_of(const struct attn_row *row)
{
    int has_time = row->time.n > 0 || row->single.n > 0;
    int is_of_processes = row->point->n_processes > 0;
    return row->status != ATTN_POINT_OK || has_time ? (int)row->status
           : is_of_processes                        ? (int)SHARED_CORES
                                                    : (int)NO_TIME;
}

/* Rows of one label and pass that ended alike: only the first is reported, where the curve ends. */
static int is_reported(const struct attn_figure_group *group, int64_t s)
{
    const struct attn_row *row = group->row[s];
    while (--s >= 0 && group->row[s]->first == row->first)
        if (reason_of(group->row[s]) == reason_of(row) &&
            group->row[s]->point->c.pass == row->point->c.pass)
            return 1;
    return 0;
}

void attn_group_not_run(const struct attn_figure_group *group, char *text, size_t size)
{
    static const int reasons[] = {
        ATTN_POINT_TOO_BIG, ATTN_POINT_DROPPED,       ATTN_POINT_REFUSED, ATTN_POINT_TIMEOUT,
        ATTN_POINT_KILLED,  ATTN_POINT_OUT_OF_MEMORY, ATTN_POINT_ERROR,   NO_TIME,
        SHARED_CORES}; /* what is only priced is drawn, dashed */
    static const char cut[] = " ... (the table has all)";
    text[0] = '\0';
    for (size_t r = 0; r < sizeof reasons / sizeof reasons[0]; r++) {
        const char *between = "", *last = "";
        for (int64_t s = 0; s < group->n; s++) {
            const char *label = group->row[s]->label;
            if (reason_of(group->row[s]) != reasons[r] || is_reported(group, s))
                continue;
            size_t begin = strlen(text);
            if (between[0] == '\0')
                attn_append(text, size, "%s%s%s: ", begin > 0 ? "; " : "",
                            reasons[r] >= NO_TIME ? "Measured, without a time" : "Not measured, ",
                            reasons[r] == NO_TIME        ? ""
                            : reasons[r] == SHARED_CORES ? ", as ranks share cores"
                                                         : attn_status_phrase(reasons[r]));
            attn_append(text, size, "%s%s", between, strcmp(label, last) == 0 ? "" : label);
            append_where(group, group->row[s], text, size);
            last = label;
            between = ", ";
            if (strlen(text) + sizeof cut >= size) {
                text[begin] = '\0';
                attn_append(text, size, "%s", cut);
                return;
            }
        }
    }
}

void attn_page_not_run(struct attn_document *d, const struct attn_page *page)
{
    static const char *const head[] = {"group", "implementation", "case", "why", NULL};
    char spec[256];
    int64_t n = 0;
    for (int64_t s = 0; s < page->summary->n; s++)
        n += page->summary->row[s].status != ATTN_POINT_OK;
    if (n == 0) {
        attn_document_text(d, "None: every point of these records was measured and agrees.");
        return;
    }
    /* Open: paper has what is open, and a diagnosis is not to be lost. */
    (void)fprintf(d->out, "<details open><summary>%lld points</summary>", (long long)n);
    attn_document_table(d, head);
    for (int64_t s = 0; s < page->summary->n; s++) {
        const struct attn_row *row = &page->summary->row[s];
        const struct attn_point *p = row->point;
        if (row->status == ATTN_POINT_OK)
            continue;
        attn_document_row(d, "wcc", p->group, spec_of(p, spec), p->text);
        attn_document_cell(d, row->status == ATTN_POINT_WRONG ? ATTN_BAD : ATTN_WORDS, "%s%s%s",
                           attn_status_phrase(row->status), p->message[0] != '\0' ? ": " : "",
                           p->message);
    }
    attn_document_table_end(d);
    (void)fputs("</details>\n", d->out);
}
