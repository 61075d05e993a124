/* ulysses: change what is sharded.  Attention needs all keys of a head, but only one head at a
 * time, so an all-to-all turns shards of tokens into shards of heads:
 *
 *      [B, H, L/P, d]  --all-to-all-->  [B, H/P, L, d]  --attention-->  [B, H/P, L, dv]
 *                                                   --all-to-all-->  [B, H, L/P, dv]
 *
 * Rank r computes heads [r H/P, (r+1) H/P) with kv heads [r G/P, (r+1) G/P): the mapping h / (H/G)
 * stays inside the rank because P divides both.  lse goes home with o.
 *
 * The backward takes q k v dO lse to the heads and brings dQ dK dV back.  It needs O only in
 *
 *      D_i = dO_i . O_i - dLSE_i
 *
 * which the owner of row i knows, so D travels in place of O (and of dLSE): one number a row
 * instead of dv.  The local implementation is told O = 0 (one row of zeros, stride 0) and dLSE =
 * -D, from which it computes 0 - (-D).
 *
 * Memory   forward: q k v o lse of H/P heads, plus what the local implementation takes for them;
 *          backward: q k v dO lse D dQ dK dV of H/P heads, plus the same.
 * Sent     (P-1)/P of each of these tensors' shard, one message for each other rank.
 * Caveats  P must divide heads, kv heads, queries and keys.  No bias tensor: a rank would need
 *          the [L, L] planes of its heads, which are nobody's shard of a sequence.
 * Source   Jacobs et al. 2023 (DeepSpeed-Ulysses); bugs SP-01 to SP-06.
 */
#include <math.h>
#include <string.h>

#include "optimized/parallel/rank.h"
#include "optimized/parallel/shard.h"
#include "ref/problem.h"

/* A rank's part of the problem: its heads, all tokens. */
static struct attn_problem part_of(const struct attn_problem *whole, int ranks, int rank)
{
    struct attn_problem part = *whole;
    part.heads = whole->heads / ranks;
    part.kv_heads = whole->kv_heads / ranks;
    part.origin.head += rank * part.heads;
    part.scattered = 0; /* shards are packed */
    return part;
}

static struct attn_problem piece(const struct attn_problem *whole,
                                 const struct attn_options *options, int rank, int n)
{
    (void)n;
    return part_of(whole, attn_parallel_ranks(options), rank);
}

static int one_piece(const struct attn_options *options)
{
    (void)options;
    return 1;
}

static struct attn_layout layout(const struct attn_options *options)
{
    return (struct attn_layout){ATTN_CONTIGUOUS, attn_parallel_ranks(options)};
}

/* ---- the exchange --------------------------------------------------------------------------- */

/* One tensor on its way.  heads: of a rank; tokens: of a rank; row: bytes of one token. */
struct extents {
    int64_t batch, heads, tokens, row;
};

/* The piece that goes between two ranks is [B, H/P, L/P] rows on both sides: in a token shard
 * [B, H, L/P] its heads lie together and its tokens are all of the shard's; in a head shard
 * [B, H/P, L] it is all heads, and a run of L/P tokens in each. */
static struct attn_piece in_token_shard(const struct extents *l, int ranks)
{
    int64_t head = l->tokens * l->row;
    return (struct attn_piece){
        {l->batch, l->heads, l->tokens}, {ranks * l->heads * head, head, l->row}, l->row};
}

static struct attn_piece in_head_shard(const struct extents *l, int ranks)
{
    int64_t head = ranks * l->tokens * l->row;
    return (struct attn_piece){
        {l->batch, l->heads, l->tokens}, {l->heads * head, head, l->row}, l->row};
}

static enum attn_status to_heads(struct attn_rank *rank, enum attn_tag_kind kind,
                                 const struct extents *l, const void *shard, void *heads)
{
    int ranks = rank->transport->size;
    struct attn_a2a x = {.from = shard,
                         .to = heads,
                         .out_step = l->heads * l->tokens * l->row,
                         .in_step = l->tokens * l->row,
                         .out = in_token_shard(l, ranks),
                         .in = in_head_shard(l, ranks)};
    return attn_all_to_all(rank->transport, attn_tag(kind, 0), &x, rank->error);
}

static enum attn_status to_tokens(struct attn_rank *rank, enum attn_tag_kind kind,
                                  const struct extents *l, const void *heads, void *shard)
{
    int ranks = rank->transport->size;
    struct attn_a2a x = {.from = heads,
                         .to = shard,
                         .out_step = l->tokens * l->row,
                         .in_step = l->heads * l->tokens * l->row,
                         .out = in_head_shard(l, ranks),
                         .in = in_token_shard(l, ranks)};
    return attn_all_to_all(rank->transport, attn_tag(kind, 1), &x, rank->error);
}

/* ---- one pass ------------------------------------------------------------------------------- */

/* A tensor that is exchanged: what it is, and what its token shard and its head shard are called in
 * struct attn_forward or struct attn_backward. */
struct move {
    enum attn_tag_kind kind;
    const char *name;              /* of the head shard's buffer */
    const struct attn_cview *from; /* inputs */
    struct attn_cview *to;
    const struct attn_view *home; /* outputs */
    struct attn_view *away;
};
enum { MOVES_FORWARD = 5, MOVES_BACKWARD = 9, BUFFERS = MOVES_BACKWARD };

/* The head shard of a tensor, and how it lies in both kinds of shard. */
static struct attn_buffer head_shard(const struct move *m, const struct attn_problem *part)
{
    int of_rows = m->kind == ATTN_TAG_LSE || m->kind == ATTN_TAG_DELTA;
    int64_t n[3], e = (int64_t)attn_dtype_size(of_rows ? attn_lse_dtype(part) : part->dtype);
    attn_tag_extent(m->kind, part, n);
    return attn_buffer_of(m->name, part->batch * n[0] * n[1], n[2], e);
}

static struct extents extents_of(const struct move *m, const struct attn_problem *part, int ranks)
{
    struct attn_buffer shard = head_shard(m, part);
    int64_t n[3];
    attn_tag_extent(m->kind, part, n);
    return (struct extents){part->batch, n[0], n[1] / ranks, shard.numbers * shard.size};
}

/* Take all head shards and fill those of the inputs. */
static enum attn_status bring(struct attn_rank *rank, const struct attn_problem *part,
                              const struct move *move, int n, struct attn_buffer *buffer)
{
    int64_t e[3];
    for (int m = 0; m < n; m++)
        buffer[m] = head_shard(&move[m], part);
    enum attn_status status = attn_buffers_take(buffer, n, rank->ledger, rank->error);
    for (int m = 0; m < n && status == ATTN_OK; m++) {
        const struct move *x = &move[m];
        struct extents l = extents_of(x, part, rank->transport->size);
        attn_tag_extent(x->kind, part, e);
        if (x->home != NULL) {
            *x->away = attn_packed_view(buffer[m].data, x->home->dtype, e[0], e[1], e[2]);
            continue;
        }
        *x->to = attn_packed_cview(buffer[m].data, x->from->dtype, e[0], e[1], e[2]);
        status = to_heads(rank, x->kind, &l, x->from->data, buffer[m].data);
    }
    return status;
}

static enum attn_status take_home(struct attn_rank *rank, const struct attn_problem *part,
                                  const struct move *move, int n, const struct attn_buffer *buffer)
{
    enum attn_status status = ATTN_OK;
    for (int m = 0; m < n && status == ATTN_OK; m++) {
        struct extents l = extents_of(&move[m], part, rank->transport->size);
        if (move[m].home != NULL)
            status = to_tokens(rank, move[m].kind, &l, buffer[m].data, move[m].home->data);
    }
    return status;
}

/* Which tensors move in a pass. */
static void moves_forward(const struct attn_forward *mine, struct attn_forward *t,
                          struct move move[MOVES_FORWARD])
{
    const struct move list[] = {{ATTN_TAG_Q, "q.heads", .from = &mine->q, .to = &t->q},
                                {ATTN_TAG_K, "k.heads", .from = &mine->k, .to = &t->k},
                                {ATTN_TAG_V, "v.heads", .from = &mine->v, .to = &t->v},
                                {ATTN_TAG_O, "o.heads", .home = &mine->o, .away = &t->o},
                                {ATTN_TAG_LSE, "lse.heads", .home = &mine->lse, .away = &t->lse}};
    memcpy(move, list, sizeof list);
}

static void moves_backward(const struct attn_backward *mine, const struct attn_cview *delta,
                           struct attn_backward *t, struct move move[MOVES_BACKWARD])
{
    const struct move list[] = {{ATTN_TAG_Q, "q.heads", .from = &mine->q, .to = &t->q},
                                {ATTN_TAG_K, "k.heads", .from = &mine->k, .to = &t->k},
                                {ATTN_TAG_V, "v.heads", .from = &mine->v, .to = &t->v},
                                {ATTN_TAG_DO, "do.heads", .from = &mine->d_o, .to = &t->d_o},
                                {ATTN_TAG_LSE, "lse.heads", .from = &mine->lse, .to = &t->lse},
                                {ATTN_TAG_DELTA, "delta.heads", .from = delta, .to = &t->d_lse},
                                {ATTN_TAG_DQ, "dq.heads", .home = &mine->dq, .away = &t->dq},
                                {ATTN_TAG_DK, "dk.heads", .home = &mine->dk, .away = &t->dk},
                                {ATTN_TAG_DV, "dv.heads", .home = &mine->dv, .away = &t->dv}};
    memcpy(move, list, sizeof list);
}

static enum attn_status rank_forward(struct attn_rank *rank, const struct attn_problem *whole,
                                     const struct attn_forward *mine)
{
    struct attn_problem part = part_of(whole, rank->transport->size, rank->transport->rank);
    struct attn_forward t;
    struct move move[MOVES_FORWARD];
    struct attn_buffer buffer[BUFFERS] = {0};
    moves_forward(mine, &t, move);
    enum attn_status status = bring(rank, &part, move, MOVES_FORWARD, buffer);
    if (status == ATTN_OK)
        status = attn_rank_forward(rank, &part, &t);
    if (status == ATTN_OK)
        status = take_home(rank, &part, move, MOVES_FORWARD, buffer);
    attn_buffers_give(buffer, BUFFERS, rank->ledger);
    return status;
}

/* ---- D, the only thing the backward wants O for ---------------------------------------------- */

/* d = -D for the rows of a shard: d_i = dLSE_i - dO_i . O_i.  A row that sees no key has no
 * gradient, and its o and dO may hold anything. */
static void minus_delta_f32(const struct attn_backward *t, int64_t rows, int64_t n, float *d)
{
    const float *o = t->o.data, *d_o = t->d_o.data, *lse = t->lse.data, *d_lse = t->d_lse.data;
    for (int64_t i = 0; i < rows; i++) {
        float sum = 0;
        for (int64_t c = 0; c < n && lse[i] != -INFINITY; c++)
            sum += d_o[i * n + c] * o[i * n + c];
        d[i] = (d_lse != NULL && lse[i] != -INFINITY ? d_lse[i] : 0) - sum;
    }
}

static void minus_delta_f64(const struct attn_backward *t, int64_t rows, int64_t n, double *d)
{
    const double *o = t->o.data, *d_o = t->d_o.data, *lse = t->lse.data, *d_lse = t->d_lse.data;
    for (int64_t i = 0; i < rows; i++) {
        double sum = 0;
        for (int64_t c = 0; c < n && lse[i] != -HUGE_VAL; c++)
            sum += d_o[i * n + c] * o[i * n + c];
        d[i] = (d_lse != NULL && lse[i] != -HUGE_VAL ? d_lse[i] : 0) - sum;
    }
}

/* Beside the head shards: O = 0 for every row, in the memory of one; and D while it is sent. */
static struct attn_buffer zeros_of(const struct attn_problem *part)
{
    return attn_buffer_of("zeros", 1, part->d_value, (int64_t)attn_dtype_size(part->dtype));
}

static struct attn_buffer delta_of(const struct attn_problem *part)
{
    return attn_buffer_of("delta.shard", part->batch * part->heads, part->n_query,
                          (int64_t)attn_dtype_size(attn_lse_dtype(part)));
}

static enum attn_status rank_backward(struct attn_rank *rank, const struct attn_problem *whole,
                                      const struct attn_backward *mine)
{
    int ranks = rank->transport->size;
    struct attn_problem part = part_of(whole, ranks, rank->transport->rank);
    struct attn_buffer zeros = zeros_of(&part), minus_d = delta_of(&part), buffer[BUFFERS] = {0};
    struct attn_backward t = {0};
    struct attn_cview delta;
    struct move move[MOVES_BACKWARD];
    enum attn_status status = attn_buffers_take(&zeros, 1, rank->ledger, rank->error);
    if (status == ATTN_OK)
        status = attn_buffers_take(&minus_d, 1, rank->ledger, rank->error);
    if (status == ATTN_OK) {
        int64_t tokens = whole->n_query / ranks, rows = whole->batch * whole->heads * tokens;
        memset(zeros.data, 0, (size_t)(zeros.numbers * zeros.size));
        if (minus_d.size == 8)
            minus_delta_f64(mine, rows, whole->d_value, (double *)(void *)minus_d.data);
        else
            minus_delta_f32(mine, rows, whole->d_value, (float *)(void *)minus_d.data);
        t.o = (struct attn_cview){zeros.data, whole->dtype, {0, 0, 0, 1}};
        delta = attn_packed_cview(minus_d.data, attn_lse_dtype(whole), whole->heads, tokens, 1);
        moves_backward(mine, &delta, &t, move);
        status = bring(rank, &part, move, MOVES_BACKWARD, buffer);
    }
    attn_buffers_give(&minus_d, 1, rank->ledger); /* sent: nobody needs it any more */
    if (status == ATTN_OK)
        status = attn_rank_backward(rank, &part, &t);
    if (status == ATTN_OK)
        status = take_home(rank, &part, move, MOVES_BACKWARD, buffer);
    attn_buffers_give(buffer, BUFFERS, rank->ledger);
    attn_buffers_give(&zeros, 1, rank->ledger);
    return status;
}

/* ---- the record ----------------------------------------------------------------------------- */

static const struct attn_scheme scheme = {"ulysses", layout,       one_piece,
                                          piece,     rank_forward, rank_backward};

static const struct attn_option options_of[] = {ATTN_OPTION_OF_RANKS, ATTN_OPTION_OF_LOCAL, {0}};

static enum attn_status forward(struct attn_ctx *ctx, const struct attn_problem *p,
                                const struct attn_forward *t)
{
    return attn_parallel_forward(&scheme, ctx, p, t);
}

/* -D goes to the local implementation as dLSE, and O as one row with strides 0. */
enum { BACKWARD_CAPS = ATTN_CAP_BACKWARD | ATTN_CAP_DLSE | ATTN_CAP_STRIDES };

static enum attn_status backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                 const struct attn_backward *t)
{
    enum attn_status status =
        attn_parallel_claims("ulysses", ctx->options, BACKWARD_CAPS, ctx->error);
    return status == ATTN_OK ? attn_parallel_backward(&scheme, ctx, p, t) : status;
}

static enum attn_status accepts(const struct attn_problem *p, const struct attn_options *options,
                                struct attn_error *err)
{
    int ranks = attn_parallel_ranks(options);
    const struct attn_divisible of[] = {{"heads", p->heads},
                                        {"kv heads", p->kv_heads},
                                        {"queries", p->n_query},
                                        {"keys", p->n_key}};
    enum attn_status status = attn_shards_check("ulysses", "ranks", ranks, of, 4, err);
    return status == ATTN_OK ? attn_scheme_accepts(&scheme, p, options, err) : status;
}

static int64_t rescales(const struct attn_problem *p, const struct attn_options *options)
{
    return attn_scheme_rescales(&scheme, p, options);
}

static int64_t merges(const struct attn_problem *p, const struct attn_options *options)
{
    return attn_scheme_merges(&scheme, p, options);
}

/* The head shards are live from the first exchange to the last.  Beside them, in turn: delta's
 * token shard while it is sent (backward), then what the local implementation takes.  The larger of
 * the two makes the peak.  Of each tensor a rank keeps one P-th and sends the rest, a P-th to each
 * other rank. */
static enum attn_status cost(const struct attn_problem *p, const struct attn_options *options,
                             enum attn_pass pass, int rank, struct attn_cost *cost,
                             struct attn_error *err)
{
    int ranks = attn_parallel_ranks(options), n = MOVES_FORWARD;
    struct attn_problem part = part_of(p, ranks, rank);
    struct attn_buffer zeros = zeros_of(&part), delta = delta_of(&part);
    struct attn_forward forward_tensors = {0};
    struct attn_backward backward_tensors = {0};
    struct move move[MOVES_BACKWARD];
    struct attn_cost local;
    int64_t moved = 0, late = 1;
    enum attn_status status = ATTN_OK;
    if (pass == ATTN_BACKWARD)
        status = attn_parallel_claims("ulysses", options, BACKWARD_CAPS, err);
    if (status == ATTN_OK)
        status = attn_parallel_price(options, &part, pass, &local, err);
    if (status != ATTN_OK)
        return status;
    moves_forward(&forward_tensors, &forward_tensors, move);
    if (pass == ATTN_BACKWARD) {
        n = MOVES_BACKWARD;
        moves_backward(&backward_tensors, &backward_tensors.d_lse, &backward_tensors, move);
        status = attn_buffers_price(&zeros, 1, cost, err);
        late = local.peak_bytes > delta.parts * delta.numbers * delta.size;
        if (!late && status == ATTN_OK)
            status = attn_buffers_price(&delta, 1, cost, err);
    }
    for (int m = 0; m < n && status == ATTN_OK; m++) {
        struct attn_buffer shard = head_shard(&move[m], &part);
        status = attn_buffers_price(&shard, 1, cost, err);
        moved += shard.parts * shard.numbers * shard.size;
    }
    for (int i = 0; late && i < local.n_live && status == ATTN_OK; i++)
        status = attn_cost_add(cost, local.live[i].name, local.live[i].bytes, 1, err);
    cost->counted = local.counted;
    cost->flops = local.flops;
    if (pass == ATTN_BACKWARD) /* dO . O */
        cost->flops += 2.0 * (double)(part.batch * part.heads * part.n_query * part.d_value);
    cost->bytes_sent = moved / ranks * (ranks - 1);
    cost->messages = n * (ranks - 1);
    return status;
}

const struct attn_impl attn_impl_ulysses = {
    .name = "ulysses",
    .summary = "shards of tokens become shards of heads by all-to-all, and back",
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
