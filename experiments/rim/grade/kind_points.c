/* Criteria of measured points: each is one process that computes one case, as `attnlab measure`
 * starts it.  Its memory is the child's own peak, its result is judged. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/point/point.h"
#include "experiments/rim/grade/grading.h"
#include "tests/harness/base/fileio.h"

enum { LIMIT_S = 15 };

/* One process of the submission, or of ours where spec is not NULL.  0, and the outcome is lost:
 * it did not compute the right result. */
static int measure(struct attn_grading *g, const struct attn_spec *spec, const char *text,
                   int repeat, struct attn_point *point, struct attn_outcome *o)
{
    const struct attn_plan plan = {
        .rounds = 1, .repeat = repeat, .enough_s = 0.2, .verify_all = 512};
    struct attn_plan_point of = {.group = "lab", .is_once = repeat == 0};
    struct attn_error err = {0};
    int64_t need;
    if (g->candidate.question.n > 0 && !attn_grade_any_passed(g, "*")) { /* it may not even end */
        attn_outcome_lose(o, "not measured: not one case passes");
        snprintf(o->again, sizeof o->again, "%.200s check %s", attn_cli_program(),
                 g->candidate.route);
        return 0;
    }
    if (attn_case_parse(text, &of.c, &err) != ATTN_OK) {
        attn_outcome_lose(o, "%s", err.text);
        return 0;
    }
    attn_case_print(&of.c, of.text);
    of.external = spec == NULL ? &g->spec : NULL;
    if (spec != NULL)
        of.spec = *spec;
    snprintf(of.spec_text, sizeof of.spec_text, "%.120s",
             spec != NULL ? spec->impl->name : g->spec.name);
    attn_point_price(&of, point, &need);
    const struct attn_point_how how = attn_point_how_of(&plan, &of);
    if (point->message[0] == '\0')
        attn_point_process(&how, LIMIT_S, NULL, point);
    o->asked++;
    int ok =
        point->status == ATTN_POINT_OK && strcmp(point->verdict, attn_verdict_name(ATTN_PASS)) == 0;
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
    if (strcmp(one.digest, two.digest) != 0)
        attn_outcome_lose(o,
                          "%s: two processes give other bits, within the bounds: a thread, an "
                          "address or memory that nobody wrote has a say",
                          text);
}

/* ---- memory ---------------------------------------------------------------------------------- */

enum { LENGTHS = 3 };

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

/* Of a plug-in, what is resident beside the tensors during the call; of a command, what its peak
 * has beside that of a tiny case, and beside inputs and outputs once. */
void attn_grade_memory(struct attn_grading *g, struct attn_outcome *o)
{
    static struct attn_point point;
    double most, bytes[LENGTHS], steepest = 0;
    long long length[LENGTHS];
    if (g->task->claims.ranks > 0 && g->of->kind == ATTN_EXTERNAL_COMMAND) {
        o->asked = 1; /* its ranks share a process, whose memory says nothing of one */
        o->passed = attn_grade_any_passed(g, "*");
        return;
    }
    char text[ATTN_CASE_TEXT], at[ATTN_CASE_TEXT], least[32], largest[32];
    if (sscanf(g->criterion->argument, "%lf %1023s %lld,%lld,%lld", &most, text, &length[0],
               &length[1], &length[2]) != 2 + LENGTHS) {
        attn_outcome_lose(o, "'%s' is not MOST CASE L,L,L", g->criterion->argument);
        return;
    }
    for (int n = 0; n < LENGTHS; n++) {
        at_length(text, length[n], at, sizeof at);
        if (!measure(g, NULL, at, 0, &point, o))
            return;
        bytes[n] = point.resident_bytes > 0 ? (double)point.resident_bytes : 0;
        if (n > 0)
            steepest =
                fmax(steepest, (bytes[n] - bytes[n - 1]) / (double)(length[n] - length[n - 1]));
    }
    attn_cli_bytes((int64_t)bytes[0], least);
    attn_cli_bytes((int64_t)bytes[LENGTHS - 1], largest);
    snprintf(o->found, sizeof o->found, "%s at %lld tokens, %s at %lld", least, length[0], largest,
             length[LENGTHS - 1]);
    if (steepest <= most)
        return;
    attn_outcome_lose(o,
                      "memory beside inputs and outputs: %s; that is %.0f bytes for each token, "
                      "and at most %.0f are allowed",
                      o->found, steepest, most);
    snprintf(o->cause, sizeof o->cause, "%s",
             steepest > 4 * most ? "a buffer that grows with the square of the length" : "");
    snprintf(o->again, sizeof o->again, "%.200s check %s --case '%.200s'", attn_cli_program(),
             g->candidate.route, at);
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
