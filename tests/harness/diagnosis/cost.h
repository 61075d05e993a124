/* The cost of a bound: how many of the fault models of faults.def it still tells from the truth.
 *
 * A wide declaration makes a wide bound, and some mistakes are then no more than rounding.  Every
 * model is evaluated on a few small problems, and counts where it changes anything; it exceeds the
 * bound where one element of one result does.  Models of rounding itself (ATTN_FAULT_PRECISION) do
 * not count. */
#ifndef TESTS_HARNESS_FAULTS_COST_H
#define TESTS_HARNESS_FAULTS_COST_H

#include "tests/harness/cases/claims.h"

/* Of problems stored in this type that the claims allow, into text: "What the declared bound costs:
 * 52 of 58 fault models exceed it in bf16 (54 in plain f32 arithmetic); within it: softcap without
 * its derivative".  The same for the same claims; less than a second.  ENOMEM. */
enum attn_status attn_bound_cost(const struct attn_claims *claims, enum attn_dtype dtype,
                                 char *text, size_t size, struct attn_error *err);

#endif
