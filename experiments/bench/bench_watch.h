/* What else happened while something was timed.
 *
 * A wall clock also counts the time in which others had the processor.  A sample is clean when its
 * threads hardly waited for one: what is not clean is taken again, and counted.
 */
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
    double waited_s;      /* of all threads: ready to run, and somebody else ran; NaN: unknown */
    int64_t switches;     /* of all threads: sent away from a processor                        */
    double counter[ATTN_COUNTERS]; /* NaN: not counted */
    const struct attn_counters *counters;
};

/* What is watched is between these two; the clock is read last in one, first in the other. */
void attn_bench_watch_start(struct attn_bench_watch *watch, const struct attn_counters *counters);
void attn_bench_watch_stop(struct attn_bench_watch *watch);

/* At most a fiftieth of its processor time waited.  Where the kernel does not tell: switches not
 * above 2 and 20 a second; its own threads make some, a rival makes hundreds. */
int attn_bench_watch_clean(const struct attn_bench_watch *watch);

#endif
