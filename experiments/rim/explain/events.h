/* Buffers as they are taken and given back: every event of the ledgers of a call, in order, and the
 * peak, which must be the price. */
#ifndef EXPERIMENTS_RIM_EXPLAIN_EVENTS_H
#define EXPERIMENTS_RIM_EXPLAIN_EVENTS_H

#include <pthread.h>

#include "experiments/rim/explain/handout.h"
#include "optimized/registry.h"

struct attn_event {
    enum attn_pass pass;
    int rank;
    const char *name;
    int64_t bytes, live; /* below 0: given back; what is live then */
    int64_t order;
};

struct attn_events {
    struct attn_ledger_tracer tracer; /* give it to a ledger; it points to this struct */
    int has_ranks;                    /* each has its own price; else the process has one */
    enum attn_pass pass;              /* of the call that comes next */
    int64_t n, capacity;
    struct attn_event *event;
    pthread_mutex_t lock;
};

void attn_events_open(struct attn_events *events, int has_ranks);
void attn_events_close(struct attn_events *events);
void attn_events_sort(struct attn_events *events); /* by pass, then by rank */

/* A table for each pass and rank up to `last`, and its price.  EINTERNAL: the peak is another
 * number. */
enum attn_status attn_events_show(const struct attn_events *events, const struct attn_spec *spec,
                                  const struct attn_problem *problem, enum attn_pass last,
                                  struct attn_handout *handout, struct attn_error *err);

#endif
