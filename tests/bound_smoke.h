/* The tests of bound_smoke.c, which belong to the suite of test_agree.c. */
#ifndef TESTS_BOUND_SMOKE_H
#define TESTS_BOUND_SMOKE_H

#include <check.h>

TCase *bound_smoke_tests(void);

#endif
