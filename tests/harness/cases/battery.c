/* The tables of the battery. */
#include <pthread.h>
#include <string.h>

#include "tests/harness/cases/cases.h"
#include "tests/harness/cases/factors.h"

/* Written by hand: one table, the quick tier's first. */
static const struct attn_battery_case battery[] = {
#define ATTN_CASE(name, text, ids, why) {name, text, ids, why},
#include "tests/harness/cases/cases.def"
#include "tests/harness/cases/cases_full.def"
#undef ATTN_CASE
};

enum {
    QUICK = 0
#define ATTN_CASE(name, text, ids, why) +1
#include "tests/harness/cases/cases.def"
#undef ATTN_CASE
    ,
    BY_HAND = sizeof battery / sizeof *battery
};

/* Made from the table of factors when they are first asked for: those of a tier begin with those of
 * the tier before. */
struct made {
    int n;
    struct attn_factor_case source[ATTN_FACTOR_FULL_MOST];
    struct attn_battery_case battery[ATTN_FACTOR_FULL_MOST];
};

static void make(enum attn_tier tier, struct made *made)
{
    made->n = attn_factor_cases(tier, made->source);
    for (int i = 0; i < made->n; i++)
        made->battery[i] = (struct attn_battery_case){made->source[i].name, made->source[i].text,
                                                      "", made->source[i].why};
}

static struct made quick, full;
static pthread_once_t quick_once = PTHREAD_ONCE_INIT, full_once = PTHREAD_ONCE_INIT;

static void make_quick(void)
{
    make(ATTN_TIER_QUICK, &quick);
}

static void make_full(void)
{
    make(ATTN_TIER_FULL, &full);
}

static const struct made *made_for(enum attn_tier tier)
{
    pthread_once(tier == ATTN_TIER_QUICK ? &quick_once : &full_once,
                 tier == ATTN_TIER_QUICK ? make_quick : make_full);
    return tier == ATTN_TIER_QUICK ? &quick : &full;
}

const char *const attn_tier_name[ATTN_TIERS] = {"quick", "full"};

int attn_tier_count(enum attn_tier tier)
{
    return (tier == ATTN_TIER_QUICK ? QUICK : BY_HAND) + made_for(tier)->n;
}

/* Quick by hand, quick made, full by hand, full made. */
const struct attn_battery_case *attn_tier_at(enum attn_tier tier, int index)
{
    const struct made *alone = made_for(ATTN_TIER_QUICK);
    if (index < 0 || index >= attn_tier_count(tier))
        return NULL;
    if (index < QUICK)
        return &battery[index];
    if (index < QUICK + alone->n)
        return &alone->battery[index - QUICK];
    if (index < BY_HAND + alone->n)
        return &battery[index - alone->n];
    return &made_for(ATTN_TIER_FULL)->battery[index - BY_HAND];
}

int attn_battery_count(void)
{
    return QUICK;
}

const struct attn_battery_case *attn_battery_at(int index)
{
    return index >= 0 && index < QUICK ? &battery[index] : NULL;
}

const struct attn_battery_case *attn_battery_find(const char *name)
{
    for (int n = 0; n < BY_HAND; n++)
        if (strcmp(battery[n].name, name) == 0)
            return &battery[n];
    for (int tier = ATTN_TIER_QUICK; tier <= ATTN_TIER_FULL && strchr(name, '-') != NULL; tier++) {
        const struct made *made = made_for((enum attn_tier)tier);
        for (int n = 0; n < made->n; n++)
            if (strcmp(made->battery[n].name, name) == 0)
                return &made->battery[n];
    }
    return NULL;
}
