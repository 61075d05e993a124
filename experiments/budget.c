/* Predictions are deliberately simple, and on the high side: a curve is predicted one length
 * at a time, each from the last one measured. */
#include "experiments/budget.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Where a curve begins, a guess on the low side: the smallest length is better tried than dropped,
 * and what it then takes is known.  And starting a process. */
static const double FLOPS_PER_S = 4e9, START_S = 0.02;

/* As cmd_point.c: a call above this, and above the plan's `enough`, is not repeated. */
static const double LONG_CALL_S = 0.1;

/* ---- curves ---------------------------------------------------------------------------------- */

static int compare(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int compare_curves(const struct attn_course *a, const struct attn_course *b)
{
    const struct attn_case *x = &a->plan->c, *y = &b->plan->c;
    const int64_t pair[][2] = {{x->pass, y->pass},
                               {x->batch, y->batch},
                               {x->heads, y->heads},
                               {x->kv_heads, y->kv_heads},
                               {x->d_key, y->d_key},
                               {x->d_value, y->d_value},
                               {(int)x->dtype, (int)y->dtype},
                               {(int)x->fill, (int)y->fill},
                               {(int64_t)x->seed, (int64_t)y->seed}};
    int order = strcmp(a->plan->group, b->plan->group);
    order = order != 0 ? order : strcmp(a->plan->spec_text, b->plan->spec_text);
    order = order != 0 ? order : strcmp(x->mask, y->mask);
    for (size_t p = 0; order == 0 && p < sizeof pair / sizeof *pair; p++)
        order = compare(pair[p][0], pair[p][1]);
    return order;
}

int attn_budget_same_curve(const struct attn_course *a, const struct attn_course *b)
{
    return compare_curves(a, b) == 0;
}

static int by_curve(const void *a, const void *b)
{
    const struct attn_course *x = *(struct attn_course *const *)a;
    const struct attn_course *y = *(struct attn_course *const *)b;
    int order = compare_curves(x, y);
    return order != 0 ? order : compare(x->plan->c.n_query, y->plan->c.n_query);
}

enum attn_status attn_budget_link(struct attn_course *all, int64_t n, struct attn_error *err)
{
    struct attn_course **sorted = calloc((size_t)n + 1, sizeof *sorted);
    if (sorted == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for %lld points", (long long)n);
    for (int64_t i = 0; i < n; i++)
        sorted[i] = &all[i];
    qsort(sorted, (size_t)n, sizeof *sorted, by_curve);
    for (int64_t i = 0; i < n; i++) {
        struct attn_course *course = sorted[i];
        int joins = i > 0 && attn_budget_same_curve(sorted[i - 1], course);
        course->smaller = joins ? sorted[i - 1] : NULL;
        course->head = joins ? course->smaller->head : course;
        course->larger = NULL;
        if (joins)
            course->smaller->larger = course;
    }
    free(sorted);
    return ATTN_OK;
}

void attn_budget_stop(struct attn_course *course)
{
    const struct attn_course *stop = course->head->stop;
    if (stop == NULL || !stop->failed || course->plan->c.n_query < stop->plan->c.n_query)
        course->head->stop = course;
}

const struct attn_course *attn_budget_stopped(const struct attn_course *course)
{
    const struct attn_course *stop = course->head->stop;
    return stop != NULL && stop->failed && stop->plan->c.n_query < course->plan->c.n_query ? stop
                                                                                           : NULL;
}

/* ---- costs ----------------------------------------------------------------------------------- */

double attn_budget_cost(const struct attn_course *course)
{
    if (course->rounds_left == 0)
        return 0;
    int first = course->state == ATTN_WAITING && !course->done[0];
    return (first ? course->first_s : 0) + (course->rounds_left - first) * course->later_s;
}

double attn_budget_promised(const struct attn_course *all, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        if (all[i].state == ATTN_BEGUN)
            sum += attn_budget_cost(&all[i]);
    return sum;
}

/* All calls of one process, from the time of one. */
static double calls_s(double call_s, const struct attn_plan *plan)
{
    if (call_s >= fmax(plan->enough_s, LONG_CALL_S))
        return call_s;
    double repeats = (double)plan->repeat * call_s;
    return call_s + fmin(repeats, plan->enough_s + call_s);
}

/* A backward comes after a forward of the same implementation, of about half its flops. */
static double forward_s(const struct attn_course *course, double call_s)
{
    return course->plan->c.pass == ATTN_BACKWARD ? 0.5 * call_s : 0;
}

void attn_budget_learn(struct attn_course *course, const struct attn_plan *plan,
                       const struct attn_point *point)
{
    /* A command may be too fast to time: then all that is known is how long it all took. */
    int timed = point->n_times > 0;
    if (!isfinite(point->wall_s) || (!timed && point->status != ATTN_POINT_OK))
        return;
    double call_s = timed ? point->time_s[0] : 0;
    for (int t = 1; t < point->n_times; t++)
        call_s = fmin(call_s, point->time_s[t]);
    double verify_s = isfinite(point->verify_s) ? point->verify_s : 0;
    int again = strncmp(point->verified, "same bits", 9) == 0;
    if (course->measured && again) { /* a later round says what later rounds take */
        course->later_s = point->wall_s;
        return;
    }
    course->measured = 1;
    course->first_s = point->wall_s;
    course->later_s = again ? point->wall_s : point->wall_s - verify_s;
    course->call_s = call_s;
    double other = point->wall_s - calls_s(call_s, plan) - forward_s(course, call_s);
    course->other_s = other > 0 ? other : 0;
}

/* Rows that the oracle computes, times keys, as a measure of its work. */
static double oracle_work(const struct attn_case *c, int64_t verify_all)
{
    double rows = (double)c->n_query, keys = (double)c->n_key;
    if (c->n_query <= verify_all && c->n_key <= verify_all)
        return (c->pass == ATTN_BACKWARD ? 3 : 1) * rows * keys;
    return (c->pass == ATTN_BACKWARD ? rows + 128 : 64) * keys;
}

void attn_budget_predict(struct attn_course *course, const struct attn_plan *plan)
{
    const struct attn_course *from = course->smaller;
    while (from != NULL && !from->measured)
        from = from->smaller;
    course->guessed = from == NULL;
    if (from == NULL) {
        course->call_s = fmax(course->work, 0) / FLOPS_PER_S;
        course->other_s = START_S + course->call_s;
    } else {
        course->call_s = from->call_s * fmax(course->work, 1) / fmax(from->work, 1);
        course->other_s = START_S + from->other_s *
                                        oracle_work(&course->plan->c, plan->verify_all) /
                                        fmax(oracle_work(&from->plan->c, plan->verify_all), 1);
    }
    double calls = calls_s(course->call_s, plan) + forward_s(course, course->call_s);
    course->first_s = calls + course->other_s;
    course->later_s = calls + START_S;
}
