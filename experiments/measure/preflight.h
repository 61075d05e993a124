/* What a point will need, before anything is allocated. */
#ifndef EXPERIMENTS_MEASURE_PREFLIGHT_H
#define EXPERIMENTS_MEASURE_PREFLIGHT_H

#include "experiments/measure/record.h"
#include "optimized/registry.h"

/* Visible pairs and their share. */
void attn_preflight_pairs(const struct attn_problem *problem, struct attn_point *point);

/* Fill in what follows from spec and problem: impl, family, ranks, pairs, density, priced bytes
 * of the largest rank, flops of all ranks, bytes and messages sent by the rank that sends most. */
enum attn_status attn_preflight_price(const struct attn_spec *spec,
                                      const struct attn_problem *problem, struct attn_point *point,
                                      struct attn_error *err);

/* The same for a case without bias, for which no tensor is needed; also floor_bytes, and in *need
 * the bytes of the whole process: inputs and outputs with the harness's byte for each element,
 * and all ranks at their peaks (of either pass for bwd, which runs the forward first). */
enum attn_status attn_preflight_case(const struct attn_spec *spec, const struct attn_case *c,
                                     struct attn_point *point, int64_t *need,
                                     struct attn_error *err);

#endif
