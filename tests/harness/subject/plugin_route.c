/* The route of a plug-in (subject.h): cases, relations and a look for leaks are run and judged
 * here, and each of its calls in another process (plugin_host.h). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/clock.h"
#include "tests/harness/diagnosis/diagnose.h"
#include "tests/harness/diagnosis/faults.h"
#include "tests/harness/relations/relations.h"
#include "tests/harness/subject/plugin_host.h"
#include "tests/harness/subject/rank_steps.h"
#include "tests/harness/subject/vector_files.h"

enum { RELATION_CALLS = 10 }; /* a relation, and a look for leaks, may take as long */

/* ---- what calls leave behind for the verdict ----------------------------------------------- */

static int64_t hwm_bytes(const struct attn_plugin_host *host)
{
    char line[256];
    long long kib = -1;
    snprintf(line, sizeof line, "/proc/%d/status", (int)host->shared->pid);
    FILE *file = host->is_running ? fopen(line, "r") : NULL;
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "VmHWM: %lld", &kib) == 1)
            break;
    if (file != NULL)
        fclose(file);
    return kib < 0 ? -1 : kib * 1024;
}

static void forget(struct attn_plugin_impl *plugin)
{
    memset(&plugin->notes, 0, sizeof plugin->notes);
    plugin->message[0] = '\0';
}

static void add_notes(const struct attn_plugin_impl *plugin, struct attn_answer *answer)
{
    const struct attn_plugin_notes *notes = &plugin->notes;
    struct attn_result *r = &answer->result;
    memcpy(answer->environment, notes->environment, sizeof answer->environment);
    memcpy(answer->sent, notes->sent, sizeof answer->sent);
    memcpy(answer->messages, notes->messages, sizeof answer->messages);
    if (r->by_it && r->verdict == ATTN_FAILED) /* in every run: plug-ins may */
        attn_result_refuse(r, plugin->message);
    else if (r->failure == ATTN_F_STATUS && !r->by_it && plugin->message[0] != '\0')
        snprintf(r->text, sizeof r->text, "%s", plugin->message);
    if (notes->integrity[0] == '\0')
        return;
    r->verdict = ATTN_FAILED;
    r->failure = ATTN_F_INTEGRITY;
    r->by_it = 0;
    snprintf(r->text, sizeof r->text, "%s", notes->integrity);
}

/* ---- one case -------------------------------------------------------------------------------- */

/* Mistakes of rings are asked first of a plug-in that is ranks. */
static int diagnose_ranks(const struct attn_plugin_impl *plugin, const struct attn_case *c,
                          struct attn_result *r)
{
    struct attn_setup setup;
    struct attn_error err = {0};
    if (plugin->claims.ranks == 0 || attn_setup_open(c, &setup, &err) != ATTN_OK)
        return 0;
    int found =
        attn_rerun(&plugin->spec, &setup, 1, &err) == ATTN_OK &&
        attn_rank_results_diagnose(plugin->claims.ranks, &plugin->claims, &setup, &r->diagnosis);
    attn_setup_close(&setup);
    return found;
}

/* Wrong again in the process that has run other cases, and right in one of its own, each more than
 * once, so that it is no race. */
static int is_right_afresh(struct attn_subject *x, const struct attn_case *c)
{
    struct attn_plugin_host *host = x->host;
    const int restarts = host->restarts;
    struct attn_answer unsaid;
    struct attn_result again;
    for (int n = 0; n < 4; n++) {
        if (n == 2)
            attn_plugin_host_renew(host);
        if (n == 2 && !attn_plugin_host_begin(host, x->how.calls, &unsaid))
            return 0;
        attn_run_case(&host->plugin.spec, c, &again);
        host->restarts = restarts;
        host->is_lost = 0; /* of a question that is none of the caller's */
        if ((again.verdict == ATTN_PASS) != (n >= 2))
            return 0;
    }
    return 1;
}

/* After ten seconds of diagnoses the next one says nothing new. */
static void diagnose(struct attn_subject *x, const struct attn_case *c, struct attn_result *r)
{
    const struct attn_plugin_impl *plugin = &x->host->plugin;
    int is_numeric =
        r->failure == ATTN_F_FINITE || r->failure == ATTN_F_EXACT || r->failure == ATTN_F_BOUND;
    if (r->verdict != ATTN_FAILED || !is_numeric || x->diagnosed_s > 10)
        return;
    double start = attn_seconds(CLOCK_MONOTONIC);
    if (x->same_afresh < 3 && is_right_afresh(x, c)) {
        r->diagnosis.fault = ATTN_FAULT_STATE;
        snprintf(
            r->diagnosis.text, sizeof r->diagnosis.text,
            "right in a fresh process: what earlier calls left (a cache, a static) makes it wrong");
        x->diagnosed_s += attn_seconds(CLOCK_MONOTONIC) - start;
        return;
    }
    x->same_afresh++;
    start = attn_seconds(CLOCK_PROCESS_CPUTIME_ID);
    if (!diagnose_ranks(plugin, c, r))
        attn_diagnose_case(&plugin->spec, &plugin->claims, c, r, &r->diagnosis);
    struct attn_setup setup;
    if (attn_setup_describe(c, &setup, NULL) == ATTN_OK) {
        attn_vector_rows_diagnose(&plugin->claims, &setup, r);
        attn_setup_close(&setup);
    }
    x->diagnosed_s += attn_seconds(CLOCK_PROCESS_CPUTIME_ID) - start;
}

static int start_again(void *host)
{
    struct attn_answer unsaid;
    return attn_plugin_host_begin(host, 1, &unsaid);
}

/* The features without which it does not crash; three seconds of that are enough. */
static void diagnose_crash(struct attn_subject *x, const struct attn_case *c,
                           struct attn_answer *answer)
{
    struct attn_plugin_host *host = x->host;
    struct attn_diagnosis *d = &answer->result.diagnosis;
    const struct attn_restart restart = {start_again, host};
    const int restarts = host->restarts, failures = host->failures;
    const double start = attn_seconds(CLOCK_MONOTONIC);
    if (answer->result.verdict != ATTN_CRASH || x->diagnosed_s > 3)
        return;
    if (attn_rerun_without(&host->plugin.spec, &host->plugin.claims, c, &restart, d->text,
                           sizeof d->text) > 0)
        d->fault = ATTN_FAULT_FEATURE;
    host->restarts = restarts;
    host->failures = failures;
    x->diagnosed_s += attn_seconds(CLOCK_MONOTONIC) - start;
}

static void run(struct attn_subject *x, const struct attn_case *c, struct attn_answer *answer)
{
    struct attn_plugin_impl *plugin = &x->host->plugin;
    struct attn_repetition how = x->how;
    struct attn_setup setup;
    if (!attn_subject_setup(x, c, &setup, answer))
        return;
    how.same_bits = (plugin->claims.bits & ATTN_CAP_REPEATS) != 0;
    attn_run_setup(&plugin->spec, &setup, &how, &answer->result);
    attn_setup_close(&setup);
    if (plugin->claims.lse == ATTN_PLUGIN_LSE_ABSENT)
        attn_result_drop_lse(&answer->result);
    add_notes(plugin, answer);
    diagnose(x, c, &answer->result);
}

/* ---- leaks ----------------------------------------------------------------------------------- */

enum { LEAK_CALLS = 40, LEAK_LOOK = 36 };

/* The least that each call loses.  One that loses nothing ends it: the least can only fall.  Of
 * freed pieces malloc counts seven of each size as taken: that grows for a while, too. */
static void look_for_leaks(struct attn_plugin_host *host, const struct attn_case *c,
                           struct attn_result *r)
{
    int64_t before[2], after[2], lost[2] = {INT64_MAX, INT64_MAX};
    struct attn_setup setup;
    struct attn_error err = {0};
    enum attn_status status = attn_setup_open(c, &setup, &err);
    for (int n = 0; n < LEAK_CALLS && status == ATTN_OK && (lost[0] > 0 || lost[1] > 0); n++) {
        status = attn_rerun(&host->plugin.spec, &setup, 1, &err);
        memcpy(after, host->shared->taken, sizeof after);
        for (int k = 0; k < 2 && n >= LEAK_CALLS - LEAK_LOOK; k++)
            if (after[k] - before[k] < lost[k])
                lost[k] = after[k] - before[k];
        memcpy(before, after, sizeof before);
    }
    attn_setup_close(&setup);
    if (status != ATTN_OK) {
        attn_result_error(r, status, err.text);
        return;
    }
    if (lost[0] <= 0 && lost[1] <= 0)
        return;
    r->verdict = ATTN_FAILED;
    r->failure = ATTN_F_MEMORY;
    snprintf(r->text, sizeof r->text, "at least %lld bytes are lost in every call",
             (long long)(lost[0] > 0 ? lost[0] : lost[1]));
}

/* ---- questions ------------------------------------------------------------------------------- */

/* The claims that a case asks for whose process did not live to show it. */
static unsigned needs_of(const struct attn_subject *x, const struct attn_case *c)
{
    struct attn_setup setup;
    if (attn_setup_describe(c, &setup, NULL) != ATTN_OK)
        return 0;
    unsigned needs = attn_claims_needed(&x->claims, &setup, ATTN_ROUTE_PLUGIN);
    attn_setup_close(&setup);
    return needs;
}

/* A case, a case that is looked at for leaks, or a relation. */
struct question {
    const struct attn_case *c;
    const struct attn_relation *relation;
    int is_leak;
};

static void ask(struct attn_subject *x, const struct question *q, struct attn_answer *answer)
{
    struct attn_plugin_host *host = x->host;
    const double start = attn_seconds(CLOCK_MONOTONIC);
    const double times = q->relation != NULL || q->is_leak ? RELATION_CALLS : x->how.calls;
    memset(answer, 0, sizeof *answer);
    if (attn_plugin_host_begin(host, times, answer)) {
        forget(&host->plugin);
        host->plugin.seed = q->c != NULL ? q->c->seed : 0;
        if (q->is_leak)
            look_for_leaks(host, q->c, &answer->result);
        else if (q->relation == NULL)
            run(x, q->c, answer);
        else {
            answer->wants.needs = attn_relation_run(q->relation, &host->plugin.spec,
                                                    &host->plugin.claims, &answer->result);
            add_notes(&host->plugin, answer);
        }
        answer->result.calls = host->calls;
        answer->hwm_bytes = hwm_bytes(host);
        attn_plugin_host_end(host, answer);
        if (q->relation == NULL && !q->is_leak)
            diagnose_crash(x, q->c, answer);
    }
    answer->seconds = attn_seconds(CLOCK_MONOTONIC) - start;
    x->not_reached += answer->not_reached;
}

static enum attn_status open_route(struct attn_subject *x, struct attn_error *err)
{
    x->host = calloc(1, sizeof *x->host);
    if (x->host == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for a plug-in");
    double until = x->until > 0 ? x->until : (double)INFINITY;
    enum attn_status status = attn_plugin_host_open(x->source, x->timeout_s, until, x->host, err);
    x->claims = x->host->plugin.claims;
    if (status != ATTN_OK) {
        free(x->host);
        x->host = NULL;
    }
    return status;
}

static enum attn_status ask_cases(struct attn_subject *x, struct attn_asked *asked, int n,
                                  struct attn_answer *answer, struct attn_error *err)
{
    (void)err;
    for (int i = 0; i < n; i++) {
        ask(x, &(struct question){.c = &asked[i].c}, &answer[i]);
        if (answer[i].result.verdict == ATTN_CRASH || answer[i].result.verdict == ATTN_TIMEOUT)
            answer[i].wants.needs = needs_of(x, &asked[i].c);
    }
    return ATTN_OK;
}

static void unreached(const struct attn_subject *x, char *text, size_t size)
{
    snprintf(text, size,
             "%d cases and relations were not reached: %d times it did not end, or did not start "
             "again (--case and --relation ask for one; --timeout is %g s)",
             x->not_reached, x->host->failures, x->timeout_s);
}

static void close_route(struct attn_subject *x)
{
    attn_plugin_host_renew(x->host);
    x->strays = x->host->shared->strays;
    attn_plugin_host_close(x->host);
    free(x->host);
    x->host = NULL;
}

static void ask_relation(struct attn_subject *x, const struct attn_relation *relation,
                         struct attn_answer *answer)
{
    ask(x, &(struct question){.relation = relation}, answer);
}

static void look_for_leak(struct attn_subject *x, const struct attn_case *c,
                          struct attn_answer *answer)
{
    ask(x, &(struct question){.c = c, .is_leak = 1}, answer);
}

static void renew(struct attn_subject *x)
{
    attn_plugin_host_renew(x->host);
}

/* ---- to measure it --------------------------------------------------------------------------- */

static enum attn_status try(struct attn_subject *x, struct attn_error *err)
{
    enum attn_status status = open_route(x, err);
    if (status == ATTN_OK)
        close_route(x);
    return status;
}

/* An LSE that is absent is left unwritten: it is not read. */
static enum attn_status load(struct attn_subject *x, struct attn_error *err)
{
    static struct attn_plugin_impl plugin; /* there is no unload */
    enum attn_status status = attn_plugin_load(x->source, &plugin, err);
    if (status == ATTN_OK && plugin.claims.layout >= ATTN_PLUGIN_THD)
        status = attn_fail(err, ATTN_EINVAL,
                           "documents and pages are laid out anew for each call of a plug-in: "
                           "it can be checked, but not measured");
    if (status != ATTN_OK)
        return status;
    plugin.impl.name = x->name;
    plugin.leave_lse = 1;
    x->spec = plugin.spec;
    x->claims = plugin.claims;
    x->plugin = &plugin;
    return ATTN_OK;
}

const struct attn_subject_route attn_plugin_route = {.word = "plug-in",
                                                     .flag = "plugin",
                                                     .route = ATTN_ROUTE_PLUGIN,
                                                     .says_claims = 1,
                                                     .at_once = 1,
                                                     .soak_calls = 16, /* for races */
                                                     .usual_s = 20,
                                                     .open = open_route,
                                                     .ask = ask_cases,
                                                     .close = close_route,
                                                     .relation = ask_relation,
                                                     .unreached = unreached,
                                                     .leak = look_for_leak,
                                                     .renew = renew,
                                                     .try = try,
                                                     .load = load,
                                                     .files = attn_subject_one_file};
