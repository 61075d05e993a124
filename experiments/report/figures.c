/* Which numbers each kind of figure draws, and under which words. */
#include "experiments/report/figures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/need.h"
#include "optimized/registry.h"
#include "tests/harness/files/fileio.h"

static const double none = (double)NAN; /* the macro is a float */

/* Below this, pages of stack and libraries outweigh buffers, and VmHWM says nothing about them. */
enum { RESIDENT_FROM = 1 << 20 };

typedef void filler(struct attn_figure *figure);

struct attn_figure_kind {
    const char *name, *script, *title, *remark;
    filler *fill;
    const char *column[ATTN_FIGURE_COLUMNS];
    int n_drawn; /* of the columns */
};

/* ---- pieces ---------------------------------------------------------------------------------- */

static double bytes(int64_t n)
{
    return n > 0 ? (double)n : none;
}

/* A point of the group's row s in the curve of that key, with its status and what there is to say
 * of it. */
static struct attn_figure_point *add_as(struct attn_figure *figure, int64_t s, const char *panel,
                                        const char *key)
{
    const struct attn_row *row = figure->group->row[s];
    int is_ours = row->impl < attn_impl_count() && row->point->route[0] == '\0';
    int curve = attn_figure_curve_of(figure, key, row->impl, is_ours, row->point->origin);
    struct attn_figure_point *point = attn_figure_add(figure, panel, curve, row->x);
    point->status = attn_point_status_name(row->status);
    point->note = row->status == ATTN_POINT_OK ? row->point->verified : row->point->message;
    return point;
}

/* The legend says what a curve is of, where that is not what the axis says. */
static void say_of(struct attn_figure *figure, const struct attn_figure_point *point,
                   const char *what)
{
    char *label = figure->curve[point->curve].label;
    if (what[0] != '\0' && strstr(label, what) == NULL)
        attn_append(label, sizeof figure->curve[0].label, " (%s)", what);
}

/* A point in the curve of its row's label; of several files the legend says which, whatever the
 * plan calls it. */
static struct attn_figure_point *add_row(struct attn_figure *figure, int64_t s, const char *panel)
{
    const char *origin = figure->group->row[s]->point->origin;
    struct attn_figure_point *point = add_as(figure, s, panel, figure->group->row[s]->label);
    say_of(figure, point, origin != NULL ? origin : "");
    return point;
}

static const char *pass_of(const struct attn_row *row)
{
    return attn_pass_word(row->point->c.pass);
}

/* Columns of memory, in the order of the kinds below. */
enum { PRICED, BEYOND, LEDGER, RESIDENT, ALONE, PROCESS, FLOOR };

static void set_memory(const struct attn_row *row, struct attn_figure_point *point)
{
    const struct attn_point *p = row->point;
    int ok = row->status == ATTN_POINT_OK;
    point->y[ok ? PRICED : BEYOND] = bytes(row->priced);
    point->y[FLOOR] = bytes(p->floor_bytes);
    if (!ok)
        return;
    point->y[LEDGER] = bytes(row->ledger);
    point->y[PROCESS] = bytes(row->process);
    if (p->ranks == 1 && row->peak >= RESIDENT_FROM)
        point->y[p->route[0] != '\0' ? ALONE : RESIDENT] = bytes(row->resident);
}

/* What is only priced begins where the last measured point is. */
static void join_beyond(struct attn_figure *figure)
{
    for (int64_t s = 1; s < figure->n; s++) {
        struct attn_figure_point *p = &figure->point[s], *before = p - 1;
        if (p->panel == before->panel && p->curve == before->curve && !isnan(p->y[BEYOND]) &&
            isnan(before->y[BEYOND]))
            before->y[BEYOND] = before->y[PRICED];
    }
}

/* The points of (panel, curve) that have a value in one column, or else in another, by increasing
 * x; *v borrows from what is returned, which is to be freed and has room for one more. */
static double *values(const struct attn_figure *figure, int panel, int curve, int column,
                      int otherwise, struct attn_curve *v)
{
    double *x = attn_cli_need(malloc(2 * ((size_t)figure->n + 2) * sizeof *x));
    double *y = x + figure->n + 2;
    int n = 0;
    for (int64_t s = 0; s < figure->n; s++) {
        const struct attn_figure_point *p = &figure->point[s];
        double value = isnan(p->y[column]) ? p->y[otherwise] : p->y[column];
        if (p->panel != panel || p->curve != curve || isnan(value))
            continue;
        x[n] = p->x;
        y[n++] = value;
    }
    *v = (struct attn_curve){x, y, n};
    return x;
}

int attn_slope(const double *x, const double *y, int n, struct attn_power *power)
{
    static const double WIDEST = 0.5, LEAST_POWER = 0.2;
    int first = attn_stats_upper(x, n);
    return attn_stats_power(x + first, y + first, n - first, power) == 0 &&
                   power->interval.high - power->interval.low <= WIDEST &&
                   power->worst <= LEAST_POWER
               ? 0
               : -1;
}

/* Fit every curve of a column that was not fitted by another. */
static void fit(struct attn_figure *figure, int column)
{
    for (int p = 0; p < figure->n_panels; p++)
        for (int c = 0; c < figure->n_curves; c++) {
            struct attn_power power;
            struct attn_curve v;
            double *owner = values(figure, p, c, column, column, &v);
            if (figure->curve[c].slope[p].n == 0 && attn_slope(v.x, v.y, v.n, &power) == 0)
                figure->curve[c].slope[p] = power;
            free(owner);
        }
}

/* ---- against L ------------------------------------------------------------------------------- */

static void fill_memory(struct attn_figure *figure)
{
    double largest = 0, memory = (double)figure->memory_bytes;
    int has_layers = 0;
    for (int64_t s = 0; s < figure->group->n; s++) {
        const struct attn_row *row = figure->group->row[s];
        struct attn_figure_point *point = add_row(figure, s, pass_of(row));
        set_memory(row, point);
        say_of(figure, point, row->point->route[0] != '\0' ? "resident" : "");
        largest = fmax(largest, fmax(point->y[PRICED], point->y[BEYOND]));
        has_layers |= row->point->stack.n > 0;
    }
    if (has_layers)
        attn_append(figure->remark, sizeof figure->remark, " Of layers all tensors count.");
    join_beyond(figure);
    (void)snprintf(figure->variables, sizeof figure->variables, "memory   = %.10g\n",
                   memory < 8 * largest ? memory : 0.0);
    if (has_layers) /* what is kept grows in proportion, beside what one layer takes: no power */
        return;
    fit(figure, LEDGER);
    fit(figure, ALONE); /* what has no ledger, by what it has */
}

enum { MEDIAN, SINGLE, FASTEST, SLOWEST, LOW, HIGH, ROUNDS };

/* Of whole calls, or of simulated ranks: they have figures of their own. */
static const char RANK_TIME[] = "rank-time";

static void fill_times(struct attn_figure *figure)
{
    int n_single = 0, lacking = 0, simulated = strcmp(figure->kind, RANK_TIME) == 0;
    if (simulated)
        attn_append(figure->variables, sizeof figure->variables,
                    "y_name   = 'CPU time of the slowest rank'\n");
    for (int64_t s = 0; s < figure->group->n; s++) {
        const struct attn_row *row = figure->group->row[s];
        int is_single = row->time.n == 0;
        const struct attn_spread *time = is_single ? &row->single : &row->time;
        if ((row->point->ranks > 1) != simulated)
            continue;
        if (time->n == 0) {
            lacking += row->status == ATTN_POINT_OK;
            continue;
        }
        struct attn_figure_point *point = add_row(figure, s, pass_of(row));
        point->y[is_single ? SINGLE : MEDIAN] = time->median;
        point->y[FASTEST] = time->min;
        point->y[SLOWEST] = time->max;
        point->y[LOW] = row->time_interval.low;
        point->y[HIGH] = row->time_interval.high;
        point->y[ROUNDS] = time->n;
        point->note = is_single ? "first calls" : "warm calls";
        const char *clock = row->point->time_source;
        say_of(figure, point,
               strcmp(clock, "reported") == 0  ? "as it reports"
               : strcmp(clock, "command") == 0 ? "whole command - tiny case"
                                               : "");
        n_single += is_single;
    }
    attn_append(figure->remark, sizeof figure->remark,
                "Filled: median of warm calls; bars: fastest and slowest round.%s",
                n_single > 0 ? " Open, dotted: first calls." : "");
    if (lacking > 0)
        attn_append(figure->remark, sizeof figure->remark, " %d good points have no time.",
                    lacking);
    fit(figure, MEDIAN);
}

/* The line breaks where full comparison becomes a sample. */
enum { ALL, SAMPLE };

/* Both passes judge O and LSE: keep the larger ratio of a length.  An error that is exactly 0 has
 * no logarithm: it is drawn at a floor. */
static void add_ratio(struct attn_figure *figure, int64_t row, const char *panel, double ratio)
{
    static const double LEAST = 1e-4, MOST = 1e6;
    const struct attn_point *of = figure->group->row[row]->point;
    int column = strstr(of->verified, "rows") != NULL ? SAMPLE : ALL;
    int curve = attn_figure_find(figure, figure->group->row[row]->label);
    struct attn_figure_point *p = figure->point, *end = p + figure->n;
    if (isnan(ratio))
        return;
    while (p < end && (strcmp(figure->panel[p->panel], panel) != 0 || p->curve != curve ||
                       p->x != (double)of->c.n_query))
        p++;
    if (p == end)
        p = add_row(figure, row, panel);
    p->y[column] = fmax(p->y[column], fmin(fmax(ratio, LEAST), MOST));
}

static void fill_error(struct attn_figure *figure)
{
    static const char *const panel[ATTN_OUTPUTS] = {"O", "LSE", "dQ", "dK", "dV", "dBias"};
    const struct attn_figure_group *group = figure->group;
    figure->y_must = 1; /* the bound */
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        for (int64_t s = 0; s < group->n; s++)
            add_ratio(figure, s, panel[o], group->row[s]->output[o]);
    int together = figure->n == 0; /* records do not tell them apart */
    for (int64_t s = 0; s < group->n && together; s++)
        add_ratio(figure, s, "all-outputs", group->row[s]->worst);
}

/* ---- of ranks: against P, and against L ----------------------------------------------------- */

enum { RANK_LEDGER = 2, IDEAL, SINGLE_RANK };

/* The value at the fewest ranks of the curve, which stands first, falling as 1/P. */
static double ideal(const struct attn_figure *figure, const struct attn_figure_point *point,
                    double price)
{
    for (const struct attn_figure_point *p = figure->point; p < point; p++)
        if (p->panel == point->panel && p->curve == point->curve && !isnan(p->y[IDEAL]))
            return p->y[IDEAL] * p->x / point->x;
    return price;
}

static void set_price(const struct attn_row *row, struct attn_figure_point *point, double price,
                      double counted)
{
    int ok = row->status == ATTN_POINT_OK;
    point->y[ok ? PRICED : BEYOND] = price;
    point->y[RANK_LEDGER] = ok ? counted : none;
}

/* What has no ranks is there for comparison. */
static int is_single(const struct attn_row *row)
{
    const struct attn_impl *impl = attn_impl_find(row->point->impl);
    return impl == NULL || impl->ranks == NULL;
}

/* What a row has beside its share of inputs and outputs, or with it.  ranks: where it stands as
 * something that has none, whose guide falls as 1/P; 0: where its group says. */
static void add_rank(struct attn_figure *figure, int64_t s, int with_share, int ranks,
                     int has_single)
{
    const struct attn_row *row = figure->group->row[s];
    double price = bytes(with_share ? row->point->total_bytes : row->priced);
    char panel[64];
    (void)snprintf(panel, sizeof panel, "%s_%s", pass_of(row),
                   with_share ? "with_its_inputs_and_outputs" : "without_them");
    struct attn_figure_point *point = add_row(figure, s, panel);
    set_price(row, point, price, price + (double)(row->ledger - row->priced));
    if (figure->group->kind == ATTN_GROUP_SHARE)
        return;
    if (ranks > 0) {
        point->x = ranks;
        point->y[IDEAL] = with_share ? price / ranks : none;
    } else if (row->point->ranks == 1 && !with_share) {
        /* A rank alone has no neighbours: what it has beside its share is not of the curve. */
        point->y[SINGLE_RANK] = price;
        point->y[PRICED] = point->y[BEYOND] = none;
    } else if (!has_single) {
        point->y[IDEAL] = ideal(figure, point, price);
    }
}

/* Against P, with guides; in a group `share` the same against L, without.  What has no ranks is the
 * same at every P: two points make its line. */
static void fill_rank_memory(struct attn_figure *figure)
{
    const struct attn_figure_group *group = figure->group;
    int has_single = 0, most = 1;
    for (int64_t s = 0; s < group->n; s++) {
        has_single |= is_single(group->row[s]);
        most = group->row[s]->point->ranks > most ? group->row[s]->point->ranks : most;
    }
    for (int with_share = 1; with_share >= 0; with_share--)
        for (int64_t s = 0; s < group->n; s++) {
            int is_flat = group->kind != ATTN_GROUP_SHARE && is_single(group->row[s]);
            if (with_share && group->row[s]->point->total_bytes < 0)
                continue; /* of an older program, which did not know the shares */
            add_rank(figure, s, with_share, is_flat, has_single);
            if (is_flat && most > 1)
                add_rank(figure, s, with_share, most, has_single);
        }
    join_beyond(figure);
}

/* Bytes sent by the busiest rank, by the formula; NaN when the case has no price. */
static double priced_sent(const struct attn_point *of)
{
    struct attn_spec spec;
    struct attn_point point;
    int64_t need;
    attn_point_init(&point);
    point.c = of->c;
    point.bytes_sent = 0;
    if (attn_spec_parse(of->spec, &spec, NULL) != ATTN_OK ||
        attn_preflight_case(&spec, &of->c, &point, &need, NULL) != ATTN_OK)
        return none;
    return bytes(point.bytes_sent);
}

static void fill_bytes_sent(struct attn_figure *figure)
{
    for (int64_t s = 0; s < figure->group->n; s++) {
        const struct attn_row *row = figure->group->row[s];
        if (row->point->ranks < 2) /* sends nothing, which has no logarithm */
            continue;
        set_price(row, add_row(figure, s, pass_of(row)), priced_sent(row->point),
                  bytes(row->point->bytes_sent));
    }
    join_beyond(figure);
}

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
        struct attn_figure_point *point = add_row(figure, s, pass_of(row));
        point->x = rank;
        point->y[PRICED] = cost.flops;
        sum += cost.flops;
    }
    for (int64_t n = first; n < figure->n && sum > 0; n++)
        figure->point[n].y[PRICED] *= row->point->ranks / sum;
}

static void fill_balance(struct attn_figure *figure)
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

/* ---- memory against time --------------------------------------------------------------------- */

enum { TRADE_WARM, TRADE_FIRST, TRADE_FRONTIER, TRADE_FASTEST, TRADE_SLOWEST };

/* Is point i in this panel, and of an implementation of ours? */
static int is_ours_in(const struct attn_figure *figure, int64_t i, int panel)
{
    const struct attn_figure_point *p = &figure->point[i];
    return p->panel == panel && figure->curve[p->curve].is_ours;
}

/* The frontier of a panel: of our points alone, as others have no ledger, and of one kind of
 * call. */
static void find_frontier(struct attn_figure *figure, int panel)
{
    double *x = attn_cli_need(malloc(2 * ((size_t)figure->n + 1) * sizeof *x)), *y = x + figure->n;
    int *is_best = attn_cli_need(malloc(((size_t)figure->n + 1) * sizeof *is_best));
    int column = TRADE_FIRST, n = (int)figure->n, n_panel = 0, n_best = 0;
    for (int i = 0; i < n; i++)
        if (is_ours_in(figure, i, panel) && !isnan(figure->point[i].y[TRADE_WARM]))
            column = TRADE_WARM;
    for (int i = 0; i < n; i++) {
        const struct attn_figure_point *p = &figure->point[i];
        x[i] = p->x;
        y[i] = is_ours_in(figure, i, panel) ? p->y[column] : none;
        n_panel += p->panel == panel;
    }
    attn_stats_frontier(x, y, n, is_best);
    for (int i = 0; i < n; i++) {
        figure->point[i].y[TRADE_FRONTIER] = is_best[i] ? y[i] : figure->point[i].y[TRADE_FRONTIER];
        n_best += is_best[i];
    }
    attn_append(figure->finding, sizeof figure->finding, "%s%d of %d points",
                figure->finding[0] != '\0' ? ", " : "On the frontier: ", n_best, n_panel);
    if (figure->n_panels > 1)
        attn_append(figure->finding, sizeof figure->finding, " %s", figure->panel[panel]);
    for (char *c = figure->finding; (c = strchr(c, '_')) != NULL;)
        *c = ' '; /* a panel is one word for gnuplot */
    free(is_best);
    free(x);
}

/* "forward", or of one of several files "forward_on_AMD_EPYC": one word of plain characters. */
static void name_panel(const struct attn_row *row, char panel[64])
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.+-/_";
    const char *origin = row->point->origin;
    (void)snprintf(panel, 64, "%s%s%s", pass_of(row), origin != NULL ? "_on_" : "",
                   origin != NULL ? origin : "");
    for (char *c = panel; *(c += strspn(c, plain)) != '\0';)
        *c = '_';
}

/* A curve is an implementation: its points have their options beside them.  Records of several
 * files have panels of their own, and frontiers. */
static void fill_trade(struct attn_figure *figure)
{
    const struct attn_figure_group *group = figure->group;
    int n_single = 0, n_others = 0, lacking = 0;
    figure->x_columns = TRADE_FASTEST;
    for (int64_t s = 0; s < group->n; s++) {
        const struct attn_row *row = group->row[s];
        const struct attn_point *p = row->point;
        char panel[sizeof figure->panel[0]];
        int is_single = row->time.n == 0;
        const struct attn_spread *time = is_single ? &row->single : &row->time;
        if (p->ranks > 1 || time->n == 0 || row->peak <= 0) {
            lacking += row->status == ATTN_POINT_OK;
            continue;
        }
        name_panel(row, panel);
        const char *wish = attn_figure_wish(figure, "label", group->row[s]->label);
        n_others += p->route[0] != '\0';
        struct attn_figure_point *point = add_as(figure, s, panel, p->impl);
        point->x = time->median;
        point->y[is_single ? TRADE_FIRST : TRADE_WARM] = (double)row->peak;
        point->y[TRADE_FASTEST] = time->min;
        point->y[TRADE_SLOWEST] = time->max;
        point->note = wish != NULL ? wish : group->row[s]->option;
        n_single += is_single;
    }
    for (int panel = 0; panel < figure->n_panels; panel++)
        find_frontier(figure, panel);
    attn_append(figure->remark, sizeof figure->remark,
                "%s Steps: no point is below and left of them%s.",
                n_single > 0 ? " Open: first calls." : "", n_others > 0 ? "; of ours" : "");
    if (lacking > 0)
        attn_append(figure->remark, sizeof figure->remark,
                    " %d good points have no time of a call, or no bytes.", lacking);
}

/* ---- where the bytes go ---------------------------------------------------------------------- */

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
        struct attn_figure_point *point =
            attn_figure_piece(figure, pass_of(row), name, bar, at / all, (at + piece) / all);
        point->status = attn_point_status_name(row->status);
        point->note = p->spec;
        point->y[OF_BYTES] = all;
        at += piece;
    }
}

/* One bar for each implementation, in both passes at the same place. */
static void fill_live(struct attn_figure *figure)
{
    const struct attn_figure_group *group = figure->group;
    char number[32], *names = figure->variables;
    size_t room = sizeof figure->variables;
    int bars = 0;
    figure->x_name = "bar";
    figure->x_label = NULL;
    figure->x_base = 0;
    attn_append(names, room, "bars     = '");
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
            attn_append(names, room, "%s%s", bars++ > 0 ? "|" : "", group->row[s]->label);
    }
    attn_append(names, room, "'\n");
    for (int pass = ATTN_FORWARD; pass <= ATTN_BACKWARD; pass++)
        if (attn_group_has_pass(group, (enum attn_pass)pass))
            attn_append(
                figure->remark, sizeof figure->remark, "%s L = %s %s",
                pass == ATTN_FORWARD ? "" : ",",
                attn_cli_grouped(attn_group_common_length(group, (enum attn_pass)pass), number),
                attn_pass_word((enum attn_pass)pass));
    attn_append(figure->remark, sizeof figure->remark, ".");
}

/* ---- against density ------------------------------------------------------------------------- */

enum { BREAK_EVEN = FLOOR + 1 };

static const struct attn_point *point_of_curve(const struct attn_figure *figure, int curve)
{
    int64_t s = 0;
    while (attn_figure_find(figure, figure->group->row[s]->label) != curve)
        s++; /* every curve has a row */
    return figure->group->row[s]->point;
}

/* The samples of a curve's good rows in a panel, by increasing x; they are in *owner, to be
 * freed.  Of a resident set only those that a figure shows. */
static struct attn_sampled_curve samples_of(const struct attn_figure *figure, int panel, int curve,
                                            int of_memory, void **owner)
{
    const struct attn_figure_group *group = figure->group;
    struct attn_samples *sample =
        attn_cli_need(malloc((size_t)group->n * (sizeof *sample + sizeof(double))));
    double *x = (double *)(sample + group->n);
    int n = 0;
    for (int64_t s = 0; s < group->n; s++) {
        const struct attn_row *row = group->row[s];
        const struct attn_samples *of = of_memory ? &row->residents : &row->times;
        if (attn_figure_find(figure, group->row[s]->label) != curve || of->n == 0 ||
            row->status != ATTN_POINT_OK || strcmp(pass_of(row), figure->panel[panel]) != 0 ||
            (of_memory && row->peak < RESIDENT_FROM))
            continue;
        x[n] = row->x;
        sample[n++] = *of;
    }
    *owner = sample;
    return (struct attn_sampled_curve){x, sample, n};
}

/* "0.450 (95 %: 0.446 to 0.453)" */
static void say_interval(const struct attn_crossing *crossing, char *text, size_t size)
{
    const struct attn_interval *of = &crossing->interval;
    attn_append(text, size, "%.3f", crossing->x);
    if (isnan(of->low))
        attn_append(text, size, " (of one round: interval unknown)");
    else
        attn_append(text, size, " (95 %%: %s%.3f to %s%.3f)", crossing->open_low ? "under " : "",
                    of->low, crossing->open_high ? "over " : "", of->high);
}

/* Where the samples cross.  1: they do; 0; -1: there are none. */
static int measured_crossing(const struct attn_figure *figure, int panel, int csr, int dense,
                             int of_memory, struct attn_crossing *crossing, int *is_below)
{
    void *owner[2];
    struct attn_sampled_curve a = samples_of(figure, panel, csr, of_memory, &owner[0]),
                              b = samples_of(figure, panel, dense, of_memory, &owner[1]);
    int known = a.n > 0 && b.n > 0;
    int found =
        known ? attn_stats_bootstrap_crossing(&a, &b, ATTN_SUMMARY_DRAWS, 1, 0.95, crossing) : -1;
    *is_below = known && a.sample[0].value[0] < b.sample[0].value[0];
    free(owner[0]);
    free(owner[1]);
    return found;
}

/* By the price: 1 and where, 0, or -1 where there is none. */
static int priced_crossing(const struct attn_figure *figure, int panel, int csr, int dense,
                           double *at, double *height, int *is_below)
{
    struct attn_curve sparse, flat;
    double *x = values(figure, panel, csr, PRICED, BEYOND, &sparse);
    double *of_flat = values(figure, panel, dense, PRICED, BEYOND, &flat);
    int known = sparse.n > 0 && flat.n > 0;
    int found = known ? attn_stats_crossing(&sparse, &flat, at, height) : -1;
    *is_below = known && sparse.y[0] < flat.y[0];
    free(of_flat);
    free(x);
    return found;
}

/* Where a csr curve meets a dense one, in words: of memory by the price, which is a point of its
 * own, and by the resident set; of time by what was measured. */
static void find_crossing(struct attn_figure *figure, int panel, int csr, int dense, int of_memory)
{
    double at = none, height = none;
    char number[32], *text = figure->finding;
    size_t size = sizeof figure->finding;
    const char *sparse = figure->curve[csr].label, *flat = figure->curve[dense].label;
    struct attn_crossing measured;
    int is_below, is_priced_below = 0;
    int is_measured = measured_crossing(figure, panel, csr, dense, of_memory, &measured, &is_below);
    int found = !of_memory
                    ? is_measured
                    : priced_crossing(figure, panel, csr, dense, &at, &height, &is_priced_below);
    if (found < 0)
        return;
    attn_append(text, size, "%s%.40s", text[0] != '\0' ? "; " : "", sparse);
    if (found == 0) {
        attn_append(text, size, " never crosses %.40s and takes %s", flat,
                    (of_memory ? is_priced_below : is_below) ? "less" : "more");
    } else if (!of_memory) {
        attn_append(text, size, " takes as long as %.40s at density ", flat);
        say_interval(&measured, text, size);
    } else {
        attn_append(text, size, " takes as much as %.40s at density %.3f (%s, %s: circle)", flat,
                    at, attn_cli_bytes((int64_t)height, number), figure->panel[panel]);
        struct attn_figure_point *point = attn_figure_add(figure, figure->panel[panel], csr, at);
        point->y[BREAK_EVEN] = height;
        point->status = "break-even";
        if (is_measured == 1) {
            attn_append(text, size, ", resident at ");
            say_interval(&measured, text, size);
        }
    }
}

/* Each csr curve against the first dense one of the same file. */
static void find_crossings(struct attn_figure *figure, int of_memory)
{
    for (int p = 0; p < figure->n_panels; p++)
        for (int c = 0; c < figure->n_curves; c++) {
            const struct attn_point *csr = point_of_curve(figure, c), *other = NULL;
            int dense = -1;
            while (++dense < figure->n_curves) {
                other = point_of_curve(figure, dense);
                if (strcmp(other->family, "dense") == 0 && other->origin == csr->origin)
                    break;
            }
            if (strcmp(csr->family, "csr") == 0 && dense < figure->n_curves)
                find_crossing(figure, p, c, dense, of_memory);
        }
}

static void fill_density(struct attn_figure *figure)
{
    for (int64_t s = 0; s < figure->group->n; s++)
        if (figure->group->row[s]->point->density > 0)
            set_memory(figure->group->row[s], add_row(figure, s, pass_of(figure->group->row[s])));
    join_beyond(figure);
    find_crossings(figure, 1);
}

static void fill_density_time(struct attn_figure *figure)
{
    fill_times(figure);
    find_crossings(figure, 0);
}

/* ---- the kinds ------------------------------------------------------------------------------- */

#define MEMORY_COLUMNS                                                                       \
    "priced_bytes", "beyond_bytes", "ledger_bytes", "resident_bytes", "only_resident_bytes", \
        "all_ranks_bytes", "inputs_outputs_bytes"
#define RANK_COLUMNS "priced_bytes", "beyond_bytes", "ledger_bytes", "ideal_bytes", "one_rank_bytes"
#define TIME_COLUMNS \
    "median_s", "single_s", "fastest_s", "slowest_s", "median_low_s", "median_high_s", "rounds"

static const struct attn_figure_kind kinds[] = {
#define FIGURE(name, script, fill, title, remark, n_drawn, ...) \
    {name, script, title, remark, fill, {__VA_ARGS__}, n_drawn},
#include "experiments/report/figures.def"
#undef FIGURE
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* Does a curve of the figure have two different x that are measured, or only priced on purpose?  In
 * a trade-off each point is a choice: two are enough, of whatever implementation. */
static int has_curve(const struct attn_figure *figure)
{
    int is_trade = figure->group->kind == ATTN_GROUP_TRADE;
    for (int64_t s = 0; s < figure->n; s++)
        for (int64_t t = 0; t < s; t++) {
            const struct attn_figure_point *p = &figure->point[s], *q = &figure->point[t];
            int counts = strcmp(p->status, q->status) == 0 &&
                         (strcmp(p->status, "ok") == 0 || strcmp(p->status, "wrong") == 0 ||
                          strcmp(p->status, "priced") == 0);
            if (counts && p->panel == q->panel && (p->curve == q->curve || is_trade) &&
                p->x != q->x)
                return 1;
        }
    return 0;
}

static void fill(const struct attn_figure_kind *kind, const struct attn_figure_group *group,
                 const struct attn_figure_machine *machine, struct attn_figure *figure)
{
    const char *title = json_string_value(json_object_get(group->wishes, "title"));
    const struct attn_group_word *word = &attn_group_words[group->kind];
    int is_plain = attn_group_of_figure(kind->name) == group->kind;
    *figure = (struct attn_figure){.kind = kind->name,
                                   .script = kind->script,
                                   .x_name = word->x_name,
                                   .x_label = word->x_label,
                                   .x_base = word->base,
                                   .group = group,
                                   .n_drawn = kind->n_drawn,
                                   .memory_bytes = machine->memory_bytes};
    memcpy(figure->column, kind->column, sizeof figure->column);
    while (figure->n_columns < ATTN_FIGURE_COLUMNS && kind->column[figure->n_columns] != NULL)
        figure->n_columns++;
    (void)snprintf(figure->name, sizeof figure->name, "%s%s%s%s%s", kind->name, is_plain ? "" : "-",
                   is_plain ? "" : word->word, group->tag[0] != '\0' ? "-" : "", group->tag);
    (void)snprintf(figure->title, sizeof figure->title, "%s%s%s, %s", kind->title,
                   is_plain ? "" : " against ", is_plain ? "" : word->x_label,
                   title != NULL ? title : group->special);
    (void)snprintf(figure->subtitle, sizeof figure->subtitle, "%.200s%s%s", group->problem,
                   machine->text[0] != '\0' ? "; " : "", machine->text);
    (void)snprintf(figure->remark, sizeof figure->remark, "%s", kind->remark);
    kind->fill(figure);
    attn_figure_finish(figure);
    if (!has_curve(figure))
        (void)snprintf(figure->omitted, sizeof figure->omitted,
                       "group %s has no curve for it: no implementation has two good points",
                       group->name);
}

/* Has a group of this kind such a figure? */
static int has_figure(enum attn_group_kind kind, const char *name)
{
    return kind != ATTN_GROUP_OTHER && attn_cli_listed(attn_group_words[kind].figures, " ", name);
}

void attn_figures_make(const struct attn_figure_groups *groups,
                       const struct attn_figure_machine *machine, struct attn_figures *figures)
{
    figures->n = 0;
    figures->figure = attn_cli_need(calloc((size_t)groups->n * KINDS + 1, sizeof *figures->figure));
    /* All memory figures first, then all time figures, and so on. */
    for (int k = 0; k < KINDS; k++)
        for (int g = 0; g < groups->n; g++) {
            struct attn_figure *figure = &figures->figure[figures->n];
            if (!has_figure(groups->group[g].kind, kinds[k].name))
                continue;
            fill(&kinds[k], &groups->group[g], machine, figure);
            if (strcmp(figure->kind, RANK_TIME) == 0 && figure->n == 0)
                attn_figure_free(figure); /* no simulated ranks: nothing is missing */
            else
                figures->n++;
        }
}

void attn_figures_free(struct attn_figures *figures)
{
    for (int f = 0; f < figures->n; f++)
        attn_figure_free(&figures->figure[f]);
    free(figures->figure);
    *figures = (struct attn_figures){NULL, 0};
}
