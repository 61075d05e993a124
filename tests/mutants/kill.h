/* Mutants: reading their list, and finding the first case of the battery that kills one. */
#ifndef TESTS_MUTANTS_KILL_H
#define TESTS_MUTANTS_KILL_H

#include "tests/harness/runner.h"

struct mutant {
    char id[16], spec[64], where[64], why[256];
};

/* Read tests/mutants/mutants.def.  *list is malloc'ed.  Returns how many, -1 when unreadable. */
int mutants_read(struct mutant **list);

/* What became of one. */
struct kill {
    int cases;                              /* cases of the battery that it ran       */
    const struct attn_battery_case *killer; /* NULL: it survived                      */
    struct attn_result result;              /* of the killing case                    */
    const struct attn_battery_case *other;  /* first case that failed in another way
                                               (integrity, memory, status): no kill   */
    char error[256];                        /* could not be loaded                    */
};

/* Load FOLDER/ID.so and run the battery until the numbers of a case are wrong. */
void mutant_kill(const struct mutant *mutant, const char *folder, struct kill *kill);

#endif
