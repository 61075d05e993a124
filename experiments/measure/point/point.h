/* One point measured, and its record.  A record says what is measured: spec, case, stack of layers,
 * and of what is not ours its route and source.  `how` says how often, and what is compared.
 *
 *      attn_point_price      what is known before it runs: price, flops, messages
 *      attn_point_process    in a fresh process, `attnlab point`; under MPI on all ranks in place
 *      attn_point_measure    in this process, which does nothing else
 *
 * A record is the only form of a point: the process gets one as its operand, and prints one; ranks
 * get one as bytes. */
#ifndef EXPERIMENTS_MEASURE_POINT_H
#define EXPERIMENTS_MEASURE_POINT_H

#include "experiments/measure/plan.h"
#include "experiments/measure/record.h"
#include "optimized/parallel/rank_runner.h"

struct attn_point_how {
    int64_t repeat;     /* warm calls, those after the first one, at most           */
    double enough_s;    /* seconds of them after which no other one begins          */
    int64_t verify_all; /* longest length at which every element is verified        */
    int unverified;     /* nothing is compared with the oracle                      */
    int peak;           /* P and read bandwidth are measured too; calls keep their memory   */
    const char *claims; /* of a command: the file of its claims; else NULL          */
    const char *folder; /* of a command: where its files go, made by the one who asks */
};
struct attn_point_how attn_point_how_of(const struct attn_plan *plan,
                                        const struct attn_plan_point *of);

/* The point as a plan has it, priced: *need are the bytes of its process.  A refusal of the price
 * is in its status and message; build and session are empty. */
void attn_point_price(const struct attn_plan_point *of, struct attn_point *point, int64_t *need);

/* *point says what is measured, and may have the digest and the verdict of an earlier round: the
 * same bits are not verified again.  Afterwards it is the record of what became of it, whatever
 * that was. */
void attn_point_measure(const struct attn_point_how *how, struct attn_point *point);

/* The same in a process that is killed after limit_s (INFINITY: never).  waits: called while it
 * runs (process.h), or NULL.  0: interrupted, there is no record. */
int attn_point_process(const struct attn_point_how *how, double limit_s, void (*waits)(double s),
                       struct attn_point *point);

/* The line that such a process is asked with: a record with the members of `how` beside its own.
 * attn_point_asked: its other end; texts are borrowed from the line.  EINVAL. */
struct json_t *attn_point_ask(const struct attn_point_how *how, const struct attn_point *point);
enum attn_status attn_point_asked(const struct json_t *line, struct attn_point_how *how,
                                  struct attn_point *point, struct attn_error *err);

/* Ranks that are processes (rank_runner.h): the first one measures a sweep, and the others do their
 * part of each point until the first one says that it is over. */
void attn_point_ranks_serve(const struct attn_runner *runner);
void attn_point_ranks_over(const struct attn_runner *runner);

#endif
