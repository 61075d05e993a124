/* See schedule.h. */
#include "optimized/parallel/schedule.h"

#include "optimized/integers.h"
#include "ref/problem.h"

int64_t attn_row_bytes(const struct attn_problem *p, enum attn_tag_kind kind)
{
    return attn_tag_width(kind, p) * (int64_t)attn_dtype_size(attn_tag_dtype(kind, p));
}

int64_t attn_sum_row_bytes(const struct attn_problem *p, enum attn_tag_kind kind)
{
    return attn_tag_width(kind, p) * (int64_t)attn_dtype_size(attn_lse_dtype(p));
}

void attn_sent_add(struct attn_sent *sent, int64_t messages, int64_t bytes)
{
    sent->bytes += bytes;
    sent->messages += bytes > 0 ? messages : 0;
}

/* ---- layouts --------------------------------------------------------------------------------- */

/* One thing is dealt out over all ranks. */
static struct attn_axis all_ranks(const struct attn_options *options)
{
    return (struct attn_axis){attn_parallel_ranks(options), 1};
}

struct attn_layout attn_layout_of_tokens(const struct attn_problem *whole,
                                         const struct attn_options *options)
{
    (void)whole;
    return (struct attn_layout){.ranks = attn_parallel_ranks(options),
                                .tokens = all_ranks(options)};
}

struct attn_layout attn_layout_in_order(const struct attn_problem *whole,
                                        const struct attn_options *options)
{
    struct attn_layout layout = attn_layout_of_tokens(whole, options);
    layout.order = (enum attn_order)options->value[ATTN_OPTION_ORDER];
    return layout;
}

struct attn_layout attn_layout_of_runs(const struct attn_problem *whole,
                                       const struct attn_options *options)
{
    (void)whole;
    return (struct attn_layout){.ranks = attn_parallel_ranks(options), .runs = all_ranks(options)};
}

struct attn_layout attn_layout_of_heads(const struct attn_problem *whole,
                                        const struct attn_options *options)
{
    (void)whole;
    return (struct attn_layout){.ranks = attn_parallel_ranks(options), .heads = all_ranks(options)};
}

struct attn_layout attn_layout_of_batches(const struct attn_problem *whole,
                                          const struct attn_options *options)
{
    (void)whole;
    return (struct attn_layout){.ranks = attn_parallel_ranks(options),
                                .batches = all_ranks(options)};
}

/* ---- rings ----------------------------------------------------------------------------------- */

/* The rank so many places and windows away. */
static int away(const struct attn_ring *ring, int rank, int places, int windows)
{
    int r = attn_axis_place(&ring->axis, rank), outer = ring->axis.parts / ring->inner;
    int window = ((r / ring->inner + windows) % outer + outer) % outer;
    int place = ((r % ring->inner + places) % ring->inner + ring->inner) % ring->inner;
    return rank + (window * ring->inner + place - r) * ring->axis.stride;
}

struct attn_stop attn_ring_stop(const struct attn_ring *ring, int rank, int n)
{
    /* before a stop every block moves one place on inside its window, and before the first stop of
     * a window to the next one */
    int crosses = n % ring->inner == 0;
    struct attn_stop stop = {.travels = ATTN_KEYS_TRAVEL,
                             .to = away(ring, rank, 1, crosses),
                             .from = away(ring, rank, -1, -crosses),
                             .query = rank,
                             .key = away(ring, rank, -n, -(n / ring->inner))};
    return stop;
}

/* Inside a window, blocks of keys go down place by place until the lowest, and then come from the
 * highest.  Whole windows go down too: where all blocks of some windows are alike, their order does
 * not matter. */
struct attn_round attn_ring_round(const struct attn_work *w, int n)
{
    int inner = w->ring.inner, stride = w->ring.axis.stride, key = attn_work_stop(w, n).key;
    int place = attn_axis_place(&w->ring.axis, key), below = place % inner;
    struct attn_line line = {w->rank, key, 0, -stride};
    if (n % inner == 0) {
        struct attn_line windows = line;
        windows.key += (inner - 1 - below) * stride;
        int most = (int)less(place - below + inner, w->stops - n);
        int all = attn_work_alike(w, windows, most) / inner * inner;
        if (all > 0)
            return (struct attn_round){1, all};
    }
    return (struct attn_round){1,
                               attn_work_alike(w, line, (int)less(below + 1, inner - n % inner))};
}

int attn_largest_divisor(int n, int most)
{
    int d = most < n ? most : n;
    while (n % d != 0)
        d--;
    return d;
}

enum attn_status attn_ring_check(const char *scheme, const struct attn_ring *ring,
                                 struct attn_error *err)
{
    int n = ring->axis.parts, inner = ring->inner;
    if (n % inner == 0)
        return ATTN_OK;
    return attn_fail(err, ATTN_ENOTSUP,
                     "%s:%s=%d,inner=%d: windows of %d ranks do not fill %d; inner=%d would work",
                     scheme, ring->places, n, inner, inner, n, attn_largest_divisor(n, inner));
}

struct attn_sent attn_ring_sent(const struct attn_work *w)
{
    const struct attn_ring *ring = &w->ring;
    const struct attn_layout *work = &w->stored.work;
    const struct attn_problem *p = &w->stored.whole;
    struct attn_box own = attn_layout_box(work, p, 1, w->rank);
    int64_t last = attn_layout_box(work, p, 1, away(ring, w->rank, 1, 1)).tokens;
    int64_t hops = ring->axis.parts - 1, heads = own.batches.n * own.heads.n;
    int64_t keys = attn_row_bytes(p, ATTN_TAG_K) + attn_row_bytes(p, ATTN_TAG_V);
    int64_t sums = attn_sum_row_bytes(p, ATTN_TAG_DK) + attn_sum_row_bytes(p, ATTN_TAG_DV);
    struct attn_sent sent = {heads * (p->n_key - last) * keys, 2 * hops};
    if (hops == 0)
        return (struct attn_sent){0, 0};
    if (w->pass == ATTN_BACKWARD) {
        sent.bytes += heads * p->n_key * sums;
        sent.messages += 2 * (hops + 1);
    }
    return sent;
}

/* ---- all-to-all ------------------------------------------------------------------------------ */

/* What a rank sends to the others that it has something for: rows of queries and of keys, on the
 * way to work and on the way home. */
struct rows {
    int64_t rows, ranks;
};
struct both_ways {
    struct rows there[2], back[2];
};

/* Each tensor of the pass is a message to each of them, unless it is empty. */
static struct attn_sent all_tensors(const struct attn_work *w, const struct both_ways *x)
{
    static const enum attn_tag_kind in[] = {ATTN_TAG_Q,  ATTN_TAG_K,   ATTN_TAG_V,
                                            ATTN_TAG_DO, ATTN_TAG_LSE, ATTN_TAG_DELTA};
    static const enum attn_tag_kind out[2][3] = {{ATTN_TAG_O, ATTN_TAG_LSE},
                                                 {ATTN_TAG_DQ, ATTN_TAG_DK, ATTN_TAG_DV}};
    const struct attn_problem *p = &w->stored.whole;
    int inputs = w->pass == ATTN_FORWARD ? 3 : 6, outputs = w->pass == ATTN_FORWARD ? 2 : 3;
    int sums_keys = attn_layout_copies(&w->stored.work, p);
    struct attn_sent sent = {0, 0};
    for (int n = 0; n < inputs + outputs; n++) {
        enum attn_tag_kind kind = n < inputs ? in[n] : out[w->pass == ATTN_BACKWARD][n - inputs];
        int keys = attn_tag_is_of_keys(kind), sums = n >= inputs && keys && sums_keys;
        const struct rows *of = n < inputs ? &x->there[keys] : &x->back[keys];
        attn_sent_add(&sent, of->ranks,
                      of->rows * (sums ? attn_sum_row_bytes(p, kind) : attn_row_bytes(p, kind)));
    }
    return sent;
}

/* Of n ranks from `first` on, those that have tokens: they come first. */
static int64_t with_tokens(const struct attn_layout *layout, const struct attn_problem *p, int keys,
                           int first, int n)
{
    int have = 0, may = n;
    while (have < may) {
        int half = (have + may) / 2;
        if (attn_layout_box(layout, p, keys, first + half).tokens > 0)
            have = half + 1;
        else
            may = half;
    }
    return have;
}

struct attn_sent attn_heads_for_tokens_sent(const struct attn_work *w)
{
    const struct attn_layout *home = &w->stored.via, *work = &w->stored.work;
    const struct attn_problem *p = &w->stored.whole;
    int parts = attn_axis_parts(&work->heads), first = w->rank / parts * parts;
    struct both_ways x;
    for (int keys = 0; keys < 2; keys++) {
        struct attn_box mine = attn_layout_box(home, p, keys, w->rank);
        struct attn_box place = attn_layout_box(work, p, keys, w->rank);
        int64_t heads = place.heads.n, own = p->batch * mine.tokens * heads;
        int64_t with_heads = less(parts, p->heads) - (heads > 0);
        int64_t tokens_at = with_tokens(home, p, keys, first, parts) - (mine.tokens > 0);
        x.there[keys] = (struct rows){attn_layout_rows(work, p, keys, &mine) - own, with_heads};
        x.back[keys] = (struct rows){p->batch * place.tokens * heads - own, tokens_at};
        if (keys && home->alike) {
            x.there[keys] = (struct rows){0, 0};
            x.back[keys] = (struct rows){(parts - 1) * own, parts - 1};
        }
    }
    return all_tensors(w, &x);
}

struct attn_sent attn_frames_for_places_sent(const struct attn_work *w)
{
    const struct attn_layout *home = &w->stored.home, *work = &w->stored.work;
    const struct attn_problem *p = &w->stored.whole;
    int64_t frames = home->frames, size = p->n_query / frames;
    int64_t at_home = home->order == ATTN_FRAMES ? frames : size;
    int64_t at_work = work->order == ATTN_FRAMES ? frames : size;
    int64_t mine = attn_run_of(at_home, home->ranks, w->rank).n;
    int64_t here = attn_run_of(at_work, home->ranks, w->rank).n;
    struct both_ways x;
    for (int keys = 0; keys < 2; keys++) {
        int64_t heads = p->batch * (keys ? p->kv_heads : p->heads);
        x.there[keys] =
            (struct rows){heads * mine * (at_work - here), less(home->ranks, at_work) - (here > 0)};
        x.back[keys] =
            (struct rows){heads * here * (at_home - mine), less(home->ranks, at_home) - (mine > 0)};
    }
    return all_tensors(w, &x);
}

/* Tokens before token x that are in these scopes. */
static int64_t in_scopes(const struct attn_layout *work, const struct attn_tokens *scopes,
                         int64_t x)
{
    int64_t period = work->scopes * work->run, rest = x % period - scopes->first * work->run;
    int64_t most = scopes->n * work->run;
    return x / period * most + (rest < 0 ? 0 : rest < most ? rest : most);
}

/* Of the n tokens of run r of all ranks' runs, those in the scopes of a place. */
static int64_t run_in_scopes(const struct attn_layout *work, int64_t n, int run, int64_t place)
{
    struct attn_tokens tokens = attn_run_of(n, work->ranks, run);
    struct attn_tokens scopes = attn_run_of(work->scopes, attn_axis_parts(&work->tokens), place);
    return in_scopes(work, &scopes, tokens.first + tokens.n) -
           in_scopes(work, &scopes, tokens.first);
}

struct attn_sent attn_scopes_for_tokens_sent(const struct attn_work *w)
{
    const struct attn_layout *home = &w->stored.home, *work = &w->stored.work;
    const struct attn_problem *p = &w->stored.whole;
    int64_t places = less(attn_axis_parts(&work->tokens), work->scopes);
    int64_t members = less(attn_axis_parts(&work->heads), p->heads);
    int rank = w->rank, place = attn_axis_place(&work->tokens, rank);
    struct both_ways x;
    for (int keys = 0; keys < 2; keys++) {
        struct attn_box mine = attn_layout_box(home, p, keys, rank);
        struct attn_box here = attn_layout_box(work, p, keys, rank);
        int64_t n = keys ? p->n_key : p->n_query, met = 0, meet = 0;
        int64_t own = run_in_scopes(work, n, rank, place), rows = p->batch * own * here.heads.n;
        for (int64_t at = 0; at < places && mine.tokens > 0; at++)
            met += run_in_scopes(work, n, rank, at) > 0;
        for (int r = 0; r < less(home->ranks, n) && here.heads.n * here.tokens > 0; r++)
            meet += run_in_scopes(work, n, r, place) > 0;
        x.there[keys] = (struct rows){attn_layout_rows(work, p, keys, &mine) - rows,
                                      met * members - (rows > 0)};
        x.back[keys] =
            (struct rows){p->batch * here.tokens * here.heads.n - rows, meet - (rows > 0)};
    }
    return all_tensors(w, &x);
}

struct attn_sent attn_tokens_for_batches_sent(const struct attn_work *w)
{
    const struct attn_layout *home = &w->stored.home, *via = &w->stored.via;
    const struct attn_problem *p = &w->stored.whole;
    int64_t mine = attn_layout_box(home, p, 0, w->rank).batches.n;
    struct both_ways x;
    for (int keys = 0; keys < 2; keys++) {
        int64_t heads = keys ? p->kv_heads : p->heads, n = keys ? p->n_key : p->n_query;
        int64_t here = attn_layout_box(via, p, keys, w->rank).tokens;
        x.there[keys] = (struct rows){mine * heads * (n - here), less(home->ranks, n) - (here > 0)};
        x.back[keys] = (struct rows){(p->batch - mine) * heads * here,
                                     less(home->ranks, p->batch) - (mine > 0)};
    }
    return all_tensors(w, &x);
}
