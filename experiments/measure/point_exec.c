/* A command in the place of a call: see point.h, and docs/measuring.md for what is subtracted.
 *
 *      launcher  ->  set up, write files  ->  the command on a tiny case  ->  on the case
 *      ->  read its results and times  ->  verify
 *
 * The tiny case costs what the command costs at all: its interpreter, its libraries, its start. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/exec_case.h"
#include "experiments/measure/launcher.h"
#include "experiments/measure/point.h"
#include "ref/clock.h"
#include "ref/problem.h"
#include "tests/harness/external/vector_files.h"

static void say(struct attn_point *p, enum attn_point_status status, const char *text)
{
    p->status = status;
    snprintf(p->message, sizeof p->message, "%s", text);
}

/* Any command may repeat its calls, if it reports each one's time.  0, or -1: no memory. */
static int give_wishes(const struct attn_point_flags *flags)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)flags->repeat);
    if (setenv("ATTNLAB_REPEAT", text, 1) != 0)
        return -1;
    snprintf(text, sizeof text, "%.9g", flags->enough);
    return setenv("ATTNLAB_ENOUGH", text, 1);
}

static void describe(struct attn_point *p, const struct attn_setup *setup)
{
    const struct attn_problem *problem = &setup->problem;
    int counted = 0;
    double cells = (double)problem->batch * (double)problem->heads * (double)problem->n_query *
                   (double)problem->n_key;
    strcpy(p->family, "command");
    p->ranks = 1;
    p->floor_bytes = attn_setup_bytes(setup);
    p->pairs = attn_problem_all_pairs(problem, &counted);
    p->density = cells > 0 ? (double)p->pairs / cells : (double)NAN;
}

/* ---- running --------------------------------------------------------------------------------- */

/* Run the command on the files in a folder; 0 when it did not do its part, and the point says
 * so. */
static int run(struct attn_launcher *launcher, const char *command, const char *folder,
               struct attn_process *ran, struct attn_point *p)
{
    char cases[4096], out[4096];
    struct attn_error err = {ATTN_OK, ""};
    attn_exec_cases(folder, cases);
    attn_exec_out(folder, out);
    if (attn_launcher_run(launcher, command, cases, out, ran) != 0) {
        attn_fail(&err, ATTN_ENOMEM, "no shell can be started: %s", strerror(errno));
        say(p, ATTN_POINT_ERROR, err.text);
        return 0;
    }
    if (attn_exec_ended_well(ran, folder, &err) == ATTN_OK)
        return 1;
    say(p, ran->signal != 0 ? ATTN_POINT_KILLED : ATTN_POINT_ERROR, err.text);
    return 0;
}

static enum attn_status write_tiny(const struct attn_work *work, const char *folder,
                                   struct attn_error *err)
{
    struct attn_case tiny;
    struct attn_setup setup;
    attn_exec_tiny(&work->point.c, &tiny);
    enum attn_status status = attn_setup_open(&tiny, &setup, err);
    if (status != ATTN_OK)
        return status;
    status = attn_exec_write(folder, work->claims, &setup, err);
    attn_setup_close(&setup);
    return status;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* The peak less what the command takes at all, less inputs and outputs once. */
static void keep_memory(struct attn_point *p, const struct attn_process *tiny,
                        const struct attn_process *ran)
{
    p->baseline_bytes = tiny->peak_bytes;
    p->hwm_bytes = ran->peak_bytes;
    int64_t more = ran->peak_bytes - tiny->peak_bytes - p->floor_bytes;
    if (tiny->peak_bytes >= 0 && ran->peak_bytes >= 0 && more > 0)
        p->resident_bytes = more;
}

/* Its own times if it has any, else the difference of two whole runs; 0 when they cannot be. */
static int keep_time(struct attn_point *p, const char *folder, const struct attn_process *tiny,
                     const struct attn_process *ran)
{
    double seconds[ATTN_RECORD_TIMES + 1], sum = 0;
    int n = attn_exec_seconds(folder, seconds, ATTN_RECORD_TIMES + 1);
    if (n < 0) {
        say(p, ATTN_POINT_ERROR, "seconds.txt holds something else than positive numbers");
        return 0;
    }
    for (int t = 0; t < n; t++)
        sum += seconds[t];
    if (sum > ran->wall_s) {
        snprintf(p->message, sizeof p->message,
                 "the command reports calls of %.6g s together, but ran for %.6g s in all", sum,
                 ran->wall_s);
        p->status = ATTN_POINT_ERROR;
        return 0;
    }
    if (n == 0) {
        seconds[0] = ran->wall_s - tiny->wall_s;
        n = seconds[0] > 0;
    }
    strcpy(p->time_source, sum > 0 ? "reported" : "command");
    p->first_s = n > 0 ? seconds[0] : (double)NAN;
    for (int t = 1; t < n; t++)
        p->warm_s[p->n_warm++] = seconds[t];
    return 1;
}

static void read_results(struct attn_work *work, const struct attn_point_flags *flags,
                         const char *folder)
{
    char out[4096];
    struct attn_error err = {ATTN_OK, ""};
    attn_exec_out(folder, out);
    if (attn_vector_files_read(out, "point", work->claims, &work->setup, &err) == ATTN_OK) {
        attn_point_verify(work, flags);
    } else {
        attn_point_fail(&work->point, &err);
        if (err.status != ATTN_ENOMEM) { /* which is no fault of the command */
            work->point.status = ATTN_POINT_WRONG;
            strcpy(work->point.verdict, attn_verdict_name(ATTN_FAILED));
        }
    }
    if (work->point.status == ATTN_POINT_OK && isnan(work->point.first_s))
        say(&work->point, ATTN_POINT_OK, "the whole command took no longer than on a tiny case");
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void run_both(struct attn_work *work, const struct attn_point_flags *flags,
                     struct attn_launcher *launcher, const char *folder)
{
    struct attn_point *p = &work->point;
    struct attn_error err = {ATTN_OK, ""};
    struct attn_process tiny, ran;
    char small[4096], whole[4096];
    double start = attn_seconds(CLOCK_MONOTONIC);
    snprintf(small, sizeof small, "%.4000s/tiny", folder);
    snprintf(whole, sizeof whole, "%.4000s/case", folder);
    enum attn_status status = write_tiny(work, small, &err);
    if (status == ATTN_OK)
        status = attn_exec_write(whole, work->claims, &work->setup, &err);
    p->setup_s = attn_seconds(CLOCK_MONOTONIC) - start;
    if (status != ATTN_OK) {
        attn_point_fail(p, &err);
        return;
    }
    if (!run(launcher, flags->exec, small, &tiny, p) || !run(launcher, flags->exec, whole, &ran, p))
        return;
    keep_memory(p, &tiny, &ran);
    if (keep_time(p, whole, &tiny, &ran))
        read_results(work, flags, whole);
}

void attn_point_exec(struct attn_work *work, const struct attn_point_flags *flags)
{
    static struct attn_claims claims;
    struct attn_launcher launcher;
    struct attn_error err = {ATTN_OK, ""};
    char folder[4096];
    if (give_wishes(flags) != 0 ||
        attn_launcher_open(&launcher) != 0) { /* before there is anything else */
        attn_fail(&err, ATTN_ENOMEM, "no process for the command: %s", strerror(errno));
        attn_point_fail(&work->point, &err);
        return;
    }
    enum attn_status status = attn_claims_read(flags->claims, &claims, &err);
    work->claims = &claims;
    if (status == ATTN_OK && flags->work == NULL)
        status = attn_exec_folder(folder, &err);
    else if (status == ATTN_OK)
        snprintf(folder, sizeof folder, "%s", flags->work);
    if (status == ATTN_OK && attn_point_open(work, &err) == ATTN_OK) {
        describe(&work->point, &work->setup);
        run_both(work, flags, &launcher, folder);
        attn_setup_close(&work->setup);
    } else
        attn_point_fail(&work->point, &err);
    if (status == ATTN_OK && flags->work == NULL)
        attn_exec_remove(folder);
    attn_launcher_close(&launcher);
}
