#include "experiments/cli/flag_cases.h"

#include <math.h>

enum { PASSES = ATTN_BACKWARD + 1, DTYPES = ATTN_F16 + 1 };

static int passes(const struct attn_cli_cases *s)
{
    return s->pass == PASSES ? PASSES : 1;
}

static int dtypes(const struct attn_cli_cases *s)
{
    return s->dtype == DTYPES ? DTYPES : 1;
}

int attn_cli_case_count(const struct attn_cli_cases *s)
{
    return s->lengths.n * s->dims.n * s->masks.n * dtypes(s) * passes(s);
}

struct attn_case attn_cli_case_at(const struct attn_cli_cases *s, int index)
{
    int pass = index % passes(s);
    index /= passes(s);
    int dtype = index % dtypes(s);
    index /= dtypes(s);
    const char *mask = s->masks.at[index % s->masks.n].value;
    index /= s->masks.n;
    int64_t dim = s->dims.at[index % s->dims.n], length = s->lengths.at[index / s->dims.n];
    struct attn_case c = {
        .batch = s->batch,
        .heads = s->heads,
        .kv_heads = s->kv_heads >= 0 ? s->kv_heads : s->heads,
        .n_query = length,
        .n_key = s->keys >= 0 ? s->keys : length,
        .d_key = dim,
        .d_value = s->dv >= 0 ? s->dv : dim,
        .dtype = (enum attn_dtype)(s->dtype == DTYPES ? dtype : s->dtype),
        .pass = (enum attn_pass)(s->pass == PASSES ? pass : s->pass),
        .scale = (double)NAN,
    };
    attn_case_set_mask(&c, mask);
    return c;
}
