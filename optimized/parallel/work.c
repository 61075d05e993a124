/* See work.h. */
#include "optimized/parallel/work.h"

#include <string.h>

#include "optimized/integers.h"
#include "optimized/parallel/schedule.h"
#include "ref/problem.h"

/* ---- blocks and products --------------------------------------------------------------------- */

/* Some query, some key is in several products: their results are partial. */
static int cuts_queries(const struct attn_work *w)
{
    return w->stops > 1 || attn_layout_stretches(&w->work, 1) > 1;
}

static int cuts_keys(const struct attn_work *w)
{
    return w->stops > 1 || attn_layout_stretches(&w->work, 0) > 1;
}

struct attn_work attn_work_of(const struct attn_problem *whole, const struct attn_options *options,
                              enum attn_pass pass, int rank)
{
    const struct attn_scheme *scheme = options->impl->scheme;
    struct attn_work w = {.scheme = scheme,
                          .whole = whole,
                          .options = options,
                          .pass = pass,
                          .rank = rank,
                          .passes_on = scheme->ring != NULL,
                          .stops = scheme->stops != NULL ? scheme->stops(options) : 1,
                          .home = scheme->home(whole, options),
                          .work = scheme->work(whole, options)};
    w.has_via = scheme->via != NULL;
    w.via = w.has_via ? scheme->via(whole, options) : w.home;
    if (options->value[ATTN_OPTION_SIZES] == ATTN_SIZES_PAD)
        attn_layout_pad(&w.home, &w.via, &w.work, whole);
    w.stored.via = attn_layout_stored(&w.via, whole, &w.stored.whole);
    w.stored.home = attn_layout_stored(&w.home, whole, &w.stored.whole);
    w.stored.work = attn_layout_stored(&w.work, whole, &w.stored.whole);
    if (w.passes_on) {
        w.ring = scheme->ring(options);
        w.stops = w.ring.axis.parts;
    }
    if (scheme->merging > 0) {
        const int64_t *value = &options->value[scheme->merging];
        if (pass == ATTN_FORWARD && cuts_queries(&w))
            w.merging = (enum attn_merging)value[0];
        w.narrow = value[1] != 0 && attn_lse_dtype(whole) != whole->dtype;
    }
    attn_work_portion(&w, 0);
    attn_work_go(&w, 0);
    return w;
}

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

struct attn_stop attn_work_stop(const struct attn_work *w, int n)
{
    if (n > 0 && w->passes_on)
        return attn_ring_stop(&w->ring, w->rank, n);
    if (n > 0)
        return w->scheme->stop(w, n);
    return (struct attn_stop){ATTN_NOTHING_TRAVELS, -1, -1, w->rank, w->rank};
}

void attn_work_go(struct attn_work *w, int n)
{
    w->n_stop = n;
    w->stop = attn_work_stop(w, n);
    if (w->stop.query >= 0) {
        w->queries = attn_work_box(w, 0, w->stop.query);
        w->keys = attn_work_box(w, 1, w->stop.key);
    }
    w->next = 0;
    memset(w->saw_query, 0, sizeof w->saw_query);
    memset(w->saw_key, 0, sizeof w->saw_key);
}

struct attn_round attn_work_round(const struct attn_work *w, int n)
{
    if (n > 0 && w->passes_on)
        return attn_ring_round(w, n);
    return n > 0 && w->scheme->round != NULL ? w->scheme->round(w, n) : (struct attn_round){1, 1};
}

struct attn_box attn_work_box(const struct attn_work *w, int is_of_keys, int rank)
{
    return attn_layout_box(&w->work, w->whole, is_of_keys, rank);
}

struct attn_box attn_work_room(const struct attn_work *w, int is_of_keys, int rank)
{
    struct attn_box room = attn_layout_room(&w->work, w->whole, is_of_keys, rank);
    if (attn_work_portions(w) > 1)
        room.heads = is_of_keys ? w->kv_heads : w->heads;
    return room;
}

int64_t attn_work_block(const struct attn_work *w, enum attn_tag_kind kind, int rank)
{
    struct attn_box room = attn_work_room(w, attn_tag_is_of_keys(kind), rank);
    return room.batches.n * room.heads.n * room.tokens * attn_tag_width(kind, w->whole);
}

/* A piece of a piece: positions count from where the whole begins. */
static struct attn_positions positions_of(const struct attn_positions *whole, int64_t batch,
                                          const struct attn_tokens *t)
{
    int64_t step = 1 + whole->skip;
    return (struct attn_positions){whole->first + whole->by_batch * batch + step * t->first,
                                   step * t->step - 1, whole->by_batch, 0, 0};
}

static struct attn_problem piece_of(const struct attn_problem *whole,
                                    const struct attn_tokens *batches,
                                    const struct attn_tokens *heads,
                                    const struct attn_tokens *queries,
                                    const struct attn_tokens *keys)
{
    struct attn_problem piece = *whole;
    piece.batch = batches->n;
    piece.heads = heads->n;
    piece.kv_heads = attn_kv_heads(whole, heads).n;
    piece.n_query = queries->n;
    piece.n_key = keys->n;
    piece.origin.batch += whole->origin.one_batch ? 0 : batches->first;
    piece.origin.head += heads->first;
    piece.origin.query = positions_of(&whole->origin.query, batches->first, queries);
    piece.origin.key = positions_of(&whole->origin.key, batches->first, keys);
    piece.scattered = 0; /* shards are packed */
    return piece;
}

static int is_summed(const struct attn_work *w, enum attn_tag_kind kind)
{
    return (kind == ATTN_TAG_DK || kind == ATTN_TAG_DV) && attn_work_moves(w, kind) &&
           attn_layout_copies(&w->work, w->whole);
}

int attn_work_is_narrow(const struct attn_work *w, enum attn_tag_kind kind)
{
    return w->narrow && (attn_tag_is_of_keys(kind) ? cuts_keys(w) : cuts_queries(w));
}

enum attn_dtype attn_work_partial_dtype(const struct attn_work *w, enum attn_tag_kind kind)
{
    return attn_work_is_narrow(w, kind) ? attn_tag_dtype(kind, w->whole) : attn_lse_dtype(w->whole);
}

/* Some result of a product is a partial sum of 16-bit numbers: it is f32. */
static int makes_wide(const struct attn_work *w)
{
    int queries = cuts_queries(w) && !w->narrow;
    int keys = cuts_keys(w) ? !w->narrow : is_summed(w, ATTN_TAG_DK);
    return (queries || (w->pass == ATTN_BACKWARD && keys)) &&
           attn_lse_dtype(w->whole) != w->whole->dtype;
}

/* A product with each stretch of keys that the rank's queries meet here; elsewhere, they are merged
 * before they come. */
int64_t attn_work_partials(const struct attn_work *w)
{
    int64_t stretches = attn_layout_stretches(&w->work, 1), n = 0;
    struct attn_round round;
    if (w->passes_on)
        return w->stops * stretches;
    for (int stop = 0; stop < w->stops; stop += round.stops * round.times) {
        round = attn_work_round(w, stop);
        for (int m = 0; m < round.stops; m++) {
            struct attn_stop x = attn_work_stop(w, stop + m);
            if (x.query == w->rank)
                n += round.times * stretches;
            else if (x.travels == ATTN_QUERIES_TRAVEL && x.to >= 0)
                n += round.times;
        }
    }
    return n;
}

int64_t attn_layout_partials(const struct attn_layout *work)
{
    int64_t blocks =
        work->all_keys || work->order >= ATTN_FRAMES ? 1 : attn_axis_parts(&work->tokens);
    return blocks * greater(attn_layout_stretches(work, 0), attn_layout_stretches(work, 1));
}

static struct attn_tokens call_heads(const struct attn_work *w, int n)
{
    int64_t group = w->whole->kv_heads > 0 ? w->whole->heads / w->whole->kv_heads : 1;
    int64_t first = w->heads.first, end = first + w->heads.n;
    int64_t whole = less(ceil_div(first, group) * group, end);
    const int64_t at[ATTN_CALLS + 1] = {first, whole, greater(end / group * group, whole), end};
    return attn_tokens_between(at[n], at[n + 1]);
}

int attn_work_is_parted(const struct attn_work *w)
{
    return w->work.order == ATTN_PLACES || w->work.order == ATTN_SCOPES;
}

static int64_t parts_of(const struct attn_work *w)
{
    return w->work.order == ATTN_PLACES ? w->queries.batches.n : w->queries.scopes.n;
}

/* Batch n of a block of places as a problem of its own: a batch for each place, a token for each
 * frame. */
static void take_places(const struct attn_box *box, int64_t n, struct attn_problem *part)
{
    struct attn_origin *at = &part->origin;
    part->batch = box->stretch[0].n;
    part->n_query = part->n_key = box->repeats;
    at->batch += at->one_batch ? 0 : n;
    at->one_batch = 1;
    at->query = at->key = (struct attn_positions){box->stretch[0].first, box->pitch - 1, 1, 0, 0};
}

/* Tokens of scope n of a box. */
static struct attn_positions scope_of(const struct attn_box *box, int64_t n, int64_t *row,
                                      int64_t *tokens)
{
    int64_t first = (box->scopes.first + n) * box->run;
    *row = attn_box_scopes(box, n);
    *tokens = n < box->scopes.n ? attn_box_scopes(box, n + 1) - *row : 0;
    if (*tokens == 0)
        return (struct attn_positions){0};
    if (box->run == 1)
        return (struct attn_positions){first, box->period - 1, 0, 0, 0};
    return (struct attn_positions){first, 0, 0, box->run, box->period - box->run};
}

/* Scope n of a block as a problem of its own: a dense one, if the mask says no more. */
static void take_scope(const struct attn_work *w, int64_t n, struct attn_product *x)
{
    struct attn_problem *part = &x->part;
    part->origin.query = scope_of(&w->queries, n, &x->query_at, &part->n_query);
    part->origin.key = scope_of(&w->keys, n, &x->key_at, &part->n_key);
    if (attn_mask_scopes(part->mask).is_all)
        part->mask = NULL;
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
    x.part =
        piece_of(w->whole, &queries.batches, &x.heads, &queries.stretch[query], &keys.stretch[key]);
    x.part.wide = makes_wide(w);
    x.batch = n;
    if (w->work.order == ATTN_PLACES)
        take_places(&queries, n, &x.part);
    if (w->work.order == ATTN_SCOPES)
        take_scope(w, n, &x);
    return x;
}

int attn_work_starts_query(const struct attn_work *w)
{
    return w->n_stop == 0 || w->stop.query != w->rank;
}

int attn_work_starts_key(const struct attn_work *w)
{
    return w->n_stop == 0 || (!w->passes_on && w->stop.key != w->rank);
}

/* Certainly nothing to see here, in any batch and head. */
static int is_hidden(const struct attn_problem *part)
{
    if (part->batch == 0 || part->heads == 0 || part->n_query == 0 || part->n_key == 0)
        return 1;
    if (part->mask == NULL)
        return 0;
    int64_t batches = attn_problem_varies_by_batch(part) ? part->batch : 1;
    int64_t heads = attn_mask_varies_by_head(part->mask) ? part->heads : 1;
    for (int64_t b = 0; b < batches; b++)
        for (int64_t h = 0; h < heads; h++)
            if (attn_problem_tile(part, b, h, 0, part->n_query, 0, part->n_key) != ATTN_TILE_EMPTY)
                return 0;
    return 1;
}

/* ---- lines of blocks that are alike ---------------------------------------------------------- */

/* Whether a and b, pieces of the first and the last blocks of a line, are the same problem, and all
 * between them: as many pairs are visible, at the same places.  All that changes along a line goes
 * one way: extents; the tokens that pieces begin at; so the bounds of a band, too, in each piece's
 * own indices.  What is equal at both ends is equal between them.  Under other masks, a block of
 * the whole that holds all pieces is all hidden or all visible. */
static int are_alike(const struct attn_problem *a, const struct attn_problem *b, int64_t batch,
                     int64_t head)
{
    int64_t least[2], most[2], i0 = INT64_MAX, i1 = 0, j0 = INT64_MAX, j1 = 0;
    if (attn_problem_band(a, batch, &least[0], &most[0]) &&
        attn_problem_band(b, batch, &least[1], &most[1]) && least[0] == least[1] &&
        most[0] == most[1])
        return 1;
    for (int n = 0; n < 2; n++) {
        const struct attn_problem *p = n == 0 ? a : b;
        i0 = less(i0, attn_whole_query(p, batch, 0));
        i1 = greater(i1, attn_whole_query(p, batch, p->n_query - 1) + 1);
        j0 = less(j0, attn_whole_key(p, batch, 0));
        j1 = greater(j1, attn_whole_key(p, batch, p->n_key - 1) + 1);
    }
    return attn_mask_tile(a->mask, attn_whole_batch(a, batch), a->origin.head + head, i0, i1, j0,
                          j1) != ATTN_TILE_PARTIAL;
}

static int pieces_alike(const struct attn_problem *a, const struct attn_problem *b)
{
    if (a->n_query != b->n_query || a->n_key != b->n_key)
        return 0;
    if (a->n_query == 0 || a->n_key == 0 || a->mask == NULL)
        return 1;
    int64_t batches = attn_problem_varies_by_batch(a) ? a->batch : less(a->batch, 1);
    int64_t heads = attn_mask_varies_by_head(a->mask) ? a->heads : less(a->heads, 1);
    for (int64_t n = 0; n < batches * heads; n++)
        if (!are_alike(a, b, n / heads, n % heads))
            return 0;
    return 1;
}

/* The first n pairs of blocks. */
static int line_alike(const struct attn_work *w, struct attn_line line, int n)
{
    struct attn_box query[2], key[2];
    for (int end = 0; end < 2; end++) {
        int at = end * (n - 1);
        query[end] = attn_work_box(w, 0, line.query + at * line.query_step);
        key[end] = attn_work_box(w, 1, line.key + at * line.key_step);
    }
    for (int q = 0; q < query[0].stretches; q++)
        for (int k = 0; k < key[0].stretches; k++) {
            struct attn_problem end[2];
            for (int e = 0; e < 2; e++)
                end[e] = piece_of(w->whole, &query[e].batches, &w->heads, &query[e].stretch[q],
                                  &key[e].stretch[k]);
            if (!pieces_alike(&end[0], &end[1]))
                return 0;
        }
    return 1;
}

/* More and more of them, then half as many. */
int attn_work_alike(const struct attn_work *w, struct attn_line line, int n)
{
    int alike = 1, more = 1;
    while (alike + more <= n && line_alike(w, line, alike + more)) {
        alike += more;
        more *= 2;
    }
    for (more /= 2; more > 0; more /= 2)
        if (alike + more <= n && line_alike(w, line, alike + more))
            alike += more;
    return alike;
}

/* ---- products -------------------------------------------------------------------------------- */

/* No query and no key: a part of a block has its result from one product, which must be there even
 * where all is hidden. */
static int is_empty(const struct attn_problem *part)
{
    return part->batch == 0 || (part->n_query == 0 && part->n_key == 0);
}

int attn_work_next(struct attn_work *w, struct attn_product *x)
{
    int queries = attn_layout_stretches(&w->work, 0), keys = attn_layout_stretches(&w->work, 1);
    int64_t pairs = (int64_t)queries * keys, alone = attn_work_is_parted(w);
    int64_t parts = alone ? parts_of(w) : 1;
    while (w->stop.query >= 0 && w->next < ATTN_CALLS * pairs * parts) {
        int64_t n = w->next++, pair = n / parts % pairs;
        if (call_heads(w, (int)(n / parts / pairs)).n == 0)
            continue;
        *x = attn_work_product(w, (int)(n / parts / pairs), (int)(pair / keys), (int)(pair % keys),
                               n % parts);
        if (alone ? is_empty(&x->part) : is_hidden(&x->part))
            continue;
        x->starts_query = attn_work_starts_query(w) && (alone || !w->saw_query[x->call][x->query]);
        x->starts_key = attn_work_starts_key(w) && (alone || !w->saw_key[x->call][x->key]);
        w->saw_query[x->call][x->query] = w->saw_key[x->call][x->key] = 1;
        return 1;
    }
    return 0;
}

int attn_blocks_hidden(const struct attn_problem *whole, const struct attn_layout *work, int query,
                       int key)
{
    struct attn_box queries = attn_layout_box(work, whole, 0, query);
    struct attn_box keys = attn_layout_box(work, whole, 1, key);
    for (int q = 0; q < queries.stretches; q++)
        for (int k = 0; k < keys.stretches; k++) {
            struct attn_problem part = piece_of(whole, &queries.batches, &queries.heads,
                                                &queries.stretch[q], &keys.stretch[k]);
            if (!is_hidden(&part))
                return 0;
        }
    return 1;
}

/* ---- moves ----------------------------------------------------------------------------------- */

int attn_work_tensors(enum attn_pass pass, const enum attn_tag_kind **kinds, int *inputs)
{
    static const enum attn_tag_kind of_forward[] = {ATTN_TAG_Q, ATTN_TAG_K, ATTN_TAG_V, ATTN_TAG_O,
                                                    ATTN_TAG_LSE};
    static const enum attn_tag_kind of_backward[] = {ATTN_TAG_Q,  ATTN_TAG_K,   ATTN_TAG_V,
                                                     ATTN_TAG_DO, ATTN_TAG_LSE, ATTN_TAG_DELTA,
                                                     ATTN_TAG_DQ, ATTN_TAG_DK,  ATTN_TAG_DV};
    *kinds = pass == ATTN_FORWARD ? of_forward : of_backward;
    *inputs = pass == ATTN_FORWARD ? 3 : 6;
    return pass == ATTN_FORWARD ? 5 : 9;
}

int attn_work_moves(const struct attn_work *w, enum attn_tag_kind kind)
{
    return !attn_layout_same(&w->home, &w->work, w->whole, attn_tag_is_of_keys(kind));
}

enum attn_dtype attn_work_dtype(const struct attn_work *w, enum attn_tag_kind kind)
{
    return is_summed(w, kind) ? attn_lse_dtype(w->whole) : attn_tag_dtype(kind, w->whole);
}

static struct attn_move move_of(const struct attn_work *w, enum attn_tag_kind kind, int goes_home,
                                const struct attn_end *outer, const struct attn_end *inner)
{
    struct attn_move m = {.whole = w->whole,
                          .kind = kind,
                          .dtype = attn_work_dtype(w, kind),
                          .from = goes_home ? *inner : *outer,
                          .to = goes_home ? *outer : *inner};
    return m;
}

struct attn_move attn_work_move(const struct attn_work *w, enum attn_tag_kind kind, int goes_home)
{
    struct attn_end outer = {.layout = &w->via}, work = {.layout = &w->work};
    work.is_cut = attn_work_portions(w) > 1;
    work.heads = w->kv_heads;
    struct attn_move m = move_of(w, kind, goes_home, &outer, &work);
    m.step = w->has_via + goes_home;
    return m;
}

struct attn_move attn_work_move_via(const struct attn_work *w, enum attn_tag_kind kind,
                                    int goes_home)
{
    struct attn_end home = {.layout = &w->home}, via = {.layout = &w->via};
    struct attn_move m = move_of(w, kind, goes_home, &home, &via);
    m.step = goes_home ? 3 : 0;
    return m;
}

/* ---- buffers --------------------------------------------------------------------------------- */

int attn_work_is_even(const struct attn_work *w)
{
    return attn_layout_most(&w->work, w->whole, 1) * attn_axis_parts(&w->work.tokens) ==
           w->stored.whole.n_key;
}

/* Kept for the backward pass, which does not bring it again. */
static int keeps(const struct attn_work *w, enum attn_tag_kind kind)
{
    return (kind == ATTN_TAG_K || kind == ATTN_TAG_V) && w->scheme->saves_keys != NULL &&
           w->scheme->saves_keys(w->options);
}

static struct attn_buffer moved(const struct attn_work *w, enum attn_tag_kind kind)
{
    static const char *const name[4][ATTN_TAG_KINDS] = {
        {"q.heads", "k.heads", "v.heads", "o.heads", "lse.heads", "do.heads", "delta.heads",
         "dq.heads", "dk.heads", "dv.heads"},
        {"q.axis", "k.axis", "v.axis", "o.axis", "lse.axis", "do.axis", "delta.axis", "dq.axis",
         "dk.axis", "dv.axis"},
        {"q.scopes", "k.scopes", "v.scopes", "o.scopes", "lse.scopes", "do.scopes", "delta.scopes",
         "dq.scopes", "dk.scopes", "dv.scopes"},
        {[ATTN_TAG_K] = "k.all",
         [ATTN_TAG_V] = "v.all",
         [ATTN_TAG_DK] = "dk.all",
         [ATTN_TAG_DV] = "dv.all"}};
    struct attn_buffer none = {0};
    int which = w->work.all_keys ? 3 : w->work.scopes > 0 ? 2 : w->work.frames > 0;
    if (!attn_work_moves(w, kind))
        return none;
    return attn_buffer_of(keeps(w, kind) ? ATTN_SAVED_NAME : name[which][kind], 1,
                          attn_work_block(w, kind, w->rank),
                          (int64_t)attn_dtype_size(attn_work_dtype(w, kind)));
}

int64_t attn_work_saved(const struct attn_work *w)
{
    struct attn_buffer k = moved(w, ATTN_TAG_K), v = moved(w, ATTN_TAG_V);
    return keeps(w, ATTN_TAG_K) ? k.numbers * k.size + v.numbers * v.size : 0;
}

/* Numbers of a rank's queries (q and what is made of it) and keys (K and V), of all its heads, as
 * they are stored. */
struct sizes {
    int64_t wide, size;              /* of a number of a sum, and as it is stored */
    int64_t partial;                 /* and of what is summed, where that is cut */
    int64_t rows, all_rows;          /* of the longest stretch of queries, of all of the rank's, */
    int64_t visiting;                /* of the largest block of queries */
    int64_t token, block, part, own; /* K,V: a token; the largest block; a partial sum; the own */
};

static struct sizes sizes_of(const struct attn_work *w)
{
    const struct attn_problem *p = w->whole;
    struct attn_box q = attn_work_room(w, 0, w->rank), k = attn_work_room(w, 1, w->rank);
    int64_t heads = q.batches.n * q.heads.n;
    struct sizes s = {.wide = (int64_t)attn_dtype_size(attn_lse_dtype(p)),
                      .size = (int64_t)attn_dtype_size(p->dtype),
                      .partial = (int64_t)attn_dtype_size(w->narrow ? p->dtype : attn_lse_dtype(p)),
                      .rows = heads * q.stretch[0].n,
                      .all_rows = heads * q.tokens,
                      .visiting = heads * attn_layout_most(&w->work, p, 0),
                      .token = k.batches.n * k.heads.n * (p->d_key + p->d_value)};
    int travels = w->stops > 1;
    s.block = s.token * attn_layout_most(&w->work, p, 1);
    s.own = s.token * k.tokens;
    s.part = travels && !w->passes_on ? s.block
                                      : s.token * attn_layout_room(&w->work, p, 1, 0).stretch[0].n;
    return s;
}

static int has_visitors(const struct attn_work *w)
{
    return w->scheme->has_visitors != NULL && w->scheme->has_visitors(w->options, w->rank);
}

static void forward_buffers(const struct attn_work *w, const struct sizes *s,
                            struct attn_buffer *buffer)
{
    int64_t rows = has_visitors(w) ? s->visiting : s->rows, d_value = w->whole->d_value;
    if (!cuts_queries(w))
        return;
    if (s->wide > s->size)
        buffer[ATTN_O_SUM] = attn_buffer_of("o.sum", s->all_rows, d_value, s->wide);
    if (w->merging != ATTN_RUNNING)
        buffer[ATTN_DENOMINATOR] = attn_buffer_of("denominator", s->all_rows, 1, s->wide);
    if (w->merging == ATTN_DEFERRED) {
        int64_t kept = attn_work_partials(w);
        buffer[ATTN_O_KEPT] = attn_buffer_of("o.kept", kept, s->all_rows * d_value, s->partial);
        buffer[ATTN_LSE_KEPT] = attn_buffer_of("lse.kept", kept, s->all_rows, s->wide);
    }
    if (w->merging == ATTN_DEFERRED && !has_visitors(w))
        return;
    buffer[ATTN_O_PARTIAL] = attn_buffer_of("o.partial", rows, d_value, s->partial);
    buffer[ATTN_LSE_PARTIAL] = attn_buffer_of("lse.partial", rows, 1, s->wide);
}

static void backward_buffers(const struct attn_work *w, const struct sizes *s,
                             struct attn_buffer *buffer)
{
    const struct attn_problem *p = w->whole;
    struct attn_box home = attn_layout_room(&w->home, p, 0, w->rank);
    int64_t rows = has_visitors(w) ? s->visiting : s->rows;
    int is_wide = s->wide > s->size, travels = w->stops > 1;
    buffer[ATTN_ZEROS] = attn_buffer_of("zeros", 1, p->d_value, s->size);
    buffer[ATTN_DELTA_SHARD] =
        attn_buffer_of("delta.shard", home.batches.n * home.heads.n, home.tokens, s->wide);
    if (cuts_queries(w) && is_wide)
        buffer[ATTN_DQ_SUM] = attn_buffer_of("dq.sum", s->all_rows, p->d_key, s->wide);
    if (cuts_queries(w))
        buffer[ATTN_DQ_PARTIAL] = attn_buffer_of("dq.partial", rows, p->d_key, s->partial);
    if (cuts_keys(w) && is_wide && !is_summed(w, ATTN_TAG_DK))
        buffer[ATTN_DKV_SUM] = attn_buffer_of("dkv.sum", 1, s->own, s->wide);
    if (travels && w->passes_on)
        buffer[ATTN_DKV_TRAVEL] =
            attn_buffer_of("dkv.travel", attn_work_is_even(w) ? 1 : 2, s->block, s->wide);
    if (cuts_keys(w))
        buffer[ATTN_DKV_PARTIAL] = attn_buffer_of("dkv.partial", 1, s->part, s->partial);
    if (travels && !w->passes_on)
        buffer[ATTN_DKV_BACK] = attn_buffer_of("dkv.back", 1, s->own, s->partial);
}

/* Where what is moved goes through chunks, those of a tensor; what is summed does not. */
static struct attn_buffer chunks_of(const struct attn_work *w, enum attn_tag_kind kind)
{
    struct attn_buffer none = {0};
    if (w->scheme->moves_by_chunks == NULL || !w->scheme->moves_by_chunks(w->options) ||
        !attn_work_moves(w, kind) || is_summed(w, kind))
        return none;
    struct attn_move there = attn_work_move(w, kind, 0), back = attn_work_move(w, kind, 1);
    struct attn_buffer out = attn_move_chunks(&there, w->rank);
    struct attn_buffer home = attn_move_chunks(&back, w->rank);
    return out.numbers > home.numbers ? out : home;
}

static int64_t bytes_of(const struct attn_buffer *buffer)
{
    return buffer->parts * buffer->numbers * buffer->size;
}

/* What a rank has of a tensor half way. */
static struct attn_buffer way_of(const struct attn_work *w, enum attn_tag_kind kind)
{
    struct attn_box room = attn_layout_room(&w->via, w->whole, attn_tag_is_of_keys(kind), w->rank);
    struct attn_buffer none = {0};
    if (!w->has_via || !attn_work_moves(w, kind))
        return none;
    return attn_buffer_of(
        "via", 1, room.batches.n * room.heads.n * room.tokens * attn_tag_width(kind, w->whole),
        (int64_t)attn_dtype_size(attn_work_dtype(w, kind)));
}

static struct attn_buffer lists_of(const struct attn_work *w)
{
    struct attn_buffer outer = attn_move_lists(&w->home, &w->via, w->whole);
    struct attn_buffer inner = attn_move_lists(&w->via, &w->work, w->whole);
    return w->has_via && outer.numbers > inner.numbers ? outer : inner;
}

void attn_work_buffers(const struct attn_work *w, struct attn_buffer buffer[ATTN_WORK_BUFFERS])
{
    const enum attn_tag_kind *kinds;
    int inputs, tensors = attn_work_tensors(w->pass, &kinds, &inputs);
    struct sizes s = sizes_of(w);
    int moves = 0;
    memset(buffer, 0, ATTN_WORK_BUFFERS * sizeof *buffer);
    for (int n = 0; n < tensors; n++) {
        enum attn_tag_kind kind = kinds[n];
        struct attn_buffer chunks = chunks_of(w, kind);
        if (chunks.numbers > buffer[ATTN_CHUNKS].numbers)
            buffer[ATTN_CHUNKS] = chunks;
        struct attn_buffer way = way_of(w, kind);
        if (bytes_of(&way) > bytes_of(&buffer[ATTN_VIA]))
            buffer[ATTN_VIA] = way;
        buffer[kind] = moved(w, kind);
        moves |= attn_work_moves(w, kind);
    }
    if (moves)
        buffer[ATTN_MESSAGES] = lists_of(w);
    if (w->stops > 1)
        buffer[ATTN_KV_TRAVEL] =
            attn_buffer_of("kv.travel", w->passes_on ? less(w->stops - 1, 2) : 1, s.block, s.size);
    if (has_visitors(w) && w->pass == ATTN_FORWARD)
        buffer[ATTN_Q_TRAVEL] = attn_buffer_of("q.travel", s.visiting, w->whole->d_key, s.size);
    if (has_visitors(w) && w->pass == ATTN_BACKWARD) /* q, dO, lse, D */
        buffer[ATTN_Q_TRAVEL] = attn_buffer_of(
            "q.travel", s.visiting, (w->whole->d_key + w->whole->d_value) * s.size + 2 * s.wide, 1);
    if (w->pass == ATTN_FORWARD)
        forward_buffers(w, &s, buffer);
    else
        backward_buffers(w, &s, buffer);
}

void attn_work_copies(const struct attn_work *w, enum attn_tag_kind kind,
                      struct attn_buffer copies[2])
{
    memset(copies, 0, 2 * sizeof *copies);
    if (!is_summed(w, kind))
        return;
    struct attn_move m = attn_work_move(w, kind, 1);
    struct attn_box home = attn_layout_room(&w->home, w->whole, 1, w->rank);
    copies[0] = attn_move_copies(&m, w->rank);
    if (attn_work_dtype(w, kind) != w->whole->dtype)
        copies[1] = attn_buffer_of("copies.sum", home.batches.n * home.heads.n * home.tokens,
                                   attn_tag_width(kind, w->whole),
                                   (int64_t)attn_dtype_size(attn_work_dtype(w, kind)));
}
