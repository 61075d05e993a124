/* What the diagnosis (tests/harness/faults/diagnose.h) says of a mutant, and whether that is right.
 *
 * families.def says what is right: to which family a mutant belongs, and which words in a diagnosis
 * name that family. */
#ifndef TESTS_MUTANTS_NAMING_H
#define TESTS_MUTANTS_NAMING_H

#include "tests/mutants/kill.h"

enum { NAMING_CASES = 5, NAMING_WORDS = 600 };

struct family {
    char name[32];
    char ids[512];            /* "AL" is all of AL-*; "AL-12" one of them, which wins over "AL" */
    char words[NAMING_WORDS]; /* "causal|diagonal": one of them in the diagnosis names the family */
};

/* Read tests/mutants/families.def.  *list is malloc'ed.  Returns how many, -1 when unreadable. */
int families_read(struct family **list);

/* The family of a mutant; NULL when none lists it. */
const struct family *family_of(const struct family *list, int n, const struct mutant *m);

int family_is_named(const struct family *family, const char *diagnosis);

/* The mutant's first failing cases, as mutant_kill would meet them, and what each was taken for. */
struct naming {
    int n; /* failing cases that were diagnosed */
    const struct attn_battery_case *battery[NAMING_CASES];
    char text[NAMING_CASES][256]; /* "": no diagnosis */
    char error[256];
};

/* Load FOLDER/ID.so in a child process, run the battery (cases that name the bug first), and
 * diagnose the first `most` (to NAMING_CASES) of the cases that fail by their numbers. */
void mutant_diagnose(const struct mutant *mutant, const char *folder, int most,
                     struct naming *naming);

/* How many of them name the family. */
int naming_hits(const struct naming *naming, const struct family *family);

#endif
