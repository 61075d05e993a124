#include "experiments/report/page.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "tests/harness/files/fileio.h"

/* ---- cells ----------------------------------------------------------------------------------- */

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

/* "1.2 MiB", and to the byte; what is not known is -1. */
static void bytes_cell(struct attn_document *d, int64_t bytes)
{
    char text[32];
    attn_document_words(d, bytes < 0 ? dash : attn_cli_bytes(bytes, text));
}

static void exact_cell(struct attn_document *d, int64_t n)
{
    char text[32];
    attn_document_words(d, n < 0 ? dash : attn_cli_grouped(n, text));
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
                           what == 2 ? attn_cli_grouped(common[pass], number) : "");
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
                    bytes_cell(d, row != NULL ? row->peak : -1);
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
static void spec_cell(struct attn_document *d, const struct attn_point *p)
{
    char text[sizeof p->spec + ATTN_SOURCE_NAME + 4];
    (void)snprintf(text, sizeof text, "%s%s%s%s", p->spec, p->origin != NULL ? " (" : "",
                   p->origin != NULL ? p->origin : "", p->origin != NULL ? ")" : "");
    attn_document_code(d, text);
}

/* A table for each group of a kind; is_shown: NULL, or which rows. */
static void put_groups(struct attn_document *d, const struct attn_page *page,
                       enum attn_group_kind kind, const char *const *head,
                       int (*is_shown)(const struct attn_figure_group *group, int64_t s),
                       void (*put_row)(struct attn_document *d, const struct attn_row *row))
{
    char title[64];
    for (int g = 0; g < page->groups->n; g++) {
        const struct attn_figure_group *group = &page->groups->group[g];
        if (group->kind != kind)
            continue;
        (void)snprintf(title, sizeof title, "Group %s", group->name);
        attn_document_heading(d, 3, kind == ATTN_GROUP_OTHER ? title : group->special);
        if (kind == ATTN_GROUP_OTHER) {
            attn_document_paragraph(d);
            attn_document_put(d, ATTN_WORDS,
                              "Its name does not say what varies, so there is no figure: the words "
                              "for it are%s.",
                              attn_group_word_list);
            attn_document_close(d);
        }
        attn_document_table(d, head);
        for (int64_t s = 0; s < group->n; s++)
            if (is_shown == NULL || is_shown(group, s)) {
                attn_document_row(d);
                spec_cell(d, group->row[s]->point);
                put_row(d, group->row[s]);
            }
        attn_document_table_end(d);
    }
}

static void put_other_row(struct attn_document *d, const struct attn_row *row)
{
    char text[32];
    attn_document_code(d, row->point->text);
    attn_document_words(d, attn_status_phrase(row->status));
    bytes_cell(d, row->priced);
    bytes_cell(d, row->ledger);
    attn_document_words(
        d, attn_seconds_text((row->time.n > 0 ? &row->time : &row->single)->median, text));
}

/* Groups whose name begins with no known word: a table only. */
static void put_others(struct attn_document *d, const struct attn_page *page)
{
    static const char *const head[] = {"implementation", "case",  "status", "#priced",
                                       "#ledger",        "#time", NULL};
    put_groups(d, page, ATTN_GROUP_OTHER, head, NULL, put_other_row);
}

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
    attn_document_words(d, attn_pass_word(p->c.pass));
    exact_cell(d, p->c.n_query);
    for (int a = 0; a < p->n_live && a < ATTN_MAX_ACCOUNTS; a++)
        attn_append(live, sizeof live, "%s%s %s", a > 0 ? ", " : "", p->live_name[a],
                    attn_cli_bytes(p->live_bytes[a], number));
    attn_document_words(d, live);
    exact_cell(d, p->shard_bytes);
    exact_cell(d, row->priced);
    exact_cell(d, row->ledger);
    attn_document_cell(d, row->priced == row->ledger ? ATTN_GOOD : ATTN_BAD, "%s",
                       attn_cli_grouped(row->ledger - row->priced, number));
    exact_cell(d, row->process);
    exact_cell(d, row->resident);
    if (row->process >= 1 << 20 && row->resident >= 0)
        attn_document_cell(d, ATTN_WORDS, "%+.1f %%",
                           100 * ((double)row->resident / (double)row->process - 1));
    else
        attn_document_words(d, dash);
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
    attn_document_words(d, attn_pass_word(p->c.pass));
    exact_cell(d, p->ranks);
    bytes_cell(d, row->priced);
    bytes_cell(d, p->shard_bytes);
    bytes_cell(d, p->total_bytes);
    bytes_cell(d, p->ranks > 1 ? p->bytes_sent : -1);
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
    attn_document_words(d, text[0] != '\0' ? text : dash);
}

static void put_external(struct attn_document *d, const struct attn_page *page)
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

static void put_not_run(struct attn_document *d, const struct attn_page *page)
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
        spec_cell(d, p);
        attn_document_code(d, p->text);
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
    char word[sizeof externals->one[0].name + sizeof externals->one[0].source + 2];
    fputs("<pre>", d->out);
    if (page->plan != NULL) {
        fputs("attnlab measure", d->out);
        put_flag(d->out, "plan", page->plan);
        for (int e = 0; externals != NULL && e < externals->n; e++) {
            const struct attn_external_spec *one = &externals->one[e];
            int plugin = one->route == ATTN_ROUTE_PLUGIN;
            (void)snprintf(word, sizeof word, "%s=%s", one->name, one->source);
            put_flag(d->out, plugin ? "plugin" : "exec", word);
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
    char *text;
    size_t size;
    FILE *csv = attn_cli_memory(&text, &size);
    attn_figure_csv(csv, figure);
    fclose(csv);
    (void)fprintf(d->out, "<details><summary>The numbers, %s.csv: %lld lines</summary>\n",
                  figure->name, (long long)figure->n);
    attn_document_lines(d, attn_cli_need(text));
    fputs("</details>\n", d->out);
    free(text);
}

/* {{=KIND}} ... {{/}} in the template. */
static void put_caption(struct attn_document *d, const struct attn_page *page, const char *kind)
{
    char mark[64];
    (void)snprintf(mark, sizeof mark, "{{=%s}}", kind);
    const char *text = strstr(page->page_html, mark);
    const char *end = text != NULL ? strstr(text, "{{/}}") : NULL;
    d->is_broken |= end == NULL;
    if (end != NULL)
        fwrite(text + strlen(mark), 1, (size_t)(end - text) - strlen(mark), d->out);
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
        attn_document_paragraph(d);
        attn_document_put(d, ATTN_WORDS, "Omitted: %s.", figure->omitted);
        attn_document_close(d);
    } else {
        (void)snprintf(path, sizeof path, "%s/figures/%s.svg", page->out, figure->name);
        (void)snprintf(label, sizeof label,
                       "%s. %s. %s The numbers are in the table below the figure.", figure->title,
                       figure->subtitle, figure->finding);
        fputs("<figure><div class=plot>", d->out);
        if (attn_html_image(d->out, path, label) != 0)
            d->is_broken = 1;
        fputs("</div>\n<figcaption>", d->out);
        if (figure->finding[0] != '\0')
            attn_document_put(d, ATTN_STRONG, "%s", figure->finding);
        put_caption(d, page, figure->kind);
        fputs("</figcaption></figure>\n", d->out);
    }
    attn_document_text(d, note);
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
    attn_document_words(d, word != NULL ? word : text != NULL ? text : "–");
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
            attn_document_row(d);
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
        attn_document_row(d);
        attn_document_words(d, word(line, "session"));
        attn_document_words(d, word(line, "kind"));
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

static enum attn_status fill_hole(struct attn_document *d, const struct attn_page *page,
                                  const char *name, struct attn_error *err)
{
    for (int h = 0; h < HOLES; h++)
        if (strcmp(holes[h].name, name) == 0) {
            holes[h].put(d, page);
            return d->is_broken ? attn_fail(err, ATTN_ENOMEM,
                                            "a picture cannot be read again, or page.html "
                                            "lacks its caption")
                                : ATTN_OK;
        }
    return attn_fail(err, ATTN_EINVAL, "page.html: there is no hole {{%s}}", name);
}

/* The template's text, with what belongs into its holes. */
static enum attn_status fill_template(FILE *file, const struct attn_page *page, char *text,
                                      struct attn_error *err)
{
    struct attn_document d = {.out = file, .is_html = 1};
    enum attn_status status = ATTN_OK;
    int is_shown = 1;
    while (status == ATTN_OK && *text != '\0') {
        char *open = strstr(text, "{{"), *close = open != NULL ? strstr(open, "}}") : NULL;
        if (close != NULL)
            *open = *close = '\0';
        if (is_shown)
            fputs(text, file);
        if (close == NULL)
            break;
        const char *name = open + 2;
        if (*name == '?')
            is_shown = holds(page, name + 1);
        else if (*name == '=') /* a caption: it stands under its figure */
            is_shown = 0;
        else if (*name == '/')
            is_shown = 1;
        else if (is_shown)
            status = fill_hole(&d, page, name, err);
        if (is_shown < 0)
            status = attn_fail(err, ATTN_EINVAL, "page.html: there is no condition %s", name + 1);
        text = close + 2;
    }
    return status;
}

enum attn_status attn_page_write(const struct attn_page *page, struct attn_error *err)
{
    enum { TEMPLATE_BYTES = 1 << 20 };
    char path[PATH_MAX], *text;
    (void)snprintf(path, sizeof path, "%s/page.html", page->scripts);
    attn_read_text(path, ATTN_READ_GIVEN, TEMPLATE_BYTES, &text, err);
    if (text == NULL)
        return ATTN_EINVAL;
    (void)snprintf(path, sizeof path, "%s/index.html", page->out);
    char *whole;
    size_t size;
    FILE *out = attn_cli_memory(&whole, &size);
    struct attn_page filled = *page;
    filled.page_html = whole = attn_cli_text("%s", text);
    enum attn_status status = fill_template(out, &filled, text, err);
    free(whole);
    free(text);
    fclose(out);
    if (status == ATTN_OK)
        status = attn_cli_save(path, attn_cli_need(whole), err);
    free(whole);
    return status;
}
