/* Criteria of measured points: each is one process that computes one case, as `attnlab measure`
 * starts it.  Its memory is the child's own peak, its result is judged. */
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/point/point.h"
#include "experiments/measure/preflight.h"
#include "experiments/rim/grade/grading.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/base/process.h"

enum { LIMIT_S = 60 };

/* 0, and the outcome is lost: no case passes, and it may not even end. */
static int has_passed_any(const struct attn_grading *g, struct attn_outcome *o)
{
    if (g->candidate.question.n == 0 || attn_grade_any_passed(g, "*"))
        return 1;
    attn_outcome_lose(o, "not measured: not one case passes");
    snprintf(o->again, sizeof o->again, "%.200s check %s", attn_cli_program(), g->candidate.route);
    return 0;
}

/* The case of a criterion, with its hidden numbers.  0, and the outcome is lost: it is none. */
static int read_case(const struct attn_grading *g, const char *text, struct attn_case *c,
                     struct attn_outcome *o)
{
    struct attn_error err = {0};
    const int ok = attn_case_parse(text, c, &err) == ATTN_OK;
    if (ok)
        attn_task_hide(g->task, c);
    else
        attn_outcome_lose(o, "%s", err.text);
    return ok;
}

/* One process of the submission, or of ours where spec is not NULL.  0, and the outcome is lost:
 * it did not compute the right result. */
static int measure(struct attn_grading *g, const struct attn_spec *spec, const char *text,
                   int repeat, struct attn_point *point, struct attn_outcome *o)
{
    const struct attn_plan plan = {
        .rounds = 1, .repeat = repeat, .enough_s = 0.2, .verify_all = 512};
    struct attn_plan_point of = {.group = "lab", .is_once = repeat == 0};
    int64_t need;
    if (!has_passed_any(g, o) || !read_case(g, text, &of.c, o))
        return 0;
    attn_case_print(&of.c, of.text);
    of.external = spec == NULL ? &g->candidate.x : NULL;
    if (spec != NULL)
        of.spec = *spec;
    snprintf(of.spec_text, sizeof of.spec_text, "%.120s",
             spec != NULL ? spec->impl->name : g->candidate.x.name);
    attn_point_price(&of, point, &need);
    const struct attn_point_how how = attn_point_how_of(&plan, &of);
    if (point->message[0] == '\0')
        attn_point_process(&how, LIMIT_S, NULL, point);
    o->asked++;
    int ok = point->status == ATTN_POINT_OK &&
             strcmp(point->judged.verdict, attn_verdict_name(ATTN_PASS)) == 0;
    o->passed += ok;
    if (ok)
        return 1;
    attn_outcome_lose(o, "%.200s: %s: %.300s", of.text, attn_point_status_name(point->status),
                      point->message);
    snprintf(o->again, sizeof o->again, "%.200s check %s --case '%.200s'", attn_cli_program(),
             g->candidate.route, of.text);
    return 0;
}

/* ---- the same bits --------------------------------------------------------------------------- */

void attn_grade_bits(struct attn_grading *g, struct attn_outcome *o)
{
    static struct attn_point one, two;
    const char *text = g->criterion->argument;
    if (!measure(g, NULL, text, 0, &one, o) || !measure(g, NULL, text, 0, &two, o))
        return;
    if (strcmp(one.judged.digest, two.judged.digest) != 0)
        attn_outcome_lose(o,
                          "%s: two processes give other bits, within the bounds: a thread, an "
                          "address or memory that was never written has a say",
                          text);
}

/* ---- memory ---------------------------------------------------------------------------------- */

enum { LENGTHS = 3, READINGS = 3, TINY = 16 };

/* The case with a length in the place of L. */
static void at_length(const char *text, long long length, char *to, size_t size)
{
    to[0] = '\0';
    for (; *text != '\0'; text++)
        if (*text == 'L')
            attn_append(to, size, "%lld", length);
        else
            attn_append(to, size, "%c", *text);
}

/* One plug-in and one case, in processes of its own, with what is known of them out here. */
struct reading {
    const struct attn_grading *g;
    struct attn_asked asked;
    struct attn_answer answer;
    enum attn_status status;
    struct attn_error err;
    int64_t peak_bytes; /* of the largest of its processes, those that it forked among them */
    int64_t bytes;      /* beyond inputs and outputs, and what any call takes               */
};

static void run_reading(void *arg)
{
    struct reading *r = arg;
    struct rusage used;
    struct attn_subject x = {.route = &attn_plugin_route,
                             .source = r->g->of->x.source,
                             .timeout_s = LIMIT_S,
                             .how = {.calls = 1},
                             .diagnosed_s = LIMIT_S}; /* of what fails the cases say why */
    const struct attn_subject_route *route = x.route;
    malloc_trim(0); /* memory that the plug-in would get from us without a page more */
    r->status = route->open(&x, &r->err);
    if (r->status != ATTN_OK)
        return;
    r->status = route->ask(&x, &r->asked, 1, &r->answer, &r->err);
    route->close(&x);
    getrusage(RUSAGE_CHILDREN, &used);
    r->peak_bytes = (int64_t)used.ru_maxrss * 1024;
}

/* 0, and the outcome is lost: no result, or no right one. */
static int read_plugin(struct reading *r, struct attn_outcome *o)
{
    struct attn_process p = {0};
    char text[ATTN_CASE_TEXT], words[40];
    const int failed = attn_process_fork(run_reading, r, (double)INFINITY, &p);
    attn_case_print(&r->asked.c, text);
    if (failed != 0 || p.exit_status != 0)
        attn_outcome_lose(o, "%.200s: no process that measures it", text);
    else if (r->status != ATTN_OK)
        attn_outcome_lose(o, "%.200s: %s", text, r->err.text);
    else if (r->answer.result.verdict != ATTN_PASS)
        attn_outcome_lose(o, "%.200s: %s: %.300s", text,
                          attn_verdict_words(&r->answer.result, words), r->answer.result.text);
    else
        return 1;
    snprintf(o->again, sizeof o->again, "%.200s check %s --case '%.200s'", attn_cli_program(),
             r->g->candidate.route, text);
    return 0;
}

/* Beside inputs and outputs.  Of a plug-in, the peak of its processes, read from outside, so that
 * it has no say in it; of a command, what its peak has beside that of a tiny case. */
static int read_length(struct attn_grading *g, const char *text, double *bytes,
                       struct attn_outcome *o)
{
    static struct attn_point point;
    if (g->of->x.route == &attn_exec_route) {
        int ok = measure(g, NULL, text, 0, &point, o);
        *bytes = point.resident_bytes > 0 ? (double)point.resident_bytes : 0;
        return ok;
    }
    struct attn_problem problem;
    struct attn_case c;
    int64_t need;
    if (!read_case(g, text, &c, o))
        return 0;
    struct reading *r = attn_process_share(sizeof *r);
    if (r == NULL)
        attn_cli_lack("no memory for a reading of memory");
    r->g = g;
    snprintf(r->asked.name, sizeof r->asked.name, "memory");
    r->asked.c = c;
    o->asked++;
    int ok = read_plugin(r, o);
    o->passed += ok;
    *bytes = (double)r->peak_bytes;
    if (ok && attn_preflight_open(&r->asked.c, &problem, &point, &need, &r->err) == ATTN_OK) {
        *bytes -= (double)point.floor_bytes;
        attn_preflight_close(&problem);
    }
    munmap(r, sizeof *r);
    return ok;
}

/* The steepest growth between two lengths, in bytes a token; -1: the outcome is lost. */
static double read_slope(struct attn_grading *g, const char *text, const long long length[LENGTHS],
                         struct attn_outcome *o)
{
    char at[ATTN_CASE_TEXT], words[32];
    double bytes[LENGTHS + 1], steepest = 0;
    o->found[0] = '\0';
    for (int n = 0; n <= LENGTHS; n++) { /* the first is tiny: what any call takes */
        at_length(text, n == 0 ? TINY : length[n - 1], at, sizeof at);
        bytes[n] = 0;
        if ((n > 0 || g->of->x.route == &attn_plugin_route) && !read_length(g, at, &bytes[n], o))
            return -1;
        if (n > 1)
            steepest =
                fmax(steepest, (bytes[n] - bytes[n - 1]) / (double)(length[n - 1] - length[n - 2]));
        if (n > 0)
            attn_append(o->found, sizeof o->found, "%s%s at %lld tokens", n > 1 ? ", " : "",
                        attn_cli_bytes((int64_t)fmax(bytes[n] - bytes[0], 0), words),
                        length[n - 1]);
    }
    snprintf(o->again, sizeof o->again, "%.200s check %s --case '%.200s'", attn_cli_program(),
             g->candidate.route, at);
    return steepest;
}

/* The least of several readings counts: a loaded machine makes one larger, and none smaller by as
 * much as a buffer of the square has. */
void attn_grade_memory(struct attn_grading *g, struct attn_outcome *o)
{
    double most, slope = (double)INFINITY;
    long long length[LENGTHS];
    char text[ATTN_CASE_TEXT];
    if (g->task->claims.ranks > 0 && g->of->x.route == &attn_exec_route) {
        o->asked = 1; /* its ranks share a process, whose memory says nothing of one */
        o->passed = attn_grade_any_passed(g, "*");
        return;
    }
    if (sscanf(g->criterion->argument, "%lf %1023s %lld,%lld,%lld", &most, text, &length[0],
               &length[1], &length[2]) != 2 + LENGTHS) {
        attn_outcome_lose(o, "'%s' is not MOST CASE L,L,L", g->criterion->argument);
        return;
    }
    if (!has_passed_any(g, o))
        return;
    for (int n = 0; n < READINGS && slope > most; n++) {
        double one = read_slope(g, text, length, o);
        if (one < 0)
            return;
        slope = fmin(slope, one);
    }
    if (slope <= most)
        return;
    attn_outcome_lose(o,
                      "memory beyond inputs and outputs: %s; that is %.0f bytes for each token, "
                      "and at most %.0f are allowed",
                      o->found, slope, most);
    snprintf(o->cause, sizeof o->cause, "%s",
             slope > 4 * most ? "a buffer that grows with the square of the length" : "");
}

/* ---- time ------------------------------------------------------------------------------------ */

void attn_grade_speed(struct attn_grading *g, struct attn_outcome *o)
{
    static struct attn_point theirs, ours;
    struct attn_spec spec;
    struct attn_error err = {0};
    char text[ATTN_CASE_TEXT], name[64];
    if (sscanf(g->criterion->argument, "%1023s %63s", text, name) != 2 ||
        attn_spec_parse(name, &spec, &err) != ATTN_OK) {
        attn_outcome_lose(o, "'%s' is not CASE SPEC: %s", g->criterion->argument, err.text);
        return;
    }
    if (!measure(g, NULL, text, 5, &theirs, o) || !measure(g, &spec, text, 5, &ours, o))
        return;
    double s = attn_point_call_s(&theirs, theirs.n_warm > 0 ? ATTN_CALL_WARM : ATTN_CALL_FIRST);
    double t = attn_point_call_s(&ours, ATTN_CALL_WARM);
    if (s > 0 && t > 0)
        snprintf(o->found, sizeof o->found, "a call takes %.3g ms, %.2g times as long as %s",
                 s * 1e3, s / t, name);
    else
        snprintf(o->found, sizeof o->found, "too short to be timed");
}
