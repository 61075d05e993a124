/* The clocks and the hardware counters around a sample. */
#ifndef EXPERIMENTS_BENCH_BENCH_WATCH_H
#define EXPERIMENTS_BENCH_BENCH_WATCH_H

#include <stdint.h>

/* Hardware events: of all threads that were started after attn_counters_open, and of this one. */
enum attn_counter { ATTN_COUNT_CYCLES, ATTN_COUNT_INSTRUCTIONS, ATTN_COUNT_MISSES, ATTN_COUNTERS };
const char *attn_counter_name(enum attn_counter counter); /* "cycles", "instructions", ... */

struct attn_counters {
    int fd[ATTN_COUNTERS]; /* -1: the machine does not count it */
    char why_not[128];     /* "" when all are there             */
};
void attn_counters_open(struct attn_counters *counters);
void attn_counters_close(struct attn_counters *counters);

struct attn_bench_watch {
    double wall_s, cpu_s; /* of all threads                                                  */
    double counter[ATTN_COUNTERS]; /* NaN: not counted */
    const struct attn_counters *counters;
};

/* What is watched is between these two; the clock is read last in one, first in the other. */
void attn_bench_watch_start(struct attn_bench_watch *watch, const struct attn_counters *counters);
void attn_bench_watch_stop(struct attn_bench_watch *watch);

#endif
