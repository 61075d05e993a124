/* Messages between ranks: closed form = count = log, for each rank, in both passes; and that ranks
 * which only count post what ranks that compute post. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/problem/messages.h"
#include "ref/ledger.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/suites.h"

/* Every implementation with ranks, and what has other schedules than the presets. */
static const char *const variants[] = {"ring:order=striped", "ring:order=zigzag", "ring:inner=2",
                                       "ring:order=zigzag,inner=4"};
enum { VARIANTS = sizeof variants / sizeof *variants };

static const char *const cases[] = {"b1h8g8q64k64d8v8:none:f32:normal:s1:pass=bwd",
                                    "b2h6g2q13k13d4v6:causal(br):f32:normal:s1:pass=bwd",
                                    "b1h5g1q3k7d8v4:none:f64:normal:s1:pass=bwd",
                                    "b1h4g2q65k65d4v4:window(9,0,br):f32:normal:s1:pass=bwd",
                                    "b3h4g4q0k5d4v4:none:f32:normal:s1:pass=bwd"};
enum { CASES = sizeof cases / sizeof *cases };

/* The n-th spec for so many ranks; 0: there are no more. */
static int spec_at(int n, int ranks, char text[80])
{
    for (int i = 0; i < attn_impl_count(); i++)
        if (attn_impl_at(i)->ranks != NULL && n-- == 0)
            return snprintf(text, 80, "%s:ranks=%d", attn_impl_at(i)->name, ranks);
    return n < VARIANTS ? snprintf(text, 80, "%s,ranks=%d", variants[n], ranks) : 0;
}

struct pass_log {
    struct attn_messages messages;
    struct attn_rank_use *use; /* [ranks] */
};

static void open_log(struct pass_log *x, const struct attn_spec *spec)
{
    struct attn_error err = {0};
    ck_assert_int_eq(attn_messages_open(&x->messages, spec, &err), ATTN_OK);
    x->use = calloc((size_t)x->messages.ranks, sizeof *x->use);
    ck_assert_ptr_nonnull(x->use);
}

static void close_log(struct pass_log *x)
{
    attn_messages_close(&x->messages);
    free(x->use);
}

/* The price of every rank is what it counts, and what the log says. */
static void expect_price(const struct pass_log *x, const struct attn_spec *spec, const char *text,
                         const struct attn_problem *p, enum attn_pass pass)
{
    for (int r = 0; r < x->messages.ranks; r++) {
        const struct attn_messages_of *of = &x->messages.of[r];
        struct attn_cost cost;
        struct attn_error err = {0};
        int64_t bytes = 0;
        ck_assert_int_eq(attn_price(spec->impl, &spec->options, p, pass, r, &cost, &err), ATTN_OK);
        for (int64_t n = 0; n < of->n; n++) {
            bytes += of->note[n].bytes;
            ck_assert(of->note[n].source == r && of->note[n].pass == pass);
            ck_assert(of->note[n].destination != r && of->note[n].destination >= 0 &&
                      of->note[n].destination < x->messages.ranks);
            ck_assert_int_eq(of->note[n].dtype, p->dtype);
        }
        ck_assert_msg(of->n == cost.messages && bytes == cost.bytes_sent &&
                          x->use[r].messages == of->n && x->use[r].bytes_sent == bytes,
                      "%s %s rank %d: price %lld in %lld, count %lld in %lld, log %lld in %lld",
                      text, attn_pass_name(pass), r, (long long)cost.bytes_sent,
                      (long long)cost.messages, (long long)x->use[r].bytes_sent,
                      (long long)x->use[r].messages, (long long)bytes, (long long)of->n);
    }
}

static void expect_same(const struct pass_log *a, const struct pass_log *b, const char *text)
{
    for (int r = 0; r < a->messages.ranks; r++) {
        const struct attn_messages_of *x = &a->messages.of[r], *y = &b->messages.of[r];
        ck_assert_msg(x->n == y->n, "%s rank %d: %lld and %lld notes", text, r, (long long)x->n,
                      (long long)y->n);
        for (int64_t n = 0; n < x->n; n++)
            ck_assert_msg(x->note[n].step == y->note[n].step &&
                              strcmp(x->note[n].tensor, y->note[n].tensor) == 0 &&
                              x->note[n].destination == y->note[n].destination &&
                              x->note[n].bytes == y->note[n].bytes,
                          "%s rank %d: note %lld differs", text, r, (long long)n);
    }
}

/* Ranks that compute. */
static void simulate(struct pass_log *x, const struct attn_spec *spec, struct attn_setup *setup,
                     enum attn_pass pass)
{
    struct attn_error err = {0};
    struct attn_ledger ledger;
    attn_ledger_init(&ledger, NULL);
    struct attn_ctx ctx = {.ledger = &ledger,
                           .options = &spec->options,
                           .error = &err,
                           .ranks = x->use,
                           .log = &x->messages.log};
    ck_assert_msg(attn_setup_call(setup, spec->impl, &ctx, pass) == ATTN_OK, "%s", err.text);
    ck_assert_int_eq(attn_ledger_clear(&ledger), 0);
}

/* 1: this spec does it. */
static int compare(const char *text, struct attn_setup *setup, enum attn_pass pass, int simulated)
{
    struct attn_spec spec = spec_of(text);
    struct attn_error err = {0};
    struct attn_cost cost;
    struct pass_log counted, computed;
    int does =
        attn_price(spec.impl, &spec.options, &setup->problem, pass, 0, &cost, &err) == ATTN_OK;
    open_log(&counted, &spec);
    enum attn_status status =
        attn_messages_count(&counted.messages, &spec, &setup->problem, pass, counted.use, &err);
    ck_assert_msg(status == (does ? ATTN_OK : ATTN_ENOTSUP), "%s: %s", text, err.text);
    if (does)
        expect_price(&counted, &spec, text, &setup->problem, pass);
    if (does && simulated) {
        open_log(&computed, &spec);
        simulate(&computed, &spec, setup, pass);
        expect_price(&computed, &spec, text, &setup->problem, pass);
        expect_same(&counted, &computed, text);
        close_log(&computed);
    }
    close_log(&counted);
    return does;
}

static void compare_all(const char *case_text, int ranks, int simulated)
{
    struct attn_setup setup;
    char text[80];
    int done = 0;
    setup_of(case_text, &setup);
    for (int n = 0; spec_at(n, ranks, text) > 0; n++)
        for (int pass = 0; pass < 2; pass++)
            done += compare(text, &setup, (enum attn_pass)pass, simulated);
    ck_assert_int_ge(done, 4); /* ring and ulysses divide everything */
    attn_setup_close(&setup);
}

START_TEST(price_is_count_is_log)
{
    static const int ranks[] = {1, 2, 3, 4, 7, 8};
    compare_all(cases[_i / 6], ranks[_i % 6], 1);
}
END_TEST

START_TEST(price_is_count_for_many_ranks)
{
    static const int ranks[] = {16, 33, 64};
    compare_all(cases[_i / 3], ranks[_i % 3], 0);
}
END_TEST

/* ---- who sends nothing, and who disagrees ---------------------------------------------------- */

START_TEST(one_process_has_none)
{
    struct attn_spec spec = spec_of("tiled");
    struct attn_error err = {0};
    struct attn_messages messages;
    struct attn_ledger ledger;
    struct attn_setup setup;
    ck_assert_int_eq(attn_messages_open(&messages, &spec, &err), ATTN_EINVAL);
    ck_assert(strstr(err.text, "tiled is one process") != NULL);
    setup_of(cases[0], &setup);
    attn_ledger_init(&ledger, NULL);
    struct attn_ctx ctx = {
        .ledger = &ledger, .options = &spec.options, .error = &err, .counts_only = 1};
    for (int pass = 0; pass < 2; pass++) {
        err.text[0] = '\0';
        ck_assert_int_eq(attn_setup_call(&setup, spec.impl, &ctx, (enum attn_pass)pass),
                         ATTN_EINVAL);
        ck_assert(strstr(err.text, "ring, would work") != NULL);
    }
    attn_setup_close(&setup);
}
END_TEST

Suite *suite_messages(void)
{
    Suite *suite = suite_create("messages");
    TCase *t = tcase_create("messages");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, price_is_count_is_log, 0, 6 * CASES);
    tcase_add_loop_test(t, price_is_count_for_many_ranks, 0, 3 * CASES);
    tcase_add_test(t, one_process_has_none);
    suite_add_tcase(suite, t);
    return suite;
}
