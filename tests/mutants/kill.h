/* Mutants: reading their list, and finding the first case of the quick battery that kills one. */
#ifndef TESTS_MUTANTS_KILL_H
#define TESTS_MUTANTS_KILL_H

#include "tests/harness/runner.h"

struct mutant {
    char id[16], bug[16]; /* AL-06b is the second mutant of the catalogued bug AL-06 */
    char spec[64], unit[64], where[64], why[256];
    char kind[16];   /* how it is caught: "" by numbers; "memory", "integrity", "status", "crash" */
    char proof[256]; /* not empty: an equivalent mutant, which nobody can tell */
};

/* Read tests/mutants/mutants.def.  *list is malloc'ed.  Returns how many, -1 when unreadable. */
int mutants_read(struct mutant **list);

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
    char error[256]; /* could not be loaded                            */
};

/* Load FOLDER/ID.so in a child process and run the battery until a case kills the mutant.  A case
 * that crashes or takes longer than MUTANT_SECONDS ends the child only, and the next one goes on;
 * after two cases out of time nobody waits for a third. */
enum { MUTANT_SECONDS = 20 };
void mutant_kill(const struct mutant *mutant, const char *folder, struct kill *kill);

#endif
