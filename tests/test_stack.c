/* A stack of layers: its price is what its ledger holds, for every spec and what each may save; and
 * both are what stack.h says in words, worked out here by hand. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/measure/point.h"
#include "experiments/measure/stack.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/fixtures/memory_data.h"
#include "tests/suites.h"

SUITE(stack, .seconds = 60);

enum { LAYERS = 3 };

static const char *const cases[] = {
    "b2h4g2q65k33d24v16:none:f32:normal:s1",
    "h2q40d8:causal(br)&window(9,0,br):f64:normal:s1",
    "h2q40d16:random(0.5,1):bf16:normal:s1",
};
enum { CASES = sizeof cases / sizeof cases[0] };

/* The point process's own code, here: what it measured. */
static struct attn_point *run(const struct attn_spec *spec, const char *text, enum attn_pass half,
                              enum attn_stack_save save)
{
    static struct attn_work work;
    const struct attn_point_flags flags = {.repeat = 1, .verify_all = 2048};
    memset(&work, 0, sizeof work);
    attn_point_init(&work.point);
    work.spec = *spec;
    work.point.c = case_of(text);
    work.point.c.pass = half;
    attn_case_print(&work.point.c, work.point.text);
    work.point.layers = LAYERS;
    snprintf(work.point.save, sizeof work.point.save, "%s", attn_stack_save_name(save));
    attn_point_call(&work, &flags);
    return &work.point;
}

static enum attn_status price(const struct attn_spec *spec, const char *text, enum attn_pass half,
                              enum attn_stack_save save, int64_t n, struct attn_stack_cost *cost,
                              struct attn_error *err)
{
    struct attn_setup setup;
    const struct attn_stack layers = {n, save};
    setup_of(text, &setup);
    enum attn_status status = attn_stack_price(&layers, spec, &setup.problem, half, cost, err);
    attn_setup_close(&setup);
    return status;
}

/* Names and bytes; the price's own is its peak. */
static void check_live(const char *what, const struct attn_cost *cost, const struct attn_point *p)
{
    int64_t sum = 0;
    ck_assert_msg(cost->n_live == p->n_live, "%s: %d names priced, %d held", what, cost->n_live,
                  p->n_live);
    for (int a = 0; a < cost->n_live; a++) {
        int64_t held = -1;
        for (int b = 0; b < p->n_live; b++)
            if (strcmp(p->live_name[b], cost->live[a].name) == 0)
                held = p->live_bytes[b];
        ck_assert_msg(held == cost->live[a].bytes, "%s: '%s' priced %lld, held %lld", what,
                      cost->live[a].name, (long long)cost->live[a].bytes, (long long)held);
        sum += held;
    }
    ck_assert_msg(sum == p->ledger_bytes && sum == cost->peak_bytes, "%s: priced %lld, held %lld",
                  what, (long long)cost->peak_bytes, (long long)p->ledger_bytes);
}

/* Every spec, and whatever it does not refuse. */
TEST_EACH(price_is_ledger, memory_specs(NULL))
{
    struct attn_spec list[MEMORY_SPECS];
    char name[128], what[512];
    int n = memory_specs(list), held = 0;
    ck_assert_int_lt(_i, n);
    attn_spec_print(&list[_i], name, sizeof name);
    for (int c = 0; c < CASES; c++)
        for (int save = 0; save < ATTN_SAVES; save++)
            for (int half = ATTN_FORWARD; half <= (int)ATTN_BACKWARD; half++) {
                struct attn_stack_cost cost;
                struct attn_error err = {0};
                enum attn_stack_save kept = (enum attn_stack_save)save;
                enum attn_status status =
                    price(&list[_i], cases[c], (enum attn_pass)half, kept, LAYERS, &cost, &err);
                const struct attn_point *p = run(&list[_i], cases[c], (enum attn_pass)half, kept);
                snprintf(what, sizeof what, "%s, save %s, %s, %.200s", name,
                         attn_stack_save_name(kept), attn_pass_name((enum attn_pass)half),
                         cases[c]);
                if (status == ATTN_ENOTSUP) {
                    ck_assert_msg(p->status == ATTN_POINT_REFUSED, "%s: %s", what, p->message);
                    continue;
                }
                ck_assert_msg(status == ATTN_OK, "%s: %s", what, err.text);
                ck_assert_msg(p->status == ATTN_POINT_OK, "%s: %s", what, p->message);
                check_live(what, &cost.cost, p);
                ck_assert_msg((p->again_s > 0) == (cost.again_flops > 0), "%s: again", what);
                held++;
            }
    ck_assert_msg(held > 0 || list[_i].impl->ranks != NULL, "%s runs in no stack", name);
}

/* ---- by hand --------------------------------------------------------------------------------- */

/* b1 h2 q=k=96 d=dv=32 in f32: q, k, v, o and their gradients are 2*96*32*4 bytes each, lse 2*96*4.
 * P in panels of the portable kernels' 12 queries, with room for 8 keys
 * more: 2*96*(96+8)*4. */
static const char hand[] = "h2q96d32:none:f32:normal:s1";
enum { TENSOR = 24576, LSE = 768, P = 79872 };

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* ws: what one pass needs beside its tensors, P included. */
static int64_t by_hand(enum attn_pass half, enum attn_stack_save save, int64_t n, int64_t p,
                       const int64_t ws[2])
{
    int64_t inputs = 3 * TENSOR, rows = TENSOR + LSE, gradients = 3 * TENSOR, d_o = TENSOR;
    if (half == ATTN_FORWARD)
        return save == ATTN_SAVE_PROBS  ? n * (inputs + rows + p) + ws[0] - p
               : save == ATTN_SAVE_ROWS ? n * (inputs + rows) + ws[0]
                                        : n * inputs + rows + ws[0];
    if (save == ATTN_SAVE_PROBS)
        return n * (inputs + rows + p) + d_o + gradients + ws[1] - p;
    if (save == ATTN_SAVE_ROWS)
        return n * (inputs + rows) + d_o + gradients + ws[1];
    return n * inputs + rows + d_o + larger(ws[0], gradients + ws[1]);
}

static int64_t saved_by_hand(enum attn_stack_save save, int64_t n, int64_t p)
{
    int64_t each = 3 * TENSOR + (save != ATTN_SAVE_INPUTS ? TENSOR + LSE : 0);
    return n * (each + (save == ATTN_SAVE_PROBS ? p : 0));
}

static void check_by_hand(const char *name, int64_t p, enum attn_stack_save save, int64_t n)
{
    const struct attn_spec spec = spec_of(name);
    struct attn_setup setup;
    struct attn_cost one[2];
    int64_t ws[2];
    setup_of(hand, &setup);
    for (int half = 0; half < 2; half++) {
        ck_assert_int_eq(attn_price(spec.impl, &spec.options, &setup.problem, (enum attn_pass)half,
                                    0, &one[half], NULL),
                         ATTN_OK);
        ws[half] = one[half].peak_bytes;
    }
    attn_setup_close(&setup);
    for (int half = 0; half < 2; half++) {
        struct attn_stack_cost cost;
        double again = half == 1 && save == ATTN_SAVE_INPUTS ? (double)n * one[0].flops : 0;
        ck_assert_int_eq(price(&spec, hand, (enum attn_pass)half, save, n, &cost, NULL), ATTN_OK);
        ck_assert_int_eq(cost.cost.peak_bytes, by_hand((enum attn_pass)half, save, n, p, ws));
        ck_assert_int_eq(cost.cost.saved_bytes, saved_by_hand(save, n, p));
        ck_assert_double_eq(cost.again_flops, again);
        ck_assert_double_eq(cost.cost.flops, (double)n * one[half].flops + again);
    }
}

TEST(price_is_what_the_words_say)
{
    for (int64_t n = 1; n <= 28; n += 9) {
        check_by_hand("gemm:save=probs@portable", P, ATTN_SAVE_PROBS, n);
        check_by_hand("gemm:save=probs@portable", P, ATTN_SAVE_INPUTS, n);
        check_by_hand("dense", 0, ATTN_SAVE_ROWS, n);
        check_by_hand("tiled", 0, ATTN_SAVE_ROWS, n);
        check_by_hand("tiled", 0, ATTN_SAVE_INPUTS, n);
        check_by_hand("csr", 0, ATTN_SAVE_INPUTS, n);
    }
}

/* ---- refusals -------------------------------------------------------------------------------- */

TEST(what_cannot_be_is_refused)
{
    static const struct {
        const char *spec;
        enum attn_stack_save save;
        const char *words;
    } refused[] = {
        {"tiled", ATTN_SAVE_PROBS, "tiled leaves no P"},
        {"dense", ATTN_SAVE_PROBS, "gemm:save=probs"},
        {"gemm:save=probs", ATTN_SAVE_ROWS, "save=probs or inputs would work"},
        {"ring", ATTN_SAVE_ROWS, "ring has ranks"},
    };
    for (size_t r = 0; r < sizeof refused / sizeof *refused; r++) {
        const struct attn_spec spec = spec_of(refused[r].spec);
        struct attn_stack_cost cost;
        struct attn_error err = {0};
        ck_assert_int_eq(price(&spec, hand, ATTN_FORWARD, refused[r].save, 2, &cost, &err),
                         ATTN_ENOTSUP);
        ck_assert_msg(strstr(err.text, refused[r].words) != NULL, "%s", err.text);
    }
}

/* More layers than any machine holds are a price still; more bytes than 64 bits count are not. */
TEST(prices_are_of_any_size)
{
    const struct attn_spec spec = spec_of("tiled");
    struct attn_problem p = {.batch = 1,
                             .heads = 16,
                             .kv_heads = 16,
                             .n_query = 1 << 20,
                             .n_key = 1 << 20,
                             .d_key = 72,
                             .d_value = 72,
                             .scale = 1,
                             .dtype = ATTN_BF16};
    struct attn_stack layers = {1000, ATTN_SAVE_ROWS};
    struct attn_stack_cost cost;
    struct attn_error err = {0};
    ck_assert_int_eq(attn_stack_price(&layers, &spec, &p, ATTN_BACKWARD, &cost, &err), ATTN_OK);
    ck_assert_int_eq(cost.cost.saved_bytes, 1000 * (4 * (16LL << 20) * 72 * 2 + (16LL << 20) * 4));
    layers.n = ATTN_STACK_MOST;
    p.n_query = p.n_key = 1LL << 30;
    ck_assert_int_eq(attn_stack_price(&layers, &spec, &p, ATTN_FORWARD, &cost, &err), ATTN_EINVAL);
    ck_assert_msg(strstr(err.text, "exceeds 64 bits") != NULL, "%s", err.text);
}
