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

static enum attn_dtype lse_dtype(const struct attn_problem *p)
{
    return p->dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
}

/* ---- the exchange --------------------------------------------------------------------------- */

/* One tensor on its way.  heads: of a rank; tokens: of a rank; row: bytes of one token. */
struct layout {
    int64_t batch, heads, tokens, row;
};

/* The piece that goes between two ranks is [B, H/P, L/P] rows on both sides: in a token shard
 * [B, H, L/P] its heads lie together and its tokens are all of the shard's; in a head shard
 * [B, H/P, L] it is all heads, and a run of L/P tokens in each. */
static struct attn_piece in_token_shard(const struct layout *l, int ranks)
{
    int64_t head = l->tokens * l->row;
    return (struct attn_piece){
        {l->batch, l->heads, l->tokens}, {ranks * l->heads * head, head, l->row}, l->row};
}

static struct attn_piece in_head_shard(const struct layout *l, int ranks)
{
    int64_t head = ranks * l->tokens * l->row;
    return (struct attn_piece){
        {l->batch, l->heads, l->tokens}, {l->heads * head, head, l->row}, l->row};
}

static enum attn_status to_heads(struct attn_rank *rank, enum attn_tag_kind kind,
                                 const struct layout *l, const void *shard, void *heads)
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
                                  const struct layout *l, const void *heads, void *shard)
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

/* A tensor that is exchanged: its token shard, and the view of its head shard.  Inputs have the
 * const pair, outputs the other. */
struct move {
    enum attn_tag_kind kind;
    const char *name; /* of the head shard's buffer */
    const struct attn_cview *from;
    struct attn_cview *to;
    const struct attn_view *home;
    struct attn_view *away;
    struct layout layout;
    void *heads;
};

static void measure(struct move *m, const struct attn_problem *part, int ranks, int64_t extent[3])
{
    enum attn_tag_kind kind = m->kind;
    int of_keys =
        kind == ATTN_TAG_K || kind == ATTN_TAG_V || kind == ATTN_TAG_DK || kind == ATTN_TAG_DV;
    int of_lse = kind == ATTN_TAG_LSE || kind == ATTN_TAG_DELTA;
    int of_features =
        kind == ATTN_TAG_Q || kind == ATTN_TAG_K || kind == ATTN_TAG_DQ || kind == ATTN_TAG_DK;
    enum attn_dtype dtype = m->from != NULL ? m->from->dtype : m->home->dtype;
    extent[0] = of_keys ? part->kv_heads : part->heads;
    extent[1] = of_keys ? part->n_key : part->n_query;
    extent[2] = of_lse ? 1 : of_features ? part->d_key : part->d_value;
    m->layout = (struct layout){part->batch, extent[0], extent[1] / ranks,
                                extent[2] * (int64_t)attn_dtype_size(dtype)};
}

/* Take all head shards and fill those of the inputs. */
static enum attn_status bring(struct attn_rank *rank, const struct attn_problem *part,
                              struct move *move, int n)
{
    int ranks = rank->transport->size;
    for (int m = 0; m < n; m++) {
        struct move *x = &move[m];
        int64_t extent[3];
        measure(x, part, ranks, extent);
        const struct layout *l = &x->layout;
        x->heads = attn_rank_take(rank, x->name, l->batch * l->heads * l->tokens * ranks, l->row);
        if (x->heads == NULL)
            return rank->error->status;
        if (x->from != NULL)
            *x->to = attn_packed_cview(x->heads, x->from->dtype, extent[0], extent[1], extent[2]);
        else
            *x->away = attn_packed_view(x->heads, x->home->dtype, extent[0], extent[1], extent[2]);
    }
    enum attn_status status = ATTN_OK;
    for (int m = 0; m < n && status == ATTN_OK; m++)
        if (move[m].from != NULL)
            status =
                to_heads(rank, move[m].kind, &move[m].layout, move[m].from->data, move[m].heads);
    return status;
}

static enum attn_status take_home(struct attn_rank *rank, const struct move *move, int n)
{
    enum attn_status status = ATTN_OK;
    for (int m = 0; m < n && status == ATTN_OK; m++)
        if (move[m].home != NULL)
            status =
                to_tokens(rank, move[m].kind, &move[m].layout, move[m].heads, move[m].home->data);
    return status;
}

static void give_all(struct attn_rank *rank, struct move *move, int n)
{
    for (int m = n - 1; m >= 0; m--)
        attn_rank_give(rank, move[m].heads);
}

static enum attn_status rank_forward(struct attn_rank *rank, const struct attn_problem *whole,
                                     const struct attn_forward *mine)
{
    struct attn_problem part = part_of(whole, rank->transport->size, rank->transport->rank);
    struct attn_forward t;
    struct move move[] = {{ATTN_TAG_Q, "q.heads", .from = &mine->q, .to = &t.q},
                          {ATTN_TAG_K, "k.heads", .from = &mine->k, .to = &t.k},
                          {ATTN_TAG_V, "v.heads", .from = &mine->v, .to = &t.v},
                          {ATTN_TAG_O, "o.heads", .home = &mine->o, .away = &t.o},
                          {ATTN_TAG_LSE, "lse.heads", .home = &mine->lse, .away = &t.lse}};
    int n = (int)(sizeof move / sizeof *move);
    enum attn_status status = bring(rank, &part, move, n);
    if (status == ATTN_OK)
        status = attn_rank_forward(rank, &part, &t);
    if (status == ATTN_OK)
        status = take_home(rank, move, n);
    give_all(rank, move, n);
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

static enum attn_status take_delta(struct attn_rank *rank, const struct attn_problem *whole,
                                   const struct attn_backward *mine, struct attn_cview *delta)
{
    int64_t tokens = whole->n_query / rank->transport->size;
    int64_t rows = whole->batch * whole->heads * tokens;
    enum attn_dtype dtype = lse_dtype(whole);
    void *d = attn_rank_take(rank, "delta.shard", rows, (int64_t)attn_dtype_size(dtype));
    if (d == NULL)
        return rank->error->status;
    if (dtype == ATTN_F64)
        minus_delta_f64(mine, rows, whole->d_value, d);
    else
        minus_delta_f32(mine, rows, whole->d_value, d);
    *delta = attn_packed_cview(d, dtype, whole->heads, tokens, 1);
    return ATTN_OK;
}

/* O = 0 for every row, in the memory of one. */
static enum attn_status take_zeros(struct attn_rank *rank, const struct attn_problem *whole,
                                   struct attn_cview *o)
{
    int64_t size = (int64_t)attn_dtype_size(whole->dtype);
    void *zeros = attn_rank_take(rank, "zeros", whole->d_value, size);
    if (zeros == NULL)
        return rank->error->status;
    memset(zeros, 0, (size_t)(whole->d_value * size));
    *o = (struct attn_cview){zeros, whole->dtype, {0, 0, 0, 1}};
    return ATTN_OK;
}

static enum attn_status rank_backward(struct attn_rank *rank, const struct attn_problem *whole,
                                      const struct attn_backward *mine)
{
    struct attn_problem part = part_of(whole, rank->transport->size, rank->transport->rank);
    struct attn_backward t = {0};
    struct attn_cview delta = {0};
    struct move move[] = {{ATTN_TAG_Q, "q.heads", .from = &mine->q, .to = &t.q},
                          {ATTN_TAG_K, "k.heads", .from = &mine->k, .to = &t.k},
                          {ATTN_TAG_V, "v.heads", .from = &mine->v, .to = &t.v},
                          {ATTN_TAG_DO, "do.heads", .from = &mine->d_o, .to = &t.d_o},
                          {ATTN_TAG_LSE, "lse.heads", .from = &mine->lse, .to = &t.lse},
                          {ATTN_TAG_DELTA, "delta.heads", .from = &delta, .to = &t.d_lse},
                          {ATTN_TAG_DQ, "dq.heads", .home = &mine->dq, .away = &t.dq},
                          {ATTN_TAG_DK, "dk.heads", .home = &mine->dk, .away = &t.dk},
                          {ATTN_TAG_DV, "dv.heads", .home = &mine->dv, .away = &t.dv}};
    int n = (int)(sizeof move / sizeof *move);
    enum attn_status status = take_zeros(rank, whole, &t.o);
    if (status == ATTN_OK)
        status = take_delta(rank, whole, mine, &delta);
    if (status == ATTN_OK)
        status = bring(rank, &part, move, n);
    attn_rank_give(rank, (void *)(uintptr_t)delta.data); /* sent: nobody needs it any more */
    if (status == ATTN_OK)
        status = attn_rank_backward(rank, &part, &t);
    if (status == ATTN_OK)
        status = take_home(rank, move, n);
    give_all(rank, move, n);
    attn_rank_give(rank, (void *)(uintptr_t)t.o.data);
    return status;
}

/* ---- the record ----------------------------------------------------------------------------- */

static const struct attn_scheme scheme = {rank_forward, rank_backward};

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
    enum attn_status status = attn_shards_check("ulysses", ranks, of, 4, err);
    for (int r = 0; r < ranks && status == ATTN_OK; r++) {
        struct attn_problem part = part_of(p, ranks, r);
        status = attn_parallel_accepts("ulysses", options, &part, err);
    }
    return status;
}

/* The local implementation's, of the rank that has most. */
static int64_t rescales(const struct attn_problem *p, const struct attn_options *options)
{
    int ranks = attn_parallel_ranks(options);
    int64_t most = 0;
    for (int r = 0; r < ranks; r++) {
        struct attn_problem part = part_of(p, ranks, r);
        int64_t n = attn_parallel_rescales(options, &part);
        most = n > most ? n : most;
    }
    return most;
}

static int64_t merges(const struct attn_problem *p, const struct attn_options *options)
{
    int ranks = attn_parallel_ranks(options);
    int64_t most = 0;
    for (int r = 0; r < ranks; r++) {
        struct attn_problem part = part_of(p, ranks, r);
        int64_t n = attn_parallel_merges(options, &part);
        most = n > most ? n : most;
    }
    return most;
}

/* Elements of a rank's head shards, and what a feature, and a number of lse's type, take. */
struct sizes {
    int64_t rows, q, k, v, o, e, e_lse;
};

static struct sizes sizes_of(const struct attn_problem *part)
{
    int64_t rows = part->batch * part->heads * part->n_query;
    int64_t kv_rows = part->batch * part->kv_heads * part->n_key;
    return (struct sizes){.rows = rows,
                          .q = rows * part->d_key,
                          .k = kv_rows * part->d_key,
                          .v = kv_rows * part->d_value,
                          .o = rows * part->d_value,
                          .e = (int64_t)attn_dtype_size(part->dtype),
                          .e_lse = (int64_t)attn_dtype_size(lse_dtype(part))};
}

/* The head shards are live from the first exchange to the last.  Beside them, in turn: delta's
 * token shard while it is sent (backward), then what the local implementation takes.  The larger of
 * the two makes the peak. */
static enum attn_status add_live(const struct attn_problem *part, const struct sizes *n,
                                 enum attn_pass pass, const struct attn_cost *local,
                                 struct attn_cost *cost, struct attn_error *err)
{
    int64_t b = pass == ATTN_BACKWARD, f = !b;
    int late = !b || local->peak_bytes > n->rows * n->e_lse;
    const struct {
        const char *name;
        int64_t count, size;
    } held[] = {{"zeros", b * part->d_value, n->e},
                {"delta.shard", late ? 0 : n->rows, n->e_lse},
                {"q.heads", n->q, n->e},
                {"k.heads", n->k, n->e},
                {"v.heads", n->v, n->e},
                {"o.heads", f * n->o, n->e},
                {"do.heads", b * n->o, n->e},
                {"lse.heads", n->rows, n->e_lse},
                {"delta.heads", b * n->rows, n->e_lse},
                {"dq.heads", b * n->q, n->e},
                {"dk.heads", b * n->k, n->e},
                {"dv.heads", b * n->v, n->e}};
    enum attn_status status = ATTN_OK;
    for (size_t i = 0; i < sizeof held / sizeof *held && status == ATTN_OK; i++)
        status = attn_cost_add(cost, held[i].name, held[i].count, held[i].size, err);
    for (int i = 0; late && i < local->n_live && status == ATTN_OK; i++)
        status = attn_cost_add(cost, local->live[i].name, local->live[i].bytes, 1, err);
    return status;
}

static enum attn_status cost(const struct attn_problem *p, const struct attn_options *options,
                             enum attn_pass pass, int rank, struct attn_cost *cost,
                             struct attn_error *err)
{
    int ranks = attn_parallel_ranks(options);
    struct attn_problem part = part_of(p, ranks, rank);
    struct sizes n = sizes_of(&part);
    struct attn_cost local;
    enum attn_status status = ATTN_OK;
    if (pass == ATTN_BACKWARD)
        status = attn_parallel_claims("ulysses", options, BACKWARD_CAPS, err);
    if (status == ATTN_OK)
        status = attn_parallel_price(options, &part, pass, &local, err);
    if (status == ATTN_OK)
        status = add_live(&part, &n, pass, &local, cost, err);
    if (status != ATTN_OK)
        return status;
    cost->counted = local.counted;
    /* of each tensor a rank keeps one P-th and sends the rest, a P-th to each other rank */
    if (pass == ATTN_FORWARD) {
        cost->flops = local.flops;
        cost->bytes_sent = (n.q + n.k + n.v + n.o) / ranks * n.e + n.rows / ranks * n.e_lse;
        cost->messages = 5;
    } else {
        cost->flops = local.flops + 2.0 * (double)n.o; /* dO . O */
        cost->bytes_sent =
            (2 * n.q + 2 * n.k + 2 * n.v + n.o) / ranks * n.e + 2 * n.rows / ranks * n.e_lse;
        cost->messages = 9;
    }
    cost->bytes_sent *= ranks - 1;
    cost->messages *= ranks - 1;
    return ATTN_OK;
}

const struct attn_impl attn_impl_ulysses = {
    .name = "ulysses",
    .summary = "shards of tokens become shards of heads by all-to-all, and back",
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
