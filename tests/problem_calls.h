/* The tests of calls and prices (problem_calls.c), which belong to the suite of test_problem.c. */
#ifndef TESTS_PROBLEM_CALLS_H
#define TESTS_PROBLEM_CALLS_H

#include <check.h>

TCase *problem_call_tests(void);

#endif
