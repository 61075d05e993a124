/* Where a program asks for something that it may be refused, and which of these places is refused
 * this time.
 *
 * A site is a kind of call with the stack that it is made from.  The table of sites lies in a file
 * that all processes of one run map: those that fork, and those that execute the program anew. */
#ifndef TESTS_FAULTS_SITES_H
#define TESTS_FAULTS_SITES_H

#include <stdatomic.h>
#include <stdint.h>

#define FAULT_TABLE "ATTN_FAULT_TABLE" /* environment: the path of the table */

enum { FAULT_SITES = 1 << 13, FAULT_DEPTH = 24 };

struct fault_site {
    _Atomic uint64_t key;     /* 0: free */
    const char *_Atomic name; /* of the function that fails: a literal of this program */
    atomic_int calls;
    atomic_int live; /* blocks taken here that nobody has given back, in the main process */
    int depth;
    uintptr_t frame[FAULT_DEPTH];
};

struct fault_table {
    uint64_t fail_key; /* the site that is refused; 0: none */
    int fail_call;     /* which of its calls, from 1 */
    atomic_int fired;  /* it was */
    int ended;         /* main() came to its end */
    char meminfo[64];  /* the path of what is read as /proc/meminfo: a small machine */
    int haste;         /* by so much clocks are faster, where times are measured */
    uintptr_t base;    /* where the program is loaded; the same in each process */
    struct fault_site site[FAULT_SITES];
};

/* Map the table at path; NULL when that is not possible. */
struct fault_table *fault_map(const char *path);

/* From here on calls of this process are counted in the table, and may fail.  main_process: blocks
 * that it takes are followed until they are given back. */
void fault_start(struct fault_table *table, int main_process);
void fault_stop(void);

#endif
