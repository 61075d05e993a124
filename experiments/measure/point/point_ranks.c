/* A point whose ranks are processes (optimized/parallel/rank_runner.h): no process has the whole of
 * any tensor.  Each runs point.c on the tensors of its own rank.  The sweep runs in the first one,
 * which sends each point to the others. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/point/point_work.h"
#include "ref/clock.h"

/* ---- asking and serving ---------------------------------------------------------------------- */

/* The message of the first process to the others: measure this point, or end. */
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
