/* How a diagnosis is counted: which family a mutant belongs to, what names it, and what most
 * failures of one implementation have in common.  test_mutants.c asks how many are named
 * rightly. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/check/verdicts.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/fixtures/rounded.h"
#include "tests/fixtures/scratch.h"
#include "tests/harness/faults/cost.h"
#include "tests/mutants/mutants.h"
#include "tests/suites.h"
#include "tests/variants/honest.h"

SUITE(diagnose, .seconds = 600, .open = scratch_open, .close = scratch_close);

/* What only counts wrong elements names nothing, or the share above would mean nothing. */
TEST(a_bare_pattern_names_no_family)
{
    for (int f = 0; f < MUTANT_FAMILIES; f++) {
        const struct family *family = &mutant_families[f];
        ck_assert_msg(family->words[0] != '\0', "%s has no words", family->name);
        ck_assert_int_eq(family_is_named(family, "12 of 64 elements of o are wrong"), 0);
        ck_assert_int_eq(family_is_named(family, "9 of 64 elements of dq are NaN, query 3 only"),
                         0);
        ck_assert_int_eq(family_is_named(family, ""), 0);
    }
}

/* "AL-06b" wins over "AL". */
TEST(the_closest_name_decides)
{
    struct family list[] = {{"a", "AL SW-01", "x"}, {"b", "AL-06b", "y|z"}, {"c", "SW", "w"}};
    struct mutant m = {.id = "AL-06b", .bug = "AL-06"};
    ck_assert_ptr_eq(family_of(list, 3, &m), &list[1]);
    m = (struct mutant){.id = "AL-06a", .bug = "AL-06"};
    ck_assert_ptr_eq(family_of(list, 3, &m), &list[0]);
    m = (struct mutant){.id = "SW-01", .bug = "SW-01"};
    ck_assert_ptr_eq(family_of(list, 3, &m), &list[0]);
    m = (struct mutant){.id = "ZZ-01", .bug = "ZZ-01"};
    ck_assert_ptr_null(family_of(list, 3, &m));
    ck_assert_int_eq(family_is_named(&list[1], "fits z"), 1);
    ck_assert_int_eq(family_is_named(&list[1], "fits x"), 0);
}

/* Counting wrong elements is no diagnosis, and no vote. */
TEST(bare_patterns_do_not_vote)
{
    static struct attn_common_cause causes;
    struct attn_result r = {.verdict = ATTN_FAILED, .text = "o is wrong"};
    struct attn_diagnosis bare = {ATTN_FAULT_NONE, "",
                                  "not recognised: 102 of 102 elements of o are wrong"},
                          causal = {ATTN_FAULT_KEYS, "o: head 1 only", "fits causal(tl)"};
    attn_common_cause_append(&r, &bare);
    ck_assert_str_eq(r.text, "o is wrong; not recognised: 102 of 102 elements of o are wrong");
    attn_common_cause_count(&causes, &r);
    ck_assert_int_eq(causes.diagnosed, 0);
    r = (struct attn_result){.verdict = ATTN_FAILED, .text = "o is wrong"};
    attn_common_cause_append(&r, &causal);
    ck_assert_str_eq(r.text, "o is wrong; shows in o: head 1 only; looks like: fits causal(tl)");
    attn_common_cause_count(&causes, &r);
    attn_common_cause_count(&causes, &r);
    ck_assert_int_eq(causes.diagnosed, 2);
    ck_assert_int_eq(causes.of[0].n, 2);
    ck_assert_str_eq(causes.of[0].text, "fits causal(tl)");
}

/* Six that name the keys, in words of their own or with numbers of their own, against three that
 * say one wrong thing alike. */
TEST(votes_are_of_faults)
{
    static const struct attn_diagnosis said[] = {
        {ATTN_FAULT_SOFTMAX, "", "fits O not divided by l"},
        {ATTN_FAULT_KEYS, "", "fits keys 3 to 5 lost: the last 3"},
        {ATTN_FAULT_KEYS, "", "fits causal(tl)"},
        {ATTN_FAULT_SOFTMAX, "", "fits O not divided by l"},
        {ATTN_FAULT_KEYS, "", "fits keys 12 to 120 lost: the last 109"},
        {ATTN_FAULT_KEYS, "", "fits causal(br)"},
        {ATTN_FAULT_SOFTMAX, "", "fits O not divided by l"},
        {ATTN_FAULT_KEYS, "", "fits a window 2 keys too long on the left"},
        {ATTN_FAULT_KEYS, "", "fits a window 3 keys too short on the left"}};
    static struct attn_common_cause causes;
    int agree;
    char text[ATTN_CAUSE_TEXT];
    for (size_t n = 0; n < sizeof said / sizeof *said; n++) {
        struct attn_result r = {.verdict = ATTN_FAILED, .text = "o is wrong"};
        attn_common_cause_append(&r, &said[n]);
        attn_common_cause_count(&causes, &r);
    }
    const char *cause = attn_common_cause_name(&causes, &agree, text);
    ck_assert_int_eq(causes.diagnosed, 9);
    ck_assert_int_eq(agree, 6);
    ck_assert_str_eq(cause, "fits keys 3 to 5 lost: the last 3");
}

/* A kernel that is right in f32 is told so; votes of another type are for another arithmetic. */
TEST(votes_are_of_types)
{
    static const struct {
        enum attn_dtype dtype;
        struct attn_diagnosis said;
    } cast[] = {{ATTN_F32, {0}},
                {ATTN_BF16, {ATTN_FAULT_PRECISION, "", "fits P rounded to bf16"}},
                {ATTN_F16, {ATTN_FAULT_PRECISION, "", "fits P rounded to f16"}},
                {ATTN_F16, {ATTN_FAULT_PRECISION, "", "fits scores rounded to f16"}},
                {ATTN_F16, {ATTN_FAULT_KEYS, "", "fits causal(tl)"}},
                {ATTN_F16, {ATTN_FAULT_PRECISION, "", "fits P rounded to f16"}}};
    static struct attn_common_cause causes;
    char text[ATTN_CAUSE_TEXT];
    int agree;
    for (int n = 0; n < COUNT(cast); n++) {
        struct attn_result r = {.dtype = cast[n].dtype, .output[ATTN_O].n = 1};
        r.verdict = cast[n].said.fault != ATTN_FAULT_NONE ? ATTN_FAILED : ATTN_PASS;
        attn_common_cause_append(&r, &cast[n].said);
        attn_common_cause_count(&causes, &r);
    }
    attn_common_cause_name(&causes, &agree, text);
    ck_assert_int_eq(agree, 3);
    ck_assert_str_eq(text, "fits P rounded to f16 (in bf16 and f16, not in f32)");
}

/* ---- how numbers are rounded ----------------------------------------------------------------- */

/* Rounding is told by its own model where it is the fault, not by one that happens to be near. */
static const struct {
    enum rounded_fault fault;
    const char *text, *says;
} rounded[] = {
    {ROUNDED_EPSILON, "h2q9k14d8:none:f32:normal:s3", "fits an epsilon of 1e-4 added to the sum"},
    {ROUNDED_EPSILON, "q9k14d8:none:f32:normal:s3", "fits an epsilon of 1e-4 added to the sum"},
    {ROUNDED_FLUSH, "q14k19d8v6:causal(br):f32:tiny:s55", "fits subnormals flushed to 0"},
    {ROUNDED_FLUSH, "b2h3q14k19d8v6:causal(br):f32:tiny:s55", "fits subnormals flushed to 0"},
    {ROUNDED_SCORES, "h4g2q17k33d16:causal(br):bf16:normal:s5", "fits scores rounded to bf16"},
    {ROUNDED_SCORES, "h4g2q17k33d16:causal(br):f16:normal:s5", "fits scores rounded to f16"},
    {ROUNDED_UNFUSED, "h2q17k33d24:none:bf16:normal:s5", "fits scores rounded to bf16"},
    {ROUNDED_P, "h4g2q17k33d16:causal(br):bf16:normal:s5", "fits P rounded to bf16"},
    {ROUNDED_P, "h4g2q17k33d16:causal(br):f16:normal:s5", "fits P rounded to f16"},
    {ROUNDED_TF32, "h2q17k33d24:none:f32:normal:s5", "fits tf32 products"},
    {ROUNDED_TF32_CUT, "h2q17k33d24:none:f32:normal:s5", "fits tf32 products"},
};

/* What the judge and the diagnosis say of the outputs of a setup, under plain arithmetic. */
static struct attn_result look_at(const struct attn_setup *s, struct attn_diagnosis *d)
{
    struct attn_result r = {.verdict = ATTN_PASS};
    struct attn_precision plain;
    attn_precision_of(&(struct attn_impl){0}, &(struct attn_options){0}, &s->problem, &plain);
    attn_judge(s, &plain, NULL, s->given.pass, &r);
    attn_diagnose(s, &r, d);
    return r;
}

TEST_EACH(rounding_is_named, COUNT(rounded))
{
    struct attn_setup s;
    struct attn_diagnosis d;
    setup_of(rounded[_i].text, &s);
    rounded_run(&s, ROUNDED_HONEST);
    ck_assert_int_eq(look_at(&s, &d).verdict, ATTN_PASS);
    rounded_run(&s, rounded[_i].fault);
    ck_assert_int_eq(look_at(&s, &d).verdict, ATTN_FAILED);
    ck_assert_msg(strncmp(d.text, rounded[_i].says, strlen(rounded[_i].says)) == 0,
                  "%s: not '%s', but '%s'", rounded[_i].text, rounded[_i].says, d.text);
    attn_setup_close(&s);
}

/* The same of tests/variants/honest.h; before: the passes that are right. */
static const struct {
    const char *text;
    int place, value, before;
    const char *says;
} variant[] = {
    {"h4g2q17k33d16:causal(br):bf16:normal:s5", HONEST_P, HONEST_BF16, 0, "fits P rounded to bf16"},
    {"h2q17k33d16:none:f16:normal:s5", HONEST_P, HONEST_F16, 0, "fits P rounded to f16"},
    {"h4g2q17k33d16:none:bf16:normal:s5:pass=bwd", HONEST_P, HONEST_BF16, 1,
     "fits P and dS rounded to bf16: declare arithmetic fused-16 (in the backward)"},
    {"q14k19d8v6:none:bf16:tiny:s45", HALF_STORE, HALF_FLUSH, 0, "fits subnormals flushed to 0"},
    {"q14k19d8v6:none:f16:tiny:s45", HALF_READ, HALF_READ_NORMAL, 0, "fits subnormals flushed"},
    {"q14k19d8v6:none:bf16:tiny:s45:pass=bwd", HALF_STORE, HALF_FLUSH, 1,
     "fits subnormals flushed to 0: declare it, or keep them (results) (in the backward)"},
};

TEST_EACH(rounding_of_variants_is_named, COUNT(variant))
{
    struct attn_spec spec = {.impl = &variant_half};
    struct attn_diagnosis d;
    struct running x;
    attn_options_preset(&variant_half, &spec.options);
    running_open(&x, &spec, variant[_i].text);
    for (int pass = 0; pass <= (int)x.setup.given.pass; pass++) {
        if (pass == variant[_i].before)
            x.spec.options.value[variant[_i].place] = variant[_i].value;
        running_well(&x, (enum attn_pass)pass);
    }
    ck_assert_int_eq(look_at(&x.setup, &d).verdict, ATTN_FAILED);
    ck_assert_msg(strncmp(d.text, variant[_i].says, strlen(variant[_i].says)) == 0,
                  "%s: not '%s', but '%s'", variant[_i].text, variant[_i].says, d.text);
    running_close(&x);
}

/* ---- what a bound costs ---------------------------------------------------------------------- */

static struct attn_bound_cost cost_of(const char *claims, enum attn_dtype dtype)
{
    struct attn_bound_cost cost;
    struct attn_claims c;
    struct attn_error err = {0};
    ck_assert_msg(attn_claims_parse("claims", claims, &c, &err) == ATTN_OK, "%s", err.text);
    ck_assert_int_eq(attn_bound_cost_count(&c, NULL, dtype, &cost, &err), ATTN_OK);
    return cost;
}

#define ALL                                                                                   \
    "\"claims\": [\"f32\", \"bf16\", \"backward\", \"gqa\", \"cross\", \"dv\", "              \
    "\"band\", \"dense\", \"scale\", \"softcap\", \"alibi\", \"bias\", \"dbias\", \"dlse\", " \
    "\"empty\"], \"name\": \"x\""

/* Plain arithmetic tells every mistake; where nothing is certain, next to none is told. */
TEST(bounds_have_a_cost)
{
    static const char small[] = "what the declared bound costs: ";
    const struct attn_bound_cost plain = cost_of("{" ALL "}", ATTN_F32),
                                 half = cost_of("{" ALL "}", ATTN_BF16),
                                 wide = cost_of("{" ALL ", \"u\": 3.9e-3}", ATTN_BF16),
                                 absurd = cost_of("{" ALL ", \"u\": 0.4}", ATTN_F32),
                                 few =
                                     cost_of("{\"name\": \"x\", \"claims\": [\"f32\"]}", ATTN_F32);
    char line[500];
    ck_assert_int_ge(plain.models, 120);
    ck_assert_int_ge(100 * plain.exceed, 97 * plain.models);
    ck_assert_int_eq(plain.exceed, plain.exceed_plain);
    ck_assert_int_ge(100 * half.exceed, 95 * half.models);
    ck_assert_int_lt(wide.exceed, half.exceed);
    ck_assert_int_eq(wide.exceed_plain, half.exceed);
    ck_assert_ptr_nonnull(strstr(wide.within, "softcap without its derivative"));
    ck_assert_int_le(5 * absurd.exceed, absurd.models);
    ck_assert_int_eq(absurd.exceed_plain, plain.exceed);
    ck_assert(few.models > 20 && few.models < plain.models);
    attn_bound_cost_print(&wide, line, sizeof line);
    ck_assert_msg(strncmp(line, small, strlen(small)) == 0 &&
                      strstr(line, " fault models exceed it in bf16 (") != NULL &&
                      strstr(line, " in plain f32 arithmetic); within it: softcap") != NULL,
                  "%s", line);
}

/* `attnlab check SPEC` of a program with a mistake in it (Makefile: attnlab-mistaken). */
TEST(registered_specs_are_diagnosed)
{
    scratch_shell(1, "looks like: fits ALiBi of the wrong sign",
                  "'%s/attnlab-mistaken' check csr-textbook --case alibi --case alibi-tl "
                  "--case alibi-softcap",
                  test_build());
    scratch_has(" diagnosed failures: fits ALiBi of the wrong sign");
}
