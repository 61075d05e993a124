/* Is a case a test of its mask?  The label is compared with masks with one key more or less. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ref/problem.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/harness/judge/runner.h"
#include "tests/suites.h"

SUITE(mask_power);

static void label(const char *text, struct attn_mask_power *x)
{
    struct attn_spec spec = spec_of("dense");
    struct attn_result r = result_of(&spec, text);
    ck_assert_msg(r.verdict == ATTN_PASS, "%s: %s", text, r.text);
    *x = r.mask;
}

/* How many bounds of the first case its O and LSE are away from those of the second. */
static double distance(const char *text, const char *other)
{
    struct attn_truth x = truth_of_case(text, "dense", NULL);
    struct attn_truth y = truth_of_case(other, "dense", NULL);
    double most = 0;
    for (int o = ATTN_O; o <= ATTN_LSE; o++)
        for (int64_t e = 0; e < x.tensor[o].extent[2] * x.tensor[o].extent[3]; e++)
            most =
                fmax(most, fabs(y.tensor[o].want[e] - x.tensor[o].want[e]) / x.tensor[o].bound[e]);
    attn_truth_free(&x);
    attn_truth_free(&y);
    return most;
}

static const char *const fills[] = {"normal", "ties", "stairs-up", "offset-120", "cliffs", "ones"};

/* Every key of a row flipped, one at a time: as many are noticed as the label says, and the weakest
 * is the weakest. */
TEST_EACH(label_is_what_flipping_shows, COUNT(fills))
{
    char digits[] = "0110111010", mask[32], text[128], other[128];
    struct attn_mask_power x;
    int64_t seen = 0;
    double weakest = (double)INFINITY;
    snprintf(text, sizeof text, "q1k10d4:keys(x%s):f32:%s:s5", digits, fills[_i]);
    label(text, &x);
    for (int j = 0; j < 10; j++) {
        digits[j] = (char)('0' + '1' - digits[j]);
        snprintf(mask, sizeof mask, "keys(x%s)", digits);
        snprintf(other, sizeof other, "q1k10d4:%s:f32:%s:s5", mask, fills[_i]);
        digits[j] = (char)('0' + '1' - digits[j]);
        double d = distance(text, other);
        seen += d >= ATTN_POWER_MIN;
        weakest = fmin(weakest, d);
    }
    ck_assert_int_eq(x.pairs, 10);
    ck_assert_msg(x.seen == seen, "%s: label %lld, flipping %lld", text, (long long)x.seen,
                  (long long)seen);
    ck_assert_msg(fabs(x.weakest - weakest) <= 1e-6 * (weakest + 1), "%s: weakest %g, flipping %g",
                  text, x.weakest, weakest);
}

TEST(words_of_the_label)
{
    static const struct {
        const char *text, *words;
    } want[] = {
        {"h2q5k7d4:causal(br):f32:normal:s1", "every key"},
        {"q4k300d4:none:f32:stairs-up:s1", " pairs"}, /* late keys alone have weight */
        {"q3d4:none:f32:spike:s0", " pairs"},         /* so has the spike            */
        {"q3k0d4:none:f32:normal:s1", ""},            /* no pair, no label           */
        {"h2q5k7d4:causal(br):f32:normal:s1:bias=inf", "every key"},
        {"h2q5k7d4:causal(br):f32:normal:s1:bias=nan", "every key"},
        {"h2q5k7d4:keys(5):f32:normal:s1:poison=nan", "every key"},
    };
    for (size_t n = 0; n < sizeof want / sizeof *want; n++) {
        struct attn_mask_power x;
        char words[64];
        label(want[n].text, &x);
        attn_mask_power_words(&x, words);
        ck_assert_msg(strstr(words, want[n].words) != NULL && (want[n].words[0] || !words[0]),
                      "%s: '%s'", want[n].text, words);
    }
}

/* Most of the quick tier tests its masks whole. */
TEST(battery_is_admitted)
{
    int whole = 0, part = 0, blind = 0;
    struct attn_spec spec = spec_of("csr-textbook");
    for (int i = 0; i < attn_battery_count(ATTN_TIER_QUICK); i++) {
        struct attn_result r = result_of(&spec, attn_battery_at(i)->text);
        if (r.verdict != ATTN_PASS || r.mask.pairs == 0)
            continue;
        whole += r.mask.seen == r.mask.pairs;
        part += r.mask.seen > 0 && r.mask.seen < r.mask.pairs;
        blind += r.mask.seen == 0;
    }
    printf("mask tests of the quick tier: %d see every key, %d some, %d none\n", whole, part,
           blind);
    fflush(stdout);
    ck_assert_int_ge(whole, 150);
    ck_assert_int_le(blind, 4); /* one of them has scores of -3e5, whose rounding hides a key */
}
