/* The tables of the battery. */
#include <string.h>

#include "tests/harness/cases.h"

/* One table, so that the quick tier is the full one's beginning. */
static const struct attn_battery_case battery[] = {
#define ATTN_CASE(name, text, ids, why) {name, text, ids, why},
#include "tests/harness/cases.def"
#include "tests/harness/cases_full.def"
#undef ATTN_CASE
};

enum {
    QUICK = 0
#define ATTN_CASE(name, text, ids, why) +1
#include "tests/harness/cases.def"
#undef ATTN_CASE
};

static const char *const tier_name[ATTN_TIERS] = {"quick", "full"};

const char *attn_tier_name(enum attn_tier tier)
{
    return (unsigned)tier < ATTN_TIERS ? tier_name[tier] : "unknown";
}

int attn_tier_find(const char *name)
{
    for (int tier = 0; tier < ATTN_TIERS; tier++)
        if (strcmp(tier_name[tier], name) == 0)
            return tier;
    return -1;
}

int attn_tier_count(enum attn_tier tier)
{
    return tier == ATTN_TIER_QUICK ? QUICK : (int)(sizeof battery / sizeof *battery);
}

const struct attn_battery_case *attn_tier_at(enum attn_tier tier, int index)
{
    return index >= 0 && index < attn_tier_count(tier) ? &battery[index] : NULL;
}

int attn_battery_count(void)
{
    return QUICK;
}

const struct attn_battery_case *attn_battery_at(int index)
{
    return attn_tier_at(ATTN_TIER_QUICK, index);
}

const struct attn_battery_case *attn_battery_find(const char *name)
{
    for (int n = 0; n < attn_tier_count(ATTN_TIER_FULL); n++)
        if (strcmp(battery[n].name, name) == 0)
            return &battery[n];
    return NULL;
}
