/* Does it fit into a device that is not this machine?  A device holds one rank: its share of inputs
 * and outputs, and its peak beside them; or a stack of layers, whose price has all.  From prices
 * alone: nothing is allocated. */
#ifndef EXPERIMENTS_MEASURE_DEVICE_H
#define EXPERIMENTS_MEASURE_DEVICE_H

#include "experiments/cli/shape.h"
#include "experiments/measure/stack.h"

/* "80GiB", "80GB", "80Gi", "4096": bytes, 1 or more.  EINVAL. */
enum attn_status attn_device_parse(const char *text, int64_t *bytes, struct attn_error *err);

/* Bytes of the rank that needs most.  ENOTSUP, EINVAL: as attn_price and attn_stack_price. */
enum attn_status attn_device_need(const struct attn_spec *spec, const struct attn_stack *stack,
                                  const struct attn_problem *p, enum attn_pass pass, double *need,
                                  struct attn_error *err);

/* The largest number of tokens, queries and keys alike, of which `shape` fits into so many bytes:
 * it fits, and one more does not.  *need[0] is of it, *need[1] of one more, infinite where that
 * has no price for 64 bits.  0 when nothing fits. */
enum attn_status attn_device_longest(const struct attn_spec *spec, const struct attn_stack *stack,
                                     const struct attn_cli_shape *shape, int64_t bytes,
                                     int64_t *longest, double need[2], struct attn_error *err);

#endif
