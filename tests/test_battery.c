/* The battery on every implementation, and honest variants of them: nobody is flagged.
 *
 * A test here is one spec.  The options walk tile shapes, mask stores, rank counts and local
 * implementations, because an honest implementation stays honest whatever its tiles are. */
#include <stdio.h>
#include <string.h>

#include "tests/harness/runner.h"
#include "tests/suites.h"

static const char *const variants[] = {
    "dense",
    "dense:mask=bool2d",
    "dense:mask=int32",
    "dense:mask=float4d",
    "csr-textbook",
    "tiled-textbook",
    "tiled-textbook:br=16,bc=16",
    "tiled-textbook:br=1,bc=1",
    "tiled-textbook:br=128,bc=32",
    "tiled-textbook:br=7,bc=13",
    "ring:ranks=1",
    "ring:ranks=2",
    "ring",
    "ring:ranks=4,local=csr-textbook",
    "ulysses:ranks=1",
    "ulysses:ranks=2",
    "ulysses",
    "ulysses:ranks=2,local=dense",
};
enum { VARIANTS = sizeof variants / sizeof *variants };

static void parse_spec(const char *text, struct attn_spec *spec)
{
    struct attn_error err = {0};
    ck_assert_msg(attn_spec_parse(text, spec, &err) == ATTN_OK, "%s", err.text);
}

START_TEST(variant_passes)
{
    struct attn_spec spec;
    int count[ATTN_ERROR + 1] = {0};
    parse_spec(variants[_i], &spec);
    for (int i = 0; i < attn_battery_count(); i++) {
        struct attn_case c;
        struct attn_error err = {0};
        struct attn_result r;
        char text[4096];
        ck_assert_msg(attn_case_parse(attn_battery_at(i)->text, &c, &err) == ATTN_OK, "%s",
                      err.text);
        attn_run_case(&spec, &c, &r);
        count[r.verdict]++;
        attn_result_print(&spec, &c, &r, text, sizeof text);
        ck_assert_msg(r.verdict == ATTN_PASS || r.verdict == ATTN_REFUSED, "%s: %s\n%s",
                      attn_battery_at(i)->name, attn_battery_at(i)->why, text);
    }
    /* Refusals are for what cannot be divided or is not claimed, not a way out. */
    ck_assert_msg(count[ATTN_PASS] >= 20, "%s passed only %d cases", variants[_i],
                  count[ATTN_PASS]);
}
END_TEST

/* Every registered implementation is among the variants, with its presets. */
START_TEST(all_are_here)
{
    for (int i = 0; i < attn_impl_count(); i++) {
        int found = 0;
        for (int v = 0; v < VARIANTS; v++)
            found |= strcmp(variants[v], attn_impl_at(i)->name) == 0;
        ck_assert_msg(found, "%s has no line in test_battery.c", attn_impl_at(i)->name);
    }
}
END_TEST

/* One hundred honest runs on the fills that are hardest on arithmetic, with seeds of their own: the
 * bound must not flag one. */
START_TEST(honest_seeds)
{
    static const char *const fill[] = {"normal",  "offset-120",  "offset-3e5", "stairs-up",
                                       "cliffs",  "stairs-down", "ties",       "hetero",
                                       "lowrank", "spike"};
    static const char *const spec_text[] = {"dense", "csr-textbook", "tiled-textbook:br=8,bc=8",
                                            "ring:ranks=4", "ulysses:ranks=2"};
    struct attn_spec spec;
    parse_spec(spec_text[_i % 5], &spec);
    for (int f = 0; f < 10; f++)
        for (int seed = 0; seed < 4; seed++) {
            struct attn_case c;
            struct attn_error err = {0};
            struct attn_result r;
            char line[256], text[4096];
            snprintf(line, sizeof line, "b2h4g2q%dk%dd%d:%s:%s:%s:s%d%s:pass=bwd", 24 + 4 * seed,
                     40 - 4 * seed, 12 + f, seed & 1 ? "causal(br)" : "random(0.5,7)",
                     seed & 2 ? "f64" : "f32", fill[f], 1000 + 10 * _i + seed,
                     f % 3 == 0 ? ":softcap=20" : "");
            ck_assert_msg(attn_case_parse(line, &c, &err) == ATTN_OK, "%s", err.text);
            attn_run_case(&spec, &c, &r);
            attn_result_print(&spec, &c, &r, text, sizeof text);
            ck_assert_msg(r.verdict == ATTN_PASS, "%s", text);
        }
}
END_TEST

/* What a failing case prints runs back to the same verdict. */
START_TEST(failure_reproduces)
{
    struct attn_spec spec, again;
    struct attn_case c, back;
    struct attn_error err = {0};
    struct attn_result r;
    char text[4096], shape[512];
    parse_spec("tiled-textbook:br=16", &spec);
    ck_assert_int_eq(
        attn_case_parse("b2h2q9k17d8:causal(br)|prefix(3):f32:ties:s5:softcap=4:pass=bwd", &c,
                        &err),
        ATTN_OK);
    attn_run_case(&spec, &c, &r);
    attn_result_print(&spec, &c, &r, text, sizeof text);
    char *at = strstr(text, "attnlab check '");
    ck_assert_ptr_nonnull(at);
    at += strlen("attnlab check '");
    char *end = strchr(at, '\'');
    *end = '\0';
    parse_spec(at, &again);
    ck_assert_ptr_eq(again.impl, spec.impl);
    ck_assert_int_eq(memcmp(&again.options, &spec.options, sizeof spec.options), 0);
    at = strstr(end + 1, "--case '") + strlen("--case '");
    snprintf(shape, sizeof shape, "%.*s", (int)strcspn(at, "'"), at);
    ck_assert_int_eq(attn_case_parse(shape, &back, &err), ATTN_OK);
    struct attn_result same;
    attn_run_case(&again, &back, &same);
    ck_assert_uint_eq(same.digest, r.digest);
}
END_TEST

Suite *suite_battery(void)
{
    Suite *suite = suite_create("battery");
    TCase *cases = tcase_create("battery");
    tcase_set_timeout(cases, 240);
    tcase_add_loop_test(cases, variant_passes, 0, VARIANTS);
    tcase_add_test(cases, all_are_here);
    tcase_add_loop_test(cases, honest_seeds, 0, 10);
    tcase_add_test(cases, failure_reproduces);
    suite_add_tcase(suite, cases);
    return suite;
}
