/* Soak: random cases over the whole grammar, and a failure made small.
 *
 * Case number n of a seed is a function of both, so a soak is repeated by its seed, and one case of
 * it by its string. */
#ifndef TESTS_HARNESS_CASES_SOAK_H
#define TESTS_HARNESS_CASES_SOAK_H

#include "tests/harness/cases/cases.h"

/* A random case, its extents small or from the table of factors, most of them of little work: any
 * mask, type, fill, layout, bias and field.  Always parses; now and then its fill cannot keep its
 * promise and the case cannot be set up, which is nobody's failure. */
void attn_soak_case(uint64_t seed, uint64_t number, struct attn_case *c);

/* Does a case still show what is looked for?  arg is the caller's. */
struct attn_soak_judge {
    int (*fails)(void *arg, const struct attn_case *c);
    void *arg;
};

/* Make a failing case smaller while it fails: fields to their defaults, mask and fill simpler,
 * extents halved and then less by one.  Judges at most `budget` cases; returns how many it did. */
int attn_soak_shrink(const struct attn_soak_judge *judge, int budget, struct attn_case *c);

#endif
