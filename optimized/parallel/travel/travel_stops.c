/* From stop to stop of a ring: which block of keys comes to a rank, and where the sums of its
 * gradients go.  attn_work_stop says who sends to whom.
 *
 * Stop 0 multiplies the rank's own blocks, and starts every sum; where no pair is visible there it
 * starts with the neutral element.  At a later stop the queries' sums are here: results are merged,
 * or added to dQ.  dK and dV are added to sums that follow their block from rank to rank.
 */
#include "optimized/parallel/travel/travel.h"
#include "optimized/parallel/travel/work_mask.h"
#include "ref/problem.h"

/* ---- messages -------------------------------------------------------------------------------- */

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

enum attn_status attn_travel_stops(struct attn_travel *x)
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
