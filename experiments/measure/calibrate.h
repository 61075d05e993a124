/* Calibration: known quantities, measured by the means that measure everything else. */
#ifndef EXPERIMENTS_MEASURE_CALIBRATE_H
#define EXPERIMENTS_MEASURE_CALIBRATE_H

#include <stdio.h>

#include "experiments/measure/record.h"

/* In this process, which must be fresh: take `bytes` from a ledger, write them, and print
 * the record that compares them with VmHWM.  Returns an exit status. */
int attn_calibrate_memory_here(int64_t bytes);

/* The records at the head of a session: a known amount of memory in a fresh process, an A/A pair of
 * equal points.  A memory error above 2 % is also said on stderr.  0, or -1: with errno
 * when a record could not be written, with err->text when a process could not be run. */
int attn_calibrate_session(FILE *file, const char *session, struct attn_error *err);

#endif
