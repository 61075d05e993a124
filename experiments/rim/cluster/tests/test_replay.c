/* The model of a cluster: what ranks send in a replay is their price, whatever the scheme; and
 * times that can be worked out by hand. */
#include <math.h>
#include <string.h>

#include "experiments/rim/cluster/replay.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/fixtures/scheme_walk.h"
#include "tests/suites.h"

SUITE(replay);

/* Products take time, and nothing else does: 1 flop a second. */
static struct attn_cluster only_products(void)
{
    struct attn_cluster c = {.node = 2, .memory = 1, .memory_bandwidth = HUGE_VAL, .masked = 1};
    for (int n = 0; n < ATTN_DTYPES; n++)
        c.flops[n] = 1;
    c.bandwidth[ATTN_INSIDE] = c.bandwidth[ATTN_BETWEEN] = HUGE_VAL;
    return c;
}

enum { MOST_RANKS = 16 };

static struct attn_replay replay_of(const char *spec_text, const struct attn_problem *p,
                                    enum attn_pass pass, const struct attn_cluster *cluster,
                                    struct attn_rank_use sent[MOST_RANKS])
{
    struct attn_spec spec = spec_of(spec_text);
    struct attn_replay replay;
    struct attn_error err = {0};
    ck_assert_msg(attn_replay(p, &spec.options, pass, cluster, &replay, sent, &err) == ATTN_OK,
                  "%s: %s", spec_text, err.text);
    return replay;
}

/* ---- what is sent ---------------------------------------------------------------------------- */

static void check_sent(void *arg, const struct attn_impl *impl, const char *text)
{
    const struct attn_cluster cluster = only_products();
    const struct attn_problem *p = arg;
    struct attn_spec spec = spec_of(text);
    struct attn_rank_use sent[MOST_RANKS];
    if (may_be_refused(text) || impl->scheme == NULL || /* a textbook has no schedule to replay */
        (strstr(text, "mask=") != NULL && strstr(text, "mask=described") == NULL))
        return;
    for (int pass = 0; pass < 2; pass++) {
        double flops = 0;
        struct attn_replay x = replay_of(text, p, (enum attn_pass)pass, &cluster, sent);
        for (int r = 0; r < attn_ranks(impl, &spec.options); r++) {
            struct attn_cost cost = price_of(&spec, p, (enum attn_pass)pass, r);
            flops = fmax(flops, cost.flops);
            ck_assert_msg(sent[r].bytes_sent == cost.bytes_sent &&
                              sent[r].messages == cost.messages,
                          "%s pass %d rank %d: %lld bytes in %lld messages, priced %lld in %lld",
                          text, pass, r, (long long)sent[r].bytes_sent, (long long)sent[r].messages,
                          (long long)cost.bytes_sent, (long long)cost.messages);
        }
        ck_assert_msg(x.seconds >= x.ideal * (1 - 1e-12), "%s: %g s of %g", text, x.seconds,
                      x.ideal);
    }
}

/* Kills a move left out, a hop too many, a block of the wrong rank: sizes that nothing divides. */
TEST_EACH(replayed_is_what_is_priced, 2)
{
    const char *masks[] = {"none", "causal(br)"};
    struct attn_mask *mask = mask_of(masks[_i], (struct attn_mask_shape){2, 4, 29, 41});
    struct attn_problem p = problem_of("b2h4g2q29k41d4:none:f32:normal:s1", mask);
    for (int ranks = 3 + _i; ranks <= 6; ranks += 2)
        scheme_walk(ranks, check_sent, &p);
    attn_mask_free(mask);
}

/* ---- times by hand --------------------------------------------------------------------------- */

#define CAUSAL "q64k64d16:none:f32:normal:s1"

/* A contiguous ring lasts as long as its last rank computes; products dealt out evenly
 * are the ideal. */
TEST_EACH(only_products_take_time, 4)
{
    static const struct {
        const char *spec;
        double pairs;
    } of[] = {{"ring:ranks=4,local=tiled-textbook", 904},
              {"ring:ranks=4,order=zigzag,local=tiled-textbook", 520},
              {"ulysses:ranks=1,local=tiled-textbook", 2080},
              {"allgather:ranks=4,order=striped,local=tiled-textbook", 544}};
    const struct attn_cluster cluster = only_products();
    struct attn_mask *mask = mask_of("causal(br)", (struct attn_mask_shape){1, 1, 64, 64});
    struct attn_problem p = problem_of(CAUSAL, mask);
    struct attn_replay x = replay_of(of[_i].spec, &p, ATTN_FORWARD, &cluster, NULL);
    ck_assert_double_eq_tol(x.seconds, of[_i].pairs * 64, 1e-9);
    ck_assert_double_eq_tol(x.ideal, 2080 * 64 / (_i == 2 ? 1.0 : 4.0), 1e-9);
    attn_mask_free(mask);
}

/* A ring of 4 in nodes of 2, K and V of 16 tokens: 2 messages of 1,024 bytes a hop.  Between nodes
 * a byte takes a second: a ring waits for that at each of 3 hops, whichever rank crosses; windows
 * of a node cross once. */
TEST(links_hide_behind_products_or_not)
{
    struct attn_cluster c = only_products();
    struct attn_problem p = problem_of(CAUSAL, NULL);
    const double product = 16 * 16 * 64;
    c.bandwidth[ATTN_BETWEEN] = 0.1;
    c.bandwidth[ATTN_INSIDE] = 1;
    c.latency[ATTN_BETWEEN] = 7;
    struct attn_replay one =
        replay_of("ring:ranks=4,local=tiled-textbook", &p, ATTN_FORWARD, &c, NULL);
    ck_assert_double_eq_tol(one.seconds, product + 3 * (20480 + 14), 1e-6);
    struct attn_replay two =
        replay_of("ring:ranks=4,inner=2,local=tiled-textbook", &p, ATTN_FORWARD, &c, NULL);
    ck_assert_double_eq_tol(two.seconds, 3 * product + 20480 + 14, 1e-6);
    ck_assert_double_eq_tol(two.spent[ATTN_SPENT_BETWEEN], 20480 + 14 - product, 1e-6);
    c.hop = 5; /* is not hidden */
    two = replay_of("ring:ranks=4,inner=2,local=tiled-textbook", &p, ATTN_FORWARD, &c, NULL);
    ck_assert_double_eq_tol(two.seconds, 3 * product + 20480 + 14 + 3 * 5, 1e-6);
}
