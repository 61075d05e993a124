/* A point whose ranks are processes (optimized/parallel/rank_runner.h): no process has the whole of
 * any tensor.  All do what point.c does, on the tensors of their own ranks.  The first one is asked
 * by the sweep, and tells the others. */
#ifndef EXPERIMENTS_MEASURE_POINT_RANKS_H
#define EXPERIMENTS_MEASURE_POINT_RANKS_H

#include "experiments/measure/point/point.h"
#include "experiments/measure/point/point_process.h"
#include "optimized/parallel/layout/rank_box.h"
#include "optimized/parallel/rank_runner.h"

/* On the first process, the same as attn_point_process.  It is never interrupted. */
int attn_point_ranks(const struct attn_point_request *asked, struct attn_point *point);

/* On the others, until the first says that it is over. */
void attn_point_ranks_serve(const struct attn_runner *runner);
void attn_point_ranks_over(const struct attn_runner *runner);

/* ---- for point.c; on all processes ----------------------------------------------------------- */

/* What a rank has of a case's tensors: its boxes at home. */
struct attn_rank_home {
    struct attn_setup_part part;
    const struct attn_problem *problem;
    struct attn_layout home;
    int rank;
};
struct attn_rank_home attn_rank_home_of(const struct attn_spec *spec,
                                        const struct attn_problem *problem, int rank);

/* The setup has the tensors of this process's rank. */
enum attn_status attn_point_open_rank(struct attn_point_work *work, struct attn_error *err);

/* The same status and line on all: of the lowest that failed. */
enum attn_status attn_point_settle(const struct attn_runner *runner, enum attn_status status,
                                   struct attn_error *err);

/* Whether all are; p->message and p->digest are of all. */
int attn_point_all_intact(struct attn_point_work *work, int intact);

/* attn_point_judge of rows that are fetched to the first process, which judges one head after the
 * other: it makes that head's inputs again from the case. */
void attn_point_judge_ranks(struct attn_point_work *work, int64_t verify_all);

#endif
