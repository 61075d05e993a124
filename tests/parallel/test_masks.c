/* The mask as data (mask=keys, repeated, dense): the bits of the described mask, from other memory;
 * every verdict compares what each rank held and sent with its price. */
#include <stdio.h>
#include <string.h>

#include "experiments/problem/messages.h"
#include "ref/textbook.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/fixtures/refused.h"
#include "tests/suites.h"

SUITE(masks, .seconds = 120);

enum { FORMS = 3 };
static const char *const form[FORMS] = {"keys", "repeated", "dense"};

/* Every exchange and every order of blocks; repeats: there is an all-to-all of all ranks.
 * Of lightseq, queries travel, and it refuses rows. */
static const struct {
    const char *spec;
    int repeats;
} way[] = {{"ulysses:ranks=3", 1},
           {"ulysses:ranks=4,sizes=pad,exchange=list,local=csr", 1},
           {"ulysses:ranks=3,keys=whole,local=bsr", 1},
           {"samples:ranks=3,local=gemm", 1},
           {"samples:ranks=4,sizes=pad", 1},
           {"lightseq:ranks=5", 0},
           {"lightseq:ranks=4,sizes=pad,local=csr", 0},
           {"ring:ranks=1,local=dense", 0},
           {"ring:ranks=2,local=chunked", 0},
           {"ring:ranks=5,order=zigzag,sizes=pad", 0},
           {"ring:ranks=4,order=striped,inner=2,merge=deferred,local=csr", 0},
           {"usp:ranks=6,order=zigzag,local=bsr", 0},
           {"usp:ranks=8,heads=2,sizes=pad", 0},
           {"allgather:ranks=3,order=zigzag,stride=1", 0},
           {"allgather:ranks=4,save=kv,sizes=pad,local=tiled-textbook", 0}};

static const char *const text[] = {
    "b2h4g2q29k31d5v3:keys(29,17)&causal(br):f32:normal:s1:dlse=1:pass=bwd",
    "b3h4g4q33k33d4v6:keys(x01101,x1,x0)|window(2,0,br):bf16:normal:s2:pass=bwd",
    "b1h3g1q7k3d2v2:keys(x011):f64:normal:s3:pass=bwd"};

static struct attn_spec with_mask(const char *spec, const char *what)
{
    char longer[200];
    snprintf(longer, sizeof longer, "%s,mask=%s", spec, what);
    return spec_of(longer);
}

TEST_EACH(same_bits, COUNT(way) * COUNT(text))
{
    const char *spec = way[_i / COUNT(text)].spec, *problem = text[_i % COUNT(text)];
    const struct attn_spec described = with_mask(spec, "described");
    struct attn_result one = result_of(&described, problem);
    ck_assert_msg(one.verdict == ATTN_PASS, "%s: %s", spec, one.text);
    for (int f = 0; f < FORMS; f++) {
        const struct attn_spec bytes = with_mask(spec, form[f]);
        struct attn_result other = result_of(&bytes, problem);
        if ((f == 1 && !way[_i / COUNT(text)].repeats) || (f == 2 && *spec == 'l')) {
            ck_assert_int_eq(other.verdict, ATTN_REFUSED);
            continue;
        }
        ck_assert_msg(other.verdict == ATTN_PASS, "%s,mask=%s: %s", spec, form[f], other.text);
        ck_assert_msg(other.digest == one.digest, "%s,mask=%s %s: other bits", spec, form[f],
                      problem);
    }
}

/* ---- what is held and sent ------------------------------------------------------------------- */

/* B=2, Lq=12, Lk=20, on 4 ranks: a shard of keys has 2*5 bytes, one of rows 2*3*20. */
static const struct {
    const char *spec;
    int64_t sent, messages; /* of the mask, by each rank */
    const char *held;       /* name=bytes, blank-separated; 0: none */
} by_hand[] = {{"ulysses:mask=keys", 3 * 10, 3, "mask.shard=10 mask.work=40 mask.travel=0"},
               {"ulysses:mask=repeated", 3 * 10, 3, "mask.repeated=40 mask.work=40 mask.shard=0"},
               {"ulysses:mask=dense", 3 * 120, 3, "mask.shard=120 mask.work=480"},
               {"ulysses:keys=whole,mask=keys", 0, 0, "mask.shard=40 mask.work=40"},
               {"ring:mask=keys", 3 * 10, 3, "mask.shard=10 mask.travel=20 mask.work=0"},
               {"ring:mask=dense", 0, 0, "mask.shard=120 mask.travel=0 mask.work=0"},
               {"usp:heads=2,mask=keys", 10 + 20, 2, "mask.shard=10 mask.work=20 mask.travel=20"},
               {"usp:heads=2,mask=dense", 120, 1, "mask.shard=120 mask.work=240 mask.travel=0"},
               {"allgather:mask=keys", 3 * 10, 3, "mask.shard=10 mask.work=40"},
               {"allgather:mask=dense", 0, 0, "mask.shard=120 mask.work=0"}};

static void ck_held(const struct attn_spec *spec, const struct attn_problem *p, enum attn_pass pass,
                    const char *held)
{
    struct attn_cost cost = price_of(spec, p, pass, 1);
    char name[40];
    int bytes, used;
    for (; sscanf(held, " %39[^=]=%d%n", name, &bytes, &used) == 2; held += used)
        ck_assert_msg(live_of(cost.live, cost.n_live, name) == bytes, "%s: %s is not %d bytes",
                      spec->impl->name, name, bytes);
    ck_assert(*held == '\0');
}

/* Ranks that compute post what is worked out by hand, and what ranks that count post. */
TEST_EACH(masks_by_hand, 2 * COUNT(by_hand))
{
    const struct attn_spec spec = spec_of(by_hand[_i / 2].spec);
    enum attn_pass pass = (enum attn_pass)(_i % 2);
    struct attn_messages computed, counted;
    struct running x;
    running_open(&x, &spec, "b2h4g4q12k20d4v4:keys(20,11)&causal(br):f32:normal:s1:pass=bwd");
    ck_held(&spec, &x.setup.problem, pass, by_hand[_i / 2].held);
    ck_assert_int_eq(attn_messages_open(&computed, &spec, &x.err), ATTN_OK);
    ck_assert_int_eq(attn_messages_open(&counted, &spec, &x.err), ATTN_OK);
    ck_assert_int_eq(attn_messages_count(&counted, &spec, &x.setup.problem, pass, NULL, &x.err),
                     ATTN_OK);
    x.ctx.log = &computed.log;
    running_well(&x, pass);
    for (int r = 0; r < 4; r++) {
        int64_t bytes = 0, messages = 0;
        ck_assert_int_eq(computed.of[r].n, counted.of[r].n);
        for (int64_t n = 0; n < computed.of[r].n; n++) {
            const struct attn_note *a = &computed.of[r].note[n], *b = &counted.of[r].note[n];
            int is_mask = strcmp(a->tensor, "mask") == 0;
            ck_assert(strcmp(a->tensor, b->tensor) == 0 && a->bytes == b->bytes);
            ck_assert(a->destination == b->destination && is_mask == (a->dtype == ATTN_U8));
            bytes += is_mask ? a->bytes : 0;
            messages += is_mask;
        }
        ck_assert_int_eq(bytes, by_hand[_i / 2].sent);
        ck_assert_int_eq(messages, by_hand[_i / 2].messages);
    }
    attn_messages_close(&computed);
    attn_messages_close(&counted);
    running_close(&x);
}

/* ---- a wrong byte ---------------------------------------------------------------------------- */

/* On its first call a rank's local implementation finds its first key hidden in these bytes. */
static const char *planted;

static void plant(const struct attn_ctx *ctx)
{
    const struct attn_ledger *ledger = ctx->ledger;
    for (int n = 0; n < ledger->live.n; n++) {
        const struct attn_ledger_block *block = &ledger->live.at[n];
        if (strcmp(ledger->account[block->account].name, planted) == 0 && block->bytes > 0)
            memset(block->data, 0, 1);
    }
}

static enum attn_status planted_forward(struct attn_ctx *ctx, const struct attn_problem *p,
                                        const struct attn_forward *t)
{
    plant(ctx);
    return attn_impl_tiled_textbook.forward(ctx, p, t);
}

static enum attn_status planted_backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                         const struct attn_backward *t)
{
    plant(ctx);
    return attn_impl_tiled_textbook.backward(ctx, p, t);
}

static const struct {
    const char *spec, *bytes;
} reads[] = {{"ulysses:mask=keys", "mask.work"},    {"ulysses:mask=repeated", "mask.work"},
             {"ulysses:mask=dense", "mask.work"},   {"samples:mask=repeated", "mask.work"},
             {"ring:mask=keys", "mask.travel"},     {"ring:mask=keys", "mask.shard"},
             {"ring:mask=dense", "mask.shard"},     {"usp:mask=keys", "mask.travel"},
             {"lightseq:mask=keys", "mask.travel"}, {"allgather:mask=dense", "mask.shard"},
             {"allgather:mask=keys", "mask.work"}};

/* A rank that would ask the described mask after all would not notice. */
TEST_EACH(local_reads_the_bytes, 2 * COUNT(reads))
{
    const char *problem[] = {"b2h4g4q12k20d4v4:keys(20,11):f32:normal:s1",
                             "b2h4g4q12k20d4v4:keys(20,11):f32:normal:s1:pass=bwd"};
    struct attn_spec spec = spec_of(reads[_i / 2].spec);
    struct attn_impl local = attn_impl_tiled_textbook;
    local.forward = _i % 2 == 0 ? planted_forward : local.forward;
    local.backward = planted_backward;
    attn_options_set_local(&spec.options, &local);
    planted = "nothing";
    struct attn_result right = result_of(&spec, problem[_i % 2]);
    ck_assert_msg(right.verdict == ATTN_PASS, "%s", right.text);
    planted = reads[_i / 2].bytes;
    struct attn_result wrong = result_of(&spec, problem[_i % 2]);
    ck_assert_msg(wrong.verdict == ATTN_FAILED, "%s does not read %s", reads[_i / 2].spec, planted);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static const struct {
    const char *spec, *text, *says;
} refused[] = {
    {"ring:mask=keys", "q8k8d4v4:causal(br):f32:normal:s1", "'causal(br)' has 0 calls keys(...)"},
    {"ring:mask=keys", "q8k8d4v4:keys(4)|keys(x01):f32:normal:s1", "has 2 calls keys(...)"},
    {"ring:mask=repeated", "q8k8d4v4:keys(4):f32:normal:s1", "mask=keys would work"},
    {"lightseq:mask=dense", "q8k8d4v4:keys(4):f32:normal:s1", "queries travel here"},
    {"usp:mask=repeated", "q8k8d4v4:keys(4):f32:normal:s1", "no all-to-all of all ranks"},
    {"ring:mask=dense", "q8k8d4v4:none:f32:normal:s1", "no mask to be stored"},
    {"ulysses:mask=dense", "h2q8k8d4v4:random(0.5,1,heads):f32:normal:s1", "same for all heads"},
    {"ulysses:mask=dense", "q64k64d4v4:csr(qk60):f32:normal:s1", "arrays are read in place"}};

TEST_EACH(mask_refused, COUNT(refused))
{
    const struct attn_spec spec = spec_of(refused[_i].spec);
    struct attn_result r = result_of(&spec, refused[_i].text);
    ck_assert_int_eq(r.verdict, ATTN_REFUSED);
    ck_assert_msg(strstr(r.text, refused[_i].says) != NULL, "%s", r.text);
}
