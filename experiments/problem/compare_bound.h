/* The rule `bound` of attnlab compare: results from files against the oracle, within T1. */
#ifndef EXPERIMENTS_PROBLEM_COMPARE_BOUND_H
#define EXPERIMENTS_PROBLEM_COMPARE_BOUND_H

#include "experiments/problem/file_problem.h"
#include "experiments/problem/tensors.h"

/* Whether a set holds q, k and v. */
int attn_compare_has_inputs(const struct attn_tensors *set);

/* Judge the outputs that `got` holds, and those beside the inputs ("the file"), in whatever types
 * they are stored, and print the table, with a line for each tensor that could not be judged.
 * inputs: the set with q, k, v; what problem it is comes from `request` (mask, scale, ..., and
 * spec: whose precisions the bound assumes) and the file's metadata.  EINVAL, ENOMEM: one line. */
enum attn_status attn_compare_bound(const struct attn_request *request,
                                    const struct attn_tensors *inputs,
                                    const struct attn_tensors *got,
                                    struct attn_file_problem_found *found, struct attn_error *err);

#endif
