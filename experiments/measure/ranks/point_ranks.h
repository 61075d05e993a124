/* A point whose ranks are processes (optimized/parallel/rank_runner.h): no process has the whole of
 * any tensor.  The first one measures; the others serve it, and all do the same things in turn. */
#ifndef EXPERIMENTS_MEASURE_RANKS_POINT_RANKS_H
#define EXPERIMENTS_MEASURE_RANKS_POINT_RANKS_H

#include "experiments/measure/point.h"
#include "experiments/measure/point_process.h"
#include "optimized/parallel/layout/shard.h"
#include "optimized/parallel/rank_runner.h"
#include "tests/harness/cases/setup_fill.h"

/* On the first process, the same as attn_point_process.  It is never interrupted. */
int attn_point_ranks(const struct attn_point_request *asked, struct attn_point *point);

/* On the others, until the first says that it is over. */
void attn_point_ranks_serve(const struct attn_runner *runner);
void attn_point_ranks_over(const struct attn_runner *runner);

/* ---- one process's part of a point ----------------------------------------------------------- */

struct attn_point_member {
    const struct attn_runner *runner;
    struct attn_spec spec;
    struct attn_setup setup; /* without tensors */
    struct attn_recipe recipe;
    struct attn_ledger shards, ledger; /* of the rank's tensors, and of calls */
    struct attn_shards tensor[ATTN_TAG_KINDS];
    struct attn_saved saved;
    struct attn_rank_use *use; /* [ranks] */
    struct attn_point *point;
    struct attn_error *err;
};

/* A tensor of this kind among those of a case. */
enum attn_slot attn_slot_of_kind(enum attn_tag_kind kind);

/* The same status and line on all processes: of the lowest that failed. */
enum attn_status attn_point_settle(struct attn_point_member *m, enum attn_status status);

/* Compare rows of results that lie on all ranks with the oracle, on the first process: one kv head
 * after the other, whose keys and values are made again from the case.  Status, verdict, worst
 * errors and `verified` of the point are set there.  All processes call it. */
enum attn_status attn_point_judge_ranks(struct attn_point_member *m, int64_t verify_all);

#endif
