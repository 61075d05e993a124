/* Prices of a point, from cost() alone: nothing here allocates more than a mask. */
#include "experiments/measure/preflight.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ref/mask/mask.h"
#include "ref/problem.h"

void attn_preflight_pairs(const struct attn_problem *problem, struct attn_point *point)
{
    int counted = 0;
    double cells = (double)problem->batch * (double)problem->heads * (double)problem->n_query *
                   (double)problem->n_key;
    point->pairs = attn_problem_all_pairs(problem, &counted);
    point->density = cells > 0 ? (double)point->pairs / cells : (double)NAN;
}

/* A product that overflows int64 is far above any memory. */
static int64_t to_bytes(double x)
{
    return x < 9.0e18 ? (int64_t)x : INT64_MAX;
}

enum attn_status attn_preflight_stack(const struct attn_point *point, struct attn_stack *stack,
                                      struct attn_error *err)
{
    *stack = (struct attn_stack){.n = point->layers, .hidden = point->hidden};
    return attn_stack_save_find(point->save, &stack->save, err);
}

/* Of a stack of layers: all that it holds is in its price. */
static enum attn_status price_layers(const struct attn_spec *spec,
                                     const struct attn_problem *problem, enum attn_pass half,
                                     struct attn_point *point, struct attn_error *err)
{
    struct attn_stack layers;
    struct attn_stack_cost cost;
    enum attn_status status = attn_preflight_stack(point, &layers, err);
    if (status == ATTN_OK)
        status = attn_stack_price(&layers, spec, problem, half, &cost, err);
    if (status != ATTN_OK)
        return status;
    point->flops = cost.cost.flops;
    point->again_flops = cost.again_flops;
    point->priced_bytes = point->total_bytes = cost.cost.peak_bytes;
    point->saved_bytes = cost.cost.saved_bytes;
    point->shard_bytes = point->bytes_sent = 0;
    return ATTN_OK;
}

enum attn_status attn_preflight_price(const struct attn_spec *spec,
                                      const struct attn_problem *problem, struct attn_point *point,
                                      struct attn_error *err)
{
    snprintf(point->impl, sizeof point->impl, "%s", spec->impl->name);
    snprintf(point->family, sizeof point->family, "%s", spec->impl->family);
    point->ranks = attn_ranks(spec->impl, &spec->options);
    attn_preflight_pairs(problem, point);
    point->flops = 0;
    if (point->layers > 0)
        return price_layers(spec, problem, point->c.pass, point, err);
    for (int rank = 0; rank < point->ranks; rank++) {
        struct attn_cost cost;
        enum attn_status status =
            attn_price(spec->impl, &spec->options, problem, point->c.pass, rank, &cost, err);
        if (status != ATTN_OK)
            return status;
        point->flops += cost.flops;
        if (cost.peak_bytes > point->priced_bytes)
            point->priced_bytes = cost.peak_bytes;
        if (cost.saved_bytes > point->saved_bytes)
            point->saved_bytes = cost.saved_bytes;
        if (to_bytes(cost.shard_bytes) > point->shard_bytes)
            point->shard_bytes = to_bytes(cost.shard_bytes);
        if (to_bytes((double)cost.peak_bytes + cost.shard_bytes) > point->total_bytes)
            point->total_bytes = to_bytes((double)cost.peak_bytes + cost.shard_bytes);
        if (cost.bytes_sent > point->bytes_sent) {
            point->bytes_sent = cost.bytes_sent;
            point->messages = cost.messages;
        }
    }
    return ATTN_OK;
}

/* All ranks at their peaks, in the pass that needs more; of a stack of layers, its fuller half. */
static double process_bytes(const struct attn_spec *spec, const struct attn_problem *problem,
                            const struct attn_point *point)
{
    double most = 0;
    for (int pass = ATTN_FORWARD; pass <= (int)point->c.pass; pass++) {
        double sum = 0;
        struct attn_point half = *point;
        if (point->layers > 0 &&
            price_layers(spec, problem, (enum attn_pass)pass, &half, NULL) == ATTN_OK)
            sum = (double)half.priced_bytes;
        for (int rank = 0; rank < point->ranks && point->layers == 0; rank++) {
            struct attn_cost cost;
            if (attn_price(spec->impl, &spec->options, problem, (enum attn_pass)pass, rank, &cost,
                           NULL) == ATTN_OK)
                sum += (double)cost.peak_bytes;
        }
        most = sum > most ? sum : most;
    }
    return most;
}

enum attn_status attn_preflight_open(const struct attn_case *c, struct attn_problem *problem,
                                     struct attn_point *point, int64_t *need,
                                     struct attn_error *err)
{
    struct attn_mask *mask = NULL;
    struct attn_mask_shape shape = {c->batch, c->heads, c->n_query, c->n_key};
    *need = 0;
    if (c->bias != ATTN_CASE_BIAS_NONE)
        return attn_fail(err, ATTN_ENOTSUP,
                         "a case with a bias cannot be priced without its tensor");
    enum attn_status status = attn_mask_parse(c->mask, &shape, NULL, &mask, err);
    if (status != ATTN_OK)
        return status;
    attn_case_problem(c, problem);
    problem->mask = mask;
    double bytes = attn_pass_bytes(problem, c->pass);
    double rows = (double)c->batch * (double)c->heads * (double)c->n_query; /* numbers of lse */
    double lse = rows * (double)attn_dtype_size(attn_lse_dtype(problem));
    point->floor_bytes = to_bytes(bytes);
    *need = to_bytes(bytes + (bytes - lse) / (double)attn_dtype_size(problem->dtype) + rows);
    return ATTN_OK;
}

void attn_preflight_close(struct attn_problem *problem)
{
    attn_mask_free((struct attn_mask *)(uintptr_t)problem->mask);
}

enum attn_status attn_preflight_case(const struct attn_spec *spec, const struct attn_case *c,
                                     struct attn_point *point, int64_t *need,
                                     struct attn_error *err)
{
    struct attn_problem problem;
    enum attn_status status = attn_preflight_open(c, &problem, point, need, err);
    if (status != ATTN_OK)
        return status;
    status = attn_preflight_price(spec, &problem, point, err);
    double shards = spec->impl->ranks != NULL ? (double)point->floor_bytes : 0; /* copies */
    *need = status != ATTN_OK
                ? 0
                : to_bytes((double)*need + shards + process_bytes(spec, &problem, point));
    attn_preflight_close(&problem);
    return status;
}
