/* The child that measures a point is not trusted: its line must parse, speak of the point that was
 * asked for, and agree with how it ended; otherwise the record says what happened instead. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/machine.h"
#include "experiments/measure/point/point.h"
#include "experiments/measure/point/point_work.h"
#include "experiments/measure/preflight.h"
#include "tests/harness/base/ending.h"
#include "tests/harness/base/process.h"

/* ---- what it is asked ------------------------------------------------------------------------ */

struct attn_point_how attn_point_how_of(const struct attn_plan *plan,
                                        const struct attn_plan_point *of)
{
    return (struct attn_point_how){.repeat = of->is_once ? 0 : plan->repeat,
                                   .enough_s = plan->enough_s,
                                   .verify_all = plan->verify_all,
                                   .peak = of->peak != 0,
                                   .claims =
                                       of->external != NULL ? of->external->claims_path : NULL};
}

json_t *attn_point_ask(const struct attn_point_how *how, const struct attn_point *point)
{
    json_t *line = attn_record_of(point);
    json_t *more =
        json_pack("{s:I,s:f,s:I,s:b,s:b,s:s*,s:s*}", "repeat", (json_int_t)how->repeat, "enough_s",
                  how->enough_s, "verify_all", (json_int_t)how->verify_all, "peak", how->peak,
                  "unverified", how->unverified, "claims", how->claims, "folder", how->folder);
    json_object_update(line, more);
    json_decref(more);
    return line;
}

enum attn_status attn_point_asked(const json_t *line, struct attn_point_how *how,
                                  struct attn_point *point, struct attn_error *err)
{
    json_error_t why;
    json_int_t repeat, verify_all;
    memset(how, 0, sizeof *how);
    enum attn_status status = attn_record_point(line, point, err);
    if (status != ATTN_OK)
        return status;
    if (json_unpack_ex((json_t *)(uintptr_t)line, &why, 0, "{s:I,s:F,s:I,s?b,s?b,s?s,s?s}",
                       "repeat", &repeat, "enough_s", &how->enough_s, "verify_all", &verify_all,
                       "unverified", &how->unverified, "peak", &how->peak, "claims", &how->claims,
                       "folder", &how->folder) != 0)
        return attn_fail(err, ATTN_EINVAL, "how a point is measured: %s", why.text);
    how->repeat = repeat;
    how->verify_all = verify_all;
    if (repeat < 0 || repeat > ATTN_RECORD_TIMES)
        return attn_fail(err, ATTN_EINVAL, "repeat %lld: a record has room for 0 to %d",
                         (long long)repeat, ATTN_RECORD_TIMES);
    const struct attn_subject_route *route = attn_subject_route_of(point->route);
    if (route == NULL)
        return attn_fail(err, ATTN_EINVAL, "no route is called '%s'", point->route);
    return route->load == NULL && (how->claims == NULL || how->folder == NULL)
               ? attn_fail(err, ATTN_EINVAL, "a command needs \"claims\" and \"folder\"")
               : ATTN_OK;
}

/* The child may be killed, so its parent makes and removes the files of a command. */
static int run_child(struct attn_point_how how, double limit_s, const struct attn_point *point,
                     struct attn_process *child)
{
    char folder[4096];
    struct attn_error err = {ATTN_OK, ""};
    if (how.claims != NULL && attn_temporary_open(folder, &err) != ATTN_OK) {
        child->exit_status = -1;
        snprintf(child->last_line, sizeof child->last_line, "%.250s", err.text);
        return 0;
    }
    how.folder = how.claims != NULL ? folder : NULL;
    json_t *line = attn_point_ask(&how, point);
    char *text = attn_cli_need(json_dumps(line, JSON_COMPACT));
    const char *const args[] = {"point", text, NULL};
    int failed = attn_process_attnlab(args, limit_s, child), error = errno;
    free(text);
    json_decref(line);
    if (how.folder != NULL)
        attn_temporary_close(folder);
    errno = error;
    return failed;
}

/* ---- what it answers ------------------------------------------------------------------------- */

/* The error in a child's line: another point, or fields that contradict each other.  NULL: none. */
static const char *contradiction(const struct attn_point *p, const struct attn_point *asked,
                                 const struct attn_process *child)
{
    char name[2][ATTN_POINT_NAME];
    attn_point_name(p, name[0]);
    attn_point_name(asked, name[1]);
    if (strcmp(name[0], name[1]) != 0)
        return "the process measured another point";
    if (child->exit_status != (p->status == ATTN_POINT_WRONG ? ATTN_EXIT_DISAGREE : ATTN_EXIT_GOOD))
        return "the exit status contradicts the record";
    if (p->status != ATTN_POINT_OK)
        return NULL;
    int untimed = strcmp(p->time_source, "command") == 0 && isnan(p->first_s) && p->n_warm == 0;
    if (untimed && p->judged.verdict[0] != '\0' && p->judged.digest[0] != '\0')
        return NULL; /* a command whose time is less than the noise of its start */
    if (!(p->first_s > 0) || p->judged.verdict[0] == '\0' || p->judged.digest[0] == '\0')
        return "a good point without a time, a verdict or a digest";
    for (int t = 0; t < p->n_warm; t++)
        if (!(p->warm_s[t] > 0))
            return "a time that is not positive";
    return NULL;
}

static void say_price(struct attn_point *p)
{
    char bytes[32];
    size_t n = strlen(p->message);
    if (p->price.peak >= 0)
        snprintf(p->message + n, sizeof p->message - n, "; priced at %s",
                 attn_cli_bytes(p->price.peak, bytes));
}

/* The end of the child, as a point. */
static void read_child(const struct attn_process *child, double limit_s, struct attn_point *point)
{
    struct attn_point recorded;
    struct attn_error err = {ATTN_OK, ""};
    const char *why = NULL;
    if (child->timed_out) {
        point->status = ATTN_POINT_TIMEOUT;
        snprintf(point->message, sizeof point->message, "killed after the time limit of %.3g s",
                 limit_s);
        return;
    }
    if (child->signal != 0) {
        point->status = ATTN_POINT_KILLED;
        snprintf(point->message, sizeof point->message, "signal %d (%s)%s%s%s", child->signal,
                 strsignal(child->signal),
                 child->signal == SIGKILL ? "; out of memory looks like this" : "",
                 child->last_line[0] != '\0' ? ": " : "", child->last_line);
        return;
    }
    if (child->n_out == 0 && child->last_line[0] == '\0')
        why = "the process ended without a record";
    else if (attn_record_parse_point(child->out, child->n_out, &recorded, &err) != ATTN_OK)
        why = child->last_line[0] != '\0' ? child->last_line : err.text;
    else
        why = contradiction(&recorded, point, child);
    if (why != NULL) {
        /* OpenMP's runtime ends the process when it gets no memory: there is no record. */
        int lacks_memory = strstr(why, "libgomp: Out of memory") != NULL;
        point->status = lacks_memory ? ATTN_POINT_OUT_OF_MEMORY : ATTN_POINT_ERROR;
        snprintf(point->message, sizeof point->message, "exit status %d: %.480s",
                 child->exit_status, why);
        if (lacks_memory)
            say_price(point);
        return;
    }
    memcpy(recorded.route, point->route, sizeof recorded.route);
    memcpy(recorded.source, point->source, sizeof recorded.source);
    memcpy(recorded.source_digest, point->source_digest, sizeof recorded.source_digest);
    memcpy(recorded.build, point->build, sizeof recorded.build);
    memcpy(recorded.session, point->session, sizeof recorded.session);
    recorded.round = point->round;
    if (recorded.status == ATTN_POINT_OUT_OF_MEMORY)
        say_price(&recorded);
    *point = recorded;
}

void attn_point_price(const struct attn_plan_point *of, struct attn_point *p, int64_t *need)
{
    struct attn_error err = {0};
    attn_point_init(p);
    snprintf(p->group, sizeof p->group, "%s", of->group);
    snprintf(p->spec, sizeof p->spec, "%s", of->spec_text);
    snprintf(p->text, sizeof p->text, "%s", of->text);
    p->c = of->c;
    p->stack = of->layers;
    enum attn_status status = of->external != NULL
                                  ? attn_preflight_external(of->external, &p->c, p, need, &err)
                                  : attn_preflight_case(&of->spec, &p->c, p, need, &err);
    if (status == ATTN_OK)
        return;
    p->status = err.status == ATTN_ENOTSUP ? ATTN_POINT_REFUSED : ATTN_POINT_ERROR;
    snprintf(p->message, sizeof p->message, "%s", err.text);
}

int attn_point_process(const struct attn_point_how *how, double limit_s, void (*waits)(double s),
                       struct attn_point *point)
{
    char output[1 << 16];
    struct attn_process child = {.out = output, .capacity = sizeof output, .waits = waits};
    if (attn_cli_runner() != NULL && point->ranks > 1) {
        attn_point_ranks(how, point);
        return 1;
    }
    double load = attn_machine_load(), steal = attn_machine_steal();
    if (run_child(*how, limit_s, point, &child) != 0)
        snprintf(child.last_line, sizeof child.last_line, "could not be started: %s",
                 strerror(errno));
    if (child.interrupted)
        return 0;
    attn_point_unverified(
        point); /* drop the results of an earlier round: only the child compares with them */
    read_child(&child, limit_s, point);
    point->load = load;
    point->steal_s = attn_machine_steal() - steal;
    point->wall_s = child.wall_s;
    return 1;
}
