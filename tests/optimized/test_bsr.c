/* bsr: a list of blocks changes who is asked what queries see, and no bit of a result. */
#include "tests/suites.h"

#include <stdio.h>
#include <string.h>

#include "tests/fixtures/case_fixture.h"
#include "tests/harness/judge/runner.h"

/* Sizes: a token, less than a panel and no divisor of anything, a tile, the preset, everything. */
static const char *const sizes[] = {"bsr:size=1", "bsr:size=5", "bsr:size=16", "bsr",
                                    "bsr:size=1048576"};

SUITE(bsr);

/* One case by both, judged by the same truth: the same verdict and bits.  1: it passed; 0: it
 * failed. */
static int is_same(const struct attn_spec *bsr, const char *text)
{
    const struct attn_spec tiled = spec_of("tiled");
    struct attn_setup setup;
    struct attn_result want, got;
    setup_of(text, &setup);
    attn_setup_keep(&setup);
    attn_run_setup(&tiled, &setup, NULL, &want);
    attn_run_setup(bsr, &setup, NULL, &got);
    attn_setup_close(&setup);
    ck_assert_msg(got.verdict == want.verdict && got.digest == want.digest,
                  "%s: %s, other bits than those of tiled: %s", text,
                  attn_verdict_name(got.verdict), got.text);
    return got.verdict == ATTN_PASS;
}

/* Each size takes its turn in the battery. */
TEST_EACH(bits_are_those_of_tiled, COUNT(sizes))
{
    const struct attn_spec bsr = spec_of(sizes[_i]);
    int compared = 0;
    for (int n = _i; n < attn_battery_count(ATTN_TIER_QUICK); n += 2 * COUNT(sizes))
        compared += is_same(&bsr, attn_battery_at(n)->text);
    ck_assert_int_ge(compared, 30);
}

/* Sequences of many blocks, whose rows and columns are both cut through. */
TEST(long_sequences)
{
    static const char *const mask[] = {"causal(br)", "window(200,7,br)", "random(0.02,3,heads)",
                                       "documents(130x1,1x0,169x389)|prefix(140)&causal(br)",
                                       "keys(380,129)&causal(tl)|window(0,0,br)"};
    const struct attn_spec bsr = spec_of("bsr");
    for (size_t n = 0; n < sizeof mask / sizeof *mask; n++) {
        char text[256];
        snprintf(text, sizeof text, "b2h2g1q300k390d8v5:%s:f32:normal:s1:pass=bwd", mask[n]);
        ck_assert_msg(is_same(&bsr, text), "%s does not pass", text);
    }
}
