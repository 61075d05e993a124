/* One figure: curves, points, ranges, and its files. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "experiments/report/figures.h"
#include "optimized/registry.h"
#include "tests/harness/files/fileio.h"
#include "tests/harness/process.h"

/* ---- looks ----------------------------------------------------------------------------------- */

/* Okabe and Ito's palette without its yellow, which white paper swallows, and some of Tol's: one
 * colour for each place in the registry.  Black and the last ones are for what is not in it. */
static const char *const ours[] = {"#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00",
                                   "#56B4E9", "#332288", "#882255", "#999933", "#117733",
                                   "#AA4499", "#661100", "#44AA99", "#6699CC", "#CC6677",
                                   "#004488", "#7A5C00", "#225555"};
static const char *const others[] = {"#000000", "#7F3B08", "#6A6A6A", "#B00000", "#005F00"};
enum { OURS = sizeof ours / sizeof ours[0], OTHERS = sizeof others / sizeof others[0] };

/* The first of six marks, from this one on, that no other implementation of the figure has, nor the
 * same one in another file: where curves coincide, and in print without colours, marks alone tell
 * them apart. */
static int free_mark(const struct attn_figure *figure, int impl, const char *origin, int first)
{
    enum { MARKS = 6 };
    for (int n = 0; n < MARKS; n++) {
        int mark = 5 + 2 * ((first + n) % MARKS), taken = 0;
        for (int c = 0; c < figure->n_curves; c++)
            taken |= figure->curve[c].mark == mark &&
                     (figure->curve[c].impl != impl || figure->curve[c].origin != origin);
        if (!taken)
            return mark;
    }
    return 5 + 2 * (first % MARKS);
}

/* Marks of gnuplot: 5, 7, ... 15 are filled, and 4, 6, ... 14 the same ones open; 1, 2, 3 are
 * plus, cross and star. */
static void choose_look(const struct attn_figure *figure, struct attn_figure_curve *curve)
{
    static const int dashes[] = {1, 4, 5, 2};
    int variant = 0;
    for (int c = 0; c < figure->n_curves; c++)
        variant += figure->curve[c].impl == curve->impl;
    int place = curve->is_ours ? curve->impl : abs(curve->impl - attn_impl_count());
    (void)snprintf(curve->colour, sizeof curve->colour, "%s",
                   curve->is_ours ? ours[place % OURS] : others[place % OTHERS]);
    curve->mark =
        curve->is_ours ? free_mark(figure, curve->impl, curve->origin, place) : 1 + (place + 2) % 3;
    curve->dash = dashes[variant % 4];
}

/* Is it a text of these characters alone? */
static int is_of(const char *text, const char *characters)
{
    return text != NULL && text[strspn(text, characters)] == '\0';
}

static int is_control(char c)
{
    return (unsigned char)c < 0x20 || c == 0x7f;
}

/* What gnuplot reads from the CSV and finds in $curves must be the same: no control codes, no
 * double quotes, and no commas, at which gnuplot 5.4 cuts a quoted field. */
static void flatten(char *text)
{
    for (; *text != '\0'; text++)
        if (is_control(*text))
            *text = ' ';
        else if (*text == '"' || *text == ',')
            *text = *text == '"' ? '\'' : ';';
}

int attn_figure_find(const struct attn_figure *figure, const char *key)
{
    char flat[sizeof figure->curve[0].key];
    (void)snprintf(flat, sizeof flat, "%s", key);
    flatten(flat);
    for (int c = 0; c < figure->n_curves; c++)
        if (strcmp(figure->curve[c].key, flat) == 0)
            return c;
    return -1;
}

int attn_figure_curve_of(struct attn_figure *figure, const char *key, int impl, int is_ours,
                         const char *origin)
{
    int there = attn_figure_find(figure, key);
    if (there >= 0)
        return there;
    figure->curve = attn_cli_need(
        realloc(figure->curve, (size_t)(figure->n_curves + 1) * sizeof *figure->curve));
    struct attn_figure_curve *curve = &figure->curve[figure->n_curves];
    memset(curve, 0, sizeof *curve);
    (void)snprintf(curve->key, sizeof curve->key, "%s", key);
    flatten(curve->key);
    const char *label = attn_group_setting(figure->group, "label", key),
               *colour = attn_group_setting(figure->group, "colour", key);
    (void)snprintf(curve->label, sizeof curve->label, "%s", label != NULL ? label : key);
    curve->impl = impl;
    curve->origin = origin;
    curve->width = 1.6;
    curve->is_ours = is_ours;
    choose_look(figure, curve);
    if (is_of(colour, "#0123456789abcdefABCDEF"))
        (void)snprintf(curve->colour, sizeof curve->colour, "%s", colour);
    return figure->n_curves++;
}

/* ---- points ---------------------------------------------------------------------------------- */

/* The panel of a name, made if need be. */
static int panel_of(struct attn_figure *figure, const char *name)
{
    for (int p = 0; p < figure->n_panels; p++)
        if (strcmp(figure->panel[p], name) == 0)
            return p;
    (void)snprintf(figure->panel[figure->n_panels], sizeof figure->panel[0], "%s", name);
    return figure->n_panels++;
}

struct attn_figure_point *attn_figure_add(struct attn_figure *figure, const char *panel, int curve,
                                          double x)
{
    if ((figure->n & (figure->n - 1)) == 0) /* the capacity doubles at every power of two */
        figure->point = attn_cli_need(realloc(
            figure->point, (size_t)(figure->n == 0 ? 1 : 2 * figure->n) * sizeof *figure->point));
    struct attn_figure_point *point = &figure->point[figure->n++];
    *point = (struct attn_figure_point){
        .panel = panel_of(figure, panel), .curve = curve, .x = x, .status = "ok", .note = ""};
    for (int c = 0; c < ATTN_FIGURE_COLUMNS; c++)
        point->y[c] = (double)NAN;
    return point;
}

struct attn_figure_point *attn_figure_piece(struct attn_figure *figure, const char *panel,
                                            const char *name, int bar, double from, double to)
{
    int look = figure->n_curves % attn_impl_count();
    int curve = attn_figure_curve_of(figure, name, look, 1, NULL);
    struct attn_figure_point *point = attn_figure_add(figure, panel, curve, bar);
    point->y[0] = from;
    point->y[1] = to;
    return point;
}

void attn_figure_free(struct attn_figure *figure)
{
    free(figure->point);
    free(figure->curve);
    figure->point = NULL;
    figure->curve = NULL;
    figure->n = figure->n_curves = 0;
}

/* ---- ranges and widths ----------------------------------------------------------------------- */

/* A range that the plan wants for this figure, or for all of its group. */
static void take_range(const struct attn_figure *figure, const char *axis, char text[64])
{
    const json_t *settings = figure->group != NULL ? figure->group->settings : NULL;
    const json_t *of = json_object_get(settings, axis);
    const char *range = json_string_value(json_object_get(of, figure->kind));
    range = range != NULL ? range : json_string_value(json_object_get(of, ""));
    if (is_of(range, "0123456789.eE+-:*"))
        (void)snprintf(text, 64, "[%.60s]", range);
}

/* Do two curves of a panel look like one, at two places and half of those that they share? */
static int coincide(const struct attn_figure *figure, int panel, int column, int a, int b)
{
    static const double SAME = 0.04;
    int shared = 0, near = 0;
    for (int64_t s = 0; s < figure->n; s++)
        for (int64_t t = 0; t < figure->n; t++) {
            const struct attn_figure_point *p = &figure->point[s], *q = &figure->point[t];
            if (p->panel != panel || q->panel != panel || p->curve != a || q->curve != b ||
                p->x != q->x)
                continue;
            shared += !isnan(p->y[column]) && !isnan(q->y[column]);
            near += fabs(p->y[column] / q->y[column] - 1) < SAME;
        }
    return near >= 2 && 2 * near >= shared;
}

void attn_figure_finish(struct attn_figure *figure)
{
    static const double STEP = 2, MOST = 5.6;
    take_range(figure, "x-range", figure->x_range);
    take_range(figure, "y-range", figure->y_range);
    for (int a = figure->n_curves - 1; a >= 0; a--)
        for (int b = a + 1; b < figure->n_curves; b++)
            for (int k = 0; k < figure->n_panels * figure->n_about; k++)
                if (coincide(figure, k / figure->n_about, figure->about[k % figure->n_about], a, b))
                    figure->curve[a].width =
                        fmin(fmax(figure->curve[a].width, figure->curve[b].width + STEP), MOST);
}

/* ---- files ----------------------------------------------------------------------------------- */

void attn_csv_number(FILE *file, double x)
{
    isnan(x) ? fputc(',', file) : fprintf(file, ",%.10g", x);
}

char *attn_figure_csv(const struct attn_figure *figure)
{
    char *text, note[200];
    size_t size;
    FILE *file = attn_cli_memory(&text, &size);
    fprintf(file, "curve,panel,%s,status", figure->x_name);
    for (int c = 0; c < figure->n_columns; c++)
        fprintf(file, ",%s", figure->column[c]);
    fputs(",note\n", file);
    for (int64_t s = 0; s < figure->n; s++) {
        const struct attn_figure_point *p = &figure->point[s];
        attn_csv_text(file, figure->curve[p->curve].key);
        fprintf(file, ",%s,%.10g,%s", figure->panel[p->panel], p->x, p->status);
        for (int c = 0; c < figure->n_columns; c++)
            attn_csv_number(file, p->y[c]);
        (void)snprintf(note, sizeof note, "%s", p->note);
        flatten(note);
        fputc(',', file);
        attn_csv_text(file, note);
        fputc('\n', file);
    }
    fclose(file);
    return attn_cli_need(text);
}

/* Inside '...' of gnuplot nothing is expanded: quotes are doubled, control characters blanks. */
static void write_text(FILE *file, const char *name, const char *text)
{
    fprintf(file, "%-8s = '", name);
    for (; *text != '\0'; text++) {
        if (*text == '\'')
            fputc('\'', file);
        fputc(is_control(*text) ? ' ' : *text, file);
    }
    fputs("'\n", file);
}

/* A word of $curves: in double quotes, which gnuplot's word() takes off again. */
static void write_word(FILE *file, const char *text)
{
    fputc('"', file);
    for (; *text != '\0'; text++)
        fputc(is_control(*text) ? ' ' : *text == '"' ? '\'' : *text, file);
    fputs("\" ", file);
}

static void write_curve(FILE *file, const struct attn_figure_curve *curve)
{
    write_word(file, curve->key);
    write_word(file, curve->label);
    fprintf(file, "%s %d %d %.1f\n", curve->colour, curve->mark, curve->dash, curve->width);
}

static char *head_of(const struct attn_figure *figure)
{
    char *text;
    size_t size;
    FILE *file = attn_cli_memory(&text, &size);
    fprintf(file,
            "# Figure %s.  Edit the lines up to END, then run `gnuplot %s.gp` in this folder.\n"
            "# What all figures share is in style.gp; the numbers are in %s.csv.\n",
            figure->name, figure->name, figure->name);
    write_text(file, "name", figure->name);
    write_text(file, "kind", figure->kind);
    write_text(file, "formats", "svg png pdf");
    write_text(file, "title", figure->title);
    write_text(file, "subtitle", figure->subtitle);
    write_text(file, "remark", figure->remark);
    write_text(file, "finding", figure->finding);
    fputs("panels   = '", file);
    for (int p = 0; p < figure->n_panels; p++)
        fprintf(file, "%s%s", p > 0 ? " " : "", figure->panel[p]);
    fputs("'\n", file);
    write_text(file, "across", figure->x_name);
    if (figure->x_label != NULL) {
        write_text(file, "x_label", figure->x_label);
        fprintf(file, "x_base   = %d\n", figure->x_base);
    }
    write_text(file, "x_range", figure->x_range[0] != '\0' ? figure->x_range : "[*:*]");
    write_text(file, "y_range", figure->y_range[0] != '\0' ? figure->y_range : "[*:*]");
    if (figure->memory_bytes > 0)
        fprintf(file, "memory   = %lld # of the machine: a line where it is near\n",
                (long long)figure->memory_bytes);
    fputs(figure->variables, file);
    fputs(
        "# curve of the CSV, its name in the legend, colour, mark, dash, width; then, if you like, "
        "for each\n# panel the exponent in the legend (\"\": none) or - where it is not shown; a "
        "line less is a\n# curve less\n$curves << END\n",
        file);
    for (int c = 0; c < figure->n_curves; c++)
        write_curve(file, &figure->curve[c]);
    fputs("END\n\n", file);
    fclose(file);
    return attn_cli_need(text);
}

enum attn_status attn_plots_read(const char *name, char **text, struct attn_error *err)
{
    enum { MOST = 1 << 20 };
    static const char *const down[] = {"plots", "share/attnlab/plots"};
    char base[PATH_MAX] = ".", path[2 * PATH_MAX], *slash = NULL;
    for (int up = 0; up == 0 || slash != NULL; up++) {
        for (int d = 0; d < 2; d++) {
            (void)snprintf(path, sizeof path, "%s/%s/%s", base, down[d], name);
            if (access(path, R_OK) == 0)
                return attn_read_text(path, ATTN_READ_GIVEN, MOST, text, err);
        }
        if (up == 0) {
            ssize_t n = readlink("/proc/self/exe", base, sizeof base - 1);
            base[n > 0 ? n : 0] = '\0';
        }
        slash = strrchr(base, '/');
        if (slash != NULL)
            *slash = '\0';
    }
    *text = NULL;
    return attn_fail(err, ATTN_EINTERNAL, "the folder plots is not beside the program");
}

/* FOLDER/NAME.gp: these lines, then a script of plots.  An older one is replaced as a whole, or
 * stays. */
static enum attn_status write_script(const char *head, const char *script, const char *folder,
                                     const char *name, struct attn_error *err)
{
    char path[PATH_MAX], *text;
    (void)snprintf(path, sizeof path, "%s.gp", script);
    enum attn_status status = attn_plots_read(path, &text, err);
    if (status != ATTN_OK)
        return status;
    char *whole = attn_cli_text("%s%s", head, text);
    (void)snprintf(path, sizeof path, "%s/%s.gp", folder, name);
    status = attn_cli_save(path, whole, err);
    free(whole);
    free(text);
    return status;
}

enum attn_status attn_figure_write(const struct attn_figure *figure, const char *folder,
                                   struct attn_error *err)
{
    char path[PATH_MAX], *csv = attn_figure_csv(figure), *head = head_of(figure);
    (void)snprintf(path, sizeof path, "%s/%s.csv", folder, figure->name);
    enum attn_status status = attn_cli_save(path, csv, err);
    if (status == ATTN_OK)
        status = write_script(head, figure->script, folder, figure->name, err);
    free(csv);
    free(head);
    return status == ATTN_OK ? write_script("", "style", folder, "style", err) : status;
}

/* ---- pictures -------------------------------------------------------------------------------- */

enum { FORMATS = 3, WORDS = 4096 };
static const char *const format[FORMATS] = {"svg", "png", "pdf"};

/* Run `COMMAND FOLDER` by the shell; returns the exit status (127: there is no such program), -1
 * when it could not be started or was killed.  words receives the beginning of what it said. */
static int run(const char *command, const char *folder, char words[WORDS])
{
    struct attn_process end = {.out = words, .capacity = WORDS};
    words[0] = '\0';
    return attn_process_shell(command, folder, "", (double)INFINITY, &end) == 0 ? end.exit_status
                                                                                : -1;
}

int attn_draw_possible(void)
{
    char words[WORDS];
    int status = run("gnuplot --version 2>&1; exit $?", "", words);
    return status == 0 || status == 126 || status == -1; /* not started: drawing says why */
}

/* Of when a picture is; 0 where there is none. */
static struct timespec time_of(const char *folder, const char *name, const char *of)
{
    char path[PATH_MAX];
    struct stat facts;
    (void)snprintf(path, sizeof path, "%s/%s.%s", folder, name, of);
    if (stat(path, &facts) != 0 || facts.st_size == 0)
        return (struct timespec){0, 0};
    return facts.st_mtim;
}

/* Have gnuplot make NAME.svg, of 3 formats also .png and .pdf, of FOLDER/NAME.gp; a NAME is
 * letters, digits, '_', '-' and '.'.  Old pictures stay where gnuplot cannot be started; where it
 * was, each must be newer.  -d: the user's own ~/.gnuplot stays out of it. */
static enum attn_status draw_script(const char *folder, const char *name, int n_formats,
                                    struct attn_error *err)
{
    char *command, words[WORDS];
    struct timespec before[FORMATS];
    for (int f = 0; f < n_formats; f++)
        before[f] = time_of(folder, name, format[f]);
    command = attn_cli_text("f() { cd \"$1\" && exec gnuplot -d %s.gp 2>&1; }; f", name);
    int status = run(command, folder, words);
    free(command);
    attn_clean(words);
    if (status == 127)
        return attn_fail(err, ATTN_ENOMEM, "gnuplot is not installed");
    if (status == 126 || status == -1)
        return attn_fail(err, ATTN_ENOMEM, "gnuplot cannot be started for figure %s", name);
    if (status != 0)
        return attn_fail(err, ATTN_EINTERNAL, "gnuplot failed on figure %s: %.300s", name, words);
    for (int f = 0; f < n_formats; f++) {
        struct timespec is = time_of(folder, name, format[f]);
        if (is.tv_sec == before[f].tv_sec && is.tv_nsec == before[f].tv_nsec)
            return attn_fail(err, ATTN_EINTERNAL, "gnuplot did not write %s.%s: %.300s", name,
                             format[f], words);
    }
    return ATTN_OK;
}

enum attn_status attn_draw(const struct attn_figure *figure, const char *folder,
                           struct attn_error *err)
{
    enum attn_status status = attn_figure_write(figure, folder, err);
    return status == ATTN_OK ? draw_script(folder, figure->name, FORMATS, err) : status;
}

/* ---- the picture of a mask ------------------------------------------------------------------- */

void attn_picture_row(const struct attn_mask *mask, int64_t i, char *row)
{
    int64_t n_key = attn_mask_shape(mask)->n_key, lo, hi;
    memset(row, '.', (size_t)n_key);
    row[n_key] = '\0';
    for (int64_t from = 0; attn_mask_next(mask, 0, 0, i, from, &lo, &hi); from = hi)
        memset(row + lo, '#', (size_t)(hi - lo));
}

/* Runs that touch are one; gnuplot wants a line, so query 0 has an empty run. */
static void write_runs(FILE *file, const struct attn_mask *mask)
{
    const struct attn_mask_shape *s = attn_mask_shape(mask);
    fputs("$runs << END\n0 0 0\n", file);
    for (int64_t i = 0; i < s->n_query; i++) {
        int64_t begin = 0, end = 0, lo, hi;
        while (attn_mask_next(mask, 0, 0, i, end, &lo, &hi)) {
            if (lo > end && end > begin)
                fprintf(file, "%lld %lld %lld\n", (long long)i, (long long)begin, (long long)end);
            begin = lo > end ? lo : begin;
            end = hi;
        }
        if (end > begin)
            fprintf(file, "%lld %lld %lld\n", (long long)i, (long long)begin, (long long)end);
    }
    fputs("END\n", file);
}

/* What the script draws; NAME without its folder.  A mask's text has no quotes. */
static void write_mask(FILE *file, const struct attn_mask *mask, const char *name)
{
    const struct attn_mask_shape *s = attn_mask_shape(mask);
    fprintf(file, "# Run `gnuplot %s.gp` in this folder.\nname = '%s'\ntitle = '%s'\n", name, name,
            attn_mask_text(mask));
    fprintf(file, "n_query = %lld\nn_key = %lld\n", (long long)s->n_query, (long long)s->n_key);
    write_runs(file, mask);
}

enum attn_status attn_picture_draw(const struct attn_mask *mask, const char *path,
                                   struct attn_error *err)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    char folder[PATH_MAX], name[PATH_MAX], *head;
    size_t stem = strlen(path) >= 4 ? strlen(path) - 4 : 0, size;
    if (stem == 0 || stem >= sizeof folder - 8 || strcmp(path + stem, ".svg") != 0)
        return attn_fail(err, ATTN_EINVAL, "'%.200s': a name that ends in .svg would work", path);
    (void)snprintf(folder, sizeof folder, "%.*s", (int)stem, path);
    char *slash = strrchr(folder, '/');
    (void)snprintf(name, sizeof name, "%s", slash == NULL ? folder : slash + 1);
    if (name[0] == '\0' || !is_of(name, letters))
        return attn_fail(err, ATTN_EINVAL, "'%.200s': letters, digits, '_', '-' and '.' would work",
                         name);
    if (slash == NULL)
        (void)snprintf(folder, sizeof folder, ".");
    else
        slash[slash == folder] = '\0';
    FILE *file = attn_cli_memory(&head, &size);
    write_mask(file, mask, name);
    fclose(file);
    enum attn_status status = write_script(attn_cli_need(head), "mask", folder, name, err);
    if (status == ATTN_OK)
        status = draw_script(folder, name, 1, err);
    free(head);
    return status;
}
