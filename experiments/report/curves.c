#include "experiments/report/curves.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/preflight.h"
#include "optimized/registry.h"
#include "tests/harness/base/fileio.h"

static const double none = (double)NAN; /* the macro is a float */

/* ---- rows ------------------------------------------------------------------------------------ */

const struct attn_spread *attn_row_calls(const struct attn_row *row)
{
    return row->time.n > 0 ? &row->time : &row->single;
}

int attn_row_is_choice(const struct attn_row *row)
{
    return row->point->ranks == 1 && row->peak > 0 && attn_row_calls(row)->n > 0;
}

int attn_row_is_ours(const struct attn_row *row)
{
    return row->point->route[0] == '\0';
}

int attn_row_is_level(const struct attn_row *row)
{
    const struct attn_impl *impl = attn_impl_find(row->point->impl);
    return impl == NULL || impl->ranks == NULL;
}

int attn_group_most_ranks(const struct attn_figure_group *group)
{
    int most = 1;
    for (int64_t s = 0; s < group->n; s++)
        most = group->row[s]->point->ranks > most ? group->row[s]->point->ranks : most;
    return most;
}

/* ---- one curve: rows [0, n) of one label and pass, by x -------------------------------------- */

/* Where a point of ours was not measured, its price, which is the ledger to the byte. */
static double peak_of(const struct attn_row *row)
{
    int is_known = attn_row_is_ours(row) || row->peak >= ATTN_RESIDENT_FROM;
    if (row->status == ATTN_POINT_OK)
        return is_known && row->peak > 0 ? (double)row->peak : none;
    return row->status != ATTN_POINT_WRONG && row->priced > 0 ? (double)row->priced : none;
}

static double seconds_of(const struct attn_row *row)
{
    return row->status == ATTN_POINT_OK && row->time.n > 0 ? row->time.median : none;
}

static double price_of(const struct attn_row *row)
{
    return row->priced > 0 ? (double)row->priced : none;
}

/* The numbers of the rows that have one, in x and y with room for n, which are to be freed by x. */
static struct attn_stats_curve take(struct attn_row *const *row, int64_t n,
                                    double (*of)(const struct attn_row *row))
{
    double *x = attn_cli_need(malloc(2 * (size_t)n * sizeof *x)), *y = x + n;
    int taken = 0;
    for (int64_t s = 0; s < n; s++) {
        y[taken] = of(row[s]);
        x[taken] = row[s]->x;
        taken += !isnan(y[taken]);
    }
    return (struct attn_stats_curve){x, y, taken};
}

static void drop(struct attn_stats_curve *curve)
{
    free((double *)(uintptr_t)curve->x);
}

/* The exponent, fitted to the upper part.  n = 0: none, as the points are too few or no power of x,
 * or its interval is wide. */
static struct attn_power fit(struct attn_row *const *row, int64_t n,
                             double (*of)(const struct attn_row *row))
{
    static const double WIDEST = 0.5, LEAST_POWER = 0.2;
    struct attn_power power = {.n = 0};
    struct attn_stats_curve c = take(row, n, of);
    int first = attn_stats_upper(c.x, c.n);
    if (attn_stats_power(c.x + first, c.y + first, c.n - first, &power) != 0 ||
        power.interval.high - power.interval.low > WIDEST || power.worst > LEAST_POWER)
        power.n = 0;
    drop(&c);
    return power;
}

/* The value at the fewest ranks, falling as 1/R. */
static void guide(struct attn_row *const *row, int64_t n)
{
    double ideal = none, total_ideal = none; /* times R */
    for (int64_t s = 0; s < n; s++) {
        struct attn_row *r = row[s];
        if (isnan(ideal) && !r->is_alone && r->priced > 0)
            ideal = (double)r->priced * r->x;
        if (isnan(total_ideal) && r->point->price.device > 0)
            total_ideal = r->point->price.device * r->x;
        r->ideal = r->is_alone ? none : ideal / r->x;
        r->total_ideal = total_ideal / r->x;
    }
}

static void study_curve(const struct attn_figure_group *group, struct attn_row *const *row,
                        int64_t n)
{
    struct attn_power time = fit(row, n, seconds_of), memory = {.n = 0};
    if (group->kind != ATTN_GROUP_LAYERS) /* what is kept grows beside what one layer takes */
        memory = fit(row, n, peak_of);
    for (int64_t s = 0; s < n; s++) {
        row[s]->time_power = time;
        row[s]->bytes_power = memory;
        row[s]->is_beyond =
            row[s]->status != ATTN_POINT_OK ||
            (s + 1 < n && row[s + 1]->status != ATTN_POINT_OK && row[s + 1]->priced > 0);
    }
}

/* ---- of ranks -------------------------------------------------------------------------------- */

/* Bytes sent by the busiest rank, by the formula; NaN when the case has no price. */
static double priced_sent(const struct attn_point *of)
{
    struct attn_spec spec;
    struct attn_point point;
    int64_t need;
    attn_point_init(&point);
    point.c = of->c;
    point.price.sent = 0;
    if (attn_spec_parse(of->spec, &spec, NULL) != ATTN_OK ||
        attn_preflight_case(&spec, &of->c, &point, &need, NULL) != ATTN_OK)
        return none;
    return point.price.sent > 0 ? (double)point.price.sent : none;
}

/* A rank alone has no neighbours: what it has beside its share is not of the curve.  Where a single
 * process is in the group, the guide falls from there; else each curve has its own. */
static void study_ranks(struct attn_figure_group *group)
{
    int has_level = 0, has_processes = 0;
    for (int64_t s = 0; s < group->n; s++)
        has_processes |= group->row[s]->point->n_processes > 0;
    for (int64_t s = 0; s < group->n; s++) {
        struct attn_row *row = group->row[s];
        row->of_processes =
            has_processes && (row->point->n_processes > 0 || row->point->ranks == 1);
        int is_level = attn_row_is_level(row);
        has_level |= is_level;
        row->is_alone = !is_level && row->point->ranks == 1;
        row->sent = row->point->ranks > 1 ? priced_sent(row->point) : none;
        if (is_level && row->point->price.device > 0)
            row->total_ideal = row->point->price.device;
    }
    for (int64_t s = 0, end; s < group->n && !has_level; s = end) {
        end = attn_group_curve_end(group, s);
        guide(&group->row[s], end - s);
    }
}

/* ---- memory against time --------------------------------------------------------------------- */

/* The frontier of a pass: of our points alone, as others have no ledger, and of one kind of
 * call. */
static void find_frontier(struct attn_figure_group *group, enum attn_pass pass, int has_more)
{
    size_t n = (size_t)group->n;
    double *x = attn_cli_need(malloc(2 * n * sizeof *x)), *y = x + n;
    int *is_best = attn_cli_need(malloc(n * sizeof *is_best)), has_warm = 0, n_there = 0,
        n_best = 0;
    char *text = group->finding_of_bytes;
    for (size_t i = 0; i < n; i++) {
        const struct attn_row *row = group->row[i];
        int is_there = attn_row_is_choice(row) && row->point->c.pass == pass;
        y[i] = is_there && attn_row_is_ours(row) ? (double)row->peak : none;
        has_warm |= !isnan(y[i]) && row->time.n > 0;
        n_there += is_there;
    }
    for (size_t i = 0; i < n; i++) {
        x[i] = isnan(y[i]) ? none : attn_row_calls(group->row[i])->median;
        y[i] = has_warm && group->row[i]->time.n == 0 ? none : y[i];
    }
    attn_stats_frontier(x, y, (int)n, is_best);
    for (size_t i = 0; i < n; i++) {
        group->row[i]->is_frontier |= is_best[i];
        n_best += is_best[i];
    }
    if (n_there > 0)
        attn_append(text, sizeof group->finding_of_bytes, "%s%d of %d points%s%s",
                    text[0] != '\0' ? ", " : "On the frontier: ", n_best, n_there,
                    has_more ? " " : "", has_more ? attn_pass_word(pass) : "");
    free(is_best);
    free(x);
}

static void find_frontiers(struct attn_figure_group *group)
{
    int has[2] = {0, 0};
    for (int64_t s = 0; s < group->n; s++)
        has[group->row[s]->point->c.pass] |= attn_row_is_choice(group->row[s]);
    for (int pass = ATTN_FORWARD; pass <= ATTN_BACKWARD; pass++)
        if (has[pass])
            find_frontier(group, (enum attn_pass)pass, has[0] && has[1]);
}

/* ---- where csr meets dense ------------------------------------------------------------------- */

/* Two curves of a pass, as rows. */
struct pair {
    struct attn_row *const *csr, *const *dense;
    int64_t n_csr, n_dense;
};

/* The samples of the good rows, in *owner, to be freed; of a resident set only those that a figure
 * shows. */
static struct attn_sampled_curve samples_of(struct attn_row *const *row, int64_t n, int of_memory,
                                            void **owner)
{
    struct attn_samples *sample =
        attn_cli_need(malloc((size_t)n * (sizeof *sample + sizeof(double))));
    double *x = (double *)(sample + n);
    int taken = 0;
    for (int64_t s = 0; s < n; s++) {
        const struct attn_samples *of = of_memory ? &row[s]->residents : &row[s]->times;
        if (of->n == 0 || row[s]->status != ATTN_POINT_OK ||
            (of_memory && row[s]->peak < ATTN_RESIDENT_FROM))
            continue;
        x[taken] = row[s]->x;
        sample[taken++] = *of;
    }
    *owner = sample;
    return (struct attn_sampled_curve){x, sample, taken};
}

/* Where the samples cross.  1: they do; 0; -1: there are none. */
static int measured_crossing(const struct pair *pair, int of_memory, struct attn_crossing *crossing,
                             int *is_below)
{
    void *owner[2];
    struct attn_sampled_curve a = samples_of(pair->csr, pair->n_csr, of_memory, &owner[0]),
                              b = samples_of(pair->dense, pair->n_dense, of_memory, &owner[1]);
    int known = a.n > 0 && b.n > 0;
    int found =
        known ? attn_stats_bootstrap_crossing(&a, &b, ATTN_SUMMARY_DRAWS, 1, 0.95, crossing) : -1;
    *is_below = known && a.sample[0].value[0] < b.sample[0].value[0];
    free(owner[0]);
    free(owner[1]);
    return found;
}

/* By the price: 1 and where, 0, or -1 where there is none. */
static int priced_crossing(const struct pair *pair, double *at, double *height, int *is_below)
{
    struct attn_stats_curve sparse = take(pair->csr, pair->n_csr, price_of),
                            flat = take(pair->dense, pair->n_dense, price_of);
    int known = sparse.n > 0 && flat.n > 0;
    int found = known ? attn_stats_crossing(&sparse, &flat, at, height) : -1;
    *is_below = known && sparse.y[0] < flat.y[0];
    drop(&flat);
    drop(&sparse);
    return found;
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

/* In words: of memory by the price, which is a column too, and by the resident set; of time by what
 * was measured. */
static void find_crossing(struct attn_figure_group *group, const struct pair *pair, int of_memory)
{
    double at = none, height = none;
    const char *flat = attn_group_legend(group, pair->dense[0]);
    char number[32], *text = of_memory ? group->finding_of_bytes : group->finding_of_time;
    size_t size = sizeof group->finding_of_bytes;
    struct attn_crossing measured;
    int is_below, is_priced_below = 0;
    int is_measured = measured_crossing(pair, of_memory, &measured, &is_below);
    int found = of_memory ? priced_crossing(pair, &at, &height, &is_priced_below) : is_measured;
    if (found < 0)
        return;
    attn_append(text, size, "%s%.40s", text[0] != '\0' ? "; " : "",
                attn_group_legend(group, pair->csr[0]));
    if (found == 0) {
        attn_append(text, size, " never crosses %.40s and takes %s", flat,
                    (of_memory ? is_priced_below : is_below) ? "less" : "more");
    } else if (!of_memory) {
        attn_append(text, size, " takes as long as %.40s at density ", flat);
        group->is_of_one_round[0] |= isnan(measured.interval.low);
        say_interval(&measured, text, size);
    } else {
        attn_append(text, size, " takes as much as %.40s at density %.3f (%s, %s: circle)", flat,
                    at, attn_cli_bytes((int64_t)height, number),
                    attn_pass_word(pair->csr[0]->point->c.pass));
        pair->csr[0]->crossing = at;
        pair->csr[0]->crossing_bytes = height;
        if (is_measured == 1) {
            attn_append(text, size, ", resident at ");
            group->is_of_one_round[1] |= isnan(measured.interval.low);
            say_interval(&measured, text, size);
        }
    }
}

/* The first curve of a dense implementation, of this pass and file; -1: none.  *end: behind it. */
static int64_t find_dense(const struct attn_figure_group *group, const struct attn_point *of,
                          int64_t *end)
{
    for (int64_t s = 0; s < group->n; s = *end) {
        const struct attn_point *p = group->row[s]->point;
        *end = attn_group_curve_end(group, s);
        if (strcmp(p->family, "dense") == 0 && p->c.pass == of->c.pass)
            return s;
    }
    return -1;
}

/* Each csr curve against the first dense one, pass by pass. */
static void find_crossings(struct attn_figure_group *group)
{
    for (int pass = ATTN_FORWARD; pass <= ATTN_BACKWARD; pass++)
        for (int64_t s = 0, end; s < group->n; s = end) {
            const struct attn_point *p = group->row[s]->point;
            int64_t dense_end, dense = find_dense(group, p, &dense_end);
            end = attn_group_curve_end(group, s);
            if (p->c.pass != (enum attn_pass)pass || strcmp(p->family, "csr") != 0 || dense < 0)
                continue;
            struct pair pair = {&group->row[s], &group->row[dense], end - s, dense_end - dense};
            find_crossing(group, &pair, 1);
            find_crossing(group, &pair, 0);
        }
}

/* ---- the group ------------------------------------------------------------------------------- */

static double larger(double a, double b)
{
    return isnan(a) || b > a ? b : a;
}

/* Both passes judge O and LSE: the first row of a label and x has the larger ratio. */
static void judge_once(struct attn_figure_group *group)
{
    for (int64_t s = 0; s < group->n; s++) {
        struct attn_row *row = group->row[s], *first = row;
        row->judged = row->worst;
        for (int o = 0; o < ATTN_OUTPUTS; o++)
            row->judged = isnan(row->output[o]) ? row->judged : none; /* it tells them apart */
        row->is_sample = strstr(row->point->judged.verified, "rows") != NULL;
        memcpy(row->judged_output, row->output, sizeof row->output);
        for (int64_t t = s - 1; t >= 0 && group->row[t]->first == row->first; t--)
            if (group->row[t]->point->c.n_query == row->point->c.n_query &&
                group->row[t]->x == row->x)
                first = group->row[t];
        if (first == row)
            continue;
        first->is_sample |= row->is_sample;
        first->judged = larger(first->judged, row->judged);
        row->judged = none;
        for (int o = 0; o < ATTN_OUTPUTS; o++) {
            first->judged_output[o] = larger(first->judged_output[o], row->judged_output[o]);
            row->judged_output[o] = none;
        }
    }
}

static void study_group(struct attn_figure_group *group)
{
    for (int64_t s = 0; s < group->n; s++) {
        struct attn_row *row = group->row[s];
        row->ideal = row->total_ideal = row->sent = row->crossing = row->crossing_bytes = none;
        row->is_alone = row->is_frontier = row->of_processes = 0;
    }
    for (int64_t s = 0, end; s < group->n; s = end) {
        end = attn_group_curve_end(group, s);
        study_curve(group, &group->row[s], end - s);
    }
    judge_once(group);
    if (group->kind == ATTN_GROUP_RANKS)
        study_ranks(group);
    if (group->kind == ATTN_GROUP_TRADE)
        find_frontiers(group);
    if (group->kind == ATTN_GROUP_DENSITY)
        find_crossings(group);
}

void attn_curves_study(struct attn_figure_groups *groups)
{
    for (int g = 0; g < groups->n; g++)
        study_group(&groups->group[g]);
}
