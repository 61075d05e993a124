/* See page.h: the template, and all of the page that is no table of page_tables.c. */
#include "experiments/report/page.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"

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
        for (int k = 0; page->keys != NULL && k < page->keys->n; k++)
            put_flag(d->out, page->keys->at[k].flag, page->keys->at[k].value);
        for (int e = 0; externals != NULL && e < externals->n; e++) {
            const struct attn_external_spec *one = &externals->one[e];
            if (one->source[0] == '\0' || one->kind == ATTN_NOT_EXTERNAL)
                continue; /* stored records name it: it was not given, and they do not say where */
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
        int has_svg = figure->formats == NULL || attn_cli_listed(figure->formats, " ", "svg");
        const char *of = has_svg ? "svg" : figure->formats;
        (void)snprintf(path, sizeof path, "%s/figures/%s.svg", page->out, figure->name);
        (void)snprintf(label, sizeof label,
                       "%s. %s. %s The numbers are in the table below the figure.", figure->title,
                       figure->subtitle, figure->finding);
        fputs("<figure><div class=plot>", d->out);
        if (has_svg)
            d->lacks_picture |= attn_html_image(d->out, path, label) != 0;
        else /* the plan wants none that stands in a page */
            (void)fprintf(d->out, "<a href=\"figures/%s.%.3s\">figures/%s.%.3s</a>", figure->name,
                          of, figure->name, of);
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
} holes[] = {{"counts", put_counts},
             {"records", put_records},
             {"date", put_date},
             {"summary", attn_page_summaries},
             {"figures", put_figures},
             {"others", attn_page_others},
             {"live", attn_page_live},
             {"shares", attn_page_shares},
             {"external", attn_page_external},
             {"not-run", attn_page_not_run},
             {"calibration", put_calibration},
             {"machine", put_machine},
             {"commands", put_commands}};
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
    } known[] = {
        {"empty", page->summary->n == 0},        {"external", attn_page_has_external(page)},
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
    int h = 0;
    while (h < HOLES && strcmp(holes[h].name, name) != 0)
        h++;
    if (h == HOLES)
        return attn_fail(err, ATTN_ENOMEM, "page.html: there is no hole {{%s}}", name);
    holes[h].put(d, page);
    return d->lacks_picture ? attn_fail(err, ATTN_ENOMEM,
                                        "%s/figures: a picture cannot be read again", page->out)
                            : ATTN_OK;
}

/* The template's text, with what belongs into its holes. */
static enum attn_status fill_template(FILE *file, const char *text, const struct attn_page *page,
                                      struct attn_error *err)
{
    struct attn_document d;
    enum attn_status status = ATTN_OK;
    int is_shown = 1;
    attn_document_begin(&d, file, 1, "attnlab: what attention costs, measured");
    for (const char *open; status == ATTN_OK; text = strstr(open, "}}") + 2) {
        char hole[64];
        open = strstr(text, "{{");
        if (is_shown)
            fwrite(text, 1, open != NULL ? (size_t)(open - text) : strlen(text), file);
        if (open == NULL)
            break;
        if (sscanf(open, "{{%63[^}]}}", hole) != 1)
            return attn_fail(err, ATTN_ENOMEM, "page.html: no hole at %.20s", open);
        if (*hole == '?')
            is_shown = holds(page, hole + 1);
        else if (*hole == '/')
            is_shown = 1;
        else if (is_shown)
            status = fill_hole(&d, page, hole, err);
        if (is_shown < 0)
            return attn_fail(err, ATTN_ENOMEM, "page.html: there is no condition %s", hole + 1);
    }
    attn_document_end(&d);
    return status;
}

enum attn_status attn_page_write(const struct attn_page *page, struct attn_error *err)
{
    struct attn_error why;
    char path[PATH_MAX], *template, *whole;
    size_t size;
    if (attn_plots_read("page.html", &template, &why) != ATTN_OK)
        return attn_fail(err, ATTN_ENOMEM, "%s", why.text);
    FILE *out = attn_cli_memory(&whole, &size);
    enum attn_status status = fill_template(out, template, page, err);
    fclose(out);
    attn_cli_need(whole);
    (void)snprintf(path, sizeof path, "%s/index.html", page->out);
    if (status == ATTN_OK)
        status = attn_cli_save(path, whole, err);
    free(template);
    free(whole);
    return status;
}
