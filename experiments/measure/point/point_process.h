/* A point measured in a fresh process, `attnlab point`: what it is asked, and what its answer is
 * worth. */
#ifndef EXPERIMENTS_MEASURE_POINT_PROCESS_H
#define EXPERIMENTS_MEASURE_POINT_PROCESS_H

#include "experiments/measure/plan.h"
#include "experiments/measure/record.h"

/* The point as a plan has it, priced: *need are the bytes of its process.  What refuses a price is
 * in its status and message; build and session are empty. */
void attn_point_price(const struct attn_plan_point *of, struct attn_point *point, int64_t *need);

struct attn_point_request {
    const struct attn_plan *plan;
    const struct attn_plan_point *of;
    const char *verified; /* DIGEST:VERDICT:WORST:OUTPUT of an earlier round, or "" */
    double limit_s;       /* it is killed after so many; INFINITY: never            */
};

/* *point is priced, and has its group, build, session and round; then it is the record of what
 * became of the process, whatever that was.  0: interrupted, there is none. */
int attn_point_process(const struct attn_point_request *asked, struct attn_point *point);

#endif
