/* The cases that an implementation is asked: made for what it claims.
 *
 * The quick tier is the battery (cases.def) and a case for each value on which kernels branch
 * (factors.h); the full tier is the quick one followed by cases_full.def, grids over the same
 * families, and a case for each pair of such values.
 *
 * A case written by hand is asked within the claims: in a claimed storage type, forward alone
 * where no backward is claimed, at the nearest declared extents, and with as many keys as queries
 * or dv = d where nothing else is claimed.  Its point stays what it was: one that is about f64, 16
 * bits or a gradient keeps to these, and one that is about its extents keeps them.  A case that
 * cannot be asked stays in the list at its own extents, to be REFUSED and counted; one that has
 * become equal to another is left out. */
#ifndef TESTS_HARNESS_CASES_TIERS_H
#define TESTS_HARNESS_CASES_TIERS_H

#include "tests/harness/cases/claims.h"
#include "tests/harness/cases/factors.h"

struct attn_tier_case {
    struct attn_battery_case battery; /* owned by the list */
    int is_made;                      /* from this choice */
    struct attn_choice choice;
};
struct attn_tier_list {
    int n, capacity;
    struct attn_tier_case *at;
    struct attn_claims claims;
    struct attn_factors table; /* of these claims */
    int lacks_memory;          /* while it is made */
    int refused;               /* choices that the claims do not allow after all: must be 0 */
    int left_out;              /* pairs of values that are too much work for our own */
};

/* The cases of a tier within the claims, those that need no claim alike for every seed: it draws
 * the values `any`.  The list stays where it is, and is closed in any case.  ENOMEM. */
enum attn_status attn_tier_open(enum attn_tier tier, const struct attn_claims *claims,
                                enum attn_route route, uint64_t seed, struct attn_tier_list *list,
                                struct attn_error *err);
void attn_tier_close(struct attn_tier_list *list);

/* For "few-shapes": the cases of a list move to the nearest of 40 shapes; what can be in none of
 * them becomes equal to another, and is left out with it. */
void attn_few_shapes(struct attn_tier_list *list, enum attn_route route);

/* By its name; NULL. */
const struct attn_tier_case *attn_tier_find(const struct attn_tier_list *list, const char *name);

/* Extents that the claims allow, the nearest ones: a group that divides the heads, dv = d and as
 * many keys as queries where nothing else is claimed.  Lengths stay where the mask speaks of
 * them. */
void attn_case_reshape(const struct attn_claims *claims, struct attn_case *c);

/* A case written by hand, within the claims if it can be; ENOTSUP, with the reason, if not, and *c
 * then has its own extents, in a claimed type. */
enum attn_status attn_case_within(const struct attn_battery_case *hand,
                                  const struct attn_claims *claims, enum attn_route route,
                                  struct attn_case *c, struct attn_error *err);

#endif
