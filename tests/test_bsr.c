/* bsr: a list of blocks changes who is asked what queries see, and no bit of a result. */
#include "tests/suites.h"

#include <stdio.h>
#include <string.h>

#include "tests/fixtures/case_fixture.h"
#include "tests/harness/runner.h"

/* Sizes: a token, less than a panel and no divisor of anything, a tile, the preset, everything. */
static const char *const sizes[] = {"bsr:size=1", "bsr:size=5", "bsr:size=16", "bsr",
                                    "bsr:size=1048576"};
enum { SIZES = sizeof sizes / sizeof *sizes };

SUITE(bsr, .seconds = 120);

/* Each size takes its turn in the battery. */
TEST_EACH(bits_are_those_of_tiled, SIZES)
{
    const struct attn_spec tiled = spec_of("tiled"), bsr = spec_of(sizes[_i]);
    int compared = 0;
    for (int n = _i; n < attn_battery_count(); n += 2 * SIZES) {
        const struct attn_battery_case *k = attn_battery_at(n);
        const struct attn_case c = case_of(k->text);
        struct attn_result want, got;
        attn_run_case(&tiled, &c, &want);
        attn_run_case(&bsr, &c, &got);
        ck_assert_msg(got.verdict == want.verdict && got.digest == want.digest,
                      "%s: %s: %s, other bits than those of tiled: %s", sizes[_i], k->name,
                      attn_verdict_name(got.verdict), got.text);
        compared += got.verdict == ATTN_PASS;
    }
    ck_assert_int_ge(compared, 30);
}

/* Sequences of many blocks, whose rows and columns are both cut through. */
TEST(long_sequences)
{
    static const char *const mask[] = {"causal(br)", "window(300,7,br)", "random(0.02,3,heads)",
                                       "documents(130x1,1x0,399x629)|prefix(140)&causal(br)",
                                       "keys(600,129)&causal(tl)|window(0,0,br)"};
    const struct attn_spec tiled = spec_of("tiled"), bsr = spec_of("bsr");
    for (size_t n = 0; n < sizeof mask / sizeof *mask; n++) {
        char text[256];
        struct attn_result want, got;
        snprintf(text, sizeof text, "b2h4g2q530k630d8v5:%s:f32:normal:s1:pass=bwd", mask[n]);
        const struct attn_case c = case_of(text);
        attn_run_case(&tiled, &c, &want);
        attn_run_case(&bsr, &c, &got);
        ck_assert_msg(got.verdict == ATTN_PASS, "%s: %s", text, got.text);
        ck_assert_msg(got.digest == want.digest, "%s: other bits than those of tiled", text);
    }
}
