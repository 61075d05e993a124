/* See exec.h: a command that is asked many cases at once, or the caller (caller.h).
 *
 * It is started once.  When it dies, the first case without results is the one that broke it,
 * unless the case before has the command's own words: it knew that it could not go on (a CUDA
 * error ends all later calls of a process).  It is started again on those that remain, so that one
 * bad case does not hide the others.  That ends with the time limit, which all starts have
 * together, or when three starts in turn come to nothing; what is left then was not reached.
 * A command that dies without one result is tried on an empty list of cases: if it dies of that
 * too, it does not start, and no case is to blame.
 *
 * The caller cannot be started again: when it is gone, what is left was not reached.  Each of its
 * batches has a folder of its own, in memory where that has room.
 */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/base/ending.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/base/folder.h"
#include "tests/harness/subject/caller.h"
#include "tests/harness/subject/exec.h"
#include "tests/harness/subject/vector_files.h"

enum { IDLE = 3 };

struct attn_exec {
    char folder[PATH_MAX], out[PATH_MAX + 16], cases[PATH_MAX + 64]; /* cases: of the first start */
    int all_starts; /* of all questions, each with a folder of its own */
    /* of the question: */
    struct attn_asked *asked;
    int n, starts, idle;
    double left_s;
    struct attn_process ran;
    char broken[200]; /* the last case that broke it */
};

/* ---- what a start left ----------------------------------------------------------------------- */

static int is_caller(const struct attn_subject *x)
{
    return x->route != &attn_exec_route;
}

static int ended_well(const struct attn_process *ran)
{
    return !ran->timed_out && ran->signal == 0 && ran->exit_status == 0;
}

/* The verdict on a case that has no results, and why. */
static void explain(const struct attn_subject *x, struct attn_asked *asked)
{
    char how[280];
    enum attn_verdict end = attn_exec_end(&x->command->ran, x->timeout_s, how, sizeof how);
    asked->without = end != ATTN_PASS ? end : ATTN_FAILED;
    snprintf(asked->said, sizeof asked->said, "no result%s%s",
             end != ATTN_PASS ? ": " : ", although ", how);
}

/* Take what is done off the list; returns how many that were.  *first: of those that are not;
 * *spoke: the one before it is done, and has words in place of results. */
static int settle(struct attn_subject *x, struct attn_asked **first, int *spoke)
{
    struct attn_exec *k = x->command;
    char words[300];
    int done = 0;
    *first = NULL;
    *spoke = 0;
    for (int i = 0; i < k->n; i++) {
        struct attn_asked *asked = &k->asked[i];
        if (!asked->written || asked->settled)
            continue;
        asked->settled = attn_subject_done(x, k->out, asked);
        done += asked->settled;
        if (*first == NULL && asked->settled)
            *spoke = attn_vector_files_words(k->out, asked->name, words, sizeof words) !=
                     ATTN_WORDS_NONE;
        else if (*first == NULL)
            *first = asked;
    }
    return done;
}

/* Of cases that have ranks; NULL. */
static const char *scheme_of(const struct attn_subject *x)
{
    return x->scheme[0] != '\0' ? x->scheme : NULL;
}

/* ---- one start ------------------------------------------------------------------------------- */

static enum attn_status run_on(struct attn_subject *x, const char *cases, struct attn_error *err)
{
    struct attn_exec *k = x->command;
    enum attn_status status = attn_folder_make(k->out, err);
    if (status != ATTN_OK)
        return status;
    char changed[sizeof x->meddled];
    struct attn_folder_view *before = attn_folder_look(cases);
    double seconds = fmin(k->left_s, attn_subject_left(x));
    int failed = 0, error = 0;
    k->ran.waits = x->waits;
    if (is_caller(x))
        attn_caller_hand(cases, k->out, seconds, &k->ran);
    else if ((failed = attn_process_shell(x->source, cases, k->out, seconds, &k->ran)) != 0)
        error = errno;
    if (!failed && attn_folder_changed(cases, before, changed, sizeof changed)) {
        fprintf(x->notes, "note: it changed %s, which is not in OUT\n",
                attn_cleaned(changed, x->meddled, sizeof x->meddled));
    }
    attn_folder_forget(before);
    if (!is_caller(x) && attn_process_end_children(0.2) > 0 && x->strays++ == 0)
        fprintf(x->notes, "note: processes that it had left behind were ended\n");
    if (failed)
        return attn_fail(err, ATTN_ENOMEM, "'%.200s' cannot be started: %s", x->source,
                         strerror(error));
    k->left_s -= k->ran.wall_s;
    return ATTN_OK;
}

/* After a first start that died: without any result, and on an empty list too, it is not the
 * cases. */
static enum attn_status does_it_start(struct attn_subject *x, struct attn_error *err)
{
    struct attn_exec *k = x->command;
    char none[PATH_MAX + 64], how[300];
    struct attn_process first = k->ran;
    struct attn_vector_files_writer writer;
    for (int i = 0; i < k->n; i++)
        if (attn_vector_files_has(k->out, k->asked[i].name))
            return ATTN_OK;
    if (attn_exec_missing(&k->ran) != NULL)
        return attn_fail(err, ATTN_EINVAL, "'%.200s' cannot be run: %s", x->source,
                         attn_exec_missing(&k->ran));
    snprintf(none, sizeof none, "%s/no-cases", k->folder);
    if (k->ran.timed_out || !(k->left_s > 0))
        return ATTN_OK;
    enum attn_status status = attn_vector_files_begin(none, &x->claims, &writer, err);
    writer.scheme = scheme_of(x);
    writer.ranks = x->claims.ranks;
    if (status == ATTN_OK)
        status = attn_vector_files_end(&writer, ATTN_OK, err);
    if (status == ATTN_OK)
        status = run_on(x, none, err);
    if (status == ATTN_OK && !k->ran.timed_out && !ended_well(&k->ran)) {
        attn_exec_end(&k->ran, x->timeout_s, how, sizeof how);
        status =
            attn_fail(err, ATTN_EINVAL, "'%.200s' does not start: on an empty list of cases too %s",
                      x->source, how);
    }
    k->ran = first;
    return status;
}

static int is_left(void *command, const char *name)
{
    const struct attn_exec *k = command;
    for (int i = 0; i < k->n; i++)
        if (strcmp(k->asked[i].name, name) == 0)
            return !k->asked[i].settled;
    return 0;
}

/* Start the command on its cases, or on those that are left. */
static enum attn_status start(struct attn_subject *x, struct attn_error *err)
{
    struct attn_exec *k = x->command;
    char rest[PATH_MAX + 64];
    int written = 0, is_first = k->starts == 0, n = ++k->all_starts;
    snprintf(rest, sizeof rest, "%s/rest-%d", k->folder, n);
    if (is_first)
        snprintf(k->cases, sizeof k->cases, n > 1 ? "%s/cases-%d" : "%s/cases", k->folder, n);
    enum attn_status status = is_first
                                  ? attn_vector_files_write_all(k->cases, &x->claims, scheme_of(x),
                                                                0, k->asked, k->n, &written, err)
                                  : attn_vector_files_rest(rest, k->cases, is_left, k, err);
    if (status == ATTN_OK)
        status = run_on(x, is_first ? k->cases : rest, err);
    k->starts++;
    if (status == ATTN_OK && n == 1 && !ended_well(&k->ran) && !is_caller(x))
        status = does_it_start(x, err);
    if (status == ATTN_OK && n == 1 && !is_caller(x))
        fprintf(x->notes, "note: %d cases written; the command took %.2f s\n", written,
                k->ran.wall_s);
    return status;
}

/* It may never read the report: the case is named at once.  spoke: it said in the case before that
 * it could not go on. */
static void lose_caller(struct attn_subject *x, const struct attn_asked *broken, int spoke,
                        const char *how)
{
    char text[ATTN_CASE_TEXT];
    x->gone = x->command->ran.timed_out ? ATTN_TIMEOUT : ATTN_CRASH;
    attn_case_print(&broken->c, text);
    fprintf(x->notes, "attnlab: %s %s case %s, '%s': %s\n", attn_verdict_name(x->gone),
            spoke ? "before" : "in", broken->name, text, how);
}

/* After a start that did not end well: name the case that broke it.  Is there reason to go on? */
static int blame(struct attn_subject *x)
{
    struct attn_exec *k = x->command;
    struct attn_asked *broken;
    char how[300];
    int spoke, done = settle(x, &broken, &spoke);
    attn_exec_end(&k->ran, x->timeout_s, how, sizeof how);
    if (broken == NULL) {
        fprintf(x->notes, "note: every case has results, but %s\n", how);
        return 0;
    }
    if (k->ran.timed_out && !(attn_subject_left(x) > 0))
        return 0; /* the budget is used up, which no case is to blame for */
    if (!spoke || k->ran.timed_out) {
        explain(x, broken);
        broken->settled = 1;
    }
    if (is_caller(x)) {
        lose_caller(x, broken, spoke, how);
        return 0;
    }
    fprintf(x->notes, "note: %s case %s %s\n", spoke ? "before" : "at", broken->name, how);
    k->idle = done > 0 ? 0 : k->idle + 1;
    if (k->ran.timed_out || k->idle == IDLE || !(k->left_s > 0))
        return 0;
    for (int i = 0; i < k->n; i++)
        if (k->asked[i].written && !k->asked[i].settled)
            return 1;
    return 0;
}

/* ---- a question ------------------------------------------------------------------------------ */

/* Start it, again and again if need be, and say of every case without results why that is so. */
static enum attn_status run(struct attn_subject *x, struct attn_error *err)
{
    struct attn_exec *k = x->command;
    struct attn_asked *missing;
    enum attn_status status = ATTN_OK;
    int go_on = 1, spoke;
    k->starts = k->idle = 0;
    k->left_s = x->timeout_s;
    while (go_on && (status = start(x, err)) == ATTN_OK && !ended_well(&k->ran))
        go_on = blame(x);
    if (status != ATTN_OK)
        return status;
    settle(x, &missing, &spoke);
    k->broken[0] = '\0';
    for (int i = 0; i < k->n; i++) {
        struct attn_asked *asked = &k->asked[i];
        if (asked->said[0] != '\0')
            snprintf(k->broken, sizeof k->broken, "%s", asked->name);
        if (!asked->written || asked->settled)
            continue;
        if (ended_well(&k->ran) && attn_vector_files_has(k->out, asked->name))
            continue; /* what is missing there is said when it is read */
        asked->not_reached = !ended_well(&k->ran);
        explain(x, asked);
    }
    return ATTN_OK;
}

/* Of the caller: nothing more is handed to it. */
static void reach_none(struct attn_subject *x, int n, struct attn_answer *answer)
{
    for (int i = 0; i < n; i++)
        answer[i] = (struct attn_answer){.result = {.verdict = ATTN_ERROR}, .not_reached = 1};
    x->not_reached += n;
}

/* A folder for these cases: inputs, as many results, and some room. */
static enum attn_status open_batch(struct attn_subject *x, struct attn_error *err)
{
    struct attn_exec *k = x->command;
    double bytes = 16 << 20;
    for (int i = 0; i < k->n; i++)
        bytes += 2 * attn_case_bytes(&k->asked[i].c);
    enum attn_status status = attn_temporary_open_for(bytes, k->folder, err);
    snprintf(k->out, sizeof k->out, "%s/out", k->folder);
    return status;
}

enum attn_status attn_exec_ask(struct attn_subject *x, struct attn_asked *asked, int n,
                               struct attn_answer *answer, struct attn_error *err)
{
    struct attn_exec *k = x->command;
    const int has_batches = is_caller(x) && x->work == NULL;
    k->n = n;
    k->asked = asked;
    if (x->gone != ATTN_PASS) {
        reach_none(x, n, answer);
        return ATTN_OK;
    }
    enum attn_status status = has_batches ? open_batch(x, err) : ATTN_OK;
    const int is_open = has_batches && status == ATTN_OK;
    if (status == ATTN_OK)
        status = run(x, err);
    for (int i = 0; i < n && status == ATTN_OK; i++) {
        answer[i] = (struct attn_answer){.not_reached = asked[i].not_reached};
        if (asked[i].not_reached)
            answer[i].result.verdict = ATTN_ERROR;
        else
            attn_subject_judge(x, &asked[i], k->out, &answer[i]);
        x->not_reached += asked[i].not_reached;
    }
    if (is_open)
        attn_temporary_close(k->folder);
    return status;
}

void attn_exec_unreached(const struct attn_subject *x, char *text, size_t size)
{
    const int n = x->not_reached;
    const struct attn_exec *k = x->command;
    const char *at = k->broken;
    if (is_caller(x)) {
        snprintf(text, size, "%d case%s and relations not reached: the caller %s", n,
                 n > 1 ? "s" : "", x->gone == ATTN_TIMEOUT ? "ran out of time" : "is gone");
        return;
    }
    snprintf(text, size,
             "%d case%s not reached: the command %s%s%.80s (start %d); an error in one case need "
             "not end it (docs/external.md)",
             n, n > 1 ? "s" : "", k->ran.timed_out || !(k->left_s > 0) ? "ran out of time" : "died",
             at[0] != '\0' ? " at case " : "", at, k->starts);
}

/* ---- from its folder to its end -------------------------------------------------------------- */

enum attn_status attn_exec_open(struct attn_subject *x, struct attn_error *err)
{
    struct attn_exec *k = x->command = calloc(1, sizeof *k);
    if (k == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for a command");
    enum attn_status status = x->work != NULL ? attn_folder_make(x->work, err)
                              : is_caller(x)  ? ATTN_OK
                                              : attn_temporary_open(k->folder, err);
    if (status == ATTN_OK && x->work != NULL && realpath(x->work, k->folder) == NULL)
        status = attn_fail(err, ATTN_ENOMEM, "%s: %s", x->work, strerror(errno));
    snprintf(k->out, sizeof k->out, "%s/out", k->folder);
    if (status != ATTN_OK) {
        free(k);
        x->command = NULL;
    }
    return status;
}

void attn_exec_close(struct attn_subject *x)
{
    if (x->work == NULL && !is_caller(x))
        attn_temporary_close(x->command->folder);
    free(x->command);
    x->command = NULL;
}

/* Words of the command that are files, such as the script after an interpreter's name.  Files
 * that such a script loads by itself are not seen. */
static void files(const struct attn_subject *x, void (*see)(void *arg, const char *path), void *arg)
{
    char *copy = strdup(x->source), *rest = copy, *word;
    while (copy != NULL && (word = strsep(&rest, " \t\n'\"<>;&|=")) != NULL)
        if (*word != '\0')
            see(arg, word);
    free(copy);
}

const struct attn_subject_route attn_exec_route = {.word = "command",
                                                   .flag = "exec",
                                                   .route = ATTN_ROUTE_FILES,
                                                   .soak_calls = 1,
                                                   .usual_s = 600,
                                                   .open = attn_exec_open,
                                                   .ask = attn_exec_ask,
                                                   .close = attn_exec_close,
                                                   .unreached = attn_exec_unreached,
                                                   .try = attn_exec_try,
                                                   .files = files};
