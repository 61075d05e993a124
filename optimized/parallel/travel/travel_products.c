/* Blocks in memory, and the products of one stop: local calls on pieces of blocks, whose results
 * are written, merged or added.  See travel.h. */
#include "optimized/parallel/parallel.h"
#include "optimized/parallel/travel/products.h"
#include "optimized/parallel/travel/travel.h"
#include "ref/problem.h"

/* ---- blocks ---------------------------------------------------------------------------------- */

struct attn_block attn_block_at(const struct attn_work *w, enum attn_tag_kind kind,
                                enum attn_dtype dtype, int rank, void *data)
{
    int keys = attn_tag_is_of_keys(kind);
    struct attn_box stored = attn_work_stored_box(w, keys, rank);
    return (struct attn_block){attn_packed_view(data, dtype, stored.heads.n, stored.tokens,
                                                attn_tag_width(kind, w->whole)),
                               keys ? w->kv_heads.first : w->heads.first};
}

struct attn_rows attn_block_rows(const struct attn_work *w, enum attn_tag_kind kind, int rank)
{
    int keys = attn_tag_is_of_keys(kind);
    struct attn_box box = attn_work_box(w, keys, rank);
    return (struct attn_rows){box.batch, keys ? w->kv_heads.n : w->heads.n, box.tokens,
                              attn_tag_width(kind, w->whole)};
}

struct attn_view attn_block_from(const struct attn_block *block, int64_t head, int64_t token)
{
    struct attn_view view = block->view;
    int64_t offset = (head - block->head) * view.stride[1] + token * view.stride[2];
    view.data = (char *)view.data + offset * (int64_t)attn_dtype_size(view.dtype);
    return view;
}

/* ---- the local implementation ---------------------------------------------------------------- */

/* A rank that fails gives its buffers back, whatever it has posted. */
static enum attn_status end_if_failed(struct attn_travel *x, enum attn_status status)
{
    struct attn_rank *rank = x->rank;
    return status == ATTN_OK ? status : attn_transport_end(rank->transport, status, rank->error);
}

static struct attn_ctx context(const struct attn_travel *x)
{
    return (struct attn_ctx){
        .ledger = x->rank->ledger, .options = &x->local, .error = x->rank->error};
}

/* On a piece of the problem, whose origin says which. */
static enum attn_status run_forward(struct attn_travel *x, const struct attn_product *m,
                                    const struct attn_forward *t)
{
    struct attn_ctx ctx = context(x);
    const struct attn_problem part = attn_travel_part(x, m);
    return end_if_failed(x, attn_run_forward(attn_rank_local(x->rank->options), &ctx, &part, t));
}

static enum attn_status run_backward(struct attn_travel *x, const struct attn_product *m,
                                     const struct attn_backward *t)
{
    struct attn_ctx ctx = context(x);
    const struct attn_problem part = attn_travel_part(x, m);
    return end_if_failed(x, attn_run_backward(attn_rank_local(x->rank->options), &ctx, &part, t));
}

/* ---- what a product has of its blocks -------------------------------------------------------- */

static struct attn_rows product_rows(const struct attn_product *m, enum attn_tag_kind kind,
                                     const struct attn_problem *whole)
{
    int keys = attn_tag_is_of_keys(kind);
    return (struct attn_rows){m->part.batch, keys ? m->kv_heads.n : m->heads.n,
                              keys ? m->part.n_key : m->part.n_query, attn_tag_width(kind, whole)};
}

/* The part of a block that a product has; of places, each is a batch of the product. */
static struct attn_view of_product(const struct attn_travel *x, const struct attn_block *block,
                                   enum attn_tag_kind kind, const struct attn_product *m)
{
    int keys = attn_tag_is_of_keys(kind), places = x->w.work.order == ATTN_PLACES;
    int64_t token = places ? 0 : keys ? m->key_at : m->query_at;
    struct attn_view view =
        attn_block_from(block, keys ? m->kv_heads.first : m->heads.first, token);
    if (places) {
        int64_t batch = m->batch * view.stride[0], place = view.stride[2];
        view.data = (char *)view.data + batch * (int64_t)attn_dtype_size(view.dtype);
        view.stride[0] = place;
        view.stride[2] = place * m->part.batch;
    }
    return view;
}

/* A partial result of a product. */
static struct attn_view partial(const struct attn_travel *x, enum attn_tag_kind kind,
                                const struct attn_product *m, void *data)
{
    struct attn_rows n = product_rows(m, kind, x->w.whole);
    return attn_packed_view(data, attn_lse_dtype(x->w.whole), n.heads, n.tokens, n.width);
}

/* V, or dV, that is a view of K, or dK. */
static enum attn_tag_kind owner_of(const struct attn_travel *x, enum attn_tag_kind kind)
{
    int is_view = x->w.whole->kv_shared;
    return is_view && kind == ATTN_TAG_V    ? ATTN_TAG_K
           : is_view && kind == ATTN_TAG_DV ? ATTN_TAG_DK
                                            : kind;
}

static struct attn_cview input(const struct attn_travel *x, enum attn_tag_kind kind,
                               const struct attn_product *m)
{
    kind = owner_of(x, kind);
    struct attn_view view = of_product(x, &x->tensor[kind].now, kind, m);
    return attn_view_const(&view);
}

/* ---- forward --------------------------------------------------------------------------------- */

/* The first result of a query is written where its sum is; later ones are merged into it. */
static enum attn_status forward_product(struct attn_travel *x, const struct attn_product *m)
{
    struct attn_view o_sum = of_product(x, &x->tensor[ATTN_TAG_O].now, ATTN_TAG_O, m), o = o_sum;
    struct attn_view lse_sum = of_product(x, &x->tensor[ATTN_TAG_LSE].now, ATTN_TAG_LSE, m);
    struct attn_view lse = lse_sum;
    if (!m->starts_query) {
        o = partial(x, ATTN_TAG_O, m, x->buffer[ATTN_O_PARTIAL].data);
        lse = partial(x, ATTN_TAG_LSE, m, x->buffer[ATTN_LSE_PARTIAL].data);
    }
    const struct attn_forward t = {input(x, ATTN_TAG_Q, m), input(x, ATTN_TAG_K, m),
                                   input(x, ATTN_TAG_V, m), o, lse};
    enum attn_status status = run_forward(x, m, &t);
    if (status == ATTN_OK && !m->starts_query) {
        struct attn_rows rows = product_rows(m, ATTN_TAG_O, x->w.whole);
        attn_rows_merge(&rows, &o_sum, &lse_sum, &o, &lse);
    }
    return status;
}

/* ---- backward -------------------------------------------------------------------------------- */

/* A product's gradient: written into the sum by its local call, or a partial one. */
static struct attn_view gradient(const struct attn_travel *x, enum attn_tag_kind kind,
                                 const struct attn_product *m, void *data)
{
    kind = owner_of(x, kind);
    int starts = attn_tag_is_of_keys(kind) ? m->starts_key : m->starts_query;
    return starts ? of_product(x, &x->tensor[kind].now, kind, m) : partial(x, kind, m, data);
}

/* A partial gradient is added to its sum. */
static void add(const struct attn_travel *x, enum attn_tag_kind kind, const struct attn_product *m,
                const struct attn_view *part)
{
    struct attn_rows rows = product_rows(m, kind, x->w.whole);
    struct attn_view sum = of_product(x, &x->tensor[kind].now, kind, m);
    if (attn_tag_is_of_keys(kind) ? !m->starts_key : !m->starts_query)
        attn_rows_add(&rows, &sum, part);
}

static enum attn_status backward_product(struct attn_travel *x, const struct attn_product *m)
{
    const struct attn_buffer *zeros = &x->buffer[ATTN_ZEROS];
    struct attn_rows keys = product_rows(m, ATTN_TAG_DK, x->w.whole);
    char *dk = x->buffer[ATTN_DKV_PARTIAL].data;
    char *dv = dk == NULL || x->w.whole->kv_shared
                   ? dk
                   : dk + keys.batch * keys.heads * keys.tokens * keys.width *
                              (int64_t)attn_dtype_size(attn_lse_dtype(x->w.whole));
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
    enum attn_status status = run_backward(x, m, &t);
    if (status != ATTN_OK)
        return status;
    add(x, ATTN_TAG_DQ, m, &t.dq);
    add(x, ATTN_TAG_DK, m, &t.dk);
    add(x, ATTN_TAG_DV, m, &t.dv);
    return ATTN_OK;
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* The result of a query, or a key, that no product started: of no keys, of no queries. */
static void clear(struct attn_travel *x, enum attn_tag_kind kind, const struct attn_product *m)
{
    struct attn_rows rows = product_rows(m, kind, x->w.whole);
    struct attn_view sum = of_product(x, &x->tensor[kind].now, kind, m);
    attn_rows_clear(&rows, &sum);
}

static void start_query(struct attn_travel *x, const struct attn_product *m)
{
    if (x->w.pass == ATTN_BACKWARD) {
        clear(x, ATTN_TAG_DQ, m);
        return;
    }
    struct attn_rows rows = product_rows(m, ATTN_TAG_O, x->w.whole);
    struct attn_view o = of_product(x, &x->tensor[ATTN_TAG_O].now, ATTN_TAG_O, m);
    struct attn_view lse = of_product(x, &x->tensor[ATTN_TAG_LSE].now, ATTN_TAG_LSE, m);
    attn_rows_neutral(&rows, &o, &lse);
}

static void start_key(struct attn_travel *x, const struct attn_product *m)
{
    if (x->w.pass == ATTN_FORWARD)
        return;
    clear(x, ATTN_TAG_DK, m);
    clear(x, ATTN_TAG_DV, m);
}

/* At stop 0. */
static void start_the_rest(struct attn_travel *x)
{
    const struct attn_work *w = &x->w;
    int queries = attn_layout_stretches(&w->work, 0), keys = attn_layout_stretches(&w->work, 1);
    for (int call = 0; call < ATTN_CALLS; call++) {
        for (int q = 0; q < queries; q++) {
            struct attn_product m = attn_work_product(w, call, q, 0, 0);
            if (!w->saw_query[call][q] && m.heads.n > 0)
                start_query(x, &m);
        }
        for (int k = 0; k < keys; k++) {
            struct attn_product m = attn_work_product(w, call, 0, k, 0);
            if (!w->saw_key[call][k] && m.heads.n > 0)
                start_key(x, &m);
        }
    }
}

/* Where nothing arrives, nothing is done. */
enum attn_status attn_travel_multiply(struct attn_travel *x)
{
    int computes = !attn_transport_counts(x->rank->transport);
    struct attn_product m;
    enum attn_status status = ATTN_OK;
    while (status == ATTN_OK && attn_work_next(&x->w, &m))
        if (computes)
            status = x->w.pass == ATTN_FORWARD ? forward_product(x, &m) : backward_product(x, &m);
    if (status == ATTN_OK && computes && x->w.n_stop == 0)
        start_the_rest(x);
    return status;
}
