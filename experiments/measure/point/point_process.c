/* The child that measures a point is not trusted: its line must parse, speak of the point that was
 * asked for, and agree with how it ended; otherwise the record says what happened instead. */
#include "experiments/measure/point/point_process.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/machine.h"
#include "experiments/measure/point/point_ranks.h"
#include "experiments/price/need.h"
#include "tests/harness/base/ending.h"
#include "tests/harness/base/process.h"

/* ---- what it is asked ------------------------------------------------------------------------ */

enum { WORDS = 30 };

/* What this round is asked for: `attnlab point ARGS`.  repeat and the like live in text. */
static void ask(const struct attn_point_request *asked, const struct attn_point *point,
                const char *folder, char text[5][32], const char *args[WORDS])
{
    const struct attn_external_spec *e = asked->of->external;
    const struct attn_stack *stack = &point->stack;
    int plugin = e != NULL && e->kind == ATTN_EXTERNAL_PLUGIN;
    int n = 0;
    snprintf(text[0], sizeof text[0], "%lld",
             asked->of->is_once ? 0 : (long long)asked->plan->repeat);
    snprintf(text[1], sizeof text[1], "%.9g", asked->plan->enough_s);
    snprintf(text[2], sizeof text[2], "%lld", (long long)asked->plan->verify_all);
    snprintf(text[3], sizeof text[3], "%lld", (long long)stack->n);
    snprintf(text[4], sizeof text[4], "%lld", (long long)stack->hidden);
    const char *const pair[][2] = {
        {"--case", point->text},
        {"--repeat", text[0]},
        {"--enough", text[1]},
        {"--verify-all", text[2]},
        {"--layers", stack->n > 0 ? text[3] : NULL},
        {"--hidden", stack->hidden > 0 ? text[4] : NULL},
        {"--save", stack->n > 0 ? attn_stack_save_name(stack->save) : NULL},
        {"--verified", asked->verified[0] != '\0' ? asked->verified : NULL},
        {"--spec", e == NULL ? point->spec : NULL},
        {"--name", e != NULL ? e->name : NULL},
        {"--plugin", plugin ? e->source : NULL},
        {"--exec", e != NULL && !plugin ? e->source : NULL},
        {"--claims", e != NULL && !plugin ? e->claims_path : NULL},
        {"--work", e != NULL && !plugin ? folder : NULL}};
    args[n++] = "point";
    for (size_t p = 0; p < sizeof pair / sizeof *pair; p++)
        if (pair[p][1] != NULL) {
            args[n++] = pair[p][0];
            args[n++] = pair[p][1];
        }
    args[n] = NULL;
}

/* A command's files outlive a point that is killed: they are made and removed out here. */
static int run_child(const struct attn_point_request *asked, const struct attn_point *point,
                     struct attn_process *child)
{
    const char *args[WORDS];
    char text[5][32], folder[4096];
    const struct attn_external_spec *e = asked->of->external;
    struct attn_error err = {ATTN_OK, ""};
    int needs_folder = e != NULL && e->kind == ATTN_EXTERNAL_COMMAND;
    if (needs_folder && attn_temporary_open(folder, &err) != ATTN_OK) {
        child->exit_status = -1;
        snprintf(child->last_line, sizeof child->last_line, "%.250s", err.text);
        return 0;
    }
    ask(asked, point, folder, text, args);
    int failed = attn_process_attnlab(args, asked->limit_s, child);
    int error = errno;
    if (needs_folder)
        attn_temporary_close(folder);
    errno = error;
    return failed;
}

/* ---- what it answers ------------------------------------------------------------------------- */

/* The line of a child that speaks of something else, or contradicts itself. */
static const char *contradiction(const struct attn_point *p, const struct attn_point *asked,
                                 const struct attn_process *child)
{
    if (strcmp(p->spec, asked->spec) != 0 || strcmp(p->text, asked->text) != 0 ||
        !attn_stack_equal(&p->stack, &asked->stack))
        return "the process measured another point";
    if (child->exit_status != (p->status == ATTN_POINT_WRONG ? ATTN_EXIT_DISAGREE : ATTN_EXIT_GOOD))
        return "the exit status contradicts the record";
    if (p->status != ATTN_POINT_OK)
        return NULL;
    int untimed = strcmp(p->time_source, "command") == 0 && isnan(p->first_s) && p->n_warm == 0;
    if (untimed && p->verdict[0] != '\0' && p->digest[0] != '\0')
        return NULL; /* a whole command, lost in the noise of starting one */
    if (!(p->first_s > 0) || p->verdict[0] == '\0' || p->digest[0] == '\0')
        return "a good point without a time, a verdict or a digest";
    for (int t = 0; t < p->n_warm; t++)
        if (!(p->warm_s[t] > 0))
            return "a time that is not positive";
    return NULL;
}

/* A process that got no memory may have had none to price itself with. */
static void say_price(const struct attn_point *priced, struct attn_point *recorded)
{
    char bytes[32];
    size_t n = strlen(recorded->message);
    recorded->priced_bytes = priced->priced_bytes;
    recorded->shard_bytes = priced->shard_bytes;
    recorded->total_bytes = priced->total_bytes;
    if (priced->priced_bytes >= 0)
        snprintf(recorded->message + n, sizeof recorded->message - n, "; priced at %s",
                 attn_cli_bytes(priced->priced_bytes, bytes));
}

/* What became of the child, as a point. */
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
            say_price(point, point);
        return;
    }
    memcpy(recorded.group, point->group, sizeof recorded.group);
    memcpy(recorded.route, point->route, sizeof recorded.route);
    memcpy(recorded.source, point->source, sizeof recorded.source);
    memcpy(recorded.source_digest, point->source_digest, sizeof recorded.source_digest);
    memcpy(recorded.build, point->build, sizeof recorded.build);
    memcpy(recorded.session, point->session, sizeof recorded.session);
    recorded.round = point->round;
    if (recorded.status == ATTN_POINT_OUT_OF_MEMORY)
        say_price(point, &recorded);
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
                                  ? attn_external_spec_preflight(of->external, &p->c, p, need, &err)
                                  : attn_preflight_case(&of->spec, &p->c, p, need, &err);
    if (status == ATTN_OK)
        return;
    p->status = err.status == ATTN_ENOTSUP ? ATTN_POINT_REFUSED : ATTN_POINT_ERROR;
    snprintf(p->message, sizeof p->message, "%s", err.text);
}

int attn_point_process(const struct attn_point_request *asked, struct attn_point *point)
{
    char output[1 << 16];
    struct attn_process child = {.out = output, .capacity = sizeof output};
    if (attn_cli_runner() != NULL && point->ranks > 1)
        return attn_point_ranks(asked, point);
    double load = attn_machine_load(), steal = attn_machine_steal();
    if (run_child(asked, point, &child) != 0)
        snprintf(child.last_line, sizeof child.last_line, "could not be started: %s",
                 strerror(errno));
    if (child.interrupted)
        return 0;
    read_child(&child, asked->limit_s, point);
    point->load = load;
    point->steal_s = attn_machine_steal() - steal;
    point->wall_s = child.wall_s;
    return 1;
}
