/* ring: queries stay, keys and values travel.  A rank has the queries, keys and values of its own
 * tokens; in P steps it sees every block of keys once, and P-1 times it hands the block it holds to
 * the next rank and gets another from the previous one.
 *
 *      step      rank 0    rank 1    rank 2    rank 3         one ring: at step s, rank r holds
 *      0         K0        K1        K2        K3             block r - s
 *      1         K3        K0        K1        K2
 *      2         K2        K3        K0        K1
 *      3         K1        K2        K3        K0
 *
 * inner=W makes windows of W ranks: blocks go round inside a window, W-1 hops, then all of them hop
 * to the next window (double ring: the slow links between machines carry one hop in W).
 *
 * order= says which tokens a rank has (token_layout.h).  Under a causal mask, contiguous blocks
 * give the last rank P blocks to compute and the first one; striped and zigzag give all ranks
 * nearly the same.  A zigzag block is two stretches of tokens, so a step multiplies 2 x 2 pairs of
 * stretches.
 *
 * Forward.  Every product of queries and keys gives a partial (O, LSE) of these queries;
 * optimized/merge.h folds them.
 *
 * Backward.  With the LSE and O of the whole row, a block's part of the gradient needs no other
 * block (Dao 2023, alg. 2):
 *
 *      P_ij = exp(S_ij - LSE_i)    dS_ij = P_ij (dO_i . v_j - D_i)    D_i = dO_i . O_i - dLSE_i
 *
 * so the local backward, given the global o and lse, yields exactly the terms of this product's
 * pairs: dQ is summed where it is, and dK, dV are summed in two tensors that travel with their
 * block, one hop more than K and V: the last one brings them home.
 *
 * A product of which no pair is visible is not computed, but its block still travels: every rank
 * does the same exchanges, whatever the mask (SP-21).
 *
 * Memory   forward: 2 blocks of K,V besides the own (1 for P = 2), one partial (O, LSE);
 *          backward: the same blocks, one dK,dV on its way (2 where blocks differ in size), one
 *          partial dQ, one partial dK,dV;
 *          both plus what the local implementation takes for the largest product.
 * Sent     forward: every block of K,V but one;  backward: the same, and every block of dK,dV.
 * Caveats  No bias tensor: a rank would need its rows of an L x L object.
 * Source   Liu et al. 2023 (ring); Brandon et al. 2023 (striped); Gu et al. 2024, LoongTrain
 *          (double ring); bugs SP-16 to SP-22.
 */
#include <math.h>
#include <string.h>

#include "optimized/integers.h"
#include "optimized/merge.h"
#include "optimized/parallel/rank.h"
#include "optimized/parallel/shard.h"
#include "ref/problem.h"

/* ---- the plan: what a rank multiplies, and where blocks go ----------------------------------- */

enum { OPTION_ORDER = ATTN_PARALLEL_OPTIONS, OPTION_INNER };

static const struct attn_option options_of[] = {
    ATTN_OPTION_OF_RANKS,
    ATTN_OPTION_OF_LOCAL,
    ATTN_OPTION_OF_SIZES,
    [OPTION_ORDER] = {"order", ATTN_CONTIGUOUS, 0, 2, "contiguous striped zigzag",
                      "which tokens a rank has: a run, every P-th, or two runs, one from each end"},
    [OPTION_INNER] = {"inner", 0, 0, ATTN_MAX_RANKS, NULL,
                      "ranks of a window in a double ring; divides ranks; 0: one ring"},
    {0}};

static struct attn_layout layout_of(const struct attn_options *options)
{
    return (struct attn_layout){(enum attn_order)options->value[OPTION_ORDER],
                                attn_parallel_ranks(options)};
}

/* The windows of a double ring; one ring is a window of all ranks. */
struct windows {
    int ranks, inner, outer;
};

static struct windows windows_of(const struct attn_options *options)
{
    int ranks = attn_parallel_ranks(options), inner = (int)options->value[OPTION_INNER];
    inner = inner > 0 ? inner : ranks;
    return (struct windows){ranks, inner, ranks / inner};
}

/* Whose keys rank r holds at a step. */
static int holds(const struct windows *w, int r, int step)
{
    int window = (r / w->inner - step / w->inner + w->outer) % w->outer;
    int place = (r % w->inner - step % w->inner + w->inner) % w->inner;
    return window * w->inner + place;
}

/* After a step every block moves one place on inside its window, and after the last step of a
 * window to the next one: direction 1 gives the rank it goes to, -1 the one whose block comes. */
static int neighbour(const struct windows *w, int r, int step, int direction)
{
    int crosses = step % w->inner == w->inner - 1 ? direction : 0;
    int window = (r / w->inner + crosses + w->outer) % w->outer;
    int place = (r % w->inner + direction + w->inner) % w->inner;
    return window * w->inner + place;
}

/* One product: a stretch of the rank's queries with a stretch of the keys it holds. */
struct product {
    struct attn_problem part;
    int query, key;           /* which stretches */
    int64_t query_at, key_at; /* where these begin in the shard and in the block */
    int is_first,
        starts_keys; /* the first of these queries; of these keys, where they are at home */
};

/* The products of a rank's steps, one after another. */
struct walk {
    const struct attn_problem *whole;
    struct attn_layout layout;
    struct windows windows;
    int r, step, n; /* n: of the products of this step, the next */
    int began_query[ATTN_MAX_STRETCHES], began_key[ATTN_MAX_STRETCHES];
};

static struct walk walk_of(const struct attn_problem *whole, const struct attn_options *options,
                           int r)
{
    return (struct walk){
        .whole = whole, .layout = layout_of(options), .windows = windows_of(options), .r = r};
}

static int per_step(const struct attn_layout *layout)
{
    return attn_layout_stretches(layout) * attn_layout_stretches(layout);
}

/* Certainly nothing to see here, in any batch and head. */
static int is_empty(const struct attn_problem *part)
{
    if (part->mask == NULL)
        return part->n_query == 0 || part->n_key == 0;
    int64_t batches = attn_problem_varies_by_batch(part) ? part->batch : 1;
    int64_t heads = attn_mask_varies_by_head(part->mask) ? part->heads : 1;
    for (int64_t b = 0; b < batches && b < part->batch; b++)
        for (int64_t h = 0; h < heads && h < part->heads; h++)
            if (attn_problem_tile(part, b, h, 0, part->n_query, 0, part->n_key) != ATTN_TILE_EMPTY)
                return 0;
    return 1;
}

static struct product product_at(const struct walk *w, int step, int n)
{
    int stretches = attn_layout_stretches(&w->layout), j = holds(&w->windows, w->r, step);
    struct product x = {.query = n / stretches, .key = n % stretches};
    struct attn_tokens queries = attn_layout_stretch(&w->layout, w->whole->n_query, w->r, x.query);
    struct attn_tokens keys = attn_layout_stretch(&w->layout, w->whole->n_key, j, x.key);
    x.part = attn_piece_of(w->whole, &queries, &keys);
    if (x.query > 0)
        x.query_at = attn_layout_stretch(&w->layout, w->whole->n_query, w->r, 0).n;
    if (x.key > 0)
        x.key_at = attn_layout_stretch(&w->layout, w->whole->n_key, j, 0).n;
    return x;
}

/* The next product of this step that has something to see; 0: the step is done. */
static int next_product(struct walk *w, struct product *x)
{
    while (w->n < per_step(&w->layout)) {
        *x = product_at(w, w->step, w->n++);
        if (is_empty(&x->part))
            continue;
        x->is_first = !w->began_query[x->query];
        x->starts_keys = w->step == 0 && !w->began_key[x->key];
        w->began_query[x->query] = w->began_key[x->key] = 1;
        return 1;
    }
    return 0;
}

static void next_step(struct walk *w)
{
    w->step++;
    w->n = 0;
}

/* ---- buffers --------------------------------------------------------------------------------- */

enum { KV_TRAVEL, O_PARTIAL, LSE_PARTIAL, DKV_TRAVEL, DKV_PARTIAL, DQ_PARTIAL, BUFFERS };

/* All blocks have the same size: a rank's own dK,dV then have room for any of them. */
static int is_even(const struct attn_layout *layout, int64_t n)
{
    return attn_layout_most(layout, n) * layout->ranks == n;
}

/* The longest stretch of a rank is its first. */
static void lay_out(const struct walk *w, enum attn_pass pass, struct attn_buffer *buffer)
{
    const struct attn_problem *p = w->whole;
    const struct attn_layout *l = &w->layout;
    int64_t e = (int64_t)attn_dtype_size(p->dtype), d = p->d_key, dv = p->d_value;
    int64_t rows = p->batch * p->heads * attn_layout_stretch(l, p->n_query, w->r, 0).n;
    int64_t token = p->batch * p->kv_heads * (d + dv); /* numbers of K and V of one token */
    int64_t block = token * attn_layout_most(l, p->n_key);
    int64_t part = token * attn_layout_stretch(l, p->n_key, 0, 0).n;
    int travels = l->ranks > 1, is_cut = travels || per_step(l) > 1;
    if (travels)
        buffer[KV_TRAVEL] = attn_buffer_of("kv.travel", less(l->ranks - 1, 2), block, e);
    if (is_cut && pass == ATTN_FORWARD) {
        int64_t e_lse = (int64_t)attn_dtype_size(attn_lse_dtype(p));
        buffer[O_PARTIAL] = attn_buffer_of("o.partial", rows, dv, e);
        buffer[LSE_PARTIAL] = attn_buffer_of("lse.partial", rows, 1, e_lse);
    }
    if (travels && pass == ATTN_BACKWARD)
        buffer[DKV_TRAVEL] = attn_buffer_of("dkv.travel", is_even(l, p->n_key) ? 1 : 2, block, e);
    if (is_cut && pass == ATTN_BACKWARD) {
        buffer[DKV_PARTIAL] = attn_buffer_of("dkv.partial", 1, part, e);
        buffer[DQ_PARTIAL] = attn_buffer_of("dq.partial", rows, d, e);
    }
}

/* ---- the rank's state ------------------------------------------------------------------------ */

/* Two tensors of the shape of a block of K and V. */
struct pair {
    void *k, *v;
};

struct ring {
    struct attn_rank *rank;
    const struct attn_problem *whole;
    struct walk walk;
    int64_t size;     /* bytes of an element */
    struct pair held; /* K,V of this step */
    struct attn_buffer buffer[BUFFERS];
};

static struct ring open_ring(struct attn_rank *rank, const struct attn_problem *whole,
                             const struct attn_cview *k, const struct attn_cview *v)
{
    struct ring x = {.rank = rank, .whole = whole};
    x.walk = walk_of(whole, rank->options, rank->transport->rank);
    x.size = (int64_t)attn_dtype_size(whole->dtype);
    x.held = (struct pair){(void *)(uintptr_t)k->data, (void *)(uintptr_t)v->data};
    return x;
}

static enum attn_status take(struct ring *x, enum attn_pass pass)
{
    lay_out(&x->walk, pass, x->buffer);
    return attn_buffers_take(x->buffer, BUFFERS, x->rank->ledger, x->rank->error);
}

static void give(struct ring *x)
{
    attn_buffers_give(x->buffer, BUFFERS, x->rank->ledger);
}

/* Tokens of the block that this rank holds at a step. */
static int64_t block_tokens(const struct ring *x, int step)
{
    int j = holds(&x->walk.windows, x->walk.r, step);
    return attn_layout_tokens(&x->walk.layout, x->whole->n_key, j);
}

/* Bytes of K of so many tokens; V lies behind it. */
static int64_t bytes_of_keys(const struct ring *x, int64_t tokens)
{
    return x->whole->batch * x->whole->kv_heads * tokens * x->whole->d_key * x->size;
}

static int64_t bytes_of_values(const struct ring *x, int64_t tokens)
{
    return x->whole->batch * x->whole->kv_heads * tokens * x->whole->d_value * x->size;
}

/* Where a block of so many tokens lies in a part of a buffer. */
static struct pair pair_at(const struct ring *x, int buffer, int part, int64_t tokens)
{
    char *data = attn_buffer_at(&x->buffer[buffer], part);
    return (struct pair){data, data + bytes_of_keys(x, tokens)};
}

/* After a step: send the block held then, receive the one of the next step. */
static enum attn_status hop(struct ring *x, enum attn_tag_kind kind_k, enum attn_tag_kind kind_v,
                            int step, struct pair from, struct pair to)
{
    const struct windows *w = &x->walk.windows;
    int next = neighbour(w, x->walk.r, step, 1), previous = neighbour(w, x->walk.r, step, -1);
    int64_t out = block_tokens(x, step), in = block_tokens(x, (step + 1) % w->ranks);
    struct attn_piece piece[] = {
        attn_piece_whole(bytes_of_keys(x, out)), attn_piece_whole(bytes_of_values(x, out)),
        attn_piece_whole(bytes_of_keys(x, in)), attn_piece_whole(bytes_of_values(x, in))};
    struct attn_send send[] = {{next, attn_tag(kind_k, step), from.k, &piece[0], 1, 0, NULL, NULL},
                               {next, attn_tag(kind_v, step), from.v, &piece[1], 1, 0, NULL, NULL}};
    struct attn_receive receive[] = {
        {previous, attn_tag(kind_k, step), to.k, &piece[2], 1, 0, NULL, NULL},
        {previous, attn_tag(kind_v, step), to.v, &piece[3], 1, 0, NULL, NULL}};
    return attn_exchange(x->rank->transport, send, 2, receive, 2, x->rank->error);
}

static enum attn_status hop_keys(struct ring *x, int step)
{
    struct pair to = pair_at(x, KV_TRAVEL, step % 2, block_tokens(x, step + 1));
    enum attn_status status = hop(x, ATTN_TAG_K, ATTN_TAG_V, step, x->held, to);
    x->held = to;
    return status;
}

/* ---- views of stretches ---------------------------------------------------------------------- */

/* The same tensor from token `at` on. */
static struct attn_view from_token(struct attn_view view, int64_t at)
{
    view.data = (char *)view.data + at * view.stride[2] * (int64_t)attn_dtype_size(view.dtype);
    return view;
}

static struct attn_cview from_token_in(const struct attn_cview *view, int64_t at)
{
    struct attn_view moved = from_token(attn_view_input(view), at);
    return attn_view_const(&moved);
}

/* The product's keys in a block of K, V or a gradient of one. */
static struct attn_view keys_in(const struct ring *x, const struct product *m, void *data,
                                int64_t width)
{
    int64_t tokens = block_tokens(x, x->walk.step);
    return from_token(attn_packed_view(data, x->whole->dtype, x->whole->kv_heads, tokens, width),
                      m->key_at);
}

static void look_at_keys(const struct ring *x, const struct product *m, struct attn_cview *k,
                         struct attn_cview *v)
{
    struct attn_view of_k = keys_in(x, m, x->held.k, x->whole->d_key);
    struct attn_view of_v = keys_in(x, m, x->held.v, x->whole->d_value);
    *k = attn_view_const(&of_k);
    *v = attn_view_const(&of_v);
}

/* sum[b,h,i,:] += part[b,h,i,:] */
static void add_rows(const struct attn_view *sum, const struct attn_view *part, int64_t batch,
                     int64_t heads, int64_t tokens, int64_t width)
{
    for (int64_t row = 0; row < batch * heads * tokens; row++) {
        int64_t b = row / tokens / heads, h = row / tokens % heads, i = row % tokens;
        int64_t to = attn_offset(sum->stride, b, h, i), from = attn_offset(part->stride, b, h, i);
        for (int64_t c = 0; c < width; c++)
            if (sum->dtype == ATTN_F64)
                ((double *)sum->data)[to + c] += ((const double *)part->data)[from + c];
            else
                ((float *)sum->data)[to + c] += ((const float *)part->data)[from + c];
    }
}

/* x[b,h,i,:] = 0 */
static void clear_rows(const struct attn_view *x, int64_t batch, int64_t heads, int64_t tokens,
                       int64_t width)
{
    size_t bytes = (size_t)width * attn_dtype_size(x->dtype);
    for (int64_t row = 0; row < batch * heads * tokens; row++)
        memset((char *)x->data + (int64_t)attn_dtype_size(x->dtype) *
                                     attn_offset(x->stride, row / tokens / heads,
                                                 row / tokens % heads, row % tokens),
               0, bytes);
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Queries that saw no product: the empty set of keys, (0, -inf). */
static void set_neutral(const struct ring *x, const struct attn_forward *mine, int stretch)
{
    struct product m = product_at(&x->walk, 0, stretch * attn_layout_stretches(&x->walk.layout));
    int64_t heads = m.part.heads, tokens = m.part.n_query;
    struct attn_view o = from_token(mine->o, m.query_at), lse = from_token(mine->lse, m.query_at);
    clear_rows(&o, m.part.batch, heads, tokens, m.part.d_value);
    for (int64_t row = 0; row < m.part.batch * heads * tokens; row++) {
        int64_t i =
            attn_offset(lse.stride, row / tokens / heads, row / tokens % heads, row % tokens);
        if (lse.dtype == ATTN_F64)
            ((double *)lse.data)[i] = -HUGE_VAL;
        else
            ((float *)lse.data)[i] = -INFINITY;
    }
}

/* sum := sum merged with part, row by row. */
static void merge_rows(const struct attn_problem *p, const struct attn_forward *sum,
                       const struct attn_forward *part)
{
    int64_t n = p->d_value;
    for (int64_t row = 0; row < p->batch * p->heads * p->n_query; row++) {
        int64_t b = row / p->n_query / p->heads, h = row / p->n_query % p->heads;
        int64_t i = row % p->n_query, to = attn_offset(sum->o.stride, b, h, i);
        int64_t l = attn_offset(sum->lse.stride, b, h, i), from = row * n;
        if (p->dtype == ATTN_F64)
            attn_merge_f64((double *)sum->o.data + to, (double *)sum->lse.data + l,
                           (const double *)part->o.data + from,
                           ((const double *)part->lse.data)[row], n);
        else
            attn_merge_f32((float *)sum->o.data + to, (float *)sum->lse.data + l,
                           (const float *)part->o.data + from, ((const float *)part->lse.data)[row],
                           n);
    }
}

/* The first product of some queries is the sum so far; later ones are partial first. */
static enum attn_status forward_product(struct ring *x, const struct product *m,
                                        const struct attn_forward *mine)
{
    const struct attn_problem *p = &m->part;
    struct attn_forward sum = *mine, t;
    sum.q = from_token_in(&mine->q, m->query_at);
    sum.o = from_token(mine->o, m->query_at);
    sum.lse = from_token(mine->lse, m->query_at);
    look_at_keys(x, m, &sum.k, &sum.v);
    t = sum;
    if (!m->is_first) {
        t.o =
            attn_packed_view(x->buffer[O_PARTIAL].data, p->dtype, p->heads, p->n_query, p->d_value);
        t.lse = attn_packed_view(x->buffer[LSE_PARTIAL].data, attn_lse_dtype(p), p->heads,
                                 p->n_query, 1);
    }
    enum attn_status status = attn_rank_forward(x->rank, p, &t);
    if (status == ATTN_OK && !m->is_first)
        merge_rows(p, &sum, &t);
    return status;
}

static enum attn_status forward_step(struct ring *x, const struct attn_forward *mine)
{
    struct product m;
    enum attn_status status = ATTN_OK;
    while (status == ATTN_OK && next_product(&x->walk, &m))
        status = forward_product(x, &m, mine);
    return status;
}

static enum attn_status rank_forward(struct attn_rank *rank, const struct attn_problem *whole,
                                     const struct attn_forward *mine)
{
    struct ring x = open_ring(rank, whole, &mine->k, &mine->v);
    int ranks = x.walk.windows.ranks;
    enum attn_status status = take(&x, ATTN_FORWARD);
    for (int step = 0; step < ranks && status == ATTN_OK; step++) {
        status = forward_step(&x, mine);
        if (status == ATTN_OK && step < ranks - 1)
            status = hop_keys(&x, step);
        next_step(&x.walk);
    }
    for (int s = 0; s < attn_layout_stretches(&x.walk.layout) && status == ATTN_OK; s++)
        if (!x.walk.began_query[s])
            set_neutral(&x, mine, s);
    give(&x);
    return status;
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Where the travelling dK,dV are during a step; step P is after the last hop, at home.  The sum
 * needs two places, one to send from and one to receive into; the rank's dk and dv are one of them
 * where they have room for any block. */
static struct pair sum_at(const struct ring *x, const struct attn_backward *mine, int step)
{
    const struct attn_layout *l = &x->walk.layout;
    int even = is_even(l, x->whole->n_key);
    if (l->ranks == 1 || step == l->ranks || (even && (l->ranks - step) % 2 == 0))
        return (struct pair){mine->dk.data, mine->dv.data};
    return pair_at(x, DKV_TRAVEL, even ? 0 : step % 2, block_tokens(x, step));
}

static enum attn_status backward_product(struct ring *x, const struct product *m,
                                         const struct attn_backward *mine)
{
    const struct attn_problem *p = &m->part;
    struct pair travels = sum_at(x, mine, x->walk.step);
    struct attn_backward sum = *mine, t;
    sum.q = from_token_in(&mine->q, m->query_at);
    sum.o = from_token_in(&mine->o, m->query_at); /* the global o and lse */
    sum.lse = from_token_in(&mine->lse, m->query_at);
    sum.d_o = from_token_in(&mine->d_o, m->query_at);
    if (mine->d_lse.data != NULL)
        sum.d_lse = from_token_in(&mine->d_lse, m->query_at);
    sum.dq = from_token(mine->dq, m->query_at);
    sum.dk = keys_in(x, m, travels.k, p->d_key);
    sum.dv = keys_in(x, m, travels.v, p->d_value);
    look_at_keys(x, m, &sum.k, &sum.v);
    t = sum;
    if (!m->is_first)
        t.dq =
            attn_packed_view(x->buffer[DQ_PARTIAL].data, p->dtype, p->heads, p->n_query, p->d_key);
    if (!m->starts_keys) {
        struct pair partial = pair_at(x, DKV_PARTIAL, 0, p->n_key);
        t.dk = attn_packed_view(partial.k, p->dtype, p->kv_heads, p->n_key, p->d_key);
        t.dv = attn_packed_view(partial.v, p->dtype, p->kv_heads, p->n_key, p->d_value);
    }
    enum attn_status status = attn_rank_backward(x->rank, p, &t);
    if (status == ATTN_OK && !m->is_first)
        add_rows(&sum.dq, &t.dq, p->batch, p->heads, p->n_query, p->d_key);
    if (status == ATTN_OK && !m->starts_keys) {
        add_rows(&sum.dk, &t.dk, p->batch, p->kv_heads, p->n_key, p->d_key);
        add_rows(&sum.dv, &t.dv, p->batch, p->kv_heads, p->n_key, p->d_value);
    }
    return status;
}

/* The first product of some queries, and at home of some keys, starts their sums; where there was
 * none at home, the sum that is to travel starts with zeros. */
static enum attn_status backward_step(struct ring *x, const struct attn_backward *mine)
{
    struct product m;
    enum attn_status status = ATTN_OK;
    while (status == ATTN_OK && next_product(&x->walk, &m))
        status = backward_product(x, &m, mine);
    struct pair sum = sum_at(x, mine, x->walk.step);
    for (int s = 0; s < attn_layout_stretches(&x->walk.layout) && x->walk.step == 0; s++) {
        m = product_at(&x->walk, 0, s);
        struct attn_view dk = keys_in(x, &m, sum.k, m.part.d_key);
        struct attn_view dv = keys_in(x, &m, sum.v, m.part.d_value);
        if (x->walk.began_key[s])
            continue;
        clear_rows(&dk, m.part.batch, m.part.kv_heads, m.part.n_key, m.part.d_key);
        clear_rows(&dv, m.part.batch, m.part.kv_heads, m.part.n_key, m.part.d_value);
    }
    return status;
}

static void clear_queries(const struct ring *x, const struct attn_backward *mine, int stretch)
{
    struct product m = product_at(&x->walk, 0, stretch * attn_layout_stretches(&x->walk.layout));
    struct attn_view dq = from_token(mine->dq, m.query_at);
    clear_rows(&dq, m.part.batch, m.part.heads, m.part.n_query, m.part.d_key);
}

static enum attn_status rank_backward(struct attn_rank *rank, const struct attn_problem *whole,
                                      const struct attn_backward *mine)
{
    struct ring x = open_ring(rank, whole, &mine->k, &mine->v);
    int ranks = x.walk.windows.ranks;
    enum attn_status status = take(&x, ATTN_BACKWARD);
    for (int step = 0; step < ranks && status == ATTN_OK; step++) {
        status = backward_step(&x, mine);
        if (status == ATTN_OK && step < ranks - 1)
            status = hop_keys(&x, step);
        if (status == ATTN_OK && ranks > 1)
            status = hop(&x, ATTN_TAG_DK, ATTN_TAG_DV, step, sum_at(&x, mine, step),
                         sum_at(&x, mine, step + 1));
        next_step(&x.walk);
    }
    for (int s = 0; s < attn_layout_stretches(&x.walk.layout) && status == ATTN_OK; s++)
        if (!x.walk.began_query[s])
            clear_queries(&x, mine, s);
    give(&x);
    return status;
}

/* ---- the record ------------------------------------------------------------------------------ */

static int pieces(const struct attn_options *options)
{
    struct attn_layout layout = layout_of(options);
    return layout.ranks * per_step(&layout);
}

static struct attn_problem piece(const struct attn_problem *whole,
                                 const struct attn_options *options, int rank, int n)
{
    struct walk w = walk_of(whole, options, rank);
    return product_at(&w, n / per_step(&w.layout), n % per_step(&w.layout)).part;
}

static const struct attn_scheme scheme = {"ring", layout_of,    pieces,
                                          piece,  rank_forward, rank_backward};

static enum attn_status forward(struct attn_ctx *ctx, const struct attn_problem *p,
                                const struct attn_forward *t)
{
    return attn_parallel_forward(&scheme, ctx, p, t);
}

static enum attn_status backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                 const struct attn_backward *t)
{
    return attn_parallel_backward(&scheme, ctx, p, t);
}

static int largest_divisor(int n, int most)
{
    int d = most < n ? most : n;
    while (n % d != 0)
        d--;
    return d;
}

static enum attn_status accepts(const struct attn_problem *p, const struct attn_options *options,
                                struct attn_error *err)
{
    struct attn_layout layout = layout_of(options);
    struct windows w = windows_of(options);
    const struct attn_divisible of[] = {{"queries", p->n_query}, {"keys", p->n_key}};
    enum attn_status status = attn_parallel_divides("ring", options, of, 2, err);
    if (w.inner * w.outer != w.ranks)
        return attn_fail(err, ATTN_ENOTSUP,
                         "ring:ranks=%d,inner=%d: windows of %d ranks do not fill %d; inner=%d "
                         "would work",
                         w.ranks, w.inner, w.inner, w.ranks, largest_divisor(w.ranks, w.inner));
    if (status == ATTN_OK &&
        attn_layout_stretches(&layout) > 1) /* a stretch is a part of a shard */
        status = attn_parallel_claims("ring", options, ATTN_CAP_STRIDES, err);
    return status == ATTN_OK ? attn_scheme_accepts(&scheme, p, options, err) : status;
}

/* A term of a row's sum belongs to one product and is rescaled there only. */
static int64_t rescales(const struct attn_problem *p, const struct attn_options *options)
{
    return attn_scheme_rescales(&scheme, p, options);
}

/* A query meets every stretch of keys; results after the first are merged, or in the backward
 * added, one by one. */
static int64_t merges(const struct attn_problem *p, const struct attn_options *options)
{
    struct attn_layout layout = layout_of(options);
    return attn_scheme_merges(&scheme, p, options) +
           (int64_t)layout.ranks * attn_layout_stretches(&layout) - 1;
}

/* w1 o + w2 o2 for each merge, one add for each element of a gradient. */
static double fold_flops(const struct product *m, enum attn_pass pass)
{
    const struct attn_problem *p = &m->part;
    double rows = (double)(p->batch * p->heads * p->n_query);
    double keys = (double)(p->batch * p->kv_heads * p->n_key);
    if (pass == ATTN_FORWARD)
        return m->is_first ? 0 : 3 * rows * (double)p->d_value;
    return (m->is_first ? 0 : rows * (double)p->d_key) +
           (m->starts_keys ? 0 : keys * (double)(p->d_key + p->d_value));
}

/* Local costs of all products of a rank: flops add up, and of the live sets the largest counts, the
 * first of them in a tie, as on a ledger. */
static enum attn_status price_products(const struct attn_problem *p,
                                       const struct attn_options *options, enum attn_pass pass,
                                       int rank, struct attn_cost *largest, struct attn_error *err)
{
    struct walk w = walk_of(p, options, rank);
    struct product m;
    int counted = 0;
    double flops = 0;
    memset(largest, 0, sizeof *largest);
    for (; w.step < w.windows.ranks; next_step(&w))
        while (next_product(&w, &m)) {
            struct attn_cost local;
            enum attn_status status = attn_parallel_price(options, &m.part, pass, &local, err);
            if (status != ATTN_OK)
                return status;
            flops += local.flops + fold_flops(&m, pass);
            counted |= local.counted;
            if (local.peak_bytes > largest->peak_bytes)
                *largest = local;
        }
    largest->flops = flops;
    largest->counted = counted;
    return ATTN_OK;
}

/* K and V: P-1 hops, of every block but the one that is held last.  dK and dV: P hops, the last one
 * home, of every block. */
static enum attn_status cost(const struct attn_problem *p, const struct attn_options *options,
                             enum attn_pass pass, int rank, struct attn_cost *cost,
                             struct attn_error *err)
{
    struct walk w = walk_of(p, options, rank);
    int64_t ranks = w.windows.ranks, b = pass == ATTN_BACKWARD && ranks > 1;
    int64_t last = attn_layout_tokens(&w.layout, p->n_key, holds(&w.windows, rank, (int)ranks - 1));
    int64_t token = p->batch * p->kv_heads * (p->d_key + p->d_value);
    struct attn_buffer buffer[BUFFERS] = {0};
    struct attn_cost local;
    lay_out(&w, pass, buffer);
    enum attn_status status = price_products(p, options, pass, rank, &local, err);
    if (status == ATTN_OK)
        status = attn_buffers_price(buffer, BUFFERS, cost, err);
    for (int i = 0; i < local.n_live && status == ATTN_OK; i++)
        status = attn_cost_add(cost, local.live[i].name, local.live[i].bytes, 1, err);
    if (status != ATTN_OK)
        return status;
    cost->flops = local.flops;
    cost->counted = local.counted;
    cost->bytes_sent =
        (p->n_key - last + b * p->n_key) * token * (int64_t)attn_dtype_size(p->dtype);
    cost->messages = 2 * (ranks - 1 + b * ranks);
    cost->shard_bytes = attn_shard_bytes(p, &w.layout, pass, rank);
    return ATTN_OK;
}

const struct attn_impl attn_impl_ring = {
    .name = "ring",
    .summary = "queries stay, keys and values travel, partial results merge by LSE",
    .family = "sequence-parallel",
    .caps = ATTN_PARALLEL_CAPS,
    .options = options_of,
    .ranks = attn_parallel_ranks,
    .rescales = rescales,
    .merges = merges,
    .precision = attn_parallel_precision,
    .accepts = accepts,
    .cost = cost,
    .forward = forward,
    .backward = backward,
};
