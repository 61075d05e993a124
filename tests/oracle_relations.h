/* The tests of oracle_relations.c, which belong to the suite of test_oracle.c. */
#ifndef TESTS_ORACLE_RELATIONS_H
#define TESTS_ORACLE_RELATIONS_H

#include <check.h>

TCase *oracle_relation_tests(void);

#endif
