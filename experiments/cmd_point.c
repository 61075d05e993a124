/* attnlab point: one point in this process, which does nothing else.
 *
 *      set up, price  ->  (bwd: run the forward)  ->  VmHWM  ->  first call, timed
 *      ->  more calls, timed  ->  VmHWM, ledger  ->  verify  ->  one line of JSON
 *
 * The order is the point of it: inputs and outputs are resident before the mark is set, and the
 * oracle runs after everything was read.  A result that is wrong has no time. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>

#include "experiments/afford.h"
#include "experiments/calibrate.h"
#include "experiments/cli.h"
#include "experiments/record.h"
#include "experiments/resident.h"
#include "tests/harness/runner.h"

/* A first call that takes longer than this, and than --enough, is its own repeat.  Every call
 * takes its buffers afresh, so that a first call differs from a second one only by code and inputs
 * that are not cached yet: microseconds. */
static const double LONG_CALL_S = 0.1;

enum { SAMPLES = 64 };

static const char help[] =
    "usage: attnlab point --spec SPEC --case CASE [--repeat N] [--enough SECONDS]\n"
    "                     [--verify-all LENGTH] [--verified DIGEST:VERDICT:WORST:OUTPUT]\n"
    "       attnlab point --calibrate-memory BYTES\n"
    "\n"
    "Measure one point in this process and print its record, one line of JSON\n"
    "(docs/records.md).  `attnlab measure` starts one such process for each point and\n"
    "round.  --repeat: timed calls after the first one, at most (10);\n"
    "--enough: seconds after which they stop (0.3).  --verify-all:\n"
    "longest length at which every element is verified (2048); beyond, 64 rows and 64\n"
    "keys.  --verified: the outcome of an earlier round; the same bits are not verified\n"
    "again.\n";

struct flags {
    const char *spec, *text, *verified;
    int64_t repeat, verify_all, calibrate;
    double enough;
};

/* Everything about the one point. */
struct work {
    struct attn_spec spec;
    struct attn_setup setup;
    struct attn_ledger ledger;
    struct attn_rank_use *use; /* [ranks] */
    struct attn_point point;
    double cpu_max[ATTN_RECORD_TIMES], cpu_sum[ATTN_RECORD_TIMES];
};

static double seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static enum attn_status call(struct work *work, enum attn_pass pass, struct attn_ledger *ledger,
                             struct attn_error *err)
{
    struct attn_ctx ctx = {.ledger = ledger,
                           .options = &work->spec.options,
                           .error = err,
                           .ranks = work->use};
    if (pass == ATTN_FORWARD) {
        struct attn_forward t = attn_setup_forward(&work->setup);
        return attn_run_forward(work->spec.impl, &ctx, &work->setup.problem, &t);
    }
    struct attn_backward t = attn_setup_backward(&work->setup);
    return attn_run_backward(work->spec.impl, &ctx, &work->setup.problem, &t);
}

/* The forward that a backward needs, on a ledger of its own. */
static enum attn_status prepare(struct work *work, struct attn_error *err)
{
    if (work->point.c.pass == ATTN_FORWARD)
        return ATTN_OK;
    struct attn_ledger ledger;
    attn_ledger_init(&ledger, NULL);
    ledger.limit = attn_cli_memory_available();
    enum attn_status status = call(work, ATTN_FORWARD, &ledger, err);
    attn_ledger_clear(&ledger);
    return status;
}

/* One call with its wall and CPU time; the clock is read around the call only. */
static enum attn_status timed_call(struct work *work, double *wall, double *cpu_max,
                                   double *cpu_sum, struct attn_error *err)
{
    double cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
    double start = seconds(CLOCK_MONOTONIC);
    enum attn_status status = call(work, work->point.c.pass, &work->ledger, err);
    *wall = seconds(CLOCK_MONOTONIC) - start;
    *cpu_max = *cpu_sum = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
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

/* First call and repeats. */
static enum attn_status measure(struct work *work, int64_t repeat, double enough,
                                struct attn_error *err)
{
    struct attn_point *p = &work->point;
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    enum attn_status status =
        timed_call(work, &p->cold_s, &work->cpu_max[0], &work->cpu_sum[0], err);
    getrusage(RUSAGE_SELF, &after);
    p->minor_faults = after.ru_minflt - before.ru_minflt;
    p->major_faults = after.ru_majflt - before.ru_majflt;
    if (p->cold_s >= fmax(enough, LONG_CALL_S))
        p->time_s[p->n_times++] = p->cold_s;
    else
        for (double spent = 0; status == ATTN_OK && p->n_times < repeat && spent < enough;) {
            int t = p->n_times++;
            status = timed_call(work, &p->time_s[t], &work->cpu_max[t], &work->cpu_sum[t], err);
            spent += p->time_s[t];
        }
    p->cpu_max_s = median(work->cpu_max, p->n_times);
    p->cpu_sum_s = median(work->cpu_sum, p->n_times);
    return status;
}

/* The live set at the peak: of the process, or of the rank that holds most. */
static void read_ledger(struct work *work)
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

/* ---- verification ------------------------------------------------------------------------- */

/* So many different indices below n, ascending: the first, the last, and others by hash. */
static int64_t choose(int64_t index[SAMPLES], int64_t n, uint64_t seed, uint64_t stream)
{
    if (n <= SAMPLES) {
        for (int64_t i = 0; i < n; i++)
            index[i] = i;
        return n;
    }
    /* one of each of SAMPLES equal stretches: different and ascending by construction */
    for (int64_t s = 0; s < SAMPLES; s++) {
        int64_t from = s * n / SAMPLES, to = (s + 1) * n / SAMPLES;
        index[s] = from + (int64_t)(attn_hash(seed, stream, (uint64_t)s) % (uint64_t)(to - from));
    }
    index[0] = 0;
    index[SAMPLES - 1] = n - 1;
    return SAMPLES;
}

/* Overwritten red zones, changed inputs, elements that nobody wrote: 1 when there are none. */
static int is_intact(const struct work *work, char *why, size_t size)
{
    const struct attn_setup *s = &work->setup;
    int last = work->point.c.pass == ATTN_FORWARD ? ATTN_T_LSE : ATTN_T_DBIAS;
    for (int slot = 0; slot <= last; slot++) {
        const struct attn_tensor *t = &s->tensor[slot];
        if (t->data == NULL)
            continue;
        if (attn_tensor_intact(t, why, size) != NULL)
            return 0;
        if (slot < ATTN_T_O ? attn_tensor_unchanged(t, why, size) != NULL
                            : attn_tensor_written(t, why, size) != NULL)
            return 0;
    }
    return 1;
}

static void keep_verdict(struct attn_point *p, const struct attn_result *result)
{
    snprintf(p->verdict, sizeof p->verdict, "%s", attn_verdict_name(result->verdict));
    snprintf(p->message, sizeof p->message, "%s", result->text);
    p->worst = result->worst;
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        if (result->output[o].n > 0)
            p->output_worst[o] = result->output[o].ratio;
        if (result->output[o].n > 0 && !(result->output[o].ratio < result->worst))
            snprintf(p->worst_output, sizeof p->worst_output, "%s",
                     attn_output_name((enum attn_output)o));
    }
    if (result->verdict == ATTN_PASS || result->verdict == ATTN_WEAK)
        p->status = ATTN_POINT_OK;
    else
        p->status = result->verdict == ATTN_FAILED ? ATTN_POINT_WRONG : ATTN_POINT_ERROR;
}

static void judge(struct work *work, int64_t verify_all)
{
    struct attn_point *p = &work->point;
    struct attn_precision precision;
    struct attn_result result;
    int64_t row[SAMPLES], key[SAMPLES];
    struct attn_sample sample = {-1, -1, row, key};
    attn_precision_of(work->spec.impl, &work->spec.options, &work->setup.problem, &precision);
    memset(&result, 0, sizeof result);
    strcpy(p->verified, "all");
    if (p->c.n_query > verify_all || p->c.n_key > verify_all) {
        sample.n_rows = choose(row, p->c.n_query, p->c.seed, 1001);
        sample.n_keys = choose(key, p->c.n_key, p->c.seed, 1002);
        int n = snprintf(p->verified, sizeof p->verified, "%d rows", (int)sample.n_rows);
        if (p->c.pass == ATTN_BACKWARD)
            snprintf(p->verified + n, sizeof p->verified - (size_t)n, ", %d keys",
                     (int)sample.n_keys);
    }
    attn_judge(&work->setup, &precision, &sample, p->c.pass, &result);
    keep_verdict(p, &result);
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

static void verify(struct work *work, const struct flags *flags)
{
    struct attn_point *p = &work->point;
    double start = seconds(CLOCK_MONOTONIC);
    snprintf(p->digest, sizeof p->digest, "%016" PRIx64,
             attn_setup_digest(&work->setup, p->c.pass));
    if (!is_intact(work, p->message, sizeof p->message)) {
        p->status = ATTN_POINT_WRONG;
        strcpy(p->verdict, attn_verdict_name(ATTN_FAILED));
    } else if (!same_bits(p, flags->verified))
        judge(work, flags->verify_all);
    p->verify_s = seconds(CLOCK_MONOTONIC) - start;
    if (p->status != ATTN_POINT_OK) {
        p->n_times = 0;
        p->cold_s = p->cpu_max_s = p->cpu_sum_s = (double)NAN;
    }
}

/* ---- the whole ---------------------------------------------------------------------------- */

static void fail_point(struct attn_point *p, const struct attn_error *err)
{
    p->status = err->status == ATTN_ENOTSUP ? ATTN_POINT_REFUSED : ATTN_POINT_ERROR;
    snprintf(p->message, sizeof p->message, "%s", err->text);
    p->n_times = 0;
    p->cold_s = p->cpu_max_s = p->cpu_sum_s = (double)NAN;
}

static enum attn_status run(struct work *work, const struct flags *flags, struct attn_error *err)
{
    struct attn_point *p = &work->point;
    struct attn_resident resident;
    enum attn_status status = prepare(work, err);
    if (status != ATTN_OK)
        return status;
    work->ledger.limit = attn_cli_memory_available();
    attn_resident_begin(&resident);
    status = measure(work, flags->repeat, flags->enough, err);
    attn_resident_end(&resident);
    p->hwm_reset = resident.reset;
    p->baseline_bytes = resident.baseline;
    p->hwm_bytes = resident.hwm;
    p->resident_bytes = resident.bytes;
    if (status != ATTN_OK)
        return status;
    read_ledger(work);
    int64_t left = attn_ledger_clear(&work->ledger);
    if (left != 0)
        return attn_fail(err, ATTN_EINTERNAL, "%s left %lld bytes on its ledger",
                         work->spec.impl->name, (long long)left);
    verify(work, flags);
    return ATTN_OK;
}

/* Fills work->point, whatever happens. */
static void point_of(struct work *work, const struct flags *flags)
{
    struct attn_point *p = &work->point;
    struct attn_error err = {ATTN_OK, ""};
    double start = seconds(CLOCK_MONOTONIC);
    attn_ledger_init(&work->ledger, NULL);
    if (attn_setup_open(&p->c, &work->setup, &err) != ATTN_OK) {
        fail_point(p, &err);
        return;
    }
    p->floor_bytes = attn_setup_bytes(&work->setup);
    enum attn_status status = attn_afford_price(&work->spec, &work->setup.problem, p, &err);
    work->use = calloc((size_t)p->ranks, sizeof *work->use);
    if (status == ATTN_OK && work->use == NULL)
        status = attn_fail(&err, ATTN_ENOMEM, "no memory for %d ranks", p->ranks);
    p->setup_s = seconds(CLOCK_MONOTONIC) - start;
    if (status == ATTN_OK)
        status = run(work, flags, &err);
    if (status != ATTN_OK)
        fail_point(p, &err);
    attn_ledger_clear(&work->ledger);
    free(work->use);
    attn_setup_close(&work->setup);
}

/* No core files of gigabytes, no survivor of a parent that died, and the first to go when memory
 * runs out. */
static void be_expendable(void)
{
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    FILE *file = fopen("/proc/self/oom_score_adj", "we");
    if (file != NULL) {
        fputs("1000", file);
        fclose(file);
    }
}

/* ATTN_EXIT_GOOD to go on, else the exit status. */
static int read_flags(int argc, char **argv, struct flags *flags)
{
    for (int a = 1; a < argc; a += 2) {
        const char *name = argv[a], *value = a + 1 < argc ? argv[a + 1] : NULL;
        int ok = value != NULL;
        if (ok && strcmp(name, "--spec") == 0)
            flags->spec = value;
        else if (ok && strcmp(name, "--case") == 0)
            flags->text = value;
        else if (ok && strcmp(name, "--verified") == 0)
            flags->verified = value;
        else if (ok && strcmp(name, "--repeat") == 0)
            ok = attn_cli_int(value, 1, ATTN_RECORD_TIMES, &flags->repeat);
        else if (ok && strcmp(name, "--enough") == 0)
            ok = attn_cli_double(value, &flags->enough) && flags->enough >= 0;
        else if (ok && strcmp(name, "--verify-all") == 0)
            ok = attn_cli_int(value, 0, INT64_MAX, &flags->verify_all);
        else if (ok && strcmp(name, "--calibrate-memory") == 0)
            ok = attn_cli_int(value, 1, INT64_MAX, &flags->calibrate);
        else
            ok = 0;
        if (!ok)
            return attn_cli_fail("point", ATTN_EXIT_USAGE,
                                 "cannot use '%s%s%s'; see attnlab point --help", name,
                                 value != NULL ? " " : "", value != NULL ? value : "");
    }
    if (flags->calibrate == 0 && (flags->spec == NULL || flags->text == NULL))
        return attn_cli_fail("point", ATTN_EXIT_USAGE,
                             "--spec and --case are needed; see attnlab point --help");
    return ATTN_EXIT_GOOD;
}

int attn_cmd_point(int argc, char **argv)
{
    static struct work work; /* too large for the stack: it has room for all samples */
    struct flags flags = {.repeat = 10, .enough = 0.3, .verify_all = 2048};
    struct attn_error err = {ATTN_OK, ""};
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0))
        return attn_cli_help(help);
    int status = read_flags(argc, argv, &flags);
    if (status != ATTN_EXIT_GOOD)
        return status;
    be_expendable();
    if (flags.calibrate > 0)
        return attn_calibrate_memory_here(flags.calibrate);
    attn_point_init(&work.point);
    if (attn_spec_parse(flags.spec, &work.spec, &err) != ATTN_OK ||
        attn_case_parse(flags.text, &work.point.c, &err) != ATTN_OK)
        return attn_cli_fail("point", ATTN_EXIT_USAGE, "%s", err.text);
    attn_spec_print(&work.spec, work.point.spec, sizeof work.point.spec);
    attn_case_print(&work.point.c, work.point.text);
    point_of(&work, &flags);
    if (attn_record_write_point(stdout, &work.point) != 0)
        return attn_cli_fail("point", ATTN_EXIT_LACKS, "standard output: %s", strerror(errno));
    return work.point.status == ATTN_POINT_WRONG ? ATTN_EXIT_DISAGREE : ATTN_EXIT_GOOD;
}
