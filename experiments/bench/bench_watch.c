#include "experiments/bench/bench_watch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/point.h"

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

/* ---- the scheduler ------------------------------------------------------------------------ */

/* Seconds that the threads of this process, as many as there are now, waited for a processor: the
 * second number of their schedstat, in ns. */
static double waited_so_far(void)
{
    double sum = 0;
    int folder = attn_cli_kernel_open("/proc/self/task", O_RDONLY | O_DIRECTORY);
    if (folder < 0)
        return (double)NAN;
    DIR *tasks = attn_cli_need(fdopendir(folder));
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        char path[300], text[128];
        unsigned long long ran, waited;
        if (task->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", task->d_name);
        int known = attn_cli_kernel_text(path, text, sizeof text) &&
                    sscanf(text, "%llu %llu", &ran, &waited) == 2;
        sum += known ? 1e-9 * (double)waited : (double)NAN;
    }
    closedir(tasks);
    return sum;
}

static int64_t switches_so_far(void)
{
    struct rusage use;
    return getrusage(RUSAGE_SELF, &use) == 0 ? use.ru_nivcsw : 0;
}

/* ---- around a sample ---------------------------------------------------------------------- */

void attn_bench_watch_start(struct attn_bench_watch *w, const struct attn_counters *counters)
{
    w->counters = counters;
    w->waited_s = waited_so_far();
    w->switches = switches_so_far();
    for (int c = 0; c < ATTN_COUNTERS; c++)
        w->counter[c] = count_of(counters->fd[c]);
    w->cpu_s = attn_point_seconds(CLOCK_PROCESS_CPUTIME_ID);
    w->wall_s = attn_point_seconds(CLOCK_MONOTONIC);
}

void attn_bench_watch_stop(struct attn_bench_watch *w)
{
    w->wall_s = attn_point_seconds(CLOCK_MONOTONIC) - w->wall_s;
    w->cpu_s = attn_point_seconds(CLOCK_PROCESS_CPUTIME_ID) - w->cpu_s;
    for (int c = 0; c < ATTN_COUNTERS; c++)
        w->counter[c] = count_of(w->counters->fd[c]) - w->counter[c];
    w->switches = switches_so_far() - w->switches;
    w->waited_s = waited_so_far() - w->waited_s;
    if (!(w->waited_s >= 0)) /* threads have ended, and taken their numbers with them */
        w->waited_s = (double)NAN;
}

int attn_bench_watch_clean(const struct attn_bench_watch *w)
{
    if (isnan(w->waited_s))
        return (double)w->switches <= 2 + 20 * w->cpu_s;
    return w->waited_s <= 0.02 * w->cpu_s;
}
