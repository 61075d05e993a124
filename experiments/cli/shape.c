#include "experiments/cli/shape.h"

#include <math.h>

#include "ref/mask/mask.h"
#include "ref/problem.h"

enum { PASSES = ATTN_BACKWARD + 1, DTYPES = ATTN_F16 + 1 };

static int passes(const struct attn_cli_shapes *s)
{
    return s->pass == PASSES ? PASSES : 1;
}

static int dtypes(const struct attn_cli_shapes *s)
{
    return s->dtype == DTYPES ? DTYPES : 1;
}

int attn_cli_shape_count(const struct attn_cli_shapes *s)
{
    return s->lengths.n * s->dims.n * s->masks.n * dtypes(s) * passes(s);
}

struct attn_cli_shape attn_cli_shape_at(const struct attn_cli_shapes *s, int index)
{
    int pass = index % passes(s);
    index /= passes(s);
    int dtype = index % dtypes(s);
    index /= dtypes(s);
    const char *mask = s->masks.at[index % s->masks.n].value;
    index /= s->masks.n;
    int64_t dim = s->dims.at[index % s->dims.n], length = s->lengths.at[index / s->dims.n];
    return (struct attn_cli_shape){
        .batch = s->batch,
        .heads = s->heads,
        .kv_heads = s->kv_heads >= 0 ? s->kv_heads : s->heads,
        .n_query = length,
        .n_key = s->keys >= 0 ? s->keys : length,
        .dim = dim,
        .dv = s->dv >= 0 ? s->dv : dim,
        .mask = mask,
        .dtype = (enum attn_dtype)(s->dtype == DTYPES ? dtype : s->dtype),
        .pass = (enum attn_pass)(s->pass == PASSES ? pass : s->pass),
    };
}

enum attn_status attn_cli_shape_open(const struct attn_cli_shape *s, struct attn_problem *problem,
                                     struct attn_mask **mask, struct attn_error *err)
{
    *problem = (struct attn_problem){.batch = s->batch,
                                     .heads = s->heads,
                                     .kv_heads = s->kv_heads,
                                     .n_query = s->n_query,
                                     .n_key = s->n_key,
                                     .d_key = s->dim,
                                     .d_value = s->dv,
                                     .scale = s->dim > 0 ? 1 / sqrt((double)s->dim) : 1,
                                     .dtype = s->dtype};
    *mask = NULL;
    const struct attn_mask_shape extents = {s->batch, s->heads, s->n_query, s->n_key};
    enum attn_status status = attn_problem_check(problem, err); /* of extents, before of a mask */
    if (status == ATTN_OK)
        status = attn_mask_parse(s->mask, &extents, NULL, mask, err);
    problem->mask = *mask;
    return status;
}

void attn_cli_shape_print(const struct attn_cli_shape *s, char *text, size_t size)
{
    snprintf(text, size, "b%lldh%lldg%lldq%lldk%lldd%lldv%lld:%s:%s", (long long)s->batch,
             (long long)s->heads, (long long)s->kv_heads, (long long)s->n_query,
             (long long)s->n_key, (long long)s->dim, (long long)s->dv, s->mask,
             attn_dtype_name(s->dtype));
}
