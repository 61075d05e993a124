/* The calls of a point.  Inputs and outputs are resident before the mark of memory is set, and it
 * is read before anything is verified. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/point.h"
#include "experiments/measure/resident.h"
#include "ref/clock.h"

static enum attn_status call(struct attn_work *work, enum attn_pass pass, struct attn_error *err)
{
    struct attn_ctx ctx = {.ledger = &work->ledger,
                           .options = &work->spec.options,
                           .error = err,
                           .ranks = work->use,
                           .saved = &work->saved};
    if (pass == ATTN_FORWARD) {
        struct attn_forward t = attn_setup_forward(&work->setup);
        return attn_run_forward(work->spec.impl, &ctx, &work->setup.problem, &t);
    }
    struct attn_backward t = attn_setup_backward(&work->setup);
    return attn_run_backward(work->spec.impl, &ctx, &work->setup.problem, &t);
}

/* The forward that a backward needs.  Its own memory does not count, but for what it saves. */
static enum attn_status prepare(struct attn_work *work, struct attn_error *err)
{
    work->ledger.limit = attn_cli_memory_available();
    enum attn_status status =
        work->point.c.pass == ATTN_BACKWARD ? call(work, ATTN_FORWARD, err) : ATTN_OK;
    attn_ledger_restart(&work->ledger);
    return status;
}

/* One call with its wall and CPU time; the clock is read around the call only. */
static enum attn_status timed_call(struct attn_work *work, double *wall, double *cpu_max,
                                   double *cpu_sum, struct attn_error *err)
{
    double cpu = attn_seconds(CLOCK_PROCESS_CPUTIME_ID);
    double start = attn_seconds(CLOCK_MONOTONIC);
    enum attn_status status = call(work, work->point.c.pass, err);
    *wall = attn_seconds(CLOCK_MONOTONIC) - start;
    *cpu_max = *cpu_sum = attn_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    if (work->point.c.pass == ATTN_FORWARD)
        attn_saved_drop(&work->saved, &work->ledger);
    if (work->plugin != NULL) {
        *wall = work->plugin_wall;
        *cpu_max = *cpu_sum = work->plugin_cpu;
    }
    if (work->spec.impl->ranks == NULL)
        return status;
    *cpu_max = *cpu_sum = 0;
    for (int rank = 0; rank < work->point.ranks; rank++) {
        *cpu_sum += work->use[rank].cpu_seconds;
        if (work->use[rank].cpu_seconds > *cpu_max)
            *cpu_max = work->use[rank].cpu_seconds;
    }
    return status;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, compare);
    return (x[(n - 1) / 2] + x[n / 2]) / 2;
}

/* The first call, then warm ones: at least one, however long it takes.  A first call finds pages
 * that the machine has yet to give, and is no repeat of itself. */
static enum attn_status measure(struct attn_work *work, int64_t repeat, double enough,
                                struct attn_error *err)
{
    struct attn_point *p = &work->point;
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    enum attn_status status =
        timed_call(work, &p->first_s, &p->first_cpu_max_s, &p->first_cpu_sum_s, err);
    getrusage(RUSAGE_SELF, &after);
    p->minor_faults = after.ru_minflt - before.ru_minflt;
    p->major_faults = after.ru_majflt - before.ru_majflt;
    double spent = 0;
    while (status == ATTN_OK && p->n_warm < repeat && (p->n_warm == 0 || spent < enough)) {
        int t = p->n_warm++;
        status = timed_call(work, &p->warm_s[t], &work->cpu_max[t], &work->cpu_sum[t], err);
        spent += p->warm_s[t];
    }
    if (p->n_warm > 0) {
        p->warm_cpu_max_s = median(work->cpu_max, p->n_warm);
        p->warm_cpu_sum_s = median(work->cpu_sum, p->n_warm);
    }
    return status;
}

/* The live set at the peak: of the process, or of the rank that holds most. */
static void read_ledger(struct attn_work *work)
{
    struct attn_point *p = &work->point;
    p->process_ledger_bytes = p->ledger_bytes = work->ledger.peak;
    const struct attn_account *live = work->ledger.at_peak;
    int n = work->ledger.n_at_peak;
    if (work->spec.impl->ranks != NULL) {
        const struct attn_rank_use *most = &work->use[0];
        for (int rank = 1; rank < p->ranks; rank++)
            if (work->use[rank].peak_bytes > most->peak_bytes)
                most = &work->use[rank];
        p->ledger_bytes = most->peak_bytes;
        live = most->live;
        n = most->n_live;
    }
    for (int a = 0; a < n; a++) {
        snprintf(p->live_name[a], sizeof p->live_name[a], "%s", live[a].name);
        p->live_bytes[a] = live[a].bytes;
    }
    p->n_live = n;
}

enum attn_status attn_point_call(struct attn_work *work, const struct attn_point_flags *flags,
                                 struct attn_error *err)
{
    struct attn_point *p = &work->point;
    struct attn_resident resident;
    enum attn_status status = prepare(work, err);
    if (status != ATTN_OK)
        return status;
    attn_resident_begin(&resident);
    if (resident.baseline >= 0) /* what was saved is resident by now, and is to be seen */
        resident.baseline -= work->saved.bytes;
    status = measure(work, flags->repeat, flags->enough, err);
    attn_resident_end(&resident);
    p->hwm_reset = resident.reset;
    p->baseline_bytes = resident.baseline;
    p->hwm_bytes = resident.hwm;
    p->resident_bytes = resident.bytes;
    if (status != ATTN_OK)
        return status;
    strcpy(p->time_source, "calls");
    if (work->plugin == NULL)
        read_ledger(work);
    attn_saved_drop(&work->saved, &work->ledger);
    int64_t left = attn_ledger_clear(&work->ledger);
    if (left != 0)
        return attn_fail(err, ATTN_EINTERNAL, "%s left %lld bytes on its ledger",
                         work->spec.impl->name, (long long)left);
    return ATTN_OK;
}
