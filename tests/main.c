/* The test program: every suite of suites.def in one Check runner.
 *
 * CK_RUN_SUITE=mask runs one suite, CK_VERBOSITY=verbose names each test, CK_FORK=no keeps it
 * in one process for a debugger.  Nothing here may start an OpenMP region: Check forks each
 * test, and libgomp does not survive a fork (its threads stay behind). */
#include <stdio.h>
#include <stdlib.h>

#include "tests/suites.h"

const char *test_build(void)
{
    const char *build = getenv("ATTN_BUILD");
    return build != NULL ? build : "build/release";
}

int main(void)
{
    SRunner *runner = srunner_create(NULL);
#define TEST_SUITE(name) srunner_add_suite(runner, suite_##name());
#include "tests/suites.def"
#undef TEST_SUITE
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    int run = srunner_ntests_run(runner);
    srunner_free(runner);
    return failed == 0 && run > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
