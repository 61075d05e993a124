/* The mask as data (mask=keys, repeated, dense): the bits of the described mask, from other memory;
 * every verdict compares what each rank held and sent with its price. */
#include <stdio.h>
#include <string.h>

#include "ref/textbook.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/suites.h"

SUITE(masks);

/* Every exchange and every order of blocks, and what refuses a form: repeated, dense. */
static const struct {
    const char *spec, *refuses;
} way[] = {{"ulysses:ranks=4,sizes=pad,local=csr", ""},
           {"ulysses:ranks=3,keys=whole,local=bsr", ""},
           {"ulysses:ranks=2,local=gemm", ""},
           {"ring:ranks=1,local=dense", "repeated"},
           {"ring:ranks=2,local=chunked", "repeated"},
           {"ring:ranks=5,order=zigzag,sizes=pad", "repeated"},
           {"ring:ranks=4,order=striped,inner=2,local=csr", "repeated"},
           {"usp:ranks=6,order=zigzag,local=bsr", "repeated"},
           {"usp:ranks=8,heads=2,sizes=pad", "repeated"},
           {"allgather:ranks=3,order=zigzag,stride=1", "repeated"},
           {"allgather:ranks=4,save=kv,sizes=pad,local=tiled-textbook", "repeated"}};

static const char *const text[] = {
    "b2h4g2q29k31d5v3:keys(29,17)&causal(br):f32:normal:s1:dlse=1:pass=bwd",
    "b3h4g4q33k33d4v6:keys(x01101,x1,x0)|window(2,0,br):bf16:normal:s2:pass=bwd",
    "b1h3g1q7k3d2v2:keys(x011):f64:normal:s3:pass=bwd"};

TEST_EACH(same_bits, COUNT(way) * COUNT(text))
{
    static const char *const form[] = {"described", "keys", "repeated", "dense"};
    uint64_t digest = 0;
    for (int f = 0; f < COUNT(form); f++) {
        char with[200];
        snprintf(with, sizeof with, "%s,mask=%s", way[_i / COUNT(text)].spec, form[f]);
        const struct attn_spec spec = spec_of(with);
        struct attn_result r = result_of(&spec, text[_i % COUNT(text)]);
        int refused = strstr(way[_i / COUNT(text)].refuses, form[f]) != NULL;
        ck_assert_msg(r.verdict == (refused ? ATTN_REFUSED : ATTN_PASS), "%s: %s", with, r.text);
        digest = f == 0 ? r.digest : digest;
        ck_assert_msg(refused || r.digest == digest, "%s: other bits", with);
    }
}

/* ---- a wrong byte ---------------------------------------------------------------------------- */

static const char *planted; /* bytes whose first key a local implementation finds hidden */

static void plant(const struct attn_ctx *ctx)
{
    for (int n = 0; n < ctx->ledger->live.n; n++) {
        const struct attn_ledger_block *block = &ctx->ledger->live.at[n];
        if (strcmp(ctx->ledger->account[block->account].name, planted) == 0)
            memset(block->data, 0, 1);
    }
}

static enum attn_status forward(struct attn_ctx *ctx, const struct attn_problem *p,
                                const struct attn_forward *t)
{
    plant(ctx);
    return attn_impl_tiled_textbook.forward(ctx, p, t);
}

static enum attn_status backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                 const struct attn_backward *t)
{
    plant(ctx);
    return attn_impl_tiled_textbook.backward(ctx, p, t);
}

static const struct {
    const char *spec, *bytes;
} reads[] = {{"ulysses:mask=keys", "mask.work"},     {"ulysses:mask=dense", "mask.work"},
             {"ulysses:mask=repeated", "mask.work"}, {"ring:mask=keys", "mask.travel"},
             {"ring:mask=keys", "mask.shard"},       {"ring:mask=dense", "mask.shard"},
             {"allgather:mask=dense", "mask.shard"}};

/* A local implementation that asked the described mask after all would not notice. */
TEST_EACH(local_reads_the_bytes, 2 * COUNT(reads))
{
    struct attn_spec spec = spec_of(reads[_i / 2].spec);
    struct attn_impl local = attn_impl_tiled_textbook;
    if (_i % 2 == 0)
        local.forward = forward;
    else
        local.backward = backward;
    attn_options_set_local(&spec.options, &local);
    for (int wrong = 0; wrong < 2; wrong++) {
        planted = wrong ? reads[_i / 2].bytes : "nothing";
        struct attn_result r =
            result_of(&spec, "b2h4g4q12k20d4v4:keys(20,11):f32:normal:s1:pass=bwd");
        ck_assert_msg(r.verdict == (wrong ? ATTN_FAILED : ATTN_PASS), "%s: %s", planted, r.text);
    }
}

static const struct {
    const char *spec, *mask, *says;
} refused[] = {{"ring:mask=keys", "causal(br)", "does not have just one"},
               {"ring:mask=keys", "keys(4)|keys(x01)", "causal(br)&keys(NAME) would work"},
               {"usp:mask=repeated", "keys(4)", "no all-to-all of all ranks"},
               {"ring:mask=dense", "none", "no mask to be stored"},
               {"ulysses:mask=dense", "random(0.5,1,heads)", "the same for all heads"},
               {"ulysses:mask=dense", "csr(qk60)", "are read in place"}};

TEST_EACH(mask_refused, COUNT(refused))
{
    const struct attn_spec spec = spec_of(refused[_i].spec);
    char of_mask[100];
    snprintf(of_mask, sizeof of_mask, "h2q64k64d4v4:%s:f32:normal:s1", refused[_i].mask);
    struct attn_result r = result_of(&spec, of_mask);
    ck_assert_msg(r.verdict == ATTN_REFUSED && strstr(r.text, refused[_i].says) != NULL, "%s",
                  r.text);
}
