/* Few queries against many keys: the decoding step of a language model.
 *
 * One query for each head leaves the lanes of a tile empty, and there is nothing to reuse but what
 * the heads of a group share: it is the reading of K and V that counts.  So all queries of a group
 * pass over the keys together, vectors running over features (simd/split_tmpl.h), and the keys are
 * cut into parts, so that every core has something to read; parts are merged in order.
 *
 * Source  Dao, Haziza, Massa, Sizov 2023 (Flash-Decoding).
 */
#ifndef OPTIMIZED_DECODE_H
#define OPTIMIZED_DECODE_H

#include "optimized/simd/kernels.h"
#include "ref/impl.h"

enum { ATTN_DECODE_QUERIES = 8 }; /* more queries than these are better off in tiles */

struct attn_decode {
    const struct attn_kernels *kernels;
    int threads;
    int64_t heads;       /* of a group that go together   */
    int64_t parts, part; /* how many, keys in each        */
    int64_t units;       /* batch * groups of heads * parts */
};

/* parts = 0: as many as the problem asks for. */
void attn_decode_plan(const struct attn_problem *p, const struct attn_kernels *kernels,
                      int64_t parts, int threads, struct attn_decode *plan);

/* Adds accounts; flops are the caller's. */
enum attn_status attn_decode_cost(const struct attn_problem *p, const struct attn_decode *plan,
                                  struct attn_cost *cost, struct attn_error *err);

enum attn_status attn_decode_forward(const struct attn_decode *plan, struct attn_ctx *ctx,
                                     const struct attn_problem *p, struct attn_runs runs,
                                     const struct attn_forward *t);

#endif
