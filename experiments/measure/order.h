/* Points of a sweep on their curves: which comes first, and where a curve stops.
 *
 * A curve is all lengths of one spec, mask, pass and shape in a group.  It grows from its cheapest
 * point up, and has no holes: where a point fails, or would take too long, no dearer one is begun.
 */
#ifndef EXPERIMENTS_MEASURE_ORDER_H
#define EXPERIMENTS_MEASURE_ORDER_H

#include "experiments/measure/plan.h"
#include "experiments/measure/record.h"

struct attn_sweep_state;
struct attn_curve {
    const struct attn_sweep_state *last; /* of those that ran well the dearest; NULL: none  */
    const struct attn_sweep_state *stop; /* of those that failed the cheapest; NULL: none */
};

/* A point of the plan on its way through the rounds. */
struct attn_sweep_state {
    const struct attn_plan_point *plan;
    struct attn_curve *curve;
    struct attn_point
        point;    /* priced; status of the latest record, verdict of the first good one */
    int64_t need; /* bytes of the process                                   */
    double work;  /* flops of the price; of externals those of all pairs    */
    enum { ATTN_WAITING, ATTN_BEGUN, ATTN_OUT } state; /* OUT: no further round          */
    double took_s;   /* its first call and verification; 0: unknown */
    int rounds_left; /* including the one to come      */
    char *done;      /* [rounds] recorded already, by this build               */
};

/* Give each of n states its curve; `curve` has room for n.  Points of a curve follow each other. */
void attn_curves_link(struct attn_sweep_state *all, int64_t n, struct attn_curve *curve);

/* Take a record into the curve of its point: how long it took, the dearest that ran well, the
 * cheapest that failed. */
void attn_curve_note(struct attn_sweep_state *state, const struct attn_point *record);

/* ATTN_POINT_OK if a waiting point is begun; else TOO_BIG or DROPPED, and why.  It is dropped
 * where a cheaper point of its curve failed, and where took_s of the curve's last point, times the
 * ratio of the work, exceeds the timeout or left_s, what is left of the budget (INFINITY: there is
 * none).  The first point of a curve is tried. */
enum attn_point_status attn_curve_verdict(const struct attn_sweep_state *state,
                                          const struct attn_plan *plan, double left_s,
                                          char message[ATTN_RECORD_TEXT]);

/* Pointers to n states, the cheapest first; of equal ones the first of the plan. */
void attn_curves_sort(struct attn_sweep_state **state, int64_t n);

#endif
