/* See bugs.h. */
#include "tests/harness/diagnosis/bugs.h"

#include <stdio.h>
#include <string.h>

#include "tests/harness/base/fileio.h"
#include "tests/harness/cases/battery.h"

const struct attn_bug attn_bug[] = {
#define ATTN_BUG(id, evidence, reference, what, elsewhere) \
    {id, evidence, reference, what, elsewhere},
#include "tests/harness/diagnosis/bugs.def"
#undef ATTN_BUG
};

const int attn_bug_count = sizeof attn_bug / sizeof *attn_bug;

const struct attn_bug *attn_bug_find(const char *id)
{
    for (int i = 0; i < attn_bug_count; i++)
        if (strcmp(attn_bug[i].id, id) == 0)
            return &attn_bug[i];
    return NULL;
}

int attn_bug_is_named(const char *ids, const char *id)
{
    size_t n = strlen(id);
    for (const char *at = ids; (at = strstr(at, id)) != NULL; at += n)
        if ((at == ids || at[-1] == ',' || at[-1] == ' ') && (at[n] == '\0' || at[n] == ','))
            return 1;
    return 0;
}

int attn_bug_cases(const struct attn_bug *bug, char *text, size_t size)
{
    enum { SHOWN = 4 }; /* of the full tier's cases, where the quick tier has none */
    int quick = 0, full = 0, shown = 0;
    text[0] = '\0';
    for (int i = 0; i < attn_battery_count(ATTN_TIER_FULL); i++) {
        const struct attn_battery_case *c = attn_battery_at(i);
        if (!attn_bug_is_named(c->ids, bug->id))
            continue;
        int is_quick = i < attn_battery_count(ATTN_TIER_QUICK);
        quick += is_quick;
        full += !is_quick;
        if (!is_quick && (quick > 0 || full > SHOWN))
            continue;
        attn_append(text, size, "%s%s", text[0] != '\0' ? ", " : "", c->name);
        shown += !is_quick;
    }
    if (full > shown)
        attn_append(text, size, "%s%d%s of the full tier", text[0] != '\0' ? ", " : "",
                    full - shown, shown > 0 ? " more" : "");
    return quick + full;
}
