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
    point->price = need;
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

/* The mask of a command lies in a file, and is made in memory before it gets there. */
enum attn_status attn_preflight_external(const struct attn_subject *x, const struct attn_case *c,
                                         struct attn_point *point, int64_t *need,
                                         struct attn_error *err)
{
    struct attn_problem problem;
    struct attn_given_mask given;
    snprintf(point->impl, sizeof point->impl, "%s", x->name);
    const char *route = x->route->word;
    snprintf(point->family, sizeof point->family, "%s", route);
    snprintf(point->route, sizeof point->route, "%s", route);
    snprintf(point->source, sizeof point->source, "%s", x->source);
    snprintf(point->source_digest, sizeof point->source_digest, "%s", x->digest);
    point->ranks = 1;
    enum attn_status status = attn_preflight_open(c, &problem, point, need, err);
    attn_point_not_ours(point);
    if (status != ATTN_OK)
        return status;
    attn_preflight_pairs(&problem, point);
    double mask_bytes = 0, sum = (double)*need; /* of all pairs: may be beyond int64 */
    if (attn_claims_mask(&x->claims, &problem, &given) == ATTN_CLAIMS_BYTES)
        mask_bytes = (double)c->batch * (double)c->heads * (double)c->n_query * (double)c->n_key;
    sum += mask_bytes;
    if (x->route->load == NULL) /* its own beside ours */
        sum += (double)point->floor_bytes + mask_bytes;
    *need = sum < 9.0e18 ? (int64_t)sum : INT64_MAX;
    attn_preflight_close(&problem);
    return ATTN_OK;
}
