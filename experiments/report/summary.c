#include "experiments/report/summary.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "optimized/integers.h"
#include "optimized/registry.h"

static const double none = (double)NAN; /* the macro is a float */

/* ---- order --------------------------------------------------------------------------------- */

/* A record on its way into a row.  Records of one row have the same key, and rows stand by their
 * keys. */
struct entry {
    const struct attn_point *point;
    int impl;
    char *key;
};

static int compare_entries(const void *a, const void *b)
{
    const struct entry *p = a, *q = b;
    int order = strcmp(p->key, q->key);
    return order != 0 ? order : p->point->round - q->point->round;
}

/* The place of a word among those that were met before; a new one comes last. */
static int place_in(json_t *words, const char *word)
{
    if (json_object_get(words, word) == NULL)
        json_object_set_new_nocheck(words, word, json_integer((json_int_t)json_object_size(words)));
    return (int)json_integer_value(json_object_get(words, word));
}

/* Place of an implementation in the registry; names that it lacks come after, as first met. */
static int place_of(json_t *others, const char *impl)
{
    int count = attn_impl_count();
    for (int place = 0; place < count; place++)
        if (strcmp(attn_impl_at(place)->name, impl) == 0)
            return place;
    return count + place_in(others, impl);
}

/* The key that distinguishes rows, its parts in the order of their weight.  Behind each text stands
 * a byte less than any character. */
static char *key_of(const struct attn_point *p, int group, int impl)
{
    char spec[128];
    attn_spec_without_ranks(p->spec, spec);
    return attn_cli_text("%08d%08d%s\001%d%d%08lld%020lld%08d%020.17f%s\001%s", group, impl, spec,
                         (int)p->c.pass, (int)p->stack.save, (long long)p->stack.n,
                         (long long)p->c.n_query, p->ranks, p->density, p->spec, p->text);
}

static struct entry *sort_entries(const struct attn_point *points, int64_t n)
{
    struct entry *entry = attn_cli_need(malloc(((size_t)n + 1) * sizeof *entry));
    json_t *groups = json_object(), *others = json_object();
    for (int64_t s = 0; s < n; s++) {
        const struct attn_point *p = &points[s];
        int impl = place_of(others, p->impl), group = place_in(groups, p->group);
        entry[s] = (struct entry){p, impl, key_of(p, group, impl)};
    }
    json_decref(groups);
    json_decref(others);
    qsort(entry, (size_t)n, sizeof *entry, compare_entries);
    return entry;
}

/* ---- folding ------------------------------------------------------------------------------- */

static double larger(double a, double b)
{
    return isnan(a) || b > a ? b : a;
}

/* A ratio that is no number failed in the worst way; JSON has null for it. */
static void fold_errors(struct attn_row *row, const struct attn_point *p)
{
    int is_lost = isnan(p->judged.worst) && p->status == ATTN_POINT_WRONG;
    row->worst = larger(row->worst, is_lost ? (double)INFINITY : p->judged.worst);
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        row->output[o] = larger(row->output[o], p->judged.output[o]);
        row->error[o] = larger(row->error[o], p->judged.error[o]);
    }
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

/* The median of a number of the good rounds; place: in a point.  sample has room for n. */
static double median_of(const struct entry *first, int64_t n, const struct attn_row *row,
                        size_t place, double *sample)
{
    int found = 0;
    for (int64_t s = 0; s < n; s++) {
        const struct attn_point *p = first[s].point;
        double value = *(const double *)((const char *)p + place);
        if (p->status == ATTN_POINT_OK && is_same_program(p, row->point) && isfinite(value))
            sample[found++] = value;
    }
    struct attn_spread spread;
    attn_stats_spread(sample, found, &spread);
    return spread.median;
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
        row->output[o] = row->error[o] = none;
    const struct attn_point *last = last_session(first, n);
    for (int64_t s = 0; s < n; s++) {
        const struct attn_point *p = first[s].point;
        if (!is_same_program(p, last))
            continue;
        fold_status(row, p);
        fold_errors(row, p);
        row->priced = greater(p->price.peak, row->priced);
        if (p->status != ATTN_POINT_OK)
            continue;
        row->ledger = greater(p->ledger_bytes, row->ledger);
        row->process = greater(p->process_ledger_bytes, row->process);
        if (p->resident_bytes >= 0)
            sample[n_resident++] = (double)p->resident_bytes;
    }
    struct attn_spread spread;
    attn_stats_spread(sample, n_resident, &spread);
    row->residents = (struct attn_samples){sample, n_resident};
    if (n_resident > 0)
        row->resident = attn_cli_to_bytes(spread.median);
    row->peak = row->point->route[0] == '\0' ? row->ledger : row->resident;
    row->peak_rate =
        median_of(first, n, row, offsetof(struct attn_point, peak_flops_s), sample + n);
    row->read_rate =
        median_of(first, n, row, offsetof(struct attn_point, read_bytes_s), sample + n);
    fold_times(first, n, sample + n, row);
}

void attn_summary_make(const struct attn_point *points, int64_t n, struct attn_summary *summary)
{
    struct entry *entry = sort_entries(points, n);
    summary->sample = attn_cli_need(malloc((2 * (size_t)n + 1) * sizeof *summary->sample));
    summary->row = attn_cli_need(malloc(((size_t)n + 1) * sizeof *summary->row));
    summary->n = 0;
    for (int64_t s = 0, end; s < n; s = end) {
        for (end = s + 1; end < n && strcmp(entry[s].key, entry[end].key) == 0; end++)
            ;
        fold(&entry[s], end - s, summary->sample + 2 * s, &summary->row[summary->n++]);
    }
    for (int64_t s = 0; s < n; s++)
        free(entry[s].key);
    free(entry);
}

void attn_summary_free(struct attn_summary *summary)
{
    free(summary->row);
    free(summary->sample);
    *summary = (struct attn_summary){NULL, NULL, 0};
}
