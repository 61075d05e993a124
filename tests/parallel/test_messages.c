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
#include "tests/fixtures/refused.h"
#include "tests/fixtures/scheme_walk.h"
#include "tests/fixtures/scratch.h"
#include "tests/harness/base/fileio.h"
#include "tests/suites.h"

SUITE(messages, .seconds = 120, .open = scratch_open, .close = scratch_close);

static const char *const cases[] = {"b1h8g8q64k64d8v8:none:f32:normal:s1:pass=bwd",
                                    "b2h6g2q13k13d4v6:causal(br):f32:normal:s1:pass=bwd",
                                    "b1h5g1q3k7d8v4:none:f64:normal:s1:pass=bwd",
                                    "b1h4g2q65k65d4v4:window(9,0,br):f32:normal:s1:pass=bwd",
                                    "b3h4g4q0k5d4v4:none:f32:normal:s1:pass=bwd",
                                    "b1h4g2q21k21d4v4:causal(br):bf16:normal:s1:pass=bwd"};

/* What ranks that only count note down, each or every so many: whole messages to others, as many
 * and as large as is priced. */
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

/* One of so many of the ways to run on ranks; the next ones with the next case or number of ranks,
 * so that each is met somewhere.  Under ATTN_FULL all of them; of many ranks, whose prices take
 * long, one of a few, and every 7th rank's price. */
enum { ONE_OF = 97, FEW = 7 };

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
                                       "usp:ranks=6,mask=dense", "samples:mask=keys",
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

static const char *const real = "tests/data/gpt-causal.safetensors"; /* h2 q512 d64, causal */

/* What a rank is said to send in a pass. */
struct sent {
    int64_t bytes, messages;
};

/* Sums over the lines of a log, whose sources are in order. */
static void sum_lines(char *text, int ranks, const char *type, struct sent sent[2][8])
{
    int last = 0;
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        const char *pass, *tensor, *dtype;
        int step, source, destination;
        json_int_t bytes;
        json_t *x = json_loads(line, 0, NULL);
        ck_assert_msg(json_unpack_ex(x, NULL, JSON_STRICT, "{s:s,s:i,s:s,s:i,s:i,s:I,s:s}", "pass",
                                     &pass, "step", &step, "tensor", &tensor, "source", &source,
                                     "destination", &destination, "bytes", &bytes, "dtype",
                                     &dtype) == 0,
                      "%s", line);
        ck_assert(source >= last && source < ranks && destination >= 0 && destination < ranks);
        ck_assert(destination != source && step >= 0 && strcmp(dtype, type) == 0);
        last = source;
        struct sent *of = &sent[strcmp(pass, "bwd") == 0][source];
        of->bytes += bytes;
        of->messages++;
        json_decref(x);
    }
}

static char *text_of(const char *path)
{
    struct attn_error err = {0};
    char *text;
    ck_assert_msg(attn_read_text(path, ATTN_READ_GIVEN, 1 << 24, &text, &err) == ATTN_OK, "%s",
                  err.text);
    return text;
}

/* run and price write the same file, and its sums are the price. */
TEST_EACH(files_say_the_same, 2)
{
    static const char *const specs[] = {"ring:ranks=3,order=zigzag", "ulysses:ranks=3"};
    struct attn_spec spec = spec_of(specs[_i]);
    struct attn_setup setup;
    struct sent sent[2][8] = {0};
    int ranks = attn_ranks(spec.impl, &spec.options);
    scratch_expect(0, " ok ", "run %s --input %s --compare --log %s", specs[_i], real,
                   scratch_path("run.jsonl"));
    scratch_expect(0, "sends",
                   "price %s --length 512 --heads 2 --mask 'causal(br)' --pass both --log %s",
                   specs[_i], scratch_path("price.jsonl"));
    char *of_run = text_of(scratch_path("run.jsonl"));
    char *of_price = text_of(scratch_path("price.jsonl"));
    ck_assert_str_eq(of_run, of_price);
    sum_lines(of_run, ranks, "f32", sent);
    setup_of("b1h2g2q512k512d64v64:causal(br):f32:normal:s1", &setup);
    for (int pass = 0; pass < 2; pass++)
        for (int r = 0; r < ranks; r++) {
            struct attn_cost cost = price_of(&spec, &setup.problem, (enum attn_pass)pass, r);
            ck_assert(cost.messages > 0);
            ck_assert_int_eq(sent[pass][r].messages, cost.messages);
            ck_assert_int_eq(sent[pass][r].bytes, cost.bytes_sent);
        }
    attn_setup_close(&setup);
    free(of_run);
    free(of_price);
}

/* A layer's file names its own tensors, and its sums are what ranks counted. */
TEST_EACH(layer_writes_its_own, 4)
{
    static const struct {
        const char *spec, *tensor[4];
        int ranks;
    } of[] = {{"megatron-sp:ranks=3", {"x", "y", "dy", "dx"}, 3},
              {"fastseq:ranks=2", {"x", "o", "do", "dwo"}, 2},
              {"ring:ranks=3", {"k", "dv", "dwq", "dwk"}, 3},
              {"ulysses:ranks=4 --boundary scaled", {"q", "y", "dx", "dwv"}, 4}};
    struct sent sent[2][8] = {0};
    json_t *said, *rank;
    size_t n;
    scratch_shell(0, "", "%s/attnlab layer %s --format json --log %s > %s", test_build(),
                  of[_i].spec, scratch_path("layer.jsonl"), scratch_path("layer.json"));
    char *log = text_of(scratch_path("layer.jsonl"));
    for (int t = 0; t < 4; t++) {
        char name[32];
        snprintf(name, sizeof name, "\"tensor\":\"%s\"", of[_i].tensor[t]);
        ck_assert_msg(strstr(log, name) != NULL, "%s: no %s", of[_i].spec, of[_i].tensor[t]);
    }
    sum_lines(log, of[_i].ranks, "f64", sent);
    said = json_load_file(scratch_path("layer.json"), 0, NULL);
    const json_t *ranks = json_object_get(json_array_get(said, 0), "ranks");
    ck_assert_uint_eq(json_array_size(ranks), 2 * (size_t)of[_i].ranks);
    json_array_foreach(ranks, n, rank)
    {
        const struct sent *x = &sent[(int)n / of[_i].ranks][(int)n % of[_i].ranks];
        ck_assert_int_eq(json_integer_value(json_object_get(rank, "bytes_sent")), x->bytes);
        ck_assert_int_eq(json_integer_value(json_object_get(rank, "messages")), x->messages);
    }
    json_decref(said);
    free(log);
}

TEST(log_refused)
{
    const char *log = scratch_path("log.jsonl");
    scratch_expect(2, "tiled is one process", "run tiled --input %s --compare --log %s", real, log);
    scratch_expect(2, "tiled is one process", "price tiled --length 8 --log %s", log);
    scratch_expect(2, "of one SPEC in one shape", "price ring ulysses --length 8 --log %s", log);
    scratch_expect(2, "of one SPEC in one shape", "price ring --length 8,16 --log %s", log);
    scratch_expect(2, "of one SPEC", "layer dsp fastseq --log %s", log);
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
