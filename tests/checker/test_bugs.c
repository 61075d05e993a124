/* The catalogue and the battery speak of the same bugs, and no bug is forgotten silently. */
#include <stdio.h>
#include <string.h>

#include "tests/harness/cases/tiers.h"
#include "tests/harness/diagnosis/bugs.h"
#include "tests/suites.h"

SUITE(bugs);

TEST_EACH(each_bug_is_accounted_for, attn_bug_count)
{
    const struct attn_bug *bug = &attn_bug[_i];
    char cases[4096];
    int n = attn_bug_cases(bug, cases, sizeof cases);
    ck_assert_ptr_eq(attn_bug_find(bug->id), bug); /* ids are unique */
    ck_assert_msg((n > 0) != (bug->elsewhere[0] != '\0'),
                  "%s: %d cases stand for it and bugs.def says '%s': exactly one must speak",
                  bug->id, n, bug->elsewhere);
    ck_assert_int_gt((int)strlen(bug->what), 0);
}

TEST(each_id_is_known)
{
    for (int i = 0; i < attn_battery_count(ATTN_TIER_FULL); i++) {
        char ids[256], *rest = ids;
        snprintf(ids, sizeof ids, "%s", attn_battery_at(i)->ids);
        for (char *id = strtok_r(rest, ", ", &rest); id != NULL; id = strtok_r(NULL, ", ", &rest))
            ck_assert_msg(attn_bug_find(id) != NULL,
                          "case %s names '%s', which bugs.def does not know",
                          attn_battery_at(i)->name, id);
    }
}
