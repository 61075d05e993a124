/* Messages between ranks: closed form = count = log, for each rank, in both passes; and that ranks
 * which only count post what ranks that compute post. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/price/messages.h"
#include "ref/ledger.h"
#include "ref/problem.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/fixtures/message_log.h"
#include "tests/fixtures/refused.h"
#include "tests/fixtures/scheme_walk.h"
#include "tests/fixtures/scratch.h"
#include "tests/harness/base/fileio.h"
#include "tests/suites.h"

SUITE(messages, .open = scratch_open, .close = scratch_close);

static const char *const cases[] = {"b1h8g8q64k64d8v8:none:f32:normal:s1:pass=bwd",
                                    "b2h6g2q13k13d4v6:causal(br):f32:normal:s1:pass=bwd",
                                    "b1h5g1q3k7d8v4:none:f64:normal:s1:pass=bwd",
                                    "b1h4g2q65k65d4v4:window(9,0,br):f32:normal:s1:pass=bwd",
                                    "b3h4g4q0k5d4v4:none:f32:normal:s1:pass=bwd",
                                    "b1h4g2q21k21d4v4:causal(br):bf16:normal:s1:pass=bwd"};

/* Ranks that only count, each or every n-th, note whole messages to others, as many and as large as
 * is priced. */
static void ck_counted(const struct attn_messages *counted, const struct attn_spec *spec,
                       const char *text, const struct attn_problem *p, enum attn_pass pass,
                       int every)
{
    for (int r = 0; r < counted->ranks; r += every) {
        const struct attn_messages_of *of = &counted->of[r];
        struct attn_cost cost = price_of(spec, p, pass, r);
        int64_t bytes = 0;
        for (int64_t n = 0; n < of->n; n++) {
            const struct attn_note *x = &of->note[n];
            bytes += x->bytes;
            ck_assert(x->source == r && x->pass == pass && x->destination != r);
            ck_assert(x->destination >= 0 && x->destination < counted->ranks);
            ck_assert(x->dtype == p->dtype || x->dtype == attn_lse_dtype(p) ||
                      (x->dtype == ATTN_U8 && strcmp(x->tensor, "mask") == 0));
        }
        ck_assert_msg(of->n == cost.messages && bytes == cost.bytes_sent,
                      "%s %s rank %d: price %lld in %lld, log %lld in %lld", text,
                      attn_pass_name(pass), r, (long long)cost.bytes_sent, (long long)cost.messages,
                      (long long)bytes, (long long)of->n);
    }
}

static void ck_same(const struct attn_messages *a, const struct attn_messages *b, const char *text)
{
    for (int r = 0; r < a->ranks; r++) {
        ck_assert_msg(a->of[r].n == b->of[r].n, "%s rank %d: %lld and %lld notes", text, r,
                      (long long)a->of[r].n, (long long)b->of[r].n);
        for (int64_t n = 0; n < a->of[r].n; n++) {
            const struct attn_note *x = &a->of[r].note[n], *y = &b->of[r].note[n];
            ck_assert_msg(x->step == y->step && strcmp(x->tensor, y->tensor) == 0 &&
                              x->destination == y->destination && x->bytes == y->bytes,
                          "%s rank %d: note %lld differs", text, r, (long long)n);
        }
    }
}

/* Both passes, by ranks that count and, for few ranks, by ranks that compute. */
static void ck_messages(struct running *x, const char *text, int every, int is_computed)
{
    for (int pass = 0; pass < 2; pass++) {
        struct attn_messages counted, computed;
        ck_assert_int_eq(attn_messages_open(&counted, &x->spec, &x->err), ATTN_OK);
        ck_assert_int_eq(attn_messages_open(&computed, &x->spec, &x->err), ATTN_OK);
        ck_assert_msg(attn_messages_count(&counted, &x->spec, &x->setup.problem,
                                          (enum attn_pass)pass, NULL, &x->err) == ATTN_OK,
                      "%s: %s", text, x->err.text);
        ck_counted(&counted, &x->spec, text, &x->setup.problem, (enum attn_pass)pass, every);
        x->ctx.log = &computed.log;
        if (is_computed) {
            running_well(x, (enum attn_pass)pass);
            ck_same(&counted, &computed, text);
        }
        attn_messages_close(&counted);
        attn_messages_close(&computed);
    }
    attn_saved_drop(&x->saved, &x->ledger);
}

struct counting {
    struct running x;
    int is_computed, turn, done;
};

/* One in ONE_OF of the ways to run on ranks; the next ones with the next case or number of ranks,
 * so that each is met somewhere.  Under ATTN_FULL all of them; of many ranks, whose prices take
 * long, one in FEW, and every 7th rank's price. */
enum { ONE_OF = 13, FEW = 7 };

static void count_next(void *arg, const struct attn_impl *impl, const char *text)
{
    struct counting *c = arg;
    (void)impl;
    int full = getenv("ATTN_FULL") != NULL, one_of = !full ? ONE_OF : c->is_computed ? 1 : FEW;
    if (may_be_refused(text) || c->turn++ % one_of != 0)
        return;
    c->x.spec = spec_of(text);
    ck_messages(&c->x, text, c->is_computed ? 1 : 7, c->is_computed);
    c->done++;
}

TEST_EACH(price_is_count_is_log, 8 * COUNT(cases))
{
    static const int ranks[] = {1, 2, 3, 4, 7, 8, 16, 33};
    const struct attn_spec none = {0};
    struct counting c = {.is_computed = ranks[_i % 8] <= 8, .turn = _i};
    running_open(&c.x, &none, cases[_i / 8]);
    scheme_walk(ranks[_i % 8], count_next, &c);
    running_close(&c.x);
    ck_assert_int_gt(c.done, 0);
}

/* Bytes of a mask are messages of their own. */
TEST_EACH(masks_too, 5)
{
    static const char *const text[] = {"ring:mask=keys", "ulysses:mask=repeated",
                                       "usp:ranks=6,mask=dense", "usp:mask=keys",
                                       "allgather:mask=keys"};
    const struct attn_spec spec = spec_of(text[_i]);
    struct running x;
    running_open(&x, &spec, "b2h4g2q21k23d4:keys(23,9)&causal(br):f32:normal:s1:pass=bwd");
    ck_messages(&x, text[_i], 1, 1);
    running_close(&x);
}

/* The textbooks, which scheme_walk leaves out; a ring's messages go to the next rank alone. */
TEST_EACH(textbooks_too, 4)
{
    static const char *const text[] = {"ring-textbook:ranks=4", "ring-textbook:ranks=1",
                                       "ulysses-textbook:ranks=4", "ulysses-textbook:ranks=1"};
    const struct attn_spec spec = spec_of(text[_i]);
    struct attn_messages x;
    struct running at;
    running_open(&at, &spec, "b2h4q8k12d4v3:causal(br):f32:normal:s1:dlse=1:pass=bwd");
    ck_messages(&at, text[_i], 1, 1);
    for (int pass = 0; pass < 2 && _i == 0; pass++) {
        ck_assert_int_eq(attn_messages_open(&x, &spec, &at.err), ATTN_OK);
        ck_assert_int_eq(
            attn_messages_count(&x, &spec, &at.setup.problem, (enum attn_pass)pass, NULL, &at.err),
            ATTN_OK);
        for (int r = 0; r < x.ranks; r++)
            for (int64_t n = 0; n < x.of[r].n; n++)
                ck_assert_int_eq(x.of[r].note[n].destination, (r + 1) % x.ranks);
        attn_messages_close(&x);
    }
    running_close(&at);
}

/* As many ranks as can be simulated.  Of a price every 51st rank: 0, 51, ..., 510. */
TEST_EACH(price_is_count_for_512_ranks, 2)
{
    static const char *const text[] = {"ring:ranks=512", "ulysses:ranks=512"};
    const struct attn_spec spec = spec_of(text[_i]);
    struct running x;
    running_open(&x, &spec, "b1h2g1q600k600d1v1:causal(br):f32:normal:s1:pass=bwd");
    ck_messages(&x, text[_i], 51, 0);
    running_close(&x);
}

/* ---- the file -------------------------------------------------------------------------------- */

TEST(log_refused)
{
    const char *log = scratch_path("log.jsonl");
    scratch_expect(2, "tiled is one process", "price tiled --length 8 --log %s", log);
    scratch_expect(2, "of one SPEC in one shape", "price ring ulysses --length 8 --log %s", log);
    scratch_expect(2, "of one SPEC in one shape", "price ring --length 8,16 --log %s", log);
    scratch_expect(2, "refused: ", "price ring:ranks=3,sizes=strict --length 8 --log %s", log);
    ck_assert_int_eq(scratch_count(), 0);
    scratch_expect(3, "log.jsonl", "price ring --length 8 --log %s/log.jsonl",
                   scratch_path("nowhere"));
}

/* ---- who sends nothing, and who disagrees ---------------------------------------------------- */

TEST(one_process_has_none)
{
    struct attn_spec spec = spec_of("tiled");
    struct attn_messages messages;
    struct running x;
    running_open(&x, &spec, cases[0]);
    ck_refusal(attn_messages_open(&messages, &spec, &x.err), ATTN_EINVAL, &x.err,
               "tiled is one process");
    x.ctx.counts_only = 1;
    for (int pass = 0; pass < 2; pass++) {
        x.err.text[0] = '\0';
        ck_refusal(running_pass(&x, (enum attn_pass)pass), ATTN_EINVAL, &x.err, "ring, would work");
    }
    running_close(&x);
}
