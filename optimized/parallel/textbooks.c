/* The textbooks of sequence parallelism as implementations: ring-textbook and ulysses-textbook.
 *
 * ref/ring.c and ref/ulysses.c are what one rank does.  Everything else is done here, once: shards,
 * buffers with their names and prices, what is refused, what bounds ask. */
#include <stdio.h>

#include "optimized/integers.h"
#include "optimized/parallel/parallel.h"
#include "optimized/parallel/rank.h"
#include "optimized/parallel/rank_sink.h"
#include "optimized/parallel/sent.h"
#include "ref/buffers.h"
#include "ref/problem.h"
#include "ref/rank_part.h"

enum { TILE = 64 }; /* queries, and keys, in a tile of ref/tiled.c */

static const struct attn_option options_of[] = {
    {"ranks", 4, 1, ATTN_MAX_RANKS, NULL, "ranks that share the sequence"}, {0}};

enum { BUFFERS = 24, TENSORS = ATTN_TAG_DV + 1 }; /* of q to dv: a mask is asked here, not sent */

/* One rank's buffers, and where each address goes. */
struct workspace {
    const struct attn_rank_part *part;
    struct attn_buffer buffer[BUFFERS];
    void **to[BUFFERS];
    int n;
};

/* ---- buffers --------------------------------------------------------------------------------- */

static void add(struct workspace *m, const char *name, int64_t rows, int64_t width, void **to)
{
    m->to[m->n] = to;
    m->buffer[m->n++] = attn_buffer_of(name, rows, width, m->part->size);
}

static void add_rows(struct workspace *m, const char *name, int64_t rows, int64_t width,
                     struct attn_matrix *to)
{
    to->ld = width;
    add(m, name, rows, width, &to->data);
}

/* Those of ref/tiled.c, for n queries. */
static void add_tile(struct workspace *m, struct attn_tiled_buffers *w, int64_t n,
                     enum attn_pass pass)
{
    int64_t d = m->part->whole->d_key, dv = m->part->whole->d_value;
    w->br = w->bc = TILE;
    add_rows(m, "tile.q", TILE, d, &w->Q);
    add_rows(m, "tile.k", TILE, d, &w->K);
    add_rows(m, "tile.v", TILE, dv, &w->V);
    add_rows(m, "tile.s", TILE, TILE, &w->S);
    if (pass == ATTN_FORWARD) {
        add_rows(m, "tile.o", TILE, dv, &w->O);
        add_rows(m, "tile.m", TILE, 1, &w->m);
        add_rows(m, "tile.l", TILE, 1, &w->l);
        return;
    }
    add_rows(m, "tile.do", TILE, dv, &w->dO);
    add_rows(m, "tile.slope", TILE, TILE, &w->slope);
    add_rows(m, "tile.dk", TILE, d, &w->dK);
    add_rows(m, "tile.dv", TILE, dv, &w->dV);
    add_rows(m, "delta", n, 1, &w->D);
}

static void lay_out_ring(struct workspace *m, struct attn_rank_part *x, enum attn_pass pass)
{
    static const char *const pair[] = {"kv.even", "kv.odd"}, *const sums[] = {"dkv.even",
                                                                              "dkv.odd"};
    const struct attn_problem *p = x->whole;
    int64_t rows = p->batch * p->kv_heads * x->n_key, width = p->d_key + p->d_value;
    int ranks = x->transport->size;
    for (int n = 0; n < 2 && n < ranks - 1; n++)
        add(m, pair[n], rows, width, &x->pair[n]);
    for (int n = 0; n < 2 && ranks > 1 && pass == ATTN_BACKWARD; n++)
        add(m, sums[n], rows, width, &x->gradients[n]);
    if (pass == ATTN_BACKWARD) {
        add(m, "block.dq", x->n_query, p->d_key, &x->dq_block);
    } else {
        add(m, "block.o", x->n_query, p->d_value, &x->o_block);
        add(m, "block.lse", x->n_query, 1, &x->lse_block);
    }
    add_tile(m, &x->tile, x->n_query, pass);
}

/* 1 for the tensors that ulysses brings to the heads, or makes there. */
static int is_of_heads(enum attn_tag_kind kind, enum attn_pass pass)
{
    return kind <= (pass == ATTN_FORWARD ? ATTN_TAG_LSE : ATTN_TAG_DV) &&
           !(pass == ATTN_BACKWARD && kind == ATTN_TAG_O);
}

static void lay_out_ulysses(struct workspace *m, struct attn_rank_part *x, enum attn_pass pass)
{
    static const char *const name[TENSORS] = {"heads.q",   "heads.k",  "heads.v",     "heads.o",
                                              "heads.lse", "heads.do", "heads.delta", "heads.dq",
                                              "heads.dk",  "heads.dv"};
    const struct attn_problem *p = x->whole;
    int64_t heads = p->batch * (p->heads / x->transport->size);
    for (enum attn_tag_kind kind = 0; kind <= ATTN_TAG_DV; kind++) {
        int64_t n = attn_tag_is_of_keys(kind) ? p->n_key : p->n_query;
        if (is_of_heads(kind, pass))
            add(m, name[kind], heads * n, attn_tag_width(kind, p), &x->heads[kind]);
    }
    if (pass == ATTN_BACKWARD) {
        add(m, "delta.own", p->batch * p->heads * x->n_query, 1, &x->minus_d);
        add(m, "zeros", 1, p->d_value, &x->zeros);
    }
    add_tile(m, &x->tile, p->n_query, pass);
}

/* ---- what the two differ in ------------------------------------------------------------------ */

struct textbook {
    attn_rank_pass *pass[2][2]; /* [pass][f64] */
    void (*lay_out)(struct workspace *m, struct attn_rank_part *x, enum attn_pass pass);
    void (*work)(const struct attn_rank_part *x, enum attn_pass pass, struct attn_cost *cost);
    struct attn_sent (*sent)(const struct attn_rank_part *x, enum attn_pass pass);
    const char *engine; /* the scheme that does the same for every size, order and type */
    int cuts_heads;     /* among ranks */
};
static const struct textbook *textbook_of(const struct attn_options *options);

static struct attn_rank_part part_of(const struct attn_problem *p, struct attn_transport *t)
{
    return (struct attn_rank_part){.whole = p,
                                   .transport = t,
                                   .n_query = p->n_query / t->size,
                                   .n_key = p->n_key / t->size,
                                   .size = (int64_t)attn_dtype_size(p->dtype)};
}

/* ---- a call ---------------------------------------------------------------------------------- */

static enum attn_status run_rank(const struct attn_rank_job *x, struct attn_rank *rank,
                                 struct attn_view mine[ATTN_TAG_KINDS])
{
    const struct textbook *book = textbook_of(rank->options);
    struct attn_rank_part part = part_of(x->problem, rank->transport);
    struct workspace m = {.part = &part};
    part.error = rank->error;
    part.tracer = x->ctx->tracer;
    for (int kind = 0; kind < TENSORS; kind++)
        part.mine[kind] = mine[kind].data;
    book->lay_out(&m, &part, x->pass);
    enum attn_status status = attn_buffers_take(m.buffer, m.n, rank->ledger, rank->error);
    for (int n = 0; n < m.n; n++)
        *m.to[n] = m.buffer[n].data;
    if (status == ATTN_OK)
        status = book->pass[x->pass][x->problem->dtype == ATTN_F64](&part);
    if (status == ATTN_OK)
        attn_buffers_give(m.buffer, m.n, rank->ledger); /* else when all messages have ended */
    return status;
}

static struct attn_rank_job job_of(struct attn_ctx *ctx, const struct attn_problem *p)
{
    return (struct attn_rank_job){
        .ctx = ctx, .problem = p, .home = attn_layout_of_tokens(p, ctx->options), .part = run_rank};
}

static enum attn_status forward(struct attn_ctx *ctx, const struct attn_problem *p,
                                const struct attn_forward *t)
{
    struct attn_rank_job x = job_of(ctx, p);
    return attn_rank_forward(&x, t);
}

static enum attn_status backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                 const struct attn_backward *t)
{
    struct attn_rank_job x = job_of(ctx, p);
    return attn_rank_backward(&x, t);
}

/* ---- the price ------------------------------------------------------------------------------- */

/* The price of the local attention of each block; each result is merged, or backward added. */
static void work_of_ring(const struct attn_rank_part *x, enum attn_pass pass,
                         struct attn_cost *cost)
{
    struct attn_problem block = *x->whole;
    int ranks = x->transport->size;
    double rows = (double)(block.batch * block.heads * x->n_query);
    block.n_query = x->n_query;
    block.n_key = x->n_key;
    block.origin.query.first = x->transport->rank * x->n_query;
    for (int J = 0; J < ranks; J++) {
        block.origin.key.first = J * x->n_key;
        cost->pairs += (double)attn_problem_all_pairs(&block, &cost->counted);
    }
    cost->flops = attn_pass_flops(&block, pass, cost->pairs) +
                  ranks * rows * (double)(pass == ATTN_FORWARD ? 3 * block.d_value : block.d_key);
}

/* The price of the rank's heads, and of D of its tokens. */
static void work_of_ulysses(const struct attn_rank_part *x, enum attn_pass pass,
                            struct attn_cost *cost)
{
    struct attn_problem heads = *x->whole;
    heads.heads = heads.kv_heads = heads.heads / x->transport->size;
    heads.origin.head = x->transport->rank * heads.heads;
    double rows = (double)(x->whole->batch * x->whole->heads * x->n_query);
    cost->pairs = (double)attn_problem_all_pairs(&heads, &cost->counted);
    cost->flops = attn_pass_flops(&heads, pass, cost->pairs) +
                  (pass == ATTN_FORWARD ? 0 : 2 * rows * (double)heads.d_value);
}

static struct attn_sent sent_by_ring(const struct attn_rank_part *x, enum attn_pass pass)
{
    const struct attn_problem *p = x->whole;
    int64_t ranks = x->transport->size, hops = ranks - 1;
    int64_t pair = p->batch * p->kv_heads * x->n_key * (p->d_key + p->d_value) * x->size;
    if (pass == ATTN_BACKWARD && ranks > 1)
        hops += ranks; /* of gradients: the last one brings them home */
    return (struct attn_sent){hops * pair, 2 * hops};
}

static struct attn_sent sent_by_ulysses(const struct attn_rank_part *x, enum attn_pass pass)
{
    const struct attn_problem *p = x->whole;
    int64_t ranks = x->transport->size, heads = p->batch * (p->heads / ranks);
    struct attn_sent sent = {0};
    for (enum attn_tag_kind kind = 0; kind <= ATTN_TAG_DV; kind++)
        if (is_of_heads(kind, pass)) {
            int64_t n = attn_tag_is_of_keys(kind) ? x->n_key : x->n_query;
            sent.bytes += (ranks - 1) * heads * n * attn_tag_width(kind, p) * x->size;
            sent.messages += ranks - 1;
        }
    return sent;
}

static enum attn_status cost(const struct attn_problem *p, const struct attn_options *options,
                             enum attn_pass pass, int rank, struct attn_cost *cost,
                             struct attn_error *err)
{
    const struct textbook *book = textbook_of(options);
    struct attn_transport at = {.rank = rank, .size = attn_parallel_ranks(options)};
    struct attn_rank_part part = part_of(p, &at);
    struct workspace m = {.part = &part};
    struct attn_buffer of_sink[ATTN_SINK_BUFFERS];
    struct attn_problem mine = *p;
    const struct attn_layout home = attn_layout_of_tokens(p, options);
    struct attn_sent sent =
        attn_sent_both(book->sent(&part, pass), attn_rank_sink_sent(p, pass, at.size));
    mine.n_query = part.n_query;
    mine.n_key = part.n_key;
    attn_rank_sink_buffers(p, &home, pass, rank, of_sink);
    book->lay_out(&m, &part, pass);
    book->work(&part, pass, cost);
    cost->bytes_sent = sent.bytes;
    cost->messages = sent.messages;
    cost->shard_bytes = attn_pass_bytes(&mine, pass);
    enum attn_status status = attn_buffers_price(of_sink, ATTN_SINK_BUFFERS, cost, err);
    return status == ATTN_OK ? attn_buffers_price(m.buffer, m.n, cost, err) : status;
}

/* ---- what is refused, and what bounds ask ---------------------------------------------------- */

static enum attn_status accepts(const struct attn_problem *p, const struct attn_options *options,
                                struct attn_error *err)
{
    const struct textbook *book = textbook_of(options);
    const int ranks = attn_parallel_ranks(options);
    const struct attn_divisible x[] = {{"queries", p->n_query, ranks},
                                       {"keys", p->n_key, ranks},
                                       {"heads", p->heads, book->cuts_heads ? ranks : 1}};
    char other[64];
    if (!attn_problem_is_whole(p))
        return attn_fail(err, ATTN_ENOTSUP,
                         "%s: a piece of a problem is not dealt out again; %s would work",
                         options->impl->name, book->engine);
    snprintf(other, sizeof other, "%s, which deals out any number", book->engine);
    return attn_check_divisible(options, "", x, 3, other, err);
}

/* A term of a row's sum is rescaled once a tile of keys, in the one block that it belongs to. */
static int64_t rescales(const struct attn_problem *p, const struct attn_options *options)
{
    int64_t blocks = textbook_of(options)->cuts_heads ? 1 : attn_parallel_ranks(options);
    return ceil_div(p->n_key / blocks, TILE);
}

/* The first block is merged with the empty set, which rounds nothing; with a sink see
 * attn_precision_of. */
static int64_t merges(const struct attn_problem *p, const struct attn_options *options)
{
    (void)p;
    return textbook_of(options)->cuts_heads ? 0 : attn_parallel_ranks(options) - 1;
}

static void shapes(const struct attn_options *options, char *text, size_t size)
{
    int ranks = attn_parallel_ranks(options);
    int n = snprintf(text, size, "queries: %d.. step %d; keys: %d.. step %d", ranks, ranks, ranks,
                     ranks);
    if (textbook_of(options)->cuts_heads)
        snprintf(text + n, size - (size_t)n, "; heads: %d.. step %d", ranks, ranks);
}

/* ---- the two --------------------------------------------------------------------------------- */

enum {
    CAPS = ATTN_CAP_F64 | ATTN_CAP_F32 | ATTN_CAP_BACKWARD | ATTN_CAP_CROSS | ATTN_CAP_DV |
           ATTN_CAP_MASK | ATTN_CAP_HARD | ATTN_CAP_SOFTCAP | ATTN_CAP_ALIBI | ATTN_CAP_DLSE |
           ATTN_CAP_STRIDES | ATTN_CAP_SINK
};

static const struct textbook ring = {.pass = {{attn_ring_forward_f32, attn_ring_forward_f64},
                                              {attn_ring_backward_f32, attn_ring_backward_f64}},
                                     .lay_out = lay_out_ring,
                                     .work = work_of_ring,
                                     .sent = sent_by_ring,
                                     .engine = "ring"};
static const struct textbook ulysses = {
    .pass = {{attn_ulysses_forward_f32, attn_ulysses_forward_f64},
             {attn_ulysses_backward_f32, attn_ulysses_backward_f64}},
    .lay_out = lay_out_ulysses,
    .work = work_of_ulysses,
    .sent = sent_by_ulysses,
    .engine = "ulysses",
    .cuts_heads = 1};

#define ATTN_TEXTBOOK(ID, NAME, MORE_CAPS, SUMMARY)                         \
    const struct attn_impl attn_impl_##ID = {.name = (NAME),                \
                                             .summary = (SUMMARY),          \
                                             .family = "sequence-parallel", \
                                             .caps = CAPS | (MORE_CAPS),    \
                                             .options = options_of,         \
                                             .ranks = attn_parallel_ranks,  \
                                             .rescales = rescales,          \
                                             .merges = merges,              \
                                             .accepts = accepts,            \
                                             .shapes = shapes,              \
                                             .cost = cost,                  \
                                             .forward = forward,            \
                                             .backward = backward,          \
                                             .sinks = ATTN_SINKS_BY_RANKS,  \
                                             .traces = 1};

ATTN_TEXTBOOK(ring_textbook, "ring-textbook", ATTN_CAP_GQA,
              "keys of every rank travel past its queries, hop by hop: one rank's code, to be read")
ATTN_TEXTBOOK(ulysses_textbook, "ulysses-textbook", 0,
              "tokens become heads by all-to-all, and back: one rank's code, to be read")

static const struct textbook *textbook_of(const struct attn_options *options)
{
    return options->impl == &attn_impl_ring_textbook ? &ring : &ulysses;
}
