/* A stack of layers: its price is what its ledger holds, for every spec and what each may save; and
 * both are what stack.h says in words, worked out here by hand. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/measure/point/point_work.h"
#include "experiments/price/stack.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/fixtures/external_fixture.h"
#include "tests/fixtures/memory_data.h"
#include "tests/fixtures/refused.h"
#include "tests/fixtures/scratch.h"
#include "tests/suites.h"

SUITE(stack, .open = scratch_open, .close = scratch_close);

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
    static struct attn_point p;
    const struct attn_point_how how = {.repeat = 1, .verify_all = 2048};
    attn_point_init(&p);
    attn_spec_print(spec, p.spec, sizeof p.spec);
    p.c = case_of(text);
    p.c.pass = half;
    attn_case_print(&p.c, p.text);
    p.stack = (struct attn_stack){LAYERS, save, 0, 0};
    attn_point_measure_spec(&how, spec, &p);
    return &p;
}

static enum attn_status price(const struct attn_spec *spec, const char *text, enum attn_pass half,
                              const struct attn_stack *layers, struct attn_stack_cost *cost,
                              struct attn_error *err)
{
    struct attn_setup setup;
    setup_of(text, &setup);
    enum attn_status status = attn_stack_price(layers, spec, &setup.problem, half, cost, err);
    attn_setup_close(&setup);
    return status;
}

/* Names and bytes; the price's own is its peak. */
static void check_live(const char *what, const struct attn_cost *cost, const struct attn_point *p)
{
    struct attn_account live[ATTN_MAX_ACCOUNTS];
    for (int a = 0; a < p->n_live; a++)
        live[a] = (struct attn_account){.name = p->live_name[a], .bytes = p->live_bytes[a]};
    ck_priced(what, cost, live, p->n_live, p->ledger_bytes);
}

/* One half, priced and measured; NULL: refused by both. */
static const struct attn_point *check_half(const struct attn_spec *spec, const char *text,
                                           enum attn_pass half, enum attn_stack_save save)
{
    const struct attn_stack layers = {LAYERS, save, 0, 0};
    struct attn_stack_cost cost;
    struct attn_error err = {0};
    char name[128], stack[ATTN_STACK_TEXT], what[512];
    enum attn_status status = price(spec, text, half, &layers, &cost, &err);
    const struct attn_point *p = run(spec, text, half, save);
    attn_spec_print(spec, name, sizeof name);
    snprintf(what, sizeof what, "%s, %s, %s, %.200s", name, attn_stack_print(&layers, stack),
             attn_pass_name(half), text);
    if (status == ATTN_ENOTSUP) {
        ck_assert_msg(p->status == ATTN_POINT_REFUSED, "%s: %s", what, p->message);
        return NULL;
    }
    ck_assert_msg(status == ATTN_OK, "%s: %s", what, err.text);
    ck_assert_msg(p->status == ATTN_POINT_OK, "%s: %s", what, p->message);
    check_live(what, &cost.cost, p);
    ck_assert_msg((p->again_s > 0) == (cost.again_flops > 0), "%s: again", what);
    ck_assert_msg((p->again_s > 0) == (half == ATTN_BACKWARD && save == ATTN_SAVE_INPUTS), "%s",
                  what);
    return p;
}

/* Every spec, and whatever it does not refuse. */
TEST_EACH(price_is_ledger, memory_specs(NULL))
{
    struct attn_spec list[MEMORY_SPECS];
    int n = memory_specs(list), checked = 0;
    ck_assert_int_lt(_i, n);
    for (int c = 0; c < CASES; c++)
        for (int save = 0; save < ATTN_SAVES; save++)
            for (int half = ATTN_FORWARD; half <= (int)ATTN_BACKWARD; half++)
                checked += check_half(&list[_i], cases[c], (enum attn_pass)half,
                                      (enum attn_stack_save)save) != NULL;
    ck_assert(checked > 0 || list[_i].impl->ranks != NULL);
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
    const struct attn_problem problem = problem_of(hand, NULL);
    const struct attn_cost one[2] = {price_of(&spec, &problem, ATTN_FORWARD, 0),
                                     price_of(&spec, &problem, ATTN_BACKWARD, 0)};
    const int64_t ws[2] = {one[0].peak_bytes, one[1].peak_bytes};
    for (int half = 0; half < 2; half++) {
        struct attn_stack_cost cost;
        double again = half == 1 && save == ATTN_SAVE_INPUTS ? (double)n * one[0].flops : 0;
        const struct attn_stack layers = {n, save, 0, 0};
        ck_assert_int_eq(price(&spec, hand, (enum attn_pass)half, &layers, &cost, NULL), ATTN_OK);
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

/* ---- what is wrong --------------------------------------------------------------------------- */

/* An implementation that spoils an element of O from its nth call on. */
static int spoils_from, n_calls;

static enum attn_status spoil(struct attn_ctx *ctx, const struct attn_problem *p,
                              const struct attn_forward *t)
{
    enum attn_status status = attn_impl_find("tiled")->forward(ctx, p, t);
    if (n_calls++ >= spoils_from)
        *(float *)t->o.data += 1;
    return status;
}

/* Wrong in every layer is wrong; wrong in another than the first is other bits. */
TEST_EACH(what_is_wrong_is_found, 2)
{
    struct attn_spec spec = spec_of("tiled");
    struct attn_impl bad = *spec.impl;
    bad.forward = spoil;
    spec.impl = &bad;
    n_calls = 0;
    spoils_from = _i;
    const struct attn_point *p =
        run(&spec, "h2q16d8:none:f32:normal:s1", ATTN_FORWARD, ATTN_SAVE_ROWS);
    ck_assert_msg(p->status == (spoils_from == 0 ? ATTN_POINT_WRONG : ATTN_POINT_ERROR), "%s",
                  p->message);
    ck_assert_msg(spoils_from == 0 || strstr(p->message, "layer.o of a layer has other bits"), "%s",
                  p->message);
}

/* 28 layers of STDiT-XL/2, rows: what is left between the halves, from the shapes alone. */
TEST(hidden_by_hand)
{
    const struct attn_spec spec = spec_of("tiled");
    const struct attn_stack rows = {28, ATTN_SAVE_ROWS, 1152, 0},
                            inputs = {28, ATTN_SAVE_INPUTS, 1152, 0};
    struct attn_problem p = problem_of("h16q4096d72:none:f32:normal:s1", NULL);
    const int64_t x = 4096 * 1152 * 4, weights = 4 * 1152 * 1152 * 4, lse = 16 * 4096 * 4;
    struct attn_stack_cost cost;
    ck_assert_int_eq(attn_stack_price(&rows, &spec, &p, ATTN_FORWARD, &cost, NULL), ATTN_OK);
    ck_assert_int_eq(cost.cost.saved_bytes, 28 * (weights + x + 4 * x + lse));
    ck_assert_int_eq(attn_stack_price(&inputs, &spec, &p, ATTN_FORWARD, &cost, NULL), ATTN_OK);
    ck_assert_int_eq(cost.cost.saved_bytes, 28 * (weights + x));
    p.dtype = ATTN_BF16; /* LSE is float32 all the same */
    ck_assert_int_eq(attn_stack_price(&rows, &spec, &p, ATTN_FORWARD, &cost, NULL), ATTN_OK);
    ck_assert_int_eq(cost.cost.saved_bytes, 28 * (weights + x + 4 * x) / 2 + 28 * lse);
    ck_assert_int_eq(attn_stack_price(&rows, &spec, &p, ATTN_BACKWARD, &cost, NULL), ATTN_OK);
    ck_assert_int_eq(attn_account_bytes(cost.cost.live, cost.cost.n_live, "layer.lse"), 28 * lse);
    struct attn_error err = {0};
    p.dtype = ATTN_F32;
    p.softcap = 5;
    ck_refusal(attn_stack_price(&rows, &spec, &p, ATTN_FORWARD, &cost, &err), ATTN_ENOTSUP, &err,
               "neither a softcap nor a bias");
    p.softcap = 0;
    p.n_key = 77;
    ck_refusal(attn_stack_price(&rows, &spec, &p, ATTN_FORWARD, &cost, &err), ATTN_EINVAL, &err,
               "attends to itself");
}

/* Scores as Megatron keeps them, 5 a s s bytes a layer; and the blocks of a backward call alone. */
TEST(added_by_hand)
{
    const struct attn_spec spec = spec_of("gemm:save=probs");
    struct attn_problem p = problem_of("h8g2q512d64:none:bf16:normal:s1", NULL);
    struct attn_stack layers = {.n = 3};
    struct attn_stack_cost cost, plain;
    struct attn_error err = {0};
    ck_assert_int_eq(attn_stack_save_parse("probs+softmax+mask+f32+expanded", &layers, &err),
                     ATTN_OK);
    ck_assert_int_eq(attn_stack_price(&layers, &spec, &p, ATTN_BACKWARD, &cost, NULL), ATTN_OK);
    ck_assert_int_eq(cost.cost.saved_bytes,
                     3 * (5 * 8 * 512 * 512 + 512 * 64 * 2 * (8 + 2 + 2 + 8) + 8 * 512 * 4));
    layers.adds = ATTN_STACK_MASK | ATTN_STACK_SOFTMAX;
    ck_assert_int_eq(attn_stack_price(&layers, &spec, &p, ATTN_BACKWARD, &plain, NULL), ATTN_OK);
    ck_assert_int_eq(cost.cost.peak_bytes - plain.cost.peak_bytes,
                     512 * 2 * 64 * (8 * 2 + 2 * 4)); /* dK and dV */
    ck_refusal(attn_stack_save_parse("probs+maks", &layers, &err), ATTN_EINVAL, &err,
               "+mask|softmax");
}

/* ---- refusals -------------------------------------------------------------------------------- */

TEST(what_cannot_be_is_refused)
{
    static const struct {
        const char *spec;
        enum attn_stack_save save;
        const char *words;
        int adds;
    } refused[] = {
        {"tiled", ATTN_SAVE_PROBS, "tiled leaves no P", 0},
        {"dense", ATTN_SAVE_PROBS, "gemm:save=probs", 0},
        {"tiled", ATTN_SAVE_ROWS, "tiled leaves no P, beside which a mask", ATTN_STACK_MASK},
        {"gemm:save=probs", ATTN_SAVE_ROWS, "save=probs or inputs would work", 0},
        {"ring", ATTN_SAVE_ROWS, "ring has ranks", 0},
    };
    for (size_t r = 0; r < sizeof refused / sizeof *refused; r++) {
        const struct attn_spec spec = spec_of(refused[r].spec);
        struct attn_stack_cost cost;
        struct attn_error err = {0};
        const struct attn_stack layers = {2, refused[r].save, 0, refused[r].adds};
        ck_refusal(price(&spec, hand, ATTN_FORWARD, &layers, &cost, &err), ATTN_ENOTSUP, &err,
                   refused[r].words);
    }
}

/* More layers than any machine holds are a price still; more bytes than 64 bits count are not. */
TEST(prices_are_of_any_size)
{
    const struct attn_spec spec = spec_of("tiled");
    struct attn_problem p = problem_of("h16q1048576d72:none:bf16:normal:s1", NULL);
    struct attn_stack layers = {1000, ATTN_SAVE_ROWS, 0, 0};
    struct attn_stack_cost cost;
    struct attn_error err = {0};
    ck_assert_int_eq(attn_stack_price(&layers, &spec, &p, ATTN_BACKWARD, &cost, &err), ATTN_OK);
    ck_assert_int_eq(cost.cost.saved_bytes, 1000 * (4 * (16LL << 20) * 72 * 2 + (16LL << 20) * 4));
    layers.n = ATTN_STACK_MOST;
    p.n_query = p.n_key = 1LL << 30;
    ck_refusal(attn_stack_price(&layers, &spec, &p, ATTN_FORWARD, &cost, &err), ATTN_EINVAL, &err,
               "exceeds 64 bits");
}

/* ---- a sweep --------------------------------------------------------------------------------- */

/* As many blocks as there are: a stack is measured however deep it is. */
TEST(a_deep_stack)
{
    struct attn_records records;
    struct attn_error err = {0};
    ck_assert_int_eq(fixture_shell("'%s/attnlab' measure tiled --length 16 --layers 300 --pass bwd "
                                   "--rounds 1 --repeat 1 --quiet --out '%s' >/dev/null 2>&1",
                                   test_build(), scratch_path("deep.jsonl")),
                     0);
    ck_assert_msg(attn_record_read(scratch_path("deep.jsonl"), &records, &err) == ATTN_OK, "%s",
                  err.text);
    ck_assert_int_eq(records.n, 1);
    ck_assert_int_eq(records.point[0].status, ATTN_POINT_OK);
    ck_assert_int_eq(records.point[0].price.peak, records.point[0].ledger_bytes);
    attn_records_free(&records);
}
