/* A command in the place of a call: docs/measuring.md says what is subtracted.
 *
 *      launcher  ->  set up, write files  ->  the command on a tiny case  ->  on the case
 *      ->  read its results and times  ->  verify
 *
 * The tiny case costs what the command costs at all: its interpreter, its libraries, its start. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/point/point_work.h"
#include "experiments/price/need.h"
#include "ref/clock.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/base/folder.h"
#include "tests/harness/subject/exec.h"

/* A failure of the command, which the point says itself. */
static enum attn_status told(struct attn_point_work *work, enum attn_point_status status,
                             const char *text)
{
    work->is_told = 1;
    work->point->status = status;
    snprintf(work->point->message, sizeof work->point->message, "%s", text);
    attn_point_untimed(work->point);
    return ATTN_EPEER;
}

/* Any command may repeat its calls, if it reports each one's time.  0, or -1: no memory. */
static int export_repeats(const struct attn_point_how *how)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)how->repeat);
    if (setenv("ATTNLAB_REPEAT", text, 1) != 0)
        return -1;
    snprintf(text, sizeof text, "%.9g", how->enough_s);
    return setenv("ATTNLAB_ENOUGH", text, 1);
}

/* ---- the launcher ---------------------------------------------------------------------------- */

/* The kernel's peak of a program is never below the peak of the process that started it, even after
 * exec: a point with gigabytes of tensors would see its own.  So a launcher is forked before there
 * are any; it holds about a megabyte, less than any program.  It also outlives a point that is
 * killed by just long enough to end the command, with all its processes. */
struct reply {
    int error;
    struct attn_process ran;
};

/* Runs the command on the folder that is named, again and again.  SIGTERM ends the command too
 * (ending.h). */
static void serve(void *command, int from, int to)
{
    static char folder[ATTN_FOLDER_PATH];
    struct reply reply;
    memset(&reply, 0, sizeof reply);
    while (attn_pipe_read(from, folder, sizeof folder)) {
        reply.error = attn_exec_run(command, folder, 0, &reply.ran) == 0 ? 0 : errno;
        if (!attn_pipe_write(to, &reply, sizeof reply))
            break;
    }
}

/* Run the command on the files in a folder. */
static enum attn_status run(struct attn_point_work *work, const char *folder,
                            struct attn_process *ran)
{
    static struct reply answer;
    char name[ATTN_FOLDER_PATH] = "";
    struct attn_error err = {ATTN_OK, ""};
    snprintf(name, sizeof name, "%s", folder);
    if (!attn_pipe_write(work->launcher.to, name, sizeof name) ||
        !attn_pipe_read(work->launcher.from, &answer, sizeof answer))
        answer.error = EPIPE;
    *ran = answer.ran;
    if (answer.error != 0) {
        attn_fail(&err, ATTN_ENOMEM, "no shell can be started: %s", strerror(answer.error));
        return told(work, ATTN_POINT_ERROR, err.text);
    }
    if (attn_exec_did(ran, folder, 0, &err) == ATTN_OK)
        return ATTN_OK;
    return told(work, ran->signal != 0 ? ATTN_POINT_KILLED : ATTN_POINT_ERROR, err.text);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* The peak less what the command takes at all, less inputs, the bytes of a mask
 * among them, and outputs once. */
static void keep_memory(struct attn_point *p, const struct attn_process *tiny,
                        const struct attn_process *ran)
{
    p->baseline_bytes = tiny->peak_bytes;
    p->hwm_bytes = ran->peak_bytes;
    int64_t more = ran->peak_bytes - tiny->peak_bytes - p->floor_bytes;
    if (tiny->peak_bytes >= 0 && ran->peak_bytes >= 0 && more > 0)
        p->resident_bytes = attn_point_without_mask(p, more);
}

/* The times that a command reports beside its results, in FOLDER/out/point/seconds.txt: seconds of
 * each call, separated by white space, in order; at most `most`.  How many; 0 when it reports none;
 * -1 when the file holds something else than positive numbers. */
static int read_seconds(const char *folder, double *seconds, int most)
{
    char path[4096], word[64];
    int n = 0, bad = 0;
    snprintf(path, sizeof path, "%.4000s/out/%s/seconds.txt", folder, ATTN_EXEC_CASE);
    FILE *file = attn_read_stream(path, ATTN_READ_THEIRS, NULL);
    if (file == NULL)
        return access(path, F_OK) == 0 ? -1 : 0;
    while (n < most && !bad && fscanf(file, "%63s", word) == 1) {
        bad = !attn_cli_double(word, &seconds[n]) || !(seconds[n] > 0) || !isfinite(seconds[n]);
        n++;
    }
    fclose(file);
    return bad || n == 0 ? -1 : n;
}

/* Its own times if it has any, else the difference of two whole runs. */
static enum attn_status keep_time(struct attn_point_work *work, const char *folder,
                                  const struct attn_process *tiny, const struct attn_process *ran)
{
    struct attn_point *p = work->point;
    double seconds[ATTN_RECORD_TIMES + 1], sum = 0;
    char text[200];
    int n = read_seconds(folder, seconds, ATTN_RECORD_TIMES + 1);
    if (n < 0)
        return told(work, ATTN_POINT_ERROR,
                    "seconds.txt holds something else than positive numbers");
    for (int t = 0; t < n; t++)
        sum += seconds[t];
    if (sum > ran->wall_s) {
        snprintf(text, sizeof text,
                 "the command reports calls of %.6g s together, but ran for %.6g s in all", sum,
                 ran->wall_s);
        return told(work, ATTN_POINT_ERROR, text);
    }
    if (n == 0) {
        seconds[0] = ran->wall_s - tiny->wall_s;
        n = seconds[0] > 0;
    }
    strcpy(p->time_source, sum > 0 ? "reported" : "command");
    p->first_s = n > 0 ? seconds[0] : (double)NAN;
    for (int t = 1; t < n; t++)
        p->warm_s[p->n_warm++] = seconds[t];
    return ATTN_OK;
}

/* A result that cannot be read is a wrong one, unless that is no fault of the command. */
static enum attn_status read_results(struct attn_point_work *work, const char *folder,
                                     struct attn_error *err)
{
    enum attn_status status = attn_exec_read(folder, work->claims, &work->setup, err);
    if (status == ATTN_OK || status == ATTN_ENOMEM || status == ATTN_ENOTSUP)
        return status;
    strcpy(work->point->judged.verdict, attn_verdict_name(ATTN_FAILED));
    return told(work, ATTN_POINT_WRONG, err->text);
}

/* ---- the whole ------------------------------------------------------------------------------- */

enum attn_status attn_point_command_run(struct attn_point_work *work, struct attn_error *err)
{
    struct attn_process tiny, ran;
    char small[4096], whole[4096];
    double start = attn_seconds(CLOCK_MONOTONIC);
    snprintf(small, sizeof small, "%.4000s/tiny", work->how->folder);
    snprintf(whole, sizeof whole, "%.4000s/case", work->how->folder);
    enum attn_status status = attn_exec_write_tiny(small, work->claims, &work->point->c, err);
    if (status == ATTN_OK)
        status = attn_exec_write(whole, work->claims, &work->setup, err);
    work->point->setup_s += attn_seconds(CLOCK_MONOTONIC) - start;
    if (status == ATTN_OK)
        status = run(work, small, &tiny);
    if (status == ATTN_OK)
        status = run(work, whole, &ran);
    if (status != ATTN_OK)
        return status;
    keep_memory(work->point, &tiny, &ran);
    status = keep_time(work, whole, &tiny, &ran);
    return status == ATTN_OK ? read_results(work, whole, err) : status;
}

enum attn_status attn_point_command_open(struct attn_point_work *work, struct attn_error *err)
{
    work->is_started = 1;
    if (export_repeats(work->how) != 0 ||
        attn_helper_open(&work->launcher, serve, work->point->source, SIGTERM) != 0)
        return attn_fail(err, ATTN_ENOMEM, "no process for the command: %s", strerror(errno));
    return attn_claims_read(work->x.claims_path, &work->x.claims, err);
}
