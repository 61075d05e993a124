/* See bugs.h. */
#include "tests/harness/bugs.h"

#include <stdio.h>
#include <string.h>

#include "tests/harness/cases.h"

static const struct attn_bug bugs[] = {
#define ATTN_BUG(id, evidence, reference, what, elsewhere) \
    {id, evidence, reference, what, elsewhere},
#include "tests/harness/bugs.def"
#undef ATTN_BUG
};

int attn_bug_count(void)
{
    return (int)(sizeof bugs / sizeof *bugs);
}

const struct attn_bug *attn_bug_at(int index)
{
    return &bugs[index];
}

const struct attn_bug *attn_bug_find(const char *id)
{
    for (int i = 0; i < attn_bug_count(); i++)
        if (strcmp(bugs[i].id, id) == 0)
            return &bugs[i];
    return NULL;
}

/* Whether a comma-separated list names an id. */
static int names(const char *ids, const char *id)
{
    size_t n = strlen(id);
    for (const char *at = ids; (at = strstr(at, id)) != NULL; at += n)
        if ((at == ids || at[-1] == ',' || at[-1] == ' ') && (at[n] == '\0' || at[n] == ','))
            return 1;
    return 0;
}

int attn_bug_cases(const struct attn_bug *bug, char *text, size_t size)
{
    int n = 0;
    text[0] = '\0';
    for (int i = 0; i < attn_battery_count(); i++) {
        const struct attn_battery_case *c = attn_battery_at(i);
        if (!names(c->ids, bug->id))
            continue;
        size_t used = strlen(text);
        snprintf(text + used, size - used, "%s%s", n++ > 0 ? ", " : "", c->name);
    }
    return n;
}
