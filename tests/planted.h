/* An honest implementation with one fault, which strikes under conditions of the table of factors.
 *
 * The conditions are looked for in the problem and in the tensors that the implementation is given,
 * as the dispatch of a kernel would: nothing here knows of cases.  Where all hold, one row
 * of one output, that of its largest element, is half as large again. */
#ifndef TESTS_PLANTED_H
#define TESTS_PLANTED_H

#include "optimized/registry.h"
#include "tests/harness/factors.h"

enum { PLANTED_ATOMS = 2 };
struct planted_fault {
    enum attn_pass pass; /* the pass in which it strikes */
    int n;
    struct {
        int factor, value;
    } atom[PLANTED_ATOMS];
};

/* Whether a problem has a value.  backward: its tensors, NULL in the forward pass. */
int planted_holds(int factor, int value, const struct attn_problem *problem,
                  const struct attn_backward *backward);

/* A spec of the implementation with the fault, until the next call. */
struct attn_spec planted_spec(const struct planted_fault *fault);

/* "heads=7 & window=16, bwd". */
void planted_print(const struct planted_fault *fault, char *text, size_t size);

#endif
