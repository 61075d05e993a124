/* attnlab check --plugin: every case in the guest process, then a look for leaks. */
#include <string.h>
#include <time.h>

#include "experiments/check_soak.h"
#include "experiments/cli.h"
#include "experiments/stranger.h"
#include "tests/harness/guest.h"

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* What is worth a line although it is no verdict, to standard error; once each. */
struct notes {
    char environment[96];
    int n_environment;
    int64_t hwm_bytes;
};

static void note(struct notes *notes, const struct attn_guest_reply *reply)
{
    if (reply->environment[0] != '\0' && notes->n_environment++ == 0)
        memcpy(notes->environment, reply->environment, sizeof notes->environment);
    if (reply->hwm_bytes > notes->hwm_bytes)
        notes->hwm_bytes = reply->hwm_bytes;
}

static void print_notes(const struct attn_guest *guest, const struct notes *notes)
{
    char text[32];
    if (guest->load_environment[0] != '\0')
        fprintf(stderr,
                "note: loading it changed the floating-point environment (%s); put back before "
                "every call\n",
                guest->load_environment);
    if (notes->n_environment > 0)
        fprintf(stderr,
                "note: %d calls changed the floating-point environment (%s); put back after "
                "each\n",
                notes->n_environment, notes->environment);
    if (guest->restarts > 0)
        fprintf(stderr, "note: started again %d times\n", guest->restarts);
    if (notes->hwm_bytes > 0)
        fprintf(stderr, "note: peak resident memory of its process %s (VmHWM)\n",
                attn_cli_bytes(notes->hwm_bytes, text));
}

/* The biggest passed case of each pass is called a dozen times more. */
static void look_for_leaks(struct attn_stranger *s, struct attn_guest *guest,
                           const struct attn_asked *const biggest[2])
{
    for (int pass = ATTN_FORWARD; pass <= ATTN_BACKWARD; pass++) {
        struct attn_guest_reply reply;
        double start = now();
        if (biggest[pass] == NULL)
            continue;
        attn_guest_leak(guest, &biggest[pass]->c, &reply);
        if (reply.result.verdict != ATTN_PASS)
            attn_stranger_file(s, biggest[pass], &reply.result, "", 0, now() - start);
    }
}

/* What a case asks for whose guest did not live to say it. */
static unsigned needs_of(const struct attn_stranger *s, const struct attn_case *c)
{
    struct attn_setup setup;
    if (attn_setup_open(c, &setup, NULL) != ATTN_OK)
        return 0;
    unsigned needs = attn_claims_needed(&s->claims, &setup, ATTN_ROUTE_PLUGIN);
    attn_setup_close(&setup);
    return needs;
}

static void run_relations(struct attn_stranger *s, struct attn_guest *guest)
{
    for (int i = 0; i < attn_relation_count(); i++) {
        const struct attn_relation *relation = attn_relation_at(i);
        struct attn_guest_reply reply;
        char again[sizeof s->route + 64];
        double start = now();
        if (s->relation != NULL && s->relation != relation)
            continue;
        attn_guest_relation(guest, relation->id, &reply);
        snprintf(again, sizeof again, "check %s --relation %s", s->route, relation->id);
        const struct attn_subject subject = {
            "relation", relation->id, relation->says, relation->ids, relation->says, again, NULL};
        attn_stranger_say(s, &subject, &reply.result, reply.needs, now() - start);
    }
}

/* ---- soak ------------------------------------------------------------------------------------ */

static void judge_random(void *arg, const struct attn_case *c, int say, struct attn_result *r)
{
    struct attn_guest_reply reply;
    attn_guest_run(arg, c, &reply);
    *r = reply.result;
    if (say)
        attn_votes_append(r, reply.diagnosis);
}

static void run_soak(struct attn_stranger *s, struct attn_guest *guest)
{
    const struct attn_soak soak = {judge_random, guest, s->route, s->soak_s, s->seed};
    attn_soak_run(&soak, &s->verdicts);
    s->judged++;
}

/* ---- everything ------------------------------------------------------------------------------ */

static void run_all(struct attn_stranger *s, struct attn_guest *guest)
{
    const struct attn_asked *biggest[2] = {NULL, NULL};
    int64_t size[2] = {0, 0};
    struct notes notes = {.n_environment = 0};
    for (int i = 0; i < s->question.n; i++) {
        const struct attn_asked *asked = &s->question.asked[i];
        struct attn_guest_reply reply;
        double start = now();
        attn_guest_run(guest, &asked->c, &reply);
        if (reply.result.verdict == ATTN_CRASH || reply.result.verdict == ATTN_TIMEOUT)
            reply.needs = needs_of(s, &asked->c);
        attn_stranger_file(s, asked, &reply.result, reply.diagnosis, reply.needs, now() - start);
        note(&notes, &reply);
        const struct attn_case *c = &asked->c;
        int64_t n = c->batch * c->heads * c->n_query * c->n_key;
        if (reply.result.verdict == ATTN_PASS && n > size[c->pass]) {
            size[c->pass] = n;
            biggest[c->pass] = asked;
        }
    }
    look_for_leaks(s, guest, biggest);
    print_notes(guest, &notes);
}

int attn_stranger_plugin(struct attn_stranger *s, const char *path)
{
    struct attn_guest guest;
    struct attn_error err = {0};
    enum attn_status status = attn_guest_open(path, s->timeout_s, &guest, &err);
    if (status != ATTN_OK)
        return attn_stranger_fail(s, attn_cli_status(status), "%s", err.text);
    s->claims = guest.claims;
    attn_stranger_route(s, "--plugin", path);
    attn_stranger_begin(s);
    if (s->soak_s > 0)
        run_soak(s, &guest);
    else {
        run_all(s, &guest);
        if (s->relations)
            run_relations(s, &guest);
    }
    attn_guest_close(&guest);
    return attn_stranger_end(s);
}
