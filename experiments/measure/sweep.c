/* The sweep: header and calibration, round 0 from cheap to dear, the other rounds in random order.
 * Whatever becomes of a point is a record. */
#include "experiments/measure/sweep.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/calibrate.h"
#include "experiments/measure/sweep_point.h"
#include "ref/clock.h"
#include "tests/harness/process.h"

/* ---- beginning ---------------------------------------------------------------------------- */

/* Price every point of the plan. */
static void open_states(struct attn_sweep *sweep)
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
        attn_sweep_price(sweep, state);
    }
    attn_budget_link(sweep->state, plan->n);
}

/* A point of some state; the array that resume sorts is of these. */
static int by_name(const void *a, const void *b)
{
    const struct attn_point *p = *(const struct attn_point *const *)a;
    const struct attn_point *q = *(const struct attn_point *const *)b;
    int order = strcmp(p->text, q->text);
    order = order != 0 ? order : strcmp(p->spec, q->spec);
    return order != 0 ? order : strcmp(p->group, q->group);
}

/* What the file holds of this build is not done again, nor what it holds of the same file or
 * command of somebody else; what the budget dropped, memory did not allow, or ended as an error,
 * is tried again. */
static void resume_from(struct attn_sweep *sweep, const struct attn_point **sorted,
                        const struct attn_point *old)
{
    if (strcmp(old->build, sweep->build) != 0 || old->round < 0 ||
        old->round >= sweep->plan->rounds || old->status == ATTN_POINT_DROPPED ||
        old->status == ATTN_POINT_TOO_BIG || old->status == ATTN_POINT_ERROR)
        return;
    const struct attn_point **found =
        bsearch(&old, sorted, (size_t)sweep->plan->n, sizeof *sorted, by_name);
    if (found == NULL)
        return;
    size_t place = (size_t)((const char *)*found - (const char *)&sweep->state[0].point);
    struct attn_sweep_state *state = &sweep->state[place / sizeof *state];
    if (state->done[old->round] || strcmp(state->point.source, old->source) != 0 ||
        strcmp(state->point.source_digest, old->source_digest) != 0)
        return;
    state->done[old->round] = 1;
    state->rounds_left--;
    sweep->n_resumed++;
    attn_sweep_keep(sweep, state, old);
}

static int resume(struct attn_sweep *sweep, const char *path)
{
    struct attn_records old;
    int64_t n = sweep->plan->n;
    struct attn_error err = {ATTN_OK, ""};
    struct stat about;
    if (stat(path, &about) != 0 || !S_ISREG(about.st_mode)) /* nothing there to go on from */
        return ATTN_EXIT_GOOD;
    if (attn_record_read(path, &old, &err) != ATTN_OK)
        return attn_cli_fail(sweep->options->command, attn_cli_status(err.status), "%s", err.text);
    const struct attn_point **sorted =
        attn_cli_need(calloc((size_t)n + 1, sizeof(const struct attn_point *)));
    for (int64_t i = 0; i < n; i++)
        sorted[i] = &sweep->state[i].point;
    qsort(sorted, (size_t)n, sizeof *sorted, by_name);
    for (int64_t i = 0; i < old.n; i++)
        resume_from(sweep, sorted, &old.point[i]);
    sweep->promised_s = attn_budget_promised(sweep->state, n);
    free(sorted);
    attn_records_free(&old);
    return ATTN_EXIT_GOOD;
}

/* The machine line: facts, and how this session was asked to measure. */
static int write_machine(struct attn_sweep *sweep)
{
    const struct attn_plan *plan = sweep->plan;
    json_t *facts = attn_machine_facts();
    json_t *line = json_pack("{s:i, s:s, s:s, s:I, s:I, s:I, s:f, s:I, s:f, s:f}", "schema",
                             ATTN_RECORD_SCHEMA, "record", "machine", "session", sweep->session,
                             "seed", (json_int_t)plan->seed, "rounds", (json_int_t)plan->rounds,
                             "repeat", (json_int_t)plan->repeat, "enough_s", plan->enough_s,
                             "verify_all", (json_int_t)plan->verify_all, "budget_s", plan->budget_s,
                             "timeout_s", plan->timeout_s);
    json_object_update(line, facts);
    json_decref(facts);
    return attn_record_write_json(sweep->file, line);
}

/* What the plan says of its figures, for those who draw. */
static int write_figures(struct attn_sweep *sweep)
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
static int write_prices(struct attn_sweep *sweep)
{
    for (int64_t i = 0; i < sweep->plan->n; i++) {
        struct attn_sweep_state *state = &sweep->state[i];
        int refused = state->point.message[0] != '\0';
        if (state->plan->is_priced && state->state == ATTN_WAITING &&
            attn_sweep_refuse(sweep, state, 0, refused ? state->point.status : ATTN_POINT_PRICED,
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

/* The cheapest; of equal ones the first of the plan. */
static struct attn_sweep_state *pop(struct queue *queue)
{
    int64_t best = 0;
    for (int64_t i = 1; i < queue->n; i++) {
        const struct attn_sweep_state *a = queue->state[i], *b = queue->state[best];
        double x = attn_budget_cost(a), y = attn_budget_cost(b);
        best = x < y || (x == y && a < b) ? i : best;
    }
    if (queue->n == 0)
        return NULL;
    struct attn_sweep_state *first = queue->state[best];
    queue->state[best] = queue->state[--queue->n];
    return first;
}

/* Predict and enter the first of these that waits. */
static void enter(struct queue *queue, struct attn_sweep_state *state,
                  const struct attn_sweep *sweep)
{
    while (state != NULL && state->state != ATTN_WAITING)
        state = state->larger;
    if (state == NULL)
        return;
    state->far = !attn_budget_predict(&sweep->budget, state);
    queue->state[queue->n++] = state;
}

static double budget_left(const struct attn_sweep *sweep)
{
    return sweep->plan->budget_s - attn_sweep_elapsed(sweep) - sweep->promised_s;
}

/* What was predicted from afar is predicted once more when its turn comes.  Where it would take a
 * share of the budget that is worth a probe, its curve gets one; all of them together may take
 * another share.  0, or -1. */
static int look_again(struct attn_sweep *sweep, struct attn_sweep_state *state)
{
    static const double WORTH_ONE = 0.01, ALL = 0.05;
    const double budget = sweep->plan->budget_s;
    state->far = 0;
    if (attn_budget_predict(&sweep->budget, state) || state->head->probed || budget <= 0 ||
        attn_budget_cost(state) <= WORTH_ONE * budget || budget_left(sweep) <= 0 ||
        sweep->probed_s >= ALL * budget)
        return 0;
    double begin = attn_sweep_elapsed(sweep);
    state->head->probed = 1;
    if (attn_sweep_probe(sweep, state) != 0)
        return -1;
    sweep->probed_s += attn_sweep_elapsed(sweep) - begin;
    (void)attn_budget_predict(&sweep->budget, state);
    return 0;
}

/* Why a waiting course cannot be begun: a status and a message, or ATTN_POINT_OK. */
static enum attn_point_status verdict_before(struct attn_sweep *sweep,
                                             struct attn_sweep_state *state,
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
static int keep_budget(struct attn_sweep *sweep)
{
    const struct attn_plan *plan = sweep->plan;
    char message[ATTN_RECORD_TEXT];
    for (;;) {
        double left = (1 + SLACK) * plan->budget_s - attn_sweep_elapsed(sweep);
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
        if (attn_sweep_refuse(sweep, dearest, round, ATTN_POINT_DROPPED, message) != 0)
            return -1;
    }
}

/* A point that is not begun: a record says why, but not once more what one of this session says. */
static int leave_out(struct attn_sweep *sweep, struct attn_sweep_state *state,
                     enum attn_point_status status, const char *message)
{
    if (!state->postponed) {
        int failed = attn_sweep_refuse(sweep, state, 0, status, message);
        state->postponed = status == ATTN_POINT_DROPPED;
        return failed;
    }
    state->state = ATTN_OUT;
    state->failed = state->done[0] = 1;
    state->rounds_left--;
    attn_budget_stop(state);
    return 0;
}

/* What was dropped before it was begun waits again: the others took less than was kept for them.
 * 1 when there is such a point, and time. */
static int wait_again(struct attn_sweep *sweep)
{
    int any = 0;
    for (int64_t i = 0; i < sweep->plan->n; i++) {
        struct attn_sweep_state *state = &sweep->state[i];
        if (!state->postponed || state->state != ATTN_OUT)
            continue;
        if (state->head->stop != NULL && state->head->stop->postponed)
            state->head->stop = NULL;
        state->state = ATTN_WAITING;
        state->failed = state->done[0] = 0;
        state->rounds_left++;
        any = 1;
    }
    return any && budget_left(sweep) > 0;
}

/* Round 0 of everything, the cheap before the dear.  0, or -1 when records cannot be written. */
static int round_zero(struct attn_sweep *sweep)
{
    char message[ATTN_RECORD_TEXT];
    struct attn_sweep_state *state;
    struct queue queue = {attn_cli_need(calloc((size_t)sweep->plan->n + 1, sizeof *queue.state)),
                          0};
    int failed = 0;
    for (int64_t i = 0; i < sweep->plan->n; i++)
        if (sweep->state[i].head == &sweep->state[i])
            enter(&queue, &sweep->state[i], sweep);
    while (!failed && !attn_process_interrupted() && (state = pop(&queue)) != NULL) {
        if (state->far) {
            failed = look_again(sweep, state) != 0;
            queue.state[queue.n++] = state;
            continue;
        }
        enum attn_point_status status = verdict_before(sweep, state, message);
        failed = status == ATTN_POINT_OK ? attn_sweep_measure(sweep, state, 0)
                                         : leave_out(sweep, state, status, message);
        failed = failed || keep_budget(sweep) != 0;
        if (!failed)
            enter(&queue, state->larger, sweep);
    }
    int error = errno;
    free(queue.state);
    errno = error;
    return failed ? -1 : 0;
}

/* A seeded random order of all courses. */
static void shuffle(struct attn_sweep_state **order, struct attn_sweep *sweep, int round)
{
    for (int64_t i = 0; i < sweep->plan->n; i++) {
        uint64_t at =
            attn_hash(sweep->plan->seed, (uint64_t)round, (uint64_t)i) % (uint64_t)(i + 1);
        order[i] = order[at];
        order[at] = &sweep->state[i];
    }
}

/* One round of all that were begun; of round 0 only what an interrupted session left out. */
static int next_round(struct attn_sweep *sweep, struct attn_sweep_state **order, int round)
{
    char when[32];
    if (keep_budget(sweep) != 0)
        return -1;
    shuffle(order, sweep, round);
    for (int64_t i = 0; i < sweep->plan->n && !attn_process_interrupted(); i++)
        if (order[i]->state == ATTN_BEGUN && !order[i]->done[round] &&
            attn_sweep_measure(sweep, order[i], round) != 0)
            return -1;
    snprintf(when, sizeof when, "after round %d", round);
    return attn_calibrate_spin(sweep->file, sweep->session, when);
}

static int all_rounds(struct attn_sweep *sweep)
{
    struct attn_sweep_state **order =
        attn_cli_need(calloc((size_t)sweep->plan->n + 1, sizeof(struct attn_sweep_state *)));
    int failed = 0, again = 0;
    while (!failed) {
        int64_t before = sweep->n_written;
        failed = round_zero(sweep) != 0;
        if (again && sweep->n_written == before) /* what was dropped does not fit now either */
            break;
        for (int round = 0; !failed && round < sweep->plan->rounds && !attn_process_interrupted();
             round++)
            failed = next_round(sweep, order, round);
        again = 1;
        if (failed || attn_process_interrupted() || !wait_again(sweep))
            break;
    }
    int error = errno;
    free(order);
    errno = error;
    return failed ? -1 : 0;
}

/* ---- ends --------------------------------------------------------------------------------- */

static int list_points(struct attn_sweep *sweep)
{
    char bytes[32];
    int64_t available = attn_cli_memory_available();
    printf("%-16s %-24s %-10s %10s  %s\n", "group", "spec", "rounds", "needs", "case");
    for (int64_t i = 0; i < sweep->plan->n; i++) {
        const struct attn_sweep_state *state = &sweep->state[i];
        char rounds[32];
        snprintf(rounds, sizeof rounds, "%d of %d", state->rounds_left,
                 state->plan->is_once ? 1 : (int)sweep->plan->rounds);
        const char *what = state->plan->is_priced     ? "only priced"
                           : state->state == ATTN_OUT ? "none"
                           : state->need > available  ? "too big"
                                                      : rounds;
        printf("%-16s %-24s %-10s %10s  %s\n", state->plan->group, state->plan->spec_text, what,
               attn_cli_bytes(state->need, bytes), state->plan->text);
    }
    return attn_cli_flush(sweep->options->command);
}

static int is_anything_left(const struct attn_sweep *sweep)
{
    for (int64_t i = 0; i < sweep->plan->n; i++)
        if (sweep->state[i].state != ATTN_OUT && sweep->state[i].rounds_left > 0)
            return 1;
    return 0;
}

static int carry_out(struct attn_sweep *sweep, const char *path, int64_t *n_errors)
{
    const char *command = sweep->options->command;
    struct attn_error err = {ATTN_OK, ""};
    sweep->file = attn_record_append(path, &err);
    if (sweep->file == NULL)
        return attn_cli_fail(command, attn_cli_status(err.status), "%s", err.text);
    int status = resume(sweep, path);
    if (status == ATTN_EXIT_GOOD && is_anything_left(sweep)) {
        sweep->begin_s = attn_seconds(CLOCK_MONOTONIC);
        sweep->progress = !sweep->options->quiet && isatty(STDERR_FILENO);
        attn_process_catch_interrupts();
        errno = 0;
        if (write_machine(sweep) != 0 || write_figures(sweep) != 0 ||
            attn_calibrate_session(sweep->file, sweep->session, command, &err) != 0 ||
            write_prices(sweep) != 0 || all_rounds(sweep) != 0)
            status = attn_cli_fail(command, ATTN_EXIT_LACKS, "records %s: %s", path,
                                   err.text[0] != '\0' ? err.text : strerror(errno));
    }
    if (fclose(sweep->file) != 0 && status == ATTN_EXIT_GOOD)
        status = attn_cli_fail(command, ATTN_EXIT_LACKS, "records %s: %s", path, strerror(errno));
    if (status == ATTN_EXIT_GOOD)
        status = attn_sweep_end(sweep, path, n_errors);
    return status;
}

int attn_sweep_run(const struct attn_plan *plan, const char *out_path,
                   const struct attn_sweep_options *options, int64_t *n_errors)
{
    struct attn_sweep sweep = {.plan = plan, .options = options};
    time_t now = time(NULL);
    struct tm utc;
    char date[32] = "";
    *n_errors = 0;
    if (gmtime_r(&now, &utc) != NULL)
        strftime(date, sizeof date, "%Y%m%dT%H%M%SZ", &utc);
    snprintf(sweep.session, sizeof sweep.session, "%.20s-%d", date, (int)getpid());
    attn_machine_build(sweep.build);
    open_states(&sweep);
    int status =
        options->dry_run ? resume(&sweep, out_path) : carry_out(&sweep, out_path, n_errors);
    if (status == ATTN_EXIT_GOOD && options->dry_run)
        status = list_points(&sweep);
    free(sweep.state);
    free(sweep.done);
    return status;
}
