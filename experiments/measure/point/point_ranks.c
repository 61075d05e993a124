/* See point_ranks.h. */
#include "experiments/measure/point/point_ranks.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
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

static void share_numbers(struct attn_point_work *work, struct attn_resident *all)
{
    const struct attn_runner *runner = work->spec.options.runner;
    struct attn_point *p = &work->point;
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
    char spec[128], text[ATTN_CASE_TEXT], verified[160];
    int64_t repeat, verify_all;
    double enough;
};

static void do_point(const struct ask *ask, struct attn_point *point)
{
    struct attn_point_work *work = attn_cli_need(calloc(1, sizeof *work));
    struct attn_point_flags flags = {.verified = ask->verified[0] != '\0' ? ask->verified : NULL,
                                     .repeat = ask->repeat,
                                     .verify_all = ask->verify_all,
                                     .enough = ask->enough};
    struct attn_resident all;
    struct attn_error err;
    work->point = *point;
    attn_resident_begin(&all);
    enum attn_status status = attn_case_parse(ask->text, &work->point.c, &err);
    if (status == ATTN_OK)
        status = attn_spec_parse(ask->spec, &work->spec, &err);
    if (status == ATTN_OK)
        status = attn_cli_run_by(attn_ranks(work->spec.impl, &work->spec.options),
                                 &work->spec.options, &err);
    if (status == ATTN_OK) {
        attn_point_call(work, &flags);
        attn_resident_end(&all);
        share_numbers(work, &all);
    } else
        attn_point_fail(&work->point, &err);
    *point = work->point;
    free(work);
}

int attn_point_ranks(const struct attn_point_request *asked, struct attn_point *point)
{
    const struct attn_runner *runner = attn_cli_runner();
    struct attn_error err;
    struct ask ask = {.repeat = asked->of->is_once ? 0 : asked->plan->repeat,
                      .verify_all = asked->plan->verify_all,
                      .enough = asked->plan->enough_s};
    double start = attn_seconds(CLOCK_MONOTONIC), steal = attn_machine_steal();
    snprintf(ask.spec, sizeof ask.spec, "%s", point->spec);
    snprintf(ask.text, sizeof ask.text, "%s", point->text);
    snprintf(ask.verified, sizeof ask.verified, "%s", asked->verified);
    point->load = attn_machine_load();
    if (runner->share(runner->state, 0, &ask, sizeof ask, &err) == ATTN_OK)
        do_point(&ask, point);
    else
        attn_point_fail(point, &err);
    point->steal_s = attn_machine_steal() - steal;
    point->wall_s = attn_seconds(CLOCK_MONOTONIC) - start;
    return 1;
}

void attn_point_ranks_serve(const struct attn_runner *runner)
{
    struct attn_error err;
    struct ask ask = {0};
    struct attn_point *point = attn_cli_need(calloc(1, sizeof *point));
    while (runner->share(runner->state, 0, &ask, sizeof ask, &err) == ATTN_OK && !ask.is_over) {
        attn_point_init(point);
        do_point(&ask, point);
    }
    free(point);
}

void attn_point_ranks_over(const struct attn_runner *runner)
{
    struct attn_error err;
    struct ask ask = {.is_over = 1};
    runner->share(runner->state, 0, &ask, sizeof ask, &err);
}
