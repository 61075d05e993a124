#include "experiments/measure/preflight.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>

#include "experiments/cli/cli.h"
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

enum attn_status attn_preflight_price(const struct attn_spec *spec,
                                      const struct attn_problem *problem, struct attn_point *point,
                                      struct attn_error *err)
{
    struct attn_need need;
    snprintf(point->impl, sizeof point->impl, "%s", spec->impl->name);
    snprintf(point->family, sizeof point->family, "%s", spec->impl->family);
    point->ranks = attn_ranks(spec->impl, &spec->options);
    attn_preflight_pairs(problem, point);
    const struct attn_price_asked asked = {spec, &point->stack, NULL,
                                           (enum attn_need_pass)point->c.pass, NULL};
    enum attn_status status = attn_need_of(&asked, problem, NULL, &need, err);
    if (status != ATTN_OK)
        return status;
    if (need.lacks != NULL)
        return attn_fail(err, ATTN_ENOTSUP,
                         "%s does not run in %s, which is priced only: %s would "
                         "work",
                         need.lacks, attn_dtype_name(problem->dtype),
                         attn_dtype_size(problem->dtype) < 4 ? "f64 and f32" : "another type");
    point->flops = need.flops;
    point->again_flops = need.again_flops;
    point->priced_bytes = need.peak;
    point->saved_bytes = need.saved;
    point->shard_bytes = attn_cli_to_bytes(need.shard);
    point->total_bytes = attn_cli_to_bytes(need.device);
    point->bytes_sent = need.sent;
    point->messages = need.messages;
    return ATTN_OK;
}

enum attn_status attn_preflight_open(const struct attn_case *c, struct attn_problem *problem,
                                     struct attn_point *point, int64_t *need,
                                     struct attn_error *err)
{
    struct attn_mask *mask = NULL;
    *need = 0;
    if (c->bias != ATTN_CASE_BIAS_NONE)
        return attn_fail(err, ATTN_ENOTSUP,
                         "a case with a bias cannot be priced without its tensor");
    enum attn_status status = attn_case_open(c, NULL, problem, &mask, err);
    if (status != ATTN_OK)
        return status;
    double bytes = attn_pass_bytes(problem, c->pass);
    double rows = (double)c->batch * (double)c->heads * (double)c->n_query; /* numbers of lse */
    double lse = rows * (double)attn_dtype_size(attn_lse_dtype(problem));
    point->floor_bytes = attn_cli_to_bytes(bytes);
    *need =
        attn_cli_to_bytes(bytes + (bytes - lse) / (double)attn_dtype_size(problem->dtype) + rows);
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
    struct attn_need both; /* bwd runs the forward pass first */
    const struct attn_price_asked asked = {
        spec, &point->stack, c, c->pass == ATTN_BACKWARD ? ATTN_NEED_BOTH : ATTN_NEED_FORWARD,
        NULL};
    if (status == ATTN_OK)
        status = attn_need_of(&asked, &problem, NULL, &both, err);
    *need = status == ATTN_OK ? attn_cli_to_bytes((double)*need + both.copies + both.peaks) : 0;
    attn_preflight_close(&problem);
    return status;
}
