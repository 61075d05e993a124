/* The table of relations, and running one of them. */
#include "tests/harness/relations.h"

#include <stdio.h>
#include <string.h>

#include "tests/harness/relation_lab.h"

static const struct attn_relation table[] = {
#define ATTN_RELATION(id, name, ids, says) {id, ids, says, attn_relation_##name},
#include "tests/harness/relations.def"
#undef ATTN_RELATION
};

int attn_relation_count(void)
{
    return (int)(sizeof table / sizeof *table);
}

const struct attn_relation *attn_relation_at(int index)
{
    return index >= 0 && index < attn_relation_count() ? &table[index] : NULL;
}

const struct attn_relation *attn_relation_find(const char *id)
{
    for (int r = 0; r < attn_relation_count(); r++)
        if (strcmp(table[r].id, id) == 0)
            return &table[r];
    return NULL;
}

void attn_relation_run(const struct attn_relation *relation, const struct attn_spec *spec,
                       struct attn_result *result)
{
    /* Ragged everywhere; and everything a multiple of 4, for ranks to share. */
    static const struct attn_lab_shape shape[] = {{2, 6, 3, 19, 37, 7, 5}, {2, 8, 4, 16, 24, 8, 6}};
    static const enum attn_dtype preferred[] = {ATTN_F32, ATTN_F64, ATTN_BF16, ATTN_F16};
    struct attn_lab lab = {.spec = spec, .result = result, .dtype = ATTN_F32};
    memset(result, 0, sizeof *result);
    for (int t = 3; t >= 0; t--)
        if (spec->impl->caps & 1u << preferred[t])
            lab.dtype = preferred[t];
    for (size_t s = 0; s < sizeof shape / sizeof *shape && result->verdict == ATTN_PASS; s++)
        relation->run(&lab, &shape[s]);
    if (result->verdict != ATTN_PASS || lab.compared > 0)
        return;
    result->verdict = lab.refusal[0] != '\0' ? ATTN_REFUSED : ATTN_ERROR;
    snprintf(result->text, sizeof result->text, "%s",
             lab.refusal[0] != '\0' ? lab.refusal : "the relation compared nothing");
}
