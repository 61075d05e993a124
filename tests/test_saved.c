/* What a forward pass saves for the backward one: priced, on the ledger between the passes, read by
 * the backward pass, optional for it, and nobody else's. */
#include "tests/suites.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "optimized/simd/isa.h"
#include "ref/problem.h"
#include "tests/fixtures/memory_data.h"

/* Panels that are full and cut, keys hidden and not, kv heads shared, a bias, a softcap. */
static const char *const cases[] = {"h2q100k130d16:none:f32:normal:s1:pass=bwd",
                                    "b2h4g2q61k50d8v5:causal(br):f64:normal:s2:pass=bwd",
                                    "h2q70k70d8:window(9,0,br):bf16:normal:s3:pass=bwd",
                                    "q50k50d8:causal(tl):f32:normal:s4:pass=bwd:bias=full:dbias=1",
                                    "q50k50d8:none:f32:normal:s5:pass=bwd:softcap=2"};
enum { CASES = sizeof cases / sizeof cases[0] };

/* A problem, who solves it, and what is saved of it. */
struct lab {
    struct attn_spec spec;
    struct attn_setup setup;
    struct attn_ledger ledger;
    struct attn_error err;
    struct attn_saved saved;
    struct attn_ctx ctx;
};

static void lab_open(struct lab *lab, const char *spec, const char *text)
{
    memset(lab, 0, sizeof *lab);
    ck_assert_msg(attn_spec_parse(spec, &lab->spec, &lab->err) == ATTN_OK, "%s", lab->err.text);
    memory_open(text, &lab->setup);
    attn_ledger_init(&lab->ledger, NULL);
    lab->ledger.poison = 1;
    lab->ctx = (struct attn_ctx){.ledger = &lab->ledger,
                                 .options = &lab->spec.options,
                                 .error = &lab->err,
                                 .saved = &lab->saved};
}

static enum attn_status lab_run(struct lab *lab, enum attn_pass pass)
{
    if (pass == ATTN_FORWARD) {
        struct attn_forward t = attn_setup_forward(&lab->setup);
        return attn_run_forward(lab->spec.impl, &lab->ctx, &lab->setup.problem, &t);
    }
    struct attn_backward t = attn_setup_backward(&lab->setup);
    return attn_run_backward(lab->spec.impl, &lab->ctx, &lab->setup.problem, &t);
}

static void lab_good(struct lab *lab, enum attn_pass pass)
{
    ck_assert_msg(lab_run(lab, pass) == ATTN_OK, "%s", lab->err.text);
}

/* The call is refused, with these words, and what was saved is still there. */
static void lab_refused(struct lab *lab, enum attn_pass pass, const char *words)
{
    void *data = lab->saved.data;
    ck_assert_int_eq(lab_run(lab, pass), ATTN_EINVAL);
    ck_assert_msg(strstr(lab->err.text, words) != NULL, "'%s' lacks '%s'", lab->err.text, words);
    ck_assert_ptr_eq(lab->saved.data, data);
}

static void lab_close(struct lab *lab)
{
    attn_saved_drop(&lab->saved, &lab->ledger);
    ck_assert_int_eq(attn_ledger_clear(&lab->ledger), 0);
    ck_assert_int_eq(lab->ledger.damaged, 0);
    attn_setup_close(&lab->setup);
}

/* Bytes that a price says are saved. */
static int64_t priced(const struct lab *lab, enum attn_pass pass, int64_t *peak)
{
    struct attn_cost cost;
    ck_assert_int_eq(
        attn_price(lab->spec.impl, &lab->spec.options, &lab->setup.problem, pass, 0, &cost, NULL),
        ATTN_OK);
    *peak = cost.peak_bytes;
    return cost.saved_bytes;
}

START_TEST(lives_between_the_passes)
{
    struct lab lab;
    int64_t peak;
    lab_open(&lab, "gemm:save=probs", cases[_i]);
    lab_good(&lab, ATTN_FORWARD);
    ck_assert_int_eq(lab.saved.bytes, priced(&lab, ATTN_FORWARD, &peak));
    ck_assert_int_eq(lab.ledger.now, lab.saved.bytes);
    ck_assert_int_eq(lab.ledger.peak, peak);
    ck_assert_int_eq(lab.saved.bytes > 0, !(lab.setup.problem.softcap > 0));
    for (int call = 0; call < 2; call++) { /* it may be read again */
        attn_ledger_restart(&lab.ledger);
        lab_good(&lab, ATTN_BACKWARD);
        ck_assert_int_eq(lab.saved.bytes, priced(&lab, ATTN_BACKWARD, &peak));
        ck_assert_int_eq(lab.ledger.peak, peak);
        ck_assert_int_eq(lab.ledger.now, lab.saved.bytes);
    }
    lab_close(&lab);
}
END_TEST

/* Nobody saves who is not told to, nor where nobody asks. */
START_TEST(nothing_unasked)
{
    struct attn_spec list[MEMORY_SPECS];
    int n = memory_specs(list);
    for (int s = 0; s < n; s++) {
        struct lab lab;
        char name[128];
        attn_spec_print(&list[s], name, sizeof name);
        lab_open(&lab, name, "h4q32k32d8:none:f32:normal:s1");
        lab.ctx.saved = strcmp(name, "gemm:save=probs") == 0 ? NULL : &lab.saved;
        lab_good(&lab, ATTN_FORWARD);
        ck_assert_msg(lab.saved.data == NULL && lab.ledger.now == 0, "%s", name);
        lab_close(&lab);
    }
}
END_TEST

/* Without P there would be no dV: the backward pass has it from nowhere else. */
START_TEST(is_what_backward_reads)
{
    struct lab lab;
    lab_open(&lab, "gemm:save=probs", cases[0]);
    lab_good(&lab, ATTN_FORWARD);
    lab_good(&lab, ATTN_BACKWARD);
    const struct attn_tensor *dv = &lab.setup.tensor[ATTN_T_DV];
    struct attn_cview view = attn_tensor_cview(dv);
    ck_assert_double_gt(fabs(attn_cview_get(&view, 0, 0, 3, 2)), 0);
    memset(lab.saved.data, 0, (size_t)lab.saved.bytes);
    lab_good(&lab, ATTN_BACKWARD);
    ck_assert_double_eq(attn_cview_get(&view, 0, 0, 3, 2), 0);
    lab_close(&lab);
}
END_TEST

START_TEST(others_are_refused)
{
    struct lab lab;
    unsetenv("ATTN_ISA");
    const struct attn_isa *best = attn_isa_best(&lab.err);
    lab_open(&lab, "gemm:save=probs", cases[0]);
    lab_good(&lab, ATTN_FORWARD);
    lab_refused(&lab, ATTN_FORWARD, "bytes are saved already");
    const struct attn_problem problem = lab.setup.problem;
    lab.setup.problem.scale *= 2;
    lab_refused(&lab, ATTN_BACKWARD, "for another problem");
    lab.setup.problem = problem;
    lab.spec.options.value[0] = 0;
    lab_refused(&lab, ATTN_BACKWARD, "under other options");
    lab.spec.options.value[0] = 1;
    const struct attn_impl *impl = lab.spec.impl;
    lab.spec.impl = attn_impl_find("dense");
    lab_refused(&lab, ATTN_BACKWARD, "what a forward pass of gemm saved");
    lab.spec.impl = impl;
    lab.setup.problem.origin.query = 1;
    lab_refused(&lab, ATTN_BACKWARD, "for another problem");
    lab.setup.problem = problem;
    setenv("ATTN_ISA", "portable", 1); /* panels of 12 queries, not of 24 or 48 */
    if (attn_isa_best(&lab.err) != best)
        lab_refused(&lab, ATTN_BACKWARD, "both must run on one instruction set");
    unsetenv("ATTN_ISA");
    lab_good(&lab, ATTN_BACKWARD);
    lab_close(&lab);
}
END_TEST

/* A forward pass that fails saves nothing. */
START_TEST(failure_saves_nothing)
{
    for (int64_t take = 0;; take++) {
        struct lab lab;
        lab_open(&lab, "gemm:save=probs", cases[0]);
        lab.ledger.fail_at = take;
        enum attn_status status = lab_run(&lab, ATTN_FORWARD);
        int64_t takes = lab.ledger.takes;
        ck_assert_int_eq(status, take < takes ? ATTN_ENOMEM : ATTN_OK);
        ck_assert_int_eq(lab.saved.data != NULL, status == ATTN_OK);
        ck_assert_int_eq(lab.ledger.now > 0, status == ATTN_OK);
        lab_close(&lab);
        if (status == ATTN_OK)
            break;
    }
}
END_TEST

Suite *suite_saved(void)
{
    Suite *suite = suite_create("saved");
    TCase *tcase = tcase_create("saved");
    tcase_add_loop_test(tcase, lives_between_the_passes, 0, CASES);
    tcase_add_test(tcase, nothing_unasked);
    tcase_add_test(tcase, is_what_backward_reads);
    tcase_add_test(tcase, others_are_refused);
    tcase_add_test(tcase, failure_saves_nothing);
    suite_add_tcase(suite, tcase);
    return suite;
}
