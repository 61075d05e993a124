/* Memory is a contract: nothing is taken outside the ledger, what is taken is what was priced, for
 * every implementation, rank, case and pass; and a breach of either is noticed. */
#include "tests/fixtures/case_fixture.h"
#include "tests/suites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/problem.h"
#include "ref/textbook.h"
#include "tests/fixtures/fibers.h"
#include "tests/fixtures/memory_data.h"
#include "tests/wrap.h"

/* ---- every implementation, every case ------------------------------------------------------- */

SUITE(memory);

/* One pass and its prices: nothing outside the ledger, nothing left on it; that what was taken was
 * priced is part of every verdict (runner.h).  0: refused. */
static int check_pass(const char *what, const struct attn_spec *spec, const struct attn_setup *s,
                      enum attn_pass pass)
{
    struct attn_ledger ledger;
    struct attn_error err = {0};
    struct attn_cost cost;
    enum attn_status status = ATTN_OK;
    attn_ledger_init(&ledger, NULL);
    wrap_fail_take(-1);
    wrap_watch();
    for (int rank = 0; rank < attn_ranks(spec->impl, &spec->options) && status == ATTN_OK; rank++)
        status = attn_price(spec->impl, &spec->options, &s->problem, pass, rank, &cost, &err);
    int64_t takes = wrap_takes();
    if (status == ATTN_OK)
        status = memory_run(spec, s, pass, &ledger, NULL, &err);
    struct wrap_count seen = wrap_stop();
    ck_assert_msg(takes == 0, "%s: a price takes from a ledger", what);
    ck_assert_msg(status == ATTN_OK || status == ATTN_ENOTSUP, "%s: %s", what, err.text);
    ck_assert_msg(seen.calls == 0, "%s: %lld bytes outside the ledger in %lld calls, last of %s",
                  what, (long long)seen.bytes, (long long)seen.calls, seen.last);
    ck_assert_msg(ledger.now == 0, "%s: %lld bytes left", what, (long long)ledger.now);
    ck_assert_int_eq(attn_ledger_clear(&ledger), 0);
    ck_assert_int_eq(ledger.damaged, 0);
    return status == ATTN_OK;
}

/* Every SLICES-th case, set up once for all specs, of which one in four takes it, and those with
 * conditions on shapes, which accept few; with ATTN_FULL all do.  Ranks are threads in the first
 * slice, and fibers in the others: the same arithmetic and the same books, in less time. */
enum { SLICES = 8 };

TEST_EACH(nothing_outside_the_ledger, SLICES)
{
    const int full = getenv("ATTN_FULL") != NULL;
    struct attn_spec list[MEMORY_SPECS];
    int specs = memory_specs(list), accepted[MEMORY_SPECS] = {0};
    char name[128], what[512];
    ck_assert_int_le(specs, MEMORY_SPECS);
    for (int i = _i; i < attn_battery_count(ATTN_TIER_QUICK); i += SLICES) {
        const char *text = attn_battery_at(i)->text;
        struct attn_setup s;
        setup_of(text, &s);
        for (int n = 0; n < specs; n++) {
            if (!full && list[n].impl->shapes == NULL && (i / SLICES + n) % 4 != 0)
                continue;
            attn_spec_print(&list[n], name, sizeof name);
            snprintf(what, sizeof what, "%s %.300s", name, text);
            if (_i > 0 && attn_ranks(list[n].impl, &list[n].options) <= FIBERS)
                fibers_on();
            for (int pass = ATTN_FORWARD; pass <= (int)s.given.pass; pass++)
                accepted[n] += check_pass(what, &list[n], &s, (enum attn_pass)pass);
            fibers_off();
        }
        attn_setup_close(&s);
    }
    for (int n = 0; n < specs; n++)
        ck_assert_msg(accepted[n] >= (list[n].impl->shapes == NULL ? 5 : 2),
                      "%s (number %d) accepted only %d passes", list[n].impl->name, n, accepted[n]);
}

/* An implementation of one storage type alone takes every case of bf16.  The test would catch a
 * buffer of the matrix unit that the price has in other 16's than the call. */
TEST(products_of_16_bits)
{
    struct attn_spec spec;
    int accepted = 0;
    ck_assert_int_eq(attn_spec_parse("tiled:p=bf16,few=0", &spec, NULL), ATTN_OK);
    for (int i = 0; i < attn_battery_count(ATTN_TIER_QUICK); i++) {
        const char *text = attn_battery_at(i)->text;
        struct attn_setup s;
        if (strstr(text, ":bf16:") == NULL)
            continue;
        setup_of(text, &s);
        for (int pass = ATTN_FORWARD; pass <= (int)s.given.pass; pass++)
            accepted += check_pass(text, &spec, &s, (enum attn_pass)pass);
        attn_setup_close(&s);
    }
    ck_assert_msg(accepted >= 40, "accepted only %d passes", accepted);
}

/* ---- breaches ------------------------------------------------------------------------------- */

/* dense, with one fault in one pass.  The tests choose which. */
enum fault { HONEST, MORE, LESS, LEAK, NAMES, PAST_END, UNPRICED, MESSAGES, MALLOC, FAULTS };
static enum fault fault;
static enum attn_pass faulty;

static enum attn_status faulty_cost(const struct attn_problem *p,
                                    const struct attn_options *options, enum attn_pass pass,
                                    int rank, struct attn_cost *cost, struct attn_error *err)
{
    enum attn_status status = attn_impl_dense.cost(p, options, pass, rank, cost, err);
    if (pass != faulty)
        return status;
    if (fault == UNPRICED)
        return attn_fail(err, ATTN_EINVAL, "no price today");
    if (fault == MESSAGES)
        cost->messages++;
    if (fault == LESS || fault == LEAK || fault == NAMES)
        return attn_cost_add(cost, "extra", 1, 8, 1, err);
    return status;
}

/* The fault around the honest work. */
static void *before(struct attn_ctx *ctx)
{
    switch (fault) {
    case MORE:
    case LEAK:
        return attn_ledger_take(ctx->ledger, "extra", 8, 1, ctx->error);
    case NAMES:
        return attn_ledger_take(ctx->ledger, "other", 8, 1, ctx->error);
    case PAST_END: {
        unsigned char *block = attn_ledger_take(ctx->ledger, "none", 0, 1, ctx->error);
        *(volatile unsigned char *)block = 0;
        return block;
    }
    case MALLOC:
        return malloc(8);
    default:
        return NULL;
    }
}

static void after(struct attn_ctx *ctx, void *extra)
{
    if (fault == MALLOC)
        free(extra);
    else if (fault != LEAK)
        attn_ledger_give(ctx->ledger, extra);
}

static enum attn_status faulty_forward(struct attn_ctx *ctx, const struct attn_problem *p,
                                       const struct attn_forward *t)
{
    void *extra = before(ctx);
    enum attn_status status = attn_impl_dense.forward(ctx, p, t);
    after(ctx, extra);
    return status;
}

static enum attn_status faulty_backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                        const struct attn_backward *t)
{
    void *extra = before(ctx);
    enum attn_status status = attn_impl_dense.backward(ctx, p, t);
    after(ctx, extra);
    return status;
}

static struct attn_spec fixture(struct attn_impl *impl, enum attn_pass pass)
{
    struct attn_spec spec = {impl, {.threads = 1}};
    faulty = pass;
    *impl = attn_impl_dense;
    impl->name = "faulty";
    impl->cost = faulty_cost;
    if (pass == ATTN_FORWARD)
        impl->forward = faulty_forward;
    else
        impl->backward = faulty_backward;
    attn_options_preset(impl, &spec.options);
    return spec;
}

/* b1 h2 q5 k6 d4, f32, no mask: 240 bytes each of scores and probs, and backward 24 of slopes. */
static const char *const faulty_case[] = {"h2q5k6d4:none:f32:normal:s1",
                                          "h2q5k6d4:none:f32:normal:s1:pass=bwd"};

TEST_EACH(breaches_are_found, FAULTS)
{
    static const struct {
        enum attn_verdict verdict;
        enum attn_failure failure;
        const char *part, *backward; /* NULL: the same */
    } want[FAULTS] = {
        [HONEST] = {ATTN_PASS, ATTN_F_NONE, "", NULL},
        [MORE] = {ATTN_FAILED, ATTN_F_MEMORY, "priced 480 bytes at the peak, ledger has 488",
                  "priced 504 bytes at the peak, ledger has 512"},
        [LESS] = {ATTN_FAILED, ATTN_F_MEMORY, "priced 488 bytes at the peak, ledger has 480",
                  "priced 512 bytes at the peak, ledger has 504"},
        [LEAK] = {ATTN_FAILED, ATTN_F_MEMORY, "8 bytes were not given back to the ledger", NULL},
        [NAMES] = {ATTN_FAILED, ATTN_F_MEMORY, "'other' priced at 0 bytes, ledger has 8", NULL},
        [PAST_END] = {ATTN_FAILED, ATTN_F_INTEGRITY, "wrote past the end of 1 of its own buffers",
                      NULL},
        [UNPRICED] = {ATTN_FAILED, ATTN_F_MEMORY, "ran, but cannot be priced: no price today",
                      NULL},
        [MESSAGES] = {ATTN_FAILED, ATTN_F_MEMORY, "priced 0 bytes in 1 messages, sent 0 in 0",
                      NULL},
        [MALLOC] = {ATTN_PASS, ATTN_F_NONE, "",
                    NULL} /* the ledger cannot know: see the next test */
    };
    struct attn_impl impl;
    struct attn_case c;
    struct attn_result r;
    for (int pass = 0; pass < 2; pass++) {
        struct attn_spec spec = fixture(&impl, (enum attn_pass)pass);
        c = case_of(faulty_case[pass]);
        fault = (enum fault)_i;
        attn_run_case(&spec, &c, &r);
        fault = HONEST;
        ck_assert_msg(r.verdict == want[_i].verdict && r.failure == want[_i].failure,
                      "fault %d, %s: %s(%s) '%s'", _i, attn_pass_name((enum attn_pass)pass),
                      attn_verdict_name(r.verdict), attn_failure_name(r.failure), r.text);
        const char *part = pass && want[_i].backward ? want[_i].backward : want[_i].part;
        ck_assert_msg(strstr(r.text, part) != NULL, "'%s' lacks '%s'", r.text, part);
    }
}

TEST(malloc_is_seen)
{
    struct attn_impl impl;
    for (int pass = 0; pass < 2; pass++) {
        struct attn_spec spec = fixture(&impl, (enum attn_pass)pass);
        struct running x;
        running_open(&x, &spec, faulty_case[1]);
        fault = MALLOC;
        wrap_watch();
        enum attn_status status = running_pass(&x, (enum attn_pass)pass);
        struct wrap_count seen = wrap_stop();
        fault = HONEST;
        ck_assert_int_eq(status, ATTN_OK);
        ck_assert_int_eq(seen.calls, 1);
        ck_assert_int_eq(seen.bytes, 8);
        ck_assert_str_eq(seen.last, "malloc");
        running_close(&x);
    }
}

/* The watch itself: every allocator, other threads' blocks of the ledger not. */
TEST(wrap_counts)
{
    struct attn_ledger ledger;
    void *volatile p;
    attn_ledger_init(&ledger, NULL);
    wrap_watch();
    attn_ledger_give(&ledger, attn_ledger_take(&ledger, "small", 100, 1, NULL));
    attn_ledger_give(&ledger, attn_ledger_take(&ledger, "large", 1 << 20, 1, NULL));
    ck_assert_int_eq(wrap_stop().calls, 0);
    wrap_watch();
    p = malloc(5);
    p = realloc(p, 50);
    free(p);
    p = calloc(3, 7);
    free(p);
    p = aligned_alloc(64, 128);
    free(p);
    struct wrap_count seen = wrap_stop();
    ck_assert_int_eq(seen.calls, 4);
    ck_assert_int_eq(seen.bytes, 5 + 50 + 21 + 128);
    ck_assert_str_eq(seen.last, "aligned_alloc");
    p = malloc(5); /* not counted */
    free(p);
    ck_assert_int_eq(wrap_stop().calls, 4);
}
