/* The suites of the test program, and what they share. */
#ifndef TESTS_SUITES_H
#define TESTS_SUITES_H

#include <check.h>

#define TEST_SUITE(name) Suite *suite_##name(void);
#include "tests/suites.def"
#undef TEST_SUITE

/* Folder of the build under test (ATTN_BUILD): holds attnlab and mutants/. */
const char *test_build(void);

#endif
