/* NAME.set: where everything of a figure stands, worked out in pixels from the bottom up, so that
 * legends of any length, notes and labels never lie on each other.  gnuplot's own key is not
 * used: it cannot wrap, and it covers data. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/report/plot.h"
#include "experiments/report/plot_ticks.h"

enum {
    WIDTH = 960, /* of the picture; type is 13 px, small type 12 px */
    LEFT = 104,  /* for tick texts and the label of y               */
    RIGHT = 24,
    GAP = 26,    /* between panels of one row                       */
    LINE = 18,   /* from one line of text to the next               */
    SLOPE = 96,  /* for the slope at the end of a curve             */
    LETTER = 7,  /* of small type, on the average                   */
    SAMPLE = 44, /* of the legend: its piece of line                */
    LABEL_SEPARATION = 16
};

struct layout {
    int columns, rows;
    int height, panel_height, panel_width;
    int key_columns, key_rows, key_width;
    int key_top, extra_at, note_at;
    int panel_bottom[ATTN_PLOT_PANELS]; /* by row */
    int title_at, subtitle_at;
    int has_slopes;
    struct attn_range x, y; /* of the data, then with room around */
    double x_end;           /* of the axis, beyond the data for the slopes */
};

/* ---- ranges -------------------------------------------------------------------------------- */

static void widen(struct attn_range *r, double value)
{
    if (!(value > 0))
        return;
    r->low = r->low > 0 && r->low < value ? r->low : value;
    r->high = r->high > value ? r->high : value;
}

static double base_of(enum attn_axis axis)
{
    return axis == ATTN_AXIS_BYTES ? 2 : 10;
}

/* Room above and below; at least two ticks inside; above a line, room for its word. */
static void give_room(const struct attn_plot *plot, struct attn_range *r)
{
    double base = base_of(plot->y_axis), room = fmax(1.3, pow(r->high / r->low, 0.05));
    if (plot->y_axis == ATTN_AXIS_BYTES) {
        r->low = fmin(r->low, pow(base, floor(log(r->low * r->high) / (2 * log(base)))));
        r->high = fmax(r->high, 2 * r->low);
    }
    r->low /= room;
    r->high *= room;
    if (plot->line > 0)
        r->high = fmax(r->high, plot->line * pow(r->high / r->low, 0.13));
}

static struct attn_range find_range(const struct attn_plot *plot, int axis_y)
{
    struct attn_range r = {0, 0};
    for (int64_t s = 0; s < plot->n; s++) {
        const struct attn_plot_point *p = &plot->point[s];
        if (!axis_y)
            widen(&r, p->x);
        for (int c = 0; axis_y && c < plot->n_columns; c++)
            widen(&r, p->y[c]);
    }
    if (axis_y)
        widen(&r, plot->line);
    if (!(r.low > 0))
        r.low = r.high = 1;
    if (axis_y) {
        give_room(plot, &r);
    } else {
        r.low /= 1.15;
        r.high *= 1.15;
    }
    return r;
}

/* ---- layout -------------------------------------------------------------------------------- */

/* Letters of UTF-8, as good as columns here. */
static int letters(const char *text)
{
    int n = 0;
    for (; *text != '\0'; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

/* Bytes of the next line of text: up to a newline, or to the last blank within `most` letters. */
static size_t line_size(const char *text, int most)
{
    size_t size = 0, blank = 0;
    for (int n = 0; text[size] != '\0' && text[size] != '\n' && n <= most; size++) {
        n += ((unsigned char)text[size] & 0xc0) != 0x80;
        if (text[size] == ' ')
            blank = size;
    }
    return text[size] == '\0' || text[size] == '\n' || blank == 0 ? size : blank;
}

static const char *next_line(const char *text, size_t size)
{
    text += size;
    return *text == ' ' || *text == '\n' ? text + 1 : text;
}

enum { LINE_LETTERS = (WIDTH - 40) / LETTER, NOTE_LINES = 6 };

static int count_lines(const char *text)
{
    int n = 0;
    while (*text != '\0') {
        text = next_line(text, line_size(text, LINE_LETTERS));
        n++;
    }
    return n;
}

/* array NAME of the lines; the last one says that there is more when there is. */
static void write_lines(FILE *file, const char *name, const char *text, int most)
{
    int n = count_lines(text);
    int kept = n < most ? n : most;
    (void)fprintf(file, "n_%s = %d\narray %s[%d]\n", name, kept, name, kept > 0 ? kept : 1);
    for (int l = 1; l <= kept; l++) {
        char line[ATTN_PLOT_TEXT];
        size_t size = line_size(text, LINE_LETTERS);
        (void)snprintf(line, sizeof line, "%.*s%s", (int)size, text,
                       l == kept && n > most ? " ... (more in the table)" : "");
        (void)fprintf(file, "%s[%d] = ", name, l);
        attn_plot_quote(file, line);
        (void)fputc('\n', file);
        text = next_line(text, size);
    }
}

static int at_most(int n, int most)
{
    return n < most ? n : most;
}

static void lay_out_key(const struct attn_plot *plot, struct layout *l)
{
    int widest = 1;
    for (int s = 0; s < plot->n_series; s++) {
        int n = letters(plot->series[s].label);
        widest = n > widest ? n : widest;
    }
    l->key_width = SAMPLE + 8 + widest * LETTER + 24;
    int most = (WIDTH - 40) / l->key_width;
    l->key_columns = most < 1 ? 1 : at_most(plot->n_series > 0 ? plot->n_series : 1, most);
    l->key_rows = (plot->n_series + l->key_columns - 1) / l->key_columns;
}

static void lay_out(const struct attn_plot *plot, struct layout *l)
{
    memset(l, 0, sizeof *l);
    l->columns = plot->n_panels <= 3 ? plot->n_panels : plot->n_panels == 4 ? 2 : 3;
    l->columns = l->columns > 0 ? l->columns : 1;
    l->rows = (plot->n_panels + l->columns - 1) / l->columns;
    l->panel_height = l->rows <= 1 ? 340 : 210;
    l->panel_width = (WIDTH - LEFT - RIGHT - (l->columns - 1) * GAP) / l->columns;
    lay_out_key(plot, l);

    int y = 10;
    y += LINE * at_most(count_lines(plot->note), NOTE_LINES);
    l->note_at = y - LINE / 2;
    y += LINE * at_most(count_lines(plot->key_extra), NOTE_LINES) + 6;
    l->extra_at = y - LINE / 2;
    y += LINE * l->key_rows + 6;
    l->key_top = y - LINE / 2;
    for (int r = l->rows - 1; r >= 0; r--) {
        y += 58; /* tick texts and the label of x */
        l->panel_bottom[r] = y;
        y += l->panel_height + 26; /* the panel's title */
    }
    l->subtitle_at = y + LINE * at_most(count_lines(plot->subtitle), NOTE_LINES) - LINE / 2 + 4;
    l->title_at = l->subtitle_at + LINE + 4;
    l->height = l->title_at + LINE;

    l->x = find_range(plot, 0);
    l->y = find_range(plot, 1);
    for (int p = 0; p < plot->n_panels; p++)
        for (int s = 0; s < plot->n_series; s++)
            l->has_slopes |= plot->slope[p][s].n > 0;
    double share = l->has_slopes ? (double)SLOPE / (l->panel_width - SLOPE) : 0;
    l->x_end = l->x.high * pow(l->x.high / l->x.low, share);
}

/* ---- slopes at the ends of curves ------------------------------------------------------------ */

struct slope_label {
    int series;
    double want, at; /* pixels above the bottom of the panel */
};

static int compare_labels(const void *a, const void *b)
{
    const struct slope_label *p = a, *q = b;
    int order = (p->want > q->want) - (p->want < q->want);
    return order != 0 ? order : p->series - q->series;
}

/* Move labels apart: neighbours that are too near push each other away by halves until all have
 * room, then what was pushed over an edge of the panel comes back. */
static void spread_labels(struct slope_label *label, int n, int height)
{
    enum { TURNS = 500 };
    qsort(label, (size_t)n, sizeof *label, compare_labels);
    for (int s = 0; s < n; s++)
        label[s].at = label[s].want;
    for (int turn = 0; turn < TURNS; turn++) {
        for (int s = 1; s < n; s++) {
            double lack = LABEL_SEPARATION - (label[s].at - label[s - 1].at);
            label[s].at += lack > 0 ? lack / 2 : 0;
            label[s - 1].at -= lack > 0 ? lack / 2 : 0;
        }
    }
    double least = LABEL_SEPARATION / 2, most = height - LABEL_SEPARATION / 2;
    for (int s = 0; s < n; s++) {
        label[s].at = fmax(label[s].at, least);
        least = label[s].at + LABEL_SEPARATION;
    }
    for (int s = n - 1; s >= 0; s--) {
        label[s].at = fmin(label[s].at, most);
        most = label[s].at - LABEL_SEPARATION;
    }
}

static void write_slopes(FILE *file, const struct attn_plot *plot, const struct layout *l)
{
    (void)fprintf(file,
                  "# slopes: panel, series, end of the curve, height of the label (share of the "
                  "panel), text\nn_slopes = 0\n"
                  "array SLOPE_PANEL[%d]; array SLOPE_SERIES[%d]; array SLOPE_X[%d]; "
                  "array SLOPE_Y[%d]; array SLOPE_AT[%d]; array SLOPE_TEXT[%d]\n",
                  ATTN_PLOT_PANELS * ATTN_PLOT_SERIES, ATTN_PLOT_PANELS * ATTN_PLOT_SERIES,
                  ATTN_PLOT_PANELS * ATTN_PLOT_SERIES, ATTN_PLOT_PANELS * ATTN_PLOT_SERIES,
                  ATTN_PLOT_PANELS * ATTN_PLOT_SERIES, ATTN_PLOT_PANELS * ATTN_PLOT_SERIES);
    for (int p = 0; p < plot->n_panels; p++) {
        struct slope_label label[ATTN_PLOT_SERIES];
        int n = 0;
        for (int s = 0; s < plot->n_series; s++) {
            if (plot->slope[p][s].n == 0)
                continue;
            double share = log(plot->slope_y[p][s] / l->y.low) / log(l->y.high / l->y.low);
            label[n++] = (struct slope_label){s, share * l->panel_height, 0};
        }
        spread_labels(label, n, l->panel_height);
        for (int k = 0; k < n; k++) {
            int s = label[k].series;
            const struct attn_power *power = &plot->slope[p][s];
            (void)fprintf(file,
                          "n_slopes = n_slopes + 1; SLOPE_PANEL[n_slopes] = %d; "
                          "SLOPE_SERIES[n_slopes] = %d; SLOPE_X[n_slopes] = %.10g; "
                          "SLOPE_Y[n_slopes] = %.10g; SLOPE_AT[n_slopes] = %.4f; "
                          "SLOPE_TEXT[n_slopes] = '%.2f ± %.2f'\n",
                          p + 1, s + 1, plot->slope_x[p][s], plot->slope_y[p][s],
                          label[k].at / l->panel_height, power->slope,
                          power->interval.high - power->slope);
        }
    }
}

/* ---- the file ------------------------------------------------------------------------------ */

static void write_text(FILE *file, const char *name, const char *text)
{
    (void)fprintf(file, "%s = ", name);
    attn_plot_quote(file, text);
    (void)fputc('\n', file);
}

static void write_axes(FILE *file, const struct attn_plot *plot, const struct layout *l)
{
    write_text(file, "x_label", plot->x_label);
    write_text(file, "y_label", plot->y_label);
    (void)fprintf(file, "x_low = %.10g; x_high = %.10g; y_low = %.10g; y_high = %.10g\n", l->x.low,
                  l->x_end, l->y.low, l->y.high);
    int most = (l->panel_width - (l->has_slopes ? SLOPE : 0)) / 56;
    (void)fputs("x_ticks = \"", file);
    if (plot->x_axis == ATTN_AXIS_DENSITY)
        attn_ticks_by_value(file, plot->x_axis, &l->x, most, 0);
    else
        attn_ticks_by_point(file, plot, most > 1 ? most : 1);
    (void)fputs("\"\ny_ticks = \"", file);
    attn_ticks_by_value(file, plot->y_axis, &l->y, l->panel_height / 34, 0);
    (void)fputs("\"\ny_bare = \"", file);
    attn_ticks_by_value(file, plot->y_axis, &l->y, l->panel_height / 34, 1);
    (void)fprintf(file, "\"\nslope_from = %.5f\n", 1 - (SLOPE - 6.0) / l->panel_width);
}

/* An empty panel must not look like a mistake. */
static const char *panel_remark(const struct attn_plot *plot, int panel)
{
    for (int64_t s = 0; s < plot->n; s++)
        if (plot->point[s].panel == panel)
            return "";
    return ": nothing measured";
}

static void write_panels(FILE *file, const struct attn_plot *plot, const struct layout *l)
{
    int n = plot->n_panels > 0 ? plot->n_panels : 1;
    (void)fprintf(file,
                  "n_panels = %d\narray PANEL[%d]; array PANEL_LEFT[%d]; array PANEL_RIGHT[%d]; "
                  "array PANEL_BOTTOM[%d]; array PANEL_TOP[%d]; array PANEL_FIRST[%d]\n",
                  plot->n_panels, n, n, n, n, n, n);
    for (int p = 0; p < plot->n_panels; p++) {
        double left = LEFT + p % l->columns * (l->panel_width + GAP);
        double bottom = l->panel_bottom[p / l->columns];
        char title[128];
        (void)snprintf(title, sizeof title, "%s%s", plot->panel[p], panel_remark(plot, p));
        (void)fprintf(file, "PANEL[%d] = ", p + 1);
        attn_plot_quote(file, title);
        (void)fprintf(file,
                      "; PANEL_LEFT[%d] = %.5f; PANEL_RIGHT[%d] = %.5f; PANEL_BOTTOM[%d] = %.5f; "
                      "PANEL_TOP[%d] = %.5f; PANEL_FIRST[%d] = %d\n",
                      p + 1, left / WIDTH, p + 1, (left + l->panel_width) / WIDTH, p + 1,
                      bottom / l->height, p + 1, (bottom + l->panel_height) / l->height, p + 1,
                      p % l->columns == 0);
    }
}

static void write_key(FILE *file, const struct attn_plot *plot, const struct layout *l)
{
    int n = plot->n_series > 0 ? plot->n_series : 1;
    double left = (WIDTH - l->key_columns * l->key_width) / 2.0;
    (void)fprintf(file,
                  "n_series = %d\narray LABEL[%d]; array IMPL[%d]; array VARIANT[%d]; "
                  "array KEY_X[%d]; array KEY_Y[%d]\n",
                  plot->n_series, n, n, n, n, n);
    for (int s = 0; s < plot->n_series; s++) {
        double x = left + s % l->key_columns * l->key_width;
        double y = l->key_top - s / l->key_columns * LINE;
        (void)fprintf(file, "LABEL[%d] = ", s + 1);
        attn_plot_quote(file, plot->series[s].label);
        (void)fprintf(file,
                      "; IMPL[%d] = %d; VARIANT[%d] = %d; KEY_X[%d] = %.5f; KEY_Y[%d] = %.5f\n",
                      s + 1, plot->series[s].impl, s + 1, plot->series[s].variant, s + 1, x / WIDTH,
                      s + 1, y / l->height);
    }
    (void)fprintf(file, "key_sample = %.5f\n", (double)SAMPLE / WIDTH);
}

static void write_marks(FILE *file, const struct attn_plot *plot)
{
    int n = plot->n_marks > 0 ? plot->n_marks : 1;
    (void)fprintf(file,
                  "n_marks = %d\narray MARK_PANEL[%d]; array MARK_SERIES[%d]; array MARK_X[%d]; "
                  "array MARK_Y[%d]; array MARK_TEXT[%d]\n",
                  plot->n_marks, n, n, n, n, n);
    for (int k = 0; k < plot->n_marks; k++) {
        const struct attn_plot_mark *m = &plot->mark[k];
        (void)fprintf(file,
                      "MARK_PANEL[%d] = %d; MARK_SERIES[%d] = %d; MARK_X[%d] = %.10g; "
                      "MARK_Y[%d] = %.10g; MARK_TEXT[%d] = ",
                      k + 1, m->panel + 1, k + 1, m->series + 1, k + 1, m->x, k + 1, m->y, k + 1);
        attn_plot_quote(file, m->text);
        (void)fputc('\n', file);
    }
}

void attn_plot_write_settings(FILE *file, const struct attn_plot *plot)
{
    struct layout l;
    lay_out(plot, &l);
    (void)fprintf(file,
                  "# Words and geometry of figure %s.  Written by attnlab report, read by "
                  "plots/%s.gp.\n",
                  plot->name, plot->script);
    write_text(file, "name", plot->name);
    write_text(file, "title", plot->title);
    (void)fprintf(file, "width = %d; height = %d\n", WIDTH, l.height);
    (void)fprintf(file,
                  "title_at = %.5f; subtitle_at = %.5f; extra_at = %.5f; note_at = %.5f; "
                  "line_step = %.5f\n",
                  (double)l.title_at / l.height, (double)l.subtitle_at / l.height,
                  (double)l.extra_at / l.height, (double)l.note_at / l.height,
                  (double)LINE / l.height);
    write_lines(file, "SUBTITLE", plot->subtitle, NOTE_LINES);
    write_lines(file, "EXTRA", plot->key_extra, NOTE_LINES);
    write_lines(file, "NOTE", plot->note, NOTE_LINES);
    write_axes(file, plot, &l);
    write_panels(file, plot, &l);
    write_key(file, plot, &l);
    write_slopes(file, plot, &l);
    write_marks(file, plot);
    (void)fprintf(file, "line = %s%.10g\n", isnan(plot->line) ? "0 * " : "",
                  isnan(plot->line) ? 0 : plot->line);
    write_text(file, "line_text", plot->line_text);
    (void)fputs(plot->settings, file);
}
