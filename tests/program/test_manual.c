/* The manual says what the program prints: tests/manual.sh runs the commands of README and docs. */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fixtures/scratch.h"
#include "tests/suites.h"

/* The output of each study, for all pages. */
static char studies[512];

static void make_studies(void)
{
    const char *folder = getenv("TMPDIR");
    snprintf(studies, sizeof studies, "%s/attn-studies-XXXXXX", folder != NULL ? folder : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(studies));
}

SUITE(manual, .prepare = make_studies, .open = scratch_open, .close = scratch_close);

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
    scratch_shell(0, "", "bash tests/manual.sh '%s' '%s' '%s'", test_build(), pages.gl_pathv[_i],
                  studies);
}

/* The course is made from these pages: what one of them links to has a page too, and without
 * answers none is left.  It measures for a minute; what is built otherwise would measure for
 * many. */
TEST(course)
{
    const char *config = strrchr(test_build(), '/');
    if (getenv("ATTN_FULL") == NULL || config == NULL || strcmp(config, "/release") != 0)
        return;
    scratch_shell(0, "", "make course CONFIG='%s' COURSE='%s' >/dev/null", config + 1,
                  scratch_path("all"));
    scratch_shell(0, "", "grep -rq '<details' '%s/docs/course'", scratch_path("all"));
    scratch_shell(0, "", "make course CONFIG='%s' COURSE='%s' ANSWERS=no >/dev/null", config + 1,
                  scratch_path("none"));
    scratch_shell(1, "", "grep -rl '<details' '%s/docs'", scratch_path("none"));
}

TEST(all_pages)
{
    scratch_shell(0, "", "rm -r '%s'", studies);
    ck_assert_uint_ge(pages.gl_pathc, 10); /* run from the root of the tree */
}

/* tests/figures.sh says what it would catch. */
TEST(figures_of_the_manual_and_the_course)
{
    scratch_shell(0, "", "bash tests/figures.sh '%s' '%s'", test_build(), scratch_path(""));
}
