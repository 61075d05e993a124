/* The parts of measuring one point in one process (point.h):
 *
 *      point.c          the order of things; calls, timed
 *      point_stack.c    a stack of layers in the place of a call
 *      point_command.c  a command in the place of a call
 *      point_judge.c    whether the result is right
 *      point_ranks.c    ranks that are processes; point_rank.c  the tensors of one
 *      judge_ranks.c    results that no process has the whole of */
#ifndef EXPERIMENTS_MEASURE_POINT_WORK_H
#define EXPERIMENTS_MEASURE_POINT_WORK_H

#include "experiments/measure/machine.h"
#include "experiments/measure/point/point.h"
#include "optimized/parallel/layout/rank_box.h"
#include "tests/harness/base/process.h"
#include "tests/harness/subject/plugin.h"
#include "tests/harness/subject/subject.h"

/* Everything about the one point. */
struct attn_point_work {
    const struct attn_point_how *how;
    struct attn_point *point;
    struct attn_subject x; /* that is measured */
    struct attn_setup setup;
    struct attn_ledger ledger;
    struct attn_point_stack *stack; /* of layers; NULL: one call */
    struct attn_saved saved;        /* of the forward call that a backward point needs */
    struct attn_rank_use *use;      /* [ranks] */
    double cpu_max[ATTN_RECORD_TIMES], cpu_sum[ATTN_RECORD_TIMES];
    double plugin_wall, plugin_cpu; /* of its last call, by the clock right around it     */
    int is_started;                 /* it is a command, which the launcher starts on the case */
    struct attn_helper launcher;
    const struct attn_claims *claims; /* of what is not ours; NULL: ours                    */
    int is_told;                      /* a command failed, and the point says so already */
    int64_t highest;                  /* VmHWM before the mark of the calls was set      */
    struct attn_judged earlier;       /* of an earlier round, or unknown */
};

/* attn_point_measure of a spec that no text has; impl NULL: of that which the point has. */
void attn_point_measure_spec(const struct attn_point_how *how, const struct attn_spec *spec,
                             struct attn_point *point);

/* ---- point_stack.c --------------------------------------------------------------------------- */

/* The stack of layers that the point is of (stack.h).  One half of it, with the seconds in its
 * calls; forget: all that layers hold goes, so that it can begin again.  After close the outputs
 * are those of every layer. */
enum attn_status attn_point_stack_open(struct attn_point_work *work, struct attn_error *err);
enum attn_status attn_point_stack_half(struct attn_point_work *work, enum attn_pass half,
                                       double *seconds, struct attn_error *err);
void attn_point_stack_forget(struct attn_point_work *work);
void attn_point_stack_close(struct attn_point_work *work);

/* Resident bytes of a program that is not ours without those of the mask that it was given. */
static inline int64_t attn_point_without_mask(const struct attn_point *point, int64_t bytes)
{
    int64_t rest = point->mask_bytes > 0 ? bytes - point->mask_bytes : bytes;
    return bytes < 0 ? bytes : rest > 0 ? rest : 0;
}

/* ---- point_command.c ------------------------------------------------------------------------- */

/* Before there are tensors; the files are written, the command runs, and its results and times are
 * read.  A failure of the command itself is in the point, and work->is_told. */
enum attn_status attn_point_command_open(struct attn_point_work *work, struct attn_error *err);
enum attn_status attn_point_command_run(struct attn_point_work *work, struct attn_error *err);

/* ---- point_judge.c --------------------------------------------------------------------------- */

/* This point has no result: refused, or an error. */
void attn_point_fail(struct attn_point *point, const struct attn_error *err);

/* Elements that are compared, and p->verified says which: all up to verify_all queries and keys;
 * beyond, 64 rows and keys. */
struct attn_sample attn_point_sample(struct attn_point *p, int64_t verify_all,
                                     int64_t row[ATTN_SAMPLE_MOST], int64_t key[ATTN_SAMPLE_MOST]);
void attn_point_keep_verdict(struct attn_point *p, const struct attn_result *result);

/* Integrity, digest, oracle.  A result that is wrong has no time. */
void attn_point_verify(struct attn_point_work *work);

/* ---- point_rank.c, judge_ranks.c: on all processes ------------------------------------------- */

/* The part of a case's tensors that a rank stores: its boxes at home. */
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

/* The digest of the whole results, of which each process has its rank's. */
uint64_t attn_point_rank_digest(struct attn_point_work *work);

/* 1 if the tensors of all ranks are intact; p->message is that of the first that are not. */
int attn_point_all_intact(struct attn_point_work *work, int intact);

/* The numbers of every process, from before its tensors were made; the point has all. */
void attn_point_share_numbers(struct attn_point_work *work, const struct attn_resident *all);

/* The first process asks the others, and does its own part. */
void attn_point_ranks(const struct attn_point_how *how, struct attn_point *point);

/* The oracle on rows that are fetched to the first process, which judges one head after the other:
 * it makes that head's inputs again from the case. */
void attn_point_judge_ranks(struct attn_point_work *work);

#endif
