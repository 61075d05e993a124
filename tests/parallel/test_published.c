/* The costs of schemes, by hand and as published: every verdict compares a price with the memory
 * and messages of ranks; here are the numbers that both must be.  Also the refusals of schemes,
 * with what would work. */
#include <stdio.h>
#include <string.h>

#include "optimized/parallel/scheme.h"
#include "ref/problem.h"
#include "ref/textbook.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/fixtures/refused.h"
#include "tests/fixtures/scheme_walk.h"
#include "tests/suites.h"

SUITE(parallel);

/* Of the pass that the case asks for. */
static struct attn_cost price(const char *spec_text, const char *case_text, int rank)
{
    const struct attn_spec spec = spec_of(spec_text);
    struct attn_case c = case_of(case_text);
    struct attn_setup setup;
    struct attn_error err = {0};
    ck_assert_msg(attn_setup_describe(&c, &setup, &err) == ATTN_OK, "%s: %s", case_text, err.text);
    struct attn_cost cost = price_of(&spec, &setup.problem, c.pass, rank);
    attn_setup_close(&setup);
    return cost;
}

/* ---- what is sent ---------------------------------------------------------------------------- */

#define OF   "q64d16:none:f32:normal:s1"
#define BACK OF ":pass=bwd"

/* The comparison table of sequence-parallel schemes, with h = H d and g = G d elements a token and
 * c = L/P, in numbers: L = 64, d = 16, four ranks that send the same, f32. */
static const struct {
    const char *spec, *text;
    int64_t bytes, messages;
} published[] = {
    /* e B L (2h + 2g)(P-1)/P^2 = 4 * 64 * 512 * 3/16, and L H numbers of lse: 4 * 512 * 3/16 */
    {"ulysses", "h8g8" OF, 24576 + 384, 15},
    {"ulysses", "h8g4" OF, 18432 + 384, 15},
    /* q dO dQ and k v dK dV, lse and D */
    {"ulysses", "h8g8" BACK, 43008 + 768, 27},
    {"ulysses", "h8g4" BACK, 30720 + 768, 27},
    /* e (P-1) 2 B c g = 4 * 3 * 2 * 16 * 128 */
    {"ring", "h8g8" OF, 49152, 6},
    {"ring", "h8g4" OF, 24576, 6},
    {"ring", "h8g1" OF, 6144, 6},
    /* the same, and e P 2 B c g */
    {"ring", "h8g8" BACK, 49152 + 65536, 14},
    {"ring", "h8g1" BACK, 6144 + 8192, 14},
    /* U = 2, R = 2: e B L/P (2h + 2g)(U-1)/U and lse, e 2 B L/R g/U */
    {"usp", "h8g8" OF, 16384 + 256 + 16384, 5 + 2},
    {"usp", "h8g4" OF, 12288 + 256 + 8192, 5 + 2},
    /* e B L/P (3h + 4g)(U-1)/U, lse and D; the same, and e R 2 B L/R g/U */
    {"usp", "h8g8" BACK, 28672 + 512 + 16384 + 32768, 9 + 2 + 4},
    /* all ranks in one place, and none: ulysses and a ring */
    {"usp:heads=4", "h8g4" BACK, 30720 + 768, 27},
    {"usp:heads=1", "h8g1" BACK, 6144 + 8192, 14},
    /* as much as a ring; the same, and a reduce-scatter of it */
    {"allgather", "h8g8" OF, 49152, 6},
    {"allgather:stride=1", "h8g4" OF, 24576, 24},
    {"allgather", "h8g8" BACK, 2 * 49152, 12},
    {"heads", "h8g4" BACK, 0, 0},
};

TEST_EACH(bytes_sent_as_published, COUNT(published))
{
    for (int rank = 0; rank < 4; rank++) {
        struct attn_cost cost = price(published[_i].spec, published[_i].text, rank);
        ck_assert_int_eq(cost.bytes_sent, published[_i].bytes);
        ck_assert_int_eq(cost.messages, published[_i].messages);
    }
}

/* With pads a rank sends and stores what it would of the next multiples, and takes as many messages
 * for it: `even` without pads.  A rank has whole groups of heads, or equal parts of one. */
static const struct {
    const char *spec, *real, *even;
} padded[] = {
    {"ring:ranks=4", "b3h5g1q45d8", "b3h5g1q48d8"},
    {"ring:ranks=4,order=striped", "b3h5g5q45d8", "b3h5g5q48d8"},
    {"ring:ranks=4,order=zigzag", "b1h4g2q42d8", "b1h4g2q48d8"},
    {"ring:ranks=6,inner=3", "b1h4g2q37d8", "b1h4g2q42d8"},
    {"ulysses:ranks=4", "b2h7g7q45d8", "b2h8g8q48d8"},
    {"ulysses:ranks=4", "b1h8g1q1d8", "b1h8g1q4d8"},
    {"ulysses:ranks=4", "b1h6g2q1d8", "b1h12g4q4d8"},
    {"ulysses:ranks=6", "b1h40g8q600d8", "b1h60g12q600d8"},
    {"usp:ranks=6,heads=3", "b2h7g7q31d8", "b2h9g9q36d8"},
    {"usp:ranks=6,heads=2,order=zigzag", "b1h3g1q31d8", "b1h6g2q36d8"},
    {"allgather:ranks=5,order=zigzag,stride=2", "b2h5g5q33d8", "b2h5g5q40d8"},
    {"heads:ranks=3", "b2h8g2q11d8", "b2h12g3q11d8"},
    {"heads:ranks=4", "b2h8g2q11d8", "b2h8g2q11d8"},
};

TEST_EACH(pads_are_sent_and_stored, COUNT(padded))
{
    static const char *const rest[] = {":none:f32:normal:s1", ":none:f32:normal:s1:pass=bwd"};
    const struct attn_spec spec = spec_of(padded[_i].spec);
    char pads[80], real[80], even[80];
    snprintf(pads, sizeof pads, "%s,sizes=pad", padded[_i].spec);
    for (int n = 0; n < 2 * attn_parallel_ranks(&spec.options); n++) {
        snprintf(real, sizeof real, "%s%s", padded[_i].real, rest[n % 2]);
        snprintf(even, sizeof even, "%s%s", padded[_i].even, rest[n % 2]);
        struct attn_cost a = price(pads, real, n / 2), b = price(padded[_i].spec, even, n / 2);
        ck_assert_int_eq(a.bytes_sent, b.bytes_sent);
        ck_assert_int_eq(a.messages, b.messages);
        ck_assert(a.shard_bytes == b.shard_bytes);
    }
}

/* ---- what a rank has, and what it computes --------------------------------------------------- */

/* Every input and output belongs to one rank: the shares of all ranks are what one process has, but
 * for pads and for keys that each rank is given whole. */
static void add_shares(void *arg, const struct attn_impl *impl, const char *text)
{
    static const char *const of[] = {"b2h6g3q11d8:none:f32:normal:s1",
                                     "b2h6g3q11d8:none:f32:normal:s1:pass=bwd"};
    const int ranks = *(const int *)arg;
    if (may_be_refused(text) || strstr(text, "sizes=pad") || strstr(text, "keys=whole"))
        return;
    for (int pass = 0; pass < 2; pass++) {
        double sum = 0, all = price("tiled", of[pass], 0).shard_bytes;
        for (int r = 0; r < ranks; r++)
            sum += price(text, of[pass], r).shard_bytes;
        ck_assert_msg(sum == all, "%s of %s: %g, not %g", text, impl->name, sum, all);
    }
}

TEST_EACH(shares_add_up, 5)
{
    int ranks = 1 + _i;
    scheme_walk(ranks, add_shares, &ranks);
    /* q, k and v of 11 tokens of 6 heads, 3 of them of k and v, in 4 bytes; o; lse */
    ck_assert(price("tiled", "b2h6g3q11d8:none:f32:normal:s1", 0).shard_bytes ==
              4 * 2 * 11 * (6 * 8 + 2 * 3 * 8 + 6 * 8 + 6));
}

/* L = 64, P = 4, c = 16.  contiguous r c^2 + c(c+1)/2; striped c(c+1)/2 for a block of keys that
 * begins no later, c(c-1)/2 for others; zigzag 2 P h^2 + h with h = c/2.  Without features of V a
 * pair is 2 d flops and a merge none. */
TEST(balance_as_published)
{
    static const struct {
        const char *spec;
        int pairs[4];
    } want[] = {{"ring", {136, 392, 648, 904}},
                {"ring:order=striped", {496, 512, 528, 544}},
                {"ring:order=zigzag", {520, 520, 520, 520}},
                {"ring:inner=2", {136, 392, 648, 904}},
                {"allgather", {136, 392, 648, 904}},
                {"allgather:order=zigzag", {520, 520, 520, 520}},
                {"usp:heads=1,order=striped", {496, 512, 528, 544}}};
    for (int n = 0; n < 4 * COUNT(want); n++) {
        double pairs = price(want[n / 4].spec, "q64d4v0:causal(tl):f32:normal:s1", n % 4).flops / 8;
        ck_assert_msg(pairs == want[n / 4].pairs[n % 4], "%s: rank %d has %g pairs",
                      want[n / 4].spec, n % 4, pairs);
    }
}

/* ---- refusals -------------------------------------------------------------------------------- */

#define REST  ":none:f32:normal:s1"
#define VIDEO "h16q4096d72:spatial(16,16,16):f32:normal:s1"

/* The last three: ranks that divide the frames (Open-Sora #270; v1.0: 16, and the 15 of a
 * well-meant advice) or the places of a frame (v1.2), and 16 heads. */
static const struct {
    const char *spec, *text, *says;
    unsigned lacks; /* of what `dense` claims, which is what a rank runs then */
} refused[] = {
    {"ulysses:ranks=3,sizes=strict", "h8g2q128d8" REST,
     "ulysses:ranks=3,sizes=strict needs ranks that divide heads 8, kv heads 2, queries 128 and "
     "keys 128: 1, 2, or sizes=uneven",
     0},
    {"ring:ranks=5,sizes=strict", "h8g2q128k96d8" REST,
     "needs ranks that divide queries 128 and keys 96: 1, 2, 4, 8, 16, 32, or", 0},
    {"ring:ranks=6,inner=4", "h8q8d8" REST, "windows of 4 ranks do not fill 6; inner=3 would work",
     0},
    {"usp:ranks=6,heads=4", "h8q8d8" REST, "4 does not divide 6 ranks; heads=3 would work", 0},
    {"usp:ranks=12,heads=2,inner=4", "h8q8d8" REST,
     "windows of 4 ranks do not fill 6; inner=3 would work", 0},
    {"usp:ranks=6,heads=3,sizes=strict", "h8g2q8d8" REST,
     "needs ranks that divide heads 8 and kv heads 2: 1, 2, or", 0},
    {"usp:ranks=10,heads=2,sizes=strict", "h8g2q128k96d8" REST,
     "needs ranks that divide queries 128 and keys 96: 1, 2, 4, 8, 16, 32, or", 0},
    {"allgather:ranks=5,sizes=strict", "h8q128k96d8" REST, "queries 128 and keys 96", 0},
    {"heads:ranks=4,sizes=strict", "h8g2q8d8" REST,
     "needs ranks that divide heads 8 and kv heads 2: 1, 2, or", 0},
    {"ring:ranks=4", "h8q8d8" REST ":bias=full", "does not claim: bias", 0},
    {"ring:ranks=4", "h8q8d8" REST, "ring:local=weak does not claim 'hard'", ATTN_CAP_HARD},
    {"ulysses:ranks=4", "h8q8d8" REST ":pass=bwd", "'dlse'", ATTN_CAP_DLSE},
    {"ring:ranks=4,order=zigzag", "h8q8d8" REST, "'strides'", ATTN_CAP_STRIDES},
    {"ring:ranks=4", "h8q8d8" REST ":softcap=1", "'softcap'", ATTN_CAP_SOFTCAP},
    {"video:ranks=6,home=frames,exchange=always,sizes=strict", VIDEO,
     "divide heads 16, kv heads 16 and frames 16: 1, 2, 4, 8, 16, or sizes=uneven", 0},
    {"video:ranks=3,home=frames,exchange=always,sizes=strict",
     "h16q3840d72:spatial(15,16,16):f32:normal:s1",
     "divide heads 16, kv heads 16 and frames 15: 1, or", 0},
    {"video:ranks=32,exchange=needed,sizes=strict", VIDEO,
     "divide heads 16, kv heads 16 and places 256: 1, 2, 4, 8, 16, or", 0},
};

TEST_EACH(refusals_say_what_works, COUNT(refused))
{
    struct attn_case c = case_of(refused[_i].text);
    struct attn_spec spec = spec_of(refused[_i].spec);
    struct attn_impl weak = attn_impl_dense;
    struct attn_setup setup;
    struct attn_cost cost;
    struct attn_error err = {0};
    weak.name = "weak";
    weak.caps &= ~refused[_i].lacks;
    if (refused[_i].lacks != 0)
        attn_options_set_local(&spec.options, &weak);
    ck_assert(attn_setup_describe(&c, &setup, &err) == ATTN_OK);
    ck_refusal(attn_price(spec.impl, &spec.options, &setup.problem, c.pass, 0, &cost, &err),
               ATTN_ENOTSUP, &err, refused[_i].says);
    attn_setup_close(&setup);
}
