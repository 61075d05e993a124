/* The manual says what the program prints: tests/manual.sh runs the commands of README and docs. */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/fixtures/scratch.h"
#include "tests/suites.h"

static glob_t pages;

START_TEST(page)
{
    scratch_shell(0, "", "bash tests/manual.sh '%s' '%s'", test_build(), pages.gl_pathv[_i]);
}
END_TEST

START_TEST(all_pages)
{
    ck_assert_uint_ge(pages.gl_pathc, 10); /* run from the root of the tree */
}
END_TEST

Suite *suite_manual(void)
{
    Suite *suite = suite_create("manual");
    TCase *cases = tcase_create("pages");
    tcase_set_timeout(cases, getenv("ATTN_FULL") != NULL ? 1800 : 60);
    if (glob("README.md", 0, NULL, &pages) == 0)
        glob("docs/*.md", GLOB_APPEND, NULL, &pages);
    glob("docs/studies/*.md", GLOB_APPEND, NULL, &pages);
    tcase_add_test(cases, all_pages);
    tcase_add_loop_test(cases, page, 0, (int)pages.gl_pathc);
    suite_add_tcase(suite, cases);
    return suite;
}
