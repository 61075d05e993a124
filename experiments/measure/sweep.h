/* A sweep: a plan carried out, one fresh process for each point and round, records appended.
 *
 * Round 0 goes from cheap to dear, by the flops of prices; the others in seeded random order.
 * docs/measuring.md says where a curve stops, and what the budget ends.
 */
#ifndef EXPERIMENTS_MEASURE_SWEEP_H
#define EXPERIMENTS_MEASURE_SWEEP_H

#include "experiments/measure/plan.h"

/* Carry out the plan into a file of records, which is made or continued: points that it already
 * holds, measured by this very build, are not measured again.  is_dry: print the points with their
 * prices to stdout, and run nothing; is_quiet: no progress, even on a terminal.
 * Everything that can happen to a point is a record; the exit status is of the sweep: GOOD;
 * DISAGREE when a point computed a wrong result; LACKS (disk full, file locked by another sweep,
 * interrupted), USAGE (no file of records).  *n_errors: points of a sweep that came to its end
 * whose record says "error".  Messages go to stderr. */
int attn_sweep_run(const struct attn_plan *plan, const char *out_path, int is_dry, int is_quiet,
                   int64_t *n_errors);

#endif
