/* ring: queries stay, keys and values travel.  Rank r has the queries, keys and values of its own
 * stretch of tokens; in P steps it sees every block of keys once, and P-1 times it hands the
 * block it holds to rank r+1 and gets the next from rank r-1.  At step s it holds block r-s.
 *
 * Forward.  Every block gives a partial (O, LSE) of the rank's queries; optimized/merge.h folds
 * them.
 *
 * Backward.  With the LSE and O of the whole row, a block's part of the gradient needs no other
 * block (Dao 2023, alg. 2):
 *
 *      P_ij = exp(S_ij - LSE_i)    dS_ij = P_ij (dO_i . v_j - D_i)    D_i = dO_i . O_i - dLSE_i
 *
 * so the local backward, given the global o and lse, yields exactly the terms of this block's
 * pairs: dQ is summed where it is, and dK, dV are summed in two tensors that travel with their
 * block, one hop more than K and V: the last one brings them home.
 *
 * A block that no query of the rank sees is not computed, but still travels: every rank does the
 * same exchanges, whatever the mask (SP-21).
 *
 * Memory   forward: 2 blocks of K,V besides the own (1 for P = 2), one partial (O, LSE);
 *          backward: the same blocks, one dK,dV on its way, one partial dQ, one partial dK,dV;
 *          both plus what the local implementation takes for the largest pair of blocks.
 * Sent     forward: P-1 times K,V;  backward: P-1 times K,V and P times dK,dV.
 * Caveats  P must divide queries and keys.  Blocks are contiguous: under a causal mask the last
 *          rank works on P blocks and the first on one.  No bias tensor: a rank would need its rows
 *          of an L x L object.
 * Source   Liu et al. 2023; bugs SP-16 to SP-22.
 */
#include <math.h>
#include <string.h>

#include "optimized/integers.h"
#include "optimized/merge.h"
#include "optimized/parallel/rank.h"
#include "optimized/parallel/shard.h"
#include "ref/problem.h"

/* ---- blocks --------------------------------------------------------------------------------- */

/* At step s rank r holds block r - s. */
static struct attn_problem part_of(const struct attn_problem *whole, int ranks, int r, int step)
{
    struct attn_problem part = *whole;
    int j = (r - step + ranks) % ranks;
    part.n_query = whole->n_query / ranks;
    part.n_key = whole->n_key / ranks;
    part.origin.query.first += r * part.n_query;
    part.origin.key.first += j * part.n_key;
    part.scattered = 0; /* shards are packed */
    return part;
}

static int steps(int ranks)
{
    return ranks;
}

/* Certainly nothing to see here, in any batch and head. */
static int block_is_empty(const struct attn_problem *part)
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

/* ---- the rank's state ----------------------------------------------------------------------- */

/* A pair of tensors of the shape of a block of K and V: k in front, v behind it. */
struct pair {
    void *k, *v;
};

enum { KV_TRAVEL, O_PARTIAL, LSE_PARTIAL, DKV_TRAVEL, DKV_PARTIAL, DQ_PARTIAL, BUFFERS };

struct ring {
    struct attn_rank *rank;
    const struct attn_problem *whole;
    struct attn_problem part; /* of the current step */
    int ranks, r;
    int64_t rows;           /* B * H * Lq/P */
    int64_t n_k, n_v, size; /* elements of a block of K, of V; bytes of an element */
    struct pair own, held;  /* K,V: this rank's, the current one */
    struct attn_buffer buffer[BUFFERS];
};

/* A hop sends from one slot of kv.travel and receives into the other; the first sends the rank's
 * own block.  One rank alone has nothing. */
static void lay_out(const struct attn_problem *whole, int ranks, enum attn_pass pass,
                    struct attn_buffer *buffer)
{
    int64_t e = (int64_t)attn_dtype_size(whole->dtype), d = whole->d_key, dv = whole->d_value;
    int64_t rows = whole->batch * whole->heads * (whole->n_query / ranks);
    int64_t kv = whole->batch * whole->kv_heads * (whole->n_key / ranks) * (d + dv);
    if (ranks == 1)
        return;
    buffer[KV_TRAVEL] = attn_buffer_of("kv.travel", less(ranks - 1, 2), kv, e);
    if (pass == ATTN_FORWARD) {
        int64_t e_lse = (int64_t)attn_dtype_size(attn_lse_dtype(whole));
        buffer[O_PARTIAL] = attn_buffer_of("o.partial", rows, dv, e);
        buffer[LSE_PARTIAL] = attn_buffer_of("lse.partial", rows, 1, e_lse);
    } else {
        buffer[DKV_TRAVEL] = attn_buffer_of("dkv.travel", 1, kv, e);
        buffer[DKV_PARTIAL] = attn_buffer_of("dkv.partial", 1, kv, e);
        buffer[DQ_PARTIAL] = attn_buffer_of("dq.partial", rows, d, e);
    }
}

static struct ring open_ring(struct attn_rank *rank, const struct attn_problem *whole,
                             const struct attn_cview *k, const struct attn_cview *v)
{
    int ranks = rank->transport->size;
    int64_t keys = whole->batch * whole->kv_heads * (whole->n_key / ranks);
    struct ring x = {.rank = rank, .whole = whole, .ranks = ranks, .r = rank->transport->rank};
    x.rows = whole->batch * whole->heads * (whole->n_query / ranks);
    x.n_k = keys * whole->d_key;
    x.n_v = keys * whole->d_value;
    x.size = (int64_t)attn_dtype_size(whole->dtype);
    x.own = x.held = (struct pair){(void *)(uintptr_t)k->data, (void *)(uintptr_t)v->data};
    return x;
}

/* The pair in a part of a buffer. */
static struct pair pair_at(const struct ring *x, int buffer, int part)
{
    char *data = attn_buffer_at(&x->buffer[buffer], part);
    return (struct pair){data, data + x->n_k * x->size};
}

/* Begin a pass. */
static enum attn_status take(struct ring *x, enum attn_pass pass)
{
    lay_out(x->whole, x->ranks, pass, x->buffer);
    return attn_buffers_take(x->buffer, BUFFERS, x->rank->ledger, x->rank->error);
}

static void give(struct ring *x)
{
    attn_buffers_give(x->buffer, BUFFERS, x->rank->ledger);
}

/* Send a pair to the next rank, receive one from the previous rank. */
static enum attn_status hop(struct ring *x, enum attn_tag_kind kind_k, enum attn_tag_kind kind_v,
                            int step, struct pair from, struct pair to)
{
    int next = (x->r + 1) % x->ranks, previous = (x->r + x->ranks - 1) % x->ranks;
    struct attn_piece k = attn_piece_whole(x->n_k * x->size);
    struct attn_piece v = attn_piece_whole(x->n_v * x->size);
    struct attn_send send[] = {{next, attn_tag(kind_k, step), from.k, k, 0},
                               {next, attn_tag(kind_v, step), from.v, v, 0}};
    struct attn_receive receive[] = {{previous, attn_tag(kind_k, step), to.k, k, 0},
                                     {previous, attn_tag(kind_v, step), to.v, v, 0}};
    return attn_exchange(x->rank->transport, send, 2, receive, 2, x->rank->error);
}

static enum attn_status hop_keys(struct ring *x, int step)
{
    struct pair to = pair_at(x, KV_TRAVEL, step % 2);
    enum attn_status status = hop(x, ATTN_TAG_K, ATTN_TAG_V, step, x->held, to);
    x->held = to;
    return status;
}

static struct attn_cview key_view(const struct ring *x, const void *data, int64_t width)
{
    return attn_packed_cview(data, x->part.dtype, x->part.kv_heads, x->part.n_key, width);
}

/* ---- forward -------------------------------------------------------------------------------- */

/* The empty set of keys: (0, -inf). */
static void set_neutral(const struct ring *x, const struct attn_forward *t)
{
    memset(t->o.data, 0, (size_t)(x->rows * x->part.d_value * x->size));
    for (int64_t i = 0; i < x->rows; i++)
        if (t->lse.dtype == ATTN_F64)
            ((double *)t->lse.data)[i] = -HUGE_VAL;
        else
            ((float *)t->lse.data)[i] = -INFINITY;
}

/* sum := sum merged with part, row by row. */
static void merge_rows(const struct ring *x, const struct attn_forward *sum,
                       const struct attn_forward *part)
{
    int64_t n = x->part.d_value;
    for (int64_t i = 0; i < x->rows; i++)
        if (x->part.dtype == ATTN_F64)
            attn_merge_f64((double *)sum->o.data + i * n, (double *)sum->lse.data + i,
                           (const double *)part->o.data + i * n,
                           ((const double *)part->lse.data)[i], n);
        else
            attn_merge_f32((float *)sum->o.data + i * n, (float *)sum->lse.data + i,
                           (const float *)part->o.data + i * n, ((const float *)part->lse.data)[i],
                           n);
}

/* The block held now.  The first block's result is the sum so far; later ones are partial
 * first. */
static enum attn_status forward_step(struct ring *x, int step, const struct attn_forward *mine)
{
    x->part = part_of(x->whole, x->ranks, x->r, step);
    if (block_is_empty(&x->part)) {
        if (step == 0)
            set_neutral(x, mine);
        return ATTN_OK;
    }
    struct attn_forward t = *mine; /* types and strides */
    if (step > 0) {
        t.o.data = x->buffer[O_PARTIAL].data;
        t.lse.data = x->buffer[LSE_PARTIAL].data;
    }
    t.k = key_view(x, x->held.k, x->part.d_key);
    t.v = key_view(x, x->held.v, x->part.d_value);
    enum attn_status status = attn_rank_forward(x->rank, &x->part, &t);
    if (status == ATTN_OK && step > 0)
        merge_rows(x, mine, &t);
    return status;
}

static enum attn_status rank_forward(struct attn_rank *rank, const struct attn_problem *whole,
                                     const struct attn_forward *mine)
{
    struct ring x = open_ring(rank, whole, &mine->k, &mine->v);
    enum attn_status status = take(&x, ATTN_FORWARD);
    for (int step = 0; step < x.ranks && status == ATTN_OK; step++) {
        status = forward_step(&x, step, mine);
        if (status == ATTN_OK && step < x.ranks - 1)
            status = hop_keys(&x, step);
    }
    give(&x);
    return status;
}

/* ---- backward ------------------------------------------------------------------------------- */

static void add(void *to, const void *from, int64_t n, enum attn_dtype dtype)
{
    for (int64_t c = 0; c < n; c++)
        if (dtype == ATTN_F64)
            ((double *)to)[c] += ((const double *)from)[c];
        else
            ((float *)to)[c] += ((const float *)from)[c];
}

/* Where the travelling dK,dV are during a step; step P is after the last hop.  The sum needs two
 * places, one to send from and one to receive into; the rank's dk and dv are one of them, and they
 * are the one into which the last hop goes. */
static struct pair sum_at(const struct ring *x, const struct attn_backward *mine, int step)
{
    if (x->ranks == 1 || (x->ranks - step) % 2 == 0)
        return (struct pair){mine->dk.data, mine->dv.data};
    return pair_at(x, DKV_TRAVEL, 0);
}

/* The block held now: the first block's gradients start the sums, later ones are added to them. */
static enum attn_status backward_step(struct ring *x, int step, const struct attn_backward *mine)
{
    struct pair sum = sum_at(x, mine, step), partial = pair_at(x, DKV_PARTIAL, 0);
    void *dq_partial = x->buffer[DQ_PARTIAL].data;
    int64_t n_q = x->rows * x->whole->d_key;
    x->part = part_of(x->whole, x->ranks, x->r, step);
    if (block_is_empty(&x->part)) {
        if (step == 0) {
            memset(mine->dq.data, 0, (size_t)(n_q * x->size));
            memset(sum.k, 0, (size_t)(x->n_k * x->size));
            memset(sum.v, 0, (size_t)(x->n_v * x->size));
        }
        return ATTN_OK;
    }
    struct pair to = step == 0 ? sum : partial;
    struct attn_backward t = *mine; /* the global o and lse among them */
    t.k = key_view(x, x->held.k, x->part.d_key);
    t.v = key_view(x, x->held.v, x->part.d_value);
    t.dq.data = step == 0 ? mine->dq.data : dq_partial;
    t.dk.data = to.k;
    t.dv.data = to.v;
    enum attn_status status = attn_rank_backward(x->rank, &x->part, &t);
    if (status == ATTN_OK && step > 0) {
        add(mine->dq.data, dq_partial, n_q, x->part.dtype);
        add(sum.k, partial.k, x->n_k, x->part.dtype);
        add(sum.v, partial.v, x->n_v, x->part.dtype);
    }
    return status;
}

static enum attn_status rank_backward(struct attn_rank *rank, const struct attn_problem *whole,
                                      const struct attn_backward *mine)
{
    struct ring x = open_ring(rank, whole, &mine->k, &mine->v);
    enum attn_status status = take(&x, ATTN_BACKWARD);
    for (int step = 0; step < x.ranks && status == ATTN_OK; step++) {
        status = backward_step(&x, step, mine);
        if (status == ATTN_OK && step < x.ranks - 1)
            status = hop_keys(&x, step);
        if (status == ATTN_OK && x.ranks > 1)
            status = hop(&x, ATTN_TAG_DK, ATTN_TAG_DV, step, sum_at(&x, mine, step),
                         sum_at(&x, mine, step + 1));
    }
    give(&x);
    return status;
}

/* ---- the record ----------------------------------------------------------------------------- */

static const struct attn_scheme scheme = {"ring", steps, part_of, rank_forward, rank_backward};

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

static enum attn_status accepts(const struct attn_problem *p, const struct attn_options *options,
                                struct attn_error *err)
{
    int ranks = attn_parallel_ranks(options);
    const struct attn_divisible of[] = {{"queries", p->n_query}, {"keys", p->n_key}};
    enum attn_status status = attn_shards_check("ring", ranks, of, 2, err);
    return status == ATTN_OK ? attn_scheme_accepts(&scheme, p, options, err) : status;
}

/* A term of a row's sum belongs to one block and is rescaled there only. */
static int64_t rescales(const struct attn_problem *p, const struct attn_options *options)
{
    return attn_scheme_rescales(&scheme, p, options);
}

/* Blocks after the first are merged, or in the backward added, one by one. */
static int64_t merges(const struct attn_problem *p, const struct attn_options *options)
{
    return attn_scheme_merges(&scheme, p, options) + attn_parallel_ranks(options) - 1;
}

/* Local costs of all blocks that a rank computes: flops add up, and of the live sets the largest
 * counts, the first of them in a tie, as on a ledger. */
static enum attn_status price_blocks(const struct attn_problem *p,
                                     const struct attn_options *options, enum attn_pass pass,
                                     int rank, double merge_flops, struct attn_cost *largest,
                                     struct attn_error *err)
{
    int ranks = attn_parallel_ranks(options), counted = 0;
    double flops = 0;
    memset(largest, 0, sizeof *largest);
    for (int step = 0; step < ranks; step++) {
        struct attn_problem part = part_of(p, ranks, rank, step);
        struct attn_cost local;
        if (block_is_empty(&part))
            continue;
        enum attn_status status = attn_parallel_price(options, &part, pass, &local, err);
        if (status != ATTN_OK)
            return status;
        flops += local.flops + (step > 0 ? merge_flops : 0);
        counted |= local.counted;
        if (local.peak_bytes > largest->peak_bytes)
            *largest = local;
    }
    largest->flops = flops;
    largest->counted = counted;
    return ATTN_OK;
}

static enum attn_status cost(const struct attn_problem *p, const struct attn_options *options,
                             enum attn_pass pass, int rank, struct attn_cost *cost,
                             struct attn_error *err)
{
    int64_t ranks = attn_parallel_ranks(options), b = pass == ATTN_BACKWARD && ranks > 1;
    struct attn_buffer buffer[BUFFERS] = {0};
    lay_out(p, (int)ranks, pass, buffer);
    int64_t rows = p->batch * p->heads * (p->n_query / ranks);
    int64_t kv = p->batch * p->kv_heads * (p->n_key / ranks) * (p->d_key + p->d_value);
    /* a merge: w1 o + w2 o2; a sum of gradients: one add an element */
    double merge = b ? (double)(rows * p->d_key + kv) : 3.0 * (double)(rows * p->d_value);
    struct attn_cost local;
    enum attn_status status = price_blocks(p, options, pass, rank, merge, &local, err);
    if (status == ATTN_OK)
        status = attn_buffers_price(buffer, BUFFERS, cost, err);
    for (int i = 0; i < local.n_live && status == ATTN_OK; i++)
        status = attn_cost_add(cost, local.live[i].name, local.live[i].bytes, 1, err);
    if (status != ATTN_OK)
        return status;
    cost->flops = local.flops;
    cost->counted = local.counted;
    /* K and V: P-1 hops.  dK and dV: P hops, the last one home. */
    cost->bytes_sent = (ranks - 1 + b * ranks) * kv * (int64_t)attn_dtype_size(p->dtype);
    cost->messages = 2 * (ranks - 1 + b * ranks);
    return ATTN_OK;
}

const struct attn_impl attn_impl_ring = {
    .name = "ring",
    .summary = "queries stay, keys and values travel, partial results merge by LSE",
    .family = "sequence-parallel",
    .caps = ATTN_PARALLEL_CAPS,
    .options = attn_parallel_options,
    .ranks = attn_parallel_ranks,
    .rescales = rescales,
    .merges = merges,
    .precision = attn_parallel_precision,
    .accepts = accepts,
    .cost = cost,
    .forward = forward,
    .backward = backward,
};
