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

/* A case within the claims.  Every second one walks through numbers in turn, or what is declared
 * nearest to them: every multiple of 8 up to 256 as d, groups up to 16, even heads up to 64,
 * batches up to 16, some dv, softcaps and windows, each tail that 64 leaves of the keys; with
 * backward where it is claimed, on plain data.  The others are random: values of the factors
 * (factors.h), of which each case draws its own numbers, and any fill, layout and field that the
 * claims allow, most of little work.  Nearly always one that can
 * be set up and is allowed; where many draws are not, the last one, which is refused. */
void attn_soak_case(const struct attn_soak_source *source, uint64_t number, struct attn_case *c);

/* Numbers that cases on plain data have met: d / 8, heads / 2, twice the softcap, 1 + keys % 64 of
 * more than 64. */
enum attn_walk {
    ATTN_WALK_D,
    ATTN_WALK_HEADS,
    ATTN_WALK_GROUP,
    ATTN_WALK_BATCH,
    ATTN_WALK_TAIL,
    ATTN_WALK_DV,
    ATTN_WALK_SOFTCAP,
    ATTN_WALK_WINDOW,
    ATTN_WALKS
};
struct attn_soak_walked {
    unsigned char met[ATTN_WALKS][129]; /* by number; [0]: no such one */
};
void attn_soak_note(const struct attn_claims *claims, const struct attn_case *c,
                    struct attn_soak_walked *walked);
int attn_soak_met(const struct attn_soak_walked *walked, enum attn_walk walk);
void attn_soak_print(const struct attn_soak_walked *walked, char *text, size_t size);

/* Does a case still show what is looked for?  arg is the caller's. */
struct attn_soak_judge {
    int (*fails)(void *arg, const struct attn_case *c);
    void *arg;
};

/* Make a failing case smaller while it fails: fields to their defaults, mask and fill simpler,
 * extents halved and then less by one.  Judges at most `budget` cases; returns how many it did. */
int attn_soak_shrink(const struct attn_soak_judge *judge, int budget, struct attn_case *c);

#endif
