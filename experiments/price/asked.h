/* The question that a price answers: the need of a call, or of a stack of layers.  `price`, its
 * --longest, `advise` and the points too big of `measure` ask here. */
#ifndef EXPERIMENTS_PRICE_ASKED_H
#define EXPERIMENTS_PRICE_ASKED_H

#include "experiments/price/need.h"
#include "experiments/price/stack.h"
#include "tests/harness/inputs/case.h"

struct attn_price_asked {
    const struct attn_spec *spec;
    const struct attn_stack *stack; /* of no layers: one call */
    const struct attn_case *c;
    enum attn_need_pass pass; /* in the place of the case's */
    const struct attn_memory *memory;
};

/* Of an open problem; asked->c and memory are not read.  each: as attn_need_of_call; of a stack one
 * cost.  ENOTSUP, EINVAL: as attn_price and attn_stack_price. */
enum attn_status attn_need_of(const struct attn_price_asked *asked, const struct attn_problem *p,
                              const struct attn_need_each *each, struct attn_need *need,
                              struct attn_error *err);

/* The same of asked->c.  EINVAL, as attn_case_open too. */
enum attn_status attn_need_of_case(const struct attn_price_asked *asked, struct attn_need *need,
                                   struct attn_error *err);

/* The longest case that fits there, queries and keys alike, as attn_longest_of.  is_even: among
 * multiples of 4 tokens a rank. */
enum attn_status attn_need_longest(const struct attn_price_asked *asked, int is_even,
                                   double patience, int64_t *longest, double bytes[2],
                                   struct attn_error *err);

#endif
