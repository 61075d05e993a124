/* Mutants: the library with one line changed (mutants.def).  Which case of the quick battery kills
 * one, and what the diagnosis (tests/harness/diagnosis/diagnose.h) says of it.
 */
#ifndef TESTS_MUTANTS_MUTANTS_H
#define TESTS_MUTANTS_MUTANTS_H

#include "tests/harness/cases/battery.h"
#include "tests/harness/judge/runner.h"

struct mutant {
    char id[16], bug[16]; /* AL-06b is the second mutant of the catalogued bug AL-06 */
    char spec[64], unit[64], where[64], why[256];
    char kind[16];   /* how it is caught: "" by numbers; "memory", "integrity", "status", "crash" */
    char proof[256]; /* not empty: an equivalent mutant, which no case can tell */
    char lives[16];  /* "f32 bf16": asked in one of these types alone it lives */
};

/* Read tests/mutants/mutants.def.  *list is malloc'ed.  Returns how many, -1 when unreadable.
 * *equivalent: the number at the end of the list that no case can tell. */
int mutants_read(struct mutant **list, int *equivalent);

/* 1: numbers must kill it; 0: it has a kind. */
int mutant_is_numeric(const struct mutant *mutant);

/* 1: it lives where every case is asked in this type; 0: it dies there. */
int mutant_lives_in(const struct mutant *mutant, enum attn_dtype type);

/* A family of mutants, and the words in a diagnosis that name it (families.def). */
struct family {
    const char *name;
    const char *ids;   /* "AL" is all of AL-*; "AL-12" one of them, which wins over "AL" */
    const char *words; /* "causal|diagonal": one of them in the diagnosis names the family */
};
enum {
    MUTANT_FAMILIES = 0
#define MUTANT_FAMILY(name, ids, words) +1
#include "tests/mutants/families.def"
#undef MUTANT_FAMILY
};
extern const struct family mutant_families[MUTANT_FAMILIES];

/* The family of a mutant; NULL when none of the list has it. */
const struct family *family_of(const struct family *list, int n, const struct mutant *m);

int family_is_named(const struct family *family, const char *diagnosis);

/* The outcome of one.  The cases that name the bug run first: a killer that does is of the mutant's
 * own family. */
enum { FATE_CASES = 5, MUTANTS_AT_ONCE = 8 };
struct fate {
    int cases;                              /* cases of the battery that it ran       */
    int own_cases;                          /* cases of the battery that name the bug */
    const struct attn_battery_case *killer; /* NULL: it survived                      */
    int own;                                /* the killer names the bug               */
    char how[32];                           /* "finite", ... "crash"                  */
    const struct attn_battery_case *other;  /* first case that failed in another way than the
                                               mutant's kind: that is no kill         */
    char other_how[32];
    int strikes;  /* in one type: cases that it passed with other results than the library's */
    double worst; /* largest error/bound of these */
    const struct attn_battery_case *nearest; /* the case of that */
    int n; /* failing cases that were diagnosed: not one that ended the child */
    const struct attn_battery_case *battery[FATE_CASES];
    char text[FATE_CASES][256]; /* what each was taken for; "": no diagnosis */
    char error[256];            /* of the child */
};

/* Run the battery until a case kills FOLDER/ID.so, and the first `most` (to FATE_CASES) of those
 * that fail by their numbers are diagnosed.  After three deaths of the child it is let be.  Several
 * run side by side until none is left: those that must survive.
 *
 * type: every case is asked in this enum attn_dtype, as an implementation that claims that type
 * alone is asked; in bf16 and f16 P and dS may be rounded on the way, as kernels round them.  Any
 * number kills then. */
enum { MUTANTS_AS_WRITTEN = -1 }; /* each case in its own type */
void mutants_run(int type, const struct mutant *mutant, int n, const char *folder, int most,
                 struct fate *fate);

#endif
