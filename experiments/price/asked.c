#include "experiments/price/asked.h"

#include <string.h>

/* Parameters, and gradients of theirs. */
static double weights_of(const struct attn_cost *cost)
{
    static const enum attn_stack_tensor weight[] = {ATTN_STACK_WQKV, ATTN_STACK_WO,
                                                    ATTN_STACK_DWQKV, ATTN_STACK_DWO};
    double bytes = 0;
    for (int a = 0; a < cost->n_live; a++)
        for (size_t w = 0; w < sizeof weight / sizeof *weight; w++)
            if (strcmp(cost->live[a].name, attn_stack_tensor_name(weight[w])) == 0)
                bytes += (double)cost->live[a].bytes;
    return bytes;
}

/* All tensors of a stack are in its peak: there are no shares beside. */
static enum attn_status need_of_stack(const struct attn_price_asked *asked,
                                      const struct attn_problem *p,
                                      const struct attn_need_each *each, struct attn_need *need,
                                      struct attn_error *err)
{
    const int is_both = asked->pass == ATTN_NEED_BOTH;
    struct attn_stack_cost x, forward;
    enum attn_status status =
        attn_stack_price(asked->stack, asked->spec, p,
                         asked->pass == ATTN_NEED_FORWARD ? ATTN_FORWARD : ATTN_BACKWARD, &x, err);
    if (status == ATTN_OK && is_both)
        status = attn_stack_price(asked->stack, asked->spec, p, ATTN_FORWARD, &forward, err);
    if (status != ATTN_OK)
        return status;
    *need = (struct attn_need){
        .ranks = 1, .again_flops = x.again_flops, .weights = weights_of(&x.cost)};
    attn_need_add(need, &x.cost, is_both ? &forward.cost : NULL);
    if (each != NULL && each->cost != NULL)
        *each->cost = x.cost;
    return ATTN_OK;
}

enum attn_status attn_need_of(const struct attn_price_asked *asked, const struct attn_problem *p,
                              const struct attn_need_each *each, struct attn_need *need,
                              struct attn_error *err)
{
    return asked->stack->n > 0 ? need_of_stack(asked, p, each, need, err)
                               : attn_need_of_call(asked->spec, p, asked->pass, each, need, err);
}

enum attn_status attn_need_of_case(const struct attn_price_asked *asked, struct attn_need *need,
                                   struct attn_error *err)
{
    struct attn_problem p;
    struct attn_mask *mask;
    enum attn_status status = attn_case_open(asked->c, NULL, &p, &mask, err);
    if (status == ATTN_OK)
        status = attn_need_of(asked, &p, NULL, need, err);
    attn_mask_free(mask);
    return status;
}

/* Of what is asked, in a case of any length. */
static enum attn_status asked_bytes(void *arg, int64_t length, double *bytes,
                                    struct attn_error *err)
{
    struct attn_price_asked asked = *(const struct attn_price_asked *)arg;
    struct attn_case so_long = *asked.c;
    struct attn_need need;
    so_long.n_query = so_long.n_key = length;
    asked.c = &so_long;
    enum attn_status status = attn_need_of_case(&asked, &need, err);
    if (status == ATTN_OK)
        *bytes = attn_need_in(&need, asked.memory);
    return status;
}

/* A length that ranks do not share evenly may need more than a longer one that they do: multiples
 * come first. */
enum attn_status attn_need_longest(const struct attn_price_asked *asked, int is_even,
                                   double patience, int64_t *longest, double bytes[2],
                                   struct attn_error *err)
{
    struct attn_price_asked x = *asked;
    int ranks = attn_ranks(x.spec->impl, &x.spec->options);
    const struct attn_length_price price = {asked_bytes, &x, ranks > 1 ? 4 * (int64_t)ranks : 1,
                                            is_even};
    return attn_longest_of(&price, x.memory->bytes, patience, longest, bytes, err);
}
