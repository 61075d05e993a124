/* attnlab check --plugin: every case in the worker process, then a look for leaks. */
#include <string.h>

#include "experiments/check/check.h"
#include "experiments/cli/cli.h"
#include "ref/clock.h"
#include "tests/harness/external/worker.h"

/* What is worth a line although it is no verdict, to standard error; once each. */
struct notes {
    char environment[96];
    int n_environment;
    int64_t hwm_bytes;
};

static void note(struct notes *notes, const struct attn_worker_reply *reply)
{
    if (reply->environment[0] != '\0' && notes->n_environment++ == 0)
        memcpy(notes->environment, reply->environment, sizeof notes->environment);
    if (reply->hwm_bytes > notes->hwm_bytes)
        notes->hwm_bytes = reply->hwm_bytes;
}

static void print_notes(const struct attn_worker *worker, const struct notes *notes)
{
    char text[32];
    if (worker->load_environment[0] != '\0')
        fprintf(stderr,
                "note: loading it changed the floating-point environment (%s); put back before "
                "every call\n",
                worker->load_environment);
    if (notes->n_environment > 0)
        fprintf(stderr,
                "note: %d calls changed the floating-point environment (%s); put back after "
                "each\n",
                notes->n_environment, notes->environment);
    if (worker->restarts > 0)
        fprintf(stderr, "note: started again %d times\n", worker->restarts);
    if (worker->strays > 0)
        fprintf(stderr, "note: processes that it had left behind were ended with it\n");
    if (notes->hwm_bytes > 0)
        fprintf(stderr, "note: peak resident memory of its process %s (VmHWM)\n",
                attn_cli_bytes(notes->hwm_bytes, text));
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* A process that the plug-in forked went on, and spoke when its question was done: what it had been
 * asked fails, and the verdicts of everything else stand. */
static void file_fork(struct attn_candidate *s, struct attn_worker *worker)
{
    char again[sizeof s->route + ATTN_CASE_TEXT + 32];
    struct attn_result r = {.verdict = ATTN_FAILED, .failure = ATTN_F_INTEGRITY};
    const char *text = worker->fork_question;
    int is_relation = attn_relation_find(text) != NULL, is_loading = text[0] == '\0';
    if (worker->fork_pid == 0)
        return;
    snprintf(r.text, sizeof r.text,
             "it forked, and process %d went on as well as the process that was called: one of "
             "them has to exec or _exit before the call returns",
             worker->fork_pid);
    snprintf(again, sizeof again, "check %s --%s '%s'", s->route, is_relation ? "relation" : "case",
             text);
    const struct attn_subject subject = {
        is_relation ? "relation" : "case", "",  is_loading ? "while it was loaded" : text, "", "",
        is_loading ? "" : again,           NULL};
    attn_candidate_say(s, &subject, &r, 0, 0);
    worker->fork_pid = 0;
}

/* Ask; 0: it was not asked, and is counted. */
static int ask(struct attn_candidate *s, struct attn_worker *worker, enum attn_worker_ask what,
               const char *text, int calls, struct attn_worker_reply *reply)
{
    const struct attn_repetition how = {calls > 1 ? calls : 1, 0, 0};
    attn_worker_ask(worker, what, text, &how, reply);
    file_fork(s, worker);
    s->not_reached += reply->not_reached;
    return !reply->not_reached;
}

static void say_not_reached(struct attn_candidate *s, const struct attn_worker *worker)
{
    struct attn_result r = {.verdict = ATTN_ERROR};
    const struct attn_subject subject = {"case", "", "not reached", "", "", "", NULL};
    if (s->not_reached == 0)
        return;
    snprintf(r.text, sizeof r.text,
             "%d cases and relations were not reached: %d times it did not end, or did not start "
             "again (--case and --relation ask for one; --timeout is %g s)",
             s->not_reached, worker->failures, s->timeout_s);
    attn_candidate_say(s, &subject, &r, 0, 0);
}

/* The biggest passed case of each pass is called up to a dozen times more. */
static void look_for_leaks(struct attn_candidate *s, struct attn_worker *worker,
                           const struct attn_asked *const biggest[2])
{
    for (int pass = ATTN_FORWARD; pass <= ATTN_BACKWARD; pass++) {
        struct attn_worker_reply reply;
        char text[ATTN_CASE_TEXT];
        double start = attn_seconds(CLOCK_MONOTONIC);
        if (biggest[pass] == NULL)
            continue;
        attn_case_print(&biggest[pass]->c, text);
        if (ask(s, worker, ATTN_WORKER_LEAK, text, 1, &reply) && reply.result.verdict != ATTN_PASS)
            attn_candidate_case(s, biggest[pass], &reply.result, 0,
                                attn_seconds(CLOCK_MONOTONIC) - start);
    }
}

/* What a case asks for whose worker did not live to say it. */
static unsigned needs_of(const struct attn_candidate *s, const struct attn_case *c)
{
    struct attn_setup setup;
    if (attn_setup_open(c, &setup, NULL) != ATTN_OK)
        return 0;
    unsigned needs = attn_claims_needed(&s->claims, &setup, ATTN_ROUTE_PLUGIN);
    attn_setup_close(&setup);
    return needs;
}

static void run_relations(struct attn_candidate *s, struct attn_worker *worker)
{
    for (int i = 0; i < ATTN_RELATION_COUNT; i++) {
        const struct attn_relation *relation = &attn_relations[i];
        struct attn_worker_reply reply;
        double start = attn_seconds(CLOCK_MONOTONIC);
        if (attn_candidate_wants(s, relation) &&
            ask(s, worker, ATTN_WORKER_RELATION, relation->id, 1, &reply))
            attn_candidate_relation(s, relation, &reply.result, reply.needs,
                                    attn_seconds(CLOCK_MONOTONIC) - start);
    }
}

/* ---- soak ------------------------------------------------------------------------------------ */

static int judge_random(void *arg, const struct attn_case *c, int n,
                        const struct attn_repetition *how, int flags, struct attn_result *r)
{
    struct attn_worker_reply reply;
    char text[ATTN_CASE_TEXT];
    (void)n;
    if (flags & ATTN_SOAK_FRESH)
        attn_worker_renew(arg);
    attn_case_print(c, text);
    attn_worker_ask(arg, ATTN_WORKER_CASE, text, how, &reply);
    *r = reply.result;
    if (flags & ATTN_SOAK_SAY)
        attn_common_cause_append(r, &reply.diagnosis);
    return 0;
}

/* ---- everything ------------------------------------------------------------------------------ */

static void run_all(struct attn_candidate *s, struct attn_worker *worker)
{
    const struct attn_asked *biggest[2] = {NULL, NULL};
    int64_t size[2] = {0, 0};
    struct notes notes = {.n_environment = 0};
    for (int i = 0; i < s->question.n; i++) {
        const struct attn_asked *asked = &s->question.asked[i];
        struct attn_worker_reply reply;
        char text[ATTN_CASE_TEXT];
        double start = attn_seconds(CLOCK_MONOTONIC);
        attn_case_print(&asked->c, text);
        if (!ask(s, worker, ATTN_WORKER_CASE, text, (int)s->request->repeat, &reply))
            continue;
        if (reply.result.verdict == ATTN_CRASH || reply.result.verdict == ATTN_TIMEOUT)
            reply.needs = needs_of(s, &asked->c);
        attn_common_cause_append(&reply.result, &reply.diagnosis);
        attn_candidate_case(s, asked, &reply.result, reply.needs,
                            attn_seconds(CLOCK_MONOTONIC) - start);
        note(&notes, &reply);
        const struct attn_case *c = &asked->c;
        int64_t n = c->batch * c->heads * c->n_query * c->n_key;
        if (reply.result.verdict == ATTN_PASS && n > size[c->pass]) {
            size[c->pass] = n;
            biggest[c->pass] = asked;
        }
    }
    look_for_leaks(s, worker, biggest);
    if (s->request->cases.n == 0)
        run_relations(s, worker);
    say_not_reached(s, worker);
    attn_worker_renew(worker); /* so that its strays are known */
    print_notes(worker, &notes);
}

int attn_check_plugin(struct attn_candidate *s)
{
    struct attn_worker worker;
    struct attn_error err = {0};
    enum attn_status status = attn_worker_open(s->source, s->timeout_s, &worker, &err);
    if (status != ATTN_OK)
        return attn_candidate_fail(s, attn_cli_status(status), "%s", err.text);
    s->claims = worker.claims;
    if (s->question.asked == NULL)
        status = attn_candidate_ask(s, &err);
    if (status != ATTN_OK) {
        attn_worker_close(&worker);
        return attn_candidate_fail(s, attn_cli_status(status), "%s", err.text);
    }
    attn_candidate_route(s, "--plugin", s->source);
    attn_candidate_begin(s);
    const struct attn_soak soak = {
        judge_random, &worker, s->request->repeat > 0 ? (int)s->request->repeat : ATTN_SOAK_CALLS,
        1};
    if (s->request->soak > 0)
        attn_soak_run(s, &soak);
    else
        run_all(s, &worker);
    attn_worker_close(&worker);
    file_fork(s, &worker); /* of the last question */
    return attn_candidate_end(s);
}
