/* Suspects among the numbers of a softmax: where the maximum starts, what overflows, what q.k
 * leaves out. */
#include <math.h>
#include <stdint.h>

#include "ref/problem.h"
#include "tests/harness/faults/diagnose.h"

int attn_hypothesis_start(struct attn_hypotheses *x)
{
    static const char *const guard[] = {"", "", " (a sum of 0 makes O = 0)",
                                        " (a row without keys is passed over)"};
    static const double start[] = {0, -100, -1e3, -1e4, -32768, -5e4, -65504, -1e5};
    struct attn_fault_model t;
    for (int how = 1; how < ATTN_MODEL_NO_MAXES && !x->failed->backward; how++) {
        attn_fault_none(x->setup, &t);
        t.no_max = (enum attn_model_no_max)how;
        if (attn_hypothesis(x, &t, "fits exp(s) without the maximum: it leaves the range of exp%s",
                            guard[how]))
            return 1;
    }
    for (size_t n = 0; n < sizeof start / sizeof *start && !x->failed->backward; n++) {
        attn_fault_none(x->setup, &t);
        t.m_start = start[n];
        if (attn_hypothesis(x, &t, "fits a running maximum that starts at %g, not at -inf",
                            start[n]))
            return 1;
    }
    return 0;
}

static int try_dot(struct attn_hypotheses *x)
{
    const struct attn_problem *p = &x->setup->problem;
    struct attn_fault_model t;
    for (int64_t width = 4; width <= 32; width *= 2) {
        attn_fault_none(x->setup, &t);
        t.d_used = p->d_key - p->d_key % width;
        if (p->d_key % width != 0 &&
            attn_hypothesis(x, &t, "fits the tail of features lost in q.k (vectors of %lld)",
                            (long long)width))
            return 1;
    }
    attn_fault_none(x->setup, &t);
    for (t.d_used = 64; t.d_used < p->d_key; t.d_used *= 2)
        if (attn_hypothesis(x, &t, "fits the tail of features lost in q.k (all beyond %lld)",
                            (long long)t.d_used))
            return 1;
    attn_fault_none(x->setup, &t);
    t.dot_limit = 65504;
    return attn_hypothesis(x, &t, "fits q.k that overflows half precision (65504)");
}

static int try_hidden(struct attn_hypotheses *x)
{
    const struct attn_problem *p = &x->setup->problem;
    struct attn_fault_model t;
    attn_fault_none(x->setup, &t);
    t.hidden = p->scale * -(double)INFINITY;
    if (p->mask != NULL && !(p->scale > 0) &&
        attn_hypothesis(x, &t, "fits scores masked before they are scaled: scale * -inf"))
        return 1;
    attn_fault_none(x->setup, &t);
    t.lost_hi = p->n_key;
    return p->d_key == 0 &&
           attn_hypothesis(x, &t, "fits d = 0 taken for rows that see no key (scores are 0 there)");
}

static int try_cap_form(struct attn_hypotheses *x)
{
    struct attn_fault_model t;
    attn_fault_none(x->setup, &t);
    t.cap_product = t.softcap > 0;
    return t.cap_product && attn_hypothesis(x, &t, "fits softcap as s tanh(s / c)");
}

int attn_hypothesis_numbers(struct attn_hypotheses *x)
{
    return try_dot(x) || try_hidden(x) || try_cap_form(x);
}
