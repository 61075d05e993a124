#include "experiments/report/page.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/report/html.h"
#include "tests/harness/files/fileio.h"

static void put(FILE *file, const char *text)
{
    (void)fputs(text, file);
}

const json_t *attn_page_find(const json_t *tree, const char *key)
{
    const json_t *found = json_object_get(tree, key);
    const char *name;
    json_t *branch;
    if (found != NULL || !json_is_object(tree))
        return found;
    json_object_foreach((json_t *)(uintptr_t)tree, name, branch)
    {
        found = attn_page_find(branch, key);
        if (found != NULL)
            return found;
    }
    return NULL;
}

/* Any JSON value as text; nested ones as compact JSON. */
static void put_json(FILE *file, const json_t *value)
{
    if (json_is_string(value)) {
        attn_html_text(file, json_string_value(value));
    } else if (json_is_integer(value)) {
        attn_html_count(file, json_integer_value(value));
    } else if (json_is_real(value)) {
        (void)fprintf(file, "%.6g", json_real_value(value));
    } else if (value == NULL || json_is_null(value)) {
        put(file, "–");
    } else {
        char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
        attn_html_text(file, text != NULL ? text : "–");
        free(text);
    }
}

/* ---- head ---------------------------------------------------------------------------------- */

static void put_head(FILE *file, const struct attn_page *page)
{
    int64_t good = 0;
    for (int64_t s = 0; s < page->summary->n; s++)
        good += page->summary->row[s].status == ATTN_POINT_OK;
    put(file, "<h1>attnlab: what attention costs, measured</h1>\n<p>One attention problem is "
              "computed by several implementations, forward and backward, each in a fresh process "
              "whose result is checked element by element against a derived error bound. "
              "Every buffer is taken by name from a ledger, so peak memory is known three times: "
              "from a formula, from the ledger and from the operating system. Nothing here is "
              "extrapolated: what did not fit or did not finish is named, and a wrong result "
              "has no time.</p>\n<p class=soft>");
    attn_html_count(file, page->n_points);
    put(file, " records, ");
    attn_html_count(file, page->summary->n);
    put(file, " points, of which ");
    attn_html_count(file, good);
    put(file, " are good. Records: <code>");
    attn_html_text(file, page->records);
    put(file, "</code>; as a table: <code>records.csv</code>.");
    const json_t *date = attn_page_find(page->machine, "date");
    if (json_is_string(date)) {
        put(file, " Measured ");
        attn_html_text(file, json_string_value(date));
        put(file, ".");
    }
    put(file, "</p>\n");
}

/* ---- figures ------------------------------------------------------------------------------- */

/* A word for the shell, quoted if need be. */
static void put_shell(FILE *file, const char *word)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                               "_-./:=,+@%";
    if (word[0] != '\0' && word[strspn(word, safe)] == '\0') {
        attn_html_text(file, word);
        return;
    }
    put(file, "&#39;");
    for (; *word != '\0'; word++) {
        char one[2] = {*word, '\0'};
        if (*word == '\'')
            put(file, "&#39;\\&#39;&#39;");
        else
            attn_html_text(file, one);
    }
    put(file, "&#39;");
}

/* The flags of what is not ours. */
static void put_externals(FILE *file, const struct attn_external_specs *externals)
{
    char word[sizeof externals->one[0].name + sizeof externals->one[0].source + 2];
    for (int e = 0; externals != NULL && e < externals->n; e++) {
        const struct attn_external_spec *one = &externals->one[e];
        int plugin = one->route == ATTN_ROUTE_PLUGIN;
        (void)snprintf(word, sizeof word, "%s=%s", one->name, one->source);
        put(file, plugin ? " --plugin " : " --exec ");
        put_shell(file, word);
        if (plugin)
            continue;
        put(file, " --claims ");
        put_shell(file, one->claims_path);
    }
}

/* The commands that lead to a figure; without a name, to all of them. */
static void put_commands(FILE *file, const struct attn_page *page, const struct attn_figure *figure)
{
    put(file, "<pre>");
    if (page->plan != NULL) {
        put(file, "attnlab measure --plan ");
        put_shell(file, page->plan);
        put_externals(file, page->externals);
        put(file, " --out ");
        put_shell(file, page->records);
        put(file, "\n");
    }
    put(file, "attnlab report --from ");
    put_shell(file, page->records);
    put(file, " --out ");
    put_shell(file, page->out);
    if (figure != NULL) {
        put(file, "\n# this figure alone; PLOTS is the folder plots/ of the sources\ncd ");
        put_shell(file, page->out);
        (void)fprintf(file,
                      "/figures &amp;&amp; gnuplot -d %s.set -e \"terminal = &#39;svg&#39;\" "
                      "$PLOTS/style.gp $PLOTS/%s.gp",
                      figure->name, figure->script);
    }
    put(file, "</pre>\n");
}

/* What a listener hears instead of the picture. */
static void describe(const struct attn_figure *figure, char *text, size_t size)
{
    (void)snprintf(text, size, "%s. %.500s. %s The numbers are in the table below the figure.",
                   figure->title, figure->slice->problem, figure->finding);
}

static enum attn_status put_figure(FILE *file, const struct attn_page *page,
                                   const struct attn_figure *figure, struct attn_error *err)
{
    char path[PATH_MAX], label[ATTN_PLOT_TEXT + 512];
    (void)fprintf(file, "<h3 id=\"%s\">", figure->name);
    attn_html_text(file, figure->title);
    put(file, " <span class=soft>(");
    attn_html_text(file, figure->slice->group);
    put(file, ")</span></h3>\n");
    if (figure->omitted[0] != '\0') {
        put(file, "<p>Omitted: ");
        attn_html_text(file, figure->omitted);
        put(file, ".</p>\n");
        attn_page_table(file, figure);
        return ATTN_OK;
    }
    (void)snprintf(path, sizeof path, "%s/figures/%s.svg", page->out, figure->name);
    describe(figure, label, sizeof label);
    put(file, "<figure><div class=plot>");
    if (attn_html_svg(file, path, figure->name, label) != 0)
        return attn_fail(err, ATTN_EINVAL, "cannot read %s, or it is no SVG", path);
    put(file, "</div>\n<figcaption>");
    if (figure->finding[0] != '\0') {
        put(file, "<strong>");
        attn_html_text(file, figure->finding);
        put(file, "</strong>");
    }
    attn_html_text(file, figure->caption);
    put(file, "</figcaption></figure>\n");
    attn_page_table(file, figure);
    (void)fprintf(file,
                  "<details><summary>How it was made: <code>figures/%s</code> .svg .png .pdf "
                  ".dat .set</summary>",
                  figure->name);
    put_commands(file, page, figure);
    put(file, "</details>\n");
    return ATTN_OK;
}

/* Groups whose name begins with no known word: tables only. */
static void put_others(FILE *file, const struct attn_page *page)
{
    for (int s = 0; s < page->slices->n; s++) {
        const struct attn_slice *slice = &page->slices->slice[s];
        struct attn_figure memory = {.script = "memory", .slice = slice};
        struct attn_figure time = {.script = "time", .slice = slice};
        if (slice->kind != ATTN_SLICE_OTHER)
            continue;
        put(file, "<h3>Group ");
        attn_html_text(file, slice->group);
        put(file,
            "</h3>\n<p>Its name does not say what varies (length-…, ranks, density), so there "
            "is no figure; its memory and its times:</p>\n");
        attn_page_table(file, &memory);
        attn_page_table(file, &time);
    }
}

/* The kinds of figure that have no group at all. */
static void put_missing(FILE *file, const struct attn_page *page)
{
    static const struct {
        enum attn_slice_kind kind;
        const char *text;
    } kinds[] = {
        {ATTN_SLICE_LENGTH, "No group <code>length-…</code>: memory, time and error against L "
                            "are omitted."},
        {ATTN_SLICE_RANKS, "No group <code>ranks</code>: memory of a rank and bytes sent "
                           "against P are omitted."},
        {ATTN_SLICE_DENSITY, "No group <code>density</code>: memory against density is omitted."},
    };
    for (int k = 0; k < 3; k++) {
        int any = 0;
        for (int s = 0; s < page->slices->n; s++)
            any |= page->slices->slice[s].kind == kinds[k].kind;
        if (!any)
            (void)fprintf(file, "<p>%s</p>\n", kinds[k].text);
    }
}

/* ---- machine, calibration ------------------------------------------------------------------ */

static void put_machine(FILE *file, const struct attn_page *page)
{
    const char *key;
    json_t *value;
    put(file, "<h2 id=machine>Machine and build</h2>\n");
    if (!json_is_object(page->machine)) {
        put(file, "<p>These records have no machine line.</p>\n");
        return;
    }
    put(file, "<div class=scroll><table><tbody>\n");
    json_object_foreach((json_t *)(uintptr_t)page->machine, key, value)
    {
        if (strcmp(key, "record") == 0 || strcmp(key, "schema") == 0)
            continue;
        put(file, "<tr><th scope=row>");
        attn_html_text(file, key);
        put(file, "</th><td class=wide>");
        put_json(file, value);
        put(file, "</td></tr>\n");
    }
    put(file, "</tbody></table></div>\n");
}

static double number(const json_t *line, const char *key)
{
    const json_t *value = json_object_get(line, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

/* A calibration line in words; kinds that are not known are given as they are. */
static void put_calibration(FILE *file, const json_t *line)
{
    const char *kind = json_string_value(json_object_get(line, "kind"));
    const char *when = json_string_value(json_object_get(line, "when"));
    kind = kind != NULL ? kind : "?";
    if (strcmp(kind, "memory") == 0) {
        put(file, "wrote ");
        attn_html_bytes(file, (int64_t)number(line, "expected_bytes"));
        (void)fprintf(file, " in a fresh process; VmHWM grew by %+.2f %% of that more",
                      100 * number(line, "error"));
    } else if (strcmp(kind, "aa") == 0) {
        (void)fprintf(file,
                      "the same point under two names, in turns: medians differ by %+.2f %%, all "
                      "times lie within %.2f %% of the median",
                      100 * (number(line, "ratio") - 1), 100 * number(line, "spread"));
    } else if (strcmp(kind, "rate") == 0) {
        put(file, "to predict times: ");
        put_json(file, json_object_get(line, "spec"));
        put(file, ", ");
        put_json(file, json_object_get(line, "case"));
        put(file, ": first call ");
        attn_html_seconds(file, number(line, "first_s"));
        put(file, ", warm ");
        attn_html_seconds(file, number(line, "warm_s"));
        put(file, ", verified in ");
        attn_html_seconds(file, number(line, "verify_s"));
    } else if (strcmp(kind, "spin") == 0) {
        put(file, "10 million dependent additions, ");
        attn_html_text(file, when != NULL ? when : "?");
        put(file, " of the session: ");
        attn_html_seconds(file, number(line, "time_s"));
    } else {
        put_json(file, line);
    }
}

static void put_calibrations(FILE *file, const struct attn_page *page)
{
    size_t index;
    json_t *line;
    put(file, "<h2 id=calibration>Calibration and noise</h2>\n");
    if (json_array_size(page->calibration) == 0) {
        put(file, "<p>These records have no calibration lines.</p>\n");
        return;
    }
    put(file, "<p>Known quantities, measured by the means that measured everything above. "
              "Differences in time below the A/A noise mean nothing.</p>\n"
              "<div class=scroll><table><thead><tr><th scope=col class=text>session</th>"
              "<th scope=col class=text>kind</th><th scope=col class=text>result</th></tr></thead>"
              "<tbody>\n");
    json_array_foreach(page->calibration, index, line)
    {
        put(file, "<tr><td class=text>");
        put_json(file, json_object_get(line, "session"));
        put(file, "</td><th scope=row>");
        put_json(file, json_object_get(line, "kind"));
        put(file, "</th><td class=wide>");
        put_calibration(file, line);
        put(file, "</td></tr>\n");
    }
    put(file, "</tbody></table></div>\n");
}

/* ---- the page ------------------------------------------------------------------------------ */

static enum attn_status put_all(FILE *file, const struct attn_page *page, struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    attn_html_begin(file, "attnlab report");
    put_head(file, page);
    if (page->summary->n == 0)
        put(file, "<p><strong>There are no points in these records.</strong></p>\n");
    attn_page_summary(file, page);
    put(file, "<h2 id=figures>Figures</h2>\n");
    for (int f = 0; status == ATTN_OK && f < page->figures->n; f++)
        status = put_figure(file, page, &page->figures->figure[f], err);
    put_others(file, page);
    put_missing(file, page);
    attn_page_live(file, page);
    attn_page_guests(file, page);
    attn_page_not_run(file, page);
    put_calibrations(file, page);
    put_machine(file, page);
    put(file, "<h2 id=commands>Made by</h2>\n");
    put_commands(file, page, NULL);
    attn_html_end(file);
    return status;
}

enum attn_status attn_page_write(const struct attn_page *page, struct attn_error *err)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/index.html", page->out);
    struct attn_save save;
    if (attn_save_open(path, &save, err) != ATTN_OK)
        return ATTN_ENOMEM;
    return attn_save_close(&save, put_all(save.stream, page, err), err);
}
