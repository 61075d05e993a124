/* Cases made concrete: layouts, poison, mask tensors, biases. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ref/problem.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/harness/judge/runner.h"
#include "tests/suites.h"

SUITE(setup);

static double get(const struct attn_setup *s, int slot, int64_t b, int64_t h, int64_t i, int64_t c)
{
    return attn_tensor_get(&s->tensor[slot], b, h, i, c);
}

/* The same numbers lie in every layout and at every offset. */
TEST_EACH(layouts_hold_the_same_numbers, 5)
{
    static const char *const layout[] = {"blhd", "padded", "packed", "mixed", "bhld:offset=3"};
    struct attn_setup plain, other;
    char text[ATTN_CASE_TEXT];
    const char *stem = "b2h4g2q5k7d3v6:none:f32:normal:s1:bias=full:dlse=1:pass=bwd";
    setup_of(stem, &plain);
    snprintf(text, sizeof text, "%s:layout=%s", stem, layout[_i]);
    setup_of(text, &other);
    int64_t n = 0;
    for (int slot = ATTN_T_Q; slot <= ATTN_T_DLSE; slot++) {
        const int64_t *extent = plain.tensor[slot].extent;
        ck_assert_mem_eq(extent, other.tensor[slot].extent, 4 * sizeof *extent);
        int64_t at[4] = ATTN_START;
        for (; attn_each(at, extent); n++)
            ck_assert(get(&plain, slot, at[0], at[1], at[2], at[3]) ==
                      get(&other, slot, at[0], at[1], at[2], at[3]));
    }
    ck_assert_int_eq(n, 8 * 5 * 3 + 4 * 7 * (3 + 6) + 8 * 5 * (6 + 7 + 1));
    attn_setup_close(&plain);
    attn_setup_close(&other);
}

static int is_poison(double x, int big)
{
    return big ? x == (double)(float)1e30 : isnan(x);
}

/* Poison lies exactly where no visible pair looks. */
TEST_EACH(poison_lies_where_no_pair_looks, 5)
{
    static const char *const text[] = {
        "b2h4g2q9k14d3v2:causal(tl):f32:normal:s1:poison=nan:pass=bwd",
        "b2h4g2q14k9d3v2:causal(br):f32:normal:s1:poison=big:bias=full:pass=bwd",
        "b2h4g2q4k9d3v2:random(0.2,3,heads):f32:normal:s1:poison=nan:bias=inf",
        "b2h4g2q4k9d3v2:keys(5,0):f32:normal:s1:poison=nan:layout=packed:pass=bwd",
        "b2h4g2q4k9d3v2:keys(5,3):f32:normal:s1:poison=nan:layout=broadcast:pass=bwd"};
    struct attn_setup s;
    setup_of(text[_i], &s);
    const struct attn_problem *p = &s.problem;
    int big = s.given.poison == ATTN_POISON_BIG, shared = s.given.layout == ATTN_LAYOUT_BROADCAST;
    int64_t poisoned = 0;
    const int64_t keys[4] = {p->batch, p->kv_heads, p->n_key, 1};
    const int64_t queries[4] = {p->batch, p->heads, p->n_query, 1};
    for (int64_t at[4] = ATTN_START; attn_each(at, keys);) {
        int seen = 0;
        for (int64_t q[4] = ATTN_START; attn_each(q, queries);)
            seen |= (q[0] == at[0] || shared) && q[1] / 2 == at[1] &&
                    attn_problem_allows(p, q[0], q[1], q[2], at[2]);
        poisoned += !seen;
        for (int64_t c = 0; c < 3; c++)
            ck_assert_int_eq(is_poison(get(&s, ATTN_T_K, at[0], at[1], at[2], c), big), !seen);
        for (int64_t c = 0; c < 2; c++)
            ck_assert_int_eq(is_poison(get(&s, ATTN_T_V, at[0], at[1], at[2], c), big), !seen);
    }
    for (int64_t at[4] = ATTN_START; attn_each(at, queries);) {
        int sees = 0;
        for (int64_t j = 0; j < p->n_key; j++) {
            int allows = attn_problem_allows(p, at[0], at[1], at[2], j);
            sees |= allows;
            if (p->bias.kind == ATTN_BIAS_TENSOR)
                ck_assert_int_eq(is_poison(get(&s, ATTN_T_BIAS, at[0], at[1], at[2], j), 1),
                                 !allows);
        }
        poisoned += !sees;
        ck_assert_int_eq(is_poison(get(&s, ATTN_T_Q, at[0], at[1], at[2], 0), big), !sees);
        if (s.given.pass == ATTN_BACKWARD && !shared)
            ck_assert_int_eq(is_poison(get(&s, ATTN_T_DO, at[0], at[1], at[2], 0), big), !sees);
    }
    ck_assert_int_gt(poisoned, 0);
    attn_setup_close(&s);
}

/* Made-up mask tensors: their density, what they vary with, and that dense and csr agree. */
TEST_EACH(mask_tensors_are_made_from_their_names, 8)
{
    static const struct {
        const char *mask, *same; /* same: shows the same cells, another where it can */
        int by_batch, by_head, by_query;
    } made[] = {
        {"dense(bhqk50)", "csr(bhqk50)", 1, 1, 1}, {"dense(bqk50)", "dense(bqk50)", 1, 0, 1},
        {"dense(hqk50)", "dense(hqk50)", 0, 1, 1}, {"dense(qk50)", "csr(qk50)", 0, 0, 1},
        {"keys(bk50)", "keys(bk50)", 1, 0, 0},     {"keys(k50)", "keys(k50)", 0, 0, 0},
        {"csr(qk50)", "dense(qk50)", 0, 0, 1},     {"csr(bhqk50)", "dense(bhqk50)", 1, 1, 1}};
    static const int64_t pairs[4] = {2, 3, 20, 30};
    struct attn_setup s, same;
    int64_t visible = 0, batch = 0, head = 0, query = 0;
    char text[ATTN_CASE_TEXT];
    snprintf(text, sizeof text, "b2h3q20k30d2:%s:f32:normal:s1", made[_i].mask);
    setup_of(text, &s);
    snprintf(text, sizeof text, "b2h3q20k30d2:%s:f32:normal:s1", made[_i].same);
    setup_of(text, &same);
    for (int64_t at[4] = ATTN_START; attn_each(at, pairs);) {
        int here = attn_problem_allows(&s.problem, at[0], at[1], at[2], at[3]);
        ck_assert_int_eq(here, attn_problem_allows(&same.problem, at[0], at[1], at[2], at[3]));
        visible += here;
        batch += here != attn_problem_allows(&s.problem, 0, at[1], at[2], at[3]);
        head += here != attn_problem_allows(&s.problem, at[0], 0, at[2], at[3]);
        query += here != attn_problem_allows(&s.problem, at[0], at[1], 0, at[3]);
    }
    ck_assert_int_eq(batch > 0, made[_i].by_batch);
    ck_assert_int_eq(head > 0, made[_i].by_head);
    ck_assert_int_eq(query > 0, made[_i].by_query);
    /* Half of 3600 cells; a key mask has 30 or 60 independent ones. */
    ck_assert(visible > 720 && visible < 2880);
    attn_setup_close(&s);
    attn_setup_close(&same);
}

TEST(bias_has_its_shape)
{
    static const struct {
        const char *kind;
        int64_t stride[4];
    } bias[] = {{"full", {3 * 5 * 7, 5 * 7, 7, 1}},
                {"head", {0, 5 * 7, 7, 1}},
                {"row", {0, 0, 7, 1}},
                {"key", {7, 0, 0, 1}},
                {"inf", {3 * 5 * 7, 5 * 7, 7, 1}}};
    for (size_t n = 0; n < sizeof bias / sizeof *bias; n++) {
        char text[ATTN_CASE_TEXT];
        struct attn_setup s;
        snprintf(text, sizeof text, "b2h3q5k7d2:none:f64:normal:s1:pass=bwd:dbias=1:bias=%s",
                 bias[n].kind);
        setup_of(text, &s);
        ck_assert_mem_eq(s.problem.bias.tensor.stride, bias[n].stride, sizeof bias[n].stride);
        ck_assert_mem_eq(s.tensor[ATTN_T_DBIAS].stride, bias[n].stride, sizeof bias[n].stride);
        int64_t hidden = 0, whole_rows = 0;
        for (int64_t b = 0; b < 2; b++)
            for (int64_t h = 0; h < 3; h++)
                for (int64_t i = 0; i < 5; i++) {
                    int64_t row = 0;
                    for (int64_t j = 0; j < 7; j++)
                        row += isinf(get(&s, ATTN_T_BIAS, b, h, i, j)) != 0;
                    hidden += row;
                    whole_rows += row == 7;
                }
        if (strcmp(bias[n].kind, "inf") == 0)
            ck_assert(whole_rows >= 4 && whole_rows <= 8 && hidden - 7 * whole_rows > 20);
        else
            ck_assert_int_eq(hidden, 0);
        attn_setup_close(&s);
    }
    struct attn_setup s;
    setup_of("h10q5k8d2:none:f32:normal:s1:bias=alibi", &s);
    ck_assert(s.problem.bias.slope[0] == 0.5 && s.problem.bias.slope[7] == 1.0 / 256 &&
              s.problem.bias.slope[9] == 0.25 && s.problem.bias.offset == 3);
    attn_setup_close(&s);
}

TEST(setups_count_and_digest)
{
    struct attn_setup s;
    setup_of("b2h4g2q5k7d3v6:none:f32:normal:s1:pass=bwd", &s);
    int64_t q = 2 * 4 * 5 * 3, k = 2 * 2 * 7 * 3, v = 2 * 2 * 7 * 6, o = 2 * 4 * 5 * 6,
            lse = 2 * 4 * 5;
    ck_assert_int_eq(attn_setup_bytes(&s), 4 * (2 * (q + k + v + o) + lse));
    uint64_t forward = attn_setup_digest(&s, NULL, ATTN_FORWARD);
    uint64_t backward = attn_setup_digest(&s, NULL, ATTN_BACKWARD);
    attn_tensor_set(&s.tensor[ATTN_T_DV], 1, 1, 6, 5, 1);
    ck_assert(attn_setup_digest(&s, NULL, ATTN_FORWARD) == forward);
    ck_assert(attn_setup_digest(&s, NULL, ATTN_BACKWARD) != backward);
    attn_tensor_set(&s.tensor[ATTN_T_LSE], 1, 3, 4, 0, 1);
    ck_assert(attn_setup_digest(&s, NULL, ATTN_FORWARD) != forward);
    attn_setup_close(&s);
}

/* Threads, bias types, slopes and offsets are those of the problem. */
TEST(bias_fields_are_kept)
{
    struct attn_setup s;
    int nan = 0, finite = 0;
    setup_of("h6q5k7d2:none:f32:normal:s1:bias=alibi:slopes=press:alibioffset=-2", &s);
    ck_assert_int_eq(s.problem.bias.offset, -2);
    for (int h = 0; h < 4; h++) /* 2^-2, 2^-4, 2^-6, 2^-8, then 2^-1, 2^-3 */
        ck_assert(s.problem.bias.slope[h] == ldexp(1, -2 * (h + 1)));
    ck_assert(s.problem.bias.slope[4] == 0.5 && s.problem.bias.slope[5] == 0.125);
    attn_setup_close(&s);
    setup_of("h12q5k7d2:none:f32:normal:s1:bias=alibi:slopes=press", &s);
    ck_assert_int_eq(s.problem.bias.offset, 2);
    ck_assert(fabs(s.problem.bias.slope[8] - exp2(-0.5)) < 1e-15);
    ck_assert(fabs(s.problem.bias.slope[11] - exp2(-3.5)) < 1e-15);
    attn_setup_close(&s);
    setup_of("q5k7d2:none:f32:normal:s1:pass=bwd:bias=row:biastype=f64:dbias=1", &s);
    ck_assert_int_eq(s.problem.bias.tensor.dtype, ATTN_F64);
    ck_assert_int_eq(s.tensor[ATTN_T_DBIAS].dtype, ATTN_F64);
    double x = attn_tensor_get(&s.tensor[ATTN_T_BIAS], 0, 0, 1, 1);
    ck_assert((double)(float)x != x);
    attn_setup_close(&s);
    setup_of("b2h2q7k9d2:causal(br):f32:normal:s1:bias=nan", &s);
    for (int e = 0; e < 2 * 2 * 7 * 9; e++) {
        int b = e / 126, h = e / 63 % 2, i = e / 9 % 7, j = e % 9;
        int is = isnan(attn_tensor_get(&s.tensor[ATTN_T_BIAS], b, h, i, j));
        ck_assert(!is || attn_problem_allows(&s.problem, b, h, i, j));
        nan += is, finite += !is;
    }
    ck_assert(nan >= 4 && finite > 8 * nan);
    attn_setup_close(&s);
}
