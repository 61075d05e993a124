/* Criterion of what a rank sends: counted by the transport, against the price of a spec of ours. */
#include <stdio.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/rim/grade/grading.h"

enum { CALL_S = 10 };

/* The price of the messages of one rank in a pass. */
static enum attn_status price(const struct attn_case *c, const char *name, enum attn_pass pass,
                              struct attn_cost *cost, struct attn_error *err)
{
    struct attn_spec spec;
    struct attn_setup setup;
    enum attn_status status = attn_spec_parse(name, &spec, err);
    if (status == ATTN_OK)
        status = attn_setup_describe(c, &setup, err);
    if (status != ATTN_OK)
        return status;
    status = attn_price(spec.impl, &spec.options, &setup.problem, pass, 0, cost, err);
    attn_setup_close(&setup);
    return status;
}

/* One case, by a worker of its own. */
static enum attn_status ask(const struct attn_grading *g, const char *text,
                            struct attn_asked *asked, struct attn_answer *answer,
                            struct attn_error *err)
{
    struct attn_subject x = {.route = &attn_plugin_route,
                             .source = g->of->x.source,
                             .timeout_s = CALL_S,
                             .how = {.calls = 1}};
    const struct attn_subject_route *route = x.route;
    *asked = (struct attn_asked){.name = "messages"};
    enum attn_status status = attn_case_parse(text, &asked->c, err);
    if (status == ATTN_OK) {
        attn_task_hide(g->task, &asked->c);
        status = route->open(&x, err);
    }
    if (status != ATTN_OK)
        return status;
    status = route->ask(&x, asked, 1, answer, err);
    route->close(&x);
    return status;
}

void attn_grade_messages(struct attn_grading *g, struct attn_outcome *o)
{
    static const char *const most[] = {"fewer", "as many", "more"};
    static struct attn_answer answer;
    struct attn_asked asked;
    struct attn_error err = {0};
    char text[ATTN_CASE_TEXT], spec[64];
    if (sscanf(g->criterion->argument, "%1023s %63s", text, spec) != 2) {
        attn_outcome_lose(o, "'%s' is not CASE SPEC", g->criterion->argument);
        return;
    }
    snprintf(o->again, sizeof o->again, "%.200s check %s --case '%.200s'", attn_cli_program(),
             g->candidate.route, text);
    o->asked = 1;
    o->passed = attn_grade_any_passed(g, "*");
    if (g->of->x.route != &attn_plugin_route || !o->passed)
        return; /* a command shows what its ranks hold at each step, and is judged by that */
    o->passed = ask(g, text, &asked, &answer, &err) == ATTN_OK;
    if (o->passed && answer.result.verdict != ATTN_PASS) {
        o->passed = 0;
        attn_outcome_lose(o, "%s: %.200s: nothing is counted", text, answer.result.text);
    }
    for (int pass = 0; pass <= (int)asked.c.pass && o->passed; pass++) {
        struct attn_cost cost = {0};
        o->passed = price(&asked.c, spec, (enum attn_pass)pass, &cost, &err) == ATTN_OK;
        if (!o->passed ||
            (answer.sent[pass] == cost.bytes_sent && answer.messages[pass] == cost.messages))
            continue;
        int64_t more = answer.sent[pass] - cost.bytes_sent;
        o->passed = 0;
        attn_outcome_lose(o,
                          "%s, %s: a rank sends %lld bytes in %lld messages; a ring sends %lld in "
                          "%lld",
                          text, attn_pass_name((enum attn_pass)pass), (long long)answer.sent[pass],
                          (long long)answer.messages[pass], (long long)cost.bytes_sent,
                          (long long)cost.messages);
        snprintf(o->cause, sizeof o->cause, "%s bytes than a ring needs",
                 most[(more > 0) - (more < 0) + 1]);
    }
    if (!o->passed)
        attn_outcome_lose(o, "%s", err.text);
    snprintf(o->found, sizeof o->found, "%lld bytes forward, %lld backward",
             (long long)answer.sent[0], (long long)answer.sent[1]);
}
