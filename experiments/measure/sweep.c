/* The sweep: header and calibration, round 0 from cheap to dear, the other rounds in random order.
 * Whatever becomes of a point is a record.
 *
 * The child that measures a point is not trusted: its line must parse, speak of the point that was
 * asked for, and agree with how it ended; otherwise the record says what happened instead. */
#include "experiments/measure/sweep.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/budget.h"
#include "experiments/measure/calibrate.h"
#include "experiments/measure/machine.h"
#include "experiments/measure/need.h"
#include "ref/clock.h"
#include "tests/harness/external/exec.h"
#include "tests/harness/process.h"

struct sweep {
    const struct attn_plan *plan;
    int is_quiet;
    struct attn_sweep_state *state; /* [plan->n] */
    struct attn_budget budget;      /* of these  */
    char *done;                     /* [plan->n][rounds] */
    FILE *file;
    char session[32], build[ATTN_BUILD_TEXT];
    double begin_s, shown_s; /* the clock when it began; seconds until it last showed something */
    double promised_s;       /* what all begun courses still need                          */
    int progress;            /* standard error is a terminal */
    int64_t n_resumed, n_written, n_status[ATTN_POINT_ERROR + 1];
};

static double elapsed(const struct sweep *sweep)
{
    return attn_seconds(CLOCK_MONOTONIC) - sweep->begin_s;
}

/* ---- one line on the terminal ------------------------------------------------------------- */

/* Written over itself with blanks, not with control codes; nothing here has a colour. */
static void show(const struct sweep *sweep, const char *text)
{
    struct winsize size;
    int known = sweep->progress && ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    int width = known ? size.ws_col - 1 : 78;
    if (sweep->progress)
        fprintf(stderr, "\r%-*.*s", width, width, text);
}

static void show_state(struct sweep *sweep, const struct attn_sweep_state *now)
{
    static const double EVERY_S = 0.2; /* adding up looks at every point */
    char text[512];
    double left = sweep->promised_s;
    int64_t total = sweep->n_written;
    if (!sweep->progress || elapsed(sweep) < sweep->shown_s + EVERY_S)
        return;
    sweep->shown_s = elapsed(sweep);
    for (int64_t i = 0; i < sweep->plan->n; i++) {
        const struct attn_sweep_state *state = &sweep->state[i];
        total += state->state != ATTN_OUT ? state->rounds_left : 0;
        left += state->state == ATTN_WAITING ? attn_budget_cost(state) : 0;
    }
    if (sweep->plan->budget_s > 0)
        left = fmin(left, sweep->plan->budget_s - elapsed(sweep));
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

static void price(struct sweep *sweep, struct attn_sweep_state *state)
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
    p->stack = state->plan->layers;
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

static void keep(struct sweep *sweep, struct attn_sweep_state *state,
                 const struct attn_point *point)
{
    state->state = point->status == ATTN_POINT_OK ? ATTN_BEGUN : ATTN_OUT;
    state->failed = point->status == ATTN_POINT_TIMEOUT || point->status == ATTN_POINT_KILLED ||
                    point->status == ATTN_POINT_OUT_OF_MEMORY ||
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

static int record(struct sweep *sweep, struct attn_sweep_state *state,
                  const struct attn_point *point)
{
    sweep->promised_s -= promise_of(state);
    if (!state->done[point->round]) {
        state->done[point->round] = 1;
        state->rounds_left--;
    }
    keep(sweep, state, point);
    sweep->promised_s += promise_of(state);
    sweep->n_written++;
    sweep->n_status[point->status]++;
    return attn_record_write_point(sweep->file, point);
}

static int refuse(struct sweep *sweep, struct attn_sweep_state *state, int round,
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
static void say_price(const struct attn_point *priced, struct attn_point *told)
{
    char bytes[32];
    size_t n = strlen(told->message);
    told->priced_bytes = priced->priced_bytes;
    told->shard_bytes = priced->shard_bytes;
    told->total_bytes = priced->total_bytes;
    if (priced->priced_bytes >= 0)
        snprintf(told->message + n, sizeof told->message - n, "; priced at %s",
                 attn_cli_bytes(priced->priced_bytes, bytes));
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
        /* OpenMP's runtime ends the process when it gets no memory: there is no record. */
        int lacks_memory = strstr(why, "libgomp: Out of memory") != NULL;
        point->status = lacks_memory ? ATTN_POINT_OUT_OF_MEMORY : ATTN_POINT_ERROR;
        snprintf(point->message, sizeof point->message, "exit status %d: %.480s",
                 child->exit_status, why);
        if (lacks_memory)
            say_price(point, point);
        return;
    }
    memcpy(told.group, point->group, sizeof told.group);
    memcpy(told.route, point->route, sizeof told.route);
    memcpy(told.source, point->source, sizeof told.source);
    memcpy(told.source_digest, point->source_digest, sizeof told.source_digest);
    memcpy(told.build, point->build, sizeof told.build);
    memcpy(told.session, point->session, sizeof told.session);
    told.round = point->round;
    if (told.status == ATTN_POINT_OUT_OF_MEMORY)
        say_price(point, &told);
    *point = told;
}

enum { WORDS = 30 };

/* What this round is asked for: `attnlab point ARGS`.  repeat and the like live in text. */
static void ask(const struct sweep *sweep, const struct attn_sweep_state *state, const char *folder,
                char text[5][32], const char *args[WORDS])
{
    const struct attn_external_spec *e = state->plan->external;
    const struct attn_stack *stack = &state->point.stack;
    int plugin = e != NULL && e->kind == ATTN_EXTERNAL_PLUGIN;
    int n = 0;
    snprintf(text[0], sizeof text[0], "%lld",
             state->plan->is_once ? 0 : (long long)sweep->plan->repeat);
    snprintf(text[1], sizeof text[1], "%.9g", sweep->plan->enough_s);
    snprintf(text[2], sizeof text[2], "%lld", (long long)sweep->plan->verify_all);
    snprintf(text[3], sizeof text[3], "%lld", (long long)stack->n);
    snprintf(text[4], sizeof text[4], "%lld", (long long)stack->hidden);
    const char *const pair[][2] = {
        {"--case", state->point.text},
        {"--repeat", text[0]},
        {"--enough", text[1]},
        {"--verify-all", text[2]},
        {"--layers", stack->n > 0 ? text[3] : NULL},
        {"--hidden", stack->hidden > 0 ? text[4] : NULL},
        {"--save", stack->n > 0 ? attn_stack_save_name(stack->save) : NULL},
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

/* Seconds for one process, 0: no limit.  What nothing is known of has the rest of the budget. */
static double time_limit(const struct sweep *sweep, const struct attn_sweep_state *state)
{
    const struct attn_plan *plan = sweep->plan;
    double left = fmax(plan->budget_s - elapsed(sweep), 1);
    int is_less = plan->budget_s > 0 && state->guessed && !state->measured;
    return is_less && (plan->timeout_s <= 0 || left < plan->timeout_s) ? left : plan->timeout_s;
}

/* A command's files outlive a point that is killed: they are made and removed out here. */
static int run_child(struct sweep *sweep, struct attn_sweep_state *state, double limit,
                     struct attn_process *child)
{
    const char *args[WORDS];
    char text[5][32], folder[4096];
    const struct attn_external_spec *e = state->plan->external;
    struct attn_error err = {ATTN_OK, ""};
    int needs_folder = e != NULL && e->kind == ATTN_EXTERNAL_COMMAND;
    if (needs_folder && attn_exec_folder(folder, &err) != ATTN_OK) {
        child->exit_status = -1;
        snprintf(child->last_line, sizeof child->last_line, "%.250s", err.text);
        return 0;
    }
    ask(sweep, state, folder, text, args);
    int failed = attn_process_attnlab(args, limit > 0 ? limit : (double)INFINITY, child);
    int error = errno;
    if (needs_folder)
        attn_exec_remove(folder);
    errno = error;
    return failed;
}

static int measure(struct sweep *sweep, struct attn_sweep_state *state, int round)
{
    char output[1 << 16];
    struct attn_process child = {.out = output, .room = sizeof output};
    struct attn_point point = state->point;
    if (point.status == ATTN_POINT_REFUSED ||
        (point.status == ATTN_POINT_ERROR && round == 0 && point.message[0] != '\0'))
        return refuse(sweep, state, round, point.status, point.message);
    show_state(sweep, state);
    double load = attn_machine_load(), steal = attn_machine_steal();
    double limit = time_limit(sweep, state);
    if (run_child(sweep, state, limit, &child) != 0)
        snprintf(child.last_line, sizeof child.last_line, "could not be started: %s",
                 strerror(errno));
    if (child.interrupted)
        return 0;
    point.round = round;
    read_child(&child, limit, &point);
    point.load = load;
    point.steal_s = attn_machine_steal() - steal;
    point.wall_s = child.wall_s;
    return record(sweep, state, &point);
}

/* ---- beginning ---------------------------------------------------------------------------- */

/* Price every point of the plan. */
static void open_states(struct sweep *sweep)
{
    const struct attn_plan *plan = sweep->plan;
    sweep->state = attn_cli_need(calloc((size_t)plan->n + 1, sizeof *sweep->state));
    sweep->done = attn_cli_need(calloc((size_t)plan->n + 1, (size_t)plan->rounds));
    sweep->budget = (struct attn_budget){.plan = plan};
    for (int64_t i = 0; i < plan->n; i++) {
        struct attn_sweep_state *state = &sweep->state[i];
        state->plan = &plan->point[i];
        state->done = sweep->done + i * plan->rounds;
        state->rounds_left = state->plan->is_once || state->plan->is_priced ? 1 : (int)plan->rounds;
        for (int64_t round = state->rounds_left; round < plan->rounds; round++)
            state->done[round] = 1;
        price(sweep, state);
    }
    attn_budget_link(sweep->state, plan->n);
}

/* What the file holds of this build is not done again, nor what it holds of the same file or
 * command of somebody else; what the budget dropped, memory did not allow, or ended as an error,
 * is tried again. */
static void resume_from(struct sweep *sweep, const json_t *place, const struct attn_point *old)
{
    char name[ATTN_POINT_NAME];
    attn_point_name(old, name);
    const json_t *found = json_object_get(place, name);
    struct attn_sweep_state *state = &sweep->state[json_integer_value(found)];
    if (found == NULL || strcmp(old->build, sweep->build) != 0 || old->round < 0 ||
        old->round >= sweep->plan->rounds || old->status == ATTN_POINT_DROPPED ||
        old->status == ATTN_POINT_TOO_BIG || old->status == ATTN_POINT_OUT_OF_MEMORY ||
        old->status == ATTN_POINT_ERROR)
        return;
    if (state->done[old->round] || strcmp(state->point.source, old->source) != 0 ||
        strcmp(state->point.source_digest, old->source_digest) != 0)
        return;
    state->done[old->round] = 1;
    state->rounds_left--;
    sweep->n_resumed++;
    keep(sweep, state, old);
}

static int resume(struct sweep *sweep, const char *path)
{
    struct attn_records old;
    int64_t n = sweep->plan->n;
    char name[ATTN_POINT_NAME];
    struct attn_error err = {ATTN_OK, ""};
    struct stat about;
    if (stat(path, &about) != 0 || !S_ISREG(about.st_mode)) /* nothing there to go on from */
        return ATTN_EXIT_GOOD;
    if (attn_record_read(path, &old, &err) != ATTN_OK)
        return attn_cli_error(&err);
    json_t *place = attn_cli_need(json_object());
    for (int64_t i = 0; i < n; i++) {
        attn_point_name(&sweep->state[i].point, name);
        json_object_set_new_nocheck(place, name, attn_cli_need(json_integer(i)));
    }
    for (int64_t i = 0; i < old.n; i++)
        resume_from(sweep, place, &old.point[i]);
    sweep->promised_s = attn_budget_promised(sweep->state, n);
    json_decref(place);
    attn_records_free(&old);
    return ATTN_EXIT_GOOD;
}

/* The machine line: facts, and how this session was asked to measure. */
static int write_machine(struct sweep *sweep)
{
    const struct attn_plan *plan = sweep->plan;
    json_t *facts = attn_machine_facts();
    json_t *line = json_pack("{s:i, s:s, s:s, s:I, s:I, s:I, s:I, s:f, s:I, s:f, s:f}", "schema",
                             ATTN_RECORD_SCHEMA, "record", "machine", "session", sweep->session,
                             "seed", (json_int_t)plan->seed, "shuffle", (json_int_t)plan->shuffle,
                             "rounds", (json_int_t)plan->rounds, "repeat", (json_int_t)plan->repeat,
                             "enough_s", plan->enough_s, "verify_all", (json_int_t)plan->verify_all,
                             "budget_s", plan->budget_s, "timeout_s", plan->timeout_s);
    json_object_update(line, facts);
    json_decref(facts);
    return attn_record_write_json(sweep->file, line);
}

/* What the plan says of its figures, for those who draw. */
static int write_figures(struct sweep *sweep)
{
    size_t index;
    json_t *figure;
    json_array_foreach(sweep->plan->figures, index, figure)
    {
        json_t *line = json_pack("{s:i, s:s, s:s}", "schema", ATTN_RECORD_SCHEMA, "record",
                                 "figure", "session", sweep->session);
        json_object_update(line, figure);
        if (attn_record_write_json(sweep->file, line) != 0)
            return -1;
    }
    return 0;
}

/* Points beyond the plan's limits: their prices are all that is asked for. */
static int write_prices(struct sweep *sweep)
{
    for (int64_t i = 0; i < sweep->plan->n; i++) {
        struct attn_sweep_state *state = &sweep->state[i];
        int refused = state->point.message[0] != '\0';
        if (state->plan->is_priced && state->state == ATTN_WAITING &&
            refuse(sweep, state, 0, refused ? state->point.status : ATTN_POINT_PRICED,
                   refused ? state->point.message : "beyond a limit of the plan") != 0)
            return -1;
    }
    return 0;
}

/* ---- the rounds --------------------------------------------------------------------------- */

/* The next courses of all curves.  A curve grows from its small end: it has no holes, and the last
 * length predicts the next. */
struct queue {
    struct attn_sweep_state **state; /* [n of the plan] */
    int64_t n;
};

/* What comes first in round 0: its cost, or its lot. */
static double turn_of(const struct sweep *sweep, const struct attn_sweep_state *state)
{
    if (!sweep->plan->shuffle)
        return attn_budget_cost(state);
    return (double)(attn_hash(sweep->plan->seed, 0, (uint64_t)(state - sweep->state)) >> 11);
}

/* The first; of equal ones the first of the plan. */
static struct attn_sweep_state *pop(struct queue *queue, const struct sweep *sweep)
{
    int64_t best = 0;
    for (int64_t i = 1; i < queue->n; i++) {
        const struct attn_sweep_state *a = queue->state[i], *b = queue->state[best];
        double x = turn_of(sweep, a), y = turn_of(sweep, b);
        best = x < y || (x == y && a < b) ? i : best;
    }
    if (queue->n == 0)
        return NULL;
    struct attn_sweep_state *first = queue->state[best];
    queue->state[best] = queue->state[--queue->n];
    return first;
}

/* Predict and enter the first of these that waits.  Shuffled, all are entered at the start. */
static void enter(struct queue *queue, struct attn_sweep_state *state, const struct sweep *sweep)
{
    while (state != NULL && state->state != ATTN_WAITING)
        state = state->larger;
    if (state == NULL)
        return;
    attn_budget_predict(&sweep->budget, state);
    queue->state[queue->n++] = state;
}

static double budget_left(const struct sweep *sweep)
{
    return sweep->plan->budget_s - elapsed(sweep) - sweep->promised_s;
}

/* Why a waiting course cannot be begun: a status and a message, or ATTN_POINT_OK. */
static enum attn_point_status verdict_before(struct sweep *sweep, struct attn_sweep_state *state,
                                             char message[ATTN_RECORD_TEXT])
{
    const struct attn_plan *plan = sweep->plan;
    double total = attn_budget_cost(state);
    double left = budget_left(sweep);
    int64_t available = attn_cli_memory_available();
    const struct attn_sweep_state *smaller = attn_budget_stopped(state);
    char price[32], need[32], have[32];
    if (state->need > available && state->plan->external != NULL) {
        snprintf(message, ATTN_RECORD_TEXT,
                 "needs at least %s for inputs, outputs and mask; this machine can give %s",
                 attn_cli_bytes(state->need, need), attn_cli_bytes(available, have));
        return ATTN_POINT_TOO_BIG;
    }
    if (state->need > available) {
        snprintf(message, ATTN_RECORD_TEXT,
                 "priced at %s, with inputs and outputs %s; this machine can give %s",
                 attn_cli_bytes(state->point.priced_bytes, price),
                 attn_cli_bytes(state->need, need), attn_cli_bytes(available, have));
        return ATTN_POINT_TOO_BIG;
    }
    if (plan->budget_s > 0 && total > left)
        snprintf(message, ATTN_RECORD_TEXT,
                 "its %d rounds would take about %.1f s; %.1f s of the budget of %.0f s are left",
                 state->rounds_left, total, left > 0 ? left : 0, plan->budget_s);
    else if (plan->timeout_s > 0 && !state->guessed && state->first_s > 2 * plan->timeout_s)
        snprintf(message, ATTN_RECORD_TEXT,
                 "not tried: one process would take about %.1f s; the time limit is %.3g s",
                 state->first_s, plan->timeout_s);
    else if (smaller != NULL)
        snprintf(message, ATTN_RECORD_TEXT, "not tried: length %lld ended as %s",
                 (long long)smaller->plan->c.n_query,
                 attn_point_status_name(smaller->point.status));
    else
        return ATTN_POINT_OK;
    return ATTN_POINT_DROPPED;
}

/* Predictions err by some percent; a point of which four rounds are done should not go for that. */
static const double SLACK = 0.05;

/* While the promises of the points that were begun exceed what is left, the dearest one goes: the
 * rounds that it lacks are not run. */
static int keep_budget(struct sweep *sweep)
{
    const struct attn_plan *plan = sweep->plan;
    char message[ATTN_RECORD_TEXT];
    for (;;) {
        double left = (1 + SLACK) * plan->budget_s - elapsed(sweep);
        double promised = sweep->promised_s;
        struct attn_sweep_state *dearest = NULL;
        if (plan->budget_s <= 0 || promised <= left)
            return 0;
        for (int64_t i = 0; i < plan->n; i++) {
            struct attn_sweep_state *state = &sweep->state[i];
            if (state->state == ATTN_BEGUN && state->rounds_left > 0 &&
                (dearest == NULL || attn_budget_cost(state) > attn_budget_cost(dearest)))
                dearest = state;
        }
        if (dearest == NULL)
            return 0;
        snprintf(message, ATTN_RECORD_TEXT,
                 "%d rounds more would take %.1f s; all points together %.1f s of the %.1f s left",
                 dearest->rounds_left, attn_budget_cost(dearest), promised, left > 0 ? left : 0);
        int round = 0;
        while (dearest->done[round]) /* it lacks rounds_left > 0 of them */
            round++;
        if (refuse(sweep, dearest, round, ATTN_POINT_DROPPED, message) != 0)
            return -1;
    }
}

/* Round 0 of everything, the cheap before the dear, or in a random order.  What does not fit
 * waits for the last turn: the others may take less than was kept for them.  0, or -1 when records
 * cannot be written. */
static int round_zero(struct sweep *sweep, int is_last)
{
    char message[ATTN_RECORD_TEXT];
    struct attn_sweep_state *state;
    struct queue queue = {attn_cli_need(calloc((size_t)sweep->plan->n + 1, sizeof *queue.state)),
                          0};
    int failed = 0;
    for (int64_t i = 0; i < sweep->plan->n; i++) {
        state = &sweep->state[i];
        if (sweep->plan->shuffle ? state->state == ATTN_WAITING : state->head == state)
            enter(&queue, state, sweep);
    }
    while (!failed && !attn_process_interrupted() && (state = pop(&queue, sweep)) != NULL) {
        enum attn_point_status status = verdict_before(sweep, state, message);
        if (status == ATTN_POINT_DROPPED && !is_last)
            continue;
        failed = status == ATTN_POINT_OK ? measure(sweep, state, 0)
                                         : refuse(sweep, state, 0, status, message);
        failed = failed || keep_budget(sweep) != 0;
        if (!failed && !sweep->plan->shuffle)
            enter(&queue, state->larger, sweep);
    }
    int error = errno;
    free(queue.state);
    errno = error;
    return failed ? -1 : 0;
}

/* A seeded random order of all courses. */
static void shuffle(struct attn_sweep_state **order, struct sweep *sweep, int round)
{
    for (int64_t i = 0; i < sweep->plan->n; i++) {
        uint64_t at =
            attn_hash(sweep->plan->seed, (uint64_t)round, (uint64_t)i) % (uint64_t)(i + 1);
        order[i] = order[at];
        order[at] = &sweep->state[i];
    }
}

/* One round of all that were begun; of round 0 only what an interrupted session left out. */
static int next_round(struct sweep *sweep, struct attn_sweep_state **order, int round)
{
    if (keep_budget(sweep) != 0)
        return -1;
    shuffle(order, sweep, round);
    for (int64_t i = 0; i < sweep->plan->n && !attn_process_interrupted(); i++)
        if (order[i]->state == ATTN_BEGUN && !order[i]->done[round] &&
            measure(sweep, order[i], round) != 0)
            return -1;
    return 0;
}

static int all_rounds(struct sweep *sweep)
{
    struct attn_sweep_state **order =
        attn_cli_need(calloc((size_t)sweep->plan->n + 1, sizeof(struct attn_sweep_state *)));
    int failed = 0;
    for (int turn = 0; turn < 2 && !failed; turn++) {
        int64_t before = sweep->n_status[ATTN_POINT_OK];
        failed = round_zero(sweep, turn == 1) != 0;
        if (turn == 1 && sweep->n_status[ATTN_POINT_OK] == before) /* nothing more has begun */
            break;
        for (int round = 0; !failed && round < sweep->plan->rounds && !attn_process_interrupted();
             round++)
            failed = next_round(sweep, order, round);
    }
    int error = errno;
    free(order);
    errno = error;
    return failed ? -1 : 0;
}

/* ---- ends --------------------------------------------------------------------------------- */

/* Of all points, not only of those that this session added. */
static int64_t count_ended(const struct sweep *sweep, enum attn_point_status status,
                           const struct attn_point **first)
{
    int64_t n = 0;
    *first = NULL;
    for (int64_t i = 0; i < sweep->plan->n; i++)
        if (sweep->state[i].point.status == status && n++ == 0)
            *first = &sweep->state[i].point;
    return n;
}

static int report_end(struct sweep *sweep, const char *path, int64_t *n_errors)
{
    static const enum attn_point_status lacking[] = {ATTN_POINT_ERROR, ATTN_POINT_OUT_OF_MEMORY};
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
    if (!sweep->is_quiet) {
        fprintf(stderr, "attnlab %s: %s: %lld points", attn_cli_command(), path,
                (long long)sweep->plan->n);
        if (sweep->n_resumed > 0)
            fprintf(stderr, ", %lld records were there", (long long)sweep->n_resumed);
        fprintf(stderr, ", %lld added%s", (long long)sweep->n_written, text);
        fprintf(stderr, " (%.1f s)\n", sweep->begin_s > 0 ? elapsed(sweep) : 0.0);
    }
    if (attn_process_interrupted())
        return attn_cli_fail(ATTN_EXIT_LACKS, "interrupted; the same command goes on from here");
    for (int l = 0; l < 2; l++) {
        int64_t ended = count_ended(sweep, lacking[l], &first);
        if (ended > 0)
            attn_cli_fail(0, "%lld points ended as %s, the first %s %s: %s", (long long)ended,
                          l == 0 ? "errors" : "out of memory", first->spec, first->text,
                          first->message);
        *n_errors += ended;
    }
    return count_ended(sweep, ATTN_POINT_WRONG, &first) > 0 ? ATTN_EXIT_DISAGREE : ATTN_EXIT_GOOD;
}

static int list_points(struct sweep *sweep)
{
    char bytes[32];
    int64_t available = attn_cli_memory_available();
    printf("%-16s %-24s %-10s %10s  %s\n", "group", "spec", "rounds", "needs", "case");
    for (int64_t i = 0; i < sweep->plan->n; i++) {
        const struct attn_sweep_state *state = &sweep->state[i];
        char rounds[32], stack[ATTN_STACK_TEXT];
        snprintf(rounds, sizeof rounds, "%d of %d", state->rounds_left,
                 state->plan->is_once ? 1 : (int)sweep->plan->rounds);
        const char *what = state->plan->is_priced     ? "only priced"
                           : state->state == ATTN_OUT ? "none"
                           : state->need > available  ? "too big"
                                                      : rounds;
        printf("%-16s %-24s %-10s %10s  %s", state->plan->group, state->plan->spec_text, what,
               attn_cli_bytes(state->need, bytes), state->plan->text);
        if (state->point.stack.n > 0)
            printf("  %s", attn_stack_print(&state->plan->layers, stack));
        putchar('\n');
    }
    return attn_cli_flush();
}

static int is_anything_left(const struct sweep *sweep)
{
    for (int64_t i = 0; i < sweep->plan->n; i++)
        if (sweep->state[i].state != ATTN_OUT && sweep->state[i].rounds_left > 0)
            return 1;
    return 0;
}

static int carry_out(struct sweep *sweep, const char *path, int64_t *n_errors)
{
    struct attn_error err = {ATTN_OK, ""};
    sweep->file = attn_record_append(path, &err);
    if (sweep->file == NULL)
        return attn_cli_error(&err);
    int status = resume(sweep, path);
    if (status == ATTN_EXIT_GOOD && is_anything_left(sweep)) {
        sweep->begin_s = attn_seconds(CLOCK_MONOTONIC);
        sweep->progress = !sweep->is_quiet && isatty(STDERR_FILENO);
        attn_process_catch_interrupts();
        errno = 0;
        if (write_machine(sweep) != 0 || write_figures(sweep) != 0 ||
            attn_calibrate_session(sweep->file, sweep->session, &err) != 0 ||
            write_prices(sweep) != 0 || all_rounds(sweep) != 0)
            status = attn_cli_fail(ATTN_EXIT_LACKS, "records %s: %s", path,
                                   err.text[0] != '\0' ? err.text : strerror(errno));
    }
    if (fclose(sweep->file) != 0 && status == ATTN_EXIT_GOOD)
        status = attn_cli_fail(ATTN_EXIT_LACKS, "records %s: %s", path, strerror(errno));
    if (status == ATTN_EXIT_GOOD)
        status = report_end(sweep, path, n_errors);
    return status;
}

int attn_sweep_run(const struct attn_plan *plan, const char *out_path, int is_dry, int is_quiet,
                   int64_t *n_errors)
{
    struct sweep sweep = {.plan = plan, .is_quiet = is_quiet};
    time_t now = time(NULL);
    struct tm utc;
    char date[32] = "";
    *n_errors = 0;
    if (gmtime_r(&now, &utc) != NULL)
        strftime(date, sizeof date, "%Y%m%dT%H%M%SZ", &utc);
    snprintf(sweep.session, sizeof sweep.session, "%.20s-%d", date, (int)getpid());
    attn_machine_build(sweep.build);
    open_states(&sweep);
    int status = is_dry ? resume(&sweep, out_path) : carry_out(&sweep, out_path, n_errors);
    if (status == ATTN_EXIT_GOOD && is_dry)
        status = list_points(&sweep);
    free(sweep.state);
    free(sweep.done);
    return status;
}
