/* Soak: random cases over all that is claimed, and a failure made small.
 *
 * Case number n of a soak is a function of its seed and the claims, so a soak is repeated by its
 * seed, and one case of it by its string. */
#ifndef TESTS_HARNESS_CASES_SOAK_H
#define TESTS_HARNESS_CASES_SOAK_H

#include "tests/harness/cases/claims.h"

struct attn_soak_source {
    uint64_t seed;
    const struct attn_claims *claims; /* borrowed */
    enum attn_route route;
};

/* A random case within the claims: any mask, type, fill, layout, bias and field that they allow.
 * Most are of little work.  Numbers of cases go through the extents in turn: every multiple of 8 as
 * d, heads up to 64, groups up to 16, lengths up to 1,100 (256 where there are as many keys as
 * queries), or what is declared nearest to these.  Nearly always one that can be set up and is
 * allowed; where many draws are not, the last one, which is refused. */
void attn_soak_case(const struct attn_soak_source *source, uint64_t number, struct attn_case *c);

/* Does a case still show what is looked for?  arg is the caller's. */
struct attn_soak_judge {
    int (*fails)(void *arg, const struct attn_case *c);
    void *arg;
};

/* Make a failing case smaller while it fails: fields to their defaults, mask and fill simpler,
 * extents halved and then less by one.  Judges at most `budget` cases; returns how many it did. */
int attn_soak_shrink(const struct attn_soak_judge *judge, int budget, struct attn_case *c);

#endif
