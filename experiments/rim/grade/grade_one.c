/* See grading.h: one submission in a process of its own, which brings back a sheet.
 *
 * The sheet is in memory that only this process and that one have: the submission's own program is
 * started by that one, and cannot reach it.  An attack on other processes or files costs it all
 * points. */
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "experiments/rim/grade/grading.h"
#include "ref/clock.h"
#include "tests/harness/base/ending.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/base/folder.h"
#include "tests/harness/base/process.h"

/* The limit of honest work is processor time of each process of the submission, so that a loaded
 * machine and the diagnosis of its failures cost no points. */
enum { PLUGIN_CPU_S = 60, COMMAND_CPU_S = 30 };

/* By the clock, for those that sleep: one call of a plug-in, a command on all cases, asking, the
 * whole; and how long processes that end by themselves may take for it. */
static const double CALL_S = 15, COMMAND_S = 300, ASK_S = 400, WHOLE_S = 900, GRACE_S = 0.2;

struct work {
    const struct attn_task *task;
    const struct attn_submission *of;
    struct attn_sheet *sheet; /* shared */
    const char *temporary;    /* $TMPDIR of the one that grades: it may be killed */
};

static void zero(struct attn_sheet *sheet, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void zero(struct attn_sheet *sheet, const char *format, ...)
{
    va_list args;
    if (sheet->zero[0] != '\0')
        return;
    va_start(args, format);
    vsnprintf(sheet->zero, sizeof sheet->zero, format, args);
    va_end(args);
    attn_clean(sheet->zero);
}

/* ---- in the process of its own --------------------------------------------------------------- */

static void limit(int what, rlim_t soft, rlim_t hard)
{
    struct rlimit r = {soft, hard};
    setrlimit(what, &r);
}

/* A plug-in writes no files worth mentioning, so that memory that is no process's, as of
 * memfd_create, does not hide what grows with the square of the length. */
static void limit_files(const struct attn_submission *of)
{
    const int is_plugin = of->x.route == &attn_plugin_route;
    const rlim_t bytes = is_plugin ? 64 << 10 : 1 << 30, files = is_plugin ? 64 : 1024;
    limit(RLIMIT_FSIZE, bytes, bytes);
    limit(RLIMIT_NOFILE, files, files);
}

/* Nothing of the lecturer's environment but what finds programs and libraries. */
static void clear_environment(void)
{
    static const char *const stays[] = {"PATH",       "LANG",         "LC_ALL",
                                        "PYTHONPATH", "ASAN_OPTIONS", "OMP_NUM_THREADS"};
    enum { STAYS = sizeof stays / sizeof *stays };
    char *value[STAYS];
    for (int n = 0; n < STAYS; n++)
        value[n] = getenv(stays[n]) != NULL ? attn_cli_need(strdup(getenv(stays[n]))) : NULL;
    clearenv();
    for (int n = 0; n < STAYS; n++)
        if (value[n] != NULL)
            setenv(stays[n], value[n], 1);
}

/* Every process that it starts inherits all of this. */
static void confine(const struct attn_submission *of, const char *temporary)
{
    const int is_plugin = of->x.route == &attn_plugin_route;
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    setpgid(0, 0); /* a submission that ends its process group does not end ours */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_DUMPABLE, 0); /* truths lie here: no other process of the user reads them */
    signal(SIGXCPU, SIG_IGN); /* the limit is not its own: plug-ins and programs take it as usual */
    limit(RLIMIT_CORE, 0, 0);
    limit(RLIMIT_CPU, is_plugin ? PLUGIN_CPU_S : COMMAND_CPU_S, RLIM_INFINITY);
    limit_files(of);
    clear_environment();
    setenv("PYTHONDONTWRITEBYTECODE", "1", 1);
    setenv("TMPDIR", temporary, 1);
    if (null >= 0) { /* notes for people who look at one */
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
    }
    if (of->folder != NULL) {
        if (chdir(of->folder) != 0)
            attn_cli_lack("%s: not there", of->folder);
        setenv("TMPDIR", of->folder, 1);
        setenv("HOME", of->folder, 1);
    }
}

/* Looks for acts that no honest submission does. */
static void look_for_attacks(const struct attn_candidate *s, struct attn_sheet *sheet)
{
    for (int e = 0; s->list != NULL && e < s->list->n; e++) {
        const struct attn_verdict_entry *x = &s->list->entry[e];
        if (x->result.meddles)
            zero(sheet, "%s %.200s: %.400s", x->name, x->text, x->result.text);
    }
    if (s->x.meddled[0] != '\0')
        zero(sheet, "it changed %s, which is not in its folder of results", s->x.meddled);
    if (s->x.strays > 0)
        zero(sheet, "it left processes behind, which were ended");
}

/* Opens the submission that is judged, as `check` and `measure` know it. */
static enum attn_status introduce(struct attn_grading *g, struct attn_error *err)
{
    static struct attn_check_request request = {.relation = "none", .seed = 1};
    static struct attn_verdicts verdicts;
    const struct attn_submission *of = g->of;
    struct attn_candidate *s = &g->candidate;
    char ring[32];
    request.budget = ASK_S;
    attn_verdicts_open(&verdicts, stdout);
    *s = (struct attn_candidate){.request = &request, .verdicts = &verdicts, .keeps = 1};
    s->x = of->x;
    snprintf(s->x.name, sizeof s->x.name, "submission");
    s->x.timeout_s = of->x.route == &attn_plugin_route ? CALL_S : COMMAND_S;
    s->x.until = attn_seconds(CLOCK_MONOTONIC) + ASK_S;
    if (of->route != NULL)
        snprintf(s->route, sizeof s->route, "%s", of->route);
    if (of->x.route != &attn_exec_route || g->task->lab->form != ATTN_LAB_CODE)
        return ATTN_OK;
    enum attn_status status = attn_claims_read(of->x.claims_path, &s->x.claims, err);
    snprintf(ring, sizeof ring, "ring:ranks=%d", g->task->claims.ranks);
    return status == ATTN_OK && g->task->claims.ranks > 0
               ? attn_subject_set_scheme(&s->x, ring, err)
               : status;
}

/* Ask the battery.  0: it is worth nothing, and the sheet says why. */
static int ask(struct attn_grading *g, struct attn_sheet *sheet)
{
    char differs[400];
    const int is_code = g->task->lab->form == ATTN_LAB_CODE;
    struct attn_error err = {0};
    enum attn_status status = introduce(g, &err);
    if (status == ATTN_OK && is_code)
        status = attn_grade_ask(g, &err);
    look_for_attacks(&g->candidate, sheet);
    if (status != ATTN_OK)
        zero(sheet, "%s", err.text);
    if (is_code && sheet->zero[0] == '\0' &&
        attn_task_differs(g->task, &g->candidate.x.claims, differs, sizeof differs) == 2)
        zero(sheet, "%s", differs);
    return sheet->zero[0] == '\0';
}

static void grade(void *arg)
{
    static struct attn_grading g; /* its parts are borrowed by what runs */
    const struct work *w = arg;
    g = (struct attn_grading){.task = w->task, .of = w->of};
    confine(w->of, w->temporary);
    if (!ask(&g, w->sheet))
        return;
    for (int n = 0; n < w->sheet->n; n++) {
        struct attn_outcome *o = &w->sheet->outcome[n];
        g.criterion = attn_lab_criterion(w->task->lab, n);
        g.criterion->judge(&g, o);
        int passed = o->why[0] == '\0' && o->asked > 0 && o->passed == o->asked;
        o->earned = passed ? o->points : 0;
        if (!passed)
            attn_outcome_lose(o, "%d of %d passed", o->passed, o->asked);
        o->is_judged = 1;
    }
}

/* ---- outside --------------------------------------------------------------------------------- */

static void begin(const struct work *w)
{
    struct attn_sheet *sheet = w->sheet;
    const struct attn_criterion *c;
    memset(sheet, 0, sizeof *sheet);
    snprintf(sheet->lab, sizeof sheet->lab, "%s", w->task->lab->name);
    attn_cleaned(w->of->name, sheet->name, sizeof sheet->name);
    attn_cleaned(w->task->seed, sheet->seed, sizeof sheet->seed);
    for (; (c = attn_lab_criterion(w->task->lab, sheet->n)) != NULL; sheet->n++) {
        struct attn_outcome *o = &sheet->outcome[sheet->n];
        snprintf(o->name, sizeof o->name, "%s", c->name);
        snprintf(o->read, sizeof o->read, "%s", c->read);
        o->points = c->points;
    }
}

/* Everything that it started has to end, also what hid from its own grader. */
static void end_strays(struct attn_sheet *sheet)
{
    if (attn_process_end_children(GRACE_S) > 0)
        zero(sheet, "it left processes behind, which were ended");
}

/* How the process ended that graded it. */
static void read_end(const struct attn_process *p, struct attn_sheet *sheet)
{
    for (int n = 0; n < sheet->n && p->timed_out; n++)
        if (!sheet->outcome[n].is_judged)
            attn_outcome_lose(&sheet->outcome[n], "not reached: all had not ended after %g s",
                              WHOLE_S);
    if (p->timed_out)
        return;
    if (p->interrupted)
        zero(sheet, "interrupted");
    else if (p->signal != 0)
        zero(sheet,
             "the process that graded it was ended by signal %d (%s): a submission leaves "
             "other processes alone",
             p->signal, strsignal(p->signal));
    else if (p->exit_status != 0)
        zero(sheet, "it could not be graded: no memory, no file or no process (status %d)",
             p->exit_status);
}

/* Has the running program another file than before?  One that was written, moved or removed. */
static int is_other_judge(const struct stat *before)
{
    struct stat now;
    return stat("/proc/self/exe", &now) != 0 || now.st_nlink != before->st_nlink ||
           now.st_size != before->st_size || now.st_ctim.tv_sec != before->st_ctim.tv_sec ||
           now.st_ctim.tv_nsec != before->st_ctim.tv_nsec;
}

void attn_grade(const struct attn_task *task, const struct attn_submission *of,
                struct attn_sheet *sheet)
{
    struct attn_process p = {0};
    struct attn_folder_view *before = NULL;
    char changed[400], temporary[ATTN_FOLDER_PATH];
    struct attn_error err = {0};
    struct stat judge = {0};
    struct work w = {task, of, attn_process_share(sizeof *sheet), temporary};
    if (w.sheet == NULL)
        attn_cli_lack("no memory for a sheet of points");
    if (attn_temporary_open(temporary, &err) != ATTN_OK)
        attn_cli_lack("%s", err.text);
    attn_process_catch_interrupts();
    begin(&w);
    (void)stat("/proc/self/exe", &judge);
    if (of->watched != NULL)
        before = attn_folder_look(of->watched);
    if (of->trouble != NULL && of->trouble[0] != '\0')
        zero(w.sheet, "%s", of->trouble);
    else if (attn_process_fork(grade, &w, WHOLE_S, &p) != 0)
        zero(w.sheet, "it could not be graded: no process");
    read_end(&p, w.sheet);
    end_strays(w.sheet);
    if (of->watched != NULL && attn_folder_changed(of->watched, before, changed, sizeof changed))
        zero(w.sheet, "it changed %s, which is not its own", changed);
    if (is_other_judge(&judge))
        zero(w.sheet, "the program attnlab was changed while it graded: install it again");
    attn_folder_forget(before);
    attn_temporary_close(temporary);
    w.sheet->seconds = p.wall_s;
    for (int n = 0; n < w.sheet->n && w.sheet->zero[0] == '\0'; n++)
        w.sheet->total += w.sheet->outcome[n].earned;
    *sheet = *w.sheet;
    munmap(w.sheet, sizeof *sheet);
}
