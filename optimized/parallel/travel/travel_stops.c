/* From stop to stop: which blocks come to a rank, and where what their products give goes.  The
 * schedule is the scheme's (scheme.h).
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
#include "optimized/parallel/travel/bundles.h"
#include "optimized/parallel/travel/travel.h"
#include "optimized/parallel/travel/work_mask.h"
#include "ref/problem.h"

/* ---- messages -------------------------------------------------------------------------------- */

/* Tensors of one rank's block that travel together, one behind the other. */
struct bundle {
    int n;
    enum attn_tag_kind kind[ATTN_TRAVELLERS];
    enum attn_dtype dtype[ATTN_TRAVELLERS];
    char *data[ATTN_TRAVELLERS];
    int64_t bytes[ATTN_TRAVELLERS];
};

static struct bundle bundle_at(const struct attn_travel *x, enum attn_bundle what, int rank,
                               char *data)
{
    const enum attn_tag_kind *kinds;
    struct bundle b = {.n = attn_bundle_kinds(x->w.pass, what, &kinds)};
    for (int n = 0; n < b.n; n++) {
        b.kind[n] = kinds[n];
        b.dtype[n] = attn_work_travel_dtype(&x->w, kinds[n]);
        b.data[n] = data;
        b.bytes[n] = attn_work_block(&x->w, kinds[n], rank) * (int64_t)attn_dtype_size(b.dtype[n]);
        data += b.bytes[n];
    }
    if (what == ATTN_BUNDLE_KEYS && attn_work_mask_travels(&x->w)) { /* in a place of its own */
        b.kind[b.n] = ATTN_TAG_MASK_KEYS;
        b.dtype[b.n] = ATTN_U8;
        b.bytes[b.n] = attn_work_mask_rows(&x->w, rank);
        b.data[b.n++] = NULL;
    }
    return b;
}

/* What a visitor's queries gave, or the rank's own gave elsewhere. */
static struct bundle results_at(const struct attn_travel *x, int rank)
{
    int forward = x->w.pass == ATTN_FORWARD;
    struct bundle b = bundle_at(x, ATTN_BUNDLE_RESULTS, rank,
                                x->buffer[forward ? ATTN_O_PARTIAL : ATTN_DQ_PARTIAL].data);
    if (forward)
        b.data[1] = x->buffer[ATTN_LSE_PARTIAL].data;
    return b;
}

/* The rank's own block, where it lies. */
static struct bundle own_bundle(const struct attn_travel *x, enum attn_bundle what)
{
    struct bundle b = bundle_at(x, what, x->w.rank, NULL);
    for (int n = 0; n < b.n; n++)
        b.data[n] = x->tensor[b.kind[n]].own.view.data;
    return b;
}

static struct attn_block block_in(const struct attn_travel *x, const struct bundle *b, int n,
                                  int rank)
{
    return attn_block_at(&x->w, b->kind[n], b->dtype[n], rank, b->data[n]);
}

/* Show the tensors of a rank's block to the products of this stop. */
static void unpack(struct attn_travel *x, const struct bundle *b, int rank)
{
    for (int n = 0; n < b->n; n++)
        x->tensor[b->kind[n]].now = block_in(x, b, n, rank);
}

/* As messages to or from this rank; -1: nobody.  How many. */
static int list_messages(const struct bundle *b, int peer, int step, struct attn_message *message,
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
    return peer >= 0 ? b->n : 0;
}

/* Send to one rank, receive from another. */
static void describe(struct attn_hop *h, int step, int to, const struct bundle *out, int from,
                     const struct bundle *in)
{
    h->post = (struct attn_post){.send = h->send,
                                 .n_sends = list_messages(out, to, step, h->send, h->sent),
                                 .receive = h->receive,
                                 .n_receives = list_messages(in, from, step, h->receive, h->got)};
}

static enum attn_status post(struct attn_travel *x, struct attn_hop *h)
{
    return attn_post(x->rank->transport, &h->post, x->rank->error);
}

static enum attn_status wait(struct attn_travel *x, struct attn_hop *h)
{
    return attn_wait(x->rank->transport, &h->post, x->rank->error);
}

/* Post and wait. */
static enum attn_status hop(struct attn_travel *x, int step, int to, const struct bundle *out,
                            int from, const struct bundle *in)
{
    struct attn_hop h;
    describe(&h, step, to, out, from, in);
    enum attn_status status = post(x, &h);
    return status == ATTN_OK ? wait(x, &h) : status;
}

/* ---- blocks of this stop --------------------------------------------------------------------- */

/* Where K, V of this stop are received. */
static struct bundle keys_that_come(const struct attn_travel *x, const struct attn_stop *stop,
                                    int n)
{
    int part = x->buffer[ATTN_KV_TRAVEL].parts > 1 ? (n - 1) % 2 : 0;
    struct bundle b = bundle_at(x, ATTN_BUNDLE_KEYS, stop->from >= 0 ? stop->key : x->w.rank,
                                attn_buffer_at(&x->buffer[ATTN_KV_TRAVEL], part));
    if (attn_work_mask_travels(&x->w))
        b.data[b.n - 1] = attn_buffer_at(&x->buffer[ATTN_MASK_TRAVEL], part);
    return b;
}

/* The keys that are here go on to stop n, and others come, while this stop's are multiplied. */
static enum attn_status pass_on(struct attn_travel *x, int n)
{
    struct attn_stop next = attn_work_stop(&x->w, n);
    struct bundle out = bundle_at(x, ATTN_BUNDLE_KEYS, x->w.stop.key, NULL),
                  in = keys_that_come(x, &next, n);
    for (int i = 0; i < out.n; i++)
        out.data[i] = x->tensor[out.kind[i]].now.view.data;
    describe(&x->keys, n - 1, next.to, &out, next.from, &in);
    return post(x, &x->keys);
}

/* K, V come from their owner, or have been on their way. */
static enum attn_status keys_arrive(struct attn_travel *x, int n)
{
    const struct attn_stop *stop = &x->w.stop;
    struct bundle in = keys_that_come(x, stop, n), out = own_bundle(x, ATTN_BUNDLE_KEYS);
    enum attn_status status =
        x->w.passes_on ? wait(x, &x->keys) : hop(x, n - 1, stop->to, &out, stop->from, &in);
    if (stop->from >= 0)
        unpack(x, &in, stop->key);
    return status;
}

/* A visitor's queries come, and find room for what they will give. */
static enum attn_status queries_arrive(struct attn_travel *x, int n)
{
    const struct attn_stop *stop = &x->w.stop;
    int visitor = stop->from >= 0 ? stop->query : x->w.rank;
    struct bundle in = bundle_at(x, ATTN_BUNDLE_QUERIES, visitor, x->buffer[ATTN_Q_TRAVEL].data);
    struct bundle out = own_bundle(x, ATTN_BUNDLE_QUERIES);
    enum attn_status status = hop(x, n - 1, stop->to, &out, stop->from, &in);
    if (stop->from >= 0) {
        struct bundle results = results_at(x, visitor);
        unpack(x, &in, visitor);
        unpack(x, &results, visitor);
    }
    return status;
}

/* The blocks that are the rank's own at this stop; but for dK, dV. */
static void show_own(struct attn_travel *x)
{
    const struct attn_stop *stop = &x->w.stop;
    int queries = stop->query == x->w.rank || stop->query < 0;
    int keys = x->w.n_stop == 0 || (!x->w.passes_on && stop->key == x->w.rank);
    for (enum attn_tag_kind kind = 0; kind < ATTN_TAG_DK; kind++)
        if (attn_tag_is_of_keys(kind) ? keys : queries)
            x->tensor[kind].now = x->tensor[kind].sum;
    if (keys || !attn_work_mask_travels(&x->w))
        x->tensor[ATTN_TAG_MASK_KEYS].now = x->tensor[ATTN_TAG_MASK_KEYS].own;
}

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
    struct bundle b = bundle_at(x, ATTN_BUNDLE_KEY_GRADIENTS, rank, place);
    for (int n = 0; n < b.n && place == NULL; n++)
        b.data[n] = x->tensor[b.kind[n]].sum.view.data;
    return b;
}

/* The gradients that this stop's products are added to. */
static void show_gradients(struct attn_travel *x)
{
    struct bundle b;
    if (x->w.passes_on && following_sum(x, x->w.n_stop) != NULL)
        b = following_bundle(x, x->w.n_stop);
    else if (!x->w.passes_on && x->w.stop.key != x->w.rank)
        b = bundle_at(x, ATTN_BUNDLE_KEY_GRADIENTS, x->w.stop.key,
                      x->buffer[ATTN_DKV_PARTIAL].data);
    else {
        x->tensor[ATTN_TAG_DK].now = x->tensor[ATTN_TAG_DK].sum;
        x->tensor[ATTN_TAG_DV].now = x->tensor[ATTN_TAG_DV].sum;
        return;
    }
    unpack(x, &b, x->w.stop.key);
}

/* What travels arrives, and this stop's products are shown their blocks. */
static enum attn_status arrive(struct attn_travel *x, int n)
{
    enum attn_status status = ATTN_OK;
    attn_work_go(&x->w, n);
    if (x->w.stop.travels == ATTN_KEYS_TRAVEL)
        status = keys_arrive(x, n);
    if (x->w.stop.travels == ATTN_QUERIES_TRAVEL)
        status = queries_arrive(x, n);
    show_own(x);
    if (x->w.pass == ATTN_BACKWARD && x->w.stop.key >= 0)
        show_gradients(x);
    return status;
}

/* ---- results of this stop -------------------------------------------------------------------- */

static void add_gradients(struct attn_travel *x, const struct bundle *back)
{
    for (int n = 0; n < back->n; n++) {
        struct attn_block part = block_in(x, back, n, x->w.rank);
        attn_travel_add(x, back->kind[n], &part);
    }
}

/* What came back for the rank's own queries is kept or merged, or added to dQ. */
static void merge_results(struct attn_travel *x, const struct bundle *back)
{
    if (x->w.merging == ATTN_DEFERRED) {
        x->kept++;
    } else if (x->w.pass == ATTN_FORWARD) {
        struct attn_block o_part = block_in(x, back, 0, x->w.rank);
        struct attn_block lse_part = block_in(x, back, 1, x->w.rank);
        attn_travel_merge(x, &o_part, &lse_part);
    } else
        add_gradients(x, back);
}

/* What the products of this stop gave goes where it belongs. */
static enum attn_status depart(struct attn_travel *x, int n)
{
    struct attn_work *w = &x->w;
    struct attn_stop stop = w->stop;
    enum attn_status status = ATTN_OK;
    if (w->passes_on && w->pass == ATTN_BACKWARD && w->stops > 1) {
        struct bundle out = following_bundle(x, n), in = following_bundle(x, n + 1);
        struct attn_stop next = attn_work_stop(w, n + 1);
        return hop(x, n, next.to, &out, next.from, &in);
    }
    if (w->passes_on || n == 0)
        return ATTN_OK;
    if (stop.travels == ATTN_QUERIES_TRAVEL) {
        struct bundle out = results_at(x, stop.from >= 0 ? stop.query : w->rank);
        struct bundle in = results_at(x, w->rank);
        if (w->merging == ATTN_DEFERRED && stop.to >= 0) { /* where it is kept */
            in.data[0] = attn_travel_kept(x, ATTN_TAG_O, x->kept).view.data;
            in.data[1] = attn_travel_kept(x, ATTN_TAG_LSE, x->kept).view.data;
        }
        status = hop(x, n, stop.from, &out, stop.to, &in);
        if (status == ATTN_OK && stop.to >= 0)
            merge_results(x, &in);
    }
    if (stop.travels == ATTN_KEYS_TRAVEL && w->pass == ATTN_BACKWARD) {
        struct bundle out =
            bundle_at(x, ATTN_BUNDLE_KEY_GRADIENTS, stop.from >= 0 ? stop.key : w->rank,
                      x->buffer[ATTN_DKV_PARTIAL].data);
        struct bundle in =
            bundle_at(x, ATTN_BUNDLE_KEY_GRADIENTS, w->rank, x->buffer[ATTN_DKV_BACK].data);
        status = hop(x, n, stop.from, &out, stop.to, &in);
        if (status == ATTN_OK && stop.to >= 0)
            add_gradients(x, &in);
    }
    return status;
}

/* Where results are merged one by one: what is kept or summed otherwise is no O yet. */
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
        if (x->w.passes_on && x->w.merging == ATTN_RUNNING)
            log->held(log->arg, &held);
    }
}

enum attn_status attn_travel_stops(struct attn_travel *x)
{
    enum attn_status status = ATTN_OK;
    for (int n = 0; n < x->w.stops && status == ATTN_OK; n++) {
        status = arrive(x, n);
        if (status == ATTN_OK && x->w.passes_on && n + 1 < x->w.stops)
            status = pass_on(x, n + 1);
        if (status == ATTN_OK)
            status = attn_travel_multiply(x);
        if (status == ATTN_OK) {
            tell_held(x, n);
            status = depart(x, n);
        }
    }
    return status;
}
