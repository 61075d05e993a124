/* The battery: each case has a name, its string, the bugs it stands for and the reason it exists.
 * It is small, adversarial and ordered by family (cases.def); the full tier adds cases_full.def.
 * tiers.h makes of it the cases that each set of claims is asked. */
#ifndef TESTS_HARNESS_CASES_BATTERY_H
#define TESTS_HARNESS_CASES_BATTERY_H

enum attn_tier { ATTN_TIER_QUICK, ATTN_TIER_FULL };
enum { ATTN_TIERS = 2 };
extern const char *const attn_tier_name[ATTN_TIERS]; /* "quick", "full" */

struct attn_battery_case {
    const char *name, *text, *ids, *why; /* ids: the catalogued bugs it stands for (docs/bugs.md) */
};

/* Written by hand: the quick tier's first, then those of the full one; NULL beyond, or where there
 * is no such name. */
int attn_battery_count(enum attn_tier tier);
const struct attn_battery_case *attn_battery_at(int index);
const struct attn_battery_case *attn_battery_find(const char *name);

#endif
