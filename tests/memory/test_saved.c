/* The tensors that a forward pass saves for the backward one: it reads them, can do without them,
 * and no other pass gets them.  runner.c tests that they are priced, and on the ledger between the
 * passes. */
#include "tests/fixtures/case_fixture.h"
#include "tests/suites.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "optimized/simd/isa.h"
#include "ref/problem.h"
#include "tests/fixtures/memory_data.h"

SUITE(saved);

/* Panels that are full and cut. */
static const char panels[] = "h2q100k130d16:none:f32:normal:s1:pass=bwd";

static void fixture_open(struct running *x, const char *name, const char *text)
{
    const struct attn_spec spec = spec_of(name);
    running_open(x, &spec, text);
}

/* The call is refused, with these words, and what was saved is still there. */
static void fixture_refused(struct running *fixture, enum attn_pass pass, const char *words)
{
    void *data = fixture->saved.data;
    ck_assert_int_eq(running_pass(fixture, pass), ATTN_EINVAL);
    ck_assert_msg(strstr(fixture->err.text, words) != NULL, "'%s' lacks '%s'", fixture->err.text,
                  words);
    ck_assert_ptr_eq(fixture->saved.data, data);
}

/* It has an option save=, and not at its preset. */
static int saves(const struct attn_spec *spec)
{
    const struct attn_option *option = spec->impl->options;
    for (int o = 0; option != NULL && option[o].name != NULL; o++)
        if (strcmp(option[o].name, "save") == 0)
            return spec->options.value[o] != option[o].preset;
    return 0;
}

/* Nothing is saved without the option, nor where the caller has no place for it. */
TEST(nothing_unasked)
{
    struct attn_spec list[MEMORY_SPECS];
    int n = memory_specs(list);
    for (int s = 0; s < n; s++) {
        struct running fixture;
        char name[128];
        attn_spec_print(&list[s], name, sizeof name);
        running_open(&fixture, &list[s], "h4q32k32d8:none:f32:normal:s1");
        fixture.ctx.saved = saves(&list[s]) ? NULL : &fixture.saved;
        running_well(&fixture, ATTN_FORWARD);
        ck_assert_msg(fixture.saved.data == NULL && fixture.ledger.now == 0, "%s", name);
        running_close(&fixture);
    }
}

/* Without P there would be no dV: the backward pass has it from nowhere else. */
TEST(is_what_backward_reads)
{
    struct running fixture;
    fixture_open(&fixture, "gemm:save=probs", panels);
    running_well(&fixture, ATTN_FORWARD);
    running_well(&fixture, ATTN_BACKWARD);
    const struct attn_tensor *dv = &fixture.setup.tensor[ATTN_T_DV];
    struct attn_cview view = attn_tensor_cview(dv);
    ck_assert_double_gt(fabs(attn_cview_get(&view, 0, 0, 3, 2)), 0);
    memset(fixture.saved.data, 0, (size_t)fixture.saved.bytes);
    running_well(&fixture, ATTN_BACKWARD);
    ck_assert_double_eq(attn_cview_get(&view, 0, 0, 3, 2), 0);
    running_close(&fixture);
}

/* Keys that are 0 give no dQ: ranks have read what was saved, and have sent K and V no more. */
TEST(ranks_read_what_is_saved)
{
    struct running fixture;
    struct attn_rank_use use[4] = {0};
    fixture_open(&fixture, "allgather:save=kv", "h2q32k32d16:none:f32:normal:s1:pass=bwd");
    fixture.ctx.ranks = use;
    running_well(&fixture, ATTN_FORWARD);
    running_well(&fixture, ATTN_BACKWARD);
    struct attn_cview view = attn_tensor_cview(&fixture.setup.tensor[ATTN_T_DQ]);
    ck_assert_double_gt(fabs(attn_cview_get(&view, 0, 0, 3, 2)), 0);
    memset(fixture.saved.data, 0, (size_t)fixture.saved.bytes);
    running_well(&fixture, ATTN_BACKWARD);
    ck_assert_double_eq(attn_cview_get(&view, 0, 0, 3, 2), 0);
    ck_assert_int_eq(use[1].bytes_sent, 3 * 2 * 2 * 8 * 16 * 4); /* dK, dV of 8 tokens to each */
    fixture.ctx.saved = NULL;                                    /* it computes again: K, V too */
    running_well(&fixture, ATTN_BACKWARD);
    ck_assert_int_eq(use[1].bytes_sent, 2 * 3 * 2 * 2 * 8 * 16 * 4);
    ck_assert_double_gt(fabs(attn_cview_get(&view, 0, 0, 3, 2)), 0);
    running_close(&fixture);
}

TEST(others_are_refused)
{
    struct running fixture;
    unsetenv("ATTN_ISA");
    const struct attn_isa *best = attn_isa_best(&fixture.err);
    fixture_open(&fixture, "gemm:save=probs", panels);
    running_well(&fixture, ATTN_FORWARD);
    fixture_refused(&fixture, ATTN_FORWARD, "bytes are saved already");
    const struct attn_problem problem = fixture.setup.problem;
    fixture.setup.problem.scale *= 2;
    fixture_refused(&fixture, ATTN_BACKWARD, "for another problem");
    fixture.setup.problem = problem;
    fixture.spec.options.value[0] = 0;
    fixture_refused(&fixture, ATTN_BACKWARD, "under other options");
    fixture.spec.options.value[0] = 1;
    const struct attn_impl *impl = fixture.spec.impl;
    fixture.spec.impl = attn_impl_find("dense");
    fixture_refused(&fixture, ATTN_BACKWARD, "what a forward pass of gemm saved");
    fixture.spec.impl = impl;
    fixture.setup.problem.origin.query.first = 1;
    fixture_refused(&fixture, ATTN_BACKWARD, "for another problem");
    fixture.setup.problem = problem;
    setenv("ATTN_ISA", "portable", 1); /* panels of 12 queries, not of 24 or 48 */
    if (attn_isa_best(&fixture.err) != best)
        fixture_refused(&fixture, ATTN_BACKWARD, "both must run on one instruction set");
    unsetenv("ATTN_ISA");
    running_well(&fixture, ATTN_BACKWARD);
    running_close(&fixture);
}

/* A forward pass that fails saves nothing. */
TEST_EACH(failure_saves_nothing, 2)
{
    static const char *const spec[] = {"gemm:save=probs", "allgather:save=kv"};
    for (int64_t take = 0;; take++) {
        struct running fixture;
        fixture_open(&fixture, spec[_i], panels);
        fixture.ledger.fail_at = take;
        enum attn_status status = running_pass(&fixture, ATTN_FORWARD);
        int64_t takes = fixture.ledger.takes;
        ck_assert_int_eq(status, take < takes ? ATTN_ENOMEM : ATTN_OK);
        ck_assert_int_eq(fixture.saved.data != NULL, status == ATTN_OK);
        ck_assert_int_eq(fixture.ledger.now > 0, status == ATTN_OK);
        running_close(&fixture);
        if (status == ATTN_OK)
            break;
    }
}
