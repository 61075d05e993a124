/* The child is not trusted: its line must parse, speak of the point that was asked for, and agree
 * with how it ended; otherwise the record says what happened instead. */
#include "experiments/measure/sweep_point.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/calibrate.h"
#include "experiments/measure/exec_case.h"
#include "experiments/measure/preflight.h"
#include "ref/clock.h"
#include "tests/harness/process.h"

static char output[1 << 16]; /* of the child that ran last */

double attn_sweep_elapsed(const struct attn_sweep *sweep)
{
    return attn_seconds(CLOCK_MONOTONIC) - sweep->begin_s;
}

/* ---- one line on the terminal ------------------------------------------------------------- */

/* Written over itself with blanks, not with control codes; nothing here has a colour. */
static void show(const struct attn_sweep *sweep, const char *text)
{
    struct winsize size;
    int known = sweep->progress && ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    int width = known ? size.ws_col - 1 : 78;
    if (sweep->progress)
        fprintf(stderr, "\r%-*.*s", width, width, text);
}

static void show_state(struct attn_sweep *sweep, const struct attn_sweep_state *now)
{
    static const double EVERY_S = 0.2; /* adding up looks at every point */
    char text[512];
    double left = sweep->promised_s;
    int64_t total = sweep->n_written;
    if (!sweep->progress || attn_sweep_elapsed(sweep) < sweep->shown_s + EVERY_S)
        return;
    sweep->shown_s = attn_sweep_elapsed(sweep);
    for (int64_t i = 0; i < sweep->plan->n; i++) {
        const struct attn_sweep_state *state = &sweep->state[i];
        total += state->state != ATTN_OUT ? state->rounds_left : 0;
        left += state->state == ATTN_WAITING ? attn_budget_cost(state) : 0;
    }
    if (sweep->plan->budget_s > 0)
        left = fmin(left, sweep->plan->budget_s - attn_sweep_elapsed(sweep));
    snprintf(text, sizeof text, "%lld of %lld, about %.0f s left: %s %lld %s %.100s",
             (long long)sweep->n_written + 1, (long long)total, fmax(left, 0), now->plan->spec_text,
             (long long)now->plan->c.n_query, attn_pass_name(now->plan->c.pass), now->plan->c.mask);
    show(sweep, text);
}

/* ---- records ------------------------------------------------------------------------------ */

/* What nobody's code exceeds by much: every pair computed. */
static double all_pairs_flops(const struct attn_case *c)
{
    double pairs = (double)c->batch * (double)c->heads * (double)c->n_query * (double)c->n_key;
    return (c->pass == ATTN_BACKWARD ? 5 : 2) * pairs * (double)(c->d_key + c->d_value);
}

void attn_sweep_price(struct attn_sweep *sweep, struct attn_sweep_state *state)
{
    struct attn_point *p = &state->point;
    struct attn_error err = {ATTN_OK, ""};
    attn_point_init(p);
    snprintf(p->group, sizeof p->group, "%s", state->plan->group);
    snprintf(p->spec, sizeof p->spec, "%s", state->plan->spec_text);
    snprintf(p->text, sizeof p->text, "%s", state->plan->text);
    snprintf(p->build, sizeof p->build, "%s", sweep->build);
    snprintf(p->session, sizeof p->session, "%s", sweep->session);
    p->c = state->plan->c;
    const struct attn_external_spec *external = state->plan->external;
    enum attn_status status =
        external != NULL ? attn_external_spec_afford(external, &p->c, p, &state->need, &err)
                         : attn_preflight_case(&state->plan->spec, &p->c, p, &state->need, &err);
    state->work = external != NULL ? all_pairs_flops(&p->c) : p->flops;
    if (status == ATTN_OK)
        return;
    p->status = err.status == ATTN_ENOTSUP ? ATTN_POINT_REFUSED : ATTN_POINT_ERROR;
    snprintf(p->message, sizeof p->message, "%s", err.text);
}

void attn_sweep_keep(struct attn_sweep *sweep, struct attn_sweep_state *state,
                     const struct attn_point *point)
{
    state->state = point->status == ATTN_POINT_OK ? ATTN_BEGUN : ATTN_OUT;
    state->failed = point->status == ATTN_POINT_TIMEOUT || point->status == ATTN_POINT_KILLED ||
                    point->status == ATTN_POINT_TOO_BIG || point->status == ATTN_POINT_DROPPED;
    if (state->failed)
        attn_budget_stop(state);
    state->point.status = point->status;
    if (point->status == ATTN_POINT_ERROR)
        memcpy(state->point.message, point->message, sizeof point->message);
    attn_budget_learn(&sweep->budget, state, point);
    if (point->status == ATTN_POINT_OK && point->digest[0] != '\0' && state->verified[0] == '\0' &&
        isfinite(point->worst))
        snprintf(state->verified, sizeof state->verified, "%s:%s:%.17g:%s", point->digest,
                 point->verdict, point->worst,
                 point->worst_output[0] != '\0' ? point->worst_output : "-");
}

static double promise_of(const struct attn_sweep_state *state)
{
    return state->state == ATTN_BEGUN ? attn_budget_cost(state) : 0;
}

static int record(struct attn_sweep *sweep, struct attn_sweep_state *state,
                  const struct attn_point *point)
{
    sweep->promised_s -= promise_of(state);
    if (!state->done[point->round]) {
        state->done[point->round] = 1;
        state->rounds_left--;
    }
    if (state->postponed) { /* measured after all */
        state->postponed = 0;
        sweep->n_status[ATTN_POINT_DROPPED]--;
    }
    attn_sweep_keep(sweep, state, point);
    sweep->promised_s += promise_of(state);
    sweep->n_written++;
    sweep->n_status[point->status]++;
    return attn_record_write_point(sweep->file, point);
}

int attn_sweep_refuse(struct attn_sweep *sweep, struct attn_sweep_state *state, int round,
                      enum attn_point_status status, const char *message)
{
    struct attn_point point = state->point;
    point.round = round;
    point.status = status;
    point.load = attn_machine_load();
    snprintf(point.message, sizeof point.message, "%s", message);
    return record(sweep, state, &point);
}

/* The line of a child that speaks of something else, or contradicts itself. */
static const char *contradiction(const struct attn_point *p, const struct attn_point *asked,
                                 const struct attn_process *child)
{
    if (strcmp(p->spec, asked->spec) != 0 || strcmp(p->text, asked->text) != 0)
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

/* What became of the child, as a point. */
static void read_child(const struct attn_process *child, double timeout_s, struct attn_point *point)
{
    static struct attn_point told;
    struct attn_error err = {ATTN_OK, ""};
    const char *why = NULL;
    if (child->timed_out) {
        point->status = ATTN_POINT_TIMEOUT;
        snprintf(point->message, sizeof point->message, "killed after the time limit of %.3g s",
                 timeout_s);
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
    else if (attn_record_parse_point(child->out, child->n_out, &told, &err) != ATTN_OK)
        why = child->last_line[0] != '\0' ? child->last_line : err.text;
    else
        why = contradiction(&told, point, child);
    if (why != NULL) {
        point->status = ATTN_POINT_ERROR;
        snprintf(point->message, sizeof point->message, "exit status %d: %s", child->exit_status,
                 why);
        return;
    }
    memcpy(told.group, point->group, sizeof told.group);
    memcpy(told.route, point->route, sizeof told.route);
    memcpy(told.source, point->source, sizeof told.source);
    memcpy(told.source_digest, point->source_digest, sizeof told.source_digest);
    memcpy(told.build, point->build, sizeof told.build);
    memcpy(told.session, point->session, sizeof told.session);
    told.round = point->round;
    *point = told;
}

enum { WORDS = 24 };

/* What this round is asked for: `attnlab point ARGS`.  repeat and the like live in text. */
static void ask(const struct attn_sweep *sweep, const struct attn_sweep_state *state,
                const char *folder, char text[3][32], const char *args[WORDS])
{
    const struct attn_external_spec *e = state->plan->external;
    int plugin = e != NULL && e->route == ATTN_ROUTE_PLUGIN;
    int n = 0;
    snprintf(text[0], sizeof text[0], "%lld",
             state->plan->is_once ? 0 : (long long)sweep->plan->repeat);
    snprintf(text[1], sizeof text[1], "%.9g", sweep->plan->enough_s);
    snprintf(text[2], sizeof text[2], "%lld", (long long)sweep->plan->verify_all);
    const char *const pair[][2] = {
        {"--case", state->point.text},
        {"--repeat", text[0]},
        {"--enough", text[1]},
        {"--verify-all", text[2]},
        {"--verified", state->verified[0] != '\0' ? state->verified : NULL},
        {"--spec", e == NULL ? state->point.spec : NULL},
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
static int run_child(struct attn_sweep *sweep, struct attn_sweep_state *state,
                     struct attn_process *child)
{
    const char *args[WORDS];
    char text[3][32], folder[4096];
    const struct attn_external_spec *e = state->plan->external;
    struct attn_error err = {ATTN_OK, ""};
    int needs_folder = e != NULL && e->route == ATTN_ROUTE_FILES;
    if (needs_folder && attn_exec_folder(folder, &err) != ATTN_OK) {
        child->exit_status = -1;
        snprintf(child->last_line, sizeof child->last_line, "%.250s", err.text);
        return 0;
    }
    ask(sweep, state, folder, text, args);
    double seconds = sweep->plan->timeout_s > 0 ? sweep->plan->timeout_s : (double)INFINITY;
    int failed = attn_process_attnlab(args, seconds, child);
    int error = errno;
    if (needs_folder)
        attn_exec_remove(folder);
    errno = error;
    return failed;
}

int attn_sweep_measure(struct attn_sweep *sweep, struct attn_sweep_state *state, int round)
{
    struct attn_process child = {.out = output, .room = sizeof output};
    struct attn_point point = state->point;
    if (point.status == ATTN_POINT_REFUSED ||
        (point.status == ATTN_POINT_ERROR && round == 0 && point.message[0] != '\0'))
        return attn_sweep_refuse(sweep, state, round, point.status, point.message);
    show_state(sweep, state);
    double load = attn_machine_load(), steal = attn_machine_steal();
    if (run_child(sweep, state, &child) != 0)
        snprintf(child.last_line, sizeof child.last_line, "could not be started: %s",
                 strerror(errno));
    if (child.interrupted)
        return 0;
    point.round = round;
    read_child(&child, sweep->plan->timeout_s, &point);
    point.load = load;
    point.steal_s = attn_machine_steal() - steal;
    point.wall_s = child.wall_s;
    return record(sweep, state, &point);
}

/* ---- probes -------------------------------------------------------------------------------- */

/* A problem like that of a course, of milliseconds: its mask, or none where that one does not fit
 * the smaller lengths.  0 when there is none that can be run. */
static int make_small(struct attn_sweep *sweep, const struct attn_sweep_state *state,
                      struct attn_plan_point *plan, struct attn_sweep_state *small)
{
    static const double FLOPS = 2e8;
    *plan = *state->plan;
    *small = *state;
    small->plan = plan;
    small->verified[0] = '\0';
    while (plan->c.n_query > 64 && all_pairs_flops(&plan->c) > FLOPS) {
        plan->c.n_query /= 2;
        plan->c.n_key /= 2;
    }
    if (plan->c.n_query == state->plan->c.n_query)
        return 0; /* that would be the point itself */
    for (int turn = 0; turn < 2; turn++) {
        attn_case_print(&plan->c, plan->text);
        attn_sweep_price(sweep, small);
        if (small->point.message[0] == '\0')
            return small->need <= attn_cli_memory_available();
        strcpy(plan->c.mask, "none");
    }
    return 0;
}

int attn_sweep_probe(struct attn_sweep *sweep, struct attn_sweep_state *state)
{
    struct attn_process child = {.out = output, .room = sizeof output};
    static struct attn_plan_point plan;
    static struct attn_sweep_state small;
    if (!make_small(sweep, state, &plan, &small) || run_child(sweep, &small, &child) != 0 ||
        child.interrupted)
        return 0;
    struct attn_point point = small.point;
    read_child(&child, sweep->plan->timeout_s, &point);
    if (point.status != ATTN_POINT_OK)
        return 0;
    point.wall_s = child.wall_s;
    struct attn_budget of_probe = sweep->budget; /* which must not remember `small` itself */
    attn_budget_learn(&of_probe, &small, &point);
    memcpy(sweep->budget.oracle, of_probe.oracle, sizeof of_probe.oracle);
    attn_budget_take(&sweep->budget, state, &small.taken);
    return attn_calibrate_rate(sweep->file, sweep->session, &point, small.taken.work);
}

/* ---- the end ------------------------------------------------------------------------------ */

/* Of all points, not only of those that this session added. */
static int64_t count_ended(const struct attn_sweep *sweep, enum attn_point_status status,
                           const struct attn_point **first)
{
    int64_t n = 0;
    *first = NULL;
    for (int64_t i = 0; i < sweep->plan->n; i++)
        if (sweep->state[i].point.status == status && n++ == 0)
            *first = &sweep->state[i].point;
    return n;
}

int attn_sweep_end(struct attn_sweep *sweep, const char *path, int64_t *n_errors)
{
    const struct attn_point *first;
    char text[256] = "";
    size_t n = 0;
    show(sweep, "");
    if (sweep->progress)
        fputc('\r', stderr);
    for (int status = 0; status <= ATTN_POINT_ERROR; status++)
        if (sweep->n_status[status] > 0)
            n += (size_t)snprintf(text + n, sizeof text - n, ", %lld %s",
                                  (long long)sweep->n_status[status],
                                  attn_point_status_name((enum attn_point_status)status));
    if (!sweep->options->quiet) {
        fprintf(stderr, "attnlab %s: %s: %lld points", sweep->options->command, path,
                (long long)sweep->plan->n);
        if (sweep->n_resumed > 0)
            fprintf(stderr, ", %lld records were there", (long long)sweep->n_resumed);
        fprintf(stderr, ", %lld added%s", (long long)sweep->n_written, text);
        fprintf(stderr, " (%.1f s)\n", sweep->begin_s > 0 ? attn_sweep_elapsed(sweep) : 0.0);
    }
    if (attn_process_interrupted())
        return attn_cli_fail(sweep->options->command, ATTN_EXIT_LACKS,
                             "interrupted; the same command goes on from here");
    *n_errors = count_ended(sweep, ATTN_POINT_ERROR, &first);
    if (*n_errors > 0)
        attn_cli_fail(sweep->options->command, 0,
                      "%lld points ended as errors, the first %s %s: %s", (long long)*n_errors,
                      first->spec, first->text, first->message);
    return count_ended(sweep, ATTN_POINT_WRONG, &first) > 0 ? ATTN_EXIT_DISAGREE : ATTN_EXIT_GOOD;
}
