/* See schedule.h. */
#include "optimized/parallel/schedule.h"

#include "ref/problem.h"

int64_t attn_row_bytes(const struct attn_problem *p, enum attn_tag_kind kind)
{
    return attn_tag_width(kind, p) * (int64_t)attn_dtype_size(attn_tag_dtype(kind, p));
}

int64_t attn_sum_row_bytes(const struct attn_problem *p, enum attn_tag_kind kind)
{
    return attn_tag_width(kind, p) * (int64_t)attn_dtype_size(attn_lse_dtype(p));
}

void attn_sent_add(struct attn_sent *sent, int64_t bytes)
{
    sent->bytes += bytes;
    sent->messages += bytes > 0;
}

/* ---- layouts --------------------------------------------------------------------------------- */

struct attn_layout attn_layout_of_tokens(const struct attn_problem *whole,
                                         const struct attn_options *options)
{
    int ranks = attn_parallel_ranks(options);
    (void)whole;
    return (struct attn_layout){.ranks = ranks, .tokens = {ranks, 1}};
}

struct attn_layout attn_layout_of_runs(const struct attn_problem *whole,
                                       const struct attn_options *options)
{
    int ranks = attn_parallel_ranks(options);
    (void)whole;
    return (struct attn_layout){.ranks = ranks, .runs = {ranks, 1}};
}

struct attn_layout attn_layout_of_heads(const struct attn_problem *whole,
                                        const struct attn_options *options)
{
    int ranks = attn_parallel_ranks(options);
    (void)whole;
    return (struct attn_layout){.ranks = ranks, .heads = {ranks, 1}};
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

/* What a rank sends to another: rows of queries and of keys, on the way to work and on the way
 * home. */
struct rows {
    int64_t there[2], back[2];
};

/* Each tensor of the pass is a message, unless it is empty. */
static void add_tensors(struct attn_sent *sent, const struct attn_problem *p, enum attn_pass pass,
                        const struct rows *rows, int sums_keys)
{
    static const enum attn_tag_kind in[] = {ATTN_TAG_Q,  ATTN_TAG_K,   ATTN_TAG_V,
                                            ATTN_TAG_DO, ATTN_TAG_LSE, ATTN_TAG_DELTA};
    static const enum attn_tag_kind out[2][3] = {{ATTN_TAG_O, ATTN_TAG_LSE},
                                                 {ATTN_TAG_DQ, ATTN_TAG_DK, ATTN_TAG_DV}};
    int inputs = pass == ATTN_FORWARD ? 3 : 6, outputs = pass == ATTN_FORWARD ? 2 : 3;
    for (int n = 0; n < inputs; n++)
        attn_sent_add(sent, rows->there[attn_tag_is_of_keys(in[n])] * attn_row_bytes(p, in[n]));
    for (int n = 0; n < outputs; n++) {
        enum attn_tag_kind kind = out[pass == ATTN_BACKWARD][n];
        int keys = attn_tag_is_of_keys(kind);
        attn_sent_add(sent, rows->back[keys] * (keys && sums_keys ? attn_sum_row_bytes(p, kind)
                                                                  : attn_row_bytes(p, kind)));
    }
}

struct attn_sent attn_heads_for_tokens_sent(const struct attn_work *w)
{
    const struct attn_layout *home = &w->stored.via, *work = &w->stored.work;
    const struct attn_problem *p = &w->stored.whole;
    struct attn_sent sent = {0, 0};
    int sums_keys = attn_layout_copies(work, p), rank = w->rank;
    for (int r = 0; r < home->ranks; r++) {
        struct rows rows;
        if (r == rank || attn_axis_place(&work->tokens, r) != attn_axis_place(&work->tokens, rank))
            continue;
        for (int keys = 0; keys < 2; keys++) {
            int64_t here = attn_layout_box(work, p, keys, rank).heads.n;
            int64_t there = attn_layout_box(work, p, keys, r).heads.n;
            rows.there[keys] = p->batch * attn_layout_box(home, p, keys, rank).tokens * there;
            rows.back[keys] = p->batch * attn_layout_box(home, p, keys, r).tokens * here;
        }
        add_tensors(&sent, p, w->pass, &rows, sums_keys);
    }
    return sent;
}

struct attn_sent attn_frames_for_places_sent(const struct attn_work *w)
{
    const struct attn_layout *home = &w->stored.home, *work = &w->stored.work;
    const struct attn_problem *p = &w->stored.whole;
    int64_t frames = home->frames, size = p->n_query / frames;
    int64_t at_home = home->order == ATTN_FRAMES ? frames : size;
    int64_t at_work = work->order == ATTN_FRAMES ? frames : size;
    struct attn_sent sent = {0, 0};
    for (int r = 0; r < home->ranks; r++) {
        int64_t there =
            attn_run_of(at_home, home->ranks, w->rank).n * attn_run_of(at_work, home->ranks, r).n;
        int64_t back =
            attn_run_of(at_work, home->ranks, w->rank).n * attn_run_of(at_home, home->ranks, r).n;
        struct rows rows = {{p->batch * p->heads * there, p->batch * p->kv_heads * there},
                            {p->batch * p->heads * back, p->batch * p->kv_heads * back}};
        if (r != w->rank)
            add_tensors(&sent, p, w->pass, &rows, 0);
    }
    return sent;
}

/* Tokens before token x that are in these scopes. */
static int64_t in_scopes(const struct attn_layout *work, const struct attn_tokens *scopes,
                         int64_t x)
{
    int64_t period = work->scopes * work->run, rest = x % period - scopes->first * work->run;
    int64_t most = scopes->n * work->run;
    return x / period * most + (rest < 0 ? 0 : rest < most ? rest : most);
}

struct attn_sent attn_scopes_for_tokens_sent(const struct attn_work *w)
{
    const struct attn_layout *home = &w->stored.home, *work = &w->stored.work;
    const struct attn_problem *p = &w->stored.whole;
    struct attn_sent sent = {0, 0};
    int sums_keys = attn_layout_copies(work, p), rank = w->rank;
    for (int r = 0; r < home->ranks; r++) {
        int64_t of[2][2]; /* rows [there, back] of [queries, keys] */
        for (int n = 0; n < 4; n++) {
            int keys = n % 2, from = n < 2 ? rank : r, to = n < 2 ? r : rank;
            struct attn_tokens run = attn_run_of(keys ? p->n_key : p->n_query, home->ranks, from);
            struct attn_tokens scopes = attn_run_of(work->scopes, attn_axis_parts(&work->tokens),
                                                    attn_axis_place(&work->tokens, to));
            of[n / 2][keys] =
                p->batch * attn_layout_box(work, p, keys, to).heads.n *
                (in_scopes(work, &scopes, run.first + run.n) - in_scopes(work, &scopes, run.first));
        }
        struct rows rows = {{of[0][0], of[0][1]}, {of[1][0], of[1][1]}};
        if (r != rank)
            add_tensors(&sent, p, w->pass, &rows, sums_keys);
    }
    return sent;
}

struct attn_sent attn_tokens_for_batches_sent(const struct attn_work *w)
{
    const struct attn_layout *home = &w->stored.home, *via = &w->stored.via;
    const struct attn_problem *p = &w->stored.whole;
    struct attn_sent sent = {0, 0};
    int sums_keys = attn_layout_copies(&w->stored.work, p);
    int64_t mine = attn_layout_box(home, p, 0, w->rank).batches.n;
    for (int r = 0; r < home->ranks; r++) {
        struct rows rows;
        int64_t theirs = attn_layout_box(home, p, 0, r).batches.n;
        for (int keys = 0; keys < 2; keys++) {
            int64_t heads = keys ? p->kv_heads : p->heads;
            rows.there[keys] = mine * heads * attn_layout_box(via, p, keys, r).tokens;
            rows.back[keys] = theirs * heads * attn_layout_box(via, p, keys, w->rank).tokens;
        }
        if (r != w->rank)
            add_tensors(&sent, p, w->pass, &rows, sums_keys);
    }
    return sent;
}
