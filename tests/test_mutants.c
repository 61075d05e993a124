/* Every planted bug is killed, by the numbers of a case. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/mutants/kill.h"
#include "tests/suites.h"

enum { LEAST = 16 };

static struct mutant *list;
static int n_mutants;

START_TEST(mutant_dies)
{
    struct kill kill;
    char folder[512];
    snprintf(folder, sizeof folder, "%s/mutants", test_build());
    mutant_kill(&list[_i], folder, &kill);
    ck_assert_msg(kill.error[0] == '\0', "%s: %s", list[_i].id, kill.error);
    ck_assert_msg(kill.killer != NULL, "%s in %s (%s) survives %d cases: %s%s", list[_i].id,
                  list[_i].where, list[_i].spec, kill.cases, list[_i].why,
                  kill.other != NULL ? "; it fails, but not by its numbers" : "");
}
END_TEST

START_TEST(there_are_enough)
{
    ck_assert_int_ge(n_mutants, LEAST);
}
END_TEST

Suite *suite_mutants(void)
{
    Suite *suite = suite_create("mutants");
    TCase *cases = tcase_create("mutants");
    free(list);
    n_mutants = mutants_read(&list);
    tcase_set_timeout(cases, 240);
    tcase_add_test(cases, there_are_enough);
    if (n_mutants > 0)
        tcase_add_loop_test(cases, mutant_dies, 0, n_mutants);
    suite_add_tcase(suite, cases);
    return suite;
}
