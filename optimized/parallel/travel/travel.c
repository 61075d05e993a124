/* A rank's part of a call: bring what it computes with, go from stop to stop, take the results
 * home; a portion of heads after the other.  See travel.h. */
#include "optimized/parallel/travel/travel.h"

#include <string.h>

#include "optimized/parallel/parallel.h"
#include "optimized/parallel/travel/work_mask.h"
#include "ref/problem.h"

/* ---- where tensors are ----------------------------------------------------------------------- */

/* A tensor that is moved has a buffer of its own, and so has a sum wider than its result. */
static void place_all(struct attn_travel *x)
{
    const enum attn_tag_kind *kinds;
    int inputs, tensors = attn_work_tensors(x->w.pass, &kinds, &inputs);
    enum attn_dtype wide = attn_lse_dtype(x->w.whole);
    char *dk = x->buffer[ATTN_DKV_SUM].data;
    int64_t dk_bytes =
        attn_work_block(&x->w, ATTN_TAG_DK, x->w.rank) * (int64_t)attn_dtype_size(wide);
    char *const wider[ATTN_TAG_KINDS] = {[ATTN_TAG_O] = x->buffer[ATTN_O_SUM].data,
                                         [ATTN_TAG_DQ] = x->buffer[ATTN_DQ_SUM].data,
                                         [ATTN_TAG_DK] = dk,
                                         [ATTN_TAG_DV] = dk != NULL ? dk + dk_bytes : NULL};
    for (int n = 0; n < tensors; n++) {
        enum attn_tag_kind kind = kinds[n];
        struct attn_placed *t = &x->tensor[kind];
        t->own = t->home;
        if (attn_work_moves(&x->w, kind))
            t->own = attn_block_at(&x->w, kind, attn_work_dtype(&x->w, kind), x->w.rank,
                                   x->buffer[kind].data);
        t->sum =
            wider[kind] == NULL ? t->own : attn_block_at(&x->w, kind, wide, x->w.rank, wider[kind]);
    }
}

/* -D of the rows that are at home. */
static void make_delta(struct attn_travel *x)
{
    struct attn_box home = attn_layout_box(&x->w.home, x->w.whole, 0, x->w.rank);
    struct attn_box stored = attn_layout_stored_box(&x->w.home, x->w.whole, 0, x->w.rank);
    struct attn_rows rows = {home.batch, home.heads.n, home.tokens, x->w.whole->d_value};
    struct attn_view *d = &x->tensor[ATTN_TAG_DELTA].home.view, d_lse = *d;
    struct attn_buffer *zeros = &x->buffer[ATTN_ZEROS];
    *d = attn_packed_view(x->buffer[ATTN_DELTA_SHARD].data, attn_lse_dtype(x->w.whole),
                          stored.heads.n, stored.tokens, 1);
    attn_rows_minus_delta(&rows, &x->tensor[ATTN_TAG_O].home.view,
                          &x->tensor[ATTN_TAG_LSE].home.view, &x->tensor[ATTN_TAG_DO].home.view,
                          &d_lse, d);
    if (zeros->numbers > 0)
        memset(zeros->data, 0, (size_t)(zeros->numbers * zeros->size));
}

/* ---- between home and work ------------------------------------------------------------------- */

static enum attn_status move(struct attn_travel *x, enum attn_tag_kind kind, int goes_home)
{
    struct attn_move m = attn_work_move(&x->w, kind, goes_home);
    void *home = x->tensor[kind].home.view.data, *work = x->tensor[kind].own.view.data;
    m.from.data = goes_home ? work : home;
    m.to.data = goes_home ? home : work;
    return attn_move(&m, x->rank->transport, x->buffer[ATTN_MESSAGES].data, x->rank->error);
}

/* The heads that were brought, of those at home, from a sum that is wider. */
static void round_home(struct attn_travel *x, enum attn_tag_kind kind, char *data)
{
    struct attn_box home = attn_layout_box(&x->w.home, x->w.whole, 1, x->w.rank);
    struct attn_box stored = attn_layout_stored_box(&x->w.home, x->w.whole, 1, x->w.rank);
    int64_t width = attn_tag_width(kind, x->w.whole);
    struct attn_tokens heads = attn_work_portions(&x->w) > 1 ? x->w.kv_heads : home.heads;
    struct attn_rows rows = {home.batch, heads.n, home.tokens, width};
    struct attn_block sum = {
        attn_packed_view(data, attn_lse_dtype(x->w.whole), stored.heads.n, stored.tokens, width),
        home.heads.first};
    struct attn_view from = attn_block_from(&sum, heads.first, 0);
    struct attn_view to = attn_block_from(&x->tensor[kind].home, heads.first, 0);
    attn_rows_round(&rows, &to, &from);
}

/* The gradients of copies are added at home. */
static enum attn_status move_sum(struct attn_travel *x, enum attn_tag_kind kind)
{
    struct attn_move m = attn_work_move(&x->w, kind, 1);
    struct attn_buffer copies[2];
    attn_work_copies(&x->w, kind, copies);
    enum attn_status status = attn_buffers_take(copies, 2, x->rank->ledger, x->rank->error);
    m.from.data = x->tensor[kind].own.view.data;
    m.to.data = copies[1].name != NULL ? copies[1].data : x->tensor[kind].home.view.data;
    if (status == ATTN_OK)
        status = attn_move_sum(&m, x->rank->transport, x->buffer[ATTN_MESSAGES].data,
                               copies[0].data, x->rank->error);
    if (status == ATTN_OK && copies[1].name != NULL)
        round_home(x, kind, copies[1].data);
    attn_buffers_give(copies, 2, x->rank->ledger);
    return status;
}

static enum attn_status bring(struct attn_travel *x)
{
    const enum attn_tag_kind *kinds;
    int inputs;
    enum attn_status status = ATTN_OK;
    attn_work_tensors(x->w.pass, &kinds, &inputs);
    place_all(x);
    for (int n = 0; n < inputs && status == ATTN_OK; n++) {
        enum attn_tag_kind kind = kinds[n];
        int is_there = /* of the forward pass, where K and V were saved */
            x->rank->has_brought && (kind == ATTN_TAG_K || kind == ATTN_TAG_V);
        if (attn_work_moves(&x->w, kind) && !is_there)
            status = move(x, kind, 0);
    }
    return status;
}

/* Of a block, from the first head of this portion on, where it may hold others. */
static struct attn_view portion_of(const struct attn_work *w, enum attn_tag_kind kind,
                                   const struct attn_block *block)
{
    int keys = attn_tag_is_of_keys(kind);
    return attn_block_from(block, keys ? w->kv_heads.first : w->heads.first, 0);
}

static enum attn_status take_home(struct attn_travel *x)
{
    const enum attn_tag_kind *kinds;
    int inputs, tensors = attn_work_tensors(x->w.pass, &kinds, &inputs);
    enum attn_status status = ATTN_OK;
    for (int n = inputs; n < tensors && status == ATTN_OK; n++) {
        enum attn_tag_kind kind = kinds[n];
        const struct attn_placed *t = &x->tensor[kind];
        if (t->sum.view.dtype != t->own.view.dtype) {
            struct attn_rows rows = attn_block_rows(&x->w, kind, x->w.rank);
            struct attn_view to = portion_of(&x->w, kind, &t->own);
            attn_rows_round(&rows, &to, &t->sum.view);
        }
        if (attn_work_is_summed(&x->w, kind))
            status = move_sum(x, kind);
        else if (attn_work_moves(&x->w, kind))
            status = move(x, kind, 1);
    }
    return status;
}

/* ---- from stop to stop -----------------------------------------------------------------------
 *
 * Which block of keys comes to a rank, and where the sums of its gradients go: attn_work_stop says
 * who sends to whom.
 *
 * Stop 0 multiplies the rank's own blocks, and starts every sum; where no pair is visible there it
 * starts with the neutral element.  At a later stop the queries' sums are here: results are merged,
 * or added to dQ.  dK and dV are added to sums that follow their block from rank to rank. */

/* Tensors of one rank's block of keys that travel together: K and V, with the mask of these keys,
 * or the sums of dK and dV. */
struct bundle {
    int n;
    enum attn_tag_kind kind[ATTN_TRAVELLERS];
    enum attn_dtype dtype[ATTN_TRAVELLERS];
    char *data[ATTN_TRAVELLERS];
    int64_t bytes[ATTN_TRAVELLERS];
};

/* At data, one behind the other. */
static struct bundle bundle_of(const struct attn_travel *x, enum attn_tag_kind first,
                               enum attn_dtype dtype, int rank, char *data)
{
    struct bundle b = {
        .n = x->w.whole->kv_shared ? 1 : 2, .kind = {first, first + 1}, .dtype = {dtype, dtype}};
    for (int n = 0; n < b.n; n++) {
        b.data[n] = data;
        b.bytes[n] = attn_work_block(&x->w, b.kind[n], rank) * (int64_t)attn_dtype_size(dtype);
        data += b.bytes[n];
    }
    return b;
}

/* The mask has a place of its own. */
static struct bundle keys_of(const struct attn_travel *x, int rank, char *data)
{
    struct bundle b = bundle_of(x, ATTN_TAG_K, x->w.whole->dtype, rank, data);
    if (attn_work_mask_travels(&x->w)) {
        b.kind[b.n] = ATTN_TAG_MASK_KEYS;
        b.dtype[b.n] = ATTN_U8;
        b.bytes[b.n] = attn_work_mask_rows(&x->w, rank);
        b.data[b.n++] = NULL;
    }
    return b;
}

/* Show the tensors of a rank's block to the products of this stop. */
static void unpack(struct attn_travel *x, const struct bundle *b, int rank)
{
    for (int n = 0; n < b->n; n++)
        x->tensor[b->kind[n]].now = attn_block_at(&x->w, b->kind[n], b->dtype[n], rank, b->data[n]);
}

static void list_messages(const struct bundle *b, int peer, int step, struct attn_message *message,
                          struct attn_piece *piece)
{
    for (int n = 0; n < b->n; n++) {
        piece[n] = attn_piece_whole(b->bytes[n]);
        message[n] = (struct attn_message){.peer = peer,
                                           .tag = attn_tag(b->kind[n], step),
                                           .data = b->data[n],
                                           .piece = &piece[n],
                                           .pieces = 1,
                                           .dtype = b->dtype[n]};
    }
}

/* Post what goes on to a stop, and room for what comes to it. */
static enum attn_status post(struct attn_travel *x, struct attn_hop *h, int step,
                             const struct attn_stop *stop, const struct bundle *out,
                             const struct bundle *in)
{
    list_messages(out, stop->to, step, h->send, h->sent);
    list_messages(in, stop->from, step, h->receive, h->got);
    h->post = (struct attn_post){
        .send = h->send, .n_sends = out->n, .receive = h->receive, .n_receives = in->n};
    return attn_post(x->rank->transport, &h->post, x->rank->error);
}

static enum attn_status wait(struct attn_travel *x, struct attn_hop *h)
{
    return attn_wait(x->rank->transport, &h->post, x->rank->error);
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* Where K, V of this stop are received. */
static struct bundle keys_that_come(const struct attn_travel *x, int n)
{
    int part = x->buffer[ATTN_KV_TRAVEL].parts > 1 ? (n - 1) % 2 : 0;
    struct bundle b =
        keys_of(x, attn_work_stop(&x->w, n).key, attn_buffer_at(&x->buffer[ATTN_KV_TRAVEL], part));
    if (attn_work_mask_travels(&x->w))
        b.data[b.n - 1] = attn_buffer_at(&x->buffer[ATTN_MASK_TRAVEL], part);
    return b;
}

/* The keys that are here go on to stop n, and others come, while this stop's are multiplied. */
static enum attn_status pass_on(struct attn_travel *x, int n)
{
    const struct attn_stop next = attn_work_stop(&x->w, n);
    struct bundle out = keys_of(x, x->w.stop.key, NULL), in = keys_that_come(x, n);
    for (int i = 0; i < out.n; i++)
        out.data[i] = x->tensor[out.kind[i]].now.view.data;
    return post(x, &x->keys, n - 1, &next, &out, &in);
}

/* ---- sums of gradients of keys --------------------------------------------------------------- */

/* Where the sum of dK, dV that follows a block is at a stop; after the last one it is at home.  It
 * needs two places, one to send from and one to receive into; the rank's own sum is one of them
 * where it has room for any block. */
static void *following_sum(const struct attn_travel *x, int stop)
{
    int even = attn_work_is_even(&x->w);
    if (x->w.stops == 1 || stop == x->w.stops || (even && (x->w.stops - stop) % 2 == 0))
        return NULL;
    return attn_buffer_at(&x->buffer[ATTN_DKV_TRAVEL], even ? 0 : stop % 2);
}

static struct bundle following_bundle(const struct attn_travel *x, int stop)
{
    int rank = attn_work_stop(&x->w, stop).key;
    void *place = following_sum(x, stop);
    struct bundle b = bundle_of(x, ATTN_TAG_DK, attn_lse_dtype(x->w.whole), rank, place);
    for (int n = 0; n < b.n && place == NULL; n++)
        b.data[n] = x->tensor[b.kind[n]].sum.view.data;
    return b;
}

/* The gradients that this stop's products are added to. */
static void show_gradients(struct attn_travel *x)
{
    if (following_sum(x, x->w.n_stop) != NULL) {
        struct bundle b = following_bundle(x, x->w.n_stop);
        unpack(x, &b, x->w.stop.key);
        return;
    }
    x->tensor[ATTN_TAG_DK].now = x->tensor[ATTN_TAG_DK].sum;
    x->tensor[ATTN_TAG_DV].now = x->tensor[ATTN_TAG_DV].sum;
}

/* The sums of this stop's keys go on to the next, the last time home. */
static enum attn_status pass_sums_on(struct attn_travel *x, int n)
{
    struct attn_hop h;
    const struct attn_stop next = attn_work_stop(&x->w, n + 1);
    struct bundle out = following_bundle(x, n), in = following_bundle(x, n + 1);
    enum attn_status status = post(x, &h, n, &next, &out, &in);
    return status == ATTN_OK ? wait(x, &h) : status;
}

/* ---- stops ----------------------------------------------------------------------------------- */

/* Keys arrive, and this stop's products are shown their blocks. */
static enum attn_status arrive(struct attn_travel *x, int n)
{
    enum attn_status status = ATTN_OK;
    attn_work_go(&x->w, n);
    for (enum attn_tag_kind kind = 0; kind < ATTN_TAG_DK; kind++)
        if (n == 0 || !attn_tag_is_of_keys(kind))
            x->tensor[kind].now = x->tensor[kind].sum;
    if (n == 0 || !attn_work_mask_travels(&x->w))
        x->tensor[ATTN_TAG_MASK_KEYS].now = x->tensor[ATTN_TAG_MASK_KEYS].own;
    if (n > 0) {
        struct bundle in = keys_that_come(x, n);
        status = wait(x, &x->keys);
        unpack(x, &in, x->w.stop.key);
    }
    if (x->w.pass == ATTN_BACKWARD)
        show_gradients(x);
    return status;
}

static void tell_held(const struct attn_travel *x, int n)
{
    static const enum attn_tag_kind kind[2][2] = {{ATTN_TAG_O, ATTN_TAG_LSE},
                                                  {ATTN_TAG_DK, ATTN_TAG_DV}};
    const struct attn_log *log = x->rank->transport->log;
    for (int k = 0; log != NULL && log->held != NULL && k < 2; k++) {
        enum attn_tag_kind tag = kind[x->w.pass][k];
        const struct attn_placed *t = &x->tensor[tag];
        int is_key = attn_tag_is_of_keys(tag);
        struct attn_rows rows = attn_block_rows(&x->w, tag, is_key ? x->w.stop.key : x->w.rank);
        const struct attn_holding held = {x->w.rank,
                                          n,
                                          attn_tag_name((int)tag),
                                          is_key ? t->now.view : t->sum.view,
                                          {rows.batch, rows.heads, rows.tokens, rows.width}};
        if (x->w.scheme->ring != NULL)
            log->held(log->arg, &held);
    }
}

/* All stops of this portion of heads. */
static enum attn_status run_stops(struct attn_travel *x)
{
    enum attn_status status = ATTN_OK;
    for (int n = 0; n < x->w.stops && status == ATTN_OK; n++) {
        status = arrive(x, n);
        if (status == ATTN_OK && n + 1 < x->w.stops)
            status = pass_on(x, n + 1);
        if (status == ATTN_OK)
            status = attn_travel_multiply(x);
        if (status == ATTN_OK)
            tell_held(x, n);
        if (status == ATTN_OK && x->w.pass == ATTN_BACKWARD && x->w.stops > 1)
            status = pass_sums_on(x, n);
    }
    return status;
}

/* ---- the call -------------------------------------------------------------------------------- */

/* The buffers of the call.  K and V that are saved lie in a block of the caller's ledger. */
static enum attn_status take_buffers(struct attn_travel *x)
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

static enum attn_status run_portion(struct attn_travel *x)
{
    enum attn_status status = bring(x);
    if (status == ATTN_OK)
        status = run_stops(x);
    return status == ATTN_OK ? take_home(x) : status;
}

enum attn_status attn_travel(struct attn_rank *rank, const struct attn_problem *whole,
                             enum attn_pass pass, const struct attn_view mine[ATTN_TAG_KINDS])
{
    struct attn_travel x = {.rank = rank,
                            .local = attn_rank_local_options(rank->options),
                            .w = attn_work_of(whole, rank->options, pass, rank->transport->rank)};
    for (enum attn_tag_kind kind = 0; kind < ATTN_TAG_KINDS; kind++) {
        struct attn_box box =
            attn_layout_box(&x.w.home, whole, attn_tag_is_of_keys(kind), x.w.rank);
        x.tensor[kind].home = (struct attn_block){mine[kind], box.heads.first};
    }
    enum attn_status status = take_buffers(&x);
    if (status == ATTN_OK && pass == ATTN_BACKWARD)
        make_delta(&x);
    if (status == ATTN_OK)
        status = attn_travel_bring_mask(&x);
    for (int n = 0; n < attn_work_portions(&x.w) && status == ATTN_OK; n++) {
        attn_work_portion(&x.w, n);
        status = run_portion(&x);
    }
    if (rank->saved != NULL)
        attn_ledger_uncount(rank->ledger, ATTN_SAVED_NAME, attn_work_saved(&x.w));
    attn_buffers_give(x.buffer, ATTN_WORK_BUFFERS, rank->ledger);
    return status;
}
