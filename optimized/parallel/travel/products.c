/* See products.h. */
#include "optimized/parallel/travel/products.h"

#include <string.h>

#include "optimized/integers.h"
#include "optimized/parallel/parallel.h"
#include "ref/problem.h"

/* ---- pieces of the problem ------------------------------------------------------------------- */

/* A piece of a piece: positions count from where the whole begins. */
static struct attn_positions positions_of(const struct attn_positions *whole,
                                          const struct attn_tokens *t)
{
    int64_t step = 1 + whole->skip;
    return (struct attn_positions){whole->first + step * t->first, step * t->step - 1,
                                   whole->by_batch};
}

struct attn_problem attn_piece_of(const struct attn_problem *whole, const struct attn_tokens *heads,
                                  const struct attn_tokens *queries, const struct attn_tokens *keys)
{
    struct attn_problem piece = *whole;
    piece.sink = (struct attn_sink){0}; /* is of whole rows (rank_sink.h) */
    piece.heads = heads->n;
    piece.kv_heads = attn_kv_heads(whole, heads).n;
    piece.n_query = queries->n;
    piece.n_key = keys->n;
    piece.origin.head += heads->first;
    piece.origin.query = positions_of(&whole->origin.query, queries);
    piece.origin.key = positions_of(&whole->origin.key, keys);
    piece.scattered = 0; /* shards are packed */
    return piece;
}

static enum attn_tile whole_tile(const struct attn_problem *part, int64_t b, int64_t h)
{
    return attn_problem_tile(part, (struct attn_tile_at){b, h, 0, part->n_query, 0, part->n_key});
}

/* No pair of this batch and head, as far as tile, band and spans tell: exactly where a mask has one
 * of them, so for bands and documents also of tokens that lie R apart. */
static int is_hidden(const struct attn_problem *part, int64_t b, int64_t h)
{
    int64_t least, most;
    struct attn_run run;
    enum attn_tile tile = whole_tile(part, b, h);
    if (tile != ATTN_TILE_PARTIAL)
        return tile == ATTN_TILE_EMPTY;
    if (attn_problem_band(part, b, &least, &most))
        return least > most;
    for (int64_t i = 0; i < part->n_query; i++)
        if (!attn_problem_span(part, b, h, i, &run) || run.lo < run.hi)
            return 0;
    return 1;
}

static int is_visible(const struct attn_problem *part, int64_t b, int64_t h)
{
    return whole_tile(part, b, h) == ATTN_TILE_FULL;
}

/* So is every batch and head that may differ. */
static int is_all(const struct attn_problem *part,
                  int (*is)(const struct attn_problem *part, int64_t b, int64_t h))
{
    int64_t batches = attn_problem_varies_by_batch(part) ? part->batch : 1;
    int64_t heads = attn_mask_varies_by_head(part->mask) ? part->heads : 1;
    for (int64_t b = 0; b < batches; b++)
        for (int64_t h = 0; h < heads; h++)
            if (!is(part, b, h))
                return 0;
    return 1;
}

int attn_piece_is_hidden(const struct attn_problem *part)
{
    if (part->batch == 0 || part->heads == 0 || part->n_query == 0 || part->n_key == 0)
        return 1;
    if (part->mask == NULL)
        return 0;
    return is_all(part, is_hidden);
}

int attn_piece_is_visible(const struct attn_problem *part)
{
    return part->mask == NULL || is_all(part, is_visible);
}

/* ---- products -------------------------------------------------------------------------------- */

/* Batch n of a block of places as a problem of its own: a batch for each place, a token for each
 * frame. */
static void take_places(const struct attn_box *box, int64_t n, struct attn_problem *part)
{
    struct attn_origin *at = &part->origin;
    part->batch = box->stretch[0].n;
    part->n_query = part->n_key = box->repeats;
    at->batch += at->one_batch ? 0 : n;
    at->one_batch = 1;
    at->query = at->key = (struct attn_positions){box->stretch[0].first, box->pitch - 1, 1};
}

static struct attn_tokens call_heads(const struct attn_work *w, int n)
{
    int64_t group = w->whole->kv_heads > 0 ? w->whole->heads / w->whole->kv_heads : 1;
    int64_t first = w->heads.first, end = first + w->heads.n;
    int64_t whole = less(ceil_div(first, group) * group, end);
    const int64_t at[ATTN_CALLS + 1] = {first, whole, greater(end / group * group, whole), end};
    return attn_tokens_between(at[n], at[n + 1]);
}

/* Some result of a product is a partial sum of 16-bit numbers: it is f32. */
static int makes_wide(const struct attn_work *w)
{
    int keys = attn_work_cuts(w, 1) || attn_work_is_summed(w, ATTN_TAG_DK);
    return (attn_work_cuts(w, 0) || (w->pass == ATTN_BACKWARD && keys)) &&
           attn_lse_dtype(w->whole) != w->whole->dtype;
}

struct attn_product attn_work_product(const struct attn_work *w, int call, int query, int key,
                                      int64_t n)
{
    struct attn_box queries = w->queries, keys = w->keys;
    struct attn_product x = {.call = call, .query = query, .key = key};
    x.heads = call_heads(w, call);
    x.kv_heads = attn_kv_heads(w->whole, &x.heads);
    x.query_at = query > 0 ? queries.stretch[0].n : 0;
    x.key_at = key > 0 ? keys.stretch[0].n : 0;
    x.part = attn_piece_of(w->whole, &x.heads, &queries.stretch[query], &keys.stretch[key]);
    x.part.wide = makes_wide(w);
    x.batch = n;
    if (w->work.order == ATTN_PLACES)
        take_places(&queries, n, &x.part);
    return x;
}

/* No query and no key: a part of a block has its result from one product, which must be there even
 * where all is hidden. */
static int is_empty(const struct attn_problem *part)
{
    return part->batch == 0 || (part->n_query == 0 && part->n_key == 0);
}

int attn_work_next(struct attn_work *w, struct attn_product *x)
{
    int queries = attn_layout_stretches(&w->work, 0), keys = attn_layout_stretches(&w->work, 1);
    int64_t pairs = (int64_t)queries * keys, alone = w->work.order == ATTN_PLACES;
    int64_t parts = alone ? w->whole->batch : 1;
    while (w->next < ATTN_CALLS * pairs * parts) {
        int64_t n = w->next++, pair = n / parts % pairs;
        if (call_heads(w, (int)(n / parts / pairs)).n == 0)
            continue;
        *x = attn_work_product(w, (int)(n / parts / pairs), (int)(pair / keys), (int)(pair % keys),
                               n % parts);
        if (alone ? is_empty(&x->part) : attn_piece_is_hidden(&x->part))
            continue;
        x->starts_query = w->n_stop == 0 && (alone || !w->saw_query[x->call][x->query]);
        x->starts_key = w->n_stop == 0 && (alone || !w->saw_key[x->call][x->key]);
        w->saw_query[x->call][x->query] = w->saw_key[x->call][x->key] = 1;
        return 1;
    }
    return 0;
}

/* ---- their price ----------------------------------------------------------------------------- */

/* w1 o + w2 o2 for each merge, one add for each element of a gradient. */
static double fold_flops(const struct attn_work *w, const struct attn_product *x)
{
    const struct attn_problem *p = &x->part;
    double rows = (double)(p->batch * p->heads * p->n_query);
    double keys = (double)(p->batch * p->kv_heads * p->n_key);
    if (w->pass == ATTN_FORWARD)
        return x->starts_query ? 0 : 3 * rows * (double)p->d_value;
    return (x->starts_query ? 0 : rows * (double)p->d_key) +
           (x->starts_key ? 0 : keys * (double)(p->d_key + attn_tag_width(ATTN_TAG_DV, p)));
}

/* Each flop of a merge or a sum is a pass over the whole block. */
static void add_fold(const struct attn_work *w, const struct attn_product *x,
                     struct attn_stop_cost *cost)
{
    const struct attn_problem *p = &x->part;
    double flops = fold_flops(w, x);
    int adds = (x->starts_query ? 0 : 1) + (x->starts_key ? 0 : p->kv_shared ? 1 : 2);
    cost->folds += flops;
    cost->passes += flops <= 0 ? 0 : w->pass == ATTN_FORWARD ? 3 : adds;
}

enum attn_status attn_work_stop_cost(struct attn_work *w, struct attn_stop_cost *cost,
                                     struct attn_error *err)
{
    const struct attn_options preset = attn_rank_local_options(w->options);
    struct attn_product x;
    memset(cost, 0, sizeof *cost);
    while (attn_work_next(w, &x)) {
        struct attn_cost local;
        enum attn_status status =
            attn_price(attn_rank_local(w->options), &preset, &x.part, w->pass, 0, &local, err);
        if (status != ATTN_OK)
            return status;
        cost->products++;
        cost->flops += local.flops;
        cost->pairs += local.pairs;
        cost->masked_flops += attn_piece_is_visible(&x.part) ? 0 : local.flops;
        add_fold(w, &x, cost);
        local.counted |= cost->largest.counted;
        cost->largest.counted = local.counted;
        if (cost->products == 1 || local.peak_bytes > cost->largest.peak_bytes)
            cost->largest = local;
    }
    return ATTN_OK;
}
