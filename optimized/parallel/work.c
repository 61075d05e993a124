/* See work.h. */
#include "optimized/parallel/work.h"

#include <string.h>

#include "optimized/integers.h"
#include "ref/problem.h"

struct attn_work attn_work_of(const struct attn_problem *whole, const struct attn_options *options,
                              enum attn_pass pass, int rank)
{
    const struct attn_scheme *scheme = options->impl->scheme;
    struct attn_work w = {.scheme = scheme,
                          .whole = whole,
                          .options = options,
                          .pass = pass,
                          .rank = rank,
                          .ring = {{1, 1}, 1, ""},
                          .home = scheme->home(whole, options),
                          .work = scheme->work(whole, options)};
    if (scheme->ring != NULL)
        w.ring = scheme->ring(options);
    w.stops = w.ring.axis.parts;
    if (options->value[ATTN_OPTION_SIZES] == ATTN_SIZES_PAD)
        attn_layout_pad(&w.home, &w.work, whole);
    w.stored.home = attn_layout_stored(&w.home, whole, &w.stored.whole);
    w.stored.work = attn_layout_stored(&w.work, whole, &w.stored.whole);
    if (scheme->mask > 0)
        w.mask = (enum attn_mask_form)options->value[scheme->mask];
    attn_work_portion(&w, 0);
    attn_work_go(&w, 0);
    return w;
}

/* ---- portions of heads ----------------------------------------------------------------------- */

static int64_t at_once(const struct attn_work *w)
{
    int64_t n = w->scheme->kv_heads_at_once != NULL ? w->scheme->kv_heads_at_once(w->options) : 0;
    return n > 0 ? n : greater(w->whole->kv_heads, 1);
}

int attn_work_portions(const struct attn_work *w)
{
    if (at_once(w) >= w->whole->kv_heads)
        return 1;
    int64_t heads = attn_layout_box(&w->work, w->whole, 1, w->rank).heads.n;
    return (int)at_least_1(ceil_div(heads, at_once(w)));
}

void attn_work_portion(struct attn_work *w, int n)
{
    struct attn_tokens kv = attn_layout_box(&w->work, w->whole, 1, w->rank).heads;
    struct attn_tokens heads = attn_layout_box(&w->work, w->whole, 0, w->rank).heads;
    int64_t first = kv.first + n * at_once(w), last = less(first + at_once(w), kv.first + kv.n);
    int64_t group = w->whole->kv_heads > 0 ? w->whole->heads / w->whole->kv_heads : 1;
    w->kv_heads = attn_tokens_between(first, last);
    w->heads = attn_tokens_between(greater(heads.first, first * group),
                                   less(heads.first + heads.n, last * group));
}

/* ---- stops ----------------------------------------------------------------------------------- */

/* The rank `places` places and `windows` windows away. */
static int away(const struct attn_work *w, int places, int windows)
{
    const struct attn_ring *ring = &w->ring;
    int r = attn_axis_place(&ring->axis, w->rank), outer = ring->axis.parts / ring->inner;
    int window = ((r / ring->inner + windows) % outer + outer) % outer;
    int place = ((r % ring->inner + places) % ring->inner + ring->inner) % ring->inner;
    return w->rank + (window * ring->inner + place - r) * ring->axis.stride;
}

/* Before a stop every block moves one place on inside its window, and before the first stop of a
 * window to the next one.  Before stop 0 nothing travels. */
struct attn_stop attn_work_stop(const struct attn_work *w, int n)
{
    int crosses = n % w->ring.inner == 0;
    if (n == 0)
        return (struct attn_stop){-1, -1, w->rank};
    return (struct attn_stop){.to = away(w, 1, crosses),
                              .from = away(w, -1, -crosses),
                              .key = away(w, -n, -(n / w->ring.inner))};
}

void attn_work_go(struct attn_work *w, int n)
{
    w->n_stop = n;
    w->stop = attn_work_stop(w, n);
    w->queries = attn_work_box(w, 0, w->rank);
    w->keys = attn_work_box(w, 1, w->stop.key);
    w->next = 0;
    memset(w->saw_query, 0, sizeof w->saw_query);
    memset(w->saw_key, 0, sizeof w->saw_key);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

struct attn_box attn_work_box(const struct attn_work *w, int is_of_keys, int rank)
{
    return attn_layout_box(&w->work, w->whole, is_of_keys, rank);
}

struct attn_box attn_work_stored_box(const struct attn_work *w, int is_of_keys, int rank)
{
    struct attn_box stored = attn_layout_stored_box(&w->work, w->whole, is_of_keys, rank);
    if (attn_work_portions(w) > 1)
        stored.heads = is_of_keys ? w->kv_heads : w->heads;
    return stored;
}

int64_t attn_work_block(const struct attn_work *w, enum attn_tag_kind kind, int rank)
{
    struct attn_box stored = attn_work_stored_box(w, attn_tag_is_of_keys(kind), rank);
    return attn_box_rows(&stored) * attn_tag_width(kind, w->whole);
}

/* ---- types, and partial results -------------------------------------------------------------- */

int attn_work_moves(const struct attn_work *w, enum attn_tag_kind kind)
{
    return !attn_layout_same(&w->home, &w->work, w->whole, attn_tag_is_of_keys(kind));
}

int attn_work_is_summed(const struct attn_work *w, enum attn_tag_kind kind)
{
    return (kind == ATTN_TAG_DK || kind == ATTN_TAG_DV) && attn_work_moves(w, kind) &&
           attn_layout_copies(&w->work, w->whole);
}

enum attn_dtype attn_work_dtype(const struct attn_work *w, enum attn_tag_kind kind)
{
    return attn_work_is_summed(w, kind) ? attn_lse_dtype(w->whole) : attn_tag_dtype(kind, w->whole);
}

int attn_work_cuts(const struct attn_work *w, int is_of_keys)
{
    return w->stops > 1 || attn_layout_stretches(&w->work, !is_of_keys) > 1;
}

int64_t attn_layout_partials(const struct attn_layout *work)
{
    int64_t blocks =
        work->all_keys || work->order >= ATTN_FRAMES ? 1 : attn_axis_parts(&work->tokens);
    return blocks * greater(attn_layout_stretches(work, 0), attn_layout_stretches(work, 1));
}
