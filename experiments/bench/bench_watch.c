#include "experiments/bench/bench_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/point.h"
#include "ref/clock.h"

static const struct {
    const char *name;
    uint64_t config;
} events[ATTN_COUNTERS] = {{"cycles", PERF_COUNT_HW_CPU_CYCLES},
                           {"instructions", PERF_COUNT_HW_INSTRUCTIONS},
                           {"cache-misses", PERF_COUNT_HW_CACHE_MISSES}};

const char *attn_counter_name(enum attn_counter counter)
{
    return events[counter].name;
}

/* ---- hardware counters -------------------------------------------------------------------- */

void attn_counters_open(struct attn_counters *counters)
{
    counters->why_not[0] = '\0';
    for (int c = 0; c < ATTN_COUNTERS; c++) {
        struct perf_event_attr attr = {.type = PERF_TYPE_HARDWARE,
                                       .size = sizeof attr,
                                       .config = events[c].config,
                                       .inherit = 1,
                                       .exclude_kernel = 1,
                                       .exclude_hv = 1};
        counters->fd[c] = (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
        if (counters->fd[c] >= 0)
            continue;
        int denied = errno == EACCES || errno == EPERM;
        snprintf(counters->why_not, sizeof counters->why_not, "no %s: %s", events[c].name,
                 denied ? "the kernel does not let this user count (perf_event_paranoid)"
                        : "this machine does not count them");
    }
}

void attn_counters_close(struct attn_counters *counters)
{
    for (int c = 0; c < ATTN_COUNTERS; c++)
        if (counters->fd[c] >= 0)
            close(counters->fd[c]);
}

/* Events so far; NaN: not counted. */
static double count_of(int fd)
{
    uint64_t value;
    int counted = fd >= 0 && read(fd, &value, sizeof value) == (ssize_t)sizeof value;
    return counted ? (double)value : (double)NAN;
}

/* ---- around a sample ---------------------------------------------------------------------- */

void attn_bench_watch_start(struct attn_bench_watch *w, const struct attn_counters *counters)
{
    w->counters = counters;
    for (int c = 0; c < ATTN_COUNTERS; c++)
        w->counter[c] = count_of(counters->fd[c]);
    w->cpu_s = attn_seconds(CLOCK_PROCESS_CPUTIME_ID);
    w->wall_s = attn_seconds(CLOCK_MONOTONIC);
}

void attn_bench_watch_stop(struct attn_bench_watch *w)
{
    w->wall_s = attn_seconds(CLOCK_MONOTONIC) - w->wall_s;
    w->cpu_s = attn_seconds(CLOCK_PROCESS_CPUTIME_ID) - w->cpu_s;
    for (int c = 0; c < ATTN_COUNTERS; c++)
        w->counter[c] = count_of(w->counters->fd[c]) - w->counter[c];
}
