/* The time budget of a sweep: what points will take, and which of them fit.
 *
 * A point is worth something only with all its rounds, so it is begun only when all of them fit
 * into what is left, less what was promised to points already begun; and when a promise turns out
 * too dear, the dearest point goes.  Within one curve that is always the largest length.
 */
#ifndef EXPERIMENTS_MEASURE_BUDGET_H
#define EXPERIMENTS_MEASURE_BUDGET_H

#include "experiments/measure/plan.h"
#include "experiments/measure/record.h"

/* What a process of so much work took; work 0: nothing is known. */
struct attn_taken {
    double work, floor_bytes; /* flops; inputs and outputs           */
    double first_s, warm_s;   /* its first call; the fastest later one */
    double base_s;            /* all but calls and verification      */
};

/* A point of the plan on its way through the rounds. */
struct attn_sweep_state {
    const struct attn_plan_point *plan;
    struct attn_point point; /* priced at first, then the latest record of it          */
    int64_t need;            /* bytes of the process                                   */
    double work;             /* grows as its time does: flops, of externals those of all pairs */
    struct attn_sweep_state *smaller, *larger; /* neighbours on its curve; NULL at the ends */
    struct attn_sweep_state *head;             /* the smallest of its curve                   */
    const struct attn_sweep_state *stop;       /* of a head: its smallest course that failed  */
    enum { ATTN_WAITING, ATTN_BEGUN, ATTN_OUT } state; /* OUT: no further round          */
    int failed;              /* OUT for a reason that holds for larger lengths as well */
    int measured;            /* first_s and later_s were seen, not predicted           */
    int guessed;             /* predicted although nothing like it was measured         */
    double first_s, later_s; /* wall time of round 0 and of another round              */
    struct attn_taken taken; /* when it was measured                                   */
    int rounds_left;         /* including the one to come                              */
    char *done;              /* [rounds] recorded already, by this build               */
    char verified[96];       /* DIGEST:VERDICT:WORST:OUTPUT of a verified round, or "" */
};

/* What predictions are made from: the rates of this machine, as far as they were measured. */
enum { ATTN_BUDGET_RECENT = 256 };
struct attn_budget {
    const struct attn_plan *plan;
    const struct attn_sweep_state *recent[ATTN_BUDGET_RECENT]; /* the last whose times were taken */
    int64_t n_taken;
    struct attn_oracle_rate {
        double seconds, work; /* of the verifications of a pass so far, the latest count most */
    } oracle[2];
};

/* Take times from a record of round 0, or of any round when that is all there is. */
void attn_budget_learn(struct attn_budget *budget, struct attn_sweep_state *state,
                       const struct attn_point *point);

/* Predict first_s and later_s of a course that was not measured, by the ratio of flops to the one
 * that is most like it, of its own curve and of those measured last.  Where there is none it is
 * `guessed`, on the low side: what is tried is known afterwards. */
void attn_budget_predict(const struct attn_budget *budget, struct attn_sweep_state *state);

/* Wall seconds for the rounds that are left. */
double attn_budget_cost(const struct attn_sweep_state *state);

/* What all begun courses still need. */
double attn_budget_promised(const struct attn_sweep_state *all, int64_t n);

/* Note that a course failed, and find the smaller one that failed first; NULL: none. */
void attn_budget_stop(struct attn_sweep_state *state);
const struct attn_sweep_state *attn_budget_stopped(const struct attn_sweep_state *state);

/* Find the curves of n courses and link each to its neighbours: O(n log n). */
void attn_budget_link(struct attn_sweep_state *all, int64_t n);

#endif
