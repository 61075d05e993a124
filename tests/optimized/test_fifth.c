/* docs/adding.md says "one file and one line", of an implementation and of a mask.  The Makefile
 * builds the library with exactly them; here the battery, and all that is asked of masks, runs on
 * it.  (docs/examples/rows.c stands under a symbol of its own and ahead of the list, so that a
 * `rows` in the tree neither collides nor is found first.) */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "tests/fixtures/case_fixture.h"
#include "tests/fixtures/scratch.h"
#include "tests/harness/judge/runner.h"
#include "tests/suites.h"

SUITE(fifth, .open = scratch_open, .close = scratch_close);

TEST(the_example_is_right)
{
    char path[512];
    struct attn_spec spec;
    struct attn_error err = {0};
    enum attn_status (*parse)(const char *, struct attn_spec *, struct attn_error *) = NULL;
    int passed = 0;
    snprintf(path, sizeof path, "%s/fifth.so", test_build());
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    ck_assert_msg(library != NULL, "%s", dlerror());
    *(void **)&parse = dlsym(library, "attn_spec_parse");
    ck_assert_msg(parse != NULL, "no registry in %s", path);
    ck_assert_msg(parse("rows", &spec, &err) == ATTN_OK, "%s", err.text);
    ck_assert_ptr_eq(spec.impl, dlsym(library, "attn_impl_example_rows"));
    for (int i = 0; i < attn_battery_count(ATTN_TIER_QUICK); i++) {
        struct attn_result r;
        struct attn_case c = case_of(attn_battery_at(i)->text);
        attn_run_case(&spec, &c, &r);
        ck_assert_msg(r.verdict == ATTN_PASS || r.verdict == ATTN_REFUSED, "%s: %s",
                      attn_battery_at(i)->name, r.text);
        passed += r.verdict == ATTN_PASS;
    }
    ck_assert_int_ge(passed, 30);
    /* and as the local kernel of another scheme */
    ck_assert_msg(parse("ring:ranks=2,local=rows", &spec, &err) == ATTN_OK, "%s", err.text);
    struct attn_result r;
    struct attn_case c = case_of("b2h2q12k8d4:causal(br):f32:normal:s3");
    attn_run_case(&spec, &c, &r);
    ck_assert_msg(r.verdict == ATTN_PASS, "%s", r.text);
}

/* The same line twice is one implementation under two numbers: the build says so. */
TEST(twice_is_an_error)
{
    scratch_shell(
        0, "",
        "mkdir -p '%s/optimized' && { cat optimized/impls.def; echo 'ATTN_IMPL(dense)'; } "
        ">'%s/optimized/impls.def'",
        scratch_path("twice"), scratch_path("twice"));
    scratch_shell(1, "attn_impl_stands_twice_dense",
                  "cc -std=c11 -D_GNU_SOURCE -I'%s' -I. -c -o /dev/null optimized/registry.c",
                  scratch_path("twice"));
}

/* docs/examples/staircase.c in the library, and two calls of it among the texts of the tests. */
TEST(the_example_of_a_mask_is_right)
{
    const char *build = test_build();
    scratch_shell(0, " 0 failures", "CK_RUN_SUITE=mask '%s/attn-tests-mask'", build);
    scratch_shell(0, "staircase(size,A) ", "'%s/attnlab-mask' list masks", build);
    scratch_shell(0, "###...\n###...\n###...\n######",
                  "'%s/attnlab-mask' list masks --mask 'staircase(3,br)' --length 6", build);
    scratch_shell(2, "staircase needs the size of a block and an alignment: staircase(16,br)",
                  "'%s/attnlab-mask' price tiled --length 8 --mask staircase", build);
    scratch_shell(2, "'0': blocks have 1 token or more",
                  "'%s/attnlab-mask' price tiled --length 8 --mask 'staircase(0,br)'", build);
    scratch_shell(0, "",
                  "'%s/attnlab-mask' check tiled csr dense ring:ranks=3 --case "
                  "'b2h2q12d8:staircase(5,br):f32:normal:s1:pass=bwd'",
                  build);
}
