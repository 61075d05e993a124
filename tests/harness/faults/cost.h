/* What a bound costs: how many of the fault models of faults.def it still tells from the truth.
 *
 * A wide declaration makes a wide bound, and some mistakes are then no more than rounding.  Every
 * model is evaluated on a few small problems, and counts where it changes anything; it exceeds the
 * bound if one element of one result does.  The models of rounding (ATTN_FAULT_PRECISION) are what
 * is declared, and do not count. */
#ifndef TESTS_HARNESS_FAULTS_COST_H
#define TESTS_HARNESS_FAULTS_COST_H

#include "tests/harness/cases/claims.h"

struct attn_bound_cost {
    enum attn_dtype dtype;
    int models, exceed;
    int exceed_plain; /* had nothing been declared                               */
    char within[200]; /* words of those that do not exceed it, the first of them */
    int listed;       /* how many these are; of one mistake several may have one name */
};

/* Of problems stored in this type that the claims allow, each in its passes; of a spec (claims:
 * NULL) of all.  Deterministic, well under a second.  ENOMEM. */
enum attn_status attn_bound_cost_count(const struct attn_claims *claims,
                                       const struct attn_spec *spec, enum attn_dtype dtype,
                                       struct attn_bound_cost *cost, struct attn_error *err);

/* "what the declared bound costs: 52 of 58 fault models exceed it in bf16 (54 in plain f32
 * arithmetic); within it: softcap without its derivative". */
void attn_bound_cost_print(const struct attn_bound_cost *cost, char *text, size_t size);

#endif
