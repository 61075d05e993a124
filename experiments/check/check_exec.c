/* attnlab check --exec: a command that reads a folder of cases and writes a folder of results.
 *
 * It is started once.  When it dies, the first case without results is the one that broke it; it is
 * started again on those that remain, so that one bad case does not hide the others.  That ends
 * after STARTS, or when three starts in turn come to nothing; what is left then was not reached.
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
#include "experiments/check/check_soak.h"
#include "experiments/cli/cli.h"
#include "experiments/measure/exec_case.h"
#include "ref/clock.h"
#include "tests/harness/external/vector_files.h"
#include "tests/harness/files/fileio.h"
#include "tests/harness/files/folder.h"
#include "tests/harness/process.h"

enum { STARTS = 10, IDLE = 3 };

/* ---- one start ------------------------------------------------------------------------------- */

struct exec {
    struct attn_candidate *s;
    struct attn_question *question;
    const char *command, *folder;
    char out[PATH_MAX + 16];
    int starts, idle, rounds; /* rounds: of a soak, each with folders of its own */
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

/* Take what is done off the list; returns how many that were.  *first: of those that are not. */
static int settle(struct exec *x, struct attn_asked **first)
{
    int done = 0;
    *first = NULL;
    for (int i = 0; i < x->question->n; i++) {
        struct attn_asked *asked = &x->question->asked[i];
        if (!asked->written || asked->settled)
            continue;
        asked->settled = attn_vector_files_done(x->out, asked->name, &x->s->claims, &asked->c);
        done += asked->settled;
        if (!asked->settled && *first == NULL)
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
        attn_vector_files_end(&writer, 1, &err) != ATTN_OK)
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

/* Write what is left and start the command on it.  0, or an exit status. */
static int start(struct exec *x)
{
    char cases[PATH_MAX + 64];
    struct attn_error err = {0};
    int written, n = x->rounds + x->starts;
    snprintf(cases, sizeof cases, n > 0 ? "%s/cases-%d" : "%s/cases", x->folder, n + 1);
    if (attn_question_write(x->question, cases, &x->s->claims, &written, &err) != ATTN_OK)
        return attn_candidate_fail(x->s, ATTN_EXIT_LACKS, "%s", err.text);
    int status = run_on(x, cases);
    x->starts++;
    if (status == 0 && x->starts == 1 && x->rounds == 0 && !ended_well(&x->ran))
        status = does_it_start(x);
    if (status == 0 && x->s->request->soak == 0)
        fprintf(stderr, "note: %d cases written; the command took %.2f s\n", written,
                x->ran.wall_s);
    return status;
}

/* After a start that did not end well: name the case that broke it.  Is there reason to go on? */
static int blame(struct exec *x)
{
    struct attn_asked *broken;
    int done = settle(x, &broken);
    char text[sizeof broken->said];
    enum attn_verdict verdict = describe(x, text, sizeof text);
    if (broken == NULL) {
        fprintf(stderr, "note: every case has results, but %s\n", strstr(text, "the command"));
        return 0;
    }
    broken->without = verdict;
    memcpy(broken->said, text, sizeof text);
    broken->settled = 1;
    fprintf(stderr, "note: at case %s %s\n", broken->name, strstr(text, "the command"));
    x->idle = done > 0 ? 0 : x->idle + 1;
    if (x->ran.timed_out || x->idle == IDLE || x->starts == STARTS || !(x->left_s > 0))
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
    int status = 0, go_on = 1;
    x->starts = x->idle = 0;
    x->left_s = x->s->timeout_s;
    while (go_on && (status = start(x)) == 0 && !ended_well(&x->ran))
        go_on = blame(x);
    if (status != 0)
        return status;
    settle(x, &missing);
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
    snprintf(r.text, sizeof r.text,
             "%d case%s not reached: the command %s at case %.80s (start %d); an error in one case "
             "need not end it (docs/external.md)",
             s->not_reached, s->not_reached > 1 ? "s" : "",
             x->ran.timed_out ? "ran out of time" : "died", at, x->starts);
    const struct attn_subject subject = {"case", "", "cases not reached", "", "", "", NULL};
    attn_candidate_say(s, &subject, &r, 0, 0);
}

/* ---- soak ------------------------------------------------------------------------------------ */

enum { ROUND = 600, SHOWN = 8, COPIES = 20 };

/* Cases that failed, and all their runs. */
struct failing {
    struct attn_case c[SHOWN];
    struct attn_soak_tally runs[SHOWN];
    int n;
};

static double size_of(const struct attn_case *c)
{
    return (double)(c->batch * c->heads) * (double)(c->n_query * c->n_key + 1) *
           (double)(c->d_key + c->d_value + 1);
}

/* Keep the smallest few. */
static void keep(struct failing *f, const struct attn_case *c, const struct attn_result *r)
{
    int at = f->n < SHOWN ? f->n++ : SHOWN;
    for (; at > 0 && size_of(&f->c[at - 1]) > size_of(c); at--)
        if (at < SHOWN) {
            f->c[at] = f->c[at - 1];
            f->runs[at] = f->runs[at - 1];
        }
    if (at == SHOWN)
        return;
    f->c[at] = *c;
    f->runs[at] = (struct attn_soak_tally){.runs = 0};
    attn_soak_tally(&f->runs[at], r);
}

static void judge_one(struct exec *x, int i, struct attn_result *r)
{
    unsigned needs;
    attn_files_judge(x->s, &x->question->asked[i], x->out, r, &needs);
    if (x->question->asked[i].not_reached)
        r->verdict = ATTN_ERROR;
}

/* A round of cases: n random ones from `from`, or copies of those that failed.  0, or an exit
 * status. */
static int run_round(struct exec *x, uint64_t from, const struct failing *f)
{
    struct attn_question *round = x->question;
    round->n = f != NULL ? f->n * COPIES : ROUND;
    memset(round->asked, 0, ROUND * sizeof *round->asked);
    for (int i = 0; i < round->n; i++) {
        struct attn_asked *asked = &round->asked[i];
        snprintf(asked->name, sizeof asked->name, f != NULL ? "again-%llu" : "soak-%llu",
                 (unsigned long long)from + (unsigned long long)i);
        if (f != NULL)
            asked->c = f->c[i % f->n];
        else
            attn_soak_case((uint64_t)x->s->request->seed, from + (uint64_t)i, &asked->c);
    }
    int status = run(x);
    x->rounds += STARTS;
    return status;
}

/* Ask what failed again, twenty copies of each in one start: does it always fail? */
static int confirm(struct exec *x, const struct attn_soak *soak, struct failing *f,
                   struct attn_soak_count *count)
{
    struct attn_verdict_list *list = x->s->list;
    int status = f->n > 0 ? run_round(x, 0, f) : 0;
    for (int i = 0; i < x->question->n && f->n > 0 && status == 0; i++) {
        struct attn_result r;
        judge_one(x, i, &r);
        attn_soak_tally(&f->runs[i % f->n], &r);
    }
    for (int n = 0; n < f->n; n++) {
        const struct attn_soak_tally *t = &f->runs[n];
        if (t->failed == t->runs) {
            attn_soak_file(soak, &f->c[n], NULL, "a random case", &t->bad, list);
            continue;
        }
        attn_soak_intermittent(soak, &f->c[n], &f->c[n], t, NULL, list);
        count->verdict[t->bad.verdict]--;
        count->verdict[ATTN_INTERMITTENT]++;
    }
    return status;
}

/* Rounds of random cases, one start each, until one has failures or time is up. */
static int run_soak(struct exec *x)
{
    struct attn_candidate *s = x->s;
    const struct attn_soak soak = {
        NULL, NULL, s->route, s->request->soak, (uint64_t)s->request->seed, 1};
    struct attn_soak_count count = {0};
    struct attn_question round = {calloc(ROUND, sizeof *round.asked), ROUND, 0};
    struct failing *f = calloc(1, sizeof *f);
    double begin = attn_seconds(CLOCK_MONOTONIC);
    int status = 0;
    if (round.asked == NULL || f == NULL) {
        free(f);
        attn_question_free(&round);
        return attn_candidate_fail(s, ATTN_EXIT_LACKS, "no memory");
    }
    x->question = &round;
    while (status == 0 && f->n == 0 && attn_seconds(CLOCK_MONOTONIC) - begin < s->request->soak) {
        status = run_round(x, count.cases, NULL);
        if (status == 0 && count.cases == 0)
            attn_candidate_begin(s);
        for (int i = 0; i < round.n && status == 0; i++, count.cases++) {
            struct attn_result r;
            judge_one(x, i, &r);
            count.verdict[r.verdict] += !round.asked[i].not_reached;
            if (attn_result_is_bad(&r))
                keep(f, &round.asked[i].c, &r);
            else if (!round.asked[i].not_reached && attn_soak_is_error(&round.asked[i].c, &r))
                attn_soak_file(&soak, &round.asked[i].c, NULL, "a random case", &r, s->list);
        }
        if (status == 0)
            say_not_reached(x);
    }
    if (status == 0)
        status = confirm(x, &soak, f, &count);
    count.seconds = attn_seconds(CLOCK_MONOTONIC) - begin;
    if (status == 0)
        attn_soak_sum(&soak, &count, s->list);
    s->judged++;
    free(f);
    attn_question_free(&round);
    return status != 0 ? status : attn_candidate_end(s);
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
    if (s->request->soak > 0)
        status = run_soak(&x);
    else if ((status = run(&x)) == 0) {
        attn_candidate_begin(s);
        attn_files_judge_all(s, x.out);
        say_not_reached(&x);
        status = attn_candidate_end(s);
    }
    if (work == NULL)
        attn_exec_remove(folder);
    return status;
}
