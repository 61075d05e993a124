/* attnlab check --exec: a command that reads a folder of cases and writes a folder of results.
 *
 * It is started once.  When it dies, the first case without results is the one that broke it,
 * unless the case before has the command's own words: it knew that it could not go on (a CUDA
 * error ends all later calls of a process).  It is started again on those that remain, so that one
 * bad case does not hide the others.  That ends with --timeout, which all starts have together, or
 * when three starts in turn come to nothing; what is left then was not reached.
 * A command that dies without one result is tried on an empty list of cases: if it dies of that
 * too, it does not start, and no case is to blame.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "experiments/check/check.h"
#include "experiments/cli/cli.h"
#include "experiments/measure/exec_case.h"
#include "ref/clock.h"
#include "tests/harness/external/vector_files.h"
#include "tests/harness/files/fileio.h"
#include "tests/harness/files/folder.h"
#include "tests/harness/process.h"

enum { IDLE = 3 };

/* ---- one start ------------------------------------------------------------------------------- */

struct exec {
    struct attn_candidate *s;
    struct attn_question *question;
    const char *command, *folder;
    char out[PATH_MAX + 16], cases[PATH_MAX + 64]; /* cases: of the first start */
    int starts, idle;
    int all_starts, named; /* of a soak: starts and cases so far, each with a folder of its own */
    double left_s;
    struct attn_process ran;
};

/* How the command ended, for a case that has no results. */
static enum attn_verdict describe(const struct exec *x, char *text, size_t size)
{
    const struct attn_process *ran = &x->ran;
    const char *said = ran->last_line[0] != '\0' ? "; it said: " : "";
    char end[64];
    if (ran->timed_out)
        snprintf(end, sizeof end, ": the command had not ended after %g s", x->s->timeout_s);
    else if (ran->signal != 0)
        snprintf(end, sizeof end, ": the command died (%s)", strsignal(ran->signal));
    else if (ran->exit_status != 0)
        snprintf(end, sizeof end, ": the command ended with status %d", ran->exit_status);
    else
        snprintf(end, sizeof end, ", although the command ended well");
    snprintf(text, size, "no result%s%s%.150s", end, said, ran->last_line);
    attn_clean(text);
    return ran->timed_out                              ? ATTN_TIMEOUT
           : ran->signal != 0 || ran->exit_status != 0 ? ATTN_CRASH
                                                       : ATTN_FAILED;
}

static int ended_well(const struct attn_process *ran)
{
    return !ran->timed_out && ran->signal == 0 && ran->exit_status == 0;
}

/* Take what is done off the list; returns how many that were.  *first: of those that are not;
 * *spoke: the one before it is done, and has words in place of results. */
static int settle(struct exec *x, struct attn_asked **first, int *spoke)
{
    char words[300];
    int done = 0;
    *first = NULL;
    *spoke = 0;
    for (int i = 0; i < x->question->n; i++) {
        struct attn_asked *asked = &x->question->asked[i];
        if (!asked->written || asked->settled)
            continue;
        asked->settled = attn_vector_files_done(x->out, asked->name, &x->s->claims, &asked->c);
        done += asked->settled;
        if (*first == NULL && asked->settled)
            *spoke = attn_vector_files_words(x->out, asked->name, words, sizeof words) !=
                     ATTN_WORDS_NONE;
        else if (*first == NULL)
            *first = asked;
    }
    return done;
}

/* 0, or an exit status. */
static int run_on(struct exec *x, const char *cases)
{
    struct attn_error err = {0};
    if (attn_folder_make(x->out, &err) != ATTN_OK)
        return attn_candidate_fail(x->s, ATTN_EXIT_LACKS, "%s", err.text);
    if (attn_process_shell(x->command, cases, x->out, x->left_s, &x->ran) != 0)
        return attn_candidate_fail(x->s, ATTN_EXIT_LACKS, "'%.200s' cannot be started: %s",
                                   x->command, strerror(errno));
    x->left_s -= x->ran.wall_s;
    return 0;
}

/* After a first start that died: without any result, and on an empty list too, it is not the cases.
 * 0, or an exit status. */
static int does_it_start(struct exec *x)
{
    char none[PATH_MAX + 64], how[300];
    struct attn_error err = {0};
    struct attn_process first = x->ran;
    struct attn_vector_files_writer writer;
    for (int i = 0; i < x->question->n; i++)
        if (attn_vector_files_has(x->out, x->question->asked[i].name))
            return 0;
    if (x->ran.exit_status == 127 || x->ran.exit_status == 126) /* the shell's words for it */
        return attn_candidate_fail(x->s, ATTN_EXIT_USAGE, "'%.200s' cannot be run: %s", x->command,
                                   x->ran.last_line[0] != '\0' ? x->ran.last_line : "not found");
    snprintf(none, sizeof none, "%s/no-cases", x->folder);
    if (x->ran.timed_out || !(x->left_s > 0))
        return 0;
    if (attn_vector_files_begin(none, &x->s->claims, &writer, &err) != ATTN_OK ||
        attn_vector_files_end(&writer, ATTN_OK, &err) != ATTN_OK)
        return attn_candidate_fail(x->s, ATTN_EXIT_LACKS, "%s", err.text);
    int status = run_on(x, none);
    if (status == 0 && !x->ran.timed_out && !ended_well(&x->ran)) {
        describe(x, how, sizeof how);
        status = attn_candidate_fail(x->s, ATTN_EXIT_USAGE,
                                     "'%.200s' does not start: on an empty list of cases too %s",
                                     x->command, strstr(how, "the command"));
    }
    x->ran = first;
    return status;
}

static int is_left(void *question, const char *name)
{
    const struct attn_question *q = question;
    for (int i = 0; i < q->n; i++)
        if (strcmp(q->asked[i].name, name) == 0)
            return !q->asked[i].settled;
    return 0;
}

/* Start the command on its cases, or on those that are left.  0, or an exit status. */
static int start(struct exec *x)
{
    char rest[PATH_MAX + 64];
    struct attn_error err = {0};
    int written = 0, is_first = x->starts == 0, n = ++x->all_starts;
    snprintf(rest, sizeof rest, "%s/rest-%d", x->folder, n);
    if (is_first)
        snprintf(x->cases, sizeof x->cases, n > 1 ? "%s/cases-%d" : "%s/cases", x->folder, n);
    enum attn_status wrote =
        is_first ? attn_question_write(x->question, x->cases, &x->s->claims, &written, &err)
                 : attn_vector_files_rest(rest, x->cases, is_left, x->question, &err);
    if (wrote != ATTN_OK)
        return attn_candidate_fail(x->s, ATTN_EXIT_LACKS, "%s", err.text);
    int status = run_on(x, is_first ? x->cases : rest);
    x->starts++;
    if (status == 0 && n == 1 && !ended_well(&x->ran))
        status = does_it_start(x);
    if (status == 0 && x->s->request->soak == 0 && is_first)
        fprintf(stderr, "note: %d cases written; the command took %.2f s\n", written,
                x->ran.wall_s);
    return status;
}

/* After a start that did not end well: name the case that broke it.  Is there reason to go on? */
static int blame(struct exec *x)
{
    struct attn_asked *broken;
    int spoke, done = settle(x, &broken, &spoke);
    char text[sizeof broken->said];
    enum attn_verdict verdict = describe(x, text, sizeof text);
    if (broken == NULL) {
        fprintf(stderr, "note: every case has results, but %s\n", strstr(text, "the command"));
        return 0;
    }
    if (!spoke || x->ran.timed_out) {
        broken->without = verdict;
        memcpy(broken->said, text, sizeof text);
        broken->settled = 1;
    }
    fprintf(stderr, "note: %s case %s %s\n", spoke ? "before" : "at", broken->name,
            strstr(text, "the command"));
    x->idle = done > 0 ? 0 : x->idle + 1;
    if (x->ran.timed_out || x->idle == IDLE || !(x->left_s > 0))
        return 0;
    for (int i = 0; i < x->question->n; i++)
        if (x->question->asked[i].written && !x->question->asked[i].settled)
            return 1;
    return 0;
}

/* Start it, again and again if need be, and say of every case without results why that is so.  0,
 * or an exit status. */
static int run(struct exec *x)
{
    struct attn_asked *missing;
    int status = 0, go_on = 1, spoke;
    x->starts = x->idle = 0;
    x->left_s = x->s->timeout_s;
    while (go_on && (status = start(x)) == 0 && !ended_well(&x->ran))
        go_on = blame(x);
    if (status != 0)
        return status;
    settle(x, &missing, &spoke);
    for (int i = 0; i < x->question->n; i++) {
        struct attn_asked *asked = &x->question->asked[i];
        if (!asked->written || asked->settled)
            continue;
        if (ended_well(&x->ran) && attn_vector_files_has(x->out, asked->name))
            continue; /* what is missing there is said when it is read */
        asked->not_reached = !ended_well(&x->ran);
        asked->without = describe(x, asked->said, sizeof asked->said);
    }
    return 0;
}

/* ---- what was not reached -------------------------------------------------------------------- */

static void say_not_reached(struct exec *x)
{
    struct attn_candidate *s = x->s;
    struct attn_result r = {.verdict = ATTN_ERROR};
    const char *at = "";
    for (int i = 0; i < x->question->n; i++) {
        const struct attn_asked *asked = &x->question->asked[i];
        s->not_reached += asked->not_reached;
        if (asked->said[0] != '\0' && !asked->not_reached)
            at = asked->name;
    }
    if (s->not_reached == 0)
        return;
    snprintf(
        r.text, sizeof r.text,
        "%d case%s not reached: the command %s%s%.80s (start %d); an error in one case need not "
        "end it (docs/external.md)",
        s->not_reached, s->not_reached > 1 ? "s" : "",
        x->ran.timed_out || !(x->left_s > 0) ? "ran out of time" : "died",
        at[0] != '\0' ? " at case " : "", at, x->starts);
    const struct attn_subject subject = {"case", "", "cases not reached", "", "", "", NULL};
    attn_candidate_say(s, &subject, &r, 0, 0);
}

/* ---- soak ------------------------------------------------------------------------------------ */

/* So many random cases at a time: a start may take seconds. */
enum { ROUND = 600 };

/* A round of cases in one start, or copies of one case.  How many the command did not come to is
 * said of a round. */
static int judge_random(void *arg, const struct attn_case *c, int n,
                        const struct attn_repetition *how, int flags, struct attn_result *r)
{
    struct exec *x = arg;
    struct attn_candidate *s = x->s;
    struct attn_question round = {attn_cli_need(calloc((size_t)n, sizeof *round.asked)), n, 0,
                                  NULL};
    unsigned needs;
    (void)how;
    (void)flags;
    for (int i = 0; i < n; i++) {
        round.asked[i].c = c[i];
        snprintf(round.asked[i].name, sizeof round.asked[i].name, "soak-%d", x->named++);
    }
    x->question = &round;
    int status = run(x);
    if (status == 0 && s->list == NULL)
        attn_candidate_begin(s);
    for (int i = 0; i < n && status == 0; i++) {
        attn_files_judge(s, &round.asked[i], x->out, &r[i], &needs);
        if (round.asked[i].not_reached)
            r[i] = (struct attn_result){.verdict = ATTN_ERROR};
    }
    if (status == 0 && n == ROUND)
        say_not_reached(x);
    attn_question_free(&round);
    return status;
}

/* ---- the interface --------------------------------------------------------------------------- */

/* 0, or an exit status. */
static int make_folder(struct attn_candidate *s, const char *work, char folder[PATH_MAX])
{
    struct attn_error err = {0};
    enum attn_status status =
        work != NULL ? attn_folder_make(work, &err) : attn_exec_folder(folder, &err);
    if (status != ATTN_OK)
        return attn_candidate_fail(s, attn_cli_status(status), "%s", err.text);
    if (work != NULL && realpath(work, folder) == NULL)
        return attn_candidate_fail(s, ATTN_EXIT_LACKS, "%s: %s", work, strerror(errno));
    return 0;
}

int attn_check_exec(struct attn_candidate *s, const char *work)
{
    char folder[PATH_MAX];
    struct exec x = {.s = s, .question = &s->question, .command = s->source, .folder = folder};
    int status = make_folder(s, work, folder);
    if (status != 0)
        return status;
    snprintf(x.out, sizeof x.out, "%s/out", folder);
    attn_candidate_route(s, "--exec", s->source);
    attn_candidate_route(s, "--claims", s->claims_path);
    const struct attn_soak soak = {judge_random, &x, 1, ROUND};
    if (s->request->soak > 0)
        status = attn_soak_run(s, &soak);
    else if ((status = run(&x)) == 0) {
        attn_candidate_begin(s);
        attn_files_judge_all(s, x.out);
        say_not_reached(&x);
    }
    if (status == 0)
        status = attn_candidate_end(s);
    if (work == NULL)
        attn_exec_remove(folder);
    return status;
}
