/* One point of an implementation that is called, ours or a plug-in's:
 *
 *      set up, price  ->  (bwd: run the forward)  ->  VmHWM  ->  first call, timed
 *      ->  more calls, timed  ->  VmHWM, ledger  ->  verify
 *
 * The order is the point of it: inputs and outputs are resident before the mark is set, and the
 * oracle runs after everything was read.  A result that is wrong has no time. */
#include "experiments/measure/point/point.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/point/point_ranks.h"
#include "experiments/measure/stats.h"
#include "experiments/price/need.h"
#include "ref/clock.h"

/* ---- a plug-in ------------------------------------------------------------------------------- */

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

int attn_point_load(struct attn_point_work *work, const struct attn_point_flags *flags,
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
    work->spec = plugin.spec;
    work->plugin = &plugin;
    work->claims = &plugin.claims;
    return record;
}

enum attn_status attn_point_open(struct attn_point_work *work, struct attn_error *err)
{
    const struct attn_claims *claims = work->claims;
    struct attn_point *p = &work->point;
    struct attn_case c = p->c;
    struct attn_given_mask given;
    unsigned needs;
    if (work->plugin != NULL)
        c.layout = attn_claims_layout(claims); /* the same numbers, where they need no copy */
    enum attn_status status = work->spec.options.runner != NULL
                                  ? attn_point_open_rank(work, err)
                                  : attn_setup_open(&c, &work->setup, err);
    if (status != ATTN_OK || claims == NULL)
        return status;
    enum attn_route route = work->plugin != NULL ? ATTN_ROUTE_PLUGIN : ATTN_ROUTE_FILES;
    status = attn_claims_allow(claims, &work->setup, route, &needs, err);
    const struct attn_problem *problem = &work->setup.problem;
    if (status != ATTN_OK)
        attn_setup_close(&work->setup);
    else if (attn_claims_mask(claims, problem, &given) == ATTN_CLAIMS_BYTES)
        p->mask_bytes = p->c.batch * p->c.heads * p->c.n_query * p->c.n_key;
    return status;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static enum attn_status call(struct attn_point_work *work, enum attn_pass pass,
                             struct attn_error *err)
{
    struct attn_ctx ctx = {.ledger = &work->ledger,
                           .options = &work->spec.options,
                           .error = err,
                           .ranks = work->use,
                           .saved = &work->saved,
                           .has_shards = work->spec.options.runner != NULL};
    return attn_setup_call(&work->setup, work->spec.impl, &ctx, pass);
}

/* Seconds of one call: of the clock, and of the processor, of the slowest rank and of all. */
struct seconds {
    double wall, cpu_max, cpu_sum;
};

/* One call, or one half of a stack; the clock is read around calls only. */
static enum attn_status timed_call(struct attn_point_work *work, struct seconds *s,
                                   struct attn_error *err)
{
    const struct attn_point *p = &work->point;
    if (p->stack.n > 0) {
        enum attn_status status = attn_point_stack_half(work, p->c.pass, &s->wall, err);
        s->cpu_max = s->cpu_sum = s->wall;
        return status;
    }
    const struct attn_runner *runner = work->spec.options.runner;
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
    if (work->plugin != NULL)
        *s = (struct seconds){work->plugin_wall, work->plugin_cpu, work->plugin_cpu};
    if (work->spec.impl->ranks != NULL)
        s->cpu_max = s->cpu_sum = 0;
    for (int rank = 0; work->spec.impl->ranks != NULL && rank < p->ranks; rank++) {
        s->cpu_sum += work->use[rank].cpu_seconds;
        s->cpu_max = fmax(s->cpu_max, work->use[rank].cpu_seconds);
    }
    return status;
}

/* What a measured call is to find: of a backward one, what a forward pass left, whose own memory
 * does not count. */
static enum attn_status prepare(struct attn_point_work *work, struct attn_error *err)
{
    double seconds;
    enum attn_status status = ATTN_OK;
    if (work->point.stack.n > 0)
        attn_point_stack_forget(work);
    if (work->point.c.pass == ATTN_BACKWARD)
        status = work->point.stack.n > 0 ? attn_point_stack_half(work, ATTN_FORWARD, &seconds, err)
                                         : call(work, ATTN_FORWARD, err);
    attn_ledger_restart(&work->ledger);
    return status;
}

static void keep_resident(struct attn_point *p, const struct attn_resident *resident)
{
    p->hwm_reset = resident->reset;
    p->baseline_bytes = resident->baseline;
    p->hwm_bytes = resident->hwm;
    p->resident_bytes = resident->bytes;
}

/* The first call, then warm ones: at least one, however long it takes.  A first call finds pages
 * that the machine has yet to give, and is no repeat of itself.  Each backward half of a stack
 * needs a forward half before it, which would raise the mark: its memory is that of the first. */
static enum attn_status measure(struct attn_point_work *work, const struct attn_point_flags *flags,
                                struct attn_error *err)
{
    struct attn_point *p = &work->point;
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
    double spent = 0;
    while (status == ATTN_OK && p->n_warm < flags->repeat &&
           (p->n_warm == 0 || spent < flags->enough)) {
        status = p->stack.n > 0 ? prepare(work, err) : ATTN_OK;
        if (status == ATTN_OK)
            status = timed_call(work, &s, err);
        spent += s.wall;
        work->cpu_max[p->n_warm] = s.cpu_max;
        work->cpu_sum[p->n_warm] = s.cpu_sum;
        p->warm_s[p->n_warm++] = s.wall;
    }
    if (p->stack.n == 0)
        attn_resident_end(&resident);
    if (status == ATTN_OK)
        keep_resident(p, &resident);
    return status;
}

/* The live set at the peak: of the process, or of the rank that holds most. */
static void keep_ledger(struct attn_point_work *work)
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

static enum attn_status run(struct attn_point_work *work, const struct attn_point_flags *flags,
                            struct attn_error *err)
{
    struct attn_point *p = &work->point;
    struct attn_spread cpu;
    work->ledger.limit = attn_cli_memory_available();
    enum attn_status status = prepare(work, err);
    if (status == ATTN_OK)
        status = measure(work, flags, err);
    if (status != ATTN_OK)
        return status;
    strcpy(p->time_source, work->spec.options.runner != NULL ? "MPI_Wtime" : "calls");
    attn_stats_spread(work->cpu_max, p->n_warm, &cpu);
    p->warm_cpu_max_s = cpu.median;
    attn_stats_spread(work->cpu_sum, p->n_warm, &cpu);
    p->warm_cpu_sum_s = cpu.median;
    if (work->plugin == NULL)
        keep_ledger(work);
    attn_saved_drop(&work->saved, &work->ledger);
    int64_t left = p->stack.n > 0 ? 0 : attn_ledger_clear(&work->ledger);
    if (left != 0)
        return attn_fail(err, ATTN_EINTERNAL, "%s left %lld bytes on its ledger",
                         work->spec.impl->name, (long long)left);
    return ATTN_OK;
}

static enum attn_status run_stack(struct attn_point_work *work,
                                  const struct attn_point_flags *flags, struct attn_error *err)
{
    enum attn_status status = attn_point_stack_open(work, err);
    if (status == ATTN_OK)
        status = run(work, flags, err);
    attn_point_stack_close(work);
    return status;
}

/* ---- is the result right? -------------------------------------------------------------------- */

/* Whoever gives no LSE is lent the oracle's when the rest is judged, and nothing before. */
static int has_no_lse(const struct attn_point_work *work)
{
    return work->claims != NULL && work->claims->lse == ATTN_PLUGIN_LSE_ABSENT;
}

static void blank_lse(struct attn_point_work *work)
{
    struct attn_tensor *lse = &work->setup.tensor[ATTN_T_LSE];
    for (int64_t b = 0; b < lse->extent[0]; b++)
        for (int64_t h = 0; h < lse->extent[1]; h++)
            for (int64_t i = 0; i < lse->extent[2]; i++)
                attn_tensor_set(lse, b, h, i, 0, 0);
}

static void judge(struct attn_point_work *work, int64_t verify_all)
{
    struct attn_precision precision;
    const struct attn_problem *problem = &work->setup.problem;
    if (work->claims != NULL)
        attn_claims_precision(work->claims, problem, &precision);
    else
        attn_precision_of(work->spec.impl, &work->spec.options, problem, &precision);
    attn_point_judge(&work->setup, &precision, verify_all, has_no_lse(work), &work->point);
}

/* "DIGEST:VERDICT:WORST:OUTPUT" of an earlier round; 0 when these are other bits. */
static int same_bits(struct attn_point *p, const char *verified)
{
    char digest[24], verdict[16], output[8];
    double worst;
    if (verified == NULL ||
        sscanf(verified, "%23[^:]:%15[^:]:%lf:%7s", digest, verdict, &worst, output) != 4 ||
        strcmp(digest, p->digest) != 0)
        return 0;
    strcpy(p->verdict, verdict);
    strcpy(p->worst_output, output);
    strcpy(p->verified, "same bits as round 0");
    p->worst = worst;
    p->status = ATTN_POINT_OK;
    return 1;
}

void attn_point_verify(struct attn_point_work *work, const struct attn_point_flags *flags)
{
    struct attn_point *p = &work->point;
    double start = attn_seconds(CLOCK_MONOTONIC);
    if (has_no_lse(work))
        blank_lse(work);
    snprintf(p->digest, sizeof p->digest, "%016" PRIx64,
             attn_setup_digest(&work->setup, p->c.pass));
    const struct attn_runner *runner = work->spec.options.runner;
    const char *damage = work->plugin != NULL ? work->plugin->notes.integrity : "";
    snprintf(p->message, sizeof p->message, "%s", damage);
    int intact = *damage == '\0' && attn_point_intact(&work->setup, p);
    if (runner != NULL)
        intact = attn_point_all_intact(work, intact);
    if (!intact) {
        p->status = ATTN_POINT_WRONG;
        strcpy(p->verdict, attn_verdict_name(ATTN_FAILED));
    } else if (flags->verified != NULL && strcmp(flags->verified, "no") == 0)
        p->status = ATTN_POINT_OK;
    else if (!same_bits(p, flags->verified) && runner != NULL)
        attn_point_judge_ranks(work, flags->verify_all);
    else if (p->verdict[0] == '\0')
        judge(work, flags->verify_all);
    p->verify_s = attn_seconds(CLOCK_MONOTONIC) - start;
    if (p->status != ATTN_POINT_OK)
        attn_point_untimed(p);
}

void attn_point_call(struct attn_point_work *work, const struct attn_point_flags *flags)
{
    struct attn_point *p = &work->point;
    struct attn_error err = {ATTN_OK, ""};
    double start = attn_seconds(CLOCK_MONOTONIC);
    attn_ledger_init(&work->ledger, NULL);
    if (attn_point_open(work, &err) != ATTN_OK) {
        attn_point_fail_here(p, &err);
        return;
    }
    const struct attn_runner *runner = work->spec.options.runner;
    if (runner == NULL) /* else the others have more of it */
        p->floor_bytes = attn_setup_bytes(&work->setup);
    enum attn_status status = attn_preflight_price(&work->spec, &work->setup.problem, p, &err);
    work->use = calloc((size_t)p->ranks, sizeof *work->use);
    if (status == ATTN_OK && work->use == NULL)
        status = attn_fail(&err, ATTN_ENOMEM, "no memory for %d ranks", p->ranks);
    if (work->plugin != NULL)
        attn_point_not_ours(p);
    p->setup_s = attn_seconds(CLOCK_MONOTONIC) - start;
    if (status == ATTN_OK)
        status = p->stack.n > 0 ? run_stack(work, flags, &err) : run(work, flags, &err);
    if (runner != NULL)
        status = attn_point_settle(runner, status, &err);
    if (status == ATTN_OK)
        attn_point_verify(work, flags);
    else
        attn_point_fail_here(p, &err);
    attn_ledger_clear(&work->ledger);
    free(work->use);
    attn_setup_close(&work->setup);
}
