/* A rank's part of a call: bring what it computes with, go from stop to stop, take the results
 * home.  The schedule is the scheme's (scheme.h), the products and buffers are those of work.c.
 *
 * Stop 0 multiplies the rank's own blocks, and starts every sum; where no pair is visible there it
 * starts with the neutral element.  At a later stop
 *
 *      keys travel       the queries' sums are here: results are merged, or added to dQ.  dK, dV go
 *                        on to a sum that follows the block from rank to rank (in a ring), or back
 *                        to the owner of the keys at once
 *      queries travel    the rank multiplies a visitor's queries with its own keys; O, LSE (dQ) go
 *                        back to the visitor's owner at once, who merges (adds) them
 */
#include <string.h>

#include "optimized/integers.h"
#include "optimized/parallel/rank.h"
#include "optimized/parallel/shard_rows.h"
#include "optimized/parallel/work.h"
#include "ref/problem.h"

/* A tensor of the heads from `head` on. */
struct held {
    struct attn_view view;
    int64_t head;
};

/* Tensors of a rank's block travel together. */
enum { TRAVELLERS = 4 };

struct hop {
    struct attn_post post;
    struct attn_send send[TRAVELLERS];
    struct attn_receive receive[TRAVELLERS];
    struct attn_piece sent[TRAVELLERS], got[TRAVELLERS];
};

struct travel {
    struct attn_rank *rank;
    struct attn_work w;
    struct attn_buffer buffer[ATTN_WORK_BUFFERS];
    struct attn_view shard[ATTN_TAG_KINDS]; /* at home */
    struct held own[ATTN_TAG_KINDS];        /* the rank's blocks */
    struct held sum[ATTN_TAG_KINDS];        /* the same, or wider: o, dq, dk, dv are made here */
    struct held now[ATTN_TAG_KINDS];        /* the blocks of this stop */
    struct held denominator;                /* of the rank's queries, where these are not merged
                                               one by one: sum[O] holds numerators, own[LSE] the
                                               largest LSE so far */
    int64_t kept;                           /* partial results so far, where all are kept */
    struct hop keys;                        /* that are on their way behind this stop's products */
};

/* ---- blocks in memory ------------------------------------------------------------------------ */

static int64_t first_head(const struct travel *x, enum attn_tag_kind kind)
{
    return attn_tag_is_of_keys(kind) ? x->w.kv_heads.first : x->w.heads.first;
}

static int64_t heads_of(const struct travel *x, enum attn_tag_kind kind)
{
    return attn_tag_is_of_keys(kind) ? x->w.kv_heads.n : x->w.heads.n;
}

/* A rank's block at data. */
static struct held block_at(const struct travel *x, enum attn_tag_kind kind, enum attn_dtype dtype,
                            int rank, void *data)
{
    struct attn_box room = attn_work_room(&x->w, attn_tag_is_of_keys(kind), rank);
    return (struct held){
        attn_packed_view(data, dtype, room.heads.n, room.tokens, attn_tag_width(kind, x->w.whole)),
        first_head(x, kind)};
}

/* Rows of a rank's block, all heads of this portion. */
static struct attn_rows block_rows(const struct travel *x, enum attn_tag_kind kind, int rank)
{
    struct attn_box box = attn_work_box(&x->w, attn_tag_is_of_keys(kind), rank);
    return (struct attn_rows){box.batches.n, heads_of(x, kind), box.tokens,
                              attn_tag_width(kind, x->w.whole)};
}

/* Of a block, from this head and token on. */
static struct attn_view part_of(const struct held *block, int64_t head, int64_t token)
{
    struct attn_view view = block->view;
    int64_t offset = (head - block->head) * view.stride[1] + token * view.stride[2];
    view.data = (char *)view.data + offset * (int64_t)attn_dtype_size(view.dtype);
    return view;
}

static struct attn_view of_product(const struct travel *x, const struct held *block,
                                   enum attn_tag_kind kind, const struct attn_product *m)
{
    if (x->w.work.order == ATTN_PLACES) { /* a place is a batch of the product */
        int keys = attn_tag_is_of_keys(kind);
        struct attn_view view = part_of(block, keys ? m->kv_heads.first : m->heads.first, 0);
        int64_t batch = m->batch * view.stride[0], place = view.stride[2];
        view.data = (char *)view.data + batch * (int64_t)attn_dtype_size(view.dtype);
        view.stride[0] = place;
        view.stride[2] = place * m->part.batch;
        return view;
    }
    return attn_tag_is_of_keys(kind) ? part_of(block, m->kv_heads.first, m->key_at)
                                     : part_of(block, m->heads.first, m->query_at);
}

/* All heads of this portion, of a block that may hold more. */
static struct attn_view of_portion(const struct travel *x, enum attn_tag_kind kind,
                                   const struct held *block)
{
    return part_of(block, first_head(x, kind), 0);
}

/* A partial result of a product. */
static struct attn_view partial(const struct travel *x, enum attn_tag_kind kind,
                                const struct attn_product *m, void *data)
{
    int keys = attn_tag_is_of_keys(kind);
    return attn_packed_view(
        data, attn_work_partial_dtype(&x->w, kind), keys ? m->kv_heads.n : m->heads.n,
        keys ? m->part.n_key : m->part.n_query, attn_tag_width(kind, x->w.whole));
}

static struct attn_rows product_rows(const struct attn_product *m, enum attn_tag_kind kind,
                                     const struct attn_problem *whole)
{
    int keys = attn_tag_is_of_keys(kind);
    return (struct attn_rows){m->part.batch, keys ? m->kv_heads.n : m->heads.n,
                              keys ? m->part.n_key : m->part.n_query, attn_tag_width(kind, whole)};
}

/* ---- travelling ------------------------------------------------------------------------------ */

/* Tensors of one rank's block, one behind the other. */
struct luggage {
    int n;
    enum attn_tag_kind kind[TRAVELLERS];
    enum attn_dtype dtype[TRAVELLERS];
    char *data[TRAVELLERS];
    int64_t bytes[TRAVELLERS];
};

/* Tensors of one block that travel together: K and V, or their gradients; queries, or what these
 * gave.  The wider ones come first, so that they stay aligned. */
enum luggage_of { KEYS, KEY_GRADIENTS, QUERIES, RESULTS };

static int kinds_of(enum attn_pass pass, enum luggage_of what, const enum attn_tag_kind **kinds)
{
    static const enum attn_tag_kind kind[2][4][4] = {
        {{ATTN_TAG_K, ATTN_TAG_V}, {0}, {ATTN_TAG_Q}, {ATTN_TAG_O, ATTN_TAG_LSE}},
        {{ATTN_TAG_K, ATTN_TAG_V},
         {ATTN_TAG_DK, ATTN_TAG_DV},
         {ATTN_TAG_LSE, ATTN_TAG_DELTA, ATTN_TAG_DO, ATTN_TAG_Q},
         {ATTN_TAG_DQ}}};
    static const int count[2][4] = {{2, 0, 1, 2}, {2, 2, 4, 1}};
    *kinds = kind[pass][what];
    return count[pass][what];
}

/* Sums of gradients that follow a block are wide; what returns at once is partial. */
static enum attn_dtype travel_dtype(const struct attn_work *w, enum attn_tag_kind kind)
{
    int is_sum = w->passes_on && attn_tag_is_of_keys(kind);
    switch (kind) {
    case ATTN_TAG_O:
    case ATTN_TAG_DQ:
    case ATTN_TAG_DK:
    case ATTN_TAG_DV:
        return is_sum ? attn_lse_dtype(w->whole) : attn_work_partial_dtype(w, kind);
    default:
        return attn_tag_dtype(kind, w->whole);
    }
}

static struct luggage luggage_at(const struct travel *x, enum luggage_of what, int rank, char *data)
{
    const enum attn_tag_kind *kinds;
    struct luggage l = {.n = kinds_of(x->w.pass, what, &kinds)};
    for (int n = 0; n < l.n; n++) {
        l.kind[n] = kinds[n];
        l.dtype[n] = travel_dtype(&x->w, kinds[n]);
        l.data[n] = data;
        l.bytes[n] = attn_work_block(&x->w, kinds[n], rank) * (int64_t)attn_dtype_size(l.dtype[n]);
        data += l.bytes[n];
    }
    return l;
}

/* What a visitor's queries gave, or the rank's own gave elsewhere. */
static struct luggage results_at(const struct travel *x, int rank)
{
    int forward = x->w.pass == ATTN_FORWARD;
    struct luggage l =
        luggage_at(x, RESULTS, rank, x->buffer[forward ? ATTN_O_PARTIAL : ATTN_DQ_PARTIAL].data);
    if (forward)
        l.data[1] = x->buffer[ATTN_LSE_PARTIAL].data;
    return l;
}

/* The rank's own block, where it lies. */
static struct luggage own_luggage(const struct travel *x, struct luggage shape)
{
    for (int n = 0; n < shape.n; n++)
        shape.data[n] = x->own[shape.kind[n]].view.data;
    return shape;
}

/* Show the tensors of a rank's block to the products of this stop. */
static void unpack(struct travel *x, const struct luggage *l, int rank)
{
    for (int n = 0; n < l->n; n++)
        x->now[l->kind[n]] = block_at(x, l->kind[n], l->dtype[n], rank, l->data[n]);
}

/* Send to one rank, receive from another; -1: nobody. */
static void describe(struct hop *h, int step, int to, const struct luggage *out, int from,
                     const struct luggage *in)
{
    h->post = (struct attn_post){.send = h->send,
                                 .n_sends = to >= 0 ? out->n : 0,
                                 .receive = h->receive,
                                 .n_receives = from >= 0 ? in->n : 0};
    for (int n = 0; n < h->post.n_sends; n++) {
        h->sent[n] = attn_piece_whole(out->bytes[n]);
        h->send[n] = (struct attn_send){.peer = to,
                                        .tag = attn_tag(out->kind[n], step),
                                        .data = out->data[n],
                                        .piece = &h->sent[n],
                                        .pieces = 1,
                                        .dtype = out->dtype[n]};
    }
    for (int n = 0; n < h->post.n_receives; n++) {
        h->got[n] = attn_piece_whole(in->bytes[n]);
        h->receive[n] = (struct attn_receive){.peer = from,
                                              .tag = attn_tag(in->kind[n], step),
                                              .data = in->data[n],
                                              .piece = &h->got[n],
                                              .pieces = 1};
    }
}

static enum attn_status post(struct travel *x, struct hop *h)
{
    return attn_post(x->rank->transport, &h->post, x->rank->error);
}

static enum attn_status wait(struct travel *x, struct hop *h)
{
    return attn_wait(x->rank->transport, &h->post, x->rank->error);
}

/* Post and wait. */
static enum attn_status hop(struct travel *x, int step, int to, const struct luggage *out, int from,
                            const struct luggage *in)
{
    struct hop h;
    describe(&h, step, to, out, from, in);
    enum attn_status status = post(x, &h);
    return status == ATTN_OK ? wait(x, &h) : status;
}

/* ---- the sums of gradients of keys ----------------------------------------------------------- */

/* Where the sum of dK, dV that follows a block is at a stop; after the last one it is at home.  It
 * needs two places, one to send from and one to receive into; the rank's own sum is one of them
 * where it has room for any block. */
static void *following_sum(const struct travel *x, int stop)
{
    int even = attn_work_is_even(&x->w);
    if (x->w.stops == 1 || stop == x->w.stops || (even && (x->w.stops - stop) % 2 == 0))
        return NULL;
    return attn_buffer_at(&x->buffer[ATTN_DKV_TRAVEL], even ? 0 : stop % 2);
}

static struct luggage following_luggage(const struct travel *x, int stop)
{
    int rank = attn_work_stop(&x->w, stop).key;
    void *place = following_sum(x, stop);
    struct luggage l = luggage_at(x, KEY_GRADIENTS, rank, place);
    for (int n = 0; n < l.n && place == NULL; n++)
        l.data[n] = x->sum[l.kind[n]].view.data;
    return l;
}

/* The gradients that this stop's products are added to. */
static void show_gradients(struct travel *x)
{
    struct luggage l;
    if (x->w.passes_on && following_sum(x, x->w.n_stop) != NULL)
        l = following_luggage(x, x->w.n_stop);
    else if (!x->w.passes_on && x->w.stop.key != x->w.rank)
        l = luggage_at(x, KEY_GRADIENTS, x->w.stop.key, x->buffer[ATTN_DKV_PARTIAL].data);
    else {
        x->now[ATTN_TAG_DK] = x->sum[ATTN_TAG_DK];
        x->now[ATTN_TAG_DV] = x->sum[ATTN_TAG_DV];
        return;
    }
    unpack(x, &l, x->w.stop.key);
}

/* ---- products -------------------------------------------------------------------------------- */

static struct attn_cview input(const struct travel *x, enum attn_tag_kind kind,
                               const struct attn_product *m)
{
    struct attn_view view = of_product(x, &x->now[kind], kind, m);
    return attn_view_const(&view);
}

/* The rank's own queries are summed as numerators, not merged one by one. */
static int has_numerators(const struct travel *x)
{
    return x->w.merging != ATTN_RUNNING && x->w.stop.query == x->w.rank;
}

/* Where the n-th partial result of the rank's queries is kept. */
static struct held kept_at(const struct travel *x, enum attn_tag_kind kind, int64_t n)
{
    const struct attn_buffer *kept = &x->buffer[kind == ATTN_TAG_O ? ATTN_O_KEPT : ATTN_LSE_KEPT];
    enum attn_dtype dtype =
        kind == ATTN_TAG_O ? attn_work_partial_dtype(&x->w, kind) : attn_lse_dtype(x->w.whole);
    return block_at(x, kind, dtype, x->w.rank, attn_buffer_at(kept, n));
}

/* The first result of a local call is the sum so far, unless it is to be narrower. */
static int may_be_sum(const struct travel *x, enum attn_tag_kind kind, const struct attn_view *sum)
{
    return !attn_work_is_narrow(&x->w, kind) || sum->dtype == attn_work_partial_dtype(&x->w, kind);
}

/* Results of a forward product: where its local call leaves them, and where they are summed. */
struct forward_results {
    struct attn_view o, lse, o_sum, lse_sum, l;
    int is_written, is_kept; /* o, lse is the sum itself; it is a place for this partial alone */
};

static struct forward_results results_of(const struct travel *x, const struct attn_product *m)
{
    struct forward_results r = {.o_sum = of_product(x, &x->now[ATTN_TAG_O], ATTN_TAG_O, m),
                                .lse_sum = of_product(x, &x->now[ATTN_TAG_LSE], ATTN_TAG_LSE, m),
                                .is_kept = x->w.merging == ATTN_DEFERRED && has_numerators(x)};
    if (has_numerators(x))
        r.l = of_product(x, &x->denominator, ATTN_TAG_LSE, m);
    r.is_written = m->starts_query && !has_numerators(x) && may_be_sum(x, ATTN_TAG_O, &r.o_sum);
    if (r.is_kept) {
        struct held o = kept_at(x, ATTN_TAG_O, x->kept + m->key);
        struct held lse = kept_at(x, ATTN_TAG_LSE, x->kept + m->key);
        r.o = of_product(x, &o, ATTN_TAG_O, m);
        r.lse = of_product(x, &lse, ATTN_TAG_LSE, m);
    } else if (r.is_written) {
        r.o = r.o_sum;
        r.lse = r.lse_sum;
    } else {
        r.o = partial(x, ATTN_TAG_O, m, x->buffer[ATTN_O_PARTIAL].data);
        r.lse = partial(x, ATTN_TAG_LSE, m, x->buffer[ATTN_LSE_PARTIAL].data);
    }
    return r;
}

static enum attn_status forward_product(struct travel *x, const struct attn_product *m)
{
    struct forward_results r = results_of(x, m);
    struct attn_rows rows = product_rows(m, ATTN_TAG_O, x->w.whole);
    struct attn_rows numbers = product_rows(m, ATTN_TAG_LSE, x->w.whole);
    const struct attn_forward t = {input(x, ATTN_TAG_Q, m), input(x, ATTN_TAG_K, m),
                                   input(x, ATTN_TAG_V, m), r.o, r.lse};
    enum attn_status status = attn_rank_forward(x->rank, &m->part, &t);
    if (status != ATTN_OK || r.is_written || r.is_kept)
        return status;
    if (m->starts_query && !has_numerators(x)) {
        attn_rows_round(&rows, &r.o_sum, &r.o);
        attn_rows_round(&numbers, &r.lse_sum, &r.lse);
    } else
        attn_rows_merge(&rows, &r.o_sum, &r.lse_sum, has_numerators(x) ? &r.l : NULL, &r.o, &r.lse);
    return ATTN_OK;
}

/* A product's gradient: written into the sum by its local call, or a partial one. */
static struct attn_view gradient(const struct travel *x, enum attn_tag_kind kind,
                                 const struct attn_product *m, void *data)
{
    struct attn_view sum = of_product(x, &x->now[kind], kind, m);
    struct attn_view part = partial(x, kind, m, data);
    int keys = attn_tag_is_of_keys(kind), starts = keys ? m->starts_key : m->starts_query;
    return starts && may_be_sum(x, kind, &sum) ? sum : part;
}

/* Add a partial gradient to its sum, or begin the sum with it. */
static void add(const struct travel *x, enum attn_tag_kind kind, const struct attn_product *m,
                const struct attn_view *part)
{
    struct attn_rows rows = product_rows(m, kind, x->w.whole);
    struct attn_view sum = of_product(x, &x->now[kind], kind, m);
    int starts = attn_tag_is_of_keys(kind) ? m->starts_key : m->starts_query;
    if (!starts)
        attn_rows_add(&rows, &sum, part);
    else if (part->data != sum.data)
        attn_rows_round(&rows, &sum, part);
}

static enum attn_status backward_product(struct travel *x, const struct attn_product *m)
{
    const struct attn_buffer *zeros = &x->buffer[ATTN_ZEROS];
    struct attn_rows keys = product_rows(m, ATTN_TAG_DK, x->w.whole);
    char *dk = x->buffer[ATTN_DKV_PARTIAL].data;
    char *dv = dk == NULL
                   ? NULL
                   : dk + keys.batch * keys.heads * keys.tokens * keys.width *
                              (int64_t)attn_dtype_size(attn_work_partial_dtype(&x->w, ATTN_TAG_DK));
    struct attn_backward t = {.q = input(x, ATTN_TAG_Q, m),
                              .k = input(x, ATTN_TAG_K, m),
                              .v = input(x, ATTN_TAG_V, m),
                              .o = {zeros->data, x->w.whole->dtype, {0, 0, 0, 1}},
                              .lse = input(x, ATTN_TAG_LSE, m),
                              .d_o = input(x, ATTN_TAG_DO, m),
                              .d_lse = input(x, ATTN_TAG_DELTA, m),
                              .dq = gradient(x, ATTN_TAG_DQ, m, x->buffer[ATTN_DQ_PARTIAL].data),
                              .dk = gradient(x, ATTN_TAG_DK, m, dk),
                              .dv = gradient(x, ATTN_TAG_DV, m, dv)};
    enum attn_status status = attn_rank_backward(x->rank, &m->part, &t);
    if (status != ATTN_OK)
        return status;
    add(x, ATTN_TAG_DQ, m, &t.dq);
    add(x, ATTN_TAG_DK, m, &t.dk);
    add(x, ATTN_TAG_DV, m, &t.dv);
    return ATTN_OK;
}

/* Queries of this stop that no product started. */
static void start_query(struct travel *x, const struct attn_product *m)
{
    if (x->w.pass == ATTN_FORWARD) {
        struct attn_rows rows = product_rows(m, ATTN_TAG_O, x->w.whole);
        struct attn_view o = of_product(x, &x->now[ATTN_TAG_O], ATTN_TAG_O, m);
        struct attn_view lse = of_product(x, &x->now[ATTN_TAG_LSE], ATTN_TAG_LSE, m);
        attn_rows_neutral(&rows, &o, &lse);
    } else {
        struct attn_rows rows = product_rows(m, ATTN_TAG_DQ, x->w.whole);
        struct attn_view dq = of_product(x, &x->now[ATTN_TAG_DQ], ATTN_TAG_DQ, m);
        attn_rows_clear(&rows, &dq);
    }
}

static void start_key(struct travel *x, const struct attn_product *m)
{
    for (int n = 0; n < 2 && x->w.pass == ATTN_BACKWARD; n++) {
        enum attn_tag_kind kind = n == 0 ? ATTN_TAG_DK : ATTN_TAG_DV;
        struct attn_rows rows = product_rows(m, kind, x->w.whole);
        struct attn_view sum = of_product(x, &x->now[kind], kind, m);
        attn_rows_clear(&rows, &sum);
    }
}

static void start_the_rest(struct travel *x)
{
    const struct attn_work *w = &x->w;
    int queries = attn_layout_stretches(&w->work, 0), keys = attn_layout_stretches(&w->work, 1);
    for (int call = 0; call < ATTN_CALLS; call++) {
        for (int q = 0; q < queries && attn_work_starts_query(w) && !has_numerators(x); q++) {
            struct attn_product m = attn_work_product(w, call, q, 0, 0);
            if (!w->saw_query[call][q] && m.heads.n > 0)
                start_query(x, &m);
        }
        for (int k = 0; k < keys && attn_work_starts_key(w); k++) {
            struct attn_product m = attn_work_product(w, call, 0, k, 0);
            if (!w->saw_key[call][k] && m.heads.n > 0)
                start_key(x, &m);
        }
    }
}

static enum attn_status multiply(struct travel *x)
{
    struct attn_product m;
    enum attn_status status = ATTN_OK;
    if (x->w.stop.query < 0)
        return ATTN_OK;
    while (status == ATTN_OK && attn_work_next(&x->w, &m))
        status = x->w.pass == ATTN_FORWARD ? forward_product(x, &m) : backward_product(x, &m);
    if (status == ATTN_OK)
        start_the_rest(x);
    if (x->w.stop.query == x->w.rank)
        x->kept += attn_layout_stretches(&x->w.work, 1);
    return status;
}

/* ---- one stop -------------------------------------------------------------------------------- */

/* Where K, V of this stop are received. */
static struct luggage keys_that_come(const struct travel *x, const struct attn_stop *stop, int n)
{
    int part = x->buffer[ATTN_KV_TRAVEL].parts > 1 ? (n - 1) % 2 : 0;
    return luggage_at(x, KEYS, stop->from >= 0 ? stop->key : x->w.rank,
                      attn_buffer_at(&x->buffer[ATTN_KV_TRAVEL], part));
}

/* The keys that are here go on to stop n, and others come, while this stop's are multiplied. */
static enum attn_status pass_on(struct travel *x, int n)
{
    struct attn_stop next = attn_work_stop(&x->w, n);
    struct luggage out = luggage_at(x, KEYS, x->w.stop.key, NULL), in = keys_that_come(x, &next, n);
    for (int i = 0; i < out.n; i++)
        out.data[i] = x->now[out.kind[i]].view.data;
    describe(&x->keys, n - 1, next.to, &out, next.from, &in);
    return post(x, &x->keys);
}

/* K, V come from their owner, or have been on their way. */
static enum attn_status keys_arrive(struct travel *x, int n)
{
    const struct attn_stop *stop = &x->w.stop;
    struct luggage in = keys_that_come(x, stop, n),
                   out = own_luggage(x, luggage_at(x, KEYS, x->w.rank, NULL));
    enum attn_status status =
        x->w.passes_on ? wait(x, &x->keys) : hop(x, n - 1, stop->to, &out, stop->from, &in);
    if (stop->from >= 0)
        unpack(x, &in, stop->key);
    return status;
}

/* A visitor's queries come, and find room for what they will give. */
static enum attn_status queries_arrive(struct travel *x, int n)
{
    const struct attn_stop *stop = &x->w.stop;
    int visitor = stop->from >= 0 ? stop->query : x->w.rank;
    struct luggage in = luggage_at(x, QUERIES, visitor, x->buffer[ATTN_Q_TRAVEL].data);
    struct luggage out = own_luggage(x, luggage_at(x, QUERIES, x->w.rank, NULL));
    enum attn_status status = hop(x, n - 1, stop->to, &out, stop->from, &in);
    if (stop->from >= 0) {
        struct luggage results = results_at(x, visitor);
        unpack(x, &in, visitor);
        unpack(x, &results, visitor);
    }
    return status;
}

/* What travels arrives, and this stop's products are shown their blocks. */
static enum attn_status arrive(struct travel *x, int n)
{
    attn_work_go(&x->w, n);
    switch (x->w.stop.travels) {
    case ATTN_KEYS_TRAVEL:
        return keys_arrive(x, n);
    case ATTN_QUERIES_TRAVEL:
        return queries_arrive(x, n);
    case ATTN_NOTHING_TRAVELS:
        break;
    }
    return ATTN_OK;
}

/* The blocks that are the rank's own at this stop. */
static void show_own(struct travel *x)
{
    static const enum attn_tag_kind of_queries[] = {ATTN_TAG_Q, ATTN_TAG_DO, ATTN_TAG_LSE,
                                                    ATTN_TAG_DELTA};
    if (x->w.stop.query == x->w.rank || x->w.stop.query < 0) {
        for (int n = 0; n < 4; n++)
            x->now[of_queries[n]] = x->own[of_queries[n]];
        x->now[ATTN_TAG_O] = x->sum[ATTN_TAG_O];
        x->now[ATTN_TAG_DQ] = x->sum[ATTN_TAG_DQ];
    }
    if (x->w.n_stop == 0 || (!x->w.passes_on && x->w.stop.key == x->w.rank)) {
        x->now[ATTN_TAG_K] = x->own[ATTN_TAG_K];
        x->now[ATTN_TAG_V] = x->own[ATTN_TAG_V];
    }
}

/* A partial result of all of the rank's queries is merged. */
static void merge_block(struct travel *x, const struct held *o_part, const struct held *lse_part)
{
    struct attn_rows rows = block_rows(x, ATTN_TAG_O, x->w.rank);
    struct attn_view o = of_portion(x, ATTN_TAG_O, &x->sum[ATTN_TAG_O]);
    struct attn_view lse = of_portion(x, ATTN_TAG_LSE, &x->own[ATTN_TAG_LSE]);
    attn_rows_merge(&rows, &o, &lse, x->w.merging == ATTN_RUNNING ? NULL : &x->denominator.view,
                    &o_part->view, &lse_part->view);
}

/* Before the first product: every sum and everything that is kept is of no keys. */
static void begin_numerators(struct travel *x)
{
    struct attn_rows rows = block_rows(x, ATTN_TAG_O, x->w.rank);
    struct attn_rows numbers = block_rows(x, ATTN_TAG_LSE, x->w.rank);
    struct attn_view o = of_portion(x, ATTN_TAG_O, &x->sum[ATTN_TAG_O]);
    struct attn_view lse = of_portion(x, ATTN_TAG_LSE, &x->own[ATTN_TAG_LSE]);
    x->kept = 0;
    if (x->w.merging == ATTN_RUNNING)
        return;
    x->denominator = block_at(x, ATTN_TAG_LSE, attn_lse_dtype(x->w.whole), x->w.rank,
                              x->buffer[ATTN_DENOMINATOR].data);
    attn_rows_neutral(&rows, &o, &lse);
    attn_rows_clear(&numbers, &x->denominator.view);
    for (int64_t n = 0; n < x->buffer[ATTN_LSE_KEPT].parts; n++) {
        struct held kept = kept_at(x, ATTN_TAG_LSE, n);
        attn_rows_neutral(&numbers, NULL, &kept.view);
    }
}

/* After the last one: what was kept is merged by the largest LSE of all, and numerators become O.
 * With the maximum in its place before the first is added, no sum is ever rescaled. */
static void finish_numerators(struct travel *x)
{
    struct attn_rows rows = block_rows(x, ATTN_TAG_O, x->w.rank);
    struct attn_rows numbers = block_rows(x, ATTN_TAG_LSE, x->w.rank);
    struct attn_view o = of_portion(x, ATTN_TAG_O, &x->sum[ATTN_TAG_O]);
    struct attn_view lse = of_portion(x, ATTN_TAG_LSE, &x->own[ATTN_TAG_LSE]);
    if (x->w.merging == ATTN_RUNNING)
        return;
    for (int64_t n = 0; n < x->buffer[ATTN_LSE_KEPT].parts; n++) {
        struct held part = kept_at(x, ATTN_TAG_LSE, n);
        attn_rows_max(&numbers, &lse, &part.view);
    }
    for (int64_t n = 0; n < x->buffer[ATTN_O_KEPT].parts; n++) {
        struct held o_part = kept_at(x, ATTN_TAG_O, n), lse_part = kept_at(x, ATTN_TAG_LSE, n);
        merge_block(x, &o_part, &lse_part);
    }
    attn_rows_normalise(&rows, &o, &lse, &x->denominator.view);
}

/* What came back for the rank's own queries is merged, or added to dQ. */
static void merge_results(struct travel *x)
{
    if (x->w.merging == ATTN_DEFERRED) {
        x->kept++;
    } else if (x->w.pass == ATTN_FORWARD) {
        struct luggage l = results_at(x, x->w.rank);
        struct held o_part = block_at(x, ATTN_TAG_O, l.dtype[0], x->w.rank, l.data[0]);
        struct held lse_part = block_at(x, ATTN_TAG_LSE, l.dtype[1], x->w.rank, l.data[1]);
        merge_block(x, &o_part, &lse_part);
    } else {
        struct attn_rows rows = block_rows(x, ATTN_TAG_DQ, x->w.rank);
        struct attn_view dq = of_portion(x, ATTN_TAG_DQ, &x->sum[ATTN_TAG_DQ]);
        struct luggage l = results_at(x, x->w.rank);
        struct held part = block_at(x, ATTN_TAG_DQ, l.dtype[0], x->w.rank, l.data[0]);
        attn_rows_add(&rows, &dq, &part.view);
    }
}

static void add_gradients(struct travel *x, const struct luggage *back)
{
    for (int n = 0; n < back->n; n++) {
        enum attn_tag_kind kind = back->kind[n];
        struct attn_rows rows = block_rows(x, kind, x->w.rank);
        struct attn_view sum = of_portion(x, kind, &x->sum[kind]);
        struct held part = block_at(x, kind, back->dtype[n], x->w.rank, back->data[n]);
        attn_rows_add(&rows, &sum, &part.view);
    }
}

/* What the products of this stop gave goes where it belongs. */
static enum attn_status depart(struct travel *x, int n)
{
    struct attn_work *w = &x->w;
    struct attn_stop stop = w->stop;
    enum attn_status status = ATTN_OK;
    if (w->passes_on && w->pass == ATTN_BACKWARD && w->stops > 1) {
        struct luggage out = following_luggage(x, n), in = following_luggage(x, n + 1);
        struct attn_stop next = attn_work_stop(w, n + 1);
        return hop(x, n, next.to, &out, next.from, &in);
    }
    if (w->passes_on || n == 0)
        return ATTN_OK;
    if (stop.travels == ATTN_QUERIES_TRAVEL) {
        struct luggage out = results_at(x, stop.from >= 0 ? stop.query : w->rank);
        struct luggage in = results_at(x, w->rank);
        if (w->merging == ATTN_DEFERRED && stop.to >= 0) { /* where it is kept */
            in.data[0] = kept_at(x, ATTN_TAG_O, x->kept).view.data;
            in.data[1] = kept_at(x, ATTN_TAG_LSE, x->kept).view.data;
        }
        status = hop(x, n, stop.from, &out, stop.to, &in);
        if (status == ATTN_OK && stop.to >= 0)
            merge_results(x);
    }
    if (stop.travels == ATTN_KEYS_TRAVEL && w->pass == ATTN_BACKWARD) {
        struct luggage out = luggage_at(x, KEY_GRADIENTS, stop.from >= 0 ? stop.key : w->rank,
                                        x->buffer[ATTN_DKV_PARTIAL].data);
        struct luggage in = luggage_at(x, KEY_GRADIENTS, w->rank, x->buffer[ATTN_DKV_BACK].data);
        status = hop(x, n, stop.from, &out, stop.to, &in);
        if (status == ATTN_OK && stop.to >= 0)
            add_gradients(x, &in);
    }
    return status;
}

static enum attn_status visit(struct travel *x, int n)
{
    enum attn_status status = arrive(x, n);
    show_own(x);
    if (x->w.pass == ATTN_BACKWARD && x->w.stop.key >= 0)
        show_gradients(x);
    if (status == ATTN_OK && x->w.passes_on && n + 1 < x->w.stops)
        status = pass_on(x, n + 1);
    if (status == ATTN_OK)
        status = multiply(x);
    return status == ATTN_OK ? depart(x, n) : status;
}

/* ---- a portion of heads ---------------------------------------------------------------------- */

static enum attn_status move_data(struct travel *x, struct attn_move m, void *from, void *to)
{
    m.chunks = x->buffer[ATTN_CHUNKS].data;
    m.from.data = from;
    m.to.data = to;
    return attn_move(&m, x->rank->transport, x->buffer[ATTN_MESSAGES].data, x->rank->error);
}

static enum attn_status move(struct travel *x, enum attn_tag_kind kind, int goes_home)
{
    struct attn_move inner = attn_work_move(&x->w, kind, goes_home);
    struct attn_move outer = attn_work_move_via(&x->w, kind, goes_home);
    void *home = x->shard[kind].data, *via = x->buffer[ATTN_VIA].data;
    void *work = x->own[kind].view.data, *half = x->w.has_via ? via : home;
    enum attn_status status = ATTN_OK;
    if (x->w.has_via && !goes_home)
        status = move_data(x, outer, home, via);
    if (status == ATTN_OK)
        status = move_data(x, inner, goes_home ? work : half, goes_home ? half : work);
    if (x->w.has_via && goes_home && status == ATTN_OK)
        status = move_data(x, outer, via, home);
    return status;
}

/* The heads that were brought, of those at home, from a sum that is wider. */
static void round_home(struct travel *x, enum attn_tag_kind kind, char *data)
{
    struct attn_box home = attn_layout_box(&x->w.home, x->w.whole, 1, x->w.rank);
    struct attn_box room = attn_layout_room(&x->w.home, x->w.whole, 1, x->w.rank);
    int64_t width = attn_tag_width(kind, x->w.whole);
    struct attn_tokens heads = attn_work_portions(&x->w) > 1 ? x->w.kv_heads : home.heads;
    struct attn_rows rows = {home.batches.n, heads.n, home.tokens, width};
    struct held sum = {
        attn_packed_view(data, attn_lse_dtype(x->w.whole), room.heads.n, room.tokens, width),
        home.heads.first};
    struct held shard = {x->shard[kind], home.heads.first};
    struct attn_view from = part_of(&sum, heads.first, 0), to = part_of(&shard, heads.first, 0);
    attn_rows_round(&rows, &to, &from);
}

/* The gradients of copies are added at home. */
static enum attn_status move_sum(struct travel *x, enum attn_tag_kind kind)
{
    struct attn_move m = attn_work_move(&x->w, kind, 1);
    struct attn_buffer copies[2];
    attn_work_copies(&x->w, kind, copies);
    enum attn_status status = attn_buffers_take(copies, 2, x->rank->ledger, x->rank->error);
    void *home = copies[1].name != NULL ? copies[1].data : x->shard[kind].data;
    m.from.data = x->own[kind].view.data;
    m.to.data = x->w.has_via ? x->buffer[ATTN_VIA].data : home;
    if (status == ATTN_OK)
        status = attn_move_sum(&m, x->rank->transport, x->buffer[ATTN_MESSAGES].data,
                               copies[0].data, x->rank->error);
    if (status == ATTN_OK && x->w.has_via)
        status = move_data(x, attn_work_move_via(&x->w, kind, 1), m.to.data, home);
    if (status == ATTN_OK && copies[1].name != NULL)
        round_home(x, kind, copies[1].data);
    attn_buffers_give(copies, 2, x->rank->ledger);
    return status;
}

/* Where this portion of a tensor is: in a buffer of its own, or at home. */
static void place(struct travel *x, enum attn_tag_kind kind)
{
    struct attn_box box = attn_work_box(&x->w, attn_tag_is_of_keys(kind), x->w.rank);
    if (attn_work_moves(&x->w, kind))
        x->own[kind] =
            block_at(x, kind, attn_work_dtype(&x->w, kind), x->w.rank, x->buffer[kind].data);
    else
        x->own[kind] = (struct held){x->shard[kind], box.heads.first};
    x->sum[kind] = x->own[kind];
}

/* A sum wider than what it is for. */
static void widen(struct travel *x, enum attn_tag_kind kind, char *data)
{
    if (data != NULL)
        x->sum[kind] = block_at(x, kind, attn_lse_dtype(x->w.whole), x->w.rank, data);
}

static void place_all(struct travel *x)
{
    const enum attn_tag_kind *kinds;
    int inputs, tensors = attn_work_tensors(x->w.pass, &kinds, &inputs);
    for (int n = 0; n < tensors; n++)
        place(x, kinds[n]);
    char *dk = x->buffer[ATTN_DKV_SUM].data;
    int64_t bytes = attn_work_block(&x->w, ATTN_TAG_DK, x->w.rank) *
                    (int64_t)attn_dtype_size(attn_lse_dtype(x->w.whole));
    widen(x, ATTN_TAG_O, x->buffer[ATTN_O_SUM].data);
    widen(x, ATTN_TAG_DQ, x->buffer[ATTN_DQ_SUM].data);
    widen(x, ATTN_TAG_DK, dk);
    widen(x, ATTN_TAG_DV, dk != NULL ? dk + bytes : NULL);
    memcpy(x->now, x->own, sizeof x->now);
}

/* Of the forward pass, where K and V were saved. */
static int is_there(const struct travel *x, enum attn_tag_kind kind)
{
    return x->rank->has_brought && (kind == ATTN_TAG_K || kind == ATTN_TAG_V);
}

static enum attn_status bring(struct travel *x)
{
    const enum attn_tag_kind *kinds;
    int inputs;
    enum attn_status status = ATTN_OK;
    attn_work_tensors(x->w.pass, &kinds, &inputs);
    place_all(x);
    for (int n = 0; n < inputs && status == ATTN_OK; n++)
        if (attn_work_moves(&x->w, kinds[n]) && !is_there(x, kinds[n]))
            status = move(x, kinds[n], 0);
    return status;
}

static enum attn_status take_home(struct travel *x)
{
    const enum attn_tag_kind *kinds;
    int inputs, tensors = attn_work_tensors(x->w.pass, &kinds, &inputs);
    enum attn_status status = ATTN_OK;
    for (int n = inputs; n < tensors && status == ATTN_OK; n++) {
        enum attn_tag_kind kind = kinds[n];
        struct attn_buffer copies[2];
        attn_work_copies(&x->w, kind, copies);
        if (x->sum[kind].view.dtype != x->own[kind].view.dtype) {
            struct attn_rows rows = block_rows(x, kind, x->w.rank);
            struct attn_view to = of_portion(x, kind, &x->own[kind]);
            attn_rows_round(&rows, &to, &x->sum[kind].view);
        }
        if (copies[0].name != NULL)
            status = move_sum(x, kind);
        else if (attn_work_moves(&x->w, kind))
            status = move(x, kind, 1);
    }
    return status;
}

/* -D of the rows that are at home. */
static void make_delta(struct travel *x)
{
    struct attn_box home = attn_layout_box(&x->w.home, x->w.whole, 0, x->w.rank);
    struct attn_box room = attn_layout_room(&x->w.home, x->w.whole, 0, x->w.rank);
    struct attn_rows rows = {home.batches.n, home.heads.n, home.tokens, x->w.whole->d_value};
    struct attn_view *d = &x->shard[ATTN_TAG_DELTA], d_lse = *d;
    struct attn_buffer *zeros = &x->buffer[ATTN_ZEROS];
    *d = attn_packed_view(x->buffer[ATTN_DELTA_SHARD].data, attn_lse_dtype(x->w.whole),
                          room.heads.n, room.tokens, 1);
    attn_rows_minus_delta(&rows, &x->shard[ATTN_TAG_O], &x->shard[ATTN_TAG_LSE],
                          &x->shard[ATTN_TAG_DO], &d_lse, d);
    if (zeros->numbers > 0)
        memset(zeros->data, 0, (size_t)(zeros->numbers * zeros->size));
}

/* The buffers of the call.  K and V that are saved lie in a block of the caller's ledger. */
static enum attn_status take_buffers(struct travel *x)
{
    struct attn_buffer *k = &x->buffer[ATTN_TAG_K], *v = &x->buffer[ATTN_TAG_V];
    struct attn_rank *rank = x->rank;
    enum attn_status status = ATTN_OK;
    attn_work_buffers(&x->w, x->buffer);
    if (rank->saved != NULL) {
        k->name = v->name = NULL; /* are not taken */
        k->data = rank->saved;
        v->data = k->data + k->numbers * k->size;
        status = attn_ledger_count(rank->ledger, ATTN_SAVED_NAME, attn_work_saved(&x->w), 1,
                                   rank->error);
    }
    if (status == ATTN_OK)
        status = attn_buffers_take(x->buffer, ATTN_WORK_BUFFERS, rank->ledger, rank->error);
    return status;
}

static void give_buffers(struct travel *x)
{
    if (x->rank->saved != NULL)
        attn_ledger_uncount(x->rank->ledger, ATTN_SAVED_NAME, attn_work_saved(&x->w));
    attn_buffers_give(x->buffer, ATTN_WORK_BUFFERS, x->rank->ledger);
}

static enum attn_status run(struct travel *x)
{
    enum attn_status status = take_buffers(x);
    if (status == ATTN_OK && x->w.pass == ATTN_BACKWARD)
        make_delta(x);
    for (int n = 0; n < attn_work_portions(&x->w) && status == ATTN_OK; n++) {
        attn_work_portion(&x->w, n);
        status = bring(x);
        begin_numerators(x);
        for (int stop = 0; stop < x->w.stops && status == ATTN_OK; stop++)
            status = visit(x, stop);
        if (status == ATTN_OK)
            finish_numerators(x);
        if (status == ATTN_OK)
            status = take_home(x);
    }
    give_buffers(x);
    return status;
}

enum attn_status attn_travel(struct attn_rank *rank, const struct attn_problem *whole,
                             enum attn_pass pass, const struct attn_view mine[ATTN_TAG_KINDS])
{
    struct travel x = {.rank = rank,
                       .w = attn_work_of(whole, rank->options, pass, rank->transport->rank)};
    memcpy(x.shard, mine, sizeof x.shard);
    return run(&x);
}
