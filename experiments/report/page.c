#include "experiments/report/page.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "tests/harness/files/fileio.h"

static void put(FILE *file, const char *text)
{
    (void)fputs(text, file);
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
    put(d->out, page->plan != NULL ? "<pre>attnlab measure" : "<pre>");
    if (page->plan != NULL)
        put_flag(d->out, "plan", page->plan);
    for (int e = 0; page->plan != NULL && externals != NULL && e < externals->n; e++) {
        const struct attn_external_spec *one = &externals->one[e];
        int plugin = one->route == ATTN_ROUTE_PLUGIN;
        (void)snprintf(word, sizeof word, "%s=%s", one->name, one->source);
        put_flag(d->out, plugin ? "plugin" : "exec", word);
        if (!plugin)
            put_flag(d->out, "claims", one->claims_path);
    }
    if (page->plan != NULL) {
        put_flag(d->out, "out", page->records);
        put(d->out, "\n");
    }
    put(d->out, "attnlab report");
    put_flag(d->out, "from", page->records);
    put_flag(d->out, "out", page->out);
    put(d->out, "</pre>\n");
}

/* ---- figures ------------------------------------------------------------------------------- */

/* The lines of its CSV. */
static void put_numbers(struct attn_document *d, const struct attn_figure *figure)
{
    char *text = NULL;
    size_t size = 0;
    FILE *csv = attn_cli_memory(&text, &size);
    attn_figure_csv(csv, figure);
    fclose(csv);
    (void)fprintf(d->out, "<details><summary>The numbers, %s.csv: %lld lines</summary>\n<pre>",
                  figure->name, (long long)figure->n);
    for (char *line = text, *end; line != NULL && *line != '\0'; line = end + 1) {
        end = line + strcspn(line, "\n");
        *end = '\0';
        attn_html_text(d->out, line);
        put(d->out, "\n");
    }
    put(d->out, "</pre></details>\n");
    free(text);
}

/* What was not measured, below the figure: at most two lines of the page. */
static void put_figure(struct attn_document *d, const struct attn_page *page,
                       const struct attn_figure *figure)
{
    char path[PATH_MAX], label[1600], note[260], omitted[300];
    (void)fprintf(d->out, "<h3 id=\"%s\">", figure->name);
    attn_html_text(d->out, figure->title);
    put(d->out, "</h3>\n");
    attn_group_not_run(figure->group, note, sizeof note);
    if (figure->omitted[0] != '\0') {
        (void)snprintf(omitted, sizeof omitted, "Omitted: %s.", figure->omitted);
        attn_document_text(d, omitted);
    } else {
        (void)snprintf(path, sizeof path, "%s/figures/%s.svg", page->out, figure->name);
        (void)snprintf(label, sizeof label,
                       "%s. %s. %s The numbers are in the table below the figure.", figure->title,
                       figure->subtitle, figure->finding);
        put(d->out, "<figure><div class=plot>");
        if (attn_html_image(d->out, path, label) != 0)
            d->is_broken = 1;
        put(d->out, "</div>\n<figcaption>");
        if (figure->finding[0] != '\0')
            attn_document_put(d, ATTN_STRONG, "%s", figure->finding);
        attn_html_text(d->out, figure->caption);
        put(d->out, "</figcaption></figure>\n");
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

static void put_machine(struct attn_document *d, const struct attn_page *page)
{
    static const char *const head[] = {"fact", "value", NULL};
    const char *key;
    json_t *value;
    if (!json_is_object(page->machine)) {
        attn_document_text(d, "These records have no machine line.");
        return;
    }
    attn_document_table(d, head);
    json_object_foreach((json_t *)(uintptr_t)page->machine, key, value)
    {
        if (strcmp(key, "record") == 0 || strcmp(key, "schema") == 0)
            continue;
        attn_document_row(d);
        attn_document_words(d, key);
        json_cell(d, value);
    }
    attn_document_table_end(d);
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
    if (json_array_size(page->calibration) == 0) {
        attn_document_text(d, "These records have no calibration lines.");
        return;
    }
    attn_document_table(d, head);
    json_array_foreach(page->calibration, index, line)
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
    put(d->out, attn_html_style);
}

static void put_counts(struct attn_document *d, const struct attn_page *page)
{
    int64_t good = 0;
    char records[32], points[32], ok[32];
    for (int64_t s = 0; s < page->summary->n; s++)
        good += page->summary->row[s].status == ATTN_POINT_OK;
    attn_document_put(d, ATTN_WORDS, "%s records, %s points, of which %s are good.",
                      attn_count_text(page->n_points, records),
                      attn_count_text(page->summary->n, points), attn_count_text(good, ok));
}

static void put_records(struct attn_document *d, const struct attn_page *page)
{
    attn_document_put(d, ATTN_WORDS, "%s", page->records);
}

static void put_date(struct attn_document *d, const struct attn_page *page)
{
    const char *date = json_string_value(json_object_get(page->machine, "date"));
    if (date != NULL)
        attn_document_put(d, ATTN_WORDS, "Measured %s.", date);
}

static const struct {
    const char *name;
    void (*put)(struct attn_document *d, const struct attn_page *page);
} holes[] = {{"style", put_style},           {"counts", put_counts},
             {"records", put_records},       {"date", put_date},
             {"summary", attn_page_summary}, {"figures", put_figures},
             {"others", attn_page_others},   {"live", attn_page_live},
             {"shares", attn_page_shares},   {"external", attn_page_external},
             {"not-run", attn_page_not_run}, {"calibration", put_calibration},
             {"machine", put_machine},       {"commands", put_commands}};
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
    for (int h = 0; h < HOLES; h++)
        if (strcmp(holes[h].name, name) == 0) {
            holes[h].put(d, page);
            return d->is_broken ? attn_fail(err, ATTN_ENOMEM, "a picture cannot be read again")
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
            put(file, text);
        if (close == NULL)
            break;
        const char *name = open + 2;
        if (*name == '?')
            is_shown = holds(page, name + 1);
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
    struct attn_save save;
    char *whole = NULL;
    size_t size = 0;
    FILE *out = attn_cli_memory(&whole, &size);
    enum attn_status status = fill_template(out, page, text, err);
    free(text);
    fclose(out);
    if (whole == NULL && status == ATTN_OK)
        status = attn_fail(err, ATTN_ENOMEM, "no memory for the page");
    if (status == ATTN_OK)
        status = attn_save_open(path, &save, err);
    if (status == ATTN_OK) {
        fwrite(whole, 1, size, save.stream);
        status = attn_save_close(&save, ATTN_OK, err);
    }
    free(whole);
    return status;
}
