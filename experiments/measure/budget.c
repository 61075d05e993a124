/* Predictions are deliberately simple: time is proportional to work.  The call of an implementation
 * to its flops, at the rate of the measured point that is most like it; the oracle to the visible
 * pairs, at the rate of all verifications; the rest of a process to inputs and outputs. */
#include "experiments/measure/budget.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"

/* Where nothing is known yet, guesses on the low side.  The oracle's is for a visible pair and a
 * feature of a key or value.  And starting a process. */
static const double FLOPS_PER_S = 1e11, ORACLE_S = 2e-9, START_S = 0.02;

/* ---- curves ---------------------------------------------------------------------------------- */

/* Points of one curve follow each other in a plan. */
static int same_curve(const struct attn_plan_point *a, const struct attn_plan_point *b)
{
    return strcmp(a->group, b->group) == 0 && strcmp(a->spec_text, b->spec_text) == 0 &&
           strcmp(a->c.mask, b->c.mask) == 0 && a->c.pass == b->c.pass &&
           a->c.batch == b->c.batch && a->c.heads == b->c.heads && a->c.d_key == b->c.d_key &&
           a->c.dtype == b->c.dtype && attn_stack_equal(&a->layers, &b->layers);
}

static int by_length(const void *a, const void *b)
{
    const struct attn_sweep_state *const *x = a, *const *y = b;
    int64_t p = (*x)->plan->c.n_query, q = (*y)->plan->c.n_query;
    return (p > q) - (p < q);
}

void attn_budget_link(struct attn_sweep_state *all, int64_t n)
{
    struct attn_sweep_state **sorted = attn_cli_need(calloc((size_t)n + 1, sizeof *sorted));
    for (int64_t begin = 0, end; begin < n; begin = end) {
        for (end = begin; end < n && same_curve(all[begin].plan, all[end].plan); end++)
            sorted[end] = &all[end];
        qsort(sorted + begin, (size_t)(end - begin), sizeof *sorted, by_length);
        for (int64_t i = begin; i < end; i++) {
            sorted[i]->head = sorted[begin];
            sorted[i]->smaller = i > begin ? sorted[i - 1] : NULL;
            sorted[i]->larger = i + 1 < end ? sorted[i + 1] : NULL;
        }
    }
    free(sorted);
}

void attn_budget_stop(struct attn_sweep_state *state)
{
    const struct attn_sweep_state *stop = state->head->stop;
    if (stop == NULL || !stop->failed || state->plan->c.n_query < stop->plan->c.n_query)
        state->head->stop = state;
}

const struct attn_sweep_state *attn_budget_stopped(const struct attn_sweep_state *state)
{
    const struct attn_sweep_state *stop = state->head->stop;
    return stop != NULL && stop->failed && stop->plan->c.n_query < state->plan->c.n_query ? stop
                                                                                          : NULL;
}

/* ---- costs ----------------------------------------------------------------------------------- */

double attn_budget_cost(const struct attn_sweep_state *state)
{
    if (state->rounds_left == 0)
        return 0;
    int first = state->state == ATTN_WAITING && !state->done[0];
    return (first ? state->first_s : 0) + (state->rounds_left - first) * state->later_s;
}

double attn_budget_promised(const struct attn_sweep_state *all, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        if (all[i].state == ATTN_BEGUN)
            sum += attn_budget_cost(&all[i]);
    return sum;
}

/* All calls of one process. */
static double calls_s(double first_s, double warm_s, int is_once, const struct attn_plan *plan)
{
    if (plan->repeat == 0 || is_once)
        return first_s;
    return first_s + fmin((double)plan->repeat * warm_s, plan->enough_s + warm_s);
}

/* A backward comes after a forward of the same implementation, of about half its flops. */
static double forward_s(const struct attn_sweep_state *state, double first_s)
{
    return state->plan->c.pass == ATTN_BACKWARD ? 0.5 * first_s : 0;
}

/* What the oracle computes: visible pairs of the rows that it looks at, times features.  A pair
 * that is not visible costs it PASSED of one that is.  A sampled backward goes once over the rows
 * that see one of its keys; one of all elements goes over all rows three times. */
static double oracle_work(const struct attn_sweep_state *state, int64_t verify_all)
{
    static const double PASSED = 0.08, SAMPLES = 64;
    const struct attn_case *c = &state->plan->c;
    double rows = fmax((double)c->n_query, 1), keys = (double)c->n_key, share;
    double seen =
        fmax((double)state->point.pairs, 0) / fmax((double)(c->batch * c->heads) * keys, 1);
    if (c->n_query <= verify_all && c->n_key <= verify_all)
        share = c->pass == ATTN_BACKWARD ? 3 : 1;
    else
        share = (c->pass == ATTN_BACKWARD ? fmin(rows, SAMPLES * seen) + 2 * SAMPLES
                                          : fmin(SAMPLES, rows)) /
                rows;
    double pairs = fmax((double)state->point.pairs, 0) +
                   PASSED * (double)c->batch * (double)c->heads * rows * keys;
    return share * pairs * (double)(c->d_key + c->d_value + 1);
}

/* The oracle's time for this point, at the rate of the verifications so far. */
static double oracle_s(const struct attn_budget *budget, const struct attn_sweep_state *state)
{
    const struct attn_oracle_rate *rate = &budget->oracle[state->plan->c.pass];
    double s = rate->work > 0 ? rate->seconds / rate->work : ORACLE_S;
    return s * oracle_work(state, budget->plan->verify_all);
}

/* Each verification halves the weight of those before it, and weighs as much as it took. */
static void learn_oracle(struct attn_budget *budget, const struct attn_sweep_state *state,
                         double seconds)
{
    struct attn_oracle_rate *rate = &budget->oracle[state->plan->c.pass];
    rate->seconds = rate->seconds / 2 + seconds;
    rate->work = rate->work / 2 + oracle_work(state, budget->plan->verify_all);
}

void attn_budget_learn(struct attn_budget *budget, struct attn_sweep_state *state,
                       const struct attn_point *point)
{
    /* A command may be too fast to time: then all that is known is how long it all took. */
    int timed = isfinite(point->first_s);
    if (!isfinite(point->wall_s) || (!timed && point->status != ATTN_POINT_OK))
        return;
    double first_s = timed ? point->first_s : 0, warm_s = first_s, calls = first_s;
    for (int t = 0; t < point->n_warm; t++) {
        calls += point->warm_s[t];
        warm_s = t > 0 ? fmin(warm_s, point->warm_s[t]) : point->warm_s[t];
    }
    double verify_s = isfinite(point->verify_s) ? point->verify_s : 0;
    int again = strncmp(point->verified, "same bits", 9) == 0;
    if (!again && point->verified[0] != '\0')
        learn_oracle(budget, state, verify_s);
    if (state->measured && again) { /* a later round says what later rounds take */
        state->later_s = point->wall_s;
        return;
    }
    double base_s = point->wall_s - calls - forward_s(state, first_s) - verify_s;
    state->measured = 1;
    state->first_s = point->wall_s;
    state->later_s = again ? point->wall_s : point->wall_s - verify_s;
    state->taken = (struct attn_taken){state->work, fmax((double)state->point.floor_bytes, 1),
                                       first_s, warm_s, fmax(base_s, 0)};
    budget->recent[budget->n_taken++ % ATTN_BUDGET_RECENT] = state;
}

/* How far a course is from one whose times are known: the logarithm of the ratio of their work,
 * and more for another curve, another spec of the implementation, another of its family. */
static double distance(const struct attn_sweep_state *state, const struct attn_sweep_state *from)
{
    const struct attn_point *p = &state->point, *q = &from->point;
    if (!(from->taken.work > 0) || p->c.pass != q->c.pass || strcmp(p->route, q->route) != 0)
        return (double)INFINITY;
    double unlike = state->head == from->head           ? 1
                    : strcmp(p->spec, q->spec) == 0     ? 8
                    : strcmp(p->impl, q->impl) == 0     ? 64
                    : strcmp(p->family, q->family) == 0 ? 512
                                                        : (double)INFINITY;
    return fabs(log(fmax(state->work, 1) / from->taken.work)) + log(unlike);
}

static void keep_nearer(const struct attn_sweep_state *state, const struct attn_sweep_state *other,
                        const struct attn_sweep_state **from, double *least)
{
    double d = distance(state, other);
    *from = d < *least ? other : *from;
    *least = fmin(*least, d);
}

void attn_budget_predict(const struct attn_budget *budget, struct attn_sweep_state *state)
{
    const struct attn_plan *plan = budget->plan;
    const struct attn_sweep_state *from = NULL;
    double least = (double)INFINITY, first_s, warm_s, base_s = START_S;
    int64_t n = budget->n_taken < ATTN_BUDGET_RECENT ? budget->n_taken : ATTN_BUDGET_RECENT;
    for (const struct attn_sweep_state *own = state; own != NULL; own = own->smaller)
        keep_nearer(state, own, &from, &least);
    for (int64_t r = 0; r < n; r++)
        keep_nearer(state, budget->recent[r], &from, &least);
    state->guessed = from == NULL;
    if (from == NULL) {
        first_s = warm_s = fmax(state->work, 0) / FLOPS_PER_S;
    } else {
        double ratio = fmax(state->work, 1) / from->taken.work;
        first_s = from->taken.first_s * ratio;
        warm_s = from->taken.warm_s * ratio;
        base_s += fmax(from->taken.base_s - START_S, 0) *
                  fmax((double)state->point.floor_bytes, 1) / from->taken.floor_bytes;
    }
    state->later_s =
        calls_s(first_s, warm_s, state->plan->is_once, plan) + forward_s(state, first_s) + base_s;
    state->first_s = state->later_s + oracle_s(budget, state);
}
