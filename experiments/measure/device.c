#include "experiments/measure/device.h"

#include <math.h>
#include <string.h>

#include "ref/mask/mask.h"
#include "ref/problem.h"

enum attn_status attn_device_parse(const char *text, int64_t *bytes, struct attn_error *err)
{
    char number[32];
    size_t n = strlen(text);
    if (n > 0 && n < sizeof number) {
        memcpy(number, text, n + 1);
        if (text[n - 1] == 'B')
            number[n - 1] = '\0';
        if (attn_cli_count(number, 1, 0, bytes))
            return ATTN_OK;
    }
    return attn_fail(err, ATTN_EINVAL, "memory '%.40s' is no size such as 80GiB or 24GB", text);
}

enum attn_status attn_device_need(const struct attn_spec *spec, const struct attn_stack *stack,
                                  const struct attn_problem *p, enum attn_pass pass, double *need,
                                  struct attn_error *err)
{
    struct attn_stack_cost all;
    enum attn_status status = ATTN_OK;
    *need = 0;
    if (stack->n > 0) {
        status = attn_stack_price(stack, spec, p, pass, &all, err);
        *need = (double)all.cost.peak_bytes;
        return status;
    }
    int ranks = attn_ranks(spec->impl, &spec->options);
    for (int rank = 0; rank < ranks && status == ATTN_OK; rank++) {
        struct attn_cost cost;
        status = attn_price(spec->impl, &spec->options, p, pass, rank, &cost, err);
        *need = fmax(*need, (double)cost.peak_bytes + cost.shard_bytes);
    }
    return status;
}

/* Of so many tokens.  What exceeds 64 bits needs more than any device has. */
static enum attn_status need_of(const struct attn_spec *spec, const struct attn_stack *stack,
                                const struct attn_cli_shape *shape, int64_t length, double *need,
                                struct attn_error *err)
{
    struct attn_cli_shape so_long = *shape;
    so_long.n_query = so_long.n_key = length;
    struct attn_problem p = attn_cli_shape_problem(&so_long);
    const struct attn_mask_shape extents = {p.batch, p.heads, length, length};
    struct attn_mask *mask = NULL;
    struct attn_error why = {ATTN_OK, ""};
    enum attn_status status = attn_problem_check(&p, &why);
    if (status == ATTN_OK)
        status = attn_mask_parse(shape->mask, &extents, NULL, &mask, &why);
    p.mask = mask;
    if (status == ATTN_OK)
        status = attn_device_need(spec, stack, &p, shape->pass, need, &why);
    attn_mask_free(mask);
    if (status == ATTN_EINVAL && strstr(why.text, "exceeds 64 bits") != NULL) {
        *need = HUGE_VAL;
        return ATTN_OK;
    }
    return status == ATTN_OK ? status : attn_fail(err, status, "%s", why.text);
}

enum attn_status attn_device_longest(const struct attn_spec *spec, const struct attn_stack *stack,
                                     const struct attn_cli_shape *shape, int64_t bytes,
                                     int64_t *longest, double need[2], struct attn_error *err)
{
    static const int64_t MOST = (int64_t)1 << 40;
    /* What ranks do not share evenly may need more than a longer length that they do: look among
     * multiples first, then at each length up to the next one. */
    int ranks = attn_ranks(spec->impl, &spec->options);
    int64_t unit = ranks > 1 ? 4 * (int64_t)ranks : 1, fits = 0, fails = unit;
    double limit = (double)bytes, now = 0;
    enum attn_status status = need_of(spec, stack, shape, fails, &now, err);
    need[0] = 0;
    while (status == ATTN_OK && now <= limit && fails < MOST) { /* double it until it fails */
        fits = fails;
        need[0] = now;
        fails *= 2;
        status = need_of(spec, stack, shape, fails, &now, err);
    }
    need[1] = now;
    while (status == ATTN_OK && fails - fits > unit) { /* halve what is between */
        int64_t length = fits + (fails - fits) / unit / 2 * unit;
        status = need_of(spec, stack, shape, length, &now, err);
        int does_fit = now <= limit;
        need[!does_fit] = now;
        *(does_fit ? &fits : &fails) = length;
    }
    for (int64_t length = fails - 1; status == ATTN_OK && length > fits; length--) {
        status = need_of(spec, stack, shape, length, &now, err);
        if (now <= limit)
            fits = length;
        need[now > limit] = now;
    }
    *longest = fits;
    return status;
}
