/* The manual says what the program prints: tests/manual.sh runs the commands of README and docs. */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "tests/suites.h"

static glob_t pages;

START_TEST(page)
{
    char line[1024], output[16384];
    snprintf(line, sizeof line, "bash tests/manual.sh '%s' '%s' 2>&1", test_build(),
             pages.gl_pathv[_i]);
    FILE *pipe = popen(line, "r");
    ck_assert_ptr_nonnull(pipe);
    output[fread(output, 1, sizeof output - 1, pipe)] = '\0';
    while (fgetc(pipe) != EOF)
        ; /* a pipe that nobody empties would stop it */
    ck_assert_msg(pclose(pipe) == 0, "%s", output);
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
    tcase_add_test(cases, all_pages);
    tcase_add_loop_test(cases, page, 0, (int)pages.gl_pathc);
    suite_add_tcase(suite, cases);
    return suite;
}
