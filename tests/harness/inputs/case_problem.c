/* See case.h: the extents of a case, its mask, and the problem that it is. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ref/problem.h"
#include "tests/harness/inputs/case.h"

int attn_case_special_is_backward(enum attn_case_special special)
{
    return special == ATTN_SPECIAL_DO_NAN || special == ATTN_SPECIAL_DO_INF;
}

int64_t *attn_case_extent(struct attn_case *c, int n)
{
    int64_t *const at[ATTN_CASE_EXTENTS] = {&c->batch, &c->heads, &c->kv_heads, &c->n_query,
                                            &c->n_key, &c->d_key, &c->d_value};
    return at[n];
}

double attn_case_bytes(const struct attn_case *c)
{
    const double size = (double)attn_dtype_size(c->dtype), b = (double)c->batch;
    double rows = (double)c->heads * (double)c->n_query,
           keys = (double)c->kv_heads * (double)c->n_key;
    double width = (double)(c->d_key + c->d_value), pairs = rows * (double)c->n_key;
    return b * (2 * size * (rows + keys) * width + 16 * rows + 9 * pairs);
}

void attn_case_problem(const struct attn_case *c, struct attn_problem *p)
{
    double preset = c->d_key > 0 ? 1 / sqrt((double)c->d_key) : 1;
    *p = (struct attn_problem){.batch = c->batch,
                               .heads = c->heads,
                               .kv_heads = c->kv_heads,
                               .n_query = c->n_query,
                               .n_key = c->n_key,
                               .d_key = c->d_key,
                               .d_value = c->d_value,
                               .scale = isnan(c->scale) ? preset : c->scale,
                               .softcap = c->softcap,
                               .dtype = c->dtype,
                               .kv_shared = c->kv_shared,
                               .sink.given = c->sink != ATTN_CASE_SINK_NONE,
                               .wide = c->wide};
    p->sink.tensor.dtype = p->sink.given ? attn_lse_dtype(p) : 0;
}

const char *attn_case_mask(const struct attn_case *c)
{
    return c->long_mask != NULL ? c->long_mask : c->mask;
}

void attn_case_set_mask(struct attn_case *c, const char *text)
{
    int is_long = strlen(text) >= ATTN_CASE_MASK;
    c->long_mask = is_long ? text : NULL;
    snprintf(c->mask, sizeof c->mask, "%s", is_long ? "" : text);
}

enum attn_status attn_case_open(const struct attn_case *c, const struct attn_mask_source *source,
                                struct attn_problem *p, struct attn_mask **mask,
                                struct attn_error *err)
{
    const struct attn_mask_shape shape = {c->batch, c->heads, c->n_query, c->n_key};
    *mask = NULL;
    attn_case_problem(c, p);
    enum attn_status status = attn_problem_check(p, err); /* of extents, before of a mask */
    if (status == ATTN_OK)
        status = attn_mask_parse(attn_case_mask(c), &shape, source, mask, err);
    p->mask = *mask;
    return status;
}
