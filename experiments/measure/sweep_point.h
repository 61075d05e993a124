/* The steps of a sweep: one point measured, refused, recorded.  For sweep.c. */
#ifndef EXPERIMENTS_MEASURE_SWEEP_POINT_H
#define EXPERIMENTS_MEASURE_SWEEP_POINT_H

#include <stdio.h>

#include "experiments/measure/budget.h"
#include "experiments/measure/machine.h"
#include "experiments/measure/sweep.h"

struct attn_sweep {
    const struct attn_plan *plan;
    const struct attn_sweep_options *options;
    struct attn_sweep_state *state; /* [plan->n] */
    struct attn_budget budget;      /* of these  */
    char *done;                     /* [plan->n][rounds] */
    FILE *file;
    char session[32], build[ATTN_BUILD_TEXT];
    double begin_s, shown_s; /* the clock when it began; seconds until it last showed something */
    double probed_s;         /* spent on probes                                            */
    double promised_s;       /* what all begun courses still need                          */
    int progress;            /* standard error is a terminal */
    int64_t n_resumed, n_written, n_status[ATTN_POINT_ERROR + 1];
};

/* Wall seconds since the clock of the budget was started. */
double attn_sweep_elapsed(const struct attn_sweep *sweep);

/* Price a course; one that is refused gets its status and is recorded when its turn comes. */
void attn_sweep_price(struct attn_sweep *sweep, struct attn_sweep_state *state);

/* Run a small problem like that of a course, one process, not recorded as a point: its rates go
 * into course->taken, and a calibration line says so.  Where it cannot be run, nothing changes.
 * 0, or -1 with errno when the line could not be written. */
int attn_sweep_probe(struct attn_sweep *sweep, struct attn_sweep_state *state);

/* Take over what a record of a course says: its times, its verification, its end. */
void attn_sweep_keep(struct attn_sweep *sweep, struct attn_sweep_state *state,
                     const struct attn_point *point);

/* Run one round of a course in a fresh process and record it; nothing is recorded when an
 * interrupt ended it.  Record that a round is not run: the course ends there.
 * 0, or -1 with errno when the record could not be written. */
int attn_sweep_measure(struct attn_sweep *sweep, struct attn_sweep_state *state, int round);
int attn_sweep_refuse(struct attn_sweep *sweep, struct attn_sweep_state *state, int round,
                      enum attn_point_status status, const char *message);

/* The last lines on standard error, the number of points that ended as errors, and the exit
 * status. */
int attn_sweep_end(struct attn_sweep *sweep, const char *path, int64_t *n_errors);

#endif
