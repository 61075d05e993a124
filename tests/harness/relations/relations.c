/* The table of relations, and running one of them. */
#include "tests/harness/relations/relations.h"

#include <stdio.h>
#include <string.h>

#include "tests/harness/relations/relation_fixture.h"

const struct attn_relation attn_relations[ATTN_RELATION_COUNT] = {
#define ATTN_RELATION(id, ids, says) {id, ids, says},
#include "tests/harness/relations/relations.def"
#undef ATTN_RELATION
};

const struct attn_relation *attn_relation_find(const char *id)
{
    for (int r = 0; r < ATTN_RELATION_COUNT; r++)
        if (strcmp(attn_relations[r].id, id) == 0)
            return &attn_relations[r];
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

static void run_on_shapes(const struct attn_relation *relation, struct attn_fixture *f)
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
        f->shape.k = caps & ATTN_CAP_CROSS ? f->shape.k : f->shape.q;
        f->shape.g = caps & ATTN_CAP_GQA ? f->shape.g : f->shape.h;
        f->shape.v = caps & ATTN_CAP_DV ? f->shape.v : f->shape.d;
        run_plans(relation, f);
    }
    if (result->verdict != ATTN_PASS || f->compared > 0)
        return;
    result->verdict = f->refusal[0] != '\0' || f->claims != NULL ? ATTN_REFUSED : ATTN_ERROR;
    snprintf(result->text, sizeof result->text, "%s",
             f->refusal[0] != '\0' ? f->refusal : "the relation compared nothing");
}

/* The capabilities that claims amount to. */
static unsigned caps_of(const struct attn_claims *claims)
{
    unsigned caps = claims->bits & ATTN_CAPS_SHARED;
    return claims->bits & (ATTN_CAP_CAUSAL | ATTN_CAP_DENSE) ? caps | ATTN_CAP_MASK : caps;
}

unsigned attn_relation_run(const struct attn_relation *relation, const struct attn_spec *spec,
                           const struct attn_claims *claims, struct attn_result *result)
{
    struct attn_impl impl = *spec->impl;
    struct attn_spec own = *spec;
    struct attn_fixture f = {.spec = spec, .result = result, .claims = claims};
    if (claims != NULL) {
        impl.caps = caps_of(claims);
        own.impl = &impl;
        f.spec = &own;
    }
    run_on_shapes(relation, &f);
    if ((result->verdict == ATTN_REFUSED && !result->by_it) || f.needs == 0)
        return 0;
    return f.needs | (claims->bits & ATTN_CAP_REPEATS);
}
