/* A layer on simulated ranks: the two passes of one rank, line by line as layer_scheme.h has them,
 * and the driver. */
#include <string.h>

#include "experiments/rim/layer/schemes/layer_work.h"
#include "optimized/parallel/rank.h"
#include "ref/clock.h"

/* x y dx dy, and weights and their gradients, each in the order of ATTN_WEIGHT_Q ... */
enum { X, Y, DY, DX, W, DW = W + ATTN_WEIGHTS, TENSORS = DW + ATTN_WEIGHTS };

/* One rank: its shards, its buffers. */
struct member {
    struct attn_rank *rank;
    const struct attn_layer_work *w;
    struct attn_buffer buffer[ATTN_LAYER_BUFFERS];
    void *mine[TENSORS];
    int step; /* of messages */
};

/* ---- buffers and moves ----------------------------------------------------------------------- */

static enum attn_status take(struct member *m, int first, int n)
{
    return attn_buffers_take(m->buffer + first, n, m->rank->ledger, m->rank->error);
}

static void give(struct member *m, int first, int n)
{
    attn_buffers_give(m->buffer + first, n, m->rank->ledger);
}

static void clear(void *data, int64_t numbers, enum attn_dtype dtype)
{
    if (numbers > 0)
        memset(data, 0, (size_t)numbers * attn_dtype_size(dtype));
}

static void clear_buffer(struct attn_buffer *x)
{
    if (x->name != NULL && x->parts * x->numbers > 0)
        memset(x->data, 0, (size_t)attn_buffer_bytes(x));
}

/* Each element has one source, or several that are added up. */
static enum attn_status carry(struct member *m, const char *name, struct attn_move move, void *from,
                              void *to, int sums)
{
    struct attn_buffer *copies = &m->buffer[ATTN_MOMENT_COPIES];
    struct attn_transport *t = m->rank->transport;
    void *lists = m->buffer[ATTN_PASS_LISTS].data;
    move.from.data = from;
    move.to.data = to;
    move.step = m->step++;
    t->tensor = name;
    enum attn_status status = ATTN_OK;
    if (sums) {
        *copies = attn_move_copies(&move, m->w->rank);
        status = take(m, ATTN_MOMENT_COPIES, 1);
    }
    if (status == ATTN_OK)
        status = sums ? attn_move_sum(&move, t, lists, copies->data, m->rank->error)
                      : attn_move(&move, t, lists, m->rank->error);
    give(m, ATTN_MOMENT_COPIES, 1);
    *copies = (struct attn_buffer){0};
    t->tensor = NULL;
    return status;
}

/* From all of x, y or a gradient to a rank's own tokens: nothing travels. */
static void split(struct member *m, void *from, void *to)
{
    struct attn_move move = attn_layer_tokens_move(m->w, &m->w->all, &m->w->home);
    move.from.data = from;
    move.to.data = to;
    attn_move_own(&move, m->w->rank, m->buffer[ATTN_PASS_LISTS].data);
}

static enum attn_status gather(struct member *m, const char *name, void *from, void *to)
{
    return carry(m, name, attn_layer_tokens_move(m->w, &m->w->home, &m->w->all), from, to, 0);
}

/* x := x times / over */
static void scale(void *x, enum attn_dtype dtype, int64_t n, int times, int over)
{
    struct attn_view view = {x, dtype, {0, 0, 0, 1}};
    for (int64_t i = 0; i < n; i++)
        attn_view_set(&view, 0, 0, 0, i, attn_view_get(&view, 0, 0, 0, i) * times / over);
}

/* ---- views ----------------------------------------------------------------------------------- */

static struct attn_view tokens_in(const struct member *m, const struct attn_layout *layout, void *x)
{
    struct attn_layer_part n = attn_layer_part_of(m->w, layout);
    return attn_layer_tokens(x, m->w->layer->dtype, n.tokens, n.hidden);
}

/* Of q, k, v, o, lse and their gradients, of these tokens and heads. */
static struct attn_view heads_in(const struct member *m, const struct attn_layout *layout, int t,
                                 int buffer)
{
    struct attn_layer_part n = attn_layer_part_of(m->w, layout);
    int of_keys = t == ATTN_LAYER_K || t == ATTN_LAYER_V;
    int64_t width = t == ATTN_LAYER_LSE                      ? 1
                    : t == ATTN_LAYER_Q || t == ATTN_LAYER_K ? n.d_key
                                                             : n.d_value;
    return attn_packed_view(m->buffer[buffer].data, m->w->layer->dtype,
                            of_keys ? n.kv_heads : n.heads, n.tokens, width);
}

/* q, k, v, o and lse, which the forward pass keeps. */
static void kept_views(const struct member *m, struct attn_view t[ATTN_TAG_KINDS])
{
    static const enum attn_tag_kind kind[ATTN_LAYER_KEPT] = {[ATTN_LAYER_Q] = ATTN_TAG_Q,
                                                             [ATTN_LAYER_K] = ATTN_TAG_K,
                                                             [ATTN_LAYER_V] = ATTN_TAG_V,
                                                             [ATTN_LAYER_O] = ATTN_TAG_O,
                                                             [ATTN_LAYER_LSE] = ATTN_TAG_LSE};
    for (int k = 0; k < ATTN_LAYER_KEPT; k++)
        t[kind[k]] = heads_in(m, &m->w->made, k, k);
}

/* A rank's heads of a weight, one contiguous matrix after another. */
static struct attn_view weight_in(const struct member *m, int first, int weight)
{
    const struct attn_layer *l = m->w->layer;
    int64_t rows = weight == ATTN_WEIGHT_O ? l->d_value : l->hidden;
    int64_t columns = weight == ATTN_WEIGHT_O   ? l->hidden
                      : weight == ATTN_WEIGHT_V ? l->d_value
                                                : l->d_key;
    return (struct attn_view){m->mine[first + weight], l->dtype, {0, rows * columns, columns, 1}};
}

static struct attn_layer_weights weights_in(const struct member *m, int first)
{
    return (struct attn_layer_weights){weight_in(m, first, 0), weight_in(m, first, 1),
                                       weight_in(m, first, 2), weight_in(m, first, 3)};
}

static int counts(const struct member *m)
{
    return attn_transport_counts(m->rank->transport);
}

/* x of the rank's tokens. */
static void *own_x(const struct member *m)
{
    return m->buffer[ATTN_KEPT_X].name != NULL ? m->buffer[ATTN_KEPT_X].data : m->mine[X];
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Bring x to where it is projected: *at.  The forward pass kept an x that was exchanged. */
static enum attn_status bring_x(struct member *m, int again, void **at)
{
    const struct attn_layer_work *w = m->w;
    int buffer = w->gathers_x ? ATTN_MOMENT_X : ATTN_KEPT_X_IN;
    enum attn_status status = ATTN_OK;
    *at = own_x(m);
    if (!w->moves_x)
        return ATTN_OK;
    if (w->gathers_x)
        status = take(m, ATTN_MOMENT_X, 1);
    *at = m->buffer[buffer].data;
    if (status == ATTN_OK && (w->gathers_x || !again))
        status = carry(m, "x", attn_layer_tokens_move(w, &w->home, &w->in), own_x(m), *at, 0);
    return status;
}

/* Q_h = X Wq_h of the rank's heads, and so K, V; then O = attention(Q, K, V). */
static enum attn_status attend(struct member *m)
{
    const struct attn_layer_work *w = m->w;
    const struct attn_layer_part n = attn_layer_part_of(w, &w->made);
    const struct attn_layer_weights weights = weights_in(m, W);
    struct attn_view t[ATTN_TAG_KINDS] = {0};
    void *x;
    enum attn_status status = bring_x(m, 0, &x);
    kept_views(m, t);
    if (status == ATTN_OK && !counts(m)) {
        const struct attn_view tokens = tokens_in(m, &w->in, x);
        for (int k = 0; k < ATTN_LAYER_O; k++)
            clear_buffer(&m->buffer[k]);
        attn_layer_project(&n, &tokens, &weights, t);
    }
    give(m, ATTN_MOMENT_X, 1);
    return status == ATTN_OK ? attn_travel(m->rank, &w->attention, ATTN_FORWARD, t) : status;
}

/* Y = sum_h O_h Wo_h of the heads that the rank has where it merges; then y goes home. */
static enum attn_status merge(struct member *m, void *y)
{
    const struct attn_layer_work *w = m->w;
    const struct attn_layout *tokens = w->moves_y ? &w->in : &w->home;
    const struct attn_layer_part n = attn_layer_part_of(w, &w->merged);
    const struct attn_layer_weights weights = weights_in(m, W);
    int from = w->moves_o ? ATTN_KEPT_O : ATTN_LAYER_O;
    enum attn_status status = ATTN_OK;
    if (w->moves_o)
        status = carry(m, "o", attn_layer_o_move(w, 1), m->buffer[ATTN_LAYER_O].data,
                       m->buffer[ATTN_KEPT_O].data, 0);
    if (status == ATTN_OK)
        status = take(m, ATTN_MOMENT_Y, 1);
    if (status == ATTN_OK && !counts(m)) {
        const struct attn_view o = heads_in(m, &w->merged, ATTN_LAYER_O, from);
        const struct attn_view sum =
            tokens_in(m, tokens, w->moves_y ? m->buffer[ATTN_MOMENT_Y].data : y);
        clear(sum.data, n.batch * n.tokens * n.hidden, sum.dtype);
        attn_layer_merge(&n, &o, &weights, &sum);
    }
    if (status == ATTN_OK && w->moves_y)
        status = carry(m, "y", attn_layer_tokens_move(w, &w->in, &w->home),
                       m->buffer[ATTN_MOMENT_Y].data, y, 0);
    give(m, ATTN_MOMENT_Y, 1);
    return status;
}

static enum attn_status forward(struct member *m)
{
    int boundary = m->w->spec->boundary != ATTN_BOUNDARY_NONE;
    enum attn_status status = take(m, 0, ATTN_PASS_BUFFERS);
    if (status != ATTN_OK)
        return status;
    void *y = boundary ? m->buffer[ATTN_PASS_Y].data : m->mine[Y];
    if (boundary)
        split(m, m->mine[X], own_x(m));
    status = attend(m);
    if (status == ATTN_OK)
        status = merge(m, y);
    if (status == ATTN_OK && boundary)
        status = gather(m, "y", y, m->mine[Y]);
    give(m, ATTN_KEPT_BUFFERS, ATTN_PASS_BUFFERS - ATTN_KEPT_BUFFERS);
    return status;
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Forward was Y = sum_h O_h Wo_h: dO_h = dY Wo_h^T, dWo_h = O_h^T dY.  Where y went home, dY comes
 * from there; where o did, dO goes back. */
static enum attn_status unmerge(struct member *m, void *dy)
{
    const struct attn_layer_work *w = m->w;
    const struct attn_layer_part n = attn_layer_part_of(w, &w->merged);
    const struct attn_layer_weights weights = weights_in(m, W), dw = weights_in(m, DW);
    const struct attn_layout *tokens = w->moves_y ? &w->in : &w->home;
    int o = w->moves_o ? ATTN_KEPT_O : ATTN_LAYER_O;
    int d_o = w->moves_o ? ATTN_MOMENT_DO : ATTN_PASS_DO;
    enum attn_status status = take(m, ATTN_MOMENT_DY, 2);
    if (status == ATTN_OK && w->moves_y) {
        status = carry(m, "dy", attn_layer_tokens_move(w, &w->home, &w->in), dy,
                       m->buffer[ATTN_MOMENT_DY].data, 0);
        dy = m->buffer[ATTN_MOMENT_DY].data;
    }
    if (status == ATTN_OK && !counts(m)) {
        const struct attn_view arrived = tokens_in(m, tokens, dy);
        const struct attn_view of_o = heads_in(m, &w->merged, ATTN_LAYER_O, o);
        const struct attn_view to = heads_in(m, &w->merged, ATTN_LAYER_O, d_o);
        clear_buffer(&m->buffer[d_o]);
        attn_layer_merge_do(&n, &arrived, &weights, &to);
        attn_layer_merge_dweights(&n, &of_o, &arrived, &dw);
    }
    if (status == ATTN_OK && w->moves_o)
        status = carry(m, "do", attn_layer_o_move(w, 0), m->buffer[ATTN_MOMENT_DO].data,
                       m->buffer[ATTN_PASS_DO].data, 0);
    give(m, ATTN_MOMENT_DY, 2);
    return status;
}

static enum attn_status differentiate_attention(struct member *m)
{
    const struct attn_layer_work *w = m->w;
    struct attn_view t[ATTN_TAG_KINDS] = {0};
    kept_views(m, t);
    t[ATTN_TAG_DO] = heads_in(m, &w->made, ATTN_LAYER_O, ATTN_PASS_DO);
    t[ATTN_TAG_DQ] = heads_in(m, &w->made, ATTN_LAYER_Q, ATTN_PASS_DQ);
    t[ATTN_TAG_DK] = heads_in(m, &w->made, ATTN_LAYER_K, ATTN_PASS_DK);
    t[ATTN_TAG_DV] = heads_in(m, &w->made, ATTN_LAYER_V, ATTN_PASS_DV);
    return attn_travel(m->rank, &w->attention, ATTN_BACKWARD, t);
}

/* Forward was Q_h = X Wq_h: dWq_h = X^T dQ_h, and dX = sum_h dQ_h Wq_h^T of the rank's heads, which
 * goes home.  Where x was gathered every rank has its heads' terms for all tokens: they add up. */
static enum attn_status unproject(struct member *m, void *dx)
{
    const struct attn_layer_work *w = m->w;
    const struct attn_layer_part n = attn_layer_part_of(w, &w->made);
    const struct attn_layer_weights weights = weights_in(m, W), dw = weights_in(m, DW);
    struct attn_view d[3];
    void *x;
    enum attn_status status = bring_x(m, 1, &x);
    for (int k = 0; k < 3; k++)
        d[k] = heads_in(m, &w->made, k, ATTN_PASS_DQ + k);
    if (status == ATTN_OK && !counts(m)) {
        const struct attn_view tokens = tokens_in(m, &w->in, x);
        attn_layer_project_dweights(&n, &tokens, d, &dw);
    }
    give(m, ATTN_MOMENT_X, 1);
    if (status == ATTN_OK)
        status = take(m, ATTN_MOMENT_DX, 1);
    if (status == ATTN_OK && !counts(m)) {
        const struct attn_view sum =
            tokens_in(m, &w->in, w->moves_x ? m->buffer[ATTN_MOMENT_DX].data : dx);
        clear(sum.data, n.batch * n.tokens * n.hidden, sum.dtype);
        attn_layer_project_dx(&n, d, &weights, &sum);
    }
    if (status == ATTN_OK && w->moves_x)
        status = carry(m, "dx", attn_layer_tokens_move(w, &w->in, &w->home),
                       m->buffer[ATTN_MOMENT_DX].data, dx, w->gathers_x);
    give(m, ATTN_MOMENT_DX, 1);
    return status;
}

/* Gradients of a weight that several ranks have: each adds up a part of them, and hands it on. */
static enum attn_status complete(struct member *m, int weight)
{
    const struct attn_layer_work *w = m->w;
    const struct attn_layer_weight x = attn_layer_weight_of(w, weight);
    struct attn_buffer *sum = &m->buffer[ATTN_MOMENT_DW];
    static const char *const name[ATTN_WEIGHTS] = {"dwq", "dwk", "dwv", "dwo"};
    enum attn_status status = ATTN_OK;
    if (x.sums) {
        *sum = attn_layer_weight_sum(&x, w->rank);
        status = take(m, ATTN_MOMENT_DW, 1);
        if (status == ATTN_OK)
            status = carry(m, name[weight], attn_layer_weight_move(&x, 0), m->mine[DW + weight],
                           sum->data, 1);
        if (status == ATTN_OK)
            status = carry(m, name[weight], attn_layer_weight_move(&x, 1), sum->data,
                           m->mine[DW + weight], 0);
        give(m, ATTN_MOMENT_DW, 1);
        *sum = (struct attn_buffer){0};
    }
    if (status == ATTN_OK && w->spec->boundary != ATTN_BOUNDARY_NONE && !counts(m)) /* average */
        scale(m->mine[DW + weight], x.whole.dtype,
              attn_layer_weight_numbers(&x, &x.layout, w->rank), 1, w->ranks);
    return status;
}

static enum attn_status backward(struct member *m)
{
    const struct attn_layer_work *w = m->w;
    int boundary = w->spec->boundary != ATTN_BOUNDARY_NONE;
    int scaled = w->spec->boundary == ATTN_BOUNDARY_SCALED && !counts(m);
    const struct attn_layer_part home = attn_layer_part_of(w, &w->home),
                                 all = attn_layer_part_of(w, &w->all);
    enum attn_dtype dtype = w->layer->dtype;
    enum attn_status status = take(m, ATTN_KEPT_BUFFERS, ATTN_PASS_BUFFERS - ATTN_KEPT_BUFFERS);
    if (status != ATTN_OK)
        return status;
    void *dy = boundary ? m->buffer[ATTN_PASS_DY].data : m->mine[DY];
    void *dx = boundary ? m->buffer[ATTN_PASS_DX].data : m->mine[DX];
    for (int t = 0; t < ATTN_WEIGHTS; t++) {
        const struct attn_layer_weight x = attn_layer_weight_of(w, t);
        clear(m->mine[DW + t], attn_layer_weight_numbers(&x, &x.layout, w->rank), dtype);
    }
    if (boundary)
        split(m, m->mine[DY], dy);
    if (scaled)
        scale(dy, dtype, home.batch * home.tokens * home.hidden, w->ranks, 1); /* "up" */
    status = unmerge(m, dy);
    if (status == ATTN_OK)
        status = differentiate_attention(m);
    if (status == ATTN_OK)
        status = unproject(m, dx);
    for (int t = 0; t < ATTN_WEIGHTS && status == ATTN_OK; t++)
        status = complete(m, t);
    if (status == ATTN_OK && boundary)
        status = gather(m, "dx", dx, m->mine[DX]);
    if (status == ATTN_OK && scaled)
        scale(m->mine[DX], dtype, all.batch * all.tokens * all.hidden, 1, w->ranks); /* "down" */
    give(m, 0, ATTN_PASS_BUFFERS);
    return status;
}

/* ---- the driver ------------------------------------------------------------------------------ */

struct run {
    const struct attn_layer_spec *spec;
    struct attn_layer_call *call;
    struct attn_shards tensor[TENSORS];
};

/* x and y by tokens, the matrices of weights by heads. */
static void list_tensors(struct run *x)
{
    static const char *const name[TENSORS] = {"shard.x",   "shard.y",   "shard.dy",  "shard.dx",
                                              "shard.wq",  "shard.wk",  "shard.wv",  "shard.wo",
                                              "shard.dwq", "shard.dwk", "shard.dwv", "shard.dwo"};
    const struct attn_layer *l = x->call->layer;
    const struct attn_layer_work work = attn_layer_work_of(x->spec, l, 0);
    const struct attn_layer_forward *f = x->call->forward;
    const struct attn_layer_backward *b = x->call->backward, none = {0};
    int back = b != NULL, boundary = x->spec->boundary != ATTN_BOUNDARY_NONE;
    b = back ? b : &none;
    const void *const data[] = {f->x, f->y, b->dy, b->dx};
    const struct attn_layer_weights w = attn_layer_heads(l, f->wqkv, f->wo);
    const struct attn_layer_weights dw = attn_layer_heads(l, b->dwqkv, b->dwo);
    const struct attn_view weight[2][ATTN_WEIGHTS] = {{w.q, w.k, w.v, w.o},
                                                      {dw.q, dw.k, dw.v, dw.o}};
    for (int t = 0; t < TENSORS; t++) {
        const struct attn_layer_weight of = attn_layer_weight_of(&work, (t + TENSORS - W) % 4);
        int has = back || (t != DY && t != DX && t < DW);
        int is_output = t == Y || t == DX || t >= DW;
        x->tensor[t] = (struct attn_shards){
            .role = !has        ? ATTN_ABSENT
                    : is_output ? ATTN_OUTPUT
                                : ATTN_INPUT,
            .name = name[t],
            .tensor = t < W ? attn_layer_tokens(data[t], l->dtype, l->length, l->hidden)
                            : weight[t >= DW][(t - W) % ATTN_WEIGHTS],
            .whole = t < W ? work.tokens : of.whole,
            .kind = t < W ? ATTN_TAG_Q : of.kind,
            .layout = t >= W     ? of.layout
                      : boundary ? work.all
                                 : work.home};
    }
}

/* One pass, counted from 0. */
static enum attn_status member_pass(struct run *x, struct member *m, enum attn_pass pass)
{
    struct attn_transport *t = m->rank->transport;
    int64_t bytes = t->bytes_sent, messages = t->messages;
    double start = attn_seconds(CLOCK_THREAD_CPUTIME_ID);
    struct attn_buffer kept[ATTN_KEPT_BUFFERS];
    memcpy(kept, m->buffer, sizeof kept);
    attn_layer_buffers(m->w, pass, m->buffer);
    if (pass == ATTN_BACKWARD)
        memcpy(m->buffer, kept, sizeof kept);
    attn_ledger_restart(m->rank->ledger);
    t->pass = pass;
    enum attn_status status = pass == ATTN_FORWARD ? forward(m) : backward(m);
    struct attn_rank_use *use = x->call->use[pass];
    if (use == NULL)
        return status;
    attn_rank_report(&use[t->rank], m->rank, attn_seconds(CLOCK_THREAD_CPUTIME_ID) - start);
    use[t->rank].bytes_sent -= bytes;
    use[t->rank].messages -= messages;
    return status;
}

static enum attn_status run_rank(void *arg, struct attn_rank *rank)
{
    struct run *x = arg;
    int r = rank->transport->rank;
    const struct attn_layer_work w = attn_layer_work_of(x->spec, x->call->layer, r);
    struct member m = {.rank = rank, .w = &w};
    for (int t = 0; t < TENSORS; t++)
        if (x->tensor[t].role != ATTN_ABSENT)
            m.mine[t] = attn_shards_view(&x->tensor[t], r).data;
    enum attn_status status = member_pass(x, &m, ATTN_FORWARD);
    if (status == ATTN_OK && x->call->backward != NULL)
        return member_pass(x, &m, ATTN_BACKWARD);
    if (status == ATTN_OK)
        give(&m, 0, ATTN_KEPT_BUFFERS);
    return status;
}

enum attn_status attn_layer_ranks_run(const struct attn_layer_spec *spec, struct attn_ctx *ctx,
                                      struct attn_layer_call *call)
{
    struct run x = {.spec = spec, .call = call};
    struct attn_rank_group group = {.ctx = ctx,
                                    .options = &spec->spec.options,
                                    .run = run_rank,
                                    .arg = &x,
                                    .tensor = x.tensor,
                                    .tensors = TENSORS,
                                    .use = {call->use[0], call->use[1]},
                                    .compares = 1};
    struct attn_cost cost;
    enum attn_status status =
        attn_layer_ranks_cost(spec, call->layer, call->backward != NULL, 0, &cost, ctx->error);
    if (status != ATTN_OK)
        return status;
    list_tensors(&x);
    status = attn_rank_group_run(&group);
    call->differ = group.differ;
    return status;
}
