/* The figures of groups: each is a row of plots/figures.def, and its lines are the group's. */
#include "experiments/report/figures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/preflight.h"
#include "experiments/report/curves.h"
#include "experiments/table/row_table.h"
#include "optimized/registry.h"
#include "tests/harness/base/fileio.h"

static const double none = (double)NAN; /* the macro is a float */

/* ---- the columns ----------------------------------------------------------------------------- */

static double bytes(int64_t n)
{
    return n > 0 ? (double)n : none;
}

static double size(double n)
{
    return n > 0 ? n : none;
}

static double median(const struct attn_spread *spread)
{
    return spread->n > 0 ? spread->median : none;
}

/* Of a row beside which the machine's peak was measured. */
static double rate(const struct attn_row *row, double seconds)
{
    return isnan(row->peak_rate) || row->time.n == 0
               ? none
               : attn_point_products(row->point) / seconds / 1e9;
}

static double exponent(const struct attn_power *power)
{
    return power->n > 0 ? power->slope : none;
}

static double exponent_error(const struct attn_power *power)
{
    return power->n > 0 ? power->interval.high - power->slope : none;
}

/* All ranks of a simulated run are in one process, and a small one is noise. */
static double shown_resident(const struct attn_row *row)
{
    int is_shown = row->point->ranks == 1 && row->peak >= ATTN_RESIDENT_FROM;
    return is_shown ? bytes(row->resident) : none;
}

/* As it is drawn: an error that is exactly 0 has no logarithm. */
static double ratio(const struct attn_row *row, double value, int of_sample)
{
    static const double LEAST = 1e-4, MOST = 1e6;
    return row->is_sample == of_sample && !isnan(value) ? fmin(fmax(value, LEAST), MOST) : none;
}

static double relative(double error)
{
    static const double LEAST = 1e-17;
    return isnan(error) ? none : fmax(error, LEAST);
}

static const char *const row_columns[] = {
#define COLUMN(name, value) #name,
#include "experiments/report/columns.def"
#undef COLUMN
};
enum { ROW_COLUMNS = sizeof row_columns / sizeof *row_columns };
_Static_assert(sizeof row_columns / sizeof *row_columns <= (size_t)ATTN_FIGURE_COLUMNS,
               "more columns than a point has room for");

static void fill_columns(const struct attn_row *r, double y[ROW_COLUMNS])
{
    const struct attn_point *p = r->point;
    int is_ok = r->status == ATTN_POINT_OK, c = 0;
#define COLUMN(name, value) y[c++] = value;
#include "experiments/report/columns.def"
#undef COLUMN
}

enum attn_status attn_summary_csv_save(const char *path, const struct attn_figure_groups *groups,
                                       struct attn_error *err)
{
    char *text;
    size_t size;
    double y[ROW_COLUMNS];
    FILE *file = attn_cli_memory(&text, &size);
    fputs("group,curve,spec,case,pass,status,x", file);
    for (int c = 0; c < ROW_COLUMNS; c++)
        fprintf(file, ",%s", row_columns[c]);
    fputc('\n', file);
    for (int g = 0; g < groups->n; g++)
        for (int64_t s = 0; s < groups->group[g].n; s++) {
            const struct attn_row *row = groups->group[g].row[s];
            const char *const words[] = {groups->group[g].name, row->label, row->point->spec,
                                         row->point->text};
            for (size_t w = 0; w < sizeof words / sizeof *words; w++) {
                attn_csv_text(file, words[w]);
                fputc(',', file);
            }
            fprintf(file, "%s,%s", attn_pass_word(row->point->c.pass),
                    attn_point_status_name(row->status));
            fill_columns(row, y);
            attn_csv_number(file, row->x);
            for (int c = 0; c < ROW_COLUMNS; c++)
                attn_csv_number(file, y[c]);
            fputc('\n', file);
        }
    fclose(file);
    enum attn_status status = attn_cli_save(path, attn_cli_need(text), err);
    free(text);
    return status;
}

/* ---- a line for each row --------------------------------------------------------------------- */

/* The legend says what a curve is of, where that is not what the axis says. */
static void say_of(struct attn_figure *figure, int curve, const char *what)
{
    char *label = figure->curve[curve].label;
    if (what[0] != '\0' && strstr(label, what) == NULL)
        attn_append(label, sizeof figure->curve[0].label, " (%s)", what);
}

static int is_time(const char *column)
{
    size_t n = strlen(column); /* "O" has one letter */
    return n > 2 && strcmp(column + n - 2, "_s") == 0;
}

/* How an external implementation came to the number of this column, in the legend. */
static const char *means_of(const struct attn_row *row, const char *column)
{
    const char *clock = row->point->time_source;
    if (strcmp(column, "only_resident_bytes") == 0)
        return "resident";
    if (!is_time(column))
        return "";
    return strcmp(clock, "reported") == 0  ? "as it reports"
           : strcmp(clock, "command") == 0 ? "whole command - tiny case"
                                           : "";
}

/* A row at x, in the curve of its label; where memory stands against time a curve is an
 * implementation, and its points have their options beside them. */
static struct attn_figure_point *add_row(struct attn_figure *figure, const struct attn_row *row,
                                         double x)
{
    const struct attn_figure_group *group = figure->group;
    const struct attn_point *p = row->point;
    int is_trade = group->kind == ATTN_GROUP_TRADE;
    int is_ours = row->impl < attn_impl_count() && attn_row_is_ours(row);
    const char *key = is_trade ? p->impl : row->label,
               *setting = attn_group_label(group, row->label);
    int curve = attn_figure_curve_of(figure, key, row->impl, is_ours);
    struct attn_figure_point *point = attn_figure_add(figure, attn_pass_word(p->c.pass), curve, x);
    point->status = attn_point_status_name(row->status);
    point->note = is_trade                       ? setting != NULL ? setting : row->option
                  : row->status == ATTN_POINT_OK ? p->judged.verified
                                                 : p->message;
    return point;
}

/* Rows that have a number in one of the columns that the figure is about.  A row without ranks is
 * the same at every R: two points make its line. */
static void add_rows(struct attn_figure *figure)
{
    const struct attn_figure_group *group = figure->group;
    int most = group->kind == ATTN_GROUP_RANKS ? attn_group_most_ranks(group) : 1;
    for (int64_t s = 0; s < group->n; s++) {
        const struct attn_row *row = group->row[s];
        double y[ROW_COLUMNS], x = row->x;
        int about = 0;
        fill_columns(row, y);
        while (about < figure->n_about && isnan(y[figure->about[about]]))
            about++;
        if (about == figure->n_about)
            continue;
        if (group->kind == ATTN_GROUP_TRADE)
            x = attn_row_calls(row)->median;
        struct attn_figure_point *point = add_row(figure, row, x);
        memcpy(point->y, y, sizeof y);
        say_of(figure, point->curve, means_of(row, row_columns[figure->about[about]]));
        if (most > 1 && attn_row_is_level(row)) {
            point = add_row(figure, row, most);
            memcpy(point->y, y, sizeof y);
            for (int c = 0; c < ROW_COLUMNS; c++)
                if (strcmp(row_columns[c], "total_ideal_bytes") == 0)
                    point->y[c] /= most;
        }
    }
}

/* ---- a line for each rank -------------------------------------------------------------------- */

/* The work of each rank, as a multiple of the mean of all; nothing where it has no price. */
static void add_balance(struct attn_figure *figure, int64_t s, const struct attn_spec *spec,
                        const struct attn_problem *problem)
{
    const struct attn_row *row = figure->group->row[s];
    int64_t first = figure->n;
    double sum = 0;
    for (int rank = 0; rank < row->point->ranks; rank++) {
        struct attn_cost cost;
        if (attn_price(spec->impl, &spec->options, problem, row->point->c.pass, rank, &cost,
                       NULL) != ATTN_OK)
            return;
        add_row(figure, row, rank)->y[0] = cost.flops;
        sum += cost.flops;
    }
    for (int64_t n = first; n < figure->n && sum > 0; n++)
        figure->point[n].y[0] *= row->point->ranks / sum;
}

static void add_ranks(struct attn_figure *figure)
{
    for (int64_t s = 0; s < figure->group->n; s++) {
        const struct attn_point *of = figure->group->row[s]->point;
        struct attn_spec spec;
        struct attn_problem problem;
        struct attn_point point;
        int64_t need;
        attn_point_init(&point);
        if (attn_spec_parse(of->spec, &spec, NULL) != ATTN_OK ||
            attn_preflight_open(&of->c, &problem, &point, &need, NULL) != ATTN_OK)
            continue;
        add_balance(figure, s, &spec, &problem);
        attn_preflight_close(&problem);
    }
}

/* ---- a line for each buffer ------------------------------------------------------------------ */

enum { FROM, TO, OF_BYTES };

/* The live set at the peak, from the bottom up; each buffer has a colour of its own, and the small
 * ones are one piece, "other". */
static void add_bar(struct attn_figure *figure, const struct attn_row *row, int bar)
{
    static const double SMALL = 0.02; /* of a bar */
    const struct attn_point *p = row->point;
    double at = 0, other = 0, all = (double)row->ledger;
    for (int a = 0; a <= p->n_live; a++) {
        double piece = a < p->n_live ? (double)p->live_bytes[a] : other;
        const char *name = a < p->n_live ? p->live_name[a] : "other";
        if (a < p->n_live ? piece < SMALL * all : other == 0) {
            other += piece;
            continue;
        }
        struct attn_figure_point *point = attn_figure_piece(figure, attn_pass_word(p->c.pass), name,
                                                            bar, at / all, (at + piece) / all);
        point->status = attn_point_status_name(row->status);
        point->note = p->spec;
        point->y[OF_BYTES] = all;
        at += piece;
    }
}

/* The name of a bar, as the legend would have it: within quotes of gnuplot, with | behind each. */
static void append_bar(char *names, size_t capacity, int bar, const struct attn_figure_group *group,
                       const struct attn_row *row)
{
    char label[ATTN_LABEL_TEXT];
    attn_cleaned(attn_group_legend(group, row), label, sizeof label);
    for (char *c = label; *c != '\0'; c++)
        *c = *c == '|' || *c == '\'' ? '/' : *c;
    attn_append(names, capacity, "%s%s", bar > 0 ? "|" : "", label);
}

/* One bar for each implementation, in both passes at the same place. */
static void add_buffers(struct attn_figure *figure)
{
    const struct attn_figure_group *group = figure->group;
    char number[32], *names = figure->variables;
    size_t capacity = sizeof figure->variables;
    int bars = 0;
    figure->x_name = "bar";
    figure->x_label = NULL;
    figure->x_base = 0;
    attn_append(names, capacity, "bars     = '");
    for (int64_t s = 0; s < group->n; s++) {
        int has_bar = 0;
        for (int pass = ATTN_FORWARD; pass <= ATTN_BACKWARD && attn_group_is_first(group, s);
             pass++) {
            int64_t length = attn_group_common_length(group, (enum attn_pass)pass);
            const struct attn_row *row =
                attn_group_find(group, group->row[s]->label, (enum attn_pass)pass, length);
            if (row == NULL || row->point->n_live == 0 || row->ledger <= 0)
                continue;
            add_bar(figure, row, bars);
            has_bar = 1;
        }
        if (has_bar)
            append_bar(names, capacity, bars++, group, group->row[s]);
    }
    attn_append(names, capacity, "'\n");
    for (int pass = ATTN_FORWARD; pass <= ATTN_BACKWARD; pass++)
        if (attn_group_has_pass(group, (enum attn_pass)pass))
            attn_append(
                figure->remark, sizeof figure->remark, "%s L = %s %s",
                pass == ATTN_FORWARD ? "" : ",",
                attn_cli_grouped(attn_group_common_length(group, (enum attn_pass)pass), number),
                attn_pass_word((enum attn_pass)pass));
    attn_append(figure->remark, sizeof figure->remark, ".");
}

/* ---- the kinds ------------------------------------------------------------------------------- */

static const struct kind {
    const char *name, *script;
    enum { ROWS, BUFFERS, RANKS } lines;
    const char *about, *groups, *title, *remark, *caption;
} kinds[] = {
#define FIGURE(...) {__VA_ARGS__},
#include "plots/figures.def"
#undef FIGURE
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static const struct lines {
    void (*add)(struct attn_figure *figure);
    int n_columns;
    const char *const *column;
} lines[] = {
    [ROWS] = {add_rows, ROW_COLUMNS, row_columns},
    [BUFFERS] = {add_buffers, 3, (const char *const[]){"from", "to", "of_bytes"}},
    [RANKS] = {add_ranks, 1, (const char *const[]){"of_mean"}},
};

/* The words of a row of plots/figures.def. */
static void take_words(const struct kind *kind, struct attn_figure *figure)
{
    figure->kind = kind->name;
    figure->script = kind->script;
    figure->caption = kind->caption;
    (void)snprintf(figure->title, sizeof figure->title, "%s", kind->title);
    (void)snprintf(figure->remark, sizeof figure->remark, "%s", kind->remark);
}

/* The columns of its lines, and which of them it is about. */
static enum attn_status choose_columns(const struct kind *kind, struct attn_figure *figure,
                                       struct attn_error *err)
{
    const struct lines *of = &lines[kind->lines];
    figure->n_columns = of->n_columns;
    memcpy(figure->column, of->column, (size_t)of->n_columns * sizeof *of->column);
    for (const char *word = kind->about; *word != '\0'; word += strspn(word, " ")) {
        size_t n = strcspn(word, " ");
        int c = 0;
        while (c < of->n_columns &&
               (strncmp(of->column[c], word, n) != 0 || of->column[c][n] != '\0'))
            c++;
        if (c == of->n_columns || figure->n_about == ATTN_FIGURE_ABOUT)
            return attn_fail(err, ATTN_EINTERNAL, "plots/figures.def: %s: there is no column %s",
                             kind->name, word);
        figure->about[figure->n_about++] = c;
        word += n;
    }
    return ATTN_OK;
}

/* Does a curve of the figure have two different x that are measured, or only priced on purpose?  In
 * a trade-off, and under a roof, two points are enough, of whatever implementation. */
static int has_curve(const struct attn_figure *figure)
{
    int is_speed = figure->group->kind == ATTN_GROUP_SPEED;
    int is_trade = figure->group->kind == ATTN_GROUP_TRADE || is_speed;
    for (int64_t s = 0; s < figure->n; s++)
        for (int64_t t = 0; t < s; t++) {
            const struct attn_figure_point *p = &figure->point[s], *q = &figure->point[t];
            int counts = strcmp(p->status, q->status) == 0 &&
                         (strcmp(p->status, "ok") == 0 || strcmp(p->status, "wrong") == 0 ||
                          strcmp(p->status, "priced") == 0);
            if (counts && p->panel == q->panel && (p->curve == q->curve || is_trade) &&
                (p->x != q->x || is_speed))
                return 1;
        }
    return 0;
}

/* The words above it: of the group that first has this kind, of another one with what varies. */
static void write_words(const struct kind *kind, const struct attn_figure_group *group,
                        const struct attn_figure_machine *machine, struct attn_figure *figure)
{
    const struct attn_group_word *word = &attn_group_words[group->kind];
    size_t n = strcspn(kind->groups, " ");
    int is_plain = strlen(word->word) == n && strncmp(kind->groups, word->word, n) == 0;
    (void)snprintf(figure->name, sizeof figure->name, "%s%s%s%s%s", kind->name, is_plain ? "" : "-",
                   is_plain ? "" : word->word, group->tag[0] != '\0' ? "-" : "", group->tag);
    (void)snprintf(figure->title, sizeof figure->title, "%s%s%s, %s", kind->title,
                   is_plain ? "" : " against ", is_plain ? "" : word->x_label, group->special);
    (void)snprintf(figure->subtitle, sizeof figure->subtitle, "%.200s%s%s", group->problem,
                   machine->text[0] != '\0' ? "; " : "", machine->text);
}

static enum attn_status make(const struct kind *kind, const struct attn_figure_group *group,
                             const struct attn_figure_machine *machine, struct attn_figure *figure,
                             struct attn_error *err)
{
    const struct attn_group_word *word = &attn_group_words[group->kind];
    *figure = (struct attn_figure){.x_name = word->x_name,
                                   .x_label = word->x_label,
                                   .x_base = word->base,
                                   .group = group,
                                   .memory_bytes = machine->memory_bytes};
    take_words(kind, figure);
    write_words(kind, group, machine, figure);
    enum attn_status status = choose_columns(kind, figure, err);
    if (status != ATTN_OK)
        return status;
    lines[kind->lines].add(figure);
    const char *column = figure->column[figure->about[0]];
    (void)snprintf(figure->finding, sizeof figure->finding, "%s",
                   is_time(column) ? group->finding_of_time : group->finding_of_bytes);
    attn_figure_finish(figure);
    if (kind->lines == ROWS && group->kind != ATTN_GROUP_TRADE && group->kind != ATTN_GROUP_SPEED)
        attn_figure_stand_out(figure); /* a point of a trade-off is no curve */
    if (!has_curve(figure))
        (void)snprintf(figure->omitted, sizeof figure->omitted,
                       "group %s has no curve for it: no implementation has two good points",
                       group->name);
    return ATTN_OK;
}

enum attn_status attn_figures_make(const struct attn_figure_groups *groups,
                                   const struct attn_figure_machine *machine,
                                   struct attn_figures *figures, struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    figures->n = 0;
    figures->figure = attn_cli_need(calloc((size_t)groups->n * KINDS + 1, sizeof *figures->figure));
    /* All memory figures first, then all time figures, and so on. */
    for (int k = 0; k < KINDS; k++)
        for (int g = 0; g < groups->n && status == ATTN_OK; g++) {
            const struct attn_figure_group *group = &groups->group[g];
            struct attn_figure *figure = &figures->figure[figures->n];
            if (group->kind == ATTN_GROUP_OTHER ||
                !attn_cli_listed(kinds[k].groups, " ", attn_group_words[group->kind].word))
                continue;
            status = make(&kinds[k], group, machine, figure, err);
            if (figure->n == 0)
                attn_figure_free(figure); /* no row has its column: nothing is missing */
            else
                figures->n++;
        }
    return status;
}

void attn_figures_free(struct attn_figures *figures)
{
    for (int f = 0; f < figures->n; f++)
        attn_figure_free(&figures->figure[f]);
    free(figures->figure);
    *figures = (struct attn_figures){NULL, 0};
}
