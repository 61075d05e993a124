/* The table of relations, and running one of them. */
#include "tests/harness/relations/relations.h"

#include <stdio.h>
#include <string.h>

#include "tests/harness/relations/relation_fixture.h"

static const struct attn_relation table[] = {
#define ATTN_RELATION(id, ids, says) {id, ids, says},
#include "tests/harness/relations/relations.def"
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

/* Ragged everywhere; and everything a multiple of 4, for ranks to share. */
static const struct attn_fixture_shape shapes[] = {{2, 6, 3, 19, 37, 7, 5},
                                                   {2, 8, 4, 16, 24, 8, 6}};

static void run_plans(const struct attn_relation *relation, struct attn_fixture *f)
{
    static const struct attn_relation_plan *const tables[] = {
        attn_relations_of_values, attn_relations_of_keys, attn_relations_of_gradients,
        attn_relations_of_state, attn_relations_of_memory};
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const struct attn_relation_plan *p = tables[t]; p->id != NULL; p++)
            if (strcmp(p->id, relation->id) == 0 && f->result->verdict == ATTN_PASS) {
                if (p->run != NULL)
                    p->run(f);
                else
                    attn_fixture_follow(f, p);
            }
}

static void run(const struct attn_relation *relation, struct attn_fixture *f)
{
    static const enum attn_dtype preferred[] = {ATTN_F32, ATTN_F64, ATTN_BF16, ATTN_F16};
    struct attn_result *result = f->result;
    unsigned caps = f->spec->impl->caps;
    f->dtype = ATTN_F32;
    memset(result, 0, sizeof *result);
    for (int t = 3; t >= 0; t--)
        if (caps & 1u << preferred[t])
            f->dtype = preferred[t];
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes && result->verdict == ATTN_PASS; s++) {
        f->shape = shapes[s];
        if (f->claims != NULL) {
            f->shape.k = caps & ATTN_CAP_CROSS ? f->shape.k : f->shape.q;
            f->shape.g = caps & ATTN_CAP_GQA ? f->shape.g : f->shape.h;
            f->shape.v = caps & ATTN_CAP_DV ? f->shape.v : f->shape.d;
        }
        run_plans(relation, f);
    }
    if (result->verdict != ATTN_PASS || f->compared > 0)
        return;
    result->verdict = f->refusal[0] != '\0' ? ATTN_REFUSED : ATTN_ERROR;
    snprintf(result->text, sizeof result->text, "%s",
             f->refusal[0] != '\0' ? f->refusal : "the relation compared nothing");
}

void attn_relation_run(const struct attn_relation *relation, const struct attn_spec *spec,
                       struct attn_result *result)
{
    struct attn_fixture f = {.spec = spec, .result = result};
    run(relation, &f);
}

/* The capabilities that claims amount to. */
static unsigned caps_of(const struct attn_claims *claims)
{
    unsigned caps = claims->bits & ATTN_CLAIMS_SHARED & ~(unsigned)ATTN_CAP_MASK;
    return claims->bits & (ATTN_PLUGIN_CAUSAL | ATTN_PLUGIN_DENSE) ? caps | ATTN_CAP_MASK : caps;
}

void attn_relation_run_claimed(const struct attn_relation *relation, const struct attn_spec *spec,
                               const struct attn_claims *claims, unsigned *needs,
                               struct attn_result *result)
{
    struct attn_impl impl = *spec->impl;
    struct attn_spec own = *spec;
    struct attn_fixture f = {.spec = &own, .result = result, .claims = claims};
    impl.caps = caps_of(claims);
    own.impl = &impl;
    run(relation, &f);
    *needs = result->verdict == ATTN_REFUSED ? 0 : f.needs;
    if (*needs != 0 && claims->bits & ATTN_PLUGIN_REPEATS)
        *needs |= ATTN_PLUGIN_REPEATS;
}
