#include "experiments/report/page.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "tests/harness/files/fileio.h"

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

static void put_summaries(struct attn_document *d, const struct attn_page *page)
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
static void put_others(struct attn_document *d, const struct attn_page *page)
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
static void put_live(struct attn_document *d, const struct attn_page *page)
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
static void put_shares(struct attn_document *d, const struct attn_page *page)
{
    static const char *const head[] = {"implementation",          "pass",      "#ranks P", "#peak",
                                       "#its inputs and outputs", "#together", "#sends",   NULL};
    put_groups(d, page, ATTN_GROUP_RANKS, head, NULL, put_share_row);
}

/* ---- what is not ours ------------------------------------------------------------------------ */

static int has_external(const struct attn_page *page)
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

static void put_external(struct attn_document *d, const struct attn_page *page)
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

/* ---- what has no result ---------------------------------------------------------------------- */

static void put_not_run(struct attn_document *d, const struct attn_page *page)
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
    (void)fprintf(d->out, "<details%s><summary>%lld points</summary>", n <= 12 ? " open" : "",
                  (long long)n);
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

/* ---- commands ------------------------------------------------------------------------------ */

/* A flag and its value, as a shell reads it. */
static void put_flag(FILE *file, const char *flag, const char *value)
{
    char word[2 * PATH_MAX];
    attn_cli_quote(value, word, sizeof word);
    (void)fprintf(file, " --%s ", flag);
    attn_html_text(file, word);
}

static void put_commands(struct attn_document *d, const struct attn_page *page)
{
    const struct attn_external_specs *externals = page->externals;
    fputs("<pre>", d->out);
    if (page->plan != NULL) {
        fputs("attnlab measure", d->out);
        put_flag(d->out, "plan", page->plan);
        for (int e = 0; externals != NULL && e < externals->n; e++) {
            const struct attn_external_spec *one = &externals->one[e];
            int plugin = one->kind == ATTN_EXTERNAL_PLUGIN;
            char *source = attn_cli_text("%s=%s", one->name, one->source);
            put_flag(d->out, plugin ? "plugin" : "exec", source);
            free(source);
            if (!plugin)
                put_flag(d->out, "claims", one->claims_path);
        }
        put_flag(d->out, "out", page->sources->path[0]);
        fputs("\n", d->out);
    }
    fputs("attnlab report", d->out);
    for (int f = 0; f < page->sources->n; f++)
        put_flag(d->out, "from", page->sources->path[f]);
    for (int e = 0; page->external_records != NULL && e < page->external_records->n; e++)
        put_flag(d->out, "external-records", page->external_records->at[e].value);
    put_flag(d->out, "out", page->out);
    fputs("</pre>\n", d->out);
}

/* ---- figures ------------------------------------------------------------------------------- */

/* Its CSV. */
static void put_numbers(struct attn_document *d, const struct attn_figure *figure)
{
    char *text = attn_figure_csv(figure);
    (void)fprintf(d->out, "<details><summary>The numbers, %s.csv: %lld lines</summary>\n",
                  figure->name, (long long)figure->n);
    attn_document_lines(d, text);
    fputs("</details>\n", d->out);
    free(text);
}

/* What was not measured, below the figure: at most two lines of the page. */
static void put_figure(struct attn_document *d, const struct attn_page *page,
                       const struct attn_figure *figure)
{
    char path[PATH_MAX], label[1600], note[260];
    (void)fprintf(d->out, "<h3 id=\"%s\">", figure->name);
    attn_html_text(d->out, figure->title);
    fputs("</h3>\n", d->out);
    note[0] = '\0';
    if (figure->group != NULL)
        attn_group_not_run(figure->group, note, sizeof note);
    if (figure->omitted[0] != '\0') {
        attn_document_text(d, "Omitted: %s.", figure->omitted);
    } else {
        (void)snprintf(path, sizeof path, "%s/figures/%s.svg", page->out, figure->name);
        (void)snprintf(label, sizeof label,
                       "%s. %s. %s The numbers are in the table below the figure.", figure->title,
                       figure->subtitle, figure->finding);
        fputs("<figure><div class=plot>", d->out);
        if (attn_html_image(d->out, path, label) != 0)
            attn_cli_stop(ATTN_ENOMEM, NULL, "a picture cannot be read again: %s", path);
        fputs("</div>\n<figcaption>", d->out);
        if (figure->finding[0] != '\0')
            attn_document_put(d, ATTN_STRONG, "%s", figure->finding);
        fputs(figure->caption, d->out);
        fputs("</figcaption></figure>\n", d->out);
    }
    attn_document_text(d, "%s", note);
    put_numbers(d, figure);
}

static void put_figures(struct attn_document *d, const struct attn_page *page)
{
    for (int f = 0; f < page->figures->n; f++)
        put_figure(d, page, &page->figures->figure[f]);
}

/* ---- machine, calibration ------------------------------------------------------------------ */

/* Any JSON value as a cell. */
static void json_cell(struct attn_document *d, const json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
    const char *word = json_string_value(value);
    attn_document_cells(d, "w", word != NULL ? word : text != NULL ? text : attn_document_dash);
    free(text);
}

/* A column for each file; what differs between them comes first. */
static void put_machine(struct attn_document *d, const struct attn_page *page)
{
    const struct attn_sources *of = page->sources;
    const char *head[ATTN_SOURCES_MOST + 2] = {"fact"}, *key;
    json_t *all = json_object(), *value;
    for (int f = 0; f < of->n; f++) {
        head[f + 1] = of->n > 1 ? of->name[f] : "value";
        if (of->machine[f] != NULL)
            json_object_update_missing(all, of->machine[f]);
    }
    json_object_del(all, "record");
    json_object_del(all, "schema");
    if (json_object_size(all) == 0)
        attn_document_text(d, "These records have no machine line.");
    else
        attn_document_table(d, head);
    for (int differ = of->n > 1; differ >= 0; differ--)
        json_object_foreach(all, key, value)
        {
            if (attn_sources_differ(of, key) != differ)
                continue;
            attn_document_row(d, "");
            attn_document_cell(d, differ ? ATTN_STRONG : ATTN_WORDS, "%s", key);
            for (int f = 0; f < of->n; f++)
                json_cell(d, json_object_get(of->machine[f], key));
        }
    if (json_object_size(all) > 0)
        attn_document_table_end(d);
    json_decref(all);
}

static double number(const json_t *line, const char *key)
{
    const json_t *value = json_object_get(line, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static const char *word(const json_t *line, const char *key)
{
    const char *text = json_string_value(json_object_get(line, key));
    return text != NULL ? text : "?";
}

/* A calibration line in words; kinds that are not known are given as they are. */
static void calibration_cell(struct attn_document *d, const json_t *line)
{
    const char *kind = word(line, "kind");
    char a[32];
    if (strcmp(kind, "memory") == 0)
        attn_document_cell(d, ATTN_WORDS,
                           "wrote %s in a fresh process; VmHWM grew by %+.2f %% of that more",
                           attn_cli_bytes((int64_t)number(line, "expected_bytes"), a),
                           100 * number(line, "error"));
    else if (strcmp(kind, "aa") == 0)
        attn_document_cell(d, ATTN_WORDS,
                           "the same point under two names, in turns: medians differ by %+.2f %%, "
                           "all times lie within %.2f %% of the median",
                           100 * (number(line, "ratio") - 1), 100 * number(line, "spread"));
    else
        json_cell(d, line);
}

static void put_calibration(struct attn_document *d, const struct attn_page *page)
{
    static const char *const head[] = {"session", "kind", "result", NULL};
    size_t index;
    json_t *line;
    if (json_array_size(page->sources->all.calibration) == 0) {
        attn_document_text(d, "These records have no calibration lines.");
        return;
    }
    attn_document_table(d, head);
    json_array_foreach(page->sources->all.calibration, index, line)
    {
        attn_document_row(d, "ww", word(line, "session"), word(line, "kind"));
        calibration_cell(d, line);
    }
    attn_document_table_end(d);
}

/* ---- holes --------------------------------------------------------------------------------- */

static void put_style(struct attn_document *d, const struct attn_page *page)
{
    (void)page;
    fputs(attn_html_style, d->out);
}

static void put_counts(struct attn_document *d, const struct attn_page *page)
{
    int64_t good = 0;
    char records[32], points[32], ok[32];
    for (int64_t s = 0; s < page->summary->n; s++)
        good += page->summary->row[s].status == ATTN_POINT_OK;
    attn_document_put(d, ATTN_WORDS, "%s records, %s points, of which %s are good.",
                      attn_cli_grouped(page->sources->all.n, records),
                      attn_cli_grouped(page->summary->n, points), attn_cli_grouped(good, ok));
}

static void put_records(struct attn_document *d, const struct attn_page *page)
{
    for (int f = 0; f < page->sources->n; f++)
        attn_document_put(d, ATTN_WORDS, "%s%s", f > 0 ? ", " : "", page->sources->path[f]);
}

static void put_date(struct attn_document *d, const struct attn_page *page)
{
    const char *date = json_string_value(json_object_get(page->sources->all.machine, "date"));
    if (date != NULL)
        attn_document_put(d, ATTN_WORDS, "Measured %s.", date);
}

static const struct {
    const char *name;
    void (*put)(struct attn_document *d, const struct attn_page *page);
} holes[] = {
    {"style", put_style},       {"counts", put_counts},     {"records", put_records},
    {"date", put_date},         {"summary", put_summaries}, {"figures", put_figures},
    {"others", put_others},     {"live", put_live},         {"shares", put_shares},
    {"external", put_external}, {"not-run", put_not_run},   {"calibration", put_calibration},
    {"machine", put_machine},   {"commands", put_commands}};
enum { HOLES = sizeof holes / sizeof holes[0] };

/* {{?CONDITION}} ... {{/}}: what stands between is for pages of which this holds; -1: no such. */
static int holds(const struct attn_page *page, const char *condition)
{
    int has[ATTN_GROUP_OTHER + 1] = {0};
    for (int g = 0; g < page->groups->n; g++)
        has[page->groups->group[g].kind] = 1;
    const struct {
        const char *name;
        int holds;
    } known[] = {{"empty", page->summary->n == 0},        {"external", has_external(page)},
                 {"length", has[ATTN_GROUP_LENGTH]},      {"no-length", !has[ATTN_GROUP_LENGTH]},
                 {"ranks", has[ATTN_GROUP_RANKS]},        {"no-ranks", !has[ATTN_GROUP_RANKS]},
                 {"no-density", !has[ATTN_GROUP_DENSITY]}};
    for (size_t k = 0; k < sizeof known / sizeof known[0]; k++)
        if (strcmp(known[k].name, condition) == 0)
            return known[k].holds;
    return -1;
}

static void fill_hole(struct attn_document *d, const struct attn_page *page, const char *name)
{
    int h = 0;
    while (h < HOLES && strcmp(holes[h].name, name) != 0)
        h++;
    if (h == HOLES)
        attn_cli_stop(ATTN_ENOMEM, NULL, "page.html: there is no hole {{%s}}", name);
    holes[h].put(d, page);
}

/* The template's text, with what belongs into its holes. */
static void fill_template(FILE *file, const char *text, const struct attn_page *page)
{
    struct attn_document d = {.out = file, .is_html = 1};
    int is_shown = 1;
    for (const char *open;; text = strstr(open, "}}") + 2) {
        char hole[64];
        open = strstr(text, "{{");
        if (is_shown)
            fwrite(text, 1, open != NULL ? (size_t)(open - text) : strlen(text), file);
        if (open == NULL)
            return;
        if (sscanf(open, "{{%63[^}]}}", hole) != 1)
            attn_cli_stop(ATTN_ENOMEM, NULL, "page.html: no hole at %.20s", open);
        if (*hole == '?')
            is_shown = holds(page, hole + 1);
        else if (*hole == '/')
            is_shown = 1;
        else if (is_shown)
            fill_hole(&d, page, hole);
        if (is_shown < 0)
            attn_cli_stop(ATTN_ENOMEM, NULL, "page.html: there is no condition %s", hole + 1);
    }
}

void attn_page_write(const struct attn_page *page)
{
    struct attn_error err;
    char path[PATH_MAX], *template, *whole;
    size_t size;
    if (attn_plots_read("page.html", &template, &err) != ATTN_OK)
        attn_cli_stop(ATTN_ENOMEM, NULL, "%s", err.text);
    FILE *out = attn_cli_memory(&whole, &size);
    fill_template(out, template, page);
    fclose(out);
    (void)snprintf(path, sizeof path, "%s/index.html", page->out);
    attn_cli_must(attn_cli_save(path, attn_cli_need(whole), &err), &err);
    free(template);
    free(whole);
}
