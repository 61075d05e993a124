/* Suspects among layouts: axes taken for one another, strides that are not honoured. */
#include <stdint.h>

#include "ref/problem.h"
#include "tests/harness/faults/diagnose.h"

/* Tensors with a token and a head axis, which may change places. */
static int is_of_tokens(int slot)
{
    return slot != ATTN_T_BIAS && slot != ATTN_T_DBIAS;
}

int attn_hypothesis_layout(struct attn_hypotheses *x)
{
    enum attn_case_layout layout = x->setup->given.layout;
    const char *other = layout == ATTN_LAYOUT_BHLD ? "BLHD" : "BHLD";
    struct attn_fault_model t;
    if ((layout != ATTN_LAYOUT_BHLD && layout != ATTN_LAYOUT_BLHD) || x->setup->given.only != 0)
        return 0;
    attn_fault_none(x->setup, &t);
    t.inputs_turned = t.outputs_turned = 1;
    if (attn_hypothesis(x, &t, "fits layout %s", other))
        return 1;
    t.inputs_turned = 0;
    if (attn_hypothesis(x, &t, "fits layout %s for the outputs alone", other))
        return 1;
    t.inputs_turned = 1, t.outputs_turned = 0;
    if (attn_hypothesis(x, &t, "fits layout %s for the inputs alone", other))
        return 1;
    t.inputs_turned = 0;
    for (int slot = 0; slot < ATTN_SLOTS; slot++) {
        const struct attn_tensor *tensor = &x->setup->tensor[slot];
        t.turned = 1u << slot;
        if (tensor->data != NULL && is_of_tokens(slot) &&
            attn_hypothesis(x, &t, "fits layout %s for %s alone", other, tensor->name))
            return 1;
    }
    return 0;
}

/* Strides that are taken for granted: features adjacent, tensors packed; all inputs, then each. */
static int try_one_by_one(struct attn_hypotheses *x)
{
    enum { INPUTS = (1 << ATTN_T_O) - 1 };
    struct attn_fault_model t;
    for (int slot = -1; slot < ATTN_T_O; slot++) {
        const struct attn_tensor *tensor = &x->setup->tensor[slot < 0 ? 0 : slot];
        const char *name = slot < 0 ? "the inputs" : tensor->name;
        unsigned of = slot < 0 ? INPUTS : 1u << slot;
        if (tensor->data == NULL)
            continue;
        attn_fault_none(x->setup, &t);
        t.adjacent = of;
        if (attn_hypothesis(x, &t, "fits a stride of 1 between the features of %s", name))
            return 1;
        t.adjacent = 0, t.rows_packed = of;
        if (attn_hypothesis(x, &t, "fits rows of %s without the gaps that their stride leaves",
                            name))
            return 1;
        t.rows_packed = 0, t.packed = of;
        if (attn_hypothesis(x, &t, "fits %s read as packed, whatever the strides are", name))
            return 1;
    }
    return 0;
}

static int try_exchange(struct attn_hypotheses *x)
{
    const struct attn_problem *p = &x->setup->problem;
    struct attn_fault_model t;
    attn_fault_none(x->setup, &t);
    t.v_like_k = 1;
    if (attn_hypothesis(x, &t, "fits V read with the strides of K"))
        return 1;
    t.v_like_k = 0, t.k_exchanged = 1;
    if (p->kv_heads == p->n_key &&
        attn_hypothesis(x, &t, "fits a layout of K with heads and tokens swapped"))
        return 1;
    t.k_exchanged = 0, t.do_like_o = 1;
    if (!x->failed->backward || attn_hypothesis(x, &t, "fits dO read with the strides of O"))
        return x->failed->backward;
    t.do_like_o = 0, t.dlse_like_lse = 1;
    return x->setup->given.d_lse &&
           attn_hypothesis(x, &t, "fits dLSE read with the strides of LSE");
}

int attn_hypothesis_strides(struct attn_hypotheses *x)
{
    struct attn_fault_model t;
    if (try_exchange(x) || try_one_by_one(x))
        return 1;
    attn_fault_none(x->setup, &t);
    t.dbias_like_bias = 1;
    if (x->failed->failing[ATTN_DBIAS] &&
        attn_hypothesis(x, &t, "fits dBias written with the strides of the bias"))
        return 1;
    attn_fault_none(x->setup, &t);
    for (t.rounded = 16; t.rounded <= 64; t.rounded *= 2)
        if (attn_hypothesis(x, &t,
                            "fits a layout in which base pointers are rounded down to %lld bytes",
                            (long long)t.rounded))
            return 1;
    return 0;
}
