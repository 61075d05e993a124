/* A point before it is measured: its pairs, its prices and the memory that it takes, from prices
 * alone.  Nothing is allocated but a mask. */
#ifndef EXPERIMENTS_MEASURE_PREFLIGHT_H
#define EXPERIMENTS_MEASURE_PREFLIGHT_H

#include "experiments/measure/record.h"
#include "experiments/price/asked.h"
#include "tests/harness/subject/subject.h"

/* Visible pairs and their share. */
void attn_preflight_pairs(const struct attn_problem *problem, struct attn_point *point);

/* Fill in what follows from spec and problem: impl, family, ranks, pairs, density, priced bytes
 * of the largest rank, flops of all ranks, bytes and messages sent by the rank that sends most. */
enum attn_status attn_preflight_price(const struct attn_spec *spec,
                                      const struct attn_problem *problem, struct attn_point *point,
                                      struct attn_error *err);

/* A case without bias as a problem, for which no tensor is needed, to be closed; also floor_bytes,
 * and in *need inputs and outputs with the harness's byte for each element. */
enum attn_status attn_preflight_open(const struct attn_case *c, struct attn_problem *problem,
                                     struct attn_point *point, int64_t *need,
                                     struct attn_error *err);
void attn_preflight_close(struct attn_problem *problem);

/* Both for such a case; *need are the bytes of the whole process: what attn_preflight_open says,
 * and what attn_need_in counts beside it in this machine (of either pass for bwd, which runs the
 * forward first). */
enum attn_status attn_preflight_case(const struct attn_spec *spec, const struct attn_case *c,
                                     struct attn_point *point, int64_t *need,
                                     struct attn_error *err);

/* The same of an external implementation, which has no prices: pairs, density, inputs and outputs,
 * and the bytes that a process needs at least. */
enum attn_status attn_preflight_external(const struct attn_subject *x, const struct attn_case *c,
                                         struct attn_point *point, int64_t *need,
                                         struct attn_error *err);

#endif
