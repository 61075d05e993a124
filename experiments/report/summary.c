#include "experiments/report/summary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "optimized/registry.h"

static const double none = (double)NAN; /* the macro is a float */

/* ---- order --------------------------------------------------------------------------------- */

/* A record on its way into a row: with the keys of the order that are not in the point. */
struct entry {
    const struct attn_point *point;
    int64_t group; /* place among the groups, as first met */
    int impl;
};

static int compare_int(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int compare_double(double a, double b)
{
    return (a > b) - (a < b);
}

/* The row that a record belongs to: 0 when a and b share it. */
static int compare_rows(const struct entry *a, const struct entry *b)
{
    const struct attn_point *p = a->point, *q = b->point;
    int order = compare_int(a->group, b->group);
    order = order != 0 ? order : compare_int(a->impl, b->impl);
    char spec_a[128], spec_b[128];
    attn_spec_without_ranks(p->spec, spec_a);
    attn_spec_without_ranks(q->spec, spec_b);
    order = order != 0 ? order : strcmp(spec_a, spec_b);
    order = order != 0 ? order : compare_int((intptr_t)p->origin, (intptr_t)q->origin);
    order = order != 0 ? order : compare_int(p->c.pass, q->c.pass);
    order = order != 0 ? order : strcmp(p->save, q->save);
    order = order != 0 ? order : compare_int(p->layers, q->layers);
    order = order != 0 ? order : compare_int(p->hidden, q->hidden);
    order = order != 0 ? order : compare_int(p->c.n_query, q->c.n_query);
    order = order != 0 ? order : compare_int(p->ranks, q->ranks);
    order = order != 0 ? order : compare_double(p->density, q->density);
    order = order != 0 ? order : strcmp(p->spec, q->spec);
    return order != 0 ? order : strcmp(p->text, q->text);
}

static int compare_entries(const void *a, const void *b)
{
    const struct entry *p = a, *q = b;
    int order = compare_rows(p, q);
    return order != 0 ? order : compare_int(p->point->round, q->point->round);
}

/* Words in the order in which they were first met. */
struct words {
    const char **word; /* room for as many as there are records */
    int64_t n;
};

static int64_t place_in(struct words *words, const char *word)
{
    int64_t place = words->n;
    while (place > 0 && strcmp(words->word[place - 1], word) != 0)
        place--; /* from the end: neighbours are alike */
    if (place > 0)
        return place - 1;
    words->word[words->n] = word;
    return words->n++;
}

/* Place of an implementation in the registry; names that it lacks come after, as first met. */
static int place_of(struct words *others, const char *impl)
{
    int count = attn_impl_count();
    for (int place = 0; place < count; place++)
        if (strcmp(attn_impl_at(place)->name, impl) == 0)
            return place;
    return count + (int)place_in(others, impl);
}

/* ---- folding ------------------------------------------------------------------------------- */

static double larger(double a, double b)
{
    return isnan(a) || b > a ? b : a;
}

/* A ratio that is no number failed in the worst way; JSON has null for it. */
static double ratio_of(const struct attn_point *p)
{
    return isnan(p->worst) && p->status == ATTN_POINT_WRONG ? (double)INFINITY : p->worst;
}

static void fold_errors(struct attn_row *row, const struct attn_point *p)
{
    double worst = ratio_of(p);
    if (!isnan(worst) && (isnan(row->worst) || worst > row->worst)) {
        row->worst = worst;
        memcpy(row->worst_output, p->worst_output, sizeof row->worst_output);
    }
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        row->output[o] = larger(row->output[o], p->output_worst[o]);
}

static void fold_status(struct attn_row *row, const struct attn_point *p)
{
    row->rounds++;
    row->good += p->status == ATTN_POINT_OK;
    if (row->point == NULL || (p->status == ATTN_POINT_OK && row->good == 1))
        row->point = p;
    if (p->status == ATTN_POINT_WRONG || row->status == ATTN_POINT_WRONG)
        row->status = ATTN_POINT_WRONG;
    else
        row->status = row->good > 0 ? ATTN_POINT_OK : row->point->status;
}

/* Rounds of another program under the same name (file, command, or build of ours) do not belong
 * together: those of the last session count (sessions begin with their date).  Nor do times that
 * were taken otherwise. */
static const struct attn_point *last_session(const struct entry *first, int64_t n)
{
    const struct attn_point *last = first[0].point;
    for (int64_t s = 1; s < n; s++)
        if (strcmp(first[s].point->session, last->session) > 0)
            last = first[s].point;
    return last;
}

static int is_same_program(const struct attn_point *p, const struct attn_point *q)
{
    return strcmp(p->source_digest, q->source_digest) == 0 && strcmp(p->build, q->build) == 0;
}

static int is_time(double seconds)
{
    return isfinite(seconds) && seconds > 0;
}

/* The times of the row's own kind and clock, of its good rounds first[0..n), into time[n]; their
 * number.  A wrong result has no time. */
static int take_times(const struct entry *first, int64_t n, const struct attn_row *row,
                      enum attn_call call, double *time)
{
    int found = 0;
    for (int64_t s = 0; row->status != ATTN_POINT_WRONG && s < n; s++) {
        const struct attn_point *p = first[s].point;
        double seconds = attn_point_call_s(p, call);
        if (p->status == ATTN_POINT_OK && is_time(seconds) && is_same_program(p, row->point) &&
            strcmp(p->time_source, row->point->time_source) == 0)
            time[found++] = seconds;
    }
    return found;
}

/* Warm calls, if at least half of the good rounds have some; else first calls, by themselves. */
static void fold_times(const struct entry *first, int64_t n, double *time, struct attn_row *row)
{
    int warm = take_times(first, n, row, ATTN_CALL_WARM, time);
    warm = 2 * warm >= row->good ? warm : 0;
    attn_stats_spread(time, warm, &row->time);
    row->times = (struct attn_samples){time, warm};
    (void)attn_stats_bootstrap_median(time, warm, ATTN_SUMMARY_DRAWS, 1, 0.95, &row->time_interval);
    int single = warm == 0 ? take_times(first, n, row, ATTN_CALL_FIRST, time) : 0;
    attn_stats_spread(time, single, &row->single);
}

/* The rounds first[0..n) of one row; sample has room for 2n numbers. */
static void fold(const struct entry *first, int64_t n, double *sample, struct attn_row *row)
{
    int n_resident = 0;
    *row = (struct attn_row){.impl = first->impl,
                             .priced = -1,
                             .ledger = -1,
                             .process = -1,
                             .resident = -1,
                             .peak = -1,
                             .worst = none};
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        row->output[o] = none;
    const struct attn_point *last = last_session(first, n);
    for (int64_t s = 0; s < n; s++) {
        const struct attn_point *p = first[s].point;
        if (!is_same_program(p, last))
            continue;
        fold_status(row, p);
        fold_errors(row, p);
        row->priced = p->priced_bytes > row->priced ? p->priced_bytes : row->priced;
        if (p->status != ATTN_POINT_OK)
            continue;
        row->ledger = p->ledger_bytes > row->ledger ? p->ledger_bytes : row->ledger;
        row->process =
            p->process_ledger_bytes > row->process ? p->process_ledger_bytes : row->process;
        if (p->resident_bytes >= 0)
            sample[n_resident++] = (double)p->resident_bytes;
    }
    struct attn_spread spread;
    attn_stats_spread(sample, n_resident, &spread);
    row->residents = (struct attn_samples){sample, n_resident};
    if (n_resident > 0)
        row->resident = (int64_t)spread.median;
    row->peak = row->point->route[0] == '\0' ? row->ledger : row->resident;
    fold_times(first, n, sample + n, row);
}

/* words has room for 2n. */
static void enter(const struct attn_point *points, int64_t n, const char **words,
                  struct entry *entry)
{
    struct words groups = {words, 0}, others = {words + n, 0};
    for (int64_t s = 0; s < n; s++)
        entry[s] = (struct entry){&points[s], place_in(&groups, points[s].group),
                                  place_of(&others, points[s].impl)};
    qsort(entry, (size_t)n, sizeof *entry, compare_entries);
}

void attn_summary_make(const struct attn_point *points, int64_t n, struct attn_summary *summary)
{
    struct entry *entry = attn_cli_need(malloc(((size_t)n + 1) * sizeof *entry));
    double *sample = attn_cli_need(malloc((2 * (size_t)n + 1) * sizeof *sample));
    const char **words = attn_cli_need(malloc((2 * (size_t)n + 1) * sizeof *words));
    struct attn_row *row = attn_cli_need(malloc(((size_t)n + 1) * sizeof *row));
    summary->n = 0;
    enter(points, n, words, entry);
    for (int64_t s = 0, end; s < n; s = end) {
        for (end = s + 1; end < n && compare_rows(&entry[s], &entry[end]) == 0; end++)
            ;
        fold(&entry[s], end - s, sample + 2 * s, &row[summary->n++]);
    }
    summary->row = row;
    summary->sample = sample;
    free(entry);
    free(words);
}

void attn_summary_free(struct attn_summary *summary)
{
    free(summary->row);
    free(summary->sample);
    *summary = (struct attn_summary){NULL, NULL, 0};
}
