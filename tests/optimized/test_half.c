/* 16-bit storage: the conversions, variants that are wrong in one thing (test_battery.c has the
 * right ones), and plug-ins of 16 bits that are wrong in some shapes alone. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "optimized/simd/isa.h"
#include "ref/attn_plugin.h"
#include "ref/half.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/fixtures/external_fixture.h"
#include "tests/fixtures/scratch.h"
#include "tests/harness/judge/runner.h"
#include "tests/suites.h"
#include "tests/variants/honest.h"

SUITE(half, .open = scratch_open, .close = scratch_close);

/* ---- conversions ----------------------------------------------------------------------------- */

static double rounded(double x, int bits, int least, double largest)
{
    double y = honest_round(x, bits, least);
    return fabs(y) > largest ? copysign((double)INFINITY, x) : y;
}

TEST(every_number_comes_back)
{
    for (unsigned n = 0; n < 65536; n++) {
        uint16_t bits = (uint16_t)n;
        float b = attn_bf16_to_float(bits), h = attn_f16_to_float(bits);
        if (isnan(b))
            ck_assert(isnan(attn_bf16_to_float(attn_bf16_from_float(b))));
        else
            ck_assert_uint_eq(attn_bf16_from_float(b), bits);
        if (isnan(h))
            ck_assert(isnan(attn_f16_to_float(attn_f16_from_float(h))));
        else
            ck_assert_uint_eq(attn_f16_from_float(h), bits);
    }
    ck_assert(attn_f16_to_float(0x7bff) == 65504 && attn_f16_to_float(1) == 0x1p-24f);
    ck_assert_uint_eq(attn_f16_from_double(65520), 0x7c00);
    ck_assert_uint_eq(attn_f16_from_double(65519.999999999), 0x7bff);
    ck_assert(isnan(attn_bf16_to_float(attn_bf16_from_float(attn_float_of_bits(0x7f800001u)))));
    ck_assert(isnan(attn_bf16_to_float(attn_bf16_from_float(attn_float_of_bits(0xffffffffu)))));
}

/* Around every number: the number itself, half a step on, and a little beside that. */
TEST(ties_go_to_even)
{
    static const double step[] = {0, 0.5, 0.5 + 1e-12, 0.5 - 1e-12, 1e-9, -0.5, -0.5 - 1e-12};
    for (unsigned n = 0; n < 65536; n++)
        for (int s = 0; s < 7; s++) {
            double b = (double)attn_bf16_to_float((uint16_t)n);
            double h = (double)attn_f16_to_float((uint16_t)n);
            int e;
            frexp(b, &e);
            double x = b + ldexp(step[s], (e - 1 > -126 ? e - 1 : -126) - 7);
            if (isfinite(b))
                ck_assert((double)attn_bf16_to_float(attn_bf16_from_double(x)) ==
                          rounded(x, 8, -126, 0x1.fep127));
            frexp(h, &e);
            x = h + ldexp(step[s], (e - 1 > -14 ? e - 1 : -14) - 10);
            if (isfinite(h))
                ck_assert((double)attn_f16_to_float(attn_f16_from_double(x)) ==
                          rounded(x, 11, -14, 65504));
        }
}

/* ---- wrong in one thing ---------------------------------------------------------------------- */

static const struct {
    int place, value;
    const char *killer;
} wrong[] = {{HALF_STORE, HALF_TRUNCATE, "bf16-bwd"},    {HALF_STORE, HALF_TRUNCATE, "f16-bwd"},
             {HALF_STORE, HALF_FLUSH, "bf16-tiny"},      {HALF_STORE, HALF_FLUSH, "f16-tiny"},
             {HALF_STORE, HALF_SATURATE, "f16-huge"},    {HALF_SUM, HALF_SUM_STORAGE, "bf16-mqa"},
             {HALF_SUM, HALF_SUM_STORAGE, "bf16-bwd"},   {HALF_SUM, HALF_SUM_STORAGE, "f16-bwd"},
             {HALF_READ, HALF_READ_NORMAL, "bf16-tiny"}, {HALF_READ, HALF_READ_NORMAL, "f16-tiny"}};

TEST_EACH(wrong_siblings_are_killed, COUNT(wrong))
{
    struct attn_spec spec = {.impl = &variant_half};
    const struct attn_battery_case *battery = attn_battery_find(wrong[_i].killer);
    struct attn_result r;
    ck_assert_ptr_nonnull(battery);
    attn_options_preset(&variant_half, &spec.options);
    struct attn_case c = case_of(battery->text);
    attn_run_case(&spec, &c, &r);
    ck_assert_msg(r.verdict == ATTN_PASS, "%s: %s", battery->name, r.text);
    spec.options.value[wrong[_i].place] = wrong[_i].value;
    attn_run_case(&spec, &c, &r);
    ck_assert_msg(r.verdict == ATTN_FAILED && r.failure == ATTN_F_BOUND, "%s: %s %s", battery->name,
                  attn_verdict_name(r.verdict), r.text);
}

/* ---- products of bf16 numbers ---------------------------------------------------------------- */

/* Some of the quick battery in bf16, every query by tiles; with ATTN_FULL all of the full tier, and
 * on other sets too, whose products are the same text. */
TEST_EACH(matrix_products_pass_the_battery, attn_isa_count())
{
    const struct attn_isa *isa = attn_isa_at(_i);
    int everything = getenv("ATTN_FULL") != NULL;
    int own = strcmp(isa->name, "amx") == 0 || strcmp(isa->name, "portable") == 0;
    if (isa->present() && (own || everything))
        scratch_expect(0, " 0 fail, ", "check 'tiled:p=bf16,few=0@%s' --tier %s%s", isa->name,
                       everything ? "full" : "quick", fixture_some_cases());
}

/* Lanes of a panel without a query have q = 0, and 0 times an infinite K must not reach dK. */
TEST(matrix_products_of_no_query_are_nothing)
{
    scratch_expect(0, "1 pass", "check tiled:p=bf16,few=0@portable --case %s",
                   "h2q1k60d4:none:bf16:normal:s1:pass=bwd:special=k-inf");
}

/* It is for one type: a run and a price say so, and so do ranks that run it. */
TEST(matrix_products_of_other_types_are_refused)
{
    static const char says[] = "multiplies bf16 numbers, and these are f32: leave p=bf16 out";
    static const char ranks[] = "ring:ranks=2,local=(tiled:p=bf16)";
    scratch_expect(2, says, "price tiled:p=bf16 --length 64");
    scratch_expect(2, says, "price '%s' --length 64", ranks);
    scratch_expect(2, says, "check tiled:p=bf16 --case q9d8:none:f32:normal:s1");
    scratch_expect(0, "1 pass", "check '%s' --case q9d8:none:bf16:normal:s1:pass=bwd", ranks);
}

/* ---- wrong in some shapes -------------------------------------------------------------------- */

/* Its LSE is right everywhere.  A tier must ask it in the shapes in which it is not, and in the one
 * type that it claims (with ATTN_FULL: test_factors.c has such faults, in all tiers). */
static const struct {
    const char *words, *tier, *shape;
} in_part[] = {
    {"TIMES=0 D_TO=16 L_TO=63", "quick", "q9d17"},
    {"TIMES=0 D_TO=16 L_TO=63", NULL, "q64d8"},
    {"TIMES_DQ=150 D=192 GROUP=4", "full", "h8g2q9d192"},
    {"TIMES_DQ=150 D=96 HEADS=7", "full", "h7q9d96"},
};

TEST_EACH(wrong_in_some_shapes_is_killed, COUNT(in_part))
{
    const char *path = fixture_plugin("plugin.so", "full", "%s CLAIMS=%d", in_part[_i].words,
                                      ATTN_CAP_BF16 | ATTN_CAP_BACKWARD | ATTN_CAP_GQA |
                                          ATTN_CAP_CAUSAL | ATTN_CAP_SCALE);
    scratch_expect(0, "1 pass", "check --plugin '%s' --case q9d8:none:bf16:normal:s1:pass=bwd",
                   path);
    scratch_expect(1, "1 fail", "check --plugin '%s' --case %s:none:bf16:normal:s1:pass=bwd", path,
                   in_part[_i].shape);
    const char *tier = in_part[_i].tier;
    if (tier != NULL && getenv("ATTN_FULL") != NULL)
        scratch_expect(1, " fail, ", "check --plugin '%s' --tier %s", path, tier);
}
