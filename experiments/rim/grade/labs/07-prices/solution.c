/* Lab 07, a solution: every buffer of a live set is a line. */
#include <string.h>

#include "docs/labs/07-prices/prices.h"

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* A byte of the mask, where there is one, scores and P of all heads; backward P and dS, and the
 * slope of one row. */
static int64_t dense(const struct price_problem *p)
{
    int64_t all = p->batch * p->heads * p->n_query * p->n_key;
    int64_t mask = p->has_mask ? all : 0, slope = p->backward ? p->n_key * p->bytes : 0;
    return mask + 2 * all * p->bytes + slope;
}

/* One pattern for all heads: 64-bit row starts, 32-bit columns; the same numbers as dense, of
 * visible pairs. */
static int64_t csr(const struct price_problem *p)
{
    int64_t row_start = 8 * (p->n_query + 1), column = 4 * p->pairs;
    int64_t values = p->batch * p->heads * p->pairs * p->bytes;
    int64_t slope = p->backward ? p->n_key * p->bytes : 0;
    return row_start + column + 2 * values + slope;
}

/* Tiles of n queries in all, in numbers; backward D of all of them. */
static int64_t tiles(const struct price_problem *p, int64_t br, int64_t bc, int64_t n)
{
    int64_t d = p->d_key, dv = p->d_value;
    int64_t q = br * d, k = bc * d, v = bc * dv, s = br * bc, o = br * dv, m = br, l = br;
    if (!p->backward)
        return q + k + v + s + o + m + l;
    int64_t d_o = o, slope = s, dk = k, d_v = v, delta = n;
    return q + k + v + s + d_o + slope + dk + d_v + delta;
}

/* Panels of 12 queries, of rows that are 8 numbers longer than the keys; backward P and dS. */
static int64_t gemm(const struct price_problem *p)
{
    int64_t panels = p->batch * p->heads * ceil_div(p->n_query, 12);
    return (p->backward ? 2 : 1) * panels * 12 * (p->n_key + 8) * p->bytes;
}

/* O and LSE of a chunk of queries for each chunk of keys. */
static int64_t chunked(const struct price_problem *p)
{
    return p->tile_query * (p->d_value + 1) * ceil_div(p->n_key, p->tile_key) * p->bytes;
}

/* Pairs of other ranks: no more than there are other ranks.  Then what one head gets of a block,
 * and tiles of 64. */
static int64_t ring(const struct price_problem *p)
{
    int64_t n_query = p->n_query / p->ranks, n_key = p->n_key / p->ranks;
    int64_t pair = p->batch * p->kv_heads * n_key * (p->d_key + p->d_value);
    int64_t pairs = p->ranks > 2 ? 2 : p->ranks - 1, sums = p->backward ? 2 : 0;
    int64_t block = n_query * (p->backward ? p->d_key : p->d_value + 1);
    return ((pairs + sums) * pair + block + tiles(p, 64, 64, n_query)) * p->bytes;
}

/* The repeated mask and its product with the other vector, both int32 and of one head; what both
 * are made of goes before. */
static int64_t open_sora(const struct price_problem *p, int masks)
{
    return masks * 4 * p->batch * p->n_query * p->n_key;
}

/* The call's peak: with logits and P live, and in a first call the scratch that the autotuner
 * takes; the scaled q, the mask, the input, and in later calls the result of the one before. */
static int64_t xformers(const struct price_problem *p)
{
    int64_t numbers = 4 * p->batch * p->n_query * p->d_key;
    int64_t pairs = 4 * p->batch * p->n_query * p->n_key, mask = p->n_query * p->n_key;
    int64_t before = numbers + mask + p->workspace + (p->is_first ? 0 : numbers);
    int64_t at_softmax = numbers + 2 * pairs + p->flush, at_product = pairs + numbers;
    return before + (at_softmax > at_product ? at_softmax : at_product);
}

int64_t price(const struct price_problem *p)
{
    if (strcmp(p->of, "dense") == 0)
        return dense(p);
    if (strcmp(p->of, "csr-textbook") == 0)
        return csr(p);
    if (strcmp(p->of, "tiled-textbook") == 0)
        return tiles(p, p->tile_query, p->tile_key, p->n_query) * p->bytes;
    if (strcmp(p->of, "gemm") == 0)
        return gemm(p);
    if (strcmp(p->of, "chunked") == 0)
        return chunked(p);
    if (strcmp(p->of, "ring-textbook") == 0)
        return ring(p);
    if (strcmp(p->of, "open-sora-peak") == 0)
        return open_sora(p, 2);
    if (strcmp(p->of, "open-sora-kept") == 0)
        return open_sora(p, 1);
    return strcmp(p->of, "xformers") == 0 ? xformers(p) : -1;
}
