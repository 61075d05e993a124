/* The manual says what the program prints: tests/manual.sh runs the commands of README and docs. */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/fixtures/scratch.h"
#include "tests/suites.h"

SUITE(manual, .seconds = 1800);

static glob_t pages;

static int find_pages(void)
{
    if (glob("README.md", 0, NULL, &pages) == 0)
        glob("docs/*.md", GLOB_APPEND, NULL, &pages);
    glob("docs/studies/*.md", GLOB_APPEND, NULL, &pages);
    glob("docs/course/*.md", GLOB_APPEND, NULL, &pages);
    return (int)pages.gl_pathc;
}

TEST_EACH(page, find_pages())
{
    scratch_shell(0, "", "bash tests/manual.sh '%s' '%s'", test_build(), pages.gl_pathv[_i]);
}

TEST(all_pages)
{
    ck_assert_uint_ge(pages.gl_pathc, 10); /* run from the root of the tree */
}
