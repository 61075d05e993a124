/* One point, in this process:
 *
 *      set up, price  ->  (bwd: run the forward)  ->  VmHWM  ->  first call, timed
 *      ->  more calls, timed  ->  VmHWM, ledger  ->  verify
 *
 * The order is the point of it: inputs and outputs are resident before the mark is set, and the
 * oracle runs after everything was read.  A result that is wrong has no time. */
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/point/peak.h"
#include "experiments/measure/point/point_work.h"
#include "experiments/measure/preflight.h"
#include "experiments/measure/stats.h"
#include "ref/clock.h"

/* ---- who is called --------------------------------------------------------------------------- */

/* The clock is read right before and after forward() or backward(): what attnlab does to put a
 * problem into the plug-in's conventions is not its time. */
static void tell(void *arg, enum attn_plugin_phase phase)
{
    struct attn_point_work *work = arg;
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

static enum attn_status find_subject(struct attn_point_work *work, struct attn_error *err)
{
    const struct attn_point *p = work->point;
    const int is_ours = p->route[0] == '\0';
    struct attn_subject *x = &work->x;
    if (x->spec.impl != NULL) /* given */
        return ATTN_OK;
    x->route = attn_subject_route_of(p->route);
    x->source = is_ours ? p->spec : p->source;
    x->claims_path = work->how->claims;
    snprintf(x->name, sizeof x->name, "%.31s", p->spec);
    work->claims = is_ours ? NULL : &x->claims;
    if (x->route->load == NULL)
        return attn_point_command_open(work, err);
    enum attn_status status = x->route->load(x, err);
    if (status == ATTN_OK && x->plugin == NULL)
        return attn_cli_run_by(attn_ranks(x->spec.impl, &x->spec.options), &x->spec.options, err);
    if (status == ATTN_OK) {
        x->plugin->tell = tell;
        x->plugin->tell_arg = work;
    }
    return status;
}

/* Set up as this implementation wants its tensors, and refuse what it does not claim. */
static enum attn_status open_setup(struct attn_point_work *work, struct attn_error *err)
{
    const struct attn_claims *claims = work->claims;
    struct attn_point *p = work->point;
    struct attn_case c = p->c;
    struct attn_given_mask given;
    unsigned needs;
    if (work->x.plugin != NULL)
        c.layout = attn_claims_layout(claims); /* the same numbers, where they need no copy */
    enum attn_status status = work->x.spec.options.runner != NULL
                                  ? attn_point_open_rank(work, err)
                                  : attn_setup_open(&c, &work->setup, err);
    if (status != ATTN_OK || claims == NULL)
        return status;
    status = attn_claims_allow(claims, &work->setup, work->x.route->route, &needs, err);
    const struct attn_problem *problem = &work->setup.problem;
    if (status == ATTN_OK && attn_claims_mask(claims, problem, &given) == ATTN_CLAIMS_BYTES)
        p->mask_bytes = p->c.batch * p->c.heads * p->c.n_query * p->c.n_key;
    return status;
}

/* The price of a command is what the one who asked knows of it. */
static enum attn_status price(struct attn_point_work *work, struct attn_error *err)
{
    struct attn_point *p = work->point;
    if (work->x.spec.options.runner == NULL) /* else the others have more of it */
        p->floor_bytes = attn_setup_bytes(&work->setup);
    if (work->is_started) {
        p->ranks = 1;
        attn_preflight_pairs(&work->setup.problem, p);
        return ATTN_OK;
    }
    enum attn_status status = attn_preflight_price(&work->x.spec, &work->setup.problem, p, err);
    work->use = attn_cli_need(calloc((size_t)p->ranks + 1, sizeof *work->use));
    if (work->claims != NULL)
        attn_point_not_ours(p);
    return status;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static enum attn_status call(struct attn_point_work *work, enum attn_pass pass,
                             struct attn_error *err)
{
    struct attn_ctx ctx = {.ledger = &work->ledger,
                           .options = &work->x.spec.options,
                           .error = err,
                           .ranks = work->use,
                           .saved = &work->saved,
                           .has_shards = work->x.spec.options.runner != NULL};
    return attn_setup_call(&work->setup, work->x.spec.impl, &ctx, pass);
}

/* Seconds of one call: of the clock, and of the processor, of the slowest rank and of all. */
struct seconds {
    double wall, cpu_max, cpu_sum;
};

/* One call, or one half of a stack; the clock is read around calls only. */
static enum attn_status timed_call(struct attn_point_work *work, struct seconds *s,
                                   struct attn_error *err)
{
    const struct attn_point *p = work->point;
    if (p->stack.n > 0) {
        enum attn_status status = attn_point_stack_half(work, p->c.pass, &s->wall, err);
        s->cpu_max = s->cpu_sum = s->wall;
        return status;
    }
    const struct attn_runner *runner = work->x.spec.options.runner;
    double cpu = attn_seconds(CLOCK_PROCESS_CPUTIME_ID);
    s->wall = 0;
    if (runner != NULL) /* all begin together */
        runner->largest(runner->state, &s->wall, err);
    double start = runner != NULL ? runner->seconds() : attn_seconds(CLOCK_MONOTONIC);
    enum attn_status status = call(work, p->c.pass, err);
    s->wall = (runner != NULL ? runner->seconds() : attn_seconds(CLOCK_MONOTONIC)) - start;
    if (runner != NULL && status == ATTN_OK) /* and the last one counts */
        status = runner->largest(runner->state, &s->wall, err);
    s->cpu_max = s->cpu_sum = attn_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    if (p->c.pass == ATTN_FORWARD)
        attn_saved_drop(&work->saved, &work->ledger);
    if (work->x.plugin != NULL)
        *s = (struct seconds){work->plugin_wall, work->plugin_cpu, work->plugin_cpu};
    if (work->x.spec.impl->ranks != NULL)
        s->cpu_max = s->cpu_sum = 0;
    for (int rank = 0; work->x.spec.impl->ranks != NULL && rank < p->ranks; rank++) {
        s->cpu_sum += work->use[rank].cpu_seconds;
        s->cpu_max = fmax(s->cpu_max, work->use[rank].cpu_seconds);
    }
    return status;
}

/* The state that a measured call finds: for a backward one, the results of a forward pass, whose
 * own memory does not count. */
static enum attn_status prepare(struct attn_point_work *work, struct attn_error *err)
{
    double seconds;
    enum attn_status status = ATTN_OK;
    if (work->point->stack.n > 0)
        attn_point_stack_forget(work);
    if (work->point->c.pass == ATTN_BACKWARD)
        status = work->point->stack.n > 0 ? attn_point_stack_half(work, ATTN_FORWARD, &seconds, err)
                                          : call(work, ATTN_FORWARD, err);
    attn_ledger_restart(&work->ledger);
    return status;
}

static void keep_resident(struct attn_point *p, const struct attn_resident *resident)
{
    p->hwm_reset = resident->reset;
    p->baseline_bytes = resident->baseline;
    p->hwm_bytes = resident->hwm;
    p->resident_bytes = attn_point_without_mask(p, resident->bytes);
}

/* Beside the calls that are timed, on as many threads; NaN: not asked for, or of ranks. */
static double peak_now(const struct attn_point_work *work, enum attn_limit limit)
{
    const struct attn_point *p = work->point;
    const struct attn_kernels *kernels = attn_peak_kernels(&work->x.spec, p->c.dtype);
    if (!work->how->peak || p->ranks > 1 || kernels == NULL)
        return (double)NAN;
    return attn_peak_sample(kernels, limit, p->c.threads > 1 ? p->c.threads : 1,
                            limit == ATTN_LIMIT_FMA ? 0.002 : 0.03);
}

static enum attn_status warm_calls(struct attn_point_work *work, struct attn_error *err)
{
    struct attn_point *p = work->point;
    struct seconds s;
    enum attn_status status = ATTN_OK;
    double spent = 0, before = peak_now(work, ATTN_LIMIT_FMA);
    while (status == ATTN_OK && p->n_warm < work->how->repeat &&
           (p->n_warm == 0 || spent < work->how->enough_s)) {
        status = p->stack.n > 0 ? prepare(work, err) : ATTN_OK;
        if (status == ATTN_OK)
            status = timed_call(work, &s, err);
        spent += s.wall;
        work->cpu_max[p->n_warm] = s.cpu_max;
        work->cpu_sum[p->n_warm] = s.cpu_sum;
        p->warm_s[p->n_warm++] = s.wall;
    }
    p->peak_flops_s = 0.5 * (before + peak_now(work, ATTN_LIMIT_FMA));
    return status;
}

/* The first call, then warm ones: at least one, however long it takes.  A first call finds pages
 * that the machine has yet to give, and is no repeat of itself.  Each backward half of a stack
 * needs a forward half before it, which would raise the mark: its memory is that of the first. */
static enum attn_status measure(struct attn_point_work *work, struct attn_error *err)
{
    struct attn_point *p = work->point;
    struct attn_resident resident;
    struct rusage before, after;
    struct seconds s;
    attn_resident_begin(&resident);
    work->highest = resident.before;
    if (resident.baseline >= 0) /* what was saved is resident by now, and is to be seen */
        resident.baseline -= work->ledger.now;
    getrusage(RUSAGE_SELF, &before);
    enum attn_status status = timed_call(work, &s, err);
    getrusage(RUSAGE_SELF, &after);
    p->minor_faults = after.ru_minflt - before.ru_minflt;
    p->major_faults = after.ru_majflt - before.ru_majflt;
    p->first_s = s.wall;
    p->first_cpu_max_s = s.cpu_max;
    p->first_cpu_sum_s = s.cpu_sum;
    if (p->stack.n > 0)
        attn_resident_end(&resident);
    if (status == ATTN_OK)
        status = warm_calls(work, err);
    if (p->stack.n == 0)
        attn_resident_end(&resident);
    if (status == ATTN_OK)
        keep_resident(p, &resident);
    p->read_bytes_s = peak_now(work, ATTN_LIMIT_READ);
    return status;
}

/* The live set at the peak: of the process, or of the rank that holds most. */
static void keep_ledger(struct attn_point_work *work)
{
    struct attn_point *p = work->point;
    p->process_ledger_bytes = p->ledger_bytes = work->ledger.peak;
    const struct attn_account *live = work->ledger.at_peak;
    int n = work->ledger.n_at_peak;
    if (work->x.spec.impl->ranks != NULL) {
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

static enum attn_status run_calls(struct attn_point_work *work, struct attn_error *err)
{
    struct attn_point *p = work->point;
    struct attn_spread cpu;
    work->ledger.limit = attn_cli_memory_available();
    enum attn_status status = prepare(work, err);
    if (status == ATTN_OK)
        status = measure(work, err);
    if (status != ATTN_OK)
        return status;
    strcpy(p->time_source, work->x.spec.options.runner != NULL ? "MPI_Wtime" : "calls");
    attn_stats_spread(work->cpu_max, p->n_warm, &cpu);
    p->warm_cpu_max_s = cpu.median;
    attn_stats_spread(work->cpu_sum, p->n_warm, &cpu);
    p->warm_cpu_sum_s = cpu.median;
    if (work->claims == NULL)
        keep_ledger(work);
    attn_saved_drop(&work->saved, &work->ledger);
    int64_t left = p->stack.n > 0 ? 0 : attn_ledger_clear(&work->ledger);
    if (left != 0)
        return attn_fail(err, ATTN_EINTERNAL, "%s left %lld bytes on its ledger",
                         work->x.spec.impl->name, (long long)left);
    return ATTN_OK;
}

static enum attn_status run(struct attn_point_work *work, struct attn_error *err)
{
    if (work->is_started)
        return attn_point_command_run(work, err);
    if (work->point->stack.n == 0)
        return run_calls(work, err);
    enum attn_status status = attn_point_stack_open(work, err);
    if (status == ATTN_OK)
        status = run_calls(work, err);
    attn_point_stack_close(work);
    return status;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Refused memory is an end of its own where a call took it. */
static void fail(struct attn_point_work *work, const struct attn_error *err)
{
    attn_point_fail(work->point, err);
    if (err->status == ATTN_ENOMEM && !work->is_started)
        work->point->status = ATTN_POINT_OUT_OF_MEMORY;
}

void attn_point_measure(const struct attn_point_how *how, struct attn_point *point)
{
    attn_point_measure_spec(how, &(const struct attn_spec){.impl = NULL}, point);
}

void attn_point_measure_spec(const struct attn_point_how *how, const struct attn_spec *spec,
                             struct attn_point *p)
{
    struct attn_point_work *work = attn_cli_need(calloc(1, sizeof *work));
    struct attn_error err = {ATTN_OK, ""};
    struct attn_resident all;
    double start = attn_seconds(CLOCK_MONOTONIC);
    work->how = how;
    work->x = (struct attn_subject){.route = &attn_own_route, .spec = *spec};
    work->point = p;
    work->earlier = p->judged; /* the verdict of the same bits, and of nothing else */
    attn_point_unverified(p);
    attn_ledger_init(&work->ledger, NULL);
    work->ledger.keeps = how->peak;
    enum attn_status status = find_subject(work, &err);
    const struct attn_runner *runner = status == ATTN_OK ? work->x.spec.options.runner : NULL;
    if (runner != NULL)
        attn_resident_begin(&all);
    if (status == ATTN_OK)
        status = open_setup(work, &err);
    if (status == ATTN_OK) {
        status = price(work, &err);
        p->setup_s = attn_seconds(CLOCK_MONOTONIC) - start;
        if (status == ATTN_OK)
            status = run(work, &err);
        if (runner != NULL)
            status = attn_point_settle(runner, status, &err);
    }
    if (status == ATTN_OK)
        attn_point_verify(work);
    else if (!work->is_told)
        fail(work, &err);
    if (p->status == ATTN_POINT_OK && isnan(p->first_s))
        strcpy(p->message, "the whole command took no longer than on a tiny case");
    if (runner != NULL) {
        attn_resident_end(&all);
        attn_point_share_numbers(work, &all);
    }
    attn_ledger_clear(&work->ledger);
    attn_helper_close(&work->launcher, SIGTERM);
    attn_setup_close(&work->setup);
    free(work->use);
    free(work);
}
