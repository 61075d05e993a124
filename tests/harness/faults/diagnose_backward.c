/* Suspects of the backward alone. */
#include <math.h>
#include <stdint.h>

#include "ref/problem.h"
#include "tests/harness/faults/diagnose.h"

static const double log2_e = 1.44269504088896340736, ln_2 = 0.69314718055994530942;

static int try_factor(struct attn_hypotheses *x, enum attn_output o)
{
    const struct attn_problem *p = &x->setup->problem;
    const double factor[] = {1 / p->scale, p->scale, -1, 2, 0.5, log2_e, ln_2, 0};
    static const char *const words[] = {
        "lacks the scale", "has the scale twice",  "has the wrong sign", "is doubled",
        "is halved",       "has a factor log2(e)", "has a factor ln 2",  "is 0"};
    struct attn_fault_model t;
    for (size_t n = 0; n < sizeof factor / sizeof *factor; n++) {
        attn_fault_none(x->setup, &t);
        if (!isfinite(factor[n]))
            continue;
        t.dq_factor = o == ATTN_DQ || o == ATTN_OUTPUTS ? factor[n] : 1;
        t.dk_factor = o == ATTN_DK || o == ATTN_OUTPUTS ? factor[n] : 1;
        t.dv_factor = o == ATTN_DV ? factor[n] : 1;
        if (attn_hypothesis(x, &t, "fits if %s %s", o == ATTN_OUTPUTS ? "dS" : attn_output_name(o),
                            words[n]))
            return 1;
    }
    return 0;
}

/* Gradients of a kv head, of whose query heads not all count alike. */
static int try_groups(struct attn_hypotheses *x)
{
    const struct attn_problem *p = &x->setup->problem;
    const int *fails = x->failed->failing;
    const char *names = !fails[ATTN_DV] ? "dK" : !fails[ATTN_DK] ? "dV" : "dK, dV";
    double share = (double)p->kv_heads / (double)p->heads;
    struct attn_fault_model t;
    attn_fault_none(x->setup, &t);
    if (p->heads == p->kv_heads)
        return 0;
    t.group_last = 1;
    if (attn_hypothesis(x, &t, "fits if the last head of a group overwrites dK, dV"))
        return 1;
    t.group_last = 0, t.group_first = 1;
    if (attn_hypothesis(x, &t, "fits if only the first head of a group reaches dK, dV"))
        return 1;
    t.group_first = 0;
    t.dk_factor = fails[ATTN_DK] ? share : 1;
    t.dv_factor = fails[ATTN_DV] ? share : 1;
    return attn_hypothesis(x, &t, "fits %s averaged over the %lld heads of a group, not summed",
                           names, (long long)(p->heads / p->kv_heads));
}

/* Delta of another row; the mask forgotten. */
static int try_delta(struct attn_hypotheses *x)
{
    struct attn_fault_model t;
    attn_fault_none(x->setup, &t);
    t.hidden = 0;
    if (x->setup->problem.mask != NULL &&
        attn_hypothesis(x, &t, "fits a backward without the mask"))
        return 1;
    attn_fault_none(x->setup, &t);
    t.delta_before = 1;
    if (attn_hypothesis(x, &t, "fits delta of the row before"))
        return 1;
    t.delta_before = 2;
    if (attn_hypothesis(x, &t, "fits delta with O of the row before"))
        return 1;
    t.delta_before = 0;
    for (t.delta_tile = 2; t.delta_tile <= 256; t.delta_tile *= 2)
        if (attn_hypothesis(x, &t, "fits delta of the first row of a tile of %lld",
                            (long long)t.delta_tile))
            return 1;
    return 0;
}

/* Sums that go to the wrong place, or are none. */
static int try_scatter(struct attn_hypotheses *x)
{
    struct attn_fault_model t;
    attn_fault_none(x->setup, &t);
    t.by_position = 1;
    if (attn_hypothesis(x, &t,
                        "fits gradients that land at a position in the list of visible keys"))
        return 1;
    t.by_position = 0, t.dk_before = 1;
    if (attn_hypothesis(x, &t, "fits dK that lands on the visible key before"))
        return 1;
    t.dk_before = 0, t.dbias_sum = ATTN_MODEL_OVERWRITTEN;
    if (x->failed->failing[ATTN_DBIAS] &&
        attn_hypothesis(x, &t, "fits dBias overwritten where it is to be summed"))
        return 1;
    t.dbias_sum = ATTN_MODEL_FIRST_HEAD;
    return x->failed->failing[ATTN_DBIAS] &&
           attn_hypothesis(x, &t, "fits dBias of the first head alone");
}

int attn_hypothesis_backward(struct attn_hypotheses *x)
{
    struct attn_fault_model t;
    if (!x->failed->backward)
        return 0;
    attn_fault_none(x->setup, &t);
    t.no_delta = 1;
    if (attn_hypothesis(x, &t, "fits if delta = dO . O is missing"))
        return 1;
    attn_fault_none(x->setup, &t);
    t.no_dlse = 1;
    if (x->setup->given.d_lse && attn_hypothesis(x, &t, "fits if dLSE is ignored"))
        return 1;
    attn_fault_none(x->setup, &t);
    t.minus_dlse = 1;
    if (x->setup->given.d_lse && attn_hypothesis(x, &t, "fits if dLSE has the wrong sign"))
        return 1;
    if (try_groups(x) || try_delta(x) || try_scatter(x))
        return 1;
    const enum attn_output outputs[] = {ATTN_OUTPUTS, ATTN_DQ, ATTN_DK, ATTN_DV};
    int alone = !x->failed->failing[ATTN_DQ] || !x->failed->failing[ATTN_DK];
    for (int n = alone; n < 4; n++)
        if (try_factor(x, outputs[n]))
            return 1;
    return 0;
}
