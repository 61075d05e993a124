/* The libraries of lab 09: ten implementations, of which the seed makes some wrong.  What one
 * computes is the truth with a fault model of tests/harness/diagnosis (hunt.def), rounded once. */
#ifndef EXPERIMENTS_GRADE_HUNT_H
#define EXPERIMENTS_GRADE_HUNT_H

#include "tests/harness/inputs/setup.h"

enum { ATTN_LIBRARIES = 10, ATTN_LIBRARIES_RIGHT = 3 };

struct attn_hunt_fault {
    const char *word, *words, *least;
};

/* The fault of library 1 to 10 of a seed; NULL: it is right. */
const struct attn_hunt_fault *attn_hunt_fault(const char *seed, int number);

/* What it computes, into the outputs of an open setup. */
enum attn_status attn_hunt_compute(const struct attn_hunt_fault *fault, struct attn_setup *setup,
                                   struct attn_error *err);

#endif
