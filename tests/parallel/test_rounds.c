/* Rounds of stops: what the price of a sequence-parallel scheme takes for equal, and so looks at
 * once (attn_work_round), against a walk of all stops. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "optimized/parallel/parallel.h"
#include "optimized/parallel/travel/products.h"
#include "ref/problem.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/fixtures/scheme_walk.h"
#include "tests/suites.h"

SUITE(rounds);

struct rounds {
    struct attn_problem p;
    const char *mask;
    int turn, skipped; /* stops that a price does not look at */
};

static int64_t pairs_that_differ(const struct attn_problem *a, const struct attn_problem *b)
{
    int64_t n = 0;
    for (int64_t batch = 0; batch < a->batch; batch++)
        for (int64_t h = 0; h < a->heads; h++)
            for (int64_t i = 0; i < a->n_query; i++)
                for (int64_t j = 0; j < a->n_key; j++)
                    n += attn_problem_allows(a, batch, h, i, j) !=
                         attn_problem_allows(b, batch, h, i, j);
    return n;
}

static int products_differ(const struct attn_product *a, const struct attn_product *b)
{
    return a->call != b->call || a->query != b->query || a->key != b->key ||
           a->starts_query != b->starts_query || a->starts_key != b->starts_key ||
           a->part.batch != b->part.batch || a->part.heads != b->part.heads ||
           a->part.kv_heads != b->part.kv_heads || a->part.n_query != b->part.n_query ||
           a->part.n_key != b->part.n_key || pairs_that_differ(&a->part, &b->part) != 0;
}

/* Stops n and m have the same products, of the same pairs. */
static int stops_differ(const struct attn_work *at, int n, int m)
{
    struct attn_work a = *at, b = *at;
    struct attn_product x, y;
    attn_work_go(&a, n);
    attn_work_go(&b, m);
    while (attn_work_next(&a, &x))
        if (!attn_work_next(&b, &y) || products_differ(&x, &y))
            return 1;
    return attn_work_next(&b, &y);
}

/* The largest count of all products, by a walk of all stops. */
static int64_t count_all(const struct attn_work *at)
{
    const struct attn_options preset = attn_rank_local_options(at->options);
    const struct attn_impl *local = attn_rank_local(at->options);
    struct attn_work w = *at;
    struct attn_product x;
    int64_t most = 0;
    for (int n = 0; n < w.stops && local->rescales != NULL; n++) {
        attn_work_go(&w, n);
        while (attn_work_next(&w, &x)) {
            int64_t count = local->rescales(&x.part, &preset);
            most = count > most ? count : most;
        }
    }
    return most;
}

static void check_rounds(void *arg, const struct attn_impl *impl, const char *text)
{
    static const char *const local[] = {"tiled", "csr", "dense", "bsr"};
    struct rounds *x = arg;
    int64_t most = 0;
    int ranks;
    if (impl->scheme == NULL || impl->scheme->ring == NULL || strstr(text, "strict") != NULL ||
        strstr(text, "numerator") != NULL || strstr(text, "deferred") != NULL ||
        strstr(text, "storage") != NULL)
        return;
    char whole[240];
    snprintf(whole, sizeof whole, "%s,local=%s", text, local[x->turn++ % COUNT(local)]);
    struct attn_spec spec = spec_of(whole);
    ranks = attn_parallel_ranks(&spec.options);
    for (int of = 0; of < 2 * ranks; of++) {
        struct attn_work w = attn_work_of(&x->p, &spec.options, (enum attn_pass)(of % 2), of / 2);
        int n = 0;
        for (int equal; n < w.stops; n += equal) {
            equal = attn_work_round(&w, n);
            ck_assert_int_ge(equal, 1);
            for (int later = n + 1; later < n + equal; later++, x->skipped++)
                ck_assert_msg(!stops_differ(&w, n, later),
                              "%s %s: rank %d, stop %d is not as stop %d", whole, x->mask, w.rank,
                              later, n);
        }
        ck_assert_int_eq(n, w.stops);
        int64_t count = count_all(&w);
        most = count > most ? count : most;
    }
    ck_assert_msg(impl->rescales(&x->p, &spec.options) == most, "%s %s: rescales", whole, x->mask);
}

/* Ranks that a price takes for equal are equal: the same extents, the same pairs.  Blocks that
 * differ in size, that are empty, that a mask cuts anywhere. */
static const char *const cut_by[] = {"none",
                                     "causal(br)",
                                     "causal(-9)&window(7,5,br)",
                                     "window(9,0,tl)",
                                     "causal(ends,20,41)",
                                     "prefix(11)|causal(tl)",
                                     "keys(13,30)&window(19,6,br)",
                                     "global(5)|window(2,2,br)",
                                     "random(0.2,3,heads)",
                                     "documents(7x20,10x3,12x18)&causal(+3)",
                                     "documents(0x5,20x30,9x6)"};
TEST_EACH(equal_stops_are_priced_once, 2 * COUNT(cut_by))
{
    struct attn_mask *mask = mask_of(cut_by[_i / 2], (struct attn_mask_shape){2, 4, 29, 41});
    struct rounds x = {.p = problem_of("b2h4g2q29k41d4:none:f32:normal:s1", mask),
                       .mask = cut_by[_i / 2],
                       .turn = _i};
    for (int ranks = 2 + _i % 2; ranks <= 14; ranks += 4)
        scheme_walk(ranks, check_rounds, &x);
    attn_mask_free(mask);
    ck_assert_int_gt(x.skipped, 0);
}

/* The price has the pairs of all products, by a walk of all stops. */
static void check_pairs(const struct attn_work *at, const char *text)
{
    struct attn_work w = *at;
    struct attn_stop_cost stop;
    struct attn_cost cost = {0};
    double pairs = 0;
    for (int n = 0; n < w.stops; n++) {
        attn_work_go(&w, n);
        ck_assert_int_eq(attn_work_stop_cost(&w, &stop, NULL), ATTN_OK);
        pairs += stop.pairs;
    }
    ck_assert_int_eq(attn_parallel_cost(at->whole, at->options, at->pass, at->rank, &cost, NULL),
                     ATTN_OK);
    ck_assert_msg(cost.pairs == pairs, "%s: rank %d has %g pairs, not %g", text, at->rank,
                  cost.pairs, pairs);
}

/* Stops that differ in pairs alone: blocks of one size, and of two. */
TEST_EACH(pairs_are_counted_together, 12)
{
    static const char *const specs[] = {"ring:ranks=4", "ring:ranks=4,order=striped",
                                        "ring:ranks=4,order=zigzag,local=gemm",
                                        "ring:ranks=6,inner=3,local=csr"};
    static const char *const masks[] = {"random(0.3,1)", "random(0.3,2,heads)",
                                        "random(0.5,3)&window(40,9,br)"};
    struct attn_spec spec = spec_of(specs[_i % 4]);
    for (int length = 96; length < 99; length += 2) {
        struct attn_mask *mask =
            mask_of(masks[_i / 4], (struct attn_mask_shape){2, 4, length, length});
        struct attn_problem p = problem_of("b2h4g2q96d8:none:f32:normal:s1", mask);
        p.n_query = p.n_key = length;
        for (int of = 0; of < 2 * attn_parallel_ranks(&spec.options); of++) {
            struct attn_work w = attn_work_of(&p, &spec.options, (enum attn_pass)(of % 2), of / 2);
            check_pairs(&w, specs[_i % 4]);
        }
        attn_mask_free(mask);
    }
}

/* 4,096 ranks: most of a rank's stops are equal, whatever the order of its tokens. */
TEST_EACH(few_rounds_of_many_ranks, 4)
{
    static const char *const specs[] = {"ring:ranks=4096", "ring:ranks=4096,order=striped",
                                        "ring:ranks=4096,order=zigzag", "ring:ranks=4096,inner=64"};
    static const char *const masks[] = {"none", "causal(br)", "window(300,0,br)"};
    struct attn_spec spec = spec_of(specs[_i]);
    for (int m = 0; m < COUNT(masks); m++) {
        struct attn_mask *mask =
            mask_of(masks[m], (struct attn_mask_shape){1, 4, 1000003, 1000003});
        struct attn_problem p = problem_of("h4g2q1000003d4:none:f32:normal:s1", mask);
        for (int rank = 0; rank < 4096; rank += 91) {
            struct attn_work w = attn_work_of(&p, &spec.options, ATTN_FORWARD, rank);
            int rounds = 0;
            for (int n = 0; n < w.stops; n += attn_work_round(&w, n))
                rounds++;
            ck_assert_msg(rounds <= 24, "%s %s: rank %d has %d rounds", specs[_i], masks[m], rank,
                          rounds);
        }
        attn_mask_free(mask);
    }
}

/* A block of which a band or documents hide all is not computed: not even where tokens lie P apart
 * and the smallest block of the whole that holds them is not hidden. */
TEST(hidden_is_known)
{
    static const char *const mask[] = {"window(3,0,br)", "window(0,2,tl)", "causal(br)",
                                       "documents(7,1,2,15,22)"};
    int hidden = 0;
    for (int m = 0; m < (int)COUNT(mask) * 3; m++) {
        struct attn_mask *of = mask_of(mask[m / 3], (struct attn_mask_shape){1, 1, 47, 47});
        struct attn_problem p = problem_of("q47d8:none:f32:normal:s1", of);
        struct attn_spec spec = spec_of(m % 3 == 0   ? "ring:ranks=9"
                                        : m % 3 == 1 ? "ring:ranks=9,order=striped"
                                                     : "ring:ranks=9,order=zigzag");
        struct attn_work w = attn_work_of(&p, &spec.options, ATTN_FORWARD, 0);
        for (int n = 0; n < 81; n++) {
            struct attn_box q = attn_work_box(&w, 0, n / 9), k = attn_work_box(&w, 1, n % 9);
            for (int s = 0; s < q.stretches * k.stretches; s++) {
                struct attn_problem part = attn_piece_of(&p, &q.heads, &q.stretch[s % q.stretches],
                                                         &k.stretch[s / q.stretches]);
                int counted = 0, is_hidden = attn_problem_all_pairs(&part, &counted) == 0;
                ck_assert_msg(attn_piece_is_hidden(&part) == is_hidden, "%s, %d", mask[m / 3], n);
                hidden += is_hidden;
            }
        }
        attn_mask_free(of);
    }
    ck_assert_int_gt(hidden, 400);
}
