/* Suspects among what is added to the scores: a bias tensor, ALiBi. */
#include <math.h>
#include <stdint.h>

#include "ref/problem.h"
#include "tests/harness/faults/diagnose.h"

static const double log2_e = 1.44269504088896340736, ln_2 = 0.69314718055994530942;

/* A rank that indexes the whole bias by its own heads or rows. */
static int try_ranks(struct attn_hypotheses *x, const char *name)
{
    const struct attn_problem *p = &x->setup->problem;
    struct attn_fault_model t;
    for (int64_t ranks = 2; ranks <= 4; ranks *= 2) {
        attn_fault_none(x->setup, &t);
        t.bias_heads = p->heads / ranks;
        if (p->heads % ranks == 0 &&
            attn_hypothesis(x, &t, "fits %s of a rank's own heads (%lld ranks)", name,
                            (long long)ranks))
            return 1;
        t.bias_heads = 0;
        t.bias_rows = p->n_query / ranks;
        if (p->n_query % ranks == 0 && p->n_query > 0 &&
            attn_hypothesis(x, &t, "fits %s of a rank's own rows (%lld ranks)", name,
                            (long long)ranks))
            return 1;
    }
    return 0;
}

static int try_alibi(struct attn_hypotheses *x)
{
    const struct attn_problem *p = &x->setup->problem;
    struct attn_fault_model t;
    if (p->bias.kind != ATTN_BIAS_ALIBI)
        return 0;
    const int64_t offset[] = {0, p->n_key - p->n_query, 1 + p->bias.offset, p->bias.offset - 1};
    for (int n = 0; n < 8; n++) {
        attn_fault_none(x->setup, &t);
        t.alibi_offset = offset[n % 4];
        t.alibi_signed = n >= 4;
        if (attn_hypothesis(x, &t, "fits ALiBi with distance %s i %+lld - j",
                            n >= 4 ? "(signed)" : "of", (long long)t.alibi_offset))
            return 1;
    }
    return 0;
}

int attn_hypothesis_bias(struct attn_hypotheses *x)
{
    const struct attn_problem *p = &x->setup->problem;
    const double factor[] = {0, -1, p->scale, 2, log2_e, ln_2};
    static const char *const words[] = {
        "missing",     "of the wrong sign", "scaled like the scores",
        "added twice", "times log2(e)",     "times ln 2"};
    struct attn_fault_model t;
    if (p->bias.kind == ATTN_BIAS_NONE)
        return 0;
    const char *name = p->bias.kind == ATTN_BIAS_ALIBI ? "ALiBi" : "bias";
    for (size_t n = 0; n < sizeof factor / sizeof *factor; n++) {
        attn_fault_none(x->setup, &t);
        t.bias_factor = factor[n];
        if (attn_hypothesis(x, &t, "fits %s %s", name, words[n]))
            return 1;
    }
    attn_fault_none(x->setup, &t);
    t.alibi_more = 1;
    if (p->bias.kind == ATTN_BIAS_ALIBI &&
        attn_hypothesis(x, &t, "fits ALiBi with a distance one too large"))
        return 1;
    attn_fault_none(x->setup, &t);
    t.bias_by_kv = 1;
    if (p->heads != p->kv_heads && attn_hypothesis(x, &t, "fits %s looked up by the kv head", name))
        return 1;
    t.bias_by_kv = 0;
    t.bias_plane = 1;
    if (attn_hypothesis(x, &t, "fits the %s of batch 0 and head 0 for all", name))
        return 1;
    t.bias_plane = 0;
    t.bias_no_batch = 1;
    if (p->batch > 1 && attn_hypothesis(x, &t, "fits the %s of batch 0 for every batch", name))
        return 1;
    t.bias_no_batch = 0, t.bias_no_head = 1;
    if (p->heads > 1 && attn_hypothesis(x, &t, "fits the %s of head 0 for every head", name))
        return 1;
    t.bias_no_head = 0, t.bias_no_row = 1;
    if (p->n_query > 1 && attn_hypothesis(x, &t, "fits the %s of query 0 for every query", name))
        return 1;
    return try_ranks(x, name) || try_alibi(x);
}
