/* Relations: no honest implementation is flagged, and each relation can fail. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fixtures/case_fixture.h"
#include "tests/fixtures/faulty.h"
#include "tests/harness/base/process.h"
#include "tests/harness/diagnosis/bugs.h"
#include "tests/harness/relations/relations.h"
#include "tests/suites.h"

SUITE(relations);

/* ---- honest ---------------------------------------------------------------------------------- */

static int is_first_of_family(int which)
{
    int first = 0;
    while (strcmp(attn_impl_at(first)->family, attn_impl_at(which)->family) != 0)
        first++;
    return first == which;
}

/* By its presets: R17 is of other tiles, stores, ranks and local kernels.  The first of each family
 * is asked all; the others, if not all are asked for, one in three by turns. */
TEST_EACH(honest_pass, attn_impl_count())
{
    const char *name = attn_impl_at(_i)->name;
    int passed = 0, every = is_first_of_family(_i) || getenv("ATTN_FULL") != NULL ? 1 : 3;
    struct attn_spec spec = spec_of(name);
    for (int n = 0; n < ATTN_RELATION_COUNT; n++) {
        struct attn_result r;
        if ((n + _i) % every != 0)
            continue;
        attn_relation_run(&attn_relations[n], &spec, NULL, &r);
        ck_assert_msg(r.verdict == ATTN_PASS || r.verdict == ATTN_REFUSED, "%s %s: %s", name,
                      attn_relations[n].id, r.text);
        ck_assert_msg(r.worst <= 1, "%s %s: %g of what is allowed", name, attn_relations[n].id,
                      r.worst);
        passed += r.verdict == ATTN_PASS;
    }
    /* Refusals are for what is not claimed. */
    ck_assert_msg(passed * every >= 30, "%s passes %d relations only", name, passed);
}

TEST(honest_fixture_passes)
{
    struct attn_spec spec = faulty_spec(FAULTY_HONEST);
    for (int n = 0; n < ATTN_RELATION_COUNT; n++) {
        struct attn_result r;
        if (strcmp(attn_relations[n].id, "R17") == 0)
            continue; /* it would vary the mischief */
        attn_relation_run(&attn_relations[n], &spec, NULL, &r);
        ck_assert_msg(r.verdict == ATTN_PASS, "%s: %s", attn_relations[n].id, r.text);
    }
}

/* ---- each can fail --------------------------------------------------------------------------- */

/* The fault that each relation must find. */
static const struct {
    const char *relation;
    enum faulty_mischief mischief;
} wrong[] = {
    {"R1", FAULTY_LSE_BASE_2},    {"R2", FAULTY_ONE_KEY_LESS},    {"R3", FAULTY_O_BY_ROW},
    {"R4", FAULTY_ONE_KEY_LESS},  {"R5", FAULTY_LSE_BASE_2},      {"R6", FAULTY_O_BY_MASK},
    {"R7", FAULTY_O_BY_LAST_V},   {"R8", FAULTY_O_CURVED},        {"R9", FAULTY_O_CURVED},
    {"R10", FAULTY_O_LARGE},      {"R11", FAULTY_O_LARGE},        {"R12", FAULTY_O_BY_FEATURE},
    {"R13", FAULTY_O_BY_FEATURE}, {"R14", FAULTY_O_BY_NEIGHBOUR}, {"R15", FAULTY_O_BY_GROUPS},
    {"R16", FAULTY_O_BY_LENGTH},  {"R17", FAULTY_O_BY_OPTION},    {"R18", FAULTY_LSE_BASE_2},
    {"R19", FAULTY_O_BY_LENGTH},  {"R20", FAULTY_O_BY_LAYOUT},    {"R21", FAULTY_LSE_OFFSET},
    {"R22", FAULTY_O_BY_MASK},    {"R23", FAULTY_O_BY_COLUMN},    {"G1", FAULTY_DK_OFFSET},
    {"G2", FAULTY_DV_LARGE},      {"G3", FAULTY_DV_LARGE},        {"G4", FAULTY_DQ_LARGE},
    {"G5", FAULTY_DQ_BY_KEY},     {"G6", FAULTY_DV_BY_FIRST},     {"G7", FAULTY_DK_OFFSET},
    {"G8", FAULTY_DQ_LARGE},      {"G9", FAULTY_DBIAS_OFFSET},    {"D1", FAULTY_O_BY_CALLS},
    {"D2", FAULTY_O_BY_THREADS},  {"D3", FAULTY_O_BY_HISTORY},    {"P1", FAULTY_O_BY_ADDRESS},
    {"I1", FAULTY_NARROW_STRIDE}, {"I2", FAULTY_NARROW_ORIGIN},   {"R5", FAULTY_ONE_KEY_LESS},
    {"R18", FAULTY_ONE_KEY_LESS}, {"R19", FAULTY_ONE_KEY_LESS},   {"R21", FAULTY_ONE_KEY_LESS},
    {"G3", FAULTY_O_LARGE},       {"G4", FAULTY_DK_OFFSET},       {"G7", FAULTY_DV_LARGE},
    {"G8", FAULTY_DV_LARGE},
};

TEST_EACH(each_can_fail, COUNT(wrong))
{
    const struct attn_relation *relation = attn_relation_find(wrong[_i].relation);
    struct attn_spec spec = faulty_spec(wrong[_i].mischief);
    struct attn_result r;
    ck_assert_ptr_nonnull(relation);
    attn_relation_run(relation, &spec, NULL, &r);
    ck_assert_msg(r.verdict == ATTN_FAILED, "%s does not find mischief %d: %s", wrong[_i].relation,
                  wrong[_i].mischief, r.text);
    ck_assert_msg(r.failure == ATTN_F_BOUND || r.failure == ATTN_F_EXACT ||
                      r.failure == ATTN_F_FINITE,
                  "%s: found by %s", wrong[_i].relation, attn_failure_name(r.failure));
    ck_assert_int_gt((int)strlen(r.text), 20);
}

static void read_past_the_fence(void *unused)
{
    struct attn_spec spec = faulty_spec(FAULTY_ONE_TOO_FAR);
    struct attn_result r;
    (void)unused;
    attn_relation_run(attn_relation_find("P2"), &spec, NULL, &r);
}

/* Nothing may be read past a fence: the process dies there. */
TEST(fences_hold)
{
    struct attn_process p = {0};
    ck_assert_int_eq(attn_process_fork(read_past_the_fence, NULL, 60, &p), 0);
#ifdef __SANITIZE_ADDRESS__ /* which reports the fault and exits */
    ck_assert_int_eq(p.exit_status, 1);
#else
    ck_assert_int_eq(p.signal, SIGSEGV);
#endif
}

TEST(none_is_left_out)
{
    for (int n = 0; n < ATTN_RELATION_COUNT; n++) {
        int found = strcmp(attn_relations[n].id, "P2") == 0; /* fences_hold */
        for (int w = 0; w < COUNT(wrong); w++)
            found |= strcmp(wrong[w].relation, attn_relations[n].id) == 0;
        ck_assert_msg(found, "nothing shows that %s can fail", attn_relations[n].id);
    }
    for (int m = FAULTY_HONEST + 1; m < FAULTY_MISCHIEFS; m++) {
        int used = m == FAULTY_ONE_TOO_FAR;
        for (int w = 0; w < COUNT(wrong); w++)
            used |= wrong[w].mischief == (enum faulty_mischief)m;
        ck_assert_msg(used, "mischief %d is not used", m);
    }
}

/* ---- the table ------------------------------------------------------------------------------- */

/* Relations name bugs of the catalogue; where that says "relation X", X says so too. */
TEST(bugs_are_known)
{
    for (int n = 0; n < ATTN_RELATION_COUNT; n++) {
        char ids[256], *rest = ids;
        snprintf(ids, sizeof ids, "%s", attn_relations[n].ids);
        for (char *id = strtok_r(rest, ",", &rest); id != NULL; id = strtok_r(NULL, ",", &rest))
            ck_assert_msg(attn_bug_find(id) != NULL, "%s names %s", attn_relations[n].id, id);
    }
    int claims = 0;
    for (int n = 0; n < attn_bug_count; n++) {
        const struct attn_bug *bug = &attn_bug[n];
        char first[8] = "", second[8] = "";
        if (sscanf(bug->elsewhere, "relations %7[A-Z0-9] and %7[A-Z0-9]", first, second) < 1 &&
            sscanf(bug->elsewhere, "relation %7[A-Z0-9]", first) < 1)
            continue;
        claims++;
        const struct attn_relation *relation = attn_relation_find(first);
        ck_assert_msg(relation != NULL, "%s: %s", bug->id, bug->elsewhere);
        ck_assert_msg(strstr(relation->ids, bug->id) != NULL, "%s does not name %s", first,
                      bug->id);
        if (second[0] != '\0')
            ck_assert_msg(strstr(attn_relation_find(second)->ids, bug->id) != NULL,
                          "%s does not name %s", second, bug->id);
    }
    ck_assert_int_ge(claims, 12);
}
