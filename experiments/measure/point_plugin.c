/* A plug-in in the process of its point: see point.h, and external/plugin.h for the calls. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "experiments/measure/external_specs.h"
#include "experiments/measure/point.h"
#include "ref/clock.h"

/* The clock is read right before and after forward() or backward(): what attnlab does to put a
 * problem into the plug-in's conventions is not its time. */
static void tell(void *arg, enum attn_plugin_phase phase)
{
    struct attn_work *work = arg;
    double wall = attn_seconds(CLOCK_MONOTONIC);
    double cpu = attn_seconds(CLOCK_PROCESS_CPUTIME_ID);
    if (phase == ATTN_PHASE_FORWARD || phase == ATTN_PHASE_BACKWARD) {
        work->plugin_cpu = cpu;
        work->plugin_wall = attn_seconds(CLOCK_MONOTONIC);
    } else {
        work->plugin_cpu = cpu - work->plugin_cpu;
        work->plugin_wall = wall - work->plugin_wall;
    }
}

int attn_point_load(struct attn_work *work, const struct attn_point_flags *flags,
                    struct attn_error *err)
{
    static struct attn_plugin_impl plugin;
    int record = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 10);
    if (record < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
        attn_fail(err, ATTN_ENOMEM, "standard output: %s", strerror(errno));
        return -1;
    }
    if (attn_plugin_load(flags->plugin, &plugin, err) != ATTN_OK)
        return -1;
    plugin.impl.name = flags->name;
    plugin.tell = tell;
    plugin.tell_arg = work;
    plugin.leave_lse = 1;
    attn_plugin_spec(&plugin, &work->spec);
    work->plugin = &plugin;
    work->claims = &plugin.claims;
    return record;
}

enum attn_status attn_point_open(struct attn_work *work, struct attn_error *err)
{
    const struct attn_claims *claims = work->claims;
    struct attn_point *p = &work->point;
    struct attn_case c = p->c;
    struct attn_band band;
    unsigned needs;
    if (claims == NULL)
        return attn_setup_open(&c, &work->setup, err);
    if (work->plugin != NULL && claims->layout == ATTN_PLUGIN_BLHD)
        c.layout = ATTN_LAYOUT_BLHD; /* the same numbers, where they need no copy */
    enum attn_status status = attn_setup_open(&c, &work->setup, err);
    if (status != ATTN_OK)
        return status;
    enum attn_route route = work->plugin != NULL ? ATTN_ROUTE_PLUGIN : ATTN_ROUTE_FILES;
    status = attn_claims_allow(claims, &work->setup, route, &needs, err);
    const struct attn_problem *problem = &work->setup.problem;
    if (status != ATTN_OK)
        attn_setup_close(&work->setup);
    else if (attn_claims_mask(claims, problem, &band) == ATTN_CLAIMS_BYTES)
        p->mask_bytes = p->c.batch * p->c.heads * p->c.n_query * p->c.n_key;
    return status;
}
