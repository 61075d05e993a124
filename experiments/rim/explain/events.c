/* See events.h. */
#include "experiments/rim/explain/events.h"

#include <stdio.h>
#include <stdlib.h>

#include "experiments/cli/cli.h"
#include "ref/impl.h"

static void on_block(void *arg, const struct attn_ledger *ledger, const char *name, int64_t bytes)
{
    struct attn_events *events = arg;
    int rank = events->has_ranks ? ledger->owner - 1 : ledger->owner;
    if (rank < 0)
        return;
    pthread_mutex_lock(&events->lock);
    if (events->n == events->capacity) {
        events->capacity = 2 * events->capacity + 64;
        events->event =
            attn_cli_need(realloc(events->event, (size_t)events->capacity * sizeof *events->event));
    }
    events->event[events->n] =
        (struct attn_event){events->pass, rank, name, bytes, ledger->now, events->n};
    events->n++;
    pthread_mutex_unlock(&events->lock);
}

void attn_events_open(struct attn_events *events, int has_ranks)
{
    *events = (struct attn_events){.tracer = {on_block, events}, .has_ranks = has_ranks};
    pthread_mutex_init(&events->lock, NULL);
}

void attn_events_close(struct attn_events *events)
{
    free(events->event);
    pthread_mutex_destroy(&events->lock);
    *events = (struct attn_events){0};
}

static int by_rank(const void *a, const void *b)
{
    const struct attn_event *x = a, *y = b;
    if (x->pass != y->pass)
        return x->pass < y->pass ? -1 : 1;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->order < y->order ? -1 : 1;
}

void attn_events_sort(struct attn_events *events)
{
    if (events->n > 0)
        qsort(events->event, (size_t)events->n, sizeof *events->event, by_rank);
}

/* [first, end): those of one pass and rank.  Returns the largest live, and which event has it
 * first. */
static int64_t peak_of(const struct attn_event *first, const struct attn_event *end,
                       const struct attn_event **at)
{
    int64_t peak = first < end ? first->live - first->bytes : 0;
    *at = NULL;
    for (const struct attn_event *e = first; e < end; e++)
        if (e->live > peak) {
            peak = e->live;
            *at = e;
        }
    return peak;
}

static void show_table(const struct attn_event *first, const struct attn_event *end,
                       struct attn_handout *handout)
{
    static const char *const head[] = {"event", "buffer", "bytes", "live", "at most"};
    struct attn_table t;
    char number[32];
    const struct attn_event *peak;
    peak_of(first, end, &peak);
    attn_table_open(&t, end - first, 5, 1);
    for (int c = 0; c < 5; c++)
        snprintf(attn_table_cell(&t, -1, c), ATTN_CELL, "%s", head[c]);
    for (int64_t r = 0; r < t.rows; r++) {
        const struct attn_event *e = first + r;
        snprintf(attn_table_cell(&t, r, 0), ATTN_CELL, "%s", e->bytes < 0 ? "give back" : "take");
        snprintf(attn_table_cell(&t, r, 1), ATTN_CELL, "%s", e->name);
        snprintf(attn_table_cell(&t, r, 2), ATTN_CELL, "%s", attn_cli_grouped(e->bytes, number));
        snprintf(attn_table_cell(&t, r, 3), ATTN_CELL, "%s", attn_cli_grouped(e->live, number));
        snprintf(attn_table_cell(&t, r, 4), ATTN_CELL, "%s", e == peak ? "<- peak" : "");
    }
    attn_handout_table(handout, &t);
    attn_table_close(&t);
}

static enum attn_status show_rank(const struct attn_events *events, const struct attn_spec *spec,
                                  const struct attn_problem *problem, enum attn_pass pass, int rank,
                                  struct attn_handout *handout, struct attn_error *err)
{
    struct attn_cost cost;
    const struct attn_event *first = events->event, *end = events->event + events->n, *at;
    char text[160], peak_text[32], price_text[32];
    while (first < end && (first->pass != pass || first->rank != rank))
        first++;
    for (end = first; end < events->event + events->n && end->pass == pass && end->rank == rank;)
        end++;
    enum attn_status status =
        attn_price(spec->impl, &spec->options, problem, pass, rank, &cost, err);
    if (status != ATTN_OK)
        return status;
    int64_t peak = peak_of(first, end, &at);
    snprintf(text, sizeof text, events->has_ranks ? "%s, rank %d" : "%s",
             pass == ATTN_FORWARD ? "Forward" : "Backward", rank);
    attn_handout_heading(handout, text);
    show_table(first, end, handout);
    if (peak != cost.peak_bytes)
        return attn_fail(err, ATTN_EINTERNAL, "%s: the peak is %lld B, and the price %lld B", text,
                         (long long)peak, (long long)cost.peak_bytes);
    snprintf(text, sizeof text, "Peak %s B, price %s B.", attn_cli_grouped(peak, peak_text),
             attn_cli_grouped(cost.peak_bytes, price_text));
    attn_handout_words(handout, text);
    return ATTN_OK;
}

enum attn_status attn_events_show(const struct attn_events *events, const struct attn_spec *spec,
                                  const struct attn_problem *problem, enum attn_pass last,
                                  struct attn_handout *handout, struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    int ranks = attn_ranks(spec->impl, &spec->options);
    for (int pass = ATTN_FORWARD; pass <= (int)last; pass++)
        for (int rank = 0; rank < ranks && status == ATTN_OK; rank++)
            status = show_rank(events, spec, problem, (enum attn_pass)pass, rank, handout, err);
    return status;
}
