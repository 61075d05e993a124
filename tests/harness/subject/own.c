/* The route of our own specs (external.h): cases and relations, judged in processes of their own
 * (isolated.h); where these are ranks of MPI, here.
 *
 * Cases are the outer loop and specs the inner one: what the oracle says of a case is worked out
 * once, for all specs that are asked it together. */
#include "tests/harness/diagnosis/diagnose.h"
#include "tests/harness/relations/relations.h"
#include "tests/harness/subject/external.h"
#include "tests/harness/subject/isolated.h"

/* Each case for all of these specs, then the next. */
struct round {
    const struct attn_external *x; /* the first of them */
    int n;
    const struct attn_asked *asked;
    struct attn_setup setup;
    const struct attn_asked *open; /* the case that is set up, or NULL */
};

static enum attn_status open_case(struct round *round, const struct attn_asked *asked,
                                  struct attn_error *err)
{
    if (round->open == asked)
        return ATTN_OK;
    if (round->open != NULL)
        attn_setup_close(&round->setup);
    round->open = NULL;
    enum attn_status status = attn_setup_open(&asked->c, &round->setup, err);
    if (status != ATTN_OK)
        return status;
    if (round->n > 1)
        attn_setup_keep(&round->setup);
    round->open = asked;
    return ATTN_OK;
}

static void judge_case(void *arg, int i, struct attn_result *r)
{
    struct round *round = arg;
    const struct attn_external *x = round->x;
    const struct attn_asked *asked = &round->asked[i / round->n];
    struct attn_error err = {0};
    enum attn_status status = open_case(round, asked, &err);
    for (int n = i % round->n; n > 0; n--)
        x = x->next;
    struct attn_repetition how = x->how;
    how.same_bits = 1;
    if (status != ATTN_OK) {
        attn_result_error(r, status, err.text);
        return;
    }
    attn_run_setup(&x->spec, &round->setup, &how, r);
    if (x->diagnoses && r->verdict == ATTN_FAILED)
        attn_diagnose_case(&x->spec, NULL, &asked->c, r, &r->diagnosis);
}

/* A relation of one spec. */
struct related {
    const struct attn_external *x;
    const struct attn_relation *relation;
};

static void judge_relation(void *arg, int i, struct attn_result *r)
{
    const struct related *related = arg;
    (void)i;
    attn_relation_run(related->relation, &related->x->spec, NULL, r);
}

void attn_own_judge(const struct attn_external *x,
                    void (*judge)(void *arg, int i, struct attn_result *r), void *arg, int n,
                    struct attn_answer *answer)
{
    if (x->is_in_place)
        attn_in_place(judge, arg, n, answer);
    else
        attn_isolated(judge, arg, n, x->timeout_s, answer);
}

static enum attn_status ask(struct attn_external *x, struct attn_asked *asked, int n,
                            struct attn_answer *answer, struct attn_error *err)
{
    struct round round = {.x = x, .asked = asked};
    (void)err;
    for (const struct attn_external *one = x; one != NULL; one = one->next)
        round.n++;
    attn_own_judge(x, judge_case, &round, round.n * n, answer);
    if (round.open != NULL) /* it was judged here */
        attn_setup_close(&round.setup);
    return ATTN_OK;
}

static void relation(struct attn_external *x, const struct attn_relation *asked,
                     struct attn_answer *answer)
{
    struct related related = {x, asked};
    attn_own_judge(x, judge_relation, &related, 1, answer);
}

static enum attn_status open_nothing(struct attn_external *x, struct attn_error *err)
{
    (void)x, (void)err;
    return ATTN_OK;
}

static void close_nothing(struct attn_external *x)
{
    (void)x;
}

static enum attn_status load(struct attn_external *x, struct attn_error *err)
{
    return attn_spec_parse(x->source, &x->spec, err);
}

const struct attn_external_route attn_own_route = {.word = "implementation of attnlab",
                                                   .flag = "",
                                                   .route = ATTN_ROUTE_OWN,
                                                   .says_claims = 1,
                                                   .at_once = 16,
                                                   .soak_calls = 4, /* threads have own tests */
                                                   .open = open_nothing,
                                                   .ask = ask,
                                                   .close = close_nothing,
                                                   .relation = relation,
                                                   .load = load};
