#include "experiments/measure/order.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"

static int same_curve(const struct attn_plan_point *a, const struct attn_plan_point *b)
{
    return strcmp(a->group, b->group) == 0 && strcmp(a->spec_text, b->spec_text) == 0 &&
           strcmp(a->c.mask, b->c.mask) == 0 && a->c.pass == b->c.pass &&
           a->c.batch == b->c.batch && a->c.heads == b->c.heads && a->c.d_key == b->c.d_key &&
           a->c.dtype == b->c.dtype && a->c.threads == b->c.threads &&
           attn_stack_equal(&a->layers, &b->layers);
}

void attn_curves_link(struct attn_sweep_state *all, int64_t n, struct attn_curve *curve)
{
    for (int64_t i = 0; i < n; i++) {
        int goes_on = i > 0 && same_curve(all[i - 1].plan, all[i].plan);
        all[i].curve = goes_on ? all[i - 1].curve : curve++;
    }
}

/* These ends hold for what is dearer as well. */
static int is_failed(enum attn_point_status status)
{
    return status == ATTN_POINT_TIMEOUT || status == ATTN_POINT_KILLED ||
           status == ATTN_POINT_OUT_OF_MEMORY || status == ATTN_POINT_TOO_BIG ||
           status == ATTN_POINT_DROPPED;
}

void attn_curve_note(struct attn_sweep_state *state, const struct attn_point *record)
{
    struct attn_curve *curve = state->curve;
    if (is_failed(record->status) && (curve->stop == NULL || state->work < curve->stop->work))
        curve->stop = state;
    if (record->status != ATTN_POINT_OK || state->took_s > 0 || !(record->first_s > 0))
        return;
    state->took_s = record->first_s + (record->verify_s > 0 ? record->verify_s : 0);
    if (curve->last == NULL || state->work > curve->last->work)
        curve->last = state;
}

/* The cheaper point that failed; NULL: none. */
static const struct attn_sweep_state *stopped(const struct attn_sweep_state *state)
{
    const struct attn_sweep_state *stop = state->curve->stop;
    return stop != NULL && stop->work < state->work ? stop : NULL;
}

/* The seconds of the curve's last point, times the ratio of the work; 0 where none ran. */
static double expected_s(const struct attn_sweep_state *state)
{
    const struct attn_sweep_state *last = state->curve->last;
    return last != NULL ? last->took_s * (state->work / fmax(last->work, 1)) : 0;
}

enum attn_point_status attn_curve_verdict(const struct attn_sweep_state *state,
                                          const struct attn_plan *plan, double left_s,
                                          char message[ATTN_RECORD_TEXT])
{
    double expected = expected_s(state);
    int64_t available = attn_cli_memory_available();
    const struct attn_sweep_state *stop = stopped(state);
    char price[32], need[32], have[32];
    if (state->need > available && state->plan->external != NULL) {
        snprintf(message, ATTN_RECORD_TEXT,
                 "needs at least %s for inputs, outputs and mask; this machine can give %s",
                 attn_cli_bytes(state->need, need), attn_cli_bytes(available, have));
        return ATTN_POINT_TOO_BIG;
    }
    if (state->need > available) {
        snprintf(message, ATTN_RECORD_TEXT,
                 "priced at %s, with inputs and outputs %s; this machine can give %s",
                 attn_cli_bytes(state->point.price.peak, price), attn_cli_bytes(state->need, need),
                 attn_cli_bytes(available, have));
        return ATTN_POINT_TOO_BIG;
    }
    if (left_s <= 0)
        snprintf(message, ATTN_RECORD_TEXT, "not begun: the budget of %g s is used up",
                 plan->budget_s);
    else if (stop != NULL)
        snprintf(message, ATTN_RECORD_TEXT, "not tried: length %lld ended as %s",
                 (long long)stop->plan->c.n_query, attn_point_status_name(stop->point.status));
    else if (expected > left_s)
        snprintf(message, ATTN_RECORD_TEXT,
                 "not tried: one process would take about %.1f s; %.1f s of the budget of %g s are "
                 "left",
                 expected, left_s, plan->budget_s);
    else if (plan->timeout_s > 0 && expected > plan->timeout_s)
        snprintf(message, ATTN_RECORD_TEXT,
                 "not tried: one process would take about %.1f s; the time limit is %.3g s",
                 expected, plan->timeout_s);
    else
        return ATTN_POINT_OK;
    return ATTN_POINT_DROPPED;
}

static int by_work(const void *a, const void *b)
{
    const struct attn_sweep_state *x = *(struct attn_sweep_state *const *)a;
    const struct attn_sweep_state *y = *(struct attn_sweep_state *const *)b;
    return x->work != y->work ? (x->work > y->work) - (x->work < y->work) : (x > y) - (x < y);
}

void attn_curves_sort(struct attn_sweep_state **state, int64_t n)
{
    qsort(state, (size_t)n, sizeof *state, by_work);
}
