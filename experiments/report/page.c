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
    (void)fprintf(file, " --%s %s", flag, word);
}

static void put_measure(FILE *file, const struct attn_page *page)
{
    const struct attn_subjects *externals = page->externals;
    char word[2 * PATH_MAX];
    fputs("attnlab measure", file);
    if (page->plan != NULL)
        put_flag(file, "plan", page->plan);
    for (int k = 0; page->keys != NULL && k < page->keys->n; k++)
        if (strcmp(page->keys->at[k].flag, "spec") != 0)
            put_flag(file, page->keys->at[k].flag, page->keys->at[k].value);
        else
            fprintf(file, " %s",
                    (attn_cli_quote(page->keys->at[k].value, word, sizeof word), word));
    for (int e = 0; externals != NULL && e < externals->n; e++) {
        const struct attn_subject *one = &externals->one[e];
        if (one->route == NULL)
            continue; /* stored records name it: it was not given, and they do not say where */
        char *source = attn_cli_text("%s=%s", one->name, one->source);
        put_flag(file, one->route->flag, source);
        free(source);
        if (one->claims_path != NULL)
            put_flag(file, "claims", one->claims_path);
    }
    put_flag(file, "out", page->from);
    fputs("\n", file);
}

static void put_commands(struct attn_document *d, const struct attn_page *page)
{
    char *lines;
    size_t size;
    FILE *file = attn_cli_memory(&lines, &size);
    if (page->plan != NULL || (page->keys != NULL && page->keys->n > 0))
        put_measure(file, page);
    fputs("attnlab report", file);
    put_flag(file, "from", page->from);
    put_flag(file, "out", page->out);
    fclose(file);
    attn_document_lines(d, attn_cli_need(lines));
    free(lines);
}

/* ---- figures ------------------------------------------------------------------------------- */

/* Its CSV. */
static void put_numbers(struct attn_document *d, const struct attn_figure *figure)
{
    char *text = attn_figure_csv(figure);
    attn_document_fold(d, 0, "The numbers, %s.csv: %lld lines", figure->name, (long long)figure->n);
    attn_document_lines(d, text);
    attn_document_unfold(d);
    free(text);
}

/* The picture, and the label for those who do not see it. */
static void put_picture(struct attn_document *d, const struct attn_figure *figure)
{
    fputs("![", d->out);
    attn_document_put(d, "%s. %s. %s The numbers are in the table below the figure.", figure->title,
                      figure->subtitle, figure->finding);
    (void)fprintf(d->out, "](figures/%s.svg)\n\n", figure->name);
    if (figure->finding[0] != '\0') {
        attn_document_put(d, "**%s.** ", figure->finding);
    }
    fputs(figure->caption, d->out);
    attn_document_close(d);
}

/* A figure, and below it the points that were not measured: at most two lines of the page. */
static void put_figure(struct attn_document *d, const struct attn_figure *figure)
{
    char note[260] = "";
    attn_document_heading(d, 3, figure->title);
    if (figure->group != NULL)
        attn_group_not_run(figure->group, note, sizeof note);
    if (figure->omitted[0] != '\0')
        attn_document_text(d, "Omitted: %s.", figure->omitted);
    else
        put_picture(d, figure);
    attn_document_text(d, "%s", note);
    put_numbers(d, figure);
}

/* The one that the page opens with: the first of memory; NULL: none. */
static const struct attn_figure *first_figure(const struct attn_page *page)
{
    for (int f = 0; f < page->figures->n; f++)
        if (strcmp(page->figures->figure[f].kind, "memory") == 0 &&
            page->figures->figure[f].omitted[0] == '\0')
            return &page->figures->figure[f];
    return NULL;
}

static void put_first_figure(struct attn_document *d, const struct attn_page *page)
{
    if (first_figure(page) != NULL)
        put_figure(d, first_figure(page));
}

static void put_figures(struct attn_document *d, const struct attn_page *page)
{
    for (int f = 0; f < page->figures->n; f++)
        if (&page->figures->figure[f] != first_figure(page))
            put_figure(d, &page->figures->figure[f]);
}

/* ---- machine, calibration ------------------------------------------------------------------ */

static void put_machine(struct attn_document *d, const struct attn_page *page)
{
    static const struct attn_column column[] = {
        {"fact", "fact", ATTN_UNIT_WORDS}, {"value", "value", ATTN_UNIT_WORDS}, {.key = NULL}};
    json_t *rows = json_array(), *value;
    const char *key;
    json_object_foreach(page->records->machine, key, value)
    {
        if (strcmp(key, "record") != 0 && strcmp(key, "schema") != 0)
            json_array_append_new(rows, json_pack("{s:s,s:O}", "fact", key, "value", value));
    }
    if (json_array_size(rows) == 0)
        attn_document_text(d, "These records have no machine line.");
    else
        attn_document_table(d, column, json_incref(rows));
    json_decref(rows);
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
static json_t *calibration_of(const json_t *line)
{
    const char *kind = word(line, "kind");
    char a[32];
    if (strcmp(kind, "memory") == 0)
        return json_sprintf("wrote %s in a fresh process; VmHWM grew by %+.2f %% of that more",
                            attn_cli_bytes((int64_t)number(line, "expected_bytes"), a),
                            100 * number(line, "error"));
    if (strcmp(kind, "aa") == 0)
        return json_sprintf("the same point under two names, in turns: medians differ by %+.2f %%, "
                            "all times lie within %.2f %% of the median",
                            100 * (number(line, "ratio") - 1), 100 * number(line, "spread"));
    return json_deep_copy(line);
}

static void put_calibration(struct attn_document *d, const struct attn_page *page)
{
    static const struct attn_column column[] = {{"session", "session", ATTN_UNIT_WORDS},
                                                {"kind", "kind", ATTN_UNIT_WORDS},
                                                {"result", "result", ATTN_UNIT_WORDS},
                                                {.key = NULL}};
    size_t index;
    json_t *line, *rows = json_array();
    json_array_foreach(page->records->calibration, index, line) json_array_append_new(
        rows, json_pack("{s:s,s:s,s:o}", "session", word(line, "session"), "kind",
                        word(line, "kind"), "result", calibration_of(line)));
    if (json_array_size(rows) == 0)
        attn_document_text(d, "These records have no calibration lines.");
    else
        attn_document_table(d, column, json_incref(rows));
    json_decref(rows);
}

/* ---- holes --------------------------------------------------------------------------------- */

static void put_counts(struct attn_document *d, const struct attn_page *page)
{
    int64_t good = 0, priced = 0;
    char records[32], points[32], ok[32], only[32], rest[32];
    for (int64_t s = 0; s < page->summary->n; s++) {
        good += page->summary->row[s].status == ATTN_POINT_OK;
        priced += page->summary->row[s].status == ATTN_POINT_PRICED;
    }
    attn_document_put(
        d, "%s records of %s points: %s measured and right, %s only priced, %s neither.",
        attn_cli_grouped(page->records->n, records), attn_cli_grouped(page->summary->n, points),
        attn_cli_grouped(good, ok), attn_cli_grouped(priced, only),
        attn_cli_grouped(page->summary->n - good - priced, rest));
}

static void put_records(struct attn_document *d, const struct attn_page *page)
{
    attn_document_put(d, "`%s`", page->from);
}

static void put_date(struct attn_document *d, const struct attn_page *page)
{
    const char *date = json_string_value(json_object_get(page->records->machine, "date"));
    if (date != NULL)
        attn_document_put(d, "Measured %s.", date);
}

static const struct attn_page_hole holes[] = {{"counts", put_counts},
                                              {"records", put_records},
                                              {"date", put_date},
                                              {"first-figure", put_first_figure},
                                              {"figures", put_figures},
                                              {"calibration", put_calibration},
                                              {"machine", put_machine},
                                              {"commands", put_commands},
                                              {.name = NULL}};

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
    const struct attn_page_hole *const list[] = {holes, attn_page_openings, attn_page_tables};
    for (int l = 0; l < 3; l++)
        for (const struct attn_page_hole *hole = list[l]; hole->name != NULL; hole++)
            if (strcmp(hole->name, name) == 0) {
                hole->put(d, page);
                return ATTN_OK;
            }
    return attn_fail(err, ATTN_ENOMEM, "report.md: there is no hole {{%s}}", name);
}

static const char title[] = "attnlab: the cost of attention, measured";

/* The template's text, with what belongs into its holes. */
static enum attn_status fill_template(FILE *file, const char *text, const struct attn_page *page,
                                      struct attn_error *err)
{
    struct attn_document d;
    enum attn_status status = ATTN_OK;
    int is_shown = 1;
    attn_document_begin(&d, file, title);
    for (const char *open; status == ATTN_OK; text = strstr(open, "}}") + 2) {
        char hole[64];
        open = strstr(text, "{{");
        if (is_shown)
            fwrite(text, 1, open != NULL ? (size_t)(open - text) : strlen(text), file);
        if (open == NULL)
            break;
        if (sscanf(open, "{{%63[^}]}}", hole) != 1)
            return attn_fail(err, ATTN_ENOMEM, "report.md: no hole at %.20s", open);
        if (*hole == '?')
            is_shown = holds(page, hole + 1);
        else if (*hole == '/')
            is_shown = 1;
        else if (is_shown)
            status = fill_hole(&d, page, hole, err);
        if (is_shown < 0)
            return attn_fail(err, ATTN_ENOMEM, "report.md: there is no condition %s", hole + 1);
    }
    return status;
}

enum attn_status attn_page_write(const struct attn_page *page, char **path, struct attn_error *err)
{
    struct attn_error why;
    char *template, *whole, *wanted = attn_cli_text("%s/index.html", page->out);
    size_t size;
    *path = attn_page_path(wanted);
    free(wanted);
    if (attn_plots_read("report.md", &template, &why) != ATTN_OK)
        return attn_fail(err, ATTN_ENOMEM, "%s", why.text);
    FILE *out = attn_cli_memory(&whole, &size);
    enum attn_status status = fill_template(out, template, page, err);
    fclose(out);
    attn_cli_need(whole);
    if (status == ATTN_OK)
        status = attn_page_save(*path, title, whole, err);
    free(template);
    free(whole);
    return status;
}
