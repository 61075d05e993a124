#include "experiments/price/need.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "experiments/cli/cli.h"
#include "optimized/integers.h"
#include "ref/problem.h"

const char *attn_need_pass_name(enum attn_need_pass pass)
{
    return pass == ATTN_NEED_BOTH ? "both" : attn_pass_name((enum attn_pass)pass);
}

/* ---- what is needed -------------------------------------------------------------------------- */

/* Of a backward pass, after which the forward one was looked at. */
static void join(struct attn_cost *cost, const struct attn_cost *forward)
{
    cost->peak_bytes = greater(cost->peak_bytes, forward->peak_bytes);
    cost->saved_bytes = greater(cost->saved_bytes, forward->saved_bytes);
    cost->counted |= forward->counted;
    cost->flops += forward->flops;
    cost->pairs += forward->pairs;
    cost->bytes_sent += forward->bytes_sent;
    cost->messages += forward->messages;
}

void attn_need_add(struct attn_need *need, struct attn_cost *cost, const struct attn_cost *forward)
{
    if (forward != NULL)
        join(cost, forward);
    need->counted |= cost->counted;
    need->lacks = cost->lacks != NULL ? cost->lacks : need->lacks;
    need->flops += cost->flops;
    need->peaks += (double)cost->peak_bytes;
    need->device = fmax(need->device, cost->shard_bytes + (double)cost->peak_bytes);
    need->shard = fmax(need->shard, cost->shard_bytes);
    need->peak = greater(need->peak, cost->peak_bytes);
    need->saved = greater(need->saved, cost->saved_bytes);
    if (cost->bytes_sent > need->sent) {
        need->sent = cost->bytes_sent;
        need->messages = cost->messages;
    }
}

enum attn_status attn_need_of_call(const struct attn_spec *spec, const struct attn_problem *p,
                                   enum attn_need_pass pass, const struct attn_need_each *each,
                                   struct attn_need *need, struct attn_error *err)
{
    const enum attn_pass last = pass == ATTN_NEED_FORWARD ? ATTN_FORWARD : ATTN_BACKWARD;
    const int is_both = pass == ATTN_NEED_BOTH;
    *need = (struct attn_need){.ranks = attn_ranks(spec->impl, &spec->options),
                               .beside = attn_pass_bytes(p, last)};
    for (int rank = 0; rank < need->ranks; rank++) {
        struct attn_cost cost, forward;
        enum attn_status status = attn_price(spec->impl, &spec->options, p, last, rank, &cost, err);
        if (status == ATTN_OK && is_both)
            status = attn_price(spec->impl, &spec->options, p, ATTN_FORWARD, rank, &forward, err);
        if (status != ATTN_OK)
            return status;
        attn_need_add(need, &cost, is_both ? &forward : NULL);
        need->copies += spec->impl->ranks != NULL ? cost.shard_bytes : 0;
        if (each != NULL && each->cost != NULL)
            each->cost[rank] = cost;
        if (each != NULL && each->tell != NULL)
            each->tell(each->arg, rank + 1, need->ranks);
    }
    return ATTN_OK;
}

/* ---- does it fit? ---------------------------------------------------------------------------- */

enum attn_status attn_memory_parse(const char *text, struct attn_memory *memory,
                                   struct attn_error *err)
{
    char number[32];
    int64_t bytes;
    size_t n = strlen(text);
    if (n > 0 && n < sizeof number) {
        memcpy(number, text, n + 1);
        if (text[n - 1] == 'B' || text[n - 1] == 'b')
            number[n - 1] = '\0';
        if (!attn_cli_count(number, 1, 0, &bytes))
            n = 0;
    }
    if (n == 0 || n >= sizeof number)
        return attn_fail(err, ATTN_EINVAL, "memory '%.40s' is no size such as 80GiB or 24GB", text);
    if (bytes < 1 << 20 && strspn(text, "0123456789") == n)
        return attn_fail(err, ATTN_EINVAL,
                         "memory '%s' has no unit: %sGiB, or %sB for so few bytes, would work",
                         text, text, text);
    *memory = (struct attn_memory){.bytes = (double)bytes, .is_device = 1};
    return ATTN_OK;
}

struct attn_memory attn_memory_here(void)
{
    int64_t available = attn_cli_memory_available();
    return (struct attn_memory){.bytes = available == INT64_MAX ? HUGE_VAL : (double)available};
}

/* A count, which may have a fraction of its unit or an exponent: 6.74G, 7e9. */
static int read_params(const char *text, int64_t *params)
{
    char number[32];
    size_t n = strspn(text, "0123456789.eE+");
    const char unit = text[n];
    double x;
    if (attn_cli_count(text, 1, 0, params))
        return 1;
    snprintf(number, sizeof number, "%.*s", (int)n, text);
    if (!attn_cli_double(number, &x) || (unit != '\0' && text[n + 1] != '\0'))
        return 0;
    x *= unit == 'k' ? 1e3 : unit == 'M' ? 1e6 : unit == 'G' ? 1e9 : unit == '\0' ? 1 : 0;
    *params = x >= 1 && x <= 1e15 ? llround(x) : 0;
    return *params > 0;
}

enum attn_status attn_params_parse(const char *text, struct attn_memory *memory,
                                   struct attn_error *err)
{
    char number[32];
    size_t n = strcspn(text, ",");
    snprintf(number, sizeof number, "%.*s", (int)n, text);
    memory->param_bytes = 16;
    if (n < sizeof number && read_params(number, &memory->params) &&
        (text[n] == '\0' || attn_cli_int(text + n + 1, 1, 1024, &memory->param_bytes)))
        return ATTN_OK;
    return attn_fail(err, ATTN_EINVAL,
                     "params '%.40s': a number such as 7G, 6.74G or 7e9, or with bytes of each, 1 "
                     "to 1024, such as 7G,16, would work",
                     text);
}

double attn_need_params(const struct attn_need *need, const struct attn_memory *memory)
{
    return fmax(0, (double)memory->params * (double)memory->param_bytes - need->weights);
}

double attn_need_in(const struct attn_need *need, const struct attn_memory *memory)
{
    return attn_need_params(need, memory) +
           (memory->is_device ? need->device : need->beside + need->copies + need->peaks);
}

/* A search for the longest. */
struct search {
    const struct attn_length_price *price;
    double memory, patience;
    int64_t fits, fails;
    double bytes[2]; /* of these two */
};

/* Price `length` tokens.  A length that is refused after one that was not fits nowhere: its bytes
 * exceed 64 bits, or its keys no longer have numbers of 32 bits. */
static enum attn_status try_length(struct search *x, int64_t length, struct attn_error *err)
{
    struct attn_error why = {ATTN_OK, ""};
    double bytes = HUGE_VAL;
    clock_t start = clock();
    enum attn_status status = x->price->bytes(x->price->arg, length, &bytes, &why);
    if (status != ATTN_OK) {
        bytes = HUGE_VAL;
        if (x->fits == 0 || (status != ATTN_EINVAL && status != ATTN_ENOTSUP))
            return attn_fail(err, status, "%s", why.text);
    }
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    if (seconds > x->patience)
        return attn_fail(err, ATTN_ENOTSUP, "the price of %lld tokens took %.1f s of %g s",
                         (long long)length, seconds, x->patience);
    int does_fit = bytes <= x->memory;
    x->bytes[!does_fit] = bytes;
    *(does_fit ? &x->fits : &x->fails) = length;
    return ATTN_OK;
}

static enum attn_status search_multiples(struct search *x, int64_t unit, struct attn_error *err)
{
    static const int64_t MOST = (int64_t)1 << 40;
    enum attn_status status = try_length(x, unit, err);
    while (status == ATTN_OK && x->fails == 0 && x->fits < MOST) /* double it until it fails */
        status = try_length(x, 2 * x->fits, err);
    while (status == ATTN_OK && x->fails - x->fits > unit) /* halve what is between */
        status = try_length(x, x->fits + (x->fails - x->fits) / unit / 2 * unit, err);
    return status;
}

/* Then each length up to the next multiple. */
enum attn_status attn_longest_of(const struct attn_length_price *price, double memory,
                                 double patience, int64_t *longest, double bytes[2],
                                 struct attn_error *err)
{
    struct search x = {price, memory, patience, 0, 0, {0, 0}};
    enum attn_status status = search_multiples(&x, price->unit, err);
    int64_t last = x.fails;
    for (int64_t length = last - 1; status == ATTN_OK && length > x.fits && !price->is_even;
         length--)
        status = try_length(&x, length, err);
    *longest = x.fits;
    memcpy(bytes, x.bytes, sizeof x.bytes);
    return status;
}
