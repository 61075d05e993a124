/* Mutants: each planted bug is killed by the numbers of a case that names it, and equivalent
 * mutants survive.  The first diagnosis of a mutant must name its family: for nine of ten mutants
 * outside the kernels it does, and for three of four inside, where mistakes are of tiles and lanes.
 * The list of mistakes was written with most mutants outside the kernels in view. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/fixtures/scratch.h"
#include "tests/harness/diagnosis/bugs.h"
#include "tests/mutants/mutants.h"
#include "tests/suites.h"

enum { LEAST = 110 }; /* mutants: those that numbers must kill, and those that are diagnosed */

static struct mutant *list;
static int n_mutants, n_equivalent;

/* Mutants that were diagnosed, and those of them whose family was named; [0]: outside the kernels,
 * [1]: inside.  Tests run in children of this process, which share it. */
struct named {
    int asked[2], right[2];
};
static struct named *named;

static void share_named(void)
{
    named = test_shared(sizeof *named);
}

static int mutants(void)
{
    return list != NULL ? n_mutants : (n_mutants = mutants_read(&list, &n_equivalent));
}

SUITE(mutants, .prepare = share_named);

/* Shares that must be named: outside the kernels, and of all.  Two or three mutants leave memory
 * uncleared, and its old content decides their diagnosis. */
static const double least_share = 0.87, least_share_of_all = 0.79;

/* Planted in a kernel, or in what deals out work to one. */
static int is_of_kernels(const struct mutant *m)
{
    return strncmp(m->where, "optimized/", 10) == 0 && strstr(m->where, "parallel/") == NULL &&
           strstr(m->where, "merge_tmpl.h") == NULL;
}

static int everything(void)
{
    return getenv("ATTN_FULL") != NULL;
}

static void expect_death(const struct mutant *m, const struct fate *fate)
{
    ck_assert_msg(fate->error[0] == '\0', "%s: %s", m->id, fate->error);
    ck_assert_msg(fate->killer != NULL, "%s in %s (%s) survives %d cases: %s%s%s", m->id, m->where,
                  m->spec, fate->cases, m->why,
                  fate->other != NULL ? "; it fails, but only by " : "", fate->other_how);
    ck_assert_msg(fate->own,
                  "%s in %s (%s) is killed by %s, which does not name %s; the %d cases that do let "
                  "it live",
                  m->id, m->where, m->spec, fate->killer->name, m->bug, fate->own_cases);
}

static void expect_survival(const struct mutant *m, const struct fate *fate)
{
    ck_assert_msg(fate->error[0] == '\0', "%s: %s", m->id, fate->error);
    ck_assert_msg(fate->killer == NULL && fate->other == NULL,
                  "%s in %s (%s) is called equivalent, but %s tells it: %s", m->id, m->where,
                  m->spec, fate->killer != NULL ? fate->killer->name : fate->other->name, m->proof);
    ck_assert_int_ge(fate->cases, attn_battery_count(ATTN_TIER_QUICK) / (everything() ? 1 : 4));
}

/* The case that kills it by its numbers is diagnosed at once.  A large case is diagnosed only with
 * ATTN_FULL and by `make names`. */
TEST_EACH(planted_bug_is_killed, mutants() - n_equivalent)
{
    const struct mutant *m = &list[_i];
    const struct family *family = family_of(mutant_families, MUTANT_FAMILIES, m);
    struct fate fate;
    char folder[512];
    snprintf(folder, sizeof folder, "%s/mutants", test_build());
    mutants_run(MUTANTS_AS_WRITTEN, m, 1, folder, mutant_is_numeric(m), &fate);
    expect_death(m, &fate);
    ck_assert_msg(family != NULL || !mutant_is_numeric(m), "families.def has no family for %s",
                  m->id);
    named->asked[is_of_kernels(m)] += fate.n > 0;
    named->right[is_of_kernels(m)] += fate.n > 0 && family_is_named(family, fate.text[0]);
}

/* The number of types in which one_type_kills_it asks each mutant: bf16 or f16, by turns; with
 * ATTN_FULL f32, too.  A mutant dies in a type, unless mutants.def says that it lives there. */
static int turns(void)
{
    return everything() ? 3 : 1;
}

TEST_EACH(one_type_kills_it, turns() * mutants())
{
    static const enum attn_dtype type[] = {ATTN_BF16, ATTN_F16, ATTN_F32};
    const struct mutant *m = &list[_i / turns()];
    enum attn_dtype asked = type[turns() == 1 ? _i % 2 : _i % 3];
    int lives = mutant_lives_in(m, asked);
    struct fate fate;
    char folder[512];
    if (lives && turns() == 1)
        return; /* it would be asked every case */
    snprintf(folder, sizeof folder, "%s/mutants", test_build());
    mutants_run((int)asked, m, 1, folder, 0, &fate);
    ck_assert_msg(fate.error[0] == '\0', "%s: %s", m->id, fate.error);
    ck_assert_msg(lives ? fate.killer == NULL && fate.other == NULL : fate.killer != NULL,
                  "%s in %s (%s), asked in %s alone, should %s: %s", m->id, m->where, m->spec,
                  attn_dtype_name(asked), lives ? "live" : "die",
                  fate.killer != NULL ? fate.killer->name : "no case kills it");
}

/* docs/mutants.md has the number of mutants that die in each type; it must be that of mutants.def.
 * `make docs` writes the page. */
TEST(page_is_of_this_list)
{
    char row[64], *page = scratch_read("docs/mutants.md");
    for (int type = ATTN_F32; type <= ATTN_F16; type++) {
        int planted = n_mutants - n_equivalent, dead = planted;
        for (int m = 0; m < planted; m++)
            dead -= mutant_lives_in(&list[m], (enum attn_dtype)type);
        snprintf(row, sizeof row, "| %s | %d of %d |", attn_dtype_name((enum attn_dtype)type), dead,
                 planted);
        ck_assert_msg(strstr(page, row) != NULL, "docs/mutants.md lacks %s: make docs", row);
    }
    free(page);
}

/* Mutants that numbers must kill. */
static int count(const char *spec, const char *where)
{
    int n = 0;
    for (int m = 0; m < n_mutants; m++)
        n += mutant_is_numeric(&list[m]) && strncmp(list[m].spec, spec, strlen(spec)) == 0 &&
             (strstr(list[m].where, where) != NULL || strstr(list[m].unit, where) != NULL);
    return n;
}

TEST(there_are_enough_and_everywhere)
{
    static const struct {
        const char *spec, *where;
        int least;
    } part[] = {{"", "", LEAST},
                {"dense", "dense", 10},
                {"csr-textbook", "csr", 10},
                {"tiled-textbook", "tiled", 20},
                {"ring", "parallel", 10},
                {"ulysses", "parallel", 5},
                {"", "merge_tmpl.h", 5},
                {"tiled", "optimized/simd", 30},
                {"gemm", "optimized/", 4},
                {"csr", "optimized/", 10},
                {"", "ref/mask", 20}};
    for (size_t n = 0; n < sizeof part / sizeof *part; n++)
        ck_assert_msg(count(part[n].spec, part[n].where) >= part[n].least,
                      "%d mutants in %s '%s'; at least %d were meant",
                      count(part[n].spec, part[n].where), part[n].spec, part[n].where,
                      part[n].least);
}

/* A mutant that changes nothing survives every case: one in four, and with ATTN_FULL all. */
TEST(equivalent_mutants_survive)
{
    struct fate fate[MUTANTS_AT_ONCE];
    const struct mutant *first = list + n_mutants - n_equivalent;
    char folder[512];
    snprintf(folder, sizeof folder, "%s/mutants", test_build());
    ck_assert_int_gt(n_equivalent, 0);
    mutants_run(MUTANTS_AS_WRITTEN, first, n_equivalent, folder, 0, fate);
    for (int m = 0; m < n_equivalent; m++)
        expect_survival(&first[m], &fate[m]);
    for (int m = 0; m < n_mutants - n_equivalent; m++)
        ck_assert_msg(list[m].proof[0] == '\0', "%s: equivalent mutants stand last", list[m].id);
}

/* Runs after all of them. */
TEST(most_are_named_at_first_sight)
{
    int all = named->asked[0] + named->asked[1], right = named->right[0] + named->right[1];
    printf("mutants: %d of %d named rightly, %d of %d in the kernels\n", right, all,
           named->right[1], named->asked[1]);
    fflush(stdout);
    ck_assert_int_ge(all, LEAST);
    ck_assert_msg(named->right[0] >= least_share * named->asked[0], "%d of %d named rightly",
                  named->right[0], named->asked[0]);
    ck_assert_msg(right >= least_share_of_all * all, "%d of %d named rightly", right, all);
}

TEST_EACH(each_names_a_catalogued_bug, mutants())
{
    const struct mutant *m = &list[_i];
    int same = 0;
    ck_assert_msg(attn_bug_find(m->bug) != NULL, "%s: bugs.def does not know %s", m->id, m->bug);
    ck_assert_msg(m->why[0] != '\0', "%s gives no source and reason", m->id);
    for (int other = 0; other < n_mutants; other++) {
        ck_assert_msg(other == _i || strcmp(list[other].id, m->id) != 0, "%s stands twice", m->id);
        same += strcmp(list[other].bug, m->bug) == 0;
    }
    ck_assert_msg(same <= 2, "%d mutants of %s: at most two", same, m->bug);
    ck_assert_msg(same == 1 || strcmp(m->id, m->bug) != 0, "%s needs a letter: it is one of two",
                  m->id);
}

/* A mutant that cannot be loaded is an error, not a survivor. */
TEST(a_missing_library_is_an_error)
{
    struct fate fate;
    mutants_run(MUTANTS_AS_WRITTEN, &list[0], 1, "build/no-such-folder", 0, &fate);
    ck_assert_int_gt((int)strlen(fate.error), 0);
    ck_assert_ptr_null(fate.killer);
}
