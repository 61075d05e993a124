/* One figure: curves, points, ranges, and the texts of its files. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/report/figures.h"
#include "experiments/table/row_table.h"
#include "optimized/registry.h"
#include "tests/harness/base/fileio.h"

const char *const attn_figure_preset[] = {"page", "column", "slides"};

/* ---- looks ----------------------------------------------------------------------------------- */

/* Okabe and Ito's palette without its yellow, which white paper swallows, and some of Tol's: one
 * colour for each place in the registry.  Black and the last ones are for what is not in it. */
static const char *const ours[] = {"#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00",
                                   "#56B4E9", "#332288", "#882255", "#999933", "#117733",
                                   "#AA4499", "#661100", "#44AA99", "#6699CC", "#CC6677",
                                   "#004488", "#7A5C00", "#225555"};
static const char *const others[] = {"#000000", "#7F3B08", "#6A6A6A", "#B00000", "#005F00"};
enum { OURS = sizeof ours / sizeof ours[0], OTHERS = sizeof others / sizeof others[0] };

/* The first of six marks, from this one on, that no other curve of the figure has: where curves
 * coincide, and in print without colours, marks alone tell them apart. */
static int free_mark(const struct attn_figure *figure, int first)
{
    enum { MARKS = 6 };
    for (int n = 0; n < MARKS; n++) {
        int mark = 5 + 2 * ((first + n) % MARKS), taken = 0;
        for (int c = 0; c < figure->n_curves; c++)
            taken |= figure->curve[c].mark == mark;
        if (!taken)
            return mark;
    }
    return 5 + 2 * (first % MARKS);
}

/* The same colour, darker and lighter in turn: shade 0 is itself.  A dash would say "not
 * measured". */
static void write_shade(char *text, size_t size, const char *colour, int shade)
{
    static const double part[] = {1, 0.5, 0.5, 0.75, 0.75}; /* of the colour; the rest is black, */
    enum { SHADES = sizeof part / sizeof part[0] };         /* or white                          */
    unsigned long rgb = strtoul(colour + 1, NULL, 16), shaded = 0;
    int k = shade % SHADES;
    int is_dark = (rgb >> 16 & 255) + (rgb >> 8 & 255) + (rgb & 255) < 330;
    double rest = k % 2 == is_dark ? 255 : 0;
    for (int bits = 16; bits >= 0; bits -= 8) {
        double level = (double)(rgb >> bits & 255) * part[k] + rest * (1 - part[k]);
        shaded |= (unsigned long)(level + 0.5) << bits;
    }
    (void)snprintf(text, size, "#%06lX", shaded);
}

/* Marks of gnuplot: 5, 7, ... 15 are filled, and 4, 6, ... 14 the same ones open; 1, 2, 3 are
 * plus, cross and star. */
static void choose_look(const struct attn_figure *figure, struct attn_figure_curve *curve)
{
    int variant = 0;
    for (int c = 0; c < figure->n_curves; c++)
        variant += figure->curve[c].impl == curve->impl;
    int place = curve->is_ours ? curve->impl : abs(curve->impl - attn_impl_count());
    write_shade(curve->colour, sizeof curve->colour,
                curve->is_ours ? ours[place % OURS] : others[place % OTHERS], variant);
    curve->mark = curve->is_ours ? free_mark(figure, place) : 1 + (place + 2) % 3;
    curve->dash = 1;
}

/* Texts that gnuplot reads from the CSV and finds in $curves must be the same: clean, no double
 * quotes, and no commas, at which gnuplot 5.4 cuts a quoted field. */
static void flatten(char *text)
{
    attn_clean(text);
    for (; *text != '\0'; text++)
        if (*text == '"' || *text == ',')
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

int attn_figure_curve_of(struct attn_figure *figure, const char *key, int impl, int is_ours)
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
    const char *label = attn_group_label(figure->group, key);
    (void)snprintf(curve->label, sizeof curve->label, "%s", label != NULL ? label : key);
    curve->impl = impl;
    curve->width = 1.6;
    curve->is_ours = is_ours;
    choose_look(figure, curve);
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
    int curve = attn_figure_find(figure, name), look = figure->n_curves;
    if (curve < 0) { /* a colour is one name; what has none of its own is grey */
        curve = attn_figure_curve_of(figure, name, 0, 1);
        write_shade(figure->curve[curve].colour, sizeof figure->curve[curve].colour,
                    strcmp(name, "other") == 0 ? "#999999" : ours[look % OURS], look / OURS);
    }
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

/* ---- widths ----------------------------------------------------------------------- */

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
    static const double STEP = 1.4, MOST = 4.4;
    for (int a = figure->n_curves - 1; a >= 0; a--)
        for (int b = a + 1; b < figure->n_curves; b++)
            for (int k = 0; k < figure->n_panels * figure->n_about; k++)
                if (coincide(figure, k / figure->n_about, figure->about[k % figure->n_about], a, b))
                    figure->curve[a].width =
                        fmin(fmax(figure->curve[a].width, figure->curve[b].width + STEP), MOST);
}

/* How soon a curve is chosen: those of other programs, the first of each family, then the rest. */
static int turn_of(const struct attn_figure *figure, int c)
{
    const struct attn_figure_curve *curve = &figure->curve[c];
    if (!curve->is_ours)
        return 0;
    for (int b = 0; b < c; b++)
        if (figure->curve[b].is_ours && strcmp(attn_impl_at(figure->curve[b].impl)->family,
                                               attn_impl_at(curve->impl)->family) == 0)
            return 2;
    return 1;
}

/* Greys differ by one, as a colour is a curve's. */
void attn_figure_stand_out(struct attn_figure *figure)
{
    enum { MOST = 5, GREY = 0x98, TURNS = 3 };
    int chosen = 0, greys = 0;
    for (int turn = 0; turn < TURNS && figure->n_curves > MOST; turn++)
        for (int c = 0; c < figure->n_curves; c++) {
            struct attn_figure_curve *curve = &figure->curve[c];
            if (turn_of(figure, c) != turn || chosen++ < MOST)
                continue;
            int grey = GREY + greys++ % 64;
            (void)snprintf(curve->colour, sizeof curve->colour, "#%02X%02X%02X", grey, grey, grey);
            curve->width = 0.8;
        }
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

/* Inside '...' of gnuplot nothing is expanded: quotes are doubled. */
static void write_text(FILE *file, const char *name, const char *text)
{
    char clean[1024];
    fprintf(file, "%-8s = '", name);
    for (text = attn_cleaned(text, clean, sizeof clean); *text != '\0'; text++)
        fprintf(file, *text == '\'' ? "''" : "%c", *text);
    fputs("'\n", file);
}

/* A word of $curves: in double quotes, which gnuplot's word() takes off again. */
static void write_word(FILE *file, const char *text)
{
    char clean[1024];
    fputc('"', file);
    for (text = attn_cleaned(text, clean, sizeof clean); *text != '\0'; text++)
        fputc(*text == '"' ? '\'' : *text, file);
    fputs("\" ", file);
}

static void write_curve(FILE *file, const struct attn_figure_curve *curve)
{
    write_word(file, curve->key);
    write_word(file, curve->label);
    fprintf(file, "%s %d %d %.1f\n", curve->colour, curve->mark, curve->dash, curve->width);
}

static void write_panels(FILE *file, const struct attn_figure *figure)
{
    fputs("panels   = '", file);
    for (int p = 0; p < figure->n_panels; p++)
        fprintf(file, "%s%s", p > 0 ? " " : "", figure->panel[p]);
    fputs("'\n", file);
}

char *attn_figure_head(const struct attn_figure *figure)
{
    char *text;
    size_t size;
    FILE *file = attn_cli_memory(&text, &size);
    fprintf(file,
            "# Figure %s.  Edit the lines up to END, then run `gnuplot %s.gp` in this folder.\n"
            "# All figures share style.gp; the numbers are in %s.csv.\n",
            figure->name, figure->name, figure->name);
    write_text(file, "name", figure->name);
    write_text(file, "kind", figure->kind);
    write_text(file, "preset", figure->preset != NULL ? figure->preset : "page");
    write_text(file, "formats", ATTN_FIGURE_FORMATS);
    write_text(file, "title", figure->title);
    write_text(file, "subtitle", figure->subtitle);
    write_text(file, "remark", figure->remark);
    write_text(file, "finding", figure->finding);
    write_panels(file, figure);
    write_text(file, "across", figure->x_name);
    if (figure->x_label != NULL) {
        write_text(file, "x_label", figure->x_label);
        fprintf(file, "x_base   = %d\n", figure->x_base);
    }
    write_text(file, "x_range", figure->x_range != NULL ? figure->x_range : "[*:*]");
    write_text(file, "y_range", figure->y_range != NULL ? figure->y_range : "[*:*]");
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
