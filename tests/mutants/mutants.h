/* Mutants: the library with one line changed (mutants.def).  Which case of the quick battery kills
 * one, and what the diagnosis (tests/harness/faults/diagnose.h) says of it.
 */
#ifndef TESTS_MUTANTS_MUTANTS_H
#define TESTS_MUTANTS_MUTANTS_H

#include "tests/harness/runner.h"

struct mutant {
    char id[16], bug[16]; /* AL-06b is the second mutant of the catalogued bug AL-06 */
    char spec[64], unit[64], where[64], why[256];
    char kind[16];   /* how it is caught: "" by numbers; "memory", "integrity", "status", "crash" */
    char proof[256]; /* not empty: an equivalent mutant, which nobody can tell */
};

/* Read tests/mutants/mutants.def.  *list is malloc'ed.  Returns how many, -1 when unreadable. */
int mutants_read(struct mutant **list);

/* Whether numbers must kill it. */
int mutant_is_numeric(const struct mutant *mutant);

/* ---- a walk through cases, in a child process ------------------------------------------------ */

/* The first member of what the child and its parent share.  visit is called for at = 0, 1, ...
 * until it returns 0 or at = n.  A case that ends the child (late: it took longer than
 * MUTANT_SECONDS) ends that child only; another one goes on behind it, unless died returns 0. */
enum { MUTANT_SECONDS = 20 };
struct mutant_walk {
    const char *shared, *spec; /* FOLDER/ID.so; "": what is linked here */
    int at, n;
    int (*visit)(struct mutant_walk *walk, const struct attn_spec *spec);
    int (*died)(struct mutant_walk *walk, int late);
    char error[256]; /* the library could not be loaded, or no child was to be had */
};
void mutant_walk(struct mutant_walk *walk, size_t size);

/* Parse and run a case under the time limit; 0: it is no case. */
int mutant_run_case(const struct attn_spec *spec, const struct attn_battery_case *battery,
                    struct attn_case *c, struct attn_result *result);

/* ---- killing --------------------------------------------------------------------------------- */

/* What became of one.  The cases that name the bug run first: a killer that does is of the mutant's
 * own family. */
struct kill {
    int cases;                              /* cases of the battery that it ran       */
    int own_cases;                          /* cases of the battery that name the bug */
    const struct attn_battery_case *killer; /* NULL: it survived                      */
    int own;                                /* the killer names the bug               */
    char how[32];                           /* "finite", ... "crash"                  */
    struct attn_result result;              /* of the killing case, unless it crashed */
    const struct attn_battery_case *other;  /* first case that failed in another way than the
                                               mutant's kind: that is no kill         */
    char other_how[32];
    char error[256]; /* of the walk */
};

/* Run the battery until a case kills FOLDER/ID.so; after two cases out of time nobody waits for a
 * third. */
void mutant_kill(const struct mutant *mutant, const char *folder, struct kill *kill);

/* ---- naming ---------------------------------------------------------------------------------- */

/* families.def says what is right: to which family a mutant belongs, and which words in a diagnosis
 * name that family. */
enum { NAMING_CASES = 5, NAMING_WORDS = 600 };
struct family {
    char name[32];
    char ids[512];            /* "AL" is all of AL-*; "AL-12" one of them, which wins over "AL" */
    char words[NAMING_WORDS]; /* "causal|diagonal": one of them in the diagnosis names the family */
};

/* As mutants_read. */
int families_read(struct family **list);

/* The family of a mutant; NULL when none lists it. */
const struct family *family_of(const struct family *list, int n, const struct mutant *m);

int family_is_named(const struct family *family, const char *diagnosis);

/* The mutant's first failing cases, as mutant_kill would meet them, and what each was taken for. */
struct naming {
    int cases;                              /* that it ran */
    const struct attn_battery_case *killer; /* the first that failed */
    int n; /* failing cases that were diagnosed: not that one, if it ended the child */
    const struct attn_battery_case *battery[NAMING_CASES];
    char text[NAMING_CASES][256]; /* "": no diagnosis */
    char error[256];
};

/* Run the battery and diagnose the first `most` (to NAMING_CASES) of the cases in which
 * FOLDER/ID.so fails by its numbers. */
void mutant_diagnose(const struct mutant *mutant, const char *folder, int most,
                     struct naming *naming);

#endif
