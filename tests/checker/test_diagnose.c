/* How a diagnosis is counted: which family a mutant belongs to, what names it, and what most
 * failures of one implementation have in common.  test_mutants.c asks how many are named
 * rightly. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "experiments/check/verdicts.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/fixtures/scratch.h"
#include "tests/harness/diagnosis/cost.h"
#include "tests/harness/diagnosis/diagnose.h"
#include "tests/mutants/mutants.h"
#include "tests/suites.h"
#include "tests/variants/honest.h"

SUITE(diagnose, .open = scratch_open, .close = scratch_close);

/* A diagnosis that only counts wrong elements names nothing, or the share above would mean
 * nothing. */
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
                                  "not recognised: 102 of 102 elements of o are wrong", ""},
                          causal = {ATTN_FAULT_KEYS, "o: head 1 only", "fits causal(tl)", ""};
    r.diagnosis = bare;
    attn_common_cause_count(&causes, &r);
    ck_assert_int_eq(causes.diagnosed, 0);
    r.diagnosis = causal;
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
        {ATTN_FAULT_SOFTMAX, "", "fits O not divided by l", ""},
        {ATTN_FAULT_KEYS, "", "fits keys 3 to 5 lost: the last 3", ""},
        {ATTN_FAULT_KEYS, "", "fits causal(tl)", ""},
        {ATTN_FAULT_SOFTMAX, "", "fits O not divided by l", ""},
        {ATTN_FAULT_KEYS, "", "fits keys 12 to 120 lost: the last 109", ""},
        {ATTN_FAULT_KEYS, "", "fits causal(br)", ""},
        {ATTN_FAULT_SOFTMAX, "", "fits O not divided by l", ""},
        {ATTN_FAULT_KEYS, "", "fits a window 2 keys too long on the left", ""},
        {ATTN_FAULT_KEYS, "", "fits a window 3 keys too short on the left", ""}};
    static struct attn_common_cause causes;
    struct attn_cause cause[2];
    for (size_t n = 0; n < sizeof said / sizeof *said; n++) {
        struct attn_result r = {.verdict = ATTN_FAILED, .text = "o is wrong"};
        r.diagnosis = said[n];
        attn_common_cause_count(&causes, &r);
    }
    ck_assert_int_eq(attn_common_causes(&causes, cause), 2);
    ck_assert_int_eq(causes.diagnosed, 9);
    ck_assert_int_eq(cause[0].n, 6);
    ck_assert_str_eq(cause[0].text, "fits keys 3 to 5 lost: the last 3");
    ck_assert_int_eq(cause[1].n, 3);
    ck_assert_str_eq(cause[1].text, "fits O not divided by l");
    ck_assert_str_eq(cause[1].remedy, attn_fault_remedy(ATTN_FAULT_SOFTMAX));
}

/* A factor is a second cause where its number is the same, and none where cases have each their
 * own. */
TEST(factors_agree_by_their_numbers)
{
    for (int differ = 0; differ < 2; differ++) {
        struct attn_common_cause causes = {0};
        struct attn_cause cause[2];
        for (int n = 0; n < 8; n++) {
            struct attn_result r = {.verdict = ATTN_FAILED, .diagnosis.fault = ATTN_FAULT_HEADS};
            snprintf(r.diagnosis.text, sizeof r.diagnosis.text, "fits heads mapped h mod G");
            if (n % 2 == 0) {
                r.diagnosis.fault = ATTN_FAULT_FACTOR;
                snprintf(r.diagnosis.text, sizeof r.diagnosis.text, "fits o times 1.%d",
                         5 + n * differ);
            }
            attn_common_cause_count(&causes, &r);
        }
        ck_assert_int_eq(attn_common_causes(&causes, cause), 2 - differ);
        ck_assert_str_eq(cause[0].text, "fits heads mapped h mod G");
        ck_assert_str_eq(cause[1 - differ].text,
                         differ ? "fits heads mapped h mod G" : "fits o times 1.5");
    }
}

/* Of one kind, one in O and one in gradients alone: both are told. */
TEST(passes_have_causes_of_their_own)
{
    static struct attn_common_cause causes;
    struct attn_cause cause[2];
    for (int n = 0; n < 10; n++) {
        struct attn_result r = {.verdict = ATTN_FAILED, .output[ATTN_O].n_bad = n % 3 == 0};
        r.diagnosis = (struct attn_diagnosis){ATTN_FAULT_KEYS, "", "fits causal(tl)", ""};
        if (n % 3 == 0)
            snprintf(r.diagnosis.text, sizeof r.diagnosis.text, "fits the window ignored");
        attn_common_cause_count(&causes, &r);
    }
    ck_assert_int_eq(attn_common_causes(&causes, cause), 2);
    ck_assert_int_eq(cause[0].n, 6);
    ck_assert_str_eq(cause[0].text, "fits causal(tl)");
    ck_assert_int_eq(cause[1].n, 4);
    ck_assert_str_eq(cause[1].text, "fits the window ignored");
}

/* A kernel that is right in f32 is told so; votes of another type are for another arithmetic. */
TEST(votes_are_of_types)
{
    static const struct {
        enum attn_dtype dtype;
        struct attn_diagnosis said;
    } cast[] = {{ATTN_F32, {0}},
                {ATTN_BF16, {ATTN_FAULT_PRECISION, "", "fits P rounded to bf16", ""}},
                {ATTN_F16, {ATTN_FAULT_PRECISION, "", "fits P rounded to f16", ""}},
                {ATTN_F16, {ATTN_FAULT_PRECISION, "", "fits scores rounded to f16", ""}},
                {ATTN_F16, {ATTN_FAULT_KEYS, "", "fits causal(tl)", ""}},
                {ATTN_F16, {ATTN_FAULT_PRECISION, "", "fits P rounded to f16", ""}}};
    static struct attn_common_cause causes;
    char types[80];
    struct attn_cause cause[2];
    for (int n = 0; n < COUNT(cast); n++) {
        struct attn_result r = {.dtype = cast[n].dtype, .output[ATTN_O].n = 1};
        r.verdict = cast[n].said.fault != ATTN_FAULT_NONE ? ATTN_FAILED : ATTN_PASS;
        r.diagnosis = cast[n].said;
        attn_common_cause_count(&causes, &r);
    }
    ck_assert_int_eq(attn_common_causes(&causes, cause), 1);
    ck_assert_int_eq(cause->n, 3);
    ck_assert_str_eq(cause->text, "fits P rounded to f16");
    attn_common_cause_types(&causes, types);
    ck_assert_str_eq(types, "in bf16 and f16, not in f32");
    causes.passes[ATTN_F16] = 400; /* few of the cases fail: that none in f32 does is chance */
    attn_common_cause_types(&causes, types);
    ck_assert_str_eq(types, "");
}

/* ---- how numbers are rounded ----------------------------------------------------------------- */

/* In place of an option of tests/variants/honest.h: 1e-4 is added to the sum of a row, where q is
 * 0; O is that of parts in f16; flush-to-zero and denormals-are-zero are on, as -ffast-math has
 * them. */
enum { EPSILON = 90, PARTS, FAST };

/* before: the passes that are right. */
static const struct {
    const char *text;
    int place, value, before;
    const char *says;
} rounded[] = {
    {"h4g2q17k33d16:causal(br):bf16:normal:s5", HONEST_P, HONEST_BF16, 0, "P rounded to bf16"},
    {"h2q17k33d16:none:f16:normal:s5", HONEST_P, HONEST_F16, 0, "P rounded to f16: declare "},
    {"h4g2q17k33d16:none:bf16:normal:s5:pass=bwd", HONEST_P, HONEST_BF16, 1,
     "P and dS rounded to bf16: declare arithmetic fused-16 (in the backward)"},
    {"h2q17k33d24:none:bf16:normal:s5", HONEST_ARITHMETIC, HONEST_FUSED, 0, "P rounded to bf16"},
    {"h2q17k33d24:none:bf16:normal:s5", HONEST_ARITHMETIC, HONEST_FUSED_AFTER, 0, "P rounded"},
    {"h2q17k33d24:none:bf16:normal:s5", HONEST_ARITHMETIC, HONEST_UNFUSED, 0,
     "scores rounded to bf16 before the softmax, and P after it: declare arithmetic unfused-16"},
    {"h2q17k33d24:none:f16:normal:s5", HONEST_ARITHMETIC, HONEST_UNFUSED_ONE, 0,
     "scores rounded to f16 before"},
    {"h2q17k33d24:none:bf16:normal:s5", HONEST_ARITHMETIC, HONEST_UNFUSED_BOTH, 0,
     "scores rounded to bf16 before"},
    {"h2q17k33d24:none:f32:normal:s5", HONEST_ARITHMETIC, HONEST_TF32, 0,
     "tf32 products (factors rounded to 11 bits): declare arithmetic tf32"},
    {"h2q17k33d24:none:f32:normal:s5", HONEST_ARITHMETIC, HONEST_TF32_CUT, 0, "tf32 products (fac"},
    {"h2q17k33d24:none:f32:normal:s5:pass=bwd", HONEST_ARITHMETIC, HONEST_TF32, 1, "tf32 products"},
    {"h2q17k33d24:none:f16:normal:s5:pass=bwd", HONEST_ARITHMETIC, HONEST_FUSED, 1, "P and dS"},
    {"h2q17k33d24:none:bf16:normal:s5:pass=bwd", HONEST_ARITHMETIC, HONEST_UNFUSED, 1,
     "scores rounded to bf16 before"},
    {"q14k19d8v6:none:bf16:tiny:s45", HALF_STORE, HALF_FLUSH, 0, "subnormals flushed to 0: d"},
    {"q14k19d8v6:none:f16:tiny:s45", HALF_READ, HALF_READ_NORMAL, 0, "subnormals flushed to 0: k"},
    {"q14k19d8v6:none:bf16:tiny:s45:pass=bwd", HALF_STORE, HALF_FLUSH, 1,
     "subnormals flushed to 0: declare it, or keep them (results) (in the backward)"},
    {"q19k19d8:causal(br):f32:flat:s3", EPSILON, 0, 0, "an epsilon of 1e-4 added to the sum of a"},
    {"h2q17k33d24:none:f32:normal:s5", PARTS, 0, 0,
     "errors of about 1e-3 in all rows, and LSE is right: low-precision P, V, sums or"},
#if defined(__x86_64__)
    {"q14k19d8v6:causal(br):f32:tiny:s55", FAST, 0, 0, "subnormals flushed to 0: declare it, or"},
    {"b2h3q14k19d8v6:causal(br):f32:tiny:s55", FAST, 0, 0, "subnormals flushed to 0: declare it"},
#endif
};

static void change_o(struct attn_setup *s, int place)
{
    int64_t at[4] = ATTN_START;
    while (attn_each(at, s->tensor[ATTN_T_O].extent)) {
        double l = exp(attn_tensor_get(&s->tensor[ATTN_T_LSE], at[0], at[1], at[2], 0));
        double o = attn_tensor_get(&s->tensor[ATTN_T_O], at[0], at[1], at[2], at[3]);
        o = place == EPSILON
                ? o * l / (l + 1e-4)
                : (attn_dtype_round(o * 1.1, ATTN_F16) + attn_dtype_round(o * 0.9, ATTN_F16)) / 2;
        attn_tensor_set(&s->tensor[ATTN_T_O], at[0], at[1], at[2], at[3], o);
    }
}

static void run(struct running *x, enum attn_pass pass, int is_fast)
{
#if defined(__x86_64__)
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | (is_fast ? 0x8040 : 0));
    running_well(x, pass);
    _mm_setcsr(before);
#else
    running_well(x, pass);
#endif
}

/* Rounding is told by its own model where it is the fault, not by one that happens to be near. */
TEST_EACH(rounding_is_named, COUNT(rounded))
{
    const int place = rounded[_i].place;
    struct attn_result r = {.verdict = ATTN_PASS};
    struct attn_precision plain;
    struct attn_diagnosis d;
    struct attn_case c = case_of(rounded[_i].text);
    struct attn_spec spec = {.impl = c.dtype == ATTN_F32 ? &variant_honest : &variant_half};
    struct running x;
    attn_options_preset(spec.impl, &spec.options);
    running_open(&x, &spec, rounded[_i].text);
    for (int pass = 0; pass <= (int)c.pass; pass++) {
        if (pass == rounded[_i].before && place < EPSILON)
            x.spec.options.value[place] = rounded[_i].value;
        run(&x, (enum attn_pass)pass, place == FAST);
    }
    if (place == EPSILON || place == PARTS)
        change_o(&x.setup, place);
    attn_precision_of(&(struct attn_impl){0}, &spec.options, &x.setup.problem, &plain);
    attn_judge(&x.setup, &plain, NULL, c.pass, &r);
    ck_assert_int_eq(r.verdict, ATTN_FAILED);
    attn_diagnose(&x.setup, &r, &d);
    const char *said = d.text + (strncmp(d.text, "fits ", 5) == 0 ? 5 : 0);
    ck_assert_msg(strncmp(said, rounded[_i].says, strlen(rounded[_i].says)) == 0,
                  "%s: not '%s', but '%s'", rounded[_i].text, rounded[_i].says, d.text);
    running_close(&x);
}

/* ---- what a bound costs ---------------------------------------------------------------------- */

#define ALL                                                                                \
    "\"gqa\", \"cross\", \"dv\", \"band\", \"dense\", \"scale\", \"softcap\", \"alibi\", " \
    "\"bias\", \"dbias\", \"dlse\", \"empty\", \"backward\", "

/* Plain arithmetic tells every mistake; where u is 0.4, none but gross ones are. */
static const struct {
    const char *claims, *u;
    enum attn_dtype dtype;
    int least, most; /* per cent of the models that exceed the bound */
    int models;      /* at least */
    const char *says;
} costs[] = {{ALL, "0", ATTN_F32, 97, 100, 120, " fault models exceed it in f32"},
             {ALL, "0", ATTN_BF16, 95, 100, 120, " fault models exceed it in bf16"},
             {ALL, "3.9e-3", ATTN_BF16, 80, 98, 120,
              " in plain f32 arithmetic); within it: softcap without its derivative"},
             {ALL, "0.4", ATTN_F32, 0, 30, 120, " in plain f32 arithmetic); within it: LSE is"},
             {"", "0", ATTN_F32, 97, 100, 20, ""}};

TEST_EACH(bounds_have_a_cost, COUNT(costs))
{
    struct attn_claims claims;
    struct attn_error err = {0};
    char text[400];
    int exceed = 0, models = 0;
    snprintf(text, sizeof text,
             "{\"name\": \"x\", \"u\": %s, \"shapes\": {\"d\": \"64\"}, \"claims\": [%s\"%s\"]}",
             costs[_i].u, costs[_i].claims, attn_dtype_name(costs[_i].dtype));
    ck_assert_msg(attn_claims_parse("claims", text, &claims, &err) == ATTN_OK, "%s", err.text);
    ck_assert_int_eq(attn_bound_cost(&claims, costs[_i].dtype, text, sizeof text, &err), ATTN_OK);
    sscanf(text, "What the declared bound costs: %d of %d", &exceed, &models);
    ck_assert_msg(models >= costs[_i].models && 100 * exceed >= costs[_i].least * models &&
                      100 * exceed <= costs[_i].most * models &&
                      strstr(text, costs[_i].says) != NULL,
                  "%s", text);
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
