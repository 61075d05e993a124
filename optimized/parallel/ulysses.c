/* ulysses: change what is sharded.  Attention needs all keys of a head, but only one head at a
 * time, so an all-to-all turns shards of tokens into shards of heads:
 *
 *      [B, H, L/P, d]  --all-to-all-->  [B, H/P, L, d]  --attention-->  [B, H/P, L, dv]
 *                                                   --all-to-all-->  [B, H, L/P, dv]
 *
 * Nothing has to divide: a rank has a run of heads and a run of tokens, and runs differ by one.
 * Its kv heads are those that its heads read.  Where there are fewer kv heads than ranks, or a
 * rank's heads begin inside a group, a kv head goes to several ranks, and the gradients of these
 * copies are added by the owner of the tokens.  A run of heads that cuts groups is up to three
 * local calls: what is left of a group, whole groups, the beginning of one (40 heads of 8 kv heads
 * on 6 ranks: rank 2 has 1 + 5 + 1).  lse goes home with o.
 *
 * The backward takes q k v dO lse to the heads and brings dQ dK dV back.  It needs O only in
 *
 *      D_i = dO_i . O_i - dLSE_i
 *
 * which the owner of row i knows, so D travels in place of O (and of dLSE): one number a row
 * instead of dv.  The local implementation is told O = 0 (one row of zeros, stride 0) and dLSE =
 * -D, from which it computes 0 - (-D).
 *
 * Memory   forward: q k v o lse of the rank's heads, plus what the local implementation takes for
 *          them;
 *          backward: q k v dO lse D dQ dK dV of them, plus the same, and after it the gradients of
 *          copies that come home.
 * Sent     of q dO lse D to each other rank its heads, and as many of k v; of o lse dQ dK dV to
 *          each other rank its tokens: one message for each tensor and rank.
 * Caveats  Ranks beyond the number of heads have nothing to compute.  No bias tensor: a rank would
 *          need the [L, L] planes of its heads, which are nobody's shard of a sequence.
 * Source   Jacobs et al. 2023 (DeepSpeed-Ulysses); bugs SP-01 to SP-09.
 */
#include <math.h>
#include <string.h>

#include "optimized/integers.h"
#include "optimized/parallel/rank.h"
#include "ref/problem.h"

/* ---- who has what --------------------------------------------------------------------------- */

static struct attn_layout layout_of(const struct attn_options *options)
{
    return (struct attn_layout){ATTN_CONTIGUOUS, attn_parallel_ranks(options)};
}

static int64_t group_size(const struct attn_problem *p)
{
    return p->kv_heads > 0 ? p->heads / p->kv_heads : 1;
}

/* The kv heads that a run of heads reads. */
static struct attn_tokens kv_heads_of(const struct attn_problem *p, const struct attn_tokens *heads)
{
    int64_t m = group_size(p), first = heads->first / m;
    return (struct attn_tokens){first, 1, ceil_div(heads->first + heads->n, m) - first};
}

static int is_of_keys(enum attn_tag_kind kind)
{
    return kind == ATTN_TAG_K || kind == ATTN_TAG_V || kind == ATTN_TAG_DK || kind == ATTN_TAG_DV;
}

/* The heads that rank r computes with, of a tensor of this kind. */
static struct attn_tokens heads_of(const struct attn_problem *p, const struct attn_layout *layout,
                                   enum attn_tag_kind kind, int r)
{
    struct attn_tokens heads = attn_layout_stretch(layout, p->heads, r, 0);
    if (heads.n == 0)
        return (struct attn_tokens){0, 1, 0};
    return is_of_keys(kind) ? kv_heads_of(p, &heads) : heads;
}

static struct attn_tokens tokens_of(const struct attn_problem *p, const struct attn_layout *layout,
                                    enum attn_tag_kind kind, int r)
{
    return attn_layout_stretch(layout, is_of_keys(kind) ? p->n_key : p->n_query, r, 0);
}

/* Whether some kv head is computed with by several ranks. */
static int has_copies(const struct attn_problem *p, const struct attn_layout *layout)
{
    int64_t sum = 0;
    for (int r = 0; r < layout->ranks; r++)
        sum += heads_of(p, layout, ATTN_TAG_K, r).n;
    return sum > p->kv_heads;
}

/* Local call n of a rank: heads whose groups are whole, or lie in one group. */
enum { CALLS = 3 };

static struct attn_tokens call_heads(const struct attn_problem *p, const struct attn_layout *layout,
                                     int r, int n)
{
    struct attn_tokens all = attn_layout_stretch(layout, p->heads, r, 0);
    int64_t m = group_size(p), end = all.first + all.n;
    int64_t whole = less(ceil_div(all.first, m) * m, end), rest = greater(end / m * m, whole);
    const int64_t at[CALLS + 1] = {all.first, whole, rest, end};
    return (struct attn_tokens){at[n], 1, at[n + 1] - at[n]};
}

static struct attn_problem part_of(const struct attn_problem *whole,
                                   const struct attn_tokens *heads)
{
    struct attn_problem part = *whole;
    part.heads = heads->n;
    part.kv_heads = heads->n > 0 ? kv_heads_of(whole, heads).n : 0;
    part.origin.head += heads->first;
    part.scattered = 0; /* shards are packed */
    return part;
}

/* ---- the tensors of a pass ------------------------------------------------------------------ */

/* A tensor that is exchanged, and what its shard of heads is called. */
struct move {
    enum attn_tag_kind kind;
    const char *name;
    int goes_home; /* an output; inputs go to the heads */
};
static const struct move forward_moves[] = {{ATTN_TAG_Q, "q.heads", 0},
                                            {ATTN_TAG_K, "k.heads", 0},
                                            {ATTN_TAG_V, "v.heads", 0},
                                            {ATTN_TAG_O, "o.heads", 1},
                                            {ATTN_TAG_LSE, "lse.heads", 1}};
static const struct move backward_moves[] = {
    {ATTN_TAG_Q, "q.heads", 0},     {ATTN_TAG_K, "k.heads", 0},
    {ATTN_TAG_V, "v.heads", 0},     {ATTN_TAG_DO, "do.heads", 0},
    {ATTN_TAG_LSE, "lse.heads", 0}, {ATTN_TAG_DELTA, "delta.heads", 0},
    {ATTN_TAG_DQ, "dq.heads", 1},   {ATTN_TAG_DK, "dk.heads", 1},
    {ATTN_TAG_DV, "dv.heads", 1}};
enum {
    MOVES_FORWARD = sizeof forward_moves / sizeof *forward_moves,
    MOVES_BACKWARD = sizeof backward_moves / sizeof *backward_moves,
    BUFFERS = MOVES_BACKWARD
};

struct ulysses {
    struct attn_rank *rank;
    const struct attn_problem *whole;
    struct attn_layout layout;
    int r;
    const struct move *move;
    int n_moves;
    struct attn_view shard[ATTN_TAG_KINDS]; /* the rank's tokens of all heads */
    struct attn_view heads[ATTN_TAG_KINDS]; /* all tokens of the rank's heads */
    struct attn_buffer buffer[BUFFERS];     /* of move n */
};

static struct ulysses open_pass(struct attn_rank *rank, const struct attn_problem *whole,
                                enum attn_pass pass)
{
    struct ulysses x = {.rank = rank, .whole = whole, .r = rank->transport->rank};
    x.layout = layout_of(rank->options);
    x.move = pass == ATTN_FORWARD ? forward_moves : backward_moves;
    x.n_moves = pass == ATTN_FORWARD ? MOVES_FORWARD : MOVES_BACKWARD;
    return x;
}

/* Bytes of one row of one head. */
static int64_t row_bytes(const struct attn_problem *p, enum attn_tag_kind kind)
{
    int64_t extent[3];
    attn_tag_extent(kind, p, extent);
    return extent[2] * (int64_t)attn_dtype_size(attn_tag_dtype(kind, p));
}

static struct attn_buffer head_shard(const struct attn_problem *p, const struct attn_layout *layout,
                                     const struct move *move, int r)
{
    int64_t extent[3], heads = heads_of(p, layout, move->kind, r).n;
    attn_tag_extent(move->kind, p, extent);
    return attn_buffer_of(move->name, p->batch * heads * extent[1], extent[2],
                          (int64_t)attn_dtype_size(attn_tag_dtype(move->kind, p)));
}

/* ---- the exchange --------------------------------------------------------------------------- */

/* What goes between the owner of some tokens and the rank that computes some heads: [B, these
 * heads, these tokens] rows.  In the owner's shard [B, all heads, its tokens] its heads lie
 * together; in the other's [B, its heads, all tokens] it is all heads and a run of tokens. */
struct way {
    const struct ulysses *x;
    enum attn_tag_kind kind;
};

static struct attn_piece in_shard(const void *arg, int peer)
{
    const struct way *way = arg;
    const struct ulysses *x = way->x;
    struct attn_tokens heads = heads_of(x->whole, &x->layout, way->kind, peer);
    int64_t extent[3], tokens = tokens_of(x->whole, &x->layout, way->kind, x->r).n;
    int64_t row = row_bytes(x->whole, way->kind), head = tokens * row;
    attn_tag_extent(way->kind, x->whole, extent);
    return (struct attn_piece){
        heads.first * head, {x->whole->batch, heads.n, tokens}, {extent[0] * head, head, row}, row};
}

static struct attn_piece in_heads(const void *arg, int peer)
{
    const struct way *way = arg;
    const struct ulysses *x = way->x;
    struct attn_tokens tokens = tokens_of(x->whole, &x->layout, way->kind, peer);
    int64_t extent[3], heads = heads_of(x->whole, &x->layout, way->kind, x->r).n;
    int64_t row = row_bytes(x->whole, way->kind);
    attn_tag_extent(way->kind, x->whole, extent);
    int64_t head = extent[1] * row;
    return (struct attn_piece){
        tokens.first * row, {x->whole->batch, heads, tokens.n}, {heads * head, head, row}, row};
}

/* Gradients of copies: those of rank 0, of rank 1, ..., each packed. */
static struct attn_piece in_copies(const void *arg, int peer)
{
    const struct way *way = arg;
    const struct ulysses *x = way->x;
    int64_t tokens = tokens_of(x->whole, &x->layout, way->kind, x->r).n, before = 0;
    int64_t row = row_bytes(x->whole, way->kind), head = tokens * row;
    int64_t heads = heads_of(x->whole, &x->layout, way->kind, peer).n;
    for (int r = 0; r < peer; r++)
        before += heads_of(x->whole, &x->layout, way->kind, r).n;
    return (struct attn_piece){x->whole->batch * before * head,
                               {x->whole->batch, heads, tokens},
                               {heads * head, head, row},
                               row};
}

/* Take all shards of heads and fill those of the inputs. */
static enum attn_status bring(struct ulysses *x)
{
    for (int m = 0; m < x->n_moves; m++)
        x->buffer[m] = head_shard(x->whole, &x->layout, &x->move[m], x->r);
    enum attn_status status =
        attn_buffers_take(x->buffer, x->n_moves, x->rank->ledger, x->rank->error);
    for (int m = 0; m < x->n_moves && status == ATTN_OK; m++) {
        const struct way way = {x, x->move[m].kind};
        int64_t extent[3], heads = heads_of(x->whole, &x->layout, way.kind, x->r).n;
        attn_tag_extent(way.kind, x->whole, extent);
        x->heads[way.kind] = attn_packed_view(x->buffer[m].data, attn_tag_dtype(way.kind, x->whole),
                                              heads, extent[1], extent[2]);
        if (!x->move[m].goes_home)
            status = attn_all_to_all(x->rank->transport, attn_tag(way.kind, 0),
                                     &(struct attn_a2a){x->shard[way.kind].data, x->buffer[m].data,
                                                        in_shard, in_heads, &way},
                                     x->rank->error);
    }
    return status;
}

/* shard[b, heads of the copy, i, :] += copy[b, :, i, :] */
static void add_copy(const struct ulysses *x, const struct way *way, const char *copies, int peer)
{
    struct attn_piece from = in_copies(way, peer), to = in_shard(way, peer);
    const struct attn_view *shard = &x->shard[way->kind];
    const int64_t *n = from.extent, size = (int64_t)attn_dtype_size(shard->dtype);
    for (int64_t row = 0; row < n[0] * n[1] * n[2]; row++) {
        const int64_t at[3] = {row / n[2] / n[1], row / n[2] % n[1], row % n[2]};
        const char *source = copies + from.offset;
        char *sum = (char *)shard->data + to.offset;
        for (int axis = 0; axis < 3; axis++) {
            source += at[axis] * from.stride[axis];
            sum += at[axis] * to.stride[axis];
        }
        for (int64_t c = 0; c < from.row / size; c++)
            if (shard->dtype == ATTN_F64)
                ((double *)(void *)sum)[c] += ((const double *)(const void *)source)[c];
            else
                ((float *)(void *)sum)[c] += ((const float *)(const void *)source)[c];
    }
}

static struct attn_buffer copies_of(const struct attn_problem *p, const struct attn_layout *layout,
                                    enum attn_tag_kind kind, int r)
{
    int64_t heads = 0;
    for (int s = 0; s < layout->ranks; s++)
        heads += heads_of(p, layout, kind, s).n;
    return attn_buffer_of("copies", p->batch * heads * tokens_of(p, layout, kind, r).n,
                          row_bytes(p, kind), 1);
}

/* Gradients of copies come home and are added, in the order of the ranks. */
static enum attn_status sum_copies(struct ulysses *x, const struct move *move, const void *heads)
{
    const struct way way = {x, move->kind};
    struct attn_buffer copies = copies_of(x->whole, &x->layout, move->kind, x->r);
    const struct attn_view *shard = &x->shard[move->kind];
    int64_t tokens = tokens_of(x->whole, &x->layout, move->kind, x->r).n;
    int64_t bytes = x->whole->batch * x->whole->kv_heads * tokens * row_bytes(x->whole, move->kind);
    enum attn_status status = attn_buffers_take(&copies, 1, x->rank->ledger, x->rank->error);
    if (status == ATTN_OK)
        status = attn_all_to_all(x->rank->transport, attn_tag(move->kind, 1),
                                 &(struct attn_a2a){heads, copies.data, in_heads, in_copies, &way},
                                 x->rank->error);
    if (status == ATTN_OK)
        memset(shard->data, 0, (size_t)bytes);
    for (int peer = 0; peer < x->layout.ranks && status == ATTN_OK; peer++)
        add_copy(x, &way, copies.data, peer);
    attn_buffers_give(&copies, 1, x->rank->ledger);
    return status;
}

static enum attn_status take_home(struct ulysses *x)
{
    enum attn_status status = ATTN_OK;
    int copies = has_copies(x->whole, &x->layout);
    for (int m = 0; m < x->n_moves && status == ATTN_OK; m++) {
        const struct way way = {x, x->move[m].kind};
        if (!x->move[m].goes_home)
            continue;
        if (copies && is_of_keys(way.kind))
            status = sum_copies(x, &x->move[m], x->buffer[m].data);
        else
            status = attn_all_to_all(x->rank->transport, attn_tag(way.kind, 1),
                                     &(struct attn_a2a){x->buffer[m].data, x->shard[way.kind].data,
                                                        in_heads, in_shard, &way},
                                     x->rank->error);
    }
    return status;
}

static void give(struct ulysses *x)
{
    attn_buffers_give(x->buffer, BUFFERS, x->rank->ledger);
}

/* ---- forward -------------------------------------------------------------------------------- */

/* The heads of one local call, of a tensor that holds all of the rank's. */
static struct attn_view of_call(const struct ulysses *x, enum attn_tag_kind kind,
                                const struct attn_tokens *heads)
{
    struct attn_view view = x->heads[kind];
    int64_t mine = heads_of(x->whole, &x->layout, kind, x->r).first;
    int64_t first = is_of_keys(kind) ? kv_heads_of(x->whole, heads).first : heads->first;
    view.data =
        (char *)view.data + (first - mine) * view.stride[1] * (int64_t)attn_dtype_size(view.dtype);
    return view;
}

static struct attn_cview of_call_in(const struct ulysses *x, enum attn_tag_kind kind,
                                    const struct attn_tokens *heads)
{
    struct attn_view view = of_call(x, kind, heads);
    return attn_view_const(&view);
}

static enum attn_status rank_forward(struct attn_rank *rank, const struct attn_problem *whole,
                                     const struct attn_forward *mine)
{
    struct ulysses x = open_pass(rank, whole, ATTN_FORWARD);
    x.shard[ATTN_TAG_Q] = attn_view_input(&mine->q);
    x.shard[ATTN_TAG_K] = attn_view_input(&mine->k);
    x.shard[ATTN_TAG_V] = attn_view_input(&mine->v);
    x.shard[ATTN_TAG_O] = mine->o;
    x.shard[ATTN_TAG_LSE] = mine->lse;
    enum attn_status status = bring(&x);
    for (int n = 0; n < CALLS && status == ATTN_OK; n++) {
        struct attn_tokens heads = call_heads(whole, &x.layout, x.r, n);
        if (heads.n == 0)
            continue;
        struct attn_problem part = part_of(whole, &heads);
        struct attn_forward t = {
            of_call_in(&x, ATTN_TAG_Q, &heads), of_call_in(&x, ATTN_TAG_K, &heads),
            of_call_in(&x, ATTN_TAG_V, &heads), of_call(&x, ATTN_TAG_O, &heads),
            of_call(&x, ATTN_TAG_LSE, &heads)};
        status = attn_rank_forward(rank, &part, &t);
    }
    if (status == ATTN_OK)
        status = take_home(&x);
    give(&x);
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

/* Beside the shards of heads: O = 0 for every row, in the memory of one; and D while it is sent. */
static struct attn_buffer zeros_of(const struct attn_problem *p)
{
    return attn_buffer_of("zeros", 1, p->d_value, (int64_t)attn_dtype_size(p->dtype));
}

static struct attn_buffer delta_of(const struct attn_problem *p, const struct attn_layout *layout,
                                   int r)
{
    return attn_buffer_of("delta.shard", p->batch * p->heads,
                          tokens_of(p, layout, ATTN_TAG_DELTA, r).n,
                          (int64_t)attn_dtype_size(attn_lse_dtype(p)));
}

/* -D of the rank's rows, sent to the heads with all other inputs. */
static enum attn_status bring_with_delta(struct ulysses *x, const struct attn_backward *mine)
{
    struct attn_buffer minus_d = delta_of(x->whole, &x->layout, x->r);
    int64_t rows = minus_d.parts * minus_d.numbers;
    enum attn_status status = attn_buffers_take(&minus_d, 1, x->rank->ledger, x->rank->error);
    if (status == ATTN_OK) {
        if (minus_d.size == 8)
            minus_delta_f64(mine, rows, x->whole->d_value, (double *)(void *)minus_d.data);
        else
            minus_delta_f32(mine, rows, x->whole->d_value, (float *)(void *)minus_d.data);
        x->shard[ATTN_TAG_DELTA].data = minus_d.data;
        status = bring(x);
    }
    attn_buffers_give(&minus_d, 1, x->rank->ledger); /* sent: nobody needs it any more */
    return status;
}

static enum attn_status call_backward(struct ulysses *x, const struct attn_tokens *heads,
                                      const void *zeros)
{
    struct attn_problem part = part_of(x->whole, heads);
    struct attn_backward t = {.q = of_call_in(x, ATTN_TAG_Q, heads),
                              .k = of_call_in(x, ATTN_TAG_K, heads),
                              .v = of_call_in(x, ATTN_TAG_V, heads),
                              .o = {zeros, x->whole->dtype, {0, 0, 0, 1}},
                              .lse = of_call_in(x, ATTN_TAG_LSE, heads),
                              .d_o = of_call_in(x, ATTN_TAG_DO, heads),
                              .d_lse = of_call_in(x, ATTN_TAG_DELTA, heads),
                              .dq = of_call(x, ATTN_TAG_DQ, heads),
                              .dk = of_call(x, ATTN_TAG_DK, heads),
                              .dv = of_call(x, ATTN_TAG_DV, heads)};
    return attn_rank_backward(x->rank, &part, &t);
}

static enum attn_status rank_backward(struct attn_rank *rank, const struct attn_problem *whole,
                                      const struct attn_backward *mine)
{
    struct ulysses x = open_pass(rank, whole, ATTN_BACKWARD);
    struct attn_buffer zeros = zeros_of(whole);
    x.shard[ATTN_TAG_Q] = attn_view_input(&mine->q);
    x.shard[ATTN_TAG_K] = attn_view_input(&mine->k);
    x.shard[ATTN_TAG_V] = attn_view_input(&mine->v);
    x.shard[ATTN_TAG_DO] = attn_view_input(&mine->d_o);
    x.shard[ATTN_TAG_LSE] = attn_view_input(&mine->lse);
    x.shard[ATTN_TAG_DQ] = mine->dq;
    x.shard[ATTN_TAG_DK] = mine->dk;
    x.shard[ATTN_TAG_DV] = mine->dv;
    enum attn_status status = attn_buffers_take(&zeros, 1, rank->ledger, rank->error);
    if (status == ATTN_OK) {
        memset(zeros.data, 0, (size_t)(zeros.numbers * zeros.size));
        status = bring_with_delta(&x, mine);
    }
    for (int n = 0; n < CALLS && status == ATTN_OK; n++) {
        struct attn_tokens heads = call_heads(whole, &x.layout, x.r, n);
        if (heads.n > 0)
            status = call_backward(&x, &heads, zeros.data);
    }
    if (status == ATTN_OK)
        status = take_home(&x);
    give(&x);
    attn_buffers_give(&zeros, 1, rank->ledger);
    return status;
}

/* ---- the record ----------------------------------------------------------------------------- */

static int pieces(const struct attn_options *options)
{
    (void)options;
    return CALLS;
}

static struct attn_problem piece(const struct attn_problem *whole,
                                 const struct attn_options *options, int rank, int n)
{
    struct attn_layout layout = layout_of(options);
    struct attn_tokens heads = call_heads(whole, &layout, rank, n);
    return part_of(whole, &heads);
}

static const struct attn_scheme scheme = {"ulysses", layout_of,    pieces,
                                          piece,     rank_forward, rank_backward};

static const struct attn_option options_of[] = {
    ATTN_OPTION_OF_RANKS, ATTN_OPTION_OF_LOCAL, ATTN_OPTION_OF_SIZES, {0}};

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

/* Groups that are cut make calls with a part of the rank's heads. */
static enum attn_status accepts(const struct attn_problem *p, const struct attn_options *options,
                                struct attn_error *err)
{
    struct attn_layout layout = layout_of(options);
    const struct attn_divisible of[] = {{"heads", p->heads},
                                        {"kv heads", p->kv_heads},
                                        {"queries", p->n_query},
                                        {"keys", p->n_key}};
    enum attn_status status = attn_parallel_divides("ulysses", options, of, 4, err);
    for (int r = 0; r < layout.ranks && status == ATTN_OK; r++)
        for (int n = 0; n < CALLS && status == ATTN_OK; n++) {
            int64_t heads = call_heads(p, &layout, r, n).n;
            if (heads > 0 && heads < attn_layout_tokens(&layout, p->heads, r))
                status = attn_parallel_claims("ulysses", options, ATTN_CAP_STRIDES, err);
        }
    return status == ATTN_OK ? attn_scheme_accepts(&scheme, p, options, err) : status;
}

static int64_t rescales(const struct attn_problem *p, const struct attn_options *options)
{
    return attn_scheme_rescales(&scheme, p, options);
}

/* The gradients of copies are added one by one. */
static int64_t merges(const struct attn_problem *p, const struct attn_options *options)
{
    struct attn_layout layout = layout_of(options);
    return attn_scheme_merges(&scheme, p, options) +
           (has_copies(p, &layout) ? layout.ranks - 1 : 0);
}

/* Of a rank's local calls: flops add up, and of the live sets the largest counts. */
static enum attn_status price_calls(const struct attn_problem *p,
                                    const struct attn_options *options, enum attn_pass pass,
                                    int rank, struct attn_cost *largest, struct attn_error *err)
{
    struct attn_layout layout = layout_of(options);
    enum attn_status status = ATTN_OK;
    double flops = 0;
    memset(largest, 0, sizeof *largest);
    for (int n = 0; n < CALLS && status == ATTN_OK; n++) {
        struct attn_tokens heads = call_heads(p, &layout, rank, n);
        struct attn_problem part = part_of(p, &heads);
        struct attn_cost local;
        if (heads.n == 0)
            continue;
        status = attn_parallel_price(options, &part, pass, &local, err);
        if (status != ATTN_OK)
            return status;
        flops += local.flops;
        local.counted |= largest->counted;
        if (local.peak_bytes > largest->peak_bytes)
            *largest = local;
        largest->counted = local.counted;
    }
    largest->flops = flops;
    return status;
}

/* Bytes of one tensor that a rank sends: its tokens of all heads but its own, each as often as
 * there are ranks that read it; or its heads of all tokens but its own. */
static int64_t bytes_sent(const struct attn_problem *p, const struct attn_layout *layout,
                          const struct move *move, int r)
{
    int64_t extent[3], tokens = tokens_of(p, layout, move->kind, r).n, elsewhere = 0;
    attn_tag_extent(move->kind, p, extent);
    for (int s = 0; s < layout->ranks; s++)
        elsewhere += s == r ? 0 : heads_of(p, layout, move->kind, s).n;
    int64_t rows = move->goes_home ? heads_of(p, layout, move->kind, r).n * (extent[1] - tokens)
                                   : elsewhere * tokens;
    return p->batch * rows * row_bytes(p, move->kind);
}

/* The shards of heads are live from the first exchange to the last.  Beside them, in turn: D's
 * shard of tokens while it is sent (backward), what the local implementation takes, the gradients
 * of copies of K, then of V.  The largest of these makes the peak, the first of them in a tie. */
static enum attn_status price_beside(const struct attn_problem *p,
                                     const struct attn_options *options, enum attn_pass pass,
                                     int rank, struct attn_cost *cost, struct attn_error *err)
{
    struct attn_layout layout = layout_of(options);
    struct attn_buffer zeros = zeros_of(p), late[3] = {delta_of(p, &layout, rank)};
    struct attn_cost local;
    enum attn_status status = price_calls(p, options, pass, rank, &local, err);
    cost->flops = local.flops;
    cost->counted = local.counted;
    if (status == ATTN_OK && pass == ATTN_BACKWARD) {
        int largest = 0, copies = has_copies(p, &layout) ? 2 : 0;
        int64_t most = late[0].parts * late[0].numbers * late[0].size;
        late[1] = copies_of(p, &layout, ATTN_TAG_DK, rank);
        late[2] = copies_of(p, &layout, ATTN_TAG_DV, rank);
        cost->flops += 2.0 * (double)(late[0].parts * late[0].numbers * p->d_value); /* dO . O */
        if (local.peak_bytes > most)
            largest = -1, most = local.peak_bytes;
        for (int n = 1; n <= copies; n++)
            if (late[n].parts * late[n].numbers > most)
                largest = n, most = late[n].parts * late[n].numbers;
        for (int n = 1; n <= copies; n++)
            cost->flops +=
                (double)(late[n].parts * late[n].numbers) / (double)attn_dtype_size(p->dtype);
        status = attn_buffers_price(&zeros, 1, cost, err);
        if (status == ATTN_OK && largest >= 0)
            status = attn_buffers_price(&late[largest], 1, cost, err);
        if (largest >= 0)
            return status;
    }
    for (int i = 0; i < local.n_live && status == ATTN_OK; i++)
        status = attn_cost_add(cost, local.live[i].name, local.live[i].bytes, 1, err);
    return status;
}

static enum attn_status cost(const struct attn_problem *p, const struct attn_options *options,
                             enum attn_pass pass, int rank, struct attn_cost *cost,
                             struct attn_error *err)
{
    struct attn_layout layout = layout_of(options);
    const struct move *move = pass == ATTN_FORWARD ? forward_moves : backward_moves;
    int n = pass == ATTN_FORWARD ? MOVES_FORWARD : MOVES_BACKWARD;
    enum attn_status status = ATTN_OK;
    if (pass == ATTN_BACKWARD)
        status = attn_parallel_claims("ulysses", options, BACKWARD_CAPS, err);
    for (int m = 0; m < n && status == ATTN_OK; m++) {
        struct attn_buffer shard = head_shard(p, &layout, &move[m], rank);
        status = attn_buffers_price(&shard, 1, cost, err);
        cost->bytes_sent += bytes_sent(p, &layout, &move[m], rank);
    }
    cost->messages = (int64_t)n * (layout.ranks - 1);
    cost->shard_bytes = attn_shard_bytes(p, &layout, pass, rank);
    return status == ATTN_OK ? price_beside(p, options, pass, rank, cost, err) : status;
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
