/* Every scheme: right against the oracle with every rank count, and to the byte what they are
 * priced.  Catalogue: SP-05 to SP-11, SP-16 to SP-22.  Where elements go: test_routing.c. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "optimized/parallel/scheme.h"
#include "optimized/registry.h"
#include "ref/problem.h"
#include "ref/textbook.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/fixtures/expected_error.h"
#include "tests/fixtures/scheme_walk.h"
#include "tests/harness/runner.h"
#include "tests/suites.h"

SUITE(parallel, .seconds = 600);

static struct attn_result judged(const char *spec_text, const char *case_text)
{
    struct attn_spec spec = spec_of(spec_text);
    return result_of(&spec, case_text);
}

/* ---- against the oracle ---------------------------------------------------------------------- */

/* attn_run_case judges outputs by their bounds, and each rank's price against its ledger and its
 * transport's counters, by name and to the byte. */
static const char *const cases[] = {
    "b2h8g8q64k64d16v16:none:f32:normal:s1:pass=bwd",
    "b2h8g4q64k64d9v5:causal(br):f32:normal:s2:pass=bwd",
    "b2h8g8q64k64d8v8:causal(tl):f64:normal:s3:pass=bwd",
    "b3h8g1q64k64d6v7:causal(br):f32:normal:s4:pass=bwd",
    "b2h4g2q24k72d5v8:causal(br):f32:normal:s5:pass=bwd",
    "b2h4g2q72k24d5v8:causal(br):f32:normal:s6:pass=bwd",
    "b2h4g4q48k16d4v4:causal(tl)&window(3,1,tl):f64:normal:s7:pass=bwd",
    "b1h16g8q64k64d4v4:window(5,0,br):f32:normal:s8:pass=bwd",
    "b3h8g4q24k24d4v4:keys(9,0,24):f32:normal:s9:poison=nan:pass=bwd",
    "b2h8g4q48k48d4v4:documents(7,20,21):f32:normal:s10:pass=bwd",
    "b2h8g4q24k48d4v4:documents(7x20,10x3,7x25)&causal(+20):f32:normal:s11:pass=bwd",
    "b2h8g4q40k40d8v8:random(0.1,3,heads):f32:normal:s12:poison=nan:pass=bwd",
    "b2h8g4q40k40d8v8:random(0.025,3):f64:normal:s13:pass=bwd",
    "b2h8g4q32k32d8v8:causal(-9):f32:normal:s14:poison=nan:layout=mixed:pass=bwd",
    "b2h8g4q32k32d8v8:keys(0):f32:normal:s15:pass=bwd",
    "b2h8g4q32k32d8v8:causal(br):f32:normal:s16:softcap=3:pass=bwd",
    "b2h8g4q32k64d8v8:causal(br):f32:normal:s17:bias=alibi:pass=bwd",
    "b2h8g4q32k32d8v8:global(2)|window(3,3,br):f32:normal:s18:dlse=1:pass=bwd",
    "b2h8g4q32k32d8v8:prefix(9):f64:normal:s19:dlse=1:layout=padded:pass=bwd",
    "b2h8g4q32k32d8v8:none:f32:cliffs:s20:pass=bwd",
    "b2h8g4q32k32d8v8:causal(br):f32:stairs-up:s21:pass=bwd",
    "b2h8g4q32k32d8v8:none:f32:offset-32k:s22:pass=bwd",
    "b2h8g4q32k32d8v8:none:f32:offset+120:s23:pass=bwd",
    "b2h8g4q32k32d8v8:causal(br):f32:hetero:s24:layout=blhd:pass=bwd",
    "b2h8g4q64k64d8v32:random(0.3,5,heads):f32:reveal:s25",
    "b2h8g8q64k64d16v8:none:f32:select:s26:pass=bwd",
    "b2h8g4q32k32d8v8:none:f32:normal:s27:layout=broadcast:pass=bwd",
    "b2h8g4q32k32d8v8:none:f32:normal:s28:layout=packed:pass=bwd",
    "b2h8g4q0k0d8v8:none:f32:normal:s29:pass=bwd",
    "b2h8g4q0k32d8v8:none:f32:normal:s30:pass=bwd",
    "b2h8g4q32k0d8v8:none:f32:normal:s31:pass=bwd",
    "b2h8g4q32k32d0v8:causal(br):f32:normal:s32:pass=bwd",
    "b2h8g4q32k32d8v0:causal(br):f32:normal:s33:pass=bwd",
    "b0h8g4q32k32d8v8:none:f32:normal:s34:pass=bwd",
    "b1h64g64q64k64d3v2:causal(br):f32:normal:s35:pass=bwd",
    /* What no number of ranks above 1 divides: tokens, runs of a zigzag, heads, kv heads; fewer
     * tokens, heads, kv heads or batches than ranks; documents that are empty on one side or
     * both. */
    "b3h5g1q17k13d4v3:causal(br):f32:normal:s1:pass=bwd",
    "b2h6g2q7k11d3v4:none:f64:normal:s2:dlse=1:pass=bwd",
    "b1h7g7q1k5d4v4:window(2,1,br):f32:normal:s3:pass=bwd",
    "b3h6g3q3k2d4v2:none:f32:normal:s4:pass=bwd",
    "b2h9g3q11k11d4v4:documents(0,4,0,7):f32:normal:s5:pass=bwd",
    "b2h4g2q13k19d4v4:documents(3x0,0x5,0x0,10x14)&causal(br):f32:normal:s6:poison=nan:pass=bwd",
    "b3h3g1q19k19d4v4:keys(0,19,7):bf16:normal:s7:poison=nan:pass=bwd",
    "b1h10g2q23k23d4v4:random(0.2,3,heads):f16:normal:s8:pass=bwd",
    "b2h1g1q33k31d4v4:causal(tl):f32:normal:s9:bias=alibi:layout=blhd:pass=bwd",
    "b1h3g3q15k15d4v4:temporal(5,1,3):f32:normal:s10:pass=bwd",
    "b2h5g5q14k14d4v4:spatial(7,2,1):f32:normal:s11:pass=bwd",
};

/* A case that is set up once for all specs. */
static void open_case(const char *text, struct attn_setup *setup)
{
    setup_of(text, setup);
    attn_setup_keep(setup);
    setup->unweighed = 1;
}

static void ck_agrees(const struct attn_spec *spec, struct attn_setup *setup)
{
    struct attn_result r;
    attn_run_setup(spec, setup, NULL, &r);
    ck_passed(spec, &setup->given, &r, 1);
}

struct sizing {
    struct attn_setup setup;
    int turn, one_in;
};

/* The local implementation by turns, too. */
static void agrees_next(void *arg, const struct attn_impl *impl, const char *text)
{
    static const char *const local[] = {"tiled", "csr", "gemm", "chunked"};
    struct sizing *x = arg;
    char whole[240];
    int one_in = x->one_in * (impl->scheme->merging > 0 ? 5 : 1); /* these have most words */
    if (x->turn++ % one_in != 0 || may_be_refused(text))          /* refuses, changes nothing */
        return;
    snprintf(whole, sizeof whole, "%s,local=%s", text, local[x->turn / one_in % COUNT(local)]);
    struct attn_spec spec = spec_of(whole);
    ck_agrees(&spec, &x->setup);
}

/* One of so many ways to run on ranks, others with each case; more of them under ATTN_FULL. */
TEST_EACH(agrees_with_the_oracle, COUNT(cases))
{
    static const int ranks[] = {1, 2, 3, 4, 5, 6, 7, 8, 16, 64};
    struct sizing x = {.turn = _i};
    int full = getenv("ATTN_FULL") != NULL;
    open_case(cases[_i], &x.setup);
    for (int r = 0; r < COUNT(ranks); r++) {
        x.one_in = full ? (ranks[r] > 8 ? 11 : 2) : (ranks[r] > 8 ? 599 : 151);
        scheme_walk(ranks[r], agrees_next, &x);
    }
    attn_setup_close(&x.setup);
}

/* ---- every combination of words -------------------------------------------------------------- */

/* Each storage type; more features than a row of partial results is read in at a time; fewer tokens
 * than ranks; queries that see nothing; LSE far from 0. */
static const char *const corners[] = {
    "b2h8g4q40k40d8v70:causal(br):bf16:normal:s1:pass=bwd",
    "b1h4g2q5k5d8v8:causal(br):f16:normal:s2:pass=bwd",
    "b2h4g2q24k24d8v8:causal(-9):bf16:normal:s3:poison=nan:pass=bwd",
    "b2h8g4q32k32d8v8:causal(br):f32:normal:s4:softcap=3:pass=bwd",
    "b2h8g2q30k44d6v5:random(0.2,3,heads):f64:normal:s5:dlse=1:pass=bwd",
    "b2h8g4q32k32d8v8:none:f32:offset+120:s6:pass=bwd",
    "b2h4g4q33k33d8v8:keys(0):f16:normal:s7:pass=bwd",
    "b2h8g4q32k32d8v8:none:f32:cliffs:s8:pass=bwd"};
enum { CORNERS = sizeof corners / sizeof *corners };

static void meet(void *arg, const struct attn_impl *impl, const char *text)
{
    struct sizing *x = arg;
    (void)impl;
    if (strstr(text, "sizes=uneven") == NULL || may_be_refused(text) || x->turn++ % x->one_in != 0)
        return;
    struct attn_spec spec = spec_of(text);
    ck_agrees(&spec, &x->setup);
}

/* One of so many ways to run on ranks, others with each case; all of them under ATTN_FULL. */
TEST_EACH(every_combination_of_words, CORNERS)
{
    struct sizing x = {.turn = _i, .one_in = getenv("ATTN_FULL") != NULL ? 1 : 13};
    open_case(corners[_i], &x.setup);
    for (int ranks = 3; ranks <= 5; ranks++)
        scheme_walk(ranks, meet, &x);
    attn_setup_close(&x.setup);
}

/* The three merges by their error, where LSE is large: one by one, it is rounded at every merge; of
 * numerators and of what is kept, once.  The bound says the same.  What scores lose is in all
 * three; test_merge.c has the merges alone. */
TEST(what_is_merged_later_errs_less)
{
    static const char *const merge[] = {"running", "numerator", "deferred"};
    double error[3] = {0}, declared[3] = {0};
    for (int m = 0; m < 3; m++)
        for (int seed = 1; seed <= 16; seed++) {
            char spec[60], text[80];
            snprintf(spec, sizeof spec, "ring:ranks=16,merge=%s", merge[m]);
            snprintf(text, sizeof text, "h2q64k64d8:none:f32:offset+120:s%d", seed);
            struct attn_result r = judged(spec, text);
            ck_assert_msg(r.verdict == ATTN_PASS, "%s", r.text);
            error[m] += r.output[ATTN_O].gauge / 16;
            declared[m] = (double)r.precision.merges;
        }
    printf("parallel: error of o after 15 merges: %.3g one by one, %.3g of numerators, %.3g all at "
           "once\n",
           error[0], error[1], error[2]);
    ck_assert_double_gt(error[0], 1.2 * error[1]);
    ck_assert_double_le(error[2], 1.1 * error[1]);
    ck_assert(declared[0] >= 15 && declared[1] <= declared[0] - 14 && declared[2] == declared[1]);
}

/* ---- same bits ------------------------------------------------------------------------------- */

/* A head's arithmetic does not depend on who does it: ulysses gives the bits of its local
 * implementation on the whole problem, and so do heads and batch.  So does a ring of one.  Backward
 * a rank adds up D = dO . O in order, and tiled too where one vector (of four or more) has it. */
TEST_EACH(bits_of_the_local_implementation, 9)
{
    static const char *const same[][3] = {
        {"ulysses:ranks=4", "tiled", "b2h8g4q72k72d9v5:causal(br):f32:normal:s1"},
        {"ulysses:ranks=2,local=dense", "dense",
         "b2h8g4q40k80d9v5:random(0.2,1,heads):f32:normal:s1"},
        {"ulysses:ranks=8,local=csr-textbook", "csr-textbook",
         "b3h8g8q40k40d9v5:window(3,3,br):f64:cliffs:s1"},
        {"ulysses:ranks=2,local=(tiled-textbook:br=5,bc=7)", "tiled-textbook:br=5,bc=7",
         "b2h8g4q40k80d9v5:causal(br):f32:normal:s1"},
        {"ring:ranks=1", "tiled", "b2h8g4q71k73d9v3:causal(br):f32:normal:s1:pass=bwd"},
        {"usp:ranks=1", "tiled", "b2h8g4q71k73d9v3:causal(br):f32:normal:s1:pass=bwd"},
        {"heads:ranks=4,local=tiled-textbook", "tiled-textbook",
         "b2h8g4q71k73d9v5:causal(br):f32:normal:s1:pass=bwd"},
        {"heads:ranks=3", "tiled", "b2h8g4q71k73d9v5:random(0.2,1,heads):f32:normal:s1"},
        {"batch:ranks=2", "tiled", "b3h8g4q71k73d9v3:keys(9,73,40):f32:normal:s1:pass=bwd"}};
    struct attn_result mine = judged(same[_i][0], same[_i][2]),
                       whole = judged(same[_i][1], same[_i][2]);
    ck_assert_msg(mine.verdict == ATTN_PASS && whole.verdict == ATTN_PASS, "%s%s", mine.text,
                  whole.text);
    ck_assert(mine.digest == whole.digest);
}

/* Threads arrive in any order; sums are made in the same one.  And nothing is remembered from
 * one configuration to the next (SP-05). */
TEST(bits_do_not_depend_on_time)
{
    static const char *const spec[] = {"ring:ranks=8", "ulysses:ranks=4", "ring:ranks=3"};
    static const char *const text[] = {"b2h8g4q48k48d8v8:causal(br):f32:normal:s1:pass=bwd",
                                       "b1h12g12q24k48d4v6:none:f32:normal:s2:pass=bwd"};
    uint64_t first[3][2];
    for (int repeat = 0; repeat < 10; repeat++)
        for (int s = 0; s < 3; s++)
            for (int c = 0; c < 2; c++) {
                struct attn_result r = judged(spec[s], text[c]);
                ck_assert_msg(r.verdict == ATTN_PASS, "%s", r.text);
                if (repeat == 0)
                    first[s][c] = r.digest;
                ck_assert(r.digest == first[s][c]);
            }
}

/* ---- prices, by hand ------------------------------------------------------------------------- */

static struct attn_cost price(const char *spec_text, const struct attn_problem *p,
                              enum attn_pass pass, int rank)
{
    struct attn_spec spec = spec_of(spec_text);
    return price_of(&spec, p, pass, rank);
}

static struct attn_problem problem(int64_t b, int64_t h, int64_t g, int64_t n, int64_t d)
{
    char text[120];
    snprintf(text, sizeof text, "b%dh%dg%dq%dd%d:none:f32:normal:s1", (int)b, (int)h, (int)g,
             (int)n, (int)d);
    return problem_of(text, NULL);
}

/* Under a mask, which is to be freed. */
static struct attn_mask *put_mask(struct attn_problem *p, const char *text)
{
    struct attn_mask *mask =
        mask_of(text, (struct attn_mask_shape){p->batch, p->heads, p->n_query, p->n_key});
    p->mask = mask;
    return mask;
}

static void each_of_four_sends(const char *spec, const struct attn_problem *p, enum attn_pass pass,
                               int64_t bytes, int64_t messages)
{
    for (int rank = 0; rank < 4; rank++) {
        struct attn_cost cost = price(spec, p, pass, rank);
        ck_assert_int_eq(cost.bytes_sent, bytes);
        ck_assert_int_eq(cost.messages, messages);
    }
}

/* The comparison table of sequence-parallel schemes, with h = H d and g = G d elements a token and
 * c = L/P, in numbers: B = 1, L = 64, d = 16, P = 4, f32. */
TEST(bytes_sent_as_published)
{
    static const struct {
        const char *spec;
        int64_t heads, kv_heads;
        enum attn_pass pass;
        int64_t bytes, messages;
    } want[] = {
        /* e B L (2h + 2g)(P-1)/P^2 = 4 * 64 * 512 * 3/16, and L H numbers of lse: 4 * 512 * 3/16 */
        {"ulysses", 8, 8, ATTN_FORWARD, 24576 + 384, 15},
        {"ulysses", 8, 4, ATTN_FORWARD, 18432 + 384, 15},
        /* q dO dQ and k v dK dV, lse and D */
        {"ulysses", 8, 8, ATTN_BACKWARD, 43008 + 768, 27},
        {"ulysses", 8, 4, ATTN_BACKWARD, 30720 + 768, 27},
        /* e (P-1) 2 B c g = 4 * 3 * 2 * 16 * 128 */
        {"ring", 8, 8, ATTN_FORWARD, 49152, 6},
        {"ring", 8, 4, ATTN_FORWARD, 24576, 6},
        {"ring", 8, 1, ATTN_FORWARD, 6144, 6},
        /* the same, and e P 2 B c g */
        {"ring", 8, 8, ATTN_BACKWARD, 49152 + 65536, 14},
        {"ring", 8, 1, ATTN_BACKWARD, 6144 + 8192, 14},
        /* U = 2, R = 2: e B L/P (2h + 2g)(U-1)/U and lse, e 2 B L/R g/U */
        {"usp", 8, 8, ATTN_FORWARD, 16384 + 256 + 16384, 5 + 2},
        {"usp", 8, 4, ATTN_FORWARD, 12288 + 256 + 8192, 5 + 2},
        /* e B L/P (3h + 4g)(U-1)/U, lse and D; the same, and e R 2 B L/R g/U */
        {"usp", 8, 8, ATTN_BACKWARD, 28672 + 512 + 16384 + 32768, 9 + 2 + 4},
        /* as much as a ring; the same, and a reduce-scatter of it */
        {"allgather", 8, 8, ATTN_FORWARD, 49152, 6},
        {"allgather:stride=1", 8, 4, ATTN_FORWARD, 24576, 24},
        {"allgather", 8, 8, ATTN_BACKWARD, 2 * 49152, 12},
        {"heads", 8, 4, ATTN_BACKWARD, 0, 0},
        {"batch", 8, 4, ATTN_BACKWARD, 0, 0},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        struct attn_problem p = problem(1, want[i].heads, want[i].kv_heads, 64, 16);
        each_of_four_sends(want[i].spec, &p, want[i].pass, want[i].bytes, want[i].messages);
    }
}

/* Open-Sora-Plan, on four ranks: L = 64, d = 16, H = 8, f32.  A piece of 4 tokens of 8 heads, what
 * a scope needs of a rank's run, is 4 * 8 * 16 * 4 = 2048 bytes; of a run's 16 tokens four times
 * that. */
TEST(bytes_sent_by_open_sora_plan)
{
    static const struct {
        const char *spec;
        int64_t batch, kv_heads;
        enum attn_pass pass;
        int64_t bytes, messages;
    } want[] = {
        /* q and o, k and v of two heads, lse */
        {"skiparse", 1, 2, ATTN_FORWARD, 3 * (2 * 2048 + 2 * 512 + 128), 15},
        /* q dO dQ, k v dK dV, lse and D */
        {"skiparse", 1, 2, ATTN_BACKWARD, 3 * (3 * 2048 + 4 * 512 + 2 * 128), 27},
        /* two heads a rank, and a copy of the kv head that they share */
        {"skiparse:exchange=heads", 1, 2, ATTN_FORWARD, 3 * (2 * 2048 + 2 * 1024 + 128), 15},
        /* a sample's 16 tokens of another rank, then two heads of four samples' 16 tokens */
        {"samples", 4, 8, ATTN_FORWARD, 2 * 3 * (4 * 8192 + 512), 30},
        {"samples", 4, 8, ATTN_BACKWARD, 2 * 3 * (7 * 8192 + 2 * 512), 54},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        struct attn_problem p = problem(want[i].batch, 8, want[i].kv_heads, 64, 16);
        struct attn_mask *mask = put_mask(&p, "skiparse(group,4)");
        each_of_four_sends(want[i].spec, &p, want[i].pass, want[i].bytes, want[i].messages);
        attn_mask_free(mask);
    }
}

TEST(runs_with_gaps_are_not_dealt_out)
{
    struct attn_problem p = problem(1, 2, 2, 8, 4);
    struct attn_spec spec = spec_of("skiparse:ranks=2");
    struct attn_error err = {0};
    ck_assert_int_eq(spec.impl->accepts(&p, &spec.options, &err), ATTN_OK);
    p.origin.key = (struct attn_positions){.run = 2, .gap = 2};
    said(spec.impl->accepts(&p, &spec.options, &err), ATTN_ENOTSUP, &err,
         "the whole it was cut from would work");
}

/* In units of a block of tokens of all heads, e B c h: lightseq sends P(P-1) of them under a causal
 * mask, a ring twice as many; and LSE of what helpers compute, who are asked at distances above
 * P/2. */
TEST(half_the_bytes_of_a_ring)
{
    for (int ranks = 1; ranks <= 9; ranks++) {
        struct attn_problem p = problem(1, 8, 8, 16 * ranks, 16);
        struct attn_mask *mask = put_mask(&p, "causal(tl)");
        int64_t unit = 4 * 16 * 8 * 16, lse = 4 * 16 * 8, sum = 0, around = 0, helped = 0;
        for (int t = 1; t < ranks; t++)
            helped += 2 * t > ranks ? ranks - t : 0;
        for (int r = 0; r < ranks; r++) {
            char spec[40];
            snprintf(spec, sizeof spec, "lightseq:ranks=%d", ranks);
            sum += price(spec, &p, ATTN_FORWARD, r).bytes_sent;
            snprintf(spec, sizeof spec, "ring:ranks=%d", ranks);
            around += price(spec, &p, ATTN_FORWARD, r).bytes_sent;
        }
        attn_mask_free(mask);
        ck_assert_int_eq(sum, ranks * (ranks - 1) * unit + helped * lse);
        ck_assert_int_eq(around, 2 * ranks * (ranks - 1) * unit);
    }
}

/* usp is ulysses where all ranks share one place, and a ring where none do, for any sizes. */
TEST(usp_is_both)
{
    static const char *const order[] = {"contiguous", "striped", "zigzag"};
    struct attn_problem p = problem(2, 6, 3, 23, 8);
    p.n_key = 31;
    for (int ranks = 1; ranks <= 8; ranks++)
        for (int n = 0; n < 3 * 2 * ranks; n++) {
            char ring[80], heads[80], ulysses[80], one[80];
            enum attn_pass pass = (enum attn_pass)(n % 2);
            int rank = n / 6;
            snprintf(heads, sizeof heads, "usp:ranks=%d,heads=%d", ranks, ranks);
            snprintf(ulysses, sizeof ulysses, "ulysses:ranks=%d", ranks);
            snprintf(one, sizeof one, "usp:ranks=%d,heads=1,order=%s", ranks, order[n / 2 % 3]);
            snprintf(ring, sizeof ring, "ring:ranks=%d,order=%s", ranks, order[n / 2 % 3]);
            struct attn_cost a = price(heads, &p, pass, rank), b = price(ulysses, &p, pass, rank);
            struct attn_cost c = price(one, &p, pass, rank), d = price(ring, &p, pass, rank);
            ck_assert_int_eq(a.bytes_sent, b.bytes_sent);
            ck_assert_int_eq(a.messages, b.messages);
            ck_assert_int_eq(a.peak_bytes, b.peak_bytes);
            ck_assert_int_eq(c.bytes_sent, d.bytes_sent);
            ck_assert_int_eq(c.messages, d.messages);
            ck_assert_int_eq(c.peak_bytes, d.peak_bytes);
        }
}

/* ---- balance --------------------------------------------------------------------------------- */

/* A local implementation that notes how many pairs each rank is given, whom it knows by its ledger:
 * those of all ranks lie one behind the other. */
enum { MOST_PRODUCTS = 64, BALANCED = 4 };
static struct {
    const struct attn_ledger *ledger;
    int64_t pairs;
} given[MOST_PRODUCTS];
static _Atomic int n_given;

static enum attn_status count_pairs(struct attn_ctx *ctx, const struct attn_problem *p,
                                    const struct attn_forward *t)
{
    int counted = 1, n = n_given++;
    if (n < MOST_PRODUCTS) {
        given[n].ledger = ctx->ledger;
        given[n].pairs = attn_problem_all_pairs(p, &counted);
    }
    return attn_impl_tiled_textbook.forward(ctx, p, t);
}

static void pairs_by_rank(const char *spec_text, int64_t pairs[BALANCED])
{
    struct attn_impl local = attn_impl_tiled_textbook;
    struct attn_spec spec = spec_of(spec_text);
    struct running x;
    local.forward = count_pairs;
    attn_options_set_local(&spec.options, &local);
    running_open(&x, &spec, "q64d4:causal(tl):f32:normal:s1");
    n_given = 0;
    running_well(&x, ATTN_FORWARD);
    running_close(&x);
    ck_assert_int_le(n_given, MOST_PRODUCTS);
    const struct attn_ledger *first = given[0].ledger;
    for (int n = 0; n < n_given; n++)
        first = given[n].ledger < first ? given[n].ledger : first;
    memset(pairs, 0, BALANCED * sizeof *pairs);
    for (int n = 0; n < n_given; n++) {
        ck_assert_int_lt(given[n].ledger - first, BALANCED);
        pairs[given[n].ledger - first] += given[n].pairs;
    }
}

/* L = 64, P = 4, c = 16.  contiguous r c^2 + c(c+1)/2; striped c(c+1)/2 for a block of keys that
 * begins no later, c(c-1)/2 for others; zigzag 2 P h^2 + h with h = c/2; lightseq c(c+1)/2 and one
 * or two blocks. */
TEST(balance_as_published)
{
    static const struct {
        const char *spec;
        int64_t pairs[BALANCED];
    } want[] = {{"ring", {136, 392, 648, 904}},
                {"ring:order=striped", {496, 512, 528, 544}},
                {"ring:order=zigzag", {520, 520, 520, 520}},
                {"ring:inner=2", {136, 392, 648, 904}},
                {"allgather", {136, 392, 648, 904}},
                {"allgather:order=zigzag", {520, 520, 520, 520}},
                {"usp:heads=1,order=striped", {496, 512, 528, 544}},
                {"lightseq", {392, 392, 648, 648}}};
    for (size_t w = 0; w < sizeof want / sizeof *want; w++) {
        int64_t pairs[BALANCED];
        pairs_by_rank(want[w].spec, pairs);
        for (int r = 0; r < BALANCED; r++)
            ck_assert_msg(pairs[r] == want[w].pairs[r], "%s: rank %d has %lld pairs, not %lld",
                          want[w].spec, r, (long long)pairs[r], (long long)want[w].pairs[r]);
    }
}

/* ---- prices, continued ----------------------------------------------------------------------- */

/* A long sequence is priced at once, and a causal ring has its price: the last rank computes P -
 * 1/2 of P blocks, the first one half. */
TEST(price_of_a_long_sequence)
{
    struct attn_problem p = problem(1, 8, 8, 1 << 20, 128);
    struct attn_mask *mask = put_mask(&p, "causal(tl)");
    struct attn_cost first = price("ring:ranks=8", &p, ATTN_FORWARD, 0);
    struct attn_cost last = price("ring:ranks=8", &p, ATTN_FORWARD, 7);
    attn_mask_free(mask);
    ck_assert_int_eq(live_of(last.live, last.n_live, "kv.travel"),
                     (int64_t)2 * 2 * 8 * 131072 * 128 * 4);
    ck_assert(last.flops / first.flops > 14.9 && last.flops / first.flops < 15.1);
    ck_assert_int_eq(first.bytes_sent, last.bytes_sent);
    ck_assert_int_eq(first.peak_bytes, last.peak_bytes);
}

/* Every input and output belongs to one rank: the shares of all ranks are what one process has.  q,
 * k and v of 11 tokens of 6 heads, 3 of them of k and v, in 4 bytes; o; lse. */
TEST(shares_add_up)
{
    static const char *const spec[] = {"ring:ranks=4",
                                       "ring:ranks=3,order=striped",
                                       "ring:ranks=4,order=zigzag",
                                       "ulysses:ranks=5",
                                       "usp:ranks=6,order=striped",
                                       "usp:ranks=4,heads=4",
                                       "allgather:ranks=5,order=zigzag",
                                       "lightseq:ranks=16",
                                       "heads:ranks=4",
                                       "heads:ranks=5",
                                       "heads:ranks=16",
                                       "batch:ranks=2",
                                       "batch:ranks=3"};
    struct attn_problem p = problem(2, 6, 3, 11, 8);
    const double q = 2 * 6 * 11 * 8 * 4, kv = q, lse = 2 * 6 * 11 * 4;
    for (int pass = 0; pass < 2; pass++) {
        double all = pass == 0 ? q + kv + q + lse : 2 * (q + kv) + q + lse + q;
        struct attn_cost whole = price("tiled", &p, (enum attn_pass)pass, 0);
        ck_assert(whole.shard_bytes == all);
        for (size_t s = 0; s < sizeof spec / sizeof *spec; s++) {
            struct attn_spec parsed = spec_of(spec[s]);
            double sum = 0;
            for (int r = 0; r < parsed.options.value[0]; r++)
                sum += price(spec[s], &p, (enum attn_pass)pass, r).shard_bytes;
            ck_assert_msg(sum == all, "%s: %g, not %g", spec[s], sum, all);
        }
    }
}

/* With pads a rank sends and stores what it would of the next multiples, and takes as many messages
 * for it: `as` without pads.  A rank has whole groups of heads, or equal parts of one. */
TEST(pads_are_sent_and_stored)
{
    static const struct {
        const char *spec;
        int64_t batch, heads, kv_heads, tokens;
        struct {
            int64_t batch, heads, kv_heads, tokens;
        } as;
    } want[] = {{"ring:ranks=4", 3, 5, 1, 45, {3, 5, 1, 48}},
                {"ring:ranks=4,order=striped", 3, 5, 5, 45, {3, 5, 5, 48}},
                {"ring:ranks=4,order=zigzag", 1, 4, 2, 42, {1, 4, 2, 48}},
                {"ring:ranks=6,inner=3", 1, 4, 2, 37, {1, 4, 2, 42}},
                {"ulysses:ranks=4", 2, 7, 7, 45, {2, 8, 8, 48}},
                {"ulysses:ranks=4", 1, 8, 1, 1, {1, 8, 1, 4}},
                {"ulysses:ranks=4,exchange=list", 1, 6, 2, 1, {1, 12, 4, 4}},
                {"ulysses:ranks=6", 1, 40, 8, 600, {1, 60, 12, 600}},
                {"usp:ranks=6,heads=3", 2, 7, 7, 31, {2, 9, 9, 36}},
                {"usp:ranks=6,heads=2,order=zigzag", 1, 3, 1, 31, {1, 6, 2, 36}},
                {"allgather:ranks=5,order=zigzag,stride=2", 2, 5, 5, 33, {2, 5, 5, 40}},
                {"lightseq:ranks=5", 2, 3, 1, 13, {2, 3, 1, 15}},
                {"heads:ranks=3", 2, 8, 2, 11, {2, 12, 3, 11}},
                {"heads:ranks=4", 2, 8, 2, 11, {2, 8, 2, 11}},
                {"batch:ranks=4", 5, 3, 1, 11, {8, 3, 1, 11}}};
    for (size_t n = 0; n < sizeof want / sizeof *want; n++) {
        struct attn_problem real =
            problem(want[n].batch, want[n].heads, want[n].kv_heads, want[n].tokens, 8);
        struct attn_problem even =
            problem(want[n].as.batch, want[n].as.heads, want[n].as.kv_heads, want[n].as.tokens, 8);
        char spec[80];
        snprintf(spec, sizeof spec, "%s,sizes=pad", want[n].spec);
        int ranks = (int)spec_of(spec).options.value[ATTN_OPTION_RANKS];
        for (int i = 0; i < 2 * ranks; i++) {
            struct attn_cost a = price(spec, &real, (enum attn_pass)(i % 2), i / 2);
            struct attn_cost b = price(want[n].spec, &even, (enum attn_pass)(i % 2), i / 2);
            ck_assert_msg(a.bytes_sent == b.bytes_sent && a.messages == b.messages &&
                              a.shard_bytes == b.shard_bytes,
                          "%s rank %d: %lld in %lld, %g; not %lld in %lld, %g", spec, i / 2,
                          (long long)a.bytes_sent, (long long)a.messages, a.shard_bytes,
                          (long long)b.bytes_sent, (long long)b.messages, b.shard_bytes);
        }
    }
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void ck_refused(const char *spec_text, const struct attn_impl *local,
                       const struct attn_problem *p, enum attn_pass pass, const char *says)
{
    struct attn_spec spec = spec_of(spec_text);
    struct attn_cost cost;
    struct attn_error err = {0};
    if (local != NULL)
        attn_options_set_local(&spec.options, local);
    said(attn_price(spec.impl, &spec.options, p, pass, 0, &cost, &err), ATTN_ENOTSUP, &err, says);
}

TEST(refusals_say_what_works)
{
    struct attn_problem p = problem(1, 8, 2, 128, 8);
    ck_refused("ulysses:ranks=3,sizes=strict", NULL, &p, ATTN_FORWARD,
               "ulysses:ranks=3,sizes=strict needs ranks that divide heads 8, kv heads 2, queries "
               "128 and keys 128: 1, 2, or sizes=uneven");
    p.n_key = 96;
    ck_refused("ring:ranks=5,sizes=strict", NULL, &p, ATTN_FORWARD,
               "needs ranks that divide queries 128 and keys 96: 1, 2, 4, 8, 16, 32, or");
    ck_refused("ring:ranks=6,inner=4", NULL, &p, ATTN_FORWARD,
               "windows of 4 ranks do not fill 6; inner=3 would work");
    ck_refused("usp:ranks=6,heads=4", NULL, &p, ATTN_FORWARD,
               "4 does not divide 6 ranks; heads=3 would work");
    ck_refused("usp:ranks=12,heads=2,inner=4", NULL, &p, ATTN_FORWARD,
               "windows of 4 ranks do not fill 6; inner=3 would work");
    ck_refused("usp:ranks=6,heads=3,sizes=strict", NULL, &p, ATTN_FORWARD,
               "needs ranks that divide heads 8 and kv heads 2: 1, 2, or");
    ck_refused("usp:ranks=10,heads=2,sizes=strict", NULL, &p, ATTN_FORWARD,
               "needs ranks that divide queries 128 and keys 96: 1, 2, 4, 8, 16, 32, or");
    ck_refused("allgather:ranks=5,sizes=strict", NULL, &p, ATTN_FORWARD, "queries 128 and keys 96");
    ck_refused("heads:ranks=4,sizes=strict", NULL, &p, ATTN_FORWARD,
               "needs ranks that divide heads 8 and kv heads 2: 1, 2, or");
    ck_refused("batch:ranks=2,sizes=strict", NULL, &p, ATTN_FORWARD,
               "needs ranks that divide batches 1: 1, or");
    ck_refused("ring:ranks=4", attn_impl_find("ring"), &p, ATTN_FORWARD,
               "ring:local=ring is parallel itself");
    ck_refused("ulysses:ranks=2", attn_impl_find("ring"), &p, ATTN_FORWARD, "tiled would work");
    p.bias =
        (struct attn_bias){.kind = ATTN_BIAS_TENSOR, .tensor = {.data = &p, .dtype = ATTN_F32}};
    ck_refused("ring:ranks=4", NULL, &p, ATTN_FORWARD, "does not claim: bias");
}

/* Open-Sora #270: ranks that divide the frames (v1.0: 16, and the 15 of a well-meant advice) or the
 * places of a frame (v1.2), and 16 heads. */
TEST(ranks_that_divide_a_video)
{
    static const struct {
        const char *spec, *mask;
        int64_t tokens;
        const char *says;
    } refused[] = {{"video:ranks=6,home=frames,exchange=always,sizes=strict", "temporal(16,16,16)",
                    4096,
                    "divide heads 16, kv heads 16 and frames 16: 1, 2, 4, 8, 16, or sizes=uneven"},
                   {"video:ranks=3,home=frames,exchange=always,sizes=strict", "spatial(15,16,16)",
                    3840, "divide heads 16, kv heads 16 and frames 15: 1, or"},
                   {"video:ranks=32,exchange=needed,sizes=strict", "spatial(16,16,16)", 4096,
                    "divide heads 16, kv heads 16 and places 256: 1, 2, 4, 8, 16, or"}};
    for (size_t n = 0; n < sizeof refused / sizeof *refused; n++) {
        struct attn_problem p = problem(1, 16, 16, refused[n].tokens, 72);
        struct attn_mask *mask = put_mask(&p, refused[n].mask);
        ck_refused(refused[n].spec, NULL, &p, ATTN_FORWARD, refused[n].says);
        attn_mask_free(mask);
    }
}

TEST(local_must_be_able)
{
    struct attn_problem p = problem(1, 8, 8, 16, 8);
    struct attn_impl soft = attn_impl_dense;
    soft.name = "soft";
    soft.caps &= ~(unsigned)ATTN_CAP_HARD;
    ck_refused("ring:ranks=4", &soft, &p, ATTN_FORWARD, "ring:local=soft does not claim 'hard'");
    struct attn_impl weak = attn_impl_dense;
    weak.caps &= ~(unsigned)(ATTN_CAP_SOFTCAP | ATTN_CAP_DLSE | ATTN_CAP_STRIDES);
    ck_refused("ulysses:ranks=4", &weak, &p, ATTN_BACKWARD, "'dlse'");
    ck_refused("ring:ranks=4,order=zigzag", &weak, &p, ATTN_FORWARD, "'strides'");
    p.softcap = 1;
    ck_refused("ring:ranks=4", &weak, &p, ATTN_FORWARD, "'softcap'");
}

/* ---- rows nobody sees, memory that runs out, what is reported -------------------------------- */

/* A row that sees no key: its o and dO are not read, not even for D, so that no NaN is handed
 * on. */
static enum attn_status finite_backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                        const struct attn_backward *t)
{
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t i = 0; i < p->n_query; i++)
                if (!isfinite(attn_cview_get(&t->d_lse, b, h, i, 0)))
                    return attn_fail(ctx->error, ATTN_EINTERNAL, "D of row %d is not finite",
                                     (int)i);
    return attn_impl_tiled_textbook.backward(ctx, p, t);
}

TEST_EACH(empty_rows_are_not_read, 2)
{
    struct attn_impl local = attn_impl_tiled_textbook;
    struct attn_spec spec = spec_of("ulysses:ranks=4");
    struct running x;
    local.backward = finite_backward;
    attn_options_set_local(&spec.options, &local);
    running_open(&x, &spec,
                 _i ? "b2h8g4q32k32d8v8:causal(-9):f32:normal:s1:poison=nan:pass=bwd"
                    : "b2h8g4q32k32d8v8:causal(-9):f64:normal:s1:poison=nan:pass=bwd");
    running_well(&x, ATTN_FORWARD);
    ck_assert(isnan(attn_tensor_get(&x.setup.tensor[ATTN_T_DO], 0, 0, 0, 0)));
    running_well(&x, ATTN_BACKWARD);
    running_close(&x);
}

/* Less and less memory: a clean refusal every time, whoever meets the limit first. */
TEST_EACH(memory_may_run_out_anywhere, 8)
{
    static const char *const who[] = {"ulysses:ranks=4", "ring:ranks=4", "lightseq:ranks=4",
                                      "allgather:ranks=3,stride=2"};
    struct attn_spec spec = spec_of(who[_i / 2]);
    int refused = 0, is_done = 0;
    for (int64_t limit = 0; !is_done; limit += 20000) {
        struct running x;
        running_open(&x, &spec, "b2h8g4q32k32d8v8:none:f32:normal:s1:pass=bwd");
        struct attn_seal sealing = attn_setup_seal(&x.setup);
        x.ctx.seal = &sealing;
        x.ledger.limit = limit;
        enum attn_status status = running_pass(&x, (enum attn_pass)(_i % 2));
        is_done = status == ATTN_OK;
        ck_assert_int_eq(x.ledger.now, 0);
        if (!is_done)
            said(status, ATTN_ENOMEM, &x.err, "no memory for buffer");
        refused += !is_done;
        running_close(&x);
    }
    ck_assert_int_gt(refused, 5);
}

/* What a rank used is reported for each, and the cause of failure needs no error object. */
TEST(use_of_every_rank)
{
    struct attn_spec spec = spec_of("ring:ranks=4");
    struct running x;
    struct attn_rank_use use[4];
    memset(use, 0xFF, sizeof use);
    running_open(&x, &spec, "b2h8g4q64k64d8v8:causal(tl):f32:normal:s1");
    x.ctx.error = NULL;
    x.ctx.ranks = use;
    ck_assert_int_eq(running_pass(&x, ATTN_FORWARD), ATTN_OK);
    for (int r = 0; r < 4; r++) {
        int64_t sum = 0;
        for (int a = 0; a < use[r].n_live; a++)
            sum += use[r].live[a].bytes;
        ck_assert_int_eq(sum, use[r].peak_bytes);
        /* 3 hops of K and V: 2 * 4 * 16 tokens * (8 + 8) floats */
        ck_assert_int_eq(use[r].bytes_sent, 3 * 2 * 4 * 16 * 16 * 4);
        ck_assert_int_eq(use[r].messages, 6);
        ck_assert(use[r].cpu_seconds > 0 && use[r].cpu_seconds < 60);
    }
    x.ledger.limit = 100;
    ck_assert_int_eq(running_pass(&x, ATTN_FORWARD), ATTN_ENOMEM);
    running_close(&x);
}
