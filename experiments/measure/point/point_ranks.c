/* A point whose ranks are processes (optimized/parallel/rank_runner.h): no process has the whole of
 * any tensor.  All do what point.c does, on the tensors of their own ranks.  The sweep asks the
 * first one, which tells the others. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/point/point_work.h"
#include "optimized/integers.h"
#include "optimized/parallel/work.h"
#include "ref/clock.h"

/* What every rank knows of itself: resident in the calls, and of all the point; where it runs. */
struct own {
    int64_t resident, most, cores;
    char machine[64];
};

/* Ranks by the cores of their machine, of which they use the first ones only. */
static double ranks_per_core(const struct own *own, int ranks)
{
    double most = 0;
    for (int r = 0; r < ranks; r++) {
        int here = 0;
        for (int s = 0; s < ranks; s++)
            here += strcmp(own[s].machine, own[r].machine) == 0;
        most = fmax(most, (double)here / (double)own[r].cores);
    }
    return most;
}

void attn_point_share_numbers(struct attn_point_work *work, const struct attn_resident *all)
{
    const struct attn_runner *runner = work->spec.options.runner;
    struct attn_point *p = work->point;
    struct attn_error err;
    int ranks = attn_ranks(work->spec.impl, &work->spec.options);
    struct own *own = attn_cli_need(calloc((size_t)ranks, sizeof *own));
    const struct own mine = {.resident = p->resident_bytes,
                             .most = greater(work->highest, all->hwm) - all->baseline,
                             .cores = sysconf(_SC_NPROCESSORS_ONLN)};
    p->n_processes = (int)less(ranks, ATTN_RECORD_RANKS);
    p->resident_bytes = -1;
    for (int r = 0; r < ranks; r++) {
        own[r] = mine;
        gethostname(own[r].machine, sizeof own[r].machine - 1);
        runner->share(runner->state, r, &own[r], sizeof own[r], &err);
        p->resident_bytes = greater(p->resident_bytes, own[r].resident);
        if (r >= p->n_processes)
            continue;
        p->rank_resident[r] = own[r].resident;
        p->rank_process[r] = own[r].most;
    }
    p->ranks_per_core = ranks_per_core(own, ranks);
    free(own);
}

/* ---- asking and serving ---------------------------------------------------------------------- */

/* What the first process tells the others to do. */
struct ask {
    int is_over;
    struct attn_point_how how;
    struct attn_point point;
};

void attn_point_ranks(const struct attn_point_how *how, struct attn_point *point)
{
    const struct attn_runner *runner = attn_cli_runner();
    struct attn_error err;
    struct ask *ask = attn_cli_need(calloc(1, sizeof *ask));
    double start = attn_seconds(CLOCK_MONOTONIC), steal = attn_machine_steal();
    point->load = attn_machine_load();
    ask->how = *how;
    ask->point = *point;
    if (runner->share(runner->state, 0, ask, sizeof *ask, &err) == ATTN_OK)
        attn_point_measure(how, point);
    else
        attn_point_fail(point, &err);
    free(ask);
    point->steal_s = attn_machine_steal() - steal;
    point->wall_s = attn_seconds(CLOCK_MONOTONIC) - start;
}

void attn_point_ranks_serve(const struct attn_runner *runner)
{
    struct attn_error err;
    struct ask *ask = attn_cli_need(calloc(1, sizeof *ask));
    while (runner->share(runner->state, 0, ask, sizeof *ask, &err) == ATTN_OK && !ask->is_over)
        attn_point_measure(&ask->how, &ask->point);
    free(ask);
}

void attn_point_ranks_over(const struct attn_runner *runner)
{
    static struct ask ask = {.is_over = 1};
    struct attn_error err;
    runner->share(runner->state, 0, &ask, sizeof ask, &err);
}
