/* Header and calibration, the first round of every point from cheap to dear, the other rounds in
 * random order.  Every outcome of a point is a record. */
#include "experiments/measure/sweep.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/calibrate.h"
#include "experiments/measure/machine.h"
#include "experiments/measure/order.h"
#include "experiments/measure/point/point.h"
#include "experiments/price/need.h"
#include "ref/clock.h"
#include "tests/harness/base/ending.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/subject/exec.h"

struct sweep {
    const struct attn_plan *plan;
    int is_quiet;
    struct attn_sweep_state *state; /* [plan->n] */
    struct attn_curve *curve;       /* of these  */
    char *done;                     /* [plan->n][rounds] */
    FILE *file;
    char session[32], build[ATTN_BUILD_TEXT];
    double begin_s, shown_s; /* the clock when it began; seconds until it last showed something */
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
    char text[512], budget[32] = "";
    int64_t total = sweep->n_written;
    if (!sweep->progress || elapsed(sweep) < sweep->shown_s + EVERY_S)
        return;
    sweep->shown_s = elapsed(sweep);
    for (int64_t i = 0; i < sweep->plan->n; i++)
        total += sweep->state[i].state != ATTN_OUT ? sweep->state[i].rounds_left : 0;
    if (sweep->plan->budget_s > 0)
        snprintf(budget, sizeof budget, " of at most %.0f", sweep->plan->budget_s);
    snprintf(text, sizeof text, "%lld of %lld, %.0f s%s: %s %lld %s %.100s",
             (long long)sweep->n_written + 1, (long long)total, sweep->shown_s, budget,
             now->plan->spec_text, (long long)now->plan->c.n_query,
             attn_pass_name(now->plan->c.pass), now->plan->c.mask);
    show(sweep, text);
}

/* ---- records ------------------------------------------------------------------------------ */

/* The flops with every pair computed: no code exceeds them by much. */
static double all_pairs_flops(const struct attn_case *c)
{
    double pairs = (double)c->batch * (double)c->heads * (double)c->n_query * (double)c->n_key;
    return (c->pass == ATTN_BACKWARD ? 5 : 2) * pairs * (double)(c->d_key + c->d_value);
}

static void price(struct sweep *sweep, struct attn_sweep_state *state)
{
    struct attn_point *p = &state->point;
    attn_point_price(state->plan, p, &state->need);
    snprintf(p->build, sizeof p->build, "%s", sweep->build);
    snprintf(p->session, sizeof p->session, "%s", sweep->session);
    state->work = state->plan->external != NULL ? all_pairs_flops(&p->c) : fmax(p->price.flops, 0);
}

static void keep(struct attn_sweep_state *state, const struct attn_point *point)
{
    state->state = point->status == ATTN_POINT_OK ? ATTN_BEGUN : ATTN_OUT;
    state->point.status = point->status;
    if (point->status == ATTN_POINT_ERROR)
        memcpy(state->point.message, point->message, sizeof point->message);
    attn_curve_note(state, point);
    if (point->status == ATTN_POINT_OK && point->judged.digest[0] != '\0' &&
        state->point.judged.digest[0] == '\0' && isfinite(point->judged.worst))
        state->point.judged = point->judged;
}

static int record(struct sweep *sweep, struct attn_sweep_state *state,
                  const struct attn_point *point)
{
    if (!state->done[point->round]) {
        state->done[point->round] = 1;
        state->rounds_left--;
    }
    keep(state, point);
    sweep->n_written++;
    sweep->n_status[point->status]++;
    return attn_record_write_point(sweep->file, point);
}

static int refuse(struct sweep *sweep, struct attn_sweep_state *state, int round,
                  enum attn_point_status status, const char *message)
{
    struct attn_point point = state->point;
    attn_point_unverified(&point);
    point.round = round;
    point.status = status;
    point.load = attn_machine_load();
    snprintf(point.message, sizeof point.message, "%s", message);
    return record(sweep, state, &point);
}

/* ---- limits ------------------------------------------------------------------------------- */

static double budget_left(const struct sweep *sweep)
{
    return sweep->plan->budget_s > 0 ? sweep->plan->budget_s - elapsed(sweep) : (double)INFINITY;
}

/* Seconds that a process may take now. */
static double limit_now(const struct sweep *sweep)
{
    static const double LEAST = 0.001;
    double timeout = sweep->plan->timeout_s > 0 ? sweep->plan->timeout_s : (double)INFINITY;
    return fmax(fmin(timeout, budget_left(sweep)), LEAST);
}

/* ---- one process -------------------------------------------------------------------------- */

/* Work that the end of the budget cuts off is as if it had not begun: a first round is dropped, and
 * of another one there is no record.  0, or -1 when records cannot be written. */
static int measure(struct sweep *sweep, struct attn_sweep_state *state, int round)
{
    struct attn_point point = state->point;
    const struct attn_point_how how = attn_point_how_of(sweep->plan, state->plan);
    char message[ATTN_RECORD_TEXT];
    if (point.status == ATTN_POINT_REFUSED ||
        (point.status == ATTN_POINT_ERROR && round == 0 && point.message[0] != '\0'))
        return refuse(sweep, state, round, point.status, point.message);
    show_state(sweep, state);
    point.round = round;
    int is_measured = attn_point_process(&how, limit_now(sweep), NULL, &point);
    attn_process_end_children(0); /* before they cost the next point time */
    if (!is_measured)
        return 0;
    if (point.status != ATTN_POINT_TIMEOUT || budget_left(sweep) > 0)
        return record(sweep, state, &point);
    snprintf(message, sizeof message, "cut off after %.1f s: the budget of %g s is used up",
             point.wall_s, sweep->plan->budget_s);
    return round == 0 ? refuse(sweep, state, round, ATTN_POINT_DROPPED, message) : 0;
}

/* ---- beginning ---------------------------------------------------------------------------- */

/* Price every point of the plan. */
static void open_states(struct sweep *sweep)
{
    const struct attn_plan *plan = sweep->plan;
    sweep->state = attn_cli_need(calloc((size_t)plan->n + 1, sizeof *sweep->state));
    sweep->done = attn_cli_need(calloc((size_t)plan->n + 1, (size_t)plan->rounds));
    sweep->curve = attn_cli_need(calloc((size_t)plan->n + 1, sizeof *sweep->curve));
    for (int64_t i = 0; i < plan->n; i++) {
        struct attn_sweep_state *state = &sweep->state[i];
        state->plan = &plan->point[i];
        state->done = sweep->done + i * plan->rounds;
        state->rounds_left = state->plan->is_once || state->plan->is_priced ? 1 : (int)plan->rounds;
        for (int64_t round = state->rounds_left; round < plan->rounds; round++)
            state->done[round] = 1;
        price(sweep, state);
    }
    attn_curves_link(sweep->state, plan->n, sweep->curve);
}

/* Points of this build that the file holds are not measured again, nor those of the same file or
 * command of another program; what the budget dropped, memory did not allow, or ended as an error,
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
    keep(state, old);
}

static int resume(struct sweep *sweep, const char *path)
{
    struct attn_records old;
    char name[ATTN_POINT_NAME];
    struct attn_error err = {ATTN_OK, ""};
    struct stat about;
    if (stat(path, &about) != 0 || !S_ISREG(about.st_mode)) /* nothing there to go on from */
        return ATTN_EXIT_GOOD;
    if (attn_record_read(path, &old, &err) != ATTN_OK)
        return attn_cli_error(&err);
    json_t *place = attn_cli_need(json_object());
    for (int64_t i = 0; i < sweep->plan->n; i++) {
        attn_point_name(&sweep->state[i].point, name);
        json_object_set_new_nocheck(place, name, attn_cli_need(json_integer(i)));
    }
    for (int64_t i = 0; i < old.n; i++)
        resume_from(sweep, place, &old.point[i]);
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

/* The names of curves, for the code that draws. */
static int write_labels(struct sweep *sweep)
{
    size_t index;
    json_t *labels;
    json_array_foreach(sweep->plan->labels, index, labels)
    {
        json_t *line = json_pack("{s:i, s:s, s:s}", "schema", ATTN_RECORD_SCHEMA, "record",
                                 "figure", "session", sweep->session);
        json_object_update(line, labels);
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

/* A seeded random order of all points. */
static void shuffle(struct attn_sweep_state **order, struct sweep *sweep, int round)
{
    for (int64_t i = 0; i < sweep->plan->n; i++) {
        uint64_t at =
            attn_hash(sweep->plan->seed, (uint64_t)round, (uint64_t)i) % (uint64_t)(i + 1);
        order[i] = order[at];
        order[at] = &sweep->state[i];
    }
}

/* The first round, the cheap before the dear, or in a random order; `order` has room for it. */
static int first_round(struct sweep *sweep, struct attn_sweep_state **order)
{
    char message[ATTN_RECORD_TEXT];
    for (int64_t i = 0; i < sweep->plan->n; i++)
        order[i] = &sweep->state[i];
    if (sweep->plan->shuffle)
        shuffle(order, sweep, 0);
    else
        attn_curves_sort(order, sweep->plan->n);
    for (int64_t i = 0; i < sweep->plan->n && !attn_process_interrupted(); i++) {
        if (order[i]->state != ATTN_WAITING)
            continue;
        enum attn_point_status status =
            attn_curve_verdict(order[i], sweep->plan, budget_left(sweep), message);
        if ((status == ATTN_POINT_OK ? measure(sweep, order[i], 0)
                                     : refuse(sweep, order[i], 0, status, message)) != 0)
            return -1;
    }
    return 0;
}

/* One round of all that were begun, while there is budget; of round 0 only what an interrupted
 * session left out. */
static int next_round(struct sweep *sweep, struct attn_sweep_state **order, int round)
{
    shuffle(order, sweep, round);
    for (int64_t i = 0; i < sweep->plan->n && !attn_process_interrupted(); i++)
        if (order[i]->state == ATTN_BEGUN && !order[i]->done[round] && budget_left(sweep) > 0 &&
            measure(sweep, order[i], round) != 0)
            return -1;
    return 0;
}

static int all_rounds(struct sweep *sweep)
{
    struct attn_sweep_state **order =
        attn_cli_need(calloc((size_t)sweep->plan->n + 1, sizeof(struct attn_sweep_state *)));
    int failed = first_round(sweep, order) != 0;
    for (int round = 0; !failed && round < sweep->plan->rounds; round++)
        failed = next_round(sweep, order, round) != 0;
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
        char shown[4096];
        fprintf(stderr, "attnlab %s: %s: %lld points", attn_cli_command(),
                attn_cleaned(path, shown, sizeof shown), (long long)sweep->plan->n);
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
    for (int64_t i = 0; i < sweep->plan->n; i++) {
        const char *group = sweep->state[i].plan->group;
        char figures[200];
        if (i > 0 && strcmp(sweep->state[i - 1].plan->group, group) == 0)
            continue;
        (void)attn_group_figures(attn_group_kind_of(group), figures);
        printf("%-16s figures: %s\n", group, figures[0] != '\0' ? figures : "none, a table");
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
        if (write_machine(sweep) != 0 || write_labels(sweep) != 0 ||
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
    if (plan->n == 0)
        return attn_cli_fail(ATTN_EXIT_USAGE, "the plan has no point: its groups name curves; "
                                              "spec and length say what is measured");
    if (gmtime_r(&now, &utc) != NULL)
        strftime(date, sizeof date, "%Y%m%dT%H%M%SZ", &utc);
    snprintf(sweep.session, sizeof sweep.session, "%.20s-%d", date, (int)getpid());
    attn_machine_build(sweep.build);
    open_states(&sweep);
    int status = is_dry ? resume(&sweep, out_path) : carry_out(&sweep, out_path, n_errors);
    if (status == ATTN_EXIT_GOOD && is_dry)
        status = list_points(&sweep);
    free(sweep.state);
    free(sweep.curve);
    free(sweep.done);
    return status;
}
